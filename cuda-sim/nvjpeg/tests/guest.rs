//! A pipeline in a process with libraries that capture graphs, destroy streams, reset devices, have their own contexts,
//! and fork.

#![cfg(target_os = "linux")]

mod common;
#[path = "../../tests/support/sim.rs"]
mod sim;

use common::{painted, seeds};
use cudarc::driver::{CudaContext, CudaStream, result, sys};
use dlpark::versioned::Dlpack;
use sim::Sim;
use std::collections::VecDeque;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use warpfeed::ops::CenterCrop;
use warpfeed::{
    Batch, DType, Device, DeviceOf, EntryPoints, FieldTensor, JpegDecoder, Layout, Pipeline, PipelineBuilder,
    RaggedPipeline, Tensor,
    image::{JpegOptions, Size, encode_jpeg},
    ops::random_crop,
    source::EncodedImages,
    view,
};

const PATHS: &[JpegDecoder] = JpegDecoder::ALL;

fn start() -> Sim {
    static TWO: Once = Once::new();
    // SAFETY: every test of this program begins here, so no other thread reads the environment meanwhile.
    TWO.call_once(|| unsafe { std::env::set_var("CUDA_SIM_DEVICES", "2") });
    common::start()
}

fn images(count: u32) -> EncodedImages {
    let image = |i| encode_jpeg(&painted(Size::new(30 + i % 9, 25 + i % 5), i), &JpegOptions::default()).unwrap();
    EncodedImages::new((0..count).map(|i| (image(i), i)))
}

fn builder(source: &EncodedImages, device: Device) -> PipelineBuilder {
    let builder = Pipeline::builder(source.clone()).batch_size(2).threads(0).prefetch(1);
    builder.output(DType::U8, Layout::Nhwc).device(device).entry_points(EntryPoints::none())
}

fn squares(source: &EncodedImages, device: Device) -> Pipeline {
    builder(source, device).transform(CenterCrop::new(12)).build().unwrap()
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    tensor.to_host().unwrap().as_bytes().unwrap().to_vec()
}

fn all(pipeline: &Pipeline) -> Vec<Vec<u8>> {
    pipeline.epoch(0).map(|batch| bytes(batch.unwrap().images())).collect()
}

fn begin_capture(stream: &CudaStream, seed: u64) {
    let modes = [
        sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ];
    stream.begin_capture(modes[seed as usize % 3]).unwrap();
}

/// Ends a capture, which nothing may have ended before.
fn end_capture(stream: &CudaStream) {
    let mut graph = null_mut();
    // SAFETY: the stream captures; the graph is written before the call returns.
    unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &raw mut graph) }.result().expect("the capture goes on");
}

/// Memory of the trainer's with a copy of a tensor, which a stream makes when it gets there.
struct Copied(u64, usize);

impl Copied {
    fn queue(from: u64, len_bytes: usize, stream: &CudaStream) -> Self {
        // SAFETY: allocated and used on one stream, which waits for the tensor, as long as that is.
        unsafe {
            let copy = result::malloc_async(stream.cu_stream(), len_bytes).unwrap();
            result::memcpy_dtod_async(copy, from, len_bytes, stream.cu_stream()).unwrap();
            Self(copy, len_bytes)
        }
    }

    fn read(self, stream: &CudaStream) -> Vec<u8> {
        let mut got = vec![0; self.1];
        // SAFETY: the copy is as long, and is freed once.
        unsafe {
            result::memcpy_dtoh_async(&mut got, self.0, stream.cu_stream()).unwrap();
            result::free_async(self.0, stream.cu_stream()).unwrap();
        }
        stream.synchronize().unwrap();
        got
    }
}

/// A tensor in the trainer's hands.
type Held = Box<dyn Send>;

