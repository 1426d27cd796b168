//! Adding rows and columns on each side.

use super::check::{MAX_SIDE_PX, pixels};
use super::descriptors::CropSample;
use super::fill::Fill;
use super::kernel::{CallRecorder, Kernel, KernelId};
use super::values::{PixelValues, ValueWork};
use super::{
    ChannelNumbers, CpuPass, Crop, FieldContext, Op, Operation, Pass, PassOrder, Primitive, Reach, SizeEffect,
};
use crate::error::Result;
use crate::fields::motion::Motion;
use crate::raster::{Rect, Size};
use serde::{Deserialize, Serialize};

/// Adds rows and columns on each side: torchvision's `F.pad` of a PIL image.
///
/// ```
/// use warpfeed::{image::Size, ops::{Op, Pad, PadMode}};
///
/// let op: Op = Pad::new(4).mode(PadMode::Reflect).into();
/// assert_eq!(op.output_size(Size::new(32, 30))?, Size::new(40, 38));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Pad {
    /// Columns before the first.
    pub left: u32,
    /// Rows before the first.
    pub top: u32,
    /// Columns after the last.
    pub right: u32,
    /// Rows after the last.
    pub bottom: u32,
    /// Content of the new rows and columns.
    #[serde(default)]
    pub mode: PadMode,
    /// Color for [`PadMode::Constant`]: red, green, blue, or a number for each channel.
    #[serde(default)]
    pub fill: Fill,
}

/// Content of rows and columns beyond an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PadMode {
    /// One color.
    #[default]
    Constant,
    /// The nearest pixel of the edge.
    Edge,
    /// The image, mirrored at the middle of its outermost pixels, which are not repeated.
    Reflect,
    /// The image, mirrored at its edge.
    Symmetric,
}

impl Pad {
    pub(super) const KERNELS: &'static [Kernel] = &[Kernel::pixels("crop_u8_nhwc")];

    /// Padding with `pixels` black pixels on every side.
    #[must_use]
    pub const fn new(pixels: u32) -> Self {
        Self::sides([pixels; 4])
    }

    /// Padding with black pixels on the left, at the top, on the right and at the bottom.
    #[must_use]
    pub const fn sides([left, top, right, bottom]: [u32; 4]) -> Self {
        Self { left, top, right, bottom, mode: PadMode::Constant, fill: Fill::BLACK }
    }

    setters! {
        /// Content of the new pixels.
        mode: PadMode,
        /// Color of the new pixels.
        fill: into Fill,
    }

    pub(super) fn examples(size: Size) -> Vec<Self> {
        let uneven = Self::sides([3, 0, 2 * size.width + 1, 5]);
        vec![
            uneven.fill([9, 99, 199]),
            Self::new(7).mode(PadMode::Edge),
            uneven.mode(PadMode::Reflect),
            uneven.mode(PadMode::Symmetric),
        ]
    }

    /// The padding as a crop that reaches beyond the image; `None` if it mirrors.
    fn crop(&self, size: Size) -> Option<Crop> {
        let fill = match self.mode {
            PadMode::Constant => self.fill,
            PadMode::Edge => Fill::EDGE,
            PadMode::Reflect | PadMode::Symmetric => return None,
        };
        Some(Crop::new(-(self.left as i32), -(self.top as i32), size).fill(fill))
    }

    fn padded(&self, Size { width, height }: Size) -> Size {
        Size::new(self.left + width + self.right, self.top + height + self.bottom)
    }
}

/// For each pixel of a line that is padded by mirroring, the index of the pixel that it shows, of `len`.
pub(crate) fn mirrored(mode: PadMode, before: u32, len: u32, after: u32) -> Vec<usize> {
    let len = i64::from(len);
    let source = |at: i64| match mode {
        PadMode::Symmetric => {
            let at = at.rem_euclid(2 * len);
            at.min(2 * len - 1 - at)
        }
        // A single pixel is its own mirror image.
        _ if len == 1 => 0,
        _ => {
            let at = at.rem_euclid(2 * len - 2);
            at.min(2 * len - 2 - at)
        }
    };
    (-i64::from(before)..len + i64::from(after)).map(|at| source(at) as usize).collect()
}

impl Operation for Pad {
    fn validate(&self) -> Result<()> {
        for (parameter, value) in
            [("left", self.left), ("top", self.top), ("right", self.right), ("bottom", self.bottom)]
        {
            pixels(Self::NAME, parameter, value, 0..=MAX_SIDE_PX)?;
        }
        self.fill.no_edge(Self::NAME)
    }

    fn output_size(&self, input: Size) -> Result<Size> {
        Ok(self.padded(input))
    }

    fn size_effect(&self) -> SizeEffect {
        if [self.left, self.top, self.right, self.bottom] == [0; 4] { SizeEffect::Keeps } else { SizeEffect::Varies }
    }

    fn numbers(&self) -> Option<(&'static str, ChannelNumbers)> {
        self.fill.values().map(|values| ("fill", values))
    }

    fn values(&self, pixels: &PixelValues, input: Size, size: Size, order: PassOrder) -> Option<ValueWork> {
        match self.mode {
            PadMode::Constant | PadMode::Edge => ValueWork::of(self.primitive(input), pixels, size, order),
            mode => Some(ValueWork::Mirror { left: self.left, top: self.top, mode }),
        }
    }

    fn primitive(&self, input: Size) -> Primitive<'_> {
        match self.crop(self.padded(input)) {
            Some(Crop { x, y, fill, .. }) => Primitive::Crop { x, y, fill },
            None => Primitive::Pass(self, Reach::Whole),
        }
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        Ok(Motion::Shift([self.left as i32, self.top as i32]))
    }

    fn on_field(&self, _input: Size, how: &FieldContext) -> Result<Option<Op>> {
        let [left, top, right, bottom] = [self.left, self.top, self.right, self.bottom];
        let (before, after) = (Size::new(left, top), Size::new(right, bottom));
        let (before, after) = (how.scaled_size(Self::NAME, before)?, how.scaled_size(Self::NAME, after)?);
        let (left, top, right, bottom) = (before.width, before.height, after.width, after.height);
        Ok(Some(Self { left, top, right, bottom, ..*self }.fill(how.fill).into()))
    }
}

impl Pass for Pad {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let input = pass.image.size();
        let size = self.padded(input);
        let columns = mirrored(self.mode, self.left, input.width, self.right);
        let rows = mirrored(self.mode, self.top, input.height, self.bottom);
        pass.replace(size, |image, out| {
            out.reset(size);
            for (y, source) in (0..).zip(rows) {
                let from = image.row(source as u32);
                out.row_mut(y).iter_mut().zip(&columns).for_each(|(to, x)| *to = from[*x]);
            }
        })
    }

    fn launch(&self, on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        const CROP: KernelId = KernelId::of("crop_u8_nhwc");
        let size = self.padded(on.whole());
        let outside = if self.mode == PadMode::Reflect { CropSample::REFLECT } else { CropSample::SYMMETRIC };
        let (x, y) = (-(self.left as i32), -(self.top as i32));
        let source = on.source();
        let target = on.target(size, Rect::full(size))?;
        on.call(CROP, &CropSample { source, target, x, y, fill: 0, outside }, size);
        Ok(())
    }

    fn moves_pixels(&self) -> bool {
        true
    }
}
