//! The listener, and the way of a request: guards, session, the broker.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener as StdListener, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Limited};
use hyper::body::Incoming;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::ask::{self, Ask};
use crate::bounds::{
    BODY_TIME_MAX, BUFFER_BYTES, CONNECTION_TIME_MAX, CONNECTIONS_MAX, FOLLOWS_MAX, HEAD_TIME_MAX,
    LINE_BYTES_MAX, LOGIN_BODY_TIME_MAX, LOGINS_MAX, REQUESTS_MAX, SMALL_BODY_BYTES_MAX,
    TURN_TIME_MAX, USER_BYTES_MAX,
};
use crate::broker::{Broker, Who};
use crate::failure::Failure;
use crate::follow::{self, EVENT_STREAM, Events, Follow, Followed, Sent};
use crate::guard::Guard;
use crate::host::Host;
use crate::places::{Place, Places};
use crate::rights::Role;
use crate::session::{Session, Sessions};
use crate::watch::Watch;
use crate::{api, assets};

/// After a failure to accept, try again so much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The header with the session's token, which no other page can know.
const TOKEN: HeaderName = HeaderName::from_static("x-console-token");
/// Nothing but the console's own files is loaded, and no other page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const JSON: &str = "application/json";

/// How the console is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address to listen on.
    pub host: String,
    /// Port to listen on; 0 lets the system choose.
    pub port: u16,
    /// It changes nothing, whoever asks.
    pub read_only: bool,
    /// Names under which browsers reach it, beside addresses and `localhost`.
    pub hosts: Vec<String>,
}

/// Why the console cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {host}:{port}: {source}")]
pub struct StartError {
    host: String,
    port: u16,
    source: std::io::Error,
}

/// Serves the console within the runtime of the caller; where it listens.
///
/// # Errors
/// [`StartError`].
pub fn start(settings: Settings, host: Arc<dyn Host>) -> Result<SocketAddr, StartError> {
    let (listener, address) = listen(&settings).map_err(|source| StartError {
        host: settings.host.clone(),
        port: settings.port,
        source,
    })?;
    let console = Arc::new(Console {
        host: host.clone(),
        guard: Guard::new(settings.hosts, &settings.host),
        sessions: Sessions::new(address.port()),
        watch: Watch::start(&host),
        was_closed: AtomicBool::new(false),
        read_only: settings.read_only,
        requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
        logins: Arc::new(Semaphore::new(LOGINS_MAX)),
        follows: Arc::new(Semaphore::new(FOLLOWS_MAX)),
    });
    tokio::spawn(accept(console, listener));
    Ok(address)
}

fn listen(settings: &Settings) -> std::io::Result<(TcpListener, SocketAddr)> {
    let addresses: Vec<_> = (&*settings.host, settings.port).to_socket_addrs()?.collect();
    let listener = StdListener::bind(&*addresses)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((TcpListener::from_std(listener)?, address))
}

struct Console {
    host: Arc<dyn Host>,
    guard: Guard,
    sessions: Sessions,
    watch: Arc<Watch>,
    /// Whether the log says that nobody may use the console.
    was_closed: AtomicBool,
    read_only: bool,
    requests: Arc<Semaphore>,
    logins: Arc<Semaphore>,
    follows: Arc<Semaphore>,
}

async fn accept(console: Arc<Console>, listener: TcpListener) {
    let places = Places::new(CONNECTIONS_MAX);
    loop {
        let Ok((stream, remote)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Else all are being answered: this one is closed.
        if let Some(place) = places.take() {
            let (console, served) = (console.clone(), place.clone());
            let task = tokio::spawn(async move {
                let served = serve(console, stream, remote, served);
                // Whoever stays longer than that opens another connection.
                let _ = tokio::time::timeout(CONNECTION_TIME_MAX, served).await;
            });
            place.served_by(task.abort_handle());
        }
    }
}

async fn serve(console: Arc<Console>, stream: TcpStream, remote: SocketAddr, place: Arc<Place>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (console, place) = (console.clone(), place.clone());
        async move {
            let _answering = place.answer();
            Ok::<_, Infallible>(console.answer(request, remote, &place).await)
        }
    });
    // An error here means that the peer went away or did not speak HTTP.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// An answer of the API: its status, its JSON, and perhaps a cookie.
struct Answer {
    status: StatusCode,
    body: String,
    cookie: Option<String>,
}