/// Hands a tensor over, as an object of this crate's or by DLPack, and queues a copy of it.
fn hand_over(tensor: Tensor, stream: &Arc<CudaStream>, by_dlpack: bool) -> (Held, Copied) {
    if by_dlpack {
        // SAFETY: the stream outlives the tensor.
        let lent: Dlpack = unsafe { tensor.into_dlpack_on(Some(stream.cu_stream() as isize)) }.unwrap();
        return dlpack(lent, stream);
    }
    let memory = tensor.cuda().unwrap();
    let copy = Copied::queue(memory.on_stream(stream).unwrap(), memory.len_bytes(), stream);
    (Box::new(tensor), copy)
}

fn dlpack(lent: Dlpack, stream: &CudaStream) -> (Held, Copied) {
    let view = lent.validate().unwrap();
    let copy = Copied::queue(view.data_ptr() as u64, view.num_bytes(), stream);
    (Box::new(lent), copy)
}

/// The tensors of an epoch: batches of one size, of any size, or of two views with values on the same device.
fn tensors(source: &EncodedImages, kind: u64, device: Device) -> Box<dyn Iterator<Item = Vec<Tensor>>> {
    match kind {
        0 => Box::new(squares(source, device).epoch(0).map(|batch| vec![batch.unwrap().into_images()])),
        1 => {
            let ragged: RaggedPipeline = builder(source, device).build_ragged().unwrap();
            Box::new(ragged.epoch(0).map(|batch| batch.unwrap().into_images()))
        }
        _ => {
            let view = |size: u32| view([random_crop(size, 0)]);
            let two = builder(source, device).views([view(9), view(14)]).build().unwrap();
            Box::new(two.epoch(0).map(|batch| batch.unwrap().into_views()))
        }
    }
}

/// A trainer that captures its step on the stream that reads, while tensors are dropped: in the middle of a capture,
/// several in one capture, on other threads, by DLPack's deleter.
#[test]
fn memory_that_is_given_back_during_a_capture_is_not_filled_before_it_was_read() {
    let (sim, source) = (start(), images(16));
    let want = [0, 1, 2].map(|kind| -> Vec<Vec<u8>> {
        tensors(&source, kind, Device::Cpu).flatten().map(|tensor| bytes(&tensor)).collect()
    });
    for seed in 0..3 * seeds() {
        sim.reset(seed);
        let (kind, by_dlpack, elsewhere) = (seed % 3, seed / 3 % 2 == 0, seed / 6 % 2 == 0);
        let context = CudaContext::new(0).unwrap();
        let streams = [context.new_stream().unwrap(), context.new_stream().unwrap()];
        let (mut copies, mut capturing) = (Vec::new(), VecDeque::new());
        for (i, batch) in tensors(&source, kind, Device::Cuda(0)).enumerate() {
            let place = DeviceOf::from(&batch[0]);
            let own = i % 2;
            let stream = &streams[own];
            let mut held = Vec::new();
            for tensor in batch {
                let (tensor, copy) = hand_over(tensor, stream, by_dlpack);
                held.push(tensor);
                copies.push((own, copy, None));
            }
            let values: Vec<f32> = (0..50).map(|j| (i * 100 + j) as f32).collect();
            let beside = FieldTensor::from(values.clone()).to_device_of(place).unwrap();
            // SAFETY: the stream outlives the tensor.
            let lent: Dlpack = unsafe { beside.into_dlpack_on(Some(stream.cu_stream() as isize)) }.unwrap();
            let (tensor, copy) = dlpack(lent, stream);
            held.push(tensor);
            copies.push((own, copy, Some(values)));
            begin_capture(stream, seed);
            capturing.push_back(own);
            if elsewhere {
                std::thread::spawn(move || drop(held)).join().unwrap();
            } else {
                drop(held);
            }
            // Some captures go on while the next batch is made.
            if capturing.len() > usize::from(seed % 4 < 2) {
                end_capture(&streams[capturing.pop_front().unwrap()]);
            }
        }
        capturing.into_iter().for_each(|own| end_capture(&streams[own]));
        let mut want = want[kind as usize].iter();
        for (own, copy, values) in copies {
            let got = copy.read(&streams[own]);
            match values {
                Some(values) => assert!(got == bytemuck(&values), "seed {seed}: values beside a batch"),
                None => assert!(got == *want.next().unwrap(), "seed {seed}: images"),
            }
        }
        // The next pipeline finds the memory that was put aside, and gives it back.
        assert_eq!(all(&squares(&source, Device::Cuda(0))).len(), 8);
        drop((streams, context));
        assert_eq!((sim.report().alive(), sim.message()), (0, String::new()), "seed {seed}");
    }
}

