#![doc = include_str!("../README.md")]

mod batch;
#[cfg(feature = "cuda")]
mod cuda;
mod fields;
mod loader;
mod pass;
mod tensor;

pub use batch::ImageBatch;
pub use fields::FieldIntoBurn;
pub use loader::Loader;
pub use tensor::IntoBurn;

/// The code of the page for burn compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/burn.md")]
struct BurnPage;
