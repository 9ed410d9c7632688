//! What a start decides after a stop at each step of a move.

use super::*;
use crate::sink::AccountId;
use crate::stream::Home;
use nuthatch_protocol::js::{StreamConfig, Time};

const LOGS: [&str; 2] = ["default", "cold"];

fn entry(id: u32, home: Home) -> CatalogEntry {
    let config = StreamConfig { name: "S".to_owned(), ..StreamConfig::default() };
    CatalogEntry {
        id: StreamId(id),
        account: AccountId::GLOBAL,
        config,
        created: Time(1),
        home,
        last_seq: 0,
    }
}

fn place(log: &str, stream: u32) -> Place {
    Place { log: log.to_owned(), stream: StreamId(stream) }
}

fn source() -> CatalogEntry {
    entry(1, Home::default())
}

fn about_to_leave() -> CatalogEntry {
    entry(1, Home { to: Some(place("cold", 2)), ..Home::default() })
}

fn copy() -> CatalogEntry {
    entry(2, Home::arriving(place("default", 1)))
}

fn arrived() -> CatalogEntry {
    entry(2, Home::arrived(place("default", 1)))
}

fn served(resolution: &Resolution) -> Vec<(usize, u32)> {
    resolution.serve.iter().map(|(log, entry)| (*log, entry.id.0)).collect()
}

#[test]
fn before_the_new_log_has_the_state_the_old_one_serves_and_the_copy_goes_on() {
    for stream in [source(), about_to_leave()] {
        let resolution = resolve(&LOGS, &[vec![stream], vec![copy()]]).expect("resolved");
        assert_eq!(served(&resolution), [(0, 1)]);
        let (copy, source) =
            (At { log: 1, stream: StreamId(2) }, At { log: 0, stream: StreamId(1) });
        assert_eq!(resolution.resume, [Resume { copy, source }]);
        assert!(resolution.forget.is_empty());
    }
}

#[test]
fn after_that_the_new_one_serves_and_the_rest_is_forgotten() {
    let resolution = resolve(&LOGS, &[vec![about_to_leave()], vec![arrived()]]).expect("resolved");
    assert_eq!(served(&resolution), [(1, 2)]);
    assert_eq!(resolution.forget, [At { log: 0, stream: StreamId(1) }]);
    let resolution = resolve(&LOGS, &[vec![], vec![arrived()]]).expect("resolved");
    assert_eq!(served(&resolution), [(1, 2)]);
    assert!(resolution.forget.is_empty());
}

#[test]
fn a_stream_that_may_live_where_nobody_can_look_is_not_served_twice() {
    let missing = resolve(&LOGS[..1], &[vec![about_to_leave()]]);
    assert!(matches!(missing, Err(TransitError::TargetMissing { .. })), "{missing:?}");
    let empty = resolve(&LOGS, &[vec![about_to_leave()], vec![]]);
    assert!(matches!(empty, Err(TransitError::TargetEmpty { .. })), "{empty:?}");
}

#[test]
fn a_copy_that_was_refused_is_forgotten_and_a_later_one_goes_on() {
    let stays = entry(1, Home { to: Some(refusal_of("default", StreamId(2))), ..Home::default() });
    let resolution = resolve(&LOGS, &[vec![stays.clone()], vec![copy()]]).expect("resolved");
    assert_eq!(served(&resolution), [(0, 1)]);
    assert_eq!(resolution.forget, [At { log: 1, stream: StreamId(2) }]);
    assert!(resolution.resume.is_empty());
    let resolution = resolve(&LOGS, &[vec![stays.clone()], vec![]]).expect("resolved");
    assert_eq!(served(&resolution), [(0, 1)]);
    let later = entry(3, Home::arriving(place("default", 1)));
    let resolution = resolve(&LOGS, &[vec![stays], vec![later]]).expect("resolved");
    assert_eq!(resolution.resume.len(), 1);
    assert!(resolution.forget.is_empty());
}

#[test]
fn a_copy_whose_origin_was_deleted_goes_and_one_whose_log_is_missing_waits() {
    let resolution = resolve(&LOGS, &[vec![], vec![copy()]]).expect("resolved");
    assert_eq!(resolution.forget, [At { log: 1, stream: StreamId(2) }]);
    let resolution = resolve(&["cold"], &[vec![copy()]]).expect("resolved");
    assert_eq!(resolution.waiting.len(), 1);
    assert!(resolution.forget.is_empty() && resolution.serve.is_empty());
}
