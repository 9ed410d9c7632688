//! `nuthatch doctor`: names what is damaged in a log and mends it when told to.

mod medic;
mod places;
mod report;

pub use medic::{StreamMedic, open_preview};
pub use places::{LogPlace, logs_under};
pub use report::stream_json;

use clap::Args;
use nuthatch_log::Disk;
use nuthatch_log::doctor::{Applied, Diagnosis, DoctorError, DoctorOptions, diagnose};
use nuthatch_log::env::{ReadOnlyDisk, RealDisk};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

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
    /// The server's store directory (-sd), or the directory of one log
    dir: PathBuf,
    /// Mend what was found; every file that is replaced is kept in doctor/DATE
    #[arg(long)]
    apply: bool,
    /// Also set a changed byte back where chance could have made the explanation up (frames larger
    /// than 64 KiB)
    #[arg(long)]
    likely: bool,
    /// For programs
    #[arg(long, short = 'j')]
    json: bool,
}

/// What came of one log.
pub struct Visit {
    /// Where it is.
    pub place: LogPlace,
    /// What was found, or why nothing was.
    pub diagnosis: Result<Diagnosis, DoctorError>,
    /// What was done.
    pub applied: Option<Result<Applied, io::Error>>,
    /// Whether a second examination found it healthy.
    pub is_mended: bool,
}

impl Visit {
    fn exit_code(&self) -> u8 {
        match &self.diagnosis {
            Err(_) => EXIT_CANNOT_LOOK,
            Ok(diagnosis) if diagnosis.is_healthy() || self.is_mended => 0,
            Ok(_) => EXIT_DAMAGE,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Standard output is gone.
pub fn run(args: &DoctorArgs) -> io::Result<ExitCode> {
    let places = match logs_under(&args.dir) {
        Ok(places) => places,
        Err(error) => {
            eprintln!("nuthatch: {}: {error}", args.dir.display());
            return Ok(ExitCode::from(EXIT_CANNOT_LOOK));
        }
    };
    let visits: Vec<Visit> = places.into_iter().map(|place| visit(place, args)).collect();
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", report::json(&visits))?;
    } else {
        for visit in &visits {
            report::text(&mut out, visit, args)?;
        }
    }
    Ok(ExitCode::from(visits.iter().map(Visit::exit_code).max().unwrap_or(0)))
}

fn visit(place: LogPlace, args: &DoctorArgs) -> Visit {
    let options = DoctorOptions { likely: args.likely };
    let mut visit =
        Visit { diagnosis: Err(DoctorError::NoLog), place, applied: None, is_mended: false };
    let (disk, _lock) = match lock(&visit.place.dir) {
        Ok(locked) => locked,
        Err(error) => {
            visit.diagnosis = Err(error);
            return visit;
        }
    };
    visit.diagnosis = diagnose(&disk, &StreamMedic, options);
    if let Ok(diagnosis) = &visit.diagnosis
        && args.apply
        && !diagnosis.is_healthy()
        && diagnosis.is_mendable()
    {
        let applied = RealDisk::open(&visit.place.dir)
            .and_then(|real| diagnosis.apply(&real, &report::now_for_a_name()));
        visit.is_mended = applied.is_ok()
            && diagnose(&disk, &StreamMedic, options).is_ok_and(|again| again.is_healthy());
        visit.applied = Some(applied);
    }
    visit
}

type Locked = (Arc<dyn Disk>, Box<dyn Send + Sync>);

/// Opens a log's directory for reading and keeps servers away from it.
fn lock(dir: &Path) -> Result<Locked, DoctorError> {
    let disk: Arc<dyn Disk> = Arc::new(ReadOnlyDisk::open(dir)?);
    let lock = disk.lock()?.ok_or(DoctorError::InUse)?;
    Ok((disk, lock))
}
