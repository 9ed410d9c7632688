//! Random interleavings against a naive account of what must and must not happen.

use super::fakes::{Delivered, Rig, SECOND};
use nuthatch_protocol::js::{AckPolicy, ConsumerConfig, DeliverPolicy};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SUBJECTS: [&str; 12] =
    ["a", "b", "c", "k.1", "k.2", "k.3", "k.4", "k.5", "x.1", "x.2", "x.3", "other"];

#[derive(Clone, Debug)]
enum Step {
    Publish(usize),
    Burst(usize, usize),
    Remove(prop::sample::Index),
    RemoveFirst,
    ForgetJournal,
    Pull(u64),
    Ack(prop::sample::Index, bool),
    Nak(prop::sample::Index),
    NakLater(prop::sample::Index, i64),
    Term(prop::sample::Index),
    InProgress(prop::sample::Index),
    Wait(i64),
    Commit,
    Checkpoint,
    Restart,
    Slow(bool),
    Listen(bool),
    Info,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (0..SUBJECTS.len()).prop_map(Step::Publish),
        1 => (0..SUBJECTS.len(), 1..20_usize).prop_map(|(subject, n)| Step::Burst(subject, n)),
        2 => index().prop_map(Step::Remove),
        1 => Just(Step::RemoveFirst),
        1 => Just(Step::ForgetJournal),
        6 => (1..6_u64).prop_map(Step::Pull),
        6 => (index(), any::<bool>()).prop_map(|(which, double)| Step::Ack(which, double)),
        1 => index().prop_map(Step::Nak),
        1 => (index(), 1..3_000_i64).prop_map(|(which, ms)| Step::NakLater(which, ms)),
        1 => index().prop_map(Step::Term),
        1 => index().prop_map(Step::InProgress),
        2 => (1..2_500_i64).prop_map(Step::Wait),
        2 => Just(Step::Commit),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Restart),
        1 => any::<bool>().prop_map(Step::Slow),
        1 => any::<bool>().prop_map(Step::Listen),
        2 => Just(Step::Info),
    ]
}

#[derive(Clone, Debug)]
struct Setup {
    filters: &'static [&'static str],
    ack_policy: AckPolicy,
    max_deliver: i64,
    max_ack_pending: i64,
    last_per_subject: bool,
    reuse_ids: bool,
    push: bool,
    before: usize,
}

fn setup() -> impl Strategy<Value = Setup> {
    let filters: [&[&str]; 5] = [&[], &["a"], &["k.*"], &["a", "k.>"], &[">"]];
    let acks = [AckPolicy::Explicit, AckPolicy::Explicit, AckPolicy::All, AckPolicy::None];
    (
        prop::sample::select(filters.to_vec()),
        prop::sample::select(acks.to_vec()),
        prop::sample::select(vec![-1_i64, 1, 2, 3]),
        1..12_i64,
        any::<bool>(),
        (any::<bool>(), any::<bool>()),
        0..30_usize,
    )
        .prop_map(
            |(
                filters,
                ack_policy,
                max_deliver,
                max_ack_pending,
                last,
                (reuse_ids, push),
                before,
            )| {
                let last_per_subject = last && !filters.is_empty();
                Setup {
                    filters,
                    ack_policy,
                    max_deliver,
                    max_ack_pending,
                    last_per_subject,
                    reuse_ids,
                    push,
                    before,
                }
            },
        )
}

/// The naive account.
struct Model {
    setup: Setup,
    rig: Rig,
    created: Vec<u8>,
    /// Deliveries that a client still holds.
    held: Vec<Delivered>,
    /// Done with: must not be delivered again in this life.
    done: BTreeSet<u64>,
    /// Done with for ever: committed or confirmed.
    done_for_ever: BTreeSet<u64>,
    counts: BTreeMap<u64, u64>,
    /// Counts as of the last commit.
    durable_counts: BTreeMap<u64, u64>,
    ever: BTreeSet<u64>,
    next_consumer_seq: u64,
    replies: BTreeMap<String, u64>,
}

