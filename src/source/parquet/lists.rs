//! Images that are lists of lists of numbers, as Arrow's nested lists and the features `Array2D` and `Array3D` of
//! Hugging Face's `datasets` are stored.

use super::columns::column_names;
use super::cursors::{NextRow, Row};
use crate::error::{Error, Result};
use crate::raster::Rect;
use crate::source::arrays::{Axes, DataType};
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type};
use parquet::column::reader::ColumnReader;
use parquet::data_type::FixedLenByteArray;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::ColumnDescriptor;
use std::path::Path;
use warpfeed_image::decode::half_to_f32;
use warpfeed_image::planes::{Element, Planes, Value};

/// Largest size of a row's values and levels in memory, in bytes: 512 MiB.
const MAX_ROW_BYTES: u64 = 512 << 20;

/// A column of lists whose rows are images.
#[derive(Debug)]
pub(super) struct Lists {
    name: String,
    axes: Axes,
    data_type: DataType,
    element: Element,
    /// For each definition level below that of a value: whether an empty list ends there, and not a null.
    is_empty: Vec<bool>,
}

/// Finds the only column below `name`; `None` if it is not made of lists alone.
pub(super) fn find(metadata: &ParquetMetaData, name: &str) -> Option<usize> {
    let schema = metadata.file_metadata().schema_descr();
    let is = |&i: &usize| schema.column(i).path().string().strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    let mut found = (0..schema.num_columns()).filter(is);
    let (Some(column), None) = (found.next(), found.next()) else { return None };
    let is_list = |node: &parquet::schema::types::Type| {
        let info = node.get_basic_info();
        info.converted_type() == ConvertedType::LIST || info.logical_type_ref() == Some(&LogicalType::List)
    };
    let (mut node, mut in_list) = (schema.root_schema(), false);
    for part in schema.column(column).path().parts() {
        node = node.get_fields().iter().find(|field| field.name() == part)?;
        let repeated = in_list && node.get_basic_info().repetition() == Repetition::REPEATED;
        in_list = is_list(node);
        if node.is_group() && !in_list && !repeated {
            return None;
        }
    }
    Some(column).filter(|column| schema.column(*column).max_rep_level() > 0)
}

/// The type of a column's values; `None` if they are not numbers or truth values.
fn data_type(column: &ColumnDescriptor) -> Option<DataType> {
    let logical = column.logical_type_ref();
    let converted = logical.map_or(column.converted_type(), |logical| ConvertedType::from(Some(logical.clone())));
    Some(match (column.physical_type(), converted) {
        (Type::BOOLEAN, _) => DataType::Bool,
        (Type::INT32, ConvertedType::UINT_8) => DataType::U8,
        (Type::INT32, ConvertedType::INT_8) => DataType::I8,
        (Type::INT32, ConvertedType::UINT_16) => DataType::U16,
        (Type::INT32, ConvertedType::INT_16) => DataType::I16,
        (Type::INT32, ConvertedType::UINT_32) => DataType::U32,
        (Type::INT32, ConvertedType::INT_32 | ConvertedType::NONE) => DataType::I32,
        (Type::INT64, ConvertedType::UINT_64) => DataType::U64,
        (Type::INT64, ConvertedType::INT_64 | ConvertedType::NONE) => DataType::I64,
        (Type::FIXED_LEN_BYTE_ARRAY, _) if logical == Some(&LogicalType::Float16) => DataType::F16,
        (Type::FLOAT, _) => DataType::F32,
        (Type::DOUBLE, _) => DataType::F64,
        _ => return None,
    })
}

