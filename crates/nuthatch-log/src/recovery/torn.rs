//! What a start keeps in `torn/`, and how much of it.

use super::{Machine, OpenError, Recovery, io_context};
use crate::checkpoint::{self, named_lsn};
use crate::env::{DiskFile, again, is_full};
use crate::rules::{KEEP_TORN, KEEP_UNUSABLE};
use crate::segment::Segment;
use crate::segment::scan::Beyond;
use crate::store::TORN_DIR;
use std::io;

/// Torn tails kept in `torn/` for somebody to look at, the newest ones.
const TORN_TAILS_MAX: usize = 32;
/// Their bytes: above this fewer are kept.
const TORN_BYTES_MAX: u64 = 64 << 20;
/// So many are kept however large they are.
const TORN_TAILS_MIN: usize = 4;

/// Unusable checkpoints kept in `torn/` for somebody to look at, the newest ones.
const TORN_CHECKPOINTS_MAX: usize = 8;
/// Their bytes: above this fewer are kept.
const TORN_CHECKPOINTS_BYTES_MAX: u64 = 64 << 20;
/// So many are kept however large they are.
const TORN_CHECKPOINTS_MIN: usize = 2;

/// Catalogs that the reserve has room for when all else that is to be kept found none: one that ends a
/// segment, and one that forgets what is over.
const CATALOGS_RESERVED: u64 = 2;

/// How many files of a kind are kept.
struct Kept {
    max: usize,
    bytes_max: u64,
    min: usize,
}

impl<M: Machine> Recovery<M> {
    /// Copies a torn tail to `torn/`. False if there is no room for that, with all of the reserve but
    /// the catalog's share: the bytes then stay where they are, behind the segment's end, until a later
    /// start has room.
    pub(super) fn set_torn_aside(
        &mut self,
        segment: &Segment,
        from: u64,
        beyond: &Beyond,
    ) -> Result<bool, OpenError> {
        let name = segment.header.file_name();
        self.report.torn_frames += beyond.frames.max(1);
        self.report.torn_bytes += beyond.end - from;
        self.trim_torn().map_err(io_context(TORN_DIR))?;
        match self.keep_bytes(&*segment.file, &format!("{name}-{from}"), from, beyond.end) {
            Ok(()) => Ok(true),
            Err(error) if is_full(&error) => {
                let what = "no room to set its torn tail aside: it stays where it is";
                self.options.report.say(&format!("segment {name}: {what}"));
                Ok(false)
            }
            Err(error) => Err(io_context(name)(error)),
        }
    }

    /// Copies bytes of a file to a file of this name in `torn/`, unless they are there.
    pub(super) fn keep_bytes(
        &self,
        file: &dyn DiskFile,
        name: &str,
        from: u64,
        to: u64,
    ) -> io::Result<()> {
        if !KEEP_TORN.holds() {
            return Ok(());
        }
        let len = usize::try_from(to - from).unwrap_or(usize::MAX);
        let bytes = again(|| file.read_shared(from, len))?;
        let mut path = format!("{TORN_DIR}/{name}");
        let mut copies = 0;
        loop {
            match self.disk.open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
                Ok(old) if old.read_shared(0, len.saturating_add(1))? == bytes => return Ok(()),
                Ok(_) => copies += 1,
            }
            path = format!("{TORN_DIR}/{name}.{copies}");
        }
        self.with_room_but(self.catalog_bytes(), || {
            let aside = self.disk.create(&path)?;
            let written = aside.write_at(&bytes, 0).and_then(|()| aside.sync());
            // A copy that is cut short would be taken for the whole.
            written.inspect_err(|_| drop(self.disk.remove(&path)))
        })?;
        self.disk.sync_dir(TORN_DIR)
    }

    /// Bytes of the reserve that are the catalog's.
    fn catalog_bytes(&self) -> u64 {
        CATALOGS_RESERVED * self.catalog.encode().len() as u64
    }

    pub(super) fn checkpoint_aside(&self, name: &str) -> Result<(), OpenError> {
        if !KEEP_UNUSABLE.holds() {
            return self.disk.remove(name).map_err(io_context(name));
        }
        self.move_aside(name).map_err(io_context(name))
    }

    /// Removes the oldest torn tails if there are too many, and says so. Files that recovery found
    /// and does not know stay: only somebody who looks at them can say what they are worth.
    fn trim_torn(&self) -> io::Result<()> {
        // One more is about to come.
        let max = TORN_TAILS_MAX - 1;
        let kept = Kept { max, bytes_max: TORN_BYTES_MAX, min: TORN_TAILS_MIN - 1 };
        // Names begin with epoch and position: they sort by age.
        self.trim("torn tail", &kept, &|name| name.contains(".seg-"))
    }

    /// Removes the oldest unusable checkpoints if there are too many, and says so: those that the one
    /// in use has superseded. What they summed up is in the log and in that one.
    pub(super) fn trim_checkpoints(&self) -> io::Result<()> {
        let Some(used) = self.report.checkpoint else { return Ok(()) };
        let kept = Kept {
            max: TORN_CHECKPOINTS_MAX,
            bytes_max: TORN_CHECKPOINTS_BYTES_MAX,
            min: TORN_CHECKPOINTS_MIN,
        };
        let is_superseded = |name: &str| {
            name.starts_with(checkpoint::PREFIX) && named_lsn(name).is_some_and(|lsn| lsn <= used)
        };
        self.trim("unusable checkpoint", &kept, &is_superseded)
    }

    fn trim(&self, what: &str, kept: &Kept, of_kind: &dyn Fn(&str) -> bool) -> io::Result<()> {
        let mut files = Vec::new();
        let mut bytes = 0;
        for name in self.disk.list(TORN_DIR)?.into_iter().filter(|name| of_kind(name)) {
            let path = format!("{TORN_DIR}/{name}");
            let len = self.disk.open(&path)?.len()?;
            bytes += len;
            files.push((path, len));
        }
        let mut left = files.len();
        for (path, len) in files {
            let many = left > kept.max || bytes > kept.bytes_max;
            if !many || left <= kept.min {
                break;
            }
            self.options.report.say(&format!("{path}, an old {what} of {len} bytes, is removed"));
            self.disk.remove(&path)?;
            (left, bytes) = (left - 1, bytes - len);
        }
        Ok(())
    }
}
