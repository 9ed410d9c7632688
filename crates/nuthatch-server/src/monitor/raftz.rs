//! `/raftz`: the quorum logs of a cluster, in the shape in which nats-server shows its raft groups. They are none: what has no
//! counterpart, or what this node does not know, is left out.

use super::connz::go_duration;
use super::query::Query;
use crate::logs::{KeeperSight, QuorumLog};
use crate::nodes::peer_id;
use crate::server::Server;
use nuthatch_cluster::LogSight;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Name under which the log is shown, too, whose owner decides about streams: nats-server's metadata group.
const META: &str = "_meta_";

/// What each entry is.
const KIND: &str = "nuthatch quorum log";

/// The groups by account: all are the system account's. `acc` and `group` keep to one. `None`: this server is in no
/// cluster, or has not found it yet.
pub(super) fn raftz(server: &Server, query: &Query) -> Option<Value> {
    let logs = server.cluster.get()?.logs();
    let system = server.accounts.system().name.as_str();
    if query.account().is_some_and(|account| account != system) {
        return Some(json!({}));
    }
    let mut groups = Map::new();
    for log in logs {
        let sight = log.sight();
        let is_meta = sight.number.0 == 0;
        let names = [Some(sight.name.as_str()), is_meta.then_some(META)];
        for name in names.into_iter().flatten() {
            if query.text("group").is_none_or(|group| group == name) {
                groups.insert(name.to_owned(), group(server, log, &sight));
            }
        }
    }
    Some(if groups.is_empty() { json!({}) } else { json!({ system: groups }) })
}

fn group(server: &Server, log: &QuorumLog, sight: &LogSight) -> Value {
    let options = server.options();
    let own = options.cluster.as_ref().map_or("", |settings| settings.name.as_str());
    let owned = log.owned();
    let mut out = shown(own, owned.is_some(), sight);
    out["traffic_account"] = json!(server.accounts.system().name);
    out["in_memory"] = json!(log.is_in_memory());
    out["in_bucket"] = json!(log.is_in_bucket());
    let logs = server.jetstream().view().logs();
    let served = logs.iter().find(|log| owned.is_some() && log.name == sight.name);
    // What the owner has committed it has applied. It is counted from its first write on.
    if let Some(committed) = served.map(|log| log.stats.durable_lsn).filter(|lsn| *lsn > 0) {
        out["committed"] = json!(committed);
        out["applied"] = json!(committed);
    }
    out
}

/// What a node of the name `own` knows of a log.
fn shown(own: &str, is_owner: bool, sight: &LogSight) -> Value {
    let size = sight.keepers.len();
    let leader = sight.owner.as_ref().map(|owner| peer_id(&owner.name)).unwrap_or_default();
    let is_keeper = sight.keepers.iter().any(|keeper| keeper.node.name == own);
    let peers = sight.keepers_but(own).into_iter();
    let peers: Map<String, Value> =
        peers.map(|keeper| (peer_id(&keeper.node.name), peer(keeper))).collect();
    json!({
        "kind": KIND,
        "log": sight.name,
        "id": peer_id(own),
        "state": if is_owner { "LEADER" } else { "FOLLOWER" },
        "size": size,
        "quorum_needed": size / 2 + 1,
        "observer": !is_keeper,
        "leader": leader,
        "ever_had_leader": sight.epoch.0 > 0,
        "term": sight.epoch.0,
        "system_account": true,
        "peers": peers,
    })
}

/// The owner alone knows what another keeper lacks.
fn peer(keeper: &KeeperSight) -> Value {
    let mut out = json!({ "name": keeper.node.name, "known": true });
    if let Some(silent) = keeper.silent {
        out["last_seen"] = json!(go_duration(nanos(silent)));
    }
    if let Some(lag) = keeper.lag {
        out["lag"] = json!(lag);
    }
    if keeper.lag.is_some() || !keeper.counts {
        out["current"] = json!(keeper.is_current());
    }
    if !keeper.connected {
        out["offline"] = json!(true);
    }
    out
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_cluster::{LogNumber, NodeName};

    fn node(number: u8) -> NodeName {
        let mut node = NodeName { id: Default::default(), name: format!("n{number}") };
        node.id.0 = number;
        node
    }

    fn sight(owner: Option<u8>) -> LogSight {
        let keeper = |id| KeeperSight {
            node: node(id),
            connected: id != 3,
            counts: true,
            silent: (id != 3).then(|| Duration::from_millis(u64::from(id))),
            lag: (owner == Some(1)).then_some(u64::from(id) - 1),
            fit: true,
            cold: false,
        };
        let mut sight = LogSight {
            number: LogNumber(1),
            name: "default-1".to_owned(),
            epoch: Default::default(),
            owner: owner.map(node),
            preferred: node(2),
            keepers: [1, 2, 3].map(keeper).into(),
            wished: Vec::new(),
            drained: std::collections::BTreeSet::new(),
            may_own: std::collections::BTreeSet::new(),
            asked_owner: None,
            owner_is_outside: false,
            set_can_change: false,
        };
        sight.epoch.0 = 7;
        sight
    }

    #[test]
    fn an_owner_shows_the_others_and_what_they_lack() {
        let expected = json!({
            "kind": "nuthatch quorum log", "log": "default-1", "id": "fjFyEjc1", "state": "LEADER",
            "size": 3, "quorum_needed": 2, "observer": false, "leader": "fjFyEjc1",
            "ever_had_leader": true, "term": 7, "system_account": true,
            "peers": {
                "44jzkV9D": { "name": "n2", "known": true, "last_seen": "2ms", "lag": 1, "current": true },
                "BXScrY9i": { "name": "n3", "known": true, "lag": 2, "current": false, "offline": true },
            },
        });
        assert_eq!(shown("n1", true, &sight(Some(1))), expected);
    }

    #[test]
    fn a_keeper_knows_no_lag_and_a_spare_keeps_nothing() {
        let keeper = shown("n2", false, &sight(Some(3)));
        assert_eq!((&keeper["state"], &keeper["leader"]), (&json!("FOLLOWER"), &json!("BXScrY9i")));
        assert_eq!(
            keeper["peers"]["fjFyEjc1"],
            json!({ "name": "n1", "known": true, "last_seen": "1ms" })
        );
        let spare = shown("n9", false, &sight(None));
        assert_eq!((&spare["observer"], &spare["leader"]), (&json!(true), &json!("")));
        assert_eq!(spare["peers"].as_object().map(Map::len), Some(3));
    }
}
