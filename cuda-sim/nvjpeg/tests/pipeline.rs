//! The pipeline on the simulated device, with any schedule and any failure, for `CUDA_SIM_SEEDS` seeds.

#![cfg(target_os = "linux")]

mod common;
#[path = "../../tests/support/sim.rs"]
mod sim;

use common::{Batches, batches, builder, painted, seeds, start};
use cudarc::driver::{CudaContext, CudaStream, result, sys};
use dlpark::versioned::Dlpack;
use nvjpeg::sys::bindings as sys_nvjpeg;
use std::ptr::{NonNull, null_mut, without_provenance_mut};
use std::sync::Arc;
use std::time::Duration;
use warpfeed::ops::{CenterCrop, Resize};
use warpfeed::{
    Batch, BatchMemory, Device, EntryPoints, Error, JpegDecoder, MemoryBlock, OnError, Pipeline, PipelineBuilder,
    Result, Stats, StreamPriority, Tensor,
    image::{ChromaSampling, Image, JpegColor, JpegOptions, Size, encode_jpeg},
    ops::{random_horizontal_flip, random_resized_crop, random_rotation},
    source::EncodedImages,
};
use warpfeed_bench::diagnose::{self, TrainingBottleneck, diagnose};
use warpfeed_bench::subject::{Model, Subject};

const IMAGES: u32 = 13;

/// Baseline images, progressive and gray ones, and one that no GPU supports.
fn images() -> EncodedImages {
    EncodedImages::new((0..IMAGES).map(|i| {
        let options = JpegOptions {
            sampling: if i % 2 == 0 { ChromaSampling::S420 } else { ChromaSampling::S444 },
            progressive: i % 5 == 4,
            color: [JpegColor::Ycc, JpegColor::Ycc, JpegColor::Gray, JpegColor::Cmyk][i as usize % 4],
            ..JpegOptions::default()
        };
        (encode_jpeg(&painted(Size::new(17 + i, 31 - i), i), &options).unwrap(), i)
    }))
}

/// The pipeline of a seed.
fn pipeline(source: &EncodedImages, seed: u64, device: Device) -> Result<Pipeline> {
    let paths = [
        JpegDecoder::Auto,
        JpegDecoder::Hardware,
        JpegDecoder::Hybrid,
        JpegDecoder::Device,
        JpegDecoder::Cpu,
        JpegDecoder::HardwareDevice,
    ];
    let builder = builder(source, seed).batch_size(3 + seed as usize % 3).on_error(OnError::Skip);
    builder.jpeg_decoder(paths[seed as usize % 6]).device(device).build()
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
        // The second epoch finds the state that the first has left.
        let again = batches(&pipeline, seed + 1).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(got == expected(&source, seed), "seed {seed}");
        assert!(again == got, "seed {seed}, second time");
        drop(pipeline);
        let report = sim.report();
        // The process keeps the primary context, which it has retained once.
        assert_eq!((report.alive(), report.contexts), (0, 1), "seed {seed}: {report:?}");
        assert_eq!((report.illegal_accesses, sim.message()), (0, String::new()), "seed {seed}");
        assert_eq!(report.spinning_waits, 0, "seed {seed}");
    }
}

/// A tensor's images and labels, copied on a stream that was not waited for.
struct Copied {
    address: u64,
    len_bytes: usize,
    labels: usize,
}

impl Copied {
    fn of(tensor: &Tensor, labels: usize, stream: &Arc<CudaStream>) -> Self {
        let images = tensor.cuda().unwrap();
        let (len_bytes, from) = (images.len_bytes(), images.on_stream(stream).unwrap());
        let labels_from = images.labels_address().unwrap();
        // SAFETY: allocated on the stream that uses it; the ranges are the tensor's, which `stream` waits for, and
        // which is not used again before the work that is queued there.
        let address = unsafe {
            let address = result::malloc_async(stream.cu_stream(), len_bytes + 4 * labels).unwrap();
            result::memcpy_dtod_async(address, from, len_bytes, stream.cu_stream()).unwrap();
            let to = address + len_bytes as u64;
            result::memcpy_dtod_async(to, labels_from, 4 * labels, stream.cu_stream()).unwrap();
            address
        };
        Self { address, len_bytes, labels }
    }

    fn read(self, stream: &CudaStream) -> (Vec<u8>, Vec<u32>) {
        let mut images = vec![0; self.len_bytes + 4 * self.labels];
        // SAFETY: the copy has this length; it is freed once, after it is read.
        unsafe {
            result::memcpy_dtoh_async(&mut images, self.address, stream.cu_stream()).unwrap();
            result::free_async(self.address, stream.cu_stream()).unwrap();
        }
        stream.synchronize().unwrap();
        let labels = images.split_off(self.len_bytes);
        (images, labels.as_chunks().0.iter().map(|label| u32::from_le_bytes(*label)).collect())
    }
}

