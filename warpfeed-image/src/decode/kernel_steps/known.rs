//! Steps 2 to 4 if the places of MCUs are known: each thread decodes a stretch. If it does not end where the next one
//! starts, with the known DC coefficients, the image is flagged.

use super::codes::Codes;
use super::coefficients::{ScanCoefficients, place};
use super::unstuff::UnstuffedData;
use super::walk::WalkState;
use super::{Baseline, DecodeWindow, KnownStretch, KnownSums, Reason};

pub(super) fn coefficients(
    codes: &Codes<'_>,
    scan: &UnstuffedData,
    stretches: &[KnownStretch],
    window: &DecodeWindow,
) -> Result<ScanCoefficients, Reason> {
    let image = codes.image;
    let mcu_blocks = image.mcu_blocks();
    let mut found = ScanCoefficients {
        differences: vec![0; window.checked.len()],
        ac: vec![[0; 64]; window.mcus() * mcu_blocks],
        mcus: Vec::new(),
    };
    for stretch in stretches {
        let end_bit = scan.unstuffed_bit(stretch.end_bit as usize);
        let mut state = WalkState::at(scan.unstuffed_bit(stretch.bit as usize));
        let mut block = stretch.mcu as usize * mcu_blocks;
        let end_block = block + stretch.mcus as usize * mcu_blocks;
        while state.bit < end_bit && block < end_block {
            let mcu = (window.checked.start + block) / mcu_blocks;
            let place = place(window, image, mcu).map(|mcu| mcu * mcu_blocks + state.block);
            let symbol = state.step(codes, scan);
            if symbol.is_bad {
                return Err(Reason::Damaged);
            }
            match (symbol.coefficient, place) {
                (Some((0, difference)), _) => found.differences[block] = difference as u16,
                (Some((index, value)), Some(place)) => found.ac[place][index] = value,
                _ => {}
            }
            block += usize::from(symbol.ends_block);
        }
        let most = if stretch.is_padded { 7 } else { 0 };
        if block < end_block || !(state.bit..=state.bit + most).contains(&end_bit) {
            return Err(Reason::Unsynchronized);
        }
    }
    Ok(found)
}

/// DC coefficients, as sums of the differences from each entry point on. 0 where nothing is decoded.
pub(super) fn sums(image: &Baseline, differences: &[u16], points: &[KnownSums]) -> Result<Vec<u16>, Reason> {
    let mcu_blocks = image.mcu_blocks();
    let mut dc = vec![0; differences.len()];
    for point in points {
        let mut sums = point.dc;
        let first = point.mcu as usize * mcu_blocks;
        for block in first..first + point.mcus as usize * mcu_blocks {
            let sum = &mut sums[image.block_components[block % mcu_blocks]];
            *sum = sum.wrapping_add(differences[block] as i16);
            dc[block] = *sum as u16;
        }
        let known = image.components.len();
        if point.end_dc.is_some_and(|end_dc| end_dc[..known] != sums[..known]) {
            return Err(Reason::Unsynchronized);
        }
    }
    Ok(dc)
}
