//! Makes plain directories of what keepers have, where so many of them are lost that no majority comes together again.
//!
//! Keepers are only read. As at a takeover the log counts whose last entry is of the newest epoch, and of several the longest:
//! among a majority that one has everything that was acknowledged. What its keeper cannot read is taken from others that have
//! the same entry. The keeper is copied, its entries are applied there to its files as a node does that takes the log over,
//! and what that makes belongs to no cluster any more.

use crate::inspect::{further_keepers, is_keeper};
use crate::keeper_dir::{KeeperDir, TORN_DIR};
use crate::replica::{self, FILES_DIR, Replica, file_name};
use crate::small_files::{self, INSTALLING};
use crate::sub_disk::LOGS_DIR;
use bytes::Bytes;
use nuthatch_catalog_group::{LogNumber, identity};
use nuthatch_log::env::{
    Disk, OverlayDisk, Ownership as _, ReadOnlyDisk, RealDisk, Tenure, create_dirs,
};
use nuthatch_quorum::entry::{Body, Entry};
use nuthatch_quorum::store::{Image, Record, Slot};
use nuthatch_quorum::types::{Incarnation, Lsn, NodeId, Position, Sum, WallTime};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a keeper is copied to, beside what is made of it.
const COPY_DIR: &str = "recovering";

/// The directories of a node that is stopped, and stays so while this is there.
pub struct StoppedNode {
    /// Where the keeper of its first log is.
    pub dir: PathBuf,
    /// The cluster that it was founded in, where its nodes keep the catalog themselves and that can be read.
    cluster: Option<u128>,
    _lock: Box<dyn Tenure>,
}

/// A keeper of a log, as it can be read.
pub struct Source {
    /// Its directory.
    pub dir: PathBuf,
    /// The log.
    pub log: LogNumber,
    /// The node and its disk.
    pub identity: (NodeId, Incarnation),
    /// The cluster; none: that cannot be read.
    pub cluster: Option<u128>,
    /// How far the log went, whatever of it can be read.
    pub end: Position,
    /// Something was cut off its end, or is no entry any more: it may have been acknowledged.
    pub was_cut: bool,
    /// The files have what entries up to here made.
    applied: Lsn,
    image: Image,
    keeper: KeeperDir,
}

impl Source {
    /// The last entry that this keeper and another one of the log have alike, with all before it, since each names the sum of the
    /// one before; none: both can read no entry of one number.
    #[must_use]
    pub fn alike_to(&self, other: &Self) -> Option<Lsn> {
        if self.end == other.end {
            // An epoch has one entry of a number.
            return Some(self.end.lsn);
        }
        let (own, others) = (self.image.begins(), other.image.begins());
        let last = self.end.lsn.min(other.end.lsn);
        let sum = |of: &Self, lsn: Lsn| match of.image.begins() {
            base if base.lsn == lsn => Some(base.sum),
            _ => entry_at(&of.image, lsn).map(|entry| entry.sum),
        };
        let is_alike = |lsn: &Lsn| sum(self, *lsn).is_some_and(|own| sum(other, *lsn) == Some(own));
        (own.lsn.max(others.lsn).0..=last.0).rev().map(Lsn).find(is_alike)
    }
}

/// Why a keeper is of no use.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The disk's, or the directory is of a later version.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Nobody knows what it is of.
    #[error("its identity cannot be read")]
    Nobodys,
    /// It is not known where its entries begin.
    #[error("it cannot be read where its log begins, or its files lack what comes before that")]
    NoBase,
    /// The node's directory has one, and no keeper is in it.
    #[error("there is a directory for this log, and no keeper in it")]
    NoKeeper,
}

/// How far the log of some keepers can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reach {
    /// The last entry that can be read, with all before it.
    pub last: Lsn,
    /// When it was written, by its owner's clock; 0: that cannot be told.
    pub written: WallTime,
    /// How far the log went.
    pub end: Position,
}

impl Reach {
    /// True if entries of the log cannot be read anywhere.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.last < self.end.lsn
    }
}

impl StoppedNode {
    /// Takes the lock of a node's directory. None: a server has it.
    ///
    /// # Errors
    /// The operating system's.
    pub fn take(dir: &Path) -> io::Result<Option<Self>> {
        let disk = ReadOnlyDisk::open(dir)?;
        let cluster =
            identity::load_founding(&disk).ok().flatten().map(|founding| founding.cluster);
        Ok(disk.take()?.map(|lock| Self { dir: dir.to_owned(), cluster, _lock: lock }))
    }

