//! The report of an experiment: the answer, tables and plots, for the terminal and as files.

// A page has the answer first, then the plots that show it, then the table. The reason for blank cells follows directly
// below the table.

mod html;
pub mod plot;

use super::busy::{Busy, Watch};
use super::environment::{DataSet, Environment};
use super::published::Publication;
use crate::shown;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use warpfeed::internal::atomic;
use warpfeed::{Error, Result};

/// The result of an experiment.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Name of the experiment, as on the command line.
    pub experiment: &'static str,
    /// Question that the experiment answers.
    pub question: &'static str,
    /// Warnings that put the figures in doubt, shown above everything else.
    pub warnings: Vec<String>,
    /// The answer, in sentences with figures.
    pub answer: Vec<String>,
    /// Command line of the experiment, without secrets; `None` if a program called the library.
    pub command: Option<String>,
    /// The machine and the build.
    pub environment: Environment,
    /// The images that it ran on.
    pub data_set: Option<DataSet>,
    /// Settings of the experiment, by name.
    pub settings: Value,
    /// Other activity of the machine meanwhile; `None` if the system does not say.
    pub busy: Option<Busy>,
    /// The figures as tables.
    pub tables: Vec<ReportTable>,
    /// Notes on how figures were measured, and why others are missing.
    pub notes: Vec<String>,
    /// Publications on the same question.
    pub publications: Vec<Publication>,
    /// All figures as the experiment measured them.
    pub figures: Value,
    /// The plots, which go into files of their own.
    #[serde(skip)]
    pub plots: Vec<Plot>,
    /// Number of plots at the start that show the answer. The page has them above the first table.
    #[serde(skip)]
    pub leading_plots: usize,
    /// Watches the machine's activity since the report was begun.
    #[serde(skip)]
    watch: Watch,
}

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

/// A plot.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Plot {
    /// Name of the file, without the extension.
    pub name: String,
    /// Caption of the plot.
    pub caption: String,
    /// The SVG.
    pub svg: String,
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
    fn shown(&self) -> Vec<usize> {
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

impl Report {
    /// Begins the report of an experiment, which answers a question.
    pub fn new(experiment: &'static str, question: &'static str, environment: Environment) -> Self {
        Self {
            experiment,
            question,
            warnings: Vec::new(),
            answer: Vec::new(),
            command: None,
            environment,
            data_set: None,
            settings: Value::Null,
            busy: None,
            tables: Vec::new(),
            notes: Vec::new(),
            publications: Vec::new(),
            figures: Value::Null,
            plots: Vec::new(),
            leading_plots: 1,
            watch: Watch::start(),
        }
    }

    /// Notes the machine's activity; called when all is measured.
    pub(super) fn measured(&mut self) {
        self.busy = self.watch.so_far();
        self.warnings.extend(self.busy.as_ref().and_then(Busy::warning));
    }

    /// Names and values below the title: the command, the images and the settings.
    fn subject_lines(&self) -> Vec<(String, String)> {
        let line = |name: &str, value: String| (name.to_owned(), value);
        let mut lines: Vec<_> = self.command.iter().map(|command| line("Command", command.clone())).collect();
        lines.extend(self.data_set.iter().map(|data| line("Images", data.line())));
        let settings = self.settings.as_object().into_iter().flatten();
        lines.extend(settings.filter_map(|(name, value)| Some((in_words(name), value_in_words(value)?))));
        lines
    }

    /// Adds a plot as SVG.
    pub fn plot(&mut self, name: impl Into<String>, caption: impl Into<String>, svg: String) {
        self.plots.push(Plot { name: name.into(), caption: caption.into(), svg });
    }

    /// The report for a terminal: warnings, subject, tables, notes, then the answer.
    #[must_use]
    pub fn text(&self) -> String {
        let environment = &self.environment;
        let mut text: String = self.warnings.iter().map(|warning| format!("Warning: {warning}\n")).collect();
        text += &format!("{}, {} cores, {}\n", environment.cpu, environment.cores, environment.version());
        text += &self.subject_lines().iter().map(|(name, value)| format!("{name}: {value}\n")).collect::<String>();
        for table in self.tables.iter().filter(|table| !table.in_files_only) {
            text += &format!("\n{}", table.text());
        }
        if !self.notes.is_empty() {
            text += "\n";
        }
        text += &self.notes.iter().map(|note| format!("- {note}\n")).collect::<String>();
        let publication = |p: &Publication| format!("- Published: {}, {}. {}\n", p.title, p.url, p.about);
        text += &self.publications.iter().map(publication).collect::<String>();
        text + "\n" + &self.answer.iter().map(|sentence| format!("{sentence}\n")).collect::<String>()
    }

    /// The report as one JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        // Maps with names and numbers always serialize.
        let mut value = serde_json::to_value(self).unwrap_or(Value::Null);
        value["plots"] = self
            .plots
            .iter()
            .map(|plot| json!({ "file": format!("{}.svg", plot.name), "caption": plot.caption }))
            .collect();
        value
    }

    /// Writes `report.html`, `report.json`, a CSV file for each table and an SVG file for each plot into a folder. The
    /// folder is created if it is missing. Existing files of these names are replaced, each as a whole.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder or a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        let write =
            |name: String, text: &str| atomic::write(&folder.join(name), |file| file.write_all(text.as_bytes()));
        for table in &self.tables {
            write(format!("{}.csv", table.name), &table.csv())?;
        }
        for plot in &self.plots {
            write(format!("{}.svg", plot.name), &plot.svg)?;
        }
        write("report.json".into(), &format!("{:#}\n", self.json()))?;
        write("report.html".into(), &html::page(self))
    }
}

