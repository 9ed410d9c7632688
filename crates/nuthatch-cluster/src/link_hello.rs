//! How two nodes begin a connection on which their clients' messages go, and in which account.
//!
//! Such a connection shows by its first byte what it is, on the node port. TLS, if the cluster has a key, comes behind
//! that byte; then each side says its hello: first the one that has connected. What follows is not this module's.
//!
//! A node without JetStream says more of itself than one that keeps logs, and is told more ([`Beyond`]): no catalog tells it
//! who the nodes are.

use crate::coding::{Malformed, Reader, Writer, crc, malformed};
use std::net::SocketAddr;

/// What whoever connects sends first, in the clear: it begins like no hello of another kind and like no TLS.
pub const LINK_BEGINS: u8 = b'L';

/// The oldest version of what is said on such a connection that this program speaks.
const LINK_OLDEST: u8 = 1;

/// The newest one.
const LINK_NEWEST: u8 = 3;

/// The newest one of which hellos between nodes that keep logs speak: they say nothing beyond it.
const LINK_PLAIN: u8 = 2;

/// Hellos of this version and later ones may go on with [`Beyond`].
const HAS_BEYOND: u8 = 3;

/// From this version on a node knows by the table of streams what is for them beside their own subjects.
const KNOWS_BY_TABLE: u8 = 2;

const MAGIC: [u8; 8] = *b"NUTHLINK";

/// How a hello of this program begins that says nothing beyond: the magic and its range of protocols.
#[doc(hidden)]
pub const LINK_HELLO_FRONT: &[u8; 10] = b"NUTHLINK\x01\x02";

/// The same of one that does.
#[doc(hidden)]
pub const LINK_HELLO_FRONT_BEYOND: &[u8; 10] = b"NUTHLINK\x03\x03";

/// Bytes in front of the body: magic, lowest and highest protocol, length.
const FRONT_BYTES: usize = 8 + 2 + 4;

/// Bytes behind the body.
const SUM_BYTES: usize = 4;

/// Bytes of a hello's body at most.
const BODY_MAX: usize = 16 << 10;

/// Addresses that a node names at most.
const ADDRESSES_MAX: usize = 32;

/// Bytes of a name or an address at most.
const TEXT_MAX: usize = 1024;

/// Node ports that are told at most, and names of logs.
pub const TOLD_MAX: usize = 64;

/// A node that asks who the nodes of the cluster are says that it is of this one, which none is.
pub const NO_CLUSTER: u128 = 0;

/// What becomes of the connection, as the side that was connected to says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Verdict {
    /// It goes on.
    Welcome = 0,
    /// Of two nodes the one whose name comes first connects, which is this one.
    Reversed = 1,
    /// There is no account of this name.
    NoAccount = 2,
    /// It belongs to another cluster.
    OtherCluster = 3,
    /// There are as many connections as there may be.
    Full = 4,
    /// It has the name of the one that it has connected to.
    SameName = 5,
    /// It was removed from the cluster.
    Removed = 6,
}

/// The first thing that each side says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkHello {
    /// The cluster.
    pub cluster: u128,
    /// The node that says it.
    pub node: String,
    /// Name of its server.
    pub server: String,
    /// The account whose messages go here.
    pub account: String,
    /// Where it takes clients, as they are told; a host that is no address of its own stands for where its node port is.
    pub clients: Vec<String>,
    /// It is about to end: it takes no new clients.
    pub is_leaving: bool,
    /// What becomes of the connection; without meaning from the one that has connected.
    pub verdict: Verdict,
    /// The newest version that it speaks, of those that this program knows.
    pub version: LinkVersion,
    /// What is said where one of both is a node without JetStream; programs before version 3 do not understand a hello with it.
    pub beyond: Option<Beyond>,
}

/// What a node without JetStream says of itself, and is told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Beyond {
    /// The node that says it has no JetStream: it is no node of the catalog, and connects to those that are.
    pub is_core: bool,
    /// Where it listens for other nodes, if that is not known otherwise.
    pub listens: Option<SocketAddr>,
    /// Where other nodes listen, as far as it knows; [`TOLD_MAX`] at most.
    pub nodes: Vec<SocketAddr>,
    /// The names of the cluster's quorum logs, if it knows them.
    pub logs: Vec<String>,
}

impl Beyond {
    fn encode(&self, body: &mut Writer) -> Result<(), Malformed> {
        let Self { is_core, listens, nodes, logs } = self;
        if nodes.len().max(logs.len()) > TOLD_MAX {
            return Err(malformed("a node tells of too many nodes or logs"));
        }
        body.u8(u8::from(*is_core));
        body.u8(u8::from(listens.is_some()));
        let addresses = listens.iter().chain(nodes).map(ToString::to_string);
        body.u32(nodes.len() as u32);
        for text in addresses {
            put_text(body, &text)?;
        }
        body.u32(logs.len() as u32);
        logs.iter().try_for_each(|log| put_text(body, log))
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let address = |from: &mut Reader<'_>| {
            let text = take_text(from)?;
            text.parse().map_err(|_| malformed("an address in its hello is none"))
        };
        let count = |from: &mut Reader<'_>| match from.u32()? as usize {
            count if count <= TOLD_MAX => Ok(count),
            _ => Err(malformed("it tells of too many nodes or logs")),
        };
        let (is_core, has_port, nodes) = (from.bool()?, from.bool()?, count(from)?);
        let listens = has_port.then(|| address(from)).transpose()?;
        let nodes = (0..nodes).map(|_| address(from)).collect::<Result<_, _>>()?;
        let logs = count(from)?;
        let logs = (0..logs).map(|_| take_text(from)).collect::<Result<_, _>>()?;
        Ok(Self { is_core, listens, nodes, logs })
    }
}

