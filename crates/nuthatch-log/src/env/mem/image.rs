//! The two images of a simulated disk, and what a power cut leaves of them.

use super::super::SeededEntropy;
use super::State;
use std::collections::{BTreeMap, BTreeSet};

/// The unit that a medium writes atomically.
pub const SECTOR_BYTES: usize = 512;

#[derive(Clone, Default)]
pub(super) struct Inode {
    pub(super) live: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) unsynced: Vec<FileOp>,
    /// A sync failed: what can be read is not what the medium has, and will not be.
    pub(super) dropped: bool,
    /// Writes that will not have been made.
    pub(super) stale: Vec<StaleWrite>,
}

/// A write that the medium forgets when the process ends, whatever was synced.
#[derive(Clone)]
pub(super) struct StaleWrite {
    offset: usize,
    old: Vec<u8>,
    new: Vec<u8>,
}

impl StaleWrite {
    /// A write of `new` that is about to be made; behind the end of the file were zeros.
    pub(super) fn of(image: &[u8], offset: usize, new: &[u8]) -> Self {
        let old = (offset..offset + new.len()).map(|at| image.get(at).copied().unwrap_or(0));
        Self { offset, old: old.collect(), new: new.to_vec() }
    }

    /// What lies there is what was there before, but for what was written over it since.
    fn revert(&self, image: &mut [u8]) {
        let held = image.iter_mut().skip(self.offset);
        for ((byte, old), new) in held.zip(&self.old).zip(&self.new) {
            if *byte == *new {
                *byte = *old;
            }
        }
    }
}

#[derive(Clone)]
pub(super) enum FileOp {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Clone)]
pub(super) enum NameOp {
    Link { path: String, inode: u64 },
    Unlink { path: String },
    Rename { from: String, to: String, inode: u64 },
    MakeDir { path: String },
}

/// Names of files and sub-directories after a power cut. What was in a directory that is gone is gone.
pub(super) fn surviving_names(
    state: &State,
    chance: &mut SeededEntropy,
) -> (BTreeMap<String, u64>, BTreeSet<String>) {
    let mut names = state.durable.clone();
    let mut dirs = state.durable_dirs.clone();
    let style = chance.below(4);
    for op in &state.unsynced_names {
        let kept = match style {
            0 => false,
            1 => true,
            _ => chance.below(2) == 0,
        };
        match op {
            NameOp::MakeDir { path } if kept => drop(dirs.insert(path.clone())),
            op if kept => apply_name(&mut names, op),
            _ => {}
        }
    }
    let gone = |path: &str| {
        state.dirs.iter().any(|dir| {
            let below = path.strip_prefix(dir.as_str()).is_some_and(|rest| rest.starts_with('/'));
            below && !dirs.contains(dir)
        })
    };
    names.retain(|path, _| !gone(path));
    (names, dirs)
}

pub(super) fn apply_name(names: &mut BTreeMap<String, u64>, op: &NameOp) {
    match op {
        NameOp::Link { path, inode } => drop(names.insert(path.clone(), *inode)),
        NameOp::Unlink { path } => drop(names.remove(path)),
        NameOp::MakeDir { .. } => {}
        NameOp::Rename { from, to, inode } => {
            names.remove(from);
            names.insert(to.clone(), *inode);
        }
    }
}

impl Inode {
    pub(super) fn apply(image: &mut Vec<u8>, op: &FileOp) {
        match op {
            FileOp::SetLen(len) => image.resize(*len, 0),
            FileOp::Write { offset, bytes } => overwrite(image, *offset, bytes),
        }
    }

    pub(super) fn change(&mut self, op: FileOp) {
        Self::apply(&mut self.live, &op);
        self.unsynced.push(op);
    }

    /// What the medium shows when the process has ended.
    pub(super) fn forget_stale(&mut self) {
        for write in std::mem::take(&mut self.stale) {
            write.revert(&mut self.live);
            write.revert(&mut self.durable);
        }
    }

    pub(super) fn drop_dirty(&mut self) {
        self.dropped |= !self.unsynced.is_empty();
        self.unsynced.clear();
    }

    pub(super) fn sync(&mut self) {
        for op in self.unsynced.drain(..) {
            Self::apply(&mut self.durable, &op);
        }
    }

    pub(super) fn after_crash(&self, chance: &mut SeededEntropy) -> Vec<u8> {
        let mut image = self.durable.clone();
        for op in &self.unsynced {
            match op {
                FileOp::SetLen(_) if chance.below(2) == 0 => Self::apply(&mut image, op),
                FileOp::SetLen(_) => {}
                FileOp::Write { offset, bytes } => tear(&mut image, *offset, bytes, chance),
            }
        }
        self.stale.iter().for_each(|write| write.revert(&mut image));
        image
    }
}

fn overwrite(image: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    image[offset..end].copy_from_slice(bytes);
}

/// Applies the sectors of a write that `chance` lets through: none, all, a prefix or any subset.
fn tear(image: &mut Vec<u8>, offset: usize, bytes: &[u8], chance: &mut SeededEntropy) {
    let style = chance.below(4);
    let sectors = bytes.len().div_ceil(SECTOR_BYTES) as u64 + 1;
    let prefix = chance.below(sectors + 1);
    let (mut at, mut sector) = (0, 0);
    while at < bytes.len() {
        let step = SECTOR_BYTES - (offset + at) % SECTOR_BYTES;
        let end = (at + step).min(bytes.len());
        let kept = match style {
            0 => false,
            1 => true,
            2 => sector < prefix,
            _ => chance.below(2) == 0,
        };
        if kept {
            overwrite(image, offset + at, &bytes[at..end]);
        }
        (at, sector) = (end, sector + 1);
    }
}
