//! Compares the kernels with the CPU's decoder.
#![allow(unsafe_code)]

use super::kernels::DecodeStep;
use super::lower::{Lowered, unpacked_dc};
use super::params::JpegImage;
use crate::backend::cpu_fallbacks::{UNUSED_BYTES, reason_of_status};
use crate::decode::oddities::{Choices, decode_in_all_ways, know_the_same, odd, with_bad_first_row, with_points_of};
use crate::decode::{
    Baseline, DecodeOptions, Decoder, DeviceBytes, DevicePoints, EntryPointStore, Header, PointMemory, Reason, indexed,
    probe,
};
use crate::encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg};
use crate::ops::descriptors::Launch;
use crate::raster::{Image, Rect, Size};
use cuda_sim::{Counts, Kernel, LAUNCH_BYTES, Memory};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Images in simulated memory, which initially holds only their data.
struct Simulated {
    images: Vec<JpegImage>,
    /// For each image: its own memory, its data, its tables, its status; its stretches and sums, if they are known; its
    /// places and the DC coefficients there, if they are learned.
    memory: Vec<[Memory; 8]>,
    points: Vec<DevicePoints>,
    descriptors: Mutex<Memory>,
}

fn put(bytes: &[u8]) -> Memory {
    // Kernels read whole vectors.
    let mut memory = Memory::new(bytes.len().next_multiple_of(16), 0);
    memory.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    memory
}

impl Simulated {
    /// The images whose headers allow the device's decoder.
    fn new(jpegs: &[(&[u8], Rect)], store: Option<&EntryPointStore>) -> Self {
        let headers: Vec<Header> = jpegs.iter().map(|(bytes, _)| probe(bytes).unwrap()).collect();
        let jpegs: Vec<_> = jpegs.iter().zip(&headers).map(|((bytes, part), header)| (*bytes, header, *part)).collect();
        Self::of(&jpegs, store)
    }

    fn of(jpegs: &[(&[u8], &Header, Rect)], store: Option<&EntryPointStore>) -> Self {
        let (mut images, mut memory, mut all_points) = (Vec::new(), Vec::new(), Vec::new());
        for (bytes, header, part) in jpegs {
            let image = Baseline::new(bytes, header).unwrap();
            let mut known = PointMemory::default();
            let (window, points) = DevicePoints::find(
                store,
                (&image, DeviceBytes::Window(bytes), header),
                *part,
                &mut known,
                &mut Vec::new(),
            );
            let lowered = Lowered::new(&image, *part, &window, (&points, &known));
            let (stretches, sums) = lowered.points();
            let (mcus, dc) =
                if let DevicePoints::New(points) = &points { (points.mcus() + 1, points.points()) } else { (0, 0) };
            let own = [
                Memory::new(lowered.len_bytes, 0),
                put(&bytes[lowered.data.clone()]),
                put(bytemuck::bytes_of(&lowered.tables())),
                put(&[0; 4]),
                put(bytemuck::cast_slice(&stretches)),
                put(bytemuck::cast_slice(&sums)),
                Memory::new(size_of::<u32>() * mcus, 0),
                Memory::new(size_of::<u64>() * dc, 0),
            ];
            let [at, data, tables, status, stretches, sums, mcus, point_dc] =
                [0, 1, 2, 3, 4, 5, 6, 7].map(|i: usize| own[i].address());
            let (mcus, point_dc) = if dc > 0 { (mcus, point_dc) } else { (0, 0) };
            images.push(JpegImage { status, stretches, sums, mcus, point_dc, ..lowered.at(at, data, tables) });
            memory.push(own);
            all_points.push(points);
        }
        let descriptors = Mutex::new(put(bytemuck::cast_slice(&images)));
        Self { images, memory, points: all_points, descriptors }
    }

    fn is_known(&self, image: usize) -> bool {
        matches!(self.points[image], DevicePoints::Known)
    }

    /// Runs a step on the images that it is for.
    fn run(&self, step: DecodeStep) {
        if !self.images.iter().any(|image| step.is_for(image)) {
            return;
        }
        // SAFETY: all memory that the launch points to exists.
        self.with_launch(step, |kernel, grid, block, launch| unsafe { kernel.launch(grid, block, launch) }.unwrap());
    }

