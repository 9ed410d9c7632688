//! `nuthatch log inspect`: what a log's directory or bucket holds. Never writes, not even a lock.
//! `nuthatch log report`: what the logs of a server hold and cost.

mod detail;
mod overview;
pub mod report;

use crate::doctor::{DEFAULT_LOG, KeyArgs, LogLocation, in_bucket, in_directory, logs_under};
use clap::{Args, Subcommand};
use nuthatch_log::env::{ReadOnlyDisk, SystemEntropy};
use nuthatch_log::{Disk, Inspection, Keyring, Keys, SegmentInspection};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Exit code where something is damaged.
const EXIT_DAMAGE: u8 = 1;
/// Exit code where nothing could be shown.
const EXIT_CANNOT_LOOK: u8 = 2;
/// Most segments that are named where the one that was asked for does not exist.
const NAMED_SEGMENTS: usize = 20;

/// Look at the files of a log
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    Inspect(InspectArgs),
    Report(report::ReportArgs),
}

/// Show segments, frames, streams, checksums and dead bytes; never writes
///
/// Works on a copy, on a read-only mount and beside a living server. Exit codes: 0 sound, 1 damage
/// found (`nuthatch doctor` explains it), 2 could not look.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The server's store directory (-sd), or the directory of one log
    #[arg(required_unless_present = "store", conflicts_with = "store")]
    dir: Option<PathBuf>,
    /// Look into a bucket instead: s3://bucket/prefix, gs://, az://, file:///shared/dir (the server's
    /// --store)
    #[arg(long, value_name = "ADDRESS")]
    store: Option<String>,
    /// With --store: the log's name
    #[arg(long = "log", value_name = "NAME", default_value = DEFAULT_LOG, requires = "store")]
    log_name: String,
    /// Only this segment, in detail: its file name or its number
    #[arg(long)]
    segment: Option<String>,
    /// List frames
    #[arg(long)]
    frames: bool,
    /// List records (and frames)
    #[arg(long)]
    records: bool,
    #[command(flatten)]
    keys: KeyArgs,
    /// For programs: one object, or one per line with --frames and --records
    #[arg(long, short = 'j')]
    json: bool,
}

/// Runs `log inspect`.
///
/// # Errors
/// Standard output is gone.
pub fn run(args: &InspectArgs) -> io::Result<ExitCode> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let keys = match args.keys.read() {
        Ok(keys) => keys,
        Err(why) => {
            eprintln!("nuthatch: {why}");
            return Ok(ExitCode::from(EXIT_CANNOT_LOOK));
        }
    };
    let ring = Keyring::new(&keys, &mut SystemEntropy::default());
    let name = args.segment.as_deref();
    let mut wanted = Wanted { name, is_found: false, known: Vec::new(), keys, ring };
    let code = match (&args.dir, &args.store) {
        (Some(dir), _) => match logs_under(dir) {
            Ok(places) => {
                let mut code = 0;
                for place in &places {
                    code = code.max(inspect_directory(&mut out, place, args, &mut wanted)?);
                }
                code
            }
            Err(error) => cannot_look(&dir.display().to_string(), &error),
        },
        (None, address) => {
            let address = address.as_deref().unwrap_or_default();
            inspect_bucket(&mut out, address, args, &mut wanted)?
        }
    };
    out.flush()?;
    Ok(ExitCode::from(code.max(wanted.complain())))
}

/// The segment that was asked for, if one was.
struct Wanted<'a> {
    /// Its file name or its number.
    name: Option<&'a str>,
    /// One of the logs has it.
    is_found: bool,
    /// Files of the segments that there are.
    known: Vec<String>,
    /// Keys of what is encrypted, as they were given and ready for use.
    keys: Keys,
    ring: Keyring,
}

impl Wanted<'_> {
    /// True if a segment is to be shown.
    fn is(&self, segment: &SegmentInspection) -> bool {
        self.name.is_none_or(|name| segment.file == name || segment.id.to_string() == name)
    }

    /// Notes what a log has, and whether that is wanted.
    fn note(&mut self, segments: &[SegmentInspection]) {
        self.is_found |= segments.iter().any(|segment| self.is(segment));
        self.known.extend(segments.iter().map(|segment| segment.file.clone()));
    }

    /// Files of the segments of a log that are to be shown, in the order of their positions.
    fn files(&mut self, disk: &dyn Disk) -> io::Result<Vec<String>> {
        let mut files = disk.list("")?;
        files.retain(|file| file.ends_with(".seg"));
        let Some(name) = self.name else { return Ok(files) };
        self.known.extend(files.iter().cloned());
        if name.parse::<u64>().is_err() {
            files.retain(|file| file == name);
        } else {
            // Numbers are in the segments, not in the names of their files.
            let inspection = Inspection::look(disk, &mut |_, _| ());
            let inspection = inspection.map_err(|error| io::Error::other(error.to_string()))?;
            let is_wanted = |file: &String| {
                inspection.segments.iter().any(|segment| segment.file == *file && self.is(segment))
            };
            files.retain(is_wanted);
        }
        self.is_found |= !files.is_empty();
        Ok(files)
    }

    /// Says that no log has it; returns the exit code.
    fn complain(&self) -> u8 {
        let Some(name) = self.name.filter(|_| !self.is_found && !self.known.is_empty()) else {
            return 0;
        };
        let mut known = self.known[..self.known.len().min(NAMED_SEGMENTS)].join(", ");
        if self.known.len() > NAMED_SEGMENTS {
            known.push_str(", …");
        }
        eprintln!("nuthatch: there is no segment {name}; there are: {known}");
        EXIT_CANNOT_LOOK
    }
}

fn cannot_look(place: &str, error: &io::Error) -> u8 {
    eprintln!("nuthatch: {place}: {error}");
    EXIT_CANNOT_LOOK
}

fn inspect_directory(
    out: &mut impl Write,
    place: &LogLocation,
    args: &InspectArgs,
    wanted: &mut Wanted<'_>,
) -> io::Result<u8> {
    let opened = ReadOnlyDisk::open(&place.dir)
        .and_then(|disk| Ok((disk.is_in_use()?, in_directory(&place.dir)?.0)));
    match opened {
        Ok((in_use, disk)) => inspect(out, place, disk, in_use, args, wanted),
        Err(error) => Ok(cannot_look(&place.dir.display().to_string(), &error)),
    }
}

fn inspect_bucket(
    out: &mut impl Write,
    address: &str,
    args: &InspectArgs,
    wanted: &mut Wanted<'_>,
) -> io::Result<u8> {
    let dir = format!("{}/{}", address.trim_end_matches('/'), args.log_name);
    match in_bucket(address, &args.log_name) {
        // Nothing tells whether a server has it open.
        Ok(view) => {
            let place = LogLocation { dir: dir.into(), named: address.into() };
            inspect(out, &place, Arc::new(view), true, args, wanted)
        }
        Err(error) => Ok(cannot_look(&dir, &error)),
    }
}

fn inspect(
    out: &mut impl Write,
    place: &LogLocation,
    disk: Arc<dyn Disk>,
    in_use: bool,
    args: &InspectArgs,
    wanted: &mut Wanted<'_>,
) -> io::Result<u8> {
    if args.frames || args.records {
        let files = match wanted.files(&*disk) {
            Ok(files) => files,
            Err(error) => return Ok(cannot_look(&place.dir.display().to_string(), &error)),
        };
        return detail::list(out, &*disk, &files, args, &wanted.ring);
    }
    overview::show(out, place, disk, in_use, args, wanted)
}
