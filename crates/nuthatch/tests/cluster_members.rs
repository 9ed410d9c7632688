//! What people and tools of nats-server ask of a cluster's nodes: `nuthatch cluster status` and `replace`,
//! `$JS.API.SERVER.REMOVE`, `STREAM.PEER.REMOVE`. Real processes.

#[cfg(feature = "etcd")]
#[path = "quorum_nodes/etcd.rs"]
mod etcd;
mod quorum_nodes;
mod support;

use nuthatch_client::Client;
use quorum_nodes::history::History;
use quorum_nodes::{ACCOUNTS, ANSWER, Home, Node, Nodes};
use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
#[cfg(feature = "etcd")]
use support::signal;
use support::{TIMEOUT, TempDir};

/// So many nodes and a stream on three or all of them.
fn with_stream(name: &str, count: usize, key: Option<&str>) -> Nodes {
    let mut nodes = Nodes::of(count, TempDir::new(name), "built-in");
    if let Some(key) = key {
        nodes.give_keys(&vec![key; count]);
    }
    begun(nodes)
}

/// The same of three nodes with a catalog there.
fn with_stream_at(home: Home, name: &str) -> Nodes {
    begun(Nodes::at(home, name))
}

fn begun(mut nodes: Nodes) -> Nodes {
    nodes.configure(ACCOUNTS);
    nodes.nodes.iter_mut().for_each(Node::start);
    nodes.create_replicated();
    nodes
}

fn add_spare(nodes: &mut Nodes) -> usize {
    let new = nodes.add();
    nodes.nodes[new].start();
    nodes.wait_text(new, "this node is a spare of the cluster");
    new
}

/// `nuthatch cluster …` as a user at a node, without a terminal.
fn cluster(at: &Node, user: &str, args: &[&str]) -> Output {
    let url = format!("nats://{user}127.0.0.1:{}", at.port);
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
    command.args(["cluster"]).args(args).args(["-s", &url]).stdin(Stdio::null());
    command.output().expect("it runs")
}

fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("it ended"), text(&output.stdout), text(&output.stderr))
}

/// What a command says as JSON.
fn json_of(at: &Node, args: &[&str]) -> Value {
    let output = cluster(at, "sys:pw@", &[args, &["--json"]].concat());
    let (code, out, err) = told(&output);
    assert_eq!(code, 0, "{args:?}: {out}{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?}: {error} in {out}"))
}

/// Why a command is refused, and with which code.
fn refused(at: &Node, user: &str, args: &[&str]) -> (i32, String) {
    let (code, out, err) = told(&cluster(at, user, args));
    assert_ne!(code, 0, "{args:?}: {out}");
    (code, err)
}

fn names(status: &Value, is_spare: bool) -> Vec<&str> {
    let all = status["nodes"].as_array().expect("a list").iter();
    all.filter(|node| node["spare"] == is_spare).filter_map(|node| node["name"].as_str()).collect()
}

