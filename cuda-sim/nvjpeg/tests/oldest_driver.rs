//! The GPU path on the oldest supported driver, of CUDA 12.0, in a process of its own. With `--package cuda-sim-nvjpeg`
//! alone the bindings are the newest.

#![cfg(target_os = "linux")]

mod common;
#[path = "../../tests/support/sim.rs"]
mod sim;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use sim::folder;
use warpfeed::ops::CenterCrop;
use warpfeed::{
    Device, JpegDecoder, Pipeline,
    image::{Image, JpegOptions, Size, encode_jpeg},
    source::EncodedImages,
};

/// Exports of the simulated driver that are newer than CUDA 12.0.
const NEWER: [&str; 7] = [
    "cuCtxCreate_v4",
    "cuCtxSetFlags",
    "cuEventElapsedTime_v2",
    "cuFuncLoad",
    "cuMemAdvise_v2",
    "cuMemPrefetchAsync_v2",
    "cuStreamGetCaptureInfo_v3",
];

/// The simulated driver with these functions under other names.
fn without(names: &[&str]) -> Library {
    let mut bytes = std::fs::read(folder().join("libcuda_sim_driver.so")).unwrap();
    for name in names {
        // The form of a name in the table of exports.
        let entry = [b"\0", name.as_bytes(), b"\0"].concat();
        let places: Vec<_> = bytes.windows(entry.len()).enumerate().filter(|(_, found)| *found == entry).collect();
        let places: Vec<_> = places.into_iter().map(|(at, _)| at).collect();
        assert!(!places.is_empty(), "{name}");
        places.into_iter().for_each(|at| bytes[at + 1] = b'-');
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    // SAFETY: the library is that of this workspace, whose initializers have no conditions.
    unsafe { Library::open(Some(file.path()), RTLD_NOW | RTLD_GLOBAL) }.unwrap()
}

#[test]
fn a_driver_for_cuda_12_0_is_enough() {
    let driver = without(&NEWER);
    // SAFETY: the function is only looked up, not called.
    let is_there = |name: &str| unsafe { driver.get::<extern "C" fn()>(name.as_bytes()) }.is_ok();
    assert!(is_there("cuEventElapsedTime") && !NEWER.iter().any(|name| is_there(name)));
    // SAFETY: this is the only test of the process, and no other thread runs.
    unsafe { common::name_libraries() };
    let image = |i: u32| {
        let mut image = Image::new(Size::new(40, 30 + i));
        image.pixels_mut().iter_mut().zip(i..).for_each(|(pixel, i)| *pixel = [i as u8, (3 * i) as u8, 5, 255]);
        encode_jpeg(&image, &JpegOptions::default()).unwrap()
    };
    let source = EncodedImages::new((0..12).map(|i| (image(i), i)));
    let batches = |device, path| -> Vec<Vec<u8>> {
        let builder = Pipeline::builder(source.clone()).batch_size(2).prefetch(1).transform(CenterCrop::new(8));
        let pipeline = builder.device(device).jpeg_decoder(path).build().unwrap();
        let bytes = |batch: warpfeed::Batch| batch.images().to_host().unwrap().as_bytes().unwrap().to_vec();
        pipeline.epoch(0).map(|batch| bytes(batch.unwrap())).collect()
    };
    let want = batches(Device::Cpu, JpegDecoder::Cpu);
    // Times are measured on these.
    for path in [JpegDecoder::Auto, JpegDecoder::Hardware] {
        assert!(batches(Device::Cuda(0), path) == want, "{path:?}");
    }
    // There is no NVML, so the driver names the device in every report.
    assert!(warpfeed::doctor().iter().any(|check| check.found.contains("simulated device")));
    let here = warpfeed_bench::environment::Environment::here();
    let names: Vec<&str> = here.gpus.iter().map(|gpu| &gpu.name[..]).collect();
    assert_eq!((&names[..], here.no_gpu), (&["simulated device"][..], None));
}
