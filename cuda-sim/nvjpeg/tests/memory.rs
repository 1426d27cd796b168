//! Device memory that pipelines take, and pipelines that have little.

#![cfg(target_os = "linux")]
#![allow(dead_code, reason = "common has more")]

mod common;
#[path = "../../tests/support/sim.rs"]
mod sim;

use common::{painted, start};
use warpfeed::ops::{CenterCrop, Resize};
use warpfeed::{
    DType, Device, EntryPoints, JpegDecoder, Layout, Pipeline, PipelineBuilder, Result,
    image::{JpegOptions, Size, encode_jpeg},
    source::EncodedImages,
};

fn source(count: u32, side: impl Fn(u32) -> Size) -> EncodedImages {
    let jpeg = |i| encode_jpeg(&painted(side(i), i), &JpegOptions::default()).unwrap();
    EncodedImages::new((0..count).map(|i| (jpeg(i), i)))
}

fn builder(source: &EncodedImages, device: Device) -> PipelineBuilder {
    Pipeline::builder(source.clone()).threads(2).prefetch(1).output(DType::U8, Layout::Nhwc).device(device)
}

fn all(pipeline: &Pipeline) -> Result<Vec<Vec<u8>>> {
    pipeline.epoch(0).map(|batch| Ok(batch?.images().to_host()?.as_bytes()?.to_vec())).collect()
}

#[test]
fn pipelines_of_a_process_divide_what_is_free() {
    let sim = start();
    sim.reset_with_memory(0, 64 << 20);
    let source = source(8, |_| Size::new(300, 200));
    let build = || builder(&source, Device::Cuda(0)).batch_size(2).transform(CenterCrop::new(8)).build().unwrap();
    let limit_mib = |pipeline: &Pipeline| pipeline.memory().device_bytes as f64 / f64::from(1 << 20);
    let (train, validation) = (build(), build());
    assert!((limit_mib(&train) - 32.0).abs() < 0.5, "{}", limit_mib(&train));
    assert!((limit_mib(&validation) - 16.0).abs() < 0.5, "{}", limit_mib(&validation));
    // What the first one has allocated is no longer free, and is not taken off a second time.
    all(&train).unwrap();
    drop(validation);
    let validation = build();
    assert!((limit_mib(&validation) - 16.0).abs() < 0.5, "{}", limit_mib(&validation));
    drop((train, validation));
    assert!((limit_mib(&build()) - 32.0).abs() < 0.5);
}

/// If the CPU's path can make a batch in some memory, the decoders on the device can too: room is left for the end of
/// the batch.
#[test]
fn a_large_batch_in_little_memory_leaves_room_for_its_end() {
    let sim = start();
    sim.reset_with_memory(0, 256 << 20);
    let source = source(1024, |i| Size::new(1 + i % 3, 1 + i % 2));
    let mut made = 0;
    for memory_kib in [1024, 1536, 3072] {
        let run = |device, path, points| -> Result<Vec<_>> {
            let builder =
                builder(&source, device).batch_size(1024).transform(Resize::new(Size::new(1, 1))).jpeg_decoder(path);
            all(&builder.device_memory(memory_kib << 10).entry_points(points).build()?)
        };
        let want = run(Device::Cpu, JpegDecoder::Cpu, EntryPoints::none()).unwrap();
        let Ok(got) = run(Device::Cuda(0), JpegDecoder::Cpu, EntryPoints::none()) else { continue };
        assert!(got == want, "{memory_kib} KiB");
        made += 1;
        for path in [JpegDecoder::Device, JpegDecoder::Hybrid] {
            for points in [EntryPoints::none(), EntryPoints::memory()] {
                let got =
                    run(Device::Cuda(0), path, points).unwrap_or_else(|e| panic!("{memory_kib} KiB, {path:?}: {e}"));
                assert!(got == want, "{memory_kib} KiB, {path:?}");
            }
        }
    }
    assert!(made >= 3, "{made}");
}
