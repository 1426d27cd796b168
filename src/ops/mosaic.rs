//! Several samples on one canvas.

use super::check::sides;
use super::fill::opaque;
use super::kernel::{CallRecorder, Kernel};
use super::part::{Part, needs_a_pipeline};
use super::recipe::RecipeBuilder;
use super::sanitize::Sanitize;
use super::transform::RandomTransform;
use super::{CpuPass, Crop, FieldContext, Op, Operation, Pass, Primitive, Reach, Resize, SizeEffect};
use crate::error::{Error, Result};
use crate::fields::motion::{Join, Motion, Shown};
use crate::raster::{Pixel, Rect, Size};
use serde::{Deserialize, Serialize};

/// Places the image, and others over it, on a canvas of one color. Boxes, keypoints and masks keep their places on the
/// images, and those of all samples are joined. It runs on the CPU. [`RandomMosaic`] draws it.
///
/// ```
/// use warpfeed::{image::Size, ops::{Mosaic, Op}};
///
/// let op: Op = Mosaic::new(Size::new(60, 50)).at([20, 10]).into();
/// assert_eq!(op.output_size(Size::new(40, 30))?, Size::new(60, 50));
/// assert!(op.output_size(Size::new(41, 30)).is_err(), "the image must lie on the canvas");
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Mosaic {
    /// Columns of the canvas.
    pub width: u32,
    /// Rows of the canvas.
    pub height: u32,
    /// First column and row of the image. It lies on the canvas with all of its pixels, and so do the others.
    #[serde(default)]
    pub at: [u32; 2],
    /// Color of the canvas: red, green, blue.
    #[serde(default = "gray")]
    pub fill: [u8; 3],
    /// The other samples, later ones over earlier ones.
    #[serde(default)]
    pub parts: Vec<Part>,
}

const fn gray() -> [u8; 3] {
    [114; 3]
}

impl Mosaic {
    pub(super) const KERNELS: &'static [Kernel] = &[];

    /// A gray canvas (114) of this size with the image in its upper left corner. A `u32` as size is a square.
    #[must_use]
    pub fn new(size: impl Into<Size>) -> Self {
        let Size { width, height } = size.into();
        Self { width, height, at: [0; 2], fill: gray(), parts: Vec::new() }
    }

    setters! {
        /// First column and row of the image.
        at: [u32; 2],
        /// Color of the canvas: red, green, blue.
        fill: [u8; 3],
    }

    pub(super) fn examples(size: Size) -> Vec<Self> {
        let canvas = Size::new(size.width + 7, size.height + 5);
        vec![Self::new(canvas).at([3, 5]).fill([9, 99, 199]), Self::new(size)]
    }

    fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }

    /// Checks that an image of this size at a place lies on the canvas.
    fn check(&self, [x, y]: [u32; 2], Size { width, height }: Size) -> Result<()> {
        if x.checked_add(width).is_some_and(|right| right <= self.width)
            && y.checked_add(height).is_some_and(|bottom| bottom <= self.height)
        {
            return Ok(());
        }
        let got = format!("{width} x {height} at ({x}, {y})");
        Err(Error::parameter(Self::NAME, "at", format!("images on the canvas of {}", self.size()), got))
    }
}

impl Operation for Mosaic {
    fn validate(&self) -> Result<()> {
        sides(Self::NAME, self.width, self.height)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Becomes(self.size())
    }

    fn output_size(&self, input: Size) -> Result<Size> {
        self.check(self.at, input)?;
        Ok(self.size())
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Whole)
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        let others = self.parts.iter().map(|part| Ok((part.fields(Self::NAME)?, part.at)));
        Ok(Motion::Join(Join { at: self.at, others: others.collect::<Result<_>>()?, shown: Shown::Covering }))
    }

    fn on_field(&self, _input: Size, _how: &FieldContext) -> Result<Option<Op>> {
        Err(needs_a_pipeline(Self::NAME))
    }

    fn joins(&self) -> bool {
        true
    }

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn parts_mut(&mut self) -> &mut [Part] {
        &mut self.parts
    }

    fn has_kernels(&self) -> bool {
        false
    }
}

impl Pass for Mosaic {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let canvas = self.size();
        for part in &self.parts {
            self.check(part.at, part.image(Self::NAME)?.size)?;
        }
        pass.replace(canvas, |image, out| {
            out.reset(canvas);
            out.pixels_mut().fill(opaque(self.fill));
            let [x, y] = self.at;
            for (to, from) in (0..image.size().height).map(|row| (y + row, image.row(row))) {
                out.row_mut(to)[x as usize..][..from.len()].copy_from_slice(from);
            }
            for (part, image) in self.parts.iter().filter_map(|part| Some((part, part.loaded.image.as_ref()?))) {
                let [x, y] = part.at;
                for (to, from) in (y..).zip(image.rows()) {
                    let pixel = |[red, green, blue]: [u8; 3]| -> Pixel { [red, green, blue, 255] };
                    out.row_mut(to)[x as usize..].iter_mut().zip(from).for_each(|(to, from)| *to = pixel(*from));
                }
            }
        })
    }

    fn launch(&self, _on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        // Back ends run plans with this operation on the CPU (`Operation::has_kernels`).
        Err(needs_a_pipeline(Self::NAME))
    }

    fn moves_pixels(&self) -> bool {
        true
    }
}

