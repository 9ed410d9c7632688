//! What a reload changes.

use super::options;

#[test]
fn changes_are_sorted_by_when_they_apply() {
    let old =
        options("port: 4222, debug: false, max_payload: 1MB, jetstream { store_dir: /a }", "");
    assert!(old.reload_diff(&old).is_empty());
    let new = options(
        "port: 4223, debug: true, max_payload: 2MB, jetstream { store_dir: /b, sync: never }
         authorization { user: a, password: b }",
        "",
    );
    let plan = old.reload_diff(&new);
    assert_eq!(plan.now, ["debug", "authorization", "max_payload"]);
    assert_eq!(plan.restart, ["port", "store_dir", "sync_interval"]);
}

#[test]
fn accounts_and_mappings_reload() {
    let one = options("accounts { A { users: [{user: a}] } }", "");
    let two = options("accounts { A { users: [{user: b}] } }", "");
    let other = options("accounts { B { users: [{user: a}] } }", "");
    let mapped = options("accounts { A { users: [{user: a}] } }, mappings { a: b }", "");
    assert_eq!(one.reload_diff(&two).now, ["accounts"]);
    assert_eq!(one.reload_diff(&other).now, ["accounts"]);
    assert_eq!(one.reload_diff(&mapped).now, ["mappings"]);
}

#[test]
fn a_node_keeps_its_place_in_the_cluster_until_a_restart() {
    let node = |listen: u16, route: u16| {
        let text = format!(
            "server_name: n, jetstream {{ store_dir: /a }}, cluster {{ listen: \"127.0.0.1:{listen}\"
             routes: [ \"nats-route://127.0.0.1:{route}\" ] }}"
        );
        options(&text, "")
    };
    assert!(node(1, 2).reload_diff(&node(1, 2)).is_empty());
    for other in [node(3, 2), node(1, 3)] {
        assert_eq!(node(1, 2).reload_diff(&other).restart, ["cluster"]);
    }
}
