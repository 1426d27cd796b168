//! A back end that does one part of the work twice, to measure the part's cost.

use super::cpu::{Cpu, output::Tables};
use super::cuda::{Gpu, Part, Queue};
use super::{AnyBackend, RunOptions, open};
use crate::device::Device;
use crate::error::Result;
use crate::ops::normalize::Normalization;
use std::sync::Arc;

/// A part of the work that can be done twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twice {
    /// Decoding on the CPU, of the pixels that the recipe needs.
    Decode,
    /// A recipe's operations on the CPU, on the pixels decoded once.
    Operations,
    /// The copy of a batch to the device.
    Transfer,
    /// The device's kernels. Those that work in place then make different pixels.
    Kernels,
}

/// Opens a back end as [`open`] does. It does `what` twice, if the device does it at all.
pub(crate) fn open_twice(
    what: Twice,
    device: Device,
    options: &Arc<RunOptions>,
    normalize: Normalization,
) -> Result<AnyBackend> {
    let tables = || Tables::of(options, normalize);
    let on_gpu = |ordinal, queue: Queue| {
        Gpu::open_by(ordinal, options, &tables(), queue).map(|gpu| AnyBackend::cuda(gpu, options))
    };
    match (what, device.resolve()?) {
        (Twice::Decode | Twice::Operations, None) => {
            Cpu::open(options, tables()).map(|cpu| AnyBackend::cpu(cpu, options, Some(what)))
        }
        (Twice::Transfer, Some(ordinal)) => {
            on_gpu(ordinal, |part, queue| times(if part == Part::Transfer { 2 } else { 1 }, queue))
        }
        (Twice::Kernels, Some(ordinal)) => {
            on_gpu(ordinal, |part, queue| times(if part == Part::Kernels { 2 } else { 1 }, queue))
        }
        _ => open(device, options, normalize),
    }
}

fn times(times: usize, queue: &dyn Fn() -> Result<()>) -> Result<()> {
    (0..times).try_for_each(|_| queue())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Image, JpegOptions, encode_jpeg};
    use crate::ops::{GaussianBlur, Transform, color_jitter, random_resized_crop, random_rotation};
    use crate::pipeline::{Pipeline, PipelineBuilder, view};
    use crate::raster::Size;
    use crate::source::EncodedImages;
    use crate::tensor::Tensor;

    fn images() -> EncodedImages {
        let jpeg = |label: u32| {
            let mut image = Image::new(Size::new(60, 50));
            (0_u32..).zip(image.pixels_mut()).for_each(|(i, pixel)| *pixel = (i * 31 * (label + 1)).to_le_bytes());
            encode_jpeg(&image, &JpegOptions::default()).unwrap()
        };
        EncodedImages::new((0..6).map(|label| (jpeg(label), label)))
    }

    fn bytes(tensor: &Tensor) -> Vec<u8> {
        tensor.as_bytes().unwrap().to_vec()
    }

    #[test]
    fn work_done_twice_makes_the_same_pixels() {
        let crop = || random_resized_crop(24);
        let lists: [Vec<Transform>; 4] = [
            vec![crop()],
            vec![random_rotation(-9.0..=9.0), crop()],
            vec![color_jitter(0.4, 0.4, 0.4, 0.1), crop()],
            vec![GaussianBlur::new(5, 1.0).into(), crop()],
        ];
        for list in lists {
            let several = [view(list.clone()).times(2), view([crop()])];
            let one = || list.iter().cloned().fold(Pipeline::builder(images()), PipelineBuilder::transform);
            for builder in [one(), Pipeline::builder(images()).views(several)] {
                let builder = builder.threads(1).device(Device::Cpu);
                let first = |pipeline: Pipeline| {
                    let batch = pipeline.epoch(0).next().unwrap().unwrap();
                    batch.into_views().iter().map(bytes).collect::<Vec<_>>()
                };
                let want = first(builder.clone().build().unwrap());
                for what in [Twice::Decode, Twice::Operations, Twice::Transfer] {
                    let pipeline = builder.clone().build_twice(what);
                    assert!(first(pipeline.unwrap()) == want, "{what:?}: {list:?}");
                }
            }
        }
    }
}
