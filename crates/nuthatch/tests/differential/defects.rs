//! Where nats-server 2.15.2 goes another way by a defect of its own on a random script, recognised by
//! what led to it. A difference is excused only where such a thing has happened before, to the consumer
//! or the stream that the step is about; each has its name in the list of intended differences.

use std::collections::{BTreeMap, BTreeSet};

use nuthatch_protocol::subject;
use serde_json::Value;

use crate::run::{Record, Step};

type Key = (String, String);

/// What has happened to a consumer.
#[derive(Debug, Default)]
struct Consumer {
    filters: BTreeSet<String>,
    acks_all: bool,
    naked: bool,
    /// There was one of this name before.
    anew: bool,
    /// Why it may differ in everything from here on.
    apart: BTreeSet<&'static str>,
    /// Why it may differ in what waits for its acknowledgement.
    pending: BTreeSet<&'static str>,
}

/// What has happened to a stream.
#[derive(Debug, Default)]
struct Stream {
    /// It keeps messages for its consumers only.
    retained: bool,
    /// Messages may have gone without having been acknowledged.
    removed: bool,
    apart: BTreeSet<&'static str>,
}

/// What explains a difference.
#[derive(Debug, Clone, Copy)]
struct Excuse {
    name: &'static str,
    /// It is in what the servers do from here on, not only in what they show.
    spreads: bool,
}

impl Excuse {
    const fn shown(name: &'static str) -> Self {
        Self { name, spreads: false }
    }

    const fn spreading(name: &'static str) -> Self {
        Self { name, spreads: true }
    }
}

/// Follows a script and both transcripts of it.
#[derive(Debug, Default)]
pub struct Defects {
    consumers: BTreeMap<Key, Consumer>,
    streams: BTreeMap<String, Stream>,
    /// Consumers that were deleted.
    gone: BTreeSet<Key>,
    /// Reply subjects of the deliveries, of ours and theirs.
    acks: [Vec<String>; 2],
    /// The first defect by which the two have different deliveries.
    acks_differ: Option<&'static str>,
}

/// What a step is about.
#[derive(Debug, Default)]
struct About {
    stream: String,
    consumers: Vec<Key>,
}

