//! Comparison of two reports.

use super::spread::Spread;
use super::verdict::{Verdict, level};
use serde::Serialize;
use serde_json::{Map, Value};
use warpfeed::{Error, Result};

/// Limit of the size of a report file in bytes.
pub const MAX_REPORT_BYTES: u64 = 256 << 20;

/// Comparison of two reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReportComparison {
    /// Name of the experiment, which both share.
    pub experiment: String,
    /// Differences in machine, images and settings.
    pub differences: Vec<ReportDifference>,
    /// Figures in both reports.
    pub figures: Vec<Figure>,
    /// Names of the figures in only one of the reports.
    pub only_in_one: Vec<String>,
}

/// A value that differs between the reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReportDifference {
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
    /// Change from the first to the second, in percent of the first. Only `verdict` tells whether it is one.
    pub change_percent: f64,
    /// Whether the rounds show a difference; `None` if a report does not have the figure of each round.
    pub verdict: Option<Verdict>,
}

/// Compares two reports that experiments wrote as JSON.
///
/// # Errors
/// [`Error::Parameter`] if a text is no report, or if the reports belong to different experiments.
///
/// ```
/// use warpfeed_bench::compare::compare;
///
/// let report = |threads, rate: f64| {
///     let each = format!("{rate}, {rate}, {rate}, {rate}, {rate}");
///     let spread = format!(r#""median": {rate}, "low": {rate}, "high": {rate}, "rounds": 5, "each": [{each}]"#);
///     let figures = format!(r#"{{"whole": {{{spread}}}}}"#);
///     format!(r#"{{"experiment": "diagnose", "settings": {{"threads": {threads}}}, "figures": {figures}}}"#)
/// };
/// let found = compare(&report(2, 100.0), &report(4, 150.0))?;
/// assert_eq!((&found.differences[0].name[..], found.differences.len()), ("settings threads", 1));
/// assert!(found.figures[0].verdict.unwrap().differs() && found.figures[0].change_percent == 50.0);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn compare(a: &str, b: &str) -> Result<ReportComparison> {
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
    let comparisons = of_a.iter().filter(|(name, _)| of_b.iter().any(|(other, _)| other == name)).count();
    let level = level(comparisons);
    let (mut figures, mut only_in_one) = (Vec::new(), Vec::new());
    for (name, (a, rounds_of_a)) in of_a {
        let Some(at) = of_b.iter().position(|(other, _)| *other == name) else {
            only_in_one.push(name);
            continue;
        };
        let (_, (b, rounds_of_b)) = of_b.remove(at);
        let verdict = rounds_of_a.zip(rounds_of_b).map(|(a, b)| Verdict::of(&a, &b, level));
        let change_percent = if a.median > 0.0 { 100.0 * (b.median / a.median - 1.0) } else { 0.0 };
        figures.push(Figure { name, a, b, change_percent, verdict });
    }
    only_in_one.extend(of_b.into_iter().map(|(name, _)| name));
    Ok(ReportComparison { experiment: experiment(&a), differences, figures, only_in_one })
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
fn different(part: &str, a: &Value, b: &Value, differences: &mut Vec<ReportDifference>) {
    let none = Map::new();
    let [of_a, of_b] = [a, b].map(|value| value.as_object().unwrap_or(&none));
    let names = of_a.keys().chain(of_b.keys().filter(|name| !of_a.contains_key(*name)));
    for name in names.filter(|name| !matches!(name.as_str(), "date" | "load_average_1min")) {
        let (a, b) = (a[name].clone(), b[name].clone());
        if a != b {
            differences.push(ReportDifference { name: format!("{part} {}", name.replace('_', " ")), a, b });
        }
    }
}

/// Figures that follow from others in the same case: they would count one difference twice.
const DERIVED: [&str; 2] = ["seconds_per_epoch", "steady_seconds_per_epoch"];

/// A figure: its spread, and that of each round, if the report has it.
type FigureRounds = (Spread, Option<Vec<f64>>);

