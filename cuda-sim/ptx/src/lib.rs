//! Translates the PTX of a fat binary to C++, compiles it, and links it with the simulation (`../cpp`).

mod flow;
mod image;
mod library;
mod parse;
mod translate;

use std::fmt;

pub use image::ptx;
pub use library::library;

/// The reason why there is no library, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The kernel, if the fault is in one.
    pub kernel: Option<String>,
    /// The line of the PTX, counted from 1; 0 if the fault is in no line.
    pub line: usize,
    /// The fault, in words.
    pub what: String,
}

impl Error {
    fn at(line: usize, what: impl Into<String>) -> Self {
        Self { kernel: None, line, what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kernel) = &self.kernel {
            write!(f, "kernel {kernel}, ")?;
        }
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {}

type Result<T> = std::result::Result<T, Error>;

/// Translates PTX. Returns each kernel's name and code, in the order of the text.
///
/// # Errors
/// PTX that is not well formed or has something that the simulation does not know, or a kernel that reads a register
/// which it has not written on every way there.
pub fn translate(text: &str) -> Result<Vec<(String, String)>> {
    let module = parse::module(text)?;
    let kernels = module.entries.iter().map(|entry| Ok((entry.name.clone(), translate::kernel(&module, entry)?.text)));
    kernels.collect()
}