    /// The keepers of all logs, in the order of the logs, or why one is of no use.
    #[must_use]
    pub fn sources(&self) -> Vec<(LogNumber, PathBuf, Result<Source, SourceError>)> {
        let first = (LogNumber::FIRST, self.dir.clone());
        let mut all: Vec<_> = std::iter::once(first).chain(further_keepers(&self.dir)).collect();
        for number in 1..=u8::MAX {
            let (log, dir) = (LogNumber(number), self.dir.join(LOGS_DIR).join(number.to_string()));
            if dir.is_dir() && !all.iter().any(|(known, _)| *known == log) {
                all.push((log, dir));
            }
        }
        let look = |(log, dir): (LogNumber, PathBuf)| {
            let found = if is_keeper(&dir) { look(log, &dir) } else { Err(SourceError::NoKeeper) };
            let of_node =
                |source: Source| Source { cluster: source.cluster.or(self.cluster), ..source };
            (log, dir, found.map(of_node))
        };
        all.into_iter().map(look).collect()
    }
}

fn look(log: LogNumber, dir: &Path) -> Result<Source, SourceError> {
    let disk = OverlayDisk::new(Arc::new(ReadOnlyDisk::open(dir)?));
    of_disk(log, dir, Arc::new(disk))
}

fn of_disk(log: LogNumber, dir: &Path, disk: Arc<dyn Disk>) -> Result<Source, SourceError> {
    let (keeper, image) = KeeperDir::open(Arc::clone(&disk))?;
    // One that is damaged tells nothing, which does not hurt here.
    let cluster = small_files::load_seen(&*disk).ok().flatten().map(|(cluster, _)| cluster);
    let keeper_of = image.identity.good().ok_or(SourceError::Nobodys)?;
    if image.base == Record::Damaged {
        return Err(SourceError::NoBase);
    }
    let applied = replica::durable_to(&*disk)?.unwrap_or(Lsn(0));
    assert!(applied >= image.begins().lsn, "a base counts only with the files that it needs");
    let (end, was_cut) = end(&image);
    let identity = (keeper_of.node, keeper_of.incarnation);
    let dir = dir.to_owned();
    Ok(Source { dir, log, identity, cluster, end, was_cut, applied, image, keeper })
}

/// How far a log went: to its last entry, and to where it was when it was trimmed. And whether something was cut off it, or is
/// no entry any more.
fn end(image: &Image) -> (Position, bool) {
    let base = image.begins();
    let good = |lsn: &Lsn| image.is_good(*lsn);
    let last = (base.lsn.0 + 1..=image.end().0).rev().map(Lsn).find(good);
    let position = |lsn: Lsn| match image.slot(lsn) {
        Slot::Bytes(entry) => Position { accepted: entry.epoch, lsn },
        _ => Position { accepted: base.epoch, lsn: base.lsn },
    };
    let last = last.map_or(Position { accepted: base.epoch, lsn: base.lsn }, position);
    let noted = image.base.good().map(|note| note.reach).unwrap_or_default();
    let torn = image.behind(last.lsn).iter().any(|slot| !matches!(slot, Slot::Empty));
    (last.max(noted), torn || image.cut != Record::Absent)
}

/// Of keepers of one log the one that is copied: as a takeover does, the one of which the log goes furthest; of several the
/// one whose files do.
#[must_use]
pub fn best(sources: &[Source]) -> Option<&Source> {
    sources.iter().max_by_key(|source| (source.end, source.applied))
}

/// The entries of a log behind what the files of `best` have, each with a keeper that can read it: as far as none is lacking.
/// An entry that `best` cannot read is the one of another keeper whose sum the entry behind it names.
fn chain<'a>(best: &'a Source, all: &'a [Source]) -> Vec<(Entry, &'a KeeperDir)> {
    let mut chain: Vec<(Entry, &KeeperDir)> = vec![];
    let mut named: Option<Sum> = None;
    for lsn in (best.applied.0 + 1..=best.end.lsn.0).rev().map(Lsn) {
        let is_end = lsn == best.end.lsn;
        let fits = |source: &Source, entry: &Entry| match named {
            Some(sum) => entry.sum == sum,
            None => std::ptr::eq(source, best) || (is_end && entry.epoch == best.end.accepted),
        };
        let found = std::iter::once(best).chain(all).find_map(|source| {
            let entry = entry_at(&source.image, lsn).filter(|entry| fits(source, entry))?;
            // A record whose bytes are lost is read elsewhere.
            payload(&source.keeper, &entry).is_ok().then_some((entry, &source.keeper))
        });
        match found {
            Some(found) => {
                named = Some(found.0.prev);
                chain.push(found);
            }
            None => {
                // What is behind it is of no use.
                chain.clear();
                // Who can read the head of the record knows what is before it.
                named = entry_at(&best.image, lsn).map(|entry| entry.prev);
            }
        }
    }
    chain.reverse();
    chain
}

