//! What is stored, by whom, and how much more fits.

use super::super::table::{self as t, Metric};
use super::super::{Family, Number, Sample};
use super::put_all;
use crate::jetstream_port::{AccountSample, ConsumerSample, JsSample, StreamSample};
use crate::server::Server;
use nuthatch_protocol::js::Time;

type Labels<'a> = Vec<&'a str>;

/// What accounts store, and may.
pub(super) fn of_accounts(page: &mut Vec<Family>, sample: &JsSample) {
    let shown = &sample.accounts[..sample.accounts.len().min(super::ACCOUNTS_MAX)];
    let name = |a: &'_ AccountSample| a.account.clone();
    let mut one = |metric, value: fn(&AccountSample) -> Option<u64>| {
        let row = |a: &AccountSample| Some(sample_of(vec![name(a)], value(a)?));
        page.push(Family { metric, samples: shown.iter().filter_map(row).collect() });
    };
    one(&t::ACCOUNT_STREAMS, |a| Some(a.streams));
    one(&t::ACCOUNT_CONSUMERS, |a| Some(a.consumers));
    one(&t::ACCOUNT_STREAMS_LIMIT, |a| a.max_streams);
    let mut both = |metric, values: fn(&AccountSample) -> [Option<u64>; 2]| {
        let rows = shown.iter().flat_map(|a| {
            let of = ["file", "memory"].into_iter().zip(values(a));
            of.filter_map(|(storage, value)| {
                Some(sample_of(vec![name(a), storage.to_owned()], value?))
            })
        });
        page.push(Family { metric, samples: rows.collect() });
    };
    both(&t::ACCOUNT_STORED, |a| [Some(a.store_bytes), Some(a.memory_bytes)]);
    both(&t::ACCOUNT_STORED_LIMIT, |a| [a.max_store_bytes, a.max_memory_bytes]);
}

fn sample_of(labels: Vec<String>, value: u64) -> Sample {
    Sample { labels, value: Number::Whole(value) }
}

/// A moment as Prometheus tells it.
fn unix_seconds(at: Time) -> Number {
    Number::Real(at.0 as f64 / 1e9)
}

/// Streams that are shown.
pub(super) fn of_streams(page: &mut Vec<Family>, sample: &JsSample) {
    fn labels(s: &StreamSample) -> Labels<'_> {
        vec![s.account.as_str(), &s.stream]
    }
    fn limited(s: &StreamSample) -> Labels<'_> {
        let discard = if s.refuses_when_full { "new" } else { "old" };
        vec![s.account.as_str(), &s.stream, discard]
    }
    let rows = &sample.streams;
    let mut whole = |metric, value: fn(&StreamSample) -> u64| {
        put_all(page, metric, rows.iter().map(|s| (labels(s), value(s))));
    };
    whole(&t::STREAM_MESSAGES, |s| s.messages);
    whole(&t::STREAM_BYTES, |s| s.bytes);
    whole(&t::STREAM_LAST, |s| s.last_seq);
    whole(&t::STREAM_CONSUMERS, |s| s.consumers);
    let mut limit = |metric, value: fn(&StreamSample) -> Option<u64>| {
        put_all(page, metric, rows.iter().filter_map(|s| Some((limited(s), value(s)?))));
    };
    limit(&t::STREAM_BYTES_LIMIT, |s| s.max_bytes);
    limit(&t::STREAM_MESSAGES_LIMIT, |s| s.max_messages);
    let last = rows.iter().filter_map(|s| Some((labels(s), unix_seconds(s.last_at?))));
    put_numbers(page, &t::STREAM_LAST_TIME, last);
}

/// Durable consumers that are shown.
pub(super) fn of_consumers(page: &mut Vec<Family>, sample: &JsSample) {
    fn labels(c: &ConsumerSample) -> Labels<'_> {
        vec![c.account.as_str(), &c.stream, &c.consumer]
    }
    let rows = &sample.consumers;
    let mut whole = |metric, value: fn(&ConsumerSample) -> u64| {
        put_all(page, metric, rows.iter().map(|c| (labels(c), value(c))));
    };
    whole(&t::CONSUMER_PENDING, |c| c.pending);
    whole(&t::CONSUMER_ACK_PENDING, |c| c.ack_pending);
    whole(&t::CONSUMER_REDELIVERED, |c| c.redelivered);
    whole(&t::CONSUMER_WAITING, |c| c.waiting);
    whole(&t::CONSUMER_DELIVERED, |c| c.delivered);
    whole(&t::CONSUMER_ACK_FLOOR, |c| c.ack_floor);
    let now = crate::wall_time::now_ns();
    let age = |at: Time| (now.saturating_sub(at.0)).max(0) as f64 / 1e9;
    let oldest =
        rows.iter().map(|c| (labels(c), Number::Real(c.oldest_ack_pending.map_or(0.0, age))));
    put_numbers(page, &t::CONSUMER_OLDEST, oldest);
    let mut times = |metric, value: fn(&ConsumerSample) -> Option<Time>| {
        let known = rows.iter().filter_map(|c| Some((labels(c), unix_seconds(value(c)?))));
        put_numbers(page, metric, known);
    };
    times(&t::CONSUMER_LAST_DELIVERY, |c| c.last_delivered_at);
    times(&t::CONSUMER_LAST_ACK, |c| c.last_acked_at);
}

fn put_numbers<'a>(
    page: &mut Vec<Family>,
    metric: &'static Metric,
    samples: impl Iterator<Item = (Labels<'a>, Number)>,
) {
    let sample = |(labels, value): (Labels<'a>, Number)| Sample {
        labels: labels.into_iter().map(str::to_owned).collect(),
        value,
    };
    page.push(Family { metric, samples: samples.map(sample).collect() });
}

/// File systems of logs in directories: asking one that fails may take long.
pub(super) async fn of_media(page: &mut Vec<Family>, server: &Server) {
    let places: Vec<(String, String)> = {
        let locations = server.logs.locations();
        let local = locations.iter().filter(|log| log.mode != "object");
        local.map(|log| (log.name.clone(), log.home.clone())).collect()
    };
    let asking = tokio::task::spawn_blocking(move || {
        let asked = places.into_iter().filter_map(|(log, home)| {
            let told = rustix::fs::statvfs(home.as_str()).ok()?;
            let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
            Some((log, bytes(told.f_blocks), bytes(told.f_bavail)))
        });
        asked.collect::<Vec<_>>()
    });
    // One that does not tell is left out.
    let told = asking.await.unwrap_or_default();
    put_all(page, &t::LOG_MEDIUM, told.iter().map(|(log, all, _)| (vec![log.as_str()], *all)));
    put_all(
        page,
        &t::LOG_MEDIUM_FREE,
        told.iter().map(|(log, _, free)| (vec![log.as_str()], *free)),
    );
}
