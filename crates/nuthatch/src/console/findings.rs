//! What is wrong with the logs, for the console: counted since the start, and said by the doctor.

use std::io::Read;
use std::path::Path;

use nuthatch_console::Findings;
use nuthatch_log::doctor::KEPT_DIR;
use nuthatch_server::server::Server;
use serde_json::Value;

use crate::doctor::REPORT_FILE;

/// A longer report is not shown.
const REPORT_BYTES_MAX: u64 = 1 << 20;

/// Of each log.
pub fn all(server: &Server) -> Vec<Findings> {
    let homes: Vec<(String, String)> = {
        let places = server.logs.locations();
        let local = places.iter().filter(|place| place.mode != "object");
        local.map(|place| (place.name.clone(), place.home.clone())).collect()
    };
    let logs = server.jetstream().view().logs();
    let findings = logs.into_iter().map(|log| {
        let home = homes.iter().find(|(name, _)| *name == log.name);
        let last = home.and_then(|(_, home)| last_report(Path::new(home)));
        let (mended_at, report) = last.unzip();
        Findings {
            damaged_places: log.stats.damaged,
            torn_frames: log.stats.torn_frames,
            unusable_files: log.stats.unusable_files,
            mended_at,
            report: report.flatten(),
            log: log.name,
        }
    });
    findings.collect()
}

/// When the doctor last mended a directory, and what it said, if that can be read.
fn last_report(home: &Path) -> Option<(String, Option<Value>)> {
    let kept = home.join(KEPT_DIR);
    let runs = std::fs::read_dir(&kept).ok()?.filter_map(Result::ok);
    let runs = runs.filter(|run| run.file_type().is_ok_and(|kind| kind.is_dir()));
    // Their names are dates.
    let last = runs.filter_map(|run| run.file_name().into_string().ok()).max()?;
    let report = std::fs::File::open(kept.join(&last).join(REPORT_FILE)).ok().and_then(|file| {
        let mut text = String::new();
        file.take(REPORT_BYTES_MAX).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    });
    Some((last, report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_report_is_shown_and_one_that_cannot_be_read_is_none() {
        let dir = std::env::temp_dir().join(format!("nuthatch-findings-{}", std::process::id()));
        assert_eq!(last_report(&dir), None);
        let run = |date: &str, text: &str| {
            let run = dir.join(KEPT_DIR).join(date);
            std::fs::create_dir_all(&run).unwrap();
            std::fs::write(run.join(REPORT_FILE), text).unwrap();
        };
        run("2026-11-01T10-00-00.000Z", "{\"healthy\":true}");
        run("2026-11-02T10-00-00.000Z", "{\"healthy\":false}");
        let (date, report) = last_report(&dir).unwrap();
        assert_eq!(date, "2026-11-02T10-00-00.000Z");
        assert_eq!(report.unwrap()["healthy"], false);
        run("2026-11-03T10-00-00.000Z", "not JSON");
        assert_eq!(last_report(&dir).unwrap().1, None);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
