//! Images for serving and evaluation: a back end without epochs, order or policies.

mod hugging_face;
mod timm;
mod undo;

pub use hugging_face::hugging_face_ops;
pub use timm::timm_ops;

use crate::apply::engine::{Engine, Failure, FixedRecipe};
use crate::apply::field_mover::FieldMover;
use crate::apply::opening::Opening;
use crate::apply::options::image_options;
use crate::backend::{OutputForm, PixelForm, RunOptions};
use crate::decode::Input;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::ops::Op;
use crate::ops::check::{Ends, check_ops, one_size};
use crate::ops::transform::Transform;
use crate::ops::values::PixelValues;
use crate::os::threads::MAX_THREADS;
use crate::pixels::Pixels;
use crate::plan::Planner;
use crate::preset::Preset;
use crate::raster::{Image, Size};
use crate::tensor::{DType, Tensor};
use serde_json::{Map, Value};

/// Number of batches whose memory is kept: one being made, and one that the caller holds.
const BATCHES: usize = 2;
/// Largest batch, in images.
const MAX_BATCH: usize = 1 << 20;

image_options! {
    /// Options of a [`Preprocessor`].
    pub struct PreprocessorOptions {
        /// Largest number of images in one call.
        pub max_batch: usize = 32,
        /// Number of threads that share a call's images. With 0 or 1 only the caller's thread works.
        pub threads: usize = 0,
    }
}

/// Makes tensors of images for a model that serves or is evaluated. It is built once, then called. It draws nothing at
/// random, keeps its decoders and memory from call to call, and starts no threads unless asked. Calls from several
/// threads do not wait for each other. On the CPU, or with [`JpegDecoder::Cpu`](crate::JpegDecoder::Cpu), its tensors
/// equal torchvision's.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
/// use warpfeed::{Preprocessor, PreprocessorOptions};
///
/// let preprocessor = Preprocessor::from_preset(Preset::Eval, &PreprocessorOptions::default())?;
/// let jpeg = encode_jpeg(&Image::new(Size::new(400, 300)), &JpegOptions::default())?;
/// let tensor = preprocessor.run(&[&jpeg, &jpeg])?;
/// assert_eq!(tensor.shape(), [2, 3, 224, 224]);
/// assert_eq!(tensor.image_bytes(0)?, tensor.image_bytes(1)?);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub struct Preprocessor {
    engine: Engine,
}

impl std::fmt::Debug for Preprocessor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ops, options) = (&self.engine.recipe().ops, self.engine.options());
        f.debug_struct("Preprocessor").field("ops", ops).field("options", options).finish_non_exhaustive()
    }
}

impl Preprocessor {
    /// A preprocessor that applies `ops`, which must end in one size.
    ///
    /// # Errors
    /// [`Error::Parameter`] for operations or options that are out of range or do not fit each other; [`Error::Device`]
    /// if the device does not exist; [`Error::OutOfMemory`] or [`Error::OutOfDeviceMemory`] if there is no memory for a
    /// batch.
    pub fn new(ops: impl IntoIterator<Item = Op>, options: &PreprocessorOptions) -> Result<Self> {
        let run = options.run_options(options.max_batch);
        if options.pixels == Pixels::Own {
            let expected = "rgb, or the kind of all images such as u16x1";
            return Err(Error::parameter("preprocessor", "pixels", expected, "own"));
        }
        let (opening, planner) = (options.opening(), options.planner());
        let run = RunOptions { prefetch: BATCHES - 1, threads: options.threads, values: planner.values, ..run };
        let recipe = FixedRecipe { ops: ops.into_iter().collect(), opening, planner };
        Self::open(recipe, run, options.elements(), options.device)
    }

    /// A preprocessor with the operations of a preset without random draws. It normalizes, unless `options` ask for
    /// bytes.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new); [`Error::Parameter`] for a preset with random draws.
    pub fn from_preset(preset: Preset, options: &PreprocessorOptions) -> Result<Self> {
        let transforms = if options.dtype == DType::U8 { preset.pixel_ops() } else { preset.ops() };
        Self::new(explicit(&transforms)?, options)
    }

    /// A preprocessor with the operations and settings of a pipeline, whose transforms draw nothing at random.
    pub(crate) fn like(
        transforms: &[Transform],
        options: &RunOptions,
        planner: Planner,
        opening: Opening,
        device: Device,
    ) -> Result<Self> {
        let (batch_images, prefetch) = (options.batch_size, BATCHES - 1);
        let run = RunOptions { batch_images, prefetch, threads: 0, ..options.clone() };
        let recipe = FixedRecipe { ops: explicit(transforms)?, opening, planner };
        Self::open(recipe, run, options.elements(), device)
    }

