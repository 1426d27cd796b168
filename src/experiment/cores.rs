//! Measures how many cores the training on each GPU needs, and how load, packing, caching and decoding on the device
//! change that.

use super::configurations::{Settings, worker_counts};
use super::environment::{available_memory_bytes, cores};
use super::report::plot::{Bar, bars};
use super::report::{Cell, Report, Table};
use super::spread::{Spread, turns};
use super::subject::{Model, Subject, next, no_gpu};
use super::train::{Run, RunTimes};
use super::trial::Trial;
use crate::decode::{indexed, probe};
use crate::device::{DecodePath, Device};
use crate::encode::to_baseline;
use crate::error::Result;
use crate::pipeline::{Builder, ImageCache, Pipeline};
use crate::raster::{DEFAULT_MAX_PIXELS, check_pixels};
use crate::source::{EncodedImages, Input, StreamStart};
use serde_json::json;

/// Number of images that are kept in memory to be packed and cached.
const KEPT_IMAGES: u64 = 256;
/// Limit of their size in bytes.
const KEPT_BYTES: usize = 128 << 20;
/// Loads of trial A that are measured.
const LOADS: [u32; 3] = [1, 4, 12];

/// A way to make images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By the settings.
    Asked,
    Load(u32),
    Packed,
    Cached,
    DeviceDecoding,
}

impl Way {
    const ALL: [Self; 7] = [
        Self::Asked,
        Self::Load(LOADS[0]),
        Self::Load(LOADS[1]),
        Self::Load(LOADS[2]),
        Self::Packed,
        Self::Cached,
        Self::DeviceDecoding,
    ];

    fn name(self) -> String {
        match self {
            Self::Asked => "as asked".to_owned(),
            Self::Load(load) => format!("trial A, load {load}"),
            Self::Packed => "packed with restarts".to_owned(),
            Self::Cached => "from the image cache".to_owned(),
            Self::DeviceDecoding => "decoded by the GPU".to_owned(),
        }
    }
}

/// Measures all ways in rounds, and adds the cores that they need to a report of
/// [`configurations`](super::configurations). `of_step`: images per second that one GPU's training step takes; `None`
/// if it takes no time.
///
/// # Errors
/// The errors of pipelines.
pub fn add(
    report: &mut Report,
    subject: &Subject,
    settings: &Settings,
    (of_step, gpus): (Option<f64>, usize),
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let gpus = gpus.max(1);
    let kept = kept(subject)?;
    let no_gpu = no_gpu();
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|&way| way != Way::DeviceDecoding || no_gpu.is_none()).collect();
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
    let turns = turns(ways.len(), settings.rounds, subject.seed);
    let all = turns.len();
    for (done, (_, number)) in turns.into_iter().enumerate() {
        let way = ways[number];
        let rate = of_a_core(&measure(way, subject, settings, &kept)?);
        progress(&format!("{}/{all} a core, {}: {:.0} images/s", done + 1, way.name(), rate.unwrap_or(0.0)));
        rates[number].extend(rate);
    }
    let rates: Vec<(Way, Spread)> =
        ways.into_iter().zip(&rates).filter_map(|(way, rates)| Some((way, Spread::of(rates)?))).collect();
    // The cores that are left when each GPU's trainer has its own.
    let have = worker_counts(cores(), gpus).last().copied().unwrap_or(1) as f64;
    let mut table = table(&rates, of_step, gpus, have);
    table.blank.extend(no_gpu.map(|reason| format!("decoded by the GPU: {reason}.")));
    report.tables.push(table);
    report.answer.extend(of_step.and_then(|of_step| sentence(&rates, of_step, have / gpus as f64)));
    let need = |(way, rate): &(Way, Spread)| Some((*way, of_step? / rate.median));
    let needs: Vec<Bar> = (rates.iter().filter_map(need))
        .map(|(way, value)| Bar { name: way.name(), value, interval: None, marked: way == Way::Asked })
        .collect();
    if !needs.is_empty() {
        let caption = "Cores that each GPU's training step needs";
        report.plot("cores", caption, bars(caption, "", &needs));
    }
    report.notes.push(format!(
        "Images/s a core: one worker thread's images over its time in reading, decoding and augmenting, without a training step. \
         Packed and cached images are the first {} in memory; packed ones have restart markers and an index, as warpfeed pack \
         --restarts writes them.",
        kept.len()
    ));
    report.figures["a_core"] =
        rates.iter().map(|(way, rate)| json!({ "images": way.name(), "images_per_s": rate })).collect();
    Ok(())
}

