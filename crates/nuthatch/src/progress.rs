//! How far a long operation is: a line on the standard error where that is a terminal, with the rate
//! and the time that is left. What takes less than two seconds shows nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Nothing is shown before.
const SHOWN_AFTER: Duration = Duration::from_secs(2);
/// Drawn no more often than this many times a second.
const DRAWS_PER_SECOND: u8 = 5;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Messages.
    Messages,
}

impl Unit {
    /// The line, for a known end and for an unknown one.
    const fn template(self, has_end: bool) -> &'static str {
        match (self, has_end) {
            (Self::Bytes, true) => {
                "{msg} {bar:20} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left"
            }
            (Self::Bytes, false) => {
                "{msg}: {binary_bytes}, {binary_bytes_per_sec}, {elapsed} so far"
            }
            (Self::Messages, true) => {
                "{msg} {bar:20} {human_pos} of {human_len} messages, {per_sec}, {eta} left"
            }
            (Self::Messages, false) => "{msg}: {human_pos} messages, {per_sec}, {elapsed} so far",
        }
    }

    fn style(self, has_end: bool) -> ProgressStyle {
        let style = ProgressStyle::with_template(self.template(has_end));
        style.unwrap_or_else(|_| ProgressStyle::default_bar())
    }
}

/// A long operation. The line goes when it is dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    unit: Unit,
    started: Instant,
    is_shown: AtomicBool,
    what: String,
}

impl Progress {
    /// An operation that begins. `what` says which.
    pub fn new(what: impl Into<String>, unit: Unit) -> Self {
        Self {
            bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
            unit,
            started: Instant::now(),
            is_shown: AtomicBool::new(false),
            what: what.into(),
        }
    }

    /// One that is never shown.
    pub fn hidden() -> Self {
        let hidden = Self::new("", Unit::Bytes);
        hidden.is_shown.store(true, Ordering::Relaxed);
        hidden
    }

    /// Where it ends; said as soon as it is known.
    pub fn set_end(&self, end: u64) {
        if self.bar.length() != Some(end) {
            self.bar.set_length(end);
            self.bar.set_style(self.unit.style(true));
        }
    }

    /// So much more is done; the end moves on when that is behind it, as an end that was estimated
    /// may be.
    pub fn add_towards(&self, more: u64) {
        self.add(more);
        let done = self.bar.position();
        if self.bar.length().is_some_and(|end| end < done) {
            self.bar.set_length(done);
        }
    }

    /// So much more is done.
    pub fn add(&self, more: u64) {
        self.bar.inc(more);
        self.look();
    }

    /// So much is done in all.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
        self.look();
    }

    fn look(&self) {
        let is_shown = self.is_shown.load(Ordering::Relaxed);
        if is_shown || self.started.elapsed() < SHOWN_AFTER {
            return;
        }
        self.is_shown.store(true, Ordering::Relaxed);
        self.bar.set_message(self.what.clone());
        self.bar.set_style(self.unit.style(self.bar.length().is_some()));
        // Not a terminal: it stays hidden.
        self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        for unit in [Unit::Bytes, Unit::Messages] {
            for has_end in [true, false] {
                let template = unit.template(has_end);
                assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
                let is_counted = template.contains("per_sec");
                assert!(is_counted && template.contains("left") == has_end, "{template}");
            }
        }
    }

    #[test]
    fn short_operations_show_nothing() {
        let progress = Progress::new("Backup", Unit::Bytes);
        progress.set_end(10);
        progress.add(4);
        assert!(progress.bar.is_hidden() && !progress.is_shown.load(Ordering::Relaxed));
        assert_eq!((progress.bar.position(), progress.bar.length()), (4, Some(10)));
    }
}
