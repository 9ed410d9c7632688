//! What metrics show: what accounts use, the largest streams, and durable consumers of those.

use super::{CONSUMERS_PAGE, View};
use crate::registry::Entry;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{ConsumerInfo, DiscardPolicy, StorageType};
use nuthatch_server::jetstream_port::{
    AccountSample, ConsumerSample, JsSample, LogId, SampleQuery, StreamSample,
};
use nuthatch_streams::op::StreamSize;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use std::collections::HashMap;
use std::sync::Arc;

/// Consumers looked at for each one that may be shown: ephemeral ones are passed over.
const LISTED_PER_SHOWN: usize = 10;

/// A stream of the registry with what its log says of it.
type Found = (Arc<Entry>, StreamSize);

impl View {
    /// One question to each log tells the sizes of all streams; only those that are shown are looked at
    /// further.
    pub(super) async fn sample_of(&self, query: &SampleQuery) -> JsSample {
        let mut sizes: HashMap<(LogId, StreamId), StreamSize> = HashMap::new();
        for (_, log) in self.names.all() {
            // A log that does not answer shows no streams, and is broken in the health check.
            if let Ok(OpOutcome::Sizes(found)) = self.calls.run(log, Op::Sizes).await {
                sizes.extend(found.into_iter().map(|size| ((log, size.id), size)));
            }
        }
        let accounts = self
            .accounts
            .ids(self.streams.read().accounts())
            .into_iter()
            .map(|id| (id, self.accounts.name_of(id)));
        let accounts: Vec<(AccountId, String)> = accounts.collect();
        let mut sample = JsSample::default();
        let mut chosen: Vec<Found> = Vec::new();
        for (id, name) in &accounts {
            let entries: Vec<Arc<Entry>> = self.streams.read().of_account(*id).cloned().collect();
            let found = entries.into_iter().filter_map(|entry| {
                let size = *sizes.get(&(entry.engine, entry.id))?;
                Some((entry, size))
            });
            let found: Vec<Found> = found.collect();
            sample.accounts.push(self.account_sample(*id, name, &found));
            let fits = |(entry, _): &Found| {
                let patterns = &query.streams;
                patterns.is_empty() || patterns.iter().any(|p| is_like(p, &entry.config.name))
            };
            chosen.extend(found.into_iter().filter(fits));
        }
        sample.streams_omitted = keep_largest(&mut chosen, query.streams_max);
        let names: HashMap<AccountId, String> = accounts.into_iter().collect();
        self.sample_chosen(&chosen, &names, query.consumers_max, &mut sample).await;
        sample
    }

    fn account_sample(&self, id: AccountId, name: &str, found: &[Found]) -> AccountSample {
        let bytes = |in_memory: bool| {
            let is_here =
                |entry: &Entry| (entry.config.storage == StorageType::Memory) == in_memory;
            let here = found.iter().filter(|(entry, _)| is_here(entry));
            here.map(|(_, size)| size.bytes).sum()
        };
        let limits = self.accounts.own_limits_of(id);
        AccountSample {
            account: name.to_owned(),
            streams: found.len() as u64,
            consumers: found.iter().map(|(_, size)| size.consumers).sum(),
            store_bytes: bytes(false),
            memory_bytes: bytes(true),
            max_streams: limits.and_then(|limits| limits.max_streams),
            max_store_bytes: limits.and_then(|limits| limits.max_store_bytes),
            max_memory_bytes: limits.and_then(|limits| limits.max_memory_bytes),
        }
    }

    async fn sample_chosen(
        &self,
        chosen: &[Found],
        names: &HashMap<AccountId, String>,
        consumers_max: usize,
        sample: &mut JsSample,
    ) {
        let mut listed_max = consumers_max.saturating_mul(LISTED_PER_SHOWN);
        for (entry, size) in chosen {
            let account = names.get(&entry.account).map_or("", String::as_str);
            let shown = stream_sample(account, entry, size);
            if size.consumers > 0 {
                let room = consumers_max.saturating_sub(sample.consumers.len());
                let (found, more) = self.sample_consumers(entry, room, &mut listed_max).await;
                sample.consumers_omitted |= more;
                let shown = |info| consumer_sample(account, &entry.config.name, info);
                sample.consumers.extend(found.iter().map(shown));
            }
            sample.streams.push(shown);
        }
        sample.consumers_omitted |= sample.streams_omitted > 0;
    }

