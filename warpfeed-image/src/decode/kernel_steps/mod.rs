//! The steps of the device's JPEG decoder in plain Rust, one step a file, named like the kernels, for tests and fuzz
//! targets.
//!
//! ```text
//! unstuff -> synchronize -> coefficients -> dc -> idct -> rgb
//! ```
//!
//! If the places of MCUs are known, `known` replaces the second, third and fourth step. If they are to be learned,
//! `points` collects them after the fourth. A step flags an image with a [`Reason`] if the CPU's decoder might refuse
//! it or decode it in another way, down to one row of MCUs below the rectangle. If the image has a row index, only the
//! needed rows are read. If all components share one code, a thread cannot find out which component it is in, so the
//! CPU decodes all but small images.

mod codes;
mod coefficients;
mod dc;
pub(super) mod idct;
mod known;
mod points;
mod rgb;
mod synchronize;
#[cfg(test)]
mod tests;
mod unstuff;
mod walk;

use super::baseline::Baseline;
use super::device_points::{DevicePoints, PointMemory};
use super::entry_point_store::EntryPointStore;
use super::reason::Reason;
use super::window::DecodeWindow;
use super::{Header, KnownStretch, KnownSums};
use crate::raster::{Image, Rect};
use codes::Codes;
use coefficients::{ScanCoefficients, coefficients};
use idct::SamplePlane;
use points::LearnedPlaces;
use synchronize::ThreadRun;
use unstuff::{UnstuffedData, unstuff};

/// The results of the steps.
pub struct StepResults {
    /// The data without stuffing.
    pub scan: UnstuffedData,
    /// The part of the data that each thread decodes.
    pub runs: Vec<ThreadRun>,
    /// The values of the codes.
    pub coefficients: ScanCoefficients,
    /// DC coefficient of each block that is checked.
    pub dc: Vec<u16>,
    /// Samples of each component.
    pub planes: Vec<SamplePlane>,
    /// The places that were learned, if they were to be and if no byte lacks a meaning.
    pub learned: Option<LearnedPlaces>,
    /// Whether the places of MCUs were known.
    pub was_known: bool,
    /// The pixels.
    pub image: Image,
}

/// Decodes the rectangle `part`, which lies inside the image. `header` is the result of [`probe`](super::probe()).
pub fn decode(bytes: &[u8], header: &Header, part: Rect) -> Result<StepResults, Reason> {
    decode_with(bytes, header, part, None)
}

/// Decodes as [`decode`] does. The places of MCUs that the store knows are used, and others are stored.
pub fn decode_with(
    bytes: &[u8],
    header: &Header,
    part: Rect,
    store: Option<&EntryPointStore>,
) -> Result<StepResults, Reason> {
    let image = Baseline::new(bytes, header)?;
    let mut memory = PointMemory::default();
    let (window, points) = DevicePoints::find(store, (&image, bytes, header), part, &mut memory, &mut Vec::new());
    let restarts = (image.restart_interval_mcus > 0).then_some(window.first_restart);
    let scan = unstuff(&bytes[window.data.clone()], restarts)?;
    let codes = Codes::new(&image);
    let (mut runs, mut learned) = (Vec::new(), None);
    let (coefficients, dc) = if matches!(points, DevicePoints::Known) {
        let coefficients = known::coefficients(&codes, &scan, &memory.stretches, &window)?;
        let dc = known::sums(&image, &coefficients.differences, &memory.sums)?;
        (coefficients, dc)
    } else {
        runs = match restarts {
            Some(_) => synchronize::at_restarts(&image, &scan, &window.checked),
            None => synchronize::synchronize(&codes, &scan, window.checked.end)?,
        };
        let coefficients = coefficients(&codes, &scan, &runs, &window)?;
        let dc = dc::sums(&image, &coefficients.differences);
        if let (DevicePoints::New(points), Some(store)) = (&points, store) {
            learned = points::learned(&image, &scan, &coefficients.mcus, &dc, points);
            match &learned {
                Some(places) => points.store(store, places.mcus.iter().copied(), places.dc.iter().copied()),
                None => points.store_none(store),
            }
        }
        (coefficients, dc)
    };
    let was_known = matches!(points, DevicePoints::Known);
    let planes = idct::planes(&image, &window, &dc, &coefficients.ac);
    let image = rgb::rgb(&image, &planes, part);
    Ok(StepResults { scan, runs, coefficients, dc, planes, learned, was_known, image })
}