/// What is said on a connection for clients' messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkVersion(u8);

impl LinkVersion {
    /// The newest one.
    pub const NEWEST: Self = Self(LINK_NEWEST);

    /// What nodes that keep logs say to each other.
    pub const PLAIN: Self = Self(LINK_PLAIN);

    /// True if its nodes know by the table of streams what is for them beside their own subjects.
    #[must_use]
    pub const fn knows_by_table(self) -> bool {
        self.0 >= KNOWS_BY_TABLE
    }
}

impl LinkHello {
    /// Its bytes, with the range of protocols that this program speaks.
    ///
    /// # Errors
    /// A name or an address is longer than they may be, or there are too many.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut body = Writer(Vec::new());
        body.u128(self.cluster);
        body.u8(self.verdict as u8);
        body.u8(u8::from(self.is_leaving));
        for text in [&self.node, &self.server, &self.account] {
            put_text(&mut body, text)?;
        }
        if self.clients.len() > ADDRESSES_MAX {
            return Err(malformed("a node names too many addresses"));
        }
        body.u32(self.clients.len() as u32);
        for address in &self.clients {
            put_text(&mut body, address)?;
        }
        let mut to = Writer(LINK_HELLO_FRONT.to_vec());
        if let Some(beyond) = &self.beyond {
            beyond.encode(&mut body)?;
            to.0.copy_from_slice(LINK_HELLO_FRONT_BEYOND);
        }
        to.u32(u32::try_from(body.0.len()).map_err(|_| malformed("a hello is too long"))?);
        if body.0.len() > BODY_MAX {
            return Err(malformed("a hello is too long"));
        }
        to.0.append(&mut body.0);
        let sum = crc(&to.0);
        to.u32(sum);
        Ok(to.0)
    }

    /// Reads a hello from the front of what has come: it, and how many bytes it took; `None`: more is needed.
    ///
    /// # Errors
    /// It is none, damaged, or of a node that speaks no protocol of this one's.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let begun = bytes.len().min(MAGIC.len());
        if bytes[..begun] != MAGIC[..begun] {
            return Err(malformed("it is no node of a Nuthatch cluster"));
        }
        let Some(mut front) = bytes.get(MAGIC.len()..FRONT_BYTES).map(Reader) else {
            return Ok(None);
        };
        let (low, high, len) = (front.u8()?, front.u8()?, front.u32()? as usize);
        if len > BODY_MAX {
            return Err(malformed("its hello is too long"));
        }
        let total = FRONT_BYTES + len + SUM_BYTES;
        let Some(whole) = bytes.get(..total) else { return Ok(None) };
        let (summed, mut sum) = (&whole[..total - SUM_BYTES], Reader(&whole[total - SUM_BYTES..]));
        if sum.u32()? != crc(summed) {
            return Err(malformed("the checksum of its hello does not fit"));
        }
        let version = high.min(LINK_NEWEST);
        if version < low.max(LINK_OLDEST) {
            return Err(malformed("it speaks no protocol of links that this version speaks"));
        }
        let version = (LinkVersion(version), low >= HAS_BEYOND);
        Self::body(&summed[FRONT_BYTES..], version).map(|hello| Some((hello, total)))
    }

    fn body(bytes: &[u8], (version, has_beyond): (LinkVersion, bool)) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let cluster = from.u128()?;
        let verdict = match from.u8()? {
            0 => Verdict::Welcome,
            1 => Verdict::Reversed,
            2 => Verdict::NoAccount,
            3 => Verdict::OtherCluster,
            4 => Verdict::Full,
            5 => Verdict::SameName,
            6 => Verdict::Removed,
            _ => return Err(malformed("its hello ends in a verdict that is unknown")),
        };
        let is_leaving = from.bool()?;
        let (node, server) = (take_text(&mut from)?, take_text(&mut from)?);
        let account = take_text(&mut from)?;
        let count = from.u32()? as usize;
        if count > ADDRESSES_MAX {
            return Err(malformed("it names too many addresses"));
        }
        let clients = (0..count).map(|_| take_text(&mut from)).collect::<Result<_, _>>()?;
        let beyond = has_beyond.then(|| Beyond::decode(&mut from)).transpose()?;
        if !from.0.is_empty() {
            return Err(malformed("its hello is longer than what it says"));
        }
        Ok(Self { cluster, node, server, account, clients, is_leaving, verdict, version, beyond })
    }
}

