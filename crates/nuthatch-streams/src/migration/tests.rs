//! What a start decides after a stop at each step of a move.

use super::deciding::{self, Decided, Decider, Pauses, Told};
use super::left_copy::{self, LeftCopy};
use super::*;
use crate::op::{CopyStanding, Forgotten, Op, OpOutcome};
use crate::sink::AccountId;
use crate::stream::Provenance;
use nuthatch_protocol::js::{StreamConfig, Time};
use nuthatch_protocol::jserror::JsError;
use std::sync::Arc;
use std::time::Duration;

const LOGS: [&str; 2] = ["default", "cold"];

fn entry(id: u32, provenance: Provenance) -> CatalogEntry {
    let config = StreamConfig { name: "S".to_owned(), ..StreamConfig::default() };
    CatalogEntry {
        id: StreamId(id),
        account: AccountId::GLOBAL,
        config: config.into(),
        created: Time(1),
        provenance,
        last_seq: 0,
    }
}

fn place(log: &str, stream: u32) -> StreamLocation {
    StreamLocation { log: log.to_owned(), stream: StreamId(stream) }
}

fn source() -> CatalogEntry {
    entry(1, Provenance::default())
}

fn about_to_leave() -> CatalogEntry {
    entry(1, Provenance { to: Some(place("cold", 2)), ..Provenance::default() })
}

fn copy() -> CatalogEntry {
    entry(2, Provenance::arriving(place("default", 1)))
}

fn arrived() -> CatalogEntry {
    entry(2, Provenance::arrived(place("default", 1)))
}

fn served(resolution: &Resolution) -> Vec<(usize, u32)> {
    resolution.serve.iter().map(|(log, entry)| (*log, entry.id.0)).collect()
}

#[test]
fn before_the_new_log_has_the_state_the_old_one_serves_and_the_copy_goes_on() {
    for stream in [source(), about_to_leave()] {
        let resolution =
            resolve(&LOGS, &[vec![stream], vec![copy()]], OtherLogs::Nowhere).expect("resolved");
        assert_eq!(served(&resolution), [(0, 1)]);
        let (copy, source) =
            (LogStream { log: 1, stream: StreamId(2) }, LogStream { log: 0, stream: StreamId(1) });
        assert_eq!(resolution.resume, [Resume { copy, source }]);
        assert!(resolution.forget.is_empty());
    }
}

#[test]
fn after_that_the_new_one_serves_and_the_rest_is_forgotten() {
    let resolution = resolve(&LOGS, &[vec![about_to_leave()], vec![arrived()]], OtherLogs::Nowhere)
        .expect("resolved");
    assert_eq!(served(&resolution), [(1, 2)]);
    assert_eq!(resolution.forget, [LogStream { log: 0, stream: StreamId(1) }]);
    let resolution =
        resolve(&LOGS, &[vec![], vec![arrived()]], OtherLogs::Nowhere).expect("resolved");
    assert_eq!(served(&resolution), [(1, 2)]);
    assert!(resolution.forget.is_empty());
}

#[test]
fn a_stream_that_may_live_where_nobody_can_look_is_not_served_twice() {
    let missing = resolve(&LOGS[..1], &[vec![about_to_leave()]], OtherLogs::Nowhere);
    assert!(matches!(missing, Err(MigrationError::TargetMissing { .. })), "{missing:?}");
    let empty = resolve(&LOGS, &[vec![about_to_leave()], vec![]], OtherLogs::Nowhere);
    assert!(matches!(empty, Err(MigrationError::TargetEmpty { .. })), "{empty:?}");
}

#[test]
fn a_copy_that_was_refused_is_forgotten_and_a_later_one_goes_on() {
    let stays = entry(
        1,
        Provenance { to: Some(refusal_of("default", StreamId(2))), ..Provenance::default() },
    );
    let resolution =
        resolve(&LOGS, &[vec![stays.clone()], vec![copy()]], OtherLogs::Nowhere).expect("resolved");
    assert_eq!(served(&resolution), [(0, 1)]);
    assert_eq!(resolution.forget, [LogStream { log: 1, stream: StreamId(2) }]);
    assert!(resolution.resume.is_empty());
    let resolution =
        resolve(&LOGS, &[vec![stays.clone()], vec![]], OtherLogs::Nowhere).expect("resolved");
    assert_eq!(served(&resolution), [(0, 1)]);
    let later = entry(3, Provenance::arriving(place("default", 1)));
    let resolution =
        resolve(&LOGS, &[vec![stays], vec![later]], OtherLogs::Nowhere).expect("resolved");
    assert_eq!(resolution.resume.len(), 1);
    assert!(resolution.forget.is_empty());
}

#[test]
fn a_copy_whose_origin_was_deleted_goes_and_one_whose_log_is_missing_waits() {
    let resolution = resolve(&LOGS, &[vec![], vec![copy()]], OtherLogs::Nowhere).expect("resolved");
    assert_eq!(resolution.forget, [LogStream { log: 1, stream: StreamId(2) }]);
    let resolution = resolve(&["cold"], &[vec![copy()]], OtherLogs::Nowhere).expect("resolved");
    assert_eq!(resolution.waiting.len(), 1);
    assert!(resolution.forget.is_empty() && resolution.serve.is_empty());
}

