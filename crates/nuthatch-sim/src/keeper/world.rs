//! The machines, the network, the catalog and the clients of one seed, and what happens to them.

use super::check::{Checker, Violation, ViolationKind, broken};
use super::faults::KINDS;
use super::files::Transfer;
use super::machine::{Machine, Running, incarnation};
use crate::clock::{Clock, DRIFT_MAX, WallClock};
use crate::net::{Net, Weather};
use crate::scheduler::Scheduler;
use bytes::Bytes;
use nuthatch_catalog_group::LogCatalog;
use nuthatch_cluster::LogNumber;
use nuthatch_cluster::packet::{Packet, entries, hash_of};
use nuthatch_quorum::catalog::{Call, CatalogReply};
use nuthatch_quorum::effect::Effect;
use nuthatch_quorum::message::{Answer, Envelope, Message};
use nuthatch_quorum::node::Event;
use nuthatch_quorum::timing::TICK;
use nuthatch_quorum::types::{
    BootCount, Incarnation, Lsn, Member, NodeId, Promise, SyncId, WallTime,
};
use std::collections::BTreeMap;

mod clients;
mod slots;

pub(super) const SECOND: u64 = 1_000_000;
pub(super) const MILLI: u64 = 1_000;

/// Machines, all of which keep all logs.
pub(super) const MACHINES: usize = 3;

/// Logs, at most. Each machine has one disk and one process for all of them.
const LOGS_MAX: u64 = 3;

/// Between two looks of a process at what it may apply.
const APPLY: u64 = 100 * MILLI;

/// How a world is made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// True if the trace is printed.
    pub printed: bool,
    /// How many logs there are. None: drawn.
    pub logs: Option<usize>,
    /// What the world does wrong, to see that it shows.
    pub planted: Option<Planted>,
}

/// A mistake that mixes up logs, made in the place of the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// A message is given to the same node's next log, half of the time.
    Messages,
    /// The rows of all logs are those of the first.
    Rows,
}

impl Options {
    /// Everything drawn from the seed.
    #[must_use]
    pub fn drawn() -> Self {
        Self::default()
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
    pub epochs: u64,
    /// Faults.
    pub faults: u64,
    /// Directories that were opened after a power cut.
    pub cuts: u64,
    /// Disks that were replaced.
    pub disks: u64,
    /// How often files were made durable.
    pub marks: u64,
    /// How often a journal was trimmed.
    pub trims: u64,
    /// How often files of another machine were put in place.
    pub installs: u64,
}

impl Summary {
    /// Adds what another run did.
    pub fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.epochs += other.epochs;
        self.faults += other.faults;
        self.cuts += other.cuts;
        self.disks += other.disks;
        self.marks += other.marks;
        self.trims += other.trims;
        self.installs += other.installs;
    }

    /// What was done, for people.
    #[must_use]
    pub fn report(&self) -> String {
        format!(
            "{} entries committed, {} epochs, {} faults, {} directories opened after a power cut, {} disks replaced, \
             {} times files made durable, {} journals trimmed, {} times files of another node put in place",
            self.committed,
            self.epochs,
            self.faults,
            self.cuts,
            self.disks,
            self.marks,
            self.trims,
            self.installs
        )
    }
}

/// What waits in the queue.
#[derive(Clone, Hash, Debug)]
pub(super) enum Happening {
    Tick { at: usize, life: u64 },
    Applies { at: usize, life: u64 },
    Deliver { at: usize, envelope: Envelope, payloads: Vec<Bytes> },
    SyncEnds { at: usize, life: u64, id: SyncId },
    MarkEnds { at: usize, life: u64 },
    ChoreEnds { at: usize, life: u64, number: u64 },
    FilesCome { at: usize, life: u64, number: u64 },
    CallArrives { at: usize, life: u64, call: Box<Call> },
    CallAnswered { at: usize, life: u64, reply: Box<CatalogReply> },
    Boot { at: usize },
    Rots { at: usize, tries: u64 },
    PowerGoes { at: usize, life: u64 },
    ClientsAct,
    FaultComes,
}

/// A world.
pub(super) struct World {
    pub(super) schedule: Scheduler<Happening>,
    /// What each machine has of each log: those of the first log, then of the second.
    pub(super) machines: Vec<Machine>,
    pub(super) logs: usize,
    planted: Option<Planted>,
    pub(super) net: Net,
    /// Of each log.
    pub(super) catalogs: Vec<LogCatalog>,
    /// Of each log.
    pub(super) checkers: Vec<Checker>,
    pub(super) weights: [u64; KINDS],
    pub(super) every_max: u64,
    pub(super) faulty: bool,
    /// Clients ask for nothing any more.
    silent: bool,
    pub(super) transfers: BTreeMap<u64, Transfer>,
    pub(super) numbered: u64,
    pub(super) summary: Summary,
    requests: u64,
    /// Of each log.
    acked: Vec<u64>,
}

