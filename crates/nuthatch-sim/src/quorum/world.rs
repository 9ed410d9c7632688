//! The machines, the network and the catalog of one seed, and what happens to them.

use super::checker::{Checker, Violation, ViolationKind, broken};
use super::faults::Mix;
use super::host::{Host, incarnation};

use crate::clock::{Clock, DRIFT_MAX, DRIFT_WILD, WallClock};
use crate::disk::{Sync, WriteError};
use crate::net::{Net, Weather};
use crate::scheduler::Scheduler;
use driver::Driver;
use nuthatch_quorum::catalog::{Call, Catalog, CatalogReply, NodeRow};
use nuthatch_quorum::effect::{Alarm, Effect};
use nuthatch_quorum::message::{Answer, Envelope, Message, Reply};
use nuthatch_quorum::node::{Event, Node, Reads};
use nuthatch_quorum::owner::Publish;
use nuthatch_quorum::store::{Identity, Image, Record, StoreError};
use nuthatch_quorum::timing::TICK;
use nuthatch_quorum::types::{
    BootCount, Incarnation, Lsn, Member, NodeId, Position, Promise, RequestId, Revision, SyncId,
};
use std::collections::BTreeMap;

mod asked;
mod catalog;
mod clients;
mod driver;
mod harm;
mod nemesis;
mod whole;

const SECOND: u64 = 1_000_000;
const MILLI: u64 = 1_000;

/// How a world is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keepers of the log: 3 or 5. None: drawn, 3 in most seeds.
    pub nodes: Option<u8>,
    /// Nodes that keep nothing at first. None: drawn, up to 2.
    pub spare: Option<u8>,
    /// How long faults come, in microseconds. None: drawn.
    pub faults_for: Option<u64>,
    /// What linearizable reads rest on; where that is no clock, clocks are wild. None: drawn.
    pub reads: Option<Reads>,
    /// Faults. None: drawn.
    pub mix: Option<Mix>,
    /// Network. None: drawn.
    pub weather: Option<Weather>,
    /// Whether the log is closed where its set can change. None: mostly, and for some seconds not.
    pub closes: Option<bool>,
    /// True if the trace is printed.
    pub printed: bool,
}

impl Options {
    /// Everything drawn from the seed.
    #[must_use]
    pub fn drawn() -> Self {
        Self {
            nodes: None,
            spare: None,
            faults_for: None,
            reads: None,
            mix: None,
            weather: None,
            closes: None,
            printed: false,
        }
    }

    /// A world in which nothing fails by itself.
    #[must_use]
    pub fn calm(nodes: u8) -> Self {
        Self {
            nodes: Some(nodes),
            spare: Some(0),
            faults_for: Some(0),
            reads: Some(Reads::Lease),
            mix: Some(Mix::none()),
            weather: Some(Weather::FINE),
            closes: Some(true),
            printed: false,
        }
    }
}

/// What a run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Hash of the trace.
    pub hash: u64,
    /// Happenings.
    pub steps: u64,
    /// Entries committed.
    pub committed: u64,
    /// The last epoch.
    pub epochs: u32,
    /// Faults.
    pub faults: u64,
    /// Disks that were wiped, set back or damaged.
    pub disks: u64,
    /// Committed entries lost beyond what is tolerated, with a record of it.
    pub alarmed: u64,
}

/// What waits in the queue.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Happening {
    Tick { at: usize, life: u64 },
    Deliver { at: usize, envelope: Envelope },
    SyncEnds { at: usize, life: u64, id: SyncId, sync: Sync },
    // Boxed: they are few, and longer than all others.
    CallArrives { at: usize, life: u64, call: Box<Call> },
    CallAnswered { at: usize, life: u64, reply: Box<CatalogReply> },
    Boot { at: usize },
    Wake { at: usize, life: u64 },
    LinkUp { from: usize, to: usize },
    Stranded { first: usize },
    CatalogForward,
    Told { at: usize, restart: Option<usize> },
    HandsOver { at: usize },
    DriverLooks,
    Publish { at: usize, publish: Publish },
    Verified { at: usize, life: u64, from: Lsn, upto: Lsn },
    Read { at: usize, request: RequestId },
    ClientsAct,
    FaultComes,
}

