//! Where a call is handled in a cluster, of which each node serves JetStream for the logs that it has.
//!
//! A call that names a stream goes to the node that serves it. New streams, and what may take other subjects, are
//! decided about at one node, the *leader*: the one that serves the first quorum log. It knows the streams of all nodes
//! ([`nuthatch_server::served`]), so names and subjects are each one's in the whole cluster. A call makes one step from
//! the node of the client, and one more from the leader.

use crate::core_port::CorePort;
use crate::request::Call;
use crate::stream_table::StreamTable;
use nuthatch_server::served::{Leader, Scope};
use nuthatch_streams::AccountId;
use std::sync::Arc;

/// Where a call is handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Here.
    Here,
    /// Here, once the streams of all nodes are known. That is waited for before anything is locked: a log that this node
    /// is about to serve needs the right to change the accounts of its streams.
    HereOnceWhole,
    /// At the node of this name.
    At(String, Scope),
    /// Nowhere: it gets no answer.
    Nowhere,
}

/// What a call is about.
enum Subject<'a> {
    /// One stream that exists.
    Stream(&'a str),
    /// Which streams there are to be.
    Streams,
    /// Who decides about that.
    Leader,
    /// All of the account.
    Account,
}

fn subject_of<'a>(call: &Call<'a>) -> Subject<'a> {
    match *call {
        Call::StreamCreate(_)
        | Call::StreamUpdate(_)
        | Call::StreamRestore(_)
        | Call::StreamImport(_)
        | Call::StreamImportMessages(_)
        | Call::StreamImportRead(_) => Subject::Streams,
        Call::MetaStepDown | Call::ServerRemove => Subject::Leader,
        Call::AccountInfo | Call::StreamNames | Call::StreamList | Call::AccountPurge(_) => {
            Subject::Account
        }
        Call::StreamDelete(name)
        | Call::StreamInfo(name)
        | Call::StreamMove(name)
        | Call::StreamFence(name)
        | Call::StreamStepDown(name)
        | Call::StreamPeerRemove(name)
        | Call::ConsumerStepDown(name, _)
        | Call::StreamPurge(name)
        | Call::StreamSnapshot(name)
        | Call::MsgGet(name)
        | Call::MsgDelete(name)
        | Call::ConsumerCreateEphemeral(name)
        | Call::ConsumerCreate { stream: name, .. }
        | Call::ConsumerCreateDurable { stream: name, .. }
        | Call::ConsumerInfo(name, _)
        | Call::ConsumerDelete(name, _)
        | Call::ConsumerPause(name, _)
        | Call::ConsumerUnpin(name, _)
        | Call::ConsumerReset(name, _)
        | Call::ConsumerNames(name)
        | Call::ConsumerList(name) => Subject::Stream(name),
    }
}

/// Finds the node that handles a call.
pub(super) struct CallPlaces {
    core: Arc<dyn CorePort>,
    streams: Arc<StreamTable>,
}

impl CallPlaces {
    pub(super) fn new(core: Arc<dyn CorePort>, streams: Arc<StreamTable>) -> Self {
        Self { core, streams }
    }

    /// Where a call is handled that came in this scope.
    pub(super) fn of(&self, account: AccountId, call: &Call<'_>, scope: &Scope) -> Place {
        let Some(served) = self.core.served(account) else { return Place::Here };
        let is_own = |name: &str| self.streams.has(account, name);
        let of_leader = |here: Place| match served.leader() {
            Leader::Here => here,
            Leader::At(node) => Place::At(node, Scope::Cluster),
            Leader::Nobody => Place::Nowhere,
        };
        match (scope, subject_of(call)) {
            (Scope::Log(_), _) => Place::Here,
            // It has gone from here since.
            (Scope::Node, Subject::Stream(name)) if !is_own(name) => Place::Nowhere,
            (Scope::Node, _) => Place::Here,
            (Scope::Cluster, Subject::Streams) => of_leader(Place::HereOnceWhole),
            (Scope::Cluster, Subject::Leader) => of_leader(Place::Here),
            (Scope::Cluster, Subject::Account) => match served.leader() {
                Leader::Nobody => Place::Nowhere,
                Leader::Here | Leader::At(_) => Place::Here,
            },
            (Scope::Cluster, Subject::Stream(name)) => match served.find(name) {
                _ if is_own(name) => Place::Here,
                Some((node, _)) => Place::At(node, Scope::Node),
                None => of_leader(Place::HereOnceWhole),
            },
        }
    }
}
