//! Zones of the nodes, as a part of the status.

use super::{list, text};
use serde_json::Value;

/// The heading of the nodes' zones; none while no node that keeps the logs says one.
pub(super) fn column(data: &Value) -> Option<&'static str> {
    data["zones"].is_object().then_some("Zone")
}

/// The zone of a node.
pub(super) fn of(node: &Value) -> String {
    if node["zone"].is_null() { "unknown".to_owned() } else { text(&node["zone"]) }
}

/// What the loss of a zone would mean, and who does not say where it is.
pub(super) fn hint(data: &Value) -> String {
    let mut out = String::new();
    if let Some(risk) = data["zone_risk"].as_str() {
        out.push_str(&format!("{risk}\n"));
    }
    let without: Vec<String> = list(data, "without_zone").map(text).collect();
    if !without.is_empty() {
        out.push_str(&format!(
            "no zone is known of {}: start nodes with --zone\n",
            without.join(", ")
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn zones_are_shown_where_nodes_say_them() {
        let none = json!({ "zones": null, "zone_risk": null, "without_zone": [] });
        assert_eq!((column(&none), hint(&none).as_str()), (None, ""));
        let some = json!({ "zones": { "a": 2 }, "zone_risk": "the loss of zone a", "without_zone": ["n3"] });
        assert_eq!(column(&some), Some("Zone"));
        assert_eq!(
            hint(&some),
            "the loss of zone a\nno zone is known of n3: start nodes with --zone\n"
        );
        assert_eq!(
            (of(&json!({ "zone": "a" })), of(&json!({ "zone": null }))),
            ("a".into(), "unknown".into())
        );
    }
}
