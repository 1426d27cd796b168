//! Tests that compare the steps with the CPU's decoder.

use super::*;
use crate::decode::entry_point_bytes::{to_bytes, with_starts};
use crate::decode::entry_points::{ImageEntryPoints, McuGrid};
use crate::decode::indexed;
use crate::decode::restarts::row_starts;
use crate::{
    decode::{DecodeOptions, Decoder, probe},
    encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg},
    raster::Size,
};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::fs;
use std::path::{Path, PathBuf};

#[rustfmt::skip]
const SIZES: [(u32, u32); 16] = [
    (1, 1), (1, 40), (40, 1), (2, 3), (3, 2), (5, 4), (7, 5), (8, 8), (16, 16), (17, 33), (18, 18), (34, 50), (65, 47),
    (66, 34), (100, 36), (131, 97),
];

const SAMPLINGS: [(u8, u8); 9] = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (4, 2), (1, 4), (2, 4), (3, 1)];

/// Gradients with noise.
fn image(size: Size, rng: &mut ChaCha8Rng) -> Image {
    let mut image = Image::new(size);
    for y in 0..size.height {
        for (pixel, x) in image.row_mut(y).iter_mut().zip(0..) {
            let slope = [3 * x + y, x + 2 * y, 255 + 5 * y - (x % 256)];
            *pixel = [0, 1, 2, 0].map(|c: usize| (slope[c] as u8).wrapping_add(rng.random_range(0..60)));
        }
    }
    image
}

fn options((horizontal, vertical): (u8, u8)) -> JpegOptions {
    JpegOptions { sampling: ChromaSampling { horizontal, vertical }, ..JpegOptions::default() }
}

fn random_part(rng: &mut ChaCha8Rng, size: Size) -> Rect {
    let (x, y) = (rng.random_range(0..size.width), rng.random_range(0..size.height));
    Rect { x, y, width: rng.random_range(1..=size.width - x), height: rng.random_range(1..=size.height - y) }
}

/// The CPU's pixels.
fn on_cpu(bytes: &[u8], part: Rect) -> crate::Result<Image> {
    let mut out = Image::default();
    Decoder::new()?.decode(bytes, &probe(bytes)?, part, false, &mut out)?;
    Ok(out)
}

/// The steps' pixels, which must be the CPU's, or the reason why they decode nothing.
fn checked(bytes: &[u8], part: Rect, what: &dyn std::fmt::Debug) -> Result<Image, Reason> {
    let got = decode(bytes, &probe(bytes).unwrap(), part)?.image;
    let want = on_cpu(bytes, part).unwrap_or_else(|error| panic!("{what:?}, {part:?}: not flagged, and {error}"));
    assert_eq!((got.part(), got.whole()), (want.part(), want.whole()));
    let differs = got.pixels().iter().zip(want.pixels()).position(|(got, want)| got != want);
    if let Some(at) = differs {
        let (x, y) = (at as u32 % part.width, at as u32 / part.width);
        panic!("{what:?}, {part:?} at ({x}, {y}): got {:?}, want {:?}", got.pixels()[at], want.pixels()[at]);
    }
    Ok(got)
}

#[test]
fn every_sampling_size_and_quality() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut qualities = (1..=100).cycle();
    for (width, height) in SIZES {
        let source = image(Size::new(width, height), &mut rng);
        for sampling in SAMPLINGS {
            for color in [JpegColor::Ycc, JpegColor::Rgb, JpegColor::Gray] {
                for restart_interval_rows in [0, 1, 3] {
                    let quality = qualities.next().unwrap();
                    let options = JpegOptions { quality, restart_interval_rows, color, ..options(sampling) };
                    let bytes = encode_jpeg(&source, &options).unwrap();
                    let parts = (0..3).map(|_| random_part(&mut rng, source.size()));
                    for part in parts.chain([Rect::full(source.size())]) {
                        let reason = checked(&bytes, part, &(&options, source.size())).err();
                        // Without restarts, and with one code for all components, the phase cannot be found.
                        let may_fail = color == JpegColor::Rgb && restart_interval_rows == 0;
                        let is_expected = reason.is_none_or(|reason| may_fail && reason == Reason::Unsynchronized);
                        assert!(is_expected, "{options:?}, {}: {reason:?}", source.size());
                    }
                }
            }
        }
    }
}

