//! Services (ADR-32): requests under some subjects are answered, several instances share them, and each tells of
//! itself under `$SRV`.

use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::js::header_block;
use crate::{Client, ConnectError, OwnedMessage, TransportError, random_u64};

/// Queue group of endpoints.
const QUEUE: &str = "q";
/// What is told under `$SRV`.
const VERBS: [&str; 3] = ["PING", "INFO", "STATS"];

/// Name and version of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceConfig {
    /// Letters, digits, `_` and `-`.
    pub name: String,
    /// Such as `1.2.3`.
    pub version: String,
    /// Words.
    pub description: String,
}

/// What a handler answers instead of a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {text}")]
pub struct ServiceError {
    /// Such as 400.
    pub code: u16,
    /// Words.
    pub text: String,
}

/// Answers a request.
pub type Handler<'a> = Box<dyn FnMut(&OwnedMessage) -> Result<Vec<u8>, ServiceError> + 'a>;

#[derive(Serialize)]
struct EndpointInfo<'a> {
    name: &'a str,
    subject: &'a str,
    queue_group: &'static str,
}

#[derive(Serialize)]
struct EndpointStats<'a> {
    #[serde(flatten)]
    info: EndpointInfo<'a>,
    num_requests: u64,
    num_errors: u64,
    last_error: &'a str,
    /// ns.
    processing_time: u64,
    /// ns.
    average_processing_time: u64,
}

#[derive(Serialize)]
struct Told<'a> {
    r#type: &'static str,
    name: &'a str,
    id: &'a str,
    version: &'a str,
    metadata: serde_json::Map<String, serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoints: Option<serde_json::Value>,
}

struct Endpoint<'a> {
    name: String,
    subject: String,
    sid: u64,
    handler: Handler<'a>,
    requests: u64,
    errors: u64,
    last_error: String,
    spent: Duration,
}

impl Endpoint<'_> {
    fn info(&self) -> EndpointInfo<'_> {
        EndpointInfo { name: &self.name, subject: &self.subject, queue_group: QUEUE }
    }

    fn stats(&self) -> EndpointStats<'_> {
        let nanos = u64::try_from(self.spent.as_nanos()).unwrap_or(u64::MAX);
        EndpointStats {
            info: self.info(),
            num_requests: self.requests,
            num_errors: self.errors,
            last_error: &self.last_error,
            processing_time: nanos,
            average_processing_time: nanos / self.requests.max(1),
        }
    }
}

/// An instance of a service, with a connection to itself.
pub struct Service<'a> {
    client: Client,
    config: ServiceConfig,
    id: String,
    started: String,
    /// Subscriptions under `$SRV`, and what each asks for.
    asked: Vec<(u64, &'static str)>,
    endpoints: Vec<Endpoint<'a>>,
    refused: u64,
}

impl std::fmt::Debug for Service<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<'a> Service<'a> {
    /// Tells of itself from now on; requests are answered once it has endpoints and [`Service::serve`] runs.
    ///
    /// # Errors
    /// The connection fails.
    pub fn start(mut client: Client, config: ServiceConfig) -> Result<Self, TransportError> {
        let id = format!("{:016x}", random_u64());
        let mut asked = Vec::new();
        for verb in VERBS {
            for end in
                ["".to_owned(), format!(".{}", config.name), format!(".{}.{id}", config.name)]
            {
                asked.push((client.subscribe(&format!("$SRV.{verb}{end}"), "")?, verb));
            }
        }
        let now = OffsetDateTime::from(SystemTime::now());
        let started = now.format(&Rfc3339).unwrap_or_default();
        Ok(Self { client, config, id, started, asked, endpoints: Vec::new(), refused: 0 })
    }

    /// Answers requests to a subject.
    ///
    /// # Errors
    /// The connection fails.
    pub fn endpoint(
        &mut self,
        name: &str,
        subject: &str,
        handler: impl FnMut(&OwnedMessage) -> Result<Vec<u8>, ServiceError> + 'a,
    ) -> Result<(), TransportError> {
        let sid = self.client.subscribe(subject, QUEUE)?;
        self.endpoints.push(Endpoint {
            name: name.to_owned(),
            subject: subject.to_owned(),
            sid,
            handler: Box::new(handler),
            requests: 0,
            errors: 0,
            last_error: String::new(),
            spent: Duration::ZERO,
        });
        Ok(())
    }

