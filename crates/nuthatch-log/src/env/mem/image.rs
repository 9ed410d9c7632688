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