/// Replaces 8-bit quantization tables by 16-bit ones with steps `times` as large.
fn with_long_tables(bytes: &[u8], times: u16) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(4).position(|four| four == [0xFF, 0xDB, 0, 67]) {
        out.extend(&rest[..at]);
        out.extend([0xFF, 0xDB, 0, 131, 0x10 | rest[at + 4]]);
        out.extend(rest[at + 5..at + 69].iter().flat_map(|&step| (u16::from(step) * times).to_be_bytes()));
        rest = &rest[at + 69..];
    }
    out.extend(rest);
    out
}

#[test]
fn tables_of_16_bits() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let source = image(Size::new(61, 45), &mut rng);
    for (quality, times) in [(30, 1), (30, 4), (80, 17), (5, 255)] {
        let bytes = encode_jpeg(&source, &JpegOptions { quality, ..options((2, 2)) }).unwrap();
        let long = with_long_tables(&bytes, times);
        assert_eq!(long.len(), bytes.len() + 128, "both tables");
        let got = checked(&long, Rect::full(source.size()), &(quality, times)).unwrap();
        assert_eq!(got.pixels() == on_cpu(&bytes, Rect::full(source.size())).unwrap().pixels(), times == 1);
    }
}

/// Images without restarts, with more data than one thread's share.
#[test]
fn threads_fall_into_step() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for (sampling, quality) in [((1, 1), 90), ((2, 2), 90), ((2, 1), 40), ((2, 2), 100)] {
        let source = image(Size::new(500, 375), &mut rng);
        let bytes = encode_jpeg(&source, &JpegOptions { quality, ..options(sampling) }).unwrap();
        assert!(bytes.len() > 16_000, "two shares a thread, of {}", bytes.len());
        for part in [Rect::full(source.size()), random_part(&mut rng, source.size())] {
            checked(&bytes, part, &(sampling, quality)).unwrap();
        }
    }
    // With one code for all components, a thread cannot find the phase by itself.
    let source = image(Size::new(500, 375), &mut rng);
    let bytes = encode_jpeg(&source, &JpegOptions { color: JpegColor::Rgb, ..options((1, 1)) }).unwrap();
    assert_eq!(checked(&bytes, Rect::full(source.size()), &"RGB").err(), Some(Reason::Unsynchronized));
}

#[test]
fn damage_is_flagged_or_decoded_alike() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let source = image(Size::new(93, 71), &mut rng);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/reference/images");
    let absurd = ["absurd-baseline.jpg", "absurd-wide.jpg"].map(|name| fs::read(folder.join(name)).unwrap());
    let mut images = absurd.to_vec();
    for sampling in [(1, 1), (2, 2), (1, 2), (2, 1)] {
        for restart_interval_rows in [0, 1, 2] {
            for (color, quality) in [(JpegColor::Ycc, 60), (JpegColor::Gray, 95), (JpegColor::Rgb, 20)] {
                let options = JpegOptions { quality, restart_interval_rows, color, ..options(sampling) };
                images.push(encode_jpeg(&source, &options).unwrap());
            }
        }
    }
    let (mut decoded, mut flagged) = (0, 0);
    for (i, bytes) in images.iter().enumerate() {
        let scan = probe(bytes).unwrap().scan_offset_bytes;
        for round in 0..150 {
            let mut bytes = bytes.clone();
            for _ in 0..round % 4 {
                let from = if round % 3 == 0 { 2 } else { scan };
                let at = rng.random_range(from..bytes.len());
                match rng.random_range(0..8) {
                    0 => bytes[at] = 0xFF,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, rng.random()),
                    _ => bytes[at] = rng.random(),
                }
            }
            if round % 10 == 9 {
                bytes.truncate(rng.random_range(scan..bytes.len()));
            }
            let Ok(header) = probe(&bytes) else { continue };
            if header.size.area_px() > 1 << 16 {
                continue;
            }
            let part = if round % 2 == 0 { Rect::full(header.size) } else { random_part(&mut rng, header.size) };
            match checked(&bytes, part, &(i, round)) {
                Ok(_) => decoded += 1,
                Err(_) => flagged += 1,
            }
        }
    }
    assert!(decoded > 1500 && flagged > 1500, "{decoded} decoded, {flagged} flagged");
}

