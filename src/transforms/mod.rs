//! Transforms without a pipeline: random transforms and single operations on images that are decoded already.
//!
//! [`Transforms`] draws for a [`Key`] what a pipeline with the same list draws for that seed, epoch and sample, and gives
//! its bytes and fields. [`Op::apply`], [`Op::apply_to`] and [`Op::apply_in_place`] run one operation. Pixels are an
//! [`Image`], or any memory of the caller's ([`View`], [`ViewMut`]).
//!
//! [`CudaTransforms`] makes the same tensors on a GPU, of images in its memory.
//!
//! Nothing starts threads unless asked to. Calls from several threads do not wait for each other.

// Draws, plans and passes are those of pipelines. Here are only the ways in and out: `strides` says where values lie,
// `view` copies the part that a plan begins with into the memory of the CPU's back end, and `view_mut` has its output
// written in place, or, where its strides do not allow that, copied from an image without gaps. `direct` runs plans that
// only copy pixels and look bytes up from the one view to the other, without the back end.

mod batch;
mod cuda;
mod direct;
mod displace;
mod key;
mod op;
mod options;
mod run;
mod scratch;
mod strides;
mod view;
mod view_mut;

pub use cuda::{CudaTransforms, CudaView};
pub use displace::displace;
pub use key::Key;
pub use options::TransformsOptions;
pub use view::View;
pub use view_mut::ViewMut;

use crate::backend::{PixelForm, TablesOf};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::ops::check::{Ends, check_following, check_gray, check_ops, check_seen, check_steps};
use crate::ops::part::needs_a_pipeline;
use crate::ops::recipe::draw_recipe;
use crate::ops::transform::{SampleInfo, Transform, end_gray, images_after};
use crate::ops::values::PixelValues;
use crate::ops::{Op, TransformFile};
use crate::pixels::Pixels;
use crate::plan::{Planner, Strategy};
use crate::preset::Preset;
use crate::raster::{Image, Size};
use crate::rng::Pick;
use crate::simd;
use crate::targets::Annotation;
use crate::tensor::{DType, Pool, Storage, Tensor};
use run::{load, plan, size_after, to_image, to_view};
use scratch::{Scratch, with_scratch};
use std::fmt;
use std::sync::Arc;

/// Number of unused tensors whose memory is kept.
const KEPT_TENSORS: usize = 2;
/// Largest number of bytes that are kept in them, unless a single one is larger.
const KEPT_BYTES: u64 = 64 << 20;

/// A list of transforms, ready to be applied to images in memory.
///
/// ```
/// use warpfeed::image::{Image, Size};
/// use warpfeed::prelude::*;
/// use warpfeed::transforms::{Key, Transforms};
///
/// let list = [random_resized_crop(32), random_horizontal_flip(0.5)];
/// let train = Transforms::new(list)?;
/// let image = Image::new(Size::new(60, 40));
/// let crop = train.apply(&image, Key { seed: 42, epoch: 0, index: 7 })?;
/// assert_eq!(crop.size(), Size::new(32, 32));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub struct Transforms {
    list: Vec<Transform>,
    options: TransformsOptions,
    planner: Planner,
    /// The size, if all images end in one.
    size: Option<Size>,
    elements: PixelForm,
    tables: TablesOf,
    /// The memory of tensors.
    pool: Arc<Pool>,
}

impl fmt::Debug for Transforms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, options, .. } = self;
        f.debug_struct("Transforms").field("list", list).field("options", options).finish_non_exhaustive()
    }
}

impl Transforms {
    /// Checks a list of transforms, as [`PipelineBuilder::build`](crate::PipelineBuilder::build) does. Images are gray
    /// or RGB of 8 bits; tensors are f32, NCHW.
    ///
    /// # Errors
    /// [`Error::Parameter`] for transforms that are out of range or do not fit each other; [`Error::Unsupported`] for
    /// those that join samples, such as [`RandomMosaic`](crate::ops::RandomMosaic): they need a data set.
    pub fn new(list: impl IntoIterator<Item = impl Into<Transform>>) -> Result<Self> {
        Self::with_options(list, &TransformsOptions::default())
    }

