//! Decoding: rectangles against the whole, damaged data, the reference images.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use warpfeed_image::{
    ChromaSampling, Decoder, Error, Format, Image, JpegColor, JpegOptions, Rect, Result, Size, encode_jpeg, probe,
};

#[rustfmt::skip]
const SIZES: [(u32, u32); 15] = [
    (1, 1), (1, 40), (40, 1), (2, 3), (7, 5), (16, 16), (17, 33), (18, 18), (34, 50), (64, 64), (65, 47), (66, 34),
    (100, 36), (131, 250), (250, 131),
];

const SAMPLINGS: [ChromaSampling; 12] = [
    ChromaSampling::S444,
    ChromaSampling::S422,
    ChromaSampling::S420,
    ChromaSampling::S440,
    ChromaSampling::S411,
    ChromaSampling { horizontal: 4, vertical: 2 },
    ChromaSampling { horizontal: 2, vertical: 4 },
    ChromaSampling { horizontal: 1, vertical: 4 },
    ChromaSampling { horizontal: 3, vertical: 1 },
    ChromaSampling { horizontal: 1, vertical: 3 },
    ChromaSampling { horizontal: 3, vertical: 2 },
    ChromaSampling { horizontal: 2, vertical: 3 },
];

const COLORS: [JpegColor; 5] = [JpegColor::Ycc, JpegColor::Gray, JpegColor::Cmyk, JpegColor::Ycck, JpegColor::Rgb];

/// Gradients with noise, so that neighbors differ everywhere.
fn image(size: Size, seed: u64) -> Image {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut image = Image::new(size);
    for y in 0..size.height {
        for (x, pixel) in image.row_mut(y).iter_mut().enumerate() {
            let slope = [3 * x as u32 + y, x as u32 + 2 * y, 255 + 5 * y - (x as u32 % 256)];
            for (value, slope) in pixel.iter_mut().zip(slope) {
                *value = ((slope % 256) as u8).wrapping_add(rng.random_range(0..60));
            }
        }
    }
    image
}

fn decode_part(decoder: &mut Decoder, bytes: &[u8], part: Option<Rect>, tolerant: bool) -> Result<Image> {
    let header = probe(bytes)?;
    let mut out = Image::default();
    // What was in the buffer before must not show.
    out.reset(header.size);
    out.pixels_mut().fill([1, 2, 3, 4]);
    decoder.decode(bytes, &header, part.unwrap_or(Rect::full(header.size)), tolerant, &mut out)?;
    Ok(out)
}

fn decode(bytes: &[u8]) -> Result<Image> {
    decode_part(&mut Decoder::new()?, bytes, None, false)
}

fn random_part(rng: &mut ChaCha8Rng, size: Size) -> Rect {
    let x = rng.random_range(0..size.width);
    let y = rng.random_range(0..size.height);
    let mut side = |rest: u32| if rng.random_bool(0.2) { rest } else { rng.random_range(1..=rest) };
    Rect { x, y, width: side(size.width - x), height: side(size.height - y) }
}

/// Every combination of options that libjpeg writes, for one size.
fn variants(size: Size) -> Vec<(JpegOptions, Vec<u8>)> {
    let source = image(size, u64::from(size.width) << 32 | u64::from(size.height));
    let mut all = Vec::new();
    for color in COLORS {
        for sampling in SAMPLINGS {
            for progressive in [false, true] {
                for restart_interval_rows in [0, 1] {
                    let options = JpegOptions {
                        quality: 85,
                        sampling,
                        progressive,
                        restart_interval_rows,
                        color,
                        orientation: None,
                    };
                    // Four inks at the coarsest samplings are more blocks than an MCU may have.
                    match encode_jpeg(&source, &options) {
                        Ok(bytes) => all.push((options, bytes)),
                        Err(error) => assert!(matches!(error, Error::Parameter { .. }), "{error}"),
                    }
                }
            }
        }
    }
    assert!(all.len() > 200);
    all
}

/// The part must hold the whole's pixels.
fn assert_part(whole: &Image, part: &Image, what: &dyn std::fmt::Debug) {
    let rect = part.part();
    assert_eq!(part.whole(), whole.size());
    for y in 0..rect.height {
        let want = &whole.row(rect.y + y)[rect.x as usize..][..rect.width as usize];
        let got = part.row(y);
        if let Some(x) = (0..want.len()).find(|&x| got[x] != want[x]) {
            panic!("{what:?}: {rect:?}, at ({x}, {y}): got {:?}, want {:?}", got[x], want[x]);
        }
    }
}

