//! `consumer add|ls|info|next|rm`.

use std::time::{Duration, Instant, SystemTime};

use clap::{Args, Subcommand};
use nuthatch_bench::client::{OwnedMessage, TransportError};
use nuthatch_bench::connect::ConnectArgs;
use nuthatch_bench::units::{parse_duration, parse_number};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::core::print_message;
use crate::error::CliError;
use crate::session::{Session, confirm};
use crate::show::{self, Sheet, Table};
use crate::stream::{check_name, metadata, nanos};

/// A pull request ends at the server this much before we stop waiting for its end.
const PULL_MARGIN: Duration = Duration::from_millis(500);

/// Commands about consumers.
#[derive(Debug, Clone, Subcommand)]
pub enum ConsumerCommand {
    /// Create a consumer
    #[command(visible_alias = "create", alias = "new")]
    Add(Box<AddArgs>),
    /// List the consumers of a stream
    #[command(visible_alias = "list")]
    Ls(LsArgs),
    /// Show a consumer's configuration and state
    #[command(visible_alias = "nfo", alias = "i")]
    Info(NameArgs),
    /// Fetch messages of a pull consumer
    Next(NextArgs),
    /// Delete a consumer
    #[command(visible_alias = "delete", alias = "del")]
    Rm(RmArgs),
}

/// Options of `consumer add`, named as the `nats` command names them.
#[derive(Debug, Clone, Args)]
pub struct AddArgs {
    /// Stream name
    stream: String,
    /// Consumer name
    name: String,
    /// Clients fetch messages (the default)
    #[arg(long, conflicts_with = "target")]
    pull: bool,
    /// Messages are pushed to this subject
    #[arg(long, visible_alias = "deliver-subject", value_name = "SUBJECT")]
    target: Option<String>,
    /// Queue group of a push consumer
    #[arg(long, requires = "target")]
    deliver_group: Option<String>,
    /// Where to begin: all, last, new, subject, a sequence, an age such as 1h, or a time
    #[arg(long, default_value = "all")]
    deliver: String,
    /// How messages are acknowledged (default: explicit, or none for push consumers)
    #[arg(long, value_parser = ["none", "all", "explicit"])]
    ack: Option<String>,
    /// How long to wait for an ack before delivering again, such as 30s
    #[arg(long, value_parser = parse_duration)]
    wait: Option<Duration>,
    /// Waits before the first, second … redelivery, with commas, instead of --wait
    #[arg(long, value_parser = parse_duration, value_delimiter = ',')]
    backoff: Vec<Duration>,
    /// Most deliveries of one message; -1 for no limit
    #[arg(long, allow_negative_numbers = true)]
    max_deliver: Option<i64>,
    /// Only messages of this subject; may be repeated
    #[arg(long)]
    filter: Vec<String>,
    /// Deliver as fast as possible, or as the messages came
    #[arg(long, default_value = "instant", value_parser = ["instant", "original"])]
    replay: String,
    /// Most unacknowledged messages
    #[arg(long, allow_negative_numbers = true)]
    max_pending: Option<i64>,
    /// Most waiting pull requests
    #[arg(long)]
    max_waiting: Option<u64>,
    /// Most messages of one pull request
    #[arg(long)]
    max_pull_batch: Option<u64>,
    /// Longest pull request, such as 1m
    #[arg(long, value_parser = parse_duration)]
    max_pull_expire: Option<Duration>,
    /// Most bytes of one pull request
    #[arg(long, value_parser = parse_number)]
    max_pull_bytes: Option<u64>,
    /// A push consumer says that it is alive this often
    #[arg(long, requires = "target", value_parser = parse_duration)]
    heartbeat: Option<Duration>,
    /// A push consumer waits for its client to keep up
    #[arg(long, requires = "heartbeat")]
    flow_control: bool,
    /// Most bits per second of a push consumer
    #[arg(long, requires = "target", value_parser = parse_number)]
    bps: Option<u64>,
    /// Delete it when nobody has used it for this long
    #[arg(long, value_parser = parse_duration)]
    inactive_threshold: Option<Duration>,
    /// It goes when nobody uses it any more
    #[arg(long)]
    ephemeral: bool,
    /// Keep its state in memory
    #[arg(long)]
    memory: bool,
    /// Deliver headers without bodies
    #[arg(long)]
    headers_only: bool,
    /// Copies in a cluster (default: those of the stream)
    #[arg(long)]
    replicas: Option<u64>,
    /// Report on this percentage of acks
    #[arg(long)]
    sample: Option<u8>,
    /// Words about it
    #[arg(long)]
    description: Option<String>,
    /// Free data as KEY=VALUE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// Accepted for scripts made for the nats command: nothing is ever asked here
    #[arg(long)]
    defaults: bool,
}