/// A trainer that queues its reading of each batch on its own stream, drops the batch at once, and never waits.
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
                copies.push((epoch, batch.indices().to_vec(), Copied::of(batch.images(), batch.len(), &stream)));
            }
        }
        let cpu = self::pipeline(&source, seed, Device::Cpu).unwrap();
        let wanted = (0..2).flat_map(|epoch| cpu.epoch(epoch).map(move |batch| (epoch, batch.unwrap())));
        let mut wanted: Vec<_> = wanted.collect();
        for (epoch, indices, copied) in copies {
            let (images, labels) = copied.read(&stream);
            let (want_epoch, want) = wanted.remove(0);
            assert_eq!((epoch, &indices[..]), (want_epoch, want.indices()), "seed {seed}");
            assert!(images == want.images().as_bytes().unwrap(), "seed {seed}, images {indices:?}");
            assert_eq!(labels, want.labels().unwrap(), "seed {seed}, labels of {indices:?}");
        }
        drop((pipeline, stream, context));
        assert_eq!((sim.report().alive(), sim.message()), (0, String::new()), "seed {seed}");
    }
}

/// The same test for images with memory of their own, which is reused for images of other sizes.
#[test]
fn a_consumers_stream_is_waited_for_by_images_of_any_size() {
    let (sim, source) = (start(), images());
    for seed in 0..seeds() {
        sim.reset(seed);
        let of = |device| {
            let builder = Pipeline::builder(source.clone()).shuffle(seed).batch_size(3 + seed as usize % 3);
            let builder = builder.threads(seed as usize % 3).transform(random_rotation(-20.0..=20.0)).device(device);
            builder.jpeg_decoder([JpegDecoder::Auto, JpegDecoder::Cpu][seed as usize % 2]).build_ragged().unwrap()
        };
        let (pipeline, context) = (of(Device::Cuda(0)), CudaContext::new(0).unwrap());
        let stream = context.new_stream().unwrap();
        let mut copies = Vec::new();
        for batch in (0..3).flat_map(|epoch| pipeline.epoch(epoch)) {
            copies.extend(batch.unwrap().images().iter().map(|image| Copied::of(image, 1, &stream)));
        }
        let cpu = of(Device::Cpu);
        let wanted: Vec<_> = (0..3).flat_map(|epoch| cpu.epoch(epoch)).map(Result::unwrap).collect();
        let wanted: Vec<_> =
            wanted.iter().flat_map(|batch| batch.images().iter().zip(batch.labels().unwrap())).collect();
        assert_eq!(copies.len(), wanted.len());
        for (copied, (image, label)) in copies.into_iter().zip(wanted) {
            let got = copied.read(&stream);
            assert!(got == (image.as_bytes().unwrap().to_vec(), vec![*label]), "seed {seed}, label {label}");
        }
        drop((pipeline, stream, context));
        assert_eq!((sim.report().alive(), sim.message()), (0, String::new()), "seed {seed}");
    }
}

/// If an event for a reader cannot be made when a batch is dropped, its memory is freed only after all work of the
/// device.
#[test]
fn a_buffer_is_freed_after_readers_that_no_event_notes() {
    let (sim, source) = (start(), images());
    let mut unnoted = 0;
    for seed in 0..seeds() {
        sim.reset_with_failures(seed, 0.003);
        // Whether the batch was dropped while the driver refused something; `None` if something failed before.
        let dropped = || {
            let builder = Pipeline::builder(source.clone()).batch_size(4).threads(0).on_error(OnError::Skip);
            let builder = builder.transform(CenterCrop::new(8)).jpeg_decoder(JpegDecoder::Cpu).device(Device::Cuda(0));
            let pipeline = builder.build().ok()?;
            let batch = pipeline.epoch(0).next()?.ok()?;
            let context = CudaContext::new(0).ok()?;
            let streams: Vec<_> = (0..100).map(|_| context.new_stream().ok()).collect::<Option<_>>()?;
            let images = batch.images().cuda()?;
            let from: Vec<_> = streams.iter().map(|stream| images.on_stream(stream).ok()).collect::<Option<_>>()?;
            let (raw, len_bytes) = (streams[0].cu_stream(), images.len_bytes());
            // SAFETY: allocated, used and freed on one stream, which waits for the batch.
            unsafe {
                let copy = result::malloc_async(raw, len_bytes).ok()?;
                let copied = result::memcpy_dtod_async(copy, from[0], len_bytes, raw);
                result::free_async(copy, raw).ok().filter(|()| copied.is_ok())?;
            }
            let before = sim.report().injected_failures;
            drop(batch);
            Some(sim.report().injected_failures > before)
        };
        unnoted += u64::from(dropped() == Some(true));
        assert_eq!(sim.report().illegal_accesses, 0, "seed {seed}: {}", sim.message());
    }
    assert!(unnoted >= seeds() / 50, "{unnoted} of {} batches", seeds());
}

