//! Columns of files: their names, and the values of a row group.

use crate::error::{Error, Result};
use crate::os::file::open_with_metadata;
use bytes::Bytes;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescriptor;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A file in which reading past the end is an error. The library skips unknown parts of a page's header element by
/// element, as many as a damaged header claims, and takes the end of a file for an element without bytes, so it would
/// count for minutes. This type also refuses ranges beyond the end before memory is allocated for them.
pub(super) struct Shard {
    file: File,
    pub(super) len_bytes: u64,
}

impl Shard {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let (file, metadata) = open_with_metadata(path)?;
        Ok(Self { file, len_bytes: metadata.len() })
    }
}

impl Length for Shard {
    fn len(&self) -> u64 {
        self.len_bytes
    }
}

impl ChunkReader for Shard {
    type T = NeverAtEnd<BufReader<File>>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        self.file.get_read(start).map(NeverAtEnd)
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len_bytes) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.file.get_bytes(start, length)
    }
}

/// A reader that returns an error at its end.
pub(super) struct NeverAtEnd<R>(R);

impl<R: Read> Read for NeverAtEnd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 if !buffer.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        }
    }
}

pub(super) fn damaged(path: &Path, message: impl std::fmt::Display) -> Error {
    Error::decode("Parquet", format!("{}: {message}", path.display()))
}

/// Calls the library and turns its errors and panics, which damaged files can cause, into [`Error::Decode`].
pub(super) fn guarded<T>(path: &Path, call: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| damaged(path, error)),
        Err(panic) => Err(damaged(path, Error::panic(&*panic))),
    }
}

/// Returns the column named by `wanted`, or the first of `usual` that exists. For a struct, this is its field `bytes`.
pub(super) fn column(metadata: &ParquetMetaData, wanted: Option<&str>, usual: &[&str]) -> Option<usize> {
    let schema = metadata.file_metadata().schema_descr();
    let find = |name: &str| {
        let bytes = format!("{name}.bytes");
        let is = |column: &ColumnDescriptor| [name, bytes.as_str()].contains(&column.path().string().as_str());
        (0..schema.num_columns()).find(|&i| is(&schema.column(i)))
    };
    wanted.map_or_else(|| usual.iter().find_map(|name| find(name)), find)
}

pub(super) fn column_names(metadata: &ParquetMetaData) -> String {
    let columns = metadata.file_metadata().schema_descr().columns();
    columns.iter().map(|column| column.path().string()).collect::<Vec<_>>().join(", ")
}

/// Makes a reader of one column of a row group.
pub(super) fn reader<T: DataType>(
    path: &Path,
    metadata: &ParquetMetaData,
    group: usize,
    column: usize,
) -> Result<ColumnReaderImpl<T>> {
    let pages = pages(path, metadata, (group, column), Arc::new(Allowance::new(u64::MAX)))?;
    guarded(path, || Ok(ColumnReaderImpl::new(metadata.file_metadata().schema_descr().column(column), Box::new(pages))))
}

/// The pages of one column of a row group.
pub(super) fn pages(
    path: &Path,
    metadata: &ParquetMetaData,
    (group, column): (usize, usize),
    allowance: Arc<Allowance>,
) -> Result<Pages> {
    let file = Arc::new(Shard::open(path)?);
    guarded(path, || {
        let group = metadata.row_group(group);
        let rows = usize::try_from(group.num_rows())?;
        Ok(Pages { pages: SerializedPageReader::new(file, group.column(column), rows, None)?, allowance })
    })
}

/// Number of values that the pages of a row may have.
pub(super) struct Allowance {
    left: AtomicU64,
    most: u64,
}

impl Allowance {
    pub(super) const fn new(most: u64) -> Self {
        Self { left: AtomicU64::new(most), most }
    }

    /// Before a row is read.
    pub(super) fn renew(&self) {
        self.left.store(self.most, Relaxed);
    }

    pub(super) fn take(&self, values: u64) -> parquet::errors::Result<()> {
        let left = self.left.load(Relaxed).checked_sub(values);
        let too_many = || {
            let most = self.most;
            ParquetError::General(format!(
                "pages of more than {most} values: write smaller pages, or images as .npy files"
            ))
        };
        self.left.store(left.ok_or_else(too_many)?, Relaxed);
        Ok(())
    }
}

/// The pages of a column that have values, which are counted. A few bytes of run-length coding can claim billions of
/// values, and the library reads all values of a row at once. It takes a page without values, which pyarrow writes
/// where a dictionary has become too large, for the end of the column.
pub(super) struct Pages {
    pages: SerializedPageReader<Shard>,
    allowance: Arc<Allowance>,
}

impl Iterator for Pages {
    type Item = parquet::errors::Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> parquet::errors::Result<Option<Page>> {
        self.peek_next_page()?;
        let page = self.pages.get_next_page()?;
        if let Some(Page::DataPage { num_values, .. } | Page::DataPageV2 { num_values, .. }) = page {
            self.allowance.take(num_values.into())?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> parquet::errors::Result<Option<PageMetadata>> {
        loop {
            match self.pages.peek_next_page()? {
                Some(PageMetadata { is_dict: false, num_levels: Some(0), .. }) => self.pages.skip_next_page()?,
                page => return Ok(page),
            }
        }
    }

    fn skip_next_page(&mut self) -> parquet::errors::Result<()> {
        self.peek_next_page()?;
        self.pages.skip_next_page()
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.pages.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> parquet::errors::Result<Option<Page>> {
        self.pages.take_deferred_dictionary()
    }
}

/// Reads the values of a column in a row group; `None` for null.
pub(super) fn values<T: DataType, V>(
    (path, metadata, group, column): (&Path, &ParquetMetaData, usize, usize),
    rows: u64,
    mut value: impl FnMut(&T::T) -> V,
) -> Result<Vec<Option<V>>> {
    const AT_ONCE: usize = 4096;
    let mut reader = reader::<T>(path, metadata, group, column)?;
    let defined = metadata.file_metadata().schema_descr().column(column).max_def_level();
    let mut all = Vec::new();
    while (all.len() as u64) < rows {
        let (mut found, mut levels) = (Vec::new(), Vec::new());
        let wanted = (rows - all.len() as u64).min(AT_ONCE as u64) as usize;
        let read = guarded(path, || reader.read_records(wanted, Some(&mut levels), None, &mut found))?.0;
        if read == 0 {
            return Err(damaged(path, format!("a row group of {rows} rows has only {}", all.len())));
        }
        let mut found = found.iter();
        for i in 0..read {
            let is_null = defined > 0 && levels.get(i) != Some(&defined);
            all.push(if is_null { None } else { found.next().map(&mut value) });
        }
    }
    Ok(all)
}

/// Returns Hugging Face's description of the columns; null if there is none.
pub(super) fn features(metadata: &ParquetMetaData) -> serde_json::Value {
    let entries = metadata.file_metadata().key_value_metadata();
    let entry = entries.and_then(|entries| entries.iter().find(|entry| entry.key == "huggingface"));
    let text = entry.and_then(|entry| entry.value.as_ref());
    let description: Option<serde_json::Value> = text.and_then(|text| serde_json::from_str(text).ok());
    description.map_or(serde_json::Value::Null, |mut description| description["info"]["features"].take())
}

/// Returns the names of the classes from Hugging Face's description of the columns; empty if it has none.
pub(super) fn class_names(metadata: &ParquetMetaData, label: usize) -> Vec<String> {
    let column = metadata.file_metadata().schema_descr().column(label).path().string();
    serde_json::from_value(features(metadata)[&column]["names"].take()).unwrap_or_default()
}
