//! Images with captions, in rows.

use super::drawing::{ADVANCE, Drawing, SMALL, WIDTH};
use std::fmt::Write;
use warpfeed::image::Size;

/// Space between images.
const GAP: f64 = 8.0;
/// Height of a line of a caption.
const LINE: f64 = 14.0;

/// An image with its caption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// The image as a JPEG file; empty for an image that cannot be shown.
    pub jpeg: Vec<u8>,
    /// Size of the image in pixels.
    pub size: Size,
    /// Lines below the image. Of a longer line the end is shown, which tells more of a path than its beginning.
    pub caption: Vec<String>,
}

/// Images in rows of `columns`, each scaled to the width of its column. The images are in the SVG itself.
#[must_use]
pub fn pictures(title: &str, columns: usize, pictures: &[Picture]) -> String {
    let mut drawing = Drawing::new(title);
    let columns = columns.max(1);
    let width = (WIDTH - GAP) / columns as f64 - GAP;
    for row in pictures.chunks(columns) {
        let scale = |size: Size| width / f64::from(size.width.max(size.height).max(1));
        let height = |picture: &Picture| scale(picture.size) * f64::from(picture.size.height);
        let tallest = row.iter().map(height).fold(LINE, f64::max);
        let lines = row.iter().map(|picture| picture.caption.len()).max().unwrap_or(0);
        for (column, picture) in row.iter().enumerate() {
            let left = GAP + column as f64 * (width + GAP);
            let (wide, high) = (scale(picture.size) * f64::from(picture.size.width), height(picture));
            if picture.jpeg.is_empty() {
                drawing.text(left, drawing.top + LINE, "start", SMALL, "cannot be shown");
            } else {
                // Writing to a string cannot fail.
                let _ = write!(
                    drawing.body,
                    "<image x=\"{left:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" href=\"data:image/jpeg;base64,{}\"/>",
                    drawing.top + tallest - high,
                    base64(&picture.jpeg)
                );
            }
            for (i, line) in picture.caption.iter().enumerate() {
                let y = drawing.top + tallest + LINE * (i + 1) as f64;
                drawing.text(left, y, "start", SMALL, &end_of(line, width));
            }
        }
        drawing.top += tallest + LINE * lines as f64 + 2.0 * GAP;
    }
    let words: Vec<String> = pictures.iter().map(|picture| picture.caption.join(", ")).collect();
    drawing.finish(&words.join(". "))
}

/// Cuts off the beginning of text that is wider.
fn end_of(text: &str, most: f64) -> String {
    let (room, len) = ((most / (ADVANCE * SMALL)) as usize, text.chars().count());
    if len <= room { text.to_owned() } else { ['…'].into_iter().chain(text.chars().skip(len + 1 - room)).collect() }
}

/// Bytes in Base64 (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().enumerate().fold(0_u32, |bits, (i, byte)| bits | u32::from(*byte) << (16 - 8 * i));
        for letter in 0..4 {
            let is_there = letter <= three.len();
            text.push(if is_there { LETTERS[(bits >> (18 - 6 * letter) & 63) as usize].into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_rfc_4648s() {
        for (text, want) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(text.as_bytes()), want);
        }
    }

    #[test]
    fn images_are_in_the_plot_with_the_ends_of_their_captions() {
        let picture = Picture {
            jpeg: b"foo".to_vec(),
            size: Size::new(20, 10),
            caption: vec![format!("/a/folder/{}/cats/1.jpg", "x".repeat(80)), "4:2:0 & gray".to_owned()],
        };
        let plain = Picture { jpeg: Vec::new(), ..picture.clone() };
        let svg = pictures("Cats", 3, &[picture, plain]);
        assert_eq!(svg.matches("base64,Zm9v\"").count(), 1);
        assert!(svg.contains("…") && svg.contains("/cats/1.jpg</text>") && svg.contains("4:2:0 &amp; gray"), "{svg}");
        assert!(svg.contains("cannot be shown"));
    }
}
