//! Places of encoded images in files.

use crate::os::file::Identity;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The place of an encoded image in a file, which holds its bytes as they are.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct Extent {
    pub(crate) file: Arc<ListedFile>,
    /// Offset of the image in the file.
    pub(crate) offset: u64,
    pub(crate) len_bytes: u64,
}

/// A file as it was when it was listed.
#[derive(Debug)]
pub(crate) struct ListedFile {
    path: PathBuf,
    len_bytes: u64,
    identity: Identity,
}

impl ListedFile {
    pub(super) fn new(path: &Path, metadata: &Metadata) -> Self {
        Self { path: path.to_owned(), len_bytes: metadata.len(), identity: Identity::of(metadata) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether this is the metadata of the same file, not written since. A write changes the time of the last change,
    /// which programs cannot set.
    pub(crate) fn is(&self, metadata: &Metadata) -> bool {
        metadata.len() == self.len_bytes && Identity::of(metadata) == self.identity
    }
}
