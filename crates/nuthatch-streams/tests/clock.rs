//! A wall clock that steps, under a stream whose messages expire by age and by times of their own.

use bytes::Bytes;
use nuthatch_log::env::{MemDisk, SeededEntropy};
use nuthatch_log::{Log, LogCore, LogHandle, LogOptions, StreamId};
use nuthatch_protocol::js::{StreamConfig, StreamState};
use nuthatch_streams::steady::{STEP_LASTS, SteadyClock, StepEvent, TimeSource};
use nuthatch_streams::validate::{self, Limits};
use nuthatch_streams::{
    AccountId, ClientBatch, Engine, EngineConfig, Event, Item, NullSink, Op, OpOutcome, OpResult,
    PublishItem, Span,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const STREAM: StreamId = StreamId(1);
const START: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;
const TURNS_MAX: usize = 10_000;

/// Wall clock and monotonic clock, ns.
#[derive(Clone)]
struct Clocks(Arc<Mutex<(i64, i64)>>);

impl TimeSource for Clocks {
    fn wall_nanos(&self) -> i64 {
        self.0.lock().expect("lock").0
    }
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.0.lock().expect("lock").1 as u64)
    }
}

struct Rig {
    core: LogCore<Engine<NullSink>>,
    handle: LogHandle<Event<()>>,
    clocks: Clocks,
    clock: Arc<SteadyClock<Clocks>>,
    events: Arc<Mutex<Vec<StepEvent>>>,
}

impl Rig {
    fn with_stream(adapt: impl FnOnce(&mut StreamConfig)) -> Self {
        let clocks = Clocks(Arc::new(Mutex::new((START, 0))));
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = events.clone();
        let tell = Box::new(move |event| told.lock().expect("lock").push(event));
        let clock = Arc::new(SteadyClock::new(clocks.clone(), tell));
        let engine = Engine::new(EngineConfig::default(), NullSink);
        let entropy = Box::new(SeededEntropy::new(1));
        let disk = Arc::new(MemDisk::default());
        let (core, _) =
            Log::open(LogOptions::default(), disk, clock.clone(), entropy, engine).expect("opens");
        let handle = core.handle();
        let mut rig = Self { core, handle, clocks, clock, events };
        let mut config = StreamConfig {
            name: "S".into(),
            subjects: vec!["s.>".into()],
            ..StreamConfig::default()
        };
        adapt(&mut config);
        let config = validate::stream_config(config, &Limits::default()).expect("valid");
        let account = AccountId::GLOBAL;
        rig.op(Op::CreateStream { id: STREAM, account, config: Box::new(config) });
        rig
    }

    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.core.turn().progress {
                return;
            }
        }
        panic!("the log does not come to rest");
    }

    fn op(&mut self, op: Op) -> OpOutcome {
        let result: Arc<Mutex<Option<OpResult>>> = Arc::default();
        let slot = result.clone();
        let respond = Box::new(move |outcome| *slot.lock().expect("lock") = Some(outcome));
        assert!(self.handle.send(Event::Op(op, respond), 1).is_ok());
        self.settle();
        let outcome = result.lock().expect("lock").take();
        outcome.expect("an answer").expect("an outcome")
    }

    fn publish(&mut self, headers: &str) {
        let text = format!("s.a{headers}");
        let span = |start, end| Span { start, end };
        let item = Item::Publish(PublishItem {
            stream: STREAM,
            hint: 0,
            subject: span(0, 3),
            reply: Span::default(),
            headers: span(3, text.len() as u32),
            body: Span::default(),
        });
        let batch = ClientBatch { peer: (), buf: Bytes::from(text), items: vec![item] };
        assert!(self.handle.send(Event::Batch(batch), 1).is_ok());
        self.settle();
    }

    fn state(&mut self) -> StreamState {
        let op = Op::StreamInfo {
            id: STREAM,
            deleted_details: false,
            subjects_filter: String::new(),
            offset: 0,
        };
        match self.op(op) {
            OpOutcome::Stream { info, .. } => info.state,
            other => panic!("{other:?}"),
        }
    }

    fn pass(&mut self, seconds: i64) {
        for _ in 0..seconds {
            let mut clocks = self.clocks.0.lock().expect("lock");
            (clocks.0, clocks.1) = (clocks.0 + SECOND, clocks.1 + SECOND);
            drop(clocks);
            self.settle();
        }
    }

    fn step(&mut self, by: i64) {
        self.clocks.0.lock().expect("lock").0 += by;
    }
}

/// Whether a glitch of an hour for two seconds takes messages, or leaves wrong times behind.
fn glitch(adapt: impl FnOnce(&mut StreamConfig), headers: &str) {
    let mut rig = Rig::with_stream(adapt);
    (0..10).for_each(|_| rig.publish(headers));
    rig.pass(5);
    rig.step(HOUR);
    rig.pass(2);
    rig.publish(headers);
    rig.step(-HOUR);
    rig.pass(2);
    rig.publish(headers);
    let state = rig.state();
    assert_eq!(state.messages, 12, "nothing has expired");
    assert_eq!((state.last_ts.0 - START) / SECOND, 9, "times are right again at once");
    rig.pass(600);
    assert_eq!(rig.state().messages, 0, "and everything expires when it should");
    let events = rig.events.lock().expect("lock").clone();
    assert!(matches!(events[..], [StepEvent::Doubted { .. }, StepEvent::TakenBack]), "{events:?}");
}

#[test]
fn a_glitch_of_the_wall_clock_expires_nothing_by_age() {
    glitch(|config| config.max_age = 600 * SECOND, "");
}

#[test]
fn a_glitch_of_the_wall_clock_expires_no_message_with_a_time_of_its_own() {
    glitch(|config| config.allow_msg_ttl = true, "NATS/1.0\r\nNats-TTL: 600s\r\n\r\n");
}

#[test]
fn a_step_that_lasts_or_is_said_to_be_right_counts() {
    for is_told in [false, true] {
        let mut rig = Rig::with_stream(|config| config.max_age = 1800 * SECOND);
        rig.publish("");
        rig.step(HOUR);
        rig.pass(5);
        assert_eq!(rig.state().messages, 1);
        if is_told {
            assert_eq!(rig.clock.trust_wall(), Some(Duration::from_hours(1)));
            rig.pass(2);
        } else {
            rig.pass(STEP_LASTS.as_secs() as i64 + 2);
        }
        assert_eq!(rig.state().messages, 0);
        rig.publish("");
        assert!(rig.state().last_ts.0 > START + HOUR);
    }
}
