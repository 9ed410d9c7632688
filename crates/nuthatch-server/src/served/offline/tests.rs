//! What is known of streams whose node is away, without links.

use super::super::table::{OfflinePart, Told};
use super::super::{NodeMessage, NodeState, OwnLog, OwnStream, Served};
use super::*;
use crate::outlet::Outlet;
use nuthatch_protocol::js::StreamConfig;

const LOG: u64 = 7;

fn log(name: &str, identity: u64) -> OwnLog {
    OwnLog { name: name.to_owned(), identity }
}

fn stream(name: &str, log: &str) -> ServedStream {
    let config = StreamConfig {
        name: name.to_owned(),
        subjects: vec![format!("{name}.>")],
        max_bytes: 10,
        ..StreamConfig::default()
    };
    OwnStream { config: Arc::new(config), log: log.into() }.told()
}

/// What a node with these logs of its own tells.
fn telling(logs: &[OwnLog], come: &[ServedStream], gone: &[&str], as_of_ms: u64) -> Told {
    Told {
        state: NodeState { own_logs: logs.to_vec(), ..NodeState::default() },
        is_last: true,
        come: come.to_vec(),
        gone: gone.iter().map(|&name| name.to_owned()).collect(),
        as_of_ms,
        ..Told::default()
    }
}

fn tells(served: &Served, node: &str, told: &Told) {
    let told = serde_json::to_vec(told).expect("JSON");
    assert!(!matches!(served.receive(node, b"T", &told), NodeMessage::Unknown));
}

fn first(told: Told) -> Told {
    Told { is_first: true, ..told }
}

/// A node that knows of `n2`, which has two streams in its own log and one in a quorum log.
fn with_node() -> (Served, Arc<Outlet>) {
    let (served, link) = (Served::default(), Outlet::nowhere());
    served.met(("n2", false), &link, "token");
    let streams = [stream("A", "local"), stream("B", "local"), stream("C", "default")];
    tells(&served, "n2", &first(telling(&[log("local", LOG)], &streams, &[], 100)));
    (served, link)
}

fn overlaps(served: &Served, subject: &str, except: &str) -> bool {
    served.offline_logs().iter().any(|log| {
        let (mut search, mut steps) = (OverlapSearch::new(subject.as_bytes()), usize::MAX);
        served.overlaps_offline(log, &mut search, &mut steps, except) == SearchOutcome::Found
    })
}

#[test]
fn what_only_a_node_has_is_offline_while_it_is_away() {
    let (served, link) = with_node();
    assert_eq!(served.offline("A"), None, "it is there");
    served.left("n2", &link);
    let away = Offline { node: "n2".to_owned(), log: "local".to_owned(), is_connected: false };
    assert_eq!((served.find("A"), served.offline("A")), (None, Some(away.clone())));
    assert_eq!(served.offline("C"), None, "another node owns its log by now, or will");
    assert!(overlaps(&served, "A.x", "B") && !overlaps(&served, "A.x", "A"));
    assert!(!overlaps(&served, "C.x", ""));
    assert_eq!((served.count(), served.reserved(false, "A")), (2, 10));
    let names = |after| {
        let parts = served.part(after, 1);
        let names = parts.iter().flat_map(|(_, part)| part.iter().map(|one| one.name.clone()));
        names.collect::<Vec<_>>()
    };
    assert_eq!(
        (names(None), names(Some("A")), names(Some("B"))),
        (vec!["A".to_owned()], vec!["B".to_owned()], vec![])
    );
    // It comes back: until it has told all, what it had is known still.
    served.met(("n2", false), &Outlet::nowhere(), "token");
    assert_eq!(served.offline("A"), Some(Offline { is_connected: true, ..away }));
    let told = first(telling(&[log("local", LOG)], &[stream("A", "local")], &[], 200));
    tells(&served, "n2", &told);
    assert!(served.find("A").is_some());
    assert_eq!((served.offline("A"), served.offline("B")), (None, None), "B was deleted");
    assert_eq!((served.count(), served.offline_logs().len()), (1, 0));
}

#[test]
fn another_disk_does_not_make_the_names_free() {
    let (served, link) = with_node();
    served.left("n2", &link);
    served.met(("n2", false), &link, "token");
    tells(&served, "n2", &first(telling(&[log("local", 8)], &[], &[], 200)));
    assert!(served.offline("A").is_some_and(|offline| offline.is_connected));
    served.forget_offline("n2");
    assert_eq!((served.offline("A"), served.count()), (None, 0));
}

#[test]
fn a_log_that_is_closed_is_no_deletion() {
    let (served, _link) = with_node();
    tells(&served, "n2", &telling(&[log("local", LOG)], &[], &["A"], 150));
    assert_eq!(served.offline("A"), None, "that is one");
    tells(&served, "n2", &telling(&[], &[], &["B"], 200));
    assert!(served.offline("B").is_some());
    tells(&served, "n2", &telling(&[log("local", LOG)], &[stream("B", "local")], &[], 300));
    assert_eq!((served.offline("B"), served.count()), (None, 2));
}

