//! Why another program's images differ: known causes, recognized by trying them.
//!
//! A hypothesis is a few changes to the contract's operations. It predicts the pixels before normalization; the numbers
//! that the other program made of them are then a line through the bytes of each channel, which is fitted. So means,
//! stds and scales need not be tried one by one. A hypothesis holds if what is left is rounding.
//!
//! Images that every decoder reads alike are explained first. The others are expected to differ in the same way, and if
//! they do not, in how they are decoded.

use super::Contract;
use super::compare::Cause;
use super::outputs::Planes;
use super::probes::{Kind, Probe};
use super::resampling::Resampling;
use crate::apply::{ApplyOptions, apply, pnm};
use crate::decode::{Format, probe};
use crate::encode::ChromaSampling;
use crate::error::Result;
use crate::ops::orientation::Orientation;
use crate::ops::{Crop, Interpolation, Op, Resize, ResizeTo};
use crate::preset::{IMAGENET_MEAN, IMAGENET_STD};
use crate::raster::{Image, Size};
use std::borrow::Cow;

/// Root mean square of what a hypothesis may leave unexplained, in levels of 0 to 255: rounding alone leaves up to 0.5.
const ROUNDING: f64 = 0.6;
/// A difference that is no rounding, in levels.
const OUTLIER: f64 = 4.0;
/// Largest share of outliers that a hypothesis may leave.
const OUTLIERS: f64 = 0.08;
/// Root mean square that decoders of JPEG with other arithmetic may differ by, in levels.
const JPEG_ARITHMETIC: f64 = 12.0;
/// Most changes of one hypothesis.
const MOST_CHANGES: usize = 3;
/// Number of hypotheses that get one more change.
const KEPT: usize = 6;
/// Number of images that the search looks at. What it finds is then checked on all.
const SEARCHED: usize = 2;

/// A probe image and what another program made of it.
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
        (Hypothesis::default(), trial.expected())
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

/// A change to the contract's operations. `at` is the place of the operation, from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    /// A resize with another filter.
    Filter(usize, Interpolation),
    /// A resize by other arithmetic.
    Resampled(usize, Resampling),
    /// A resize to another size.
    Resized(usize, ResizeTo),
    /// A crop at a place that is rounded down.
    RoundedDown(usize),
    /// A crop that begins these columns and rows later.
    Shifted(usize, [i32; 2]),
    /// No such operation.
    LeftOut(usize),
    /// The operation after the one that follows it.
    Swapped(usize),
    /// Channels in the order blue, green, red.
    Reversed,
}

impl Change {
    /// The operation and the property that the change is about: a hypothesis changes each once.
    fn about(self) -> (usize, u8) {
        match self {
            Self::Filter(at, _) | Self::Resampled(at, _) => (at, 0),
            Self::Resized(at, _) | Self::RoundedDown(at) | Self::Shifted(at, _) => (at, 1),
            Self::LeftOut(at) | Self::Swapped(at) => (at, 2),
            Self::Reversed => (0, 3),
        }
    }
}

/// Changes that explain a difference together.
#[derive(Debug, Clone, Default)]
struct Hypothesis {
    changes: Vec<Change>,
}

impl Hypothesis {
    /// The hypothesis with one change more; `None` if that contradicts another.
    fn with(&self, change: Change) -> Option<Self> {
        let (at, property) = change.about();
        let contradicts = |other: &Change| {
            let (other_at, other_property) = other.about();
            (at, property) == (other_at, other_property) || at == other_at && property.max(other_property) == 2
        };
        if self.changes.iter().any(contradicts) {
            return None;
        }
        Some(Self { changes: [&self.changes[..], &[change]].concat() })
    }

    fn is_reversed(&self) -> bool {
        self.changes.contains(&Change::Reversed)
    }

    /// The channel of the image that channel `channel` of the numbers is made of.
    fn channel(&self, channel: usize) -> usize {
        if self.is_reversed() { 2 - channel } else { channel }
    }
}

