//! What replicas of the quorum logs hold on their disks, compared.
//!
//! Nodes are paused for the moment in which their directories are copied, and go on. Of each log all its keepers have the
//! same in the end:
//!
//! - the entries of the journal, to the same last one: each with its epoch, its stamp, the sum of its payload, and the sum of
//!   the entry before it, by which one entry stands for all before it. All of them are intact;
//! - the files that they have made (segments, catalog, consumers' state), byte for byte: those that each node has, and those
//!   that come of it when the copy is brought forward, as by a node that takes the log over.
//!
//! What may differ, and is not compared:
//!
//! - where the journal begins: entries go when the files have durably what they made, each node by itself, and a node that has
//!   joined begins with files. So entries are compared that all have;
//! - which of the files are durable already (`state`), and those that lost their names and go with the next mark;
//! - what is the keeper's own: identity, promises, what it has put aside in `torn/`, preallocated files;
//! - the catalog (`catalog/`), of which each member keeps a log and snapshots at its own pace;
//! - the log in memory, and logs in a bucket, which are on no disk; logs that are one node's own (`local`);
//! - spares keep no log, and what a removed node has left on its disk is nobody's: the test says who keeps the logs.

use super::{Node, Nodes};
use crate::support::TIMEOUT;
use nuthatch_cluster::inspect::{Inspection, inspect};
use nuthatch_cluster::journal::OPS_DIR;
use nuthatch_cluster::keeper_dir::KeeperDir;
use nuthatch_cluster::recover::{StoppedNode, extract};
use nuthatch_cluster::replica::FILES_DIR;
use nuthatch_log::Disk;
use nuthatch_log::env::{OverlayDisk, ReadOnlyDisk};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As many zeros are in no record of these tests.
const JOURNAL_BLOCK: u64 = 1 << 20;

/// Where the copies are, in memory if there is such a place: they are synced like a node's own.
struct Scratch(PathBuf);

