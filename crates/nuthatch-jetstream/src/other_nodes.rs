//! The other nodes of the cluster, as calls ask them: what they serve, what they answer, what is done there.

use crate::core_port::CorePort;
use crate::log_names::LogPlace;
use crate::logs_port::LogsPort;
use crate::node_questions::{NODE_LIST, NODE_LOAD, NODE_USAGE, NodeLoad};
use crate::outcome::{Answer, LOG_HAS_LEFT, described};
use crate::pending_changes::{Changing, ELSEWHERE, claim};
use crate::registry::is_quorum_log;
use nuthatch_protocol::js::{StorageType, StreamConfig, StreamInfo};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::account_id::SYSTEM_ACCOUNT_ID;
use nuthatch_server::logs::QUORUM_MEMORY_LOG;
use nuthatch_server::served::{Leader, NodeState, Offline, Scope, Served, ServedStream};
use nuthatch_server::shares::Share;
use nuthatch_streams::AccountId;
use nuthatch_streams::op::Usage;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

/// How long a call waits until the leader knows the streams of all nodes.
const WHOLE_WITHIN: Duration = Duration::from_secs(4);

/// How long other nodes' parts of a list are waited for.
const GATHERED_WITHIN: Duration = Duration::from_secs(4);

/// How long it is waited for whether a node has made a stream whose connection ended meanwhile.
const FOUND_OUT_WITHIN: Duration = Duration::from_secs(10);

/// A node that does not answer for so long counts as lost where another one has the log.
const MOVED_FOR: Duration = Duration::from_secs(1);

/// How long a call that no node has taken is handed on again: a planned handover and the tables of it take less.
const TAKEN_WITHIN: Duration = Duration::from_secs(4);
/// The same of one that has waited for its turn so long: lists of an account, one after another, must not each take that.
const TAKEN_LEAST: Duration = Duration::from_millis(250);
/// The same of an update, during which other changes of the account's streams wait.
const UPDATED_WITHIN: Duration = Duration::from_secs(1);
/// The first pause before it is handed on again, which doubles up to the last one.
const TAKEN_FIRST: Duration = Duration::from_millis(5);
const TAKEN_LAST: Duration = Duration::from_millis(100);

/// How the error begins that is for what cannot be decided about.
const NOT_WHOLE: &str = "not all streams of the cluster are known";

/// True if a call ended, before it did anything, because not all streams of the cluster were known any more.
pub(super) fn is_not_whole(error: &JsError) -> bool {
    error.err_code == JsError::CLUSTER_NOT_AVAIL.err_code
        && error.description.starts_with(NOT_WHOLE)
}

/// What came of a call that was handed on.
pub(super) enum HandedOn {
    Answered(Vec<u8>),
    /// Nothing was done: the node is not connected, or what the call is about has gone from it.
    NotTaken,
    /// The link ended first: whether it was done is not known.
    Lost,
}

/// What came of a new stream at another node.
pub(super) enum Made {
    Answered(Answer),
    /// That node was lost, and the log came to this one, which decides about streams: whether the stream is in it is to be
    /// seen here, with the right to change it.
    CameHere(Changing),
}

/// Who has a log next.
enum NextWith {
    /// This node.
    Here,
    /// The node of this name.
    Node(String),
}

/// A call that is handed on until a node takes it.
pub(super) struct Tries {
    late: Instant,
    pause: Duration,
}

impl Tries {
    /// Of a call that arrived then.
    pub(super) fn since(arrived: std::time::Instant) -> Self {
        let waited = arrived.elapsed();
        Self::within(TAKEN_WITHIN.saturating_sub(waited).max(TAKEN_LEAST))
    }

    fn within(limit: Duration) -> Self {
        Self { late: Instant::now() + limit, pause: TAKEN_FIRST }
    }

    /// The last attempt waited for a node that did not answer: what comes next has its time still.
    pub(super) fn renew(&mut self) {
        (self.late, self.pause) = (Instant::now() + TAKEN_WITHIN, TAKEN_FIRST);
    }

    /// Waits before the next one; `false`: there is none.
    pub(super) async fn again(&mut self) -> bool {
        let next = Instant::now() + self.pause;
        if next > self.late {
            return false;
        }
        sleep_until(next).await;
        self.pause = (self.pause * 2).min(TAKEN_LAST);
        true
    }
}

/// What the streams of all nodes are to be known for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// A change: no name and no subject may be missed.
    Change,
    /// A list: of the log in memory each node keeps what streams it has, so that one without any of the account lacks
    /// nothing where nobody serves it.
    List,
}

/// What an account uses at one node.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct UsageAt {
    /// In logs, and in memory: bytes, streams, consumers.
    file: [u64; 3],
    memory: [u64; 3],
}

