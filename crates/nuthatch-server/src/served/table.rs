//! What one other node serves of an account, as it told, and what it is told.

use super::offline::{OFFLINE_STREAMS_MAX, StreamsOfLog};
use super::stream_set::StreamSet;
use super::{NodeGets, NodeState, OwnLog, OwnStream, ServedStream, TABLE_STREAMS_MAX};
use crate::link::own_subject;
use crate::outlet::Outlet;
use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::wire::leaf::{LeafLine, push_leaf_message_line};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A message's line, about.
const LINE_BYTES: usize = 256;

/// What a stream takes in such a message beside its subjects, about.
const STREAM_BYTES: usize = 128;

/// Streams whose subjects have about so many bytes are told in one message.
const PART_BYTES: usize = 256 << 10;

/// Part of what a node tells.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Told {
    pub(super) state: NodeState,
    /// What came before counts no more.
    pub(super) is_first: bool,
    /// There is no more for now.
    pub(super) is_last: bool,
    pub(super) come: Vec<ServedStream>,
    pub(super) gone: Vec<String>,
    /// When it is said, ms since 1970, by the clock of who says it.
    pub(super) as_of_ms: u64,
    /// A part of what is remembered of streams that are offline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offline: Option<OfflinePart>,
}

/// Part of what is remembered of one log; those of one log come one after the other.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct OfflinePart {
    #[serde(flatten)]
    pub(super) log: StreamsOfLog,
    /// There is no more of it.
    pub(super) is_last: bool,
}

/// Another node.
pub(super) struct NodeTable {
    pub(super) outlet: Arc<Outlet>,
    /// What its subjects begin with.
    pub(super) token: Box<str>,
    pub(super) state: NodeState,
    pub(super) streams: StreamSet,
    /// Names of those in the log in memory.
    in_memory: BTreeSet<Arc<str>>,
    /// Names of those in logs of just this node.
    in_own_logs: BTreeSet<Arc<str>>,
    /// How many of the streams are in each log. Asked for with each new stream, so not counted then.
    pub(super) in_logs: FxHashMap<Box<str>, usize>,
    /// How many of the streams serve direct gets for each that they mirror.
    mirrors: FxHashMap<Box<str>, usize>,
    pub(super) is_complete: bool,
    pub(super) is_full: bool,
    /// It has no JetStream, so it serves no stream.
    pub(super) is_core: bool,
    /// It has been told of all streams here, and hears of changes.
    pub(super) is_told: bool,
    /// The quorum logs that it has, and when it said so first in the order of all that was told.
    pub(super) log_keys: FxHashMap<String, u64>,
    /// What it does with direct gets of this node's clients.
    pub(super) gets: NodeGets,
    /// It has not answered in time, and has said nothing since.
    pub(super) is_late: bool,
    /// When it said what is here, by its clock.
    pub(super) as_of_ms: u64,
    /// What it remembers of a log, as far as that has come.
    offline: Option<StreamsOfLog>,
}

/// The stream for which one serves direct gets while that is not there.
fn stands_for(stream: &ServedStream) -> Option<&str> {
    let origin = stream.mirror.as_ref().filter(|_| stream.mirror_direct)?;
    Some(&origin.name)
}

impl NodeTable {
    pub(super) fn new(outlet: Arc<Outlet>, token: &str) -> Self {
        Self {
            outlet,
            token: token.into(),
            state: NodeState::default(),
            streams: StreamSet::default(),
            in_memory: BTreeSet::default(),
            in_own_logs: BTreeSet::default(),
            in_logs: FxHashMap::default(),
            mirrors: FxHashMap::default(),
            is_complete: false,
            is_full: false,
            is_core: false,
            is_told: false,
            log_keys: FxHashMap::default(),
            gets: NodeGets::default(),
            is_late: false,
            as_of_ms: 0,
            offline: None,
        }
    }

    pub(super) fn send(&self, what: &str, headers: &[u8], body: &[u8]) {
        self.send_as((own_subject(&self.token, what).as_bytes(), b""), headers, body);
    }

