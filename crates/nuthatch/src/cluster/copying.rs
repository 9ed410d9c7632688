//! How far a change of the nodes that keep the logs is, while it is waited for.

use serde_json::Value;

use super::list;

/// What was told of it last.
#[derive(Default)]
pub(super) struct Copying {
    told: String,
}

impl Copying {
    /// Tells people on the standard error what is new: on how many logs nodes that come count, and on how many those are still
    /// that go.
    pub(super) fn tell(&mut self, data: &Value, coming: &[&str], going: &[&str]) {
        let text = text(data, coming, going);
        if text != self.told && !text.is_empty() {
            eprintln!("{text}");
            self.told = text;
        }
    }
}

fn text(data: &Value, coming: &[&str], going: &[&str]) -> String {
    let all = list(data, "log_names").count();
    let node = |name: &str| list(data, "nodes").find(|node| node["name"] == name);
    let comes = coming.iter().filter_map(|name| {
        let node = node(name)?;
        let is_new = |log: &Value| list(node, "uncounted").any(|new| new == log);
        let counts = list(node, "logs").filter(|log| !is_new(log)).count();
        Some(format!("{name} has {counts} of {all} logs"))
    });
    let goes = going.iter().filter_map(|name| {
        let left = list(node(name)?, "logs").count();
        (left > 0).then(|| format!("{name} is still in {left}"))
    });
    comes.chain(goes).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_is_told_how_many_logs_are_where_they_are_to_be() {
        let data = json!({ "log_names": ["default", "default-1", "memory-quorum"], "nodes": [
            { "name": "n2", "logs": [1, 2], "uncounted": [] },
            { "name": "n4", "logs": [0, 1], "uncounted": [1, 2] },
        ] });
        assert_eq!(text(&data, &["n4"], &["n2"]), "n4 has 1 of 3 logs, n2 is still in 2");
        assert_eq!(text(&data, &["n9"], &[]), "", "it is not known yet");
    }
}
