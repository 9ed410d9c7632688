//! Bodies that clients send: pull requests, nak delays, Go durations.

use nuthatch_protocol::js::Nanos;
use serde::Deserialize;

/// A pull request as asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PullRequest {
    /// Messages wanted.
    pub batch: i64,
    /// Answer after this long; 0: wait for ever.
    pub expires: Nanos,
    /// Do not wait once there is nothing (more) to deliver.
    pub no_wait: bool,
    /// Largest sum of subject, ack reply, headers and payload; 0: any.
    pub max_bytes: i64,
    /// Heartbeat while waiting; 0: none.
    pub idle_heartbeat: Nanos,
    /// It came as JSON, so it can say something about priority groups.
    pub is_json: bool,
    /// Its options for priority groups, if any.
    pub priority: Option<Box<Priority>>,
}

/// Options of a request for priority groups (ADR-42).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Priority {
    /// The group.
    pub group: String,
    /// Serve it only if so many messages are pending; 0: whatever there is.
    pub min_pending: i64,
    /// Serve it only if so many are unacknowledged.
    pub min_ack_pending: i64,
    /// Its pin.
    pub id: String,
    /// 0 comes first.
    pub priority: i64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Json {
    #[serde(deserialize_with = "null_default")]
    batch: i64,
    #[serde(deserialize_with = "null_default")]
    expires: i64,
    #[serde(deserialize_with = "null_default")]
    no_wait: bool,
    #[serde(deserialize_with = "null_default")]
    max_bytes: i64,
    #[serde(deserialize_with = "null_default")]
    idle_heartbeat: i64,
    #[serde(deserialize_with = "null_default")]
    group: String,
    #[serde(deserialize_with = "null_default")]
    min_pending: i64,
    #[serde(deserialize_with = "null_default")]
    min_ack_pending: i64,
    #[serde(deserialize_with = "null_default")]
    id: String,
    #[serde(deserialize_with = "null_default")]
    priority: i64,
}

/// `null` counts as absent, as in Go; async-nats sends it for what is not set.
fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

const ONE: PullRequest = PullRequest {
    batch: 1,
    expires: 0,
    no_wait: false,
    max_bytes: 0,
    idle_heartbeat: 0,
    is_json: false,
    priority: None,
};

/// Reads the body of a pull request: empty, a number, or JSON.
///
/// # Errors
/// Why it is refused, to be shown after `Bad Request - `.
pub(super) fn parse_pull(body: &[u8]) -> Result<PullRequest, String> {
    let body = body.trim_ascii();
    if body.first() != Some(&b'{') {
        let number = std::str::from_utf8(body).ok().and_then(|text| text.parse::<i64>().ok());
        return Ok(PullRequest { batch: number.unwrap_or(1).max(1), ..ONE });
    }
    let json: Json = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if json.idle_heartbeat > 0 && json.idle_heartbeat.saturating_mul(2) > json.expires {
        return Err("heartbeat value too large".to_owned());
    }
    let asked = Priority {
        group: json.group,
        min_pending: json.min_pending,
        min_ack_pending: json.min_ack_pending,
        id: json.id,
        priority: json.priority,
    };
    Ok(PullRequest {
        batch: json.batch.max(1),
        // A time in the past: over as soon as it is looked at.
        expires: if json.expires < 0 { 1 } else { json.expires },
        no_wait: json.no_wait,
        max_bytes: json.max_bytes,
        idle_heartbeat: json.idle_heartbeat.max(0),
        is_json: true,
        priority: (asked != Priority::default()).then(|| Box::new(asked)),
    })
}

/// The delay of a `-NAK` body: nothing, `{"delay": ns}` or a Go duration. Garbage counts as none.
pub(super) fn parse_nak_delay(argument: &[u8]) -> Option<Nanos> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Options {
        delay: i64,
    }
    let argument = argument.trim_ascii();
    match argument.first()? {
        b'{' => serde_json::from_slice::<Options>(argument).ok().map(|options| options.delay),
        _ => parse_go_duration(std::str::from_utf8(argument).ok()?),
    }
}

/// Go's `time.ParseDuration`: `300ms`, `-1.5h`, `2h45m`.
fn parse_go_duration(text: &str) -> Option<Nanos> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0_f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        total += value * unit_ns(&rest[..letters])?;
        rest = &rest[letters..];
    }
    // 2^63 ns is what fits; a float above it cannot be represented anyway.
    (total < 9.2e18).then_some(if negative { -(total as i64) } else { total as i64 })
}

fn unit_ns(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    })
}

/// Go's `Duration.String`: `30s`, `1m0s`, `1.5ms`.
pub(super) fn go_duration(nanos: Nanos) -> String {
    let (sign, n) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let fraction = |value: u64, unit: u64, name: &str| {
        let text =
            format!("{}.{:0width$}", value / unit, value % unit, width = unit.ilog10() as usize);
        format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    let text = match n {
        0 => "0s".to_owned(),
        1..1_000 => format!("{n}ns"),
        1_000..1_000_000 => fraction(n, 1_000, "µs"),
        1_000_000..1_000_000_000 => fraction(n, 1_000_000, "ms"),
        _ => {
            let minutes = n / 60_000_000_000;
            let seconds = fraction(n % 60_000_000_000, 1_000_000_000, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_bodies() {
        assert_eq!(parse_pull(b""), Ok(ONE));
        assert_eq!(parse_pull(b" 25 "), Ok(PullRequest { batch: 25, ..ONE }));
        assert_eq!(parse_pull(b"many"), Ok(ONE));
        let request = parse_pull(br#"{"batch":5,"expires":3000,"no_wait":true,"max_bytes":9}"#);
        assert_eq!(
            request,
            Ok(PullRequest {
                batch: 5,
                expires: 3_000,
                no_wait: true,
                max_bytes: 9,
                is_json: true,
                ..ONE
            })
        );
        let request = parse_pull(br#"{"expires":100,"idle_heartbeat":51}"#);
        assert_eq!(request, Err("heartbeat value too large".to_owned()));
        assert!(parse_pull(b"{nonsense").is_err());
    }

    #[test]
    fn nak_delays() {
        let cases: [(&[u8], Option<i64>); 8] = [
            (b"", None),
            (b" {\"delay\": 1500}", Some(1_500)),
            (b" 200ms", Some(200_000_000)),
            (b"1h1.5s", Some(3_601_500_000_000)),
            (b"0", Some(0)),
            (b"{\"delay\":\"x\"}", None),
            (b"12", None),
            (b"-1s", Some(-1_000_000_000)),
        ];
        for (text, delay) in cases {
            assert_eq!(parse_nak_delay(text), delay, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn durations_as_go_prints_them() {
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (1_000_000_000, "1s"),
            (60_000_000_000, "1m0s"),
            (4 * 60_000_000_000 + 5_001_000_000, "4m5.001s"),
            (3_600_000_000_000, "1h0m0s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(go_duration(nanos), text);
        }
    }
}
