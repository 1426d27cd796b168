//! The images and rectangles that the benches and `peers/` decode.

use std::path::Path;
use std::{env, fs};

/// Largest number of photographs that are held in memory.
const MOST: usize = 200;
/// Number, width and height of the images that are made if there are no photographs.
const MADE: (u32, u32, u32) = (24, 500, 375);

/// The JPEGs in the folder that `WARPFEED_PHOTOS` names and in the folders below it. Without that variable, images that
/// are made here; `encode` gets width, height and RGB bytes.
pub fn jpegs(encode: impl Fn(u32, u32, &[u8]) -> Vec<u8>) -> Vec<Vec<u8>> {
    if let Some(folder) = env::var_os("WARPFEED_PHOTOS") {
        let mut found = Vec::new();
        collect(folder.as_ref(), &mut found);
        assert!(!found.is_empty(), "WARPFEED_PHOTOS names a folder without JPEGs");
        return found;
    }
    let (count, width, height) = MADE;
    (0..count).map(|number| encode(width, height, &scene(number, width, height))).collect()
}

/// The rectangle of half the sides that an image gets in an epoch, as a random resized crop might: x, y, width, height.
pub fn rectangle(image: usize, epoch: u64, width: u32, height: u32) -> [u32; 4] {
    let (w, h) = ((width / 2).max(1), (height / 2).max(1));
    let drawn = (image as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ epoch << 40);
    let below = |drawn: u64, count: u32| (drawn % u64::from(count + 1)) as u32;
    [below(drawn >> 8, width - w), below(drawn >> 36, height - h), w, h]
}

fn collect(folder: &Path, found: &mut Vec<Vec<u8>>) {
    let entries = fs::read_dir(folder).expect("WARPFEED_PHOTOS names a folder");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, found);
        } else if found.len() < MOST && path.extension().is_some_and(|ending| ending == "jpg" || ending == "jpeg") {
            found.push(fs::read(&path).expect("an image can be read"));
        }
    }
}

/// Waves of several lengths with some noise, which JPEG compresses about as much as a photograph.
fn scene(number: u32, width: u32, height: u32) -> Vec<u8> {
    let mut noise = u64::from(number) + 1;
    let mut rgb = Vec::new();
    for y in 0..height {
        for x in 0..width {
            for color in 1..=3 {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (x, y) = (f64::from(x + 37 * number), f64::from(y));
                let waves = (x / 90.0 * f64::from(color)).sin() + (y / 23.0).cos() + 0.5 * (x * y / 900.0).sin();
                rgb.push((128.0 + 40.0 * waves) as u8 ^ (noise >> 60) as u8);
            }
        }
    }
    rgb
}
