//! NumPy's `.npy` format. Files are written in version 1.0 and read in any version.
//!
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>

use crate::error::{Error, Result};
use crate::os::atomic;
use half::f16;
use std::io::{self, Write};
use std::path::Path;

/// The first bytes of a file.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// Writes an array in C order. `data` writes its elements. The file appears only when it is complete.
pub(crate) fn write(
    path: &Path,
    descr: &str,
    shape: &[usize],
    data: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let header = header(descr, shape)?;
    atomic::write_output(path, |file| {
        file.write_all(&header)?;
        data(file)
    })
}

/// The bytes of a file before the elements, which are in C order.
pub(crate) fn header(descr: &str, shape: &[usize]) -> Result<Vec<u8>> {
    // Python's notation: a tuple of one number needs a comma after it, and longer tuples allow one.
    let sides: String = shape.iter().map(|side| format!("{side},")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sides}), }}");
    // Magic, version, length and header together fill a multiple of 64 bytes and end in a line feed.
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let length = u16::try_from(padded).map_err(|_| {
        Error::parameter("write_npy", "shape", "a few numbers, as a header of 64 KiB holds", shape.len())
    })?;
    let text = format!("{header:<width$}\n", width = padded - 1);
    Ok([MAGIC, &[1, 0], &length.to_le_bytes(), text.as_bytes()].concat())
}

/// The numbers of a file in C order, whatever their shape: those of [`array`].
pub(crate) fn numbers(file: &[u8]) -> Result<Vec<f64>, String> {
    array(file).map(|(_, numbers)| numbers)
}

/// The shape of a file's array and its numbers in C order. They may be integers, floating-point numbers or truth
/// values, little-endian.
pub(crate) fn array(file: &[u8]) -> Result<(Vec<usize>, Vec<f64>), String> {
    let damaged = || "it is a damaged .npy file".to_owned();
    let (version, rest) = file.strip_prefix(MAGIC).and_then(<[u8]>::split_first_chunk::<2>).ok_or_else(damaged)?;
    let (len_bytes, rest) = match version {
        [1, _] => rest.split_first_chunk::<2>().map(|(len, rest)| (usize::from(u16::from_le_bytes(*len)), rest)),
        _ => rest.split_first_chunk::<4>().map(|(len, rest)| (u32::from_le_bytes(*len) as usize, rest)),
    }
    .ok_or_else(damaged)?;
    let (header, data) = rest.split_at_checked(len_bytes).ok_or_else(damaged)?;
    let header = std::str::from_utf8(header).map_err(|_| damaged())?;
    let value = |key: &str| header.split_once(&format!("'{key}':")).map(|(_, value)| value.trim_start());
    let shape = value("shape").and_then(|text| text.strip_prefix('(')?.split_once(')')).ok_or_else(damaged)?.0;
    let sides = shape.split(',').map(str::trim).filter(|side| !side.is_empty());
    let sides: Vec<usize> = sides.map(|side| side.parse().map_err(|_| damaged())).collect::<Result<_, _>>()?;
    if sides.len() > 1 && value("fortran_order").is_none_or(|order| !order.starts_with("False")) {
        return Err("its .npy file is in Fortran's order: write it in C order (numpy.ascontiguousarray)".to_owned());
    }
    let kind = value("descr").and_then(|text| text.strip_prefix('\'')?.split_once('\'')).map_or("", |(kind, _)| kind);
    macro_rules! read {
        ($($kinds:pat => $number:ty,)*) => {
            match kind {
                $($kinds => {
                    let (numbers, rest) = data.as_chunks::<{ size_of::<$number>() }>();
                    (numbers.iter().map(|bytes| <$number>::from_le_bytes(*bytes) as f64).collect::<Vec<_>>(), rest)
                })*
                "<f2" => {
                    let (numbers, rest) = data.as_chunks::<2>();
                    (numbers.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f64()).collect(), rest)
                }
                other => return Err(format!("its .npy file is of type {other:.20}, not of integers or floats")),
            }
        };
    }
    let (numbers, rest) = read! {
        "|u1" | "|b1" => u8, "|i1" => i8,
        "<u2" => u16, "<i2" => i16,
        "<u4" => u32, "<i4" => i32, "<f4" => f32,
        "<u8" => u64, "<i8" => i64, "<f8" => f64,
    };
    let len = sides.iter().try_fold(1_usize, |product, &side| product.checked_mul(side));
    if len == Some(numbers.len()) && rest.is_empty() { Ok((sides, numbers)) } else { Err(damaged()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_numpy_writes_them() {
        let file = |descr: &str, order: &str, shape: &str, data: &[u8]| {
            let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({shape}), }}\n");
            [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
        };
        let floats: Vec<u8> = [0.5_f32, -2.0].iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(numbers(&file("<f4", "False", "2,", &floats)).unwrap(), [0.5, -2.0]);
        assert_eq!(numbers(&file("<f4", "False", "1, 2", &floats)).unwrap(), [0.5, -2.0]);
        assert_eq!(numbers(&file("<i8", "True", "", &(-7_i64).to_le_bytes())).unwrap(), [-7.0]);
        assert_eq!(numbers(&file("<f2", "False", "1,", &f16::from_f32(0.25).to_le_bytes())).unwrap(), [0.25]);
        let whole = file("|u1", "False", "3,", &[1, 2, 255]);
        assert_eq!(numbers(&whole).unwrap(), [1.0, 2.0, 255.0]);
        for len in 0..whole.len() {
            assert!(numbers(&whole[..len]).is_err(), "{len}");
        }
        for bad in [
            file("<f4", "False", "3,", &floats),
            file(">f4", "False", "2,", &floats),
            file("<f4", "True", "2, 1", &floats),
            file("<U1", "False", "2,", &floats),
            file("<f4", "False", "x,", &floats),
            file("<f4", "False", "9223372036854775807, 4", &floats),
        ] {
            assert!(numbers(&bad).is_err(), "{}", String::from_utf8_lossy(&bad));
        }
    }
}
