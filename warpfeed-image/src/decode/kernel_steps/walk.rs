//! The walk from one symbol to the next, for the second and the third step.

use super::codes::Codes;
use super::unstuff::UnstuffedData;

/// A thread's place in the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkState {
    /// Bit of the next symbol, in the scan's data.
    pub bit: usize,
    /// Index of the block in its MCU.
    pub block: usize,
    /// Index of the next coefficient, in zigzag order; 0 is the DC coefficient.
    pub index: usize,
}

/// The meaning of a symbol.
pub(super) struct Symbol {
    /// A coefficient's place in zigzag order and its value in the data, which is a difference for a DC coefficient.
    pub coefficient: Option<(usize, i16)>,
    /// Whether the symbol is the block's last.
    pub ends_block: bool,
    /// Whether the code does not exist. libjpeg takes 17 bits and ends the block.
    pub is_bad: bool,
}

impl WalkState {
    /// The start of an MCU.
    pub fn at(bit: usize) -> Self {
        Self { bit, block: 0, index: 0 }
    }

    /// Reads a symbol and moves to the next one.
    pub(super) fn step(&mut self, codes: &Codes<'_>, scan: &UnstuffedData) -> Symbol {
        let bits = scan.bits(self.bit);
        let found = codes.symbol(codes.image.block_components[self.block], self.index == 0, bits);
        let (len, symbol) = found.unwrap_or((17, 0));
        let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        let value = value(bits << len, size);
        self.bit += (len + size) as usize;
        let coefficient;
        if self.index == 0 {
            coefficient = Some((0, value));
            self.index = 1;
        } else if size == 0 && run != 15 {
            coefficient = None;
            self.index = 64;
        } else {
            // After the last coefficient: the data are damaged, and libjpeg writes the last coefficient.
            coefficient = Some(((self.index + run).min(63), value));
            self.index += run + 1;
        }
        let ends_block = self.index >= 64;
        if ends_block {
            self.index = 0;
            self.block = (self.block + 1) % codes.image.mcu_blocks();
        }
        Symbol { coefficient, ends_block, is_bad: found.is_none() }
    }
}

/// A coefficient of `size` bits, at most 15. One that starts with 0 is negative.
fn value(bits: u64, size: u32) -> i16 {
    if size == 0 {
        return 0;
    }
    let value = (bits >> (64 - size)) as i32;
    (if value >> (size - 1) == 0 { value + 1 - (1 << size) } else { value }) as i16
}
