//! How two nodes begin a connection, and what others that connect to a node's port are told.

use crate::coding::{Malformed, Reader, Writer, crc, malformed};
use crate::packet::PROTOCOL;
use nuthatch_quorum::types::{BootCount, Incarnation, NodeId};

/// Bytes of a hello.
pub const HELLO_BYTES: usize = 56;

const MAGIC: [u8; 8] = *b"NUTHNODE";

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Lane {
    /// Beats and questions, which must not wait.
    Beats = 0,
    /// Everything else.
    Log = 1,
    /// Files that entries have made which are trimmed: whoever connects asks for them.
    Files = 2,
    // 3 was used by 0.1 to ask for the owner's address.
    /// What members of the built-in catalog say to each other; the hello names the member's disk.
    Group = 4,
    /// What the cluster was founded with: a node that looks for its cluster asks.
    Founding = 5,
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
}

impl Hello {
    /// Its bytes, with the range of protocols that this program speaks.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut to = Writer(MAGIC.to_vec());
        to.u8(PROTOCOL);
        to.u8(PROTOCOL);
        to.u8(self.lane as u8);
        to.u8(self.node.0);
        to.u128(self.cluster);
        to.u128(self.incarnation.0);
        to.u32(self.boots.0);
        to.u32(0);
        let sum = crc(&to.0);
        to.u32(sum);
        to.0.try_into().expect("as long as a hello")
    }

    /// Reads a hello.
    ///
    /// # Errors
    /// It is none, damaged, or of a node that speaks no protocol of this one's.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        if from.take(MAGIC.len())? != MAGIC {
            return Err(malformed("it is no node of a Nuthatch cluster"));
        }
        let (low, high) = (from.u8()?, from.u8()?);
        let (lane, node) = (from.u8()?, from.u8()?);
        let (cluster, incarnation, boots) = (from.u128()?, from.u128()?, from.u32()?);
        from.u32()?;
        if from.u32()? != crc(&bytes[..HELLO_BYTES - 4]) {
            return Err(malformed("the checksum of its hello does not fit"));
        }
        if !(low..=high).contains(&PROTOCOL) {
            return Err(malformed("it speaks no protocol that this version speaks"));
        }
        let lane = match lane {
            0 => Lane::Beats,
            1 => Lane::Log,
            2 => Lane::Files,
            4 => Lane::Group,
            5 => Lane::Founding,
            _ => return Err(malformed("its connection is for something unknown")),
        };
        Ok(Self {
            cluster,
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
            boots: BootCount(boots),
            lane,
        })
    }

    /// True if bytes can be the beginning of a hello.
    #[must_use]
    pub fn may_begin(bytes: &[u8]) -> bool {
        let len = bytes.len().min(MAGIC.len());
        bytes[..len] == MAGIC[..len]
    }
}

/// What clients and other servers are told on the port of a node.
pub const WRONG_PORT: &[u8] =
    b"-ERR 'this is the port by which the nodes of a Nuthatch cluster talk to each other \
(--cluster_listen): clients, leaf nodes and nats-server connect to the client port of a node'\r\n";

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
        }
    }

    #[test]
    fn a_hello_comes_back() {
        assert_eq!(Hello::decode(&hello().encode()), Ok(hello()));
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
