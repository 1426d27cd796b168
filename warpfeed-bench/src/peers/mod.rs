//! The report on warpfeed, DALI and torchvision from the measurements of `benches/peers/run`.

mod detection;

use super::environment::Environment;
use super::report::plot::{Axes, Series};
use super::report::{Columns, Report};
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

    /// warpfeed's images per second from the third epoch on, and in the first.
    fn own(&self, pipeline: &str) -> [Option<f64>; 2] {
        ["warpfeed", "warpfeed-first"].map(|own| Some(self.rate(pipeline, own)?.median))
    }

    /// The loaders that ran each pipeline.
    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.medians.iter().flat_map(move |(pipeline, medians)| {
            let own = self.own(pipeline);
            CONTENDERS.iter().enumerate().filter_map(move |(number, &(contender, name))| {
                let (is_peer, rate, medians) =
                    (number >= OWN_CONTENDERS, self.rate(pipeline, contender)?, &medians[contender]);
                Some(Row { pipeline, name, is_peer, rate, medians, own })
            })
        })
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

/// A loader with a pipeline: its medians, and its rounds.
struct Row<'a> {
    pipeline: &'a str,
    name: &'static str,
    is_peer: bool,
    rate: Spread,
    medians: &'a Value,
    /// Images per second of warpfeed from the third epoch on, and in the first.
    own: [Option<f64>; 2],
}

impl Row<'_> {
    /// warpfeed's speed relative to the loader's, from the third epoch on and in the first; `None` for its own rows.
    fn times(&self) -> [Option<f64>; 2] {
        self.own.map(|own| own.filter(|_| self.is_peer).map(|own| own / self.rate.median))
    }

    fn figure(&self, field: &str) -> Option<f64> {
        self.medians[field].as_f64()
    }
}

/// Makes the report of a file that `benches/peers/run --out` wrote, with `--detection` or without.
///
/// # Errors
/// [`Error::Parameter`] if the text is no such file.
pub fn peers(json: &str) -> Result<Report> {
    let wrong = |error| Error::parameter("peers", "file", "what benches/peers/run --out wrote", error);
    let file: Value = serde_json::from_str(json).map_err(wrong)?;
    if file.get("detection").is_some() {
        return serde_json::from_value::<detection::Measured>(file).map_err(wrong).map(|file| file.report());
    }
    let measured: Measured = serde_json::from_value(file).map_err(wrong)?;
    let environment = measured.machine.environment();
    let mut report = Report::new("peers", "How fast is warpfeed compared with DALI and torchvision?", environment);
    let rows: Vec<Row<'_>> = measured.rows().collect();
    for pipeline in measured.medians.keys() {
        let own = measured.own(pipeline);
        let peers = rows.iter().filter(|row| row.is_peer && row.pipeline == pipeline);
        report.answer.extend(sentence(pipeline, own, peers.map(|row| (row.name, row.rate.median))));
    }
    let groups: Vec<&str> = measured.medians.keys().map(String::as_str).collect();
    let rate = |group: &str, contender: &str| measured.rate(group, contender);
    report.plot("peers", "Images per second side by side", plot("Images per second", &groups, &CONTENDERS, rate));
    let table = Columns::new()
        .text("pipeline", |row: &Row<'_>| row.pipeline)
        .text("contender", |row| row.name)
        .spread("images/s", 0, |row| Some(row.rate))
        .number("warpfeed against it, times", 2, |row| row.times()[0])
        .number("its first epoch, times", 2, |row| row.times()[1])
        .number("first batch, s", 3, |row| row.figure("first_batch_s"))
        .number("peak memory, MB", 0, |row| row.figure("peak_rss_bytes").map(|bytes| bytes / 1e6));
    report.tables.push(table.table("peers", "Side by side on the CPU", rows));
    let bytes = if measured.equal_bytes { "equal" } else { "DIFFERENT" };
    report.notes = vec![
        "In its first two epochs warpfeed records places in each JPEG where decoding can start. Its figures are those of \
         the third epoch and later, and of the first epoch, which has no such places. The others run at the same speed in \
         every epoch."
            .to_owned(),
        "Each figure is the median of its rounds, measured in turn with the others, with the interval in which they lie. The \
         script chooses which loaders run a pipeline."
            .to_owned(),
        "A step is a training step of this length after each batch, as for a GPU that trains meanwhile.".to_owned(),
        format!("Fused and sequential strategy at N = 12 gave {bytes} bytes."),
        measured.machine.versions(),
    ];
    report.figures = serde_json::to_value(&measured.medians).unwrap_or(Value::Null);
    report.settings = measured.settings;
    Ok(report)
}

/// Sentence on a pipeline: warpfeed's images per second, from the third epoch on and in the first, and the fastest of
/// the others by name and speed. `None` without warpfeed's speed.
fn sentence<'a>(
    of: &str,
    [own, first]: [Option<f64>; 2],
    peers: impl Iterator<Item = (&'a str, f64)>,
) -> Option<String> {
    let own = own?;
    let Some((name, rate)) = peers.reduce(|a, b| if b.1 > a.1 { b } else { a }) else {
        return Some(format!("{of}: {own:.0} images/s."));
    };
    let first = first.map(|first| format!(" ({:.1} times in the first epoch)", first / rate)).unwrap_or_default();
    let times = own / rate;
    Some(format!("{of}: {own:.0} images/s, {times:.1} times those of the fastest of the others, {name}{first}."))
}

/// A plot of the images per second of these loaders.
fn plot(
    title: &str,
    groups: &[&str],
    contenders: &[(&'static str, &'static str)],
    rate: impl Fn(&str, &str) -> Option<Spread>,
) -> String {
    let series = contenders.iter().map(|(contender, name)| {
        Series::spread(*name, &groups.iter().map(|group| rate(group, contender)).collect::<Vec<_>>())
    });
    // No line break at the equals sign.
    let names: Vec<String> = groups.iter().map(|name| name.replace(" = ", "\u{a0}=\u{a0}")).collect();
    Axes::new(title, "images/s").grouped_bars(&names, &series.collect::<Vec<_>>())
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
