//! Parks daemon threads that would go back to Python after its end, which crashes in the middle of Rust code.

use pyo3::prelude::*;
use std::sync::OnceLock;
use std::thread::{self, ThreadId};

/// The thread that ends the interpreter, once it does.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Tells that the calling thread ends the interpreter.
#[pyfunction]
pub(crate) fn end() {
    let _ = ENDING.set(thread::current().id());
}

/// Runs `work` without the GIL. Another thread than the one that ends the interpreter does not come back from it.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let done = work();
        while ENDING.get().is_some_and(|ending| *ending != thread::current().id()) {
            thread::park();
        }
        done
    })
}
