//! Elastic deformation: neighboring pixels move alike.

use super::check::{noise_key, pixels};
use super::descriptors::ElasticSample;
use super::fill::packed;
use super::filter::Interpolation;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::noise::{self, KEYS};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::{CpuPass, FieldContext, Op, Operation, Pass, Primitive, Reach};
use crate::error::{Error, Result};
use crate::fields::motion::{Displacements, Motion};
use crate::os::memory;
use crate::raster::{Image, Pixel, Rect, Size};
use crate::simd::wide;
use serde::{Deserialize, Serialize};

/// Largest alpha, so that displacements fit whole numbers of 32 bits.
const MAX_ALPHA: f64 = 10_000.0;
/// Largest sigma; its blur has a kernel of 249 pixels.
const MAX_SIGMA: f64 = 31.0;
/// Number of pixels whose noise is made at once.
const BLOCK: usize = 16;

/// Moves each pixel by a displacement of its own, so that the image looks as if seen through moving water. This is
/// torchvision's v2 `F.elastic` with the displacements of its `ElasticTransform`, which converts PIL images to tensors.
///
/// A displacement in pixels is noise, uniform in -1 to 1, blurred by a Gaussian of `sigma` pixels, times half of
/// `alpha`. The noise depends on the key and the pixel's place alone. For equal noise, bytes are within 1 of
/// torchvision's, whose sums in single precision have no fixed order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Elastic {
    /// Two times the displacement in pixels that noise of 1 causes, along rows and columns, 0 to 10,000.
    #[serde(default = "usual_alpha")]
    pub alpha: [f64; 2],
    /// Standard deviation of the blur in pixels, 0 to 31.
    #[serde(default = "usual_sigma")]
    pub sigma: f64,
    /// The filter: [`Bilinear`](Interpolation::Bilinear) or [`Nearest`](Interpolation::Nearest).
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Color outside the image: red, green, blue.
    #[serde(default)]
    pub fill: [u8; 3],
    /// Key of the noise, below 2^53.
    #[serde(default)]
    pub key: u64,
}

const fn usual_alpha() -> [f64; 2] {
    [50.0; 2]
}

const fn usual_sigma() -> f64 {
    5.0
}

/// Two numbers of a pixel, one for each axis: first the noise, then the displacement in pixels.
type Pair = [f32; 2];

impl Elastic {
    pub(super) const KERNELS: &'static [Kernel] =
        &[Kernel::pixels("elastic_noise_f32"), Kernel::pixels("elastic_rows_f32"), Kernel::pixels("elastic_u8_nhwc")];

    /// torchvision's defaults: alpha 50, sigma 5, bilinear, black outside. `key` selects the noise and is below 2^53.
    #[must_use]
    pub const fn new(key: u64) -> Self {
        let (alpha, sigma) = (usual_alpha(), usual_sigma());
        Self { alpha, sigma, interpolation: Interpolation::Bilinear, fill: [0; 3], key }
    }

    setters! {
        /// Two times the displacement in pixels that noise of 1 causes, along rows and columns.
        alpha: [f64; 2],
        /// Standard deviation of the blur in pixels.
        sigma: f64,
        /// The filter: [`Bilinear`](Interpolation::Bilinear) or [`Nearest`](Interpolation::Nearest).
        interpolation: Interpolation,
        /// Color outside the image: red, green, blue.
        fill: [u8; 3],
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        let example = Self::new(0x0012_3456_789a_bcde).fill([9, 99, 199]);
        vec![
            example.alpha([60.0, 40.0]).sigma(3.0),
            example.alpha([9.0; 2]).sigma(0.0),
            example.sigma(1.2).interpolation(Interpolation::Nearest),
        ]
    }

    /// The blur's weights, starting with the outermost.
    fn weights(&self) -> Vec<f32> {
        if self.sigma == 0.0 {
            return vec![1.0];
        }
        let radius = (8.0 * self.sigma + 1.0) as i32 / 2;
        let density = |at: i32| libm::exp(-0.5 * (f64::from(at) / self.sigma) * (f64::from(at) / self.sigma));
        let sum: f64 = (-radius..=radius).map(density).sum();
        (-radius..=radius).map(|at| (density(at) / sum) as f32).collect()
    }

    /// Pixels that blurred noise of 1 moves by. torchvision counts in halves of the image's sides and divides by them.
    fn scale(&self) -> Pair {
        self.alpha.map(|alpha| (0.5 * alpha) as f32)
    }

    /// The displacement of each pixel.
    fn displacements(&self, size: Size) -> Result<Vec<Pair>> {
        let (width, count) = (size.width as usize, size.area_px() as usize);
        let zeros = || memory::zeros::<Pair>(count, "an image's displacements", memory::FEWER_IMAGES);
        let (mut made, mut between) = (zeros()?, zeros()?);
        let (weights, scale) = (self.weights(), self.scale());
        wide(
            #[inline(always)]
            || {
                uniform(self.key, width, &mut between);
                blur_rows(&between, width, &weights, &mut made);
                blur_columns(&made, width, &weights, &mut between);
            },
        );
        between.iter_mut().for_each(|pair| *pair = [pair[0] * scale[0], pair[1] * scale[1]]);
        Ok(between)
    }
}

