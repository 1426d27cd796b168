//! The meaning of an array's dimensions.

use crate::error::{Error, Result};
use std::path::Path;

/// For each axis of images, the dimension of the array that it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Axes {
    pub(super) samples: Option<usize>,
    pub(super) channels: Option<usize>,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Axes {
    /// Reads a letter for each dimension of an array of this shape: `n`, `c`, `h`, `w`.
    pub(super) fn read(text: &str, shape: &[u64], path: &Path) -> Result<Self> {
        let example = match shape.len() {
            2 => "hw",
            3 => "nhw",
            4 => "nhwc",
            dimensions => {
                return Err(Error::Unsupported {
                    feature: format!("a Zarr array of {dimensions} dimensions, {shape:?}, in {}", path.display()),
                    remedy: "write it with 2 to 4 dimensions: samples, channels, rows and columns".to_owned(),
                });
            }
        };
        let wrong = || {
            let expected = format!(
                "a letter for each dimension of the array, such as {example} for its shape {shape:?}: n samples, c \
                 channels, h rows, w columns, each at most once, h and w always"
            );
            let got = if text.is_empty() { "none" } else { text };
            Error::parameter("ZarrArray::open", "axes", expected, format!("{got:.40}, for {}", path.display()))
        };
        let known = text.chars().all(|letter| "nchw".contains(letter));
        let once = |letter: char| text.matches(letter).count() < 2;
        if text.len() != shape.len() || !known || !"nchw".chars().all(once) {
            return Err(wrong());
        }
        let at = |letter: char| text.find(letter);
        let (rows, columns) = (at('h').ok_or_else(wrong)?, at('w').ok_or_else(wrong)?);
        Ok(Self { samples: at('n'), channels: at('c'), rows, columns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dimension_has_a_letter() {
        let read = |text: &str, dimensions: usize| Axes::read(text, &vec![5; dimensions], Path::new("a.zarr"));
        let axes = |samples, channels, rows, columns| Axes { samples, channels, rows, columns };
        assert_eq!(read("nchw", 4).unwrap(), axes(Some(0), Some(1), 2, 3));
        assert_eq!(read("whn", 3).unwrap(), axes(Some(2), None, 1, 0));
        assert_eq!(read("hw", 2).unwrap(), axes(None, None, 0, 1));
        for (text, dimensions) in [("", 4), ("nhw", 4), ("nhwx", 4), ("nhhw", 4), ("nch", 3), ("NHW", 3), ("é", 2)] {
            let error = read(text, dimensions).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains("[5, 5"), "{error}");
        }
        assert!(read("", 4).unwrap_err().to_string().contains("nhwc for its shape [5, 5, 5, 5]"));
        assert!(read("nchw", 5).unwrap_err().to_string().contains("5 dimensions"));
        assert!(read("", 1).unwrap_err().to_string().contains("1 dimensions"));
    }
}
