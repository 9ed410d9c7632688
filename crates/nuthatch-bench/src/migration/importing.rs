//! `bench import`: how fast `stream import` brings a stream here from a running nats-server, and how
//! long its publishers must stop at the end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::load::Load;
use crate::compare::server::{Contender, Further, Server, file_error};
use crate::harness::{BenchError, Target};
use crate::process;
use crate::report::thousands;
use crate::table::Table;
use crate::workload::js_pub::JsPub;
use crate::workload::stream::StreamPlan;
use nuthatch_client::js;
use nuthatch_client::units::parse_number;

const STREAM: &str = "IMPORT";
const SUBJECT: &str = "import.load";

/// Publishes of the preparation without an answer.
const FILL_WINDOW: usize = 500;

/// How long the import follows the publisher before that stops.
const FOLLOW_FOR: Duration = Duration::from_secs(5);

/// How fast a stream comes here from a running nats-server, and how long its publishers must stop
///
/// For each load: fills a stream of a nats-server, runs `nuthatch stream import --from` (which reads
/// both sides once more and compares them), then publishes there at a steady rate while `--follow`
/// runs, stops the publisher, runs `--finish`, and publishes one message here. What lies between the
/// last acknowledgement there and the first here is how long writers must stop.
#[derive(Debug, Clone, Args)]
#[command(verbatim_doc_comment)]
pub struct ImportArgs {
    /// The nats-server; get it with `go install github.com/nats-io/nats-server/v2@v2.15.2`
    #[arg(long, env = "NATS_SERVER", value_name = "PATH")]
    nats_server: PathBuf,
    /// The Nuthatch binary (default: this one)
    #[arg(long, value_name = "PATH")]
    nuthatch: Option<PathBuf>,
    /// Directory for the servers' files
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Messages and their size, several with commas
    #[arg(long, default_value = "1M:128,20k:16KiB", value_delimiter = ',')]
    loads: Vec<String>,
    /// Messages published per second while the import follows
    #[arg(long, default_value = "2k", value_parser = parse_number)]
    rate: u64,
    /// Write the table between the markers <!-- import:begin --> and <!-- import:end --> of this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// What was found of one load.
#[derive(Debug)]
struct Found {
    msgs: u64,
    size: u64,
    /// The bulk, compared.
    bulk: Duration,
    /// CPU seconds for it: the source, the target.
    source_cpu: Duration,
    target_cpu: Duration,
    /// Peak of the target's resident memory in bytes.
    peak_bytes: u64,
    /// Messages that were published while it followed.
    followed: usize,
    /// Between the last acknowledgement there and the first here.
    stopped: Duration,
}

/// Measures, and returns a table.
///
/// # Errors
/// When a server does not start or an import fails.
pub fn run(args: &ImportArgs) -> Result<String, BenchError> {
    let mut table = Table::new(&[
        "messages",
        "bytes each",
        "brought and compared in, s",
        "messages/s",
        "MB/s",
        "nats-server CPU, s",
        "Nuthatch CPU, s",
        "Nuthatch peak, MB",
        "published meanwhile",
        "writers stop for, s",
    ]);
    for load in &args.loads {
        let found = measure(args, parse_load(load)?)?;
        let (seconds, msgs) = (found.bulk.as_secs_f64(), found.msgs as f64);
        let of = |value: Duration| format!("{:.1}", value.as_secs_f64());
        table.row(vec![
            thousands(msgs),
            found.size.to_string(),
            of(found.bulk),
            thousands(msgs / seconds),
            format!("{:.1}", msgs * found.size as f64 / seconds / 1e6),
            of(found.source_cpu),
            of(found.target_cpu),
            format!("{:.0}", found.peak_bytes as f64 / 1e6),
            thousands(found.followed as f64),
            format!("{:.2}", found.stopped.as_secs_f64()),
        ]);
    }
    let text = table.to_string();
    if let Some(path) = &args.markdown {
        crate::compare::write_markdown(path, "import", text.trim_end())?;
    }
    Ok(text)
}

/// `1M:128` as messages and bytes.
fn parse_load(text: &str) -> Result<(u64, u64), BenchError> {
    let bad = |why: &str| BenchError::Usage(format!("{text:?} is no load such as 1M:128: {why}"));
    let (msgs, size) = text.split_once(':').ok_or_else(|| bad("there is no colon"))?;
    let number = |text: &str| parse_number(text).map_err(|why| bad(&why));
    match (number(msgs)?, number(size)?) {
        (1.., 8..) => Ok((number(msgs)?, number(size)?)),
        _ => Err(bad("at least one message of at least 8 bytes")),
    }
}

fn measure(args: &ImportArgs, (msgs, size): (u64, u64)) -> Result<Found, BenchError> {
    let dir = std::path::absolute(&args.dir).map_err(file_error("find", &args.dir))?;
    let nuthatch = crate::own::program(args.nuthatch.as_deref())?;
    let nats =
        std::path::absolute(&args.nats_server).map_err(file_error("find", &args.nats_server))?;
    let source = start(vec![nats], &dir)?;
    let target = start(vec![nuthatch.clone(), "serve".into()], &dir)?;
    let (there, here) = (source.target()?, target.target()?);
    fill(msgs, size, &there)?;
    let import = Import { nuthatch, from: address(&there), to: address(&here) };
    process::reset_peak(target.pid());
    let cpu = || (process::usage(source.pid()), process::usage(target.pid()));
    let (before, started) = (cpu(), Instant::now());
    import.run(&[])?;
    let (bulk, after) = (started.elapsed(), cpu());
    let used = |before: Option<process::Usage>, after: Option<process::Usage>| {
        let of = |usage: Option<process::Usage>| usage.map(|usage| usage.cpu).unwrap_or_default();
        of(after).saturating_sub(of(before))
    };
    let (followed, stopped) = follow_and_finish(args, (msgs, size), &import, &there, &here)?;
    Ok(Found {
        msgs,
        size,
        bulk,
        source_cpu: used(before.0, after.0),
        target_cpu: used(before.1, after.1),
        peak_bytes: process::usage(target.pid()).unwrap_or_default().peak_rss_bytes,
        followed,
        stopped,
    })
}

fn start(command: Vec<PathBuf>, dir: &Path) -> Result<Server, BenchError> {
    let contender = Contender {
        name: command[0].display().to_string(),
        command,
        sync_interval: None,
        slow_publish: false,
        further: Further::default(),
    };
    Server::start(&contender, dir)
}

fn address(target: &Target) -> String {
    let server = &target.options.servers[0];
    format!("nats://{}:{}", server.host, server.port)
}

fn fill(msgs: u64, size: u64, target: &Target) -> Result<(), BenchError> {
    let config = json!({"name": STREAM, "subjects": ["import.>"]});
    js::api(&mut target.connect()?, &format!("STREAM.CREATE.{STREAM}"), &config, target.timeout)?;
    let workload = JsPub {
        stream: StreamPlan {
            name: STREAM.into(),
            subject: "import.fill".into(),
            storage: "file".into(),
            create: false,
            purge: false,
            batches: false,
        },
        msgs,
        size: size as usize,
        window: FILL_WINDOW,
        clients: 1,
    };
    super::without_errors(workload.run(target)?)
}

/// How many messages came while it followed, and how long nobody could publish.
fn follow_and_finish(
    args: &ImportArgs,
    (msgs, size): (u64, u64),
    import: &Import,
    there: &Target,
    here: &Target,
) -> Result<(usize, Duration), BenchError> {
    let stop = AtomicBool::new(false);
    let load = Load {
        stream: STREAM,
        subject: SUBJECT,
        size: size as usize,
        rate: args.rate.max(1) as f64,
        clock: Instant::now(),
        stop: &stop,
    };
    let follower = import.start(&["--follow"])?;
    let published = thread::scope(|scope| {
        let publisher = scope.spawn(|| load.publish(there));
        thread::sleep(FOLLOW_FOR);
        stop.store(true, Ordering::Relaxed);
        publisher.join().map_err(|_| BenchError::Panicked)?
    })?;
    let stopped = Instant::now();
    drop(follower);
    import.run(&["--finish"])?;
    let body = vec![0; size as usize];
    let ack = here.connect()?.request(SUBJECT, b"", &body, here.timeout)?;
    let stopped = stopped.elapsed();
    // Nothing may be missing between what was there and this message.
    let expected = msgs + published.len() as u64 + 1;
    match js::PubAck::parse(&ack.payload, STREAM) {
        js::PubAck::Stored(seq) if seq == expected => Ok((published.len(), stopped)),
        other => {
            let text = format!("the publish here should be number {expected}: {other:?}");
            Err(BenchError::Failed(text))
        }
    }
}

/// The command, as an operator would type it.
struct Import {
    nuthatch: PathBuf,
    from: String,
    to: String,
}

/// A command that runs until it is interrupted.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Import {
    fn command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(&self.nuthatch);
        command.args(["--no-context", "--timeout", "60s", "-s", &self.to, "stream", "import"]);
        command.args(["--from", &self.from]).args(flags).arg(STREAM);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn start(&self, flags: &[&str]) -> Result<Running, BenchError> {
        let mut command = self.command(flags);
        command.stderr(Stdio::null());
        command.spawn().map(Running).map_err(file_error("start", &self.nuthatch))
    }

    fn run(&self, flags: &[&str]) -> Result<(), BenchError> {
        let output = self.command(flags).output().map_err(file_error("start", &self.nuthatch))?;
        if output.status.success() {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(BenchError::Failed(format!("stream import {flags:?} failed: {}", errors.trim_end())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_read() {
        assert_eq!(parse_load("20k:16KiB").ok(), Some((20_000, 16 * 1024)));
        for bad in ["1M", "0:8", "5:4", "x:8"] {
            assert!(parse_load(bad).is_err(), "{bad}");
        }
    }
}