#[test]
fn whatever_fails_is_an_error_that_names_its_call() {
    let (sim, source) = (start(), images());
    let (mut failed, mut injected) = (0, 0);
    for seed in 0..seeds() {
        sim.reset_with_failures(seed, [0.003, 0.01, 0.05][seed as usize % 3]);
        let result = pipeline(&source, seed, Device::Cuda(0)).and_then(|pipeline| {
            // Stopping in the middle is allowed too.
            if seed % 7 == 6 {
                drop(pipeline.epoch(0).next().transpose()?);
            }
            batches(&pipeline, seed)
        });
        match result {
            // A failure of nvJPEG loses nothing.
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
        assert_eq!((report.alive(), report.contexts), (0, 1), "seed {seed}: {report:?}\n{}", sim.message());
        assert_eq!(report.illegal_accesses, 0, "seed {seed}: {}", sim.message());
        // The state that the next pipeline of the same process would find.
        sim.reset(seed);
        assert!(batches(&pipeline(&source, seed, Device::Cuda(0)).unwrap(), seed).is_ok(), "seed {seed}, afterwards");
    }
    assert!(failed > seeds() / 10 && injected > seeds() / 4, "{failed} failed of {injected} with failures");
}

/// A stream of the device that `make` makes on a thread of its own, so that no context becomes current on this one.
fn stream_of_another_thread() -> Arc<CudaStream> {
    std::thread::spawn(|| CudaContext::new(0).unwrap().new_stream().unwrap()).join().unwrap()
}

fn current_context() -> sys::CUcontext {
    let mut current = null_mut();
    // SAFETY: it is written before the call returns.
    assert_eq!(unsafe { sys::cuCtxGetCurrent(&raw mut current) }, sys::CUresult::CUDA_SUCCESS);
    current
}

/// The trainer's thread may have the context of another device current, and its own calls continue on that device.
#[test]
fn nothing_becomes_current_on_the_trainers_thread() {
    let (sim, source) = (start(), images());
    for seed in 0..6 {
        sim.reset(seed);
        Device::Cuda(0).available().unwrap();
        let is_as_before = |what: &str| assert!(current_context().is_null(), "seed {seed}: {what}");
        is_as_before("available");
        // Without threads, this thread does the work of all.
        let pipeline = pipeline(&source, 3 * seed, Device::Cuda(0)).unwrap();
        is_as_before("build");
        let stream = stream_of_another_thread();
        for batch in pipeline.epoch(0) {
            is_as_before("epoch");
            let batch = batch.unwrap();
            let images = batch.images().cuda().unwrap();
            images.on_stream(&stream).unwrap();
            is_as_before("on_stream");
            images.synchronize().unwrap();
            is_as_before("synchronize");
            batch.images().to_host().unwrap();
            is_as_before("to_host");
            drop(batch);
            is_as_before("drop of a batch");
        }
        drop(pipeline);
        is_as_before("drop of a pipeline");
        let _ = warpfeed::doctor();
        is_as_before("doctor");
    }
}

/// The process retains the primary context once. After a failure, and after somebody has reset the device, it is
/// another context.
#[test]
fn a_context_is_retained_once_and_a_failed_one_given_up() {
    let (sim, source) = (start(), images());
    let epoch = || batches(&pipeline(&source, 0, Device::Cuda(0)).unwrap(), 0).unwrap();
    let want = epoch();
    let (one, two) = (pipeline(&source, 0, Device::Cuda(0)).unwrap(), pipeline(&source, 0, Device::Cuda(0)).unwrap());
    Device::Cuda(0).available().unwrap();
    drop((one, two));
    assert_eq!(sim.report().contexts, 1);

    let failing = pipeline(&source, 0, Device::Cuda(0)).unwrap();
    let stream = stream_of_another_thread();
    stream.context().bind_to_thread().unwrap();
    // SAFETY: the simulated device refuses memory that is not there, and fails the context.
    unsafe { result::memcpy_dtod_async(64, 128, 4, stream.cu_stream()).unwrap_err() };
    assert!(batches(&failing, 0).unwrap_err().is_device());
    drop((failing, stream));
    assert!(epoch() == want, "after a failure");
    sim.reset(1);
    assert!(epoch() == want, "after a reset");
    assert_eq!(sim.report().contexts, 1);
}

/// Gives a batch's memory to a consumer that uses DLPack.
fn lend(batch: Batch, stream: Option<isize>, named: bool) -> Dlpack {
    let images = batch.into_images();
    // SAFETY: the streams of the test outlive all batches.
    if named { unsafe { images.into_dlpack_on(stream).unwrap() } } else { images.into_dlpack().unwrap() }
}

/// A consumer like torch: it reads each batch on its own stream, and calls the deleter when the work is queued.
#[test]
fn a_batch_lent_by_dlpack_is_not_used_again_before_it_has_been_read() {
    let (sim, source) = (start(), images());
    for seed in 0..seeds() {
        sim.reset(seed);
        let pipeline = pipeline(&source, seed, Device::Cuda(0)).unwrap();
        let context = CudaContext::new(0).unwrap();
        let own = context.new_stream().unwrap();
        let own = own.cu_stream();
        // The stream that the consumer names, and the stream that it reads on: the legacy default stream, the thread's
        // own stream, or a stream by its handle.
        let (stream, named, reads_on) = [
            (None, false, null_mut()),
            (None, true, null_mut()),
            (Some(1), true, null_mut()),
            (Some(2), true, without_provenance_mut(2)),
            (Some(own as isize), true, own),
            (Some(-1), true, null_mut()),
        ][seed as usize % 6];
        let mut copies = Vec::new();
        for batch in pipeline.epoch(0) {
            let batch = batch.unwrap();
            let (indices, len_bytes) = (batch.indices().to_vec(), batch.images().cuda().unwrap().len_bytes());
            if stream == Some(-1) {
                // The consumer waits by itself.
                batch.images().synchronize().unwrap();
            }
            let lent = lend(batch, stream, named);
            let view = lent.validate().unwrap();
            assert_eq!(view.num_bytes(), len_bytes);
            let from = view.data_ptr() as u64;
            // SAFETY: allocated on the stream that uses it; the range is the batch's, which the stream waits for.
            let copy = unsafe {
                let copy = result::malloc_async(reads_on, len_bytes).unwrap();
                result::memcpy_dtod_async(copy, from, len_bytes, reads_on).unwrap();
                copy
            };
            copies.push((indices, copy, len_bytes));
            // The deleter may be called on any thread.
            if seed % 4 < 2 { drop(lent) } else { std::thread::spawn(|| drop(lent)).join().unwrap() }
        }
        let cpu = self::pipeline(&source, seed, Device::Cpu).unwrap();
        for ((indices, copy, len_bytes), want) in copies.into_iter().zip(cpu.epoch(0).map(Result::unwrap)) {
            let mut got = vec![0; len_bytes];
            // SAFETY: the copy has this length; it is freed once, after it is read.
            unsafe {
                result::memcpy_dtoh_async(&mut got, copy, reads_on).unwrap();
                result::free_async(copy, reads_on).unwrap();
                result::stream::synchronize(reads_on).unwrap();
            }
            assert_eq!(indices, want.indices(), "seed {seed}");
            assert!(got == want.images().as_bytes().unwrap(), "seed {seed}, {stream:?}, {indices:?}");
        }
        assert_eq!(sim.message(), "", "seed {seed}");
    }
    let batch = pipeline(&source, 0, Device::Cpu).unwrap().epoch(0).next().unwrap().unwrap();
    // SAFETY: no stream is used.
    let refused = unsafe { batch.into_images().into_dlpack_on::<dlpark::ffi::DLManagedTensorVersioned>(Some(1)) };
    assert!(refused.err().unwrap().is_parameter());
}

/// An image with three scans of one component each, all baseline.
fn several_scans(seed: u32) -> Vec<u8> {
    let gray = |i: u32| {
        let mut image = Image::new(Size::new(40, 24));
        for (j, pixel) in (0..).zip(image.pixels_mut()) {
            *pixel = [(i * j + seed) as u8; 4];
        }
        encode_jpeg(&image, &JpegOptions { color: JpegColor::Gray, ..JpegOptions::default() }).unwrap()
    };
    let find = |bytes: &[u8], marker: u8| bytes.windows(2).position(|pair| pair == [0xFF, marker]).unwrap();
    let segment = |bytes: &[u8], at: usize| {
        let len = usize::from(u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]));
        bytes[at..at + 2 + len].to_vec()
    };
    let first = gray(1);
    let frame = find(&first, 0xC0);
    let mut all = [&first[..2], &segment(&first, find(&first, 0xDB))[..], &[0xFF, 0xC0, 0, 17]].concat();
    all.extend(&first[frame + 4..frame + 9]);
    all.push(3);
    (1..=3).for_each(|component| all.extend([component, 0x11, 0]));
    for component in 1..=3_u8 {
        let one = gray(component.into());
        for (at, _) in one.windows(2).enumerate().filter(|(_, pair)| *pair == [0xFF, 0xC4]) {
            all.extend(segment(&one, at));
        }
        let scan = find(&one, 0xDA);
        all.extend([0xFF, 0xDA, 0, 8, 1, component, 0, 0, 63, 0]);
        all.extend(&one[scan + 10..one.len() - 2]);
    }
    all.extend([0xFF, 0xD9]);
    all
}

