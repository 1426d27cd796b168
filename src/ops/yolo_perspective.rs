//! The random map of detectors of the YOLO family.

use super::affine_warp;
use super::check::{sides, within};
use super::keep_objects::KeepObjects;
use super::recipe::RecipeBuilder;
use super::transform::{RandomTransform, SampleInfo};
use super::unlabel_keypoints::UnlabelKeypoints;
use super::{AffineMatrix, Interpolation, Op, Perspective, SizeEffect};
use crate::error::Result;
use crate::fields::{BoxFormat, Boxes, Field, Fields};
use crate::raster::Size;
use serde::{Deserialize, Serialize};

/// Objects whose boxes have a side of this or less are dropped.
const MIN_SIDE_PX: f32 = 2.0;
/// Objects whose boxes have this aspect or more are dropped.
const MAX_ASPECT: f32 = 100.0;
/// Largest shear in degrees. Near 45, two shears put the image on a line.
const MAX_SHEAR_DEGREES: f64 = 40.0;
/// Largest perspective, of the coordinates' divisor for each pixel.
const MAX_PERSPECTIVE: f64 = 0.01;

/// Rotates, scales, shears and moves the image by random amounts, and tilts it in perspective: Ultralytics'
/// `RandomPerspective`, with Pillow's sampling in place of OpenCV's. The center of the image comes to the middle of a
/// canvas of another size, or near it.
///
/// A box becomes the one around its moved corners, cut at the edges. Its object is dropped ([`KeepObjects`]) if a side
/// is 2 pixels or less, one side is 100 times the other or more, or the area is [`min_area`](Self::min_area) or less of
/// its scaled area. Keypoints outside become not labeled ([`UnlabelKeypoints`]). Pixels lie where boxes lie: OpenCV
/// maps indices of pixels, and so leaves them by up to half a pixel times the scale less 1.
///
/// ```
/// use warpfeed::ops::{Transform, YoloPerspective};
///
/// Transform::from(YoloPerspective::new(640).degrees(5.0).translate(0.2).scale(0.9)).validate()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct YoloPerspective {
    #[serde(with = "super::written::size")]
    size: Size,
    #[serde(default)]
    degrees: f64,
    #[serde(default = "usual_translate")]
    translate: f64,
    #[serde(default = "usual_scale")]
    scale: f64,
    #[serde(default)]
    shear: f64,
    #[serde(default)]
    perspective: f64,
    #[serde(default = "gray")]
    fill: [u8; 3],
    #[serde(default = "usual_area")]
    min_area: f64,
}

const fn usual_translate() -> f64 {
    0.1
}

const fn usual_scale() -> f64 {
    0.5
}

const fn gray() -> [u8; 3] {
    [114; 3]
}

const fn usual_area() -> f64 {
    0.1
}

/// Largest distance from the center, along each axis, of the points that define a perspective.
const MOST_OFF_PX: f64 = 1_000.0;

/// A map of the plane: rows of a 3 x 3 matrix.
type Map = [[f64; 3]; 3];

impl YoloPerspective {
    /// Ultralytics' defaults: sides of 0.5 to 1.5 times their length, a move by up to 0.1 of the canvas, and no
    /// rotation, shear or perspective, on a gray canvas (114) of this size. A `u32` as size is a square.
    #[must_use]
    pub fn new(size: impl Into<Size>) -> Self {
        Self {
            size: size.into(),
            degrees: 0.0,
            translate: usual_translate(),
            scale: usual_scale(),
            shear: 0.0,
            perspective: 0.0,
            fill: gray(),
            min_area: usual_area(),
        }
    }

