//! Operations on images that are not RGB of 8 bits: any element type, any number of channels.
//!
//! A channel is an image of its own: no operation mixes channels unless it is about color, and then it takes RGB of 8
//! bits alone. Which source pixel is read, and with what weight, never depends on the element type. References: NumPy
//! for copies; Pillow's modes `I;16` and `F` for resizes, `I` (limited to 0 to 65,535) and `F` for maps, channel by
//! channel; torchvision's tensors for brightness, inverting and posterizing. NaN and infinity go through copies as they
//! are, and through filters as arithmetic says; what dilation and erosion make of NaN is not defined. An alpha channel
//! is a channel like any other.

mod launch;

pub(super) use launch::KERNELS;

use super::affine_warp::AffineWarp;
use super::byte_table::ByteTable;
use super::filter::{self, PassOrder};
use super::gaussian_blur::BlurAxis;
use super::pad::PadMode;
use super::resize::{Resample, Resampling};
use super::turn::Turn;
use super::{ChannelList, ChannelNumbers, Interpolation, Op, Overwrite, Primitive};
use crate::error::{Error, Result};
use crate::raster::{Rect, Size};
use std::sync::Arc;
use warpfeed_image::planes::{Element, PixelKind};

/// The values of images: their type, the number of channels, and the largest value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PixelValues {
    pub(crate) kind: PixelKind,
    /// The value that stands for 1: of 12 bits in 16 it is 4,095.
    pub(crate) max_value: f32,
}

impl PixelValues {
    /// Red, green and blue of 8 bits.
    pub(crate) const RGB8: Self = Self::of(PixelKind::RGB8);

    /// Values that fill their type.
    pub(crate) const fn of(kind: PixelKind) -> Self {
        Self { kind, max_value: kind.element.max_value() }
    }

    pub(crate) fn is_rgb8(&self) -> bool {
        self.kind == PixelKind::RGB8
    }

    /// Whether the values are whole numbers.
    pub(crate) fn are_whole(&self) -> bool {
        self.kind.element != Element::F32
    }

    /// Checks the value that stands for 1.
    pub(crate) fn check_max(&self) -> Result<()> {
        let (most, max) = (self.kind.element.max_value(), self.max_value);
        let expected = if self.are_whole() && !(max > 0.0 && max <= most && max.fract() == 0.0) {
            format!("a whole number up to {most}")
        } else if !(max > 0.0 && max.is_finite()) {
            "a finite number above 0".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::parameter("pixels", "max_value", expected, max))
    }

    /// Checks that there is one number, or one for each channel.
    pub(crate) fn fit(&self, name: &'static str, parameter: &'static str, numbers: ChannelNumbers) -> Result<()> {
        if numbers.fit(self.kind.channels) {
            return Ok(());
        }
        let expected = format!("one number, or {} for the image's channels", self.kind.channels);
        Err(Error::parameter(name, parameter, expected, format!("{numbers:?}")))
    }

    /// Checks numbers in the image's units.
    pub(crate) fn check(&self, name: &'static str, parameter: &'static str, numbers: ChannelNumbers) -> Result<()> {
        self.fit(name, parameter, numbers)?;
        let most = self.kind.element.max_value();
        if self.are_whole() && !numbers.as_slice().iter().all(|number| (0.0..=most).contains(number)) {
            return Err(Error::parameter(name, parameter, format!("numbers from 0 to {most}"), format!("{numbers:?}")));
        }
        Ok(())
    }

    /// The error for an operation that does not take such images.
    pub(crate) fn refused(&self, name: &str) -> Error {
        let what = if self.kind.element == Element::U8 { "" } else { " of 8 bits" };
        let needs = if self.kind.channels == 3 { "values" } else { "red, green and blue" };
        Error::Unsupported {
            feature: format!("{name} on images of {}", self.kind),
            remedy: format!("it needs {needs}{what}: leave it out, or read the images as RGB of 8 bits"),
        }
    }
}

/// The work of an operation on the values of an image.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ValueWork {
    /// Changes nothing.
    Keep,
    /// Moves pixels and changes none.
    Turn(Turn),
    /// Cuts out a rectangle of the result's size at (`x`, `y`). Outside the image are these numbers, or the edge.
    Crop { x: i32, y: i32, fill: Option<ChannelNumbers> },
    /// Adds mirrored rows and columns; so many are before the first.
    Mirror { left: u32, top: u32, mode: PadMode },
    /// Resizes a rectangle of the image.
    Resample { window: Rect, resampling: Resampling },
    /// Samples through an affine map.
    Affine(AffineWarp),
    /// Samples through a projective map.
    Perspective(Projective),
    /// Gaussian blur.
    Blur { axes: [BlurAxis; 2] },
    /// Takes the largest value in a square, or the smallest.
    Extreme { kernel: u32, largest: bool },
    /// Replaces each value by a function of that value.
    Points(PointForm),
    /// Adds normal noise, in the image's units.
    Noise { mean: f32, sigma: f32, clip: bool, key: u64 },
    /// Overwrites a rectangle.
    Erase(Overwrite),
    /// Takes these channels, in this order.
    Select(ChannelList),
}

/// A map from pixel centers of the result to points of the image, `(a x + b y + c) / (g x + h y + 1)`,
/// `(d x + e y + f) / (g x + h y + 1)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Projective {
    /// a to h.
    pub(crate) map: [f64; 8],
    pub(crate) interpolation: Interpolation,
    pub(crate) fill: ChannelNumbers,
}

