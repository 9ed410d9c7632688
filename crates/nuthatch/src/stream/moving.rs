//! `stream move`: another log for a stream that is in use.

use std::thread;
use std::time::Duration;

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::Answer;
use nuthatch_client::units::parse_number;
use nuthatch_protocol::js::{MoveAnswer, MoveProgress, MoveRequest};

use crate::error::CliError;
use crate::input::check_name;
use crate::progress::{Progress, Unit};
use crate::session::Session;

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
    let request = MoveRequest {
        log: args.log.clone().unwrap_or_default(),
        max_rate: args.log.as_ref().and(args.rate).unwrap_or(0),
        cancel: args.cancel,
    };
    let mut told = ask(&mut session, &args.stream, &request)?;
    if args.cancel {
        told = follow(&mut session, &args.stream, told)?;
        return session.print(&told.json, || format!("Stream {} stays where it is\n", args.stream));
    }
    let Some(log) = args.log.as_deref().filter(|_| !args.detach) else {
        return session.print(&told.json, || describe(&told));
    };
    told = follow(&mut session, &args.stream, told)?;
    if told.log == log {
        return session
            .print(&told.json, || format!("Stream {} lives in log {log}\n", args.stream));
    }
    let why = told.progress.error.as_deref().unwrap_or("the server does not say why");
    Err(CliError::Failed(format!("stream {} was not moved: {why}", args.stream)))
}

fn ask(
    session: &mut Session,
    stream: &str,
    request: &MoveRequest,
) -> Result<Answer<MoveAnswer>, CliError> {
    session
        .ask(&format!("STREAM.MOVE.{stream}"), request)
        .map_err(CliError::js(format!("could not move stream {stream}")))
}

/// Waits until no move is under way any more; shows how it is doing where somebody looks.
fn follow(
    session: &mut Session,
    stream: &str,
    mut told: Answer<MoveAnswer>,
) -> Result<Answer<MoveAnswer>, CliError> {
    let what = format!("Moving {stream} from log {} to log {}", told.log, told.progress.to);
    let progress = Progress::new(what, Unit::Messages);
    while told.moving {
        progress.set_end(told.progress.last_seq);
        progress.set(told.progress.copied_seq);
        thread::sleep(LOOK_EVERY);
        told = ask(session, stream, &MoveRequest::default())?;
    }
    Ok(told)
}

fn describe(told: &MoveAnswer) -> String {
    let MoveAnswer { stream, log, moving, progress } = told;
    if !moving {
        return format!("Stream {stream} lives in log {log}\n");
    }
    let MoveProgress { to, copied_seq: copied, last_seq: last, error, .. } = progress;
    let trouble = match error {
        Some(error) => format!(", trying again after: {error}"),
        None => String::new(),
    };
    format!("Stream {stream} moves from log {log} to log {to}: {copied} of {last}{trouble}\n")
}
