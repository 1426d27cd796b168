//! JPEG regions with Pillow's bytes: decodes images, or rectangles of them, at the cost of the rectangle.
//!
//! A [`Decoder`] gives the pixels of Pillow (libjpeg-turbo's accurate integer DCT and fancy upsampling), byte for byte.
//! A rectangle has the pixels of the whole image. Outside of it only Huffman codes are walked through, and only once
//! with [entry points](decode::EntryPointStore).
//!
//! ```
//! use warpfeed_image::{Decoder, Image, JpegOptions, Rect, Size, encode_jpeg, probe};
//!
//! let bytes = encode_jpeg(&Image::new(Size::new(640, 480)), &JpegOptions::default())?;
//! let header = probe(&bytes)?;
//! assert_eq!(header.size, Size::new(640, 480));
//!
//! // One decoder and one image for many files: both keep their memory.
//! let (mut decoder, mut image) = (Decoder::new()?, Image::default());
//! let part = Rect { x: 100, y: 200, width: 224, height: 224 };
//! decoder.decode(&bytes, &header, part, false, &mut image)?;
//! assert_eq!(image.row(0).len(), 224);
//! # Ok::<(), warpfeed_image::Error>(())
//! ```
//!
//! # Modules
//!
//! | for | see |
//! | --- | --- |
//! | a header, a decoder, its options | [`decode`] |
//! | entry points, which make later decodes cheaper | [`decode::EntryPointStore`] |
//! | an index of rows in the image itself, which makes all decodes cheaper | [`decode::indexed`] |
//! | JPEG and PNG files | [`encode`] |
//! | images in memory, sizes and rectangles | [`raster`] |
//! | images of any element type and number of channels | [`planes`] |
//!
//! The names that most programs use are in the root as well. Hidden names are for warpfeed alone.
//!
//! # Limits
//!
//! [`check_pixels`] compares a header with a limit. A decoder allocates memory for the rectangle, and for progressive
//! JPEGs, PNGs and WebPs for the whole image, and for TIFFs a strip or tile. If the system refuses memory, or an image is damaged, there is an
//! [`Error`]; nothing panics.
//!
//! # Features and environment
//!
//! `webp` (default) decodes WebP images, `tiff` (default) TIFFs, and `zstd` TIFFs with Zstandard compression.
//! `WARPFEED_SIMD` (`none`, `avx2`, `avx512`) limits the vector instructions.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod decode;
pub mod encode;
mod error;
#[doc(hidden)]
pub mod file;
#[doc(hidden)]
pub mod layout;
#[doc(hidden)]
pub mod memory;
pub mod planes;
pub mod raster;
#[doc(hidden)]
pub mod simd;

// The C library of `decode` and `encode`: named so that it is linked.
use mozjpeg_sys as _;

pub use decode::{Decoder, EntryPointStore, Format, Header, probe};
pub use encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg, encode_png, to_baseline};
pub use error::{Error, Result};
pub use raster::{Image, Pixel, Rect, Size, check_pixels};

/// The code of README.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
