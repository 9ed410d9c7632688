//! Connections to other nodes: to each address one for everything of a log, and one for the beats of all logs. Who
//! connects sends; answers come on the other side's connection.
//!
//! What waits to be sent is bounded in bytes. Beyond that, and while there is no connection, packets are
//! dropped: the cores send again what was not answered.
//!
//! A small packet in front of which nothing waits is written by the thread that sends it, as far as that does not wait:
//! a change of threads on the way to a keeper, and one on the way back, would be a good part of what an acknowledgement takes.
//! Beats that one thread has for the same node at the same time are written together ([`Links::together`]): what they cost
//! is one call of the system and two threads that wake, however many logs there are.

use crate::about::{self, About};
use crate::channel::Channel;
use crate::framed::put_answer;
use crate::group_port::GroupPort;
use crate::hello::{HELLO_BYTES, Hello, Lane, pause_after};
use crate::host::Outbound;
use crate::key::ClusterKey;
use crate::life::Life;
use crate::packet::{self, Packet};
use nuthatch_catalog_group::{LogNumber, Protocol};
use nuthatch_quorum::types::NodeId;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use socket2::{SockRef, TcpKeepalive};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

mod addressed;

use addressed::{Addressed, put_packet, weight, write_packet};

/// Bytes that may wait for one connection; a single packet may be larger.
pub const WINDOW_BYTES: usize = 16 << 20;

/// Weight of a packet at most that is written by the thread that sends it, which holds the lock of the cores.
const AT_ONCE_BYTES: usize = 16 << 10;

/// How long a connection, a hello and a write may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that nothing goes over for so long is probed by the operating system.
const PROBED_AFTER: Duration = Duration::from_secs(5);

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(50);

/// No node has this number.
const NOBODY: u8 = 0;

thread_local! {
    /// What this thread sends on connections for beats goes when [`Links::together`] ends.
    static GATHERS: Cell<bool> = const { Cell::new(false) };
}

/// What links have to know of a node, or of one of its logs, and tell it.
pub trait Local: Send + Sync {
    /// What it says of itself.
    fn hello(&self, lane: Lane) -> Hello;
    /// The cluster's key, if it has one.
    fn key(&self) -> Option<&ClusterKey>;
    /// The connection to a node was lost and could not be made again.
    fn lost(&self, node: NodeId);
    /// Takes a connection for messages of clients, of which nothing was read.
    fn link(&self, stream: TcpStream);
    /// The way to this node's part of the built-in catalog, if that is what the cluster has.
    fn group(&self) -> Option<&dyn GroupPort>;
    /// The life of the node.
    fn life(&self) -> &Life;
    /// Tells people.
    fn report(&self, text: &str);
    /// True if a hello is of another node of the same cluster; tells people if it is not.
    fn accepts(&self, hello: &Hello, from: SocketAddr) -> bool;
    /// The oldest protocol that is spoken: who knows only older ones is not listened to any more.
    fn oldest(&self) -> Protocol;
    /// What a connection for beats begins with.
    fn about(&self) -> About;
    /// A node begins to beat, and says this of itself; nothing where it does not speak that yet.
    ///
    /// # Errors
    /// Why it is not listened to.
    fn meets(&self, hello: &Hello, about: Option<About>) -> Result<(), String>;
    /// A node was turned away, which comes again: people are told once of each reason.
    fn turns_away(&self, hello: &Hello, from: SocketAddr, why: &str);
}

struct Link {
    address: SocketAddr,
    lane: Lane,
    /// The node that was found there last.
    node: AtomicU8,
    /// It is connected now: a node that came back elsewhere has left its number here.
    is_connected: AtomicBool,
    /// The address is no other node's any more.
    has_ended: AtomicBool,
    queue: Mutex<Queue>,
    /// The connection, held while something is written to it. Its own thread takes it while it holds the queue, and keeps it
    /// when it has let that go; others take it only while they hold the queue, and only if nobody has it.
    channel: Mutex<Option<Channel>>,
    filled: Condvar,
    /// Everything that was in the queue was written.
    emptied: Condvar,
}