    /// The effects of a step on memory.
    fn counted(&self, step: DecodeStep) -> Counts {
        // SAFETY: all memory that the launch points to exists, and no other launch runs.
        self.with_launch(step, |kernel, grid, block, launch| unsafe { kernel.counted(grid, block, launch) }.unwrap())
    }

    fn with_launch<T>(
        &self,
        step: DecodeStep,
        run: impl FnOnce(Kernel, [u32; 3], [u32; 3], &[u8; LAUNCH_BYTES]) -> T,
    ) -> T {
        // While a launch is counted, no other one runs.
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let images: Vec<JpegImage> = self.images.iter().filter(|image| step.is_for(image)).copied().collect();
        let mut descriptors = self.descriptors.lock().unwrap_or_else(PoisonError::into_inner);
        descriptors.bytes_mut()[..size_of_val(&images[..])].copy_from_slice(bytemuck::cast_slice(&images));
        let (grid, block) = step.grid(&images);
        let count = images.len() as u32;
        let launch = Launch { samples: descriptors.address(), table: 0, count, reserved: 0 };
        // SAFETY: numbers without padding.
        let launch: [u8; LAUNCH_BYTES] = unsafe { std::mem::transmute(launch) };
        run(Kernel::find(step.name()).unwrap(), grid, block, &launch)
    }

    /// `count` values of an image's memory.
    fn values<T: bytemuck::AnyBitPattern>(&self, image: usize, address: u64, count: usize) -> Vec<T> {
        let memory = &self.memory[image][0];
        let from = (address - memory.address()) as usize;
        let bytes = &memory.bytes()[from..from + count * size_of::<T>()];
        bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }

    /// `count` values of another memory of an image.
    fn values_of<T: bytemuck::AnyBitPattern>(&self, image: usize, memory: usize, count: usize) -> Vec<T> {
        let bytes = &self.memory[image][memory].bytes()[..count * size_of::<T>()];
        bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }

    /// Runs all steps.
    fn decode(&self) {
        DecodeStep::JUDGING.into_iter().chain(DecodeStep::MAKING).for_each(|step| self.run(step));
    }

    /// The pixels of a part of this size.
    fn pixels(&self, image: usize, size: Size) -> Vec<[u8; 3]> {
        self.values(image, self.images[image].pixels, size.area_px() as usize)
    }

    /// Stores the places that were found out of images that are not flagged.
    fn learn(&self, store: &EntryPointStore) {
        for (i, points) in self.points.iter().enumerate() {
            let DevicePoints::New(points) = points else { continue };
            match self.status(i) {
                0 => {
                    let bits: Vec<u32> = self.values_of(i, 6, points.mcus() + 1);
                    let dc: Vec<u64> = self.values_of(i, 7, points.points());
                    points.store(store, bits.into_iter(), dc.into_iter().map(unpacked_dc));
                }
                UNUSED_BYTES => points.store_none(store),
                _ => {}
            }
        }
    }

    fn status(&self, image: usize) -> u32 {
        bytemuck::pod_read_unaligned(&self.memory[image][3].bytes()[..4])
    }
}

/// The CPU's pixels.
fn on_cpu(bytes: &[u8], part: Rect) -> crate::error::Result<Vec<[u8; 3]>> {
    let mut out = Image::default();
    Decoder::new()?.decode(bytes, &probe(bytes)?, part, false, &mut out)?;
    Ok(out.pixels().iter().map(|&[r, g, b, _]| [r, g, b]).collect())
}

/// Runs the kernels on images together, and compares the pixels of those that are not flagged with the CPU's. Returns
/// the reasons for which images are flagged.
fn compare(jpegs: &[(&[u8], Rect)], what: &dyn std::fmt::Debug) -> Vec<Option<Reason>> {
    compare_with(jpegs, None, what).0
}

