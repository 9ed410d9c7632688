//! The port of a node: takes connections of other nodes, each for one of the logs, and tells everybody else what it is.

use crate::about::{self, ABOUT_MAX, About};
use crate::channel::{Channel, TLS_HANDSHAKE};
use crate::coding::malformed;
use crate::framed::{put_answer, read_answer};
use crate::group_port::member_of;
use crate::hello::{HELLO_BYTES, Hello, KEY_WANTED, Lane, NO_KEY, WRONG_PORT, no_such_log};
use crate::host::Host;
use crate::life::Life;
use crate::link_hello::LINK_BEGINS;
use crate::links::{Links, Local, prepare};
use crate::packet::{self, HEADER_BYTES, Header, Packet};
use crate::places::{Place, Places};
use crate::transfer::{self, FileSource};
use bytes::Bytes;
use nuthatch_catalog_group::{Envelope, LogNumber, MemberId};
use std::io::{self, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections of nodes at a time for each log: two of each of seven nodes, and as many that are being replaced.
const CONNECTIONS_OF_LOG: usize = 28;

/// Connections of nodes for all logs together: the beats and the built-in catalog of as many, and some that ask.
const CONNECTIONS_OF_NODE: usize = 32;

/// Connections at a time, for each log, that have not said yet whose they are. They take no place of a node's. When a node
/// starts, each of four others may make two at once for each log.
const STRANGERS_OF_LOG: usize = 16;

/// Those of one address, for each log: whoever says nothing keeps nobody out who comes from elsewhere.
const STRANGERS_OF_ADDRESS: usize = 8;

/// How many times that the first log counts for connections that have not said yet whose they are.
const FIRST_COUNTS: usize = 2;

/// Bytes of one packet for the catalog's member at most: a message with entries, or a snapshot of the catalog.
const ENVELOPE_MAX: u32 = 8 << 20;

/// Bytes of what a node says that asks to be let join.
const JOIN_MAX: u32 = 512;

/// What is read of a connection at once, where less is wanted; each has as much memory.
const READ_BYTES: usize = 8 << 10;

/// How long somebody who connected may take for a hello: a client waits for the server to begin.
const HELLO_WITHIN: Duration = Duration::from_secs(1);

/// A node that was turned away is left waiting for so long: it would come again at once.
const TURNED_AWAY: Duration = Duration::from_secs(1);

/// A connection for entries that brings none for so long may be one whose other end is gone. A node that is
/// there connects again.
const IDLE: Duration = Duration::from_secs(300);

/// A connection for beats that brings none for so long is dead.
const SILENCE: Duration = Duration::from_secs(5);

/// A log, as connections reach it.
pub struct LogPort {
    /// Its cores on this node.
    pub host: Arc<Host>,
    /// What connections know of them.
    pub local: Arc<dyn Local>,
    /// Its files on this node.
    pub files: Arc<dyn FileSource>,
}

/// Takes connections for the logs, which are in the order of their numbers, until the node ends. Beats are answered on
/// `beats`.
///
/// # Errors
/// The operating system has no thread to give.
pub(crate) fn serve(
    life: &Life,
    listener: TcpListener,
    logs: Vec<LogPort>,
    beats: &Arc<Links>,
) -> io::Result<()> {
    let count = logs.len() - 1 + FIRST_COUNTS;
    let strangers = Places::new(STRANGERS_OF_LOG * count, STRANGERS_OF_ADDRESS * count);
    let connections = CONNECTIONS_OF_NODE + CONNECTIONS_OF_LOG * logs.len();
    let nodes = Places::new(connections, connections);
    let logs: Arc<[LogPort]> = logs.into();
    let (lives, beats) = (life.clone(), Arc::clone(beats));
    life.accept(listener, move |stream, from| {
        let Some(stranger) = strangers.take(from.ip()) else { return };
        let (nodes, logs, beats) = (nodes.clone(), Arc::clone(&logs), Arc::clone(&beats));
        let Ok(stream) = lives.track(stream) else { return };
        let work = move || converse(stream, stranger, &nodes, (&logs, &beats));
        // Without a thread the connection ends with what was to go into it.
        drop(lives.spawn_for_one("node-in", work));
    })
}

fn converse(
    stream: Arc<TcpStream>,
    stranger: Place,
    nodes: &Places,
    (logs, beats): (&[LogPort], &Links),
) {
    let Ok(from) = stream.peer_addr() else { return };
    let locals: Vec<&dyn Local> = logs.iter().map(|log| &*log.local).collect();
    let Some((channel, hello)) = greet(stream, &locals, from) else { return };
    let LogPort { host, local, files } = &logs[hello.log.index()];
    let Some(_node) = nodes.take(from.ip()) else { return };
    drop(stranger);
    let told = match hello.lane {
        Lane::Files => transfer::answer(channel, &**files),
        Lane::Founding | Lane::Group | Lane::Join => group(channel, &hello, from, &**local),
        Lane::Beats => {
            let told = receive_beats(channel, (&hello, &**local), logs, beats);
            logs.iter().for_each(|log| log.host.beats_hung_up(hello.node));
            told
        }
        Lane::Log => {
            let told = receive(channel, (&hello, &**local), host);
            host.hung_up(hello.node);
            told
        }
    };
    if let Err(error) = told
        && error.kind() == io::ErrorKind::InvalidData
    {
        local.report(&format!("node {} at {from} is cut off: {error}", hello.node.0));
    }
}

/// What is for the built-in catalog.
fn group(
    mut channel: Channel,
    hello: &Hello,
    from: SocketAddr,
    local: &dyn Local,
) -> io::Result<()> {
    let Some(door) = local.group() else { return Ok(()) };
    if hello.lane == Lane::Founding {
        return put_answer(&mut channel, &door.answer());
    }
    if hello.lane == Lane::Join {
        let asked = read_answer(&mut channel, JOIN_MAX)?;
        let answer = door.let_join(&asked, from.ip());
        return put_answer(&mut channel, &answer);
    }
    let member = member_of(hello.incarnation.0)?;
    let told =
        receive_envelopes(channel, (member, hello, local), |envelope| door.deliver(envelope));
    door.hung_up(member);
    told
}

/// Hands on what a member says. What is no packet, or another member's, ends the connection.
fn receive_envelopes(
    channel: Channel,
    (from, hello, local): (MemberId, &Hello, &dyn Local),
    deliver: impl Fn(Envelope),
) -> io::Result<()> {
    let invalid = |error: &str| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut packets = BufReader::with_capacity(READ_BYTES, channel);
    loop {
        let packet = read_answer(&mut packets, ENVELOPE_MAX)?;
        check_spoken(hello, local)?;
        let envelope = Envelope::decode(&packet).map_err(|why| invalid(why.what))?;
        if envelope.from != from {
            return Err(invalid("it speaks for another member of the catalog"));
        }
        deliver(envelope);
    }
}

/// What somebody who has connected begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begins {
    /// A handshake of TLS.
    Tls,
    /// What may be a hello without TLS.
    Hello,
    /// A connection for messages of clients, which the server takes.
    Link,
    /// Something else, or nothing.
    Other,
}

