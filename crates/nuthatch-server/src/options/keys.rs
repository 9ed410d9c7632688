//! What is known about every configuration key: its names, whether it is honoured, its meaning.
//!
//! One table per block drives reading, the suggestions for unknown keys, the warnings, the
//! refusals and the tables of `docs/configuration.md`.

use super::nearest::nearest;

/// Treatment of a key (or flag).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// It does what nats-server does with it.
    Honoured,
    /// It is accepted, has no effect, and a line at start-up says so with this reason.
    Said(&'static str),
    /// It is an error, with this reason, unless its value switches it off.
    Refused(&'static str),
    /// Some values are honoured, others said or refused, as this text explains.
    Depends(&'static str),
}

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    /// Its names, the one shown in messages first.
    pub names: &'static [&'static str],
    pub status: Status,
    /// Its default as the documentation shows it.
    pub default: &'static str,
    /// Its meaning as the documentation shows it.
    pub meaning: &'static str,
}

/// The keys of one kind of map.
#[derive(Debug)]
pub(super) struct Block {
    /// Context of this map, as the rest of "unknown field "x" …".
    pub place: &'static str,
    pub keys: &'static [Key],
}

impl Block {
    /// The key with this name, in any case.
    pub fn find(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.names.iter().any(|n| n.eq_ignore_ascii_case(name)))
    }

    /// The known name that looks most like this one.
    pub fn nearest(&self, name: &str) -> Option<&'static str> {
        nearest(name, self.keys.iter().flat_map(|key| key.names.iter().copied()))
    }
}

impl Key {
    /// The name by which code and messages know the key.
    pub fn name(&self) -> &'static str {
        self.names[0]
    }
}

/// A key that is honoured.
pub(super) const fn yes(
    names: &'static [&'static str],
    default: &'static str,
    meaning: &'static str,
) -> Key {
    Key { names, status: Status::Honoured, default, meaning }
}

/// A key that is accepted, with a warning.
pub(super) const fn said(
    names: &'static [&'static str],
    meaning: &'static str,
    reason: &'static str,
) -> Key {
    Key { names, status: Status::Said(reason), default: "", meaning }
}

/// A key that is honoured for some values only.
pub(super) const fn depends(
    names: &'static [&'static str],
    default: &'static str,
    meaning: &'static str,
    how: &'static str,
) -> Key {
    Key { names, status: Status::Depends(how), default, meaning }
}

/// A key that is refused.
pub(super) const fn no(
    names: &'static [&'static str],
    meaning: &'static str,
    reason: &'static str,
) -> Key {
    Key { names, status: Status::Refused(reason), default: "", meaning }
}
