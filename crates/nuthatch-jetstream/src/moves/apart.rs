//! Moves whose two logs have come to different nodes: what this node has of a stream that may have moved away, or of a
//! copy whose source is elsewhere, is decided with the owner of the other log.
//!
//! One task for each such stream or copy does what a core says ([`deciding`], [`left_copy`]); nothing here decides about
//! a step. It ends when its log is not at this node any more; one that its log has left and come back to meanwhile goes
//! on beside the one that the log brought along, and does no harm: engines forget, and let go on, only what waits for
//! just that copy. Nodes ask each other by [`CopyQuestion`] and [`SourceQuestion`].

use crate::core_port::CorePort;
use crate::log_calls::LogCalls;
use crate::log_names::{LogNames, LogPlace};
use crate::logs_port::LogsPort;
use crate::move_table::Moves;
use crate::node_questions::{CopyQuestion, NODE_COPY, NODE_SOURCE, SourceQuestion};
use crate::other_nodes::OtherNodes;
use crate::stream_table::StreamTable;
use nuthatch_log::StreamId;
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::{LogId, StreamRoute};
use nuthatch_streams::migration::deciding::{self, Decided, Decider, Pauses, Told};
use nuthatch_streams::migration::left_copy::{self, LeftCopy};
use nuthatch_streams::op::{CopyStanding, OpResult};
use nuthatch_streams::stream::StreamLocation;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Pauses between two questions to the owner of the other log.
const PAUSES: Pauses = Pauses { min: Duration::from_millis(20), max: Duration::from_secs(5) };
/// So long what is sent to a stream waits until it is known whether it lives here; then it is refused.
const HELD_MAX: Duration = Duration::from_secs(2);
/// How long the owner of the other log is waited for.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// Questions of this node that are under way at a time.
const ASKED_MAX: usize = 64;

/// The answer to a [`CopyQuestion`].
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
enum Standing {
    Refused,
    Settled,
    Gone,
}

/// A stream by its account and name.
type Key = (AccountId, String);

/// A stream in one of this node's logs.
struct Here {
    account: AccountId,
    name: String,
    route: StreamRoute,
    /// The user has decided that it lives here.
    kept: AtomicBool,
}

/// The streams of which it is being found out whether they live here, and what questions share.
pub(crate) struct Undecided {
    waiting: Mutex<FxHashMap<Key, Arc<Here>>>,
    asking: Semaphore,
}

impl Default for Undecided {
    fn default() -> Self {
        Self { waiting: Mutex::default(), asking: Semaphore::new(ASKED_MAX) }
    }
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
    pub(crate) undecided: Undecided,
}

impl Apart {
    /// Finds out whether a stream lives here that was about to go on as `copy`, and lets it go on or forgets it. It is
    /// held until then, by [`Op::Hold`] or since it was about to leave. What is returned ends when that is decided, or the log is not here any more.
    pub(crate) fn decide(
        self: &Arc<Self>,
        (account, name): (AccountId, &str),
        route: StreamRoute,
        copy: &StreamLocation,
    ) -> impl Future<Output = ()> + Send + use<> {
        let kept = AtomicBool::new(false);
        let here = Arc::new(Here { account, name: name.to_owned(), route, kept });
        let key = (account, name.to_owned());
        self.undecided.waiting.lock().insert(key.clone(), here.clone());
        let decider = Decider::new(self.location(route), copy.clone(), PAUSES);
        let (apart, copy) = (self.clone(), copy.clone());
        async move {
            apart.run_decider(&here, decider, &copy).await;
            let mut waiting = apart.undecided.waiting.lock();
            if waiting.get(&key).is_some_and(|known| Arc::ptr_eq(known, &here)) {
                waiting.remove(&key);
            }
        }
    }

    /// True if it is being found out whether this stream lives here.
    pub(crate) fn is_undecided(&self, account: AccountId, name: &str, route: StreamRoute) -> bool {
        let waiting = self.undecided.waiting.lock();
        waiting.get(&(account, name.to_owned())).is_some_and(|here| here.route == route)
    }

    /// The user has decided that a stream lives here of which nobody can say that; `false`: it is none.
    pub(crate) fn keep(&self, account: AccountId, name: &str) -> bool {
        let waiting = self.undecided.waiting.lock();
        let here = waiting.get(&(account, name.to_owned()));
        here.inspect(|here| here.kept.store(true, Ordering::Release)).is_some()
    }

