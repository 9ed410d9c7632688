//! Accounts that are asked for when they are needed: of an HTTP server (`URL(…)`), or on the system account
//! (`type: cache`), whose answers a directory keeps.
//!
//! One task hears of all that is needed, so an account is asked for once however many clients wait for it,
//! and what comes at the same time is put in force at once. What an account imports from others brings those
//! along. An account that was asked for is not asked for again for a second, whatever came of it.

use super::enforce::apply;
use super::http::AccountServer;
use crate::operator::derive::{collision, fault};
use crate::operator::store::StoredToken;
use crate::operator::wants::Want;
use crate::operator::{Operator, StoreError};
use crate::options::{OperatorOptions, Resolver, SYSTEM_ACCOUNT};
use crate::own_requests::Answers;
use crate::server::Server;
use nuthatch_protocol::jwt::MAX_TOKEN_BYTES;
use nuthatch_streams::Message;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinSet};

/// Accounts that are asked for at once.
pub const FETCHES_MAX: usize = 16;
/// Accounts of which is known that they were asked for lately; further ones have to wait.
pub const ASKED_MAX: usize = 16_384;
/// Accounts that one account brings along, directly and through others, by what it imports.
pub const IMPORTED_MAX: usize = 64;
/// An account is asked for at most this often.
const AGAIN: Duration = Duration::from_secs(1);
/// How often the system account is looked for, and files that are too old.
const TICK: Duration = Duration::from_secs(1);
/// Answers of other servers that wait to be looked at.
const ANSWERS_MAX: usize = 16;

/// Where accounts come from.
enum Source {
    /// An HTTP server.
    Url(Box<AccountServer>),
    /// Whoever answers on the system account.
    Cache(Duration),
}

/// Begins to ask for accounts that are needed, if the resolver does.
///
/// # Errors
/// The HTTP server cannot be asked.
pub(super) fn start(
    server: &Arc<Server>,
    operator: &Arc<Operator>,
    mode: &OperatorOptions,
) -> Result<(), StoreError> {
    let source = match &mode.resolver {
        Some(Resolver::Url(url)) => {
            let there = AccountServer::new(url.clone(), mode.resolver_tls.clone());
            Source::Url(Box::new(answers(there.map_err(StoreError::Resolver)?)?))
        }
        Some(Resolver::Cache(cache)) => Source::Cache(cache.timeout),
        _ => return Ok(()),
    };
    let Some(runtime) = server.runtime() else { return Ok(()) };
    let wants = operator.wants.open();
    let fetching = Fetching {
        server: Arc::downgrade(server),
        operator: operator.clone(),
        source: Arc::new(source),
        waiting: FxHashMap::default(),
        asked: FxHashMap::default(),
        fetches: JoinSet::new(),
        keys: FxHashMap::default(),
    };
    runtime.spawn(fetching.run(wants));
    Ok(())
}

/// The HTTP server, which must answer at the start: an address with a slip of the pen would look like
/// accounts that are not there.
fn answers(there: AccountServer) -> Result<AccountServer, StoreError> {
    let ask = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let asked = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
            let got = runtime.block_on(there.get(""));
            got.map_err(|error| format!("could not fetch <\"{}\">: {error}", there.url))
        });
        asked.map(|_| there)
    };
    // In a thread of its own: whoever starts the server may be a task.
    let asked = std::thread::spawn(ask).join();
    asked.unwrap_or_else(|_| Err("asking has failed".to_owned())).map_err(StoreError::Resolver)
}

/// What was found under an account's key, and under those of the accounts that it imports from.
#[derive(Default)]
struct Found {
    tokens: Vec<StoredToken>,
    problems: Vec<String>,
}

struct Fetching {
    server: Weak<Server>,
    operator: Arc<Operator>,
    source: Arc<Source>,
    /// Who waits for what is asked for at present.
    waiting: FxHashMap<String, Vec<oneshot::Sender<()>>>,
    /// When accounts were asked for.
    asked: FxHashMap<String, Instant>,
    fetches: JoinSet<Found>,
    /// Which account each task is about.
    keys: FxHashMap<Id, String>,
}

