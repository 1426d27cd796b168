//! Checks of parameters and of lists of operations.

use super::named::check_names;
use super::noise::KEYS;
use super::normalize::Normalization;
use super::transform::refuse_parts;
use super::values::PixelValues;
use super::{ChannelNumbers, Finish, Op, SizeEffect, Transform};
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use std::fmt;
use std::ops::RangeInclusive;

/// Largest side of an image in pixels, at any point of a recipe.
pub(crate) const MAX_SIDE_PX: u32 = 65_535;
/// Largest number of operations in a sample's recipes. Nested repetitions multiply, and a worker that draws them cannot
/// be stopped.
const MAX_OPERATIONS: u64 = 100_000;
/// Largest side of a kernel in pixels.
pub(crate) const MAX_KERNEL_PX: u32 = 255;
/// Lower bound of values that must be above 0: an area or aspect of 0 has no logarithm and no pixels.
pub(crate) const ABOVE_0: f64 = 1e-6;

/// Checks that a number is within `allowed`. `unit` follows the limits in the message.
fn limited<T: PartialOrd + fmt::Display>(
    name: &'static str,
    parameter: &'static str,
    value: T,
    allowed: &RangeInclusive<T>,
    unit: &str,
) -> Result<()> {
    // NaN fails this test.
    if allowed.contains(&value) {
        return Ok(());
    }
    Err(Error::parameter(name, parameter, format!("{} to {}{unit}", allowed.start(), allowed.end()), value))
}

/// Checks that a number is within `allowed`.
pub(crate) fn within<T: PartialOrd + fmt::Display>(
    name: &'static str,
    parameter: &'static str,
    value: T,
    allowed: RangeInclusive<T>,
) -> Result<()> {
    limited(name, parameter, value, &allowed, "")
}

/// Checks that a number of pixels is within `allowed`.
pub(crate) fn pixels<T: PartialOrd + fmt::Display>(
    name: &'static str,
    parameter: &'static str,
    value: T,
    allowed: RangeInclusive<T>,
) -> Result<()> {
    limited(name, parameter, value, &allowed, " pixels")
}

/// Checks a side of an image.
pub(crate) fn side(name: &'static str, parameter: &'static str, value: u32) -> Result<()> {
    pixels(name, parameter, value, 1..=MAX_SIDE_PX)
}

/// Checks a width and a height.
pub(crate) fn sides(name: &'static str, width: u32, height: u32) -> Result<()> {
    side(name, "width", width)?;
    side(name, "height", height)
}

/// Checks the side of a square of pixels.
pub(crate) fn kernel(name: &'static str, value: u32) -> Result<()> {
    pixels(name, "kernel", value, 1..=MAX_KERNEL_PX)
}

/// Checks a factor of a blend.
pub(crate) fn factor(name: &'static str, value: f64) -> Result<()> {
    not_negative(name, "factor", value)
}

/// Checks that numbers of channels are finite.
pub(crate) fn finite(name: &'static str, parameter: &'static str, values: ChannelNumbers) -> Result<()> {
    if values.as_slice().iter().any(|v| !v.is_finite()) {
        return Err(Error::parameter(name, parameter, "finite numbers", format!("{values:?}")));
    }
    Ok(())
}

/// Checks that a number is finite and not negative.
pub(crate) fn not_negative<T>(name: &'static str, parameter: &'static str, value: T) -> Result<()>
where
    T: Into<f64> + Copy + fmt::Display,
{
    if !(0.0..f64::INFINITY).contains(&value.into()) {
        return Err(Error::parameter(name, parameter, "a finite number, 0 or more", value));
    }
    Ok(())
}

/// Checks a key of noise.
pub(crate) fn noise_key(name: &'static str, key: u64) -> Result<()> {
    if key >= KEYS {
        return Err(Error::parameter(name, "key", "a whole number below 2^53", key));
    }
    Ok(())
}

