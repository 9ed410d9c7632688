//! Lines of the log that others can cause, as many as people can read.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Lines in each [`WINDOW`]; more are counted.
const LINES_MAX: u32 = 20;

/// How long lines are counted together.
const WINDOW: Duration = Duration::from_secs(60);

/// Counts lines.
#[derive(Default)]
pub(crate) struct LineLimit(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    began: Option<Instant>,
    said: u32,
    left_out: u64,
}

impl LineLimit {
    /// Says a line, if not too many were said lately. How many were left out is said before the next one.
    pub(crate) fn say(&self, now: Instant, text: &str, say: impl Fn(&str)) {
        let mut lines = self.0.lock();
        if lines.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            let left_out = lines.left_out;
            *lines = Lines { began: Some(now), said: 0, left_out: 0 };
            if left_out > 0 {
                say(&format!("{left_out} lines about connections of other nodes were left out"));
            }
        }
        if lines.said == LINES_MAX {
            lines.left_out += 1;
            return;
        }
        lines.said += 1;
        say(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_counted() {
        let (limit, said) = (LineLimit::default(), Mutex::new(vec![]));
        let say = |text: &str| said.lock().push(text.to_owned());
        let began = Instant::now();
        for _ in 0..1000 {
            limit.say(began, "again", say);
        }
        assert_eq!(said.lock().len(), 20);
        limit.say(began + WINDOW, "later", say);
        let said = said.lock();
        let last: Vec<&str> = said[20..].iter().map(String::as_str).collect();
        assert_eq!(last, ["980 lines about connections of other nodes were left out", "later"]);
    }
}
