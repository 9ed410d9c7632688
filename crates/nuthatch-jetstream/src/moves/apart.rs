//! Moves whose two logs have come to different nodes: what this node has of a stream that may have moved away, or of a
//! copy whose source is elsewhere, is decided with the owner of the other log.
//!
//! One task for each such stream or copy does what a core says ([`deciding`], [`left_copy`]); nothing here decides about
//! a step. Nodes ask each other by [`CopyQuestion`] and [`SourceQuestion`].

use crate::core_port::CorePort;
use crate::log_calls::LogCalls;
use crate::log_names::{LogNames, LogPlace};
use crate::logs_port::LogsPort;
use crate::move_table::Moves;
use crate::node_questions::{CopyQuestion, SourceQuestion};
use crate::other_nodes::OtherNodes;
use crate::registry::is_quorum_log;
use crate::stream_table::StreamTable;
use nuthatch_log::StreamId;
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::{LogId, StreamRoute};
use nuthatch_streams::migration::deciding::{self, Decided, Decider, Pauses, Told};
use nuthatch_streams::migration::left_copy::{self, LeftCopy};
use nuthatch_streams::op::{CopyStanding, OpResult};
use nuthatch_streams::stream::StreamLocation;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Pauses between two questions to the owner of the other log.
const PAUSES: Pauses = Pauses { min: Duration::from_millis(20), max: Duration::from_secs(5) };

/// The answer to a [`CopyQuestion`].
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
enum Standing {
    Refused,
    Settled,
    Gone,
}

/// A stream in one of this node's logs.
struct Here {
    account: AccountId,
    name: String,
    route: StreamRoute,
}

/// Decides with other nodes.
pub(crate) struct Apart {
    pub(crate) core: Arc<dyn CorePort>,
    pub(crate) logs: Arc<dyn LogsPort>,
    pub(crate) names: Arc<LogNames>,
    pub(crate) streams: Arc<StreamTable>,
    pub(crate) calls: Arc<LogCalls>,
    pub(crate) nodes: Arc<OtherNodes>,
    pub(crate) table: Arc<Moves>,
}

impl Apart {
    /// Finds out whether a stream lives here that was about to go on as `copy`, and lets it go on or forgets it. It is
    /// held ([`Op::Hold`]) until then.
    pub(crate) fn decide(
        self: &Arc<Self>,
        (account, name): (AccountId, &str),
        route: StreamRoute,
        copy: &StreamLocation,
    ) {
        let here = Here { account, name: name.to_owned(), route };
        let source = self.location(route);
        let decider = Decider::new(source, copy.clone(), PAUSES);
        let apart = self.clone();
        tokio::spawn(async move { apart.run_decider(&here, decider).await });
    }

    /// Drops a copy when nobody may ask for it any more.
    pub(crate) fn clear(
        self: &Arc<Self>,
        (account, name): (AccountId, &str),
        route: StreamRoute,
        source: &StreamLocation,
    ) {
        let here = Here { account, name: name.to_owned(), route };
        let left = LeftCopy::new(route.stream, source.clone(), PAUSES);
        let apart = self.clone();
        tokio::spawn(async move { apart.run_left(&here, left).await });
    }

    fn location(&self, route: StreamRoute) -> StreamLocation {
        StreamLocation { log: self.names.place_of(route.log), stream: route.stream }
    }

    /// A stream has taken over in a log and never gets what the engine of the other log had in memory, since that log is
    /// another node's: it is served where its log is opened anew.
    pub(crate) fn reopen(&self, name: &str, log: LogId) {
        let log = self.names.name_of(log);
        if log.is_empty() {
            return;
        }
        let text =
            format!("stream {name:?} has moved to log {log}, and waits until that is opened anew");
        match is_quorum_log(&log).then(|| self.core.step_down(&log, None)).flatten() {
            Some(_) => self.core.say(&format!("{text}: the log goes to another node")),
            None => self.core.warn(&format!("{text}: start this server again")),
        }
    }

