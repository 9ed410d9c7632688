//! Following a channel, from any position, with the transient records of its writer.

use super::{LogError, Position, Record, stream_name};
use crate::frame::Message;
use crate::js::JetStream;
use crate::{Client, TransportError, random_u64};
use nuthatch_protocol::ack::parse_ack_subject;
use nuthatch_protocol::js::{
    AckPolicy, ConsumerAction, ConsumerConfig, DeliverPolicy, StreamInfoRequest,
};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Records that the server may send ahead.
const READ_AHEAD: u64 = 256;
/// Transient records that wait for their place; of more the oldest are dropped.
const HELD_MAX: usize = 1024;
/// How long a request for records stays.
const PULL_EXPIRES: Duration = Duration::from_secs(30);
/// How long the server keeps the place of a reader that asks for nothing.
const INACTIVE: Duration = Duration::from_secs(60);

/// Where a reader begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// The first record that is there.
    Beginning,
    /// Behind the last record that is there now.
    End,
    /// This position, or the next one that is there.
    At(Position),
    /// Behind this position.
    Behind(Position),
}

/// Follows a channel, over a connection of its own. When that fails, open another one behind
/// [`LogReader::position`].
#[derive(Debug)]
pub struct LogReader {
    client: Client,
    stream: String,
    consumer: String,
    /// Records and statuses come here.
    inbox: String,
    /// Records that were asked for and have not come.
    asked: u64,
    /// Everything up to here has come or is gone.
    done: Position,
    told: Position,
    delivered: u64,
    ready: VecDeque<Record>,
    held: VecDeque<Record>,
    timeout: Duration,
}

impl LogReader {
    /// Opens a reader of a channel; with `transient` its transient records are told too.
    ///
    /// # Errors
    /// [`LogError::NoChannel`] if it is not there, or what the connection has against it.
    pub fn open(
        mut client: Client,
        channel: &str,
        start: Start,
        transient: bool,
        timeout: Duration,
    ) -> Result<Self, LogError> {
        let stream = stream_name(channel);
        let of_api = |error| LogError::of_api(channel, error);
        if transient {
            client.subscribe(&format!("$JS.EVENT.TRANSIENT.{stream}"), "")?;
        }
        let inbox = format!("{}.records", client.inbox());
        client.subscribe(&inbox, "")?;
        let mut js = JetStream::new(&mut client, timeout);
        let state = js.stream(&stream, &StreamInfoRequest::default()).map_err(of_api)?.state;
        let done = match start {
            Start::Beginning => state.first_seq.max(1) - 1,
            Start::End => state.last_seq,
            Start::At(position) => position.0.max(1) - 1,
            Start::Behind(position) => position.0,
        };
        let consumer = format!("reader-{:016x}", random_u64());
        let config = ConsumerConfig {
            name: consumer.clone(),
            deliver_policy: DeliverPolicy::ByStartSequence,
            opt_start_seq: done + 1,
            ack_policy: AckPolicy::None,
            mem_storage: true,
            inactive_threshold: INACTIVE.as_nanos() as i64,
            ..ConsumerConfig::default()
        };
        js.create_consumer(&stream, &config, ConsumerAction::default()).map_err(of_api)?;
        let (done, asked, delivered) = (Position(done), 0, 0);
        let (ready, held) = (VecDeque::new(), VecDeque::new());
        let told = done;
        Ok(Self {
            client,
            stream,
            consumer,
            inbox,
            asked,
            done,
            told,
            delivered,
            ready,
            held,
            timeout,
        })
    }

    /// The last position that was told, or before which the reader began.
    pub const fn position(&self) -> Position {
        self.told
    }

    /// The next record; `None` if there is none until the deadline.
    ///
    /// # Errors
    /// The connection failed, or the server ended the reader.
    pub fn next(&mut self, deadline: Instant) -> Result<Option<Record>, LogError> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                if !record.transient {
                    self.told = record.position;
                }
                return Ok(Some(record));
            }
            self.ask()?;
            match self.client.next_message(deadline) {
                Ok(message) => self.take(&message.view())?,
                Err(TransportError::TimedOut(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn ask(&mut self) -> Result<(), LogError> {
        if self.asked > READ_AHEAD / 2 {
            return Ok(());
        }
        let more = READ_AHEAD - self.asked;
        let body = format!("{{\"batch\":{more},\"expires\":{}}}", PULL_EXPIRES.as_nanos());
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", self.stream, self.consumer);
        let (inbox, body) = (self.inbox.as_bytes(), body.as_bytes());
        self.client.writer.publish(subject.as_bytes(), inbox, b"", body)?;
        self.client.writer.flush()?;
        self.asked += more;
        Ok(())
    }

    fn take(&mut self, message: &Message<'_>) -> Result<(), LogError> {
        if let Some(ack) = message.reply.and_then(parse_ack_subject) {
            if ack.consumer_seq != self.delivered + 1 {
                let text = format!("records before {} did not come", ack.stream_seq);
                return Err(TransportError::Server(text).into());
            }
            (self.asked, self.delivered) = (self.asked.saturating_sub(1), ack.consumer_seq);
            let position = Position(ack.stream_seq);
            self.release(Position(position.0 - 1));
            self.ready.push_back(record(message, position, false));
            self.done = position;
            self.release(position);
            return Ok(());
        }
        if message.subject == self.inbox.as_bytes() {
            return self.take_status(message);
        }
        let last = message.header("Nuthatch-Last-Sequence").and_then(|text| text.parse().ok());
        if let Some(last) = last.filter(|&last| last >= self.done.0) {
            if self.held.len() == HELD_MAX {
                self.held.pop_front();
            }
            self.held.push_back(record(message, Position(last), true));
            self.release(self.done);
        }
        Ok(())
    }

    fn take_status(&mut self, message: &Message<'_>) -> Result<(), LogError> {
        match message.status() {
            Some(404 | 408) => {
                let left = message.header("Nats-Pending-Messages");
                let left = left.and_then(|text| text.parse().ok()).unwrap_or(self.asked);
                self.asked = self.asked.saturating_sub(left);
                // What was truncated does not come any more: the server has told all there is.
                let last = self.held.back().map(|last| last.position);
                if let Some(last) = last.filter(|_| self.asked == 0) {
                    self.release(last);
                }
                Ok(())
            }
            Some(100) | None => Ok(()),
            Some(_) => Err(TransportError::Server(message.status_text().to_owned()).into()),
        }
    }

    /// Transient records whose place is up to this position are next.
    fn release(&mut self, through: Position) {
        while self.held.front().is_some_and(|first| first.position <= through) {
            self.ready.extend(self.held.pop_front());
        }
    }

    /// Ends the reader and gives the connection back.
    ///
    /// # Errors
    /// What the server or the connection has against it.
    pub fn close(mut self) -> Result<Client, LogError> {
        let mut js = JetStream::new(&mut self.client, self.timeout);
        js.delete_consumer(&self.stream, &self.consumer)?;
        Ok(self.client)
    }
}

fn record(message: &Message<'_>, position: Position, transient: bool) -> Record {
    let is_ours = |name: &str| name.starts_with("Nats-") || name.starts_with("Nuthatch-");
    let pairs = message.header_pairs().filter(|(name, _)| !is_ours(name));
    Record {
        id: message.header("Nats-Msg-Id").unwrap_or_default().to_owned(),
        properties: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        data: message.payload.to_vec(),
        position,
        transient,
    }
}