#[test]
fn only_the_rows_that_are_needed_are_read_where_there_is_an_index() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let source = image(Size::new(131, 210), &mut rng);
    for sampling in SAMPLINGS {
        let options = JpegOptions { restart_interval_rows: 1, ..options(sampling) };
        let plain = encode_jpeg(&source, &options).unwrap();
        let mut bytes = indexed(&plain).unwrap();
        for part in (0..20).map(|_| random_part(&mut rng, source.size())) {
            checked(&bytes, part, &sampling).unwrap();
        }
        // The first row has no good codes, and the checksum fits these bytes.
        let header = probe(&bytes).unwrap();
        let mut starts = Vec::new();
        assert!(row_starts(&bytes, &header, &mut starts));
        let (index, below) = (header.row_index.unwrap(), Rect { x: 3, y: 150, width: 50, height: 60 });
        let row = &mut bytes[starts[0]..starts[1] - 2];
        row.chunks_exact_mut(2).for_each(|pair| pair.copy_from_slice(&[0xFF, 0]));
        let crc = crc32c::crc32c(&bytes[index.start + 4..]);
        bytes[index.start..index.start + 4].copy_from_slice(&crc.to_be_bytes());
        let got = checked(&bytes, below, &sampling).unwrap();
        assert_eq!(got.pixels(), checked(&plain, below, &sampling).unwrap().pixels());
        assert!(checked(&bytes, Rect::full(source.size()), &sampling).is_err());
    }
}

/// Damage in the row of MCUs below the rectangle. The CPU decodes this row if chroma is interpolated.
#[test]
fn damage_just_below_is_flagged() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let source = image(Size::new(64, 96), &mut rng);
    let options = JpegOptions { restart_interval_rows: 1, ..options((2, 2)) };
    let bytes = encode_jpeg(&source, &options).unwrap();
    let part = Rect { x: 0, y: 16, width: 64, height: 16 };
    let marker = |number: u8| bytes.windows(2).position(|pair| pair == [0xFF, 0xD0 + number]).unwrap();
    for (row, is_flagged) in [(0_u8, true), (1, true), (2, true), (4, false)] {
        let mut bytes = bytes.clone();
        let start = marker(row);
        // This ends the row's data early.
        bytes.drain(start - 20..start);
        assert_eq!(checked(&bytes, part, &row).is_err(), is_flagged, "row {row}");
    }
}

#[test]
fn what_is_no_plain_baseline_image_is_flagged() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let source = image(Size::new(40, 30), &mut rng);
    let plain = options((2, 2));
    let good = encode_jpeg(&source, &plain).unwrap();
    let reason = |bytes: &[u8]| {
        let header = probe(bytes).unwrap();
        decode(bytes, &header, Rect::full(header.size)).err()
    };
    assert_eq!(reason(&good), None);
    let encoded = |options| encode_jpeg(&source, &options).unwrap();
    assert_eq!(reason(&encoded(JpegOptions { progressive: true, ..plain.clone() })), Some(Reason::Progressive));
    for color in [JpegColor::Cmyk, JpegColor::Ycck] {
        assert_eq!(reason(&encoded(JpegOptions { color, ..plain.clone() })), Some(Reason::Components));
    }
    assert_eq!(reason(b"P5 2 1 255\nab"), Some(Reason::Format));
    assert_eq!(reason(&good[..good.len() - 2]), Some(Reason::NoEnd));

    let find = |marker: u8| good.windows(2).position(|pair| pair == [0xFF, marker]).unwrap();
    let (frame, scan, codes, quant) = (find(0xC0), find(0xDA), find(0xC4), find(0xDB));
    let changed = |changes: &[(usize, u8)]| {
        let mut bytes = good.clone();
        changes.iter().for_each(|&(at, value)| bytes[at] = value);
        reason(&bytes)
    };
    assert_eq!(changed(&[(frame + 1, 0xC9)]), Some(Reason::Process));
    assert_eq!(changed(&[(frame + 1, 0xC3)]), Some(Reason::Process));
    assert_eq!(changed(&[(frame + 4, 12)]), Some(Reason::Precision));
    assert_eq!(changed(&[(frame + 5, 0xFF), (frame + 6, 0xFE)]), Some(Reason::TooLarge));
    for factors in [0x12, 0x05, 0x00, 0x33] {
        // Luma: more blocks than an MCU may have, none, too many. Chroma: other factors than one.
        assert_eq!(changed(&[(frame + 11, factors), (frame + 14, 0x12)]), Some(Reason::Sampling));
    }
    assert_eq!(changed(&[(frame + 11, 0x33)]), Some(Reason::Sampling));
    // Changes of a component's name, the coefficients, their bits, and the tables.
    assert_eq!(changed(&[(scan + 5, 77)]), Some(Reason::Header));
    assert_eq!(changed(&[(scan + 12, 62)]), Some(Reason::Header));
    assert_eq!(changed(&[(scan + 13, 1)]), Some(Reason::Header));
    assert_eq!(changed(&[(scan + 6, 0x20)]), Some(Reason::Tables));
    assert_eq!(changed(&[(codes + 1, 0xFE)]), Some(Reason::Tables));
    assert_eq!(changed(&[(codes + 5, 3)]), Some(Reason::Tables));
    assert_eq!(changed(&[(quant + 1, 0xFE)]), Some(Reason::Tables));
    assert_eq!(changed(&[(quant + 1, 0xBF)]), Some(Reason::Header));
    // A scan with one component.
    let mut scans = good.clone();
    scans.splice(scan + 2..scan + 14, [0, 8, 1, 1, 0, 0, 63, 0]);
    assert_eq!(reason(&scans), Some(Reason::SeveralScans));

    let data = scan + 14;
    assert_eq!(reason(&[&good[..data + 40], &[0xFF, 0xD9]].concat()), Some(Reason::Truncated));
    // Codes of all ones do not exist.
    assert_eq!(
        reason(&[&good[..data + 40], &[0xFF, 0].repeat(20), &good[data + 40..]].concat()),
        Some(Reason::Damaged)
    );
}

