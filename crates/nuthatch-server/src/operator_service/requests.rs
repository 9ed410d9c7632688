//! Requests to the system account about the tokens of accounts: what `nsc push` and
//! `nats auth account push` send. Subjects, answers and texts are nats-server's.
//!
//! They are worked off one after the other, so two tokens of one account count in the order in
//! which they were sent.

use super::enforce::apply;
use crate::egress::{DeliveryContext, Outgoing};
use crate::operator::derive::{collision, fault};
use crate::operator::store::StoredToken;
use crate::operator::{Operator, seconds};
use crate::server::Server;
use crate::signature;
use crate::subscription::{Receiver, Subscription};
use bytes::Bytes;
use nuthatch_protocol::jwt::{self, GenericClaims, MAX_TOKEN_BYTES};
use nuthatch_protocol::nkey::{KeyKind, decode_as};
use nuthatch_streams::Message;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde_json::{Value, json};
use std::sync::{Arc, Weak};
use std::time::SystemTime;
use tokio::sync::mpsc;

/// Requests that wait at a time; beyond that they are dropped as without a subscriber.
const REQUESTS_MAX: usize = 256;
/// Answered in every mode.
const UPDATES: &[&str] = &["$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", "$SYS.ACCOUNT.*.CLAIMS.UPDATE"];
/// Answered where accounts are in a directory.
const OF_DIRECTORY: &[&str] = &[
    "$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP",
    "$SYS.REQ.CLAIMS.UPDATE",
    "$SYS.REQ.CLAIMS.LIST",
    "$SYS.REQ.CLAIMS.PACK",
    "$SYS.REQ.CLAIMS.DELETE",
];

/// Answered where a directory keeps what came from others. They are not handed on: whoever asks for an account
/// would be told of those that somebody here has needed.
const OF_CACHE: &[&str] =
    &["$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.LIST", "$SYS.REQ.CLAIMS.DELETE"];

/// A request, taken out of its connection's buffers.
struct Request {
    subject: String,
    reply: Bytes,
    body: Bytes,
}

/// Subscribes to the requests in the system account and begins to work them off.
pub(super) fn install(server: &Arc<Server>, operator: &Arc<Operator>) {
    let Some(runtime) = server.runtime() else { return };
    let (sender, receiver) = mpsc::channel(REQUESTS_MAX);
    runtime.spawn(work_off(Arc::downgrade(server), operator.clone(), receiver));
    let store = &operator.store;
    let of_directory = match (store.is_directory(), store.cache()) {
        (true, _) => OF_DIRECTORY,
        (_, Some(_)) => OF_CACHE,
        _ => &[],
    };
    for pattern in UPDATES.iter().chain(of_directory) {
        let outlet = server.own_peer().outlet.clone();
        let sub = Subscription::of_server(
            outlet,
            pattern.as_bytes(),
            Arc::new(TokenRequests(sender.clone())),
        );
        server.accounts.system().interest.insert(Arc::new(sub));
    }
}

/// Takes requests in the system account.
struct TokenRequests(mpsc::Sender<Request>);

impl Receiver for TokenRequests {
    fn receive(
        &self,
        _sub: &Subscription,
        message: &Outgoing<'_>,
        _way: &mut DeliveryContext<'_>,
    ) -> bool {
        let Ok(subject) = std::str::from_utf8(message.routed) else { return false };
        if message.body.len() > MAX_TOKEN_BYTES {
            return false;
        }
        let request = Request {
            subject: subject.to_owned(),
            reply: Bytes::copy_from_slice(message.reply),
            body: Bytes::copy_from_slice(message.body),
        };
        self.0.try_send(request).is_ok()
    }
}

async fn work_off(
    server: Weak<Server>,
    operator: Arc<Operator>,
    mut requests: mpsc::Receiver<Request>,
) {
    while let Some(request) = requests.recv().await {
        let Some(server) = server.upgrade() else { return };
        let operator = operator.clone();
        let work = move || Work { server: &server, operator: &operator }.answer(&request);
        // It writes files and waits for the disk. A panic ends one request, not all.
        let _ = tokio::task::spawn_blocking(work).await;
    }
}

