//! The JetStream service as connections see it: routes, API requests, queues of the engines.

mod long_calls;

use crate::audit::{self, Called, ServerIdentity};
use crate::core_port::CorePort;
use crate::engines::{EVENT_BASE_BYTES, Engines};
use crate::log_table::{AttachError, AttachedLog};
use crate::log_traffic::asker;
use crate::registry::{DEFAULT_LOG, Entry, is_memory_log, is_quorum_log, quorum_log_number};
use crate::request::Call;
use crate::service::{JetStream, Settings};
use crate::settings;
use crate::stream_table::StreamTable;
use long_calls::{LongCalls, spawn_told};
use nuthatch_log::SendError as QueueError;
use nuthatch_log::StreamId;
use nuthatch_server::account::Accounts;
use nuthatch_server::advertised::{AdvertisedStream, AskedAt, Streams, Taken, subjects_of};
use nuthatch_server::jetstream_port::followed::FollowedStreams;
use nuthatch_server::jetstream_port::reroute;
use nuthatch_server::jetstream_port::{
    ApiRequest, BoxFuture, JetStreamPort, JsView, LogId, LogSlot, NodeQuestion, Peer, SendError,
    StreamRoute, Wanted,
};
use nuthatch_server::msg_trace::{StreamQuestion, StreamVerdict};
use nuthatch_server::options::Options;
use nuthatch_server::served::{NodeState, OwnLog, OwnStream};
use nuthatch_server::shares::AccountTurns;
use nuthatch_streams::{AccountId, ClientBatch, Event, Op};
use rustc_hash::FxHashMap;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

/// The API prefix after a domain has been taken off.
const API_PREFIX: &str = "$JS.API.";
/// Memory of an API request beside its headers and body.
const API_REQUEST_BYTES: usize = 1024;
/// Weight of one item of a batch beyond its bytes.
const ITEM_BYTES: usize = 64;

/// The JetStream service as connections use it.
pub struct JetStreamHandle {
    service: Arc<JetStream>,
    /// Those of the service: publishers ask for routes.
    streams: Arc<StreamTable>,
    engines: Arc<Engines>,
    core: Arc<dyn CorePort>,
    runtime: Handle,
    long_calls: LongCalls,
    long_turns: Arc<AccountTurns>,
    /// Names of streams need no log: they do not wait for calls that wait for one.
    name_turns: Arc<AccountTurns>,
    domain: Option<String>,
    /// What follows logs of other nodes, once there may be any.
    followed: OnceLock<Arc<dyn FollowedStreams>>,
}

/// A stream with more subjects is told and compared there.
const LONG_SUBJECTS: usize = 1024;
/// Such calls of one account that are under way at a time; they wait for their log, too, but not for
/// each other's computing.
const LONG_CALLS_OF_ACCOUNT_MAX: usize = 4;

/// Takes the first step of a future at once; `true`: it is done.
fn first_step<F: Future<Output = ()> + ?Sized>(future: Pin<&mut F>) -> bool {
    // The executor polls it again, with a waker, before it can be waited for.
    future.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
}

impl JetStreamHandle {
    /// Direct gets may be answered from what follows logs of other nodes.
    pub(super) fn set_followed(&self, followed: Arc<dyn FollowedStreams>) {
        assert!(self.followed.set(followed).is_ok(), "it is set once, at the start");
    }

    /// Builds the service on the engines and loads the registry from them.
    ///
    /// # Errors
    /// A sentence that says which log could not be listed.
    pub async fn start(
        engines: Arc<Engines>,
        core: Arc<dyn CorePort>,
        settings: Settings,
    ) -> Result<Arc<Self>, String> {
        let domain = (!settings.domain.is_empty()).then(|| settings.domain.clone());
        let service = Arc::new(JetStream::new(core.clone(), engines.clone(), settings));
        service.loading.load().await?;
        engines.logs.all().iter().for_each(|log| engines.logs.loaded(log.id));
        let runtime = Handle::current();
        runtime.spawn(service.replication.clone().run(service.clone()));
        let long_calls = LongCalls::new()?;
        let long_turns = AccountTurns::new(LONG_CALLS_OF_ACCOUNT_MAX);
        let name_turns = AccountTurns::new(LONG_CALLS_OF_ACCOUNT_MAX);
        Ok(Arc::new(Self {
            streams: service.streams.clone(),
            service,
            engines,
            core,
            runtime,
            long_calls,
            long_turns,
            name_turns,
            domain,
            followed: OnceLock::new(),
        }))
    }

