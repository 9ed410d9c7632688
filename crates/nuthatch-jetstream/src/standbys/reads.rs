//! Direct gets that are answered from what this node follows, without their payload coming from the owner of the log.
//!
//! A few threads read, each one request at a time, and hold a standby for one look at it only: what follows a log, or is to open
//! it, waits for no disk here. Whatever cannot be answered so goes to the node that serves the stream, as if there was no standby.

use super::Standbys;
use crate::core_port::CorePort;
use crate::registry::quorum_log_number;
use crate::routing::CoreRouting;
use nuthatch_log::{Disk, StandbyReader};
use nuthatch_server::jetstream_port::LogId;
use nuthatch_server::jetstream_port::followed::{
    FollowedMark, FollowedRequest, FollowedSight, FollowedStreams,
};
use nuthatch_server::server::Server;
use nuthatch_streams::{AccountId, FollowedAnswer, FollowedGet, FollowedStep, Message};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;

/// Threads that read for direct gets.
const READS_AT_ONCE: usize = 4;

/// Direct gets that wait for one of them; what comes beyond goes to the owners of the logs.
const READS_WAITING_MAX: usize = 256;

/// The same of one account.
const READS_OF_ACCOUNT_MAX: usize = 64;

/// What clients hear, and ask again by themselves, while nobody serves the stream.
const NO_RESPONDERS: &[u8] = b"NATS/1.0 503\r\n\r\n";

/// Direct gets from standbys that are under way.
pub(super) struct Reads {
    standbys: Weak<Standbys>,
    core: CoreRouting,
    runtime: Handle,
    queue: Mutex<Queue>,
    /// Numbers of standbys that were begun.
    numbers: AtomicU64,
    answered: AtomicU64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<FollowedRequest>,
    threads: usize,
}

/// What was read of one log, for who reads next: with the files that it was read from.
#[derive(Default)]
pub(super) struct Readers(Mutex<Vec<(Arc<dyn Disk>, StandbyReader)>>);

impl Readers {
    /// Forgets what was read from other files than these: they would be kept on the disk.
    pub(super) fn keep(&self, files: Option<&Arc<dyn Disk>>) {
        let is_kept = |of: &Arc<dyn Disk>| files.is_some_and(|files| Arc::ptr_eq(of, files));
        self.0.lock().retain(|(of, _)| is_kept(of));
    }

    fn take(&self, files: &Arc<dyn Disk>) -> StandbyReader {
        let mut readers = self.0.lock();
        let known = readers.iter().position(|(of, _)| Arc::ptr_eq(of, files));
        let mut reader = known.map(|at| readers.swap_remove(at).1).unwrap_or_default();
        reader.begin();
        reader
    }

    fn give_back(&self, files: Arc<dyn Disk>, reader: StandbyReader) {
        let mut readers = self.0.lock();
        // One for each log is kept.
        if readers.is_empty() {
            readers.push((files, reader));
        }
    }
}

/// A thread that reads; it is counted until it ends, however it does.
struct Reading(Arc<Standbys>);

impl Drop for Reading {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.reads.queue.lock().threads -= 1;
        }
    }
}

impl Reading {
    fn run(self) {
        while let Some(request) = self.next() {
            let read = catch_unwind(AssertUnwindSafe(|| self.0.read(&request)));
            if read.is_err() {
                // What it has read may be half changed; the panic was told.
                self.0.give_up(request.mark.number);
                self.0.reads.pass_on(&request);
            }
        }
    }

    fn next(&self) -> Option<FollowedRequest> {
        let mut queue = self.0.reads.queue.lock();
        let next = queue.waiting.pop_front();
        // Whoever puts one in behind this begins another thread.
        queue.threads -= usize::from(next.is_none());
        next
    }
}

impl Reads {
    /// None, for standbys of this server.
    pub(super) fn new(standbys: &Weak<Standbys>, server: &Arc<Server>) -> Self {
        Self {
            standbys: standbys.clone(),
            core: CoreRouting::of(server),
            runtime: Handle::current(),
            queue: Mutex::default(),
            numbers: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        }
    }

