//! Places in files where reading can continue.

use super::columns::{Allowance, damaged, guarded};
use crate::error::{Error, Result};
use crate::os::file::Keeper;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A position in a row group where reading can continue.
pub(super) struct Cursor {
    pub(super) group: usize,
    /// Number of the next row in the group.
    pub(super) next: u64,
    pub(super) reader: ColumnReader,
    /// Number of values that the reader's pages may have.
    pub(super) allowance: Arc<Allowance>,
}

/// The row of a row group that is read next.
pub(super) struct NextRow<'a> {
    pub(super) path: &'a Path,
    /// Number of the row in all files.
    pub(super) index: u64,
    /// Number of rows from the reader's place to this one.
    pub(super) before: usize,
    /// Whether the column has lists. Their rows are read and dropped, because the library skips rows for ever if a
    /// damaged page has fewer levels than it says.
    pub(super) has_lists: bool,
    pub(super) allowance: &'a Allowance,
}

/// The values of a row, and the levels of its values and of what is null or empty.
pub(super) struct Row<T> {
    pub(super) values: Vec<T>,
    pub(super) definitions: Vec<i16>,
    pub(super) repetitions: Vec<i16>,
}

impl NextRow<'_> {
    /// The error for this row.
    pub(super) fn wrong(&self, message: &str) -> Error {
        damaged(self.path, format!("row {}: {message}", self.index))
    }

    /// Reads the row.
    ///
    /// # Errors
    /// [`Error::Decode`] if the row group ends before, or if the file is damaged.
    pub(super) fn row<T: DataType>(&self, reader: &mut ColumnReaderImpl<T>) -> Result<Row<T::T>> {
        let mut row = Row { values: Vec::new(), definitions: Vec::new(), repetitions: Vec::new() };
        let Row { values, definitions, repetitions } = &mut row;
        let mut read = |reader: &mut ColumnReaderImpl<T>| -> parquet::errors::Result<usize> {
            self.allowance.renew();
            values.clear();
            definitions.clear();
            repetitions.clear();
            Ok(reader.read_records(1, Some(definitions), Some(repetitions), values)?.0)
        };
        let read = guarded(self.path, || {
            if !self.has_lists && reader.skip_records(self.before)? < self.before {
                return Ok(0);
            }
            for _ in 0..if self.has_lists { self.before } else { 0 } {
                if read(reader)? == 0 {
                    return Ok(0);
                }
            }
            read(reader)
        })?;
        if read == 0 { Err(self.wrong("its row group ends before")) } else { Ok(row) }
    }
}

/// The cursors that are kept, each with an open file, those first that were used least recently.
#[derive(Default)]
pub(super) struct Cursors(Mutex<KeptCursors>);

#[derive(Default)]
pub(super) struct KeptCursors {
    pub(super) open: Vec<Cursor>,
    pub(super) most: usize,
}

impl Cursors {
    pub(super) fn kept(&self) -> MutexGuard<'_, KeptCursors> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptCursors {
    pub(super) fn close_oldest(&mut self) {
        self.open.drain(..self.open.len().saturating_sub(self.most));
    }
}

impl Keeper for Cursors {
    fn keep_at_most(&self, most: usize) {
        let mut kept = self.kept();
        kept.most = most;
        kept.close_oldest();
    }
}
