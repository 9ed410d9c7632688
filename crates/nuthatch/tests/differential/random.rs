//! Seeded random operations on two streams with random configurations, as a script: what a seed
//! found can be pasted into a file of its own and cut down there.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use crate::script::Script;

/// Operations of one seed.
const OPERATIONS: u32 = 250;

/// Consumer names of each stream.
const CONSUMERS: &[&str] = &["C0", "C1", "C2"];

/// The script of a seed. Every other seed is calm: nothing is removed from its streams, and all
/// counts of pending messages are compared. With removals nats-server adjusts them a little later.
pub fn script(seed: u64) -> Script {
    let calm = seed.is_multiple_of(2);
    let state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut random = Random { state, calm };
    let mut text = format!("== {seed}{}\n", if calm { " calm" } else { "" });
    let mut kinds = Vec::new();
    for stream in ["A", "B"] {
        let config = stream_config(&mut random, stream);
        let _ = writeln!(text, "api STREAM.CREATE.{stream} {config}");
        kinds.push(config);
    }
    for _ in 0..OPERATIONS {
        let which = random.below(2) as usize;
        let stream = ["A", "B"][which];
        let line = operation(&mut random, stream, &kinds[which]);
        let _ = writeln!(text, "{line}");
    }
    for stream in ["A", "B"] {
        let _ = writeln!(text, "show {stream}");
    }
    let mut script = Script::parse("seed", &text).remove(0);
    KNOWN.iter().filter(|known| known.seed == seed).for_each(|known| known.mark(&mut script));
    script
}

/// Where nats-server goes another way on a seed, by a defect of its own.
struct Known {
    seed: u64,
    /// From where on, and how far, in lines of the script.
    lines: RangeInclusive<usize>,
    /// Which of the two streams it is about. What is acknowledged may be of either.
    stream: &'static str,
    /// How the list of intended differences calls it.
    name: &'static str,
}

const KNOWN: &[Known] = &[
    Known { seed: 7, lines: 145..=LINES, stream: "B", name: "forgotten-redelivery" },
    Known { seed: 13, lines: 241..=LINES, stream: "A", name: "none-while-some" },
    Known { seed: 19, lines: 19..=22, stream: "B", name: "first-of-nothing" },
    Known { seed: 23, lines: 168..=LINES, stream: "A", name: "forgotten-redelivery" },
];

/// More than a script has.
const LINES: usize = 1_000;

impl Known {
    fn mark(&self, script: &mut Script) {
        let (stream, subject) = (self.stream, format!("pub {}.", self.stream.to_lowercase()));
        let called = [format!(" {stream} "), format!(".{stream}.")];
        for line in &mut script.lines {
            let text = format!("{} ", line.text);
            let concerns = called.iter().any(|part| text.contains(part))
                || text.contains(&format!(".{stream} "))
                || text.starts_with(&subject)
                || text.starts_with("ack ");
            if self.lines.contains(&line.number) && concerns {
                line.intended = Some(self.name.to_owned());
            }
        }
    }
}

/// Xorshift: the same on every machine, and nothing to depend on.
struct Random {
    state: u64,
    calm: bool,
}

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % limit
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}

