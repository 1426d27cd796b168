//! warpfeed's pipeline on the simulated device: whatever the order of the device's work and whatever fails, no wrong
//! byte, no deadlock, no leak, no panic, and each failure an error that names its call.
//!
//! `CUDA_SIM_SEEDS` says how many seeds are tried.

#![cfg(target_os = "linux")]

#[path = "../../tests/support/sim.rs"]
mod sim;

use cudarc::driver::{CudaContext, result};
use sim::{Sim, folder};
use std::path::Path;
use std::time::Duration;
use warpfeed::experiment::diagnose::{self, Bottleneck, diagnose};
use warpfeed::experiment::subject::{Model, Subject};
use warpfeed::{
    DecodePath, Device, Error, OnError, Pipeline, Result, Strategy,
    image::{Image, JpegColor, JpegOptions, Sampling, Size, encode_jpeg},
    ops::{GaussianBlur, random_horizontal_flip, random_resized_crop, random_rotation},
    source::EncodedImages,
};

const IMAGES: u32 = 13;

fn seeds() -> u64 {
    std::env::var("CUDA_SIM_SEEDS").map_or(100, |seeds| seeds.parse().expect("CUDA_SIM_SEEDS is a number"))
}

fn start() -> Sim {
    let sim = Sim::start();
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels.image");
    for (name, value) in [
        ("WARPFEED_KERNELS", kernels),
        ("WARPFEED_NVJPEG", folder().join("libcuda_sim_nvjpeg.so")),
        ("CUDA_SIM_KERNELS", folder().join("libcuda_sim_kernels.so")),
    ] {
        // SAFETY: the tests of this file hold `sim`, so no other thread of them reads the environment meanwhile.
        unsafe { std::env::set_var(name, value) };
    }
    sim
}

/// Baseline images, progressive and grey ones, one that no GPU takes.
fn images() -> EncodedImages {
    EncodedImages::new((0..IMAGES).map(|i| {
        let mut image = Image::new(Size::new(17 + i, 31 - i));
        for (j, pixel) in (0..).zip(image.pixels_mut()) {
            *pixel = [(7 * i + 3 * j) as u8, (j * j / 5) as u8, (i * j) as u8, 255];
        }
        let options = JpegOptions {
            sampling: if i % 2 == 0 { Sampling::S420 } else { Sampling::S444 },
            progressive: i % 5 == 4,
            color: [JpegColor::Ycc, JpegColor::Ycc, JpegColor::Gray, JpegColor::Cmyk][i as usize % 4],
            ..JpegOptions::default()
        };
        (encode_jpeg(&image, &options).unwrap(), i)
    }))
}

/// What a seed stands for beside the order of the device's work.
fn pipeline(source: &EncodedImages, seed: u64, device: Device) -> Result<Pipeline> {
    let paths = [DecodePath::Auto, DecodePath::Hardware, DecodePath::Hybrid, DecodePath::Cpu];
    let strategies = [Strategy::Fused, Strategy::Fused, Strategy::Sequential];
    Pipeline::builder(source.clone())
        .shuffle(seed)
        .threads(seed as usize % 3)
        .prefetch(1 + seed as usize % 2)
        .batch_size(3 + seed as usize % 3)
        .augment(random_horizontal_flip(0.5))
        .augment(random_rotation(-20.0..=20.0))
        .augment(GaussianBlur::new(3, 0.8))
        .augment(random_resized_crop(Size::new(9, 7)))
        .strategy(strategies[seed as usize % 3])
        .on_error(OnError::Skip)
        .decode(paths[seed as usize % 4])
        .device(device)
        .build()
}

type Batches = Vec<(Vec<u64>, Vec<u8>)>;

/// An epoch's batches, read late or early, given back in this order or another, as the seed says.
fn batches(pipeline: &Pipeline, seed: u64) -> Result<Batches> {
    let mut read = Vec::new();
    let mut held = Vec::new();
    let mut copy = |batch: warpfeed::Batch| -> Result<()> {
        read.push((batch.indices().to_vec(), batch.images().to_host()?.as_bytes()?.to_vec()));
        Ok(())
    };
    for batch in pipeline.epoch(0) {
        held.push(batch?);
        if seed % 4 == 1 || held.len() > 2 {
            let at = if seed % 8 < 4 { 0 } else { held.len() - 1 };
            copy(held.remove(at))?;
        }
    }
    held.into_iter().try_for_each(copy)?;
    read.sort();
    Ok(read)
}

fn expected(source: &EncodedImages, seed: u64) -> Batches {
    batches(&pipeline(source, seed, Device::Cpu).unwrap(), seed).unwrap()
}

