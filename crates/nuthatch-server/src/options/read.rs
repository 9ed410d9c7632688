//! Takes values of the wanted types out of a configuration tree and collects what is wrong.

use std::time::Duration;

use nuthatch_protocol::config::{Entry, Map, Node, Position, Value, parse_duration_ns, parse_size};

use super::error::{ConfigProblem, ProblemKind};
use super::keys::{Block, Status};
use super::nearest::nearest;

/// Values below this many seconds fit every computation with times.
const MAX_SECONDS: i64 = 10_000_000_000;

/// Collects problems and warnings while a configuration is read.
#[derive(Debug, Default)]
pub(super) struct ConfigReader {
    pub problems: Vec<ConfigProblem>,
    pub warnings: Vec<String>,
}

impl ConfigReader {
    pub fn problem(&mut self, pos: &Position, kind: ProblemKind) {
        self.problems.push(ConfigProblem { pos: pos.clone(), kind });
    }

    pub fn invalid(&mut self, pos: &Position, key: &str, what: impl Into<String>) {
        self.problem(pos, ProblemKind::Invalid { key: key.to_owned(), what: what.into() });
    }

    pub fn warn(&mut self, pos: &Position, text: impl AsRef<str>) {
        self.warnings.push(format!("{pos}: {}", text.as_ref()));
    }

    fn wrong_type(&mut self, key: &str, value: &Value, wanted: &'static str) {
        let advice = match (&value.written, wanted) {
            (Some(written), "a string") => Some(format!(": put it in quotes, \"{written}\"")),
            _ => None,
        };
        let found = value.node.type_name();
        let kind = ProblemKind::WrongType { key: key.to_owned(), wanted, found, advice };
        self.problem(&value.pos, kind);
    }

