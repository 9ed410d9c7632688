//! The nodes, what happens to them, and in which order.

use super::absence::{Heard, replace_after_ticks};
use super::check::{Observer, Violation};
use super::clients::Client;
use super::joining::{Joins, numbered};
use super::nemesis::{HARMS, SIMPLE_HARMS};
use super::steps::slowest;
use super::summary::Summary;
use super::themes::Theme;
use crate::net::{Net, Weather};
use crate::scheduler::Scheduler;
use nuthatch_catalog_group::founding::{self, Answer, Founding, Named, Next};
use nuthatch_catalog_group::identity;
use nuthatch_catalog_group::seeking::Seeking;
use nuthatch_catalog_group::{Effect, Event, Limits, LogNumber, Member, MemberId, Roster, TICK};
use nuthatch_log::env::MemDisk;
use nuthatch_quorum::types::Incarnation;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long things go wrong, and how long all is well afterwards, in microseconds.
pub(super) const FAULTS_FOR: u64 = 30_000_000;
const CALM_FOR: u64 = 30_000_000;

/// Between two rounds of a node that looks for its cluster.
const ROUND: u64 = 200_000;

/// Clients.
const CLIENTS: u64 = 3;

/// How a world is.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The trace goes to the standard output.
    pub printed: bool,
}

impl Options {
    /// All of it is drawn by the seed.
    #[must_use]
    pub fn drawn() -> Self {
        Self::default()
    }
}

/// What happens.
#[derive(Debug)]
pub enum Happening {
    /// A node starts, if it is down.
    Start(usize),
    /// Time passes for the process of this number on a node.
    Tick(usize, u64),
    /// Bytes of a member come to a node.
    Packet(usize, Vec<u8>),
    /// The disk of a node's process has done what it was asked for.
    Synced(usize, u64),
    /// A node that looks for its cluster asks another one, in this round.
    Asked { by: usize, of: usize, round: u64 },
    /// The answer.
    Told { to: usize, by: usize, round: u64, answer: Vec<u8> },
    /// A node hears that a member cannot be reached.
    Lost(usize, MemberId),
    /// A client goes on.
    Client(usize),
    /// Something goes wrong.
    Nemesis,
    /// Most members end at once.
    Outage,
    /// The disk of the node that founded the cluster is lost.
    FounderLost(usize),
    /// A node asks another one to be let join.
    AsksToJoin { by: usize, of: usize },
    /// It was let, or is to look again who belongs to the cluster.
    Joined { to: usize, founding: Box<Founding>, roster: Option<Box<Roster>> },
}

/// What a node does.
pub enum Life {
    /// There is no process.
    Down,
    /// It looks for its cluster.
    Seeks {
        /// Number of the round.
        round: u64,
        /// What the other nodes have answered in it.
        answers: Vec<Option<Answer>>,
        /// What it has said meanwhile.
        seeking: Seeking,
    },
    /// It asks to join a cluster that it has found.
    Joins,
    /// It is a member.
    Runs(Box<Member>),
    /// Its name does not come back: people leave it alone.
    Gone,
}

/// A node.
pub struct Node {
    /// Who it is, while it runs.
    pub named: Named,
    /// Its disk.
    pub disk: MemDisk,
    /// What it does.
    pub life: Life,
    /// Number of its process.
    pub process: u64,
    /// Until when it does nothing.
    pub paused_until: u64,
    /// An image of the disk.
    pub image: Option<MemDisk>,
    /// When its process began.
    pub began: u64,
    /// Its disk is busy with what the last step wrote.
    pub is_busy: bool,
    /// What its member is to take in when it no more is.
    pub waiting: Vec<Event>,
    /// What its member asks for then.
    pub held: Vec<Effect>,
}

