#![doc = include_str!("../README.md")]

#[cfg(feature = "cuda")]
mod cuda;
mod loader;
mod tensor;

pub use loader::{ImageBatch, Loader};
pub use tensor::IntoBurn;
