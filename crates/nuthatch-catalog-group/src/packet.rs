//! What members say to each other.

use crate::catalog_codec::{another_log, call, put_call, put_reply, reply};
use crate::coding::{Malformed, Reader, Writer, malformed};
use crate::raft_codec::{conf, message, put_conf, put_message};
use crate::roster::Change;
use crate::types::{Boot, LogNumber, MemberId};
use nuthatch_quorum::catalog::{Call, CatalogReply};
use nuthatch_quorum::types::NodeId;
use raft::eraftpb::{ConfState, Message};

/// What one member says to another.
#[derive(Clone, PartialEq, Debug)]
pub struct Envelope {
    /// The cluster.
    pub cluster: u128,
    /// Who says it.
    pub from: MemberId,
    /// How that began.
    pub boot: Boot,
    /// Who is to hear it.
    pub to: MemberId,
    /// What it is.
    pub body: Body,
}

/// What is said.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// A message of the Raft library.
    Raft(Box<Message>),
    /// The sender's boot counter is to be held.
    Begun,
    /// The receiver's boot counter is held, durably.
    Held {
        /// That counter.
        boot: Boot,
        /// How far the sender has applied the log, and who the members are there.
        at: (u64, ConfState),
    },
    /// The receiver began as what is outdated by this.
    Outdated(Boot),
    /// A call for the leader.
    Ask {
        /// The sender's number of it.
        number: u64,
        /// The log that it is of.
        log: LogNumber,
        /// The call.
        call: Call,
    },
    /// The answer to a call.
    Answer {
        /// The receiver's number of it.
        number: u64,
        /// The answer.
        reply: CatalogReply,
    },
    /// The sender is the disk of this node, which had another one.
    Join(NodeId),
    /// A change of the nodes for the leader.
    Change {
        /// The sender's number of it.
        number: u64,
        /// The change.
        change: Change,
    },
    /// What became of a change of the nodes.
    Decided {
        /// The receiver's number of it.
        number: u64,
        /// Why it is refused; none: it was made.
        refused: Option<String>,
    },
    /// The receiver was removed; who took its place, if somebody did.
    Removed(Option<String>),
}

fn put_boot(to: &mut Writer, boot: Boot) {
    to.u32(boot.count);
    to.u64(boot.nonce);
}

fn boot(from: &mut Reader<'_>) -> Result<Boot, Malformed> {
    Ok(Boot { count: from.u32()?, nonce: from.u64()? })
}

impl Body {
    fn ask(log: LogNumber, from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self::Ask { number: from.u64()?, log, call: call(from)? })
    }
}

impl Envelope {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.u128(self.cluster);
        to.u64(self.from.0);
        put_boot(&mut to, self.boot);
        to.u64(self.to.0);
        match &self.body {
            Body::Raft(message) => {
                to.u8(1);
                put_message(&mut to, message);
            }
            Body::Begun => to.u8(2),
            Body::Held { boot, at: (applied, conf) } => {
                to.u8(3);
                put_boot(&mut to, *boot);
                to.u64(*applied);
                put_conf(&mut to, conf);
            }
            Body::Outdated(by) => {
                to.u8(4);
                put_boot(&mut to, *by);
            }
            Body::Ask { number, log, call } => {
                match *log {
                    LogNumber::FIRST => to.u8(5),
                    LogNumber(other) => {
                        to.u8(8);
                        to.u8(other);
                    }
                }
                to.u64(*number);
                put_call(&mut to, call);
            }
            Body::Answer { number, reply } => {
                to.u8(6);
                to.u64(*number);
                put_reply(&mut to, reply);
            }
            Body::Join(node) => {
                to.u8(7);
                to.u8(node.0);
            }
            Body::Change { number, change } => {
                to.u8(9);
                to.u64(*number);
                to.bytes(&change.encode());
            }
            Body::Decided { number, refused } => {
                to.u8(10);
                to.u64(*number);
                to.option(refused.as_ref(), |to, why| to.bytes(why.as_bytes()));
            }
            Body::Removed(by) => {
                to.u8(11);
                to.option(by.as_ref(), |to, by| to.bytes(by.as_bytes()));
            }
        }
        to.0
    }

    /// Reads what one member says to another.
    ///
    /// # Errors
    /// It is nothing of that kind.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let cluster = from.u128()?;
        let (sender, began) = (MemberId(from.u64()?), boot(&mut from)?);
        let to = MemberId(from.u64()?);
        let body = match from.u8()? {
            1 => Body::Raft(Box::new(message(&mut from)?)),
            2 => Body::Begun,
            3 => Body::Held { boot: boot(&mut from)?, at: (from.u64()?, conf(&mut from)?) },
            4 => Body::Outdated(boot(&mut from)?),
            5 => Body::ask(LogNumber::FIRST, &mut from)?,
            6 => Body::Answer { number: from.u64()?, reply: reply(&mut from)? },
            7 => Body::Join(NodeId(from.u8()?)),
            8 => Body::ask(another_log(&mut from)?, &mut from)?,
            9 => Body::Change { number: from.u64()?, change: Change::decode(from.bytes()?)? },
            10 => Body::Decided { number: from.u64()?, refused: from.option(Reader::string)? },
            11 => Body::Removed(from.option(Reader::string)?),
            _ => return Err(malformed("a message of another kind")),
        };
        from.end()?;
        Ok(Self { cluster, from: sender, boot: began, to, body })
    }
}
