//! Plots as SVG: plain shapes and text, no scripts, no other files.
//!
//! Colours are of Okabe and Ito's set for all kinds of colour vision, those with a contrast of 3 to 1 against white; what
//! is told apart by colour is told apart by a label or a mark as well. Text is dark on white.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 40.0;
const HEIGHT: f64 = 240.0;
/// Blue, vermilion, green, purple, grey.
const COLORS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#a8578c", "#5a5a5a"];
const TEXT: &str = "#1a1a1a";

/// Named values: one for each group or place, `None` where there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// The values.
    pub values: Vec<Option<f64>>,
}

/// A stretch of time in a lane of a timeline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// Which lane.
    pub lane: usize,
    /// Seconds at its start.
    pub start_s: f64,
    /// Seconds at its end.
    pub end_s: f64,
}

/// Text fit for HTML and SVG.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A drawing under way.
struct Drawing {
    body: String,
    height: f64,
}

impl Drawing {
    fn new(height: f64) -> Self {
        Self { body: String::new(), height }
    }

    // Writing to a string cannot fail, here and below.
    fn text(&mut self, x: f64, y: f64, anchor: &str, size: f64, text: &str) {
        let text = escape(text);
        let _ = write!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{TEXT}\">{text}</text>"
        );
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        let (width, height) = (width.max(0.0), height.max(0.0));
        let _ = write!(
            self.body,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\"/>"
        );
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64) {
        let _ = write!(
            self.body,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{stroke}\" stroke-width=\"{width}\" fill=\"none\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A mark of series `number`: a circle, square, diamond or triangle.
    fn mark(&mut self, x: f64, y: f64, number: usize) {
        let path = match number % 4 {
            0 => format!("M{} {y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", x - 4.0),
            1 => format!("M{} {}h8v8h-8z", x - 4.0, y - 4.0),
            2 => format!("M{x} {}l5 5l-5 5l-5 -5z", y - 5.0),
            _ => format!("M{x} {}l5 9h-10z", y - 5.0),
        };
        let _ = write!(self.body, "<path d=\"{path}\" fill=\"{}\"/>", color(number));
    }

    fn legend(&mut self, names: &[String], marks: bool) {
        let mut x = LEFT;
        for (number, name) in names.iter().enumerate() {
            if marks {
                self.mark(x + 5.0, 26.0, number);
            } else {
                self.rect(x, 21.0, 11.0, 11.0, color(number));
            }
            self.text(x + 16.0, 31.0, "start", 12.0, name);
            x += 34.0 + 6.6 * name.chars().count() as f64;
        }
    }

    /// Horizontal lines with their values from `low` to `high`.
    fn scale(&mut self, low: f64, high: f64, unit: &str) -> impl Fn(f64) -> f64 + use<> {
        let step = step(high - low);
        let y = move |value: f64| TOP + HEIGHT * (1.0 - (value - low) / (high - low));
        let decimals = if step >= 1.0 { 0 } else { (-step.log10()).ceil() as usize };
        for i in (low / step).round() as i64..=(high / step).round() as i64 {
            let value = i as f64 * step;
            self.line((LEFT, y(value)), (WIDTH - RIGHT, y(value)), if i == 0 { "#555" } else { "#ddd" }, 1.0);
            self.text(LEFT - 6.0, y(value) + 4.0, "end", 12.0, &format!("{value:.decimals$}"));
        }
        self.text(LEFT - 6.0, TOP - 9.0, "end", 12.0, unit);
        y
    }

    fn finish(self, title: &str) -> String {
        let (height, body, title) = (self.height, self.body, escape(title));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"system-ui,sans-serif\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\
             <text x=\"{LEFT}\" y=\"14\" font-size=\"13\" font-weight=\"600\" fill=\"{TEXT}\">{title}</text>{body}</svg>"
        )
    }
}

fn color(number: usize) -> &'static str {
    COLORS[number % COLORS.len()]
}