impl Defects {
    /// Takes account of a step; `differs`: its two sides are not equal. Says which defect explains that.
    pub fn step(&mut self, ours: &Step, theirs: &Step, differs: bool) -> Option<&'static str> {
        let (verb, rest) = ours.line.text.split_once(' ').unwrap_or((&ours.line.text, ""));
        let about = self.about(verb, rest);
        self.before(verb, rest, &about, [ours, theirs]);
        let excuse = if differs { self.excuse(verb, rest, &about, [ours, theirs]) } else { None };
        if let Some(Excuse { name, spreads: true }) = excuse {
            self.part(&about, name);
            if verb == "next" {
                self.acks_differ.get_or_insert(name);
            }
        }
        self.after(verb, rest, [ours, theirs]);
        excuse.map(|excuse| excuse.name)
    }

    fn about(&self, verb: &str, rest: &str) -> About {
        let words: Vec<&str> = rest.split(' ').collect();
        let key = |stream: &str, name: &str| (stream.to_owned(), name.to_owned());
        match verb {
            "next" => About { stream: words[0].into(), consumers: vec![key(words[0], words[1])] },
            "show" => About { stream: words[0].into(), consumers: Vec::new() },
            "pub" => About { stream: words[0][..1].to_uppercase(), consumers: Vec::new() },
            "ack" => {
                let targets: BTreeSet<Key> =
                    (0..2).filter_map(|side| target(&self.acks[side], words[0])).collect();
                let stream = targets.iter().next().map_or_else(String::new, |key| key.0.clone());
                About { stream, consumers: targets.into_iter().collect() }
            }
            _ => {
                let parts: Vec<&str> = words[0].split('.').collect();
                match parts.as_slice() {
                    ["CONSUMER", _, stream, name] => {
                        About { stream: (*stream).into(), consumers: vec![key(stream, name)] }
                    }
                    [.., stream] => About { stream: (*stream).into(), consumers: Vec::new() },
                    [] => About::default(),
                }
            }
        }
    }

    /// What must be known before the step is judged.
    fn before(&mut self, verb: &str, rest: &str, about: &About, [ours, theirs]: [&Step; 2]) {
        if verb == "ack" {
            let word = rest.split(' ').next().unwrap_or_default();
            let same = delivery(&self.acks[0], word) == delivery(&self.acks[1], word);
            if let (false, Some(why)) = (same, self.acks_differ) {
                self.part(about, why);
            }
        }
        if verb != "api" || !rest.starts_with("CONSUMER.CREATE.") {
            return;
        }
        let (Some(key), Some(config)) = (about.consumers.first(), config_of(rest)) else { return };
        let taken = succeeded(theirs);
        if taken && error_code(ours) == Some(10099) {
            self.consumers.entry(key.clone()).or_default().apart.insert("unfiltered-update");
            return;
        }
        if !taken {
            return;
        }
        let filters = filters_of(&config);
        let acks_all = config["ack_policy"] == "all";
        let starts_last = config["deliver_policy"] == "last" && filters.is_empty();
        let is_new = !self.consumers.contains_key(key);
        let known = self.consumers.entry(key.clone()).or_default();
        if is_new {
            (known.filters, known.acks_all) = (filters, acks_all);
            known.anew = self.gone.contains(key);
            if starts_last && delivered(theirs) > delivered(ours) {
                known.apart.insert("last-of-removed");
            }
        } else if known.filters != filters {
            let unheard = filters.is_empty();
            known.filters = filters;
            known.pending.insert("open-outside-filter");
            if known.pending.contains("purged-pending") {
                // It has counted wrongly, looked for a message, and passed those that the new filter selects.
                known.apart.insert("purged-pending");
            }
            if unheard {
                known.apart.insert("unheard-after-update");
            }
        }
    }

    fn excuse(
        &self,
        verb: &str,
        rest: &str,
        about: &About,
        [ours, theirs]: [&Step; 2],
    ) -> Option<Excuse> {
        let (shown, spreading) = (Excuse::shown, Excuse::spreading);
        let word = rest.split(' ').next().unwrap_or_default();
        let is_other = || delivery(&self.acks[0], word) != delivery(&self.acks[1], word);
        if verb == "ack" && is_other() {
            return self.acks_differ.map(spreading);
        }
        if first_of_nothing(ours, theirs) {
            return Some(shown("first-of-nothing"));
        }
        let stream = self.streams.get(&about.stream);
        let retained = stream.is_some_and(|stream| stream.retained);
        let of_consumers = about.consumers.iter().filter_map(|key| self.consumers.get(key));
        for consumer in of_consumers {
            if let Some(name) = consumer.apart.iter().next() {
                return Some(spreading(name));
            }
            // It counts a message that several filters match once, and takes it off once for each when it leaves.
            if verb == "next"
                && deliveries(ours) > deliveries(theirs)
                && stream.is_some_and(|stream| stream.removed)
                && crosses(&consumer.filters)
            {
                return Some(spreading("none-while-some"));
            }
            if verb == "next"
                && redelivered(ours) > redelivered(theirs)
                && self.lost_acks(about, consumer)
            {
                return Some(spreading("ack-all-removed"));
            }
            if verb == "ack" && consumer.anew && only_ours_answers(ours, theirs) {
                let removed = stream.is_some_and(|stream| stream.removed);
                return removed.then_some(shown("ack-of-evicted"));
            }
            let waiting = (waiting(ours), waiting(theirs));
            match waiting {
                (Some(left), Some(right)) if left < right => {
                    if let Some(name) = consumer.pending.iter().next() {
                        return Some(shown(name));
                    }
                }
                (Some(left), Some(right)) if left > right && self.lost_acks(about, consumer) => {
                    return Some(spreading("ack-all-removed"));
                }
                _ => {}
            }
            if verb != "ack" && only_looked_at(ours, theirs) {
                return Some(shown("looked-at"));
            }
        }
        if let Some(name) = stream.and_then(|stream| stream.apart.iter().next()) {
            return Some(spreading(name));
        }
        if !retained {
            return None;
        }
        let of_stream = self.consumers.iter().filter(|(key, _)| key.0 == about.stream);
        let mut of_stream = of_stream.map(|(_, consumer)| consumer);
        let found = of_stream.find_map(|consumer| {
            let apart = consumer.apart.iter().next().copied();
            let refiltered = consumer.pending.get("open-outside-filter").copied();
            apart
                .or(refiltered)
                .or_else(|| self.lost_acks(about, consumer).then_some("ack-all-removed"))
        });
        found.map(spreading)
    }

    fn lost_acks(&self, about: &About, consumer: &Consumer) -> bool {
        consumer.acks_all && self.streams.get(&about.stream).is_some_and(|stream| stream.removed)
    }

    /// From here on what the step was about differs.
    fn part(&mut self, about: &About, name: &'static str) {
        for key in &about.consumers {
            if let Some(consumer) = self.consumers.get_mut(key) {
                consumer.apart.insert(name);
            }
            if let Some(stream) = self.streams.get_mut(&key.0).filter(|stream| stream.retained) {
                stream.apart.insert(name);
            }
        }
        if about.consumers.is_empty()
            && let Some(stream) = self.streams.get_mut(&about.stream)
        {
            stream.apart.insert(name);
        }
    }

    /// What the step leads to.
    fn after(&mut self, verb: &str, rest: &str, sides: [&Step; 2]) {
        for (acks, step) in self.acks.iter_mut().zip(sides) {
            acks.extend(step.records.iter().filter_map(|record| match record {
                Record::Message(message) => {
                    message.reply.clone().filter(|reply| reply.starts_with("$JS.ACK."))
                }
                _ => None,
            }));
        }
        let theirs = sides[1];
        let (first, body) = rest.split_once(' ').unwrap_or((rest, ""));
        match verb {
            "ack" if body.starts_with("-NAK") => {
                let targets = (0..2).filter_map(|side| target(&self.acks[side], first));
                for key in targets.collect::<Vec<_>>() {
                    if let Some(consumer) = self.consumers.get_mut(&key) {
                        consumer.naked = true;
                        if consumer.pending.contains("purged-pending") {
                            consumer.apart.insert("forgotten-redelivery");
                        }
                    }
                }
            }
            "pub" if body.contains("Nats-Rollup") && succeeded(theirs) => {
                self.purged(&first[..1].to_uppercase());
            }
            "api" if succeeded(theirs) => self.after_call(first, body),
            _ => {}
        }
    }

    fn after_call(&mut self, call: &str, body: &str) {
        let parts: Vec<&str> = call.split('.').collect();
        match parts.as_slice() {
            ["STREAM", "CREATE" | "UPDATE", stream] => {
                let config: Value = serde_json::from_str(body).unwrap_or_default();
                let limits = ["max_msgs", "max_bytes", "max_msgs_per_subject"];
                let known = self.streams.entry((*stream).to_owned()).or_default();
                known.retained = config["retention"] != "limits";
                known.removed |= limits.iter().any(|limit| config.get(limit).is_some());
            }
            ["STREAM", "MSG", "DELETE", stream] => {
                self.streams.entry((*stream).to_owned()).or_default().removed = true;
            }
            ["STREAM", "PURGE", stream] => self.purged(stream),
            ["CONSUMER", "DELETE", stream, name] => {
                let key = ((*stream).to_owned(), (*name).to_owned());
                let gone = self.consumers.remove(&key);
                self.gone.insert(key);
                let known = self.streams.entry((*stream).to_owned()).or_default();
                if known.retained {
                    known.apart.insert("left-behind");
                    known.apart.extend(gone.into_iter().flat_map(|consumer| consumer.apart));
                }
            }
            _ => {}
        }
    }

    fn purged(&mut self, stream: &str) {
        self.streams.entry(stream.to_owned()).or_default().removed = true;
        for (_, consumer) in self.consumers.iter_mut().filter(|(key, _)| key.0 == stream) {
            consumer.pending.insert("purged-pending");
            if consumer.naked {
                consumer.apart.insert("forgotten-redelivery");
            }
        }
    }
}