    async fn run_decider(&self, here: &Here, mut decider: Decider) {
        let mut happened = deciding::Happened::Began;
        while self.logs.is_attached(here.route.log) {
            happened = match decider.step(happened) {
                deciding::Action::Ask(copy) => {
                    let told = self.ask_copy((here.account, &here.name), &copy).await;
                    told.map_or(deciding::Happened::NotTold, deciding::Happened::Told)
                }
                deciding::Action::Run(op) => match self.run(here.route.log, op).await {
                    Some(outcome) => deciding::Happened::Outcome(outcome),
                    None => deciding::Happened::NotSent,
                },
                deciding::Action::Rest(pause) => {
                    tokio::time::sleep(pause).await;
                    deciding::Happened::Rested
                }
                deciding::Action::End(decided) => return self.decided(here, decided).await,
            };
        }
    }

    async fn run_left(&self, here: &Here, mut left: LeftCopy) {
        let mut happened = left_copy::Happened::Began;
        while self.logs.is_attached(here.route.log) {
            happened = match left.step(happened) {
                left_copy::Action::Ask(source) => {
                    let told = self.ask_source(here, &source).await;
                    told.map_or(left_copy::Happened::NotTold, left_copy::Happened::Told)
                }
                left_copy::Action::Run(op) => {
                    // What did not succeed is looked at again where the log is attached next.
                    let _ = self.run(here.route.log, op).await;
                    left_copy::Happened::Done
                }
                left_copy::Action::Rest(pause) => {
                    tokio::time::sleep(pause).await;
                    left_copy::Happened::Rested
                }
                left_copy::Action::End => return,
            };
        }
    }

    /// Runs an operation in just this log; `None`: it was not taken, or the log ended before it answered.
    async fn run(&self, log: LogId, op: Op) -> Option<OpResult> {
        self.calls.begin(log, op).await.ok()?.await.ok()
    }

    async fn decided(&self, here: &Here, decided: Decided) {
        let (name, log) = (&here.name, self.names.name_of(here.route.log));
        match decided {
            Decided::Stays => self.core.say(&format!(
                "stream {name:?} goes on in log {log}: a move to another log was interrupted before that had all of it"
            )),
            Decided::Left => {
                self.drop_route(here).await;
                self.core.say(&format!(
                    "what was left of stream {name:?} in log {log} is forgotten: it has moved to another log"
                ));
            }
            Decided::GivenUp => self.core.warn(&format!(
                "stream {name:?} waits in log {log}, which takes no writes: whether it has moved is found out when the \
                 log is opened next"
            )),
        }
    }

    /// Nothing is routed to a stream that lives elsewhere.
    async fn drop_route(&self, here: &Here) {
        let is_it = {
            let registry = self.streams.read();
            let entry = registry.get(here.account, &here.name);
            entry.is_some_and(|entry| entry.route() == here.route)
        };
        if is_it {
            self.streams.leave(here.account, &here.name).await;
        }
    }

    /// What the owner of its log says of a copy; `None`: nobody answers, or its log is a node's own and lacks it.
    pub(crate) async fn ask_copy(
        &self,
        (account, name): (AccountId, &str),
        copy: &StreamLocation,
    ) -> Option<Told> {
        let place = self.names.known(&copy.log);
        let question = |log: &str| CopyQuestion {
            log: log.to_owned(),
            copy: copy.stream.0,
            stream: name.to_owned(),
        };
        let standing = match self.here(&place) {
            Some(log) => self.standing(account, &question(&self.names.name_of(log))).await?,
            None => {
                let body = serde_json::to_vec(&question(log_of(&place))).ok()?;
                let answer = self.nodes.ask_owner_of_copy(account, &place, &body).await?;
                serde_json::from_slice(&answer).ok()?
            }
        };
        match (standing, &place) {
            (Standing::Refused, _) => Some(Told::Copy(CopyStanding::Refused)),
            (Standing::Settled, _) => Some(Told::Copy(CopyStanding::Settled)),
            (Standing::Gone, LogPlace::Quorum(_)) => Some(Told::Gone),
            (Standing::Gone, _) => {
                // Its disk may be another one than it was.
                self.core.warn(&format!(
                    "stream {name:?} was about to move to log {place}, which does not have it: is that the right disk? It \
                     is not served meanwhile"
                ));
                None
            }
        }
    }