/// Waits until the cluster's nodes are as they are to be.
fn wait_status(at: &Node, is_so: impl Fn(&Value) -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let (_, out, err) = told(&cluster(at, "sys:pw@", &["status", "--json"]));
        // A node that has just started may be looking for its cluster.
        let status = serde_json::from_str(&out).unwrap_or(Value::Null);
        if !status.is_null() && is_so(&status) {
            return;
        }
        assert!(Instant::now() < deadline, "{status} {err}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn commands_say_what_would_happen_and_what_is_wrong() {
    let mut nodes = with_stream("members-said", 3, None);
    let none = refused(&nodes.nodes[0], "sys:pw@", &["replace", "n2", "--force"]);
    assert!(none.1.contains("has no spare that could take the place of n2"), "{none:?}");
    add_spare(&mut nodes);
    let at = &nodes.nodes[1];
    let status = json_of(at, &["status"]);
    assert_eq!((names(&status, false), names(&status, true)), (vec!["n0", "n1", "n2"], vec!["n3"]));
    // The last one is the log in memory.
    assert_eq!(status["nodes"][0]["logs"], json!([0, 1, 2, 3]));
    assert_eq!((&status["replacing"], &status["removed"]), (&Value::Null, &json!([])));
    let (code, table, _) = told(&cluster(at, "sys:pw@", &["status"]));
    assert!(code == 0 && table.contains("Quorum logs on it") && table.contains("spare"), "{table}");
    assert!(table.contains("default-1") && table.contains("memory-quorum"), "{table}");
    for (names, why) in [
        (&["n9"][..], "no node n9: its nodes are n0, n1, n2, n3"),
        (&["n2", "n9"], "no node n9"),
        (&["n2", "n1"], "n1 keeps logs already"),
    ] {
        for flag in ["--force", "--dry-run"] {
            let said = refused(at, "sys:pw@", &[&["replace"], names, &[flag]].concat());
            assert!(said.1.contains(why), "{names:?}: {said:?}");
        }
    }
    let said = refused(at, "sys:pw@", &["replace", "n3", "n2", "--force"]);
    assert!(said.1.contains("n3 is a spare"), "{said:?}");
    // The system account has it to itself.
    let said = refused(at, "a:a@", &["status"]);
    assert!(said.1.contains("no responders"), "{said:?}");
    // Nobody can be asked.
    let (code, why) = refused(at, "sys:pw@", &["replace", "n2"]);
    assert!(
        code == 2 && why.contains("n3 takes the place of n2") && why.contains("--force"),
        "{why}"
    );
    let (code, plan, _) = told(&cluster(at, "sys:pw@", &["replace", "n2", "--dry-run"]));
    assert!(code == 0 && plan.contains("n2's quorum logs (0, 1, 2, 3) is brought to n3"), "{plan}");
    let plan = json_of(at, &["replace", "n2", "n3", "--dry-run"]);
    assert_eq!(plan, json!({"old": "n2", "new": "n3", "logs": [0, 1, 2, 3]}));
    let plan = json_of(at, &["replace", "n3", "--dry-run"]);
    assert_eq!(plan["new"], Value::Null, "a spare is removed");
    assert_eq!(names(&json_of(at, &["status"]), true), ["n3"], "nothing was changed");
    assert_eq!(json_of(at, &["replace", "n3", "--force"])["old"], "n3");
    let status = json_of(at, &["status"]);
    assert_eq!(names(&status, true), [] as [&str; 0]);
    assert_eq!(status["removed"], json!([{"name": "n3", "by": null}]));
    // Given again it says the same.
    let again = json_of(at, &["replace", "n3", "--force"]);
    assert_eq!(again, json!({"old": "n3", "new": null}));
    let node = &mut nodes.nodes[3];
    assert_ne!(node.ended().code(), Some(0), "{}", node.text());
    assert!(node.text().contains("node n3 was removed from the cluster"), "{}", node.text());
}

#[test]
fn a_replacement_is_taken_back() {
    take_back(Home::BuiltIn, "members-kept");
}

#[test]
fn a_replacement_is_taken_back_with_the_catalog_in_a_directory() {
    take_back(Home::Directory, "members-kept-stored");
}

/// The spare is away, so the replacement cannot end.
fn take_back(home: Home, name: &str) {
    let mut nodes = with_stream_at(home, name);
    (0..5).for_each(|number| nodes.publish(number));
    let spare = add_spare(&mut nodes);
    let at = &nodes.nodes[0];
    let said = refused(at, "sys:pw@", &["keep", "n2"]);
    assert!(said.1.contains("no replacement of n2 is under way"), "{said:?}");
    let said = refused(at, "sys:pw@", &["keep", "n9"]);
    assert!(said.1.contains("no node n9"), "{said:?}");
    nodes.nodes[spare].kill();
    let at = &nodes.nodes[0];
    assert_eq!(json_of(at, &["replace", "n2", "n3", "--force", "--no-wait"])["new"], "n3");
    wait_status(at, |status| status["replacing"] == json!({"old": "n2", "new": "n3"}));
    assert_eq!(json_of(at, &["keep", "n2"]), json!({"kept": "n2", "spare": "n3"}));
    let is_as_before = |status: &Value| {
        status["replacing"].is_null()
            && names(status, true) == ["n3"]
            && names(status, false) == ["n0", "n1", "n2"]
    };
    wait_status(at, is_as_before);
    nodes.publish(5);
    nodes.expect(6);
    // Nothing was brought to it, but a log that was handed over meanwhile may name it until its owner has brought it back.
    let at = &nodes.nodes[0];
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let (code, out, err) = told(&cluster(at, "sys:pw@", &["replace", "n3", "--force"]));
        if code == 0 {
            assert!(out.contains("the spare n3 was removed"), "{out}");
            break;
        }
        assert!(err.contains("n3 still has a copy of a log"), "{err}");
        assert!(Instant::now() < deadline, "{err}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let said = refused(at, "sys:pw@", &["keep", "n3"]);
    assert!(said.1.contains("n3 was removed from the cluster already"), "{said:?}");
}

#[test]
fn one_of_five_nodes_with_a_key_is_replaced_by_a_command() {
    let key = "a key of at least thirty-two bytes";
    let mut nodes = with_stream("members-five", 5, Some(key));
    (0..10).for_each(|number| nodes.publish(number));
    let new = add_spare(&mut nodes);
    nodes.nodes[4].kill();
    let at = &nodes.nodes[0];
    assert_eq!(json_of(at, &["replace", "n4", "--force"]), json!({"old": "n4", "new": "n5"}));
    // Whichever node answers, which may hear of it a moment later.
    let is_over = |status: &Value| {
        names(status, false) == ["n0", "n1", "n2", "n3", "n5"]
            && status["removed"] == json!([{"name": "n4", "by": "n5"}])
            && status["nodes"][4]["logs"] == json!([0, 1, 2, 3, 4, 5])
    };
    wait_status(at, is_over);
    // Given again it says the same.
    assert_eq!(json_of(at, &["replace", "n4"]), json!({"old": "n4", "new": "n5"}));
    // Two of the five may be away, and the new one counts.
    nodes.nodes[0].kill();
    nodes.nodes[1].kill();
    nodes.publish(10);
    nodes.expect(11);
    nodes.publish_at(new, 11);
}

#[test]
fn three_nodes_become_five_and_three_others_again_under_load() {
    resize(Home::BuiltIn, "members-resized");
}

#[test]
fn three_nodes_become_five_and_three_others_with_the_catalog_in_a_directory() {
    resize(Home::Directory, "members-resized-stored");
}

#[cfg(feature = "etcd")]
#[test]
#[ignore = "`just proof --part cluster-suites`: together they take minutes"]
fn three_nodes_become_five_and_three_others_with_the_catalog_in_etcd() {
    resize(etcd::IN_ETCD, "members-resized-etcd");
}

/// Three nodes become five and three others again, under load, of which no client hears an error; a stream with five replicas
/// is possible while there are five.
fn resize(home: Home, name: &str) {
    let mut nodes = with_stream_at(home, name);
    (0..10).for_each(|number| nodes.publish(number));
    add_spare(&mut nodes);
    let at = &nodes.nodes[0];
    let said = refused(at, "sys:pw@", &["grow", "n3", "--force"]);
    assert!(said.1.contains("4 nodes would keep the logs"), "{said:?}");
    let said = refused(at, "sys:pw@", &["grow", "n1", "n3", "--force"]);
    assert!(said.1.contains("n1 keeps logs already"), "{said:?}");
    let said = refused(at, "sys:pw@", &["shrink", "n3", "n2", "--force"]);
    assert!(said.1.contains("n3 is a spare"), "{said:?}");
    add_spare(&mut nodes);
    let at = &nodes.nodes[0];
    let (code, why) = refused(at, "sys:pw@", &["grow", "n4", "n3"]);
    assert!(code == 2 && why.contains("5 nodes keep the logs") && why.contains("--force"), "{why}");
    let (code, plan, _) = told(&cluster(at, "sys:pw@", &["grow", "n4", "n3", "--dry-run"]));
    assert!(code == 0 && plan.contains("2 may be away"), "{plan}");
    let five = json!({"name": "FIVE", "subjects": ["five"], "num_replicas": 5});
    let mut account = at.client("a:a@");
    assert!(api(&mut account, "STREAM.CREATE.FIVE", &five).expect("answered")["error"].is_object());
    // Taken back before it is over: the nodes stay spares.
    nodes.nodes[3].signal("-STOP");
    let at = &nodes.nodes[0];
    assert_eq!(json_of(at, &["grow", "n4", "n3", "--force", "--no-wait"])["keep"], true);
    wait_status(at, |status| status["resizing"] == json!({"nodes": ["n3", "n4"], "keep": true}));
    let (code, plan, _) = told(&cluster(at, "sys:pw@", &["shrink", "n3", "n4", "--dry-run"]));
    assert!(code == 0 && plan.contains("they stay spares"), "{plan}");
    nodes.nodes[3].signal("-CONT");
    assert_eq!(json_of(at, &["shrink", "n3", "n4", "--force"])["keep"], false);
    wait_status(at, |status| status["resizing"].is_null() && names(status, true) == ["n3", "n4"]);
    let mut history = History::begin(&mut account, "load-");
    let (load, ()) = history.during((nodes.client(2), nodes.client(2)), |_| {
        let at = &nodes.nodes[0];
        let all = |status: &Value| names(status, false) == ["n0", "n1", "n2", "n3", "n4"];
        assert_eq!(json_of(at, &["grow", "n4", "n3", "--force"])["keep"], true);
        wait_status(at, |status| all(status) && status["nodes"][4]["logs"] == json!([0, 1, 2, 3]));
        let made = api(&mut account, "STREAM.CREATE.FIVE", &five).expect("answered");
        assert!(made["error"].is_null(), "{made}");
        // The others may go then.
        assert_eq!(json_of(at, &["shrink", "n0", "n1", "--force"])["keep"], false);
        let at = &nodes.nodes[4];
        wait_status(at, |status| names(status, false) == ["n2", "n3", "n4"]);
        wait_status(at, |status| status["nodes"][0]["logs"] == json!([]));
    });
    load.assert_fine(|| nodes.said());
    assert!(load.acked > 10, "{load:?}");
    let said = nodes.said();
    assert!(said.contains("was closed, for its next epoch to begin with other keepers"), "{said}");
    history.expect_right(&nodes, &nodes.nodes[2], "");
    nodes.expect_equal_replicas(&[2, 3, 4]);
    // What was spare keeps it all: one more may be away.
    assert_eq!(json_of(&nodes.nodes[4], &["replace", "n0", "--force"])["new"], Value::Null);
    assert_eq!(json_of(&nodes.nodes[4], &["replace", "n1", "--force"])["new"], Value::Null);
    nodes.nodes[0].ended();
    nodes.nodes[1].ended();
    nodes.nodes[3].kill();
    let info = || api(&mut nodes.nodes[4].client("a:a@"), "STREAM.INFO.Q", &json!({}));
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(messages) = info().and_then(|info| info["state"]["messages"].as_u64()) {
            assert_eq!(messages, 10 + history.acked());
            return;
        }
        assert!(Instant::now() < deadline, "no answer");
    }
}

/// The comparison that other tests end with finds a byte.
#[test]
fn a_byte_of_a_replica_that_differs_is_found() {
    let nodes = with_stream("members-differ", 3, None);
    (0..5).for_each(|number| nodes.publish(number));
    nodes.expect_equal_replicas(&[0, 1, 2]);
    let (_, owner) = nodes.owner();
    let name = &nodes.nodes[(owner + 1) % 3].name;
    let files = std::fs::read_dir(nodes.dir.path().join(name).join("nuthatch/quorum/files"));
    let len = |path: &std::path::PathBuf| path.metadata().expect("there").len();
    let paths = files.expect("files").map(|file| file.expect("read").path());
    let path = paths.max_by_key(len).expect("one");
    let mut bytes = std::fs::read(&path).expect("read");
    *bytes.last_mut().expect("some") ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let deadline = Instant::now() + TIMEOUT;
    loop {
        // The copies may be made while a node has not yet written what another one has.
        let differs = nodes.differing_replicas(&[0, 1, 2], Duration::from_secs(1));
        if differs.as_ref().is_some_and(|said| said.contains("of log 0 is not")) {
            return;
        }
        assert!(Instant::now() < deadline, "{differs:?}");
    }
}

/// What a node of the status owns, as that says.
fn node_of<'a>(status: &'a Value, name: &str) -> &'a Value {
    let mut nodes = status["nodes"].as_array().expect("a list").iter();
    nodes.find(|node| node["name"] == name).expect("it is there")
}

