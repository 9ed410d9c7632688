//! `/subsz`: the subscriptions, over all accounts or in one.

use super::large::Room;
use super::query::Query;
use super::varz::object;
use crate::interest::InterestStats;
use crate::server::Server;
use crate::subscription::Subscription;
use crate::wall_time::now;
use nuthatch_protocol::subject::{is_valid_literal, matches};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Subscriptions listed unless `limit` says otherwise.
const DEFAULT_LIMIT: usize = 1024;

/// Parameters: `subs` lists subscriptions (`offset`, `limit`), `acc` keeps to one account, `test`
/// to those that would get a message on that subject.
pub(super) fn subsz(server: &Server, query: &Query) -> Result<Value, String> {
    let listed = query.flag("subs")?;
    let (offset, limit) = query.page(DEFAULT_LIMIT)?;
    let test = query.text("test");
    if let Some(subject) = test
        && !is_valid_literal(subject.as_bytes())
    {
        return Err(format!("invalid test subject, must be valid publish subject: {subject}"));
    }
    let wanted = query.account();
    let accounts = server.accounts.all();
    let accounts = accounts.iter().filter(|a| wanted.is_none_or(|name| a.name == name));
    let mut stats = InterestStats::default();
    accounts.for_each(|account| stats.add(account.interest.stats()));
    let mut out = object(json!({ "server_id": server.id, "now": now() }));
    out.append(&mut sublist_stats(&stats));
    let wanted = Wanted { account: wanted, test, offset, limit };
    let (total, page) = if listed { list(server, &wanted) } else { (0, Vec::new()) };
    out.insert("total".to_owned(), json!(total));
    out.insert("offset".to_owned(), json!(offset));
    out.insert("limit".to_owned(), json!(limit));
    if listed {
        let mut room = Room::new(limit);
        let page: Vec<_> = page.iter().map(detail).take_while(|sub| room.take(sub)).collect();
        if !page.is_empty() {
            out.insert("subscriptions_list".to_owned(), Value::Array(page));
        }
    }
    Ok(Value::Object(out))
}

/// Counters of the subscription tree as nats-server shows them. Routes are cached per thread and
/// not in the tree, so that there is no cache to count in, and no fan-out known to it.
pub(super) fn sublist_stats(stats: &InterestStats) -> Map<String, Value> {
    object(json!({
        "num_subscriptions": stats.subscriptions,
        "num_cache": 0,
        "num_inserts": stats.inserts,
        "num_removes": stats.inserts.saturating_sub(stats.subscriptions),
        "num_matches": stats.matches,
        "cache_hit_rate": 0.0,
        "max_fanout": 0,
        "avg_fanout": 0.0,
    }))
}

struct Listed {
    account: String,
    sub: Arc<Subscription>,
}

/// Which subscriptions are listed.
struct Wanted<'a> {
    account: Option<&'a str>,
    test: Option<&'a str>,
    offset: usize,
    limit: usize,
}

/// How many there are, and those of the page.
fn list(server: &Server, wanted: &Wanted<'_>) -> (usize, Vec<Listed>) {
    let (mut total, mut page) = (0, Vec::new());
    let leafs = server.leafs.connections.open();
    for conn in server.connections.open().into_iter().chain(leafs) {
        let session = conn.session();
        if wanted.account.is_some_and(|name| name != session.account.name) {
            continue;
        }
        let subs = conn.subscriptions().into_iter();
        let fits = |sub: &Arc<Subscription>| {
            wanted.test.is_none_or(|subject| matches(&sub.subject, subject.as_bytes()))
        };
        for sub in subs.filter(fits) {
            if total >= wanted.offset && page.len() < wanted.limit {
                page.push(Listed { account: session.account.name.clone(), sub });
            }
            total += 1;
        }
    }
    (total, page)
}

fn detail(listed: &Listed) -> Value {
    let mut out = sub_detail(&listed.sub);
    out.insert("account".to_owned(), json!(listed.account));
    out.insert("account_tag".to_owned(), json!(listed.account));
    Value::Object(out)
}

/// A subscription as `/subsz` and `/connz` show it.
pub(super) fn sub_detail(sub: &Subscription) -> Map<String, Value> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut out = object(json!({
        "subject": text(&sub.subject),
        "sid": text(&sub.sid),
        "msgs": sub.delivered(),
        "cid": sub.outlet.id,
    }));
    if let Some(queue) = &sub.queue {
        out.insert("qgroup".to_owned(), json!(text(queue)));
    }
    if sub.max() > 0 {
        out.insert("max".to_owned(), json!(sub.max()));
    }
    out
}
