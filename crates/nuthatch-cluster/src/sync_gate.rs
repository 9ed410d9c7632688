//! What all syncs of a journal go through.

use nuthatch_log::env::DiskFile;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much was written to a journal when a sync was asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Written(u64);

/// The files of a journal that hold what is not known to be durable, in their order, and how much that is.
#[derive(Clone)]
pub struct ToSync {
    /// The files.
    pub files: Vec<Arc<dyn DiskFile>>,
    /// How much was written.
    pub written: Written,
}

/// Makes files of a journal durable, one at a time. The system tells of a failure only once: whoever comes
/// after it, with whichever file, is told here. What a sync has made durable that began later costs no other.
pub struct SyncGate {
    failed: Mutex<bool>,
    written: AtomicU64,
    synced: AtomicU64,
}

impl Default for SyncGate {
    fn default() -> Self {
        // What an earlier process has written may not be durable.
        Self { failed: Mutex::new(false), written: AtomicU64::new(1), synced: AtomicU64::new(0) }
    }
}

impl SyncGate {
    /// Something was written. Calls do not overlap with each other, nor with those of [`SyncGate::written`].
    pub fn wrote(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// How much was written so far.
    #[must_use]
    pub fn written(&self) -> Written {
        Written(self.written.load(Ordering::Acquire))
    }

    /// True if what was written then is durable.
    #[must_use]
    pub fn has_synced(&self, written: Written) -> bool {
        self.synced.load(Ordering::Acquire) >= written.0
    }

    /// Makes durable what was written, if no sync has failed before.
    ///
    /// # Errors
    /// The disk's, or that an earlier sync had one.
    pub fn sync(&self, to_sync: &ToSync) -> io::Result<()> {
        let mut failed = self.failed.lock();
        if *failed {
            return Err(io::Error::other("an earlier sync of the journal has failed"));
        }
        if self.has_synced(to_sync.written) {
            return Ok(());
        }
        let synced = to_sync.files.iter().try_for_each(|file| file.sync());
        *failed = synced.is_err();
        if synced.is_ok() {
            self.synced.fetch_max(to_sync.written.0, Ordering::AcqRel);
        }
        synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// Counts its syncs, of which the one with this number fails.
    struct Counted {
        syncs: AtomicU64,
        fails: u64,
    }

    impl DiskFile for Counted {
        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            Ok(())
        }

        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Ok(0)
        }

        fn read_shared(&self, _: u64, _: usize) -> io::Result<Bytes> {
            Ok(Bytes::new())
        }

        fn sync(&self) -> io::Result<()> {
            let number = self.syncs.fetch_add(1, Ordering::AcqRel) + 1;
            if number == self.fails { Err(io::Error::other("broken")) } else { Ok(()) }
        }

        fn reread(&self) -> io::Result<()> {
            Ok(())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(0)
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_durable_already_is_not_synced_again_and_a_failure_is_told_to_all() {
        let gate = SyncGate::default();
        let file = Arc::new(Counted { syncs: AtomicU64::new(0), fails: 3 });
        let syncs = || file.syncs.load(Ordering::Acquire);
        let now = || ToSync { files: vec![Arc::clone(&file) as _], written: gate.written() };
        let before = now();
        gate.sync(&before).expect("what an earlier process wrote is synced");
        assert_eq!(syncs(), 1);
        gate.wrote();
        let later = now();
        gate.sync(&before).expect("it is durable");
        assert_eq!(syncs(), 1);
        gate.sync(&later).expect("nothing fails");
        assert_eq!(syncs(), 2);
        gate.wrote();
        gate.sync(&now()).expect_err("the third fails");
        gate.sync(&before).expect_err("and whoever comes after it");
        assert_eq!(syncs(), 3);
    }
}
