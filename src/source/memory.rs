//! Encoded images in memory.

use super::{Source, no_such_sample};
use crate::error::Result;
use std::borrow::Cow;

/// Encoded images that are already in memory, each with its label.
///
/// ```
/// # use warpfeed::{EncodedImages, Source};
/// let source = EncodedImages::new([(vec![0xff, 0xd8], 3), (vec![0x89, 0x50], 4)]);
/// assert_eq!((source.len(), source.label(1)), (2, 4));
/// assert_eq!(source.read(1, &mut Vec::new())?, [0x89, 0x50]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct EncodedImages {
    images: Vec<(Vec<u8>, u32)>,
    classes: Vec<String>,
}

impl EncodedImages {
    /// The images in this order: their bytes (a JPEG, PNG or WebP file each) and labels.
    #[must_use]
    pub fn new(images: impl IntoIterator<Item = (Vec<u8>, u32)>) -> Self {
        Self { images: images.into_iter().collect(), classes: Vec::new() }
    }

    /// Names the labels, label 0 first.
    #[must_use]
    pub fn with_classes(mut self, classes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.classes = classes.into_iter().map(Into::into).collect();
        self
    }
}

impl Source for EncodedImages {
    fn len(&self) -> u64 {
        self.images.len() as u64
    }

    fn read<'a>(&'a self, index: u64, _buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let found = usize::try_from(index).ok().and_then(|i| self.images.get(i));
        found.map(|(bytes, _)| &bytes[..]).ok_or_else(|| no_such_sample("EncodedImages::read", index, self.len()))
    }

    fn label(&self, index: u64) -> u32 {
        self.images[index as usize].1
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("image {index} in memory").into()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_borrowed_and_a_wrong_index_is_an_error() {
        let source = EncodedImages::new(vec![(vec![1, 2, 3], 5)]).with_classes(["zero"]);
        let mut buffer = vec![9];
        assert_eq!(source.read(0, &mut buffer).unwrap().as_ptr(), source.images[0].0.as_ptr());
        assert_eq!(buffer, [9], "the buffer is not touched");
        assert_eq!(
            (source.label(0), source.name(0), source.classes()),
            (5, "image 0 in memory".into(), &["zero".to_owned()][..])
        );
        let error = source.read(1, &mut buffer).unwrap_err().to_string();
        assert!(error.contains("below 1") && error.contains("got 1"), "{error}");
        assert!(EncodedImages::default().is_empty());
    }
}
