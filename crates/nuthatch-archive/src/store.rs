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
use crate::{BLOCK_FILE_BYTES_MAX, CONSUMER_BYTES_MAX, CONSUMERS_MAX, Message, check_name, json};
use nuthatch_protocol::js::{ConsumerSnapshot, StreamConfig, StreamState, Time};
use roaring::RoaringTreemap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of a file that holds a configuration or a checksum.
const SMALL_FILE_BYTES_MAX: u64 = 1 << 20;
/// Entries of a directory, and streams of a store.
const ENTRIES_MAX: usize = 200_000;
/// Bytes of the states of all consumers of a stream.
const CONSUMERS_BYTES_MAX: u64 = 256 << 20;
/// Sequences that are remembered together.
const STRETCH_SEQS: u64 = 1 << 16;
/// Stretches of sequences in which there is anything: a bound on memory, about 100 bytes for each
/// beside two bytes or a bit for each sequence in it.
const STRETCHES_MAX: u64 = 1 << 19;
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
    /// State by its files.
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

/// Entries of a directory, sorted; empty if it is not there.
fn listed(dir: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(dir)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(io_error(dir))?.file_name());
        if names.len() > ENTRIES_MAX {
            let text = format!("{} has more than {ENTRIES_MAX} entries", dir.display());
            return Err(ArchiveError::Unsuitable(text));
        }
    }
    names.sort_unstable();
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

/// The last part of a path. Names are part of the keys of checksums, so none is guessed.
fn name_of(path: &Path) -> Result<String, ArchiveError> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned)
        .ok_or_else(|| ArchiveError::damaged(path.display().to_string(), "its name is not UTF-8"))
}

/// Type of what is at a path: links are not followed, which could lead anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Nothing,
    File { bytes: u64 },
    Directory,
}

fn kind_of(path: &Path) -> Result<Kind, ArchiveError> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kind::Nothing),
        Err(error) => return Err(io_error(path)(error)),
    };
    let kind = meta.file_type();
    if kind.is_file() {
        return Ok(Kind::File { bytes: meta.len() });
    }
    if kind.is_dir() {
        return Ok(Kind::Directory);
    }
    let what = if kind.is_symlink() {
        "a symbolic link, which is not followed: name the directory that it leads to"
    } else {
        "neither a file nor a directory"
    };
    Err(ArchiveError::Unsuitable(format!("{} is {what}", path.display())))
}

fn is_dir(path: &Path) -> Result<bool, ArchiveError> {
    Ok(kind_of(path)? == Kind::Directory)
}

