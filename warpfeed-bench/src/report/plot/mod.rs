//! Plots as SVG: plain shapes and text, without scripts or other files. Each plot has its figures in words too, for
//! screen readers.
//!
//! Plots are 440 units wide with text of 12 and 13: on a phone of 360 pixels that is text of 9, and in a browser two
//! plots fit beside each other. So long names wrap or are cut off, values stand upright on narrow bars, and bars with
//! long names are horizontal. A bar that would dwarf the rest is cut, and says so; a logarithmic scale would hide how
//! little the others differ.
//!
//! Colors are of Okabe and Ito's set for all kinds of color vision, darkened to a contrast of 3 to 1 with white; a test
//! computes contrast and distinctness. Whatever differs in color also differs in a label or a mark. Text is dark on
//! white. Vermilion is what was published, and nothing else: a series or bar whose name says so. A highlighted bar is
//! blue among gray ones.

mod drawing;
mod pictures;
mod time;

use crate::spread::Spread;
pub use drawing::escape;
use drawing::{
    BESIDE, COLORS, Drawing, PUBLISHED, RIGHT, SMALL, TEXT, WIDTH, colors, cut_off, is_published, range, short, widest,
    width,
};
pub use pictures::{Picture, pictures};
pub use time::{Stretch, heat_map, histogram, timeline};

/// A bar that is more than this many times as long as the next one is cut.
const CUT: f64 = 4.0;

/// Named values, one for each group or place; `None` if there is no value.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// The values.
    pub values: Vec<Option<f64>>,
    /// Error bar of each value, from low to high. As long as `values`, or empty.
    pub intervals: Vec<Option<(f64, f64)>>,
}

impl Series {
    /// A series without error bars.
    #[must_use]
    pub fn new(name: impl Into<String>, values: Vec<Option<f64>>) -> Self {
        Self { name: name.into(), values, intervals: Vec::new() }
    }

    /// A series of medians with error bars.
    #[must_use]
    pub fn spread(name: impl Into<String>, values: &[Option<Spread>]) -> Self {
        let of = |value: &Option<Spread>| value.map(|value| (value.low, value.high));
        let intervals = values.iter().map(of).collect();
        Self { intervals, ..Self::new(name, values.iter().map(|value| value.map(|value| value.median)).collect()) }
    }

    /// Whether there is any value.
    #[must_use]
    pub fn has_values(&self) -> bool {
        self.values.iter().any(Option::is_some)
    }

    fn interval(&self, i: usize) -> Option<(f64, f64)> {
        self.intervals.get(i).copied().flatten()
    }
}

/// Range that a scale includes at least. Plots that are to be compared share one.
pub type Range = (f64, f64);

/// Default range: the scale depends on the plot's own values.
pub const OWN: Range = (0.0, 0.0);

/// The range of all values of series, their error bars, and 0.
#[must_use]
pub fn extent(series: &[Series]) -> Range {
    let ends = series.iter().flat_map(|series| series.intervals.iter().flatten().flat_map(|&(from, to)| [from, to]));
    let values = series.iter().flat_map(|series| series.values.iter().flatten().copied());
    values.chain(ends).fold(OWN, |(low, high), value| (low.min(value), high.max(value)))
}

/// A bar with its own name.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Name in front of the bar.
    pub name: String,
    /// Length of the bar, 0 or more.
    pub value: f64,
    /// Error bar, from low to high.
    pub interval: Option<(f64, f64)>,
    /// Whether the bar is highlighted.
    pub marked: bool,
}

/// A line across a plot: the most, or the least, that its values can reach, or must.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// Meaning of the line.
    pub name: String,
    /// Place of the line.
    pub value: f64,
}

impl Limit {
    fn words(&self, unit: &str) -> String {
        format!("{}: {} {unit}", self.name, short(self.value)).trim_end().to_owned()
    }
}

