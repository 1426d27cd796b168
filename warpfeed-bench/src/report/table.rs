//! Tables of a report: cells, columns, and their text and CSV forms.

use crate::shown;
use crate::spread::Spread;
use crate::usage::{Percentiles, too_few};
use serde::{Serialize, Serializer};

/// Figures in rows and columns.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ReportTable {
    /// Name of the CSV file, without the extension.
    pub name: &'static str,
    /// Title of the table.
    pub title: String,
    /// Names of the columns, with units.
    pub columns: Vec<String>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// Explanations of blank cells.
    pub blank: Vec<String>,
    /// Whether the table is too wide for terminals and appears only in files.
    #[serde(skip)]
    pub in_files_only: bool,
}

/// One cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A number, and the number of decimals to show.
    Number(f64, usize),
    /// Not run, or not known.
    Blank,
}

impl Cell {
    /// A number, or blank if there is none.
    #[must_use]
    pub fn number(value: impl Into<Option<f64>>, decimals: usize) -> Self {
        value.into().filter(|value| value.is_finite()).map_or(Self::Blank, |value| Self::Number(value, decimals))
    }

    /// A whole number.
    pub(crate) fn count(count: usize) -> Self {
        Self::Number(count as f64, 0)
    }

    /// The cell as text; a blank cell is empty.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(value, decimals) => format!("{value:.decimals$}"),
            Self::Blank => String::new(),
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Number(value, _) => serializer.serialize_f64(*value),
            Self::Blank => serializer.serialize_none(),
        }
    }
}

impl ReportTable {
    /// A table without rows.
    #[must_use]
    pub fn new(name: &'static str, title: impl Into<String>, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Self { name, title: title.into(), columns, rows: Vec::new(), blank: Vec::new(), in_files_only: false }
    }

    /// The table, too wide for terminals, only in files.
    pub(crate) fn in_files(mut self) -> Self {
        self.in_files_only = true;
        self
    }

    /// The table with reasons for its blank cells.
    pub(crate) fn blank(mut self, reasons: impl IntoIterator<Item = String>) -> Self {
        self.blank.extend(reasons);
        self
    }

    /// The table as comma-separated values (RFC 4180).
    #[must_use]
    pub fn csv(&self) -> String {
        let quoted = |field: String| {
            if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
        };
        // CSV has all digits of a number.
        let field = |cell: &Cell| match cell {
            Cell::Number(value, _) => value.to_string(),
            cell => quoted(shown::cell(&cell.text())),
        };
        let header = self.columns.iter().cloned().map(quoted).collect::<Vec<_>>().join(",");
        let rows = self.rows.iter().map(|row| row.iter().map(field).collect::<Vec<_>>().join(","));
        std::iter::once(header).chain(rows).map(|line| line + "\r\n").collect()
    }

    /// The columns that have a figure. For a table without rows: all columns.
    pub(super) fn shown(&self) -> Vec<usize> {
        let is_blank = |column: usize| self.rows.iter().all(|row| row[column] == Cell::Blank);
        (0..self.columns.len()).filter(|&column| self.rows.is_empty() || !is_blank(column)).collect()
    }

    /// The table for a terminal, without columns that have no figure.
    #[must_use]
    pub fn text(&self) -> String {
        let cells: Vec<Vec<String>> = self.rows.iter().map(|row| row.iter().map(Cell::text).collect()).collect();
        let width = |column: usize| {
            let widest = cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            widest.max(self.columns[column].chars().count())
        };
        let shown = self.shown();
        let is_number = |column: usize| self.rows.iter().any(|row| matches!(row[column], Cell::Number(..)));
        let line = |fields: &[String]| {
            let padded = shown.iter().map(|&column| {
                let (field, width) = (&fields[column], width(column));
                if is_number(column) { format!("{field:>width$}") } else { format!("{field:width$}") }
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        let body: String = cells.iter().map(|row| line(row)).collect();
        let blank: String = self.blank.iter().map(|reason| format!("Blank: {reason}\n")).collect();
        format!("{}\n{}{body}{blank}", self.title, line(&self.columns))
    }
}

/// A figure of a row.
type CellOf<'a, R> = Box<dyn Fn(&R) -> Cell + 'a>;

/// Columns of a table, each with its name and what it shows of a row.
pub(crate) struct Columns<'a, R>(Vec<(String, CellOf<'a, R>)>);

impl<'a, R> Columns<'a, R> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn cell(mut self, name: impl Into<String>, of: impl Fn(&R) -> Cell + 'a) -> Self {
        self.0.push((name.into(), Box::new(of)));
        self
    }

    pub(crate) fn text<T: Into<String>>(self, name: impl Into<String>, of: impl Fn(&R) -> T + 'a) -> Self {
        self.cell(name, move |row| of(row).into().into())
    }

    pub(crate) fn count(self, name: impl Into<String>, of: impl Fn(&R) -> usize + 'a) -> Self {
        self.cell(name, move |row| Cell::count(of(row)))
    }

