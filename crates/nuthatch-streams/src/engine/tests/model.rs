//! A stream against a plain model, with reopening as an operation: what limits, deletes, purges,
//! rollups, duplicates and age leave behind is the same after every way of coming back.

use super::harness::{Harness, Msg, Reopen, STREAM};
use crate::op::{Op, PurgeRequest};
use nuthatch_protocol::js::{DiscardPolicy, StreamConfig};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const SUBJECTS: [&str; 4] = ["s.a", "s.b", "s.c.d", "s.e"];
const WINDOW_MS: i64 = 500;

#[derive(Clone, Debug)]
enum Step {
    Publish { subject: usize, size: usize, id: Option<u8>, rollup: Option<bool>, ttl: Option<u8> },
    Delete { at: usize },
    Purge { filter: usize, seq: Option<usize>, keep: u64 },
    Update { max_msgs: i64, per_subject: i64 },
    Pass { ms: i64 },
    Commit,
    Compact,
    Reopen(Reopen),
}

fn step() -> impl Strategy<Value = Step> {
    let publish = (0..4usize, 0..40usize, prop::option::weighted(0.3, 0..5u8));
    let rollup = prop::option::weighted(0.1, any::<bool>());
    // Seconds; 0: never.
    let ttl = prop::option::weighted(0.2, 0..3u8);
    let reopen = prop_oneof![Just(Reopen::Scratch), Just(Reopen::Snapshot), Just(Reopen::States),];
    prop_oneof![
        12 => (publish, rollup, ttl).prop_map(|((subject, size, id), rollup, ttl)| {
            Step::Publish { subject, size, id, rollup, ttl }
        }),
        2 => any::<usize>().prop_map(|at| Step::Delete { at }),
        1 => (0..6usize, prop::option::of(any::<usize>()), 0..3u64)
            .prop_map(|(filter, seq, keep)| Step::Purge { filter, seq, keep }),
        1 => (0..8i64, 0..4i64)
            .prop_map(|(max_msgs, per_subject)| Step::Update { max_msgs, per_subject }),
        2 => (0..400i64).prop_map(|ms| Step::Pass { ms }),
        5 => Just(Step::Commit),
        1 => Just(Step::Compact),
        2 => reopen.prop_map(Step::Reopen),
    ]
}

#[derive(Clone, Debug)]
struct Shape {
    max_msgs: i64,
    max_bytes: i64,
    per_subject: i64,
    max_age_ms: i64,
    discard_new: bool,
    discard_new_per_subject: bool,
}

fn shape() -> impl Strategy<Value = Shape> {
    (0..8i64, prop_oneof![Just(0i64), 60..400i64], 0..4i64, prop_oneof![Just(0i64), Just(900i64)])
        .prop_flat_map(|(max_msgs, max_bytes, per_subject, max_age_ms)| {
            (any::<bool>(), any::<bool>()).prop_map(move |(discard_new, per)| Shape {
                max_msgs,
                max_bytes,
                per_subject,
                max_age_ms,
                discard_new,
                discard_new_per_subject: per && discard_new && per_subject > 0,
            })
        })
}

/// One message of the model: subject, bytes, time in ms, time to live in seconds (0: never ends).
type Message = (usize, u64, i64, Option<u8>);

#[derive(Clone, Debug)]
struct Model {
    shape: Shape,
    messages: BTreeMap<u64, Message>,
    last: u64,
    ids: HashMap<u8, (u64, i64)>,
    now_ms: i64,
}

impl Model {
    fn bytes(&self) -> u64 {
        self.messages.values().map(|m| m.1).sum()
    }

    fn of_subject(&self, subject: usize) -> Vec<u64> {
        self.messages.iter().filter(|(_, m)| m.0 == subject).map(|(&seq, _)| seq).collect()
    }

    fn expire(&mut self) {
        let (now, age) = (self.now_ms, self.shape.max_age_ms);
        if age > 0 {
            self.messages.retain(|_, m| m.3 == Some(0) || m.2 + age > now);
        }
        let lives = |m: &Message| m.3.is_none_or(|s| s == 0 || m.2 + i64::from(s) * 1000 > now);
        self.messages.retain(|_, m| lives(m));
    }

    fn is_duplicate(&self, id: Option<u8>) -> Option<u64> {
        let (seq, at) = self.ids.get(&id?)?;
        (at + WINDOW_MS > self.now_ms).then_some(*seq)
    }

    fn has_room(&self, subject: usize, bytes: u64, is_rollup: bool) -> bool {
        if !self.shape.discard_new {
            return true;
        }
        let deferred = self.of_subject(subject);
        let per = self.shape.per_subject;
        let full = per > 0 && deferred.len() as i64 >= per;
        if full && self.shape.discard_new_per_subject && !is_rollup {
            return false;
        }
        let max = self.shape.max_msgs;
        if max > 0 && self.messages.len() as i64 >= max && !full {
            return false;
        }
        let freed = if full { self.messages[&deferred[0]].1 } else { 0 };
        let limit = self.shape.max_bytes;
        limit <= 0 || self.bytes() + bytes <= limit as u64 || freed >= bytes
    }