/// CPU and device find out the same places of an image, which serve either the next time.
#[test]
fn places_serve_the_next_time_whoever_found_them() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut known = 0;
    for (horizontal, vertical) in SAMPLINGS {
        for color in [JpegColor::Ycc, JpegColor::Gray] {
            for restart_interval_rows in [0, 1, 3] {
                let size = Size::new(rng.random_range(150..400), rng.random_range(100..300));
                let quality = rng.random_range(40..=100);
                let options = JpegOptions { quality, restart_interval_rows, color, ..options((horizontal, vertical)) };
                let bytes = encode_jpeg(&image(size, &mut rng), &options).unwrap();
                let (header, what) = (probe(&bytes).unwrap(), (&options, size));
                let Some(grid) = McuGrid::new(&header) else { continue };
                let [cpu, device] = [(); 2].map(|()| {
                    let store = EntryPointStore::new(1 << 20);
                    store.for_devices(true);
                    store
                });
                let first = Rect { x: 3, y: 0, width: 40, height: rng.random_range(1..size.height) };
                let whole = Rect::full(size);
                let mut decoder = Decoder::new().unwrap();
                for part in [first, Rect { width: size.width - 50, ..whole }] {
                    let how = DecodeOptions { accept_truncated: false, entry_points: Some(&cpu) };
                    decoder.decode_with(&bytes, &header, part, how, &mut Image::default()).unwrap();
                    let steps = decode_with(&bytes, &header, part, Some(&device)).unwrap();
                    assert!(!steps.was_known || part != first, "{what:?}");
                }
                let [of_cpu, of_device] = [&cpu, &device].map(|store| {
                    let mut entries = ImageEntryPoints::default();
                    let key = store.key(&bytes, &header, &grid).unwrap();
                    assert!(store.get(&key, &header, &grid, &mut entries).is_known, "{what:?}");
                    assert_eq!(entries.rows, grid.rows, "{what:?}");
                    entries
                });
                assert_eq!((&of_cpu.points, &of_cpu.starts), (&of_device.points, &of_device.starts), "{what:?}");
                // A device that is to have starts finds them out once.
                let mixed = EntryPointStore::new(1 << 20);
                mixed.for_devices(true);
                let alone = to_bytes(&of_cpu.points, grid.step(), &grid, header.scan_offset_bytes);
                mixed.put_bytes(mixed.key(&bytes, &header, &grid).unwrap(), alone, true);
                let decoded = [(); 2].map(|()| decode_with(&bytes, &header, first, Some(&mixed)).unwrap().was_known);
                assert_eq!(decoded, [false, true], "{what:?}");
                let sparse = EntryPointStore::new(1 << 20);
                let how = DecodeOptions { accept_truncated: false, entry_points: Some(&sparse) };
                for part in [first, Rect { width: size.width - 50, ..whole }] {
                    decoder.decode_with(&bytes, &header, part, how, &mut Image::default()).unwrap();
                }
                for store in [&cpu, &device, &sparse, &mixed] {
                    for part in [random_part(&mut rng, size), random_part(&mut rng, size), whole] {
                        let want = on_cpu(&bytes, part).unwrap();
                        let steps = decode_with(&bytes, &header, part, Some(store)).unwrap();
                        assert!(steps.image.pixels() == want.pixels(), "{what:?}, {part:?}");
                        known += u32::from(steps.was_known);
                        let (how, mut out) = (DecodeOptions { entry_points: Some(store), ..how }, Image::default());
                        decoder.decode_with(&bytes, &header, part, how, &mut out).unwrap();
                        assert!(out.pixels() == want.pixels(), "{what:?}, {part:?}");
                    }
                }
            }
        }
    }
    assert!(known > 250, "{known}");
}