#[test]
fn a_part_has_the_pixels_of_the_whole() {
    let mut decoder = Decoder::new().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (width, height) in SIZES {
        let size = Size::new(width, height);
        for (options, bytes) in variants(size) {
            let whole = decode_part(&mut decoder, &bytes, None, false).unwrap();
            assert!(whole.pixels().iter().all(|p| p[3] == 255));
            for _ in 0..12 {
                let rect = random_part(&mut rng, size);
                let part = decode_part(&mut decoder, &bytes, Some(rect), false)
                    .unwrap_or_else(|error| panic!("{size} {options:?} {rect:?}: {error}"));
                assert_part(&whole, &part, &(size, &options));
            }
        }
    }
}

#[test]
fn every_single_row_and_column() {
    let mut decoder = Decoder::new().unwrap();
    for (options, bytes) in [(66, 65), (67, 71), (36, 34)].into_iter().flat_map(|(w, h)| variants(Size::new(w, h))) {
        let size = probe(&bytes).unwrap().size;
        let whole = decode_part(&mut decoder, &bytes, None, false).unwrap();
        for x in 0..size.width {
            let rect = Rect { x, y: 5, width: 1, height: 3 };
            assert_part(&whole, &decode_part(&mut decoder, &bytes, Some(rect), false).unwrap(), &options);
        }
        for y in 0..size.height {
            let rect = Rect { x: 18, y, width: 3, height: 1 };
            assert_part(&whole, &decode_part(&mut decoder, &bytes, Some(rect), false).unwrap(), &options);
        }
    }
}

#[test]
fn what_is_encoded_comes_back_nearly() {
    let mut source = Image::new(Size::new(48, 40));
    for y in 0..40 {
        for (x, pixel) in source.row_mut(y).iter_mut().enumerate() {
            *pixel = [(5 * x) as u8, (6 * y) as u8, 200 - (2 * x) as u8 - y as u8, 255];
        }
    }
    for color in COLORS {
        let options = JpegOptions { quality: 98, sampling: ChromaSampling::S444, color, ..JpegOptions::default() };
        let got = decode(&encode_jpeg(&source, &options).unwrap()).unwrap();
        for (got, want) in got.pixels().iter().zip(source.pixels()) {
            let gray = (0.299 * f64::from(want[0]) + 0.587 * f64::from(want[1]) + 0.114 * f64::from(want[2])) as u8;
            for c in 0..3 {
                let want = if color == JpegColor::Gray { gray } else { want[c] };
                assert!(got[c].abs_diff(want) <= 16, "{color:?}: got {got:?}, want {want}");
            }
        }
    }
}

/// Baseline, progressive, with restarts, gray.
fn some_kinds() -> Vec<(JpegOptions, Vec<u8>)> {
    let source = image(Size::new(61, 45), 3);
    let base = JpegOptions { quality: 60, ..JpegOptions::default() };
    [
        base.clone(),
        JpegOptions { progressive: true, ..base.clone() },
        JpegOptions { restart_interval_rows: 1, ..base.clone() },
        JpegOptions { color: JpegColor::Gray, ..base.clone() },
        JpegOptions { color: JpegColor::Ycck, sampling: ChromaSampling::S422, ..base },
    ]
    .map(|options| (options.clone(), encode_jpeg(&source, &options).unwrap()))
    .into()
}

