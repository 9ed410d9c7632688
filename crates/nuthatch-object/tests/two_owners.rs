//! Two servers on one log in a bucket, each on a thread of its own, of which one does something just
//! when the other is about to make a change: while it opens the log, and while it works. Whatever one
//! of them acknowledged is there, no sequence is given out twice, and the newer owner works.

#[path = "../../nuthatch-log/tests/common/mod.rs"]
mod common;
#[path = "../../../tests/seeds.rs"]
mod seeds;
#[path = "common/toxic.rs"]
mod toxic;

use common::{History, Rig, tiny, tiny_cold};
use nuthatch_log::{LogOptions, SyncPolicy};
use nuthatch_object::{Bucket, BucketOptions, ObjectDisk, ObjectDiskOptions};
use object_store::memory::InMemory;
use object_store::path::Path;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use toxic::{Interruption, ToxicStore, Toxics};

/// Schedules of a run.
const SCHEDULES: u64 = 240;

/// Changes of an opening at which the other one interferes.
const OPENING_CHANGES: u64 = 9;

/// How often both take turns in the end.
const TURNS: usize = 3;

enum Command {
    Open,
    Work(u64),
    End,
}

enum Reply {
    Done { is_failed: bool },
    Ended(Box<History>),
    Refused(String),
}

/// A server on a thread.
struct Server {
    store: Arc<ToxicStore>,
    commands: SyncSender<Command>,
    replies: Mutex<Receiver<Reply>>,
}

impl Server {
    fn new(inner: &Arc<InMemory>, seed: u64) -> Self {
        let toxics = Toxics { seed, fail_percent: 0, die_at: None, hide_fences: false };
        let store = Arc::new(ToxicStore::new(Arc::clone(inner), toxics));
        let ((commands, todo), (done, replies)) = (sync_channel(1), sync_channel(1));
        let its_store = Arc::clone(&store);
        std::thread::spawn(move || serve(&its_store, seed, &todo, &done));
        Self { store, commands, replies: Mutex::new(replies) }
    }

    fn run(&self, command: Command) -> Result<Reply, String> {
        self.commands.send(command).map_err(|_| "the server has ended".to_owned())?;
        match self.replies.lock().recv() {
            Ok(Reply::Refused(why)) => Err(why),
            Ok(reply) => Ok(reply),
            Err(_) => Err("the server has panicked".to_owned()),
        }
    }

    fn open(&self) -> Result<(), String> {
        self.run(Command::Open).map(drop)
    }

    /// True if its log goes on.
    fn work(&self, steps: u64) -> Result<bool, String> {
        match self.run(Command::Work(steps))? {
            Reply::Done { is_failed } => Ok(!is_failed),
            _ => Err("no answer to work".to_owned()),
        }
    }

    fn end(&self) -> Result<History, String> {
        match self.run(Command::End)? {
            Reply::Ended(history) => Ok(*history),
            _ => Err("no answer to the end".to_owned()),
        }
    }

    /// Has something done at the change of its store that comes after so many.
    fn interrupt(&self, after: u64, run: impl FnOnce() + Send + 'static) {
        let at = self.store.changes() + after;
        self.store.interrupt(Interruption { at, run: Box::new(run) });
    }
}

fn options(seed: u64) -> LogOptions {
    let options = if seed.is_multiple_of(2) { tiny() } else { tiny_cold() };
    LogOptions { sync: SyncPolicy::Always, block_bytes: 64, ..options }
}

fn open(store: &Arc<ToxicStore>, seed: u64, salt: u64) -> Result<Rig, String> {
    let bucket_options = BucketOptions { retry_first_ms: 0, ..BucketOptions::default() };
    let shared = Arc::clone(store);
    let bucket = Bucket::new(shared, Path::from("p/log"), "bucket".to_owned(), bucket_options);
    let bucket = Arc::new(bucket.map_err(|error| error.to_string())?);
    let seed = seed ^ salt << 40;
    let disk_options = ObjectDiskOptions { seed, part_bytes: 700, ..ObjectDiskOptions::default() };
    let disk = ObjectDisk::open(bucket, disk_options).map_err(|error| error.to_string())?;
    Rig::open_seeded(options(seed), Arc::new(disk), seed).map_err(|error| error.to_string())
}

