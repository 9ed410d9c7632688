//! What is wrong with a log's objects: the catalog's versions, the manifests, the fences, objects that
//! are missing or count for nothing. What the objects hold is not looked at: the log knows that.
//!
//! Whatever describes a file and cannot be read is made up for from the keys of its objects. A wrong
//! guess cannot pass for right: frames carry checksums and are chained.

use crate::bucket::Bucket;
use crate::catalog;
use crate::extents::{Extents, Source};
use crate::file::ObjectFile;
use crate::listing::{Listing, Objects};
use crate::manifest;
use crate::names;
use crate::numbered;
use crate::owner;
use crate::shared::LogShared;
use bytes::Bytes;
use nuthatch_log::doctor::{Finding, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Result of examining a log's objects.
#[derive(Debug, Default)]
pub struct Survey {
    /// Faults found.
    pub findings: Vec<Finding>,
    /// The newest catalog that can be read.
    pub(crate) catalog: Option<Bytes>,
    /// Keys of newer versions that cannot be read.
    pub(crate) damaged_catalogs: Vec<String>,
    /// Files whose manifest is to be written anew, with what it is to say.
    pub(crate) manifests: BTreeMap<String, Extents>,
    /// Epochs of fences that should be there.
    pub(crate) missing_fences: Vec<u32>,
}

type Files = BTreeMap<String, Arc<ObjectFile>>;

/// The newest epoch of which there is a fence or an object; `None`: no log was ever there.
///
/// # Errors
/// The store's.
pub fn newest_epoch(bucket: &Bucket) -> io::Result<Option<u32>> {
    let written = Listing::of(bucket, u32::MAX)?.newest();
    let left = bucket.list(names::LEFT)?;
    let left = left.iter().filter_map(|one| names::left_epoch(&one.key)).max();
    let changed = catalog::survey(bucket)?.epoch;
    // Fences last: an owner makes its fence before it writes anything.
    Ok(owner::fences(bucket)?.last().copied().max(written).max(left).max(changed))
}

/// Looks at everything that owners up to `shared`'s epoch left.
///
/// # Errors
/// The store's; `InvalidData` if something is of a later version.
pub fn look(shared: &Arc<LogShared>) -> io::Result<(Files, Survey)> {
    let mut survey = Survey::default();
    survey.look_at_catalogs(&shared.bucket)?;
    let listing = Listing::of(&shared.bucket, shared.epoch())?;
    survey.look_at_fences(shared)?;
    let mut files = Files::new();
    for (name, objects) in listing.files {
        let extents = survey.look_at_file(&name, &objects, &shared.bucket)?;
        let file = ObjectFile::stored(Arc::clone(shared), Some(name.clone()), extents, objects.all);
        files.insert(name, Arc::new(file));
    }
    for stranger in listing.strangers {
        let what = format!("a log has no object of this key ({} bytes)", stranger.bytes);
        survey.note(Kind::UnknownFile, &stranger.key, what, "left alone");
    }
    for stranger in numbered::strangers(&shared.bucket)? {
        let what = "a log has no object of this key: nothing of it is relied on".to_owned();
        survey.note(Kind::UnknownFile, &stranger, what, "left alone");
    }
    for left in shared.bucket.list(names::SELFTESTS)? {
        let what = "left by a server that ended while it tried the store out".to_owned();
        survey.note(Kind::Leftover, &left.key, what, "nothing reads it; it may be removed");
    }
    Ok((files, survey))
}

impl Survey {
    fn note(&mut self, kind: Kind, file: &str, what: String, action: &str) {
        self.findings.push(Finding::new(kind, file, what, action));
    }

    fn look_at_catalogs(&mut self, bucket: &Bucket) -> io::Result<()> {
        let found = catalog::survey(bucket)?;
        self.catalog = found.body;
        let action = match &found.key {
            Some(key) => format!("{key} is taken instead, and compared with the segments"),
            None => "no version can be read: made anew from the segments".to_owned(),
        };
        for (key, what) in found.damaged {
            self.note(Kind::CatalogDamaged, &key, what.to_owned(), &action);
            self.damaged_catalogs.push(key);
        }
        Ok(())
    }

    fn look_at_fences(&mut self, shared: &LogShared) -> io::Result<()> {
        let there: BTreeSet<u32> = owner::fences(&shared.bucket)?.into_iter().collect();
        let newest = shared.epoch();
        self.missing_fences = (1..=newest).filter(|number| !there.contains(number)).collect();
        if let (Some(first), count) = (self.missing_fences.first(), self.missing_fences.len()) {
            let key = names::fence(*first);
            let what = format!(
                "{count} of the fences 1 to {newest} are missing, this one first: an owner that \
                 slept would not notice that it was replaced"
            );
            self.note(Kind::FenceMissing, &key, what, "made anew");
        }
        Ok(())
    }

    fn look_at_file(
        &mut self,
        name: &str,
        objects: &Objects,
        bucket: &Bucket,
    ) -> io::Result<Extents> {
        let extents = match objects.manifest() {
            None => objects.run(),
            Some((epoch, key)) => match manifest::decode(&bucket.get(key)?) {
                Ok(extents) => extents,
                Err(what) if what == manifest::LATER_VERSION => {
                    return Err(catalog::unusable(bucket, key, what));
                }
                Err(what) => {
                    let made = compose(objects, epoch, bucket)?;
                    let action = "made anew from the keys of the objects; the frames tell whether \
                                  it is right";
                    self.note(Kind::Manifest, key, what.to_owned(), action);
                    self.manifests.insert(name.to_owned(), made.clone());
                    made
                }
            },
        };
        let there = objects.there_of(name, &extents);
        self.look_for_gaps(name, &there);
        self.look_for_orphans(name, &there, objects);
        Ok(there)
    }

    fn look_for_gaps(&mut self, name: &str, extents: &Extents) {
        let mut at = 0;
        let ends = extents.iter().map(|(start, piece)| (start, start + piece.len));
        let gaps: Vec<(u64, u64)> = ends
            .chain([(extents.len(), extents.len())])
            .filter_map(|(start, end)| {
                let gap = (at < start).then_some((at, start));
                at = end;
                gap
            })
            .collect();
        for (from, until) in gaps {
            let what = format!("no object holds bytes {from} to {until}: they read as zeros");
            self.note(
                Kind::ObjectMissing,
                name,
                what,
                "the frames tell whether anything was there",
            );
        }
    }

    fn look_for_orphans(&mut self, name: &str, extents: &Extents, objects: &Objects) {
        let mut counting: BTreeSet<String> = extents
            .iter()
            .filter_map(|(_, piece)| match piece.source {
                Source::Object { offset, epoch, .. } => Some(names::part(name, offset, epoch)),
                Source::Memory(_) | Source::Uploading(_) => None,
            })
            .collect();
        counting.extend(objects.manifest().map(|(_, key)| key.to_owned()));
        let orphans = || objects.all.iter().filter(|(key, _)| !counting.contains(&***key));
        let (count, bytes) = (orphans().count(), orphans().map(|(_, bytes)| *bytes).sum::<u64>());
        if let Some((first, _)) = orphans().next() {
            let what = format!("{count} objects ({bytes} bytes) count for nothing, {first} first");
            let action = "the server removes them together with the file";
            self.note(Kind::Leftover, name, what, action);
        }
    }
}

/// What a file consists of whose newest manifest, of epoch `by`, cannot be read: what an older
/// manifest says or its creator wrote, with what later owners wrote laid over it. The last of them
/// cut the file where it went on writing, so it ends where its own last object does.
///
/// # Errors
/// The store's; `InvalidData` if an older manifest is of a later version.
fn compose(objects: &Objects, by: u32, bucket: &Bucket) -> io::Result<Extents> {
    let creator = objects.creator().unwrap_or(0);
    let (mut since, mut extents) = (creator, objects.run());
    for (epoch, key) in objects.manifests.range(creator..by).rev() {
        match manifest::decode(&bucket.get(key)?) {
            Ok(older) => {
                (since, extents) = (*epoch, older);
                break;
            }
            Err(what) if what == manifest::LATER_VERSION => {
                return Err(catalog::unusable(bucket, key, what));
            }
            // As damaged as the newer one.
            Err(_) => {}
        }
    }
    let mut later: Vec<_> =
        objects.parts.iter().filter(|part| part.epoch > since && part.epoch <= by).collect();
    later.sort_by_key(|part| (part.epoch, part.offset));
    for part in &later {
        let (at, piece) = part.piece();
        extents.put(at, piece);
    }
    if let Some(last) = later.last().filter(|last| last.epoch == by) {
        extents.set_len(last.offset + last.len);
    }
    Ok(extents)
}
