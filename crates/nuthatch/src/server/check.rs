//! `server check`: probes with the exit codes and the line that monitoring systems of the Nagios kind
//! understand: `OK name: words | label=value;warning;critical`.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::Answer;
use nuthatch_client::units::parse_duration;
use nuthatch_protocol::js::{AccountInfo, ConsumerInfo, GetRequest, StreamInfoRequest, Time};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::error::CliError;
use crate::input::check_name;
use crate::kv::stream_name;
use crate::session::{Session, print};
use crate::show;
use crate::stream::contents::stored;

/// Probes.
#[derive(Debug, Clone, Subcommand)]
pub enum CheckCommand {
    /// A connection can be made and answers in time
    #[command(visible_alias = "conn")]
    Connection(ConnectionArgs),
    /// JetStream has room within the account's limits
    #[command(visible_alias = "js")]
    Jetstream(JetstreamArgs),
    /// A stream is there and holds enough
    Stream(StreamArgs),
    /// A consumer keeps up
    Consumer(ConsumerArgs),
    /// A stream's last message is recent
    #[command(visible_alias = "msg")]
    Message(MessageArgs),
    /// A key-value bucket is there and holds enough
    Kv(KvArgs),
}

/// Options of `server check connection`.
#[derive(Debug, Clone, Args)]
pub struct ConnectionArgs {
    /// Warn when connecting takes longer
    #[arg(long, default_value = "500ms", value_parser = parse_duration)]
    connect_warn: Duration,
    /// Critical when connecting takes longer
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    connect_critical: Duration,
    /// Warn when a round trip takes longer
    #[arg(long, default_value = "500ms", value_parser = parse_duration)]
    rtt_warn: Duration,
    /// Critical when a round trip takes longer
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    rtt_critical: Duration,
    /// Warn when a request to ourselves takes longer
    #[arg(long, default_value = "500ms", value_parser = parse_duration)]
    req_warn: Duration,
    /// Critical when a request to ourselves takes longer
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    req_critical: Duration,
}

/// Options of `server check jetstream`; percentages of the account's limits, -1 for none.
#[derive(Debug, Clone, Args)]
pub struct JetstreamArgs {
    /// Warn when memory storage is fuller, in percent
    #[arg(long, default_value_t = 75, allow_negative_numbers = true)]
    mem_warn: i64,
    /// Critical when memory storage is fuller, in percent
    #[arg(long, default_value_t = 90, allow_negative_numbers = true)]
    mem_critical: i64,
    /// Warn when file storage is fuller, in percent
    #[arg(long, default_value_t = 75, allow_negative_numbers = true)]
    store_warn: i64,
    /// Critical when file storage is fuller, in percent
    #[arg(long, default_value_t = 90, allow_negative_numbers = true)]
    store_critical: i64,
    /// Warn when more of the streams are used, in percent
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    streams_warn: i64,
    /// Critical when more of the streams are used, in percent
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    streams_critical: i64,
    /// Warn when more of the consumers are used, in percent
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    consumers_warn: i64,
    /// Critical when more of the consumers are used, in percent
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    consumers_critical: i64,
}

/// Options of `server check stream`.
#[derive(Debug, Clone, Args)]
pub struct StreamArgs {
    /// Stream
    #[arg(long)]
    stream: String,
    /// Warn when it holds fewer messages
    #[arg(long)]
    msgs_warn: Option<u64>,
    /// Critical when it holds fewer messages
    #[arg(long)]
    msgs_critical: Option<u64>,
    /// Warn when it holds fewer subjects
    #[arg(long)]
    subjects_warn: Option<u64>,
    /// Critical when it holds fewer subjects
    #[arg(long)]
    subjects_critical: Option<u64>,
    /// Critical when a source or the mirrored stream is further ahead
    #[arg(long, value_name = "MSGS")]
    lag_critical: Option<u64>,
    /// Critical when a source or the mirrored stream was not seen for longer
    #[arg(long, value_parser = parse_duration)]
    seen_critical: Option<Duration>,
}

