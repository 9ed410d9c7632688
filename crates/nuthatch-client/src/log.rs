//! A log's own interface: an ordered, durable log with one writer at a time, for those who do not want to know
//! about streams and consumers.
//!
//! A *channel* is one stream of a Nuthatch server. A writer opens it with a term; whoever opens it with a
//! higher one fences it: from then on its appends are refused ([`LogError::Fenced`]), also those that were on
//! their way. An append that has returned is durable. [`Log`] writes, [`LogReader`] reads; each has a
//! connection to itself.

mod reader;
mod record;

pub use reader::{LogReader, Start};
pub use record::{Position, Record, stream_name};

use crate::frame::Message;
use crate::js::{self, ApiError, JetStream, JsError, PubAck};
use crate::{Client, RequestError, TransportError};
use nuthatch_protocol::js::{Placement, PurgeRequest, StreamConfig, StreamInfo};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// `stream name already in use` in JetStream's error table.
const NAME_IN_USE: u64 = 10058;
/// A later writer has the stream; Nuthatch's own.
const WRITER_FENCED: u64 = 20001;
/// The stream was never opened with the writer's term; Nuthatch's own.
const WRITER_NOT_OPEN: u64 = 20002;

/// What a log is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Nothing changes: the channel must be there, and nobody is fenced.
    ReadOnly,
    /// Appends and truncations, by the one writer with this term.
    ReadWrite,
}

/// How long a channel keeps its records; by default until they are truncated.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ChannelOptions {
    /// Records go that are older.
    pub max_age: Option<Duration>,
    /// The oldest go where there are more bytes.
    pub max_bytes: Option<u64>,
    /// How long ids are remembered; two minutes by default.
    pub repeat_window: Option<Duration>,
    /// How many nodes of a cluster keep the channel; one by default.
    pub replicas: Option<u8>,
    /// Tags of the placement, such as `log:cold`.
    pub tags: Vec<String>,
}

/// Why a call of a log failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A writer with a higher term has the channel. It stays so.
    #[error("fenced: {}", .0.description)]
    Fenced(ApiError),
    /// The channel does not know the writer's term; it was perhaps deleted and made anew.
    #[error("not open: {}", .0.description)]
    NotOpen(ApiError),
    /// There is no such channel.
    #[error("there is no channel {0}")]
    NoChannel(String),
    /// The log was opened read-only, or a writer's term is 0.
    #[error("the log is open read-only")]
    ReadOnly,
    /// A record cannot be sent as it is.
    #[error("the record is of no use: {0}")]
    BadRecord(String),
    /// The server refused for another reason; nothing was stored.
    #[error("{} ({})", .0.description, .0.err_code)]
    Refused(ApiError),
    /// The record may be stored or not. With an id it can be sent again.
    #[error("the outcome is not known: {0}")]
    Uncertain(String),
    /// A request that stores nothing failed.
    #[error(transparent)]
    Api(#[from] JsError),
    /// The connection failed while it read.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl LogError {
    fn of_api(channel: &str, error: JsError) -> Self {
        match error {
            JsError::Api(refused) => Self::refused(channel, refused),
            other => Self::Api(other),
        }
    }

    fn refused(channel: &str, refused: ApiError) -> Self {
        match refused.err_code {
            WRITER_FENCED => Self::Fenced(refused),
            WRITER_NOT_OPEN => Self::NotOpen(refused),
            js::STREAM_NOT_FOUND => Self::NoChannel(channel.to_owned()),
            _ if refused.description.contains("outcome is unknown") => {
                Self::Uncertain(refused.description)
            }
            _ => Self::Refused(refused),
        }
    }
}

/// First and last position of a channel; `first` is `last + 1` where nothing is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The first record that is there.
    pub first: Position,
    /// The last one that was ever appended.
    pub last: Position,
}

/// Appends that were answered, in front, and what became of the first one that was not.
#[derive(Debug, thiserror::Error)]
#[error("{error} (behind {} records that are durable)", .durable.len())]
pub struct AppendError {
    /// Positions of the records in front, which are durable.
    pub durable: Vec<Position>,
    /// Why the next one is not; those behind it may be there.
    pub error: LogError,
}

