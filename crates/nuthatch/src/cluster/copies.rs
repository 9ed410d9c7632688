//! The copies of quorum logs in directories of nodes of one cluster that are stopped: which can be read.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};

use nuthatch_cluster::LogNumber;
use nuthatch_cluster::inspect::is_keeper;
use nuthatch_cluster::recover::{Source, StoppedNode};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::error::CliError;

/// Where a keeper's directory may be in one that is named.
const KEEPER: [&str; 3] = [".", "quorum", "nuthatch/quorum"];

/// The keepers of a log that can be read, and why others cannot.
#[derive(Default)]
pub struct Found {
    /// Those that can be read.
    pub usable: Vec<Source>,
    /// The others, each with the reason.
    pub unusable: Vec<String>,
}

/// Why a path is refused.
pub fn failed(path: &Path, why: &dyn Display) -> CliError {
    CliError::Failed(format!("{}: {why}", path.display()))
}

/// A log may have more files than a shell allows a process.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where it is not allowed, what is allowed may do.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The nodes' directories, which no server uses, nor begins to while this is there; each once, in the order of their names.
///
/// # Errors
/// One has no keeper in it, or a server uses it.
pub fn take_nodes(dirs: &[PathBuf]) -> Result<Vec<StoppedNode>, CliError> {
    allow_many_files();
    let mut nodes = BTreeMap::new();
    for dir in dirs {
        let node = KEEPER.iter().map(|name| dir.join(name)).find(|dir| is_keeper(dir));
        let node = node.ok_or_else(|| failed(dir, &"there is no keeper of a quorum log in it"))?;
        let node = node.canonicalize().map_err(|error| failed(dir, &error))?;
        if let Entry::Vacant(place) = nodes.entry(node) {
            let stopped = StoppedNode::take(place.key()).map_err(|error| failed(dir, &error))?;
            let in_use = "a server uses it: stop that node first";
            place.insert(stopped.ok_or_else(|| failed(dir, &in_use))?);
        }
    }
    Ok(nodes.into_values().collect())
}

/// The keepers in these directories, by their logs.
///
/// # Errors
/// They are of two clusters.
pub fn find(nodes: &[StoppedNode]) -> Result<BTreeMap<LogNumber, Found>, CliError> {
    let mut found: BTreeMap<LogNumber, Found> = BTreeMap::new();
    let mut seen: Vec<(&Path, BTreeSet<LogNumber>)> = vec![];
    for node in nodes {
        let mut logs = BTreeSet::new();
        for (log, dir, source) in node.sources() {
            logs.insert(log);
            let of_log = found.entry(log).or_default();
            match source {
                Ok(source) => of_log.usable.push(source),
                Err(why) => of_log.unusable.push(format!("{}: {why}", dir.display())),
            }
        }
        seen.push((&node.dir, logs));
    }
    // Logs are numbered without gaps.
    let last = found.keys().next_back().map_or(0, |log| log.0);
    for log in (0..=last).map(LogNumber) {
        let of_log = found.entry(log).or_default();
        for (dir, _) in seen.iter().filter(|(_, logs)| !logs.contains(&log)) {
            of_log.unusable.push(format!("{}: it has no keeper of this log", dir.display()));
        }
    }
    let all = found.values().flat_map(|found| &found.usable);
    let mut known = all.filter_map(|source| Some((source, source.cluster?)));
    if let Some((first, cluster)) = known.next()
        && let Some((other, _)) = known.find(|(_, other)| *other != cluster)
    {
        return Err(CliError::Failed(format!(
            "{} and {} are of two clusters: name directories of one",
            first.dir.display(),
            other.dir.display()
        )));
    }
    Ok(found)
}

/// The name of a log, which it keeps: places, tags and moves that name it hold on.
#[must_use]
pub fn log_name(log: LogNumber) -> String {
    match log {
        LogNumber::FIRST => "default".to_owned(),
        LogNumber(number) => format!("default-{number}"),
    }
}
