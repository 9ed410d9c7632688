//! `compression` of leaf nodes: S2, in its modes.

use std::time::Duration;

use nuthatch_protocol::config::{Map, Node, Value};

use super::read::ConfigReader;
use super::tables::leaf::COMPRESSION;

/// Round trips up to which nothing is compressed, and then fast, and then better.
const DEFAULT_THRESHOLDS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(100)];
/// Of each level one.
const THRESHOLDS_MAX: usize = 4;

/// How connections to other servers are compressed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LeafCompression {
    /// They are not.
    #[default]
    Off,
    /// If the other side asks for it.
    Accept,
    /// By the round trip: the levels' upper bounds.
    Auto(Vec<Duration>),
    /// In frames, without compression. Not in the configuration: what `Auto` may lead to.
    Uncompressed,
    /// `s2_fast`
    Fast,
    /// `s2_better`
    Better,
    /// `s2_best`
    Best,
}

impl LeafCompression {
    /// As servers tell each other.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Accept => "accept",
            Self::Auto(_) => "s2_auto",
            Self::Uncompressed => "s2_uncompressed",
            Self::Fast => "s2_fast",
            Self::Better => "s2_better",
            Self::Best => "s2_best",
        }
    }

    /// What a connection to a server that says `other` is compressed with; `None`: it is not.
    ///
    /// # Errors
    /// That is no word for it.
    pub fn agree(&self, other: &str) -> Result<Option<Self>, String> {
        if *self == Self::Off {
            return Ok(None);
        }
        let theirs = match other {
            "" | "not supported" | "off" => return Ok(None),
            "accept" => return Ok((*self != Self::Accept).then(|| self.clone())),
            // Whoever only accepts does not measure.
            "s2_auto" | "s2_fast" => Self::Fast,
            "s2_uncompressed" => Self::Uncompressed,
            "s2_better" => Self::Better,
            "s2_best" => Self::Best,
            other => return Err(format!("unsupported compression mode {other:?}")),
        };
        Ok(Some(if *self == Self::Accept { theirs } else { self.clone() }))
    }

    /// True if what goes to a server with this round trip is compressed; `None`: it is not known yet.
    #[must_use]
    pub fn compresses(&self, round_trip: Option<Duration>) -> bool {
        match self {
            Self::Off | Self::Accept | Self::Uncompressed => false,
            Self::Fast | Self::Better | Self::Best => true,
            Self::Auto(thresholds) => {
                let first = thresholds.first().copied().unwrap_or_default();
                round_trip.is_some_and(|time| time > first) && thresholds.len() > 1
            }
        }
    }
}

/// A word, a boolean, or `{ mode, rtt_thresholds }`.
pub(super) fn compression(r: &mut ConfigReader, key: &str, value: &Value) -> LeafCompression {
    match &value.node {
        Node::Bool(false) => LeafCompression::Off,
        Node::Bool(true) => LeafCompression::Auto(DEFAULT_THRESHOLDS.to_vec()),
        Node::Map(map) => of_map(r, value, map),
        _ => mode(r, key, value).unwrap_or_default(),
    }
}

fn of_map(r: &mut ConfigReader, value: &Value, map: &Map) -> LeafCompression {
    let (mut found, mut thresholds) = (None, None);
    r.walk(&COMPRESSION, map, |r, key, entry| match key {
        "mode" => found = mode(r, key, &entry.value),
        "rtt_thresholds" => thresholds = self::thresholds(r, key, &entry.value),
        _ => debug_assert!(false, "key '{key}' is in the table and nobody reads it"),
    });
    match (found, thresholds) {
        (None, _) => {
            r.invalid(&value.pos, "compression", "needs its 'mode'");
            LeafCompression::Off
        }
        (Some(LeafCompression::Auto(_)), Some(thresholds)) => LeafCompression::Auto(thresholds),
        (Some(found), None) => found,
        (Some(found), Some(_)) => {
            r.warn(&value.pos, "'rtt_thresholds' has no effect: it belongs to mode s2_auto");
            found
        }
    }
}

fn mode(r: &mut ConfigReader, key: &str, value: &Value) -> Option<LeafCompression> {
    const WANTED: &str = "'off', 'accept', 's2_auto', 's2_fast', 's2_better' or 's2_best'";
    let words = &[
        "off",
        "disabled",
        "disable",
        "false",
        "not supported",
        "not_supported",
        "accept",
        "on",
        "enabled",
        "true",
        "auto",
        "s2_auto",
        "fast",
        "s2_fast",
        "better",
        "s2_better",
        "best",
        "s2_best",
    ];
    Some(match words[r.choice(key, value, words, WANTED)?] {
        "accept" => LeafCompression::Accept,
        "on" | "enabled" | "true" | "auto" | "s2_auto" => {
            LeafCompression::Auto(DEFAULT_THRESHOLDS.to_vec())
        }
        "fast" | "s2_fast" => LeafCompression::Fast,
        "better" | "s2_better" => LeafCompression::Better,
        "best" | "s2_best" => LeafCompression::Best,
        _ => LeafCompression::Off,
    })
}

/// Rising bounds; 0 leaves a level out.
fn thresholds(r: &mut ConfigReader, key: &str, value: &Value) -> Option<Vec<Duration>> {
    let items = r.array(key, value, "an array of durations: [ \"10ms\", \"50ms\" ]")?;
    let mut found: Vec<Duration> = Vec::new();
    for item in items {
        let time =
            u64::try_from(r.duration_ns(key, item)?).map_or(Duration::ZERO, Duration::from_nanos);
        if !time.is_zero() && found.iter().any(|before| *before > time) {
            r.invalid(&value.pos, key, "must hold rising durations");
            return None;
        }
        found.push(time);
    }
    while found.last().is_some_and(Duration::is_zero) {
        found.pop();
    }
    if found.is_empty() || found.len() > THRESHOLDS_MAX {
        r.invalid(&value.pos, key, format!("must hold 1 to {THRESHOLDS_MAX} durations above 0"));
        return None;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_servers_agree_on() {
        use LeafCompression::{Accept, Auto, Best, Fast, Off};
        let auto = || Auto(DEFAULT_THRESHOLDS.to_vec());
        for (own, other, agreed) in [
            (Off, "s2_best", None),
            (Accept, "accept", None),
            (Accept, "s2_auto", Some(Fast)),
            (Accept, "s2_best", Some(Best)),
            (Accept, "", None),
            (auto(), "off", None),
            (auto(), "not supported", None),
            (auto(), "accept", Some(auto())),
            (Fast, "s2_best", Some(Fast)),
        ] {
            assert_eq!(own.agree(other), Ok(agreed), "{own:?} and {other}");
        }
        assert!(Fast.agree("gzip").is_err());
    }

    #[test]
    fn a_long_way_is_compressed() {
        let ms = |n| Some(Duration::from_millis(n));
        let auto = LeafCompression::Auto(DEFAULT_THRESHOLDS.to_vec());
        let seen = [None, ms(10), ms(11), ms(1000)].map(|time| auto.compresses(time));
        assert_eq!(seen, [false, false, true, true]);
        let skips =
            LeafCompression::Auto(vec![Duration::ZERO, Duration::ZERO, Duration::from_millis(20)]);
        assert!(skips.compresses(ms(1)) && LeafCompression::Fast.compresses(None));
    }
}