impl Fetching {
    async fn run(mut self, mut wants: mpsc::Receiver<Want>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                want = wants.recv(), if self.fetches.len() < FETCHES_MAX => match want {
                    Some(Want { key, done }) => self.take(key, Some(done)),
                    None => return,
                },
                Some(done) = self.fetches.join_next_with_id() => self.finish(done).await,
                _ = tick.tick() => self.look_after().await,
            }
            if self.server.strong_count() == 0 {
                return;
            }
        }
    }

    /// Asks for an account, unless that is done already or was done just now.
    fn take(&mut self, key: String, done: Option<oneshot::Sender<()>>) {
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.extend(done);
            return;
        }
        let now = Instant::now();
        if self.asked.len() >= ASKED_MAX {
            self.asked.retain(|_, at| now.duration_since(*at) < AGAIN);
        }
        let lately = self.asked.get(&key).is_some_and(|at| now.duration_since(*at) < AGAIN);
        if lately || self.asked.len() >= ASKED_MAX {
            // It may have come since whoever wants it has looked.
            let account = self.operator.account(&key).filter(|account| !account.is_expired());
            if let (Some(_), Some(done)) = (account, done) {
                let _ = done.send(());
            }
            return;
        }
        self.asked.insert(key.clone(), now);
        self.waiting.insert(key.clone(), done.into_iter().collect());
        let (server, operator) = (self.server.clone(), self.operator.clone());
        let gathered = gather(server, operator, self.source.clone(), key.clone());
        let task = self.fetches.spawn(gathered);
        self.keys.insert(task.id(), key);
    }

    /// Puts in force what has come, together with what else has come by now, and tells those who wait.
    async fn finish(&mut self, first: Result<(Id, Found), tokio::task::JoinError>) {
        let mut all = Found::default();
        let mut keys = Vec::new();
        let mut next = Some(first);
        while let Some(done) = next {
            let id = match done {
                Ok((id, found)) => {
                    all.tokens.extend(found.tokens);
                    all.problems.extend(found.problems);
                    id
                }
                Err(error) => error.id(),
            };
            keys.extend(self.keys.remove(&id));
            next = self.fetches.try_join_next_with_id();
        }
        if let Some(server) = self.server.upgrade() {
            let operator = self.operator.clone();
            // It writes files, and looks at every account.
            let work = move || adopt(&server, &operator, all);
            let _ = tokio::task::spawn_blocking(work).await;
        }
        for done in keys.iter().filter_map(|key| self.waiting.remove(key)).flatten() {
            // Who does not wait any more has gone.
            let _ = done.send(());
        }
    }

    /// Looks for the system account until it is there, and for files that nobody has used.
    async fn look_after(&mut self) {
        let operator = &self.operator;
        let system = operator.system_account.clone();
        let is_wanted = system != SYSTEM_ACCOUNT && operator.store.get(&system).is_none();
        if let Some(cache) = operator.store.cache().cloned() {
            let _ = tokio::task::spawn_blocking(move || cache.sweep()).await;
        }
        if is_wanted && self.fetches.len() < FETCHES_MAX {
            self.take(system, None);
        }
    }
}

/// Keeps tokens and puts them in force. Blocks.
fn adopt(server: &Arc<Server>, operator: &Operator, found: Found) {
    for problem in &found.problems {
        // The system account is looked for again and again.
        match problem.contains(&operator.system_account) {
            true => server.log.debug(format_args!("{problem}")),
            false => server.log.warn(format_args!("{problem}")),
        }
    }
    let mut is_other = false;
    for stored in found.tokens {
        let key = stored.key().to_owned();
        match operator.store.save(stored) {
            Ok(changed) => is_other |= changed,
            Err(error) => server.log.error(format_args!("account {key} is not served: {error}")),
        }
    }
    if is_other {
        apply(server, operator);
    }
}

