//! A fault of the program on the sequencer: the log stops loudly, and nobody waits for ever.

use crate::event::{Event, HandOff};
use crate::op::{Op, OpResult};
use crate::sink::{AccountId, NullSink};
use crate::{Engine, EngineConfig};
use nuthatch_log::env::{ManualClock, MemDisk, SeededEntropy};
use nuthatch_log::{Log, LogHandle, LogOptions, StreamId};
use nuthatch_protocol::js::StreamConfig;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Far above what an answer takes.
const SOON: Duration = Duration::from_secs(30);

fn ask(handle: &LogHandle<Event<()>>, op: Op) -> Option<Receiver<OpResult>> {
    let (answer, asked) = channel();
    let respond = Box::new(move |outcome| answer.send(outcome).expect("somebody waits"));
    handle.send(Event::Op(op, respond), 1).is_ok().then_some(asked)
}

fn create(id: u32) -> Op {
    let config = StreamConfig {
        name: format!("S{id}"),
        subjects: vec![format!("s{id}.>")],
        ..StreamConfig::default()
    };
    let account = AccountId::GLOBAL;
    Op::CreateStream { id: StreamId(id), account, config: Box::new(config) }
}

#[test]
fn a_fault_of_the_program_stops_the_log_and_lets_nobody_wait() {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000_000_000));
    let entropy = Box::new(SeededEntropy::new(1));
    let engine = Engine::new(EngineConfig::default(), NullSink);
    let disk = Arc::new(MemDisk::default());
    let opened = Log::open(LogOptions::default(), disk, clock, entropy, engine);
    let handle = opened.expect("opens").0.spawn("faults").expect("spawns");
    let created = ask(&handle, create(1)).expect("taken");
    created.recv_timeout(SOON).expect("an answer").expect("created");
    let hand_off = HandOff(Box::new("not what an engine hands over"));
    assert!(handle.send(Event::Install { id: StreamId(1), hand_off }, 1).is_ok());
    // Whatever came behind it is answered, or nobody waits for it; what comes later is refused.
    let mut refused = false;
    for id in 2..1000 {
        match ask(&handle, create(id)) {
            None => refused = true,
            Some(asked) => {
                let answer = asked.recv_timeout(SOON);
                assert!(!matches!(answer, Ok(Ok(_))), "nothing works after a fault");
                assert_ne!(answer.err(), Some(std::sync::mpsc::RecvTimeoutError::Timeout));
            }
        }
        if refused {
            break;
        }
    }
    assert!(refused, "a log that has stopped takes nothing");
    assert!(handle.close().is_err(), "and says so at its end");
}
