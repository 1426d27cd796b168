//! Two simulated devices in one process are independent.

#![cfg(target_os = "linux")]

mod common;
#[path = "../../tests/support/sim.rs"]
mod sim;

use common::{Batches, painted, seeds};
use cudarc::driver::{CudaContext, sys};
use sim::Sim;
use std::sync::Once;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;
use warpfeed::{
    Device, Epoch, JpegDecoder, OnError, Pipeline, PipelineGroup, Result,
    image::{JpegOptions, Size, encode_jpeg},
    ops::{random_horizontal_flip, random_resized_crop, random_rotation},
    source::EncodedImages,
};

const GPUS: [Device; 2] = [Device::Cuda(0), Device::Cuda(1)];

fn start() -> Sim {
    static TWO: Once = Once::new();
    // SAFETY: every test of this program begins here, so no other thread reads the environment meanwhile.
    TWO.call_once(|| unsafe { std::env::set_var("CUDA_SIM_DEVICES", "2") });
    common::start()
}

fn images(count: u32) -> EncodedImages {
    EncodedImages::new((0..count).map(|i| {
        let image = painted(Size::new(17 + i % 20, 31 - i % 13), i);
        let options = JpegOptions { progressive: i % 5 == 4, ..JpegOptions::default() };
        (encode_jpeg(&image, &options).unwrap(), i)
    }))
}

fn group(count: u32, seed: u64, devices: [Device; 2]) -> Result<PipelineGroup> {
    let paths = [JpegDecoder::Auto, JpegDecoder::Hybrid, JpegDecoder::Device, JpegDecoder::Cpu];
    Pipeline::builder(images(count))
        .shuffle(seed)
        .threads(seed as usize % 4)
        .prefetch(1 + seed as usize % 2)
        .batch_size(3)
        .transform(random_horizontal_flip(0.5))
        .transform(random_rotation(-20.0..=20.0))
        .transform(random_resized_crop(Size::new(9, 7)))
        .on_error(OnError::Substitute)
        .jpeg_decoder(paths[seed as usize % 4])
        .device_memory(8 << 20)
        .build_group(devices)
}

/// The batches of an epoch, taken by a thread of their own: the indices and bytes of each batch, or the error.
fn taken(epoch: Epoch) -> Receiver<Result<Batches>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let batch = |batch: Result<warpfeed::Batch>| {
            let batch = batch?;
            Ok((batch.indices().to_vec(), batch.images().to_host()?.as_bytes()?.to_vec()))
        };
        // The receiver may have stopped waiting.
        let _ = sender.send(epoch.map(batch).collect());
    });
    receiver
}

fn end<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(Duration::from_secs(120)).expect("an epoch waits for ever")
}

#[test]
fn two_devices_deliver_what_the_cpu_delivers_each_in_memory_of_its_own() {
    let sim = start();
    for seed in 0..seeds() {
        sim.reset(seed);
        let gpus = group(23, seed, GPUS).unwrap();
        let want: Vec<_> = group(23, seed, [Device::Cpu; 2]).unwrap().epochs(0).into_iter().map(taken).collect();
        for epoch in 0..2 {
            let got: Vec<_> = gpus.epochs(epoch).into_iter().map(taken).collect();
            if epoch == 0 {
                for (device, (got, want)) in got.iter().zip(&want).enumerate() {
                    let got = end(got).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", sim.message()));
                    assert!(got == end(want).unwrap(), "seed {seed}, device {device}");
                }
            } else {
                got.iter().for_each(|got| assert_eq!(end(got).unwrap().len(), 4));
            }
        }
        assert_eq!(gpus.memory().device_bytes, 2 * gpus.pipelines()[0].memory().device_bytes);
        drop(gpus);
        for device in 0..2 {
            let report = sim.report_of(device);
            assert!(report.kernels_run > 0 && report.peak_bytes > 0, "seed {seed}, device {device}: {report:?}");
            assert_eq!((report.alive(), report.contexts), (0, 1), "seed {seed}, device {device}");
        }
        assert_eq!(sim.message(), "", "seed {seed}");
    }
}

