//! The results of a campaign as Markdown, for the pages of a repository.

use std::fmt::Write as _;

use super::metric::{self, Advantage, Promise, number};
use super::outcome::{Cell, Group};
use super::{Results, System};
use crate::report::Spread;

/// Numbers shown, where a group has them.
const SHOWN: [&str; 17] = [
    "send msgs/s",
    "receive msgs/s",
    "cost s/op",
    "msgs/s",
    "MB/s",
    "% of its storage's limit",
    "p50 µs",
    "p99 µs",
    "processing p95 ms",
    "send p95 ms",
    "ack p50 µs",
    "ack p99 µs",
    "single p50 µs",
    "single p99 µs",
    "server µs CPU/msg",
    "client µs CPU/msg",
    "server peak memory MB",
];

/// Everything: the machine, the systems, a table for each group.
pub fn page(results: &Results, groups: &[Group]) -> String {
    let machine = &results.machine;
    let failed = results.runs.iter().filter(|run| run.result.is_err()).count();
    let loads: Vec<String> = results.loads.iter().map(|load| format!("{load:.1}")).collect();
    let mut out = format!(
        "{}, {} cores, {:.1} GB memory, kernel {}; {} repeats, {} measurements, {failed} failed; \
         load average before the repeats {}; ended {}.\n\n{}\n\n",
        machine.cpu,
        machine.cores,
        machine.memory_bytes as f64 / 1e9,
        machine.kernel,
        results.repeats,
        results.runs.len(),
        loads.join(" and "),
        results.finished,
        results.note
    );
    push_limits(&mut out, results);
    push_systems(&mut out, &results.systems, &results.missing);
    push_losses(&mut out, groups, &results.systems);
    for group in groups {
        push_group(&mut out, group, &results.systems);
    }
    out
}

fn push_limits(out: &mut String, results: &Results) {
    let Some(first) = results.limits.first() else { return };
    *out += "### What the machine itself does\n\n| limit | MB/s | p50 µs | p99 µs |\n|---|---:|---:|---:|\n";
    for (index, limit) in first.iter().enumerate() {
        let all = || results.limits.iter().filter_map(|limits| limits.get(index));
        let spreads = [
            Spread::of(all().filter_map(|l| l.mb_per_s)),
            Spread::of(all().filter_map(|l| l.p50_us)),
            Spread::of(all().filter_map(|l| l.p99_us)),
        ];
        let cells: Vec<String> = spreads.into_iter().map(cell_text).collect();
        let _ = writeln!(out, "| {} | {} |", limit.name, cells.join(" | "));
    }
    out.push('\n');
}

fn push_systems(out: &mut String, systems: &[System], missing: &[String]) {
    *out += "### The systems\n\n| system | version | guarantee of a completed send | configuration |\n\
             |---|---|---|---|\n";
    for system in systems {
        let cells = [&system.version, &system.guarantee, &system.config].map(|text| escape(text));
        let _ = writeln!(out, "| {} | {} |", system.name, cells.join(" | "));
    }
    for line in missing {
        let _ = writeln!(out, "\nLeft out: {line}");
    }
    out.push('\n');
}

/// Every number that is drawn in which the first system is worse and the repeats agree on it.
fn push_losses(out: &mut String, groups: &[Group], systems: &[System]) {
    let Some(base) = systems.first() else { return };
    let mut losses = Vec::new();
    for group in groups {
        let Some(mine) = group.cells.iter().find(|cell| cell.system == base.name) else { continue };
        for (metric, other) in
            metric::drawn(group).into_iter().flat_map(|m| group.cells.iter().map(move |c| (m, c)))
        {
            let found = mine.metrics.get(metric).zip(other.metrics.get(metric));
            let found = found.and_then(|(mine, its)| Advantage::of(metric, *mine, *its));
            if let Some(found) = found.filter(|found| found.is_loss()) {
                losses.push((promise(group, systems, other), found, group, metric, other));
            }
        }
    }
    losses.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.factor.total_cmp(&b.1.factor)));
    let _ = writeln!(
        out,
        "### Where {} is worse\n\nEvery number drawn in the report in which another system is \
         better and the repeats do not overlap; equal promises first, worst first.\n\n| factor | than | its fsync | in | \
         number |\n|---:|---|---|---|---|",
        base.name
    );
    for (promise, found, group, metric, other) in losses {
        let word = promise.word();
        let _ = writeln!(
            out,
            "| {} | {} | {word} | {}: {} | {metric} |",
            found.text(),
            other.system,
            group.section,
            group.variant
        );
    }
    out.push('\n');
}

fn push_group(out: &mut String, group: &Group, systems: &[System]) {
    let has = |name: &&&str| group.cells.iter().any(|cell| cell.metrics.contains_key(**name));
    let names: Vec<&str> = SHOWN.iter().filter(has).copied().collect();
    let main = metric::main_metric(group);
    let base = systems.first().and_then(|s| group.cells.iter().find(|c| c.system == s.name));
    let _ = writeln!(out, "### {}: {}\n", group.section, group.variant);
    let _ = writeln!(
        out,
        "| system | fsync | in favour of {}{} | {} | repeats |",
        base.map_or("", |base| base.system.as_str()),
        main.map_or(String::new(), |name| format!(", {name}")),
        names.join(" | ")
    );
    let _ = writeln!(out, "|---|---|---:|{}---|", "---:|".repeat(names.len()));
    let mut cells: Vec<&Cell> = group.cells.iter().collect();
    cells.sort_by_key(|cell| promise(group, systems, cell));
    for cell in &cells {
        push_cell(out, cell, promise(group, systems, cell), base.zip(main), &names);
    }
    out.push('\n');
    for cell in cells {
        for remark in &cell.remarks {
            let _ = writeln!(out, "- {}: {}", cell.system, escape(remark));
        }
    }
    out.push('\n');
}

fn promise(group: &Group, systems: &[System], cell: &Cell) -> Promise {
    metric::promise(group, systems.iter().find(|system| system.name == cell.system))
}

fn push_cell(
    out: &mut String,
    cell: &Cell,
    promise: Promise,
    base: Option<(&Cell, &'static str)>,
    names: &[&str],
) {
    let advantage = base.filter(|(base, _)| base.system != cell.system).and_then(|(base, name)| {
        Advantage::of(name, *base.metrics.get(name)?, *cell.metrics.get(name)?)
    });
    let numbers: Vec<String> =
        names.iter().map(|name| cell_text(cell.metrics.get(*name).copied())).collect();
    let _ = writeln!(
        out,
        "| {} | {} | {} | {} | {} of {} |",
        cell.system,
        promise.word(),
        advantage.map_or("–".into(), Advantage::text),
        numbers.join(" | "),
        cell.succeeded,
        cell.tried
    );
}

fn cell_text(spread: Option<Spread>) -> String {
    match spread {
        None => "–".into(),
        Some(Spread { min, median, max }) if min < max => {
            format!("{} ({}–{})", number(median), number(min), number(max))
        }
        Some(Spread { median, .. }) => number(median),
    }
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
