//! `consumer info`: one consumer for people.

use nuthatch_client::connect::ConnectArgs;
use serde_json::Value;
use time::OffsetDateTime;

use super::NameArgs;
use crate::error::CliError;
use crate::session::Session;
use crate::show::{self, DetailView, number};

/// Runs `consumer info`.
pub fn info(args: &NameArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let info = args.fetch(&mut session)?;
    session.print(&info, || render(&info))
}

/// Whether messages are pushed or pulled, and how long the consumer lives.
pub fn kind(config: &Value) -> String {
    let direction = if config["deliver_subject"].is_string() { "push" } else { "pull" };
    let life = if config["durable_name"].is_string() { "durable" } else { "ephemeral" };
    format!("{direction}, {life}")
}

/// The subjects it selects.
pub fn filter(config: &Value) -> String {
    show::some_text(&config["filter_subject"])
        .or_else(|| show::some_text(&config["filter_subjects"]))
        .unwrap_or_else(|| "all".into())
}

/// How long ago something was last delivered or acknowledged. Servers know since their start.
pub fn activity(place: &Value, now: OffsetDateTime) -> String {
    match (show::since(&place["last_active"], now).as_str(), number(&place["consumer_seq"])) {
        ("never", 0) => "never".into(),
        ("never", _) => "none since the server's start".into(),
        (age, _) => format!("{age} ago"),
    }
}

/// A consumer's configuration and state for people.
pub fn render(info: &Value) -> String {
    let mut details = DetailView::default();
    let name = (show::text(&info["name"]), show::text(&info["stream_name"]));
    details.heading(&format!("Consumer {} of stream {}", name.0, name.1));
    configuration(&mut details, &info["config"]);
    details.line("Created", show::time(&info["created"]));
    details.heading("State");
    let place = |value: &Value| {
        let number = |key: &str| show::count(number(&value[key]));
        format!("delivery {}, stream sequence {}", number("consumer_seq"), number("stream_seq"))
    };
    details.line("Last delivered", place(&info["delivered"]));
    details.line("Acknowledged up to", place(&info["ack_floor"]));
    let count = |key: &str| show::count(number(&info[key]));
    let now = OffsetDateTime::now_utc();
    details.line("Last delivery", activity(&info["delivered"], now));
    details.line("Last acknowledgement", activity(&info["ack_floor"], now));
    details.line("Unacknowledged", count("num_ack_pending"));
    details.line("Redelivered", count("num_redelivered"));
    details.line("Unprocessed", count("num_pending"));
    details.line("Waiting pulls", count("num_waiting"));
    if info["paused"] == true {
        let left = show::duration(number(&info["pause_remaining"]));
        details.line("Paused for another", left);
    }
    details.render()
}

fn configuration(details: &mut DetailView, config: &Value) {
    details.line_if("Description", show::some_text(&config["description"]));
    details.line("Kind", kind(config));
    details.line_if("Pushed to", show::some_text(&config["deliver_subject"]));
    details.line_if("Queue group", show::some_text(&config["deliver_group"]));
    details.line("Filter", filter(config));
    details.line("Deliver policy", show::text(&config["deliver_policy"]));
    details.line_if("Begins at sequence", show::some_text(&config["opt_start_seq"]));
    details.line_if("Begins at", show::some_text(&config["opt_start_time"]));
    details.line("Ack policy", show::text(&config["ack_policy"]));
    let duration = |key: &str| config[key].as_u64().filter(|ns| *ns > 0).map(show::duration);
    details.line_if("Ack wait", duration("ack_wait"));
    let waits = config["backoff"].as_array().into_iter().flatten();
    let waits: Vec<String> = waits.map(|wait| show::duration(number(wait))).collect();
    details.line_if("Backoff", (!waits.is_empty()).then(|| waits.join(", ")));
    details.line("Replay policy", show::text(&config["replay_policy"]));
    details.line("Deliveries of a message", show::limit(&config["max_deliver"], show::count));
    details.line("Unacknowledged limit", show::limit(&config["max_ack_pending"], show::count));
    details.line_if("Waiting pulls limit", show::some_text(&config["max_waiting"]));
    details.line_if("Pull batch limit", show::some_text(&config["max_batch"]));
    details.line_if("Pull expiry limit", duration("max_expires"));
    details.line_if("Idle heartbeat", duration("idle_heartbeat"));
    details.line_if("Inactive threshold", duration("inactive_threshold"));
    details.line_if("Headers only", config["headers_only"].as_bool().map(|_| "yes".into()));
    for (key, value) in config["metadata"].as_object().into_iter().flatten() {
        details.line(&format!("Metadata {key}"), show::text(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use time::macros::datetime;

    #[test]
    fn what_was_before_the_start_is_not_taken_for_never() {
        let now = datetime!(2026-01-02 00:00:10 UTC);
        let check = |place: Value, expected: &str| assert_eq!(activity(&place, now), expected);
        check(json!({ "consumer_seq": 0 }), "never");
        check(json!({ "consumer_seq": 3 }), "none since the server's start");
        let time = "2026-01-02T00:00:00Z";
        check(json!({ "consumer_seq": 3, "last_active": time }), "10s ago");
    }
}
