//! Probe images: small files of the kinds that a deployment meets, made by arithmetic on whole numbers. Other images
//! need another [`VERSION`].

use crate::encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg};
use crate::error::{Error, Result};
use crate::os::atomic;
use crate::raster::{Image, Size};
use std::io::Write;
use std::path::Path;

/// Number of this set of probe images.
pub(super) const VERSION: u32 = 1;

/// A probe image.
pub(super) struct Probe {
    /// The file's name. Without its ending it is the name of outputs.
    pub(super) name: &'static str,
    /// The file.
    pub(super) bytes: Vec<u8>,
    pub(super) kind: Kind,
}

impl Probe {
    /// The name without its ending.
    pub(super) fn stem(&self) -> &'static str {
        self.name.rsplit_once('.').map_or(self.name, |(stem, _)| stem)
    }
}

/// The kind of a probe image, by the feature that may make a decoder's pixels differ.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// RGB without loss: every decoder gives its pixels.
    Plain,
    /// A JPEG of colors, with this subsampling.
    Jpeg(ChromaSampling),
    /// A JPEG with an EXIF orientation tag that turns or mirrors it.
    Turned,
    /// A JPEG of inks.
    Inks,
    /// A gray image, or one with a palette, without transparency.
    Gray,
    /// An image with transparency, and its versions over white and over black.
    Alpha {
        /// Width and height.
        size: Size,
        /// Red, green, blue and alpha of each pixel.
        rgba: Vec<[u8; 4]>,
    },
    /// A gray image of 16 bits, and its values.
    Gray16 {
        /// Width and height.
        size: Size,
        /// The values of the pixels.
        values: Vec<u16>,
    },
    /// An RGB image of 16 bits.
    Rgb16,
    /// A file that ends early.
    Truncated,
}

/// Writes the probe images into a folder, for another program that is to be compared with a
/// [`Contract`](super::Contract). Returns their number.
///
/// # Errors
/// [`Error::Io`] if the folder cannot be made or written.
pub fn write_probes(folder: impl AsRef<Path>) -> Result<usize> {
    let folder = folder.as_ref();
    std::fs::create_dir_all(folder).map_err(|source| Error::Io {
        action: "create",
        path: folder.into(),
        source: source.into(),
    })?;
    let probes = probes()?;
    for probe in &probes {
        atomic::write_output(&folder.join(probe.name), |file| file.write_all(&probe.bytes))?;
    }
    Ok(probes.len())
}

/// All probe images.
pub(super) fn probes() -> Result<Vec<Probe>> {
    let mut probes = Vec::new();
    lossless(&mut probes)?;
    jpegs(&mut probes)?;
    Ok(probes)
}

fn jpegs(probes: &mut Vec<Probe>) -> Result<()> {
    let standard = JpegOptions::default();
    let mut add = |name, size: (u32, u32), kind, options: JpegOptions| -> Result<()> {
        let scene = Scene(Size::new(size.0, size.1));
        probes.push(Probe { name, bytes: encode_jpeg(&scene.image()?, &options)?, kind });
        Ok(())
    };
    let samplings = [
        ("jpeg-444.jpg", (500, 375), ChromaSampling::S444),
        ("jpeg-422.jpg", (375, 500), ChromaSampling::S422),
        ("jpeg-420.jpg", (640, 427), ChromaSampling::S420),
        ("jpeg-440.jpg", (400, 300), ChromaSampling::S440),
        ("jpeg-411.jpg", (417, 301), ChromaSampling::S411),
    ];
    for (name, size, sampling) in samplings {
        add(name, size, Kind::Jpeg(sampling), JpegOptions { sampling, ..standard.clone() })?;
    }
    let usual = || Kind::Jpeg(standard.sampling);
    add("jpeg-progressive.jpg", (480, 361), usual(), JpegOptions { progressive: true, ..standard.clone() })?;
    add("jpeg-restarts.jpg", (333, 500), usual(), JpegOptions { restart_interval_rows: 2, ..standard.clone() })?;
    add("jpeg-quality-30.jpg", (500, 334), usual(), JpegOptions { quality: 30, ..standard.clone() })?;
    add("jpeg-large.jpg", (1600, 1200), usual(), standard.clone())?;
    add("jpeg-small.jpg", (40, 31), usual(), standard.clone())?;
    add("jpeg-narrow.jpg", (900, 48), usual(), standard.clone())?;
    let coded = |color| JpegOptions { color, sampling: ChromaSampling::S444, ..standard.clone() };
    add("jpeg-gray.jpg", (320, 241), Kind::Gray, coded(JpegColor::Gray))?;
    add("jpeg-rgb.jpg", (320, 240), Kind::Jpeg(ChromaSampling::S444), coded(JpegColor::Rgb))?;
    add("jpeg-cmyk.jpg", (320, 240), Kind::Inks, coded(JpegColor::Cmyk))?;
    add("jpeg-ycck.jpg", (320, 240), Kind::Inks, coded(JpegColor::Ycck))?;
    for (name, tag) in [("jpeg-exif-2.jpg", 2), ("jpeg-exif-3.jpg", 3), ("jpeg-exif-6.jpg", 6), ("jpeg-exif-8.jpg", 8)]
    {
        add(name, (400, 300), Kind::Turned, JpegOptions { orientation: Some(tag), ..standard.clone() })?;
    }
    // Odd files: one that ends early, one with bytes after its end, and a PNG that is called JPEG.
    add("odd-truncated.jpg", (500, 375), Kind::Truncated, standard.clone())?;
    add("odd-trailing.jpg", (417, 300), usual(), standard.clone())?;
    let [.., truncated, trailing] = &mut probes[..] else { return Ok(()) };
    truncated.bytes.truncate(truncated.bytes.len() / 2);
    trailing.bytes.extend_from_slice(&[0xff, 0xd8, 0, 1, 2, 3, 0xff, 0xd9, 0]);
    let size = Size::new(400, 301);
    probes.push(Probe {
        name: "odd-png.jpg",
        bytes: png(size, png::ColorType::Rgb, png::BitDepth::Eight, &Scene(size).bytes(), |_| ())?,
        kind: Kind::Plain,
    });
    Ok(())
}

