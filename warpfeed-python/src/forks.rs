//! Values that a forked child must not touch, because the parent's threads are gone and its locks may be held.

use crate::ending::detached;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// A value of the process that made it. Elsewhere it is neither used nor dropped. It is dropped without the GIL, since
/// that may join threads that wait for Python.
pub(crate) struct OfProcess<T: Send> {
    value: Option<T>,
    process: u32,
}

impl<T: Send> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: std::process::id() }
    }

    /// The value.
    ///
    /// # Errors
    /// `RuntimeError` in a forked child.
    pub(crate) fn get(&self) -> PyResult<&T> {
        let own = self.value.as_ref().filter(|_| self.process == std::process::id());
        own.ok_or_else(|| {
            let text = "this was made before the process was forked, and its threads are the parent's: make it anew";
            PyRuntimeError::new_err(text)
        })
    }
}

impl<T: Send> Drop for OfProcess<T> {
    fn drop(&mut self) {
        let mut value = self.value.take();
        if self.process != std::process::id() {
            std::mem::forget(value);
        } else if Python::try_attach(|py| detached(py, || drop(value.take()))).is_none() {
            drop(value);
        }
    }
}
