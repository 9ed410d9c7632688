//! Transforms of subjects: the subject that a publish is stored under, and the one that it is
//! published again on (`subject_transform`, `republish`).

use super::contents::Contents;
use nuthatch_log::LogAccess;
use nuthatch_protocol::headers;
use nuthatch_protocol::js::{StreamConfig, SubjectTransformConfig, Time};
use nuthatch_protocol::subject::is_valid_literal;
use nuthatch_protocol::transform::Transform;
use nuthatch_protocol::wire::write::push_u64;
use std::collections::VecDeque;

/// Compiles a transform; an empty source means every subject, an empty destination no transform.
pub(super) fn compile(config: &SubjectTransformConfig) -> Option<Transform> {
    if config.dest.is_empty() {
        return None;
    }
    let source = if config.src.is_empty() { ">" } else { &config.src };
    // The configuration has been validated.
    Transform::new(source, &config.dest).ok()
}

/// The transforms of a stream.
#[derive(Debug, Default)]
pub struct Routes {
    /// Applied to the subject of every publish that it matches.
    input: Option<Transform>,
    republish: Option<Republish>,
}

#[derive(Debug)]
struct Republish {
    transform: Transform,
    headers_only: bool,
    /// Stored and not committed: sequence, and the last one of the same subject before it.
    waiting: VecDeque<(u64, u64)>,
}

impl Routes {
    /// The routes of a validated configuration.
    pub fn new(config: &StreamConfig) -> Self {
        let republish = config.republish.as_ref().and_then(|republish| {
            let source = if republish.src.is_empty() { ">" } else { &republish.src };
            if republish.dest.is_empty() {
                return None;
            }
            // The configuration has been validated.
            let transform = Transform::new(source, &republish.dest).ok()?;
            let headers_only = republish.headers_only;
            Some(Republish { transform, headers_only, waiting: VecDeque::new() })
        });
        Self { input: config.subject_transform.as_ref().and_then(compile), republish }
    }

    /// The transform of incoming subjects.
    #[must_use]
    pub const fn input(&self) -> Option<&Transform> {
        self.input.as_ref()
    }

    /// The stream's own transform of a subject that comes in; `false` if it does not match.
    #[inline]
    pub fn map<L: LogAccess>(&self, subject: &[u8], out: &mut Vec<u8>, log: &mut L) -> bool {
        let Some(transform) = self.input() else { return false };
        let entropy = if transform.is_random() { log.entropy() as u32 } else { 0 };
        out.clear();
        transform.apply(subject, entropy, out)
    }

    /// Notes a message that is about to be stored, if it may have to be published again.
    #[inline]
    pub(super) fn stored(&mut self, seq: u64, subject: u32, contents: &mut Contents) {
        if let Some(republish) = &mut self.republish {
            let before = contents.last_of(subject).unwrap_or(0);
            republish.waiting.push_back((seq, before));
        }
    }

    /// True if any message is to be published again.
    #[inline]
    #[must_use]
    pub fn republishes(&self) -> bool {
        self.republish.is_some()
    }

    /// The next message up to `last` that has not been published again.
    pub(super) fn next_republish(&mut self, last: u64) -> Option<Again> {
        let waiting = &mut self.republish.as_mut()?.waiting;
        let &(seq, before) = waiting.front().filter(|(seq, _)| *seq <= last)?;
        waiting.pop_front();
        Some(Again { seq, before })
    }

    /// The subject and headers under which a message of a stream is published again, and whether its payload
    /// goes with it; `None` if its subject is not one of those.
    #[must_use]
    pub fn republished(
        &self,
        stream: &str,
        again: Again,
        record: &nuthatch_log::RecordRef<'_>,
    ) -> Option<(Vec<u8>, Vec<u8>, bool)> {
        let republish = self.republish.as_ref()?;
        let mut subject = Vec::new();
        let entropy = again.seq as u32;
        if !republish.transform.apply(record.subject, entropy, &mut subject)
            || !is_valid_literal(&subject)
        {
            return None;
        }
        let mut block = record.headers.to_vec();
        let number = |value: u64| {
            let mut text = Vec::new();
            push_u64(&mut text, value);
            text
        };
        let time = Time(record.timestamp.0).to_string();
        headers::append(&mut block, b"Nats-Stream", stream.as_bytes());
        headers::append(&mut block, b"Nats-Subject", record.subject);
        headers::append(&mut block, b"Nats-Sequence", &number(again.seq));
        headers::append(&mut block, b"Nats-Time-Stamp", time.as_bytes());
        headers::append(&mut block, b"Nats-Last-Sequence", &number(again.before));
        if republish.headers_only {
            let size = number(record.body.len() as u64);
            headers::append(&mut block, b"Nats-Msg-Size", &size);
        }
        Some((subject, block, !republish.headers_only))
    }
}

/// A message to publish again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Again {
    /// Its sequence.
    pub seq: u64,
    /// The last sequence on its subject before it; 0 if there was none.
    pub before: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use nuthatch_protocol::js::RePublish;

    #[test]
    fn what_is_stored_is_published_again_once_and_not_before_readers_see_it() {
        let republish = RePublish { src: ">".into(), dest: "again.>".into(), headers_only: false };
        let config = StreamConfig { republish: Some(republish), ..StreamConfig::default() };
        let mut routes = Routes::new(&config);
        let limits = crate::stream::Limits::new(&config);
        let mut contents = Contents::new(1, &limits, 0);
        routes.stored(1, 0, &mut contents);
        routes.stored(2, 0, &mut contents);
        assert_eq!(routes.next_republish(0), None);
        assert_eq!(routes.next_republish(1), Some(Again { seq: 1, before: 0 }));
        assert_eq!(routes.next_republish(1), None);
        assert_eq!(routes.next_republish(9).map(|again| again.seq), Some(2));
        assert!(routes.republishes() && routes.input().is_none());
    }
}
