//! Streams that are offline: they are in a log of just one node, and that node is away, or is there without that log.
//!
//! Every node remembers of every other one which streams it had in such logs, as it told last. So a name is not given
//! away, nor a subject, while what has them cannot be asked; and who asks for such a stream is told why it is not there.
//! Whoever connects is told of what is remembered: the newest word of a log counts, by the clock of who said it.

use super::ServedStream;
use super::stream_set::StreamSet;
use nuthatch_protocol::subject::tree::{OverlapSearch, SearchOutcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many offline streams of an account are remembered; of further ones nothing is known, and that is said.
pub const OFFLINE_STREAMS_MAX: usize = 1 << 17;

/// So many logs of an account are remembered with which streams are offline, those without streams included.
const OFFLINE_LOGS_MAX: usize = 256;

/// The streams of a log that is on one node only, as that node told last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamsOfLog {
    /// The node.
    pub node: String,
    /// The log.
    pub log: String,
    /// The log's identity.
    pub identity: u64,
    /// When that was said, ms since 1970, by the clock of who said it.
    pub as_of_ms: u64,
    /// How often what was known of it was given up.
    pub given_up: u32,
    /// It was just now: that counts until its node says itself what it has.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_given_up: bool,
    /// Its streams, by name.
    pub streams: Vec<ServedStream>,
}

impl StreamsOfLog {
    /// True if both say the same, whenever they did.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let facts = |of: &Self| (of.identity, of.given_up, of.is_given_up);
        facts(self) == facts(other)
            && (&self.node, &self.log, &self.streams) == (&other.node, &other.log, &other.streams)
    }
}

/// Which of two words of one log is newer: a log that was given up is known again once its node was there, and clocks
/// decide between words of the same time.
type Age = (u32, bool, u64);

/// A stream that is offline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offline {
    /// The node that had it.
    pub node: String,
    /// In this log.
    pub log: String,
    /// The node is connected: it lacks the log.
    pub is_connected: bool,
}

/// Which log: its node, and its identity.
pub type LogKey = (String, u64);

/// What is remembered of one log.
struct Remembered {
    log: String,
    as_of_ms: u64,
    streams: StreamSet,
    given_up: u32,
    is_given_up: bool,
    /// How many more it had for which there was no room.
    left_out: usize,
}

impl Remembered {
    fn new(log: String, (given_up, is_known, as_of_ms): Age) -> Self {
        Self {
            log,
            as_of_ms,
            given_up,
            is_given_up: !is_known,
            streams: StreamSet::default(),
            left_out: 0,
        }
    }

    fn age(&self) -> Age {
        (self.given_up, !self.is_given_up, self.as_of_ms)
    }
}

/// The offline streams of an account.
#[derive(Default)]
pub(super) struct OfflineStreams {
    logs: BTreeMap<LogKey, Remembered>,
    /// By identity: what was known of a log when it came back. What its node says is newer, whatever its clock says.
    known_before: BTreeMap<u64, (u32, u64)>,
    next_key: u64,
}

impl OfflineStreams {
    /// Remembers what a log has, unless something newer is remembered; `false`: it is.
    pub(super) fn take(&mut self, told: StreamsOfLog) -> bool {
        let age = (told.given_up, !told.is_given_up, told.as_of_ms);
        // It may have been another node's before.
        let mut known = self.logs.iter().filter(|((_, identity), _)| *identity == told.identity);
        if known.any(|(_, known)| known.age() >= age) {
            return false;
        }
        self.logs.retain(|(_, identity), _| *identity != told.identity);
        self.make_room();
        let key = (told.node, told.identity);
        let room = OFFLINE_STREAMS_MAX.saturating_sub(self.count());
        let mut remembered = Remembered::new(told.log, age);
        remembered.left_out = told.streams.len().saturating_sub(room);
        for stream in told.streams.into_iter().take(room) {
            self.next_key += 1;
            // Of two of one name the last one counts.
            remembered.streams.remove(&stream.name);
            remembered.streams.insert(stream, self.next_key);
        }
        self.logs.insert(key, remembered);
        true
    }

    /// There are at most so many logs; the oldest of those without streams goes first, what was given up last.
    fn make_room(&mut self) {
        while self.logs.len() >= OFFLINE_LOGS_MAX {
            let empty = self.logs.iter().filter(|(_, log)| log.streams.is_empty());
            let oldest = empty.min_by_key(|(_, log)| (log.is_given_up, log.as_of_ms));
            let oldest = oldest.map(|(key, _)| key.clone());
            // Those with streams are bounded by these.
            let Some(oldest) = oldest else { return };
            self.logs.remove(&oldest);
        }
    }

