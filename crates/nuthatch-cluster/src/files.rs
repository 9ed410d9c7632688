//! The files of a node: applied to as entries are committed, made durable, and replaced by those of another node.

use crate::directory::apply;
use crate::host::Host;
use crate::in_memory::Pace;
use crate::incoming;
use crate::life::Life;
use crate::links::{Links, Local};
use crate::replica::{Replica, STATE, Snapshot, remove_files};
use crate::transfer::{self, Announced, FileSource};
use crate::trim_holds::{TrimHold, TrimHolds};
use nuthatch_catalog_group::LogNumber;
use nuthatch_log::env::Disk;
use nuthatch_quorum::entry::Base;
use nuthatch_quorum::message::{Envelope, Message};
use nuthatch_quorum::types::Lsn;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Entries after which a keeper makes its files durable, so that a start has less to apply again.
const MARK_ENTRIES: u64 = 4096;

/// Bytes of entries after which it does so, too.
const MARK_BYTES: u64 = 64 << 20;

/// Files of the journal, of 64 MiB each, that stay beside the one that is written: whoever was away for less than
/// they hold is given entries, and others the files that these have made.
const JOURNAL_FILES: usize = 4;

/// As many stay at most for a node that is brought files meanwhile: 4 GiB.
const JOURNAL_FILES_HELD: usize = 64;

/// That of a keeper on a disk.
pub(crate) const ON_DISK: Pace =
    Pace { mark_bytes: MARK_BYTES, files: JOURNAL_FILES, held: JOURNAL_FILES_HELD };

/// After files of another node could not be brought it is not tried again for so long.
const FETCH_RETRY: Duration = Duration::from_secs(1);

/// How often a keeper applies what is committed, while anything is.
const APPLY_POLL: Duration = Duration::from_millis(100);

/// How often it looks at the room on its disk while nothing happens to the log: what fills the disk then are others.
const LOOK_AT_REST: Duration = Duration::from_secs(1);

/// The files of a node, and the cores that know where its entries go on.
pub struct Files {
    /// The cores.
    pub host: Arc<Host>,
    /// The files.
    pub replica: Arc<Mutex<Replica>>,
    /// What nodes will need that are brought files.
    pub holds: Arc<TrimHolds>,
    /// Held by whoever makes the files durable, or replaces them. Taken before the files.
    pub marking: Mutex<()>,
    /// When they are made durable, and how much of the journal stays.
    pub(crate) pace: Pace,
    /// Tells of entries that were applied by a node that does not own the log.
    pub(crate) applied: Applied,
}

/// The last entry that was applied, and who waits for another one.
#[derive(Default)]
pub(crate) struct Applied {
    last: Mutex<Option<Lsn>>,
    has_ended: AtomicBool,
    changed: Condvar,
}

impl Applied {
    fn set(&self, applied: Lsn) {
        let mut last = self.last.lock();
        if *last != Some(applied) {
            *last = Some(applied);
            self.changed.notify_all();
        }
    }

    fn end(&self) {
        let _last = self.last.lock();
        self.has_ended.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Waits until it is another one than `seen`, or for so long; which it is then. None: nothing is applied any more.
    pub(crate) fn wait(&self, seen: Lsn, limit: Duration) -> Option<Lsn> {
        let mut last = self.last.lock();
        let waits = |last: &mut Option<Lsn>| {
            last.is_none_or(|last| last == seen) && !self.has_ended.load(Ordering::Acquire)
        };
        self.changed.wait_while_for(&mut last, waits, limit);
        (!self.has_ended.load(Ordering::Acquire)).then(|| last.unwrap_or(seen))
    }
}

impl Files {
    /// Where the directory began anew, opens the files anew before anything else is done with them.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn settle(&self) -> io::Result<()> {
        if !self.host.is_renewed() {
            // Nobody waits for a mark that is under way.
            return Ok(());
        }
        let _marking = self.marking.lock();
        settle(&self.host, &mut self.replica.lock())
    }

