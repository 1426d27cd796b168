//! Filter weights of a resize along one axis, as in Pillow (`Resample.c`), in 22-bit fixed point.

pub use crate::interpolation::Interpolation;
use crate::raster::Size;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Fractional bits of a weight.
pub(crate) const WEIGHT_BITS: u32 = 22;

/// Bits of a weight's lower part. Vector code cuts a weight in two, because it multiplies signed 16-bit numbers.
#[cfg(target_arch = "x86_64")]
pub(crate) const LOW_BITS: u32 = 15;

/// A resize of one axis: `output` pixels are made of the first `shown` of `input` pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stretch {
    pub(crate) input: u32,
    /// In single precision, as Pillow has it.
    pub(crate) shown: f32,
    pub(crate) output: u32,
}

impl Stretch {
    /// All `input` pixels become `output` pixels.
    pub(crate) fn whole(input: u32, output: u32) -> Self {
        Self { input, shown: input as f32, output }
    }

    /// Whether nothing changes.
    pub(crate) fn is_identity(self) -> bool {
        self == Self::whole(self.output, self.output)
    }

    /// Number of input pixels per output pixel.
    fn scale(self) -> f64 {
        f64::from(self.shown) / f64::from(self.output)
    }
}

/// The form of a weight.
pub(crate) trait Weight: Copy + Default {
    /// The weight of a single pixel.
    const ONE: Self;

    /// A weight of this size.
    fn of(weight: f64) -> Self;
}

/// Fixed point with [`WEIGHT_BITS`] fractional bits, for bytes.
impl Weight for i32 {
    const ONE: Self = 1 << WEIGHT_BITS;

    #[inline(always)]
    fn of(weight: f64) -> Self {
        // Rounds halves away from zero: adds or subtracts a half and drops the fraction.
        (weight * f64::from(1 << WEIGHT_BITS) + 0.5_f64.copysign(weight)) as Self
    }
}

/// For 16-bit and floating-point numbers.
impl Weight for f64 {
    const ONE: Self = 1.0;

    #[inline(always)]
    fn of(weight: f64) -> Self {
        weight
    }
}

/// The input pixels of each output pixel, and their weights.
#[derive(Debug, Default)]
pub(crate) struct Taps<W = i32> {
    /// First input pixel of each output pixel.
    pub(crate) starts: Vec<u32>,
    /// Index of each output pixel's first weight, and the number of all weights at the end.
    offsets: Vec<u32>,
    /// Weights of all output pixels, in order.
    weights: Vec<W>,
}

impl<W: Weight> Taps<W> {
    /// The first input pixel and the weights of output pixel `i` of the window.
    #[inline(always)]
    pub(crate) fn of(&self, i: usize) -> (usize, &[W]) {
        (self.starts[i] as usize, &self.weights[self.offsets[i] as usize..self.offsets[i + 1] as usize])
    }

    /// First input pixels, indices of first weights, and weights, as in memory.
    pub(crate) fn tables(&self) -> (&[u32], &[u32], &[W]) {
        (&self.starts, &self.offsets, &self.weights)
    }

