//! The connection of one session to the broker.
//!
//! It is a client like any other, with the credentials that were given at the login: who may do what
//! is the broker's affair. It is opened again when it was lost, so that a user who was removed
//! meanwhile is logged out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nuthatch_client::{
    Client, ConnectError, ConnectOptions, Credentials, Identity, OwnedMessage, RequestError,
    ServerInfo, TransportError, nkey,
};
use nuthatch_protocol::subject::is_valid_literal;
use serde_json::Value;

use crate::ask::Body;
use crate::bounds::{ANSWER_TIME_MAX, BROKER_TIME_MAX, SUBJECT_BYTES_MAX, TRUSTED_IDLE};
use crate::failure::Failure;

/// Prefix of the JetStream API.
const API: &str = "$JS.API";
/// The connection's name in monitoring.
const CLIENT_NAME: &str = "nuthatch console";

/// Who logs in.
#[derive(Debug, Default)]
pub struct Who {
    credentials: Credentials,
    identity: Option<Arc<Identity>>,
}

impl Who {
    /// By what a login gives: a user and password, a token, the seed of an nkey, or the text of a
    /// file of credentials.
    ///
    /// # Errors
    /// [`Failure::BadRequest`] when the seed or the file is none.
    pub fn given(body: Body) -> Result<Self, Failure> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let key = given(body.key_text).map(|text| {
            let key =
                nkey::Nkey::from_text(&text).map_err(|error| Failure::bad(error.to_string()))?;
            // A seed alone is an nkey, which the configuration knows.
            Ok(Arc::new(Identity { key, jwt: nkey::jwt_of(&text).ok() }))
        });
        let credentials = Credentials {
            user: given(body.user),
            password: given(body.password),
            token: given(body.token),
        };
        Ok(Self { credentials, identity: key.transpose()? })
    }
}

/// A connection to the broker, with what is needed to open it again.
#[derive(Debug)]
pub struct Broker {
    address: String,
    who: Who,
    client: Option<Client>,
    last_used: Instant,
    deadline: Instant,
    pulls: u64,
}

impl Broker {
    /// Logs in.
    ///
    /// # Errors
    /// [`Failure::NotLoggedIn`] when the broker refuses the credentials.
    pub fn log_in(address: String, who: Who) -> Result<Self, Failure> {
        let now = Instant::now();
        let mut broker =
            Self { address, who, client: None, last_used: now, deadline: now, pulls: 0 };
        broker.begin();
        broker.client()?;
        Ok(broker)
    }

    /// Begins what one request of the browser asks for.
    pub fn begin(&mut self) {
        self.deadline = Instant::now() + ANSWER_TIME_MAX;
    }

    /// The server's INFO.
    ///
    /// # Errors
    /// When there is no connection.
    pub fn info(&mut self) -> Result<&ServerInfo, Failure> {
        Ok(self.client()?.info())
    }

    fn client(&mut self) -> Result<&mut Client, Failure> {
        let is_idle = self.last_used.elapsed() > TRUSTED_IDLE;
        self.last_used = Instant::now();
        // It may be closed by now; what has arrived meanwhile, such as pings, is answered on the way.
        self.client = self.client.take().and_then(|mut client| {
            (!is_idle || client.round_trip(BROKER_TIME_MAX).is_ok()).then_some(client)
        });
        match self.client.take() {
            Some(client) => Ok(self.client.insert(client)),
            None => Ok(self.client.insert(connect(&self.address, &self.who)?)),
        }
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// When the subject is none, the user may not, nobody answers, or the connection fails.
    pub fn request(
        &mut self,
        subject: &str,
        headers: &[u8],
        payload: &[u8],
        timeout: Duration,
    ) -> Result<OwnedMessage, Failure> {
        let timeout = self.check(subject, headers.len() + payload.len(), timeout)?;
        let asked = self.client()?.request(subject, headers, payload, timeout);
        asked.map_err(|error| match error {
            RequestError::NoResponders(subject) => Failure::NoResponders(subject),
            RequestError::TimedOut { .. } => Failure::TimedOut,
            RequestError::Transport(error) => self.lost(error),
        })
    }

    /// Asks a consumer for messages and waits for the first answer that is `wanted`: a delivery, which
    /// comes on the message's own subject, or a status.
    ///
    /// # Errors
    /// As [`Broker::request`].
    pub fn pull(
        &mut self,
        subject: &str,
        payload: &[u8],
        wanted: impl Fn(&OwnedMessage) -> bool,
    ) -> Result<OwnedMessage, Failure> {
        let timeout = self.check(subject, payload.len(), BROKER_TIME_MAX)?;
        self.pulls += 1;
        let pulls = self.pulls;
        let client = self.client()?;
        let inbox = format!("{}.p.{pulls}", client.inbox());
        let deadline = Instant::now() + timeout;
        let mut ask = || {
            let sid = client.subscribe(&inbox, "")?;
            client.writer.publish(subject.as_bytes(), inbox.as_bytes(), b"", payload)?;
            client.writer.flush()?;
            let found = loop {
                match client.next_message(deadline) {
                    // What answers something older is passed over.
                    Ok(found) if found.subject != inbox && !wanted(&found) => {}
                    found => break found,
                }
            };
            client.writer.unsubscribe(sid)?;
            found
        };
        ask().map_err(|error| self.lost(error))
    }

    /// Publishes, and waits until the broker has taken it.
    ///
    /// # Errors
    /// As [`Broker::request`].
    pub fn publish(
        &mut self,
        subject: &str,
        headers: &[u8],
        payload: &[u8],
    ) -> Result<(), Failure> {
        let timeout = self.check(subject, headers.len() + payload.len(), BROKER_TIME_MAX)?;
        let client = self.client()?;
        let sent = client.writer.publish(subject.as_bytes(), b"", headers, payload);
        let sent = sent.and_then(|()| client.round_trip(timeout));
        sent.map_err(|error| self.lost(error))
    }

    /// Whether the user may subscribe to a subject.
    ///
    /// # Errors
    /// [`Failure::Denied`]: he may not.
    pub fn check_listens(&mut self, subject: &str) -> Result<(), Failure> {
        let client = self.client()?;
        let asked = client.subscribe(subject, "").and_then(|sid| {
            client.round_trip(BROKER_TIME_MAX)?;
            client.writer.unsubscribe(sid)
        });
        asked.map_err(|error| self.lost(error))
    }

    /// Asks `$JS.API.<what>`.
    ///
    /// # Errors
    /// [`Failure::Refused`] when JetStream says no; else as [`Broker::request`].
    pub fn ask(&mut self, what: &str, body: &Value) -> Result<Value, Failure> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.ask_at(&format!("{API}.{what}"), b"", body.as_bytes())
    }

