//! LZW as TIFF has it: codes of 9 to 12 bits, the highest bit first, which become longer one code early.

use super::{bad, unsupported};
use crate::error::Result;

/// The code that empties the table, and the one that ends the data.
const CLEAR: usize = 256;
const END: usize = 257;
/// The first code of a string in the table.
const FIRST: usize = 258;
/// Number of codes.
const CODES: usize = 1 << 12;

/// Number of bytes before the output in a buffer. They hold the strings of one byte.
pub(super) const BEFORE: usize = 256;
/// Number of bytes after the output. Strings are copied in pieces of this length.
pub(super) const AFTER: usize = 16;

/// A string that occurred in the output. No string begins at a code that means something else, or nothing yet: its
/// length is 0.
#[derive(Clone, Copy, Default)]
struct Place {
    start: u32,
    len: u32,
}

/// Decodes data until the output is full. `buffer` is [`BEFORE`] bytes, the output, and [`AFTER`] bytes. It is shorter
/// than 4 GiB.
///
/// Each string is a part of the output: the string before it and one byte more. So the table holds places, and strings
/// are copied.
pub(super) fn decode(data: &[u8], buffer: &mut [u8]) -> Result<()> {
    if let [0, second, ..] = data
        && second & 1 == 1
    {
        let remedy = "rewrite the file with deflate or today's LZW";
        return Err(unsupported("LZW of before TIFF 5.0, with the lowest bit first,", remedy));
    }
    buffer.iter_mut().zip(0..=255).for_each(|(to, byte)| *to = byte);
    let mut table = [Place::default(); CODES];
    for (start, place) in (0..).zip(&mut table[..CLEAR]) {
        *place = Place { start, len: 1 };
    }
    let end = buffer.len() - AFTER;
    let mut at = BEFORE;
    let mut bits = Bits { data, at: 0 };
    // The table is empty before each turn.
    'data: while at < end {
        let (mut width, mut next) = (9, FIRST);
        let Some(code) = bits.next(width) else { break };
        match code {
            CLEAR => continue,
            END => break,
            0..CLEAR => buffer[at] = code as u8,
            _ => return Err(no_string()),
        }
        // The string before, from which a new one is made.
        let mut last = Place { start: at as u32, len: 1 };
        at += 1;
        while at < end {
            let Some(code) = bits.next(width) else { break 'data };
            if next < CODES {
                table[next] = Place { start: last.start, len: last.len + 1 };
                next += 1;
                // Codes become longer before the last one of their length is used.
                width += u32::from(next == (1 << width) - 1 && width < 12);
            }
            let Place { start, len } = table[code];
            if len == 0 {
                match code {
                    CLEAR => break,
                    END => break 'data,
                    _ => return Err(no_string()),
                }
            }
            last = Place { start: at as u32, len };
            let (start, len) = (start as usize, len as usize);
            let piece = piece(buffer, start);
            set_piece(buffer, at, piece);
            if len > AFTER {
                copy_rest(buffer, start, at, len.min(end - at));
            }
            // The newest string ends with its own first byte.
            if start + len > at && at + len <= end {
                buffer[at + len - 1] = buffer[at];
            }
            at += len;
        }
        table[FIRST..next].fill(Place::default());
    }
    if at < end {
        return Err(bad(format!("the LZW data end after {} of {} bytes", at - BEFORE, end - BEFORE)));
    }
    Ok(())
}

fn no_string() -> crate::error::Error {
    bad("the LZW data are damaged: a code is not in the table")
}

/// Some bytes of the output, as a number, so that they stay in a register.
#[inline]
fn piece(buffer: &[u8], start: usize) -> u128 {
    let piece: [u8; AFTER] = *buffer[start..].first_chunk().expect("a piece follows the last byte");
    u128::from_ne_bytes(piece)
}

#[inline]
fn set_piece(buffer: &mut [u8], at: usize, piece: u128) {
    *buffer[at..].first_chunk_mut().expect("a piece follows the last byte") = piece.to_ne_bytes();
}

/// Copies what is left of a string of `len` bytes after its first piece. Pieces do not overlap their copies, because
/// the string is longer than a piece and begins at least its length, less one byte, before its copy.
#[inline(never)]
fn copy_rest(buffer: &mut [u8], start: usize, at: usize, len: usize) {
    let mut done = AFTER;
    while done < len {
        set_piece(buffer, at + done, piece(buffer, start + done));
        done += AFTER;
    }
}

/// Bits of some bytes, the highest first.
struct Bits<'a> {
    data: &'a [u8],
    /// Number of bits that have been read.
    at: usize,
}

impl Bits<'_> {
    /// The next bits, 9 to 12 of them.
    #[inline(always)]
    fn next(&mut self, width: u32) -> Option<usize> {
        let byte = self.at / 8;
        let word = match self.data.get(byte..).and_then(|rest| rest.first_chunk()) {
            Some(word) => u32::from_be_bytes(*word),
            None => self.last_word(byte, width)?,
        };
        let code = word << (self.at % 8) >> (32 - width);
        self.at += width as usize;
        Some(code as usize & (CODES - 1))
    }

    /// A word of the last bytes, if they have the next bits.
    #[cold]
    fn last_word(&self, byte: usize, width: u32) -> Option<u32> {
        let rest = self.data.get(byte..)?;
        if 8 * rest.len() < self.at % 8 + width as usize {
            return None;
        }
        let mut word = [0; 4];
        word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Some(u32::from_be_bytes(word))
    }
}