/// The values of series at named places, as text.
fn in_words(places: &[String], of: &str, series: &[Series], unit: &str) -> String {
    let of = if of.is_empty() { String::new() } else { format!("{of} ") };
    let one = |series: &Series| {
        let values = places.iter().zip(&series.values).map(|(place, value)| {
            let value = value.map_or_else(|| "none".to_owned(), |value| format!("{} {unit}", short(value)));
            format!("{of}{place}: {}", value.trim_end())
        });
        format!("{}: {}.", series.name, values.collect::<Vec<_>>().join("; "))
    };
    series.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// A plot of bars in groups, one bar per series, with values on top. A missing value has no bar. `of`: title of the
/// groups' names.
#[must_use]
pub fn grouped_bars(
    title: &str,
    unit: &str,
    of: &str,
    groups: &[String],
    series: &[Series],
    at_least: Range,
) -> String {
    grouped_bars_with_limit(title, unit, of, groups, series, at_least, None)
}

/// A plot as [`grouped_bars`] makes it, with a line across the bars.
#[must_use]
pub fn grouped_bars_with_limit(
    title: &str,
    unit: &str,
    of: &str,
    groups: &[String],
    series: &[Series],
    at_least: Range,
    limit: Option<&Limit>,
) -> String {
    let mut drawing = Drawing::new(title);
    drawing.legend(series, false);
    if let Some(limit) = limit {
        drawing.limit_legend(&limit.words(unit));
    }
    let values = || series.iter().flat_map(|series| series.values.iter().flatten().copied());
    let labels: Vec<String> = values().map(short).collect();
    let longest = widest(labels.iter().map(String::as_str), SMALL);
    // The scale's own labels take about a tenth of the width.
    let about = (WIDTH * 0.88 - RIGHT) / groups.len().max(1) as f64 * 0.84 / series.len().max(1) as f64;
    let upright = longest > about;
    drawing.top += if upright { longest } else { 12.0 };
    let (low, high) = extent(series);
    let line = limit.map_or(0.0, |limit| limit.value);
    let (low, high) = range([low, high, at_least.0, at_least.1, line].into_iter());
    let (y, left) = drawing.scale(low, high, unit);
    let colors = colors(series);
    let group_width = (WIDTH - left - RIGHT) / groups.len().max(1) as f64;
    let bar_width = group_width * 0.84 / series.len().max(1) as f64;
    for i in 0..groups.len() {
        for (number, series) in series.iter().enumerate() {
            let Some(&Some(value)) = series.values.get(i) else { continue };
            let x = left + group_width * (i as f64 + 0.08) + number as f64 * bar_width;
            let (top, bottom) = (y(value.max(0.0)), y(value.min(0.0)));
            let gap = (bar_width / 10.0).min(1.0);
            drawing.rect(x + gap, top, bar_width - 2.0 * gap, bottom - top, colors[number]);
            let (middle, mut above) = (x + bar_width / 2.0, top);
            if let Some((from, to)) = series.interval(i) {
                drawing.error_bar((middle, y(from)), (middle, y(to)));
                above = above.min(y(to));
            }
            drawing.on_bar(middle, above - 3.0, bar_width, upright, &short(value));
        }
    }
    if let Some(limit) = limit {
        drawing.dashed_line((left, y(limit.value)), (WIDTH - RIGHT, y(limit.value)), TEXT, 1.5);
    }
    let middle = |i: usize| left + group_width * (i as f64 + 0.5);
    drawing.places(groups.iter().enumerate().map(|(i, group)| (middle(i), group.clone())), group_width, of);
    let limit = limit.map_or_else(String::new, |limit| format!(" {}.", limit.words(unit)));
    drawing.finish(&(in_words(groups, of, series, unit) + &limit))
}

/// A plot of horizontal bars, with names before and values after them. A bar that would dwarf all others is cut, and
/// says so.
#[must_use]
pub fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    bars_with_limit(title, unit, bars, None)
}