    setters! {
        /// Largest angle of the rotation in either direction, 0 to 180 degrees.
        degrees: f64,
        /// Largest move of the center in either direction, as parts of the canvas' sides, 0 to 1.
        translate: f64,
        /// Largest difference from 1 of the factor by which sides become longer, 0 to 0.99.
        scale: f64,
        /// Largest angle in degrees by which columns lean and rows fall, in either direction, 0 to 40.
        shear: f64,
        /// Largest change of the coordinates' divisor for each pixel from the center, 0 to 0.01; Ultralytics names 0 to
        /// 0.001. A perspective so strong that its map has no form in whole numbers is left out.
        perspective: f64,
        /// Color of the canvas: red, green, blue.
        fill: [u8; 3],
        /// Share of a box's scaled area that must be exceeded, 0 to 1. Ultralytics takes 0.1 for boxes, 0.01 for
        /// outlines.
        min_area: f64,
    }

    /// Whether an object stays whose box was and is `[left, top, right, bottom]`, if sides are `scale` times as long.
    fn is_kept(&self, old: [f32; 4], new: [f32; 4], scale: f64) -> bool {
        let sides = |[x1, y1, x2, y2]: [f32; 4]| [x2 - x1, y2 - y1];
        let ([w, h], [width, height]) = (sides(old), sides(new));
        let area = f64::from(w) * f64::from(h) * scale * scale;
        let share = f64::from(width) * f64::from(height) / area;
        let aspect = (width / height).max(height / width);
        width > MIN_SIDE_PX && height > MIN_SIDE_PX && aspect < MAX_ASPECT && share > self.min_area
    }

    /// The operation of a map from an image of size `input`.
    fn operation(&self, map: &Map, input: Size) -> Result<Op> {
        let [[a, b, c], [d, e, f], [g, h, _]] = *map;
        if [g, h] == [0.0, 0.0] {
            let back = affine_warp::inverse([a, b, c, d, e, f]).ok_or_else(|| affine_warp::flattens(Self::NAME))?;
            return Ok(AffineMatrix::new(back)
                .interpolation(Interpolation::Bilinear)
                .fill(self.fill)
                .size(self.size)
                .into());
        }
        // Any four points define the map. The divisor of these is 0.5 to 1.5, as it is 1 at the center.
        let [x, y] = [input.width, input.height].map(|side| f64::from(side) / 2.0);
        let off = (0.5 / (g.abs() + h.abs())).min(0.5 * x.min(y)).min(MOST_OFF_PX);
        let start = [[x - off, y - off], [x + off, y - off], [x + off, y + off], [x - off, y + off]];
        let end = start.map(|[x, y]| {
            let [u, v, w] = map.map(|[a, b, c]| a * x + b * y + c);
            [u / w, v / w]
        });
        Ok(Perspective::new(start, end).fill(self.fill).size(self.size).into())
    }
}

/// The map that does `first` and then `next`.
fn then(first: &Map, next: &Map) -> Map {
    next.map(|row| std::array::from_fn(|column| (0..3).map(|i| row[i] * first[i][column]).sum()))
}

/// The boxes' corners, cut at the edges of an image.
fn cut(boxes: &Boxes, Size { width, height }: Size) -> Vec<[f32; 4]> {
    let within = |value: f32, side: u32| value.clamp(0.0, side as f32);
    let cut = |[x1, y1, x2, y2]: &[f32; 4]| {
        [within(*x1, width), within(*y1, height), within(*x2, width), within(*y2, height)]
    };
    boxes.to(BoxFormat::Xyxy).rows().iter().map(cut).collect()
}

