//! Images of any element type and any number of channels in host memory.

use crate::error::Result;
use crate::memory;
use crate::raster::{Rect, Size};
use std::fmt;

/// The type of an image's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// Whole numbers of 8 bits.
    U8,
    /// Whole numbers of 16 bits.
    U16,
    /// Floating-point numbers of 32 bits.
    F32,
}

impl Element {
    /// The type's name: `u8`, `u16` or `f32`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::F32 => "f32",
        }
    }

    /// Number of bytes of a value.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::F32 => 4,
        }
    }

    /// The largest value of the type, and 1 for floating-point numbers.
    #[must_use]
    pub const fn max_value(self) -> f32 {
        match self {
            Self::U8 => 255.0,
            Self::U16 => 65_535.0,
            Self::F32 => 1.0,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Largest number of channels of an image.
pub const MAX_CHANNELS: u16 = 64;

/// The type of an image's values, and the number of its channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PixelKind {
    /// The type of the values.
    pub element: Element,
    /// Number of channels, alpha included: 1 to [`MAX_CHANNELS`].
    pub channels: u16,
}

impl PixelKind {
    /// Red, green and blue of 8 bits.
    pub const RGB8: Self = Self { element: Element::U8, channels: 3 };

    /// A number of bytes that pixels take.
    #[must_use]
    pub const fn len_bytes(self, pixels: u64) -> u64 {
        (self.element.size_bytes() as u64 * self.channels as u64).saturating_mul(pixels)
    }
}

impl fmt::Display for PixelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.channels == 1 { "" } else { "s" };
        write!(f, "{} channel{s} of {}", self.channels, self.element)
    }
}

/// The values of an image, by their type.
#[derive(Debug, Clone)]
enum Values {
    U8(Vec<u8>),
    U16(Vec<u16>),
    F32(Vec<f32>),
}

/// A type of values that [`Planes`] hold.
pub trait Value: bytemuck::Pod + PartialOrd + Send + Sync {
    /// The type.
    const ELEMENT: Element;

    #[doc(hidden)]
    fn of(planes: &Planes) -> &[Self];

    #[doc(hidden)]
    fn of_mut(planes: &mut Planes) -> &mut [Self];
}

macro_rules! values {
    ($($type:ty: $variant:ident,)*) => {
        $(impl Value for $type {
            const ELEMENT: Element = Element::$variant;

            fn of(planes: &Planes) -> &[Self] {
                match &planes.values {
                    Values::$variant(values) => &values[..planes.len()],
                    _ => panic!("the values are {}, not {}", planes.kind.element, Self::ELEMENT),
                }
            }

            fn of_mut(planes: &mut Planes) -> &mut [Self] {
                let len = planes.len();
                match &mut planes.values {
                    Values::$variant(values) => &mut values[..len],
                    _ => panic!("the values are {}, not {}", planes.kind.element, Self::ELEMENT),
                }
            }
        })*
    };
}

values! {
    u8: U8,
    u16: U16,
    f32: F32,
}

/// Calls code that is generic in the type of an image's values: `with_element!(element, T => work::<T>())`.
#[macro_export]
#[doc(hidden)]
macro_rules! with_element {
    ($element:expr, $T:ident => $call:expr) => {
        match $element {
            $crate::planes::Element::U8 => {
                type $T = u8;
                $call
            }
            $crate::planes::Element::U16 => {
                type $T = u16;
                $call
            }
            $crate::planes::Element::F32 => {
                type $T = f32;
                $call
            }
        }
    };
}

/// An image of any element type with any number of channels, or a rectangular part of one, in host memory: the rows of
/// the first channel without gaps, then those of the others.
///
/// A part knows where it lies in the whole image: [`part`](Self::part) is its rectangle, [`whole`](Self::whole) the
/// size of the whole. A complete image is its own part.
///
/// ```
/// use warpfeed_image::planes::{Element, PixelKind, Planes};
/// use warpfeed_image::{Rect, Size};
///
/// let (kind, size) = (PixelKind { element: Element::U16, channels: 2 }, Size::new(4, 3));
/// let mut planes = Planes::default();
/// planes.reset_part(kind, size, Rect::full(size))?;
/// planes.values_mut::<u16>().fill(7);
/// assert_eq!(planes.plane::<u16>(1), [7; 12]);
/// # Ok::<(), warpfeed_image::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Planes {
    kind: PixelKind,
    whole: Size,
    part: Rect,
    /// The stored values. The memory after them may hold values of a larger image that used it before.
    values: Values,
}

impl Default for Planes {
    fn default() -> Self {
        let whole = Size::new(0, 0);
        Self { kind: PixelKind::RGB8, whole, part: Rect::full(whole), values: Values::U8(Vec::new()) }
    }
}

impl Planes {
    /// The type of the values, and the number of channels.
    #[must_use]
    pub const fn kind(&self) -> PixelKind {
        self.kind
    }

    /// Width and height of the stored part.
    #[must_use]
    pub const fn size(&self) -> Size {
        self.part.size()
    }

    /// Size of the whole image.
    #[must_use]
    pub const fn whole(&self) -> Size {
        self.whole
    }

