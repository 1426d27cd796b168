//! After step 4: the places of MCUs in the file, and the DC coefficients at entry points.

use super::Baseline;
use super::unstuff::UnstuffedData;
use crate::decode::device_points::NewPoints;

/// Places that were learned.
pub struct LearnedPlaces {
    /// The bit of each MCU, and of the end of the last one, from the start of the data on.
    pub mcus: Vec<u32>,
    /// The DC coefficients at each entry point.
    pub dc: Vec<[i16; 4]>,
}

pub(super) fn learned(
    image: &Baseline,
    scan: &UnstuffedData,
    mcus: &[usize],
    dc: &[u16],
    points: &NewPoints,
) -> Option<LearnedPlaces> {
    let (_, before_end) = mcus.split_last()?;
    let columns = image.mcu_columns as usize;
    let at_points = (0..=before_end.len()).filter(|mcu| (mcu % columns).is_multiple_of(points.step() as usize));
    let dc = at_points.map(|mcu| {
        let mut at_point = [0; 4];
        let restarts = mcu < before_end.len()
            && image.restart_interval_mcus > 0
            && mcu.is_multiple_of(image.restart_interval_mcus as usize);
        if mcu > 0 && !restarts {
            let before = dc[..mcu * image.mcu_blocks()].rchunks(image.mcu_blocks()).next().unwrap_or(&[]);
            before.iter().zip(&image.block_components).for_each(|(&dc, &component)| at_point[component] = dc as i16);
        }
        at_point
    });
    let file_bit = |&bit: &usize| (8 * scan.places[bit / 8] + bit % 8) as u32;
    Some(LearnedPlaces { mcus: mcus.iter().map(file_bit).collect(), dc: dc.collect() })
}