/// The part of a configuration that an update repeats, and the rest that it may change.
fn stream_config(random: &mut Random, stream: &str) -> String {
    let lower = stream.to_lowercase();
    let storage = random.pick(&["file", "file", "memory"]);
    let retention = match random.calm {
        true => "limits",
        false => random.pick(&["limits", "limits", "limits", "interest", "workqueue"]),
    };
    let mut text = format!(
        r#"{{"name":"{stream}","subjects":["{lower}.>"],"storage":"{storage}","retention":"{retention}""#
    );
    if !random.calm && random.one_in(2) {
        text.push_str(r#","allow_rollup_hdrs":true"#);
    }
    if random.one_in(2) {
        text.push_str(r#","allow_direct":true"#);
    }
    let _ = write!(text, "{}}}", limits(random));
    text
}

fn limits(random: &mut Random) -> String {
    let mut text = String::new();
    if random.calm {
        return text;
    }
    if random.one_in(3) {
        let _ = write!(text, r#","max_msgs":{}"#, 3 + random.below(8));
    }
    if random.one_in(3) {
        let _ = write!(text, r#","max_bytes":{}"#, 150 + random.below(400));
    }
    if random.one_in(3) {
        let _ = write!(text, r#","max_msgs_per_subject":{}"#, 1 + random.below(3));
    }
    if random.one_in(4) {
        let _ = write!(text, r#","max_msg_size":{}"#, 20 + random.below(40));
    }
    if random.one_in(3) {
        text.push_str(r#","discard":"new""#);
        if text.contains("per_subject") && random.one_in(2) {
            text.push_str(r#","discard_new_per_subject":true"#);
        }
    }
    text
}

fn operation(random: &mut Random, stream: &str, config: &str) -> String {
    let consumer = random.pick(CONSUMERS);
    match random.below(100) {
        0..40 => publish(random, stream),
        40..46 => format!("show {stream}"),
        46..53 if random.calm => publish(random, stream),
        46..50 => {
            let seq = 1 + random.below(40);
            format!("api STREAM.MSG.DELETE.{stream} {{\"seq\":{seq}}}")
        }
        50..53 => purge(random, stream),
        53..59 => create_consumer(random, stream, consumer),
        59..75 => pull(random, stream, consumer),
        75..86 => acknowledge(random),
        86..91 => format!("api CONSUMER.INFO.{stream}.{consumer}"),
        91..92 => format!("api CONSUMER.DELETE.{stream}.{consumer}"),
        92..94 => {
            // The part that may not change, and new limits.
            let fixed = config.split(",\"max_").next().unwrap_or(config).trim_end_matches('}');
            let fixed = fixed.split(",\"discard").next().unwrap_or(fixed);
            format!("api STREAM.UPDATE.{stream} {fixed}{}}}", limits(random))
        }
        94..97 => get(random, stream, "STREAM.MSG.GET"),
        _ => get(random, stream, "DIRECT.GET"),
    }
}

fn subject(random: &mut Random, stream: &str) -> String {
    let tail = random.pick(&["x", "x", "y", "z", "deep.x", "deep.y"]);
    format!("{}.{tail}", stream.to_lowercase())
}

fn filter(random: &mut Random, stream: &str) -> String {
    let tail = random.pick(&["x", "y", "*", "deep.*", ">", "*.x"]);
    format!("{}.{tail}", stream.to_lowercase())
}

fn publish(random: &mut Random, stream: &str) -> String {
    let mut headers = Vec::new();
    if random.one_in(5) {
        headers.push(format!("Nats-Msg-Id: {}", random.below(12)));
    }
    if random.one_in(8) {
        headers.push(format!("Nats-Expected-Last-Sequence: {}", random.below(40)));
    }
    if random.one_in(8) {
        headers.push(format!("Nats-Expected-Last-Subject-Sequence: {}", random.below(20)));
        if random.one_in(3) {
            let filter = filter(random, stream);
            headers.push(format!("Nats-Expected-Last-Subject-Sequence-Subject: {filter}"));
        }
    }
    if random.one_in(15) {
        headers.push(format!("Nats-Rollup: {}", random.pick(&["sub", "sub", "all"])));
    }
    if random.one_in(10) {
        headers.push("Colour: green".to_owned());
    }
    let subject = subject(random, stream);
    let length = random.below(50);
    if headers.is_empty() {
        return format!("pub {subject} @(b*{length})");
    }
    format!("pub {subject} [{}] @(b*{length})", headers.join("; "))
}

fn purge(random: &mut Random, stream: &str) -> String {
    let mut parts = Vec::new();
    if random.one_in(2) {
        parts.push(format!(r#""filter":"{}""#, filter(random, stream)));
    }
    match random.below(3) {
        0 => parts.push(format!(r#""seq":{}"#, random.below(50))),
        1 => parts.push(format!(r#""keep":{}"#, random.below(4))),
        _ => {}
    }
    format!("api STREAM.PURGE.{stream} {{{}}}", parts.join(","))
}

/// In a calm script a consumer is always asked for with the same configuration, and starts where
/// messages are: nats-server does not count pending messages right after a change of filters or
/// from a sequence yet to come.
fn create_consumer(random: &mut Random, stream: &str, name: &str) -> String {
    let seed = u64::from(stream.as_bytes()[0]) << 8 | u64::from(name.as_bytes()[1]);
    let mut fixed = Random { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, calm: true };
    let random = if random.calm { &mut fixed } else { random };
    let ack = random.pick(&["explicit", "explicit", "explicit", "all", "none"]);
    let mut text = format!(r#""name":"{name}","durable_name":"{name}","ack_policy":"{ack}""#);
    match random.below(8) {
        0 => text.push_str(r#","deliver_policy":"last""#),
        1 => text.push_str(r#","deliver_policy":"new""#),
        2 if !random.calm => {
            let seq = 1 + random.below(30);
            let _ = write!(text, r#","deliver_policy":"by_start_sequence","opt_start_seq":{seq}"#);
        }
        _ => {}
    }
    match random.below(4) {
        0 => {
            let _ = write!(text, r#","filter_subject":"{}""#, filter(random, stream));
        }
        1 => {
            let (one, two) = (filter(random, stream), filter(random, stream));
            let _ = write!(text, r#","filter_subjects":["{one}","{two}"]"#);
        }
        _ => {}
    }
    if random.one_in(8) {
        text.push_str(r#","headers_only":true"#);
    }
    format!(
        "api CONSUMER.CREATE.{stream}.{name} {{\"stream_name\":\"{stream}\",\"config\":{{{text}}}}}"
    )
}

fn pull(random: &mut Random, stream: &str, consumer: &str) -> String {
    let batch = 1 + random.below(5);
    let size = if random.one_in(6) {
        format!(r#","max_bytes":{}"#, 60 + random.below(200))
    } else {
        String::new()
    };
    format!("next {stream} {consumer} {{\"batch\":{batch},\"no_wait\":true{size}}}")
}

fn acknowledge(random: &mut Random) -> String {
    let index =
        if random.one_in(2) { -1 - random.below(6) as i64 } else { 1 + random.below(30) as i64 };
    let body =
        random.pick(&["+ACK", "+ACK", "+ACK", "", "-NAK", "-NAK", "+TERM", "+WPI", "+TERM no"]);
    format!("ack {index} {body}")
}

fn get(random: &mut Random, stream: &str, verb: &str) -> String {
    let body = match random.below(4) {
        0 | 1 => format!(r#""seq":{}"#, 1 + random.below(40)),
        2 => format!(r#""last_by_subj":"{}""#, filter(random, stream)),
        _ => {
            let filter = filter(random, stream);
            format!(r#""next_by_subj":"{filter}","seq":{}"#, random.below(40))
        }
    };
    format!("api {verb}.{stream} {{{body}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_script() {
        assert_eq!(script(7).lines, script(7).lines);
        assert_ne!(script(7).lines, script(8).lines);
        assert!(script(7).lines.len() >= OPERATIONS as usize);
    }
}
