//! The list of logs that a store has had: a directory that has gone must not begin as an empty log.
//!
//! A disk that is not mounted looks like a new directory. So the store keeps a list of its logs in
//! directories, durable before any of them takes its first message, and a start refuses where a
//! listed one is not there, or where the store itself is new and one of its logs is not. What cannot
//! be known: whether the whole of a store whose logs are all in it has gone.

use nuthatch_log::env::create_dirs;
use nuthatch_log::{Chain, Disk};
use nuthatch_server::private_files::OUR_DIRECTORY;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The list, in our directory of the store: for each log a line `NAME DIRECTORY` and a line
/// `NAME/identity HEX`, which lists of 0.1.0 lack. That version takes it for a log of such a name, in
/// which no other one can be. A directory inside of ours is written as it lies there, so that a store
/// that was moved as a whole still knows its logs; one that does not fit a line stands in quotation
/// marks, escaped byte by byte.
const LIST_FILE: &str = "logs.list";
/// What follows the name in the line of a log's identity.
const IDENTITY: &str = "/identity";

/// What is listed: the directories of logs and their identities, by name.
#[derive(Clone, Default, PartialEq, Eq)]
struct List {
    dirs: BTreeMap<String, PathBuf>,
    identities: BTreeMap<String, u64>,
}

/// The logs that the store has had, and those that the configuration names.
pub(super) struct KnownLogs {
    dir: PathBuf,
    listed: List,
    named: BTreeMap<String, PathBuf>,
}

