//! The doctor at a log in a bucket: it looks without disturbing anybody, and becomes the log's owner, as
//! a server does, before it mends.

use super::log_locations::bucket;
use super::{Doctor, LogLocation, Visit, report, watched};
use nuthatch_log::Disk;
use nuthatch_log::doctor::{Applied, Diagnosis, DoctorError};
use nuthatch_object::{Bucket, BucketRepairer, BucketView, LastOwner, Survey};
use std::io;
use std::sync::Arc;

/// Visits the log of the bucket at `address`.
pub(super) fn visit(place: LogLocation, address: &str, doctor: &Doctor<'_>) -> Visit {
    let args = doctor.args;
    let mut visit = Visit::of(place);
    let opened = bucket(address, &args.log_name).map_err(DoctorError::Io);
    let looked = opened.and_then(|bucket| {
        let (view, survey) = BucketView::survey(Arc::clone(&bucket))?;
        let diagnosis = examine(Arc::new(view), &bucket, &survey, doctor)?;
        Ok((bucket, survey, diagnosis))
    });
    let (bucket, survey, diagnosis) = match looked {
        Ok(looked) => looked,
        Err(error) => {
            visit.diagnosis = Err(error);
            return visit;
        }
    };
    if args.apply && !diagnosis.is_healthy() && diagnosis.is_mendable() {
        match refusal(&bucket, doctor) {
            Ok(Some(why)) => visit.refused = Some(why),
            Ok(None) => {
                visit.applied = Some(mend(&bucket, &survey, doctor));
                visit.is_mended = visit.applied.as_ref().is_some_and(Result::is_ok)
                    && is_healthy(&bucket, doctor);
            }
            Err(error) => visit.applied = Some(Err(error)),
        }
    }
    visit.diagnosis = Ok(diagnosis);
    visit
}

/// Looks at everything. A store that fails says nothing about what it holds, so that nothing is
/// concluded then.
fn examine(
    view: Arc<BucketView>,
    bucket: &Bucket,
    survey: &Survey,
    doctor: &Doctor<'_>,
) -> Result<Diagnosis, DoctorError> {
    let disk: Arc<dyn Disk> = view;
    let diagnosis = doctor.diagnose(&watched::bucket(&disk));
    if let Some(why) = bucket.given_up() {
        let text = format!("the store failed, so nothing can be said of what it holds: {why}");
        return Err(io::Error::other(text).into());
    }
    let mut diagnosis = diagnosis?;
    diagnosis.add(survey.findings.iter().cloned());
    Ok(diagnosis)
}

/// Why nothing may be mended now: the log may be in use.
fn refusal(bucket: &Bucket, doctor: &Doctor<'_>) -> io::Result<Option<String>> {
    let last = LastOwner::of(bucket)?;
    if last.has_left || doctor.args.take_over {
        return Ok(None);
    }
    let LastOwner { epoch, who, .. } = last;
    Ok(Some(format!(
        "the log's last owner (epoch {epoch}: {who}) did not say that it left: it was \
         killed, or it runs. Stop it; if it does not run any more, add --take-over, which ends it \
         as a server that starts on this log would"
    )))
}

/// Becomes the owner, examines again (there is no other writer any more), and repairs.
fn mend(bucket: &Arc<Bucket>, before: &Survey, doctor: &Doctor<'_>) -> io::Result<Applied> {
    let repairer = BucketRepairer::open(bucket, &who())?;
    let applied = mend_as_owner(&repairer, bucket, before, doctor);
    repairer.leave();
    applied
}

fn mend_as_owner(
    repairer: &BucketRepairer,
    bucket: &Bucket,
    before: &Survey,
    doctor: &Doctor<'_>,
) -> io::Result<Applied> {
    let diagnosis = examine(repairer.view(), bucket, repairer.survey(), doctor)
        .map_err(|error| io::Error::other(error.to_string()))?;
    if !diagnosis.is_mendable() {
        let text = "the log changed meanwhile and cannot be mended as described: look again";
        return Err(io::Error::other(text));
    }
    repairer.apply(&diagnosis.changes, before, &report::now_for_a_name())
}

fn is_healthy(bucket: &Arc<Bucket>, doctor: &Doctor<'_>) -> bool {
    BucketView::survey(Arc::clone(bucket))
        .map_err(DoctorError::Io)
        .and_then(|(view, survey)| examine(Arc::new(view), bucket, &survey, doctor))
        .is_ok_and(|again| again.is_healthy())
}

/// How the doctor shows itself to others at a bucket.
fn who() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("nuthatch doctor (process {} on {})", std::process::id(), host.trim())
}
