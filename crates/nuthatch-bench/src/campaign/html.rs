//! The report of a campaign: one HTML page that needs nothing from elsewhere.

use std::fmt::Write as _;

use super::metric::{self, Advantage, Promise, number};
use super::outcome::{Cell, Group};
use super::{Results, System, summary};
use crate::plot::{self, Bar, Series, escape};
use crate::report::{Latencies, RawLimit, Spread};

/// Light and dark, as the reader's system is set.
const STYLE: &str = include_str!("style.css");

/// Percentiles of the curves.
const CURVE_POINTS: [f64; 14] =
    [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999];

/// Curves whose slowest point is below this are drawn in microseconds.
const MICROSECONDS_BELOW_MS: f64 = 2.0;

/// A machine with more than this much other work per core is called busy.
const BUSY_LOAD_PER_CORE: f64 = 0.25;

/// The guarantee of core publish and subscribe.
const NOT_STORED: &str = "none: core messages are not stored";

/// The page.
pub fn page(results: &Results, groups: &[Group]) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>{0}</title><style>{STYLE}</style><h1>{0}</h1>",
        escape(&results.name)
    );
    push_head(&mut out, results);
    out += &summary::table(results, groups);
    if let Some(group) = summary::picture(groups) {
        let _ = write!(out, "<h3>{}: {}</h3>", escape(&group.section), escape(&group.variant));
        push_bars(&mut out, &View::new(group, &results.systems));
    }
    push_machine(&mut out, results);
    push_systems(&mut out, &results.systems, &results.missing);
    let mut section = "";
    for group in groups {
        let first = group.section != section;
        if first {
            section = &group.section;
            let _ = write!(out, "<h2>{}</h2>", escape(section));
        }
        push_group(&mut out, group, &results.systems, first);
    }
    out += "</html>\n";
    out
}

fn push_head(out: &mut String, results: &Results) {
    let machine = &results.machine;
    let failed = results.runs.iter().filter(|run| run.result.is_err()).count();
    let _ = write!(
        out,
        "<p class=\"faint\">{}, {} core(s), {:.1} GB memory, kernel {} · {} repeat(s), {} \
         measurements, {failed} failed · {}</p>",
        escape(&machine.cpu),
        machine.cores,
        machine.memory_bytes as f64 / 1e9,
        escape(&machine.kernel),
        results.repeats,
        results.runs.len(),
        results.finished,
    );
    if !results.note.is_empty() {
        let _ = write!(out, "<p class=\"note\">{}</p>", escape(&results.note));
    }
    if results.loads.iter().any(|load| *load > machine.cores as f64 * BUSY_LOAD_PER_CORE) {
        let loads: Vec<String> = results.loads.iter().map(|load| format!("{load:.1}")).collect();
        let _ = write!(
            out,
            "<p class=\"note\"><b>Busy machine.</b> Other work was running: the load average before \
             the repeats was {} on {} core(s). Every wait for the disk or for another thread then \
             takes longer than it would, so systems that wait often lose more: neither the numbers \
             nor small ratios tell what an idle machine does. CPU time per message suffers \
             least.</p>",
            loads.join(" and "),
            machine.cores
        );
    }
    *out += "<p>Clients and server share this machine, so every number is that of both together. \
             Each measurement starts its system anew on an empty directory; systems take turns \
             within a repeat. Tables show the median of the repeats, and below it the smallest and \
             largest; bars end at the median, their line spans the range. <b>Filled bars: the disk \
             has the message before the sender has its answer. Pale bars: it does not, which is \
             less work.</b></p>";
}