impl From<Value> for Answer {
    fn from(body: Value) -> Self {
        body.to_string().into()
    }
}

impl From<String> for Answer {
    fn from(body: String) -> Self {
        Self { status: StatusCode::OK, body, cookie: None }
    }
}

impl Console {
    /// Writes one line to the log, whatever names hold, and however long they are.
    fn log(&self, line: &str) {
        let mut end = line.len().min(LINE_BYTES_MAX);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        let shown = line[..end].chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
        let mut shown: String = shown.collect();
        if end < line.len() {
            shown.push('…');
        }
        self.host.log(&shown);
    }

    /// Refuses everybody while the console must not be used.
    fn check_open(&self) -> Result<(), Failure> {
        let why = self.host.closed();
        if self.was_closed.swap(why.is_some(), Ordering::Relaxed) != why.is_some() {
            match &why {
                Some(why) => self.log(&format!("Console: closed: {why}")),
                None => self.log("Console: open again"),
            }
            self.sessions.close_all();
        }
        why.map_or(Ok(()), |why| Err(Failure::Closed(why)))
    }

    async fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        remote: SocketAddr,
        place: &Arc<Place>,
    ) -> Response<Sent> {
        let checked = self.check_open().and_then(|()| self.guard.check_host(request.headers()));
        if let Err(failure) = checked {
            return respond(failure.status(), JSON, failure.body().to_string());
        }
        let path = request.uri().path().to_owned();
        let Some(below) = path.strip_prefix("/api/") else {
            let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
            return match assets::find(&path).filter(|_| is_read) {
                Some(asset) => respond(StatusCode::OK, asset.kind, asset.text),
                None => respond(StatusCode::NOT_FOUND, "text/plain", "not found\n"),
            };
        };
        if let Some(followed) = below.strip_prefix("follow/").filter(|_| is_get(&request)) {
            return match self.follow(followed, &request, remote, place) {
                Ok(events) => respond_with(StatusCode::OK, EVENT_STREAM, Either::Right(events)),
                Err(failure) => respond(failure.status(), JSON, failure.body().to_string()),
            };
        }
        let answer = self.call(below, request, remote).await.unwrap_or_else(|failure| Answer {
            status: failure.status(),
            body: failure.body().to_string(),
            cookie: None,
        });
        let mut response = respond(answer.status, JSON, answer.body);
        if let Some(cookie) = answer.cookie.and_then(|text| HeaderValue::from_str(&text).ok()) {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        response
    }

    async fn call(
        self: &Arc<Self>,
        path: &str,
        request: Request<Incoming>,
        remote: SocketAddr,
    ) -> Result<Answer, Failure> {
        let (head, body) = request.into_parts();
        let headers = &head.headers;
        self.guard.check_origin(headers)?;
        match (head.method.as_str(), path) {
            ("GET", "session") => return Ok(self.session(headers).into()),
            ("POST", "login") => {
                let read = read(headers, body, SMALL_BODY_BYTES_MAX, LOGIN_BODY_TIME_MAX);
                let read = read.await?;
                // Not before: whoever sends slowly must not keep others from logging in.
                let place = take(&self.logins)?;
                return finish(self.clone().log_in(read, remote, place)).await;
            }
            _ => {}
        }
        let session = self.sessions.find(headers)?;
        let changes = head.method != Method::GET;
        if changes {
            check_token(headers, &session)?;
            if path == "logout" {
                let cookie = Some(self.sessions.close(headers));
                return Ok(Answer { cookie, ..json!({}).into() });
            }
            if self.read_only {
                return Err(Failure::ReadOnly);
            }
        }
        let places = [take(&session.places)?, take(&self.requests)?];
        let mut ask = Ask::new(path, head.uri.query().unwrap_or_default())?;
        check_role(&session, head.method.as_str(), &ask)?;
        if changes {
            ask.raw = Some(read(headers, body, ask.body_bytes_max(), BODY_TIME_MAX).await?);
        }
        let text = |told: Value| told.to_string();
        let asked = self.clone().ask_broker(session, head.method, ask, remote, (places, text));
        let done = finish(asked).await;
        if let Err(Failure::NotLoggedIn(_)) = done {
            self.sessions.close(headers);
        }
        done.map(Answer::from)
    }

    /// Begins to send what a path answers, whenever that has changed.
    fn follow(
        self: &Arc<Self>,
        path: &str,
        request: &Request<Incoming>,
        remote: SocketAddr,
        place: &Arc<Place>,
    ) -> Result<Events, Failure> {
        let headers = request.headers();
        self.guard.check_origin(headers)?;
        let session = self.sessions.find(headers)?;
        let places = [take(&session.follows)?, take(&self.follows)?];
        let mut ask = Ask::new(path, request.uri().query().unwrap_or_default())?;
        check_role(&session, "GET", &ask)?;
        let what = Followed::of(&ask)?;
        let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
        follow::resume(what, &mut ask, last);
        let (sender, events) = follow::events();
        let follower = Follower { console: self.clone(), headers: headers.clone(), remote, sender };
        let answering = place.answer();
        tokio::spawn(async move {
            let _held = (places, answering);
            let gone = follower.sender.clone();
            tokio::select! {
                () = gone.closed() => {}
                () = follower.run(what, ask) => {}
            }
        });
        Ok(events)
    }

    /// What the page asks first.
    fn session(&self, headers: &HeaderMap) -> Value {
        let facts = self.host.facts();
        let mut told = json!({
            "server": facts.name,
            "version": facts.version,
            "needs_login": facts.needs_login,
            "read_only": self.read_only,
        });
        if let Ok(session) = self.sessions.find(headers) {
            told["user"] = session.user.as_str().into();
            told["account"] = session.account.as_str().into();
            told["token"] = session.token.as_str().into();
            told["role"] = session.role.name().into();
            told["sees_server"] = (facts.is_open || session.account == facts.system_account).into();
        }
        told
    }

    async fn log_in(
        self: Arc<Self>,
        body: Bytes,
        remote: SocketAddr,
        _place: OwnedSemaphorePermit,
    ) -> Result<Answer, Failure> {
        let body: ask::Body = ask::parse(&body)?;
        let name = body.user.clone().unwrap_or_default();
        let role = Role::parse(body.role.as_deref().unwrap_or_default());
        let role = role.ok_or_else(|| Failure::bad("the role must be read, operate or admin"))?;
        let url = self.host.client_url();
        let opened = tokio::task::spawn_blocking(move || {
            if body.user.as_ref().is_some_and(|user| user.len() > USER_BYTES_MAX) {
                return Err(Failure::bad(format!("a user has at most {USER_BYTES_MAX} bytes")));
            }
            let mut broker = Broker::log_in(url, Who::given(body)?)?;
            let (user, account) = api::identity(&mut broker);
            Ok((broker, user, account))
        });
        let (broker, user, account) = match joined(opened.await) {
            Ok(opened) => opened,
            Err(failure) => {
                self.log(&format!("Console: login of {name:?} from {remote} failed: {failure}"));
                return Err(failure);
            }
        };
        let shown = user.unwrap_or(name);
        let (cookie, session) = self.sessions.open(broker, shown, account, role)?;
        let (user, account) = (&session.user, &session.account);
        self.log(&format!(
            "Console: {user:?} of account {account:?} logged in from {remote} as {}",
            role.name()
        ));
        let facts = self.host.facts();
        let body = json!({
            "user": user,
            "account": account,
            "token": session.token,
            "role": role.name(),
            "sees_server": facts.is_open || *account == facts.system_account,
        });
        Ok(Answer { cookie: Some(cookie), ..body.into() })
    }

    /// Asks the broker as the user, and makes of what it tells what the caller needs, on a thread that may block.
    async fn ask_broker<T: Send + 'static>(
        self: Arc<Self>,
        session: Arc<Session>,
        method: Method,
        mut ask: Ask,
        remote: SocketAddr,
        (_places, shape): ([OwnedSemaphorePermit; 2], impl FnOnce(Value) -> T + Send + 'static),
    ) -> Result<T, Failure> {
        let turn = tokio::time::timeout(TURN_TIME_MAX, session.broker.clone().lock_owned());
        let mut broker = turn.await.map_err(|_| Failure::Busy)?;
        let (console, account) = (self.clone(), session.account.clone());
        let asked = tokio::task::spawn_blocking(move || {
            broker.begin();
            if let Err(failure) = ask.open() {
                return (None, Err(failure));
            }
            let mut call = api::Call {
                broker: &mut broker,
                ask: &ask,
                facts: &console.host.facts(),
                host: &*console.host,
                watch: &console.watch,
                account: &account,
                change: None,
            };
            let done = call.run(method.as_str()).map(shape);
            (call.change, done)
        });
        let (change, done) = asked.await.map_err(|_| Failure::Unavailable(PANICKED.to_owned()))?;
        if let Some(change) = change {
            let (user, account) = (&session.user, &session.account);
            let outcome = match &done {
                Ok(_) => "done".to_owned(),
                Err(failure) => format!("failed: {failure}"),
            };
            self.log(&format!(
                "Console: {user:?} of account {account:?} from {remote}: {change}: {outcome}"
            ));
        }
        done
    }
}

