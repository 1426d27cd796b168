//! Mirroring left and right, and top and bottom.

use super::kernel::Kernel;
use super::turn::Turn;
use super::{FieldContext, Op, Operation, Primitive};
use crate::error::Result;
use crate::fields::motion::Motion;
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Mirrors left and right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hflip;

impl Hflip {
    pub(super) const KERNELS: &'static [Kernel] = Turn::KERNELS;

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self]
    }
}

impl Operation for Hflip {
    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Turn(Turn::Hflip)
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        Ok(Motion::MirrorX)
    }

    fn on_field(&self, _input: Size, _how: &FieldContext) -> Result<Option<Op>> {
        Ok(Some((*self).into()))
    }
}

with_probability! {
    /// Mirrors left and right with a probability.
    pub struct RandomHorizontalFlip {}

    /// A transform that acts with probability `p`, 0 to 1.
    pub fn new

    draws: Hflip
}

/// Mirrors top and bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vflip;

impl Vflip {
    pub(super) const KERNELS: &'static [Kernel] = Turn::KERNELS;

    pub(super) fn examples(_size: Size) -> Vec<Self> {
        vec![Self]
    }
}

impl Operation for Vflip {
    fn primitive(&self, _input: Size) -> Primitive<'_> {
        Primitive::Turn(Turn::Vflip)
    }

    fn motion(&self, _input: Size) -> Result<Motion> {
        Ok(Motion::MirrorY)
    }

    fn on_field(&self, _input: Size, _how: &FieldContext) -> Result<Option<Op>> {
        Ok(Some((*self).into()))
    }
}

with_probability! {
    /// Mirrors top and bottom with a probability.
    pub struct RandomVerticalFlip {}

    /// A transform that acts with probability `p`, 0 to 1.
    pub fn new

    draws: Vflip
}
