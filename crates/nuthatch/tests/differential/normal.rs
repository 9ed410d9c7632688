//! What is left of a record when everything is taken away that differs from run to run: times,
//! ids, names of servers, and what servers call themselves.

use std::collections::{BTreeMap, BTreeSet};

use nuthatch_client::OwnedMessage;
use serde_json::{Map, Value, json};

use crate::compare::{INTENDED, Rule};
use crate::run::{Record, Step, Transcript};

/// Go's zero time: that there is none is worth comparing.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// Fields that hold a time of the server's clock.
const TIMES: &[&str] = &[
    "created",
    "ts",
    "first_ts",
    "last_ts",
    "last_active",
    "time",
    "pinned_ts",
    "timestamp",
    "leader_since",
    "start",
    "stop",
];

/// Fields that name a server, a connection or an event, or count what depends on its age.
const IDENTITIES: &[&str] = &[
    "server_id",
    "server_name",
    "leader",
    "client_id",
    "cid",
    "client_ip",
    "ip",
    "port",
    "nonce",
    "host",
    "rtt",
    "id",
    "git_commit",
    "go",
    "xkey",
    "server",
    "pause_remaining",
];

/// A transcript in comparable form.
#[derive(Debug, Clone, Default)]
pub struct Normal {
    /// Lines of every step.
    pub steps: Vec<Vec<String>>,
    /// Values found under each intended difference of a field.
    pub fields: BTreeMap<&'static str, BTreeSet<String>>,
}

/// Normalises a transcript; `pending` says whether counts of pending messages can be compared.
pub fn normalise(transcript: &Transcript, pending: bool) -> Normal {
    let chosen = &transcript.chosen;
    let mut normaliser = Normaliser { chosen, pending, sizes: true, fields: BTreeMap::new() };
    let steps = transcript.steps.iter().map(|step| normaliser.step(step)).collect();
    Normal { steps, fields: normaliser.fields }
}