#[derive(Default)]
struct Queue {
    packets: VecDeque<Addressed>,
    bytes: usize,
    connected: bool,
    /// Something was written at once, and not all of it went.
    owes: bool,
    /// When something was written last, or the connection was made; none without one.
    used: Option<Instant>,
    /// The node has ended a connection of its own: somebody has to look whether it is there.
    is_doubted: bool,
}

impl Queue {
    /// The other process may be another one since the last write: a first one would be lost without an error.
    fn is_stale(&self) -> bool {
        self.used.is_some_and(|used| used.elapsed() > RETRY)
    }
}

/// What the thread of a connection has to do, and the connection for it.
enum Task<'a> {
    /// A packet is to be written.
    Write(Addressed, MutexGuard<'a, Option<Channel>>),
    /// What was written in part is to be finished.
    Finish(MutexGuard<'a, Option<Channel>>),
    /// The node is to be looked for.
    Look,
}

/// Connections of a node to all others that are for the same.
pub struct Links {
    lane: Lane,
    links: RwLock<Vec<Arc<Link>>>,
    /// While they are made.
    local: Mutex<Option<Arc<dyn Local>>>,
}

impl Links {
    /// Connections to these addresses for a purpose; they are made when [`Links::start`] is called.
    #[must_use]
    pub fn new(addresses: &[SocketAddr], lane: Lane) -> Arc<Self> {
        let links = addresses.iter().map(|address| Link::new(*address, lane)).collect();
        Arc::new(Self { lane, links: RwLock::new(links), local: Mutex::default() })
    }

    /// Begins to connect, and goes on until the node ends.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn start(&self, local: &Arc<dyn Local>) -> io::Result<()> {
        {
            let mut started = self.local.lock();
            if local.life().is_ending() {
                // Nobody would take it away again.
                return Ok(());
            }
            *started = Some(Arc::clone(local));
        }
        self.links.read().iter().try_for_each(|link| Link::start(link, local))
    }

    /// Ends all of them: what waits to be sent is dropped.
    pub(crate) fn end(&self) {
        self.local.lock().take();
        self.links.read().iter().for_each(|link| link.end());
    }

    /// Connects to these addresses from now on, and to no others.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn aim(&self, addresses: &[SocketAddr]) -> io::Result<()> {
        // They are not made yet, or have ended.
        let Some(local) = self.local.lock().clone() else { return Ok(()) };
        let mut links = self.links.write();
        let (stay, end): (Vec<_>, Vec<_>) =
            links.drain(..).partition(|link| addresses.contains(&link.address));
        *links = stay;
        end.iter().for_each(|link| link.end());
        for address in addresses {
            if !links.iter().any(|link| link.address == *address) {
                let new = Link::new(*address, self.lane);
                Link::start(&new, &local)?;
                links.push(new);
            }
        }
        links.iter().for_each(|link| link.look_if_ended());
        Ok(())
    }

    /// Where a node is, or else was found last.
    #[must_use]
    pub fn address(&self, node: NodeId) -> Option<SocketAddr> {
        let links = self.links.read();
        let found = links.iter().filter(|link| link.was_at(node));
        found.max_by_key(|link| link.is_at(node)).map(|link| link.address)
    }

    /// Sends a packet of a log, without waiting.
    pub fn send(&self, log: LogNumber, packet: Packet) {
        let to = packet.envelope.to;
        if let Some(link) = self.links.read().iter().find(|link| link.is_at(to)) {
            link.push(log, packet);
        }
    }

    /// What this thread sends on connections for beats while `work` goes on is written when that is over, all for a node at
    /// once. It is for the links that are for beats.
    pub fn together<T>(&self, work: impl FnOnce() -> T) -> T {
        assert_eq!(self.lane, Lane::Beats, "nobody else would write what is gathered");
        let gathers = Gathers::begin();
        let done = work();
        drop(gathers);
        self.links.read().iter().for_each(|link| link.write_gathered());
        done
    }

    /// A node has ended a connection that it had made: whether it is there is looked at.
    pub fn doubt(&self, node: NodeId) {
        for link in self.links.read().iter().filter(|link| link.is_at(node)) {
            link.look();
        }
    }

    /// Waits until what was sent is with the operating system, or until then.
    pub fn flush(&self, deadline: Instant) {
        // It is waited without the lock, which others need to send.
        let links = self.links.read().clone();
        for link in &links {
            let mut queue = link.queue.lock();
            while (queue.bytes > 0 || queue.owes)
                && !link.emptied.wait_until(&mut queue, deadline).timed_out()
            {}
        }
    }

    /// The nodes that are connected, and where.
    #[must_use]
    pub fn found(&self) -> Vec<(NodeId, SocketAddr)> {
        let links = self.links.read();
        let is_there = |link: &&Arc<Link>| link.is_connected.load(Ordering::Acquire);
        let node = |link: &Arc<Link>| (NodeId(link.node.load(Ordering::Acquire)), link.address);
        links.iter().filter(is_there).map(node).collect()
    }
}

