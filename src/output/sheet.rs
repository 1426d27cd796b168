//! Contact sheets and PNG files.

use crate::encode::{ChromaSampling, JpegOptions, encode_jpeg, encode_png};
use crate::error::{Error, Result};
use crate::os::atomic;
use crate::raster::{Image, Size};
use std::io::Write as _;
use std::path::Path;

const BACKGROUND: [u8; 4] = [236, 236, 236, 255];

/// Largest number of pixels of a sheet. A larger sheet would be a mistake.
const MAX_SHEET_PX: u64 = 1 << 28;

/// Arranges images in one image, row by row in the given order, on a light background.
///
/// All cells have the largest width and the largest height among the images. Each image is in the middle of its cell,
/// and each cell is surrounded by `gap_px` pixels of background. The last row may be partly empty.
///
/// # Errors
/// [`Error::Parameter`] if there is no image or no column, or the sheet would have more than 2^28 pixels;
/// [`Error::OutOfMemory`] if there is no memory for it.
///
/// ```
/// use warpfeed::image::{Image, Size, contact_sheet};
///
/// let images = vec![Image::new(Size::new(30, 20)); 5];
/// assert_eq!(contact_sheet(&images, 3, 2)?.size(), Size::new(3 * 30 + 4 * 2, 2 * 20 + 3 * 2));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn contact_sheet(images: &[Image], columns: u32, gap_px: u32) -> Result<Image> {
    let wrong =
        |parameter, expected: &str, got: String| Err(Error::parameter("contact_sheet", parameter, expected, got));
    if images.is_empty() {
        return wrong("images", "at least one image", "none".into());
    }
    if columns == 0 {
        return wrong("columns", "at least 1", "0".into());
    }
    let columns = u64::from(columns).min(images.len() as u64);
    let rows = (images.len() as u64).div_ceil(columns);
    let gap = u64::from(gap_px);
    let cell_width = images.iter().map(|image| u64::from(image.size().width)).max().unwrap_or(0);
    let cell_height = images.iter().map(|image| u64::from(image.size().height)).max().unwrap_or(0);
    let side = |count: u64, cell: u64| count.checked_mul(cell + gap)?.checked_add(gap);
    let sheet = side(columns, cell_width).zip(side(rows, cell_height));
    let sheet = sheet.filter(|(width, height)| width.checked_mul(*height).is_some_and(|area| area <= MAX_SHEET_PX));
    let size = sheet.and_then(|(w, h)| Some(Size::new(u32::try_from(w).ok()?, u32::try_from(h).ok()?)));
    let Some(size) = size else {
        let got = format!("{} of up to {cell_width} x {cell_height} pixels", images.len());
        return wrong("images", "few and small enough for a sheet of at most 2^28 pixels", got);
    };
    let mut sheet = Image::default();
    sheet.reserve(size)?;
    sheet.reset(size);
    sheet.pixels_mut().fill(BACKGROUND);
    for (place, image) in (0_u64..).zip(images) {
        let Size { width, height } = image.size();
        let left = gap + place % columns * (cell_width + gap) + (cell_width - u64::from(width)) / 2;
        let top = gap + place / columns * (cell_height + gap) + (cell_height - u64::from(height)) / 2;
        for y in 0..height {
            sheet.row_mut(top as u32 + y)[left as usize..][..width as usize].copy_from_slice(image.row(y));
        }
    }
    Ok(sheet)
}

/// Writes an image as an RGB PNG file. The file appears only when it is complete.
///
/// # Errors
/// [`Error::Parameter`] if the image has no pixels, [`Error::Io`] if the file cannot be written.
///
/// ```
/// # use warpfeed::image::{Image, Size, write_png};
/// let path = tempfile::tempdir().unwrap().path().with_extension("png");
/// write_png(&Image::new(Size::new(2, 3)), &path)?;
/// assert!(std::fs::read(&path).unwrap().starts_with(b"\x89PNG"));
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn write_png(image: &Image, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let size = image.size();
    if size.is_empty() {
        let got = format!("{size} for {}", path.display());
        return Err(Error::parameter("write_png", "image", "an image with pixels", got));
    }
    let png = encode_png(image)?;
    atomic::write_output(path, |file| file.write_all(&png))
}

