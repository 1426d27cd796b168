//! On a GPU libtorch gets the pipeline's batches, while work is queued before and after.

use std::sync::Arc;
use std::time::Instant;
use tch::Kind;
use warpfeed::fields::{BoxFormat, Boxes, Fields, Mask};
use warpfeed::image::{JpegOptions, encode_jpeg};
use warpfeed::prelude::*;
use warpfeed::source::Source;
use warpfeed::{Mix, TargetSpec, Targets};
use warpfeed_bench::synth::image;
use warpfeed_tch::IntoTch;

const DEVICE: tch::Device = tch::Device::Cuda(0);
const BATCHES: usize = 200;
const BATCH: usize = 32;
/// Batches that libtorch holds before they are read.
const HELD: usize = 20;
/// Side of the matrices whose products libtorch has queued.
const WORK: i64 = 2048;
/// Time that libtorch is busy before it reads a batch.
const WORK_MS: f64 = 2.0;

/// Made images of four classes.
fn images() -> EncodedImages {
    let jpeg = |i: u32| encode_jpeg(&image(3, i.into(), i % 4, 4), &JpegOptions::default()).unwrap();
    EncodedImages::new((0..100).map(|i| (jpeg(i), i % 4)))
}

fn builder(source: Arc<dyn Source>, dtype: DType, layout: Layout) -> PipelineBuilder {
    let builder = Pipeline::builder(source).batch_size(BATCH).shuffle(7).transform(random_resized_crop(128));
    builder.output(dtype, layout)
}

/// The bits of a tensor.
#[allow(unsafe_code)]
fn bits(tensor: &tch::Tensor) -> Vec<u8> {
    let host = tensor.to_device(tch::Device::Cpu).contiguous();
    let len_bytes = host.numel() * host.kind().elt_size_in_bytes();
    // SAFETY: contiguous, in host memory, and alive until the bytes are copied.
    unsafe { std::slice::from_raw_parts(host.data_ptr().cast::<u8>(), len_bytes) }.to_vec()
}

/// Products that keep the device busy for some milliseconds.
fn work() -> impl FnMut() {
    let factor = tch::Tensor::zeros([WORK, WORK], (Kind::Float, DEVICE));
    let mut product = factor.matmul(&factor);
    tch::Cuda::synchronize(0);
    let start = Instant::now();
    (0..4).for_each(|_| product = product.matmul(&factor));
    tch::Cuda::synchronize(0);
    let products = (WORK_MS / (start.elapsed().as_secs_f64() * 1e3 / 4.0)).clamp(1.0, 20.0) as u32;
    move || (0..products).for_each(|_| product = product.matmul(&factor))
}

#[test]
#[ignore = "needs a GPU"]
fn batches_are_the_cpus() {
    // Each image comes many times.
    let source = images().subset((0..(BATCHES * BATCH) as u64).map(|i| i % 100)).unwrap().into_source();
    let mut busy = work();
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::U8] {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            let build = |device| builder(Arc::clone(&source), dtype, layout).device(device);
            let expected = build(Device::Cpu).build().unwrap();
            let made = [build(Device::Cuda(0)), build(Device::Cpu).pin_batches(0)].map(|made| made.build().unwrap());
            for pipeline in made {
                let (mut expected, mut held, mut checked) = (expected.epoch(0), Vec::new(), 0);
                let mut check = |held: &mut Vec<(tch::Tensor, tch::Tensor)>| {
                    for (images, labels) in held.drain(..) {
                        let want = expected.next().unwrap().unwrap();
                        assert!(bits(&images) == want.images().as_bytes().unwrap(), "{dtype} {layout:?}: {checked}");
                        let want = want.labels().unwrap().iter().map(|&label| label.into()).collect::<Vec<i64>>();
                        assert_eq!(Vec::<i64>::try_from(labels).unwrap(), want);
                        checked += 1;
                    }
                };
                for (i, batch) in pipeline.epoch(0).enumerate() {
                    busy();
                    let (images, labels) = batch.unwrap().into_tch().unwrap();
                    // Made by the CPU: copied later than this call, and its memory is given up at once. Of those made
                    // by the GPU every other one is copied, so that its memory is given up while the copy is queued.
                    let images = match images.device() {
                        tch::Device::Cpu => images.to_device_(DEVICE, images.kind(), true, true),
                        _ if i % 2 == 0 => images.copy(),
                        _ => images,
                    };
                    held.push((images, labels));
                    if held.len() == HELD {
                        check(&mut held);
                    }
                }
                check(&mut held);
                assert_eq!(checked, BATCHES);
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn targets_and_fields_are_the_cpus() {
    let sizes: Vec<Size> = (0..100).map(|i| image(3, i, i as u32 % 4, 4).size()).collect();
    let source = images().fields(["boxes", "mask"], move |sample| {
        let (i, size) = (sample.index, sizes[sample.index as usize]);
        let plane: Vec<u8> = (0..size.area_px()).map(|at| (at / (1 + i)) as u8).collect();
        let boxes = (0..i % 4).map(|side| [10.0, 20.0, 100.0 + side as f32, 120.0 + i as f32]).collect();
        Fields::new().with("boxes", Boxes::new(BoxFormat::Xyxy, boxes))?.with("mask", Mask::new(size, plane)?)
    });
    let source = source.into_source();
    let build = |device, mixed: bool| {
        let builder = builder(Arc::clone(&source), DType::F32, Layout::Nchw).device(device);
        let builder = if mixed {
            builder.targets(TargetSpec::soft(4)).mix(Mix::timm(0.8, 0.0))
        } else {
            builder.fields(["boxes", "mask"])
        };
        builder.build().unwrap()
    };
    let mut busy = work();
    let [made, expected] = [Device::Cuda(0), Device::Cpu].map(|device| build(device, true));
    for (batch, want) in made.epoch(0).zip(expected.epoch(0)) {
        busy();
        let [got, want] = [batch, want].map(|batch| match batch.unwrap().take_targets() {
            Some(Targets::Numbers(numbers)) => numbers.into_tch().unwrap(),
            other => panic!("{other:?}"),
        });
        assert_eq!((got.device(), want.device()), (DEVICE, tch::Device::Cpu));
        assert_eq!(bits(&got), bits(&want));
    }
    let [made, expected] = [Device::Cuda(0), Device::Cpu].map(|device| build(device, false));
    for (batch, want) in made.epoch(0).zip(expected.epoch(0)) {
        busy();
        let [got, want] = [batch, want].map(|batch| {
            let batch = batch.unwrap();
            let fields = batch.fields(0).unwrap();
            let boxes = fields.box_tensor(BoxFormat::Xyxy).unwrap().to_device_of(batch.images()).unwrap();
            [boxes, fields.mask_tensor("mask").unwrap()].map(|field| field.into_tch().unwrap())
        });
        for (got, want) in got.iter().zip(&want) {
            assert_eq!((got.device(), want.device()), (DEVICE, tch::Device::Cpu));
            assert_eq!((got.size(), bits(got)), (want.size(), bits(want)));
        }
    }
}
