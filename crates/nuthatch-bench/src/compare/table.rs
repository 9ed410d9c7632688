//! The comparison as Markdown.

use std::fmt::Write as _;

use crate::compare::rows::Metric;
use crate::compare::{Cell, Comparison};
use crate::report::{RawLimit, Spread, thousands};

/// Names of the servers in the tables.
pub const INCUMBENT_DEFAULT: &str = "nats-server, default sync";
/// See [`INCUMBENT_DEFAULT`].
pub const INCUMBENT_ALWAYS: &str = "nats-server, sync always";
/// See [`INCUMBENT_DEFAULT`].
pub const OURS: &str = "Nuthatch";

/// From this part of its time on, a client counts as the limit of a row.
const CLIENT_IS_LIMIT: f64 = 0.85;

/// All tables.
pub fn markdown(comparison: &Comparison) -> String {
    let mut out = String::new();
    let machine = &comparison.machine;
    let _ = writeln!(
        out,
        "Measured in one run on {} ({} cores, {:.0} GiB of memory, Linux {}); clients and server \
         share the machine. Every row ran {} time(s) on fresh stores, servers taking turns; shown \
         is the median, and the range where it exceeds 10 %.{}\n",
        machine.cpu,
        machine.cores,
        machine.memory_bytes as f64 / f64::from(1 << 30),
        machine.kernel,
        comparison.repeat,
        if comparison.quick { " **Quick run: a tenth of the messages.**" } else { "" },
    );
    let versions: Vec<String> =
        machine.versions.iter().map(|(name, version)| format!("{name}: {version}")).collect();
    let _ = writeln!(out, "Versions reported: {}.\n", versions.join("; "));
    rates(&mut out, comparison);
    cpu(&mut out, comparison);
    memory(&mut out, comparison);
    restarts(&mut out, comparison);
    raw_limits(&mut out, comparison);
    out
}

/// The cells of each row and client, in the order of the servers.
fn rows(comparison: &Comparison) -> impl Iterator<Item = &[Cell]> {
    comparison.cells.chunks(comparison.servers.len().max(1))
}

fn find<'a>(cells: &'a [Cell], server: &str) -> Option<&'a Cell> {
    cells.iter().find(|cell| cell.server == server)
}

fn title(cells: &[Cell]) -> String {
    match cells.first() {
        Some(cell) if cell.client == "lean" => cell.title.to_owned(),
        Some(cell) => format!("{} — {}", cell.title, cell.client),
        None => String::new(),
    }
}

fn heading(out: &mut String, comparison: &Comparison, title: &str, first: &str) {
    let _ = writeln!(out, "### {title}\n");
    let servers = comparison.servers.join(" | ");
    let _ = writeln!(out, "| {first} | {servers} | vs default | vs always |");
    let dashes = "---:|".repeat(comparison.servers.len() + 2);
    let _ = writeln!(out, "|---|{dashes}");
}

fn rates(out: &mut String, comparison: &Comparison) {
    heading(out, comparison, "Speed", "row");
    for cells in rows(comparison) {
        let Some(metric) = cells.first().map(|cell| cell.metric) else { continue };
        let _ = write!(out, "| {}, {} |", title(cells), metric.unit());
        for cell in cells {
            let limited = cell.client_busy.is_some_and(|busy| busy.median >= CLIENT_IS_LIMIT);
            let _ = write!(
                out,
                " {}{}{} |",
                spread(cell.value),
                if limited { " †" } else { "" },
                if cell.runs.iter().any(|run| run.errors > 0) { " **errors**" } else { "" },
            );
        }
        let gain = |theirs: &str| ratio(cells, theirs, |cell| cell.value, |a, b| metric.gain(a, b));
        let _ = writeln!(out, " {} | {} |", gain(INCUMBENT_DEFAULT), gain(INCUMBENT_ALWAYS));
    }
    let _ = writeln!(
        out,
        "\n† the client was busy for {:.0} % of the time or more: it, not the server, is the limit \
         there, and the server's CPU time per message decides. Ratios above 1 are in favour of \
         Nuthatch.\n",
        CLIENT_IS_LIMIT * 100.0,
    );
}

fn cpu(out: &mut String, comparison: &Comparison) {
    heading(out, comparison, "Server CPU per message, µs", "row");
    for cells in rows(comparison) {
        let _ = write!(out, "| {} |", title(cells));
        for cell in cells {
            let _ = write!(out, " {} |", spread(cell.cpu_us));
        }
        let gain = |theirs: &str| ratio(cells, theirs, |cell| cell.cpu_us, |a, b| b / a);
        let _ = writeln!(out, " {} | {} |", gain(INCUMBENT_DEFAULT), gain(INCUMBENT_ALWAYS));
    }
    out.push('\n');
}