fn bytemuck(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// Pinned batches of the CPU that are dropped, and whose pipeline is, during a capture.
#[test]
fn pinned_memory_that_is_given_back_during_a_capture_stays_until_it_was_read() {
    let (sim, source) = (start(), images(8));
    let want = all(&squares(&source, Device::Cpu));
    for seed in 0..seeds() {
        sim.reset(seed);
        let build = || builder(&source, Device::Cpu).transform(CenterCrop::new(12)).pin_batches(0).build().unwrap();
        let (pipeline, context) = (build(), CudaContext::new(0).unwrap());
        let stream = context.new_stream().unwrap();
        let batch = pipeline.epoch(0).next().unwrap().unwrap();
        let len_bytes = want[0].len();
        // SAFETY: as long as the batch, on the stream that uses it.
        let copy = unsafe {
            let copy = result::malloc_async(stream.cu_stream(), len_bytes).unwrap();
            result::memcpy_htod_async(copy, batch.images().as_bytes().unwrap(), stream.cu_stream()).unwrap();
            Copied(copy, len_bytes)
        };
        begin_capture(&stream, seed);
        if seed % 2 == 0 {
            drop((batch, pipeline))
        } else {
            drop((pipeline, batch))
        }
        end_capture(&stream);
        assert!(copy.read(&stream) == want[0], "seed {seed}");
        // Another pipeline waits for the device, and frees the memory that was put aside.
        let other = build();
        let read = |batch: Batch| batch.images().as_bytes().unwrap().to_vec();
        let got: Vec<Vec<u8>> = other.epoch(0).map(|batch| read(batch.unwrap())).collect();
        assert_eq!(got, want, "seed {seed}");
        let pinned = || sim.report().host_allocations;
        let with_old = pinned();
        drop(other);
        assert!(with_old <= pinned() && pinned() <= 2, "seed {seed}: {with_old}, then {}", pinned());
        assert_eq!(sim.message(), "", "seed {seed}");
        // Memory that was put aside does not keep a context that has failed.
        drop((stream, context));
        sim.break_device(0);
        assert_eq!(all(&squares(&source, Device::Cuda(0))), want, "seed {seed}");
    }
}

/// A trainer captures on one stream while it copies pinned batches on another, which it names. The batches are dropped
/// at once, and filled again once they were read. If it names none, the pipeline says so.
#[test]
fn pinned_batches_whose_readers_are_named_end_no_capture() {
    let (sim, source) = (start(), images(16));
    let want = all(&squares(&source, Device::Cpu));
    for seed in 0..seeds() {
        sim.reset(seed);
        let build = || builder(&source, Device::Cpu).transform(CenterCrop::new(12)).pin_batches(0).build().unwrap();
        let (pipeline, context) = (build(), CudaContext::new(0).unwrap());
        let (captured, reader) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        begin_capture(&captured, seed);
        let mut copies = Vec::new();
        for epoch in 0..3 {
            for batch in pipeline.epoch(epoch) {
                let batch = batch.unwrap();
                let bytes = batch.images().as_bytes().unwrap();
                batch.images().read_on(&reader).unwrap();
                // SAFETY: as long as the batch, on the stream that uses it.
                copies.push(unsafe {
                    let copy = result::malloc_async(reader.cu_stream(), bytes.len()).unwrap();
                    result::memcpy_htod_async(copy, bytes, reader.cu_stream()).unwrap();
                    Copied(copy, bytes.len())
                });
                // A batch that the capturing stream read before is not used again yet.
                if seed % 3 == 0 {
                    assert!(batch.images().read_on(&captured).unwrap_err().is_parameter());
                }
            }
        }
        assert!(sim.report().host_allocations <= 8, "seed {seed}: {:?}", sim.report().host_allocations);
        for (i, copy) in copies.into_iter().enumerate() {
            assert!(copy.read(&reader) == want[i % want.len()], "seed {seed}: batch {i}");
        }
        end_capture(&captured);
        // A reader that itself captures when the batch is dropped: the batch is not filled again before it has read.
        let batch = pipeline.epoch(0).next().unwrap().unwrap();
        batch.images().read_on(&reader).unwrap();
        begin_capture(&reader, seed);
        drop(batch);
        let rest: Vec<Batch> = pipeline.epoch(1).map(|batch| batch.unwrap()).collect();
        end_capture(&reader);
        rest.iter().for_each(|batch| batch.images().read_on(&reader).unwrap());
        drop(rest);
        assert_eq!(sim.message(), "", "seed {seed}");
        // Without names.
        let read = |batch: &Batch| batch.images().as_bytes().map(|bytes| bytes[0]).unwrap();
        pipeline.epoch(0).for_each(|batch| _ = read(&batch.unwrap()));
        begin_capture(&captured, seed);
        let refused = pipeline
            .epoch(0)
            .find_map(|batch| batch.map(|batch| read(&batch)).err())
            .expect("the pipeline cannot wait");
        assert!(refused.is_device() && refused.to_string().contains("Tensor::read_on"), "seed {seed}: {refused}");
    }
}

/// A stream that is destroyed with its owner is kept until its work on the batch is known.
#[test]
fn a_streams_owner_is_kept_until_its_work_is_known() {
    struct Owner(Arc<CudaStream>, Arc<AtomicUsize>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.fetch_add(1, Relaxed);
        }
    }
    let (sim, source) = (start(), images(16));
    let want = all(&squares(&source, Device::Cpu));
    for seed in 0..seeds() {
        sim.reset(seed);
        let (pipeline, gone) = (squares(&source, Device::Cuda(0)), Arc::new(AtomicUsize::new(0)));
        let context = CudaContext::new(0).unwrap();
        let mut copies = Vec::new();
        for batch in pipeline.epoch(0) {
            let tensor = batch.unwrap().into_images();
            let (memory, stream) = (tensor.cuda().unwrap(), context.new_stream().unwrap());
            let raw = stream.cu_stream();
            let owner = Arc::new(Owner(stream, Arc::clone(&gone)));
            // SAFETY: the owner keeps the stream.
            let address = unsafe { memory.on_kept_stream(raw, owner.clone()) }.unwrap();
            copies.push(Copied::queue(address, memory.len_bytes(), &owner.0));
            let before = gone.load(Relaxed);
            if seed % 2 == 0 {
                begin_capture(&owner.0, seed);
                drop(tensor);
                end_capture(&owner.0);
            }
            drop(owner);
            assert_eq!(gone.load(Relaxed), before, "seed {seed}: the batch keeps the stream");
        }
        context.synchronize().unwrap();
        let trainer = context.new_stream().unwrap();
        for (copy, want) in copies.into_iter().zip(&want) {
            assert!(copy.read(&trainer) == *want, "seed {seed}");
        }
        assert_eq!(all(&pipeline).len(), want.len());
        drop(pipeline);
        assert_eq!((gone.load(Relaxed), sim.message()), (want.len(), String::new()), "seed {seed}");
    }
}

