//! Moments as JetStream writes them: RFC 3339 with nanoseconds, UTC.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Nanoseconds since the Unix epoch; [`Time::ZERO`] is Go's zero time (`0001-01-01T00:00:00Z`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Time(pub i64);

impl Default for Time {
    fn default() -> Self {
        Self::ZERO
    }
}

/// A string that is not an RFC 3339 time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not an RFC 3339 time")]
pub struct TimeError {
    /// The text given.
    pub text: String,
}

impl Time {
    /// Go's zero time: "no time".
    pub const ZERO: Self = Self(i64::MIN);

    /// True if this is Go's zero time.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == i64::MIN
    }

    /// Parses RFC 3339; Go's zero time and anything before 1677 becomes [`Time::ZERO`].
    ///
    /// # Errors
    /// [`TimeError`] with the text.
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        let at = OffsetDateTime::parse(text, &Rfc3339)
            .map_err(|_| TimeError { text: text.to_owned() })?;
        Ok(i64::try_from(at.unix_timestamp_nanos()).map_or(Self::ZERO, Self))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0001-01-01T00:00:00Z");
        }
        let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0))
            .unwrap_or(OffsetDateTime::UNIX_EPOCH);
        f.write_str(&at.format(&Rfc3339).unwrap_or_default())
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}
