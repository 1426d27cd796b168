//! Image operations with explicit parameters ([`Op`]), and random transforms that draw them ([`Transform`]).
//!
//! An [`Op`] gives the bytes of torchvision on PIL images, with Pillow 13; docs/operations.md lists the exceptions. A
//! [`Transform`] draws its operations for each sample and epoch: [`random_resized_crop`], [`color_jitter`] and the
//! other functions make transforms for [`PipelineBuilder::transform`](crate::PipelineBuilder::transform). For your own
//! transform implement [`CustomTransform`]; your own operation is an [`Op::Custom`].

// Files. The file of an operation holds its parameters and their written form, validation, the size of its result, its
// primitive, its random transform, and examples for tests and benches. Most operations are a primitive that others are
// too: a mirror, a crop, a resize, an affine warp or a table, with a CPU pass and kernels in the primitive's file.
// Other operations have a `Pass` of their own. The CPU pass is the specification; every faster version is compared with
// it. The list `operations!` below makes `Op`, the names, the catalog and the registry of kernels from these files; the
// list `transforms!` makes `Transform`. From the catalog a test writes the documentation's table and Python's classes
// (`tests/catalog.rs`); serde tells the types and defaults of parameters (`parameters`). A place that a new operation
// lacks does not compile, or fails a test. Two operations that are one algorithm share a file (`flip`, `morphology`).
// Arithmetic that operations share has files of its own: `filter` (weights of a resize), `reduce` (the first step of a
// resize with a reducing gap), `rotation` and `affine_warp` (affine maps), `turn` (mirrors and quarter turns), `blend`,
// `byte_table`. `kernel` is what operations know of GPUs, `descriptors` the structs that kernels get, `recipe` the
// drawing of recipes, `macros` what many types have in common.
//
// Reference. The reference is torchvision on PIL images, because published accuracies were trained on it. Results must
// be equal on all processors: Rust neither contracts nor reorders floating-point operations, C is compiled with
// `-ffp-contract=off`, and logarithms, exponentials and sines come from `libm`, because the libraries of operating
// systems round them differently.
//
// Drawing. All random numbers of a sample are drawn before any operation runs (`crate::rng`). Each transform has its
// own region of the sample's random stream, so one more draw in one transform moves nothing in the others. Branches of
// `one_of` and `maybe` keep their regions whether they are taken or not. `random_order` also keeps each transform's
// region; only the order in which the transforms run changes.
//
// Automatic augmentations. torchvision computes magnitudes with `torch.linspace` in float32: a fused multiply-add from
// the nearer end. We compute the same, because a translation depends on the image's size, and test it against torch's
// own tables. AugMix's chains run as on PIL images, and only the final sum is torchvision's, which runs the chains on
// tensors: otherwise one operation would have two arithmetics. timm shears and translates with a matrix, and by
// fractions of a pixel. torchvision's angles would change the last digit of a number, and at some levels points lie
// exactly on pixel centers, where bilinear sampling would then drop a whole value. So there are both `affine_matrix`
// and `affine`, and the matrix is in the recipe. `mix` has a blend of its own because timm first rounds the sum of
// AugMix's chains to bytes and then blends it with the image. A level that changes nothing becomes no operation, so
// recipes stay short.
//
// Noise. A recipe holds a key below 2^53, and the random words of a pixel are Philox of the key, the column and the
// row (`noise`). So noise does not depend on the part that is computed, on threads or on the device. A normal deviate
// comes from a table of 1,025 whole numbers, which the host makes and hands to kernels, because logarithms and cosines
// differ between devices. On bytes, value and deviation are in the image's units, so no parameter needs to be refused.
//
// Approximate operations. Gaussian blur is within 1 of torchvision, which does not fix the order of its sum; ours is
// the same on every machine (`gaussian_blur`). Elastic sums in single precision in a fixed order, so that CPU and
// device agree; torchvision's order is not fixed, so the bound is 1 of 255. Perspective divides in whole numbers on
// both devices, within 2^-16 pixels of Pillow's doubles. Its bicubic sampling on a GPU first computes in whole
// numbers, and computes a value again in doubles if it is within 2^-13 of a whole number.
//
// Reducing. A resize with a reducing gap is two stages of a plan, so only what the output needs is decoded and reduced.
// The first has no kernel: it is for large photographs whose drafts the CPU decodes. A thumbnail is not an operation,
// as it decides how a JPEG is decoded. `Opening` puts a resize in front of the recipe, and `shown` says which part of
// the draft is the image.
//
// Fields. An operation's file says what it does to points (`Operation::motion`), with torchvision's numbers, and how it
// acts on a mask or an auxiliary image (`Operation::on_field`). `fields/motion.rs` applies the one to boxes and
// keypoints; a mask is an image that goes through the other. `PointMap` is another thing: it multiplies the maps of
// pixels, and refuses passes whose pixels move in their own way (`Pass::moves_pixels`).