/// Options of `consumer ls`.
#[derive(Debug, Clone, Args)]
pub struct LsArgs {
    /// Stream name
    stream: String,
    /// Print names only
    #[arg(long, short)]
    names: bool,
}

/// The name of a consumer.
#[derive(Debug, Clone, Args)]
pub struct NameArgs {
    /// Stream name
    stream: String,
    /// Consumer name
    name: String,
}

/// Options of `consumer next`.
#[derive(Debug, Clone, Args)]
pub struct NextArgs {
    /// Stream name
    stream: String,
    /// Consumer name
    name: String,
    /// Messages to fetch
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Acknowledge them (the default)
    #[arg(long, overrides_with = "no_ack")]
    ack: bool,
    /// Do not acknowledge them
    #[arg(long)]
    no_ack: bool,
    /// How long to wait for messages (default: --timeout)
    #[arg(long, value_parser = parse_duration)]
    wait: Option<Duration>,
    /// Print bodies only
    #[arg(long, short)]
    raw: bool,
}

/// Options of `consumer rm`.
#[derive(Debug, Clone, Args)]
pub struct RmArgs {
    /// Stream name
    stream: String,
    /// Consumer name
    name: String,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Runs a command about consumers.
pub fn run(command: &ConsumerCommand, connect: &ConnectArgs) -> Result<(), CliError> {
    match command {
        ConsumerCommand::Add(args) => add(args, connect),
        ConsumerCommand::Ls(args) => ls(args, connect),
        ConsumerCommand::Info(args) => info(args, connect),
        ConsumerCommand::Next(args) => next(args, connect),
        ConsumerCommand::Rm(args) => rm(args, connect),
    }
}

fn check_names(stream: &str, name: &str) -> Result<(), CliError> {
    check_name("stream", stream)?;
    check_name("consumer", name)
}

fn add(args: &AddArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_names(&args.stream, &args.name)?;
    let config = config(args, SystemTime::now())?;
    let mut session = Session::open(connect)?;
    let body = json!({ "stream_name": args.stream, "config": config, "action": "create" });
    let mut what = format!("CONSUMER.CREATE.{}.{}", args.stream, args.name);
    if let [filter] = &args.filter[..] {
        what = format!("{what}.{filter}");
    }
    let created = session
        .api(&what, &body)
        .map_err(CliError::js(format!("could not create consumer {}", args.name)))?;
    session.print(&created, || format!("Consumer {} was created\n\n{}", args.name, sheet(&created)))
}

fn config(args: &AddArgs, now: SystemTime) -> Result<Value, CliError> {
    let default_ack = if args.target.is_some() { "none" } else { "explicit" };
    let mut config = json!({
        "name": args.name,
        "ack_policy": args.ack.as_deref().unwrap_or(default_ack),
        "replay_policy": args.replay,
    });
    deliver_policy(&mut config, &args.deliver, now)?;
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            config[key] = value;
        }
    };
    let ns = |duration: Option<Duration>| duration.map(|duration| nanos(duration).into());
    set("durable_name", (!args.ephemeral).then(|| args.name.clone().into()));
    set("deliver_subject", args.target.clone().map(Value::from));
    set("deliver_group", args.deliver_group.clone().map(Value::from));
    set("ack_wait", ns(args.wait));
    let backoff: Vec<u64> = args.backoff.iter().copied().map(nanos).collect();
    set("backoff", (!backoff.is_empty()).then(|| backoff.into()));
    set("max_deliver", args.max_deliver.map(Value::from));
    match &args.filter[..] {
        [] => {}
        [one] => set("filter_subject", Some(one.as_str().into())),
        several => set("filter_subjects", Some(json!(several))),
    }
    set("max_ack_pending", args.max_pending.map(Value::from));
    set("max_waiting", args.max_waiting.map(Value::from));
    set("max_batch", args.max_pull_batch.map(Value::from));
    set("max_expires", ns(args.max_pull_expire));
    set("max_bytes", args.max_pull_bytes.map(Value::from));
    set("idle_heartbeat", ns(args.heartbeat));
    set("flow_control", args.flow_control.then(|| true.into()));
    set("rate_limit_bps", args.bps.map(Value::from));
    set("inactive_threshold", ns(args.inactive_threshold));
    set("mem_storage", args.memory.then(|| true.into()));
    set("headers_only", args.headers_only.then(|| true.into()));
    set("num_replicas", args.replicas.map(Value::from));
    set("sample_freq", args.sample.map(|percent| percent.to_string().into()));
    set("description", args.description.clone().map(Value::from));
    set("metadata", metadata(&args.metadata)?);
    Ok(config)
}