/// A plot as [`bars`] makes it, with a line across the bars.
#[must_use]
pub fn bars_with_limit(title: &str, unit: &str, bars: &[Bar], line: Option<&Limit>) -> String {
    const ROW: f64 = 24.0;
    let mut drawing = Drawing::new(title);
    if let Some(line) = line {
        drawing.limit_legend(&line.words(unit));
    }
    let first = drawing.top;
    let mut values: Vec<f64> = bars.iter().map(|bar| bar.value).collect();
    values.sort_by(f64::total_cmp);
    // The scale ends at the second largest value or later, so at least one bar is drawn in full.
    let limit = match values[..] {
        [.., second, largest] if second > 0.0 && largest > CUT * second => second * 1.2,
        [.., largest] => largest,
        [] => 0.0,
    };
    let limit = line.map_or(limit, |line| limit.max(line.value));
    let label = |bar: &Bar| {
        let cut = if bar.value > limit { ", bar cut" } else { "" };
        format!("{} {unit}{cut}", short(bar.value))
    };
    let labels: Vec<String> = bars.iter().map(label).collect();
    let names: Vec<String> = bars.iter().map(|bar| cut_off(&bar.name, SMALL, 0.62 * WIDTH)).collect();
    let left = widest(names.iter().map(String::as_str), SMALL) + 10.0;
    let room = WIDTH - RIGHT - left - widest(labels.iter().map(String::as_str), SMALL) - 6.0;
    let some_are_marked = bars.iter().any(|bar| bar.marked);
    for ((bar, name), label) in bars.iter().zip(&names).zip(&labels) {
        let (top, length) = (drawing.top, room * bar.value.min(limit) / limit.max(f64::MIN_POSITIVE));
        drawing.text(left - 6.0, top + 16.0, "end", SMALL, name);
        let color = match () {
            () if is_published(&bar.name) => PUBLISHED,
            () if some_are_marked && !bar.marked => BESIDE,
            () => COLORS[0],
        };
        drawing.rect(left, top + 3.0, length.max(1.0), ROW - 6.0, color);
        if bar.value > limit {
            drawing.line((left + length - 14.0, top + ROW - 2.0), (left + length - 8.0, top + 2.0), "#ffffff", 3.0);
        }
        let mut end = left + length;
        if let Some((from, to)) = bar.interval.filter(|_| bar.value <= limit) {
            let x = |value: f64| left + (room * value / limit.max(f64::MIN_POSITIVE)).min(room);
            drawing.error_bar((x(from), top + ROW / 2.0), (x(to), top + ROW / 2.0));
            end = end.max(x(to));
        }
        drawing.text(end + 6.0, top + 16.0, "start", SMALL, label);
        drawing.top += ROW;
    }
    if let Some(line) = line {
        let x = left + room * line.value / limit.max(f64::MIN_POSITIVE);
        let last = drawing.top;
        drawing.dashed_line((x, first), (x, last), TEXT, 1.5);
    }
    let words = bars.iter().zip(&labels).map(|(bar, label)| format!("{}: {label}.", bar.name));
    let words = words.chain(line.map(|line| format!("{}.", line.words(unit))));
    drawing.finish(&words.collect::<Vec<_>>().join(" "))
}

/// A plot with a line for each series over the places `xs`, with marks; the lines of published ones are dashed. A
/// missing value leaves a gap.
#[must_use]
pub fn lines(title: &str, unit: &str, of: &str, xs: &[f64], series: &[Series], at_least: Range) -> String {
    lines_with_limits(title, unit, of, xs, series, at_least, &[])
}