    pub(crate) fn number<N: Into<Option<f64>>>(
        self,
        name: impl Into<String>,
        decimals: usize,
        of: impl Fn(&R) -> N + 'a,
    ) -> Self {
        self.cell(name, move |row| Cell::number(of(row), decimals))
    }

    /// A median and the ends of its interval: three columns.
    pub(crate) fn spread(self, name: &str, decimals: usize, of: impl Fn(&R) -> Option<Spread> + Clone + 'a) -> Self {
        let (low, high) = (of.clone(), of.clone());
        self.number(name, decimals, move |row| of(row).map(|spread| spread.median))
            .number("from", decimals, move |row| low(row).map(|spread| spread.low))
            .number("to", decimals, move |row| high(row).map(|spread| spread.high))
    }

    /// A median, and half of its interval in percent: two columns.
    pub(crate) fn seconds(self, name: &str, of: impl Fn(&R) -> Option<Spread> + Clone + 'a) -> Self {
        let share = of.clone();
        self.number(format!("{name}, s"), 3, move |row| of(row).map(|spread| spread.median)).number(
            format!("{name}, ± %"),
            1,
            move |row| share(row).and_then(|spread| spread.share_percent()),
        )
    }

    /// Percentiles of waits in seconds: three columns.
    pub(crate) fn waits(self, of: impl Fn(&R) -> Option<Percentiles> + Clone + 'a) -> Self {
        type Percentile = fn(Percentiles) -> Option<f64>;
        let all: [(&str, Percentile); 3] = [("p50", |p| Some(p.p50)), ("p95", |p| p.p95), ("p99", |p| p.p99)];
        all.into_iter().fold(self, |columns, (name, percentile)| {
            let of = of.clone();
            let ms = move |row: &R| of(row).and_then(percentile).map(|seconds| 1e3 * seconds);
            columns.number(format!("wait {name}, ms"), 2, ms)
        })
    }

    /// Adds columns for each of these.
    pub(crate) fn each<T>(self, of: impl IntoIterator<Item = T>, add: impl FnMut(Self, T) -> Self) -> Self {
        of.into_iter().fold(self, add)
    }

    /// The table of these rows.
    pub(crate) fn table(
        self,
        name: &'static str,
        title: impl Into<String>,
        rows: impl IntoIterator<Item = R>,
    ) -> ReportTable {
        let columns: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        let mut table = ReportTable::new(name, title, &columns);
        table.rows = rows.into_iter().map(|row| self.0.iter().map(|(_, of)| of(&row)).collect()).collect();
        // Of few values the tail's percentiles are blank.
        let tail = columns.iter().position(|column| *column == "wait p99, ms");
        let few = |tail: usize| table.rows.iter().any(|row| row[tail] == Cell::Blank && row[tail - 2] != Cell::Blank);
        table.blank.extend(tail.is_some_and(few).then(|| format!("wait: {}", too_few("batches"))));
        table
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::report) fn table() -> ReportTable {
        let mut table = ReportTable::new("times", "Seconds", &["model", "s, \"all\"", "note"]);
        table.rows.push(vec!["ResNet-18".into(), Cell::number(1.23456, 2), "a,b".into()]);
        table.rows.push(vec!["x".into(), Cell::number(None, 2), Cell::Blank]);
        table.rows.push(vec!["y".into(), Cell::number(f64::NAN, 2), Cell::Blank]);
        table
    }

    #[test]
    fn csv_is_quoted_and_has_numbers_in_full() {
        let want = "model,\"s, \"\"all\"\"\",note\r\nResNet-18,1.23456,\"a,b\"\r\nx,,\r\ny,,\r\n";
        assert_eq!(table().csv(), want);
    }

    #[test]
    fn columns_of_numbers_end_together() {
        assert_eq!(table().text(), "Seconds\nmodel      s, \"all\"  note\nResNet-18      1.23  a,b\nx\ny\n");
    }

    #[test]
    fn columns_make_the_cells_of_each_row() {
        let waits = crate::usage::percentiles(&[0.5; 10]);
        let table = Columns::new()
            .text("name", |row: &(&str, f64)| row.0)
            .spread("rate", 1, |row| Spread::of(&[row.1, 3.0 * row.1]))
            .waits(move |row| waits.filter(|_| row.1 > 1.0))
            .table("t", "T", [("a", 1.0), ("b", 2.0)]);
        assert_eq!(table.columns[..4], ["name", "rate", "from", "to"]);
        let cells = |row: usize| table.rows[row].iter().map(Cell::text).collect::<Vec<_>>();
        assert_eq!(cells(0), ["a", "2.0", "1.0", "3.0", "", "", ""]);
        assert_eq!(cells(1), ["b", "4.0", "2.0", "6.0", "500.00", "", ""]);
        assert_eq!(table.blank.len(), 1, "there are too few waits for p95 and p99");
    }
}
