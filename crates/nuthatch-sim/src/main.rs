//! `sim`: runs schedules of the quorum log's cores.

use nuthatch_sim::quorum::{Options, Summary, run};
use std::process::ExitCode;

const USAGE: &str = "\
usage: sim --seed N            prints the trace of one schedule
       sim --from A --count N  runs schedules, prints those that fail and how many an hour of one CPU runs";

/// What the command line asks for.
enum Task {
    One(u64),
    Many { from: u64, count: u64 },
}

fn task() -> Option<Task> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| -> Option<u64> {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)?.parse().ok()
    };
    match args.len() {
        2 => value("--seed").map(Task::One),
        4 => Some(Task::Many { from: value("--from")?, count: value("--count")? }),
        _ => None,
    }
}

fn one(seed: u64) -> ExitCode {
    let (summary, result) = run(seed, &Options { printed: true, ..Options::drawn() });
    println!("seed {seed}: {summary:?}");
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(violation) => {
            println!("seed {seed}: {violation}");
            ExitCode::FAILURE
        }
    }
}

fn many(from: u64, count: u64) -> ExitCode {
    let began = cpu_seconds();
    let mut total = Summary::default();
    let mut failed = 0;
    for seed in from..from.saturating_add(count) {
        let (summary, result) = run(seed, &Options::drawn());
        total.steps += summary.steps;
        total.committed += summary.committed;
        total.epochs += summary.epochs;
        total.faults += summary.faults;
        total.disks += summary.disks;
        total.alarmed += summary.alarmed;
        if let Err(violation) = result {
            failed += 1;
            println!("{seed} {violation}");
        }
    }
    let seconds = (cpu_seconds() - began).max(0.01);
    println!(
        "{count} schedules, {} steps, {} entries committed, {} epochs, {} faults, {} disks harmed, \
         {} entries lost beyond tolerance and recorded, {failed} failed\n\
         {seconds:.1} s of CPU: {:.0} schedules and {:.1} million steps an hour of one CPU",
        total.steps,
        total.committed,
        total.epochs,
        total.faults,
        total.disks,
        total.alarmed,
        count as f64 / seconds * 3600.0,
        total.steps as f64 / seconds * 3600.0 / 1e6,
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What this process has used of all CPUs; `/proc` counts hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn main() -> ExitCode {
    match task() {
        Some(Task::One(seed)) => one(seed),
        Some(Task::Many { from, count }) => many(from, count),
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
