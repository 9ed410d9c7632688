//! Files that trimmed entries have made, from one node to another, on a connection of their own.
//!
//! Whoever lacks them connects and asks: first for the snapshot (what the files are, and the last entry that made
//! them), then for parts of the files, one at a time. The files go on being changed meanwhile by later entries, which
//! whoever gets them applies again.

use crate::channel::Channel;
use crate::coding::{Malformed, Reader, Writer};
use crate::framed::{put_answer, read_answer};
use crate::hello::Lane;
use crate::incoming::{self, INCOMING_DIR};
use crate::links::{Local, connect};
use crate::operation::FileId;
use crate::records;
use crate::replica::{self, FileRange, STATE, Snapshot};
use crate::trim_holds::TrimHold;
use nuthatch_log::env::Disk;
use nuthatch_quorum::entry::Base;
use nuthatch_quorum::types::{Incarnation, Lsn, NodeId};
use std::io::{self, Read, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Bytes of one part of a file.
pub const PART_BYTES: u32 = 1 << 20;

/// Most bytes of the snapshot's description: names of about a million files.
const STATE_MAX: u32 = 64 << 20;

/// Bytes of a question.
const QUESTION_BYTES: usize = 24;

/// How long a connection, a hello, an answer may take.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Who has announced files, and up to which entry.
#[derive(Clone, Copy, Debug)]
pub struct Announced {
    /// The node, and the disk on which the files are.
    pub by: (NodeId, Incarnation),
    /// The last entry that has made them, or an earlier one.
    pub base: Lsn,
}

/// Where files come from.
pub trait FileSource: Send + Sync {
    /// The files as they are now, and where the log's entries go on behind them, which are held from now on.
    ///
    /// # Errors
    /// The disk's, and that the entry cannot be read now.
    fn snapshot(&self) -> io::Result<(Base, Snapshot, TrimHold)>;
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    Snapshot,
    Part { file: FileId, at: u64, len: u32 },
}

impl Question {
    fn encode(self) -> [u8; QUESTION_BYTES] {
        let mut to = Writer::default();
        let (kind, file, at, len) = match self {
            Self::Snapshot => (1, 0, 0, 0),
            Self::Part { file, at, len } => (2, file.0, at, len),
        };
        to.u32(kind);
        to.u32(len);
        to.u64(file);
        to.u64(at);
        to.0.try_into().expect("as long as a question")
    }

    fn decode(bytes: &[u8; QUESTION_BYTES]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let (kind, len, file, at) = (from.u32()?, from.u32()?, FileId(from.u64()?), from.u64()?);
        match kind {
            1 => Ok(Self::Snapshot),
            2 if len <= PART_BYTES => Ok(Self::Part { file, at, len }),
            _ => Err(crate::coding::malformed("a question for files of another kind")),
        }
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Answers what a node asks for, until it ends the connection.
///
/// # Errors
/// The connection's, the disk's, and `InvalidData` for questions that are none.
pub fn answer(mut channel: Channel, source: &dyn FileSource) -> io::Result<()> {
    let mut taken: Option<(Snapshot, TrimHold)> = None;
    let mut bytes = [0; QUESTION_BYTES];
    loop {
        channel.read_exact(&mut bytes)?;
        let answer = match Question::decode(&bytes).map_err(invalid)? {
            Question::Snapshot => {
                let (base, snapshot, hold) = source.snapshot()?;
                let mut to = Writer::default();
                records::put_base(&mut to, &base);
                to.0.extend_from_slice(&snapshot.state);
                taken = Some((snapshot, hold));
                to.0
            }
            Question::Part { file, at, len } => {
                let files = taken.as_ref().map(|(snapshot, _)| &snapshot.files);
                let open = files.and_then(|files| files.get(&file));
                let (open, _) = open.ok_or_else(|| invalid("it asks for a file that is none"))?;
                let mut part = vec![0; len as usize];
                let read = open.read_at(&mut part, at)?;
                part.truncate(read);
                part
            }
        };
        put_answer(&mut channel, &answer)?;
    }
}

fn ask(channel: &mut Channel, question: Question, max: u32) -> io::Result<Vec<u8>> {
    channel.write_all(&question.encode())?;
    channel.flush()?;
    read_answer(channel, max)
}

/// Brings the files of another node into `incoming/`, durably, and gives the place where its entries go on.
/// `progress` is called after each part with its bytes.
///
/// # Errors
/// The connection's, the disk's, and `InvalidData` for answers that do not fit together.
pub fn fetch(
    (address, announced): (SocketAddr, Announced),
    local: &dyn Local,
    disk: &dyn Disk,
    mut progress: impl FnMut(u64),
) -> io::Result<Base> {
    incoming::clear(disk)?;
    let deadline = Instant::now() + TIMEOUT;
    let (mut channel, hello) = connect(address, Lane::Files, local, deadline)?;
    if (hello.node, hello.incarnation) != announced.by {
        return Err(invalid("another disk is there than the one that announced files"));
    }
    channel.begun(TIMEOUT, TIMEOUT)?;
    let answer = ask(&mut channel, Question::Snapshot, STATE_MAX)?;
    let mut reader = Reader(&answer);
    let base = records::base(&mut reader).map_err(invalid)?;
    let state = reader.0;
    let (applied, files) = replica::read_state(state)?;
    if applied != base.lsn {
        return Err(invalid("the files are of another entry than the log goes on behind"));
    }
    if base.lsn < announced.base {
        return Err(invalid("the files are older than those that were announced"));
    }
    let (wanted, free) = (files.iter().map(|(_, len)| *len).sum::<u64>(), disk.free_bytes()?);
    if wanted > free {
        let text = format!(
            "files of {wanted} bytes do not fit beside those that are here: {free} are free"
        );
        return Err(io::Error::new(io::ErrorKind::StorageFull, text));
    }
    for (file, len) in files {
        fetch_file(&mut channel, disk, (file, len), &mut progress)?;
    }
    let into = disk.create(&format!("{INCOMING_DIR}/{STATE}"))?;
    into.write_at(state, 0)?;
    into.sync()?;
    disk.sync_dir(INCOMING_DIR)?;
    Ok(base)
}

/// A part of a file as another node has it.
pub struct Part {
    /// All entries up to this one were applied before it was read.
    pub before: Lsn,
    /// None behind this one was.
    pub after: Lsn,
    /// The bytes, fewer where the file ends.
    pub bytes: Vec<u8>,
}

/// Asks a node for a part of a file, of at most [`PART_BYTES`].
///
/// # Errors
/// The connection's, also where the file is not there; `InvalidData` for answers that do not fit together.
pub fn fetch_part(
    (address, node): (SocketAddr, NodeId),
    local: &dyn Local,
    range: FileRange,
) -> io::Result<Part> {
    let deadline = Instant::now() + TIMEOUT;
    let (mut channel, hello) = connect(address, Lane::Files, local, deadline)?;
    if hello.node != node {
        return Err(invalid("another node is there"));
    }
    channel.begun(TIMEOUT, TIMEOUT)?;
    let applied = |channel: &mut Channel| {
        let answer = ask(channel, Question::Snapshot, STATE_MAX)?;
        records::base(&mut Reader(&answer)).map(|base| base.lsn).map_err(invalid)
    };
    let before = applied(&mut channel)?;
    let len = u32::try_from(range.len.min(u64::from(PART_BYTES))).expect("bounded");
    let part = Question::Part { file: range.file, at: range.at, len };
    let bytes = ask(&mut channel, part, len)?;
    Ok(Part { before, after: applied(&mut channel)?, bytes })
}

fn fetch_file(
    channel: &mut Channel,
    disk: &dyn Disk,
    (file, len): (FileId, u64),
    progress: &mut impl FnMut(u64),
) -> io::Result<()> {
    let into = disk.create(&format!("{INCOMING_DIR}/{}", replica::file_name(file)))?;
    let mut at = 0;
    while at < len {
        let wanted = u32::try_from((len - at).min(u64::from(PART_BYTES))).expect("bounded");
        let part = ask(channel, Question::Part { file, at, len: wanted }, wanted)?;
        if part.is_empty() {
            // It was cut since: the entry that did that is applied here, too.
            break;
        }
        into.write_at(&part, at)?;
        at += part.len() as u64;
        progress(part.len() as u64);
    }
    into.set_len(len)?;
    into.sync()
}
