//! Who is logged in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::HeaderMap;
use hyper::header::COOKIE;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::Semaphore;

use crate::bounds::{
    SESSION_AGE_MAX, SESSION_FOLLOWS_MAX, SESSION_IDLE_MAX, SESSION_REQUESTS_MAX, SESSIONS_MAX,
    USER_SESSIONS_MAX,
};
use crate::broker::Broker;
use crate::failure::Failure;
use crate::rights::Role;

/// Bytes of a session's name and of its token.
const SECRET_BYTES: usize = 32;

/// A user who is logged in.
#[derive(Debug)]
pub struct Session {
    /// His connection; one request at a time.
    pub broker: Arc<tokio::sync::Mutex<Broker>>,
    /// His name, as the broker tells it.
    pub user: String,
    /// His account.
    pub account: String,
    /// What his page sends along with every change.
    pub token: String,
    /// What he may do at most.
    pub role: Role,
    /// Places for his requests.
    pub places: Arc<Semaphore>,
    /// Places for his streams of events.
    pub follows: Arc<Semaphore>,
}

struct Entry {
    session: Arc<Session>,
    since: Instant,
    last_used: Instant,
}

/// All sessions.
pub struct Sessions {
    cookie: String,
    entries: Mutex<HashMap<String, Entry>>,
}

impl Sessions {
    /// `port` keeps the cookies of several consoles of one host apart.
    pub fn new(port: u16) -> Self {
        Self { cookie: format!("nuthatch_console_{port}"), entries: Mutex::default() }
    }

    /// Opens a session; the value of the `Set-Cookie` header for it.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn open(
        &self,
        broker: Broker,
        user: String,
        account: String,
        role: Role,
    ) -> Result<(String, Arc<Session>), Failure> {
        let (id, token) = (secret()?, secret()?);
        let broker = Arc::new(tokio::sync::Mutex::new(broker));
        let places = Arc::new(Semaphore::new(SESSION_REQUESTS_MAX));
        let follows = Arc::new(Semaphore::new(SESSION_FOLLOWS_MAX));
        let session = Session { broker, user, account, token, role, places, follows };
        let session = Arc::new(session);
        let cookie = format!("{}={id}; Path=/; HttpOnly; SameSite=Strict", self.cookie);
        let now = Instant::now();
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| is_alive(entry, now));
        let is_same = |entry: &Entry| {
            entry.session.user == session.user && entry.session.account == session.account
        };
        make_place(&mut entries, USER_SESSIONS_MAX, is_same);
        make_place(&mut entries, SESSIONS_MAX, |_| true);
        entries.insert(id, Entry { session: session.clone(), since: now, last_used: now });
        Ok((cookie, session))
    }

    /// The session whose cookie a request carries.
    ///
    /// # Errors
    /// [`Failure::NotLoggedIn`].
    pub fn find(&self, headers: &HeaderMap) -> Result<Arc<Session>, Failure> {
        let mut entries = self.entries.lock();
        let now = Instant::now();
        entries.retain(|_, entry| is_alive(entry, now));
        for id in self.ids(headers) {
            if let Some(entry) = entries.get_mut(id) {
                entry.last_used = now;
                return Ok(entry.session.clone());
            }
        }
        Err(Failure::NotLoggedIn("nobody is logged in".to_owned()))
    }

    /// Ends the session of a request, if there is one; the value of the `Set-Cookie` header.
    pub fn close(&self, headers: &HeaderMap) -> String {
        let mut entries = self.entries.lock();
        for id in self.ids(headers) {
            entries.remove(id);
        }
        format!("{}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0", self.cookie)
    }

    /// Ends all sessions.
    pub fn close_all(&self) {
        self.entries.lock().clear();
    }

    fn ids<'h>(&'h self, headers: &'h HeaderMap) -> impl Iterator<Item = &'h str> {
        let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = all.flat_map(|text| text.split(';')).filter_map(|pair| pair.split_once('='));
        pairs.filter(|(name, _)| name.trim() == self.cookie).map(|(_, id)| id.trim())
    }
}

/// Ends the sessions that were used longest ago, until fewer than `max` such ones are left.
fn make_place(entries: &mut HashMap<String, Entry>, max: usize, counts: impl Fn(&Entry) -> bool) {
    loop {
        let such = || entries.iter().filter(|(_, entry)| counts(entry));
        if such().count() < max {
            return;
        }
        let oldest = such().min_by_key(|(_, entry)| entry.last_used);
        let Some(oldest) = oldest.map(|(id, _)| id.clone()) else { return };
        entries.remove(&oldest);
    }
}

fn is_alive(entry: &Entry, now: Instant) -> bool {
    now.duration_since(entry.since) < SESSION_AGE_MAX
        && now.duration_since(entry.last_used) < SESSION_IDLE_MAX
}

fn secret() -> Result<String, Failure> {
    let mut bytes = [0; SECRET_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Failure::Unavailable("the system gives no random bytes".to_owned()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