/// Compares as [`compare`] does, with places that a store knows, and stores others. Also returns how many images'
/// places were known.
fn compare_with(
    jpegs: &[(&[u8], Rect)],
    store: Option<&EntryPointStore>,
    what: &dyn std::fmt::Debug,
) -> (Vec<Option<Reason>>, usize) {
    let simulated = Simulated::new(jpegs, store);
    simulated.decode();
    store.into_iter().for_each(|store| simulated.learn(store));
    let compared = |(i, &(bytes, part)): (usize, &(&[u8], Rect))| {
        let reason = reason_of_status(simulated.status(i));
        if reason.is_none() {
            let want = on_cpu(bytes, part);
            let want = want.unwrap_or_else(|error| panic!("{what:?}, image {i}, {part:?}: not flagged, and {error}"));
            let got = simulated.pixels(i, part.size());
            let differs = got.iter().zip(&want).position(|(got, want)| got != want);
            assert!(differs.is_none(), "{what:?}, image {i}, {part:?}: pixel {differs:?} differs");
        }
        reason
    };
    let reasons = jpegs.iter().enumerate().map(compared).collect();
    (reasons, (0..jpegs.len()).filter(|&image| simulated.is_known(image)).count())
}

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

fn random_part(rng: &mut ChaCha8Rng, size: Size) -> Rect {
    let (x, y) = (rng.random_range(0..size.width), rng.random_range(0..size.height));
    Rect { x, y, width: rng.random_range(1..=size.width - x), height: rng.random_range(1..=size.height - y) }
}

#[rustfmt::skip]
const SIZES: [(u32, u32); 16] = [
    (1, 1), (1, 40), (40, 1), (2, 3), (3, 2), (5, 4), (7, 5), (8, 8), (16, 16), (17, 33), (18, 18), (34, 50), (65, 47),
    (66, 34), (100, 36), (131, 97),
];

const SAMPLINGS: [(u8, u8); 9] = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (4, 2), (1, 4), (2, 4), (3, 1)];

#[test]
fn every_sampling_size_and_quality() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut qualities = (1..=100).cycle();
    for (horizontal, vertical) in SAMPLINGS {
        let sampling = ChromaSampling { horizontal, vertical };
        let (mut jpegs, mut may_fail) = (Vec::new(), Vec::new());
        for (width, height) in SIZES {
            let source = image(Size::new(width, height), &mut rng);
            for color in [JpegColor::Ycc, JpegColor::Rgb, JpegColor::Gray] {
                for restart_interval_rows in [0, 1, 2, 3] {
                    let quality = qualities.next().unwrap();
                    let options =
                        JpegOptions { quality, sampling, restart_interval_rows, color, ..JpegOptions::default() };
                    let bytes = encode_jpeg(&source, &options).unwrap();
                    let bytes = if rng.random() { indexed(&bytes).unwrap_or(bytes) } else { bytes };
                    let parts = (0..3).map(|_| random_part(&mut rng, source.size())).collect::<Vec<_>>();
                    for part in parts.into_iter().chain([Rect::full(source.size())]) {
                        jpegs.push((bytes.clone(), part));
                        // Without restarts, and with one code for all components, the phase cannot be found.
                        may_fail.push(color == JpegColor::Rgb && restart_interval_rows == 0);
                    }
                }
            }
        }
        let jpegs: Vec<_> = jpegs.iter().map(|(bytes, part)| (&bytes[..], *part)).collect();
        for (i, (reason, may_fail)) in compare(&jpegs, &sampling).into_iter().zip(may_fail).enumerate() {
            let is_expected = reason.is_none_or(|reason| may_fail && reason == Reason::Unsynchronized);
            assert!(is_expected, "{sampling:?}, image {i}: {reason:?}");
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
    let whole = Rect::full(source.size());
    for (quality, times) in [(30, 1), (30, 4), (80, 17), (5, 255)] {
        let options = JpegOptions { quality, sampling: ChromaSampling::S420, ..JpegOptions::default() };
        let bytes = encode_jpeg(&source, &options).unwrap();
        let long = with_long_tables(&bytes, times);
        assert_eq!(long.len(), bytes.len() + 128, "both tables");
        assert_eq!(compare(&[(&long, whole)], &(quality, times)), [None]);
        assert_eq!(on_cpu(&long, whole).unwrap() == on_cpu(&bytes, whole).unwrap(), times == 1);
    }
}

#[test]
fn only_the_rows_that_are_needed_are_read_where_there_is_an_index() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let source = image(Size::new(131, 210), &mut rng);
    for (horizontal, vertical) in SAMPLINGS {
        let sampling = ChromaSampling { horizontal, vertical };
        let options = JpegOptions { restart_interval_rows: 1, sampling, ..JpegOptions::default() };
        let plain = encode_jpeg(&source, &options).unwrap();
        let bytes = indexed(&plain).unwrap();
        let parts: Vec<_> = (0..20).map(|_| (&bytes[..], random_part(&mut rng, source.size()))).collect();
        assert!(compare(&parts, &sampling).iter().all(Option::is_none));
        let bad = with_bad_first_row(&bytes).unwrap();
        let below = Rect { x: 3, y: 150, width: 50, height: 60 };
        let flagged = compare(&[(&bad, below), (&bad, Rect::full(source.size()))], &sampling);
        assert!(flagged[0].is_none() && flagged[1].is_some(), "{flagged:?}");
        assert_eq!(on_cpu(&bad, below).unwrap(), on_cpu(&plain, below).unwrap());
    }
}