/// Runs one batch of these images on this path, resized, and returns the counts of decoders.
fn one_batch(images: &[Vec<u8>], decode: JpegDecoder) -> Stats {
    one_batch_of(images, decode, |builder| builder.transform(Resize::new(Size::new(9, 7))))
}

/// Runs one batch of these images on this path with these operations.
fn one_batch_of(images: &[Vec<u8>], decode: JpegDecoder, ops: impl Fn(PipelineBuilder) -> PipelineBuilder) -> Stats {
    let source = EncodedImages::new(images.iter().cloned().zip(0..));
    let builder = || ops(Pipeline::builder(source.clone()).batch_size(images.len()).threads(0).on_error(OnError::Skip));
    let run = |builder: PipelineBuilder| {
        let mut epoch = builder.build().unwrap().epoch(0);
        let of = |batch: Batch| batch.images().to_host().unwrap().as_bytes().unwrap().to_vec();
        (epoch.by_ref().map(|batch| of(batch.unwrap())).collect::<Vec<_>>(), epoch.stats())
    };
    let (want, _) = run(builder().device(Device::Cpu));
    let (got, stats) = run(builder().device(Device::Cuda(0)).jpeg_decoder(decode).hardware_share(1.0));
    assert!(got == want, "{decode:?}");
    stats
}

