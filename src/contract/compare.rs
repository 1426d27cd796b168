//! Comparison of another program's images with a contract.

use super::causes::{self, Case, Cause};
use super::outputs::{self, Planes};
use super::probes::{Probe, probes};
use super::{Contract, stage, tensor};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::preprocess::{Preprocessor, PreprocessorOptions};
use crate::tensor::{DType, Layout};
use serde::Serialize;
use std::path::Path;

/// Comparison of another program's results for the probe images with a contract ([`Contract::compare`]).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// Number of probe images whose outputs are the contract's.
    pub equal: usize,
    /// Number of probe images whose outputs are not.
    pub differing: usize,
    /// Number of probe images without an output.
    pub missing: usize,
    /// The causes of the differences that were recognized, in the order of the operations.
    pub causes: Vec<Cause>,
    /// The probe images whose differences no known cause explains.
    pub unexplained: Vec<String>,
    /// All probe images.
    pub probes: Vec<ProbeResult>,
}

/// A probe image, and the other program's result for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ProbeResult {
    /// The name of the probe image.
    pub image: String,
    /// Comparison of the outputs.
    pub outcome: ProbeOutcome,
    /// Difference of the values; `None` if they are equal or the size differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// The first operation after which the images differ, if the program wrote them down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
}

/// Comparison of a program's output for a probe image with the contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProbeOutcome {
    /// The values are equal, or both refuse the image.
    Equal,
    /// The values differ.
    Differs,
    /// The size differs: width and height of the program's output.
    OtherSize([u32; 2]),
    /// The dimensions have another order, and the values are equal.
    OtherLayout,
    /// There is no output.
    Missing,
    /// There is an output of an image that the contract refuses.
    NotRefused,
}

/// Difference of values, in levels of 0 to 255.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// The mean of all values.
    pub mean: f64,
    /// The largest one.
    pub max: f64,
}

impl Comparison {
    /// Whether all outputs are there and equal the contract's.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.differing + self.missing == 0
    }
}

impl Contract {
    /// Compares another program's results for the probe images ([`write_probes`](super::write_probes)). For the probe
    /// image `NAME.jpg` it wrote `NAME.npy`: the model's input, `[3, H, W]`, `[H, W, 3]`, or the same with a first
    /// dimension of 1. Without normalization `NAME.png` will do. `NAME.0.png`, `NAME.1.png` and so on may hold the
    /// decoded image and the image after each operation; then the first one that differs is named.
    ///
    /// Values are equal if they differ by at most `tolerance` levels of 0 to 255. Where they differ, known causes are
    /// tried: filters, antialiasing, sizes and places, the order of channels, EXIF orientation, transparency,
    /// normalization. This takes some seconds.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the folder has no output of any probe image; [`Error::Io`] or [`Error::Decode`] for an
    /// output that cannot be read; the errors of [`Preprocessor::new`].
    pub fn compare(&self, folder: impl AsRef<Path>, tolerance: f64) -> Result<Comparison> {
        let folder = folder.as_ref();
        let options = self.options(&PreprocessorOptions::default());
        // Both may have been rounded to fewer digits; what counts is the distance from the exact value.
        let dtype = if options.dtype == DType::U8 { DType::U8 } else { DType::F32 };
        let options = PreprocessorOptions { dtype, ..options };
        let preprocessor = Preprocessor::new(self.operations.iter().cloned(), &options)?;
        let probes = probes()?;
        let outputs = probes.iter().map(|probe| outputs::read(folder, probe.stem(), options.layout));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        if outputs.iter().all(Option::is_none) {
            let expected = "a folder with NAME.npy or NAME.png for each probe image NAME.jpg or NAME.png";
            return Err(Error::parameter("contract", "against", expected, folder.display()));
        }
        let mut results = Vec::with_capacity(probes.len());
        for (probe, output) in probes.iter().zip(&outputs) {
            let wanted = tensor(&probe.bytes, &preprocessor)?.map(|tensor| Planes::of(&tensor)).transpose()?;
            let (outcome, difference) = self.outcome(wanted.as_ref(), output.as_ref(), options.layout, tolerance);
            let first = self.first_stage(folder, probe, &options, tolerance)?;
            results.push(ProbeResult { image: probe.name.to_owned(), outcome, difference, first });
        }
        let is_equal = |result: &ProbeResult| matches!(result.outcome, ProbeOutcome::Equal | ProbeOutcome::OtherLayout);
        let cases: Vec<Case<'_>> = probes
            .iter()
            .zip(&outputs)
            .zip(&results)
            .filter(|(_, result)| result.outcome != ProbeOutcome::NotRefused)
            .filter_map(|((probe, output), result)| {
                Some(Case { probe, output: output.as_ref()?, is_equal: is_equal(result) })
            })
            .collect();
        let (mut causes, unexplained) = causes::find(self, &cases)?;
        self.add_plain_causes(&results, &mut causes);
        let count = |is: &dyn Fn(&ProbeResult) -> bool| results.iter().filter(|result| is(result)).count();
        let (equal, missing) = (
            count(&|result| result.outcome == ProbeOutcome::Equal),
            count(&|result| result.outcome == ProbeOutcome::Missing),
        );
        Ok(Comparison {
            equal,
            differing: results.len() - equal - missing,
            missing,
            causes,
            unexplained,
            probes: results,
        })
    }

