//! A directory in another one, as a disk: where the keepers of further logs lie.

use crate::rules::{LOG_DIR_OWN, LOG_DIR_SYNCED};
use nuthatch_catalog_group::LogNumber;
use nuthatch_log::env::{Disk, DiskFile, Medium};
use std::io;
use std::sync::Arc;

/// The directory of the directories of further logs, in that of the first one.
pub const LOGS_DIR: &str = "logs";

/// Where a log's keeper lies in a node's directory; that of the first log is the directory itself.
#[must_use]
pub fn log_dir(log: LogNumber) -> String {
    match log {
        LogNumber::FIRST => String::new(),
        LogNumber(_) if !LOG_DIR_OWN.holds() => format!("{LOGS_DIR}/1"),
        LogNumber(number) => format!("{LOGS_DIR}/{number}"),
    }
}

/// The disk of a log's keeper in that of its node. The directory is there afterwards, durably.
///
/// # Errors
/// The disk's.
pub fn log_disk(disk: &Arc<dyn Disk>, log: LogNumber) -> io::Result<Arc<dyn Disk>> {
    if log == LogNumber::FIRST {
        return Ok(Arc::clone(disk));
    }
    let dir = log_dir(log);
    disk.create_dir(LOGS_DIR)?;
    if LOG_DIR_SYNCED.holds() {
        disk.sync_dir("")?;
    }
    disk.create_dir(&dir)?;
    if LOG_DIR_SYNCED.holds() {
        disk.sync_dir(LOGS_DIR)?;
    }
    Ok(Arc::new(SubDisk { disk: Arc::clone(disk), dir }))
}

/// A directory in a disk.
struct SubDisk {
    disk: Arc<dyn Disk>,
    dir: String,
}

impl SubDisk {
    fn path(&self, path: &str) -> String {
        match path {
            "" => self.dir.clone(),
            path => format!("{}/{path}", self.dir),
        }
    }
}

impl Disk for SubDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(&self.path(path))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(&self.path(path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(&self.path(from), &self.path(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(&self.path(path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(&self.path(dir))
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.create_dir(&self.path(dir))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.sync_dir(&self.path(dir))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn medium(&self) -> Medium {
        self.disk.medium()
    }

    fn label(&self) -> String {
        format!("{}/{}", self.disk.label(), self.dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_log::env::{MemDisk, replace_file};

    #[test]
    fn what_lies_in_a_directory_of_a_log_is_there_after_a_power_cut_and_nowhere_else() {
        let all = MemDisk::default();
        let node: Arc<dyn Disk> = Arc::new(all.clone());
        let third = log_disk(&node, LogNumber(2)).expect("made");
        third.create_dir("tmp").expect("made");
        third.sync_dir("").expect("synced");
        replace_file(&*third, "format", b"x").expect("written");
        assert_eq!(all.list("logs/2").expect("listed"), ["format"]);
        assert_eq!(node.list("").expect("listed"), Vec::<String>::new());
        for seed in 0..20 {
            let node: Arc<dyn Disk> = Arc::new(all.crash(seed));
            let third = log_disk(&node, LogNumber(2)).expect("there");
            assert_eq!(third.list("").expect("listed"), ["format"]);
        }
        assert!(log_disk(&node, LogNumber::FIRST).expect("itself").open("format").is_err());
    }
}
