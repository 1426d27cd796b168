//! Places of an image's values in memory.

use crate::error::{Error, Result};
use crate::raster::Size;
use crate::tensor::Layout;
use warpfeed_image::planes::MAX_CHANNELS;

/// The places of an image's values in a slice, in elements. The last value is known to lie inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strides {
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) channel: usize,
}

/// The form of an image: size, channels, and places. `view` is the type in messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub(super) view: &'static str,
    pub(super) size: Size,
    pub(super) channels: u16,
    pub(super) layout: Layout,
    pub(super) strides: Strides,
    /// RGB without gaps whose pixels have fourth bytes, which the slice has too.
    pub(super) is_pixels: bool,
}

impl Form {
    /// An image without gaps in a slice of `len` elements.
    ///
    /// # Errors
    /// [`Error::Parameter`] if it is empty, has another number of channels than 1 to 64, or if the slice is too short.
    pub(super) fn new(view: &'static str, len: usize, size: Size, channels: usize, layout: Layout) -> Result<Self> {
        if size.is_empty() {
            return Err(Error::parameter(view, "size", "at least 1 x 1", size));
        }
        let most = usize::from(MAX_CHANNELS);
        if !(1..=most).contains(&channels) {
            return Err(Error::parameter(view, "channels", format!("1 to {most}"), channels));
        }
        let (width, height) = (size.width as usize, size.height as usize);
        let strides = match layout {
            Layout::Nhwc => Strides { row: width.saturating_mul(channels), column: channels, channel: 1 },
            Layout::Nchw => Strides { row: width, column: 1, channel: width.saturating_mul(height) },
        };
        Self { view, size, channels: channels as u16, layout, strides, is_pixels: false }.inside(len)
    }

    /// The form of `len` pixels of four bytes.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub(super) fn of_pixels(view: &'static str, len: usize, size: Size) -> Result<Self> {
        let form = Self::new(view, 3 * len, size, 3, Layout::Nhwc)?;
        let strides = Strides { row: 4 * size.width as usize, column: 4, channel: 1 };
        Ok(Self { strides, is_pixels: true, ..form })
    }

    /// The form with other strides, in the order of the layout's dimensions.
    ///
    /// # Errors
    /// [`Error::Parameter`] for negative strides, and for strides that lead out of a slice of `len` elements.
    pub(super) fn strided(self, len: usize, strides: [i64; 3]) -> Result<Self> {
        let whole = strides.map(usize::try_from);
        let [Ok(a), Ok(b), Ok(c)] = whole else {
            return Err(Error::parameter(self.view, "strides", "0 or more", format!("{strides:?}")));
        };
        let strides = match self.layout {
            Layout::Nhwc => Strides { row: a, column: b, channel: c },
            Layout::Nchw => Strides { channel: a, row: b, column: c },
        };
        Self { strides, is_pixels: false, ..self }.inside(len)
    }

    /// The numbers of rows, columns and channels, with the strides between them.
    fn dimensions(&self) -> [(usize, usize); 3] {
        let Self { size, channels, strides, .. } = *self;
        [
            (size.height as usize, strides.row),
            (size.width as usize, strides.column),
            (usize::from(channels), strides.channel),
        ]
    }

    fn inside(self, len: usize) -> Result<Self> {
        let last = self.dimensions().iter().try_fold(0_usize, |last, (count, stride)| {
            (count - 1).checked_mul(*stride).and_then(|far| last.checked_add(far))
        });
        if last.is_some_and(|last| last < len) {
            return Ok(self);
        }
        let Self { view, size, channels, strides, .. } = self;
        let Strides { row, column, channel } = strides;
        let expected = match last.and_then(|last| last.checked_add(1)) {
            Some(needed) => format!(
                "at least {needed} elements for {size} pixels of {channels} channels with strides of {row}, {column} and \
                 {channel} (row, column, channel)"
            ),
            None => "as long as its size and strides say, which no memory is".to_owned(),
        };
        Err(Error::parameter(view, "slice", expected, format!("{len} elements")))
    }

    /// Checks that no two values have the same place, as it must be where values are written.
    ///
    /// # Errors
    /// [`Error::Parameter`] for strides that do not say so.
    pub(super) fn apart(self) -> Result<Self> {
        let mut dimensions = self.dimensions();
        dimensions.sort_unstable_by_key(|(_, stride)| *stride);
        // The number of elements from the first value to the last, in the dimensions so far.
        let mut reached = 0;
        for (count, stride) in dimensions.into_iter().filter(|(count, _)| *count > 1) {
            if stride <= reached {
                let expected = "such that each value has a place of its own";
                let Strides { row, column, channel } = self.strides;
                let got = format!("{row}, {column} and {channel} (row, column, channel)");
                return Err(Error::parameter(self.view, "strides", expected, got));
            }
            reached += (count - 1) * stride;
        }
        Ok(self)
    }

    /// The number of elements from the first value to the last, both included, and a fourth byte after it.
    pub(super) fn len(&self) -> usize {
        let first = if self.is_pixels { 2 } else { 1 };
        first + self.dimensions().iter().map(|(count, stride)| (count - 1) * stride).sum::<usize>()
    }

    /// The place of a value.
    pub(super) fn place(&self, x: usize, y: usize, channel: usize) -> usize {
        let Strides { row, column, channel: plane } = self.strides;
        y * row + x * column + channel * plane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_stay_inside_their_slices() {
        let form = |len, layout| Form::new("View", len, Size::new(4, 3), 3, layout);
        assert!(form(36, Layout::Nhwc).is_ok() && form(35, Layout::Nhwc).unwrap_err().is_parameter());
        let crop = form(36, Layout::Nchw).unwrap();
        assert_eq!(crop.strided(104, [40, 10, 1]).unwrap().place(1, 2, 1), 61);
        assert!(crop.strided(103, [40, 10, 1]).is_err() && crop.strided(104, [40, 10, 1]).is_ok());
        assert!(crop.strided(104, [40, -10, 1]).unwrap_err().to_string().contains("strides must be 0 or more"));
        assert!(crop.strided(usize::MAX, [i64::MAX; 3]).is_err());
        for empty in [Size::new(0, 3), Size::new(4, 0)] {
            assert!(Form::new("View", 36, empty, 3, Layout::Nhwc).unwrap_err().to_string().contains("size"));
        }
        for channels in [0, 65] {
            assert!(Form::new("View", 9999, Size::new(1, 1), channels, Layout::Nhwc).is_err());
        }
        assert!(Form::new("View", usize::MAX, Size::new(u32::MAX, u32::MAX), 64, Layout::Nchw).is_err());
    }

    #[test]
    fn outputs_have_a_place_for_each_value() {
        let form = |strides| Form::new("ViewMut", 36, Size::new(4, 3), 3, Layout::Nhwc).unwrap().strided(999, strides);
        for apart in [[12, 3, 1], [40, 3, 1], [4, 1, 12], [1, 9, 3], [12, 1, 4]] {
            assert!(form(apart).unwrap().apart().is_ok(), "{apart:?}");
        }
        for shared in [[0, 3, 1], [11, 3, 1], [12, 2, 1], [3, 1, 12], [12, 3, 0]] {
            assert!(form(shared).unwrap().apart().unwrap_err().is_parameter(), "{shared:?}");
        }
        let one = Form::new("ViewMut", 1, Size::new(1, 1), 1, Layout::Nhwc).unwrap();
        assert!(one.strided(1, [0; 3]).unwrap().apart().is_ok(), "a single value");
    }
}