/// Checks a point on or near an image, in pixels.
pub(crate) fn point(name: &'static str, parameter: &'static str, point: [f64; 2]) -> Result<()> {
    let limit = f64::from(MAX_SIDE_PX);
    // NaN fails this test.
    if point.iter().all(|v| (-limit..=limit).contains(v)) {
        return Ok(());
    }
    Err(Error::parameter(name, parameter, format!("two numbers within {limit} pixels"), format!("{point:?}")))
}

/// Checks that numbers are within -`limit` to `limit`.
pub(crate) fn finite_within(name: &'static str, parameter: &'static str, values: &[f64], limit: f64) -> Result<()> {
    if values.iter().all(|v| (-limit..=limit).contains(v)) {
        return Ok(());
    }
    Err(Error::parameter(name, parameter, format!("numbers within -{limit} to {limit}"), format!("{values:?}")))
}

/// Checks a rectangle that must lie inside the image.
pub(crate) fn inside(name: &'static str, rect: Rect, image: Size) -> Result<()> {
    if rect.fits(image) {
        return Ok(());
    }
    let Rect { x, y, width, height } = rect;
    let got = format!("{width} x {height} at ({x}, {y})");
    Err(Error::parameter(name, "rectangle", format!("inside the image of {image}"), got))
}

/// Checks a probability.
pub(crate) fn probability(name: &'static str, p: f64) -> Result<()> {
    match p {
        0.0..=1.0 => Ok(()),
        _ => Err(Error::parameter(name, "p", "a probability, 0 to 1", p)),
    }
}

/// Checks a range of numbers within `low` to `high`.
pub(crate) fn range(
    name: &'static str,
    parameter: &'static str,
    range: &RangeInclusive<f64>,
    low: f64,
    high: f64,
) -> Result<()> {
    let (start, end) = (*range.start(), *range.end());
    if start.is_finite() && end.is_finite() && low <= start && start <= end && end <= high {
        return Ok(());
    }
    let bounds = match (low.is_finite(), high.is_finite()) {
        (true, true) => format!(" within {low} to {high}"),
        (true, false) => format!(", {low} or more"),
        _ => String::new(),
    };
    Err(Error::parameter(name, parameter, format!("a rising range{bounds}"), format!("{start}..={end}")))
}

/// Checks a range of whole numbers from 1 to `most`. `unit` follows the limits in the message.
pub(crate) fn whole_range(
    name: &'static str,
    parameter: &'static str,
    range: &RangeInclusive<u32>,
    most: u32,
    unit: &'static str,
) -> Result<()> {
    if *range.start() >= 1 && range.start() <= range.end() && *range.end() <= most {
        return Ok(());
    }
    let expected = format!("a rising range within 1 to {most}{unit}");
    Err(Error::parameter(name, parameter, expected, format!("{range:?}")))
}

/// Checks the number of steps that drawing the recipes of a sample takes.
///
/// # Errors
/// [`Error::Parameter`] for too many.
pub(crate) fn check_steps<'a>(transforms: impl Iterator<Item = &'a Transform>) -> Result<()> {
    let steps = transforms.fold(0, |sum: u64, op| sum.saturating_add(op.most_steps()));
    if steps > MAX_OPERATIONS {
        let expected =
            format!("at most {MAX_OPERATIONS} operations together, counted as often as views and repeat repeat them");
        return Err(Error::parameter("pipeline", "operations", expected, steps));
    }
    Ok(())
}

/// Checks that no transform sees objects after one that leaves it to masks which of them stay.
pub(crate) fn check_seen(transforms: &[Transform]) -> Result<()> {
    let (mut hider, mut late) = (None, None);
    for transform in transforms {
        transform.each_leaf(&mut |leaf| {
            if hider.is_some() && leaf.depends_on_annotations() {
                late.get_or_insert(leaf.name());
            }
            if leaf.may_drop_objects() {
                hider.get_or_insert(leaf.name());
            }
        });
    }
    let (Some(hider), Some(late)) = (hider, late) else { return Ok(()) };
    let expected = format!("before {hider}: which objects that leaves is not known when recipes are drawn");
    Err(Error::parameter(late, "place", expected, "after it"))
}

