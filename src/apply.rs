//! One image through explicit operations: for replaying a recipe and for comparing with other programs.

use crate::backend::{OutputForm, PixelForm, RunOptions};
use crate::device::{DecodePath, Device};
use crate::engine::{Engine, FixedRecipe};
use crate::error::Result;
use crate::ops::Op;
use crate::ops::filter::PassOrder;
use crate::ops::orientation::Orientation;
use crate::plan::{Plan, Planner, Strategy};
use crate::raster::{DEFAULT_MAX_PIXELS, Size};
use crate::tensor::{DType, Layout, Tensor};

/// How [`apply`] works.
#[derive(Debug, Clone, Copy)]
pub struct ApplyOptions {
    /// How the operations are run.
    pub strategy: Strategy,
    /// Which pass of a resize comes first.
    pub pass_order: PassOrder,
    /// What to do with an EXIF orientation tag.
    pub orientation: Orientation,
    /// Decodes a JPEG at a smaller scale whose sides are not below this size: see [`Builder::draft`](crate::Builder::draft).
    pub draft: Option<Size>,
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
            draft: None,
            accept_truncated: false,
            max_pixels: DEFAULT_MAX_PIXELS,
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
/// is too large, [`Error::Parameter`](crate::Error::Parameter) for an operation that is wrong or does not fit,
/// [`Error::Panic`](crate::Error::Panic) where an operation of the caller's own panics.
pub fn apply(bytes: &[u8], ops: &[Op], options: &ApplyOptions) -> Result<Tensor> {
    let planner = Planner { strategy: options.strategy, order: options.pass_order, max_px: options.max_pixels };
    let recipe = FixedRecipe { ops: ops.to_vec(), orientation: options.orientation, draft: options.draft, planner };
    let header = recipe.header(bytes)?;
    // Its size and normalization are the tensor's.
    let Plan { size, epilogue, .. } = planner.plan_one(&recipe.of(&header), header.size)?;
    let (dtype, layout) = match epilogue.normalize {
        Some(_) => (DType::F32, Layout::Nchw),
        None => (DType::U8, Layout::Nhwc),
    };
    let run = RunOptions {
        decode: options.decode,
        accept_truncated: options.accept_truncated,
        batch_size: 1,
        batch_images: 1,
        prefetch: 0,
        threads: 1,
        ..RunOptions::default()
    };
    let output = OutputForm { size: Some(size), times: 1, elements: PixelForm { dtype, layout, channels: 3 } };
    let engine = Engine::open(options.device, run, recipe, output, epilogue.normalize)?;
    engine.run(&[bytes]).map_err(|failure| failure.error)?.into_host()
}
