//! The GPU path gives the CPU path's bytes, on a real or simulated device:
//! `cuda-sim/run cargo test --test integration gpu:: -- --ignored`.

use crate::common::recipes::recipe;
use crate::common::{self, Delivered, Random, WithBad, delivered, jpeg, samples, small, source};
use crate::common::{ragged, views};
use crate::{buckets, fields, partners};
use cudarc::driver::{CudaContext, result, sys};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};
use warpfeed::ops::{BucketCrop, CenterCrop, Resize};
use warpfeed::{
    Batch, DType, Device, Error, FieldTensor, IMAGENET_MEAN, IMAGENET_STD, ImageCache, JpegDecoder, LastBatch, Layout,
    Mix, OnError, Orientation, PaddedPipeline, Pipeline, PipelineBuilder, Preset, Strategy, Target, TargetSpec,
    TargetType, Targets, apply,
    fields::{BatchFields, BoxFormat, Fields},
    image::{ChromaSampling, JpegColor, JpegOptions, Size, encode_jpeg},
    ops::{
        Contrast, Custom, ErasingNoise, Op, RandomCopyPaste, RandomErasing, RandomMixUp, RandomMosaic, Transform,
        YoloCopyPaste, YoloPerspective, maybe, random_horizontal_flip, random_resized_crop, random_rotation,
        random_vertical_flip,
    },
    source::EncodedImages,
    view,
};
use warpfeed_bench::configurations::{self, configurations};
use warpfeed_bench::step::{Pace, StatedStep, TrainingStep};
use warpfeed_bench::subject::{Model, Subject};
use warpfeed_bench::train::TrainingRun;
use warpfeed_bench::trial::Trial;

const GPU: Device = Device::Cuda(0);

/// The batches of `builder` on the CPU, and on the GPU with images decoded by the CPU.
fn both(builder: impl Fn() -> PipelineBuilder) -> [Vec<Delivered>; 2] {
    let gpu = || builder().device(GPU).jpeg_decoder(JpegDecoder::Cpu);
    [builder().device(Device::Cpu), gpu()].map(|builder| delivered(&builder.build().unwrap(), 1))
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn types_layouts_and_strategies_equal_the_cpu() {
    let images = source(17);
    for strategy in [Strategy::Fused, Strategy::Sequential, Strategy::Composed] {
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::U8] {
            for layout in [Layout::Nchw, Layout::Nhwc] {
                // A width that is a multiple of every store, and one that is not.
                for (width, height) in [(64, 32), (37, 29)] {
                    let builder = || {
                        let builder = small(images.clone()).transform(random_resized_crop(Size::new(width, height)));
                        let builder = builder.strategy(strategy).output(dtype, layout);
                        if dtype == DType::U8 { builder } else { builder.normalize(IMAGENET_MEAN, IMAGENET_STD) }
                    };
                    let [want, got] = both(builder);
                    assert_eq!(want.len(), 17);
                    assert!(want == got, "{strategy:?} {dtype} {layout:?} {width} x {height}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn presets_equal_the_cpu() {
    let images = EncodedImages::new((0..6).map(|i| (jpeg(140 + 9 * i, 120 + 7 * i, i.into()), i)));
    for (name, ops) in [
        ("train", Preset::Train.ops()),
        ("eval", Preset::Eval.ops()),
        ("auto-augment", Preset::AutoAugment.ops()),
        ("rand-augment", Preset::RandAugment.ops()),
        ("trivial-augment", Preset::TrivialAugment.ops()),
        ("aug-mix", Preset::AugMix.ops()),
        ("trial A", Trial::A { load: 4 }.ops()),
        ("trial B", Trial::B { load: 1 }.ops()),
    ] {
        for strategy in [Strategy::Fused, Strategy::Sequential] {
            let builder = || {
                let builder = Pipeline::builder(images.clone()).shuffle(3).batch_size(4);
                ops.iter().cloned().fold(builder, PipelineBuilder::transform)
            };
            let [want, got] = both(|| builder().strategy(strategy).threads(2));
            assert!(want == got, "{name} {strategy:?}");
        }
    }
}

/// Every operation, on images of odd sizes, some of one pixel.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn random_recipes_equal_the_cpu() {
    let mut random = Random(19);
    for case in 0..400 {
        let size = Size::new(random.within(1, 110), random.within(1, 110));
        let bytes = jpeg(size.width, size.height, case % 12);
        let ops = recipe(&mut random, size);
        for strategy in [Strategy::Sequential, Strategy::Fused, Strategy::Composed] {
            let options = common::as_made(&ops).strategy(strategy).orientation(Orientation::Ignore);
            let want = apply(&bytes, &ops, &options).unwrap();
            let replay = || format!("case {case}, {strategy:?}, {size}: {}", serde_json::to_string(&ops).unwrap());
            let got = apply(&bytes, &ops, &options.device(GPU)).unwrap_or_else(|error| panic!("{error}: {}", replay()));
            assert_eq!(got.shape(), want.shape(), "{}", replay());
            assert!(got.as_bytes().unwrap() == want.as_bytes().unwrap(), "{}", replay());
        }
    }
}

/// Cases that ordinary images and parameters do not reach.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn rare_paths_equal_the_cpu() {
    let (odd, long) = (Size::new(250, 131), Size::new(33_000, 3));
    let cases = [
        // Coordinates of 32,768 and more.
        (long, json!([{"op": "rotate", "degrees": 0.5, "fill": [9, 8, 7]}])),
        (long, json!([{"op": "rotate", "degrees": 0.5, "fill": "edge"}])),
        (odd, json!([{"op": "rotate", "degrees": -33.3, "fill": "edge"}])),
        // More weights than fit in shared memory.
        (Size::new(900, 40), json!([{"op": "resize", "width": 3, "height": 2, "interpolation": "lanczos"}])),
        (Size::new(30, 700), json!([{"op": "resize", "width": 3, "height": 2, "interpolation": "bilinear"}])),
        // Reaches beyond the image on all sides.
        (odd, json!([{"op": "gaussian_blur", "kernel": 101, "sigma": 30.0}])),
        (Size::new(7, 5), json!([{"op": "gaussian_blur", "kernel": 23, "sigma": 1.7}])),
        (Size::new(17, 33), json!([{"op": "dilate", "kernel": 45}, {"op": "erode", "kernel": 8}])),
        (odd, json!([{"op": "crop", "x": -60, "y": -70, "width": 20, "height": 30, "fill": "edge"}])),
        (odd, json!([{"op": "crop", "x": 300, "y": 0, "width": 5, "height": 5, "fill": [1, 200, 77]}])),
        (Size::new(1, 1), json!([{"op": "resize", "width": 300, "height": 131, "interpolation": "bicubic"}])),
        (odd, json!([{"op": "saturation", "factor": 20.0}, {"op": "contrast", "factor": 0.0}])),
    ];
    // More steps than are copied to shared memory.
    let rotations = (0..12).map(|i| json!({"op": "rotate", "degrees": 7 * i + 3}));
    let resize = json!({"op": "resize", "width": 90, "height": 70});
    let cases = cases.into_iter().chain([(odd, rotations.chain([resize]).collect())]);
    let compare = |bytes: &[u8], ops: Value| {
        let ops: Vec<Op> = serde_json::from_value(ops).unwrap();
        for strategy in [Strategy::Sequential, Strategy::Fused] {
            let options = common::as_made(&ops).strategy(strategy);
            let [want, got] = [Device::Cpu, GPU].map(|device| apply(bytes, &ops, &options.device(device)));
            assert!(want.unwrap().as_bytes().unwrap() == got.unwrap().as_bytes().unwrap(), "{strategy:?} {ops:?}");
        }
    };
    for (seed, (size, ops)) in (1..).zip(cases) {
        compare(&jpeg(size.width, size.height, seed), ops);
    }
}

/// Kernels turn hues without the doubles of the CPU: every combination of its sixth of the circle, chroma and share,
/// and every one of hue, saturation and value.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn every_hue_equals_the_cpu() {
    let compare = |colors: &[[u32; 3]], factor: f64| {
        let header = format!("P6 256 {} 255\n", colors.len() / 256);
        let pixels = colors.iter().flatten().map(|value| *value as u8);
        let bytes: Vec<u8> = header.into_bytes().into_iter().chain(pixels).collect();
        let ops: Vec<Op> = serde_json::from_value(json!([{"op": "hue", "factor": factor}])).unwrap();
        let of = |device| apply(&bytes, &ops, &common::as_made(&ops).device(device)).unwrap();
        assert!(of(Device::Cpu).as_bytes().unwrap() == of(GPU).as_bytes().unwrap(), "{factor}");
    };
    let pairs: Vec<[u32; 2]> = (0..1 << 16).map(|i| [i / 256, i % 256]).collect();
    // Each channel the largest, with any two others.
    for place in 0..3 {
        let colors: Vec<_> = pairs
            .iter()
            .map(|[a, b]| {
                let mut color = [255, *a, *b];
                color.rotate_right(place);
                color
            })
            .collect();
        compare(&colors, 0.22);
    }
    // Each value and saturation, turned to each hue.
    let colors: Vec<_> = pairs.iter().map(|[value, other]| [*value, *value.min(other), *value.min(other)]).collect();
    for shift in -127..=127 {
        compare(&colors, f64::from(shift) / 255.0);
    }
}

/// Kernels guess in whole numbers what the CPU computes in doubles.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn rotations_equal_the_cpu() {
    let sizes = [(1, 1), (1, 9), (40, 2), (8000, 7), (3, 8000), (640, 480), (2, 2), (257, 129)];
    let angles = (0..40).map(|i| -180.0 + 9.1 * f64::from(i)).chain([1e-9, 45.0, 90.000_000_1, 179.999, -1e-6]);
    for (i, degrees) in (0..).zip(angles) {
        let (width, height) = sizes[i % sizes.len()];
        let bytes = jpeg(width, height, i as u64);
        // A long image's canvas would be a square.
        let expand = i % 3 == 0 && width.max(height) < 1000;
        for fill in [json!("edge"), json!([7, 130, 255])] {
            let rotate = json!([{
                "op": "rotate", "degrees": degrees, "interpolation": "bilinear", "fill": fill, "expand": expand
            }]);
            let ops: Vec<Op> = serde_json::from_value(rotate).unwrap();
            for strategy in [Strategy::Sequential, Strategy::Composed] {
                let options = common::as_made(&ops).strategy(strategy);
                let of = |device| apply(&bytes, &ops, &options.device(device)).unwrap();
                let equal = of(Device::Cpu).as_bytes().unwrap() == of(GPU).as_bytes().unwrap();
                assert!(equal, "{strategy:?} {width} x {height} {ops:?}");
            }
        }
    }
}

/// A rotation reads mirrored, turned and cropped images as they are stored. The stages before it have made only the
/// pixels that later ones need.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn rotations_of_views_equal_the_cpu() {
    let turns = [
        json!([]),
        json!([{"op": "hflip"}]),
        json!([{"op": "vflip"}]),
        json!([{"op": "hflip"}, {"op": "vflip"}]),
        json!([{"op": "rotate", "degrees": 90, "expand": true}]),
        json!([{"op": "hflip"}, {"op": "rotate", "degrees": 270, "expand": true}]),
        json!([{"op": "crop", "x": 20, "y": 9, "width": 200, "height": 150}, {"op": "vflip"}]),
    ];
    let bytes = jpeg(300, 200, 5);
    let mut number = 0;
    for first in &turns {
        for second in &turns {
            for interpolation in ["bilinear", "bicubic"] {
                number += 1;
                let degrees = f64::from(number * 37 % 60 - 30);
                let rotate = |sign: f64| json!({"op": "rotate", "degrees": sign * degrees, "interpolation": interpolation, "expand": true});
                let crop = json!({"op": "center_crop", "width": 64 + number % 90, "height": 48 + number % 70});
                let ops = [first, second].into_iter().zip([1.0, -0.7]).flat_map(|(turn, sign)| {
                    turn.as_array().unwrap().iter().cloned().chain([rotate(sign)]).collect::<Vec<_>>()
                });
                let ops: Value = ops.chain([crop]).collect();
                let ops: Vec<Op> = serde_json::from_value(ops).unwrap();
                let of = |device| apply(&bytes, &ops, &common::as_made(&ops).strategy(Strategy::Fused).device(device));
                let equal = of(Device::Cpu).unwrap().as_bytes().unwrap() == of(GPU).unwrap().as_bytes().unwrap();
                assert!(equal, "{ops:?}");
            }
        }
    }
}