/// While it is there what its thread sends is gathered.
struct Gathers;

impl Gathers {
    fn begin() -> Self {
        assert!(!GATHERS.replace(true), "what is gathered goes before more is");
        Self
    }
}

impl Drop for Gathers {
    fn drop(&mut self) {
        GATHERS.set(false);
    }
}

/// The ways of one log to other nodes.
pub(crate) struct LogWays {
    /// The log.
    pub(crate) log: LogNumber,
    /// Connections for everything but beats.
    pub(crate) links: Arc<Links>,
    /// Those for the beats of all logs.
    pub(crate) beats: Arc<Links>,
}

impl Outbound for LogWays {
    fn send(&self, packet: Packet) {
        let is_beat = packet::is_beat(&packet.envelope.message);
        let links = if is_beat { &self.beats } else { &self.links };
        links.send(self.log, packet);
    }

    fn doubt(&self, node: NodeId) {
        self.links.doubt(node);
        self.beats.doubt(node);
    }

    fn flush(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        self.links.flush(deadline);
        self.beats.flush(deadline);
    }
}

impl Link {
    /// The connection to an address for a purpose.
    fn new(address: SocketAddr, lane: Lane) -> Arc<Self> {
        Arc::new(Self {
            address,
            lane,
            node: AtomicU8::new(NOBODY),
            is_connected: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            queue: Mutex::default(),
            channel: Mutex::new(None),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        })
    }

    fn start(link: &Arc<Self>, local: &Arc<dyn Local>) -> io::Result<()> {
        let (link, serving) = (Arc::clone(link), Arc::clone(local));
        let name = format!("node-{}", link.address.port());
        local.life().spawn(&name, move || link.serve(&*serving))
    }

    /// A node was found there last.
    fn was_at(&self, node: NodeId) -> bool {
        self.node.load(Ordering::Acquire) == node.0
    }

    /// A node is connected there.
    fn is_at(&self, node: NodeId) -> bool {
        self.was_at(node) && self.is_connected.load(Ordering::Acquire)
    }

    /// Has the other side looked at.
    fn look(&self) {
        self.queue.lock().is_doubted = true;
        self.filled.notify_one();
    }

    /// Has a connection looked at that nothing was written to for a while and that has ended since. The node that was there may
    /// be gone for good, and another one at its address: nobody would write to the former one.
    fn look_if_ended(&self) {
        let mut queue = self.queue.lock();
        let looks = queue.connected && queue.is_stale() && !queue.is_doubted;
        let is_ended =
            |channel: &mut Option<Channel>| channel.as_mut().is_some_and(Channel::is_ended);
        if looks && self.channel.try_lock().is_some_and(|mut channel| is_ended(&mut channel)) {
            queue.is_doubted = true;
            self.filled.notify_one();
        }
    }

