//! The end of an import: the rest, what has left the source, the consumers, the comparison.

use nuthatch_client::js::Answer;
use nuthatch_protocol::js::{AckPolicy, ConsumerInfo, SequenceInfo, StreamInfoRequest};
use serde_json::{Value, json};

use super::source::Source;
use super::target::Target;
use super::{Import, copy, verify};
use crate::error::CliError;
use crate::show;

/// Brings what is missing, compares, and puts the stream in service. Returns what there is to tell.
pub fn finish(
    import: &mut Import,
    source: &mut Source,
    target: &mut Target,
) -> Result<Value, CliError> {
    copy(import, source, target)?;
    let request = StreamInfoRequest { deleted_details: true, ..StreamInfoRequest::default() };
    let there = source.info(&import.name, &request)?.value.state;
    let body = json!({
        "action": "reconcile", "first_seq": there.first_seq, "deleted": there.deleted,
    });
    let here = target.act(&import.name, &body)?.state;
    let counts =
        [("messages", there.messages, here.messages), ("last_seq", there.last_seq, here.last_seq)];
    if let Some((field, there, here)) = counts.into_iter().find(|(_, there, here)| there != here) {
        return Err(CliError::Failed(format!(
            "{}: {field} is {there} there and {here} here: is somebody still publishing or consuming \
             there? Stop them and run this again",
            import.name
        )));
    }
    let (theirs, ours) = verify::difference(import, import.machine.verified() + 1, source, target)?;
    if (theirs.messages, theirs.hex()) != (ours.messages, ours.hex()) {
        let text = format!(
            "{}: {} messages with checksum {} there, {} with {} here",
            import.name,
            theirs.messages,
            theirs.hex(),
            ours.messages,
            ours.hex()
        );
        return Err(CliError::Failed(text));
    }
    put_in_service(import, source, target, &theirs)
}

fn put_in_service(
    import: &Import,
    source: &mut Source,
    target: &mut Target,
    sum: &verify::Sum,
) -> Result<Value, CliError> {
    let name = &import.name;
    let (mut consumers, mut told) = (Vec::new(), Vec::new());
    for info in source.consumers(name)? {
        let position = Position::of(&info);
        told.push(json!({
            "name": info.name, "next": position.next(), "again_at_most": position.again,
        }));
        consumers.push(position.snapshot(&info));
    }
    // The last look: what came since then is not lost silently.
    if source.last_seq(name)? != import.machine.stored() {
        let text = format!("{name}: somebody still publishes there: stop that and run this again");
        return Err(CliError::Failed(text));
    }
    let body = json!({
        "action": "finish", "config": import.config, "consumers": consumers,
        "last_seq": import.machine.stored(),
    });
    let done = target.act(name, &body)?.state;
    Ok(json!({
        "stream": name, "messages": done.messages,
        "last_seq": done.last_seq, "consumers": told,
        "compared_last": {"messages": sum.messages, "checksum": sum.hex()},
    }))
}

/// Summary of a finished import.
pub fn describe(report: &Value) -> String {
    let mut text = format!(
        "Stream {} is in service: {} messages, last sequence {}; the last {} compared by checksum \
         {}\n",
        show::text(&report["stream"]),
        report["messages"],
        report["last_seq"],
        report["compared_last"]["messages"],
        show::text(&report["compared_last"]["checksum"]),
    );
    for consumer in report["consumers"].as_array().into_iter().flatten() {
        let (name, next) = (show::text(&consumer["name"]), &consumer["next"]);
        text += &match consumer["again_at_most"].as_u64() {
            None | Some(0) => format!("  consumer {name} goes on at {next}\n"),
            Some(again) => format!(
                "  consumer {name} goes on at {next}: up to {again} messages that it had may come \
                 again, since the other server does not say which of them were acknowledged\n"
            ),
        };
    }
    text
}

/// Position of a consumer.
struct Position {
    delivered: (u64, u64),
    floor: (u64, u64),
    /// Messages behind the floor that may have been acknowledged.
    again: u64,
}

impl Position {
    /// Everything up to the last delivery, if nothing is out; else everything up to the floor: what
    /// is out, and what was acknowledged out of order, comes again.
    fn of(info: &ConsumerInfo) -> Self {
        let pair = |place: &SequenceInfo| (place.consumer_seq, place.stream_seq);
        let (delivered, floor) = (pair(&info.delivered), pair(&info.ack_floor));
        let acks = info.config.ack_policy != AckPolicy::None;
        if !acks || info.num_ack_pending == 0 {
            return Self { delivered, floor: delivered, again: 0 };
        }
        Self { delivered: floor, floor, again: delivered.0.saturating_sub(floor.0) }
    }

    const fn next(&self) -> u64 {
        self.delivered.1 + 1
    }

    fn snapshot(&self, info: &Answer<ConsumerInfo>) -> Value {
        // As it came: what is not known here passes through.
        let mut config = info.json["config"].clone();
        if info.config.name.is_empty() {
            config["name"] = info.name.as_str().into();
        }
        config["num_replicas"] = 0.into();
        if let Some(facts) = config["metadata"].as_object_mut() {
            facts.retain(|key, _| !key.starts_with("_nats."));
        }
        let pair = |(consumer, stream)| json!({"consumer_seq": consumer, "stream_seq": stream});
        json!({
            "config": config,
            "state": {"delivered": pair(self.delivered), "ack_floor": pair(self.floor)},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(out: u64, policy: &str) -> Answer<ConsumerInfo> {
        let json = json!({
            "name": "C", "config": {"ack_policy": policy}, "num_ack_pending": out,
            "delivered": {"consumer_seq": 9, "stream_seq": 20},
            "ack_floor": {"consumer_seq": 4, "stream_seq": 11},
        });
        Answer::read("CONSUMER.INFO", json).unwrap()
    }

    #[test]
    fn a_consumer_with_nothing_out_goes_on_behind_its_last_delivery() {
        let position = Position::of(&info(0, "explicit"));
        assert_eq!((position.next(), position.again), (21, 0));
        let position = Position::of(&info(3, "none"));
        assert_eq!((position.next(), position.again), (21, 0));
    }

    #[test]
    fn what_may_be_out_comes_again() {
        let position = Position::of(&info(3, "explicit"));
        assert_eq!((position.next(), position.again), (12, 5));
        let snapshot = position.snapshot(&info(3, "explicit"));
        assert_eq!(snapshot["state"]["ack_floor"], json!({"consumer_seq": 4, "stream_seq": 11}));
        assert_eq!(snapshot["config"]["name"], "C");
    }
}