#[test]
fn truncated_at_every_byte() {
    let mut decoder = Decoder::new().unwrap();
    for (options, bytes) in some_kinds() {
        let whole = decode(&bytes).unwrap();
        for len in 0..bytes.len() {
            let cut = &bytes[..len];
            let top = Rect { x: 3, y: 0, width: 9, height: 2 };
            let strict = decode_part(&mut decoder, cut, None, false);
            let strict_top = decode_part(&mut decoder, cut, Some(top), false);
            let tolerant = decode_part(&mut decoder, cut, None, true);
            assert_eq!(tolerant.is_ok(), probe(cut).is_ok(), "{options:?} cut to {len}");
            match strict {
                // Only bytes that pixels do not need may be cut off.
                Ok(image) => {
                    assert!(!options.progressive, "cut to {len} of {}", bytes.len());
                    assert_eq!(image.pixels(), whole.pixels(), "{options:?} cut to {len} of {}", bytes.len());
                    assert_eq!(tolerant.unwrap().pixels(), whole.pixels());
                    assert_part(&whole, &strict_top.unwrap(), &options);
                }
                Err(error) => {
                    assert!(error.is_bad_image(), "{error}");
                    // The cut is below these rows, and is noticed all the same.
                    strict_top.unwrap_err();
                }
            }
            if let Ok(part) = decode_part(&mut decoder, cut, Some(top), true) {
                let tolerant = decode_part(&mut decoder, cut, None, true).unwrap();
                assert_part(&tolerant, &part, &(&options, len));
            }
        }
    }
}

#[test]
fn a_missing_end_marker_alone_is_no_damage() {
    let (options, bytes) = some_kinds().swap_remove(0);
    assert!(!options.progressive);
    assert!(bytes.ends_with(&[0xFF, 0xD9]));
    decode(&bytes[..bytes.len() - 2]).unwrap();
    let error = decode(&bytes[..bytes.len() - 100]).unwrap_err().to_string();
    assert!(error.contains("truncated: the data end after"), "{error}");
}

#[test]
fn rubbish_never_panics_and_leaves_no_trace() {
    let mut decoder = Decoder::new().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for (options, bytes) in some_kinds() {
        let want = decode(&bytes).unwrap();
        let other = Rect { x: 7, y: 11, width: 30, height: 9 };
        for round in 0..400 {
            let mut damaged = bytes.clone();
            for _ in 0..rng.random_range(1..8) {
                let at = rng.random_range(0..damaged.len());
                damaged[at] = rng.random();
            }
            // Sizes that the damage made giant are the caller's to refuse.
            if probe(&damaged).is_ok_and(|header| header.size.area_px() < 1 << 20) {
                for tolerant in [false, true] {
                    let part = (round % 2 == 0 && probe(&damaged).unwrap().size == want.size()).then_some(other);
                    if let Err(error) = decode_part(&mut decoder, &damaged, part, tolerant) {
                        assert!(error.is_bad_image(), "{error}");
                    }
                }
            }
            if round % 20 == 0 {
                let got = decode_part(&mut decoder, &bytes, None, false).unwrap();
                assert_eq!(got.pixels(), want.pixels(), "{options:?}");
            }
        }
    }
    for len in 0..300 {
        let mut bytes: Vec<u8> = (0..len).map(|_| rng.random()).collect();
        let _ = probe(&bytes);
        for start in [&b"\xFF\xD8\xFF"[..], b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"RIFF\0\0\0\0WEBPVP8X"] {
            let len = start.len().min(bytes.len());
            bytes[..len].copy_from_slice(&start[..len]);
            let _ = probe(&bytes);
        }
    }
}

#[test]
fn tables_do_not_pass_from_one_image_to_the_next() {
    // An image without its quantisation tables is an error, whatever was decoded before.
    let bytes = encode_jpeg(&image(Size::new(20, 20), 9), &JpegOptions::default()).unwrap();
    let mut stripped = bytes.clone();
    while let Some(at) = stripped.windows(2).position(|pair| pair == [0xFF, 0xDB]) {
        let len = usize::from(u16::from_be_bytes([stripped[at + 2], stripped[at + 3]]));
        stripped.drain(at..at + 2 + len);
    }
    let mut decoder = Decoder::new().unwrap();
    decode_part(&mut decoder, &bytes, None, false).unwrap();
    decode_part(&mut decoder, &stripped, None, false).unwrap_err();
}

/// Writer of lossless JPEGs for the tests, as libjpeg here has none.
#[derive(Debug, Clone, Copy)]
struct Lossless<'a> {
    size: Size,
    /// Each component's sampling factors.
    factors: &'a [(usize, usize)],
    predictor: u8,
    /// Low bits that are cut off.
    shift: u8,
    restart_rows: usize,
    /// Whether all components come in one scan.
    interleaved: bool,
}

