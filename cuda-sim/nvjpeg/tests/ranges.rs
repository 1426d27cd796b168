//! NVTX ranges around the work on samples and batches, in a process of its own.

#![cfg(target_os = "linux")]

mod common;
#[path = "../../tests/support/sim.rs"]
mod sim;

use common::start;
use sim::folder;
use warpfeed::ops::CenterCrop;
use warpfeed::{
    Device, JpegDecoder, Pipeline,
    image::{Image, JpegOptions, Size, encode_jpeg},
    source::EncodedImages,
};

#[test]
fn samples_and_batches_are_ranges() {
    let sim = start();
    for (name, value) in
        [("NVTX_INJECTION64_PATH", "profiler".into()), ("WARPFEED_NVTX", folder().join("libcuda_sim_driver.so"))]
    {
        // SAFETY: this is the only test of the process, and no other thread runs.
        unsafe { std::env::set_var(name, value) };
    }
    let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default()).unwrap();
    let source = EncodedImages::new([(jpeg, 0)]);
    let pipeline =
        Pipeline::builder(source).batch_size(2).threads(1).transform(CenterCrop::new(8)).device(Device::Cuda(0));
    let pipeline = pipeline.jpeg_decoder(JpegDecoder::Cpu).build().unwrap();
    assert_eq!(pipeline.epoch(0).map(Result::unwrap).count(), 1);
    let want = [
        "batch 0",
        "batch 0/launch",
        "batch 0/settle",
        "batch 0/upload",
        "hand_over 0",
        "hand_over 1",
        "sample 0 of batch 0",
        "sample 0 of batch 0/decode",
        "sample 0 of batch 0/draw",
        "sample 0 of batch 0/header",
        "sample 0 of batch 0/lower",
        "sample 0 of batch 0/read",
    ];
    assert_eq!(sim.ranges().lines().collect::<Vec<_>>(), want);
}
