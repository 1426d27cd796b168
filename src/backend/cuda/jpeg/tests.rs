//! Compares the kernels with the same steps in plain code.
#![allow(unsafe_code)]

use super::kernels::DecodeStep;
use super::lower::{BLOCK_RUNS, Lowered};
use super::params::JpegImage;
use crate::backend::left_to_cpu::reason_of_status;
use crate::decode::kernel_steps::{self, StepResults};
use crate::decode::oddities::{Choices, odd};
use crate::decode::{Baseline, Reason, indexed, probe};
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
    /// For each image: its own memory, its data, its tables, its status.
    memory: Vec<[Memory; 4]>,
    descriptors: Memory,
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
    fn new(jpegs: &[(&[u8], Rect)]) -> Self {
        let (mut images, mut memory) = (Vec::new(), Vec::new());
        for (bytes, part) in jpegs {
            let header = probe(bytes).unwrap();
            let image = Baseline::new(bytes, &header).unwrap();
            let lowered = Lowered::new(&image, bytes, &header, *part, &mut Vec::new());
            let own = [
                Memory::new(lowered.len_bytes, 0),
                put(lowered.data),
                put(bytemuck::bytes_of(&lowered.tables())),
                put(&[0; 4]),
            ];
            let [at, data, tables, status] = [0, 1, 2, 3].map(|i: usize| own[i].address());
            images.push(JpegImage { status, ..lowered.at(at, data, tables) });
            memory.push(own);
        }
        let descriptors = put(bytemuck::cast_slice(&images));
        Self { images, memory, descriptors }
    }

    fn run(&self, step: DecodeStep) {
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
        let (grid, block) = step.grid(&self.images);
        let count = self.images.len() as u32;
        let launch = Launch { samples: self.descriptors.address(), table: 0, count, reserved: 0 };
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

    fn status(&self, image: usize) -> u32 {
        bytemuck::pod_read_unaligned(&self.memory[image][3].bytes()[..4])
    }
}

/// Runs the kernels on images together, and compares each step's result for each image with the plain code. Returns the
/// reasons for which images are flagged.
fn compare(jpegs: &[(&[u8], Rect)], what: &dyn std::fmt::Debug) -> Vec<Option<Reason>> {
    let simulated = Simulated::new(jpegs);
    let models: Vec<Result<StepResults, Reason>> =
        jpegs.iter().map(|(bytes, part)| kernel_steps::decode(bytes, &probe(bytes).unwrap(), *part)).collect();
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
        if image.segment_blocks > 0 {
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
    each(&|i, image, steps| {
        let got: Vec<u16> = simulated.values(i, image.dc, steps.dc.len());
        assert!(got == steps.coefficients.differences, "{what:?}, image {i}: differences");
        let got: Vec<i16> = simulated.values(i, image.ac, 64 * steps.coefficients.ac.len());
        assert!(got == steps.coefficients.ac.concat(), "{what:?}, image {i}: coefficients");
    });
    simulated.run(DecodeStep::Dc);
    each(&|i, image, steps| {
        let got: Vec<u16> = simulated.values(i, image.dc, steps.dc.len());
        assert!(got == steps.dc, "{what:?}, image {i}: DC");
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
    let mut wrong = Vec::new();
    for (what, restart_interval_rows) in [("", 0), (", with restarts", 1)] {
        let options = JpegOptions { sampling: ChromaSampling::S420, restart_interval_rows, ..JpegOptions::default() };
        let bytes = encode_jpeg(&source, &options).unwrap();
        let bits_a_pixel = 8.0 * bytes.len() as f64 / size.area_px() as f64;
        println!("bits a pixel{what}: {bits_a_pixel:.2}");
        let simulated = Simulated::new(&[(&bytes, Rect::full(size))]);
        for step in DecodeStep::JUDGING.into_iter().chain(DecodeStep::MAKING) {
            let counts = simulated.counted(step);
            if restart_interval_rows > 0 && step != DecodeStep::Coefficients {
                continue;
            }
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
    }
    assert!(wrong.is_empty(), "`scripts/kernels table` makes the table anew: {wrong:#?}");
}