    /// The answer to expect: the sequence, or `None` for a refusal.
    fn publish(
        &mut self,
        subject: usize,
        bytes: u64,
        id: Option<u8>,
        rollup: Option<bool>,
        ttl: Option<u8>,
    ) -> Option<u64> {
        self.expire();
        if let Some(seq) = self.is_duplicate(id) {
            return Some(seq);
        }
        if !self.has_room(subject, bytes, rollup.is_some()) {
            return None;
        }
        self.last += 1;
        let seq = self.last;
        self.messages.insert(seq, (subject, bytes, self.now_ms, ttl));
        if let Some(id) = id {
            self.ids.insert(id, (seq, self.now_ms));
        }
        self.enforce_subject(subject);
        self.enforce_totals();
        match rollup {
            Some(true) => self.messages.retain(|&s, _| s >= seq),
            Some(false) => {
                let newest = self.of_subject(subject).last().copied();
                self.messages.retain(|&s, m| m.0 != subject || Some(s) == newest);
            }
            None => {}
        }
        Some(seq)
    }

    fn enforce_subject(&mut self, subject: usize) {
        let deferred = self.of_subject(subject);
        if self.shape.per_subject > 0 {
            let over = deferred.len().saturating_sub(self.shape.per_subject as usize);
            for seq in &deferred[..over] {
                self.messages.remove(seq);
            }
        }
    }

    fn enforce_totals(&mut self) {
        let shape = &self.shape;
        let over = |model: &Self| {
            (shape.max_msgs > 0 && model.messages.len() as i64 > shape.max_msgs)
                || (shape.max_bytes > 0 && model.bytes() > shape.max_bytes as u64)
        };
        let mut scratch = self.clone();
        while !shape.discard_new && over(&scratch) && scratch.messages.pop_first().is_some() {}
        self.messages = scratch.messages;
    }

    fn purge(&mut self, request: &PurgeRequest) -> u64 {
        if request.seq == 1 {
            return 0;
        }
        let all = request.filter.is_empty() || request.filter == ">";
        let matches = |subject: usize| match request.filter.as_str() {
            "" | ">" => true,
            "s.*" => SUBJECTS[subject] != "s.c.d",
            filter => SUBJECTS[subject] == filter,
        };
        let mut wanted: Vec<u64> =
            self.messages.iter().filter(|(_, m)| matches(m.0)).map(|(&seq, _)| seq).collect();
        wanted.truncate(wanted.len().saturating_sub(request.keep as usize));
        if request.seq > 0 {
            wanted.retain(|&seq| seq < request.seq);
        }
        let gone: BTreeSet<u64> = wanted.into_iter().collect();
        self.messages.retain(|seq, _| !gone.contains(seq));
        if all && request.seq > self.last + 1 {
            self.last = request.seq - 1;
        }
        gone.len() as u64
    }
}

struct ModelRun {
    harness: Harness,
    model: Model,
    committed: Model,
    /// Answers that are due at the next commit.
    expected: Vec<Option<u64>>,
}

impl ModelRun {
    fn new(shape: Shape) -> Self {
        let harness = Harness::with_stream(|config| adapt(config, &shape));
        let model =
            Model { shape, messages: BTreeMap::new(), last: 0, ids: HashMap::new(), now_ms: 0 };
        Self { harness, committed: model.clone(), model, expected: Vec::new() }
    }

    fn publish(
        &mut self,
        subject: usize,
        size: usize,
        id: Option<u8>,
        rollup: Option<bool>,
        ttl: Option<u8>,
    ) {
        let mut headers = String::new();
        if let Some(id) = id {
            headers += &format!("Nats-Msg-Id: id-{id}\r\n");
        }
        if let Some(all) = rollup {
            headers += if all { "Nats-Rollup: all\r\n" } else { "Nats-Rollup: SUB\r\n" };
        }
        match ttl {
            Some(0) => headers += "Nats-TTL: never\r\n",
            Some(seconds) => headers += &format!("Nats-TTL: {seconds}s\r\n"),
            None => {}
        }
        if !headers.is_empty() {
            headers = format!("NATS/1.0\r\n{headers}\r\n");
        }
        let body = "x".repeat(size);
        let name = SUBJECTS[subject];
        let with_headers = if headers.is_empty() { 0 } else { 4 + headers.len() };
        let bytes = (22 + name.len() + 8 + size + with_headers) as u64;
        self.expected.push(self.model.publish(subject, bytes, id, rollup, ttl));
        self.harness.send(&[Msg { subject: name, headers: &headers, body: &body }]);
    }