impl Lists {
    /// The images in a column that [`find`] found. `axes` has a letter for each dimension; without it, two dimensions
    /// are rows and columns.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for other numbers than images have, and other dimensions than two and three.
    /// [`Error::Parameter`] if the meaning of three dimensions is missing, or `axes` does not fit.
    pub(super) fn new(
        path: &Path,
        metadata: &ParquetMetaData,
        (name, column): (&str, usize),
        axes: Option<&str>,
    ) -> Result<Self> {
        let schema = metadata.file_metadata().schema_descr();
        let descriptor = schema.column(column);
        let of = |what: &str| format!("{what} in the column {name} of {}", path.display());
        let unsupported = |feature: String, remedy: &str| Error::Unsupported { feature, remedy: remedy.to_owned() };
        let data_type = data_type(&descriptor).ok_or_else(|| {
            let columns = column_names(metadata);
            let feature = of(&format!("images of {} (all columns: {columns})", descriptor.physical_type()));
            unsupported(feature, "write the column as lists of uint8, uint16 or float32")
        })?;
        let element = data_type.element().ok_or_else(|| {
            let remedy = "write the column as lists of uint8, uint16 or float32 (Array2D or Array3D with this dtype)";
            unsupported(of(&format!("images of {}", data_type.name())), remedy)
        })?;
        let axes = match (descriptor.max_rep_level(), axes) {
            (2, axes) => Axes::read(axes.unwrap_or("hw"), "hw", "hw", &of("the lists"))?,
            (3, axes) => Axes::read(axes.unwrap_or_default(), "chw", "hwc", &of("the lists"))?,
            (dimensions, _) => {
                let remedy = "write images as lists of two or three dimensions";
                return Err(unsupported(of(&format!("lists of {dimensions} dimensions")), remedy));
            }
        };
        let (mut node, mut is_empty) = (schema.root_schema(), Vec::new());
        for part in descriptor.path().parts() {
            let Some(next) = node.get_fields().iter().find(|field| field.name() == part) else { break };
            node = next;
            match node.get_basic_info().repetition() {
                Repetition::OPTIONAL => is_empty.push(false),
                Repetition::REPEATED => is_empty.push(true),
                Repetition::REQUIRED => {}
            }
        }
        Ok(Self { name: name.to_owned(), axes, data_type, element, is_empty })
    }

    /// Largest number of values of a row.
    pub(super) fn max_values(&self) -> u64 {
        let value_bytes = match self.data_type {
            DataType::Bool => size_of::<bool>(),
            DataType::F16 => size_of::<FixedLenByteArray>(),
            _ => size_of::<i32>(),
        };
        MAX_ROW_BYTES / (value_bytes + 2 * size_of::<i16>()) as u64
    }

    /// Reads the image of the next row.
    ///
    /// # Errors
    /// [`Error::Decode`] if it is null, if it has values or lists that are null or empty or lists of different lengths,
    /// or if the file is damaged.
    pub(super) fn read(&self, next: &NextRow<'_>, reader: &mut ColumnReader) -> Result<Planes> {
        use ColumnReader::{
            BoolColumnReader as Bools, FixedLenByteArrayColumnReader as Bytes, FloatColumnReader as Floats,
            Int32ColumnReader as Integers,
        };
        let half = |value: &FixedLenByteArray| value.data().try_into().ok().map(u16::from_le_bytes).map(half_to_f32);
        match (self.data_type, reader) {
            (DataType::Bool, Bools(reader)) => self.image(next, next.row(reader)?, |value| Some(u8::from(*value))),
            (DataType::U8, Integers(reader)) => self.image(next, next.row(reader)?, |value| u8::try_from(*value).ok()),
            (DataType::I8, Integers(reader)) => {
                self.image(next, next.row(reader)?, |value| i8::try_from(*value).ok().map(f32::from))
            }
            (DataType::U16, Integers(reader)) => {
                self.image(next, next.row(reader)?, |value| u16::try_from(*value).ok())
            }
            (DataType::I16, Integers(reader)) => {
                self.image(next, next.row(reader)?, |value| i16::try_from(*value).ok().map(f32::from))
            }
            (DataType::F16, Bytes(reader)) => self.image(next, next.row(reader)?, half),
            (DataType::F32, Floats(reader)) => self.image(next, next.row(reader)?, |value| Some(*value)),
            _ => Err(self.wrong(next, "is of another type")),
        }
    }

    fn wrong(&self, next: &NextRow<'_>, message: &str) -> Error {
        next.wrong(&format!("its image in the column {} {message}", self.name))
    }

