//! What goes wrong on a simulated disk, and when.

use super::State;
use std::io;

/// What may go wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// From this operation (counted from 1) on, nothing works: the power is gone.
    PowerCut(u64),
    /// The first file sync at or after this operation fails with EIO, once. What it was to make durable
    /// is dropped: it can be read as before, and the next sync, which succeeds, knows nothing of it.
    SyncError(u64),
    /// The first write at or after this operation fails with EIO, once.
    WriteError(u64),
    /// So many reads of files fail with EIO, from now on.
    ReadErrors(u64),
    /// The read of this number (see [`super::MemDisk::reads`]) fails with EIO, once.
    ReadError(u64),
    /// The first creation, rename, or write of new bytes at or after this operation finds the medium
    /// full, once.
    NoSpace(u64),
    /// The bytes of the first write to a segment at or after this operation are put so many bytes further
    /// on (or before), and success is reported.
    Misdirected(u64, i64),
    /// The first such write at or after this operation is not made, and success is reported.
    Lost(u64),
    /// The first such write at or after this operation is made, synced and read back as any other; when
    /// the process has ended the medium shows what it held there before.
    Stale(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Write,
    Sync,
    Other,
}

fn eio(what: &str) -> io::Error {
    io::Error::other(format!("injected: {what}"))
}

impl State {
    /// Uses up one of the reads that are to fail, if any are left.
    pub(super) fn read_fault(&mut self) -> io::Result<()> {
        self.reads += 1;
        let now = self.reads;
        if let Some(at) = self.faults.iter().position(|f| *f == Fault::ReadError(now)) {
            self.faults.remove(at);
            return Err(eio("read"));
        }
        for fault in &mut self.faults {
            if let Fault::ReadErrors(left @ 1..) = fault {
                *left -= 1;
                return Err(eio("read"));
            }
        }
        Ok(())
    }

    /// Counts an operation and raises the fault that is due. A write or a name change at the moment
    /// of a power cut still happens (volatile); a sync does not.
    pub(super) fn operation(&mut self, kind: Operation, detail: u64) -> io::Result<()> {
        self.operations += 1;
        let now = self.operations;
        self.trace = (self.trace ^ detail ^ (kind as u64) << 60)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(23)
            ^ now;
        let due = self.faults.iter().position(|fault| match fault {
            Fault::PowerCut(at) => now >= *at,
            Fault::SyncError(at) => now >= *at && kind == Operation::Sync,
            Fault::WriteError(at) => now >= *at && kind == Operation::Write,
            Fault::ReadErrors(_)
            | Fault::ReadError(_)
            | Fault::NoSpace(_)
            | Fault::Misdirected(..)
            | Fault::Lost(_)
            | Fault::Stale(_) => false,
        });
        match due.map(|i| (i, self.faults[i])) {
            None => Ok(()),
            Some((_, Fault::PowerCut(_))) => Err(eio("power lost")),
            Some((i, fault)) => {
                self.faults.remove(i);
                Err(eio(&format!("{fault:?}")))
            }
        }
    }

    /// Raises the fault of a full medium for an operation that takes new space.
    pub(super) fn has_space(&mut self) -> io::Result<()> {
        let next = self.operations + 1;
        let due = |fault: &Fault| matches!(fault, Fault::NoSpace(at) if next >= *at);
        match self.faults.iter().position(due) {
            Some(at) => {
                self.faults.remove(at);
                Err(io::ErrorKind::StorageFull.into())
            }
            None => Ok(()),
        }
    }

    /// True if a write goes to a segment.
    fn is_segment(&self, inode: u64) -> bool {
        self.live.iter().any(|(path, id)| *id == inode && path.ends_with(".seg"))
    }

    /// True if a write to a segment will not have been made when the process has ended.
    pub(super) fn goes_stale(&mut self, inode: u64) -> bool {
        let (next, is_segment) = (self.operations + 1, self.is_segment(inode));
        let due = |fault: &Fault| matches!(fault, Fault::Stale(at) if is_segment && next >= *at);
        let at = self.faults.iter().position(due);
        at.map(|at| self.faults.remove(at)).is_some()
    }

    /// Where a write to a segment really goes; `None`: nowhere.
    pub(super) fn astray(&mut self, inode: u64, offset: u64) -> Option<u64> {
        let (next, is_segment) = (self.operations + 1, self.is_segment(inode));
        let due = |fault: &Fault| matches!(fault, Fault::Misdirected(at, _) | Fault::Lost(at) if is_segment && next >= *at);
        let Some(at) = self.faults.iter().position(due) else { return Some(offset) };
        match self.faults.remove(at) {
            Fault::Misdirected(_, by) => Some(offset.saturating_add_signed(by)),
            _ => None,
        }
    }

    pub(super) fn has_power(&self) -> io::Result<()> {
        let lost =
            |fault: &Fault| matches!(fault, Fault::PowerCut(at) if self.operations + 1 > *at);
        if self.faults.iter().any(lost) { Err(eio("power lost")) } else { Ok(()) }
    }
}