/// Damage in the row of MCUs below the rectangle. The CPU decodes this row if chroma is interpolated.
#[test]
fn damage_just_below_is_flagged() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let source = image(Size::new(64, 96), &mut rng);
    let options = JpegOptions { restart_interval_rows: 1, sampling: ChromaSampling::S420, ..JpegOptions::default() };
    let bytes = encode_jpeg(&source, &options).unwrap();
    let part = Rect { x: 0, y: 16, width: 64, height: 16 };
    let marker = |number: u8| bytes.windows(2).position(|pair| pair == [0xFF, 0xD0 + number]).unwrap();
    for (row, is_flagged) in [(0_u8, true), (1, true), (2, true), (4, false)] {
        let mut bytes = bytes.clone();
        let start = marker(row);
        // This ends the row's data early.
        bytes.drain(start - 20..start);
        assert_eq!(compare(&[(&bytes, part)], &row)[0].is_some(), is_flagged, "row {row}");
    }
}

#[test]
fn data_that_end_early_or_have_no_code_are_flagged() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let source = image(Size::new(40, 30), &mut rng);
    let good = encode_jpeg(&source, &JpegOptions::default()).unwrap();
    let data = probe(&good).unwrap().scan_offset_bytes;
    let reason = |bytes: &[u8]| compare(&[(bytes, Rect::full(source.size()))], &"damaged")[0];
    assert_eq!(reason(&good), None);
    assert_eq!(reason(&[&good[..data + 40], &[0xFF, 0xD9]].concat()), Some(Reason::Truncated));
    // Codes of all ones do not exist.
    let ones = [&good[..data + 40], &[0xFF, 0].repeat(20), &good[data + 40..]].concat();
    assert_eq!(reason(&ones), Some(Reason::Damaged));
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
                let (quality, sampling) = (rng.random_range(40..=100), ChromaSampling { horizontal, vertical });
                let options = JpegOptions { quality, restart_interval_rows, color, sampling, ..JpegOptions::default() };
                let bytes = encode_jpeg(&image(size, &mut rng), &options).unwrap();
                let (header, what) = (probe(&bytes).unwrap(), (&options, size));
                let on_device = |part: Rect, store: &EntryPointStore| {
                    let (reasons, known) = compare_with(&[(&bytes, part)], Some(store), &what);
                    assert_eq!(reasons, [None], "{what:?}");
                    known > 0
                };
                let mut decoder = Decoder::new().unwrap();
                let mut decode = |part: Rect, store: &EntryPointStore| {
                    let how = DecodeOptions { accept_truncated: false, entry_points: Some(store) };
                    let mut out = Image::default();
                    decoder.decode_with(&bytes, &header, part, how, &mut out).unwrap();
                    out.pixels().iter().map(|&[r, g, b, _]| [r, g, b]).collect::<Vec<_>>()
                };
                let [cpu, device] = [(); 2].map(|()| {
                    let store = EntryPointStore::new(1 << 20);
                    store.for_devices(true);
                    store
                });
                let whole = Rect::full(size);
                let new = EntryPointStore::new(1 << 20);
                if matches!(Simulated::new(&[(&bytes, whole)], Some(&new)).points[0], DevicePoints::Nothing) {
                    continue;
                }
                let first = Rect { x: 3, y: 0, width: 40, height: rng.random_range(1..size.height) };
                let most = Rect { width: size.width - 50, ..whole };
                for part in [first, most] {
                    decode(part, &cpu);
                    assert!(!on_device(part, &device) || part != first, "{what:?}");
                }
                assert!(know_the_same([&cpu, &device], &bytes), "{what:?}");
                // A device that is to have starts finds them out once.
                let mixed = with_points_of(&cpu, &bytes, None).unwrap();
                assert_eq!([(); 2].map(|()| on_device(first, &mixed)), [false, true], "{what:?}");
                let sparse = EntryPointStore::new(1 << 20);
                for part in [first, most] {
                    decode(part, &sparse);
                }
                for store in [&cpu, &device, &sparse, &mixed] {
                    for part in [random_part(&mut rng, size), random_part(&mut rng, size), whole] {
                        known += u32::from(on_device(part, store));
                        assert!(decode(part, store) == on_cpu(&bytes, part).unwrap(), "{what:?}, {part:?}");
                    }
                }
            }
        }
    }
    assert!(known > 250, "{known}");
}