fn plain(seed: u32) -> Vec<u8> {
    let mut image = Image::new(Size::new(33, 20));
    image.pixels_mut().iter_mut().zip(seed..).for_each(|(pixel, i)| *pixel = [(3 * i) as u8, (7 * i) as u8, 9, 255]);
    encode_jpeg(&image, &JpegOptions::default()).unwrap()
}

/// nvJPEG sees from a header alone neither how many scans follow nor that one lacks components.
#[test]
fn an_image_of_several_scans_costs_its_batch_nothing() {
    let sim = start();
    let images: Vec<_> = (0..8).map(|i| if i == 5 { several_scans(i) } else { plain(i) }).collect();
    let stats = one_batch(&images, JpegDecoder::Hardware);
    assert_eq!([stats.decoded.hardware, stats.decoded.hybrid, stats.decoded.cpu, stats.bad], [7, 1, 0, 0]);
    assert_eq!(sim.message(), "");
}

/// Images that the hardware decoder refuses late are found by halving the batch. It still decodes the others.
#[test]
fn a_damaged_image_costs_its_batch_little() {
    let _sim = start();
    let damaged = |i| {
        let bytes = plain(i);
        [&bytes[..bytes.len() - 40], &[0xFF, 0xD9]].concat()
    };
    let images: Vec<_> = (0..13).map(|i| if i % 8 == 3 { damaged(i) } else { plain(i) }).collect();
    let stats = one_batch(&images, JpegDecoder::Hardware);
    assert_eq!([stats.decoded.hardware, stats.decoded.hybrid, stats.decoded.cpu, stats.bad], [11, 0, 0, 2]);
}

/// nvJPEG decodes as much as there is of a truncated image. The CPU decides whether that is good enough.
#[test]
fn an_image_without_its_end_is_the_cpus() {
    let _sim = start();
    let mut images: Vec<_> = (0..6).map(plain).collect();
    let half = images[2].len() / 2 + 300;
    images[2].truncate(half);
    assert!(half + 2 < plain(2).len() && warpfeed::image::probe(&images[2]).is_ok());
    for path in [JpegDecoder::Hybrid, JpegDecoder::Hardware] {
        let stats = one_batch(&images, path);
        assert_eq!((stats.bad, stats.decoded.hybrid + stats.decoded.hardware), (1, 5), "{path:?}");
    }
}

/// Batches that are finished together are queued one after the other.
#[test]
fn batches_take_turns_on_the_hardware_decoder() {
    let sim = start();
    let source = EncodedImages::new((0..64).map(|i| (plain(i), i)));
    for seed in 0..8 {
        sim.reset(seed);
        let builder =
            Pipeline::builder(source.clone()).batch_size(2).threads(4).prefetch(8).transform(CenterCrop::new(8));
        let pipeline = builder.device(Device::Cuda(0)).jpeg_decoder(JpegDecoder::Hardware).build().unwrap();
        assert!(pipeline.epoch(0).all(|batch| batch.is_ok()), "seed {seed}: {}", sim.message());
    }
}

/// The driver copies pageable memory during the call, on the single thread that queues the batch.
#[test]
fn the_hardware_decoder_reads_pinned_memory() {
    let sim = start();
    let images: Vec<_> = (0..6).map(plain).collect();
    let stats = one_batch(&images, JpegDecoder::Hardware);
    assert_eq!((stats.decoded.hardware, sim.report().pageable_inputs), (6, 0));
}

/// Above a megapixel the device also decodes Huffman codes, unless the image is progressive.
#[test]
fn large_images_are_decoded_by_the_gpu_alone() {
    let _sim = start();
    let library = sim::open("libcuda_sim_nvjpeg.so");
    // SAFETY: the function is the simulation's, and has this type.
    let decoded = unsafe { library.get::<extern "C" fn(u32) -> u64>(b"cuda_sim_nvjpeg_decoded") }.unwrap();
    let of = |backend: sys_nvjpeg::nvjpegBackend_t| decoded(backend.0);
    let counts = || {
        [sys_nvjpeg::nvjpegBackend_t::NVJPEG_BACKEND_HYBRID, sys_nvjpeg::nvjpegBackend_t::NVJPEG_BACKEND_GPU_HYBRID]
            .map(of)
    };
    let large = |progressive| {
        let mut image = Image::new(Size::new(1100, 1000));
        image.pixels_mut().iter_mut().zip(0_u32..).for_each(|(pixel, i)| *pixel = [(i / 1100) as u8, i as u8, 7, 255]);
        encode_jpeg(&image, &JpegOptions { progressive, ..JpegOptions::default() }).unwrap()
    };
    // The worker's buffers move from one decoder to the other and back.
    let images = [plain(1), plain(2), plain(3), large(false), large(true), plain(4), plain(5)];
    let before = counts();
    let stats = one_batch_of(&images, JpegDecoder::Hybrid, |builder| {
        builder.transform(CenterCrop::new(8)).device_memory(36 << 20)
    });
    let [hybrid, gpu_hybrid] = [0, 1].map(|i| counts()[i] - before[i]);
    assert_eq!((stats.decoded.hybrid, hybrid, gpu_hybrid), (7, 6, 1));
}