impl Lossless<'_> {
    /// Pixels that a sample of the component stands for, across and down.
    fn pixels_a_sample(&self, component: usize) -> (usize, usize) {
        let (h, v) = self.factors[component];
        let most = |factor: fn(&(usize, usize)) -> usize| self.factors.iter().map(factor).max().unwrap();
        (most(|f| f.0) / h, most(|f| f.1) / v)
    }

    /// The component's width and height in samples.
    fn samples(&self, component: usize) -> (usize, usize) {
        let (h, v) = self.pixels_a_sample(component);
        ((self.size.width as usize).div_ceil(h), (self.size.height as usize).div_ceil(v))
    }

    fn random_planes(&self, rng: &mut ChaCha8Rng) -> Vec<Vec<u8>> {
        let plane = |c| {
            let (width, height) = self.samples(c);
            (0..width * height).map(|_| rng.random()).collect()
        };
        (0..self.factors.len()).map(plane).collect()
    }

    fn encode(&self, planes: &[Vec<u8>]) -> Vec<u8> {
        let count = self.factors.len();
        let mut file = vec![0xFF, 0xD8];
        let segment = |file: &mut Vec<u8>, marker: u8, content: &[u8]| {
            file.extend([0xFF, marker]);
            file.extend((content.len() as u16 + 2).to_be_bytes());
            file.extend_from_slice(content);
        };
        // Seventeen codes of five bits, one for each length of a difference.
        let mut code = vec![0; 17];
        code[5] = 17;
        code.extend(0..17);
        segment(&mut file, 0xC4, &code);
        let (height, width) = (self.size.height as u16, self.size.width as u16);
        let mut frame = [&[8][..], &height.to_be_bytes(), &width.to_be_bytes(), &[count as u8]].concat();
        frame.extend(self.factors.iter().enumerate().flat_map(|(c, (h, v))| [c as u8, (h << 4 | v) as u8, 0]));
        segment(&mut file, 0xC3, &frame);
        let all: Vec<usize> = (0..count).collect();
        for scan in if self.interleaved { vec![&all[..]] } else { all.chunks(1).collect() } {
            // Of a single component an MCU is one sample.
            let factors = |c: usize| if scan.len() == 1 { (1, 1) } else { self.factors[c] };
            let ((across, down), (h, v)) = (self.samples(scan[0]), factors(scan[0]));
            let (columns, rows) = (across.div_ceil(h), down.div_ceil(v));
            segment(&mut file, 0xDD, &((columns * self.restart_rows) as u16).to_be_bytes());
            let mut header = vec![scan.len() as u8];
            header.extend(scan.iter().flat_map(|&c| [c as u8, 0]));
            header.extend([self.predictor, 0, self.shift]);
            segment(&mut file, 0xDA, &header);
            let mut bits = Vec::new();
            for row in 0..rows {
                let restarts = self.restart_rows > 0 && row > 0 && row % self.restart_rows == 0;
                if restarts {
                    flush(&mut bits, &mut file);
                    file.extend([0xFF, 0xD0 + ((row / self.restart_rows - 1) % 8) as u8]);
                }
                for column in 0..columns {
                    for &c in scan {
                        let (h, v) = factors(c);
                        for (line, sample) in (0..v).flat_map(|line| (0..h).map(move |sample| (line, sample))) {
                            let first = line == 0 && (row == 0 || restarts);
                            let at = (column * h + sample, row * v + line);
                            put(&mut bits, self.difference(&planes[c], self.samples(c), at, first));
                        }
                    }
                }
            }
            flush(&mut bits, &mut file);
        }
        file.extend([0xFF, 0xD9]);
        file
    }

    /// The value written for the sample at (x, y): zero outside of the component.
    fn difference(&self, plane: &[u8], (width, height): (usize, usize), (x, y): (usize, usize), first: bool) -> i32 {
        if x >= width || y >= height {
            return 0;
        }
        let at = |x: usize, y: usize| i32::from(plane[y * width + x] >> self.shift);
        let prediction = match (x, first) {
            (0, true) => 128 >> self.shift,
            (0, false) => at(0, y - 1),
            (_, true) => at(x - 1, y),
            _ => {
                let (a, b, c) = (at(x - 1, y), at(x, y - 1), at(x - 1, y - 1));
                [a, b, c, a + b - c, a + ((b - c) >> 1), b + ((a - c) >> 1), (a + b) >> 1]
                    [usize::from(self.predictor) - 1]
            }
        };
        at(x, y) - prediction
    }

    /// The pixels that `planes` stand for, of one component or of three.
    fn pixel(&self, planes: &[Vec<u8>], x: usize, y: usize) -> [u8; 4] {
        let value = |c: usize| {
            let (h, v) = self.pixels_a_sample(c);
            planes[c][y / v * self.samples(c).0 + x / h] >> self.shift << self.shift
        };
        if planes.len() == 1 { [value(0), value(0), value(0), 255] } else { [value(0), value(1), value(2), 255] }
    }
}

