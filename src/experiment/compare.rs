//! Comparison of two reports: differences in their settings, and figures that differ by more than their spread.

use super::spread::Spread;
use crate::error::{Error, Result};
use serde::Serialize;
use serde_json::{Map, Value};

/// Limit of the size of a report file in bytes.
pub const MAX_REPORT_BYTES: u64 = 256 << 20;

/// Comparison of two reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// Name of the experiment, which both share.
    pub experiment: String,
    /// Differences in machine, images and settings.
    pub differences: Vec<Difference>,
    /// Figures in both reports.
    pub figures: Vec<Figure>,
    /// Names of the figures in only one of the reports.
    pub only_in_one: Vec<String>,
}

/// A value that differs between the reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// Name of the value: a field of `environment`, `settings` or `data_set`.
    pub name: String,
    /// Value in the first report; null if it has none.
    pub a: Value,
    /// Value in the second report.
    pub b: Value,
}

/// A figure in both reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Figure {
    /// Name of the case and of its figure.
    pub name: String,
    /// Figure in the first report.
    pub a: Spread,
    /// Figure in the second report.
    pub b: Spread,
    /// Change from the first to the second, in percent of the first.
    pub change_percent: f64,
    /// Whether they differ beyond doubt: [`Spread::is_below`].
    pub differs: bool,
}

/// Compares two reports that experiments wrote as JSON.
///
/// # Errors
/// [`Error::Parameter`] if a text is no report, or if the reports belong to different experiments.
///
/// ```
/// use warpfeed::experiment::compare::compare;
///
/// let report = |threads, rate: f64| {
///     let figures = format!(r#"{{"whole": {{"median": {rate}, "low": {rate}, "high": {rate}, "rounds": 3}}}}"#);
///     format!(r#"{{"experiment": "diagnose", "settings": {{"threads": {threads}}}, "figures": {figures}}}"#)
/// };
/// let found = compare(&report(2, 100.0), &report(4, 150.0))?;
/// assert_eq!((&found.differences[0].name[..], found.differences.len()), ("settings threads", 1));
/// assert!(found.figures[0].differs && found.figures[0].change_percent == 50.0);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn compare(a: &str, b: &str) -> Result<Comparison> {
    let [a, b] = [read(a)?, read(b)?];
    let experiment = |report: &Value| report["experiment"].as_str().unwrap_or_default().to_owned();
    if experiment(&a) != experiment(&b) {
        let (expected, got) = (format!("two of one experiment, such as {}", experiment(&a)), experiment(&b));
        return Err(Error::parameter("compare", "reports", expected, got));
    }
    let mut differences = Vec::new();
    for part in ["environment", "settings", "data_set"] {
        different(part, &a[part], &b[part], &mut differences);
    }
    let [mut of_a, mut of_b] = [Vec::new(), Vec::new()];
    spreads("", &a["figures"], &mut of_a);
    spreads("", &b["figures"], &mut of_b);
    let (mut figures, mut only_in_one) = (Vec::new(), Vec::new());
    for (name, a) in of_a {
        let Some(at) = of_b.iter().position(|(other, _)| *other == name) else {
            only_in_one.push(name);
            continue;
        };
        let (_, b) = of_b.remove(at);
        let change_percent = if a.median > 0.0 { 100.0 * (b.median / a.median - 1.0) } else { 0.0 };
        figures.push(Figure { name, a, b, change_percent, differs: !a.equals(&b) });
    }
    only_in_one.extend(of_b.into_iter().map(|(name, _)| name));
    Ok(Comparison { experiment: experiment(&a), differences, figures, only_in_one })
}

fn read(text: &str) -> Result<Value> {
    let wrong = |got: String| Error::parameter("compare", "report", "a report.json of warpfeed bench --out", got);
    let report: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    if report["experiment"].is_string() && report["figures"].is_object() {
        Ok(report)
    } else {
        Err(wrong("other JSON".to_owned()))
    }
}

/// Adds the fields in which two objects differ. The time is left out, since it always differs.
fn different(part: &str, a: &Value, b: &Value, differences: &mut Vec<Difference>) {
    let none = Map::new();
    let [of_a, of_b] = [a, b].map(|value| value.as_object().unwrap_or(&none));
    let names = of_a.keys().chain(of_b.keys().filter(|name| !of_a.contains_key(*name)));
    for name in names.filter(|name| !matches!(name.as_str(), "date" | "load_average_1min")) {
        let (a, b) = (a[name].clone(), b[name].clone());
        if a != b {
            differences.push(Difference { name: format!("{part} {}", name.replace('_', " ")), a, b });
        }
    }
}