/// Nobody else can tell why a drain is refused, and what there is to do.
#[test]
fn a_drain_says_what_it_does_and_why_it_is_refused() {
    let mut nodes = with_stream("members-drain-said", 3, None);
    add_spare(&mut nodes);
    let at = &nodes.nodes[0];
    for command in ["drain", "undrain"] {
        let said = refused(at, "sys:pw@", &[command, "n9"]);
        assert!(said.1.contains("no node n9: its nodes are n0, n1, n2, n3"), "{said:?}");
    }
    let said = refused(at, "sys:pw@", &["drain", "n3", "--force"]);
    assert!(said.1.contains("n3 is a spare: it owns no log"), "{said:?}");
    assert_eq!(json_of(at, &["undrain", "n1"])["already"], true, "it is not drained");
    let (code, why) = refused(at, "sys:pw@", &["drain", "n1"]);
    assert!(code == 2 && why.contains("n1 owns no quorum log") && why.contains("--force"), "{why}");
    let (code, plan, _) = told(&cluster(at, "sys:pw@", &["drain", "n1", "--dry-run"]));
    assert!(code == 0 && plan.contains("It goes on keeping its copies"), "{plan}");
    assert_eq!(node_of(&json_of(at, &["status"]), "n1")["drain"], Value::Null, "nothing changed");
    let done = json_of(at, &["drain", "n1", "--force"]);
    assert_eq!(done, json!({"node": "n1", "drain": true, "already": false}));
    let (code, out, _) = told(&cluster(at, "sys:pw@", &["drain", "n1"]));
    assert!(code == 0 && out.contains("n1 is drained already") && out.contains("undrain"), "{out}");
    // A log that is just coming to another node leaves it in doubt.
    wait_status(at, |status| node_of(status, "n1")["drain"] == "drained");
    let (code, table, _) = told(&cluster(at, "sys:pw@", &["status"]));
    assert!(code == 0 && table.contains("keeper, drained"), "{table}");
    assert_eq!(json_of(at, &["drain", "n0", "--force"])["already"], false);
    let left = |status: &Value| node_of(status, "n2")["owns"] == json!([0, 1, 2, 3]);
    wait_status(at, |status| left(status) && status["leader"] == "n2");
    for flag in ["--force", "--dry-run"] {
        let said = refused(at, "sys:pw@", &["drain", "n2", flag]);
        assert!(said.1.contains("no node that keeps the logs would be left"), "{said:?}");
    }
    // Where nobody else can, a drained node takes over, and gives away again.
    let others = [node_of(&json_of(at, &["status"]), "n0").clone()];
    assert_eq!(others[0]["owns"], json!([]));
    nodes.nodes[2].kill();
    let at = &nodes.nodes[0];
    wait_status(at, |status| {
        let owned = |name| node_of(status, name)["owns"].as_array().map_or(0, Vec::len);
        let leads = status["leader"] == "n0" || status["leader"] == "n1";
        owned("n0") + owned("n1") == 4 && leads && node_of(status, "n0")["logs"] != json!([])
    });
    nodes.nodes[2].start();
    let at = &nodes.nodes[0];
    wait_status(at, |status| {
        let is_drained = |name| node_of(status, name)["drain"] == "drained";
        left(status) && is_drained("n0") && is_drained("n1")
    });
    assert_eq!(json_of(at, &["replace", "n3", "--force"])["old"], "n3");
    let said = refused(at, "sys:pw@", &["drain", "n3", "--force"]);
    assert!(said.1.contains("n3 was removed from the cluster"), "{said:?}");
}