    /// A number that no other standby has.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a request in; gives it back if too many wait, of its account or of all. `true`: a thread is to be begun for it.
    fn put(&self, request: FollowedRequest) -> Result<bool, Box<FollowedRequest>> {
        let mut queue = self.queue.lock();
        let of_account = queue.waiting.iter().filter(|one| one.account == request.account).count();
        if queue.waiting.len() >= READS_WAITING_MAX || of_account >= READS_OF_ACCOUNT_MAX {
            return Err(Box::new(request));
        }
        queue.waiting.push_back(request);
        let is_begun = queue.threads < READS_AT_ONCE;
        queue.threads += usize::from(is_begun);
        Ok(is_begun)
    }

    /// The node that serves the stream answers: this one, if that has changed meanwhile. Where none does, that is said.
    fn pass_on(&self, request: &FollowedRequest) {
        let FollowedRequest { account, subject, reply, headers, body, .. } = request;
        if !self.core.send(*account, &Message { subject, reply, headers, body }) {
            let none = Message { subject: reply, reply: b"", headers: NO_RESPONDERS, body: b"" };
            self.core.publish(*account, &none);
        }
    }
}

impl Standbys {
    /// Nothing is answered or taken over any more from what was followed of a log: it begins anew.
    fn give_up(&self, number: u8) {
        let Some(place) = self.by_log.lock().get(&number).cloned() else { return };
        if let Some(kept) = place.kept.lock().as_mut() {
            kept.is_whole = false;
        }
    }

    fn read(&self, request: &FollowedRequest) {
        let Some(answers) = self.answers(request) else { return self.reads.pass_on(request) };
        // Before they are there: who has got one finds it counted.
        self.reads.answered.fetch_add(1, Ordering::Relaxed);
        for FollowedAnswer { headers, body } in answers {
            let subject = &request.reply;
            let message = Message { subject, reply: b"", headers: &headers, body: &body };
            self.reads.core.publish(request.account, &message);
        }
    }

    /// What is to be answered; `None`: that is not known here.
    fn answers(&self, request: &FollowedRequest) -> Option<Vec<FollowedAnswer>> {
        let FollowedMark { number, standby, stream } = request.mark;
        let place = self.by_log.lock().get(&number).cloned()?;
        let literal = request.subject.slice(request.literal_at..);
        let mut get = FollowedGet::new((request.account, stream), literal, request.body.clone());
        let mut begun: Option<(Arc<dyn Disk>, StandbyReader)> = None;
        loop {
            let mut kept = place.kept.lock();
            let is_same = |kept: &&mut super::Kept| kept.is_whole && kept.number == standby;
            let kept_now = kept.as_mut().filter(is_same)?;
            let files = Arc::clone(&kept_now.files);
            let (_, reader) =
                begun.get_or_insert_with(|| (Arc::clone(&files), place.readers.take(&files)));
            let step =
                kept_now.standby.read(reader, |machine, log| machine.followed_get(&mut get, log));
            if let FollowedStep::Answered(answers) = step {
                let is_newest = begun.take_if(|(of, _)| Arc::ptr_eq(of, &files));
                is_newest.into_iter().for_each(|(of, reader)| place.readers.give_back(of, reader));
                return Some(answers);
            }
            drop(kept);
            if matches!(step, FollowedStep::NotHere) || !reader.load(&files) {
                return None;
            }
        }
    }
}

impl FollowedStreams for Standbys {
    fn look(&self, account: AccountId, log: &str, stream: &str) -> Option<FollowedSight> {
        let number = quorum_log_number(log)?;
        let place = self.by_log.lock().get(&number).cloned()?;
        let kept = place.kept.try_lock()?;
        let kept = kept.as_ref().filter(|kept| kept.is_whole)?;
        let stream = kept.standby.machine().followed(account, stream)?;
        let (log, position) = (LogId(kept.standby.log_id()), kept.standby.last());
        let mark = FollowedMark { number, standby: kept.number, stream };
        Some(FollowedSight { log, position, mark })
    }

    fn answer(&self, request: FollowedRequest) {
        match self.reads.put(request) {
            Err(request) => self.reads.pass_on(&request),
            Ok(false) => {}
            Ok(true) => {
                if let Some(standbys) = self.reads.standbys.upgrade() {
                    self.reads.runtime.spawn_blocking(move || Reading(standbys).run());
                }
            }
        }
    }

    fn answered(&self) -> u64 {
        self.reads.answered.load(Ordering::Relaxed)
    }
}
