//! The hardware decoder's engines in pipelines: how they are used, and who decodes what they do not.

#![cfg(target_os = "linux")]

mod common;
#[path = "../../tests/support/sim.rs"]
mod sim;

use common::{painted, start};
use sim::through_run;
use std::path::Path;
use warpfeed::{
    Device, Error, JpegDecoder, OnError, Pipeline, PipelineBuilder, Stats,
    image::{ChromaSampling, JpegColor, JpegOptions, Size, encode_jpeg},
    ops::CenterCrop,
    source::EncodedImages,
};

/// The simulation's `EngineCounts`.
#[repr(C)]
#[derive(Debug, Default)]
struct Counts {
    batches: u64,
    most_images: u64,
    not_preallocated: u64,
    mixed: u64,
    unsorted: u64,
    interpolated_in_vain: u64,
    allocated: u64,
    freed: u64,
    headers: u64,
    wholes: u64,
    regions: u64,
}

/// What the engines were asked for since the last call.
fn counts() -> Counts {
    let library = sim::open("libcuda_sim_nvjpeg.so");
    let mut counts = Counts::default();
    // SAFETY: the function is the simulation's, and has this type.
    unsafe { library.get::<extern "C" fn(*mut Counts)>(b"cuda_sim_nvjpeg_engines") }.unwrap()(&raw mut counts);
    std::mem::forget(library);
    counts
}

/// Baseline images of all samplings and many sizes.
fn images(count: u32) -> EncodedImages {
    const SAMPLINGS: [ChromaSampling; 5] =
        [ChromaSampling::S444, ChromaSampling::S420, ChromaSampling::S444, ChromaSampling::S422, ChromaSampling::S440];
    EncodedImages::new((0..count).map(|i| {
        let options = JpegOptions { sampling: SAMPLINGS[i as usize % 5], ..JpegOptions::default() };
        (encode_jpeg(&painted(Size::new(17 + i * 7 % 40, 16 + i * 5 % 31), i), &options).unwrap(), i)
    }))
}

fn builder(images: &EncodedImages, path: JpegDecoder) -> PipelineBuilder {
    let builder = Pipeline::builder(images.clone()).transform(CenterCrop::new(12)).on_error(OnError::Skip);
    builder.device(Device::Cuda(0)).jpeg_decoder(path)
}

/// The images of an epoch by their index, and whether nvJPEG decoded them.
fn epoch(builder: PipelineBuilder) -> (Vec<(u64, bool, Vec<u8>)>, Stats) {
    epoch_of(&builder.build().unwrap())
}

fn epoch_of(pipeline: &Pipeline) -> (Vec<(u64, bool, Vec<u8>)>, Stats) {
    let mut epoch = pipeline.epoch(0);
    let mut images = Vec::new();
    for batch in epoch.by_ref() {
        let batch = batch.unwrap();
        let (receipts, tensor) = (batch.receipts(false).unwrap(), batch.images().to_host().unwrap());
        for (place, receipt) in receipts.iter().enumerate() {
            images.push((receipt.index, receipt.by_nvjpeg, tensor.image_bytes(place).unwrap().to_vec()));
        }
    }
    images.sort();
    (images, epoch.stats())
}

/// Whether all images have the CPU's bytes.
fn are_the_cpus(source: &EncodedImages, got: &[(u64, bool, Vec<u8>)]) -> bool {
    let (want, _) = epoch(builder(source, JpegDecoder::Cpu).device(Device::Cpu));
    want.iter().map(|(index, _, bytes)| (index, bytes)).eq(got.iter().map(|(index, _, bytes)| (index, bytes)))
}

