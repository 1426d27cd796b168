//! Threads that return an error if they cannot start, where `std` panics.

use crate::error::{Error, Result};
use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Largest number of worker threads of a pipeline, a preprocessor or packing.
pub const MAX_THREADS: usize = 1_024;

/// Starts a thread with this name.
///
/// # Errors
/// [`Error::Thread`] if the system refuses it.
pub(crate) fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    start(name.into(), |builder| builder.spawn(work))
}

/// Starts a thread with this name that ends before `scope` does.
///
/// # Errors
/// [`Error::Thread`] if the system refuses it.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    start(name.into(), |builder| builder.spawn_scoped(scope, work))
}

fn start<H>(name: String, start: impl FnOnce(Builder) -> io::Result<H>) -> Result<H> {
    start(Builder::new().name(name.clone())).map_err(|source| Error::Thread { name, source: source.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_name_and_a_refused_one_is_an_error() {
        let name = || std::thread::current().name().map(str::to_owned);
        assert_eq!(spawn("loader-7", name).unwrap().join().unwrap().as_deref(), Some("loader-7"));
        let scoped = std::thread::scope(|scope| spawn_scoped(scope, "packer", name).unwrap().join().unwrap());
        assert_eq!(scoped.as_deref(), Some("packer"));

        let refused: Result<JoinHandle<()>> = start("loader-8".to_owned(), |_| Err(io::ErrorKind::WouldBlock.into()));
        let error = refused.unwrap_err();
        assert!(!error.is_bad_sample());
        let text = error.to_string();
        assert!(text.contains("loader-8") && text.contains("ulimit -u"), "{text}");
    }
}