/// A world.
#[derive(Debug)]
pub struct World {
    schedule: Scheduler<Happening>,
    hosts: Vec<Host>,
    net: Net,
    catalog: Catalog,
    catalog_back: u64,
    /// When all wall clocks were last set right.
    walls_set_at: Option<u64>,
    /// What all nodes had seen of the catalog when it was last set back.
    catalog_seen: Revision,
    catalog_slow_until: u64,
    /// Until then what the catalog answers is lost.
    catalog_mute_until: u64,
    /// The catalog as it was after earlier changes of the log's row.
    catalog_earlier: Vec<Catalog>,
    /// The true catalog, while what nodes see is an earlier one.
    catalog_ahead: Option<Catalog>,
    reads_by: Reads,
    checker: Checker,
    mix: Mix,
    faulty: bool,
    requests: u64,
    /// The last committed entry when a read was asked.
    reads: BTreeMap<RequestId, Lsn>,
    acked: u64,
    /// The node whose disk is damaged and not yet made good.
    impaired: Vec<NodeId>,
    /// How far disks went when they were harmed.
    had: BTreeMap<Incarnation, Position>,
    /// The fewest keepers that were wished for since the set was last the one that is wished.
    fewest_wished: usize,
    summary: Summary,
    faults_for: u64,
    /// Messages to each node, without beats and their answers.
    sent_to: Vec<u64>,
    /// How often a keeper was said to be away.
    told_away: u64,
    /// Clients ask for nothing any more.
    silent: bool,
    driver: Driver,
}

impl World {
    /// The world of a seed; nothing has happened.
    #[must_use]
    pub fn new(seed: u64, options: &Options) -> Self {
        let mut schedule = Scheduler::new(seed, options.printed);
        let rng = &mut schedule.rng;
        let keepers = options.nodes.unwrap_or(if rng.chance(800) { 3 } else { 5 });
        let spare = options.spare.unwrap_or(if rng.chance(500) { 0 } else { 5 - keepers.min(4) });
        let nodes = keepers + spare;
        let mix = options.mix.clone().unwrap_or_else(|| Mix::drawn(rng));
        let weather = options.weather.unwrap_or_else(|| Weather::drawn(rng));
        let faults_for = options.faults_for.unwrap_or_else(|| rng.between(3 * SECOND, 15 * SECOND));
        let drawn = if rng.chance(750) { Reads::Lease } else { Reads::Quorum };
        let reads_by = options.reads.unwrap_or(drawn);
        let drift = if reads_by == Reads::Lease { DRIFT_MAX } else { DRIFT_WILD };
        let hosts: Vec<Host> = (0..nodes)
            .map(|id| {
                let (first, id) = (incarnation(rng), NodeId(id));
                let clocks = (Clock::drawn(rng, drift), WallClock::kept(rng));
                Host::new(id, founded(id, first), clocks, first)
            })
            .collect();
        let member = |host: &Host| Member { node: host.id, incarnation: host.first };
        let rows = hosts.iter().map(|host| {
            let row = NodeRow { incarnation: host.first, boots: BootCount(0), former: vec![] };
            (host.id, row)
        });
        let set = hosts.iter().take(usize::from(keepers)).map(member).collect();
        let catalog = Catalog::founded(set, rows.collect());
        if options.printed {
            println!("keepers {keepers} of {nodes} nodes, {weather:?}\nfaults {}", mix.named());
        }
        let net = Net::new(usize::from(nodes), weather);
        let mut world = Self {
            schedule,
            hosts,
            net,
            catalog,
            catalog_back: 0,
            walls_set_at: None,
            catalog_seen: Revision(0),
            catalog_slow_until: 0,
            catalog_mute_until: 0,
            catalog_earlier: vec![],
            catalog_ahead: None,
            reads_by,
            checker: Checker::new(reads_by == Reads::Lease),
            mix,
            faulty: true,
            requests: 0,
            reads: BTreeMap::new(),
            acked: 0,
            impaired: vec![],
            had: BTreeMap::new(),
            fewest_wished: usize::MAX,
            summary: Summary::default(),
            faults_for,
            sent_to: vec![0; usize::from(nodes)],
            told_away: 0,
            silent: false,
            driver: Driver::new(seed, options.closes),
        };
        for at in 0..world.hosts.len() {
            world.schedule.after(at as u64, Happening::Boot { at });
        }
        world.schedule.after(0, Happening::ClientsAct);
        world.schedule.after(SECOND, Happening::FaultComes);
        world.schedule.after(SECOND, Happening::DriverLooks);
        world
    }

