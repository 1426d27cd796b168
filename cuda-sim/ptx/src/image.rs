//! The PTX of a module image.
//!
//! NVIDIA does not document fat binaries. nvcc 13 writes a header (magic number, version, sizes of the header and of
//! the rest), then entries. An entry's header has its kind (1: PTX), the sizes of header and content, the compressed
//! size, the architecture, flags, and the uncompressed size.

use crate::{Error, Result};

const MAGIC: u32 = 0xba55_ed50;
const PTX: u16 = 1;
/// Flags of compressed content.
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;

/// The PTX of a fat binary, or of a text that is PTX. Of several architectures, it is that of the highest.
///
/// # Errors
/// If the image has no PTX, or is not an image.
pub fn ptx(image: &[u8]) -> Result<String> {
    let text = match number(image, 0, 4) {
        Some(magic) if magic == u64::from(MAGIC) => of_fat_binary(image)?,
        _ => image.to_vec(),
    };
    let end = text.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let text = String::from_utf8(text[..end].to_vec()).map_err(|_| Error::at(0, "the image is not PTX"))?;
    if text.contains(".version") { Ok(text) } else { Err(Error::at(0, "the image is not PTX")) }
}

fn of_fat_binary(image: &[u8]) -> Result<Vec<u8>> {
    let cut = || Error::at(0, "the fat binary is cut off");
    let mut at = number(image, 6, 2).ok_or_else(cut)? as usize;
    let end = (number(image, 8, 8).ok_or_else(cut)? as usize).saturating_add(at).min(image.len());
    let mut best: Option<(u64, Vec<u8>)> = None;
    while at < end {
        let field = |offset, bytes| number(image, at.saturating_add(offset), bytes).ok_or_else(cut);
        let (kind, header, content) = (field(0, 2)?, field(4, 4)? as usize, field(8, 8)? as usize);
        let (stored, architecture, flags, original) = (field(16, 4)?, field(28, 4)?, field(40, 8)?, field(56, 8)?);
        let start = at.saturating_add(header);
        at = start.saturating_add(content);
        let bytes = image.get(start..at).ok_or_else(cut)?;
        if kind != u64::from(PTX) || best.as_ref().is_some_and(|(other, _)| *other >= architecture) {
            continue;
        }
        let text = if flags & ZSTD != 0 {
            let bytes = bytes.get(..stored as usize).ok_or_else(cut)?;
            let text = zstd::bulk::decompress(bytes, original as usize);
            text.map_err(|error| Error::at(0, format!("the PTX of sm_{architecture} is damaged: {error}")))?
        } else if flags & LZ4 != 0 {
            let what = format!("the PTX of sm_{architecture} is compressed as nvcc before 13 does it: recompile");
            return Err(Error::at(0, what));
        } else {
            bytes.to_vec()
        };
        best = Some((architecture, text));
    }
    best.map(|(_, text)| text).ok_or_else(|| Error::at(0, "the fat binary has no PTX"))
}

/// The number of some bytes at an offset, if they are there.
fn number(image: &[u8], offset: usize, bytes: usize) -> Option<u64> {
    let bytes = image.get(offset..offset.checked_add(bytes)?)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}
