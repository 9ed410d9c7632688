//! Looking messages up: by sequence, subject, time, for readers and for checks.

use super::Contents;
use crate::index::MessageIndex;
use nuthatch_log::{Seq, Timestamp};
use nuthatch_protocol::js::Time;
use rustc_hash::FxHashMap;

/// A last message further back than this is waited for, if a newer one is not committed yet.
const LOOKS_MAX: usize = 64 * 1024;

/// Subjects that one request for last messages looks at before it begins with another pattern.
pub const SUBJECT_VISITS_MAX: usize = 256 * 1024;

/// Result of looking a message up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// To this message.
    Found(Seq),
    /// Nowhere.
    Missing,
    /// It depends on a write that has not committed.
    InFlight,
}

/// The subjects that a pattern matches. Good until the stream changes.
#[derive(Debug)]
pub struct Selection {
    /// Sorted ids; `None`: every subject.
    ids: Option<Vec<u32>>,
    /// No message of theirs comes before this sequence.
    first: u64,
}

impl Selection {
    /// The messages that a pattern (empty: any) selects now, for [`Selection::next`].
    #[must_use]
    pub fn new(contents: &Contents, pattern: &[u8]) -> Self {
        if matches!(pattern, b"" | b">") {
            return Self { ids: None, first: 0 };
        }
        let ids = contents.ids_matching(pattern);
        let first = ids.iter().map(|&id| contents.subjects.first_bound(id)).min();
        Self { ids: Some(ids), first: first.unwrap_or(u64::MAX) }
    }

    /// The first message at or after `from` that is selected.
    #[must_use]
    pub fn next(&self, contents: &Contents, from: Seq) -> Option<Seq> {
        let mut at = contents.next_live(Seq(from.0.max(self.first)));
        let Some(ids) = &self.ids else { return at };
        while let Some(seq) = at {
            if contents.get(seq).is_some_and(|meta| ids.binary_search(&meta.subject).is_ok()) {
                break;
            }
            at = contents.next_live(seq.next());
        }
        at
    }
}

/// `STREAM.MSG.GET` and the JSON form of `DIRECT.GET`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GetMessage {
    /// This sequence, or the smallest one for `next_by_subj`.
    pub seq: u64,
    /// The last message on this subject.
    pub last_by_subj: String,
    /// The next message, from `seq`, that matches this pattern.
    pub next_by_subj: String,
    /// The first message stored at or after this time.
    pub start_time: Option<Time>,
    /// Leave the headers out.
    pub no_hdr: bool,
}

impl Contents {
    /// The last assigned message on a subject (a pattern is allowed); 0 if there is none.
    pub(in crate::stream) fn last_of_subject(&mut self, subject: &[u8]) -> u64 {
        let mut ids = Vec::new();
        self.subjects.for_each_match(subject, &mut |id| ids.push(id));
        let (subjects, messages) = (&mut self.subjects, &self.messages);
        ids.into_iter().filter_map(|id| subjects.last(id, messages)).max().unwrap_or(0)
    }

    /// The message that a request means. Its options have been checked.
    pub fn look_up(&mut self, request: &GetMessage) -> Lookup {
        let from = match request.start_time {
            Some(at) => self.seq_at(Timestamp(at.0)),
            None => Seq(request.seq),
        };
        if !request.next_by_subj.is_empty() {
            let next = Selection::new(self, request.next_by_subj.as_bytes()).next(self, from);
            next.map_or(Lookup::Missing, Lookup::Found)
        } else if from.0 > 0 {
            self.get(from).map_or(Lookup::Missing, |_| Lookup::Found(from))
        } else {
            self.last_matching(request.last_by_subj.as_bytes())
        }
    }

    /// Ids of the subjects that match, in order.
    fn ids_matching(&self, pattern: &[u8]) -> Vec<u32> {
        let mut ids = Vec::new();
        self.subjects.for_each_match(pattern, &mut |id| ids.push(id));
        ids.sort_unstable();
        ids
    }

