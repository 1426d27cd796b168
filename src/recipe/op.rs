//! Explicit operations: what is left of an augmentation once its random draws are made.

use crate::error::{Error, Result};
use crate::image::Size;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// How pixels between pixels are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interpolation {
    /// The pixel whose area contains the point.
    Nearest,
    /// Triangle filter, antialiased when it shrinks.
    #[default]
    Bilinear,
    /// Cubic convolution with a = -0.5, antialiased when it shrinks.
    Bicubic,
    /// Windowed sinc over three lobes, antialiased when it shrinks.
    Lanczos,
}

/// What a pixel from outside the image looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "fill must be [r, g, b] with values 0 to 255, or \"edge\"")]
pub enum Fill {
    /// One colour: red, green, blue.
    Color([u8; 3]),
    /// The nearest pixel of the image's edge.
    Edge(Edge),
}

/// The word `"edge"` in a written recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Edge {
    /// Repeat the edge.
    Edge,
}

impl Fill {
    /// Black.
    pub const BLACK: Self = Self::Color([0, 0, 0]);
    /// The nearest pixel of the image's edge.
    pub const EDGE: Self = Self::Edge(Edge::Edge);
}

impl Default for Fill {
    fn default() -> Self {
        Self::BLACK
    }
}

/// To which size an image is resized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeTo {
    /// This width and height, whatever the aspect.
    Exact(Size),
    /// The shorter side becomes this many pixels; the longer `int(size * longer / shorter)`, as torchvision has it.
    ShorterSide(u32),
}

/// Parameters of [`Op::Resize`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ResizeFields", into = "ResizeFields")]
pub struct Resize {
    /// The size to reach.
    pub to: ResizeTo,
    /// The filter.
    pub interpolation: Interpolation,
}

/// [`Resize`] as it is written down.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResizeFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    width: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    height: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u32>,
    #[serde(default)]
    interpolation: Interpolation,
}

impl TryFrom<ResizeFields> for Resize {
    type Error = &'static str;

    fn try_from(fields: ResizeFields) -> Result<Self, Self::Error> {
        let to = match (fields.width, fields.height, fields.size) {
            (Some(width), Some(height), None) => ResizeTo::Exact(Size { width, height }),
            (None, None, Some(size)) => ResizeTo::ShorterSide(size),
            _ => return Err("resize needs either width and height, or size (the shorter side)"),
        };
        Ok(Self { to, interpolation: fields.interpolation })
    }
}

impl From<Resize> for ResizeFields {
    fn from(resize: Resize) -> Self {
        let (width, height, size) = match resize.to {
            ResizeTo::Exact(size) => (Some(size.width), Some(size.height), None),
            ResizeTo::ShorterSide(side) => (None, None, Some(side)),
        };
        Self { width, height, size, interpolation: resize.interpolation }
    }
}

