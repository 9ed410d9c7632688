//! `nuthatch doctor`: names what is damaged in a log and mends it when told to.

mod bucket;
mod keeper;
mod key_args;
mod log_locations;
mod report;
mod state_decoder;
mod together;
mod watched;

pub use key_args::KeyArgs;
pub use log_locations::{DEFAULT_LOG, LogLocation, in_bucket, in_directory, logs_under};
pub use report::stream_json;
pub use state_decoder::{StreamStateDecoder, open_preview};

use crate::cluster::copies::take_nodes;
use clap::Args;
use nuthatch_log::doctor::{
    Applied, Diagnosis, DoctorError, DoctorOptions, Kind, Severity, diagnose,
};
use nuthatch_log::env::{RealDisk, Tenure};
use nuthatch_log::{Disk, Keys};
use serde_json::json;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// What was said about a log that was mended, beside what was replaced; the console shows it.
pub const REPORT_FILE: &str = "report.json";

/// Exit code where damage was found and not mended.
const EXIT_DAMAGE: u8 = 1;
/// Exit code where nothing could be said.
const EXIT_CANNOT_LOOK: u8 = 2;

/// Find damage in a store directory, explain it, and mend it
///
/// Without --apply nothing is changed: the mending is tried out in memory and its outcome is shown.
/// Exit codes: 0 healthy (or mended), 1 damage found, 2 could not look.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The server's store directory (-sd), or the directory of one log; of several stopped nodes of a cluster it is said, too, what
    /// their copies of the quorum logs have together
    #[arg(value_name = "DIR", required_unless_present = "store", conflicts_with = "store")]
    dirs: Vec<PathBuf>,
    /// A log in a bucket instead, as it is now, without disturbing a server that has it open (but see
    /// --apply): s3://bucket/prefix, gs://, az://, file:///shared/dir (the server's --store)
    #[arg(long, value_name = "ADDRESS")]
    store: Option<String>,
    /// With --store: the log's name
    #[arg(long = "log", value_name = "NAME", default_value = DEFAULT_LOG, requires = "store")]
    log_name: String,
    /// Mend what was found; whatever is replaced is kept in doctor/DATE of the directory or bucket
    #[arg(long)]
    apply: bool,
    /// With --store and --apply: mend although the log's last owner did not say that it left. Should
    /// it run, it is ended, as by a server that starts on this log
    #[arg(long, requires = "store", requires = "apply")]
    take_over: bool,
    /// Also set a changed byte back where chance could have made the explanation up (frames larger
    /// than 64 KiB)
    #[arg(long)]
    likely: bool,
    #[command(flatten)]
    keys: KeyArgs,
    /// For programs
    #[arg(long, short = 'j')]
    json: bool,
}

/// A doctor at work: what was asked for, and the keys.
struct Doctor<'a> {
    args: &'a DoctorArgs,
    keys: Keys,
}

impl Doctor<'_> {
    fn diagnose(&self, disk: &Arc<dyn Disk>) -> Result<Diagnosis, DoctorError> {
        let options = DoctorOptions { likely: self.args.likely, keys: self.keys.clone() };
        diagnose(disk, &StreamStateDecoder { keys: self.keys.clone() }, options)
    }
}

/// Result for one log.
pub struct Visit {
    /// Its location.
    pub place: LogLocation,
    /// The diagnosis, or why there is none.
    pub diagnosis: Result<Diagnosis, DoctorError>,
    /// Why nothing was done although it was asked for.
    pub refused: Option<String>,
    /// The applied changes.
    pub applied: Option<Result<Applied, io::Error>>,
    /// Whether a second examination found it healthy.
    pub is_mended: bool,
}

impl Visit {
    const fn of(place: LogLocation) -> Self {
        let diagnosis = Err(DoctorError::NoLog);
        Self { place, diagnosis, refused: None, applied: None, is_mended: false }
    }

    fn exit_code(&self) -> u8 {
        match &self.diagnosis {
            Err(_) => EXIT_CANNOT_LOOK,
            Ok(diagnosis) if diagnosis.is_healthy() || self.is_mended => 0,
            Ok(diagnosis) if is_only_locked(diagnosis) => EXIT_CANNOT_LOOK,
            Ok(_) => EXIT_DAMAGE,
        }
    }
}

/// True if nothing is wrong but that keys were not given.
fn is_only_locked(diagnosis: &Diagnosis) -> bool {
    let mut findings = diagnosis.findings.iter().filter(|f| f.kind.severity() != Severity::Note);
    findings.all(|finding| finding.kind == Kind::Encrypted)
}

/// Runs the command.
///
/// # Errors
/// Standard output is gone.
pub fn run(args: &DoctorArgs) -> io::Result<ExitCode> {
    let keys = match args.keys.read() {
        Ok(keys) => keys,
        Err(why) => return cannot_look(&why),
    };
    let doctor = Doctor { args, keys };
    if args.apply {
        // What it writes into a store is as private as the store.
        nuthatch_server::private_files::keep_private();
    }
    // Before anything is mended: all of them can be looked at.
    if args.dirs.len() > 1
        && let Err(why) = take_nodes(&args.dirs)
    {
        return cannot_look(&why.to_string());
    }
    let looked = match &args.store {
        Some(address) => Ok(vec![Looked::of_bucket(address, &doctor)]),
        None => args.dirs.iter().map(|dir| Looked::of_directory(dir, &doctor)).collect(),
    };
    let looked: Vec<Looked> = match looked {
        Ok(looked) => looked,
        Err(why) => return cannot_look(&why),
    };
    // After the others: it keeps servers away from all of them at once.
    let together = (args.dirs.len() > 1).then(|| together::look(&args.dirs)).transpose();
    let together = match together {
        Ok(together) => together,
        Err(why) => {
            tell(args, &looked, None)?;
            return cannot_look(&why.to_string());
        }
    };
    tell(args, &looked, together.as_ref())?;
    let codes = looked.iter().map(Looked::exit_code);
    let code = codes.chain(together.iter().map(together::Copies::exit_code)).max();
    Ok(ExitCode::from(code.unwrap_or(0)))
}