#[test]
fn a_link_that_is_lost_while_the_node_tells_loses_nothing() {
    let (served, link) = with_node();
    let half = Told { is_last: false, ..telling(&[log("local", LOG)], &[], &[], 200) };
    tells(&served, "n2", &first(half));
    served.left("n2", &link);
    assert!(served.offline("A").is_some() && served.offline("B").is_some());
}

/// A log that was closed and is told of again comes in parts.
#[test]
fn what_was_known_of_a_log_counts_until_all_of_it_is_told_again() {
    let (served, link) = with_node();
    tells(&served, "n2", &telling(&[], &[], &["A", "B"], 150));
    let logs = [log("local", LOG)];
    let half = Told { is_last: false, ..telling(&logs, &[stream("A", "local")], &[], 200) };
    tells(&served, "n2", &half);
    assert!(served.find("A").is_some() && served.offline("B").is_some());
    let names: Vec<String> = served
        .to_remember()
        .iter()
        .flat_map(|log| &log.streams)
        .map(|one| one.name.clone())
        .collect();
    assert_eq!(names, ["A", "B"]);
    served.left("n2", &link);
    assert!(served.offline("A").is_some() && served.offline("B").is_some());
}

/// A store that is started under another name, or a log in a bucket that another node has by now.
#[test]
fn a_log_that_comes_back_at_another_node_is_there() {
    let (served, link) = with_node();
    served.left("n2", &link);
    served.met(("n3", false), &Outlet::nowhere(), "token");
    let logs = [log("local", LOG)];
    tells(&served, "n3", &first(telling(&logs, &[stream("A", "local")], &[], 0)));
    assert_eq!((served.offline("B"), served.count()), (None, 1));
    served.met(("n4", false), &Outlet::nowhere(), "token");
    tells(&served, "n4", &first(part(remembered(900, &["B"]), true)));
    assert_eq!(served.offline("B"), None, "whoever has the log says what is in it");
}

#[test]
fn a_stream_that_another_node_serves_already_is_not_offline_with_its_source() {
    let (served, link) = with_node();
    served.met(("n3", false), &Outlet::nowhere(), "token");
    tells(&served, "n3", &first(telling(&[], &[stream("A", "default-1")], &[], 0)));
    served.left("n2", &link);
    assert!(served.find("A").is_some() && served.offline("B").is_some());
    assert_eq!(served.count(), 2);
    tells(&served, "n3", &telling(&[], &[], &["A"], 0));
    assert_eq!(served.offline("A"), None, "it was deleted there");
}

/// A node that was not there when a log was given up, came back and went again has an old word of it.
#[test]
fn what_was_given_up_before_its_node_was_there_again_is_old() {
    let (served, link) = with_node();
    served.left("n2", &link);
    served.forget_offline("n2");
    let mark = served.to_remember().remove(0);
    assert!(mark.is_given_up && mark.given_up == 1);
    // Its clock is behind, too.
    served.met(("n2", false), &link, "token");
    tells(&served, "n2", &first(telling(&[log("local", LOG)], &[stream("E", "local")], &[], 1)));
    served.left("n2", &link);
    assert!(served.offline("E").is_some());
    served.met(("n3", false), &Outlet::nowhere(), "token");
    tells(&served, "n3", &first(part(mark, true)));
    tells(&served, "n3", &part(remembered(u64::MAX, &["A"]), true));
    assert!(served.offline("E").is_some() && served.offline("A").is_none());
    let newest = served.to_remember().remove(0);
    assert!(newest.given_up == 1 && newest.as_of_ms > 100, "{newest:?}");
}

/// A log has gone to another node while the link with its former one hung.
#[test]
fn a_log_that_another_node_has_is_not_remembered_with_its_former_node() {
    let (served, link) = with_node();
    let (logs, other) = ([log("local", LOG)], Outlet::nowhere());
    served.met(("n3", false), &other, "token");
    let streams = [stream("A", "local"), stream("B", "local")];
    tells(&served, "n3", &first(telling(&logs, &streams, &[], 300)));
    served.left("n2", &link);
    assert_eq!((served.offline_logs().len(), served.count()), (0, 2));
    served.left("n3", &other);
    assert!(served.offline("A").is_some() && served.offline("B").is_some());
    // One of the same log that comes from before is old.
    served.learn(vec![remembered(200, &["C"])]);
    assert_eq!((served.offline("C"), served.count()), (None, 2));
}