/// A consumer destroys its stream before it drops its tensor. The memory is kept until the pipeline ends, and no
/// capture of another stream's ends.
#[test]
fn memory_of_a_stream_that_is_gone_is_kept_until_the_pipeline_ends() {
    let (sim, source) = (start(), images(16));
    let want = all(&squares(&source, Device::Cpu));
    for seed in 0..seeds() {
        sim.reset(seed);
        let pipeline = squares(&source, Device::Cuda(0));
        let context = CudaContext::new(0).unwrap();
        let (trainer, mut copies) = (context.new_stream().unwrap(), Vec::new());
        begin_capture(&trainer, seed);
        for batch in pipeline.epoch(0) {
            let short_lived = context.new_stream().unwrap();
            let (held, copy) = hand_over(batch.unwrap().into_images(), &short_lived, true);
            copies.push(copy);
            drop(short_lived);
            drop(held);
        }
        end_capture(&trainer);
        context.synchronize().unwrap();
        for (copy, want) in copies.into_iter().zip(&want) {
            assert!(copy.read(&trainer) == *want, "seed {seed}");
        }
        drop((pipeline, trainer, context));
        assert_eq!((sim.report().alive(), sim.report().illegal_accesses), (0, 0), "seed {seed}: {}", sim.message());
    }
}

