//! `stream find`: streams with some property.

use std::time::Duration;

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::parse_duration;
use nuthatch_protocol::js::{StreamInfo, Time};
use serde_json::json;
use time::OffsetDateTime;

use super::list;
use crate::error::CliError;
use crate::session::Session;
use crate::show;

/// Find streams that have all of the given properties
#[derive(Debug, Clone, Default, Args)]
pub struct FindArgs {
    /// Only streams whose name has this in it; upper and lower case are the same
    name: Option<String>,
    /// Only streams that store this subject
    #[arg(long)]
    subject: Option<String>,
    /// Only streams without messages
    #[arg(long)]
    empty: bool,
    /// Only streams to which nothing was published for this long, such as 7d
    #[arg(long, value_name = "AGE", value_parser = parse_duration)]
    idle: Option<Duration>,
    /// Only streams created at least this long ago, such as 30d
    #[arg(long, value_name = "AGE", value_parser = parse_duration)]
    created: Option<Duration>,
    /// Only streams with at most this many consumers
    #[arg(long, value_name = "N")]
    consumers: Option<u64>,
    /// Only streams with at most this many copies
    #[arg(long, value_name = "N")]
    replicas: Option<u64>,
    /// Only streams that take over messages of other streams
    #[arg(long)]
    sourced: bool,
    /// Only mirrors
    #[arg(long)]
    mirrored: bool,
    /// Find the others: streams that lack one of the properties
    #[arg(long, short)]
    invert: bool,
    /// Print names only
    #[arg(long, short)]
    names: bool,
}

impl FindArgs {
    /// True if the stream has all properties, except its subject, which the server looks at.
    fn fits(&self, stream: &StreamInfo, now: Time) -> bool {
        let (config, state) = (&stream.config, &stream.state);
        let name = config.name.to_lowercase();
        let at_most = |limit: Option<u64>, value: u64| limit.is_none_or(|limit| value <= limit);
        let older = |age: Option<Duration>, time: Time| {
            let passed = u128::try_from(now.0.saturating_sub(time.0)).unwrap_or(0);
            age.is_none_or(|age| time.is_zero() || passed >= age.as_nanos())
        };
        self.name.as_ref().is_none_or(|part| name.contains(&part.to_lowercase()))
            && (!self.empty || state.messages == 0)
            // One that never had a message has been idle since it was created.
            && older(self.idle, if state.last_seq > 0 { state.last_ts } else { stream.created })
            && older(self.created, stream.created)
            && at_most(self.consumers, state.consumer_count)
            && at_most(self.replicas, show::unsigned(config.num_replicas))
            && (!self.sourced || !config.sources.is_empty())
            && (!self.mirrored || config.mirror.is_some())
    }
}

/// Runs `stream find`.
pub fn run(args: &FindArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let with_subject = match &args.subject {
        Some(subject) => Some(list::fetch(&mut session, Some(subject))?),
        None => None,
    };
    let mut streams = list::fetch(&mut session, None)?;
    let now = OffsetDateTime::now_utc().unix_timestamp_nanos();
    let now = Time(i64::try_from(now).unwrap_or(i64::MAX));
    streams.retain(|stream| {
        let stores = with_subject.as_ref().is_none_or(|streams| {
            streams.iter().any(|other| other.config.name == stream.config.name)
        });
        (stores && args.fits(stream, now)) != args.invert
    });
    if args.names {
        let names: Vec<&str> = streams.iter().map(|stream| stream.config.name.as_str()).collect();
        return session.print(&json!(names), || names.iter().map(|n| format!("{n}\n")).collect());
    }
    session.print(&json!(streams), || match streams.len() {
        0 => "No streams found\n".to_owned(),
        _ => list::table(&streams),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_properties_must_fit() {
        let stream: StreamInfo = serde_json::from_value(json!({
            "config": { "name": "Orders", "num_replicas": 1 }, "created": "2026-01-01T00:00:00Z",
            "state": { "messages": 3, "last_seq": 3, "last_ts": "2026-01-05T00:00:00Z", "consumer_count": 2 },
        }))
        .unwrap();
        let now = Time::parse("2026-01-10T00:00:00Z").unwrap();
        let days = |days: u64| Some(Duration::from_secs(days * 86_400));
        let check = |args: FindArgs, expected: bool| {
            assert_eq!(args.fits(&stream, now), expected, "{args:?}");
        };
        let none = FindArgs::default;
        check(none(), true);
        check(FindArgs { name: Some("rder".into()), idle: days(4), ..none() }, true);
        check(FindArgs { name: Some("rder".into()), idle: days(6), ..none() }, false);
        check(FindArgs { created: days(9), consumers: Some(2), ..none() }, true);
        check(FindArgs { consumers: Some(1), ..none() }, false);
        check(FindArgs { empty: true, ..none() }, false);
        check(FindArgs { mirrored: true, ..none() }, false);
        check(FindArgs { sourced: true, ..none() }, false);
    }
}
