//! What two nodes that beat to each other know of each other beyond their hellos: which protocols and which program, by which
//! keys they encrypt, and where they are. Whoever may own a log must read what another owner has written.

use crate::coding::{Malformed, Reader, Writer, malformed};
use nuthatch_catalog_group::{Protocol, Zone};
use nuthatch_log::KeyId;

/// Zones in which a node may have logs owned at most: as many as there are nodes at a time that may own one.
pub const OWNER_ZONES_MAX: usize = 8;

/// From this protocol on beats begin with what their node is.
pub(crate) const SINCE: Protocol = Protocol(5);

/// Bytes of it at most.
pub(crate) const ABOUT_MAX: u32 = 4 << 10;

/// Keys that a node may read with at most.
const KEYS_MAX: usize = 64;

/// Bytes of a program's version at most.
const PROGRAM_MAX: usize = 64;

/// The parts of it. What is none of them is left out by who does not know it.
const PROGRAM: u8 = 1;
const WRITES: u8 = 2;
const READS: u8 = 3;
const ZONE: u8 = 4;
const OWNER_ZONES: u8 = 5;

/// The protocols that a node speaks, and those of one side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    /// It speaks none that is older: its cluster has this as its active one.
    pub oldest: Protocol,
    /// It knows none that is newer.
    pub newest: Protocol,
}

impl Default for Versions {
    fn default() -> Self {
        Self { oldest: Protocol::FIRST, newest: Protocol::NEWEST }
    }
}

impl Versions {
    /// The newest protocol that both sides speak.
    #[must_use]
    pub fn agreed(self, other: Self) -> Option<Protocol> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }

    /// Why this side, and the `other` one, have no protocol in common.
    #[must_use]
    pub fn apart(self, other: Self) -> String {
        let older = match self.newest < other.oldest {
            true => {
                "this node's program is older than what the cluster was finalized for: start it with a newer one"
            }
            false => {
                "that node's program is older than what the cluster was finalized for: start it with a newer one"
            }
        };
        format!("it speaks protocols {other}, and this node {self}: {older}")
    }
}

impl std::fmt::Display for Versions {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} to {}", self.oldest, self.newest)
    }
}

/// By which keys a node encrypts what it writes, and reads what others have written. Names of keys, never keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyNames {
    /// What it writes with; [`KeyId::NONE`]: it does not encrypt.
    pub writes: KeyId,
    /// What it reads, beside what is not encrypted.
    pub reads: Vec<KeyId>,
}

impl KeyNames {
    fn has(&self, key: KeyId) -> bool {
        !key.is_some() || self.reads.contains(&key)
    }

    /// Why this node and one with `other` keys cannot both own a log; none: each reads what the other writes.
    #[must_use]
    pub fn apart(&self, other: &Self) -> Option<String> {
        let lacking = |what: &str, key: KeyId| {
            format!(
                "{what} (jetstream.key, jetstream.prev_key) is not the key {key}: all nodes of a cluster need the same keys, \
                 since each may own a log that another one has written. To bring in a new key give it to all nodes as \
                 prev_key first"
            )
        };
        if !self.has(other.writes) {
            return Some(lacking("it encrypts, and none of this node's keys", other.writes));
        }
        if !other.has(self.writes) {
            return Some(lacking("this node encrypts, and none of its keys", self.writes));
        }
        None
    }
}

/// What a node says of itself when it begins to beat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// The version of its program, for people.
    pub program: String,
    /// Its keys.
    pub keys: KeyNames,
    /// Where it is, if it says so.
    pub zone: Option<Zone>,
    /// The zones in which it has logs owned; none: it is of a program that does not say so.
    pub owner_zones: Option<Vec<Zone>>,
}

impl About {
    /// Its bytes: parts, each with a mark and its length.
    ///
    /// # Panics
    /// The program's version is longer than any, or there are more keys than a node may have.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.program.len() <= PROGRAM_MAX && self.keys.reads.len() <= KEYS_MAX, "bounded");
        let mut to = Writer::default();
        let mut part = |mark: u8, bytes: &[u8]| {
            to.u8(mark);
            to.bytes(bytes);
        };
        part(PROGRAM, self.program.as_bytes());
        part(WRITES, &self.keys.writes.0.to_le_bytes());
        let reads: Vec<u8> = self.keys.reads.iter().flat_map(|key| key.0.to_le_bytes()).collect();
        part(READS, &reads);
        if let Some(zone) = &self.zone {
            part(ZONE, zone.as_str().as_bytes());
        }
        if let Some(zones) = &self.owner_zones {
            let names: Vec<&str> = zones.iter().map(Zone::as_str).collect();
            part(OWNER_ZONES, names.join(",").as_bytes());
        }
        to.0
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (mut from, mut about) = (Reader(bytes), Self::default());
        while !from.0.is_empty() {
            let (mark, part) = (from.u8()?, from.bytes()?);
            match mark {
                PROGRAM => about.program = program(part)?,
                WRITES => {
                    let key = part.try_into().map_err(|_| malformed("a key's name is none"))?;
                    about.keys.writes = KeyId(u32::from_le_bytes(key));
                }
                READS => about.keys.reads = keys(part)?,
                ZONE => about.zone = Some(zone(part)?),
                OWNER_ZONES => about.owner_zones = Some(owner_zones(part)?),
                _ => {}
            }
        }
        Ok(about)
    }
}

fn program(part: &[u8]) -> Result<String, Malformed> {
    let text = std::str::from_utf8(part).ok();
    let is_fit = |text: &&str| text.len() <= PROGRAM_MAX && !text.chars().any(char::is_control);
    let text = text.filter(is_fit).ok_or(malformed("a program's version is none"))?;
    Ok(text.to_owned())
}

