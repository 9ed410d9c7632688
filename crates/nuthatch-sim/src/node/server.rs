//! The process of a node: its logs, and which stream lives where.

use super::host::{Host, Outgoing, Route, Sent, Style};
use super::moves::Moves;
use super::outside::{Delivered, Outside};
use super::streams::{CONSUMERS, Kind};
use super::tier::{LogTier, Store, TierStyle};
use super::time::MachineTime;
use super::violation::Violation;
use nuthatch_log::env::{Clock, MemDisk, OwnableDisk};
use nuthatch_log::{CatalogError, OpenError, StreamId};
use nuthatch_streams::migration::{self, LogStream, OtherLogs, Resolution, Resume};
use nuthatch_streams::op::{CatalogEntry, OpResult};
use nuthatch_streams::steady::SteadyClock;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::io;
use std::sync::Arc;

/// Names of the logs.
pub const LOGS: [&str; 2] = ["one", "two"];

/// Numbers of operations that are asked at once: no request has such a one.
const AT_ONCE: u64 = u64::MAX;

/// What a node is made of, and outlives its processes.
pub struct Parts {
    pub disks: [MemDisk; 2],
    /// Where segments move to, if they do.
    pub store: Store,
    pub tier: Option<TierStyle>,
    pub time: MachineTime,
}

impl Parts {
    /// An empty node.
    pub fn new(seed: u64, tier: Option<TierStyle>) -> Self {
        let disks = [MemDisk::default(), MemDisk::default()];
        Self { disks, store: Store::new(seed), tier, time: MachineTime::default() }
    }

    /// The same once more, with room and without faults.
    pub fn copy(&self) -> Self {
        let disks = self.disks.each_ref().map(MemDisk::survive);
        disks.iter().for_each(|disk| disk.set_capacity(u64::MAX));
        Self { disks, store: self.store.copy(), tier: self.tier, time: self.time.copy() }
    }

    /// The disk of a log, and its tier if it has one.
    fn open(
        &self,
        log: usize,
        salt: u64,
    ) -> Result<(Arc<dyn OwnableDisk>, Option<LogTier>), StartFault> {
        let local = &self.disks[log];
        let Some(style) = self.tier else { return Ok((Arc::new(local.clone()), None)) };
        let tier = LogTier::open((LOGS[log], local), &self.store, &self.time, style, salt);
        let tier = tier.map_err(|error| tier_fault(log, &error))?;
        Ok((Arc::clone(tier.disk()) as Arc<dyn OwnableDisk>, Some(tier)))
    }
}

/// Why a process does not start.
#[derive(Debug)]
pub enum StartFault {
    /// A disk failed: another attempt may do better.
    Io { log: usize, error: String },
    /// The log says that it is damaged.
    Damage { log: usize, error: String },
    /// Something that must not be.
    Wrong(Violation),
}

impl From<StartFault> for Violation {
    fn from(fault: StartFault) -> Self {
        match fault {
            StartFault::Io { log, error } | StartFault::Damage { log, error } => {
                Violation::NotOpened { log, error }
            }
            StartFault::Wrong(violation) => violation,
        }
    }
}

/// Where every stream lives.
pub type Homes = [Option<LogStream>; Kind::ALL.len()];

/// A running process.
pub struct Server {
    pub hosts: [Host; 2],
    pub homes: Homes,
    /// Grows whenever a stream is elsewhere.
    version: u64,
    /// Where connections believe streams to be, and the version that they have seen.
    routes: (Homes, u64),
    pub moves: Moves,
    /// What the start has found: remains of streams that live elsewhere, and copies of none;
    pub forget: Vec<(Option<Kind>, LogStream)>,
    /// and copies to go on with.
    pub resume: Vec<(Kind, Resume)>,
    pub outside: Outside,
    pub clock: Arc<SteadyClock<MachineTime>>,
    next_id: u32,
}

fn kind_of(entry: &CatalogEntry) -> Kind {
    Kind::named(&entry.config.name).expect("a stream of ours")
}

fn fault(log: usize, error: &OpenError) -> StartFault {
    match error {
        error if error.io().is_some() => StartFault::Io { log, error: error.to_string() },
        error if error.is_damage() => StartFault::Damage { log, error: error.to_string() },
        error => StartFault::Wrong(Violation::NotOpened { log, error: error.to_string() }),
    }
}