fn put_text(to: &mut Writer, text: &str) -> Result<(), Malformed> {
    if text.len() > TEXT_MAX {
        return Err(malformed("a name is too long for a hello"));
    }
    to.u32(text.len() as u32);
    to.0.extend_from_slice(text.as_bytes());
    Ok(())
}

fn take_text(from: &mut Reader<'_>) -> Result<String, Malformed> {
    let len = from.u32()? as usize;
    if len > TEXT_MAX {
        return Err(malformed("a name in its hello is too long"));
    }
    let text = std::str::from_utf8(from.take(len)?);
    text.map(str::to_owned).map_err(|_| malformed("a name in its hello is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> LinkHello {
        LinkHello {
            cluster: 7 << 100,
            node: "n1".to_owned(),
            server: "NABC".to_owned(),
            account: "$G".to_owned(),
            clients: vec!["127.0.0.1:4222".to_owned(), "[::1]:4222".to_owned()],
            is_leaving: false,
            verdict: Verdict::Welcome,
            version: LinkVersion::PLAIN,
            beyond: None,
        }
    }

    fn of_core() -> LinkHello {
        let beyond = Beyond {
            is_core: true,
            listens: Some(([10, 0, 0, 4], 6222).into()),
            nodes: vec![([10, 0, 0, 1], 6222).into(), "[::1]:6222".parse().expect("an address")],
            logs: vec!["default".to_owned(), "memory-quorum".to_owned()],
        };
        LinkHello { version: LinkVersion::NEWEST, beyond: Some(beyond), ..hello() }
    }

    /// Its bytes as a program says it that speaks these versions.
    fn of_program(low: u8, high: u8) -> Vec<u8> {
        let mut bytes = hello().encode().expect("it fits");
        bytes.truncate(bytes.len() - SUM_BYTES);
        bytes[MAGIC.len()..MAGIC.len() + 2].copy_from_slice(&[low, high]);
        let mut to = Writer(bytes);
        let sum = crc(&to.0);
        to.u32(sum);
        to.0
    }

    #[test]
    fn the_newest_version_of_both_is_spoken() {
        let version = |low, high| {
            let read = LinkHello::decode(&of_program(low, high));
            read.map(|read| read.expect("all of it").0.version.0).ok()
        };
        assert_eq!((version(1, 1), version(1, 2), version(2, 2)), (Some(1), Some(2), Some(2)));
        assert_eq!((version(1, 9), version(2, 9)), (Some(3), Some(3)));
        assert_eq!((version(0, 0), version(4, 9), version(2, 1)), (None, None, None));
        assert_eq!(version(3, 9), None, "it is to say what is beyond");
        assert!(LinkVersion::NEWEST.knows_by_table() && !LinkVersion(1).knows_by_table());
    }

    #[test]
    fn a_hello_comes_back_however_it_is_cut() {
        for hello in [hello(), of_core()] {
            let bytes = hello.encode().expect("it fits");
            for len in 0..bytes.len() {
                assert_eq!(LinkHello::decode(&bytes[..len]), Ok(None), "{len} bytes");
            }
            let more = [&bytes[..], b"LS+ a\r\n"].concat();
            assert_eq!(LinkHello::decode(&more), Ok(Some((hello, bytes.len()))));
        }
    }

    /// What the release before said and understood is what nodes that keep logs say.
    #[test]
    fn nodes_that_keep_logs_say_nothing_beyond() {
        let bytes = hello().encode().expect("it fits");
        assert_eq!(&bytes[..LINK_HELLO_FRONT.len()], LINK_HELLO_FRONT);
        let of_core = of_core().encode().expect("it fits");
        assert_eq!(&of_core[MAGIC.len()..MAGIC.len() + 2], &[HAS_BEYOND, LINK_NEWEST]);
    }

    #[test]
    fn each_flipped_bit_is_noticed() {
        let good = of_core().encode().expect("it fits");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let read = LinkHello::decode(&bad);
            assert!(!matches!(read, Ok(Some(_))), "bit {bit}: {read:?}");
        }
    }

    #[test]
    fn what_is_too_long_is_not_said() {
        let clients = vec!["a".to_owned(); ADDRESSES_MAX + 1];
        assert!(LinkHello { clients, ..hello() }.encode().is_err());
        assert!(LinkHello { node: "a".repeat(TEXT_MAX + 1), ..hello() }.encode().is_err());
        let clients = vec!["a".repeat(TEXT_MAX); ADDRESSES_MAX];
        assert!(LinkHello { clients, ..hello() }.encode().is_err());
        let nodes = vec![([127, 0, 0, 1], 1).into(); TOLD_MAX + 1];
        let beyond = Some(Beyond { nodes, ..Beyond::default() });
        assert!(LinkHello { beyond, ..hello() }.encode().is_err());
        let beyond = Some(Beyond { logs: vec![String::new(); TOLD_MAX + 1], ..Beyond::default() });
        assert!(LinkHello { beyond, ..hello() }.encode().is_err());
    }
}