/// Makes noise of -1 to 1.
#[inline(always)]
fn uniform(key: u64, width: usize, to: &mut [Pair]) {
    for (y, row) in (0..).zip(to.chunks_exact_mut(width)) {
        for (x, block) in (0..).step_by(BLOCK).zip(row.chunks_mut(BLOCK)) {
            let [along, down, ..] = noise::words::<BLOCK>(key, x, y);
            let share = |word: u32| (word >> 8) as f32 * (1.0 / (1 << 23) as f32) - 1.0;
            block.iter_mut().zip(along.into_iter().zip(down)).for_each(|(pair, (a, b))| *pair = [share(a), share(b)]);
        }
    }
}

/// Position `at` of a line of `len` pixels. A position outside is reflected at the line's ends, several times if
/// necessary.
fn reflected(at: isize, len: usize) -> usize {
    let last = len as isize - 1;
    if last == 0 {
        return 0;
    }
    let at = at.rem_euclid(2 * last);
    at.min(2 * last - at) as usize
}

#[inline(always)]
fn blur_rows(from: &[Pair], width: usize, weights: &[f32], to: &mut [Pair]) {
    let radius = weights.len() / 2;
    let mut line = vec![[0.0; 2]; width + 2 * radius];
    for (row, to) in from.chunks_exact(width).zip(to.chunks_exact_mut(width)) {
        for (at, pair) in (-(radius as isize)..).zip(&mut line) {
            *pair = row[reflected(at, width)];
        }
        to.fill([0.0; 2]);
        for (first, weight) in weights.iter().enumerate() {
            add(to, *weight, &line[first..first + width]);
        }
    }
}

#[inline(always)]
fn blur_columns(from: &[Pair], width: usize, weights: &[f32], to: &mut [Pair]) {
    let (radius, height) = ((weights.len() / 2) as isize, from.len() / width);
    for (y, to) in (0..).zip(to.chunks_exact_mut(width)) {
        to.fill([0.0; 2]);
        for (offset, weight) in (-radius..).zip(weights) {
            add(to, *weight, &from[reflected(y + offset, height) * width..][..width]);
        }
    }
}

#[inline(always)]
fn add(sums: &mut [Pair], weight: f32, values: &[Pair]) {
    for (sum, value) in sums.as_flattened_mut().iter_mut().zip(values.as_flattened()) {
        *sum += weight * value;
    }
}

impl Operation for Elastic {
    fn validate(&self) -> Result<()> {
        if !self.alpha.iter().all(|alpha| (0.0..=MAX_ALPHA).contains(alpha)) {
            let got = format!("{:?}", self.alpha);
            return Err(Error::parameter(Self::NAME, "alpha", format!("two numbers, 0 to {MAX_ALPHA}"), got));
        }
        pixels(Self::NAME, "sigma", self.sigma, 0.0..=MAX_SIGMA)?;
        noise_key(Self::NAME, self.key)?;
        match self.interpolation {
            Interpolation::Nearest | Interpolation::Bilinear => Ok(()),
            other => {
                let got = format!("{other:?}").to_lowercase();
                Err(Error::parameter(Self::NAME, "interpolation", "nearest or bilinear", got))
            }
        }
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Whole)
    }

    fn motion(&self, input: Size) -> Result<Motion> {
        Ok(Motion::Displaced(Displacements { width: input.width, pairs: self.displacements(input)? }))
    }

    fn on_field(&self, _input: Size, how: &FieldContext) -> Result<Option<Op>> {
        how.same_size(Self::NAME)?;
        let filter = how.filter(self.interpolation, Interpolation::Bilinear);
        Ok(Some(self.interpolation(filter).fill(how.fill).into()))
    }
}

impl Pass for Elastic {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let size = pass.image.size();
        let displacements = self.displacements(size)?;
        let bilinear = self.interpolation == Interpolation::Bilinear;
        let fill = self.fill.map(f32::from);
        pass.replace(size, |image, out| {
            out.reset(size);
            for (y, moved) in (0..).zip(displacements.chunks_exact(size.width as usize)) {
                for ((x, to), pair) in (0..).zip(out.row_mut(y)).zip(moved) {
                    let at = [x, y as i32];
                    *to = if bilinear { mixed(image, at, *pair, fill) } else { nearest(image, at, *pair, self.fill) };
                }
            }
        })
    }

    fn launch(&self, on: &mut dyn CallRecorder, part: Rect) -> Result<()> {
        const NOISE: KernelId = KernelId::of("elastic_noise_f32");
        const ROWS: KernelId = KernelId::of("elastic_rows_f32");
        const ELASTIC: KernelId = KernelId::of("elastic_u8_nhwc");
        let (source, size) = (on.source(), on.whole());
        let weights = self.weights();
        let field_bytes = size_of::<Pair>() * size.area_px() as usize;
        let [scale_x, scale_y] = self.scale();
        let sample = ElasticSample {
            source,
            noise: on.scratch(field_bytes)?,
            between: on.scratch(field_bytes)?,
            weights: on.put(bytemuck::cast_slice(&weights))?,
            key: self.key,
            radius: weights.len() as u32 / 2,
            scale_x,
            scale_y,
            fill: packed(self.fill),
            bilinear: u32::from(self.interpolation == Interpolation::Bilinear),
            target: on.target(size, part)?,
            reserved: 0,
        };
        on.call(NOISE, &sample, size);
        on.call(ROWS, &sample, size);
        on.call(ELASTIC, &sample, part.size());
        Ok(())
    }

    fn moves_pixels(&self) -> bool {
        true
    }
}