/// The answer to [`crate::node_questions::NodeAsks::Usage`].
pub(super) fn usage_answer([file, memory]: [Usage; 2]) -> Option<Vec<u8>> {
    let counts = |usage: Usage| [usage.bytes, usage.streams, usage.consumers];
    serde_json::to_vec(&UsageAt { file: counts(file), memory: counts(memory) }).ok()
}

/// The other nodes. Where there are none they serve nothing and are not asked.
pub(super) struct OtherNodes {
    core: Arc<dyn CorePort>,
    /// Those of this node.
    logs: Arc<dyn LogsPort>,
}

impl OtherNodes {
    pub(super) fn new(core: Arc<dyn CorePort>, logs: Arc<dyn LogsPort>) -> Self {
        Self { core, logs }
    }

    /// The node that serves the account's stream of this name, and what it told of it.
    pub(super) fn find(
        &self,
        account: AccountId,
        name: &str,
    ) -> Option<(String, Arc<ServedStream>)> {
        self.core.served(account)?.find(name)
    }

    /// Why the account's stream of this name is offline; `None`: it is not, or there is none.
    pub(super) fn offline(&self, account: AccountId, name: &str) -> Option<JsError> {
        let Offline { node, log, is_connected } = self.core.served(account)?.offline(name)?;
        // This node itself may be back on another disk.
        let is_connected = is_connected || node == self.core.server_name();
        let gone = format!("if that is gone for good: nuthatch cluster forget-log {node}");
        let why = match is_connected {
            false => format!("it is only in log {log:?} of node {node}, which is away; {gone}"),
            true => format!(
                "it was in log {log:?} of node {node}, which is there without that log; {gone}"
            ),
        };
        Some(JsError::STREAM_OFFLINE_REASON.with("err", &why))
    }

    /// How many streams of the account they serve.
    pub(super) fn count(&self, account: AccountId) -> usize {
        self.core.served(account).map_or(0, |served| served.count())
    }

    /// Hands a call on to a node, about what is in `log` if that is known: a node that does not answer although another one
    /// has that log by now counts as lost. It may hang, and its connection tells that seconds later.
    pub(super) async fn hand_on(
        &self,
        account: AccountId,
        (node, scope, log): (&str, &Scope, Option<&str>),
        call: (&str, &[u8], &[u8]),
    ) -> HandedOn {
        let Some(served) = self.core.served(account) else { return HandedOn::NotTaken };
        let Some(answer) = served.ask(node, scope, call) else { return HandedOn::NotTaken };
        tokio::select! {
            answered = answer => match answered {
                Ok(Some(answer)) => HandedOn::Answered(answer.to_vec()),
                Ok(None) => HandedOn::NotTaken,
                Err(_) => HandedOn::Lost,
            },
            () = self.has_moved(&served, node, log) => HandedOn::Lost,
        }
    }

