//! The built-in catalog in a node: the member of the group on a thread and a disk directory of its own, its
//! connections, and how a node finds the cluster that it belongs to.

mod belonging;
mod connections;

pub use self::belonging::belong;
use self::connections::Connections;
use crate::catalog::{CatalogError, Seen};
use crate::group_port::GroupPort;
use crate::links::Local;
use crate::threads::spawn;
use nuthatch_catalog_group::{
    Effect, Envelope, Event, Founding, Limits, LogNumber, Member, MemberId, TICK,
};
use nuthatch_log::Reporter;
use nuthatch_log::env::{Disk, Entropy as _, SystemEntropy};
use nuthatch_quorum::catalog::{Call, CatalogReply};
use nuthatch_quorum::types::NodeId;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// What `--catalog` says for a catalog that the nodes keep themselves.
pub const BUILT_IN: &str = "built-in";

/// Things that wait for the member at a time; what other members say beyond that is lost.
const INPUTS_MAX: usize = 1024;

/// How long an answer is waited for: longer than a member goes on with a call.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);

/// After its disk failed the member begins anew so much later.
const BEGIN_AGAIN: Duration = Duration::from_secs(1);

/// Takes the answer to a call; none: nobody knows what became of it.
type Answering = SyncSender<Option<CatalogReply>>;

/// What is handed to the member's thread.
enum Input {
    Packet(Box<Envelope>),
    Met(MemberId),
    Lost(MemberId),
    Call(LogNumber, Call, Answering),
}

/// The way to the member, for the node's port.
pub struct Door {
    founding: Founding,
    me: MemberId,
    answer: Vec<u8>,
    inputs: SyncSender<Input>,
    connections: Arc<Connections>,
}

impl Door {
    /// The member's identity.
    #[must_use]
    pub fn me(&self) -> MemberId {
        self.me
    }

    /// Begins to connect to the other nodes.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn connect(&self, local: &Arc<dyn Local>) -> io::Result<()> {
        self.connections.start(local, &self.inputs)
    }

    /// What the cluster was founded with.
    #[must_use]
    pub fn founding(&self) -> &Founding {
        &self.founding
    }
}

impl GroupPort for Door {
    fn answer(&self) -> &[u8] {
        &self.answer
    }

    fn deliver(&self, envelope: Envelope) {
        // What does not fit is as good as lost on the way.
        let _ = self.inputs.try_send(Input::Packet(Box::new(envelope)));
    }

    fn hung_up(&self, member: MemberId) {
        self.connections.doubt(member);
    }
}

/// The catalog of a log as its node asks it.
pub struct GroupCatalog {
    inputs: SyncSender<Input>,
    log: LogNumber,
    seen: Seen,
}

impl GroupCatalog {
    /// The catalog of a log. The log's `disk` remembers how far it was seen.
    ///
    /// # Errors
    /// [`CatalogError`]: the disk's.
    pub fn open(door: &Door, log: LogNumber, disk: &dyn Disk) -> Result<Self, CatalogError> {
        let seen = Seen::open(door.founding.cluster, disk)?;
        Ok(Self { inputs: door.inputs.clone(), log, seen })
    }

    /// Answers one call.
    ///
    /// # Errors
    /// [`CatalogError`]: whether a transaction was or will be applied is unknown; proposed again under the same
    /// name it is applied once.
    pub fn call(&mut self, call: &Call, disk: &dyn Disk) -> Result<CatalogReply, CatalogError> {
        let (answering, answered) = sync_channel(1);
        let unanswered = || CatalogError::NoMajority;
        let input = Input::Call(self.log, call.clone(), answering);
        self.inputs.try_send(input).map_err(|_| unanswered())?;
        let reply = answered.recv_timeout(ANSWER_WITHIN).ok().flatten().ok_or_else(unanswered)?;
        self.seen.note(reply.snapshot.revision, disk)?;
        Ok(reply)
    }
}

