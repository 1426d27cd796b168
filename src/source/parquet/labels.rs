//! The column of labels.

use super::columns::{column, values};
use crate::error::{Error, Result};
use crate::source::RecordOptions;
use crate::source::records::Texts;
use crate::source::records::label::{self, Label, Numbering};
use parquet::basic::{ConvertedType, LogicalType, Type};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::metadata::ParquetMetaData;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Largest number of unusable labels in all files together.
const MAX_FAULTS: usize = 100_000;

/// The label of a row as its file has it.
#[derive(Clone, Copy)]
enum Row {
    Number(u32),
    /// The number of a text.
    Text(u32),
    /// -1.
    None,
    Null,
    /// The number of the message that says why it is not a label.
    Wrong(u32),
}

/// The labels of all rows.
#[derive(Default)]
pub(super) struct Labels {
    rows: Vec<Row>,
    texts: Texts,
    wrong: Texts,
    /// Whether labels that are digits are names of classes.
    names: bool,
}

impl Labels {
    /// No labels yet, of files that are opened with these options.
    pub(super) fn new(options: &RecordOptions) -> Self {
        Self { names: label::digits_are_names(&options.classes), ..Self::default() }
    }

    /// Reads all labels of a row group, given by its number, the column, and the number of rows that it claims to have.
    pub(super) fn read(
        &mut self,
        path: &Path,
        metadata: &ParquetMetaData,
        (group, label, rows): (usize, usize, u64),
    ) -> Result<()> {
        let column = metadata.file_metadata().schema_descr().column(label);
        let place = (path, metadata, group, label);
        let names = self.names;
        let found = match column.physical_type() {
            Type::BOOLEAN => values::<BoolType, _>(place, rows, |&is| self.row(Ok(Label::Number(is.into()))))?,
            Type::INT32 => values::<Int32Type, _>(place, rows, |&number| self.row(label::from_integer(number.into())))?,
            Type::INT64 => values::<Int64Type, _>(place, rows, |&number| self.row(label::from_integer(number)))?,
            Type::BYTE_ARRAY => values::<ByteArrayType, _>(place, rows, |text: &ByteArray| {
                self.row(label::from_text(text.data(), names))
            })?,
            other => return Err(wrong(format!("{other} in {}", column.path()))),
        };
        for found in found {
            self.rows.push(
                found
                    .unwrap_or(Some(Row::Null))
                    .ok_or_else(|| wrong(format!("more different texts than can be numbered in {}", path.display())))?,
            );
        }
        Ok(())
    }

    /// Numbers the labels. `described`: the names of the classes in the files' metadata.
    ///
    /// # Errors
    /// [`Error::Parameter`] if labels are partly numbers and partly names, or if too many of them are none.
    pub(super) fn numbered(self, described: Vec<String>, options: &RecordOptions) -> Result<Numbered> {
        if self.rows.iter().all(|row| matches!(row, Row::None | Row::Null)) {
            // There is no column of labels, or it holds none.
            return Ok(Numbered { classes: described, ..Numbered::default() });
        }
        let number = |row: &Row| if let Row::Number(number) = row { Some(*number) } else { None };
        let numbers: BTreeSet<u32> = self.rows.iter().filter_map(number).collect();
        let texts: BTreeSet<&str> = self.texts.list.iter().map(String::as_str).collect();
        // The names in the metadata are those of numbers, unless the column has texts.
        let given = if !options.classes.is_empty() || texts.is_empty() { &options.classes } else { &described };
        let is_given = !given.is_empty();
        let numbering = Numbering::new(texts, given, numbers.first().copied(), |label| numbers.contains(&label))?;
        let label = |row: Row| match row {
            Row::Number(number) if !options.classes.is_empty() => options.check_class(number),
            Row::Number(number) if described.is_empty() || (number as usize) < described.len() => Ok(number),
            Row::Number(number) => {
                Err(format!("its label {number} has no name among the {} classes of the file", described.len()))
            }
            Row::Text(text) => numbering.label(&self.texts.list[text as usize]),
            Row::None => Err(label::differs(false).to_owned()),
            Row::Null => Err("its label is null".to_owned()),
            Row::Wrong(text) => Err(self.wrong.list[text as usize].clone()),
        };
        let (mut labels, mut faults) = (vec![0; self.rows.len()], BTreeMap::new());
        for (index, &row) in (0..).zip(&self.rows) {
            match label(row) {
                Ok(label) => labels[index as usize] = label,
                Err(fault) if faults.len() == MAX_FAULTS => {
                    return Err(wrong(format!("more than {MAX_FAULTS} labels that are none, such as: {fault}")));
                }
                Err(fault) => _ = faults.insert(index, fault),
            }
        }
        let own_names = !is_given && !numbering.classes.is_empty();
        let classes = if numbering.classes.is_empty() { described } else { numbering.classes };
        Ok(Numbered { labels, faults, classes, own_names })
    }

