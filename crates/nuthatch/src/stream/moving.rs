//! `stream move`: another log for a stream that is in use.

use std::thread;
use std::time::Duration;

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::parse_number;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::input::check_name;
use crate::progress::{Progress, Unit};
use crate::session::Session;
use crate::show::text;

/// How often a move is asked how it is doing.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Options of `stream move`.
#[derive(Debug, Clone, Args)]
pub struct MoveArgs {
    /// Stream name
    stream: String,
    /// Log to move to, as the server's configuration names it; "default" is the default log
    #[arg(long, value_name = "NAME", required_unless_present_any = ["cancel", "status"])]
    log: Option<String>,
    /// Copy at most so many bytes a second, such as 20MB [default: 64 MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_number)]
    rate: Option<u64>,
    /// Begin, and do not wait for the end
    #[arg(long)]
    detach: bool,
    /// Give a move up: the stream stays where it is
    #[arg(long, conflicts_with = "log")]
    cancel: bool,
    /// Only tell where the stream lives and how a move is doing
    #[arg(long, conflicts_with_all = ["log", "cancel"])]
    status: bool,
}

/// Runs `stream move`.
pub fn run(args: &MoveArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_name("stream", &args.stream)?;
    let mut session = Session::open(connect)?;
    let mut body = json!({});
    if let Some(log) = &args.log {
        body["log"] = log.as_str().into();
        body["max_rate"] = args.rate.unwrap_or(0).into();
    }
    if args.cancel {
        body["cancel"] = true.into();
    }
    let mut told = ask(&mut session, &args.stream, &body)?;
    if args.cancel {
        told = follow(&mut session, &args.stream, told)?;
        return session.print(&told, || format!("Stream {} stays where it is\n", args.stream));
    }
    let Some(log) = args.log.as_deref().filter(|_| !args.detach) else {
        return session.print(&told, || describe(&told));
    };
    told = follow(&mut session, &args.stream, told)?;
    if told["log"] == log {
        return session.print(&told, || format!("Stream {} lives in log {log}\n", args.stream));
    }
    let why = told["move"]["error"].as_str().unwrap_or("the server does not say why");
    Err(CliError::Failed(format!("stream {} was not moved: {why}", args.stream)))
}

fn ask(session: &mut Session, stream: &str, body: &Value) -> Result<Value, CliError> {
    session
        .api(&format!("STREAM.MOVE.{stream}"), body)
        .map_err(CliError::js(format!("could not move stream {stream}")))
}

/// Waits until no move is under way any more; shows how it is doing where somebody looks.
fn follow(session: &mut Session, stream: &str, mut told: Value) -> Result<Value, CliError> {
    let (from, to) = (text(&told["log"]), text(&told["move"]["to"]));
    let what = format!("Moving {stream} from log {from} to log {to}");
    let progress = Progress::new(what, Unit::Messages);
    while told["moving"] == true {
        let report = &told["move"];
        progress.set_end(report["last_seq"].as_u64().unwrap_or(0));
        progress.set(report["copied_seq"].as_u64().unwrap_or(0));
        thread::sleep(LOOK_EVERY);
        told = ask(session, stream, &json!({}))?;
    }
    Ok(told)
}

fn describe(told: &Value) -> String {
    let (stream, log) = (text(&told["stream"]), text(&told["log"]));
    if told["moving"] != true {
        return format!("Stream {stream} lives in log {log}\n");
    }
    let report = &told["move"];
    let (copied, last) =
        (report["copied_seq"].as_u64().unwrap_or(0), report["last_seq"].as_u64().unwrap_or(0));
    let trouble = match report["error"].as_str() {
        Some(error) => format!(", trying again after: {error}"),
        None => String::new(),
    };
    let to = text(&report["to"]);
    format!("Stream {stream} moves from log {log} to log {to}: {copied} of {last}{trouble}\n")
}
