//! Files put together from a listing of the log's objects.

use crate::bucket::{Bucket, Listed};
use crate::catalog;
use crate::extents::{Extents, Piece, Source};
use crate::file::ObjectFile;
use crate::manifest;
use crate::names::{self, DataKey};
use crate::rules;
use crate::shared::LogShared;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Listing of a log's `data/`.
#[derive(Default)]
pub struct Listing {
    /// The objects of each file.
    pub files: BTreeMap<String, Objects>,
    /// Objects whose keys are not of a log.
    pub strangers: Vec<Listed>,
}

impl Listing {
    /// Lists what owners up to epoch `ours` wrote. What a later owner writes is not this one's
    /// business.
    ///
    /// # Errors
    /// The store's.
    pub fn of(bucket: &Bucket, ours: u32) -> io::Result<Self> {
        let mut listing = Self::default();
        for listed in bucket.list(names::DATA)? {
            let (file, epoch, offset) = match names::data_key(&listed.key) {
                Some(DataKey::Part { file, offset, epoch }) => (file, epoch, Some(offset)),
                Some(DataKey::Manifest { file, epoch }) => (file, epoch, None),
                None => {
                    listing.strangers.push(listed);
                    continue;
                }
            };
            if epoch <= ours {
                listing.files.entry(file).or_default().add(&listed, epoch, offset);
            }
        }
        Ok(listing)
    }

    /// The newest epoch that wrote any of it.
    pub fn newest(&self) -> Option<u32> {
        self.files.values().filter_map(Objects::newest).max()
    }
}

/// The files of a log, as its servers see them.
///
/// # Errors
/// The store's; `InvalidData` if a manifest is damaged.
pub fn load_files(shared: &Arc<LogShared>) -> io::Result<BTreeMap<String, Arc<ObjectFile>>> {
    let listing = Listing::of(&shared.bucket, shared.epoch())?;
    load_listed(shared, listing)
}

/// The files of a log, as a listing shows them.
///
/// # Errors
/// As [`load_files`].
pub fn load_listed(
    shared: &Arc<LogShared>,
    listing: Listing,
) -> io::Result<BTreeMap<String, Arc<ObjectFile>>> {
    let files = listing.files.into_iter();
    files.map(|(name, objects)| Ok((name.clone(), objects.file(name, shared)?))).collect()
}

/// A part of a file, as listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedPart {
    /// Where in the file it begins.
    pub offset: u64,
    /// Epoch of its writer.
    pub epoch: u32,
    /// Its size in bytes.
    pub len: u64,
}

impl ListedPart {
    /// The piece that it is.
    pub const fn piece(self) -> (u64, Piece) {
        let Self { offset, epoch, len } = self;
        (offset, Piece { len, source: Source::Object { offset, epoch, skip: 0 } })
    }
}

/// The objects of one file, as listed.
#[derive(Default)]
pub struct Objects {
    /// Every key, with the size of its object.
    pub all: BTreeMap<Arc<str>, u64>,
    /// The parts, in the order of offsets.
    pub parts: Vec<ListedPart>,
    /// Manifests by epoch.
    pub manifests: BTreeMap<u32, String>,
}

impl Objects {
    fn add(&mut self, listed: &Listed, epoch: u32, offset: Option<u64>) {
        self.all.insert(listed.key.as_str().into(), listed.bytes);
        match offset {
            Some(offset) => self.parts.push(ListedPart { offset, epoch, len: listed.bytes }),
            None => drop(self.manifests.insert(epoch, listed.key.clone())),
        }
    }

    fn newest(&self) -> Option<u32> {
        let parts = self.parts.iter().map(|part| part.epoch);
        parts.chain(self.manifests.keys().copied()).max()
    }

    /// The newest epoch that wrote the file from its beginning.
    pub fn creator(&self) -> Option<u32> {
        let begun = self.parts.iter().filter(|part| part.offset == 0);
        begun.map(|part| part.epoch).max()
    }

    /// The manifest that counts, if one does: the newest, unless the file was begun anew after it.
    pub fn manifest(&self) -> Option<(u32, &str)> {
        let (epoch, key) = self.manifests.last_key_value()?;
        let counts = self.creator().is_none_or(|creator| *epoch >= creator)
            || !rules::MANIFEST_OF_THIS_FILE.holds();
        counts.then_some((*epoch, key))
    }

    fn file(self, name: String, shared: &Arc<LogShared>) -> io::Result<Arc<ObjectFile>> {
        let extents = match self.manifest() {
            Some((_, key)) => {
                let bytes = shared.bucket.get(key)?;
                let extents = manifest::decode(&bytes)
                    .map_err(|what| catalog::unusable(&shared.bucket, key, what))?;
                // An owner that was replaced may have stored it after the file was removed. Whatever
                // else is missing must not be taken for a file that ends there.
                let there = self.there_of(&name, &extents);
                let begins = there.iter().next().is_some_and(|(at, _)| at == 0);
                if begins || !rules::MANIFEST_BEGINS.holds() { extents } else { there }
            }
            None => self.run(),
        };
        let shared = Arc::clone(shared);
        Ok(Arc::new(ObjectFile::stored(shared, Some(name), extents, self.all)))
    }

    /// The file as its creator wrote it. An object that is missing in the middle reads as zeros,
    /// which the log takes for what it is: damage, if a later frame vouches for what was there.
    pub fn run(&self) -> Extents {
        let creator = self.creator();
        let parts = self
            .parts
            .iter()
            .filter(|part| Some(part.epoch) == creator || !rules::ONE_EPOCH.holds());
        let pieces: Vec<_> = parts.map(|part| part.piece()).collect();
        let len = pieces.iter().map(|(at, piece)| at + piece.len).max().unwrap_or(0);
        Extents::of(pieces, len)
    }

    /// The pieces whose objects are there and long enough; nothing, so zeros, for the others.
    pub fn there_of(&self, name: &str, extents: &Extents) -> Extents {
        let pieces = extents.iter().filter_map(|(at, piece)| {
            let Source::Object { offset, epoch, skip } = piece.source else { return None };
            let size = *self.all.get(names::part(name, offset, epoch).as_str())?;
            let len = piece.len.min(size.saturating_sub(skip));
            (len > 0).then(|| (at, Piece { len, source: piece.source.clone() }))
        });
        let pieces: Vec<_> = pieces.collect();
        Extents::of(pieces, extents.len())
    }
}
