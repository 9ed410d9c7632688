//! What a node says that asks to join a cluster, and what it is answered.

use crate::coding::{Malformed, Reader, Writer, malformed};
use nuthatch_catalog_group::roster::is_name;
use nuthatch_catalog_group::{Change, MemberId, Roster};
use std::net::{IpAddr, SocketAddr};

/// A node that wants to join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinRequest {
    /// Its name.
    pub name: String,
    /// Its disk as a member of the catalog's group.
    pub member: MemberId,
    /// Where it listens.
    pub listen: SocketAddr,
}

/// What it is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JoinAnswer {
    /// It belongs to the cluster now, whose nodes these are.
    Joined(Roster),
    /// It cannot be done now: why.
    Later(String),
    /// It will not be done: why.
    Refused(String),
}

impl JoinRequest {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.bytes(self.name.as_bytes());
        to.u64(self.member.0);
        to.bytes(self.listen.to_string().as_bytes());
        to.0
    }

    /// Reads all of a document.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let (name, member) = (from.string()?, MemberId(from.u64()?));
        let listen = from.string()?.parse().map_err(|_| malformed("an address is none"))?;
        from.end()?;
        match is_name(&name) && member != MemberId(0) {
            true => Ok(Self { name, member, listen }),
            false => Err(malformed("a node's name or disk is none")),
        }
    }

    /// The change that it asks for. A node that listens on all addresses is where it has connected from.
    pub fn change(&self, from: IpAddr) -> Change {
        let mut address = self.listen;
        if address.ip().is_unspecified() {
            address.set_ip(from.to_canonical());
        }
        let (name, member) = (self.name.clone(), self.member);
        Change::Join { name, member, address: Some(address) }
    }
}

impl JoinAnswer {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Self::Joined(roster) => {
                to.u8(1);
                roster.put(&mut to);
            }
            Self::Later(why) => {
                to.u8(2);
                to.bytes(why.as_bytes());
            }
            Self::Refused(why) => {
                to.u8(3);
                to.bytes(why.as_bytes());
            }
        }
        to.0
    }

    /// Reads all of a document.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let answer = match from.u8()? {
            1 => Self::Joined(Roster::read(&mut from)?),
            2 => Self::Later(from.string()?),
            3 => Self::Refused(from.string()?),
            _ => return Err(malformed("an answer of another kind")),
        };
        from.end()?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_have_one_form() {
        let listen = "0.0.0.0:6224".parse().expect("an address");
        let request = JoinRequest { name: "n4".to_owned(), member: MemberId(4), listen };
        assert_eq!(JoinRequest::decode(&request.encode()), Ok(request.clone()));
        let address = Some("10.0.0.4:6224".parse().expect("an address"));
        let (name, member) = ("n4".to_owned(), MemberId(4));
        let change = Change::Join { name, member, address };
        assert_eq!(request.change("10.0.0.4".parse().expect("an address")), change);
        let mut roster = Roster::default();
        roster.make(&change).expect("joins");
        roster.nodes.values_mut().for_each(|one| one.keeps = true);
        let answers = [
            JoinAnswer::Joined(roster),
            JoinAnswer::Later("a".to_owned()),
            JoinAnswer::Refused("b".to_owned()),
        ];
        for answer in answers {
            assert_eq!(JoinAnswer::decode(&answer.encode()), Ok(answer));
        }
        assert!(JoinRequest::decode(&[1, 2]).is_err() && JoinAnswer::decode(&[9]).is_err());
    }
}
