//! Connections between the members of the catalog's group: to each address one, on which only this side speaks. What
//! the log's messages do on theirs holds up nothing here.
//!
//! What a step of the member has to say to another one is written in one go, by the member's thread as far as that does not
//! wait, and by the connection's own thread otherwise: it is woken for nothing else in ordinary operation.
//!
//! A packet is a length (u32), a CRC-32 (u32) and as many bytes.

use super::Input;
use crate::channel::Channel;
use crate::framed::frame_answer;
use crate::group_port::member_of;
use crate::hello::{Lane, pause_after};
use crate::links::{Local, connect};
use nuthatch_catalog_group::{Envelope, MemberId};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Bytes that may wait for one connection; a single packet may be larger.
const WINDOW_BYTES: usize = 4 << 20;

/// How long a connection, a hello and a write may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(50);

/// Bytes of packets at most that the member's thread writes.
const AT_ONCE_BYTES: usize = 48 << 10;

/// No member has this number.
const NOBODY: u64 = 0;

/// What connections are made with.
type Started = (Arc<dyn Local>, SyncSender<Input>);

/// Packets that are to be written, and the connection for them.
type Task<'a> = (VecDeque<Vec<u8>>, MutexGuard<'a, Option<Channel>>);

/// All connections of a member to others.
pub struct Connections {
    all: RwLock<Vec<Arc<Connection>>>,
    /// While they are made.
    started: Mutex<Option<Started>>,
}

struct Connection {
    address: SocketAddr,
    /// The member that was found there last.
    member: AtomicU64,
    /// The address is no other node's any more.
    has_ended: AtomicBool,
    queue: Mutex<Queue>,
    /// The connection. Its own thread takes it while it holds the queue, and keeps it when it has let that go; others take
    /// it only while they hold the queue, and only if nobody has it.
    channel: Mutex<Option<Channel>>,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    packets: VecDeque<Vec<u8>>,
    bytes: usize,
    connected: bool,
    /// The member's thread has written something, and not all of it went.
    owes: bool,
    /// The connection is to be looked at.
    is_doubted: bool,
    /// A write had an error: nobody knows what went of it, so another connection begins.
    has_failed: bool,
}

impl Queue {
    /// What is to be written.
    fn take(&mut self) -> VecDeque<Vec<u8>> {
        self.bytes = 0;
        std::mem::take(&mut self.packets)
    }
}

impl Connections {
    /// Connections to these addresses; they are made when [`Connections::start`] is called.
    pub fn new(addresses: &[SocketAddr]) -> Arc<Self> {
        let all = addresses.iter().map(|address| Connection::to(*address)).collect();
        Arc::new(Self { all: RwLock::new(all), started: Mutex::default() })
    }

    /// Begins to connect, and goes on until the node ends.
    pub fn start(&self, local: &Arc<dyn Local>, inputs: &SyncSender<Input>) -> io::Result<()> {
        let started = (Arc::clone(local), inputs.clone());
        {
            let mut kept = self.started.lock();
            if local.life().is_ending() {
                // Nobody would take it away again.
                return Ok(());
            }
            *kept = Some(started.clone());
        }
        self.all.read().iter().try_for_each(|connection| Connection::start(connection, &started))
    }

    /// Ends all of them.
    pub fn end(&self) {
        self.started.lock().take();
        self.all.read().iter().for_each(|one| one.end());
    }

    /// Connects to these addresses from now on, and to no others.
    pub fn aim(&self, addresses: &[SocketAddr]) -> io::Result<()> {
        // They are not made yet, or have ended.
        let Some(started) = self.started.lock().clone() else { return Ok(()) };
        let mut all = self.all.write();
        let (stay, end): (Vec<_>, Vec<_>) =
            all.drain(..).partition(|one| addresses.contains(&one.address));
        *all = stay;
        end.iter().for_each(|one| one.end());
        for address in addresses {
            if !all.iter().any(|one| one.address == *address) {
                let new = Connection::to(*address);
                Connection::start(&new, &started)?;
                all.push(new);
            }
        }
        Ok(())
    }

    /// The connection to a member: one that came back elsewhere has left its number where it was.
    fn to(&self, member: MemberId) -> Option<Arc<Connection>> {
        let all = self.all.read();
        all.iter().find(|one| one.is_at(member)).cloned()
    }

    /// Sends a packet with the next [`Connections::write_gathered`]. Without a connection, or room, it is lost.
    pub fn send(&self, envelope: &Envelope) {
        if let Some(connection) = self.to(envelope.to) {
            connection.push(envelope.encode());
        }
    }

    /// Writes what was sent, without waiting.
    pub fn write_gathered(&self) {
        self.all.read().iter().for_each(|one| one.write_gathered());
    }

    /// Looks whether connections were ended, also those on which nothing is to be said: a member that came back with
    /// another disk is told nothing under its former name, so no write would show that it is gone.
    pub fn look(&self) {
        self.all.read().iter().for_each(|one| one.look());
    }

    /// A member has ended its connection to this one: whether it is there is looked at, at once.
    pub fn doubt(&self, member: MemberId) {
        if let Some(connection) = self.to(member) {
            connection.doubt();
        }
    }
}

impl Connection {
    fn to(address: SocketAddr) -> Arc<Self> {
        Arc::new(Self {
            address,
            member: AtomicU64::new(NOBODY),
            has_ended: AtomicBool::new(false),
            queue: Mutex::default(),
            channel: Mutex::new(None),
            filled: Condvar::new(),
        })
    }

