//! Runs a script against one server and records what comes back, byte for byte.

use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::{Duration, Instant};

use nuthatch_client::OwnedMessage;
use serde_json::Value;

use crate::raw::RawConnection;
use crate::script::{self, Line, Script};
use crate::server::Server;
use crate::wire::{ANSWER_LIMIT, Wire};

/// How long `await` waits.
const AWAIT_LIMIT: Duration = Duration::from_secs(20);

/// How long it waits until it looks again.
const AWAIT_STEP: Duration = Duration::from_millis(20);

/// How long a request that must stay unanswered is given.
const SILENCE: Duration = Duration::from_millis(250);

/// How long `get` and `next` wait by default.
const GET_LIMIT_MS: u64 = 2000;

/// What a step brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A message.
    Message(OwnedMessage),
    /// Bytes of a raw connection.
    Bytes(Vec<u8>),
    /// Something else: silence, an error of the server, a count.
    Note(String),
}

/// A step and what it brought.
#[derive(Debug, Clone)]
pub struct Step {
    /// As in the script.
    pub line: Line,
    /// In order of arrival.
    pub records: Vec<Record>,
}

/// All steps of a script on one server.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    /// In order.
    pub steps: Vec<Step>,
    /// Names that the server chose, with what stands for them.
    pub chosen: BTreeMap<String, String>,
}

/// Runs a section of a script.
///
/// # Errors
/// When the server cannot be reached at all.
pub fn run(script: &Script, server: &mut Server) -> Result<Transcript, String> {
    let mut runner = Runner {
        port: server.port,
        wire: Wire::connect(server.port)?,
        raw: HashMap::new(),
        each: Vec::new(),
        variables: HashMap::new(),
        acks: Vec::new(),
        flow: None,
        pulls: 0,
        last: None,
        out: Transcript::default(),
    };
    for line in &script.lines {
        runner.step(line);
        if line.text == "stop" {
            server.stop();
        }
        if !server.is_stopped() && !server.is_alive() {
            return Err(format!("line {}: the server is gone\n{}", line.number, server.log_tail()));
        }
    }
    Ok(runner.out)
}

struct Runner {
    port: u16,
    wire: Wire,
    raw: HashMap<String, RawConnection>,
    each: Vec<String>,
    variables: HashMap<String, String>,
    /// Reply subjects of the JetStream messages of the section.
    acks: Vec<String>,
    /// Reply subject of the flow control request that came last.
    flow: Option<String>,
    /// Pull requests so far: each has its own inbox, as one that is forgotten may still be served.
    pulls: u64,
    last: Option<Value>,
    out: Transcript,
}

impl Runner {
    fn step(&mut self, line: &Line) {
        self.one(line.clone());
        let quiet = ["each", "set ", "await ", "sleep ", "sub "];
        if quiet.iter().any(|word| line.text.starts_with(word)) {
            return;
        }
        for each in self.each.clone() {
            let (mark, text) = script::marked(&each);
            let intended = mark.or_else(|| line.intended.clone());
            self.one(Line { number: line.number, intended, text: text.to_owned() });
        }
    }

    fn one(&mut self, line: Line) {
        let mut text = line.text.clone();
        for (name, value) in &self.variables {
            text = text.replace(&format!("${name}"), value);
        }
        let mut records = Vec::new();
        if let Err(err) = self.perform(&text, &mut records) {
            records.push(Record::Note(format!("failed: {err}")));
            // Later steps tell more on a connection that works.
            if let Ok(wire) = Wire::connect(self.port) {
                self.wire = wire;
            }
        }
        records.extend(self.wire.errors.drain(..).map(|err| Record::Note(format!("-ERR {err}"))));
        self.notice(&text, &records);
        self.out.steps.push(Step { line, records });
    }

    /// Keeps what later steps refer to.
    fn notice(&mut self, text: &str, records: &[Record]) {
        for record in records {
            let Record::Message(message) = record else { continue };
            if let Some(reply) = message.reply.as_ref().filter(|r| r.starts_with("$JS.ACK.")) {
                self.acks.push(reply.clone());
            }
            if let Some(reply) = message.reply.as_ref().filter(|r| r.starts_with("$JS.FC.")) {
                self.flow = Some(reply.clone());
            }
            self.last = serde_json::from_slice(&message.payload).ok();
            let Some(reply) = &self.last else { continue };
            let name = reply["name"].as_str().filter(|name| is_generated(text, name));
            if let Some(name) = name {
                let number = self.out.chosen.len() + 1;
                let known = self.out.chosen.entry(name.to_owned());
                known.or_insert_with(|| format!("<consumer {number}>"));
            }
        }
    }