    /// Up to `room` durable consumers of a stream, and whether there may be more.
    async fn sample_consumers(
        &self,
        entry: &Entry,
        room: usize,
        listed_max: &mut usize,
    ) -> (Vec<ConsumerInfo>, bool) {
        let mut found: Vec<ConsumerInfo> = Vec::new();
        let mut offset = 0;
        loop {
            let limit = CONSUMERS_PAGE.min(*listed_max);
            if limit == 0 || found.len() >= room {
                return (found, true);
            }
            let op = Op::ListConsumers { id: entry.id, offset, limit, names_only: false };
            let Ok(OpOutcome::Consumers { total, infos, .. }) =
                self.calls.run(entry.engine, op).await
            else {
                return (found, true);
            };
            offset += infos.len();
            *listed_max -= infos.len().min(*listed_max);
            let is_last = infos.is_empty() || offset >= total;
            found.extend(infos.into_iter().filter(is_durable));
            if is_last {
                let more = found.len() > room;
                found.truncate(room);
                return (found, more);
            }
        }
    }
}

fn is_durable(info: &ConsumerInfo) -> bool {
    !info.config.durable_name.is_empty()
}

/// Leaves the largest ones, in the order they had; how many went.
fn keep_largest(found: &mut Vec<Found>, max: usize) -> usize {
    let omitted = found.len().saturating_sub(max);
    if omitted == 0 {
        return 0;
    }
    // Those of one size by their identity, so that the same ones are shown each time.
    let rank = |(entry, size): &Found| (std::cmp::Reverse(size.bytes), entry.account.0, entry.id);
    let mut ranks: Vec<_> = found.iter().map(rank).collect();
    if max == 0 {
        found.clear();
        return omitted;
    }
    let (_, last, _) = ranks.select_nth_unstable(max - 1);
    let last = *last;
    found.retain(|one| rank(one) <= last);
    omitted
}

/// True if a name matches a pattern in which `*` stands for any text.
fn is_like(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

fn stream_sample(account: &str, entry: &Entry, size: &StreamSize) -> StreamSample {
    let config = &entry.config;
    let limit = |most: i64| u64::try_from(most).ok().filter(|&most| most > 0);
    StreamSample {
        account: account.to_owned(),
        stream: config.name.clone(),
        messages: size.messages,
        bytes: size.bytes,
        last_seq: size.last_seq,
        last_at: size.last_at,
        consumers: size.consumers,
        max_bytes: limit(config.max_bytes),
        max_messages: limit(config.max_msgs),
        refuses_when_full: config.discard == DiscardPolicy::New,
    }
}

fn consumer_sample(account: &str, stream: &str, info: &ConsumerInfo) -> ConsumerSample {
    ConsumerSample {
        account: account.to_owned(),
        stream: stream.to_owned(),
        consumer: info.name.clone(),
        pending: info.num_pending,
        ack_pending: info.num_ack_pending,
        redelivered: info.num_redelivered,
        waiting: info.num_waiting,
        delivered: info.delivered.consumer_seq,
        ack_floor: info.ack_floor.stream_seq,
        oldest_ack_pending: info.oldest_ack_pending,
        last_delivered_at: info.delivered.last_active,
        last_acked_at: info.ack_floor.last_active,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_protocol::js::{StreamConfig, Time};

    #[test]
    fn names_match_patterns() {
        let yes = [
            ("*", ""),
            ("*", "A"),
            ("A", "A"),
            ("A*", "A"),
            ("A*", "AB"),
            ("*B", "AB"),
            ("A*C*E", "ABCDE"),
            ("A**", "A"),
            ("*a*a", "aa"),
            ("ä*", "äö"),
        ];
        for (pattern, name) in yes {
            assert!(is_like(pattern, name), "{pattern} {name}");
        }
        let no = [("", "A"), ("A", "AB"), ("A*", "B"), ("*B", "BA"), ("A*A", "A"), ("*a*a", "a")];
        for (pattern, name) in no {
            assert!(!is_like(pattern, name), "{pattern} {name}");
        }
    }

    fn found(sizes: &[(u32, u64)]) -> Vec<Found> {
        let one = |&(id, bytes): &(u32, u64)| {
            let config =
                Arc::new(StreamConfig { name: format!("S{id}"), ..StreamConfig::default() });
            let (id, account) = (StreamId(id), AccountId(0));
            let entry = Entry { id, engine: LogId(1), account, config, created: Time(0) };
            let size = StreamSize {
                id,
                account,
                messages: 1,
                bytes,
                last_seq: 1,
                last_at: None,
                consumers: 0,
            };
            (Arc::new(entry), size)
        };
        sizes.iter().map(one).collect()
    }

    #[test]
    fn the_largest_streams_are_kept_in_their_order() {
        let check = |max: usize, ids: &[u32], omitted: usize| {
            let mut found = found(&[(1, 5), (2, 9), (3, 5), (4, 7)]);
            assert_eq!(keep_largest(&mut found, max), omitted);
            let kept: Vec<u32> = found.iter().map(|(entry, _)| entry.id.0).collect();
            assert_eq!(kept, ids);
        };
        check(9, &[1, 2, 3, 4], 0);
        check(4, &[1, 2, 3, 4], 0);
        check(3, &[1, 2, 4], 1);
        check(2, &[2, 4], 2);
        check(0, &[], 4);
    }
}