/// Checks that fields can follow each transform.
///
/// # Errors
/// [`Error::Unsupported`] for one of the caller's own that does not say so.
pub(crate) fn check_following<'a>(transforms: impl IntoIterator<Item = &'a Transform>) -> Result<()> {
    let mut unknown = None;
    for transform in transforms {
        transform.each_leaf(&mut |leaf| unknown = unknown.take().or_else(|| leaf.check_following().err()));
    }
    unknown.map_or(Ok(()), Err)
}

/// Checks that RGB images that end in one channel are normalized by the same numbers in all.
///
/// # Errors
/// [`Error::Parameter`] if they are not.
pub(crate) fn check_gray(normalize: Normalization) -> Result<()> {
    let differ = |values: ChannelNumbers| !values.fit(1);
    if normalize.is_some_and(|(mean, std)| differ(mean) || differ(std)) {
        let got = format!("{normalize:?}").trim_start_matches("Some").to_owned();
        return Err(Error::parameter("normalize", "mean and std", "one number, three times, for one channel", got));
    }
    Ok(())
}

/// The form in which every image ends.
pub(crate) struct Ends {
    /// The size, if all have one.
    pub(crate) size: Option<Size>,
    pub(crate) normalize: Normalization,
    /// The values before normalization.
    pub(crate) pixels: PixelValues,
}

/// Checks operations one by one and together, for images of size `stored` if all have that, and with these values.
pub(crate) fn check_ops(ops: &[Transform], stored: Option<Size>, mut pixels: PixelValues) -> Result<Ends> {
    ops.iter().try_for_each(Transform::validate)?;
    for op in ops {
        op.takes(&pixels)?;
        if let Some(Op::SelectChannels(select)) = op.unnamed().explicit() {
            pixels.kind.channels = select.channels.as_slice().len() as u16;
        }
        let mut hidden = None;
        op.each_leaf(&mut |leaf| hidden = hidden.or(leaf.explicit().filter(|_| !std::ptr::eq(leaf, op))));
        if matches!(hidden, Some(Op::SelectChannels(_))) && !pixels.is_rgb8() {
            let expected = "by itself: all images of a batch have the same channels";
            return Err(Error::parameter("select_channels", "place", expected, op.name()));
        }
    }
    check_names(ops)?;
    ops.iter().try_for_each(|op| refuse_parts("pipeline", op.with_parts()))?;
    let mut normalize = None;
    let mut size = stored;
    for op in ops {
        let unnamed = op.unnamed();
        match unnamed.explicit().and_then(Op::finish) {
            Some(Finish::Normalize(mean, std)) => {
                if normalize.is_some() {
                    return Err(Error::parameter("normalize", "place", "once, at the end", "twice"));
                }
                normalize = Some((mean, std));
            }
            Some(Finish::Overwrite(_)) => {}
            None if normalize.is_some() && !matches!(unnamed, Transform::RandomErasing(_)) => {
                let expected = "before normalize (only erasing may follow it)";
                return Err(Error::parameter("pipeline", "place of an operation", expected, op.name()));
            }
            None => {}
        }
        match op.size_effect() {
            SizeEffect::Keeps => {}
            SizeEffect::Becomes(new) => size = Some(new),
            SizeEffect::Varies => size = size.zip(unnamed.explicit()).and_then(|(size, op)| op.output_size(size).ok()),
        }
    }
    Ok(Ends { size, normalize, pixels })
}

/// The size in which every image ends.
///
/// # Errors
/// [`Error::Parameter`] in the name of `what` if there is no such size.
pub(crate) fn one_size(what: &'static str, size: Option<Size>) -> Result<Size> {
    size.ok_or_else(|| {
        Error::parameter(
            what,
            "operations",
            "such that every image ends in the same size: end with a resize to a width and height, a crop, or a random \
             resized crop (or deliver images of any size, with PipelineBuilder::build_ragged or build_padded)",
            "operations that leave the size to the image",
        )
    })
}
