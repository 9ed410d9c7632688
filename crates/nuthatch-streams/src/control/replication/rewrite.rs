//! What becomes of a message of an origin here: its subject, and for sources the header that says
//! where it is from.

use crate::op::Replica;
use nuthatch_protocol::headers;
use nuthatch_protocol::js::{StreamSource, SubjectTransformConfig};
use nuthatch_protocol::subject;
use nuthatch_protocol::transform::Transform;

/// A subject filter with what it turns subjects into.
#[derive(Debug)]
struct SubjectRule {
    filter: String,
    transform: Option<Transform>,
}

/// How messages of one origin are rewritten.
#[derive(Debug)]
pub(super) struct Rewrite {
    rules: Vec<SubjectRule>,
    mirrors: bool,
    /// The source's name with its API, its filters and its destinations.
    name: String,
}

impl Rewrite {
    pub(super) fn new(source: &StreamSource, mirrors: bool) -> Self {
        let rules = rules_of(source);
        let mut name = source.name.clone();
        if let Some(external) = &source.external {
            name = format!("{name}:{}", external.api);
        }
        if let Some(consumer) = &source.consumer {
            name = format!("{name}:C={}", consumer.name);
        }
        let filters: Vec<&str> = rules.iter().map(|rule| rule.filter.as_str()).collect();
        let dests: Vec<&str> = source.subject_transforms.iter().map(destination).collect();
        let dests = if dests.is_empty() { ">".to_owned() } else { dests.join("\x0c") };
        let name = format!("{name} {} {dests}", filters.join("\x0c"));
        Self { rules, mirrors, name }
    }

    /// The subjects that are wanted; empty: all.
    pub(super) fn filters(&self) -> Vec<String> {
        match &self.rules[..] {
            [rule] if rule.filter == ">" => Vec::new(),
            rules => rules.iter().map(|rule| rule.filter.clone()).collect(),
        }
    }

    /// What tells this source from others of the stream: `<stream> <filters> <destinations> <origin>`.
    /// The last part is when the origin was created, or its identity where that is not told, so that one
    /// of the same name that comes after it is begun anew.
    pub(super) fn key(&self, origin: &str) -> Vec<u8> {
        format!("{} {origin}", self.name).into_bytes()
    }

    /// A message as it is stored here.
    pub(super) fn apply(&self, mut message: Replica, key: &[u8]) -> Replica {
        let matches =
            |rule: &&SubjectRule| subject::matches(rule.filter.as_bytes(), &message.subject);
        let mut mapped = Vec::new();
        if let Some(transform) = self.rules.iter().find(matches).and_then(|r| r.transform.as_ref())
        {
            #[allow(clippy::cast_possible_truncation)] // a number like any other
            transform.apply(&message.subject, message.seq as u32, &mut mapped);
        }
        if !self.mirrors {
            let header = source_header(key, message.seq, &message.subject);
            let mut block = Vec::new();
            if !message.headers.is_empty() {
                headers::copy_without(&mut block, &message.headers, |name| {
                    name.starts_with(b"Nats-Expected-")
                        || name.starts_with(b"Nats-Batch-")
                        || name == b"Nats-Stream-Source"
                });
            }
            headers::append(&mut block, b"Nats-Stream-Source", &header);
            message.headers = block;
        }
        if !mapped.is_empty() {
            message.subject = mapped;
        }
        message
    }
}

fn destination(config: &SubjectTransformConfig) -> &str {
    if config.dest.is_empty() { ">" } else { &config.dest }
}

fn rules_of(source: &StreamSource) -> Vec<SubjectRule> {
    let or_all = |filter: &str| if filter.is_empty() { ">".to_owned() } else { filter.to_owned() };
    if source.subject_transforms.is_empty() {
        return vec![SubjectRule { filter: or_all(&source.filter_subject), transform: None }];
    }
    let rule = |config: &SubjectTransformConfig| {
        let filter = or_all(&config.src);
        // The configuration has been validated.
        let transform =
            (!config.dest.is_empty()).then(|| Transform::new(&filter, &config.dest).ok()).flatten();
        SubjectRule { filter, transform }
    };
    source.subject_transforms.iter().map(rule).collect()
}

/// `<stream> <sequence> <filters> <destinations> <subject> <origin>`.
fn source_header(key: &[u8], seq: u64, subject: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = key.splitn(4, |&b| b == b' ').collect();
    let part = |at: usize| parts.get(at).copied().unwrap_or_default();
    [part(0), seq.to_string().as_bytes(), part(1), part(2), subject, part(3)].join(&b' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::read_source;

    #[test]
    fn a_header_leads_back_to_its_key() {
        let key = b"ORIGIN:JS.acc.API a.*\x0cb.> >\x0cc.> 1700000000000000000";
        let header = source_header(key, 42, b"a.x");
        assert_eq!(read_source(&header), Some((key[..].into(), 42)));
    }
}