    /// The service.
    #[must_use]
    pub const fn service(&self) -> &Arc<JetStream> {
        &self.service
    }

    /// How many streams there are.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        let registry = self.streams.read();
        registry.accounts().map(|account| registry.count(account)).sum()
    }

    /// Description of this server in advisories.
    fn place(&self) -> ServerIdentity<'_> {
        ServerIdentity {
            server: self.core.server_name(),
            domain: self.domain.as_deref().unwrap_or_default(),
            now: self.core.now(),
        }
    }

    /// The engines' queues.
    #[must_use]
    pub const fn engines(&self) -> &Arc<Engines> {
        &self.engines
    }
}

impl JetStreamHandle {
    /// True if a call is handled on threads of its own, by what is in it or by the size of the stream
    /// that it is about.
    fn is_long(&self, account: AccountId, api_call: &Call<'_>, body: &[u8]) -> bool {
        let has_many_subjects = |name: &str| {
            let registry = self.streams.read();
            let entry = registry.get(account, name);
            entry.is_some_and(|entry| entry.config.subjects.len() > LONG_SUBJECTS)
        };
        api_call.is_long(body) || api_call.whole_stream().is_some_and(has_many_subjects)
    }
}

/// Weight of an event in a queue.
fn weight(event: &Event<Peer>) -> usize {
    match event {
        Event::Batch(batch) => EVENT_BASE_BYTES + batch.buf.len() + batch.items.len() * ITEM_BYTES,
        _ => EVENT_BASE_BYTES,
    }
}

/// Why a queue did not take an event, as connections hear it.
fn refused(error: QueueError<Event<Peer>>) -> SendError {
    match error {
        QueueError::Busy(event) | QueueError::Stale(event) => SendError::Busy(event),
        QueueError::Closed(event) => SendError::Closed(event),
    }
}

/// The call's name, behind the API prefix.
fn call_of(request: &ApiRequest) -> Option<&str> {
    std::str::from_utf8(&request.subject).ok()?.strip_prefix(API_PREFIX)
}