    pub(super) fn send_as(&self, names: (&[u8], &[u8]), headers: &[u8], body: &[u8]) {
        self.outlet.hand_over(message_of_node(names, headers, body));
    }

    /// Tells of these streams, in parts; `offline`, with all that there are, is what is remembered of those that are offline.
    pub(super) fn tell(
        &self,
        (state, as_of_ms): (&NodeState, u64),
        come: &[OwnStream],
        gone: Vec<String>,
        offline: Option<&[StreamsOfLog]>,
    ) {
        let is_whole = offline.is_some();
        let next = || Told { state: state.clone(), as_of_ms, ..Told::default() };
        let (mut told, mut bytes) = (Told { is_first: is_whole, gone, ..next() }, 0);
        // Once the last part is there, this must be.
        for log in offline.unwrap_or_default() {
            for part in parts_of(log) {
                told.offline = Some(part);
                self.send_part(&told);
                told = next();
            }
        }
        for stream in come {
            bytes += bytes_of(&stream.config.subjects);
            told.come.push(stream.told());
            if bytes >= PART_BYTES {
                self.send_part(&told);
                (told, bytes) = (next(), 0);
            }
        }
        told.is_last = true;
        self.send_part(&told);
    }

    fn send_part(&self, told: &Told) {
        let body = serde_json::to_vec(told).expect("plain structs become JSON");
        self.send("T", b"", &body);
    }

    /// Configurations of its streams in the log in memory, by name.
    pub(super) fn in_memory(&self) -> Vec<StreamConfig> {
        let streams = self.in_memory.iter().filter_map(|name| self.streams.get(name));
        streams.filter_map(|(_, stream)| stream.whole.as_deref().cloned()).collect()
    }

    pub(super) fn forget(&mut self, name: &str) {
        let Some(stream) = self.streams.remove(name) else { return };
        self.in_memory.remove(name);
        self.in_own_logs.remove(name);
        *self.in_logs.get_mut(stream.log.as_str()).expect("it was counted") -= 1;
        if let Some(origin) = stands_for(&stream) {
            let count = self.mirrors.get_mut(origin).expect("it was counted");
            *count -= 1;
            if *count == 0 {
                self.mirrors.remove(origin);
            }
        }
    }

    /// True if one of its streams serves direct gets for this one while that is not there.
    pub(super) fn mirrors(&self, origin: &str) -> bool {
        self.mirrors.contains_key(origin)
    }

    /// Takes a stream, new or changed; its name, if there is room for it.
    pub(super) fn take(&mut self, stream: ServedStream, key: u64) -> Option<Arc<str>> {
        self.forget(&stream.name);
        if self.streams.len() >= TABLE_STREAMS_MAX {
            self.is_full = true;
            return None;
        }
        *self.in_logs.entry(stream.log.as_str().into()).or_default() += 1;
        if let Some(origin) = stands_for(&stream) {
            *self.mirrors.entry(origin.into()).or_default() += 1;
        }
        let is_in_memory = stream.whole.is_some();
        let is_own = self.state.own_log(&stream.log).is_some();
        let name = self.streams.insert(stream, key);
        if is_in_memory {
            self.in_memory.insert(name.clone());
        }
        if is_own {
            self.in_own_logs.insert(name.clone());
        }
        Some(name)
    }

    /// True if it has logs that are on no other node.
    pub(super) fn has_own_logs(&self) -> bool {
        !self.state.own_logs.is_empty()
    }

    /// Its streams that are on no other node, by its logs.
    pub(super) fn own_streams(&self, node: &str) -> Vec<StreamsOfLog> {
        self.streams_of(node, &self.state.own_logs)
    }

