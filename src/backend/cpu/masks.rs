//! Runs plans on masks: a mask is an image whose channels are not colors.
//!
//! Every step of a mask's recipe copies whole pixels, so three channels carry three bytes of anything: one plane of 8
//! bits, both bytes of a plane of 16 bits, or a bit each of 24 objects' planes.

use super::executor::Stages;
use super::output::Output;
use crate::error::Result;
use crate::fields::{Mask, MaskValues};
use crate::memory;
use crate::plan::Plan;
use crate::raster::{Rect, Size};

/// Planes of objects that are moved at a time, a bit each.
const OBJECTS: usize = 24;

/// Memory for masks, kept from one to the next.
#[derive(Default)]
pub(crate) struct MaskRunner {
    stages: Stages,
    made: Vec<u8>,
}

/// The value of a mask outside the image, as a color.
pub(crate) fn fill(mask: &Mask) -> [u8; 3] {
    let [low, high] = mask.fill().to_le_bytes();
    match mask.planes().first().map(|plane| &**plane) {
        _ if mask.is_of_objects() => [if mask.fill() == 0 { 0 } else { 255 }; 3],
        Some(MaskValues::U16(_)) => [low, high, 0],
        _ => [low; 3],
    }
}

impl MaskRunner {
    /// Runs a plan that was made for masks of this size and fill.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is no memory for the result.
    pub(crate) fn run(&mut self, mask: &Mask, plan: &Plan<'_>) -> Result<Mask> {
        let mut planes = Vec::with_capacity(mask.planes().len());
        for group in mask.planes().chunks(if mask.is_of_objects() { OBJECTS } else { 1 }) {
            let values: Vec<&MaskValues> = group.iter().map(|plane| &**plane).collect();
            self.load(&values, mask.size(), plan.decode)?;
            let len_bytes = 3 * plan.size.area_px() as usize;
            memory::reserve(&mut self.made, len_bytes, "a mask", memory::FEWER_IMAGES)?;
            self.made.resize(len_bytes, 0);
            self.stages.run(plan, &mut Output::rgb(&mut self.made, plan.size))?;
            let (pixels, _) = self.made.as_chunks::<3>();
            if mask.is_of_objects() {
                let bit = |i: usize| pixels.iter().map(|pixel| pixel[i / 8] >> (i % 8) & 1).collect();
                planes.extend((0..group.len()).map(|i| MaskValues::U8(bit(i))));
            } else {
                planes.push(match values[0] {
                    MaskValues::U8(_) => MaskValues::U8(pixels.iter().map(|pixel| pixel[0]).collect()),
                    MaskValues::U16(_) => {
                        MaskValues::U16(pixels.iter().map(|[low, high, _]| u16::from_le_bytes([*low, *high])).collect())
                    }
                });
            }
        }
        self.stages.shrink();
        Ok(mask.with_planes(plan.size, planes))
    }

    /// Makes the part `part` of a group of planes the current image.
    fn load(&mut self, group: &[&MaskValues], size: Size, part: Rect) -> Result<()> {
        let image = &mut self.stages.current;
        image.reserve(part.size())?;
        image.reset_part(size, part);
        for y in 0..part.height {
            let start = (part.y + y) as usize * size.width as usize + part.x as usize;
            let row = image.row_mut(y);
            let range = start..start + row.len();
            match group {
                [MaskValues::U16(values)] => {
                    for (pixel, value) in row.iter_mut().zip(&values[range]) {
                        let [low, high] = value.to_le_bytes();
                        *pixel = [low, high, 0, 255];
                    }
                }
                [MaskValues::U8(values)] => {
                    row.iter_mut().zip(&values[range]).for_each(|(pixel, value)| *pixel = [*value, 0, 0, 255]);
                }
                group => {
                    row.fill([0, 0, 0, 255]);
                    for (i, plane) in group.iter().enumerate() {
                        let MaskValues::U8(values) = plane else { continue };
                        for (pixel, value) in row.iter_mut().zip(&values[range.clone()]) {
                            pixel[i / 8] |= value << (i % 8);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
