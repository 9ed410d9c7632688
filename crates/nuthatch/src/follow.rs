//! Reading a stream in order, without acks and without gaps: an ephemeral push consumer that is
//! made anew behind the last message received whenever a delivery is missing.

use std::time::{Duration, Instant};

use nuthatch_client::js::{Answer, NO_MESSAGE};
use nuthatch_client::{OwnedMessage, TransportError};
use nuthatch_protocol::ack::parse_ack_subject;
use nuthatch_protocol::js::{
    ConsumerAction, ConsumerConfig, ConsumerInfo, CreateConsumerRequest, DeliverPolicy, GetAnswer,
    GetRequest, Time,
};
use serde_json::Value;
use time::OffsetDateTime;

use crate::error::CliError;
use crate::session::Session;

/// The server says this often that an idle consumer is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Without a sign of life for this long the consumer is taken for gone.
pub const SILENCE: Duration = Duration::from_secs(20);

/// The server removes the consumer this long after we are gone.
const INACTIVE: Duration = Duration::from_secs(60);

/// Start position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The first message.
    All,
    /// The last message.
    Last,
    /// Whatever comes from now on.
    New,
    /// The last message of each subject.
    LastPerSubject,
    /// A sequence.
    Sequence(u64),
    /// The first message stored at this time or later.
    Time(OffsetDateTime),
}

/// A message of a stream.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// The message as it came; its reply is the ack subject.
    pub message: OwnedMessage,
    /// Its sequence in the stream.
    pub seq: u64,
    /// How many more there were when it was sent.
    pub pending: u64,
    /// When it was stored.
    pub time: OffsetDateTime,
}

/// A consumer that reads in order.
#[derive(Debug)]
pub struct Follower {
    stream: String,
    filters: Vec<String>,
    name: String,
    inbox: String,
    sid: u64,
    /// Messages there were to read when it was made.
    pub pending_at_start: u64,
    /// Sequence of the last message in the stream, and of its delivery.
    last_seq: u64,
    last_delivery: u64,
    /// Start position of a consumer that has delivered nothing.
    start: From,
    heard: Instant,
}

impl Follower {
    /// Makes the consumer. No filters mean all subjects.
    ///
    /// # Errors
    /// When the stream does not exist or the consumer is refused.
    pub fn open(
        session: &mut Session,
        stream: &str,
        filters: &[String],
        start: From,
    ) -> Result<Self, CliError> {
        let mut follower = Self {
            stream: stream.into(),
            filters: filters.to_vec(),
            name: String::new(),
            inbox: String::new(),
            sid: 0,
            pending_at_start: 0,
            last_seq: 0,
            last_delivery: 0,
            start,
            heard: Instant::now(),
        };
        follower.pending_at_start = follower.create(session, start)?;
        Ok(follower)
    }

    /// The next message; nothing at the deadline.
    ///
    /// # Errors
    /// When the connection fails, the consumer cannot be made again, or it has gone silent.
    pub fn next(
        &mut self,
        session: &mut Session,
        deadline: Instant,
    ) -> Result<Option<Delivered>, CliError> {
        loop {
            let wait = deadline.min(self.heard + SILENCE);
            match session.client.next_message(wait) {
                Ok(message) if message.subject != self.inbox && !is_delivery(&message) => {}
                Ok(message) => {
                    self.heard = Instant::now();
                    if let Some(delivered) = self.take(session, message)? {
                        return Ok(Some(delivered));
                    }
                }
                Err(TransportError::TimedOut(_)) if Instant::now() >= deadline => return Ok(None),
                Err(TransportError::TimedOut(_)) => self.restart(session)?,
                Err(err) => return Err(err.into()),
            }
        }
    }

    /// Whether the message that is due can be read: a consumer waits for one that cannot, without a
    /// word. To be asked when nothing has come for some time.
    ///
    /// # Errors
    /// What the server says of that message, unless there is none.
    pub fn check_next(&self, session: &mut Session) -> Result<(), CliError> {
        let subject = match &self.filters[..] {
            [one] => one.as_str(),
            _ => ">",
        };
        let from = match self.start {
            From::Sequence(seq) if self.last_seq == 0 => seq.max(1),
            _ => self.last_seq + 1,
        };
        let next_by_subj = subject.to_owned();
        let which = GetRequest { seq: from, next_by_subj, ..GetRequest::default() };
        let answer = session.ask::<GetAnswer>(&format!("STREAM.MSG.GET.{}", self.stream), &which);
        match answer {
            Err(err) if err.err_code() != Some(NO_MESSAGE) => {
                Err(CliError::js(format!("stream {}", self.stream))(err))
            }
            _ => Ok(()),
        }
    }

