//! Samples, and how two of them become rates.

use std::collections::HashMap;
use std::time::Instant;

use nuthatch_client::connect::ConnectArgs;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::server::all_connections;
use crate::server::source::{Source, SourceArgs};
use crate::session::Session;
use crate::show::{number, text};

/// Takes samples.
pub struct Sampler {
    session: Session,
    /// Source of samples; `None` if no server answers.
    source: Option<Source>,
}

/// One measurement.
#[derive(Debug, Clone)]
pub struct Sample {
    at: Instant,
    /// What JetStream says of the account; null where it is off.
    account: Value,
    servers: Vec<Value>,
    streams: Vec<Value>,
    connections: Vec<Value>,
}

/// A thing with what it has done and how fast.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// The server's facts.
    pub facts: Value,
    /// Messages a second coming in.
    pub in_rate: f64,
    /// Messages a second going out.
    pub out_rate: f64,
    /// Bytes a second coming in.
    pub in_bytes_rate: f64,
    /// Bytes a second going out.
    pub out_bytes_rate: f64,
}

/// The rates shown.
#[derive(Debug, Clone)]
pub struct Rates {
    /// What JetStream says of the account; null where it is off.
    pub account: Value,
    /// Servers.
    pub servers: Vec<Row>,
    /// Streams of the account; messages in are those stored.
    pub streams: Vec<Row>,
    /// Connections of clients; in and out as the server sees it.
    pub connections: Vec<Row>,
    /// Whether servers could be asked at all.
    pub has_servers: bool,
}

impl Sampler {
    /// Connects, and finds out whether servers can be asked.
    ///
    /// # Errors
    /// When there is no connection, or the monitoring address that was given does not answer.
    pub fn open(args: &SourceArgs, connect: &ConnectArgs) -> Result<Self, CliError> {
        let session = Session::open(connect)?;
        let mut source = Source::open(args, connect)?;
        let source = match source.ask("varz", &Value::Null) {
            Ok(_) => Some(source),
            Err(_) if matches!(source, Source::System(_)) => None,
            Err(err) => return Err(err),
        };
        Ok(Self { session, source })
    }

    /// Measures.
    ///
    /// # Errors
    /// When a connection fails.
    pub fn take(&mut self) -> Result<Sample, CliError> {
        let mut sample = Sample {
            at: Instant::now(),
            account: self.session.api("INFO", &Value::Null).unwrap_or_default(),
            servers: Vec::new(),
            streams: self.streams()?,
            connections: Vec::new(),
        };
        if let Some(source) = &mut self.source {
            for answer in source.ask("varz", &Value::Null)? {
                let mut facts = answer.data;
                facts["server_name"] = answer.server.into();
                sample.servers.push(facts);
            }
            sample.connections = all_connections(source, "open")?;
        }
        Ok(sample)
    }

    /// The streams; none when the account has no JetStream.
    fn streams(&mut self) -> Result<Vec<Value>, CliError> {
        use nuthatch_client::js::JsError;
        match self.session.list("STREAM.LIST", "streams", &Value::Null) {
            Ok(streams) => Ok(streams),
            Err(JsError::NotEnabled | JsError::Unheard(_) | JsError::Api(_)) => Ok(Vec::new()),
            Err(err) => Err(CliError::js("could not list streams")(err)),
        }
    }
}

/// The names under which a thing counts messages and bytes.
struct Counters {
    id: fn(&Value) -> String,
    messages: [fn(&Value) -> u64; 2],
    bytes: [fn(&Value) -> u64; 2],
}

impl Sample {
    /// Rates between an earlier sample and this one.
    pub fn since(&self, before: &Self) -> Rates {
        let seconds = (self.at - before.at).as_secs_f64();
        let of_connection = Counters {
            id: |facts| format!("{} {}", text(&facts["server"]), facts["cid"]),
            messages: [|facts| number(&facts["in_msgs"]), |facts| number(&facts["out_msgs"])],
            bytes: [|facts| number(&facts["in_bytes"]), |facts| number(&facts["out_bytes"])],
        };
        let of_server = Counters { id: |facts| text(&facts["server_name"]), ..of_connection };
        let of_stream = Counters {
            id: |facts| format!("{} {}", facts["config"]["name"], facts["created"]),
            // Sequences count what was stored; what was removed since does not matter.
            messages: [|facts| number(&facts["state"]["last_seq"]), |_| 0],
            bytes: [|_| 0, |_| 0],
        };
        Rates {
            account: self.account.clone(),
            servers: rows(&self.servers, &before.servers, &of_server, seconds),
            streams: rows(&self.streams, &before.streams, &of_stream, seconds),
            connections: rows(&self.connections, &before.connections, &of_connection, seconds),
            has_servers: !self.servers.is_empty(),
        }
    }
}

fn rows(now: &[Value], before: &[Value], counters: &Counters, seconds: f64) -> Vec<Row> {
    let old: HashMap<String, &Value> = before.iter().map(|f| ((counters.id)(f), f)).collect();
    let row = |facts: &Value| {
        let old = old.get(&(counters.id)(facts)).copied();
        let rate = |count: fn(&Value) -> u64| match old {
            Some(old) if seconds > 0.0 => count(facts).saturating_sub(count(old)) as f64 / seconds,
            _ => 0.0,
        };
        Row {
            facts: facts.clone(),
            in_rate: rate(counters.messages[0]),
            out_rate: rate(counters.messages[1]),
            in_bytes_rate: rate(counters.bytes[0]),
            out_bytes_rate: rate(counters.bytes[1]),
        }
    };
    now.iter().map(row).collect()
}

impl Rates {
    /// For programs.
    pub fn to_json(&self) -> Value {
        let list = |rows: &[Row]| -> Value {
            let row = |row: &Row| {
                json!({
                    "facts": row.facts, "in_msgs_per_s": row.in_rate,
                    "out_msgs_per_s": row.out_rate, "in_bytes_per_s": row.in_bytes_rate,
                    "out_bytes_per_s": row.out_bytes_rate,
                })
            };
            rows.iter().map(row).collect()
        };
        json!({
            "servers": list(&self.servers), "streams": list(&self.streams),
            "connections": list(&self.connections),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rates_are_differences() {
        let at = Instant::now();
        let stream =
            |last: u64| json!({ "config": { "name": "S" }, "state": { "last_seq": last } });
        let sample = |at, last| Sample {
            at,
            account: Value::Null,
            servers: vec![json!({ "server_name": "s", "in_msgs": last * 3, "out_bytes": 5 })],
            streams: vec![stream(last)],
            connections: Vec::new(),
        };
        let rates = sample(at + Duration::from_secs(2), 30).since(&sample(at, 10));
        assert_eq!((rates.streams[0].in_rate, rates.servers[0].in_rate), (10.0, 30.0));
        assert_eq!(rates.servers[0].out_bytes_rate, 0.0);
        // A stream that was not there before has no rate, and one that began anew no negative one.
        let fresh = Sample { streams: Vec::new(), ..sample(at, 10) };
        assert_eq!(sample(at + Duration::from_secs(1), 5).since(&fresh).streams[0].in_rate, 0.0);
    }
}