/// Places four or nine samples on a canvas with twice the sides of an image: Ultralytics' `Mosaic`. Each is resized so
/// that its longer side has the given length. Parts outside of the canvas are cropped, and objects that are fully
/// cropped are dropped.
///
/// With four samples, the image is at the upper left, and all touch a drawn point. With nine, it is in the middle. The
/// others are any samples of the source, after the transforms that come before this one in the pipeline, with draws of
/// their own. Only the part of each that the canvas shows is decoded. The label and the target stay those of the
/// sample.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::ops::{Op, RandomMosaic, YoloPerspective};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let pipeline = Pipeline::builder(EncodedImages::new((0..4).map(|label| (jpeg.clone(), label))))
///     .transform(RandomMosaic::new(64))
///     .transform(YoloPerspective::new(64))
///     .build()?;
/// let recipe = pipeline.recipe(0, 0)?;
/// assert!(recipe.iter().any(|op| matches!(op, Op::Mosaic(mosaic) if mosaic.parts.len() == 3)));
/// for batch in pipeline.epoch(0) {
///     assert_eq!(batch?.images().shape(), [4, 3, 64, 64]);
/// }
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomMosaic {
    side: u32,
    #[serde(default = "gray")]
    fill: [u8; 3],
    #[serde(default = "four", skip_serializing_if = "is_four")]
    tiles: u32,
}

const fn four() -> u32 {
    4
}

fn is_four(tiles: &u32) -> bool {
    *tiles == four()
}

/// Largest longer side of an image: the canvas has twice this side.
const MAX_TILE_PX: u32 = 16_384;

impl RandomMosaic {
    /// Four images whose longer sides have `side` pixels, on a gray canvas (114) of twice that.
    #[must_use]
    pub const fn new(side: u32) -> Self {
        Self { side, fill: gray(), tiles: four() }
    }

    setters! {
        /// Color of the canvas: red, green, blue.
        fill: [u8; 3],
        /// Number of samples: 4 or 9.
        tiles: u32,
    }

    /// The size of an image whose longer side has become the given length, with Ultralytics' rounding.
    fn fitted(&self, Size { width, height }: Size) -> Size {
        let factor = f64::from(self.side) / f64::from(width.max(height));
        let side = |side: u32| ((f64::from(side) * factor).ceil() as u32).clamp(1, self.side);
        Size::new(side(width), side(height))
    }

    /// The operations from an image of size `size` to the part of its tile that is on the canvas.
    fn tile(&self, size: Size, visible: Rect) -> Vec<Op> {
        let (fitted, mut ops) = (self.fitted(size), Vec::with_capacity(3));
        if fitted != size {
            ops.push(Resize::new(fitted).into());
        }
        if visible.size() != fitted {
            ops.push(Crop::new(visible.x as i32, visible.y as i32, visible.size()).into());
            ops.push(Sanitize::without_area().into());
        }
        ops
    }
}

/// The upper left corner of a tile. Of four tiles, all touch `point`; of nine, the first has it as its corner, and the
/// others follow clockwise from the one above. `first` and `last` are the sizes of the first tile and the one before.
fn corner(tiles: u32, number: u32, size: Size, point: [u32; 2], first: Size, last: Size) -> [i64; 2] {
    let sides = |Size { width, height }: Size| (i64::from(width), i64::from(height));
    let ([x, y], (width, height)) = (point.map(i64::from), sides(size));
    let ((first_width, first_height), (last_width, last_height)) = (sides(first), sides(last));
    let (right, bottom) = (x + first_width, y + first_height);
    match (tiles, number) {
        (4, 0) => [x - width, y - height],
        (4, 1) | (9, 1) => [x, y - height],
        (4, 2) => [x - width, y],
        (9, 2) => [x + last_width, y - height],
        (9, 3) => [right, y],
        (9, 4) => [right, y + last_height],
        (9, 5) => [right - width, bottom],
        (9, 6) => [right - last_width - width, bottom],
        (9, 7) => [x - width, bottom - height],
        (9, 8) => [x - width, bottom - last_height - height],
        _ => [x, y],
    }
}

/// The part of an image of size `size` that is on a square canvas of side `end`, and its place there; `None` if nothing
/// of it is.
fn placed(size: Size, corner: [i64; 2], end: u32) -> Option<(Rect, [u32; 2])> {
    let axis = |side: u32, corner: i64| {
        let (first, after) = (corner.max(0), (corner + i64::from(side)).min(i64::from(end)));
        (first < after).then(|| ((first - corner) as u32, (after - first) as u32, first as u32))
    };
    let ((x, width, left), (y, height, top)) = (axis(size.width, corner[0])?, axis(size.height, corner[1])?);
    Some((Rect { x, y, width, height }, [left, top]))
}

