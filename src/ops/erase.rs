//! Erasing: overwriting a rectangle with one color or with noise.

use super::check::{ABOVE_0, finite, inside, noise_key, not_negative, probability, range, sides, whole_range};
use super::descriptors::{BatchPlace, DevicePointer, EraseNoiseSample, EraseSample};
use super::fill::{opaque, packed};
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::noise::{self, KEYS};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::{PixelValues, ValueWork};
use super::{ChannelNumbers, CpuPass, Finish, Operation, Pass, PassOrder, Primitive, Reach, rectangle};
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use crate::rng::SampleRng;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Overwrites a rectangle. May follow [`Normalize`](crate::ops::Normalize), as in torchvision and timm.
///
/// With a standard deviation above 0 each element becomes `value + std * n`, rounded to the output's type. The normal
/// deviate `n` depends on the key, the pixel's place in the image and the channel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Erase {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Red, green, blue, or a number for each channel: in the image's units, 0 to 255 for RGB, before
    /// [`Normalize`](crate::ops::Normalize), in normalized units after it.
    #[serde(default = "zeros")]
    pub value: ChannelNumbers,
    /// Standard deviation of the noise around the value, in the value's units. 0 means no noise.
    #[serde(default, skip_serializing_if = "is_0")]
    pub std: f32,
    /// Key of the noise, below 2^53.
    #[serde(default, skip_serializing_if = "is_none")]
    pub key: u64,
}

const fn zeros() -> ChannelNumbers {
    ChannelNumbers::rgb([0.0; 3])
}

fn is_0(std: &f32) -> bool {
    *std == 0.0
}

fn is_none(key: &u64) -> bool {
    *key == 0
}

impl Erase {
    pub(super) const KERNELS: &'static [Kernel] =
        &[Kernel::pixels("erase_u8_nhwc"), Kernel::pixels("erase_noise_u8_nhwc")];

    /// An operation that overwrites the rectangle `rect` with 0.
    #[must_use]
    pub const fn new(rect: Rect) -> Self {
        let Rect { x, y, width, height } = rect;
        Self { x, y, width, height, value: zeros(), std: 0.0, key: 0 }
    }

    setters! {
        /// Red, green, blue, or a number for each channel: in the image's units before
        /// [`Normalize`](crate::ops::Normalize), in normalized units after it.
        value: into ChannelNumbers,
    }

    /// Normal noise around the value, with the standard deviation `std` in the value's units. `key` selects the noise
    /// and is below 2^53.
    #[must_use]
    pub const fn noise(mut self, std: f32, key: u64) -> Self {
        (self.std, self.key) = (std, key);
        self
    }

    pub(super) fn examples(size: Size) -> Vec<Self> {
        let (width, height) = (size.width.div_ceil(3), size.height.div_ceil(2));
        let plain = Self::new(Rect { x: size.width - width, y: 0, width, height }).value([99.5, 0.0, 255.0]);
        vec![plain, plain.noise(60.0, 0x0012_3456_789a_bcde)]
    }

    /// The rectangle that is overwritten.
    pub(super) fn rect(&self) -> Rect {
        Rect { x: self.x, y: self.y, width: self.width, height: self.height }
    }

    fn overwrite(&self) -> Overwrite {
        let &Self { value, std, key, .. } = self;
        Overwrite { rect: self.rect(), value: value.three(), values: value, std, key }
    }

    /// The rectangle's place in a stored part of an image; `None` if they have no pixel in common.
    fn within(&self, part: Rect) -> Option<Rect> {
        let area = self.rect();
        let (left, right) = (area.x.max(part.x), area.right().min(part.right()));
        let (top, bottom) = (area.y.max(part.y), area.bottom().min(part.bottom()));
        let place = || Rect { x: left - part.x, y: top - part.y, width: right - left, height: bottom - top };
        (left < right && top < bottom).then(place)
    }

    /// Red, green, blue, rounded to the nearest integer, halves away from 0, and limited to 0 to 255.
    fn color(&self) -> [u8; 3] {
        self.value.three().map(|v| v.round() as u8)
    }
}

/// What overwrites a rectangle, with values in the units of the elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Overwrite {
    pub(crate) rect: Rect,
    /// Red, green, blue.
    pub(crate) value: [f32; 3],
    /// The number of each channel.
    pub(crate) values: ChannelNumbers,
    /// Standard deviation of the noise around the value. 0 means no noise.
    pub(crate) std: f32,
    pub(crate) key: u64,
}

