//! How the nodes of a cluster are: who is there, whose copies are current, and whether another node may be stopped.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::list;
use crate::show::text;

/// What the owner of a log says of another node's copy that is not current.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Behind {
    node: String,
    log: String,
    /// Entries that it lacks, where that is known.
    lag: Option<u64>,
}

/// What the owners of the logs say (`RAFTZ` of each node).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Owners {
    behind: Vec<Behind>,
    owned: BTreeSet<String>,
}

impl Owners {
    fn of(pages: &[Value]) -> Self {
        let mut owners = Self::default();
        let groups = pages.iter().filter_map(Value::as_object).flat_map(|page| page.values());
        let logs = groups.filter_map(Value::as_object).flatten();
        // The first log is there under two names.
        for (_, log) in logs.filter(|(name, log)| log["log"] == **name && log["state"] == "LEADER")
        {
            let name = text(&log["log"]);
            let peers = log["peers"].as_object().into_iter().flat_map(|peers| peers.values());
            for peer in peers.filter(|peer| peer["current"] != true) {
                let (node, lag) = (text(&peer["name"]), peer["lag"].as_u64());
                owners.behind.push(Behind { node, log: name.clone(), lag });
            }
            owners.owned.insert(name);
        }
        owners
    }
}

/// Adds to what a node knows (`NODES`) what the owners of the logs say: `behind` of each node, `unowned` logs, and
/// `may_stop`, whether any one node may be stopped; `why_not` says why not.
pub(super) fn complete(data: &mut Value, pages: &[Value]) {
    let owners = Owners::of(pages);
    let names: Vec<String> = list(data, "log_names").map(text).collect();
    let unowned: Vec<&String> = names.iter().filter(|name| !owners.owned.contains(*name)).collect();
    let mut why: Vec<String> = Vec::new();
    for node in list(data, "nodes").filter(|node| node["spare"] != true) {
        if node["connected"] == false {
            why.push(format!("{} is away", text(&node["name"])));
        } else if let Some(lacks) = lacks(node, &owners, &names) {
            why.push(format!("{} is not current yet in {lacks}", text(&node["name"])));
        }
    }
    why.extend(unowned.iter().map(|log| format!("nobody owns {log}")));
    if !data["replacing"].is_null() || !data["resizing"].is_null() {
        why.push("the nodes that keep the logs are changing".to_owned());
    }
    let unowned = json!(unowned);
    let behind_of = |node: &Value| -> Vec<Value> {
        let of_node = owners.behind.iter().filter(|behind| node["name"] == behind.node.as_str());
        of_node.map(|behind| json!({ "log": behind.log, "lag": behind.lag })).collect()
    };
    for node in data["nodes"].as_array_mut().into_iter().flatten() {
        node["behind"] = Value::Array(behind_of(node));
    }
    data["unowned"] = unowned;
    data["may_stop"] = json!(why.is_empty());
    data["why_not"] = json!(why);
}

/// Adds to what a node knows of the logs (`LOGS`) which copies are behind, as their owners say: `behind` of each log.
pub(super) fn complete_logs(data: &mut Value, pages: &[Value]) {
    let owners = Owners::of(pages);
    for log in data["logs"].as_array_mut().into_iter().flatten() {
        let of_log = owners.behind.iter().filter(|behind| log["name"] == behind.log.as_str());
        let behind = of_log.map(|behind| json!({ "node": behind.node, "lag": behind.lag }));
        log["behind"] = behind.collect();
    }
}

/// In which logs a node is not current, for people; none: in none.
fn lacks(node: &Value, owners: &Owners, names: &[String]) -> Option<String> {
    let is_new = |log: &String| uncounted(node, names).any(|name| name == *log);
    let of_node = owners.behind.iter().filter(|behind| node["name"] == behind.node.as_str());
    let mut all: Vec<String> = of_node
        .map(|behind| match behind.lag {
            _ if is_new(&behind.log) => format!("{} (does not count yet)", behind.log),
            Some(lag) => format!("{} (lacks {lag} entries)", behind.log),
            None => behind.log.clone(),
        })
        .collect();
    let told = |log: &String| {
        owners.behind.iter().any(|b| b.log == *log && node["name"] == b.node.as_str())
    };
    // Who answered may know of it before the owner does.
    let others = uncounted(node, names).filter(|log| !told(log));
    all.extend(others.map(|log| format!("{log} (does not count yet)")));
    (!all.is_empty()).then(|| all.join(", "))
}

fn uncounted<'a>(node: &'a Value, names: &'a [String]) -> impl Iterator<Item = String> + 'a {
    list(node, "uncounted").map(move |number| name(number, names))
}

/// The name of a log of this number.
fn name(number: &Value, names: &[String]) -> String {
    let place = number.as_u64().and_then(|number| usize::try_from(number).ok());
    place.and_then(|place| names.get(place).cloned()).unwrap_or_else(|| number.to_string())
}

