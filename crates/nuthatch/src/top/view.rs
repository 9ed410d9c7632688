//! Rates as text.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::Value;

use super::Order;
use super::sample::{Rates, Row};
use crate::show::{self, Table, number, text};
use crate::terminal::Look;

/// The whole view.
pub fn render(rates: &Rates, order: Order, reverse: bool, most: usize) -> String {
    let mut out = String::new();
    for server in &rates.servers {
        render_server(&mut out, server);
    }
    if !rates.has_servers {
        render_account(&mut out, &rates.account);
        out.push_str(
            "(servers and connections: as a user of the system account, or with --monitor)\n",
        );
    }
    out.push('\n');
    let streams = sorted(&rates.streams, order, reverse, &STREAM_KEYS);
    out.push_str(&stream_table(&streams, most));
    if rates.has_servers {
        let connections = sorted(&rates.connections, order, reverse, &CONNECTION_KEYS);
        out.push('\n');
        out.push_str(&connection_table(&connections, most));
    }
    out
}

/// What every user may know: what the own account has, and how near that is to its limits.
fn render_account(out: &mut String, account: &Value) {
    if !account.is_object() {
        out.push_str("This account has no JetStream\n");
        return;
    }
    let limits = &account["limits"];
    let size = |used: &Value, limit: &Value| match limit.as_i64() {
        Some(limit) if limit > 0 => {
            format!("{} of {}", show::bytes(number(used)), show::bytes(limit.unsigned_abs()))
        }
        _ => show::bytes(number(used)),
    };
    let _ = writeln!(
        out,
        "Account: {}, {}, {} stored, {} in memory, {} to the API, {} failed",
        show::plural(number(&account["streams"]), "stream"),
        show::plural(number(&account["consumers"]), "consumer"),
        size(&account["storage"], &limits["max_storage"]),
        size(&account["memory"], &limits["max_memory"]),
        show::plural(number(&account["api"]["total"]), "request"),
        show::count(number(&account["api"]["errors"])),
    );
}

fn render_server(out: &mut String, row: &Row) {
    let facts = &row.facts;
    let _ = writeln!(
        out,
        "{} {}, up {}, processor {:.1}%, memory {}, {}, {}, {}",
        text(&facts["server_name"]),
        text(&facts["version"]),
        text(&facts["uptime"]),
        facts["cpu"].as_f64().unwrap_or(0.0),
        show::bytes(number(&facts["mem"])),
        show::plural(number(&facts["connections"]), "connection"),
        show::plural(number(&facts["subscriptions"]), "subscription"),
        show::plural(number(&facts["slow_consumers"]), "slow consumer"),
    );
    let _ = writeln!(
        out,
        "  in  {:>12} msgs/s  {:>12}/s   out {:>12} msgs/s  {:>12}/s",
        rate(row.in_rate),
        show::bytes(row.in_bytes_rate as u64),
        rate(row.out_rate),
        show::bytes(row.out_bytes_rate as u64),
    );
}

/// Messages a second.
pub fn rate(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 { format!("{rate:.1}") } else { show::count(rate.round() as u64) }
}

/// Sort keys of a row.
struct Keys {
    name: fn(&Row) -> String,
    msgs: fn(&Row) -> u64,
    bytes: fn(&Row) -> u64,
    subs: fn(&Row) -> u64,
}

const STREAM_KEYS: Keys = Keys {
    name: |row| text(&row.facts["config"]["name"]),
    msgs: |row| number(&row.facts["state"]["messages"]),
    bytes: |row| number(&row.facts["state"]["bytes"]),
    subs: |row| number(&row.facts["state"]["consumer_count"]),
};

const CONNECTION_KEYS: Keys = Keys {
    name: |row| format!("{:>20}", row.facts["cid"]),
    msgs: |row| number(&row.facts["in_msgs"]) + number(&row.facts["out_msgs"]),
    bytes: |row| number(&row.facts["in_bytes"]) + number(&row.facts["out_bytes"]),
    subs: |row| number(&row.facts["subscriptions"]),
};

