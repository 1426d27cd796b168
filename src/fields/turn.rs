//! Fields of an image that an EXIF orientation tag turns.

use super::motion::Motion;
use super::{AuxImage, DroppedObjects, Field, Fields, Mask, MaskValues};
use crate::error::Result;
use crate::raster::Size;

impl Fields {
    /// These fields, of an image of size `size`, on the image that an orientation tag (1 to 8) makes of it.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) if a mask has not the image's size.
    pub(crate) fn turned(mut self, size: Size, tag: u8) -> Result<Self> {
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let quarter = Motion::Affine([0.0, 1.0, 0.0, -1.0, 0.0, width]);
        let across = size.transposed();
        let motions = match tag {
            2 => vec![(Motion::MirrorX, size)],
            3 => vec![(Motion::Affine([-1.0, 0.0, width, 0.0, -1.0, height]), size)],
            4 => vec![(Motion::MirrorY, size)],
            5 => vec![(quarter, across), (Motion::MirrorY, across)],
            6 => vec![(Motion::Affine([0.0, -1.0, height, 1.0, 0.0, 0.0]), across)],
            7 => vec![(quarter, across), (Motion::MirrorX, across)],
            8 => vec![(quarter, across)],
            _ => return Ok(self),
        };
        let mut before = size;
        for (motion, after) in motions {
            // Nothing is dropped: objects inside stay inside.
            motion.apply(&mut self, before, after, &mut DroppedObjects::default())?;
            before = after;
        }
        for field in self.fields_mut() {
            match field {
                Field::Mask(mask) if mask.size() != size => return Err(Mask::unfit(mask.size(), size)),
                Field::Mask(mask) => *mask = turned(mask, tag),
                Field::Image(image) => *image = AuxImage::of_moved(turned(image.as_mask(), tag)),
                Field::Boxes(_) | Field::KeyPoints(_) | Field::Integers(_) | Field::Floats(_) => {}
            }
        }
        Ok(self)
    }
}

fn turned(mask: &Mask, tag: u8) -> Mask {
    let planes = mask.planes().iter().map(|plane| match &**plane {
        MaskValues::U8(values) => MaskValues::U8(permuted(values, mask.size(), tag)),
        MaskValues::U16(values) => MaskValues::U16(permuted(values, mask.size(), tag)),
    });
    let planes = planes.collect();
    mask.with_planes(if tag >= 5 { mask.size().transposed() } else { mask.size() }, planes)
}

/// The values of a plane of size `size`, in the places that the tag gives them.
fn permuted<T: Copy>(values: &[T], size: Size, tag: u8) -> Vec<T> {
    let (width, height) = (size.width as usize, size.height as usize);
    let (columns, rows) = if tag >= 5 { (height, width) } else { (width, height) };
    let from = |x: usize, y: usize| match tag {
        2 => (width - 1 - x, y),
        3 => (width - 1 - x, height - 1 - y),
        4 => (x, height - 1 - y),
        5 => (y, x),
        6 => (y, height - 1 - x),
        7 => (width - 1 - y, height - 1 - x),
        8 => (width - 1 - y, x),
        _ => (x, y),
    };
    let places = (0..rows).flat_map(|y| (0..columns).map(move |x| from(x, y)));
    places.map(|(x, y)| values[y * width + x]).collect()
}
