//! `stream add|ls|info|rm`.

use std::time::Duration;

use clap::{Args, Subcommand};
use nuthatch_bench::connect::ConnectArgs;
use nuthatch_bench::units::{parse_duration, parse_number};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::session::{Session, confirm};
use crate::show::{self, Sheet, Table};

/// Commands about streams.
#[derive(Debug, Clone, Subcommand)]
pub enum StreamCommand {
    /// Create a stream
    #[command(visible_alias = "create", alias = "new")]
    Add(Box<AddArgs>),
    /// List streams
    #[command(visible_alias = "list")]
    Ls(LsArgs),
    /// Show a stream's configuration and state
    #[command(visible_alias = "nfo", alias = "i")]
    Info(NameArgs),
    /// Delete a stream and all its messages
    #[command(visible_alias = "delete", alias = "del")]
    Rm(RmArgs),
}

/// Options of `stream add`, named as the `nats` command names them.
#[derive(Debug, Clone, Args)]
pub struct AddArgs {
    /// Stream name
    name: String,
    /// Subjects it stores, several with commas (default: its name)
    #[arg(long, value_delimiter = ',')]
    subjects: Vec<String>,
    /// Words about it
    #[arg(long)]
    description: Option<String>,
    /// Where messages are kept
    #[arg(long, default_value = "file", value_parser = ["file", "f", "memory", "m"])]
    storage: String,
    /// What keeps a message alive
    #[arg(long, default_value = "limits",
          value_parser = ["limits", "interest", "work", "workq", "workqueue"])]
    retention: String,
    /// What goes when a limit is reached: the oldest message or the new one
    #[arg(long, default_value = "old", value_parser = ["old", "new"])]
    discard: String,
    /// Apply --discard new to each subject's limit too
    #[arg(long)]
    discard_per_subject: bool,
    /// Most messages; -1 for no limit
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    max_msgs: i64,
    /// Most messages of one subject; -1 for no limit
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    max_msgs_per_subject: i64,
    /// Most bytes, such as 10GiB; -1 for no limit
    #[arg(long, default_value = "-1", value_parser = parse_limit, allow_negative_numbers = true)]
    max_bytes: i64,
    /// Oldest age, such as 24h or 7d; -1 for no limit
    #[arg(long, default_value = "-1", allow_negative_numbers = true)]
    max_age: String,
    /// Largest message, such as 64KiB; -1 for no limit
    #[arg(long, default_value = "-1", value_parser = parse_limit, allow_negative_numbers = true)]
    max_msg_size: i64,
    /// Most consumers; -1 for no limit
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    max_consumers: i64,
    /// How long message ids are remembered, such as 2m (default: the server's)
    #[arg(long, value_parser = parse_duration)]
    dupe_window: Option<Duration>,
    /// Copies in a cluster
    #[arg(long, default_value_t = 1)]
    replicas: u64,
    /// Compression of stored messages
    #[arg(long, default_value = "none", value_parser = ["none", "s2"])]
    compression: String,
    /// Sequence of the first message
    #[arg(long)]
    first_sequence: Option<u64>,
    /// Publishes are answered with acks (the default)
    #[arg(long, overrides_with = "no_ack")]
    ack: bool,
    /// Publishes are not answered
    #[arg(long)]
    no_ack: bool,
    /// Messages can be read without the stream's leader (the default)
    #[arg(long, overrides_with = "no_allow_direct")]
    allow_direct: bool,
    /// Messages can only be read through the stream's leader
    #[arg(long)]
    no_allow_direct: bool,
    /// Publishers may replace all or a subject's messages by one
    #[arg(long)]
    allow_rollup: bool,
    /// Messages may not be deleted through the API
    #[arg(long)]
    deny_delete: bool,
    /// The stream may not be purged through the API
    #[arg(long)]
    deny_purge: bool,
    /// Messages may carry their own time to live
    #[arg(long)]
    allow_msg_ttl: bool,
    /// When messages count as durable: before their ack, or soon after
    #[arg(long, value_parser = ["default", "async"])]
    persist_mode: Option<String>,
    /// Free data as KEY=VALUE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// Placement tag; may be repeated
    #[arg(long)]
    tag: Vec<String>,
    /// Configuration as a JSON file; options given as flags are not merged into it
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// Accepted for scripts made for the nats command: nothing is ever asked here
    #[arg(long)]
    defaults: bool,
}