#[macro_use]
mod macros;

mod affine;
mod affine_matrix;
pub(crate) mod affine_warp;
#[cfg(target_arch = "x86_64")]
mod affine_warp_x86;
mod aug_mix;
mod auto_augment;
mod autocontrast;
pub(crate) mod blend;
pub(crate) mod brightness;
mod bucket_crop;
mod by_epoch;
pub(crate) mod byte_table;
mod catalog;
pub(crate) mod center_crop;
pub(crate) mod check;
mod clamp;
pub(crate) mod color_jitter;
pub(crate) mod combine;
pub(crate) mod contrast;
pub(crate) mod copy_paste;
mod corner_crop;
mod crop;
mod crop_search;
pub(crate) mod custom;
pub(crate) mod descriptors;
pub(crate) mod elastic;
mod equalize;
pub(crate) mod erase;
pub(crate) mod fill;
pub(crate) mod filter;
mod fixed_size_crop;
mod flip;
mod gamma;
pub(crate) mod gaussian_blur;
mod gaussian_noise;
pub(crate) mod grayscale;
mod histogram;
pub(crate) mod hue;
mod interpolations;
pub(crate) mod invert;
mod jpeg;
mod keep_objects;
pub(crate) mod kernel;
mod letterbox;
mod magnitude;
mod min_iou_crop;
mod mix_up;
pub(crate) mod morphology;
mod mosaic;
mod moved_masks;
mod named;
pub(crate) mod needed_pixels;
pub(crate) mod noise;
pub(crate) mod normalize;
mod numbers;
mod on_field;
pub(crate) mod orientation;
pub(crate) mod pad;
#[cfg(test)]
mod parameters;
pub(crate) mod part;
mod permute_channels;
mod perspective;
mod photometric_distort;
mod pillow_gaussian_blur;
mod placed_mask;
mod point_map;
pub(crate) mod points;
mod posterize;
mod rand_augment;
mod random_bbox_crop;
mod random_iou_crop;
mod random_resize;
mod random_shortest_size;
mod random_size_crop;
mod random_zoom_out;
pub(crate) mod recipe;
pub(crate) mod rectangle;
pub(crate) mod reduce;
pub(crate) mod resize;
pub(crate) mod resized_crop;
pub(crate) mod rotate;
pub(crate) mod rotation;
pub(crate) mod sanitize;
pub(crate) mod saturation;
mod scale_jitter;
mod segmentation_crop;
mod select_objects;
mod sequence_crop;
mod sharpness;
pub(crate) mod solarize;
mod solarize_add;
#[cfg(test)]
mod tests;
mod timm_augment;
mod timm_kind;
mod timm_policy;
#[macro_use]
pub(crate) mod transform;
mod to_float;
mod trivial_augment;
pub(crate) mod turn;
mod unlabel_keypoints;
pub(crate) mod values;
mod weighted_sum;
pub(crate) mod written;
mod yolo_copy_paste;
mod yolo_perspective;