/// Each new disk under a name is another log.
#[test]
fn logs_without_streams_are_bounded() {
    let mut offline = OfflineStreams::default();
    for identity in 0..2 * OFFLINE_LOGS_MAX as u64 {
        let streams = if identity == 3 { &["A"][..] } else { &[] };
        assert!(offline.take(StreamsOfLog { identity, ..remembered(identity + 1, streams) }));
    }
    assert_eq!((offline.all().len(), offline.find("A").is_some()), (OFFLINE_LOGS_MAX, true));
}

#[test]
fn a_stream_that_was_moved_is_where_it_is_served() {
    let (served, link) = with_node();
    served.left("n2", &link);
    served.met(("n3", false), &Outlet::nowhere(), "token");
    tells(&served, "n3", &first(telling(&[], &[stream("A", "default-1")], &[], 0)));
    assert_eq!(served.offline("A"), None);
    tells(&served, "n3", &telling(&[], &[], &["A"], 0));
    assert_eq!(served.offline("A"), None, "it was deleted there");
    assert!(served.offline("B").is_some());
}

fn remembered(as_of_ms: u64, streams: &[&str]) -> StreamsOfLog {
    StreamsOfLog {
        node: "n2".to_owned(),
        log: "local".to_owned(),
        identity: LOG,
        as_of_ms,
        given_up: 0,
        is_given_up: false,
        streams: streams.iter().map(|name| stream(name, "local")).collect(),
    }
}

fn part(log: StreamsOfLog, is_last: bool) -> Told {
    Told { offline: Some(OfflinePart { log, is_last }), ..Told::default() }
}

#[test]
fn the_newest_word_of_a_log_counts_whoever_brings_it() {
    let served = Served::default();
    served.learn(vec![remembered(100, &["A", "B"])]);
    served.met(("n3", false), &Outlet::nowhere(), "token");
    tells(&served, "n3", &first(part(remembered(90, &["OLD"]), true)));
    assert!(served.offline("A").is_some() && served.offline("OLD").is_none());
    tells(&served, "n3", &part(remembered(110, &["A"]), false));
    assert!(served.offline("B").is_some(), "that was not all");
    tells(&served, "n3", &part(remembered(110, &["D"]), true));
    let known = |names: [&str; 3]| names.map(|name| served.offline(name).is_some());
    assert_eq!(known(["A", "B", "D"]), [true, false, true]);
    // Forgotten is newer than what others remember.
    served.forget_offline("n2");
    tells(&served, "n3", &part(remembered(120, &["A"]), true));
    assert_eq!(served.offline("A"), None);
    let given_up = served.to_remember();
    assert!(given_up.len() == 1 && given_up[0].streams.is_empty() && given_up[0].is_given_up);
    // And wins over what others remember, whatever their clocks say, until the node is there.
    tells(&served, "n3", &part(remembered(u64::MAX, &["A"]), true));
    assert_eq!(served.offline("A"), None);
    let other = Served::default();
    other.met(("n3", false), &Outlet::nowhere(), "token");
    tells(&other, "n3", &first(part(remembered(u64::MAX, &["A"]), true)));
    tells(&other, "n3", &part(given_up[0].clone(), true));
    assert_eq!(other.offline("A"), None);
    let link = Outlet::nowhere();
    served.met(("n2", false), &link, "token");
    tells(&served, "n2", &first(telling(&[log("local", LOG)], &[stream("E", "local")], &[], 1)));
    served.left("n2", &link);
    assert!(served.offline("E").is_some());
}

#[test]
fn nobody_tells_a_node_what_it_has_itself() {
    let served = Served::default();
    let state = NodeState { own_logs: vec![log("local", LOG)], ..NodeState::default() };
    served.learn(vec![remembered(100, &["A"])]);
    served.tell(state.clone(), &[], Vec::new(), Vec::new);
    assert_eq!(served.offline("A"), None);
    served.met(("n3", false), &Outlet::nowhere(), "token");
    served.tell(state, &[], Vec::new(), Vec::new);
    tells(&served, "n3", &first(part(remembered(900, &["A"]), true)));
    assert_eq!(served.offline("A"), None);
}

#[test]
fn what_is_remembered_is_of_connected_nodes_too_and_has_a_bound() {
    let (served, link) = with_node();
    let names = |all: &[StreamsOfLog]| {
        let streams = all.iter().flat_map(|log| log.streams.iter());
        streams.map(|stream| stream.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&served.to_remember()), ["A", "B"]);
    let before = served.remembered();
    tells(&served, "n2", &telling(&[log("local", LOG)], &[stream("D", "local")], &[], 200));
    assert!(served.remembered() > before);
    served.left("n2", &link);
    assert_eq!(names(&served.to_remember()), ["A", "B", "D"]);
    let mut offline = OfflineStreams::default();
    let many = (0..OFFLINE_STREAMS_MAX + 3).map(|number| number.to_string());
    let many: Vec<String> = many.collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(offline.take(remembered(1, &many)));
    assert_eq!((offline.count(), offline.left_out()), (OFFLINE_STREAMS_MAX, 3));
}
