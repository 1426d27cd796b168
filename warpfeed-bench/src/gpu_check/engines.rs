//! Speed of the hardware decoder's engines, used in other ways than pipelines do.

use super::bound::{Area, decoders};
use super::decoding::on_cpu;
use super::inputs::Inputs;
use serde::Serialize;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use warpfeed::image::{Decoder, Size};
use warpfeed::internal::measure::{EngineOptions, WholeDecoder, decode_only};
use warpfeed::source::Source;
use warpfeed::{Device, Error, JpegDecoder, Result};

/// A way to use the engines: as pipelines do, but for the named factors.
///
/// ```
/// use warpfeed_bench::gpu_check::EngineCase;
///
/// assert!("sorted=off+images=64".parse::<EngineCase>().is_ok());
/// assert!("sorted=perhaps".parse::<EngineCase>().is_err());
/// ```
#[derive(Debug, Clone)]
pub struct EngineCase {
    name: String,
    options: EngineOptions,
    pinned: bool,
    /// Largest number of different images. `None`: all.
    photos: Option<u64>,
}

impl EngineCase {
    /// Each factor by itself, the way of pipelines (`pipeline`), and a state without any of it (`plain`).
    pub const ALL: &'static [&'static str] = &[
        "pipeline",
        "plain",
        "preallocated=none",
        "preallocated=1280x1094",
        "own_memory=off",
        "plain_handle=off",
        "one_subsampling=off",
        "sorted=off",
        "images=63",
        "images=64",
        "images=128",
        "images=252",
        "states=1",
        "states=3",
        "planes=on",
        "pinned=off",
        "photos=128",
    ];

    /// The text that it was read from.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for EngineCase {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let expected = || Error::parameter("EngineCase", "case", format!("factors of {:?}", Self::ALL), text);
        let mut case = Self { name: text.to_owned(), options: EngineOptions::default(), pinned: true, photos: None };
        let switch = |value: &str| match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(expected()),
        };
        let number = |value: &str| value.parse::<u32>().ok().filter(|number| *number > 0).ok_or_else(expected);
        for factor in text.split('+') {
            let (factor, value) = factor.split_once('=').unwrap_or((factor, ""));
            let options = &mut case.options;
            match (factor, value) {
                ("pipeline", "") => {}
                ("plain", "") => {
                    options.preallocated = None;
                    (options.own_memory, options.plain_handle) = (false, false);
                    (options.one_subsampling, options.sorted) = (false, false);
                }
                ("preallocated", "none") => options.preallocated = None,
                ("preallocated", sides) => {
                    let (width, height) = sides.split_once('x').ok_or_else(expected)?;
                    options.preallocated = Some(Size::new(number(width)?, number(height)?));
                }
                ("own_memory", value) => options.own_memory = switch(value)?,
                ("plain_handle", value) => options.plain_handle = switch(value)?,
                ("one_subsampling", value) => options.one_subsampling = switch(value)?,
                ("sorted", value) => options.sorted = switch(value)?,
                ("planes", value) => options.planes = switch(value)?,
                ("images", value) => options.images = number(value)? as usize,
                ("states", value) => options.states = number(value)? as usize,
                ("pinned", value) => case.pinned = switch(value)?,
                ("photos", value) => case.photos = Some(number(value)?.into()),
                _ => return Err(expected()),
            }
        }
        Ok(case)
    }
}

/// Images per second that the engines decode when nothing else runs and they are used in this way.
///
/// The first `limit` images are read before the clock starts, and are decoded again and again for `duration`.
///
/// # Errors
/// The errors of [`decoding_bound`](super::decoding_bound).
///
/// ```no_run
/// use std::time::Duration;
/// use warpfeed_bench::gpu_check::engine_speed;
/// use warpfeed::{Device, source::open};
///
/// let photos = open("photos")?.into_data_set()?;
/// let case = "states=3".parse()?;
/// let per_s = engine_speed(Device::Cuda(0), &case, &*photos, 1_000, Duration::from_secs(1))?;
/// println!("{per_s:.0} images/s");
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn engine_speed(
    device: Device,
    case: &EngineCase,
    images: &dyn Source,
    limit: u64,
    duration: Duration,
) -> Result<f64> {
    let limit = case.photos.map_or(limit, |photos| limit.min(photos));
    let (path, area) = (JpegDecoder::Hardware, Area::Whole);
    let (ordinal, mut decoders) = decoders("engine_speed", device, path, area, images, limit, 1)?;
    (decoders.engines, decoders.pinned) = (case.options, case.pinned);
    decode_only(ordinal, decoders, duration)
}

/// Images whose planes the engines decode and this crate's kernels convert to RGB, as libjpeg does.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct EnginePlanes {
    /// Number of images in color and gray that the engines decoded.
    pub decoded: [u64; 2],
    /// Number of these that have the CPU's bytes.
    pub equal: [u64; 2],
    /// Largest difference of a value, for images in color and gray.
    pub most: [u8; 2],
}

/// Compares images whose planes the engines decode with the CPU's, of the first `limit` and of images made for it.
/// Fillings of memory show what is not written.
///
/// # Errors
/// [`Error::Device`] if `device` is no GPU, has no hardware decoder, or fails; errors of reading an image.
///
/// ```no_run
/// use warpfeed_bench::gpu_check::engine_planes;
/// use warpfeed::{Device, source::open};
///
/// let photos = open("photos")?.into_data_set()?;
/// let found = engine_planes(Device::Cuda(0), &*photos, 100)?;
/// println!("{} of {} have the CPU's bytes", found.equal[0], found.decoded[0]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn engine_planes(device: Device, images: &dyn Source, limit: u64) -> Result<EnginePlanes> {
    let ordinal = device.resolve()?.ok_or_else(|| Error::parameter("engine_planes", "device", "a GPU", "the CPU"))?;
    let (usual, mut cpu, mut found) = (Inputs::usual()?, Decoder::new()?, EnginePlanes::default());
    let mut engines = WholeDecoder::open_planes(ordinal)?;
    let of_each = [(images, limit.min(images.len())), (&usual as &dyn Source, usual.len())];
    for (source, index) in of_each.into_iter().flat_map(|(source, count)| (0..count).map(move |index| (source, index)))
    {
        let bytes: Arc<[u8]> = Arc::from(source.encoded(index)?);
        let Ok((header, expected)) = on_cpu(&mut cpu, &bytes) else { continue };
        let image = [(bytes, header.size)];
        let [first, second] = [0xA5, 0x5A].map(|poison| engines.decode(&image, poison));
        let (first, second) = (first?.remove(0), second?.remove(0));
        let Some(got) = first.filter(|first| second.as_ref() == Some(first)) else { continue };
        let kind = usize::from(header.components == 1);
        let most = got.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0);
        found.decoded[kind] += 1;
        found.equal[kind] += u64::from(most == 0);
        found.most[kind] = found.most[kind].max(most);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::EngineCase;

    #[test]
    fn every_case_is_another_one() {
        let mut found: Vec<String> = Vec::new();
        for name in EngineCase::ALL {
            let EngineCase { options, pinned, photos, .. } = name.parse().unwrap();
            found.push(format!("{:?}", (options, pinned, photos)));
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), EngineCase::ALL.len());
        for wrong in ["", "states=0", "images", "pinned=yes", "sorted=off,states=1", "preallocated=5"] {
            assert!(wrong.parse::<EngineCase>().is_err(), "{wrong}");
        }
    }
}