/// A stream is refused whose use would end a capture, and the tensor can still be handed over.
#[test]
fn a_stream_that_captures_is_refused_and_the_tensor_stays() {
    let (sim, source) = (start(), images(2));
    for seed in 0..seeds() {
        sim.reset(seed);
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let batch = squares(&source, Device::Cuda(0)).epoch(0).next().unwrap().unwrap();
        let memory = batch.images().cuda().unwrap();
        begin_capture(&stream, seed);
        assert!(memory.on_stream(&stream).unwrap_err().is_parameter());
        end_capture(&stream);
        memory.on_stream(&stream).unwrap();
    }
}

/// Another library resets the device and begins anew, while objects of all kinds are held. When these are dropped, the
/// other library keeps all its memory and its context, also if that has the handle of the one before.
#[test]
fn what_was_made_before_a_reset_leaves_the_next_context_alone() {
    let (sim, source) = (start(), images(12));
    let want = all(&squares(&source, Device::Cpu));
    for seed in 0..4 * PATHS.len() as u64 {
        sim.reset(seed);
        if seed % 2 == 0 {
            sim.same_context();
        }
        let path = PATHS[seed as usize / 2 % PATHS.len()];
        let threads = seed as usize % 3;
        let build = || {
            builder(&source, Device::Cuda(0)).transform(CenterCrop::new(12)).jpeg_decoder(path).threads(threads).build()
        };
        let old = build().unwrap();
        let pinned = builder(&source, Device::Cpu).transform(CenterCrop::new(12)).pin_batches(0).build().unwrap();
        let mut epoch = old.epoch(0);
        let (held, lent) = (epoch.next().unwrap().unwrap(), epoch.next().unwrap().unwrap().into_images());
        let lent: Dlpack = lent.into_dlpack().unwrap();
        let in_pinned = pinned.epoch(0).next().unwrap().unwrap();
        // Whoever resets a device sees to it that no thread uses it just then.
        let epoch = (threads == 0).then_some(epoch);
        // SAFETY: what another library may do; its memory is freed below.
        let (other, memory) = unsafe {
            sys::cuDevicePrimaryCtxReset_v2(0).result().unwrap();
            let other = CudaContext::new(0).unwrap();
            other.bind_to_thread().unwrap();
            (other, (0..60).map(|i| result::malloc_sync(1 << (8 + i % 13)).unwrap()).collect::<Vec<_>>())
        };
        let next = || all(&build().unwrap());
        let what = format!("seed {seed}, {path:?}");
        if seed / 2 % 2 == 0 {
            assert!(next() == want, "{what}: a new pipeline while the old one is held");
        }
        assert!(held.images().to_host().unwrap_err().is_device(), "{what}");
        std::thread::spawn(move || drop((epoch, lent))).join().unwrap();
        drop((old, held, in_pinned, pinned));
        assert!(next() == want, "{what}");
        other.bind_to_thread().unwrap();
        // SAFETY: allocated above, and freed once.
        let gone = memory.into_iter().filter(|memory| unsafe { result::free_sync(*memory) }.is_err()).count();
        assert_eq!(gone, 0, "{what}: memory of the other library");
        other.synchronize().expect("the other library's context");
    }
}