/// The first images, encoded.
fn kept(subject: &Subject) -> Result<Vec<(Vec<u8>, u32)>> {
    let (mut kept, mut bytes) = (Vec::new(), 0);
    let mut keep = |image: Vec<u8>, label| {
        bytes += image.len();
        kept.push((image, label));
        bytes < KEPT_BYTES
    };
    let most = subject.len().unwrap_or(KEPT_IMAGES).min(KEPT_IMAGES);
    match &subject.input {
        Input::DataSet(source) => {
            for index in 0..most {
                match source.encoded(index) {
                    Ok(image) => {
                        if !keep(image, source.label(index)) {
                            break;
                        }
                    }
                    Err(error) if error.is_bad_sample() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Input::Stream(stream) => {
            let mut samples = stream.begin(&StreamStart::whole(0))?;
            for _ in 0..most {
                let Some(sample) = next(samples.as_mut())? else { break };
                if !keep(sample.bytes, sample.label) {
                    break;
                }
            }
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

fn measure(way: Way, subject: &Subject, settings: &Settings, kept: &[(Vec<u8>, u32)]) -> Result<RunTimes> {
    let of = |subject: &Subject| {
        let builder = subject.builder().batch_size(settings.batch_size).strategy(settings.strategy);
        builder.threads(1).prefetch(1)
    };
    let build = |builder: Builder| settings.ops.iter().cloned().fold(builder, Builder::augment).build();
    let in_memory = |images: Vec<(Vec<u8>, u32)>| Subject {
        input: EncodedImages::new(images).into(),
        limit: None,
        ..subject.clone()
    };
    match way {
        Way::Asked => run(&build(of(subject))?, settings),
        Way::Load(load) => {
            run(&Trial::A { load }.ops().into_iter().fold(of(subject), Builder::augment).build()?, settings)
        }
        Way::Packed => {
            let images = kept.iter().map(|(image, label)| (packed(image), *label)).collect();
            run(&build(of(&in_memory(images)))?, settings)
        }
        Way::Cached => {
            let room = available_memory_bytes().unwrap_or(1 << 30) / 4;
            let pipeline = build(of(&in_memory(kept.to_vec())).cache(ImageCache::memory(room)))?;
            // The first epoch fills the cache.
            for batch in pipeline.epoch(0) {
                batch?;
            }
            run(&pipeline, settings)
        }
        Way::DeviceDecoding => run(&build(of(subject).device(Device::Cuda(0)).decode(DecodePath::Device))?, settings),
    }
}

fn run(pipeline: &Pipeline, settings: &Settings) -> Result<RunTimes> {
    let (mut none, mut ignore) = (Model::none(), |_: &_| Ok(()));
    let mut run = Run::start(none.step.as_mut(), &mut ignore);
    run.for_time(pipeline, settings.time)?;
    Ok(run.finish())
}

/// Images per second that one core makes; `None` if there were no images.
fn of_a_core(run: &RunTimes) -> Option<f64> {
    let working = run.stages.read + run.stages.decode + run.stages.augment;
    (run.images() > 0 && working > 0.0).then(|| run.images() as f64 / working)
}

fn table(rates: &[(Way, Spread)], of_step: Option<f64>, gpus: usize, have: f64) -> Table {
    let title = match of_step {
        Some(of_step) => format!("Cores for {gpus} GPU(s) whose step takes {of_step:.0} images/s each"),
        None => "What a core makes".to_owned(),
    };
    let columns = [
        "images",
        "images/s a core",
        "from",
        "to",
        "cores a GPU",
        "cores for all GPUs",
        "of the step's rate here, %",
        "starves",
    ];
    let mut table = Table::new("cores", title, &columns);
    for (way, rate) in rates {
        let need = of_step.map(|of_step| of_step / rate.median);
        let all = need.map(|need| need * gpus as f64);
        table.rows.push(vec![
            way.name().into(),
            Cell::number(rate.median, 0),
            Cell::number(rate.low, 0),
            Cell::number(rate.high, 0),
            Cell::number(need, 2),
            Cell::number(all, 1),
            Cell::number(all.map(|all| 100.0 * (have / all).min(1.0)), 0),
            all.map_or(Cell::Blank, |all| if all > have { "yes" } else { "no" }.into()),
        ]);
    }
    if of_step.is_none() {
        table.blank.push("cores: the step takes no time (see --step).".to_owned());
    }
    table
}

/// Sentence about the cores needed, and about the ways that change them by more than the rounds' spread.
fn sentence(rates: &[(Way, Spread)], of_step: f64, have: f64) -> Option<String> {
    let (_, asked) = rates.iter().find(|(way, _)| *way == Way::Asked)?;
    let need = |rate: &Spread| of_step / rate.median;
    let changes = rates.iter().filter(|(way, rate)| *way != Way::Asked && !rate.equals(asked));
    let changes: Vec<String> = changes.map(|(way, rate)| format!("{:.1} ({})", need(rate), way.name())).collect();
    let starves = if need(asked) > have { "so the loader starves it" } else { "so the loader does not starve it" };
    let changes = if changes.is_empty() { String::new() } else { format!(" It would need {}.", changes.join(", ")) };
    let asked = need(asked);
    Some(format!(
        "Each GPU's step needs {asked:.1} cores for its images, of {have:.1} that it has here, {starves}.{changes}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_too_few_cores_starves() {
        let rate = |median: f64| Spread { median, low: 0.99 * median, high: 1.01 * median, rounds: 3 };
        let rates = [(Way::Asked, rate(1_000.0)), (Way::Load(12), rate(400.0)), (Way::Cached, rate(1_005.0))];
        let table = table(&rates, Some(3_000.0), 2, 8.0);
        let row = |i: usize| table.rows[i].iter().map(Cell::text).collect::<Vec<_>>();
        assert_eq!(row(0), ["as asked", "1000", "990", "1010", "3.00", "6.0", "100", "no"]);
        assert_eq!(row(1)[4..], ["7.50", "15.0", "53", "yes"]);
        let said = sentence(&rates, 3_000.0, 4.0).unwrap();
        assert!(said.contains("3.0 cores") && said.contains("does not starve"), "{said}");
        assert!(said.ends_with("It would need 7.5 (trial A, load 12)."), "what is equal changes nothing: {said}");
        assert!(sentence(&rates, 5_000.0, 4.0).unwrap().contains("so the loader starves it"));
        assert!(super::table(&rates, None, 1, 8.0).blank[0].contains("--step"));
    }
}