    /// Causes that need no trial.
    fn add_plain_causes(&self, results: &[ProbeResult], causes: &mut Vec<Cause>) {
        let end = self.operations.len() + 1;
        for (outcome, operation, text) in [
            (ProbeOutcome::NotRefused, 0, "images are accepted that the contract refuses: truncated files"),
            (ProbeOutcome::OtherLayout, end, "the dimensions have another order (NCHW, NHWC)"),
        ] {
            let with = results.iter().filter(|result| result.outcome == outcome);
            let images: Vec<String> = with.map(|result| result.image.clone()).collect();
            if !images.is_empty() {
                causes.push(Cause { operation, stage: self.stage_name(operation), text: text.to_owned(), images });
            }
        }
        causes.sort_by_key(|cause| cause.operation);
    }

    fn outcome(
        &self,
        wanted: Option<&Planes>,
        output: Option<&Planes>,
        layout: Layout,
        tolerance: f64,
    ) -> (ProbeOutcome, Option<Difference>) {
        match (wanted, output) {
            (None, None) => (ProbeOutcome::Equal, None),
            (Some(_), None) => (ProbeOutcome::Missing, None),
            (None, Some(_)) => (ProbeOutcome::NotRefused, None),
            (Some(wanted), Some(output)) if wanted.size != output.size => {
                (ProbeOutcome::OtherSize([output.size.width, output.size.height]), None)
            }
            (Some(wanted), Some(output)) => {
                let difference = difference(wanted, output, self.level());
                match difference.max <= tolerance {
                    true if output.layout != layout => (ProbeOutcome::OtherLayout, None),
                    true => (ProbeOutcome::Equal, None),
                    false => (ProbeOutcome::Differs, Some(difference)),
                }
            }
        }
    }

    /// A level of each channel in the tensor's numbers.
    fn level(&self) -> [f64; 3] {
        let std = self.operations.iter().find_map(|op| match op {
            Op::Normalize(normalize) => Some(normalize.std),
            _ => None,
        });
        match (std, self.settings.dtype) {
            (_, DType::U8) => [1.0; 3],
            (std, _) => std.map_or([1.0; 3], |std| std.three()).map(|std| 1.0 / (255.0 * f64::from(std))),
        }
    }

    /// The first stage whose image the program wrote down and that differs.
    fn first_stage(
        &self,
        folder: &Path,
        probe: &Probe,
        options: &PreprocessorOptions,
        tolerance: f64,
    ) -> Result<Option<String>> {
        let normalized = self.operations.iter().position(|op| matches!(op, Op::Normalize(_) | Op::ToFloat(_)));
        for done in 0..=self.operations.len() {
            let name = format!("{}.{done}", probe.stem());
            let Some(output) = outputs::read(folder, &name, Layout::Nhwc)? else { continue };
            let level = if normalized.is_some_and(|at| done > at) { self.level() } else { [1.0; 3] };
            let wanted = stage(&probe.bytes, &self.operations[..done], options)?;
            let wanted = wanted.map(|tensor| Planes::of(&tensor)).transpose()?;
            let is_equal = wanted.is_some_and(|wanted| {
                wanted.size == output.size && difference(&wanted, &output, level).max <= tolerance
            });
            if !is_equal {
                return Ok(Some(self.stage_name(done)));
            }
        }
        Ok(None)
    }
}

/// The difference between images of one size, where `level` is the distance between neighboring bytes.
fn difference(wanted: &Planes, output: &Planes, level: [f64; 3]) -> Difference {
    let (mut sum, mut max, mut count) = (0.0, 0.0_f64, 0_usize);
    for ((wanted, output), level) in wanted.planes.iter().zip(&output.planes).zip(level) {
        for (wanted, output) in wanted.iter().zip(output) {
            let by = (wanted - output).abs() / level;
            // NaN is not a number that a maximum keeps.
            let by = if by.is_nan() { f64::INFINITY } else { by };
            (sum, max, count) = (sum + by, max.max(by), count + 1);
        }
    }
    Difference { mean: sum / count as f64, max }
}
