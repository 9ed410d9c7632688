//! When scheduled messages are due (ADR-51): `@at TIME`, `@every DURATION`, cron patterns of six
//! fields (seconds first) and the predefined `@hourly` and the like, in a time zone.
//!
//! Pure: the time is an argument and the zones are compiled in, so a replay on another machine comes
//! to the same moments. Texts that are accepted are those of nats-server 2.15 (`scheduler.go`,
//! `cron.go`); only its zone `Local` is not, as it would mean something else on every server.

mod cron;

use crate::duration::parse_go;
use crate::js::Time;
use cron::Cron;
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

const SECOND_NS: i64 = 1_000_000_000;

/// When a scheduled message is due.
#[derive(Clone, Debug)]
pub struct Schedule {
    when: When,
    zone: TimeZone,
}

#[derive(Clone, Debug)]
enum When {
    /// Once, ns since the epoch.
    At(i64),
    /// Every so many ns.
    Every(i64),
    Cron(Cron),
}

/// Why something is no schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The pattern is none, or never matches.
    #[error(
        "not a schedule: '@at <RFC 3339 time>', '@every <duration of at least 1s>', \
         '@hourly' and the like, or six fields of cron; a time zone goes with the latter two only"
    )]
    Pattern,
    /// There is no such time zone.
    #[error("not a time zone of the IANA database")]
    Zone,
}

/// The zone of a `Nats-Schedule-Time-Zone` header; UTC without one.
///
/// # Errors
/// [`ScheduleError::Zone`].
pub fn check_zone(zone: Option<&[u8]>) -> Result<(), ScheduleError> {
    zone.map_or(Ok(()), |zone| find_zone(zone).map(drop))
}

fn find_zone(name: &[u8]) -> Result<TimeZone, ScheduleError> {
    let name = std::str::from_utf8(name).map_err(|_| ScheduleError::Zone)?;
    let zone = TimeZoneDatabase::bundled().get(name).map_err(|_| ScheduleError::Zone)?;
    // Names are files to the incumbent, so the case of letters matters.
    if zone.iana_name() == Some(name) { Ok(zone) } else { Err(ScheduleError::Zone) }
}

impl Schedule {
    /// Reads a pattern and the zone it is meant in.
    ///
    /// # Errors
    /// [`ScheduleError`].
    pub fn parse(pattern: &[u8], zone: Option<&[u8]>) -> Result<Self, ScheduleError> {
        let has_zone = zone.is_some();
        let zone = zone.map_or(Ok(TimeZone::UTC), find_zone)?;
        let pattern = std::str::from_utf8(pattern).map_err(|_| ScheduleError::Pattern)?;
        let when = match pattern.split_once(' ') {
            Some(("@at" | "@every", _)) if has_zone => return Err(ScheduleError::Pattern),
            Some(("@at", time)) => {
                let at = Time::parse(time).map_err(|_| ScheduleError::Pattern)?;
                if at.is_zero() {
                    return Err(ScheduleError::Pattern);
                }
                When::At(at.0)
            }
            Some(("@every", every)) => {
                let every = parse_go(every).map_err(|_| ScheduleError::Pattern)?;
                if every < SECOND_NS {
                    return Err(ScheduleError::Pattern);
                }
                When::Every(every)
            }
            _ => When::Cron(Cron::parse(predefined(pattern)).ok_or(ScheduleError::Pattern)?),
        };
        Ok(Self { when, zone })
    }

    /// True if it is due more than once.
    #[must_use]
    pub const fn repeats(&self) -> bool {
        !matches!(self.when, When::At(_))
    }

    /// When it is due after it was due (or made) at `from_ns`, ns since the epoch. What was missed
    /// before `now_ns` is left out, but for a time that comes only once. `None`: never, or not in
    /// the next five years.
    #[must_use]
    pub fn next(&self, from_ns: i64, now_ns: i64) -> Option<i64> {
        match &self.when {
            When::At(at) => Some(*at),
            When::Every(every) => {
                let next = round_to_second(from_ns).checked_add(*every)?;
                if next >= now_ns {
                    Some(next)
                } else {
                    round_to_second(now_ns).checked_add(*every)
                }
            }
            When::Cron(cron) => {
                let next = cron.next(&self.zone, from_ns)?;
                if next >= now_ns {
                    Some(next)
                } else {
                    cron.next(&self.zone, round_to_second(now_ns))
                }
            }
        }
    }

    /// A moment as the incumbent writes it: RFC 3339 in the schedule's zone.
    #[must_use]
    pub fn show(&self, at_ns: i64) -> String {
        let Ok(at) = Timestamp::from_nanosecond(i128::from(at_ns)) else {
            return Time(at_ns).to_string();
        };
        let offset = self.zone.to_offset(at);
        if offset.seconds() == 0 {
            return Time(at_ns).to_string();
        }
        at.display_with_offset(offset).to_string()
    }
}

/// The cron pattern that a name stands for; anything else is one already.
fn predefined(pattern: &str) -> &str {
    match pattern {
        "@yearly" | "@annually" => "0 0 0 1 1 *",
        "@monthly" => "0 0 0 1 * *",
        "@weekly" => "0 0 0 * * 0",
        "@daily" | "@midnight" => "0 0 0 * * *",
        "@hourly" => "0 0 * * * *",
        other => other,
    }
}

const fn round_to_second(at_ns: i64) -> i64 {
    at_ns.saturating_add(SECOND_NS / 2).div_euclid(SECOND_NS) * SECOND_NS
}

#[cfg(test)]
mod tests;
