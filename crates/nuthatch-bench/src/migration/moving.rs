//! `bench move`: how long publishers and consumers wait while their stream moves from the disk to a
//! bucket and back.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::load::{Load, Wait, longest};
use crate::compare::server::{Contender, Further, Server, file_error};
use crate::harness::{BenchError, Target};
use crate::peers::minio::Minio;
use crate::table::Table;
use crate::workload::js_pub::JsPub;
use crate::workload::stream::StreamPlan;
use nuthatch_client::js;
use nuthatch_client::units::{parse_count, parse_number};

const STREAM: &str = "MOVING";
const SUBJECT: &str = "moving.load";
const CONSUMER: &str = "bench";

/// The log in the bucket, as the server's configuration names it.
const BUCKET_LOG: &str = "bucket";

/// The stream is left alone for so long before each move; this span is the row without a move.
const SETTLE: Duration = Duration::from_secs(2);

/// What a move did to a message may show for so long after its end.
const AFTERMATH: Duration = Duration::from_millis(500);

/// How often a move is asked whether it is over, and for how long.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const MOVE_LIMIT: Duration = Duration::from_secs(120);

/// Publishes of the preparation without an answer.
const FILL_WINDOW: usize = 500;

/// How long publishers and consumers wait while a stream moves between the disk and a bucket
///
/// Starts a server with its default log on the disk and a second log in a MinIO (or --store), fills
/// a stream, publishes to it and consumes it at a steady rate, and moves it there and back. Open
/// loop: a message counts from when it was due. The longest wait of each move is what a client
/// sees of it. Every message must arrive once and in order.
#[derive(Debug, Clone, Args)]
#[command(verbatim_doc_comment)]
pub struct MoveArgs {
    /// The Nuthatch binary (default: this one)
    #[arg(long, value_name = "PATH")]
    nuthatch: Option<PathBuf>,
    /// Directory for the server's files and the MinIO
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Use this bucket instead of a MinIO
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// How often it moves there and back
    #[arg(long, default_value_t = 5, value_parser = parse_count)]
    moves: usize,
    /// Messages that the stream holds
    #[arg(long, default_value = "50k", value_parser = parse_number)]
    msgs: u64,
    /// Body size in bytes
    #[arg(long, default_value = "1KiB", value_parser = parse_number)]
    size: u64,
    /// Messages published per second
    #[arg(long, default_value = "5k", value_parser = parse_number)]
    rate: u64,
    /// Write the table between the markers <!-- move:begin --> and <!-- move:end --> of this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// One move, since the load began.
#[derive(Debug, Clone, Copy)]
struct Move {
    to_bucket: bool,
    from: Duration,
    to: Duration,
}

impl Move {
    fn longest(&self, waits: &[Wait]) -> Duration {
        longest(waits, self.from, self.to + AFTERMATH)
    }
}

/// Measures, and returns a table.
///
/// # Errors
/// When a server does not start, a move fails, or a message is lost or out of order.
pub fn run(args: &MoveArgs) -> Result<String, BenchError> {
    if args.size < 8 || args.rate == 0 {
        return Err(BenchError::Usage("--size is at least 8, --rate at least 1".into()));
    }
    let dir = std::path::absolute(&args.dir).map_err(file_error("find", &args.dir))?;
    let minio = match args.store {
        Some(_) => None,
        None => Some(Minio::start(&dir, "moves")?),
    };
    let url = args.store.clone().unwrap_or_else(|| "s3://moves/log".into());
    let server = start(args, &dir, &url, minio.as_ref())?;
    let target = server.target()?;
    fill(args, &target)?;
    let stop = AtomicBool::new(false);
    let load = Load {
        stream: STREAM,
        subject: SUBJECT,
        size: args.size as usize,
        rate: args.rate as f64,
        clock: Instant::now(),
        stop: &stop,
    };
    load.add_consumer(&target, CONSUMER)?;
    let (moves, published, received) = thread::scope(|scope| {
        let publisher = scope.spawn(|| load.publish(&target));
        let consumer = scope.spawn(|| load.consume(&target, CONSUMER));
        let moves = move_often(args, &target, load.clock);
        stop.store(true, Ordering::Relaxed);
        let published = publisher.join().map_err(|_| BenchError::Panicked)??;
        let received = consumer.join().map_err(|_| BenchError::Panicked)??;
        Ok::<_, BenchError>((moves?, published, received))
    })?;
    if published.len() != received.len() {
        let (sent, came) = (published.len(), received.len());
        return Err(BenchError::Failed(format!("{sent} acknowledged, {came} received")));
    }
    for one in &moves {
        let (ack, delivery) = (one.longest(&published), one.longest(&received));
        eprintln!("{one:?}: longest wait for an ack {ack:?}, for a delivery {delivery:?}");
    }
    let text = render(args, &moves, &published, &received);
    if let Some(path) = &args.markdown {
        crate::compare::write_markdown(path, "move", text.trim_end())?;
    }
    Ok(text)
}

fn start(
    args: &MoveArgs,
    dir: &Path,
    url: &str,
    minio: Option<&Minio>,
) -> Result<Server, BenchError> {
    let contender = Contender {
        name: "server".into(),
        command: vec![crate::own::program(args.nuthatch.as_deref())?, "serve".into()],
        sync_interval: None,
        slow_publish: false,
        further: Further {
            jetstream: format!("logs {{ {BUCKET_LOG} {{ store: {url:?} }} }}"),
            env: minio.map(Minio::env).unwrap_or_default(),
            monitoring: false,
        },
    };
    Server::start(&contender, dir)
}

/// The stream keeps as many messages as it is filled with, so that every move copies as much.
fn fill(args: &MoveArgs, target: &Target) -> Result<(), BenchError> {
    let config = json!({"name": STREAM, "subjects": ["moving.>"], "max_msgs": args.msgs});
    js::api(&mut target.connect()?, &format!("STREAM.CREATE.{STREAM}"), &config, target.timeout)?;
    let workload = JsPub {
        stream: StreamPlan {
            name: STREAM.into(),
            subject: "moving.fill".into(),
            storage: "file".into(),
            create: false,
            purge: false,
            batches: false,
        },
        msgs: args.msgs,
        size: args.size as usize,
        window: FILL_WINDOW,
        clients: 1,
    };
    super::without_errors(workload.run(target)?)
}

fn move_often(args: &MoveArgs, target: &Target, clock: Instant) -> Result<Vec<Move>, BenchError> {
    let mut client = target.connect()?;
    let mut moves = Vec::new();
    for number in 0..2 * args.moves {
        thread::sleep(SETTLE);
        let to_bucket = number % 2 == 0;
        let log = if to_bucket { BUCKET_LOG } else { "default" };
        let from = clock.elapsed();
        let mut ask = |body: &Value| {
            js::api(&mut client, &format!("STREAM.MOVE.{STREAM}"), body, target.timeout)
        };
        let mut told = ask(&json!({"log": log, "max_rate": 0}))?;
        while told["moving"] == true {
            if clock.elapsed() > from + MOVE_LIMIT {
                return Err(BenchError::TooLong(MOVE_LIMIT));
            }
            thread::sleep(LOOK_EVERY);
            told = ask(&json!({}))?;
        }
        if told["log"] != log {
            return Err(BenchError::Failed(format!("the stream did not move: {told}")));
        }
        moves.push(Move { to_bucket, from, to: clock.elapsed() });
        thread::sleep(AFTERMATH);
    }
    Ok(moves)
}

fn render(args: &MoveArgs, moves: &[Move], published: &[Wait], received: &[Wait]) -> String {
    let mut table = Table::new(&[
        "the stream",
        "times",
        "takes, s",
        "longest wait for an ack, ms: median",
        "max",
        "longest wait for a delivery, ms: median",
        "max",
    ]);
    let mut row = |what: &str, spans: &[(Duration, Duration)]| {
        let of = |waits: &[Wait]| {
            spans.iter().map(|(from, to)| longest(waits, *from, *to)).collect::<Vec<_>>()
        };
        let ms = |value: Duration| format!("{:.0}", value.as_secs_f64() * 1e3);
        let took = median(spans.iter().map(|(from, to)| *to - *from).collect());
        let mut cells =
            vec![what.to_owned(), spans.len().to_string(), format!("{:.1}", took.as_secs_f64())];
        for waits in [of(published), of(received)] {
            cells.push(ms(median(waits.clone())));
            cells.push(ms(waits.into_iter().max().unwrap_or_default()));
        }
        table.row(cells);
    };
    let still: Vec<_> =
        moves.iter().map(|one| (one.from.saturating_sub(SETTLE), one.from)).collect();
    row("stays where it is", &still);
    for (what, to_bucket) in [("moves to the bucket", true), ("moves to the disk", false)] {
        let these = moves.iter().filter(|one| one.to_bucket == to_bucket);
        row(what, &these.map(|one| (one.from, one.to + AFTERMATH)).collect::<Vec<_>>());
    }
    format!(
        "{} messages of {} B in the stream, {} a second published and consumed meanwhile.\n\n{table}",
        args.msgs, args.size, args.rate,
    )
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