/// A round step that divides a range into about five.
fn step(range: f64) -> f64 {
    let raw = (range / 5.0).max(1e-9);
    let magnitude = 10_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * magnitude >= raw * 0.999).unwrap_or(10.0);
    factor * magnitude
}

/// The round range around values and 0.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((0.0_f64, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let high = if high - low <= 0.0 { 1.0 } else { high };
    let step = step(high - low);
    ((low / step).floor() * step, (high / step).ceil() * step)
}

/// A number short enough to stand on a bar.
fn short(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Bars in groups, one of each series, with their values on top. Where there is no value there is no bar.
#[must_use]
pub fn grouped_bars(title: &str, unit: &str, groups: &[String], series: &[Series]) -> String {
    let mut drawing = Drawing::new(TOP + HEIGHT + 28.0);
    let (low, high) = range(series.iter().flat_map(|series| series.values.iter().flatten().copied()));
    let y = drawing.scale(low, high, unit);
    let names: Vec<String> = series.iter().map(|series| series.name.clone()).collect();
    drawing.legend(&names, false);
    let group_width = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let bar_width = group_width * 0.84 / series.len().max(1) as f64;
    for (i, group) in groups.iter().enumerate() {
        let left = LEFT + i as f64 * group_width;
        drawing.text(left + group_width / 2.0, TOP + HEIGHT + 18.0, "middle", 12.0, group);
        for (number, series) in series.iter().enumerate() {
            let Some(&Some(value)) = series.values.get(i) else { continue };
            let x = left + group_width * 0.08 + number as f64 * bar_width;
            let (top, bottom) = (y(value.max(0.0)), y(value.min(0.0)));
            drawing.rect(x + 1.0, top, bar_width - 2.0, bottom - top, color(number));
            let size = (bar_width / 3.2).clamp(7.0, 11.0);
            drawing.text(x + bar_width / 2.0, top - 3.0, "middle", size, &short(value));
        }
    }
    drawing.finish(title)
}

/// A line for each series over the places of `xs`, with marks. A gap where there is no value.
#[must_use]
pub fn lines(title: &str, unit: &str, x_name: &str, xs: &[f64], series: &[Series]) -> String {
    let mut drawing = Drawing::new(TOP + HEIGHT + 44.0);
    let (low, high) = range(series.iter().flat_map(|series| series.values.iter().flatten().copied()));
    let y = drawing.scale(low, high, unit);
    let names: Vec<String> = series.iter().map(|series| series.name.clone()).collect();
    drawing.legend(&names, true);
    let last = xs.iter().copied().fold(1.0, f64::max);
    let x = |value: f64| LEFT + 12.0 + (WIDTH - LEFT - RIGHT - 24.0) * value / last;
    for &place in xs {
        drawing.text(x(place), TOP + HEIGHT + 18.0, "middle", 12.0, &place.to_string());
    }
    drawing.text(WIDTH / 2.0, TOP + HEIGHT + 36.0, "middle", 12.0, x_name);
    for (number, series) in series.iter().enumerate() {
        let points: Vec<Option<(f64, f64)>> =
            xs.iter().zip(&series.values).map(|(&place, value)| value.map(|value| (x(place), y(value)))).collect();
        for pair in points.windows(2) {
            if let [Some(from), Some(to)] = *pair {
                drawing.line(from, to, color(number), 2.0);
            }
        }
        for &(x, y) in points.iter().flatten() {
            drawing.mark(x, y, number);
        }
    }
    drawing.finish(title)
}

/// Rows of values from 0 to 1 over time, as colours from light to dark.
#[must_use]
pub fn heat_map(title: &str, rows: &[(String, &[f32])], interval_s: f64) -> String {
    const MOST_COLUMNS: usize = 240;
    let row_height = (480.0 / rows.len().max(1) as f64).clamp(4.0, 22.0);
    let bottom = TOP + rows.len() as f64 * row_height;
    let mut drawing = Drawing::new(bottom + 42.0);
    let left = LEFT + 20.0;
    let samples = rows.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    // Neighbours share a column where there are more samples than columns.
    let chunk = samples.div_ceil(MOST_COLUMNS).max(1);
    let width = (WIDTH - left - RIGHT) / samples.div_ceil(chunk).max(1) as f64;
    for (i, (name, values)) in rows.iter().enumerate() {
        let top = TOP + i as f64 * row_height;
        // Names of every row only where they have room.
        if row_height >= 10.0 || i.is_multiple_of(8) {
            drawing.text(left - 6.0, top + row_height / 2.0 + 4.0, "end", 11.0, name);
        }
        for (column, chunk) in values.chunks(chunk).enumerate() {
            let mean = chunk.iter().sum::<f32>() / chunk.len() as f32;
            drawing.rect(left + column as f64 * width, top, width + 0.3, row_height - 1.0, &shade(f64::from(mean)));
        }
    }
    let seconds = samples as f64 * interval_s;
    for (share, anchor) in [(0.0, "start"), (0.5, "middle"), (1.0, "end")] {
        let x = left + (WIDTH - left - RIGHT) * share;
        drawing.text(x, bottom + 16.0, anchor, 12.0, &format!("{} s", short(seconds * share)));
    }
    for i in 0..=10 {
        drawing.rect(left + 44.0 + f64::from(i) * 14.0, bottom + 24.0, 14.0, 12.0, &shade(f64::from(i) / 10.0));
    }
    drawing.text(left + 38.0, bottom + 34.0, "end", 12.0, "idle");
    drawing.text(left + 206.0, bottom + 34.0, "start", 12.0, "busy");
    drawing.finish(title)
}

/// From nearly white to a dark blue, darkening evenly, so that it reads without colour too.
fn shade(value: f64) -> String {
    let value = value.clamp(0.0, 1.0);
    let mix = |light: f64, dark: f64| (light + (dark - light) * value).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(238.0, 8.0), mix(243.0, 48.0), mix(248.0, 107.0))
}

