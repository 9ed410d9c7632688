//! What is fuzzed: one function for each reader of bytes that others wrote. A target panics where an
//! invariant breaks. The fuzzers call them, and so does the stable test `fuzz_corpus`, which runs
//! the corpora and seeded mutations of them with every test run.

use nuthatch_protocol::wire::leaf::{LeafOp, LeafStep, parse_leaf_op, queue_names, split_delivery};
use nuthatch_protocol::wire::parse::{Limits, Step, parse_op};
use nuthatch_protocol::{ack, config, headers, js, jwt, nkey, subject, transform};
use nuthatch_streams::{consumer, decoded_state, records, validate};

/// A target.
pub type Target = fn(&[u8]);

/// Every target by name; its corpus is in `fuzz/corpus/NAME`.
pub const TARGETS: &[(&str, Target)] = &[
    ("protocol", protocol),
    ("leaf", leaf),
    ("headers", header_block),
    ("config", config_text),
    ("transforms", transforms),
    ("subjects", subjects),
    ("requests", requests),
    ("jwt", jwt_claims),
    ("state_records", state_records),
    ("archive", nuthatch_archive::fuzz_archive),
    ("frame", nuthatch_log::fuzzing::frame),
    ("segment", nuthatch_log::fuzzing::segment),
    ("footer", nuthatch_log::fuzzing::footer),
    ("checkpoint", nuthatch_log::fuzzing::checkpoint),
    ("catalog", nuthatch_log::fuzzing::catalog),
    ("node_packet", nuthatch_cluster::fuzzing::packet),
    ("node_hello", nuthatch_cluster::fuzzing::hello),
    ("link_hello", nuthatch_cluster::fuzzing::link_hello),
    ("node_objects", nuthatch_cluster::fuzzing::objects),
];

/// Any split of the input leads to the same operations and the same error.
pub fn protocol(data: &[u8]) {
    let Some((&first, input)) = data.split_first() else { return };
    let limits = Limits {
        max_control_line: if first & 1 == 0 { 64 } else { 4096 },
        max_payload: if first & 2 == 0 { 100 } else { 1 << 20 },
        headers: first & 4 == 0,
    };
    let step = usize::from(first >> 3) + 1;
    let whole = operations(input, input.len().max(1), &limits);
    for step in [1, step] {
        assert_eq!(whole, operations(input, step, &limits), "in steps of {step}");
    }
}

/// What comes of an input that arrives in pieces of `step` bytes.
fn operations(input: &[u8], step: usize, limits: &Limits) -> Vec<String> {
    let (mut out, mut start, mut end) = (Vec::new(), 0, 0);
    while end < input.len() {
        end = (end + step).min(input.len());
        loop {
            match parse_op(&input[start..end], limits) {
                Ok(Step::Op(op, taken)) => {
                    assert!(taken > 0 && start + taken <= end);
                    out.push(format!("{op:?}"));
                    start += taken;
                }
                Ok(Step::Incomplete { need }) => {
                    assert!(need > end - start, "it asks for what is there");
                    break;
                }
                Err(error) => {
                    out.push(format!("{error:?}"));
                    return out;
                }
            }
        }
    }
    out
}

/// What another server sends: any split leads to the same operations and the same error.
pub fn leaf(data: &[u8]) {
    let Some((&first, input)) = data.split_first() else { return };
    let max_payload = if first & 1 == 0 { 100 } else { 1 << 20 };
    let step = usize::from(first >> 1) + 1;
    let whole = leaf_operations(input, input.len().max(1), max_payload);
    for step in [1, step] {
        assert_eq!(whole, leaf_operations(input, step, max_payload), "in steps of {step}");
    }
}

/// What comes of another server's input that arrives in pieces of `step` bytes.
fn leaf_operations(input: &[u8], step: usize, max_payload: usize) -> Vec<String> {
    let (mut out, mut start, mut end) = (Vec::new(), 0, 0);
    while end < input.len() {
        end = (end + step).min(input.len());
        loop {
            match parse_leaf_op(&input[start..end], max_payload) {
                Ok(LeafStep::Op(op, taken)) => {
                    assert!(taken > 0 && start + taken <= end);
                    if let LeafOp::Message(message) = op {
                        assert!(queue_names(message.queues).all(|name| !name.is_empty()));
                        if let Some((reply, shown)) = message.publish.reply.and_then(split_delivery)
                        {
                            assert!(!reply.is_empty() && !shown.is_empty());
                        }
                    }
                    out.push(format!("{op:?}"));
                    start += taken;
                }
                Ok(LeafStep::Incomplete { need }) => {
                    assert!(need > end - start, "it asks for what is there");
                    break;
                }
                Err(error) => {
                    out.push(format!("{error:?}"));
                    return out;
                }
            }
        }
    }
    out
}