pub use crate::rng::SampleRng;
pub use auto_augment::AutoAugmentPolicy;
pub use catalog::{CatalogEntry, catalog};
pub use corner_crop::Corner;
pub use custom::Custom;
pub use erase::ErasingNoise;
pub(crate) use erase::Overwrite;
pub use fill::{Edge, Fill};
pub use filter::{Interpolation, PassOrder};
pub use interpolations::Interpolations;
pub(crate) use moved_masks::ops_on_mask;
pub use numbers::{ChannelList, ChannelNumbers};
pub(crate) use on_field::FieldContext;
pub use pad::PadMode;
pub use part::Part;
pub use point_map::PointMap;
pub use resize::ResizeTo;
pub use transform::{
    CustomTransform, Named, SampleInfo, Transform, color_jitter, maybe, one_of, random_crop, random_dilation,
    random_erasing, random_erosion, random_gaussian_blur, random_grayscale, random_horizontal_flip, random_order,
    random_resized_crop, random_rotation, random_vertical_flip, repeat, three_augment,
};
pub use weighted_sum::Chain;
pub use written::TransformFile;
pub use yolo_copy_paste::CopyPasteMode;

export_transforms!();

use crate::error::{Error, Result};
use crate::fields::motion::Motion;
use crate::fields::{DroppedObjects, Fields};
use crate::raster::{Image, Rect, Size};
use affine_warp::AffineWarp;
use byte_table::ByteTable;
use check::MAX_SIDE_PX;
use kernel::{CallRecorder, Kernel};
use normalize::Normalization;
use resize::Resample;
use serde::{Deserialize, Serialize};
use std::fmt;
use turn::{Exact, Turn};
use values::{PixelValues, ValueWork};

/// Interface of every operation.
pub(crate) trait Operation: fmt::Debug {
    /// Checks every parameter that can be checked without an image. Default: every value is allowed.
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// The effect on the size of any image. Default: the size stays the same.
    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Keeps
    }

    /// The size of the result for an image of size `input`. The parameters are valid. Operations that do not fit every
    /// image, or whose effect varies, have their own.
    fn output_size(&self, input: Size) -> Result<Size> {
        match self.size_effect() {
            SizeEffect::Becomes(size) => Ok(size),
            SizeEffect::Keeps | SizeEffect::Varies => Ok(input),
        }
    }

    /// The operation's form in a plan, on an image of size `input`.
    fn primitive(&self, input: Size) -> Primitive<'_>;

    /// The operation's effect on points of an image of size `input`.
    fn motion(&self, input: Size) -> Result<Motion>;

    /// The operation as it acts on a mask, or on an auxiliary image, of an image of size `input`. `None` if they pass
    /// by.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it cannot act on an auxiliary image of this size.
    fn on_field(&self, input: Size, how: &FieldContext) -> Result<Option<Op>>;

    /// Whether the operation moves, drops or adds rows of fields that are no points. Default: whether it joins samples.
    fn changes_rows(&self) -> bool {
        self.joins()
    }

    /// Whether the operation may join other samples with this one. Default: it does not.
    fn joins(&self) -> bool {
        false
    }

    /// The other samples that the operation needs. Default: none.
    fn parts(&self) -> &[Part] {
        &[]
    }

    /// The other samples that the operation needs, to be loaded.
    fn parts_mut(&mut self) -> &mut [Part] {
        &mut []
    }

    /// Whether kernels do the operation on a GPU. Default: they do.
    fn has_kernels(&self) -> bool {
        true
    }

    /// A parameter with numbers in the image's units, one or one for each channel. Default: there is none.
    fn numbers(&self) -> Option<(&'static str, ChannelNumbers)> {
        None
    }

    /// Checks other parameters in the image's units. Default: there are none.
    fn check_values(&self, _pixels: &PixelValues) -> Result<()> {
        Ok(())
    }

    /// The operation's work on an image of any kind and of size `input`, whose result has size `size`; `None` if it takes
    /// RGB of 8 bits alone. Default: geometry takes any kind, a table any 8-bit values.
    fn values(&self, pixels: &PixelValues, input: Size, size: Size, order: PassOrder) -> Option<ValueWork> {
        ValueWork::of(self.primitive(input), pixels, size, order)
    }

    /// The operation's part in the end of a plan. Default: it has none, as it works on 8-bit images alone.
    fn finish(&self) -> Option<Finish> {
        None
    }
}