/// What somebody begins with, without taking it from the socket.
fn begins(stream: &TcpStream, deadline: Instant) -> io::Result<Begins> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_read_timeout(Some(left))?;
    let mut first = [0];
    Ok(match stream.peek(&mut first) {
        Ok(1) if first[0] == TLS_HANDSHAKE => Begins::Tls,
        Ok(1) if Hello::may_begin(&first) => Begins::Hello,
        Ok(1) if first[0] == LINK_BEGINS => Begins::Link,
        _ => Begins::Other,
    })
}

/// Reads a hello, or as much of what is none as shows that.
fn read_hello(channel: &mut Channel) -> io::Result<([u8; HELLO_BYTES], usize)> {
    let (mut bytes, mut done) = ([0; HELLO_BYTES], 0);
    while done < HELLO_BYTES && Hello::may_begin(&bytes[..done]) {
        match channel.read(&mut bytes[done..]) {
            Ok(count) if count > 0 => done += count,
            _ => break,
        }
    }
    Ok((bytes, done))
}

/// The connection as the cluster's key has it, if whoever has connected begins like a node. Everybody else is
/// told what this port is for.
fn secure(stream: Arc<TcpStream>, local: &dyn Local, deadline: Instant) -> Option<Channel> {
    prepare(&stream).ok()?;
    stream.set_write_timeout(Some(HELLO_WITHIN)).ok()?;
    let key = local.key();
    let told = match (begins(&stream, deadline).ok()?, key) {
        (Begins::Tls, Some(_)) | (Begins::Hello, None) => {
            return Channel::inward(stream, key, deadline).ok();
        }
        (Begins::Link, _) => {
            // At the end somebody else has it, too.
            Arc::into_inner(stream).into_iter().for_each(|stream| local.link(stream));
            return None;
        }
        (Begins::Hello, Some(_)) => KEY_WANTED,
        (Begins::Tls, None) => NO_KEY,
        (Begins::Other, _) => WRONG_PORT,
    };
    let _ = (&*stream).write_all(told);
    None
}