    fn commit(&mut self) {
        self.harness.commit();
        self.committed = self.model.clone();
        let replies = self.harness.take_replies();
        let expected = std::mem::take(&mut self.expected);
        assert_eq!(replies.len(), expected.len(), "{replies:?} {expected:?}");
        for (reply, expected) in replies.iter().zip(expected) {
            match expected {
                Some(seq) => {
                    let start = format!(r#"{{"stream":"S","seq":{seq}"#);
                    assert!(reply.starts_with(&start), "{reply}, not {seq}");
                }
                None => assert!(reply.contains("\"error\""), "{reply}"),
            }
        }
        self.check();
    }

    fn check(&mut self) {
        self.model.expire();
        let state = self.harness.info().state;
        let model = &self.model;
        assert_eq!(state.messages, model.messages.len() as u64, "messages");
        assert_eq!(state.bytes, model.bytes(), "bytes");
        assert_eq!(state.last_seq, model.last, "last");
        let first = model.messages.keys().next().copied();
        if let Some(first) = first {
            assert_eq!(state.first_seq, first, "first");
        }
        let seqs: Vec<u64> = model.messages.keys().copied().collect();
        assert_eq!(self.harness.seqs(), seqs, "sequences");
        let mut counts = BTreeMap::new();
        for (subject, ..) in model.messages.values() {
            *counts.entry(SUBJECTS[*subject].to_owned()).or_insert(0) += 1;
        }
        assert_eq!(state.subjects.unwrap_or_default(), counts, "subjects");
    }

    fn reopen(&mut self, how: Reopen) {
        if how != Reopen::Scratch && !self.harness.has_checkpoint() {
            self.commit();
        }
        let now_ms = self.model.now_ms;
        self.harness.take_replies();
        self.expected.clear();
        self.harness.reopen(how);
        self.model = Model { now_ms, ..self.committed.clone() };
        self.check();
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Publish { subject, size, id, rollup, ttl } => {
                self.publish(subject, size, id, rollup, ttl);
            }
            Step::Delete { at } => {
                self.commit();
                let seqs: Vec<u64> = self.model.messages.keys().copied().collect();
                if let Some(seq) = seqs.get(at % seqs.len().max(1)) {
                    self.harness.op(Op::DeleteMessage { id: STREAM, seq: *seq }).expect("deleted");
                    self.model.messages.remove(seq);
                    self.committed = self.model.clone();
                }
            }
            Step::Purge { filter, seq, keep } => {
                self.commit();
                let filter = ["", ">", "s.a", "s.*", "s.c.d", "s.none"][filter];
                let seq = seq.map_or(0, |at| at as u64 % (self.model.last + 4));
                let keep = if seq > 0 { 0 } else { keep };
                let request = PurgeRequest { filter: filter.into(), seq, keep };
                let purged = self.model.purge(&request);
                let outcome = self.harness.op(Op::Purge { id: STREAM, request });
                assert_eq!(outcome, Ok(crate::op::OpOutcome::Purged(purged)));
                self.commit();
            }
            Step::Update { max_msgs, per_subject } => {
                self.commit();
                let per = self.model.shape.discard_new_per_subject;
                self.model.shape.max_msgs = max_msgs;
                self.model.shape.per_subject = if per { per_subject.max(1) } else { per_subject };
                let mut config = (*self.harness.info().config).clone();
                adapt(&mut config, &self.model.shape);
                self.harness
                    .op(Op::UpdateStream { id: STREAM, config: Box::new(config) })
                    .expect("updated");
                self.model.enforce_totals();
                for subject in 0..SUBJECTS.len() {
                    self.model.enforce_subject(subject);
                }
                self.commit();
            }
            Step::Pass { ms } => {
                self.model.now_ms += ms;
                self.harness.pass_ms(ms);
                self.harness.tick();
            }
            Step::Commit => self.commit(),
            Step::Compact => {
                self.commit();
                self.harness.compact();
            }
            Step::Reopen(how) => self.reopen(how),
        }
    }
}

fn adapt(config: &mut StreamConfig, shape: &Shape) {
    config.max_msgs = if shape.max_msgs > 0 { shape.max_msgs } else { -1 };
    config.max_bytes = if shape.max_bytes > 0 { shape.max_bytes } else { -1 };
    config.max_msgs_per_subject = if shape.per_subject > 0 { shape.per_subject } else { -1 };
    config.max_age = shape.max_age_ms * 1_000_000;
    config.duplicate_window = WINDOW_MS * 1_000_000;
    (config.allow_rollup_hdrs, config.allow_msg_ttl) = (true, true);
    config.discard = if shape.discard_new { DiscardPolicy::New } else { DiscardPolicy::Old };
    config.discard_new_per_subject = shape.discard_new_per_subject;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_stream_agrees_with_the_model(
        shape in shape(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut run = ModelRun::new(shape);
        for step in steps {
            run.apply(step);
        }
        run.commit();
        for how in [Reopen::Scratch, Reopen::Snapshot, Reopen::States, Reopen::Scratch] {
            run.reopen(how);
        }
    }
}