/// One operation with explicit parameters, as written in a recipe (`{"op": "rotate", "degrees": 5, ...}`).
///
/// Applied to an image of RGB pixels with 8 bits a channel. [`Normalize`](Self::Normalize) turns it into `f32` and may
/// be followed by [`Erase`](Self::Erase) only.
///
/// ```
/// use warpfeed::{Fill, Interpolation, Op};
///
/// let ops: Vec<Op> = serde_json::from_str(r#"[{"op": "hflip"}, {"op": "rotate", "degrees": 5, "fill": "edge"}]"#)?;
/// let (degrees, interpolation, expand) = (5.0, Interpolation::Nearest, false);
/// assert_eq!(ops, [Op::Hflip, Op::Rotate { degrees, interpolation, expand, fill: Fill::EDGE }]);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Op {
    /// Mirrors left and right.
    Hflip,
    /// Mirrors top and bottom.
    Vflip,
    /// Turns counter-clockwise about the centre.
    ///
    /// With a colour as fill: Pillow's arithmetic, and with `expand` Pillow's canvas. With [`Fill::EDGE`]: DALI's
    /// `fn.rotate`, canvas and all.
    Rotate {
        /// Counter-clockwise angle, any finite value.
        degrees: f64,
        /// [`Nearest`](Interpolation::Nearest) or [`Bilinear`](Interpolation::Bilinear).
        #[serde(default = "nearest")]
        interpolation: Interpolation,
        /// Whether the canvas grows to hold every corner.
        #[serde(default)]
        expand: bool,
        /// What shows outside the image.
        #[serde(default)]
        fill: Fill,
    },
    /// Resizes the whole image, antialiased, with Pillow's arithmetic.
    Resize(Resize),
    /// Cuts out a rectangle. Where it reaches beyond the image, `fill` shows.
    Crop {
        /// First column, may be negative.
        x: i32,
        /// First row, may be negative.
        y: i32,
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// What shows outside the image.
        #[serde(default)]
        fill: Fill,
    },
    /// Cuts out the centre; what is missing on any side is black, as in torchvision.
    CenterCrop {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// Cuts out a rectangle inside the image, then resizes it as an image of its own.
    ResizedCrop {
        /// First column.
        x: u32,
        /// First row.
        y: u32,
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// Columns after resizing.
        out_width: u32,
        /// Rows after resizing.
        out_height: u32,
        /// The filter.
        #[serde(default)]
        interpolation: Interpolation,
    },
    /// Gaussian blur with reflected edges.
    GaussianBlur {
        /// Side of the kernel in pixels, odd.
        kernel: u32,
        /// Standard deviation in pixels, above 0.
        sigma: f64,
    },
    /// The largest value of a square of pixels, for each channel.
    Dilate {
        /// Side of the square in pixels.
        kernel: u32,
    },
    /// The smallest value of a square of pixels, for each channel.
    Erode {
        /// Side of the square in pixels.
        kernel: u32,
    },
    /// Blends with black.
    Brightness {
        /// 0 is black, 1 unchanged.
        factor: f64,
    },
    /// Blends with the image's mean grey.
    Contrast {
        /// 0 is grey, 1 unchanged.
        factor: f64,
    },
    /// Blends with the image's grey version.
    Saturation {
        /// 0 is grey, 1 unchanged.
        factor: f64,
    },
    /// Turns the hue.
    Hue {
        /// Part of a full turn, -0.5 to 0.5.
        factor: f64,
    },
    /// Luma (ITU-R 601) in all three channels.
    Grayscale,
    /// Overwrites a rectangle.
    Erase {
        /// First column.
        x: u32,
        /// First row.
        y: u32,
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// Red, green, blue: 0 to 255 before [`Normalize`](Self::Normalize), in normalised units after it.
        #[serde(default)]
        value: [f32; 3],
    },
    /// To `f32`: `(v / 255 - mean) / std` for each channel.
    Normalize {
        /// Mean of red, green, blue, of values in 0 to 1; from -3 to 3.
        mean: [f32; 3],
        /// Standard deviation of red, green, blue, of values in 0 to 1; above 0, up to 10.
        std: [f32; 3],
    },
    /// Code of the caller's own. Runs on the CPU; cannot be written down.
    #[serde(skip)]
    Custom(CustomOp),
}

fn nearest() -> Interpolation {
    Interpolation::Nearest
}

/// A pixel operation of the caller's own, its random draws already made.
#[derive(Clone)]
pub struct CustomOp {
    /// The operation's name, for messages.
    pub name: &'static str,
    /// Changes the pixels of a complete image in place. It must not change the image's size.
    pub apply: Arc<dyn Fn(&mut crate::image::Image) + Send + Sync>,
}

impl fmt::Debug for CustomOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomOp({})", self.name)
    }
}

impl PartialEq for CustomOp {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.apply, &other.apply)
    }
}

/// Largest side of an image in pixels, at any point of a recipe.
pub(crate) const MAX_SIDE_PX: u32 = 65_535;
/// Largest side of a kernel in pixels.
pub(crate) const MAX_KERNEL_PX: u32 = 255;
/// Largest mean and std of a normalization: what is larger is meant for values of 0 to 255.
const MAX_MEAN: f32 = 3.0;
const MAX_STD: f32 = 10.0;

