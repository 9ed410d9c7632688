//! `sim`: runs schedules of the quorum log's cores.

use nuthatch_sim::quorum::{Options, Summary, THEMES, run};
use std::process::ExitCode;

const USAGE: &str = "\
usage: sim --seed N [--theme M]            prints the trace of one schedule
       sim --from A --count N [--theme M]  runs schedules, prints those that fail and how many an hour of one CPU runs
themes are the faults of one classic mistake, m1 to m21";

/// What the command line asks for.
enum Task {
    One(u64),
    Many { from: u64, count: u64 },
}

fn task(args: &[String]) -> Option<Task> {
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

/// Takes `--theme NAME` out of the arguments; none when there is no such theme.
fn options(args: &mut Vec<String>) -> Option<Options> {
    let Some(at) = args.iter().position(|arg| arg == "--theme") else {
        return Some(Options::drawn());
    };
    let name = args.drain(at..).nth(1)?;
    let theme = THEMES.iter().find(|theme| theme.name == name)?;
    Some(Options { mix: Some(theme.mix()), ..Options::drawn() })
}

fn one(seed: u64, options: Options) -> ExitCode {
    let (summary, result) = run(seed, &Options { printed: true, ..options });
    println!("seed {seed}: {summary:?}");
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(violation) => {
            println!("seed {seed}: {violation}");
            ExitCode::FAILURE
        }
    }
}

fn many(from: u64, count: u64, options: &Options) -> ExitCode {
    let began = cpu_seconds();
    let mut total = Summary::default();
    let mut failed = 0;
    for seed in from..from.saturating_add(count) {
        let (summary, result) = run(seed, options);
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

/// With the feature `mutations` NUTHATCH_RULE_OFF names a rule to do without, and what stands behind it.
#[cfg(feature = "mutations")]
fn turn_off() {
    use nuthatch_quorum::rules::{Rule, turn_off};
    let name = std::env::var("NUTHATCH_RULE_OFF").unwrap_or_default();
    let rule = Rule::ALL.iter().copied().find(|rule| rule.name() == name);
    turn_off(&[rule, rule.and_then(Rule::behind)].into_iter().flatten().collect::<Vec<_>>());
}

fn main() -> ExitCode {
    #[cfg(feature = "mutations")]
    turn_off();
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let options = options(&mut args);
    match (task(&args), options) {
        (Some(Task::One(seed)), Some(options)) => one(seed, options),
        (Some(Task::Many { from, count }), Some(options)) => many(from, count, &options),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
