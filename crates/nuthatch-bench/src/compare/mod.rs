//! `bench compare`: the single-server rows of the design, measured in one run against nats-server
//! with its default sync, nats-server with `sync_interval: always`, and Nuthatch.

pub mod machine;
mod raw;
mod rows;
pub mod server;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::driver::Driver;
use crate::harness::BenchError;
use crate::process;
use crate::report::{RawLimit, RunReport, Spread};
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js;
use nuthatch_client::units::{parse_count, parse_number};
pub use raw::measure as raw_limits;
use rows::{Metric, ROWS, Row};
pub use server::file_error;
use server::{Contender, Further, Server};

/// An idle server is left alone for this long before its memory is read.
const IDLE_SPAN: Duration = Duration::from_secs(2);

/// Messages of the restart row, full and quick.
const RESTART_MSGS: u64 = 10_000_000;
const QUICK_RESTART_MSGS: u64 = 500_000;

/// How to get the incumbent.
const GET_NATS_SERVER: &str = "go install github.com/nats-io/nats-server/v2@v2.15.2";

/// Compare this server with nats-server on this machine
#[derive(Debug, Clone, Args)]
pub struct CompareArgs {
    /// The nats-server to compare with; get it with
    /// `go install github.com/nats-io/nats-server/v2@v2.15.2`
    #[arg(long, env = "NATS_SERVER", value_name = "PATH")]
    nats_server: Option<PathBuf>,
    /// The Nuthatch binary (default: this one)
    #[arg(long, value_name = "PATH")]
    nuthatch: Option<PathBuf>,
    /// Repetitions of every row
    #[arg(long, default_value_t = 3, value_parser = parse_count)]
    repeat: usize,
    /// A tenth of the messages
    #[arg(long)]
    quick: bool,
    /// Only these rows, with commas: async1, async1-wide, async4, sync, consume, ordered, 64k,
    /// 1m, 5m, idle, restart
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Messages of the restart row (default: 10M, 500k with --quick)
    #[arg(long, value_parser = parse_number)]
    restart_msgs: Option<u64>,
    /// Directory for the stores (default: the system's temporary one); choose one on the disk
    /// that is to be measured
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write all numbers as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the tables as Markdown (default: print them); in a file with the lines
    /// `<!-- compare:begin -->` and `<!-- compare:end -->` only what is between them is replaced
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// All repetitions of a row with one server and one client.
#[derive(Debug, Clone, Serialize)]
struct Cell {
    server: String,
    client: &'static str,
    row: &'static str,
    title: &'static str,
    metric: Metric,
    /// The deciding number over the repetitions.
    value: Option<Spread>,
    /// Server CPU in microseconds per message.
    cpu_us: Option<Spread>,
    /// Peak resident memory in bytes.
    peak_bytes: Option<Spread>,
    /// Part of the time that each client's thread was busy.
    client_busy: Option<Spread>,
    runs: Vec<RunReport>,
}

/// Restarts of one server.
#[derive(Debug, Clone, Serialize)]
struct Restart {
    server: String,
    msgs: u64,
    /// Seconds from the start of the process until the stream answered, after SIGTERM.
    clean_s: Option<Spread>,
    /// The same after SIGKILL.
    killed_s: Option<Spread>,
}

/// Memory of an idle server.
#[derive(Debug, Clone, Serialize)]
struct Idle {
    server: String,
    rss_bytes: Option<Spread>,
}

/// Everything.
#[derive(Debug, Serialize)]
struct Comparison {
    machine: machine::Machine,
    repeat: usize,
    quick: bool,
    servers: Vec<String>,
    raw: Vec<Vec<RawLimit>>,
    cells: Vec<Cell>,
    idle: Vec<Idle>,
    restarts: Vec<Restart>,
}

/// Runs the comparison and returns what to print.
///
/// # Errors
/// When a server cannot be started or stops answering, or a file cannot be written.
pub fn run(args: &CompareArgs, connect: &ConnectArgs) -> Result<String, BenchError> {
    check_rows(&args.rows)?;
    let contenders = contenders(args)?;
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let base = base.join(format!("nuthatch-compare-{}", std::process::id()));
    fs::create_dir_all(&base).map_err(file_error("create", &base))?;
    let result = compare(args, &contenders, &base);
    // Stores have gone with their servers; what is left is only in the way.
    let _ = fs::remove_dir_all(&base);
    let comparison = result?;
    let json = serde_json::to_string_pretty(&comparison)
        .map_err(|err| BenchError::Failed(err.to_string()))?;
    if let Some(path) = &args.out {
        fs::write(path, &json).map_err(file_error("write", path))?;
    }
    let markdown = table::markdown(&comparison);
    match &args.markdown {
        Some(path) => write_markdown(path, "compare", &markdown)?,
        None if !connect.json => return Ok(markdown),
        None => {}
    }
    Ok(if connect.json { json } else { String::new() })
}

/// Writes tables into a document: between `<!-- NAME:begin -->` and `<!-- NAME:end -->` where it has
/// these lines, else as the whole of it.
///
/// # Errors
/// When the file cannot be written.
pub fn write_markdown(path: &Path, name: &str, tables: &str) -> Result<(), BenchError> {
    let old = fs::read_to_string(path).unwrap_or_default();
    let text = between_marks(&old, name, tables).unwrap_or_else(|| tables.to_owned());
    fs::write(path, text).map_err(file_error("write", path))
}

/// The document with new tables between its marks; `None` when it has none.
fn between_marks(document: &str, name: &str, tables: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{tables}\n{end}{after}"))
}

fn check_rows(wanted: &[String]) -> Result<(), BenchError> {
    let known: Vec<&str> = ROWS.iter().map(|row| row.key).chain(["idle", "restart"]).collect();
    match wanted.iter().find(|row| !known.contains(&row.as_str())) {
        Some(row) => {
            let text = format!("there is no row {row:?}; the rows are {}", known.join(", "));
            Err(BenchError::Usage(text))
        }
        None => Ok(()),
    }
}

fn contenders(args: &CompareArgs) -> Result<Vec<Contender>, BenchError> {
    let own = crate::own::program(args.nuthatch.as_deref())?;
    let Some(nats) = args.nats_server.clone() else {
        let text = format!(
            "which nats-server? Pass --nats-server PATH or set NATS_SERVER; `{GET_NATS_SERVER}` \
             brings it"
        );
        return Err(BenchError::Usage(text));
    };
    let incumbent = |name: &str, sync_interval, slow_publish| Contender {
        name: name.into(),
        command: vec![nats.clone()],
        sync_interval,
        slow_publish,
        further: Further::default(),
    };
    Ok(vec![
        incumbent(table::INCUMBENT_DEFAULT, None, false),
        incumbent(table::INCUMBENT_ALWAYS, Some("always"), true),
        Contender {
            name: table::OURS.into(),
            command: vec![own, "serve".into()],
            sync_interval: None,
            slow_publish: false,
            further: Further::default(),
        },
    ])
}

fn compare(
    args: &CompareArgs,
    contenders: &[Contender],
    base: &Path,
) -> Result<Comparison, BenchError> {
    let wanted = |key: &str| args.rows.is_empty() || args.rows.iter().any(|row| row == key);
    let plans: Vec<(&Row, Driver)> = ROWS
        .iter()
        .filter(|row| wanted(row.key))
        .flat_map(|row| Driver::ALL.iter().map(move |driver| (row, *driver)))
        .filter(|(row, driver)| *driver == Driver::Lean || row.by_async_nats)
        .collect();
    let machine = machine::Machine::read(&versions(contenders, base)?);
    let mut raw = Vec::new();
    let mut runs: Vec<Vec<RunReport>> = vec![Vec::new(); plans.len() * contenders.len()];
    let mut idle: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
    for repetition in 0..args.repeat {
        progress(&format!("repetition {} of {}", repetition + 1, args.repeat));
        raw.push(raw::measure(base)?);
        for (plan, (row, driver)) in plans.iter().enumerate() {
            for turn in 0..contenders.len() {
                // Each repetition begins with another server, so that none is always first.
                let index = (turn + repetition) % contenders.len();
                let contender = &contenders[index];
                settle();
                let report = row.run(contender, *driver, base, args.quick)?;
                progress(&summary(row, *driver, contender, &report));
                runs[plan * contenders.len() + index].push(report);
            }
        }
        if wanted("idle") {
            for (contender, sizes) in contenders.iter().zip(&mut idle) {
                sizes.extend(idle_rss(contender, base)?);
            }
        }
    }
    let mut runs = runs.into_iter();
    let mut cells = Vec::new();
    for (row, driver) in &plans {
        for contender in contenders {
            cells.push(Cell::new(row, *driver, contender, runs.next().unwrap_or_default()));
        }
    }
    let idle_of = |(contender, sizes): (&Contender, Vec<f64>)| Idle {
        server: contender.name.clone(),
        rss_bytes: Spread::of(sizes.into_iter()),
    };
    let restarts = if wanted("restart") { restarts(args, contenders, base)? } else { Vec::new() };
    Ok(Comparison {
        machine,
        repeat: args.repeat,
        quick: args.quick,
        servers: contenders.iter().map(|contender| contender.name.clone()).collect(),
        raw,
        cells,
        idle: contenders.iter().zip(idle).map(idle_of).collect(),
        restarts,
    })
}

impl Cell {
    fn new(row: &Row, driver: Driver, contender: &Contender, runs: Vec<RunReport>) -> Self {
        let cpu = |run: &RunReport| Some(run.server.as_ref()?.cpu_us_per_msg);
        let peak = |run: &RunReport| Some(run.server.as_ref()?.peak_rss_bytes as f64);
        Self {
            server: contender.name.clone(),
            client: driver.name(),
            row: row.key,
            title: row.title,
            metric: row.metric,
            value: Spread::of(runs.iter().filter_map(|run| row.metric.of(run))),
            cpu_us: Spread::of(runs.iter().filter_map(cpu)),
            peak_bytes: Spread::of(runs.iter().filter_map(peak)),
            client_busy: Spread::of(runs.iter().map(|run| run.client_busy)),
            runs,
        }
    }
}

fn idle_rss(contender: &Contender, base: &Path) -> Result<Option<f64>, BenchError> {
    let server = Server::start(contender, base)?;
    thread::sleep(IDLE_SPAN);
    Ok(process::usage(server.pid()).map(|usage| usage.rss_bytes as f64))
}

/// Version of each different server, as it reports it.
fn versions(contenders: &[Contender], base: &Path) -> Result<Vec<(String, String)>, BenchError> {
    let mut versions = Vec::new();
    for contender in contenders {
        let server = Server::start(contender, base)?;
        let client = server.target()?.connect()?;
        versions.push((contender.name.clone(), client.info().version.to_string()));
    }
    Ok(versions)
}

/// Times of restarts with many messages. One fill serves all restarts of a server.
fn restarts(
    args: &CompareArgs,
    contenders: &[Contender],
    base: &Path,
) -> Result<Vec<Restart>, BenchError> {
    let default = if args.quick { QUICK_RESTART_MSGS } else { RESTART_MSGS };
    let msgs = args.restart_msgs.unwrap_or(default);
    let mut restarts = Vec::new();
    // How a store was synced does not matter for opening it, so the slow setting is left out.
    for contender in contenders.iter().filter(|contender| !contender.slow_publish) {
        progress(&format!("restart with {msgs} messages, {}", contender.name));
        let mut server = Server::start(contender, base)?;
        rows::fill(msgs, &server.target()?)?;
        let mut times: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..args.repeat {
            for (kill, times) in [false, true].into_iter().zip(&mut times) {
                server = server.restart(contender, kill)?;
                check_messages(&server, msgs)?;
                times.push(server.start_time.as_secs_f64());
            }
        }
        let [clean, killed] = times.map(|times| Spread::of(times.into_iter()));
        let server = contender.name.clone();
        restarts.push(Restart { server, msgs, clean_s: clean, killed_s: killed });
    }
    Ok(restarts)
}

fn check_messages(server: &Server, msgs: u64) -> Result<(), BenchError> {
    let target = server.target()?;
    let mut client = target.connect()?;
    let what = format!("STREAM.INFO.{}", rows::stream().name);
    let info = js::api(&mut client, &what, &Value::Null, target.timeout)?;
    match info["state"]["messages"].as_u64() {
        Some(found) if found == msgs => Ok(()),
        found => {
            let text = format!("{msgs} messages were stored, {found:?} came back");
            Err(BenchError::Failed(text))
        }
    }
}

fn summary(row: &Row, driver: Driver, contender: &Contender, report: &RunReport) -> String {
    let value = row.metric.of(report).unwrap_or(0.0);
    let cpu = report.server.as_ref().map_or(0.0, |server| server.cpu_us_per_msg);
    let errors = match &report.first_error {
        Some(err) => format!(", {} ERRORS: {err}", report.errors),
        None => String::new(),
    };
    format!(
        "  {} ({}), {}: {value:.0} {}, {cpu:.2} µs CPU/msg{errors}",
        row.title,
        driver.name(),
        contender.name,
        row.metric.unit(),
    )
}

/// Has the kernel write back what earlier runs left in its cache, so that nobody pays for others.
fn settle() {
    // SAFETY: `sync` has no preconditions.
    unsafe { libc::sync() };
}

/// Says on the standard error how far it has come.
fn progress(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marked_part_of_a_document_changes() {
        let document = "top\n<!-- compare:begin -->\nold\n<!-- compare:end -->\nend\n";
        let expected = "top\n<!-- compare:begin -->\n\nnew\n<!-- compare:end -->\nend\n";
        assert_eq!(between_marks(document, "compare", "new").as_deref(), Some(expected));
        assert_eq!(between_marks("plain", "compare", "new"), None);
    }

    #[test]
    fn rows_are_checked() {
        assert!(check_rows(&["sync".into(), "restart".into()]).is_ok());
        assert!(check_rows(&["nope".into()]).is_err());
    }
}
