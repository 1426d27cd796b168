//! Image operations with explicit parameters ([`Op`]), and random transforms that draw them ([`Transform`]).
//!
//! An [`Op`] gives the bytes of torchvision on PIL images, with Pillow 13; docs/operations.md lists the few exceptions
//! and the operations that follow another library. [`apply`](crate::apply()) runs a list of operations on one image. A
//! [`Transform`] draws its operations for each sample and epoch: [`random_resized_crop`], [`color_jitter`] and the
//! other functions make transforms, and [`Builder::augment`](crate::Builder::augment) takes them. For a transform of
//! your own implement [`CustomTransform`]; an operation of your own is an [`Op::Custom`].

// Files. The file of an operation holds its parameters and their written form, validation, the size of its result, its
// lowering for a plan, its CPU pass, its kernels and how they are called, its random transform, and examples for tests
// and benches. The CPU pass is the specification; every faster version is compared with it. The list `operations!`
// below makes `Op`, the names and the registry of kernels from these files; the list `transforms!` makes `Transform`.
// No match on operations has a wildcard arm, so the compiler names every place that a new operation lacks. Arithmetic
// that operations share has files of its own: `filter` (weights of a resize), `rotation` and `sampling` (affine maps),
// `turn` (mirrors and quarter turns), `rank`, `blend`, `table`. `kernel` is what operations know of GPUs, `params` the
// structs that kernels get.
//
// Reference. The reference is torchvision on PIL images, because published accuracies were trained on it. Results must
// be equal on all processors: Rust neither contracts nor reorders floating-point operations, C is compiled with
// `-ffp-contract=off`, and logarithms, exponentials and sines come from `libm`, because the libraries of operating
// systems round them differently.
//
// Drawing. All random numbers of a sample are drawn before any operation runs (`crate::rng`). Each transform has its own
// region of the sample's random stream, so one more draw in one transform moves nothing in the others. Branches of
// `one_of` and `maybe` keep their regions whether they are taken or not. `random_order` also keeps each transform's
// region; only the order in which the transforms run changes.
//
// Automatic augmentations. torchvision computes magnitudes with `torch.linspace` in float32: a fused multiply-add from
// the nearer end. We compute the same, because a translation depends on the image's size, and test it against torch's
// own tables. AugMix's chains run as on PIL images, and only the final sum is torchvision's, which runs the chains on
// tensors: otherwise one operation would have two arithmetics. timm shears and translates with a matrix, and by
// fractions of a pixel. torchvision's angles would change the last digit of a number, and at some levels points lie
// exactly on pixel centers, where bilinear sampling would then drop a whole value. So `affine_matrix` exists beside
// `affine`, and the matrix is in the recipe. `mix` has a blend of its own because timm first rounds the sum of
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
// Points. An operation that reads the whole image says whether it moves pixels. If it does, `PointMap` refuses it
// instead of guessing where points go.

mod affine;
mod affine_matrix;
mod aug_mix;
mod auto_augment;
mod autocontrast;
pub(crate) mod blend;
pub(crate) mod brightness;
pub(crate) mod center_crop;
pub(crate) mod check;
pub(crate) mod color_jitter;
pub(crate) mod combine;
pub(crate) mod contrast;
mod corner_crop;
pub(crate) mod crop;
pub(crate) mod custom;
pub(crate) mod dilate;
mod elastic;
mod equalize;
pub(crate) mod erase;
pub(crate) mod erode;
pub(crate) mod fill;
pub(crate) mod filter;
pub(crate) mod gaussian_blur;
mod gaussian_noise;
pub(crate) mod grayscale;
pub(crate) mod hflip;
mod histogram;
pub(crate) mod hue;
mod interpolations;
pub(crate) mod invert;
mod jpeg;
pub(crate) mod kernel;
mod magnitude;
mod mix;
pub(crate) mod noise;
pub(crate) mod normalize;
pub(crate) mod orientation;
mod pad;
pub(crate) mod params;
mod permute_channels;
mod perspective;
mod photometric_distort;
mod pillow_gaussian_blur;
mod point_map;
pub(crate) mod points;
mod posterize;
mod rand_augment;
pub(crate) mod rank;
pub(crate) mod rectangle;
pub(crate) mod resize;
pub(crate) mod resized_crop;
pub(crate) mod rotate;
pub(crate) mod rotation;
pub(crate) mod sampling;
pub(crate) mod saturation;
mod sharpness;
pub(crate) mod solarize;
mod solarize_add;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod timm_augment;
mod timm_kind;
mod timm_policy;
pub(crate) mod transform;
mod trivial_augment;
pub(crate) mod turn;
pub(crate) mod vflip;
pub(crate) mod written;

