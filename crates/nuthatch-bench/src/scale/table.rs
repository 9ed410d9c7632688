//! The results as a table.

use std::time::Duration;

use super::{Cost, Found};
use crate::table::Table;

/// One line for each kind of publishing; the first of all is what the others are compared with.
pub(super) fn render(found: &[Found]) -> String {
    let baseline = found.first().and_then(|found| found.costs.first());
    let mut table = Table::new(&[
        "the server holds",
        "memory",
        "after a restart",
        "start, clean",
        "start, killed",
        "publishes go to",
        "CPU µs/publish",
        "instructions/publish",
        "ratio",
    ]);
    for found in found {
        for (number, cost) in found.costs.iter().enumerate() {
            let mut cells = if number == 0 { held_cells(found) } else { vec![String::new(); 5] };
            cells.extend(cost_cells(cost, baseline));
            table.row(cells);
        }
    }
    table.to_string()
}

fn held_cells(found: &Found) -> Vec<String> {
    let start = |which: usize| match found.starts {
        Some(starts) => seconds(starts[which]),
        None => "–".into(),
    };
    let restarted = found.restarted_bytes.map_or_else(|| "–".into(), megabytes);
    vec![found.holds.clone(), megabytes(found.memory_bytes), restarted, start(0), start(1)]
}

fn cost_cells(cost: &Cost, baseline: Option<&Cost>) -> Vec<String> {
    let ratio = match (cost.instructions, baseline.and_then(|base| base.instructions)) {
        (Some(own), Some(base)) if base > 0.0 => format!("{:.2}×", own / base),
        _ => "–".into(),
    };
    let instructions = cost.instructions.map_or_else(|| "–".into(), |own| format!("{own:.0}"));
    vec![cost.what.clone(), format!("{:.2}", cost.cpu_us), instructions, ratio]
}

fn megabytes(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1e6)
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_what_others_are_compared_with() {
        let cost = |what: &str, instructions| Cost { what: what.into(), cpu_us: 0.5, instructions };
        let found = |holds: &str, costs| Found {
            holds: holds.into(),
            memory_bytes: 20_000_000,
            restarted_bytes: None,
            starts: Some([Duration::from_millis(15); 2]),
            costs,
        };
        let text = render(&[
            found("one", vec![cost("it", Some(1000.0))]),
            found("many", vec![cost("it", Some(1100.0)), cost("all", None)]),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].contains("1.00×") && lines[2].contains("20 MB"), "{text}");
        assert!(lines[3].contains("1.10×") && lines[3].contains("0.01 s"), "{text}");
        assert!(lines[4].contains('–'), "{text}");
    }
}
