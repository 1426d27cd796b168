//! Synthetic scenes in fog with the distance of every pixel: images, and depth of 16 bits as depth cameras give it.

use std::fs;
use std::io::Write;
use std::path::Path;
use warpfeed::fields::AuxImage;
use warpfeed::image::{ChromaSampling, Image, JpegOptions, Size, encode_jpeg};
use warpfeed::internal::{Domain, SampleRng, atomic};
use warpfeed::{Error, Result};

/// Side of the images in pixels.
const SIDE: u32 = 64;

/// Distance in millimeters at which the fog hides 63 % of a color.
const FOG_MM: f64 = 10_000.0;

/// Distance of the nearest and of the farthest pixels in millimeters.
const RANGE_MM: [f64; 2] = [1_000.0, 20_000.0];

/// Colors without one of red, green and blue, so that only fog has all three.
const COLORS: [[f64; 3]; 6] =
    [[0.9, 0.4, 0.0], [0.2, 0.8, 0.0], [0.0, 0.5, 0.9], [0.7, 0.0, 0.6], [0.8, 0.0, 0.2], [0.0, 0.8, 0.5]];

/// Writes `count` scenes of 64 x 64 pixels: a JPEG each in `images` below `root`, and in `depth` a PNG of the same name
/// whose values of 16 bits are the distances in millimeters, from 1,000 to 20,000.
///
/// ```
/// use warpfeed::source::{ImageFolder, Source};
///
/// let root = tempfile::tempdir().unwrap();
/// warpfeed_bench::synth::write_depth(root.path(), 3, 7)?;
/// assert_eq!(ImageFolder::open(root.path().join("images"))?.len(), 3);
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Errors
/// [`Error::Io`] if they cannot be written.
pub fn write_depth(root: impl AsRef<Path>, count: u64, seed: u64) -> Result<()> {
    let size = Size::new(SIDE, SIDE);
    let [images, depths] = ["images", "depth"].map(|name| root.as_ref().join(name));
    for folder in [&images, &depths] {
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    }
    for index in 0..count {
        let (rgb, millimeters) = scene(&mut SampleRng::new(seed, 3, Domain::Synth, index));
        let options = JpegOptions { quality: 95, sampling: ChromaSampling::S444, ..JpegOptions::default() };
        let jpeg = encode_jpeg(&Image::from_rgb(size, &rgb)?, &options)?;
        let png = AuxImage::gray(size, millimeters)?.to_png()?;
        atomic::write_output(&images.join(format!("{index:06}.jpg")), |to| to.write_all(&jpeg))?;
        atomic::write_output(&depths.join(format!("{index:06}.png")), |to| to.write_all(&png))?;
    }
    Ok(())
}

/// Red, green and blue of a scene's pixels, and their distances: ground that begins at the lower edge, and discs on it.
fn scene(rng: &mut SampleRng) -> (Vec<u8>, Vec<u16>) {
    let [near, far] = RANGE_MM;
    let mut color = || COLORS[rng.below(COLORS.len() as u64) as usize];
    let ground = color();
    let colors = [color(), color(), color(), color()];
    let discs = colors.map(|color| {
        let distance = rng.uniform(near, 0.8 * far);
        let radius = 12_000.0 / distance.sqrt() / 8.0;
        (rng.uniform(0.0, SIDE.into()), rng.uniform(0.0, SIDE.into()), radius, distance, color)
    });
    let (mut rgb, mut millimeters) = (Vec::new(), Vec::new());
    for (y, x) in (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (f64::from(y), f64::from(x)))) {
        let floor = (far * (1.0 - y / f64::from(SIDE))).max(near);
        let covers = |(left, top, radius, ..): &&(f64, f64, f64, f64, [f64; 3])| {
            (x - left).powi(2) + (y - top).powi(2) < radius * radius
        };
        let nearest = discs.iter().filter(covers).min_by(|a, b| a.3.total_cmp(&b.3));
        let (distance, color) = nearest.map_or((floor, ground), |(.., distance, color)| (*distance, *color));
        let clear = libm::exp(-distance / FOG_MM);
        rgb.extend(color.map(|value| (255.0 * (value * clear + 1.0 - clear)).round() as u8));
        millimeters.push(distance.round() as u16);
    }
    (rgb, millimeters)
}
