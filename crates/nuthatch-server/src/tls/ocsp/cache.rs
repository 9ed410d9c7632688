//! Responses about certificates of peers, kept in memory and in a file, which is the one of nats-server.

use super::response::{Response, Status};
use crate::options::{OcspCache, OcspCacheKind};
use crate::wall_time::time_json;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nuthatch_archive::frames::FrameReader;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Responses in the cache.
pub const CACHED_RESPONSES_MAX: usize = 16 * 1024;
/// Bytes of all responses in the cache.
pub const CACHED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of its file.
pub const CACHE_FILE_BYTES_MAX: u64 = 96 * 1024 * 1024;
const FILE: &str = "cache.json";
/// A time that is not set, as Go writes it.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// Counts of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Answers that it gave.
    pub hits: u64,
    /// Answers that it did not have.
    pub misses: u64,
    /// Responses with the state good.
    pub goods: u64,
    /// Responses with the state revoked.
    pub revokes: u64,
    /// Responses with the state unknown.
    pub unknowns: u64,
}

#[derive(Debug)]
struct Entry {
    subject: String,
    cached_at: SystemTime,
    status: Status,
    expires: Option<SystemTime>,
    raw: Arc<[u8]>,
    /// Its place in the order of eviction.
    rank: Rank,
}

/// What goes first if there is no room: what is not to be preserved, and of that the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_preserved: bool,
    number: u64,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: FxHashMap<String, Entry>,
    by_rank: BTreeMap<Rank, String>,
    bytes: usize,
    next_number: u64,
    stats: CacheStats,
    /// Changed since it was saved.
    is_dirty: bool,
}

impl Entries {
    fn count(&mut self, status: Status) -> &mut u64 {
        match status {
            Status::Good => &mut self.stats.goods,
            Status::Revoked => &mut self.stats.revokes,
            Status::Unknown => &mut self.stats.unknowns,
        }
    }

    fn remove(&mut self, key: &str) {
        let Some(entry) = self.by_key.remove(key) else { return };
        self.by_rank.remove(&entry.rank);
        self.bytes -= entry.raw.len();
        *self.count(entry.status) -= 1;
        self.is_dirty = true;
    }

    fn put(&mut self, key: String, entry: Entry) {
        self.remove(&key);
        self.bytes += entry.raw.len();
        *self.count(entry.status) += 1;
        self.by_rank.insert(entry.rank, key.clone());
        self.by_key.insert(key, entry);
        self.is_dirty = true;
        while self.by_key.len() > CACHED_RESPONSES_MAX || self.bytes > CACHED_BYTES_MAX {
            let Some(first) = self.by_rank.first_key_value().map(|(_, key)| key.clone()) else {
                unreachable!("what counts is ranked");
            };
            self.remove(&first);
        }
    }

    fn rank(&mut self, is_preserved: bool) -> Rank {
        self.next_number += 1;
        Rank { is_preserved, number: self.next_number }
    }
}

/// A cache. Each use of a response checks its signature again: nothing in the file is believed.
#[derive(Debug)]
pub struct PeerCache {
    /// Revocations stay when they are over.
    keeps_revoked: bool,
    /// Directory of the file.
    directory: PathBuf,
    entries: Mutex<Entries>,
}

/// An entry of the file.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    subject: String,
    cached_at: String,
    resp_status: String,
    #[serde(default)]
    resp_expires: String,
    resp: String,
}

impl PeerCache {
    /// An empty one; `None`: there is to be none. `keeps_revoked`: revocations stay when they are over, whatever
    /// the options say.
    #[must_use]
    pub fn new(options: &OcspCache, keeps_revoked: bool) -> Option<Self> {
        (options.kind == OcspCacheKind::Local).then(|| Self {
            keeps_revoked: keeps_revoked || options.preserve_revoked,
            directory: options.local_store.clone(),
            entries: Mutex::default(),
        })
    }

