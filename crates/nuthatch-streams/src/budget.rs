//! Bounds on what an engine keeps in memory for all its streams together.

use crate::stream::Accounted;

/// Subjects of all streams by default: about 1 GiB of names and counts.
pub const SUBJECTS_MAX_DEFAULT: usize = 10_000_000;
/// Message ids of all windows by default: about 700 MiB.
pub const MSG_IDS_MAX_DEFAULT: usize = 10_000_000;

/// What is used and what may be used. New subjects and ids above it are refused (10023).
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    used: Accounted,
    max: Accounted,
}

impl Budget {
    /// An empty budget with these bounds.
    #[must_use]
    pub const fn new(subjects_max: usize, msg_ids_max: usize) -> Self {
        Self {
            used: Accounted { subjects: 0, msg_ids: 0 },
            max: Accounted { subjects: subjects_max, msg_ids: msg_ids_max },
        }
    }

    /// A stream's use went from one to the other.
    pub const fn settle(&mut self, (before, now): (Accounted, Accounted)) {
        self.used.subjects = self.used.subjects.saturating_sub(before.subjects) + now.subjects;
        self.used.msg_ids = self.used.msg_ids.saturating_sub(before.msg_ids) + now.msg_ids;
    }

    /// Whether a new subject may come, given `unaccounted` ones that were not settled yet.
    #[must_use]
    pub const fn has_room_for_subject(&self, unaccounted: usize) -> bool {
        self.used.subjects + unaccounted < self.max.subjects
    }

    /// Whether another message id may be remembered.
    #[must_use]
    pub const fn has_room_for_id(&self) -> bool {
        self.used.msg_ids < self.max.msg_ids
    }
}