impl World {
    fn new(seed: u64, options: &Options) -> Self {
        let mut schedule = Scheduler::new(seed, options.printed);
        let rng = &mut schedule.rng;
        let logs = options.logs.unwrap_or(rng.between(1, LOGS_MAX) as usize);
        let firsts: Vec<Incarnation> = (0..MACHINES).map(|_| incarnation(rng)).collect();
        let machines = firsts.iter().enumerate().map(|(id, first)| {
            let clocks = (Clock::drawn(rng, DRIFT_MAX), WallClock::kept(rng));
            Machine::founded(NodeId(id as u8), clocks, *first)
        });
        let mut machines: Vec<Machine> = machines.collect();
        let numbers: Vec<LogNumber> = (0..logs as u8).map(LogNumber).collect();
        for number in &numbers[1..] {
            for at in 0..MACHINES {
                machines.push(machines[at].with_log(*number));
            }
        }
        let members = firsts.iter().enumerate();
        let members =
            members.map(|(id, first)| Member { node: NodeId(id as u8), incarnation: *first });
        let members: Vec<Member> = members.collect();
        let catalogs = numbers.iter().map(|log| LogCatalog::founded(*log, &members)).collect();
        let mut weights = [10, 2, 6, 3, 3, 2, 4, 3, 3, 3, 8, 3, 2, 8, 3];
        for weight in &mut weights {
            *weight *= if rng.chance(400) { 0 } else { rng.between(1, 3) };
        }
        let every_max = rng.between(100 * MILLI, 1_500 * MILLI);
        let net = Net::new(MACHINES, Weather::drawn(rng));
        let mut world = Self {
            schedule,
            machines,
            logs,
            planted: options.planted,
            net,
            catalogs,
            checkers: numbers.iter().map(|_| Checker::default()).collect(),
            weights,
            every_max,
            faulty: true,
            silent: false,
            transfers: BTreeMap::new(),
            numbered: 0,
            summary: Summary::default(),
            requests: 0,
            acked: vec![0; logs],
        };
        for at in 0..MACHINES {
            world.schedule.after(at as u64, Happening::Boot { at });
        }
        world.schedule.after(0, Happening::ClientsAct);
        world.schedule.after(SECOND, Happening::FaultComes);
        world
    }

    fn summary(&self) -> Summary {
        let epochs = |catalog: &LogCatalog| u64::from(catalog.state().log.value.epoch.0);
        Summary {
            hash: self.schedule.trace.hash(),
            steps: self.schedule.steps(),
            committed: self.checkers.iter().map(|checker| checker.last().0).sum(),
            epochs: self.catalogs.iter().map(epochs).sum(),
            ..self.summary
        }
    }

    /// Where the newest epoch of a log is owned.
    pub(super) fn owner(&self, log: usize) -> Option<usize> {
        let epoch = |slot: &usize| {
            let running = self.machines[*slot].running.as_ref();
            running.and_then(|running| running.node.owner()).map(|owner| owner.epoch())
        };
        let slots = log * MACHINES..(log + 1) * MACHINES;
        slots.filter(|slot| epoch(slot).is_some()).max_by_key(epoch)
    }

    /// Faults for a while, then none; after that everything must recover.
    fn run(&mut self) -> Result<(), Violation> {
        let faults_for = self.schedule.rng.between(3 * SECOND, 12 * SECOND);
        self.run_for(faults_for)?;
        self.heal()?;
        let (acked, until) = (self.acked.clone(), self.schedule.now() + 15 * SECOND);
        while self.schedule.now() < until {
            self.run_for(SECOND / 2)?;
            self.silent = self.acked.iter().zip(&acked).all(|(now, before)| *now >= before + 3);
            if self.silent && self.is_settled() && self.behind().is_none() {
                return Ok(());
            }
        }
        let what = format!("{:?} writes after {acked:?}, {:?}", self.acked, self.behind());
        broken(ViolationKind::NoProgress, what)
    }

    fn behind(&self) -> Option<String> {
        self.machines.iter().find_map(|machine| match &machine.running {
            None => Some(format!("{:?} does not run", machine.id)),
            Some(running) => {
                let behind = self.checkers[machine.log.index()].behind(running);
                behind.map(|what| format!("log {} of {:?}: {what}", machine.log, machine.id))
            }
        })
    }