/// The delivery that `ack` names by its index.
fn delivery<'a>(acks: &'a [String], word: &str) -> Option<&'a str> {
    let index: i64 = word.parse().ok()?;
    let at = match usize::try_from(index) {
        Ok(index) => index.checked_sub(1)?,
        Err(_) => acks.len().checked_sub(usize::try_from(-index).ok()?)?,
    };
    // Time and pending count do not say which one it is.
    acks.get(at)
        .map(|reply| reply.match_indices('.').nth(6).map_or(&**reply, |(at, _)| &reply[..at]))
}

fn target(acks: &[String], word: &str) -> Option<Key> {
    let mut tokens = delivery(acks, word)?.split('.').skip(2);
    Some((tokens.next()?.to_owned(), tokens.next()?.to_owned()))
}

fn reply(step: &Step) -> Option<Value> {
    let Some(Record::Message(message)) = step.records.first() else { return None };
    serde_json::from_slice(&message.payload).ok()
}

fn succeeded(step: &Step) -> bool {
    reply(step).is_some_and(|reply| reply.get("error").is_none())
}

fn error_code(step: &Step) -> Option<u64> {
    reply(step)?["error"]["err_code"].as_u64()
}

fn waiting(step: &Step) -> Option<u64> {
    reply(step)?["num_ack_pending"].as_u64()
}