    /// What was done so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            hash: self.schedule.trace.hash(),
            steps: self.schedule.steps(),
            committed: self.checker.last().0,
            epochs: self.epoch(),
            alarmed: self.checker.alarmed,
            ..self.summary
        }
    }

    /// The newest epoch in the catalog.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.catalog.state().log.value.epoch.0
    }

    /// Publishes that were acknowledged so far.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// The node that owns the newest epoch that has an owner.
    #[must_use]
    pub fn owner(&self) -> Option<usize> {
        let epoch =
            |host: &Host| host.node.as_ref().and_then(Node::owner).map(|owner| owner.epoch());
        let owners = (0..self.hosts.len()).filter(|at| epoch(&self.hosts[*at]).is_some());
        owners.max_by_key(|at| epoch(&self.hosts[*at]))
    }

    /// Cuts the link from one node to another.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.net.set(from, to, false);
    }

    /// Sets the links by a pattern of bits.
    pub fn set_links(&mut self, pattern: u64) {
        self.net.set_pattern(pattern);
    }

    /// Faults for as long as the seed says, then none; after that the log must take writes.
    pub fn run(&mut self) -> Result<(), Violation> {
        self.run_for(self.faults_for)?;
        self.heal();
        let acked = self.acked;
        let began = self.schedule.now();
        let mut until = began + 10 * SECOND;
        while self.schedule.now() < until {
            self.run_for(SECOND / 2)?;
            let takes_writes = self.acked >= acked + 3;
            if takes_writes && self.all_whole() {
                return Ok(());
            }
            if takes_writes && self.waits_for_driver() {
                until = (self.schedule.now() + 10 * SECOND).min(began + 20 * SECOND);
            }
        }
        let state = self.catalog.state();
        let missing: Vec<NodeId> =
            self.hosts.iter().filter(|host| !self.is_whole(host)).map(|host| host.id).collect();
        let settled = state.target() == state.log.value.set;
        let what = format!(
            "{} writes, not whole: {missing:?}, set as wished: {settled}",
            self.acked - acked
        );
        broken(ViolationKind::NoProgress, what)
    }

    /// Lets `micros` microseconds pass.
    pub fn run_for(&mut self, micros: u64) -> Result<(), Violation> {
        let until = self.schedule.now() + micros;
        while let Some(happening) = self.schedule.next_until(until) {
            self.schedule.trace.record(self.schedule.now(), &happening);
            self.happen(happening)?;
        }
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        match happening {
            Happening::Tick { at, life } => self.tick(at, life),
            Happening::Deliver { at, envelope } => {
                self.checker.delivered(&envelope, &self.hosts[at]);
                self.event(at, Event::Deliver(envelope))
            }
            Happening::Told { at, restart } => self.told(at, restart),
            Happening::HandsOver { at } => self.event(at, Event::HandOver),
            Happening::DriverLooks => self.driver_looks(),
            Happening::SyncEnds { at, life, id, sync } => self.sync_ends(at, life, id, sync),
            Happening::CallArrives { at, life, call } => {
                self.call_arrives(at, life, &call);
                Ok(())
            }
            Happening::CallAnswered { at, life, reply } => {
                if life == self.hosts[at].life {
                    self.event(at, Event::Catalog(*reply))
                } else {
                    Ok(())
                }
            }
            Happening::Boot { at } => self.boot(at),
            Happening::Wake { at, life } => self.wake(at, life),
            Happening::LinkUp { from, to } => {
                self.net.set(from, to, true);
                Ok(())
            }
            Happening::CatalogForward => {
                self.catalog_forward();
                Ok(())
            }
            Happening::Stranded { first } => {
                self.stranded(first);
                Ok(())
            }
            Happening::Publish { at, publish } => self.event(at, Event::Publish(publish)),
            Happening::Verified { at, life, from, upto } => self.verified(at, life, from, upto),
            Happening::Read { at, request } => self.event(at, Event::Read { request }),
            Happening::ClientsAct => {
                self.clients_act();
                Ok(())
            }
            Happening::FaultComes => self.fault_comes(),
        }
    }

    fn tick(&mut self, at: usize, life: u64) -> Result<(), Violation> {
        if life != self.hosts[at].life {
            return Ok(());
        }
        self.schedule.after(TICK, Happening::Tick { at, life });
        if self.hosts[at].paused {
            return Ok(());
        }
        let wall = self.hosts[at].look(self.schedule.now());
        self.event(at, Event::Wall(wall))?;
        if self.hosts[at].life == life {
            self.event(at, Event::Tick)?;
        }
        self.checker.expires(&self.hosts[at], self.schedule.now())
    }

    fn verified(&mut self, at: usize, life: u64, from: Lsn, upto: Lsn) -> Result<(), Violation> {
        if life != self.hosts[at].life {
            return Ok(());
        }
        let damaged = self.hosts[at].unreadable(from, upto);
        let strays = self.hosts[at].strays(&damaged);
        self.event(at, Event::Verified { from, upto, damaged, strays })
    }

    /// Hands an event to a node, or keeps it until the node runs again.
    fn event(&mut self, at: usize, event: Event) -> Result<(), Violation> {
        let host = &mut self.hosts[at];
        if host.paused {
            host.deferred.push(event);
            return Ok(());
        }
        let now = host.time(self.schedule.now());
        let Some(node) = &mut host.node else { return Ok(()) };
        let effects = node.step(event, now);
        // Before what it asks for is done: a write that fails may end what it is.
        let state = self.catalog_ahead.as_ref().unwrap_or(&self.catalog).state();
        self.checker.stepped(&self.hosts, at, self.schedule.now(), state)?;
        self.perform(at, effects)?;
        if self.hosts[at].node.as_ref().is_some_and(Node::needs_restart) {
            self.stop(at, true);
        }
        Ok(())
    }

    fn perform(&mut self, at: usize, effects: Vec<Effect>) -> Result<(), Violation> {
        let life = self.hosts[at].life;
        let mut failed = None;
        self.checker.handed_over(&self.hosts, at, &effects)?;
        for effect in effects {
            match effect {
                // Behind a write that failed nothing is written.
                Effect::Store(_) | Effect::Sync(_) if failed.is_some() => {}
                Effect::Send(envelope) => self.send(at, envelope)?,
                Effect::Store(ops) => {
                    self.checker.stores(&self.hosts[at], &ops)?;
                    failed = self.hosts[at].disk.write(ops, &mut self.schedule.rng).err();
                }
                Effect::Verify { from, upto } => {
                    self.schedule.after(MILLI, Happening::Verified { at, life, from, upto });
                }
                Effect::Sync(id) => {
                    let now = self.schedule.now();
                    let sync = self.hosts[at].disk.begin_sync(now, &mut self.schedule.rng);
                    self.schedule.after(sync.takes, Happening::SyncEnds { at, life, id, sync });
                }
                Effect::Catalog(call) => {
                    if let Some(delay) = self.catalog_delay() {
                        let call = Box::new(call);
                        self.schedule.after(delay, Happening::CallArrives { at, life, call });
                    }
                }
                Effect::Reply(reply) => self.replied(&reply)?,
                Effect::Alarm(alarm) => self.alarmed(&alarm),
            }
        }
        if let Some(failed) = failed {
            let why = match failed {
                WriteError::Full => StoreError::Full,
                WriteError::Io => StoreError::Io,
            };
            self.event(at, Event::StoreFailed(why))?;
        }
        self.tell_room(at)
    }

    fn alarmed(&mut self, alarm: &Alarm) {
        self.schedule.trace.record(self.schedule.now(), alarm);
        if let Alarm::Away { .. } = alarm {
            self.told_away += 1;
        }
    }

    /// Tells a node whether its disk has room, if that has changed.
    fn tell_room(&mut self, at: usize) -> Result<(), Violation> {
        let host = &mut self.hosts[at];
        let full = host.is_full();
        if host.node.is_none() || host.paused || host.told_full == full {
            return Ok(());
        }
        host.told_full = full;
        self.event(at, Event::Room(!full))
    }

    fn send(&mut self, at: usize, mut envelope: Envelope) -> Result<(), Violation> {
        if let Message::Install { base, .. } = &mut envelope.message {
            // The files are those of any entry that was applied since.
            *base = self.hosts[at].files(*base, &mut self.schedule.rng);
        }
        self.checker.sent(&envelope, &self.hosts[at])?;
        let beats = matches!(envelope.message, Message::Beat { .. } | Message::BeatAnswer(_));
        self.sent_to[usize::from(envelope.to.0)] += u64::from(!beats);
        let to = usize::from(envelope.to.0);
        let mut arrivals = self.net.send(at, to, &mut self.schedule.rng);
        while let Some(delay) = arrivals.next() {
            if arrivals.len() == 0 {
                self.schedule.after(delay, Happening::Deliver { at: to, envelope });
                break;
            }
            let envelope = envelope.clone();
            self.schedule.after(delay, Happening::Deliver { at: to, envelope });
        }
        Ok(())
    }

    fn replied(&mut self, reply: &Reply) -> Result<(), Violation> {
        match reply.answer {
            Answer::Acked { .. } => self.acked += 1,
            Answer::Read { commit } => {
                let acked = self.reads.remove(&reply.request).expect("asked once");
                self.checker.read(commit, acked.min(self.checker.last()))?;
            }
            Answer::Unknown | Answer::Refused => {
                self.reads.remove(&reply.request);
            }
        }
        Ok(())
    }

    fn sync_ends(&mut self, at: usize, life: u64, id: SyncId, sync: Sync) -> Result<(), Violation> {
        if life != self.hosts[at].life {
            return Ok(());
        }
        let good = self.hosts[at].disk.end_sync(sync, &mut self.schedule.rng);
        self.checker.disk_changed(&self.hosts, at)?;
        self.event(at, Event::Synced(id, good))
    }

    fn boot(&mut self, at: usize) -> Result<(), Violation> {
        if self.hosts[at].node.is_some() {
            return Ok(());
        }
        let (now, nodes) = (self.schedule.now(), self.hosts.len() as u8);
        let effects = self.hosts[at].boot(nodes, self.reads_by, now, &mut self.schedule.rng);
        let life = self.hosts[at].life;
        self.schedule.after(self.schedule_phase(at), Happening::Tick { at, life });
        self.checker.booted(&self.hosts[at])?;
        self.perform(at, effects)
    }

    /// Ticks of different nodes come at different moments.
    fn schedule_phase(&self, at: usize) -> u64 {
        (at as u64 * 7_000) % TICK
    }

    fn stop(&mut self, at: usize, power: bool) {
        if self.hosts[at].node.is_none() {
            return;
        }
        let most = if self.schedule.rng.chance(700) { SECOND } else { 4 * SECOND };
        let pause = self.schedule.rng.between(10 * MILLI, most);
        self.stop_for(at, power, if self.faulty { pause } else { 10 * MILLI });
    }

    /// A process ends, with the machine's power or without, and starts again after `pause`.
    fn stop_for(&mut self, at: usize, power: bool, pause: u64) {
        if self.hosts[at].node.is_some() {
            self.hosts[at].stop(power, &mut self.schedule.rng);
            self.schedule.after(pause, Happening::Boot { at });
        }
    }

    fn wake(&mut self, at: usize, life: u64) -> Result<(), Violation> {
        if life != self.hosts[at].life || !self.hosts[at].paused {
            return Ok(());
        }
        self.hosts[at].paused = false;
        let slept = std::mem::take(&mut self.hosts[at].slept);
        self.hosts[at].jump(slept, self.schedule.now());
        for event in std::mem::take(&mut self.hosts[at].deferred) {
            if self.hosts[at].life == life {
                self.event(at, event)?;
            }
        }
        Ok(())
    }

    /// A node that owns the log, or any.
    fn owner_or_any(&mut self) -> usize {
        let any = self.schedule.rng.below(self.hosts.len() as u64) as usize;
        let owns = |host: &Host| host.node.as_ref().is_some_and(|node| node.owner().is_some());
        let owners: Vec<usize> =
            (0..self.hosts.len()).filter(|at| owns(&self.hosts[*at])).collect();
        if owners.is_empty() { any } else { *self.schedule.rng.pick(&owners) }
    }
}

/// A directory as it is made when a log is founded.
fn founded(node: NodeId, incarnation: Incarnation) -> Image {
    let identity = Identity { node, incarnation, boots: BootCount(0), seen: Revision(0) };
    Image {
        identity: Record::Good(identity),
        promises: [Record::Good(Promise::default()); 2],
        ..Image::default()
    }
}

/// Runs the schedule of a seed to its end.
pub fn run(seed: u64, options: &Options) -> (Summary, Result<(), Violation>) {
    let mut world = World::new(seed, options);
    let result = world.run();
    (world.summary(), result)
}
