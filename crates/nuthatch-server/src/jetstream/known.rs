//! Which logs a store has had: a directory that has gone must not begin as an empty log.
//!
//! A disk that is not mounted looks like a new directory. So the store keeps a list of its logs in
//! directories, durable before any of them takes its first message, and a start refuses where a
//! listed one is not there, or where the store itself is new and one of its logs is not. What cannot
//! be known: whether the whole of a store whose logs are all in it has gone.

use super::homes::Home;
use crate::options::Options;
use crate::process::OUR_DIRECTORY;
use nuthatch_log::env::create_dirs;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The list, in our directory of the store: a line `NAME DIRECTORY` for each log.
const LIST_FILE: &str = "logs.list";

/// The logs that the store has had, and those that the configuration names.
pub(super) struct Known {
    dir: PathBuf,
    listed: BTreeMap<String, PathBuf>,
    named: BTreeMap<String, PathBuf>,
}

impl Known {
    /// Reads the list, and sees whether the store is new although its logs are not.
    ///
    /// # Errors
    /// A sentence: the list cannot be read, or which log is there without its store.
    pub(super) fn of(options: &Options, homes: &[Home]) -> Result<Self, String> {
        let dir = options.jetstream.store_dir.join(OUR_DIRECTORY);
        let listed = read(&dir)?;
        let dirs = homes.iter().filter_map(|home| Some((home.name.clone(), home.dir(options)?)));
        let named: BTreeMap<String, PathBuf> = dirs.collect();
        if listed.is_none() && !dir.exists() {
            let outside = named.values().find(|own| !own.starts_with(&dir) && has_log(own));
            if let Some(own) = outside {
                return Err(format!(
                    "the store {} is not there, but the log in {} is: is the store's disk mounted? \
                     To begin a new store beside that log, create the directory {}",
                    options.jetstream.store_dir.display(),
                    own.display(),
                    dir.display()
                ));
            }
        }
        Ok(Self { dir, listed: listed.unwrap_or_default(), named })
    }

    /// Whether a log that the store has had is there.
    ///
    /// # Errors
    /// A sentence: it is not.
    pub(super) fn check(&self, name: &str, dir: &Path) -> Result<(), String> {
        let is_listed = self.listed.get(name).is_some_and(|listed| listed == dir);
        if !is_listed || has_log(dir) {
            return Ok(());
        }
        Err(format!(
            "{} holds no log, although this store has one there: is its disk mounted? Nothing was \
             changed. If the log is gone for good, take its line out of {}",
            dir.display(),
            self.dir.join(LIST_FILE).display()
        ))
    }

    /// Lists all logs in directories, durably. Those of which the configuration does not speak any
    /// more stay on the list.
    ///
    /// # Errors
    /// A sentence: the list cannot be written.
    pub(super) fn note(&self) -> Result<(), String> {
        let mut all = self.listed.clone();
        all.extend(self.named.clone());
        if all == self.listed {
            return Ok(());
        }
        let text: String =
            all.iter().map(|(name, dir)| format!("{name} {}\n", dir.display())).collect();
        write(&self.dir, &text).map_err(|error| {
            format!("cannot write {}: {error}", self.dir.join(LIST_FILE).display())
        })
    }
}

/// The file that every log in a directory has from its first moment on.
const CATALOG_FILE: &str = "catalog";

/// Whether a directory holds a log. One that cannot be looked into is not missing: opening it says
/// what is wrong.
fn has_log(dir: &Path) -> bool {
    dir.join(CATALOG_FILE).try_exists().unwrap_or(true)
}

/// `None`: there is no list.
fn read(dir: &Path) -> Result<Option<BTreeMap<String, PathBuf>>, String> {
    let path = dir.join(LIST_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let line = |line: &str| {
        let (name, dir) = line.split_once(' ')?;
        Some((name.to_owned(), PathBuf::from(dir)))
    };
    let lines: Option<BTreeMap<_, _>> = text.lines().map(line).collect();
    let unreadable =
        || format!("{} is no list of logs: NAME DIRECTORY in each line", path.display());
    lines.map(Some).ok_or_else(unreadable)
}

/// Replaces the list: after a crash there is the old one or the new one.
fn write(dir: &Path, text: &str) -> io::Result<()> {
    create_dirs(dir)?;
    let beside = dir.join(format!("{LIST_FILE}.tmp"));
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, dir.join(LIST_FILE))?;
    File::open(dir)?.sync_all()
}
