//! Several directories of one cluster's nodes, looked at together: what none of its copies can read is lost, and what one of them
//! lacks the others bring. Nothing is changed.

use crate::cluster::copies::{Found, find, log_name, take_nodes};
use crate::error::CliError;
use nuthatch_cluster::recover::{Reach, Source, best, reach};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;

/// What the copies of a log have together.
struct Together {
    name: String,
    copies: Vec<Copy>,
    unreadable: Vec<String>,
    /// None: no copy can be read.
    reach: Option<Reach>,
}

/// A copy beside the one that goes furthest.
struct Copy {
    dir: String,
    node: u8,
    last: u64,
    is_furthest: bool,
    /// The last entry that is the same as in that one, with all before it.
    alike_to: Option<u64>,
}

/// What a look at all of them has given.
pub struct Copies {
    directories: usize,
    logs: Vec<Together>,
}

/// Looks at the quorum logs in directories of stopped nodes.
///
/// # Errors
/// One of them is no node's, a server uses it, or they are of two clusters.
pub fn look(dirs: &[PathBuf]) -> Result<Copies, CliError> {
    let nodes = take_nodes(dirs)?;
    let found = find(&nodes)?;
    let logs = found.iter().map(|(log, found)| Together::of(log_name(*log), found)).collect();
    Ok(Copies { directories: nodes.len(), logs })
}

impl Together {
    fn of(name: String, found: &Found) -> Self {
        let best = best(&found.usable);
        let copy = |source: &Source| Copy {
            dir: source.dir.display().to_string(),
            node: source.identity.0.0,
            last: source.end.lsn.0,
            is_furthest: best.is_some_and(|best| std::ptr::eq(best, source)),
            alike_to: best.and_then(|best| source.alike_to(best)).map(|lsn| lsn.0),
        };
        Self {
            name,
            copies: found.usable.iter().map(copy).collect(),
            unreadable: found.unusable.clone(),
            reach: best.map(|best| reach(best, &found.usable)),
        }
    }

    /// True if something of the log can be read nowhere.
    fn is_short(&self) -> bool {
        self.reach.is_none_or(|reach| reach.is_short())
    }

    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { name, .. } = self;
        let Some(reach) = self.reach else {
            writeln!(out, "log {name}: NO COPY OF IT CAN BE READ")?;
            return self.unreadable.iter().try_for_each(|why| writeln!(out, "  {why}"));
        };
        writeln!(out, "log {name}: entries to {} can be read", reach.last.0)?;
        for copy in &self.copies {
            let (dir, node, last) = (&copy.dir, copy.node, copy.last);
            writeln!(out, "  {dir}: node {node}, entries to {last}: {}", copy.told(reach))?;
        }
        for why in &self.unreadable {
            writeln!(out, "  {why}: what it lacks is brought by the others")?;
        }
        if reach.is_short() {
            let (from, to) = (reach.last.next().0, reach.end.lsn.0);
            writeln!(
                out,
                "  ENTRIES {from} TO {to} CANNOT BE READ IN ANY OF THEM. If other nodes have copies, start those. Otherwise \
                 nuthatch cluster force-recover makes a store for one server without them"
            )?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let copy = |copy: &Copy| {
            json!({ "dir": copy.dir, "node": copy.node, "last": copy.last, "furthest": copy.is_furthest,
                    "alike_to": copy.alike_to })
        };
        json!({
            "log": self.name,
            "last": self.reach.map(|reach| reach.last.0),
            "end": self.reach.map(|reach| reach.end.lsn.0),
            "short": self.is_short(),
            "copies": self.copies.iter().map(copy).collect::<Vec<_>>(),
            "unreadable": self.unreadable,
        })
    }
}

impl Copy {
    /// What it is, beside the one that goes furthest.
    fn told(&self, reach: Reach) -> String {
        let end = reach.end.lsn.0;
        match self.alike_to {
            _ if self.is_furthest => "this copy goes furthest".to_owned(),
            Some(upto) if upto == self.last && upto == end => "the same".to_owned(),
            Some(upto) if upto == self.last => {
                format!("the same so far; the other nodes bring the other {}", end - upto)
            }
            Some(upto) => format!(
                "the same up to {upto}; what is behind it was never acknowledged, or cannot be read in one of the two"
            ),
            None => "no entry in common: it is brought all of it".to_owned(),
        }
    }
}

impl Copies {
    /// The exit code of the command for it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.logs.iter().any(Together::is_short) { super::EXIT_DAMAGE } else { 0 }
    }

    /// For people.
    ///
    /// # Errors
    /// Standard output is gone.
    pub fn text(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "together, as {} nodes of one cluster:", self.directories)?;
        self.logs.iter().try_for_each(|log| log.text(out))?;
        writeln!(
            out,
            "A log goes on when a majority of the nodes that keep it run. Each is brought what it lacks then; the doctor mends no \
             copy."
        )
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        self.logs.iter().map(Together::json).collect()
    }
}