/// All of it.
pub struct World {
    pub(super) queue: Scheduler<Happening>,
    pub(super) net: Net,
    pub(super) nodes: Vec<Node>,
    pub(super) clients: Vec<Client>,
    pub(super) observer: Observer,
    pub(super) weights: [u64; HARMS],
    /// The nodes that found the cluster; those behind them join it.
    pub(super) founders: usize,
    pub(super) joins: Joins,
    pub(super) heard: Heard,
    pub(super) harmed: BTreeSet<usize>,
    /// The disk that was set back last.
    pub(super) set_back: Option<(usize, MemberId)>,
    pub(super) faults: u64,
    pub(super) disks: u64,
    pub(super) images: u64,
    pub(super) limits: Limits,
    /// How long a disk is busy with what one step writes, in microseconds at most.
    pub(super) slowest: u64,
    /// Steps of several events.
    pub(super) together: u64,
    pub(super) calls: u64,
    /// When all is well little happens: no snapshot comes because there are many entries.
    pub(super) quiet: bool,
    pub(super) theme: Theme,
    printed: bool,
}

/// A disk that holds nothing.
pub fn empty_disk() -> MemDisk {
    MemDisk::default()
}

/// Runs the schedule of a seed.
///
/// # Errors
/// With the summary, what was broken.
pub fn run(seed: u64, options: &Options) -> (Summary, Result<(), Violation>) {
    let mut world = World::new(seed, options.printed);
    let result = world.play();
    (world.summary(), result)
}

impl World {
    fn new(seed: u64, printed: bool) -> Self {
        let mut queue = Scheduler::new(seed, printed);
        let rng = &mut queue.rng;
        let founders = if rng.chance(250) { 5 } else { 3 };
        let count = founders + if rng.chance(350) { rng.between(1, 3) as usize } else { 0 };
        let theme = Theme::of(seed);
        let weather = theme.weather(Weather::drawn(rng));
        let mut weights: [u64; HARMS] =
            std::array::from_fn(|_| if rng.chance(600) { rng.below(10) } else { 0 });
        if count == founders {
            // Nobody can be replaced.
            weights[SIMPLE_HARMS..].fill(0);
        }
        let snapshot_entries = rng.between(5, 80);
        let limits = Limits { snapshot_entries, replace_after_ticks: replace_after_ticks(seed) };
        let node = |at: usize| Node {
            named: Named { name: format!("n{at}"), keeper: Incarnation(0), member: MemberId(0) },
            disk: empty_disk(),
            life: Life::Down,
            process: 0,
            paused_until: 0,
            image: None,
            began: 0,
            is_busy: false,
            waiting: vec![],
            held: vec![],
        };
        for at in 0..count {
            let after = queue.rng.below(if at < founders { 3_000_000 } else { 20_000_000 });
            queue.after(after, Happening::Start(at));
        }
        for client in 0..CLIENTS as usize {
            queue.after(1_000_000, Happening::Client(client));
        }
        queue.after(100_000, Happening::Nemesis);
        Self {
            net: Net::new(count, weather),
            nodes: (0..count).map(node).collect(),
            clients: (1..=CLIENTS).map(Client::new).collect(),
            observer: Observer::default(),
            weights,
            founders,
            joins: Joins::default(),
            heard: Heard::default(),
            harmed: BTreeSet::new(),
            set_back: None,
            faults: 0,
            disks: 0,
            images: 0,
            limits,
            slowest: slowest(seed),
            together: 0,
            calls: 0,
            quiet: seed % 5 == 2,
            theme,
            printed,
            queue,
        }
    }

    fn summary(&self) -> Summary {
        Summary {
            hash: self.queue.trace.hash(),
            steps: self.queue.steps(),
            answers: self.observer.answers,
            revision: self.observer.floor.0,
            terms: self.observer.terms(),
            faults: self.faults,
            disks: self.disks,
            images: self.images,
            joined: self.joins.joined,
            replaced: self.joins.replaced.len() as u64,
            resized: self.joins.resized(),
            drained: self.joins.drained(),
            absent: self.heard.replaced,
            together: self.together,
        }
    }

    fn play(&mut self) -> Result<(), Violation> {
        self.go_on(FAULTS_FOR)?;
        self.heal();
        self.go_on(FAULTS_FOR + CALM_FOR / 2)?;
        let answers = self.observer.answers;
        self.go_on(FAULTS_FOR + CALM_FOR)?;
        if self.observer.answers != answers {
            return self.look_at_nodes();
        }
        for node in self.nodes.iter().filter(|_| self.printed) {
            if let Life::Runs(member) = &node.life {
                println!("{member:?}");
            }
        }
        Err(Violation::Stuck)
    }

