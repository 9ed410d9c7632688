//! What an account knows of other nodes: their tables, what is offline, and what they were asked.

use super::between::Between;
use super::offline::OfflineStreams;
use super::table::{NodeTable, Told};
use super::{
    Answered, Leader, NodeState, OwnStream, QUESTIONS_MAX, ServedStream, StreamsOfLog, TableChange,
};
use crate::logs::is_quorum_log;
use crate::wall_time;
use bytes::Bytes;
use nuthatch_protocol::js::StreamConfig;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What an account knows of other nodes.
#[derive(Default)]
pub(super) struct Known {
    /// What this node said of itself last.
    pub(super) state: NodeState,
    /// Its streams in the log in memory, by name.
    pub(super) in_memory: BTreeMap<String, Arc<StreamConfig>>,
    pub(super) nodes: BTreeMap<String, NodeTable>,
    pub(super) offline: OfflineStreams,
    /// Those of quorum logs that have no owner just now.
    pub(super) between: Between,
    /// Changes with what is to be remembered of streams that are on one node only.
    pub(super) remembered: u64,
    pub(super) questions: FxHashMap<u64, (String, Answered)>,
    pub(super) next_question: u64,
    pub(super) next_key: u64,
    /// When this node has said something last.
    pub(super) as_of_ms: u64,
    /// The quorum logs that this node has, and when it came to have them in the order of all that was told.
    pub(super) log_keys: FxHashMap<String, u64>,
}

impl Known {
    /// Takes a part of a node's table; `None`: the node is not known, `None` within: nothing of its table is new.
    pub(super) fn take(&mut self, node: &str, told: Told) -> Option<Option<TableChange>> {
        if told.is_first {
            self.remember(node);
        }
        self.lacks_of(node, &told.state.logs, &told.gone);
        let table = self.nodes.get_mut(node)?;
        if told.is_first {
            let (is_told, is_core) = (table.is_told, table.is_core);
            let gets = std::mem::take(&mut table.gets);
            *table = NodeTable::new(table.outlet.clone(), &table.token);
            (table.is_told, table.is_core, table.gets) = (is_told, is_core, gets);
        }
        let was_complete = table.is_complete;
        let lost = table.logs_not_in(node, &told.state);
        self.next_key += 1;
        note_logs(&mut table.log_keys, &told.state, self.next_key);
        let was = std::mem::replace(&mut table.state, told.state);
        table.as_of_ms = told.as_of_ms;
        let is_same = was.is_but_for_counts(&table.state);
        let is_news = told.is_first || !told.come.is_empty() || !told.gone.is_empty() || !is_same;
        told.gone.iter().for_each(|name| table.forget(name));
        let mut come = Vec::with_capacity(told.come.len());
        for stream in told.come {
            self.next_key += 1;
            if is_quorum_log(&stream.log) {
                self.remembered += u64::from(self.offline.forget_stream(&stream.name));
            }
            come.extend(table.take(stream, self.next_key));
        }
        table.is_complete = (table.is_complete || told.is_last) && !table.is_full;
        let is_complete = table.is_complete;
        if is_complete && told.is_last {
            self.between.are_owned(&table.state.logs);
        }
        let offline = told.offline.and_then(|part| table.take_offline(part));
        // With the last part of what it tells: until then what was known of the log counts.
        let own_logs = table.state.own_logs.iter().filter(|_| is_complete && told.is_last);
        let back = own_logs.filter(|log| self.offline.is_here(log.identity)).count();
        let is_news_of_own = is_news && table.has_own_logs() || !lost.is_empty() || back > 0;
        self.remembered += u64::from(is_news_of_own);
        let is_learnt = self.learn(lost.into_iter().chain(offline));
        let is_news = is_news || is_learnt || is_complete != was_complete;
        let change = TableChange { is_first: told.is_first, come, gone: told.gone, is_complete };
        Some(is_news.then_some(change))
    }

    /// A node's table is about to go: what only it has is offline until it tells of it again.
    pub(super) fn remember(&mut self, node: &str) {
        for mut log in self.own_streams_of(node) {
            let is_elsewhere = self.is_at_another(Some(node), log.identity);
            // What the node was telling of again just now is known as it was.
            if !is_elsewhere && !self.offline.knows(log.identity) {
                log.streams.retain(|stream| !self.has_moved(node, &stream.name));
                self.offline.take(log);
                self.remembered += 1;
            }
        }
    }

