//! Plots of lines.

use super::drawing::{Drawing, PUBLISHED, RIGHT, SMALL, TEXT, WIDTH, colors, range, width};
use super::{Axes, Limit, Series, extent, in_words};

impl Axes<'_> {
    /// A plot with a line for each series over the places `xs`, with marks; the lines of published ones are dashed. A
    /// missing value leaves a gap.
    #[must_use]
    pub fn lines(&self, xs: &[f64], series: &[Series]) -> String {
        let Self { title, unit, of, at_least, limits } = *self;
        let mut drawing = Drawing::new(title);
        drawing.legend(series, true);
        let (low, high) = extent(series);
        let values = limits.iter().map(|limit| limit.value).chain([low, high, at_least.0, at_least.1]);
        let (low, high) = range(values);
        let (y, left) = drawing.scale(low, high, unit);
        let mut limits: Vec<&Limit> = limits.iter().collect();
        limits.sort_by(|a, b| a.value.total_cmp(&b.value));
        let mut free = f64::INFINITY;
        for limit in &limits {
            let at = y(limit.value);
            drawing.dashed_line((left, at), (WIDTH - RIGHT, at), TEXT, 1.5);
            // Where no line begins yet, and above the names of smaller limits.
            free = (at - 4.0).min(free - SMALL);
            drawing.text(left + 4.0, free, "start", SMALL, &limit.words(unit));
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
}
