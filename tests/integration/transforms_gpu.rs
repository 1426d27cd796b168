//! Transforms alone on a GPU make the bytes of those on the CPU, on a real or simulated device:
//! `cuda-sim/run cargo test --test integration gpu:: -- --ignored`.
#![allow(unsafe_code)]

use crate::common::{self, Random, recipes::recipe};
use cudarc::driver::{CudaContext, CudaStream, result, sys};
use std::sync::Arc;
use warpfeed::image::planes::{Element, PixelKind};
use warpfeed::image::{Image, Size};
use warpfeed::ops::{Custom, Invert, Jpeg, MixUp, Normalize, Op, Part, Resize, Rotate, Transform};
use warpfeed::prelude::*;
use warpfeed::transforms::{CudaTransforms, CudaView, Key, Transforms, TransformsOptions, View, ViewMut};
use warpfeed::{Device, Error, Pixels, Result, Tensor};

const SEED: u64 = 42;

/// Images of one size in host memory: `shape` is [N, C, H, W].
struct Images {
    shape: [usize; 4],
    /// Of [N, C, H, W], in values.
    strides: [i64; 4],
    /// The first value of the first image.
    start: usize,
    values: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    Chw,
    Hwc,
    /// A part of larger images, [C, H, W].
    Crop,
    /// The RGB of RGBA, in every second row.
    Rows,
}

impl Images {
    fn new(images: usize, size: Size, channels: usize, order: Order) -> Self {
        let (width, height) = (size.width as usize, size.height as usize);
        let (start, strides, len) = match order {
            Order::Chw => {
                (0, [channels * height * width, height * width, width, 1], images * channels * height * width)
            }
            Order::Hwc => {
                (0, [channels * height * width, 1, channels * width, channels], images * channels * height * width)
            }
            Order::Crop => {
                let plane = (height + 3) * (width + 5);
                (2 * (width + 5) + 1, [channels * plane, plane, width + 5, 1], images * channels * plane)
            }
            Order::Rows => (3, [8 * width * height, 1, 8 * width, 4], 8 * images * width * height + 3),
        };
        let mut values = vec![99; len];
        for i in 0..images {
            let rgb = common::image(size.width, size.height, i as u64 + 3).to_rgb();
            for (at, value) in rgb.iter().enumerate().filter(|(at, _)| at % 3 < channels) {
                let (pixel, channel) = (at / 3, at % 3);
                let place = [i, channel, pixel / width, pixel % width].into_iter().zip(strides).map(|(a, b)| a * b);
                values[start + place.sum::<usize>()] = *value;
            }
        }
        Self { shape: [images, channels, height, width], strides: strides.map(|stride| stride as i64), start, values }
    }

    fn size(&self) -> Size {
        Size::new(self.shape[3] as u32, self.shape[2] as u32)
    }

    fn on_host(&self) -> Vec<View<'_>> {
        let [n, c, h, w] = self.strides;
        let view = |i| {
            // A slice must have room for an image without gaps, before other strides are set.
            let values = &self.values[self.start + (i * n) as usize..];
            View::chw(values, self.size(), self.shape[1]).unwrap().strides([c, h, w]).unwrap()
        };
        (0..self.shape[0] as i64).map(view).collect()
    }

    fn keys(&self, epoch: u64) -> Vec<Key> {
        (0..self.shape[0] as u64).map(|index| Key::new(SEED, epoch, index)).collect()
    }
}

/// A device, as another library uses it.
struct Gpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

impl Gpu {
    fn new() -> Self {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        Self { context, stream }
    }

    /// Allocates in the order of a stream.
    fn allocate(&self, len: usize) -> u64 {
        self.context.bind_to_thread().unwrap();
        // SAFETY: written before it is read.
        unsafe { result::malloc_async(self.stream.cu_stream(), len).unwrap() }
    }

    fn put(&self, address: u64, values: &[u8]) {
        // SAFETY: as long, and used in the order of this stream.
        unsafe { result::memcpy_htod_async(address, values, self.stream.cu_stream()).unwrap() };
    }

