//! What one other node serves of an account, as it told, and what it is told.

use super::{NodeState, OwnStream, ServedStream, TABLE_STREAMS_MAX};
use crate::link::own_subject;
use crate::outlet::Outlet;
use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::subject::tree::SubjectTree;
use nuthatch_protocol::wire::leaf::{LeafLine, push_leaf_message_line};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Bound;
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
}

/// Another node.
pub(super) struct NodeTable {
    pub(super) outlet: Arc<Outlet>,
    /// What its subjects begin with.
    pub(super) token: Box<str>,
    pub(super) state: NodeState,
    pub(super) streams: FxHashMap<Arc<str>, (u64, Arc<ServedStream>)>,
    /// Their names.
    names: BTreeSet<Arc<str>>,
    /// Names of those in the log in memory.
    in_memory: BTreeSet<Arc<str>>,
    pub(super) subjects: SubjectTree<u64>,
    /// How many of the streams are in each log, and what those of each storage reserve: file, then memory. Asked for
    /// with each new stream, so not counted then.
    pub(super) in_logs: FxHashMap<Box<str>, usize>,
    /// How many of the streams serve direct gets for each that they mirror.
    mirrors: FxHashMap<Box<str>, usize>,
    pub(super) reserved: [u128; 2],
    pub(super) is_complete: bool,
    pub(super) is_full: bool,
    /// It has no JetStream, so it serves no stream.
    pub(super) is_core: bool,
    /// It has been told of all streams here, and hears of changes.
    pub(super) is_told: bool,
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
            streams: FxHashMap::default(),
            names: BTreeSet::default(),
            in_memory: BTreeSet::default(),
            subjects: SubjectTree::default(),
            in_logs: FxHashMap::default(),
            mirrors: FxHashMap::default(),
            reserved: [0; 2],
            is_complete: false,
            is_full: false,
            is_core: false,
            is_told: false,
        }
    }

    pub(super) fn send(&self, what: &str, headers: &[u8], body: &[u8]) {
        self.send_as((own_subject(&self.token, what).as_bytes(), b""), headers, body);
    }

    pub(super) fn send_as(&self, (subject, reply): (&[u8], &[u8]), headers: &[u8], body: &[u8]) {
        let (header_len, total_len) = (headers.len(), headers.len() + body.len());
        let line = LeafLine { subject, reply, header_len, total_len, ..LeafLine::default() };
        let mut out = Vec::with_capacity(total_len + LINE_BYTES);
        push_leaf_message_line(&mut out, &line);
        out.extend_from_slice(headers);
        out.extend_from_slice(body);
        out.extend_from_slice(b"\r\n");
        self.outlet.hand_over(out);
    }

    /// Tells of these streams, in parts.
    pub(super) fn tell(
        &self,
        state: &NodeState,
        come: &[OwnStream],
        gone: Vec<String>,
        is_whole: bool,
    ) {
        let (mut told, mut bytes) =
            (Told { state: state.clone(), is_first: is_whole, gone, ..Told::default() }, 0);
        for stream in come {
            bytes += STREAM_BYTES + stream.config.subjects.iter().map(String::len).sum::<usize>();
            told.come.push(stream.told());
            if bytes >= PART_BYTES {
                self.send_part(&told);
                (told, bytes) = (Told { state: state.clone(), ..Told::default() }, 0);
            }
        }
        told.is_last = true;
        self.send_part(&told);
    }

    fn send_part(&self, told: &Told) {
        let body = serde_json::to_vec(told).expect("plain structs become JSON");
        self.send("T", b"", &body);
    }

    /// At most `max` of the streams whose names come behind `after`, by name.
    pub(super) fn part(&self, after: Option<&str>, max: usize) -> Vec<Arc<ServedStream>> {
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.names.range::<str, _>((behind, Bound::Unbounded)).take(max);
        names.map(|name| self.streams[name].1.clone()).collect()
    }

    /// Configurations of its streams in the log in memory, by name.
    pub(super) fn in_memory(&self) -> Vec<StreamConfig> {
        let streams = self.in_memory.iter().map(|name| &self.streams[name].1);
        streams.filter_map(|stream| stream.whole.as_deref().cloned()).collect()
    }

    pub(super) fn forget(&mut self, name: &str) {
        let Some((key, stream)) = self.streams.remove(name) else { return };
        self.names.remove(name);
        self.in_memory.remove(name);
        *self.in_logs.get_mut(stream.log.as_str()).expect("it was counted") -= 1;
        let reserved = &mut self.reserved[usize::from(stream.is_memory)];
        *reserved = reserved.checked_sub(u128::from(stream.max_bytes)).expect("it was counted");
        for subject in &stream.subjects {
            self.subjects.remove(subject.as_bytes(), None, &key);
        }
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
        for subject in &stream.subjects {
            self.subjects.insert(subject.as_bytes(), None, key);
        }
        *self.in_logs.entry(stream.log.as_str().into()).or_default() += 1;
        self.reserved[usize::from(stream.is_memory)] += u128::from(stream.max_bytes);
        let name: Arc<str> = stream.name.as_str().into();
        if let Some(origin) = stands_for(&stream) {
            *self.mirrors.entry(origin.into()).or_default() += 1;
        }
        self.names.insert(name.clone());
        if stream.whole.is_some() {
            self.in_memory.insert(name.clone());
        }
        self.streams.insert(name.clone(), (key, Arc::new(stream)));
        Some(name)
    }
}
