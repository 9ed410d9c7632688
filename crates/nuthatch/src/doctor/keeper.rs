//! A keeper of a quorum log: looked at, never mended here. What is damaged in it is brought anew by the other
//! nodes, who alone know what was acknowledged.

use nuthatch_cluster::inspect::{Inspection, inspect, is_keeper};
use nuthatch_log::Disk;
use nuthatch_log::env::ReadOnlyDisk;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The keeper's directory in a store directory, and in ours of it.
const KEEPER: [&str; 3] = [".", "quorum", "nuthatch/quorum"];

/// What a look at a keeper has given.
pub struct KeeperVisit {
    dir: PathBuf,
    found: io::Result<Inspection>,
}

/// The keeper in a directory, if there is one.
#[must_use]
pub fn visit(dir: &Path) -> Option<KeeperVisit> {
    let dir = KEEPER.iter().map(|name| dir.join(name)).find(|dir| is_keeper(dir))?;
    let found = look(&dir);
    Some(KeeperVisit { dir, found })
}

fn look(dir: &Path) -> io::Result<Inspection> {
    let disk = ReadOnlyDisk::open(dir)?;
    if disk.is_in_use()? {
        return Err(io::Error::other("a server uses it: stop that node first, the others go on"));
    }
    inspect(Arc::new(disk) as Arc<dyn Disk>)
}

impl KeeperVisit {
    /// The exit code of the command for it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match &self.found {
            Err(_) => super::EXIT_CANNOT_LOOK,
            Ok(found) if found.is_healthy() => 0,
            Ok(_) => super::EXIT_DAMAGE,
        }
    }

    /// For people.
    ///
    /// # Errors
    /// Standard output is gone.
    pub fn text(&self, out: &mut impl Write, apply: bool) -> io::Result<()> {
        let at = self.dir.display();
        let found = match &self.found {
            Ok(found) => found,
            Err(error) => return writeln!(out, "{at}: {error}"),
        };
        writeln!(out, "{at}: a keeper of a quorum log")?;
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

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
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