    /// Drops a copy when nobody may ask for it any more.
    pub(crate) fn clear(
        self: &Arc<Self>,
        (account, name): (AccountId, &str),
        route: StreamRoute,
        source: &StreamLocation,
    ) {
        let kept = AtomicBool::new(false);
        let here = Here { account, name: name.to_owned(), route, kept };
        let left = LeftCopy::new(route.stream, source.clone(), PAUSES);
        let apart = self.clone();
        tokio::spawn(async move { apart.run_left(&here, left).await });
    }

    fn location(&self, route: StreamRoute) -> StreamLocation {
        StreamLocation { log: self.names.place_of(route.log), stream: route.stream }
    }

    async fn run_decider(&self, here: &Here, mut decider: Decider, copy: &StreamLocation) {
        let (mut happened, began) = (deciding::Happened::Began, Instant::now());
        let mut is_said = false;
        while self.logs.is_attached(here.route.log) {
            happened = match decider.step(happened) {
                deciding::Action::Ask(asked) => {
                    match self.told_of(here, &asked, (copy, began, &mut is_said)).await {
                        Some(told) => deciding::Happened::Told(told),
                        None if here.kept.load(Ordering::Acquire) => {
                            deciding::Happened::Told(Told::Copy(CopyStanding::Refused))
                        }
                        None => deciding::Happened::NotTold,
                    }
                }
                deciding::Action::Run(op) => {
                    if matches!(op, Op::Forget { .. }) {
                        // What waits goes to where the stream is, once it is not here.
                        self.drop_route(here);
                    }
                    match self.run(here.route.log, op).await {
                        Some(outcome) => deciding::Happened::Outcome(outcome),
                        None => deciding::Happened::NotSent,
                    }
                }
                deciding::Action::Rest(pause) => {
                    sleep(pause).await;
                    deciding::Happened::Rested
                }
                deciding::Action::End(decided) => return self.decided(here, decided),
            };
        }
    }