impl RandomTransform for YoloPerspective {
    fn validate(&self) -> Result<()> {
        sides(Self::NAME, self.size.width, self.size.height)?;
        within(Self::NAME, "degrees", self.degrees, 0.0..=180.0)?;
        within(Self::NAME, "translate", self.translate, 0.0..=1.0)?;
        within(Self::NAME, "scale", self.scale, 0.0..=0.99)?;
        within(Self::NAME, "shear", self.shear, 0.0..=MAX_SHEAR_DEGREES)?;
        within(Self::NAME, "perspective", self.perspective, 0.0..=MAX_PERSPECTIVE)?;
        within(Self::NAME, "min_area", self.min_area, 0.0..=1.0)
    }

    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Becomes(self.size)
    }

    fn depends_on_annotations(&self) -> bool {
        true
    }

    fn draw(&self, recipe: &mut RecipeBuilder<'_>) -> Result<()> {
        let (rng, SampleInfo { fields, size, .. }) = recipe.start_with_sample();
        let mut around = |middle: f64, off: f64| rng.uniform(middle - off, middle + off);
        let tilt = [around(0.0, self.perspective), around(0.0, self.perspective)];
        let (turn, scale) = (around(0.0, self.degrees).to_radians(), around(1.0, self.scale));
        let [lean, fall] =
            [around(0.0, self.shear), around(0.0, self.shear)].map(|angle| libm::tan(angle.to_radians()));
        let mut place = |side: u32| around(0.5, self.translate) * f64::from(side);
        let [right, bottom] = [place(self.size.width), place(self.size.height)];
        let (cos, sin) = (scale * libm::cos(turn), scale * libm::sin(turn));
        let [x, y] = [size.width, size.height].map(|side| -0.5 * f64::from(side));
        let map = |[along, down]: [f64; 2]| {
            let maps = [
                [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [along, down, 1.0]],
                [[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]],
                [[1.0, lean, 0.0], [fall, 1.0, 0.0], [0.0, 0.0, 1.0]],
                [[1.0, 0.0, right], [0.0, 1.0, bottom], [0.0, 0.0, 1.0]],
            ];
            maps.iter().fold([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]], |map, next| then(&map, next))
        };
        let mut op = self.operation(&map(tilt), size)?;
        if op.output_size(size).is_err() {
            op = self.operation(&map([0.0; 2]), size)?;
        }
        let old: Option<Vec<_>> = fields.and_then(Fields::boxes).map(|boxes| boxes.corners().collect());
        let is_pose = |fields: &Fields| fields.iter().any(|(_, field)| matches!(field, Field::KeyPoints(_)));
        let has_keypoints = fields.is_some_and(is_pose);
        recipe.push(op)?;
        if let (Some(old), Some(boxes)) = (old, recipe.fields().and_then(Fields::boxes)) {
            let pairs = old.into_iter().zip(cut(boxes, self.size));
            let kept: Vec<bool> = pairs.map(|(old, new)| self.is_kept(old, new, scale)).collect();
            if kept.contains(&false) {
                recipe.push(KeepObjects::those(kept))?;
            }
        }
        if has_keypoints { recipe.push(UnlabelKeypoints) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Fill;
    use crate::ops::crop_search::drawn_for;

    const SIZE: Size = Size::new(200, 160);

    /// The recipe and the boxes after it.
    fn drawn(transform: &YoloPerspective, rows: &[[f32; 4]], index: u64) -> (Vec<Op>, Vec<[f32; 4]>) {
        let ops = drawn_for(transform.clone(), SIZE, rows, index);
        let mut fields = Fields::new().with("boxes", Boxes::new(BoxFormat::Xyxy, rows.to_vec())).unwrap();
        ops.iter().try_fold(SIZE, |size, op| op.move_points(&mut fields, size)).unwrap();
        (ops, fields.boxes().unwrap().rows().to_vec())
    }

    #[test]
    fn the_center_goes_near_the_middle_and_sides_scale() {
        let transform = YoloPerspective::new(Size::new(100, 60));
        let (mut least, mut most) = ([f32::INFINITY; 3], [0.0_f32; 3]);
        for index in 0..500 {
            let (ops, boxes) = drawn(&transform, &[[90.0, 70.0, 110.0, 90.0]], index);
            let [Op::AffineMatrix(op)] = &ops[..] else { panic!("{ops:?}") };
            assert_eq!(
                (op.size, op.fill, op.interpolation),
                (Some(transform.size), Fill::Color([114; 3]), Interpolation::Bilinear)
            );
            let [x1, y1, x2, y2] = boxes[0];
            for (i, value) in [0.5 * (x1 + x2), 0.5 * (y1 + y2), (x2 - x1) / 20.0].into_iter().enumerate() {
                (least[i], most[i]) = (least[i].min(value), most[i].max(value));
            }
        }
        let near =
            |got: [f32; 3], want: [f32; 3]| got.iter().zip(want).all(|(got, want)| (got / want - 1.0).abs() < 0.03);
        assert!(near(least, [40.0, 24.0, 0.5]) && near(most, [60.0, 36.0, 1.5]), "{least:?} {most:?}");
    }

    #[test]
    fn rotation_shear_and_perspective_put_the_corners_where_the_matrices_do() {
        let transform = YoloPerspective::new(SIZE).degrees(30.0).shear(20.0).translate(0.0);
        let mut turned = 0;
        for index in 0..100 {
            let (ops, _) = drawn(&transform, &[], index);
            let [Op::AffineMatrix(op)] = &ops[..] else { panic!("{ops:?}") };
            // Shear and rotation leave the center; the matrix maps back.
            let [a, b, c, d, e, f] = op.matrix;
            assert!((a * 100.0 + b * 80.0 + c - 100.0).abs() < 1e-9 && (d * 100.0 + e * 80.0 + f - 80.0).abs() < 1e-9);
            turned += usize::from(b.abs() > 0.1);
        }
        assert!(turned > 50, "{turned}");
        let map = [[1.2, 0.1, 5.0], [-0.2, 0.9, 3.0], [1e-3, -5e-4, 0.94]];
        let op = transform.operation(&map, SIZE).unwrap();
        let corner = Boxes::new(BoxFormat::Xyxy, vec![[20.0, 30.0, 20.0, 30.0]]);
        let mut fields = Fields::new().with("boxes", corner).unwrap();
        op.move_points(&mut fields, SIZE).unwrap();
        let [u, v, w] = map.map(|[a, b, c]| a * 20.0 + b * 30.0 + c);
        let [x, y, ..] = fields.boxes().unwrap().rows()[0];
        assert!(
            (f64::from(x) - u / w).abs() < 1e-3 && (f64::from(y) - v / w).abs() < 1e-3,
            "{x} {y} {} {}",
            u / w,
            v / w
        );
    }

    #[test]
    fn objects_stay_by_ultralytics_rule() {
        let transform = YoloPerspective::new(100);
        let old = [0.0, 0.0, 40.0, 40.0];
        let kept = |new, scale| transform.is_kept(old, new, scale);
        assert!(kept([0.0, 0.0, 20.0, 20.0], 0.5));
        // Sides of more than 2 pixels.
        assert!(kept([0.0, 0.0, 2.5, 80.0], 1.0) && !kept([0.0, 0.0, 2.0, 90.0], 1.0));
        // More than a tenth of the scaled area, 1600 square pixels and 400.
        assert!(
            !kept([0.0, 0.0, 16.0, 10.0], 1.0)
                && kept([0.0, 0.0, 16.0, 10.1], 1.0)
                && kept([0.0, 0.0, 16.0, 10.0], 0.5)
        );
        // Sides of less than 100 to 1.
        assert!(kept([0.0, 0.0, 299.0, 3.0], 1.0) && !kept([0.0, 0.0, 300.0, 3.0], 1.0));
        // Boxes without area go.
        assert!(!kept([5.0, 5.0, 5.0, 9.0], 1.0));
        let rows = [[0.0, 0.0, 1.0, 50.0], [80.0, 60.0, 120.0, 100.0]];
        for index in 0..20 {
            let (ops, boxes) = drawn(&YoloPerspective::new(SIZE), &rows, index);
            assert_eq!((ops.last(), boxes.len()), (Some(&KeepObjects::new([1]).into()), 1));
        }
    }

    #[test]
    fn perspective_is_an_operation_and_too_much_of_it_is_left_out() {
        let transform = YoloPerspective::new(SIZE).perspective(0.001).scale(0.1);
        let ops = |transform: &YoloPerspective, index| drawn(transform, &[], index).0;
        assert!((0..50).all(|index| matches!(ops(&transform, index)[..], [Op::Perspective(_)])));
        let strong = YoloPerspective::new(60_000).perspective(0.01).scale(0.99);
        assert!((0..50).any(|index| matches!(ops(&strong, index)[..], [Op::AffineMatrix(_)])));
    }
}