    /// Checks a list of transforms and options.
    ///
    /// ```
    /// use warpfeed::ops::Hflip;
    /// use warpfeed::transforms::{Transforms, TransformsOptions};
    ///
    /// let gray = TransformsOptions::default().channels(1);
    /// assert!(Transforms::with_options([Hflip], &gray).is_ok());
    /// assert!(Transforms::with_options([Hflip], &gray.channels(2)).is_err());
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`new`](Self::new); [`Error::Parameter`] for options that are out of range or do not fit the list.
    pub fn with_options(
        list: impl IntoIterator<Item = impl Into<Transform>>,
        options: &TransformsOptions,
    ) -> Result<Self> {
        simd::check()?;
        let mut list: Vec<Transform> = list.into_iter().map(Into::into).collect();
        let (planner, options) = (options.planner(), *options);
        check_options(&options)?;
        if planner.values.is_none() && options.channels == 1 {
            end_gray(&mut list);
        }
        if let Some(name) = joining(&list) {
            return Err(needs_a_pipeline(name));
        }
        let values = planner.values.unwrap_or(PixelValues::RGB8);
        let Ends { size, normalize, pixels } = check_ops(&list, None, values)?;
        check_steps(list.iter())?;
        check_seen(&list)?;
        let elements = options.elements().of_pixels(&pixels, normalize, planner.values.is_some())?;
        if elements.channels == 1 && planner.values.is_none() {
            check_gray(normalize)?;
        }
        let tables = TablesOf::new(normalize.filter(|_| planner.values.is_none()));
        let pool = Arc::new(Pool::new(elements.dtype, KEPT_TENSORS).of_bytes(Some(KEPT_BYTES)));
        Ok(Self { list, options, planner, size, elements, tables, pool })
    }

    /// The transforms of a preset. They normalize, unless `options` ask for bytes, and a preset for detection or
    /// segmentation drops objects itself, so `sanitize` is turned off, as in a pipeline.
    ///
    /// ```
    /// use warpfeed::fields::Fields;
    /// use warpfeed::image::{Image, Size};
    /// use warpfeed::transforms::{Key, Transforms, TransformsOptions, View};
    /// use warpfeed::Preset;
    ///
    /// let train = Transforms::from_preset(Preset::Train, &TransformsOptions::default())?;
    /// let rgb = vec![0_u8; 3 * 60 * 40];
    /// let image = View::hwc(&rgb, Size::new(60, 40), 3)?;
    /// let (tensor, _) = train.apply_with_fields(image, &Fields::new(), Key::new(42, 0, 7))?;
    /// assert_eq!(tensor.shape(), [1, 3, 224, 224]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`with_options`](Self::with_options); [`Error::Unsupported`] for a preset with several views.
    pub fn from_preset(preset: Preset, options: &TransformsOptions) -> Result<Self> {
        let file = if options.dtype == DType::U8 { preset.pixel_transforms() } else { preset.transforms() };
        let sanitize = options.sanitize && preset.fields().is_empty();
        Self::from_file(file, &options.sanitize(sanitize))
    }

    /// The transforms of a file, [`TransformFile::read`].
    ///
    /// ```
    /// use warpfeed::ops::TransformFile;
    /// use warpfeed::transforms::{Transforms, TransformsOptions};
    ///
    /// let text = r#"[{"transform": "random_horizontal_flip", "p": 0.5}, {"op": "center_crop", "width": 8, "height": 8}]"#;
    /// let file = TransformFile::parse(text, "flip.json")?;
    /// assert!(Transforms::from_file(file, &TransformsOptions::default()).is_ok());
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`with_options`](Self::with_options); [`Error::Unsupported`] for a file with several views.
    pub fn from_file(file: TransformFile, options: &TransformsOptions) -> Result<Self> {
        let TransformFile { mut first, views, last } = file;
        if views.is_some() {
            return Err(Error::Unsupported {
                feature: "several views of an image without a pipeline".to_owned(),
                remedy: "make a Transforms for the list of each view".to_owned(),
            });
        }
        first.extend(last);
        Self::with_options(first, options)
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &TransformsOptions {
        &self.options
    }

    /// Draws the operations for an image of this size with these fields: the recipe of sample `key.index` in a pipeline
    /// with `key.seed`, in epoch `key.epoch`. An image without fields has [`Fields::new`].
    ///
    /// ```
    /// use warpfeed::fields::Fields;
    /// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// use warpfeed::prelude::*;
    /// use warpfeed::transforms::{Key, Transforms};
    ///
    /// let size = Size::new(60, 40);
    /// let list = || [random_resized_crop(32), random_rotation(-5.0..=5.0)];
    /// let alone = Transforms::new(list())?.draw(size, &Fields::new(), Key::new(42, 3, 0))?;
    ///
    /// let jpeg = encode_jpeg(&Image::new(size), &JpegOptions::default())?;
    /// let mut builder = Pipeline::builder(EncodedImages::new([(jpeg, 0)])).shuffle(42);
    /// for transform in list() {
    ///     builder = builder.transform(transform);
    /// }
    /// assert_eq!(alone, builder.build()?.recipe(3, 0)?);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] for an explicit operation that does not fit the image; [`Error::Limits`] if the image grows
    /// too large; [`Error::Panic`] if a transform of the caller's own panics, and its errors.
    pub fn draw(&self, size: Size, fields: &Fields, key: Key) -> Result<Vec<Op>> {
        with_scratch(|_| self.recipe(size, fields, key))
    }

    /// Makes a new image of RGB bytes. See [`Transforms`] for an example.
    ///
    /// # Errors
    /// The errors of [`draw`](Self::draw) and [`Op::apply`]; [`Error::Parameter`] for a list that normalizes
    /// ([`apply_with_fields`](Self::apply_with_fields) makes tensors), and for one of other pixels than RGB.
    pub fn apply(&self, image: &Image, key: Key) -> Result<Image> {
        let image = View::of_image(image)?;
        self.check_kind(&image)?;
        with_scratch(|scratch| {
            let recipe = self.recipe(image.size(), &Fields::new(), key)?;
            let plan = plan(&self.planner, &image, &recipe)?;
            load(scratch, &plan, image)?;
            let mut made = Image::default();
            to_image(scratch, &plan, &mut made)?;
            Ok(made)
        })
    }

    /// Makes a tensor of one image, `[1, C, H, W]` or `[1, H, W, C]`, and moves its fields along.
    ///
    /// ```
    /// use warpfeed::fields::{BoxFormat, Boxes, Fields};
    /// use warpfeed::image::Size;
    /// use warpfeed::ops::{CenterCrop, random_horizontal_flip};
    /// use warpfeed::transforms::{Key, Transforms, View};
    ///
    /// let transforms = Transforms::new([CenterCrop::new(20).into(), random_horizontal_flip(1.0)])?;
    /// let (planes, size) = (vec![0_u8; 3 * 40 * 30], Size::new(40, 30));
    /// let fields = Fields::new().with("boxes", Boxes::new(BoxFormat::Xyxy, vec![[0.0, 10.0, 20.0, 20.0]]))?;
    /// let image = View::chw(&planes, size, 3)?;
    /// let (tensor, fields) = transforms.apply_with_fields(image, &fields, Key::new(1, 0, 0))?;
    /// assert_eq!(tensor.shape(), [1, 3, 20, 20]);
    /// assert_eq!(fields.boxes().unwrap().rows(), [[10.0, 5.0, 20.0, 15.0]]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`draw`](Self::draw) and [`Op::apply_to`]; [`Error::Unfit`] for a mask that has not the image's
    /// size; [`Error::Unsupported`] for an operation of the caller's own that does not say where points go.
    pub fn apply_with_fields(&self, image: View<'_>, fields: &Fields, key: Key) -> Result<(Tensor, Fields)> {
        with_scratch(|scratch| {
            let recipe = self.recipe(image.size(), fields, key)?;
            let moved = self.moved(scratch, &recipe, image.size(), fields)?;
            let size = size_after(&recipe, image.size())?;
            let mut buffer = self.pool.take(self.elements.image_bytes(size))?;
            self.fill(scratch, &recipe, image, size, buffer.as_bytes_mut())?;
            Ok((self.elements.tensor(Storage::Host(buffer), size, 1), moved))
        })
    }

    /// Runs a drawn recipe, or another list of operations, on an image, and writes the result to the caller's memory. The
    /// type of the elements may be any, whatever the options say of tensors.
    ///
    /// ```
    /// use warpfeed::fields::Fields;
    /// use warpfeed::image::Size;
    /// use warpfeed::ops::{Op, random_crop};
    /// use warpfeed::transforms::{Key, Transforms, View, ViewMut};
    ///
    /// let crop = Transforms::new([random_crop(4, 0)])?;
    /// let (rgb, size) = (vec![9_u8; 3 * 8 * 8], Size::new(8, 8));
    /// let recipe = crop.draw(size, &Fields::new(), Key::new(1, 0, 0))?;
    /// let result = recipe.iter().try_fold(size, |size, op| op.output_size(size))?;
    /// let mut out = vec![0_u8; 3 * 4 * 4];
    /// crop.run(&recipe, View::hwc(&rgb, size, 3)?, ViewMut::chw(&mut out, result, 3)?)?;
    /// assert_eq!(out, [9; 48]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Op::apply_to`].
    pub fn run(&self, recipe: &[Op], image: View<'_>, out: ViewMut<'_>) -> Result<()> {
        with_scratch(|scratch| self.run_with(scratch, recipe, image, out))
    }

    /// The fields of an image of this size after a recipe.
    ///
    /// ```
    /// use warpfeed::fields::{Fields, KeyPoints};
    /// use warpfeed::image::Size;
    /// use warpfeed::ops::random_horizontal_flip;
    /// use warpfeed::transforms::{Key, Transforms};
    ///
    /// let flip = Transforms::new([random_horizontal_flip(1.0)])?;
    /// let (size, fields) = (Size::new(40, 30), Fields::new().with("keypoints", KeyPoints::of_image(vec![[10.0, 5.0]]))?);
    /// let recipe = flip.draw(size, &fields, Key::new(1, 0, 0))?;
    /// let wanted = Fields::new().with("keypoints", KeyPoints::of_image(vec![[30.0, 5.0]]))?;
    /// assert_eq!(flip.move_fields(&recipe, size, &fields)?, wanted);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unfit`] for a mask that has not the image's size; [`Error::Unsupported`] for an operation of the caller's
    /// own that does not say where points go; the errors of operations.
    pub fn move_fields(&self, recipe: &[Op], size: Size, fields: &Fields) -> Result<Fields> {
        with_scratch(|scratch| self.moved(scratch, recipe, size, fields))
    }

    fn recipe(&self, size: Size, fields: &Fields, key: Key) -> Result<Vec<Op>> {
        let has_fields = !fields.is_empty();
        if has_fields {
            check_following(&self.list)?;
        }
        // Masks are shared, not copied.
        let fields = has_fields.then(|| Arc::new(fields.clone()));
        let annotation = Annotation { fields, ..Annotation::default() };
        let pick = Pick { index: key.index, repetition: 0 };
        let sample = SampleInfo::new(pick, size, &annotation).in_epoch(key.epoch);
        let mut recipe = draw_recipe(&[], &self.list, &mut key.numbers(), sample, None)?;
        if has_fields && self.options.sanitize {
            recipe.end_by_sanitizing();
        }
        Ok(recipe.ops)
    }

    fn moved(&self, scratch: &mut Scratch, recipe: &[Op], size: Size, fields: &Fields) -> Result<Fields> {
        if fields.is_empty() {
            return Ok(Fields::new());
        }
        let moved = scratch.mover.follow(fields.clone(), size, recipe, &self.planner);
        scratch.mover.take_dropped();
        moved.map(|(fields, _)| fields)
    }

    /// Runs a recipe for one image of a tensor, whose size it has.
    fn fill(&self, scratch: &mut Scratch, recipe: &[Op], image: View<'_>, size: Size, bytes: &mut [u8]) -> Result<()> {
        self.run_with(scratch, recipe, image, ViewMut::of_tensor(bytes, size, self.elements)?)
    }

    fn run_with(&self, scratch: &mut Scratch, recipe: &[Op], image: View<'_>, out: ViewMut<'_>) -> Result<()> {
        self.check_kind(&image)?;
        if self.planner.values.is_none() && out.channels() != self.options.channels {
            let expected = format!("{}, as the options have it", self.options.channels);
            return Err(Error::parameter("ViewMut", "channels", expected, out.channels()));
        }
        let plan = plan(&self.planner, &image, recipe)?;
        to_view(scratch, &plan, Some(image), self.planner.values, &self.tables, out)
    }

    /// Checks that an image has the pixels that the options say.
    fn check_kind(&self, image: &View<'_>) -> Result<()> {
        let fits = match self.planner.values {
            Some(values) => values.kind == image.kind(),
            None => image.values().is_none(),
        };
        if fits {
            return Ok(());
        }
        let expected = match self.planner.values {
            Some(values) => values.kind.to_string(),
            None => "1 or 3 channels of u8 (TransformsOptions::pixels takes other kinds)".to_owned(),
        };
        Err(Error::parameter("Transforms", "image", expected, image.kind()))
    }
}