    /// The id of this instance.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Answers that the server did not let through, since it was started.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Connects again after an error, as [`Client::reconnect`]; its endpoints go on.
    ///
    /// # Errors
    /// As [`Client::reconnect`].
    pub fn reconnect(&mut self, limit: Duration) -> Result<(), ConnectError> {
        self.client.reconnect(limit)
    }

    /// Answers what comes until the deadline.
    ///
    /// # Errors
    /// The connection fails, or the server reports an error other than a forbidden answer.
    pub fn serve(&mut self, deadline: Instant) -> Result<(), TransportError> {
        self.client.writer.flush()?;
        loop {
            let (sid, message) = match self.client.next_with_sid(deadline) {
                Err(TransportError::TimedOut(_)) => return Ok(()),
                // Who asks names the subject of the answer, and may name one that is forbidden here.
                Err(TransportError::Server(text)) if text.contains("Permissions Violation") => {
                    self.refused += 1;
                    continue;
                }
                other => other?,
            };
            let Some(reply) = message.reply.clone() else { continue };
            let (headers, body) = if let Some((_, verb)) = self.asked.iter().find(|a| a.0 == sid) {
                (Vec::new(), self.told(verb))
            } else if let Some(endpoint) = self.endpoints.iter_mut().find(|one| one.sid == sid) {
                answer(endpoint, &message)
            } else {
                continue;
            };
            self.client.writer.publish(reply.as_bytes(), b"", &headers, &body)?;
            self.client.writer.flush()?;
        }
    }

    /// Ends it and gives the connection back; its subscriptions are gone then.
    ///
    /// # Errors
    /// The connection fails.
    pub fn close(mut self) -> Result<Client, TransportError> {
        let sids = self.asked.iter().map(|asked| asked.0);
        for sid in sids.chain(self.endpoints.iter().map(|endpoint| endpoint.sid)) {
            self.client.unsubscribe(sid)?;
        }
        self.client.writer.flush()?;
        Ok(self.client)
    }

    fn told(&self, verb: &str) -> Vec<u8> {
        let mut told = Told {
            r#type: "io.nats.micro.v1.ping_response",
            name: &self.config.name,
            id: &self.id,
            version: &self.config.version,
            metadata: serde_json::Map::new(),
            description: None,
            started: None,
            endpoints: None,
        };
        if verb == "INFO" {
            told.r#type = "io.nats.micro.v1.info_response";
            told.description = Some(&self.config.description);
            let all: Vec<_> = self.endpoints.iter().map(Endpoint::info).collect();
            told.endpoints = serde_json::to_value(all).ok();
        } else if verb == "STATS" {
            told.r#type = "io.nats.micro.v1.stats_response";
            told.started = Some(&self.started);
            let all: Vec<_> = self.endpoints.iter().map(Endpoint::stats).collect();
            told.endpoints = serde_json::to_value(all).ok();
        }
        serde_json::to_vec(&told).unwrap_or_default()
    }
}

fn answer(endpoint: &mut Endpoint<'_>, message: &OwnedMessage) -> (Vec<u8>, Vec<u8>) {
    let began = Instant::now();
    let answered = (endpoint.handler)(message);
    endpoint.requests += 1;
    endpoint.spent += began.elapsed();
    match answered {
        Ok(body) => (Vec::new(), body),
        Err(error) => {
            endpoint.errors += 1;
            endpoint.last_error = error.to_string();
            // A line end would end the header.
            let text = error.text.replace(['\r', '\n'], " ");
            let code = error.code.to_string();
            let headers =
                [("Nats-Service-Error", &*text), ("Nats-Service-Error-Code", code.as_str())];
            (header_block(&headers), Vec::new())
        }
    }
}