impl Model {
    fn new(setup: Setup) -> Self {
        let mut rig = Rig::new();
        rig.stream.reuse_ids = setup.reuse_ids;
        for at in 0..setup.before {
            rig.publish(SUBJECTS[at * 7 % SUBJECTS.len()]);
        }
        let s = setup.clone();
        rig.create(|config: &mut ConsumerConfig| {
            config.ack_policy = s.ack_policy;
            config.ack_wait = SECOND;
            config.max_deliver = s.max_deliver;
            if s.ack_policy != AckPolicy::None {
                config.max_ack_pending = s.max_ack_pending;
            }
            config.filter_subjects = s.filters.iter().map(|&filter| filter.into()).collect();
            if s.push {
                config.deliver_subject = "in".into();
                config.flow_control = true;
                config.idle_heartbeat = SECOND;
            }
            if s.last_per_subject {
                config.deliver_policy = DeliverPolicy::LastPerSubject;
            }
        });
        let created = rig.encoded();
        Self {
            setup,
            rig,
            created,
            held: Vec::new(),
            done: BTreeSet::new(),
            done_for_ever: BTreeSet::new(),
            counts: BTreeMap::new(),
            durable_counts: BTreeMap::new(),
            ever: BTreeSet::new(),
            next_consumer_seq: 1,
            replies: BTreeMap::new(),
        }
    }

    fn collect(&mut self) {
        for delivered in self.rig.take() {
            self.check_delivery(&delivered);
            self.held.push(delivered);
        }
        for (to, _) in self.rig.statuses() {
            if let Some(seq) = self.replies.remove(&to) {
                self.done_for_ever.insert(seq);
                assert!(self.done.contains(&seq));
            }
        }
    }

    fn check_delivery(&mut self, delivered: &Delivered) {
        let seq = delivered.stream_seq;
        assert!(!self.done.contains(&seq), "{seq} was done with");
        assert_eq!(delivered.consumer_seq, self.next_consumer_seq, "no gap in consumer sequences");
        self.next_consumer_seq += 1;
        let matching = self.rig.stream.matching(self.setup.filters, seq);
        assert_eq!(matching.first(), Some(&seq), "live, and wanted");
        let count = self.counts.entry(seq).or_insert(0);
        *count += 1;
        assert_eq!(delivered.delivered, *count, "delivery count of {seq}");
        assert!(self.setup.max_deliver < 0 || *count <= self.setup.max_deliver as u64);
        if *count == 1 && !self.setup.last_per_subject && !self.setup.reuse_ids {
            assert_eq!(delivered.pending, matching.len() as u64 - 1, "pending after {seq}");
        }
        self.ever.insert(seq);
        if self.setup.ack_policy == AckPolicy::None {
            self.done.insert(seq);
        }
    }

    fn check_info(&mut self) {
        let info = self.rig.info();
        self.collect();
        if !self.setup.last_per_subject {
            let after = info.delivered.stream_seq + 1;
            let matching = self.rig.stream.matching(self.setup.filters, after);
            assert_eq!(info.num_pending, matching.len() as u64, "num_pending after {after}");
        }
        assert!(info.num_ack_pending <= self.setup.max_ack_pending as u64);
        assert_eq!(info.delivered.consumer_seq + 1, self.next_consumer_seq);
        assert!(info.ack_floor.stream_seq <= info.delivered.stream_seq);
        assert!(info.ack_floor.consumer_seq <= info.delivered.consumer_seq);
    }

    fn finish(&mut self, which: &prop::sample::Index, body: &str, reply: bool) {
        if self.held.is_empty() || self.setup.ack_policy == AckPolicy::None {
            return;
        }
        let held = self.held[which.index(self.held.len())].clone();
        let reply = if reply {
            format!("r{}", self.replies.len() + self.ever.len())
        } else {
            String::new()
        };
        let known = self.rig.consumer().pending.get(held.stream_seq).is_some();
        self.rig.ack_with(&held, body, &reply);
        if self.setup.ack_policy == AckPolicy::All {
            if known {
                self.done.extend(self.ever.range(..=held.stream_seq).copied());
            }
        } else if known {
            self.done.insert(held.stream_seq);
        }
        if !reply.is_empty() && self.done.contains(&held.stream_seq) {
            self.replies.insert(reply, held.stream_seq);
        }
        self.collect();
    }