    fn perform(&mut self, text: &str, out: &mut Vec<Record>) -> Result<(), String> {
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        match verb {
            "req" | "pub" => self.request(rest, ANSWER_LIMIT, out),
            "api" => self.request(&format!("$JS.API.{rest}"), ANSWER_LIMIT, out),
            "quiet" => self.request(rest, SILENCE, out),
            "show" | "tally" => {
                let body = r#"{"deleted_details":true,"subjects_filter":">"}"#;
                self.request(&format!("$JS.API.STREAM.INFO.{rest} {body}"), ANSWER_LIMIT, out)
            }
            "send" => {
                let (subject, headers, body) = script::message(rest);
                self.wire.publish(&subject, "", &headers, &body)?;
                self.wire.flush()
            }
            "sendr" => self.send_with_reply(rest),
            "sub" => {
                let words: Vec<&str> = rest.split(' ').collect();
                self.wire.subscribe(words[0], words[1], words.get(2).copied().unwrap_or_default())
            }
            "unsub" => self.wire.unsubscribe(rest),
            "get" => self.get(rest, out),
            "pull" => self.pull(rest),
            "next" => self.next(rest, out),
            "ack" | "ack-" => self.ack(rest, verb == "ack", out),
            "flow" => self.flow(rest),
            "each" if rest.is_empty() => {
                self.each.clear();
                Ok(())
            }
            "each" => {
                self.each.push(rest.to_owned());
                Ok(())
            }
            "set" => self.set(rest),
            "await" => self.wait_for(rest),
            "sleep" => {
                thread::sleep(Duration::from_millis(number(rest)?));
                Ok(())
            }
            "flush" => self.wire.flush(),
            // Sent by `run`.
            "stop" => Ok(()),
            "conn" | "raw" | "read" | "drop" => self.raw(verb, rest, out),
            other => Err(format!("unknown step {other:?}")),
        }
    }

    fn request(
        &mut self,
        text: &str,
        limit: Duration,
        out: &mut Vec<Record>,
    ) -> Result<(), String> {
        let (subject, headers, body) = script::message(text);
        match self.wire.request(&subject, &headers, &body, limit)? {
            Some(mut message) => {
                message.subject = "reply".to_owned();
                out.push(Record::Message(message));
            }
            None => out.push(Record::Note("no reply".to_owned())),
        }
        Ok(())
    }

    fn wait_for(&mut self, rest: &str) -> Result<(), String> {
        let (stream, count) = rest.split_once(' ').ok_or("await STREAM COUNT")?;
        let (count, deadline) = (number(count)?, Instant::now() + AWAIT_LIMIT);
        loop {
            let mut found = Vec::new();
            self.request(&format!("$JS.API.STREAM.INFO.{stream}"), ANSWER_LIMIT, &mut found)?;
            let info: Value = match found.first() {
                Some(Record::Message(message)) => {
                    serde_json::from_slice(&message.payload).unwrap_or_default()
                }
                _ => Value::Null,
            };
            if info["state"]["messages"] == count {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(format!("{stream} does not come to {count} messages: {info}"));
            }
            thread::sleep(AWAIT_STEP);
        }
    }

    fn send_with_reply(&mut self, rest: &str) -> Result<(), String> {
        let (subject, rest) = rest.split_once(' ').ok_or("sendr SUBJECT REPLY BODY")?;
        let (reply, headers, body) = script::message(rest);
        self.wire.publish(subject, &reply, &headers, &body)?;
        self.wire.flush()
    }

    fn get(&mut self, rest: &str, out: &mut Vec<Record>) -> Result<(), String> {
        let words: Vec<&str> = rest.split(' ').collect();
        let count = number(words.get(1).copied().unwrap_or("1"))?;
        let limit = words.get(2).map_or(Ok(GET_LIMIT_MS), |word| number(word))?;
        let deadline = Instant::now() + Duration::from_millis(limit);
        for done in 0..count {
            match self.wire.next(words[0], deadline)? {
                Some(message) => out.push(Record::Message(message)),
                None => {
                    out.push(Record::Note(format!("{done} of {count} arrived")));
                    break;
                }
            }
        }
        Ok(())
    }

