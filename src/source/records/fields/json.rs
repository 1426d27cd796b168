//! Fields as JSON: an object in the form that `pack` writes, or lists.

use super::Fault;
use crate::fields::{
    BOXES, BoxFormat, Boxes, Clamping, Field, KEYPOINTS, KeyPoints, LABELS, MASK, MASKS, Mask, PointConvention,
    check_objects,
};
use crate::interpolation::Interpolation;
use crate::raster::Size;
use crate::source::RecordOptions;
use crate::source::coco::segmentation::{NoPixels, Segmentation};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Key of the entry that describes the image of the fields. It is reserved: no field can have this name.
pub(super) const OF: &str = "warpfeed";

/// A field with its type, as `pack` writes it. Numbers are those of f32 as doubles, so that reading gives the same f32.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Typed {
    Boxes {
        format: BoxFormat,
        /// `soft`, or null.
        #[serde(default)]
        clamping: Clamping,
        values: Vec<[f64; 4]>,
    },
    KeyPoints {
        /// Number of points of each object; missing if the points belong to the image.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        per_object: Option<usize>,
        #[serde(default)]
        convention: PointConvention,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        flip_index: Option<Vec<usize>>,
        /// x and y.
        values: Vec<[f64; 2]>,
        /// COCO's visibility of each point; missing if all are visible.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        visibility: Option<Vec<u8>>,
    },
    /// A mask of the image, whose pixels are in a part of their own.
    Mask {
        #[serde(default)]
        fill: u16,
    },
    /// An auxiliary image, whose pixels are in a part of their own.
    Image {
        /// The filter of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interpolation: Option<Interpolation>,
        #[serde(default)]
        fill: u16,
    },
    /// Masks of objects: COCO's polygons or run lengths, or in parts of their own.
    Masks {
        #[serde(default)]
        fill: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        values: Option<Vec<Value>>,
    },
    Integers {
        values: Vec<i64>,
    },
    Floats {
        values: Vec<f64>,
    },
}

/// The image that fields are of.
#[derive(Serialize, Deserialize)]
pub(super) struct Of {
    /// Width and height in pixels.
    pub size: [u32; 2],
}

/// The JSON of a sample.
#[derive(Default)]
pub(super) struct Document {
    entries: Map<String, Value>,
    /// The size that the JSON states for the image: in the entry of `pack`, or else `width` and `height`.
    pub size: Option<Size>,
}

impl Document {
    pub fn read(text: Option<&[u8]>) -> Result<Self, String> {
        let Some(text) = text else { return Ok(Self::default()) };
        let json = serde_json::from_slice(text).map_err(|error| format!("its JSON is damaged: {error}"))?;
        // JSON of another kind may be the label or a target.
        let Value::Object(mut entries) = json else { return Ok(Self::default()) };
        let of = entries.remove(OF).map(serde_json::from_value::<Of>).transpose();
        let of = of.map_err(|error| format!("its JSON is damaged: {OF}: {error}"))?;
        let size = match of {
            Some(Of { size: [width, height] }) => Some(Size::new(width, height)),
            None => match ["width", "height"].map(|side| entries.get(side).and_then(Value::as_f64)) {
                [Some(width), Some(height)] => Some(stated(width, height)?),
                // Lists of these names are fields.
                _ => None,
            },
        };
        Ok(Self { entries, size })
    }

    /// The entry of a field.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.entries.remove(name).filter(|value| !value.is_null())
    }
}

/// The size of these sides.
///
/// # Errors
/// A message unless they are whole numbers above 0.
pub(in crate::source) fn stated(width: f64, height: f64) -> Result<Size, String> {
    let is_side = |side: &f64| side.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(side);
    match [width, height].iter().all(is_side) {
        true => Ok(Size::new(width as u32, height as u32)),
        false => Err(format!("it is of an image of {width} x {height} pixels")),
    }
}

/// The result of reading a field's JSON.
pub(super) enum Read {
    Whole(Field),
    /// All but the pixels of a mask, which are in parts.
    Mask {
        fill: u16,
        of_objects: bool,
    },
    /// All but the pixels of an auxiliary image.
    Image {
        interpolation: Option<Interpolation>,
        fill: u16,
    },
}

/// Reads the field `name` of an image of `size`.
pub(super) fn read(name: &str, value: Value, size: Size, options: &RecordOptions) -> Result<Read, Fault> {
    let field = match value {
        Value::Object(entry) => return typed(name, entry, size),
        Value::Array(rows) => match name {
            BOXES => boxes(rows, options.boxes.ok_or(Fault::NoFormat)?)?,
            MASKS => masks(rows, size)?.into(),
            LABELS if rows.iter().any(Value::is_string) => labels(&rows, &options.classes)?,
            _ => numbers(name, &rows)?,
        },
        other => return Err(format!("it is {other:.40}, neither a list nor an object").into()),
    };
    Ok(Read::Whole(field))
}

