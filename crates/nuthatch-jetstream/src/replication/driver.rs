//! The task of one mirror or source: does what [`nuthatch_streams::control::replication`] says, and
//! tells it what became of it. Nothing here decides about a step.

use super::{OwnApi, Replication};
use crate::copy_tasks::Shared;
use crate::core_port::{Arrived, CorePort, Inbox};
use crate::origins::Origin;
use crate::registry::Entry;
use nuthatch_protocol::js::StreamSource;
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::jetstream_port::LogId;
use nuthatch_server::random::random_token;
use nuthatch_streams::Message;
use nuthatch_streams::control::Now;
use nuthatch_streams::control::replication::{
    Action, Delivery, Happened, Location, Plan, Replicator, Side, Unanswered,
};
use nuthatch_streams::stream::short_hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Prefix of the reply subjects of our requests.
const REPLY_PREFIX: &str = "$JSC.R";
/// Characters that make a subject our own.
const RANDOM_CHARS: usize = 8;
/// The task of one mirror or source.
pub(super) struct Driver {
    pub(super) service: Arc<Replication>,
    pub(super) api: Arc<dyn OwnApi>,
    pub(super) entry: Arc<Entry>,
    pub(super) source: StreamSource,
    pub(super) mirrors: bool,
    pub(super) shared: Arc<Shared>,
}

/// What the task holds between two steps.
#[derive(Default)]
struct Holds {
    /// The log that the origin is in.
    origin: Option<LogId>,
    /// What is listened on.
    inbox: Option<Inbox>,
}

impl Driver {
    /// Never ends while the server runs.
    pub(super) async fn run(self) {
        let mut changed = self.service.streams.changes();
        let (target, source, mirrors) = (self.entry.id, self.source.clone(), self.mirrors);
        let machine = Replicator::new(Plan { target, source, mirrors });
        let mut machine = machine.with_consumer(self.consumer_name());
        let mut holds = Holds::default();
        let mut happened = Happened::Began;
        loop {
            happened = match self.step(&mut machine, happened) {
                Action::Locate { begins } => {
                    // A pause may be long: nobody sends to an attempt that is over.
                    holds.inbox = None;
                    if begins {
                        changed.mark_unchanged();
                    }
                    self.locate(&mut holds)
                }
                Action::Run { side, op } => {
                    let log = match side {
                        Side::Origin => holds.origin.expect("the origin was found here"),
                        Side::Target => self.entry.engine,
                    };
                    Happened::Outcome(self.service.calls.run(log, op).await)
                }
                Action::Ask { subject, headers, body, until } => {
                    self.ask(&subject, (&headers, &body), until).await
                }
                Action::Listen { prefix } => self.listen(own_subject(&prefix), &mut holds),
                Action::ListenOn { subject } => {
                    let listening = self.listen(subject.clone(), &mut holds);
                    // Its consumer is there already, and has nobody to deliver to.
                    self.core().tell_interest(subject.as_bytes());
                    listening
                }
                Action::Receive { until, messages_max, bytes_max } => {
                    let inbox = holds.inbox.as_mut().expect("a subject is listened on");
                    self.receive(inbox, until, messages_max, bytes_max).await
                }
                Action::Send { subject, headers } => {
                    self.send(&subject, &headers);
                    Happened::Sent
                }
                Action::Rest { until } => {
                    tokio::time::sleep(self.left(until)).await;
                    Happened::Rested
                }
                Action::AwaitChange => match changed.changed().await {
                    Ok(()) => Happened::Changed,
                    Err(_) => return,
                },
            };
        }
    }

    /// Tells the machine what happened, and others how it is doing.
    fn step(&self, machine: &mut Replicator, happened: Happened) -> Action {
        let action = machine.step(happened, self.shared.now());
        let status = machine.status().clone();
        let before = self.shared.replace(status.clone());
        if let Some(error) = status.error.filter(|error| before.error.as_ref() != Some(error)) {
            self.tell_trouble(&error);
        }
        action
    }

    /// What consumers of this copy are called elsewhere: the same after a restart, and no other copy's.
    fn consumer_name(&self) -> String {
        let (config, account) =
            (&self.entry.config, self.service.accounts.name_of(self.entry.account));
        let domain = &self.service.domain;
        let source = serde_json::to_string(&self.source).expect("strings and numbers");
        let kind = if self.mirrors { "MIRROR" } else { "SRC" };
        let hash = short_hash(&format!("{} {account} {domain} {source}", config.name));
        format!("JS_{kind}_{hash}")
    }