#[test]
fn a_drained_node_owns_nothing_until_that_is_taken_back() {
    drain_owner(Home::BuiltIn, "members-drained");
}

#[test]
fn a_drained_node_owns_nothing_with_the_catalog_in_a_directory() {
    drain_owner(Home::Directory, "members-drained-stored");
}

#[cfg(feature = "etcd")]
#[test]
fn a_drained_node_owns_nothing_with_the_catalog_in_etcd() {
    drain_owner(etcd::IN_ETCD, "members-drained-etcd");
}

/// The owner of a log is drained under load, stopped and started: nothing moves, and it owns nothing until that is taken back.
fn drain_owner(home: Home, dir: &str) {
    let mut nodes = with_stream_at(home, dir);
    let (_, at) = nodes.owner();
    let (drained, other) = (format!("n{at}"), (at + 1) % 3);
    let name = drained.as_str();
    let mut history = History::begin(&mut nodes.client(other), "");
    let (load, ()) = history.during((nodes.client(other), nodes.client(other)), |_| {
        assert_eq!(json_of(&nodes.nodes[other], &["drain", name, "--force"])["already"], false);
        let is_drained = |status: &Value| {
            let node = node_of(status, name);
            node["drain"] == "drained" && node["owns"] == json!([]) && status["leader"] != name
        };
        let keeps = |status: &Value| node_of(status, name)["logs"] == json!([0, 1, 2, 3]);
        // Who is not heard of for a moment owns nothing, as others see it.
        wait_status(&nodes.nodes[other], |status| is_drained(status) && keeps(status));
        let owned = |node: &Node| node.text().matches(&format!("Node {name} owns ")).count();
        let before = owned(&nodes.nodes[at]);
        assert!(before > 0, "it owned one");
        // Nor does it get one because somebody prefers it.
        let mut account = nodes.nodes[other].client("a:a@");
        let to_it = json!({"placement": {"preferred": name}});
        let answer = api(&mut account, "STREAM.LEADER.STEPDOWN.Q", &to_it);
        assert!(answer.as_ref().is_some_and(|told| told["error"].is_object()), "{answer:?}");
        nodes.nodes[at].signal("-TERM");
        nodes.nodes[at].ended();
        nodes.nodes[at].start();
        drop(nodes.nodes[at].client("a:a@"));
        for _ in 0..20 {
            let status = json_of(&nodes.nodes[other], &["status"]);
            assert_eq!(node_of(&status, name)["owns"], json!([]), "{status}");
            std::thread::sleep(Duration::from_millis(100));
        }
        // The node itself knows it from its disk, and of the others.
        wait_status(&nodes.nodes[at], |status| is_drained(status) && keeps(status));
        assert_eq!(owned(&nodes.nodes[at]), before, "it was given one");
        assert_eq!(json_of(&nodes.nodes[at], &["undrain", name])["already"], false);
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let answer = api(&mut account, "STREAM.LEADER.STEPDOWN.Q", &to_it);
            let status = json_of(&nodes.nodes[other], &["status"]);
            if node_of(&status, name)["owns"] != json!([]) {
                assert_eq!(node_of(&status, name)["drain"], Value::Null);
                break;
            }
            assert!(Instant::now() < deadline, "{answer:?}: {status}");
        }
    });
    load.assert_fine(|| nodes.said());
    assert!(load.acked > 10, "{load:?}");
    history.expect_right(&nodes, &nodes.nodes[other], "");
    nodes.expect_equal_replicas(&[0, 1, 2]);
}