fn typed(name: &str, mut entry: Map<String, Value>, size: Size) -> Result<Read, Fault> {
    if !entry.contains_key("type") {
        let usual = match name {
            BOXES => "boxes",
            KEYPOINTS => "keypoints",
            MASK => "mask",
            MASKS => "masks",
            _ => return Err("it has no type".into()),
        };
        entry.insert("type".to_owned(), usual.into());
    }
    let typed = serde_json::from_value(Value::Object(entry)).map_err(|error| error.to_string())?;
    let whole = |field| Ok(Read::Whole(field));
    match typed {
        Typed::Boxes { format, clamping, values } => {
            let rows = values.into_iter().map(|row| row.map(|value| value as f32)).collect();
            whole(Boxes::new(format, rows).with_clamping(clamping).into())
        }
        Typed::KeyPoints { per_object, convention, flip_index, values, visibility } => {
            let points: Vec<_> = values.into_iter().map(|point| point.map(|value| value as f32)).collect();
            if !points.as_flattened().iter().all(|value| value.is_finite()) {
                return Err("a coordinate is no finite number".into());
            }
            let visibility = visibility.unwrap_or_else(|| vec![2; points.len()]);
            if visibility.iter().any(|seen| *seen > 2) {
                return Err("a visibility is not 0, 1 or 2".into());
            }
            let points = match per_object {
                Some(per_object) => {
                    KeyPoints::of_objects(per_object, points, visibility).map_err(|error| error.to_string())?
                }
                None => KeyPoints::of_image(points),
            };
            let points = points.with_convention(convention);
            whole(match flip_index {
                Some(flip_index) => points.flip_index(flip_index).map_err(|error| error.to_string())?.into(),
                None => points.into(),
            })
        }
        Typed::Mask { fill } => Ok(Read::Mask { fill, of_objects: false }),
        Typed::Masks { fill, values: None } => Ok(Read::Mask { fill, of_objects: true }),
        Typed::Image { interpolation, fill } => Ok(Read::Image { interpolation, fill }),
        Typed::Masks { fill, values: Some(values) } => whole(masks(values, size)?.with_fill(fill).into()),
        Typed::Integers { values } => whole(values.into()),
        Typed::Floats { values } => whole(floats(values.into_iter())?.into()),
    }
}

fn boxes(rows: Vec<Value>, format: BoxFormat) -> Result<Field, Fault> {
    let row = |(i, row): (usize, Value)| {
        let numbers: [f64; 4] =
            serde_json::from_value(row).map_err(|_| format!("object {i}: its box is not of 4 numbers"))?;
        Ok(numbers.map(|value| value as f32))
    };
    let rows = rows.into_iter().enumerate().map(row).collect::<Result<_, String>>()?;
    Ok(Boxes::new(format, rows).into())
}

/// The masks of objects, as COCO's annotations have them.
fn masks(values: Vec<Value>, size: Size) -> Result<Mask, Fault> {
    check_objects(values.len(), size)?;
    let plane = |(i, value): (usize, Value)| {
        let shape: Segmentation = serde_json::from_value(value).map_err(|error| format!("object {i}: {error}"))?;
        shape.plane(size).map_err(|fault| match fault {
            NoPixels::Wrong(message) => Fault::Wrong(format!("object {i}: {message}")),
            NoPixels::Memory(error) => Fault::Failed(error),
        })
    };
    let planes = values.into_iter().enumerate().map(plane).collect::<Result<Vec<_>, Fault>>()?;
    Mask::of_objects(size, planes).map_err(|error| error.to_string().into())
}

/// Labels that are names of classes.
fn labels(rows: &[Value], classes: &[String]) -> Result<Field, Fault> {
    let label = |(i, row): (usize, &Value)| {
        let label = classes.iter().position(|class| row.as_str() == Some(class));
        label
            .map(|label| label as i64)
            .ok_or_else(|| format!("object {i}: {row:.40} is not among the classes that were given"))
    };
    Ok(rows.iter().enumerate().map(label).collect::<Result<Vec<_>, String>>()?.into())
}

/// Whole numbers or f32, by the field's name: so a field has one type in all samples, however it is written.
fn numbers(name: &str, rows: &[Value]) -> Result<Field, Fault> {
    if is_whole(name) {
        let number =
            |(i, row): (usize, &Value)| row.as_i64().ok_or_else(|| format!("object {i}: {row:.40} is no whole number"));
        return Ok(rows.iter().enumerate().map(number).collect::<Result<Vec<_>, String>>()?.into());
    }
    let number = |(i, row): (usize, &Value)| row.as_f64().ok_or_else(|| format!("object {i}: {row:.40} is no number"));
    let numbers = rows.iter().enumerate().map(number).collect::<Result<Vec<_>, String>>()?;
    Ok(floats(numbers.into_iter())?.into())
}

/// Whether a list of this name has whole numbers, unless it has a type.
pub(super) fn is_whole(name: &str) -> bool {
    [LABELS, "iscrowd", "isthing", "difficult", "truncated"].contains(&name)
        || name.ends_with("id")
        || name.ends_with("ids")
}

fn floats(values: impl Iterator<Item = f64>) -> Result<Vec<f32>, Fault> {
    let float = |(i, value): (usize, f64)| {
        let float = value as f32;
        if float.is_finite() { Ok(float) } else { Err(format!("object {i}: {value} is more than f32 can hold")) }
    };
    values.enumerate().map(float).collect::<Result<_, String>>().map_err(Fault::from)
}