/// A change of the 8-bit result while the output is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Finish {
    /// Converts to numbers with this mean and standard deviation of each channel.
    Normalize(ChannelNumbers, ChannelNumbers),
    /// Overwrites a rectangle, after normalization.
    Overwrite(Overwrite),
}

/// A pass of an operation's own.
pub(crate) trait Pass: fmt::Debug {
    /// Runs the pass on the CPU.
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()>;

    /// Queues the pass's kernels for the part `part` of its result.
    fn launch(&self, on: &mut dyn CallRecorder, part: Rect) -> Result<()>;

    /// Whether pixels move in the pass's own way, so that no map follows points. Default: each pixel stays where it
    /// is.
    fn moves_pixels(&self) -> bool {
        false
    }
}

/// An operation's form in a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Primitive<'a> {
    /// The operation changes nothing.
    Identity,
    /// The operation moves pixels and changes none.
    Turn(Turn),
    /// The operation cuts out a rectangle of its result's size at (`x`, `y`). Pixels outside the image are `fill`.
    Crop {
        /// First column, may be negative.
        x: i32,
        /// First row, may be negative.
        y: i32,
        /// Pixels outside the image.
        fill: Fill,
    },
    /// The operation samples through an affine map.
    Affine(AffineWarp),
    /// The operation resizes a rectangle of the image to its result's size.
    Resample(Resample),
    /// The operation replaces each byte by a value that depends on that byte alone.
    Table(ByteTable),
    /// The operation has a pass of its own.
    Pass(&'a dyn Pass, Reach),
}

/// The part of an image that a pass reads to make a part of its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The same part and this number of pixels around it, as far as the image has them.
    Around(u32),
    /// The complete image. The pass makes a complete result.
    Whole,
}

/// The effect of an operation or a transform on the size of any image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeEffect {
    /// The size stays the same.
    Keeps,
    /// The size becomes this one.
    Becomes(Size),
    /// The new size depends on the image or on random numbers.
    Varies,
}

/// A pass on the CPU.
pub(crate) struct CpuPass<'a> {
    /// The pass's input, by its [`Reach`]; afterwards its result.
    pub(crate) image: &'a mut Image,
    /// Memory for the result of a pass that cannot work in place.
    pub(crate) spare: &'a mut Image,
    /// The part of the result that the pass makes.
    pub(crate) part: Rect,
    /// Order of a resize's passes.
    pub(crate) order: PassOrder,
}

