//! Tables of other nodes, without links.

use super::table::Told;
use super::*;
use nuthatch_protocol::js::{StorageType, StreamSource};

fn own(name: &str, subject: &str) -> OwnStream {
    let config = StreamConfig {
        name: name.to_owned(),
        subjects: vec![subject.to_owned()],
        ..StreamConfig::default()
    };
    OwnStream { config: Arc::new(config), log: "memory".into() }
}

fn told(is_first: bool, is_last: bool, come: &[OwnStream], gone: &[&str]) -> Vec<u8> {
    let told = Told {
        state: NodeState {
            logs: vec!["memory".to_owned()],
            leads_in: Some(7),
            ..NodeState::default()
        },
        is_first,
        is_last,
        come: come.iter().map(OwnStream::told).collect(),
        gone: gone.iter().map(|&name| name.to_owned()).collect(),
        ..Told::default()
    };
    serde_json::to_vec(&told).expect("JSON")
}

fn overlaps(served: &Served, subject: &str, except: &str) -> bool {
    let (mut search, mut steps) = (OverlapSearch::new(subject.as_bytes()), usize::MAX);
    served.overlaps("n2", &mut search, &mut steps, except) == SearchOutcome::Found
}

#[test]
fn a_table_is_complete_with_its_last_part_and_follows_what_changes() {
    let (served, link) = (Served::default(), Outlet::nowhere());
    assert!(matches!(served.receive("n2", b"T", b"{}"), NodeMessage::Unknown), "not met");
    served.met(("n2", false), &link, "token");
    assert!(matches!(served.receive("n2", b"T", b"no JSON"), NodeMessage::Unknown));
    assert_eq!(served.leader(), Leader::Nobody);
    served.receive("n2", b"T", &told(true, false, &[own("A", "a.>")], &[]));
    assert!(!served.nodes()[0].2 && served.find("A").is_some());
    served.receive("n2", b"T", &told(false, true, &[own("B", "b.>")], &[]));
    assert!(served.nodes()[0].2 && served.find("B").is_some());
    assert_eq!(served.leader(), Leader::At("n2".to_owned()));
    assert!(overlaps(&served, "b.x", "A") && !overlaps(&served, "b.x", "B"));
    served.receive("n2", b"T", &told(false, true, &[own("B", "c.>")], &["A"]));
    assert!(served.find("A").is_none() && !overlaps(&served, "*.x", "B"));
    assert!(overlaps(&served, "c.x", "A") && !overlaps(&served, "b.x", "A"));
    served.receive("n2", b"T", &told(true, false, &[], &[]));
    assert!(!served.nodes()[0].2 && served.count() == 0, "it began anew");
    served.left("n2", &Outlet::nowhere());
    assert_eq!(served.nodes().len(), 1, "that was an older link");
    served.left("n2", &link);
    assert_eq!((served.nodes().len(), served.leader()), (0, Leader::Nobody));
}

#[test]
fn what_was_asked_ends_with_the_link_or_its_answer() {
    let (served, link) = (Served::default(), Outlet::nowhere());
    let call = ("STREAM.INFO.S", &b""[..], &b""[..]);
    assert!(served.ask("n2", &Scope::Node, call).is_none());
    served.met(("n2", false), &link, "token");
    let mut first = served.ask("n2", &Scope::Node, call).expect("asked");
    let mut second = served.ask("n2", &Scope::Node, call).expect("asked");
    let mut third = served.ask("n2", &Scope::Node, call).expect("asked");
    served.receive("n2", b"A.1", b"answer");
    served.receive("n2", b"N.2", b"");
    assert_eq!(first.try_recv().ok(), Some(Some(Bytes::from_static(b"answer"))));
    assert_eq!(second.try_recv().ok(), Some(None));
    assert!(third.try_recv().is_err());
    served.left("n2", &link);
    assert_eq!(third.try_recv(), Err(oneshot::error::TryRecvError::Closed));
}

#[test]
fn a_question_says_how_it_is_to_be_handled() {
    let served = Served::default();
    for scope in [Scope::Cluster, Scope::Node, Scope::Log("default".to_owned())] {
        let what = format!("Q.9.{}.STREAM.CREATE.S", text_of(&scope));
        match served.receive("n2", what.as_bytes(), b"") {
            NodeMessage::Question { id: 9, scope: read, call: "STREAM.CREATE.S" } => {
                assert_eq!(read, scope);
            }
            _ => panic!("{what}"),
        }
    }
    for wrong in ["Q.x.c.STREAM.NAMES", "Q.1.z.STREAM.NAMES", "Q.1.c", "X", "B.", ""] {
        let read = served.receive("n2", wrong.as_bytes(), b"");
        assert!(matches!(read, NodeMessage::Unknown), "{wrong}");
    }
}

