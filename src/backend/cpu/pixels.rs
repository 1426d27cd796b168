//! Runs plans on pixels in memory, which need no decoding.

use super::executor::StageRunner;
use super::output::{Output, Tables};
use super::values::{ValueOutput, ValueRunner};
use crate::error::Result;
use crate::ops::normalize::Normalization;
use crate::plan::Plan;
use crate::raster::Image;
use crate::tensor::DType;
use std::sync::OnceLock;
use warpfeed_image::planes::Planes;

/// The memory of a thread that runs plans without decoding, kept from one image to the next.
#[derive(Default)]
pub(crate) struct PixelRunner {
    stages: StageRunner,
    values: ValueRunner,
}

impl PixelRunner {
    /// The image that [`run`](Self::run) begins with. It must be the part that the plan begins with.
    pub(crate) fn image(&mut self) -> &mut Image {
        &mut self.stages.current
    }

    /// The image that [`run_values`](Self::run_values) begins with. It must be the part that the plan begins with.
    pub(crate) fn planes(&mut self) -> &mut Planes {
        &mut self.values.current
    }

    /// Runs a plan on the image, and writes the result to an output of the plan's size.
    ///
    /// # Errors
    /// The errors of operations.
    pub(crate) fn run(&mut self, plan: &Plan<'_>, output: &mut Output<'_>) -> Result<()> {
        let done = self.stages.run(plan, output);
        self.stages.shrink();
        done
    }

    /// Runs a plan on the planes, and writes the result to an output of the plan's size.
    ///
    /// # Errors
    /// The errors of operations.
    pub(crate) fn run_values(&mut self, plan: &Plan<'_>, max_value: f32, output: &mut ValueOutput<'_>) -> Result<()> {
        let done = self.values.run(plan, max_value, output);
        self.values.shrink();
        done
    }
}

/// The tables of one normalization, made when their type is first asked for.
pub(crate) struct TablesOf {
    normalize: Normalization,
    made: [OnceLock<Tables>; DType::ALL.len()],
}

impl TablesOf {
    pub(crate) const fn new(normalize: Normalization) -> Self {
        Self { normalize, made: [const { OnceLock::new() }; DType::ALL.len()] }
    }

    pub(crate) fn normalization(&self) -> Normalization {
        self.normalize
    }

    /// The tables for a type of elements.
    pub(crate) fn get(&self, dtype: DType) -> &Tables {
        let three = self.normalize.map(|(mean, std)| (mean.three(), std.three()));
        self.made[dtype as usize].get_or_init(|| Tables::new(dtype, three))
    }
}