/// Opens a file of at most `bytes_max`; returns its size, too.
///
/// # Errors
/// `NotFound`; something other than a file, which might never end or never begin; too large.
fn open_file(path: &Path, bytes_max: u64) -> Result<(File, u64), ArchiveError> {
    let bytes = match kind_of(path)? {
        Kind::File { bytes } => bytes,
        Kind::Directory => {
            let text = format!("{} is a directory, where a file should be", path.display());
            return Err(ArchiveError::Unsuitable(text));
        }
        Kind::Nothing => return Err(io_error(path)(io::ErrorKind::NotFound.into())),
    };
    ArchiveError::check_size(&path.display().to_string(), bytes, bytes_max)?;
    Ok((File::open(path).map_err(io_error(path))?, bytes))
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
    if matches!(kind_of(&dir.join("meta.inf"))?, Kind::File { .. }) {
        return Ok(vec![StreamPlace { account: String::new(), dir: dir.to_owned() }]);
    }
    let mut accounts = vec![dir.to_owned()];
    for parent in [dir.to_owned(), dir.join(JETSTREAM)] {
        // Whatever else lies beside the directories of accounts is not ours to judge.
        accounts.extend(listed(&parent)?.into_iter().filter(|path| path.is_dir()));
    }
    let mut found = Vec::new();
    for account in accounts {
        for stream in listed(&account.join(STREAMS))? {
            if is_dir(&stream)? {
                found.push(StreamPlace { account: account_name(&account)?, dir: stream });
            }
        }
        if found.len() > ENTRIES_MAX {
            let text = format!("there are more than {ENTRIES_MAX} streams in {}", dir.display());
            return Err(ArchiveError::Unsuitable(text));
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

/// A directory that was named as `.` or `/` has no name.
fn account_name(path: &Path) -> Result<String, ArchiveError> {
    if path.file_name().is_none() { Ok(String::new()) } else { name_of(path) }
}

fn small_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, ArchiveError> {
    let mut bytes = Vec::new();
    let (file, _) = open_file(path, bytes_max)?;
    // It may grow while it is read.
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(io_error(path))?;
    ArchiveError::check_size(&path.display().to_string(), bytes.len() as u64, bytes_max)?;
    Ok(bytes)
}

fn refuse_encrypted(dir: &Path) -> Result<(), ArchiveError> {
    let is_key = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "key");
    let msgs = listed(&dir.join("msgs"))?;
    if kind_of(&dir.join("meta.key"))? != Kind::Nothing || msgs.iter().any(is_key) {
        let text = format!(
            "{} is encrypted: make a backup with the running nats-server instead (`nats stream \
             backup`, which is not encrypted), and restore that",
            dir.display()
        );
        return Err(ArchiveError::Unsuitable(text));
    }
    Ok(())
}

/// Over how many stretches the sequences of a stream are spread: each takes memory, however few
/// sequences are in it.
#[derive(Default)]
struct Spread {
    stretches: RoaringTreemap,
    /// How many: counting them takes as long as going through them.
    count: u64,
}

impl Spread {
    fn note(&mut self, seq: u64) -> Result<(), ArchiveError> {
        self.count += u64::from(self.stretches.insert(seq / STRETCH_SEQS));
        if self.count > STRETCHES_MAX {
            let text = format!(
                "the sequences of its messages are spread over more than {STRETCHES_MAX} \
                 stretches of {STRETCH_SEQS}"
            );
            return Err(ArchiveError::Unsuitable(text));
        }
        Ok(())
    }
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
        let place = dir.join("meta.inf").display().to_string();
        let config: StreamConfig = {
            let meta = small_file(&dir.join("meta.inf"), SMALL_FILE_BYTES_MAX)?;
            json::parse(&meta, &place)?
        };
        check_name(&config.name, &place)?;
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
        let mut spread = Spread::default();
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
            spread.note(seq)?;
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
            let (file, size) = open_file(path, BLOCK_FILE_BYTES_MAX)?;
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
    // `1.blk` and `01.blk` would be the same block.
    if let Some(twice) = blocks.windows(2).find(|two| two[0].0 == two[1].0) {
        let place = twice[1].1.display().to_string();
        return Err(ArchiveError::damaged(place, "there is another block of this number"));
    }
    Ok(blocks)
}

fn consumers(dir: &Path, stream: &str) -> Result<Vec<ConsumerSnapshot>, ArchiveError> {
    let mut consumers = Vec::new();
    let mut bytes = 0;
    for dir in listed(&dir.join("obs"))? {
        if !is_dir(&dir)? {
            continue;
        }
        let name = name_of(&dir)?;
        check_name(&name, &dir.display().to_string())?;
        refuse_encrypted(&dir)?;
        let meta = summed(&dir, &Sums::new(&format!("{stream}/{name}")))?;
        let state = match small_file(&dir.join("o.dat"), CONSUMER_BYTES_MAX) {
            Ok(bytes) => Some(bytes),
            Err(ArchiveError::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        bytes += state.as_ref().map_or(0, |state| state.len() as u64);
        ArchiveError::check_size("the states of all consumers", bytes, CONSUMERS_BYTES_MAX)?;
        let place = dir.display().to_string();
        consumers.push(consumer_of(&name, &meta, state.as_deref(), &place)?);
        ArchiveError::check_size("a list of consumers", consumers.len() as u64, CONSUMERS_MAX)?;
    }
    Ok(consumers)
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
