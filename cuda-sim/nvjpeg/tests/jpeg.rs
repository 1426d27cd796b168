//! The crate's own JPEG decoder, with any schedule and any failure, for `CUDA_SIM_SEEDS` seeds.

#![cfg(target_os = "linux")]

mod common;
#[path = "../../tests/support/sim.rs"]
mod sim;

use common::{Batches, batches, builder, seeds, start};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::fs;
use std::path::{Path, PathBuf};
use warpfeed::ops::{CenterCrop, Resize};
use warpfeed::{
    Device, EntryPoints, Error, JpegDecoder, OnError, Pipeline, PipelineBuilder, Result, Stats,
    image::{ChromaSampling, Image, JpegColor, JpegOptions, Size, encode_jpeg, probe},
    ops::{random_crop, random_resized_crop},
    source::{EncodedImages, Source as _},
};

/// An image of gradients, with some detail.
fn encoded(i: u32, options: &JpegOptions) -> Vec<u8> {
    let mut image = Image::new(Size::new(47 + 5 * i, 61 - i));
    for (j, pixel) in (0..).zip(image.pixels_mut()) {
        *pixel = [(7 * i + 3 * j) as u8, (j * j / 5) as u8, (i * j / 3) as u8, 255];
    }
    encode_jpeg(&image, options).unwrap()
}

/// Images of every sampling, gray and RGB, with and without restarts; images that only the CPU decodes; damaged images;
/// some of them decode.
fn images() -> EncodedImages {
    let samplings = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (4, 2), (1, 4), (2, 4), (3, 1)];
    let mut images = Vec::new();
    for (i, (horizontal, vertical)) in (0..).zip(samplings) {
        let sampling = ChromaSampling { horizontal, vertical };
        let restart_interval_rows = (i % 3) as u16;
        images.push(encoded(i, &JpegOptions { sampling, restart_interval_rows, ..JpegOptions::default() }));
    }
    let usual = JpegOptions::default();
    images.push(encoded(9, &JpegOptions { color: JpegColor::Gray, ..usual.clone() }));
    images.push(encoded(10, &JpegOptions { color: JpegColor::Rgb, restart_interval_rows: 1, ..usual.clone() }));
    images.push(encoded(11, &JpegOptions { progressive: true, ..usual.clone() }));
    images.push(encoded(12, &JpegOptions { color: JpegColor::Cmyk, ..usual.clone() }));
    for i in 13..17 {
        let restart_interval_rows = (i % 2) as u16;
        let mut bytes = encoded(i, &JpegOptions { restart_interval_rows, ..usual.clone() });
        let at = bytes.len() - 60 * (i as usize - 12);
        // Codes of all ones do not exist. A changed byte usually gives other pixels.
        bytes[at..at + 2].copy_from_slice(if i < 15 { &[0xFF, 0] } else { &[0x35, 0x53] });
        if i == 14 {
            bytes.splice(at..at, [0xFF, 0].repeat(20));
        }
        images.push(bytes);
    }
    let cut = encoded(17, &usual);
    images.push(cut[..cut.len() - 40].to_vec());
    EncodedImages::new(images.into_iter().zip(0..))
}

/// The pipeline of a seed.
fn pipeline(source: &EncodedImages, seed: u64, device: Device) -> Result<Pipeline> {
    builder(source, seed)
        .batch_size(3 + seed as usize % 4)
        .on_error([OnError::Skip, OnError::Substitute][seed as usize % 2])
        .jpeg_decoder([JpegDecoder::Device, JpegDecoder::Auto][seed as usize / 2 % 2])
        .device(device)
        .build()
}

fn expected(source: &EncodedImages, seed: u64) -> Batches {
    batches(&pipeline(source, seed, Device::Cpu).unwrap(), seed).unwrap()
}

