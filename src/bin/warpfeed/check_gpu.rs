//! `warpfeed check-gpu`: whether a device gives what it should.

use super::output::{print, print_json, say};
use super::values::device;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use warpfeed::experiment::gpu_check::{
    Area, Decoding, Equality, StepBeside, decoding, decoding_bound, kernels, operations, step_beside_decoding,
};
use warpfeed::{
    DecodePath, Device, Result,
    source::{Source, open},
};

/// Compare a GPU's bytes with the CPU's, operation by operation, and nvJPEG's images with the CPU's
///
/// Ends with 1 if a kernel gives other bytes than the CPU, or if one of nvJPEG's decoders gives wrong pixels, leaves pixels
/// unwritten, refuses more than a tenth of the images that are for it, or takes what the CPU refuses.
#[derive(Args)]
pub struct CheckGpu {
    /// Folder of class folders (or a list file) of photographs to decode beside those that are made for the check.
    images: Option<PathBuf>,
    /// The device.
    #[arg(long, value_name = "DEVICE", default_value = "cuda", value_parser = device)]
    device: Device,
    /// Compare no more than this many photographs.
    #[arg(long, value_name = "N", default_value_t = 200)]
    limit: u64,
    /// Threads that decode when decoders are measured.
    #[arg(long, value_name = "T", default_value_t = 16)]
    threads: usize,
    /// Milliseconds to measure each decoder for, alone and beside a training step.
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    bound_ms: u64,
    /// What is done: each kernel on a small batch; every operation in every way; the decoders; how fast they decode
    /// the photographs when nothing else is done; how much of the device they take from a training step beside them.
    #[arg(long, value_enum, value_name = "PART,...", value_delimiter = ',', default_values_t = PARTS)]
    parts: Vec<Part>,
    /// One JSON object instead of text.
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
}

const PARTS: [Part; 5] = [Part::Kernels, Part::Operations, Part::Decoders, Part::Bounds, Part::Sharing];

/// The decoders that are measured, with what they decode: nvJPEG reads whole images whatever is asked for.
const MEASURED: [(&str, DecodePath, Area); 5] = [
    ("device", DecodePath::Device, Area::Whole),
    ("device, crops", DecodePath::Device, Area::Crop),
    ("hybrid", DecodePath::Hybrid, Area::Whole),
    ("hardware", DecodePath::Hardware, Area::Whole),
    ("hybrid and hardware", DecodePath::Auto, Area::Whole),
];

/// All that was found; what was not asked for is empty.
#[derive(Default, Serialize)]
struct Found {
    kernels: Option<Equality>,
    operations: Option<Equality>,
    decoders: Vec<Decoding>,
    bounds: Vec<Bound>,
    sharing: Vec<Sharing>,
}

/// How fast decoders are alone.
#[derive(Serialize)]
struct Bound {
    decode: &'static str,
    images_per_s: Option<f64>,
    error: Option<String>,
}

/// What decoders take from a training step.
#[derive(Serialize)]
struct Sharing {
    decode: &'static str,
    #[serde(flatten)]
    step: Option<StepBeside>,
    error: Option<String>,
}

impl CheckGpu {
    pub fn run(self) -> Result<ExitCode> {
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
            return Ok(ExitCode::SUCCESS);
        }
        say(format_args!("warpfeed: this device does not give what the CPU gives: {}", wrong.join("; ")));
        Ok(ExitCode::FAILURE)
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
            for path in [DecodePath::Hybrid, DecodePath::Hardware, DecodePath::Device] {
                found.decoders.push(decoding(self.device, path, images, self.limit)?);
            }
        }
        let duration = Duration::from_millis(self.bound_ms);
        for (decode, path, area) in MEASURED {
            let Some(images) = images else { break };
            if self.parts.contains(&Part::Bounds) {
                let bound = decoding_bound(self.device, path, area, &**images, self.limit, self.threads, duration);
                let error = bound.as_ref().err().map(ToString::to_string);
                found.bounds.push(Bound { decode, images_per_s: bound.ok(), error });
            }
            if self.parts.contains(&Part::Sharing) {
                let step = step_beside_decoding(self.device, path, area, &**images, self.limit, self.threads, duration);
                let error = step.as_ref().err().map(ToString::to_string);
                found.sharing.push(Sharing { decode, step: step.ok(), error });
            }
        }
        Ok(found)
    }
}

impl Found {
    /// What a device must not do, a line each.
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
        for Bound { decode, images_per_s, error } in &self.bounds {
            let _ = match images_per_s {
                Some(per_s) => writeln!(text, "decoding alone, {decode}: {per_s:.0} images/s"),
                None => writeln!(text, "decoding alone, {decode}: {}", error.as_deref().unwrap_or_default()),
            };
        }
        for Sharing { decode, step, error } in &self.sharing {
            let _ = match step {
                Some(StepBeside { images_per_s, alone_ms, beside_ms, share, .. }) => writeln!(
                    text,
                    "a step of {alone_ms:.2} ms takes {beside_ms:.2} ms beside decoding, {decode}: {images_per_s:.0} images/s \
                     take {:.0} % of the device",
                    100.0 * share
                ),
                None => writeln!(text, "a step beside decoding, {decode}: {}", error.as_deref().unwrap_or_default()),
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
