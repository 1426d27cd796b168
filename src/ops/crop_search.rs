//! Random rectangles, until one overlaps boxes enough, for detection's crops.

use super::SampleRng;
use crate::fields::Boxes;
use crate::raster::Rect;

/// A search for a rectangle. A least overlap is drawn, then up to `trials` rectangles, until one is taken; and so on,
/// up to `rounds` times.
pub(super) struct CropSearch<'a> {
    /// Least overlaps, all equally likely; `None` leaves the image as it is.
    pub(super) options: &'a [Option<f64>],
    /// Rectangles for a least overlap.
    pub(super) trials: u32,
    /// Least overlaps that are drawn.
    pub(super) rounds: u32,
}

impl CropSearch<'_> {
    /// The first rectangle of `draw` that `takes` accepts for the least overlap; `None` if the image stays as it is.
    /// `draw` gives none for a rectangle that has no pixel, or an aspect that is not allowed.
    pub(super) fn find(
        &self,
        rng: &mut SampleRng,
        draw: impl Fn(&mut SampleRng) -> Option<Rect>,
        takes: impl Fn(Rect, f32) -> bool,
    ) -> Option<Rect> {
        for _ in 0..self.rounds {
            let option = (rng.unit() * self.options.len() as f64) as usize % self.options.len();
            let least = self.options[option]? as f32;
            let found = (0..self.trials).find_map(|_| draw(rng).filter(|rect| takes(*rect, least)));
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

/// Each box's intersection over union with a rectangle.
pub(super) fn ious(boxes: &Boxes, rect: Rect) -> impl Iterator<Item = f32> + '_ {
    let area = rect.width as f32 * rect.height as f32;
    boxes.areas(rect).map(move |[own, both]| both / ((own + area) - both))
}

/// The share of each box's area that lies inside a rectangle.
pub(super) fn shares_inside(boxes: &Boxes, rect: Rect) -> impl Iterator<Item = f32> + '_ {
    boxes.areas(rect).map(|[own, both]| both / own)
}

/// Whether the center of a box lies strictly inside a rectangle.
pub(super) fn has_center(boxes: &Boxes, rect: Rect) -> bool {
    boxes.centers_inside(rect).contains(&true)
}

/// The recipe that a transform draws for an image of size `size` with these boxes, as sample `index`.
#[cfg(test)]
pub(super) fn drawn_for(
    transform: impl Into<super::Transform>,
    size: crate::raster::Size,
    rows: &[[f32; 4]],
    index: u64,
) -> Vec<super::Op> {
    use crate::fields::{BOXES, BoxFormat, Fields};
    use crate::targets::Annotation;
    let fields = Fields::new().with(BOXES, Boxes::new(BoxFormat::Xyxy, rows.to_vec())).unwrap();
    let annotation = Annotation { fields: Some(std::sync::Arc::new(fields)), ..Annotation::default() };
    let sample = super::SampleInfo::new(crate::rng::Pick { index, repetition: 0 }, size, &annotation);
    super::recipe::draw_recipe(&[], &[transform.into()], &mut SampleRng::for_sample(1, 0, index), sample, None)
        .unwrap()
        .ops
}
