//! The report of a campaign: one HTML page that needs nothing from elsewhere.

use std::fmt::Write as _;

use super::outcome::{Cell, Group};
use super::{Results, System};
use crate::plot::{self, Bar, Series, escape};
use crate::report::{Latencies, RawLimit, Spread};

const STYLE: &str = "body{font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;margin:2rem auto;max-width:1180px;\
padding:0 1rem;color:#222}h1{font-size:1.7rem;margin-bottom:.2rem}h2{margin-top:2.6rem;border-bottom:2px solid #333}\
h3{margin:1.6rem 0 .4rem}table{border-collapse:collapse;font-size:13px;margin:.6rem 0 1rem;display:block;overflow-x:auto}\
td,th{border:1px solid #ccc;padding:3px 8px;text-align:right;white-space:nowrap;vertical-align:top}\
th{background:#f2f2f2;text-align:center}td.t{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:8rem;max-width:17rem}\
.range{color:#777;font-size:11px;display:block}.bad{background:#fde3e3}.note{background:#fff6d8;padding:.5rem 1rem;\
border-left:4px solid #e0b000}svg{max-width:100%;height:auto;border:1px solid #eee;margin:.3rem 0}\
.dot{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.4em}small{color:#666}";

/// Percentiles of the curves.
const CURVE_POINTS: [f64; 14] =
    [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999];

/// Numbers of which the bars are drawn, the first that a row has.
const MAIN_METRICS: [&str; 4] = ["receive msgs/s", "MB/s", "msgs/s", "p50 µs"];

/// The page.
pub fn page(results: &Results, groups: &[Group]) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{0}</title><style>{STYLE}</style><h1>{0}</h1>",
        escape(&results.name)
    );
    let _ = write!(
        out,
        "<p><small>{}; {} repeat(s); {} runs, {} failed</small></p>",
        results.finished,
        results.repeats,
        results.runs.len(),
        results.runs.iter().filter(|run| run.result.is_err()).count()
    );
    if !results.note.is_empty() {
        let _ = write!(out, "<p class=\"note\">{}</p>", escape(&results.note));
    }
    push_method(&mut out);
    push_machine(&mut out, results);
    push_systems(&mut out, &results.systems, &results.missing);
    let mut section = "";
    for group in groups {
        if group.section != section {
            section = &group.section;
            let _ = write!(out, "<h2>{}</h2>", escape(section));
        }
        push_group(&mut out, group, &results.systems);
    }
    out += "</html>\n";
    out
}

fn push_method(out: &mut String) {
    *out += "<p>Clients and server share this machine, so every number is that of both together; \
             CPU time of both sides is given. Each measurement starts its system anew on an empty \
             directory; systems take turns within a repeat. Cells show the median of the repeats \
             and below it their smallest and largest. <b>No number means anything without the \
             guarantee beside it</b>: a system that answers before the disk has the message does \
             less work than one that answers after.</p>";
}

fn push_machine(out: &mut String, results: &Results) {
    let machine = &results.machine;
    let _ = write!(
        out,
        "<h2>The machine and its limits</h2><p>{}, {} core(s), {:.1} GB memory, kernel {}</p>",
        escape(&machine.cpu),
        machine.cores,
        machine.memory_bytes as f64 / 1e9,
        escape(&machine.kernel)
    );
    let Some(first) = results.limits.first() else { return };
    *out += "<table><tr><th>Limit<th>MB/s<th>p50 µs<th>p99 µs</tr>";
    for (index, limit) in first.iter().enumerate() {
        let all = || results.limits.iter().filter_map(|limits| limits.get(index));
        let spread = |pick: fn(&RawLimit) -> Option<f64>| Spread::of(all().filter_map(pick));
        let _ = write!(out, "<tr><td class=\"t\">{}", escape(&limit.name));
        for value in [spread(|l| l.mb_per_s), spread(|l| l.p50_us), spread(|l| l.p99_us)] {
            push_spread(out, value);
        }
        *out += "</tr>";
    }
    *out += "</table>";
}

