//! A nats-server's store directory, read-only.
//!
//! ```text
//! STORE/jetstream/ACCOUNT/streams/STREAM/meta.inf, meta.sum   configuration and its checksum
//!                                        msgs/N.blk           message blocks
//!                                        obs/NAME/…           consumers
//! ```
//!
//! The server must have been stopped. Message blocks are read twice: once to learn what was deleted
//! later, once to write what is left, so that memory holds a bitmap of deleted sequences and one
//! record. What the limits of the stream had pushed out and is still in the files comes along; the
//! limits take it away again where it is restored.

use crate::block::{BlockReader, Record};
use crate::error::ArchiveError;
use crate::hash::Sums;
use crate::snapshot::SnapshotWriter;
use crate::tarred::consumer_of;
use crate::{CONSUMER_BYTES_MAX, CONSUMERS_MAX, Message, json};
use nuthatch_protocol::js::{ConsumerSnapshot, StreamConfig, StreamState, Time};
use roaring::RoaringTreemap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of a file that holds a configuration or a checksum.
const SMALL_FILE_BYTES_MAX: u64 = 1 << 20;
/// The directory of accounts in a store.
const JETSTREAM: &str = "jetstream";
/// The directory of streams in an account.
const STREAMS: &str = "streams";

/// A stream in a store directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamPlace {
    /// The account's directory name; empty if only the stream's own directory was named.
    pub account: String,
    /// The stream's directory.
    pub dir: PathBuf,
}

/// A stream of a store directory whose files have been looked over.
pub struct StoredStream {
    /// Its configuration.
    pub config: StreamConfig,
    /// Its consumers, by name.
    pub consumers: Vec<ConsumerSnapshot>,
    /// What its files hold.
    pub state: StreamState,
    blocks: Vec<(u32, PathBuf)>,
    removed: RoaringTreemap,
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError + '_ {
    move |error| {
        let text = format!("{}: {error}", path.display());
        ArchiveError::Io(io::Error::new(error.kind(), text))
    }
}

/// The names of what is in a directory, sorted; nothing if it is not there.
fn listed(dir: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(dir)(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(io_error(dir))?.path());
    }
    paths.sort_unstable();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The streams below a directory, which may be the server's store directory, that of an account, or
/// that of one stream.
///
/// # Errors
/// [`ArchiveError`] if there are none, or the directory cannot be read.
pub fn find(dir: &Path) -> Result<Vec<StreamPlace>, ArchiveError> {
    if !dir.is_dir() {
        let text = format!("{} is not a directory", dir.display());
        return Err(ArchiveError::Unsuitable(text));
    }
    if dir.join("meta.inf").is_file() {
        return Ok(vec![StreamPlace { account: String::new(), dir: dir.to_owned() }]);
    }
    let mut accounts = vec![dir.to_owned()];
    accounts.extend(listed(dir)?);
    accounts.extend(listed(&dir.join(JETSTREAM))?);
    let mut found = Vec::new();
    for account in accounts {
        for stream in listed(&account.join(STREAMS))? {
            if stream.is_dir() {
                found.push(StreamPlace { account: name_of(&account), dir: stream });
            }
        }
    }
    if found.is_empty() {
        let text = format!(
            "there are no streams of a nats-server in {} (looked for jetstream/ACCOUNT/streams/)",
            dir.display()
        );
        return Err(ArchiveError::Unsuitable(text));
    }
    Ok(found)
}

fn small_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, ArchiveError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io_error(path))?;
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(io_error(path))?;
    ArchiveError::check_size(&path.display().to_string(), bytes.len() as u64, bytes_max)?;
    Ok(bytes)
}

fn refuse_encrypted(dir: &Path) -> Result<(), ArchiveError> {
    let is_key = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "key");
    let msgs = listed(&dir.join("msgs"))?;
    if dir.join("meta.key").exists() || msgs.iter().any(is_key) {
        let text = format!(
            "{} is encrypted: make a backup with the running nats-server instead (`nats stream \
             backup`, which is not encrypted), and restore that",
            dir.display()
        );
        return Err(ArchiveError::Unsuitable(text));
    }
    Ok(())
}

/// A configuration whose checksum is right.
fn summed(dir: &Path, sums: &Sums) -> Result<Vec<u8>, ArchiveError> {
    let meta = small_file(&dir.join("meta.inf"), SMALL_FILE_BYTES_MAX)?;
    let sum = small_file(&dir.join("meta.sum"), SMALL_FILE_BYTES_MAX)?;
    if sums.matches_hex(&meta, &sum) {
        return Ok(meta);
    }
    let place = dir.join("meta.inf").display().to_string();
    Err(ArchiveError::damaged(place, "the checksum is wrong"))
}

