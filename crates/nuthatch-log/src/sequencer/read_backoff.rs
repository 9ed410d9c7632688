//! Places that could not be read: reported once, left alone for a while, then tried again.
//!
//! Nothing is remembered for good. A disk that fails now may work later, and even what looks like
//! damage may have happened on the way from the medium to memory.

use crate::cache::{LoadFailure, LoadFault, Resume};
use crate::segment::SegmentId;
use crate::types::Timestamp;
use rustc_hash::FxHashMap;

/// How long a place is left alone after the first failure, ns. Each further one doubles it.
const FIRST_PAUSE_NANOS: i64 = 100_000_000;
/// The longest that a place is left alone, ns.
const LONGEST_PAUSE_NANOS: i64 = 10_000_000_000;
/// Places remembered. With more, some are tried again earlier.
const PLACES_MAX: usize = 4096;

/// A segment and the offset of a frame in it.
pub type BackoffKey = (SegmentId, u32);

/// Why a position cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadFault {
    /// The disk fails to read it.
    Failing,
    /// The bytes read are not those written.
    Damaged,
}

struct Backoff {
    read_fault: ReadFault,
    resume: Option<Resume>,
    pause_nanos: i64,
    again_at: Timestamp,
}

/// Positions that failed to read, each with its back-off.
#[derive(Default)]
pub struct ReadBackoffs(FxHashMap<BackoffKey, Backoff>);

impl ReadBackoffs {
    /// The fault of a position that is not read before its back-off ends, and where the next good
    /// frame is; `None`: it may be read.
    pub fn at(&self, place: BackoffKey, now: Timestamp) -> Option<(ReadFault, Option<Resume>)> {
        let entry = self.0.get(&place).filter(|entry| now < entry.again_at)?;
        Some((entry.read_fault, entry.resume))
    }

    /// True if a place is known not to be readable.
    pub fn knows(&self, place: BackoffKey) -> bool {
        !self.0.is_empty() && self.0.contains_key(&place)
    }

    /// A place could not be read. Returns for how long it is left alone if that is news: it had
    /// not failed before, or in another way.
    pub fn note(
        &mut self,
        place: BackoffKey,
        failure: &LoadFailure,
        now: Timestamp,
    ) -> Option<ReadFault> {
        let resume = failure.resume;
        let read_fault = match failure.fault {
            LoadFault::Io(_) => ReadFault::Failing,
            LoadFault::Damaged(_) => ReadFault::Damaged,
        };
        let before = self.0.get(&place).map(|entry| (entry.read_fault, entry.pause_nanos));
        if before.is_none() && self.0.len() >= PLACES_MAX {
            self.make_room(now);
        }
        let pause_nanos =
            before.map_or(FIRST_PAUSE_NANOS, |(_, pause)| (pause * 2).min(LONGEST_PAUSE_NANOS));
        let again_at = now.plus_nanos(pause_nanos);
        self.0.insert(place, Backoff { read_fault, resume, pause_nanos, again_at });
        (before.map(|(read_fault, _)| read_fault) != Some(read_fault)).then_some(read_fault)
    }

    fn make_room(&mut self, now: Timestamp) {
        self.0.retain(|_, entry| now < entry.again_at);
        if self.0.len() >= PLACES_MAX
            && let Some(any) = self.0.keys().next().copied()
        {
            self.0.remove(&any);
        }
    }

    /// A place was read. True if that is news.
    pub fn clear(&mut self, place: BackoffKey) -> bool {
        !self.0.is_empty() && self.0.remove(&place).is_some()
    }

    /// Forgets what is known of a segment that is gone.
    pub fn forget(&mut self, segment: SegmentId) {
        self.0.retain(|(at, _), _| *at != segment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing() -> LoadFailure {
        LoadFailure { fault: LoadFault::Io(std::io::Error::other("x")), resume: None }
    }

    #[test]
    fn a_place_is_left_alone_longer_each_time_and_told_of_once() {
        let mut read_backoffs = ReadBackoffs::default();
        let place = (SegmentId(1), 4096);
        let fault = failing;
        let mut now = Timestamp(0);
        assert_eq!(read_backoffs.note(place, &fault(), now), Some(ReadFault::Failing));
        assert_eq!(read_backoffs.at(place, now), Some((ReadFault::Failing, None)));
        for n in 1..20 {
            now = now.plus_nanos(LONGEST_PAUSE_NANOS.min(FIRST_PAUSE_NANOS << (n - 1)));
            assert_eq!(read_backoffs.at(place, now), None);
            assert_eq!(read_backoffs.note(place, &fault(), now), None);
        }
        let fault = LoadFault::Damaged(crate::frame::FrameFault::Body);
        let damage = LoadFailure { fault, resume: None };
        assert_eq!(read_backoffs.note(place, &damage, now), Some(ReadFault::Damaged));
        assert!(read_backoffs.clear(place) && !read_backoffs.clear(place));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut read_backoffs = ReadBackoffs::default();
        for offset in 0..3 * PLACES_MAX as u32 {
            read_backoffs.note((SegmentId(1), offset), &failing(), Timestamp(0));
        }
        assert!(read_backoffs.0.len() <= PLACES_MAX);
        read_backoffs.forget(SegmentId(1));
        assert!(read_backoffs.0.is_empty());
    }
}
