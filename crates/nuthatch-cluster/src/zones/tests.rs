//! Nodes in zones, and what people are told of that.

use super::*;
use crate::routes::Routes;
use nuthatch_catalog_group::MemberId;
use nuthatch_catalog_group::roster::Enrolled;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;

/// Nodes that keep the logs, numbered from 1 on; of each the zone ("": it says none, "?": it was not met).
fn nodes(of: &[&str]) -> (Roster, Zones) {
    let (mut roster, mut zones) = (Roster::default(), Zones::default());
    for (number, zone) in (1..).zip(of) {
        let (node, member, name) = (NodeId(number), MemberId(number.into()), format!("n{number}"));
        roster.nodes.insert(node, Enrolled { name, member, address: None, keeps: true });
        match *zone {
            "?" => {}
            zone => zones.note(node, zone.parse().ok()),
        }
    }
    (roster, zones)
}

fn sight(of: &[&str]) -> ZonesSight {
    let (roster, zones) = nodes(of);
    ZonesSight::of(&roster, &zones)
}

fn risk(of: &[&str]) -> Option<String> {
    sight(of).risk().map(|risk| risk.to_string())
}

fn leaves(zone: &str, nodes: &str, left: &str) -> Option<String> {
    Some(format!(
        "the loss of zone {zone} ({nodes}) leaves {left} nodes that keep the logs: nothing is taken then"
    ))
}

#[test]
fn of_three_nodes_no_two_are_to_be_in_one_zone() {
    assert_eq!(risk(&["a", "b", "c"]), None);
    assert_eq!(risk(&["a", "a", "b"]), leaves("a", "n1, n2", "1 of 3"));
    assert_eq!(risk(&["a", "b", "b"]), leaves("b", "n2, n3", "1 of 3"));
    assert_eq!(risk(&["a", "a", "a"]), leaves("a", "n1, n2, n3", "0 of 3"));
}

#[test]
fn of_five_nodes_no_three_are_to_be_in_one_zone() {
    assert_eq!(risk(&["a", "a", "b", "b", "c"]), None);
    assert_eq!(risk(&["a", "b", "b", "b", "c"]), leaves("b", "n2, n3, n4", "2 of 5"));
    assert_eq!(risk(&["a", "b", "a", "b", "b"]), leaves("b", "n2, n4, n5", "2 of 5"));
    assert_eq!(risk(&["a", "b", "a", "a", "a"]), leaves("a", "n1, n3, n4, n5", "1 of 5"));
}

#[test]
fn nodes_of_unknown_zones_are_taken_to_be_elsewhere() {
    assert_eq!(risk(&["", "", ""]), None);
    assert_eq!(risk(&["?", "?", "?"]), None);
    assert_eq!(risk(&["a", "", "?"]), None);
    assert_eq!(risk(&["a", "a", "?"]), leaves("a", "n1, n2", "1 of 3"));
    assert_eq!(risk(&["a", "a", ""]), leaves("a", "n1, n2", "1 of 3"));
}

#[test]
fn spares_are_in_zones_and_keep_nothing() {
    let (mut roster, zones) = nodes(&["a", "b", "c", "a", ""]);
    for spare in [4, 5] {
        roster.nodes.get_mut(&NodeId(spare)).expect("there").keeps = false;
    }
    let sight = ZonesSight::of(&roster, &zones);
    let counts: Vec<(&str, usize)> =
        sight.keepers.iter().map(|(zone, nodes)| (zone.as_str(), nodes.len())).collect();
    assert_eq!(counts, [("a", 1), ("b", 1), ("c", 1)]);
    assert_eq!((sight.keeper_count, sight.risk()), (3, None));
    assert_eq!(sight.without_zone, ["n5"]);
}

#[test]
fn who_says_no_zone_is_named_where_others_do_and_once_it_was_met() {
    assert_eq!(sight(&["a", "", "?"]).without_zone, ["n2"]);
    assert_eq!(sight(&["", "", "?"]).without_zone, [""; 0], "nobody does");
    assert_eq!(sight(&["a", "b", "?"]).without_zone, [""; 0]);
}

/// What a node tells, and its roll: of three nodes it is the first, and none of the others was met.
struct Telling {
    roll: Roll,
    watch: ZoneWatch,
    began: Instant,
    said: Arc<Mutex<Vec<String>>>,
}