impl KnownLogs {
    /// Reads the list, and sees whether the store is new although its logs are not: those in
    /// directories, by name.
    ///
    /// # Errors
    /// A sentence: the list cannot be read, or which log is there without its store.
    pub(super) fn of(
        store_dir: &Path,
        logs: impl Iterator<Item = (String, PathBuf)>,
    ) -> Result<Self, String> {
        let dir = absolute(&store_dir.join(OUR_DIRECTORY));
        let listed = read(&dir)?;
        let named: BTreeMap<String, PathBuf> =
            logs.map(|(name, own)| (name, absolute(&own))).collect();
        if listed.is_none() && !dir.exists() {
            let outside = named.values().find(|own| !own.starts_with(&dir) && has_log(own));
            if let Some(own) = outside {
                return Err(format!(
                    "the store {} is not there, but the log in {} is: is the store's disk mounted? \
                     To begin a new store beside that log, create the directory {}",
                    store_dir.display(),
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
        if !self.is_listed(name, dir) || has_log(dir) {
            return Ok(());
        }
        Err(format!(
            "{} holds no log, although this store has one there: is its disk mounted? Nothing was \
             changed. If the log is gone for good, take its line out of {}",
            dir.display(),
            self.dir.join(LIST_FILE).display()
        ))
    }

    fn is_listed(&self, name: &str, dir: &Path) -> bool {
        self.listed.dirs.get(name).is_some_and(|listed| *listed == absolute(dir))
    }

    /// Whether the log in a directory is the one that the store has had there: another disk may be
    /// mounted in the place of the right one.
    ///
    /// # Errors
    /// A sentence: it is another one.
    pub(super) fn check_identity(
        &self,
        name: &str,
        dir: &Path,
        disk: &dyn Disk,
    ) -> Result<(), String> {
        let Some(&known) = self.listed.identities.get(name).filter(|_| self.is_listed(name, dir))
        else {
            return Ok(());
        };
        match Chain::read(disk) {
            Ok(Some(Chain { log_id, .. })) if log_id != known => Err(format!(
                "{} holds another log ({log_id:016x}) than the one that this store has there \
                 ({known:016x}): is the right disk mounted? Nothing was changed. If the log was \
                 replaced on purpose, take the line {name}{IDENTITY} out of {}",
                dir.display(),
                self.dir.join(LIST_FILE).display()
            )),
            // Opening says what else is wrong.
            _ => Ok(()),
        }
    }

    /// Sees whether the list can be written, if it will have to be, by writing it as it is: once buckets
    /// are taken from other servers it would be too late to refuse.
    ///
    /// # Errors
    /// A sentence: the list cannot be written.
    pub(super) fn prepare(&self) -> Result<(), String> {
        let is_known = |(name, dir): (&String, &PathBuf)| {
            self.is_listed(name, dir) && self.listed.identities.contains_key(name)
        };
        if self.named.iter().all(is_known) { Ok(()) } else { self.write(&self.listed) }
    }

    fn write(&self, list: &List) -> Result<(), String> {
        write(&self.dir, &text_of(list, &self.dir)).map_err(|error| {
            format!("cannot write {}: {error}", self.dir.join(LIST_FILE).display())
        })
    }

    /// Lists all logs in directories, durably, with the identities that were found. Those of which
    /// the configuration does not speak any more stay on the list.
    ///
    /// # Errors
    /// A sentence: the list cannot be written.
    pub(super) fn note(&self, found: BTreeMap<String, u64>) -> Result<(), String> {
        let mut all = self.listed.clone();
        all.dirs.extend(self.named.clone());
        all.identities.extend(found);
        all.identities.retain(|name, _| all.dirs.contains_key(name));
        if all == self.listed {
            return Ok(());
        }
        self.write(&all)
    }
}

/// True if a store has had a log of this name in a directory, as far as its list can be read.
pub(super) fn is_known(store_dir: &Path, name: &str) -> bool {
    let listed = read(&absolute(&store_dir.join(OUR_DIRECTORY)));
    listed.ok().flatten().is_some_and(|list| list.dirs.contains_key(name))
}

fn absolute(dir: &Path) -> PathBuf {
    // Without a current directory nothing else can be done with it either.
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned())
}

/// The list as text, which lies in the directory `ours`.
fn text_of(list: &List, ours: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    for (name, dir) in &list.dirs {
        let inside = dir.strip_prefix(ours).ok().filter(|rest| !rest.as_os_str().is_empty());
        let shown = shown(inside.unwrap_or(dir));
        text.extend_from_slice(format!("{name} {shown}\n").as_bytes());
        if let Some(identity) = list.identities.get(name) {
            text.extend_from_slice(format!("{name}{IDENTITY} {identity:016x}\n").as_bytes());
        }
    }
    text
}

/// A path in a line of the list.
fn shown(path: &Path) -> String {
    match path.to_str() {
        Some(text) if !text.contains(char::is_control) && !text.starts_with('"') => text.to_owned(),
        _ => format!("\"{}\"", path.as_os_str().as_bytes().escape_ascii()),
    }
}

/// The path that is [`shown`] so.
fn path_of(shown: &str) -> Option<PathBuf> {
    let Some(escaped) = shown.strip_prefix('"') else { return Some(PathBuf::from(shown)) };
    let escaped = escaped.strip_suffix('"')?.as_bytes();
    let (mut bytes, mut at) = (Vec::new(), 0);
    while let Some(&byte) = escaped.get(at) {
        at += 1;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let kind = *escaped.get(at)?;
        at += 1;
        bytes.push(match kind {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let hex = std::str::from_utf8(escaped.get(at..at + 2)?).ok()?;
                at += 2;
                u8::from_str_radix(hex, 16).ok()?
            }
            itself => itself,
        });
    }
    Some(PathBuf::from(OsStr::from_bytes(&bytes)))
}

/// The file that every log in a directory has from its first moment on.
const CATALOG_FILE: &str = "catalog";

/// True if a directory holds a log. One that cannot be looked into is not missing: opening it says
/// what is wrong.
pub(super) fn has_log(dir: &Path) -> bool {
    dir.join(CATALOG_FILE).try_exists().unwrap_or(true)
}

/// `None`: there is no list.
fn read(dir: &Path) -> Result<Option<List>, String> {
    let path = dir.join(LIST_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let unreadable =
        || format!("{} is no list of logs: NAME DIRECTORY in each line", path.display());
    parse(&text, dir).map(Some).ok_or_else(unreadable)
}

/// The list that lies in the directory `ours`.
fn parse(text: &str, ours: &Path) -> Option<List> {
    let mut list = List::default();
    for line in text.lines() {
        let (name, value) = line.split_once(' ')?;
        match name.strip_suffix(IDENTITY) {
            Some(name) => {
                list.identities.insert(name.to_owned(), u64::from_str_radix(value, 16).ok()?);
            }
            None => {
                list.dirs.insert(name.to_owned(), ours.join(path_of(value)?));
            }
        }
    }
    Some(list)
}

/// Replaces the list: after a crash there is the old one or the new one.
fn write(dir: &Path, text: &[u8]) -> io::Result<()> {
    create_dirs(dir)?;
    let beside = dir.join(format!("{LIST_FILE}.tmp"));
    let mut file = File::create(&beside)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&beside, dir.join(LIST_FILE))?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_comes_back_and_a_moved_store_knows_its_logs() {
        let ours = Path::new("/data/nuthatch");
        let odd = OsStr::from_bytes(b"/mnt/a \"b\"\\c\n\xffd\te");
        let dirs = [
            ("default", ours.join("default")),
            ("named", PathBuf::from("/mnt/log of mine")),
            ("odd", PathBuf::from(odd)),
        ];
        let dirs = dirs.map(|(name, dir)| (name.to_owned(), dir));
        let identities = BTreeMap::from([("odd".to_owned(), 7)]);
        let list = List { dirs: BTreeMap::from(dirs), identities };
        let text = String::from_utf8(text_of(&list, ours)).unwrap();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(parse(&text, ours) == Some(list), "{text}");
        let moved = parse(&text, Path::new("/new/nuthatch")).unwrap();
        assert_eq!(moved.dirs["default"], Path::new("/new/nuthatch/default"));
        // As 0.1.0 has written it.
        let old = parse("default /data/nuthatch/default\n", Path::new("/new/nuthatch")).unwrap();
        assert_eq!(old.dirs["default"], Path::new("/data/nuthatch/default"));
        assert!(parse("odd \"/mnt\\x4\"\n", ours).is_none());
    }
}
