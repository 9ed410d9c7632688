//! A standby answers a direct get just as the log's owner does, whenever that says that the stream is as it was.
//!
//! Random schedules of publishes, deletes, purges, limits, ages, times to live, rollups, atomic batches, changes of
//! configurations and restarts, over real logs on a disk in memory. A standby reads on now and then; gets of both are asked at
//! any moment, also behind publishes of the same client that have not committed.

mod rig;
#[path = "../../../../tests/seeds.rs"]
mod seeds;

use nuthatch_log::StreamId;
use nuthatch_log::env::{MemDisk, SeededEntropy};
use nuthatch_protocol::js::{RetentionPolicy, StreamConfig};
use nuthatch_streams::op::PurgeRequest;
use nuthatch_streams::validate::{self, Limits};
use nuthatch_streams::{AccountId, Op};
use rig::{Follower, Get, Outgoing, Rig};
use std::sync::atomic::{AtomicU64, Ordering};

const SECOND_NS: i64 = 1_000_000_000;

/// Schedules of an ordinary run.
const SCHEDULES: u64 = 150;
const STEPS: u64 = 220;

/// Subjects of a stream.
const SUBJECTS: u64 = 5;

/// Names of the streams: with limits, with an age, with times to live, and a work queue.
const STREAMS: [&str; 4] = ["L", "A", "T", "Q"];
const LIMITED: usize = 0;
const AGING: usize = 1;
const TIMED: usize = 2;
const QUEUE: usize = 3;

/// Gets that standbys have answered, those of them with messages, and those that the owner answered.
static FOLLOWED: AtomicU64 = AtomicU64::new(0);
static FOUND: AtomicU64 = AtomicU64::new(0);
static ASKED: AtomicU64 = AtomicU64::new(0);
/// Logs that were opened from what had followed them.
static TAKEN_OVER: AtomicU64 = AtomicU64::new(0);

const fn id(stream: usize) -> StreamId {
    StreamId(stream as u32 + 1)
}

struct World {
    chance: SeededEntropy,
    disk: MemDisk,
    /// None between two lives.
    rig: Option<Rig>,
    follower: Option<Follower>,
    now_ns: i64,
    lives: u64,
    published: u64,
}

