//! An hour of counters.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bounds::{HISTORY_ACCOUNTS_MAX, HISTORY_POINTS, HISTORY_STEP};
use crate::host::{AccountSample, Sample};

/// Points from which a trend is told, at least and at most: 10 and 30 minutes.
const TREND_POINTS_MIN: usize = 60;
const TREND_POINTS_MAX: usize = 180;
/// A medium that is full later than that is no news.
const TREND_HORIZON: Duration = Duration::from_secs(12 * 60 * 60);

/// When, and what [`numbers`] tells.
type Point = (Instant, [u64; 6]);
/// Those of an account.
type Series = VecDeque<Point>;

/// Samples of the last hour.
#[derive(Default)]
pub struct History {
    accounts: BTreeMap<String, Series>,
    space: BTreeMap<String, VecDeque<(Instant, u64)>>,
}

fn push<T>(points: &mut VecDeque<T>, point: T) {
    if points.len() >= HISTORY_POINTS {
        points.pop_front();
    }
    points.push_back(point);
}

fn numbers(of: &AccountSample) -> [u64; 6] {
    [of.in_messages, of.out_messages, of.in_bytes, of.out_bytes, of.connections, of.stored_bytes]
}

impl History {
    /// Adds a sample. Of more accounts than are kept the last by name are left out.
    pub fn add(&mut self, now: Instant, sample: &Sample) {
        self.accounts.retain(|name, _| sample.accounts.iter().any(|a| a.name == *name));
        for account in &sample.accounts {
            if !self.accounts.contains_key(&account.name) {
                if self.accounts.len() >= HISTORY_ACCOUNTS_MAX {
                    continue;
                }
                self.accounts.insert(account.name.clone(), Series::default());
            }
            let points = self.accounts.get_mut(&account.name);
            points.into_iter().for_each(|points| push(points, (now, numbers(account))));
        }
        self.space.retain(|name, _| sample.space.iter().any(|space| space.log == *name));
        for space in &sample.space {
            push(self.space.entry(space.log.clone()).or_default(), (now, space.free_bytes));
        }
    }

    /// The hour of an account: rates of what is counted, and what is gauged, the oldest first.
    pub fn of(&self, account: &str, now: Instant) -> Value {
        let points = self.accounts.get(account);
        let pairs = points.map(|points| points.iter().zip(points.iter().skip(1)));
        let pairs: Vec<_> = pairs.into_iter().flatten().collect();
        let rate = |which: usize| -> Vec<f64> {
            let of = |((from, before), (to, after)): &(&Point, &Point)| {
                let seconds = to.duration_since(*from).as_secs_f64().max(0.001);
                let rate = after[which].saturating_sub(before[which]) as f64 / seconds;
                (rate * 100.0).round() / 100.0
            };
            pairs.iter().map(of).collect()
        };
        let gauge =
            |which: usize| -> Vec<u64> { pairs.iter().map(|(_, (_, n))| n[which]).collect() };
        let ages = pairs.iter().map(|(_, (at, _))| now.duration_since(*at).as_millis() as u64);
        json!({
            "step_ms": HISTORY_STEP.as_millis() as u64,
            "points_max": HISTORY_POINTS,
            "ages_ms": ages.collect::<Vec<u64>>(),
            "in_messages": rate(0),
            "out_messages": rate(1),
            "in_bytes": rate(2),
            "out_bytes": rate(3),
            "connections": gauge(4),
            "stored_bytes": gauge(5),
        })
    }

    /// Media that will be full soon.
    pub fn forecasts(&self) -> Vec<String> {
        let soon = self.space.iter().filter_map(|(log, points)| {
            let hours = full_in(points)?.as_secs_f64() / 3600.0;
            let when = match hours {
                hours if hours < 1.0 => format!("{} min", (hours * 60.0).ceil()),
                hours => format!("{} h", hours.round()),
            };
            Some(format!(
                "The disk of the log {log} is full in about {when} if it goes on as in the last half hour."
            ))
        });
        soon.collect()
    }
}

