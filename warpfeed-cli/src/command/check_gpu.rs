//! `warpfeed check-gpu`: checks that a device computes correctly.

use super::output::{print, print_json, say};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use warpfeed::source::{Source, open};
use warpfeed::{Device, JpegDecoder, Result};
use warpfeed_bench::gpu_check::{
    Area, Decoding, EngineCase, EnginePlanes, Equality, StepBeside, decoding, decoding_bound, engine_planes,
    engine_speed, kernels, operations, step_beside_decoding,
};

/// Compare a GPU's bytes with the CPU's, operation by operation, and nvJPEG's images with the CPU's
///
/// The exit code is 1 if a kernel's bytes differ from the CPU's, or if one of nvJPEG's decoders makes wrong pixels,
/// leaves pixels unwritten, refuses more than a tenth of the images meant for it, or accepts an image that the CPU
/// refuses.
#[derive(Args)]
pub struct CheckGpu {
    /// Folder of class folders (or list file) of photographs to decode besides the images made for the check.
    images: Option<PathBuf>,
    /// Device to check.
    #[arg(long, value_name = "DEVICE", default_value = "cuda")]
    device: Device,
    /// Compare at most this many photographs.
    #[arg(long, value_name = "N", default_value_t = 200)]
    limit: u64,
    /// Number of decoding threads when decoders are measured.
    #[arg(long, value_name = "T", default_value_t = 16)]
    threads: usize,
    /// Milliseconds to measure each decoder for, alone and during a training step.
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    bound_ms: u64,
    /// Parts of the check to run.
    ///
    /// kernels: each kernel on a small batch. operations: every operation in every way. decoders: the pixels of all
    /// decoders. bounds: how fast they decode the photographs when nothing else runs. sharing: how much of the device
    /// they take from a training step that runs meanwhile. engines: how fast nvJPEG's hardware decoder is when it is used
    /// in other ways; not run unless named.
    #[arg(long, value_enum, value_name = "PART,...", value_delimiter = ',', default_values_t = PARTS)]
    parts: Vec<Part>,
    /// Ways to use the hardware decoder, such as states=3 or sorted=off+images=64. Default: each factor by itself.
    #[arg(long, value_name = "CASE,...", value_delimiter = ',')]
    engine_cases: Vec<EngineCase>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Part {
    Kernels,
    Operations,
    Decoders,
    Bounds,
    Sharing,
    Engines,
}

/// The parts that are run unless others are named.
const PARTS: [Part; 5] = [Part::Kernels, Part::Operations, Part::Decoders, Part::Bounds, Part::Sharing];

/// The decoders that are measured, and the area that they decode. nvJPEG always reads whole images.
const MEASURED: [(&str, JpegDecoder, Area); 4] = [
    ("device", JpegDecoder::Device, Area::Whole),
    ("device, crops", JpegDecoder::Device, Area::Crop),
    ("hybrid", JpegDecoder::Hybrid, Area::Whole),
    ("hardware", JpegDecoder::Hardware, Area::Whole),
];

/// Results of all parts; a part that did not run is empty.
#[derive(Default, Serialize)]
struct Found {
    kernels: Option<Equality>,
    operations: Option<Equality>,
    decoders: Vec<Decoding>,
    bounds: Vec<Bound>,
    sharing: Vec<Sharing>,
    engines: Vec<Bound>,
    /// Planes of the engines, converted by our kernels. `None` if there are no engines.
    planes: Option<EnginePlanes>,
}

/// Speed of a decoder that runs alone.
#[derive(Serialize)]
struct Bound {
    decode: String,
    images_per_s: Option<f64>,
    error: Option<String>,
}

/// Slowdown of a training step while a decoder runs.
#[derive(Serialize)]
struct Sharing {
    decode: &'static str,
    #[serde(flatten)]
    step: Option<StepBeside>,
    error: Option<String>,
}

impl CheckGpu {
    pub fn run(self) -> Result<u8> {
        self.device.available()?;
        let images = self.images.as_ref().map(|images| open(images)?.into_data_set()).transpose()?;
        let found = self.find(images.as_ref())?;
        if self.json {
            print_json(&found)?
        } else {
            print(&found.text())?
        }
        let wrong = found.wrong();
        if wrong.is_empty() {
            return Ok(0);
        }
        say(format_args!("warpfeed: this device does not give what the CPU gives: {}", wrong.join("; ")));
        Ok(1)
    }