/// A header block: what is iterated is what is found.
pub fn header_block(data: &[u8]) {
    let lax = headers::Headers::new(data);
    for (name, _) in lax.iter() {
        assert!(lax.get(name).is_some());
        let _ = headers::find_header(data, name);
    }
    let _ = (lax.status(), headers::has_nats_header(data));
    if let Ok(strict) = headers::Headers::parse(data) {
        assert_eq!(strict.as_bytes(), data);
        strict.iter().for_each(drop);
    }
}

/// A configuration text.
pub fn config_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match config::parse("fuzz.conf", text, &mut config::NoLoader) {
        Ok(map) => assert!(map.entries().len() == map.len()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Source, destination and subject of a transform, a line each.
pub fn transforms(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.splitn(3, '\n');
    let (Some(source), Some(destination)) = (lines.next(), lines.next()) else { return };
    let subject = lines.next().unwrap_or("a.b.c").as_bytes();
    let made = [
        transform::Transform::new(source, destination),
        transform::Transform::new_reversible(source, destination),
        transform::Transform::identity(source),
    ];
    for transform in made.into_iter().flatten() {
        let mut out = Vec::new();
        let applied = transform.apply(subject, 12345, &mut out);
        assert_eq!(applied, !out.is_empty() || applied);
        if let Ok(back) = transform.reverse() {
            back.apply(&out, 12345, &mut Vec::new());
        }
    }
}

/// Two subjects or patterns, a line each: how matching, subsets and overlap hang together.
pub fn subjects(data: &[u8]) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let (Some(a), Some(b)) = (lines.next(), lines.next()) else { return };
    for one in [a, b] {
        let _ = (subject::count_tokens(one), subject::has_wildcard(one));
        let _ = (subject::is_valid_literal(one), subject::is_valid_publish_subject(one));
    }
    if !subject::is_valid_subject(a) || !subject::is_valid_subject(b) {
        return;
    }
    assert_eq!(subject::overlap(a, b), subject::overlap(b, a));
    assert!(subject::is_subset(a, a) && subject::overlap(a, a));
    if subject::is_subset(a, b) {
        assert!(subject::overlap(a, b));
    }
    if subject::is_valid_literal(b) {
        assert_eq!(subject::matches(a, b), subject::is_subset(b, a));
    }
}

/// A token, or the JSON of its claims.
pub fn jwt_claims(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = jwt::decode::<jwt::Account>(jwt::undecorate(text), &|_, _, _| true);
        let _ = (nkey::decode(text), jwt::time_of_day(text), jwt::server_version(text));
        let _ = jwt::cidr::contains(text, std::net::IpAddr::from([10, 0, 0, 1]));
    }
    let _ = jwt::read_claims::<jwt::Operator>(data);
    let _ = jwt::read_claims::<jwt::Generic>(data);
    let activation = jwt::read_claims::<jwt::Activation>(data);
    let user = jwt::read_claims::<jwt::User>(data).map(|(_, claims)| claims).unwrap_or_default();
    let _ = jwt::user_issues(&user);
    let Ok((_, account)) = jwt::read_claims::<jwt::Account>(data) else { return };
    let _ = (jwt::account_issues(&account), jwt::time_issue(&account.data, 1));
    if let (Ok((_, activation)), Some(import)) = (activation, account.nats.imports.first()) {
        let _ = jwt::activation_issues(&activation, import, "A");
    }
    let whom = jwt::Subject {
        name: &account.data.name,
        subject: &account.data.subject,
        tags: &account.nats.tags,
        account_name: "name",
        account_subject: "A",
        account_tags: &account.nats.tags,
    };
    for strict in [false, true] {
        let list = &account.nats.default_permissions.publish.allow;
        for subject in jwt::expand(list, strict, &whom).unwrap_or_default() {
            assert!(list.contains(&subject) || subject::is_valid_subject(subject.as_bytes()));
        }
    }
}

/// Bodies of JetStream requests, acknowledgements and pulls.
pub fn requests(data: &[u8]) {
    let _ = ack::parse_ack(data);
    let _ = ack::parse_ack_subject(data);
    let _ = ack::parse_pull_request(data);
    if let Ok(config) = serde_json::from_slice::<js::StreamConfig>(data) {
        let _ = serde_json::to_vec(&config);
        if let Ok(config) = validate::stream_config(config, &validate::Limits::default()) {
            let json = serde_json::to_vec(&config).unwrap_or_default();
            let again = serde_json::from_slice::<js::StreamConfig>(&json);
            assert_eq!(again.ok(), Some(config), "what is stored reads back");
        }
    }
    if let Ok(request) = serde_json::from_slice::<js::CreateConsumerRequest>(data) {
        let _ = serde_json::to_vec(&request);
    }
}

/// Bodies of control records and snapshots.
pub fn state_records(data: &[u8]) {
    let _ = decoded_state::state(data);
    let _ = decoded_state::log_state(data);
    let _ = decoded_state::snapshot(data);
    let _ = records::StreamRecord::decode(data);
    let _ = records::Advance::decode(data);
    let _ = records::Delete::decode(data);
    let _ = records::Purge::decode(data);
    if let Ok(mut consumer) = consumer::Consumer::<()>::decode(data) {
        let _ = consumer.apply_state(data);
    }
}