/// When nothing will be free any more, by the line through the last points; `None`: not soon.
fn full_in(points: &VecDeque<(Instant, u64)>) -> Option<Duration> {
    let skipped = points.len().saturating_sub(TREND_POINTS_MAX);
    let last = points.iter().skip(skipped);
    let (begun, _) = last.clone().next()?;
    let count = last.len();
    if count < TREND_POINTS_MIN {
        return None;
    }
    let pairs: Vec<(f64, f64)> =
        last.map(|(at, free)| (at.duration_since(*begun).as_secs_f64(), *free as f64)).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count as f64;
    let (time, free) = (mean(|p| p.0), mean(|p| p.1));
    let spread: f64 = pairs.iter().map(|p| (p.0 - time).powi(2)).sum();
    let common: f64 = pairs.iter().map(|p| (p.0 - time) * (p.1 - free)).sum();
    let a_second = common / spread;
    let left = points.back()?.1 as f64 / -a_second;
    let is_soon = a_second < 0.0 && left < TREND_HORIZON.as_secs_f64();
    is_soon.then(|| Duration::from_secs_f64(left.max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::FreeSpace;

    fn sample(account: &str, count: u64, free: u64) -> Sample {
        let account = AccountSample {
            name: account.to_owned(),
            in_messages: count,
            connections: 3,
            ..AccountSample::default()
        };
        let space = FreeSpace { log: "default".to_owned(), free_bytes: free, total_bytes: 1 << 40 };
        Sample { accounts: vec![account], space: vec![space] }
    }

    fn fed(free: impl Fn(u64) -> u64, count: u64) -> History {
        let begun = Instant::now();
        let mut history = History::default();
        for i in 0..count {
            let now = begun + HISTORY_STEP * u32::try_from(i).expect("small");
            history.add(now, &sample("A", i * 50, free(i)));
        }
        history
    }

    #[test]
    fn rates_are_those_between_two_samples_and_an_hour_is_kept() {
        let history = fed(|_| 1 << 30, 1000);
        let now = Instant::now() + HISTORY_STEP * 1000;
        let told = history.of("A", now);
        let rates = told["in_messages"].as_array().expect("rates");
        assert_eq!(rates.len(), HISTORY_POINTS - 1);
        assert!(rates.iter().all(|rate| rate.as_f64() == Some(5.0)), "{rates:?}");
        assert_eq!(told["connections"][0], 3);
        assert_eq!(history.of("B", now)["in_messages"], json!([]), "nothing of others");
        let mut history = history;
        history.add(now, &sample("B", 0, 1));
        assert_eq!(history.of("A", now)["in_messages"], json!([]), "an account that is gone");
    }

    #[test]
    fn accounts_are_kept_up_to_a_bound() {
        let mut history = History::default();
        let names = (0..HISTORY_ACCOUNTS_MAX + 10).map(|i| sample(&format!("A{i:04}"), 0, 1));
        let accounts = names.flat_map(|sample| sample.accounts).collect();
        history.add(Instant::now(), &Sample { accounts, space: Vec::new() });
        assert_eq!(history.accounts.len(), HISTORY_ACCOUNTS_MAX);
    }

    #[test]
    fn a_disk_that_fills_is_told_of_in_time() {
        const GIB: u64 = 1 << 30;
        // 100 GiB free, of which 0.1 GiB go every 10 s.
        let told = fed(|i| 100 * GIB - i * GIB / 10, 61).forecasts();
        assert!(
            told.len() == 1 && told[0].contains("log default is full in about 3 h"),
            "{told:?}"
        );
        let told = fed(|i| 10 * GIB - i * GIB / 10, 61).forecasts();
        assert!(told.len() == 1 && told[0].contains("in about 7 min"), "{told:?}");
        assert!(fed(|i| 100 * GIB - i * GIB / 10, 59).forecasts().is_empty(), "too early to say");
        assert!(fed(|_| GIB, 60).forecasts().is_empty(), "nothing happens");
        assert!(fed(|i| GIB + i, 60).forecasts().is_empty(), "it becomes more");
        assert!(fed(|i| 100 * GIB - i * 1024, 60).forecasts().is_empty(), "in years");
    }
}
