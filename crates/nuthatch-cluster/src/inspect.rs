//! Looks at a keeper's directory without changing anything: for the doctor.

use crate::keeper_dir::KeeperDir;
use crate::small_files::{self, FORMAT};
use crate::sub_disk::log_dir;
use nuthatch_catalog_group::{LogCount, LogNumber};
use nuthatch_log::env::{Disk, OverlayDisk};
use nuthatch_quorum::store::{Image, Record, Slot};
use nuthatch_quorum::types::{Epoch, Incarnation, Lsn, NodeId};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a keeper's directory holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspection {
    /// The node and its disk; none: the identity cannot be read, or there is none yet.
    pub identity: Option<(NodeId, Incarnation)>,
    /// The greatest epoch that it has promised; none: no slot of the promise can be read.
    pub promised: Option<Epoch>,
    /// The cluster that it belongs to; none: it has seen no catalog yet.
    pub cluster: Option<u128>,
    /// The last entry that is trimmed: what it and those before it made is in the files only.
    pub base: Lsn,
    /// The last entry.
    pub last: Lsn,
    /// Entries that are damaged or missing, the last one apart.
    pub damaged: Vec<Lsn>,
    /// Bytes behind the last entry that are none: a write that a stop cut short.
    pub torn: bool,
    /// A torn tail was cut off at an earlier start and not made up for yet.
    pub cut: bool,
}

impl Inspection {
    /// True if nothing before the end is damaged or known to be lost. What is torn at the end is cut off by the next
    /// start, as after any stop that was not clean.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.identity.is_some() && self.promised.is_some() && self.damaged.is_empty() && !self.cut
    }
}

/// True if a directory is a keeper's.
#[must_use]
pub fn is_keeper(dir: &Path) -> bool {
    dir.join(FORMAT).is_file() && dir.join(crate::journal::OPS_DIR).is_dir()
}

/// The keepers of further logs in a node's directory, where that of the first log lies, in the order of their logs.
#[must_use]
pub fn further_keepers(dir: &Path) -> Vec<(LogNumber, PathBuf)> {
    let further = LogCount::MAX.numbers().skip(1).map(|log| (log, dir.join(log_dir(log))));
    further.filter(|(_, dir)| is_keeper(dir)).collect()
}

/// Reads all of a keeper's directory. Nothing is written to `disk`.
///
/// # Errors
/// The disk's, and that the directory is of a later version.
pub fn inspect(disk: Arc<dyn Disk>) -> io::Result<Inspection> {
    let looked_at: Arc<dyn Disk> = Arc::new(OverlayDisk::new(disk));
    let (_, image) = KeeperDir::open(Arc::clone(&looked_at))?;
    let cluster = small_files::load_seen(&*looked_at)?.map(|(cluster, _)| cluster);
    Ok(of_image(&image, cluster))
}

fn of_image(image: &Image, cluster: Option<u128>) -> Inspection {
    let identity = match image.identity {
        Record::Good(identity) => Some((identity.node, identity.incarnation)),
        _ => None,
    };
    let promises = image.promises.iter().filter_map(|slot| match slot {
        Record::Good(promise) => Some(promise.epoch),
        _ => None,
    });
    let base = image.begins().lsn;
    let places = || (image.dropped + 1..).map(Lsn).zip(&image.log);
    let is_entry = |slot: &Slot| matches!(slot, Slot::Bytes(_));
    let last = places().filter(|(_, slot)| is_entry(slot)).last().map_or(base, |(lsn, _)| lsn);
    let damaged = places().filter(|(lsn, _)| *lsn < last && !image.is_good(*lsn));
    Inspection {
        identity,
        promised: promises.max(),
        cluster,
        base,
        last,
        damaged: damaged.map(|(lsn, _)| lsn).collect(),
        torn: places().any(|(lsn, slot)| lsn > last && matches!(slot, Slot::Garbage)),
        // A note that cannot be read says that something was cut.
        cut: !matches!(image.cut, Record::Absent),
    }
}