impl Overwrite {
    /// The values of a pixel with these deviates.
    #[inline(always)]
    pub(crate) fn noisy(&self, deviates: [f32; 3]) -> [f32; 3] {
        std::array::from_fn(|channel| self.value[channel] + self.std * deviates[channel])
    }

    /// The noise kernel's descriptor: the rectangle's place in the stored part, the place of that part's first pixel,
    /// and the address of the elements.
    pub(crate) fn noise_sample(
        &self,
        normals: DevicePointer,
        at: Rect,
        first: [u32; 2],
        output: BatchPlace,
    ) -> EraseNoiseSample {
        let Rect { x, y, width, height } = at;
        let (Self { value, std, key, .. }, [first_x, first_y]) = (*self, first);
        EraseNoiseSample { x, y, width, height, normals, key, std, first_x, output, value, first_y }
    }
}

impl Operation for Erase {
    fn validate(&self) -> Result<()> {
        sides(Self::NAME, self.width, self.height)?;
        finite(Self::NAME, "value", self.value)?;
        not_negative(Self::NAME, "std", self.std)?;
        noise_key(Self::NAME, self.key)
    }

    fn output_size(&self, input: Size) -> Result<Size> {
        inside(Self::NAME, self.rect(), input)?;
        Ok(input)
    }

    fn check_values(&self, pixels: &PixelValues) -> Result<()> {
        pixels.fit(Self::NAME, "value", self.value)
    }

    fn values(&self, _pixels: &PixelValues, _input: Size, _size: Size, _order: PassOrder) -> Option<ValueWork> {
        Some(ValueWork::Erase(self.overwrite()))
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Around(0))
    }

    keeps_places!();

    fn finish(&self) -> Option<Finish> {
        Some(Finish::Overwrite(self.overwrite()))
    }
}

impl Pass for Erase {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let Some(Rect { x, y, width, height }) = self.within(pass.image.part()) else { return Ok(()) };
        let (part, overwrite) = (pass.image.part(), self.overwrite());
        for y in y..y + height {
            let row = &mut pass.image.row_mut(y)[x as usize..][..width as usize];
            if self.std == 0.0 {
                row.fill(opaque(self.color()));
                continue;
            }
            noise::normal_row(self.key, part.x + x, part.y + y, width, |i, deviates| {
                row[i] = opaque(overwrite.noisy(deviates).map(|value| value.round_ties_even() as u8));
            });
        }
        Ok(())
    }

    fn launch(&self, on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        const ERASE: KernelId = KernelId::of("erase_u8_nhwc");
        const NOISE: KernelId = KernelId::of("erase_noise_u8_nhwc");
        let image = on.source();
        let stored = Rect { x: image.x, y: image.y, width: image.width, height: image.height };
        let Some(Rect { x, y, width, height }) = self.within(stored) else { return Ok(()) };
        let (pixels, pitch_bytes, value) = (image.pixels, image.pitch_bytes, packed(self.color()));
        if self.std != 0.0 {
            let output = BatchPlace { elements: pixels, row_stride: pitch_bytes, ..BatchPlace::default() };
            let place = Rect { x, y, width, height };
            let sample = self.overwrite().noise_sample(on.put(noise::normals())?, place, [stored.x, stored.y], output);
            on.call(NOISE, &sample, place.size());
            return Ok(());
        }
        on.call(ERASE, &EraseSample { pixels, pitch_bytes, x, y, width, height, value }, Size::new(width, height));
        Ok(())
    }
}

/// Granularity of the noise of [`RandomErasing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErasingNoise {
    /// One color for each rectangle: timm's `rand`.
    PerBox,
    /// A value for each pixel and channel: timm's `pixel`, torchvision's `random`.
    PerPixel,
}

