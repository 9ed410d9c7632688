//! `top`: a live view of streams, connections and servers.
//!
//! Every interval one sample is taken; what is shown are the differences of two. On a terminal the
//! view is redrawn in place; elsewhere, and with `--once`, it is printed.

mod sample;
mod screen;
mod view;

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::parse_duration;

use crate::error::CliError;
use crate::server::source::SourceArgs;
use sample::Sampler;
use screen::{Key, Screen};

/// Watch streams, connections and servers
///
/// Streams are those of the connection's account. Figures of servers and connections need a user
/// of the system account, or --monitor. Keys: q ends, s changes the order, r turns it round.
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// Time between two samples, such as 1s
    #[arg(long, short = 'd', default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// Show no more than this many streams and as many connections
    #[arg(long, short = 'n', default_value_t = 20)]
    conns: usize,
    /// What comes first
    #[arg(long, value_enum, default_value_t)]
    sort: Order,
    /// End after this many samples
    #[arg(long, short = 'r')]
    max_refresh: Option<u64>,
    /// Print one sample and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    source: SourceArgs,
}

/// Sort order of streams and connections, the most first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// Messages in the last interval
    #[default]
    Rate,
    /// Messages
    Msgs,
    /// Bytes
    Bytes,
    /// Subscriptions or consumers
    Subs,
    /// Name
    Name,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Self::Rate => Self::Msgs,
            Self::Msgs => Self::Bytes,
            Self::Bytes => Self::Subs,
            Self::Subs => Self::Name,
            Self::Name => Self::Rate,
        }
    }
}

/// Runs `top`.
pub fn run(args: &TopArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    let mut sampler = Sampler::open(&args.source, connect)?;
    let live = io::stdout().is_terminal() && io::stdin().is_terminal();
    if args.once || connect.json || !live {
        return print(args, &mut sampler, connect.json);
    }
    let mut screen = Screen::open()?;
    let shown = watch(args, &mut sampler, &mut screen);
    screen.close()?;
    shown
}

/// Prints samples one below the other.
fn print(args: &TopArgs, sampler: &mut Sampler, json: bool) -> Result<(), CliError> {
    let count = if args.once { Some(1) } else { args.max_refresh };
    let mut before = sampler.take()?;
    let mut number = 0;
    while count.is_none_or(|count| number < count) {
        thread::sleep(args.interval);
        let now = sampler.take()?;
        let rates = now.since(&before);
        let mut out = io::stdout().lock();
        if json {
            writeln!(out, "{}", rates.to_json())?;
        } else {
            let gap = if number > 0 { "\n" } else { "" };
            write!(out, "{gap}{}", view::render(&rates, args.sort, false, args.conns))?;
        }
        out.flush()?;
        before = now;
        number += 1;
    }
    Ok(())
}

/// Redraws until the user has seen enough.
fn watch(args: &TopArgs, sampler: &mut Sampler, screen: &mut Screen) -> Result<(), CliError> {
    let (mut order, mut reverse) = (args.sort, false);
    let mut before = sampler.take()?;
    let mut rates = before.since(&before);
    let mut number = 0;
    loop {
        let direction = if reverse { "least" } else { "most" };
        let keys =
            format!("sorted by {order:?}, {direction} first; keys: s order, r turn, q end\n");
        screen.draw(&(keys + &view::render(&rates, order, reverse, args.conns)))?;
        match screen.wait(args.interval)? {
            Some(Key::Quit) => return Ok(()),
            Some(Key::Order) => order = order.next(),
            Some(Key::Reverse) => reverse = !reverse,
            Some(Key::Redraw) => {}
            None => {
                number += 1;
                if args.max_refresh.is_some_and(|most| number > most) {
                    return Ok(());
                }
                let now = sampler.take()?;
                rates = now.since(&before);
                before = now;
            }
        }
    }
}