fn lossless(probes: &mut Vec<Probe>) -> Result<()> {
    use png::{BitDepth, ColorType};
    let sizes = [
        ("png-rgb.png", 500, 375),
        ("png-portrait.png", 301, 447),
        ("png-wide.png", 517, 230),
        // Pillow resizes it in another order of passes than the others.
        ("png-tall.png", 420, 1301),
        ("png-square.png", 300, 300),
        ("png-large.png", 803, 600),
        ("png-small.png", 61, 47),
        ("png-pixel.png", 1, 1),
    ];
    for (name, width, height) in sizes {
        let size = Size::new(width, height);
        let bytes = png(size, ColorType::Rgb, BitDepth::Eight, &Scene(size).bytes(), |_| ())?;
        probes.push(Probe { name, bytes, kind: Kind::Plain });
    }
    let size = Size::new(330, 247);
    let scene = Scene(size);
    let mut add = |name, color, depth, data: &[u8], kind, set: &dyn Fn(&mut png::Encoder<'_, &mut Vec<u8>>)| {
        png(size, color, depth, data, set).map(|bytes| probes.push(Probe { name, bytes, kind }))
    };
    let gray: Vec<u8> = scene.pixels().map(|[_, green, _]| green).collect();
    add("png-gray.png", ColorType::Grayscale, BitDepth::Eight, &gray, Kind::Gray, &|_| ())?;
    let rows = gray.chunks(size.width as usize);
    let bits: Vec<u8> = rows.flat_map(|row| row.chunks(8).map(packed)).collect();
    add("png-1-bit.png", ColorType::Grayscale, BitDepth::One, &bits, Kind::Gray, &|_| ())?;

    let transparent = |rgba: Vec<[u8; 4]>| Kind::Alpha { size, rgba };
    let alphas: Vec<u8> =
        scene.points().map(|(x, y)| (x * 255 / size.width).max(y * 255 / size.height) as u8).collect();
    let with_alpha = |[red, green, blue]: [u8; 3], alpha| [red, green, blue, alpha];
    let rgba: Vec<[u8; 4]> = scene.pixels().zip(&alphas).map(|(rgb, alpha)| with_alpha(rgb, *alpha)).collect();
    add("png-rgba.png", ColorType::Rgba, BitDepth::Eight, rgba.as_flattened(), transparent(rgba.clone()), &|_| ())?;
    let values: Vec<u8> = gray.iter().zip(&alphas).flat_map(|(gray, alpha)| [*gray, *alpha]).collect();
    let rgba = gray.iter().zip(&alphas).map(|(gray, alpha)| [*gray, *gray, *gray, *alpha]).collect();
    add("png-gray-alpha.png", ColorType::GrayscaleAlpha, BitDepth::Eight, &values, transparent(rgba), &|_| ())?;

    let palette: Vec<[u8; 3]> = (0..64_u8).map(|i| [4 * i, 255 - 3 * i, i.wrapping_mul(37)]).collect();
    let indices: Vec<u8> = gray.iter().map(|gray| gray / 4).collect();
    let with_palette =
        |encoder: &mut png::Encoder<'_, &mut Vec<u8>>| encoder.set_palette(palette.as_flattened().to_vec());
    add("png-palette.png", ColorType::Indexed, BitDepth::Eight, &indices, Kind::Gray, &with_palette)?;
    let rgba = indices.iter().map(|&i| with_alpha(palette[usize::from(i)], 4 * i)).collect();
    let with_both = |encoder: &mut png::Encoder<'_, &mut Vec<u8>>| {
        with_palette(encoder);
        encoder.set_trns((0..64_u8).map(|i| 4 * i).collect::<Vec<u8>>());
    };
    add("png-palette-alpha.png", ColorType::Indexed, BitDepth::Eight, &indices, transparent(rgba), &with_both)?;

    // The low byte differs from the high one.
    let wide = |value: u8| (u16::from(value) << 8) | u16::from(value.wrapping_mul(101));
    let values: Vec<u16> = gray.iter().map(|&value| wide(value)).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_be_bytes()).collect();
    add("png-gray-16.png", ColorType::Grayscale, BitDepth::Sixteen, &bytes, Kind::Gray16 { size, values }, &|_| ())?;
    let bytes: Vec<u8> = scene.bytes().iter().flat_map(|&value| wide(value).to_be_bytes()).collect();
    add("png-rgb-16.png", ColorType::Rgb, BitDepth::Sixteen, &bytes, Kind::Rgb16, &|_| ())
}

