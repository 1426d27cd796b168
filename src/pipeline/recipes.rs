//! The explicit operations of each sample: drawn from its transforms by seed, epoch and index.

use crate::backend::RunOptions;
use crate::decode::{Header, probe};
use crate::error::Result;
use crate::ops::rng::SampleRng;
use crate::ops::transform::{Transform, draw_recipe};
use crate::ops::{Op, orientation_ops};
use crate::plan::{Strategy, is_multiplied};
use crate::raster::{Size, check_pixels};
use crate::sampling::Pick;
use std::sync::Arc;

/// What to do with an image's EXIF orientation tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Orientation {
    /// The image is turned as the tag says, before anything else.
    #[default]
    Apply,
    /// The image is taken as it is stored.
    Ignore,
}

/// The operations that an orientation tag asks for, if it is to be applied.
pub(crate) fn oriented(tag: u8, orientation: Orientation) -> Vec<Op> {
    match orientation {
        Orientation::Apply => orientation_ops(tag),
        Orientation::Ignore => Vec::new(),
    }
}

/// What a recipe is drawn for: an image as it is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    pub(super) size: Size,
    /// Its orientation tag.
    orientation: u8,
}

impl From<&Header> for Stored {
    fn from(header: &Header) -> Self {
        Self { size: header.size, orientation: header.orientation }
    }
}

/// What the recipes of all samples are drawn from.
pub(super) struct Recipes {
    pub(super) seed: u64,
    pub(super) transforms: Vec<Transform>,
    pub(super) orientation: Orientation,
    pub(super) options: Arc<RunOptions>,
}

impl Recipes {
    /// Reads the header of an encoded image and holds it against the limits.
    pub(super) fn header(&self, bytes: &[u8]) -> Result<Header> {
        let header = probe(bytes)?;
        check_pixels(header.size, self.options.max_px)?;
        Ok(header)
    }

    /// The explicit operations for a sample in an epoch.
    pub(super) fn draw(&self, epoch: u64, pick: Pick, stored: Stored) -> Result<Vec<Op>> {
        let mut draw = SampleRng::for_pick(self.seed, epoch, pick);
        let mut recipe = oriented(stored.orientation, self.orientation);
        let size = recipe.iter().try_fold(stored.size, |size, op| op.output_size(size))?;
        recipe.append(&mut draw_recipe(&self.transforms, &mut draw, size)?);
        Ok(recipe)
    }

    /// What is left of a sample's recipe when its image comes from the cache.
    pub(super) fn draw_for_cached(&self, epoch: u64, pick: Pick, stored: Stored) -> Result<Vec<Op>> {
        let mut recipe = self.draw(epoch, pick, stored)?;
        Ok(recipe.split_off(self.cached_ops(stored).len()))
    }

    /// The leading operations that draw nothing: they are run before an image is cached.
    pub(super) fn cached_ops(&self, stored: Stored) -> Vec<Op> {
        let mut ops = oriented(stored.orientation, self.orientation);
        let fixed = self.transforms.iter().map_while(|op| match op {
            Transform::Explicit(Op::Normalize(_) | Op::Erase(_) | Op::Custom(_)) => None,
            Transform::Explicit(op) => Some(op.clone()),
            _ => None,
        });
        ops.extend(fixed);
        if self.options.strategy == Strategy::Composed {
            // What is multiplied with later operations must stay with them.
            let (mut size, mut cached) = (stored.size, 0);
            for (i, op) in ops.iter().enumerate() {
                if !is_multiplied(op, size) {
                    cached = i + 1;
                }
                // An operation that does not fit ends what can be cached; drawing the recipe says so.
                let Ok(next) = op.output_size(size) else { break };
                size = next;
            }
            ops.truncate(cached);
        }
        ops
    }

    /// The size of an image as it is cached.
    pub(super) fn cached_size(&self, stored: Stored) -> Result<Size> {
        self.cached_ops(stored).iter().try_fold(stored.size, |size, op| {
            let size = op.output_size(size)?;
            check_pixels(size, self.options.max_px).map(|()| size)
        })
    }
}
