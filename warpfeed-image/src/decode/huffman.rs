//! Huffman codes as JPEG files define them.

/// A Huffman code of at most 256 symbols, each of 1 to 16 bits.
#[derive(Clone, PartialEq, Eq)]
pub struct Code {
    /// For each length in bits: one past its last code; 0 if there is no code of this length.
    pub end: [u32; 17],
    /// For each length in bits: the index of its first code's symbol, less that code.
    pub first: [i32; 17],
    /// Symbols in the order of their codes; zeros after the last one.
    pub symbols: [u8; 256],
}

impl Code {
    /// A code with `counts` codes of each length, from 1 bit on. `None` if a length has no room for its codes. A code
    /// of all ones is not allowed.
    pub(super) fn new(counts: &[u8; 16], symbols: &[u8]) -> Option<Self> {
        let mut this = Self { end: [0; 17], first: [0; 17], symbols: [0; 256] };
        this.symbols.get_mut(..symbols.len())?.copy_from_slice(symbols);
        let (mut code, mut index) = (0u32, 0i32);
        for (len, &count) in (1..).zip(counts) {
            this.first[len] = index - code as i32;
            code += u32::from(count);
            index += i32::from(count);
            this.end[len] = if count == 0 { 0 } else { code };
            if code >= 1 << len {
                return None;
            }
            code <<= 1;
        }
        Some(this)
    }

    /// The length and the symbol of the code at the start of the left-aligned `bits`. `None` if there is no such code.
    pub(super) fn symbol(&self, bits: u64) -> Option<(u32, u8)> {
        let len = (1..=16).find(|&len| bits >> (64 - len) < u64::from(self.end[len]))?;
        let code = (bits >> (64 - len)) as i32;
        Some((len as u32, self.symbols[(code + self.first[len]) as usize & 255]))
    }
}

/// A table in a file's segment.
pub(super) struct Definition<'a> {
    /// Class (0 for DC, 1 for AC) in the high four bits, number in the low ones.
    pub place: u8,
    /// Number of codes of each length.
    pub counts: &'a [u8; 16],
    pub symbols: &'a [u8],
}

/// The tables of a segment. The last item is `None` if the segment ends inside a table.
pub(super) fn definitions(mut segment: &[u8]) -> impl Iterator<Item = Option<Definition<'_>>> {
    std::iter::from_fn(move || {
        let (&place, rest) = segment.split_first()?;
        let split = || {
            let (counts, rest) = rest.split_first_chunk::<16>()?;
            let (symbols, rest) = rest.split_at_checked(counts.iter().map(|&count| usize::from(count)).sum())?;
            Some((Definition { place, counts, symbols }, rest))
        };
        let found = split();
        segment = found.as_ref().map_or(&[], |(_, rest)| rest);
        Some(found.map(|(definition, _)| definition))
    })
}