/// Once there is memory for the largest batch, neither the pipeline nor nvJPEG allocates more, because that would make
/// the device wait.
#[test]
fn nothing_is_allocated_in_the_steady_state() {
    let sim = start();
    let image = |side: u32| {
        let mut image = Image::new(Size::new(side, side));
        image.pixels_mut().iter_mut().zip(0_u32..).for_each(|(pixel, i)| *pixel = [(5 * i) as u8, i as u8, 7, 255]);
        encode_jpeg(&image, &JpegOptions::default()).unwrap()
    };
    // The first image is the smallest, with half the pixels of the largest.
    let source = EncodedImages::new((0..24).map(|i| (image(30 + i / 2), i)));
    for path in [JpegDecoder::Hybrid, JpegDecoder::Hardware] {
        sim.reset(2);
        let builder =
            Pipeline::builder(source.clone()).batch_size(4).threads(0).prefetch(1).transform(CenterCrop::new(8));
        let pipeline = builder.device(Device::Cuda(0)).jpeg_decoder(path).build().unwrap();
        let epoch = || {
            assert!(pipeline.epoch(0).all(|batch| batch.is_ok()));
            sim.report().allocation_calls
        };
        // Delivers small images until every batch that may exist at the same time has been used.
        for _ in 0..8 {
            pipeline.epoch(0).take(3).for_each(|batch| drop(batch.unwrap()));
        }
        let first = sim.report().allocation_calls;
        assert_eq!(epoch(), first, "{path:?}");
    }
}

/// A trainer's stream can only go first if the pipeline's streams have a lower priority.
#[test]
fn the_pipelines_streams_have_the_priority_that_was_chosen() {
    let (sim, source) = (start(), images());
    let urgent = |priority: Option<StreamPriority>| {
        let builder =
            Pipeline::builder(source.clone()).threads(1).transform(CenterCrop::new(8)).on_error(OnError::Skip);
        let builder = builder.device(Device::Cuda(0)).jpeg_decoder(JpegDecoder::Hardware);
        let pipeline = priority.into_iter().fold(builder, PipelineBuilder::stream_priority).build().unwrap();
        assert!(pipeline.epoch(0).all(|batch| batch.is_ok()));
        sim.report().urgent_streams
    };
    // The engines' stream is urgent in any case.
    assert_eq!((urgent(None), urgent(Some(StreamPriority::Low))), (1, 1));
    // The streams of kernels, Huffman codes, copies, and each thread's decoder are so too.
    assert_eq!(urgent(Some(StreamPriority::High)), 5);
}

/// The Huffman codes of all batches that threads finish at a time are decoded side by side, on four streams at most.
#[test]
fn batches_have_streams_of_their_own_for_huffman_codes() {
    let (sim, source) = (start(), images());
    let streams = |(threads, prefetch)| {
        let builder =
            Pipeline::builder(source.clone()).threads(threads).prefetch(prefetch).transform(CenterCrop::new(8));
        let builder = builder.device(Device::Cuda(0)).jpeg_decoder(JpegDecoder::Cpu).on_error(OnError::Skip);
        let pipeline = builder.stream_priority(StreamPriority::High).build().unwrap();
        assert!(pipeline.epoch(0).all(|batch| batch.is_ok()));
        sim.report().urgent_streams
    };
    // One more is for copies, and one for all other kernels.
    assert_eq!([(0, 2), (1, 2), (2, 1), (2, 2), (3, 8), (8, 8)].map(streams), [3, 3, 3, 4, 5, 6]);
}

/// The buffer that was returned first is reused first, because its readers are most likely done.
#[test]
fn buffers_are_used_again_in_turn() {
    let (_sim, source) = (start(), images());
    let builder = Pipeline::builder(source).batch_size(2).threads(0).prefetch(3).transform(CenterCrop::new(8));
    let pipeline = builder.device(Device::Cuda(0)).jpeg_decoder(JpegDecoder::Cpu).build().unwrap();
    let stream = stream_of_another_thread();
    let address = |batch: &Batch| batch.images().cuda().unwrap().on_stream(&stream).unwrap();
    let mut epoch = pipeline.epoch(0);
    let held: Vec<_> = epoch.by_ref().take(3).map(Result::unwrap).collect();
    let first: Vec<_> = held.iter().map(address).collect();
    held.into_iter().for_each(drop);
    let again: Vec<_> = epoch.take(3).map(|batch| address(&batch.unwrap())).collect();
    assert_eq!(again, first);
}

