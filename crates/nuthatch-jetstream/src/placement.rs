//! On which nodes of a cluster a stream may be, by the tags of its placement and of the nodes (`server_tags`), with
//! nats-server's rules and words (`selectPeerGroup` of its `jetstream_cluster.go`).

use crate::log_names::LOG_TAG;
use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::jserror::JsError;

/// A node with this tag is not placed on by tags.
const NO_JETSTREAM: &str = "!jetstream";
/// A tag of a placement that begins so excludes the nodes that have it.
const EXCLUDES: char = '!';

/// A node that keeps streams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TaggedNode {
    /// Its name.
    pub(super) name: String,
    /// Its tags, in lower case; `None`: its version tells none.
    pub(super) tags: Option<Vec<String>>,
}

impl TaggedNode {
    fn has(&self, tag: &String) -> bool {
        self.tags.as_ref().is_some_and(|tags| tags.contains(tag))
    }
}

/// The tags of a placement, but for the one that names a log.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct WantedTags {
    wanted: Vec<String>,
    excluded: Vec<String>,
}

impl WantedTags {
    pub(super) fn of(config: &StreamConfig) -> Self {
        Self::of_tags(config.placement.iter().flat_map(|placement| &placement.tags))
    }

    pub(super) fn of_tags<'a>(all: impl IntoIterator<Item = &'a String>) -> Self {
        let mut tags = Self::default();
        for tag in all.into_iter().filter(|tag| !tag.starts_with(LOG_TAG)) {
            let tag = tag.to_lowercase();
            match tag.strip_prefix(EXCLUDES) {
                Some(tag) => tags.excluded.push(tag.to_owned()),
                None => tags.wanted.push(tag),
            }
        }
        tags
    }

    /// True if any node may have the stream.
    pub(super) fn is_none(&self) -> bool {
        self.wanted.is_empty() && self.excluded.is_empty()
    }

    /// Whether a stream may be on a node.
    pub(super) fn admits(&self, node: &TaggedNode) -> bool {
        let Some(tags) = &node.tags else { return self.is_none() };
        let has = |tag: &String| tags.contains(tag);
        self.wanted.iter().all(has)
            && !self.excluded.iter().any(has)
            && !tags.iter().any(|tag| tag == NO_JETSTREAM)
    }

    /// That not enough nodes are admitted. `of_log` says for which log all of them would have to be.
    pub(super) fn refusal(&self, nodes: &[TaggedNode], of_log: Option<&str>) -> JsError {
        let mut why = "no suitable peers for placement".to_owned();
        let lacks = |node: &TaggedNode| self.wanted.iter().any(|tag| !node.has(tag));
        let is_excluded = |node: &TaggedNode| self.excluded.iter().any(|tag| node.has(tag));
        if nodes.iter().any(lacks) {
            why += &format!(", tags not matched {}", listed(&self.wanted));
        }
        if nodes.iter().any(is_excluded) {
            why += &format!(", tags excluded {}", listed(&self.excluded));
        }
        if let Some(log) = of_log {
            let others = nodes.iter().filter(|node| !self.admits(node));
            let names: Vec<&str> = others.map(|node| node.name.as_str()).collect();
            why += &format!(
                ": log '{log}' is on all nodes that keep logs, {} among them",
                names.join(", ")
            );
        }
        JsError::CLUSTER_NO_PEERS.with_err(why)
    }
}

fn listed(tags: &[String]) -> String {
    let quoted: Vec<String> = tags.iter().map(|tag| format!("'{tag}'")).collect();
    format!("[{}]", quoted.join(", "))
}

/// How many of these nodes differ in the value of their tag with this prefix: replicas share none (`unique_tag`). A node
/// without such a tag does not count.
fn distinct(nodes: &[TaggedNode], prefix: &str) -> usize {
    let value = |node: &TaggedNode| {
        let mut tags = node.tags.iter().flatten();
        tags.find(|tag| tag.starts_with(prefix)).cloned()
    };
    let values: std::collections::BTreeSet<String> = nodes.iter().filter_map(value).collect();
    values.len()
}

/// Whether so many replicas on these nodes can have different values of the tag with this prefix. A placement that names a
/// tag with it does not ask.
///
/// # Errors
/// They cannot.
pub(super) fn check_unique(
    nodes: &[TaggedNode],
    (replicas, wanted): (i64, &WantedTags),
    prefix: &str,
) -> Result<(), JsError> {
    let names_one = wanted.wanted.iter().any(|tag| tag.starts_with(prefix));
    let distinct = distinct(nodes, prefix);
    if replicas <= 1 || names_one || usize::try_from(replicas).is_ok_and(|asked| asked <= distinct)
    {
        return Ok(());
    }
    let why = format!(
        "no suitable peers for placement, server tag not unique: {replicas} replicas are asked for, and the nodes that keep \
         logs have {distinct} different tags '{prefix}…' (unique_tag)"
    );
    Err(JsError::CLUSTER_NO_PEERS.with_err(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_protocol::js::Placement;

    fn config(tags: &[&str]) -> StreamConfig {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let placement = Some(Placement { tags, ..Placement::default() });
        StreamConfig { placement, ..StreamConfig::default() }
    }

    fn node(name: &str, tags: &[&str]) -> TaggedNode {
        TaggedNode {
            name: name.to_owned(),
            tags: Some(tags.iter().map(|tag| (*tag).to_owned()).collect()),
        }
    }

    #[test]
    fn all_tags_must_match_and_none_be_excluded() {
        let both = node("a", &["ssd", "region:eu"]);
        for (tags, admits) in [
            (&[][..], true),
            (&["log:cold"], true),
            (&["SSD"], true),
            (&["ssd", "Region:EU"], true),
            (&["ssd", "gpu"], false),
            (&["!gpu"], true),
            (&["ssd", "!region:eu"], false),
        ] {
            assert_eq!(WantedTags::of(&config(tags)).admits(&both), admits, "{tags:?}");
        }
        assert!(WantedTags::of(&config(&["log:cold"])).is_none());
        let away = node("b", &["ssd", "!jetstream"]);
        assert!(!WantedTags::of(&config(&["ssd"])).admits(&away));
    }

    #[test]
    fn a_refusal_says_what_does_not_match() {
        let nodes = [node("a", &["ssd"]), node("b", &["gpu"])];
        let said =
            |tags: &[&str], log| WantedTags::of(&config(tags)).refusal(&nodes, log).to_string();
        let text = said(&["ssd", "!gpu"], Some("default"));
        assert!(text.contains("tags not matched ['ssd'], tags excluded ['gpu']"), "{text}");
        assert!(
            text.contains("log 'default' is on all nodes that keep logs, b among them"),
            "{text}"
        );
        let text = said(&["x", "y"], None);
        assert!(text.contains("placement, tags not matched ['x', 'y'] ("), "{text}");
    }

    #[test]
    fn replicas_share_no_value_of_the_unique_tag() {
        let nodes =
            [node("a", &["az:1"]), node("b", &["az:1"]), node("c", &["az:2"]), node("d", &[])];
        let check = |replicas, tags: &[&str]| {
            check_unique(&nodes, (replicas, &WantedTags::of(&config(tags))), "az:")
        };
        assert!(check(1, &[]).is_ok() && check(2, &[]).is_ok());
        let error = check(3, &[]).expect_err("two values").to_string();
        assert!(error.contains("server tag not unique"), "{error}");
        assert!(check(3, &["az:1"]).is_ok(), "who names one chooses");
    }
}
