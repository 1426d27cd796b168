//! Operations of the caller.

use super::kernel::CallRecorder;
use super::transform::Transform;
use super::{CpuPass, FieldContext, Op, Operation, Pass, Primitive, Reach, SizeEffect};
use crate::error::{Error, Result};
use crate::fields::motion::{Motion, PointFunction};
use crate::raster::{Image, Rect, Size};
use std::fmt;
use std::sync::Arc;

type Apply = dyn Fn(&mut Image) + Send + Sync;
type OutputSize = dyn Fn(Size) -> Size + Send + Sync;

/// The caller's own operation, with its random numbers already drawn. It runs on the CPU and has no written form.
///
/// ```
/// use warpfeed::{ops::{Custom, Op}, image::{Image, Size}};
///
/// // Every second row and column.
/// let half = |size: Size| Size::new(size.width.div_ceil(2), size.height.div_ceil(2));
/// let thin = Custom::new("thin", move |image: &mut Image| {
///     let mut thin = Image::new(half(image.size()));
///     for y in 0..thin.size().height {
///         let row = image.row(2 * y).iter().step_by(2);
///         thin.row_mut(y).iter_mut().zip(row).for_each(|(to, from)| *to = *from);
///     }
///     *image = thin;
/// });
/// let op: Op = thin.output_size(half).into();
/// assert_eq!(op.output_size(Size::new(41, 30))?, Size::new(21, 15));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Clone)]
pub struct Custom {
    pub(super) name: &'static str,
    apply: Arc<Apply>,
    /// The function for the result's size. `None` if the operation keeps the size.
    output_size: Option<Arc<OutputSize>>,
    keeps_places: bool,
    /// The caller's map of points. `None` if it is not known where they go.
    points: Option<PointFunction>,
}

impl Custom {
    /// An operation that changes the pixels of a complete image and keeps its size. Messages use `name`.
    #[must_use]
    pub fn new(name: &'static str, apply: impl Fn(&mut Image) + Send + Sync + 'static) -> Self {
        Self { name, apply: Arc::new(apply), output_size: None, keeps_places: false, points: None }
    }

    /// Sets the function that computes the result's size from the image's size. It must return the size that the
    /// operation really makes.
    #[must_use]
    pub fn output_size(mut self, size: impl Fn(Size) -> Size + Send + Sync + 'static) -> Self {
        self.output_size = Some(Arc::new(size));
        self
    }

    /// Says that the operation moves no pixel, so that [`PointMap`](super::PointMap) maps boxes and keypoints through
    /// it: each pixel of the result shows what the same pixel showed before, as after a change of color or noise.
    #[must_use]
    pub fn keeps_places(mut self) -> Self {
        self.keeps_places = true;
        self
    }

    /// Says where the operation moves points, so that boxes and keypoints follow it: `map` gets a point in pixels from
    /// the image's upper left corner, and the image's size, and returns the point's place in the result. A box becomes
    /// the box around its moved corners.
    #[must_use]
    pub fn points(mut self, map: impl Fn([f32; 2], Size) -> [f32; 2] + Send + Sync + 'static) -> Self {
        self.points = Some(PointFunction(Arc::new(map)));
        self
    }

    /// Checks that it is known where points go.
    pub(super) fn check_following(&self) -> Result<()> {
        if self.points.is_some() || !self.moves_pixels() {
            return Ok(());
        }
        Err(self
            .unknown("fields", "say where points go (Custom::points), or that it moves none (Custom::keeps_places)"))
    }

    fn unknown(&self, what: &str, remedy: &str) -> Error {
        Error::Unsupported { feature: format!("following {what} through {}", self.name), remedy: remedy.to_owned() }
    }
}

impl From<Custom> for Op {
    fn from(op: Custom) -> Self {
        Self::Custom(op)
    }
}

impl From<Custom> for Transform {
    fn from(op: Custom) -> Self {
        Self::Explicit(op.into())
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Custom({})", self.name)
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.apply, &other.apply)
    }
}

impl Operation for Custom {
    fn output_size(&self, input: Size) -> Result<Size> {
        Ok(self.output_size.as_ref().map_or(input, |size| size(input)))
    }

    fn size_effect(&self) -> SizeEffect {
        if self.output_size.is_some() { SizeEffect::Varies } else { SizeEffect::Keeps }
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Pass(self, Reach::Whole)
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        match &self.points {
            Some(map) => Ok(Motion::Mapped(map.clone())),
            None if !self.moves_pixels() => Ok(Motion::Keeps),
            None => {
                Err(self.unknown("points", "say where they go (Custom::points), or that it moves none (keeps_places)"))
            }
        }
    }

    fn on_field(&self, _input: Size, _how: &FieldContext) -> Result<Option<Op>> {
        if self.moves_pixels() {
            Err(self.unknown("masks", "leave masks out, or draw operations of this crate"))
        } else {
            Ok(None)
        }
    }

    fn has_kernels(&self) -> bool {
        false
    }
}

impl Pass for Custom {
    fn pass(&self, pass: &mut CpuPass<'_>) -> Result<()> {
        let before = pass.image.size();
        let expected = Operation::output_size(self, before)?;
        (self.apply)(pass.image);
        let got = pass.image.size();
        if got == expected {
            return Ok(());
        }
        let expected = match &self.output_size {
            None => format!("of the same size as before, {before}"),
            Some(_) => format!("{expected}, as it says"),
        };
        Err(Error::parameter(self.name, "image", expected, got))
    }

    fn launch(&self, _on: &mut dyn CallRecorder, _part: Rect) -> Result<()> {
        Err(Error::Unsupported {
            feature: format!("{} on a GPU", self.name),
            remedy: "operations of the caller's own run on the CPU".to_owned(),
        })
    }

    fn moves_pixels(&self) -> bool {
        !self.keeps_places || self.output_size.is_some()
    }
}
