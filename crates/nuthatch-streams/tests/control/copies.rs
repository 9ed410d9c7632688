//! Mirrors and sources: an origin that is published to and deleted from, in one log; a mirror of it
//! and a stream that sources it, in another. A third of the histories read the origin through the API of
//! another server, whose deliveries are lost, repeated and swapped; another third through durable consumers
//! of the origin, which let go what they are told is stored, and forget some of that at each cut.
//!
//! A mirror has what its origin has, under the same sequences, up to its last; a source has each
//! message once, in order. Neither asks for what it has stored. With power and without faults both
//! come to the end of the origin.

use super::rig::{Dark, Lit, Rig};
use super::seeds;
use nuthatch_log::StreamId;
use nuthatch_log::env::{Entropy, Fault, MemDisk, SeededEntropy};
use nuthatch_protocol::headers::find_header;
use nuthatch_protocol::js::{
    CreateConsumerRequest, ExternalStream, StreamConfig, StreamSource, StreamSourceConsumer, Time,
};
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::control::replication::{
    Action, Delivery, Happened, Location, Plan, Replicator, Side, Unanswered,
};
use nuthatch_streams::op::{OpResult, RangeRequest, Replica};
use nuthatch_streams::stream::read_source;
use nuthatch_streams::{Op, OpOutcome};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Power cuts in one history.
const CUTS: u64 = 4;
const HISTORIES: u64 = 120;
/// Rounds of work between two cuts, at most.
const ROUNDS: u64 = 80;
/// Steps that are enough to come to the end of an origin.
const STEPS_MAX: usize = 6_000;
const ORIGIN: StreamId = StreamId(1);
const MIRROR: StreamId = StreamId(1);
const SOURCING: StreamId = StreamId(2);
const API: &str = "$JS.hub.API";

/// How copies come to their origin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Here,
    Afar,
    Durable,
}

/// A push consumer of the origin.
struct Push {
    next: u64,
    delivered: u64,
}

/// A machine, what it waits for, and what it has at the other server.
struct Copier {
    machine: Replicator,
    mirrors: bool,
    target: StreamId,
    action: Action,
    push: Option<Push>,
}

fn source(way: Way, mirrors: bool) -> StreamSource {
    let external = (way == Way::Afar)
        .then(|| ExternalStream { api: API.to_owned(), ..ExternalStream::default() });
    let named = |name: &str| StreamSourceConsumer {
        name: name.to_owned(),
        deliver_subject: format!("{name}.in"),
    };
    let consumer = (way == Way::Durable).then(|| named(if mirrors { "m" } else { "s" }));
    StreamSource { name: "O".to_owned(), external, consumer, ..StreamSource::default() }
}

impl Copier {
    fn new(mirrors: bool, way: Way, now: Duration) -> Self {
        let target = if mirrors { MIRROR } else { SOURCING };
        let source = source(way, mirrors);
        let mut machine = Replicator::new(Plan { target, source, mirrors });
        let action = machine.step(Happened::Began, now);
        Self { machine, mirrors, target, action, push: None }
    }
}

