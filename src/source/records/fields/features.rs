//! Fields as TFRecord features, named as in TensorFlow's detection sets.

use super::json::{is_whole, stated};
use super::{Fault, IGNORED, Part, StoredFields, mask, masks};
use crate::fields::{BOXES, BoxFormat, Boxes, Field, KEYPOINTS, KeyPoints, LABELS, MASK, MASKS};
use crate::raster::Size;

/// The feature in which `pack` writes fields as JSON.
pub(super) const JSON: &str = "warpfeed/fields";
/// The features of boxes: left, top, right, bottom, as shares of the image's sides.
pub(super) const BBOX: [&str; 4] =
    ["image/object/bbox/xmin", "image/object/bbox/ymin", "image/object/bbox/xmax", "image/object/bbox/ymax"];
/// The features of keypoints: x and y as shares of the image's sides, for all objects one after the other.
pub(super) const POINTS: [&str; 2] = ["image/object/keypoint/x", "image/object/keypoint/y"];
/// The feature of COCO's visibility of each keypoint.
pub(super) const VISIBILITY: &str = "image/object/keypoint/visibility";
/// The feature of the number of each object's keypoints that are labeled.
pub(super) const LABELED: &str = "image/object/keypoint/num";
/// The features of the image's width and height in pixels, the size of the image that the fields refer to.
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
    let mut all: Vec<String> = [JSON].into_iter().chain(SIZE).map(str::to_owned).collect();
    for name in names {
        match &**name {
            BOXES => all.extend(BBOX.map(str::to_owned)),
            // A number for each object says how many objects share the keypoints.
            KEYPOINTS => all.extend([POINTS[0], POINTS[1], VISIBILITY, LABELED, BBOX[0]].map(str::to_owned)),
            name => all.push(alias(name).to_owned()),
        }
    }
    all
}

/// The size that a record states for its image.
pub(super) fn size(stored: &StoredFields) -> Result<Option<Size>, Fault> {
    let mut sides = [None; 2];
    for (side, feature) in sides.iter_mut().zip(SIZE) {
        *side = match stored.get(feature)? {
            Some(Part::Integers(values)) => values.first().map(|value| *value as f64),
            Some(Part::Floats(values)) => values.first().copied().map(f64::from),
            Some(Part::Bytes(_)) | None => None,
        };
    }
    let [Some(width), Some(height)] = sides else { return Ok(None) };
    Ok(Some(stated(width, height)?))
}

/// Reads a field of an image of `size`; `None` if the record does not have it.
pub(super) fn read(name: &str, stored: &StoredFields, size: Size) -> Result<Option<Field>, Fault> {
    match name {
        BOXES => return boxes(stored, size),
        KEYPOINTS => return keypoints(stored, size),
        _ => {}
    }
    let feature = alias(name);
    let Some(part) = stored.get(feature)? else { return Ok(None) };
    Ok(Some(match (name, part) {
        (MASKS, part) => masks(part, feature, size)?.into(),
        // A feature without a list, as some write it for an image without objects.
        (_, Part::Bytes(files)) if files.is_empty() && is_whole(name) => Vec::<i64>::new().into(),
        (_, Part::Bytes(files)) if files.is_empty() => Vec::<f32>::new().into(),
        (_, Part::Bytes(_)) => mask(part, feature)?.with_fill(IGNORED).into(),
        (_, Part::Floats(rows)) if rows.iter().all(|value| value.is_finite()) => rows.clone().into(),
        (_, Part::Floats(_)) => return Err(format!("{feature}: a number is not finite").into()),
        (_, Part::Integers(rows)) => rows.clone().into(),
    }))
}

/// The numbers of features that belong together; `None` if the record has none of them.
fn columns<'a, const N: usize>(stored: &'a StoredFields, features: [&str; N]) -> Result<Option<[&'a [f32]; N]>, Fault> {
    let mut columns = [None; N];
    for (column, feature) in columns.iter_mut().zip(features) {
        *column = match stored.get(feature)? {
            Some(Part::Floats(values)) => Some(&values[..]),
            Some(part) if part.is_empty() => Some(&[][..]),
            Some(_) => return Err(format!("{feature} has no floats").into()),
            None => None,
        };
    }
    if columns.iter().all(Option::is_none) {
        return Ok(None);
    }
    if let Some((missing, _)) = features.iter().zip(columns).find(|(_, column)| column.is_none()) {
        return Err(format!("there is no feature {missing}").into());
    }
    let columns = columns.map(Option::unwrap_or_default);
    let lens = columns.map(<[f32]>::len);
    if lens.iter().any(|len| *len != lens[0]) {
        return Err(format!("{} and the others have {lens:?} values", features[0]).into());
    }
    Ok(Some(columns))
}

/// Boxes in pixels.
fn boxes(stored: &StoredFields, size: Size) -> Result<Option<Field>, Fault> {
    let Some([left, top, right, bottom]) = columns(stored, BBOX)? else { return Ok(None) };
    let [width, height] = [size.width as f32, size.height as f32];
    let row = |i: usize| [left[i] * width, top[i] * height, right[i] * width, bottom[i] * height];
    Ok(Some(Boxes::new(BoxFormat::Xyxy, (0..left.len()).map(row).collect()).into()))
}

