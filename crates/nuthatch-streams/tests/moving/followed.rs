//! A standby of a log to which a stream is moved. A stream that arrives begins with a state, and another one ends its arrival:
//! no record says what they do.

use super::location;
use super::rig::{Outside, Rig, config};
use nuthatch_log::env::MemDisk;
use nuthatch_log::{Disk, Keys, Standby, StandbyError, StreamId};
use nuthatch_protocol::js::Time;
use nuthatch_streams::migration::LogStream;
use nuthatch_streams::{AccountId, Engine, EngineConfig, NullSink, Op};
use std::sync::Arc;

const OLD: StreamId = StreamId(1);
const MOVED: StreamId = StreamId(2);

fn begin(disk: &MemDisk) -> Standby<Engine<NullSink>> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let engine = Engine::new(EngineConfig::default(), NullSink);
    Standby::begin(&Keys::default(), &disk, engine).expect("reads").expect("there is a log")
}

fn follow(standby: &mut Standby<Engine<NullSink>>, disk: &MemDisk) -> Result<(), StandbyError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    while standby.follow(&disk)? {}
    Ok(())
}

#[test]
fn an_arrival_is_read_from_the_beginning() {
    let disk = MemDisk::default();
    let Ok(mut rig) = Rig::open(&disk, 1, &Outside::default()) else { panic!("it opens") };
    let create = Op::CreateStream { id: OLD, account: AccountId::GLOBAL, config: config() };
    assert!(rig.op(create).is_ok());
    let mut before = begin(&disk);
    rig.publish(OLD, &[(1, vec![7; 10])]);
    follow(&mut before, &disk).expect("what records tell is followed");
    let from = location(LogStream { log: 1, stream: StreamId(9) });
    let (account, created) = (AccountId::GLOBAL, Time(1));
    let arrive = Op::Arrive { id: MOVED, account, config: config(), from, created };
    assert!(rig.op(arrive).is_ok());
    let left = follow(&mut before, &disk);
    assert!(matches!(left, Err(StandbyError::Changed { .. })), "{left:?}");
    // Begun behind it the standby has the stream as it is.
    follow(&mut begin(&disk), &disk).expect("it is known");
}