/// Points of other data, which only equal hashes could bring about, flag the image.
#[test]
fn wrong_points_are_flagged() {
    let mut rng = ChaCha8Rng::seed_from_u64(10);
    let size = Size::new(300, 200);
    let whole = Rect::full(size);
    for restart_interval_rows in [0, 2] {
        let options = JpegOptions { restart_interval_rows, sampling: ChromaSampling::S422, ..JpegOptions::default() };
        let bytes = encode_jpeg(&image(size, &mut rng), &options).unwrap();
        let store = EntryPointStore::new(1 << 20);
        store.for_devices(true);
        for _ in 0..2 {
            assert_eq!(compare_with(&[(&bytes, whole)], Some(&store), &"right").0, [None]);
        }
        let mut flagged = 0;
        for round in 0..300 {
            let choices: [u8; 32] = rng.random();
            let Some(wrong) = with_points_of(&store, &bytes, Some(&mut Choices::new(&choices))) else { continue };
            // Points that do not fit are not used, and others flag the image or serve.
            flagged += compare_with(&[(&bytes, whole)], Some(&wrong), &round).0.iter().flatten().count();
        }
        assert!(flagged > 150, "{flagged}");
    }
}

/// Rare and damaged data decode as on the CPU, with places that either has found out.
#[test]
fn odd_data_decode_as_on_the_cpu_in_all_epochs() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut jpegs = Vec::new();
    for (width, height) in [(9, 150), (290, 40), (140, 90)] {
        let mut source = Image::new(Size::new(width, height));
        source.pixels_mut().iter_mut().for_each(|pixel| *pixel = rng.random());
        for color in [JpegColor::Ycc, JpegColor::Gray] {
            for (horizontal, vertical) in [(1, 1), (2, 1), (2, 2)] {
                for restart_interval_rows in [0, 1] {
                    let sampling = ChromaSampling { horizontal, vertical };
                    let quality = rng.random_range(60..=100);
                    let options =
                        JpegOptions { quality, sampling, color, restart_interval_rows, ..JpegOptions::default() };
                    let jpeg = encode_jpeg(&source, &options).unwrap();
                    jpegs.extend(indexed(&jpeg));
                    jpegs.push(jpeg);
                }
            }
        }
    }
    let mut decoded = 0;
    let mut device = |bytes: &[u8], header: &Header, part: Rect, store: Option<&EntryPointStore>| {
        Baseline::new(bytes, header).ok()?;
        let simulated = Simulated::of(&[(bytes, header, part)], store);
        simulated.decode();
        store.into_iter().for_each(|store| simulated.learn(store));
        reason_of_status(simulated.status(0)).is_none().then(|| {
            decoded += 1;
            simulated.pixels(0, part.size()).into_iter().map(|[r, g, b]| [r, g, b, 255]).collect()
        })
    };
    for round in 0..500 {
        let bytes: [u8; 64] = rng.random();
        let mut choices = Choices::new(&bytes);
        decode_in_all_ways(&odd(&jpegs[round % jpegs.len()], &mut choices), &mut choices, &mut device);
    }
    assert!(decoded > 500, "{decoded}");
}

