//! Images with their own element type and channels.

mod damage;
mod npz;
#[cfg(feature = "tiff")]
mod tiff;
#[cfg(feature = "tiff")]
mod tiff_files;

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
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

fn planes(bytes: &[u8], part: Option<Rect>, bands: Option<&[u16]>) -> Result<Planes> {
    let (header, mut planes) = (probe(bytes)?, Planes::default());
    let part = part.unwrap_or(Rect::full(header.size));
    Decoder::new()?.decode_planes(bytes, &header, part, bands, DecodeOptions::default(), &mut planes)?;
    Ok(planes)
}

fn rgb(bytes: &[u8], part: Option<Rect>) -> Result<Vec<u8>> {
    let (header, mut image) = (probe(bytes)?, Image::default());
    Decoder::new()?.decode(bytes, &header, part.unwrap_or(Rect::full(header.size)), false, &mut image)?;
    Ok(image.to_rgb())
}

fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    let error = result.unwrap_err();
    assert!(error.is_bad_image(), "{error}");
    error.to_string()
}

fn numbers(planes: &Planes) -> Vec<f32> {
    match planes.kind().element {
        Element::U8 => planes.values::<u8>().iter().map(|value| f32::from(*value)).collect(),
        Element::U16 => planes.values::<u16>().iter().map(|value| f32::from(*value)).collect(),
        Element::F32 => planes.values::<f32>().to_vec(),
    }
}

#[test]
fn jpegs_have_the_values_of_rgb_and_gray_ones_a_single_channel() {
    let size = Size::new(70, 41);
    let part = Rect { x: 9, y: 5, width: 33, height: 30 };
    for color in [JpegColor::Ycc, JpegColor::Gray, JpegColor::Rgb, JpegColor::Cmyk, JpegColor::Ycck] {
        let bytes = encode_jpeg(&image(size), &JpegOptions { color, ..JpegOptions::default() }).unwrap();
        let channels = if color == JpegColor::Gray { 1 } else { 3 };
        assert_eq!(probe(&bytes).unwrap().kind, PixelKind { element: Element::U8, channels });
        let (got, want) = (planes(&bytes, Some(part), None).unwrap(), rgb(&bytes, Some(part)).unwrap());
        assert_eq!((got.whole(), got.part(), got.kind().channels), (size, part, channels));
        for channel in 0..usize::from(channels) {
            assert!(want.iter().skip(channel).step_by(3).eq(got.plane::<u8>(channel)), "{color:?}");
        }
        let last = planes(&bytes, Some(part), Some(&[channels - 1])).unwrap();
        assert_eq!(last.values::<u8>(), got.plane::<u8>(usize::from(channels) - 1));
    }
}

#[test]
fn parts_and_channels_that_do_not_exist_are_refused() {
    let size = Size::new(5, 4);
    let bytes = encode_png(&image(size)).unwrap();
    let refused = |part, bands: Option<&[u16]>| {
        matches!(planes(&bytes, Some(part), bands), Err(Error::Parameter { operation: "decode", .. }))
    };
    let whole = Rect::full(size);
    assert!(refused(Rect { x: 1, ..whole }, None) && refused(Rect { height: 0, ..whole }, None));
    assert!(refused(whole, Some(&[3])) && refused(whole, Some(&[])) && refused(whole, Some(&[0; 65])));
    assert_eq!(planes(&bytes, Some(whole), Some(&[0; 64])).unwrap().kind().channels, 64);
}

/// The bits of the half that has exactly this value.
fn half_bits(value: f32) -> u16 {
    let magnitude = value.abs();
    let bits = if magnitude < 2_f32.powi(-14) {
        (magnitude * 2_f32.powi(24)) as u16
    } else {
        ((magnitude.to_bits() >> 13) - (112 << 10)) as u16
    };
    bits | u16::from(value.is_sign_negative()) << 15
}

/// The digest of the values in the form [height, width, channel] and in the type that the file has.
fn digest(planes: &Planes, dtype: &str) -> String {
    let (area, channels) = (planes.size().area_px() as usize, usize::from(planes.kind().channels));
    let places = (0..area).flat_map(|i| (0..channels).map(move |channel| channel * area + i));
    let bytes: Vec<u8> = match (planes.kind().element, dtype) {
        (Element::U8, _) => places.map(|at| planes.values::<u8>()[at]).collect(),
        (Element::U16, _) => places.flat_map(|at| planes.values::<u16>()[at].to_le_bytes()).collect(),
        (Element::F32, "int8") => places.flat_map(|at| (planes.values::<f32>()[at] as i8).to_le_bytes()).collect(),
        (Element::F32, "int16") => places.flat_map(|at| (planes.values::<f32>()[at] as i16).to_le_bytes()).collect(),
        (Element::F32, "float16") => {
            places.flat_map(|at| half_bits(planes.values::<f32>()[at]).to_le_bytes()).collect()
        }
        (Element::F32, _) => places.flat_map(|at| planes.values::<f32>()[at].to_le_bytes()).collect(),
    };
    Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Files of all types and layouts, odd and damaged ones among them: each is right, or refused with a remedy. The table
/// of results is printed.
#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
fn reference_files_are_right_or_refused() {
    let shared = PathBuf::from(std::env::var_os("WARPFEED_SHARED").expect("WARPFEED_SHARED names a folder"));
    let folder = shared.join("reference/dtypes");
    let (mut wrong, mut decoder) = (Vec::new(), Decoder::new().unwrap());
    for line in fs::read_to_string(folder.join("files.jsonl")).unwrap().lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let [name, kind] = ["file", "kind"].map(|key| case[key].as_str().unwrap());
        let path = folder.join(name);
        // Zarr arrays are folders.
        if path.is_dir() {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let start = Instant::now();
        let mut read = || -> Result<Planes> {
            let header = probe(&bytes)?;
            let (mut planes, part) = (Planes::default(), Rect::full(header.size));
            decoder.decode_planes(&bytes, &header, part, None, DecodeOptions::default(), &mut planes)?;
            Ok(planes)
        };
        let result = read();
        let (elapsed, want) = (start.elapsed(), &case["want"]);
        let text = match &result {
            Ok(planes) => {
                let size = planes.size();
                let shape = serde_json::json!([size.height, size.width, planes.kind().channels]);
                let is_right = !want.is_null()
                    && shape == want["shape"]
                    && digest(planes, want["dtype"].as_str().unwrap()) == want["sha256"].as_str().unwrap();
                let text = if is_right {
                    "right"
                } else if want.is_null() {
                    "values"
                } else {
                    "other values"
                };
                format!("{text}: {} of {size}", planes.kind())
            }
            Err(error) => error.to_string(),
        };
        println!("{kind:3} | {name} | {text} | {elapsed:.1?}");
        let refused = result.as_ref().is_err_and(|error| error.to_string().contains("not supported: "));
        let is_good = match kind {
            "ok" => text.starts_with("right") || refused,
            "bad" => result.is_err(),
            // A palette gives its colors, not its indices.
            _ => text.starts_with("right") || result.is_err() || want.is_null() || name.contains("palette"),
        };
        let is_good =
            is_good && result.map_or_else(|error| error.is_bad_image() || text.contains("feature `zstd`"), |_| true);
        if !is_good || elapsed > Duration::from_secs(1) {
            wrong.push(format!("{name}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