/// A tier that is another's, or says so, is none that a next attempt opens.
fn tier_fault(log: usize, cause: &io::Error) -> StartFault {
    let error = cause.to_string();
    let is_damaged = |inner: &CatalogError| matches!(inner, CatalogError::Damaged { .. });
    let inner = cause.get_ref().and_then(|inner| inner.downcast_ref::<CatalogError>());
    match cause.kind() {
        _ if inner.is_some_and(is_damaged) => StartFault::Damage { log, error },
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::Unsupported => {
            StartFault::Wrong(Violation::NotOpened { log, error })
        }
        _ => StartFault::Io { log, error },
    }
}

impl Server {
    /// Opens the logs and decides about every stream, as a start does.
    pub fn start(parts: &Parts, style: Style, salt: u64) -> Result<Self, StartFault> {
        let outside = Outside::default();
        let clock = Arc::new(SteadyClock::new(parts.time.clone(), Box::new(|_| {})));
        let open = |log: usize| {
            let clock = Arc::clone(&clock) as Arc<dyn Clock>;
            let salt = salt ^ (log as u64) << 40;
            let disk = parts.open(log, salt)?;
            Host::open(disk, clock, style, salt, &outside).map_err(|error| fault(log, &error))
        };
        let hosts = [open(0)?, open(1)?];
        let homes = [None; Kind::ALL.len()];
        let (moves, routes, forget, resume) = (Moves::default(), (homes, 0), vec![], vec![]);
        let (version, next_id) = (1, 1);
        let mut server =
            Self { hosts, homes, version, routes, moves, forget, resume, outside, clock, next_id };
        server.find_streams()?;
        server.hosts.iter_mut().for_each(Host::serve);
        Ok(server)
    }

    /// What the clock of the node shows.
    pub fn now_ns(&self) -> i64 {
        self.clock.now().0
    }

    fn find_streams(&mut self) -> Result<(), StartFault> {
        let mut catalogs = Vec::new();
        for log in 0..LOGS.len() {
            catalogs.push(self.catalog(log)?);
        }
        let found = migration::resolve(&LOGS, &catalogs, OtherLogs::Nowhere).map_err(|error| {
            StartFault::Wrong(Violation::Unresolved { error: error.to_string() })
        })?;
        for (log, entry) in &found.serve {
            let kind = kind_of(entry);
            let home = LogStream { log: *log, stream: entry.id };
            if self.homes[kind as usize].replace(home).is_some() {
                return Err(StartFault::Wrong(Violation::TwoHomes { stream: kind.name() }));
            }
        }
        self.note_moves(&found, &catalogs);
        self.check_alone(&catalogs).map_err(StartFault::Wrong)
    }

    /// What is to be done about moves that the end of the last process interrupted.
    fn note_moves(&mut self, found: &Resolution, catalogs: &[Vec<CatalogEntry>]) {
        let entry = |at: LogStream| {
            let entry = catalogs[at.log].iter().find(|entry| entry.id == at.stream);
            entry.expect("a stream of the catalog")
        };
        // An unfinished copy is nothing that the next move has to wait for.
        let waits = |entry: &CatalogEntry| (!entry.provenance.arriving).then(|| kind_of(entry));
        self.forget = found.forget.iter().map(|at| (waits(entry(*at)), *at)).collect();
        let resume = found.resume.iter().cloned();
        self.resume = resume.map(|resume| (kind_of(entry(resume.source)), resume)).collect();
    }

    /// A log that is there without the other one serves no stream that lives in that.
    fn check_alone(&self, catalogs: &[Vec<CatalogEntry>]) -> Result<(), Violation> {
        for (log, catalog) in catalogs.iter().enumerate() {
            let Ok(found) =
                migration::resolve(&[LOGS[log]], std::slice::from_ref(catalog), OtherLogs::Nowhere)
            else {
                continue;
            };
            for (_, entry) in found.serve {
                let (kind, here) = (kind_of(&entry), LogStream { log, stream: entry.id });
                if self.homes[kind as usize] != Some(here) {
                    return Err(Violation::ServedAlone { stream: kind.name(), log: LOGS[log] });
                }
            }
        }
        Ok(())
    }

