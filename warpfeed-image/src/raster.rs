//! Images in host memory, their sizes and rectangles.

use crate::error::{Error, Result};
use crate::memory;
use std::fmt;

/// One pixel: red, green, blue, and a fourth byte without meaning. The fourth byte keeps pixels aligned, which makes
/// decoding and arithmetic faster.
pub type Pixel = [u8; 4];

/// The gray value of a pixel: ITU-R 601 luma as in Pillow's `convert("L")`, with 16 fractional bits, rounded to nearest.
#[must_use]
#[inline(always)]
pub fn luma([red, green, blue, _]: Pixel) -> u8 {
    ((u32::from(red) * 19595 + u32::from(green) * 38470 + u32::from(blue) * 7471 + 0x8000) >> 16) as u8
}

/// A width and a height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    /// Number of pixels in a row.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

impl Size {
    /// A size of `width` x `height` pixels.
    #[must_use]
    pub const fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// Number of pixels.
    #[must_use]
    #[inline]
    pub const fn area_px(self) -> u64 {
        self.width as u64 * self.height as u64
    }

    /// This size with width and height exchanged.
    #[must_use]
    pub const fn transposed(self) -> Self {
        Self { width: self.height, height: self.width }
    }

    /// Whether there is no pixel.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0
    }
}

impl From<u32> for Size {
    /// The size of a square with this side.
    fn from(side: u32) -> Self {
        Self::new(side, side)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.width, self.height)
    }
}

/// Default limit of an image's pixels in warpfeed's pipelines.
pub const DEFAULT_MAX_PIXELS: u64 = 128_000_000;

/// Refuses an image with more pixels than the limit.
///
/// # Errors
/// [`Error::Limits`].
///
/// ```
/// use warpfeed_image::{Size, check_pixels};
///
/// assert!(check_pixels(Size::new(1000, 1000), 1_000_000).is_ok());
/// assert!(check_pixels(Size::new(1000, 1001), 1_000_000).is_err());
/// ```
pub fn check_pixels(size: Size, max_px: u64) -> Result<()> {
    if size.area_px() <= max_px {
        return Ok(());
    }
    Err(Error::Limits {
        what: "an image in pixels",
        got: size.area_px(),
        limit: max_px,
        remedy: "raise max_pixels, or use smaller images or fewer growing rotations",
    })
}

/// A rectangle of whole pixels inside an image, with its origin at the top left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Number of columns.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

impl Rect {
    /// The rectangle that covers a whole image of this size.
    #[must_use]
    pub const fn full(size: Size) -> Self {
        Self { x: 0, y: 0, width: size.width, height: size.height }
    }

    /// The rectangle's width and height.
    #[must_use]
    #[inline]
    pub const fn size(self) -> Size {
        Size { width: self.width, height: self.height }
    }

    /// The column after the rectangle's last column.
    #[must_use]
    pub const fn right(self) -> u32 {
        self.x + self.width
    }

    /// The row after the rectangle's last row.
    #[must_use]
    pub const fn bottom(self) -> u32 {
        self.y + self.height
    }

    /// Whether the rectangle lies inside an image of this size.
    #[must_use]
    pub const fn fits(self, size: Size) -> bool {
        self.x as u64 + self.width as u64 <= size.width as u64
            && self.y as u64 + self.height as u64 <= size.height as u64
    }
}

/// An image, or a rectangular part of one, in host memory: rows of [`Pixel`]s without gaps.
///
/// A part knows where it lies in the whole image: [`part`](Self::part) is its rectangle, [`whole`](Self::whole) the
/// size of the whole. A complete image is its own part.
#[derive(Debug, Clone)]
pub struct Image {
    whole: Size,
    part: Rect,
    /// The stored pixels. The memory after them may hold pixels of a larger image that used it before.
    pixels: Vec<Pixel>,
}

impl Default for Image {
    fn default() -> Self {
        Self { whole: Size::new(0, 0), part: Rect::full(Size::new(0, 0)), pixels: Vec::new() }
    }
}

impl Image {
    /// A black image of this size.
    #[must_use]
    pub fn new(size: Size) -> Self {
        let mut image = Self::default();
        image.reset(size);
        image
    }

