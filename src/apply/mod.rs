//! One image through explicit operations, to replay a recipe and to compare with other programs. `Preprocessor` runs
//! the engine here too.

pub(crate) mod engine;
pub(crate) mod field_mover;
pub(crate) mod opening;
pub(crate) mod options;

pub use opening::Thumbnail;

use crate::apply::engine::{Engine, FixedRecipe};
use crate::apply::field_mover::FieldMover;
use crate::apply::options::image_options;
use crate::backend::{OutputForm, RunOptions};
use crate::decode::{Header, Input};
use crate::error::Result;
use crate::fields::Fields;
use crate::ops::Op;
use crate::ops::values::PixelValues;
use crate::pixels::Pixels;
use crate::plan::{Plan, Planner};
use crate::tensor::{DType, Layout, Tensor};

image_options! {
    /// Options of [`apply`]. The result comes to host memory, whatever the device.
    pub struct ApplyOptions {}
}

impl ApplyOptions {
    /// These options for results as operations make them: bytes `[1, H, W, 3]`, or, if `ops` normalize, f32 `[1, 3, H, W]`.
    pub(crate) fn as_made_by(self, ops: &[Op]) -> Self {
        match ops.iter().find_map(Op::normalization) {
            Some(_) => Self { dtype: DType::F32, layout: Layout::Nchw, ..self },
            None => Self { dtype: DType::U8, layout: Layout::Nhwc, ..self },
        }
    }
}

/// Decodes an image and applies `ops` in order.
///
/// The result is a batch of one image, by default, as a pipeline's, f32 `[1, 3, H, W]`.
///
/// ```
/// use warpfeed::{ApplyOptions, apply, ops::CenterCrop, image::{Image, JpegOptions, Size, encode_jpeg}};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let crop = CenterCrop::new(Size::new(16, 8));
/// let result = apply(&jpeg, &[crop.into()], &ApplyOptions::default())?;
/// assert_eq!(result.shape(), [1, 3, 8, 16]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Errors
/// [`Error::Decode`](crate::Error::Decode) for damaged bytes, [`Error::Limits`](crate::Error::Limits) for an image that
/// is too large, [`Error::Parameter`](crate::Error::Parameter) for an operation that is wrong or does not fit,
/// or for a `normalize` whose results would be bytes, [`Error::Panic`](crate::Error::Panic) where an operation of the
/// caller's own panics.
pub fn apply(bytes: &[u8], ops: &[Op], options: &ApplyOptions) -> Result<Tensor> {
    apply_to(Input::Encoded(bytes), ops, options)
}

/// Decodes an image and applies `ops` in order, to it and to its fields.
///
/// ```
/// use warpfeed::fields::{BoxFormat, Boxes, Fields};
/// use warpfeed::image::{Image, JpegOptions, Size, encode_jpeg};
/// use warpfeed::{ApplyOptions, DType, Layout, apply_with_fields, ops::{CenterCrop, Hflip}};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let fields = Fields::new().with("boxes", Boxes::new(BoxFormat::Xyxy, vec![[0.0, 10.0, 20.0, 20.0]]))?;
/// let ops = [CenterCrop::new(20).into(), Hflip.into()];
/// let options = ApplyOptions::default().dtype(DType::U8).layout(Layout::Nhwc);
/// let (image, fields) = apply_with_fields(&jpeg, &fields, &ops, &options)?;
/// assert_eq!(image.shape(), [1, 20, 20, 3]);
/// assert_eq!(fields.boxes().unwrap().rows(), [[10.0, 5.0, 20.0, 15.0]]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Errors
/// The errors of [`apply`]; [`Error::Unfit`](crate::Error::Unfit) for a mask that has not the size of the stored image;
/// [`Error::Unsupported`](crate::Error::Unsupported) for an operation of the caller's own that does not say where
/// points go.
pub fn apply_with_fields(
    bytes: &[u8],
    fields: &Fields,
    ops: &[Op],
    options: &ApplyOptions,
) -> Result<(Tensor, Fields)> {
    run(Input::Encoded(bytes), ops, options, |header, recipe, planner| {
        FieldMover::default().follow_stored(fields, header, recipe, planner)
    })
}

/// As [`apply`], also to an image that is decoded.
pub(crate) fn apply_to(image: Input<'_>, ops: &[Op], options: &ApplyOptions) -> Result<Tensor> {
    run(image, ops, options, |_, _, _| Ok(())).map(|(tensor, ())| tensor)
}

/// Runs `ops` on an image. `also` gets the image's header, and its recipe with the orientation.
fn run<T>(
    image: Input<'_>,
    ops: &[Op],
    options: &ApplyOptions,
    also: impl FnOnce(&Header, &[Op], &Planner) -> Result<T>,
) -> Result<(Tensor, T)> {
    let (planner, opening) = (options.planner(), options.opening());
    opening.validate()?;
    let most_px = if options.pixels == Pixels::Rgb { planner.max_px } else { u64::MAX };
    let header = opening.header(image, most_px)?;
    let planner = Planner { values: options.pixels.values_of(&header, options.max_value), ..planner };
    let recipe = FixedRecipe { ops: ops.to_vec(), opening, planner };
    // Its size and normalization are the tensor's.
    let all = recipe.of(&header);
    let Plan { size, epilogue, values, .. } = planner.plan_one(&all, header.size)?;
    let also = also(&header, &all, &planner)?;
    let run = RunOptions { prefetch: 0, threads: 1, values: planner.values, ..options.run_options(1) };
    let ends = values.unwrap_or(PixelValues::RGB8);
    let elements = options.elements().of_pixels(&ends, epilogue.normalize, values.is_some())?;
    let output = OutputForm { size: Some(size), largest: None, padded_to: None, times: 1, elements };
    let engine = Engine::open(options.device, run, recipe, output, epilogue.normalize)?;
    let tensor = engine.run(&[image]).map_err(|failure| failure.error)?.into_host()?;
    Ok((tensor, also))
}