    fn catalog(&mut self, log: usize) -> Result<Vec<CatalogEntry>, StartFault> {
        match self.hosts[log].ask(AT_ONCE, Op::Catalog) {
            Some(Ok(OpOutcome::Catalog { streams, next_id, unreadable_records: 0 })) => {
                self.next_id = self.next_id.max(next_id.0);
                Ok(streams)
            }
            other => Err(StartFault::Wrong(Violation::Unexpected {
                what: format!("no catalog of log {log}: {other:?}"),
            })),
        }
    }

    /// An identity that no stream has had.
    pub fn fresh_id(&mut self) -> StreamId {
        self.next_id += 1;
        StreamId(self.next_id)
    }

    /// True if one of the logs takes no more writes.
    pub fn has_failed(&self) -> bool {
        self.hosts.iter().any(Host::has_failed)
    }

    /// Where a stream lives.
    fn home(&self, kind: Kind) -> Option<(&Host, StreamId)> {
        let home = self.homes[kind as usize]?;
        Some((&self.hosts[home.log], home.stream))
    }

    /// Asks for the creation of a stream, and lets its name mean it.
    pub fn create(&mut self, kind: Kind, number: u64) {
        let (id, log) = (self.fresh_id(), kind.first_log());
        let op = Op::CreateStream { id, account: AccountId::GLOBAL, config: kind.config() };
        self.hosts[log].send_op(number, op);
        self.rehome(kind, LogStream { log, stream: id });
    }

    fn rehome(&mut self, kind: Kind, home: LogStream) {
        self.homes[kind as usize] = Some(home);
        self.version += 1;
    }

    /// The new log has a stream: its name means that, and the old log hands it over. The outcome of
    /// `number` says whether that has forgotten it.
    pub fn switch(&mut self, kind: Kind, from: LogStream, to: LogStream, number: u64) {
        self.rehome(kind, to);
        let new = (&self.hosts[to.log], to.stream);
        self.hosts[from.log].hand_over(from.stream, new, self.version, number);
    }

    /// Sends items of a connection, which looks where the stream is only when it has to.
    fn send_items(&mut self, kind: Kind, send: impl Fn(&Host, Route) -> Sent) -> bool {
        loop {
            let (routes, seen) = self.routes;
            let sent = routes[kind as usize]
                .map(|at| send(&self.hosts[at.log], Route { id: at.stream, seen }));
            match sent {
                Some(Sent::Taken) => return true,
                Some(Sent::Busy) => return false,
                None | Some(Sent::Stale) if seen < self.version => {
                    self.routes = (self.homes, self.version);
                }
                None => return false,
                Some(Sent::Stale) => panic!("the newest routes are not stale"),
            }
        }
    }

    /// Sends an operation about a stream; false if there is no such stream.
    pub fn send(&self, kind: Kind, number: u64, op: impl FnOnce(StreamId) -> Op) -> bool {
        let Some((host, id)) = self.home(kind) else { return false };
        host.send_op(number, op(id));
        true
    }

    /// Publishes; false if nothing of it was taken.
    pub fn publish(&mut self, kind: Kind, messages: &[Outgoing]) -> bool {
        self.send_items(kind, |host, at| host.publish(kind, at, messages))
    }

    /// Asks for messages of a pull consumer.
    pub fn pull(&mut self, consumer: usize, count: u64) {
        let spec = CONSUMERS[consumer];
        self.send_items(spec.stream, |host, at| host.pull(at, spec.name, count));
    }

    /// Answers a delivery; false if that was not taken.
    pub fn ack(&mut self, consumer: usize, of: &Delivered, body: &str, confirm: bool) -> bool {
        let kind = CONSUMERS[consumer].stream;
        self.send_items(kind, |host, at| host.ack(at, of, body, confirm))
    }

    /// The outcome of an operation about a stream, if it comes without time passing.
    pub fn ask(&mut self, kind: Kind, op: impl FnOnce(StreamId) -> Op) -> Option<OpResult> {
        let home = self.homes[kind as usize]?;
        self.hosts[home.log].ask(AT_ONCE, op(home.stream))
    }

    /// Moves all segments that are due to the store.
    pub fn move_segments(&self) -> io::Result<()> {
        self.hosts.iter().filter_map(Host::tier).try_for_each(LogTier::move_all)
    }

    /// Runs all logs until they rest.
    pub fn settle(&mut self) {
        self.hosts.iter_mut().for_each(Host::settle);
    }
}
