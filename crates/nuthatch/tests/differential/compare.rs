//! Equal or not, and the list of what is meant to differ.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::defects::Defects;
use crate::normal::{Normal, normalise};
use crate::run::{Step, Transcript};
use crate::script::Script;

/// Differences shown for each section.
const SHOWN: usize = 40;

/// Where an intended difference applies.
#[derive(Debug, Clone, Copy)]
pub enum Rule {
    /// At steps that are marked with `!name` in a script.
    Step,
    /// At a field, wherever it occurs: name of the enclosing field, name of the field.
    Field(&'static str, &'static str),
    /// At texts of errors: all that follows this.
    Wording(&'static str),
    /// At header lines that start so.
    Header(&'static str),
}

/// A difference that we want.
#[derive(Debug)]
pub struct Intended {
    /// How scripts call it.
    pub name: &'static str,
    /// Why it is as it is; shown when it is gone.
    pub reason: &'static str,
    /// Where it applies.
    pub rule: Rule,
}

/// All of them. Each must really differ somewhere, or the test fails: the list cannot rot.
pub const INTENDED: &[Intended] = &[
    Intended {
        name: "wording of JSON errors",
        reason: "nats-server hands on what its parser says, and so do we",
        rule: Rule::Wording("invalid JSON: "),
    },
    Intended { name: "json-status", reason: "the same in a status line", rule: Rule::Step },
    Intended {
        name: "subject of an unheard ack",
        reason: "our no-responders answer to an ack does not repeat the ack's subject",
        rule: Rule::Header("Nats-Subject: $JS.ACK."),
    },
    Intended {
        name: "when-created",
        reason: "the header of a sourced message says when its origin was created, which nats-server \
                 says in letters of its own, and its length counts",
        rule: Rule::Step,
    },
    Intended {
        name: "field-case",
        reason: "names of fields are taken as they are written; no client writes others",
        rule: Rule::Step,
    },
    Intended {
        name: "no-room",
        reason: "a first sequence after which no message fits is refused",
        rule: Rule::Step,
    },
    Intended {
        name: "ephemeral-name",
        reason: "a generated name stands in the configuration, too",
        rule: Rule::Field("config", "<generated name>"),
    },
    Intended {
        name: "cluster-call",
        reason: "the answer says at once that this needs a cluster",
        rule: Rule::Step,
    },
    Intended {
        name: "exhausted",
        reason: "a message that may not be delivered again leaves the pending ones at once, and the \
                 advisory goes out at once",
        rule: Rule::Step,
    },
    Intended {
        name: "waiting",
        reason: "a pull request whose inbox is gone makes room at once",
        rule: Rule::Step,
    },
    Intended {
        name: "phantom",
        reason: "nats-server shows a deleted message 0 in a stream that has never had any",
        rule: Rule::Field("state", "<deleted 0>"),
    },
    Intended {
        name: "purge",
        reason: "a purge does not move the sequences that a consumer has delivered and acknowledged",
        rule: Rule::Step,
    },
    Intended {
        name: "floor-number",
        reason: "under ack all the floor has the number of the last delivery below it",
        rule: Rule::Step,
    },
    Intended {
        name: "start-of-nothing",
        reason: "where no subject matches, last-per-subject starts after the last message",
        rule: Rule::Step,
    },
    Intended {
        name: "bound-at-once",
        reason: "the answer to an update knows the listeners of the new deliver subject",
        rule: Rule::Step,
    },
    Intended {
        name: "second-info",
        reason: "with no_auth_user our INFO does not ask for what the client has not sent",
        rule: Rule::Step,
    },
    Intended {
        name: "order-of-names",
        reason: "nats-server lists them in the order of its map",
        rule: Rule::Step,
    },
    Intended {
        name: "forgotten-redelivery",
        reason: "nats-server forgets at a purge that a message is to be delivered again, or takes no notice of \
                 that after one",
        rule: Rule::Step,
    },
    Intended {
        name: "none-while-some",
        reason: "nats-server loses count of what is pending and answers 404 while there are messages",
        rule: Rule::Step,
    },
    Intended {
        name: "first-of-nothing",
        reason: "nats-server says until a restart that the first sequence is 1 of a stream that has never had a \
                 message, once its only consumer was deleted (interest retention) or a purge named a sequence",
        rule: Rule::Step,
    },
    Intended {
        name: "unfiltered-update",
        reason: "an update that takes all filters from one of several consumers of a work queue is refused, as \
                 its creation is: nats-server then gives the same messages to several",
        rule: Rule::Step,
    },
    Intended {
        name: "unheard-after-update",
        reason: "nats-server does not tell a consumer whose filters an update took away of what is stored and \
                 removed: it answers 404 while there are messages, and an interest stream stores none for it",
        rule: Rule::Step,
    },
    Intended {
        name: "open-outside-filter",
        reason: "a message that was delivered and not acknowledged stays until it is, whatever filters an \
                 update brings; nats-server forgets it in streams that keep messages for consumers, and counts it for \
                 ever where it has gone",
        rule: Rule::Step,
    },
    Intended {
        name: "purged-pending",
        reason: "nats-server counts messages as pending that a purge with a filter has removed, and may then \
                 pass over what new filters select",
        rule: Rule::Step,
    },
    Intended {
        name: "ack-all-removed",
        reason: "under ack all nats-server takes a message that leaves the stream for an acknowledgement of \
                 all before it",
        rule: Rule::Step,
    },
    Intended {
        name: "ack-of-evicted",
        reason: "of a message that a limit took from the stream, an acknowledgement from before its consumer was made \
                 anew is confirmed here: nobody delivers it any more, and nats-server says nothing",
        rule: Rule::Step,
    },
    Intended {
        name: "last-of-removed",
        reason: "deliver policy last begins with the last message that there is; without a filter nats-server \
                 begins behind it where later ones were removed",
        rule: Rule::Step,
    },
    Intended {
        name: "looked-at",
        reason: "nats-server shows messages as delivered that a consumer has passed over before its first",
        rule: Rule::Step,
    },
    Intended {
        name: "left-behind",
        reason: "nats-server leaves messages in an interest stream that nobody wants any more once a \
                 consumer was deleted",
        rule: Rule::Step,
    },
    Intended {
        name: "term-once",
        reason: "a message that does not wait for an acknowledgement is not reported as terminated again",
        rule: Rule::Step,
    },
    Intended {
        name: "traced-ttl",
        reason: "what is only traced is told that its time to live cannot be read, as what is stored is",
        rule: Rule::Step,
    },
    Intended {
        name: "durable-by-update",
        reason: "the threshold is judged by the new configuration, not by the old one",
        rule: Rule::Step,
    },
];

/// What came of a comparison.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Text for people; empty when equal.
    pub report: String,
    /// Differing steps that are not intended.
    pub differing: usize,
    /// Intended differences that were seen.
    pub seen: BTreeSet<&'static str>,
}

/// Compares two transcripts of one script: `ours` against `theirs`.
pub fn compare(script: &Script, ours: &Transcript, theirs: &Transcript) -> Outcome {
    let (left, right) = (normalise(ours, script.pending()), normalise(theirs, script.pending()));
    let mut outcome = Outcome { seen: differing_fields(&left, &right), ..Outcome::default() };
    let count = left.steps.len().max(right.steps.len());
    let mut defects = script.recognises_defects.then(Defects::default);
    for index in 0..count {
        let step = ours.steps.get(index).or(theirs.steps.get(index));
        let Some(step) = step else { break };
        let sides = (left.steps.get(index), right.steps.get(index));
        let both = ours.steps.get(index).zip(theirs.steps.get(index));
        if let (Some(defects), Some((one, other))) = (&mut defects, both)
            && let Some(name) = defects.step(one, other, sides.0 != sides.1)
        {
            outcome.seen.insert(known(name).name);
            continue;
        }
        judge(script, step, sides, &mut outcome);
    }
    if outcome.differing > SHOWN {
        let _ = writeln!(outcome.report, "… and {} more", outcome.differing - SHOWN);
    }
    outcome
}

fn judge(
    script: &Script,
    step: &Step,
    (ours, theirs): (Option<&Vec<String>>, Option<&Vec<String>>),
    outcome: &mut Outcome,
) {
    if let Some(name) = &step.line.intended {
        let known = known(name);
        if ours != theirs {
            outcome.seen.insert(known.name);
        }
        return;
    }
    if ours == theirs {
        return;
    }
    outcome.differing += 1;
    if outcome.differing > SHOWN && std::env::var_os("NUTHATCH_DIFF_ALL").is_none() {
        return;
    }
    let (place, text) = (step.line.number, shortened(&step.line.text));
    let _ = writeln!(outcome.report, "{}, line {place}\n  step   {text}", script.name);
    describe(ours, theirs, &mut outcome.report);
}

/// # Panics
/// If the list does not have it.
fn known(name: &str) -> &'static Intended {
    let known = INTENDED.iter().find(|entry| entry.name == name);
    known.unwrap_or_else(|| panic!("{name} is not in the list of differences"))
}