/// Who sends a stream of events.
struct Follower {
    console: Arc<Console>,
    /// Those of the request: whose session it is is looked at again each time.
    headers: HeaderMap,
    remote: SocketAddr,
    sender: mpsc::Sender<Bytes>,
}

impl Follower {
    /// Looks again and again, until the browser has gone, its session has ended, or the broker refuses. What is
    /// wrong then the browser hears when it asks once more.
    async fn run(self, what: Followed, mut ask: Ask) {
        let mut follow = Follow::new(what);
        let mut sent = self.sender.send(Follow::begin()).await;
        while sent.is_ok() && !follow.is_over() {
            // Before the look, so that nothing between the two is missed.
            let news = self.console.watch.news();
            match self.look(&ask).await {
                Ok(answer) => {
                    if let Some(bytes) = follow.heard(&mut ask, &answer) {
                        sent = self.sender.send(bytes).await;
                    }
                }
                // Others are asked for now; the next look is soon.
                Err(Failure::Busy) => {}
                Err(_) => return,
            }
            if what == Followed::Events {
                let _ = tokio::time::timeout(what.step(), news).await;
            } else {
                tokio::time::sleep(what.step()).await;
            }
        }
    }

    async fn look(&self, ask: &Ask) -> Result<Value, Failure> {
        self.console.check_open()?;
        let session = self.console.sessions.find(&self.headers)?;
        let places = [take(&session.places)?, take(&self.console.requests)?];
        let console = self.console.clone();
        let asked =
            console.ask_broker(session, Method::GET, ask.clone(), self.remote, (places, same));
        finish(asked).await
    }
}