    fn open(recipe: FixedRecipe, run: RunOptions, elements: PixelForm, device: Device) -> Result<Self> {
        let within = |parameter, value, least, most| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Error::parameter("preprocessor", parameter, format!("{least} to {most}"), value))
        };
        within("max_batch", run.batch_images, 1, MAX_BATCH)?;
        within("threads", run.threads, 0, MAX_THREADS)?;
        recipe.opening.validate()?;
        let transforms: Vec<Transform> = recipe.ops.iter().cloned().map(Transform::from).collect();
        let Ends { size, normalize, pixels } = check_ops(&transforms, None, run.values.unwrap_or(PixelValues::RGB8))?;
        let size = one_size("preprocessor", size)?;
        let elements = elements.of_pixels(&pixels, normalize, run.values.is_some())?;
        let output = OutputForm { size: Some(size), largest: None, padded_to: None, times: 1, elements };
        Engine::open(device, run, recipe, output, normalize).map(|engine| Self { engine })
    }

    /// Width and height of every image in a tensor.
    #[must_use]
    pub fn image_size(&self) -> Size {
        self.engine.options().outputs[0].one_size()
    }

    /// Largest number of images in one call.
    #[must_use]
    pub fn max_batch(&self) -> usize {
        self.engine.options().batch_images
    }

    /// Decodes images and makes a tensor of them, in their order.
    ///
    /// # Synchronization
    /// On a GPU this may return before the tensor is complete: see [`Tensor::synchronize`].
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are no images or more than [`max_batch`](Self::max_batch); [`Error::Sample`] with
    /// the number of the first image that cannot be used, and the reason.
    pub fn run(&self, images: &[&[u8]]) -> Result<Tensor> {
        self.check(images.len())?;
        let images: Vec<_> = images.iter().map(|image| Input::Encoded(image)).collect();
        self.engine.run(&images).map_err(failed)
    }

    /// Makes a tensor of images that are decoded already. For a part of an image, the stored pixels are used.
    ///
    /// # Synchronization
    /// See [`run`](Self::run).
    ///
    /// # Errors
    /// The errors of [`run`](Self::run).
    pub fn run_images(&self, images: &[&Image]) -> Result<Tensor> {
        self.check(images.len())?;
        let images: Vec<_> = images.iter().map(|&image| Input::Pixels(image.into())).collect();
        self.engine.run(&images).map_err(failed)
    }

    /// The fields of an encoded image after the operations that [`run`](Self::run) applies to it, its orientation
    /// first. The pixels are not decoded.
    ///
    /// ```
    /// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// use warpfeed::fields::{BoxFormat, Boxes, Fields};
    /// use warpfeed::prelude::*;
    /// use warpfeed::{Preprocessor, PreprocessorOptions};
    ///
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(512, 256)), &JpegOptions::default())?;
    /// let preprocessor = Preprocessor::from_preset(Preset::Eval, &PreprocessorOptions::default())?;
    /// let fields = Fields::new().with("boxes", Boxes::new(BoxFormat::Xyxy, vec![[200.0, 50.0, 300.0, 150.0]]))?;
    /// let moved = preprocessor.fields(&jpeg, &fields)?;
    /// assert_eq!(moved.boxes().unwrap().rows(), [[56.0, 34.0, 156.0, 134.0]]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`apply_with_fields`](crate::apply_with_fields) for bytes that are not an image, or for fields
    /// that cannot follow.
    pub fn fields(&self, image: &[u8], fields: &Fields) -> Result<Fields> {
        let recipe = self.engine.recipe();
        let header = recipe.header(Input::Encoded(image))?;
        FieldMover::default().follow_stored(fields, &header, &recipe.of(&header), &recipe.planner)
    }

    fn check(&self, images: usize) -> Result<()> {
        if (1..=self.max_batch()).contains(&images) {
            return Ok(());
        }
        let expected = format!("1 to {}, the max_batch", self.max_batch());
        Err(Error::parameter("preprocessor", "number of images", expected, images))
    }
}

/// The error for a failure. It names the image that caused it, if one did.
fn failed(Failure { image, error }: Failure) -> Error {
    let Some(i) = image else { return error };
    Error::Sample { index: i as u64, name: format!("image {i} of the call"), source: Box::new(error) }
}

/// The operations of transforms without random draws.
pub(crate) fn explicit(transforms: &[Transform]) -> Result<Vec<Op>> {
    let op = |transform: &Transform| match transform {
        Transform::Explicit(op) => Ok(op.clone()),
        other => {
            Err(Error::parameter("preprocessor", "operations", "such that nothing is drawn at random", other.name()))
        }
    };
    transforms.iter().map(op).collect()
}

/// Parses a model's settings, a JSON object.
fn object(what: &'static str, text: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text).map_err(|error| Error::parameter(what, "the settings", "a JSON object", error))
}

/// The error for a setting that is unknown or has an unsupported value.
fn unsupported(what: &str, setting: &str, value: &Value) -> Error {
    Error::Unsupported {
        feature: format!("{what} with {setting:?}: {value}"),
        remedy: "write the operations down yourself, for Preprocessor::new".to_owned(),
    }
}

/// Parses a setting of three numbers.
fn three(what: &'static str, setting: &'static str, value: &Value) -> Result<[f32; 3]> {
    let wrong = || Error::parameter(what, setting, "three numbers", value);
    serde_json::from_value(value.clone()).map_err(|_| wrong())
}

/// Parses a side in pixels.
fn side(what: &'static str, setting: &'static str, value: &Value) -> Result<u32> {
    let side = value.as_u64().and_then(|side| u32::try_from(side).ok()).filter(|side| *side > 0);
    side.ok_or_else(|| Error::parameter(what, setting, "a number of pixels", value))
}

#[cfg(test)]
mod tests;