impl JetStreamHandle {
    /// Sends a batch whose routes may be from before a move to where its streams are now.
    #[cold]
    fn send_rerouted(
        &self,
        log: LogId,
        batch: ClientBatch<Peer>,
        privileged: bool,
    ) -> Result<(), SendError> {
        let Some(parts) = reroute::split(log, &batch, |route| self.moved_route(route)) else {
            return self.send(log, Event::Batch(batch), privileged, u64::MAX);
        };
        // Once a part is taken the others have to be: they go however full their queue is, which
        // happens once for each connection and move.
        let mut taken = false;
        for (log, part) in parts {
            let Some(handle) = self.engines.handle(log) else {
                if taken {
                    continue;
                }
                return Err(SendError::Closed(Event::Batch(batch)));
            };
            let event = Event::Batch(part);
            let weight = weight(&event);
            let sent = if taken {
                handle.send_anyway(event, weight)
            } else {
                handle.send_seen(event, weight, u64::MAX, privileged)
            };
            match sent {
                Ok(()) => taken = true,
                Err(QueueError::Closed(_)) if !taken => {
                    return Err(SendError::Closed(Event::Batch(batch)));
                }
                Err(_) if !taken => return Err(SendError::Busy(Event::Batch(batch))),
                // Shutting down: no outcome is reported any more.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn moved_route(&self, route: StreamRoute) -> Option<StreamRoute> {
        self.streams.read().moved(route)
    }

    /// Serves the streams of one more log from now on. Whoever opened it closes it if this fails.
    ///
    /// # Errors
    /// [`AttachError`]: then nothing has changed.
    pub async fn attach(&self, log: AttachedLog) -> Result<usize, AttachError> {
        let (id, slot, name) = (log.id, log.slot, log.name.clone());
        self.engines.logs.attach(log)?;
        match self.service.loading.load_log(&name, id).await {
            Ok(count) => {
                self.engines.logs.loaded(id);
                // Other nodes are told of the log now that its streams can be told with it.
                self.streams.wake();
                self.tell_all(slot);
                if quorum_log_number(&name).is_some() {
                    self.service.moves.raise_all(id);
                }
                Ok(count)
            }
            Err(why) => {
                self.service.loading.forget_log(id);
                self.engines.logs.detach(id);
                Err(AttachError::Streams(why))
            }
        }
    }

    /// What an engine waits for may have come while its log was not attached, when nobody told it.
    fn tell_all(&self, slot: LogSlot) {
        for event in [Event::Interest(None), Event::Writable] {
            // A log that is closed waits for nothing.
            let _ = self.notify(slot, event);
        }
    }

    /// Other nodes are told no more of the streams of a log, which are still served.
    pub fn withdraw(&self, log: LogId) {
        self.engines.logs.withdraw(log);
    }

    /// What clients of this node ask of a log's streams waits from now on, until another node serves them.
    pub(crate) fn tell_leaving(&self, log: LogId, name: &str) {
        let told: Arc<str> = name.into();
        let mut streams: FxHashMap<AccountId, Vec<OwnStream>> = FxHashMap::default();
        for entry in self.streams.read().in_log(log) {
            let stream = OwnStream { config: entry.config.clone(), log: told.clone() };
            streams.entry(entry.account).or_default().push(stream);
        }
        for (account, streams) in streams {
            if let Some(served) = self.core.served(account) {
                served.leaves(name, streams.into_iter());
            }
        }
    }

    /// Serves the streams of a log no longer: they have no routes, and what is sent to it by older
    /// ones is refused. Returns the log, which is open still; `None`: it is not attached.
    pub fn detach(&self, log: LogId) -> Option<Arc<AttachedLog>> {
        let gone = self.engines.logs.detach(log)?;
        self.service.loading.forget_log(log);
        self.service.moves.table.give_up(&gone.name);
        Some(gone)
    }
}

impl JetStreamPort for JetStreamHandle {
    fn enabled(&self, account: AccountId) -> bool {
        self.service.accounts.serves(account)
    }

    fn version(&self) -> u64 {
        self.streams.version()
    }

    fn changes_since(
        &self,
        version: u64,
        account: AccountId,
        changed: &mut Vec<Box<[u8]>>,
    ) -> bool {
        self.streams.read().changes_since(version, account, changed)
    }

    fn followed(&self) -> Option<&dyn FollowedStreams> {
        self.followed.get().map(|followed| &**followed)
    }

    fn find(&self, account: AccountId, wanted: Wanted<'_>) -> Option<StreamRoute> {
        let registry = self.streams.read();
        match wanted {
            Wanted::Owner { subject, pattern } => {
                let route = registry.route(account, subject)?;
                if let Some(pattern) = pattern {
                    let of_all = registry.pattern_of(account, route, subject);
                    pattern.extend_from_slice(of_all.unwrap_or_default().as_bytes());
                }
                Some(route)
            }
            Wanted::Named(name) => {
                Some(registry.get(account, std::str::from_utf8(name).ok()?)?.route())
            }
            Wanted::MirrorOf(origin) => {
                registry.direct_mirror(account, std::str::from_utf8(origin).ok()?)
            }
        }
    }

    fn stream_name(&self, route: StreamRoute) -> Option<String> {
        Some(self.streams.read().by_route(route)?.config.name.clone())
    }

    fn verdict<'a>(&'a self, question: &'a StreamQuestion) -> BoxFuture<'a, Option<StreamVerdict>> {
        Box::pin(self.service.verdicts.of(question))
    }

    fn set_accounts(&self, accounts: &Accounts, options: &Options) {
        self.service.set_accounts(settings::served_accounts(accounts, options));
        for log in self.engines.logs.all() {
            let bounds = settings::account_bounds(accounts, options, log.is_memory());
            let ignore = Box::new(|_| ());
            let event = Event::Op(Op::SetAccounts(bounds), ignore);
            if log.handle.send_privileged(event, EVENT_BASE_BYTES).is_err() {
                self.core.warn(&format!(
                    "limits of accounts were not changed: the queue of log {} is full; reload again",
                    log.name
                ));
            }
        }
    }

    fn end_requests(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.service.requests.end())
    }

    fn stop(&self) -> Result<(), String> {
        self.service.stop();
        let logs = self.engines.logs.all();
        logs.iter().for_each(|log| log.handle.begin_close());
        let mut result = Ok(());
        for log in logs {
            if let Err(error) = log.handle.close() {
                self.engines.mark_broken(&error.to_string());
                result = Err(error.to_string());
            }
        }
        result
    }

    fn domain(&self) -> Option<&str> {
        self.domain.as_deref()
    }

    fn interest(&self, account: AccountId) -> Vec<Box<[u8]>> {
        if !self.service.accounts.serves(account) {
            return Vec::new();
        }
        let mut subjects: Vec<Box<[u8]>> = Vec::new();
        let mut add = |text: &str| subjects.push(text.as_bytes().into());
        if let Some(domain) = &self.domain {
            add(&format!("$JS.{domain}.API.>"));
        }
        let withdrawn = self.engines.logs.withdrawn();
        let registry = self.streams.read();
        let entries = registry.of_account(account);
        let taken = entries.filter(|entry| !withdrawn.contains(&entry.engine));
        subjects.extend(taken.flat_map(|entry| subjects_of(&entry.config)));
        subjects
    }

    fn taken(&self, account: AccountId, since: Option<&AskedAt>) -> Taken {
        // Those of the registry are read behind this, so no log is told without its streams.
        let mut attached = self.engines.logs.whole();
        let withdrawn = self.engines.logs.withdrawn();
        attached.retain(|log| !withdrawn.contains(&log.id));
        let is_leader = attached.iter().any(|log| log.name == DEFAULT_LOG);
        let state = NodeState {
            logs: attached.iter().map(|log| log.name.clone()).collect(),
            own_logs: own_logs(&attached),
            tags: Some(self.core.server_tags()),
            leads_in: is_leader.then(|| self.core.leads_in()).flatten(),
            ..NodeState::default()
        };
        let logs = attached.iter().map(|log| (log.id, log.name.clone())).collect();
        let names = attached.iter().map(|log| (log.id, log.name.as_str().into()));
        let names: FxHashMap<LogId, Arc<str>> = names.collect();
        let is_on = self.service.accounts.serves(account);
        let registry = self.streams.read();
        let at = AskedAt { version: registry.version(), logs, withdrawn, is_on };
        let advertised = |entry: &Arc<Entry>| AdvertisedStream {
            config: entry.config.clone(),
            // Not before all of the log's streams are there: each would be told again with the log.
            is_taken: is_on && names.contains_key(&entry.engine),
            log: names.get(&entry.engine).cloned(),
        };
        let same = since.filter(|since| since.is_like(&at));
        let changed = same.and_then(|since| registry.names_since(since.version, account));
        let streams = match changed {
            Some(changed) => {
                let now = |name: &String| registry.get(account, name).map(advertised);
                let changed = changed.into_iter().map(|name| (now(&name), name));
                Streams::Changed(changed.map(|(stream, name)| (name, stream)).collect())
            }
            None => Streams::All(registry.of_account(account).map(advertised).collect()),
        };
        let api = self.domain.as_ref().filter(|_| is_on);
        let subjects = api.map(|domain| format!("$JS.{domain}.API.>").into_bytes().into());
        Taken { at, state, subjects: subjects.into_iter().collect(), streams }
    }

    fn nodes_changed(&self) {
        // Origins may have come, gone, or changed their node.
        if self.streams.read().copying().next().is_some() {
            self.streams.wake();
        }
    }

    fn node_asks(&self, question: NodeQuestion) {
        let service = self.service.clone();
        let NodeQuestion { from, scope, call, headers, body, answer } = question;
        let account = from.account;
        let held = API_REQUEST_BYTES + body.len() + headers.len();
        // The node that asks has told its client so many at a time.
        let held = service.requests.begin_handed_on(account, held);
        let Some(held) = held else { return answer(None) };
        let api_call = Call::parse(&call);
        let is_long = api_call.is_some_and(|call| self.is_long(account, &call, &body));
        let mut work = Box::pin(async move {
            let answered = service.handle_question(&from, (&call, &headers, &body), &scope).await;
            answer(answered);
            drop(held);
        });
        if is_long {
            let turns = self.long_turns.clone();
            drop(self.long_calls.spawn(async move {
                let _turn = turns.turn(account).await;
                work.await;
            }));
        } else if !first_step(work.as_mut()) {
            self.runtime.spawn(work);
        }
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.streams.changes())
    }

