//! The JetStream service as connections see it: routes, API requests, queues of the engines.

use crate::audit::{self, Called, ServerIdentity};
use crate::core_port::{CorePort, Inbox, NotTaken, ReplyPort};
use crate::foreign::Foreign;
use crate::registry::{LogIndex, StreamRoute as Route};
use crate::request::Call;
use crate::service::{JetStream, Settings};
use crate::settings;
use nuthatch_log::SendError as QueueError;
use nuthatch_log::{LogHandle, StreamId};
use nuthatch_protocol::js::{StreamSource, Time};
use nuthatch_server::account::Accounts;
use nuthatch_server::jetstream_port::reroute;
use nuthatch_server::jetstream_port::{
    ApiRequest, JetStreamPort, JsHealth, JsLog, JsView, LogId, Peer, SendError, StreamRoute,
};
use nuthatch_server::options::Options;
use nuthatch_server::shares::{AccountTurns, Share};
use nuthatch_streams::{AccountId, ClientBatch, Event, HandOff, Message, Op, OpResult, Respond};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{oneshot, watch};

/// The API prefix after a domain has been taken off.
const API_PREFIX: &str = "$JS.API.";
/// Memory of an API request beside its headers and body.
const API_REQUEST_BYTES: usize = 1024;
/// Weight of an event in a queue beyond the bytes it carries.
const EVENT_BASE_BYTES: usize = 128;
/// Weight of one item of a batch beyond its bytes.
const ITEM_BYTES: usize = 64;

/// The engines' queues and the way back: the service's backend.
pub struct Engines {
    handles: Vec<LogHandle<Event<Peer>>>,
    names: Vec<String>,
    answers: Box<dyn ReplyPort>,
    server_name: String,
    broken: Mutex<Option<String>>,
}

impl Engines {
    /// The logs' names and queues in the order of [`LogIndex`].
    #[must_use]
    pub fn new(
        logs: Vec<(String, LogHandle<Event<Peer>>)>,
        answers: Box<dyn ReplyPort>,
        server_name: String,
    ) -> Self {
        let (names, handles) = logs.into_iter().unzip();
        Self { handles, names, answers, server_name, broken: Mutex::new(None) }
    }

    /// The queues.
    #[must_use]
    pub fn handles(&self) -> &[LogHandle<Event<Peer>>] {
        &self.handles
    }

    /// Notes why JetStream does not work any more; shown by the health check.
    pub fn mark_broken(&self, reason: &str) {
        self.broken.lock().get_or_insert_with(|| reason.to_owned());
    }
}

impl CorePort for Engines {
    fn foreign(&self, account: AccountId, source: &StreamSource) -> Foreign {
        self.answers.foreign(account, source)
    }

    fn submit(&self, engine: LogIndex, op: Op, respond: Respond) -> Result<(), NotTaken> {
        let handle = self.handles.get(engine.0).ok_or(NotTaken::Closed)?;
        // Calls are few and bounded: they do not wait behind publishes.
        let weight = EVENT_BASE_BYTES + op.weight_bytes();
        let sent = handle.send_privileged(Event::Op(op, respond), weight);
        sent.map_err(|refused| match refused {
            QueueError::Busy(_) | QueueError::Stale(_) => NotTaken::Busy,
            QueueError::Closed(_) => NotTaken::Closed,
        })
    }

    fn switch(&self, from: Route, to: Route, seen: u64) -> oneshot::Receiver<OpResult> {
        let handle = |engine: LogIndex| self.handles.get(engine.0).cloned();
        let (sender, receiver) = oneshot::channel();
        let (Some(old), Some(new)) = (handle(from.engine), handle(to.engine)) else {
            return receiver;
        };
        let forgotten = Box::new(move |result| {
            // No caller is left when the server stops.
            let _ = sender.send(result);
        });
        old.set_gate(seen);
        let respond = Box::new(move |hand_off: Option<HandOff>| {
            if let Some(hand_off) = hand_off {
                // A closed log is found as it is by the next start.
                let _ = new.send_anyway(Event::Install { id: to.id, hand_off }, EVENT_BASE_BYTES);
            }
        });
        // As above.
        let depart = Event::Depart { id: from.id, respond, forgotten };
        let _ = old.send_anyway(depart, EVENT_BASE_BYTES);
        receiver
    }

    fn say(&self, text: &str) {
        self.answers.say(text);
    }

    fn answer(&self, account: AccountId, reply: &[u8], body: &[u8]) {
        self.answers.publish(account, &Message { subject: reply, reply: b"", headers: b"", body });
    }