    /// Number of output pixels.
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// The largest number of weights of any output pixel.
    pub(crate) fn most(&self) -> usize {
        self.offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize).max().unwrap_or(0)
    }

    /// The weights of all output pixels of a resize from `input` to `output` pixels.
    #[cfg(test)]
    pub(crate) fn new(input: u32, output: u32, interpolation: Interpolation) -> Self {
        Self::of_stretch(Stretch::whole(input, output), interpolation)
    }

    /// The weights of all output pixels of a resize.
    pub(crate) fn of_stretch(stretch: Stretch, interpolation: Interpolation) -> Self {
        let mut taps = Self::default();
        taps.compute(stretch, 0..stretch.output, interpolation);
        taps
    }

    /// Computes the weights of the output pixels `window` of a resize. For [`Interpolation::Nearest`] each output pixel
    /// has a single weight, of 1.
    pub(crate) fn compute(&mut self, stretch: Stretch, window: Range<u32>, interpolation: Interpolation) {
        self.starts.clear();
        self.weights.clear();
        self.offsets.clear();
        self.offsets.push(0);
        let Some(filter) = Filter::new(stretch, interpolation) else {
            for source in nearest(stretch, window) {
                self.starts.push(source);
                self.weights.push(W::ONE);
                self.offsets.push(self.weights.len() as u32);
            }
            return;
        };
        match interpolation {
            Interpolation::Nearest | Interpolation::Bilinear => self.add(&filter, window, triangle),
            Interpolation::Box => self.add(&filter, window, cover),
            Interpolation::Hamming => self.add(&filter, window, hamming),
            Interpolation::Bicubic => self.add(&filter, window, cubic),
            Interpolation::Lanczos => self.add(&filter, window, lanczos),
        }
    }

    /// Adds the output pixels `window`. Each filter has a loop of its own, without calls.
    #[inline(always)]
    fn add(&mut self, filter: &Filter, window: Range<u32>, weight: impl Fn(f64) -> f64) {
        let inverse = 1.0 / filter.scale.max(1.0);
        // The width of the filter, and its last pixel.
        let most = (2.0 * filter.support) as usize + 2;
        let mut values = vec![0.0; most];
        self.starts.reserve(window.len());
        self.offsets.reserve(window.len());
        self.weights.resize(window.len() * most, W::default());
        let mut count = 0;
        for i in window {
            let (range, center) = (filter.range(i), filter.center(i));
            let start = f64::from(range.start);
            let values = &mut values[..range.len()];
            for (tap, value) in (0..).zip(values.iter_mut()) {
                *value = weight((f64::from(tap) + start - center + 0.5) * inverse);
            }
            let sum: f64 = values.iter().sum();
            let sum = if sum == 0.0 { 1.0 } else { sum };
            for (to, value) in self.weights[count..].iter_mut().zip(&*values) {
                *to = W::of(value / sum);
            }
            count += values.len();
            self.starts.push(range.start);
            self.offsets.push(count as u32);
        }
        self.weights.truncate(count);
    }
}

/// The input pixels from which a resize makes the output pixels `window`.
pub(crate) fn reach(stretch: Stretch, window: Range<u32>, interpolation: Interpolation) -> Range<u32> {
    if stretch.is_identity() {
        return window;
    }
    match Filter::new(stretch, interpolation) {
        Some(filter) => filter.range(window.start).start..filter.range(window.end - 1).end,
        None => {
            let first = nearest(stretch, window.clone()).next().unwrap_or(0);
            first..nearest(stretch, window).last().unwrap_or(first) + 1
        }
    }
}

/// Order of a resize's passes. Values are rounded to bytes between the passes, so the order changes some bytes by 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassOrder {
    /// Order of Pillow since version 13: columns first if they shrink by more than twice what rows shrink by, else rows
    /// first.
    #[default]
    Pillow13,
    /// Rows always first: order of Pillow up to version 12, with which published accuracies were reached.
    HorizontalFirst,
}

choices! {
    PassOrder, "pass_order":
    Pillow13 = "pillow13", "Pillow's order since version 13.";
    HorizontalFirst = "horizontal_first", "Rows first, Pillow's order up to version 12.";
}

impl PassOrder {
    /// Whether the vertical pass comes first, for an image of size `input` whatever part of it is shown.
    pub(crate) fn vertical_first(self, input: Size, output: Size) -> bool {
        let lost = |input: u32, output: u32| i64::from(input) - i64::from(output);
        let (columns, rows) = (lost(input.width, output.width), lost(input.height, output.height));
        self == Self::Pillow13 && rows > 0 && rows > 2 * columns
    }
}