impl StoredStream {
    /// Looks a stream's files over: every byte of its messages is read and checked.
    ///
    /// # Errors
    /// [`ArchiveError`] with the file and the place in it.
    pub fn open(place: &StreamPlace) -> Result<Self, ArchiveError> {
        let dir = &place.dir;
        refuse_encrypted(dir)?;
        let config: StreamConfig = {
            let meta = small_file(&dir.join("meta.inf"), SMALL_FILE_BYTES_MAX)?;
            json::parse(&meta, &dir.join("meta.inf").display().to_string())?
        };
        summed(dir, &Sums::new(&config.name))?;
        let consumers = consumers(dir, &config.name)?;
        let mut stream = Self {
            state: StreamState { consumer_count: consumers.len() as u64, ..StreamState::default() },
            config,
            consumers,
            blocks: blocks(&dir.join("msgs"))?,
            removed: RoaringTreemap::new(),
        };
        stream.survey()?;
        Ok(stream)
    }

    /// Learns what the blocks hold, and what was deleted later.
    fn survey(&mut self) -> Result<(), ArchiveError> {
        let mut seen = RoaringTreemap::new();
        let mut removed = RoaringTreemap::new();
        let mut highest = 0;
        let mut newest_ns = i64::MIN;
        self.each_record(&mut |record| {
            let (seq, time_ns) = match record {
                Record::Message(message) => {
                    seen.insert(message.seq);
                    (message.seq, message.time_ns)
                }
                Record::Removed { seq, time_ns } => {
                    removed.insert(seq);
                    (seq, time_ns)
                }
            };
            if seq > highest {
                (highest, newest_ns) = (seq, time_ns);
            }
            Ok(())
        })?;
        seen -= &removed;
        let state = &mut self.state;
        state.messages = seen.len();
        state.last_seq = highest;
        state.first_seq = seen.min().unwrap_or(highest + 1);
        if newest_ns > 0 {
            state.last_ts = Time(newest_ns);
        }
        self.removed = removed;
        Ok(())
    }

    fn each_record(
        &self,
        visit: &mut dyn FnMut(Record<'_>) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        for (index, path) in &self.blocks {
            let file = File::open(path).map_err(io_error(path))?;
            let size = file.metadata().map_err(io_error(path))?.len();
            let name = path.display().to_string();
            let mut block = BlockReader::new(file, size, &self.config.name, *index, name)?;
            while let Some(record) = block.next()? {
                visit(record)?;
            }
        }
        Ok(())
    }

    /// Writes the stream as an archive.
    ///
    /// # Errors
    /// Those of the files and of `out`.
    pub fn write<W: Write>(&self, out: W, now_ns: i64) -> Result<W, ArchiveError> {
        let mut writer = SnapshotWriter::new(out, &self.state, now_ns)?;
        for consumer in &self.consumers {
            writer.consumer(consumer, now_ns)?;
        }
        let mut last = 0;
        self.each_record(&mut |record| {
            let Record::Message(message) = record else { return Ok(()) };
            let Message { seq, .. } = message;
            // Written twice by a compaction that did not end: the first one counts.
            if seq > last && !self.removed.contains(seq) {
                last = seq;
                writer.message(&message)?;
            }
            Ok(())
        })?;
        Ok(writer.finish()?)
    }
}

/// The blocks in the order of their numbers.
fn blocks(dir: &Path) -> Result<Vec<(u32, PathBuf)>, ArchiveError> {
    let mut blocks = Vec::new();
    for path in listed(dir)? {
        if path.extension().is_none_or(|kind| kind != "blk") {
            continue;
        }
        let index = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        let Some(index) = index else {
            let place = path.display().to_string();
            return Err(ArchiveError::damaged(place, "its name holds no number"));
        };
        blocks.push((index, path));
    }
    blocks.sort_unstable();
    Ok(blocks)
}

fn consumers(dir: &Path, stream: &str) -> Result<Vec<ConsumerSnapshot>, ArchiveError> {
    let mut consumers = Vec::new();
    for dir in listed(&dir.join("obs"))? {
        if !dir.is_dir() {
            continue;
        }
        let name = name_of(&dir);
        if dir.join("meta.key").exists() {
            refuse_encrypted(&dir)?;
        }
        let meta = summed(&dir, &Sums::new(&format!("{stream}/{name}")))?;
        let state = match small_file(&dir.join("o.dat"), CONSUMER_BYTES_MAX) {
            Ok(bytes) => Some(bytes),
            Err(ArchiveError::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let place = dir.display().to_string();
        consumers.push(consumer_of(&name, &meta, state.as_deref(), &place)?);
        ArchiveError::check_size("a list of consumers", consumers.len() as u64, CONSUMERS_MAX)?;
    }
    Ok(consumers)
}

#[cfg(test)]
mod tests;