struct Normaliser<'a> {
    chosen: &'a BTreeMap<String, String>,
    pending: bool,
    /// False at a step whose messages hold times of unequal lengths.
    sizes: bool,
    fields: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Normaliser<'_> {
    fn step(&mut self, step: &Step) -> Vec<String> {
        self.sizes = !step.line.text.starts_with("tally ");
        step.records
            .iter()
            .map(|record| {
                let mut text = match record {
                    Record::Message(message) => self.message(message),
                    Record::Bytes(bytes) => self.bytes(bytes),
                    Record::Note(note) => note.clone(),
                };
                for (value, name) in self.chosen {
                    text = text.replace(value, name);
                }
                text
            })
            .collect()
    }

    fn message(&mut self, message: &OwnedMessage) -> String {
        let mut text = message.subject.clone();
        if let Some(reply) = &message.reply {
            text.push_str(&format!(" reply={}", reply_subject(reply, self.pending)));
        }
        if !message.headers.is_empty() {
            text.push_str(&format!(" headers={}", self.headers(&message.headers)));
        }
        text.push_str(" body=");
        text.push_str(&self.body(&message.payload));
        text
    }

    fn body(&mut self, body: &[u8]) -> String {
        match serde_json::from_slice::<Value>(body) {
            Ok(value @ (Value::Object(_) | Value::Array(_))) => self.json("", value).to_string(),
            _ if body.len() > 200 => {
                format!("{} bytes {}…", body.len(), body[..60].escape_ascii())
            }
            _ => body.escape_ascii().to_string(),
        }
    }

    /// An error's text without what is meant to be worded in another way. That a field is unknown
    /// is worded as upstream does.
    fn wording(&mut self, text: String) -> String {
        for entry in INTENDED {
            let Rule::Wording(start) = entry.rule else { continue };
            if let Some(rest) =
                text.strip_prefix(start).filter(|rest| !rest.contains("unknown field"))
            {
                self.fields.entry(entry.name).or_default().insert(rest.to_owned());
                return format!("{start}<wording>");
            }
        }
        text
    }

    /// `key` says where the value stands.
    fn json(&mut self, key: &str, value: Value) -> Value {
        match value {
            Value::Object(map) => Value::Object(self.object(key, map)),
            Value::Array(list) => {
                let mut list: Vec<_> =
                    list.into_iter().map(|value| self.json(key, value)).collect();
                if key == "events" {
                    // Steps of a trace: whom a message goes to first is nobody's business.
                    list.sort_by_key(Value::to_string);
                }
                if key == "sources" && list.iter().all(|source| source.get("active").is_some()) {
                    // How far sources are: nats-server has them in a map, in whose order it tells them (rarely another one).
                    list.sort_by_key(Value::to_string);
                }
                Value::Array(list)
            }
            Value::String(text)
                if key == "description" && text.starts_with("consumer's stream identity") =>
            {
                "<identity>".into()
            }
            Value::String(text) if key == "description" => self.wording(text).into(),
            Value::String(text) if TIMES.contains(&key) && text != NO_TIME => "<time>".into(),
            // How long ago a mirror's origin was heard of.
            Value::Number(_) if key == "active" => "<age>".into(),
            Value::String(_) | Value::Number(_) if IDENTITIES.contains(&key) => "<id>".into(),
            other => other,
        }
    }

    fn object(&mut self, parent: &str, map: Map<String, Value>) -> Map<String, Value> {
        let mut out = Map::new();
        let phantom = parent == "state" && map.get("deleted") == Some(&json!([0]));
        for (key, value) in map {
            if phantom
                && (key == "deleted" || key == "num_deleted")
                && let Some(name) = intended_field(parent, "<deleted 0>")
            {
                self.fields.entry(name).or_default().insert(value.to_string());
                continue;
            }
            let generated = value.as_str().is_some_and(|name| self.chosen.contains_key(name));
            let field = if key == "name" && generated { "<generated name>" } else { &key };
            if let Some(name) = intended_field(parent, field) {
                self.fields.entry(name).or_default().insert(value.to_string());
                continue;
            }
            let value = match (key.as_str(), value) {
                ("server" | "lost", _) => "<any>".into(),
                ("num_pending", _) if !self.pending => "<pending>".into(),
                ("ack_floor" | "delivered", _) if !self.pending => "<floor>".into(),
                ("total" | "errors" | "inflight", _) if parent == "api" => "<count>".into(),
                ("bytes", _) if parent == "state" && !self.sizes => "<bytes>".into(),
                (key, value) => self.json(key, value),
            };
            out.insert(key, value);
        }
        out
    }

    /// Headers as one line, in their order.
    fn headers(&mut self, block: &[u8]) -> String {
        let text = String::from_utf8_lossy(block);
        let mut lines: Vec<&str> = text.split("\r\n").collect();
        lines.retain(|line| {
            let hidden = INTENDED.iter().find(|entry| match entry.rule {
                Rule::Header(start) => line.starts_with(start),
                _ => false,
            });
            if let Some(entry) = hidden {
                self.fields.entry(entry.name).or_default().insert((*line).to_owned());
            }
            hidden.is_none()
        });
        let lines = lines.into_iter().map(|line| match line.split_once(": ") {
            Some(("Nats-Trace-Dest", subject)) if subject.starts_with("_R_.") => {
                "Nats-Trace-Dest: <reply>".to_owned()
            }
            Some(("Nats-Time-Stamp", _)) => "Nats-Time-Stamp: <time>".to_owned(),
            Some(("Nats-Stream-Identity", _)) => "Nats-Stream-Identity: <hash>".to_owned(),
            Some((name @ ("Nats-Consumer-Stalled" | "Nats-Subject"), subject)) => {
                format!("{name}: {}", reply_subject(subject, self.pending))
            }
            _ => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("|")
    }

    /// Protocol text, one line as one item, with the JSON of an INFO normalised. The PING by which
    /// a server measures the way to its client comes at any time and is left out.
    fn bytes(&mut self, bytes: &[u8]) -> String {
        let mut text = String::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = rest.windows(2).position(|w| w == b"\r\n").map_or(rest.len(), |at| at + 2);
            let (line, tail) = rest.split_at(end);
            rest = tail;
            if line == b"PING\r\n" {
                continue;
            }
            match line.strip_prefix(b"INFO ").map(serde_json::from_slice::<Value>) {
                Some(Ok(value)) => {
                    text.push_str(&format!("INFO {}\\r\\n", self.json("INFO", value)));
                }
                _ => text.push_str(&line.escape_ascii().to_string()),
            }
        }
        text
    }
}

fn intended_field(parent: &str, key: &str) -> Option<&'static str> {
    INTENDED.iter().find_map(|entry| match entry.rule {
        Rule::Field(of, field) if of == parent && field == key => Some(entry.name),
        _ => None,
    })
}

/// A reply subject without the time and the random part.
fn reply_subject(reply: &str, pending: bool) -> String {
    let mut tokens: Vec<&str> = reply.split('.').collect();
    match (reply, tokens.len()) {
        (r, 9) if r.starts_with("$JS.ACK.") => {
            tokens[7] = "<time>";
            if !pending {
                tokens[8] = "<pending>";
            }
        }
        (r, 5) if r.starts_with("$JS.FC.") => tokens[4] = "<random>",
        _ => {}
    }
    tokens.join(".")
}
