//! Where a call is handled in a cluster, of which each node serves JetStream for the logs that it has.
//!
//! A call that names a stream goes to the node that serves it. New streams, and what may take other subjects, are
//! decided about at one node, the *leader*: the one that serves the first quorum log. It knows the streams of all nodes
//! ([`nuthatch_server::served`]), so names and subjects are each one's in the whole cluster. A call makes one step from
//! the node of the client, and one more from the leader.

use crate::core_port::CorePort;
use crate::outcome::{Answer, LOG_CLOSED_MEANWHILE, LOG_HAS_LEFT};
use crate::request::Call;
use crate::stream_table::StreamTable;
use nuthatch_protocol::jserror::JsError;
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
    /// Nowhere at this moment, as far as is known: nobody decides about streams, or what it is about has gone from here.
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

/// The stream that a call is about, which there is.
pub(super) fn stream_of<'a>(call: &Call<'a>) -> Option<&'a str> {
    match (subject_of(call), *call) {
        (Subject::Stream(name), _) | (_, Call::StreamUpdate(name)) => Some(name),
        _ => None,
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

    /// True if the stream that a call is about is one of this node's.
    pub(super) fn is_own(&self, account: AccountId, call: &Call<'_>) -> bool {
        stream_of(call).is_some_and(|name| self.streams.has(account, name))
    }

    /// True if the log of a call left this node before the call did anything there, where `was_own` was so before: what was
    /// answered tells of this node, and another one may have the stream. What only reads has done nothing wherever it ended.
    pub(super) fn has_left(
        &self,
        account: AccountId,
        (call, was_own): (&Call<'_>, bool),
        answer: &Answer,
    ) -> bool {
        let Err(error) = answer else { return false };
        let absent = [JsError::STREAM_NOT_FOUND.err_code, JsError::CONSUMER_NOT_FOUND.err_code];
        let is_absent = absent.contains(&error.err_code);
        let has_left = *error == LOG_HAS_LEFT
            || (*error == LOG_CLOSED_MEANWHILE && call.only_reads())
            || (is_absent && was_own && !self.is_own(account, call));
        has_left && self.core.served(account).is_some()
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
            (Scope::Node, Subject::Streams)
                if stream_of(call).is_some_and(|name| !is_own(name)) =>
            {
                Place::Nowhere
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_port::Take;
    use crate::logs_port::{CallError, NotTaken};
    use crate::outcome::told;
    use crate::pending_changes::tests::{ACCOUNT, Logs};
    use crate::registry::Entry;
    use crate::service::{JetStream, Settings};
    use nuthatch_log::StreamId;
    use nuthatch_protocol::js::{StreamConfig, Time};
    use nuthatch_server::jetstream_port::LogId;
    use nuthatch_server::served::Served;
    use nuthatch_streams::Message;
    use std::any::Any;

    /// A node that serves all there is, in a cluster or alone.
    struct Node {
        in_cluster: bool,
    }

    impl CorePort for Node {
        fn server_name(&self) -> &'static str {
            "test"
        }
        fn publish(&self, _: AccountId, _: &Message<'_>) -> bool {
            false
        }
        fn subscribe(&self, _: AccountId, _: &str, _: Take) -> Option<Box<dyn Any + Send + Sync>> {
            None
        }
        fn served(&self, _: AccountId) -> Option<Arc<Served>> {
            self.in_cluster.then(Arc::default)
        }
    }

    fn node(in_cluster: bool) -> JetStream {
        let service = JetStream::new(
            Arc::new(Node { in_cluster }),
            Arc::new(Logs::default()),
            Settings::default(),
        );
        let config = StreamConfig { name: "S".to_owned(), ..StreamConfig::default() };
        let (id, engine, config) = (StreamId(1), LogId(1), Arc::new(config));
        let entry = Entry { id, engine, account: ACCOUNT, config, created: Time(1) };
        service.streams.change(|registry| registry.insert(entry));
        service
    }

    #[test]
    fn a_call_whose_log_leaves_is_not_told_that_there_is_no_stream() {
        let absent: Answer = Err(JsError::STREAM_NOT_FOUND);
        let service = node(true);
        let places = &service.places;
        let calls = [Call::StreamInfo("S"), Call::StreamUpdate("S"), Call::ConsumerList("S")];
        for call in &calls {
            assert!(places.is_own(ACCOUNT, call));
            assert!(!places.has_left(ACCOUNT, (call, true), &absent), "it is here: {call:?}");
        }
        service.streams.change(|registry| registry.take(ACCOUNT, "S"));
        for call in &calls {
            assert!(places.has_left(ACCOUNT, (call, true), &absent), "{call:?}");
            // It was not here before either, so that it was looked for everywhere.
            assert!(!places.has_left(ACCOUNT, (call, false), &absent), "{call:?}");
            assert_eq!(places.of(ACCOUNT, call, &Scope::Node), Place::Nowhere, "{call:?}");
        }
    }

    #[test]
    fn a_call_that_no_log_took_goes_on_elsewhere_and_one_of_an_unknown_fate_does_not() {
        let untaken = told(Err(CallError::NotTaken(NotTaken::Closed))).map(|_| vec![]);
        let unknown = told(Err(CallError::Closed)).map(|_| vec![]);
        let call = Call::ConsumerDelete("S", "c");
        let left = |in_cluster: bool, answer: &Answer| {
            node(in_cluster).places.has_left(ACCOUNT, (&call, true), answer)
        };
        assert!(left(true, &untaken) && !left(true, &unknown));
        let reads =
            |answer| node(true).places.has_left(ACCOUNT, (&Call::AccountInfo, false), answer);
        assert!(reads(&unknown), "what only reads is asked again, wherever it ended");
        assert!(!left(false, &untaken), "there is no other node");
    }
}
