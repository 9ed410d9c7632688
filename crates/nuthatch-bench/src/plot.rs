//! Plots as SVG text: histograms, percentile curves and bars. Small enough to be written here, so
//! that a report is one file without scripts from elsewhere.

use std::fmt::Write as _;

/// Size of a plot in pixels.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 340.0;

/// Space around the drawing: left, right, top, bottom.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 154.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 48.0;

/// Bins of a histogram.
const BINS: usize = 48;

/// Colours that can be told apart on white and on black, also by people who see few; the rest
/// repeat.
const COLOURS: [&str; 14] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c8c8c", "#b8a800",
    "#7b5fb2", "#a0522d", "#2f9e9e", "#e0559a", "#6b8e23", "#9a6ad6",
];

/// The colour of a series.
pub fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// A named line or set of values. For histograms the points are value and weight.
#[derive(Debug, Clone)]
pub struct Series {
    /// For the legend.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// Number of its colour, so that a system has the same in all plots.
    pub colour: usize,
}

/// A bar with the range of its repetitions.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Its label.
    pub name: String,
    /// What the bars from here to the next one of another class have in common.
    pub class: &'static str,
    /// Whether the bar is only outlined, as a sign that it promises less.
    pub outlined: bool,
    /// Smallest, median and largest of the repetitions; the bar ends at the median.
    pub value: Option<(f64, f64, f64)>,
    /// Words beside it, such as why there is none.
    pub note: String,
    /// Number of its colour.
    pub colour: usize,
}

/// Which end of an axis is the good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Much is good: throughput.
    Higher,
    /// Little is good: latency, CPU time, memory.
    Lower,
}

impl Better {
    /// For readers.
    pub fn words(self) -> &'static str {
        match self {
            Self::Higher => "higher is better",
            Self::Lower => "lower is better",
        }
    }
}

/// Replaces what would end a text in XML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A scale from values to pixels.
#[derive(Debug, Clone, Copy)]
struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    log: bool,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let (from, to, value) = match self.log {
            true => (self.from.log10(), self.to.log10(), value.max(self.from).log10()),
            false => (self.from, self.to, value),
        };
        let part = if to > from { (value - from) / (to - from) } else { 0.0 };
        self.start + part.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Round values for its axis.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let (low, high) = (self.from.log10().floor() as i32, self.to.log10().ceil() as i32);
            let steps: &[f64] = if high - low <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            return (low..=high)
                .flat_map(|exponent| steps.iter().map(move |step| step * 10f64.powi(exponent)))
                .filter(|tick| (self.from * 0.999..=self.to * 1.001).contains(tick))
                .collect();
        }
        let span = (self.to - self.from).max(1e-9);
        let magnitude = 10f64.powf((span / 5.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0];
        let step = steps.iter().map(|s| s * magnitude).find(|s| span / s <= 6.0);
        let step = step.unwrap_or(magnitude * 10.0);
        let mut ticks = Vec::new();
        let mut tick = (self.from / step).ceil() * step;
        while tick <= self.to * 1.0001 {
            ticks.push(tick);
            tick += step;
        }
        ticks
    }
}

/// A number as short as it can be: `1.5k`, `20M`, `0.004`.
pub fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.2}"),
        v => format!("{value:.*}", (1.0 - v.log10().floor()).min(9.0) as usize),
    };
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

struct Canvas {
    svg: String,
}

