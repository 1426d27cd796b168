//! The device `auto`: the first usable GPU, else the CPU.

#![cfg(target_os = "linux")]
#![allow(dead_code, reason = "common has more")]

mod common;
#[path = "../../tests/support/sim.rs"]
mod sim;

use common::painted;
use sim::Sim;
use std::sync::Once;
use warpfeed::ops::CenterCrop;
use warpfeed::{
    Device, Pipeline,
    image::{JpegOptions, Size, encode_jpeg},
    source::EncodedImages,
};

fn start() -> Sim {
    static TWO: Once = Once::new();
    // SAFETY: every test of this program begins here, so no other thread reads the environment meanwhile.
    TWO.call_once(|| unsafe { std::env::set_var("CUDA_SIM_DEVICES", "2") });
    common::start()
}

/// The name of the device that runs a pipeline of six images, which are right.
fn device_of(device: Device) -> warpfeed::Result<String> {
    let images = (0..6).map(|i| (encode_jpeg(&painted(Size::new(30, 20), i), &JpegOptions::default()).unwrap(), i));
    let source = EncodedImages::new(images);
    let build =
        |device| Pipeline::builder(source.clone()).batch_size(2).transform(CenterCrop::new(8)).device(device).build();
    let bytes = |pipeline: &Pipeline| -> Vec<_> {
        pipeline.epoch(0).map(|batch| batch.unwrap().images().to_host().unwrap().as_bytes().unwrap().to_vec()).collect()
    };
    let pipeline = build(device)?;
    assert!(bytes(&pipeline) == bytes(&build(Device::Cpu)?));
    Ok(pipeline.device_name().split(' ').next().unwrap().to_owned())
}

#[test]
fn auto_is_the_cpu_where_no_card_or_driver_fits_and_a_named_device_is_an_error() {
    let sim = start();
    for (capability, driver, name) in [
        ((7, 0), 13_000, "CUDA_ERROR_NO_BINARY_FOR_GPU"),
        ((6, 1), 13_000, "CUDA_ERROR_NO_BINARY_FOR_GPU"),
        ((9, 0), 11_080, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
    ] {
        sim.reset(0);
        sim.driver_version(driver);
        (0..2).for_each(|device| sim.capability_of(device, capability.0, capability.1));
        assert_eq!(device_of(Device::Auto).unwrap(), "cpu", "{name}");
        for device in [Device::Cuda(0), Device::Cuda(1)] {
            let error = device_of(device).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("WARPFEED_CUDA_ARCHS"), "{error}");
            assert_eq!(device.available().unwrap_err().to_string(), error, "available loads the kernels");
        }
    }
}

#[test]
fn auto_is_the_next_device_where_the_first_cannot_be_used() {
    let sim = start();
    assert_eq!(device_of(Device::Auto).unwrap(), "cuda:0");
    sim.reset(1);
    sim.capability_of(0, 7, 0);
    assert_eq!(device_of(Device::Auto).unwrap(), "cuda:1");
    // A device that is broken for as long as another library holds its context.
    sim.reset(2);
    let _held = cudarc::driver::CudaContext::new(0).unwrap();
    sim.break_device(0);
    assert_eq!(device_of(Device::Auto).unwrap(), "cuda:1");
    assert!(device_of(Device::Cuda(0)).unwrap_err().to_string().contains("CUDA_ERROR_ECC_UNCORRECTABLE"));
}

#[test]
fn kernels_of_a_check_are_kept_for_the_next_pipeline_and_go_with_it() {
    let sim = start();
    for device in [0, 1] {
        Device::Cuda(device).available().unwrap();
        Device::Cuda(device).available().unwrap();
        let ordinal = i32::try_from(device).unwrap();
        assert_eq!(sim.report_of(ordinal).modules, 1);
        device_of(Device::Cuda(device)).unwrap();
        assert_eq!(sim.report_of(ordinal).alive(), 0, "{:?}", sim.report_of(ordinal));
    }
    assert_eq!(sim.message(), "");
}
