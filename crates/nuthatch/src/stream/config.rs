//! The flags that describe a stream, shared by `add` and `edit`: what is given changes the
//! configuration, what is not leaves it as it is.

use std::time::Duration;

use clap::Args;
use nuthatch_client::units::parse_duration;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::input::{metadata, nanos, parse_age, parse_limit, switch};

/// A stream's configuration, flags named as the `nats` command names them.
#[derive(Debug, Clone, Default, Args)]
pub struct ConfigArgs {
    /// Subjects it stores, several with commas (default: its name)
    #[arg(long, value_delimiter = ',')]
    subjects: Vec<String>,
    /// Description
    #[arg(long)]
    description: Option<String>,
    /// Where messages are kept (default: file)
    #[arg(long, value_parser = ["file", "f", "memory", "m"])]
    storage: Option<String>,
    /// What keeps a message alive (default: limits)
    #[arg(long, value_parser = ["limits", "interest", "work", "workq", "workqueue"])]
    retention: Option<String>,
    /// What goes when a limit is reached: the oldest message or the new one (default: old)
    #[arg(long, value_parser = ["old", "new"])]
    discard: Option<String>,
    #[command(flatten)]
    limits: LimitArgs,
    /// How long message ids are remembered, such as 2m (default: the server's)
    #[arg(long, value_parser = parse_duration)]
    dupe_window: Option<Duration>,
    /// Copies in a cluster (default: 1)
    #[arg(long)]
    replicas: Option<u64>,
    /// Compression of stored messages (default: none)
    #[arg(long, value_parser = ["none", "s2"])]
    compression: Option<String>,
    /// Sequence of the first message
    #[arg(long)]
    first_sequence: Option<u64>,
    #[command(flatten)]
    switches: SwitchArgs,
    #[command(flatten)]
    flow: FlowArgs,
    /// When messages count as durable: before their ack, or soon after
    #[arg(long, value_parser = ["default", "async"])]
    persist_mode: Option<String>,
    /// How long a marker stays where a message was deleted by a limit, such as 15m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    subject_del_markers_ttl: Option<Duration>,
    /// Metadata as KEY=VALUE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// Placement tag; may be repeated
    #[arg(long, alias = "tags", value_delimiter = ',')]
    tag: Vec<String>,
    /// Placement cluster
    #[arg(long)]
    cluster: Option<String>,
}

#[derive(Debug, Clone, Default, Args)]
struct LimitArgs {
    /// Most messages; -1 for no limit
    #[arg(long, allow_negative_numbers = true)]
    max_msgs: Option<i64>,
    /// Most messages of one subject; -1 for no limit
    #[arg(long, allow_negative_numbers = true)]
    max_msgs_per_subject: Option<i64>,
    /// Most bytes, such as 10GiB; -1 for no limit
    #[arg(long, value_parser = parse_limit, allow_negative_numbers = true)]
    max_bytes: Option<i64>,
    /// Oldest age, such as 24h or 7d; -1 for no limit
    #[arg(long, value_parser = parse_age, allow_negative_numbers = true)]
    max_age: Option<u64>,
    /// Largest message, such as 64KiB; -1 for no limit
    #[arg(long, value_parser = parse_limit, allow_negative_numbers = true)]
    max_msg_size: Option<i64>,
    /// Most consumers; -1 for no limit
    #[arg(long, allow_negative_numbers = true)]
    max_consumers: Option<i64>,
    /// Longest inactive threshold that its consumers may have
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    limit_consumer_inactive: Option<Duration>,
    /// Most unacknowledged messages that its consumers may have
    #[arg(long, value_name = "COUNT")]
    limit_consumer_max_pending: Option<i64>,
}