impl CpuPass<'_> {
    /// Makes the result out of place, with `size` stored pixels. `make` reads the image, resets the result and fills
    /// it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no memory for the result.
    fn replace(&mut self, size: Size, make: impl FnOnce(&Image, &mut Image)) -> Result<()> {
        self.spare.reserve(size)?;
        make(self.image, self.spare);
        std::mem::swap(self.image, self.spare);
        Ok(())
    }
}

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $written:literal $module:ident::$name:ident = $example:expr,)*) => {
        $(
            pub use $module::$name;

            impl $name {
                /// The name in the written form.
                const NAME: &'static str = $written;
            }
        )*

        /// An operation with explicit parameters. Its written form in a recipe is `{"op": "rotate", "degrees": 5,
        /// ...}`.
        ///
        /// An operation works on an image of RGB pixels with 8 bits a channel. [`Normalize`] converts the image to
        /// `f32`; only [`Erase`] may follow it. Each operation is a type of its own, and `into()` makes an `Op` of it:
        ///
        /// ```
        /// use warpfeed::ops::{Fill, Hflip, Op, Rotate};
        ///
        /// let text = r#"[{"op": "hflip"}, {"op": "rotate", "degrees": 5, "fill": "edge"}]"#;
        /// let ops: Vec<Op> = serde_json::from_str(text)?;
        /// assert_eq!(ops, [Hflip.into(), Rotate::new(5.0).fill(Fill::EDGE).into()]);
        /// # Ok::<(), serde_json::Error>(())
        /// ```
        #[derive(Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "op")]
        #[non_exhaustive]
        pub enum Op {
            $($(#[doc = $doc])* #[serde(rename = $written)] $name($name),)*
            /// The caller's own code. It runs on the CPU and has no written form.
            #[serde(skip)]
            Custom(Custom),
        }

        $(
            impl From<$name> for Op {
                fn from(op: $name) -> Self {
                    Self::$name(op)
                }
            }

            impl From<$name> for Transform {
                fn from(op: $name) -> Self {
                    Self::Explicit(op.into())
                }
            }
        )*

        impl Op {
            /// The operations in the catalog.
            fn catalog() -> Vec<CatalogEntry> {
                vec![$(catalog::entry::<$name>(concat!($($doc),*), stringify!($example), $example)),*]
            }

            fn operation(&self) -> &dyn Operation {
                match self {
                    $(Self::$name(op) => op,)*
                    Self::Custom(op) => op,
                }
            }

            fn operation_mut(&mut self) -> &mut dyn Operation {
                match self {
                    $(Self::$name(op) => op,)*
                    Self::Custom(op) => op,
                }
            }

            /// The operation's name in the written form.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $name::NAME,)*
                    Self::Custom(op) => op.name,
                }
            }

            /// Operations of every kind for an image of size `size`, with parameters that reach different code paths,
            /// for tests and benches. [`Custom`](Self::Custom) is not among them.
            ///
            /// ```
            /// use warpfeed::{ops::Op, image::Size};
            ///
            /// let size = Size::new(40, 30);
            /// assert!(Op::examples(size).iter().all(|op| op.output_size(size).is_ok()));
            /// ```
            #[must_use]
            pub fn examples(size: Size) -> Vec<Self> {
                let mut examples = Vec::new();
                $(examples.extend($name::examples(size).into_iter().map(Self::from));)*
                examples
            }
        }

        /// The kernels of each operation, and those for images that are not RGB of 8 bits.
        const KERNELS: &[&[Kernel]] = &[$($name::KERNELS,)* values::KERNELS];
    };
}

/// Points, and where they go in the example of [`Perspective`].
const POINTS: [[f64; 2]; 4] = [[0.0, 0.0], [99.0, 0.0], [99.0, 99.0], [0.0, 99.0]];
const MOVED: [[f64; 2]; 4] = [[5.0, 2.0], [99.0, 0.0], [95.0, 99.0], [0.0, 97.0]];

