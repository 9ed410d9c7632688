//! Lists of many streams.

use super::*;
use crate::pending_changes::tests::{ACCOUNT, service, turns_during};
use nuthatch_log::StreamId;
use nuthatch_protocol::js::{StreamConfig, Time};
use nuthatch_server::jetstream_port::LogId;
use serde_json::{Value, json};

fn entry(number: usize) -> Entry {
    let config = StreamConfig {
        name: format!("S{number:05}"),
        subjects: vec![format!("s.{number}")],
        ..StreamConfig::default()
    };
    let id = StreamId(u32::try_from(number).expect("few") + 1);
    let config = Arc::new(config);
    Entry { id, engine: LogId(1), account: ACCOUNT, config, created: Time(1) }
}

/// Streams of two nodes and of this one come as one list by name, each once and as the first has it, however small the
/// parts are.
#[test]
fn parts_of_all_nodes_become_one_list() {
    let here: Vec<usize> = (0..40).filter(|number| number % 3 == 0).collect();
    let there = |shift: usize| -> Vec<usize> {
        (0..60).filter(|number| number % 4 == shift || number % 5 == 0).collect()
    };
    let sources = [here, there(1), there(2)];
    let all: std::collections::BTreeSet<usize> = sources.iter().flatten().copied().collect();
    let name = |number: &usize| entry(*number).config.name.clone();
    for max in [1, 2, 7, 1000] {
        let (mut listed, mut after) = (Vec::new(), None::<String>);
        loop {
            let part_of = |source: &[usize]| -> Vec<usize> {
                let is_behind =
                    |number: &&usize| after.as_ref().is_none_or(|last| name(number) > *last);
                source.iter().filter(is_behind).take(max).copied().collect()
            };
            let own = part_of(&sources[0]).into_iter().map(|number| Arc::new(entry(number)));
            let others = ["n2", "n3"].iter().zip(&sources[1..]).map(|(node, source)| {
                let streams = part_of(source).into_iter().map(|number| {
                    Arc::new(ServedStream { name: name(&number), ..ServedStream::default() })
                });
                ((*node).to_owned(), streams.collect())
            });
            let (part, last) = merged(own.collect(), others.collect(), max);
            listed.extend(part);
            after = last;
            if after.is_none() {
                break;
            }
        }
        let names: Vec<&str> = listed.iter().map(Listed::name).collect();
        let wanted: Vec<String> = all.iter().map(name).collect();
        assert_eq!(names, wanted, "parts of {max}");
        let is_here = |at: usize| matches!(listed[at], Listed::Here(_));
        assert!(is_here(0), "0 is at all three: this node's counts");
    }
}

#[tokio::test]
async fn others_have_their_turn_while_a_list_is_gathered() {
    let (_logs, service) = service();
    service.streams.change(|registry| (0..50_000).for_each(|n| registry.insert(entry(n))));
    // A literal: a part that grows must not lower what is expected.
    let parts = 40;
    for (subject, total) in [("", 50_000), ("s.49999", 1)] {
        let body = json!({ "offset": total - 1, "subject": subject }).to_string();
        let turns = turns_during(async {
            let answer = service.lists.names(ACCOUNT, body.as_bytes()).await.expect("a list");
            let answer: Value = serde_json::from_slice(&answer).expect("JSON");
            assert_eq!((&answer["total"], &answer["offset"]), (&json!(total), &json!(total - 1)));
            assert_eq!(answer["streams"], json!(["S49999"]));
        });
        assert!(turns.await >= parts, "{subject:?}");
    }
}