#[test]
fn a_call_has_sorted_images_of_one_subsampling_and_a_state_with_memory() {
    let (sim, source) = (start(), images(60));
    for seed in 0..common::seeds() {
        sim.reset(seed);
        counts();
        let how = builder(&source, JpegDecoder::Hardware).hardware_share(1.0).batch_size(8);
        let (got, stats) = epoch(how.threads(seed as usize % 4).prefetch(1 + seed as usize % 3));
        assert!(are_the_cpus(&source, &got), "seed {seed}: {}", sim.message());
        assert_eq!((stats.decoded.hardware, stats.bad), (60, 0), "seed {seed}");
        let counts = counts();
        let never = (counts.not_preallocated, counts.mixed, counts.unsorted, counts.interpolated_in_vain);
        assert_eq!(never, (0, 0, 0, 0), "seed {seed}: {counts:?}");
        assert!(counts.batches >= 4 && counts.allocated > 0, "seed {seed}: {counts:?}");
        assert_eq!(counts.allocated, counts.freed, "seed {seed}");
        // Routing reads headers alone.
        assert_eq!((counts.headers, counts.wholes), (60, 0), "seed {seed}");
        assert_eq!((sim.report().alive(), sim.message()), (0, String::new()), "seed {seed}");
    }
}

/// Images of several batches share calls, and a call has no more than a fixed number of them.
#[test]
fn calls_are_of_a_fixed_number_of_images_and_span_batches() {
    let _sim = start();
    let plain = JpegOptions { sampling: ChromaSampling::S444, ..JpegOptions::default() };
    let image = |i: u32| encode_jpeg(&painted(Size::new(16 + i % 5, 17), i), &plain).unwrap();
    let source = EncodedImages::new((0..300).map(|i| (image(i), i)));
    counts();
    let how = builder(&source, JpegDecoder::Hardware).hardware_share(1.0).batch_size(300).threads(2);
    assert!(are_the_cpus(&source, &epoch(how).0));
    assert_eq!(counts().most_images, 126);
}

#[test]
fn the_same_share_of_images_is_on_the_engines_in_every_run() {
    let (sim, source) = (start(), images(200));
    for (path, share) in [JpegDecoder::Hardware, JpegDecoder::HardwareDevice].into_iter().zip([None, Some(0.4)]) {
        let run = |seed: u64| {
            sim.reset(seed);
            let how = builder(&source, path).batch_size(7 + seed as usize).threads(seed as usize);
            epoch(share.into_iter().fold(how, PipelineBuilder::hardware_share))
        };
        let ((first, stats), (again, _)) = (run(1), run(3));
        assert!(first == again && are_the_cpus(&source, &first), "{path:?}");
        let expected = 200.0 * share.unwrap_or(0.75);
        assert!((stats.decoded.hardware as f64 - expected).abs() < 20.0, "{path:?}: {stats:?}");
        let others = match path {
            JpegDecoder::Hardware => stats.decoded.hybrid,
            _ => stats.decoded.device,
        };
        assert_eq!(stats.decoded.hardware + others, 200, "{path:?}: {stats:?}");
    }
    let refused = builder(&source, JpegDecoder::Hardware).hardware_share(1.5).build().err().unwrap();
    assert!(refused.is_parameter(), "{refused}");
}

/// Gray, progressive and CMYK images, and those of several megapixels, go to the next decoder.
#[test]
fn what_the_engines_do_not_take_goes_to_the_next_decoder() {
    let sim = start();
    sim.reset_with_memory(0, 512 << 20);
    let of = |options: JpegOptions| encode_jpeg(&painted(Size::new(40, 30), 1), &options).unwrap();
    let color = |color| of(JpegOptions { color, ..JpegOptions::default() });
    let large = encode_jpeg(&painted(Size::new(1_500, 1_400), 1), &JpegOptions::default()).unwrap();
    let progressive = of(JpegOptions { progressive: true, ..JpegOptions::default() });
    let all = [of(JpegOptions::default()), color(JpegColor::Gray), progressive, color(JpegColor::Cmyk), large];
    let source = EncodedImages::new(all.into_iter().zip(0..));
    for (path, want) in [(JpegDecoder::Hardware, [1, 3, 0, 1]), (JpegDecoder::HardwareDevice, [1, 0, 2, 2])] {
        let (got, stats) = epoch(builder(&source, path).hardware_share(1.0));
        let decoded = [stats.decoded.hardware, stats.decoded.hybrid, stats.decoded.device, stats.decoded.cpu];
        assert_eq!(decoded, want, "{path:?}: {stats:?}");
        assert!(are_the_cpus(&source, &got), "{path:?}");
    }
}

