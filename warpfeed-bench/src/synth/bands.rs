//! Synthetic images of a satellite with 13 bands, as GeoTIFFs of Sentinel-2 come: five land covers, 16 bits.

use std::fs;
use std::io::Write;
use std::path::Path;
use warpfeed::internal::{Domain, SampleRng, atomic};
use warpfeed::{Error, Result};

/// Number of bands.
pub const BANDS: usize = 13;

/// Side of the images in pixels.
const SIDE: usize = 64;

/// A land cover: its name, its reflectance in each band, and how much that changes from place to place.
struct Cover {
    name: &'static str,
    reflectance: [f32; BANDS],
    texture: f32,
}

/// From coastal blue to short-wave infrared. Plants reflect near infrared, water nothing there, snow no short waves.
const COVERS: [Cover; 5] = [
    Cover {
        name: "field",
        reflectance: [0.10, 0.10, 0.11, 0.12, 0.16, 0.24, 0.27, 0.28, 0.29, 0.20, 0.03, 0.26, 0.18],
        texture: 0.25,
    },
    Cover {
        name: "forest",
        reflectance: [0.08, 0.06, 0.06, 0.04, 0.08, 0.24, 0.30, 0.31, 0.33, 0.20, 0.03, 0.15, 0.07],
        texture: 0.3,
    },
    Cover {
        name: "snow",
        reflectance: [0.85, 0.86, 0.87, 0.88, 0.88, 0.87, 0.86, 0.85, 0.84, 0.50, 0.10, 0.10, 0.09],
        texture: 0.1,
    },
    Cover {
        name: "town",
        reflectance: [0.15, 0.15, 0.16, 0.18, 0.19, 0.21, 0.22, 0.22, 0.23, 0.15, 0.03, 0.24, 0.22],
        texture: 0.6,
    },
    Cover {
        name: "water",
        reflectance: [0.11, 0.09, 0.07, 0.05, 0.04, 0.03, 0.03, 0.02, 0.02, 0.01, 0.00, 0.01, 0.01],
        texture: 0.15,
    },
];

/// Writes `count` images of 64 x 64 pixels below `root`, in a folder for each of five land covers. A value of 10,000
/// stands for all light reflected.
///
/// ```
/// use warpfeed::source::{ImageFolder, Source};
///
/// let root = tempfile::tempdir().unwrap();
/// warpfeed_bench::synth::write_bands(root.path(), 10, 7)?;
/// assert_eq!(ImageFolder::open(root.path())?.classes(), ["field", "forest", "snow", "town", "water"]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// # Errors
/// [`Error::Io`] if they cannot be written.
pub fn write_bands(root: impl AsRef<Path>, count: u64, seed: u64) -> Result<()> {
    for index in 0..count {
        let cover = &COVERS[index as usize % COVERS.len()];
        let folder = root.as_ref().join(cover.name);
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        let file = tiff(&values(cover, seed, index));
        atomic::write_output(&folder.join(format!("{index:06}.tif")), |to| to.write_all(&file))?;
    }
    Ok(())
}

/// The values of an image, a pixel's bands side by side.
fn values(cover: &Cover, seed: u64, index: u64) -> Vec<u16> {
    let mut rng = SampleRng::new(seed, 2, Domain::Synth, index);
    // Light of the day, and patches of 8 pixels that are brighter or darker.
    let light = rng.uniform(0.7, 1.3) as f32;
    let patches: Vec<f32> = (0..64).map(|_| 1.0 + cover.texture * rng.uniform(-1.0, 1.0) as f32).collect();
    let mut values = Vec::with_capacity(SIDE * SIDE * BANDS);
    for (y, x) in (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (y, x))) {
        let patch = patches[y / 8 * 8 + x / 8];
        for reflectance in cover.reflectance {
            let noise = rng.uniform(-0.01, 0.01) as f32;
            let value = (reflectance * light * patch + noise).clamp(0.0, 1.0);
            values.push((value * 10_000.0).round() as u16);
        }
    }
    values
}

/// A TIFF of one strip without compression.
fn tiff(values: &[u16]) -> Vec<u8> {
    let mut file = b"II*\0\0\0\0\0".to_vec();
    values.iter().for_each(|value| file.extend(value.to_le_bytes()));
    let lists: [(u16, u16); 3] = [(258, 16), (338, 0), (339, 1)];
    let offsets = lists.map(|(_, value)| {
        let start = file.len() as u32;
        (0..BANDS).for_each(|_| file.extend(value.to_le_bytes()));
        start
    });
    let directory = file.len() as u32;
    file[4..8].copy_from_slice(&directory.to_le_bytes());
    let (side, bands) = (SIDE as u32, BANDS as u32);
    // Tag, type (3 is 16 bits, 4 is 32), count, and value or offset.
    let entries: [(u16, u16, u32, u32); 12] = [
        (256, 4, 1, side),
        (257, 4, 1, side),
        (258, 3, bands, offsets[0]),
        (259, 3, 1, 1),
        (262, 3, 1, 1),
        (273, 4, 1, 8),
        (277, 3, 1, bands),
        (278, 4, 1, side),
        (279, 4, 1, 2 * values.len() as u32),
        (284, 3, 1, 1),
        (338, 3, bands - 1, offsets[1]),
        (339, 3, bands, offsets[2]),
    ];
    file.extend((entries.len() as u16).to_le_bytes());
    for (tag, kind, count, value) in entries {
        file.extend(tag.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(count.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    file.extend([0; 4]);
    file
}
