//! Memory of Python's for batches, such as torch's pinned memory.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ptr::NonNull;
use warpfeed::{BatchMemory, Error, MemoryBlock, Result};

/// A function of Python's that takes a number of bytes, and returns an address and the object that owns the memory
/// there.
pub(crate) struct Memory(pub(crate) Py<PyAny>);

impl Memory {
    fn ask(&self, py: Python<'_>, len_bytes: usize) -> PyResult<MemoryBlock> {
        let (address, owner): (usize, Py<PyAny>) = self.0.bind(py).call1((len_bytes,))?.extract()?;
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
        let start = start.ok_or_else(|| PyValueError::new_err("batches need memory, and the address is 0"))?;
        // SAFETY: the package's own functions make new memory of this length, which the owner frees, and keep no other
        // reference to it.
        #[allow(unsafe_code)]
        Ok(unsafe { MemoryBlock::new(start, len_bytes, owner) })
    }
}

impl BatchMemory for Memory {
    fn block(&self, len_bytes: usize) -> Result<MemoryBlock> {
        let asked = Python::try_attach(|py| self.ask(py, len_bytes).map_err(Error::foreign));
        asked.unwrap_or_else(|| Err(Error::foreign("Python has ended")))
    }
}