#[test]
fn a_node_is_told_of_all_streams_when_they_are_known() {
    let (served, link) = (Served::default(), Outlet::nowhere());
    let is_told = || served.inner.lock().nodes["n2"].is_told;
    served.met(("n2", false), &link, "token");
    assert!(!is_told(), "what nobody was told of before is to be gathered first");
    served.tell(NodeState::default(), &[], Vec::new(), Vec::new);
    assert!(is_told());
    served.receive("n2", b"T", &told(true, true, &[], &[]));
    assert!(is_told(), "its own telling anew changes nothing");
    served.met(("n2", false), &link, "token");
    assert!(!is_told(), "another link begins anew");
}

/// Lists go through tables in parts, by name, however the table came to be as it is.
#[test]
fn tables_are_read_in_parts_by_name() {
    let (served, link) = (Served::default(), Outlet::nowhere());
    served.met(("n2", false), &link, "token");
    served.met(("n3", false), &link, "token");
    let all = ["D", "B", "E", "A"].map(|name| own(name, name));
    served.receive("n2", b"T", &told(true, true, &all, &[]));
    served.receive("n2", b"T", &told(false, true, &[own("C", "c"), own("B", "b")], &["E"]));
    let names = |after: Option<&str>, max: usize| {
        let mut parts = served.part(after, max).into_iter();
        let (node, streams) = parts.next().expect("a node");
        assert!(node == "n2" && parts.next().is_some_and(|(_, none)| none.is_empty()));
        streams.iter().map(|stream| stream.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(None, 9), ["A", "B", "C", "D"]);
    assert_eq!(names(None, 2), ["A", "B"]);
    assert_eq!(names(Some("B"), 1), ["C"]);
    assert_eq!((names(Some("BB"), 9).len(), names(Some("D"), 9).len()), (2, 0));
}

/// What is asked for with each new stream is kept, not counted: as it is after streams have changed and gone.
#[test]
fn sums_follow_the_table() {
    let (served, link) = (Served::default(), Outlet::nowhere());
    let sized = |name: &str, max_bytes: i64, storage: StorageType| {
        let config = StreamConfig { max_bytes, storage, ..own(name, name).config.as_ref().clone() };
        OwnStream { config: Arc::new(config), log: "memory".into() }
    };
    let (file, memory) = (StorageType::File, StorageType::Memory);
    served.met(("n2", false), &link, "token");
    let all = [
        sized("A", 10, file),
        sized("B", i64::MAX, file),
        sized("C", 7, memory),
        sized("D", -1, file),
    ];
    served.receive("n2", b"T", &told(true, true, &all, &[]));
    let sums = || (served.count(), served.count_in("n2", "memory"), served.reserved(true, ""));
    assert_eq!((sums(), served.reserved(false, "B")), ((4, 4, 7), 10));
    assert_eq!(served.reserved(true, "A"), 7, "one of the other storage is left out of nothing");
    served.receive("n2", b"T", &told(false, true, &[sized("A", 3, memory)], &["B"]));
    assert_eq!((sums(), served.reserved(false, "")), ((3, 3, 10), 0));
    assert_eq!((served.count_in("n2", "default"), served.count_in("n3", "memory")), (0, 0));
    served.receive("n2", b"T", &told(true, true, &[], &[]));
    assert_eq!((sums(), served.reserved(false, "")), ((0, 0, 0), 0));
}

/// How many are connected is no news of the table, and one without JetStream is no node that may serve streams.
#[test]
fn counts_of_connections_wake_nobody_and_are_summed() {
    let (served, link) = (Served::default(), Outlet::nowhere());
    served.met(("n2", false), &link, "token");
    served.met(("edge", true), &link, "token");
    served.receive("n2", b"T", &told(true, true, &[own("A", "a.>")], &[]));
    let counts = |connections, leafs| {
        let state = NodeState {
            logs: vec!["memory".to_owned()],
            own_logs: Vec::new(),
            tags: None,
            leads_in: Some(7),
            connections,
            leafs,
        };
        serde_json::to_vec(&Told { state, is_last: true, ..Told::default() }).expect("JSON")
    };
    let changes = served.changes();
    assert!(matches!(served.receive("n2", b"T", &counts(3, 1)), NodeMessage::Taken));
    assert!(!changes.has_changed().expect("it is there"));
    assert_eq!(served.connected_elsewhere(), (3, 1));
    served.receive(
        "edge",
        b"T",
        &serde_json::to_vec(&Told {
            state: NodeState { connections: 2, ..NodeState::default() },
            is_first: true,
            is_last: true,
            ..Told::default()
        })
        .expect("JSON"),
    );
    assert_eq!(served.connected_elsewhere(), (5, 1));
    let nodes: Vec<String> = served.nodes().into_iter().map(|(node, ..)| node).collect();
    assert_eq!(nodes, ["n2"]);
    served.left("edge", &link);
    assert_eq!(served.connected_elsewhere(), (3, 1));
}

#[test]
fn a_node_with_a_mirror_stands_for_an_origin_until_that_is_none_any_more() {
    let (served, link) = (Served::default(), Outlet::nowhere());
    served.met(("n2", false), &link, "token");
    let mirror = |mirror_direct| {
        let origin = StreamSource { name: "S".to_owned(), ..StreamSource::default() };
        let config = StreamConfig {
            name: "M".to_owned(),
            mirror: Some(origin),
            mirror_direct,
            ..StreamConfig::default()
        };
        [OwnStream { config: Arc::new(config), log: "memory".into() }]
    };
    let stands = |origin: &str| served.hand_to_mirror(origin, (b"s", b"r"), b"", b"");
    assert!(!stands("S"));
    served.receive("n2", b"T", &told(true, true, &mirror(true), &[]));
    assert!(stands("S") && !stands("M") && !stands("T"));
    served.receive("n2", b"T", &told(false, true, &mirror(false), &[]));
    assert!(!stands("S"), "it is asked not to");
    served.receive("n2", b"T", &told(false, true, &mirror(true), &[]));
    served.receive("n2", b"T", &told(false, true, &[], &["M"]));
    assert!(!stands("S"), "it is gone");
}

/// A former owner that hangs says for ever that it has its log, and its streams.
#[test]
fn a_quorum_log_and_its_streams_are_at_the_node_that_said_so_last() {
    let served = Served::default();
    let says = |node: &str, logs: &[&str], come: &[&str], is_first: bool| {
        let stream = |name: &&str| {
            let config = StreamConfig { name: (*name).to_owned(), ..StreamConfig::default() };
            OwnStream { config: Arc::new(config), log: "default-1".into() }.told()
        };
        let state = NodeState {
            logs: logs.iter().map(|&log| log.to_owned()).collect(),
            ..NodeState::default()
        };
        let come = come.iter().map(stream).collect();
        let told = Told { state, is_first, is_last: true, come, ..Told::default() };
        let told = serde_json::to_vec(&told).expect("JSON");
        assert!(!matches!(served.receive(node, b"T", &told), NodeMessage::Unknown));
    };
    let with = |log: &str| {
        let nodes = served.nodes().into_iter();
        let with = nodes.filter(|(_, state, _)| state.logs.iter().any(|known| known == log));
        with.map(|(name, ..)| name).collect::<Vec<_>>()
    };
    for node in ["n2", "n3"] {
        served.met((node, false), &Outlet::nowhere(), "token");
    }
    says("n2", &["default-1", "memory"], &["S"], true);
    says("n3", &["default-2", "memory"], &[], true);
    assert_eq!(
        (with("default-1"), with("memory")),
        (vec!["n2".to_owned()], vec!["n2".to_owned(), "n3".to_owned()])
    );
    says("n3", &["default-2", "default-1", "memory"], &["S"], false);
    assert_eq!(with("default-1"), ["n3"]);
    assert_eq!(served.find("S").map(|(node, _)| node).as_deref(), Some("n3"));
    // It goes on saying so for a moment, which is nothing new.
    says("n2", &["default-1", "memory", "default"], &[], false);
    assert_eq!(with("default-1"), ["n3"]);
    // And what this node has itself is no other one's.
    let own = NodeState { logs: vec!["default-1".to_owned()], ..NodeState::default() };
    served.tell(own, &[], Vec::new(), Vec::new);
    assert!(with("default-1").is_empty());
    served.tell(NodeState::default(), &[], Vec::new(), Vec::new);
    assert_eq!(with("default-1"), ["n3"]);
    says("n3", &["default-2", "memory"], &[], false);
    assert_eq!(with("default-1"), ["n2"], "it is the only one that says so");
}