impl Canvas {
    /// Begins a plot. What has a class may be coloured anew by the page that it is part of.
    fn new(title: &str, remark: &str, height: f64) -> Self {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" font-family=\"system-ui, DejaVu Sans, sans-serif\" \
             font-size=\"12\" fill=\"#222\">\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        let _ = writeln!(
            svg,
            "<text x=\"14\" y=\"22\" font-size=\"14\" font-weight=\"600\">{}</text>\n\
             <text x=\"{:.0}\" y=\"22\" text-anchor=\"end\" class=\"faint\" fill=\"#666\">{}</text>",
            escape(title),
            WIDTH - 12.0,
            escape(remark)
        );
        Self { svg }
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        self.styled_text(x, y, anchor, "", text);
    }

    fn styled_text(&mut self, x: f64, y: f64, anchor: &str, style: &str, text: &str) {
        let _ = writeln!(
            self.svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{}</text>",
            escape(text)
        );
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), style: &str) {
        let _ = writeln!(
            self.svg,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" {style}/>",
            from.0, from.1, to.0, to.1
        );
    }

    fn axes(&mut self, x: &Scale, y: &Scale, x_label: &str, y_label: &str) {
        for tick in x.ticks() {
            self.line((x.at(tick), y.start), (x.at(tick), y.end), GRID);
            self.text(x.at(tick), y.start + 16.0, "middle", &short(tick));
        }
        for tick in y.ticks() {
            self.line((x.start, y.at(tick)), (x.end, y.at(tick)), GRID);
            self.text(x.start - 6.0, y.at(tick) + 4.0, "end", &short(tick));
        }
        self.text((x.start + x.end) / 2.0, y.start + 36.0, "middle", x_label);
        let (cx, cy) = (14.0, (y.start + y.end) / 2.0);
        let _ = writeln!(
            self.svg,
            "<text x=\"{cx}\" y=\"{cy}\" text-anchor=\"middle\" transform=\"rotate(-90 {cx} {cy})\">{}</text>",
            escape(y_label)
        );
    }

    fn polyline(&mut self, points: &[(f64, f64)], colour: &str) {
        let text: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" points=\"{}\"/>",
            text.join(" ")
        );
    }

    fn legend(&mut self, series: &[Series]) {
        for (index, one) in series.iter().enumerate() {
            let y = TOP + 8.0 + 18.0 * index as f64;
            let x = WIDTH - RIGHT + 12.0;
            let style = format!("stroke=\"{}\" stroke-width=\"3\"", colour(one.colour));
            self.line((x, y - 4.0), (x + 18.0, y - 4.0), &style);
            self.text(x + 24.0, y, "start", &one.name);
        }
    }

    fn finish(mut self) -> String {
        self.svg += "</svg>\n";
        self.svg
    }
}

const GRID: &str = "class=\"grid\" stroke=\"#ddd\" stroke-width=\"1\"";

/// Words of lesser weight.
const FAINT: &str = "class=\"faint\" fill=\"#666\"";

fn plot_scale(x: (f64, f64), x_log: bool, y: (f64, f64), y_log: bool) -> (Scale, Scale) {
    let x = Scale { from: x.0, to: x.1, start: LEFT, end: WIDTH - RIGHT, log: x_log };
    let y = Scale { from: y.0, to: y.1, start: HEIGHT - BOTTOM, end: TOP, log: y_log };
    (x, y)
}

/// Part of each series that a histogram shows in full; what is slower stands in the last bin, so
/// that a few stragglers do not squeeze all others into a corner.
const SHOWN_PART: f64 = 0.995;

/// Distributions on a logarithmic scale; the height is the share of each bin.
pub fn histogram(title: &str, unit: &str, series: &[Series]) -> String {
    let values = || series.iter().flat_map(|s| &s.points).map(|(value, _)| value.max(1e-3));
    let low = values().fold(f64::INFINITY, f64::min);
    let most = values().fold(0.0, f64::max);
    let high = series.iter().filter_map(|s| quantile(s, SHOWN_PART)).fold(0.0, f64::max);
    let cut = most > high * 1.05;
    let remark = if cut { "the slowest 0.5 % are in the last bin" } else { "" };
    let mut canvas = Canvas::new(title, remark, HEIGHT);
    if low > most {
        canvas.text(LEFT, TOP + 20.0, "start", "no data");
        return canvas.finish();
    }
    let (low, high) = (low * 0.95, (high * 1.05).max(low * 1.2));
    let binned: Vec<Vec<f64>> = series.iter().map(|s| bins(s, low, high)).collect();
    let top = binned.iter().flatten().copied().fold(0.0, f64::max).max(1e-9);
    let (x, y) = plot_scale((low, high), true, (0.0, top * 1.05), false);
    canvas.axes(&x, &y, unit, "% of messages");
    for (index, bins) in binned.iter().enumerate() {
        canvas.polyline(&steps(bins, low, high, &x, &y), colour(series[index].colour));
    }
    canvas.legend(series);
    canvas.finish()
}

/// The value that this part of the weight does not exceed.
fn quantile(series: &Series, part: f64) -> Option<f64> {
    let mut points = series.points.clone();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = points.iter().map(|(_, weight)| weight).sum::<f64>() * part;
    for (value, weight) in &points {
        left -= weight;
        if left <= 0.0 {
            return Some(*value);
        }
    }
    points.last().map(|(value, _)| *value)
}

/// The share of each bin in percent.
fn bins(series: &Series, low: f64, high: f64) -> Vec<f64> {
    let mut bins = vec![0.0; BINS];
    let total: f64 = series.points.iter().map(|(_, weight)| weight).sum();
    let span = (high / low).log10();
    for (value, weight) in &series.points {
        let part = (value.max(low) / low).log10() / span;
        let bin = ((part * BINS as f64) as usize).min(BINS - 1);
        bins[bin] += weight * 100.0 / total.max(1e-9);
    }
    bins
}