fn push_machine(out: &mut String, results: &Results) {
    *out += "<h2>What the machine itself does</h2>";
    let Some(first) = results.limits.first() else { return };
    *out += "<p>Measured before each repeat, without any of the systems.</p>\
             <table><tr><th>Limit<th>MB/s<th>p50 µs<th>p99 µs</tr>";
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
        for text in [&system.what, &system.version, &system.guarantee, &system.config] {
            let _ = write!(out, "<td class=\"t\">{}", escape(text));
        }
        let _ = write!(out, "<td class=\"t\"><code>{}</code></tr>", escape(&system.package));
    }
    *out += "</table>";
    if !missing.is_empty() {
        *out += "<p class=\"note\">Left out:<br>";
        *out += &missing.iter().map(|line| escape(line)).collect::<Vec<_>>().join("<br>");
        *out += "</p>";
    }
}

/// A spot in the colour of a system.
pub fn dot(index: usize) -> String {
    format!("<span class=\"dot\" style=\"background:{}\"></span>", plot::colour(index))
}

/// A group with what its parts need to know.
struct View<'a> {
    group: &'a Group,
    systems: &'a [System],
    /// Its cells, equal promises together.
    cells: Vec<&'a Cell>,
    /// The system that all are compared with, and the number.
    base: Option<(&'a Cell, &'static str)>,
}

impl<'a> View<'a> {
    fn new(group: &'a Group, systems: &'a [System]) -> Self {
        let mut view = Self { group, systems, cells: group.cells.iter().collect(), base: None };
        view.cells.sort_by_key(|cell| metric::promise(group, find(systems, cell)));
        let first = systems.first();
        let base = first.and_then(|first| group.cells.iter().find(|c| c.system == first.name));
        view.base = base.zip(metric::main_metric(group));
        view
    }

    fn promise(&self, cell: &Cell) -> Promise {
        metric::promise(self.group, find(self.systems, cell))
    }

    /// Where a system stands among all, which is the number of its colour.
    fn place(&self, cell: &Cell) -> usize {
        self.systems.iter().position(|system| system.name == cell.system).unwrap_or(0)
    }
}

fn find<'a>(systems: &'a [System], cell: &Cell) -> Option<&'a System> {
    systems.iter().find(|system| system.name == cell.system)
}

fn push_group(out: &mut String, group: &Group, systems: &[System], open: bool) {
    let view = View::new(group, systems);
    let _ = write!(out, "<h3>{}</h3>", escape(&group.variant));
    push_table(out, &view);
    push_bars(out, &view);
    let mut curves: Vec<&String> = Vec::new();
    for name in group.cells.iter().flat_map(|cell| cell.curves.keys()) {
        if !curves.contains(&name) {
            curves.push(name);
        }
    }
    if !curves.is_empty() {
        let open = if open { " open" } else { "" };
        let _ = write!(out, "<details{open}><summary>Distributions</summary><div class=\"plots\">");
        for name in curves {
            *out += &curves_of(&view, name);
        }
        *out += "</div></details>";
    }
}

fn push_bars(out: &mut String, view: &View<'_>) {
    *out += "<div class=\"plots\">";
    for name in metric::drawn(view.group) {
        *out += &bars_of(view, name);
    }
    *out += "</div>";
}