fn api(client: &mut Client, call: &str, body: &Value) -> Option<Value> {
    let (call, body) = (format!("$JS.API.{call}"), body.to_string());
    let answer = client.request(&call, b"", body.as_bytes(), Duration::from_secs(5)).ok()?;
    Some(serde_json::from_slice(&answer.payload).expect("JSON"))
}

fn error_of(answer: Option<Value>) -> (u64, String) {
    let error = &answer.expect("answered")["error"];
    let text = error["description"].as_str().expect("refused").to_owned();
    (error["err_code"].as_u64().expect("a code"), text)
}

/// As nats-server answers, but for texts that say more.
#[test]
fn servers_and_peers_are_removed_as_tools_of_nats_server_ask_it() {
    let mut nodes = with_stream("members-api", 3, None);
    let mut system = nodes.nodes[0].client("sys:pw@");
    let mut account = nodes.nodes[0].client("a:a@");
    let mut remove = |body: Value| api(&mut system, "SERVER.REMOVE", &body);
    for nobody in [json!({"peer": "n9"}), json!({"peer": "n2", "peer_id": "12345678"}), json!({})] {
        let (code, why) = error_of(remove(nobody));
        assert!(code == 10044 && why.contains("its nodes are n0, n1, n2"), "{code} {why}");
    }
    let (code, why) = error_of(remove(json!({"peer": "n2"})));
    assert!(code == 10008 && why.contains("has no spare"), "{code} {why}");
    // Others hear nothing.
    assert_eq!(api(&mut account, "SERVER.REMOVE", &json!({"peer": "n2"})), None);
    let mut peer_remove = |body: Value| api(&mut account, "STREAM.PEER.REMOVE.Q", &body);
    assert_eq!(error_of(peer_remove(json!({}))).0, 10003);
    assert_eq!(error_of(peer_remove(json!({"peer": "n9"}))).0, 10040);
    let (code, why) = error_of(peer_remove(json!({"peer": "n2"})));
    assert!(code == 10075 && why.contains("nuthatch cluster replace n2"), "{code} {why}");
    assert_eq!(
        error_of(api(&mut account, "STREAM.PEER.REMOVE.X", &json!({"peer": "n2"}))).0,
        10059
    );

    let spare = add_spare(&mut nodes);
    // What has begun does not end while the spare hangs.
    nodes.nodes[spare].signal("-STOP");
    let jsz = api_of_system(&nodes.nodes[0]);
    let ids: Vec<&Value> = jsz["replicas"].as_array().expect("a list").iter().collect();
    let (name, id) = (ids[0]["name"].clone(), ids[0]["peer"].clone());
    let other = ids[1]["name"].clone();
    // The id counts.
    let mut system = nodes.nodes[0].client("sys:pw@");
    let mut remove = |body: Value| api(&mut system, "SERVER.REMOVE", &body);
    let answer = remove(json!({"peer": "", "peer_id": id})).expect("answered");
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(answer["type"], "io.nats.jetstream.api.v1.meta_server_remove_response");
    let (code, why) = error_of(remove(json!({"peer": other})));
    assert!(code == 10202 && why.contains("one replacement at a time"), "{code} {why}");
    nodes.nodes[spare].signal("-CONT");
    let deadline = Instant::now() + 3 * TIMEOUT;
    loop {
        let status = json_of(&nodes.nodes[spare], &["status"]);
        if status["removed"] == json!([{"name": name, "by": "n3"}]) {
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The cluster's leader, as it shows the others.
fn api_of_system(node: &Node) -> Value {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let mut client = node.client("sys:pw@");
        let asked =
            client.request("$SYS.REQ.SERVER.PING.JSZ", b"", br#"{"leader_only": true}"#, ANSWER);
        if let Ok(answer) = asked {
            let mut answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
            return answer["data"]["meta_cluster"].take();
        }
        assert!(Instant::now() < deadline, "nobody leads");
    }
}

/// One signal says whether the next node may be stopped; the nodes that are away are named.
#[test]
fn the_status_says_who_is_there_and_whether_another_node_may_be_stopped() {
    let mut nodes = with_stream("members-state", 3, None);
    wait_status(&nodes.nodes[0], |status| status["may_stop"] == true);
    let (_, table, _) = told(&cluster(&nodes.nodes[0], "sys:pw@", &["status"]));
    assert!(table.contains("any one node may be stopped now"), "{table}");
    nodes.nodes[2].kill();
    wait_status(&nodes.nodes[0], |status| status["nodes"][2]["connected"] == false);
    let (_, table, _) = told(&cluster(&nodes.nodes[0], "sys:pw@", &["status"]));
    assert!(table.contains("AWAY for") && table.contains("n2 is away"), "{table}");
    // Its memory is new: it does not count before the owner of that log has taken it in.
    nodes.nodes[2].start();
    wait_status(&nodes.nodes[0], |status| status["nodes"][2]["connected"] == true);
    wait_status(&nodes.nodes[0], |status| status["may_stop"] == true);
    nodes.nodes[1].kill();
    nodes.nodes[2].kill();
    wait_status(&nodes.nodes[0], |status| {
        let away = |at: usize| status["nodes"][at]["connected"] == false;
        away(1) && away(2) && status["may_stop"] == false
    });
}
