//! Patterns of streams of which every subject has the same route: to the stream, and to nobody else.
//!
//! A publisher may use more subjects than anybody wants to remember, as in a key-value bucket. That
//! a subject is selected by such a pattern is seen in the subject itself. As with routes, it
//! is forgotten when interest or streams change there.

use memchr::memchr;
use nuthatch_protocol::subject::{ANY_TAIL, ANY_TOKEN, has_empty_token, overlap, tokens};

/// Patterns remembered per account and thread; then the oldest gives way.
const REGIONS_MAX: usize = 16;

/// The patterns that were met.
#[derive(Default)]
pub(super) struct Regions {
    list: Vec<Region>,
    /// The one found last: most publishers stay in one.
    last: usize,
    oldest: usize,
}

/// Subjects of one pattern: literal tokens, then a wildcard.
struct Region {
    /// The literal tokens, with the separator behind them.
    prefix: Box<[u8]>,
    /// True if the wildcard is `>`.
    is_tail: bool,
    /// The place of the route of all subjects; `None`: not all have the same.
    place: Option<usize>,
}

/// The pattern that selects a subject, as far as known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// Its subjects go different ways.
    Mixed,
    /// They all go the way whose route has this place.
    Uniform(usize),
}

/// The literal tokens of a pattern with the separator behind them, and whether it ends in `>`;
/// `None` if it is not literal tokens and then one wildcard.
fn split(pattern: &[u8]) -> Option<(&[u8], bool)> {
    let (prefix, last) = pattern.split_at(pattern.len().checked_sub(1)?);
    let is_tail = last == ANY_TAIL;
    let is_literal = |token: &[u8]| !token.is_empty() && token != ANY_TOKEN && token != ANY_TAIL;
    let is_head = tokens(prefix.strip_suffix(b".")?).all(is_literal);
    (is_head && (is_tail || last == ANY_TOKEN)).then_some((prefix, is_tail))
}

/// True if a pattern is literal tokens and then one wildcard.
pub fn is_region(pattern: &[u8]) -> bool {
    split(pattern).is_some()
}

impl Region {
    #[inline]
    fn holds(&self, subject: &[u8]) -> bool {
        let Some(rest) = subject.strip_prefix(&*self.prefix) else { return false };
        if self.is_tail {
            !has_empty_token(rest)
        } else {
            !rest.is_empty() && memchr(b'.', rest).is_none()
        }
    }
}

impl Region {
    fn pattern(&self) -> Vec<u8> {
        [&*self.prefix, if self.is_tail { ANY_TAIL } else { ANY_TOKEN }].concat()
    }
}

impl Regions {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Looks a subject up. Patterns of streams do not overlap.
    #[inline]
    pub(super) fn find(&mut self, subject: &[u8]) -> Found {
        let holds = |region: &Region| region.holds(subject);
        if !self.list.get(self.last).is_some_and(holds) {
            match self.list.iter().position(holds) {
                Some(at) => self.last = at,
                None => return Found::Nothing,
            }
        }
        self.list[self.last].place.map_or(Found::Mixed, Found::Uniform)
    }

    /// Forgets patterns that select subjects which `changed` selects too; appends the places of their
    /// routes to `free`.
    pub(super) fn forget(&mut self, changed: &[u8], free: &mut Vec<usize>) {
        let concerned = |region: &mut Region| overlap(changed, &region.pattern());
        free.extend(self.list.extract_if(.., concerned).filter_map(|region| region.place));
        (self.last, self.oldest) = (0, 0);
    }

    /// Remembers a pattern, whose subjects all take one way if `is_uniform`. Returns the place that
    /// its route gets: that of the pattern which gives way, or else `next`; `None` if it needs none,
    /// and what gave way leaves its place to `free`.
    pub(super) fn add(
        &mut self,
        pattern: &[u8],
        is_uniform: bool,
        next: usize,
        free: &mut Vec<usize>,
    ) -> Option<usize> {
        let (prefix, is_tail) = split(pattern)?;
        let fresh = Region { prefix: prefix.into(), is_tail, place: is_uniform.then_some(next) };
        if self.list.len() < REGIONS_MAX {
            self.list.push(fresh);
            return is_uniform.then_some(next);
        }
        let region = &mut self.list[self.oldest];
        self.oldest = (self.oldest + 1) % REGIONS_MAX;
        let left = std::mem::replace(region, fresh).place;
        if is_uniform {
            region.place = left.or(Some(next));
        } else {
            free.extend(left);
        }
        region.place
    }
}
