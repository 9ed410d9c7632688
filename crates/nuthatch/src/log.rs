//! `nuthatch log inspect`: what a log's directory holds. Never writes, not even a lock.

mod detail;
mod overview;

use crate::doctor::{LogPlace, logs_under};
use clap::{Args, Subcommand};
use nuthatch_log::env::ReadOnlyDisk;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code where something is damaged.
const EXIT_DAMAGE: u8 = 1;
/// Exit code where nothing could be shown.
const EXIT_CANNOT_LOOK: u8 = 2;

/// Look at the files of a log
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    Inspect(InspectArgs),
}

/// Show segments, frames, streams, checksums and dead bytes; never writes
///
/// Works on a copy, on a read-only mount and beside a living server. Exit codes: 0 sound, 1 damage
/// found (`nuthatch doctor` explains it), 2 could not look.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The server's store directory (-sd), or the directory of one log
    dir: PathBuf,
    /// Only this segment, in detail: its file name or its number
    #[arg(long)]
    segment: Option<String>,
    /// List frames
    #[arg(long)]
    frames: bool,
    /// List records (and frames)
    #[arg(long)]
    records: bool,
    /// For programs: one object, or one per line with --frames and --records
    #[arg(long, short = 'j')]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// Standard output is gone.
pub fn run(command: &LogCommand) -> io::Result<ExitCode> {
    let LogCommand::Inspect(args) = command;
    let places = match logs_under(&args.dir) {
        Ok(places) => places,
        Err(error) => {
            eprintln!("nuthatch: {}: {error}", args.dir.display());
            return Ok(ExitCode::from(EXIT_CANNOT_LOOK));
        }
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut code = 0;
    for place in &places {
        code = code.max(inspect(&mut out, place, args)?);
    }
    out.flush()?;
    Ok(ExitCode::from(code))
}

fn inspect(out: &mut impl Write, place: &LogPlace, args: &InspectArgs) -> io::Result<u8> {
    let opened = ReadOnlyDisk::open(&place.dir).and_then(|disk| Ok((disk.is_in_use()?, disk)));
    let (in_use, disk) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("nuthatch: {}: {error}", place.dir.display());
            return Ok(EXIT_CANNOT_LOOK);
        }
    };
    if args.frames || args.records {
        return detail::list(out, place, &disk, args);
    }
    overview::show(out, place, disk, in_use, args)
}