    fn fill(&self, address: u64, value: u8, len: usize) {
        // SAFETY: as above.
        unsafe { result::memset_d8_async(address, value, len, self.stream.cu_stream()).unwrap() };
    }

    fn free(&self, address: u64) {
        // SAFETY: in the order of its stream, and once.
        unsafe { result::free_async(address, self.stream.cu_stream()).unwrap() };
    }

    fn view(&self, address: u64, images: &Images) -> CudaView {
        let stream = self.stream.cu_stream();
        // SAFETY: the callers keep the memory until the call, and do all else in the order of the stream.
        unsafe { CudaView::new(address + images.start as u64, images.shape, images.strides, stream).unwrap() }
    }

    /// Puts images into memory that is freed right after the call.
    fn with<T>(&self, images: &Images, call: impl FnOnce(&CudaView) -> T) -> T {
        let address = self.allocate(images.values.len());
        self.put(address, &images.values);
        let made = call(&self.view(address, images));
        self.free(address);
        made
    }
}

fn host(tensor: &Tensor) -> Vec<u8> {
    tensor.to_host().unwrap().as_bytes().unwrap().to_vec()
}

fn of_list(list: Vec<Transform>, options: TransformsOptions) -> impl Fn() -> Result<Transforms> {
    move || Transforms::with_options(list.clone(), &options)
}

/// Compares batches of a list on both devices. Returns the number of images.
fn compare(make: impl Fn() -> Result<Transforms>, images: &[Images], what: &str) -> usize {
    let gpu = Gpu::new();
    let (cpu, cuda) = (make().unwrap(), CudaTransforms::new(make().unwrap(), 0).unwrap());
    let mut compared = 0;
    for (epoch, images) in (0..).zip(images) {
        let keys = images.keys(epoch);
        let want = cpu.apply_batch(&images.on_host(), &keys, 0).unwrap();
        let got = gpu.with(images, |view| cuda.apply_batch(view, &keys)).unwrap();
        assert_eq!((got.shape(), got.dtype(), got.device()), (want.shape(), want.dtype(), Device::Cuda(0)), "{what}");
        assert!(host(&got) == want.as_bytes().unwrap(), "{what}, {:?}, epoch {epoch}", images.shape);
        compared += keys.len();
    }
    compared
}