/// Adds all figures within a value, each with the names that lead to it.
fn spreads(name: &str, value: &Value, found: &mut Vec<(String, FigureRounds)>) {
    let within = |inner: &str| if name.is_empty() { inner.to_owned() } else { format!("{name}, {inner}") };
    match value {
        Value::Object(fields) => {
            if let Some(spread) = spread(fields) {
                found.push((name.to_owned(), spread));
                return;
            }
            for (field, value) in measured(fields) {
                spreads(&within(&field.replace('_', " ")), value, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                // An item is identified by its fields and not by its place in the list.
                let case = item.as_object().map(case).unwrap_or_default();
                let Some(fields) = item.as_object().filter(|_| !case.is_empty()) else { continue };
                for (field, value) in measured(fields) {
                    spreads(&format!("{}, {}", within(&case), field.replace('_', " ")), value, found);
                }
            }
        }
        _ => {}
    }
}

/// The fields without those that follow from the images per second.
fn measured(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let has_rate = ["steady_images_per_s", "images_per_s"].iter().any(|rate| fields.contains_key(*rate));
    fields.iter().filter(move |(name, _)| !(has_rate && DERIVED.contains(&name.as_str())))
}

fn spread(fields: &Map<String, Value>) -> Option<FigureRounds> {
    let number = |name| fields.get(name)?.as_f64();
    let rounds = usize::try_from(fields.get("rounds")?.as_u64()?).ok()?;
    let spread = Spread { median: number("median")?, low: number("low")?, high: number("high")?, rounds };
    let each = fields.get("each").and_then(Value::as_array);
    Some((spread, each.and_then(|each| each.iter().map(Value::as_f64).collect())))
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

impl ReportComparison {
    /// The comparison for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.experiment);
        for ReportDifference { name, a, b } in &self.differences {
            let [a, b] = [a, b].map(|value| if value.is_null() { "-".to_owned() } else { value.to_string() });
            text += &format!("  {name}: {a} -> {b}\n");
        }
        if self.differences.is_empty() {
            text += "  the same machine, build and settings\n";
        }
        let mut groups: [(&str, Vec<&Figure>); 3] = [
            ("Differ:", Vec::new()),
            ("Not distinguishable:", Vec::new()),
            ("Cannot tell, from so few rounds:", Vec::new()),
        ];
        for figure in &self.figures {
            let group = match figure.verdict {
                Some(verdict) if verdict.differs() => 0,
                Some(Verdict::NotDistinguishable(_)) => 1,
                _ => 2,
            };
            groups[group].1.push(figure);
        }
        for (title, figures) in groups.into_iter().filter(|(_, figures)| !figures.is_empty()) {
            text += &format!("\n{title}\n");
            for Figure { name, a, b, verdict, .. } in figures {
                let of = |spread: &Spread| {
                    format!("{} ({} to {})", digits(spread.median), digits(spread.low), digits(spread.high))
                };
                let verdict = verdict.map_or_else(
                    || "cannot tell (a report without the figures of each round)".to_owned(),
                    |verdict| verdict.words("less", "more"),
                );
                text += &format!("  {name}: {} -> {}: {verdict}\n", of(a), of(b));
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
    use super::super::spread::with_rounds;
    use super::super::verdict::simulated::{Noise, QUIET, rates};
    use super::*;
    use serde_json::json;

    /// Ten rounds about a rate.
    fn rate(rate: f64) -> Value {
        with_rounds(&(0..10).map(|i| rate * (1.0 + 0.002 * f64::from(i))).collect::<Vec<_>>())
    }

    #[test]
    fn cases_are_found_whatever_their_place() {
        let case = |load: u32, figure| {
            json!({
                "model": "none", "load": load, "steady_images_per_s": rate(figure), "use": 0.5,
                "seconds_per_epoch": rate(1.0 / figure), "steady_seconds_per_epoch": rate(1.0 / figure),
            })
        };
        let report = |cases: Value, cpu: &str| {
            let environment = json!({ "cpu": cpu, "date": format!("{cpu}'s") });
            json!({ "experiment": "augment-load", "environment": environment, "figures": { "cases": cases } })
                .to_string()
        };
        let a = report(json!([case(1, 100.0), case(4, 51.0)]), "old");
        let b = report(json!([case(4, 71.0), case(1, 100.5), case(8, 1.0)]), "new");
        let found = compare(&a, &b).unwrap();
        assert_eq!(found.differences.len(), 1, "{:?}", found.differences);
        // Seconds would count each difference once more.
        let figures: Vec<_> =
            found.figures.iter().map(|figure| (&figure.name[..], figure.verdict.unwrap().differs())).collect();
        let want =
            [("cases, load 1, none, steady images per s", false), ("cases, load 4, none, steady images per s", true)];
        assert_eq!(figures, want);
        assert_eq!(found.only_in_one, ["cases, load 8, none, steady images per s"]);
        let text = found.text();
        assert!(text.contains("51.46 (51.10 to 51.82) -> 71.64 (71.14 to 72.14): 39 % more ("), "{text}");
        let [differ, same] = ["Differ:", "Not distinguishable:"].map(|title| text.find(title).unwrap());
        assert!(differ < same && text.contains("\"old\" -> \"new\""), "{text}");
        // A report without the figures of each round, or with few of them.
        let without = a.replace("each", "all");
        assert!(compare(&without, &b).unwrap().text().contains("cannot tell (a report without"));
        let few =
            |by: f64| json!({ "experiment": "x", "figures": { "rate": with_rounds(&[100.0 * by; 3]) } }).to_string();
        let text = compare(&few(1.0), &few(0.78)).unwrap().text();
        assert!(text.contains("Cannot tell") && text.contains("cannot tell (5 rounds or more could)"), "{text}");
        let other = b.replace("augment-load", "workers");
        assert!(compare(&a, &other).unwrap_err().to_string().contains("augment-load"));
        assert!(compare(&a, "{}").unwrap_err().to_string().contains("report.json"));
        assert!(compare("[", &b).unwrap_err().is_parameter());
    }

    /// Two reports of 32 cases. `by`: how many times as much the first ten of the second report make.
    fn made(number: u64, by: f64) -> ReportComparison {
        // Rounds of one report are not in turn with those of another, so what a report's rounds share counts as noise.
        let noise = Noise { shared: 0.01, own: 0.015, ..QUIET };
        let report = |number: u64, by: f64| {
            let medians: Vec<f64> = (0..32).map(|case| if case < 10 { 100.0 * by } else { 100.0 }).collect();
            let rounds = rates(number, &medians, 16, noise);
            let case =
                |(i, rounds): (usize, &Vec<f64>)| json!({ "case": i, "steady_images_per_s": with_rounds(rounds) });
            let cases: Vec<Value> = rounds.iter().enumerate().map(case).collect();
            json!({ "experiment": "x", "figures": { "cases": cases } }).to_string()
        };
        compare(&report(2 * number, 1.0), &report(2 * number + 1, by)).unwrap()
    }

    #[test]
    fn equal_reports_differ_in_one_of_a_hundred_comparisons_at_most() {
        let differ = |number: &u64| made(*number, 1.0).figures.iter().any(|figure| figure.verdict.unwrap().differs());
        let differ = (0..1_000).filter(differ).count();
        assert!(differ <= 10, "{differ} of 1,000 comparisons");
    }

    #[test]
    fn differences_of_5_percent_are_found() {
        let of_one = |number| {
            let found = made(number, 1.05);
            let differ = found.figures.iter().filter(|figure| figure.verdict.unwrap().differs()).count();
            assert!(!found.text().contains("qual"), "{}", found.text());
            differ
        };
        let found: usize = (0..100).map(of_one).sum();
        assert!((900..=1_001).contains(&found), "{found} of 1,000");
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