/// Options of `stream ls`.
#[derive(Debug, Clone, Args)]
pub struct LsArgs {
    /// Only streams that store this subject
    #[arg(long)]
    subject: Option<String>,
    /// Print names only
    #[arg(long, short)]
    names: bool,
}

/// The name of a stream.
#[derive(Debug, Clone, Args)]
pub struct NameArgs {
    /// Stream name
    name: String,
}

/// Options of `stream rm`.
#[derive(Debug, Clone, Args)]
pub struct RmArgs {
    /// Stream name
    name: String,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Runs a command about streams.
pub fn run(command: &StreamCommand, connect: &ConnectArgs) -> Result<(), CliError> {
    match command {
        StreamCommand::Add(args) => add(args, connect),
        StreamCommand::Ls(args) => ls(args, connect),
        StreamCommand::Info(args) => info(&args.name, connect),
        StreamCommand::Rm(args) => rm(args, connect),
    }
}

fn add(args: &AddArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_name("stream", &args.name)?;
    let config = match &args.config {
        Some(path) => read_config(path, &args.name)?,
        None => config(args)?,
    };
    let mut session = Session::open(connect)?;
    let created = session
        .api(&format!("STREAM.CREATE.{}", args.name), &config)
        .map_err(CliError::js(format!("could not create stream {}", args.name)))?;
    session.print(&created, || format!("Stream {} was created\n\n{}", args.name, sheet(&created)))
}

fn config(args: &AddArgs) -> Result<Value, CliError> {
    let subjects =
        if args.subjects.is_empty() { vec![args.name.clone()] } else { args.subjects.clone() };
    let mut config = json!({
        "name": args.name,
        "subjects": subjects,
        "storage": if args.storage.starts_with('m') { "memory" } else { "file" },
        "retention": if args.retention.starts_with('w') { "workqueue" } else { &args.retention },
        "discard": args.discard,
        "max_msgs": args.max_msgs,
        "max_msgs_per_subject": args.max_msgs_per_subject,
        "max_bytes": args.max_bytes,
        "max_age": parse_max_age(&args.max_age)?,
        "max_msg_size": args.max_msg_size,
        "max_consumers": args.max_consumers,
        "num_replicas": args.replicas,
        "compression": args.compression,
        "allow_direct": !args.no_allow_direct,
    });
    let flags = [
        ("no_ack", args.no_ack),
        ("discard_new_per_subject", args.discard_per_subject),
        ("allow_rollup_hdrs", args.allow_rollup),
        ("deny_delete", args.deny_delete),
        ("deny_purge", args.deny_purge),
        ("allow_msg_ttl", args.allow_msg_ttl),
    ];
    for (key, _) in flags.iter().filter(|(_, set)| *set) {
        config[*key] = true.into();
    }
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            config[key] = value;
        }
    };
    set("description", args.description.clone().map(Value::from));
    set("duplicate_window", args.dupe_window.map(|window| nanos(window).into()));
    set("first_seq", args.first_sequence.map(Value::from));
    set("persist_mode", args.persist_mode.clone().map(Value::from));
    set("placement", (!args.tag.is_empty()).then(|| json!({ "tags": args.tag })));
    set("metadata", metadata(&args.metadata)?);
    Ok(config)
}

fn read_config(path: &std::path::Path, name: &str) -> Result<Value, CliError> {
    let text = std::fs::read_to_string(path)
        .map_err(|err| CliError::Usage(format!("cannot read {}: {err}", path.display())))?;
    let mut config: Value = serde_json::from_str(&text)
        .map_err(|err| CliError::Usage(format!("{} is not JSON: {err}", path.display())))?;
    // `stream info --json` writes the configuration inside the whole answer.
    if config["config"].is_object() {
        config = config["config"].take();
    }
    config["name"] = name.into();
    Ok(config)
}

