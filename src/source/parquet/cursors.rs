//! Places in files where reading can continue.

use crate::os::file::Keeper;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::ByteArrayType;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A position in a row group where reading can continue.
pub(super) struct Cursor {
    pub(super) group: usize,
    /// Number of the next row in the group.
    pub(super) next: u64,
    pub(super) reader: ColumnReaderImpl<ByteArrayType>,
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