struct World {
    chance: SeededEntropy,
    disks: [MemDisk; 2],
    way: Way,
    copiers: Vec<Copier>,
    /// Up to where the durable consumers of the source and of the mirror have let go.
    floors: [u64; 2],
    /// Sequences that were deleted in the origin, perhaps.
    gone: BTreeSet<u64>,
    now: Duration,
    /// Nothing fails any more.
    is_calm: bool,
    /// What a machine did that it must not.
    wrong: Option<String>,
    begun: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = SeededEntropy::new(seed);
        let way = [Way::Here, Way::Afar, Way::Durable][chance.below(3) as usize];
        Self {
            chance,
            disks: [MemDisk::default(), MemDisk::default()],
            way,
            copiers: Vec::new(),
            floors: [0; 2],
            gone: BTreeSet::new(),
            now: Duration::from_secs(1),
            is_calm: false,
            wrong: None,
            begun: false,
        }
    }

    fn odds(&mut self, one_in: u64) -> bool {
        !self.is_calm && self.chance.below(one_in) == 0
    }

    fn open(&self, salt: u64) -> Result<[Rig; 2], nuthatch_log::OpenError> {
        Ok([Rig::open(&self.disks[0], salt)?, Rig::open(&self.disks[1], salt ^ 99)?])
    }

    fn inject_faults(&mut self) {
        for disk in &self.disks {
            let begin = disk.operations() + 1;
            disk.inject(Fault::PowerCut(begin + self.chance.below(160)));
            match self.chance.below(8) {
                0 => disk.inject(Fault::SyncError(begin + self.chance.below(120))),
                1 => disk.inject(Fault::WriteError(begin + self.chance.below(120))),
                _ => {}
            }
        }
    }

    /// The streams, where they are not there, and machines that know nothing.
    fn begin(&mut self, rigs: &mut [Rig; 2]) -> Lit<()> {
        if rigs[0].catalog()?.is_empty() {
            let subjects = vec!["s.>".to_owned()];
            let config = StreamConfig { name: "O".into(), subjects, ..StreamConfig::default() };
            rigs[0].create(ORIGIN, config)?;
        }
        let there: Vec<_> = rigs[1].catalog()?.iter().map(|entry| entry.id).collect();
        let named = |name: &str| StreamConfig { name: name.into(), ..StreamConfig::default() };
        if !there.contains(&MIRROR) {
            let mirror = Some(source(self.way, true));
            rigs[1].create(MIRROR, StreamConfig { mirror, ..named("M") })?;
        }
        if !there.contains(&SOURCING) {
            let sources = vec![source(self.way, false)];
            rigs[1].create(SOURCING, StreamConfig { sources, ..named("S") })?;
        }
        self.copiers = [true, false].map(|mirrors| Copier::new(mirrors, self.way, self.now)).into();
        self.begun = true;
        Ok(())
    }

    fn work(&mut self, rigs: &mut [Rig; 2]) -> Lit<()> {
        self.begin(rigs)?;
        for _ in 0..self.chance.below(ROUNDS) {
            match self.chance.below(12) {
                0..3 => self.publish(rigs),
                3 => self.delete(rigs)?,
                4 if self.odds(4) => {
                    let at = self.chance.below(2) as usize;
                    self.copiers[at] = Copier::new(at == 0, self.way, self.now);
                }
                _ => self.step(rigs)?,
            }
        }
        Ok(())
    }

    fn publish(&mut self, rigs: &mut [Rig; 2]) {
        let mut bodies = Vec::new();
        for _ in 0..=self.chance.below(5) {
            let len = 8 + self.chance.below(120) as usize;
            bodies.push(self.chance.next().to_le_bytes().repeat(len / 8));
        }
        rigs[0].publish(ORIGIN, &bodies);
    }

    fn delete(&mut self, rigs: &mut [Rig; 2]) -> Lit<()> {
        let last = rigs[0].info(ORIGIN)?.state.last_seq;
        let seq = 1 + self.chance.below(last.max(1));
        self.gone.insert(seq);
        // It may be gone already.
        rigs[0].op(Op::DeleteMessage { id: ORIGIN, seq }).map(drop)
    }

    /// One of the machines is told what became of what it asked for, if that has come.
    fn step(&mut self, rigs: &mut [Rig; 2]) -> Lit<()> {
        self.now += Duration::from_millis(1 + self.chance.below(20));
        let at = self.chance.below(2) as usize;
        let mut copier = self.copiers.remove(at);
        let happened = self.perform(&mut copier, rigs);
        if let Ok(Some(happened)) = happened {
            copier.action = copier.machine.step(happened, self.now);
            self.copiers.insert(at, copier);
            return Ok(());
        }
        self.copiers.insert(at, copier);
        happened.map(drop)
    }

    /// What becomes of an action; `None`: nothing yet.
    fn perform(&mut self, copier: &mut Copier, rigs: &mut [Rig; 2]) -> Lit<Option<Happened>> {
        let happened = match copier.action.clone() {
            Action::Locate { .. } if self.odds(12) => {
                let lost = [JsError::STREAM_NOT_FOUND, JsError::CLUSTER_NOT_AVAIL];
                Happened::NotLocated(lost[self.chance.below(2) as usize].clone())
            }
            Action::Locate { .. } if self.way == Way::Afar => {
                Happened::Located(Location::Afar(API.into()))
            }
            Action::Locate { .. } => {
                let created = rigs[0].info(ORIGIN)?.created;
                Happened::Located(Location::Here { id: ORIGIN, created })
            }
            Action::Run { side, op } => return self.run(copier, side, op, rigs),
            Action::Ask { .. } if self.odds(10) => Happened::Unanswered(Unanswered::Late),
            Action::Ask { subject, body, .. } => {
                let answer = self.answer(copier, &subject, &body, rigs)?;
                if self.odds(10) {
                    Happened::Unanswered(Unanswered::Late)
                } else {
                    Happened::Answered { headers: Vec::new(), body: answer }
                }
            }
            Action::Listen { prefix } => Happened::Listening(format!("{prefix}.x")),
            Action::ListenOn { subject } => Happened::Listening(subject),
            Action::Receive { until, .. } => return self.receive(copier, until, rigs),
            Action::Send { headers, .. } => {
                self.flow_reply(copier, &headers, rigs)?;
                Happened::Sent
            }
            Action::Rest { until } => {
                self.now = self.now.max(until);
                Happened::Rested
            }
            Action::AwaitChange => Happened::Changed,
        };
        Ok(Some(happened))
    }

    fn run(
        &mut self,
        copier: &Copier,
        side: Side,
        mut op: Op,
        rigs: &mut [Rig; 2],
    ) -> Lit<Option<Happened>> {
        let refused = || Happened::Outcome(Err(JsError::STREAM_STORE_FAILED));
        if self.odds(25) {
            return Ok(Some(refused()));
        }
        let reads_from = match &mut op {
            Op::ReadRange { request, .. } => {
                // Asked again until there is something.
                request.wait = false;
                Some(request.from)
            }
            _ => None,
        };
        let Some(from) = reads_from else {
            let outcome = rigs[1].op(op)?;
            let answer = if self.odds(25) { refused() } else { Happened::Outcome(outcome) };
            return Ok(Some(answer));
        };
        assert_eq!(side, Side::Origin, "only the origin is read");
        self.check_start(copier, from, rigs)?;
        let outcome: OpResult = rigs[0].op(op)?;
        match &outcome {
            Ok(OpOutcome::Range(range)) if range.next <= from => Ok(None),
            _ => Ok(Some(Happened::Outcome(outcome))),
        }
    }

    /// What is stored is not read again.
    fn check_start(&mut self, copier: &Copier, from: u64, rigs: &mut [Rig; 2]) -> Lit<()> {
        let stored = if copier.mirrors {
            rigs[1].info(copier.target)?.state.last_seq
        } else {
            rigs[1].read_all(copier.target)?.iter().map(source_seq).max().unwrap_or(0)
        };
        if from <= stored {
            self.wrong = Some(format!("{from} is read, and everything up to {stored} is stored"));
        }
        Ok(())
    }

    /// A durable consumer is told up to where messages are stored.
    fn flow_reply(&mut self, copier: &Copier, headers: &[u8], rigs: &mut [Rig; 2]) -> Lit<()> {
        if self.way != Way::Durable || self.odds(6) {
            return Ok(());
        }
        let last = find_header(headers, b"Nats-Last-Stream").expect("up to where");
        let last: u64 = std::str::from_utf8(last).expect("text").parse().expect("a number");
        let copies = rigs[1].read_all(copier.target)?;
        let seq_of = |copy: &Replica| if copier.mirrors { copy.seq } else { source_seq(copy) };
        let has: BTreeSet<u64> = copies.iter().map(seq_of).collect();
        let mut origin = rigs[0].read_all(ORIGIN)?.into_iter().map(|message| message.seq);
        if let Some(seq) = origin.find(|seq| *seq <= last && !has.contains(seq)) {
            self.wrong = Some(format!("{last} is said to be stored, and {seq} is not"));
        }
        let floor = &mut self.floors[usize::from(copier.mirrors)];
        *floor = last.max(*floor);
        Ok(())
    }

    /// The API of the other server.
    fn answer(
        &mut self,
        copier: &mut Copier,
        subject: &str,
        body: &[u8],
        rigs: &mut [Rig; 2],
    ) -> Lit<Vec<u8>> {
        let info = rigs[0].info(ORIGIN)?;
        if subject == format!("{API}.STREAM.INFO.O") {
            return Ok(serde_json::to_vec(&info).expect("information"));
        }
        let start = if self.way == Way::Durable {
            assert!(subject.starts_with("$JS.API.CONSUMER.RESET.O."), "{subject}");
            self.floors[usize::from(copier.mirrors)] + 1
        } else {
            assert_eq!(subject, format!("{API}.CONSUMER.CREATE.O"));
            let request: CreateConsumerRequest = serde_json::from_slice(body).expect("a request");
            let start = request.config.opt_start_seq.max(1);
            self.check_start(copier, start, rigs)?;
            start
        };
        let all = rigs[0].read_all(ORIGIN)?;
        let first = all.iter().map(|message| message.seq).find(|seq| *seq >= start);
        let next = first.unwrap_or(info.state.last_seq + 1).max(start);
        copier.push = Some(Push { next, delivered: 0 });
        let pending = all.iter().filter(|message| message.seq >= next).count();
        let delivered = json!({ "consumer_seq": 0, "stream_seq": next - 1 });
        let policy = if self.way == Way::Durable { "flow_control" } else { "none" };
        let config = json!({ "ack_policy": policy });
        let answer = json!(
            { "name": "c", "config": config, "delivered": delivered, "num_pending": pending });
        Ok(answer.to_string().into_bytes())
    }

    /// What the consumer of the other server delivers meanwhile.
    fn receive(
        &mut self,
        copier: &mut Copier,
        until: Duration,
        rigs: &mut [Rig; 2],
    ) -> Lit<Option<Happened>> {
        let push = copier.push.as_mut().expect("a consumer was made");
        let from = push.next;
        let request = RangeRequest { from, ..RangeRequest::default() };
        let range = match rigs[0].done(Op::ReadRange { id: ORIGIN, request })? {
            OpOutcome::Range(range) => range,
            other => panic!("no range: {other:?}"),
        };
        let some = range.messages.len().min(1 + self.chance.below(6) as usize);
        let mut deliveries = Vec::new();
        for (at, message) in range.messages.iter().take(some).enumerate() {
            push.delivered += 1;
            push.next = message.seq + 1;
            let pending = range.messages.len() - at - 1;
            deliveries.push(delivery(message, push.delivered, pending));
        }
        let delivered = push.delivered;
        if self.odds(12) && !deliveries.is_empty() {
            let at = self.chance.below(deliveries.len() as u64) as usize;
            match self.chance.below(3) {
                0 => drop(deliveries.remove(at)),
                1 => deliveries.push(deliveries[at].clone()),
                _ => deliveries.swap(0, at),
            }
        }
        if deliveries.is_empty() {
            if self.odds(6) {
                self.now = self.now.max(until);
                return Ok(Some(Happened::Silent));
            }
            deliveries.push(heartbeat(delivered));
        } else if self.chance.below(4) == 0 {
            let at = self.chance.below(deliveries.len() as u64 + 1) as usize;
            deliveries.insert(at, flow_control());
        }
        Ok(Some(Happened::Arrived(deliveries)))
    }

    /// What a mirror and a source hold is what their origin holds.
    fn check(&mut self, rigs: &mut [Rig; 2]) -> Result<(), String> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        let dark = |Dark| "dark without a cut".to_owned();
        if !self.begun || rigs[1].catalog().map_err(dark)?.len() < 2 {
            return Ok(());
        }
        let origin = rigs[0].read_all(ORIGIN).map_err(dark)?;
        let origin: BTreeMap<u64, Vec<u8>> =
            origin.into_iter().map(|message| (message.seq, message.body)).collect();
        let mirror = rigs[1].read_all(MIRROR).map_err(dark)?;
        let last = rigs[1].info(MIRROR).map_err(dark)?.state.last_seq;
        let mirrored: Vec<_> = mirror.into_iter().map(|found| (found.seq, found.body)).collect();
        self.compare("the mirror", &origin, &mirrored, last)?;
        let sourced = rigs[1].read_all(SOURCING).map_err(dark)?;
        let sourced: Vec<_> =
            sourced.into_iter().map(|found| (source_seq(&found), found.body)).collect();
        let last = sourced.last().map_or(0, |(seq, _)| *seq);
        self.compare("the source", &origin, &sourced, last)
    }

    fn compare(
        &self,
        who: &str,
        origin: &BTreeMap<u64, Vec<u8>>,
        copies: &[(u64, Vec<u8>)],
        last: u64,
    ) -> Result<(), String> {
        if let Some(pair) = copies.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Err(format!("{who} has {} behind {}", pair[1].0, pair[0].0));
        }
        for (seq, body) in copies {
            match origin.get(seq) {
                Some(there) if there != body => return Err(format!("{who}: {seq} differs")),
                None if !self.gone.contains(seq) => {
                    return Err(format!("{who} has {seq}, which its origin never had"));
                }
                _ => {}
            }
        }
        let has: BTreeSet<u64> = copies.iter().map(|(seq, _)| *seq).collect();
        match origin.range(..=last).find(|(seq, _)| !has.contains(seq)) {
            Some((seq, _)) => Err(format!("{who} is at {last} and lacks {seq}")),
            None => Ok(()),
        }
    }

    /// Both have come to the end of the origin.
    fn is_done(&mut self, rigs: &mut [Rig; 2]) -> Lit<bool> {
        let origin = rigs[0].read_all(ORIGIN)?.last().map_or(0, |message| message.seq);
        let mirror = rigs[1].info(MIRROR)?.state.last_seq;
        let sourced = rigs[1].read_all(SOURCING)?.last().map_or(0, source_seq);
        Ok(mirror >= origin && sourced >= origin)
    }
}