/// The difference's length, in five bits, and then the difference.
fn put(bits: &mut Vec<bool>, difference: i32) {
    let len = 32 - difference.unsigned_abs().leading_zeros();
    let value = if difference < 0 { difference + (1 << len) - 1 } else { difference };
    bits.extend((0..5).rev().map(|bit| len >> bit & 1 == 1));
    bits.extend((0..len).rev().map(|bit| value >> bit & 1 == 1));
}

/// Ones up to the next byte, and a zero after each 0xFF.
fn flush(bits: &mut Vec<bool>, file: &mut Vec<u8>) {
    for byte in bits.chunks(8) {
        let byte = (0..8).fold(0, |sum, bit| sum << 1 | u8::from(*byte.get(bit).unwrap_or(&true)));
        file.push(byte);
        if byte == 0xFF {
            file.push(0);
        }
    }
    bits.clear();
}

const LOSSLESS: Lossless<'static> = Lossless {
    size: Size { width: 23, height: 17 },
    factors: &[(1, 1); 3],
    predictor: 4,
    shift: 0,
    restart_rows: 0,
    interleaved: true,
};

#[test]
fn lossless_jpegs_come_back() {
    let mut rng = ChaCha8Rng::seed_from_u64(15);
    let mut decoder = Decoder::new().unwrap();
    let samplings: [&[(usize, usize)]; 7] = [
        &[(1, 1)],
        &[(2, 2)],
        &[(1, 1); 3],
        &[(2, 1), (1, 1), (1, 1)],
        &[(2, 2), (1, 1), (1, 2)],
        &[(1, 2), (1, 1), (1, 1)],
        &[(4, 1), (2, 1), (1, 1)],
    ];
    for size in [(1, 1), (1, 9), (9, 1), (23, 17)].map(|(width, height)| Size::new(width, height)) {
        for factors in samplings {
            for predictor in 1..=7 {
                for (shift, restart_rows, interleaved) in [(0, 0, true), (0, 0, false), (3, 1, true), (7, 3, false)] {
                    let job = Lossless { size, factors, predictor, shift, restart_rows, interleaved };
                    let planes = job.random_planes(&mut rng);
                    let bytes = job.encode(&planes);
                    let whole = decode_part(&mut decoder, &bytes, None, false).unwrap();
                    for y in 0..size.height {
                        for (x, &pixel) in whole.row(y).iter().enumerate() {
                            assert_eq!(pixel, job.pixel(&planes, x, y as usize), "{job:?}, ({x}, {y})");
                        }
                    }
                    let part = random_part(&mut rng, size);
                    assert_part(&whole, &decode_part(&mut decoder, &bytes, Some(part), false).unwrap(), &job);
                }
            }
        }
    }
}

#[test]
fn damaged_lossless_jpegs_are_refused_or_gray() {
    let mut rng = ChaCha8Rng::seed_from_u64(16);
    let mut decoder = Decoder::new().unwrap();
    for job in [LOSSLESS, Lossless { restart_rows: 2, factors: &[(2, 2), (1, 1), (1, 1)], ..LOSSLESS }] {
        let bytes = job.encode(&job.random_planes(&mut rng));
        let whole = decode(&bytes).unwrap();
        for len in 0..bytes.len() - 2 {
            // The bits that fill up the last byte may go.
            if let Ok(image) = decode_part(&mut decoder, &bytes[..len], None, false) {
                assert!(len + 4 > bytes.len() && image.pixels() == whole.pixels(), "{job:?} cut to {len}");
            }
            let tolerant = decode_part(&mut decoder, &bytes[..len], None, true);
            assert_eq!(tolerant.is_ok(), probe(&bytes[..len]).is_ok(), "{job:?} cut to {len}");
            if let Ok(image) = tolerant
                && len < bytes.len() / 2
                && let Some(last) = image.pixels().last()
            {
                assert!(matches!(last, [128, 128, 128, 255] | [0, 0, 0, 255]), "{job:?} cut to {len}: {last:?}");
            }
        }
        for _ in 0..2000 {
            let mut damaged = bytes.clone();
            for _ in 0..rng.random_range(1..5) {
                let at = rng.random_range(2..damaged.len());
                damaged[at] = rng.random();
            }
            for tolerant in [false, true] {
                if probe(&damaged).is_ok_and(|header| header.size.area_px() < 1 << 16)
                    && let Err(error) = decode_part(&mut decoder, &damaged, None, tolerant)
                {
                    assert!(error.is_bad_image(), "{error}");
                }
            }
        }
    }
}