    /// The image of a row. `load` returns `None` for a value that the column's type does not have.
    fn image<T, V: Value>(&self, next: &NextRow<'_>, row: Row<T>, load: impl Fn(&T) -> Option<V>) -> Result<Planes> {
        let defined = self.is_empty.len() as i16;
        if let Some(level) = row.definitions.iter().find(|level| **level != defined) {
            let is_empty = usize::try_from(*level).ok().and_then(|level| self.is_empty.get(level));
            let lacks = if is_empty == Some(&true) { "an empty list" } else { "null" };
            // The first level is that of the column, and the second that of its list.
            let message = if *level < 2 { format!("is {lacks}") } else { format!("has {lacks} in its lists") };
            return Err(self.wrong(next, &message));
        }
        let dimensions = self.is_empty.iter().filter(|is_list| **is_list).count();
        let strides = strides(&row.repetitions, dimensions, row.values.len())
            .ok_or_else(|| self.wrong(next, "has lists of different lengths"))?;
        let shape: Vec<u64> = strides.windows(2).map(|pair| (pair[0] / pair[1]) as u64).collect();
        let Axes { channels, rows, columns, .. } = self.axes;
        let header = self.axes.header(&shape, self.element).map_err(|expected| {
            self.wrong(next, &format!("has the shape {shape:?}, which is not that of {expected}"))
        })?;
        let mut planes = Planes::default();
        planes.reset_part(header.kind, header.size, Rect::full(header.size))?;
        // The place before a stride is that of the dimension itself.
        let stride = |dimension: usize| strides[dimension + 1];
        for channel in 0..usize::from(header.kind.channels) {
            let width = header.size.width as usize;
            for (y, to) in planes.plane_mut::<V>(channel).chunks_exact_mut(width).enumerate() {
                let from = channel * channels.map_or(0, stride) + y * stride(rows);
                for (to, value) in to.iter_mut().zip(row.values[from..].iter().step_by(stride(columns))) {
                    *to = load(value).ok_or_else(|| {
                        self.wrong(next, &format!("has a value that is no {}", self.data_type.name()))
                    })?;
                }
            }
        }
        Ok(planes)
    }
}

/// The numbers of values in a row and in a list at each depth, the last 1, by the repetition levels of the row's `len`
/// values. `None` if lists at a depth have different lengths.
fn strides(repetitions: &[i16], dimensions: usize, len: usize) -> Option<Vec<usize>> {
    if len == 0 || repetitions.len() != len {
        return None;
    }
    let mut strides = vec![len];
    for depth in 1..dimensions {
        // The first list at this depth ends where one at this depth or outside begins.
        strides.push(1 + repetitions[1..].iter().position(|level| *level as usize <= depth).unwrap_or(len - 1));
    }
    strides.push(1);
    if strides.windows(2).any(|pair| !pair[0].is_multiple_of(pair[1])) {
        return None;
    }
    let level = |at: usize| strides.iter().position(|stride| at.is_multiple_of(*stride));
    (0..len).all(|at| level(at) == Some(repetitions[at] as usize)).then_some(strides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_one_depth_have_one_length() {
        let found = |repetitions: &[i16], dimensions| strides(repetitions, dimensions, repetitions.len());
        assert_eq!(found(&[0, 2, 1, 2, 1, 2], 2), Some(vec![6, 2, 1]));
        assert_eq!(found(&[0, 1, 1], 2), Some(vec![3, 1, 1]));
        assert_eq!(found(&[0, 3, 2, 3, 1, 3, 2, 3, 1, 3, 2, 3], 3), Some(vec![12, 4, 2, 1]));
        for (ragged, dimensions) in [
            (&[0, 2, 2, 1, 2][..], 2),
            (&[0, 1, 2], 2),
            (&[0, 2, 1, 2, 2, 1], 2),
            (&[0, 3, 2, 1, 3, 2], 3),
            (&[0, 3, 2, 3, 1, 3], 3),
            (&[0, 3, 2, 3, 2, 3, 1, 3], 3),
            (&[], 2),
        ] {
            assert_eq!(found(ragged, dimensions), None, "{ragged:?}");
        }
    }
}
