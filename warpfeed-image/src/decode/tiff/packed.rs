//! Values of 1 to 15 bits without gaps between them, the highest bit first.

/// Unpacks values of up to 8 bits, as many as fit `to`.
pub(super) fn unpack_bytes(packed: &[u8], bits: u8, to: &mut [u8]) {
    to.iter_mut().zip(Values::new(packed, bits)).for_each(|(to, value)| *to = value as u8);
}

/// Unpacks values of up to 16 bits, as many as fit `to`. They then have the byte order of this machine.
pub(super) fn unpack_words(packed: &[u8], bits: u8, to: &mut [u8]) {
    let (words, _) = to.as_chunks_mut::<2>();
    words.iter_mut().zip(Values::new(packed, bits)).for_each(|(to, value)| *to = (value as u16).to_ne_bytes());
}

struct Values<'a> {
    bytes: std::slice::Iter<'a, u8>,
    bits: u8,
    buffer: u32,
    available: u8,
}

impl<'a> Values<'a> {
    fn new(packed: &'a [u8], bits: u8) -> Self {
        Self { bytes: packed.iter(), bits, buffer: 0, available: 0 }
    }
}

impl Iterator for Values<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        while self.available < self.bits {
            self.buffer = self.buffer << 8 | u32::from(*self.bytes.next()?);
            self.available += 8;
        }
        self.available -= self.bits;
        Some(self.buffer >> self.available & ((1 << self.bits) - 1))
    }
}