/// Names of logs, as a table has them.
pub(super) fn logs(data: &Value, numbers: &Value) -> String {
    let names: Vec<String> = list(data, "log_names").map(text).collect();
    let numbers = numbers.as_array().into_iter().flatten();
    numbers.map(|number| name(number, &names)).collect::<Vec<_>>().join(", ")
}

/// Whether a node is there, and has everything.
pub(super) fn health(data: &Value, node: &Value) -> String {
    let names: Vec<String> = list(data, "log_names").map(text).collect();
    if let Some(why) = node["turned_away"].as_str() {
        return format!("TURNED AWAY: {why}");
    }
    match (node["connected"].as_bool(), node["silent_ms"].as_u64()) {
        // The server is older than that.
        (None, _) => String::new(),
        (Some(false), None) => "away: not heard yet".to_owned(),
        (Some(false), Some(silent)) => {
            let silent = Duration::from_millis(silent);
            format!("AWAY for {:.1} s", silent.as_secs_f64())
        }
        (Some(true), _) => {
            let told = list(node, "behind").map(|behind| Behind {
                node: text(&node["name"]),
                log: text(&behind["log"]),
                lag: behind["lag"].as_u64(),
            });
            let owners = Owners { behind: told.collect(), owned: BTreeSet::new() };
            match lacks(node, &owners, &names) {
                Some(lacks) => format!("behind in {lacks}"),
                None => "current".to_owned(),
            }
        }
    }
}

/// Whether a node may be stopped, in a line.
pub(super) fn verdict(data: &Value) -> String {
    let why: Vec<String> = list(data, "why_not").map(text).collect();
    match data["may_stop"].as_bool() {
        None => String::new(),
        Some(true) => "any one node may be stopped now: the others have everything\n".to_owned(),
        Some(false) => format!("stop no node that is there now: {}\n", why.join("; ")),
    }
}

/// What the node that answers follows of logs that other nodes own; each node follows its own.
pub(super) fn standbys(data: &Value) -> String {
    let of = |standby: &Value| {
        let mib = standby["bytes"].as_u64().unwrap_or_default() >> 20;
        format!("{} to position {} ({mib} MiB)", text(&standby["name"]), text(&standby["position"]))
    };
    let all: Vec<String> = list(data, "standbys").map(of).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!("followed by the node that answers: {}\n", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Value {
        let node = |name: &str| {
            json!({ "name": name, "spare": false, "connected": true, "silent_ms": 3, "logs": [0, 1], "owns": [],
                    "uncounted": [] })
        };
        json!({ "nodes": [node("n1"), node("n2")], "log_names": ["default", "memory-quorum"], "replacing": null,
                "resizing": null })
    }

    fn page(of: &str, log: &str, peer: &Value) -> Value {
        let group = json!({ "log": log, "state": of, "peers": { "x": peer } });
        json!({ "SYS": { log: group.clone(), "_meta_": group } })
    }

    #[test]
    fn a_node_may_be_stopped_when_all_are_there_and_current() {
        let current = json!({ "name": "n2", "current": true, "lag": 0 });
        let pages =
            [page("LEADER", "default", &current), page("LEADER", "memory-quorum", &current)];
        let mut all = nodes();
        complete(&mut all, &pages);
        assert_eq!((&all["may_stop"], &all["why_not"]), (&json!(true), &json!([])), "{all}");
        assert_eq!(health(&all, &all["nodes"][1]), "current");
        assert_eq!(logs(&all, &all["nodes"][1]["logs"]), "default, memory-quorum");
    }

    #[test]
    fn what_keeps_a_node_from_being_stopped_is_said() {
        let new = json!({ "name": "n2", "current": false, "lag": 7 });
        let pages = [page("LEADER", "memory-quorum", &new), page("FOLLOWER", "default", &new)];
        let mut all = nodes();
        all["nodes"][1]["uncounted"] = json!([1]);
        complete(&mut all, &pages);
        let why = json!([
            "n2 is not current yet in memory-quorum (does not count yet)",
            "nobody owns default"
        ]);
        assert_eq!((&all["may_stop"], &all["why_not"]), (&json!(false), &why));
        assert_eq!(all["nodes"][1]["behind"], json!([{ "log": "memory-quorum", "lag": 7 }]));
        assert_eq!(health(&all, &all["nodes"][1]), "behind in memory-quorum (does not count yet)");
        all["nodes"][1]["connected"] = json!(false);
        all["nodes"][1]["silent_ms"] = json!(12_340);
        complete(&mut all, &pages);
        assert_eq!(health(&all, &all["nodes"][1]), "AWAY for 12.3 s");
        assert_eq!(all["why_not"][0], "n2 is away");
    }

    #[test]
    fn standbys_are_shown_where_there_are_any() {
        let some = json!({ "standbys": [
            { "log": 0, "name": "default", "position": 12, "bytes": 3 << 20 },
            { "log": 2, "name": "default-2", "position": 5, "bytes": 0 },
        ] });
        let expected = "followed by the node that answers: default to position 12 (3 MiB), \
                        default-2 to position 5 (0 MiB)\n";
        assert_eq!((standbys(&some).as_str(), standbys(&json!({})).as_str()), (expected, ""));
    }
}
