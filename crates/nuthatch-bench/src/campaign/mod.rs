//! `bench run`: a campaign of many measurements of many systems, as its file describes it, into
//! raw JSON, CSV and one HTML page.

mod html;
mod ingest;
mod job;
mod markdown;
mod metric;
mod outcome;
mod plan;
mod summary;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::compare::{self, file_error, machine::Machine};
use crate::harness::BenchError;
use crate::peers::{Peer, cli as peers_cli, objects};
use crate::queue;
use crate::report::RawLimit;
use outcome::{Outcome, SystemRun};
use plan::{Campaign, Work};

/// Run a campaign of workloads over many systems; write JSON, CSV and one HTML report
///
/// Installs nothing: what is missing is named with the command that brings it, and left out. Every
/// measurement starts its system anew in an empty directory; the systems take turns within a
/// repeat. What fails is a failed row of the report, and the campaign goes on.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The campaign, such as bench/campaigns/seeds-short.toml
    file: PathBuf,
    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    out: PathBuf,
    /// Directory for the systems' data, on the disk to be measured (default: the system's
    /// temporary one)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Only these systems, with commas
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,
    /// Another number of repeats than the file has
    #[arg(long)]
    repeats: Option<usize>,
}

/// A system of the report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct System {
    /// Its name.
    pub name: String,
    /// What it is.
    pub what: String,
    /// Its version.
    pub version: String,
    /// How it is started.
    pub config: String,
    /// What a completed send promises.
    pub guarantee: String,
    /// The package it comes from.
    pub package: String,
}

/// Everything a campaign has found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    /// Title.
    pub name: String,
    /// What readers must know.
    pub note: String,
    /// Repeats.
    pub repeats: usize,
    /// When it ended.
    pub finished: String,
    /// What it ran on.
    pub machine: Machine,
    /// What the machine itself can do, once per repeat.
    pub limits: Vec<Vec<RawLimit>>,
    /// The load average of the last minute before each repeat: what else the machine did.
    #[serde(default)]
    pub loads: Vec<f64>,
    /// The systems that took part.
    pub systems: Vec<System>,
    /// Those that did not, and why.
    pub missing: Vec<String>,
    /// Every run.
    pub runs: Vec<SystemRun>,
}

/// Draw the report of a campaign again from its results.json
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// The directory of the results
    dir: PathBuf,
    /// Also write the results as Markdown; of a file with the lines `<!-- campaign:begin -->` and
    /// `<!-- campaign:end -->` only what is between them is replaced
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Runs `bench report` and returns what to print.
///
/// # Errors
/// When the results cannot be read, or the report not be written.
pub fn redraw(args: &ReportArgs) -> Result<String, BenchError> {
    let path = args.dir.join("results.json");
    let text = fs::read_to_string(&path).map_err(file_error("read", &path))?;
    let results: Results = serde_json::from_str(&text)
        .map_err(|err| BenchError::Usage(format!("{}: {err}", path.display())))?;
    write(&results, &args.dir)?;
    if let Some(path) = &args.markdown {
        let page = markdown::page(&results, &gathered(&results));
        compare::write_markdown(path, "campaign", page.trim_end())?;
    }
    Ok(format!("{}\n", args.dir.join("report.html").display()))
}

/// The results by row, in the order of the systems.
fn gathered(results: &Results) -> Vec<outcome::Group> {
    let names: Vec<String> = results.systems.iter().map(|system| system.name.clone()).collect();
    outcome::groups(&results.runs, &names)
}

/// Runs `bench run` and returns what to print.
///
/// # Errors
/// When the campaign makes no sense, no system is there, or a file cannot be written.
pub fn run(args: &RunArgs) -> Result<String, BenchError> {
    let text = fs::read_to_string(&args.file).map_err(file_error("read", &args.file))?;
    let mut campaign = Campaign::parse(&text)?;
    campaign.repeats = args.repeats.unwrap_or(campaign.repeats).max(1);
    if !args.systems.is_empty() {
        campaign.systems.clone_from(&args.systems);
    }
    let (present, missing) = present(&campaign)?;
    for line in &missing {
        eprintln!("{line}");
    }
    if present.is_empty() {
        return Err(BenchError::Failed("none of the systems is there".into()));
    }
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let base = base.join(format!("nuthatch-run-{}", std::process::id()));
    fs::create_dir_all(&base).map_err(file_error("create", &base))?;
    let result = measure(&campaign, &present, missing, &base, &args.out);
    // The systems have removed their own; what is left is only in the way.
    let _ = fs::remove_dir_all(&base);
    result
}