    /// Looks at the room on the disk, and applies what is committed. True if nothing is left to be done before something
    /// else happens.
    fn tend(&self, life: &Life, told: &mut String) -> bool {
        let host = &*self.host;
        host.begin_tending();
        let disk = Arc::clone(self.replica.lock().disk());
        host.look_at_room(&*disk);
        let Err(error) = apply_committed(self) else {
            let applied = self.replica.lock().applied() >= host.status().commit;
            return applied && !host.is_renewed() && !host.takes_no_messages();
        };
        if !life.is_ending() && *told != error.to_string() {
            *told = error.to_string();
            host.report(&format!("the replicated directory: {told}"));
        }
        false
    }
}

fn settle(host: &Host, replica: &mut Replica) -> io::Result<()> {
    if host.take_renewed() {
        let disk = Arc::clone(replica.disk());
        *replica = reopened(host, disk)?;
    }
    Ok(())
}

impl FileSource for Files {
    fn snapshot(&self) -> io::Result<(Base, Snapshot, TrimHold)> {
        let replica = self.replica.lock();
        let snapshot = replica.snapshot()?;
        // Nothing is trimmed before it is held.
        let hold = self.holds.hold(snapshot.applied);
        drop(replica);
        let base = self.host.base_at(snapshot.applied);
        let base = base.ok_or_else(|| io::Error::other("the last applied entry cannot be read"))?;
        Ok((base, snapshot, hold))
    }
}

/// Brings files that were announced, and has them put in place.
///
/// # Errors
/// The operating system has no thread to give.
pub fn start_installing(
    log: LogNumber,
    files: Arc<Files>,
    announced: Receiver<Envelope>,
    links: Arc<Links>,
    local: Arc<dyn Local>,
) -> io::Result<()> {
    let life = local.life().clone();
    life.clone().spawn_of(log, "install", move || {
        for message in announced {
            if let Err(error) = install(&files, message, &links, &*local) {
                if life.is_ending() {
                    // What came is removed by the next start, or put in place if that is noted.
                    return;
                }
                files.host.report(&format!("files of another node were not brought: {error}"));
                if files.host.status().broken {
                    // What is noted as to be put in place is, by the next start.
                    return;
                }
                // What came would only take room.
                let disk = Arc::clone(files.replica.lock().disk());
                if let Err(error) = incoming::clear(&*disk) {
                    files.host.report(&format!("what came of them was not removed: {error}"));
                }
                life.pause(FETCH_RETRY);
            }
        }
    })
}

fn install(
    files: &Files,
    mut announced: Envelope,
    links: &Links,
    local: &dyn Local,
) -> io::Result<()> {
    let from = announced.from;
    let address = links.address(from).ok_or(io::ErrorKind::NotConnected)?;
    let report = |text: &str| files.host.report(text);
    report(&format!("what this node lacks is trimmed elsewhere: node {} sends its files", from.0));
    let disk = Arc::clone(files.replica.lock().disk());
    let (mut bytes, began) = (0, Instant::now());
    let part = |part| {
        bytes += part;
        files.host.part_came();
    };
    let Message::Install { base, .. } = &mut announced.message else { unreachable!("as asked") };
    let by = Announced { by: (from, announced.sender), base: base.lsn };
    let came = transfer::fetch((address, by), local, &*disk, part)?;
    *base = came;
    // Nobody applies or marks anything while the files change.
    let _marking = files.marking.lock();
    let mut replica = files.replica.lock();
    files.host.install(announced);
    if files.host.settled_status().broken {
        return Err(io::Error::other(
            "the keeper's directory has failed while they were put in place",
        ));
    }
    if files.host.take_renewed() {
        *replica = reopened(&files.host, disk)?;
        let seconds = began.elapsed().as_secs_f64();
        report(&format!(
            "{} MiB of files are in place, as of entry {} of the quorum log, after {seconds:.1} s",
            bytes >> 20,
            came.lsn.0
        ));
    } else {
        // They are not wanted any more.
        incoming::clear(&*disk)?;
    }
    Ok(())
}

