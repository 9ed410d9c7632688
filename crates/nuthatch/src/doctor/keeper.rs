//! The keepers of quorum logs in a node's directory: looked at, never mended here. What is damaged in it is brought anew by the other
//! nodes, who alone know what was acknowledged.

use nuthatch_cluster::LogNumber;
use nuthatch_cluster::inspect::{Inspection, further_keepers, inspect, is_keeper};
use nuthatch_log::Disk;
use nuthatch_log::env::ReadOnlyDisk;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The keeper's directory in a store directory, and in ours of it.
const KEEPER: [&str; 3] = [".", "quorum", "nuthatch/quorum"];

/// What a look at a node's keepers has given.
pub struct KeeperVisit {
    first: Keeper,
    /// Those of further logs, if the node keeps several.
    further: Vec<Keeper>,
}

/// What a look at one keeper has given.
struct Keeper {
    log: LogNumber,
    dir: PathBuf,
    found: io::Result<Inspection>,
}

/// The keepers in a directory, if there is one.
#[must_use]
pub fn visit(dir: &Path) -> Option<KeeperVisit> {
    let node = KEEPER.iter().map(|name| dir.join(name)).find(|dir| is_keeper(dir))?;
    let look = |(log, dir): (LogNumber, PathBuf)| {
        let found = look(&node, &dir);
        Keeper { log, dir, found }
    };
    let further = further_keepers(&node).into_iter().map(look).collect();
    Some(KeeperVisit { first: look((LogNumber::FIRST, node.clone())), further })
}

/// Looks at a keeper. The lock of the node's directory is that of all its keepers.
fn look(node: &Path, dir: &Path) -> io::Result<Inspection> {
    if ReadOnlyDisk::open(node)?.is_in_use()? {
        return Err(io::Error::other("a server uses it: stop that node first, the others go on"));
    }
    inspect(Arc::new(ReadOnlyDisk::open(dir)?) as Arc<dyn Disk>)
}

impl KeeperVisit {
    /// The exit code of the command for it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let codes = self.keepers().map(Keeper::exit_code);
        codes.fold(0, u8::max)
    }

    fn keepers(&self) -> impl Iterator<Item = &Keeper> {
        std::iter::once(&self.first).chain(&self.further)
    }

    /// For people.
    ///
    /// # Errors
    /// Standard output is gone.
    pub fn text(&self, out: &mut impl Write, apply: bool) -> io::Result<()> {
        self.keepers().try_for_each(|keeper| keeper.text(out, apply))
    }

    /// For programs: the keeper of the first log, and in it those of further ones, if there are some.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut json = self.first.json();
        if !self.further.is_empty() {
            let further = self.further.iter().map(|keeper| {
                let mut json = keeper.json();
                json["log"] = json!(keeper.log.0);
                json
            });
            json["further_logs"] = further.collect();
        }
        json
    }
}

impl Keeper {
    fn exit_code(&self) -> u8 {
        match &self.found {
            Err(_) => super::EXIT_CANNOT_LOOK,
            Ok(found) if found.is_healthy() => 0,
            Ok(_) => super::EXIT_DAMAGE,
        }
    }

    fn text(&self, out: &mut impl Write, apply: bool) -> io::Result<()> {
        let at = self.dir.display();
        let found = match &self.found {
            Ok(found) => found,
            Err(error) => return writeln!(out, "{at}: {error}"),
        };
        match self.log {
            LogNumber::FIRST => writeln!(out, "{at}: a keeper of a quorum log")?,
            log => writeln!(out, "{at}: a keeper of quorum log {log}")?,
        }
        match found.identity {
            Some((node, disk)) => writeln!(out, "  node {}, disk {:032x}", node.0, disk.0)?,
            None => writeln!(out, "  its identity cannot be read: it starts as an empty disk")?,
        }
        match found.promised {
            Some(epoch) => writeln!(out, "  has promised epoch {}", epoch.0)?,
            None => writeln!(out, "  its promise cannot be read: it starts as an empty disk")?,
        }
        let (last, damaged) = (found.last.0, found.damaged.len());
        writeln!(
            out,
            "  entries to {last}, {damaged} of them damaged or missing{}",
            firsts(found)
        )?;
        if found.torn {
            let what = "a write at the end was cut short, or the last entry is damaged: the next start \
                        cuts it off, and the others bring what it was";
            writeln!(out, "  {what}")?;
        }
        if found.cut {
            writeln!(out, "  a torn tail was cut off: the others bring what it had")?;
        }
        if found.is_healthy() {
            return writeln!(out, "  healthy");
        }
        let nothing = if apply { "Nothing was changed. " } else { "" };
        writeln!(
            out,
            "  {nothing}Start the node: what it lacks is brought by the other nodes, who know what was \
             acknowledged. The doctor does not mend a keeper."
        )
    }

    fn json(&self) -> Value {
        let dir = self.dir.display().to_string();
        match &self.found {
            Err(error) => json!({ "dir": dir, "error": error.to_string() }),
            Ok(found) => json!({
                "dir": dir,
                "node": found.identity.map(|(node, _)| node.0),
                "disk": found.identity.map(|(_, disk)| format!("{:032x}", disk.0)),
                "cluster": found.cluster.map(|cluster| format!("{cluster:032x}")),
                "promised_epoch": found.promised.map(|epoch| epoch.0),
                "last": found.last.0,
                "damaged": found.damaged.iter().map(|lsn| lsn.0).collect::<Vec<_>>(),
                "torn": found.torn,
                "cut": found.cut,
                "healthy": found.is_healthy(),
            }),
        }
    }
}

/// The first few that are damaged.
fn firsts(found: &Inspection) -> String {
    const SHOWN: usize = 8;
    let shown = found.damaged.iter().take(SHOWN).map(|lsn| lsn.0.to_string());
    let shown: Vec<String> = shown.collect();
    match (shown.is_empty(), found.damaged.len() > SHOWN) {
        (true, _) => String::new(),
        (false, more) => format!(": {}{}", shown.join(", "), if more { ", …" } else { "" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_cluster::keeper_dir::KeeperDir;
    use nuthatch_cluster::sub_disk::log_disk;
    use nuthatch_log::env::RealDisk;

    #[test]
    fn the_keepers_of_all_logs_in_a_nodes_directory_are_looked_at() {
        let dir = std::env::temp_dir().join(format!("nuthatch-keepers-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("quorum")).expect("a directory");
        let node: Arc<dyn Disk> = Arc::new(RealDisk::open(&dir.join("quorum")).expect("opens"));
        for log in 0..3 {
            let disk = log_disk(&node, LogNumber(log)).expect("made");
            drop(KeeperDir::open(disk).expect("opens"));
        }
        let visit = visit(&dir).expect("a keeper");
        let mut text = vec![];
        visit.text(&mut text, false).expect("written");
        let text = String::from_utf8(text).expect("text");
        let heads: Vec<&str> = text.lines().filter(|line| line.contains("a keeper of")).collect();
        assert_eq!(heads.len(), 3, "{text}");
        assert!(heads[0].ends_with("/quorum: a keeper of a quorum log"), "{text}");
        assert!(heads[2].ends_with("/quorum/logs/2: a keeper of quorum log 2"), "{text}");
        // None of them was ever begun with.
        assert_eq!(visit.exit_code(), super::super::EXIT_DAMAGE);
        let json = visit.json();
        let further = json["further_logs"].as_array().expect("an array");
        let numbers: Vec<u64> = further.iter().filter_map(|one| one["log"].as_u64()).collect();
        assert_eq!((json["log"].as_u64(), numbers), (None, vec![1, 2]));
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
