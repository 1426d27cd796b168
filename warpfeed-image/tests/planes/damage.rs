//! Damaged files: errors or pixels, and never a panic.

use super::{message, npz, numbers, planes};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use warpfeed_image::decode::DecodeOptions;
use warpfeed_image::planes::Planes;
use warpfeed_image::{Decoder, Image, Rect, Size, encode_png, probe};

/// Small files of all kinds.
fn small_files() -> Vec<Vec<u8>> {
    let array = npz::array("<u2", "(3, 4, 2)", &[7; 48]);
    let image = encode_png(&Image::new(Size::new(5, 4))).unwrap();
    let files = vec![image, npz::archive(&[("a.npy", &array)], false), npz::archive(&[("a.npy", &array)], true), array];
    #[cfg(feature = "tiff")]
    let files = [files, super::tiff::small_files()].concat();
    files
}

/// Largest number of pixels that are decoded of damaged files.
const MAX_PIXELS: u64 = 1 << 16;

/// Reads a file in all ways: no panic, and only errors that say that the image is bad.
fn read(decoder: &mut Decoder, bytes: &[u8]) -> bool {
    let header = match probe(bytes) {
        Ok(header) if header.size.area_px() > MAX_PIXELS => return false,
        Ok(header) => header,
        Err(error) => {
            assert!(error.is_bad_image() || error.to_string().contains("zstd"), "{error}");
            return false;
        }
    };
    let whole = Rect::full(header.size);
    let part = Rect {
        x: whole.width / 2,
        y: whole.height / 3,
        width: whole.width.div_ceil(2),
        height: whole.height.div_ceil(3),
    };
    let (mut planes, mut image) = (Planes::default(), Image::default());
    let decoded = decoder.decode_planes(bytes, &header, whole, None, DecodeOptions::default(), &mut planes);
    let band = [header.kind.channels - 1];
    let mut cut = Planes::default();
    let decoded_part = decoder.decode_planes(bytes, &header, part, Some(&band), DecodeOptions::default(), &mut cut);
    let to_rgb = decoder.decode(bytes, &header, part, false, &mut image);
    for error in
        [&decoded, &decoded_part].into_iter().filter_map(|result| result.as_ref().err()).chain(to_rgb.err().as_ref())
    {
        assert!(error.is_bad_image(), "{error}");
    }
    if let (Ok(_), Ok(_)) = (&decoded, &decoded_part) {
        let (all, cut) = (numbers(&planes), numbers(&cut));
        let plane = &all[usize::from(band[0]) * whole.size().area_px() as usize..];
        for (y, row) in cut.chunks_exact(part.width as usize).enumerate() {
            let start = (part.y as usize + y) * whole.width as usize + part.x as usize;
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(row), bits(&plane[start..][..row.len()]));
        }
    }
    decoded.is_ok()
}

#[test]
fn truncations_and_flips_are_errors_or_pixels() {
    let mut decoder = Decoder::new().unwrap();
    for file in small_files() {
        assert!(read(&mut decoder, &file) || message(planes(&file, None, None)).contains("inks"));
        for end in 0..file.len() {
            read(&mut decoder, &file[..end]);
        }
        for at in 0..file.len() {
            for flip in [1, 0x80, 0xFF] {
                let mut file = file.clone();
                file[at] ^= flip;
                read(&mut decoder, &file);
            }
        }
    }
}

#[test]
#[ignore = "takes a minute"]
fn a_million_damaged_files_are_errors_or_pixels() {
    let files = small_files();
    let (mut rng, mut decoder) = (ChaCha8Rng::seed_from_u64(7), Decoder::new().unwrap());
    let mut good = 0_u32;
    for _ in 0..1_000_000 {
        let mut file = files[rng.random_range(0..files.len())].clone();
        for _ in 0..rng.random_range(1..6) {
            let at = rng.random_range(0..file.len());
            match rng.random_range(0..6) {
                0 => file[at] = rng.random(),
                1 => file[at] ^= 1 << rng.random_range(0..8),
                2 => file[at] = [0, 1, 2, 3, 4, 5, 7, 8, 16, 0xFE, 0xFF][rng.random_range(0..11)],
                3 => file.truncate(at.max(1)),
                4 => {
                    let from = rng.random_range(0..file.len());
                    let len = rng.random_range(1..13).min(file.len() - at.max(from));
                    file.copy_within(from..from + len, at);
                }
                _ => file[at] = file[at].wrapping_add([1, 0xFF, 0x10][rng.random_range(0..3)]),
            }
        }
        good += u32::from(read(&mut decoder, &file));
    }
    println!("{good} of 1,000,000 files gave pixels");
}
