//! Lines of the start-up banner about the logs.

use nuthatch_log::RecoveryReport;

/// A few lines for each log, the default one first.
pub fn recovered(logs: &[(String, RecoveryReport)], streams: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, (name, report)) in logs.iter().enumerate() {
        let what = match number {
            0 => format!("Recovered:       {streams} streams"),
            _ => format!("Log {name}:"),
        };
        let followed = match report.standby.0 {
            0 => String::new(),
            last => format!("followed to position {last}, "),
        };
        lines.push(format!(
            "{what} in {:.3} s ({followed}{} segments, {} frames replayed, {} messages indexed, epoch {})",
            report.took.as_secs_f64(),
            report.segments,
            report.frames,
            report.indexed,
            report.epoch,
        ));
        lines.extend(troubles(report));
    }
    lines
}

fn troubles(report: &RecoveryReport) -> Vec<String> {
    let mut lines = Vec::new();
    if !report.clean && report.last.0 > 0 {
        lines.push("The last stop was not clean".to_owned());
    }
    if report.torn_bytes > 0 {
        lines.push(format!(
            "Cut off {} incomplete frames ({} bytes) that were never acknowledged; kept in torn/",
            report.torn_frames, report.torn_bytes
        ));
    }
    lines
}