#[test]
fn kinds_that_are_not_supported_say_what_to_do() {
    let bytes = encode_jpeg(&image(Size::new(20, 20), 9), &JpegOptions::default()).unwrap();
    let frame = bytes.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    for (marker, bits, word) in
        [(0xC9, 8, "arithmetic"), (0xC3, 12, "12 bits"), (0xC5, 8, "hierarchical"), (0xC1, 12, "12 bits")]
    {
        let mut bytes = bytes.clone();
        bytes[frame + 1] = marker;
        bytes[frame + 4] = bits;
        let error = decode(&bytes).unwrap_err();
        assert!(error.is_bad_image());
        let text = error.to_string();
        assert!(text.contains(word) && text.contains("convert it"), "{text}");
    }
}

#[test]
fn too_many_scans_are_refused() {
    let options = JpegOptions { progressive: true, color: JpegColor::Gray, ..JpegOptions::default() };
    let bytes = encode_jpeg(&image(Size::new(16, 16), 2), &options).unwrap();
    // The first scan, which has its Huffman table before it, over and over.
    let scan = probe(&bytes).unwrap();
    assert!(scan.progressive);
    let starts: Vec<usize> = (0..bytes.len() - 1).filter(|&at| bytes[at] == 0xFF && bytes[at + 1] == 0xDA).collect();
    let end = (starts[0] + 2..bytes.len() - 1)
        .find(|&at| bytes[at] == 0xFF && !matches!(bytes[at + 1], 0 | 0xD0..=0xD7))
        .unwrap();
    let mut bomb = bytes[..end].to_vec();
    for _ in 0..600 {
        bomb.extend_from_slice(&bytes[starts[0]..end]);
    }
    bomb.extend_from_slice(&[0xFF, 0xD9]);
    let error = decode(&bomb).unwrap_err().to_string();
    assert!(error.contains("more than 500 scans"), "{error}");
}

#[test]
fn orientations_are_read_and_not_applied() {
    let source = image(Size::new(9, 6), 1);
    for value in 0..=10u16 {
        let options = JpegOptions { orientation: Some(value), ..JpegOptions::default() };
        let header = probe(&encode_jpeg(&source, &options).unwrap()).unwrap();
        assert_eq!(header.orientation, if (1..=8).contains(&value) { value as u8 } else { 1 });
        assert_eq!(header.size, Size::new(9, 6));
    }
}

#[test]
fn headers_tell_the_layout() {
    let source = image(Size::new(50, 60), 1);
    let options = JpegOptions {
        sampling: ChromaSampling::S422,
        progressive: true,
        restart_interval_rows: 2,
        ..JpegOptions::default()
    };
    let header = probe(&encode_jpeg(&source, &options).unwrap()).unwrap();
    assert_eq!(header.format, Format::Jpeg);
    assert!(header.progressive);
    assert_eq!((header.components, header.precision_bits), (3, 8));
    assert_eq!(header.sampling, [(2, 1), (1, 1), (1, 1), (0, 0)]);
}

#[test]
fn a_wrong_part_is_the_callers_fault() {
    let bytes = encode_jpeg(&image(Size::new(8, 8), 1), &JpegOptions::default()).unwrap();
    for (x, width) in [(0, 0), (0, 9), (8, 1), (u32::MAX, 1), (u32::MAX, u32::MAX)] {
        let part = Rect { x, y: 0, width, height: 1 };
        let error = decode_part(&mut Decoder::new().unwrap(), &bytes, Some(part), false).unwrap_err();
        assert!(matches!(error, Error::Parameter { .. }), "{error}");
    }
}

fn reference() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/reference")
}