    /// Those of logs that it does not have as this state says: a log was closed, its streams were not deleted.
    pub(super) fn logs_not_in(&self, node: &str, state: &NodeState) -> Vec<StreamsOfLog> {
        let gone = self.state.own_logs.iter().filter(|log| !state.has(log.identity));
        let gone: Vec<OwnLog> = gone.filter(|_| self.is_complete).cloned().collect();
        self.streams_of(node, &gone)
    }

    fn streams_of(&self, node: &str, logs: &[OwnLog]) -> Vec<StreamsOfLog> {
        let of_log = |log: &OwnLog| {
            let all = self.in_own_logs.iter().filter_map(|name| self.streams.get(name));
            let streams = all.map(|(_, stream)| stream).filter(|stream| stream.log == log.name);
            StreamsOfLog {
                node: node.to_owned(),
                log: log.name.clone(),
                identity: log.identity,
                as_of_ms: self.as_of_ms,
                given_up: 0,
                is_given_up: false,
                streams: streams.map(|stream| (**stream).clone()).collect(),
            }
        };
        logs.iter().map(of_log).collect()
    }

    /// Tells what is known now of streams that are offline.
    pub(super) fn tell_offline(&self, (state, as_of_ms): (&NodeState, u64), logs: &[StreamsOfLog]) {
        for part in logs.iter().flat_map(parts_of) {
            let told = Told {
                state: state.clone(),
                as_of_ms,
                offline: Some(part),
                is_last: true,
                ..Told::default()
            };
            self.send_part(&told);
        }
    }

    /// Takes a part of what the node remembers of a log; all of it with the last one.
    pub(super) fn take_offline(&mut self, part: OfflinePart) -> Option<StreamsOfLog> {
        let OfflinePart { mut log, is_last } = part;
        let is_same =
            |begun: &StreamsOfLog| (&begun.node, begun.identity) == (&log.node, log.identity);
        let begun = self.offline.take().filter(is_same);
        let mut begun = begun.unwrap_or_else(|| without_streams(&log));
        let room = OFFLINE_STREAMS_MAX.saturating_sub(begun.streams.len());
        log.streams.truncate(room);
        begun.streams.append(&mut log.streams);
        if is_last {
            return Some(begun);
        }
        self.offline = Some(begun);
        None
    }
}

/// A message to another node as protocol text: subject and reply, header block or none, and payload.
pub(crate) fn message_of_node(
    (subject, reply): (&[u8], &[u8]),
    headers: &[u8],
    body: &[u8],
) -> Vec<u8> {
    let (header_len, total_len) = (headers.len(), headers.len() + body.len());
    let line = LeafLine { subject, reply, header_len, total_len, ..LeafLine::default() };
    let mut out = Vec::with_capacity(total_len + LINE_BYTES + subject.len() + reply.len());
    push_leaf_message_line(&mut out, &line);
    out.extend_from_slice(headers);
    out.extend_from_slice(body);
    out.extend_from_slice(b"\r\n");
    out
}

/// What streams with these subjects take in a message, about.
fn bytes_of(subjects: &[String]) -> usize {
    STREAM_BYTES + subjects.iter().map(String::len).sum::<usize>()
}

/// What is remembered of a log, in parts: one at least.
fn parts_of(log: &StreamsOfLog) -> Vec<OfflinePart> {
    let begin = || OfflinePart { log: without_streams(log), is_last: false };
    let (mut parts, mut part, mut bytes) = (Vec::new(), begin(), 0);
    for stream in &log.streams {
        bytes += bytes_of(&stream.subjects);
        part.log.streams.push(stream.clone());
        if bytes >= PART_BYTES {
            parts.push(std::mem::replace(&mut part, begin()));
            bytes = 0;
        }
    }
    part.is_last = true;
    parts.push(part);
    parts
}

fn without_streams(log: &StreamsOfLog) -> StreamsOfLog {
    StreamsOfLog {
        node: log.node.clone(),
        log: log.log.clone(),
        identity: log.identity,
        as_of_ms: log.as_of_ms,
        given_up: log.given_up,
        is_given_up: log.is_given_up,
        streams: Vec::new(),
    }
}
