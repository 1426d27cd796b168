//! Batches of numbers in host memory.

use crate::error::{Error, Result};
use bytemuck::Pod;
use half::{bf16, f16};
use std::fmt;

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32-bit floating point. Without normalisation: `v / 255`, 0 to 1.
    F32,
    /// 16-bit floating point (IEEE): the `f32` value rounded to the nearest, ties to even.
    F16,
    /// 16-bit floating point (8-bit exponent): the `f32` value rounded to the nearest, ties to even.
    Bf16,
    /// Unsigned bytes, 0 to 255, not normalised.
    U8,
}

impl DType {
    /// Size of an element in bytes.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::U8 => "u8",
        })
    }
}

/// The order of a batch's dimensions: N pictures, C = 3 channels (red, green, blue), H rows, W columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Channels as planes.
    Nchw,
    /// Channels interleaved.
    Nhwc,
}

/// A Rust type that a tensor's elements can be read as.
pub trait Element: Pod {
    /// The matching [`DType`].
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for f16 {
    const DTYPE: DType = DType::F16;
}
impl Element for bf16 {
    const DTYPE: DType = DType::Bf16;
}
impl Element for u8 {
    const DTYPE: DType = DType::U8;
}

/// Bytes of host memory that begin on a cache line.
#[derive(Default)]
pub(crate) struct HostBuffer {
    /// Not cache lines: memory aligned to more than 16 bytes does not come zeroed from the system, page by page as it is
    /// first touched, but is zeroed by hand.
    words: Vec<u128>,
    /// Where the first whole cache line begins.
    start: usize,
    len_bytes: usize,
}

impl HostBuffer {
    /// `len_bytes` zero bytes.
    pub(crate) fn new(len_bytes: usize) -> Self {
        const LINE_BYTES: usize = 64;
        let words: Vec<u128> = bytemuck::zeroed_vec((len_bytes + LINE_BYTES).div_ceil(size_of::<u128>()));
        let start = words.as_ptr().addr().wrapping_neg() % LINE_BYTES;
        Self { words, start, len_bytes }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[self.start..][..self.len_bytes]
    }

    pub(crate) fn as_bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[self.start..][..self.len_bytes]
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuffer({} bytes)", self.len_bytes)
    }
}

/// A batch of pictures as numbers, contiguous, in host memory.
///
/// ```
/// use warpfeed::*;
///
/// let jpeg = encode_jpeg(&Picture::new(Size::new(4, 2)), &JpegOptions::default())?;
/// let tensor = apply(&jpeg, &[Op::Normalize { mean: [0.5; 3], std: [0.5; 3] }], &ApplyOptions::default())?;
/// assert_eq!((tensor.shape(), tensor.dtype(), tensor.layout()), ([1, 3, 2, 4], DType::F32, Layout::Nchw));
/// assert_eq!(tensor.as_slice::<f32>()?, [-1.0; 24]);
/// assert!(tensor.as_slice::<u8>().is_err());
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Tensor {
    buffer: HostBuffer,
    shape: [usize; 4],
    dtype: DType,
    layout: Layout,
}

impl Tensor {
    pub(crate) fn new(buffer: HostBuffer, shape: [usize; 4], dtype: DType, layout: Layout) -> Self {
        debug_assert!(shape.iter().product::<usize>() * dtype.size_bytes() <= buffer.len_bytes);
        Self { buffer, shape, dtype, layout }
    }

    /// Takes the memory back and leaves an empty tensor.
    pub(crate) fn take_buffer(&mut self) -> HostBuffer {
        self.shape[0] = 0;
        std::mem::take(&mut self.buffer)
    }

    /// `[N, 3, H, W]` or `[N, H, W, 3]`, as the [`layout`](Self::layout) says.
    #[must_use]
    pub fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The order of the dimensions.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// All elements as bytes in the machine's byte order, first picture first.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer.as_bytes()[..self.shape.iter().product::<usize>() * self.dtype.size_bytes()]
    }

    /// All elements, first picture first.
    ///
    /// # Errors
    /// [`Error::Parameter`] if `T` is not what the tensor holds.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if T::DTYPE != self.dtype {
            return Err(Error::parameter("Tensor::as_slice", "T", format!("the tensor's {}", self.dtype), T::DTYPE));
        }
        Ok(bytemuck::cast_slice(self.as_bytes()))
    }

    /// The bytes of picture `i` of the batch.
    ///
    /// # Panics
    /// If `i` is not below `shape()[0]`.
    #[must_use]
    pub fn picture_bytes(&self, i: usize) -> &[u8] {
        let bytes = self.shape[1..].iter().product::<usize>() * self.dtype.size_bytes();
        &self.as_bytes()[i * bytes..][..bytes]
    }
}