/// Which systems can take part, and for the others why not.
fn present(campaign: &Campaign) -> Result<(Vec<&'static Peer>, Vec<String>), BenchError> {
    let mut missing = Vec::new();
    let mut present = Vec::new();
    for peer in campaign.peers()? {
        if (peer.find)().is_none() {
            missing.push(format!("{} is not installed; get it with: {}", peer.name, peer.package));
        } else if !peers_cli::driver_built(peer) {
            missing.push(format!(
                "{}: this build has no driver {}; build with `cargo build --release -p nuthatch-bench \
                 --features peers`",
                peer.name, peer.driver
            ));
        } else {
            present.push(peer);
        }
    }
    Ok((present, missing))
}

/// Measures everything. The files are written after every measurement, so that an interrupted
/// campaign leaves what it has found.
fn measure(
    campaign: &Campaign,
    present: &[&'static Peer],
    missing: Vec<String>,
    base: &Path,
    out: &Path,
) -> Result<String, BenchError> {
    let systems = describe(present, base);
    let names = systems.iter().map(|s| (s.name.clone(), s.version.clone())).collect::<Vec<_>>();
    let limit = Duration::from_secs(campaign.limit_s);
    let works = campaign.works()?;
    let progress = Progress::new(jobs_of_repeat(&works, present).count() * campaign.repeats);
    let too_long = RefCell::new(BTreeSet::new());
    let mut results = Results {
        name: campaign.name.clone(),
        note: campaign.note.clone(),
        repeats: campaign.repeats,
        finished: String::new(),
        machine: Machine::read(&names),
        limits: Vec::new(),
        loads: Vec::new(),
        systems,
        missing,
        runs: Vec::new(),
    };
    for repeat in 1..=campaign.repeats {
        results.loads.extend(load_average());
        let raw = raw_limits(present, base)?;
        results.limits.push(raw.clone());
        let one = |peer: &'static Peer, work: &Work| {
            let run = || job::run(peer, work, base, limit, &raw);
            once_if_too_long(&too_long, (peer.name, work.section(), work.variant()), run)
        };
        run_repeat(&works, present, repeat, &progress, one, |runs| {
            results.runs.extend(runs);
            results.finished = now();
            write(&results, out)
        })?;
    }
    progress.finish();
    write(&results, out)?;
    let failed = results.runs.iter().filter(|run| run.result.is_err()).count();
    Ok(format!(
        "{} results, {failed} failed runs, {} systems left out; see {}\n",
        results.runs.len() - failed,
        results.missing.len(),
        out.join("report.html").display()
    ))
}