impl Scratch {
    fn beside(dir: &Path) -> Self {
        let memory = Path::new("/dev/shm");
        let name = dir.file_name().expect("a name").to_string_lossy();
        let place = if memory.is_dir() { memory } else { dir };
        Self(place.join(format!("{name}-replicas")))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A replica of a log in a copy of its node's directory.
struct Copied {
    node: String,
    dir: PathBuf,
    found: Inspection,
}

impl Nodes {
    /// The replicas of each quorum log at these nodes, which keep all of them and run, are equal. Nothing is published meanwhile.
    pub fn expect_equal_replicas(&self, keepers: &[usize]) {
        if let Some(differs) = self.differing_replicas(keepers, TIMEOUT) {
            panic!("{differs}\n{}", self.said());
        }
    }

    /// How replicas differ, if they do so long: the last entries may be on their way to a node, or to its files.
    pub fn differing_replicas(&self, keepers: &[usize], patience: Duration) -> Option<String> {
        let (began, to) = (Instant::now(), Scratch::beside(self.dir.path()));
        let logs = loop {
            let logs = self.copied(keepers, &to.0);
            match logs.iter().find_map(|(log, all)| on_their_way(*log, all, keepers.len())) {
                None => break logs,
                Some(differs) if began.elapsed() > patience => return Some(differs),
                Some(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        };
        let differs = logs.iter().find_map(|(log, replicas)| differing_entry(*log, replicas));
        let names: Vec<&str> = keepers.iter().map(|at| self.nodes[*at].name.as_str()).collect();
        let differs = differs.or_else(|| differing_file(&names, &to.0));
        let last: Vec<u64> = logs.values().map(|replicas| replicas[0].found.last.0).collect();
        println!("logs to {last:?}, compared on {names:?}: {:?}, {differs:?}", began.elapsed());
        differs
    }

    fn copied(&self, keepers: &[usize], to: &Path) -> BTreeMap<u8, Vec<Copied>> {
        let _ = std::fs::remove_dir_all(to);
        std::fs::create_dir_all(to).expect("a directory");
        let nodes: Vec<&Node> = keepers.iter().map(|at| &self.nodes[*at]).collect();
        nodes.iter().for_each(|node| node.signal("-STOP"));
        let copies: Vec<_> = nodes.iter().map(|node| copy_of(self.dir.path(), node, to)).collect();
        nodes.iter().for_each(|node| node.signal("-CONT"));
        let mut logs: BTreeMap<u8, Vec<Copied>> = BTreeMap::new();
        for (node, dir) in nodes.iter().zip(copies) {
            let stopped = StoppedNode::take(&dir).expect("read").expect("nobody has a copy");
            for (log, dir, _) in stopped.sources() {
                let found = inspect(read_only(&dir)).expect("a keeper");
                logs.entry(log.0).or_default().push(Copied { node: node.name.clone(), dir, found });
            }
        }
        assert!(!logs.is_empty(), "no quorum log is on a disk");
        logs
    }
}

/// What may be on its way: the last entries, and what they make in files. None: all have the same.
fn on_their_way(log: u8, replicas: &[Copied], keepers: usize) -> Option<String> {
    let ends = |replica: &Copied| (replica.found.last, replica.found.is_healthy());
    let first = &replicas[0];
    if replicas.len() != keepers || replicas.iter().any(|one| ends(one) != (first.found.last, true))
    {
        let found: Vec<_> = replicas.iter().map(|one| (&one.node, &one.found)).collect();
        return Some(format!("log {log} does not end the same on {keepers} nodes: {found:?}"));
    }
    let files: Vec<_> =
        replicas.iter().map(|replica| content(&replica.dir.join(FILES_DIR))).collect();
    // A number that some lack is of a file without a name, which goes with the next mark of each node.
    let differs = |number: &&String| {
        files.iter().filter_map(|files| files.get(*number)).collect::<BTreeSet<_>>().len() > 1
    };
    let in_all = |number: &&String| files.iter().all(|files| files.contains_key(*number));
    let number = files[0].keys().filter(in_all).find(differs)?;
    let nodes: Vec<_> = replicas.iter().map(|replica| &replica.node).collect();
    Some(format!("file {number} of log {log} is not the same on all of {nodes:?}"))
}

/// Copies the directory with the keepers of a node.
fn copy_of(dir: &Path, node: &Node, to: &Path) -> PathBuf {
    let (from, to) = (dir.join(&node.name).join("nuthatch/quorum"), to.join(&node.name));
    copy_dir(&from, &to);
    to
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("read");
        let to = to.join(entry.file_name());
        let is_journal = from.file_name().is_some_and(|name| name == OPS_DIR);
        match entry.file_type().expect("read") {
            kind if kind.is_dir() => copy_dir(&entry.path(), &to),
            _ if is_journal => copy_written(&entry.path(), &to).expect("copied"),
            _ => drop(std::fs::copy(entry.path(), &to).expect("copied")),
        }
    }
}

/// Copies a file of a journal up to where there are only zeros, which is most of it: records follow each other.
fn copy_written(from: &Path, to: &Path) -> std::io::Result<()> {
    let (from, mut to) = (File::open(from)?, File::create(to)?);
    let mut block = vec![];
    loop {
        block.clear();
        (&from).take(JOURNAL_BLOCK).read_to_end(&mut block)?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        to.write_all(&block)?;
    }
}

fn read_only(dir: &Path) -> Arc<dyn Disk> {
    Arc::new(OverlayDisk::new(Arc::new(ReadOnlyDisk::open(dir).expect("opened"))))
}

/// An entry that all replicas have and that is not the same.
fn differing_entry(log: u8, replicas: &[Copied]) -> Option<String> {
    let images: Vec<_> = replicas
        .iter()
        .map(|replica| KeeperDir::open(read_only(&replica.dir)).expect("a keeper").1)
        .collect();
    let bases = replicas.iter().map(|replica| replica.found.base);
    let (mut lsn, last) = (bases.max().expect("some"), replicas[0].found.last);
    while lsn < last {
        lsn.0 += 1;
        for (replica, image) in replicas.iter().zip(&images) {
            let (here, there) = (image.slot(lsn), images[0].slot(lsn));
            if !image.is_good(lsn) || here != there {
                let (node, first) = (&replica.node, &replicas[0].node);
                return Some(format!(
                    "entry {} of log {log} is {here:?} at {node} and {there:?} at {first}",
                    lsn.0
                ));
            }
        }
    }
    None
}

/// A file that the entries make and that is not the same.
fn differing_file(nodes: &[&str], copies: &Path) -> Option<String> {
    let all: Vec<_> = nodes.iter().map(|node| made_of(&copies.join(node))).collect();
    let (first, expected) = (nodes[0], &all[0]);
    assert!(!expected.is_empty(), "the logs have no files");
    for (node, made) in nodes.iter().zip(&all) {
        let names = expected.keys().chain(made.keys());
        if let Some(name) = names.into_iter().find(|name| made.get(*name) != expected.get(*name)) {
            let len = |made: &BTreeMap<String, Vec<u8>>| made.get(name).map(Vec::len);
            let (here, there) = (len(made), len(expected));
            return Some(format!(
                "{name} has {here:?} bytes at {node}, and others ({there:?} bytes) at {first}"
            ));
        }
    }
    None
}

/// The files of all logs in a copy that their entries make, by log and name.
fn made_of(copy: &Path) -> BTreeMap<String, Vec<u8>> {
    let stopped = StoppedNode::take(copy).expect("read").expect("nobody has a copy");
    let mut all = BTreeMap::new();
    for (log, _, source) in stopped.sources() {
        let source = source.expect("a keeper");
        let made = copy.with_extension(format!("made-{log}"));
        extract(&source, std::slice::from_ref(&source), &made).expect("brought forward");
        all.extend(
            content(&made).into_iter().map(|(name, bytes)| (format!("{log}/{name}"), bytes)),
        );
        std::fs::remove_dir_all(made).expect("removed");
    }
    all
}

/// All files below a directory, by their paths in it.
fn content(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("read").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        match path.is_dir() {
            true => all.extend(
                content(&path).into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes)),
            ),
            false => drop(all.insert(name, std::fs::read(&path).expect("read"))),
        }
    }
    all
}