fn zone(part: &[u8]) -> Result<Zone, Malformed> {
    let zone = std::str::from_utf8(part).ok().and_then(|name| name.parse().ok());
    zone.ok_or(malformed("a zone's name is none"))
}

fn owner_zones(part: &[u8]) -> Result<Vec<Zone>, Malformed> {
    if part.is_empty() {
        return Ok(vec![]);
    }
    let zones = part.split(|byte| *byte == b',').take(OWNER_ZONES_MAX + 1).map(zone);
    let zones = zones.collect::<Result<Vec<Zone>, Malformed>>()?;
    match zones.len() <= OWNER_ZONES_MAX {
        true => Ok(zones),
        false => Err(malformed("more zones for owners than a node may name")),
    }
}

fn keys(part: &[u8]) -> Result<Vec<KeyId>, Malformed> {
    let (keys, rest) = part.as_chunks::<4>();
    match rest.is_empty() && keys.len() <= KEYS_MAX {
        true => Ok(keys.iter().map(|key| KeyId(u32::from_le_bytes(*key))).collect()),
        false => Err(malformed("the names of keys are none, or too many")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn versions(oldest: u8, newest: u8) -> Versions {
        Versions { oldest: Protocol(oldest), newest: Protocol(newest) }
    }

    #[test]
    fn two_nodes_speak_the_newest_protocol_that_both_know_and_their_clusters_allow() {
        for (one, other, agreed) in [
            (versions(4, 5), versions(4, 4), Some(4)),
            (versions(4, 5), versions(4, 5), Some(5)),
            (versions(5, 6), versions(4, 7), Some(6)),
            (versions(5, 5), versions(4, 4), None),
            (versions(6, 7), versions(4, 5), None),
        ] {
            assert_eq!(one.agreed(other), agreed.map(Protocol));
            assert_eq!(other.agreed(one), agreed.map(Protocol));
        }
        let told = versions(5, 5).apart(versions(4, 4));
        assert!(told.contains("protocols 4 to 4") && told.contains("that node's"), "{told}");
        let told = versions(4, 4).apart(versions(5, 5));
        assert!(told.contains("this node 4 to 4: this node's"), "{told}");
    }

    #[test]
    fn nodes_need_keys_to_read_what_the_others_write() {
        let keys = |writes, reads: &[u32]| KeyNames {
            writes: KeyId(writes),
            reads: reads.iter().copied().map(KeyId).collect(),
        };
        let none = keys(0, &[]);
        for (one, other) in [
            (none.clone(), none.clone()),
            (keys(7, &[7]), keys(7, &[7])),
            // Bringing in a key, and another one.
            (none.clone(), keys(0, &[7])),
            (keys(7, &[7]), keys(0, &[7])),
            (keys(7, &[7, 8]), keys(8, &[8, 7])),
        ] {
            assert_eq!((one.apart(&other), other.apart(&one)), (None, None));
        }
        for (one, other, key) in [
            (none, keys(7, &[7]), 7),
            (keys(7, &[7]), keys(8, &[8]), 8),
            (keys(7, &[7]), keys(8, &[8, 7]), 8),
        ] {
            let name = KeyId(key).to_string();
            assert!(one.apart(&other).is_some_and(|why| why.contains(&name)), "{one:?} {other:?}");
            assert!(other.apart(&one).is_some());
        }
    }

    #[test]
    fn what_a_node_says_of_itself_comes_back_and_what_a_later_one_adds_is_passed_over() {
        let keys = KeyNames { writes: KeyId(9), reads: vec![KeyId(9), KeyId(8)] };
        let zone = Some("eu-1.a".parse().expect("a zone"));
        let owner_zones = Some(["a", "b"].map(|name| name.parse().expect("a zone")).to_vec());
        let about = About { program: "0.1.0".to_owned(), keys, zone, owner_zones };
        let mut bytes = about.encode();
        assert_eq!(About::decode(&bytes), Ok(about.clone()));
        bytes.extend_from_slice(&[200, 2, 0, 0, 0, 1, 2]);
        assert_eq!(About::decode(&bytes), Ok(about));
        assert_eq!(About::decode(&[]), Ok(About::default()));
        for bad in [
            &[1][..],
            &[1, 1, 0, 0, 0, 10],
            &[2, 1, 0, 0, 0, 1],
            &[3, 1, 0, 0, 0, 1],
            &[4, 0, 0, 0, 0],
            &[4, 1, 0, 0, 0, b'/'],
            &[5, 1, 0, 0, 0, b','],
            &[
                5, 17, 0, 0, 0, b'a', b',', b'a', b',', b'a', b',', b'a', b',', b'a', b',', b'a',
                b',', b'a', b',', b'a', b',', b'a',
            ],
        ] {
            assert!(About::decode(bad).is_err(), "{bad:?}");
        }
    }

    /// What nodes say that know nothing of zones, or have none.
    #[test]
    fn without_a_zone_a_node_says_what_it_said_before_there_were_any() {
        let keys = KeyNames { writes: KeyId(9), reads: vec![KeyId(9)] };
        let about = About { program: "0.1".to_owned(), keys, zone: None, owner_zones: None };
        let mut before = vec![1, 3, 0, 0, 0, b'0', b'.', b'1'];
        before.extend([2, 4, 0, 0, 0, 9, 0, 0, 0]);
        before.extend([3, 4, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(about.encode(), before);
        assert_eq!(About::decode(&before), Ok(about.clone()));
        before.extend([4, 2, 0, 0, 0, b'r', b'1']);
        let zone = Some("r1".parse().expect("a zone"));
        assert_eq!(About::decode(&before), Ok(About { zone, ..about }));
    }
}