fn entry_at(image: &Image, lsn: Lsn) -> Option<Entry> {
    match image.slot(lsn) {
        Slot::Bytes(entry) if image.is_good(lsn) => Some(entry),
        _ => None,
    }
}

fn payload(keeper: &KeeperDir, entry: &Entry) -> io::Result<Bytes> {
    match entry.body {
        Body::Start { .. } => Ok(Bytes::new()),
        Body::Frame { .. } => keeper.payload(entry),
    }
}

/// How far the log can be read of which `best` is a keeper, as all of them together have it.
#[must_use]
pub fn reach(best: &Source, all: &[Source]) -> Reach {
    let last = chain(best, all).last().map(|(entry, _)| *entry);
    let last = last.or_else(|| entry_at(&best.image, best.applied));
    Reach {
        last: last.map_or(best.applied, |entry| entry.lsn),
        written: last.map_or(WallTime(0), |entry| entry.stamp),
        end: best.end,
    }
}

/// Makes a plain directory of a log, with `best` as the keeper that is copied. Nothing is to be at `target`; that it gets its
/// name is the last thing that is done, so one that is there is whole.
///
/// # Errors
/// The disks'. What was begun is left in a directory beside `target`, and is made anew by the next attempt.
pub fn extract(best: &Source, all: &[Source], target: &Path) -> io::Result<()> {
    let beside = target.with_extension(COPY_DIR);
    if beside.exists() {
        std::fs::remove_dir_all(&beside)?;
    }
    let (copied, made) = (beside.join("keeper"), beside.join("made"));
    create_dirs(&made)?;
    copy_keeper(&best.dir, &copied)?;
    for (name, file) in bring_forward(&copied, best, all)? {
        let to = made.join(&name);
        let dir = to.parent().unwrap_or(&made);
        create_dirs(dir)?;
        std::fs::rename(copied.join(FILES_DIR).join(file), &to)?;
        File::open(&to)?.sync_all()?;
        File::open(dir)?.sync_all()?;
    }
    std::fs::rename(&made, target)?;
    std::fs::remove_dir_all(&beside)?;
    File::open(target.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Copies what belongs to one log of a keeper's directory: neither the keepers of further logs, nor what was taken out of it,
/// nor files on their way to it that are not to be put in place.
fn copy_keeper(from: &Path, to: &Path) -> io::Result<()> {
    let skipped = [LOGS_DIR, TORN_DIR, "tmp", crate::incoming::INCOMING_DIR];
    let skipped = if from.join(INSTALLING).exists() { &skipped[..3] } else { &skipped[..] };
    copy(from, to, skipped)
}

fn copy(from: &Path, to: &Path, skipped: &[&str]) -> io::Result<()> {
    create_dirs(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if skipped.iter().any(|skipped| name == *skipped) {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to.join(&name), &[])?,
            false => std::fs::copy(entry.path(), to.join(&name)).map(drop)?,
        }
    }
    Ok(())
}

/// Applies entries to the files of a copy; gives these by their names.
fn bring_forward(
    copied: &Path,
    best: &Source,
    all: &[Source],
) -> io::Result<Vec<(String, String)>> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(copied)?);
    // What was to be put in place is.
    drop(KeeperDir::open(Arc::clone(&disk))?);
    let mut replica = Replica::open(disk)?;
    assert_eq!(replica.applied(), best.applied, "the copy is what was looked at");
    for (entry, keeper) in chain(best, all) {
        replica.apply(entry.lsn, &payload(keeper, &entry)?)?;
    }
    replica.mark()?;
    let named = |(name, file): (&String, _)| (name.clone(), file_name(file));
    Ok(replica.names().map(named).collect())
}

#[cfg(test)]
mod tests;