fn steps(bins: &[f64], low: f64, high: f64, x: &Scale, y: &Scale) -> Vec<(f64, f64)> {
    let edge = |bin: usize| low * (high / low).powf(bin as f64 / bins.len() as f64);
    let mut points = vec![(x.at(edge(0)), y.at(0.0))];
    for (bin, share) in bins.iter().enumerate() {
        points.push((x.at(edge(bin)), y.at(*share)));
        points.push((x.at(edge(bin + 1)), y.at(*share)));
    }
    points.push((x.at(edge(bins.len())), y.at(0.0)));
    points
}

/// Percentile curves: the points are percentile (0 to 100) and value. The axis stretches the
/// right end, so that 99, 99.9 and 99.99 % are as far apart as 0 and 90.
pub fn percentiles(title: &str, unit: &str, series: &[Series]) -> String {
    const MARKS: [f64; 7] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999];
    let nines = |percentile: f64| -(1.0 - (percentile / 100.0).min(0.999_99)).log10();
    let values = || series.iter().flat_map(|s| &s.points).map(|(_, value)| value.max(1e-3));
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(0.0, f64::max);
    let mut canvas = Canvas::new(title, Better::Lower.words(), HEIGHT);
    if low > high {
        canvas.text(LEFT, TOP + 20.0, "start", "no data");
        return canvas.finish();
    }
    let last = series.iter().flat_map(|s| &s.points).map(|(p, _)| nines(*p)).fold(0.0, f64::max);
    let (x, y) = plot_scale((0.0, last.max(1.0)), false, (low * 0.9, high * 1.1), true);
    for mark in MARKS.iter().filter(|mark| nines(**mark) <= last + 0.01) {
        let at = x.at(nines(*mark));
        canvas.line((at, y.start), (at, y.end), GRID);
        canvas.text(at, y.start + 16.0, "middle", &format!("{mark}"));
    }
    let axis = Scale { from: 0.0, to: -1.0, start: x.start, end: x.end, log: false };
    canvas.axes(&axis, &y, "percentile", unit);
    for s in series {
        let points: Vec<_> = s.points.iter().map(|(p, v)| (x.at(nines(*p)), y.at(*v))).collect();
        canvas.polyline(&points, colour(s.colour));
    }
    canvas.legend(series);
    canvas.finish()
}

/// Height of a bar with its surroundings, and of the line that names a class.
const BAR_ROW: f64 = 23.0;
const CLASS_ROW: f64 = 24.0;

/// Where bars begin; their names are before.
const BARS_LEFT: f64 = 138.0;

/// Values further apart than this are dots on a logarithmic axis when less is better: on a linear
/// one the good ones could not be told from each other.
const LOG_RATIO: f64 = 30.0;

/// The axis of bars, from nought; or of dots, logarithmic.
fn bar_scale(better: Better, bars: &[Bar]) -> Scale {
    let values = || bars.iter().filter_map(|bar| bar.value);
    let top = values().map(|(_, _, max)| max).fold(0.0, f64::max).max(1e-9);
    let low = values().map(|(min, ..)| min).filter(|min| *min > 0.0).fold(top, f64::min);
    let (start, end) = (BARS_LEFT, WIDTH - 78.0);
    match better == Better::Lower && top / low > LOG_RATIO {
        true => Scale { from: low * 0.7, to: top, start, end, log: true },
        false => Scale { from: 0.0, to: top, start, end, log: false },
    }
}

/// Horizontal bars, one below the other, with the range of the repetitions. Bars of one class
/// belong together below its name.
pub fn bars(title: &str, better: Better, bars: &[Bar]) -> String {
    let new_class = |index: usize| index == 0 || bars[index - 1].class != bars[index].class;
    let classes = (0..bars.len()).filter(|index| new_class(*index)).count();
    let bottom = TOP + BAR_ROW * bars.len() as f64 + CLASS_ROW * classes as f64;
    let x = bar_scale(better, bars);
    let axis = if x.log { ", logarithmic axis" } else { "" };
    let mut canvas = Canvas::new(title, &format!("{}{axis}", better.words()), bottom + 32.0);
    for tick in x.ticks() {
        canvas.line((x.at(tick), TOP), (x.at(tick), bottom), GRID);
        canvas.text(x.at(tick), bottom + 18.0, "middle", &short(tick));
    }
    let mut y = TOP;
    for (index, bar) in bars.iter().enumerate() {
        if new_class(index) {
            let style = format!("{FAINT} font-style=\"italic\"");
            canvas.styled_text(14.0, y + 16.0, "start", &style, bar.class);
            y += CLASS_ROW;
        }
        canvas.bar(&x, y, bar);
        y += BAR_ROW;
    }
    canvas.finish()
}