    /// The response that was kept, if there is one.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<[u8]>> {
        let mut entries = self.entries.lock();
        let found = entries.by_key.get(key).map(|entry| entry.raw.clone());
        match found {
            Some(_) => entries.stats.hits += 1,
            None => entries.stats.misses += 1,
        }
        found
    }

    /// As [`Self::get`], without a trace in the counts.
    pub(crate) fn peek(&self, key: &str) -> Option<Arc<[u8]>> {
        self.entries.lock().by_key.get(key).map(|entry| entry.raw.clone())
    }

    /// What was got is of no use: it goes, unless it is a revocation that is to be preserved.
    pub(crate) fn reject(&self, key: &str) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.by_key.get(key) else { return };
        let is_preserved = entry.rank.is_preserved;
        entries.stats.hits = entries.stats.hits.saturating_sub(1);
        entries.stats.misses += 1;
        if !is_preserved {
            entries.remove(key);
        }
    }

    /// Keeps a response.
    pub(crate) fn put(&self, key: String, subject: String, raw: &[u8], response: &Response) {
        let mut entries = self.entries.lock();
        let rank = entries.rank(self.keeps_revoked && response.status == Status::Revoked);
        let entry = Entry {
            subject,
            cached_at: SystemTime::now(),
            status: response.status,
            expires: response.next_update,
            raw: raw.into(),
            rank,
        };
        entries.put(key, entry);
    }

    /// Its counts.
    pub fn stats(&self) -> CacheStats {
        self.entries.lock().stats
    }

    /// Reads the file, if there is one. What cannot be read is left out.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(&self) -> io::Result<()> {
        let text = match read_file(&self.directory.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            read => read?,
        };
        let stored: HashMap<String, Stored> = serde_json::from_slice(&text)?;
        let mut found: Vec<_> =
            stored.into_iter().filter_map(|(key, stored)| Some((key, restored(stored)?))).collect();
        found.sort_by_key(|(_, entry)| entry.cached_at);
        let mut entries = self.entries.lock();
        for (key, mut entry) in found {
            let is_preserved = self.keeps_revoked && entry.status == Status::Revoked;
            entry.rank = entries.rank(is_preserved);
            entries.put(key, entry);
        }
        entries.is_dirty = false;
        Ok(())
    }

    /// Writes the file, if something has changed.
    ///
    /// # Errors
    /// It cannot be written; it is tried again the next time.
    pub fn save(&self) -> io::Result<()> {
        let Some(stored) = self.changed() else { return Ok(()) };
        let written = write_file(&self.directory, &serde_json::to_vec_pretty(&stored)?);
        if written.is_err() {
            self.entries.lock().is_dirty = true;
        }
        written
    }

    /// All entries as they are stored, if something has changed.
    fn changed(&self) -> Option<BTreeMap<String, Stored>> {
        let entries: Vec<_> = {
            let mut entries = self.entries.lock();
            if !std::mem::take(&mut entries.is_dirty) {
                return None;
            }
            let all = entries.by_key.iter();
            all.map(|(key, e)| {
                (key.clone(), (e.subject.clone(), e.cached_at, e.status, e.expires, e.raw.clone()))
            })
            .collect()
        };
        let stored = entries.into_iter().map(|(key, (subject, at, status, expires, raw))| {
            let stored = Stored {
                subject,
                cached_at: time_text(Some(at)),
                resp_status: status.text().to_owned(),
                resp_expires: time_text(expires),
                resp: STANDARD.encode(compressed(&raw)),
            };
            (key, stored)
        });
        Some(stored.collect())
    }
}

fn restored(stored: Stored) -> Option<Entry> {
    let status = match stored.resp_status.as_str() {
        "good" => Status::Good,
        "revoked" => Status::Revoked,
        _ => Status::Unknown,
    };
    let packed = STANDARD.decode(&stored.resp).ok()?;
    let limit = super::fetch::RESPONSE_BYTES_MAX as u64;
    let mut raw = Vec::new();
    FrameReader::new(&*packed).take(limit + 1).read_to_end(&mut raw).ok()?;
    (raw.len() as u64 <= limit).then(|| Entry {
        subject: stored.subject,
        cached_at: time(&stored.cached_at).unwrap_or(UNIX_EPOCH),
        status,
        expires: time(&stored.resp_expires),
        raw: raw.into(),
        rank: Rank { is_preserved: false, number: 0 },
    })
}

fn time(text: &str) -> Option<SystemTime> {
    let at: jiff::Timestamp = text.parse().ok()?;
    let seconds = u64::try_from(at.as_second()).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn time_text(at: Option<SystemTime>) -> String {
    let text = at.map(|at| time_json(at).as_str().unwrap_or(NO_TIME).to_owned());
    text.unwrap_or_else(|| NO_TIME.to_owned())
}

/// In frames, which a reader of S2 understands.
fn compressed(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // A vector takes all that is written to it.
    let _ = snap::write::FrameEncoder::new(&mut out).write_all(raw);
    out
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = fs::File::open(path)?.take(CACHE_FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if read as u64 > CACHE_FILE_BYTES_MAX {
        let what = format!("{} has more than {CACHE_FILE_BYTES_MAX} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(text)
}

fn write_file(directory: &Path, text: &[u8]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    replace(&directory.join(FILE), text)
}

/// Writes a file that is there as a whole or as it was. Servers that share a directory do not mix what they write,
/// nor do tasks of one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static WRITING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = WRITING.lock();
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let written = fs::File::create(&new).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests;