#[test]
fn no_order_of_the_devices_work_gives_other_bytes() {
    let (sim, source) = (start(), images());
    for seed in 0..seeds() {
        sim.reset(seed);
        let pipeline = pipeline(&source, seed, Device::Cuda(0)).unwrap();
        let got = batches(&pipeline, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", sim.message()));
        let again = batches(&pipeline, seed + 1).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(got == expected(&source, seed), "seed {seed}");
        assert!(again == got, "seed {seed}, second time");
        drop(pipeline);
        let report = sim.report();
        assert_eq!((report.alive(), report.contexts), (0, 1), "seed {seed}: {report:?}");
        assert_eq!((report.illegal_accesses, sim.message()), (0, String::new()), "seed {seed}");
        assert_eq!(report.spinning_waits, 0, "seed {seed}");
    }
}

/// Images above 1 MiB have launches of their own, of many blocks of threads.
#[test]
fn a_large_image_among_small_ones() {
    let sim = start();
    sim.reset_with_memory(0, 512 << 20);
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let mut image = Image::new(Size::new(900, 700));
    image.pixels_mut().iter_mut().for_each(|pixel| *pixel = rng.random());
    let noise = |sampling, restart_interval_rows| {
        encode_jpeg(&image, &JpegOptions { quality: 100, sampling, restart_interval_rows, ..JpegOptions::default() })
            .unwrap()
    };
    let large = [noise(ChromaSampling::S444, 0), noise(ChromaSampling::S422, 3)];
    assert!(large.iter().all(|bytes| bytes.len() > 1 << 20), "{} bytes", large[1].len());
    let small = [encoded(0, &JpegOptions::default()), encoded(1, &JpegOptions::default())];
    let all = [&small[0], &large[0], &large[1], &small[1]].map(Vec::clone);
    let source = EncodedImages::new(all.into_iter().zip(0..));
    let stats = decoded(&source, |b| {
        b.batch_size(4).transform(Resize::new(Size::new(32, 32))).jpeg_decoder(JpegDecoder::Device)
    });
    assert_eq!(stats.decoded.device, 4, "{stats:?}");
}

#[test]
fn whatever_fails_is_an_error_that_names_its_call() {
    let (sim, source) = (start(), images());
    let mut failed = 0;
    for seed in 0..seeds() {
        sim.reset_with_failures(seed, [0.003, 0.01, 0.05][seed as usize % 3]);
        let result = pipeline(&source, seed, Device::Cuda(0)).and_then(|pipeline| batches(&pipeline, seed));
        match result {
            Ok(got) => assert!(got == expected(&source, seed), "seed {seed}: {}", sim.message()),
            Err(error) => {
                failed += 1;
                let error = match error {
                    Error::Sample { source, .. } => *source,
                    error => error,
                };
                let is_named = match &error {
                    Error::Cuda { call, name, .. } => call.starts_with("cu") && name.starts_with("CUDA_ERROR"),
                    Error::OutOfDeviceMemory { .. } | Error::OutOfMemory { .. } => true,
                    _ => false,
                };
                assert!(is_named, "seed {seed}: {error:?}");
            }
        }
        let report = sim.report();
        assert_eq!((report.alive(), report.contexts), (0, 1), "seed {seed}: {report:?}\n{}", sim.message());
        assert_eq!(report.illegal_accesses, 0, "seed {seed}: {}", sim.message());
    }
    assert!(failed > seeds() / 10, "{failed} failed");
}

/// Reasons for which kernels flag images.
const FLAGS: [&str; 3] = ["damaged or odd data", "truncated", "not synchronized"];

/// The batches of some epochs, and what each counts.
fn run(
    source: &EncodedImages,
    epochs: u64,
    device: Device,
    build: impl Fn(PipelineBuilder) -> PipelineBuilder,
) -> Vec<(Vec<Vec<u8>>, Stats)> {
    let builder = Pipeline::builder(source.clone()).batch_size(4).threads(2).device(device);
    let pipeline = build(builder).build().unwrap();
    let of = |batch: Result<warpfeed::Batch>| batch.unwrap().images().to_host().unwrap().as_bytes().unwrap().to_vec();
    let epoch = |number| {
        let mut epoch = pipeline.epoch(number);
        (epoch.by_ref().map(of).collect(), epoch.stats())
    };
    (0..epochs).map(epoch).collect()
}

/// Checks that an epoch on the device has the CPU's bytes.
fn decoded(source: &EncodedImages, build: impl Fn(PipelineBuilder) -> PipelineBuilder) -> Stats {
    decoded_in(1, source, build)
}

/// Checks that some epochs on the device have the CPU's bytes. Returns the counts of the first.
fn decoded_in(epochs: u64, source: &EncodedImages, build: impl Fn(PipelineBuilder) -> PipelineBuilder) -> Stats {
    let want = run(source, epochs, Device::Cpu, |builder| build(builder).entry_points(EntryPoints::none()));
    let got = run(source, epochs, Device::Cuda(0), build);
    for (number, ((got, stats), (want, _))) in got.iter().zip(&want).enumerate() {
        assert!(got == want, "epoch {number}: {stats:?}");
    }
    got[0].1
}

/// The first decoder of an image, CPU or device, finds the places that serve all in later epochs and runs.
#[test]
fn entry_points_serve_the_device_and_the_cpu() {
    let _sim = start();
    let mut images = Vec::new();
    for (i, sampling) in (0..).zip([ChromaSampling::S444, ChromaSampling::S420]) {
        for restart_interval_rows in 0..2 {
            let mut image = Image::new(Size::new(190 + 10 * i, 130));
            for (j, pixel) in (0_u32..).zip(image.pixels_mut()) {
                *pixel = [(7 * i + 3 * j) as u8, (j * j / 5) as u8, (i * j / 3) as u8, 255];
            }
            let options = JpegOptions { sampling, restart_interval_rows, ..JpegOptions::default() };
            images.push(encode_jpeg(&image, &options).unwrap());
        }
    }
    let count = images.len() as u64;
    let source = EncodedImages::new(images.into_iter().zip(0..));
    let build = |points: EntryPoints| {
        move |b: PipelineBuilder| {
            b.transform(random_resized_crop(24))
                .shuffle(1)
                .jpeg_decoder(JpegDecoder::Device)
                .entry_points(points.clone())
        }
    };
    let want = run(&source, 3, Device::Cpu, build(EntryPoints::none()));
    let check = |what: &str, epochs, device, points| {
        let got = run(&source, epochs, device, build(points));
        for (number, ((got, stats), (want, _))) in got.iter().zip(&want).enumerate() {
            assert!(got == want, "{what}, epoch {number}: {stats:?}");
        }
        let used = |(_, stats): &(_, Stats)| (stats.decoded.entry_points, stats.decoded.device_entry_points);
        got.iter().map(used).collect::<Vec<_>>()
    };
    let used = check("in memory", 3, Device::Cuda(0), EntryPoints::memory());
    assert!(used[2].0 == 0 && used[2].1 > count / 2, "{used:?}");
    let used = check("sparse", 3, Device::Cuda(0), EntryPoints::memory().dense(false));
    assert!(used[2].0 == 0 && used[2].1 > count / 2, "{used:?}");
    assert_eq!(check("none", 2, Device::Cuda(0), EntryPoints::none()), [(0, 0); 2]);
    let folder = std::env::temp_dir().join(format!("warpfeed-device-points-{}", std::process::id()));
    for (dense, first, second) in [
        (true, Device::Cpu, Device::Cuda(0)),
        (false, Device::Cpu, Device::Cuda(0)),
        (true, Device::Cuda(0), Device::Cpu),
    ] {
        let points = EntryPoints::folder(&folder).dense(dense);
        check("first", 2, first, points.clone());
        let used = check("second", 1, second, points)[0];
        // The first epoch of a run uses what another has found.
        assert_eq!(used.0 + used.1, count, "{used:?}");
        fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn who_decodes_is_counted_and_why() {
    let _sim = start();
    let builder = |builder: PipelineBuilder| builder.transform(CenterCrop::new(8)).on_error(OnError::Skip);
    let stats = decoded(&images(), |b| builder(b).jpeg_decoder(JpegDecoder::Device));
    let left: Vec<_> = stats.decoded.cpu_fallbacks.iter().collect();
    let of = |name| left.iter().find(|(reason, _)| *reason == name).map_or(0, |(_, images)| *images);
    assert_eq!([of("progressive"), of("neither gray nor three colors"), of("no end marker")], [1, 1, 1], "{left:?}");
    assert!(of("damaged or odd data") >= 1, "{left:?}");
    // Each image is decoded once, by the CPU if it was left to the CPU. Bad images are not decoded.
    assert_eq!(stats.decoded.device + stats.decoded.cpu_fallbacks.total(), 18);
    assert_eq!(stats.decoded.device + stats.decoded.cpu + stats.bad, 18);
    assert!(stats.decoded.device >= 11, "{stats:?}");

    let stats = decoded(&images(), |b| builder(b).jpeg_decoder(JpegDecoder::Device).accept_truncated(true));
    assert_eq!((stats.decoded.device, stats.decoded.cpu), (0, 18));
    assert_eq!(stats.decoded.cpu_fallbacks.iter().collect::<Vec<_>>(), [("truncated images are accepted", 18)]);

    let stats = decoded(&images(), |b| builder(b).jpeg_decoder(JpegDecoder::Auto));
    assert_eq!(stats.decoded.device + stats.decoded.cpu + stats.bad, 18);
    assert!(
        stats.decoded.device > 0 && stats.decoded.cpu >= stats.decoded.cpu_fallbacks.total() - stats.bad,
        "{stats:?}"
    );
}

/// The images above, with damage in headers and data, as in the fuzz target `device`, which has more time.
fn damaged(rng: &mut ChaCha8Rng) -> Vec<Vec<u8>> {
    let good = images();
    let mut damaged = Vec::new();
    for index in 0..good.len() {
        let bytes = good.encoded(index).unwrap();
        let scan = bytes.windows(2).position(|pair| pair == [0xFF, 0xDA]).unwrap();
        for round in 0..30 {
            let mut bytes = bytes.clone();
            for _ in 0..1 + round % 3 {
                let from = if round % 3 == 0 { 2 } else { scan };
                let at = rng.random_range(from..bytes.len() - 2);
                match rng.random_range(0..8) {
                    0 => bytes[at] = 0xFF,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, rng.random()),
                    3 => bytes[at..at + 2].copy_from_slice(&[0xFF, 0xD0 + rng.random_range(0..10)]),
                    4 => bytes[at] ^= 1 << rng.random_range(0..8),
                    _ => bytes[at] = rng.random(),
                }
            }
            damaged.push(bytes);
        }
    }
    damaged
}

#[test]
fn damaged_images_have_the_cpus_bytes_or_are_bad_on_both() {
    let _sim = start();
    let images = damaged(&mut ChaCha8Rng::seed_from_u64(1));
    let source = EncodedImages::new(images.into_iter().zip(0..));
    // Crops without resizing, so that no wrong pixel is averaged out.
    let build =
        |b: PipelineBuilder| b.transform(random_crop(Size::new(48, 40), 0)).max_pixels(1 << 14).on_error(OnError::Skip);
    let stats = decoded_in(3, &source, |b| build(b).jpeg_decoder(JpegDecoder::Device));
    let flagged: u64 =
        stats.decoded.cpu_fallbacks.iter().filter(|(why, _)| FLAGS.contains(why)).map(|(_, images)| images).sum();
    assert!(stats.decoded.device > 100 && flagged > 100 && stats.bad > 100, "{stats:?}");
}

#[test]
fn auto_needs_no_nvjpeg() {
    let _sim = start();
    // SAFETY: this test holds `_sim`, as all of this program do, so no other thread reads the environment.
    unsafe { std::env::set_var("WARPFEED_NVJPEG", "/nowhere/libnvjpeg.so") };
    let stats =
        decoded(&images(), |b| b.transform(CenterCrop::new(8)).on_error(OnError::Skip).jpeg_decoder(JpegDecoder::Auto));
    assert!(stats.decoded.device > 0 && stats.decoded.hybrid + stats.decoded.hardware == 0, "{stats:?}");
}

#[test]
fn images_that_have_no_room_are_the_cpus() {
    let _sim = start();
    let source = EncodedImages::new((0..24).map(|i| (encoded(i, &JpegOptions::default()), i)));
    let run = |bytes| {
        let build = |b: PipelineBuilder| {
            b.transform(Resize::new(Size::new(8, 8))).prefetch(1).jpeg_decoder(JpegDecoder::Device).device_memory(bytes)
        };
        decoded(&source, build)
    };
    let stats = run(32 << 20);
    assert_eq!((stats.decoded.device, stats.decoded.for_memory), (24, 0));
    // Two batches are in flight, with four images each, and each has some of the memory.
    let stats = run(640 << 10);
    assert!(stats.decoded.for_memory > 0 && stats.decoded.device > 0, "{stats:?}");
    assert_eq!(stats.decoded.cpu_fallbacks.iter().collect::<Vec<_>>(), [("device memory", stats.decoded.for_memory)]);
}

#[test]
fn nothing_is_allocated_in_the_steady_state() {
    let sim = start();
    let source = EncodedImages::new((0..24).map(|i| (encoded(i / 2, &JpegOptions::default()), i)));
    let builder = Pipeline::builder(source).batch_size(4).threads(0).prefetch(1).transform(CenterCrop::new(8));
    let pipeline = builder.device(Device::Cuda(0)).jpeg_decoder(JpegDecoder::Device).build().unwrap();
    let epoch = || {
        assert!(pipeline.epoch(0).all(|batch| batch.is_ok()));
        sim.report().allocation_calls
    };
    epoch();
    let first = epoch();
    assert_eq!(epoch(), first);
}

/// All JPEG files in a folder and its subfolders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let files = paths.into_iter().flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|ending| ending == "jpg" || ending == "JPEG")).collect()
}

/// Decodes files on the device, whole or in part, and checks that no undamaged baseline image is left to the CPU.
fn all_by_the_device(paths: &[PathBuf], is_odd: impl Fn(&str) -> bool, crops: &[bool]) -> u64 {
    let images: Vec<_> = paths.iter().map(|path| (path, fs::read(path).unwrap())).collect();
    let is_for_device = |(path, bytes): &&(&PathBuf, Vec<u8>)| {
        let name = path.file_name().unwrap().to_string_lossy();
        !probe(bytes).unwrap().progressive && !is_odd(&name)
    };
    let count = images.iter().filter(is_for_device).count() as u64;
    let source = EncodedImages::new(images.into_iter().zip(0..).map(|((_, bytes), label)| (bytes, label)));
    for &crop in crops {
        let build = |builder: PipelineBuilder| {
            let builder = builder.on_error(OnError::Skip).jpeg_decoder(JpegDecoder::Device);
            let builder = builder.batch_size(2).prefetch(1).device_memory(512 << 20);
            if crop {
                builder.transform(random_resized_crop(64))
            } else {
                builder.transform(Resize::new(Size::new(64, 64)))
            }
        };
        let stats = decoded_in(3, &source, build);
        assert!(stats.decoded.device >= count, "{stats:?}, {count} are for the device");
        let flagged: Vec<_> = stats.decoded.cpu_fallbacks.iter().filter(|(reason, _)| FLAGS.contains(reason)).collect();
        assert!(stats.bad > 0 || flagged.is_empty(), "{flagged:?}");
    }
    count
}

#[test]
fn reference_images_are_decoded_by_the_device() {
    let sim = start();
    sim.reset_with_memory(0, 1 << 30);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference/images");
    let others = ["lossless", "truncated", "cmyk", "ycck", "absurd"];
    let count =
        all_by_the_device(&files(&folder), |name| others.iter().any(|other| name.contains(other)), &[false, true]);
    assert!(count > 10, "{count}");
}

#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with data/photos/; scripts/test runs it where that is set"]
fn photographs_are_decoded_by_the_device() {
    let sim = start();
    sim.reset_with_memory(0, 1 << 30);
    let shared = std::env::var_os("WARPFEED_SHARED").map(PathBuf::from).expect("WARPFEED_SHARED names a folder");
    let count = all_by_the_device(&files(&shared.join("data/photos")), |_| false, &[true]);
    assert!(count > 100, "{count}");
}