fn cannot_look(why: &str) -> io::Result<ExitCode> {
    eprintln!("nuthatch: {why}");
    Ok(ExitCode::from(EXIT_CANNOT_LOOK))
}

fn tell(
    args: &DoctorArgs,
    looked: &[Looked],
    together: Option<&together::Copies>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        let mut all = looked.iter().map(|one| report::json(&one.visits, one.keeper.as_ref()));
        let json = match together {
            None => all.next().unwrap_or_default(),
            Some(together) => {
                json!({ "directories": all.collect::<Vec<_>>(), "together": together.json() })
            }
        };
        return writeln!(out, "{json:#}");
    }
    for one in looked {
        if let Some(keeper) = &one.keeper {
            keeper.text(&mut out, args.apply)?;
        }
        for visit in &one.visits {
            report::text(&mut out, visit, args)?;
        }
    }
    together.map_or(Ok(()), |together| together.text(&mut out))
}

/// What a look at one directory, or at a log in a bucket, has given.
struct Looked {
    visits: Vec<Visit>,
    keeper: Option<keeper::KeeperVisit>,
}

impl Looked {
    fn of_directory(dir: &Path, doctor: &Doctor<'_>) -> Result<Self, String> {
        let keeper = keeper::visit(dir);
        let places = match logs_under(dir) {
            Ok(places) => places,
            // A node of a quorum log has no log of its own beside it, unless it is configured.
            Err(_) if keeper.is_some() => Vec::new(),
            Err(error) => return Err(format!("{}: {error}", dir.display())),
        };
        let visits = places.into_iter().map(|place| visit(place, doctor)).collect();
        Ok(Self { visits, keeper })
    }

    fn of_bucket(address: &str, doctor: &Doctor<'_>) -> Self {
        let dir = format!("{}/{}", address.trim_end_matches('/'), doctor.args.log_name).into();
        let place = LogLocation { dir, named: address.into() };
        Self { visits: vec![visit(place, doctor)], keeper: None }
    }

    fn exit_code(&self) -> u8 {
        let of_keeper = self.keeper.iter().map(keeper::KeeperVisit::exit_code);
        self.visits.iter().map(Visit::exit_code).chain(of_keeper).max().unwrap_or(0)
    }
}

fn visit(place: LogLocation, doctor: &Doctor<'_>) -> Visit {
    let args = doctor.args;
    if let Some(address) = &args.store {
        return bucket::visit(place, address, doctor);
    }
    let mut visit = Visit::of(place);
    let (disk, _tenure) = match open(&visit.place) {
        Ok(taken) => taken,
        Err(error) => {
            visit.diagnosis = Err(error);
            return visit;
        }
    };
    visit.diagnosis = doctor.diagnose(&watched::directory(&disk));
    if let Ok(diagnosis) = &visit.diagnosis
        && args.apply
        && !diagnosis.is_healthy()
        && diagnosis.is_mendable()
    {
        let applied = RealDisk::open(&visit.place.dir).and_then(|real| {
            refuse_changes_in_tier(&*disk, &real, diagnosis)?;
            diagnosis.apply(&real, &report::now_for_a_name())
        });
        let applied = applied.map_err(|error| cannot_write(&visit.place.dir, error));
        visit.is_mended = applied.is_ok()
            && doctor.diagnose(&watched::directory(&disk)).is_ok_and(|again| again.is_healthy());
        visit.applied = Some(applied);
        keep_report(&visit);
    }
    visit
}

/// Keeps what was said where something was mended. Nothing depends on it.
fn keep_report(visit: &Visit) {
    let Some(Ok(applied)) = &visit.applied else { return };
    let path = visit.place.dir.join(&applied.kept_in).join(REPORT_FILE);
    if let Err(error) = std::fs::write(&path, format!("{:#}\n", report::log_json(visit))) {
        eprintln!("nuthatch: {}: {error}: the report is not kept", path.display());
    }
}

/// Refuses changes to moved segments: a bucket that fails for a moment must not pass for damage.
fn refuse_changes_in_tier(
    shown: &dyn Disk,
    real: &RealDisk,
    diagnosis: &Diagnosis,
) -> io::Result<()> {
    let is_absent =
        |path: &str| real.open(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let is_moved = |path: &&String| shown.open(path).is_ok() && is_absent(path);
    match diagnosis.changes.keys().find(is_moved) {
        None => Ok(()),
        Some(path) => {
            let text = format!("{path} is in the bucket behind this log, where nothing is mended");
            Err(io::Error::other(text))
        }
    }
}

/// Adds what to do where a directory cannot be written to.
fn cannot_write(dir: &Path, error: io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => "run the doctor as the user of the server",
        io::ErrorKind::ReadOnlyFilesystem => {
            "mount it for writing, or copy the store elsewhere and mend the copy"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{}: {error}: {advice}", dir.display()))
}

type Taken = (Arc<dyn Disk>, Box<dyn Tenure>);

/// Opens a log's directory for reading and keeps servers away.
fn open(place: &LogLocation) -> Result<Taken, DoctorError> {
    let (disk, _) = in_directory(&place.dir)?;
    let tenure = disk.take()?.ok_or(DoctorError::InUse)?;
    Ok((disk, tenure))
}
