//! Bounds on what an engine keeps for all its streams together, in memory and in the log.

use crate::stream::Accounted;

/// Subjects of all streams by default: about 1 GiB of names and counts.
pub const SUBJECTS_MAX_DEFAULT: usize = 10_000_000;
/// Message ids of all windows by default: about 700 MiB.
pub const MSG_IDS_MAX_DEFAULT: usize = 10_000_000;

/// What is used and what may be used. Messages, subjects and ids above it are refused (10023).
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    used: Accounted,
    max: Accounted,
}

impl Budget {
    /// An empty budget with these bounds.
    #[must_use]
    pub const fn new(subjects_max: usize, msg_ids_max: usize, bytes_max: u64) -> Self {
        Self {
            used: Accounted { subjects: 0, msg_ids: 0, bytes: 0 },
            max: Accounted { subjects: subjects_max, msg_ids: msg_ids_max, bytes: bytes_max },
        }
    }

    /// A stream's use went from one to the other.
    pub const fn settle(&mut self, (before, now): (Accounted, Accounted)) {
        self.used.subjects = self.used.subjects.saturating_sub(before.subjects) + now.subjects;
        self.used.msg_ids = self.used.msg_ids.saturating_sub(before.msg_ids) + now.msg_ids;
        self.used.bytes = self.used.bytes.saturating_sub(before.bytes).saturating_add(now.bytes);
    }

    /// Whether a new subject may come, given `unaccounted` ones that were not settled yet.
    #[must_use]
    pub const fn has_room_for_subject(&self, unaccounted: usize) -> bool {
        self.used.subjects + unaccounted < self.max.subjects
    }

    /// Whether `more` bytes may come, given `unaccounted` ones that were not settled yet.
    #[inline]
    #[must_use]
    pub const fn has_room_for_bytes(&self, unaccounted: u64, more: u64) -> bool {
        self.used.bytes.saturating_add(unaccounted).saturating_add(more) <= self.max.bytes
    }

    /// Whether another message id may be remembered.
    #[must_use]
    pub const fn has_room_for_id(&self) -> bool {
        self.used.msg_ids < self.max.msg_ids
    }
}