const fn same(told: Value) -> Value {
    told
}

fn is_get(request: &Request<Incoming>) -> bool {
    request.method() == Method::GET
}

/// A place among those that are served at a time.
fn take(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Failure> {
    places.clone().try_acquire_owned().map_err(|_| Failure::Busy)
}

/// Does it to its end, also when the browser hangs up meanwhile: what has begun keeps its place, and
/// is told in the log.
async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    joined(tokio::spawn(work).await)
}

const PANICKED: &str = "the console has failed";

fn joined<T>(done: Result<Result<T, Failure>, tokio::task::JoinError>) -> Result<T, Failure> {
    done.unwrap_or_else(|_| Err(Failure::Unavailable(PANICKED.to_owned())))
}

fn check_token(headers: &HeaderMap, session: &Session) -> Result<(), Failure> {
    let given = headers.get(TOKEN).map(HeaderValue::as_bytes).unwrap_or_default();
    match given == session.token.as_bytes() {
        true => Ok(()),
        false => Err(Failure::Foreign("the session's token is missing")),
    }
}

/// Refuses what is more than the session's role.
fn check_role(session: &Session, method: &str, ask: &Ask) -> Result<(), Failure> {
    let path: Vec<&str> = ask.path.iter().map(String::as_str).collect();
    let needed = Role::needed(method, &path);
    match session.role >= needed {
        true => Ok(()),
        false => Err(Failure::Denied(format!(
            "you have logged in with the role {}, this needs {}",
            session.role.name(),
            needed.name()
        ))),
    }
}

/// A body of JSON. Its media type is one that no form of another page can send.
async fn read(
    headers: &HeaderMap,
    body: Incoming,
    bytes_max: usize,
    time_max: Duration,
) -> Result<Bytes, Failure> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some(JSON) {
        return Err(Failure::bad("the body must be application/json"));
    }
    let whole = Limited::new(body, bytes_max).collect();
    let whole = tokio::time::timeout(time_max, whole).await.map_err(|_| Failure::TimedOut)?;
    Ok(whole.map_err(|_| Failure::TooLarge(bytes_max))?.to_bytes())
}

fn respond(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response<Sent> {
    respond_with(status, kind, follow::whole(text))
}

fn respond_with(status: StatusCode, kind: &'static str, body: Sent) -> Response<Sent> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let fixed = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