operations! {
    /// Mirrors left and right.
    "hflip" flip::Hflip = Hflip,
    /// Mirrors top and bottom.
    "vflip" flip::Vflip = Vflip,
    /// Rotates about the center.
    "rotate" rotate::Rotate = Rotate::new(5.0),
    /// Rotates, scales, shears and translates.
    "affine" affine::Affine = Affine::new(),
    /// Samples through an affine matrix.
    "affine_matrix" affine_matrix::AffineMatrix = AffineMatrix::new([1.0, 0.1, 0.0, 0.0, 1.0, 0.0]),
    /// Resizes to a width and a height, or the shorter side to `size`; with `max_size` the longer side is at most that.
    "resize" resize::Resize = Resize::new(Size::new(320, 240)),
    /// Cuts out a rectangle, which may reach beyond the image.
    "crop" crop::Crop = Crop::new(10, 20, 224),
    /// Cuts out the center.
    "center_crop" center_crop::CenterCrop = CenterCrop::new(224),
    /// Cuts out a rectangle, then resizes it.
    "resized_crop" resized_crop::ResizedCrop = ResizedCrop::new(Rect { x: 10, y: 20, width: 100, height: 80 }, 224),
    /// Gaussian blur.
    "gaussian_blur" gaussian_blur::GaussianBlur = GaussianBlur::new(9, 1.5),
    /// Replaces each value by the largest in a square around it.
    "dilate" morphology::Dilate = Dilate::new(3),
    /// Replaces each value by the smallest in a square around it.
    "erode" morphology::Erode = Erode::new(3),
    /// Blends with black.
    "brightness" brightness::Brightness = Brightness::new(1.2),
    /// Raises values of 0 to 1 to a power.
    "gamma" gamma::Gamma = Gamma::new(0.8),
    /// Blends with the image's mean gray.
    "contrast" contrast::Contrast = Contrast::new(1.2),
    /// Blends with the image's gray version.
    "saturation" saturation::Saturation = Saturation::new(1.2),
    /// Shifts the hue.
    "hue" hue::Hue = Hue::new(0.1),
    /// Replaces each pixel by its luma.
    "grayscale" grayscale::Grayscale = Grayscale,
    /// Puts the channels in another order.
    "permute_channels" permute_channels::PermuteChannels = PermuteChannels::new([2, 1, 0]),
    /// Takes some of the channels.
    "select_channels" permute_channels::SelectChannels = SelectChannels::new([2, 1, 0]),
    /// Adds normal noise.
    "gaussian_noise" gaussian_noise::GaussianNoise = GaussianNoise::new(0.1, 1),
    /// Replaces each value v by 255 - v.
    "invert" invert::Invert = Invert,
    /// Keeps the upper bits of each value.
    "posterize" posterize::Posterize = Posterize::new(4),
    /// Inverts the values from a threshold on.
    "solarize" solarize::Solarize = Solarize::new(128.0),
    /// Spreads each channel's values evenly.
    "equalize" equalize::Equalize = Equalize,
    /// Stretches each channel's values to 0 to 255.
    "autocontrast" autocontrast::Autocontrast = Autocontrast,
    /// Blends with a smoothed version.
    "sharpness" sharpness::Sharpness = Sharpness::new(2.0),
    /// Adds up the image and the results of chains of operations.
    "weighted_sum" weighted_sum::WeightedSum = WeightedSum::new(0.5),
    /// Adds rows and columns on each side.
    "pad" pad::Pad = Pad::new(4),
    /// Moves four points to four others.
    "perspective" perspective::Perspective = Perspective::new(POINTS, MOVED),
    /// Moves each pixel by a displacement of its own.
    "elastic" elastic::Elastic = Elastic::new(1),
    /// Pillow's Gaussian blur.
    "pillow_gaussian_blur" pillow_gaussian_blur::PillowGaussianBlur = PillowGaussianBlur::new(1.5),
    /// Adds a number to dark values.
    "solarize_add" solarize_add::SolarizeAdd = SolarizeAdd::new(20),
    /// Encodes as JPEG and decodes again.
    "jpeg" jpeg::Jpeg = Jpeg::new(75),
    /// Overwrites a rectangle.
    "erase" erase::Erase = Erase::new(Rect { x: 10, y: 20, width: 100, height: 80 }),
    /// Cuts boxes at the edges of the image.
    "clamp" clamp::Clamp = Clamp,
    /// Drops objects whose boxes are no longer valid.
    "sanitize" sanitize::Sanitize = Sanitize::new(),
    /// Drops objects whose centers lie outside a rectangle.
    "select_objects" select_objects::SelectObjects =
        SelectObjects::centered_in(Rect { x: 10, y: 20, width: 100, height: 80 }),
    /// Places several samples on a canvas.
    "mosaic" mosaic::Mosaic = Mosaic::new(320).at([10, 20]),
    /// Blends with another sample.
    "mix_up" mix_up::MixUp = MixUp::new(0.5, Part::new(17)),
    /// Pastes objects of another sample.
    "copy_paste" copy_paste::CopyPaste = CopyPaste::new(Part::new(17)),
    /// Drops objects by their numbers.
    "keep_objects" keep_objects::KeepObjects = KeepObjects::new([0, 2]),
    /// Marks keypoints outside the image as not labeled.
    "unlabel_keypoints" unlabel_keypoints::UnlabelKeypoints = UnlabelKeypoints,
    /// Converts to `f32`, with values of 0 to 1.
    "to_float" to_float::ToFloat = ToFloat,
    /// Converts to `f32` and normalizes.
    "normalize" normalize::Normalize = Normalize::new([0.5; 3], [0.25; 3]),
}