fn push_systems(out: &mut String, systems: &[System], missing: &[String]) {
    *out += "<h2>The systems</h2><table><tr><th>System<th>What<th>Version<th>Guarantee of a \
             completed send<th>Configuration<th>Package</tr>";
    for (index, system) in systems.iter().enumerate() {
        let _ = write!(out, "<tr><td class=\"t\">{}{}", dot(index), escape(&system.name));
        for text in
            [&system.what, &system.version, &system.guarantee, &system.config, &system.package]
        {
            let _ = write!(out, "<td class=\"t\">{}", escape(text));
        }
        *out += "</tr>";
    }
    *out += "</table>";
    if !missing.is_empty() {
        *out += "<p class=\"note\">Left out:<br>";
        *out += &missing.iter().map(|line| escape(line)).collect::<Vec<_>>().join("<br>");
        *out += "</p>";
    }
}

fn dot(index: usize) -> String {
    format!("<span class=\"dot\" style=\"background:{}\"></span>", plot::colour(index))
}

fn push_group(out: &mut String, group: &Group, systems: &[System]) {
    let _ = write!(out, "<h3>{}</h3>", escape(&group.variant));
    let mut names: Vec<&String> = Vec::new();
    for cell in &group.cells {
        for name in cell.metrics.keys() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names.sort_by_key(|name| metric_rank(name));
    *out += "<table><tr><th>System<th>Guarantee";
    for name in &names {
        let _ = write!(out, "<th>{}", escape(name));
    }
    *out += "<th>Repeats<th>Remarks</tr>";
    for cell in &group.cells {
        push_cell(out, cell, &names, systems, is_stored(group));
    }
    *out += "</table>";
    push_plots(out, group, systems);
}

/// Throughput first, then latency, then cost.
fn metric_rank(name: &str) -> (usize, String) {
    const ORDER: [&str; 14] = [
        "send msgs/s",
        "receive msgs/s",
        "cost s/op",
        "msgs/s",
        "MB/s",
        "% of the disk",
        "min µs",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "processing p95 ms",
        "send p95 ms",
        "single p50 µs",
        "single p99 µs",
    ];
    const LAST: [&str; 5] = [
        "server µs CPU/msg",
        "client µs CPU/msg",
        "server CPU s",
        "server peak memory MB",
        "storage MB",
    ];
    let rank = ORDER.iter().position(|known| *known == name).unwrap_or_else(|| {
        ORDER.len() + 1 + LAST.iter().position(|known| *known == name).map_or(0, |at| at + 1)
    });
    (rank, name.to_owned())
}

fn push_cell(out: &mut String, cell: &Cell, names: &[&String], systems: &[System], stored: bool) {
    let index = systems.iter().position(|system| system.name == cell.system);
    let promised = index.and_then(|index| systems.get(index)).map_or("", |s| &s.guarantee);
    let guarantee = if stored { promised } else { NOT_STORED };
    let class = if cell.succeeded < cell.tried { " class=\"bad\"" } else { "" };
    let dot = index.map(dot).unwrap_or_default();
    let _ = write!(
        out,
        "<tr{class}><td class=\"t\">{dot}{}<td class=\"t\">{}",
        escape(&cell.system),
        escape(guarantee)
    );
    for name in names {
        push_spread(out, cell.metrics.get(*name).copied());
    }
    let remarks: Vec<String> = cell.remarks.iter().map(|remark| escape(remark)).collect();
    let _ = write!(
        out,
        "<td>{} of {}<td class=\"t\">{}</tr>",
        cell.succeeded,
        cell.tried,
        remarks.join("<br>")
    );
}

fn push_spread(out: &mut String, spread: Option<Spread>) {
    let Some(Spread { min, median, max }) = spread else {
        *out += "<td>–";
        return;
    };
    let _ = write!(out, "<td>{}", number(median));
    if min < max {
        let _ = write!(out, "<span class=\"range\">{} – {}</span>", number(min), number(max));
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => crate::report::thousands(value),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        0.0 => "0".into(),
        _ => format!("{value:.2}"),
    }
}

fn push_plots(out: &mut String, group: &Group, systems: &[System]) {
    if let Some(metric) = MAIN_METRICS
        .iter()
        .find(|metric| group.cells.iter().any(|cell| cell.metrics.contains_key(**metric)))
    {
        *out += &bars_of(group, metric, systems);
    }
    for metric in ["server µs CPU/msg", "server peak memory MB"] {
        if group.cells.iter().any(|cell| cell.metrics.contains_key(metric)) {
            *out += &bars_of(group, metric, systems);
        }
    }
    let mut curves: Vec<&String> = Vec::new();
    for name in group.cells.iter().flat_map(|cell| cell.curves.keys()) {
        if !curves.contains(&name) {
            curves.push(name);
        }
    }
    for name in curves {
        *out += &curves_of(group, name, systems);
    }
}

fn bars_of(group: &Group, metric: &str, systems: &[System]) -> String {
    let bar = |cell: &Cell| {
        let value = cell.metrics.get(metric).map(|s| (s.min, s.median, s.max));
        let note = match value {
            Some(_) => String::new(),
            None => cell.remarks.first().map_or_else(|| "not measured".into(), |r| shorten(r)),
        };
        let system = systems.iter().find(|s| s.name == cell.system && is_stored(group));
        let fsync = system.map_or("", fsync_word);
        let colour = place(cell, systems);
        Bar { name: format!("{} {fsync}", cell.system), value, note, colour }
    };
    let bars: Vec<Bar> = group.cells.iter().map(bar).collect();
    plot::bars(&format!("{metric}: {}", group.variant), metric, &bars)
}

/// The guarantee of core publish and subscribe.
const NOT_STORED: &str = "none: core messages are not stored";

fn is_stored(group: &Group) -> bool {
    !group.section.contains("core publish")
}

/// Where a system stands among all, which is the number of its colour.
fn place(cell: &Cell, systems: &[System]) -> usize {
    systems.iter().position(|system| system.name == cell.system).unwrap_or(0)
}

/// The guarantee in the room beside a bar.
fn fsync_word(system: &System) -> &'static str {
    match system.guarantee.split("fsync: ").nth(1) {
        Some(fsync) if fsync.starts_with("before") => "(fsync)",
        Some(fsync) if fsync.starts_with("after") => "(fsync later)",
        Some(fsync) if fsync.starts_with("no ") || fsync == "no" => "(no fsync)",
        _ => "",
    }
}