    fn go_on(&mut self, until: u64) -> Result<(), Violation> {
        while let Some(happening) = self.queue.next_until(until) {
            self.happen(happening)?;
        }
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        if let Some(at) = self.is_held_up(&happening) {
            let after = self.nodes[at].paused_until - self.queue.now();
            self.queue.after(after, happening);
            return Ok(());
        }
        match happening {
            Happening::Start(at) => self.start(at),
            Happening::Tick(at, process) if process == self.nodes[at].process => self.tick(at),
            Happening::Tick(..) => Ok(()),
            Happening::Packet(at, bytes) => self.bring(at, &bytes),
            Happening::Lost(at, member) => self.step(at, Event::Lost(member)),
            Happening::Synced(at, process) if process == self.nodes[at].process => {
                self.synced(at, process)
            }
            Happening::Synced(..) => Ok(()),
            Happening::Asked { by, of, round } => {
                self.tell(by, of, round);
                Ok(())
            }
            Happening::Told { to, by, round, answer } => {
                self.hear(to, by, round, &answer);
                Ok(())
            }
            Happening::Client(client) => self.ask(client),
            Happening::Nemesis => self.harm(),
            Happening::Outage => {
                self.outage();
                Ok(())
            }
            Happening::FounderLost(at) => {
                self.founder_lost(at);
                Ok(())
            }
            Happening::AsksToJoin { by, of } => self.is_asked_to_join(by, of),
            Happening::Joined { to, founding, roster } => self.joined(to, *founding, roster),
        }
    }

    /// The node that would do this, if it is paused.
    fn is_held_up(&self, happening: &Happening) -> Option<usize> {
        let at = match happening {
            Happening::Tick(at, _)
            | Happening::Packet(at, _)
            | Happening::Lost(at, _)
            | Happening::Synced(at, _) => *at,
            Happening::Asked { of, .. } | Happening::AsksToJoin { of, .. } => *of,
            Happening::Told { to, .. } | Happening::Joined { to, .. } => *to,
            Happening::Start(_)
            | Happening::Client(_)
            | Happening::Nemesis
            | Happening::Outage
            | Happening::FounderLost(_) => return None,
        };
        (self.nodes[at].paused_until > self.queue.now()).then_some(at)
    }

    /// The process of a node ends, and its disk is what `after` makes of it; it starts again some time later.
    pub(super) fn end(&mut self, at: usize, after: impl FnOnce(&MemDisk) -> MemDisk) {
        self.tell_lost(at);
        let node = &mut self.nodes[at];
        node.life = Life::Down;
        node.process += 1;
        node.is_busy = false;
        node.waiting.clear();
        node.held.clear();
        node.disk = after(&node.disk);
        for client in &mut self.clients {
            // It does not know what became of what it asked there.
            if let Some((_, number, _)) = client.asks.as_mut().filter(|asks| asks.2 == at) {
                *number = 0;
            }
        }
        let later = self.queue.rng.between(10_000, 4_000_000);
        self.queue.after(later, Happening::Start(at));
    }

    fn start(&mut self, at: usize) -> Result<(), Violation> {
        if !matches!(self.nodes[at].life, Life::Down) {
            return Ok(());
        }
        self.nodes[at].process += 1;
        self.nodes[at].began = self.queue.now();
        let (process, fresh) = (self.nodes[at].process, self.queue.rng.bits().max(1));
        let disk = self.nodes[at].disk.clone();
        let held = identity::prepare(&disk)
            .and_then(|()| identity::identify(&disk, MemberId(fresh)))
            .and_then(|identity| Ok((identity.member, identity::load_founding(&disk)?)));
        let (member, founding) = match held {
            Ok(held) => held,
            Err(error) => return self.failed(at, &error),
        };
        let named = &mut self.nodes[at].named;
        (named.member, named.keeper) = (member, Incarnation(member.0.into()));
        self.queue.after(1_000, Happening::Tick(at, process));
        match founding {
            Some(founding) => self.begin(at, founding, None),
            None => {
                self.look_for_cluster(at);
                Ok(())
            }
        }
    }