fn config(stream: usize, chance: &mut SeededEntropy) -> Box<StreamConfig> {
    let config = StreamConfig {
        name: STREAMS[stream].into(),
        subjects: vec![format!("{}.>", STREAMS[stream])],
        retention: match stream {
            QUEUE => RetentionPolicy::Workqueue,
            _ => RetentionPolicy::Limits,
        },
        max_msgs: if stream == LIMITED { 5 + chance.below(30).cast_signed() } else { -1 },
        max_msgs_per_subject: if stream == LIMITED {
            1 + chance.below(8).cast_signed()
        } else {
            -1
        },
        max_age: if stream == AGING { (1 + chance.below(3).cast_signed()) * SECOND_NS } else { 0 },
        duplicate_window: SECOND_NS / 2,
        allow_rollup_hdrs: stream == LIMITED,
        allow_atomic: stream == AGING,
        allow_msg_ttl: stream == TIMED,
        subject_delete_marker_ttl: if stream == TIMED { 2 * SECOND_NS } else { 0 },
        allow_direct: true,
        ..StreamConfig::default()
    };
    Box::new(validate::stream_config(config, &Limits::default()).expect("a valid stream"))
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = SeededEntropy::new(seed);
        let (disk, now_ns) = (MemDisk::default(), 1_700_000_000 * SECOND_NS);
        let (mut rig, _) = Rig::open(&disk, seed, now_ns, None);
        for stream in 0..STREAMS.len() {
            let (account, config) = (AccountId::GLOBAL, config(stream, &mut chance));
            rig.send_op(Op::CreateStream { id: id(stream), account, config });
            rig.settle();
        }
        Self { chance, disk, rig: Some(rig), follower: None, now_ns, lives: 1, published: 0 }
    }

    fn step(&mut self, seed: u64) -> Result<(), String> {
        match self.chance.below(24) {
            0..=6 => drop(self.publish(None)),
            7 => self.delete(),
            8 if self.chance.below(2) == 0 => self.purge(),
            9 if self.chance.below(3) == 0 => self.update(),
            10 if self.chance.below(6) == 0 => self.restart(seed),
            11 => self.pass(),
            12..=15 => self.follow(),
            _ => return self.get(),
        }
        Ok(())
    }

    fn pass(&mut self) {
        let ms = self.chance.below(700);
        self.now_ns += ms.cast_signed() * 1_000_000;
        self.rig().wait(ms);
        if self.chance.below(2) == 0 {
            self.rig().settle();
        }
    }

    /// Everything that there is has committed: a keeper applies nothing else.
    fn follow(&mut self) {
        self.rig().settle();
        self.follower = Follower::read(self.follower.take(), &self.disk);
    }

    fn restart(&mut self, seed: u64) {
        self.rig().settle();
        self.lives += 1;
        self.rig = None;
        // What has answered reads may be what the next owner begins with.
        let follower = self.follower.take_if(|_| self.chance.below(2) == 0);
        let salt = seed + self.lives * 2;
        let (rig, is_followed) = Rig::open(&self.disk, salt, self.now_ns, follower);
        TAKEN_OVER.fetch_add(u64::from(is_followed), Ordering::Relaxed);
        self.rig = Some(rig);
    }

    fn rig(&mut self) -> &mut Rig {
        self.rig.as_mut().expect("it lives")
    }

    fn stream(&mut self) -> usize {
        self.chance.below(STREAMS.len() as u64) as usize
    }

    fn outgoing(&mut self, stream: usize, header: &str) -> Outgoing {
        self.published += 1;
        let subject = format!("{}.{}", STREAMS[stream], self.chance.below(SUBJECTS));
        let headers =
            if header.is_empty() { String::new() } else { format!("NATS/1.0\r\n{header}\r\n\r\n") };
        let mut body = self.published.to_le_bytes().to_vec();
        body.resize(8 + self.chance.below(300) as usize, 7);
        Outgoing { subject, headers, body }
    }

    fn messages(&mut self, stream: usize) -> Vec<Outgoing> {
        let count = 1 + self.chance.below(4);
        if stream == AGING && self.chance.below(3) == 0 {
            let token = self.published;
            let number = |n: u64| {
                let commit = if n == count { "\r\nNats-Batch-Commit: 1" } else { "" };
                format!("Nats-Batch-Id: {token}\r\nNats-Batch-Sequence: {n}{commit}")
            };
            return (1..=count).map(|n| self.outgoing(stream, &number(n))).collect();
        }
        let header = match (stream, self.chance.below(6)) {
            (LIMITED, 0) => "Nats-Rollup: sub".to_owned(),
            (TIMED, 0..=3) => format!("Nats-TTL: {}s", 1 + self.chance.below(3)),
            _ => String::new(),
        };
        (0..count).map(|_| self.outgoing(stream, &header)).collect()
    }

    fn publish(&mut self, get: Option<(usize, &Get, nuthatch_log::Lsn)>) -> rig::Got {
        let stream = get.map_or_else(|| self.stream(), |(stream, ..)| stream);
        let messages = self.messages(stream);
        self.rig().ask(id(stream), &messages, get.map(|(_, get, position)| (get, position)))
    }

    fn delete(&mut self) {
        let stream = self.stream();
        let seq = 1 + self.chance.below(self.published + 1);
        drop(self.rig().send_op(Op::DeleteMessage { id: id(stream), seq }));
        self.rig().settle();
    }

    fn purge(&mut self) {
        let stream = self.stream();
        let filter = format!("{}.{}", STREAMS[stream], self.chance.below(SUBJECTS));
        let seq = 1 + self.chance.below(self.published + 9);
        let request = match self.chance.below(5) {
            0 => PurgeRequest::default(),
            1 | 2 => PurgeRequest { filter, ..<_>::default() },
            3 => PurgeRequest { keep: 1 + self.chance.below(4), ..<_>::default() },
            _ => PurgeRequest { seq, ..<_>::default() },
        };
        drop(self.rig().send_op(Op::Purge { id: id(stream), request }));
        if self.chance.below(2) == 0 {
            self.rig().settle();
        }
    }

    fn update(&mut self) {
        let stream = self.stream();
        let config = config(stream, &mut self.chance);
        drop(self.rig().send_op(Op::UpdateStream { id: id(stream), config }));
    }

    fn request(&mut self, name: &str) -> Get {
        let subject = format!("{name}.{}", self.chance.below(SUBJECTS + 1));
        let seq = self.chance.below(self.published + 3);
        let upto = self.chance.below(self.published + 3);
        let body = match self.chance.below(12) {
            0 | 1 => return Get { subject, body: String::new() },
            2 | 3 => format!("{{\"seq\":{seq}}}"),
            4 | 5 => format!("{{\"last_by_subj\":\"{subject}\"}}"),
            6 => format!("{{\"last_by_subj\":\"{name}.>\"}}"),
            7 => format!("{{\"seq\":{seq},\"next_by_subj\":\"{subject}\",\"no_hdr\":true}}"),
            8 => format!("{{\"seq\":{seq},\"batch\":{}}}", 1 + self.chance.below(20)),
            9 => format!(
                "{{\"seq\":1,\"next_by_subj\":\"{name}.>\",\"batch\":50,\"max_bytes\":900}}"
            ),
            10 => format!("{{\"multi_last\":[\"{name}.>\"],\"up_to_seq\":{upto}}}"),
            _ => format!("{{\"multi_last\":[\"{name}.1\",\"{name}.*\"]}}"),
        };
        Get { subject: String::new(), body }
    }

    /// Asks the owner with what the standby has read, and compares both if the owner sends that back.
    fn get(&mut self) -> Result<(), String> {
        let Some(follower) = self.follower.take() else { return Ok(()) };
        let (stream, position) = (self.stream(), follower.position());
        let get = self.request(STREAMS[stream]);
        let Some(begun) = follower.begin(STREAMS[stream], &get) else {
            return Err(format!("{} is not followed", STREAMS[stream]));
        };
        let got = match self.chance.below(8) {
            0 => self.publish(Some((stream, &get, position))),
            _ => self.rig().ask(id(stream), &[], Some((&get, position))),
        };
        self.follower = Some(follower);
        if got.back == 0 {
            ASKED.fetch_add(1, Ordering::Relaxed);
            return (got.asking == got.plain)
                .then_some(())
                .ok_or("an answer is another one".into());
        }
        if stream == QUEUE || !got.asking.is_empty() {
            return Err(format!("{} was sent back", STREAMS[stream]));
        }
        // It may read on meanwhile.
        if self.chance.below(4) == 0 {
            drop(self.publish(None));
            self.follow();
        }
        let Some(answers) = self.follower.as_mut().and_then(|follower| follower.answer(begun))
        else {
            return Ok(());
        };
        FOLLOWED.fetch_add(1, Ordering::Relaxed);
        FOUND.fetch_add(
            answers.iter().filter(|answer| !answer.body.is_empty()).count() as u64,
            Ordering::Relaxed,
        );
        match answers == got.plain {
            true => Ok(()),
            false => Err(format!(
                "{get:?} of {}: {answers:?}, the owner: {:?}",
                STREAMS[stream], got.plain
            )),
        }
    }
}

fn schedule(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed);
    (0..STEPS).try_for_each(|step| world.step(seed).map_err(|why| format!("step {step}: {why}")))
}

#[test]
fn what_a_standby_answers_is_what_the_owner_would() {
    let failed: Vec<String> = seeds::seeds(0..SCHEDULES)
        .filter_map(|seed| schedule(seed).err().map(|why| format!("seed {seed}: {why}")))
        .collect();
    assert!(failed.is_empty(), "{} failed: {:#?}", failed.len(), failed.first());
    let [followed, found, asked, taken_over] =
        [&FOLLOWED, &FOUND, &ASKED, &TAKEN_OVER].map(|counter| counter.load(Ordering::Relaxed));
    println!("{followed} answered by standbys, with {found} messages, {asked} by the owner");
    assert!(taken_over > SCHEDULES / 8, "{taken_over} opened from a standby");
    assert!(followed > 10 * SCHEDULES && found > 10 * SCHEDULES && asked > 5 * SCHEDULES);
}