/// Exchanges hellos, all of it within [`HELLO_WITHIN`], as the log of which the other side's speaks. None: it is nobody
/// to talk to.
pub(crate) fn greet(
    stream: Arc<TcpStream>,
    locals: &[&dyn Local],
    from: SocketAddr,
) -> Option<(Channel, Hello)> {
    let mut channel = secure(stream, locals[0], Instant::now() + HELLO_WITHIN)?;
    let (bytes, done) = read_hello(&mut channel).ok()?;
    if done < HELLO_BYTES || !Hello::may_begin(&bytes) {
        let _ = channel.write_all(WRONG_PORT);
        return None;
    }
    let hello = Hello::decode(&bytes);
    if let Err(error) = &hello {
        let _ = channel.write_all(format!("-ERR '{error}'\r\n").as_bytes());
    }
    // Whoever it is, the node is asked first: one that does not know its cluster yet does not know the logs either.
    let hello = hello.ok().filter(|hello| locals[0].accepts(hello, from))?;
    let Some(local) = locals.get(hello.log.index()) else {
        let _ = channel.write_all(no_such_log(hello.log, locals.len()).as_bytes());
        return None;
    };
    // Also to who speaks nothing that this node does: it sees why the connection ends.
    let mine = local.hello(hello.lane);
    channel.write_all(&mine.encode()).ok()?;
    channel.flush().ok()?;
    if let Err(why) = meet(&mut channel, (&mine, &hello), *local).ok()? {
        local.turns_away(&hello, from, &why);
        // It comes again at once when this ends.
        local.life().pause(TURNED_AWAY);
        return None;
    }
    let (silence, write) = match hello.lane {
        Lane::Beats => (SILENCE, HELLO_WITHIN),
        Lane::Log => (IDLE, HELLO_WITHIN),
        Lane::Founding | Lane::Join => (HELLO_WITHIN, HELLO_WITHIN),
        Lane::Group => (IDLE, HELLO_WITHIN),
        Lane::Files => (transfer::TIMEOUT, transfer::TIMEOUT),
    };
    channel.begun(silence, write).ok()?;
    Some((channel, hello))
}