fn shorten(text: &str) -> String {
    const LIMIT: usize = 70;
    match text.char_indices().nth(LIMIT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn curves_of(group: &Group, name: &str, systems: &[System]) -> String {
    let with: Vec<(&Cell, Latencies)> = group
        .cells
        .iter()
        .filter_map(|cell| {
            let mut latencies = Latencies::default();
            latencies.add_pairs(cell.curves.get(name)?);
            Some((cell, latencies))
        })
        .collect();
    let percentile = |(cell, latencies): &(&Cell, Latencies)| Series {
        name: cell.system.clone(),
        colour: place(cell, systems),
        points: CURVE_POINTS
            .iter()
            .filter_map(|p| Some((*p, latencies.quantile_us(p / 100.0)? / 1000.0)))
            .collect(),
    };
    let histogram = |(cell, _): &(&Cell, Latencies)| Series {
        name: cell.system.clone(),
        colour: place(cell, systems),
        points: cell.curves.get(name).map_or(Vec::new(), |pairs| {
            pairs.iter().map(|(ns, count)| (*ns as f64 / 1e6, *count as f64)).collect()
        }),
    };
    let curves: Vec<Series> = with.iter().map(percentile).collect();
    let histograms: Vec<Series> = with.iter().map(histogram).collect();
    let title = format!("{name} latency: {}", group.variant);
    plot::percentiles(&title, "ms", &curves) + &plot::histogram(&title, "ms", &histograms)
}