#[derive(Debug, Clone, Default, Args)]
struct SwitchArgs {
    /// Publishes are answered with acks (the default)
    #[arg(long, overrides_with = "no_ack")]
    ack: bool,
    /// Publishes are not answered
    #[arg(long, overrides_with = "ack")]
    no_ack: bool,
    /// Messages can be read without the stream's leader (the default)
    #[arg(long, overrides_with = "no_allow_direct")]
    allow_direct: bool,
    /// Messages can only be read through the stream's leader
    #[arg(long, overrides_with = "allow_direct")]
    no_allow_direct: bool,
    /// A mirror answers direct reads for its origin
    #[arg(long, overrides_with = "no_allow_mirror_direct")]
    allow_mirror_direct: bool,
    /// A mirror does not answer direct reads for its origin (the default)
    #[arg(long, overrides_with = "allow_mirror_direct")]
    no_allow_mirror_direct: bool,
    /// Apply --discard new to each subject's limit too
    #[arg(long, overrides_with = "no_discard_per_subject")]
    discard_per_subject: bool,
    /// Apply --discard new to the stream's limits only (the default)
    #[arg(long, overrides_with = "discard_per_subject")]
    no_discard_per_subject: bool,
    /// Publishers may replace all or a subject's messages by one
    #[arg(long, overrides_with = "no_allow_rollup")]
    allow_rollup: bool,
    /// Publishers may not replace messages (the default)
    #[arg(long, overrides_with = "allow_rollup")]
    no_allow_rollup: bool,
    /// Messages may not be deleted through the API
    #[arg(long, overrides_with = "no_deny_delete")]
    deny_delete: bool,
    /// Messages may be deleted through the API (the default)
    #[arg(long, overrides_with = "deny_delete")]
    no_deny_delete: bool,
    /// The stream may not be purged through the API
    #[arg(long, overrides_with = "no_deny_purge")]
    deny_purge: bool,
    /// The stream may be purged through the API (the default)
    #[arg(long, overrides_with = "deny_purge")]
    no_deny_purge: bool,
    /// Messages may carry their own time to live
    #[arg(long)]
    allow_msg_ttl: bool,
    /// Publishers may store several messages or none of them
    #[arg(long, overrides_with = "no_allow_batch")]
    allow_batch: bool,
    /// Publishers may not use atomic batches (the default)
    #[arg(long, overrides_with = "allow_batch")]
    no_allow_batch: bool,
    /// The stream's subjects are counters
    #[arg(long)]
    allow_counter: bool,
    /// Messages may be scheduled for later
    #[arg(long, overrides_with = "no_allow_schedules")]
    allow_schedules: bool,
    /// Messages may not be scheduled (the default)
    #[arg(long, overrides_with = "allow_schedules")]
    no_allow_schedules: bool,
}

#[derive(Debug, Clone, Default, Args)]
struct FlowArgs {
    /// Hold what this stream holds, and nothing else
    #[arg(long, value_name = "STREAM", conflicts_with = "source")]
    mirror: Option<String>,
    /// Take over messages of this stream; may be repeated
    #[arg(long, value_name = "STREAM")]
    source: Vec<String>,
    /// Change the subjects that match this before they are stored
    #[arg(long, value_name = "SUBJECT", requires = "transform_destination")]
    transform_source: Option<String>,
    /// What those subjects become
    #[arg(long, value_name = "SUBJECT", requires = "transform_source")]
    transform_destination: Option<String>,
    /// Publish again what is stored on subjects that match this
    #[arg(long, value_name = "SUBJECT", requires = "republish_destination")]
    republish_source: Option<String>,
    /// Where to publish it
    #[arg(long, value_name = "SUBJECT", requires = "republish_source")]
    republish_destination: Option<String>,
    /// Publish it without bodies
    #[arg(long, requires = "republish_source")]
    republish_headers: bool,
}

impl ConfigArgs {
    /// True if any subjects, or another source of messages, were named.
    pub fn names_messages(&self) -> bool {
        !self.subjects.is_empty() || self.flow.mirror.is_some() || !self.flow.source.is_empty()
    }

    /// Writes what was given into a configuration.
    ///
    /// # Errors
    /// When metadata is not of the form KEY=VALUE.
    pub fn apply(&self, config: &mut Value) -> Result<(), CliError> {
        let storage = self.storage.as_deref();
        let retention = self.retention.as_deref();
        let work = |name: &str| if name.starts_with('w') { "workqueue" } else { name }.to_owned();
        let medium = |name: &str| if name.starts_with('m') { "memory" } else { "file" };
        let ns = |duration: Option<Duration>| duration.map(|duration| nanos(duration).into());
        let subjects = (!self.subjects.is_empty()).then(|| json!(self.subjects));
        let fields = [
            ("subjects", subjects),
            ("description", self.description.clone().map(Value::from)),
            ("storage", storage.map(|name| medium(name).into())),
            ("retention", retention.map(|name| work(name).into())),
            ("discard", self.discard.clone().map(Value::from)),
            ("duplicate_window", ns(self.dupe_window)),
            ("num_replicas", self.replicas.map(Value::from)),
            ("compression", self.compression.clone().map(Value::from)),
            ("first_seq", self.first_sequence.map(Value::from)),
            ("persist_mode", self.persist_mode.clone().map(Value::from)),
            ("subject_delete_marker_ttl", ns(self.subject_del_markers_ttl)),
            ("metadata", metadata(&self.metadata)?),
            ("placement", self.placement()),
        ];
        let given = fields.into_iter().filter_map(|(key, value)| Some((key, value?)));
        for (key, value) in given.chain(self.limits.fields()).chain(self.switches.fields()) {
            config[key] = value;
        }
        self.limits.consumers(config);
        self.flow.apply(config);
        Ok(())
    }