/// Opens the files anew after they were replaced. Those that were open before are nobody's any more, so without
/// the new ones the node cannot go on.
fn reopened(host: &Host, disk: Arc<dyn Disk>) -> io::Result<Replica> {
    let opened = Replica::open(disk);
    if let Err(error) = &opened {
        host.fail(&format!("the files that were put in place cannot be opened: {error}"));
    }
    opened
}

/// Applies what is committed on a node that does not own the log, and marks how far that is durable.
///
/// # Errors
/// The operating system has no thread to give.
pub fn start_applying(life: &Life, log: LogNumber, files: Arc<Files>) -> io::Result<()> {
    let lives = life.clone();
    life.spawn_of(log, "apply", move || {
        let mut told = String::new();
        while !lives.pause(APPLY_POLL) {
            let mut rests = files.tend(&lives, &mut told);
            while rests && !lives.is_ending() {
                let woken = files.host.wait_for_work(LOOK_AT_REST);
                // What follows is looked at as often as ever.
                rests = files.tend(&lives, &mut told) && !woken;
            }
        }
        files.applied.end();
    })
}

fn apply_committed(files: &Files) -> io::Result<()> {
    let host = &*files.host;
    let _marking = files.marking.lock();
    let unmarked = {
        let mut replica = files.replica.lock();
        settle(host, &mut replica)?;
        let commit = host.status().commit;
        if commit > replica.applied() {
            apply(host, &mut replica, commit)?;
        }
        files.applied.set(replica.applied());
        replica.unmarked()
    };
    host.prepare_journal();
    let is_due = unmarked.0 >= MARK_ENTRIES || unmarked.1 >= files.pace.mark_bytes;
    // After a failure nobody knows what is durable: the next start reads it.
    if host.status().broken {
        return Ok(());
    }
    if is_due || host.is_short() && unmarked.0 > 0 {
        match make_durable(files) {
            Err(error) => host.fail(&format!("the keeper's files cannot be made durable: {error}")),
            Ok(()) if host.is_renewed() => forget_mark(host, &files.replica.lock()),
            Ok(()) => trim(files),
        }
    } else if host.is_short() && !host.is_renewed() {
        trim(files);
    }
    Ok(())
}

/// Trims the journal up to what is durable in the files. On a disk that is nearly full none of it is kept for nodes that are
/// away: they are given the files.
fn trim(files: &Files) {
    let held = files.holds.free_to(Instant::now());
    let marked = files.replica.lock().marked();
    let kept = if files.host.is_short() { 0 } else { files.pace.files };
    files.host.trim(marked, (kept, files.pace.held), held);
}

/// Makes the files durable as they are now. While that waits for the disk, commits are applied to them.
fn make_durable(files: &Files) -> io::Result<()> {
    let (mark, disk) = {
        let mut replica = files.replica.lock();
        (replica.begin_mark()?, Arc::clone(replica.disk()))
    };
    files.host.sync_journal()?;
    mark.make_durable(&*disk)?;
    let gone = files.replica.lock().end_mark(mark);
    remove_files(&*disk, &gone)
}

/// The directory began anew while its former files were marked: the mark names files that are not there any more.
fn forget_mark(host: &Host, replica: &Replica) {
    let disk = replica.disk();
    let removed = disk.remove(STATE).and_then(|()| disk.sync_dir(""));
    if removed.is_ok() && disk.medium().in_memory {
        // A log in memory that began anew; the files are opened before they are looked at again.
        return;
    }
    let what = match removed {
        Ok(()) => "it must be started again".to_owned(),
        Err(error) => format!("remove {STATE} in it by hand: {error}"),
    };
    host.fail(&format!("the keeper's directory began anew while it was in use: {what}"));
}
