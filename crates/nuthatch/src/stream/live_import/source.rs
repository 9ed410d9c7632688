//! Source of an import: any server with JetStream, read without changing it.
//!
//! Streams with limits are read by a consumer that delivers in order. A work queue takes no such
//! consumer, and one on an interest stream might keep or release messages: those are read by
//! `STREAM.MSG.GET`, many at a time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use nuthatch_client::OwnedMessage;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::{Answer, ApiError, NO_MESSAGE, refusal};
use nuthatch_protocol::import::Imported;
use nuthatch_protocol::js::{
    ConsumerInfo, GetAnswer, GetRequest, RetentionPolicy, StreamInfo, StreamInfoRequest,
};
use serde_json::{Value, json};

use super::LiveImportArgs;
use crate::error::{CliError, damage_note};
use crate::follow::{Follower, From};
use crate::session::Session;

/// Gets that wait for their answers.
const GETS_MAX: u64 = 256;

/// The server that is read.
pub struct Source {
    pub session: Session,
    inbox: String,
    asked: u64,
    /// Answers that came before those to earlier questions, by the question's number.
    early: BTreeMap<u64, Option<Message>>,
}

/// A message as it was read.
pub struct Message {
    pub seq: u64,
    pub time_ns: i64,
    pub subject: Vec<u8>,
    pub headers: Vec<u8>,
    pub body: Vec<u8>,
}

impl Message {
    pub fn as_imported(&self) -> Imported<'_> {
        Imported {
            seq: self.seq,
            time_ns: self.time_ns,
            subject: &self.subject,
            headers: &self.headers,
            body: &self.body,
        }
    }
}

impl Source {
    /// Connects with what the command line says about the other server, and with nothing that it
    /// says about this one.
    pub fn open(args: &LiveImportArgs, connect: &ConnectArgs) -> Result<Self, CliError> {
        let mut there = ConnectArgs {
            server: args.from.clone().unwrap_or_default(),
            user: None,
            password: None,
            token: None,
            creds: args.from_creds.clone(),
            nkey: None,
            context: None,
            no_context: true,
            js_domain: args.from_domain.clone(),
            js_api_prefix: None,
            json: false,
            ..connect.clone()
        };
        there.connection_name = Some("nuthatch import".into());
        let mut session = Session::open(&there)?;
        let inbox = session.fresh_inbox();
        session.client.subscribe(&format!("{inbox}.*"), "")?;
        Ok(Self { session, inbox, asked: 0, early: BTreeMap::new() })
    }

    /// Information about these streams, or about all.
    pub fn streams(&mut self, names: &[String]) -> Result<Vec<Answer<StreamInfo>>, CliError> {
        if names.is_empty() {
            let what = "could not list the streams to import";
            let list = self.session.list_of("STREAM.LIST", "streams", &Value::Null);
            return list.map_err(CliError::js(what));
        }
        let request = StreamInfoRequest::default();
        names.iter().map(|name| self.info(name, &request)).collect()
    }

    pub fn info(
        &mut self,
        name: &str,
        request: &StreamInfoRequest,
    ) -> Result<Answer<StreamInfo>, CliError> {
        let answer = self.session.ask(&format!("STREAM.INFO.{name}"), request);
        answer.map_err(CliError::js(format!("stream {name} of the other server")))
    }

    pub fn last_seq(&mut self, name: &str) -> Result<u64, CliError> {
        Ok(self.info(name, &StreamInfoRequest::default())?.state.last_seq)
    }

    /// Consumers with their positions.
    pub fn consumers(&mut self, name: &str) -> Result<Vec<Answer<ConsumerInfo>>, CliError> {
        let what = format!("CONSUMER.LIST.{name}");
        let list = self.session.list_of(&what, "consumers", &Value::Null);
        list.map_err(CliError::js(format!("could not list the consumers of {name}")))
    }

    /// Reads what a stream has from `first` to `last`.
    pub fn read(&mut self, name: &str, first: u64, last: u64) -> Result<RangeReader, CliError> {
        let info = self.info(name, &StreamInfoRequest::default())?;
        let first = first.max(info.state.first_seq);
        let is_over = first > last || info.state.messages == 0;
        let way = if is_over {
            ReadMethod::Over
        } else if info.config.retention == RetentionPolicy::Limits {
            let start = From::Sequence(first);
            ReadMethod::Follow(Box::new(Follower::open(&mut self.session, name, &[], start)?))
        } else {
            ReadMethod::Get { next: first, asked: VecDeque::new() }
        };
        Ok(RangeReader { name: name.to_owned(), last, way })
    }

