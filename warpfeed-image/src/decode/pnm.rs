//! PNM images, gray (P5, .pgm) or color (P6, .ppm).

use crate::error::{Error, Result};
use crate::raster::Size;

/// Width and height, number of channels (1 or 3), and offset of the pixels. `None` if the bytes end inside the header.
pub(super) fn header(bytes: &[u8]) -> Option<Result<(Size, u8, usize)>> {
    let bad = |message: &str| Some(Err(Error::decode("PNM", message)));
    let components = if bytes.get(1)? == &b'5' { 1 } else { 3 };
    let mut at = 2;
    let mut numbers = [0_u32; 3];
    for number in &mut numbers {
        // Skips blanks, and comments to the end of their line.
        while let byte @ (b'#' | b' ' | b'\t'..=b'\r') = *bytes.get(at)? {
            at += if byte == b'#' { bytes[at..].iter().position(|&byte| byte == b'\n')? } else { 1 };
        }
        let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).take(10).count();
        match std::str::from_utf8(&bytes[at..at + digits]).unwrap_or_default().parse() {
            Ok(found) => *number = found,
            Err(_) => return bad("the header is damaged: a number is missing"),
        }
        at += digits;
    }
    // One blank precedes the pixels.
    if !bytes.get(at)?.is_ascii_whitespace() {
        return bad("the header is damaged: no blank follows it");
    }
    match numbers {
        [0, ..] | [_, 0, _] => bad("the header says that the image is empty"),
        [width, height, 255] => Some(Ok((Size::new(width, height), components, at + 1))),
        _ => bad("only images with values up to 255 are supported"),
    }
}

/// The header of a PNM image with 1 or 3 channels, which the pixels follow.
#[must_use]
pub fn written(size: Size, channels: u8) -> String {
    format!("P{}\n{} {}\n255\n", if channels == 1 { 5 } else { 6 }, size.width, size.height)
}

#[cfg(test)]
mod tests {
    use super::super::{Decoder, probe};
    use super::*;
    use crate::raster::{Image, Rect};

    #[test]
    fn pixels_are_those_written() {
        let mut image = Image::default();
        let mut decode = |bytes: &[u8], part: Rect| {
            let header = probe(bytes)?;
            Decoder::new()?.decode(bytes, &header, part, false, &mut image).map(|()| image.to_rgb())
        };
        let rgb: Vec<u8> = (0..18).collect();
        let color = [&b"P6 # a comment\n3\t# and\r\n2 255\n"[..], &rgb].concat();
        assert_eq!(decode(&color, Rect::full(Size::new(3, 2))).unwrap(), rgb);
        assert_eq!(decode(&color, Rect { x: 1, y: 1, width: 2, height: 1 }).unwrap(), rgb[12..]);
        let gray = [written(Size::new(2, 2), 1).as_bytes(), &[1, 2, 3, 4]].concat();
        assert_eq!(decode(&gray, Rect { x: 1, y: 0, width: 1, height: 2 }).unwrap(), [2, 2, 2, 4, 4, 4]);
        assert!(decode(&gray[..gray.len() - 1], Rect::full(Size::new(2, 2))).unwrap_err().is_bad_image());
    }

    #[test]
    fn wrong_headers_are_refused() {
        for bad in
            ["P5", "P5 2", "P5 2 2 255", "P5 0 2 255 ", "P5 2 2 65535 ", "P5 a", "P6 2 2 255x", "P5 99999999999 1 255 "]
        {
            assert!(probe(bad.as_bytes()).is_err(), "{bad}");
        }
        // The size is what the header says, and limits decide about it. Decoding finds that there are no pixels.
        let header = probe(b"P6 4294967295 4294967295 255\n").unwrap();
        let part = Rect { x: 0, y: 0, width: 1, height: 1 };
        let decoded = Decoder::new().unwrap().decode(
            b"P6 4294967295 4294967295 255\n",
            &header,
            part,
            false,
            &mut Image::default(),
        );
        assert!(decoded.is_err());
    }
}
