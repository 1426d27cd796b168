//! Columns of Parquet files as targets.

use super::columns::{column_names, damaged, guarded, reader};
use crate::error::Result;
use crate::source::no_fields;
use crate::targets::Target;
use parquet::basic::Type;
use parquet::data_type::{
    BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type,
};
use parquet::file::metadata::ParquetMetaData;
use std::path::Path;

/// Finds the only column of this name, or below it, that holds one value or one list in a row.
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter) if there is none.
pub(super) fn find(metadata: &ParquetMetaData, name: &str) -> Result<usize> {
    let schema = metadata.file_metadata().schema_descr();
    let is = |&i: &usize| {
        let path = schema.column(i).path().string();
        path == name || path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
    };
    let mut found = (0..schema.num_columns()).filter(is);
    let (Some(column), None) = (found.next(), found.next()) else {
        return Err(no_fields(format!("the columns {}, one of which is named", column_names(metadata)), name));
    };
    if schema.column(column).max_rep_level() > 1 {
        return Err(no_fields(format!("lists of lists in {name}"), name));
    }
    Ok(column)
}

/// Reads a column of a row group. Returns the target of each row, `None` for null.
pub(super) fn read(path: &Path, metadata: &ParquetMetaData, group: usize, name: &str) -> Result<Vec<Option<Target>>> {
    let (schema, column) = (metadata.file_metadata().schema_descr(), find(metadata, name)?);
    let place = (path, metadata, group, column);
    let bytes = |values: Vec<&[u8]>| match values[..] {
        [value] => Some(Target::Bytes(value.to_vec())),
        _ => None,
    };
    match schema.column(column).physical_type() {
        Type::BOOLEAN => rows::<BoolType>(place, |values| integers(values.iter().map(|&value| i64::from(value)))),
        Type::INT32 => rows::<Int32Type>(place, |values| integers(values.iter().map(|&value| i64::from(value)))),
        Type::INT64 => rows::<Int64Type>(place, |values| integers(values.iter().copied())),
        Type::FLOAT => rows::<FloatType>(place, |values| Some(Target::Floats(values.to_vec()))),
        Type::DOUBLE => {
            rows::<DoubleType>(place, |values| Some(Target::Floats(values.iter().map(|&value| value as f32).collect())))
        }
        Type::BYTE_ARRAY => {
            rows::<ByteArrayType>(place, |values| bytes(values.iter().map(|value| value.data()).collect()))
        }
        Type::FIXED_LEN_BYTE_ARRAY => {
            rows::<FixedLenByteArrayType>(place, |values| bytes(values.iter().map(|value| value.data()).collect()))
        }
        Type::INT96 => Err(no_fields(format!("times in {name}"), name)),
    }
}

fn integers(values: impl Iterator<Item = i64>) -> Option<Target> {
    Some(Target::Integers(values.collect()))
}

/// Reads the rows of a column and makes a target of the values of each.
fn rows<T: DataType>(
    (path, metadata, group, column): (&Path, &ParquetMetaData, usize, usize),
    target: impl Fn(&[T::T]) -> Option<Target>,
) -> Result<Vec<Option<Target>>> {
    let descriptor = metadata.file_metadata().schema_descr().column(column);
    let (defined, repeats) = (descriptor.max_def_level(), descriptor.max_rep_level() > 0);
    // The definition level of an empty list is one below the lowest level of an element, null or not.
    let empty = defined - i16::from(descriptor.self_type().is_optional()) - 1;
    let mut reader = reader::<T>(path, metadata, group, column)?;
    let count = usize::try_from(metadata.row_group(group).num_rows()).unwrap_or(0);
    let mut all = Vec::new();
    while all.len() < count {
        let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
        let wanted = (count - all.len()).min(1024);
        let read = || reader.read_records(wanted, Some(&mut definitions), Some(&mut repetitions), &mut values);
        let (read, _, levels) = guarded(path, read)?;
        if read == 0 {
            return Err(damaged(path, format!("a row group of {count} rows has only {}", all.len())));
        }
        let (mut value, mut level) = (0, 0);
        while level < levels.max(values.len()) {
            // A row ends before the next value whose repetition level is 0.
            let start = level;
            level += 1;
            while repeats && repetitions.get(level).is_some_and(|&repetition| repetition > 0) {
                level += 1;
            }
            let is_defined = |at: &usize| defined == 0 || definitions.get(*at) == Some(&defined);
            let len = (start..level).filter(is_defined).count();
            let is_empty = repeats && definitions.get(start) == Some(&empty);
            let is_whole = if is_empty { len == 0 } else { len == level - start };
            let own = values.get(value..value + len).ok_or_else(|| damaged(path, "a list ends before its values"))?;
            value += len;
            all.push(if is_whole { target(own) } else { None });
        }
    }
    Ok(all)
}
