//! The flags that describe a consumer, shared by `add`, `edit` and `copy`.

use std::time::{Duration, SystemTime};

use clap::Args;
use nuthatch_client::units::{parse_duration, parse_number};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::input::{metadata, nanos, parse_since, rfc3339, switch};

/// A consumer's configuration, flags named as the `nats` command names them.
#[derive(Debug, Clone, Default, Args)]
pub struct ConfigArgs {
    /// Where to begin: all, last, new, subject, a sequence, an age such as 1h, or a time
    #[arg(long, value_name = "PLACE")]
    deliver: Option<String>,
    /// How messages are acknowledged (default: explicit, or none for push consumers)
    #[arg(long, value_parser = ["none", "all", "explicit"])]
    ack: Option<String>,
    /// How long to wait for an ack before delivering again, such as 30s
    #[arg(long, value_parser = parse_duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    backoff: BackoffArgs,
    /// Most deliveries of one message; -1 for no limit
    #[arg(long, allow_negative_numbers = true)]
    max_deliver: Option<i64>,
    /// Only messages of this subject; may be repeated, or several with commas
    #[arg(long, value_delimiter = ',')]
    pub filter: Vec<String>,
    /// Deliver as fast as possible, or as the messages came (default: instant)
    #[arg(long, value_parser = ["instant", "original"])]
    replay: Option<String>,
    /// Most unacknowledged messages
    #[arg(long, allow_negative_numbers = true, alias = "max-outstanding")]
    max_pending: Option<i64>,
    /// Most waiting pull requests
    #[arg(long)]
    max_waiting: Option<u64>,
    /// Most messages of one pull request
    #[arg(long)]
    max_pull_batch: Option<u64>,
    /// Longest pull request, such as 1m
    #[arg(long, value_parser = parse_duration)]
    max_pull_expire: Option<Duration>,
    /// Most bytes of one pull request
    #[arg(long, value_parser = parse_number)]
    max_pull_bytes: Option<u64>,
    /// A push consumer says that it is alive this often
    #[arg(long, value_parser = parse_duration)]
    heartbeat: Option<Duration>,
    /// A push consumer waits for its client to keep up
    #[arg(long)]
    flow_control: bool,
    /// Most bits per second of a push consumer
    #[arg(long, value_parser = parse_number)]
    bps: Option<u64>,
    /// Delete it when nobody has used it for this long
    #[arg(long, value_parser = parse_duration)]
    inactive_threshold: Option<Duration>,
    /// Keep its state in memory
    #[arg(long)]
    memory: bool,
    /// Deliver headers without bodies
    #[arg(long, overrides_with = "no_headers_only")]
    headers_only: bool,
    /// Deliver headers and bodies (the default)
    #[arg(long, overrides_with = "headers_only")]
    no_headers_only: bool,
    /// Copies in a cluster (default: those of the stream)
    #[arg(long)]
    replicas: Option<u64>,
    /// Report on this percentage of acks
    #[arg(long)]
    sample: Option<u8>,
    /// Deliver nothing before this time, RFC 3339, or for this long, such as 1h
    #[arg(long, value_name = "UNTIL")]
    pause: Option<String>,
    /// Description
    #[arg(long)]
    description: Option<String>,
    /// Metadata as KEY=VALUE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
}

#[derive(Debug, Clone, Default, Args)]
struct BackoffArgs {
    /// Waits before redeliveries instead of --wait: none, linear (see the next three), or a list
    /// such as 1s,5s,1m
    #[arg(long, value_name = "MODE")]
    backoff: Option<String>,
    /// Steps of a linear backoff
    #[arg(long, default_value_t = 10)]
    backoff_steps: u32,
    /// Shortest wait of a linear backoff
    #[arg(long, default_value = "1m", value_parser = parse_duration)]
    backoff_min: Duration,
    /// Longest wait of a linear backoff
    #[arg(long, default_value = "20m", value_parser = parse_duration)]
    backoff_max: Duration,
}

impl BackoffArgs {
    fn waits(&self) -> Result<Option<Value>, CliError> {
        let Some(mode) = &self.backoff else { return Ok(None) };
        let waits: Vec<u64> = match mode.as_str() {
            "none" => Vec::new(),
            "linear" => {
                let span = self.backoff_max.saturating_sub(self.backoff_min);
                let step = span / self.backoff_steps.max(1);
                (0..self.backoff_steps).map(|n| nanos(self.backoff_min + step * n)).collect()
            }
            list => list
                .split(',')
                .map(|wait| parse_duration(wait).map(nanos))
                .collect::<Result<_, _>>()
                .map_err(|why| CliError::Usage(format!("--backoff: {why}")))?,
        };
        Ok(Some(waits.into()))
    }
}

