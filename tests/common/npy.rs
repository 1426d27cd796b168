//! Reading NumPy's arrays.

use std::fs;
use std::io::Read;
use std::path::Path;

/// The array in an .npy file, or the first one in an .npz file: its type, its shape, its values.
pub fn read_npy(path: &Path) -> (String, Vec<u64>, Vec<f32>) {
    let mut bytes = fs::read(path).unwrap();
    let u16_at = |bytes: &[u8], at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    if bytes.starts_with(b"PK\x03\x04") {
        let data = bytes.split_off(30 + u16_at(&bytes, 26) + u16_at(&bytes, 28));
        assert_eq!(u16_at(&bytes, 8), 8, "{}: deflated data are expected", path.display());
        bytes.clear();
        flate2::read::DeflateDecoder::new(&data[..]).read_to_end(&mut bytes).unwrap();
    }
    assert_eq!(bytes[..8], *b"\x93NUMPY\x01\x00", "{}", path.display());
    let (header, data) = bytes[10..].split_at(u16_at(&bytes, 8));
    let header = str::from_utf8(header).unwrap();
    assert!(header.contains("'fortran_order': False"), "{header}");
    let between = |start: &str, end: &str| header.split_once(start).unwrap().1.split_once(end).unwrap().0;
    let sides = between("'shape': (", ")").split(',').map(str::trim);
    let shape: Vec<u64> = sides.filter(|side| !side.is_empty()).map(|side| side.parse().unwrap()).collect();
    let kind = between("'descr': '", "'").to_owned();
    let values: Vec<f32> = match kind.as_str() {
        "|u1" => data.iter().map(|value| f32::from(*value)).collect(),
        "<f4" => data.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect(),
        other => panic!("unexpected type {other}"),
    };
    assert_eq!(shape.iter().product::<u64>(), values.len() as u64, "{}", path.display());
    (kind, shape, values)
}