/// An antialiasing filter stretched over the scale of a resize.
struct Filter {
    scale: f64,
    support: f64,
    input: u32,
}

impl Filter {
    /// `None` for nearest.
    fn new(stretch: Stretch, interpolation: Interpolation) -> Option<Self> {
        let radius = match interpolation {
            Interpolation::Nearest => return None,
            Interpolation::Box => 0.5,
            Interpolation::Bilinear | Interpolation::Hamming => 1.0,
            Interpolation::Bicubic => 2.0,
            Interpolation::Lanczos => 3.0,
        };
        let scale = stretch.scale();
        Some(Self { scale, support: radius * scale.max(1.0), input: stretch.input })
    }

    fn center(&self, i: u32) -> f64 {
        (f64::from(i) + 0.5) * self.scale
    }

    fn range(&self, i: u32) -> Range<u32> {
        let center = self.center(i);
        // `as` drops the fraction and makes negative numbers 0.
        let start = (center - self.support + 0.5) as u32;
        let end = ((center + self.support + 0.5) as u32).min(self.input);
        start..end
    }
}

fn cover(x: f64) -> f64 {
    if x > -0.5 && x <= 0.5 { 1.0 } else { 0.0 }
}

fn hamming(x: f64) -> f64 {
    let x = x.abs();
    if x == 0.0 {
        return 1.0;
    }
    if x >= 1.0 {
        return 0.0;
    }
    let x = x * std::f64::consts::PI;
    libm::sin(x) / x * (0.54 + 0.46 * libm::cos(x))
}

fn triangle(x: f64) -> f64 {
    (1.0 - x.abs()).max(0.0)
}

fn cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    libm::sin(x) / x
}

fn lanczos(x: f64) -> f64 {
    if (-3.0..3.0).contains(&x) { sinc(x) * sinc(x / 3.0) } else { 0.0 }
}

/// Source pixels of a nearest resize. Like Pillow, it adds up the scale pixel by pixel, including the rounding.
fn nearest(stretch: Stretch, window: Range<u32>) -> impl Iterator<Item = u32> {
    let (scale, input) = (stretch.scale(), stretch.input);
    let mut at = scale * 0.5;
    (0..window.end)
        .map(move |_| {
            let source = (at as u32).min(input - 1);
            at += scale;
            source
        })
        .skip(window.start as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Interpolation::{Bicubic, Bilinear, Lanczos, Nearest};

    #[test]
    fn a_window_has_the_taps_of_the_whole() {
        let whole = [(1, 7), (500, 224), (224, 500), (3, 100), (100, 3), (65_535, 1)];
        let whole = whole.map(|(input, output)| Stretch::whole(input, output));
        let part = [(501, 500.5, 100), (40, 39.125, 40), (9, 8.25, 30)];
        let part = part.map(|(input, shown, output)| Stretch { input, shown, output });
        for stretch in whole.into_iter().chain(part) {
            for interpolation in [Nearest, Bilinear, Bicubic, Lanczos] {
                let (whole, output) = (Taps::of_stretch(stretch, interpolation), stretch.output);
                assert_eq!(whole.len(), output as usize);
                let mut window = Taps::<i32>::default();
                window.compute(stretch, output / 3..output, interpolation);
                for i in 0..window.len() {
                    assert_eq!(window.of(i), whole.of(output as usize / 3 + i), "{stretch:?}");
                }
                let reach = reach(stretch, output / 3..output, interpolation);
                let (last, weights) = whole.of(output as usize - 1);
                assert_eq!(reach, window.starts[0]..(last + weights.len()) as u32);
            }
        }
    }

    #[test]
    fn weights_add_up_to_one() {
        let taps = Taps::new(333, 97, Lanczos);
        for i in 0..taps.len() {
            let sum: i32 = taps.of(i).1.iter().sum();
            assert!((sum - (1 << WEIGHT_BITS)).abs() <= taps.most() as i32);
        }
    }
}
