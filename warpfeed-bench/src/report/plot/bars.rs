//! Plots of bars.

use super::drawing::{
    BESIDE, COLORS, Drawing, PUBLISHED, RIGHT, SMALL, TEXT, WIDTH, colors, cut_off, is_published, range, short, widest,
};
use super::{Axes, Bar, Series, extent, in_words};

/// A bar that is more than this many times as long as the next one is cut.
const CUT: f64 = 4.0;

impl Axes<'_> {
    /// A plot of bars in groups, one bar per series, with values on top. A missing value has no bar.
    #[must_use]
    pub fn grouped_bars(&self, groups: &[String], series: &[Series]) -> String {
        let Self { title, unit, of, at_least, limits } = *self;
        let limit = limits.first();
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

    /// A plot of horizontal bars, with names before and values after them. A bar that would dwarf all others is cut,
    /// and says so.
    #[must_use]
    pub fn bars(&self, bars: &[Bar]) -> String {
        let Self { title, unit, limits, .. } = *self;
        let line = limits.first();
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
}
