//! The report on loaders with boxes and masks, from `benches/peers/run --detection`.

use super::{Machine, OWN_CONTENDERS, plot, sentence};
use crate::report::{Columns, Report};
use crate::spread::Spread;
use serde::Deserialize;
use serde_json::Value;

/// The loaders, by their names in the file and in the report. warpfeed's own come first.
const CONTENDERS: [(&str, &str); 5] = [
    ("warpfeed", "warpfeed"),
    ("warpfeed-first", "warpfeed (first epoch)"),
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

    fn median(&self, preset: &str, contender: &str, of: fn(&Run) -> Option<f64>) -> Option<f64> {
        self.figure(preset, contender, of).map(|spread| spread.median)
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

    /// The loaders that ran each preset.
    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.presets().into_iter().flat_map(move |preset| {
            let own_ms = self.median(preset, "warpfeed", |run| run.user_ms);
            let own = self.median(preset, "warpfeed", |run| Some(run.images_per_s));
            CONTENDERS.iter().enumerate().filter_map(move |(number, &(contender, name))| {
                let rate = self.figure(preset, contender, |run| Some(run.images_per_s))?;
                let first = self.median(preset, contender, |run| run.first_images_per_s);
                let user_ms = self.median(preset, contender, |run| run.user_ms);
                let [own, own_ms] = [own, own_ms].map(|own| own.filter(|_| number >= OWN_CONTENDERS));
                Some(Row { preset, name, rate, first, user_ms, own, own_ms })
            })
        })
    }

    fn answer(&self, preset: &str) -> Option<String> {
        let own = ["warpfeed", "warpfeed-first"].map(|own| self.median(preset, own, |run| Some(run.images_per_s)));
        let peers = self.rows().filter(|row| row.preset == preset && row.own.is_some());
        sentence(preset, own, peers.map(|row| (row.name, row.rate.median)))
    }

    /// Makes the report.
    pub(super) fn report(self) -> Report {
        let question = "How fast is warpfeed with boxes and masks, compared with torchvision and albumentations?";
        let mut report = Report::new("peers-detection", question, self.machine.environment());
        let presets = self.presets();
        report.answer = presets.iter().filter_map(|preset| self.answer(preset)).collect();
        let rate = |preset: &str, contender: &str| self.figure(preset, contender, |run| Some(run.images_per_s));
        let title = "Images per second with boxes and masks";
        report.plot("peers", title, plot(title, &presets, &CONTENDERS, rate));
        let speeds = Columns::new()
            .text("pipeline", |row: &Row<'_>| row.preset)
            .text("contender", |row| row.name)
            .spread("images/s", 0, |row| Some(row.rate))
            .number("first epoch, images/s", 0, |row| row.first)
            .number("user CPU, ms an image", 1, |row| row.user_ms)
            .number("warpfeed against it, times", 2, |row| Some(row.own? / row.rate.median))
            .number("its user CPU against warpfeed's, times", 2, |row| Some(row.user_ms? / row.own_ms?))
            .table("peers", "Side by side on the CPU, with boxes and masks", self.rows());
        let own = |preset: &&str, of: fn(&Run) -> Option<f64>| self.median(preset, "warpfeed", of);
        let stages = Columns::new()
            .text("pipeline", |preset: &&str| *preset)
            .number("reading, ms an image", 2, |preset| own(preset, |run| run.read_ms))
            .number("decoding, ms an image", 2, |preset| own(preset, |run| run.decode_ms))
            .number("augmenting, ms an image", 2, |preset| own(preset, |run| run.augment_ms))
            .table("stages", "Where warpfeed's threads spend their time", presets);
        report.tables = vec![speeds, stages];
        report.notes = vec![
            "In its first two epochs warpfeed records places in each JPEG where decoding can start. Its figures are those of \
             the third epoch and later, and of the first. The others run at the same speed in every epoch. Their figures are \
             those of the second, without the start of their workers."
                .to_owned(),
            "Each figure is the median of its rounds, measured in turn with the others, with the interval in which they lie. \
             User CPU times are disturbed less by other work on the machine."
                .to_owned(),
            "Each library has the pipelines as nearly as it can. torchvision has no mosaic, so the script pastes one; \
             albumentations has no crop by overlap."
                .to_owned(),
            self.machine.versions(),
        ];
        report.settings = self.settings;
        report
    }
}

/// A loader with a preset. A peer's row has warpfeed's figures too.
struct Row<'a> {
    preset: &'a str,
    name: &'static str,
    rate: Spread,
    first: Option<f64>,
    user_ms: Option<f64>,
    own: Option<f64>,
    own_ms: Option<f64>,
}