/// Options of `server check consumer`.
#[derive(Debug, Clone, Args)]
pub struct ConsumerArgs {
    /// Stream
    #[arg(long)]
    stream: String,
    /// Consumer
    #[arg(long)]
    consumer: String,
    /// Critical when more messages are unacknowledged
    #[arg(long)]
    outstanding_ack_critical: Option<u64>,
    /// Critical when more pulls are waiting
    #[arg(long)]
    waiting_critical: Option<u64>,
    /// Critical when more messages are unprocessed
    #[arg(long)]
    unprocessed_critical: Option<u64>,
    /// Critical when the last delivery is longer ago
    #[arg(long, value_parser = parse_duration)]
    last_delivery_critical: Option<Duration>,
    /// Critical when the last ack is longer ago
    #[arg(long, value_parser = parse_duration)]
    last_ack_critical: Option<Duration>,
    /// Critical when more messages are being redelivered
    #[arg(long)]
    redelivery_critical: Option<u64>,
}

/// Options of `server check message`.
#[derive(Debug, Clone, Args)]
pub struct MessageArgs {
    /// Stream
    #[arg(long)]
    stream: String,
    /// Subject of the message
    #[arg(long, default_value = ">")]
    subject: String,
    /// Warn when it is older
    #[arg(long, value_parser = parse_duration)]
    age_warn: Option<Duration>,
    /// Critical when it is older
    #[arg(long, value_parser = parse_duration)]
    age_critical: Option<Duration>,
}

/// Options of `server check kv`.
#[derive(Debug, Clone, Args)]
pub struct KvArgs {
    /// Bucket
    #[arg(long)]
    bucket: String,
    /// Warn when it holds fewer values
    #[arg(long)]
    values_warn: Option<u64>,
    /// Critical when it holds fewer values
    #[arg(long)]
    values_critical: Option<u64>,
    /// Critical when this key has no value
    #[arg(long)]
    key: Option<String>,
}

/// How bad it is; the number is the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Ok = 0,
    Warning = 1,
    Critical = 2,
}

/// Result of a probe.
#[derive(Debug)]
struct Probe {
    name: String,
    level: Level,
    words: Vec<String>,
    measures: Vec<Value>,
}

impl Probe {
    fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), level: Level::Ok, words: Vec::new(), measures: Vec::new() }
    }

    fn raise(&mut self, level: Level, words: String) {
        self.level = self.level.max(level);
        self.words.push(words);
    }

    /// A value that must not be above its limits.
    fn at_most(&mut self, label: &str, value: f64, warn: Option<f64>, critical: Option<f64>) {
        self.measure(label, value, warn, critical);
        let above = |limit: Option<f64>| limit.filter(|limit| value > *limit);
        if let Some(limit) = above(critical) {
            self.raise(Level::Critical, format!("{label} {value} is above {limit}"));
        } else if let Some(limit) = above(warn) {
            self.raise(Level::Warning, format!("{label} {value} is above {limit}"));
        }
    }

    /// A value that must not be below its limits.
    fn at_least(&mut self, label: &str, value: f64, warn: Option<f64>, critical: Option<f64>) {
        self.measure(label, value, warn, critical);
        let below = |limit: Option<f64>| limit.filter(|limit| value < *limit);
        if let Some(limit) = below(critical) {
            self.raise(Level::Critical, format!("{label} {value} is below {limit}"));
        } else if let Some(limit) = below(warn) {
            self.raise(Level::Warning, format!("{label} {value} is below {limit}"));
        }
    }

    fn measure(&mut self, label: &str, value: f64, warn: Option<f64>, critical: Option<f64>) {
        let measure =
            json!({ "label": label, "value": value, "warning": warn, "critical": critical });
        self.measures.push(measure);
    }

    fn line(&self) -> String {
        let words =
            if self.words.is_empty() { "all is well".into() } else { self.words.join("; ") };
        let mut line = format!("{} {}: {words}", self.status(), self.name);
        for (index, measure) in self.measures.iter().enumerate() {
            line.push_str(if index == 0 { " | " } else { " " });
            let text = |key: &str| show::text(&measure[key]).trim_end_matches(".0").to_owned();
            let all = [text("value"), text("warning"), text("critical")].join(";");
            line.push_str(&format!("{}={}", text("label"), all.trim_end_matches(';')));
        }
        line
    }

    fn status(&self) -> &'static str {
        match self.level {
            Level::Ok => "OK",
            Level::Warning => "WARNING",
            Level::Critical => "CRITICAL",
        }
    }
}

