//! Moving pixels by displacements that the caller has.

use super::strides::Form;
use super::view::View;
use super::view_mut::ViewMut;
use crate::error::{Error, Result};
use crate::ops::Interpolation;
use crate::ops::elastic::{around, nearest_to};
use crate::simd::wide;
use warpfeed_image::planes::{Element, Value};

/// Takes each pixel of the result from the image at the pixel's place plus a displacement of its own: x and y in pixels,
/// row by row. It is [`Elastic`](crate::ops::Elastic) with a displacement that the caller has drawn, for `u8`, `u16` and
/// `f32` with any number of channels.
///
/// `fill` is the color outside of the image, one number or one for each channel. As in torchvision's `F.elastic`, a
/// pixel at the edge is `(sum - fill) * inside + fill`, where `inside` is the weight of the pixels inside. Without a fill
/// it is the sum, and zero outside.
///
/// ```
/// use warpfeed::image::Size;
/// use warpfeed::ops::Interpolation;
/// use warpfeed::transforms::{View, ViewMut, displace};
///
/// let (size, gray) = (Size::new(4, 1), [10_u8, 20, 30, 40]);
/// let mut out = [0_u8; 4];
/// let half_right = [[0.5, 0.0]; 4];
/// let view = ViewMut::hwc(&mut out, size, 1)?;
/// displace(View::hwc(&gray, size, 1)?, &half_right, Interpolation::Bilinear, None, view)?;
/// assert_eq!(out, [15, 25, 35, 20]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Errors
/// [`Error::Parameter`] for an output of another size, type or number of channels than the image's, for another number of
/// displacements than pixels or one that is not finite, for another filter than bilinear or nearest, and for a fill with
/// a wrong number of numbers.
pub fn displace(
    image: View<'_>,
    displacement: &[[f32; 2]],
    interpolation: Interpolation,
    fill: Option<&[f32]>,
    out: ViewMut<'_>,
) -> Result<()> {
    let refused =
        |parameter, expected: String, got: String| Err(Error::parameter("displace", parameter, expected, got));
    let (from, channels, pixels) = (image.form, image.form.channels, image.size().area_px());
    if out.size() != image.size() || out.channels() != usize::from(channels) {
        let got = format!("{}, {} channels", out.size(), out.channels());
        return refused("out", format!("{}, {channels} channels, as the image", image.size()), got);
    }
    if out.as_view().ok().map(|view| view.element) != Some(image.element) {
        return refused("out", format!("{}, the type of the image", image.element), out.dtype().to_string());
    }
    if displacement.len() as u64 != pixels {
        return refused("displacement", format!("{pixels} pairs, one for each pixel"), displacement.len().to_string());
    }
    if displacement.as_flattened().iter().any(|moved| !moved.is_finite()) {
        return refused("displacement", "finite numbers".to_owned(), "one that is not".to_owned());
    }
    if !matches!(interpolation, Interpolation::Bilinear | Interpolation::Nearest) {
        return refused("interpolation", "bilinear or nearest".to_owned(), format!("{interpolation:?}").to_lowercase());
    }
    let mut fills = [0.0; 64];
    let fills = &mut fills[..usize::from(channels)];
    match fill {
        None => {}
        Some([one]) => fills.fill(*one),
        Some(each) if each.len() == fills.len() => fills.copy_from_slice(each),
        Some(other) => return refused("fill", format!("1 or {channels} numbers"), other.len().to_string()),
    }
    let edge = match (interpolation, fill) {
        (Interpolation::Nearest, _) => Edge::Nearest,
        (_, None) => Edge::Sum,
        (_, Some(_)) => Edge::Filled,
    };
    let to = out.form;
    match image.element {
        Element::U8 => {
            let byte = |value: f32| value.round_ties_even() as u8;
            move_all(image.bytes, from, displacement, edge, fills, byte, out.bytes, to);
        }
        Element::U16 => {
            let word = |value: f32| value.round_ties_even() as u16;
            let (values, results) = (bytemuck::cast_slice(image.bytes), bytemuck::cast_slice_mut(out.bytes));
            move_all(values, from, displacement, edge, fills, word, results, to);
        }
        Element::F32 => {
            let (values, results) = (bytemuck::cast_slice(image.bytes), bytemuck::cast_slice_mut(out.bytes));
            move_all(values, from, displacement, edge, fills, |value| value, results, to);
        }
    }
    Ok(())
}