    /// A node says itself what the log of this identity has, whichever node had it before; `false`: nothing was remembered.
    pub(super) fn is_here(&mut self, identity: u64) -> bool {
        let of_log = self.logs.extract_if(.., |(_, known), _| *known == identity);
        let before = of_log.map(|(_, log)| (log.given_up, log.as_of_ms)).max();
        let Some(before) = before else { return false };
        if self.known_before.len() >= OFFLINE_LOGS_MAX {
            self.known_before.pop_first();
        }
        let known = self.known_before.entry(identity).or_default();
        *known = (*known).max(before);
        true
    }

    /// What a node says of its log is newer than what was known when it came back.
    pub(super) fn renew(&self, log: &mut StreamsOfLog) {
        let before = self.known_before.get(&log.identity).copied();
        let Some((given_up, as_of_ms)) = before else { return };
        log.given_up = given_up;
        log.as_of_ms = log.as_of_ms.max(as_of_ms.saturating_add(1));
    }

    /// True if something is remembered of the log of this identity.
    pub(super) fn knows(&self, identity: u64) -> bool {
        self.logs.keys().any(|(_, known)| *known == identity)
    }

    /// A stream of this name is served from another log; `false`: none is remembered.
    pub(super) fn forget_stream(&mut self, name: &str) -> bool {
        self.logs
            .values_mut()
            .fold(false, |was_there, log| log.streams.remove(name).is_some() | was_there)
    }

    /// Gives up what is known of a node's logs. What nobody can tell of any more is nobody's: the names are free.
    pub(super) fn give_up(&mut self, node: &str) {
        for ((of, _), log) in &mut self.logs {
            if of == node {
                let age = (log.given_up.saturating_add(1), false, log.as_of_ms);
                *log = Remembered::new(log.log.clone(), age);
            }
        }
    }

    /// Of how many streams there was no room.
    pub(super) fn left_out(&self) -> usize {
        self.logs.values().map(|log| log.left_out).sum()
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.logs.values().map(|log| log.streams.len()).sum()
    }

    /// The logs that have streams.
    pub(super) fn logs(&self) -> Vec<LogKey> {
        let with_streams = self.logs.iter().filter(|(_, log)| !log.streams.is_empty());
        with_streams.map(|(key, _)| key.clone()).collect()
    }

    /// The node of a stream, and its log.
    pub(super) fn find(&self, name: &str) -> Option<(&str, &str)> {
        let mut logs = self.logs.iter();
        logs.find_map(|((node, _), log)| {
            log.streams.has(name).then_some((node.as_str(), log.log.as_str()))
        })
    }

    /// All that is remembered.
    pub(super) fn all(&self) -> Vec<StreamsOfLog> {
        let of_log = |((node, identity), log): (&LogKey, &Remembered)| StreamsOfLog {
            node: node.clone(),
            log: log.log.clone(),
            identity: *identity,
            as_of_ms: log.as_of_ms,
            given_up: log.given_up,
            is_given_up: log.is_given_up,
            streams: log.streams.all().map(|stream| (**stream).clone()).collect(),
        };
        self.logs.iter().map(of_log).collect()
    }

    /// At most `max` streams of each log whose names come behind `after`, by name, with their nodes.
    pub(super) fn part(
        &self,
        after: Option<&str>,
        max: usize,
    ) -> Vec<(String, Vec<Arc<ServedStream>>)> {
        let part = |log: &Remembered| log.streams.part(after, max);
        self.logs.iter().map(|((node, _), log)| (node.clone(), part(log))).collect()
    }

    /// Bytes that streams of this storage reserve, but for the stream of the name `except`.
    pub(super) fn reserved(&self, is_memory: bool, except: &str) -> u128 {
        self.logs.values().map(|log| log.streams.reserved(is_memory, except)).sum()
    }

    /// As [`super::Served::overlaps`], of one log.
    pub(super) fn overlaps(
        &self,
        log: &LogKey,
        search: &mut OverlapSearch<'_>,
        steps: &mut usize,
        except: &str,
    ) -> SearchOutcome {
        let Some(log) = self.logs.get(log) else { return SearchOutcome::Nothing };
        log.streams.overlaps(search, steps, except)
    }
}

#[cfg(test)]
mod tests;
