//! Compares the kernels with the same steps in plain code.
#![allow(unsafe_code)]

use super::kernels::DecodeStep;
use super::lower::{BLOCK_RUNS, Lowered, unpacked_dc};
use super::params::{JpegImage, JpegSums};
use crate::backend::cpu_fallbacks::{UNUSED_BYTES, reason_of_status};
use crate::decode::kernel_steps::{self, StepResults};
use crate::decode::oddities::{Choices, odd};
use crate::decode::{Baseline, DevicePoints, EntryPointStore, PointMemory, Reason, indexed, probe};
use crate::encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg};
use crate::ops::descriptors::Launch;
use crate::raster::{Image, Rect, Size};
use cuda_sim::{Counts, Kernel, LAUNCH_BYTES, Memory};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::fs;
use std::path::Path;
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

/// In a number of blocks: it counts from the first block of the data, as in kernels/jpeg.cuh.
const ABSOLUTE: u32 = 1 << 31;

fn put(bytes: &[u8]) -> Memory {
    // Kernels read whole vectors.
    let mut memory = Memory::new(bytes.len().next_multiple_of(16), 0);
    memory.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    memory
}

impl Simulated {
    /// The images whose headers allow the device's decoder.
    fn new(jpegs: &[(&[u8], Rect)], store: Option<&EntryPointStore>) -> Self {
        let (mut images, mut memory, mut all_points) = (Vec::new(), Vec::new(), Vec::new());
        for (bytes, part) in jpegs {
            let header = probe(bytes).unwrap();
            let image = Baseline::new(bytes, &header).unwrap();
            let mut known = PointMemory::default();
            let (window, points) =
                DevicePoints::find(store, (&image, bytes, &header), *part, &mut known, &mut Vec::new());
            let lowered = Lowered::new(&image, bytes, *part, &window, (&points, &known));
            let (stretches, sums) = lowered.points();
            let (mcus, dc) =
                if let DevicePoints::New(points) = &points { (points.mcus() + 1, points.points()) } else { (0, 0) };
            let own = [
                Memory::new(lowered.len_bytes, 0),
                put(lowered.data),
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

    /// The stretches and sums of an image whose places are known.
    fn known(&self, image: usize) -> (Vec<[u32; 4]>, Vec<JpegSums>) {
        let JpegImage { stretch_count, sum_count, .. } = self.images[image];
        let sums = self.values_of::<[u64; 3]>(image, 5, sum_count as usize);
        let sums = sums.into_iter().map(|[dc, end_dc, mcus]| {
            let (mcu, mcus) = (mcus as u32, (mcus >> 32) as u32);
            JpegSums { dc, end_dc, mcu, mcus }
        });
        (self.values_of(image, 4, stretch_count as usize), sums.collect())
    }

    fn status(&self, image: usize) -> u32 {
        bytemuck::pod_read_unaligned(&self.memory[image][3].bytes()[..4])
    }
}

/// Runs the kernels on images together, and compares each step's result for each image with the plain code. Returns the
/// reasons for which images are flagged.
fn compare(jpegs: &[(&[u8], Rect)], what: &dyn std::fmt::Debug) -> Vec<Option<Reason>> {
    compare_with(jpegs, None, what)
}

/// Compares as [`compare`] does, with places that a store knows, and stores others.
fn compare_with(
    jpegs: &[(&[u8], Rect)],
    store: Option<&EntryPointStore>,
    what: &dyn std::fmt::Debug,
) -> Vec<Option<Reason>> {
    let simulated = Simulated::new(jpegs, store);
    let model = |(bytes, part): &(&[u8], Rect)| kernel_steps::decode_with(bytes, &probe(bytes).unwrap(), *part, store);
    let models: Vec<Result<StepResults, Reason>> = jpegs.iter().map(model).collect();
    let each = |check: &dyn Fn(usize, &JpegImage, &StepResults)| {
        for (i, (image, model)) in simulated.images.iter().zip(&models).enumerate() {
            if let Ok(steps) = model {
                check(i, image, steps);
            }
        }
    };
    simulated.run(DecodeStep::Count);
    simulated.run(DecodeStep::Unstuff);
    each(&|i, image, steps| {
        let bytes: Vec<u8> = simulated.values(i, image.bytes, steps.scan.bytes.len().next_multiple_of(4));
        let bytes: Vec<u8> = (0..steps.scan.bytes.len()).map(|at| bytes[at ^ 3]).collect();
        assert!(bytes == steps.scan.bytes, "{what:?}, image {i}: bytes");
        let bounds: Vec<u32> = simulated.values(i, image.bounds, image.segments as usize + 1);
        let want: Vec<u32> = steps.scan.bounds.iter().map(|&bound| bound as u32).take(bounds.len()).collect();
        assert_eq!(bounds, want, "{what:?}, image {i}: bounds");
    });
    for step in [DecodeStep::Codes, DecodeStep::Sync, DecodeStep::SyncAgain, DecodeStep::Join] {
        simulated.run(step);
    }
    each(&|i, image, steps| {
        // The plain code has a run for each segment.
        if image.segment_blocks > 0 || simulated.is_known(i) {
            return;
        }
        let runs: Vec<[u32; 3]> = simulated.values(i, image.runs, steps.runs.len());
        let ends: Vec<[u32; 3]> = simulated.values(i, image.ends, image.run_blocks());
        for (at, (run, [bit, place, block])) in steps.runs.iter().zip(runs).enumerate() {
            let want = (run.start.bit, run.start.block << 8 | run.start.index, run.block);
            let before = if block & ABSOLUTE != 0 { 0 } else { ends[at / BLOCK_RUNS][2] };
            let block = (block + before) & !ABSOLUTE;
            assert_eq!((bit as usize, place as usize, block as usize), want, "{what:?}, image {i}: runs");
        }
    });
    simulated.run(DecodeStep::Clear);
    simulated.run(DecodeStep::Coefficients);
    simulated.run(DecodeStep::CoefficientsKnown);
    // If places are known, only the blocks of stretches are decoded.
    let decoded = |i: usize, image: &JpegImage, values: &[u16]| -> Vec<u16> {
        let (_, sums) = simulated.known(i);
        let blocks = |sum: &JpegSums| {
            let [first, count] = [sum.mcu, sum.mcus].map(|mcus| (mcus * image.mcu_blocks) as usize);
            values[first..first + count].to_vec()
        };
        if simulated.is_known(i) { sums.iter().flat_map(blocks).collect() } else { values.to_vec() }
    };
    each(&|i, image, steps| {
        let got: Vec<u16> = simulated.values(i, image.dc, steps.dc.len());
        let want = decoded(i, image, &steps.coefficients.differences);
        assert!(decoded(i, image, &got) == want, "{what:?}, image {i}: differences");
        let got: Vec<i16> = simulated.values(i, image.ac, 64 * steps.coefficients.ac.len());
        assert!(got == steps.coefficients.ac.concat(), "{what:?}, image {i}: coefficients");
    });
    simulated.run(DecodeStep::DcKnown);
    simulated.run(DecodeStep::Dc);
    each(&|i, image, steps| {
        let got: Vec<u16> = simulated.values(i, image.dc, steps.dc.len());
        assert!(decoded(i, image, &got) == decoded(i, image, &steps.dc), "{what:?}, image {i}: DC");
    });
    simulated.run(DecodeStep::Points);
    each(&|i, _, steps| {
        let DevicePoints::New(points) = &simulated.points[i] else { return };
        let Some(learned) = &steps.learned else {
            return assert_eq!(simulated.status(i), UNUSED_BYTES, "{what:?}, image {i}");
        };
        let mcus: Vec<u32> = simulated.values_of(i, 6, points.mcus() + 1);
        assert!(mcus == learned.mcus, "{what:?}, image {i}: places");
        let dc: Vec<u64> = simulated.values_of(i, 7, points.points());
        let dc: Vec<[i16; 4]> = dc.into_iter().map(unpacked_dc).collect();
        assert!(dc == learned.dc, "{what:?}, image {i}: DC at points");
    });
    simulated.run(DecodeStep::Idct);
    each(&|i, image, steps| {
        for (component, plane) in image.components.iter().zip(&steps.planes) {
            let got: Vec<u8> = simulated.values(i, component.samples, plane.samples.len());
            assert!(got == plane.samples, "{what:?}, image {i}: samples");
        }
    });
    simulated.run(DecodeStep::Rgb);
    each(&|i, image, steps| {
        let got: Vec<[u8; 3]> = simulated.values(i, image.pixels, steps.image.pixels().len());
        assert!(
            got.iter().zip(steps.image.pixels()).all(|(got, want)| got == &want[..3]),
            "{what:?}, image {i}: pixels"
        );
    });
    let flags = |(i, model): (usize, &Result<StepResults, Reason>)| {
        let found = reason_of_status(simulated.status(i));
        // If there are several reasons, the plain code reports the first in the data, but the kernels may report
        // another.
        assert_eq!(found.is_some(), model.is_err(), "{what:?}, image {i}: {found:?}");
        found
    };
    models.iter().enumerate().map(flags).collect()
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

const SAMPLINGS: [(u8, u8); 9] = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (4, 2), (1, 4), (2, 4), (3, 1)];

#[test]
fn each_step_of_batches_of_images_of_any_size() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (horizontal, vertical) in SAMPLINGS {
        let mut jpegs = Vec::new();
        for (width, height) in [(1, 1), (5, 4), (33, 17), (100, 36), (131, 97)] {
            let source = image(Size::new(width, height), &mut rng);
            for color in [JpegColor::Ycc, JpegColor::Rgb, JpegColor::Gray] {
                // Without restarts and with one code for all components, threads never find the phase.
                let least = u16::from(color == JpegColor::Rgb);
                for restart_interval_rows in least..3 {
                    let sampling = ChromaSampling { horizontal, vertical };
                    let quality = rng.random_range(1..=100);
                    let options =
                        JpegOptions { quality, sampling, restart_interval_rows, color, ..JpegOptions::default() };
                    let bytes = encode_jpeg(&source, &options).unwrap();
                    jpegs.push((indexed(&bytes).unwrap_or(bytes), random_part(&mut rng, source.size())));
                }
            }
        }
        let jpegs: Vec<_> = jpegs.iter().map(|(bytes, part)| (&bytes[..], *part)).collect();
        let flagged = compare(&jpegs, &(horizontal, vertical));
        assert!(flagged.iter().all(Option::is_none), "{flagged:?}");
    }
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
            known += (0..batch.len()).filter(|&image| before.is_known(image)).count();
            learned += before.points.iter().filter(|points| matches!(points, DevicePoints::New(_))).count();
            let flagged = compare_with(&batch, Some(&store), &(horizontal, vertical, round));
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
            let steps = DecodeStep::JUDGING.into_iter().chain(DecodeStep::MAKING);
            steps.for_each(|step| simulated.run(step));
            simulated.values::<[u8; 3]>(0, simulated.images[0].pixels, source.size().area_px() as usize)
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

/// For any data: images that the plain code decodes have the same pixels, and images that it flags are flagged.
#[test]
fn damaged_data_are_flagged_or_decoded_alike() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let source = image(Size::new(93, 71), &mut rng);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/images");
    let mut images =
        ["absurd-baseline.jpg", "absurd-wide.jpg"].map(|name| fs::read(folder.join(name)).unwrap()).to_vec();
    for sampling in [ChromaSampling::S444, ChromaSampling::S420, ChromaSampling::S440] {
        for restart_interval_rows in [0, 1, 2] {
            for color in [JpegColor::Ycc, JpegColor::Gray] {
                let options = JpegOptions { restart_interval_rows, sampling, color, ..JpegOptions::default() };
                images.push(encode_jpeg(&source, &options).unwrap());
            }
        }
    }
    let (mut decoded, mut flagged) = (0, 0);
    for (i, bytes) in images.iter().enumerate() {
        let scan = probe(bytes).unwrap().scan_offset_bytes;
        let mut batch = Vec::new();
        for round in 0..60 {
            let mut bytes = bytes.clone();
            if round >= 40 {
                bytes = odd(&bytes, &mut Choices::new(&rng.random::<[u8; 32]>()));
            }
            for _ in 0..round % 4 * u32::from(round < 40) {
                let at = rng.random_range(scan..bytes.len() - 2);
                match rng.random_range(0..8) {
                    0 => bytes[at] = 0xFF,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, rng.random()),
                    3 => bytes[at..at + 2].copy_from_slice(&[0xFF, 0xD0 + rng.random_range(0..10)]),
                    _ => bytes[at] = rng.random(),
                }
            }
            let header = probe(&bytes).unwrap();
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
    assert!(decoded > 250 && flagged > 250, "{decoded} decoded, {flagged} flagged");
}

/// The kernels' effects on memory for a 4:2:0 image of 500 x 375 pixels, as in kernels/README.md.
#[test]
fn the_readme_has_the_counts() {
    let readme = include_str!("../../../../kernels/README.md");
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
            let row = readme.lines().find(|line| line.starts_with(&format!("| `{name}` | ")));
            let cells: Vec<Option<f64>> =
                row.map_or(Vec::new(), |row| row.split(" | ").map(|cell| cell.parse().ok()).collect());
            // The columns before are the kernel, its bytes, registers and shared memory.
            let close = |got: f64, at: usize| {
                cells.get(at).copied().flatten().is_some_and(|want| (got - want).abs() <= 0.1 * got + 0.01)
            };
            if !(close(sectors, 4) && close(wavefronts, 5)) {
                wrong.push(format!("{name}: {sectors:.2} sectors and {wavefronts:.2} wavefronts a pixel"));
            }
        }
        assert_eq!(simulated.status(0), 0);
        // Stores the places.
        kernel_steps::decode_with(&bytes, &probe(&bytes).unwrap(), Rect::full(size), Some(&store)).unwrap();
    }
    assert_eq!(counted, DecodeStep::JUDGING.len() + DecodeStep::MAKING.len() + 1);
    assert!(wrong.is_empty(), "`scripts/kernels table` makes the table anew: {wrong:#?}");
}