/// The context that is current on a thread.
fn current() -> Option<sys::CUcontext> {
    result::ctx::get_current().unwrap()
}

/// A trainer has device 0 current, or nothing, and uses batches of device 1: they are the last to know a stream, or a
/// context that has failed.
#[test]
fn what_is_current_stays_current() {
    let (sim, source) = (start(), images(8));
    for seed in 0..8 {
        sim.reset(seed);
        let first = CudaContext::new(0).unwrap();
        let check = |with: bool, threads: usize, fails: bool| {
            // SAFETY: null, or a context that is retained.
            unsafe { result::ctx::set_current(if with { first.cu_ctx() } else { null_mut() }) }.unwrap();
            let before = current();
            let is_kept = |what: &str| assert_eq!(current(), before, "seed {seed}: {what}");
            Device::Cuda(1).available().unwrap();
            is_kept("available");
            let build = || builder(&source, Device::Cuda(1)).transform(CenterCrop::new(12)).threads(threads).build();
            let pipeline = build().unwrap();
            is_kept("build");
            let mut epoch = pipeline.epoch(0);
            let mut held = Vec::new();
            for _ in 0..2 {
                let batch = epoch.next().unwrap().unwrap();
                is_kept("next");
                let stream = batch.images().cuda().unwrap().context().new_stream().unwrap();
                // SAFETY: as above.
                unsafe { result::ctx::set_current(before.unwrap_or(null_mut())) }.unwrap();
                batch.images().cuda().unwrap().on_stream(&stream).unwrap();
                is_kept("on_stream");
                held.push(batch);
                // cudarc's own drop makes its context current; the batch's reference is the last.
                drop(stream);
                // SAFETY: as above.
                unsafe { result::ctx::set_current(before.unwrap_or(null_mut())) }.unwrap();
            }
            if fails {
                sim.break_device(1);
                assert!(epoch.by_ref().take(50).any(|batch| batch.is_err()));
                is_kept("an error");
                assert!(build().is_err());
                is_kept("a build that fails");
            }
            drop(held.pop());
            is_kept("drop of a batch");
            drop(epoch);
            is_kept("drop of an epoch");
            drop(pipeline);
            is_kept("drop of a pipeline");
            drop(held);
            is_kept("drop of the last batch");
            build().unwrap();
            is_kept("a build afterwards");
        };
        let (with, threads, fails) = (seed % 2 == 0, seed as usize / 2 % 2 * 2, seed / 4 == 1);
        check(with, threads, fails);
        std::thread::scope(|scope| scope.spawn(|| check(!with, threads, fails)).join().unwrap());
    }
}

/// Few images are 100 times as large as the others. The memory that is kept does not grow toward that of batches of
/// large images, whatever the consumer holds, and is bounded before the pipeline runs.
#[test]
fn memory_of_images_of_many_sizes_stays_what_was_asked_for() {
    let sim = start();
    let side = |i: u32| if i % 20 == 7 { 160 } else { 12 + i % 7 };
    let image = |i| encode_jpeg(&painted(Size::new(side(i), side(i)), i), &JpegOptions::default()).unwrap();
    let source = EncodedImages::new((0..120).map(|i| (image(i), i)));
    for (threads, holds) in [(0, 0), (0, 3), (2, 2)] {
        sim.reset_with_memory(1, 256 << 20);
        let builder = builder(&source, Device::Cuda(0)).batch_size(12).threads(threads).prefetch(2).shuffle(5);
        let pipeline = builder.jpeg_decoder(JpegDecoder::Cpu).device_memory(12 << 20).build_ragged().unwrap();
        // Memory of images, and of values on the same device.
        assert_eq!(pipeline.memory().spare_bytes, (12 + 64) << 20);
        let (mut held, mut most_held, mut before) = (VecDeque::new(), 0, 0);
        for epoch in 0..40 {
            for batch in pipeline.epoch(epoch) {
                held.push_back(batch.unwrap().into_images());
                let bytes = |images: &Vec<Tensor>| -> usize {
                    images.iter().map(|image| image.cuda().unwrap().len_bytes()).sum()
                };
                most_held = most_held.max(held.iter().map(bytes).sum());
                while held.len() as u64 > (epoch + held.len() as u64) % (holds + 1) {
                    held.pop_front();
                }
            }
            let now = sim.report().allocation_bytes;
            if epoch == 5 {
                before = now;
            }
            let room = 4 * most_held as u64;
            assert!(epoch <= 5 || now <= before + room, "{threads}, {holds}: {before}, then {now} after {epoch}");
        }
    }
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
    fn _exit(status: i32) -> !;
}