pub use crate::rng::SampleRng;
pub use auto_augment::AutoAugmentPolicy;
pub use corner_crop::Corner;
pub use custom::Custom;
pub use erase::ErasingNoise;
pub use fill::{Edge, Fill};
pub use filter::{Interpolation, PassOrder};
pub use interpolations::Interpolations;
pub use mix::Chain;
pub use pad::PadMode;
pub use point_map::PointMap;
pub use resize::ResizeTo;
pub use transform::{
    AugMix, AutoAugment, ColorJitter, CornerCrop, CustomTransform, Maybe, OneOf, RandAugment, RandomAffine,
    RandomAutocontrast, RandomChannelPermutation, RandomCrop, RandomDilation, RandomElastic, RandomEqualize,
    RandomErasing, RandomErosion, RandomGaussianBlur, RandomGaussianNoise, RandomGrayscale, RandomHorizontalFlip,
    RandomInvert, RandomJpeg, RandomOrder, RandomPerspective, RandomPhotometricDistort, RandomPillowGaussianBlur,
    RandomPosterize, RandomResizedCrop, RandomRotation, RandomSharpness, RandomSolarize, RandomVerticalFlip, Repeat,
    TimmAugment, Transform, TrivialAugment, color_jitter, gaussian_blur, maybe, one_of, random_crop, random_dilation,
    random_erasing, random_erosion, random_grayscale, random_horizontal_flip, random_order, random_resized_crop,
    random_rotation, random_vertical_flip, repeat, three_augment,
};
pub use written::TransformFile;

use crate::error::{Error, Result};
use crate::raster::{Image, Rect, Size};
use check::MAX_SIDE_PX;
use kernel::{Kernel, Launcher};
use sampling::Sampling;
use serde::{Deserialize, Serialize};
use std::fmt;
use table::Table;
use turn::Turn;

/// What every operation says of itself. Nothing has a default, so that nothing can be forgotten.
pub(crate) trait Operation: fmt::Debug {
    /// The name as written in a recipe.
    fn name(&self) -> &'static str;

    /// Checks every parameter that can be checked without an image.
    fn validate(&self) -> Result<()>;

    /// The size of the result for an image of size `input`. The parameters are valid.
    fn output_size(&self, input: Size) -> Result<Size>;

    /// What it does to the size of any image.
    fn size_effect(&self) -> SizeEffect;

    /// What a plan makes of it, on an image of size `input`.
    fn primitive(&self, input: Size) -> Primitive;

    /// Runs it on the CPU.
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()>;

    /// Queues its kernels for the part `part` of its result.
    fn launch(&self, on: &mut dyn Launcher, part: Rect) -> Result<()>;
}

/// What an operation is to a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Primitive {
    /// It changes nothing.
    Identity,
    /// It moves pixels and changes none.
    Turn(Turn),
    /// It cuts out the rectangle of its result's size at (`x`, `y`), beyond the image filled with `fill`.
    Crop {
        /// First column, may be negative.
        x: i32,
        /// First row, may be negative.
        y: i32,
        /// What shows outside the image.
        fill: Fill,
    },
    /// It samples through an affine map.
    Affine(Sampling),
    /// It resizes a rectangle of the image to its result's size.
    Resample {
        /// The rectangle.
        window: Rect,
        /// The filter.
        interpolation: Interpolation,
    },
    /// It makes each byte anew from that byte alone.
    Table(Table),
    /// It needs a pass of its own.
    Pass(Reach),
}

/// Which part of an image a pass reads to make a part of its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The same part and so many pixels around it, as far as the image has them.
    Around(u32),
    /// The complete image, for what its values are as a whole, and it makes a complete result. Each pixel stays at its
    /// place.
    Values,
    /// The complete image, and it makes a complete result.
    Whole,
}

/// What an operation or a transform does to the size of any image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeEffect {
    /// Keeps it.
    Keeps,
    /// Makes it this one.
    Becomes(Size),
    /// Depends on the image or on the draw.
    Varies,
}

/// What a pass on the CPU works on.
pub(crate) struct CpuPass<'a> {
    /// What the pass reads, by its [`Reach`]; afterwards its result.
    pub(crate) image: &'a mut Image,
    /// Memory for the result of a pass that cannot work in place.
    pub(crate) spare: &'a mut Image,
    /// The part of the result to be made.
    pub(crate) part: Rect,
    /// Which pass of a resize comes first.
    pub(crate) order: PassOrder,
}

