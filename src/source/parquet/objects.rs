//! Objects of images in Parquet files: a column `objects`, a struct of lists or a list of structs. A repetition level
//! of 1 begins an object, and one of 2 is a further number of it.

use super::columns::{column_names, damaged, guarded, reader};
use crate::error::{Error, Result};
use crate::fields::{BOXES, BoxFormat, Boxes, Field, LABELS};
use crate::source::no_fields;
use parquet::basic::{Repetition, Type};
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::file::metadata::ParquetMetaData;
use serde_json::Value;
use std::path::Path;

/// The column of objects.
const OBJECTS: &str = "objects";

/// The names of a field in the structs of objects.
fn names(field: &str) -> Vec<&str> {
    match field {
        BOXES => vec!["bbox", "bboxes", BOXES],
        LABELS => vec!["category", "categories", "label", LABELS, "category_id"],
        "ids" => vec!["id", "ids"],
        other => vec![other],
    }
}

/// Finds the column of a field of objects.
///
/// # Errors
/// [`Error::Parameter`] if there is none.
pub(super) fn find(metadata: &ParquetMetaData, field: &str) -> Result<usize> {
    let schema = metadata.file_metadata().schema_descr();
    let levels = if field == BOXES { 2 } else { 1 };
    let is = |i: usize, name: &str| {
        let column = schema.column(i);
        let [first, rest @ ..] = column.path().parts() else { return false };
        // In a list of structs the list and its element come before the name.
        let own = [rest.first(), rest.get(2)].into_iter().flatten().any(|part| part == name);
        first == OBJECTS && own && column.max_rep_level() == levels
    };
    let found = names(field).into_iter().find_map(|name| (0..schema.num_columns()).find(|i| is(*i, name)));
    found.ok_or_else(|| {
        no_fields(format!("the columns {}, and fields of those of {OBJECTS}", column_names(metadata)), field)
    })
}

/// Values of a field of the objects in one row.
#[derive(Debug)]
pub(super) struct Objects {
    values: Values,
    /// Number of values of each object.
    counts: Vec<u32>,
}

#[derive(Debug)]
enum Values {
    Integers(Vec<i64>),
    Floats(Vec<f32>),
    Texts(Vec<String>),
}

impl Objects {
    /// The field `name`.
    ///
    /// # Errors
    /// A message if an object has a wrong number of values, a number is not finite, or a label is not a class.
    pub(super) fn field(&self, name: &str, boxes: BoxFormat, classes: &[String]) -> Result<Field, String> {
        let wanted = if name == BOXES { 4 } else { 1 };
        if let Some((i, count)) = self.counts.iter().enumerate().find(|(_, count)| **count != wanted) {
            return Err(format!("object {i} has {count} values, not {wanted}"));
        }
        if name == BOXES {
            let numbers: Vec<f32> = match &self.values {
                Values::Floats(floats) => floats.clone(),
                Values::Integers(numbers) => numbers.iter().map(|number| *number as f32).collect(),
                Values::Texts(_) => return Err("boxes are texts".to_owned()),
            };
            return Ok(Boxes::new(boxes, numbers.as_chunks::<4>().0.to_vec()).into());
        }
        Ok(match &self.values {
            Values::Integers(numbers) => numbers.clone().into(),
            Values::Floats(floats) => match floats.iter().position(|value| !value.is_finite()) {
                Some(i) => return Err(format!("object {i}: {} is not finite", floats[i])),
                None => floats.clone().into(),
            },
            Values::Texts(texts) => {
                let label = |(i, text): (usize, &String)| {
                    let label = classes.iter().position(|class| class == text).map(|label| label as i64);
                    label.ok_or_else(|| format!("object {i}: {text:.40?} is no class"))
                };
                texts.iter().enumerate().map(label).collect::<Result<Vec<i64>, _>>()?.into()
            }
        })
    }
}