/// Understands the forms of `--deliver`.
fn deliver_policy(config: &mut Value, text: &str, now: SystemTime) -> Result<(), CliError> {
    let by_word = match text {
        "all" | "1" => Some("all"),
        "last" => Some("last"),
        "new" | "next" => Some("new"),
        "subject" => Some("last_per_subject"),
        _ => None,
    };
    if let Some(policy) = by_word {
        config["deliver_policy"] = policy.into();
        return Ok(());
    }
    if let Ok(seq) = text.parse::<u64>() {
        config["deliver_policy"] = "by_start_sequence".into();
        config["opt_start_seq"] = seq.into();
        return Ok(());
    }
    let bad = || {
        let forms = "all, last, new, subject, a sequence, an age such as 1h, or an RFC 3339 time";
        CliError::Usage(format!("--deliver {text:?} is not understood; use {forms}"))
    };
    let start = match OffsetDateTime::parse(text, &Rfc3339) {
        Ok(start) => start,
        Err(_) => {
            let age = parse_duration(text).map_err(|_| bad())?;
            OffsetDateTime::from(now.checked_sub(age).ok_or_else(bad)?)
        }
    };
    config["deliver_policy"] = "by_start_time".into();
    config["opt_start_time"] = start.format(&Rfc3339).map_err(|_| bad())?.into();
    Ok(())
}

fn ls(args: &LsArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_name("stream", &args.stream)?;
    let mut session = Session::open(connect)?;
    let mut consumers = session
        .list(&format!("CONSUMER.LIST.{}", args.stream), "consumers", &Value::Null)
        .map_err(CliError::js(format!("could not list the consumers of {}", args.stream)))?;
    consumers.sort_by_key(|consumer| show::text(&consumer["name"]));
    if args.names {
        let names: Vec<String> = consumers.iter().map(|c| show::text(&c["name"])).collect();
        return session.print(&json!(names), || names.iter().map(|n| format!("{n}\n")).collect());
    }
    session.print(&json!(consumers), || {
        if consumers.is_empty() {
            return format!("No consumers of stream {}\n", args.stream);
        }
        let mut table = Table::new(&[
            "Name",
            "Kind",
            "Filter",
            "Ack",
            "Unprocessed",
            "Unacknowledged",
            "Redelivered",
            "Ack floor",
        ]);
        for consumer in &consumers {
            let number = |value: &Value| show::count(value.as_u64().unwrap_or(0));
            table.row(vec![
                show::text(&consumer["name"]),
                kind(&consumer["config"]),
                filter(&consumer["config"]),
                show::text(&consumer["config"]["ack_policy"]),
                number(&consumer["num_pending"]),
                number(&consumer["num_ack_pending"]),
                number(&consumer["num_redelivered"]),
                number(&consumer["ack_floor"]["stream_seq"]),
            ]);
        }
        table.render()
    })
}

