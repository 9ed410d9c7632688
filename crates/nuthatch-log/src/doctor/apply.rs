//! Writing the changes of a diagnosis down, and keeping every file that they replace.
//!
//! The old files go to `doctor/{when}/`, copied and synced before anything is replaced, with a
//! `manifest` that says what became of each. Every new file is written under a temporary name,
//! synced and renamed, the catalog last: a crash between any two steps leaves a log that another
//! examination understands.

use super::examine::Diagnosis;
use crate::catalog::CATALOG_FILE;
use crate::env::{Change, Disk};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

/// Directory for replaced files, below the log's directory.
pub const KEPT_DIR: &str = "doctor";

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Result of applying a diagnosis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// Directory of the old files, relative to the log's directory.
    pub kept_in: String,
    /// Files that were replaced or removed, each kept there under its own name.
    pub kept: Vec<String>,
    /// Files that were not there before.
    pub created: Vec<String>,
}

impl Diagnosis {
    /// Writes the changes to `disk`. `when` names the directory for what they replace; it must not
    /// exist. The caller holds the lock.
    ///
    /// # Errors
    /// The disk's. What was replaced until then is kept.
    pub fn apply(&self, disk: &dyn Disk, when: &str) -> io::Result<Applied> {
        let kept_in = format!("{KEPT_DIR}/{when}");
        disk.create_dir(KEPT_DIR)?;
        disk.create_dir(&kept_in)?;
        disk.sync_dir("")?;
        disk.sync_dir(KEPT_DIR)?;
        let mut applied = Applied { kept_in, kept: Vec::new(), created: Vec::new() };
        for path in self.changes.keys() {
            if applied.keep(disk, path)? {
                applied.kept.push(path.clone());
            } else {
                applied.created.push(path.clone());
            }
        }
        applied.write_manifest(disk, &self.changes)?;
        let (catalog, others): (Vec<_>, Vec<_>) =
            self.changes.iter().partition(|(path, _)| *path == CATALOG_FILE);
        for (path, change) in others.into_iter().chain(catalog) {
            applied.write(disk, path, change)?;
        }
        Ok(applied)
    }
}

impl Applied {
    /// Copies a file to where it is kept; false if there is none.
    fn keep(&self, disk: &dyn Disk, path: &str) -> io::Result<bool> {
        let from = match disk.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let to = disk.create(&format!("{}/{}", self.kept_in, kept_name(path)))?;
        let len = from.len()?;
        let mut buf = vec![0; COPY_BYTES];
        let mut at = 0;
        while at < len {
            match from.read_at(&mut buf, at) {
                Ok(0) => break,
                Ok(n) => {
                    to.write_at(&buf[..n], at)?;
                    at += n as u64;
                }
                // What the medium does not give back cannot be kept.
                Err(_) => at += COPY_BYTES as u64,
            }
        }
        to.set_len(len)?;
        to.sync()?;
        Ok(true)
    }

    fn write_manifest(
        &self,
        disk: &dyn Disk,
        changes: &BTreeMap<String, Change>,
    ) -> io::Result<()> {
        let mut text = String::from(
            "# What `nuthatch doctor --apply` changed. To undo it, with the server stopped and before\n\
             # it has been started again: remove the files marked `created`, then copy the kept files\n\
             # back to their names.\n",
        );
        for (path, change) in changes {
            let what = match change {
                _ if self.created.contains(path) => "created",
                Change::Written(_) => "replaced",
                Change::Removed => "removed",
            };
            let kept = if what == "created" { "-".to_owned() } else { kept_name(path) };
            let _ = writeln!(text, "{what}\t{path}\t{kept}");
        }
        let file = disk.create(&format!("{}/manifest", self.kept_in))?;
        file.write_at(text.as_bytes(), 0)?;
        file.sync()?;
        disk.sync_dir(&self.kept_in)
    }

    fn write(&self, disk: &dyn Disk, path: &str, change: &Change) -> io::Result<()> {
        match change {
            Change::Removed => disk.remove(path)?,
            Change::Written(bytes) => {
                let temporary = format!("{}/new", self.kept_in);
                let file = disk.create(&temporary)?;
                file.write_at(bytes, 0)?;
                file.sync()?;
                disk.rename(&temporary, path)?;
            }
        }
        disk.sync_dir(path.rsplit_once('/').map_or("", |(dir, _)| dir))
    }
}

fn kept_name(path: &str) -> String {
    path.replace('/', "-")
}