/// Of images whose crop is small, the hybrid decoder decodes a region. Pixels at its sides are wrong, and not used.
#[test]
fn the_hybrid_decoder_decodes_the_needed_part_of_an_image() {
    let (sim, source) = (start(), images(40));
    for seed in 0..common::seeds() {
        sim.reset(seed);
        counts();
        let how = builder(&source, JpegDecoder::Hybrid).threads(seed as usize % 3);
        let (got, stats) = epoch(how);
        assert_eq!((stats.decoded.hybrid, stats.bad), (40, 0), "seed {seed}");
        assert!(are_the_cpus(&source, &got), "seed {seed}: {}", sim.message());
        assert!(counts().regions > 20, "seed {seed}");
    }
}

/// A batch that is given up leaves no image to the engines.
#[test]
fn an_epoch_that_is_left_leaves_the_engines_alone() {
    let (sim, source) = (start(), images(60));
    for seed in 0..common::seeds() {
        sim.reset(seed);
        let how = builder(&source, JpegDecoder::Hardware).hardware_share(1.0).batch_size(5).threads(2).prefetch(4);
        let pipeline = how.build().unwrap();
        for taken in [0, 1, 3] {
            assert!(pipeline.epoch(0).take(taken).all(|batch| batch.is_ok()), "seed {seed}");
            assert!(are_the_cpus(&source, &epoch_of(&pipeline).0), "seed {seed}");
        }
        drop(pipeline);
        assert_eq!((sim.report().alive(), sim.message()), (0, String::new()), "seed {seed}");
    }
}

#[test]
fn a_card_without_engines_says_so_when_the_pipeline_is_built() {
    through_run("without_engines", &[("CUDA_SIM_NVJPEG_ENGINES", Path::new("0"))]);
}

#[test]
#[ignore = "needs CUDA_SIM_NVJPEG_ENGINES=0; a_card_without_engines_says_so_when_the_pipeline_is_built runs it"]
fn without_engines() {
    let source = images(4);
    for path in [JpegDecoder::Hardware, JpegDecoder::HardwareDevice] {
        let error = builder(&source, path).build().err().unwrap();
        assert!(matches!(&error, Error::Device { call, .. } if call == "open the hardware decoder"), "{error}");
    }
}

/// nvJPEG up to 13.2 refuses the headers of some rotated images. Then it parses the whole image.
#[test]
fn rotated_images_are_parsed_as_a_whole() {
    through_run("rotated", &[("CUDA_SIM_NVJPEG", Path::new("rotated"))]);
}

#[test]
#[ignore = "needs CUDA_SIM_NVJPEG=rotated; rotated_images_are_parsed_as_a_whole runs it"]
fn rotated() {
    let image = |i: u32| {
        let options = JpegOptions { orientation: (i % 3 == 1).then_some(6), ..JpegOptions::default() };
        encode_jpeg(&painted(Size::new(30 + i, 20), i), &options).unwrap()
    };
    let source = EncodedImages::new((0..12).map(|i| (image(i), i)));
    counts();
    let (got, stats) = epoch(builder(&source, JpegDecoder::Hardware).hardware_share(1.0).threads(1).batch_size(4));
    assert_eq!(stats.decoded.hardware, 12, "{stats:?}");
    let counts = counts();
    assert_eq!((counts.headers, counts.wholes), (12, 4));
    assert!(are_the_cpus(&source, &got));
}

/// The CPU decodes what the engines refuse, an image at a time.
#[test]
fn refused_images_are_the_cpus() {
    through_run("refused", &[("CUDA_SIM_NVJPEG", Path::new("refuse"))]);
}

#[test]
#[ignore = "needs CUDA_SIM_NVJPEG=refuse; refused_images_are_the_cpus runs it"]
fn refused() {
    let source = images(20);
    for path in [JpegDecoder::Hardware, JpegDecoder::HardwareDevice] {
        let (got, stats) = epoch(builder(&source, path).hardware_share(1.0).threads(2).batch_size(6));
        assert_eq!((stats.decoded.cpu, stats.decoded.hardware, stats.bad), (20, 0, 0), "{path:?}: {stats:?}");
        assert!(are_the_cpus(&source, &got), "{path:?}");
    }
}
