//! Durations and sizes that are written as strings, by the rules of Go and of nats-server.

const NS_PER_US: u64 = 1_000;
const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_MIN: u64 = 60 * NS_PER_S;
const NS_PER_H: u64 = 60 * NS_PER_MIN;

/// Digits of a fraction that can matter: an hour has fewer than 10^13 nanoseconds.
const MAX_FRACTION_DIGITS: usize = 18;

/// Why a string is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not a number where a number has to be.
    #[error("'{text}' is not a duration: write such as \"10s\", \"1h30m\" or \"250ms\"")]
    Malformed {
        /// As written.
        text: String,
    },
    /// A number without a unit.
    #[error("'{text}' lacks a unit: write such as \"{text}s\" (ns, us, ms, s, m, h)")]
    NoUnit {
        /// As written.
        text: String,
    },
    /// A unit that Go does not know.
    #[error("unknown unit '{unit}' in '{text}': use ns, us, ms, s, m or h")]
    UnknownUnit {
        /// As written.
        text: String,
        /// The unit.
        unit: String,
    },
    /// More than 292 years.
    #[error("'{text}' is too long: the longest duration is about 292 years")]
    Range {
        /// As written.
        text: String,
    },
}

/// Parses a duration as Go's `time.ParseDuration` does (`"1h30m"`, `"-1.5s"`, `"0"`), into
/// nanoseconds.
///
/// # Errors
/// What is wrong, in words for the person who wrote it.
pub fn parse_duration_ns(text: &str) -> Result<i64, DurationError> {
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(DurationError::Malformed { text: text.to_owned() });
    }
    let range = || DurationError::Range { text: text.to_owned() };
    let mut sum_ns: u64 = 0;
    while !rest.is_empty() {
        let (part_ns, after) = duration_part(text, rest)?;
        sum_ns = sum_ns.checked_add(part_ns).ok_or_else(range)?;
        rest = after;
    }
    let ns = i64::try_from(sum_ns).map_err(|_| range())?;
    Ok(if negative { -ns } else { ns })
}

/// Parses one `1.5h` off the front of `rest`.
fn duration_part<'a>(text: &str, rest: &'a str) -> Result<(u64, &'a str), DurationError> {
    let malformed = || DurationError::Malformed { text: text.to_owned() };
    let range = || DurationError::Range { text: text.to_owned() };
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, mut after) = rest.split_at(digits(rest));
    let mut fraction = "";
    if let Some(tail) = after.strip_prefix('.') {
        (fraction, after) = tail.split_at(digits(tail));
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err(malformed());
    }
    let unit_len = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
    let (unit, after) = after.split_at(unit_len);
    let unit_ns = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => NS_PER_US,
        "ms" => NS_PER_MS,
        "s" => NS_PER_S,
        "m" => NS_PER_MIN,
        "h" => NS_PER_H,
        "" => return Err(DurationError::NoUnit { text: text.to_owned() }),
        _ => {
            let unit = unit.to_owned();
            return Err(DurationError::UnknownUnit { text: text.to_owned(), unit });
        }
    };
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| range())? };
    let ns = whole.checked_mul(unit_ns).ok_or_else(range)?;
    let ns = ns.checked_add(fraction_ns(fraction, unit_ns)).ok_or_else(range)?;
    Ok((ns, after))
}

fn fraction_ns(fraction: &str, unit_ns: u64) -> u64 {
    let mut scale: u128 = 1;
    let mut value: u128 = 0;
    for b in fraction.bytes().take(MAX_FRACTION_DIGITS) {
        value = value * 10 + u128::from(b - b'0');
        scale *= 10;
    }
    // Below one unit, hence below 2^63.
    (value * u128::from(unit_ns) / scale) as u64
}

/// Why a string is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not digits and a suffix.
    #[error("'{text}' is not a size: write such as 10GB, or \"10G\" for 10 GiB")]
    Malformed {
        /// As written.
        text: String,
    },
    /// Above 2^63.
    #[error("size '{text}' is out of range")]
    Range {
        /// As written.
        text: String,
    },
}

/// Parses a size that is written as a string, as nats-server does for `max_mem` and its like:
/// digits and one of `K`, `M`, `G`, `T`, which are powers of **1024**. The suffixes of bare
/// integers (`kb`, `MiB`, …) are understood too. `""` is 0.
///
/// # Errors
/// What is wrong, in words for the person who wrote it.
pub fn parse_size(text: &str) -> Result<i64, SizeError> {
    let malformed = || SizeError::Malformed { text: text.to_owned() };
    if text.is_empty() {
        return Ok(0);
    }
    let sign_len = usize::from(text.starts_with('-'));
    let digits = text[sign_len..].bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(sign_len + digits);
    if digits == 0 {
        return Err(malformed());
    }
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kb" | "ki" | "kib" => 10,
        "m" | "mb" | "mi" | "mib" => 20,
        "g" | "gb" | "gi" | "gib" => 30,
        "t" | "tb" | "ti" | "tib" => 40,
        _ => return Err(malformed()),
    };
    let range = || SizeError::Range { text: text.to_owned() };
    let number: i64 = number.parse().map_err(|_| range())?;
    number.checked_mul(1 << shift).ok_or_else(range)
}

/// Factor of the suffix of a bare integer (`k`, `kb`, `KiB`, …; lower or upper case).
pub(super) fn suffix_factor(suffix: &str) -> Option<i64> {
    let mut chars = suffix.chars().map(|c| c.to_ascii_lowercase());
    let Some(first) = chars.next() else { return Some(1) };
    let power = 1 + "kmgtpe".find(first)? as u32;
    match chars.collect::<String>().as_str() {
        "" => Some(1000_i64.pow(power)),
        "b" | "i" | "ib" => Some(1024_i64.pow(power)),
        _ => None,
    }
}
