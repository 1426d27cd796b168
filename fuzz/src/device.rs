//! The device's JPEG decoder, on the simulated device (`cuda-sim/run`).

use crate::MAX_AREA_PX;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::{Arc, Mutex, PoisonError};
use warpfeed::{
    BadLimit, DType, Device, JpegDecoder, Layout, OnError, Pipeline, Result,
    image::{Image, JpegOptions, Size, encode_jpeg, probe},
    ops::random_crop,
    source::{ReadRequest, Sample, Source},
};

/// Side of the crop in pixels. Nothing is resized, so wrong pixels do not average out.
const SIDE_PX: u32 = 72;

/// Three images: the input, a valid image, and the input once more, with another crop.
#[derive(Clone)]
struct Tried {
    bytes: Arc<Mutex<Vec<u8>>>,
    good: Arc<Vec<u8>>,
}

impl Source for Tried {
    fn len(&self) -> u64 {
        3
    }

    fn read<'a>(&'a self, index: u64, _want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if index == 1 {
            sample.lend(&self.good);
            return Ok(());
        }
        let buffer = sample.buffer();
        buffer.clear();
        buffer.extend_from_slice(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    fn label(&self, _index: u64) -> Option<u32> {
        None
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        index.to_string().into()
    }
}

/// The same pipeline on the CPU and on the device. Both are made once.
struct Both {
    tried: Tried,
    cpu: Pipeline,
    device: Pipeline,
}

impl Both {
    fn new() -> Self {
        let good = encode_jpeg(&Image::new(Size::new(50, 40)), &JpegOptions::default()).expect("a JPEG");
        let tried = Tried { bytes: Arc::default(), good: Arc::new(good) };
        let make = |device| {
            Pipeline::builder(tried.clone())
                .batch_size(3)
                .threads(0)
                .max_pixels(MAX_AREA_PX)
                .transform(random_crop(SIDE_PX, 0))
                .output(DType::U8, Layout::Nhwc)
                .on_error(OnError::Skip)
                .max_bad(BadLimit::Count(3))
                .jpeg_decoder(JpegDecoder::Device)
                .device_memory(64 << 20)
                .device(device)
                .build()
                .expect("a device: cuda-sim/run gives a program the simulated one")
        };
        let (cpu, device) = (make(Device::Cpu), make(Device::Cuda(0)));
        Self { tried, cpu, device }
    }
}

/// The samples of an epoch and their bytes.
fn samples(pipeline: &Pipeline, epoch: u64) -> Vec<(Vec<u64>, Vec<u8>)> {
    let batches = pipeline.epoch(epoch).map(|batch| {
        let batch = batch.expect("a bad image ends no epoch, and kernels touch no memory but theirs");
        let images = batch.images().to_host().expect("the device works");
        (batch.indices().to_vec(), images.as_bytes().expect("bytes").to_vec())
    });
    batches.collect()
}

/// The device and the CPU give the same samples with the same pixels: images that the kernels do not flag have the
/// pixels that the CPU decodes, and no image affects its neighbor.
pub fn device(data: &[u8]) {
    thread_local!(static BOTH: OnceCell<Both> = const { OnceCell::new() });
    if !probe(data).is_ok_and(|header| header.size.area_px() <= MAX_AREA_PX) {
        return;
    }
    BOTH.with(|both| {
        let both = both.get_or_init(Both::new);
        *both.tried.bytes.lock().unwrap_or_else(PoisonError::into_inner) = data.to_vec();
        // Each epoch crops at other places.
        let epoch = data.len() as u64;
        assert!(samples(&both.device, epoch) == samples(&both.cpu, epoch), "the device differs from the CPU");
    });
}
