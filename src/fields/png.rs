//! Masks as PNG files of gray values or palette indices.

use super::{Mask, MaskValues, empty_plane};
use crate::error::{Error, Result};
use crate::os::memory;
use crate::raster::{Size, check_pixels};
use png::{BitDepth, ColorType, Transformations};
use std::io::Cursor;

impl Mask {
    /// A mask of the image from a PNG file: gray of 1 to 16 bits, or the indices of a palette, never its colors.
    ///
    /// ```
    /// use warpfeed::{fields::Mask, image::Size};
    ///
    /// let mask = Mask::new(Size::new(2, 2), vec![0_u16, 1, 1000, 65_535])?;
    /// assert_eq!(Mask::from_png(&mask.to_png(0)?, 1_000_000)?, mask);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Decode`] for damaged bytes, and for a PNG in color, whose values are not classes; [`Error::Limits`] for
    /// more than `max_pixels` pixels.
    pub fn from_png(bytes: &[u8], max_pixels: u64) -> Result<Self> {
        let wrong = |message: String| Error::Decode { format: "PNG mask", message };
        let failed = |error: png::DecodingError| wrong(error.to_string());
        // Two bytes a pixel, once in the decoder and once for its result, and memory for ancillary chunks.
        let limit_bytes = max_pixels.saturating_mul(4).saturating_add(16 << 20);
        let limits = png::Limits { bytes: usize::try_from(limit_bytes).unwrap_or(usize::MAX) };
        let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
        decoder.set_transformations(Transformations::IDENTITY);
        let mut reader = decoder.read_info().map_err(failed)?;
        let (width, height) = reader.info().size();
        let size = Size::new(width, height);
        check_pixels(size, max_pixels)?;
        let (color, depth) = reader.output_color_type();
        if !matches!(color, ColorType::Grayscale | ColorType::Indexed) {
            let message = "the mask is in color: store classes as gray values or as indices of a palette";
            return Err(wrong(message.to_owned()));
        }
        let row_bytes = reader.output_line_size(width).unwrap_or(usize::MAX);
        let len_bytes = reader.output_buffer_size().unwrap_or(usize::MAX);
        let mut stored = memory::zeros::<u8>(len_bytes, "a mask", memory::FEWER_IMAGES)?;
        reader.next_frame(&mut stored).map_err(failed)?;
        let unpacked = |bits: usize| -> Result<Vec<u8>> {
            let mut values = empty_plane::<u8>(size)?;
            for (to, row) in values.chunks_exact_mut(width as usize).zip(stored.chunks_exact(row_bytes)) {
                let value = |x: usize| row[x * bits / 8] >> (8 - bits - x * bits % 8) & ((1 << bits) - 1);
                (0..).zip(to).for_each(|(x, to)| *to = value(x));
            }
            Ok(values)
        };
        let values = match depth {
            BitDepth::One => unpacked(1)?.into(),
            BitDepth::Two => unpacked(2)?.into(),
            BitDepth::Four => unpacked(4)?.into(),
            BitDepth::Eight => MaskValues::U8(stored),
            BitDepth::Sixteen => {
                let mut values = empty_plane::<u16>(size)?;
                let (pairs, _) = stored.as_chunks();
                values.iter_mut().zip(pairs).for_each(|(to, pair)| *to = u16::from_be_bytes(*pair));
                MaskValues::U16(values)
            }
        };
        Self::new(size, values)
    }

    /// Plane `i` as a gray PNG file of 8 or 16 bits.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no such plane.
    pub fn to_png(&self, i: usize) -> Result<Vec<u8>> {
        let planes = self.planes();
        let missing = || Error::parameter("Mask::to_png", "i", format!("below {}", planes.len()), i);
        let failed = |error: png::EncodingError| {
            Error::parameter("Mask::to_png", "mask", "one that PNG can hold", format!("{}: {error}", self.size()))
        };
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.size().width, self.size().height);
        encoder.set_color(ColorType::Grayscale);
        let stored = match &**planes.get(i).ok_or_else(missing)? {
            MaskValues::U8(values) => values.clone(),
            MaskValues::U16(values) => {
                encoder.set_depth(BitDepth::Sixteen);
                values.iter().flat_map(|value| value.to_be_bytes()).collect()
            }
        };
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(&stored).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(color: ColorType, depth: BitDepth, stored: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 5, 2);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == ColorType::Indexed {
            encoder.set_palette([200, 0, 0].repeat(4));
        }
        encoder.write_header().unwrap().write_image_data(stored).unwrap();
        bytes
    }

    #[test]
    fn indices_and_packed_gray_are_read_as_stored() {
        // 0 1 2 3 0, then 3 3 2 1 0, in 2 bits each; rows are padded to whole bytes.
        let stored = [0b00_01_10_11, 0b00_00_00_00, 0b11_11_10_01, 0b00_00_00_00];
        for color in [ColorType::Indexed, ColorType::Grayscale] {
            let mask = Mask::from_png(&encoded(color, BitDepth::Two, &stored), 10).unwrap();
            assert_eq!(*mask.planes()[0], MaskValues::U8(vec![0, 1, 2, 3, 0, 3, 3, 2, 1, 0]));
        }
        let one =
            Mask::from_png(&encoded(ColorType::Grayscale, BitDepth::One, &[0b1010_1000, 0b0000_1000]), 10).unwrap();
        assert_eq!(*one.planes()[0], MaskValues::U8(vec![1, 0, 1, 0, 1, 0, 0, 0, 0, 1]));
    }

    #[test]
    fn color_large_and_damaged_masks_are_refused() {
        let color = encoded(ColorType::Rgb, BitDepth::Eight, &[0; 30]);
        assert!(Mask::from_png(&color, 10).unwrap_err().to_string().contains("in color"));
        let gray = encoded(ColorType::Grayscale, BitDepth::Eight, &[0; 10]);
        assert!(matches!(Mask::from_png(&gray, 9), Err(Error::Limits { .. })));
        assert!(Mask::from_png(&gray[..gray.len() / 2], 10).unwrap_err().is_bad_sample());
    }
}