/// A channel, opened.
#[derive(Debug)]
pub struct Log {
    client: Client,
    channel: String,
    stream: String,
    subject: String,
    term: u64,
    mode: Mode,
    timeout: Duration,
    /// Replies to appends come to `<inbox>.a.<number>`; the subscription's id and the last number.
    answers: (u64, u64),
}

impl Log {
    /// Opens a channel over a connection. With [`Mode::ReadWrite`] it is made if it is not there, and every
    /// writer with a lower term is fenced; the same term may be opened again. `timeout` bounds every call.
    ///
    /// # Errors
    /// [`LogError::Fenced`] if a later writer has it, [`LogError::NoChannel`] if it is not there to be read, or
    /// what the connection or the server has against it.
    pub fn open(
        mut client: Client,
        channel: &str,
        term: u64,
        mode: Mode,
        options: &ChannelOptions,
        timeout: Duration,
    ) -> Result<Self, LogError> {
        if mode == Mode::ReadWrite && term == 0 {
            return Err(LogError::ReadOnly);
        }
        let stream = stream_name(channel);
        let sid = client.subscribe(&format!("{}.a.*", client.inbox()), "")?;
        let subject = format!("nuthatch.log.{stream}");
        let channel = channel.to_owned();
        let mut log =
            Self { client, channel, stream, subject, term, mode, timeout, answers: (sid, 0) };
        match log.bounds() {
            Err(LogError::NoChannel(_)) if mode == Mode::ReadWrite => log.create(options)?,
            known => drop(known?),
        }
        if mode == Mode::ReadWrite {
            log.api::<Value>("STREAM.FENCE", &json!({ "term": term }))?;
        }
        Ok(log)
    }

    fn create(&mut self, options: &ChannelOptions) -> Result<(), LogError> {
        let nanos = |time: Option<Duration>| {
            time.map_or(0, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
        };
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let tagged = Placement { tags: options.tags.clone(), ..Placement::default() };
        let config = StreamConfig {
            name: self.stream.clone(),
            subjects: vec![self.subject.clone()],
            max_age: nanos(options.max_age),
            max_bytes: options.max_bytes.map_or(-1, bytes),
            duplicate_window: nanos(options.repeat_window),
            num_replicas: options.replicas.map_or(1, i64::from),
            placement: Some(tagged).filter(|placement| !placement.tags.is_empty()),
            allow_direct: true,
            // Writers of other languages send what is appended at the same time as one batch.
            allow_atomic: true,
            deny_delete: true,
            metadata: [("nuthatch.channel".to_owned(), self.channel.clone())].into(),
            ..StreamConfig::default()
        };
        match self.api::<Value>("STREAM.CREATE", &config) {
            // Somebody else has just made it, with other options.
            Err(LogError::Refused(refused)) if refused.err_code == NAME_IN_USE => Ok(()),
            made => made.map(drop),
        }
    }

    fn api<T: DeserializeOwned>(
        &mut self,
        call: &str,
        body: &impl Serialize,
    ) -> Result<T, LogError> {
        let call = format!("{call}.{}", self.stream);
        let answer = JetStream::new(&mut self.client, self.timeout).ask::<T>(&call, body);
        answer.map(|answer| answer.value).map_err(|error| LogError::of_api(&self.channel, error))
    }

    /// The name that it was opened with.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// The term that it was opened with.
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// First and last position.
    ///
    /// # Errors
    /// [`LogError::NoChannel`] if it was deleted, or what the connection has against it.
    pub fn bounds(&mut self) -> Result<Bounds, LogError> {
        let state = self.api::<StreamInfo>("STREAM.INFO", &Value::Null)?.state;
        Ok(Bounds { first: Position(state.first_seq.max(1)), last: Position(state.last_seq) })
    }

    /// Appends a record; when this returns it is durable.
    ///
    /// # Errors
    /// [`LogError::Fenced`] for good; [`LogError::Uncertain`] where it may be there or not.
    pub fn append(&mut self, record: &Record) -> Result<Position, LogError> {
        self.send_all(std::slice::from_ref(record), false).map_err(|failed| failed.error).and_then(
            |positions| positions.first().copied().ok_or(LogError::Uncertain("no answer".into())),
        )
    }

    /// Appends records in their order, all on their way at once.
    ///
    /// # Errors
    /// [`AppendError`] says how many in front are durable.
    pub fn append_many(&mut self, records: &[Record]) -> Result<Vec<Position>, AppendError> {
        self.send_all(records, false)
    }

    /// Sends a transient record to those who follow the channel: in its place behind what was appended before,
    /// and not stored. Returns the last position before it.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn tell(&mut self, record: &Record) -> Result<Position, LogError> {
        self.send_all(std::slice::from_ref(record), true).map_err(|failed| failed.error).and_then(
            |positions| positions.first().copied().ok_or(LogError::Uncertain("no answer".into())),
        )
    }