/// How a change of tokens went: whose they are, and what to say.
struct TokenChange {
    account: String,
    message: String,
    error: Option<String>,
}

impl TokenChange {
    fn well(account: &str, message: &str) -> Self {
        Self { account: account.to_owned(), message: message.to_owned(), error: None }
    }

    fn badly(account: &str, message: &str, error: impl ToString) -> Self {
        Self { error: Some(error.to_string()), ..Self::well(account, message) }
    }
}

struct Work<'a> {
    server: &'a Arc<Server>,
    operator: &'a Operator,
}

impl Work<'_> {
    fn answer(&self, request: &Request) {
        let tokens: Vec<&str> = request.subject.split('.').skip(1).collect();
        match tokens[..] {
            ["REQ", "CLAIMS", "UPDATE"] => self.say(request, self.update(None, &request.body)),
            ["REQ", "ACCOUNT", key, "CLAIMS", "UPDATE"] | ["ACCOUNT", key, "CLAIMS", "UPDATE"] => {
                self.say(request, self.update(Some(key), &request.body));
            }
            ["REQ", "ACCOUNT", key, "CLAIMS", "LOOKUP"] => {
                let stored = self.operator.store.get(key);
                self.send(request, stored.as_ref().map_or(b"", |stored| stored.jwt.as_bytes()));
            }
            ["REQ", "CLAIMS", "LIST"] => {
                let keys: Vec<String> = self.current().into_iter().map(|(key, _)| key).collect();
                let body = json!({ "server": self.server.description(), "data": keys });
                self.send(request, &serde_json::to_vec(&body).unwrap_or_default());
            }
            ["REQ", "CLAIMS", "PACK"] => self.pack(request),
            ["REQ", "CLAIMS", "DELETE"] => self.say(request, self.delete(&request.body)),
            _ => {}
        }
    }

    /// Accounts whose time is not over.
    fn current(&self) -> Vec<(String, Arc<StoredToken>)> {
        let now = seconds(SystemTime::now());
        let is_over = |stored: &StoredToken| {
            let expires = stored.claims.data.expires;
            expires > 0 && expires < now
        };
        self.operator.store.snapshot().into_iter().filter(|(_, stored)| !is_over(stored)).collect()
    }

    /// All tokens, one a message, and an empty message; only that one if the body is their hash.
    fn pack(&self, request: &Request) {
        let accounts = self.operator.store.snapshot();
        let mut hash = [0; SHA256_OUTPUT_LEN];
        for stored in accounts.values() {
            let of_token = digest(&SHA256, stored.jwt.as_bytes());
            hash.iter_mut().zip(of_token.as_ref()).for_each(|(byte, other)| *byte ^= other);
        }
        if request.body != hash[..] {
            for (key, stored) in self.current() {
                self.send(request, format!("{key}|{}", stored.jwt).as_bytes());
            }
        }
        self.send(request, b"");
    }

    /// Puts a token in force, for the account `wanted` if one is named.
    fn update(&self, wanted: Option<&str>, body: &[u8]) -> TokenChange {
        const FAILED: &str = "jwt update resulted in error";
        let text = std::str::from_utf8(body).unwrap_or_default().trim();
        let stored = match StoredToken::decode(text) {
            Ok(stored) => stored,
            Err(error) => return TokenChange::badly(wanted.unwrap_or("n/a"), FAILED, error),
        };
        let key = stored.key().to_owned();
        if let Some(wanted) = wanted.filter(|wanted| *wanted != key) {
            return TokenChange::badly(wanted, FAILED, "subject does not match jwt content");
        }
        let main = self.operator.trust.main.as_ref();
        if main.is_some_and(|main| main.is_strict && main.key == stored.claims.data.issuer) {
            let why = "operator requires issuer to be a signing key";
            return TokenChange::badly(&key, FAILED, why);
        }
        if let Some(fault) = fault(&stored, &self.operator.trust) {
            return TokenChange::badly(&key, "jwt validation failed", fault);
        }
        let store = &self.operator.store;
        let is_cache = store.cache().is_some();
        if let Some(other) = store.namesake(&key) {
            return TokenChange::badly(&key, "jwt validation failed", collision(&key, &other));
        }
        if !store.is_directory() && store.get(&key).is_none() {
            // Those that come when they are needed come as they are then.
            return TokenChange::well(
                &key,
                if is_cache { "jwt update cache skipped" } else { "jwt update skipped" },
            );
        }
        match self.operator.store.save(stored) {
            Ok(false) => {}
            Ok(true) => apply(self.server, self.operator),
            Err(error) => return TokenChange::badly(&key, FAILED, error),
        }
        TokenChange::well(&key, if is_cache { "jwt updated cache" } else { "jwt updated" })
    }

    /// Deletes the accounts that a token of the operator names.
    fn delete(&self, body: &[u8]) -> TokenChange {
        let text = std::str::from_utf8(body).unwrap_or_default().trim();
        let decoded: Result<GenericClaims, _> = jwt::decode(text, &signature::verify);
        let by = decoded.as_ref().map_or("", |claims| &claims.data.subject).to_owned();
        let failed = format!("delete accounts request by {by} failed");
        let keys = match decoded.map_err(|error| error.to_string()).and_then(|c| self.doomed(&c)) {
            Ok(keys) => keys,
            Err(error) => return TokenChange::badly("", &failed, error),
        };
        let (mut deleted, mut errors) = (0, Vec::new());
        for key in &keys {
            match self.operator.store.delete(key) {
                Ok(()) => deleted += 1,
                Err(error) => errors.push(error.to_string()),
            }
        }
        apply(self.server, self.operator);
        if errors.is_empty() {
            return TokenChange::well("", &format!("deleted {deleted} accounts"));
        }
        let message = format!("deleted {deleted} accounts, failed for {}", errors.len());
        TokenChange::badly("", &message, errors.join("\n"))
    }

    /// The accounts that a token asks to delete, if it may.
    fn doomed(&self, claims: &GenericClaims) -> Result<Vec<String>, String> {
        let main = self.operator.trust.main.as_ref();
        if !self.operator.store.may_delete() {
            return Err("delete must be enabled in server config".to_owned());
        }
        if claims.data.subject != claims.data.issuer {
            return Err("not self signed".to_owned());
        }
        if !main.is_some_and(|main| main.keys.contains(&claims.data.issuer)) {
            return Err("not trusted".to_owned());
        }
        let malformed = || "malformed request".to_owned();
        let list = claims.nats.0.get("accounts").and_then(Value::as_array).ok_or_else(malformed)?;
        let keys: Option<Vec<String>> =
            list.iter().map(|key| key.as_str().map(str::to_owned)).collect();
        let keys = keys.ok_or_else(malformed)?;
        if keys.iter().any(|key| decode_as(KeyKind::Account, key).is_none()) {
            return Err(malformed());
        }
        if keys.contains(&self.operator.system_account) {
            return Err("not allowed to delete system account".to_owned());
        }
        Ok(keys)
    }

    fn say(&self, request: &Request, done: TokenChange) {
        let TokenChange { account, message, error } = done;
        let whose = if account.is_empty() { String::new() } else { format!(" - {account}") };
        let log = &self.server.log;
        let part = match &error {
            None => {
                log.info(format_args!("{message}{whose}"));
                ("data", json!({ "account": account, "code": 200, "message": message }))
            }
            Some(error) => {
                log.error(format_args!("{message}{whose} - {error}"));
                let description = format!("{message} - {error}");
                ("error", json!({ "account": account, "code": 500, "description": description }))
            }
        };
        if request.reply.is_empty() {
            return;
        }
        let mut body = json!({ "server": self.server.description() });
        body[part.0] = part.1;
        self.server.publish_json(self.server.accounts.system(), &request.reply, &body);
    }

    fn send(&self, request: &Request, body: &[u8]) {
        if request.reply.is_empty() {
            return;
        }
        let message = Message { subject: &request.reply, reply: b"", headers: b"", body };
        self.server.publish(self.server.accounts.system().id, &message);
    }
}