/// The pixel at a place; `None` outside the image.
#[inline(always)]
fn pixel(image: &Image, [x, y]: [i32; 2]) -> Option<Pixel> {
    let size = image.size();
    let inside = (x as u32) < size.width && (y as u32) < size.height;
    inside.then(|| image.row(y as u32)[x as usize])
}

fn nearest(image: &Image, at: [i32; 2], moved: Pair, [red, green, blue]: [u8; 3]) -> Pixel {
    pixel(image, nearest_to(at, moved)).unwrap_or([red, green, blue, 255])
}

/// The four pixels around the place `at` moved, and their shares in the pixel there.
#[inline(always)]
pub(crate) fn around(at: [i32; 2], moved: Pair) -> [([i32; 2], f32); 4] {
    let whole = moved.map(f32::floor);
    let [right, lower] = [moved[0] - whole[0], moved[1] - whole[1]];
    let [x, y] = [at[0].saturating_add(whole[0] as i32), at[1].saturating_add(whole[1] as i32)];
    let (left, upper, next_x, next_y) = (1.0 - right, 1.0 - lower, x.saturating_add(1), y.saturating_add(1));
    [
        ([x, y], left * upper),
        ([next_x, y], right * upper),
        ([x, next_y], left * lower),
        ([next_x, next_y], right * lower),
    ]
}

/// The pixel nearest to the place `at` moved.
#[inline(always)]
pub(crate) fn nearest_to(at: [i32; 2], moved: Pair) -> [i32; 2] {
    [0, 1].map(|axis| at[axis].saturating_add(moved[axis].round_ties_even() as i32))
}

/// The weighted sum of the four pixels around a point. As in torchvision, pixels outside count as black, and then the
/// fill is mixed in by the weight of the pixels inside: `(sum - fill) * inside + fill`.
fn mixed(image: &Image, at: [i32; 2], moved: Pair, fill: [f32; 3]) -> Pixel {
    let (mut sums, mut inside) = ([0.0_f32; 3], 0.0_f32);
    for (place, share) in around(at, moved) {
        if let Some(pixel) = pixel(image, place) {
            sums.iter_mut().zip(pixel).for_each(|(sum, byte)| *sum += share * f32::from(byte));
            inside += share;
        }
    }
    let byte = |channel: usize| ((sums[channel] - fill[channel]) * inside + fill[channel]).round_ties_even() as u8;
    [byte(0), byte(1), byte(2), 255]
}

/// Moves pixels by fresh noise: torchvision's v2 `ElasticTransform`, with the same sigma for both axes.
///
/// ```
/// use warpfeed::ops::{RandomElastic, Transform};
///
/// Transform::from(RandomElastic::new().alpha([250.0; 2]).sigma(7.0)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomElastic {
    #[serde(default = "usual_alpha")]
    alpha: [f64; 2],
    #[serde(default = "usual_sigma")]
    sigma: f64,
    #[serde(default)]
    interpolation: Interpolation,
    #[serde(default)]
    fill: [u8; 3],
}

impl Default for RandomElastic {
    fn default() -> Self {
        Self::new()
    }
}

impl RandomElastic {
    /// torchvision's defaults: alpha 50, sigma 5, bilinear, black outside.
    #[must_use]
    pub const fn new() -> Self {
        let (alpha, sigma) = (usual_alpha(), usual_sigma());
        Self { alpha, sigma, interpolation: Interpolation::Bilinear, fill: [0; 3] }
    }

    setters! {
        /// Two times the displacement in pixels that noise of 1 causes, along rows and columns.
        alpha: [f64; 2],
        /// Standard deviation of the blur in pixels.
        sigma: f64,
        /// The filter: [`Bilinear`](Interpolation::Bilinear) or [`Nearest`](Interpolation::Nearest).
        interpolation: Interpolation,
        /// Color outside the image: red, green, blue.
        fill: [u8; 3],
    }

    fn with(&self, key: u64) -> Elastic {
        let Self { alpha, sigma, interpolation, fill } = *self;
        Elastic { alpha, sigma, interpolation, fill, key }
    }
}

impl RandomTransform for RandomElastic {
    fn validate(&self) -> Result<()> {
        self.with(0).validate()
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, _) = recipe.start();
        let key = rng.below(KEYS);
        recipe.push(self.with(key))
    }
}