/// Keypoints in pixels. Without a visibility for each, all are visible but those that are not numbers, as in
/// TensorFlow's decoder.
fn keypoints(stored: &StoredFields, size: Size) -> Result<Option<Field>, Fault> {
    let Some([x, y]) = columns(stored, POINTS)? else { return Ok(None) };
    let visibility = match stored.get(VISIBILITY)? {
        Some(Part::Integers(visibility)) if visibility.len() == x.len() => &visibility[..],
        _ => &[],
    };
    if let Some(other) = visibility.iter().find(|seen| !(0..=2).contains(*seen)) {
        return Err(format!("{VISIBILITY}: {other} is not 0, 1 or 2").into());
    }
    let mut rows = Vec::with_capacity(x.len());
    for (i, [x, y]) in x.iter().zip(y).map(|(x, y)| [x * size.width as f32, y * size.height as f32]).enumerate() {
        let is_finite = x.is_finite() && y.is_finite();
        rows.push(match visibility.get(i) {
            Some(0) => ([0.0; 2], 0),
            None if !is_finite => ([0.0; 2], 0),
            Some(_) if !is_finite => return Err(format!("{}: a labeled keypoint is no number", POINTS[0]).into()),
            seen => ([x, y], seen.map_or(2, |seen| *seen as u8)),
        });
    }
    let (points, visibility): (Vec<[f32; 2]>, Vec<u8>) = rows.into_iter().unzip();
    let objects = match (stored.get(LABELED)?, stored.get(BBOX[0])?) {
        (Some(Part::Integers(numbers)), _) => numbers.len(),
        (_, Some(Part::Floats(left))) => left.len(),
        _ => 0,
    };
    if objects == 0 && !points.is_empty() || !points.len().is_multiple_of(objects.max(1)) {
        let message = format!("{} has {} values, for {objects} objects", POINTS[0], points.len());
        return Err(format!("{message} by {LABELED} or {}", BBOX[0]).into());
    }
    // Without objects nothing says how many points each would have.
    let per_object = points.len().checked_div(objects).unwrap_or(1);
    let keypoints = KeyPoints::of_objects(per_object, points, visibility).map_err(|error| error.to_string())?;
    Ok(Some(keypoints.into()))
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
            Fault::Failed(error) => error.to_string(),
        })
    }

    #[test]
    fn width_and_height_are_the_stated_size() {
        let stated = |sides: [Part; 2]| {
            let parts: Vec<_> = SIZE.into_iter().zip(sides).collect();
            size(&stored(&parts)).map_err(|fault| matches!(fault, Fault::Wrong(message) if message.contains("0 x 20")))
        };
        let whole = |side: i64| Part::Integers(vec![side]);
        assert_eq!(stated([whole(10), whole(20)]), Ok(Some(Size::new(10, 20))));
        assert_eq!(stated([Part::Floats(vec![10.0]), whole(20)]), Ok(Some(Size::new(10, 20))));
        assert_eq!(stated([Part::Bytes(vec![]), whole(20)]), Ok(None));
        assert_eq!(stated([whole(0), whole(20)]), Err(true));
        assert_eq!(size(&stored(&[(SIZE[0], whole(10))])).map_err(|_| ()), Ok(None));
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

    #[test]
    fn keypoints_are_those_of_as_many_objects() {
        let x = Part::Floats(vec![0.25, 0.5, f32::NAN, 1.0]);
        let y = Part::Floats(vec![0.1, 0.5, 0.0, 0.0]);
        let points = [(POINTS[0], x), (POINTS[1], y)];
        let objects = |count: usize| (BBOX[0], Part::Floats(vec![0.0; count]));
        let with =
            |more: &[(&'static str, Part)]| found(KEYPOINTS, &points.iter().chain(more).cloned().collect::<Vec<_>>());
        let want = |per_object, visibility: [u8; 4]| {
            let corners = [[5.0, 1.0], [10.0, 5.0], [0.0; 2], [20.0, 0.0]];
            Ok(Some(KeyPoints::of_objects(per_object, corners.to_vec(), visibility.to_vec()).unwrap().into()))
        };
        // Without visibilities, a keypoint with NaN counts as not labeled.
        assert_eq!(with(&[objects(2)]), want(2, [2, 2, 0, 2]));
        assert_eq!(with(&[objects(2), (VISIBILITY, Part::Integers(vec![1, 1]))]), want(2, [2, 2, 0, 2]));
        assert_eq!(with(&[objects(1), (VISIBILITY, Part::Integers(vec![1, 2, 0, 1]))]), want(4, [1, 2, 0, 1]));
        // The numbers of labeled points come first.
        assert_eq!(with(&[(LABELED, Part::Integers(vec![1, 1])), objects(1)]), want(2, [2, 2, 0, 2]));
        let wrong = |more: &[(&'static str, Part)]| with(more).unwrap_err();
        assert!(wrong(&[]).contains("4 values, for 0 objects"));
        assert!(wrong(&[objects(3)]).contains("for 3 objects"));
        assert!(wrong(&[objects(1), (VISIBILITY, Part::Integers(vec![2; 4]))]).contains("no number"));
        assert!(wrong(&[objects(1), (VISIBILITY, Part::Integers(vec![2, 2, 0, 3]))]).contains("3 is not 0, 1 or 2"));
        assert!(found(KEYPOINTS, &points[..1]).unwrap_err().contains("no feature image/object/keypoint/y"));
        assert_eq!(found(KEYPOINTS, &[objects(2)]), Ok(None));
        let none = POINTS.map(|name| (name, Part::Bytes(Vec::new())));
        let none = found(KEYPOINTS, &none).unwrap().unwrap();
        assert_eq!(none.objects(), Some(0));
    }
}