fn push_table(out: &mut String, view: &View<'_>) {
    let mut names: Vec<&String> = Vec::new();
    for name in view.cells.iter().flat_map(|cell| cell.metrics.keys()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort_by_key(|name| metric::rank(name));
    *out += "<table><tr><th>System<th>Guarantee";
    if let Some((base, metric)) = view.base {
        let _ =
            write!(out, "<th>In favour of {}<span>{}</span>", escape(&base.system), escape(metric));
    }
    for name in &names {
        let _ = write!(out, "<th>{}", escape(name));
    }
    *out += "<th>Repeats<th>Remarks</tr>";
    for cell in &view.cells {
        push_cell(out, view, cell, &names);
    }
    *out += "</table>";
}

fn push_cell(out: &mut String, view: &View<'_>, cell: &Cell, names: &[&String]) {
    let system = find(view.systems, cell);
    let promised = system.map_or("", |system| system.guarantee.as_str());
    // Most are not; the table of the systems says it of each.
    let promised = promised.strip_prefix("replicated: no; ").unwrap_or(promised);
    let guarantee = if metric::is_stored(view.group) { promised } else { NOT_STORED };
    let class = if cell.succeeded < cell.tried { " class=\"bad\"" } else { "" };
    let _ = write!(
        out,
        "<tr{class}><td class=\"t\">{}{}<td class=\"t g\">{}",
        system.map_or(String::new(), |_| dot(view.place(cell))),
        escape(&cell.system),
        escape(guarantee)
    );
    if let Some((base, name)) = view.base {
        push_advantage(out, base, cell, name);
    }
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

fn push_advantage(out: &mut String, base: &Cell, cell: &Cell, name: &str) {
    let spread = |cell: &Cell| cell.metrics.get(name).copied();
    let found = spread(base)
        .zip(spread(cell))
        .filter(|_| base.system != cell.system)
        .and_then(|(base, other)| Advantage::of(name, base, other));
    let _ = match found {
        Some(found) => write!(out, "<td>{}", found.text()),
        None => write!(out, "<td>–"),
    };
}

fn push_spread(out: &mut String, spread: Option<Spread>) {
    let Some(Spread { min, median, max }) = spread else {
        *out += "<td>–";
        return;
    };
    let _ = write!(out, "<td>{}", number(median));
    if min < max {
        let _ = write!(out, "<span>{} – {}</span>", number(min), number(max));
    }
}

fn bars_of(view: &View<'_>, name: &str) -> String {
    let bar = |cell: &&Cell| {
        let value = cell.metrics.get(name).map(|s| (s.min, s.median, s.max));
        let note = match value {
            Some(_) => String::new(),
            None => cell.remarks.first().map_or_else(|| "not measured".into(), |r| shorten(r)),
        };
        let promise = view.promise(cell);
        Bar {
            name: cell.system.clone(),
            class: promise.words(),
            outlined: promise != Promise::Before,
            value,
            note,
            colour: view.place(cell),
        }
    };
    let bars: Vec<Bar> = view.cells.iter().map(bar).collect();
    plot::bars(name, metric::better(name), &bars)
}

fn shorten(text: &str) -> String {
    const LIMIT: usize = 62;
    match text.char_indices().nth(LIMIT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn curves_of(view: &View<'_>, name: &str) -> String {
    let with: Vec<(&Cell, Latencies)> = view
        .cells
        .iter()
        .filter_map(|cell| {
            let mut latencies = Latencies::default();
            latencies.add_pairs(cell.curves.get(name)?);
            Some((*cell, latencies))
        })
        .collect();
    let slowest = with.iter().filter_map(|(_, l)| l.quantile_us(0.999)).fold(0.0, f64::max);
    let (unit, per_us) = match slowest / 1000.0 < MICROSECONDS_BELOW_MS {
        true => ("µs", 1.0),
        false => ("ms", 1e-3),
    };
    let percentile = |(cell, latencies): &(&Cell, Latencies)| Series {
        name: cell.system.clone(),
        colour: view.place(cell),
        points: CURVE_POINTS
            .iter()
            .filter_map(|p| Some((*p, latencies.quantile_us(p / 100.0)? * per_us)))
            .collect(),
    };
    let histogram = |(cell, _): &(&Cell, Latencies)| Series {
        name: cell.system.clone(),
        colour: view.place(cell),
        points: cell.curves.get(name).map_or(Vec::new(), |pairs| {
            pairs.iter().map(|(ns, count)| (*ns as f64 / 1e3 * per_us, *count as f64)).collect()
        }),
    };
    let curves: Vec<Series> = with.iter().map(percentile).collect();
    let histograms: Vec<Series> = with.iter().map(histogram).collect();
    let title = |kind: &str| format!("{name} latency, {kind}");
    plot::percentiles(&title("percentiles"), unit, &curves)
        + &plot::histogram(&title("distribution"), unit, &histograms)
}
