//! Images in a binary column of Arrow's, read in place.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::borrow::Cow;
use warpfeed::source::{ReadRequest, Sample, Source};
use warpfeed::{Error, Result};

/// A part of the column.
struct Chunk {
    /// Arrow's offsets: i64 in a large binary column, else i32.
    offsets: PyUntypedBuffer,
    is_large: bool,
    values: PyUntypedBuffer,
    /// Rows of the buffers before the chunk's own.
    first: usize,
    rows: usize,
}

/// Encoded images in Arrow's memory, each with its label, or all without.
pub(crate) struct ArrowImages {
    chunks: Vec<Chunk>,
    /// Number of rows before each chunk.
    starts: Vec<u64>,
    /// Number of rows.
    len: u64,
    labels: Option<Vec<u32>>,
    name: String,
}

/// Buffers of a chunk, as Python hands them over: offsets, whether they are i64, values, first row, rows.
pub(crate) type Buffers<'py> = (Bound<'py, PyAny>, bool, Bound<'py, PyAny>, usize, usize);

impl ArrowImages {
    pub(crate) fn new(chunks: Vec<Buffers<'_>>, labels: Option<Vec<u32>>, name: String) -> PyResult<Self> {
        let (mut starts, mut rows_before) = (Vec::new(), 0);
        let mut own = Vec::new();
        for (offsets, is_large, values, first, rows) in chunks {
            let (offsets, values) = (PyUntypedBuffer::get(&offsets)?, PyUntypedBuffer::get(&values)?);
            let needed = first.checked_add(rows).and_then(|rows| rows.checked_add(1));
            let width = if is_large { 8 } else { 4 };
            if needed.and_then(|rows| rows.checked_mul(width)).is_none_or(|bytes| bytes > offsets.len_bytes()) {
                return Err(PyValueError::new_err("a chunk of the column has fewer offsets than rows"));
            }
            if !offsets.is_c_contiguous() || !values.is_c_contiguous() {
                return Err(PyValueError::new_err("buffers of the column must be contiguous"));
            }
            starts.push(rows_before);
            rows_before += rows as u64;
            own.push(Chunk { offsets, is_large, values, first, rows });
        }
        if let Some(labels) = labels.as_ref().filter(|labels| labels.len() as u64 != rows_before) {
            return Err(PyValueError::new_err(format!("{} labels for {rows_before} rows", labels.len())));
        }
        Ok(Self { chunks: own, starts, len: rows_before, labels, name })
    }

    fn row(&self, index: u64) -> Option<&[u8]> {
        let at = self.starts.partition_point(|start| *start <= index).checked_sub(1)?;
        let (chunk, row) = (&self.chunks[at], usize::try_from(index - self.starts[at]).ok()?);
        if row >= chunk.rows {
            return None;
        }
        let (offsets, values) = (bytes(&chunk.offsets), bytes(&chunk.values));
        let offset = |at: usize| {
            if chunk.is_large {
                let bytes = offsets.get(8 * at..8 * at + 8)?;
                usize::try_from(i64::from_ne_bytes(bytes.try_into().ok()?)).ok()
            } else {
                let bytes = offsets.get(4 * at..4 * at + 4)?;
                usize::try_from(i32::from_ne_bytes(bytes.try_into().ok()?)).ok()
            }
        };
        values.get(offset(chunk.first + row)?..offset(chunk.first + row + 1)?)
    }
}

/// The bytes of a contiguous buffer.
fn bytes(buffer: &PyUntypedBuffer) -> &[u8] {
    let (start, len) = (buffer.buf_ptr().cast::<u8>().cast_const(), buffer.len_bytes());
    if start.is_null() {
        return &[];
    }
    // SAFETY: the buffer is contiguous (`new`), it keeps its memory while it is held, and Arrow's memory never changes.
    #[allow(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts(start, len)
    }
}

impl Source for ArrowImages {
    fn len(&self) -> u64 {
        self.len
    }

    fn read<'a>(&'a self, index: u64, _want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        let row =
            self.row(index).ok_or_else(|| Error::foreign_sample("the column has no such row, or wrong offsets"))?;
        sample.lend(row);
        Ok(())
    }

    fn label(&self, index: u64) -> Option<u32> {
        self.labels.as_ref().map(|labels| labels[index as usize])
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("row {index} of {}", self.name).into()
    }
}
