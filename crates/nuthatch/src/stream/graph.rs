//! `stream graph`: how a stream grows and shrinks, sample by sample.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::parse_duration;
use nuthatch_protocol::js::StreamInfoRequest;
use serde_json::json;

use crate::chart::History;
use crate::error::CliError;
use crate::screen::{Key, Screen};
use crate::session::Session;
use crate::show;

/// Columns of the chart where there is no terminal to ask.
const DEFAULT_COLUMNS: usize = 80;
/// Columns that the name before a chart takes, and the figures behind it.
const LABEL_COLUMNS: usize = 18;
const FIGURE_COLUMNS: usize = 34;

/// Watch how a stream grows and shrinks
///
/// On a terminal charts are redrawn, and q ends; elsewhere each sample is a line.
#[derive(Debug, Clone, Args)]
pub struct GraphArgs {
    /// Stream name
    stream: String,
    /// Time between two samples, such as 1s
    #[arg(long, short = 'd', default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// End after this many samples
    #[arg(long)]
    count: Option<u64>,
}

/// One sample, or the rates between two.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    last_seq: u64,
    messages: u64,
    bytes: u64,
    consumers: u64,
}

/// What has changed in a second.
#[derive(Debug, Clone, Copy)]
struct Change {
    stored: f64,
    removed: f64,
}

impl Sample {
    fn take(session: &mut Session, stream: &str) -> Result<Self, CliError> {
        let state = super::fetch(session, stream, &StreamInfoRequest::default())?.value.state;
        Ok(Self {
            at: Instant::now(),
            last_seq: state.last_seq,
            messages: state.messages,
            bytes: state.bytes,
            consumers: state.consumer_count,
        })
    }

    fn since(&self, before: &Self) -> Change {
        let seconds = (self.at - before.at).as_secs_f64().max(f64::EPSILON);
        let stored = self.last_seq.saturating_sub(before.last_seq);
        let removed = (before.messages + stored).saturating_sub(self.messages);
        Change { stored: stored as f64 / seconds, removed: removed as f64 / seconds }
    }
}

/// What the charts show.
#[derive(Debug, Default)]
struct Charts {
    stored: History,
    removed: History,
    messages: History,
    bytes: History,
}

impl Charts {
    fn add(&mut self, sample: &Sample, change: Change) {
        self.stored.push(change.stored);
        self.removed.push(change.removed);
        self.messages.push(sample.messages as f64);
        self.bytes.push(sample.bytes as f64);
    }

    fn draw(&self, stream: &str, sample: &Sample, change: Change, columns: usize) -> String {
        let width = columns.saturating_sub(LABEL_COLUMNS + FIGURE_COLUMNS).max(10);
        let line = |name: &str, chart: &History, now: String, most: String| {
            format!("{name:>16}  {}  {now} (most {most})\n", chart.columns(width))
        };
        let per_second = |rate: f64| format!("{}/s", show::count(rate.round() as u64));
        let count = |value: f64| show::count(value as u64);
        let size = |value: f64| show::bytes(value as u64);
        let (stored, removed) = (self.stored.max(), self.removed.max());
        let (messages, bytes) = (self.messages.max(), self.bytes.max());
        format!("Stream {stream}, {}; q ends\n\n", show::plural(sample.consumers, "consumer"))
            + &line("Stored", &self.stored, per_second(change.stored), per_second(stored))
            + &line("Removed", &self.removed, per_second(change.removed), per_second(removed))
            + &line("Messages", &self.messages, show::count(sample.messages), count(messages))
            + &line("Size", &self.bytes, show::bytes(sample.bytes), size(bytes))
    }
}

/// Runs `stream graph`.
pub fn run(args: &GraphArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut session = Session::open(connect)?;
    let first = Sample::take(&mut session, &args.stream)?;
    let live = io::stdout().is_terminal() && io::stdin().is_terminal() && !session.json;
    if !live {
        return print(args, &mut session, first);
    }
    let mut screen = Screen::open()?;
    let shown = watch(args, &mut session, first, &mut screen);
    screen.close()?;
    shown
}

/// Prints a line for each sample.
fn print(args: &GraphArgs, session: &mut Session, first: Sample) -> Result<(), CliError> {
    let (mut before, mut number) = (first, 0);
    while args.count.is_none_or(|count| number < count) {
        thread::sleep(args.interval);
        let sample = Sample::take(session, &args.stream)?;
        let Change { stored, removed } = sample.since(&before);
        let mut out = io::stdout().lock();
        if session.json {
            let json = json!({
                "stored_per_s": stored, "removed_per_s": removed, "messages": sample.messages,
                "bytes": sample.bytes, "consumers": sample.consumers,
            });
            writeln!(out, "{json}")?;
        } else {
            let messages = show::plural(sample.messages, "message");
            let size = show::bytes(sample.bytes);
            writeln!(out, "{stored:.1} stored/s, {removed:.1} removed/s, {messages}, {size}")?;
        }
        out.flush()?;
        before = sample;
        number += 1;
    }
    Ok(())
}

/// Redraws charts until the user has seen enough.
fn watch(
    args: &GraphArgs,
    session: &mut Session,
    first: Sample,
    screen: &mut Screen,
) -> Result<(), CliError> {
    let mut charts = Charts::default();
    let (mut before, mut number) = (first, 0);
    let mut change = first.since(&first);
    loop {
        let columns = screen.size().map_or(DEFAULT_COLUMNS, |(columns, _)| columns);
        screen.draw(&charts.draw(&args.stream, &before, change, columns))?;
        match screen.wait(args.interval)? {
            Some(Key::Quit) => return Ok(()),
            Some(_) => {}
            None if args.count.is_some_and(|count| number >= count) => return Ok(()),
            None => {
                let sample = Sample::take(session, &args.stream)?;
                change = sample.since(&before);
                charts.add(&sample, change);
                before = sample;
                number += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_and_what_was_removed() {
        let at = Instant::now();
        let sample = |seconds, last_seq, messages| Sample {
            at: at + Duration::from_secs(seconds),
            last_seq,
            messages,
            bytes: messages * 100,
            consumers: 2,
        };
        let (first, second) = (sample(0, 10, 10), sample(2, 30, 24));
        let change = second.since(&first);
        assert_eq!((change.stored, change.removed), (10.0, 3.0));
        let mut charts = Charts::default();
        charts.add(&second, change);
        let text = charts.draw("S", &second, change, 80);
        assert!(text.contains("10/s") && text.contains("2 consumers"), "{text}");
        assert!(text.contains('█') && text.contains("2.3 KiB"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