    fn start(connection: &Arc<Self>, (local, inputs): &Started) -> io::Result<()> {
        let (connection, serving) = (Arc::clone(connection), Arc::clone(local));
        let inputs = inputs.clone();
        let name = format!("group-{}", connection.address.port());
        local.life().spawn(&name, move || connection.serve(&*serving, &inputs))
    }

    /// Nobody is to be connected to at this address any more.
    fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.doubt();
    }

    fn doubt(&self) {
        self.queue.lock().is_doubted = true;
        self.filled.notify_one();
    }

    fn is_at(&self, member: MemberId) -> bool {
        self.member.load(Ordering::Acquire) == member.0 && self.queue.lock().connected
    }

    fn push(&self, packet: Vec<u8>) {
        let mut queue = self.queue.lock();
        let fits = queue.packets.is_empty() || queue.bytes + packet.len() <= WINDOW_BYTES;
        if queue.connected && fits {
            queue.bytes += packet.len();
            queue.packets.push_back(packet);
        }
    }

    fn write_gathered(&self) {
        let mut queue = self.queue.lock();
        if !queue.packets.is_empty() && !self.write_at_once(&mut queue) {
            self.filled.notify_one();
        }
    }

    /// Writes what waits as far as that goes without waiting. False: it is left to the thread of the connection, which is
    /// writing, or has to find out what is wrong.
    fn write_at_once(&self, queue: &mut Queue) -> bool {
        if queue.owes || queue.is_doubted || queue.bytes > AT_ONCE_BYTES {
            return false;
        }
        let Some(mut channel) = self.channel.try_lock() else { return false };
        let Some(channel) = channel.as_mut() else { return false };
        // A write into a connection that was ended is lost without an error.
        if channel.is_ended() {
            return false;
        }
        let packets = queue.take();
        let written = framed(&packets).and_then(|bytes| channel.write_now(&bytes));
        (queue.owes, queue.has_failed) = (matches!(written, Ok(false)), written.is_err());
        matches!(written, Ok(true))
    }

    fn look(&self) {
        let mut queue = self.queue.lock();
        let mut channel = self.channel.try_lock();
        let channel = channel.as_mut().and_then(|channel| channel.as_mut());
        if channel.is_some_and(|channel| channel.is_ended()) {
            queue.is_doubted = true;
            self.filled.notify_one();
        }
    }

    fn serve(&self, local: &dyn Local, inputs: &SyncSender<Input>) {
        let mut known = None;
        while !self.has_ended.load(Ordering::Acquire) {
            match self.connect(local) {
                Ok((channel, member)) => {
                    known = Some(member);
                    self.member.store(member.0, Ordering::Release);
                    *self.channel.lock() = Some(channel);
                    *self.queue.lock() = Queue { connected: true, ..Queue::default() };
                    // Where it is not told, the next connection says so.
                    if inputs.try_send(Input::Met(member)).is_ok() {
                        // Whatever ends it, the next attempt shows whether the member is there.
                        let _ = self.write_all();
                    }
                    *self.queue.lock() = Queue::default();
                    *self.channel.lock() = None;
                }
                Err(error) => {
                    if let Some(member) = known.take() {
                        let _ = inputs.try_send(Input::Lost(member));
                    }
                    local.life().pause(pause_after(&error, RETRY));
                }
            }
        }
        if let Some(member) = known {
            let _ = inputs.try_send(Input::Lost(member));
        }
    }

    fn connect(&self, local: &dyn Local) -> io::Result<(Channel, MemberId)> {
        let deadline = Instant::now() + TIMEOUT;
        let (mut channel, hello) = connect(self.address, Lane::Group, local, deadline)?;
        channel.begun(TIMEOUT, TIMEOUT)?;
        Ok((channel, member_of(hello.incarnation.0)?))
    }

    /// Writes what there is to write, until the connection ends.
    fn write_all(&self) -> io::Result<()> {
        loop {
            let (packets, mut held) = self.next()?;
            let channel = held.as_mut().expect("it is there until this thread takes it away");
            if channel.is_ended() {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            channel.write_all(&framed(&packets)?)?;
            channel.flush()?;
            let mut queue = self.queue.lock();
            drop(held);
            queue.owes = false;
        }
    }

    /// Waits for what is to be done next: packets are to be written, or the rest of some, or the connection is looked at.
    ///
    /// # Errors
    /// The connection is not to be used any more.
    fn next(&self) -> io::Result<Task<'_>> {
        let has_ended = || self.has_ended.load(Ordering::Acquire);
        let is_idle = |queue: &mut Queue| {
            let is_used = !queue.packets.is_empty() || queue.owes;
            !is_used && !queue.is_doubted && !queue.has_failed && !has_ended()
        };
        let mut queue = self.queue.lock();
        self.filled.wait_while(&mut queue, is_idle);
        if queue.has_failed || has_ended() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        queue.is_doubted = false;
        let channel = self.channel.lock();
        Ok((queue.take(), channel))
    }
}

/// Packets as they are written, one behind the other.
fn framed(packets: &VecDeque<Vec<u8>>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(packets.iter().map(|packet| packet.len() + 8).sum());
    packets.iter().try_for_each(|packet| frame_answer(&mut bytes, packet))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