/// Pillow's results for the images in `tests/reference/images`; `tests/reference/make.py` wrote them.
#[test]
fn reference_images_decode_as_in_pillow() {
    let cases = fs::read_to_string(reference().join("cases.jsonl")).unwrap();
    let mut decoder = Decoder::new().unwrap();
    let (mut images, mut failed) = (0, Vec::new());
    for case in cases.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let kind = case["kind"].as_str().unwrap();
        if !matches!(kind, "decode" | "decode-truncated") {
            continue;
        }
        images += 1;
        let name = case["image"].as_str().unwrap();
        let bytes = fs::read(reference().join("images").join(name)).unwrap();
        let tolerant = kind == "decode-truncated";
        if tolerant {
            decode(&bytes).unwrap_err();
        }
        let image = decode_part(&mut decoder, &bytes, None, tolerant).unwrap_or_else(|e| panic!("{name}: {e}"));
        let shape = [image.size().height, image.size().width, 3];
        assert_eq!(case["shape"], serde_json::json!(shape), "{name}");
        let sha256: String = Sha256::digest(image.to_rgb()).iter().map(|byte| format!("{byte:02x}")).collect();
        if case["sha256"] != sha256 {
            failed.push(name.to_owned());
        }
        // And its parts are those of the whole.
        let mut rng = ChaCha8Rng::seed_from_u64(images);
        for _ in 0..20 {
            let rect = random_part(&mut rng, image.size());
            assert_part(&image, &decode_part(&mut decoder, &bytes, Some(rect), tolerant).unwrap(), &name);
        }
    }
    assert!(images > 30, "{images}");
    assert!(failed.is_empty(), "not the pixels that Pillow has: {failed:?}");
}

/// Soft colors with a sharp-edged disc and a noisy corner.
fn scene(size: Size, seed: u64) -> Image {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut image = Image::new(size);
    let (w, h) = (f64::from(size.width), f64::from(size.height));
    for y in 0..size.height {
        for (x, pixel) in image.row_mut(y).iter_mut().enumerate() {
            let (u, v) = (x as f64 / w, f64::from(y) / h);
            let disc = (u - 0.6).hypot(v - 0.4) < 0.25;
            let noise = if u < 0.4 && v > 0.6 { rng.random_range(-40.0..40.0) } else { 0.0 };
            let color = if disc { [230.0, 60.0 + 100.0 * v, 40.0] } else { [255.0 * u, 255.0 * v, 255.0 * (1.0 - u)] };
            for (value, color) in pixel.iter_mut().zip(color) {
                *value = (color + noise) as u8;
            }
        }
    }
    image
}

/// The file with `quantizers`, one a table, for all coefficients, in two bytes each if they are `wide`. Coefficients
/// come out many times too large.
fn requantized(bytes: &[u8], quantizers: [u16; 2], wide: bool) -> Vec<u8> {
    let (mut out, mut tables, mut at) = (bytes[..2].to_vec(), 0, 2);
    while bytes[at + 1] != 0xDA {
        let next = at + 2 + usize::from(u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]));
        if bytes[at + 1] == 0xDB {
            for table in bytes[at + 4..next].chunks(65) {
                let value = quantizers[tables % 2].to_be_bytes();
                let value = &value[usize::from(!wide)..];
                out.extend([0xFF, 0xDB, 0, (3 + 64 * value.len()) as u8, table[0] | u8::from(wide) << 4]);
                out.extend(value.iter().cycle().take(64 * value.len()));
                tables += 1;
            }
        } else {
            out.extend_from_slice(&bytes[at..next]);
        }
        at = next;
    }
    out.extend_from_slice(&bytes[at..]);
    out
}

