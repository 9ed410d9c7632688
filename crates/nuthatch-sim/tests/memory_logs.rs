//! Random schedules of a log that is in its nodes' memory, or whose keepers lie in directories that may go at any time, as
//! those of logs in a bucket: the cores of three or five nodes, of which each loses everything when it ends, or finds what it
//! had again, or what of that was durable, over a network that loses, doubles and delays. In some a node goes for good, or
//! hangs, another one takes its place, and people say that what it held is gone.
//!
//! Asserted: what was acknowledged is there in every later epoch, until the log begins anew; it does that only when fewer
//! than a majority of its disks are left; nothing of what it was comes back then; each epoch has one owner. When faults
//! stop, publishes are taken and every node's disk is in the set.

#[path = "support/leaving.rs"]
mod leaving;
#[path = "../../../tests/seeds.rs"]
mod seeds;

use leaving::Leaving;
use nuthatch_quorum::catalog::{
    Call, Catalog, CatalogReply, GivingUp, Key, NodeRow, Ordering as _, Phase, Txn, TxnId, Value,
    Wish,
};
use nuthatch_quorum::effect::Effect;
use nuthatch_quorum::entry::Body;
use nuthatch_quorum::message::{Answer, Envelope, Reply};
use nuthatch_quorum::node::{Config, Event, Node, Reads};
use nuthatch_quorum::owner::Publish;
use nuthatch_quorum::store::{Image, StoreOp};
use nuthatch_quorum::timing::{SCRUB, TICK};
use nuthatch_quorum::types::{
    BootCount, Epoch, Incarnation, Lsn, Member, NodeId, RequestId, Revision, SyncId, Time,
    WallTime, majority,
};
use nuthatch_sim::rng::Rng;
use seeds::seeds;
use std::collections::{BTreeMap, BTreeSet};

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// How long faults go on, and how long afterwards everything may take.
const FAULTS: u64 = 20 * SECOND;
const CALM: u64 = 12 * SECOND;

/// Something that is to happen.
enum What {
    Tick(usize),
    Deliver(Envelope),
    /// With what the directory was when it was asked for, and the number of that.
    Synced(usize, u64, SyncId, Box<(u64, Image)>),
    Answered(usize, u64, CatalogReply),
    Publish,
    Trim,
    Kill,
    Start(usize),
    Cut,
    /// A node goes for good.
    Leave,
    /// People say that another node is to keep the log in its place.
    Replace,
    /// People say that what it held is gone, until that is taken.
    GiveUp,
    /// People say that it is to keep the log after all.
    Keep,
}

/// How often what goes wrong.
struct Mix {
    nodes: usize,
    /// Between two ends of nodes, in milliseconds.
    kill_every: u64,
    /// How long a node is away at most, in milliseconds.
    away: u64,
    /// Of a thousand ends, those that another node ends with.
    together: u64,
    /// Of a thousand ends, those after which the node finds its directory again.
    kept: u64,
    /// Of a thousand messages.
    lost: u64,
    delay: u64,
}

impl Mix {
    fn drawn(rng: &mut Rng) -> Self {
        Self {
            nodes: *rng.pick(&[3, 3, 3, 5]),
            kill_every: *rng.pick(&[500, 2_500, 4_000, 6_000]),
            away: *rng.pick(&[30, 600, 2_500]),
            together: *rng.pick(&[0, 0, 50, 400]),
            kept: *rng.pick(&[0, 0, 600, 950]),
            lost: *rng.pick(&[0, 20, 150]),
            delay: *rng.pick(&[1, 5, 40]),
        }
    }
}