/// A plot as [`lines`] makes it, with a line across it for each limit.
#[must_use]
pub fn lines_with_limits(
    title: &str,
    unit: &str,
    of: &str,
    xs: &[f64],
    series: &[Series],
    at_least: Range,
    limits: &[Limit],
) -> String {
    let mut drawing = Drawing::new(title);
    drawing.legend(series, true);
    let (low, high) = extent(series);
    let values = limits.iter().map(|limit| limit.value).chain([low, high, at_least.0, at_least.1]);
    let (low, high) = range(values);
    let (y, left) = drawing.scale(low, high, unit);
    for Limit { name, value } in limits {
        drawing.dashed_line((left, y(*value)), (WIDTH - RIGHT, y(*value)), TEXT, 1.5);
        // Where no line begins yet.
        drawing.text(left + 4.0, y(*value) - 4.0, "start", SMALL, name);
    }
    let last = xs.iter().copied().fold(1.0, f64::max);
    let x = |value: f64| left + 12.0 + (WIDTH - left - RIGHT - 24.0) * value / last;
    for ((number, series), color) in series.iter().enumerate().zip(colors(series)) {
        for (i, &place) in xs.iter().enumerate() {
            if let Some((from, to)) = series.interval(i) {
                drawing.error_bar((x(place), y(from)), (x(place), y(to)));
            }
        }
        let points: Vec<Option<(f64, f64)>> =
            xs.iter().zip(&series.values).map(|(&place, value)| value.map(|value| (x(place), y(value)))).collect();
        for pair in points.windows(2) {
            match *pair {
                [Some(from), Some(to)] if color == PUBLISHED => drawing.dashed_line(from, to, color, 2.0),
                [Some(from), Some(to)] => drawing.line(from, to, color, 2.0),
                _ => {}
            }
        }
        for &(x, y) in points.iter().flatten() {
            drawing.mark(x, y, number, color);
        }
    }
    // If names would overlap, the later ones are left out.
    let mut named: Vec<f64> = Vec::new();
    for &place in xs {
        let needs = width(&place.to_string(), SMALL) + 4.0;
        if named.iter().all(|&other| (x(place) - x(other)).abs() >= needs) {
            named.push(place);
        }
    }
    drawing.places(named.iter().map(|&place| (x(place), place.to_string())), WIDTH, of);
    let places: Vec<String> = xs.iter().map(f64::to_string).collect();
    let mut words = in_words(&places, of, series, unit);
    limits.iter().for_each(|limit| words += &format!(" {}.", limit.words(unit)));
    drawing.finish(&words)
}

#[cfg(test)]
mod tests {
    use super::drawing::*;
    use super::time::classes;
    use super::*;

    fn series(name: &str, values: &[Option<f64>]) -> Series {
        Series::new(name, values.to_vec())
    }

    fn bar(name: &str, value: f64) -> Bar {
        Bar { name: name.to_owned(), value, interval: None, marked: false }
    }

    /// An attribute's numbers, of every element of a kind.
    fn numbers(svg: &str, element: &str, attribute: &str) -> Vec<f64> {
        let start = format!("<{element} ");
        let elements = svg.split(&start[..]).skip(1);
        let value = |element: &str| element.split(&format!("{attribute}=\"")).nth(1)?.split('"').next()?.parse().ok();
        elements.filter_map(value).collect()
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
        let both = [series("a", &[Some(10.0), Some(5.0)]), series("b", &[None, Some(2.5)])];
        let svg = grouped_bars("t", "s", "load", &groups, &both, OWN);
        // The first rectangles are the background and the legend.
        assert_eq!(numbers(&svg, "rect", "height")[3..], [HEIGHT, HEIGHT / 2.0, HEIGHT / 4.0]);
        assert!(svg.contains("<desc>a: load 1: 10.0 s; load 12: 5.00 s. b: load 1: none; load 12: 2.50 s.</desc>"));
    }

    #[test]
    fn error_bars_go_from_end_to_end() {
        let spread = Spread::of(&[2.0, 3.0, 4.0]);
        let series = [Series::spread("a", &[spread, None])];
        let svg = grouped_bars("t", "s", "", &["x".to_owned(), "y".to_owned()], &series, OWN);
        let values = [Series::new("a", vec![Some(4.0), None])];
        let plain = grouped_bars("t", "s", "", &["x".to_owned(), "y".to_owned()], &values, OWN);
        let strokes = |svg: &str| svg.matches(&format!("stroke=\"{TEXT}\"")).count();
        assert_eq!((strokes(&svg), strokes(&plain)), (3, 0), "{svg}");
        let one = Bar { interval: Some((2.0, 4.0)), ..bar("a", 3.0) };
        assert_eq!(strokes(&bars("t", "s", &[one, bar("b", 4.0)])), 3);
        assert_eq!(strokes(&lines("t", "s", "", &[1.0, 2.0], &series, OWN)), 3);
    }