    /// A message that the origin holds and cannot give is damage, which its operator must hear of:
    /// the copy waits there, and never passes over it.
    /// So must he of one that is read by messages, where something may be missing in the exports.
    fn tell_trouble(&self, error: &JsError) {
        let is_by_messages = self.source.external.is_some() || self.source.consumer.is_some();
        if is_by_messages || error.err_code == JsError::STREAM_STORE_FAILED.err_code {
            let (name, origin) = (&self.entry.config.name, &self.source.name);
            self.core().say(&format!("stream {name} cannot go on to copy {origin}: {error}"));
        }
    }

    fn core(&self) -> &dyn CorePort {
        &*self.service.core
    }

    fn left(&self, until: Now) -> Duration {
        until.saturating_sub(self.shared.now())
    }

    fn locate(&self, holds: &mut Holds) -> Happened {
        match self.service.origins.find(self.entry.account, &self.source) {
            Ok(Origin::Here(origin)) => {
                holds.origin = Some(origin.engine);
                Happened::Located(Location::Here { id: origin.id, created: origin.created })
            }
            Ok(Origin::Afar(api)) => Happened::Located(Location::Afar(api)),
            Err(error) => Happened::NotLocated(error),
        }
    }

    /// Sends a request and waits for what it is answered.
    async fn ask(&self, subject: &str, (headers, body): (&[u8], &[u8]), until: Now) -> Happened {
        if let Some(call) = subject.strip_prefix("$JS.API.") {
            // The origin is at another node: the API is the account's own.
            return self.ask_own(call, body, until).await;
        }
        // Looked at first: an inbox that comes and goes makes everybody find their routes anew.
        if !self.core().listens(self.entry.account, subject.as_bytes()) {
            return Happened::Unanswered(Unanswered::NobodyListens);
        }
        let reply = own_subject(REPLY_PREFIX);
        let inbox = self.core().listen(self.entry.account, reply.as_bytes());
        let Some(mut inbox) = inbox else {
            return Happened::Unanswered(Unanswered::AccountGone);
        };
        let (subject, reply) = (subject.as_bytes(), reply.as_bytes());
        let message = Message { subject, reply, headers, body };
        if !self.core().publish(self.entry.account, &message) {
            return Happened::Unanswered(Unanswered::NobodyListens);
        }
        match timeout(self.left(until), inbox.next()).await {
            Ok(Some(Arrived { headers, body, .. })) => Happened::Answered { headers, body },
            _ => Happened::Unanswered(Unanswered::Late),
        }
    }

    async fn ask_own(&self, call: &str, body: &[u8], until: Now) -> Happened {
        let asked = self.api.ask(self.entry.account, call, body);
        match timeout(self.left(until), asked).await {
            Ok(Some(body)) => Happened::Answered { headers: Vec::new(), body },
            Ok(None) => Happened::Unanswered(Unanswered::NobodyListens),
            Err(_) => Happened::Unanswered(Unanswered::Late),
        }
    }

    /// Sends a flow control reply: to a consumer of this account, or the way that requests go.
    fn send(&self, subject: &[u8], headers: &[u8]) {
        let message = Message { subject, reply: b"", headers, body: b"" };
        match &self.source.external {
            Some(_) => self.core().publish(self.entry.account, &message),
            None => self.core().send(self.entry.account, &message),
        };
    }

    fn listen(&self, subject: String, holds: &mut Holds) -> Happened {
        holds.inbox = self.core().listen(self.entry.account, subject.as_bytes());
        match holds.inbox {
            Some(_) => Happened::Listening(subject),
            None => Happened::Unanswered(Unanswered::AccountGone),
        }
    }

    async fn receive(
        &self,
        inbox: &mut Inbox,
        until: Now,
        messages_max: usize,
        bytes_max: usize,
    ) -> Happened {
        let Ok(Some(first)) = timeout(self.left(until), inbox.next()).await else {
            return Happened::Silent;
        };
        let (mut deliveries, mut bytes, mut next) = (Vec::new(), 0, Some(first));
        while let Some(arrived) = next {
            bytes += arrived.body.len() + arrived.headers.len();
            deliveries.push(Delivery {
                subject: arrived.subject,
                reply: arrived.reply,
                headers: arrived.headers,
                body: arrived.body,
            });
            let has_room = deliveries.len() < messages_max && bytes < bytes_max;
            next = if has_room { inbox.try_next() } else { None };
        }
        Happened::Arrived(deliveries)
    }
}

/// A subject of our own.
fn own_subject(prefix: &str) -> String {
    format!("{prefix}.{}", random_token(RANDOM_CHARS))
}
