//! Permissions to publish and to subscribe.

use crate::options::{Permissions, ResponsePermission, SubjectPermission};
use nuthatch_protocol::subject::{is_subset, matches};
use std::sync::Arc;

/// A pattern, with a queue group where it only speaks of that group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    subject: Box<[u8]>,
    queue: Option<Box<[u8]>>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let mut words = text.split_ascii_whitespace();
        let subject = words.next().unwrap_or_default().as_bytes().into();
        Self { subject, queue: words.next().map(|queue| queue.as_bytes().into()) }
    }
}

/// A set of patterns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectFilter {
    patterns: Vec<Pattern>,
}

impl SubjectFilter {
    fn new(texts: &[String]) -> Self {
        Self { patterns: texts.iter().map(|text| Pattern::new(text)).collect() }
    }

    /// True if a message on `subject` is kept from a subscription in this queue group.
    #[must_use]
    pub fn covers(&self, subject: &[u8], queue: Option<&[u8]>) -> bool {
        self.patterns.iter().any(|pattern| {
            matches(&pattern.subject, subject)
                && match (&pattern.queue, queue) {
                    (None, _) => true,
                    (Some(pattern), Some(queue)) => queue_matches(pattern, queue),
                    (Some(_), None) => false,
                }
        })
    }

    /// True if a pattern without a queue group covers all of `subject`. Wildcards in the subject
    /// are covered by wildcards only, so that `a.*` does not allow a subscription to `a.>`.
    fn covers_all(&self, subject: &[u8]) -> bool {
        let plain = |pattern: &&Pattern| pattern.queue.is_none();
        self.patterns.iter().filter(plain).any(|pattern| is_subset(subject, &pattern.subject))
    }

    /// True if a pattern without a queue group matches `subject`, taken literally.
    fn hits(&self, subject: &[u8]) -> bool {
        let plain = |pattern: &&Pattern| pattern.queue.is_none();
        self.patterns.iter().filter(plain).any(|pattern| matches(&pattern.subject, subject))
    }

    /// Queue patterns for this subject: whether there are any, and whether one names `queue`.
    fn queues(&self, subject: &[u8], queue: &[u8]) -> (bool, bool) {
        let mut found = (false, false);
        for pattern in &self.patterns {
            if let Some(name) = &pattern.queue
                && matches(&pattern.subject, subject)
            {
                found.0 = true;
                found.1 |= queue_matches(name, queue);
            }
        }
        found
    }
}

fn queue_matches(pattern: &[u8], queue: &[u8]) -> bool {
    pattern == queue || matches(pattern, queue)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    allow: Option<SubjectFilter>,
    deny: Option<Arc<SubjectFilter>>,
}

impl Rule {
    fn new(permission: &SubjectPermission) -> Self {
        let deny = SubjectFilter::new(&permission.deny);
        Self {
            allow: permission.allow.as_deref().map(SubjectFilter::new),
            deny: (!deny.patterns.is_empty()).then(|| Arc::new(deny)),
        }
    }
}

/// Whether a subscription is allowed, and what is kept from it nevertheless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// No.
    No,
    /// Yes, but messages on these subjects are not delivered.
    Except(Option<Arc<SubjectFilter>>),
}

/// Permissions of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    publish: Rule,
    subscribe: Rule,
    /// Bounds for answers to received messages.
    pub responses: Option<ResponsePermission>,
    /// As configured, for `$SYS.REQ.USER.INFO`.
    pub source: Permissions,
}

impl Rights {
    /// Compiles configured permissions.
    #[must_use]
    pub fn new(permissions: &Permissions) -> Self {
        Self {
            publish: permissions.publish.as_ref().map(Rule::new).unwrap_or_default(),
            subscribe: permissions.subscribe.as_ref().map(Rule::new).unwrap_or_default(),
            responses: permissions.allow_responses,
            source: permissions.clone(),
        }
    }

    /// True if publishing to `subject` is allowed, apart from responses.
    #[must_use]
    pub fn may_publish(&self, subject: &[u8]) -> bool {
        self.publish.allow.as_ref().is_none_or(|allow| allow.hits(subject))
            && !self.publish.deny.as_ref().is_some_and(|deny| deny.hits(subject))
    }

    /// Whether a subscription is allowed. A pattern for a queue group allows only that group; where
    /// there are such patterns for the subject, other groups are refused.
    #[must_use]
    pub fn may_subscribe(&self, subject: &[u8], queue: Option<&[u8]>) -> Allowed {
        let rule = &self.subscribe;
        if let Some(allow) = &rule.allow {
            let allowed = match queue.map(|queue| allow.queues(subject, queue)) {
                Some((true, named)) => named,
                _ => allow.covers_all(subject),
            };
            if !allowed {
                return Allowed::No;
            }
        }
        let Some(deny) = &rule.deny else { return Allowed::Except(None) };
        let named = queue.is_some_and(|queue| deny.queues(subject, queue).1);
        if named || deny.hits(subject) {
            return Allowed::No;
        }
        let wild = subject.split(|&b| b == b'.').any(|token| token == b"*" || token == b">");
        Allowed::Except(wild.then(|| deny.clone()))
    }
}

#[cfg(test)]
mod tests;
