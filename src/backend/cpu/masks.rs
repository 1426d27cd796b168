//! Runs plans on masks, which are images without colors.

use super::executor::StageRunner;
use super::output::Output;
use crate::error::Result;
use crate::fields::Mask;
use crate::fields::carried::Carried;
use crate::plan::Plan;
use crate::raster::Size;

impl StageRunner {
    /// Runs a plan that was made for masks of this size and fill.
    ///
    /// # Errors
    /// The errors of [`Mask::moved`] and of operations.
    pub(crate) fn run_mask(&mut self, mask: &Mask, plan: &Plan<'_>) -> Result<Mask> {
        if plan.changes_nothing() {
            return Ok(mask.clone());
        }
        let mut made = std::mem::take(&mut self.made);
        let moved = mask.moved(plan.size, &mut made, |group, made| self.run_group(group, mask.size(), plan, made));
        self.made = made;
        self.shrink();
        moved
    }

    /// Runs a plan on a group of a mask's planes, of an image of size `size`. The result has 3 bytes a pixel.
    pub(crate) fn run_group(
        &mut self,
        group: &Carried<'_>,
        size: Size,
        plan: &Plan<'_>,
        made: &mut [u8],
    ) -> Result<()> {
        self.current.reserve(plan.decode.size())?;
        group.load_part(size, plan.decode, &mut self.current);
        self.run(plan, &mut Output::rgb(made, plan.size))
    }
}