/// No baseline image of the project is left to the CPU, whichever program made it.
#[test]
fn reference_images_are_not_flagged() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/images");
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

/// Decodes files, whole and in part. Returns the number of images that were not flagged. Files whose names are
/// `expected` must not be flagged, unless they are progressive.
fn decode_all(paths: &[PathBuf], expected: impl Fn(&str) -> bool) -> usize {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut decoded = 0;
    for path in paths {
        let (name, bytes) = (path.file_name().unwrap().to_string_lossy(), fs::read(path).unwrap());
        let header = probe(&bytes).unwrap();
        let parts = [Rect::full(header.size), random_part(&mut rng, header.size)];
        let reasons = match Baseline::new(&bytes, &header) {
            Ok(_) => compare(&parts.map(|part| (&bytes[..], part)), &name),
            Err(reason) => vec![Some(reason)],
        };
        for reason in reasons {
            decoded += usize::from(reason.is_none());
            let is_left = reason.is_some_and(|reason| reason != Reason::Progressive);
            assert!(!is_left || !expected(&name), "{}: {reason:?}", path.display());
        }
    }
    decoded
}

/// Places are found out the first and the second time, and then used, in batches with other images.
#[test]
fn places_are_found_out_and_used() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (mut known, mut learned) = (0, 0);
    for (horizontal, vertical) in SAMPLINGS {
        let sampling = ChromaSampling { horizontal, vertical };
        let mut jpegs = Vec::new();
        for (width, height) in [(131, 97), (270, 150)] {
            let source = image(Size::new(width, height), &mut rng);
            for color in [JpegColor::Ycc, JpegColor::Gray] {
                for restart_interval_rows in 0..3 {
                    let quality = rng.random_range(50..=100);
                    let options =
                        JpegOptions { quality, sampling, restart_interval_rows, color, ..JpegOptions::default() };
                    jpegs.push((encode_jpeg(&source, &options).unwrap(), source.size()));
                }
            }
        }
        let store = EntryPointStore::new(1 << 20);
        store.for_devices(horizontal != 2);
        for round in 0..5 {
            // The first time, only some images are decoded.
            let some = if round == 0 { &jpegs[..jpegs.len() / 2] } else { &jpegs };
            let batch: Vec<_> = some
                .iter()
                .map(|(bytes, size)| {
                    (&bytes[..], if round == 1 { Rect::full(*size) } else { random_part(&mut rng, *size) })
                })
                .collect();
            let before = Simulated::new(&batch, Some(&store));
            learned += before.points.iter().filter(|points| matches!(points, DevicePoints::New(_))).count();
            let (flagged, of_batch) = compare_with(&batch, Some(&store), &(horizontal, vertical, round));
            known += of_batch;
            assert!(flagged.iter().all(Option::is_none), "{flagged:?}");
        }
    }
    assert!(known > 150 && learned > 50, "{known} {learned}");
}