    /// A disk failed under a node: the power went in the middle, or something is wrong.
    pub(super) fn failed(&mut self, at: usize, error: &std::io::Error) -> Result<(), Violation> {
        if error.kind() == std::io::ErrorKind::InvalidData {
            return Err(Violation::Unusable(error.to_string()));
        }
        self.power_cut(at);
        Ok(())
    }

    /// A node belongs to a cluster. One that has just found or joined it knows who its nodes are.
    pub(super) fn begin(
        &mut self,
        at: usize,
        founding: Founding,
        roster: Option<&Roster>,
    ) -> Result<(), Violation> {
        let disk = self.nodes[at].disk.clone();
        let name = self.nodes[at].named.name.clone();
        let node = match numbered(&disk, &name, &founding, roster) {
            Ok(node) => node,
            Err(error) => return self.failed(at, &error),
        };
        let held = |node: &Node| identity::load_founding(&node.disk).ok().flatten();
        if self.nodes.iter().filter_map(held).any(|other| other.cluster != founding.cluster) {
            return Err(Violation::TwoClusters);
        }
        let nonce = self.queue.rng.bits();
        match Member::open(Arc::new(disk), founding, node, nonce, self.limits) {
            Ok(member) => {
                self.nodes[at].life = Life::Runs(Box::new(member));
                Ok(())
            }
            Err(error) => self.failed(at, &error),
        }
    }