fn delivered(step: &Step) -> Option<u64> {
    reply(step)?["delivered"]["stream_seq"].as_u64()
}

/// True if two filters, of which neither lies within the other, have subjects in common.
fn crosses(filters: &BTreeSet<String>) -> bool {
    let pairs = filters.iter().flat_map(|one| filters.iter().map(move |other| (one, other)));
    pairs.filter(|(one, other)| one != other).any(|(one, other)| {
        let (one, other) = (one.as_bytes(), other.as_bytes());
        subject::overlap(one, other)
            && !subject::is_subset(one, other)
            && !subject::is_subset(other, one)
    })
}

/// How many messages were delivered.
fn deliveries(step: &Step) -> usize {
    let is_one = |record: &&Record| match record {
        Record::Message(message) => {
            message.reply.as_ref().is_some_and(|reply| reply.starts_with("$JS.ACK."))
        }
        _ => false,
    };
    step.records.iter().filter(is_one).count()
}

/// How many messages were delivered that had been before.
fn redelivered(step: &Step) -> usize {
    let times = |record: &Record| match record {
        Record::Message(message) => message.reply.as_ref()?.split('.').nth(4)?.parse::<u64>().ok(),
        _ => None,
    };
    step.records.iter().filter_map(times).filter(|times| *times > 1).count()
}

/// Ours confirms an acknowledgement, and theirs says nothing.
fn only_ours_answers(ours: &Step, theirs: &Step) -> bool {
    let answers = |step: &Step| matches!(step.records.first(), Some(Record::Message(_)));
    answers(ours) && !answers(theirs)
}

fn config_of(rest: &str) -> Option<Value> {
    let request: Value = serde_json::from_str(rest.split_once(' ')?.1).ok()?;
    request.get("config").cloned()
}

fn filters_of(config: &Value) -> BTreeSet<String> {
    let several = config["filter_subjects"].as_array().into_iter().flatten();
    let texts = several.chain(config.get("filter_subject")).filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// Nothing was delivered yet, and they differ in nothing but what they say of where that begins.
fn only_looked_at(ours: &Step, theirs: &Step) -> bool {
    let none = |step: &Step| {
        let mut reply = reply(step)?;
        let begins = reply["delivered"].as_object_mut()?;
        begins.remove("stream_seq");
        (begins["consumer_seq"] == 0).then_some(())?;
        for time in ["ts", "created"] {
            reply.as_object_mut()?.remove(time);
        }
        Some(reply)
    };
    none(ours).is_some_and(|left| none(theirs) == Some(left))
}

fn first_of_nothing(ours: &Step, theirs: &Step) -> bool {
    let empty = |step: &Step, first: u64| {
        let state = reply(step).map(|mut reply| reply["state"].take()).unwrap_or_default();
        state["last_seq"] == 0 && state["first_seq"] == first
    };
    empty(ours, 0) && empty(theirs, 1)
}