impl Telling {
    fn new(zone: &str, owner_zones: &[&str]) -> Self {
        let said = Arc::new(Mutex::new(vec![]));
        let (saying, noting) = (Arc::clone(&said), Arc::clone(&said));
        let report = Reporter::with_notes(
            move |text| saying.lock().push(text.to_owned()),
            move |text| noting.lock().push(format!("note: {text}")),
        );
        let listen = SocketAddr::from(([127, 0, 0, 1], 6221));
        let routes = Arc::new(Routes::of(listen, vec![]));
        let (roster, _) = nodes(&["?", "?", "?"]);
        let owner_zones = owner_zones.iter().map(|zone| zone.parse().expect("a zone")).collect();
        let roll =
            Roll::new(NodeId(1), listen, routes, roster).in_zone(zone.parse().ok(), owner_zones);
        let began = Instant::now();
        Self { roll, watch: ZoneWatch::new(report, began), began, said }
    }

    fn meets(&self, node: u8, zone: &str) {
        self.roll.note_zone(NodeId(node), zone.parse().ok());
    }

    /// What is told at this second, looked at twice.
    fn told(&mut self, second: u64) -> Vec<String> {
        let now = self.began + Duration::from_secs(second);
        (0..2).for_each(|_| self.watch.look(&self.roll, now));
        std::mem::take(&mut self.said.lock())
    }
}

#[test]
fn a_risk_is_told_once_when_it_begins_when_it_is_another_one_and_when_it_ends() {
    let mut node = Telling::new("a", &[]);
    node.meets(2, "a");
    assert_eq!(node.told(1), [""; 0], "one was not met yet");
    node.meets(3, "b");
    let told = node.told(2);
    assert!(
        matches!(&told[..], [risk] if risk.starts_with("the loss of zone a (n1, n2)")),
        "{told:?}"
    );
    assert_eq!(node.told(100), [""; 0], "it was told");
    node.meets(2, "b");
    let told = node.told(101);
    assert!(
        matches!(&told[..], [risk] if risk.starts_with("the loss of zone b (n2, n3)")),
        "{told:?}"
    );
    node.meets(2, "c");
    let told = node.told(102);
    assert!(
        matches!(&told[..], [over] if over.starts_with("note: whichever zone is lost")),
        "{told:?}"
    );
    assert_eq!(node.told(103), [""; 0]);
}

#[test]
fn who_does_not_come_is_waited_for_for_half_a_minute() {
    let mut node = Telling::new("a", &[]);
    node.meets(2, "a");
    assert_eq!(node.told(29), [""; 0]);
    assert_eq!(node.told(30).len(), 1);
}

#[test]
fn nodes_without_a_zone_beside_nodes_with_one_are_told_once() {
    let mut node = Telling::new("a", &[]);
    node.meets(2, "");
    node.meets(3, "");
    let told = node.told(1);
    assert!(matches!(&told[..], [text] if text.contains("these do not: n2, n3.")), "{told:?}");
    node.meets(3, "c");
    assert_eq!(node.told(2), [""; 0], "that was told");
    node.meets(2, "b");
    assert_eq!(node.told(3), ["note: all nodes that are there say their zones"]);
    let mut nobody = Telling::new("", &[]);
    nobody.meets(2, "");
    nobody.meets(3, "");
    assert_eq!(nobody.told(40), [""; 0], "zones are not used");
}

#[test]
fn zones_of_owners_in_which_nobody_is_are_told() {
    let mut node = Telling::new("a", &["x", "c"]);
    node.meets(2, "b");
    node.meets(3, "d");
    let told = node.told(1);
    assert!(matches!(&told[..], [text] if text.contains("owner_zones (x, c)")), "{told:?}");
    node.meets(3, "c");
    assert_eq!(node.told(2), ["note: a node that keeps the logs is in owner_zones again"]);
    assert!(node.roll.is_in_owner_zone(NodeId(3)) && !node.roll.is_in_owner_zone(NodeId(1)));
}

#[test]
fn another_node_with_other_owner_zones_is_named_until_it_has_the_same() {
    let mut node = Telling::new("a", &["a", "b"]);
    let zones =
        |names: &[&str]| Some(names.iter().map(|name| name.parse().expect("a zone")).collect());
    node.meets(2, "b");
    node.meets(3, "c");
    assert_eq!(node.told(1), [""; 0], "nobody says so");
    node.roll.note_owner_zones(NodeId(2), zones(&["b", "a"]));
    assert_eq!(node.told(2), [""; 0], "in any order");
    node.roll.note_owner_zones(NodeId(3), zones(&[]));
    let told = node.told(3);
    assert!(
        matches!(&told[..], [text] if text.starts_with("node n3 has other owner_zones (none) than this one (a, b)")),
        "{told:?}"
    );
    node.roll.note_owner_zones(NodeId(3), zones(&["a", "b"]));
    assert_eq!(node.told(4), ["note: all nodes that say so have the same owner_zones"]);
}
