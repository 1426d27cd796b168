//! The operations on the CPU: one file each.
//!
//! Each is the specification of its operation: a pass over an image of 8-bit pixels that gives, byte for byte, what
//! Pillow 13 and torchvision give. Faster paths are tested against these.

pub(crate) mod blend;
pub(crate) mod brightness;
pub(crate) mod contrast;
pub(crate) mod crop;
pub(crate) mod dilate;
pub(crate) mod erase;
pub(crate) mod executor;
pub(crate) mod flip;
pub(crate) mod gather;
pub(crate) mod gaussian_blur;
pub(crate) mod grayscale;
#[cfg(target_arch = "x86_64")]
pub(crate) mod horizontal;
pub(crate) mod hue;
pub(crate) mod normalize;
pub(crate) mod output;
pub(crate) mod resample;
pub(crate) mod resize;
pub(crate) mod rotate;
pub(crate) mod saturation;
pub(crate) mod simd;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::image::{Image, Rect, Size};
use crate::recipe::filter::PassOrder;
use crate::recipe::op::Op;

/// Applies one operation to a complete image. The result is in `out`; what `input` holds afterwards is unspecified,
/// because operations that work in place swap the two.
pub(crate) fn apply(op: &Op, order: PassOrder, input: &mut Image, out: &mut Image) -> Result<()> {
    debug_assert_eq!(input.part(), Rect::full(input.whole()), "apply takes complete images");
    let size = op.output_size(input.size())?;
    let whole = Rect::full(input.size());
    match *op {
        Op::Hflip => flip::horizontal(input),
        Op::Vflip => flip::vertical(input),
        Op::Rotate { degrees, interpolation, expand, fill } => {
            rotate::rotate(input, degrees, interpolation, expand, fill, out);
            return Ok(());
        }
        Op::Resize(resize) => {
            resize::resize(input, size, resize.interpolation, order, out);
            return Ok(());
        }
        Op::Crop { x, y, width, height, fill } => {
            crop::crop(input, x, y, Size::new(width, height), fill, out);
            return Ok(());
        }
        Op::CenterCrop { .. } => {
            crop::center_crop(input, size, out);
            return Ok(());
        }
        Op::ResizedCrop { x, y, width, height, interpolation, .. } => {
            resize::resized_crop(input, Rect { x, y, width, height }, size, interpolation, order, out);
            return Ok(());
        }
        Op::GaussianBlur { kernel, sigma } => {
            gaussian_blur::gaussian_blur(input, kernel, sigma, whole, out);
            return Ok(());
        }
        Op::Dilate { kernel } => {
            dilate::dilate(input, kernel, whole, out);
            return Ok(());
        }
        Op::Erode { kernel } => {
            dilate::erode(input, kernel, whole, out);
            return Ok(());
        }
        Op::Brightness { .. }
        | Op::Contrast { .. }
        | Op::Saturation { .. }
        | Op::Hue { .. }
        | Op::Grayscale
        | Op::Erase { .. } => pointwise(op, input),
        Op::Normalize { .. } => {
            return Err(Error::parameter(
                op.name(),
                "place",
                "after every operation on 8-bit pixels, only erase may follow",
                "an operation on 8-bit pixels",
            ));
        }
        Op::Custom(ref custom) => {
            let before = input.size();
            (custom.apply)(input);
            if input.size() != before {
                let expected = format!("of the same size as before, {before}");
                return Err(Error::parameter(custom.name, "image", expected, input.size()));
            }
        }
    }
    std::mem::swap(input, out);
    Ok(())
}

/// Applies an operation that works in place, to whatever part of an image is there (contrast: to a complete one).
pub(crate) fn pointwise(op: &Op, image: &mut Image) {
    match *op {
        Op::Brightness { factor } => brightness::brightness(image, factor),
        Op::Contrast { factor } => contrast::contrast(image, factor),
        Op::Saturation { factor } => saturation::saturation(image, factor),
        Op::Hue { factor } => hue::hue(image, factor),
        Op::Grayscale => grayscale::grayscale(image),
        Op::Erase { x, y, width, height, value } => erase::erase(image, Rect { x, y, width, height }, value),
        _ => debug_assert!(false, "{} does not work in place", op.name()),
    }
}