/// Asks for an account, and for those that are not here and that it imports from.
async fn gather(
    server: Weak<Server>,
    operator: Arc<Operator>,
    source: Arc<Source>,
    key: String,
) -> Found {
    let mut found = Found::default();
    let mut seen = BTreeSet::from([key.clone()]);
    let mut left = VecDeque::from([key]);
    while let Some(key) = left.pop_front() {
        let token = match source.fetch(&server, &operator, &key).await {
            Ok(token) => checked(&operator, &key, token).await,
            Err(why) => Err(why),
        };
        match token {
            Ok(stored) => {
                for import in &stored.claims.nats.imports {
                    let account = &import.account;
                    let is_new = operator.store.get(account).is_none()
                        && seen.len() <= IMPORTED_MAX
                        && seen.insert(account.clone());
                    left.extend(is_new.then(|| account.clone()));
                }
                found.tokens.push(stored);
            }
            Err(why) => found.problems.push(format!("Account fetch failed: {key}: {why}")),
        }
    }
    found
}

/// What a text says, if it is the token of this account and counts here.
async fn checked(operator: &Arc<Operator>, key: &str, text: String) -> Result<StoredToken, String> {
    let (operator, key) = (operator.clone(), key.to_owned());
    let work = move || {
        let stored = StoredToken::decode(text.trim()).map_err(|error| error.to_string())?;
        if stored.key() != key {
            return Err("it is the token of another account".to_owned());
        }
        if let Some(fault) = fault(&stored, &operator.trust) {
            return Err(fault);
        }
        match operator.store.namesake(&key) {
            Some(other) => Err(collision(&key, &other)),
            None => Ok(stored),
        }
    };
    // A token may have a megabyte.
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err("it cannot be read".to_owned()))
}

impl Source {
    /// The token of an account, as text.
    async fn fetch(
        &self,
        server: &Weak<Server>,
        operator: &Operator,
        key: &str,
    ) -> Result<String, String> {
        match self {
            Self::Url(there) => {
                let got = there.get(key).await;
                got.map_err(|error| format!("could not fetch <\"{}{key}\">: {error}", there.url))
            }
            Self::Cache(timeout) => {
                let server = server.upgrade().ok_or("the server ends")?;
                if let Some(token) = cached(operator, key).await {
                    return Ok(token);
                }
                let asked = tokio::time::timeout(*timeout, ask_others(&server, key)).await;
                asked.unwrap_or_else(|_| Err("fetching jwt timed out".to_owned()))
            }
        }
    }
}

/// A token that the directory has, unless that account is in force already: then it is asked for because
/// its time is over.
async fn cached(operator: &Operator, key: &str) -> Option<String> {
    if operator.store.get(key).is_some() {
        return None;
    }
    let (cache, key) = (operator.store.cache()?.clone(), key.to_owned());
    let taken = tokio::task::spawn_blocking(move || cache.take(&key)).await;
    taken.ok().flatten().map(|stored| stored.jwt)
}

/// The first answer on the system account that is not empty; where there is no cluster the first one counts.
async fn ask_others(server: &Server, key: &str) -> Result<String, String> {
    let bounds = (ANSWERS_MAX, MAX_TOKEN_BYTES);
    let mut answers = Answers::subscribe(server, server.accounts.system().clone(), bounds);
    let subject = format!("$SYS.REQ.ACCOUNT.{key}.CLAIMS.LOOKUP");
    let (subject, reply) = (subject.as_bytes(), answers.subject());
    let message = Message { subject, reply, headers: b"", body: b"" };
    server.publish(answers.account().id, &message);
    loop {
        let answer = answers.next().await.ok_or("the server ends")?;
        if !answer.is_empty() {
            return String::from_utf8(answer.into())
                .map_err(|_| "the answer is no text".to_owned());
        }
        if server.options().cluster.is_none() {
            return Err("account jwt not found".to_owned());
        }
    }
}