/// Adds all spreads within a value, each with the names that lead to it.
fn spreads(name: &str, value: &Value, found: &mut Vec<(String, Spread)>) {
    let within = |inner: &str| if name.is_empty() { inner.to_owned() } else { format!("{name}, {inner}") };
    match value {
        Value::Object(fields) => {
            if let Some(spread) = spread(fields) {
                found.push((name.to_owned(), spread));
                return;
            }
            for (field, value) in fields {
                spreads(&within(&field.replace('_', " ")), value, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                // An item is identified by its fields and not by its place in the list.
                let case = item.as_object().map(case).unwrap_or_default();
                let Some(fields) = item.as_object().filter(|_| !case.is_empty()) else { continue };
                for (field, value) in fields {
                    spreads(&format!("{}, {}", within(&case), field.replace('_', " ")), value, found);
                }
            }
        }
        _ => {}
    }
}

fn spread(fields: &Map<String, Value>) -> Option<Spread> {
    let number = |name| fields.get(name)?.as_f64();
    let rounds = usize::try_from(fields.get("rounds")?.as_u64()?).ok()?;
    Some(Spread { median: number("median")?, low: number("low")?, high: number("high")?, rounds })
}

/// The part of a case that identifies it: its texts and whole numbers, including its configuration's.
fn case(fields: &Map<String, Value>) -> String {
    let part = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_u64() => Some(format!("{} {number}", name.replace('_', " "))),
        Value::Bool(yes) => Some(format!("{}{}", if *yes { "" } else { "not " }, name.replace('_', " "))),
        Value::Object(fields) if name == "configuration" => Some(case(fields)),
        _ => None,
    };
    fields.iter().filter_map(part).collect::<Vec<_>>().join(", ")
}

impl Comparison {
    /// The comparison for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.experiment);
        for Difference { name, a, b } in &self.differences {
            let [a, b] = [a, b].map(|value| if value.is_null() { "-".to_owned() } else { value.to_string() });
            text += &format!("  {name}: {a} -> {b}\n");
        }
        if self.differences.is_empty() {
            text += "  the same machine, build and settings\n";
        }
        let (differ, equal): (Vec<&Figure>, Vec<&Figure>) = self.figures.iter().partition(|figure| figure.differs);
        for (title, figures) in [("Differ beyond doubt:", differ), ("Equal, within the spread of their rounds:", equal)]
        {
            if figures.is_empty() {
                continue;
            }
            text += &format!("\n{title}\n");
            for Figure { name, a, b, change_percent, .. } in figures {
                let of = |spread: &Spread| {
                    format!("{} ({} to {})", digits(spread.median), digits(spread.low), digits(spread.high))
                };
                text += &format!("  {name}: {} -> {}, {change_percent:+.1} %\n", of(a), of(b));
            }
        }
        if !self.only_in_one.is_empty() {
            text += &format!("\nOnly in one of them: {}\n", self.only_in_one.join("; "));
        }
        text
    }
}

/// Formats a number with four digits.
fn digits(value: f64) -> String {
    let decimals = 3 - (value.abs().max(1e-3).log10().floor() as i32).clamp(-3, 3);
    format!("{value:.*}", decimals as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rate(rounds: [f64; 3]) -> Value {
        json!(Spread::of(&rounds))
    }

    #[test]
    fn cases_are_found_whatever_their_place() {
        let case =
            |load: u32, rounds| json!({ "model": "none", "load": load, "images_per_s": rate(rounds), "use": 0.5 });
        let report = |cases: Value, cpu: &str| {
            let environment = json!({ "cpu": cpu, "date": format!("{cpu}'s") });
            json!({ "experiment": "augment-load", "environment": environment, "figures": { "cases": cases } })
                .to_string()
        };
        let a = report(json!([case(1, [99.0, 100.0, 101.0]), case(4, [50.0, 51.0, 52.0])]), "old");
        let b = report(json!([case(4, [70.0, 71.0, 72.0]), case(1, [98.0, 100.0, 103.0]), case(8, [1.0; 3])]), "new");
        let found = compare(&a, &b).unwrap();
        assert_eq!(found.differences.len(), 1, "{:?}", found.differences);
        let figures: Vec<_> = found.figures.iter().map(|figure| (&figure.name[..], figure.differs)).collect();
        let want = [("cases, load 1, none, images per s", false), ("cases, load 4, none, images per s", true)];
        assert_eq!(figures, want);
        assert_eq!(found.only_in_one, ["cases, load 8, none, images per s"]);
        let text = found.text();
        assert!(text.contains("51.00 (50.00 to 52.00) -> 71.00 (70.00 to 72.00), +39.2 %"), "{text}");
        assert!(
            text.find("Differ").unwrap() < text.find("Equal").unwrap() && text.contains("\"old\" -> \"new\""),
            "{text}"
        );
        let other = b.replace("augment-load", "workers");
        assert!(compare(&a, &other).unwrap_err().to_string().contains("augment-load"));
        assert!(compare(&a, "{}").unwrap_err().to_string().contains("report.json"));
        assert!(compare("[", &b).unwrap_err().is_parameter());
    }

    #[test]
    fn numbers_have_four_digits() {
        for (value, want) in
            [(0.01234, "0.01234"), (1.5, "1.500"), (123.4, "123.4"), (12345.6, "12346"), (0.0, "0.000000")]
        {
            assert_eq!(digits(value), want);
        }
    }
}