    fn api_request(&self, request: ApiRequest) -> Option<oneshot::Receiver<()>> {
        // A subject that is not UTF-8 names no call: silence, as for any unknown call.
        let rest = call_of(&request)?;
        let service = self.service.clone();
        let held = API_REQUEST_BYTES + request.body.len() + request.headers.len();
        let account = request.from.account;
        let Some(held) = service.requests.begin(account, held) else {
            service.refuse(account, rest, &request.reply);
            audit::tell_limit(account, &self.place(), &*self.core, &self.streams);
            return None;
        };
        let api_call = Call::parse(rest);
        let changes_streams = api_call.is_some_and(|call| call.changes_streams());
        let is_long = api_call.is_some_and(|call| self.is_long(account, &call, &request.body));
        let is_list = api_call.is_some_and(|call| call.is_list());
        let asks_names = matches!(api_call, Some(Call::StreamNames));
        let (core, domain, arrived) = (self.core.clone(), self.domain.clone(), Instant::now());
        let mut work = Box::pin(async move {
            let Some(rest) = call_of(&request) else { return };
            let (reply, headers, body) = (&request.reply, &request.headers, &request.body);
            let handled = service.handle((&request.from, arrived), rest, reply, headers, body);
            if let Some(response) = handled.await {
                let (subject, response) = (&request.subject[..], &response[..]);
                let called = Called { from: &request.from, subject, request: body, response };
                let (domain, now) = (domain.as_deref().unwrap_or_default(), core.now());
                let place = ServerIdentity { server: core.server_name(), domain, now };
                audit::tell_call(&called, &place, &*core, &service.streams);
            }
            drop(held);
        });
        if is_long {
            let turns = if asks_names { &self.name_turns } else { &self.long_turns }.clone();
            let told = self.long_calls.spawn(async move {
                let _turn = turns.turn(account).await;
                work.await;
            });
            // What comes behind a list does not depend on it.
            return (!is_list).then_some(told);
        }
        // The first step is taken here, so that the operation is queued in the order in which the
        // connection asked for it.
        if first_step(work.as_mut()) {
            return None;
        }
        if !changes_streams {
            self.runtime.spawn(work);
            return None;
        }
        Some(spawn_told(&self.runtime, work))
    }

