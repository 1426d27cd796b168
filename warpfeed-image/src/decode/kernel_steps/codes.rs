//! The tables of short codes that a block of threads makes first and shares.

use super::Baseline;
use crate::decode::huffman::Code;

/// Number of bits that one look-up uses. The tables of three components take 12 kB of a block's shared memory.
const LOOK_BITS: u32 = 10;

/// A Huffman code: a table for short codes, and a search for the others.
struct LookUpTable<'a> {
    /// Entry for each value of the next bits: the code's length in the high byte, its symbol in the low one. 0 if the
    /// code is longer or does not exist.
    look: [u16; 1 << LOOK_BITS],
    code: &'a Code,
}

impl<'a> LookUpTable<'a> {
    fn new(code: &'a Code) -> Self {
        let mut look = [0; 1 << LOOK_BITS];
        for (bits, entry) in (0..).zip(look.iter_mut()) {
            if let Some((len @ ..=LOOK_BITS, symbol)) = code.symbol(bits << (64 - LOOK_BITS)) {
                *entry = (len as u16) << 8 | u16::from(symbol);
            }
        }
        Self { look, code }
    }
}

/// An image with the tables of its codes.
pub(super) struct Codes<'a> {
    pub image: &'a Baseline,
    /// Each component's two tables: for DC coefficients and for AC coefficients.
    tables: Vec<[LookUpTable<'a>; 2]>,
}

impl<'a> Codes<'a> {
    pub fn new(image: &'a Baseline) -> Self {
        let tables = image.components.iter().map(|component| [&component.dc, &component.ac].map(LookUpTable::new));
        Self { image, tables: tables.collect() }
    }

    /// The length and the symbol of the code at the start of the left-aligned `bits`. `None` if there is no such code.
    pub fn symbol(&self, component: usize, is_dc: bool, bits: u64) -> Option<(u32, u8)> {
        let table = &self.tables[component][usize::from(!is_dc)];
        match table.look[(bits >> (64 - LOOK_BITS)) as usize] {
            0 => table.code.symbol(bits),
            entry => Some((u32::from(entry >> 8), entry as u8)),
        }
    }
}