/// Starts the member of a node that belongs to a cluster.
///
/// # Errors
/// [`CatalogError`]: the disk's.
pub fn start(
    (founding, answer): (Founding, Vec<u8>),
    (node, others): (NodeId, &[SocketAddr]),
    disk: &Arc<dyn Disk>,
    report: &Reporter,
) -> Result<Arc<Door>, CatalogError> {
    let open = {
        let (disk, founding) = (Arc::clone(disk), founding.clone());
        move || {
            let nonce = SystemEntropy::default().next();
            Member::open(Arc::clone(&disk), founding.clone(), node, nonce, Limits::default())
        }
    };
    let member = open()?;
    let me = member.id();
    let (inputs, taken) = sync_channel(INPUTS_MAX);
    let connections = Connections::new(others);
    let driver = Driver {
        inputs: taken,
        connections: Arc::clone(&connections),
        report: report.clone(),
        answering: BTreeMap::new(),
        numbered: 0,
        told: (false, false),
    };
    spawn("node-group", move || driver.run(member, open))?;
    Ok(Arc::new(Door { founding, me, answer, inputs, connections }))
}

/// Drives a member.
struct Driver {
    inputs: Receiver<Input>,
    connections: Arc<Connections>,
    report: Reporter,
    /// Who waits for the answers to calls.
    answering: BTreeMap<u64, Answering>,
    numbered: u64,
    /// What was said last: whether somebody leads, and whether this node does.
    told: (bool, bool),
}

impl Driver {
    fn run(mut self, first: Member, open: impl Fn() -> io::Result<Member>) {
        let mut member = Some(first);
        let mut told = String::new();
        loop {
            let opened = member.take().map_or_else(&open, Ok);
            let ended = opened.and_then(|member| {
                // The library ends loudly where a disk contradicts itself.
                let driven = catch_unwind(AssertUnwindSafe(|| self.drive(member)));
                driven.unwrap_or_else(|_| Err(io::Error::other("its log contradicts itself")))
            });
            let Err(error) = ended else { return };
            self.answering.clear();
            if told != error.to_string() {
                told = error.to_string();
                self.report.say(&format!("this node's part of the catalog has failed: {told}"));
            }
            thread::sleep(BEGIN_AGAIN);
        }
    }

    /// Drives a member until its disk fails, or nobody is there any more.
    fn drive(&mut self, mut member: Member) -> io::Result<()> {
        let tick = Duration::from_micros(TICK);
        let mut next = Instant::now() + tick;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            let input = match left.is_zero() {
                true => Err(RecvTimeoutError::Timeout),
                false => self.inputs.recv_timeout(left),
            };
            let event = match input {
                Ok(input) => self.event(input),
                Err(RecvTimeoutError::Timeout) => {
                    // A thread that was held up does not make up for it: nobody is suspected for that.
                    next = Instant::now() + tick;
                    Event::Tick
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            for effect in member.step(event)? {
                self.perform(effect);
            }
            self.tell(&member);
        }
    }

    fn event(&mut self, input: Input) -> Event {
        match input {
            Input::Packet(envelope) => Event::Deliver(envelope),
            Input::Met(member) => Event::Met(member),
            Input::Lost(member) => Event::Lost(member),
            Input::Call(log, call, answering) => {
                self.numbered += 1;
                self.answering.insert(self.numbered, answering);
                Event::Call { number: self.numbered, log, call }
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Send(envelope) => self.connections.send(&envelope),
            Effect::Answer { number, reply } => self.answer(number, Some(*reply)),
            Effect::GaveUp { number } => self.answer(number, None),
            Effect::Report(text) => self.report.say(&text),
        }
    }

    fn answer(&mut self, number: u64, reply: Option<CatalogReply>) {
        if let Some(answering) = self.answering.remove(&number) {
            // Who asked may have given up.
            let _ = answering.try_send(reply);
        }
    }

    /// Says whether this node leads, and that nobody does, when that changes.
    fn tell(&mut self, member: &Member) {
        let now = (member.leader().is_some(), member.is_leader());
        if self.told == now {
            return;
        }
        let (_, led) = std::mem::replace(&mut self.told, now);
        match now {
            (_, true) => self.report.say("this node leads the catalog"),
            (false, _) => self.report.say("the catalog has no leader that this node knows"),
            _ if led => self.report.say("this node leads the catalog no more"),
            _ => {}
        }
    }
}