fn memory(out: &mut String, comparison: &Comparison) {
    heading(out, comparison, "Resident memory, MiB", "state");
    let mib = |bytes: Option<Spread>| bytes.map(|bytes| bytes.map(|b| b / f64::from(1 << 20)));
    let idle: Vec<Option<Spread>> =
        comparison.idle.iter().map(|idle| mib(idle.rss_bytes)).collect();
    memory_row(out, "idle", &idle);
    for cells in rows(comparison) {
        let peaks: Vec<Option<Spread>> = cells.iter().map(|cell| mib(cell.peak_bytes)).collect();
        memory_row(out, &format!("peak of: {}", title(cells)), &peaks);
    }
    out.push('\n');
}

/// One row with a value per server in their order: default, always, ours.
fn memory_row(out: &mut String, name: &str, values: &[Option<Spread>]) {
    if values.iter().all(Option::is_none) {
        return;
    }
    let shown: Vec<String> = values.iter().map(|value| spread(*value)).collect();
    let gain = |index: usize| match (values.get(index), values.last()) {
        (Some(Some(theirs)), Some(Some(ours))) => format!("{:.2}×", theirs.median / ours.median),
        _ => "–".into(),
    };
    let _ = writeln!(out, "| {name} | {} | {} | {} |", shown.join(" | "), gain(0), gain(1));
}

fn restarts(out: &mut String, comparison: &Comparison) {
    if comparison.restarts.is_empty() {
        return;
    }
    let _ = writeln!(out, "### Restart, seconds until the stream answers\n");
    let _ = writeln!(out, "| server | messages | after SIGTERM | after SIGKILL |");
    let _ = writeln!(out, "|---|---:|---:|---:|");
    for restart in &comparison.restarts {
        let msgs = thousands(restart.msgs as f64);
        let (clean, killed) = (spread(restart.clean_s), spread(restart.killed_s));
        let _ = writeln!(out, "| {} | {msgs} | {clean} | {killed} |", restart.server);
    }
    out.push('\n');
}

fn raw_limits(out: &mut String, comparison: &Comparison) {
    let _ = writeln!(out, "### What the machine itself does\n");
    let _ = writeln!(out, "| measurement | MB/s | p50 µs | p99 µs |");
    let _ = writeln!(out, "|---|---:|---:|---:|");
    let first = comparison.raw.first().map_or(&[][..], Vec::as_slice);
    for (index, limit) in first.iter().enumerate() {
        let over_runs = |number: fn(&RawLimit) -> Option<f64>| {
            Spread::of(comparison.raw.iter().filter_map(|run| number(run.get(index)?)))
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            limit.name,
            spread(over_runs(|limit| limit.mb_per_s)),
            spread(over_runs(|limit| limit.p50_us)),
            spread(over_runs(|limit| limit.p99_us)),
        );
    }
    out.push('\n');
    large_rows(out, comparison);
}

/// Large publishes as a part of what the disk takes.
fn large_rows(out: &mut String, comparison: &Comparison) {
    let rates = comparison.raw.iter().filter_map(|run| {
        run.iter()
            .filter(|limit| limit.name.starts_with("disk"))
            .filter_map(|l| l.mb_per_s)
            .reduce(f64::max)
    });
    let Some(disk) = Spread::of(rates) else { return };
    for cells in rows(comparison) {
        let ours = find(cells, OURS).filter(|cell| cell.metric == Metric::MbPerS);
        if let Some(value) = ours.and_then(|cell| cell.value) {
            let part = value.median / disk.median * 100.0;
            let _ = writeln!(out, "- {}: {part:.0} % of the disk's synced rate", title(cells));
        }
    }
}

/// How Nuthatch compares with another server in a row.
fn ratio(
    cells: &[Cell],
    theirs: &str,
    number: impl Fn(&Cell) -> Option<Spread>,
    gain: impl Fn(f64, f64) -> f64,
) -> String {
    let median = |name: &str| Some(number(find(cells, name)?)?.median);
    match (median(OURS), median(theirs)) {
        (Some(ours), Some(theirs)) if ours > 0.0 && theirs > 0.0 => {
            format!("{:.2}×", gain(ours, theirs))
        }
        _ => "–".into(),
    }
}

/// The median, and the range where it is wide.
fn spread(spread: Option<Spread>) -> String {
    const WIDE: f64 = 0.1;
    let Some(Spread { min, median, max }) = spread else { return "–".into() };
    let wide = max - min > WIDE * median;
    if wide {
        format!("{} ({}–{})", number(median), number(min), number(max))
    } else {
        number(median)
    }
}

/// About three significant digits.
fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => thousands(v),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number(0.456), "0.46");
        assert_eq!(number(45.67), "45.7");
        assert_eq!(number(123_456.7), "123,457");
        assert_eq!(spread(Spread::of([100.0, 101.0].into_iter())), "100");
        assert_eq!(spread(Spread::of([100.0, 150.0, 120.0].into_iter())), "120 (100–150)");
        assert_eq!(spread(None), "–");
    }
}
