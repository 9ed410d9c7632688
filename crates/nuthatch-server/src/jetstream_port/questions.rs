//! What nodes of a cluster ask each other.

use super::Requester;
use crate::served::Scope;
use bytes::Bytes;

/// A call of the API that another node of the cluster hands on.
pub struct NodeQuestion {
    /// Whose it is; the connection is that of the node.
    pub from: Requester,
    /// How it is to be handled.
    pub scope: Scope,
    /// What follows `$JS.API.`.
    pub call: String,
    /// Header block or empty.
    pub headers: Bytes,
    /// Request body.
    pub body: Bytes,
    /// Takes the answer; `None`: there is none.
    pub answer: Box<dyn FnOnce(Option<Vec<u8>>) + Send>,
}