    /// Asks for one message; the answer comes by [`Source::answer`]. Returns the question's number.
    fn ask(&mut self, name: &str, which: &GetRequest) -> Result<u64, CliError> {
        self.asked += 1;
        let subject = format!("{}.STREAM.MSG.GET.{name}", self.session.api_prefix);
        let reply = format!("{}.{}", self.inbox, self.asked);
        let body = json!(which).to_string();
        let writer = &mut self.session.client.writer;
        writer.publish(subject.as_bytes(), reply.as_bytes(), b"", body.as_bytes())?;
        Ok(self.asked)
    }

    /// The answer to a question, whatever others come before it; `None`: there is no such message.
    fn answer(&mut self, name: &str, number: u64) -> Result<Option<Message>, CliError> {
        self.session.client.writer.flush()?;
        loop {
            if let Some(answer) = self.early.remove(&number) {
                return Ok(answer);
            }
            let deadline = Instant::now() + self.session.timeout;
            let message = self.session.client.next_message(deadline)?;
            let of = message.subject.rsplit('.').next().and_then(|text| text.parse().ok());
            if let Some(of) = of {
                self.early.insert(of, read_answer(name, &message)?);
            }
        }
    }
}

/// Decodes an answer.
fn read_answer(name: &str, message: &OwnedMessage) -> Result<Option<Message>, CliError> {
    match refusal(&message.payload) {
        Some(error) if error.err_code == NO_MESSAGE => return Ok(None),
        Some(ApiError { description: why, .. }) => {
            let note = damage_note(&why);
            let text = format!("could not read a message of {name}: {why}{note}");
            return Err(CliError::Failed(text));
        }
        None => {}
    }
    let answer: GetAnswer = serde_json::from_slice(&message.payload)
        .map_err(|why| CliError::Failed(format!("a message of {name}: {why}")))?;
    let stored = answer.message;
    if stored.seq == 0 || stored.subject.is_empty() {
        let text = format!("a message of {name} was answered in an unknown form");
        return Err(CliError::Failed(text));
    }
    Ok(Some(Message {
        seq: stored.seq,
        time_ns: stored.time.0,
        subject: stored.subject.into_bytes(),
        headers: stored.headers,
        body: stored.data,
    }))
}

/// Reads a stretch of a stream in order.
pub struct RangeReader {
    name: String,
    last: u64,
    way: ReadMethod,
}

enum ReadMethod {
    Over,
    Follow(Box<Follower>),
    Get {
        /// The next sequence to ask for.
        next: u64,
        /// Numbers of the questions that wait for their answers.
        asked: VecDeque<u64>,
    },
}

impl RangeReader {
    /// The next message; `None` at the end of the stretch.
    pub fn next(&mut self, source: &mut Source) -> Result<Option<Message>, CliError> {
        match &mut self.way {
            ReadMethod::Over => Ok(None),
            ReadMethod::Follow(_) => self.follow(source),
            ReadMethod::Get { .. } => self.get(source),
        }
    }

    fn follow(&mut self, source: &mut Source) -> Result<Option<Message>, CliError> {
        let ReadMethod::Follow(follower) = &mut self.way else { return Ok(None) };
        let deadline = Instant::now() + source.session.timeout.max(crate::follow::SILENCE * 2);
        let Some(got) = follower.next(&mut source.session, deadline)? else {
            follower.check_next(&mut source.session)?;
            let text = format!("the other server sends nothing more of {}", self.name);
            return Err(CliError::Failed(text));
        };
        if got.seq > self.last {
            self.end(source);
            return Ok(None);
        }
        let message = Message {
            seq: got.seq,
            time_ns: i64::try_from(got.time.unix_timestamp_nanos()).unwrap_or(i64::MAX),
            subject: got.message.subject.into_bytes(),
            headers: got.message.headers,
            body: got.message.payload,
        };
        if got.seq >= self.last || got.pending == 0 {
            self.end(source);
        }
        Ok(Some(message))
    }

    fn get(&mut self, source: &mut Source) -> Result<Option<Message>, CliError> {
        loop {
            let ReadMethod::Get { next, asked } = &mut self.way else { return Ok(None) };
            while *next <= self.last && (asked.len() as u64) < GETS_MAX {
                asked.push_back(
                    source.ask(&self.name, &GetRequest { seq: *next, ..GetRequest::default() })?,
                );
                *next += 1;
            }
            let Some(number) = asked.pop_front() else { return Ok(None) };
            if let Some(message) = source.answer(&self.name, number)? {
                return Ok(Some(message));
            }
        }
    }

    fn end(&mut self, source: &mut Source) {
        if let ReadMethod::Follow(follower) = std::mem::replace(&mut self.way, ReadMethod::Over) {
            follower.close(&mut source.session);
        }
    }

    /// Leaves nothing behind.
    pub fn close(mut self, source: &mut Source) {
        self.end(source);
    }
}
