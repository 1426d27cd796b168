//! `warpfeed check-gpu`: whether a device gives what it should.

use super::options::device;
use super::output::{print, print_json};
use clap::Args;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;
use warpfeed::experiment::gpu_check::{Differences, decoding_bound, differences, equality};
use warpfeed::{DecodePath, Device, Error, Result, source::open};

/// Compare a GPU's bytes with the CPU's, operation by operation, and nvJPEG's images with the CPU's
#[derive(Args)]
pub struct CheckGpu {
    /// Folder of class folders (or a list file) of photographs to decode. Without it only operations are compared.
    images: Option<PathBuf>,
    /// The device.
    #[arg(long, value_name = "DEVICE", default_value = "cuda", value_parser = device)]
    device: Device,
    /// Compare no more than this many photographs.
    #[arg(long, value_name = "N", default_value_t = 200)]
    limit: u64,
    /// Threads that decode with nvJPEG alone.
    #[arg(long, value_name = "T", default_value_t = 16)]
    threads: usize,
    /// Milliseconds to measure decoding with nvJPEG alone, on each of its decode paths.
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    bound_ms: u64,
    /// One batch for each operation and strategy, for tools that slow the program down.
    #[arg(long)]
    quick: bool,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl CheckGpu {
    pub fn run(self) -> Result<()> {
        self.device.available()?;
        let (mut decoded, mut bounds) = (Vec::new(), Vec::new());
        if let Some(images) = &self.images {
            let source = open(images)?.into_data_set()?;
            for path in [DecodePath::Hybrid, DecodePath::Hardware] {
                decoded.push((path, differences(self.device, path, &source, self.limit)));
                let duration = Duration::from_millis(self.bound_ms);
                let bound = decoding_bound(self.device, path, &*source, self.limit, self.threads, duration);
                bounds.push((path, bound));
            }
        }
        let found = equality(self.device, !self.quick, &mut |_case| {})?;
        let different = found.different.len();
        if self.json {
            let decoded: Vec<_> = decoded
                .iter()
                .map(|(path, result)| match result {
                    Ok(found) => serde_json::json!(found),
                    Err(error) => serde_json::json!({ "decode": name(*path), "error": error.to_string() }),
                })
                .collect();
            let bounds: Vec<_> = bounds
                .iter()
                .map(|(path, result)| match result {
                    Ok(per_s) => serde_json::json!({ "decode": name(*path), "images_per_s": per_s }),
                    Err(error) => serde_json::json!({ "decode": name(*path), "error": error.to_string() }),
                })
                .collect();
            print_json(&serde_json::json!({ "equality": found, "decoding": decoded, "decoding_bound": bounds }))?;
        } else {
            let mut text = format!("{} of {} batches are equal\n", found.cases - different, found.cases);
            for case in &found.different {
                let _ = writeln!(text, "  {case}");
            }
            for (path, result) in &decoded {
                let _ = match result {
                    Ok(found) => writeln!(text, "{}", line(found)),
                    Err(error) => writeln!(text, "decode {}: {error}", name(*path)),
                };
            }
            for (path, result) in &bounds {
                let _ = match result {
                    Ok(per_s) => writeln!(text, "nvJPEG alone, {}: {per_s:.0} images/s", name(*path)),
                    Err(error) => writeln!(text, "nvJPEG alone, {}: {error}", name(*path)),
                };
            }
            print(&text)?;
        }
        if different == 0 {
            return Ok(());
        }
        Err(Error::Device {
            call: "compare with the CPU".to_owned(),
            message: format!("{different} of {} batches differ", found.cases),
        })
    }
}

fn name(path: DecodePath) -> String {
    format!("{path:?}").to_lowercase()
}

fn line(found: &Differences) -> String {
    let values = found.histogram.iter().sum::<u64>().max(1) as f64;
    let shares: Vec<_> = found.histogram.iter().map(|count| format!("{:.3}", 100.0 * *count as f64 / values)).collect();
    format!(
        "decode {}: {} images, {} by it; values that differ by 0, 1, ... 7, more from the CPU's, in %: {}; at most {}, \
         {:.4} on average",
        found.decode,
        found.images,
        found.decoded_by_it,
        shares.join(" "),
        found.max,
        found.mean
    )
}