    fn tick(&mut self, at: usize) -> Result<(), Violation> {
        let process = self.nodes[at].process;
        match &mut self.nodes[at].life {
            Life::Down | Life::Gone => Ok(()),
            Life::Joins => {
                self.queue.after(ROUND, Happening::Tick(at, process));
                self.ask_to_join(at);
                Ok(())
            }
            Life::Runs(_) => {
                self.queue.after(TICK, Happening::Tick(at, process));
                if self.queue.rng.chance(100) {
                    self.meet(at)?;
                }
                self.step(at, Event::Tick)
            }
            Life::Seeks { round, answers, .. } => {
                let empty = vec![None; answers.len()];
                let answers = std::mem::replace(answers, empty);
                *round += 1;
                let round = *round;
                self.queue.after(ROUND, Happening::Tick(at, process));
                let fresh = u128::from(self.queue.rng.bits());
                let answers = self.listed(at, answers);
                let next = founding::next(&self.nodes[at].named, &answers, fresh);
                match next {
                    Ok(Next::Take(founding, roster)) => {
                        if founding.cluster == fresh {
                            self.was_founded(at);
                        }
                        self.begin(at, founding, Some(&roster))
                    }
                    Ok(Next::Join(..)) => {
                        self.nodes[at].life = Life::Joins;
                        Ok(())
                    }
                    Err(founding::FoundingError::Removed { .. }) => {
                        self.nodes[at].life = Life::Gone;
                        Ok(())
                    }
                    Ok(Next::Wait) => {
                        self.seek(at, round);
                        Ok(())
                    }
                    Err(founding::FoundingError::TwoClusters { .. }) => Err(Violation::TwoClusters),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    fn seek(&mut self, by: usize, round: u64) {
        if let Life::Seeks { seeking, .. } = &mut self.nodes[by].life {
            seeking.ask();
        }
        for of in (0..self.nodes.len()).filter(|of| *of != by) {
            for after in self.net.send(by, of, &mut self.queue.rng) {
                self.queue.after(after, Happening::Asked { by, of, round });
            }
        }
    }

    fn tell(&mut self, to: usize, by: usize, round: u64) {
        if let Life::Seeks { seeking, .. } = &mut self.nodes[by].life
            && !seeking.say_nothing_held()
        {
            return;
        }
        let (founding, roster) = match &self.nodes[by].life {
            Life::Down | Life::Gone => return,
            Life::Seeks { .. } | Life::Joins => (None, None),
            Life::Runs(member) => {
                let founding = identity::load_founding(&self.nodes[by].disk).ok().flatten();
                let changed = member.roster().changes > 0 && founding.is_some();
                (founding, changed.then(|| member.roster().clone()))
            }
        };
        let answer = Answer { node: self.nodes[by].named.clone(), founding, roster }.encode();
        for after in self.net.send(by, to, &mut self.queue.rng) {
            let answer = answer.clone();
            self.queue.after(after, Happening::Told { to, by, round, answer });
        }
    }

    fn hear(&mut self, to: usize, by: usize, of: u64, answer: &[u8]) {
        let place = if by < to { by } else { by - 1 };
        if let Life::Seeks { round, answers, seeking } = &mut self.nodes[to].life
            && *round == of
        {
            let answer = Answer::decode(answer).expect("as it was sent");
            answers[place] = seeking.counts(&answer).then_some(answer);
        }
    }

    /// Looks at a member after a step, as nobody can who is part of it.
    pub(super) fn look_at(
        &mut self,
        at: usize,
        before: nuthatch_quorum::types::Revision,
    ) -> Result<(), Violation> {
        let Life::Runs(member) = &self.nodes[at].life else { return Ok(()) };
        let state = member.catalog().state();
        if state.revision < before {
            return Err(Violation::WentBack(member.id()));
        }
        if state.revision != before {
            self.observer.state(state)?;
        }
        let (term, applied) = member.position();
        self.queue.trace.record(self.queue.now(), &(at, term, applied));
        if member.is_leader() {
            self.observer.leads(member.id(), term)?;
        }
        // While a change is under way the disks of before count, too: for each member until it has heard that it is over.
        if member.is_leader() && self.are_settled(member) {
            let members = member.members();
            let up = |at: &usize| match &self.nodes[*at].life {
                // Its new disk is one of the members, and has all that was answered.
                Life::Runs(node) => {
                    node.takes_part()
                        && members.values().any(|id| *id == node.id())
                        && node.catalog().state().revision >= self.observer.floor
                }
                _ => false,
            };
            let names: Vec<&str> =
                member.roster().removed.iter().map(|gone| gone.name.as_str()).collect();
            let gone = |at: &usize| names.contains(&self.nodes[*at].named.name.as_str());
            let healed = self.harmed.iter().copied().filter(|at| up(at) || gone(at));
            let healed: Vec<usize> = healed.collect();
            self.harmed.retain(|at| !healed.contains(at));
            if let Some(after) = self.theme.settled(member.voters(), &mut self.queue.rng) {
                self.queue.after(after, Happening::Outage);
            }
        }
        if member.takes_part() && self.set_back == Some((at, member.id())) {
            return Err(Violation::SetBack);
        }
        if let Some(why) = member.is_refused().filter(|_| !member.is_removed()) {
            if !self.harmed.contains(&at) {
                return Err(Violation::Unusable(why.to_owned()));
            }
            // Somebody does as it says, and takes no image of that disk.
            self.nodes[at].image = None;
            self.end(at, |_| empty_disk());
        }
        Ok(())
    }

    /// True if all who vote run, and none knows of a change that is under way.
    fn are_settled(&self, leader: &Member) -> bool {
        leader.voters().iter().all(|voter| {
            self.nodes.iter().any(|node| match &node.life {
                Life::Runs(member) => member.id() == *voter && member.is_settled(),
                _ => false,
            })
        })
    }

    /// A client asks the next thing, if it does not wait for an answer.
    fn ask(&mut self, client: usize) -> Result<(), Violation> {
        let after = self.queue.rng.between(1_000, 400_000);
        self.queue.after(after, Happening::Client(client));
        if self.clients[client].asks.as_ref().is_some_and(|asks| asks.1 != 0) {
            return Ok(());
        }
        let at = self.queue.rng.below(self.nodes.len() as u64) as usize;
        if !matches!(self.nodes[at].life, Life::Runs(_))
            || self.nodes[at].paused_until > self.queue.now()
        {
            return Ok(());
        }
        let (floor, quiet) = (self.observer.floor, self.is_quiet());
        let asked = self.clients[client].next(floor, quiet, &mut self.queue.rng);
        self.calls += 1;
        let (number, call) = (self.calls, asked.call.clone());
        self.clients[client].asks = Some((asked, number, at));
        self.step(at, Event::Call { number, log: LogNumber::FIRST, call })
    }
}
