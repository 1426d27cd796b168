//! The report of an experiment for the terminal and as files: the answer with its comparisons, plots, and tables.

pub(crate) mod comparison;
mod html;
pub mod plot;
mod table;

use super::busy::{Busy, Watch};
use super::environment::{DataSet, Environment};
use super::published::Publication;
use comparison::{Comparison, comparisons};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
pub(crate) use table::Columns;
pub use table::{Cell, ReportTable};
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
    /// The comparisons behind the answer, shown right below it.
    pub result: Option<ReportTable>,
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

impl Report {
    /// Begins the report of an experiment, which answers a question.
    pub fn new(experiment: &'static str, question: &'static str, environment: Environment) -> Self {
        Self {
            experiment,
            question,
            warnings: Vec::new(),
            answer: Vec::new(),
            result: None,
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

    /// Sets the table below the answer.
    pub(super) fn compare(&mut self, rows: Vec<Comparison>) {
        self.result = comparisons(rows);
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

    /// The report for a terminal: warnings, subject, tables, notes, then the answer and its table.
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
        text += &format!("\n{}", self.answer.iter().map(|sentence| format!("{sentence}\n")).collect::<String>());
        text + &self.result.iter().map(|table| format!("\n{}", table.text())).collect::<String>()
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
        for table in self.result.iter().chain(&self.tables) {
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
    use super::table::tests::table;
    use super::*;

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