/// Baseline in all samplings, progressive, gray, CMYK; and PNG.
fn kinds() -> EncodedImages {
    let image = |i: u32| common::image(61 + i, 47 + 2 * i, i.into());
    let mut encoded = Vec::new();
    for (i, sampling) in
        [ChromaSampling::S444, ChromaSampling::S422, ChromaSampling::S420, ChromaSampling::S440].into_iter().enumerate()
    {
        for progressive in [false, true] {
            let options = JpegOptions { sampling, progressive, ..JpegOptions::default() };
            encoded.push(encode_jpeg(&image(i as u32), &options).unwrap());
        }
    }
    for color in [JpegColor::Gray, JpegColor::Cmyk] {
        encoded.push(encode_jpeg(&image(9), &JpegOptions { color, ..JpegOptions::default() }).unwrap());
    }
    let png = tempfile::Builder::new().suffix(".png").tempfile().unwrap();
    warpfeed::image::write_png(&image(5), png.path()).unwrap();
    encoded.push(std::fs::read(png.path()).unwrap());
    EncodedImages::new(encoded.into_iter().zip(0..))
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn every_kind_of_image_gets_through_on_every_path() {
    let small = || small(kinds()).output(DType::U8, Layout::Nhwc);
    let want = delivered(&small().device(Device::Cpu).build().unwrap(), 0);
    for path in JpegDecoder::ALL.iter().copied() {
        let is_hardware = matches!(path, JpegDecoder::Hardware | JpegDecoder::HardwareDevice);
        let pipeline = match small().device(GPU).jpeg_decoder(path).hardware_share(1.0).build() {
            // A device without hardware decoder.
            Err(Error::Device { .. }) if is_hardware => continue,
            pipeline => pipeline.unwrap(),
        };
        let mut epoch = pipeline.epoch(0);
        let mut marked = 0;
        let sample = |batch: warpfeed::Result<Batch>| {
            let batch = batch.unwrap();
            marked += batch.receipts(false).unwrap().iter().filter(|receipt| receipt.by_nvjpeg).count() as u64;
            samples(&batch)
        };
        let got: Vec<_> = epoch.by_ref().flat_map(sample).collect();
        let stats = epoch.stats();
        assert_eq!(marked, stats.decoded.hybrid + stats.decoded.hardware, "{path:?}");
        let decoded = [stats.decoded.cpu, stats.decoded.device, stats.decoded.hybrid, stats.decoded.hardware];
        match path {
            JpegDecoder::Cpu => assert_eq!(decoded, [11, 0, 0, 0]),
            JpegDecoder::Device => {
                assert_eq!(decoded, [6, 5, 0, 0]);
                let left: Vec<_> = stats.decoded.cpu_fallbacks.iter().collect();
                assert_eq!(left, [("no JPEG", 1), ("progressive", 4), ("neither gray nor three colors", 1)]);
            }
            JpegDecoder::Hybrid => assert_eq!(decoded, [2, 0, 9, 0]),
            // Gray images are for the hybrid decoder too.
            JpegDecoder::Hardware => assert_eq!(decoded, [2, 0, 5, 4]),
            JpegDecoder::HardwareDevice => assert_eq!(decoded, [6, 1, 0, 4]),
            _ => assert_eq!(decoded.iter().sum::<u64>(), 11),
        }
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            assert_eq!((got.index, got.label), (want.index, want.label));
            // nvJPEG's arithmetic is not libjpeg's; single values next to edges of color differ by much.
            let is_nvjpeg = is_hardware || path == JpegDecoder::Hybrid;
            let most = if is_nvjpeg && !pipeline.device_name().contains("simulated") { 4.0 } else { 0.0 };
            let differences = got.bytes.iter().zip(&want.bytes).map(|(a, b)| f64::from(a.abs_diff(*b)));
            let mean = differences.sum::<f64>() / want.bytes.len() as f64;
            assert!(got.bytes.len() == want.bytes.len() && mean <= most, "{path:?}, sample {}: {mean}", got.index);
        }
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn kept_images_are_those_of_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    // The second holds some only.
    let caches = [(1 << 30, 11), (20_000, 1), (1 << 30, 11)];
    for (i, (size_bytes, least)) in caches.into_iter().enumerate() {
        let cache = match i {
            2 => ImageCache::disk(folder.path(), size_bytes),
            _ => ImageCache::memory(size_bytes),
        };
        let builder = |device| small(kinds()).device(device).jpeg_decoder(JpegDecoder::Cpu);
        let cpu = builder(Device::Cpu).build().unwrap();
        let gpu = builder(GPU).cache(cache).build().unwrap();
        for number in 0..3 {
            let mut epoch = gpu.epoch(number);
            let got: Vec<_> = epoch.by_ref().flat_map(|batch| samples(&batch.unwrap())).collect();
            assert!(got == delivered(&cpu, number), "cache {i}, epoch {number}");
            let stats = epoch.stats();
            assert_eq!(stats.cached + stats.decoded.cpu, 11);
            assert_eq!(stats.cached, if number == 0 { 0 } else { gpu.cache_usage().unwrap().images });
        }
        let usage = gpu.cache_usage().unwrap();
        assert!(usage.images >= least && usage.full == (i == 1), "{usage:?}");
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn bad_images_are_dealt_with_as_the_policy_says() {
    let bad = || WithBad { good: source(23), bad: vec![0, 3, 4, 5, 6, 7, 14, 22] };
    for path in [JpegDecoder::Cpu, JpegDecoder::Hybrid, JpegDecoder::Hardware, JpegDecoder::HardwareDevice] {
        for policy in [OnError::Skip, OnError::Substitute] {
            for last in [LastBatch::Keep, LastBatch::Pad] {
                let builder = |device| small(bad()).on_error(policy).last_batch(last).device(device).jpeg_decoder(path);
                let run = |device| {
                    let mut epoch = builder(device).build().unwrap().epoch(2);
                    let samples: Vec<_> = epoch.by_ref().flat_map(|batch| samples(&batch.unwrap())).collect();
                    let bad: Vec<_> = epoch.bad().iter().map(|bad| bad.index).collect();
                    (samples, bad)
                };
                let ((want, want_bad), (got, got_bad)) = (run(Device::Cpu), run(GPU));
                assert_eq!(got_bad, want_bad);
                let keys = |samples: &[Delivered]| samples.iter().map(|s| (s.index, s.label)).collect::<Vec<_>>();
                assert_eq!(keys(&got), keys(&want), "{path:?} {policy:?} {last:?}");
                assert!(path != JpegDecoder::Cpu || got == want, "{policy:?} {last:?}");
            }
        }
        let mut epoch = small(bad()).device(GPU).jpeg_decoder(path).build().unwrap().epoch(2);
        let error = epoch.find_map(Result::err).unwrap();
        assert!(error.is_bad_sample(), "{error}");
        assert!(epoch.next().is_none());
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn padding_repeats_the_last_image() {
    let pipeline =
        small(source(7)).last_batch(LastBatch::Pad).device(GPU).jpeg_decoder(JpegDecoder::Cpu).build().unwrap();
    let batches: Vec<_> = pipeline.epoch(0).map(Result::unwrap).collect();
    assert_eq!((batches.len(), batches[1].len(), batches[1].padding()), (2, 5, 3));
    let images = batches[1].images().to_host().unwrap();
    for i in 2..5 {
        assert_eq!(images.image_bytes(i).unwrap(), images.image_bytes(1).unwrap());
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn threads_batches_and_prefetch_do_not_matter() {
    let want = delivered(&small(source(31)).device(Device::Cpu).build().unwrap(), 4);
    for (threads, batch_size, prefetch) in [(0, 5, 1), (1, 1, 1), (3, 4, 3), (4, 40, 2)] {
        let builder = small(source(31)).threads(threads).batch_size(batch_size).prefetch(prefetch);
        let pipeline = builder.device(GPU).jpeg_decoder(JpegDecoder::Cpu).build().unwrap();
        assert!(delivered(&pipeline, 4) == want, "{threads} {batch_size} {prefetch}");
        // Two epochs at a time, one of them dropped midway.
        let mut dropped = pipeline.epoch(0);
        dropped.next().unwrap().unwrap();
        let kept: Vec<_> = pipeline.epoch(4).map(Result::unwrap).collect();
        drop(dropped);
        assert!(kept.iter().flat_map(samples).collect::<Vec<_>>() == want);
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn batches_outlive_their_pipeline() {
    let pipeline = small(source(12)).device(GPU).jpeg_decoder(JpegDecoder::Cpu).build().unwrap();
    let hash = |pipeline: &Pipeline| -> Vec<[u8; 32]> {
        delivered(pipeline, 0).iter().map(|sample| Sha256::digest(&sample.bytes).into()).collect()
    };
    let want = hash(&pipeline);
    let batches: Vec<_> = pipeline.epoch(0).map(Result::unwrap).collect();
    drop(pipeline);
    let got: Vec<[u8; 32]> = batches.iter().flat_map(samples).map(|s| Sha256::digest(&s.bytes).into()).collect();
    assert_eq!(got, want);
    assert!(batches[0].images().as_bytes().is_err() && batches[0].images().device() == GPU);
}

/// A stated step is a kernel after the batch, which does not keep the host; the batch's memory comes round again.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn a_stated_step_passes_its_time_on_the_device() {
    let length = Duration::from_millis(20);
    let pipeline = small(source(17)).device(GPU).prefetch(1).build().unwrap();
    let mut step = StatedStep::new("small", length, Pace::Device).unwrap();
    for batch in pipeline.epoch(0) {
        let batch = batch.unwrap();
        batch.images().synchronize().unwrap();
        let start = Instant::now();
        step.train(batch).unwrap();
        step.finish().unwrap();
        assert!(start.elapsed() >= length, "{:?}", start.elapsed());
    }
    assert!(step.name().starts_with("small, a stated 20.00 ms a batch; on cuda:0 a kernel"), "{}", step.name());
    let mut ignore = |_: &_| Ok(());
    let mut run = TrainingRun::start(&mut step, &mut ignore);
    run.epoch(&pipeline, 1, None).unwrap();
    let times = run.finish();
    assert!(times.epochs[0].train_s >= 4.0 * length.as_secs_f64(), "{:?}", times.epochs[0]);
    let batch = pipeline.epoch(0).next().unwrap().unwrap();
    let mut endless = StatedStep::new("endless", Duration::from_secs(5_000), Pace::Device).unwrap();
    assert!(endless.train(batch).unwrap_err().is_parameter());
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn pageable_memory_gives_the_same_and_is_a_configuration() {
    let builder = || small(source(17)).device(GPU).jpeg_decoder(JpegDecoder::Cpu);
    let [pinned, pageable] = [true, false].map(|pinned| delivered(&builder().pinned(pinned).build().unwrap(), 1));
    assert!(pinned == pageable);
    let settings = configurations::ConfigurationsSettings {
        threads: vec![1],
        prefetch: vec![1],
        persistent: vec![true],
        pinned: vec![true, false],
        batch_size: 4,
        name: "crop".to_owned(),
        ops: vec![random_resized_crop(8)],
        strategy: Strategy::Fused,
        time: Duration::from_millis(100),
        rounds: 1,
        gpus: 1,
        baseline: false,
    };
    let subject = Subject { device: GPU, ..Subject::new("made", source(8)) };
    let (mut model, mut ignore) = (Model::none(), |_: &_| Ok(()));
    let found = configurations(&subject, &settings, &mut model, &mut ignore, &mut |_| ()).unwrap();
    let report = found.report.json();
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    let mut column: Vec<&str> = rows.iter().map(|row| row[3].as_str().unwrap()).collect();
    column.sort_unstable();
    assert_eq!((column, report["tables"][0]["columns"][3].as_str()), (vec!["no", "yes"], Some("pinned")));
    let result = found.report.result.as_ref().unwrap();
    assert!(result.rows.iter().any(|row| row[1].text().contains("pinned")), "{result:?}");
    assert_eq!(found.best.options().contains("--pageable"), found.best.pinned == Some(false));
}

/// Compares a pipeline of several views on the CPU with the GPU, with images decoded on every path.
fn check_views(builder: impl Fn() -> PipelineBuilder) {
    let want = views::delivered(builder().device(Device::Cpu).build().unwrap().epoch(1));
    for path in [JpegDecoder::Cpu, JpegDecoder::Hybrid, JpegDecoder::Hardware, JpegDecoder::HardwareDevice] {
        let pipeline = match builder().device(GPU).jpeg_decoder(path).build() {
            // A device without hardware decoder.
            Err(Error::Device { .. }) if path.to_string().starts_with("hardware") => continue,
            pipeline => pipeline.unwrap(),
        };
        if path != JpegDecoder::Cpu && !pipeline.device_name().contains("simulated") {
            // nvJPEG's arithmetic is not libjpeg's.
            continue;
        }
        assert!(views::delivered(pipeline.epoch(1)) == want, "{path:?}");
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn views_equal_the_cpu() {
    for strategy in [Strategy::Fused, Strategy::Sequential, Strategy::Composed] {
        check_views(|| views::builder(source(13)).strategy(strategy));
    }
    check_views(|| views::builder(source(13)).output(DType::F32, Layout::Nchw).normalize([0.4; 3], [0.2; 3]));
    check_views(|| views::builder(kinds()).last_batch(LastBatch::Pad));
    check_views(|| {
        let bad = WithBad { good: source(13), bad: vec![0, 4, 5, 12] };
        views::builder(bad).on_error(OnError::Skip).last_batch(LastBatch::Pad)
    });
    check_views(|| views::builder(source(13)).cache(ImageCache::memory(1 << 20)));
    let invert = |image: &mut warpfeed::image::Image| {
        image.pixels_mut().iter_mut().flatten().for_each(|byte| *byte = !*byte);
    };
    check_views(|| views::builder(source(7)).transform(Custom::new("invert", invert)));
    // Whole images find no memory in addition to the views' needs.
    let large = || EncodedImages::new((0..12).map(|i| (jpeg(300, 250, i), i as u32)));
    let crops = || Pipeline::builder(large()).views([warpfeed::five_crop(16)]).output(DType::U8, Layout::Nhwc);
    check_views(|| crops().batch_size(4).threads(3).device_memory(3 * 1_500_000));
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn images_of_any_size_equal_the_cpu() {
    let check = |builder: &dyn Fn() -> PipelineBuilder| {
        let want = ragged::delivered(builder().device(Device::Cpu).build_ragged().unwrap().epoch(1));
        for path in [JpegDecoder::Cpu, JpegDecoder::Auto] {
            let pipeline = builder().device(GPU).jpeg_decoder(path).build_ragged().unwrap();
            // Twice: memory is used again, for images of other sizes.
            let again = ragged::delivered(pipeline.epoch(2));
            assert!(again.len() == want.len() && ragged::delivered(pipeline.epoch(1)) == want, "{path:?}");
        }
    };
    for strategy in [Strategy::Fused, Strategy::Sequential, Strategy::Composed] {
        check(&|| ragged::builder(source(23)).strategy(strategy));
    }
    check(&|| ragged::builder(kinds()).output(DType::F32, Layout::Nchw).normalize([0.4; 3], [0.2; 3]));
    check(&|| {
        let bad = WithBad { good: source(13), bad: vec![0, 4, 5, 12] };
        ragged::builder(bad).on_error(OnError::Skip)
    });
    let custom = |image: &mut warpfeed::image::Image| image.pixels_mut().reverse();
    check(&|| ragged::builder(source(7)).transform(Custom::new("turn", custom)));
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn padded_batches_equal_the_cpu() {
    let check = |builder: &dyn Fn() -> PipelineBuilder| {
        let all = |pipeline: PaddedPipeline, epoch| {
            pipeline.epoch(epoch).flat_map(|batch| ragged::padded_images(&batch.unwrap(), 4)).collect::<Vec<_>>()
        };
        let want = all(builder().device(Device::Cpu).build_padded(4).unwrap(), 1);
        for path in [JpegDecoder::Cpu, JpegDecoder::Auto] {
            let pipeline = builder().device(GPU).jpeg_decoder(path).build_padded(4).unwrap();
            assert!(all(pipeline.clone(), 2).len() == want.len() && all(pipeline, 1) == want, "{path:?}");
        }
    };
    for strategy in [Strategy::Fused, Strategy::Sequential, Strategy::Composed] {
        check(&|| ragged::builder(source(23)).strategy(strategy).last_batch(LastBatch::Pad));
    }
    let erased = || ragged::builder(kinds()).transform(RandomErasing::new(0.9).noise(ErasingNoise::PerPixel));
    check(&|| erased().output(DType::F16, Layout::Nchw).normalize([0.4; 3], [0.2; 3]));
    check(&|| erased().output(DType::F32, Layout::Nhwc).normalize([0.4; 3], [0.2; 3]));
    check(&|| ragged::builder(source(7)).channels(1).output(DType::F32, Layout::Nchw));
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn samples_of_several_equal_the_cpu() {
    for tiles in [4, 9] {
        let [want, got] = both(|| {
            Pipeline::builder(source(9))
                .batch_size(4)
                .transform(RandomMosaic::new(24).tiles(tiles))
                .transform(YoloPerspective::new(24))
                .transform(RandomMixUp::new(32.0))
                .normalize([0.5; 3], [0.2; 3])
        });
        assert!(want == got, "{tiles}");
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn pasted_objects_equal_the_cpu() {
    let jpegs = partners::jpegs(9);
    let pastes: [Transform; 3] =
        [RandomCopyPaste::new().into(), RandomCopyPaste::new().blending(false).into(), YoloCopyPaste::new(1.0).into()];
    for paste in pastes {
        let [want, got] = both(|| partners::pasting(&jpegs, paste.clone()));
        assert!(want == got, "{paste:?}");
    }
}

/// The fields of a batch's first view, as they are in host memory.
fn host_fields<I>(batch: &Batch<I>) -> Vec<Fields> {
    let fields = batch.fields(0).unwrap().to_host().unwrap();
    (0..fields.len()).map(|i| fields.image(i).unwrap().clone()).collect()
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn masks_of_all_operations_equal_the_cpu() {
    for strategy in [Strategy::Fused, Strategy::Sequential] {
        let all = |device| {
            let builder = fields::masks_of_all_operations().strategy(strategy).device(device);
            let batches = builder.build_ragged().unwrap().epoch(0).map(|batch| {
                let batch = batch.unwrap();
                assert_eq!(batch.fields(0).unwrap().device(), device);
                host_fields(&batch)
            });
            batches.collect::<Vec<_>>().concat()
        };
        let [want, got] = [Device::Cpu, GPU].map(all);
        assert_eq!((want.len(), got.len()), (304, 304));
        for (i, (want, got)) in want.iter().zip(&got).enumerate() {
            assert!(want == got, "case {i}, {strategy:?}");
        }
    }
}

/// Auxiliary images, of whatever size, go through the kernels as masks do, with their filters.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn aux_images_equal_the_cpu() {
    let jpegs = fields::jpegs(9);
    let names = ["depth", "other", "high"];
    for last in [LastBatch::Keep, LastBatch::Pad] {
        let [cpu, gpu] = [Device::Cpu, GPU].map(|device| {
            let builder =
                Pipeline::builder(fields::with_aux_images(&jpegs)).fields(names).batch_size(4).last_batch(last);
            let builder = builder.transform(random_horizontal_flip(0.5)).transform(Resize::new(Size::new(24, 20)));
            builder.device(device).build().unwrap()
        });
        for (want, got) in cpu.epoch(0).zip(gpu.epoch(0)) {
            let (want, got) = (want.unwrap(), got.unwrap());
            for name in names {
                let [want, got] = [&want, &got].map(|batch| batch.fields(0).unwrap().image_tensor(name).unwrap());
                assert_eq!((got.device(), got.shape()), (GPU, want.shape()));
                assert!(got.into_parts().unwrap() == want.into_parts().unwrap(), "{name}");
            }
            assert!(host_fields(&want) == host_fields(&got));
        }
    }
    // Filters, and images that are padded.
    let all = |device| {
        let builder = Pipeline::builder(fields::with_aux_images(&jpegs)).fields(["depth", "other"]).batch_size(4);
        let builder = builder.transform(random_horizontal_flip(0.5)).transform(random_rotation(-20.0..=20.0));
        let builder = builder.transform(random_resized_crop(Size::new(17, 23))).device(device);
        let batches = builder.build_padded(16).unwrap().epoch(0).map(|batch| {
            let batch = batch.unwrap();
            let fields = batch.fields(0).unwrap();
            let [_, _, height, width] = batch.images().tensor().shape();
            let size = Size::new(width as u32, height as u32);
            let padded = ["depth", "other"].map(|name| fields.padded_image_tensor(name, size).unwrap());
            assert!(padded.iter().all(|tensor| tensor.device() == device));
            let each = fields.image_tensors("other").unwrap().into_iter().chain(padded);
            let each = each.map(|tensor| tensor.into_parts().unwrap()).collect::<Vec<_>>();
            (host_fields(&batch), each)
        });
        batches.collect::<Vec<_>>()
    };
    assert!(all(Device::Cpu) == all(GPU));
}

/// Masks lie on the images' device, in every kind of batch, and their memory comes back.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn masks_are_tensors_on_the_device() {
    let jpegs = fields::jpegs(9);
    let builder = || fields::builder(&jpegs).jpeg_decoder(JpegDecoder::Cpu);
    let two = || view([random_resized_crop(24)]).times(2);
    let kinds = [
        builder(),
        builder().strategy(Strategy::Sequential).last_batch(LastBatch::Pad),
        builder().cache(ImageCache::memory(1 << 20)),
        builder()
            .views([two(), view([random_vertical_flip(0.5)])])
            .transform(Resize::new(Size::new(20, 24)))
            .last_batch(LastBatch::Pad),
    ];
    for builder in kinds {
        let [cpu, gpu] = [Device::Cpu, GPU].map(|device| builder.clone().device(device).build().unwrap());
        let (mut addresses, mut beside) = (Vec::new(), Vec::new());
        for epoch in 0..4 {
            for (want, got) in cpu.epoch(epoch).zip(gpu.epoch(epoch)) {
                let (want, got) = (want.unwrap(), got.unwrap());
                for view in 0..cpu.view_sizes().len() {
                    let images = [&want, &got].map(|batch| batch.view(view).unwrap());
                    let (want, got) = (want.fields(view).unwrap(), got.fields(view).unwrap());
                    assert_eq!((got.offsets(), got.batch_indices()), (want.offsets(), want.batch_indices()));
                    for name in ["mask", "masks"] {
                        let (want, got) = (want.mask_tensor(name).unwrap(), got.mask_tensor(name).unwrap());
                        assert_eq!((got.device(), got.shape(), got.values().is_err()), (GPU, want.shape(), true));
                        let host = got.to_host().unwrap();
                        assert!(host.values().unwrap() == want.values().unwrap(), "{name}");
                        assert_eq!(got.strides(), want.strides());
                        if name == "mask" {
                            let memory = got.cuda().unwrap();
                            addresses.push(memory.on_stream(&memory.context().default_stream()).unwrap());
                        }
                    }
                    assert_eq!(got.masks("masks").unwrap(), want.masks("masks").unwrap());
                    for (want, got) in
                        want.mask_tensors("masks").unwrap().iter().zip(got.mask_tensors("masks").unwrap())
                    {
                        assert_eq!((got.device(), got.shape()), (GPU, want.shape()));
                        assert!(got.into_parts().unwrap().0 == *want.values().unwrap());
                    }
                    let boxes = |fields: &BatchFields| fields.boxes(BoxFormat::Xyxy).unwrap();
                    assert_eq!(boxes(got), boxes(want));
                    // Values in host memory are copied to the images' device, in memory that comes back.
                    let values = [
                        FieldTensor::from(boxes(got)),
                        got.integers("labels").unwrap().into(),
                        got.batch_indices().into(),
                        got.keypoint_tensor("keypoints").unwrap(),
                    ];
                    for tensor in values {
                        let there = tensor.clone().to_device_of(images[1]).unwrap();
                        assert_eq!((there.device(), there.shape()), (GPU, tensor.shape()));
                        assert_eq!((there.type_name(), there.strides()), (tensor.type_name(), tensor.strides()));
                        assert_eq!(there.to_host().unwrap().values().unwrap(), tensor.values().unwrap());
                        let memory = there.cuda().unwrap();
                        beside.push(memory.on_stream(&memory.context().default_stream()).unwrap());
                        {
                            let shared: dlpark::versioned::Dlpack = there.into_dlpack().unwrap();
                            assert_eq!(shared.validate().expect("it is well formed").ndim(), tensor.shape().len());
                        }
                        assert_eq!(tensor.to_device_of(images[0]).unwrap().device(), Device::Cpu);
                    }
                }
            }
        }
        let all = beside.len();
        beside.sort_unstable();
        beside.dedup();
        assert!(beside.len() < all / 4, "{} pieces of memory for {all} values", beside.len());
        addresses.sort_unstable();
        let all = addresses.len();
        addresses.dedup();
        assert!(addresses.len() < all / 2, "{} pieces of memory for {all} fields", addresses.len());
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn batches_by_shape_equal_the_cpu() {
    let mixed = || {
        let builder = buckets::builder(buckets::shapes(40)).output(DType::F32, Layout::Nchw);
        builder.targets(TargetSpec::soft(10)).mix(Mix::torchvision(0.2, 1.0))
    };
    let views = || {
        let crop = || Transform::from(BucketCrop::new().random(true));
        let views = [view([crop()]), view([crop(), random_horizontal_flip(0.5)]).times(2)];
        Pipeline::builder(buckets::shapes(30)).buckets("32x32,48x24,24x48".parse().unwrap()).batch_size(4).views(views)
    };
    let usual = || buckets::builder(buckets::shapes(40));
    let builders: [&dyn Fn() -> PipelineBuilder; 4] = [&usual, &mixed, &views, &|| buckets::sized("drawn=16,24,32/4")];
    for (number, builder) in builders.iter().enumerate() {
        let want = buckets::batches(builder().device(Device::Cpu).build().unwrap().epoch(1));
        let shapes: std::collections::BTreeSet<_> = want.iter().map(|(shape, _)| shape).collect();
        assert!(shapes.len() > 2, "{shapes:?}");
        for path in [JpegDecoder::Cpu, JpegDecoder::Device] {
            let pipeline = builder().device(GPU).jpeg_decoder(path).build().unwrap();
            assert!(buckets::batches(pipeline.epoch(1)) == want, "builder {number}, {path:?}");
        }
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn masks_of_padded_batches_equal_the_cpu() {
    let all = |device| {
        let builder = fields::masks_of_all_operations().last_batch(LastBatch::Pad).device(device);
        let batches = builder.build_padded(16).unwrap().epoch(0).map(|batch| {
            let batch = batch.unwrap();
            let fields = batch.fields(0).unwrap();
            let [_, height, width, _] = batch.images().tensor().shape();
            let size = Size::new(width as u32, height as u32);
            let padded = ["ids", "mask", "masks"].map(|name| fields.padded_mask_tensor(name, size).unwrap());
            assert!(fields.padded_mask_tensor("mask", Size::new(1, 1)).is_err());
            // Without padding there are gaps between rows.
            let each = fields.mask_tensors("masks").unwrap();
            assert!(padded.iter().chain(&each).all(|tensor| tensor.device() == device));
            let parts = padded.into_iter().chain(each).map(|tensor| tensor.into_parts().unwrap()).collect::<Vec<_>>();
            (host_fields(&batch), parts)
        });
        batches.collect::<Vec<_>>()
    };
    let [want, got] = [Device::Cpu, GPU].map(all);
    assert_eq!(want.len(), 10);
    assert!(want == got);
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn operations_of_the_caller_run_on_the_cpu() {
    let invert = |image: &mut warpfeed::image::Image| {
        image.pixels_mut().iter_mut().flatten().for_each(|byte| *byte = !*byte);
    };
    let custom = Custom::new("invert", invert);
    let [want, got] = both(|| small(source(9)).transform(custom.clone()).normalize([0.5; 3], [0.2; 3]));
    assert!(want == got);
}

/// Encoded images that stay on the device are the same in all later epochs, and whatever the CPU is left to do with them.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn images_that_stay_on_the_device_equal_the_cpu() {
    let mut encoded: Vec<_> = (0..20).map(|i| jpeg(150 + 3 * i, 130 + i, i.into())).collect();
    // Damaged below the crops of some epochs.
    for image in encoded.iter_mut().take(4) {
        let len = image.len();
        image[len - len / 4] = 0xFF;
        image[len - len / 4 + 1] = 0xD9;
    }
    // Decoding of those with restart markers begins at these.
    for i in 0..3 {
        let options = JpegOptions { restart_interval_rows: 1, ..JpegOptions::default() };
        encoded.push(encode_jpeg(&common::image(140, 120 + i, i.into()), &options).unwrap());
    }
    let images = EncodedImages::new(encoded.into_iter().zip(0..));
    let invert = |image: &mut warpfeed::image::Image| {
        image.pixels_mut().iter_mut().flatten().for_each(|byte| *byte = !*byte);
    };
    let builder = || {
        Pipeline::builder(images.clone())
            .shuffle(3)
            .transform(random_resized_crop(40))
            // The CPU makes what its custom operation is part of.
            .transform(maybe(0.2, [Transform::from(Op::from(Custom::new("invert", invert)))]))
            .batch_size(7)
            .threads(2)
            .on_error(OnError::Skip)
    };
    let cpu = builder().device(Device::Cpu).build().unwrap();
    for (path, limit) in [(JpegDecoder::Device, 1 << 30), (JpegDecoder::Auto, 1 << 30), (JpegDecoder::Device, 40_000)] {
        let gpu = builder().device(GPU).jpeg_decoder(path).device_cache(limit).build().unwrap();
        assert_eq!(gpu.memory().device_cache_bytes, limit);
        let epoch = |number: u64| {
            let mut epoch = gpu.epoch(number);
            let got: Vec<_> = epoch.by_ref().flat_map(|batch| samples(&batch.unwrap())).collect();
            assert!(got == delivered(&cpu, number), "{path:?}, {limit}, epoch {number}");
            epoch.stats()
        };
        let first = epoch(0);
        assert_eq!(first.decoded.device_cached, 0);
        epoch(1);
        let later: Vec<_> = (2..6).map(epoch).collect();
        let kept: u64 = later.iter().map(|stats| stats.decoded.device_cached).sum();
        let by_device: u64 = later.iter().map(|stats| stats.decoded.device).sum();
        assert!(kept > 0 && kept < by_device, "{kept} of {by_device}");
        assert!(later.iter().all(|stats| stats.read_bytes < first.read_bytes));
        if limit == 1 << 30 && path == JpegDecoder::Device {
            assert!(later.iter().all(|stats| stats.read_bytes < first.read_bytes / 2), "few are read again");
        }
        gpu.limit_device_cache(0);
        let without = epoch(6);
        assert_eq!((without.decoded.device_cached, without.read_bytes), (0, first.read_bytes));
        gpu.limit_device_cache(1 << 30);
        epoch(7);
        assert!(epoch(8).decoded.device_cached > 0);
    }
    // A rank that keeps its share of the images finds all of them again.
    let jpegs = EncodedImages::new((0..40).map(|i| (jpeg(90, 70, i), i as u32)));
    let rank = || {
        let builder =
            Pipeline::builder(jpegs.clone()).shuffle(5).shares(2).partition(warpfeed::Partition::new(1, 2).unwrap());
        builder.transform(random_resized_crop(32)).batch_size(6)
    };
    let cpu = rank().device(Device::Cpu).build().unwrap();
    let gpu = rank().device(GPU).jpeg_decoder(JpegDecoder::Device).device_cache(1 << 30).build().unwrap();
    for number in 0..4 {
        let mut epoch = gpu.epoch(number);
        let got: Vec<_> = epoch.by_ref().flat_map(|batch| samples(&batch.unwrap())).collect();
        assert!(got == delivered(&cpu, number), "rank 1 of 2, epoch {number}");
        let kept = if number == 0 { 0 } else { 20 };
        assert_eq!(epoch.stats().decoded.device_cached, kept, "epoch {number}");
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn images_that_find_no_device_memory_as_a_whole_are_decoded_by_the_cpu() {
    // 300 x 250 pixels as a whole; a small part is needed.
    let images = || EncodedImages::new((0..24).map(|i| (jpeg(300, 250, i), i as u32)));
    let builder =
        || Pipeline::builder(images()).transform(CenterCrop::new(16)).batch_size(8).threads(3).on_error(OnError::Skip);
    let want = delivered(&builder().device(Device::Cpu).build().unwrap(), 0);
    // The hybrid decoder needs memory for the part alone.
    let pipeline = builder().device(GPU).jpeg_decoder(JpegDecoder::Hybrid).device_memory(3 * 900_000).build().unwrap();
    let mut epoch = pipeline.epoch(0);
    assert!(epoch.by_ref().all(|batch| batch.is_ok()));
    assert_eq!(epoch.stats().decoded.hybrid, 24);
    for path in [JpegDecoder::Hardware, JpegDecoder::HardwareDevice] {
        // Three batches in flight, of 8 images of 225 kB.
        for (device_memory, all) in [(3 * 900_000, false), (3 * 200_000, true)] {
            let pipeline = builder().device(GPU).jpeg_decoder(path).device_memory(device_memory).hardware_share(1.0);
            let pipeline = pipeline.build().unwrap();
            for epoch in 0..3 {
                let mut epoch = pipeline.epoch(epoch);
                let got: Vec<_> = epoch.by_ref().flat_map(|batch| samples(&batch.unwrap())).collect();
                let keys = |samples: &[Delivered]| samples.iter().map(|s| (s.index, s.label)).collect::<Vec<_>>();
                assert_eq!(keys(&got), keys(&want), "{path:?}");
                let stats = epoch.stats();
                assert_eq!(stats.bad, 0);
                let others = stats.decoded.cpu + stats.decoded.hybrid + stats.decoded.device;
                assert_eq!(others + stats.decoded.hardware, 24);
                assert!(stats.decoded.for_memory <= stats.decoded.cpu, "{stats:?}");
                // The kernels, too, need memory for the part alone.
                assert!(stats.decoded.for_memory > 0 || path == JpegDecoder::HardwareDevice, "{path:?}: {stats:?}");
                if all {
                    assert_eq!(others, 24);
                    assert!(got == want, "{path:?}");
                } else {
                    assert!(others < 24, "{path:?}: some fit: {stats:?}");
                }
            }
        }
    }
}

/// A recipe that needs more memory than a whole image leaves: that is foreseen, or found out.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn a_recipe_that_finds_no_memory_beside_a_whole_image_has_the_part_decoded_by_the_cpu() {
    let images = EncodedImages::new([(jpeg(300, 250, 1), 0)]);
    // A small part, made large and needed as a whole for its mean: a stage of 188 kB, in addition to an image of 225
    // kB.
    let builder = || {
        let ops = Pipeline::builder(images.clone())
            .transform(CenterCrop::new(40))
            .transform(Resize::new(Size::new(250, 250)));
        ops.transform(Contrast::new(1.5))
            .transform(CenterCrop::new(24))
            .threads(0)
            .prefetch(1)
            .batch_size(1)
            .on_error(OnError::Skip)
    };
    let want = delivered(&builder().device(Device::Cpu).build().unwrap(), 0);
    for path in [JpegDecoder::Hybrid, JpegDecoder::Hardware] {
        // Two batches at a time.
        for limit in [400_000, 450_000] {
            let pipeline = builder().device(GPU).jpeg_decoder(path).device_memory(2 * limit).build().unwrap();
            let mut epoch = pipeline.epoch(0);
            let got: Vec<_> = epoch.by_ref().flat_map(|batch| samples(&batch.unwrap())).collect();
            assert!(got == want, "{path:?}, {limit}");
            let stats = epoch.stats();
            let decoded = (stats.decoded.cpu, stats.decoded.for_memory, stats.decoded.hybrid, stats.decoded.hardware);
            assert_eq!(decoded, (1, 1, 0, 0), "{path:?}, {limit}");
        }
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn a_batch_that_needs_more_memory_than_it_may_is_an_error() {
    let builder = || small(source(9)).device(GPU).jpeg_decoder(JpegDecoder::Cpu);
    // No policy skips images because of it, and no decoder is at an advantage.
    for policy in [OnError::Fail, OnError::Skip, OnError::Substitute] {
        for path in [JpegDecoder::Cpu, JpegDecoder::Hybrid, JpegDecoder::Hardware] {
            let tight = builder().jpeg_decoder(path).on_error(policy).device_memory(3 << 10).build().unwrap();
            let mut epoch = tight.epoch(0);
            let error = epoch.find_map(Result::err).unwrap();
            let text = error.to_string();
            assert!(
                !error.is_bad_sample() && text.contains("device memory") && text.contains("device_memory"),
                "{text}"
            );
            assert_eq!(epoch.stats().bad, 0);
        }
    }
    let bound = builder().device_memory(3 << 24).build().unwrap().memory();
    assert_eq!(bound.device_bytes, 3 << 24);
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn a_device_that_is_not_there_is_refused() {
    let error = small(source(1)).device(Device::Cuda(99)).build().unwrap_err();
    assert!(error.is_device() && error.to_string().contains("numbered from 0"), "{error}");
}

/// Images, targets and shares of each batch, in host memory.
fn mixed_batches(pipeline: &Pipeline) -> Vec<(Vec<u8>, Vec<u8>, Vec<f32>)> {
    let of = |batch: Batch| {
        let targets = match batch.targets() {
            Some(Targets::Numbers(numbers)) => {
                assert_eq!(numbers.device(), batch.images().device());
                let host = numbers.to_host().unwrap();
                match numbers.element() {
                    TargetType::F32 => host.as_slice::<f32>().unwrap().iter().flat_map(|n| n.to_le_bytes()).collect(),
                    TargetType::U32 => host.as_slice::<u32>().unwrap().iter().flat_map(|n| n.to_le_bytes()).collect(),
                }
            }
            Some(Targets::Bytes(bytes)) => bytes.values().to_vec(),
            None => Vec::new(),
        };
        let shares = batch.mixed().map_or_else(Vec::new, |mixed| mixed.shares().to_vec());
        (batch.images().to_host().unwrap().as_bytes().unwrap().to_vec(), targets, shares)
    };
    pipeline.epoch(1).map(|batch| of(batch.unwrap())).collect()
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn targets_lie_beside_the_images_and_equal_the_cpus() {
    let floats = (0..23).map(|i| Target::Floats(vec![i as f32, 0.5 / (i + 1) as f32]));
    let images = source(23).with_targets("box", floats).unwrap();
    for spec in ["class=10", "soft=10/0.1", "float=2:box", "multi-hot=10"] {
        for last in [LastBatch::Keep, LastBatch::Pad] {
            let builder = || small(images.clone()).targets(spec.parse().unwrap()).last_batch(last);
            let [want, got] = [builder().device(Device::Cpu), builder().device(GPU)]
                .map(|builder| mixed_batches(&builder.jpeg_decoder(JpegDecoder::Cpu).build().unwrap()));
            assert!(want == got, "{spec} {last:?}");
        }
    }
    // Targets outlive their batch, and their memory is not written before they are dropped.
    let pipeline = small(images).targets("float=2:box".parse().unwrap()).device(GPU).build().unwrap();
    let held: Vec<Targets> = pipeline.epoch(0).map(|batch| batch.unwrap().take_targets().unwrap()).collect();
    let copies = |held: &[Targets]| -> Vec<Vec<f32>> {
        let copy = |targets: &Targets| match targets {
            Targets::Numbers(numbers) => numbers.to_host().unwrap().as_slice::<f32>().unwrap().to_vec(),
            Targets::Bytes(_) => unreachable!("numbers were asked for"),
        };
        held.iter().map(copy).collect()
    };
    let before = copies(&held);
    pipeline.epoch(1).for_each(|batch| drop(batch.unwrap()));
    assert_eq!(copies(&held), before);
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn mixed_batches_equal_the_cpus() {
    let images = source(17);
    for mix in ["torchvision=0.4/1", "timm=0.8/1,mode=pair", "timm=0.8/1,mode=elem,probability=0.8", "timm=0.8/0"] {
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::U8] {
            for layout in [Layout::Nchw, Layout::Nhwc] {
                for (width, height, batch_size) in [(64, 32, 4), (37, 29, 5), (1, 1, 17)] {
                    let builder = || {
                        let builder = small(images.clone()).transform(random_resized_crop(Size::new(width, height)));
                        let builder = builder.output(dtype, layout).batch_size(batch_size).mix(mix.parse().unwrap());
                        let builder = builder.targets("soft=10/0.1".parse().unwrap()).jpeg_decoder(JpegDecoder::Cpu);
                        if dtype == DType::U8 { builder } else { builder.normalize(IMAGENET_MEAN, IMAGENET_STD) }
                    };
                    let [want, got] = [builder().device(Device::Cpu), builder().device(GPU)]
                        .map(|builder| mixed_batches(&builder.build().unwrap()));
                    assert!(want == got, "{mix} {dtype} {layout:?} {width} x {height}");
                }
            }
        }
    }
}

/// Whether the driver knows this memory of the host as pinned.
#[allow(unsafe_code)]
fn is_registered(address: *const u8) -> bool {
    let mut flags = 0;
    // SAFETY: the driver looks the address up, and writes the flags if it finds it.
    unsafe { sys::cuMemHostGetFlags(&raw mut flags, address.cast_mut().cast()).result().is_ok() }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn batches_of_the_cpu_are_pinned_if_asked_for_as_long_as_they_are_the_pipelines() {
    let context = CudaContext::new(0).unwrap();
    context.bind_to_thread().unwrap();
    let builder = || small(source(11)).device(Device::Cpu).batch_size(4).transform(random_resized_crop(24));
    let (plain, pinned) = (builder().build().unwrap(), builder().pin_batches(0).build().unwrap());
    let mut places = Vec::new();
    for epoch in 0..3 {
        for (want, got) in plain.epoch(epoch).zip(pinned.epoch(epoch)) {
            let [want, got] = [want, got].map(|batch| batch.unwrap().into_images());
            assert_eq!(want.as_bytes().unwrap(), got.as_bytes().unwrap());
            let [first, second] = [&want, &got].map(|images| images.as_bytes().unwrap().as_ptr());
            assert_eq!([want.is_pinned(), got.is_pinned()], [false, true]);
            assert_eq!([first, second].map(is_registered), [false, true]);
            places.push(second);
        }
    }
    let images = pinned.epoch(0).next().unwrap().unwrap().into_images();
    let vector = images.into_vec::<f32>().unwrap();
    assert!(!is_registered(vector.as_ptr().cast()), "given away");
    drop(pinned);
    // A drop does not wait for the device. The next pipeline does, and frees what it finds.
    let next = builder().pin_batches(0).build().unwrap();
    let batches = (0..3).flat_map(|epoch| next.epoch(epoch));
    let own: Vec<_> = batches.map(|batch| batch.unwrap().images().as_bytes().unwrap().as_ptr()).collect();
    assert!(!places.into_iter().any(|place| is_registered(place) && !own.contains(&place)), "pinned for good");
    assert!(builder().pin_batches(99).build().err().unwrap().is_device());
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
#[allow(unsafe_code)]
fn a_batch_is_copied_to_other_memory_of_its_device() {
    let context = CudaContext::new(0).unwrap();
    context.bind_to_thread().unwrap();
    let builder = || small(source(11)).batch_size(4).transform(random_resized_crop(24)).jpeg_decoder(JpegDecoder::Cpu);
    let [cpu, gpu] = [Device::Cpu, GPU].map(|device| builder().device(device).build().unwrap());
    for (want, got) in cpu.epoch(0).zip(gpu.epoch(0)) {
        let (want, got) = (want.unwrap(), got.unwrap());
        let cuda = got.images().cuda().unwrap();
        let mut bytes = vec![0; cuda.len_bytes()];
        // SAFETY: as long as the batch, used here only, and freed once; copies that wait.
        unsafe {
            let copy = result::malloc_sync(bytes.len()).unwrap();
            cuda.copy_to(copy).unwrap();
            result::memcpy_dtoh_sync(&mut bytes, copy).unwrap();
            result::free_sync(copy).unwrap();
        }
        assert_eq!(bytes, want.images().as_bytes().unwrap());
    }
}