fn sorted<'a>(rows: &'a [Row], order: Order, reverse: bool, keys: &Keys) -> Vec<&'a Row> {
    let by_rate = |row: &Row| row.in_rate + row.out_rate;
    let compare = |a: &Row, b: &Row| -> Ordering {
        let most_first = match order {
            Order::Rate => by_rate(b).total_cmp(&by_rate(a)),
            Order::Msgs => (keys.msgs)(b).cmp(&(keys.msgs)(a)),
            Order::Bytes => (keys.bytes)(b).cmp(&(keys.bytes)(a)),
            Order::Subs => (keys.subs)(b).cmp(&(keys.subs)(a)),
            Order::Name => Ordering::Equal,
        };
        most_first.then_with(|| (keys.name)(a).cmp(&(keys.name)(b)))
    };
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by(|a, b| compare(a, b));
    if reverse {
        rows.reverse();
    }
    rows
}

fn more(total: usize, most: usize) -> String {
    if total > most {
        format!("and {} more; see them with -n\n", total - most)
    } else {
        String::new()
    }
}

fn stream_table(rows: &[&Row], most: usize) -> String {
    if rows.is_empty() {
        return "No streams\n".into();
    }
    let titles = ["Stream", "Storage", "Stored/s", "Messages", "Size", "Subjects", "Consumers"];
    let mut table = Table::new(&titles);
    for row in rows.iter().take(most) {
        let (config, state) = (&row.facts["config"], &row.facts["state"]);
        table.row(vec![
            text(&config["name"]),
            text(&config["storage"]),
            rate(row.in_rate),
            show::count(number(&state["messages"])),
            show::bytes(number(&state["bytes"])),
            show::count(number(&state["num_subjects"])),
            show::count(number(&state["consumer_count"])),
        ]);
    }
    table.render_for(Look::PLAIN) + &more(rows.len(), most)
}

fn connection_table(rows: &[&Row], most: usize) -> String {
    let titles = [
        "Cid",
        "Name",
        "Address",
        "Subs",
        "Pending",
        "In msgs/s",
        "Out msgs/s",
        "In bytes/s",
        "Out bytes/s",
        "Language",
        "Version",
        "Uptime",
    ];
    let mut table = Table::new(&titles);
    for row in rows.iter().take(most) {
        let facts = &row.facts;
        table.row(vec![
            text(&facts["cid"]),
            text(&facts["name"]),
            format!("{}:{}", text(&facts["ip"]), facts["port"]),
            show::count(number(&facts["subscriptions"])),
            show::bytes(number(&facts["pending_bytes"])),
            rate(row.in_rate),
            rate(row.out_rate),
            show::bytes(row.in_bytes_rate as u64),
            show::bytes(row.out_bytes_rate as u64),
            text(&facts["lang"]),
            text(&facts["version"]),
            text(&facts["uptime"]),
        ]);
    }
    table.render_for(Look::PLAIN) + &more(rows.len(), most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stream(name: &str, messages: u64, in_rate: f64) -> Row {
        let facts = json!({ "config": { "name": name }, "state": { "messages": messages } });
        Row { facts, in_rate, ..Row::default() }
    }

    #[test]
    fn orders() {
        let rows = [stream("A", 1, 5.0), stream("B", 9, 0.0), stream("C", 5, 7.0)];
        let check = |order, reverse, expected: &str| {
            let rows = sorted(&rows, order, reverse, &STREAM_KEYS);
            let names: String = rows.into_iter().map(STREAM_KEYS.name).collect();
            assert_eq!(names, expected, "{order:?}");
        };
        check(Order::Rate, false, "CAB");
        check(Order::Msgs, false, "BCA");
        check(Order::Msgs, true, "ACB");
        check(Order::Name, false, "ABC");
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let rates = Rates {
            account: json!({ "streams": 2, "storage": 2048, "limits": { "max_storage": -1 } }),
            servers: Vec::new(),
            streams: vec![stream("A", 1, 5.0), stream("B", 9, 0.0)],
            connections: Vec::new(),
            has_servers: false,
        };
        let text = render(&rates, Order::Name, false, 1);
        assert!(text.contains("and 1 more") && text.contains("--monitor"), "{text}");
        assert!(text.contains("Account: 2 streams, 0 consumers, 2.0 KiB stored"), "{text}");
    }
}