/// Finds that a slow link to the device limits a pipeline.
#[test]
fn a_slow_link_is_found() {
    let sim = start();
    // Slow enough that a busy machine hardly changes a batch's time.
    sim.slow_copies(1_600_000);
    let mut settings = diagnose::DiagnoseSettings::new([random_horizontal_flip(0.5), random_resized_crop(64)]);
    (settings.threads, settings.cores, settings.batch_size) = (2, 2, 1);
    // One round, so that few of all batches are made ahead.
    (settings.time, settings.rounds) = (Duration::from_secs(2), 1);
    let subject = Subject { device: Device::Cuda(0), ..Subject::new("made", images()) };
    let diagnosed = || diagnose(&subject, &settings, &mut Model::none(), &mut |_| ()).unwrap();
    // A machine that is busy during one of the measured parts has another bottleneck at that time.
    let found = (0..3).map(|_| diagnosed()).find(|found| found.bottleneck == TrainingBottleneck::Transfer);
    let found = found.unwrap_or_else(diagnosed);
    assert_eq!(found.bottleneck, TrainingBottleneck::Transfer, "{:?}", found.report.figures);
    assert!(
        found.gain.unwrap() > 1.5 && found.report.answer[2].contains("--jpeg-decoder auto"),
        "{:?}",
        found.report.answer
    );
}

/// A trainer that copies each pinned batch on a stream of its own, as candle does, and drops the batch at once: the
/// copy runs later, and the pool must not fill the batch again before that.
#[test]
fn a_pinned_batch_is_not_filled_again_while_the_device_reads_it() {
    let (sim, source) = (start(), images());
    let build = |pin: bool| {
        let builder =
            Pipeline::builder(source.clone()).batch_size(2).threads(2).transform(random_resized_crop(Size::new(9, 7)));
        let builder = builder.on_error(OnError::Skip).device(Device::Cpu);
        if pin { builder.pin_batches(0) } else { builder }.build().unwrap()
    };
    let bytes = |batch: Batch| batch.images().as_bytes().unwrap().to_vec();
    let want: Vec<Vec<u8>> = (0..3).flat_map(|epoch| build(false).epoch(epoch)).map(|b| bytes(b.unwrap())).collect();
    for seed in 0..seeds() {
        sim.reset(seed);
        let (pipeline, context) = (build(true), CudaContext::new(0).unwrap());
        let stream = context.new_stream().unwrap();
        let mut slices = Vec::new();
        for epoch in 0..3 {
            for batch in pipeline.epoch(epoch) {
                slices.push(stream.clone_htod(batch.unwrap().images().as_bytes().unwrap()).unwrap());
            }
        }
        for (i, (slice, want)) in slices.iter().zip(&want).enumerate() {
            assert!(stream.clone_dtoh(slice).unwrap() == *want, "seed {seed}: batch {i}");
        }
        // Changing a batch in place, or taking its memory, waits too.
        let mut batch = pipeline.epoch(0).next().unwrap().unwrap().into_images();
        let before = batch.as_bytes().unwrap().to_vec();
        let slice = stream.clone_htod(batch.as_bytes().unwrap()).unwrap();
        batch.as_bytes_mut().unwrap().fill(0);
        assert!(stream.clone_dtoh(&slice).unwrap() == before, "seed {seed}: changed in place");
        assert_eq!(sim.message(), "", "seed {seed}");
    }
}

/// Pinned memory of the caller's, who keeps it, as torch does.
struct PinnedMemory;

impl BatchMemory for PinnedMemory {
    fn block(&self, len_bytes: usize) -> Result<MemoryBlock> {
        CudaContext::new(0).unwrap().bind_to_thread().unwrap();
        // SAFETY: the memory is new, and never freed.
        unsafe {
            let start = result::malloc_host(len_bytes, 0).unwrap();
            Ok(MemoryBlock::new(NonNull::new(start.cast()).unwrap(), len_bytes, ()))
        }
    }
}

/// A trainer that captures a graph while pipelines begin, work and end on other threads, and on this one.
#[test]
fn a_trainers_capture_is_not_disturbed() {
    let (sim, source) = (start(), images());
    // A batch needs several blocks of memory, which then become one.
    let large = encode_jpeg(&Image::new(Size::new(900, 500)), &JpegOptions::default()).unwrap();
    let large = EncodedImages::new((0..12).map(|i| (large.clone(), i)));
    for seed in 0..seeds() {
        sim.reset(seed);
        let gpu = pipeline(&source, seed, Device::Cuda(0)).unwrap();
        let growing = || {
            let builder =
                Pipeline::builder(large.clone()).batch_size(4).prefetch(1).transform(Resize::new(Size::new(4, 4)));
            let pipeline = builder.device(Device::Cuda(0)).jpeg_decoder(JpegDecoder::Cpu).build().unwrap();
            pipeline.epoch(0).for_each(|batch| drop(batch.unwrap()));
        };
        let keeping = || {
            let builder = Pipeline::builder(large.clone()).batch_size(4).transform(CenterCrop::new(8));
            let builder = builder.device(Device::Cuda(0)).jpeg_decoder(JpegDecoder::Device).device_cache(1 << 20);
            let pipeline = builder.build().unwrap();
            let kept = (0..2).map(|number| {
                let mut epoch = pipeline.epoch(number);
                epoch.by_ref().for_each(|batch| drop(batch.unwrap()));
                epoch.stats().decoded.device_cached
            });
            assert_eq!(kept.collect::<Vec<_>>(), [0, 12]);
        };
        let in_pinned =
            Pipeline::builder(source.clone()).batch_size(2).transform(CenterCrop::new(8)).on_error(OnError::Skip);
        let in_pinned = in_pinned.device(Device::Cpu).batch_memory(PinnedMemory).build().unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let want = expected(&source, seed);
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
        let trained = std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                let got = batches(&gpu, seed);
                if seed == 0 {
                    growing();
                    keeping();
                }
                in_pinned.epoch(0).for_each(|batch| drop(batch.unwrap()));
                got
            });
            work.join().unwrap()
        });
        let mut graph = null_mut();
        // SAFETY: the stream captures; the graph is written before the call returns.
        unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &raw mut graph) }.result().unwrap();
        assert!(trained.unwrap() == want, "seed {seed}");
        // A batch cannot be read by a graph that runs only later.
        let batch = gpu.epoch(0).next().unwrap().unwrap();
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
        let error = batch.images().cuda().unwrap().on_stream(&stream).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("captures"), "{error}");
        // SAFETY: as above.
        unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &raw mut graph) }.result().unwrap();
        batch.images().cuda().unwrap().on_stream(&stream).unwrap();
    }
}

