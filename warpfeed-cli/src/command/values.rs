//! Parsers for values on the command line: sizes, times, limits, numbers of devices.

use std::str::FromStr;
use std::time::Duration;
use warpfeed::image::ChromaSampling;
use warpfeed::{Device, EntryPoints, Rank};

/// Parses one of several devices: the number of a GPU, or a device.
pub fn one_device(text: &str) -> warpfeed::Result<Device> {
    text.parse().map_or_else(|_| text.parse(), |ordinal| Ok(Device::Cuda(ordinal)))
}

/// Parses a size: `128MB`, `1GB`, `2GiB`, `500kB`, `700B`, or 0.
pub fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 9] = [
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TB", 1_000_000_000_000),
        ("TiB", 1 << 40),
        ("B", 1),
    ];
    if text == "0" {
        return Ok(0);
    }
    let parse = |(unit, bytes): (&str, u64)| {
        let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(bytes)
    };
    UNITS.into_iter().find_map(parse).ok_or_else(|| {
        format!("a number with its unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB), such as 4GB, not {text}")
    })
}

/// A place for entry points, or a limit.
#[derive(Debug, Clone)]
pub enum EntryPointsValue {
    Place(EntryPoints),
    Limit(u64),
    Dense(bool),
}

impl EntryPointsValue {
    /// The choice that several values make together: the last place, with the last limit and density.
    pub fn all(values: &[Self]) -> EntryPoints {
        let (mut place, mut limit, mut density) = (EntryPoints::default(), None, None);
        for value in values {
            match value {
                Self::Place(given) => place = given.clone(),
                Self::Limit(bytes) => limit = Some(*bytes),
                Self::Dense(dense) => density = Some(*dense),
            }
        }
        let place = density.into_iter().fold(place, EntryPoints::dense);
        limit.into_iter().fold(place, EntryPoints::limit)
    }
}

/// Parses where entry points are kept, how many, or how close: `/scratch/points`, `memory`, `none`, `2GiB`, `dense`.
pub fn entry_points(text: &str) -> Result<EntryPointsValue, String> {
    match text {
        "none" => Ok(EntryPointsValue::Place(EntryPoints::none())),
        "memory" => Ok(EntryPointsValue::Place(EntryPoints::memory())),
        "dense" | "sparse" => Ok(EntryPointsValue::Dense(text == "dense")),
        _ if text.contains(std::path::is_separator) => Ok(EntryPointsValue::Place(EntryPoints::folder(text))),
        _ => size(text)
            .map(EntryPointsValue::Limit)
            .map_err(|expected| format!("a folder with a / in its name, memory, none, dense, sparse, or {expected}")),
    }
}

/// Parses a time in seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "expected seconds, more than 0, such as 2.5".to_owned())
}

/// Parses a chroma subsampling.
pub fn chroma_sampling(text: &str) -> Result<ChromaSampling, String> {
    match text {
        "4:4:4" => Ok(ChromaSampling::S444),
        "4:2:2" => Ok(ChromaSampling::S422),
        "4:2:0" => Ok(ChromaSampling::S420),
        _ => Err(format!("4:4:4, 4:2:2 or 4:2:0, not {text}")),
    }
}

/// Parses a price, in any currency.
pub fn price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| "expected a number, 0 or more, such as 0.05".to_owned())
}

/// The rank on the command line.
#[derive(Clone, Copy)]
pub enum RankName {
    Auto,
    Given(Rank),
}

impl RankName {
    /// The rank. For `auto`, the launcher's.
    pub fn rank(self) -> warpfeed::Result<Rank> {
        match self {
            Self::Auto => Ok(Rank::from_environment()?.unwrap_or_default()),
            Self::Given(rank) => Ok(rank),
        }
    }
}

/// Parses a rank: `auto` or `R/W`.
impl FromStr for RankName {
    type Err = warpfeed::Error;

    fn from_str(text: &str) -> warpfeed::Result<Self> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::Given) }
    }
}