    /// Nobody is to be connected to at this address any more.
    fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.look();
    }

    fn push(&self, log: LogNumber, packet: Packet) {
        let mut queue = self.queue.lock();
        let bytes = weight(&packet);
        let fits = queue.packets.is_empty() || queue.bytes + bytes <= WINDOW_BYTES;
        if !queue.connected || !fits {
            return;
        }
        let is_next = queue.packets.is_empty() && !queue.owes;
        let packet = (log, packet);
        if is_next && !self.gathers() && bytes <= AT_ONCE_BYTES {
            let mut all = vec![];
            put_packet(&mut all, &packet);
            if self.write_at_once(&mut queue, &all) {
                return;
            }
        }
        queue.bytes += bytes;
        queue.packets.push_back(packet);
        if !self.gathers() {
            self.filled.notify_one();
        }
    }

    /// What this thread sends now waits for [`Links::together`]. That is for beats: nothing else is for their connection.
    fn gathers(&self) -> bool {
        self.lane == Lane::Beats && GATHERS.get()
    }

    /// Writes what was gathered on the thread that has sent it, or leaves it to that of the connection.
    fn write_gathered(&self) {
        let mut queue = self.queue.lock();
        if queue.packets.is_empty() {
            return;
        }
        if !queue.owes && queue.bytes <= AT_ONCE_BYTES {
            let mut bytes = Vec::with_capacity(queue.bytes);
            queue.packets.iter().for_each(|packet| put_packet(&mut bytes, packet));
            if self.write_at_once(&mut queue, &bytes) {
                queue.packets.clear();
                queue.bytes = 0;
                self.emptied.notify_all();
                return;
            }
        }
        self.filled.notify_one();
    }

    /// Writes bytes of packets on the thread that sends them. False: the thread of the connection is writing, or has to find
    /// out what is wrong with it.
    fn write_at_once(&self, queue: &mut Queue, bytes: &[u8]) -> bool {
        let Some(mut channel) = self.channel.try_lock() else { return false };
        let Some(channel) = channel.as_mut() else { return false };
        if queue.is_stale() && channel.is_ended() {
            return false;
        }
        let Ok(is_all) = channel.write_now(bytes) else { return false };
        queue.used = Some(Instant::now());
        if !is_all {
            queue.owes = true;
            self.filled.notify_one();
        }
        true
    }

    fn serve(&self, local: &dyn Local) {
        let (mut known, mut told) = (None, String::new());
        // What waits for a connection that was found ended before it was used.
        let mut unsent = None;
        while !self.has_ended.load(Ordering::Acquire) {
            match self.connect(local) {
                Ok((channel, node)) => {
                    known = Some(node);
                    self.node.store(node.0, Ordering::Release);
                    *self.channel.lock() = Some(channel);
                    self.begin(unsent.take());
                    // Whatever ends it, the next attempt shows whether the node is there.
                    unsent = self.write_all().unwrap_or_default();
                    self.is_connected.store(false, Ordering::Release);
                    *self.queue.lock() = Queue::default();
                    *self.channel.lock() = None;
                    self.emptied.notify_all();
                }
                Err(error) => {
                    unsent = None;
                    self.tell(&error, &mut told, local);
                    if let Some(node) = known.take() {
                        local.lost(node);
                    }
                    local.life().pause(pause_after(&error, RETRY));
                }
            }
        }
    }

    /// A connection is there, to which this packet goes first.
    fn begin(&self, unsent: Option<Addressed>) {
        let mut queue = self.queue.lock();
        let is_doubted = self.has_ended.load(Ordering::Acquire);
        // It may stay unused for long before the first packet, too.
        let used = Some(Instant::now());
        *queue = Queue { connected: true, is_doubted, used, ..Queue::default() };
        if let Some(packet) = unsent {
            queue.bytes = weight(&packet.1);
            queue.packets.push_back(packet);
        }
        drop(queue);
        self.is_connected.store(true, Ordering::Release);
    }

    /// Says once what does not pass by itself: somebody is there, and is no node with the same key. All lanes find
    /// that out, those of logs say it.
    fn tell(&self, error: &io::Error, told: &mut String, local: &dyn Local) {
        let text = error.to_string();
        let asks = match error.kind() {
            io::ErrorKind::InvalidData => "; do all nodes have the same -cluster_key?",
            io::ErrorKind::Unsupported => "",
            _ => return,
        };
        if self.lane == Lane::Log && *told != text {
            local.report(&format!("no connection to the node at {}: {text}{asks}", self.address));
            *told = text;
        }
    }

    fn connect(&self, local: &dyn Local) -> io::Result<(Channel, NodeId)> {
        let deadline = Instant::now() + TIMEOUT;
        let (mut channel, hello) = connect(self.address, self.lane, local, deadline)?;
        channel.begun(TIMEOUT, TIMEOUT)?;
        Ok((channel, hello.node))
    }

    /// Writes what there is to write, until the connection ends. Gives a packet that was not written because it had
    /// ended before.
    fn write_all(&self) -> io::Result<Option<Addressed>> {
        loop {
            let (packet, mut held) = match self.next() {
                Task::Write(packet, held) => (Some(packet), held),
                Task::Finish(held) => (None, held),
                Task::Look if self.has_ended.load(Ordering::Acquire) => return Ok(None),
                Task::Look => {
                    // Nothing is said there: a connection that is ended is a reason for the other side to look, too.
                    TcpStream::connect_timeout(&self.address, RETRY)?;
                    if self.channel.lock().as_mut().is_none_or(Channel::is_ended) {
                        return Ok(None);
                    }
                    continue;
                }
            };
            let channel = held.as_mut().expect("it is there until this thread takes it away");
            let written = match &packet {
                Some(_) if self.queue.lock().is_stale() && channel.is_ended() => return Ok(packet),
                Some(packet) => write_packet(channel, packet),
                None => channel.flush(),
            };
            let mut queue = self.queue.lock();
            drop(held);
            queue.used = Some(Instant::now());
            queue.owes = false;
            queue.bytes -= packet.as_ref().map_or(0, |(_, packet)| weight(packet));
            if queue.bytes == 0 {
                self.emptied.notify_all();
            }
            drop(queue);
            written?;
        }
    }

    /// Waits for what is to be done next.
    fn next(&self) -> Task<'_> {
        let mut queue = self.queue.lock();
        while queue.packets.is_empty() && !queue.is_doubted && !queue.owes {
            self.filled.wait(&mut queue);
        }
        if std::mem::take(&mut queue.is_doubted) {
            return Task::Look;
        }
        let channel = self.channel.lock();
        match queue.packets.pop_front() {
            Some(packet) => Task::Write(packet, channel),
            None => Task::Finish(channel),
        }
    }
}