impl Op {
    /// The operation's name as written in a recipe.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hflip => "hflip",
            Self::Vflip => "vflip",
            Self::Rotate { .. } => "rotate",
            Self::Resize(_) => "resize",
            Self::Crop { .. } => "crop",
            Self::CenterCrop { .. } => "center_crop",
            Self::ResizedCrop { .. } => "resized_crop",
            Self::GaussianBlur { .. } => "gaussian_blur",
            Self::Dilate { .. } => "dilate",
            Self::Erode { .. } => "erode",
            Self::Brightness { .. } => "brightness",
            Self::Contrast { .. } => "contrast",
            Self::Saturation { .. } => "saturation",
            Self::Hue { .. } => "hue",
            Self::Grayscale => "grayscale",
            Self::Erase { .. } => "erase",
            Self::Normalize { .. } => "normalize",
            Self::Custom(custom) => custom.name,
        }
    }

    /// Checks every parameter that can be checked without an image.
    ///
    /// # Errors
    /// [`Error::Parameter`] with what is allowed.
    pub fn validate(&self) -> Result<()> {
        let name = self.name();
        let side = |parameter, value: u32| {
            if value == 0 || value > MAX_SIDE_PX {
                return Err(Error::parameter(name, parameter, format!("1 to {MAX_SIDE_PX} pixels"), value));
            }
            Ok(())
        };
        let factor = |value: f64| {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::parameter(name, "factor", "a finite number, 0 or more", value));
            }
            Ok(())
        };
        match *self {
            Self::Rotate { degrees, interpolation, .. } => {
                if !degrees.is_finite() {
                    return Err(Error::parameter(name, "degrees", "a finite number", degrees));
                }
                if !matches!(interpolation, Interpolation::Nearest | Interpolation::Bilinear) {
                    let got = format!("{interpolation:?}").to_lowercase();
                    return Err(Error::parameter(name, "interpolation", "nearest or bilinear", got));
                }
            }
            Self::Resize(Resize { to: ResizeTo::Exact(size), .. }) => {
                side("width", size.width)?;
                side("height", size.height)?;
            }
            Self::Resize(Resize { to: ResizeTo::ShorterSide(size), .. }) => side("size", size)?,
            Self::Crop { x, y, width, height, .. } => {
                side("width", width)?;
                side("height", height)?;
                let limit = MAX_SIDE_PX as i32;
                for (parameter, value) in [("x", x), ("y", y)] {
                    if value.abs() > limit {
                        return Err(Error::parameter(name, parameter, format!("-{limit} to {limit}"), value));
                    }
                }
            }
            Self::CenterCrop { width, height } => {
                side("width", width)?;
                side("height", height)?;
            }
            Self::ResizedCrop { width, height, out_width, out_height, .. } => {
                side("width", width)?;
                side("height", height)?;
                side("out_width", out_width)?;
                side("out_height", out_height)?;
            }
            Self::GaussianBlur { kernel, sigma } => {
                if kernel % 2 == 0 || kernel > MAX_KERNEL_PX {
                    let expected = format!("odd, 1 to {MAX_KERNEL_PX} pixels");
                    return Err(Error::parameter(name, "kernel", expected, kernel));
                }
                if !(sigma.is_finite() && sigma > 0.0) {
                    return Err(Error::parameter(name, "sigma", "a finite number of pixels above 0", sigma));
                }
            }
            Self::Dilate { kernel } | Self::Erode { kernel } => {
                if kernel == 0 || kernel > MAX_KERNEL_PX {
                    return Err(Error::parameter(name, "kernel", format!("1 to {MAX_KERNEL_PX} pixels"), kernel));
                }
            }
            Self::Brightness { factor: f } | Self::Contrast { factor: f } | Self::Saturation { factor: f } => {
                factor(f)?;
            }
            Self::Hue { factor } => {
                if !(-0.5..=0.5).contains(&factor) {
                    return Err(Error::parameter(name, "factor", "-0.5 to 0.5", factor));
                }
            }
            Self::Erase { width, height, value, .. } => {
                side("width", width)?;
                side("height", height)?;
                if value.iter().any(|v| !v.is_finite()) {
                    return Err(Error::parameter(name, "value", "three finite numbers", format!("{value:?}")));
                }
            }
            Self::Normalize { mean, std } => {
                if !mean.iter().all(|v| v.abs() <= MAX_MEAN) {
                    let expected = format!("three numbers from -{MAX_MEAN} to {MAX_MEAN}, for values of 0 to 1");
                    return Err(Error::parameter(name, "mean", expected, format!("{mean:?}")));
                }
                if !std.iter().all(|v| *v > 0.0 && *v <= MAX_STD) {
                    let expected = format!("three numbers above 0, up to {MAX_STD}, for values of 0 to 1");
                    return Err(Error::parameter(name, "std", expected, format!("{std:?}")));
                }
            }
            Self::Hflip | Self::Vflip | Self::Grayscale | Self::Custom(_) => {}
        }
        Ok(())
    }

    /// The size of the result for an image of size `input`.
    ///
    /// # Errors
    /// [`Error::Parameter`] if a parameter is out of range or a rectangle that must lie inside the image does not.
    pub fn output_size(&self, input: Size) -> Result<Size> {
        self.validate()?;
        let inside = |x: u32, y: u32, width: u32, height: u32| {
            if (crate::image::Rect { x, y, width, height }).fits(input) {
                return Ok(());
            }
            let got = format!("{width} x {height} at ({x}, {y})");
            Err(Error::parameter(self.name(), "rectangle", format!("inside the image of {input}"), got))
        };
        let output = match *self {
            Self::Rotate { degrees, expand, fill, .. } if expand => super::rotation::canvas(input, degrees, fill),
            Self::Resize(Resize { to: ResizeTo::Exact(size), .. }) => size,
            Self::Resize(Resize { to: ResizeTo::ShorterSide(side), .. }) => {
                let (short, long) = (input.width.min(input.height), input.width.max(input.height));
                // Python: int(size * long / short), the division in double precision.
                let long = ((f64::from(side) * f64::from(long)) / f64::from(short)) as u32;
                if input.width <= input.height { Size::new(side, long) } else { Size::new(long, side) }
            }
            Self::Crop { width, height, .. } | Self::CenterCrop { width, height } => Size::new(width, height),
            Self::ResizedCrop { x, y, width, height, out_width, out_height, .. } => {
                inside(x, y, width, height)?;
                Size::new(out_width, out_height)
            }
            Self::Erase { x, y, width, height, .. } => {
                inside(x, y, width, height)?;
                input
            }
            _ => input,
        };
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
}