    fn restart(&mut self) {
        self.collect();
        self.rig.restart(&self.created);
        self.done = self.done_for_ever.clone();
        self.replies.clear();
        self.held.clear();
        let consumer = self.rig.consumer();
        self.next_consumer_seq = consumer.next_consumer_seq;
        self.counts = self.durable_counts.clone();
        for entry in consumer.pending.iter() {
            let known = self.counts.get(&entry.seq);
            assert_eq!(known, Some(&u64::from(entry.delivered)), "count of {}", entry.seq);
        }
    }

    fn commit(&mut self) {
        self.rig.commit();
        self.done_for_ever = self.done.clone();
        self.durable_counts = self.counts.clone();
        self.collect();
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Publish(subject) => {
                self.rig.publish(SUBJECTS[*subject]);
            }
            Step::Burst(subject, n) => {
                for _ in 0..*n {
                    self.rig.publish(SUBJECTS[*subject]);
                }
            }
            Step::Remove(which) => {
                let live: Vec<u64> = self.rig.stream.messages.keys().copied().collect();
                if !live.is_empty() {
                    self.rig.stream.remove(live[which.index(live.len())]);
                }
            }
            Step::RemoveFirst => {
                if let Some(&first) = self.rig.stream.messages.keys().next() {
                    self.rig.stream.remove(first);
                }
            }
            Step::ForgetJournal => self.rig.stream.journal_start = self.rig.stream.journal.len(),
            Step::Pull(n) => {
                let body = format!("{{\"batch\":{n},\"no_wait\":true}}");
                self.ask(&body);
            }
            Step::Ack(which, double) => self.finish(which, "", *double),
            Step::Term(which) => self.finish(which, "+TERM", false),
            Step::Nak(which) => self.disturb(which, "-NAK"),
            Step::NakLater(which, ms) => self.disturb(which, &format!("-NAK {ms}ms")),
            Step::InProgress(which) => self.disturb(which, "+WPI"),
            Step::Wait(ms) => drop(self.rig.pass(ms * 1_000_000)),
            Step::Commit => self.commit(),
            Step::Checkpoint => {
                self.commit();
                self.created = self.rig.encoded();
                self.rig.log.records.clear();
            }
            Step::Restart => self.restart(),
            Step::Slow(slow) => {
                self.rig.outbox.slow.clear();
                if *slow {
                    self.rig.outbox.slow.insert("in".into());
                }
                self.rig.pump();
            }
            Step::Listen(listen) if self.setup.push => {
                self.rig.outbox.listening.clear();
                if *listen {
                    self.rig.listen("in");
                }
                self.rig.pump();
            }
            Step::Listen(_) => {}
            Step::Info => self.check_info(),
        }
        self.collect();
    }

    fn ask(&mut self, body: &str) {
        if self.setup.push {
            self.rig.listen("in");
        } else {
            self.rig.pull_quietly("in", body);
        }
        self.rig.pump();
    }

    fn disturb(&mut self, which: &prop::sample::Index, body: &str) {
        if !self.held.is_empty() {
            let held = self.held[which.index(self.held.len())].clone();
            self.rig.ack_with(&held, body, "");
        }
    }

    /// In the end everything that is wanted has been delivered.
    fn drain(&mut self) {
        self.rig.outbox.slow.clear();
        for _ in 0..2_000 {
            self.ask("{\"batch\":50,\"no_wait\":true}");
            self.collect();
            for delivered in std::mem::take(&mut self.held) {
                self.rig.ack_with(&delivered, "", "");
                self.done.insert(delivered.stream_seq);
            }
            self.rig.pass(4 * SECOND);
            self.collect();
            let info = self.rig.info();
            if info.num_pending == 0 && info.num_ack_pending == 0 {
                break;
            }
        }
        self.check_info();
        let info = self.rig.info();
        assert_eq!((info.num_pending, info.num_ack_pending), (0, 0), "drained");
        if !self.setup.last_per_subject {
            for seq in self.rig.stream.matching(self.setup.filters, 1) {
                assert!(self.ever.contains(&seq), "{seq} was never delivered");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn holds_under_any_interleaving(setup in setup(), steps in prop::collection::vec(step(), 1..120)) {
        let mut model = Model::new(setup);
        for step in &steps {
            model.apply(step);
        }
        model.drain();
    }
}