impl Canvas {
    fn bar(&mut self, x: &Scale, y: f64, bar: &Bar) {
        self.text(BARS_LEFT - 8.0, y + 15.0, "end", &bar.name);
        let Some((min, median, max)) = bar.value else {
            self.styled_text(BARS_LEFT + 6.0, y + 15.0, "start", FAINT, &bar.note);
            return;
        };
        let style = format!(
            "fill=\"{0}\" fill-opacity=\"{1}\" stroke=\"{0}\"",
            colour(bar.colour),
            if bar.outlined { 0.25 } else { 0.9 }
        );
        let _ = match x.log {
            true => writeln!(
                self.svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"6\" {style}/>",
                x.at(median),
                y + BAR_ROW / 2.0
            ),
            false => writeln!(
                self.svg,
                "<rect x=\"{BARS_LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" {style}/>",
                y + 3.5,
                (x.at(median) - BARS_LEFT).max(0.5),
                BAR_ROW - 7.0
            ),
        };
        if min < max {
            let middle = y + BAR_ROW / 2.0;
            let style = "class=\"range\" stroke=\"#111\" stroke-width=\"1.5\"";
            self.line((x.at(min), middle), (x.at(max), middle), style);
        }
        let text = format!("{} {}", short(median), bar.note);
        let gap = if x.log { 11.0 } else { 6.0 };
        self.text(x.at(max.max(median)) + gap, y + 15.0, "start", text.trim());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers() {
        for (value, text) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (100.0, "100"),
            (9999.0, "9999"),
            (12_345.0, "12.35k"),
            (2e6, "2M"),
            (0.25, "0.25"),
            (0.005, "0.005"),
            (0.0123, "0.012"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn a_histogram_holds_everything_that_was_measured() {
        let points = (1..=1000).map(|v| (f64::from(v), 1.0)).collect();
        let series = Series { name: "a & b".into(), points, colour: 0 };
        let share: f64 = bins(&series, 0.95, 1050.0).iter().sum();
        assert!((share - 100.0).abs() < 1e-6, "{share}");
        let svg = histogram("t <x>", "µs", &[series]);
        assert!(svg.contains("a &amp; b") && svg.contains("t &lt;x&gt;"));
        assert!(histogram("t", "µs", &[]).contains("no data"));
    }

    #[test]
    fn stragglers_do_not_stretch_a_histogram() {
        let mut points: Vec<(f64, f64)> = (1..=1000).map(|v| (f64::from(v), 1.0)).collect();
        points.push((1e6, 1.0));
        let series = Series { name: "x".into(), points, colour: 0 };
        assert_eq!(quantile(&series, 0.5), Some(501.0));
        assert_eq!(quantile(&series, SHOWN_PART), Some(996.0));
        let share: f64 = bins(&series, 0.95, 1050.0).iter().sum();
        assert!((share - 100.0).abs() < 1e-6, "nothing is left out: {share}");
        assert!(histogram("t", "µs", &[series]).contains("last bin"));
    }

    #[test]
    fn axes_have_a_few_round_ticks() {
        let linear = Scale { from: 0.0, to: 873.0, start: 0.0, end: 1.0, log: false };
        assert_eq!(linear.ticks(), [0.0, 200.0, 400.0, 600.0, 800.0]);
        let log = Scale { from: 9.0, to: 2e5, start: 0.0, end: 1.0, log: true };
        assert_eq!(log.ticks(), [10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
        assert!((log.at(9.0) - 0.0).abs() < 1e-9 && (log.at(2e5) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_failed_bar_says_why_and_classes_are_named_once() {
        let bar = |value, note: &str, class| Bar {
            name: "x".into(),
            class,
            outlined: false,
            value,
            note: note.into(),
            colour: 0,
        };
        let svg = bars(
            "msgs/s",
            Better::Higher,
            &[
                bar(None, "FAILED: gone", "first class"),
                bar(Some((1.0, 2.0, 3.0)), "", "first class"),
                bar(Some((1.0, 2.0, 3.0)), "", "second class"),
            ],
        );
        assert!(svg.contains("FAILED: gone") && svg.contains("higher is better"));
        let count = |text: &str| svg.matches(text).count();
        assert_eq!((count("first class"), count("second class")), (1, 1));
    }
}
