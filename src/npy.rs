//! NumPy's file format for arrays, version 1.0.
//!
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>

use crate::atomic;
use crate::error::{Error, Result};
use std::io::{self, Write};
use std::path::Path;

/// Writes bytes as an `.npy` file of dtype `u8`, in C order; a picture has the shape `[height, width, 3]`.
///
/// The file appears whole or not at all.
///
/// # Errors
/// [`Error::Parameter`] if `values` does not fill the shape, [`Error::Io`] if the file cannot be written.
///
/// ```
/// let path = tempfile::tempdir().unwrap().path().with_extension("npy");
/// warpfeed::write_npy_u8(&path, &[1, 2, 3], &[255, 0, 0, 0, 255, 0])?;
/// assert_eq!(std::fs::read(&path).unwrap()[128..], [255, 0, 0, 0, 255, 0]);
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn write_npy_u8(path: impl AsRef<Path>, shape: &[usize], values: &[u8]) -> Result<()> {
    write(path.as_ref(), "|u1", shape, values.len(), |file| file.write_all(values))
}

/// Writes floats as an `.npy` file of dtype `f4`, little endian, in C order; a normalised picture has the shape
/// `[3, height, width]`.
///
/// The file appears whole or not at all.
///
/// # Errors
/// [`Error::Parameter`] if `values` does not fill the shape, [`Error::Io`] if the file cannot be written.
///
/// ```
/// let path = tempfile::tempdir().unwrap().path().with_extension("npy");
/// warpfeed::write_npy_f32(&path, &[3, 1, 1], &[0.5, -1.0, 2.0])?;
/// assert_eq!(std::fs::read(&path).unwrap()[128..132], 0.5_f32.to_le_bytes());
/// assert!(warpfeed::write_npy_f32(&path, &[3, 1, 1], &[0.5]).is_err());
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn write_npy_f32(path: impl AsRef<Path>, shape: &[usize], values: &[f32]) -> Result<()> {
    write(path.as_ref(), "<f4", shape, values.len(), |file| {
        values.iter().try_for_each(|value| file.write_all(&value.to_le_bytes()))
    })
}

fn write(
    path: &Path,
    descr: &str,
    shape: &[usize],
    len: usize,
    data: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    if shape.iter().try_fold(1_usize, |product, &side| product.checked_mul(side)) != Some(len) {
        let got = format!("{len} for {}", path.display());
        return Err(Error::parameter("write_npy", "values", format!("as many as the shape {shape:?} holds"), got));
    }
    // Python's notation: a comma after every number, which a tuple of one needs and the others allow.
    let sides: String = shape.iter().map(|side| format!("{side},")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sides}), }}");
    // Magic, version, length and header fill a multiple of 64 bytes and end in a line end.
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let length = u16::try_from(padded).map_err(|_| {
        Error::parameter("write_npy", "shape", "a few numbers, as a header of 64 KiB holds", shape.len())
    })?;
    atomic::write(path, |file| {
        file.write_all(b"\x93NUMPY\x01\x00")?;
        file.write_all(&length.to_le_bytes())?;
        writeln!(file, "{header:<width$}", width = padded - 1)?;
        data(file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_numpys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let values: Vec<u8> = (0..24).collect();
        write_npy_u8(&path, &[2, 4, 3], &values).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,4,3,), }";
        assert_eq!(bytes[..10], *b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(bytes[10..128], *format!("{header:<117}\n").as_bytes());
        assert_eq!(bytes[128..], values);

        write_npy_f32(&path, &[2], &[1.5, f32::MIN]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.windows(20).any(|w| w == b"'<f4', 'fortran_orde") && bytes.windows(5).any(|w| w == b"(2,),"));
        assert_eq!(bytes[bytes.len() - 8..], [[0, 0, 0xc0, 0x3f], [0xff, 0xff, 0x7f, 0xff]].concat());
    }

    #[test]
    fn a_wrong_shape_or_place_is_refused() {
        let error = write_npy_u8("x.npy", &[2, 3], &[0; 5]).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("[2, 3]") && error.to_string().contains("x.npy"));
        assert!(write_npy_u8("x.npy", &[usize::MAX, 2], &[0; 5]).unwrap_err().is_parameter());
        assert!(write_npy_u8("x.npy", &[1; 40_000], &[0]).unwrap_err().is_parameter());
        let missing = tempfile::tempdir().unwrap().path().join("missing/x.npy");
        assert!(write_npy_f32(&missing, &[1], &[0.0]).unwrap_err().to_string().contains("missing/x.npy"));
    }
}