fn info(args: &NameArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_names(&args.stream, &args.name)?;
    let mut session = Session::open(connect)?;
    let info =
        session
            .api(&format!("CONSUMER.INFO.{}.{}", args.stream, args.name), &Value::Null)
            .map_err(CliError::js(format!("consumer {} of stream {}", args.name, args.stream)))?;
    session.print(&info, || sheet(&info))
}

fn rm(args: &RmArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let (stream, name) = (&args.stream, &args.name);
    check_names(stream, name)?;
    let mut session = Session::open(connect)?;
    confirm(&format!("Delete consumer {name} of stream {stream}?"), args.force)?;
    let reply = session
        .api(&format!("CONSUMER.DELETE.{stream}.{name}"), &Value::Null)
        .map_err(CliError::js(format!("could not delete consumer {name} of stream {stream}")))?;
    session.print(&reply, || format!("Consumer {name} of stream {stream} was deleted\n"))
}

fn next(args: &NextArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_names(&args.stream, &args.name)?;
    let mut session = Session::open(connect)?;
    let wait = args.wait.unwrap_or(session.timeout);
    let inbox = format!("{}.next", session.client.inbox());
    session.client.subscribe(&inbox, "")?;
    let subject = format!("{}.CONSUMER.MSG.NEXT.{}.{}", session.api_prefix, args.stream, args.name);
    let body = json!({ "batch": args.count, "expires": nanos(wait) }).to_string();
    let writer = &mut session.client.writer;
    writer.publish(subject.as_bytes(), inbox.as_bytes(), b"", body.as_bytes())?;
    writer.flush()?;
    let deadline = Instant::now() + wait + PULL_MARGIN;
    for received in 0..args.count {
        let message = match session.client.next_message(deadline) {
            Ok(message) => message,
            Err(TransportError::TimedOut(_)) => return Err(no_more(args, received, wait)),
            Err(err) => return Err(err.into()),
        };
        if message.view().status().is_some() && message.payload.is_empty() {
            return Err(pull_ended(args, &message, received, wait));
        }
        print_message(&message, "", args.raw, session.json)?;
        if let (false, Some(reply)) = (args.no_ack, &message.reply) {
            session.client.writer.publish(reply.as_bytes(), b"", b"", b"+ACK")?;
            session.client.writer.flush()?;
        }
    }
    session.client.round_trip(session.timeout)?;
    Ok(())
}

fn no_more(args: &NextArgs, received: u64, wait: Duration) -> CliError {
    let reason = format!("received {received} of {} messages within {wait:?}", args.count);
    CliError::Pull { consumer: args.name.clone(), reason }
}

/// Puts the status that ended a pull into words.
fn pull_ended(args: &NextArgs, message: &OwnedMessage, received: u64, wait: Duration) -> CliError {
    let view = message.view();
    let reason = match view.status() {
        Some(404 | 408) => return no_more(args, received, wait),
        Some(503) => format!("stream {} has no pull consumer of this name", args.stream),
        code => format!("{} {}", code.unwrap_or(0), view.status_text()),
    };
    CliError::Pull { consumer: args.name.clone(), reason }
}

fn kind(config: &Value) -> String {
    let direction = if config["deliver_subject"].is_string() { "push" } else { "pull" };
    let life = if config["durable_name"].is_string() { "durable" } else { "ephemeral" };
    format!("{direction}, {life}")
}

fn filter(config: &Value) -> String {
    show::some_text(&config["filter_subject"])
        .or_else(|| show::some_text(&config["filter_subjects"]))
        .unwrap_or_else(|| "all".into())
}

