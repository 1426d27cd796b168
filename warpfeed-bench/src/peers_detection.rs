//! The report on warpfeed, torchvision and albumentations with boxes and masks, from the measurements of
//! `benches/peers/run --detection`.

use super::peers::Machine;
use super::report::plot::{OWN, Series, grouped_bars};
use super::report::{Cell, Report, ReportTable};
use super::spread::Spread;
use serde::Deserialize;
use serde_json::Value;

/// warpfeed from the third epoch on, and in its first.
const OWN_CONTENDERS: [(&str, &str); 2] = [("warpfeed", "warpfeed"), ("warpfeed-first", "warpfeed (first epoch)")];

/// The others, by their names in the file and in the report.
const PEERS: [(&str, &str); 3] = [
    ("torchvision-v2", "torchvision v2 on PIL images"),
    ("torchvision-v2-tensor", "torchvision v2 on tensors"),
    ("albumentations", "albumentations"),
];

/// The fields of the file that are used.
#[derive(Deserialize)]
pub(super) struct Measured {
    machine: Machine,
    settings: Value,
    /// Every run.
    detection: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    /// Name of the preset.
    row: String,
    contender: String,
    images_per_s: f64,
    /// In the first epoch, in which a peer's workers are started.
    first_images_per_s: Option<f64>,
    /// User CPU time for an image.
    user_ms: Option<f64>,
    read_ms: Option<f64>,
    decode_ms: Option<f64>,
    augment_ms: Option<f64>,
}

impl Measured {
    /// A figure of a loader with a preset, over its rounds.
    fn figure(&self, preset: &str, contender: &str, of: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
        let runs = self.detection.iter().filter(|run| (&*run.row, &*run.contender) == (preset, contender));
        Spread::of(&runs.filter_map(of).collect::<Vec<_>>())
    }

    /// The presets in the order of the file.
    fn presets(&self) -> Vec<&str> {
        let mut presets: Vec<&str> = Vec::new();
        for run in &self.detection {
            if !presets.contains(&&*run.row) {
                presets.push(&run.row);
            }
        }
        presets
    }

    /// Makes the report.
    pub(super) fn report(self) -> Report {
        let question = "How fast is warpfeed with boxes and masks, beside torchvision and albumentations?";
        let mut report = Report::new("peers-detection", question, self.machine.environment());
        let presets = self.presets();
        let (mut table, mut stages) = (speeds(), stages());
        let contenders = || OWN_CONTENDERS.into_iter().chain(PEERS);
        let mut series: Vec<Series> = contenders().map(|(_, name)| Series::new(name, Vec::new())).collect();
        for preset in &presets {
            let median = |contender: &str, of: fn(&Run) -> Option<f64>| {
                self.figure(preset, contender, of).map(|spread| spread.median)
            };
            let rate: fn(&Run) -> Option<f64> = |run| Some(run.images_per_s);
            let (own, own_ms) = (median("warpfeed", rate), median("warpfeed", |run| run.user_ms));
            let mut fastest: Option<(f64, &str)> = None;
            for ((contender, name), series) in contenders().zip(&mut series) {
                let rate = self.figure(preset, contender, rate);
                series.values.push(rate.map(|rate| rate.median));
                series.intervals.push(rate.map(|rate| (rate.low, rate.high)));
                let Some(rate) = rate else { continue };
                let is_peer = PEERS.iter().any(|(peer, _)| *peer == contender);
                let user_ms = median(contender, |run| run.user_ms);
                let times = |a: Option<f64>, b: Option<f64>| a.zip(b).filter(|_| is_peer).map(|(a, b)| a / b);
                if is_peer && fastest.is_none_or(|(before, _)| rate.median > before) {
                    fastest = Some((rate.median, name));
                }
                table.rows.push(vec![
                    (*preset).into(),
                    name.into(),
                    Cell::number(rate.median, 0),
                    Cell::number(rate.low, 0),
                    Cell::number(rate.high, 0),
                    Cell::number(median(contender, |run| run.first_images_per_s), 0),
                    Cell::number(user_ms, 1),
                    Cell::number(times(own, Some(rate.median)), 2),
                    Cell::number(times(user_ms, own_ms), 2),
                ]);
            }
            let first = median("warpfeed-first", rate);
            if let (Some(own), Some(first), Some((fastest, name))) = (own, first, fastest) {
                report.answer.push(format!(
                    "{preset}: {own:.0} images/s, {:.1} times those of the fastest of the others, {name} ({:.1} times in \
                     the first epoch).",
                    own / fastest,
                    first / fastest
                ));
            }
            let parts: [fn(&Run) -> Option<f64>; 3] = [|run| run.read_ms, |run| run.decode_ms, |run| run.augment_ms];
            let parts = parts.map(|of| Cell::number(median("warpfeed", of), 2));
            stages.rows.push([Cell::from(*preset)].into_iter().chain(parts).collect());
        }
        let groups: Vec<String> = presets.iter().map(|preset| (*preset).to_owned()).collect();
        report.plot(
            "peers",
            "Images per second with boxes and masks",
            grouped_bars("Images per second with boxes and masks", "images/s", "", &groups, &series, OWN),
        );
        report.tables = vec![table, stages];
        report.notes = vec![
            "warpfeed's figures are those of the epochs after the second, and of the first. In its first two epochs it \
             records places in each JPEG where decoding can start. The others run at the same speed in every epoch, and \
             their figures are those of the second, without the start of their workers."
                .to_owned(),
            "Each figure is the median of its rounds, measured in turn with the others, and the interval in which they lie. \
             User CPU times are disturbed less by what else the machine does."
                .to_owned(),
            "Each library has the pipelines as near as it can: torchvision has no mosaic, which the script pastes, and \
             albumentations no crop by overlap."
                .to_owned(),
            self.machine.versions(),
        ];
        report.settings = self.settings;
        report
    }
}

fn speeds() -> ReportTable {
    ReportTable::new(
        "peers",
        "Side by side on the CPU, with boxes and masks",
        &[
            "pipeline",
            "contender",
            "images/s",
            "from",
            "to",
            "first epoch, images/s",
            "user CPU, ms an image",
            "warpfeed against it, times",
            "its user CPU against warpfeed's, times",
        ],
    )
}

/// The table of what bounds warpfeed.
fn stages() -> ReportTable {
    ReportTable::new(
        "stages",
        "Where warpfeed's threads spend their time",
        &["pipeline", "reading, ms an image", "decoding, ms an image", "augmenting, ms an image"],
    )
}
