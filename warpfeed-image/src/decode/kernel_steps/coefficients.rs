//! Step 3: each thread decodes the coefficients of a run. AC coefficients are kept where the rectangle needs them, DC
//! differences of all blocks. A bad code flags the image if the CPU might decode it too.

use super::codes::Codes;
use super::synchronize::ThreadRun;
use super::unstuff::UnstuffedData;
use super::walk::WalkState;
use super::{Baseline, DecodeWindow, Reason};

/// The values of the scan's codes.
pub struct ScanCoefficients {
    /// DC difference of each block that is checked. The next step sums them up.
    pub differences: Vec<u16>,
    /// The blocks of the window's MCUs, row by row, in zigzag order, without their DC coefficients.
    pub ac: Vec<[i16; 64]>,
    /// The bit of each checked MCU, and of the end of the last one. Empty if unused bytes precede a restart marker.
    pub mcus: Vec<usize>,
}

pub(super) fn coefficients(
    codes: &Codes<'_>,
    scan: &UnstuffedData,
    runs: &[ThreadRun],
    window: &DecodeWindow,
) -> Result<ScanCoefficients, Reason> {
    let image = codes.image;
    let mcu_blocks = image.mcu_blocks();
    let mut found = ScanCoefficients {
        differences: vec![0; window.checked.len()],
        ac: vec![[0; 64]; window.mcus() * mcu_blocks],
        mcus: vec![0; window.checked.len() / mcu_blocks + 1],
    };
    let (mut ended, mut unused) = (0, false);
    let mcu_of = |block: usize| (block - window.checked.start) / mcu_blocks;
    for run in runs {
        let (mut state, mut block) = (run.start, run.block);
        let begins_segment = image.restart_interval_mcus > 0 || block == window.checked.start;
        if begins_segment && state == WalkState::at(state.bit) {
            found.mcus[mcu_of(block)] = state.bit;
        }
        while state.bit < run.end_bit && block < run.end_block {
            let place = place(window, image, block / mcu_blocks).map(|mcu| mcu * mcu_blocks + state.block);
            let symbol = state.step(codes, scan);
            if symbol.is_bad {
                return Err(Reason::Damaged);
            }
            if state.bit > run.data_end_bit {
                return Err(Reason::Truncated);
            }
            match (symbol.coefficient, place) {
                (Some((0, difference)), _) => found.differences[block - window.checked.start] = difference as u16,
                (Some((index, value)), Some(place)) => found.ac[place][index] = value,
                _ => {}
            }
            if symbol.ends_block {
                block += 1;
                ended += 1;
                if state.block == 0 && (block < run.end_block || run.end_block == window.checked.end) {
                    found.mcus[mcu_of(block)] = state.bit;
                }
            }
        }
        unused |= run.end_block < window.checked.end && block == run.end_block && state.bit + 8 <= run.data_end_bit;
    }
    if unused {
        found.mcus.clear();
    }
    if ended < window.checked.len() { Err(Reason::Truncated) } else { Ok(found) }
}

/// The index in the window of an MCU of the scan; `None` for an MCU outside.
pub(super) fn place(window: &DecodeWindow, image: &Baseline, mcu: usize) -> Option<usize> {
    let (row, column) = ((mcu / image.mcu_columns as usize) as u32, (mcu % image.mcu_columns as usize) as u32);
    (window.rows.contains(&row) && window.columns.contains(&column))
        .then(|| (row - window.rows.start) as usize * window.columns.len() + (column - window.columns.start) as usize)
}
