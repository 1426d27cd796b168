//! Changes to operations that other programs make, and the predicted images.

use super::resampling::Resampling;
use crate::apply::{ApplyOptions, apply_to};
use crate::decode::Input;
use crate::error::Result;
use crate::ops::orientation::Orientation;
use crate::ops::{Crop, Interpolation, Op, Resize, ResizeTo};
use crate::raster::{Image, Size, check_pixels};

/// A change to the contract's operations. `at` is the place of the operation, from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Change {
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

    /// The number of the operation that changes, from 1 (0: decoding), and the change in words.
    pub(super) fn text(self, operations: &[Op]) -> (usize, String) {
        let resize = |at: usize| match &operations[at] {
            Op::Resize(resize) => *resize,
            _ => Resize::new(Size::new(1, 1)),
        };
        match self {
            Self::Filter(at, filter) => {
                (at + 1, format!("{}, not {}", filter_name(filter), filter_name(resize(at).interpolation)))
            }
            Self::Resampled(at, how) => {
                (at + 1, format!("{}, not {}", how.text(), filter_name(resize(at).interpolation)))
            }
            Self::Resized(at, to) => (at + 1, format!("{}, not {}", size_name(to), size_name(resize(at).to))),
            Self::RoundedDown(at) => {
                let text = "the crop's place is rounded down ((side - crop) // 2), not to the nearest even number";
                (at + 1, text.to_owned())
            }
            Self::Shifted(at, [x, y]) => {
                let shift = |by: i32, what: &str, other: &str| match by {
                    0 => None,
                    1.. => Some(format!("{by} pixel {what}")),
                    _ => Some(format!("{} pixel {other}", -by)),
                };
                let shifts = [shift(x, "to the right", "to the left"), shift(y, "down", "up")];
                let shifts: Vec<String> = shifts.into_iter().flatten().collect();
                (at + 1, format!("the crop is off by {}", shifts.join(" and ")))
            }
            Self::LeftOut(at) => (at + 1, "the operation is left out".to_owned()),
            Self::Swapped(at) => (at + 1, format!("it comes after {}", operations[at + 1].name())),
            Self::Reversed => (0, "channels are in the order blue, green, red (BGR)".to_owned()),
        }
    }
}

/// Changes that explain a difference together.
#[derive(Debug, Clone, Default)]
pub(super) struct Hypothesis {
    pub(super) changes: Vec<Change>,
}

impl Hypothesis {
    /// The hypothesis with one change more; `None` if that contradicts another.
    pub(super) fn with(&self, change: Change) -> Option<Self> {
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

    pub(super) fn is_reversed(&self) -> bool {
        self.changes.contains(&Change::Reversed)
    }

    /// The channel of the image that channel `channel` of the numbers is made of.
    pub(super) fn channel(&self, channel: usize) -> usize {
        if self.is_reversed() { 2 - channel } else { channel }
    }

    /// The image that the changed `operations` make, before normalization; `None` if it is refused.
    pub(super) fn image(&self, operations: &[Op], image: Input<'_>, options: &ApplyOptions) -> Result<Option<Image>> {
        let (mut options, mut before, mut ops) = (*options, None, Vec::new());
        let run = |before: Option<&Image>, ops: &[Op], options: &ApplyOptions| match apply_to(
            before.map_or(image, |before| Input::Pixels(before.into())),
            ops,
            &options.as_made_by(&[]),
        ) {
            Ok(tensor) => {
                let [_, height, width, _] = tensor.shape().map(|side| side as u32);
                Ok(Some(Image::from_rgb(Size { width, height }, tensor.as_bytes()?)?))
            }
            // An operation does not fit the other size.
            Err(error) if error.is_bad_sample() || error.is_parameter() => Ok(None),
            Err(error) => Err(error),
        };
        for step in self.steps(operations) {
            if let Step::Ours(op) = step {
                ops.push(op);
                continue;
            }
            let Some(image) = run(before.as_ref(), &std::mem::take(&mut ops), &options)? else { return Ok(None) };
            let image = match step {
                Step::Resampled(how, resize) => {
                    let to = Op::from(resize).output_size(image.size())?;
                    if check_pixels(to, options.max_pixels).is_err() {
                        return Ok(None);
                    }
                    how.resize(&image, to)?
                }
                Step::Cut { op, rounded_down, shift: [x, y] } => {
                    let to = op.output_size(image.size())?;
                    let place = place(&op, image.size(), rounded_down);
                    ops.push(Crop::new(place[0] + x, place[1] + y, to).into());
                    image
                }
                Step::Ours(_) => image,
            };
            before = Some(image);
            (options.orientation, options.draft, options.thumbnail) = (Orientation::Ignore, None, None);
        }
        run(before.as_ref(), &ops, &options)
    }

    fn steps(&self, operations: &[Op]) -> Vec<Step> {
        let mut steps: Vec<(usize, Step)> = Vec::new();
        for (at, op) in operations.iter().enumerate() {
            let (mut op, mut how, mut cut, mut left_out) = (op.clone(), None, None, false);
            for change in &self.changes {
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
                (Op::Normalize(_) | Op::ToFloat(_), ..) => continue,
                _ if left_out => continue,
                (Op::Resize(resize), Some(how), _) => Step::Resampled(how, resize),
                (op, _, Some((rounded_down, shift))) => Step::Cut { op, rounded_down, shift },
                (op, ..) => Step::Ours(op),
            };
            steps.push((at, step));
        }
        for change in &self.changes {
            if let Change::Swapped(first) = change
                && let Some(at) = steps.iter().position(|(at, _)| at == first).filter(|at| at + 1 < steps.len())
            {
                steps.swap(at, at + 1);
            }
        }
        steps.into_iter().map(|(_, step)| step).collect()
    }
}

/// A step of a hypothesis.
enum Step {
    Ours(Op),
    Resampled(Resampling, Resize),
    Cut { op: Op, rounded_down: bool, shift: [i32; 2] },
}

/// All changes to operations that are tried.
pub(super) fn changes(ops: &[Op]) -> Vec<Change> {
    let mut changes = vec![Change::Reversed];
    let count = ops.iter().take_while(|op| !matches!(op, Op::Normalize(_) | Op::ToFloat(_))).count();
    let crop = ops.iter().find_map(|op| match op {
        Op::CenterCrop(crop) => Some(crop.width.min(crop.height)),
        _ => None,
    });
    for (at, op) in ops[..count].iter().enumerate() {
        match op {
            Op::Resize(resize) => {
                let filters = [
                    Interpolation::Nearest,
                    Interpolation::Box,
                    Interpolation::Bilinear,
                    Interpolation::Hamming,
                    Interpolation::Bicubic,
                    Interpolation::Lanczos,
                ];
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

fn filter_name(filter: Interpolation) -> &'static str {
    match filter {
        Interpolation::Nearest => "nearest",
        Interpolation::Bilinear => "bilinear",
        Interpolation::Box => "box",
        Interpolation::Hamming => "Hamming",
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
