//! Calls in a cluster, of which each node serves JetStream for the logs that it has: where a call is handled, and what
//! is gathered from all nodes.
//!
//! A call that names a stream goes to the node that serves it. New streams, and what may take other subjects, are
//! decided about at one node, the *leader*: the one that serves the first quorum log. It knows the streams of all nodes
//! ([`nuthatch_server::served`]), so names and subjects are each one's in the whole cluster. A call makes one step from
//! the node of the client, and one more from the leader.

use crate::outcome::described;
use crate::registry::Entry;
use crate::request::Call;
use crate::service::JetStream;
use crate::stream_subjects::Looks;
use crate::streams::{ASSET_BYTES, config_bytes};
use nuthatch_protocol::js::{StorageType, StreamConfig, StreamInfo};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::served::{Leader, Scope, Served, ServedStream};
use nuthatch_server::shares::Share;
use nuthatch_streams::AccountId;
use nuthatch_streams::op::Usage;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a call waits until the leader knows the streams of all nodes.
const WHOLE_WITHIN: Duration = Duration::from_secs(4);

/// How long other nodes' parts of a list are waited for.
const GATHERED_WITHIN: Duration = Duration::from_secs(4);

/// Questions between nodes that no client can ask: infos of these streams, and what an account uses.
const NODE_LIST: &str = "NODE.LIST";
const NODE_USAGE: &str = "NODE.USAGE";

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
        Call::MetaStepDown => Subject::Leader,
        Call::AccountInfo
        | Call::StreamNames
        | Call::StreamList
        | Call::AccountPurge(_)
        | Call::ClusterOnly(_) => Subject::Account,
        Call::StreamDelete(name)
        | Call::StreamInfo(name)
        | Call::StreamMove(name)
        | Call::StreamFence(name)
        | Call::StreamStepDown(name)
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

/// A stream of the account, and who serves it.
pub(super) enum Listed {
    /// This node.
    Here(Arc<Entry>),
    /// The node of this name.
    At(String, Arc<ServedStream>),
}

impl Listed {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Here(entry) => &entry.config.name,
            Self::At(_, stream) => &stream.name,
        }
    }

    /// What it adds to a list, about.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Here(entry) => config_bytes(&entry.config),
            Self::At(_, stream) => {
                ASSET_BYTES + stream.subjects.iter().map(String::len).sum::<usize>()
            }
        }
    }
}

/// What an account uses at one node.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct UsageAt {
    /// In logs, and in memory: bytes, streams, consumers.
    file: [u64; 3],
    memory: [u64; 3],
}

