//! One image through explicit operations: for replaying a recipe and for comparing with other programs.

use crate::backend::cpu::executor::{Executor, Job};
use crate::backend::cpu::output::{Output, Tables};
use crate::cuda::Encoded;
use crate::cuda::gpu::{Ablation, Gpu, Sample, Settings};
use crate::decode::{Header, probe};
use crate::device::{DecodePath, Device};
use crate::error::Result;
use crate::image::check_pixels;
use crate::ops::Op;
use crate::ops::filter::PassOrder;
use crate::pipeline::{Orientation, oriented};
use crate::plan::Strategy;
use crate::plan::plan;
use crate::source::{EncodedImages, Source};
use crate::tensor::{DType, HostBuffer, Layout, Storage, Tensor};
use std::sync::Arc;

/// How [`apply`] works.
#[derive(Debug, Clone, Copy)]
pub struct ApplyOptions {
    /// How the operations are run.
    pub strategy: Strategy,
    /// Which pass of a resize comes first.
    pub pass_order: PassOrder,
    /// What to do with an EXIF orientation tag.
    pub orientation: Orientation,
    /// Takes a truncated JPEG as it is.
    pub accept_truncated: bool,
    /// Largest image accepted, in pixels, as stored and at any point of the operations.
    pub max_pixels: u64,
    /// Where the operations run. The result comes to host memory in any case.
    pub device: Device,
    /// Who decodes where they run on a GPU.
    pub decode: DecodePath,
}

impl Default for ApplyOptions {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            pass_order: PassOrder::default(),
            orientation: Orientation::default(),
            accept_truncated: false,
            max_pixels: crate::pipeline::DEFAULT_MAX_PIXELS,
            device: Device::Cpu,
            decode: DecodePath::Cpu,
        }
    }
}

/// Decodes an image and applies `ops` in order.
///
/// The result has N = 1: bytes `[1, H, W, 3]`, or, if `ops` normalise, `f32` `[1, 3, H, W]`.
///
/// ```
/// use warpfeed::{ApplyOptions, CenterCrop, JpegOptions, Image, Size, apply, encode_jpeg};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let crop = CenterCrop::new(Size::new(16, 8));
/// let result = apply(&jpeg, &[crop.into()], &ApplyOptions::default())?;
/// assert_eq!(result.shape(), [1, 8, 16, 3]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Errors
/// [`Error::Decode`](crate::Error::Decode) for damaged bytes, [`Error::Limits`](crate::Error::Limits) for an image that
/// is too large, [`Error::Parameter`](crate::Error::Parameter) for an operation that is wrong or does not fit.
pub fn apply(bytes: &[u8], ops: &[Op], options: &ApplyOptions) -> Result<Tensor> {
    let header = probe(bytes)?;
    check_pixels(header.size, options.max_pixels)?;
    let mut recipe = oriented(header.orientation, options.orientation);
    recipe.extend_from_slice(ops);
    let plan = plan(&recipe, header.size, options.strategy, options.pass_order, options.max_pixels)?;
    let (size, normalize) = (plan.size, plan.epilogue.normalize);
    let (width, height) = (size.width as usize, size.height as usize);
    let (dtype, layout, shape) = match normalize {
        Some(_) => (DType::F32, Layout::Nchw, [1, 3, height, width]),
        None => (DType::U8, Layout::Nhwc, [1, height, width, 3]),
    };
    let tables = Tables::new(dtype, normalize);
    let mut buffer = HostBuffer::new(dtype, 3 * width * height * dtype.size_bytes());
    if let Some(ordinal) = options.device.resolve()? {
        let settings = Settings {
            size,
            dtype,
            layout,
            strategy: options.strategy,
            order: options.pass_order,
            decode: options.decode,
            accept_truncated: options.accept_truncated,
            max_px: options.max_pixels,
            batch_size: 1,
            flights: 1,
            outputs: 0,
            threads: 1,
            memory_bytes: None,
            pinned: true,
            again: Ablation::Nothing,
        };
        on_gpu(&Gpu::open(ordinal, settings, &tables)?, bytes, &header, &recipe, buffer.as_bytes_mut())?;
        return Ok(Tensor::new(Storage::Host(buffer), shape, dtype, layout));
    }
    let job = Job {
        bytes,
        header: &header,
        ops: &recipe,
        strategy: options.strategy,
        order: options.pass_order,
        accept_truncated: options.accept_truncated,
        max_px: options.max_pixels,
    };
    Executor::new()?.run(&job, &mut Output::new(buffer.as_bytes_mut(), size, &tables, layout))?;
    Ok(Tensor::new(Storage::Host(buffer), shape, dtype, layout))
}

/// A batch of one.
fn on_gpu(gpu: &Gpu, bytes: &[u8], header: &Header, ops: &[Op], out: &mut [u8]) -> Result<()> {
    let source: Arc<dyn Source> = Arc::new(EncodedImages::new([(bytes.to_vec(), 0)]));
    let encoded = Encoded::read(&source, 0, Vec::new())?;
    let (mut worker, mut flight) = (gpu.worker()?, gpu.begin(1)?);
    let sample = Sample { place: 0, header, ops, hardware: true };
    let prepared = gpu.prepare(&mut worker, &flight, encoded, &sample).and_then(|_| {
        let (bad, _) = gpu.decode_on_hardware(&mut flight)?;
        bad.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    });
    // Whatever it has under way is waited for before it goes.
    gpu.give_worker(worker);
    if let Err(error) = prepared {
        gpu.abandon(flight);
        return Err(error);
    }
    gpu.submit(flight, &[0], &[0], 0)?.read(out)
}