/// Overwrites random rectangles with a probability: torchvision's and timm's `RandomErasing`. If ten attempts find no
/// rectangle smaller than the image, nothing is erased.
///
/// Both libraries erase after normalization, where noise has a standard deviation of 1. Several rectangles share the
/// area of one, as in timm. timm's splits leave the clean part of a batch alone; here a view without this transform
/// does that.
///
/// ```
/// use warpfeed::ops::{ErasingNoise, RandomErasing, Transform};
///
/// // timm's `reprob=0.25, remode="pixel", recount=1`, with up to three rectangles.
/// let erasing = RandomErasing::new(0.25).scale(0.02..=1.0 / 3.0).ratio(0.3..=1.0 / 0.3).count(1..=3);
/// Transform::from(erasing.noise(ErasingNoise::PerPixel)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomErasing {
    p: f64,
    #[serde(with = "super::written::range", default = "RandomErasing::usual_scale")]
    scale: RangeInclusive<f64>,
    #[serde(with = "super::written::range", default = "RandomErasing::usual_ratio")]
    ratio: RangeInclusive<f64>,
    #[serde(default = "zeros")]
    value: ChannelNumbers,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noise: Option<ErasingNoise>,
    #[serde(default = "one")]
    std: f32,
    #[serde(with = "super::written::range", default = "once")]
    count: RangeInclusive<u32>,
}

/// Largest number of rectangles in an image.
const MAX_COUNT: u32 = 100;

const fn one() -> f32 {
    1.0
}

const fn once() -> RangeInclusive<u32> {
    1..=1
}

impl RandomErasing {
    /// Erasing with probability `p`: 2 to 33 % of the area, at an aspect of 0.3 to 3.3, with 0.
    #[must_use]
    pub const fn new(p: f64) -> Self {
        let (scale, ratio) = (Self::usual_scale(), Self::usual_ratio());
        Self { p, scale, ratio, value: zeros(), noise: None, std: one(), count: once() }
    }

    const fn usual_scale() -> RangeInclusive<f64> {
        0.02..=0.33
    }

    const fn usual_ratio() -> RangeInclusive<f64> {
        0.3..=3.3
    }

    setters! {
        /// Part of the image's area, uniform in the range.
        scale: RangeInclusive<f64>,
        /// Height over width, log-uniform in the range.
        ratio: RangeInclusive<f64>,
        /// Red, green, blue, or a number for each channel: in the image's units before normalization, in normalized
        /// units after it.
        value: into ChannelNumbers,
    }
}

impl RandomErasing {
    setters! {
        /// Normal noise around the value.
        noise: ErasingNoise => Some,
        /// Standard deviation of the noise, in the value's units. Default: 1.
        std: f32,
        /// Number of rectangles, uniform in the range. They share the area.
        count: RangeInclusive<u32>,
    }

    /// The operation that overwrites `rect`.
    fn erase(&self, rect: Rect, rng: &mut SampleRng) -> Erase {
        let plain = Erase::new(rect).value(self.value);
        match self.noise {
            None => plain,
            Some(ErasingNoise::PerBox) => {
                plain.value(self.value.three().map(|value| value + self.std * rng.normal() as f32))
            }
            Some(ErasingNoise::PerPixel) => plain.noise(self.std, rng.below(KEYS)),
        }
    }
}

impl RandomTransform for RandomErasing {
    fn validate(&self) -> Result<()> {
        probability(Self::NAME, self.p)?;
        range(Self::NAME, "scale", &self.scale, ABOVE_0, 1.0)?;
        range(Self::NAME, "ratio", &self.ratio, ABOVE_0, f64::INFINITY)?;
        finite(Self::NAME, "value", self.value)?;
        not_negative(Self::NAME, "std", self.std)?;
        whole_range(Self::NAME, "count", &self.count, MAX_COUNT, "")
    }

    fn takes(&self, pixels: &PixelValues) -> Option<Result<()>> {
        if self.noise == Some(ErasingNoise::PerBox) && !matches!(pixels.kind.channels, 1 | 3) {
            let expected = "none or per_pixel for such images";
            return Some(Err(Error::parameter(Self::NAME, "noise", expected, "per_box")));
        }
        Some(pixels.fit(Self::NAME, "value", self.value))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, image) = recipe.start();
        if !rng.chance(self.p) {
            return Ok(());
        }
        // A fixed number takes no random number.
        let fixed = self.count.start() == self.count.end();
        let count = if fixed { *self.count.start() } else { rng.within(&self.count) };
        let part = f64::from(count);
        let scale = self.scale.start() / part..=self.scale.end() / part;
        let rects = (0..count).filter_map(|_| {
            let rect = rectangle::erasing(rng, image, &scale, &self.ratio)?;
            Some(self.erase(rect, rng))
        });
        let erased: Vec<_> = rects.collect();
        erased.into_iter().try_for_each(|erase| recipe.push(erase))
    }

    fn most_steps(&self) -> u64 {
        u64::from(*self.count.end())
    }
}
