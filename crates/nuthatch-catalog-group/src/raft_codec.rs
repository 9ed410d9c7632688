//! The library's messages and entries as bytes of ours: what comes from another node or from a disk is never given to
//! the library's own decoder.

use crate::coding::{Malformed, Reader, Writer, malformed};
use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Message, MessageType, Snapshot};

/// Every kind of message that goes from one member to another, with its number on the wire.
const KINDS: [(u8, MessageType); 11] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgAppendResponse),
    (3, MessageType::MsgRequestVote),
    (4, MessageType::MsgRequestVoteResponse),
    (5, MessageType::MsgSnapshot),
    (6, MessageType::MsgHeartbeat),
    (7, MessageType::MsgHeartbeatResponse),
    (8, MessageType::MsgTimeoutNow),
    (9, MessageType::MsgRequestPreVote),
    (10, MessageType::MsgRequestPreVoteResponse),
    (11, MessageType::MsgTransferLeader),
];

/// Appends an entry.
pub fn put_entry(to: &mut Writer, entry: &Entry) {
    to.u64(entry.index);
    to.u64(entry.term);
    to.bool(entry.entry_type == EntryType::EntryConfChangeV2);
    to.bytes(&entry.data);
    to.bytes(&entry.context);
}

/// Reads an entry.
///
/// # Errors
/// It is none.
pub fn entry(from: &mut Reader<'_>) -> Result<Entry, Malformed> {
    let mut entry = Entry { index: from.u64()?, term: from.u64()?, ..Entry::default() };
    if from.bool()? {
        entry.entry_type = EntryType::EntryConfChangeV2;
    }
    entry.data = from.bytes()?.to_vec().into();
    entry.context = from.bytes()?.to_vec().into();
    if entry.index == 0 || entry.index >= u64::MAX >> 1 {
        return Err(malformed("an entry has a number that none can have"));
    }
    Ok(entry)
}

/// Appends term, vote and commit.
pub fn put_hard(to: &mut Writer, hard: &HardState) {
    to.u64(hard.term);
    to.u64(hard.vote);
    to.u64(hard.commit);
}

/// Reads term, vote and commit.
///
/// # Errors
/// There are none.
pub fn hard(from: &mut Reader<'_>) -> Result<HardState, Malformed> {
    let (term, vote, commit) = (from.u64()?, from.u64()?, from.u64()?);
    Ok(HardState { term, vote, commit, ..HardState::default() })
}

/// Appends a snapshot.
pub fn put_snapshot(to: &mut Writer, snapshot: &Snapshot) {
    let about = snapshot.get_metadata();
    to.u64(about.index);
    to.u64(about.term);
    put_conf(to, about.get_conf_state());
    to.bytes(&snapshot.data);
}

/// Appends who the members are.
pub fn put_conf(to: &mut Writer, conf: &ConfState) {
    for ids in [&conf.voters, &conf.learners, &conf.voters_outgoing, &conf.learners_next] {
        to.all(ids, |to, id| to.u64(*id));
    }
    to.bool(conf.auto_leave);
}

/// Reads who the members are.
///
/// # Errors
/// That is not said.
pub fn conf(from: &mut Reader<'_>) -> Result<ConfState, Malformed> {
    Ok(ConfState {
        voters: from.all(Reader::u64)?,
        learners: from.all(Reader::u64)?,
        voters_outgoing: from.all(Reader::u64)?,
        learners_next: from.all(Reader::u64)?,
        auto_leave: from.bool()?,
        ..ConfState::default()
    })
}

/// Reads a snapshot.
///
/// # Errors
/// It is none.
pub fn snapshot(from: &mut Reader<'_>) -> Result<Snapshot, Malformed> {
    let mut snapshot = Snapshot::default();
    let about = snapshot.mut_metadata();
    (about.index, about.term) = (from.u64()?, from.u64()?);
    about.set_conf_state(conf(from)?);
    snapshot.data = from.bytes()?.to_vec().into();
    Ok(snapshot)
}

/// True if a message is of a kind that goes from one member to another.
#[must_use]
pub fn is_sent(message: &Message) -> bool {
    KINDS.iter().any(|(_, kind)| *kind == message.msg_type)
}

/// Appends a message of a kind that is sent.
pub fn put_message(to: &mut Writer, message: &Message) {
    let kind = KINDS.iter().find(|(_, kind)| *kind == message.msg_type);
    to.u8(kind.expect("a kind that is sent").0);
    for number in [message.to, message.from, message.term, message.log_term, message.index] {
        to.u64(number);
    }
    for number in [message.commit, message.commit_term, message.request_snapshot] {
        to.u64(number);
    }
    to.bool(message.reject);
    to.u64(message.reject_hint);
    to.bytes(&message.context);
    to.u64(message.priority.cast_unsigned());
    to.all(&message.entries, put_entry);
    to.option(message.snapshot.as_ref(), put_snapshot);
}

/// Reads a message.
///
/// # Errors
/// It is none, or of a kind that nobody sends.
pub fn message(from: &mut Reader<'_>) -> Result<Message, Malformed> {
    let number = from.u8()?;
    let kind = KINDS.iter().find(|(code, _)| *code == number);
    let (_, msg_type) = kind.ok_or(malformed("a message of another kind"))?;
    let mut message = Message { msg_type: *msg_type, ..Message::default() };
    (message.to, message.from) = (from.u64()?, from.u64()?);
    (message.term, message.log_term, message.index) = (from.u64()?, from.u64()?, from.u64()?);
    (message.commit, message.commit_term) = (from.u64()?, from.u64()?);
    message.request_snapshot = from.u64()?;
    message.reject = from.bool()?;
    message.reject_hint = from.u64()?;
    message.context = from.bytes()?.to_vec().into();
    message.priority = from.u64()?.cast_signed();
    message.set_entries(from.all(entry)?.into());
    if let Some(snapshot) = from.option(snapshot)? {
        message.set_snapshot(snapshot);
    }
    Ok(message)
}