    fn listens(&self, account: AccountId, subject: &[u8]) -> bool {
        self.answers.listens(account, subject)
    }

    fn send(&self, account: AccountId, message: &Message<'_>) -> bool {
        self.answers.publish(account, message)
    }

    fn listen(&self, account: AccountId, subject: &[u8]) -> Option<Inbox> {
        self.answers.listen(account, subject)
    }

    fn routing(&self) -> &dyn ReplyPort {
        &*self.answers
    }

    fn now(&self) -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
    }

    fn server_name(&self) -> &str {
        &self.server_name
    }

    fn logs(&self) -> Vec<JsLog> {
        let named = self.names.iter().zip(&self.handles);
        named.map(|(name, handle)| JsLog { name: name.clone(), stats: handle.stats() }).collect()
    }

    fn health(&self) -> JsHealth {
        if let Some(reason) = &*self.broken.lock() {
            return JsHealth::Broken(reason.clone());
        }
        let failed = |handle: &LogHandle<Event<Peer>>| handle.stats().failed != 0;
        match self.handles.iter().position(failed) {
            Some(log) => JsHealth::Broken(format!(
                "log {} has failed and takes no writes until a restart; its log lines say why",
                self.names[log]
            )),
            None => JsHealth::Ok,
        }
    }
}

/// The JetStream service as connections use it.
pub struct JetStreamHandle {
    service: Arc<JetStream>,
    engines: Arc<Engines>,
    runtime: Handle,
    long_calls: LongCalls,
    long_turns: Arc<AccountTurns>,
    /// Names of streams need no log: they do not wait for calls that wait for one.
    name_turns: Arc<AccountTurns>,
    domain: Option<String>,
}

/// Threads for calls whose handling grows with the request, or that tell of very much: connections
/// and timers do not wait for what they compute.
const LONG_CALL_THREADS: usize = 2;

/// A stream with more subjects is told and compared there.
const LONG_SUBJECTS: usize = 1024;
/// Such calls of one account that are under way at a time; they wait for their log, too, but not for
/// each other's computing.
const LONG_CALLS_OF_ACCOUNT_MAX: usize = 4;

/// The runtime of those threads.
struct LongCalls(Option<Runtime>);

impl LongCalls {
    fn new() -> Result<Self, String> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(LONG_CALL_THREADS).thread_name("calls").enable_all();
        let runtime = builder.build().map_err(|error| format!("no threads for calls: {error}"))?;
        Ok(Self(Some(runtime)))
    }

    /// Carries out a call; what is returned hears of its end.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> oneshot::Receiver<()> {
        let runtime = self.0.as_ref().expect("it is there until it is dropped");
        spawn_told(runtime.handle(), work)
    }
}