    /// Removes the consumer, as far as possible: the server does it later anyway.
    pub fn close(self, session: &mut Session) {
        let what = format!("CONSUMER.DELETE.{}.{}", self.stream, self.name);
        let _ = session.client.writer.unsubscribe(self.sid);
        let _ = session.api(&what, &Value::Null);
    }

    fn create(&mut self, session: &mut Session, start: From) -> Result<u64, CliError> {
        self.inbox = session.fresh_inbox();
        self.name = crate::template::random(12).map_err(CliError::Usage)?;
        self.last_delivery = 0;
        let request = CreateConsumerRequest {
            stream_name: self.stream.clone(),
            config: self.config(start),
            action: ConsumerAction::Create,
            pedantic: false,
        };
        let what = format!("CONSUMER.CREATE.{}.{}", self.stream, self.name);
        let info: Answer<ConsumerInfo> = session
            .ask(&what, &request)
            .map_err(CliError::js(format!("could not read stream {}", self.stream)))?;
        // Only now, because a request drops what comes meanwhile; the consumer waits for interest.
        self.sid = session.client.subscribe(&self.inbox, "")?;
        session.client.writer.flush()?;
        self.heard = Instant::now();
        Ok(info.num_pending)
    }

    fn config(&self, start: From) -> ConsumerConfig {
        let mut config = ConsumerConfig {
            name: self.name.clone(),
            deliver_subject: self.inbox.clone(),
            max_deliver: 1,
            mem_storage: true,
            num_replicas: 1,
            flow_control: true,
            idle_heartbeat: HEARTBEAT.as_nanos() as i64,
            inactive_threshold: INACTIVE.as_nanos() as i64,
            ..ConsumerConfig::default()
        };
        match &self.filters[..] {
            // The server wants the subjects spelled out of which it is to find the last messages.
            [] if start == From::LastPerSubject => config.filter_subject = ">".to_owned(),
            [] => {}
            [one] => config.filter_subject.clone_from(one),
            several => config.filter_subjects = several.to_vec(),
        }
        config.deliver_policy = match start {
            From::All => DeliverPolicy::All,
            From::Last => DeliverPolicy::Last,
            From::New => DeliverPolicy::New,
            From::LastPerSubject => DeliverPolicy::LastPerSubject,
            From::Sequence(seq) => {
                config.opt_start_seq = seq.max(1);
                DeliverPolicy::ByStartSequence
            }
            From::Time(time) => {
                let time = i64::try_from(time.unix_timestamp_nanos()).unwrap_or(i64::MAX);
                config.opt_start_time = Some(Time(time));
                DeliverPolicy::ByStartTime
            }
        };
        config
    }

    /// Makes the consumer anew behind what has been received.
    fn restart(&mut self, session: &mut Session) -> Result<(), CliError> {
        session.client.writer.unsubscribe(self.sid)?;
        let start = if self.last_seq == 0 { self.start } else { From::Sequence(self.last_seq + 1) };
        self.create(session, start).map(|_| ())
    }

    /// Looks at what came on the inbox: a message in order, a heartbeat, a question whether we keep
    /// up, or a sign that something is missing.
    fn take(
        &mut self,
        session: &mut Session,
        message: OwnedMessage,
    ) -> Result<Option<Delivered>, CliError> {
        if message.view().status() == Some(100) && message.payload.is_empty() {
            let view = message.view();
            let last = view.header("Nats-Last-Consumer").and_then(|text| text.parse().ok());
            if let Some(reply) = message.reply.as_deref().or(view.header("Nats-Consumer-Stalled")) {
                session.client.writer.publish(reply.as_bytes(), b"", b"", b"")?;
                session.client.writer.flush()?;
            }
            if last.is_some_and(|last: u64| last > self.last_delivery) {
                self.restart(session)?;
            }
            return Ok(None);
        }
        let reply = message.reply.clone().unwrap_or_default();
        let Some(ack) = parse_ack_subject(reply.as_bytes()) else { return Ok(None) };
        // Deliveries of a consumer that has been replaced may still arrive.
        if ack.consumer != self.name.as_bytes() {
            return Ok(None);
        }
        if ack.consumer_seq != self.last_delivery + 1 {
            self.restart(session)?;
            return Ok(None);
        }
        (self.last_delivery, self.last_seq) = (ack.consumer_seq, ack.stream_seq);
        let nanos = i128::from(ack.timestamp_ns().unwrap_or_default());
        let time =
            OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let pending = ack.pending().unwrap_or(0);
        Ok(Some(Delivered { seq: ack.stream_seq, pending, time, message }))
    }
}

fn is_delivery(message: &OwnedMessage) -> bool {
    message.reply.as_deref().is_some_and(|reply| reply.starts_with("$JS.ACK."))
}