/// A function of single values. `max` is the value that stands for 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PointForm {
    /// Looks 8-bit values up.
    Bytes(Box<ByteTable>),
    /// Looks 16-bit values up.
    Words(Arc<[u16]>),
    /// `max - v`.
    Invert { max: f32 },
    /// `v` below the threshold, else `max - v`.
    Solarize { threshold: f64, max: f32 },
    /// Keeps these bits.
    Mask(u16),
    /// `v * factor`; whole numbers drop the fraction and are limited to 0 to `max`.
    Scale { factor: f32, max: f32 },
}

impl ValueWork {
    /// The work of an operation whose form in a plan is known; `None` if it takes no such images.
    pub(crate) fn of(primitive: Primitive<'_>, pixels: &PixelValues, size: Size, order: PassOrder) -> Option<Self> {
        Some(match primitive {
            Primitive::Identity => Self::Keep,
            Primitive::Turn(turn) => Self::Turn(turn),
            Primitive::Crop { x, y, fill } => Self::Crop { x, y, fill: fill.values() },
            Primitive::Affine(warp) => Self::Affine(warp),
            Primitive::Resample(of) => {
                let Resample { window, .. } = of;
                let (factors, resampling) = of.steps(size, order);
                if !factors.is_identity() {
                    return None;
                }
                Self::Resample { window, resampling }
            }
            Primitive::Table(table) if pixels.kind.element == Element::U8 => {
                Self::Points(PointForm::Bytes(Box::new(table)))
            }
            Primitive::Table(_) | Primitive::Pass(..) => return None,
        })
    }

    /// The kind of the result.
    pub(crate) fn kind(&self, before: PixelKind) -> PixelKind {
        match self {
            Self::Select(list) => PixelKind { channels: list.as_slice().len() as u16, ..before },
            _ => before,
        }
    }

    /// The part of an image of size `input` that is read to make `part` of the result. It is never empty.
    pub(crate) fn reads(&self, part: Rect, input: Size) -> Rect {
        let around = |margin: u32| {
            let (x, y) = (part.x.saturating_sub(margin), part.y.saturating_sub(margin));
            let (right, bottom) =
                ((part.right() + margin).min(input.width), (part.bottom() + margin).min(input.height));
            Rect { x, y, width: right - x, height: bottom - y }
        };
        // The pixels from `first` to before `end`, as far as there are any, and at least one.
        let clipped = |first: i64, end: i64, len: u32| {
            let last = i64::from(len) - 1;
            let (first, last) = (first.clamp(0, last), (end - 1).clamp(0, last));
            (first as u32, (last - first) as u32 + 1)
        };
        match self {
            Self::Keep | Self::Points(_) | Self::Noise { .. } | Self::Erase(_) | Self::Select(_) => part,
            Self::Turn(turn) => turn.map(input).rect(part),
            Self::Crop { x, y, .. } => {
                let along = |start: u32, side: u32, by: i32, len: u32| {
                    let first = i64::from(start) + i64::from(by);
                    clipped(first, first + i64::from(side), len)
                };
                let (x, width) = along(part.x, part.width, *x, input.width);
                let (y, height) = along(part.y, part.height, *y, input.height);
                Rect { x, y, width, height }
            }
            Self::Resample { window, resampling: Resampling { columns, rows, interpolation, .. } } => {
                let columns = filter::reach(*columns, part.x..part.right(), *interpolation);
                let rows = filter::reach(*rows, part.y..part.bottom(), *interpolation);
                Rect {
                    x: window.x + columns.start,
                    y: window.y + rows.start,
                    width: columns.end - columns.start,
                    height: rows.end - rows.start,
                }
            }
            Self::Affine(warp) => warp.reach(part, input),
            Self::Mirror { .. } | Self::Perspective(_) => Rect::full(input),
            Self::Blur { axes } => around(axes[0].0.max(axes[1].0) / 2),
            Self::Extreme { kernel, .. } => around(kernel / 2),
        }
    }
}

/// Whether the part `part` of a crop at (`x`, `y`) is what an image holds.
pub(crate) fn is_held(held: Rect, x: i32, y: i32, part: Rect) -> bool {
    let is = |held: u32, start: u32, by: i32| i64::from(held) == i64::from(start) + i64::from(by);
    held.size() == part.size() && is(held.x, part.x, x) && is(held.y, part.y, y)
}

/// The rectangle that two have in common.
pub(crate) fn common(a: Rect, b: Rect) -> Option<Rect> {
    let (x, y) = (a.x.max(b.x), a.y.max(b.y));
    let (right, bottom) = (a.right().min(b.right()), a.bottom().min(b.bottom()));
    (x < right && y < bottom).then(|| Rect { x, y, width: right - x, height: bottom - y })
}

impl Op {
    /// Checks whether the operation takes images with these values.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it does not; [`Error::Parameter`] for numbers that do not fit the image's channels.
    pub(crate) fn takes(&self, pixels: &PixelValues) -> Result<()> {
        if let Some((parameter, numbers)) = self.operation().numbers() {
            pixels.check(self.name(), parameter, numbers)?;
        }
        self.operation().check_values(pixels)?;
        if pixels.is_rgb8() || self.finish().is_some() {
            return Ok(());
        }
        // The size does not decide it, but an operation may want one.
        const NOMINAL: Size = Size::new(1024, 1024);
        let size = self.operation().output_size(NOMINAL).unwrap_or(NOMINAL);
        match self.operation().values(pixels, NOMINAL, size, PassOrder::default()) {
            Some(_) => Ok(()),
            None => Err(pixels.refused(self.name())),
        }
    }
}