    /// Goes through a map by its table: honoured keys go to `set` with their first name, the
    /// others become warnings and problems.
    pub fn walk<'m>(
        &mut self,
        block: &'static Block,
        map: &'m Map,
        mut set: impl FnMut(&mut Self, &'static str, &'m Entry),
    ) {
        let mut seen: Vec<&'static str> = Vec::new();
        for entry in map.entries() {
            let Some(key) = block.find(&entry.key) else {
                self.unknown(block, entry);
                continue;
            };
            let name = key.name();
            if seen.contains(&name) {
                let key = &entry.key;
                self.warn(&entry.key_pos, format!("'{key}' is given twice: this one counts"));
            }
            seen.push(name);
            match key.status {
                Status::Honoured | Status::Depends(_) => set(self, name, entry),
                Status::Said(_) | Status::Refused(_) if is_off(&entry.value) => {}
                Status::Said(reason) => {
                    let key = &entry.key;
                    self.warn(&entry.key_pos, format!("'{key}' has no effect: {reason}"));
                }
                Status::Refused(reason) => self.refuse(block.place, entry, reason),
            }
        }
    }

    pub fn refuse(&mut self, place: &'static str, entry: &Entry, reason: &'static str) {
        let key = entry.key.clone();
        self.problem(&entry.key_pos, ProblemKind::Refused { key, place, reason });
    }

    /// A key that no table knows is fine if it served as a variable.
    fn unknown(&mut self, block: &'static Block, entry: &Entry) {
        if !entry.used_as_variable {
            let nearest = block.nearest(&entry.key);
            let (key, place) = (entry.key.clone(), block.place);
            self.problem(&entry.key_pos, ProblemKind::UnknownKey { key, place, nearest });
        }
    }

    pub fn text<'v>(&mut self, key: &str, value: &'v Value) -> Option<&'v str> {
        match &value.node {
            Node::Str(s) => Some(s),
            _ => {
                self.wrong_type(key, value, "a string");
                None
            }
        }
    }

    /// A string that is not empty.
    pub fn word<'v>(&mut self, key: &str, value: &'v Value) -> Option<&'v str> {
        let text = self.text(key, value)?;
        if text.is_empty() {
            self.invalid(&value.pos, key, "cannot be empty");
            return None;
        }
        Some(text)
    }

    /// A string or an array of strings.
    pub fn texts(&mut self, key: &str, value: &Value) -> Option<Vec<String>> {
        match &value.node {
            Node::Str(s) => Some(vec![s.clone()]),
            Node::Array(items) => {
                let texts = items.iter().map(|item| self.text(key, item).map(str::to_owned));
                // Every wrong element is reported, not just the first.
                texts.collect::<Vec<_>>().into_iter().collect()
            }
            _ => {
                self.wrong_type(key, value, "a string or an array of strings");
                None
            }
        }
    }

    pub fn boolean(&mut self, key: &str, value: &Value) -> Option<bool> {
        match value.node {
            Node::Bool(b) => Some(b),
            _ => {
                self.wrong_type(key, value, "true or false");
                None
            }
        }
    }

    pub fn map<'v>(&mut self, key: &str, value: &'v Value) -> Option<&'v Map> {
        match &value.node {
            Node::Map(map) => Some(map),
            _ => {
                self.wrong_type(key, value, "a map: { … }");
                None
            }
        }
    }

    pub fn array<'v>(
        &mut self,
        key: &str,
        value: &'v Value,
        wanted: &'static str,
    ) -> Option<&'v [Value]> {
        match &value.node {
            Node::Array(items) => Some(items),
            _ => {
                self.wrong_type(key, value, wanted);
                None
            }
        }
    }

    /// An integer within bounds.
    pub fn int(&mut self, key: &str, value: &Value, min: i64, max: i64) -> Option<i64> {
        match value.node {
            Node::Int(n) => self.in_range(key, &value.pos, n, min, max),
            _ => {
                self.wrong_type(key, value, "an integer");
                None
            }
        }
    }

    fn in_range(
        &mut self,
        key: &str,
        pos: &Position,
        found: i64,
        min: i64,
        max: i64,
    ) -> Option<i64> {
        if (min..=max).contains(&found) {
            return Some(found);
        }
        self.problem(pos, ProblemKind::Range { key: key.to_owned(), min, max, found });
        None
    }

    /// A number of bytes: an integer or a string such as `"10G"`.
    pub fn size(&mut self, key: &str, value: &Value, min: i64, max: i64) -> Option<i64> {
        match &value.node {
            Node::Int(n) => self.in_range(key, &value.pos, *n, min, max),
            Node::Str(s) => match parse_size(s) {
                Ok(n) => self.in_range(key, &value.pos, n, min, max),
                Err(source) => {
                    self.problem(&value.pos, ProblemKind::Size { key: key.to_owned(), source });
                    None
                }
            },
            _ => {
                self.wrong_type(key, value, "a size such as 64MB");
                None
            }
        }
    }

    /// A count or size of which negative values, and 0 if `zero_is_none`, mean no limit.
    pub fn limit(&mut self, key: &str, value: &Value, zero_is_none: bool) -> Option<Option<u64>> {
        let n = self.size(key, value, i64::MIN, i64::MAX)?;
        let none = n < 0 || (n == 0 && zero_is_none);
        Some((!none).then_some(n.unsigned_abs()))
    }

    /// Like [`ConfigReader::limit`], of a count.
    pub fn count(&mut self, key: &str, value: &Value, zero_is_none: bool) -> Option<Option<u32>> {
        let n = self.int(key, value, i64::MIN, i64::from(u32::MAX))?;
        let none = n < 0 || (n == 0 && zero_is_none);
        Some((!none).then_some(u32::try_from(n).unwrap_or(u32::MAX)))
    }

    /// A duration in nanoseconds, perhaps negative: a string with units, or whole seconds, which
    /// nats-server accepts for old files.
    pub fn duration_ns(&mut self, key: &str, value: &Value) -> Option<i64> {
        match &value.node {
            Node::Str(s) => match parse_duration_ns(s) {
                Ok(ns) => Some(ns),
                Err(source) => {
                    self.problem(&value.pos, ProblemKind::Duration { key: key.to_owned(), source });
                    None
                }
            },
            Node::Int(n) => {
                let written = value.written.as_deref().unwrap_or_default();
                if written.ends_with(|c: char| c.is_ascii_alphabetic()) {
                    let (key, written) = (key.to_owned(), written.to_owned());
                    let kind = ProblemKind::UnquotedDuration { key, written, value: *n };
                    self.problem(&value.pos, kind);
                    return None;
                }
                let seconds = self.in_range(key, &value.pos, *n, -1, MAX_SECONDS / 2)?;
                let said = format!("'{key}' is taken as {n} seconds: write \"{n}s\"");
                self.warn(&value.pos, said);
                Some(seconds * 1_000_000_000)
            }
            _ => {
                self.wrong_type(key, value, "a duration such as \"10s\"");
                None
            }
        }
    }

    /// A duration that is not negative.
    pub fn duration(&mut self, key: &str, value: &Value) -> Option<Duration> {
        let ns = self.duration_ns(key, value)?;
        match u64::try_from(ns) {
            Ok(ns) => Some(Duration::from_nanos(ns)),
            Err(_) => {
                self.invalid(&value.pos, key, "cannot be negative");
                None
            }
        }
    }

    /// Seconds, whole or with a fraction, or a duration string: the form of `timeout` keys.
    pub fn timeout(&mut self, key: &str, value: &Value) -> Option<Duration> {
        const LONG: Duration = Duration::from_secs(60);
        let timeout = match &value.node {
            Node::Int(n) => {
                let n = self.in_range(key, &value.pos, *n, 0, MAX_SECONDS)?;
                Duration::from_secs(n.unsigned_abs())
            }
            Node::Float(f) => match Duration::try_from_secs_f64(*f) {
                Ok(timeout) if timeout.as_secs() <= MAX_SECONDS.unsigned_abs() => timeout,
                Ok(_) => {
                    self.invalid(&value.pos, key, format!("must be at most {MAX_SECONDS} seconds"));
                    return None;
                }
                Err(_) => {
                    self.invalid(&value.pos, key, "must be a number of seconds, not negative");
                    return None;
                }
            },
            Node::Str(_) => self.duration(key, value)?,
            _ => {
                self.wrong_type(key, value, "seconds, or a duration such as \"2s\"");
                return None;
            }
        };
        if timeout > LONG {
            self.warn(
                &value.pos,
                format!(
                    "'{key}' of {timeout:?} is long: keep it under 60 seconds, and put durations \
                     in quotes (\"1m\")"
                ),
            );
        }
        Some(timeout)
    }

    /// One of a few words, in any case; the answer is the word's place in the list.
    pub fn choice(
        &mut self,
        key: &str,
        value: &Value,
        words: &'static [&'static str],
        wanted: &'static str,
    ) -> Option<usize> {
        let text = self.text(key, value)?;
        let hit = words.iter().position(|w| w.eq_ignore_ascii_case(text));
        if hit.is_none() {
            let (key, found) = (key.to_owned(), text.to_owned());
            let nearest = nearest(text, words.iter().copied());
            self.problem(&value.pos, ProblemKind::Word { key, wanted, found, nearest });
        }
        hit
    }
}

/// True if a value switches off what it configures, so that not supporting it does no harm.
fn is_off(value: &Value) -> bool {
    match &value.node {
        Node::Bool(on) => !on,
        Node::Int(n) => *n == 0,
        Node::Float(_) | Node::DateTime(_) => false,
        Node::Str(s) => s.is_empty(),
        Node::Array(items) => items.is_empty(),
        Node::Map(map) => map.is_empty(),
    }
}
