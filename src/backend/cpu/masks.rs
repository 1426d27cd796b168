//! Runs plans on masks, which are images without colors.

use super::executor::Stages;
use super::output::Output;
use crate::error::Result;
use crate::fields::Mask;
use crate::fields::carried::{self, Carried};
use crate::os::memory;
use crate::plan::Plan;
use crate::raster::Size;

/// Memory for masks, kept from one to the next.
#[derive(Default)]
pub(crate) struct MaskRunner {
    stages: Stages,
    made: Vec<u8>,
}

impl MaskRunner {
    /// Runs a plan that was made for masks of this size and fill.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is no memory for the result;
    /// [`Error::Limits`](crate::Error::Limits) if the masks of all objects are too large.
    pub(crate) fn run(&mut self, mask: &Mask, plan: &Plan<'_>) -> Result<Mask> {
        mask.check_moved(plan.size)?;
        let mut planes = Vec::with_capacity(mask.planes().len());
        let mut made = std::mem::take(&mut self.made);
        for group in carried::groups(mask) {
            let len_bytes = 3 * plan.size.area_px() as usize;
            memory::reserve(&mut made, len_bytes, "a mask", memory::FEWER_IMAGES)?;
            made.resize(len_bytes, 0);
            self.run_group(&group, mask.size(), plan, &mut made)?;
            planes.extend(group.unpack(made.as_chunks().0)?);
        }
        self.made = made;
        self.stages.shrink();
        Ok(mask.with_planes(plan.size, planes))
    }

    /// Runs a plan on a group of a mask's planes, of an image of size `size`. The result has 3 bytes a pixel.
    pub(crate) fn run_group(
        &mut self,
        group: &Carried<'_>,
        size: Size,
        plan: &Plan<'_>,
        made: &mut [u8],
    ) -> Result<()> {
        let (image, part) = (&mut self.stages.current, plan.decode);
        image.reserve(part.size())?;
        image.reset_part(size, part);
        (0..).zip(carried::rows(size, part)).for_each(|(y, values)| group.load(values, image.row_mut(y)));
        self.stages.run(plan, &mut Output::rgb(made, plan.size))
    }
}
