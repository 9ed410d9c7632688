//! What nodes of a cluster ask each other, and no client can.

use serde::{Deserialize, Serialize};

/// Infos of streams, and what an account uses.
pub(super) const NODE_LIST: &str = "NODE.LIST";
pub(super) const NODE_USAGE: &str = "NODE.USAGE";
/// About streams whose move was interrupted.
pub(super) const NODE_COPY: &str = "NODE.COPY";
pub(super) const NODE_SOURCE: &str = "NODE.SOURCE";
/// The owner of a quorum log is to hand it over.
pub(super) const NODE_HANDOVER: &str = "NODE.HANDOVER";

/// How much clients ask of the quorum logs of a node ([`NodeLoad`]).
pub(super) const NODE_LOAD: &str = "NODE.LOAD";

/// What a node says of the quorum logs that it owns.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NodeLoad {
    /// Bytes a second that clients ask of all of them.
    pub(super) rate: u64,
}

/// Asks the owner of a log how a copy in it stands.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(super) struct CopyQuestion {
    /// The log.
    pub(super) log: String,
    /// Its identity, if it is a node's own; 0: it is a quorum log.
    pub(super) identity: u64,
    /// The copy.
    pub(super) copy: u32,
    /// Name of the stream.
    pub(super) stream: String,
}

/// Asks the owner of a log whether a stream in it names a copy.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(super) struct SourceQuestion {
    /// The log.
    pub(super) log: String,
    /// Its identity, if it is a node's own; 0: it is a quorum log.
    pub(super) identity: u64,
    /// The stream.
    pub(super) source: u32,
    /// The log of the copy, as records call it.
    pub(super) copy_log: String,
    /// The copy.
    pub(super) copy: u32,
}

/// Asks the owner of a quorum log to hand it over.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(super) struct HandoverQuestion {
    /// The log.
    pub(super) log: String,
    /// The node that is to own it.
    pub(super) to: String,
}

/// A question that only nodes ask each other.
pub(super) enum NodeAsks {
    /// The infos of the streams of these names, as an array.
    Infos(Vec<String>),
    /// What the account uses there (`usage_answer` of the other nodes).
    Usage,
    /// How a copy in one of its logs stands.
    Copy(CopyQuestion),
    /// Whether a stream in one of its logs names a copy.
    Source(SourceQuestion),
    /// A quorum log is to be handed over.
    Handover(HandoverQuestion),
    /// How much clients ask of its quorum logs.
    Load,
}

impl NodeAsks {
    /// `None`: it is no such question.
    pub(super) fn read(question: &str, body: &[u8]) -> Option<Self> {
        match question {
            NODE_LIST => Some(Self::Infos(serde_json::from_slice(body).unwrap_or_default())),
            NODE_USAGE => Some(Self::Usage),
            NODE_LOAD => Some(Self::Load),
            NODE_COPY => serde_json::from_slice(body).ok().map(Self::Copy),
            NODE_HANDOVER => serde_json::from_slice(body).ok().map(Self::Handover),
            NODE_SOURCE => serde_json::from_slice(body).ok().map(Self::Source),
            _ => None,
        }
    }
}
