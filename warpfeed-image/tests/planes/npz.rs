//! NPZ: archives of arrays.

use super::{message, planes};
use warpfeed_image::{Format, Size, probe};

/// An .npy file.
pub fn array(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    [&b"\x93NUMPY\x01\0"[..], &(text.len() as u16).to_le_bytes(), text.as_bytes(), values].concat()
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    })
}

/// An archive of members, stored or deflated. Local headers have an extra field, as those of NumPy.
pub fn archive(members: &[(&str, &[u8])], is_deflated: bool) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in members {
        let data = if is_deflated { miniz_oxide::deflate::compress_to_vec(content, 6) } else { content.to_vec() };
        let method = [if is_deflated { 8 } else { 0 }, 0];
        let sizes = [data.len(), content.len()].map(|len| (len as u32).to_le_bytes());
        let name_len = (name.len() as u16).to_le_bytes();
        let common =
            [&[20, 0, 0, 0][..], &method, &[0; 4], &crc(content).to_le_bytes(), sizes.as_flattened(), &name_len]
                .concat();
        let offset = (file.len() as u32).to_le_bytes();
        file.extend([b"PK\x03\x04", &common[..], &[4, 0], name.as_bytes(), &[9; 4], &data].concat());
        directory.extend([b"PK\x01\x02\x14\0", &common[..], &[0; 12], &offset, name.as_bytes()].concat());
    }
    let count = (members.len() as u16).to_le_bytes();
    let place = [directory.len(), file.len()].map(|number| (number as u32).to_le_bytes());
    [&file[..], &directory, b"PK\x05\x06\0\0\0\0", &count, &count, place.as_flattened(), &[0, 0]].concat()
}

#[test]
fn the_only_array_or_the_one_with_a_usual_name_is_read() {
    let (image, other) =
        (array("<u2", "(2, 3)", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]), array("<i8", "()", &[0; 8]));
    let want = planes(&image, None, None).unwrap();
    for is_deflated in [false, true] {
        for members in [
            &[("x.npy", &image[..])][..],
            &[("readme.txt", b"no array"), ("x.npy", &image)],
            &[("label.npy", &other), ("image.npy", &image)],
            &[("arr_0.npy", &image), ("arr_1.npy", &other)],
        ] {
            let file = archive(members, is_deflated);
            assert_eq!((probe(&file).unwrap().format, probe(&file).unwrap().size), (Format::Npz, Size::new(3, 2)));
            let got = planes(&file, None, None).unwrap();
            assert_eq!((got.kind(), got.as_bytes()), (want.kind(), want.as_bytes()));
        }
        for (members, words) in [
            (&[("x.npy", &image[..]), ("y.npy", &image)][..], "2 arrays"),
            (&[("arr_0.npy", &image), ("image.npy", &image)], "usual name"),
            (&[("x.txt", &image)], "no array"),
            (&[("x.npy", &other)], "i64"),
            (&[("x.npy", b"no array")], "not an .npy file"),
            (&[("x.npy", &[&image[..], &[0]].concat())], "bytes"),
        ] {
            let message = message(planes(&archive(members, is_deflated), None, None));
            assert!(message.contains(words), "{words}: {message}");
        }
    }
    let mut file = archive(&[("x.npy", &image)], false);
    let at = file.windows(4).position(|bytes| bytes == [3, 4, 5, 6]).unwrap();
    file[at] ^= 1;
    assert!(message(planes(&file, None, None)).contains("checksum"));
}
