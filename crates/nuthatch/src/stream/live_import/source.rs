//! Source of an import: any server with JetStream, read without changing it.
//!
//! Streams with limits are read by a consumer that delivers in order. A work queue takes no such
//! consumer, and one on an interest stream might keep or release messages: those are read by
//! `STREAM.MSG.GET`, many at a time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nuthatch_client::OwnedMessage;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_protocol::import::Imported;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::LiveImportArgs;
use crate::error::{CliError, damage_note};
use crate::follow::{Follower, From};
use crate::session::Session;
use crate::show;

/// Gets that wait for their answers.
const GETS_MAX: u64 = 256;
/// `no message found`.
const NO_MESSAGE: u64 = 10037;

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
    pub fn streams(&mut self, names: &[String]) -> Result<Vec<Value>, CliError> {
        if names.is_empty() {
            let what = "could not list the streams to import";
            let list = self.session.list("STREAM.LIST", "streams", &Value::Null);
            return list.map_err(CliError::js(what));
        }
        names.iter().map(|name| self.info(name, &Value::Null)).collect()
    }

    pub fn info(&mut self, name: &str, body: &Value) -> Result<Value, CliError> {
        let answer = self.session.api(&format!("STREAM.INFO.{name}"), body);
        answer.map_err(CliError::js(format!("stream {name} of the other server")))
    }

    pub fn last_seq(&mut self, name: &str) -> Result<u64, CliError> {
        let info = self.info(name, &Value::Null)?;
        Ok(info["state"]["last_seq"].as_u64().unwrap_or(0))
    }

    /// Consumers with their positions.
    pub fn consumers(&mut self, name: &str) -> Result<Vec<Value>, CliError> {
        let what = format!("CONSUMER.LIST.{name}");
        let list = self.session.list(&what, "consumers", &Value::Null);
        list.map_err(CliError::js(format!("could not list the consumers of {name}")))
    }

    /// Reads what a stream has from `first` to `last`.
    pub fn read(&mut self, name: &str, first: u64, last: u64) -> Result<RangeReader, CliError> {
        let info = self.info(name, &Value::Null)?;
        let first = first.max(info["state"]["first_seq"].as_u64().unwrap_or(0));
        let has_any = info["state"]["messages"].as_u64().unwrap_or(0) > 0;
        let is_over = first > last || !has_any;
        let way = if is_over {
            ReadMethod::Over
        } else if info["config"]["retention"] == "limits" || info["config"]["retention"].is_null() {
            let start = From::Sequence(first);
            ReadMethod::Follow(Box::new(Follower::open(&mut self.session, name, &[], start)?))
        } else {
            ReadMethod::Get { next: first, asked: VecDeque::new() }
        };
        Ok(RangeReader { name: name.to_owned(), last, way })
    }

    /// Asks for one message; the answer comes by [`Source::answer`]. Returns the question's number.
    fn ask(&mut self, name: &str, body: &Value) -> Result<u64, CliError> {
        self.asked += 1;
        let subject = format!("{}.STREAM.MSG.GET.{name}", self.session.api_prefix);
        let reply = format!("{}.{}", self.inbox, self.asked);
        let body = body.to_string();
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
    let answer: Value = serde_json::from_slice(&message.payload)
        .map_err(|why| CliError::Failed(format!("a message of {name}: {why}")))?;
    if answer["error"]["err_code"] == NO_MESSAGE {
        return Ok(None);
    }
    if answer["error"].is_object() {
        let why = show::text(&answer["error"]["description"]);
        let note = damage_note(&why);
        return Err(CliError::Failed(format!("could not read a message of {name}: {why}{note}")));
    }
    stored(&answer["message"]).map(Some).ok_or_else(|| {
        CliError::Failed(format!("a message of {name} was answered in an unknown form"))
    })
}

/// A message of `STREAM.MSG.GET`.
fn stored(message: &Value) -> Option<Message> {
    let bytes = |field: &str| BASE64.decode(message[field].as_str().unwrap_or_default()).ok();
    let time = OffsetDateTime::parse(message["time"].as_str()?, &Rfc3339).ok()?;
    Some(Message {
        seq: message["seq"].as_u64()?,
        time_ns: i64::try_from(time.unix_timestamp_nanos()).ok()?,
        subject: message["subject"].as_str()?.as_bytes().to_vec(),
        headers: bytes("hdrs")?,
        body: bytes("data")?,
    })
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
                asked.push_back(source.ask(&self.name, &json!({"seq": *next}))?);
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