/// The name of a setting for people: `batch_size` becomes `Batch size`.
fn in_words(name: &str) -> String {
    let words = name.replace('_', " ");
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The value of a setting for people; `None` if there is none.
fn value_in_words(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(values) => {
            let words: Vec<String> = values.iter().filter_map(value_in_words).collect();
            (!words.is_empty()).then(|| words.join(", "))
        }
        Value::Object(fields) => {
            // An object's own name comes first, without the name of the field.
            let names = ["name", "op", "transform"];
            let first = fields.iter().filter(|(name, _)| names.contains(&name.as_str()));
            let others = fields.iter().filter(|(name, _)| !names.contains(&name.as_str()));
            let other = |(name, value): (&String, &Value)| {
                Some(format!("{} {}", name.replace('_', " "), value_in_words(value)?))
            };
            let words: Vec<String> =
                first.filter_map(|(_, value)| value_in_words(value)).chain(others.filter_map(other)).collect();
            (!words.is_empty()).then(|| words.join(" "))
        }
        // As many digits as single precision needs: settings are hardly more precise.
        Value::Number(number) if number.is_f64() => number.as_f64().map(|number| (number as f32).to_string()),
        value => Some(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ReportTable {
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
    fn settings_are_told_in_words() {
        let words = |value| value_in_words(&value);
        assert_eq!(in_words("batch_size"), "Batch size");
        let flip = json!({ "p": 0.5, "transform": "random_horizontal_flip" });
        let normalize = json!({ "mean": [0.485_f32, 0.5], "op": "normalize" });
        let want = "random_horizontal_flip p 0.5, normalize mean 0.485, 0.5";
        assert_eq!(words(json!([flip, normalize])).unwrap(), want);
        assert_eq!((words(Value::Null), words(json!([])), words(json!(32)).as_deref()), (None, None, Some("32")));
    }

    #[test]
    fn columns_of_numbers_end_together() {
        assert_eq!(table().text(), "Seconds\nmodel      s, \"all\"  note\nResNet-18      1.23  a,b\nx\ny\n");
    }

    #[test]
    fn a_column_without_a_figure_is_not_printed_but_why_is() {
        let mut table = ReportTable::new("times", "Seconds", &["load", "GPU, s"]);
        table.rows.push(vec![Cell::number(1.0, 0), Cell::Blank]);
        table.blank.push("GPU: there is none.".to_owned());
        assert_eq!(table.text(), "Seconds\nload\n   1\nBlank: GPU: there is none.\n");
        let mut report = Report::new("test", "Does it?", Environment::here());
        report.tables.push(table.clone());
        let page = html::page(&report);
        assert!(!page.contains("GPU, s") && page.contains("GPU: there is none."), "{page}");
        assert_eq!(table.csv(), "load,\"GPU, s\"\r\n1,\r\n");
    }

    #[test]
    fn a_page_needs_nothing_else_and_escapes_what_it_shows() {
        let mut report = Report::new("test", "Does it?", Environment::here());
        report.answer.push("1 < 2 & <script>".into());
        report.publications.push(crate::published::LARGER_SCALE);
        report.tables.push(table());
        report.tables[0].blank.push("all <b> cells".to_owned());
        report.plot("p", "a plot", plot::histogram("waits", &[0.5]));
        report.plot("q", "another plot", plot::histogram("more waits", &[0.5]));
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new/folder");
        report.write(&out).unwrap();
        let page = std::fs::read_to_string(out.join("report.html")).unwrap();
        assert!(page.contains("1 &lt; 2 &amp; &lt;script&gt;") && !page.contains("<script"));
        let links = page.matches("http").count() - page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count();
        // The only address is a link for readers; the page loads nothing.
        let link = format!("<a href=\"{}\">", report.publications[0].url);
        assert_eq!((links, page.matches(&link).count(), page.matches("src=").count()), (1, 1, 0));
        assert!(
            page.contains("viewport") && page.contains("<td class=\"n\" data-column=\"s, &quot;all&quot;\">–</td>"),
            "{page}"
        );
        let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("{words} in {page}"));
        let order =
            [at("1 &lt; 2"), at(">waits<"), at("<table "), at("Blank (–): all &lt;b&gt; cells"), at(">more waits<")];
        assert!(order.is_sorted(), "answer, its plot, table, reason, further plots: {order:?}");
        let json: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
        assert_eq!(json["tables"][0]["rows"][0], json!(["ResNet-18", 1.23456, "a,b"]));
        assert_eq!(json["tables"][0]["rows"][1][1], Value::Null);
        assert_eq!(json["plots"][0]["file"], "p.svg");
        assert!(std::fs::read(out.join("p.svg")).unwrap().starts_with(b"<svg"));
        assert!(out.join("times.csv").exists());
    }
}