/// Reads a column of objects of a row group: the values of each row.
pub(super) fn read(path: &Path, metadata: &ParquetMetaData, group: usize, field: &str) -> Result<Vec<Objects>> {
    let (schema, column) = (metadata.file_metadata().schema_descr(), find(metadata, field)?);
    let place = (path, metadata, group, column);
    let integers = |values: Vec<i64>| Values::Integers(values);
    let floats = |values: Vec<f32>| Values::Floats(values);
    match schema.column(column).physical_type() {
        Type::BOOLEAN => rows::<BoolType, _>(place, |&value| i64::from(value), integers),
        Type::INT32 => rows::<Int32Type, _>(place, |&value| i64::from(value), integers),
        Type::INT64 => rows::<Int64Type, _>(place, |&value| value, integers),
        Type::FLOAT => rows::<FloatType, _>(place, |&value| value, floats),
        Type::DOUBLE => rows::<DoubleType, _>(place, |&value| value as f32, floats),
        Type::BYTE_ARRAY => {
            rows::<ByteArrayType, _>(place, |value| String::from_utf8_lossy(value.data()).into_owned(), Values::Texts)
        }
        other => Err(no_fields(format!("{other} in {}", schema.column(column).path()), field)),
    }
}

/// The definition level from which on a row has objects: that of the first repeated part of a column's path.
fn object_level(metadata: &ParquetMetaData, column: usize) -> i16 {
    let schema = metadata.file_metadata().schema_descr();
    let (mut node, mut level) = (schema.root_schema(), 0);
    for part in schema.column(column).path().parts() {
        let Some(next) = node.get_fields().iter().find(|field| field.name() == part) else { break };
        node = next;
        match node.get_basic_info().repetition() {
            Repetition::OPTIONAL => level += 1,
            Repetition::REPEATED => return level + 1,
            Repetition::REQUIRED => {}
        }
        if node.is_primitive() {
            break;
        }
    }
    level
}

/// Reads the rows of a column, and makes objects of the values of each.
fn rows<T: DataType, V>(
    (path, metadata, group, column): (&Path, &ParquetMetaData, usize, usize),
    value: impl Fn(&T::T) -> V,
    values: impl Fn(Vec<V>) -> Values,
) -> Result<Vec<Objects>> {
    const AT_ONCE: usize = 1024;
    let defined = metadata.file_metadata().schema_descr().column(column).max_def_level();
    let has_objects = object_level(metadata, column);
    let mut reader = reader::<T>(path, metadata, group, column)?;
    let count = usize::try_from(metadata.row_group(group).num_rows()).unwrap_or(0);
    let mut all = Vec::new();
    while all.len() < count {
        let (mut found, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
        let wanted = (count - all.len()).min(AT_ONCE);
        let read = || reader.read_records(wanted, Some(&mut definitions), Some(&mut repetitions), &mut found);
        let (read, ..) = guarded(path, read)?;
        if read == 0 || definitions.len() != repetitions.len() {
            return Err(damaged(path, format!("a row group of {count} rows has only {}", all.len())));
        }
        let mut found = found.iter();
        let (mut own, mut counts) = (Vec::new(), Vec::new());
        for (i, (&definition, &repetition)) in definitions.iter().zip(&repetitions).enumerate() {
            if repetition == 0 && i > 0 {
                all.push(Objects { values: values(std::mem::take(&mut own)), counts: std::mem::take(&mut counts) });
            }
            if definition < has_objects {
                continue;
            }
            if repetition < 2 {
                counts.push(0);
            }
            if definition == defined {
                own.push(value(found.next().ok_or_else(|| damaged(path, "a list ends before its values"))?));
                if let Some(count) = counts.last_mut() {
                    *count += 1;
                }
            }
        }
        all.push(Objects { values: values(own), counts });
    }
    Ok(all)
}

/// The names of the classes of objects in Hugging Face's description of the columns; empty if it has none.
pub(super) fn class_names(features: &Value) -> Vec<String> {
    // A list of structs is a list with one element, or has a feature; a struct of lists has a feature for each.
    let objects = &features[OBJECTS];
    let structs = [objects, &objects["feature"], &objects[0]];
    let found = structs.into_iter().find_map(|of| {
        names(LABELS).into_iter().find_map(|name| {
            let category = &of[name];
            let classes = [category, &category["feature"], &category[0]];
            classes.into_iter().find_map(|class| serde_json::from_value(class["names"].clone()).ok())
        })
    });
    found.unwrap_or_default()
}

/// The error for boxes whose format nothing says.
pub(super) fn no_format(name: &str) -> Error {
    let expected = "the format of the boxes, which no schema says: XYXY, XYWH (as most have) or CXCYWH";
    Error::parameter("open", "boxes", expected, format!("none, for {name}"))
}
