//! Cron patterns of six fields: second, minute, hour, day of month, month, day of week.
//!
//! A pattern is due at every second whose local time matches. So a time that the clocks skip in
//! spring is skipped, and one that they repeat in autumn comes twice.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

/// A pattern that does not match for so many years is taken for one that never does.
const YEARS_MAX: i16 = 5;
const SECOND_NS: i64 = 1_000_000_000;

const MONTHS: &[&str] =
    &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Values of one field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    /// One bit for each value.
    bits: u64,
    /// True if it says "any" (`*` or `?`, without a step).
    any: bool,
}

/// Values of a field: numbers from `first` to `last`, and names for them from `first` on.
struct Bounds {
    first: u32,
    last: u32,
    names: &'static [&'static str],
}

/// A pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cron {
    second: Field,
    minute: Field,
    hour: Field,
    day: Field,
    month: Field,
    weekday: Field,
}

impl Field {
    fn parse(text: &str, bounds: &Bounds) -> Option<Self> {
        let mut field = Self { bits: 0, any: false };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let part = bounds.range(part)?;
            field.bits |= part.bits;
            field.any |= part.any;
        }
        (field.bits != 0).then_some(field)
    }

    fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| self.bits & (1 << value) != 0)
    }
}

impl Bounds {
    const fn new(first: u32, last: u32, names: &'static [&'static str]) -> Self {
        Self { first, last, names }
    }

    /// `*`, `?`, `N`, `N-M`, each with `/STEP`; `N/STEP` goes on to the last value.
    fn range(&self, text: &str) -> Option<Field> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(step.parse().ok()?)),
            None => (text, None),
        };
        let mut ends = range.split('-');
        let low = ends.next()?;
        let any = matches!(low, "*" | "?");
        let (first, last) = if any {
            (self.first, self.last)
        } else {
            let first = self.value(low)?;
            let last = match (ends.next(), step) {
                (Some(high), _) => self.value(high)?,
                (None, Some(_)) => self.last,
                (None, None) => first,
            };
            if ends.next().is_some() {
                return None;
            }
            (first, last)
        };
        let step: u32 = step.unwrap_or(1);
        if first < self.first || last > self.last || first > last || step == 0 {
            return None;
        }
        let step_len = usize::try_from(step).ok()?;
        let bits = (first..=last).step_by(step_len).fold(0, |bits, value| bits | (1 << value));
        Some(Field { bits, any: any && step == 1 })
    }

    fn value(&self, text: &str) -> Option<u32> {
        let named = self.names.iter().position(|name| text.eq_ignore_ascii_case(name));
        match named {
            Some(at) => Some(self.first + u32::try_from(at).ok()?),
            None => text.parse().ok(),
        }
    }
}

impl Cron {
    /// Reads a pattern; `None` if it is none.
    pub(super) fn parse(pattern: &str) -> Option<Self> {
        let fields: Vec<&str> = pattern.split_whitespace().take(7).collect();
        let [second, minute, hour, day, month, weekday] = fields[..] else { return None };
        let sixty = Bounds::new(0, 59, &[]);
        Some(Self {
            second: Field::parse(second, &sixty)?,
            minute: Field::parse(minute, &sixty)?,
            hour: Field::parse(hour, &Bounds::new(0, 23, &[]))?,
            day: Field::parse(day, &Bounds::new(1, 31, &[]))?,
            month: Field::parse(month, &Bounds::new(1, 12, MONTHS))?,
            weekday: Field::parse(weekday, &Bounds::new(0, 6, DAYS))?,
        })
    }

    /// The first matching second after `from_ns`, ns since the epoch; `None` if there is none for
    /// years. Passes over months, days, hours and minutes that do not match, so at most some
    /// thousand steps.
    pub(super) fn next(&self, zone: &TimeZone, from_ns: i64) -> Option<i64> {
        let mut at_s = from_ns.div_euclid(SECOND_NS) + 1;
        let last_year = local(zone, at_s)?.year() + YEARS_MAX;
        loop {
            let time = local(zone, at_s)?;
            let date = time.date();
            if time.year() > last_year {
                return None;
            }
            let next_s = if !self.month.has(time.month()) {
                start_of(zone, date.last_of_month().tomorrow().ok()?)?
            } else if !self.matches_day(date) {
                start_of(zone, date.tomorrow().ok()?)?
            } else if !self.hour.has(time.hour()) {
                at_s + 3600 - i64::from(time.minute()) * 60 - i64::from(time.second())
            } else if !self.minute.has(time.minute()) {
                at_s + 60 - i64::from(time.second())
            } else if !self.second.has(time.second()) {
                at_s + 1
            } else {
                return at_s.checked_mul(SECOND_NS);
            };
            at_s = next_s.max(at_s + 1);
        }
    }

    /// If both kinds of days are restricted, either is enough.
    fn matches_day(&self, date: Date) -> bool {
        let day = self.day.has(date.day());
        let weekday = self.weekday.has(date.weekday().to_sunday_zero_offset());
        if self.day.any || self.weekday.any { day && weekday } else { day || weekday }
    }
}

fn local(zone: &TimeZone, at_s: i64) -> Option<DateTime> {
    Some(zone.to_datetime(Timestamp::from_second(at_s).ok()?))
}

/// The first second of a day, which is not midnight where the clocks skip that.
fn start_of(zone: &TimeZone, date: Date) -> Option<i64> {
    let midnight = date.to_datetime(Time::midnight());
    Some(zone.to_ambiguous_timestamp(midnight).compatible().ok()?.as_second())
}