fn ls(args: &LsArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let filter = match &args.subject {
        Some(subject) => json!({ "subject": subject }),
        None => Value::Null,
    };
    let mut streams = session
        .list("STREAM.LIST", "streams", &filter)
        .map_err(CliError::js("could not list streams"))?;
    streams.sort_by_key(|stream| show::text(&stream["config"]["name"]));
    if args.names {
        let names: Vec<String> =
            streams.iter().map(|stream| show::text(&stream["config"]["name"])).collect();
        return session.print(&json!(names), || names.iter().map(|n| format!("{n}\n")).collect());
    }
    session.print(&json!(streams), || {
        if streams.is_empty() {
            return "No streams\n".into();
        }
        let mut table = Table::new(&[
            "Name",
            "Subjects",
            "Storage",
            "Messages",
            "Size",
            "Consumers",
            "Last message",
        ]);
        for stream in &streams {
            let (config, state) = (&stream["config"], &stream["state"]);
            let number = |key: &str| state[key].as_u64().unwrap_or(0);
            table.row(vec![
                show::text(&config["name"]),
                show::text(&config["subjects"]),
                show::text(&config["storage"]),
                show::count(number("messages")),
                show::bytes(number("bytes")),
                show::count(number("consumer_count")),
                show::time(&state["last_ts"]),
            ]);
        }
        table.render()
    })
}

fn info(name: &str, connect: &ConnectArgs) -> Result<(), CliError> {
    check_name("stream", name)?;
    let mut session = Session::open(connect)?;
    let info = session
        .api(&format!("STREAM.INFO.{name}"), &Value::Null)
        .map_err(CliError::js(format!("stream {name}")))?;
    session.print(&info, || sheet(&info))
}

fn rm(args: &RmArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let name = &args.name;
    check_name("stream", name)?;
    let mut session = Session::open(connect)?;
    confirm(&format!("Delete stream {name} and all its messages?"), args.force)?;
    let reply = session
        .api(&format!("STREAM.DELETE.{name}"), &Value::Null)
        .map_err(CliError::js(format!("could not delete stream {name}")))?;
    session.print(&reply, || format!("Stream {name} was deleted\n"))
}

/// A stream's configuration and state for people.
fn sheet(info: &Value) -> String {
    let mut sheet = Sheet::default();
    let (config, state) = (&info["config"], &info["state"]);
    sheet.heading(&format!("Stream {}", show::text(&config["name"])));
    sheet.line_if("Description", show::some_text(&config["description"]));
    sheet.line("Subjects", show::text(&config["subjects"]));
    sheet.line("Storage", show::text(&config["storage"]));
    sheet.line("Replicas", show::text(&config["num_replicas"]));
    sheet.line("Created", show::time(&info["created"]));
    sheet.line_if("Persist mode", show::some_text(&config["persist_mode"]));
    limits(&mut sheet, config);
    options(&mut sheet, config);
    let number = |key: &str| state[key].as_u64().unwrap_or(0);
    sheet.heading("State");
    sheet.line("Messages", show::count(number("messages")));
    sheet.line("Size", show::bytes(number("bytes")));
    let bound = |seq: &str, time: &str| {
        format!("{} at {}", show::count(number(seq)), show::time(&state[time]))
    };
    sheet.line("First sequence", bound("first_seq", "first_ts"));
    sheet.line("Last sequence", bound("last_seq", "last_ts"));
    sheet.line("Subjects stored", show::count(number("num_subjects")));
    sheet.line("Deleted inside", show::count(number("num_deleted")));
    sheet.line("Consumers", show::count(number("consumer_count")));
    sheet.render()
}

fn limits(sheet: &mut Sheet, config: &Value) {
    sheet.heading("Limits");
    sheet.line("Retention", show::text(&config["retention"]));
    sheet.line("Discard", show::text(&config["discard"]));
    sheet.line("Messages", show::limit(&config["max_msgs"], show::count));
    sheet.line("Messages per subject", show::limit(&config["max_msgs_per_subject"], show::count));
    sheet.line("Bytes", show::limit(&config["max_bytes"], show::bytes));
    sheet.line("Age", show::limit(&config["max_age"], show::duration));
    sheet.line("Message size", show::limit(&config["max_msg_size"], show::bytes));
    sheet.line("Consumers", show::limit(&config["max_consumers"], show::count));
    sheet
        .line("Duplicate window", show::duration(config["duplicate_window"].as_u64().unwrap_or(0)));
}