    fn pull(&mut self, rest: &str) -> Result<(), String> {
        let mut words = rest.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (name, stream, consumer, body) = (word(), word(), word(), word());
        self.wire.unsubscribe(name)?;
        self.pulls += 1;
        let inbox = format!("_INBOX.pull.{name}.{}", self.pulls);
        self.wire.subscribe(name, &inbox, "")?;
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        let (_, headers, body) = script::message(&format!("s {body}"));
        self.wire.publish(&subject, &inbox, &headers, &body)?;
        self.wire.flush()
    }

    fn next(&mut self, rest: &str, out: &mut Vec<Record>) -> Result<(), String> {
        self.pull(&format!("next {rest}"))?;
        let body = rest.splitn(3, ' ').nth(2).unwrap_or_default();
        let wanted = wanted(body);
        let deadline = Instant::now() + Duration::from_millis(GET_LIMIT_MS);
        let mut done = 0;
        while done < wanted {
            let Some(message) = self.wire.next("next", deadline)? else {
                out.push(Record::Note(format!("{done} of {wanted} arrived")));
                break;
            };
            let status = message.view().status();
            out.push(Record::Message(message));
            match status {
                None => done += 1,
                Some(100) => {}
                Some(_) => break,
            }
        }
        self.wire.unsubscribe("next")
    }

    fn ack(&mut self, rest: &str, confirmed: bool, out: &mut Vec<Record>) -> Result<(), String> {
        let (index, body) = rest.split_once(' ').unwrap_or((rest, ""));
        let index: i64 = index.parse().map_err(|_| "ack takes an index")?;
        let place = if index < 0 { self.acks.len() as i64 + index } else { index - 1 };
        let Some(subject) = usize::try_from(place).ok().and_then(|i| self.acks.get(i)).cloned()
        else {
            out.push(Record::Note("no such message".to_owned()));
            return Ok(());
        };
        if confirmed {
            return self.request(&format!("{subject} {body}"), ANSWER_LIMIT, out);
        }
        self.wire.publish(&subject, "", b"", body.as_bytes())?;
        self.wire.flush()
    }

    fn flow(&mut self, rest: &str) -> Result<(), String> {
        let request = self.flow.clone().ok_or("no flow control request came")?;
        let (_, headers, body) = script::message(&format!("s {rest}"));
        self.wire.publish(&request, "", &headers, &body)?;
        self.wire.flush()
    }

    fn set(&mut self, rest: &str) -> Result<(), String> {
        let (name, path) = rest.split_once(' ').ok_or("set NAME PATH")?;
        let last = self.last.as_ref().ok_or("no reply to take it from")?;
        let found = path.split('.').try_fold(last, |value, key| value.get(key));
        let value = found.and_then(Value::as_str).ok_or("the last reply holds no such text")?;
        self.variables.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    fn raw(&mut self, verb: &str, rest: &str, out: &mut Vec<Record>) -> Result<(), String> {
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        if verb == "conn" {
            let connection = RawConnection::open(self.port).map_err(|err| err.to_string())?;
            self.raw.insert(name.to_owned(), connection);
            return Ok(());
        }
        if verb == "drop" {
            self.raw.remove(name);
            return Ok(());
        }
        let connection = self.raw.get_mut(name).ok_or_else(|| format!("no connection {name}"))?;
        if verb == "raw" {
            return connection.send(&script::unescape(rest)).map_err(|err| err.to_string());
        }
        out.push(Record::Bytes(connection.read(rest)));
        Ok(())
    }
}

/// True if the server made up this name in answer to a step that creates a consumer.
fn is_generated(step: &str, name: &str) -> bool {
    step.strip_prefix("api CONSUMER.CREATE.").is_some_and(|rest| !rest.contains(name))
}

/// How many messages a pull request asks for.
fn wanted(body: &str) -> u64 {
    let body = body.trim();
    if let Ok(count) = body.parse() {
        return count;
    }
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    json["batch"].as_u64().unwrap_or(1).max(1)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}