/// A consumer's configuration and state for people.
fn sheet(info: &Value) -> String {
    let mut sheet = Sheet::default();
    let config = &info["config"];
    let name = (show::text(&info["name"]), show::text(&info["stream_name"]));
    sheet.heading(&format!("Consumer {} of stream {}", name.0, name.1));
    sheet.line_if("Description", show::some_text(&config["description"]));
    sheet.line("Kind", kind(config));
    sheet.line_if("Pushed to", show::some_text(&config["deliver_subject"]));
    sheet.line_if("Queue group", show::some_text(&config["deliver_group"]));
    sheet.line("Filter", filter(config));
    sheet.line("Deliver policy", show::text(&config["deliver_policy"]));
    sheet.line("Ack policy", show::text(&config["ack_policy"]));
    let duration = |key: &str| config[key].as_u64().filter(|ns| *ns > 0).map(show::duration);
    sheet.line_if("Ack wait", duration("ack_wait"));
    sheet.line("Replay policy", show::text(&config["replay_policy"]));
    sheet.line("Deliveries of a message", show::limit(&config["max_deliver"], show::count));
    sheet.line("Unacknowledged limit", show::limit(&config["max_ack_pending"], show::count));
    sheet.line_if("Waiting pulls limit", show::some_text(&config["max_waiting"]));
    sheet.line_if("Idle heartbeat", duration("idle_heartbeat"));
    sheet.line_if("Inactive threshold", duration("inactive_threshold"));
    sheet.line("Created", show::time(&info["created"]));
    for (key, value) in config["metadata"].as_object().into_iter().flatten() {
        sheet.line(&format!("Metadata {key}"), show::text(value));
    }
    sheet.heading("State");
    let place = |value: &Value| {
        let number = |key: &str| show::count(value[key].as_u64().unwrap_or(0));
        format!("delivery {}, stream sequence {}", number("consumer_seq"), number("stream_seq"))
    };
    sheet.line("Last delivered", place(&info["delivered"]));
    sheet.line("Acknowledged up to", place(&info["ack_floor"]));
    let number = |key: &str| show::count(info[key].as_u64().unwrap_or(0));
    sheet.line("Unacknowledged", number("num_ack_pending"));
    sheet.line("Redelivered", number("num_redelivered"));
    sheet.line("Unprocessed", number("num_pending"));
    sheet.line("Waiting pulls", number("num_waiting"));
    sheet.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: AddArgs,
    }

    fn config_of(line: &str) -> Result<Value, CliError> {
        let words = std::iter::once("add").chain(line.split(' '));
        let day = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
        config(&Line::try_parse_from(words).unwrap().args, day)
    }

    #[test]
    fn flags_become_configuration() {
        let plain = config_of("S C").unwrap();
        let expected = json!({
            "name": "C", "durable_name": "C", "ack_policy": "explicit",
            "replay_policy": "instant", "deliver_policy": "all",
        });
        assert_eq!(plain, expected);
        let push = config_of("S C --target d --heartbeat 5s --flow-control --ephemeral").unwrap();
        assert_eq!((&push["deliver_subject"], &push["ack_policy"]), (&json!("d"), &json!("none")));
        assert!(push["durable_name"].is_null());
        let pull =
            config_of("S C --pull --filter a --filter b --wait 10s --backoff 1s,2s").unwrap();
        assert_eq!(pull["filter_subjects"], json!(["a", "b"]));
        assert_eq!(pull["ack_wait"], 10_000_000_000u64);
        assert_eq!(pull["backoff"], json!([1_000_000_000u64, 2_000_000_000u64]));
    }

    #[test]
    fn where_to_begin() {
        let policy = |text: &str| config_of(&format!("S C --deliver {text}"));
        assert_eq!(policy("subject").unwrap()["deliver_policy"], "last_per_subject");
        assert_eq!(policy("42").unwrap()["opt_start_seq"], 42);
        assert_eq!(policy("1h").unwrap()["opt_start_time"], "1970-01-01T23:00:00Z");
        let time = "2026-01-02T03:04:05Z";
        assert_eq!(policy(time).unwrap()["opt_start_time"], time);
        assert!(policy("whenever").is_err());
    }
}