    /// True if all disks are in the sets of all logs, and each has all that is committed.
    pub(super) fn is_settled(&self) -> bool {
        (0..self.logs).all(|log| self.is_log_settled(log))
    }

    /// True if all disks are in the set of a log, and each has all that is committed of it.
    pub(super) fn is_log_settled(&self, log: usize) -> bool {
        let (state, checker) = (self.catalogs[log].state(), &self.checkers[log]);
        let whole = |machine: &Machine| {
            machine.running.as_ref().is_some_and(|running| {
                let keeper = running.node.keeper();
                let member =
                    Member { node: machine.id, incarnation: keeper.identity().incarnation };
                state.log.value.set.contains(&member)
                    && checker.is_all_in(keeper.log())
                    && keeper.log().first_damaged().is_none()
            })
        };
        let slots = log * MACHINES..(log + 1) * MACHINES;
        state.target() == state.log.value.set && self.machines[slots].iter().all(whole)
    }

    fn run_for(&mut self, micros: u64) -> Result<(), Violation> {
        let until = self.schedule.now() + micros;
        while let Some(happening) = self.schedule.next_until(until) {
            self.schedule.trace.record(self.schedule.now(), &happening);
            self.happen(happening)?;
            for at in 0..self.machines.len() {
                self.settle(at)?;
            }
        }
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        match happening {
            Happening::Deliver { at, envelope, payloads } => {
                return self.deliver(at, Packet { envelope, payloads });
            }
            Happening::FilesCome { at, life, number } => return self.files_come(at, life, number),
            Happening::Boot { at } => return self.boot(at),
            Happening::CallArrives { at, life, call } => {
                let log = if self.planted == Some(Planted::Rows) { 0 } else { self.log_of(at) };
                let reply = self.catalogs[log].call(&call);
                if let Some(delay) = self.catalog_delay() {
                    let reply = Box::new(reply);
                    self.schedule.after(delay, Happening::CallAnswered { at, life, reply });
                }
            }
            Happening::ClientsAct => return self.clients_act(),
            Happening::FaultComes => return self.fault_comes(),
            Happening::Rots { at, tries } => return self.rot_tail(at, tries),
            Happening::Tick { at, life }
            | Happening::Applies { at, life }
            | Happening::SyncEnds { at, life, .. }
            | Happening::MarkEnds { at, life }
            | Happening::ChoreEnds { at, life, .. }
            | Happening::CallAnswered { at, life, .. }
            | Happening::PowerGoes { at, life }
                if self.machines[at].life != life => {}
            Happening::Tick { at, life } => {
                self.schedule.after(TICK, Happening::Tick { at, life });
                let wall = WallTime(self.machines[at].wall.at(self.schedule.now()));
                self.event(at, Event::Wall(wall))?;
                self.event(at, Event::Tick)?;
            }
            Happening::Applies { at, life } => {
                self.schedule.after(APPLY, Happening::Applies { at, life });
                self.apply(at)?;
                self.change_set(at)?;
            }
            Happening::SyncEnds { at, id, .. } => self.sync_ends(at, id)?,
            Happening::MarkEnds { at, .. } => self.mark_ends(at)?,
            Happening::ChoreEnds { at, number, .. } => self.chore_ends(at, number),
            Happening::CallAnswered { at, reply, .. } => self.event(at, Event::Catalog(*reply))?,
            Happening::PowerGoes { at, .. } => self.power_goes(at)?,
        }
        Ok(())
    }

    /// After every happening: a machine whose power went is dark, and a process that cannot go on ends.
    fn settle(&mut self, at: usize) -> Result<(), Violation> {
        if self.machines[at].has_lost_power() {
            self.power_goes(self.node_of(at))
        } else if self.machines[at].must_end() {
            self.kill(self.node_of(at))
        } else {
            Ok(())
        }
    }

    /// The disk of a log's keeper that runs, and how often the catalog knows that it was begun with.
    pub(super) fn disk_of(&self, at: usize) -> Option<(Incarnation, BootCount)> {
        let running = self.machines[at].running.as_ref()?;
        let disk = running.node.keeper().identity().incarnation;
        let row = self.catalogs[self.log_of(at)].state().nodes.get(&self.machines[at].id)?;
        let known = Some(row.value.boots).filter(|_| row.value.incarnation == disk);
        Some((disk, known.unwrap_or_default()))
    }

