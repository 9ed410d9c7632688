//! Reports of the doctor, for people and for programs.

use super::keeper::KeeperVisit;
use super::{DEFAULT_LOG, DoctorArgs, Visit};
use nuthatch_log::doctor::{
    Applied, Diagnosis, DoctorError, Finding, Lost, StreamPreview, Uncertain,
};
use serde_json::{Value, json};
use std::io::{self, Write};
use time::OffsetDateTime;
use time::macros::format_description;

/// Widest text before a line is broken.
const LOST_LINES_MAX: usize = 1000;

/// The name of a directory for what is replaced now.
pub fn now_for_a_name() -> String {
    let format =
        format_description!("[year]-[month]-[day]T[hour]-[minute]-[second].[subsecond digits:3]Z");
    OffsetDateTime::now_utc().format(&format).unwrap_or_else(|_| "now".to_owned())
}

/// Tells people about one log.
pub fn text(out: &mut impl Write, visit: &Visit, args: &DoctorArgs) -> io::Result<()> {
    let dir = visit.place.dir.display();
    let diagnosis = match &visit.diagnosis {
        Ok(diagnosis) => diagnosis,
        Err(error @ DoctorError::InUse) => {
            writeln!(out, "{dir}: {error}")?;
            return writeln!(out, "    to look at it without stopping: nuthatch log inspect {dir}");
        }
        Err(error) => return writeln!(out, "{dir}: cannot be examined: {error}"),
    };
    writeln!(out, "{dir} (log {:016x})", diagnosis.log_id)?;
    for finding in &diagnosis.findings {
        write_finding(out, finding)?;
    }
    write_lost(out, &diagnosis.lost)?;
    write_uncertain(out, diagnosis)?;
    write_streams(out, diagnosis)?;
    write_outcome(out, visit, diagnosis, args)
}

fn write_finding(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    let file = if finding.file.is_empty() { "the log" } else { &finding.file };
    let (severity, kind) = (finding.kind.severity().name(), finding.kind.name());
    writeln!(out, "  {severity}: {kind}: {file}")?;
    writeln!(out, "      {}", finding.what)?;
    if !finding.action.is_empty() {
        writeln!(out, "      -> {}", finding.action)?;
    }
    Ok(())
}

fn write_lost(out: &mut impl Write, lost: &[Lost]) -> io::Result<()> {
    for lost in lost.iter().take(LOST_LINES_MAX) {
        let Lost { name, first, last, .. } = lost;
        let count = last - first + 1;
        let s = if count == 1 { "" } else { "s" };
        writeln!(out, "  lost: stream {name}: sequence {first} to {last} ({count} message{s})")?;
    }
    if lost.len() > LOST_LINES_MAX {
        writeln!(out, "  lost: {} more ranges; --json lists all", lost.len() - LOST_LINES_MAX)?;
    }
    Ok(())
}

fn write_uncertain(out: &mut impl Write, diagnosis: &Diagnosis) -> io::Result<()> {
    for Uncertain { name, last, more_max, .. } in &diagnosis.uncertain {
        let next = last.saturating_add(*more_max).saturating_add(1);
        writeln!(
            out,
            "  may be lost: stream {name}: newer messages than sequence {last}, of which nothing is \
             left; mended, its next message gets sequence {next}"
        )?;
    }
    Ok(())
}

fn write_streams(out: &mut impl Write, diagnosis: &Diagnosis) -> io::Result<()> {
    match &diagnosis.streams {
        Err(why) => writeln!(out, "  the log does not open: {why}"),
        Ok(streams) => {
            let messages: u64 = streams.iter().map(|stream| stream.messages).sum();
            let when = if diagnosis.changes.is_empty() { "it opens" } else { "mended, it opens" };
            let count = streams.len();
            let s = if count == 1 { "" } else { "s" };
            writeln!(out, "  {when} with {count} stream{s} and {messages} messages")?;
            for stream in streams {
                let StreamPreview { name, first, last, messages, .. } = stream;
                writeln!(out, "      {name}: {messages} messages, sequence {first} to {last}")?;
            }
            Ok(())
        }
    }
}

