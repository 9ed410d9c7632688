//! Counts, firsts and lasts of subjects against the messages themselves.

use super::*;
use crate::stream::messages::Entry;
use nuthatch_log::Timestamp;
use proptest::prelude::*;

const NAMES: [&[u8]; 3] = [b"a", b"b.c", b"b.d"];

fn check(subjects: &mut Subjects, messages: &Messages) {
    for name in NAMES {
        let Some(id) = subjects.find(name) else {
            messages.for_each(|_, entry| assert_ne!(subjects.name(entry.subject), name));
            continue;
        };
        let mut kept = Vec::new();
        messages.for_each(|seq, entry| {
            if entry.subject == id && !entry.is_doomed() {
                kept.push(seq);
            }
        });
        assert_eq!(subjects.kept(id), kept.len() as u64);
        assert_eq!(subjects.last(id, messages), kept.last().copied());
        assert_eq!(subjects.oldest(id, messages), kept.first().copied());
        assert!(kept.first().is_none_or(|&first| subjects.first_bound(id) <= first));
    }
}

proptest! {
    #[test]
    fn subjects_agree_with_messages(
        ordered in any::<bool>(),
        steps in prop::collection::vec((0..3usize, 0..4u8, any::<usize>()), 1..120),
    ) {
        let mut messages = Messages::new(1);
        let mut subjects = Subjects::with_seed(7);
        subjects.track_order(if ordered { 5 } else { 0 }, &messages);
        for (name, action, at) in steps {
            let mut held = Vec::new();
            messages.for_each(|seq, entry| held.push((seq, entry)));
            let picked = held.get(at % held.len().max(1)).copied();
            match (action, picked) {
                (0 | 1, _) | (_, None) => {
                    let id = subjects.intern(NAMES[name]);
                    let seq = messages.push(Entry::new(id, 40, false, Timestamp(1)));
                    subjects.added(id, seq);
                }
                (2, Some((seq, _))) => {
                    if let Some(entry) = messages.doom(seq) {
                        subjects.doomed(entry.subject, seq);
                    }
                }
                (_, Some((seq, entry))) => {
                    messages.remove(seq);
                    if !entry.is_doomed() {
                        subjects.doomed(entry.subject, seq);
                    }
                    subjects.buried(entry.subject, seq);
                }
            }
            check(&mut subjects, &messages);
        }
    }
}