/// Runs `work` in a forked child, which must end by itself and well.
fn in_a_child(what: &str, work: impl FnOnce()) {
    // SAFETY: the child does its work and ends at once, without running what the parent has registered for its end.
    let child = unsafe { fork() };
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the child.
        unsafe { _exit(i32::from(done.is_err())) }
    }
    let (begun, mut status) = (Instant::now(), 0);
    // SAFETY: the child is this process's own; 1 is WNOHANG.
    while unsafe { waitpid(child, &raw mut status, 1) } == 0 {
        if begun.elapsed() > Duration::from_secs(20) {
            // SAFETY: as above.
            unsafe { (kill(child, 9), waitpid(child, &raw mut status, 0)) };
            panic!("{what}: the child hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(status, 0, "{what}");
}

/// A process forks after it has begun to use the device, while its threads may hold any lock. The child drops what it
/// has inherited, in any order, and its calls are errors; the parent goes on.
#[test]
fn a_forked_child_leaves_all_to_its_parent() {
    let (sim, source) = (start(), images(48));
    let want = all(&squares(&source, Device::Cpu));
    for seed in 0..seeds() {
        sim.reset(seed);
        let path = PATHS[seed as usize % PATHS.len()];
        let build = |device| {
            builder(&source, device).transform(CenterCrop::new(12)).jpeg_decoder(path).threads(2).prefetch(2).build()
        };
        let (pipeline, pinned) = (build(Device::Cuda(0)).unwrap(), build(Device::Cpu).unwrap());
        let (mut epoch, mut on_host) = (pipeline.epoch(0), pinned.epoch(0));
        let mut got: Vec<Batch> = epoch.by_ref().take(2).map(Result::unwrap).collect();
        let lent: Dlpack = got.pop().unwrap().into_images().into_dlpack().unwrap();
        let batch = got.pop().unwrap();
        let mut things: Vec<Box<dyn FnOnce()>> = Vec::new();
        in_a_child(&format!("seed {seed}"), || {
            let is_refused = |result: warpfeed::Result<()>| result.unwrap_err().to_string().contains("fork");
            assert!(is_refused(batch.images().to_host().map(drop)));
            assert!(is_refused(build(Device::Cuda(0)).map(drop)));
            assert!(epoch.wait(Duration::from_secs(9)) && epoch.next().unwrap().is_err());
            assert!(on_host.next().unwrap().is_err());
            things.push(Box::new(|| drop(batch)));
            things.push(Box::new(|| drop(lent)));
            things.push(Box::new(|| drop(epoch)));
            things.push(Box::new(|| drop(on_host)));
            things.push(Box::new(|| drop(pipeline.clone())));
            things.rotate_left(seed as usize % 5);
            things.into_iter().for_each(|drop| drop());
        });
        let batch = pipeline.epoch(0).next().unwrap().unwrap();
        assert_eq!(bytes(batch.images()), want[0], "seed {seed}: the parent");
        assert!(all(&pipeline) == want, "seed {seed}: the parent");
    }
}
