//! Files of another node, on their way into a keeper's directory.
//!
//! They come into `incoming/` under their numbers, with a `state` that names them. When all of them are durable the
//! keeper notes in `installing` that they are to be put in place; from then on they are, at the latest by the next
//! start. A file that both have is replaced by name, one that the new state does not name is removed.

use crate::journal::OPS_DIR;
use crate::replica::{self, FILES_DIR, STATE};
use crate::rules::INSTALL_NOTED_TO_END;
use crate::small_files::{self, INSTALLING};
use nuthatch_log::env::Disk;
use nuthatch_quorum::store::Record;
use std::io;

/// Where files of another node come.
pub const INCOMING_DIR: &str = "incoming";

/// Removes what an earlier attempt has left.
///
/// # Errors
/// The disk's.
pub fn clear(disk: &dyn Disk) -> io::Result<()> {
    for name in disk.list(INCOMING_DIR)? {
        disk.remove(&format!("{INCOMING_DIR}/{name}"))?;
    }
    disk.sync_dir(INCOMING_DIR)
}

/// Puts files in place, if it is noted that they are to be; otherwise removes what has come of them. Done twice
/// it ends in the same.
///
/// # Errors
/// The disk's.
pub fn finish(disk: &dyn Disk) -> io::Result<()> {
    let installing = match small_files::load_installing(disk)? {
        Record::Good(installing) => installing,
        Record::Absent => return clear(disk),
        // Without it nobody knows what the files are: the base below does not fit them, and all begins anew.
        Record::Damaged => return Ok(()),
    };
    for name in disk.list(INCOMING_DIR)?.iter().filter(|name| *name != STATE) {
        disk.rename(&format!("{INCOMING_DIR}/{name}"), &format!("{FILES_DIR}/{name}"))?;
    }
    disk.sync_dir(FILES_DIR)?;
    if disk.list(INCOMING_DIR)?.iter().any(|name| name == STATE) {
        disk.rename(&format!("{INCOMING_DIR}/{STATE}"), STATE)?;
        disk.sync_dir("")?;
    }
    disk.sync_dir(INCOMING_DIR)?;
    if !INSTALL_NOTED_TO_END.holds() {
        disk.remove(INSTALLING)?;
        disk.sync_dir("")?;
    }
    replica::remove_unnamed(disk)?;
    small_files::store_base(disk, installing.note)?;
    if !installing.keep {
        for name in disk.list(OPS_DIR)? {
            disk.remove(&format!("{OPS_DIR}/{name}"))?;
        }
        disk.sync_dir(OPS_DIR)?;
    }
    if !INSTALL_NOTED_TO_END.holds() {
        return Ok(());
    }
    disk.remove(INSTALLING)?;
    disk.sync_dir("")
}
