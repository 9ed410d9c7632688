//! Meaning of patterns at the edges of calendars and clocks.

use super::*;

fn at(text: &str) -> i64 {
    Time::parse(text).unwrap_or_else(|error| panic!("{error}")).0
}

fn schedule(pattern: &str, zone: Option<&str>) -> Schedule {
    Schedule::parse(pattern.as_bytes(), zone.map(str::as_bytes))
        .unwrap_or_else(|error| panic!("{pattern}: {error}"))
}

/// The moments after `from`, as they are written.
fn moments(pattern: &str, zone: Option<&str>, from: &str, count: usize) -> Vec<String> {
    let schedule = schedule(pattern, zone);
    let mut from_ns = at(from);
    let mut moments = Vec::new();
    while moments.len() < count {
        from_ns = schedule.next(from_ns, from_ns).expect("there is a next one");
        moments.push(schedule.show(from_ns));
    }
    moments
}

#[test]
fn patterns_of_cron_match_local_times() {
    let from = "2026-02-27T23:59:58.5Z";
    let cases: &[(&str, &[&str])] = &[
        ("* * * * * *", &["2026-02-27T23:59:59Z", "2026-02-28T00:00:00Z"]),
        ("*/20 * * * * ?", &["2026-02-28T00:00:00Z", "2026-02-28T00:00:20Z"]),
        ("50/5 59 23 * * *", &["2026-02-28T23:59:50Z", "2026-02-28T23:59:55Z"]),
        ("0 30 9 * * MON-fri", &["2026-03-02T09:30:00Z", "2026-03-03T09:30:00Z"]),
        ("0 0 0 31 * *", &["2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"]),
        ("0 0 12 29 feb *", &["2028-02-29T12:00:00Z"]),
        ("0 0 0 13 * 5", &["2026-03-06T00:00:00Z", "2026-03-13T00:00:00Z"]),
        ("0 0 0 */10 * 5", &["2026-03-01T00:00:00Z", "2026-03-06T00:00:00Z"]),
        ("1,,3 0 0 1 1,6 *", &["2026-06-01T00:00:01Z", "2026-06-01T00:00:03Z"]),
        ("@hourly", &["2026-02-28T00:00:00Z", "2026-02-28T01:00:00Z"]),
        ("@daily", &["2026-02-28T00:00:00Z", "2026-03-01T00:00:00Z"]),
        ("@midnight", &["2026-02-28T00:00:00Z"]),
        ("@weekly", &["2026-03-01T00:00:00Z", "2026-03-08T00:00:00Z"]),
        ("@monthly", &["2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"]),
        ("@yearly", &["2027-01-01T00:00:00Z"]),
        ("@annually", &["2027-01-01T00:00:00Z"]),
    ];
    for (pattern, expected) in cases {
        assert_eq!(moments(pattern, None, from, expected.len()), *expected, "{pattern}");
    }
}

#[test]
fn clocks_that_are_changed_skip_and_repeat() {
    // 29 March 2026: 02:00 becomes 03:00 in Berlin.
    let half_past_two = moments("0 30 2 * * *", Some("Europe/Berlin"), "2026-03-28T12:00:00Z", 2);
    assert_eq!(half_past_two, ["2026-03-30T02:30:00+02:00", "2026-03-31T02:30:00+02:00"]);
    // 25 October: 03:00 becomes 02:00.
    let twice = moments("0 30 2 * * *", Some("Europe/Berlin"), "2026-10-24T12:00:00Z", 3);
    let expected =
        ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"];
    assert_eq!(twice, expected);
    // Half an hour only on Lord Howe, at 02:00 on 4 October.
    let howe = moments("0 15,45 2 * * *", Some("Australia/Lord_Howe"), "2026-10-03T12:00:00Z", 2);
    assert_eq!(howe, ["2026-10-04T02:45:00+11:00", "2026-10-05T02:15:00+11:00"]);
    // A day that begins at one o'clock: Beirut, 29 March.
    let beirut = moments("0 0 * 29 3 *", Some("Asia/Beirut"), "2026-03-28T12:00:00Z", 1);
    assert_eq!(beirut, ["2026-03-29T01:00:00+03:00"]);
    assert_eq!(
        moments("@daily", Some("Europe/London"), "2026-01-05T12:00:00Z", 1),
        ["2026-01-06T00:00:00Z"],
        "no offset is written as Z"
    );
}

#[test]
fn intervals_are_kept_and_missed_ones_are_left_out() {
    let every = schedule("@every 1m30s", None);
    let from = at("2026-01-01T00:00:00.4Z");
    assert_eq!(every.next(from, from), Some(at("2026-01-01T00:01:30Z")));
    let due = at("2026-01-01T00:01:30Z");
    assert_eq!(every.next(due, due + 5), Some(at("2026-01-01T00:03:00Z")), "no drift");
    let late = at("2026-01-01T10:00:00.6Z");
    assert_eq!(every.next(due, late), Some(at("2026-01-01T10:01:31Z")));
    let daily = schedule("@daily", None);
    assert_eq!(daily.next(due, late), Some(at("2026-01-02T00:00:00Z")));
    let once = schedule("@at 2026-01-01T01:00:00+01:00", None);
    assert_eq!(
        once.next(late, late),
        Some(at("2026-01-01T00:00:00Z")),
        "late is better than never"
    );
    assert!(!once.repeats() && every.repeats() && daily.repeats());
}

#[test]
fn what_is_no_schedule_is_refused() {
    let wrong = [
        "",
        "@",
        "@at",
        "@at soon",
        "@at 2026-01-01",
        "@every",
        "@every 1",
        "@every 999ms",
        "@every -5s",
        "@every 1d",
        "@often",
        "* * * * *",
        "* * * * * * *",
        "60 * * * * *",
        "* * 24 * * *",
        "* * * 0 * *",
        "* * * 32 * *",
        "* * * * 13 *",
        "* * * * * 7",
        "5-1 * * * * *",
        "1-2-3 * * * * *",
        "*/0 * * * * *",
        "1/2/3 * * * * *",
        "-1 * * * * *",
        ", * * * * *",
        "* * * * mon *",
        "x * * * * *",
        "0x1 * * * * *",
    ];
    for pattern in wrong {
        let refused = Schedule::parse(pattern.as_bytes(), None).map(drop);
        assert_eq!(refused, Err(ScheduleError::Pattern), "{pattern:?}");
    }
    let never = schedule("0 0 0 30 2 *", None);
    assert_eq!(never.next(0, 0), None, "there is no 30 February");
}

#[test]
fn zones_go_with_cron_only_and_are_spelled_exactly() {
    let parse = |pattern: &str, zone: &str| {
        Schedule::parse(pattern.as_bytes(), Some(zone.as_bytes())).map(drop)
    };
    assert_eq!(parse("@daily", "America/New_York"), Ok(()));
    assert_eq!(parse("@daily", "UTC"), Ok(()));
    for zone in ["", "europe/berlin", "Mars/Olympus", "Local", "Etc/Unknown", "../etc/passwd"] {
        assert_eq!(parse("@daily", zone), Err(ScheduleError::Zone), "{zone:?}");
        assert_eq!(check_zone(Some(zone.as_bytes())), Err(ScheduleError::Zone), "{zone:?}");
    }
    for pattern in ["@every 5s", "@at 2026-01-01T00:00:00Z"] {
        assert_eq!(parse(pattern, "UTC"), Err(ScheduleError::Pattern), "{pattern}");
        assert_eq!(parse(pattern, "Nowhere"), Err(ScheduleError::Zone), "the zone comes first");
    }
}
