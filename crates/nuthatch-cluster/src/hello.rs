//! How two nodes begin a connection, and what others that connect to a node's port are told.

use crate::about::Versions;
use crate::coding::{Malformed, Reader, Writer, crc, malformed};
use nuthatch_catalog_group::{LogCount, LogNumber, Protocol};
use nuthatch_quorum::types::{BootCount, Incarnation, NodeId};
use std::io;
use std::time::Duration;

/// Bytes of a hello.
pub const HELLO_BYTES: usize = 56;

const MAGIC: [u8; 8] = *b"NUTHNODE";

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Lane {
    /// Beats and questions of all logs, which must not wait.
    Beats = 0,
    /// Everything else of one log.
    Log = 1,
    /// Files that entries have made which are trimmed: whoever connects asks for them.
    Files = 2,
    // 3 was used by 0.1 to ask for the owner's address.
    /// What members of the built-in catalog say to each other; the hello names the member's disk.
    Group = 4,
    /// What the cluster was founded with: a node that looks for its cluster asks.
    Founding = 5,
    /// A node asks to be let join the cluster.
    Join = 6,
}

/// The first thing that each side says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The cluster.
    pub cluster: u128,
    /// The node that says it.
    pub node: NodeId,
    /// Its disk.
    pub incarnation: Incarnation,
    /// How often that was begun with.
    pub boots: BootCount,
    /// What the connection is for.
    pub lane: Lane,
    /// Which log it is for. What is for the node as such names the first one.
    pub log: LogNumber,
    /// What it speaks.
    pub speaks: Versions,
}

impl Hello {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut to = Writer(MAGIC.to_vec());
        to.u8(self.speaks.oldest.0);
        to.u8(self.speaks.newest.0);
        to.u8(self.lane as u8);
        to.u8(self.node.0);
        to.u128(self.cluster);
        to.u128(self.incarnation.0);
        to.u32(self.boots.0);
        to.u32(self.log.0.into());
        let sum = crc(&to.0);
        to.u32(sum);
        to.0.try_into().expect("as long as a hello")
    }

    /// Reads a hello.
    ///
    /// # Errors
    /// It is none, or damaged. What it speaks may be nothing that this node does.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        if from.take(MAGIC.len())? != MAGIC {
            return Err(malformed("it is no node of a Nuthatch cluster"));
        }
        let (oldest, newest) = (Protocol(from.u8()?), Protocol(from.u8()?));
        let (lane, node) = (from.u8()?, from.u8()?);
        let (cluster, incarnation, boots) = (from.u128()?, from.u128()?, from.u32()?);
        let log = from.u32()?;
        if from.u32()? != crc(&bytes[..HELLO_BYTES - 4]) {
            return Err(malformed("the checksum of its hello does not fit"));
        }
        let log = named_log(log)?;
        let lane = match lane {
            0 => Lane::Beats,
            1 => Lane::Log,
            2 => Lane::Files,
            4 => Lane::Group,
            5 => Lane::Founding,
            6 => Lane::Join,
            _ => return Err(malformed("its connection is for something unknown")),
        };
        if !matches!(lane, Lane::Log | Lane::Files) && log != LogNumber::FIRST {
            return Err(malformed("its connection is for no log, and it names one"));
        }
        Ok(Self {
            cluster,
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
            boots: BootCount(boots),
            lane,
            log,
            speaks: Versions { oldest, newest },
        })
    }

    /// What a node has answered.
    ///
    /// # Errors
    /// It is no hello; [`is_core_only`] if the node says that it has no JetStream.
    pub(crate) fn answered(bytes: &[u8; HELLO_BYTES]) -> io::Result<Self> {
        if CORE_ONLY.starts_with(bytes) {
            return Err(io::Error::other(CoreOnly));
        }
        Self::decode(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// True if bytes can be the beginning of a hello.
    #[must_use]
    pub fn may_begin(bytes: &[u8]) -> bool {
        let len = bytes.len().min(MAGIC.len());
        bytes[..len] == MAGIC[..len]
    }
}

/// The log that a hello names.
fn named_log(number: u32) -> Result<LogNumber, Malformed> {
    let number = u8::try_from(number).ok();
    let number = number.filter(|number| *number < LogCount::MOST.all());
    number.map(LogNumber).ok_or(malformed("it names a log that no cluster has"))
}

/// What a node is told that names a log which the cluster does not have.
#[must_use]
pub fn no_such_log(named: LogNumber, logs: usize) -> String {
    format!(
        "-ERR 'this cluster was founded with {logs} quorum logs, counted from 0, and has no log {named}: all nodes \
         belong to the same cluster and run versions that know several logs'\r\n"
    )
}

/// What clients and other servers are told on the port of a node.
pub const WRONG_PORT: &[u8] =
    b"-ERR 'this is the port by which the nodes of a Nuthatch cluster talk to each other \
(--cluster_listen): clients, leaf nodes and nats-server connect to the client port of a node'\r\n";

/// A node has no JetStream, so that no log and no catalog can be there.
#[derive(Debug, thiserror::Error)]
#[error("it has no JetStream")]
struct CoreOnly;

/// True if a connection failed because the node there has no JetStream.
pub(crate) fn is_core_only(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<CoreOnly>())
}

