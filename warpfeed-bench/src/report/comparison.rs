//! The table below a report's answer: each comparison, measured and published.

use super::table::{Cell, Columns, ReportTable};
use crate::verdict::{Verdict, in_percent};

/// Words for smaller and larger figures.
pub(crate) type Words = (&'static str, &'static str);
/// Words for times.
pub(crate) const TIME: Words = ("shorter", "longer");
/// Words for rates.
pub(crate) const SPEED: Words = ("slower", "faster");

/// A comparison. A text that is empty leaves its cell blank.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) case: String,
    pub(crate) against: String,
    pub(crate) here: String,
    pub(crate) interval: String,
    pub(crate) published: String,
    pub(crate) reason: String,
}

impl Comparison {
    /// A case without figures so far.
    pub(crate) fn new(case: impl Into<String>, against: impl Into<String>) -> Self {
        Self { case: case.into(), against: against.into(), ..Self::default() }
    }

    /// What the rounds say of the case, in these words.
    pub(crate) fn verdict(mut self, verdict: Verdict, words: Words) -> Self {
        (self.here, self.interval) = verdict.change_and_interval(words.0, words.1);
        self
    }

    /// A figure of the case without a verdict.
    pub(crate) fn here(self, here: impl Into<String>) -> Self {
        Self { here: here.into(), ..self }
    }

    /// The published ratio.
    pub(crate) fn published(self, ratio: impl Into<Option<f64>>, words: Words) -> Self {
        let published = ratio.into().map(|ratio| in_percent(ratio, words.0, words.1)).unwrap_or_default();
        Self { published, ..self }
    }

    pub(crate) fn reason(self, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..self }
    }
}

/// The table; `None` without comparisons.
pub(crate) fn comparisons(rows: Vec<Comparison>) -> Option<ReportTable> {
    let cell = |text: &String| if text.is_empty() { Cell::Blank } else { text.as_str().into() };
    let columns = Columns::new()
        .cell("case", |row: &Comparison| cell(&row.case))
        .cell("against", |row| cell(&row.against))
        .cell("here", |row| cell(&row.here))
        .cell("interval", |row| cell(&row.interval))
        .cell("published", |row| cell(&row.published))
        .cell("reason", |row| cell(&row.reason));
    (!rows.is_empty()).then(|| columns.table("result", "Result", rows))
}

/// Whether a comparison tells a difference.
#[cfg(test)]
pub(crate) fn tells(rows: &[Comparison]) -> bool {
    rows.iter().any(|row| row.here.contains('%'))
}