/// What the machine itself does: its disk, the loopback interface, and puts of objects when one of
/// the systems needs them.
fn raw_limits(present: &[&'static Peer], base: &Path) -> Result<Vec<RawLimit>, BenchError> {
    let mut raw = compare::raw_limits(base)?;
    if present.iter().any(|peer| peer.on_objects) {
        match objects::limits(base, None) {
            Ok(more) => raw.extend(more),
            // The systems are measured all the same, without a limit beside them.
            Err(err) => eprintln!("{err}"),
        }
    }
    Ok(raw)
}

/// The measurements that took too long: system, workload, variant.
type TooLong = RefCell<BTreeSet<(&'static str, &'static str, String)>>;

/// Runs a measurement unless it took longer than its limit in an earlier repeat: it would again,
/// and the time is better spent on the others.
fn once_if_too_long(
    too_long: &TooLong,
    key: (&'static str, &'static str, String),
    run: impl FnOnce() -> Result<job::Outcomes, BenchError>,
) -> Result<job::Outcomes, BenchError> {
    if too_long.borrow().contains(&key) {
        let text = "not repeated, because it took too long before";
        return Err(BenchError::Failed(text.into()));
    }
    let result = run();
    if matches!(result, Err(BenchError::TooLong(_))) {
        too_long.borrow_mut().insert(key);
    }
    result
}

/// Asks every system what it promises.
fn describe(present: &[&'static Peer], base: &Path) -> Vec<System> {
    let guarantee = |peer: &'static Peer| -> Result<String, BenchError> {
        let server = crate::peers::Running::start(peer, base)?;
        Ok(queue::open(&server.spec("probe"))?.guarantee()?.to_string())
    };
    let system = |peer: &&'static Peer| System {
        name: peer.name.into(),
        what: peer.what.into(),
        version: peers_cli::version(peer).unwrap_or_default(),
        config: peer.config.into(),
        guarantee: guarantee(peer).unwrap_or_else(|err| format!("unknown: {err}")),
        package: peer.package.into(),
    };
    present.iter().map(system).collect()
}

/// The measurements of one repeat, the systems taking turns within each work.
fn jobs_of_repeat<'a>(
    works: &'a [Work],
    present: &'a [&'static Peer],
) -> impl Iterator<Item = (&'a Work, &'static Peer)> {
    works.iter().flat_map(move |work| {
        let able = present.iter().filter(move |peer| work.suits(peer));
        able.map(move |peer| (work, *peer))
    })
}

/// Runs one repeat and hands the runs of each measurement to `keep`. What fails is noted, and the
/// rest goes on.
///
/// # Errors
/// Only those of `keep`.
fn run_repeat(
    works: &[Work],
    present: &[&'static Peer],
    repeat: usize,
    progress: &Progress,
    one: impl Fn(&'static Peer, &Work) -> Result<job::Outcomes, BenchError>,
    mut keep: impl FnMut(Vec<SystemRun>) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    // Each repeat begins with another system, so that none is always first.
    let mut turned = present.to_vec();
    turned.rotate_left((repeat - 1) % present.len().max(1));
    for (work, peer) in jobs_of_repeat(works, &turned) {
        progress.begin(repeat, work, peer);
        let run = |variant: String, result: Result<Outcome, String>| SystemRun {
            section: work.section().into(),
            variant,
            system: peer.name.into(),
            repeat,
            result,
        };
        let runs = match one(peer, work) {
            Ok(outcomes) => outcomes.into_iter().map(|(row, found)| run(row, Ok(found))).collect(),
            Err(err) => {
                progress.say(&format!("  FAILED: {}: {err}", peer.name));
                vec![run(work.variant(), Err(err.to_string()))]
            }
        };
        keep(runs)?;
        progress.step();
    }
    Ok(())
}

fn write(results: &Results, out: &Path) -> Result<(), BenchError> {
    fs::create_dir_all(out).map_err(file_error("create", out))?;
    let json = serde_json::to_string(results).map_err(|err| BenchError::Failed(err.to_string()))?;
    let groups = gathered(results);
    let files = [
        ("results.json", json),
        ("results.csv", outcome::csv(&results.runs)),
        ("report.html", html::page(results, &groups)),
    ];
    for (name, text) in &files {
        let path = out.join(name);
        fs::write(&path, text).map_err(file_error("write", &path))?;
    }
    Ok(())
}

/// The load average of the last minute.
fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

fn now() -> String {
    let format = time::macros::format_description!("[year]-[month]-[day] [hour]:[minute] UTC");
    time::OffsetDateTime::now_utc().format(format).unwrap_or_default()
}

/// A progress bar with the remaining time; lines where there is no terminal.
struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new(steps: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = terminal.then(|| {
            let bar = ProgressBar::new(steps as u64);
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left: {msg}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar
        });
        Self { bar }
    }

    fn begin(&self, repeat: usize, work: &Work, peer: &Peer) {
        let text = format!("{repeat}: {}, {}: {}", work.section(), work.variant(), peer.name);
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => eprintln!("{text}"),
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }

    fn step(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests;