/// How a pixel is made of those around it.
#[derive(Clone, Copy, PartialEq)]
enum Edge {
    Nearest,
    /// Bilinear, with nothing outside.
    Sum,
    /// Bilinear, with the fill outside.
    Filled,
}

#[allow(clippy::too_many_arguments)]
fn move_all<T: Value + Into<f64>>(
    values: &[T],
    from: Form,
    displacement: &[[f32; 2]],
    edge: Edge,
    fills: &[f32],
    rounded: impl Fn(f32) -> T + Copy,
    results: &mut [T],
    to: Form,
) {
    let (width, height) = (from.size.width, from.size.height);
    let place = |[x, y]: [i32; 2]| {
        let is_inside = (x as u32) < width && (y as u32) < height;
        is_inside.then(|| from.place(x as usize, y as usize, 0))
    };
    wide(
        #[inline(always)]
        || {
            for (y, row) in (0..).zip(displacement.chunks_exact(width as usize)) {
                for (x, moved) in (0..).zip(row) {
                    let target = to.place(x as usize, y as usize, 0);
                    if edge != Edge::Nearest {
                        let corners = around([x, y], *moved).map(|(at, share)| (place(at), share));
                        let inside: f32 = corners.iter().filter(|(at, _)| at.is_some()).map(|(_, share)| share).sum();
                        for (channel, fill) in fills.iter().enumerate() {
                            let mut sum = 0.0_f32;
                            for (at, share) in corners {
                                let Some(at) = at else { continue };
                                let value: f64 = values[at + channel * from.strides.channel].into();
                                sum += share * value as f32;
                            }
                            let made = if edge == Edge::Sum { sum } else { (sum - fill) * inside + fill };
                            results[target + channel * to.strides.channel] = rounded(made);
                        }
                    } else {
                        let at = place(nearest_to([x, y], *moved));
                        for (channel, fill) in fills.iter().enumerate() {
                            results[target + channel * to.strides.channel] =
                                at.map_or_else(|| rounded(*fill), |at| values[at + channel * from.strides.channel]);
                        }
                    }
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raster::Size;

    #[test]
    fn what_does_not_fit_is_refused() {
        let size = Size::new(3, 2);
        let (image, still) = ([1_u8; 6], [[0.0; 2]; 6]);
        let run = |displacement: &[[f32; 2]], how, fill: &[f32], side| {
            let mut out = [0_u8; 12];
            let out = ViewMut::hwc(&mut out, Size::new(3, side), 1).unwrap();
            displace(View::hwc(&image, size, 1).unwrap(), displacement, how, Some(fill), out)
                .map_err(|error| error.to_string())
        };
        let name =
            |result: std::result::Result<(), String>, word| assert!(result.unwrap_err().contains(word), "{word}");
        assert_eq!(run(&still, Interpolation::Bilinear, &[0.0], 2), Ok(()));
        name(run(&still, Interpolation::Bilinear, &[0.0], 3), "out");
        name(run(&still[1..], Interpolation::Bilinear, &[0.0], 2), "displacement");
        name(run(&[[f32::NAN; 2]; 6], Interpolation::Nearest, &[0.0], 2), "displacement");
        name(run(&still, Interpolation::Bicubic, &[0.0], 2), "interpolation");
        name(run(&still, Interpolation::Bilinear, &[0.0; 2], 2), "fill");
        assert_eq!(run(&[[f32::MAX, f32::MIN]; 6], Interpolation::Bilinear, &[0.0], 2), Ok(()), "far away");
        let mut words = [0_u16; 6];
        let out = ViewMut::hwc(&mut words, size, 1).unwrap();
        let other = displace(View::hwc(&image, size, 1).unwrap(), &still, Interpolation::Nearest, None, out);
        assert!(other.unwrap_err().to_string().contains("type of the image"));
    }
}