/// Stretches of time in named lanes, from 0 to the last end.
#[must_use]
pub fn timeline(title: &str, lanes: &[&str], stretches: &[Stretch]) -> String {
    const LANE: f64 = 30.0;
    let bottom = TOP + lanes.len() as f64 * LANE;
    let mut drawing = Drawing::new(bottom + 24.0);
    let end = stretches.iter().map(|stretch| stretch.end_s).fold(0.0, f64::max).max(1e-9);
    let x = |seconds: f64| LEFT + (WIDTH - LEFT - RIGHT) * seconds / end;
    for (i, lane) in lanes.iter().enumerate() {
        let top = TOP + i as f64 * LANE;
        drawing.text(LEFT - 8.0, top + LANE / 2.0 + 4.0, "end", 12.0, lane);
        drawing.line((LEFT, top + LANE - 2.0), (WIDTH - RIGHT, top + LANE - 2.0), "#ddd", 1.0);
    }
    for stretch in stretches {
        let (left, right) = (x(stretch.start_s), x(stretch.end_s));
        let top = TOP + stretch.lane as f64 * LANE + 4.0;
        // A gap between neighbours, unless that would leave nothing.
        let width = if right - left > 3.0 { right - left - 0.8 } else { (right - left).max(0.4) };
        drawing.rect(left, top, width, LANE - 8.0, color(stretch.lane));
    }
    for (share, anchor) in [(0.0, "start"), (0.5, "middle"), (1.0, "end")] {
        drawing.text(x(end * share), bottom + 16.0, anchor, 12.0, &format!("{} s", short(end * share)));
    }
    drawing.finish(title)
}

