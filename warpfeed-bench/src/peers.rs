//! The report on warpfeed, DALI and torchvision from the measurements of `benches/peers/run`.

use super::environment::Environment;
use super::peers_detection;
use super::report::plot::{OWN, Series, grouped_bars};
use super::report::{Cell, Report, ReportTable};
use super::spread::Spread;
use serde::Deserialize;
use serde_json::{Map, Value};
use warpfeed::{Error, Result};

/// The loaders, by their names in the file and in the report. warpfeed's own come first.
const CONTENDERS: [(&str, &str); 6] = [
    ("warpfeed", "warpfeed"),
    ("warpfeed-first", "warpfeed (first epoch)"),
    ("dali", "DALI"),
    ("dali-full", "DALI (full decode)"),
    ("torchvision", "torchvision"),
    ("torchvision-v2", "torchvision v2"),
];

/// Number of warpfeed's own loaders.
const OWN_CONTENDERS: usize = 2;

/// The fields of the file that are used.
#[derive(Deserialize)]
struct Measured {
    machine: Machine,
    settings: Value,
    /// Medians by pipeline and loader.
    medians: Map<String, Value>,
    equal_bytes: bool,
    /// Every run.
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    row: String,
    contender: String,
    images_per_s: f64,
}

impl Measured {
    /// The images per second of a loader with a pipeline, over its rounds.
    fn rate(&self, pipeline: &str, contender: &str) -> Option<Spread> {
        let of = |run: &&Run| (run.row.as_str(), run.contender.as_str()) == (pipeline, contender);
        Spread::of(&self.runs.iter().filter(of).map(|run| run.images_per_s).collect::<Vec<_>>())
    }
}

/// The machine that was measured, which may be another than this one.
#[derive(Deserialize)]
pub(super) struct Machine {
    date: String,
    cpu: String,
    cores: usize,
    memory_bytes: u64,
    system: String,
    load_average_1min: f64,
    versions: Map<String, Value>,
}

/// Makes the report of a file that `benches/peers/run --out` wrote, with `--detection` or without.
///
/// # Errors
/// [`Error::Parameter`] if the text is no such file.
pub fn peers(json: &str) -> Result<Report> {
    let wrong = |error| Error::parameter("peers", "file", "what benches/peers/run --out wrote", error);
    let file: Value = serde_json::from_str(json).map_err(wrong)?;
    if file.get("detection").is_some() {
        return serde_json::from_value::<peers_detection::Measured>(file).map_err(wrong).map(|file| file.report());
    }
    let measured: Measured = serde_json::from_value(file).map_err(wrong)?;
    let figures = serde_json::to_value(&measured.medians).unwrap_or(Value::Null);
    let mut report =
        Report::new("peers", "How fast is warpfeed beside DALI and torchvision?", measured.machine.environment());
    let figure = |row: &Value, contender: &str, field: &str| row[contender][field].as_f64();
    let mut table = ReportTable::new(
        "peers",
        "Side by side on the CPU",
        &[
            "pipeline",
            "contender",
            "images/s",
            "from",
            "to",
            "warpfeed against it, times",
            "its first epoch, times",
            "first batch, s",
            "peak memory, MB",
        ],
    );
    let mut series: Vec<Series> = CONTENDERS.map(|(_, name)| Series::new(name, Vec::new())).into();
    for (pipeline, row) in &measured.medians {
        let own = measured.rate(pipeline, "warpfeed").map(|rate| rate.median);
        let first = measured.rate(pipeline, "warpfeed-first").map(|rate| rate.median);
        let mut against = Vec::new();
        for (number, ((contender, name), series)) in CONTENDERS.into_iter().zip(&mut series).enumerate() {
            let rate = measured.rate(pipeline, contender);
            series.values.push(rate.map(|rate| rate.median));
            series.intervals.push(rate.map(|rate| (rate.low, rate.high)));
            let Some(rate) = rate else { continue };
            let is_peer = number >= OWN_CONTENDERS;
            let ratio = |own: Option<f64>| own.filter(|_| is_peer).map(|own| own / rate.median);
            against.extend(ratio(own).map(|later| {
                let first = ratio(first).map(|first| format!(" ({first:.1} times in the first epoch)"));
                format!("{later:.1} times {name}{}", first.unwrap_or_default())
            }));
            table.rows.push(vec![
                pipeline.as_str().into(),
                name.into(),
                Cell::number(rate.median, 0),
                Cell::number(rate.low, 0),
                Cell::number(rate.high, 0),
                Cell::number(ratio(own), 2),
                Cell::number(ratio(first), 2),
                Cell::number(figure(row, contender, "first_batch_s"), 3),
                Cell::number(figure(row, contender, "peak_rss_bytes").map(|bytes| bytes / 1e6), 0),
            ]);
        }
        let rate = own.map_or_else(|| "no".to_owned(), |own| format!("{own:.0}"));
        report.answer.push(format!("{pipeline}: {rate} images/s, {}.", against.join(", ")));
    }
    // No line break at the equals sign.
    let groups: Vec<String> = measured.medians.keys().map(|name| name.replace(" = ", "\u{a0}=\u{a0}")).collect();
    report.plot(
        "peers",
        "Images per second side by side",
        grouped_bars("Images per second", "images/s", "", &groups, &series, OWN),
    );
    report.tables.push(table);
    report.notes = vec![
        "In its first two epochs warpfeed records places in each JPEG where decoding can start. Its figures are those of \
         the third epoch and later, and of the first epoch, which has no such places. The others run at the same speed in \
         every epoch."
            .to_owned(),
        "Each contender's figure is the median of its rounds, measured in turn with the others, and the interval in which they \
         lie. Which of them run a pipeline is the script's choice: one that is missing there was not run."
            .to_owned(),
        "A step is a training step of this length after each batch, as for a GPU that trains meanwhile.".to_owned(),
        format!(
            "Fused and sequential strategy at N = 12 gave {} bytes.",
            if measured.equal_bytes { "equal" } else { "DIFFERENT" }
        ),
        measured.machine.versions(),
    ];
    report.settings = measured.settings;
    report.figures = figures;
    Ok(report)
}

impl Machine {
    /// As the environment of a report.
    pub(super) fn environment(&self) -> Environment {
        let version = |name: &str| self.versions.get(name).and_then(Value::as_str).map(str::to_owned);
        Environment {
            date: self.date.clone(),
            cpu: self.cpu.clone(),
            cores: self.cores,
            memory_bytes: Some(self.memory_bytes),
            system: self.system.clone(),
            load_average_1min: Some(self.load_average_1min),
            gpus: Vec::new(),
            driver: None,
            no_gpu: Some("this comparison is of the CPU paths".to_owned()),
            warpfeed: version("warpfeed").unwrap_or_default(),
            commit: version("commit"),
            build: "release",
            jpeg: None,
        }
    }

    /// Sentence with the version of each program.
    pub(super) fn versions(&self) -> String {
        let versions =
            self.versions.iter().map(|(name, version)| format!("{name} {}", version.as_str().unwrap_or("?")));
        format!("Versions: {}.", versions.collect::<Vec<_>>().join(", "))
    }
}