/// Runs a probe, prints what it found, and ends with its exit code.
pub fn run(command: &CheckCommand, connect: &ConnectArgs) -> Result<(), CliError> {
    let name = match command {
        CheckCommand::Connection(_) => "connection".to_owned(),
        CheckCommand::Jetstream(_) => "jetstream".to_owned(),
        CheckCommand::Stream(args) => format!("stream {}", args.stream),
        CheckCommand::Consumer(args) => format!("consumer {} {}", args.stream, args.consumer),
        CheckCommand::Message(args) => format!("message {} {}", args.stream, args.subject),
        CheckCommand::Kv(args) => format!("bucket {}", args.bucket),
    };
    let mut probe = Probe::new(name);
    let done = match command {
        CheckCommand::Connection(args) => connection(args, connect, &mut probe),
        CheckCommand::Jetstream(args) => jetstream(args, connect, &mut probe),
        CheckCommand::Stream(args) => stream(args, connect, &mut probe),
        CheckCommand::Consumer(args) => consumer(args, connect, &mut probe),
        CheckCommand::Message(args) => message(args, connect, &mut probe),
        CheckCommand::Kv(args) => kv(args, connect, &mut probe),
    };
    match done {
        Ok(()) => {}
        // A wrong command line is not a finding about the server.
        Err(err @ (CliError::Usage(_) | CliError::Settings(_))) => {
            eprintln!("nuthatch: {err}");
            writeln!(io::stdout(), "UNKNOWN {}: {err}", probe.name)?;
            return Err(CliError::Check(3));
        }
        Err(err) => probe.raise(Level::Critical, err.to_string()),
    }
    let json = json!({
        "name": probe.name, "status": probe.status(), "reasons": probe.words,
        "measures": probe.measures,
    });
    print(connect.json, &json, || format!("{}\n", probe.line()))?;
    match probe.level {
        Level::Ok => Ok(()),
        level => Err(CliError::Check(level as u8)),
    }
}

fn seconds(duration: Duration) -> Option<f64> {
    Some(duration.as_secs_f64())
}

fn connection(
    args: &ConnectionArgs,
    connect: &ConnectArgs,
    probe: &mut Probe,
) -> Result<(), CliError> {
    let rounded = |started: Instant| (started.elapsed().as_secs_f64() * 1e6).round() / 1e6;
    let started = Instant::now();
    let mut session = Session::open(connect)?;
    let (warn, critical) = (seconds(args.connect_warn), seconds(args.connect_critical));
    probe.at_most("connect_time", rounded(started), warn, critical);
    let started = Instant::now();
    session.client.round_trip(session.timeout)?;
    probe.at_most("rtt", rounded(started), seconds(args.rtt_warn), seconds(args.rtt_critical));
    let inbox = session.fresh_inbox();
    session.client.subscribe(&inbox, "")?;
    let started = Instant::now();
    session.client.writer.publish(inbox.as_bytes(), b"", b"", b"probe")?;
    session.client.writer.flush()?;
    session.client.next_message(Instant::now() + session.timeout)?;
    let (warn, critical) = (seconds(args.req_warn), seconds(args.req_critical));
    probe.at_most("request_time", rounded(started), warn, critical);
    Ok(())
}

fn jetstream(
    args: &JetstreamArgs,
    connect: &ConnectArgs,
    probe: &mut Probe,
) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let info: Answer<AccountInfo> =
        session.ask("INFO", &Value::Null).map_err(CliError::js("JetStream"))?;
    let limits = &info.limits;
    let rows = [
        ("memory", info.memory, limits.max_memory, args.mem_warn, args.mem_critical),
        ("storage", info.storage, limits.max_storage, args.store_warn, args.store_critical),
        ("streams", info.streams, limits.max_streams, args.streams_warn, args.streams_critical),
        (
            "consumers",
            info.consumers,
            limits.max_consumers,
            args.consumers_warn,
            args.consumers_critical,
        ),
    ];
    for (label, used, limit, warn, critical) in rows {
        probe.measure(label, used as f64, None, None);
        if limit <= 0 {
            continue;
        }
        let percent = (used as f64 / limit as f64 * 10_000.0).round() / 100.0;
        let bound = |bound: i64| (bound >= 0).then_some(bound as f64);
        probe.at_most(&format!("{label}_pct"), percent, bound(warn), bound(critical));
    }
    Ok(())
}

fn bound(limit: Option<u64>) -> Option<f64> {
    limit.map(|limit| limit as f64)
}

