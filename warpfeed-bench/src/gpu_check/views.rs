//! Comparison of transforms alone, on images in the device's memory, with those on the CPU.
#![allow(unsafe_code)]

use super::equality::{Equality, LAYOUTS, OUTPUT, SIZES};
use std::sync::Arc;
use warpfeed::ops::{Resize, random_horizontal_flip, random_resized_crop};
use warpfeed::source::EncodedImages;
use warpfeed::transforms::{CudaTransforms, CudaView, Key, Transforms, View};
use warpfeed::{DType, Device, Layout, Pipeline, Result};

/// Transforms batches where they lie, and compares the bytes with those that the CPU makes of the same batches.
pub(super) fn compare(
    device: Device,
    images: &Arc<EncodedImages>,
    found: &mut Equality,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let Some(ordinal) = device.resolve()? else { return Ok(()) };
    let list = || Transforms::new([random_horizontal_flip(0.5), random_resized_crop(31)]);
    let (on_host, on_device) = (list()?, CudaTransforms::new(list()?, ordinal)?);
    let (width, height) = (OUTPUT.width as usize, OUTPUT.height as usize);
    for layout in LAYOUTS {
        let name = format!("images on the device, {layout:?}");
        progress(&name);
        found.cases += 1;
        let builder = Pipeline::builder(Arc::clone(images)).batch_size(SIZES.len()).device(device);
        let pipeline = builder.transform(Resize::new(OUTPUT)).output(DType::U8, layout).build()?;
        for batch in pipeline.epoch(0) {
            let batch = batch?;
            let (tensor, len) = (batch.images(), 3 * width * height);
            let keys: Vec<_> = (0..batch.len() as u64).map(|index| Key::new(1, 0, index)).collect();
            let strides = match layout {
                Layout::Nchw => [len, width * height, width, 1],
                _ => [len, 1, 3 * width, 3],
            };
            let Some(memory) = tensor.cuda() else { continue };
            let stream = std::ptr::null_mut();
            // SAFETY: the legacy default stream is always alive. The batch outlives the call, which has waited for its
            // results before the batch goes.
            let got = unsafe {
                let address = memory.on_raw_stream(stream)?;
                let shape = [batch.len(), 3, height, width];
                let images = CudaView::new(address, shape, strides.map(|stride| stride as i64), stream)?;
                on_device.apply_batch(&images, &keys)?.to_host()?
            };
            let host = tensor.to_host()?;
            let view = |values| match layout {
                Layout::Nchw => View::chw(values, OUTPUT, 3),
                _ => View::hwc(values, OUTPUT, 3),
            };
            let views = host.as_bytes()?.chunks(len).map(view).collect::<Result<Vec<View<'_>>>>()?;
            if on_host.apply_batch(&views, &keys, 1)?.as_bytes()? != got.as_bytes()? {
                found.different.push(format!("{name}: bytes differ"));
            }
        }
    }
    Ok(())
}