/// A step of a hypothesis.
enum Step {
    Ours(Op),
    Resampled(Resampling, Resize),
    Cut { op: Op, rounded_down: bool, shift: [i32; 2] },
}

/// The numbers of an image: slope and offset of each channel, over its bytes.
#[derive(Debug, Clone, Copy)]
struct Line {
    slope: [f64; 3],
    offset: [f64; 3],
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
        let settings = &contract.settings;
        let options = ApplyOptions {
            strategy: settings.strategy,
            pass_order: settings.pass_order,
            orientation: settings.orientation,
            draft: settings.draft.map(|[width, height]| Size { width, height }),
            accept_truncated: settings.accept_truncated,
            ..ApplyOptions::default()
        };
        Self { contract, options, changes: changes(&contract.operations) }
    }

    /// The line of the contract's own numbers.
    fn expected(&self) -> Line {
        let (scale, [mean, std]) = self.normalization();
        Line { slope: [0, 1, 2].map(|c| scale / std[c]), offset: [0, 1, 2].map(|c| -mean[c] / std[c]) }
    }

    /// What bytes are multiplied by before normalization, and mean and std.
    fn normalization(&self) -> (f64, [[f64; 3]; 2]) {
        let normalize = self.contract.operations.iter().find_map(|op| match op {
            Op::Normalize(normalize) => Some([normalize.mean, normalize.std].map(|values| values.map(f64::from))),
            _ => None,
        });
        let is_bytes = self.contract.settings.dtype == crate::tensor::DType::U8;
        (if is_bytes { 1.0 } else { 1.0 / 255.0 }, normalize.unwrap_or([[0.0; 3], [1.0; 3]]))
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
            let image = self.image(hypothesis, &case.probe.bytes, &self.options)?;
            let left = image.and_then(|image| left_over(&image, case.output, &line, hypothesis));
            if left.is_none_or(|left| left > ROUNDING) {
                return Ok(None);
            }
        }
        Ok(Some(line))
    }

    /// The line that fits a case best, and what it leaves, in levels; `None` if the sizes differ.
    fn fitted(&self, hypothesis: &Hypothesis, case: &Case<'_>) -> Result<Option<(Line, f64)>> {
        let Some(image) = self.image(hypothesis, &case.probe.bytes, &self.options)? else { return Ok(None) };
        if image.size() != case.output.size {
            return Ok(None);
        }
        let line = fit(&image, case.output, hypothesis);
        Ok(line.and_then(|line| Some((line, left_over(&image, case.output, &line, hypothesis)?))))
    }

    /// The image before normalization; `None` if it is refused.
    fn image(&self, hypothesis: &Hypothesis, encoded: &[u8], options: &ApplyOptions) -> Result<Option<Image>> {
        let (mut options, mut encoded, mut ops) = (*options, Cow::Borrowed(encoded), Vec::new());
        let run = |encoded: &[u8], ops: &[Op], options: &ApplyOptions| match apply(encoded, ops, options) {
            Ok(tensor) => {
                let [_, height, width, _] = tensor.shape().map(|side| side as u32);
                Ok(Some(Image::from_rgb(Size { width, height }, tensor.as_bytes()?)?))
            }
            // An operation does not fit the other size.
            Err(error) if error.is_bad_sample() || error.is_parameter() => Ok(None),
            Err(error) => Err(error),
        };
        for step in self.steps(hypothesis) {
            if let Step::Ours(op) = step {
                ops.push(op);
                continue;
            }
            let Some(image) = run(&encoded, &std::mem::take(&mut ops), &options)? else { return Ok(None) };
            let image = match step {
                Step::Resampled(how, resize) => how.resize(&image, Op::from(resize).output_size(image.size())?)?,
                Step::Cut { op, rounded_down, shift: [x, y] } => {
                    let to = op.output_size(image.size())?;
                    let place = place(&op, image.size(), rounded_down);
                    ops.push(Crop::new(place[0] + x, place[1] + y, to).into());
                    image
                }
                Step::Ours(_) => image,
            };
            encoded = Cow::Owned(pnm(&image));
            (options.orientation, options.draft) = (Orientation::Ignore, None);
        }
        run(&encoded, &ops, &options)
    }

    fn steps(&self, hypothesis: &Hypothesis) -> Vec<Step> {
        let mut steps: Vec<(usize, Step)> = Vec::new();
        for (at, op) in self.contract.operations.iter().enumerate() {
            let (mut op, mut how, mut cut, mut left_out) = (op.clone(), None, None, false);
            for change in &hypothesis.changes {
                match (*change, &mut op) {
                    (Change::Filter(of, interpolation), Op::Resize(resize)) if of == at => {
                        resize.interpolation = interpolation;
                    }
                    (Change::Resized(of, to), Op::Resize(resize)) if of == at => resize.to = to,
                    (Change::Resampled(of, resampling), _) if of == at => how = Some(resampling),
                    (Change::RoundedDown(of), _) if of == at => cut = Some((true, [0; 2])),
                    (Change::Shifted(of, shift), _) if of == at => cut = Some((false, shift)),
                    (Change::LeftOut(of), _) if of == at => left_out = true,
                    _ => {}
                }
            }
            let step = match (op, how, cut) {
                (Op::Normalize(_), ..) => continue,
                _ if left_out => continue,
                (Op::Resize(resize), Some(how), _) => Step::Resampled(how, resize),
                (op, _, Some((rounded_down, shift))) => Step::Cut { op, rounded_down, shift },
                (op, ..) => Step::Ours(op),
            };
            steps.push((at, step));
        }
        for change in &hypothesis.changes {
            if let Change::Swapped(first) = change
                && let Some(at) = steps.iter().position(|(at, _)| at == first).filter(|at| at + 1 < steps.len())
            {
                steps.swap(at, at + 1);
            }
        }
        steps.into_iter().map(|(_, step)| step).collect()
    }

    /// The operations of a hypothesis that differ, and how, in words.
    fn causes(&self, hypothesis: &Hypothesis, line: &Line) -> Vec<(usize, String)> {
        let ops = &self.contract.operations;
        let mut causes: Vec<(usize, String)> = Vec::new();
        for change in &hypothesis.changes {
            let resize = |at: usize| match &ops[at] {
                Op::Resize(resize) => *resize,
                _ => Resize::new(Size::new(1, 1)),
            };
            causes.push(match *change {
                Change::Filter(at, filter) => {
                    (at + 1, format!("{}, not {}", filter_name(filter), filter_name(resize(at).interpolation)))
                }
                Change::Resampled(at, how) => {
                    (at + 1, format!("{}, not {}", how.text(), filter_name(resize(at).interpolation)))
                }
                Change::Resized(at, to) => (at + 1, format!("{}, not {}", size_name(to), size_name(resize(at).to))),
                Change::RoundedDown(at) => (
                    at + 1,
                    "the crop's place is rounded down ((side - crop) // 2), not to the nearest even number".into(),
                ),
                Change::Shifted(at, [x, y]) => {
                    let shift = |by: i32, what: &str, other: &str| match by {
                        0 => None,
                        1.. => Some(format!("{by} pixel {what}")),
                        _ => Some(format!("{} pixel {other}", -by)),
                    };
                    let shifts = [shift(x, "to the right", "to the left"), shift(y, "down", "up")];
                    let shifts: Vec<String> = shifts.into_iter().flatten().collect();
                    (at + 1, format!("the crop is off by {}", shifts.join(" and ")))
                }
                Change::LeftOut(at) => (at + 1, "the operation is left out".to_owned()),
                Change::Swapped(at) => (at + 1, format!("it comes after {}", ops[at + 1].name())),
                Change::Reversed => (0, "channels are in the order blue, green, red (BGR)".to_owned()),
            });
        }
        if let Some(text) = self.line_text(line, hypothesis.is_reversed()) {
            let at = ops.iter().position(|op| matches!(op, Op::Normalize(_)));
            causes.push((at.map_or(ops.len() + 1, |at| at + 1), text));
        }
        if causes.is_empty() {
            let at = ops.iter().position(|op| matches!(op, Op::Resize(_)));
            let text = "the pixels differ by rounding only, as where images are resized as tensors of numbers";
            causes.push((at.map_or(ops.len() + 1, |at| at + 1), text.to_owned()));
        }
        causes
    }

    /// How a line differs from the contract's, in words; `None` if it is the contract's.
    fn line_text(&self, line: &Line, reversed: bool) -> Option<String> {
        let (scale, [mean, std]) = self.normalization();
        let close = |got: f64, wanted: f64, least: f64| (got - wanted).abs() <= 2e-3 * wanted.abs() + least;
        let is = |scale: f64, after: f64, mean: [f64; 3], std: [f64; 3]| {
            (0..3).all(|c| {
                close(line.slope[c], scale * after / std[c], 0.0)
                    && close(line.offset[c], -mean[c] * after / std[c], 0.01 * after)
            })
        };
        if is(scale, 1.0, mean, std) {
            return None;
        }
        let turned = |values: [f64; 3]| [values[2], values[1], values[0]];
        if is(scale, 1.0, turned(mean), turned(std)) {
            // Channels that are exchanged at the end take their mean and std along.
            return (!reversed).then(|| "mean and std are in the order blue, green, red".to_owned());
        }
        let (zero, one) = ([0.0; 3], [1.0; 3]);
        let [imagenet_mean, imagenet_std] = [IMAGENET_MEAN, IMAGENET_STD].map(|values| values.map(f64::from));
        let clip_mean = [0.481_454_66, 0.457_827_5, 0.408_210_73];
        let clip_std = [0.268_629_54, 0.261_302_58, 0.275_777_11];
        let known = [
            (is(scale, 1.0, std, mean), "mean and std are swapped"),
            (is(1.0, 1.0, mean, std), "normalization comes before scaling: values of 0 to 255 are normalized"),
            (
                is(1.0, 1.0 / 255.0, mean, std),
                "normalization comes before scaling: values of 0 to 255 are normalized, and then divided by 255",
            ),
            (is(scale / 255.0, 1.0, mean, std), "values are divided by 255 twice"),
            (is(scale, 1.0, zero, std), "the mean is not subtracted"),
            (is(scale, 1.0, mean, one), "values are not divided by std"),
            (is(1.0, 1.0, zero, one), "values are 0 to 255, not normalized"),
            (is(1.0 / 255.0, 1.0, zero, one), "values are 0 to 1, not normalized"),
            (is(1.0 / 255.0, 1.0, [0.5; 3], [0.5; 3]), "values are -1 to 1: mean and std are 0.5"),
            (is(1.0 / 255.0, 1.0, imagenet_mean, imagenet_std), "mean and std are ImageNet's"),
            (is(1.0 / 255.0, 1.0, clip_mean, clip_std), "mean and std are CLIP's"),
        ];
        if let Some((_, text)) = known.iter().find(|(is, _)| *is) {
            return Some((*text).to_owned());
        }
        let got = [0, 1, 2].map(|c| 1.0 / (255.0 * line.slope[c]));
        let subtracted = [0, 1, 2].map(|c| -line.offset[c] * got[c]);
        let list = |values: [f64; 3]| values.map(|value| format!("{value:.4}")).join(", ");
        Some(format!("mean and std are [{}] and [{}], for values of 0 to 1", list(subtracted), list(got)))
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

    /// Why a case is as it is, where the hypothesis explains the plain images.
    fn why(&self, case: &Case<'_>, hypothesis: &Hypothesis, line: &Line) -> Result<Why> {
        let left = |encoded: &[u8], options: &ApplyOptions| -> Result<f64> {
            let image = self.image(hypothesis, encoded, options)?;
            let left = image.and_then(|image| left_over(&image, case.output, line, hypothesis));
            Ok(left.unwrap_or(f64::INFINITY))
        };
        let Probe { bytes, kind, .. } = case.probe;
        let as_it_is = left(bytes, &self.options)?;
        if as_it_is <= ROUNDING {
            return Ok(Why::Expected);
        }
        let decoded = |size: Size, rgb: &[u8]| -> Result<f64> {
            left(&pnm(&Image::from_rgb(size, rgb)?), &ApplyOptions { draft: None, ..self.options })
        };
        if let Some(draft) = self.draft(bytes)?
            && left(bytes, &ApplyOptions { draft: Some(draft), ..self.options })? <= ROUNDING
        {
            return Ok(Why::Decoded("JPEGs are decoded at a smaller scale (draft, scale_denom)"));
        }
        let is = |left: f64, text| if left <= ROUNDING { Why::Decoded(text) } else { Why::Unknown };
        Ok(match kind {
            Kind::Turned => match self.options.orientation {
                Orientation::Apply => {
                    let options = ApplyOptions { orientation: Orientation::Ignore, ..self.options };
                    is(left(bytes, &options)?, "the EXIF orientation is ignored")
                }
                Orientation::Ignore => {
                    let options = ApplyOptions { orientation: Orientation::Apply, ..self.options };
                    is(left(bytes, &options)?, "the EXIF orientation is applied, and the contract ignores it")
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

/// All changes to operations that are tried.
fn changes(ops: &[Op]) -> Vec<Change> {
    let mut changes = vec![Change::Reversed];
    let count = ops.iter().take_while(|op| !matches!(op, Op::Normalize(_))).count();
    let crop = ops.iter().find_map(|op| match op {
        Op::CenterCrop(crop) => Some(crop.width.min(crop.height)),
        _ => None,
    });
    for (at, op) in ops[..count].iter().enumerate() {
        match op {
            Op::Resize(resize) => {
                let filters =
                    [Interpolation::Nearest, Interpolation::Bilinear, Interpolation::Bicubic, Interpolation::Lanczos];
                let others = filters.into_iter().filter(|filter| *filter != resize.interpolation);
                changes.extend(others.map(|filter| Change::Filter(at, filter)));
                changes.extend(Resampling::ALL.map(|how| Change::Resampled(at, how)));
                changes.extend(sizes(resize.to, crop).into_iter().map(|to| Change::Resized(at, to)));
            }
            Op::CenterCrop(_) | Op::Crop(_) => {
                if matches!(op, Op::CenterCrop(_)) {
                    changes.push(Change::RoundedDown(at));
                }
                let shifts = (-1..=1).flat_map(|x| (-1..=1).map(move |y| [x, y])).filter(|shift| *shift != [0, 0]);
                changes.extend(shifts.map(|shift| Change::Shifted(at, shift)));
            }
            _ => {}
        }
        changes.push(Change::LeftOut(at));
        if at + 1 < count {
            changes.push(Change::Swapped(at));
        }
    }
    changes
}

/// Other sizes that programs resize to.
fn sizes(to: ResizeTo, crop: Option<u32>) -> Vec<ResizeTo> {
    let side = match to {
        ResizeTo::ShorterSide(side) | ResizeTo::LongerSide(side) | ResizeTo::ShorterSideWithin { size: side, .. } => {
            side
        }
        ResizeTo::Exact(Size { width, height }) => width.min(height),
    };
    let mut sides = vec![side, side - 1, side + 1, 256, 232];
    if let Some(crop) = crop {
        sides.push(crop);
        sides.extend([0.875, 0.9, 0.95, 0.965].map(|share| (f64::from(crop) / share) as u32));
    }
    sides.retain(|side| *side > 0);
    let shorter = sides.iter().map(|&side| ResizeTo::ShorterSide(side));
    let longer = [ResizeTo::LongerSide(side)];
    let exact = sides.iter().map(|&side| ResizeTo::Exact(Size::new(side, side)));
    let mut sizes: Vec<ResizeTo> = Vec::new();
    for size in shorter.chain(longer).chain(exact) {
        if size != to && !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    sizes
}

/// The place of a crop in an image of this size.
fn place(op: &Op, image: Size, rounded_down: bool) -> [i32; 2] {
    match op {
        Op::Crop(crop) => [crop.x, crop.y],
        Op::CenterCrop(crop) if rounded_down => {
            let axis = |side: u32, crop: u32| ((i64::from(side) - i64::from(crop)).div_euclid(2)) as i32;
            [axis(image.width, crop.width), axis(image.height, crop.height)]
        }
        Op::CenterCrop(crop) => crop.place(image).into(),
        _ => [0, 0],
    }
}

/// The line by which numbers are closest to an image's bytes; `None` if a channel of the image or of the numbers is all
/// one value.
fn fit(image: &Image, output: &Planes, hypothesis: &Hypothesis) -> Option<Line> {
    let (mut slope, mut offset) = ([0.0; 3], [0.0; 3]);
    for channel in 0..3 {
        let from = hypothesis.channel(channel);
        // Bytes of 0 and 255 stand for all numbers below and above.
        let pairs = || {
            let values = image.pixels().iter().map(|pixel| pixel[from]).zip(&output.planes[channel]);
            values.filter(|(byte, _)| !matches!(byte, 0 | 255)).map(|(byte, value)| (f64::from(byte), value))
        };
        let sums = pairs().fold([0.0; 3], |[count, x, y], (pixel, value)| [count + 1.0, x + pixel, y + value]);
        let (x, y) = (sums[1] / sums[0], sums[2] / sums[0]);
        let (square, product) = pairs().fold((0.0, 0.0), |(square, product), (pixel, value)| {
            ((pixel - x).mul_add(pixel - x, square), (pixel - x).mul_add(value - y, product))
        });
        if square == 0.0 || product == 0.0 || !(product / square).is_finite() {
            return None;
        }
        slope[channel] = product / square;
        offset[channel] = y - slope[channel] * x;
    }
    Some(Line { slope, offset })
}

/// Root mean square of the difference between an image and numbers, in levels of 0 to 255; `None` if the sizes differ.
/// A few outliers are left out.
fn left_over(image: &Image, output: &Planes, line: &Line, hypothesis: &Hypothesis) -> Option<f64> {
    if image.size() != output.size {
        return None;
    }
    let (mut all, mut close, mut outliers) = (0.0, 0.0, 0_usize);
    for (channel, plane) in output.planes.iter().enumerate() {
        let from = hypothesis.channel(channel);
        let (slope, offset) = (line.slope[channel], line.offset[channel]);
        for (pixel, value) in image.pixels().iter().zip(plane) {
            // Tensors of numbers have values below 0 and above 255, which bytes have not.
            let left = ((value - offset) / slope).clamp(0.0, 255.0) - f64::from(pixel[from]);
            all += left * left;
            if left.abs() > OUTLIER {
                outliers += 1;
            } else {
                close += left * left;
            }
        }
    }
    let count = 3 * image.pixels().len();
    // A place that is exactly between two pixels is rounded by chance: a few columns then come from the neighbors.
    let few = !hypothesis.changes.is_empty() && outliers as f64 <= OUTLIERS * count as f64;
    Some((if few { close } else { all } / count as f64).sqrt())
}

fn filter_name(filter: Interpolation) -> &'static str {
    match filter {
        Interpolation::Nearest => "nearest",
        Interpolation::Bilinear => "bilinear",
        Interpolation::Bicubic => "bicubic",
        Interpolation::Lanczos => "Lanczos",
    }
}

fn size_name(to: ResizeTo) -> String {
    match to {
        ResizeTo::Exact(size) => format!("to exactly {size}"),
        ResizeTo::ShorterSide(side) => format!("the shorter side to {side}"),
        ResizeTo::ShorterSideWithin { size, max_size } => {
            format!("the shorter side to {size}, the longer within {max_size}")
        }
        ResizeTo::LongerSide(side) => format!("the longer side to {side}"),
    }
}