/// While a stream captures that the legacy default stream waits for, a batch on that one would end the capture.
#[test]
fn the_default_stream_is_refused_while_a_stream_captures_that_it_waits_for() {
    let (sim, source) = (start(), images());
    let gpu = pipeline(&source, 0, Device::Cuda(0)).unwrap();
    let context = CudaContext::new(0).unwrap();
    let (batch, mut graph) = (gpu.epoch(0).next().unwrap().unwrap(), null_mut());
    for flags in [sys::CUstream_flags::CU_STREAM_DEFAULT, sys::CUstream_flags::CU_STREAM_NON_BLOCKING] {
        context.bind_to_thread().unwrap();
        let (is_blocking, mut stream) = (flags == sys::CUstream_flags::CU_STREAM_DEFAULT, null_mut());
        // SAFETY: the stream is alive from the first call to the last, and so is the default stream; results are
        // written before calls return.
        unsafe {
            sys::cuStreamCreate(&raw mut stream, flags as u32).result().unwrap();
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
            sys::cuStreamBeginCapture_v2(stream, mode).result().unwrap();
            match batch.images().cuda().unwrap().on_raw_stream(null_mut()) {
                Ok(_) => assert!(!is_blocking),
                Err(error) => assert!(is_blocking && error.is_parameter(), "{error}"),
            }
            sys::cuStreamEndCapture(stream, &raw mut graph).result().expect("the capture is whole");
            batch.images().cuda().unwrap().on_raw_stream(null_mut()).unwrap();
            sys::cuStreamDestroy_v2(stream).result().unwrap();
        }
    }
    drop((batch, gpu));
    assert_eq!(sim.message(), "");
}

/// Where no memory can be pinned at all, pageable memory is enough on every path, and otherwise the error names it.
#[test]
fn a_pageable_pipeline_pins_nothing() {
    let (sim, source) = (start(), images());
    for path in JpegDecoder::ALL.iter().copied() {
        for threads in [0, 2] {
            sim.reset(1);
            sim.pinned_limit(0);
            let build = |device, pinned| {
                let builder =
                    Pipeline::builder(source.clone()).batch_size(4).threads(threads).transform(CenterCrop::new(8));
                let builder = builder
                    .on_error(OnError::Skip)
                    .jpeg_decoder(path)
                    .pinned(pinned)
                    .entry_points(EntryPoints::memory());
                builder.device(device).build().unwrap()
            };
            let want = batches(&build(Device::Cpu, false), 0).unwrap();
            let gpu = build(Device::Cuda(0), false);
            // The first epoch learns entry points, which are copied to the host too.
            for epoch in 0..3 {
                assert!(batches(&gpu, epoch).unwrap() == want, "{path:?}, epoch {epoch}");
                assert_eq!(sim.report().host_allocations, 0, "{path:?}");
            }
            let error = batches(&build(Device::Cuda(0), true), 0).unwrap_err().to_string();
            assert!(error.contains("pinned memory") && error.contains("--pageable"), "{path:?}: {error}");
        }
    }
}

/// The device's default pool belongs to the trainer.
#[test]
fn the_default_pool_stays_as_it_was() {
    let (sim, source) = (start(), images());
    sim.reset(0);
    let gpu = pipeline(&source, 0, Device::Cuda(0)).unwrap();
    gpu.epoch(0).for_each(|batch| drop(batch.unwrap()));
    let context = CudaContext::new(0).unwrap();
    let (mut pool, mut threshold) = (null_mut(), 1_u64);
    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: pool and threshold, a 64-bit number, are written before the calls return.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&raw mut pool, context.cu_device()).result().unwrap();
        sys::cuMemPoolGetAttribute(pool, attribute, (&raw mut threshold).cast()).result().unwrap();
    }
    assert_eq!(threshold, 0);
}