/// Writes an image in the format that the file's ending says: `.png`, `.jpg` or `.jpeg` (quality 95, 4:4:4).
///
/// # Errors
/// [`Error::Parameter`] for another ending, or if the image has no pixels; [`Error::Io`] if the file cannot be written.
pub fn write_image(image: &Image, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    match path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).as_deref() {
        Some("png") => write_png(image, path),
        Some("jpg" | "jpeg") => {
            let jpeg = encode_jpeg(
                image,
                &JpegOptions { quality: 95, sampling: ChromaSampling::S444, ..JpegOptions::default() },
            )?;
            atomic::write_output(path, |file| file.write_all(&jpeg))
        }
        _ => {
            let expected = "a file ending in .png, .jpg or .jpeg";
            Err(Error::parameter("write_image", "path", expected, path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoder, probe};
    use crate::raster::Rect;

    fn plain(width: u32, height: u32, color: [u8; 4]) -> Image {
        let mut image = Image::new(Size::new(width, height));
        image.pixels_mut().fill(color);
        image
    }

    #[test]
    fn every_image_lies_in_the_middle_of_its_cell() {
        let (red, green, blue) = ([255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 255]);
        let sheet = contact_sheet(&[plain(4, 2, red), plain(2, 4, green), plain(1, 1, blue)], 2, 1).unwrap();
        let image: Vec<String> = (0..sheet.size().height)
            .map(|y| {
                let letter = |&pixel: &[u8; 4]| match pixel {
                    BACKGROUND => '.',
                    pixel if pixel == red => 'r',
                    pixel if pixel == green => 'g',
                    _ => 'b',
                };
                sheet.row(y).iter().map(letter).collect()
            })
            .collect();
        assert_eq!(
            image,
            [
                "...........",
                ".......gg..",
                ".rrrr..gg..",
                ".rrrr..gg..",
                ".......gg..",
                "...........",
                "...........",
                "..b........",
                "...........",
                "...........",
                "...........",
            ]
        );
        // A sheet has no more columns than images.
        assert_eq!(contact_sheet(&[plain(4, 2, red)], u32::MAX, 0).unwrap().size(), Size::new(4, 2));
    }

    #[test]
    fn senseless_sheets_are_refused() {
        let one = [plain(4, 2, [0; 4])];
        assert!(contact_sheet(&[], 1, 1).unwrap_err().is_parameter());
        assert!(contact_sheet(&one, 0, 1).unwrap_err().is_parameter());
        assert!(contact_sheet(&one, 1, u32::MAX).unwrap_err().to_string().contains("2^28"));
        assert!(contact_sheet(&one, 1, 10_000).unwrap_err().to_string().contains("2^28"));
    }

    fn read_png(path: &Path) -> Image {
        let bytes = std::fs::read(path).unwrap();
        let (header, mut image) = (probe(&bytes).unwrap(), Image::default());
        assert_eq!((header.components, header.precision_bits), (3, 8));
        Decoder::new().unwrap().decode(&bytes, &header, Rect::full(header.size), false, &mut image).unwrap();
        image
    }

    #[test]
    fn png_keeps_every_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.png");
        let rgb: Vec<u8> = (0..7 * 5 * 3).map(|i| (i * 37 % 256) as u8).collect();
        let image = Image::from_rgb(Size::new(7, 5), &rgb).unwrap();
        write_png(&image, &path).unwrap();
        let read = read_png(&path);
        assert_eq!((read.size(), read.to_rgb()), (Size::new(7, 5), rgb));

        // If only a part of an image is stored, this part is written.
        let mut part = Image::default();
        part.reset_part(Size::new(100, 100), Rect { x: 10, y: 20, width: 3, height: 2 });
        write_png(&part, &path).unwrap();
        assert_eq!(read_png(&path).size(), Size::new(3, 2));
        assert!(write_png(&Image::default(), &path).unwrap_err().is_parameter());
        let missing = folder.path().join("missing/image.png");
        assert!(write_png(&image, &missing).unwrap_err().to_string().contains("missing/image.png"));
    }
}