#[test]
fn a_device_that_breaks_ends_its_own_epoch() {
    let sim = start();
    for seed in 0..seeds().min(20) {
        sim.reset(seed);
        for broken in 0..2 {
            let gpus = group(41, seed, GPUS).unwrap();
            let mut epochs = gpus.epochs(0);
            epochs.iter_mut().for_each(|epoch| drop(epoch.next().unwrap().unwrap()));
            sim.break_device(broken);
            let ends: Vec<_> = epochs.into_iter().map(taken).collect();
            for (device, epoch) in ends.iter().enumerate() {
                match end(epoch) {
                    Ok(batches) => assert!(device != broken as usize && batches.len() == 6, "seed {seed}, {device}"),
                    Err(error) => {
                        assert!(device == broken as usize && error.is_device(), "seed {seed}, {device}: {error}");
                    }
                }
            }
            drop(gpus);
            // The driver makes a new context for the next user.
            let again: Vec<_> = group(41, seed, GPUS).unwrap().epochs(0).into_iter().map(taken).collect();
            again.iter().for_each(|epoch| assert_eq!(end(epoch).unwrap().len(), 7));
        }
    }
}

#[test]
fn an_epoch_that_is_dropped_leaves_the_other_whole() {
    let sim = start();
    for seed in 0..seeds().min(20) {
        sim.reset(seed);
        let gpus = group(41, seed, GPUS).unwrap();
        let mut epochs = gpus.epochs(0);
        let mut dropped = epochs.swap_remove(seed as usize % 2);
        dropped.next().unwrap().unwrap();
        drop(dropped);
        assert_eq!(end(&taken(epochs.remove(0))).unwrap().len(), 7);
    }
}

#[test]
fn a_devices_memory_is_not_anothers() {
    let sim = start();
    let [first, second] = [0, 1].map(|device| CudaContext::new(device).unwrap());
    second.bind_to_thread().unwrap();
    let memory = second.default_stream().alloc_zeros::<u8>(64).unwrap();
    assert_eq!((sim.report_of(0).allocations, sim.report_of(1).allocations), (0, 1));
    first.bind_to_thread().unwrap();
    let (address, _guard) = cudarc::driver::DevicePtr::device_ptr(&memory, memory.stream());
    // SAFETY: the driver refuses it before anything is touched.
    let copied = unsafe { sys::cuMemsetD8_v2(address, 1, 64) };
    assert_ne!(copied, sys::CUresult::CUDA_SUCCESS);
    assert!(sim.message().contains("is not") || sim.message().contains("are not device memory"), "{}", sim.message());
}

#[test]
fn a_stream_of_another_device_is_refused_and_its_event_can_be_waited_for() {
    let sim = start();
    sim.reset(0);
    let gpus = group(23, 0, GPUS).unwrap();
    let batch = gpus.epochs(0).remove(0).next().unwrap().unwrap();
    let other = CudaContext::new(1).unwrap();
    let stream = other.new_stream().unwrap();
    let buffer = batch.images().cuda().unwrap();
    let error = buffer.on_stream(&stream).unwrap_err();
    assert!(error.is_parameter() && error.to_string().contains("another device"), "{error}");
    // SAFETY: the stream is alive; that it is another device's is the test.
    assert!(unsafe { buffer.on_raw_stream(stream.cu_stream()) }.unwrap_err().is_parameter());
    // CUDA lets a stream wait for another device's event, but not record one there.
    let context = CudaContext::new(0).unwrap();
    let event = context.default_stream().record_event(None).unwrap();
    other.bind_to_thread().unwrap();
    // SAFETY: both are alive.
    unsafe {
        sys::cuStreamWaitEvent(stream.cu_stream(), event.cu_event(), 0).result().unwrap();
        assert!(sys::cuEventRecord(event.cu_event(), stream.cu_stream()).result().is_err());
    }
}