#[test]
fn a_stream_that_may_live_at_another_node_is_undecided_there() {
    let found = resolve(&["default"], &[vec![about_to_leave()]], OtherLogs::AtNodes);
    let found = found.expect("resolved");
    assert!(found.serve.is_empty() && found.forget.is_empty(), "{found:?}");
    assert_eq!(found.undecided, [(0, about_to_leave())]);
    // One that has refused the copy is not asked about.
    let refused = Some(refusal_of("default", StreamId(2)));
    let stays = entry(1, Provenance { to: refused, ..Provenance::default() });
    let found = resolve(&["default"], &[vec![stays]], OtherLogs::AtNodes).expect("resolved");
    assert_eq!((served(&found), found.undecided.len()), (vec![(0, 1)], 0));
}

#[test]
fn a_copy_that_was_refused_is_not_gone_on_with() {
    let refused = Provenance {
        to: Some(refusal_of("cold", StreamId(2))),
        ..Provenance::arriving(place("default", 1))
    };
    let catalogs = [vec![about_to_leave()], vec![entry(2, refused)]];
    let found = resolve(&LOGS, &catalogs, OtherLogs::AtNodes).expect("resolved");
    assert!(found.resume.is_empty() && found.serve.is_empty() && found.forget.is_empty());
    // The stream hears of the refusal as from another node, and the copy waits for it.
    assert_eq!((found.undecided.len(), found.waiting.len()), (1, 1));
}

#[test]
fn another_stream_with_the_same_identity_is_not_forgotten() {
    let mut other = source();
    Arc::make_mut(&mut other.config).name = "another".to_owned();
    let found = resolve(&LOGS, &[vec![other], vec![arrived()]], OtherLogs::AtNodes);
    let found = found.expect("resolved");
    assert!(found.forget.is_empty(), "{found:?}");
    assert_eq!(served(&found), [(0, 1), (1, 2)]);
}

#[test]
fn whether_a_stream_lives_here_is_asked_until_it_is_told() {
    let pauses = Pauses { min: Duration::from_millis(20), max: Duration::from_millis(50) };
    let ask = || deciding::Action::Ask(place("cold", 2));
    let asked = || {
        let mut decider = Decider::new(place("default", 1), place("cold", 2), pauses);
        assert_eq!(decider.step(deciding::Happened::Began), ask());
        decider
    };
    let mut decider = asked();
    for ms in [20, 40, 50, 50] {
        let rest = decider.step(deciding::Happened::NotTold);
        assert_eq!(rest, deciding::Action::Rest(Duration::from_millis(ms)));
        assert_eq!(decider.step(deciding::Happened::Rested), ask());
    }
    // The copy never takes over: this log remembers that before the stream goes on.
    let refused = deciding::Happened::Told(Told::Copy(CopyStanding::Refused));
    let stay = Op::Stay { id: StreamId(1), refused: Some(refusal_of("default", StreamId(2))) };
    assert_eq!(decider.step(refused), deciding::Action::Run(stay));
    let done = deciding::Happened::Outcome(Ok(OpOutcome::Done));
    assert_eq!(decider.step(done), deciding::Action::End(Decided::Stays));
    // Or it has, and may have gone on from there: what is here is nothing any more.
    for told in [Told::Copy(CopyStanding::Settled), Told::Gone] {
        for (happened, ended) in [
            (deciding::Happened::Outcome(Ok(OpOutcome::Done)), Decided::Left),
            (deciding::Happened::Outcome(Err(JsError::STREAM_NOT_FOUND)), Decided::Left),
            (deciding::Happened::NotSent, Decided::GivenUp),
        ] {
            let mut decider = asked();
            let forget = Op::Forget { id: StreamId(1), what: Forgotten::LeftFor(StreamId(2)) };
            let action = decider.step(deciding::Happened::Told(told));
            assert_eq!(action, deciding::Action::Run(forget));
            assert_eq!(decider.step(happened), deciding::Action::End(ended));
        }
    }
}

#[test]
fn a_copy_stays_as_long_as_its_source_may_ask_for_it() {
    let pauses = Pauses { min: Duration::from_millis(20), max: Duration::from_millis(20) };
    let ask = || left_copy::Action::Ask(place("default", 1));
    let mut left = LeftCopy::new(StreamId(2), place("default", 1), pauses);
    assert_eq!(left.step(left_copy::Happened::Began), ask());
    for happened in [left_copy::Happened::NotTold, left_copy::Happened::Told(true)] {
        assert_eq!(left.step(happened), left_copy::Action::Rest(pauses.min));
        assert_eq!(left.step(left_copy::Happened::Rested), ask());
    }
    // Only a copy: one that has taken over is a stream.
    let forget = Op::Forget { id: StreamId(2), what: Forgotten::Copy };
    assert_eq!(left.step(left_copy::Happened::Told(false)), left_copy::Action::Run(forget));
    assert_eq!(left.step(left_copy::Happened::Done), left_copy::Action::End);
}
