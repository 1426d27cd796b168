//! Shifting the hue, in Pillow's 8-bit HSV.
//!
//! Every intermediate value has the type that it has in Pillow's C code, `float` or `double`, because a difference of
//! one in a rounded hue is visible. Tested on all 2^24 colors.

use super::check::within;
use super::descriptors::ColorSample;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::{CpuPass, Operation, Pass, Primitive, Reach};
use crate::error::Result;
use crate::raster::{Image, Pixel, Rect, Size};
use crate::simd::{truncate_f64, widest};
use serde::{Deserialize, Serialize};

/// Shifts the hue.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Hue {
    /// Part of a full turn, -0.5 to 0.5.
    pub factor: f64,
}

impl Hue {
    pub(super) const KERNELS: &'static [Kernel] = &[Kernel::pixels("hue_u8_nhwc")];

    /// A shift by this part of a full turn, -0.5 to 0.5.
    #[must_use]
    pub const fn new(factor: f64) -> Self {
        Self { factor }
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new(0.23), Self::new(-0.4)]
    }

    /// The shift in steps of an 8-bit hue, as torchvision computes it: np.int32(factor * 255).astype(np.uint8), added
    /// with wrap-around.
    fn shift(&self) -> u8 {
        (self.factor * 255.0) as i32 as u8
    }
}

impl Operation for Hue {
    fn validate(&self) -> Result<()> {
        within(Self::NAME, "factor", self.factor, -0.5..=0.5)
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Around(0))
    }

    keeps_places!();
}

impl Pass for Hue {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        turn_all(pass.image, self.shift());
        Ok(())
    }

    fn launch(&self, on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        const HUE: KernelId = KernelId::of("hue_u8_nhwc");
        let image = on.source();
        let sample = ColorSample { hue_shift: u32::from(self.shift()), ..ColorSample::of(&image) };
        on.call(HUE, &sample, Size::new(image.width, image.height));
        Ok(())
    }
}

/// Shifts the hue of each pixel.
fn turn_all(image: &mut Image, shift: u8) {
    let sectors = Sectors::new(shift);
    let pixels = image.pixels_mut();
    widest(
        #[inline(always)]
        || turn(pixels, &sectors),
    );
}

/// Place in the color circle of each 8-bit hue after the shift.
struct Sectors {
    /// Sixth of the circle, 0 to 5.
    sector: [i32; 256],
    /// Position in that sixth, 0 to 1.
    fraction: [f32; 256],
}

impl Sectors {
    fn new(shift: u8) -> Self {
        let turned = |hue: usize| f64::from((hue as u8).wrapping_add(shift)) * 6.0 / 255.0;
        Self {
            sector: std::array::from_fn(|hue| turned(hue) as i32 % 6),
            fraction: std::array::from_fn(|hue| (turned(hue) - f64::from(turned(hue) as i32)) as f32),
        }
    }
}

/// Number of pixels in a step: enough for a few vectors, so that each stage below is a loop without branches.
const STEP: usize = 32;

#[inline(always)]
fn turn(pixels: &mut [Pixel], sectors: &Sectors) {
    let (steps, rest) = pixels.as_chunks_mut::<STEP>();
    for step in steps {
        turn_step(step, sectors);
    }
    if !rest.is_empty() {
        let mut step = [[0; 4]; STEP];
        step[..rest.len()].copy_from_slice(rest);
        turn_step(&mut step, sectors);
        rest.copy_from_slice(&step[..rest.len()]);
    }
}

#[inline(always)]
fn turn_step(pixels: &mut [Pixel; STEP], sectors: &Sectors) {
    let (mut hue, mut saturation, mut value) = ([0i32; STEP], [0i32; STEP], [0i32; STEP]);
    for i in 0..STEP {
        (hue[i], saturation[i], value[i]) = to_hsv(pixels[i]);
    }
    let (mut sector, mut fraction) = ([0i32; STEP], [0f32; STEP]);
    for i in 0..STEP {
        let hue = hue[i] as u8 as usize;
        (sector[i], fraction[i]) = (sectors.sector[hue], sectors.fraction[hue]);
    }
    for i in 0..STEP {
        pixels[i] = to_rgb(sector[i], fraction[i], saturation[i], value[i]);
    }
}

/// Hue, saturation and value, 0 to 255 each.
#[inline(always)]
fn to_hsv([red, green, blue, _]: Pixel) -> (i32, i32, i32) {
    let (red, green, blue) = (i32::from(red), i32::from(green), i32::from(blue));
    let max = red.max(green).max(blue);
    let min = red.min(green).min(blue);
    // A gray pixel has hue and saturation 0 in any case, so any divisor other than 0 will do.
    let chroma = max - min;
    let divisor = chroma.max(1) as f32;
    let (sixth, plus, minus) = if red == max {
        (0.0, max - blue, max - green)
    } else if green == max {
        (2.0, max - red, max - blue)
    } else {
        (4.0, max - green, max - red)
    };
    let (plus, minus) = (plus as f32 / divisor, minus as f32 / divisor);
    let hue = (sixth + f64::from(plus) - f64::from(minus)) as f32;
    // fmod(hue / 6 + 1, 1): the sum is between 0 and 2.
    let turns = f64::from(hue) / 6.0 + 1.0;
    let turns = (if turns >= 1.0 { turns - 1.0 } else { turns }) as f32;
    let saturation = chroma as f32 / max.max(1) as f32;
    (truncate_f64(f64::from(turns) * 255.0), truncate_f64(f64::from(saturation) * 255.0), max)
}

/// The pixel at `fraction` of `sector` of the color circle.
#[inline(always)]
fn to_rgb(sector: i32, fraction: f32, saturation: i32, value: i32) -> Pixel {
    let saturation = (f64::from(saturation) / 255.0) as f32;
    // The nearest integer, halves up, by adding a half. These values are small and never the double just below a half,
    // so the sum is right.
    let scaled = |share: f64| truncate_f64(f64::from(value) * (1.0 - share) + 0.5);
    let low = scaled(f64::from(saturation));
    let falling = scaled(f64::from(saturation * fraction));
    let rising = scaled(f64::from(saturation) * (1.0 - f64::from(fraction)));
    // With saturation 0, all three equal the value.
    let pick = |full: [i32; 2], falling_in: i32, rising_in: i32| {
        let rest = if sector == rising_in { rising } else { low };
        let rest = if sector == falling_in { falling } else { rest };
        if sector == full[0] || sector == full[1] { value } else { rest }
    };
    [pick([5, 0], 1, 4) as u8, pick([1, 2], 3, 0) as u8, pick([3, 4], 5, 2) as u8, 255]
}