struct World {
    rng: Rng,
    mix: Mix,
    leaving: Option<Leaving>,
    /// The disk that people have given up.
    given_up: Option<Member>,
    now: u64,
    number: u64,
    queue: BTreeMap<(u64, u64), What>,
    nodes: Vec<Option<(Node, u64)>>,
    /// The directory of each node, and what of it is durable.
    images: Vec<[Image; 2]>,
    /// The number of the newest sync that is over.
    synced: Vec<u64>,
    catalog: Catalog,
    boots: u64,
    /// Nodes that cannot be reached by others until then.
    apart: BTreeMap<usize, u64>,
    requests: u64,
    acked: BTreeMap<Lsn, u64>,
    owners: BTreeMap<Epoch, NodeId>,
    /// The epoch with which the log last began anew, and how often it did.
    anew: (Epoch, u64),
    last_ack: u64,
}

/// The disks that a node may have at a start.
fn fresh(boot: u64) -> [Incarnation; 2] {
    [Incarnation(u128::from(boot) * 1_000), Incarnation(u128::from(boot) * 1_000 + 500)]
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mix = Mix::drawn(&mut rng);
        let leaving = Leaving::drawn(&mut Rng::new(!seed), mix.nodes);
        let all = mix.nodes + usize::from(leaving.is_some());
        let member =
            |at: usize| Member { node: NodeId(at as u8 + 1), incarnation: fresh(at as u64 + 1)[0] };
        let set: Vec<Member> = (0..mix.nodes).map(member).collect();
        let row = |disk: &Member| {
            let (incarnation, boots) = (disk.incarnation, BootCount(0));
            (disk.node, NodeRow { incarnation, boots, former: vec![] })
        };
        let rows = set.iter().map(row).collect();
        let mut world = Self {
            rng,
            leaving,
            given_up: None,
            now: 0,
            number: 0,
            queue: BTreeMap::new(),
            nodes: (0..all).map(|_| None).collect(),
            images: vec![[Image::default(), Image::default()]; all],
            synced: vec![0; all],
            catalog: Catalog::founded(set, rows),
            boots: 0,
            apart: BTreeMap::new(),
            requests: 0,
            acked: BTreeMap::new(),
            owners: BTreeMap::new(),
            anew: (Epoch(0), 0),
            last_ack: 0,
            mix,
        };
        (0..all).for_each(|at| world.boot(at));
        if let Some(leaving) = leaving {
            world.at(leaving.when, What::Leave);
            world.at(leaving.when + leaving.replaced, What::Replace);
            world.at(leaving.when + leaving.given_up, What::GiveUp);
            if let Some(kept) = leaving.kept.filter(|_| leaving.lives) {
                world.at(leaving.when + leaving.replaced + kept, What::Keep);
            }
        }
        world.at(10 * MILLISECOND, What::Publish);
        world.at(SECOND, What::Trim);
        let first = world.rng.between(1_500, 4_000);
        world.at(first * MILLISECOND, What::Kill);
        world.at(2 * SECOND, What::Cut);
        world
    }

    fn at(&mut self, after: u64, what: What) {
        self.number += 1;
        self.queue.insert((self.now + after, self.number), what);
    }

    /// A node starts with an empty memory, or with the directory that it had.
    fn boot(&mut self, at: usize) {
        self.boots += 1;
        let id = NodeId(at as u8 + 1);
        let peers = (1..=self.nodes.len() as u8).map(NodeId).filter(|peer| *peer != id).collect();
        let former = Incarnation(0);
        let fresh = fresh(self.boots);
        let config =
            Config { id, peers, fresh, former, reads: Reads::Lease, scrub_every: 50 * SCRUB };
        let (node, effects) = Node::boot(config, &self.images[at][0], Time(self.now));
        self.nodes[at] = Some((node.in_memory(), self.boots));
        self.effects(at, effects);
        let first = self.rng.below(TICK);
        self.at(first, What::Tick(at));
    }

    fn step(&mut self, at: usize, event: Event) {
        let Some((node, _)) = &mut self.nodes[at] else { return };
        let effects = node.step(event, Time(self.now));
        assert!(!node.needs_restart(), "nothing fails here");
        self.look(at);
        self.effects(at, effects);
    }

    fn boot_of(&self, at: usize) -> u64 {
        self.nodes[at].as_ref().map_or(0, |(_, boot)| *boot)
    }

    fn effects(&mut self, at: usize, effects: Vec<Effect>) {
        let boot = self.boot_of(at);
        for effect in effects {
            match effect {
                Effect::Send(envelope) => self.send(envelope),
                Effect::Sync(id) => {
                    let (after, image) = (self.rng.below(300), self.images[at][0].clone());
                    let asked = Box::new((self.number, image));
                    self.at(after, What::Synced(at, boot, id, asked));
                }
                Effect::Catalog(call) => self.ask(at, boot, &call),
                Effect::Reply(reply) => self.reply(at, reply),
                Effect::Store(ops) => ops.iter().for_each(|op| self.store(at, op)),
                Effect::Verify { .. } | Effect::Alarm(_) => {}
            }
        }
    }

    /// What comes before a barrier is durable before anything behind it is written.
    fn store(&mut self, at: usize, op: &StoreOp) {
        let [now, durable] = &mut self.images[at];
        match op {
            StoreOp::Barrier => {
                *durable = now.clone();
                // What was asked for before is durable with it.
                self.number += 1;
                self.synced[at] = self.number;
            }
            op => now.apply(op),
        }
    }

    /// What a node that has ended finds when it starts: nothing, all of its directory, or what was durable.
    fn leave(&mut self, at: usize) {
        let kept = self.rng.chance(self.mix.kept);
        let powered = self.rng.chance(700);
        let [now, durable] = std::mem::take(&mut self.images[at]);
        let found = match (kept, powered) {
            (false, _) => Image::default(),
            (true, true) => now,
            (true, false) => durable,
        };
        self.images[at] = [found.clone(), found];
    }

    fn is_apart(&self, node: NodeId) -> bool {
        self.apart.get(&(usize::from(node.0) - 1)).is_some_and(|until| self.now < *until)
    }

    fn send(&mut self, envelope: Envelope) {
        let cut = self.is_apart(envelope.from) || self.is_apart(envelope.to);
        if cut || self.rng.chance(self.mix.lost) {
            return;
        }
        let copies = 1 + u64::from(self.rng.chance(self.mix.lost));
        for _ in 0..copies {
            let after = 50 + self.rng.below(self.mix.delay * MILLISECOND);
            self.at(after, What::Deliver(envelope.clone()));
        }
    }

    fn ask(&mut self, at: usize, boot: u64, call: &Call) {
        let before = self.catalog.state().log.value.clone();
        let reply = self.catalog.call(call);
        let after = &reply.snapshot.log.value;
        let claims = matches!(call, Call::Propose(txn) if matches!(&txn.value, Value::Log(_)));
        if claims && after.phase == Phase::Recovering && after.set != before.set {
            let is_there =
                |member: &&Member| self.is_there(**member) && self.given_up != Some(**member);
            let left = before.set.iter().filter(is_there).count();
            let needed = majority(before.set.len());
            assert!(left < needed, "it begins anew though {left} of {} are left", before.set.len());
            self.anew = (after.epoch, self.anew.1 + 1);
            self.acked.clear();
        }
        let after = 100 + self.rng.below(4 * MILLISECOND);
        self.at(after, What::Answered(at, boot, reply));
    }

    /// True if a disk is some node's memory or directory now.
    fn is_there(&self, member: Member) -> bool {
        let at = usize::from(member.node.0) - 1;
        let identity = match &self.nodes[at] {
            Some((node, _)) => Some(node.keeper().identity()),
            None => self.images[at][0].identity.good(),
        };
        identity.is_some_and(|identity| identity.incarnation == member.incarnation)
    }

    fn reply(&mut self, at: usize, reply: Reply) {
        let Answer::Acked { lsn } = reply.answer else { return };
        let (node, _) = self.nodes[at].as_ref().expect("it has answered");
        let epoch = node.keeper().log().epoch_at(lsn).expect("its own log has it");
        if epoch < self.anew.0 {
            // By keepers that have ended since: their answers were on their way, as this one may be for ever so long.
            return;
        }
        let before = self.acked.insert(lsn, reply.request.0);
        assert!(before.is_none_or(|before| before == reply.request.0), "{lsn:?} has two contents");
        self.last_ack = self.now;
    }

    /// A new owner has everything that was acknowledged since the log began, and nothing from before that.
    fn look(&mut self, at: usize) {
        let Some((node, _)) = &self.nodes[at] else { return };
        let Some(owner) = node.owner() else { return };
        let (epoch, id) = (owner.epoch(), NodeId(at as u8 + 1));
        match self.owners.insert(epoch, id) {
            Some(before) => {
                assert_eq!(before, id, "two owners of {epoch:?}");
                return;
            }
            None if epoch < self.anew.0 => return,
            None => {}
        }
        let log = node.keeper().log();
        for (lsn, request) in self.acked.iter().filter(|(lsn, _)| **lsn > log.base().lsn) {
            let body = log.get(*lsn).map(|entry| entry.body);
            let is_it = matches!(body, Some(Body::Frame { payload, .. }) if payload == *request);
            assert!(is_it, "{lsn:?} is not there in {epoch:?}: {body:?}");
        }
        let last = self.acked.last_key_value().map_or(Lsn(0), |(lsn, _)| *lsn);
        assert!(log.last() >= last, "{epoch:?} ends at {:?}, before {last:?}", log.last());
        let first = log.get(log.base().lsn.next()).map_or(epoch, |entry| entry.epoch);
        let base = log.base();
        let oldest = if base.lsn == Lsn(0) { first } else { base.epoch };
        assert!(oldest >= self.anew.0, "{epoch:?} has what was there before {:?}", self.anew.0);
    }

    fn happen(&mut self, what: What, calm: bool) {
        match what {
            What::Tick(at) if self.nodes[at].is_some() => {
                self.step(at, Event::Wall(WallTime(self.now)));
                self.step(at, Event::Tick);
                self.at(TICK, What::Tick(at));
            }
            What::Tick(_) => {}
            What::Deliver(envelope) => {
                let at = usize::from(envelope.to.0) - 1;
                self.step(at, Event::Deliver(envelope));
            }
            What::Synced(at, boot, id, asked) if self.boot_of(at) == boot => {
                if asked.0 >= self.synced[at] {
                    (self.synced[at], self.images[at][1]) = *asked;
                }
                self.step(at, Event::Synced(id, true));
            }
            What::Answered(at, boot, reply) if self.boot_of(at) == boot => {
                self.step(at, Event::Catalog(reply));
            }
            What::Synced(..) | What::Answered(..) => {}
            What::Publish => self.publish(),
            What::Trim => self.trim(),
            What::Kill if !calm => self.kill(),
            What::Cut if !calm => self.cut(),
            What::Kill | What::Cut => {}
            // It is there where it was killed and started again meanwhile.
            What::Start(at) if self.nodes[at].is_none() && !self.has_left(at) => self.boot(at),
            What::Start(_) => {}
            What::Leave => self.leave_for_good(),
            What::Replace => self.replace(),
            What::GiveUp => self.give_up(),
            What::Keep => self.keep(),
        }
    }

    /// True if a node is gone for good.
    fn has_left(&self, at: usize) -> bool {
        self.leaving.is_some_and(|one| one.at == at && !one.lives && self.now >= one.when)
    }

    fn leave_for_good(&mut self) {
        let Leaving { at, lives, .. } = self.leaving.expect("somebody leaves");
        match lives {
            true => {
                let until = self.now + self.rng.between(1_000, 8_000) * MILLISECOND;
                self.apart.insert(at, until);
            }
            false => {
                self.nodes[at] = None;
                self.images[at] = [Image::default(), Image::default()];
            }
        }
    }

    /// By people, at whatever node: it reads the catalog, and proposes on that.
    fn people_say(&mut self, key: Key, revision: Revision, value: Value) {
        self.boots += 1;
        let id = TxnId { proposer: fresh(self.boots)[0], number: 1 };
        let seen = self.catalog.state().revision;
        let reply = self.catalog.call(&Call::Propose(Txn { id, key, revision, seen, value }));
        assert!(reply.outcome.is_some_and(|(_, outcome)| outcome.is_ok()), "it has just been read");
    }

    fn replace(&mut self) {
        let (gone, comes) = (self.leaving.expect("somebody leaves").at, self.nodes.len() - 1);
        let [gone, comes] = [gone, comes].map(|at| NodeId(at as u8 + 1));
        let wish = self.catalog.state().wish.clone();
        let others = wish.value.keepers.into_iter().filter(|node| *node != gone);
        let keepers = others.chain([comes]).collect();
        self.people_say(Key::Wish, wish.revision, Value::Wish(Wish { keepers, owner: None }));
    }

    /// Whether what it held was given up meanwhile or not.
    fn keep(&mut self) {
        let at = self.leaving.expect("somebody leaves").at;
        let (kept, spare) = (NodeId(at as u8 + 1), NodeId(self.nodes.len() as u8));
        let wish = self.catalog.state().wish.clone();
        let others = wish.value.keepers.into_iter().filter(|node| *node != spare);
        let keepers = others.chain([kept]).collect();
        self.people_say(Key::Wish, wish.revision, Value::Wish(Wish { keepers, owner: None }));
    }

    fn give_up(&mut self) {
        let node = NodeId(self.leaving.expect("somebody leaves").at as u8 + 1);
        let state = self.catalog.state();
        match state.giving_up(node) {
            GivingUp::Wanted if self.now < FAULTS => self.at(500 * MILLISECOND, What::GiveUp),
            GivingUp::Wanted => {}
            GivingUp::Done => {}
            GivingUp::Put(revision, row) => {
                let incarnation = state.nodes[&node].value.incarnation;
                self.given_up = Some(Member { node, incarnation });
                self.people_say(Key::Node(node), revision, Value::Node(row));
            }
        }
    }

    fn publish(&mut self) {
        for at in 0..self.nodes.len() {
            self.requests += 1;
            let request = RequestId(self.requests);
            let publish = Publish { request, payload: request.0, len: 100 };
            let owns = self.nodes[at].as_ref().is_some_and(|(node, _)| node.owner().is_some());
            if owns {
                self.step(at, Event::Publish(publish));
            }
        }
        let after = self.rng.between(5, 60);
        self.at(after * MILLISECOND, What::Publish);
    }

    /// What entries have made is never read again here, so all that is committed may be trimmed.
    fn trim(&mut self) {
        let at = self.rng.below(self.nodes.len() as u64) as usize;
        let known = self.nodes[at].as_ref().map(|(node, _)| node.keeper().log().known_commit());
        if let Some(upto) = known {
            self.step(at, Event::Trim { upto });
        }
        self.at(700 * MILLISECOND, What::Trim);
    }

    fn kill(&mut self) {
        let nodes = self.nodes.len() as u64;
        let first = self.rng.below(nodes) as usize;
        let mut gone = BTreeSet::from([first]);
        while self.rng.chance(self.mix.together) {
            gone.insert(self.rng.below(nodes) as usize);
        }
        for at in gone {
            if self.nodes[at].take().is_some() {
                self.leave(at);
                let after = self.rng.between(10, self.mix.away.max(11));
                self.at(after * MILLISECOND, What::Start(at));
            }
        }
        let after = self.rng.between(self.mix.kill_every / 2, 2 * self.mix.kill_every);
        self.at(after * MILLISECOND, What::Kill);
    }

    fn cut(&mut self) {
        let at = self.rng.below(self.nodes.len() as u64) as usize;
        let until = self.now + self.rng.between(50, 1_500) * MILLISECOND;
        self.apart.insert(at, until);
        let after = self.rng.between(500, 6_000);
        self.at(after * MILLISECOND, What::Cut);
    }

    fn run_to(&mut self, end: u64, calm: bool) {
        while let Some(next) = self.queue.first_entry() {
            let at = next.key().0;
            if at > end {
                break;
            }
            let what = next.remove();
            self.now = at;
            self.happen(what, calm);
        }
        self.now = end;
    }

    /// What the nodes have, for people.
    fn sight(&self) -> String {
        let rows = &self.catalog.state().nodes;
        let node = |(node, _): &(Node, u64)| {
            let (id, log) = (node.keeper().identity(), node.keeper().log());
            let named = rows.get(&id.node).map(|row| row.value.incarnation);
            format!(
                "{:?} {:?} named {named:?} from {:?} to {:?} {:?} {:?}",
                id.node,
                id.incarnation,
                log.base().lsn,
                log.position(),
                node.keeper().promise().epoch,
                node.activity().doing
            )
        };
        let nodes: Vec<String> = self.nodes.iter().flatten().map(node).collect();
        nodes.join("\n")
    }

    /// Plays all of it; how often the log began anew, and how many owners it had.
    fn play(seed: u64) -> (u64, usize) {
        let mut world = Self::new(seed);
        world.run_to(FAULTS, false);
        // A disk is taken into the set when it lacks nothing at a moment: publishes must not always be on their way.
        (world.mix.lost, world.mix.delay) = (0, world.mix.delay.min(5));
        world.apart.clear();
        world.run_to(FAULTS + CALM, true);
        let end = world.now;
        let waited = end - world.last_ack;
        let catalog = world.catalog.state();
        assert!(waited < SECOND, "silent for {waited}: {}\n{catalog:?}", world.sight());
        let set = &world.catalog.state().log.value.set;
        let is_whole = set.len() == world.mix.nodes && set.iter().all(|m| world.is_there(*m));
        assert!(is_whole, "not everybody is in {set:?}: {}", world.sight());
        (world.anew.1, world.owners.len())
    }
}

