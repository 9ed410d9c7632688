//! The bytes of a file, as they are and as they would be after a power cut.

use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a disk writes whole.
pub const SECTOR: u64 = 512;
/// What an operating system writes back whole.
const PAGE: u64 = 4096;

type Page = [u8; PAGE as usize];

/// Bytes with holes, in pages that copies share.
#[derive(Clone, Default)]
pub struct Content {
    len: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

impl Content {
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of storage.
    pub fn stored(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    pub fn read(&self, at: u64, size: u64) -> Vec<u8> {
        let end = self.len.min(at.saturating_add(size));
        let mut found = vec![0; end.saturating_sub(at) as usize];
        for (page, from, upto) in pages_of(at, end) {
            if let Some(bytes) = self.pages.get(&page) {
                let start = page * PAGE;
                let to = &mut found[(from - at) as usize..(upto - at) as usize];
                to.copy_from_slice(&bytes[(from - start) as usize..(upto - start) as usize]);
            }
        }
        found
    }

    pub fn write(&mut self, at: u64, data: &[u8]) {
        let end = at + data.len() as u64;
        for (page, from, upto) in pages_of(at, end) {
            let bytes = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE as usize]));
            let start = page * PAGE;
            let part = &data[(from - at) as usize..(upto - at) as usize];
            Arc::make_mut(bytes)[(from - start) as usize..(upto - start) as usize]
                .copy_from_slice(part);
        }
        self.len = self.len.max(end);
    }

    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE));
            if let Some(last) = self.pages.get_mut(&(len / PAGE)) {
                Arc::make_mut(last)[(len % PAGE) as usize..].fill(0);
            }
        }
        self.len = len;
    }
}

/// The pages between two places, and what of each is between them.
fn pages_of(at: u64, end: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let pages = if at < end { at / PAGE..end.div_ceil(PAGE) } else { 0..0 };
    pages.map(move |page| (page, at.max(page * PAGE), end.min((page + 1) * PAGE)))
}

/// A file: what processes see, and what is on the medium.
#[derive(Default)]
pub struct FileData {
    current: Content,
    durable: Content,
    /// Sectors that were written since they were last synced.
    unsynced: BTreeSet<u64>,
    /// The least length that the file was cut to since it was last synced.
    cut_to: Option<u64>,
}

impl FileData {
    pub fn current(&self) -> &Content {
        &self.current
    }

    pub fn write(&mut self, at: u64, data: &[u8]) {
        self.current.write(at, data);
        self.unsynced.extend(at / SECTOR..(at + data.len() as u64).div_ceil(SECTOR));
    }

    pub fn set_len(&mut self, len: u64) {
        if len < self.current.len {
            self.cut_to = Some(self.cut_to.map_or(len, |known| known.min(len)));
            self.unsynced.split_off(&len.div_ceil(SECTOR));
        }
        self.current.set_len(len);
    }

    /// What there is now is durable.
    pub fn sync(&mut self) {
        if self.cut_to.take().is_some() {
            self.durable = self.current.clone();
        }
        let pages: BTreeSet<u64> =
            self.unsynced.iter().map(|sector| sector * SECTOR / PAGE).collect();
        for page in pages {
            if let Some(bytes) = self.current.pages.get(&page) {
                self.durable.pages.insert(page, Arc::clone(bytes));
            }
        }
        self.durable.len = self.current.len;
        self.unsynced.clear();
    }

    /// A sync that failed: what it covered is not written, processes still see it, and no later sync writes it.
    pub fn fail_sync(&mut self) {
        self.unsynced.clear();
    }

    /// The power goes: what was not synced is gone, but for so many of a hundred of its sectors.
    pub fn cut(&mut self, random: &mut Random, keep_percent: u64) -> u64 {
        let mut lost = 0;
        if let Some(len) = self.cut_to.take()
            && random.percent(keep_percent)
        {
            let len = len.min(self.durable.len);
            self.durable.set_len(len);
        }
        for sector in std::mem::take(&mut self.unsynced) {
            if random.percent(keep_percent) {
                let bytes = self.current.read(sector * SECTOR, SECTOR);
                self.durable.write(sector * SECTOR, &bytes);
            } else {
                lost += 1;
            }
        }
        self.current = self.durable.clone();
        lost
    }
}
