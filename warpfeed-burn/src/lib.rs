#![doc = include_str!("../README.md")]

mod loader;
mod tensor;

pub use loader::{ImageBatch, Loader};
pub use tensor::IntoBurn;