const SCHEDULES: u64 = 300;

/// In so many the loss of a rule is sought.
#[cfg(feature = "mutations")]
const SOUGHT: u64 = 5_000;

#[test]
fn what_was_acknowledged_is_there_until_the_log_begins_anew_and_says_so() {
    let (mut played, mut anew, mut never, mut owners) = (0, 0, 0, 0);
    for seed in seeds(0..SCHEDULES) {
        let (times, epochs) = World::play(seed);
        (played, anew, owners) = (played + 1, anew + times, owners + epochs);
        never += u64::from(times == 0);
    }
    println!("{played} schedules: {owners} epochs, begun anew {anew} times, never in {never}");
    if played >= SCHEDULES {
        // Both kinds are played.
        assert!(anew > played / 4 && never > played / 10, "anew {anew} times, never in {never}");
    }
}

/// Each rule that only logs in memory have is turned off: the schedules must find that.
#[cfg(feature = "mutations")]
#[test]
fn the_loss_of_each_rule_of_logs_in_memory_is_found() {
    use nuthatch_quorum::rules::{Rule, turn_off};
    use std::panic::catch_unwind;
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = vec![];
    for rule in Rule::ALL.iter().copied().filter(|rule| rule.is_of_memory()) {
        turn_off(&[rule]);
        let found = (0..SOUGHT).find(|seed| catch_unwind(|| World::play(*seed)).is_err());
        turn_off(&[]);
        println!("{:34} {found:?}", rule.name());
        missed.extend(found.is_none().then(|| rule.name()));
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
