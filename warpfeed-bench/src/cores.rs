//! Number of cores that a training step needs, and what changes it.

use super::configurations::ConfigurationsSettings;
use super::environment::{available_memory_bytes, cores};
use super::grid::in_rounds;
use super::report::plot::{Axes, Bar};
use super::report::{Cell, Columns, Report, ReportTable};
use super::spread::{Spread, with_rounds};
use super::subject::{Subject, next, no_gpu};
use super::train::alone;
use super::verdict::{above, in_turn, level};
use serde_json::json;
use warpfeed::image::probe;
use warpfeed::ops::{Transform, random_horizontal_flip, random_rotation, random_vertical_flip, repeat};
use warpfeed::source::{EncodedImages, Input, StreamStart};
use warpfeed::{Device, EntryPoints, Error, ImageCache, JpegDecoder, Pipeline, PipelineBuilder, Result};
use warpfeed_image::decode::indexed;
use warpfeed_image::encode::to_baseline;
use warpfeed_image::raster::{DEFAULT_MAX_PIXELS, check_pixels};

/// Number of images that are kept in memory to be packed and cached.
const KEPT_IMAGES: u64 = 256;
/// Limit of their size in bytes.
const KEPT_BYTES: usize = 128 << 20;
/// Loads that are added to the operations: numbers of repetitions of the published flips and rotation.
const LOADS: [u32; 2] = [4, 12];

/// The cores of a machine, and the GPUs that train on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) cores: usize,
    /// GPUs that train. With 0, one step is fed that keeps no core for itself.
    pub(super) gpus: usize,
}

impl Machine {
    /// This machine.
    pub(super) fn here(gpus: usize) -> Self {
        Self { cores: cores(), gpus }
    }

    /// Cores that each trainer keeps: one, or two if there are more than eight for each GPU.
    fn of_trainer(self) -> usize {
        match self.gpus {
            0 => 0,
            gpus if self.cores / gpus > 8 => 2,
            _ => 1,
        }
    }

    /// Cores that are left for images.
    pub(super) fn for_images(self) -> usize {
        self.cores.saturating_sub(self.gpus * self.of_trainer())
    }

    /// Cores that the images of all steps take, at these images per second of a core and of a step.
    fn need(self, of_core: f64, of_step: f64) -> f64 {
        self.gpus.max(1) as f64 * of_step / of_core
    }

    /// Whether the loader starves the steps, by what a core makes in each round; `None` if the rounds cannot tell.
    fn starves(self, of_core: &[f64], of_step: f64, level: f64) -> Option<bool> {
        let needs: Vec<f64> = of_core.iter().map(|&of_core| self.need(of_core, of_step)).collect();
        above(&needs, self.for_images() as f64, level)
    }

    /// Sentence about the cores that the steps need, by what a core makes in each round. `None` without rounds.
    pub(super) fn sentence(self, of_core: &[f64], of_step: f64, level: f64) -> Option<String> {
        let median = Spread::of(of_core)?.median;
        let (need, have) = (self.need(median, of_step), self.for_images());
        let enough = match self.starves(of_core, of_step, level) {
            Some(true) => ": too few, so the step waits",
            Some(false) => ", which are enough",
            None => "; the rounds cannot tell whether they are enough",
        };
        let of_trainers = match self.gpus {
            0 => String::new(),
            gpus => format!(", and the trainers {} more", gpus * self.of_trainer()),
        };
        let steps = match self.gpus {
            0 | 1 => "The step takes".to_owned(),
            gpus => format!("The step of each of the {gpus} GPUs takes"),
        };
        Some(format!(
            "{steps} {of_step:.0} images/s, and a core makes {median:.0}: the images need {need:.2} cores{of_trainers}. This \
             machine has {have} for images{enough}."
        ))
    }

    /// Sentence about recommended threads that are more than the cores for images, as they can be if the numbers to
    /// measure were given.
    pub(super) fn shared(self, threads: usize) -> Option<String> {
        let shared = threads.checked_sub(self.for_images()).filter(|&shared| shared > 0 && self.gpus > 0)?;
        Some(format!(
            "{shared} of the {threads} recommended threads would share the trainers' cores. A step on the CPU leaves them no time."
        ))
    }

    /// Adds the figures that the sentence is made of.
    pub(super) fn add_figures(self, report: &mut Report, of_core: Option<f64>, of_step: Option<f64>) {
        report.figures["images_per_s_a_core"] = json!(of_core);
        report.figures["images_per_s_of_the_step"] = json!(of_step);
        report.figures["cores_needed"] =
            json!(of_core.zip(of_step).map(|(of_core, of_step)| self.need(of_core, of_step)));
    }
}