fn source_seq(message: &Replica) -> u64 {
    let header = find_header(&message.headers, b"Nats-Stream-Source").expect("where it is from");
    read_source(header).expect("a header of a source").1
}

fn delivery(message: &Replica, consumer_seq: u64, pending: usize) -> Delivery {
    let Time(time) = message.time;
    let reply = format!("$JS.ACK.O.c.1.{}.{consumer_seq}.{time}.{pending}", message.seq);
    Delivery {
        subject: message.subject.clone(),
        reply: reply.into_bytes(),
        headers: message.headers.clone(),
        body: message.body.clone(),
    }
}

fn heartbeat(delivered: u64) -> Delivery {
    let headers = format!("NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: {delivered}\r\n\r\n");
    Delivery { headers: headers.into_bytes(), ..Delivery::default() }
}

fn flow_control() -> Delivery {
    let headers = b"NATS/1.0 100 FlowControl Request\r\n\r\n".to_vec();
    Delivery { headers, reply: b"$JS.FC.O.c".to_vec(), ..Delivery::default() }
}

/// Returns how the disks were used, and how many messages the mirror has.
fn history(seed: u64) -> Result<(u64, u64), String> {
    let mut world = World::new(seed);
    let mut trace = 0_u64;
    for cut in 0..CUTS {
        world.inject_faults();
        let salt = seed * 31 + cut;
        if let Ok(mut rigs) = world.open(salt) {
            // Dark or not, power goes now.
            let _ = world.work(&mut rigs);
        }
        for disk in &mut world.disks {
            trace = trace.rotate_left(9) ^ disk.trace();
            *disk = disk.crash(seed ^ (cut << 32));
        }
        world.floors = world.floors.map(|floor| floor - world.chance.below(floor.min(9) + 1));
        let mut rigs = world.open(salt ^ 7).map_err(|error| format!("does not open: {error}"))?;
        world.check(&mut rigs)?;
        // What this look did to the disks is lost as well.
        for disk in &mut world.disks {
            *disk = disk.crash(salt);
        }
    }
    finish(&mut world, seed).map(|mirrored| (trace, mirrored))
}

/// With power and without faults, everything is copied.
fn finish(world: &mut World, seed: u64) -> Result<u64, String> {
    let dark = |Dark| "dark without a cut".to_owned();
    world.is_calm = true;
    let mut rigs = world.open(seed ^ 0xf1).map_err(|error| format!("does not open: {error}"))?;
    world.begin(&mut rigs).map_err(dark)?;
    world.publish(&mut rigs);
    for step in 0..STEPS_MAX {
        world.step(&mut rigs).map_err(dark)?;
        if step % 16 == 0 && world.is_done(&mut rigs).map_err(dark)? {
            world.check(&mut rigs)?;
            return Ok(rigs[1].info(MIRROR).map_err(dark)?.state.messages);
        }
    }
    world.check(&mut rigs)?;
    Err("a copy does not come to the end of its origin".to_owned())
}

#[test]
fn copies_have_what_their_origin_has_whatever_fails() {
    let mut mirrored = 0;
    for seed in seeds::seeds(0..HISTORIES) {
        match history(seed) {
            Ok((_, messages)) => mirrored += messages,
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    assert!(mirrored > HISTORIES * 8, "only {mirrored} messages were mirrored");
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..3 {
        assert_eq!(history(seed), history(seed));
    }
}
