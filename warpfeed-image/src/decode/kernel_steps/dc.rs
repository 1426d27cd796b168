//! Step 4: DC coefficients, as sums of the differences since the last restart, modulo 2^16 as in libjpeg.

use super::Baseline;

pub(super) fn sums(image: &Baseline, differences: &[u16]) -> Vec<u16> {
    let mut dc = differences.to_vec();
    let mcu_blocks = image.mcu_blocks();
    let interval = match image.restart_interval_mcus as usize {
        0 => dc.len(),
        mcus => mcus * mcu_blocks,
    };
    for segment in dc.chunks_mut(interval.max(1)) {
        let mut sums = [0u16; 3];
        for mcu in segment.chunks_mut(mcu_blocks) {
            for (dc, &component) in mcu.iter_mut().zip(&image.block_components) {
                sums[component] = sums[component].wrapping_add(*dc);
                *dc = sums[component];
            }
        }
    }
    dc
}