/// A way to make images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By the settings.
    Asked,
    /// With flips and rotations before the operations.
    Load(u32),
    Packed,
    Cached,
    DeviceDecoding,
}

impl Way {
    const ALL: [Self; 6] =
        [Self::Asked, Self::Load(LOADS[0]), Self::Load(LOADS[1]), Self::Packed, Self::Cached, Self::DeviceDecoding];

    /// The way's name, for operations of this name.
    fn name(self, of_operations: &str) -> String {
        match self {
            Self::Asked => of_operations.to_owned(),
            Self::Load(load) => format!("{of_operations} after {load} flips and rotations"),
            Self::Packed => format!("{of_operations}, packed with restarts"),
            Self::Cached => format!("{of_operations}, from the image cache"),
            Self::DeviceDecoding => format!("{of_operations}, decoded by the GPU"),
        }
    }
}

/// Images per second of a core in each round, by the ways that were measured. The operations as asked come first.
pub(super) struct CoreRates {
    /// Name of the operations.
    name: String,
    rates: Vec<(Way, Vec<f64>)>,
    kept_images: usize,
    no_gpu: Option<String>,
}

/// Measures all ways in rounds.
///
/// # Errors
/// The errors of pipelines.
pub(super) fn measure(
    subject: &Subject,
    settings: &ConfigurationsSettings,
    progress: &mut dyn FnMut(&str),
) -> Result<CoreRates> {
    let kept = kept(subject)?;
    let no_gpu = no_gpu();
    let all = Way::ALL.into_iter().filter(|&way| way != Way::DeviceDecoding || no_gpu.is_none());
    // Made once. Making them, and filling the cache, takes longer than a round.
    let made = all.map(|way| Ok((pipeline(way, subject, settings, &kept)?, way, Vec::new())));
    let mut ways = made.collect::<Result<Vec<_>>>()?;
    in_rounds(&mut ways, (settings.rounds, subject.seed), progress, |(pipeline, way, rates), _| {
        let rate = alone(|run| run.for_time(pipeline, settings.time))?.images_per_s_of_core();
        rates.extend(rate);
        Ok(format!("a core, {}: {:.0} images/s", way.name(&settings.name), rate.unwrap_or(0.0)))
    })?;
    let mut rates: Vec<(Way, Vec<f64>)> = ways.into_iter().map(|(_, way, rates)| (way, rates)).collect();
    rates.retain(|(_, rates)| !rates.is_empty());
    Ok(CoreRates { name: settings.name.clone(), rates, kept_images: kept.len(), no_gpu })
}

impl CoreRates {
    #[cfg(test)]
    pub(super) fn made(name: &str, rates: Vec<(Way, Vec<f64>)>) -> Self {
        Self { name: name.to_owned(), rates, kept_images: 1, no_gpu: None }
    }

    /// Level of each comparison: each further way is compared with the first, and each with the cores that there are.
    fn level(&self) -> f64 {
        // The configurations have the other half of the report's level.
        level(2 * (2 * self.rates.len() - 1))
    }

    /// The answer in sentences, for a step that takes `of_step` images per second.
    pub(super) fn answer(&self, of_step: f64, machine: Machine) -> Vec<String> {
        let Some(first) = self.rates.iter().position(|(way, _)| *way == Way::Asked) else { return Vec::new() };
        let figures: Vec<&[f64]> = self.rates.iter().map(|(_, rates)| rates.as_slice()).collect();
        let level = self.level();
        let mut answer: Vec<String> = machine.sentence(figures[first], of_step, level).into_iter().collect();
        let changes: Vec<String> = (0..figures.len())
            .filter(|&way| way != first && in_turn(&figures, first, way, level).differs())
            .filter_map(|way| {
                let need = machine.need(Spread::of(figures[way])?.median, of_step);
                Some(format!("{need:.2} ({})", self.rates[way].0.name(&self.name)))
            })
            .collect();
        if !changes.is_empty() {
            answer.push(format!("Prepared differently, the images need {}.", changes.join(", ")));
        }
        answer
    }

