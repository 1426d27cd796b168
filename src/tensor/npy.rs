//! Tensors as files of NumPy's `.npy` format.

use super::{DType, Tensor};
use crate::error::{Error, Result};
use crate::output::npy;
use std::path::Path;

/// Writes a tensor of `u8`, `u16`, `f32` or `f16` as an `.npy` file in C order. A batch of one image is written without its
/// first dimension, as `[H, W, 3]` or `[3, H, W]`.
///
/// The file is written completely or not at all.
///
/// # Errors
/// [`Error::Unsupported`] for `bf16`, which the format lacks; [`Error::Io`] if the file cannot be written.
///
/// ```
/// use warpfeed::prelude::*;
/// use warpfeed::{ApplyOptions, apply, image::{Image, JpegOptions, encode_jpeg, write_npy}};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(4, 2)), &JpegOptions::default())?;
/// let tensor = apply(&jpeg, &[], &ApplyOptions::default())?;
/// let folder = tempfile::tempdir().unwrap();
/// write_npy(&tensor, folder.path().join("image.npy"))?;
/// assert!(std::fs::read(folder.path().join("image.npy")).unwrap().starts_with(b"\x93NUMPY"));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn write_npy(tensor: &Tensor, path: impl AsRef<Path>) -> Result<()> {
    let descr = match tensor.dtype() {
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::F32 => "<f4",
        DType::F16 => "<f2",
        DType::Bf16 => {
            let remedy = "use f32 or f16".to_owned();
            return Err(Error::Unsupported { feature: "bf16 in an .npy file".to_owned(), remedy });
        }
    };
    let shape = tensor.shape();
    let shape = if shape[0] == 1 { &shape[1..] } else { &shape[..] };
    let (bytes, element) = (tensor.as_bytes()?, tensor.dtype().size_bytes());
    npy::write(path.as_ref(), descr, shape, |file| {
        if cfg!(target_endian = "little") {
            return file.write_all(bytes);
        }
        bytes.chunks_exact(element).try_for_each(|value| {
            let value: Vec<u8> = value.iter().rev().copied().collect();
            file.write_all(&value)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{HostBuffer, Layout, Storage};

    fn tensor(shape: [usize; 4], dtype: DType) -> Tensor {
        let mut buffer = HostBuffer::new(dtype, shape.iter().product::<usize>() * dtype.size_bytes()).unwrap();
        buffer.as_bytes_mut().iter_mut().zip(0..).for_each(|(byte, i)| *byte = i);
        Tensor::new(Storage::Host(buffer), shape, dtype, Layout::Nhwc)
    }

    #[test]
    fn the_bytes_are_numpys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        for (tensor, descr, shape) in [
            (tensor([1, 2, 4, 3], DType::U8), "|u1", "2,4,3,"),
            (tensor([1, 3, 1, 2], DType::F32), "<f4", "3,1,2,"),
            (tensor([2, 3, 1, 1], DType::F16), "<f2", "2,3,1,1,"),
        ] {
            write_npy(&tensor, &path).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
            assert_eq!(bytes[..10], *b"\x93NUMPY\x01\x00\x76\x00");
            assert_eq!(bytes[10..128], *format!("{header:<117}\n").as_bytes());
            assert_eq!(&bytes[128..], tensor.as_bytes().unwrap());
        }
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let missing = tempfile::tempdir().unwrap().path().join("missing/x.npy");
        let error = write_npy(&tensor([1, 1, 1, 3], DType::U8), &missing).unwrap_err();
        assert!(error.to_string().contains("missing/x.npy"));
        let error = write_npy(&tensor([1, 1, 1, 3], DType::Bf16), &missing).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }));
    }
}