    /// What a node alone has, as it told.
    pub(super) fn own_streams_of(&self, node: &str) -> Vec<StreamsOfLog> {
        let table = self.nodes.get(node).filter(|table| table.is_complete);
        let mut logs = table.map_or_else(Vec::new, |table| table.own_streams(node));
        logs.iter_mut().for_each(|log| self.offline.renew(log));
        logs
    }

    /// True if the log of this identity is here, or at another node than this one.
    fn is_at_another(&self, node: Option<&str>, identity: u64) -> bool {
        let mut others = self.nodes.iter().filter(|(other, _)| Some(other.as_str()) != node);
        self.state.has(identity)
            || others.any(|(_, table)| table.is_complete && table.state.has(identity))
    }

    /// True if a stream is served by another node than this one from a quorum log, to which it was moved.
    fn has_moved(&self, node: &str, name: &str) -> bool {
        let mut others = self.nodes.iter().filter(|(other, _)| *other != node);
        others.any(|(_, table)| {
            table.streams.get(name).is_some_and(|(_, stream)| is_quorum_log(&stream.log))
        })
    }

    /// A stream of this name is served from a quorum log.
    pub(super) fn forget_offline_stream(&mut self, name: &str) {
        self.remembered += u64::from(self.offline.forget_stream(name));
    }

    /// When something is said, ms since 1970: later than all that was said before, wherever the clock is set.
    pub(super) fn next_as_of(&mut self) -> u64 {
        self.as_of_ms = wall_time::now_ms().max(self.as_of_ms + 1);
        self.as_of_ms
    }

    /// Takes what is said of logs that are not there; `true`: there was something new.
    pub(super) fn learn(&mut self, logs: impl Iterator<Item = StreamsOfLog>) -> bool {
        let mut is_new = false;
        for log in logs {
            if !self.is_at_another(None, log.identity) {
                is_new |= self.offline.take(log);
            }
        }
        self.remembered += u64::from(is_new);
        is_new
    }

    /// True if a node that says that it has a log said so behind all others, this one included; also for a log of just one
    /// node.
    pub(super) fn has_last(&self, table: &NodeTable, log: &str) -> bool {
        let Some(since) = table.log_keys.get(log) else { return true };
        let others = self.nodes.values().filter_map(|other| other.log_keys.get(log));
        let own = self.log_keys.get(log).filter(|_| self.state.logs.iter().any(|own| own == log));
        others.chain(own).all(|other| other <= since)
    }

    /// This node is about to say this of itself.
    pub(super) fn note_own_logs(&mut self, state: &NodeState) {
        self.next_key += 1;
        note_logs(&mut self.log_keys, state, self.next_key);
    }

    /// The node that has told of the stream of this name last, and when that was in the order of all that was told.
    pub(super) fn newest(&self, name: &str) -> Option<(&str, u64, &Arc<ServedStream>)> {
        let all = self.nodes.iter().filter_map(|(node, table)| {
            let (key, stream) = table.streams.get(name)?;
            Some((node.as_str(), key, stream))
        });
        all.max_by_key(|(_, key, _)| *key)
    }

    pub(super) fn note_in_memory(&mut self, come: &[OwnStream], gone: &[String]) {
        for stream in come {
            let name = stream.config.name.clone();
            match stream.is_in_quorum_memory() {
                true => self.in_memory.insert(name, stream.config.clone()),
                false => self.in_memory.remove(&name),
            };
        }
        gone.iter().for_each(|name| drop(self.in_memory.remove(name)));
    }

    pub(super) fn question(
        &mut self,
        node: &str,
    ) -> Option<(u64, oneshot::Receiver<Option<Bytes>>)> {
        if self.questions.len() >= QUESTIONS_MAX {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.next_question += 1;
        self.questions.insert(self.next_question, (node.to_owned(), sender));
        Some((self.next_question, receiver))
    }

    pub(super) fn leader(&self) -> Leader {
        let of_nodes = self
            .nodes
            .iter()
            .filter_map(|(name, table)| Some((table.state.leads_in?, Leader::At(name.clone()))));
        let own = self.state.leads_in.map(|epoch| (epoch, Leader::Here));
        let newest = own.into_iter().chain(of_nodes).max_by_key(|(epoch, _)| *epoch);
        newest.map_or(Leader::Nobody, |(_, leader)| leader)
    }
}

/// Notes which quorum logs a node has, and since when.
fn note_logs(keys: &mut FxHashMap<String, u64>, state: &NodeState, key: u64) {
    keys.retain(|log, _| state.logs.contains(log));
    for log in state.logs.iter().filter(|log| is_quorum_log(log)) {
        keys.entry(log.clone()).or_insert(key);
    }
}