/// The records that differ, one below the other.
fn describe(ours: Option<&Vec<String>>, theirs: Option<&Vec<String>>, report: &mut String) {
    let empty = Vec::new();
    let (ours, theirs) = (ours.unwrap_or(&empty), theirs.unwrap_or(&empty));
    for index in 0..ours.len().max(theirs.len()) {
        let (left, right) = (ours.get(index), theirs.get(index));
        if left != right {
            let text = |side: Option<&String>| side.map_or("(nothing)", String::as_str).to_owned();
            let (left, right) = (text(left), text(right));
            let (left, right) = fields(&left, &right).unwrap_or_else(|| cut(&left, &right));
            let _ = writeln!(report, "  ours   {left}\n  theirs {right}");
        }
    }
}

/// Where two lines differ only in fields of their JSON bodies: these fields.
fn fields(left: &str, right: &str) -> Option<(String, String)> {
    let ((ahead, left), (other, right)) = (left.split_once(" body=")?, right.split_once(" body=")?);
    let parse = |text| serde_json::from_str::<Value>(text).ok().filter(Value::is_object);
    let (left, right) = (parse(left)?, parse(right)?);
    if ahead != other {
        return None;
    }
    let mut found = (String::new(), String::new());
    collect("", Some(&left), Some(&right), &mut found);
    Some(found)
}

