//! Dropping objects by their numbers.

use super::kernel::Kernel;
use super::{FieldContext, Op, Operation, Primitive};
use crate::error::{Error, Result};
use crate::fields::motion::Motion;
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Keeps the objects with these numbers, and drops the others with all their fields. It changes no pixel. Transforms
/// whose rule needs more than the boxes at one place of the recipe put its result into the recipe.
///
/// ```
/// use warpfeed::fields::{BoxFormat, Boxes, Fields};
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::{ApplyOptions, apply_with_fields, ops::KeepObjects, prelude::*};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let boxes = Boxes::new(BoxFormat::Xyxy, vec![[0.0, 0.0, 9.0, 9.0], [5.0, 5.0, 8.0, 8.0]]);
/// let fields = Fields::new().with("boxes", boxes)?.with("labels", vec![3, 4])?;
/// let (_, kept) = apply_with_fields(&jpeg, &fields, &[KeepObjects::new([1]).into()], &ApplyOptions::default())?;
/// assert_eq!(kept.boxes().unwrap().rows(), [[5.0, 5.0, 8.0, 8.0]]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct KeepObjects {
    /// Numbers of the objects that stay, counted from 0, in rising order. Numbers without an object are skipped.
    pub rows: Vec<u32>,
}

impl KeepObjects {
    pub(super) const KERNELS: &'static [Kernel] = &[];

    /// The objects with these numbers, in rising order.
    #[must_use]
    pub fn new(rows: impl IntoIterator<Item = u32>) -> Self {
        Self { rows: rows.into_iter().collect() }
    }

    /// The objects for which `kept` is true.
    pub(super) fn those(kept: impl IntoIterator<Item = bool>) -> Self {
        Self::new((0..).zip(kept).filter(|(_, kept)| *kept).map(|(row, _)| row))
    }

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self::new([0, 2])]
    }
}

impl Operation for KeepObjects {
    fn validate(&self) -> Result<()> {
        if self.rows.is_sorted_by(|row, next| row < next) {
            return Ok(());
        }
        Err(Error::parameter(Self::NAME, "rows", "numbers in rising order", format!("{:?}", self.rows)))
    }

    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Identity
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        Ok(Motion::Keep(self.rows.clone()))
    }

    fn on_field(&self, _input: Size, _how: &FieldContext) -> Result<Option<Op>> {
        Ok(None)
    }

    fn changes_rows(&self) -> bool {
        true
    }
}
