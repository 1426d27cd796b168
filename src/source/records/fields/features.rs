//! Fields as features of TFRecord, by the names of TensorFlow's detection sets.

use super::json::is_whole;
use super::{Fault, IGNORED, Part, StoredFields, mask, masks};
use crate::fields::{BOXES, BoxFormat, Boxes, Field, LABELS, MASK, MASKS};
use crate::raster::Size;

/// The feature in which `pack` writes fields as JSON.
pub(super) const JSON: &str = "warpfeed/fields";
/// The features of boxes: left, top, right, bottom, as shares of the image's sides.
pub(super) const BBOX: [&str; 4] =
    ["image/object/bbox/xmin", "image/object/bbox/ymin", "image/object/bbox/xmax", "image/object/bbox/ymax"];
/// The features of the image's width and height in pixels, for other programs: a record's image has its size.
pub(super) const SIZE: [&str; 2] = ["image/width", "image/height"];

/// The feature of a field other than boxes: TensorFlow's name for it, or the field's own.
pub(super) fn alias(name: &str) -> &str {
    match name {
        LABELS => "image/object/class/label",
        MASKS => "image/object/mask",
        MASK => "image/segmentation/class/encoded",
        "area" => "image/object/area",
        "iscrowd" => "image/object/is_crowd",
        "difficult" => "image/object/difficult",
        "truncated" => "image/object/truncated",
        name => name,
    }
}

/// The features that may hold these fields.
pub(super) fn names(names: &[String]) -> Vec<String> {
    let mut all = vec![JSON.to_owned()];
    for name in names {
        match &**name {
            BOXES => all.extend(BBOX.map(str::to_owned)),
            name => all.push(alias(name).to_owned()),
        }
    }
    all
}

/// Reads a field of an image of `size`; `None` if the record does not have it.
pub(super) fn read(name: &str, stored: &StoredFields, size: Size) -> Result<Option<Field>, Fault> {
    if name == BOXES {
        return boxes(stored, size);
    }
    let feature = alias(name);
    let Some(part) = stored.get(feature)? else { return Ok(None) };
    Ok(Some(match (name, part) {
        (MASKS, part) => masks(part, feature, size)?.into(),
        // A feature without a list, as some write it for an image without objects.
        (_, Part::Bytes(files)) if files.is_empty() && is_whole(name) => Vec::<i64>::new().into(),
        (_, Part::Bytes(files)) if files.is_empty() => Vec::<f32>::new().into(),
        (_, Part::Bytes(_)) => mask(part, feature, size)?.with_fill(IGNORED).into(),
        (_, Part::Floats(rows)) if rows.iter().all(|value| value.is_finite()) => rows.clone().into(),
        (_, Part::Floats(_)) => return Err(format!("{feature}: a number is not finite").into()),
        (_, Part::Integers(rows)) => rows.clone().into(),
    }))
}

/// Boxes in pixels.
fn boxes(stored: &StoredFields, size: Size) -> Result<Option<Field>, Fault> {
    let mut columns = Vec::with_capacity(BBOX.len());
    for feature in BBOX {
        columns.push(match stored.get(feature)? {
            Some(Part::Floats(column)) => Some(&column[..]),
            Some(part) if part.is_empty() => Some(&[][..]),
            Some(_) => return Err(format!("{feature} has no floats").into()),
            None => None,
        });
    }
    let (Some(Some(left)), Some(Some(top)), Some(Some(right)), Some(Some(bottom))) =
        (columns.first(), columns.get(1), columns.get(2), columns.get(3))
    else {
        let missing = BBOX.iter().zip(&columns).find(|(_, column)| column.is_none());
        return match missing {
            Some((name, _)) if columns.iter().any(Option::is_some) => Err(format!("there is no feature {name}").into()),
            _ => Ok(None),
        };
    };
    let lens = [left, top, right, bottom].map(|column| column.len());
    if lens.iter().any(|len| *len != lens[0]) {
        return Err(format!("{} and the others have {lens:?} values", BBOX[0]).into());
    }
    let [width, height] = [size.width as f32, size.height as f32];
    let row = |i: usize| [left[i] * width, top[i] * height, right[i] * width, bottom[i] * height];
    Ok(Some(Boxes::new(BoxFormat::Xyxy, (0..lens[0]).map(row).collect()).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: Size = Size::new(20, 10);

    fn stored(parts: &[(&str, Part)]) -> StoredFields {
        let mut stored = StoredFields::default();
        parts.iter().for_each(|(name, part)| stored.add(name, Ok(part.clone())));
        stored
    }

    fn found(name: &str, parts: &[(&str, Part)]) -> Result<Option<Field>, String> {
        read(name, &stored(parts), ON).map_err(|fault| match fault {
            Fault::Wrong(message) => message,
            Fault::NoFormat => "no format".to_owned(),
        })
    }

    #[test]
    fn shares_become_pixels_and_columns_must_agree() {
        let columns = |lens: [usize; 4]| -> Vec<(&str, Part)> {
            let column = |((name, len), share): ((&'static str, usize), f32)| (name, Part::Floats(vec![share; len]));
            BBOX.into_iter().zip(lens).zip([0.25, 0.5, 0.75, 1.0]).map(column).collect()
        };
        let boxes = Boxes::new(BoxFormat::Xyxy, vec![[5.0, 5.0, 15.0, 10.0]; 2]);
        assert_eq!(found(BOXES, &columns([2; 4])), Ok(Some(boxes.into())));
        assert!(found(BOXES, &columns([2, 2, 1, 2])).unwrap_err().contains("[2, 2, 1, 2] values"));
        assert!(found(BOXES, &columns([2; 4])[..3]).unwrap_err().contains("no feature image/object/bbox/ymax"));
        let mut whole = columns([1; 4]);
        whole[1].1 = Part::Integers(vec![3]);
        assert!(found(BOXES, &whole).unwrap_err().contains("ymin has no floats"));
        assert_eq!(found(BOXES, &[]), Ok(None));
    }

    #[test]
    fn features_without_a_list_are_of_the_type_that_their_field_has() {
        let none = || Part::Bytes(Vec::new());
        assert_eq!(found(LABELS, &[(alias(LABELS), none())]), Ok(Some(Field::Integers(Vec::new()))));
        assert_eq!(found("area", &[(alias("area"), none())]), Ok(Some(Field::Floats(Vec::new()))));
        let boxes = Boxes::new(BoxFormat::Xyxy, Vec::new());
        assert_eq!(found(BOXES, &BBOX.map(|name| (name, none()))), Ok(Some(boxes.into())));
        let Ok(Some(Field::Mask(masks))) = found(MASKS, &[(alias(MASKS), none())]) else { panic!("no masks") };
        assert_eq!((masks.planes().len(), masks.size()), (0, ON));
        assert!(found("area", &[(alias("area"), Part::Floats(vec![f32::NAN]))]).unwrap_err().contains("not finite"));
    }
}