/// How many waits were how long: seconds, in classes that double from 0.1 ms.
#[must_use]
pub fn histogram(title: &str, seconds: &[f64]) -> String {
    const CLASSES: usize = 16;
    let mut counts = [0_u32; CLASSES];
    for wait in seconds {
        let class = if *wait < 1e-4 { 0 } else { (wait / 1e-4).log2().floor() as usize + 1 };
        counts[class.min(CLASSES - 1)] += 1;
    }
    let last = counts.iter().rposition(|&count| count > 0).unwrap_or(0).max(3);
    let mut drawing = Drawing::new(TOP + HEIGHT + 44.0);
    let (low, high) = range(counts.iter().map(|&count| f64::from(count)));
    let y = drawing.scale(low, high, "batches");
    let width = (WIDTH - LEFT - RIGHT) / (last + 1) as f64;
    for (class, &count) in counts[..=last].iter().enumerate() {
        let x = LEFT + class as f64 * width;
        drawing.rect(x + 2.0, y(f64::from(count)), width - 4.0, y(0.0) - y(f64::from(count)), color(0));
        if count > 0 {
            drawing.text(x + width / 2.0, y(f64::from(count)) - 3.0, "middle", 11.0, &count.to_string());
        }
        let to_ms = 0.1 * f64::from(1_u32 << class);
        let label = if class + 1 == CLASSES { "more".to_owned() } else { format!("< {}", short_ms(to_ms)) };
        drawing.text(x + width / 2.0, TOP + HEIGHT + 18.0, "middle", 11.0, &label);
    }
    drawing.text(WIDTH / 2.0, TOP + HEIGHT + 36.0, "middle", 12.0, "wait for a batch, ms");
    drawing.finish(title)
}

fn short_ms(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, values: &[Option<f64>]) -> Series {
        Series { name: name.to_owned(), values: values.to_vec() }
    }

    #[test]
    fn scales_are_round_and_hold_all_values() {
        for (values, want) in [
            (vec![0.0, 77.82], (0.0, 80.0)),
            (vec![3.0], (0.0, 3.0)),
            (vec![-12.0, 71.0], (-20.0, 80.0)),
            (vec![], (0.0, 1.0)),
            (vec![0.013], (0.0, 0.015)),
        ] {
            let (low, high) = range(values.iter().copied());
            assert!((low - want.0).abs() < 1e-9 && (high - want.1).abs() < 1e-9, "{values:?}: {low} to {high}");
        }
    }

    #[test]
    fn bars_are_as_high_as_their_values_and_missing_ones_are_not_there() {
        let groups = ["1".to_owned(), "12".to_owned()];
        let svg =
            grouped_bars("t", "s", &groups, &[series("a", &[Some(10.0), Some(5.0)]), series("b", &[None, Some(2.5)])]);
        let heights: Vec<f64> = svg
            .split("<rect ")
            .skip(2) // What comes before, and the background.
            .filter(|rect| !rect.contains("y=\"21.00\""))
            .map(|rect| rect.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(heights, [HEIGHT, HEIGHT / 2.0, HEIGHT / 4.0]);
    }

    #[test]
    fn waits_are_counted_in_doubling_classes() {
        let svg = histogram("t", &[0.00005, 0.00015, 0.00015, 0.0003, 9999.0]);
        for label in ["&lt; 0.1<", "&lt; 0.2<", ">more<"] {
            assert!(svg.contains(label), "{label}");
        }
        assert_eq!(svg.matches(">1</text>").count(), 3, "three classes of one");
    }

    #[test]
    fn nothing_to_show_is_shown_as_nothing() {
        for svg in [
            grouped_bars("t", "s", &[], &[]),
            lines("t", "%", "load", &[], &[]),
            heat_map("t", &[], 0.1),
            timeline("t", &[], &[]),
            histogram("t", &[]),
        ] {
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>") && !svg.contains("NaN"), "{svg}");
        }
        assert!(heat_map("<&>", &[("x".into(), &[])], 0.1).contains("&lt;&amp;&gt;"));
    }
}