fn serve(store: &Arc<ToxicStore>, seed: u64, todo: &Receiver<Command>, done: &SyncSender<Reply>) {
    let mut history = History::new(seed);
    let mut rig = None;
    for command in todo.iter() {
        let reply = match (command, &mut rig) {
            (Command::Open, _) => match open(store, seed, 3) {
                Ok(opened) => {
                    history.known.created.extend(opened.core.machine().streams.keys());
                    rig = Some(opened);
                    Reply::Done { is_failed: false }
                }
                Err(why) => Reply::Refused(why),
            },
            (Command::Work(steps), Some(rig)) => {
                history.work(rig, steps);
                history.collect(rig);
                Reply::Done { is_failed: rig.core.machine().failed.is_some() }
            }
            (Command::Work(_), None) => Reply::Done { is_failed: true },
            (Command::End, rig) => {
                drop(rig.take());
                history.known.in_flight.clear();
                let history = std::mem::replace(&mut history, History::new(0));
                Reply::Ended(Box::new(history))
            }
        };
        if done.send(reply).is_err() {
            return;
        }
    }
}

/// When the one interferes with the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meeting {
    /// The second opens the log at a change that the first makes while it opens it.
    BothOpen,
    /// The first works at each change that the second makes while it opens the log.
    WorkWhileOpening,
    /// The second opens the log at a change that the first makes while it works.
    OpenWhileWorking,
}

fn work_at_each_change(of: &Arc<ToxicStore>, first: Arc<Server>) {
    let store = Arc::clone(of);
    let run = Box::new(move || {
        // What becomes of it is looked at in the end.
        if first.work(2).is_ok() {
            work_at_each_change(&store, first);
        }
    });
    of.interrupt(Interruption { at: of.changes() + 1, run });
}

fn play(seed: u64) -> Result<(), String> {
    let inner = Arc::new(InMemory::new());
    let before = Server::new(&inner, seed * 8 + 1);
    before.open()?;
    before.work(10 + seed % 20)?;
    let mut known = before.end()?;
    let first = Arc::new(Server::new(&inner, seed * 8 + 2));
    let second = Arc::new(Server::new(&inner, seed * 8 + 3));
    let meeting = [Meeting::BothOpen, Meeting::WorkWhileOpening, Meeting::OpenWhileWorking];
    let meeting = meeting[(seed % 3) as usize];
    let rival = Arc::clone(&second);
    let comes = move || drop(rival.open().and_then(|()| rival.work(5)));
    // The self-test makes the first changes of an opening.
    let newest = match meeting {
        Meeting::BothOpen => {
            first.interrupt(1 + seed / 3 % OPENING_CHANGES, comes);
            // One that was overtaken while it opened the log is refused. Which of them made its fence
            // last is not said.
            if let Err(why) = first.open()
                && !why.contains("has taken over")
            {
                return Err(why);
            }
            None
        }
        Meeting::WorkWhileOpening => {
            first.open()?;
            first.work(20)?;
            work_at_each_change(&second.store, Arc::clone(&first));
            second.open()?;
            Some(&second)
        }
        Meeting::OpenWhileWorking => {
            first.open()?;
            first.interrupt(1 + seed * 7 % 60, comes);
            first.work(40)?;
            None
        }
    };
    let mut goes_on = Vec::new();
    for _ in 0..TURNS {
        goes_on = vec![first.work(6)?, second.work(6)?];
    }
    let which = goes_on.iter().filter(|goes_on| **goes_on).count();
    if which > 1 || (which == 0 && meeting != Meeting::OpenWhileWorking) {
        return Err(format!("{meeting:?}: {which} of two owners go on"));
    }
    if newest.is_some() && !goes_on[1] {
        return Err(format!("{meeting:?}: the newer owner does not go on"));
    }
    known.merge(first.end()?)?;
    known.merge(second.end()?)?;
    known.known.in_flight.clear();
    let toxics = Toxics { seed, fail_percent: 0, die_at: None, hide_fences: false };
    let store = Arc::new(ToxicStore::new(inner, toxics));
    let mut rig = open(&store, seed, 9)?;
    known.check(&mut rig).map_err(|why| format!("{meeting:?}: {why}"))
}

#[test]
fn two_owners_at_every_moment() {
    for seed in seeds::seeds(0..SCHEDULES) {
        play(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}