fn orders(images: usize, size: Size) -> Vec<Images> {
    [Order::Chw, Order::Hwc, Order::Crop, Order::Rows].map(|order| Images::new(images, size, 3, order)).into()
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn presets_have_the_cpus_bytes_in_any_memory() {
    let images = orders(3, Size::new(97, 61));
    for preset in [Preset::Train, Preset::RandAugment, Preset::Ssd, Preset::AugMix] {
        for (dtype, layout) in [(DType::F32, Layout::Nchw), (DType::F16, Layout::Nhwc), (DType::U8, Layout::Nhwc)] {
            // In every type not all images that one can do.
            let options = TransformsOptions::default().dtype(dtype).layout(layout);
            let make = || Transforms::from_preset(preset, &options);
            let some = if dtype == DType::F32 { &images[..] } else { &images[..1] };
            assert!(compare(make, some, &format!("{preset} {dtype}")) >= 3);
        }
    }
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn types_layouts_and_channels_have_the_cpus_bytes() {
    let list = || vec![random_resized_crop(Size::new(37, 29)), color_jitter(0.4, 0.4, 0.4, 0.1), random_erasing(0.5)];
    let mut images = orders(2, Size::new(40, 33));
    images.extend([Order::Chw, Order::Hwc, Order::Crop].map(|order| Images::new(2, Size::new(40, 33), 1, order)));
    // A batch in the place of the one before, and of one image.
    images.extend([Images::new(5, Size::new(1, 1), 3, Order::Chw), Images::new(1, Size::new(64, 9), 3, Order::Hwc)]);
    for strategy in [Strategy::Fused, Strategy::Sequential, Strategy::Composed] {
        for (dtype, layout, channels) in [
            (DType::U8, Layout::Nchw, 3),
            (DType::U8, Layout::Nhwc, 1),
            (DType::F32, Layout::Nhwc, 3),
            (DType::F16, Layout::Nchw, 1),
            (DType::Bf16, Layout::Nchw, 3),
        ] {
            let mut list = list();
            if dtype != DType::U8 {
                list.insert(2, Normalize::new([0.4; 3], [0.2; 3]).into());
            }
            let options = TransformsOptions::default().dtype(dtype).layout(layout).channels(channels);
            let what = format!("{strategy:?} {dtype} {layout:?} {channels}");
            compare(of_list(list, options.strategy(strategy)), &images, &what);
        }
    }
}

/// Operations of every kind, one by one and in recipes, which are lists of the caller's.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn recipes_have_the_cpus_bytes() {
    let gpu = Gpu::new();
    let plain = || Transforms::with_options(Vec::<Op>::new(), &TransformsOptions::default().dtype(DType::U8)).unwrap();
    let normalize = Normalize::new([0.4, 0.5, 0.6], [0.2, 0.3, 0.25]);
    let normal = || Transforms::new([normalize]).unwrap();
    let both = |make: &dyn Fn() -> Transforms| (make(), CudaTransforms::new(make(), 0).unwrap());
    let (plain, normal) = (both(&plain), both(&normal));
    let (mut random, mut compared, mut refused) = (Random(7), 0, 0);
    let mut check = |images: &Images, mut ops: Vec<Op>| {
        // The tables are those of one normalization.
        ops.iter_mut().filter(|op| matches!(op, Op::Normalize(_))).for_each(|op| *op = normalize.into());
        let floats = ops.iter().any(|op| matches!(op, Op::Normalize(_)));
        let ((cpu, cuda), views) = (if floats { &normal } else { &plain }, images.on_host());
        let Ok(size) = ops.iter().try_fold(images.size(), |size, op| op.output_size(size)) else { return };
        let len = 3 * size.area_px() as usize;
        let (mut bytes, mut numbers) = (vec![0_u8; len], vec![0_f32; len]);
        let to = if floats { ViewMut::chw(&mut numbers, size, 3) } else { ViewMut::chw(&mut bytes, size, 3) };
        let done = cpu.run(&ops, views[0], to.unwrap());
        let want = if floats { numbers.iter().flat_map(|number| number.to_le_bytes()).collect() } else { bytes };
        let got = gpu.with(images, |view| cuda.run(&[&ops], view));
        match (done, got) {
            (Ok(()), Ok(got)) => {
                assert!(host(&got) == want, "{:?} {ops:?}", images.size());
                compared += 1;
            }
            (Ok(()), Err(error)) => {
                let text = error.to_string();
                let known = ["jpeg on a GPU", "reducing gap on a GPU", "mosaic on a GPU"];
                assert!(known.iter().any(|known| text.contains(known)), "{text}: {ops:?}");
                refused += 1;
            }
            (Err(_), got) => assert!(got.is_err(), "{ops:?}"),
        }
    };
    for size in [Size::new(61, 43), Size::new(16, 16)] {
        let images = Images::new(1, size, 3, Order::Chw);
        Op::examples(size).into_iter().for_each(|op| check(&images, vec![op]));
    }
    for case in 0..150 {
        let size = Size::new(random.within(1, 70), random.within(1, 70));
        let order = [Order::Chw, Order::Hwc, Order::Crop, Order::Rows][case % 4];
        let ops = recipe(&mut random, size);
        let images = Images::new(1, size, 3, order);
        check(&images, ops);
    }
    assert!(compared > 200 && refused > 2, "{compared}, {refused}");
}

/// Images that are written late, and freed or overwritten right after the call, and tensors that are read on another
/// stream, while their memory is used again.
#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn only_streams_order_the_work() {
    let gpu = Gpu::new();
    let reader = gpu.context.new_stream().unwrap();
    let options = TransformsOptions::default().dtype(DType::U8);
    let make = of_list(vec![random_resized_crop(16), Invert.into(), random_horizontal_flip(0.5)], options);
    let (cpu, cuda) = (make().unwrap(), CudaTransforms::new(make().unwrap(), 0).unwrap());
    let images = Images::new(4, Size::new(23, 19), 3, Order::Crop);
    let other: Vec<u8> = images.values.iter().map(|value| value ^ 0x55).collect();
    let len = 4 * 3 * 16 * 16;
    let mut results = Vec::new();
    for epoch in 0..60 {
        let keys = images.keys(epoch);
        let address = gpu.allocate(other.len());
        gpu.fill(address, 0xEE, other.len());
        gpu.put(address, &images.values);
        let tensor = cuda.apply_batch(&gpu.view(address, &images), &keys).unwrap();
        match epoch % 3 {
            0 => gpu.fill(address, 0x11, other.len()),
            1 => gpu.put(address, &other),
            _ => {}
        }
        gpu.free(address);
        let taken = gpu.allocate(other.len());
        gpu.fill(taken, 0x22, other.len());
        gpu.free(taken);
        let from = tensor.cuda().unwrap().on_stream(&reader).unwrap();
        // SAFETY: the copy is as long, and freed at the end.
        let copy = unsafe {
            let copy = result::malloc_async(reader.cu_stream(), len).unwrap();
            result::memcpy_dtod_async(copy, from, len, reader.cu_stream()).unwrap();
            copy
        };
        // The tensor goes while it is read.
        drop(tensor);
        results.push((copy, keys));
    }
    for (copy, keys) in results {
        let mut got = vec![0_u8; len];
        // SAFETY: the copy is as long, and is not used again.
        unsafe {
            result::memcpy_dtoh_async(&mut got, copy, reader.cu_stream()).unwrap();
            reader.synchronize().unwrap();
            result::free_async(copy, reader.cu_stream()).unwrap();
        }
        let want = cpu.apply_batch(&images.on_host(), &keys, 0).unwrap();
        assert!(got == want.as_bytes().unwrap(), "{keys:?}");
    }
    // Threads of the caller's, each with a stream of its own.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (cpu, cuda, images) = (&cpu, &cuda, &images);
            scope.spawn(move || {
                let gpu = Gpu::new();
                for epoch in 0..8 {
                    let keys = images.keys(100 * thread + epoch);
                    let got = gpu.with(images, |view| cuda.apply_batch(view, &keys)).unwrap();
                    let want = cpu.apply_batch(&images.on_host(), &keys, 0).unwrap();
                    assert!(host(&got) == want.as_bytes().unwrap(), "{keys:?}");
                }
            });
        }
    });
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn images_that_do_not_fit_run_in_parts() {
    let gpu = Gpu::new();
    let list: Vec<Transform> = vec![Rotate::new(20.0).into(), Resize::new(Size::new(8, 8)).into()];
    let options = TransformsOptions::default().dtype(DType::U8).strategy(Strategy::Sequential);
    let make = of_list(list, options);
    let (cpu, limit) = (make().unwrap(), 16 << 20);
    let cuda = CudaTransforms::with_device_memory(make().unwrap(), 0, limit).unwrap();
    // Each takes 2 x 0.4 MB, and half of the limit is for a batch.
    let mut images = Images::new(1, Size::new(400, 350), 3, Order::Chw);
    let one = cpu.apply_batch(&images.on_host(), &images.keys(0), 0).unwrap();
    // Every call takes the same image.
    (images.shape[0], images.strides[0]) = (30, 0);
    for _ in 0..2 {
        let got = gpu.with(&images, |view| cuda.apply_batch(view, &images.keys(0))).unwrap();
        assert!(host(&got) == one.as_bytes().unwrap().repeat(30));
    }
    let large = Images::new(1, Size::new(2000, 1500), 3, Order::Chw);
    let error = gpu.with(&large, |view| cuda.apply_batch(view, &large.keys(0))).unwrap_err();
    assert!(matches!(error, Error::OutOfDeviceMemory { what: "an image", .. }), "{error}");
    // It is usable afterwards.
    let got = gpu.with(&images, |view| cuda.apply_batch(view, &images.keys(0))).unwrap();
    assert!(host(&got) == one.as_bytes().unwrap().repeat(30));
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration gpu:: -- --ignored"]
fn what_a_gpu_does_not_do_is_refused_by_name() {
    let gpu = Gpu::new();
    let bytes = TransformsOptions::default().dtype(DType::U8);
    let cuda = |list: Vec<Transform>, options| CudaTransforms::new(of_list(list, options)().unwrap(), 0);
    let images = Images::new(2, Size::new(20, 10), 3, Order::Chw);
    let keys = images.keys(0);
    let refused = |list: Vec<Transform>| {
        let cuda = cuda(list, bytes).unwrap();
        gpu.with(&images, |view| cuda.apply_batch(view, &keys)).unwrap_err()
    };
    let own: Transform = Op::from(Custom::new("sepia", |_: &mut Image| ())).into();
    for (operation, name) in [(own, "sepia"), (Op::from(Jpeg::new(50)).into(), "jpeg")] {
        let error = refused(vec![operation]);
        assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains(name), "{error}");
    }
    let kind = PixelKind { element: Element::U16, channels: 3 };
    let error = cuda(vec![random_crop(8, 0)], bytes.dtype(DType::F32).pixels(Pixels::Kind(kind))).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("u16"), "{error}");

    let plain = cuda(vec![random_horizontal_flip(0.5)], bytes).unwrap();
    let run = |ops: &[Op]| gpu.with(&images, |view| plain.run(&[ops, ops], view)).unwrap_err().to_string();
    assert!(run(&[Op::from(MixUp::new(0.5, Part::new(17)))]).contains("mix_up"));
    assert!(run(&[Normalize::new([0.5; 3], [0.5; 3]).into()]).contains("normalize"));
    assert!(gpu.with(&images, |view| plain.apply_batch(view, &keys[1..])).unwrap_err().is_parameter());
    assert!(CudaTransforms::new(Transforms::new([random_crop(8, 0)]).unwrap(), 17).is_err());

    // A stream that captures goes on capturing.
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let address = gpu.allocate(images.values.len());
    gpu.put(address, &images.values);
    gpu.stream.begin_capture(mode).unwrap();
    let error = plain.apply_batch(&gpu.view(address, &images), &keys).unwrap_err();
    assert!(error.is_parameter() && error.to_string().contains("captures no graph"), "{error}");
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream captures, and the graph is written before the call returns.
    let ended = unsafe { sys::cuStreamEndCapture(gpu.stream.cu_stream(), &raw mut graph) }.result();
    assert!(ended.is_ok() && !graph.is_null());
    let got = plain.apply_batch(&gpu.view(address, &images), &keys).unwrap();
    gpu.free(address);
    let want = plain.transforms().apply_batch(&images.on_host(), &keys, 0).unwrap();
    assert!(host(&got) == want.as_bytes().unwrap());

    // Shapes and strides.
    let view = |shape, strides| {
        // SAFETY: only the description is checked.
        unsafe { CudaView::new(4096, shape, strides, std::ptr::null_mut()) }
    };
    for (shape, strides, what) in [
        ([1, 3, 0, 4], [48, 16, 4, 1], "sides"),
        ([1, 2, 4, 4], [48, 16, 4, 1], "channels"),
        ([1, 3, 4, 4], [48, 16, -4, 1], "strides"),
        ([2, 3, 4, 4], [i64::MAX, i64::MAX, i64::MAX, 1], "strides"),
    ] {
        let error = view(shape, strides).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains(what), "{error}");
    }
    let none = cuda(vec![random_resized_crop(8)], bytes).unwrap();
    assert_eq!(none.apply_batch(&view([0, 3, 4, 4], [48, 16, 4, 1]).unwrap(), &[]).unwrap().shape(), [0, 3, 8, 8]);
}