    fn placement(&self) -> Option<Value> {
        let mut placement = json!({});
        if let Some(cluster) = &self.cluster {
            placement["cluster"] = cluster.as_str().into();
        }
        if !self.tag.is_empty() {
            placement["tags"] = json!(self.tag);
        }
        placement.as_object().is_some_and(|fields| !fields.is_empty()).then_some(placement)
    }
}

impl LimitArgs {
    fn fields(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let fields = [
            ("max_msgs", self.max_msgs.map(Value::from)),
            ("max_msgs_per_subject", self.max_msgs_per_subject.map(Value::from)),
            ("max_bytes", self.max_bytes.map(Value::from)),
            ("max_age", self.max_age.map(Value::from)),
            ("max_msg_size", self.max_msg_size.map(Value::from)),
            ("max_consumers", self.max_consumers.map(Value::from)),
        ];
        fields.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }

    fn consumers(&self, config: &mut Value) {
        if let Some(threshold) = self.limit_consumer_inactive {
            config["consumer_limits"]["inactive_threshold"] = nanos(threshold).into();
        }
        if let Some(pending) = self.limit_consumer_max_pending {
            config["consumer_limits"]["max_ack_pending"] = pending.into();
        }
    }
}

impl SwitchArgs {
    fn fields(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let fields = [
            ("no_ack", switch(self.no_ack, self.ack)),
            ("allow_direct", switch(self.allow_direct, self.no_allow_direct)),
            ("mirror_direct", switch(self.allow_mirror_direct, self.no_allow_mirror_direct)),
            (
                "discard_new_per_subject",
                switch(self.discard_per_subject, self.no_discard_per_subject),
            ),
            ("allow_rollup_hdrs", switch(self.allow_rollup, self.no_allow_rollup)),
            ("deny_delete", switch(self.deny_delete, self.no_deny_delete)),
            ("deny_purge", switch(self.deny_purge, self.no_deny_purge)),
            ("allow_msg_ttl", switch(self.allow_msg_ttl, false)),
            ("allow_atomic", switch(self.allow_batch, self.no_allow_batch)),
            ("allow_msg_counter", switch(self.allow_counter, false)),
            ("allow_msg_schedules", switch(self.allow_schedules, self.no_allow_schedules)),
        ];
        fields.into_iter().filter_map(|(key, value)| Some((key, value?.into())))
    }
}

impl FlowArgs {
    fn apply(&self, config: &mut Value) {
        if let Some(origin) = &self.mirror {
            config["mirror"] = json!({ "name": origin });
        }
        if !self.source.is_empty() {
            let sources: Vec<Value> =
                self.source.iter().map(|name| json!({ "name": name })).collect();
            config["sources"] = sources.into();
        }
        if let (Some(src), Some(dest)) = (&self.transform_source, &self.transform_destination) {
            config["subject_transform"] = json!({ "src": src, "dest": dest });
        }
        if let (Some(src), Some(dest)) = (&self.republish_source, &self.republish_destination) {
            let headers_only = self.republish_headers;
            config["republish"] = json!({ "src": src, "dest": dest, "headers_only": headers_only });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ConfigArgs,
    }

    fn applied(line: &str, mut config: Value) -> Value {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().args.apply(&mut config).unwrap();
        config
    }

    #[test]
    fn only_what_is_given_changes() {
        let before = json!({ "max_msgs": 5, "deny_delete": true, "subjects": ["a"] });
        assert_eq!(applied("", before.clone()), before);
        let after = applied("--max-msgs -1 --no-deny-delete --max-age 1h", before);
        let expected = json!({
            "max_msgs": -1, "deny_delete": false, "max_age": 3_600_000_000_000u64,
            "subjects": ["a"],
        });
        assert_eq!(after, expected);
    }

    #[test]
    fn flags_become_configuration() {
        let line = "--subjects a.>,b --storage m --retention work --no-ack --mirror-not";
        assert!(Line::try_parse_from(line.split(' ')).is_err());
        let made = applied(
            "--subjects a.>,b --storage m --retention work --no-ack --tag x --tag y --source S \
             --republish-source > --republish-destination r.> --limit-consumer-max-pending 9",
            json!({}),
        );
        let expected = json!({
            "subjects": ["a.>", "b"], "storage": "memory", "retention": "workqueue",
            "no_ack": true, "placement": { "tags": ["x", "y"] }, "sources": [{ "name": "S" }],
            "republish": { "src": ">", "dest": "r.>", "headers_only": false },
            "consumer_limits": { "max_ack_pending": 9 },
        });
        assert_eq!(made, expected);
    }
}
