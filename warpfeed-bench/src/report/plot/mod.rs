//! Plots as SVG, with their figures in words for screen readers. They are 440 units wide: readable on a phone, and two
//! fit side by side. A bar that would dwarf the rest is cut. Colors are Okabe and Ito's, darkened to a contrast of 3 to
//! 1. Vermilion marks published figures only.

mod bars;
#[cfg(test)]
mod color_tests;
mod drawing;
mod lines;
mod pictures;
#[cfg(test)]
mod tests;
mod time;

use crate::spread::Spread;
pub use drawing::escape;
use drawing::short;
pub use pictures::{Picture, pictures};
pub use time::{Stretch, heat_map, histogram, timeline};

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

/// Title and scale of a plot of bars or lines.
#[derive(Debug, Clone, Copy)]
pub struct Axes<'a> {
    title: &'a str,
    unit: &'a str,
    /// Title of the places' names.
    of: &'a str,
    at_least: Range,
    limits: &'a [Limit],
}

impl<'a> Axes<'a> {
    /// A plot whose values have this unit, on a scale of its own.
    #[must_use]
    pub fn new(title: &'a str, unit: &'a str) -> Self {
        Self { title, unit, of: "", at_least: OWN, limits: &[] }
    }

    /// Names the groups of bars, or the places of lines.
    #[must_use]
    pub fn of(self, of: &'a str) -> Self {
        Self { of, ..self }
    }

    /// Includes a range in the scale.
    #[must_use]
    pub fn at_least(self, at_least: Range) -> Self {
        Self { at_least, ..self }
    }

    /// Draws lines across the plot. Bars have one at most.
    #[must_use]
    pub fn limits(self, limits: &'a [Limit]) -> Self {
        Self { limits, ..self }
    }
}

/// Range that a scale includes at least. Plots that are to be compared share one.
pub type Range = (f64, f64);

/// The scale depends on the plot's own values.
const OWN: Range = (0.0, 0.0);

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
