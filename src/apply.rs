//! One image through explicit operations: for replaying a recipe and for comparing with other programs.

use crate::backend::{self, AnyBackend, Backend, Encoded, End, RunOptions, Sample, ViewForm};
use crate::decode::{Header, probe};
use crate::device::{DecodePath, Device};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::ops::filter::PassOrder;
use crate::pipeline::{Orientation, oriented};
use crate::plan::{Plan, Planner, Strategy};
use crate::raster::check_pixels;
use crate::tensor::{DType, Layout, Tensor};
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
/// The result has N = 1: bytes `[1, H, W, 3]`, or, if `ops` normalize, `f32` `[1, 3, H, W]`.
///
/// ```
/// use warpfeed::{ApplyOptions, apply, ops::CenterCrop, image::{Image, JpegOptions, Size, encode_jpeg}};
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
    let planner = Planner { strategy: options.strategy, order: options.pass_order, max_px: options.max_pixels };
    let plan = planner.plan_one(&recipe, header.size)?;
    let (size, normalize) = (plan.size, plan.epilogue.normalize);
    let (dtype, layout) = match normalize {
        Some(_) => (DType::F32, Layout::Nchw),
        None => (DType::U8, Layout::Nhwc),
    };
    let run = Arc::new(RunOptions {
        views: vec![ViewForm { size, times: 1 }],
        dtype,
        layout,
        decode: options.decode,
        accept_truncated: options.accept_truncated,
        batch_size: 1,
        batch_images: 1,
        prefetch: 0,
        threads: 1,
        ..RunOptions::default()
    });
    let backend = backend::open(options.device, &run, normalize)?;
    batch_of_one(&backend, bytes, &header, &plan)?.into_host()
}

fn batch_of_one(backend: &AnyBackend, bytes: &[u8], header: &Header, plan: &Plan<'_>) -> Result<Tensor> {
    let (mut worker, mut batch) = (backend.worker()?, backend.begin(1)?);
    let sample = Sample { place: 0, header, plans: std::slice::from_ref(plan), later: true };
    let run = backend.run(&mut worker, &batch, Encoded::shared(bytes.into()), &sample).and_then(|_| {
        let settled = backend.settle(&mut worker, &mut batch)?;
        settled.bad.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    });
    // Whatever it has under way is waited for before it goes.
    backend.give_worker(worker);
    match run {
        Ok(()) => {
            let end = End { places: &[0], padding: 0, labels: &[0], targets: None, mix: None };
            let views = backend.finish(batch, &end)?.views;
            views.into_iter().next().ok_or_else(|| Error::Panic { message: "a batch has no view".to_owned() })
        }
        Err(error) => {
            backend.abandon(batch);
            Err(error)
        }
    }
}