    /// An image from interleaved RGB bytes, row by row, three bytes a pixel.
    ///
    /// # Errors
    /// [`Error::Parameter`] if `rgb` is not `3 * width * height` bytes long or the size is empty.
    pub fn from_rgb(size: Size, rgb: &[u8]) -> Result<Self> {
        if size.is_empty() || rgb.len() as u64 != 3 * size.area_px() {
            return Err(Error::parameter(
                "Image::from_rgb",
                "rgb",
                format!("3 bytes for each of {size} pixels, at least one pixel"),
                format!("{} bytes", rgb.len()),
            ));
        }
        let pixels = rgb.chunks_exact(3).map(|p| [p[0], p[1], p[2], 255]).collect();
        Ok(Self { whole: size, part: Rect::full(size), pixels })
    }

    /// The stored pixels as interleaved RGB bytes, row by row, three bytes a pixel.
    #[must_use]
    pub fn to_rgb(&self) -> Vec<u8> {
        self.pixels().iter().flat_map(|p| [p[0], p[1], p[2]]).collect()
    }

    /// Width and height of the stored part.
    #[must_use]
    #[inline]
    pub const fn size(&self) -> Size {
        self.part.size()
    }

    /// Size of the whole image.
    #[must_use]
    #[inline]
    pub const fn whole(&self) -> Size {
        self.whole
    }

    /// The rectangle of the whole image that is stored.
    #[must_use]
    #[inline]
    pub const fn part(&self) -> Rect {
        self.part
    }

    /// The stored pixels, row by row.
    #[must_use]
    #[inline]
    pub fn pixels(&self) -> &[Pixel] {
        &self.pixels[..self.len_px()]
    }

    /// The stored pixels, row by row.
    #[inline]
    pub fn pixels_mut(&mut self) -> &mut [Pixel] {
        let len = self.len_px();
        &mut self.pixels[..len]
    }

    #[inline]
    const fn len_px(&self) -> usize {
        self.part.width as usize * self.part.height as usize
    }

    /// Row `y` of the stored part.
    ///
    /// # Panics
    /// If `y` is not below the stored height.
    #[must_use]
    #[inline]
    pub fn row(&self, y: u32) -> &[Pixel] {
        let width = self.part.width as usize;
        &self.pixels[y as usize * width..][..width]
    }

    /// Row `y` of the stored part.
    ///
    /// # Panics
    /// If `y` is not below the stored height.
    #[inline]
    pub fn row_mut(&mut self, y: u32) -> &mut [Pixel] {
        let width = self.part.width as usize;
        &mut self.pixels[y as usize * width..][..width]
    }

    /// Makes this a complete image of `size` and keeps its memory. The pixels have no defined values until they are
    /// written.
    pub fn reset(&mut self, size: Size) {
        self.reset_part(size, Rect::full(size));
    }

    /// Makes this the part `part` of an image of size `whole` and keeps its memory. The pixels have no defined values
    /// until they are written. The part lies inside the whole.
    #[doc(hidden)]
    pub fn reset_part(&mut self, whole: Size, part: Rect) {
        debug_assert!(part.fits(whole), "{part:?} outside {whole}");
        self.whole = whole;
        self.part = part;
        let len = self.len_px();
        if self.pixels.len() < len {
            self.pixels.resize(len, [0, 0, 0, 255]);
        }
    }

    /// Allocates the memory that a reset to `size` needs, which itself would end the process if there is none. The
    /// pixels' content is lost.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the memory is refused.
    pub fn reserve(&mut self, size: Size) -> Result<()> {
        let len = usize::try_from(size.area_px()).unwrap_or(usize::MAX);
        memory::reserve(&mut self.pixels, len, "an image", memory::FEWER_IMAGES)?;
        self.whole = Size::new(0, 0);
        self.part = Rect::full(self.whole);
        Ok(())
    }

    /// Frees the memory if it is more than `keep_px` pixels, so that one giant image does not hold memory forever.
    pub fn shrink(&mut self, keep_px: usize) {
        if self.pixels.capacity() > keep_px {
            self.pixels = Vec::new();
            self.whole = Size::new(0, 0);
            self.part = Rect::full(self.whole);
        }
    }
}