/// Wrong places flag the image, and never lead outside of memory.
#[test]
fn wrong_places_flag_the_image() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let source = image(Size::new(270, 150), &mut rng);
    let whole = Rect::full(source.size());
    let mut flagged = 0;
    for restart_interval_rows in [0, 1] {
        let options = JpegOptions { restart_interval_rows, ..JpegOptions::default() };
        let bytes = encode_jpeg(&source, &options).unwrap();
        let store = EntryPointStore::new(1 << 20);
        store.for_devices(true);
        compare_with(&[(&bytes, whole)], Some(&store), &"right");
        let pixels = |simulated: &Simulated| {
            simulated.decode();
            simulated.pixels(0, source.size())
        };
        let right = Simulated::new(&[(&bytes, whole)], Some(&store));
        let want = pixels(&right);
        assert!(right.is_known(0) && right.status(0) == 0);
        for round in 0..60 {
            let mut simulated = Simulated::new(&[(&bytes, whole)], Some(&store));
            let [_, data, _, _, stretches, sums, ..] = &mut simulated.memory[0];
            let mut change = |memory: &mut Memory, places: std::ops::Range<usize>, bits: u8| {
                memory.bytes_mut()[rng.random_range(places)] ^= rng.random_range(1..=bits);
            };
            match round % 4 {
                // A bit of a stretch, or its end; whole words.
                0 => change(stretches, 16 * (round / 4)..16 * (round / 4) + 8, 255),
                // A DC coefficient before the first MCUs of a row.
                1 => change(sums, 72 * (round / 8)..72 * (round / 8) + 6, 255),
                2 => change(data, 0..bytes.len() - 700, 255),
                // The ends of two stretches.
                _ => {
                    change(stretches, 16 * (round / 4) + 4..16 * (round / 4) + 6, 7);
                    change(stretches, 160..162, 7);
                }
            }
            let got = pixels(&simulated);
            match simulated.status(0) {
                // Damage in the data is not looked for, but nothing leaves memory.
                0 => assert!(got == want || round % 4 == 2, "round {round}"),
                _ => flagged += 1,
            }
        }
    }
    assert!(flagged > 85, "{flagged}");
}

/// Several blocks of threads that synchronize, and more data than the unstuffing threads read in one round.
#[test]
fn threads_fall_into_step() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let source = image(Size::new(700, 375), &mut rng);
    let whole = Rect::full(source.size());
    let encoded = |sampling, quality, color| {
        encode_jpeg(&source, &JpegOptions { quality, sampling, color, ..JpegOptions::default() }).unwrap()
    };
    let good = [
        (ChromaSampling::S444, 90),
        (ChromaSampling::S420, 95),
        (ChromaSampling::S422, 40),
        (ChromaSampling::S420, 100),
    ]
    .map(|(sampling, quality)| encoded(sampling, quality, JpegColor::Ycc));
    assert!(good[3].len() > 70_000, "{}", good[3].len());
    let jpegs: Vec<_> = good.iter().map(|bytes| (&bytes[..], whole)).collect();
    assert!(compare(&jpegs, &"YCC").iter().all(Option::is_none));
    let never = encoded(ChromaSampling::S444, 75, JpegColor::Rgb);
    assert_eq!(compare(&[(&never, whole)], &"RGB"), [Some(Reason::Unsynchronized)]);
}

/// For any data: images that are not flagged have the CPU's pixels.
#[test]
fn damaged_data_are_flagged_or_decoded_alike() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let source = image(Size::new(93, 71), &mut rng);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/images");
    let mut images =
        ["absurd-baseline.jpg", "absurd-wide.jpg"].map(|name| fs::read(folder.join(name)).unwrap()).to_vec();
    for sampling in [ChromaSampling::S444, ChromaSampling::S420, ChromaSampling::S440] {
        for restart_interval_rows in [0, 1, 2] {
            for color in [JpegColor::Ycc, JpegColor::Gray, JpegColor::Rgb] {
                let options = JpegOptions { restart_interval_rows, sampling, color, ..JpegOptions::default() };
                images.push(encode_jpeg(&source, &options).unwrap());
            }
        }
    }
    let (mut decoded, mut flagged) = (0, 0);
    for (i, bytes) in images.iter().enumerate() {
        let scan = probe(bytes).unwrap().scan_offset_bytes;
        let mut batch = Vec::new();
        for round in 0..180 {
            let mut bytes = bytes.clone();
            if round >= 120 {
                bytes = odd(&bytes, &mut Choices::new(&rng.random::<[u8; 32]>()));
            }
            for _ in 0..round % 4 * u32::from(round < 120) {
                let from = if round % 3 == 0 { 2 } else { scan };
                let at = rng.random_range(from..bytes.len() - 2);
                match rng.random_range(0..8) {
                    0 => bytes[at] = 0xFF,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, rng.random()),
                    3 => bytes[at..at + 2].copy_from_slice(&[0xFF, 0xD0 + rng.random_range(0..10)]),
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
            if Baseline::new(&bytes, &header).is_ok() {
                batch.push((bytes, part));
            }
        }
        let batch: Vec<_> = batch.iter().map(|(bytes, part)| (&bytes[..], *part)).collect();
        for reason in compare(&batch, &i) {
            *(if reason.is_none() { &mut decoded } else { &mut flagged }) += 1;
        }
    }
    assert!(decoded > 750 && flagged > 750, "{decoded} decoded, {flagged} flagged");
}

