//! Other samples in an operation: their entries in a recipe, and their images.

use super::Op;
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::raster::Size;
use crate::targets::Annotation;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Another sample in an operation that needs several, as [`Mosaic`](super::Mosaic) does: the sample, the operations
/// that its stored image goes through, and the place of the result. The draws of transforms make parts; a pipeline
/// reads the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Part {
    /// Index of the sample in the source.
    pub sample: u64,
    /// The operations that the sample's stored image goes through, orientation included.
    pub ops: Vec<Op>,
    /// First column and row of the result.
    #[serde(default)]
    pub at: [u32; 2],
    #[serde(skip)]
    pub(crate) loaded: Loaded,
}

/// The image and fields of a part after its operations, as far as they are known.
#[derive(Clone, Default)]
pub(crate) struct Loaded {
    pub(crate) fields: Option<Arc<Fields>>,
    pub(crate) image: Option<LoadedImage>,
}

/// The image of a part: bytes red, green, blue, row by row.
#[derive(Clone)]
pub(crate) struct LoadedImage {
    pub(crate) size: Size,
    pub(crate) rgb: Arc<Vec<u8>>,
}

impl LoadedImage {
    /// The rows of pixels, first to last.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[[u8; 3]]> {
        self.rgb.as_chunks::<3>().0.chunks_exact(self.size.width as usize)
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.image.is_some() { "loaded" } else { "not loaded" })
    }
}

/// Parts are equal if their written forms are equal.
impl PartialEq for Loaded {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Part {
    /// A sample as it is stored, at the upper left corner.
    #[must_use]
    pub fn new(sample: u64) -> Self {
        Self { sample, ops: Vec::new(), at: [0; 2], loaded: Loaded::default() }
    }

    /// The image of the part, for the operation `name`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the part was not loaded.
    pub(super) fn image(&self, name: &'static str) -> Result<&LoadedImage> {
        self.loaded.image.as_ref().ok_or_else(|| needs_a_pipeline(name))
    }

    /// The fields of the part, for the operation `name`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the part was not loaded, or without fields.
    pub(super) fn fields(&self, name: &'static str) -> Result<Arc<Fields>> {
        self.loaded.fields.clone().ok_or_else(|| needs_a_pipeline(name))
    }
}

/// The error for an operation `name` that needs other samples where they cannot be read.
pub(crate) fn needs_a_pipeline(name: &'static str) -> Error {
    Error::Unsupported {
        feature: format!("{name} with other samples on a single image"),
        remedy: "run a pipeline over their data set: it reads them".to_owned(),
    }
}

/// Reads the other samples that a sample's transforms ask for.
pub(crate) trait Partners {
    /// Number of samples that partners are drawn from.
    fn samples(&self) -> u64;

    /// The input of the draws of a sample's recipe.
    ///
    /// # Errors
    /// [`Error::Sample`], which names the sample, if it cannot be read.
    fn partner(&self, index: u64) -> Result<Partner>;
}

/// The input of the draws of a sample's recipe.
pub(crate) struct Partner {
    /// The operations that the stored image is opened with.
    pub(crate) opened: Vec<Op>,
    /// Size of the stored image.
    pub(crate) size: Size,
    pub(crate) annotation: Annotation,
}