    /// Asks for JSON on any subject.
    ///
    /// # Errors
    /// As [`Broker::ask`].
    pub fn ask_at(&mut self, subject: &str, headers: &[u8], body: &[u8]) -> Result<Value, Failure> {
        let reply = self.request(subject, headers, body, BROKER_TIME_MAX)?;
        let mut value: Value = serde_json::from_slice(&reply.payload)
            .map_err(|error| Failure::Unavailable(format!("its answer is no JSON: {error}")))?;
        match value.get_mut("error").map(Value::take) {
            Some(error) => Err(Failure::Refused {
                code: error["code"].as_u64().unwrap_or_default(),
                err_code: error["err_code"].as_u64().unwrap_or_default(),
                description: error["description"].as_str().unwrap_or_default().to_owned(),
            }),
            None => Ok(value),
        }
    }

    /// What may be sent, and how long its answer may take.
    fn check(
        &mut self,
        subject: &str,
        bytes: usize,
        timeout: Duration,
    ) -> Result<Duration, Failure> {
        check_subject(subject)?;
        let max = self.client()?.info().max_payload;
        if max > 0 && bytes > max {
            return Err(Failure::TooLarge(max));
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::TimedOut);
        }
        Ok(left.min(timeout))
    }

    /// After an error of the connection: only one that is about permissions leaves it open.
    fn lost(&mut self, error: TransportError) -> Failure {
        if let TransportError::Server(text) = &error
            && text.to_ascii_lowercase().contains("permissions violation")
        {
            return Failure::Denied(text.clone());
        }
        self.client = None;
        match error {
            TransportError::TimedOut(_) => Failure::TimedOut,
            error => Failure::Unavailable(error.to_string()),
        }
    }
}

fn connect(address: &str, who: &Who) -> Result<Client, Failure> {
    let unavailable = |error: String| Failure::Unavailable(error);
    let mut options =
        ConnectOptions::new(address).map_err(|error| unavailable(error.to_string()))?;
    options.credentials = who.credentials.clone();
    options.identity = who.identity.clone();
    CLIENT_NAME.clone_into(&mut options.name);
    options.timeout = BROKER_TIME_MAX;
    Client::connect(&options).map_err(|error| match error {
        ConnectError::Denied { .. } => {
            Failure::NotLoggedIn("the broker refuses these credentials".to_owned())
        }
        error => unavailable(error.to_string()),
    })
}

/// Refuses what no message can be sent to.
///
/// # Errors
/// [`Failure::BadRequest`].
pub fn check_subject(subject: &str) -> Result<(), Failure> {
    if subject.len() > SUBJECT_BYTES_MAX {
        return Err(Failure::bad(format!("a subject has at most {SUBJECT_BYTES_MAX} bytes")));
    }
    let is_sound = |b: u8| b > b' ' && b != 0x7f;
    match is_valid_literal(subject.as_bytes()) && subject.bytes().all(is_sound) {
        true => Ok(()),
        false => Err(Failure::bad(format!("{subject:?} is no subject to send to"))),
    }
}

/// A name that may stand in a subject of the API.
///
/// # Errors
/// [`Failure::BadRequest`].
pub fn name(text: &str) -> Result<&str, Failure> {
    let is_sound = |c: char| !c.is_whitespace() && !c.is_control() && !".*>/\\".contains(c);
    match !text.is_empty() && text.len() <= 255 && text.chars().all(is_sound) {
        true => Ok(text),
        false => Err(Failure::bad(format!("{text:?} is no name of a stream or consumer"))),
    }
}
