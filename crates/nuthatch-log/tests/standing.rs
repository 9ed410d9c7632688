//! What a log answers while it is not known whether another process owns it.

mod common;

use common::{Event, Outcome, Rig, tiny};
use nuthatch_log::env::{DiskFile, Medium, MemDisk, Ownership, Standing, Tenure};
use nuthatch_log::{Disk, StreamId};
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

/// A disk whose owner's standing a test sets.
struct Leased {
    below: MemDisk,
    standing: Arc<Mutex<Standing>>,
    asked: Arc<AtomicU8>,
}

struct Lease {
    below: Box<dyn Tenure>,
    standing: Arc<Mutex<Standing>>,
    asked: Arc<AtomicU8>,
}

impl Tenure for Lease {
    fn standing(&self) -> Standing {
        self.asked.store(1, Ordering::Relaxed);
        *self.standing.lock().expect("no panic")
    }

    fn leave(&self) {
        self.below.leave();
    }
}

impl Ownership for Leased {
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>> {
        let Some(below) = self.below.take()? else { return Ok(None) };
        let (standing, asked) = (Arc::clone(&self.standing), Arc::clone(&self.asked));
        Ok(Some(Box::new(Lease { below, standing, asked })))
    }
}

impl Disk for Leased {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.below.create(path)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.below.open(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.below.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.below.list(dir)
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.below.create_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.below.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.below.free_bytes()
    }

    fn medium(&self) -> Medium {
        self.below.medium()
    }

    fn label(&self) -> String {
        self.below.label()
    }
}

struct Owner {
    rig: Rig,
    standing: Arc<Mutex<Standing>>,
    asked: Arc<AtomicU8>,
}

impl Owner {
    fn with_message() -> Self {
        let standing = Arc::new(Mutex::new(Standing::Current));
        let asked = Arc::new(AtomicU8::new(0));
        let disk = Leased {
            below: MemDisk::with_capacity(1 << 24),
            standing: Arc::clone(&standing),
            asked: Arc::clone(&asked),
        };
        let mut rig = Rig::open(tiny(), Arc::new(disk)).expect("it opens");
        rig.create(1, 0);
        assert_eq!(rig.publish(1, b"one"), Outcome::Acked(1));
        Self { rig, standing, asked }
    }

    fn is(&self, standing: Standing) {
        *self.standing.lock().expect("no panic") = standing;
    }
}

#[test]
fn requests_wait_while_another_process_may_own_the_log() {
    let mut owner = Owner::with_message();
    owner.is(Standing::Unknown);
    let token = owner.rig.outputs.token();
    owner.rig.run(Event::Read { stream: StreamId(1), seq: 1, token });
    assert_eq!(owner.rig.outputs.get(token), Outcome::Nothing, "not answered");
    let turn = owner.rig.core.turn();
    assert!(!turn.progress && turn.wake_at.is_some(), "looked at again soon, not at once");
    owner.is(Standing::Current);
    owner.rig.settle();
    assert_eq!(owner.rig.outputs.take(token), Outcome::Body(b"one".to_vec()));
    assert_eq!(owner.rig.publish(1, b"two"), Outcome::Acked(2));
}

#[test]
fn nothing_is_answered_by_a_log_that_another_process_owns() {
    let mut owner = Owner::with_message();
    owner.is(Standing::Lost);
    assert_eq!(owner.rig.read(1, 1), Outcome::Nothing);
    assert_eq!(owner.rig.publish(1, b"two"), Outcome::Nothing);
    // It does not come back: what was acknowledged meanwhile is not known here.
    let error = owner.rig.core.close().expect_err("it has stopped");
    assert!(error.reason.contains("another process"), "{}", error.reason);
}

#[test]
fn the_owner_is_asked_for_requests_only() {
    let mut owner = Owner::with_message();
    owner.asked.store(0, Ordering::Relaxed);
    owner.rig.settle();
    assert_eq!(owner.asked.load(Ordering::Relaxed), 0, "an idle turn costs no look at a clock");
}
