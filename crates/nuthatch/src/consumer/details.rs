//! `consumer info`: one consumer for people.

use nuthatch_client::connect::ConnectArgs;
use nuthatch_protocol::js::{ConsumerConfig, ConsumerInfo, SequenceInfo, Time};
use time::OffsetDateTime;

use super::NameArgs;
use crate::error::CliError;
use crate::session::Session;
use crate::show::{self, DetailView, limit_of, unsigned};

/// Runs `consumer info`.
pub fn info(args: &NameArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let info = args.fetch(&mut session)?;
    session.print(&info.json, || render(&info))
}

/// Whether messages are pushed or pulled, and how long the consumer lives.
pub fn kind(config: &ConsumerConfig) -> String {
    let life = if config.durable_name.is_empty() { "ephemeral" } else { "durable" };
    format!("{}, {life}", direction(config))
}

/// Whether messages are pushed or pulled.
pub const fn direction(config: &ConsumerConfig) -> &'static str {
    if config.deliver_subject.is_empty() { "pull" } else { "push" }
}

/// The subjects it selects.
pub fn filter(config: &ConsumerConfig) -> String {
    show::filled(&config.filter_subject)
        .or_else(|| show::filled(&config.filter_subjects.join(", ")))
        .unwrap_or_else(|| "all".into())
}

/// How long ago something was last delivered or acknowledged. Servers know since their start.
pub fn activity(place: &SequenceInfo, now: OffsetDateTime) -> String {
    let last = show::ago(place.last_active.unwrap_or(Time::ZERO), now);
    match (last.as_str(), place.consumer_seq) {
        ("never", 0) => "never".into(),
        ("never", _) => "none since the server's start".into(),
        (age, _) => format!("{age} ago"),
    }
}

/// A consumer's configuration and state for people.
pub fn render(info: &ConsumerInfo) -> String {
    let mut details = DetailView::default();
    details.heading(&format!("Consumer {} of stream {}", info.name, info.stream_name));
    configuration(&mut details, &info.config);
    details.line("Created", show::moment(info.created));
    details.heading("State");
    let place = |place: &SequenceInfo| {
        let (delivery, seq) = (show::count(place.consumer_seq), show::count(place.stream_seq));
        format!("delivery {delivery}, stream sequence {seq}")
    };
    details.line("Last delivered", place(&info.delivered));
    details.line("Acknowledged up to", place(&info.ack_floor));
    let now = OffsetDateTime::now_utc();
    details.line("Last delivery", activity(&info.delivered, now));
    details.line("Last acknowledgement", activity(&info.ack_floor, now));
    details.line("Unacknowledged", show::count(info.num_ack_pending));
    details.line("Redelivered", show::count(info.num_redelivered));
    details.line("Unprocessed", show::count(info.num_pending));
    details.line("Waiting pulls", show::count(info.num_waiting));
    if info.paused {
        details.line("Paused for another", show::duration(unsigned(info.pause_remaining)));
    }
    details.render()
}

fn configuration(details: &mut DetailView, config: &ConsumerConfig) {
    let number = |number: i64| (number != 0).then(|| number.to_string());
    let duration = |ns: i64| Some(unsigned(ns)).filter(|ns| *ns > 0).map(show::duration);
    details.line_if("Description", show::filled(&config.description));
    details.line("Kind", kind(config));
    details.line_if("Pushed to", show::filled(&config.deliver_subject));
    details.line_if("Queue group", show::filled(&config.deliver_group));
    details.line("Filter", filter(config));
    details.line("Deliver policy", config.deliver_policy.as_str());
    let first = Some(config.opt_start_seq).filter(|seq| *seq > 0);
    details.line_if("Begins at sequence", first.map(|seq| seq.to_string()));
    details.line_if("Begins at", config.opt_start_time.map(|time| time.to_string()));
    details.line("Ack policy", config.ack_policy.as_str());
    details.line_if("Ack wait", duration(config.ack_wait));
    let waits: Vec<String> =
        config.backoff.iter().map(|wait| show::duration(unsigned(*wait))).collect();
    details.line_if("Backoff", show::filled(&waits.join(", ")));
    details.line("Replay policy", config.replay_policy.as_str());
    details.line("Deliveries of a message", limit_of(config.max_deliver, show::count));
    details.line("Unacknowledged limit", limit_of(config.max_ack_pending, show::count));
    details.line_if("Waiting pulls limit", number(config.max_waiting));
    details.line_if("Pull batch limit", number(config.max_batch));
    details.line_if("Pull expiry limit", duration(config.max_expires));
    details.line_if("Idle heartbeat", duration(config.idle_heartbeat));
    details.line_if("Inactive threshold", duration(config.inactive_threshold));
    details.line_if("Headers only", config.headers_only.then(|| "yes".into()));
    for (key, value) in &config.metadata {
        details.line(&format!("Metadata {key}"), value.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use time::macros::datetime;

    #[test]
    fn what_was_before_the_start_is_not_taken_for_never() {
        let now = datetime!(2026-01-02 00:00:10 UTC);
        let check = |place: Value, expected: &str| {
            let place: SequenceInfo = serde_json::from_value(place).unwrap();
            assert_eq!(activity(&place, now), expected);
        };
        check(json!({ "consumer_seq": 0 }), "never");
        check(json!({ "consumer_seq": 3 }), "none since the server's start");
        let time = "2026-01-02T00:00:00Z";
        check(json!({ "consumer_seq": 3, "last_active": time }), "10s ago");
    }
}