impl Drop for LongCalls {
    fn drop(&mut self) {
        // A runtime may not be waited for on a thread of another one.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Carries out `work`; what is returned hears of its end.
fn spawn_told(
    runtime: &Handle,
    work: impl Future<Output = ()> + Send + 'static,
) -> oneshot::Receiver<()> {
    let (done, receiver) = oneshot::channel();
    runtime.spawn(async move {
        work.await;
        // There is no receiver when the connection is gone.
        let _ = done.send(());
    });
    receiver
}

/// Takes the first step of a future at once; `true`: it is done.
fn first_step<F: Future<Output = ()> + ?Sized>(future: Pin<&mut F>) -> bool {
    // The executor polls it again, with a waker, before it can be waited for.
    future.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
}

impl JetStreamHandle {
    /// Builds the service on the engines and loads the registry from them.
    ///
    /// # Errors
    /// A sentence that says which log could not be listed.
    pub async fn start(engines: Arc<Engines>, settings: Settings) -> Result<Arc<Self>, String> {
        let domain = (!settings.domain.is_empty()).then(|| settings.domain.clone());
        let service = Arc::new(JetStream::new(engines.clone(), settings));
        service.load().await?;
        let runtime = Handle::current();
        runtime.spawn(service.clone().copy_streams());
        let long_calls = LongCalls::new()?;
        let long_turns = AccountTurns::new(LONG_CALLS_OF_ACCOUNT_MAX);
        let name_turns = AccountTurns::new(LONG_CALLS_OF_ACCOUNT_MAX);
        Ok(Arc::new(Self { service, engines, runtime, long_calls, long_turns, name_turns, domain }))
    }

    /// The service.
    #[must_use]
    pub const fn service(&self) -> &Arc<JetStream> {
        &self.service
    }

    /// How many streams there are.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        let registry = self.service.registry().read();
        registry.accounts().map(|account| registry.count(account)).sum()
    }

    /// Description of this server in advisories.
    fn place(&self) -> ServerIdentity<'_> {
        ServerIdentity {
            server: &self.engines.server_name,
            domain: self.domain.as_deref().unwrap_or_default(),
            now: self.engines.now(),
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
            let registry = self.service.registry().read();
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

/// The call's name, behind the API prefix.
fn call_of(request: &ApiRequest) -> Option<&str> {
    std::str::from_utf8(&request.subject).ok()?.strip_prefix(API_PREFIX)
}

/// An API request's share of the requests under way and of their bytes.
struct RequestShare {
    bytes: usize,
    _request: Share,
    _bytes: Share,
}

impl RequestShare {
    /// `None`: that would be too many requests or too many bytes, of the account or of all.
    fn new(service: &JetStream, account: AccountId, bytes: usize) -> Option<Self> {
        let request = service.requests.take(account, 1).ok()?;
        let share = service.request_bytes.take(account, bytes).ok()?;
        Some(Self { bytes, _request: request, _bytes: share })
    }
}

impl Drop for RequestShare {
    fn drop(&mut self) {
        nuthatch_server::trim::freed(self.bytes);
    }
}

impl JetStreamHandle {
    /// Sends a batch whose routes may be from before a move to where its streams are now.
    #[cold]
    fn send_rerouted(
        &self,
        engine: LogId,
        batch: ClientBatch<Peer>,
        privileged: bool,
    ) -> Result<(), SendError> {
        let Some(parts) = reroute::split(engine, &batch, |route| self.moved_route(route)) else {
            return self.send(engine, Event::Batch(batch), privileged, u64::MAX);
        };
        // Once a part is taken the others have to be: they go however full their queue is, which
        // happens once for each connection and move.
        let mut taken = false;
        for (engine, part) in parts {
            let Some(handle) = self.engines.handles.get(usize::from(engine.0)) else { continue };
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
        let at = Route { engine: LogIndex(usize::from(route.engine.0)), id: route.stream };
        self.service.registry().read().moved(at).map(route_of)
    }
}

const fn route_of(route: Route) -> StreamRoute {
    #[allow(clippy::cast_possible_truncation)] // two engines
    StreamRoute { engine: LogId(route.engine.0 as u8), stream: route.id }
}

impl JetStreamPort for JetStreamHandle {
    fn enabled(&self, account: AccountId) -> bool {
        self.service.serves(account)
    }

    fn version(&self) -> u64 {
        self.service.version()
    }

    fn route(&self, account: AccountId, subject: &[u8]) -> Option<StreamRoute> {
        self.service.registry().read().route(account, subject).map(route_of)
    }

    fn route_by(
        &self,
        account: AccountId,
        subject: &[u8],
        pattern: &mut Vec<u8>,
    ) -> Option<StreamRoute> {
        let registry = self.service.registry().read();
        let route = registry.route(account, subject)?;
        let of_all = registry.pattern_of(account, route, subject);
        pattern.extend_from_slice(of_all.unwrap_or_default().as_bytes());
        Some(route_of(route))
    }

    fn stream_by_name(&self, account: AccountId, name: &[u8]) -> Option<StreamRoute> {
        let name = std::str::from_utf8(name).ok()?;
        let registry = self.service.registry().read();
        let entry = registry.get(account, name)?;
        Some(route_of(Route { engine: entry.engine, id: entry.id }))
    }

    fn mirror_of(&self, account: AccountId, origin: &[u8]) -> Option<StreamRoute> {
        let origin = std::str::from_utf8(origin).ok()?;
        self.service.registry().read().direct_mirror(account, origin).map(route_of)
    }

    fn stream_name(&self, account: AccountId, stream: StreamId) -> Option<String> {
        let registry = self.service.registry().read();
        Some(registry.by_id(account, stream)?.config.name.clone())
    }

    fn set_accounts(&self, accounts: &Accounts, options: &Options) {
        self.service.set_accounts(settings::served_accounts(accounts, options));
        for (engine, handle) in self.engines.handles.iter().enumerate() {
            let bounds = settings::account_bounds(accounts, options, LogIndex(engine));
            let ignore = Box::new(|_| ());
            let event = Event::Op(Op::SetAccounts(bounds), ignore);
            if handle.send_privileged(event, EVENT_BASE_BYTES).is_err() {
                self.engines.answers.warn(&format!(
                    "limits of accounts were not changed: the queue of log {engine} is full; reload again"
                ));
            }
        }
    }

    fn stop(&self) -> Result<(), String> {
        self.service.stop();
        for handle in &self.engines.handles {
            handle.begin_close();
        }
        let mut result = Ok(());
        for handle in &self.engines.handles {
            if let Err(error) = handle.close() {
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
        if !self.service.serves(account) {
            return Vec::new();
        }
        let mut subjects: Vec<Box<[u8]>> = Vec::new();
        let mut add = |text: &str| subjects.push(text.as_bytes().into());
        if let Some(domain) = &self.domain {
            add(&format!("$JS.{domain}.API.>"));
        }
        for entry in self.service.registry().read().of_account(account) {
            entry.config.subjects.iter().for_each(|subject| add(subject));
            add(&format!("$JS.ACK.{}.>", entry.config.name));
            add(&format!("$JS.FC.{}.>", entry.config.name));
        }
        subjects
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.service.changes.subscribe())
    }

    fn api_request(&self, request: ApiRequest) -> Option<oneshot::Receiver<()>> {
        // A subject that is not UTF-8 names no call: silence, as for any unknown call.
        let rest = call_of(&request)?;
        let service = self.service.clone();
        let held = API_REQUEST_BYTES + request.body.len() + request.headers.len();
        let account = request.from.account;
        let Some(held) = RequestShare::new(&service, account, held) else {
            service.refuse(account, rest, &request.reply);
            let streams = service.registry();
            audit::tell_limit(account, &self.place(), &*self.engines.answers, streams);
            return None;
        };
        let api_call = Call::parse(rest);
        let changes_streams = api_call.is_some_and(|call| call.changes_streams());
        let is_long = api_call.is_some_and(|call| self.is_long(account, &call, &request.body));
        let is_list = api_call.is_some_and(|call| call.is_list());
        let asks_names = matches!(api_call, Some(Call::StreamNames));
        let (engines, domain) = (self.engines.clone(), self.domain.clone());
        let mut work = Box::pin(async move {
            let Some(rest) = call_of(&request) else { return };
            let (reply, headers, body) = (&request.reply, &request.headers, &request.body);
            let handled = service.handle(&request.from, rest, reply, headers, body);
            if let Some(response) = handled.await {
                let (subject, response) = (&request.subject[..], &response[..]);
                let called = Called { from: &request.from, subject, request: body, response };
                let (domain, now) = (domain.as_deref().unwrap_or_default(), engines.now());
                let place = ServerIdentity { server: &engines.server_name, domain, now };
                audit::tell_call(&called, &place, &*engines.answers, service.registry());
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
        engine: LogId,
        event: Event<Peer>,
        privileged: bool,
        seen: u64,
    ) -> Result<(), SendError> {
        let Some(handle) = self.engines.handles.get(usize::from(engine.0)) else {
            return Err(SendError::Closed(event));
        };
        let weight = weight(&event);
        match handle.send_seen(event, weight, seen, privileged) {
            Ok(()) => Ok(()),
            Err(QueueError::Stale(Event::Batch(batch))) => {
                self.send_rerouted(engine, batch, privileged)
            }
            Err(QueueError::Busy(event) | QueueError::Stale(event)) => Err(SendError::Busy(event)),
            Err(QueueError::Closed(event)) => Err(SendError::Closed(event)),
        }
    }

    fn moved(&self, engine: LogId, stream: StreamId) -> Option<StreamRoute> {
        self.moved_route(StreamRoute { engine, stream })
    }

    fn engine_count(&self) -> usize {
        self.engines.handles.len()
    }

    fn view(&self) -> &dyn JsView {
        &*self.service
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending_changes::tests::{ACCOUNT, service};
    use crate::service::MAX_ACCOUNT_REQUESTS;

    #[tokio::test]
    async fn requests_of_one_account_leave_room_for_others() {
        let (_logs, service) = service();
        let take = |account| RequestShare::new(&service, account, API_REQUEST_BYTES);
        let held: Vec<_> = (0..MAX_ACCOUNT_REQUESTS).filter_map(|_| take(ACCOUNT)).collect();
        assert_eq!(held.len(), MAX_ACCOUNT_REQUESTS);
        assert!(take(ACCOUNT).is_none() && take(AccountId(7)).is_some());
        drop(held);
        assert!(take(ACCOUNT).is_some());
        assert_eq!(service.requests.used() + service.request_bytes.used(), 0);
    }
}
