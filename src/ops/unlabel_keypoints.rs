//! Marking keypoints outside the image as not labeled.

use super::kernel::Kernel;
use super::{FieldContext, Op, Operation, Primitive};
use crate::error::Result;
use crate::fields::motion::Motion;
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Gives keypoints outside the image the visibility 0, not labeled, as Ultralytics trains poses. It changes no pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnlabelKeypoints;

impl UnlabelKeypoints {
    pub(super) const KERNELS: &'static [Kernel] = &[];

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self]
    }
}

impl Operation for UnlabelKeypoints {
    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Identity
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        Ok(Motion::Unlabel)
    }

    fn on_field(&self, _input: Size, _how: &FieldContext) -> Result<Option<Op>> {
        Ok(None)
    }
}
