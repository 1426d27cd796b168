//! Drawing fields over an image, for people.

use super::{Field, Fields, LABELS, Mask, MaskValues};
use crate::raster::{Image, Size};

/// Colors of objects: those of equal labels, or of one place in the list, are equal.
const COLORS: [[u8; 3]; 8] = [
    [230, 25, 75],
    [60, 180, 75],
    [0, 130, 200],
    [255, 225, 25],
    [245, 130, 48],
    [145, 30, 180],
    [70, 240, 240],
    [240, 50, 230],
];
/// Reach of a keypoint's cross, in pixels.
const CROSS_PX: i64 = 2;

/// Draws boxes as outlines, masks as a tint of half the color, and keypoints that are labeled as crosses. Objects of
/// one label (the field `labels`) have one color; without labels, each object has its own. Masks whose size is not the
/// image's are left out.
///
/// ```
/// use warpfeed::fields::{BoxFormat, Boxes, Fields, draw};
/// use warpfeed::image::{Image, Size};
///
/// let mut image = Image::new(Size::new(20, 10));
/// let boxes = Boxes::new(BoxFormat::Xyxy, vec![[2.0, 2.0, 9.0, 8.0]]);
/// draw(&mut image, &Fields::new().with("boxes", boxes)?);
/// assert_ne!(image.row(2)[5], image.row(4)[5], "the upper edge, and the inside");
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn draw(image: &mut Image, fields: &Fields) {
    let labels = if let Some(Field::Integers(labels)) = fields.get(LABELS) { &labels[..] } else { &[] };
    let color = |object: usize| {
        let number = labels.get(object).map_or(object, |label| label.unsigned_abs() as usize);
        COLORS[number % COLORS.len()]
    };
    for (_, field) in fields.iter() {
        if let Field::Mask(mask) = field {
            tint(image, mask, &color);
        }
    }
    for (object, [left, top, right, bottom]) in fields.boxes().iter().flat_map(|boxes| boxes.corners()).enumerate() {
        outline(image, [left, top, right, bottom].map(|side| side.round() as i64), color(object));
    }
    for (_, field) in fields.iter() {
        let Field::KeyPoints(points) = field else { continue };
        for (i, ([x, y], seen)) in points.points().iter().zip(points.visibility()).enumerate() {
            if *seen > 0 {
                cross(image, x.floor() as i64, y.floor() as i64, color(i / points.per_object().max(1)));
            }
        }
    }
}

fn tint(image: &mut Image, mask: &Mask, color: &dyn Fn(usize) -> [u8; 3]) {
    if mask.size() != image.size() {
        return;
    }
    for (object, plane) in mask.planes().iter().enumerate() {
        let value = |i: usize| match &**plane {
            MaskValues::U8(values) => usize::from(values[i]),
            MaskValues::U16(values) => usize::from(values[i]),
        };
        for (i, pixel) in image.pixels_mut().iter_mut().enumerate() {
            let own = match value(i) {
                0 => continue,
                _ if mask.is_of_objects() => color(object),
                class => COLORS[class % COLORS.len()],
            };
            pixel.iter_mut().zip(own).for_each(|(byte, own)| *byte = byte.midpoint(own));
        }
    }
}

/// Draws the outline of a box, in the pixels just inside it.
fn outline(image: &mut Image, [left, top, right, bottom]: [i64; 4], color: [u8; 3]) {
    let Size { width, height } = image.size();
    // A box may reach far outside.
    let [left, right] = [left, right].map(|x| x.clamp(-1, i64::from(width) + 1));
    let [top, bottom] = [top, bottom].map(|y| y.clamp(-1, i64::from(height) + 1));
    for x in left..right {
        dot(image, x, top, color);
        dot(image, x, bottom - 1, color);
    }
    for y in top..bottom {
        dot(image, left, y, color);
        dot(image, right - 1, y, color);
    }
}

fn cross(image: &mut Image, x: i64, y: i64, color: [u8; 3]) {
    for by in -CROSS_PX..=CROSS_PX {
        dot(image, x.saturating_add(by), y, color);
        dot(image, x, y.saturating_add(by), color);
    }
}

fn dot(image: &mut Image, x: i64, y: i64, [red, green, blue]: [u8; 3]) {
    let Size { width, height } = image.size();
    if (0..i64::from(width)).contains(&x) && (0..i64::from(height)).contains(&y) {
        image.row_mut(y as u32)[x as usize] = [red, green, blue, 255];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{BOXES, BoxFormat, Boxes, KEYPOINTS, KeyPoints, MASKS};

    #[test]
    fn what_lies_outside_the_image_is_not_drawn() {
        let size = Size::new(8, 6);
        let mut image = Image::new(size);
        let far = [-1e9, -1e9, 1e9, 1e9];
        let masks = Mask::of_objects(size, [vec![0; 48], vec![1; 48]]).unwrap();
        let fields = Fields::new()
            .with(BOXES, Boxes::new(BoxFormat::Xyxy, vec![far, [2.0, 1.0, 5.0, 4.0]]))
            .and_then(|fields| fields.with(LABELS, vec![0, 9]))
            .and_then(|fields| fields.with(MASKS, masks))
            .and_then(|fields| fields.with(KEYPOINTS, KeyPoints::of_image(vec![[7.5, 5.5], [f32::NAN, 1e30]])))
            .unwrap();
        draw(&mut image, &fields);
        // Labels 9 and 1 have one color. The second object's mask shows half of it.
        let half = COLORS[1].map(|byte| byte / 2);
        assert_eq!((&image.row(0)[0][..3], &image.row(2)[3][..3]), (&half[..], &half[..]));
        assert_eq!(&image.row(1)[2][..3], COLORS[1]);
        assert_eq!(&image.row(5)[7][..3], COLORS[0]);
    }
}