    /// The row of a label; `None` if there are too many different texts.
    fn row(&mut self, label: Result<Label, String>) -> Option<Row> {
        Some(match label {
            Ok(Label::None) => Row::None,
            Ok(Label::Number(number)) => Row::Number(number),
            Ok(Label::Name(text)) => Row::Text(self.texts.number(&text)?),
            Err(message) => Row::Wrong(self.wrong.number(&message)?),
        })
    }
}

/// The labels of the rows of all files.
#[derive(Default)]
pub(super) struct Numbered {
    /// One for each row; empty if rows have none.
    pub(super) labels: Vec<u32>,
    /// Rows that cannot be used, each with the reason.
    pub(super) faults: BTreeMap<u64, String>,
    pub(super) classes: Vec<String>,
    /// Whether the classes are the texts in the column.
    pub(super) own_names: bool,
}

/// The error for a column that holds no labels.
fn wrong(got: String) -> Error {
    let expected = "a column of whole numbers, truth values or texts, one a row (a list is a target: --targets, and \
                    --label-field none)";
    Error::parameter("ParquetFiles::open", "label", expected, got)
}

/// Finds the column of labels: `wanted`, or else `label` or `labels`.
///
/// # Errors
/// [`Error::Parameter`] if the column is not there or holds no labels, or if one of another name may hold them.
pub(super) fn find(
    metadata: &ParquetMetaData,
    wanted: Option<&str>,
    there: &dyn Fn() -> String,
) -> Result<Option<usize>> {
    if wanted == Some(label::NONE) {
        return Ok(None);
    }
    let schema = metadata.file_metadata().schema_descr();
    let top = |i: usize| schema.column(i).path().parts()[0].clone();
    let usual = ["label", "labels"];
    let name = wanted.or_else(|| usual.into_iter().find(|name| (0..schema.num_columns()).any(|i| top(i) == *name)));
    let Some(name) = name else {
        let sounds = |i: usize| label::is_like(&schema.column(i).path().string());
        if (0..schema.num_columns()).any(sounds) {
            return Err(label::ask("the column `label` or `labels`", there()));
        }
        return Ok(None);
    };
    let Some(found) = column(metadata, Some(name), &[]) else {
        let below = (0..schema.num_columns()).find(|&i| top(i) == name);
        let kind = |i: usize| if schema.column(i).max_rep_level() > 0 { "lists" } else { "structs" };
        return Err(match below {
            Some(i) => wrong(format!("{} in {name}", kind(i))),
            None => label::not_there("a column", name, there()),
        });
    };
    let column = schema.column(found);
    if column.max_rep_level() > 0 {
        return Err(wrong(format!("lists in {}", column.path())));
    }
    let whole = match column.logical_type_ref() {
        None => matches!(
            column.converted_type(),
            ConvertedType::NONE
                | ConvertedType::UTF8
                | ConvertedType::ENUM
                | ConvertedType::JSON
                | ConvertedType::INT_8
                | ConvertedType::INT_16
                | ConvertedType::INT_32
                | ConvertedType::INT_64
                | ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64
        ),
        Some(kind) => {
            matches!(kind, LogicalType::String | LogicalType::Enum | LogicalType::Json | LogicalType::Integer { .. })
        }
    };
    if whole { Ok(Some(found)) } else { Err(wrong(format!("{:?} in {}", column.logical_type_ref(), column.path()))) }
}