    #[test]
    fn what_was_published_has_a_color_of_its_own() {
        let both = [series("A", &[Some(1.0), Some(2.0)]), series("A, published", &[Some(1.0), Some(1.9)])];
        let svg = lines("t", "x", "load", &[1.0, 12.0], &both, OWN);
        assert_eq!((svg.matches(COLORS[1]).count(), svg.matches("stroke-dasharray").count()), (0, 1), "{svg}");
        let marked = Bar { marked: true, ..bar("chosen", 1.0) };
        let svg = bars("t", "x", &[marked, bar("other", 0.5), bar("published", 35.0)]);
        let count = |color: &str| svg.matches(&format!("fill=\"{color}\"")).count();
        assert_eq!([COLORS[0], BESIDE, PUBLISHED].map(count), [1, 1, 1], "{svg}");
        assert!(!bars("t", "x", &[bar("a", 1.0)]).contains(BESIDE), "no bar is highlighted");
    }

    #[test]
    fn a_limit_is_a_line_where_its_value_is() {
        let limit = Limit { name: "the step alone".to_owned(), value: 5.0 };
        let groups = ["x".to_owned()];
        let svg = grouped_bars_with_limit("t", "s", "", &groups, &[series("a", &[Some(10.0)])], OWN, Some(&limit));
        let words = "the step alone: 5.00 s";
        assert_eq!((svg.matches("stroke-dasharray").count(), svg.matches(words).count()), (2, 2), "{svg}");
        let svg = bars_with_limit("t", "x", &[bar("a", 1.0)], Some(&limit));
        let widths = numbers(&svg, "rect", "width");
        let right = WIDTH - RIGHT - width("1.00 x", SMALL) - 6.0;
        let left = width("a", SMALL) + 10.0;
        assert!((widths[1] - (right - left) / 5.0).abs() < 0.1, "the scale reaches to the line: {svg}");
    }

    #[test]
    fn a_bar_that_would_dwarf_the_others_is_cut_and_says_so() {
        let svg = bars("t", "images/s", &[bar("read", 180_000.0), bar("whole", 400.0), bar("step", 200.0)]);
        let widths = numbers(&svg, "rect", "width");
        assert!((widths[2] / widths[3] - 2.0).abs() < 0.01 && widths[1] < 1.5 * widths[2], "{widths:?}");
        assert_eq!((svg.matches("180000 images/s, bar cut<").count(), svg.matches(" cut<").count()), (1, 1));
        assert!(!bars("t", "ms", &[bar("a", 3.0), bar("b", 1.0)]).contains("cut"));
    }

    #[test]
    fn long_names_break_at_spaces_and_behind_hyphens() {
        let narrow = width("trivial-", SMALL);
        assert_eq!(wrapped("trivial-augment", SMALL, narrow), ["trivial-", "augment"]);
        assert_eq!(wrapped("trial-a, N\u{a0}=\u{a0}12", SMALL, narrow), ["trial-a,", "N\u{a0}=\u{a0}12"]);
        // This is a sign and not a hyphen.
        assert_eq!(wrapped("-5 %", SMALL, width("-5", SMALL)), ["-5", "%"]);
        assert_eq!(wrapped("rand-augment", SMALL, 999.0), ["rand-augment"]);
    }

