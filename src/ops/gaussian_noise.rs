//! Normal noise on every pixel.

use super::descriptors::NoiseSample;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::noise::{self, KEYS};
use super::recipe::RecipeBuilder;
use super::transform::RandomTransform;
use super::values::{PixelValues, ValueWork};
use super::{CpuPass, Operation, Pass, PassOrder, Primitive, Reach, check};
use crate::error::Result;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Largest absolute mean, and largest standard deviation. Up to this, sums fit 16 bits, as in torchvision.
const MOST: f64 = 10.0;

/// Adds normal noise to each channel of each pixel: torchvision's v2 `F.gaussian_noise` of 8-bit images, which drops
/// the noise's fraction. A deviate depends on the key, the pixel's place and the channel alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GaussianNoise {
    /// Mean of the noise, for values of 0 to 1; from -10 to 10.
    #[serde(default)]
    pub mean: f64,
    /// Standard deviation of the noise, for values of 0 to 1; from 0 to 10.
    #[serde(default = "usual_sigma")]
    pub sigma: f64,
    /// Whether sums are limited to 0 to 255. Otherwise they wrap around, as in torchvision.
    #[serde(default = "clips")]
    pub clip: bool,
    /// Key of the noise, below 2^53.
    #[serde(default)]
    pub key: u64,
}

const fn usual_sigma() -> f64 {
    0.1
}

const fn clips() -> bool {
    true
}

impl GaussianNoise {
    pub(super) const KERNELS: &'static [Kernel] = &[Kernel::pixels("gaussian_noise_u8_nhwc")];

    /// Noise with this standard deviation for values of 0 to 1, and mean 0; sums are limited to 0 to 255. `key` selects
    /// the noise and is below 2^53.
    #[must_use]
    pub const fn new(sigma: f64, key: u64) -> Self {
        Self { mean: 0.0, sigma, clip: true, key }
    }

    setters! {
        /// Mean of the noise, for values of 0 to 1.
        mean: f64,
        /// Whether sums are limited to 0 to 255. Otherwise they wrap around.
        clip: bool,
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(0.1, 0x0012_3456_789a_bcde), Self::new(0.7, 5).mean(-0.2).clip(false)]
    }

    /// Mean and standard deviation of values whose largest stands for 1.
    fn in_units(&self, max_value: f64) -> [f32; 2] {
        [self.mean, self.sigma].map(|value| (value * max_value) as f32)
    }
}

impl Operation for GaussianNoise {
    fn validate(&self) -> Result<()> {
        check::within(Self::NAME, "mean", self.mean, -MOST..=MOST)?;
        check::within(Self::NAME, "sigma", self.sigma, 0.0..=MOST)?;
        check::noise_key(Self::NAME, self.key)
    }

    fn values(&self, pixels: &PixelValues, _input: Size, _size: Size, _order: PassOrder) -> Option<ValueWork> {
        let [mean, sigma] = self.in_units(f64::from(pixels.max_value));
        Some(ValueWork::Noise { mean, sigma, clip: self.clip, key: self.key })
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Around(0))
    }

    keeps_places!();
}

impl Pass for GaussianNoise {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let Rect { x, y, width, height } = pass.image.part();
        let ([mean, sigma], clip) = (self.in_units(255.0), self.clip);
        for row in 0..height {
            let pixels = pass.image.row_mut(row);
            noise::normal_row(self.key, x, y + row, width, |i, deviates| {
                for (byte, deviate) in pixels[i].iter_mut().zip(deviates) {
                    let sum = i32::from(*byte) + (deviate * sigma + mean) as i32;
                    *byte = if clip { sum.clamp(0, 255) as u8 } else { sum as u8 };
                }
            });
        }
        Ok(())
    }

    fn launch(&self, on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        const NOISE: KernelId = KernelId::of("gaussian_noise_u8_nhwc");
        let normals = on.put(noise::normals())?;
        let image = on.source();
        let [mean, sigma] = self.in_units(255.0);
        let sample = NoiseSample {
            pixels: image.pixels,
            normals,
            key: self.key,
            pitch_bytes: image.pitch_bytes,
            width: image.width,
            height: image.height,
            first_x: image.x,
            first_y: image.y,
            mean,
            sigma,
            clip: u32::from(self.clip),
        };
        on.call(NOISE, &sample, Size::new(image.width, image.height));
        Ok(())
    }
}

/// Adds fresh normal noise: torchvision's v2 `GaussianNoise`.
///
/// ```
/// use warpfeed::ops::{RandomGaussianNoise, Transform};
///
/// Transform::from(RandomGaussianNoise::new(0.1)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomGaussianNoise {
    #[serde(default)]
    mean: f64,
    #[serde(default = "usual_sigma")]
    sigma: f64,
    #[serde(default = "clips")]
    clip: bool,
}

impl RandomGaussianNoise {
    /// Noise with this standard deviation for values of 0 to 1, and mean 0; sums are limited to 0 to 255.
    #[must_use]
    pub const fn new(sigma: f64) -> Self {
        Self { mean: 0.0, sigma, clip: true }
    }

    setters! {
        /// Mean of the noise, for values of 0 to 1.
        mean: f64,
        /// Whether sums are limited to 0 to 255. Otherwise they wrap around.
        clip: bool,
    }

    fn with(&self, key: u64) -> GaussianNoise {
        let Self { mean, sigma, clip } = *self;
        GaussianNoise { mean, sigma, clip, key }
    }
}

impl RandomTransform for RandomGaussianNoise {
    fn validate(&self) -> Result<()> {
        self.with(0).validate()
    }

    fn takes(&self, _pixels: &PixelValues) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, _) = recipe.start();
        let key = rng.below(KEYS);
        recipe.push(self.with(key))
    }
}
