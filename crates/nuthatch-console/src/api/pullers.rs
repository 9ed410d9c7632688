//! Who gets what a consumer delivers: whose pulls wait, or who listens on the subject that it pushes to.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Call;
use super::server::clients;
use crate::broker::name;
use crate::failure::Failure;

/// Distinct inboxes whose clients are asked for.
const ASKED_MAX: usize = 16;

/// `GET streams/NAME/consumers/CONSUMER/listeners`. Whoever may not see the connections of the account is told
/// how many wait, and of none who it is.
pub fn listeners(call: &mut Call<'_>, stream: &str, consumer: &str) -> Result<Value, Failure> {
    let what = format!("CONSUMER.INFO.{}.{}", name(stream)?, name(consumer)?);
    let info = call.broker.ask(&what, &Value::Null)?;
    let pushes_to = info["config"]["deliver_subject"].as_str();
    let inboxes = match pushes_to {
        Some(subject) => vec![subject.to_owned()],
        None => {
            let waiting = call.host.waiting_inboxes(call.account, stream, consumer);
            tokio::runtime::Handle::current().block_on(waiting)
        }
    };
    let mut found: BTreeMap<u64, (Value, usize)> = BTreeMap::new();
    let mut is_denied = false;
    for (inbox, pulls) in grouped(&inboxes) {
        match client_of(call, inbox) {
            Ok(rows) => {
                for row in rows {
                    let cid = row["cid"].as_u64().unwrap_or_default();
                    found.entry(cid).or_insert((row, 0)).1 += pulls;
                }
            }
            Err(Failure::Denied(_)) => {
                is_denied = true;
                break;
            }
            Err(failure) => return Err(failure),
        }
    }
    let rows = found.into_values().map(|(row, pulls)| {
        let mut shown = json!({ "pulls": pulls });
        for field in ["cid", "name", "ip", "port", "lang", "version", "authorized_user"] {
            shown[field] = row[field].clone();
        }
        shown
    });
    Ok(json!({
        "waiting": info["num_waiting"],
        "is_denied": is_denied,
        "rows": rows.collect::<Vec<_>>(),
    }))
}

/// One inbox of each client, with how many there are: clients number theirs in the last token.
fn grouped(inboxes: &[String]) -> Vec<(&str, usize)> {
    let mut groups: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for inbox in inboxes {
        let prefix = inbox.rsplit_once('.').map_or(inbox.as_str(), |(prefix, _)| prefix);
        groups.entry(prefix).or_insert((inbox, 0)).1 += 1;
    }
    groups.into_values().take(ASKED_MAX).collect()
}

/// Connections with a subscription that a subject reaches.
fn client_of(call: &mut Call<'_>, subject: &str) -> Result<Vec<Value>, Failure> {
    let account = call.account;
    let mut told = clients(call, json!({ "filter_subject": subject, "acc": account }))?;
    Ok(told["connections"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn pulls_of_one_client_are_one_question() {
        let inboxes = ["_INBOX.a.1", "_INBOX.a.2", "_INBOX.b.1", "plain"].map(str::to_owned);
        assert_eq!(grouped(&inboxes), [("_INBOX.a.1", 2), ("_INBOX.b.1", 1), ("plain", 1)]);
    }
}
