//! The public surface, as a program uses it.

use warpfeed_image::decode::{DecodeOptions, PriorKnowledge, indexed};
use warpfeed_image::{
    Decoder, EntryPointStore, Error, Format, Image, JpegColor, JpegOptions, Pixel, Rect, Result, Size, check_pixels,
    encode_jpeg, encode_png, probe, to_baseline,
};

const SIZE: Size = Size::new(400, 300);
const PARTS: [Rect; 3] = [
    Rect { x: 150, y: 90, width: 224, height: 100 },
    Rect { x: 0, y: 299, width: 1, height: 1 },
    Rect { x: 17, y: 0, width: 383, height: 300 },
];

/// Slopes, and a corner in which neighbors differ a lot.
fn image() -> Image {
    let mut image = Image::new(SIZE);
    for y in 0..SIZE.height {
        for (pixel, x) in image.row_mut(y).iter_mut().zip(0..) {
            let noise = if x > 200 && y > 150 { ((x * 7919) ^ (y * 104_729)) >> 3 } else { 0 };
            *pixel = [x / 2 + noise, y + noise, (x + y) / 3, 255].map(|value| value as u8);
        }
    }
    image
}

fn decode(bytes: &[u8], part: Rect, options: DecodeOptions<'_>) -> Result<(Image, PriorKnowledge)> {
    let mut image = Image::default();
    let knew = Decoder::new()?.decode_with(bytes, &probe(bytes)?, part, options, &mut image)?;
    Ok((image, knew))
}

/// The rectangle of a whole image.
fn cut(whole: &Image, part: Rect) -> Vec<Pixel> {
    (0..part.height).flat_map(|y| &whole.row(part.y + y)[part.x as usize..][..part.width as usize]).copied().collect()
}

#[test]
fn a_region_is_the_crop_of_the_whole_in_every_format() {
    let image = image();
    let jpeg = |options| encode_jpeg(&image, &options).unwrap();
    let progressive = jpeg(JpegOptions { progressive: true, ..JpegOptions::default() });
    let mut files = vec![
        (Format::Jpeg, jpeg(JpegOptions::default())),
        (Format::Jpeg, jpeg(JpegOptions { color: JpegColor::Gray, ..JpegOptions::default() })),
        (Format::Jpeg, indexed(&to_baseline(&progressive, true).unwrap()).unwrap()),
        (Format::Png, encode_png(&image).unwrap()),
        (Format::Pnm, [format!("P6 {} {} 255\n", SIZE.width, SIZE.height).as_bytes(), &image.to_rgb()].concat()),
    ];
    files.push((Format::Jpeg, progressive));
    for (format, bytes) in files {
        let header = probe(&bytes).unwrap();
        assert_eq!((header.format, header.size), (format, SIZE));
        let (whole, _) = decode(&bytes, Rect::full(SIZE), DecodeOptions::default()).unwrap();
        for part in PARTS {
            let (region, _) = decode(&bytes, part, DecodeOptions::default()).unwrap();
            assert_eq!((region.part(), region.whole()), (part, SIZE));
            assert!(region.pixels() == cut(&whole, part), "{format:?}, {part:?}");
        }
    }
}

#[test]
fn entry_points_and_an_index_are_used_and_change_no_pixel() {
    let plain = encode_jpeg(&image(), &JpegOptions::default()).unwrap();
    let with_index = indexed(&to_baseline(&plain, true).unwrap()).unwrap();
    for (bytes, first) in [(plain, PriorKnowledge::Nothing), (with_index, PriorKnowledge::RowIndex)] {
        let store = EntryPointStore::new(1 << 20);
        let options = DecodeOptions { entry_points: Some(&store), ..DecodeOptions::default() };
        let mut known = Vec::new();
        for part in [PARTS[0]; 3].into_iter().chain(PARTS) {
            let (want, _) = decode(&bytes, part, DecodeOptions::default()).unwrap();
            let (got, knew) = decode(&bytes, part, options).unwrap();
            assert!(got.pixels() == want.pixels(), "{part:?}, {knew:?}");
            known.push(knew);
        }
        assert_eq!(known[0], first);
        assert_eq!(known.last(), Some(&PriorKnowledge::EntryPoints));
    }
}

#[test]
fn png_comes_back_byte_for_byte_and_jpeg_nearly() {
    let image = image();
    let options = JpegOptions { quality: 98, ..JpegOptions::default() };
    for (bytes, most) in [(encode_png(&image).unwrap(), 0), (encode_jpeg(&Image::new(SIZE), &options).unwrap(), 1)] {
        let (decoded, _) = decode(&bytes, Rect::full(SIZE), DecodeOptions::default()).unwrap();
        let want = if most == 0 { image.to_rgb() } else { vec![0; decoded.to_rgb().len()] };
        assert!(decoded.to_rgb().iter().zip(want).all(|(got, want)| got.abs_diff(want) <= most));
    }
    // Of a part of an image, the part is encoded.
    let (part, _) = decode(&encode_png(&image).unwrap(), PARTS[0], DecodeOptions::default()).unwrap();
    assert_eq!(probe(&encode_png(&part).unwrap()).unwrap().size, PARTS[0].size());
    assert!(matches!(encode_png(&Image::default()), Err(Error::Parameter { .. })));
}

#[test]
fn truncated_and_oversized_images_and_wrong_parameters_are_errors() {
    let bytes = encode_jpeg(&image(), &JpegOptions::default()).unwrap();
    let half = &bytes[..bytes.len() / 2];
    for part in PARTS {
        let error = decode(half, part, DecodeOptions::default()).unwrap_err();
        assert!(error.is_bad_image() && error.to_string().contains("truncated"), "{error}");
        let accepting = DecodeOptions { accept_truncated: true, ..DecodeOptions::default() };
        assert_eq!(decode(half, part, accepting).unwrap().0.size(), part.size());
    }
    assert!(probe(&bytes[..100]).unwrap_err().is_bad_image());
    let error = check_pixels(probe(&bytes).unwrap().size, 100_000).unwrap_err();
    assert!(error.is_bad_image() && error.to_string().contains("120000"), "{error}");
    let outside = Rect { x: 300, y: 0, width: 101, height: 1 };
    let error = decode(&bytes, outside, DecodeOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Parameter { .. }) && !error.is_bad_image(), "{error}");
}