/// Before a node is tried again which has no JetStream: it is listed among the routes, and may get it when it starts anew.
const CORE_RETRY: Duration = Duration::from_secs(2);

/// The pause after a connection that failed with this error, which is otherwise `retry`.
pub(crate) fn pause_after(error: &io::Error, retry: Duration) -> Duration {
    if is_core_only(error) { CORE_RETRY } else { retry }
}

/// What a node that keeps logs is told by one without JetStream, which connects to it by itself.
pub const CORE_ONLY: &[u8] =
    b"-ERR 'this node of a Nuthatch cluster has no JetStream: it keeps no logs and founds no cluster'\r\n";

/// What a node without the cluster's key is told by one that has it.
pub const KEY_WANTED: &[u8] = b"-ERR 'this node of a Nuthatch cluster has a cluster key (--cluster_key): give the other nodes the same'\r\n";

/// What a node with a key is told by one that has none.
pub const NO_KEY: &[u8] = b"-ERR 'this node of a Nuthatch cluster has no cluster key (--cluster_key): give all nodes the same'\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            cluster: 7 << 100,
            node: NodeId(3),
            incarnation: Incarnation(9 << 90),
            boots: BootCount(12),
            lane: Lane::Log,
            log: LogNumber(2),
            speaks: Versions::default(),
        }
    }

    #[test]
    fn a_hello_comes_back() {
        assert_eq!(Hello::decode(&hello().encode()), Ok(hello()));
        let first = Hello { log: LogNumber::FIRST, ..hello() };
        assert_eq!(Hello::decode(&first.encode()), Ok(first));
    }

    #[test]
    fn a_connection_that_is_for_no_log_names_none() {
        for lane in [Lane::Beats, Lane::Group, Lane::Founding, Lane::Join] {
            let first = Hello { lane, log: LogNumber::FIRST, ..hello() };
            assert_eq!(Hello::decode(&first.encode()), Ok(first));
            assert!(Hello::decode(&Hello { lane, ..hello() }.encode()).is_err(), "{lane:?}");
        }
    }

    #[test]
    fn a_hello_says_what_its_node_speaks_where_every_version_has_it() {
        let speaks = Versions { oldest: Protocol(7), newest: Protocol(9) };
        let later = Hello { speaks, ..hello() };
        let bytes = later.encode();
        assert_eq!((bytes[8], bytes[9], Hello::decode(&bytes)), (7, 9, Ok(later)));
    }

    #[test]
    fn a_log_that_no_cluster_has_is_refused() {
        for log in [16, 255, 256] {
            let mut bytes = hello().encode();
            bytes[48..52].copy_from_slice(&u32::to_le_bytes(log));
            let sum = crc(&bytes[..HELLO_BYTES - 4]);
            bytes[HELLO_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
            assert!(Hello::decode(&bytes).is_err(), "{log}");
        }
    }

    #[test]
    fn each_flipped_bit_is_noticed() {
        let good = hello().encode();
        for bit in 0..HELLO_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Hello::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn text_of_others_is_no_hello() {
        for text in ["INFO {\"server_id\"", "CONNECT {}\r\n", "PING\r\n", "GET / HTTP/1.1"] {
            assert!(!Hello::may_begin(text.as_bytes()), "{text}");
        }
        assert!(Hello::may_begin(b"NUTH") && Hello::may_begin(b""));
    }
}