    fn send(
        &self,
        log: LogId,
        event: Event<Peer>,
        privileged: bool,
        seen: u64,
    ) -> Result<(), SendError> {
        let weight = weight(&event);
        let found = self.engines.logs.with(log, |log| (log.handle.clone(), log.traffic.clone()));
        let Some((handle, traffic)) = found else {
            return Err(SendError::Closed(event));
        };
        let from = traffic.zip(asker(&event));
        match handle.send_seen(event, weight, seen, privileged) {
            Ok(()) => {
                if let Some((traffic, from)) = from {
                    traffic.note(&from, weight as u64);
                }
                Ok(())
            }
            Err(QueueError::Stale(Event::Batch(batch))) => {
                self.send_rerouted(log, batch, privileged)
            }
            sent => sent.map_err(refused),
        }
    }

    fn notify(&self, slot: LogSlot, event: Event<Peer>) -> Result<(), SendError> {
        let Some(log) = self.engines.logs.at(slot) else { return Err(SendError::Closed(event)) };
        log.handle.send_seen(event, EVENT_BASE_BYTES, u64::MAX, true).map_err(refused)
    }

    fn is_handed_over(&self, log: LogId) -> bool {
        // One of this node alone stays attached until the server ends.
        self.engines.logs.with(log, |at| is_quorum_log(&at.name)).unwrap_or(true)
    }

    fn moved(&self, log: LogId, stream: StreamId) -> Option<StreamRoute> {
        self.moved_route(StreamRoute { log, stream })
    }

    fn slots(&self) -> Arc<[LogSlot]> {
        self.engines.logs.slots()
    }

    fn view(&self) -> &dyn JsView {
        &self.service.view
    }
}

/// Those of these logs that are on no other node.
fn own_logs(attached: &[Arc<AttachedLog>]) -> Vec<OwnLog> {
    let own = attached.iter().filter(|log| !is_quorum_log(&log.name) && !is_memory_log(&log.name));
    own.map(|log| OwnLog { name: log.name.clone(), identity: log.id.0 }).collect()
}

#[cfg(test)]
mod tests;