impl RandomTransform for RandomMosaic {
    fn validate(&self) -> Result<()> {
        super::check::pixels(Self::NAME, "side", self.side, 2..=MAX_TILE_PX)?;
        match self.tiles {
            4 | 9 => Ok(()),
            tiles => Err(Error::parameter(Self::NAME, "tiles", "4 or 9", tiles)),
        }
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Becomes(Size::new(2 * self.side, 2 * self.side))
    }

    fn images(&self, before: u64) -> u64 {
        before.saturating_mul(u64::from(self.tiles))
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let end = 2 * self.side;
        let samples = recipe.partners(Self::NAME)?.samples();
        let (rng, own) = recipe.start();
        let mut center = || rng.uniform(0.5 * f64::from(self.side), 1.5 * f64::from(self.side)) as u32;
        let point = if self.tiles == 4 { [center(), center()] } else { [self.side / 2; 2] };
        let others: Vec<_> = (1..self.tiles).map(|_| (rng.below(samples), rng.fork())).collect();

        let first = self.fitted(own);
        let place = |number, size, last| placed(size, corner(self.tiles, number, size, point, first, last), end);
        // The image reaches the point, which lies on the canvas, so something of it is seen.
        let (visible, at) = place(0, first, first).unwrap_or((Rect::full(first), [0; 2]));
        self.tile(own, visible).into_iter().try_for_each(|op| recipe.push(op))?;
        let (mut parts, mut last) = (Vec::with_capacity(others.len()), first);
        for (number, (sample, mut rng)) in (1..).zip(others) {
            let mut part = recipe.partner(Self::NAME, sample, &mut rng)?;
            let size = self.fitted(part.size());
            if let Some((visible, at)) = place(number, size, last) {
                self.tile(part.size(), visible).into_iter().try_for_each(|op| part.push(op))?;
                parts.push(part.at(at));
            }
            last = size;
        }
        recipe.push(Mosaic { width: end, height: end, at, fill: self.fill, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_touch_the_center_and_stay_on_the_canvas() {
        let rect = |x, y, width, height| Rect { x, y, width, height };
        let size = Size::new(90, 40);
        let place = |number, point| placed(size, corner(4, number, size, point, size, size), 200).unwrap();
        assert_eq!(place(0, [60, 110]), (rect(30, 0, 60, 40), [0, 70]));
        assert_eq!(place(1, [130, 30]), (rect(0, 10, 70, 30), [130, 0]));
        assert_eq!(place(2, [150, 180]), (rect(0, 0, 90, 20), [60, 180]));
        assert_eq!(place(3, [100, 100]), (rect(0, 0, 90, 40), [100, 100]));
    }

    #[test]
    fn eight_tiles_lie_around_the_ninth() {
        // Sides of 100: the middle begins at (50, 50) of a canvas of 200.
        let sizes = [[100, 60], [80, 100], [100, 50], [70, 100], [100, 90], [60, 100], [100, 80], [90, 100], [100, 40]];
        let sizes = sizes.map(|[width, height]| Size::new(width, height));
        let mut last = sizes[0];
        let places = (0..).zip(sizes).map(|(number, size)| {
            let corner = corner(9, number, size, [50; 2], sizes[0], last);
            last = size;
            (corner, placed(size, corner, 200).map(|(visible, at)| (visible.size(), at)))
        });
        let seen = |width, height, at| Some((Size::new(width, height), at));
        let expected = [
            ([50, 50], seen(100, 60, [50, 50])),
            ([50, -50], seen(80, 50, [50, 0])),
            ([130, 0], seen(70, 50, [130, 0])),
            ([150, 50], seen(50, 100, [150, 50])),
            ([150, 150], seen(50, 50, [150, 150])),
            ([90, 110], seen(60, 90, [90, 110])),
            ([-10, 110], seen(90, 80, [0, 110])),
            ([-40, 10], seen(50, 100, [0, 10])),
            ([-50, -30], seen(50, 10, [0, 0])),
        ];
        assert!(places.eq(expected));
        // A narrow image in the middle with a wide one below it leaves no room at the lower left.
        let (narrow, wide) = (Size::new(30, 100), Size::new(100, 30));
        assert_eq!(placed(wide, corner(9, 6, wide, [50; 2], narrow, wide), 200), None);
    }

    #[test]
    fn the_longer_side_is_exact_and_the_other_rounded_up() {
        let fitted = |width, height| RandomMosaic::new(64).fitted(Size::new(width, height));
        assert_eq!(fitted(128, 64), Size::new(64, 32));
        assert_eq!(fitted(100, 51), Size::new(64, 33));
        assert_eq!(fitted(3, 300), Size::new(1, 64));
    }
}