/// Looks whether a node that has said its hello, and what follows on that, is one to listen to; or why not.
///
/// # Errors
/// The connection's.
fn meet(
    channel: &mut Channel,
    (mine, hello): (&Hello, &Hello),
    local: &dyn Local,
) -> io::Result<Result<(), String>> {
    let Some(agreed) = mine.speaks.agreed(hello.speaks) else {
        return Ok(Err(mine.speaks.apart(hello.speaks)));
    };
    if hello.lane != Lane::Beats {
        return Ok(Ok(()));
    }
    let about = match agreed >= about::SINCE {
        true => Some(read_answer(channel, ABOUT_MAX)?),
        false => None,
    };
    let about = about.map(|bytes| About::decode(&bytes)).transpose();
    Ok(match about {
        Ok(about) => local.meets(hello, about),
        Err(error) => Err(error.to_string()),
    })
}

/// Ends a connection with a node that speaks nothing any more that the cluster does: it was finalized meanwhile.
fn check_spoken(hello: &Hello, local: &dyn Local) -> io::Result<()> {
    match hello.speaks.newest < local.oldest() {
        true => Err(invalid(malformed(
            "the cluster was finalized for a protocol that it does not know",
        ))),
        false => Ok(()),
    }
}

/// Hands on what a node says. What is no packet, or another node's, ends the connection.
fn receive(channel: Channel, (hello, local): (&Hello, &dyn Local), host: &Host) -> io::Result<()> {
    // A small packet is read by one call of the system, and long payloads go past the buffer.
    let mut packets = BufReader::with_capacity(READ_BYTES, channel);
    loop {
        let (log, packet) = read_packet(&mut packets)?;
        check_spoken(hello, local)?;
        let envelope = &packet.envelope;
        if envelope.from != hello.node || envelope.sender != hello.incarnation || log != hello.log {
            return Err(invalid(malformed("it speaks for another node, disk or log")));
        }
        host.deliver(packet).map_err(invalid)?;
    }
}

/// Hands on the beats of a node to the logs that they are about. What answers those that came together goes together.
fn receive_beats(
    channel: Channel,
    (hello, local): (&Hello, &dyn Local),
    logs: &[LogPort],
    beats: &Links,
) -> io::Result<()> {
    let mut packets = BufReader::with_capacity(READ_BYTES, channel);
    loop {
        check_spoken(hello, local)?;
        beats.together(|| {
            take_beat(&mut packets, hello, logs)?;
            while has_packet(packets.buffer()) {
                take_beat(&mut packets, hello, logs)?;
            }
            Ok::<_, io::Error>(())
        })?;
    }
}

/// Waits for a beat and hands it on. Each log knows the disks by their own numbers.
fn take_beat(from: &mut impl Read, hello: &Hello, logs: &[LogPort]) -> io::Result<()> {
    let (log, packet) = read_packet(from)?;
    if packet.envelope.from != hello.node {
        return Err(invalid(malformed("it speaks for another node")));
    }
    let Some(LogPort { host, .. }) = logs.get(log.index()) else {
        return Err(invalid(malformed("it speaks of a log that this cluster does not have")));
    };
    host.deliver_beat(packet).map_err(invalid)
}

/// True if bytes that were read begin with a whole packet.
fn has_packet(bytes: &[u8]) -> bool {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return false };
    Header::decode(header).is_ok_and(|header| header.message + header.payloads <= rest.len())
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Reads one packet, and which log it is about.
///
/// # Errors
/// `InvalidData` if it is none, and the connection's.
pub fn read_packet(stream: &mut impl Read) -> io::Result<(LogNumber, Packet)> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let header = Header::decode(&header).map_err(invalid)?;
    let message = read_bytes(stream, header.message)?;
    let payloads = read_bytes(stream, header.payloads)?;
    let packet = packet::decode(header, &message, Bytes::from(payloads)).map_err(invalid)?;
    Ok((header.log, packet))
}

/// Reads so many bytes, of which there are at most those of a packet. Memory is only set aside before they come, which
/// costs addresses: a length alone costs nothing.
fn read_bytes(stream: &mut impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count);
    let read = stream.take(count as u64).read_to_end(&mut bytes)?;
    if read == count { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
