//! Inserts and deletes through a log into an index that is searched meanwhile (seeds 000 and 002): one system of
//! `bench/ingest_search.py`, which starts, kills and ends it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::job::Outcomes;
use super::outcome::Outcome;
use crate::harness::BenchError;
use crate::own;
use crate::peers::Peer;

/// Names the program; by default it is looked for below the current directory.
const SCRIPT_VARIABLE: &str = "NUTHATCH_INGEST";
/// Names the Python that has numpy and usearch.
const PYTHON_VARIABLE: &str = "NUTHATCH_PYTHON";
/// Seconds of the log alone.
const ALONE_S: &str = "2";

/// Systems that the program knows by the same names.
const SYSTEMS: [&str; 5] = ["nuthatch", "nats", "nats-sync", "rocksmq", "woodpecker"];

/// Rows of the report: what each is called, and the paths of its numbers in a result.
const NUMBERS: [(&str, &str); 14] = [
    ("rows/s", "/load/rows_per_s"),
    ("searches/s", "/load/searches_per_s"),
    ("queries/s", "/load/queries_per_s"),
    ("search mean ms", "/load/searched_ms/mean"),
    ("search p50 ms", "/load/searched_ms/p50"),
    ("search p99 ms", "/load/searched_ms/p99"),
    ("query p50 ms", "/load/queried_ms/p50"),
    ("query p99 ms", "/load/queried_ms/p99"),
    ("append p50 ms", "/load/appended_ms/p50"),
    ("append p99 ms", "/load/appended_ms/p99"),
    ("server killed: pause s", "/server_killed/pause_s"),
    ("database killed: index again s", "/node_killed/seconds"),
    ("server CPU s", "/server/cpu_s"),
    ("log alone rows/s", "/alone/rows_per_s"),
];

/// True if the program measures this system.
pub fn knows(peer: &Peer) -> bool {
    SYSTEMS.contains(&peer.name)
}

/// Measures one system with so many rows.
///
/// # Errors
/// Python or the program is missing, it fails, or acknowledged records are lost by a log that is ours.
pub fn run(peer: &Peer, rows: u64, base: &Path, limit: Duration) -> Result<Outcomes, BenchError> {
    let script = variable(SCRIPT_VARIABLE).unwrap_or_else(|| "bench/ingest_search.py".into());
    if !script.is_file() {
        let text = format!(
            "there is no {}: start the campaign in a checkout, or name the program with {SCRIPT_VARIABLE}",
            script.display()
        );
        return Err(BenchError::Usage(text));
    }
    let python = variable(PYTHON_VARIABLE).unwrap_or_else(|| "python3".into());
    let results = base.join(format!("ingest-{}.json", peer.name));
    let done = Command::new(&python)
        .arg(&script)
        .args(["--engines", peer.name, "--rows", &rows.to_string(), "--alone-s", ALONE_S])
        .args(["--limit-s", &limit.as_secs().to_string()])
        .arg("--nuthatch")
        .arg(own::program(None)?)
        .arg("--dir")
        .arg(base)
        .arg("--json")
        .arg(&results)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| BenchError::File { what: format!("{}", python.display()), source })?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no words");
        return Err(BenchError::Failed(last.to_owned()));
    }
    let what = || format!("cannot read {}", results.display());
    let text =
        std::fs::read(&results).map_err(|source| BenchError::File { what: what(), source })?;
    let all: Value = serde_json::from_slice(&text)
        .map_err(|error| BenchError::Failed(format!("{}: {error}", what())))?;
    let result = all.pointer("/results/0").cloned().unwrap_or_default();
    Ok(vec![(variant(rows), outcome(result))])
}

/// Name of the row.
pub fn variant(rows: u64) -> String {
    format!("{} rows of 128 float32", crate::report::thousands(rows as f64))
}

fn outcome(result: Value) -> Outcome {
    let mut outcome = Outcome::default();
    for (name, path) in NUMBERS {
        outcome.set(name, result.pointer(path).and_then(Value::as_f64));
    }
    let lost = ["/server_killed/lost", "/node_killed/lost"]
        .iter()
        .filter_map(|path| result.pointer(path).and_then(Value::as_u64))
        .max();
    if let Some(lost) = lost.filter(|lost| *lost > 0) {
        outcome.faults = format!("{lost} acknowledged records are lost");
    }
    outcome.detail = result;
    outcome
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_system_is_a_peer() {
        for name in SYSTEMS {
            assert!(knows(Peer::named(name).unwrap()));
        }
        assert!(!knows(Peer::named("redis").unwrap()));
    }

    #[test]
    fn numbers_and_losses_are_found_in_a_result() {
        let result = json!({
            "load": {"rows_per_s": 9.5, "searched_ms": {"mean": 1.0, "p50": 0.5, "p99": 3.0}},
            "server_killed": {"pause_s": 0.4, "lost": 0}, "node_killed": {"seconds": 2.0, "lost": 3},
        });
        let outcome = outcome(result);
        assert_eq!(outcome.metrics["rows/s"], 9.5);
        assert_eq!(outcome.metrics["search p99 ms"], 3.0);
        assert!(!outcome.metrics.contains_key("query p50 ms"));
        assert_eq!(outcome.faults, "3 acknowledged records are lost");
    }

    /// What the program writes has the places that are looked for here.
    #[test]
    fn the_places_are_those_that_the_program_writes() {
        let sources = [
            include_str!("../../../../bench/ingest_search.py"),
            include_str!("../../../../bench/ingest_node.py"),
        ];
        for (_, path) in NUMBERS {
            for word in path.split('/').skip(1) {
                let quoted = format!("\"{word}\"");
                assert!(sources.iter().any(|source| source.contains(&quoted)), "{word}");
            }
        }
    }
}