/// The name of a transform that needs other samples.
fn joining(list: &[Transform]) -> Option<&'static str> {
    let mut name = list.iter().find_map(Transform::with_parts);
    for transform in list {
        let joins = images_after(std::slice::from_ref(transform), 1) > 1;
        transform.each_leaf(&mut |leaf| {
            if joins && images_after(std::slice::from_ref(leaf), 1) > 1 {
                name.get_or_insert(leaf.name());
            }
        });
        if joins {
            name.get_or_insert(transform.name());
        }
    }
    name
}

fn check_options(options: &TransformsOptions) -> Result<()> {
    let refused = |option, expected: &str, got: String| Err(Error::parameter("Transforms", option, expected, got));
    if options.max_pixels == 0 {
        return refused("max_pixels", "1 or more", "0".to_owned());
    }
    if options.pixels == Pixels::Own {
        return refused("pixels", "rgb, or the kind of all images such as u16x1", "own".to_owned());
    }
    let Some(values) = options.pixels.values(options.max_value) else {
        return match (options.channels, options.max_value) {
            (1 | 3, None) => Ok(()),
            (1 | 3, Some(255.0)) => Ok(()),
            (1 | 3, Some(other)) => refused("max_value", "none, or 255, for RGB of 8 bits", other.to_string()),
            (channels, _) => refused("channels", "1 or 3", channels.to_string()),
        };
    };
    values.check_max()?;
    if options.channels != 3 {
        let expected = "that of the pixels: select_channels takes some of them";
        return refused("channels", expected, options.channels.to_string());
    }
    if options.strategy == Strategy::Composed {
        return refused("strategy", "fused or sequential for images that are not RGB", "composed".to_owned());
    }
    Ok(())
}
