//! Fields as `pack` writes them.

use super::json::{OF, Of, Typed};
use super::{FieldStorage, JSON, MAX_FIELDS_BYTES, Part, features, part_names, pixel_part};
use crate::error::{Error, Result};
use crate::fields::{BOXES, BoxFormat, Boxes, Field, Fields, KEYPOINTS, KeyPoints, MaskValues};
use crate::raster::Size;
use crate::source::coco::runs;
use serde_json::{Map, Value, json};

/// Largest size of a sample's fields when packed, in bytes. It leaves room for their names, and for numbers that take
/// more bytes in a record than in memory.
const MAX_PACKED_BYTES: u64 = MAX_FIELDS_BYTES / 4 * 3;

/// Checks that a format can hold fields of these names together with a target: its field, and the part or feature that
/// holds it.
///
/// # Errors
/// [`Error::Parameter`] for RecordIO, for names that a part cannot have, and for a target in a part that fields take.
pub(crate) fn check_names(storage: FieldStorage, names: &[String], target: Option<(&str, &str)>) -> Result<()> {
    let refuse = |expected: &str, got: &str| Err(Error::parameter("pack", "fields", expected, got));
    let Some(first) = names.first() else { return Ok(()) };
    if storage == FieldStorage::None {
        return refuse("none for RecordIO, which holds labels alone: pack WebDataset or TFRecord", first);
    }
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    for (i, name) in names.iter().enumerate() {
        if name.is_empty() || name.len() > 40 || !name.chars().all(is_plain) || name == OF {
            return refuse("names of 1 to 40 lower-case letters, digits, - and _", name);
        }
        if names[..i].contains(name) {
            return refuse("each field once", name);
        }
    }
    let is_taken = |part: &str| part_names(storage, names).iter().any(|own| own == part);
    match target {
        Some((field, part)) if is_taken(part) => {
            Err(Error::parameter("pack", "target", format!("in another part than {part}, which holds fields"), field))
        }
        _ => Ok(()),
    }
}

/// The parts or features that hold the fields of an image of `size`.
///
/// # Errors
/// The field and a message, for fields that reading them again would refuse.
pub(crate) fn packed(
    storage: FieldStorage,
    fields: &Fields,
    size: Size,
) -> Result<Vec<(String, Part)>, (String, String)> {
    let mut all = Vec::new();
    let mut entries = Map::new();
    let of = Of { size: [size.width, size.height] };
    entries.insert(OF.to_owned(), json!(of));
    for (name, field) in fields.iter() {
        let wrong = |message: String| (name.to_owned(), message);
        let typed = typed(name, field, size, storage, &mut all).map_err(wrong)?;
        let value = serde_json::to_value(typed).map_err(|error| wrong(error.to_string()))?;
        entries.insert(name.to_owned(), value);
    }
    let json = Part::Bytes(vec![Value::Object(entries).to_string().into_bytes()]);
    if storage == FieldStorage::Features {
        let side = |side: u32| Part::Integers(vec![side.into()]);
        all.push((features::SIZE[0].to_owned(), side(size.width)));
        all.push((features::SIZE[1].to_owned(), side(size.height)));
        all.push((features::JSON.to_owned(), json));
    } else {
        all.push((JSON.to_owned(), json));
    }
    let len_bytes: u64 = all.iter().map(|(_, part)| part.len_bytes()).sum();
    if len_bytes > MAX_PACKED_BYTES {
        let first = fields.iter().next().map_or("fields", |(name, _)| name);
        return Err((first.to_owned(), format!("fields take {len_bytes} bytes, over the limit of {MAX_PACKED_BYTES}")));
    }
    Ok(all)
}

