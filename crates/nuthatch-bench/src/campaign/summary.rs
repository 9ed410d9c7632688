//! The first table of a report: a few numbers of every workload, all systems, by guarantee.

use std::fmt::Write as _;

use super::html::dot;
use super::metric::{self, Advantage, Promise, number};
use super::outcome::Group;
use super::{Results, System};
use crate::plot::escape;

/// A column.
struct Column<'a> {
    group: &'a Group,
    metric: &'static str,
    workload: &'static str,
}

/// The table; empty when there is nothing to show.
pub fn table(results: &Results, groups: &[Group]) -> String {
    let columns = columns(groups);
    let Some(base) = results.systems.first().filter(|_| !columns.is_empty()) else {
        return String::new();
    };
    let mut out = format!(
        "<h2>At a glance</h2><p>Medians of the repeats. Small print: by which factor {} is better \
         (above 1) or worse (below 1, red); ~ where the repeats overlap and decide nothing. Compare \
         within a block: the blocks promise different things.</p><table><tr><th>System",
        escape(&base.name)
    );
    for column in &columns {
        let _ = write!(
            out,
            "<th>{}<span>{}</span><span>{}, {}</span>",
            column.workload,
            escape(&column.group.variant),
            escape(column.metric),
            metric::better(column.metric).words()
        );
    }
    out += "</tr>";
    let mut class = None;
    for (index, system) in by_promise(&results.systems) {
        let promise = Promise::of(&system.guarantee);
        if class.replace(promise) != Some(promise) {
            let span = columns.len() + 1;
            let _ = write!(out, "<tr><td class=\"class\" colspan=\"{span}\">{}", promise.words());
        }
        let _ = write!(out, "<tr><td class=\"t\">{}{}", dot(index), escape(&system.name));
        for column in &columns {
            push_cell(&mut out, column, &system.name, &base.name);
        }
        out += "</tr>";
    }
    out + "</table>"
}

/// All systems with their places, equal promises together.
fn by_promise(systems: &[System]) -> Vec<(usize, &System)> {
    let mut sorted: Vec<(usize, &System)> = systems.iter().enumerate().collect();
    sorted.sort_by_key(|(_, system)| Promise::of(&system.guarantee));
    sorted
}

fn push_cell(out: &mut String, column: &Column<'_>, system: &str, base: &str) {
    let spread = |name: &str| {
        let cell = column.group.cells.iter().find(|cell| cell.system == name)?;
        cell.metrics.get(column.metric).copied()
    };
    let Some(found) = spread(system) else {
        let tried = column.group.cells.iter().any(|cell| cell.system == system);
        *out += if tried { "<td>failed" } else { "<td>–" };
        return;
    };
    let _ = write!(out, "<td>{}", number(found.median));
    let base = spread(base).filter(|_| system != base);
    if let Some(found) = base.and_then(|base| Advantage::of(column.metric, base, found)) {
        let class = if found.is_loss() { " class=\"loss\"" } else { "" };
        let _ = write!(out, "<span{class}>{}</span>", found.text());
    }
}

/// The group that stands for all in the pictures at the top.
pub fn picture(groups: &[Group]) -> Option<&Group> {
    of(groups, "mq").last().copied().or_else(|| groups.first())
}

/// The groups of a section with closed loops.
fn of<'a>(groups: &'a [Group], section: &str) -> Vec<&'a Group> {
    let plain =
        |group: &&Group| group.section.starts_with(section) && !group.variant.contains("open loop");
    groups.iter().filter(plain).collect()
}

/// Workloads with the place of the group that stands for them, and the number shown. All systems
/// have a number in these.
fn columns(groups: &[Group]) -> Vec<Column<'_>> {
    let mq = of(groups, "mq");
    let pubsub = of(groups, "pubsub");
    let log = of(groups, "log");
    let latency = of(groups, "latency: durable");
    let picks = [
        (mq.last(), "receive msgs/s", "mq"),
        (mq.last(), "processing p95 ms", "mq"),
        (mq.last(), "server µs CPU/msg", "mq"),
        (pubsub.last(), "MB/s", "pubsub"),
        (pubsub.first().filter(|_| pubsub.len() > 1), "MB/s", "pubsub"),
        (log.first(), "msgs/s", "log"),
        (log.last().filter(|_| log.len() > 1), "MB/s", "log"),
        (latency.get(latency.len() / 2), "p50 µs", "latency"),
    ];
    picks
        .into_iter()
        .filter_map(|(group, metric, workload)| Some(Column { group: group?, metric, workload }))
        .collect()
}
