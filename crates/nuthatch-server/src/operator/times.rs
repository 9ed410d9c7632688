//! Times of the day at which a user may be connected.

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use nuthatch_protocol::jwt::{TimeRange, time_of_day};
use std::time::{Duration, SystemTime};

/// How long a user may stay from now on: `Some(None)` is for ever, `None` is not at all. `zone` is
/// the name of a time zone; empty is the machine's.
pub(crate) fn stay(times: &[TimeRange], zone: &str, now: SystemTime) -> Option<Option<Duration>> {
    if times.is_empty() {
        return Some(None);
    }
    let zone = match zone {
        "" => TimeZone::try_system().unwrap_or(TimeZone::UTC),
        name => TimeZone::get(name).ok()?,
    };
    let now = Timestamp::try_from(now).ok()?;
    let longest = times.iter().filter_map(|range| rest_of(range, &zone, now)).max()?;
    Some(Some(longest))
}

/// How much of a span is left, if it is in it now.
fn rest_of(range: &TimeRange, zone: &TimeZone, now: Timestamp) -> Option<Duration> {
    let (start, end) = (clock(&range.start)?, clock(&range.end)?);
    let today = now.to_zoned(zone.clone()).date();
    let tomorrow = today.tomorrow().ok()?;
    let at = |day: jiff::civil::Date, time: Time| {
        day.to_datetime(time).to_zoned(zone.clone()).ok().map(|zoned| zoned.timestamp())
    };
    let (starts, ends) = (at(today, start)?, at(today, end)?);
    let past_midnight = starts > ends;
    if past_midnight && now < ends {
        // It began yesterday.
        return Duration::try_from(ends.duration_since(now)).ok();
    }
    let ends = if past_midnight { at(tomorrow, end)? } else { ends };
    if starts < now && now < ends {
        Duration::try_from(ends.duration_since(now)).ok()
    } else {
        None
    }
}

fn clock(text: &str) -> Option<Time> {
    let [hour, minute, second] = time_of_day(text)?.map(|number| number as i8);
    Time::new(hour, minute, second, 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SystemTime {
        text.parse::<Timestamp>().unwrap().into()
    }

    fn range(start: &str, end: &str) -> TimeRange {
        TimeRange { start: start.to_owned(), end: end.to_owned() }
    }

    #[test]
    fn spans_of_the_day() {
        let day = [range("08:00:00", "17:30:00")];
        let noon = at("2026-03-01T12:00:00Z");
        let rest = Duration::from_secs(5 * 3600 + 1800);
        assert_eq!(stay(&day, "UTC", noon), Some(Some(rest)));
        assert_eq!(stay(&day, "UTC", at("2026-03-01T18:00:00Z")), None);
        assert_eq!(stay(&day, "UTC", at("2026-03-01T07:59:59Z")), None);
        assert_eq!(stay(&[], "", noon), Some(None));
        assert_eq!(stay(&day, "Nowhere/Such", noon), None);
        assert_eq!(stay(&[range("x", "17:00:00")], "UTC", noon), None);
    }

    #[test]
    fn the_longest_span_counts_and_midnight_is_no_border() {
        let spans = [range("11:00:00", "12:30:00"), range("10:00:00", "13:00:00")];
        let hour = Duration::from_secs(3600);
        assert_eq!(stay(&spans, "UTC", at("2026-03-01T12:00:00Z")), Some(Some(hour)));
        let night = [range("22:00:00", "06:00:00")];
        assert_eq!(stay(&night, "UTC", at("2026-03-01T05:00:00Z")), Some(Some(hour)));
        assert_eq!(stay(&night, "UTC", at("2026-03-01T23:00:00Z")), Some(Some(7 * hour)));
        assert_eq!(stay(&night, "UTC", at("2026-03-01T21:00:00Z")), None);
    }
}