impl CpuPass<'_> {
    /// Makes the result, of which `size` pixels are stored, out of place: `make` reads the image and resets and fills the
    /// result.
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
    ($($(#[$doc:meta])* $module:ident: $name:ident,)*) => {
        $(pub use $module::$name;)*

        /// One operation with explicit parameters, as written in a recipe (`{"op": "rotate", "degrees": 5, ...}`).
        ///
        /// Applied to an image of RGB pixels with 8 bits a channel. [`Normalize`] turns it into `f32` and may be followed
        /// by [`Erase`] only. Each operation is a type of its own, which becomes an `Op` by `into()`:
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
        #[serde(tag = "op", rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum Op {
            $($(#[$doc])* $name($name),)*
            /// Code of the caller's own. Runs on the CPU; cannot be written down.
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
            fn operation(&self) -> &dyn Operation {
                match self {
                    $(Self::$name(op) => op,)*
                    Self::Custom(op) => op,
                }
            }

            /// Operations of every kind for an image of size `size`, with parameters that serve different code: for
            /// tests and benches. [`Custom`](Self::Custom) is not among them.
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

        /// The kernels of each operation.
        const KERNELS: &[&[Kernel]] = &[$($name::KERNELS,)*];
    };
}

operations! {
    /// Mirrors left and right.
    hflip: Hflip,
    /// Mirrors top and bottom.
    vflip: Vflip,
    /// Turns about the center.
    rotate: Rotate,
    /// Turns, scales, shears and moves.
    affine: Affine,
    /// Samples by a matrix.
    affine_matrix: AffineMatrix,
    /// Resizes the whole image.
    resize: Resize,
    /// Cuts out a rectangle, which may reach beyond the image.
    crop: Crop,
    /// Cuts out the center.
    center_crop: CenterCrop,
    /// Cuts out a rectangle, then resizes it.
    resized_crop: ResizedCrop,
    /// Gaussian blur.
    gaussian_blur: GaussianBlur,
    /// The largest value of a square of pixels, for each channel.
    dilate: Dilate,
    /// The smallest value of a square of pixels, for each channel.
    erode: Erode,
    /// Blends with black.
    brightness: Brightness,
    /// Blends with the image's mean gray.
    contrast: Contrast,
    /// Blends with the image's gray version.
    saturation: Saturation,
    /// Turns the hue.
    hue: Hue,
    /// Luma in all three channels.
    grayscale: Grayscale,
    /// Puts the channels in another order.
    permute_channels: PermuteChannels,
    /// Adds normal noise.
    gaussian_noise: GaussianNoise,
    /// Each value from 255.
    invert: Invert,
    /// Keeps the upper bits of each value.
    posterize: Posterize,
    /// Inverts the values from a threshold on.
    solarize: Solarize,
    /// Spreads each channel's values evenly.
    equalize: Equalize,
    /// Stretches each channel's values to 0 to 255.
    autocontrast: Autocontrast,
    /// Blends with a smoothed version.
    sharpness: Sharpness,
    /// Adds up what chains of operations make of the image.
    mix: Mix,
    /// Adds rows and columns on each side.
    pad: Pad,
    /// Moves four points to four others.
    perspective: Perspective,
    /// Moves each pixel by a displacement of its own.
    elastic: Elastic,
    /// Pillow's Gaussian blur.
    pillow_gaussian_blur: PillowGaussianBlur,
    /// Adds to dark values.
    solarize_add: SolarizeAdd,
    /// Encodes as JPEG and decodes again.
    jpeg: Jpeg,
    /// Overwrites a rectangle.
    erase: Erase,
    /// To `f32`, normalized.
    normalize: Normalize,
}

impl Op {
    /// The operation's name as written in a recipe.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.operation().name()
    }

    /// Checks every parameter that can be checked without an image.
    ///
    /// # Errors
    /// [`Error::Parameter`] with what is allowed.
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

    /// What it does to the size of any image.
    pub(crate) fn size_effect(&self) -> SizeEffect {
        self.operation().size_effect()
    }

    /// What a plan makes of it, on an image of size `input`.
    pub(crate) fn primitive(&self, input: Size) -> Primitive {
        self.operation().primitive(input)
    }

    /// Runs it on the CPU.
    pub(crate) fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        self.operation().pass(pass)
    }

    /// Queues its kernels for the part `part` of its result.
    pub(crate) fn launch(&self, on: &mut dyn Launcher, part: Rect) -> Result<()> {
        self.operation().launch(on, part)
    }

    /// Applies it to a complete image, which becomes the result. `spare` is memory.
    pub(crate) fn apply(&self, order: PassOrder, image: &mut Image, spare: &mut Image) -> Result<()> {
        debug_assert_eq!(image.part(), Rect::full(image.whole()), "apply takes complete images");
        let part = Rect::full(self.output_size(image.size())?);
        self.pass(&mut CpuPass { image, spare, part, order })
    }

    /// Whether only the CPU can run it.
    pub(crate) fn needs_cpu(&self) -> bool {
        match self {
            Self::Custom(_) | Self::Jpeg(_) => true,
            Self::Mix(mix) => mix.chains.iter().flat_map(|chain| &chain.ops).any(Self::needs_cpu),
            _ => false,
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operation().fmt(f)
    }
}
