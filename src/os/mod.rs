//! The operating system: files, locks between processes, memory that may be refused, threads, and values that a forked
//! child must leave alone.

pub(crate) mod atomic;
pub(crate) mod file;
pub(crate) mod forks;
pub(crate) mod lock;
pub(crate) mod memory;
pub(crate) mod notice;
pub(crate) mod threads;
