//! What advisories have told: messages that consumers have given up, and what else happened.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use crate::bounds::{
    DEAD_OF_ACCOUNT_MAX, EVENT_BYTES_MAX, EVENTS_OF_ACCOUNT_MAX, HEARD_ACCOUNTS_MAX,
};
use crate::host::Advisory;

const CONSUMER: &str = "$JS.EVENT.ADVISORY.CONSUMER.";
/// Kinds of advisories that tell of a message given up, and words for them.
const KINDS: &[(&str, &str)] = &[
    ("MAX_DELIVERIES", "delivered too often"),
    ("MSG_TERMINATED", "terminated"),
    ("MSG_UNREADABLE", "unreadable"),
];
/// Advisories that come with every refused delivery.
const FREQUENT: &[&str] = &["MSG_NAKED"];

/// A message that a consumer has given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// Its number here.
    pub id: u64,
    /// Its stream.
    pub stream: String,
    /// The consumer.
    pub consumer: String,
    /// Its sequence in the stream.
    pub sequence: u64,
    /// Deliveries that were tried.
    pub deliveries: u64,
    /// Why, in words.
    pub kind: &'static str,
    /// What its client has said.
    pub reason: String,
    /// When.
    pub time: String,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub struct Told {
    /// Its number here.
    pub id: u64,
    /// The subject of the advisory.
    pub subject: String,
    /// Its JSON, as text.
    pub body: String,
}

/// What was heard of one account, the newest last.
#[derive(Debug, Default)]
pub struct View {
    /// Messages given up.
    pub dead: VecDeque<Dead>,
    /// Messages given up that were left out because there were more.
    pub dead_left_out: u64,
    /// What happened.
    pub events: VecDeque<Told>,
    next_id: u64,
}

/// What was heard of all accounts.
#[derive(Debug, Default)]
pub struct Heard {
    accounts: HashMap<String, View>,
    /// What is looked at of accounts of which nothing was heard.
    nothing: View,
}

impl Heard {
    /// What was heard of an account.
    pub fn of(&mut self, account: &str) -> &mut View {
        match self.accounts.get_mut(account) {
            Some(found) => found,
            None => &mut self.nothing,
        }
    }

    /// Adds an advisory. Accounts beyond the bound are not heard.
    pub fn add(&mut self, advisory: Advisory) {
        let is_known = self.accounts.contains_key(&advisory.account);
        if (!is_known && self.accounts.len() >= HEARD_ACCOUNTS_MAX)
            || advisory.body.len() > EVENT_BYTES_MAX
        {
            return;
        }
        let Ok(text) = String::from_utf8(advisory.body) else { return };
        let Ok(body) = serde_json::from_str::<Value>(&text) else { return };
        let rest = advisory.subject.strip_prefix(CONSUMER).unwrap_or_default();
        let kind = rest.split('.').next().unwrap_or_default();
        if FREQUENT.contains(&kind) {
            return;
        }
        let view = self.accounts.entry(advisory.account).or_default();
        view.next_id += 1;
        let id = view.next_id;
        if let Some((_, words)) = KINDS.iter().find(|(known, _)| *known == kind) {
            view.give_up(dead(id, words, &body));
        }
        if view.events.len() >= EVENTS_OF_ACCOUNT_MAX {
            view.events.pop_front();
        }
        view.events.push_back(Told { id, subject: advisory.subject, body: text });
    }
}

fn dead(id: u64, kind: &'static str, body: &Value) -> Dead {
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| body[name].as_u64().unwrap_or_default();
    Dead {
        id,
        stream: text("stream"),
        consumer: text("consumer"),
        sequence: number("stream_seq"),
        deliveries: number("deliveries"),
        kind,
        reason: text("reason"),
        time: text("timestamp"),
    }
}

impl View {
    fn give_up(&mut self, new: Dead) {
        // One that is told of again stays one.
        self.dead.retain(|old| {
            (&old.stream, &old.consumer, old.sequence) != (&new.stream, &new.consumer, new.sequence)
        });
        if self.dead.len() >= DEAD_OF_ACCOUNT_MAX {
            self.dead.pop_front();
            self.dead_left_out += 1;
        }
        self.dead.push_back(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn advisory(account: &str, kind: &str, sequence: u64) -> Advisory {
        let body = json!({
            "stream": "S", "consumer": "c", "stream_seq": sequence, "deliveries": 3,
            "timestamp": "2026-01-01T00:00:00Z",
        });
        Advisory {
            account: account.to_owned(),
            subject: format!("{CONSUMER}{kind}.S.c"),
            body: body.to_string().into_bytes(),
        }
    }

    #[test]
    fn a_message_is_given_up_once_and_only_so_many_are_kept() {
        let mut heard = Heard::default();
        for sequence in [7, 8, 7] {
            heard.add(advisory("A", "MAX_DELIVERIES", sequence));
        }
        let found: Vec<u64> = heard.of("A").dead.iter().map(|dead| dead.sequence).collect();
        assert_eq!(found, [8, 7]);
        assert!(heard.of("B").dead.is_empty(), "another account");
        for sequence in 0..DEAD_OF_ACCOUNT_MAX as u64 + 5 {
            heard.add(advisory("A", "MSG_TERMINATED", 100 + sequence));
        }
        let view = heard.of("A");
        assert_eq!((view.dead.len(), view.dead_left_out), (DEAD_OF_ACCOUNT_MAX, 7));
        assert_eq!(view.dead[0].kind, "terminated");
        assert_eq!(view.events.len(), EVENTS_OF_ACCOUNT_MAX);
    }

    #[test]
    fn what_is_frequent_large_or_no_json_is_passed_over() {
        let mut heard = Heard::default();
        heard.add(advisory("A", "MSG_NAKED", 1));
        heard.add(Advisory { body: b"{".to_vec(), ..advisory("A", "CREATED", 1) });
        let large = format!("{{\"x\":\"{}\"}}", "x".repeat(EVENT_BYTES_MAX));
        heard.add(Advisory { body: large.into_bytes(), ..advisory("A", "CREATED", 1) });
        assert!(heard.of("A").events.is_empty());
        heard.add(advisory("A", "CREATED", 1));
        assert_eq!((heard.of("A").events.len(), heard.of("A").dead.len()), (1, 0));
        for i in 0..HEARD_ACCOUNTS_MAX + 5 {
            heard.add(advisory(&format!("B{i}"), "CREATED", 1));
        }
        assert_eq!(heard.accounts.len(), HEARD_ACCOUNTS_MAX);
    }
}