fn collect(path: &str, left: Option<&Value>, right: Option<&Value>, found: &mut (String, String)) {
    if left == right {
        return;
    }
    if let (Some(Value::Object(one)), Some(Value::Object(other))) = (left, right) {
        let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        for key in keys {
            collect(&format!("{path}.{key}"), one.get(key), other.get(key), found);
        }
        return;
    }
    let text = |value: Option<&Value>| value.map_or("(absent)".to_owned(), Value::to_string);
    let _ = write!(found.0, "{path}={} ", text(left));
    let _ = write!(found.1, "{path}={} ", text(right));
}

/// Both texts without what they share at the start.
fn cut(left: &str, right: &str) -> (String, String) {
    let same = common_prefix(left, right);
    let cut = |text: &str| match same {
        0..60 => text.to_owned(),
        _ => format!("…{}", &text[same..]),
    };
    (cut(left), cut(right))
}

/// How much of two texts is the same and not worth showing: all but a little before the difference.
fn common_prefix(left: &str, right: &str) -> usize {
    let same = left.bytes().zip(right.bytes()).take_while(|(a, b)| a == b).count();
    let mut at = same.saturating_sub(30);
    while !left.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(300) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn differing_fields(left: &Normal, right: &Normal) -> BTreeSet<&'static str> {
    let names = left.fields.keys().chain(right.fields.keys());
    names.filter(|name| left.fields.get(*name) != right.fields.get(*name)).copied().collect()
}