    /// Waits until another node has a quorum log and its former owner says nothing: in a planned handover that still answers
    /// what it was asked before.
    async fn has_moved(&self, served: &Served, node: &str, log: Option<&str>) {
        // Logs of another kind are on each node one.
        let Some(log) = log.filter(|log| is_quorum_log(log)) else {
            return std::future::pending().await;
        };
        let mut changes = served.changes();
        loop {
            if self.is_elsewhere(served, node, log) {
                if !served.is_alive(node, MOVED_FOR).await && self.is_elsewhere(served, node, log) {
                    return;
                }
                sleep(MOVED_FOR).await;
            } else if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// True if this node, or another one, has a quorum log.
    fn is_elsewhere(&self, served: &Served, node: &str, log: &str) -> bool {
        self.has_here(log) || served.other_with(node, log).is_some()
    }

    fn has_here(&self, log: &str) -> bool {
        self.logs.whole().iter().any(|own| own == log)
    }

    /// The log of a node's stream, as that node told.
    pub(super) fn log_at(&self, account: AccountId, node: &str, name: &str) -> Option<String> {
        let (at, stream) = self.core.served(account)?.find(name)?;
        (at == node).then(|| stream.log.clone())
    }

    /// Waits until this node knows the streams of all nodes, as far as that is needed.
    ///
    /// # Errors
    /// That takes too long.
    pub(super) async fn until_whole(
        &self,
        account: AccountId,
        purpose: Purpose,
    ) -> Result<(), JsError> {
        let Some(served) = self.core.served(account) else { return Ok(()) };
        let mut changes = served.changes();
        let late = Instant::now() + WHOLE_WITHIN;
        while let Err(error) = self.check(account, purpose) {
            let changed = timeout_at(late, changes.changed()).await;
            if !matches!(changed, Ok(Ok(()))) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// How often the tables of other nodes have changed so far.
    pub(super) fn version(&self, account: AccountId) -> u64 {
        self.core.served(account).map_or(0, |served| *served.changes().borrow())
    }

    /// Whether the leader knows the streams of all nodes.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn check_whole(&self, account: AccountId) -> Result<(), JsError> {
        self.check(account, Purpose::Change)
    }

    fn check(&self, account: AccountId, purpose: Purpose) -> Result<(), JsError> {
        let needs_memory = purpose == Purpose::Change || self.core.has_memory_streams(account);
        let is_needed = |log: &str| needs_memory || log != QUORUM_MEMORY_LOG;
        let served = self.core.served(account);
        let lacking = served.and_then(|served| self.lacking(&served, is_needed));
        let Some(lacking) = lacking else { return Ok(()) };
        let text = format!("{NOT_WHOLE} ({lacking}): try again later");
        Err(described(JsError::CLUSTER_NOT_AVAIL, text))
    }

    /// Whose streams are not known; `None`: all are.
    fn lacking(&self, served: &Served, is_needed: impl Fn(&str) -> bool) -> Option<String> {
        let nodes = served.nodes();
        if let Some((node, ..)) = nodes.iter().find(|(.., is_complete)| !is_complete) {
            return Some(format!("node {node} has not told all"));
        }
        let own = self.logs.whole();
        let is_served = |log: &String| {
            own.contains(log) || nodes.iter().any(|(_, state, _)| state.logs.contains(log))
        };
        let quorum_logs = self.core.quorum_logs();
        let mut needed = quorum_logs.into_iter().filter(|log| is_needed(log));
        let gone = needed.find(|log| !is_served(log))?;
        Some(format!("no node serves log {gone}"))
    }

    /// Infos of streams by name, of which the names for each node are given; some may not come.
    pub(super) async fn infos(
        &self,
        account: AccountId,
        wanted: BTreeMap<String, Vec<&str>>,
        share: &mut Share,
    ) -> Result<BTreeMap<String, StreamInfo>, JsError> {
        let bodies = wanted
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
    pub(super) async fn usage(&self, account: AccountId) -> [Usage; 2] {
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

    /// Bytes that the account's streams of this storage reserve at other nodes, but for the stream of the name `except`.
    pub(super) fn reserved(&self, account: AccountId, storage: StorageType, except: &str) -> u64 {
        let Some(served) = self.core.served(account) else { return 0 };
        served.reserved(storage == StorageType::Memory, except)
    }

    /// How much clients ask of the quorum logs of each other node, by its name. One of an earlier version does not say it.
    pub(super) async fn loads(&self) -> BTreeMap<String, u64> {
        let account = SYSTEM_ACCOUNT_ID;
        let Some(served) = self.core.served(account) else { return BTreeMap::new() };
        let nodes = served.nodes().into_iter().map(|(node, ..)| (node, Vec::new())).collect();
        let answers = self.answers(account, NODE_LOAD, nodes).await.into_iter();
        let told = answers.filter_map(|(node, answer)| {
            Some((node, serde_json::from_slice::<NodeLoad>(&answer?).ok()?.rate))
        });
        told.collect()
    }

    /// Asks all nodes to do something, and waits for them; `false`: not all have answered.
    pub(super) async fn ask_all(&self, account: AccountId, call: &str) -> bool {
        let Some(served) = self.core.served(account) else { return true };
        let nodes: Vec<_> =
            served.nodes().into_iter().map(|(node, ..)| (node, Vec::new())).collect();
        let asked = nodes.len();
        self.gather(account, call, nodes).await.len() == asked
    }

    /// Asks the node that has a log, if another one has it ([`crate::node_questions::NodeAsks`]); `None`: nobody answers
    /// within this time.
    pub(super) async fn ask_owner(
        &self,
        account: AccountId,
        place: &LogPlace,
        (question, body): (&str, &[u8]),
        within: Duration,
    ) -> Option<Vec<u8>> {
        let served = self.core.served(account)?;
        let node = match place {
            LogPlace::Plain(_) => return None,
            LogPlace::At { node, .. } => node.clone(),
            LogPlace::Quorum(log) => {
                let owns = |(_, state, _): &(String, NodeState, bool)| state.logs.contains(log);
                served.nodes().into_iter().find(owns)?.0
            }
        };
        let answer = served.ask(&node, &Scope::Node, (question, b"", body))?;
        let answer = timeout(within, answer).await.ok()?.ok()?;
        answer.map(|answer| answer.to_vec())
    }

    /// Asks nodes and returns what they answer in time.
    async fn gather(
        &self,
        account: AccountId,
        question: &str,
        nodes: Vec<(String, Vec<u8>)>,
    ) -> Vec<Vec<u8>> {
        let mut answers = Vec::new();
        for (node, answer) in self.answers(account, question, nodes).await {
            match answer {
                Some(answer) => answers.push(answer),
                None => self
                    .core
                    .say(&format!("node {node} does not answer {question}: its part is missing")),
            }
        }
        answers
    }

    /// Asks nodes and returns what each answers in time.
    async fn answers(
        &self,
        account: AccountId,
        question: &str,
        nodes: Vec<(String, Vec<u8>)>,
    ) -> Vec<(String, Option<Vec<u8>>)> {
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
            let answer = timeout_at(late, answered).await.ok().flatten();
            answers.push((node, answer.map(|answer| answer.to_vec())));
        }
        answers
    }

    /// Creates a stream, which was checked, in a log of another node. Its name and subjects are taken until that node's
    /// table has it.
    pub(super) async fn create_at(
        &self,
        account: AccountId,
        changing: Changing,
        (node, log): (&str, String),
        (config, body): (&StreamConfig, &[u8]),
    ) -> Made {
        let call = format!("STREAM.CREATE.{}", config.name);
        let scope = Scope::Log(log.clone());
        let log = Some(log.as_str());
        let work = async {
            let first = self.hand_on(account, (node, &scope, log), (&call, b"", body)).await;
            if matches!(first, HandedOn::Answered(_)) {
                return (first, false);
            }
            // A stream that was made then is found as it is.
            match self.next_with(account, node, log).await {
                None => (first, false),
                Some(NextWith::Here) => (first, true),
                Some(NextWith::Node(next)) => {
                    match self.hand_on(account, (&next, &scope, log), (&call, b"", body)).await {
                        HandedOn::NotTaken => (first, false),
                        second => (second, false),
                    }
                }
            }
        };
        let claim = claim(ELSEWHERE, config.clone());
        let ((answer, came_here), changing) = changing.settle(claim, work).await;
        let leader = || self.core.served(account).map(|served| served.leader());
        match came_here && leader() == Some(Leader::Here) {
            true => Made::CameHere(changing),
            false => Made::Answered(answer.or_unknown(node)),
        }
    }

    /// Hands an update of a stream of another node on, whose subjects are known to be free.
    pub(super) async fn update_at(
        &self,
        account: AccountId,
        changing: Changing,
        node: &str,
        (config, body): (StreamConfig, &[u8]),
    ) -> Answer {
        let call = format!("STREAM.UPDATE.{}", config.name);
        let name = config.name.clone();
        let work = async {
            let (mut node, mut tries) = (node.to_owned(), Tries::within(UPDATED_WITHIN));
            loop {
                let log = self.log_at(account, &node, &name);
                let to = (&*node, &Scope::Node, log.as_deref());
                let answer = self.hand_on(account, to, (&call, b"", body)).await;
                if !matches!(answer, HandedOn::NotTaken) || !tries.again().await {
                    return (answer, node);
                }
                // Its log has gone to another node, or comes to this one, to which the client may send it again.
                match self.find(account, &name) {
                    Some((found, _)) => node = found,
                    None => return (answer, node),
                }
            }
        };
        let ((answer, node), _changing) = changing.settle(claim(ELSEWHERE, config), work).await;
        answer.or_unknown(&node)
    }

    /// Waits until a log has another owner than this node, or that is connected again and has told of all its streams: who can
    /// be asked; `None`: that takes too long.
    async fn next_with(
        &self,
        account: AccountId,
        node: &str,
        log: Option<&str>,
    ) -> Option<NextWith> {
        let served = self.core.served(account)?;
        let (mut changes, late) = (served.changes(), Instant::now() + FOUND_OUT_WITHIN);
        let log = log.filter(|log| is_quorum_log(log));
        loop {
            if log.is_some_and(|log| self.has_here(log)) {
                return Some(NextWith::Here);
            }
            if let Some(other) = log.and_then(|log| served.other_with(node, log)) {
                return Some(NextWith::Node(other));
            }
            let is_back =
                |(name, _, is_complete): &(String, NodeState, bool)| name == node && *is_complete;
            if served.nodes().iter().any(is_back) {
                return Some(NextWith::Node(node.to_owned()));
            }
            if !matches!(timeout_at(late, changes.changed()).await, Ok(Ok(()))) {
                return None;
            }
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

impl HandedOn {
    /// # Errors
    /// There is no answer.
    pub(super) fn or_unknown(self, node: &str) -> Answer {
        match self {
            Self::Answered(answer) => Ok(answer),
            Self::NotTaken => Err(LOG_HAS_LEFT),
            Self::Lost => {
                let text = "was lost before it answered: whether it was done is not known";
                Err(described(JsError::CLUSTER_NOT_AVAIL, format!("node {node} {text}")))
            }
        }
    }
}

/// What another node said; nothing, if that makes no sense.
fn decoded<T: DeserializeOwned + Default>(body: &[u8]) -> T {
    serde_json::from_slice(body).unwrap_or_default()
}