fn write_outcome(
    out: &mut impl Write,
    visit: &Visit,
    diagnosis: &Diagnosis,
    args: &DoctorArgs,
) -> io::Result<()> {
    if diagnosis.is_healthy() {
        return writeln!(out, "  healthy");
    }
    if let Some(why) = &visit.refused {
        return writeln!(out, "  nothing was changed: {why}");
    }
    match &visit.applied {
        Some(Ok(applied)) => write_applied(out, visit, applied),
        Some(Err(error)) => writeln!(out, "  mending failed: {error}; what was replaced is kept"),
        None if diagnosis.is_mendable() => {
            let likely = if args.likely { " --likely" } else { "" };
            let place = named(visit, args);
            writeln!(out, "  nothing was changed; to mend it as described:")?;
            writeln!(out, "      nuthatch doctor {place} --apply{likely}")
        }
        None => writeln!(
            out,
            "  nothing was changed, and nothing can be before the above is dealt with; see \
             docs/doctor.md"
        ),
    }
}

/// The command line's words for the log.
fn named(visit: &Visit, args: &DoctorArgs) -> String {
    let named = visit.place.named.display();
    match (&args.store, args.log_name.as_str()) {
        (None, _) => named.to_string(),
        (Some(_), DEFAULT_LOG) => format!("--store {named}"),
        (Some(_), log) => format!("--store {named} --log {log}"),
    }
}

fn write_applied(out: &mut impl Write, visit: &Visit, applied: &Applied) -> io::Result<()> {
    let dir = visit.place.dir.join(&applied.kept_in);
    let (kept, created) = (applied.kept.len(), applied.created.len());
    let is = if visit.is_mended { "mended" } else { "mended, but not healthy yet: look again" };
    writeln!(out, "  {is}: {kept} files replaced or removed, {created} new")?;
    writeln!(out, "      what they were is kept in {}, with a manifest", dir.display())
}

/// Everything, for programs.
pub fn json(visits: &[Visit], keeper: Option<&KeeperVisit>) -> Value {
    let mut all = json!({ "logs": visits.iter().map(log_json).collect::<Vec<_>>() });
    if let Some(keeper) = keeper {
        all["keeper"] = keeper.json();
    }
    all
}

/// One log, for programs.
pub fn log_json(visit: &Visit) -> Value {
    let dir = visit.place.dir.display().to_string();
    let diagnosis = match &visit.diagnosis {
        Ok(diagnosis) => diagnosis,
        Err(error) => return json!({ "dir": dir, "error": error.to_string() }),
    };
    let applied = visit.applied.as_ref().map(|applied| match applied {
        Ok(done) => json!({
            "kept_in": visit.place.dir.join(&done.kept_in),
            "kept": done.kept,
            "created": done.created,
            "mended": visit.is_mended,
        }),
        Err(error) => json!({ "error": error.to_string() }),
    });
    json!({
        "dir": dir,
        "log_id": format!("{:016x}", diagnosis.log_id),
        "healthy": diagnosis.is_healthy(),
        "mendable": diagnosis.is_mendable(),
        "findings": diagnosis.findings.iter().map(finding_json).collect::<Vec<_>>(),
        "lost": diagnosis.lost.iter().map(lost_json).collect::<Vec<_>>(),
        "may_be_lost": diagnosis.uncertain.iter().map(uncertain_json).collect::<Vec<_>>(),
        "opens": diagnosis.streams.is_ok(),
        "why_not": diagnosis.streams.as_ref().err(),
        "streams": diagnosis.streams.iter().flatten().map(stream_json).collect::<Vec<_>>(),
        "refused": visit.refused,
        "changes": diagnosis.changes.keys().collect::<Vec<_>>(),
        "applied": applied,
    })
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "kind": finding.kind.name(),
        "severity": finding.kind.severity().name(),
        "file": finding.file,
        "what": finding.what,
        "action": finding.action,
    })
}

fn lost_json(lost: &Lost) -> Value {
    json!({ "stream": lost.name, "id": lost.stream.0, "first": lost.first, "last": lost.last })
}

fn uncertain_json(unsure: &Uncertain) -> Value {
    let Uncertain { stream, name, last, more_max } = unsure;
    json!({
        "stream": name,
        "id": stream.0,
        "after": last,
        "next_seq": last.saturating_add(*more_max).saturating_add(1),
    })
}

/// A stream for programs.
pub fn stream_json(stream: &StreamPreview) -> Value {
    json!({
        "id": stream.id.0,
        "name": stream.name,
        "messages": stream.messages,
        "bytes": stream.bytes,
        "first_seq": stream.first,
        "last_seq": stream.last,
        "consumers": stream.consumers,
    })
}
