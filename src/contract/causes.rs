//! Known causes why another program's images differ, recognized by trying them: a hypothesis is a few changes to the
//! contract's operations. The other program's values must be a line through the bytes of each channel, except for
//! rounding.

use super::hypothesis::{Change, Hypothesis, changes};
use super::line::Line;
use super::outputs::Planes;
use super::probes::{Kind, Probe};
use super::{Contract, one_image};
use crate::apply::ApplyOptions;
use crate::decode::{Format, Input, probe};
use crate::encode::ChromaSampling;
use crate::error::Result;
use crate::ops::Op;
use crate::ops::orientation::Orientation;
use crate::preprocess::PreprocessorOptions;
use crate::raster::Size;
use serde::Serialize;

/// Root mean square of the differences that a hypothesis may leave unexplained, in levels of 0 to 255: rounding alone
/// leaves up to 0.5.
const ROUNDING: f64 = 0.6;
/// Root mean square that decoders of JPEG with other arithmetic may differ by, in levels.
const JPEG_ARITHMETIC: f64 = 12.0;
/// Largest number of changes of one hypothesis.
const MOST_CHANGES: usize = 3;
/// Number of hypotheses that get one more change.
const KEPT: usize = 6;
/// Number of images that the search uses. Its result is then checked on all images.
const SEARCHED: usize = 2;

/// A known cause of differences.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Cause {
    /// Number of the operation that differs, from 1; 0 for decoding, and one more than there are operations for the
    /// conversion to a tensor.
    pub operation: usize,
    /// The operation's number and name, for people.
    pub stage: String,
    /// Description of the other program's different operation.
    pub text: String,
    /// The probe images that differ for this cause.
    pub images: Vec<String>,
}

/// A probe image, and another program's result for it.
pub(super) struct Case<'a> {
    pub(super) probe: &'a Probe,
    pub(super) output: &'a Planes,
    pub(super) is_equal: bool,
}

