//! Results of a campaign: every run, and the spread over its repeats.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::Spread;

/// Result of one system for one row of a table.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Numbers by their name with its unit.
    pub metrics: BTreeMap<String, f64>,
    /// Latencies as pairs of nanoseconds and count, by what they are the latency of.
    pub curves: BTreeMap<String, Vec<(u64, u64)>>,
    /// Messages lost, doubled or out of order, in words; empty when there are none.
    pub faults: String,
    /// Everything as the workload itself reports it.
    pub detail: serde_json::Value,
}

impl Outcome {
    /// Adds a number when there is one.
    pub fn set(&mut self, name: &str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.metrics.insert(name.into(), value);
        }
    }
}

/// One run of one system.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SystemRun {
    /// The workload.
    pub section: String,
    /// The row of its table; several runs of one work may give several.
    pub variant: String,
    /// Name of the peer.
    pub system: String,
    /// Which repeat, from 1.
    pub repeat: usize,
    /// The result, or why it failed.
    pub result: Result<Outcome, String>,
}

/// All repeats of a system in one row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the peer.
    pub system: String,
    /// Spread of every number over the repeats that succeeded.
    pub metrics: BTreeMap<String, Spread>,
    /// Latencies of all repeats together.
    pub curves: BTreeMap<String, Vec<(u64, u64)>>,
    /// How many repeats succeeded.
    pub succeeded: usize,
    /// How many were tried.
    pub tried: usize,
    /// The first failure, and faults of any repeat.
    pub remarks: Vec<String>,
}

/// A row: all systems in one variant of a workload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Group {
    /// The workload.
    pub section: String,
    /// The variant.
    pub variant: String,
    /// The systems in the order of the campaign.
    pub cells: Vec<Cell>,
}

/// Puts the repeats together. Failed runs that could not say their variants are shown in all
/// variants of their section.
pub fn groups(runs: &[SystemRun], systems: &[String]) -> Vec<Group> {
    let mut keys: Vec<(String, String)> = Vec::new();
    for run in runs.iter().filter(|run| run.result.is_ok()) {
        let key = (run.section.clone(), run.variant.clone());
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    // What failed everywhere has its place too.
    for run in runs.iter().filter(|run| run.result.is_err()) {
        if !keys.iter().any(|(section, _)| *section == run.section) {
            keys.push((run.section.clone(), run.variant.clone()));
        }
    }
    let group = |(section, variant): (String, String)| {
        let cell = |system: &String| {
            let of_cell = |run: &&SystemRun| {
                run.section == section
                    && run.system == *system
                    && (run.variant == variant || failed_before_variants(run, runs))
            };
            let mine: Vec<&SystemRun> = runs.iter().filter(of_cell).collect();
            (!mine.is_empty()).then(|| Cell::new(system, &mine))
        };
        let cells = systems.iter().filter_map(cell).collect();
        Group { section: section.clone(), variant: variant.clone(), cells }
    };
    keys.into_iter().map(group).collect()
}

/// True if a run failed under a name that is no row of its own.
fn failed_before_variants(run: &SystemRun, runs: &[SystemRun]) -> bool {
    run.result.is_err()
        && !runs.iter().any(|other| {
            other.result.is_ok() && other.section == run.section && other.variant == run.variant
        })
}

impl Cell {
    fn new(system: &str, runs: &[&SystemRun]) -> Self {
        let outcomes: Vec<&Outcome> =
            runs.iter().filter_map(|run| run.result.as_ref().ok()).collect();
        let mut metrics = BTreeMap::new();
        let mut curves: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        for outcome in &outcomes {
            for name in outcome.metrics.keys() {
                let values = outcomes.iter().filter_map(|outcome| outcome.metrics.get(name));
                if let Some(spread) = Spread::of(values.copied()) {
                    metrics.insert(name.clone(), spread);
                }
            }
            for (name, pairs) in &outcome.curves {
                curves.entry(name.clone()).or_default().extend(pairs);
            }
        }
        let failures = runs.iter().filter_map(|run| run.result.as_ref().err());
        let mut remarks: Vec<String> =
            failures.map(|err| format!("FAILED: {err}")).take(1).collect();
        let faults = outcomes.iter().map(|outcome| outcome.faults.clone());
        remarks.extend(faults.filter(|faults| !faults.is_empty()));
        Self {
            system: system.into(),
            metrics,
            curves,
            succeeded: outcomes.len(),
            tried: runs.len(),
            remarks,
        }
    }
}

/// One line per number of every run.
pub fn csv(runs: &[SystemRun]) -> String {
    let mut out = String::from("section,variant,system,repeat,metric,value\n");
    for run in runs {
        let head = [&run.section, &run.variant, &run.system].map(|text| quoted(text)).join(",");
        match &run.result {
            Ok(outcome) => {
                for (name, value) in &outcome.metrics {
                    out += &format!("{head},{},{},{value}\n", run.repeat, quoted(name));
                }
                if !outcome.faults.is_empty() {
                    out += &format!("{head},{},faults,{}\n", run.repeat, quoted(&outcome.faults));
                }
            }
            Err(err) => out += &format!("{head},{},failed,{}\n", run.repeat, quoted(err)),
        }
    }
    out
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\"").replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(system: &str, variant: &str, repeat: usize, result: Result<f64, &str>) -> SystemRun {
        let outcome = |value| Outcome {
            metrics: BTreeMap::from([("msgs/s".to_owned(), value)]),
            ..Outcome::default()
        };
        SystemRun {
            section: "s".into(),
            variant: variant.into(),
            system: system.into(),
            repeat,
            result: result.map(outcome).map_err(str::to_owned),
        }
    }

    #[test]
    fn repeats_are_gathered_and_failures_kept() {
        let runs = [
            run("a", "v", 1, Ok(10.0)),
            run("b", "v", 1, Err("gone")),
            run("a", "v", 2, Ok(30.0)),
            run("b", "v", 2, Ok(5.0)),
            run("a", "v", 3, Ok(20.0)),
        ];
        let groups = groups(&runs, &["b".into(), "a".into()]);
        let [group] = &groups[..] else { panic!("{groups:?}") };
        let [b, a] = &group.cells[..] else { panic!("{group:?}") };
        assert_eq!((a.succeeded, a.tried), (3, 3));
        assert_eq!(a.metrics["msgs/s"], Spread { min: 10.0, median: 20.0, max: 30.0 });
        assert_eq!((b.succeeded, b.tried), (1, 2));
        assert_eq!(b.remarks, ["FAILED: gone"]);
    }

    #[test]
    fn a_failure_without_a_row_of_its_own_shows_in_all() {
        let runs = [
            run("a", "v1", 1, Ok(1.0)),
            run("a", "v2", 1, Ok(1.0)),
            run("b", "whole work", 1, Err("gone")),
        ];
        let groups = groups(&runs, &["a".into(), "b".into()]);
        assert_eq!(groups.len(), 2);
        assert!(groups.iter().all(|g| g.cells.len() == 2 && g.cells[1].succeeded == 0));
    }

    #[test]
    fn lines_of_the_csv() {
        let text = csv(&[run("a", "v, w", 1, Ok(1.5)), run("b", "v", 2, Err("say \"no\""))]);
        let expected = "section,variant,system,repeat,metric,value\n\
                        \"s\",\"v, w\",\"a\",1,\"msgs/s\",1.5\n\
                        \"s\",\"v\",\"b\",2,failed,\"say \"\"no\"\"\"\n";
        assert_eq!(text, expected);
    }
}