/// Writes the JPEGs of `tests/reference/images`. After it, `tests/reference/make.py`.
#[test]
#[ignore = "writes the reference images, which are committed"]
fn make_reference_images() {
    let write = |name: &str, width, height, options: JpegOptions| {
        let bytes = encode_jpeg(&scene(Size::new(width, height), 1), &options).unwrap();
        fs::write(reference().join("images").join(name).with_extension("jpg"), &bytes).unwrap();
        bytes
    };
    let base = JpegOptions { quality: 80, ..JpegOptions::default() };
    for (name, sampling, width, height) in [
        ("baseline-444", ChromaSampling::S444, 96, 64),
        ("baseline-422", ChromaSampling::S422, 97, 75),
        ("baseline-420", ChromaSampling::S420, 161, 120),
        ("baseline-440", ChromaSampling::S440, 75, 97),
        ("baseline-411", ChromaSampling::S411, 101, 43),
        ("baseline-3x2", ChromaSampling { horizontal: 3, vertical: 2 }, 61, 53),
        ("size-1x1", ChromaSampling::S420, 1, 1),
        ("size-2x1", ChromaSampling::S420, 2, 1),
        ("size-1x37", ChromaSampling::S422, 1, 37),
        ("size-33x1", ChromaSampling::S420, 33, 1),
        ("size-7x5", ChromaSampling::S420, 7, 5),
    ] {
        write(name, width, height, JpegOptions { sampling, ..base.clone() });
    }
    write("quality-100", 48, 40, JpegOptions { quality: 100, ..base.clone() });
    write("quality-5", 120, 90, JpegOptions { quality: 5, ..base.clone() });
    let restart = write("restart", 120, 90, JpegOptions { restart_interval_rows: 1, ..base.clone() });
    let progressive = write("progressive", 131, 99, JpegOptions { progressive: true, ..base.clone() });
    write("gray", 64, 48, JpegOptions { color: JpegColor::Gray, sampling: ChromaSampling::S444, ..base.clone() });
    write("gray-2x2", 51, 45, JpegOptions { color: JpegColor::Gray, ..base.clone() });
    write("gray-progressive", 51, 45, JpegOptions { color: JpegColor::Gray, progressive: true, ..base.clone() });
    write("cmyk", 60, 44, JpegOptions { color: JpegColor::Cmyk, sampling: ChromaSampling::S444, ..base.clone() });
    write("ycck", 61, 43, JpegOptions { color: JpegColor::Ycck, ..base.clone() });
    write("rgb", 50, 40, JpegOptions { color: JpegColor::Rgb, sampling: ChromaSampling::S444, ..base.clone() });
    for orientation in 1..=8 {
        let options = JpegOptions { orientation: Some(orientation), ..base.clone() };
        write(&format!("orientation-{orientation}"), 18, 11, options);
    }
    let source = scene(Size::new(83, 61), 1);
    let absurd = |name: &str, options: JpegOptions, quantizers, wide| {
        let bytes = requantized(&encode_jpeg(&source, &options).unwrap(), quantizers, wide);
        fs::write(reference().join("images").join(name), bytes).unwrap();
    };
    let best = JpegOptions { quality: 100, ..base.clone() };
    absurd("absurd-baseline.jpg", best.clone(), [255, 90], false);
    absurd("absurd-progressive.jpg", JpegOptions { progressive: true, ..best.clone() }, [40, 255], false);
    absurd("absurd-wide.jpg", JpegOptions { sampling: ChromaSampling::S444, ..best }, [65_000, 9_000], true);
    let mut lossless = Vec::new();
    for (name, job) in [
        ("rgb", LOSSLESS),
        ("gray", Lossless { factors: &[(1, 1)], predictor: 7, shift: 2, ..LOSSLESS }),
        ("cmyk", Lossless { factors: &[(1, 1); 4], predictor: 6, restart_rows: 4, ..LOSSLESS }),
        ("420", Lossless { factors: &[(2, 2), (1, 1), (1, 1)], predictor: 5, ..LOSSLESS }),
        ("scans", Lossless { predictor: 2, interleaved: false, ..LOSSLESS }),
    ] {
        lossless = job.encode(&job.random_planes(&mut ChaCha8Rng::seed_from_u64(3)));
        fs::write(reference().join("images").join(format!("lossless-{name}.jpg")), &lossless).unwrap();
    }
    let job = Lossless { restart_rows: 5, ..LOSSLESS };
    let restarts = job.encode(&job.random_planes(&mut ChaCha8Rng::seed_from_u64(3)));
    let baseline = write("baseline-420", 161, 120, base);
    for (name, bytes) in [
        ("baseline", baseline),
        ("restart", restart),
        ("progressive", progressive),
        ("lossless", restarts),
        ("lossless-scans", lossless),
    ] {
        let name = format!("truncated-{name}.jpg");
        fs::write(reference().join("images").join(name), &bytes[..bytes.len() * 6 / 10]).unwrap();
    }
}
