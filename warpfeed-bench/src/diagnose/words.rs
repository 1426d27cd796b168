//! The answer of diagnose in sentences.

use super::findings::{Findings, SMALL_BYTES};
use super::{PerImage, TrainingBottleneck};

impl Findings {
    /// Sentences that name the bottleneck and what shows it.
    pub(super) fn sentence(&self, bottleneck: TrainingBottleneck) -> String {
        let PerImage { read, decode, augment } = self.per_image;
        let all = self.per_image.all().max(1e-12);
        let use_percent = 100.0 * self.accelerator_use;
        let whole = if self.rates.step.is_finite() {
            format!(
                "The whole makes {:.0} images/s; the trainer computes {use_percent:.0} % of the time.",
                self.rates.whole
            )
        } else {
            format!("The whole makes {:.0} images/s without a training step.", self.rates.whole)
        };
        let of_worker = |what: &str, seconds: f64| {
            let [part, all_ms] = [seconds, all].map(|seconds| 1e3 * seconds);
            format!("{what} takes {part:.2} of a worker's {all_ms:.2} ms for an image ({:.0} %)", 100.0 * seconds / all)
        };
        let twice = |what: &str, rate: f64| {
            let known = rate.is_finite() && rate > 0.0;
            let longer = || format!(" If {what}, the pipeline takes {:.0} % longer.", 100.0 * self.longer(rate));
            if known { longer() } else { String::new() }
        };
        match bottleneck {
            TrainingBottleneck::Step => format!(
                "The training step is the bottleneck: the trainer computes {use_percent:.0} % of the time. The pipeline alone \
                 makes {:.0} images/s; the step takes {:.0}.",
                self.rates.pipeline, self.rates.step
            ),
            TrainingBottleneck::Disk | TrainingBottleneck::Network => format!(
                "The {} is the bottleneck: workers wait for bytes {:.0} % of the time ({:.2} ms an image). {whole}",
                if bottleneck == TrainingBottleneck::Disk { "disk" } else { "network" },
                100.0 * self.blocked * read / all,
                1e3 * self.blocked * read
            ),
            TrainingBottleneck::Pipe => format!(
                "The program that writes the pipe is the bottleneck: it gave {:.0} images/s. These figures are of images in \
                 memory. {whole}",
                self.rates.read
            ),
            TrainingBottleneck::OtherWork => format!(
                "Other work on this machine is the bottleneck: it took {:.0} % of the processors. {whole}",
                100.0 * self.taken
            ),
            TrainingBottleneck::Threads => format!(
                "Too few worker threads are the bottleneck: {} for {} processors. {whole}",
                self.threads, self.cores
            ),
            TrainingBottleneck::PerImage => format!(
                "The fixed cost of each image is the bottleneck: images have {:.0} pixels and {:.1} kB, and {}. {whole}",
                self.mean_px,
                self.mean_bytes / 1e3,
                of_worker("opening, reading and beginning to decode", read + decode)
            ),
            TrainingBottleneck::Transfer => format!(
                "Copying to the GPU is the bottleneck.{} {whole}",
                twice("each batch is sent twice", self.rates.transfer_twice)
            ),
            TrainingBottleneck::Kernels => format!(
                "The GPU's kernels are the bottleneck.{} {whole}",
                twice("each runs twice", self.rates.kernels_twice)
            ),
            TrainingBottleneck::Decode => format!(
                "Decoding is the bottleneck: {}.{} {whole}",
                of_worker("it", decode),
                twice("each image is decoded twice", self.rates.decode_twice)
            ),
            TrainingBottleneck::Augmentation => format!(
                "Augmentation is the bottleneck: {}.{} {whole}",
                of_worker("it", augment),
                twice("the operations run twice", self.rates.operations_twice)
            ),
        }
    }

    /// Sentence about the gain without the bottleneck.
    pub(super) fn next(&self, bottleneck: TrainingBottleneck) -> String {
        let Some(rate) = self.without(bottleneck) else {
            return "No other measured part limits the training.".to_owned();
        };
        let next = if rate >= self.rates.step { "the training step" } else { "the rest of the pipeline" };
        let gain = rate / self.rates.whole;
        match bottleneck {
            TrainingBottleneck::Pipe => {
                let gain = rate / self.rates.read.max(f64::MIN_POSITIVE);
                format!("Extrapolated: a faster writer gains up to {gain:.1} times.")
            }
            TrainingBottleneck::Step => {
                format!("Extrapolated: a faster step gains up to {gain:.1} times. Then the pipeline is the bottleneck.")
            }
            _ => format!(
                "Extrapolated from the times of the stages: without it {next} allows {rate:.0} images/s, {gain:.1} times as many."
            ),
        }
    }

    /// Sentence about what to change.
    pub(super) fn remedy(&self, bottleneck: TrainingBottleneck) -> String {
        let change = match bottleneck {
            TrainingBottleneck::Step => {
                "nothing in the pipeline. Use a faster accelerator, lower precision or a larger batch. Fewer worker threads may \
                 do (warpfeed tune)"
            }
            TrainingBottleneck::Disk if self.mean_bytes < SMALL_BYTES => {
                "pack the small files into large ones, which are read in a row. More worker threads hide latency. Or use a \
                 faster or local disk"
            }
            TrainingBottleneck::Disk => {
                "keep the images on a faster or local disk, or in memory; store them smaller. More worker threads hide latency, \
                 but not a lack of bandwidth"
            }
            TrainingBottleneck::Network => {
                "keep fetched shards (--shard-cache), or copy the shards to a local disk. A larger window and more worker \
                 threads hide latency, but not a lack of bandwidth"
            }
            TrainingBottleneck::Pipe => {
                "read the shards directly, without a pipe. Or use several pipes, each with a writer of its own"
            }
            TrainingBottleneck::OtherWork => {
                "end the other work, or measure again when the machine is quiet. Other causes cannot be seen until then"
            }
            TrainingBottleneck::Threads => "use more worker threads (--threads; warpfeed tune finds how many)",
            TrainingBottleneck::PerImage => {
                "pack the images into large files, so that none is opened by itself, and give the pipeline more cores"
            }
            TrainingBottleneck::Decode => {
                "store the images smaller (their sides near those of the training), give the pipeline more cores, or decode on \
                 a GPU"
            }
            TrainingBottleneck::Augmentation => {
                "use strategy fused or composed, cheaper operations, more cores, or a GPU for the operations"
            }
            TrainingBottleneck::Transfer => {
                "let the GPU decode, so that encoded images are sent and not pixels (--jpeg-decoder auto); store them smaller. Check \
                 that the GPU has its full link, and use pinned memory"
            }
            TrainingBottleneck::Kernels => {
                "use strategy fused or composed, cheaper operations, or a faster GPU. Training shares the GPU with them"
            }
        };
        format!("What to change: {change}.")
    }
}