    fn find(&self, images: Option<&Arc<dyn Source>>) -> Result<Found> {
        let mut found = Found::default();
        if self.parts.contains(&Part::Kernels) {
            found.kernels = Some(kernels(self.device, &mut |_case| {})?);
        }
        if self.parts.contains(&Part::Operations) {
            found.operations = Some(operations(self.device, &mut |_case| {})?);
        }
        if self.parts.contains(&Part::Decoders) {
            for path in [JpegDecoder::Hybrid, JpegDecoder::Hardware, JpegDecoder::Device] {
                found.decoders.push(decoding(self.device, path, images, self.limit)?);
            }
        }
        let duration = Duration::from_millis(self.bound_ms);
        for (decode, path, area) in MEASURED {
            let Some(images) = images else { break };
            if self.parts.contains(&Part::Bounds) {
                let bound = decoding_bound(self.device, path, area, &**images, self.limit, self.threads, duration);
                let error = bound.as_ref().err().map(ToString::to_string);
                found.bounds.push(Bound { decode: decode.to_owned(), images_per_s: bound.ok(), error });
            }
            if self.parts.contains(&Part::Sharing) {
                let step = step_beside_decoding(self.device, path, area, &**images, self.limit, self.threads, duration);
                let error = step.as_ref().err().map(ToString::to_string);
                found.sharing.push(Sharing { decode, step: step.ok(), error });
            }
        }
        let Some(images) = images.filter(|_| self.parts.contains(&Part::Engines)) else { return Ok(found) };
        let all = || EngineCase::ALL.iter().map(|case| case.parse()).collect::<Result<Vec<EngineCase>>>();
        let cases = if self.engine_cases.is_empty() { all()? } else { self.engine_cases.clone() };
        for case in cases {
            let speed = engine_speed(self.device, &case, &**images, self.limit, duration);
            let (decode, error) = (case.name().to_owned(), speed.as_ref().err().map(ToString::to_string));
            found.engines.push(Bound { decode, images_per_s: speed.ok(), error });
        }
        // What the cases say is the reason if there are no engines.
        found.planes = engine_planes(self.device, &**images, self.limit.min(100)).ok();
        Ok(found)
    }
}

impl Found {
    /// Everything that a correct device must not do, one line each.
    fn wrong(&self) -> Vec<String> {
        let batches = [("kernels", &self.kernels), ("operations", &self.operations)];
        let batches = batches.into_iter().filter_map(|(what, found)| Some((what, found.as_ref()?)));
        let different = batches.filter(|(_, found)| !found.different.is_empty());
        let faulty = self.decoders.iter().filter(|found| found.fault_count > 0);
        different
            .map(|(what, found)| format!("{what}: {} of {} batches differ", found.different.len(), found.cases))
            .chain(faulty.map(|found| {
                let first = found.faults.first().map_or("", String::as_str);
                format!("decode {}: {} faults, the first: {first}", found.decode, found.fault_count)
            }))
            .collect()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (what, found) in [("kernels", &self.kernels), ("operations", &self.operations)] {
            let Some(Equality { cases, different, .. }) = found else { continue };
            let _ = writeln!(text, "{what}: {} of {cases} batches are equal", cases - different.len());
            different.iter().for_each(|case| text += &format!("  {case}\n"));
        }
        self.decoders.iter().for_each(|found| text += &decoder(found));
        for (what, bounds) in [("decoding alone", &self.bounds), ("engines", &self.engines)] {
            for Bound { decode, images_per_s, error } in bounds {
                let _ = match images_per_s {
                    Some(per_s) => writeln!(text, "{what}, {decode}: {per_s:.0} images/s"),
                    None => writeln!(text, "{what}, {decode}: {}", error.as_deref().unwrap_or_default()),
                };
            }
        }
        if let Some(EnginePlanes { decoded, equal, .. }) = &self.planes {
            let _ = writeln!(
                text,
                "engines, planes: the CPU's bytes for {} of {} images in color and {} of {} gray ones",
                equal[0], decoded[0], equal[1], decoded[1]
            );
        }
        for Sharing { decode, step, error } in &self.sharing {
            let _ = match step {
                Some(StepBeside { images_per_s, alone_ms, beside_ms, share, .. }) => writeln!(
                    text,
                    "a step of {alone_ms:.2} ms takes {beside_ms:.2} ms during decoding, {decode}: {images_per_s:.0} images/s \
                     take {:.0} % of the device",
                    100.0 * share
                ),
                None => writeln!(text, "a step during decoding, {decode}: {}", error.as_deref().unwrap_or_default()),
            };
        }
        text
    }
}

fn decoder(found: &Decoding) -> String {
    if let Some(absent) = &found.absent {
        return format!("decode {}: not there: {absent}\n", found.decode);
    }
    let values = found.histogram.iter().sum::<u64>().max(1) as f64;
    let shares: Vec<_> = found.histogram.iter().map(|count| format!("{:.3}", 100.0 * *count as f64 / values)).collect();
    let mut text = format!(
        "decode {}: {} of {} images by it; in a pipeline {} by the CPU, {} by kernels, {} hybrid, {} hardware\n  values that differ by 0, 1, \
         ... 7, more from the CPU's, in %: {}; by {} at most, {:.4} on average; an image by {:.3} at most, a block of 8 x 8 \
         by {:.2}\n",
        found.decode,
        found.decoded,
        found.images,
        found.pipeline.cpu,
        found.pipeline.device,
        found.pipeline.hybrid,
        found.pipeline.hardware,
        shares.join(" "),
        found.max,
        found.mean,
        found.worst_image,
        found.worst_block,
    );
    for fault in &found.faults {
        let _ = writeln!(text, "  {fault}");
    }
    let unlisted = found.fault_count - found.faults.len() as u64;
    if unlisted > 0 {
        let _ = writeln!(text, "  and {unlisted} more");
    }
    text
}