    pub(super) fn power_goes(&mut self, at: usize) -> Result<(), Violation> {
        self.note_disks(at);
        let disk = self.machines[at].disk.crash(self.schedule.rng.bits());
        self.summary.cuts += self.logs as u64;
        self.boot_later(at);
        self.slots(at).for_each(|slot| self.machines[slot].end(disk.clone()));
        for slot in self.slots(at) {
            let machine = &self.machines[slot];
            self.checkers[machine.log.index()].ended(machine, &machine.disk.survive())?;
        }
        Ok(())
    }

    /// The process ends. What it wrote is in the system's cache, and not durable for that.
    pub(super) fn kill(&mut self, at: usize) -> Result<(), Violation> {
        self.note_disks(at);
        let wrote = |running: &Running| !running.failed;
        let wrote: Vec<bool> = self
            .slots(at)
            .map(|slot| self.machines[slot].running.as_ref().is_some_and(wrote))
            .collect();
        let disk = self.machines[at].disk.clone();
        self.slots(at).for_each(|slot| self.machines[slot].end(disk.clone()));
        self.boot_later(at);
        // The power may go before anybody has synced what the cache holds.
        let seed = self.schedule.rng.bits();
        for (slot, wrote) in self.slots(at).zip(wrote) {
            let machine = &self.machines[slot];
            let checker = &self.checkers[machine.log.index()];
            if wrote {
                checker.killed(machine, &machine.disk.survive())?;
            }
            checker.ended(machine, &machine.disk.survive())?;
            checker.ended(machine, &machine.disk.crash(seed))?;
        }
        Ok(())
    }

    pub(super) fn boot_later(&mut self, at: usize) {
        let most = if self.faulty { 2 * SECOND } else { 20 * MILLI };
        let pause = self.schedule.rng.between(10 * MILLI, most);
        self.schedule.after(pause, Happening::Boot { at });
    }

    fn boot(&mut self, at: usize) -> Result<(), Violation> {
        if self.machines[at].running.is_some() {
            return Ok(());
        }
        let now = self.schedule.now();
        for slot in self.slots(at) {
            let peers = (0..MACHINES).filter(|peer| *peer != at).map(|peer| NodeId(peer as u8));
            let peers = peers.collect();
            let booted = self.machines[slot].boot(peers, now, &mut self.schedule.rng);
            let Ok(effects) = booted else {
                return match self.machines[slot].has_lost_power() {
                    true => self.power_goes(at),
                    false => self.kill(at),
                };
            };
            let life = self.machines[slot].life;
            self.schedule.after(slot as u64 * 7 * MILLI, Happening::Tick { at: slot, life });
            self.schedule.after(slot as u64 * 31 * MILLI, Happening::Applies { at: slot, life });
            self.perform(slot, effects)?;
            let machine = &self.machines[slot];
            if !machine.must_end() && !machine.has_lost_power() {
                self.checkers[machine.log.index()].killed(machine, &machine.disk.survive())?;
            }
        }
        Ok(())
    }

    /// Hands an event to a node.
    pub(super) fn event(&mut self, at: usize, event: Event) -> Result<(), Violation> {
        let now = self.machines[at].time(self.schedule.now());
        let Some(running) = self.machines[at].running.as_mut().filter(|r| !r.failed) else {
            return Ok(());
        };
        let effects = running.node.step(event, now);
        self.checkers[at / MACHINES].stepped(running)?;
        let owned = running.node.owner().map_or(Lsn(0), |owner| owner.commit());
        running.commit = running.commit.max(owned);
        self.perform(at, effects)
    }

    /// In every second life somebody closes the log where its set can change; in the others the core does not wait for ever.
    fn change_set(&mut self, at: usize) -> Result<(), Violation> {
        let machine = &self.machines[at];
        let now = machine.time(self.schedule.now());
        let can = |running: &Running| running.node.set_can_change(now);
        match machine.running.as_ref().is_some_and(can) && machine.life.is_multiple_of(2) {
            true => self.event(at, Event::ChangeSet),
            false => Ok(()),
        }
    }

    fn deliver(&mut self, at: usize, packet: Packet) -> Result<(), Violation> {
        let Some(running) = &mut self.machines[at].running else { return Ok(()) };
        if running.wants_files(&packet.envelope) {
            return self.bring_files(at, packet.envelope);
        }
        let came = running.hold(&packet);
        let told = told_commit(&packet.envelope);
        self.event(at, Event::Deliver(packet.envelope))?;
        let Some(running) = &mut self.machines[at].running else { return Ok(()) };
        if let Some((promise, commit)) = told {
            running.take_commit(promise, commit);
        }
        running.let_go(&came);
        Ok(())
    }