/// Small packets go out at once. A connection on which nothing arrives any more ends, although a new one could be made:
/// the cores send too little for a write to wait. One that nothing is written to ends, too, when its other machine is gone.
///
/// # Errors
/// The socket's.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new().with_time(PROBED_AFTER).with_interval(PROBED_AFTER);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(TIMEOUT))
}

/// Connects to the node port at an address, for a purpose, until `deadline`; gives what the node says of itself.
///
/// # Errors
/// The connection's; that the other side has another key; `PermissionDenied` if it is of another cluster, `Unsupported` if it
/// speaks nothing that this node does.
pub(crate) fn connect(
    address: SocketAddr,
    lane: Lane,
    local: &dyn Local,
    deadline: Instant,
) -> io::Result<(Channel, Hello)> {
    let stream = local.life().dial(address, deadline)?;
    prepare(&stream)?;
    let mut channel = Channel::outward(stream, local.key(), deadline)?;
    let mine = local.hello(lane);
    channel.write_all(&mine.encode())?;
    channel.flush()?;
    let mut answer = [0; HELLO_BYTES];
    channel.read_exact(&mut answer)?;
    let hello = Hello::answered(&answer)?;
    if !local.accepts(&hello, address) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let Some(agreed) = mine.speaks.agreed(hello.speaks) else {
        let why = mine.speaks.apart(hello.speaks);
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    };
    if hello.log != mine.log {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it answers for another log"));
    }
    if lane == Lane::Beats && agreed >= about::SINCE {
        put_answer(&mut channel, &local.about().encode())?;
    }
    Ok((channel, hello))
}

#[cfg(test)]
mod tests;