    /// The rectangle of the whole image that is stored.
    #[must_use]
    pub const fn part(&self) -> Rect {
        self.part
    }

    /// Number of values.
    const fn len(&self) -> usize {
        self.part.size().area_px() as usize * self.kind.channels as usize
    }

    /// Makes this the part `part` of an image of size `whole`, and keeps memory of the same type. The values are not
    /// defined until they are written. The part lies inside the whole.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the memory is refused.
    pub fn reset_part(&mut self, kind: PixelKind, whole: Size, part: Rect) -> Result<()> {
        fn grow<T: bytemuck::Zeroable + Clone>(values: &mut Vec<T>, len: usize) -> Result<()> {
            if values.len() < len {
                // Fresh zeros are not touched before they are overwritten.
                *values = Vec::new();
                *values = memory::zeros(len, "an image", memory::FEWER_IMAGES)?;
            }
            Ok(())
        }
        debug_assert!(part.fits(whole), "{part:?} outside {whole}");
        let len = usize::try_from(part.size().area_px()).unwrap_or(usize::MAX);
        let len = len.saturating_mul(usize::from(kind.channels));
        if kind.element != self.kind.element {
            *self = Self::default();
            self.values = match kind.element {
                Element::U8 => Values::U8(Vec::new()),
                Element::U16 => Values::U16(Vec::new()),
                Element::F32 => Values::F32(Vec::new()),
            };
        }
        // If there is no memory, nothing is stored.
        (self.kind, self.whole, self.part) = (kind, Size::new(0, 0), Rect::full(Size::new(0, 0)));
        match &mut self.values {
            Values::U8(values) => grow(values, len)?,
            Values::U16(values) => grow(values, len)?,
            Values::F32(values) => grow(values, len)?,
        }
        (self.whole, self.part) = (whole, part);
        Ok(())
    }

    /// Says that the stored values are the part `part` of an image of size `whole`, as a crop or a canvas does. The part
    /// has the size of the stored one.
    #[doc(hidden)]
    pub fn moved_to(&mut self, whole: Size, part: Rect) {
        debug_assert!(part.size() == self.part.size() && part.fits(whole), "{part:?} of {whole}");
        (self.whole, self.part) = (whole, part);
    }

    /// All values: the rows of the first channel, then those of the others.
    ///
    /// # Panics
    /// If they are not of the type `T`.
    #[must_use]
    pub fn values<T: Value>(&self) -> &[T] {
        T::of(self)
    }

    /// All values.
    ///
    /// # Panics
    /// If they are not of the type `T`.
    pub fn values_mut<T: Value>(&mut self) -> &mut [T] {
        T::of_mut(self)
    }

    /// The values of a channel, row by row.
    ///
    /// # Panics
    /// If they are not of the type `T`, or if there is no such channel.
    #[must_use]
    pub fn plane<T: Value>(&self, channel: usize) -> &[T] {
        let len = self.size().area_px() as usize;
        &self.values()[channel * len..][..len]
    }

    /// The values of a channel, row by row.
    ///
    /// # Panics
    /// If they are not of the type `T`, or if there is no such channel.
    pub fn plane_mut<T: Value>(&mut self, channel: usize) -> &mut [T] {
        let len = self.size().area_px() as usize;
        &mut self.values_mut()[channel * len..][..len]
    }

    /// The values as bytes, in the order of this machine.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        with_element!(self.kind.element, T => bytemuck::cast_slice(self.values::<T>()))
    }

    /// Frees the memory if it is more than `keep_bytes`, so that one giant image does not hold memory forever.
    pub fn shrink(&mut self, keep_bytes: usize) {
        let bytes = match &self.values {
            Values::U8(values) => values.capacity(),
            Values::U16(values) => 2 * values.capacity(),
            Values::F32(values) => 4 * values.capacity(),
        };
        if bytes > keep_bytes {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_kept_for_images_of_one_type() {
        let (size, mut planes) = (Size::new(5, 4), Planes::default());
        for (element, channels) in [(Element::U16, 3), (Element::F32, 13), (Element::U8, 1), (Element::U8, 2)] {
            let kind = PixelKind { element, channels };
            let part = Rect { x: 1, y: 2, width: 3, height: 2 };
            planes.reset_part(kind, size, part).unwrap();
            assert_eq!((planes.kind(), planes.whole(), planes.part()), (kind, size, part));
            assert_eq!(planes.as_bytes().len() as u64, kind.len_bytes(6));
        }
        let kind = PixelKind { element: Element::U8, channels: 1 };
        planes.values_mut::<u8>().fill(9);
        planes.reset_part(kind, size, Rect { x: 0, y: 0, width: 2, height: 1 }).unwrap();
        assert_eq!(planes.plane::<u8>(0), [9; 2]);
        planes.shrink(0);
        assert!(planes.as_bytes().is_empty());
    }

    #[test]
    fn memory_that_is_refused_is_an_error() {
        let (whole, mut planes) = (Size::new(u32::MAX, u32::MAX), Planes::default());
        let kind = PixelKind { element: Element::F32, channels: MAX_CHANNELS };
        assert!(planes.reset_part(kind, whole, Rect::full(whole)).is_err());
        assert!(planes.as_bytes().is_empty());
    }
}
