//! Connections between the members of the catalog's group: to each address one, on which only this side speaks. What
//! the log's messages do on theirs holds up nothing here.
//!
//! A packet is a length (u32), a CRC-32 (u32) and as many bytes.

use super::Input;
use crate::channel::Channel;
use crate::framed::frame_answer;
use crate::group_port::member_of;
use crate::hello::{Lane, pause_after};
use crate::links::{Local, connect};
use nuthatch_catalog_group::{Envelope, MemberId};
use parking_lot::{Condvar, Mutex, RwLock};
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

/// Between two looks whether a connection was ended on which nothing is to be said.
const LOOK: Duration = Duration::from_millis(100);

/// No member has this number.
const NOBODY: u64 = 0;

/// What connections are made with.
type Started = (Arc<dyn Local>, SyncSender<Input>);

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
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    packets: VecDeque<Vec<u8>>,
    bytes: usize,
    connected: bool,
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

    /// Sends a packet, without waiting. Without a connection, or room, it is lost.
    pub fn send(&self, envelope: &Envelope) {
        if let Some(connection) = self.to(envelope.to) {
            connection.push(envelope.encode());
        }
    }

    /// A member has ended its connection to this one: whether it is there is looked at, at once.
    pub fn doubt(&self, member: MemberId) {
        if let Some(connection) = self.to(member) {
            connection.filled.notify_one();
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
                    *self.queue.lock() = Queue { connected: true, ..Queue::default() };
                    if inputs.try_send(Input::Met(member)).is_err() {
                        // The next connection says so.
                        continue;
                    }
                    // Whatever ends it, the next attempt shows whether the member is there.
                    let _ = self.write_all(channel);
                    *self.queue.lock() = Queue::default();
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

    fn write_all(&self, mut channel: Channel) -> io::Result<()> {
        loop {
            let packets = {
                let mut queue = self.queue.lock();
                if queue.packets.is_empty() {
                    self.filled.wait_for(&mut queue, LOOK);
                }
                queue.bytes = 0;
                std::mem::take(&mut queue.packets)
            };
            // A member that came back with another disk is told nothing under its former name, so no write would
            // show that it is gone; and a write into a connection that was ended is lost without an error.
            if channel.is_ended() || self.has_ended.load(Ordering::Acquire) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            if packets.is_empty() {
                continue;
            }
            let mut bytes = vec![];
            packets.iter().try_for_each(|packet| frame_answer(&mut bytes, packet))?;
            channel.write_all(&bytes)?;
            channel.flush()?;
        }
    }
}