/// Up to eight pixels as bits, the first one highest.
fn packed(pixels: &[u8]) -> u8 {
    pixels.iter().enumerate().fold(0, |byte, (i, pixel)| byte | ((pixel >> 7) << (7 - i)))
}

/// A PNG file without compression, so that its bytes depend on no compressor.
fn png(
    size: Size,
    color: png::ColorType,
    depth: png::BitDepth,
    data: &[u8],
    set: impl FnOnce(&mut png::Encoder<'_, &mut Vec<u8>>),
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, size.width, size.height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    encoder.set_compression(png::Compression::NoCompression);
    encoder.set_filter(png::Filter::NoFilter);
    set(&mut encoder);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(data)?;
        writer.finish()
    });
    let failed = |error: png::EncodingError| Error::parameter("contract", "probe image", "written as PNG", error);
    written.map_err(failed).map(|()| bytes)
}

/// A made scene: gradients, rings that get finer toward the edges, plain shapes, a grid of single pixels, and noise. It
/// has no symmetry, and its colors differ, so that a mirror, a shift and an exchange of channels show.
struct Scene(Size);

impl Scene {
    fn points(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let Size { width, height } = self.0;
        (0..height).flat_map(move |y| (0..width).map(move |x| (x, y)))
    }

    fn pixels(&self) -> impl Iterator<Item = [u8; 3]> + use<> {
        let size = self.0;
        self.points().map(move |(x, y)| pixel(size, x, y))
    }

    fn bytes(&self) -> Vec<u8> {
        self.pixels().collect::<Vec<_>>().into_flattened()
    }

    fn image(&self) -> Result<Image> {
        Ok(Image::from_rgb(self.0, &self.bytes())?)
    }
}

/// A pixel of the scene. Shapes are placed in thousandths of the sides.
fn pixel(size: Size, x: u32, y: u32) -> [u8; 3] {
    let (u, v) = (x * 1000 / size.width, y * 1000 / size.height);
    let squared = |a: u32, b: u32| u64::from(a.abs_diff(b)).pow(2);
    // The distance between rings falls to some four pixels of an image with 500 columns.
    let rings = squared(u, 380) + squared(v, 600);
    let wave = (rings * 255 / 6_000 % 510) as u32;
    let wave = if wave > 255 { 510 - wave } else { wave };
    let noise = noise(x, y);
    let color = if squared(u, 760) + squared(v, 260) < 150 * 150 {
        [230, 70, 30]
    } else if (80..300).contains(&u) && (90..330).contains(&v) {
        [25, 110, 205]
    } else if (600..900).contains(&u) && (700..900).contains(&v) {
        let on = (x / 2 + y).is_multiple_of(2);
        if on { [250, 240, 60] } else { [20, 15, 70] }
    } else {
        [(wave * 3 + u * 255 / 1000) / 4, (wave + v * 3 * 255 / 1000) / 4, (255 - wave + (1000 - u) * 255 / 1000) / 2]
    };
    let with_noise = |value: u32, noise: u32| (value + (noise & 15)).saturating_sub(8).min(255) as u8;
    let [red, green, blue] = color;
    [with_noise(red, noise), with_noise(green, noise >> 4), with_noise(blue, noise >> 8)]
}

/// Bits that look random, from a column and a row.
fn noise(x: u32, y: u32) -> u32 {
    let mixed = (x.wrapping_mul(0x9e37_79b1) ^ y.wrapping_mul(0x85eb_ca6b)).wrapping_mul(0xc2b2_ae35);
    (mixed ^ mixed >> 15).wrapping_mul(0x27d4_eb2f) >> 13
}