impl Op {
    /// Checks every parameter that can be checked without an image.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the allowed values.
    pub fn validate(&self) -> Result<()> {
        self.operation().validate()
    }

    /// The size of the result for an image of size `input`.
    ///
    /// # Errors
    /// [`Error::Parameter`] if a parameter is out of range or a rectangle that must lie inside the image does not;
    /// [`Error::Limits`] if a side of the result is too long.
    pub fn output_size(&self, input: Size) -> Result<Size> {
        self.validate()?;
        let output = self.operation().output_size(input)?;
        if output.is_empty() || output.width > MAX_SIDE_PX || output.height > MAX_SIDE_PX {
            return Err(Error::Limits {
                what: "a side in pixels",
                got: u64::from(output.width.max(output.height)),
                limit: u64::from(MAX_SIDE_PX),
                remedy: "use a smaller image or fewer growing rotations",
            });
        }
        Ok(output)
    }

    /// The effect on the size of any image.
    pub(crate) fn size_effect(&self) -> SizeEffect {
        self.operation().size_effect()
    }

    /// The operation's work on an image of any kind: see [`Operation::values`].
    pub(crate) fn on_values(
        &self,
        pixels: &PixelValues,
        input: Size,
        size: Size,
        order: PassOrder,
    ) -> Option<ValueWork> {
        self.operation().values(pixels, input, size, order)
    }