    /// Whether a stream in another log names a copy that is here; `None`: nobody answers.
    async fn ask_source(&self, here: &Here, source: &StreamLocation) -> Option<bool> {
        let place = self.names.known(&source.log);
        let question = |log: &str| SourceQuestion {
            log: log.to_owned(),
            source: source.stream.0,
            copy_log: self.names.place_of(here.route.log),
            copy: here.route.stream.0,
        };
        match self.here(&place) {
            Some(log) => self.names_copy(here.account, &question(&self.names.name_of(log))).await,
            None => {
                let body = serde_json::to_vec(&question(log_of(&place))).ok()?;
                let answer = self.nodes.ask_owner_of_source(here.account, &place, &body).await?;
                serde_json::from_slice(&answer).ok()
            }
        }
    }

    /// What this node answers to a [`CopyQuestion`], as text; `None`: the log is not here.
    pub(crate) async fn answer_copy(
        &self,
        account: AccountId,
        question: &CopyQuestion,
    ) -> Option<Vec<u8>> {
        serde_json::to_vec(&self.standing(account, question).await?).ok()
    }

    /// What this node answers to a [`SourceQuestion`], as text; `None`: the log is not here.
    pub(crate) async fn answer_source(
        &self,
        account: AccountId,
        question: &SourceQuestion,
    ) -> Option<Vec<u8>> {
        serde_json::to_vec(&self.names_copy(account, question).await?).ok()
    }

    async fn standing(&self, account: AccountId, question: &CopyQuestion) -> Option<Standing> {
        let log = self.names.find(&question.log)?;
        let (id, name) = (StreamId(question.copy), question.stream.clone());
        let op = Op::RefuseCopy { id, account, name, log: self.names.place_of(log) };
        match self.run(log, op).await? {
            Ok(OpOutcome::Copy(CopyStanding::Refused)) => Some(Standing::Refused),
            Ok(OpOutcome::Copy(CopyStanding::Settled)) => Some(Standing::Settled),
            Err(error) if is_gone(&error) => Some(Standing::Gone),
            _ => None,
        }
    }

    async fn names_copy(&self, _account: AccountId, question: &SourceQuestion) -> Option<bool> {
        let log = self.names.find(&question.log)?;
        let copy =
            StreamLocation { log: question.copy_log.clone(), stream: StreamId(question.copy) };
        if self.table.is_going_to(&copy) {
            return Some(true);
        }
        let op = Op::GoesTo { id: StreamId(question.source) };
        match self.run(log, op).await? {
            Ok(OpOutcome::GoesTo(to)) => Some(to.as_ref() == Some(&copy)),
            Err(error) if is_gone(&error) => Some(false),
            _ => None,
        }
    }

    /// Whether the log of a copy is at this node.
    pub(crate) fn is_here(&self, copy: &StreamLocation) -> bool {
        self.here(&self.names.known(&copy.log)).is_some()
    }

    /// The attached log of this place.
    fn here(&self, place: &LogPlace) -> Option<LogId> {
        match place {
            LogPlace::Plain(log) | LogPlace::Quorum(log) => self.names.find(log),
            LogPlace::At { log, node } => {
                self.names.find(log).filter(|_| self.names.node() == Some(node.as_str()))
            }
        }
    }
}

fn log_of(place: &LogPlace) -> &str {
    match place {
        LogPlace::Plain(log) | LogPlace::Quorum(log) | LogPlace::At { log, .. } => log,
    }
}

fn is_gone(error: &JsError) -> bool {
    error.err_code == JsError::STREAM_NOT_FOUND.err_code
}
