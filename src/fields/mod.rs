//! Fields of a sample: boxes, keypoints, masks, numbers of the objects in its image, and auxiliary images.
//!
//! A [`Source`](crate::source::Source) returns them with the image, and they follow the image's recipe.
//! [`PipelineBuilder::fields`](crate::PipelineBuilder::fields) names those that a pipeline delivers. The whole image is
//! the box (0, 0, W, H), in pixels.

// `Motion` is an operation's effect on points, and motion.rs is the only file that applies it. Masks are not mentioned
// there: they are images that the back end runs the same recipe on, with the nearest pixel, on the device that it runs
// images on (on_device.rs). Only where samples are joined (join.rs) masks are copied with the other fields.
//
// Boxes are computed in the format that they are given in, as torchvision computes them: each product and sum is
// rounded to single precision, so that another format or another order would change last digits.

mod aux_image;
mod batch;
mod boxes;
pub(crate) mod carried;
mod drawing;
mod dropped;
mod file;
mod join;
mod keypoints;
mod mask;
pub(crate) mod motion;
mod on_device;
mod png;
pub(crate) mod region;
mod turn;

pub use aux_image::AuxImage;
pub use batch::{BatchFields, Padded};
pub use boxes::{BoxFormat, Boxes, Clamping};
pub use drawing::draw;
pub(crate) use dropped::DropRule;
pub use dropped::DroppedObjects;
pub use file::{read_fields, write_fields};
pub use keypoints::{KeyPoints, PointConvention};
pub(crate) use mask::Kind as MaskKind;
pub use mask::{Mask, MaskValues};
pub(crate) use mask::{check_objects, empty_plane};
pub(crate) use on_device::MaskOnDevice;

use crate::error::{Error, Result};
use std::borrow::Cow;

/// The name by which sources know boxes.
pub const BOXES: &str = "boxes";
/// The name by which sources know the classes of boxes.
pub const LABELS: &str = "labels";
/// The name by which sources know the mask of an image.
pub const MASK: &str = "mask";
/// The name by which sources know the masks of objects.
pub const MASKS: &str = "masks";
/// The name by which sources know keypoints.
pub const KEYPOINTS: &str = "keypoints";

/// A field of a sample.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Field {
    /// Boxes, one for each object.
    Boxes(Boxes),
    /// Keypoints, of each object or of the image.
    KeyPoints(KeyPoints),
    /// A mask of the image, or one for each object.
    Mask(Mask),
    /// An auxiliary image: depth, the other of a stereo pair, another resolution.
    Image(AuxImage),
    /// Whole numbers, one for each object: classes, ids.
    Integers(Vec<i64>),
    /// Numbers, one for each object.
    Floats(Vec<f32>),
}

impl Field {
    /// Number of objects that the field has rows for; `None` if it belongs to the image.
    #[must_use]
    pub fn objects(&self) -> Option<usize> {
        match self {
            Self::Boxes(boxes) => Some(boxes.len()),
            Self::KeyPoints(points) => points.objects(),
            Self::Mask(mask) => mask.is_of_objects().then(|| mask.planes().len()),
            Self::Image(_) => None,
            Self::Integers(rows) => Some(rows.len()),
            Self::Floats(rows) => Some(rows.len()),
        }
    }

    /// The planes of a mask or of an auxiliary image.
    pub(crate) fn as_mask(&self) -> Option<&Mask> {
        match self {
            Self::Mask(mask) => Some(mask),
            Self::Image(image) => Some(image.as_mask()),
            Self::Boxes(_) | Self::KeyPoints(_) | Self::Integers(_) | Self::Floats(_) => None,
        }
    }

    /// The mask or the auxiliary image that has these planes.
    pub(crate) fn of_mask(mask: Mask) -> Self {
        match mask.kind() {
            MaskKind::Aux(_) => Self::Image(AuxImage::of_moved(mask)),
            MaskKind::OfImage | MaskKind::OfObjects => Self::Mask(mask),
        }
    }

    /// Keeps the rows of the objects for which `kept` is true.
    fn keep(&mut self, kept: &[bool]) {
        match self {
            Self::Boxes(boxes) => boxes.keep(kept),
            Self::KeyPoints(points) => points.keep(kept),
            Self::Mask(mask) => mask.keep(kept),
            Self::Image(_) => {}
            Self::Integers(rows) => keep_rows(rows, kept),
            Self::Floats(rows) => keep_rows(rows, kept),
        }
    }
}