fn options(sheet: &mut Sheet, config: &Value) {
    sheet.heading("Options");
    let options = [
        ("Direct get", "allow_direct"),
        ("Rollup headers", "allow_rollup_hdrs"),
        ("Delete denied", "deny_delete"),
        ("Purge denied", "deny_purge"),
        ("Sealed", "sealed"),
        ("Publishes unanswered", "no_ack"),
        ("Message time to live", "allow_msg_ttl"),
    ];
    for (name, key) in options {
        sheet.line(name, show::flag(&config[key]));
    }
    for (key, value) in config["metadata"].as_object().into_iter().flatten() {
        sheet.line(&format!("Metadata {key}"), show::text(value));
    }
}

/// A name that fits into an API subject.
pub fn check_name(what: &str, name: &str) -> Result<(), CliError> {
    let bad = |c: char| c.is_whitespace() || ".*>/\\".contains(c);
    if name.is_empty() || name.contains(bad) {
        let text = format!("{name:?} is no valid {what} name: no spaces and none of . * > / \\");
        return Err(CliError::Usage(text));
    }
    Ok(())
}

/// `KEY=VALUE` pairs as an object; nothing for none.
pub fn metadata(pairs: &[String]) -> Result<Option<Value>, CliError> {
    let mut object = serde_json::Map::new();
    for pair in pairs {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(CliError::Usage(format!("{pair:?} is no metadata of the form KEY=VALUE")));
        };
        object.insert(key.into(), value.into());
    }
    Ok((!object.is_empty()).then_some(Value::Object(object)))
}

/// Whole nanoseconds, as JetStream counts durations.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn parse_max_age(text: &str) -> Result<u64, CliError> {
    match text {
        "-1" | "0" => Ok(0),
        other => parse_duration(other).map(nanos).map_err(CliError::Usage),
    }
}

/// A size with units, or -1.
fn parse_limit(text: &str) -> Result<i64, String> {
    if text == "-1" {
        return Ok(-1);
    }
    i64::try_from(parse_number(text)?).map_err(|_| format!("{text} is too large"))
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

    fn config_of(line: &str) -> Value {
        let words = std::iter::once("add").chain(line.split(' '));
        config(&Line::try_parse_from(words).unwrap().args).unwrap()
    }

    #[test]
    fn flags_become_configuration() {
        let plain = config_of("ORDERS");
        assert_eq!(plain["subjects"], json!(["ORDERS"]));
        assert_eq!((&plain["max_age"], &plain["allow_direct"]), (&json!(0), &json!(true)));
        assert!(plain["duplicate_window"].is_null() && plain["deny_purge"].is_null());
        let full = config_of(
            "ORDERS --subjects a.>,b --storage memory --retention work --max-bytes 10MiB \
             --max-age 24h --dupe-window 1m --deny-delete --no-allow-direct --max-msgs -1 \
             --metadata k=v --tag log:fast",
        );
        assert_eq!(full["subjects"], json!(["a.>", "b"]));
        assert_eq!((&full["storage"], &full["retention"]), (&json!("memory"), &json!("workqueue")));
        assert_eq!(full["max_bytes"], 10 << 20);
        assert_eq!(full["max_age"], 86_400_000_000_000u64);
        assert_eq!(full["duplicate_window"], 60_000_000_000u64);
        assert_eq!((&full["deny_delete"], &full["allow_direct"]), (&json!(true), &json!(false)));
        assert_eq!(full["metadata"], json!({ "k": "v" }));
        assert_eq!(full["placement"], json!({ "tags": ["log:fast"] }));
    }

    #[test]
    fn bad_names() {
        for name in ["", "a b", "a.b", "*"] {
            assert!(check_name("stream", name).is_err(), "{name}");
        }
    }
}