    #[test]
    fn waits_are_counted_in_classes_that_fit_them() {
        // Bounds, and counts between them.
        for (waits_ms, bounds, counts) in [
            (vec![], vec![0.0, 1.0], vec![0]),
            (vec![0.05, 0.15, 0.15, 0.3], vec![0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35], vec![1, 0, 2, 0, 0, 1]),
            (vec![1.0, 1.5, 3.0, 20.0], vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0], vec![2, 1, 0, 0, 1]),
            (
                vec![0.001, 0.5, 2_000.0],
                [-10, -8, -6, -4, -2, 0].map(|by| 2_f64.powi(by)).into(),
                vec![1, 0, 0, 0, 1, 0],
            ),
            (vec![0.0, 0.0], vec![2_f64.powi(-10), 2_f64.powi(-9)], vec![2]),
            (vec![3.0, 3.0], vec![3.0, 3.001], vec![2]),
        ] {
            let got = classes(&waits_ms);
            let at = |i: usize| (got.0[i] - bounds[i]).abs() < 1e-9;
            assert!((0..bounds.len()).all(at) && got.1.starts_with(&counts), "{waits_ms:?}: {got:?}");
            assert_eq!((got.0.len(), got.1.iter().sum::<u32>()), (got.1.len() + 1, waits_ms.len() as u32), "{got:?}");
            assert!(got.1.len() <= 12 && (waits_ms.is_empty() || *got.1.last().unwrap() > 0), "{got:?}");
        }
    }

    #[test]
    fn a_histogram_is_labelled_at_both_ends_and_with_how_many_it_is_of() {
        let svg = histogram("t", &[0.001, 0.0015, 0.003, 0.02]);
        for words in [">1<", ">32<", "n = 4 batches", " 1 to 2 ms: 2.", " 16 to 32 ms: 1."] {
            assert!(svg.contains(words), "{words} in {svg}");
        }
    }

    #[test]
    fn plots_beside_each_other_share_a_scale() {
        let groups = ["x".to_owned()];
        let [low, high] = [[series("a", &[Some(1.0)])], [series("a", &[Some(10.0)])]];
        let all = extent(&[low[0].clone(), high[0].clone()]);
        let height = |series: &[Series], at_least| {
            numbers(&grouped_bars("t", "s", "", &groups, series, at_least), "rect", "height")[1]
        };
        assert_eq!((height(&low, OWN), height(&low, all), height(&high, all)), (HEIGHT, HEIGHT / 10.0, HEIGHT));
        let half = [0.5; 10];
        let svg = heat_map("t", &[("core 0".into(), &half)], 0.1, 4.0);
        assert!(svg.contains(">4.00 s<") && svg.contains("core 0 50 %"), "{svg}");
        let stretch = [Stretch { lane: 0, start_s: 0.0, end_s: 1.0 }];
        assert!(timeline("t", &["train"], &stretch, 4.0).contains(">4.00 s<"));
    }

    #[test]
    fn neighbors_of_one_shade_are_one_shape() {
        let values = [0.5; 200];
        let svg = heat_map("t", &[("core 0".into(), &values)], 0.1, 0.0);
        assert_eq!(svg.matches('M').count(), 2, "one of the words and one of a path: {svg}");
        assert!(svg.contains("core 0 50 %") && svg.contains(">20.0 s<"), "{svg}");
    }

    #[test]
    fn nothing_to_show_is_shown_as_nothing() {
        for svg in [
            grouped_bars("t", "s", "", &[], &[], OWN),
            bars("t", "s", &[]),
            bars("t", "s", &[bar("none", 0.0)]),
            lines("t", "%", "load", &[], &[], OWN),
            heat_map("t", &[], 0.1, 0.0),
            timeline("t", &[], &[], 0.0),
            histogram("t", &[]),
        ] {
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        assert!(heat_map("<&>", &[("x".into(), &[])], 0.1, 0.0).contains("&lt;&amp;&gt;"));
    }

    /// The longest names and values must stay within the plot.
    #[test]
    fn all_text_is_inside() {
        let groups: Vec<String> = (0..6).map(|i| format!("a group with a long name {i}")).collect();
        let many: Vec<Series> =
            (0..5).map(|i| series(&format!("candle-resnet50: A, CPU, sequential {i}"), &[Some(0.1234); 6])).collect();
        let long = "How often the trainer waited how long, with 16 threads and prefetch 4, built anew";
        let row = [0.3; 700];
        let rows: Vec<(String, &[f32])> = (0..200).map(|i| (format!("video dec. {i}"), &row[..])).collect();
        for svg in [
            grouped_bars(long, "ms", "workers", &groups, &many, OWN),
            bars(long, "images/s", &[bar("16 threads, prefetch 4 (anew)", 180_000.0), bar("b", 1.0)]),
            lines(long, "%", "load", &[1.0, 2.0, 4.0, 8.0, 12.0, 1000.0], &many, OWN),
            heat_map(long, &rows, 0.1, 0.0),
            timeline(long, &["set-up", "train"], &[Stretch { lane: 1, start_s: 0.0, end_s: 123_456.0 }], 0.0),
            histogram(long, &[0.2; 40_000]),
            histogram(long, &[9.0; 3]),
        ] {
            for text in svg.split("<text ").skip(1) {
                let number =
                    |name: &str| text.split(&format!("{name}=\"")).nth(1)?.split('"').next()?.parse::<f64>().ok();
                let (Some(x), Some(size)) = (number("x"), number("font-size")) else { continue };
                let words = text.split('>').nth(1).unwrap().trim_end_matches("</text");
                let share = if text.contains("\"end\"") { 1.0 } else { 0.5 * f64::from(text.contains("\"middle\"")) };
                let left = x - share * width(words, size);
                assert!(left >= 0.0 && left + width(words, size) <= WIDTH, "{words} at {left} of {svg}");
            }
        }
    }

    /// Linear red, green and blue of a color.
    fn linear(color: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn times(matrix: [[f64; 3]; 3], vector: [f64; 3]) -> [f64; 3] {
        matrix.map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum())
    }

    /// Contrast as WCAG 2.2 defines it.
    fn contrast(a: &str, b: &str) -> f64 {
        let [a, b] = [a, b].map(|color| times([[0.2126, 0.7152, 0.0722]; 3], linear(color))[0] + 0.05);
        a.max(b) / a.min(b)
    }

    /// CIELAB (D65) of linear red, green and blue.
    fn lab(rgb: [f64; 3]) -> [f64; 3] {
        let xyz = times([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]], rgb);
        let f = |t: f64| if t > 216.0 / 24_389.0 { t.cbrt() } else { (24_389.0 / 27.0 * t + 16.0) / 116.0 };
        let [x, y, z] = [f(xyz[0] / 0.950_47), f(xyz[1]), f(xyz[2] / 1.088_83)];
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// Contrasts must satisfy WCAG 2.2. Distances of colors are computed in CIELAB as color-blind people see them,
    /// simulated with the matrices of Machado, Oliveira and Fernandes (2009) at full severity.
    #[test]
    fn colors_stand_out_and_are_told_apart_with_any_color_vision() {
        let all = [&COLORS[..], &[PUBLISHED]].concat();
        for color in all.iter().copied().chain([BESIDE]) {
            assert!(contrast(color, "#ffffff") >= 3.0, "{color}");
        }
        for (text, ground) in [(TEXT, "#ffffff"), (TEXT, "#eef4fb"), (TEXT, "#f4f4f4"), ("#444444", "#ffffff")] {
            assert!(contrast(text, ground) >= 4.5, "{text} on {ground}");
        }
        assert!(contrast(AXIS, "#ffffff") >= 3.0);
        let visions = [
            ("all", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
            (
                "protanopia",
                [
                    [0.152_286, 1.052_583, -0.204_868],
                    [0.114_503, 0.786_281, 0.099_216],
                    [-0.003_882, -0.048_116, 1.051_998],
                ],
            ),
            (
                "deuteranopia",
                [
                    [0.367_322, 0.860_646, -0.227_968],
                    [0.280_085, 0.672_501, 0.047_413],
                    [-0.011_820, 0.042_940, 0.968_881],
                ],
            ),
            (
                "tritanopia",
                [
                    [1.255_528, -0.076_749, -0.178_779],
                    [-0.078_411, 0.930_809, 0.147_602],
                    [0.004_733, 0.691_367, 0.303_900],
                ],
            ),
        ];
        for (vision, matrix) in visions {
            let seen: Vec<_> =
                all.iter().map(|color| lab(times(matrix, linear(color)).map(|value| value.clamp(0.0, 1.0)))).collect();
            for (i, a) in seen.iter().enumerate() {
                for (j, b) in seen.iter().enumerate().skip(i + 1) {
                    let distance = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
                    assert!(distance >= 20.0, "{} and {} with {vision}: {distance:.1}", all[i], all[j]);
                }
            }
        }
    }
}
