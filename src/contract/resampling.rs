//! Resizing as other programs do it, to recognize their results: with the weights of OpenCV's `resize` (within 1 of its
//! results) and of PyTorch's `interpolate` without antialiasing.

use crate::error::Result;
use crate::os::memory;
use crate::raster::{Image, Size};
use std::f64::consts::PI;

/// A way to resize that warpfeed itself does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resampling {
    /// The pixel at or before the corner of the new pixel: `cv2.INTER_NEAREST`, `interpolate(mode="nearest")`.
    Nearest,
    /// Two neighbors on each axis, whatever the scale.
    Linear,
    /// Four neighbors on each axis, a = -0.75, whatever the scale.
    Cubic,
    /// Eight neighbors on each axis, whatever the scale: `cv2.INTER_LANCZOS4`.
    Lanczos4,
    /// The mean over the new pixel's area: `cv2.INTER_AREA`.
    Area,
    /// Two neighbors on each axis, with the corners' centers on each other: `align_corners=True`.
    Corners,
}

impl Resampling {
    pub(super) const ALL: [Self; 6] =
        [Self::Linear, Self::Cubic, Self::Area, Self::Nearest, Self::Lanczos4, Self::Corners];

    /// A description for reports.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Nearest => "nearest as of OpenCV and interpolate: the pixel at the corner",
            Self::Linear => "bilinear without antialiasing (cv2.INTER_LINEAR, antialias=False)",
            Self::Cubic => "bicubic with a = -0.75 without antialiasing (cv2.INTER_CUBIC, antialias=False)",
            Self::Lanczos4 => "Lanczos over 8 pixels without antialiasing (cv2.INTER_LANCZOS4)",
            Self::Area => "the mean over areas (cv2.INTER_AREA)",
            Self::Corners => "bilinear with aligned corners (align_corners=True)",
        }
    }

    /// The input pixels of output pixel `i` and their weights.
    fn taps(self, i: u32, input: u32, output: u32) -> Vec<(i64, f64)> {
        let scale = f64::from(input) / f64::from(output);
        let center = (f64::from(i) + 0.5) * scale - 0.5;
        let around = |reach: i64, weight: &dyn Fn(f64) -> f64| {
            let first = center.floor() as i64 - reach + 1;
            let taps: Vec<_> = (first..first + 2 * reach).map(|at| (at, weight(center - at as f64))).collect();
            let sum: f64 = taps.iter().map(|(_, weight)| weight).sum();
            taps.into_iter().map(|(at, weight)| (at, weight / sum)).collect()
        };
        let triangle = |x: f64| (1.0 - x.abs()).max(0.0);
        match self {
            // The scale as OpenCV rounds it, which decides where a corner is between two pixels.
            Self::Nearest => {
                let scale = 1.0 / (f64::from(output) / f64::from(input));
                vec![((f64::from(i) * scale).floor() as i64, 1.0)]
            }
            Self::Area if scale > 1.0 => {
                let (begin, end) = (f64::from(i) * scale, (f64::from(i) + 1.0) * scale);
                let covered = |at: i64| (end.min(at as f64 + 1.0) - begin.max(at as f64)).max(0.0) / scale;
                (begin.floor() as i64..end.ceil() as i64).map(|at| (at, covered(at))).collect()
            }
            // To more pixels: the corner of the new pixel, if it is inside of an old one.
            Self::Area => {
                let at = (f64::from(i) * scale).floor();
                let share = f64::from(i) + 1.0 - (at + 1.0) / scale;
                let share = if share <= 0.0 { 0.0 } else { share - share.floor() };
                vec![(at as i64, 1.0 - share), (at as i64 + 1, share)]
            }
            Self::Linear => around(1, &triangle),
            Self::Cubic => around(2, &|x| cubic(x.abs())),
            Self::Lanczos4 => around(4, &|x| sinc(x) * sinc(x / 4.0)),
            Self::Corners => {
                let at = f64::from(i) * f64::from(input - 1) / f64::from(output.max(2) - 1);
                let share = at - at.floor();
                vec![(at.floor() as i64, 1.0 - share), (at.floor() as i64 + 1, share)]
            }
        }
    }

    /// The image with another size. Pixels outside are those of the edge.
    pub(super) fn resize(self, image: &Image, to: Size) -> Result<Image> {
        let from = image.size();
        let columns: Vec<_> = (0..to.width).map(|x| self.taps(x, from.width, to.width)).collect();
        let rows: Vec<_> = (0..to.height).map(|y| self.taps(y, from.height, to.height)).collect();
        let inside = |at: i64, side: u32| at.clamp(0, i64::from(side) - 1) as usize;
        let (width, mut narrow) = (to.width as usize, Vec::new());
        memory::reserve(&mut narrow, from.height as usize * width, "a resize", memory::FEWER_IMAGES)?;
        for y in 0..from.height {
            let row = image.row(y);
            narrow.extend(columns.iter().map(|taps| {
                taps.iter().fold([0.0; 3], |sum, &(at, weight)| {
                    let pixel = row[inside(at, from.width)];
                    [0, 1, 2].map(|c| weight.mul_add(f64::from(pixel[c]), sum[c]))
                })
            }));
        }
        let mut rgb = Vec::new();
        memory::reserve(&mut rgb, 3 * width * rows.len(), "a resize", memory::FEWER_IMAGES)?;
        for taps in &rows {
            for x in 0..width {
                let sum = taps.iter().fold([0.0; 3], |sum, &(at, weight)| {
                    let pixel: [f64; 3] = narrow[inside(at, from.height) * width + x];
                    [0, 1, 2].map(|c| weight.mul_add(pixel[c], sum[c]))
                });
                rgb.extend(sum.map(|value| value.round() as u8));
            }
        }
        Ok(Image::from_rgb(to, &rgb)?)
    }
}

/// Keys' kernel with a = -0.75, for distances of 0 to 2.
fn cubic(x: f64) -> f64 {
    const A: f64 = -0.75;
    if x <= 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x.abs() < 1e-9 { 1.0 } else { libm::sin(PI * x) / (PI * x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_those_of_the_other_programs() {
        // cv2.resize and torch.nn.functional.interpolate of [[0, 100, 200, 40]] to two columns, by their formulas.
        let row = Image::from_rgb(Size::new(4, 1), [0, 100, 200, 40].map(|value| [value; 3]).as_flattened()).unwrap();
        let to = |how: Resampling, width| -> Vec<u8> {
            how.resize(&row, Size::new(width, 1)).unwrap().pixels().iter().map(|pixel| pixel[0]).collect()
        };
        assert_eq!(to(Resampling::Linear, 2), [50, 120]);
        assert_eq!(to(Resampling::Area, 2), [50, 120]);
        assert_eq!(to(Resampling::Nearest, 2), [0, 200]);
        assert_eq!(to(Resampling::Corners, 2), [0, 40]);
        // Weights at distances of 1.5, 0.5, 0.5, 1.5: -0.09375, 0.59375, 0.59375, -0.09375.
        assert_eq!(to(Resampling::Cubic, 2), [41, 129]);
        assert_eq!(to(Resampling::Linear, 3), [17, 150, 67]);
        assert_eq!(to(Resampling::Area, 3), [25, 150, 80]);
        for how in Resampling::ALL {
            assert_eq!(to(how, 4), [0, 100, 200, 40], "{how:?}");
        }
    }
}