/// Keeps the rows for which `kept` is true.
fn keep_rows<T>(rows: &mut Vec<T>, kept: &[bool]) {
    let mut kept = kept.iter();
    rows.retain(|_| kept.next().copied().unwrap_or(false));
}

macro_rules! into_field {
    ($($name:ident: $type:ty,)*) => {$(
        impl From<$type> for Field {
            fn from(field: $type) -> Self {
                Self::$name(field)
            }
        }
    )*};
}

into_field! {
    Boxes: Boxes,
    KeyPoints: KeyPoints,
    Mask: Mask,
    Image: AuxImage,
    Integers: Vec<i64>,
    Floats: Vec<f32>,
}

/// The fields of a sample, by their names. All fields with rows for objects have the same number of rows.
///
/// ```
/// use warpfeed::fields::{BoxFormat, Boxes, Fields};
///
/// let boxes = Boxes::new(BoxFormat::Xyxy, vec![[10.0, 10.0, 30.0, 20.0], [0.0, 5.0, 8.0, 9.0]]);
/// let fields = Fields::new().with("boxes", boxes)?.with("labels", vec![3, 17])?;
/// assert_eq!((fields.objects(), fields.boxes().unwrap().rows()[1]), (2, [0.0, 5.0, 8.0, 9.0]));
/// assert!(fields.with("area", vec![200.0]).is_err(), "one row for two objects");
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields {
    named: Vec<(Cow<'static, str>, Field)>,
}

impl Fields {
    /// No fields.
    #[must_use]
    pub const fn new() -> Self {
        Self { named: Vec::new() }
    }

    /// Adds a field, or replaces the one of this name.
    ///
    /// # Errors
    /// [`Error::Parameter`] if its rows are not as many as those of the other fields, or if there are boxes already
    /// under another name.
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, field: impl Into<Field>) -> Result<Self> {
        self.insert(name, field)?;
        Ok(self)
    }

    /// Adds a field, or replaces the one of this name.
    ///
    /// # Errors
    /// The errors of [`with`](Self::with); the fields are then as before.
    pub fn insert(&mut self, name: impl Into<Cow<'static, str>>, field: impl Into<Field>) -> Result<()> {
        let (name, field) = (name.into(), field.into());
        let others = || self.named.iter().filter(|(other, _)| *other != name).map(|(_, field)| field);
        if let Some(rows) = field.objects()
            && let Some(objects) = others().find_map(Field::objects)
            && rows != objects
        {
            return Err(Error::parameter("fields", "rows", format!("{objects}, as of the other fields"), rows));
        }
        if matches!(field, Field::Boxes(_)) && others().any(|field| matches!(field, Field::Boxes(_))) {
            return Err(Error::parameter("fields", "boxes", "one field of boxes", format!("another, {name}")));
        }
        match self.named.iter_mut().find(|(other, _)| *other == name) {
            Some((_, old)) => *old = field,
            None => self.named.push((name, field)),
        }
        Ok(())
    }

    /// The field of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Field> {
        self.named.iter().find(|(own, _)| own == name).map(|(_, field)| field)
    }

    /// All fields, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Field)> {
        self.named.iter().map(|(name, field)| (&**name, field))
    }

    /// Takes the fields apart, in the order in which they were added.
    pub(crate) fn into_named(self) -> impl Iterator<Item = (Cow<'static, str>, Field)> {
        self.named.into_iter()
    }

    /// The boxes; `None` if no field is one of boxes.
    #[must_use]
    pub fn boxes(&self) -> Option<&Boxes> {
        self.named.iter().find_map(|(_, field)| if let Field::Boxes(boxes) = field { Some(boxes) } else { None })
    }

    /// Number of objects: the rows of the fields that have rows; 0 if there are none.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.named.iter().find_map(|(_, field)| field.objects()).unwrap_or(0)
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// The fields that move as points do, and the rows of objects; not masks and auxiliary images.
    pub(crate) fn without_masks(&self) -> Self {
        let named = self.named.iter().filter(|(_, field)| field.as_mask().is_none());
        Self { named: named.cloned().collect() }
    }

    /// Masks and auxiliary images, with their names.
    pub(crate) fn masks(&self) -> impl Iterator<Item = (&Cow<'static, str>, &Mask)> {
        self.named.iter().filter_map(|(name, field)| Some((name, field.as_mask()?)))
    }

    /// Replaces the planes of a mask or of an auxiliary image.
    pub(crate) fn replace_mask(&mut self, name: &str, mask: Mask) {
        if let Some((_, field)) = self.named.iter_mut().find(|(own, _)| own == name) {
            *field = Field::of_mask(mask);
        }
    }

    /// Drops masks and auxiliary images.
    pub(crate) fn drop_masks(&mut self) {
        self.named.retain(|(_, field)| field.as_mask().is_none());
    }

    /// Whether a field has masks of objects.
    pub(crate) fn has_object_masks(&self) -> bool {
        self.named.iter().any(|(_, field)| matches!(field, Field::Mask(mask) if mask.is_of_objects()))
    }

    /// Only the fields with these names, in the order of the names. A name without a field is left out.
    pub(crate) fn only(&self, names: &[String]) -> Self {
        let one = |name: &String| self.named.iter().find(|(own, _)| own == name).cloned();
        Self { named: names.iter().filter_map(one).collect() }
    }

    /// Whether a field has points: boxes or keypoints.
    pub(crate) fn has_points(&self) -> bool {
        self.named.iter().any(|(_, field)| matches!(field, Field::Boxes(_) | Field::KeyPoints(_)))
    }

    /// The fields, to be changed. Their numbers of rows must stay equal.
    pub(crate) fn fields_mut(&mut self) -> impl Iterator<Item = &mut Field> {
        self.named.iter_mut().map(|(_, field)| field)
    }

    /// The boxes, to be changed.
    fn boxes_mut(&mut self) -> Option<&mut Boxes> {
        self.fields_mut().find_map(|field| if let Field::Boxes(boxes) = field { Some(boxes) } else { None })
    }

    /// Keeps the objects for which `kept` is true: their boxes, numbers, keypoints and masks. Returns the number of
    /// objects that go.
    pub(crate) fn keep(&mut self, kept: &[bool]) -> usize {
        let gone = kept.iter().filter(|kept| !**kept).count();
        if gone > 0 {
            self.fields_mut().filter(|field| field.objects().is_some()).for_each(|field| field.keep(kept));
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raster::Size;

    #[test]
    fn objects_that_go_take_all_their_rows_with_them() {
        let masks = Mask::of_objects(Size::new(2, 1), [vec![1, 0], vec![0, 1], vec![1, 1]]).unwrap();
        let mut fields = Fields::new()
            .with(BOXES, Boxes::new(BoxFormat::Xyxy, vec![[0.0; 4], [1.0; 4], [2.0; 4]]))
            .and_then(|fields| fields.with(LABELS, vec![5, 6, 7]))
            .and_then(|fields| fields.with("area", vec![0.5, 1.5, 2.5]))
            .and_then(|fields| fields.with(MASKS, masks))
            .and_then(|fields| fields.with(KEYPOINTS, KeyPoints::of_objects(2, vec![[0.0; 2]; 6], vec![2; 6]).unwrap()))
            .and_then(|fields| fields.with("scene", Mask::new(Size::new(2, 1), vec![3_u8, 4]).unwrap()))
            .unwrap();
        fields.keep(&[true, false, true]);
        assert_eq!(fields.boxes().unwrap().rows(), [[0.0; 4], [2.0; 4]]);
        assert_eq!(fields.get(LABELS), Some(&Field::Integers(vec![5, 7])));
        assert_eq!(fields.get("area"), Some(&Field::Floats(vec![0.5, 2.5])));
        let (Some(Field::Mask(masks)), Some(Field::KeyPoints(points))) = (fields.get(MASKS), fields.get(KEYPOINTS))
        else {
            panic!("{fields:?}")
        };
        assert_eq!((masks.planes().len(), points.points().len(), fields.objects()), (2, 4, 2));
        let Some(Field::Mask(scene)) = fields.get("scene") else { panic!("{fields:?}") };
        assert_eq!(scene.planes().len(), 1, "a mask of the image has no rows");
    }

    #[test]
    fn fields_of_unequal_rows_and_two_fields_of_boxes_are_refused() {
        let boxes = || Boxes::new(BoxFormat::Xyxy, vec![[0.0; 4]; 2]);
        let mut fields = Fields::new().with(BOXES, boxes()).unwrap();
        assert!(fields.insert("more", boxes()).unwrap_err().is_parameter());
        assert!(fields.insert(LABELS, vec![1]).unwrap_err().to_string().contains("must be 2"));
        fields.insert(BOXES, Boxes::new(BoxFormat::Xywh, vec![[1.0; 4]])).unwrap();
        assert_eq!(fields.objects(), 1, "a field is replaced by one of its name");
    }
}