    /// Adds tables, plot, notes and figures to a report. `of_step`: `None` if the step takes no time.
    pub(super) fn add_to(&self, report: &mut Report, of_step: Option<f64>, machine: Machine) {
        let spreads: Vec<(Way, Spread)> =
            self.rates.iter().filter_map(|(way, rates)| Some((*way, Spread::of(rates)?))).collect();
        let no_gpu = self.no_gpu.as_ref().map(|reason| format!("decoded by the GPU: {reason}."));
        report.tables.insert(1, self.table(of_step, machine).blank(no_gpu));
        let need = |(way, rate): &(Way, Spread)| Some((*way, machine.need(rate.median, of_step?)));
        let needs: Vec<Bar> = (spreads.iter().filter_map(need))
            .map(|(way, value)| Bar { name: way.name(&self.name), value, interval: None, marked: way == Way::Asked })
            .collect();
        if !needs.is_empty() {
            let caption = "Cores that the images of all training steps need; the operations as asked in blue";
            report.plot("cores", caption, Axes::new(caption, "").bars(&needs));
        }
        report.notes.push(format!(
            "Images/s a core: one worker thread's images over its time in reading, decoding and augmenting, without a training \
             step and without entry points. Packed and cached images are the first {} in memory. Packed ones have restart \
             markers and an index, as warpfeed pack --restarts writes them. The published flips and rotations come before the \
             operations.",
            self.kept_images
        ));
        let asked = spreads.iter().find(|(way, _)| *way == Way::Asked).map(|(_, rate)| rate.median);
        machine.add_figures(report, asked, of_step);
        report.figures["a_core"] = (self.rates.iter())
            .map(|(way, rates)| json!({ "images": way.name(&self.name), "images_per_s": with_rounds(rates) }))
            .collect();
    }

    fn table(&self, of_step: Option<f64>, machine: Machine) -> ReportTable {
        let title = match (of_step, machine.gpus) {
            (Some(of_step), 0) => format!("Cores for a step that takes {of_step:.0} images/s"),
            (Some(of_step), gpus) => format!("Cores for {gpus} GPU(s) whose step takes {of_step:.0} images/s each"),
            (None, _) => "What a core makes".to_owned(),
        };
        let (trainers, have) = ((machine.gpus * machine.of_trainer()) as f64, machine.for_images() as f64);
        let level = self.level();
        let rate = |row: &&(Way, Vec<f64>)| Spread::of(&row.1);
        let need = move |row: &&(Way, Vec<f64>)| Some(machine.need(rate(row)?.median, of_step?));
        let starves = move |row: &&(Way, Vec<f64>)| match of_step.map(|of_step| machine.starves(&row.1, of_step, level))
        {
            Some(Some(true)) => "yes".into(),
            Some(Some(false)) => "no".into(),
            Some(None) => "cannot tell".into(),
            None => Cell::Blank,
        };
        Columns::new()
            .text("images", |row: &&(Way, Vec<f64>)| row.0.name(&self.name))
            .spread("images/s a core", 0, rate)
            .number("cores for images", 2, need)
            .number("with the trainers'", 2, move |row| Some(need(row)? + trainers))
            .number("of the step's rate here, %", 0, move |row| Some(100.0 * (have / need(row)?).min(1.0)))
            .cell("starves", starves)
            .table("cores", title, self.rates.iter().filter(|(_, rates)| !rates.is_empty()))
            .blank(of_step.is_none().then(|| "cores: the step takes no time (see --step).".to_owned()))
    }
}

/// The first images, encoded.
fn kept(subject: &Subject) -> Result<Vec<Vec<u8>>> {
    let most = subject.len().unwrap_or(KEPT_IMAGES).min(KEPT_IMAGES);
    let images: Box<dyn Iterator<Item = Result<Vec<u8>>>> = match &subject.input {
        Input::DataSet(source) => Box::new((0..most).map(|index| source.encoded(index))),
        Input::Stream(stream) => {
            let mut samples = stream.begin(&StreamStart::whole(0))?;
            let next = move || next(samples.as_mut()).map(|sample| sample.map(|sample| sample.bytes)).transpose();
            Box::new(std::iter::from_fn(next).take(most as usize))
        }
    };
    let (mut kept, mut bytes) = (Vec::new(), 0);
    for image in images.filter(|image| !image.as_ref().is_err_and(Error::is_bad_sample)) {
        let image = image?;
        bytes += image.len();
        kept.push(image);
        if bytes >= KEPT_BYTES {
            break;
        }
    }
    Ok(kept)
}

/// A JPEG with restart markers and an index of its rows. Other images, and JPEGs that cannot have them, stay as they
/// are.
fn packed(image: &[u8]) -> Vec<u8> {
    let small = probe(image).and_then(|header| check_pixels(header.size, DEFAULT_MAX_PIXELS));
    let packed = small.and_then(|()| to_baseline(image, true)).ok().and_then(|baseline| indexed(&baseline));
    packed.unwrap_or_else(|| image.to_vec())
}