    fn sync_ends(&mut self, at: usize, id: SyncId) -> Result<(), Violation> {
        let Some(running) = &mut self.machines[at].running else { return Ok(()) };
        let Some((to_sync, good)) = running.syncs.remove(&id) else { return Ok(()) };
        let synced = running.dir.gate().sync(&to_sync).is_ok();
        if self.machines[at].has_lost_power() {
            return Ok(());
        }
        self.event(at, Event::Synced(id, good && synced))
    }

    fn perform(&mut self, at: usize, effects: Vec<Effect>) -> Result<(), Violation> {
        let life = self.machines[at].life;
        for effect in effects {
            if self.machines[at].has_lost_power() {
                return Ok(());
            }
            let Some(running) = &mut self.machines[at].running else { return Ok(()) };
            match effect {
                Effect::Send(envelope) => self.send(at, envelope)?,
                Effect::Store(ops) => {
                    running.store(&ops);
                    self.strike(at, &ops);
                }
                Effect::Sync(id) => {
                    running.syncs.insert(id, (running.dir.to_sync(), !running.failed));
                    let takes = self.schedule.rng.between(50, self.machines[at].sync_max.max(51));
                    self.schedule.after(takes, Happening::SyncEnds { at, life, id });
                }
                Effect::Catalog(call) => {
                    if let Some(delay) = self.catalog_delay() {
                        let call = Box::new(call);
                        self.schedule.after(delay, Happening::CallArrives { at, life, call });
                    }
                }
                Effect::Reply(reply) => {
                    let acked = matches!(reply.answer, Answer::Acked { .. });
                    self.acked[at / MACHINES] += u64::from(acked);
                }
                Effect::Alarm(alarm) => self.schedule.trace.record(self.schedule.now(), &alarm),
                // Nothing rots here.
                Effect::Verify { .. } => {}
            }
        }
        Ok(())
    }

    fn send(&mut self, at: usize, envelope: Envelope) -> Result<(), Violation> {
        let Some(running) = &self.machines[at].running else { return Ok(()) };
        let mut payloads = vec![];
        for entry in entries(&envelope.message).filter(|entry| hash_of(entry).is_some()) {
            match running.payload(entry) {
                Ok(payload) => payloads.push(payload),
                Err(error) => {
                    let what = format!("{entry:?} at {:?}: {error}", envelope.from);
                    return broken(ViolationKind::NoPayload, what);
                }
            }
        }
        let checker = &mut self.checkers[at / MACHINES];
        if let Some((promise, commit)) = told_commit(&envelope) {
            checker.commits(running, promise.epoch, commit)?;
        }
        checker.sent(&envelope, running);
        self.carry(at, Packet { envelope, payloads });
        Ok(())
    }

    /// The network takes a packet.
    pub(super) fn carry(&mut self, at: usize, packet: Packet) {
        let to = usize::from(packet.envelope.to.0);
        let mut log = self.log_of(at);
        if self.planted == Some(Planted::Messages) && self.schedule.rng.chance(500) {
            log = (log + 1) % self.logs;
        }
        for delay in self.net.send(self.node_of(at), to, &mut self.schedule.rng) {
            let (Packet { envelope, payloads }, at) = (packet.clone(), self.slot(log, to));
            self.schedule.after(delay, Happening::Deliver { at, envelope, payloads });
        }
    }

    fn catalog_delay(&mut self) -> Option<u64> {
        let rng = &mut self.schedule.rng;
        let lost = rng.chance(self.net.weather.loss);
        (!lost).then(|| rng.between(500, 500 + self.net.weather.delay_max))
    }

    /// Faults stop: nothing fails any more.
    fn heal(&mut self) -> Result<(), Violation> {
        self.faulty = false;
        self.net.heal();
        self.net.weather = Weather::FINE;
        for at in 0..self.machines.len() {
            self.machines[at].sync_max = 2_000;
            if at < MACHINES && self.machines[at].cut_at.is_some() {
                self.power_goes(at)?;
            }
            self.machines[at].disk.heal();
        }
        Ok(())
    }
}

/// What the sender of a message says is committed, and the epoch in which that holds.
fn told_commit(envelope: &Envelope) -> Option<(Promise, Lsn)> {
    match &envelope.message {
        Message::Append { epoch, commit, .. } | Message::Beat { epoch, commit, .. } => {
            Some((Promise { epoch: *epoch, owner: envelope.sender }, *commit))
        }
        _ => None,
    }
}

/// Runs the schedule of a seed to its end.
pub fn run(seed: u64, options: &Options) -> (Summary, Result<(), Violation>) {
    let mut world = World::new(seed, options);
    let result = world.run();
    (world.summary(), result)
}