/// The kernels' effects on memory for a 4:2:0 image of 500 x 375 pixels, as in kernels/model.tsv.
#[test]
fn the_table_has_the_counts() {
    let table = include_str!("../../../../kernels/model.tsv");
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let size = Size::new(500, 375);
    let mut source = image(size, &mut rng);
    // About four bits a pixel, as in photographs.
    source.pixels_mut().iter_mut().for_each(|pixel| *pixel = pixel.map(|value| value / 2));
    let store = EntryPointStore::new(1 << 20);
    store.for_devices(true);
    let (mut wrong, mut counted) = (Vec::new(), 0);
    // The third time, the places of the image without restarts are known.
    for (what, restart_interval_rows, is_known) in [("", 0, false), (", with restarts", 1, false), ("", 0, true)] {
        let options = JpegOptions { sampling: ChromaSampling::S420, restart_interval_rows, ..JpegOptions::default() };
        let bytes = encode_jpeg(&source, &options).unwrap();
        let bits_a_pixel = 8.0 * bytes.len() as f64 / size.area_px() as f64;
        println!("bits a pixel{what}: {bits_a_pixel:.2}");
        let simulated = Simulated::new(&[(&bytes, Rect::full(size))], Some(&store));
        for step in DecodeStep::JUDGING.into_iter().chain(DecodeStep::MAKING) {
            if !step.is_for(&simulated.images[0]) {
                continue;
            }
            let counts = simulated.counted(step);
            let is_new = match (is_known, restart_interval_rows) {
                (true, _) => matches!(step, DecodeStep::CoefficientsKnown | DecodeStep::DcKnown),
                (false, 0) => true,
                _ => step == DecodeStep::Coefficients,
            };
            if !is_new {
                continue;
            }
            counted += 1;
            let name = format!("{}{what}", step.name());
            let a_pixel = |count: u64| count as f64 / size.area_px() as f64;
            let (sectors, wavefronts) = (a_pixel(counts.sectors), a_pixel(counts.shared_wavefronts));
            let (accesses, shared) = (a_pixel(counts.accesses), a_pixel(counts.shared_accesses));
            println!("counted | {name} | {sectors:.4} | {wavefronts:.4} | {accesses:.4} | {shared:.4}");
            let row = table.lines().find(|line| line.starts_with(&format!("{name}\t")));
            let cells: Vec<Option<f64>> =
                row.map_or(Vec::new(), |row| row.split('\t').map(|cell| cell.parse().ok()).collect());
            // The columns before are the kernel, its bytes, registers and shared memory.
            let close = |got: f64, at: usize| {
                cells.get(at).copied().flatten().is_some_and(|want| (got - want).abs() <= 0.1 * got + 0.01)
            };
            if !(close(sectors, 4) && close(wavefronts, 5)) {
                wrong.push(format!("{name}: {sectors:.2} sectors and {wavefronts:.2} wavefronts a pixel"));
            }
        }
        assert_eq!(simulated.status(0), 0);
        simulated.learn(&store);
    }
    assert_eq!(counted, DecodeStep::JUDGING.len() + DecodeStep::MAKING.len() + 1);
    assert!(wrong.is_empty(), "`scripts/kernels table` makes the table anew: {wrong:#?}");
}
