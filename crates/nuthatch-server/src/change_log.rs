//! What has changed lately, so that whoever remembers answers forgets only those that may have changed.

use std::collections::VecDeque;

/// Changes that are remembered; who looks less often than that forgets everything.
pub const CHANGES_MAX: usize = 256;

/// The newest changes of something with a version, each of one scope, such as an account.
#[derive(Debug)]
pub struct ChangeLog<S> {
    /// Oldest first.
    changes: VecDeque<Change<S>>,
    /// The version of the newest change that is remembered no more.
    forgotten: u64,
}

#[derive(Debug)]
struct Change<S> {
    version: u64,
    scope: S,
    /// Which subjects it concerns; `None`: any.
    pattern: Option<Box<[u8]>>,
}

impl<S> Default for ChangeLog<S> {
    fn default() -> Self {
        Self { changes: VecDeque::new(), forgotten: 0 }
    }
}

impl<S: Copy + PartialEq> ChangeLog<S> {
    /// Notes a change that makes `version`, which is no lower than any before, of the subjects that
    /// `pattern` selects; `None`: of any subject.
    pub fn note(&mut self, version: u64, scope: S, pattern: Option<&[u8]>) {
        if self.changes.len() >= CHANGES_MAX
            && let Some(oldest) = self.changes.pop_front()
        {
            self.forgotten = oldest.version;
        }
        self.changes.push_back(Change { version, scope, pattern: pattern.map(Into::into) });
    }

    /// Appends the patterns of all changes of `scope` since `version`. `false`: any subject may have
    /// changed.
    pub fn since(&self, version: u64, scope: S, changed: &mut Vec<Box<[u8]>>) -> bool {
        if version < self.forgotten {
            return false;
        }
        let newer = self.changes.iter().rev().take_while(|change| change.version > version);
        for change in newer.filter(|change| change.scope == scope) {
            let Some(pattern) = &change.pattern else { return false };
            changed.push(pattern.clone());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(log: &ChangeLog<u8>, version: u64, scope: u8) -> Option<Vec<String>> {
        let mut changed = Vec::new();
        let text = |pattern: Box<[u8]>| String::from_utf8_lossy(&pattern).into_owned();
        log.since(version, scope, &mut changed).then(|| changed.into_iter().map(text).collect())
    }

    #[test]
    fn tells_what_is_newer_and_says_when_it_cannot() {
        let mut log = ChangeLog::default();
        assert_eq!(since(&log, 0, 1), Some(vec![]));
        for (version, scope, pattern) in [(1, 1, "a"), (1, 2, "b"), (2, 1, "c")] {
            log.note(version, scope, Some(pattern.as_bytes()));
        }
        assert_eq!(since(&log, 0, 1), Some(vec!["c".to_owned(), "a".to_owned()]));
        assert_eq!(since(&log, 1, 1), Some(vec!["c".to_owned()]));
        assert_eq!((since(&log, 1, 2), since(&log, 2, 1)), (Some(vec![]), Some(vec![])));
        log.note(3, 2, None);
        assert_eq!((since(&log, 2, 2), since(&log, 2, 1)), (None, Some(vec![])));
        for version in 4..4 + CHANGES_MAX as u64 {
            log.note(version, 1, Some(b"d"));
        }
        assert_eq!((since(&log, 2, 1), since(&log, 3, 2)), (None, Some(vec![])));
    }
}
