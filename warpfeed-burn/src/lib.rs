#![doc = include_str!("../README.md")]

#[cfg(feature = "cuda")]
mod cuda;
mod fields;
mod loader;
mod tensor;

pub use fields::FieldIntoBurn;
pub use loader::{ImageBatch, Loader};
pub use tensor::IntoBurn;
