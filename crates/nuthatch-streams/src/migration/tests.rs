//! What a start decides after a stop at each step of a move.

use super::*;
use crate::sink::AccountId;
use crate::stream::Provenance;
use nuthatch_protocol::js::{StreamConfig, Time};

const LOGS: [&str; 2] = ["default", "cold"];

fn entry(id: u32, provenance: Provenance) -> CatalogEntry {
    let config = StreamConfig { name: "S".to_owned(), ..StreamConfig::default() };
    CatalogEntry {
        id: StreamId(id),
        account: AccountId::GLOBAL,
        config,
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
    other.config.name = "another".to_owned();
    let found = resolve(&LOGS, &[vec![other], vec![arrived()]], OtherLogs::AtNodes);
    let found = found.expect("resolved");
    assert!(found.forget.is_empty(), "{found:?}");
    assert_eq!(served(&found), [(0, 1), (1, 2)]);
}