    /// What the owner of the other log says. Beside that: what is sent to the stream is refused when it has waited for long.
    async fn told_of(
        &self,
        here: &Here,
        asked: &StreamLocation,
        (copy, began, is_said): (&StreamLocation, Instant, &mut bool),
    ) -> Option<Told> {
        let told = self.ask_copy((here.account, &here.name), asked);
        tokio::pin!(told);
        if !*is_said {
            let answered = timeout_at(began + HELD_MAX, &mut told).await;
            let is_late = began.elapsed() >= HELD_MAX;
            match answered {
                Ok(Some(told)) => return Some(told),
                Ok(None) if !is_late => return None,
                Ok(None) | Err(_) => {}
            }
            *is_said = true;
            self.say_waiting(here, copy);
            let refuse = Op::Hold { id: here.route.stream, refuses: true };
            let _ = self.run(here.route.log, refuse).await;
            if let Ok(told) = answered {
                return told;
            }
        }
        told.await
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
                    sleep(pause).await;
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

    fn say_waiting(&self, here: &Here, copy: &StreamLocation) {
        let (name, log) = (&here.name, self.names.name_of(here.route.log));
        let to = self.names.known(&copy.log);
        self.core.warn(&format!(
            "stream {name:?} of log {log} is not served until it is known whether it has moved to log {to}, whose owner does \
             not say: nobody owns that log, or its node is away. If that is gone for good, `nuthatch stream move {name} \
             --cancel` has the stream go on in log {log}"
        ));
    }

    fn decided(&self, here: &Here, decided: Decided) {
        let (name, log) = (&here.name, self.names.name_of(here.route.log));
        match decided {
            Decided::Stays => self.core.say(&format!(
                "stream {name:?} goes on in log {log}: a move to another log was interrupted before that had all of it"
            )),
            Decided::Left => self.core.say(&format!(
                "what was left of stream {name:?} in log {log} is forgotten: it has moved to another log"
            )),
            Decided::GivenUp => {}
        }
    }

    /// Nothing is routed to a stream that lives elsewhere.
    fn drop_route(&self, here: &Here) {
        self.streams.change(|registry| {
            let entry = registry.get(here.account, &here.name);
            if entry.is_none_or(|entry| entry.route() != here.route) {
                return;
            }
            if let Some((key, entry)) = registry.take(here.account, &here.name) {
                registry.drop_subjects(here.account, key, &entry.config.subjects);
            }
        });
    }

    /// What the owner of its log says of a copy; `None`: nobody answers.
    async fn ask_copy(
        &self,
        (account, name): (AccountId, &str),
        copy: &StreamLocation,
    ) -> Option<Told> {
        let _turn = self.undecided.asking.acquire().await.ok()?;
        let place = self.names.known(&copy.log);
        let question = CopyQuestion {
            log: place.log().to_owned(),
            identity: identity_of(&place),
            copy: copy.stream.0,
            stream: name.to_owned(),
        };
        let standing = if self.is_here(&place) {
            timeout(ANSWERED_WITHIN, self.standing(account, &question)).await.ok()??
        } else {
            let body = serde_json::to_vec(&question).ok()?;
            let question = (NODE_COPY, body.as_slice());
            let asked = self.nodes.ask_owner(account, &place, question, ANSWERED_WITHIN);
            let answer = asked.await?;
            serde_json::from_slice(&answer).ok()?
        };
        Some(match standing {
            Standing::Refused => Told::Copy(CopyStanding::Refused),
            Standing::Settled => Told::Copy(CopyStanding::Settled),
            Standing::Gone => Told::Gone,
        })
    }

    /// Whether a stream in another log names a copy that is here; `None`: nobody answers.
    async fn ask_source(&self, here: &Here, source: &StreamLocation) -> Option<bool> {
        let _turn = self.undecided.asking.acquire().await.ok()?;
        let place = self.names.known(&source.log);
        let question = SourceQuestion {
            log: place.log().to_owned(),
            identity: identity_of(&place),
            source: source.stream.0,
            copy_log: self.names.place_of(here.route.log),
            copy: here.route.stream.0,
        };
        if self.is_here(&place) {
            return timeout(ANSWERED_WITHIN, self.names_copy(&question)).await.ok()?;
        }
        let body = serde_json::to_vec(&question).ok()?;
        let question = (NODE_SOURCE, body.as_slice());
        let asked = self.nodes.ask_owner(here.account, &place, question, ANSWERED_WITHIN);
        let answer = asked.await?;
        serde_json::from_slice(&answer).ok()
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
    pub(crate) async fn answer_source(&self, question: &SourceQuestion) -> Option<Vec<u8>> {
        serde_json::to_vec(&self.names_copy(question).await?).ok()
    }

    async fn standing(&self, account: AccountId, question: &CopyQuestion) -> Option<Standing> {
        let log = self.own(&question.log, question.identity)?;
        let (id, name) = (StreamId(question.copy), question.stream.clone());
        let op = Op::RefuseCopy { id, account, name, log: self.names.place_of(log) };
        match self.run(log, op).await? {
            Ok(OpOutcome::Copy(CopyStanding::Refused)) => Some(Standing::Refused),
            Ok(OpOutcome::Copy(CopyStanding::Settled)) => Some(Standing::Settled),
            Err(error) if is_gone(&error) => Some(Standing::Gone),
            _ => None,
        }
    }

    async fn names_copy(&self, question: &SourceQuestion) -> Option<bool> {
        let log = self.own(&question.log, question.identity)?;
        let copy =
            StreamLocation { log: question.copy_log.clone(), stream: StreamId(question.copy) };
        if self.table.is_going_to(&copy) {
            return Some(true);
        }
        match self.run(log, Op::GoesTo { id: StreamId(question.source) }).await? {
            Ok(OpOutcome::GoesTo(to)) => Some(to.as_ref() == Some(&copy)),
            Err(error) if is_gone(&error) => Some(false),
            _ => None,
        }
    }

    /// The attached log of this name; of a node's own only the one that is meant: another disk may be in its place.
    fn own(&self, log: &str, identity: u64) -> Option<LogId> {
        self.names.find(log).filter(|log| identity == 0 || log.0 == identity)
    }

    /// Whether the log of this place is attached here.
    fn is_here(&self, place: &LogPlace) -> bool {
        let is_own = match place {
            LogPlace::Plain(_) | LogPlace::Quorum(_) => true,
            LogPlace::At { node, .. } => self.names.node() == Some(node.as_str()),
        };
        is_own && self.own(place.log(), identity_of(place)).is_some()
    }
}

const fn identity_of(place: &LogPlace) -> u64 {
    match place {
        LogPlace::Plain(_) | LogPlace::Quorum(_) => 0,
        LogPlace::At { identity, .. } => identity.0,
    }
}

fn is_gone(error: &JsError) -> bool {
    error.err_code == JsError::STREAM_NOT_FOUND.err_code
}

#[cfg(test)]
mod tests;