/// The pipeline of a way, with one worker thread.
fn pipeline(way: Way, subject: &Subject, settings: &ConfigurationsSettings, kept: &[Vec<u8>]) -> Result<Pipeline> {
    let of = |subject: &Subject| {
        let builder = subject.builder().batch_size(settings.batch_size).strategy(settings.strategy);
        builder.threads(1).prefetch(1).entry_points(EntryPoints::none())
    };
    let build = |builder: PipelineBuilder, ops: &[Transform]| {
        ops.iter().cloned().fold(builder, PipelineBuilder::transform).build()
    };
    let in_memory = |images: Vec<Vec<u8>>| Subject {
        input: EncodedImages::unlabeled(images).into(),
        limit: None,
        ..subject.clone()
    };
    match way {
        Way::Asked => build(of(subject), &settings.ops),
        Way::Load(load) => {
            let once = [random_horizontal_flip(0.5), random_vertical_flip(0.5), random_rotation(-5.0..=5.0)];
            build(of(subject).transform(repeat(load, once)), &settings.ops)
        }
        Way::Packed => {
            let images = kept.iter().map(|image| packed(image)).collect();
            build(of(&in_memory(images)), &settings.ops)
        }
        Way::Cached => {
            let room = available_memory_bytes().unwrap_or(1 << 30) / 4;
            let pipeline = build(of(&in_memory(kept.to_vec())).cache(ImageCache::memory(room)), &settings.ops)?;
            // The first epoch fills the cache.
            for batch in pipeline.epoch(0) {
                batch?;
            }
            Ok(pipeline)
        }
        Way::DeviceDecoding => {
            build(of(subject).device(Device::Cuda(0)).jpeg_decoder(JpegDecoder::Device), &settings.ops)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::simulated::{QUIET, rates};
    use super::*;

    #[test]
    fn who_has_too_few_cores_starves() {
        let rate = |median: f64| (0..16).map(|i| median * (0.992 + 0.001 * f64::from(i))).collect::<Vec<f64>>();
        let rates = [(Way::Asked, rate(1_000.0)), (Way::Load(12), rate(400.0)), (Way::Cached, rate(1_005.0))];
        // One core of each eight is its trainer's.
        let machine = Machine { cores: 10, gpus: 2 };
        let [asked, step] = [rates[0].1.clone(), rates[1].1.clone()];
        let rates = CoreRates::made("train", rates.into());
        let table = rates.table(Some(3_000.0), machine);
        let row = |i: usize| table.rows[i].iter().map(Cell::text).collect::<Vec<_>>();
        assert_eq!(row(0), ["train", "1000", "995", "1004", "6.00", "8.00", "100", "no"]);
        assert_eq!(row(1)[4..], ["15.01", "17.01", "53", "yes"]);
        let sentence = |rounds: &[f64], of_step| machine.sentence(rounds, of_step, level(1)).unwrap();
        let said = sentence(&asked, 3_000.0);
        assert!(
            said.contains("need 6.00 cores, and the trainers 2 more.") && said.ends_with("which are enough."),
            "{said}"
        );
        assert!(sentence(&asked, 5_000.0).contains("8 for images: too few, so the step waits"));
        assert!(sentence(&asked, 4_000.0).contains("cannot tell"));
        assert!(sentence(&step[..1], 4_000.0).contains("cannot tell"), "one round tells nothing");
        assert!(machine.shared(9).unwrap().starts_with("1 of the 9 recommended threads would share"));
        let alone = Machine { cores: 2, gpus: 0 };
        assert_eq!((machine.shared(8), alone.shared(4)), (None, None));
        assert_eq!((alone.for_images(), Machine { cores: 64, gpus: 4 }.for_images()), (2, 56));
        assert!(rates.table(None, alone).blank[0].contains("--step"));
    }

    #[test]
    fn ways_that_change_nothing_are_not_mentioned() {
        let ways = [Way::Asked, Way::Load(4), Way::Load(12), Way::Packed, Way::Cached];
        let rounds = rates(3, &[1_000.0, 1_000.0, 400.0, 1_000.0, 1_000.0], 16, QUIET);
        let rates = CoreRates::made("train", ways.into_iter().zip(rounds).collect());
        let said = rates.answer(3_000.0, Machine { cores: 4, gpus: 1 });
        assert!(
            said[1].starts_with("Prepared differently, the images need 7.") && said[1].matches('(').count() == 1,
            "{said:?}"
        );
        assert!(said[1].contains("(train after 12 flips and rotations)"), "{said:?}");
    }
}