impl JetStream {
    /// Where a call is handled that came in this scope.
    pub(super) fn place_of(&self, account: AccountId, call: &Call<'_>, scope: &Scope) -> Place {
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

    /// Hands a call on to a node; `None`: there is no answer.
    pub(super) async fn hand_on(
        &self,
        account: AccountId,
        (node, scope): (&str, &Scope),
        call: (&str, &[u8], &[u8]),
    ) -> Option<Vec<u8>> {
        let served = self.core.served(account)?;
        let answer = served.ask(node, scope, call)?.await;
        Some(answer.ok()??.to_vec())
    }

    /// Waits until the leader knows the streams of all nodes.
    ///
    /// # Errors
    /// That takes too long.
    pub(super) async fn until_whole(&self, account: AccountId) -> Result<(), JsError> {
        let Some(served) = self.core.served(account) else { return Ok(()) };
        let mut changes = served.changes();
        let late = Instant::now() + WHOLE_WITHIN;
        while let Err(error) = self.check_whole(account) {
            let changed = timeout_at(late, changes.changed()).await;
            if !matches!(changed, Ok(Ok(()))) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether the leader knows the streams of all nodes.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn check_whole(&self, account: AccountId) -> Result<(), JsError> {
        let served = self.core.served(account);
        let Some(lacking) = served.and_then(|served| self.lacking(&served)) else { return Ok(()) };
        let text = format!("not all streams of the cluster are known ({lacking}): try again later");
        Err(described(JsError::CLUSTER_NOT_AVAIL, text))
    }

    /// Whose streams are not known; `None`: all are.
    fn lacking(&self, served: &Served) -> Option<String> {
        let nodes = served.nodes();
        if let Some((node, ..)) = nodes.iter().find(|(.., is_complete)| !is_complete) {
            return Some(format!("node {node} has not told all"));
        }
        let own = self.logs.attached();
        let is_served = |log: &String| {
            own.iter().any(|(name, _)| name == log)
                || nodes.iter().any(|(_, state, _)| state.logs.contains(log))
        };
        let quorum_logs = self.core.quorum_logs();
        let gone = quorum_logs.into_iter().find(|log| !is_served(log))?;
        Some(format!("no node serves log {gone}"))
    }

    /// The account's streams at all nodes, by name, those with a subject that overlaps with `filter` if it is given.
    pub(super) async fn all_streams_with(&self, account: AccountId, filter: &str) -> Vec<Listed> {
        let own = self.streams.about(account, filter).await;
        let mut all: Vec<Listed> = own.into_iter().map(Listed::Here).collect();
        let Some(served) = self.core.served(account) else { return all };
        // Those that cannot be had are told of as far as others know.
        let _ = self.until_whole(account).await;
        let mut looks = Looks::default();
        for (node, stream) in served.streams() {
            if looks.is_about(&stream.subjects, filter).await {
                all.push(Listed::At(node, stream));
            }
        }
        all.sort_by(|one, other| one.name().cmp(other.name()));
        all.dedup_by(|one, other| one.name() == other.name());
        all
    }

    /// Infos of streams of other nodes, by name; and the names of those that did not come.
    pub(super) async fn infos_elsewhere(
        &self,
        account: AccountId,
        wanted: &[&Listed],
        share: &mut Share,
    ) -> Result<BTreeMap<String, StreamInfo>, JsError> {
        let mut names: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for listed in wanted {
            if let Listed::At(node, stream) = listed {
                names.entry(node.clone()).or_default().push(&stream.name);
            }
        }
        let bodies = names
            .into_iter()
            .map(|(node, names)| (node, serde_json::to_vec(&names).expect("names become JSON")));
        let mut infos = BTreeMap::new();
        for answer in self.gather(account, NODE_LIST, bodies.collect()).await {
            share.grow(answer.len()).map_err(|_| JsError::STREAM_TOO_MANY_REQUESTS)?;
            let told: Vec<StreamInfo> = decoded(&answer);
            infos.extend(told.into_iter().map(|info| (info.config.name.clone(), info)));
        }
        Ok(infos)
    }

    /// What the account uses at the other nodes: in logs, and in memory.
    pub(super) async fn usage_elsewhere(&self, account: AccountId) -> [Usage; 2] {
        let Some(served) = self.core.served(account) else { return Default::default() };
        let nodes = served.nodes().into_iter().map(|(node, ..)| (node, Vec::new()));
        let mut sums = [Usage::default(); 2];
        for answer in self.gather(account, NODE_USAGE, nodes.collect()).await {
            let UsageAt { file, memory } = decoded(&answer);
            for (sum, [bytes, streams, consumers]) in sums.iter_mut().zip([file, memory]) {
                sum.add(&Usage { bytes, streams, consumers, ..Usage::default() });
            }
        }
        sums
    }

    /// Bytes that the account's streams of this storage reserve at other nodes, but for the stream of this name.
    pub(super) fn reserved_elsewhere(&self, account: AccountId, config: &StreamConfig) -> u64 {
        let Some(served) = self.core.served(account) else { return 0 };
        served.reserved(config.storage == StorageType::Memory, &config.name)
    }

    /// Asks all nodes to do something, and waits for them.
    pub(super) async fn ask_all(&self, account: AccountId, call: &str) {
        let Some(served) = self.core.served(account) else { return };
        let nodes = served.nodes().into_iter().map(|(node, ..)| (node, Vec::new()));
        self.gather(account, call, nodes.collect()).await;
    }

    /// Asks nodes and returns what they answer in time.
    async fn gather(
        &self,
        account: AccountId,
        question: &str,
        nodes: Vec<(String, Vec<u8>)>,
    ) -> Vec<Vec<u8>> {
        let Some(served) = self.core.served(account) else { return Vec::new() };
        let late = Instant::now() + GATHERED_WITHIN;
        let asked: Vec<_> = nodes
            .into_iter()
            .map(|(node, body)| {
                let answer = served.ask(&node, &Scope::Node, (question, b"", &body));
                (node, answer)
            })
            .collect();
        let mut answers = Vec::new();
        for (node, answer) in asked {
            let answered = async { answer?.await.ok()? };
            match timeout_at(late, answered).await {
                Ok(Some(answer)) => answers.push(answer.to_vec()),
                _ => self
                    .core
                    .say(&format!("node {node} does not answer {question}: its part is missing")),
            }
        }
        answers
    }

    /// Answers what only nodes ask each other; `None`: it is no such question.
    pub(super) async fn answer_node(
        &self,
        account: AccountId,
        question: &str,
        body: &[u8],
    ) -> Option<Vec<u8>> {
        match question {
            NODE_LIST => {
                let names: Vec<String> = decoded(body);
                let mut infos = Vec::new();
                for name in names {
                    let entry = self.streams.read().get(account, &name).cloned();
                    let Some(entry) = entry else { continue };
                    if let Ok(info) = self.listed_info(account, &entry).await {
                        infos.push(info);
                    }
                }
                serde_json::to_vec(&infos).ok()
            }
            NODE_USAGE => {
                let [file, memory] = self.calls.usage(Some(account)).await.ok()?;
                let counts = |usage: Usage| [usage.bytes, usage.streams, usage.consumers];
                serde_json::to_vec(&UsageAt { file: counts(file), memory: counts(memory) }).ok()
            }
            _ => None,
        }
    }

    /// After a change of streams here: waits until the other nodes know of it, so that whoever hears of the change can
    /// use it at any node.
    pub(super) async fn until_known(&self, account: AccountId) {
        if let Some(served) = self.core.served(account)
            && served.has_nodes()
        {
            self.core.tell_streams(account);
            served.until_known().await;
        }
    }
}

/// What another node said; nothing, if that makes no sense.
fn decoded<T: DeserializeOwned + Default>(body: &[u8]) -> T {
    serde_json::from_slice(body).unwrap_or_default()
}
