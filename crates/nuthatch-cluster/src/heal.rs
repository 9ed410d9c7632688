//! What rots in the files that committed entries made: brought again from another node.
//!
//! Whoever reads such a file, the log, finds by its own checksums that a range is not what was written, and says so
//! ([`DiskFile::doubt`](nuthatch_log::env::DiskFile::doubt)). Files of all nodes are the same where the same entries
//! were applied, so the range is asked of one node after another until one has it otherwise. What it replaces is kept
//! aside. Whether it is right now, the log sees when it reads the range again; if not, it says so again.

use crate::counts::Noticed;
use crate::files::Files;
use crate::keeper_dir::TORN_DIR;
use crate::links::{Links, Local};
use crate::operation::FileId;
use crate::replica::{FileRange, Replica};
use crate::transfer::{self, PART_BYTES, Part};
use nuthatch_catalog_group::LogNumber;
use nuthatch_log::env::Disk;
use nuthatch_quorum::types::NodeId;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Ranges that wait to be brought again; more are said again by whoever reads them.
pub const DOUBTS_MAX: usize = 16;

/// Most bytes of a range that are compared for one doubt: a frame, which is what the log cannot read.
const RANGE_MAX: u64 = crate::packet::PAYLOAD_MAX as u64;

/// How often a part is asked for whose file is being changed, or which the other node has not got so far.
const TRIES: u32 = 20;

/// Between two of these.
const RETRY: Duration = Duration::from_millis(100);

/// What came of a part that another node has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Put {
    /// It is what is here.
    Same,
    /// It was put in place.
    Healed,
    /// It is of another moment than what is here.
    Elsewhen,
}

/// Brings ranges again as they are doubted, one at a time.
///
/// # Errors
/// The operating system has no thread to give.
pub fn start_healing(
    log: LogNumber,
    files: Arc<Files>,
    doubts: Receiver<FileRange>,
    links: Arc<Links>,
    local: Arc<dyn Local>,
) -> io::Result<()> {
    let life = local.life().clone();
    life.clone().spawn_of(log, "heal", move || {
        let mut told = None;
        for range in doubts {
            let healed =
                links.found().into_iter().any(|from| match bring(&files, range, from, &*local) {
                    Ok(bytes) => bytes > 0,
                    Err(_) if life.is_ending() => false,
                    Err(error) => {
                        let (node, file) = (from.0.0, range.file.0);
                        local.report(&format!(
                            "node {node} did not send what file {file:x} lacks: {error}"
                        ));
                        false
                    }
                });
            let place = (range.file, range.at);
            if life.is_ending() {
                return;
            }
            if !healed && told != Some(place) {
                files.host.counts.note(Noticed::RangeNotHealed);
                local.report(&format!(
                    "file {:x} cannot be read at {}, and no other node that is there has it otherwise",
                    range.file.0, range.at
                ));
            }
            told = (!healed).then_some(place);
        }
    })
}

/// Compares a range with that of another node, part by part, and takes what differs. Gives how many bytes did.
fn bring(
    files: &Files,
    range: FileRange,
    (node, address): (NodeId, SocketAddr),
    local: &dyn Local,
) -> io::Result<u64> {
    let end = range.at.saturating_add(range.len.min(RANGE_MAX));
    let (mut at, mut healed) = (range.at, 0);
    while at < end {
        let len = (end - at).min(u64::from(PART_BYTES));
        let (put, bytes) =
            bring_part(files, FileRange { at, len, ..range }, (node, address), local)?;
        if put == Put::Healed {
            files.host.counts.note(Noticed::RangeHealed);
            files.host.report(&format!(
                "file {:x} was damaged between {at} and {}: that is as node {} has it now, and what was there is in {TORN_DIR}",
                range.file.0,
                at + bytes,
                node.0
            ));
            healed += bytes;
        }
        if bytes < len {
            break;
        }
        at += len;
    }
    Ok(healed)
}

fn bring_part(
    files: &Files,
    range: FileRange,
    (node, address): (NodeId, SocketAddr),
    local: &dyn Local,
) -> io::Result<(Put, u64)> {
    for _ in 0..TRIES {
        let part = transfer::fetch_part((address, node), local, range)?;
        let mut replica = files.replica.lock();
        let put = put(&mut replica, range, &part)?;
        drop(replica);
        if put != Put::Elsewhen {
            return Ok((put, part.bytes.len() as u64));
        }
        if local.life().pause(RETRY) {
            break;
        }
    }
    Err(io::Error::other("the file is being changed"))
}

/// Puts a part in place, where it is of the same moment as what is here: no entry changed the file since, here or
/// there.
fn put(replica: &mut Replica, range: FileRange, part: &Part) -> io::Result<Put> {
    let Some(changed) = replica.changed(range.file) else { return Ok(Put::Elsewhen) };
    if changed > part.before || replica.applied() < part.after {
        return Ok(Put::Elsewhen);
    }
    let open = replica.file(range.file).ok_or(io::ErrorKind::NotFound)?;
    let left = usize::try_from(open.len()?.saturating_sub(range.at).min(range.len));
    if left.ok() != Some(part.bytes.len()) {
        return Ok(Put::Elsewhen);
    }
    let mut here = vec![0; part.bytes.len()];
    // What the disk does not give is damaged, too.
    let is_read = open.read_at(&mut here, range.at).is_ok_and(|read| read == here.len());
    if is_read && here == part.bytes {
        return Ok(Put::Same);
    }
    if is_read {
        keep_aside(&**replica.disk(), range.file, range.at, &here)?;
    }
    replica.heal(range.file, range.at, &part.bytes)?;
    Ok(Put::Healed)
}

fn keep_aside(disk: &dyn Disk, file: FileId, at: u64, bytes: &[u8]) -> io::Result<()> {
    let taken = disk.list(TORN_DIR)?;
    let mut names = (0u64..).map(|number| format!("{number}-file-{:x}-at-{at}", file.0));
    let free = names.find(|name| !taken.contains(name)).expect("numbers do not end");
    let aside = disk.create(&format!("{TORN_DIR}/{free}"))?;
    aside.write_at(bytes, 0)?;
    aside.sync()?;
    disk.sync_dir(TORN_DIR)
}