#[test]
fn no_order_of_the_devices_work_gives_a_wrong_byte() {
    let (sim, source) = (start(), images());
    for seed in 0..seeds() {
        sim.reset(seed);
        let pipeline = pipeline(&source, seed, Device::Cuda(0)).unwrap();
        let got = batches(&pipeline, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", sim.message()));
        // What a second epoch finds is what the first has left.
        let again = batches(&pipeline, seed + 1).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(got == expected(&source, seed), "seed {seed}");
        assert!(again == got, "seed {seed}, second time");
        drop(pipeline);
        let report = sim.report();
        assert_eq!((report.alive(), report.contexts), (0, 0), "seed {seed}: {report:?}");
        assert_eq!((report.illegal_accesses, sim.message()), (0, String::new()), "seed {seed}");
    }
}

/// A trainer: queues its reading of each batch on a stream of its own, drops the batch at once, and never waits.
#[test]
fn a_consumers_stream_is_waited_for() {
    let (sim, source) = (start(), images());
    for seed in 0..seeds() {
        sim.reset(seed);
        let pipeline = pipeline(&source, seed, Device::Cuda(0)).unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let mut copies = Vec::new();
        for epoch in 0..2 {
            for batch in pipeline.epoch(epoch) {
                let batch = batch.unwrap();
                let images = batch.images().cuda().unwrap();
                let len_bytes = images.len_bytes();
                let (labels_bytes, from) = (4 * batch.len(), images.on_stream(&stream).unwrap());
                let labels_from = images.labels_address().unwrap();
                // SAFETY: allocated on the stream that uses it; the ranges are the batch's, which `stream` waits for, and
                // which is not used again before what is queued there.
                let copy = unsafe {
                    let copy = result::malloc_async(stream.cu_stream(), len_bytes + labels_bytes).unwrap();
                    result::memcpy_dtod_async(copy, from, len_bytes, stream.cu_stream()).unwrap();
                    let to = copy + len_bytes as u64;
                    result::memcpy_dtod_async(to, labels_from, labels_bytes, stream.cu_stream()).unwrap();
                    copy
                };
                copies.push((epoch, batch.indices().to_vec(), copy, len_bytes, labels_bytes));
            }
        }
        let cpu = self::pipeline(&source, seed, Device::Cpu).unwrap();
        let wanted = (0..2).flat_map(|epoch| cpu.epoch(epoch).map(move |batch| (epoch, batch.unwrap())));
        let mut wanted: Vec<_> = wanted.collect();
        for (epoch, indices, copy, len_bytes, labels_bytes) in copies {
            let mut got = vec![0; len_bytes + labels_bytes];
            // SAFETY: the copy is that long; freed once, behind its reading.
            unsafe {
                result::memcpy_dtoh_async(&mut got, copy, stream.cu_stream()).unwrap();
                result::free_async(copy, stream.cu_stream()).unwrap();
            }
            stream.synchronize().unwrap();
            let (want_epoch, want) = wanted.remove(0);
            assert_eq!((epoch, &indices[..]), (want_epoch, want.indices()), "seed {seed}");
            let (images, labels) = got.split_at(len_bytes);
            assert!(images == want.images().as_bytes().unwrap(), "seed {seed}, images {indices:?}");
            let want: Vec<u8> = want.labels().iter().flat_map(|label| label.to_le_bytes()).collect();
            assert!(labels == want, "seed {seed}, labels of {indices:?}");
        }
        drop((pipeline, stream, context));
        assert_eq!((sim.report().alive(), sim.message()), (0, String::new()), "seed {seed}");
    }
}

#[test]
fn whatever_fails_is_an_error_that_names_its_call() {
    let (sim, source) = (start(), images());
    let (mut failed, mut injected) = (0, 0);
    for seed in 0..seeds() {
        sim.reset_with_failures(seed, [0.003, 0.01, 0.05][seed as usize % 3]);
        let result = pipeline(&source, seed, Device::Cuda(0)).and_then(|pipeline| {
            // Leaving in the middle is a way out too.
            if seed % 7 == 6 {
                drop(pipeline.epoch(0).next().transpose()?);
            }
            batches(&pipeline, seed)
        });
        match result {
            // nvJPEG failing loses nothing.
            Ok(got) => assert!(got == expected(&source, seed), "seed {seed}: {}", sim.message()),
            Err(error) => {
                failed += 1;
                let error = match error {
                    Error::Sample { source, .. } => *source,
                    error => error,
                };
                match &error {
                    Error::Cuda { call, name, .. } => {
                        assert!(call.starts_with("cu") && name.starts_with("CUDA_ERROR"), "seed {seed}: {error}");
                    }
                    Error::Device { call, message } => {
                        let named = call.starts_with("nvjpeg") || call.starts_with("open ");
                        assert!(
                            named && message.contains("CUDA_ERROR") || message.contains("NVJPEG"),
                            "{seed}: {error}"
                        );
                    }
                    Error::OutOfDeviceMemory { needed_bytes: bytes @ 1.., .. } | Error::OutOfMemory { bytes, .. } => {
                        assert!(error.to_string().contains(&bytes.to_string()), "seed {seed}: {error}");
                    }
                    _ => panic!("seed {seed}: {error:?}"),
                }
            }
        }
        let report = sim.report();
        injected += u64::from(report.injected_failures > 0);
        assert_eq!((report.alive(), report.contexts), (0, 0), "seed {seed}: {report:?}\n{}", sim.message());
        assert_eq!(report.illegal_accesses, 0, "seed {seed}: {}", sim.message());
        // As the next pipeline of the same process would find it.
        sim.reset(seed);
        assert!(batches(&pipeline(&source, seed, Device::Cuda(0)).unwrap(), seed).is_ok(), "seed {seed}, afterwards");
    }
    assert!(failed > seeds() / 10 && injected > seeds() / 4, "{failed} failed of {injected} with failures");
}

/// A slow link to the device is found to be what holds a pipeline up.
#[test]
fn a_slow_link_is_found() {
    let sim = start();
    // So slow that a busy machine's share of a batch is small beside it.
    sim.slow_copies(400_000);
    let mut settings = diagnose::Settings::new([random_horizontal_flip(0.5), random_resized_crop(64)]);
    (settings.threads, settings.cores, settings.batch_size) = (2, 2, 1);
    settings.time = Duration::from_secs(2);
    let subject = Subject { device: Device::Cuda(0), ..Subject::new("made", images()) };
    let found = diagnose(&subject, &settings, &mut Model::none(), &mut |_| ()).unwrap();
    assert_eq!(found.bottleneck, Bottleneck::Transfer, "{:?}", found.report.figures);
    assert!(found.gain.unwrap() > 1.5 && found.report.answer[2].contains("nvJPEG"), "{:?}", found.report.answer);
}