fn stream(args: &StreamArgs, connect: &ConnectArgs, probe: &mut Probe) -> Result<(), CliError> {
    check_name("stream", &args.stream)?;
    let mut session = Session::open(connect)?;
    let info = crate::stream::fetch(&mut session, &args.stream, &StreamInfoRequest::default())?;
    let held = info.state.messages as f64;
    probe.at_least("messages", held, bound(args.msgs_warn), bound(args.msgs_critical));
    let subjects = info.state.num_subjects as f64;
    probe.at_least("subjects", subjects, bound(args.subjects_warn), bound(args.subjects_critical));
    for flow in info.mirror.iter().chain(&info.sources) {
        let name = &flow.name;
        probe.at_most(&format!("lag_{name}"), flow.lag as f64, None, bound(args.lag_critical));
        // Negative: nothing was heard yet.
        let seen = u64::try_from(flow.active).map_or(f64::MAX, |ns| ns as f64 / 1e9);
        let limit = args.seen_critical.and_then(seconds);
        if limit.is_some() {
            probe.at_most(&format!("seen_{name}"), seen, None, limit);
        }
    }
    Ok(())
}

/// How long ago a time was, in seconds; nothing when it has never been.
fn age(time: Time) -> Option<f64> {
    let now = OffsetDateTime::now_utc().unix_timestamp_nanos();
    (!time.is_zero()).then(|| ((now - i128::from(time.0)) as f64 / 1e9).max(0.0))
}

fn consumer(args: &ConsumerArgs, connect: &ConnectArgs, probe: &mut Probe) -> Result<(), CliError> {
    check_name("stream", &args.stream)?;
    check_name("consumer", &args.consumer)?;
    let mut session = Session::open(connect)?;
    let what = format!("CONSUMER.INFO.{}.{}", args.stream, args.consumer);
    let info: Answer<ConsumerInfo> =
        session.ask(&what, &Value::Null).map_err(CliError::js("not found"))?;
    let rows = [
        ("unacknowledged", info.num_ack_pending, args.outstanding_ack_critical),
        ("waiting", info.num_waiting, args.waiting_critical),
        ("unprocessed", info.num_pending, args.unprocessed_critical),
        ("redelivered", info.num_redelivered, args.redelivery_critical),
    ];
    for (label, count, critical) in rows {
        probe.at_most(label, count as f64, None, bound(critical));
    }
    let times = [
        ("last_delivery", &info.delivered, args.last_delivery_critical),
        ("last_ack", &info.ack_floor, args.last_ack_critical),
    ];
    for (label, place, critical) in times {
        let Some(critical) = critical else { continue };
        match place.last_active.and_then(age) {
            Some(age) => probe.at_most(label, age, None, seconds(critical)),
            None => probe.raise(Level::Critical, format!("no {label} yet")),
        }
    }
    Ok(())
}

fn message(args: &MessageArgs, connect: &ConnectArgs, probe: &mut Probe) -> Result<(), CliError> {
    check_name("stream", &args.stream)?;
    let mut session = Session::open(connect)?;
    let which = GetRequest { last_by_subj: args.subject.clone(), ..GetRequest::default() };
    let found = stored(&mut session, &args.stream, &which)?;
    let age = age(found.time).unwrap_or(0.0);
    let limit = |limit: Option<Duration>| limit.and_then(seconds);
    probe.at_most("age", age, limit(args.age_warn), limit(args.age_critical));
    probe.measure("size", found.data.len() as f64, None, None);
    Ok(())
}

fn kv(args: &KvArgs, connect: &ConnectArgs, probe: &mut Probe) -> Result<(), CliError> {
    let stream = stream_name(&args.bucket)?;
    let mut session = Session::open(connect)?;
    let info = crate::stream::fetch(&mut session, &stream, &StreamInfoRequest::default())?;
    let values = info.state.messages as f64;
    probe.at_least("values", values, bound(args.values_warn), bound(args.values_critical));
    if let Some(key) = &args.key {
        let last_by_subj = format!("$KV.{}.{key}", args.bucket);
        let which = GetRequest { last_by_subj, ..GetRequest::default() };
        let found = stored(&mut session, &stream, &which)?;
        if String::from_utf8_lossy(&found.headers).contains("KV-Operation") {
            probe.raise(Level::Critical, format!("key {key} was deleted"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_lines() {
        let mut probe = Probe::new("x");
        probe.at_most("a", 1.0, Some(2.0), Some(3.0));
        assert_eq!(probe.line(), "OK x: all is well | a=1;2;3");
        probe.at_least("b", 1.0, Some(2.0), None);
        assert_eq!(probe.level, Level::Warning);
        probe.at_most("c", 4.0, Some(2.0), Some(3.0));
        assert_eq!(probe.level, Level::Critical);
        let line = probe.line();
        assert!(line.starts_with("CRITICAL x: b 1 is below 2; c 4 is above 3 | "), "{line}");
    }
}