    /// Messages at or after `from` that match (an empty pattern: any).
    #[must_use]
    pub fn pending_from(&self, pattern: &[u8], from: Seq) -> u64 {
        if matches!(pattern, b"" | b">") {
            return self.live_after(Seq(from.0.saturating_sub(1)));
        }
        if from <= self.first() {
            return self.counts(pattern).iter().map(|(_, count)| count).sum();
        }
        let ids = self.ids_matching(pattern);
        let mut pending = 0;
        self.for_each_committed_after(Seq(from.0 - 1), &mut |id| {
            pending += u64::from(ids.binary_search(&id).is_ok());
        });
        pending
    }

    /// The last message at or before `up_to` of each subject that matches any of the patterns, as
    /// far as it is not before `from`, in order; `None` if there are more than `most`, or if patterns
    /// after the first would have to be compared with more than [`SUBJECT_VISITS_MAX`] subjects.
    #[must_use]
    pub fn last_of_each(
        &self,
        patterns: &[String],
        from: Seq,
        up_to: Seq,
        most: usize,
    ) -> Option<Vec<u64>> {
        let (mut lasts, mut visits) = (FxHashMap::default(), 0);
        for pattern in patterns {
            if visits > SUBJECT_VISITS_MAX {
                return None;
            }
            self.for_each_subject(pattern.as_bytes(), &mut |id, _, _, last| {
                visits += 1;
                lasts.insert(id, if last <= up_to { last.0 } else { 0 });
            });
        }
        self.find_lasts(&mut lasts, up_to);
        let mut list: Vec<u64> =
            lasts.into_values().filter(|&seq| seq > 0 && seq >= from.0).collect();
        list.sort_unstable();
        (list.len() <= most).then_some(list)
    }

    /// The last message on a subject or pattern. While a write to it is in flight the answer waits:
    /// to find the one before could take a walk through the whole stream.
    pub fn last_matching(&mut self, pattern: &[u8]) -> Lookup {
        let mut ids = Vec::new();
        self.subjects.for_each_match(pattern, &mut |id| ids.push(id));
        let mut newest = 0;
        for id in ids {
            let last = self.subjects.last(id, &self.messages).unwrap_or(u64::MAX);
            newest = newest.max(last);
        }
        match newest {
            0 => Lookup::Missing,
            seq if seq <= self.commits.committed().last_seq => Lookup::Found(Seq(seq)),
            _ if self.uncommitted().is_some() => Lookup::InFlight,
            _ => Lookup::Missing,
        }
    }

    /// True if the last message of a subject is a schedule, or there is none.
    pub(in crate::stream) fn ends_with_schedule(&mut self, literal: &[u8]) -> bool {
        let Some(id) = self.subjects.find(literal) else { return true };
        let last = self.subjects.last(id, &self.messages);
        last.is_none_or(|seq| self.schedules.is_schedule(id, seq))
    }

    /// The last message of a subject that readers see.
    pub fn last_seen(&mut self, literal: &[u8]) -> Lookup {
        let Some(id) = self.subjects.find(literal) else { return Lookup::Missing };
        let committed = self.commits.committed().last_seq;
        match self.subjects.last(id, &self.messages) {
            None => return Lookup::Missing,
            Some(last) if last <= committed => return Lookup::Found(Seq(last)),
            Some(_) => {}
        }
        let first = self.subjects.first_bound(id);
        let mut at = self.messages.prev_live(committed);
        for _ in 0..LOOKS_MAX {
            let Some(seq) = at.filter(|&seq| seq >= first) else { break };
            if self.messages.get_kept(seq).is_some_and(|entry| entry.subject == id) {
                return Lookup::Found(Seq(seq));
            }
            at = seq.checked_sub(1).and_then(|before| self.messages.prev_live(before));
        }
        Lookup::InFlight
    }
}