/// Finds the causes of differences. Returns them and the images that they do not explain.
pub(super) fn find(contract: &Contract, cases: &[Case<'_>]) -> Result<(Vec<Cause>, Vec<String>)> {
    let trial = Trial::new(contract);
    let is_plain = |case: &&Case<'_>| case.probe.kind == Kind::Plain && case.output.size.area_px() > 1;
    let is_jpeg = |case: &&Case<'_>| matches!(case.probe.kind, Kind::Jpeg(_));
    let mut plain: Vec<&Case<'_>> = cases.iter().filter(is_plain).collect();
    if plain.is_empty() {
        plain = cases.iter().filter(is_jpeg).collect();
    }
    // A single pixel that becomes a whole image says nothing about operations.
    plain.sort_by_key(|case| (case.is_equal, case.probe.stem() == "png-pixel"));
    let mut causes = Vec::new();
    let (hypothesis, line) = if plain.iter().all(|case| case.is_equal) {
        (Hypothesis::default(), Line::of(contract))
    } else {
        let Some((hypothesis, line)) = trial.search(&plain)? else {
            let unexplained = cases.iter().filter(|case| !case.is_equal).map(|case| case.probe.name.to_owned());
            return Ok((causes, unexplained.collect()));
        };
        let images: Vec<String> =
            plain.iter().filter(|case| !case.is_equal).map(|case| case.probe.name.to_owned()).collect();
        causes.extend(trial.causes(&hypothesis, &line).into_iter().map(|(operation, text)| Cause {
            operation,
            stage: contract.stage_name(operation),
            text,
            images: images.clone(),
        }));
        (hypothesis, line)
    };
    let mut unexplained = Vec::new();
    for case in cases {
        let name = || case.probe.name.to_owned();
        match trial.why(case, &hypothesis, &line)? {
            Why::Expected => {}
            Why::Unknown if case.is_equal => {}
            Why::Unknown => unexplained.push(name()),
            Why::Decoded(text) => match causes.iter_mut().find(|cause| cause.text == text) {
                Some(cause) => cause.images.push(name()),
                None => {
                    let stage = contract.stage_name(0);
                    causes.push(Cause { operation: 0, stage, text: text.to_owned(), images: vec![name()] });
                }
            },
        }
    }
    causes.sort_by_key(|cause| cause.operation);
    Ok((causes, unexplained))
}

/// The reason why an image is as it is.
enum Why {
    /// The hypothesis predicts it.
    Expected,
    /// It was decoded in another way.
    Decoded(&'static str),
    Unknown,
}

/// Tries hypotheses about a contract.
struct Trial<'a> {
    contract: &'a Contract,
    options: ApplyOptions,
    changes: Vec<Change>,
}

impl<'a> Trial<'a> {
    fn new(contract: &'a Contract) -> Self {
        let options = one_image(&contract.options(&PreprocessorOptions::default()));
        Self { contract, options, changes: changes(&contract.operations) }
    }

    /// The hypothesis with the fewest changes that holds for all cases, and the line of its numbers.
    fn search(&self, cases: &[&Case<'_>]) -> Result<Option<(Hypothesis, Line)>> {
        let searched = &cases[..cases.len().min(SEARCHED)];
        let mut kept = vec![Hypothesis::default()];
        if let Some(line) = self.holds(&kept[0], cases)? {
            return Ok(Some((kept.remove(0), line)));
        }
        for _ in 0..MOST_CHANGES {
            let mut tried: Vec<(f64, Hypothesis)> = Vec::new();
            for hypothesis in kept.iter().flat_map(|kept| self.changes.iter().filter_map(|&change| kept.with(change))) {
                let mut left = 0.0_f64;
                for case in searched {
                    left = left.max(self.fitted(&hypothesis, case)?.map_or(f64::INFINITY, |(_, left)| left));
                }
                tried.push((left, hypothesis));
            }
            tried.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (_, hypothesis) in tried.iter().filter(|(left, _)| *left <= ROUNDING) {
                if let Some(line) = self.holds(hypothesis, cases)? {
                    return Ok(Some((hypothesis.clone(), line)));
                }
            }
            kept = tried.into_iter().take(KEPT).map(|(_, hypothesis)| hypothesis).collect();
        }
        Ok(None)
    }

    /// The line of the first case, if with it the hypothesis explains all cases.
    fn holds(&self, hypothesis: &Hypothesis, cases: &[&Case<'_>]) -> Result<Option<Line>> {
        let Some((line, left)) = self.fitted(hypothesis, cases[0])? else { return Ok(None) };
        if left > ROUNDING {
            return Ok(None);
        }
        for case in &cases[1..] {
            let image =
                hypothesis.image(&self.contract.operations, Input::Encoded(&case.probe.bytes), &self.options)?;
            let left = image.and_then(|image| line.left_over(&image, case.output, hypothesis));
            if left.is_none_or(|left| left > ROUNDING) {
                return Ok(None);
            }
        }
        Ok(Some(line))
    }

    /// The line that fits a case best, and the remaining difference, in levels; `None` if the sizes differ.
    fn fitted(&self, hypothesis: &Hypothesis, case: &Case<'_>) -> Result<Option<(Line, f64)>> {
        let Some(image) =
            hypothesis.image(&self.contract.operations, Input::Encoded(&case.probe.bytes), &self.options)?
        else {
            return Ok(None);
        };
        if image.size() != case.output.size {
            return Ok(None);
        }
        let line = Line::fit(&image, case.output, hypothesis);
        Ok(line.and_then(|line| Some((line, line.left_over(&image, case.output, hypothesis)?))))
    }

    /// The operations of a hypothesis that differ, and how, in words.
    fn causes(&self, hypothesis: &Hypothesis, line: &Line) -> Vec<(usize, String)> {
        let ops = &self.contract.operations;
        let mut causes: Vec<(usize, String)> = hypothesis.changes.iter().map(|change| change.text(ops)).collect();
        if let Some(text) = line.difference(self.contract, hypothesis.is_reversed()) {
            let at = ops.iter().position(|op| matches!(op, Op::Normalize(_) | Op::ToFloat(_)));
            causes.push((at.map_or(ops.len() + 1, |at| at + 1), text));
        }
        if causes.is_empty() {
            let at = ops.iter().position(|op| matches!(op, Op::Resize(_)));
            let text = "the pixels differ by rounding only, as where images are resized as tensors of numbers";
            causes.push((at.map_or(ops.len() + 1, |at| at + 1), text.to_owned()));
        }
        causes
    }

    /// The size that a program may decode a JPEG down to: that of the first resize.
    fn draft(&self, encoded: &[u8]) -> Result<Option<Size>> {
        let resize = self.contract.operations.iter().find(|op| matches!(op, Op::Resize(_)));
        let (Some(resize), Ok(header)) = (resize, probe(encoded)) else { return Ok(None) };
        if header.format != Format::Jpeg {
            return Ok(None);
        }
        resize.output_size(header.full_size()).map(Some)
    }

    /// Cause of a case's difference, if the hypothesis explains the plain images.
    fn why(&self, case: &Case<'_>, hypothesis: &Hypothesis, line: &Line) -> Result<Why> {
        let left = |image: Input<'_>, options: &ApplyOptions| -> Result<f64> {
            let image = hypothesis.image(&self.contract.operations, image, options)?;
            let left = image.and_then(|image| line.left_over(&image, case.output, hypothesis));
            Ok(left.unwrap_or(f64::INFINITY))
        };
        let Probe { bytes, kind, .. } = case.probe;
        let encoded = Input::Encoded(bytes);
        let as_it_is = left(encoded, &self.options)?;
        if as_it_is <= ROUNDING {
            return Ok(Why::Expected);
        }
        let decoded = |size: Size, rgb: &[u8]| -> Result<f64> {
            left(Input::new(rgb, Some((size, 3))), &ApplyOptions { draft: None, ..self.options })
        };
        if let Some(draft) = self.draft(bytes)?
            && left(encoded, &ApplyOptions { draft: Some(draft), ..self.options })? <= ROUNDING
        {
            return Ok(Why::Decoded("JPEGs are decoded at a smaller scale (draft, scale_denom)"));
        }
        let is = |left: f64, text| if left <= ROUNDING { Why::Decoded(text) } else { Why::Unknown };
        Ok(match kind {
            Kind::Turned => match self.options.orientation {
                Orientation::Apply => {
                    let options = ApplyOptions { orientation: Orientation::Ignore, ..self.options };
                    is(left(encoded, &options)?, "the EXIF orientation is ignored")
                }
                Orientation::Ignore => {
                    let options = ApplyOptions { orientation: Orientation::Apply, ..self.options };
                    is(left(encoded, &options)?, "the EXIF orientation is applied, and the contract ignores it")
                }
            },
            Kind::Alpha { size, rgba } => {
                for (background, text) in [
                    (255, "transparent images are laid over white; the contract drops transparency"),
                    (0, "transparent images are laid over black; the contract drops transparency"),
                ] {
                    let over = |[red, green, blue, alpha]: &[u8; 4]| {
                        let alpha = u32::from(*alpha);
                        [*red, *green, *blue]
                            .map(|value| ((u32::from(value) * alpha + background * (255 - alpha) + 127) / 255) as u8)
                    };
                    let rgb: Vec<u8> = rgba.iter().flat_map(over).collect();
                    if decoded(*size, &rgb)? <= ROUNDING {
                        return Ok(Why::Decoded(text));
                    }
                }
                Why::Unknown
            }
            Kind::Gray16 { size, values } => {
                let rgb: Vec<u8> = values.iter().flat_map(|&value| [value.min(255) as u8; 3]).collect();
                is(decoded(*size, &rgb)?, "gray images of 16 bits are cut off at 255, as by Pillow's convert")
            }
            Kind::Jpeg(sampling) => match as_it_is <= JPEG_ARITHMETIC {
                true if *sampling == ChromaSampling::S444 => {
                    Why::Decoded("JPEGs are decoded by other arithmetic (the DCT)")
                }
                true => Why::Decoded("chroma of subsampled JPEGs is interpolated in another way"),
                false => Why::Unknown,
            },
            Kind::Inks if as_it_is.is_finite() => Why::Decoded("inks of CMYK JPEGs are converted in another way"),
            Kind::Rgb16 if as_it_is <= 1.5 => {
                Why::Decoded("images of 16 bits are rounded to 8; the contract cuts the low byte off")
            }
            Kind::Plain | Kind::Inks | Kind::Gray | Kind::Rgb16 | Kind::Truncated => Why::Unknown,
        })
    }
}