    fn send_all(
        &mut self,
        records: &[Record],
        transient: bool,
    ) -> Result<Vec<Position>, AppendError> {
        let mut durable = Vec::with_capacity(records.len());
        match self.exchange(records, transient, &mut durable) {
            Ok(()) => Ok(durable),
            Err(error) => Err(AppendError { durable, error: self.unheard(error) }),
        }
    }

    /// What nobody heard was for a channel that is not there, or that is there and changes its leader.
    fn unheard(&mut self, error: LogError) -> LogError {
        match error {
            LogError::NoChannel(channel) if self.bounds().is_ok() => LogError::Uncertain(format!(
                "nobody took a record for channel {channel:?}, which is there: its leader was changing"
            )),
            other => other,
        }
    }

    fn exchange(
        &mut self,
        records: &[Record],
        transient: bool,
        durable: &mut Vec<Position>,
    ) -> Result<(), LogError> {
        if self.mode == Mode::ReadOnly {
            return Err(LogError::ReadOnly);
        }
        // All or none are sent.
        let headers: Result<Vec<_>, _> =
            records.iter().map(|record| record.headers(self.term, transient)).collect();
        let uncertain = |error: TransportError| LogError::Uncertain(error.to_string());
        let first = self.answers.1 + 1;
        for (record, headers) in records.iter().zip(headers?) {
            self.answers.1 += 1;
            let reply = format!("{}.a.{}", self.client.inbox(), self.answers.1);
            let (subject, reply) = (self.subject.as_bytes(), reply.as_bytes());
            self.client
                .writer
                .publish(subject, reply, &headers, &record.data)
                .map_err(uncertain)?;
        }
        self.client.writer.flush().map_err(uncertain)?;
        let deadline = Instant::now() + self.timeout;
        for number in first..=self.answers.1 {
            durable.push(self.answer(number, deadline)?);
        }
        Ok(())
    }

    /// Answers come in the order in which the records were sent; older ones are of calls that were given up.
    fn answer(&mut self, number: u64, deadline: Instant) -> Result<Position, LogError> {
        let reply = format!("{}.a.{number}", self.client.inbox());
        loop {
            let message = self
                .client
                .next_message(deadline)
                .map_err(|error| LogError::Uncertain(error.to_string()))?;
            if message.subject == reply {
                return read_answer(&message.view(), &self.channel, &self.stream);
            }
        }
    }

    /// Removes every record up to this position, which included, and gives their space back.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn truncate(&mut self, through: Position) -> Result<(), LogError> {
        if self.mode == Mode::ReadOnly {
            return Err(LogError::ReadOnly);
        }
        // A purge to a sequence that is not there yet would leave a gap.
        let before = through.0.min(self.bounds()?.last.0) + 1;
        let request = PurgeRequest { seq: before, term: self.term, ..PurgeRequest::default() };
        self.api::<Value>("STREAM.PURGE", &request).map(drop)
    }

    /// Ends the log and gives the connection back. The channel stays, and so does its term.
    pub fn close(self) -> Client {
        self.client
    }
}

fn read_answer(message: &Message<'_>, channel: &str, stream: &str) -> Result<Position, LogError> {
    if message.status() == Some(503) && message.payload.is_empty() {
        return Err(LogError::NoChannel(channel.to_owned()));
    }
    if let PubAck::Stored(seq) | PubAck::Duplicate(seq) = PubAck::parse(message.payload, stream) {
        return Ok(Position(seq));
    }
    match js::refusal(message.payload) {
        Some(refused) => Err(LogError::refused(channel, refused)),
        None => Err(LogError::Uncertain("the answer is not understood".to_owned())),
    }
}

impl From<RequestError> for LogError {
    fn from(error: RequestError) -> Self {
        Self::Api(JsError::Request(error))
    }
}