    /// The operation's form in a plan, on an image of size `input`.
    pub(crate) fn primitive(&self, input: Size) -> Primitive<'_> {
        self.operation().primitive(input)
    }

    /// The operation's effect on points of an image of size `input`.
    pub(crate) fn motion(&self, input: Size) -> Result<Motion> {
        self.operation().motion(input)
    }

    /// Moves the boxes and keypoints of an image of size `input` as the operation moves pixels, and drops and adds the
    /// objects that it drops and adds. Returns the size of the result.
    pub(crate) fn move_points(&self, fields: &mut Fields, input: Size) -> Result<Size> {
        self.move_and_count(fields, input, &mut DroppedObjects::default())
    }

    /// Like [`move_points`](Self::move_points). `dropped` counts the dropped objects.
    pub(crate) fn move_and_count(
        &self,
        fields: &mut Fields,
        input: Size,
        dropped: &mut DroppedObjects,
    ) -> Result<Size> {
        let output = self.output_size(input)?;
        if fields.has_points() || self.operation().changes_rows() {
            self.motion(input)?.apply(fields, input, output, dropped)?;
        }
        Ok(output)
    }

    /// The operation as it acts on a mask, or on an auxiliary image, of an image of size `input`; `None` if they pass
    /// by.
    pub(crate) fn on_field(&self, input: Size, how: &FieldContext) -> Result<Option<Self>> {
        self.operation().on_field(input, how)
    }

    /// Runs the operation on the CPU. Only a pass of the operation's own may make a part of the result.
    pub(crate) fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let (part, size) = (pass.part, pass.part.size());
        match self.primitive(pass.image.whole()) {
            Primitive::Identity => Ok(()),
            Primitive::Turn(turn) => turn.pass(pass),
            Primitive::Crop { x, y, fill } => pass.replace(size, |input, out| crop::crop(input, x, y, size, fill, out)),
            Primitive::Affine(sampling) => pass.replace(size, |input, out| sampling.make(input, size, part, out)),
            Primitive::Resample(of) => resize::pass(pass, of, size),
            Primitive::Table(table) => {
                table.pass(pass);
                Ok(())
            }
            Primitive::Pass(own, _) => own.pass(pass),
        }
    }

    /// Queues the operation's kernels for the part `part` of its result.
    pub(crate) fn launch(&self, on: &mut dyn CallRecorder, part: Rect) -> Result<()> {
        let (input, size) = (on.whole(), part.size());
        match self.primitive(input) {
            Primitive::Identity => Ok(()),
            Primitive::Turn(turn) => turn.launch(on),
            Primitive::Crop { x, y, fill } => crop::launch(on, x, y, size, fill),
            Primitive::Affine(sampling) => sampling.launch(on, Exact::IDENTITY, input, size, part),
            Primitive::Resample(of) => resize::launch(on, of, size),
            Primitive::Table(table) => table.launch(on),
            Primitive::Pass(own, _) => own.launch(on, part),
        }
    }

    /// Applies the operation to a complete image, which becomes the result, on the CPU and without a pipeline. Pixels
    /// are those that a pipeline makes with the pass order `order` for resizes. `spare` is scratch memory, which serves
    /// the next call again. [`apply`](Self::apply) makes a new image; [`apply`](crate::apply()) decodes and runs several
    /// operations, normalization too.
    ///
    /// ```
    /// use warpfeed::image::{Image, Size};
    /// use warpfeed::ops::{CenterCrop, Invert, Op, PassOrder};
    ///
    /// let (mut image, mut spare) = (Image::new(Size::new(40, 30)), Image::default());
    /// for op in [Op::from(CenterCrop::new(8)), Invert.into()] {
    ///     op.apply_reusing(PassOrder::default(), &mut image, &mut spare)?;
    /// }
    /// assert_eq!((image.size(), image.to_rgb()), (Size::new(8, 8), vec![255; 3 * 8 * 8]));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] for parameters that are wrong or do not fit the image, for a part of an image, and for
    /// [`Normalize`], which makes no 8-bit pixels; [`Error::Limits`] if a side of the result is too long;
    /// [`Error::OutOfMemory`] if there is no memory for the result; [`Error::Unsupported`] if other samples are
    /// missing, which only a pipeline reads.
    pub fn apply_reusing(&self, order: PassOrder, image: &mut Image, spare: &mut Image) -> Result<()> {
        if image.part() != Rect::full(image.whole()) {
            return Err(Error::parameter(self.name(), "image", "a complete image", format!("{:?}", image.part())));
        }
        self.takes(&PixelValues::RGB8)?;
        let part = Rect::full(self.output_size(image.size())?);
        self.pass(&mut CpuPass { image, spare, part, order })
    }

    /// Whether the operation may join other samples with this one.
    pub(crate) fn joins(&self) -> bool {
        self.operation().joins()
    }

    /// The other samples that the operation needs.
    pub(crate) fn parts(&self) -> &[Part] {
        self.operation().parts()
    }

    /// The other samples that the operation needs, to be loaded.
    pub(crate) fn parts_mut(&mut self) -> &mut [Part] {
        self.operation_mut().parts_mut()
    }

    /// Whether kernels do the operation on a GPU.
    pub(crate) fn has_kernels(&self) -> bool {
        self.operation().has_kernels()
    }

    /// The operation's part in the end of a plan; `None` if it works on 8-bit images alone.
    pub(crate) fn finish(&self) -> Option<Finish> {
        self.operation().finish()
    }

    /// The mean and standard deviation by which the operation normalizes, if it does.
    pub(crate) fn normalization(&self) -> Normalization {
        match self.finish() {
            Some(Finish::Normalize(mean, std)) => Some((mean, std)),
            Some(Finish::Overwrite(_)) | None => None,
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operation().fmt(f)
    }
}
