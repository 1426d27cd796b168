//! Images with their own element type and channels.

use warpfeed_image::decode::DecodeOptions;
use warpfeed_image::planes::{Element, PixelKind, Planes};
use warpfeed_image::{
    Decoder, Error, Image, JpegColor, JpegOptions, Rect, Result, Size, encode_jpeg, encode_png, probe,
};

fn image(size: Size) -> Image {
    let mut image = Image::new(size);
    for (i, pixel) in (0_u32..).zip(image.pixels_mut()) {
        let [r, g, b] = [i * 7, i * 3 + 1, i * i].map(|value| (value % 256) as u8);
        *pixel = [r, g, b, 255];
    }
    image
}

fn planes(bytes: &[u8], part: Rect, bands: Option<&[u16]>) -> Result<Planes> {
    let mut planes = Planes::default();
    Decoder::new()?.decode_planes(bytes, &probe(bytes)?, part, bands, DecodeOptions::default(), &mut planes)?;
    Ok(planes)
}

fn rgb(bytes: &[u8], part: Rect) -> Vec<u8> {
    let mut image = Image::default();
    Decoder::new().unwrap().decode(bytes, &probe(bytes).unwrap(), part, false, &mut image).unwrap();
    image.to_rgb()
}

#[test]
fn jpegs_have_the_values_of_rgb_and_gray_ones_a_single_channel() {
    let size = Size::new(70, 41);
    let part = Rect { x: 9, y: 5, width: 33, height: 30 };
    for color in [JpegColor::Ycc, JpegColor::Gray, JpegColor::Rgb, JpegColor::Cmyk, JpegColor::Ycck] {
        let bytes = encode_jpeg(&image(size), &JpegOptions { color, ..JpegOptions::default() }).unwrap();
        let channels = if color == JpegColor::Gray { 1 } else { 3 };
        assert_eq!(probe(&bytes).unwrap().kind, PixelKind { element: Element::U8, channels });
        let (got, want) = (planes(&bytes, part, None).unwrap(), rgb(&bytes, part));
        assert_eq!((got.whole(), got.part(), got.kind().channels), (size, part, channels));
        for channel in 0..usize::from(channels) {
            assert!(want.iter().skip(channel).step_by(3).eq(got.plane::<u8>(channel)), "{color:?}");
        }
        let last = planes(&bytes, part, Some(&[channels - 1])).unwrap();
        assert_eq!(last.values::<u8>(), got.plane::<u8>(usize::from(channels) - 1));
    }
}

#[test]
fn parts_and_channels_that_do_not_exist_are_refused() {
    let size = Size::new(5, 4);
    let bytes = encode_png(&image(size)).unwrap();
    let refused = |part, bands: Option<&[u16]>| {
        matches!(planes(&bytes, part, bands), Err(Error::Parameter { operation: "decode", .. }))
    };
    let whole = Rect::full(size);
    assert!(refused(Rect { x: 1, ..whole }, None) && refused(Rect { height: 0, ..whole }, None));
    assert!(refused(whole, Some(&[3])) && refused(whole, Some(&[])) && refused(whole, Some(&[0; 65])));
    assert_eq!(planes(&bytes, whole, Some(&[0; 64])).unwrap().kind().channels, 64);
}