impl ConfigArgs {
    /// Writes what was given into a configuration.
    ///
    /// # Errors
    /// When a place, a time, a backoff or metadata is not understood.
    pub fn apply(&self, config: &mut Value, now: SystemTime) -> Result<(), CliError> {
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let ns = |duration: Option<Duration>| duration.map(|duration| nanos(duration).into());
        let fields = [
            ("ack_policy", text(&self.ack)),
            ("ack_wait", ns(self.wait)),
            ("backoff", self.backoff.waits()?),
            ("max_deliver", self.max_deliver.map(Value::from)),
            ("replay_policy", text(&self.replay)),
            ("max_ack_pending", self.max_pending.map(Value::from)),
            ("max_waiting", self.max_waiting.map(Value::from)),
            ("max_batch", self.max_pull_batch.map(Value::from)),
            ("max_expires", ns(self.max_pull_expire)),
            ("max_bytes", self.max_pull_bytes.map(Value::from)),
            ("idle_heartbeat", ns(self.heartbeat)),
            ("flow_control", self.flow_control.then(|| true.into())),
            ("rate_limit_bps", self.bps.map(Value::from)),
            ("inactive_threshold", ns(self.inactive_threshold)),
            ("mem_storage", self.memory.then(|| true.into())),
            ("headers_only", switch(self.headers_only, self.no_headers_only).map(Value::from)),
            ("num_replicas", self.replicas.map(Value::from)),
            ("sample_freq", self.sample.map(|percent| percent.to_string().into())),
            ("description", text(&self.description)),
            ("metadata", metadata(&self.metadata)?),
        ];
        for (key, value) in fields.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            config[key] = value;
        }
        self.apply_filter(config);
        if let Some(until) = &self.pause {
            config["pause_until"] = pause_until(until, now)?.into();
        }
        self.deliver.as_deref().map_or(Ok(()), |place| deliver_policy(config, place, now))
    }

    fn apply_filter(&self, config: &mut Value) {
        let Some(fields) = config.as_object_mut().filter(|_| !self.filter.is_empty()) else {
            return;
        };
        fields.remove("filter_subject");
        fields.remove("filter_subjects");
        match &self.filter[..] {
            [one] => fields.insert("filter_subject".into(), one.as_str().into()),
            several => fields.insert("filter_subjects".into(), json!(several)),
        };
    }
}

/// A time to come: RFC 3339, or how long from now.
pub fn pause_until(text: &str, now: SystemTime) -> Result<String, CliError> {
    use time::{OffsetDateTime, format_description::well_known::Rfc3339};
    if OffsetDateTime::parse(text, &Rfc3339).is_ok() {
        return Ok(text.to_owned());
    }
    let until = parse_duration(text).ok().and_then(|wait| now.checked_add(wait));
    let bad = || {
        CliError::Usage(format!("{text:?} is neither an RFC 3339 time nor a duration such as 1h"))
    };
    until.map(|until| rfc3339(until.into())).ok_or_else(bad)
}

/// Understands the forms of `--deliver`.
fn deliver_policy(config: &mut Value, text: &str, now: SystemTime) -> Result<(), CliError> {
    let by_word = match text {
        "all" | "1" => Some("all"),
        "last" => Some("last"),
        "new" | "next" => Some("new"),
        "subject" => Some("last_per_subject"),
        _ => None,
    };
    if let Some(policy) = by_word {
        config["deliver_policy"] = policy.into();
        return Ok(());
    }
    if let Ok(seq) = text.parse::<u64>() {
        config["deliver_policy"] = "by_start_sequence".into();
        config["opt_start_seq"] = seq.into();
        return Ok(());
    }
    let start = parse_since(text, now).map_err(|_| {
        let forms = "all, last, new, subject, a sequence, an age such as 1h, or an RFC 3339 time";
        CliError::Usage(format!("--deliver {text:?} is not understood; use {forms}"))
    })?;
    config["deliver_policy"] = "by_start_time".into();
    config["opt_start_time"] = rfc3339(start).into();
    Ok(())
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

    fn applied(line: &str) -> Result<Value, CliError> {
        let words = std::iter::once("add").chain(line.split_whitespace());
        let day = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
        let mut config = json!({});
        Line::try_parse_from(words).unwrap().args.apply(&mut config, day)?;
        Ok(config)
    }

    #[test]
    fn flags_become_configuration() {
        assert_eq!(applied("").unwrap(), json!({}));
        let made = applied("--filter a --filter b --wait 10s --backoff 1s,2s --pause 1h").unwrap();
        let expected = json!({
            "filter_subjects": ["a", "b"], "ack_wait": 10_000_000_000u64,
            "backoff": [1_000_000_000u64, 2_000_000_000u64],
            "pause_until": "1970-01-02T01:00:00Z",
        });
        assert_eq!(made, expected);
        let linear =
            applied("--backoff linear --backoff-steps 2 --backoff-min 1s --backoff-max 3s");
        assert_eq!(linear.unwrap()["backoff"], json!([1_000_000_000u64, 2_000_000_000u64]));
        assert!(applied("--backoff soon").is_err());
    }

    #[test]
    fn where_to_begin() {
        let policy = |text: &str| applied(&format!("--deliver {text}"));
        assert_eq!(policy("subject").unwrap()["deliver_policy"], "last_per_subject");
        assert_eq!(policy("42").unwrap()["opt_start_seq"], 42);
        assert_eq!(policy("1h").unwrap()["opt_start_time"], "1970-01-01T23:00:00Z");
        let time = "2026-01-02T03:04:05Z";
        assert_eq!(policy(time).unwrap()["opt_start_time"], time);
        assert!(policy("whenever").is_err());
    }
}