/// The JSON of a field; what other parts hold of it is added to `parts`.
fn typed(
    name: &str,
    field: &Field,
    size: Size,
    storage: FieldStorage,
    parts: &mut Vec<(String, Part)>,
) -> Result<Typed, String> {
    let in_features = storage == FieldStorage::Features;
    // Other programs read the features of TensorFlow's names.
    let is_known = in_features && features::alias(name) != name;
    let of_pixels = || if in_features { features::alias(name).to_owned() } else { pixel_part(name) };
    Ok(match field {
        Field::Boxes(boxes) => {
            if name != BOXES {
                return Err(format!("boxes are packed under the name {BOXES}"));
            }
            boxes.check(size)?;
            if in_features {
                parts.extend(box_features(boxes, size));
            }
            let values = boxes.rows().iter().map(|row| row.map(f64::from)).collect();
            Typed::Boxes { format: boxes.format(), clamping: boxes.clamping(), values }
        }
        Field::KeyPoints(points) => {
            finite(points.points().as_flattened())?;
            if in_features && name == KEYPOINTS && points.objects().is_some() {
                parts.extend(point_features(points, size));
            }
            Typed::KeyPoints {
                per_object: points.objects().map(|_| points.per_object()),
                convention: points.convention(),
                flip_index: points.mirrored().map(<[usize]>::to_vec),
                values: points.points().iter().map(|point| point.map(f64::from)).collect(),
                visibility: points.objects().map(|_| points.visibility().to_vec()),
            }
        }
        Field::Mask(mask) => {
            if mask.size() != size {
                return Err(format!("it has {} pixels, the image {size}", mask.size()));
            }
            let fill = mask.fill();
            if mask.is_of_objects() && !in_features {
                return Ok(Typed::Masks {
                    fill,
                    values: Some(mask.planes().iter().map(|plane| counts(plane, size)).collect()),
                });
            }
            let files = (0..mask.planes().len()).map(|i| mask.to_png(i)).collect::<Result<Vec<_>>>();
            parts.push((of_pixels(), Part::Bytes(files.map_err(|error| error.to_string())?)));
            if mask.is_of_objects() { Typed::Masks { fill, values: None } } else { Typed::Mask { fill } }
        }
        Field::Image(image) => {
            let file = image.to_png().map_err(|error| error.to_string())?;
            parts.push((of_pixels(), Part::Bytes(vec![file])));
            Typed::Image { interpolation: image.interpolation(), fill: image.fill() }
        }
        Field::Integers(rows) => {
            if is_known {
                parts.push((features::alias(name).to_owned(), Part::Integers(rows.clone())));
            }
            Typed::Integers { values: rows.clone() }
        }
        Field::Floats(rows) => {
            finite(rows)?;
            if is_known {
                parts.push((features::alias(name).to_owned(), Part::Floats(rows.clone())));
            }
            Typed::Floats { values: rows.iter().copied().map(f64::from).collect() }
        }
    })
}

fn finite(values: &[f32]) -> Result<(), String> {
    match values.iter().find(|value| !value.is_finite()) {
        Some(value) => Err(format!("it has {value}, and JSON holds finite numbers alone")),
        None => Ok(()),
    }
}

/// The corners of boxes as TensorFlow's features, in shares of the image's sides.
fn box_features(boxes: &Boxes, size: Size) -> impl Iterator<Item = (String, Part)> {
    let sides = [size.width, size.height, size.width, size.height].map(|side| side as f32);
    let corners = boxes.to(BoxFormat::Xyxy);
    features::BBOX.iter().zip(sides).enumerate().map(move |(i, (feature, side))| {
        ((*feature).to_owned(), Part::Floats(corners.rows().iter().map(|row| row[i] / side).collect()))
    })
}

/// The keypoints of objects as TensorFlow's features, in shares of the image's sides.
fn point_features(points: &KeyPoints, size: Size) -> impl Iterator<Item = (String, Part)> {
    let sides = [size.width, size.height].map(|side| side as f32);
    let places = features::POINTS.iter().zip(sides).enumerate().map(|(i, (feature, side))| {
        ((*feature).to_owned(), Part::Floats(points.points().iter().map(|point| point[i] / side).collect()))
    });
    let visibility = points.visibility();
    let labeled = |own: &[u8]| own.iter().filter(|seen| **seen > 0).count() as i64;
    let numbers = visibility.chunks(points.per_object()).map(labeled).collect();
    let visibility = visibility.iter().copied().map(i64::from).collect();
    places.chain([
        (features::VISIBILITY.to_owned(), Part::Integers(visibility)),
        (features::LABELED.to_owned(), Part::Integers(numbers)),
    ])
}

/// The mask of an object as COCO's compressed counts.
fn counts(plane: &MaskValues, size: Size) -> Value {
    let counts = match plane {
        MaskValues::U8(values) => runs::compress(values, size),
        MaskValues::U16(_) => String::new(),
    };
    json!({ "size": [size.height, size.width], "counts": counts })
}
