//! `top`: a live view of streams, connections and servers.
//!
//! Every interval one sample is taken; what is shown are the differences of two. On a terminal the
//! view is redrawn in place; elsewhere, and with `--once`, it is printed.

mod live;
mod sample;
mod view;

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::units::parse_duration;

use crate::error::CliError;
use crate::screen::Screen;
use crate::server::source::SourceArgs;
use sample::Sampler;

/// Streams, and connections, that are printed where nothing can be scrolled.
const DEFAULT_ROWS: usize = 20;

/// Watch streams, connections and servers
///
/// Shows the account of the connection and its streams; to users of the system account, or with
/// --monitor, servers and connections too. Keys: ? explains all of them, q ends.
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// Time between two samples, such as 1s
    #[arg(long, short = 'd', default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// Show no more than this many streams and as many connections [default: 20; on a terminal all,
    /// which can be scrolled]
    #[arg(long, short = 'n')]
    conns: Option<usize>,
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
    let shown = live::watch(args, &mut sampler, &mut screen);
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
            write!(
                out,
                "{gap}{}",
                view::render(&rates, args.sort, false, args.conns.unwrap_or(DEFAULT_ROWS))
            )?;
        }
        out.flush()?;
        before = now;
        number += 1;
    }
    Ok(())
}