/// Points of other data, which only equal hashes could bring about, flag the image.
#[test]
fn wrong_places_are_flagged() {
    let mut rng = ChaCha8Rng::seed_from_u64(10);
    let size = Size::new(300, 200);
    let whole = Rect::full(size);
    for restart_interval_rows in [0, 2] {
        let options = JpegOptions { restart_interval_rows, ..options((2, 1)) };
        let bytes = encode_jpeg(&image(size, &mut rng), &options).unwrap();
        let header = probe(&bytes).unwrap();
        let grid = McuGrid::new(&header).unwrap();
        let store = EntryPointStore::new(1 << 20);
        store.for_devices(true);
        let key = store.key(&bytes, &header, &grid).unwrap();
        for part in [whole, whole] {
            decode_with(&bytes, &header, part, Some(&store)).unwrap();
        }
        let want = on_cpu(&bytes, whole).unwrap();
        let mut entries = ImageEntryPoints::default();
        store.get(&key, &header, &grid, &mut entries);
        let mut flagged = 0;
        for round in 0..300 {
            let mut points = entries.points.clone();
            let at = rng.random_range(0..points.len() - 1);
            match round % 5 {
                0 => points[at].bit = rng.random_range(0..9 * bytes.len() as u32),
                1 => points[at].bit ^= 1 << rng.random_range(0..20),
                2 => points[at].bit = points[rng.random_range(0..points.len())].bit,
                3 => points[at].dc[0] = points[at].dc[0].wrapping_add(rng.random_range(1..99)),
                _ => points[at].dc[2] ^= 1 << rng.random_range(0..8),
            }
            points.iter_mut().for_each(|point| point.bit = point.bit.max(8 * header.scan_offset_bytes as u32));
            points.sort_by_key(|point| point.bit);
            if points == entries.points {
                continue;
            }
            let wrong = EntryPointStore::new(1 << 20);
            let bytes_of = to_bytes(&points, grid.step(), &grid, header.scan_offset_bytes);
            let starts = if round % 2 == 0 { with_starts(&bytes_of, &entries.starts) } else { bytes_of };
            wrong.put_bytes(wrong.key(&bytes, &header, &grid).unwrap(), starts, true);
            match decode_with(&bytes, &header, whole, Some(&wrong)) {
                Ok(steps) if steps.was_known => assert!(steps.image.pixels() == want.pixels(), "round {round}"),
                // Starts that do not fit are not used.
                Ok(_) => {}
                Err(_) => flagged += 1,
            }
        }
        assert!(flagged > 150, "{flagged}");
    }
}

/// No baseline image of the project is left to the CPU, whichever program made it.
#[test]
fn reference_images_are_not_flagged() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/reference/images");
    let decoded = decode_all(&jpegs(&folder), |name| {
        let others = ["progressive", "lossless", "truncated", "cmyk", "ycck", "absurd"];
        !others.iter().any(|other| name.contains(other))
    });
    assert!(decoded > 20, "{decoded}");
}

#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with data/photos/; scripts/test runs it where that is set"]
fn photographs_are_not_flagged() {
    let shared = std::env::var_os("WARPFEED_SHARED").map(PathBuf::from).expect("WARPFEED_SHARED names a folder");
    let decoded = decode_all(&jpegs(&shared.join("data/photos")), |_| true);
    assert!(decoded > 100, "{decoded}");
}

/// All JPEG files in a folder and its subfolders.
fn jpegs(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let files = paths.into_iter().flat_map(|path| if path.is_dir() { jpegs(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|ending| ending == "jpg" || ending == "JPEG")).collect()
}

/// Decodes files, whole and in part. Returns the number of files that were not flagged. Files whose names are in
/// `expected` must not be flagged, unless they are progressive.
fn decode_all(paths: &[PathBuf], expected: impl Fn(&str) -> bool) -> usize {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut decoded = 0;
    for path in paths {
        let (name, bytes) = (path.file_name().unwrap().to_string_lossy(), fs::read(path).unwrap());
        let header = probe(&bytes).unwrap();
        for part in [Rect::full(header.size), random_part(&mut rng, header.size)] {
            match checked(&bytes, part, &name) {
                Ok(_) => decoded += 1,
                Err(reason) => {
                    assert!(!expected(&name) || reason == Reason::Progressive, "{}: {reason:?}", path.display());
                }
            }
        }
    }
    decoded
}
