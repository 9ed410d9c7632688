//! Numbers and durations as people write them on a command line.

use std::time::Duration;

/// A count of at least one.
///
/// # Errors
/// In words for the user.
pub fn parse_count(text: &str) -> Result<usize, String> {
    match parse_number(text)? {
        0 => Err("must be at least 1".into()),
        count => usize::try_from(count).map_err(|err| err.to_string()),
    }
}

/// A number with an optional unit: `k`, `M`, `G` (1000) or `KiB`, `MiB`, `GiB` (1024).
///
/// # Errors
/// In words for the user.
pub fn parse_number(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let number: u64 = digits
        .replace('_', "")
        .parse()
        .map_err(|_| format!("{text:?} is no number such as 100000, 100k or 64KiB"))?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "ki" | "kib" => 1 << 10,
        "mi" | "mib" => 1 << 20,
        "gi" | "gib" => 1 << 30,
        "ti" | "tib" => 1 << 40,
        other => return Err(format!("unknown unit {other:?}; use k, M, G, KiB, MiB or GiB")),
    };
    number.checked_mul(factor).ok_or_else(|| format!("{text} is too large"))
}

/// A duration: a number with `ns`, `us`, `ms`, `s`, `m`, `h` or `d`, several in a row allowed
/// (`1h30m`), fractions too (`1.5s`); a bare number means seconds.
///
/// # Errors
/// In words for the user.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no duration such as 500ms, 5s, 1h30m or 7d");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad());
    }
    let mut seconds = 0f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..end].parse().map_err(|_| bad())?;
        let after = &rest[end..];
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let factor = match &after[..unit_end] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "" | "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(bad()),
        };
        seconds += number * factor;
        rest = &after[unit_end..];
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units() {
        for (text, number) in [("7", 7), ("10k", 10_000), ("64KiB", 65_536), ("1_000", 1000)] {
            assert_eq!(parse_number(text), Ok(number));
        }
        for text in ["", "k", "1x", "-1", "99999999999G"] {
            assert!(parse_number(text).is_err(), "{text}");
        }
        assert!(parse_count("0").is_err());
    }

    #[test]
    fn durations() {
        for (text, ms) in [("5s", 5000), ("500ms", 500), ("1h30m", 5_400_000), ("2", 2000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)));
        }
        for text in ["", "s", "5x", "-1s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
