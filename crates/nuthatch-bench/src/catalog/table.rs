//! What was found, as text and a table.

use std::time::Duration;

use super::Start;
use super::build::Built;
use super::shape::Shape;
use crate::report::thousands;
use crate::table::Table;

pub(super) fn render(
    shape: &Shape,
    place: &str,
    built: Option<&Built>,
    starts: &[Start],
) -> String {
    let mut out = format!(
        "{} messages of {} B in {} streams with {} subjects and {} filtered consumers, in {place}.\n",
        number(shape.messages),
        shape.body_bytes,
        number(shape.streams),
        number(shape.subjects()),
        number(shape.consumers),
    );
    if let Some(built) = built {
        out += &format!(
            "Built in {}: {}; {} written.\n",
            seconds(built.took),
            built.requests,
            bytes(built.requests.put_bytes),
        );
    }
    let mut table = Table::new(&[
        "started with an empty directory",
        "ready",
        "all answers right",
        "memory",
        "peak",
        "requests",
        "read",
    ]);
    for start in starts {
        table.row(vec![
            start.what.to_owned(),
            seconds(start.ready),
            seconds(start.right),
            bytes(start.memory_bytes),
            bytes(start.peak_bytes),
            start.requests.to_string(),
            bytes(start.requests.get_bytes),
        ]);
    }
    out + "\n" + &table.to_string()
}

fn number(count: u64) -> String {
    thousands(count as f64)
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn bytes(count: u64) -> String {
    match count {
        0..10_000_000_000 => format!("{:.0} MB", count as f64 / 1e6),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::Requests;

    #[test]
    fn a_line_for_each_start() {
        let shape = Shape {
            messages: 1_000_000,
            streams: 10,
            subjects_each: 5,
            consumers: 3,
            body_bytes: 8,
        };
        let start = Start {
            what: "after a clean end",
            ready: Duration::from_millis(1500),
            right: Duration::from_millis(1600),
            memory_bytes: 20_000_000,
            peak_bytes: 30_000_000,
            requests: Requests { by_kind: [1, 20, 0, 3, 0], ..Requests::default() },
        };
        let text = render(&shape, "file:///b", None, &[start]);
        assert!(
            text.contains("1,000,000 messages of 8 B in 10 streams with 50 subjects"),
            "{text}"
        );
        assert!(text.contains("1.50 s") && text.contains("1 put, 20 get, 3 list"), "{text}");
    }
}
