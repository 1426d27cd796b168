//! Compressed strips and tiles: deflate, LZW, PackBits and Zstandard.

use super::layout::Compression;
use super::{bad, lzw};
use crate::error::Result;
use crate::memory;

/// Memory for a decoded strip or tile, with the bytes around it that LZW needs.
#[derive(Default)]
pub(super) struct ChunkBuffer {
    bytes: Vec<u8>,
    len: usize,
}

impl ChunkBuffer {
    /// The decoded bytes.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[lzw::BEFORE..][..self.len]
    }

    /// Makes room for `len` bytes.
    fn reset(&mut self, len: usize) -> Result<()> {
        let needed = len.saturating_add(lzw::BEFORE + lzw::AFTER);
        if self.bytes.len() < needed {
            self.bytes = Vec::new();
            self.bytes = memory::zeros(needed, "a strip or tile of a TIFF", memory::FEWER_IMAGES)?;
        }
        self.len = len;
        Ok(())
    }

    /// Frees the memory if it is more than `keep_bytes`.
    pub(super) fn shrink(&mut self, keep_bytes: usize) {
        if self.bytes.len() > keep_bytes {
            *self = Self::default();
        }
    }
}

/// Largest number of bytes that `len` bytes of data can become. It is an estimate from above, and keeps small files from
/// asking for much memory.
pub(super) fn max_decoded(compression: Compression, len: u64) -> u64 {
    match compression {
        Compression::None | Compression::Jpeg => len,
        // Two bytes repeat one up to 128 times.
        Compression::PackBits => len.saturating_mul(128),
        // A match of 258 bytes takes two bits.
        Compression::Deflate => len.saturating_mul(1032),
        // A code of nine bits or more is a string of fewer than 4,096 bytes.
        Compression::Lzw => len.saturating_mul(4096),
        // A block of 128 KiB takes four bytes.
        #[cfg(feature = "zstd")]
        Compression::Zstd => len.saturating_mul(1 << 15),
    }
}

/// Number of bytes beyond a strip or tile up to which a checksum is looked for.
const MORE_BYTES: usize = 1 << 16;

/// Decodes the first `len` bytes of a strip or tile into `out`. Further data are not decoded, unless these are all bytes
/// of a stream that has a checksum: then up to `full_len` bytes and some more may follow, and are dropped.
pub(super) fn decode(
    compression: Compression,
    data: &[u8],
    len: usize,
    full_len: Option<usize>,
    out: &mut ChunkBuffer,
) -> Result<()> {
    out.reset(len)?;
    match compression {
        Compression::Lzw => lzw::decode(data, &mut out.bytes[..lzw::BEFORE + len + lzw::AFTER]),
        Compression::Deflate => inflate(data, out.bytes_mut(), full_len),
        Compression::PackBits => unpack_bits(data, out.bytes_mut()),
        #[cfg(feature = "zstd")]
        Compression::Zstd => zstd(data, out.bytes_mut(), full_len.is_some()),
        Compression::None | Compression::Jpeg => Ok(()),
    }
}

/// Decodes a zlib stream. With a `full_len` its checksum is compared, unless far more data follow.
fn inflate(data: &[u8], out: &mut [u8], full_len: Option<usize>) -> Result<()> {
    let needed = out.len();
    let damaged = |error| bad(format!("the deflate data are damaged: {error:?}"));
    let mut decompressor = fdeflate::Decompressor::new();
    let (_, len) = decompressor.read(data, out, 0, true).map_err(damaged)?;
    check_len("deflate", len, needed)?;
    if let (Some(full_len), false) = (full_len, decompressor.is_done()) {
        // Damage may have made the stream longer. Its end is looked for with more room.
        let room = full_len.max(needed).saturating_add(MORE_BYTES);
        let mut all = memory::zeros(room, "a strip or tile of a TIFF", memory::FEWER_IMAGES)?;
        fdeflate::Decompressor::new().read(data, &mut all, 0, true).map_err(damaged)?;
    }
    Ok(())
}

fn unpack_bits(mut data: &[u8], out: &mut [u8]) -> Result<()> {
    let needed = out.len();
    let mut rest = out;
    while let (false, Some((&control, next))) = (rest.is_empty(), data.split_first()) {
        data = next;
        match control {
            0..=127 => {
                let len = (usize::from(control) + 1).min(data.len()).min(rest.len());
                let (to, after) = rest.split_at_mut(len);
                to.copy_from_slice(&data[..len]);
                (rest, data) = (after, &data[len..]);
            }
            128 => {}
            129.. => {
                let Some((byte, next)) = data.split_first() else { break };
                let len = (257 - usize::from(control)).min(rest.len());
                let (to, after) = rest.split_at_mut(len);
                to.fill(*byte);
                (rest, data) = (after, next);
            }
        }
    }
    let missing = rest.len();
    check_len("PackBits", needed - missing, needed)
}

#[cfg(feature = "zstd")]
fn zstd(data: &[u8], out: &mut [u8], is_all: bool) -> Result<()> {
    use std::io::Read;
    let needed = out.len();
    let damaged = |error: std::io::Error| bad(format!("the Zstandard data are damaged: {error}"));
    // A frame whose window takes more than 128 MiB is an error, as in the library's default.
    let mut reader = zstd::Decoder::with_buffer(data).map_err(damaged)?;
    let mut len = 0;
    while len < needed {
        match reader.read(&mut out[len..]).map_err(damaged)? {
            0 => break,
            more => len += more,
        }
    }
    if is_all {
        // The end of the data, which may have a checksum.
        let _ = reader.read(&mut [0]).map_err(damaged)?;
    }
    check_len("Zstandard", len, needed)
}

fn check_len(name: &str, len: usize, needed: usize) -> Result<()> {
    if len == needed { Ok(()) } else { Err(bad(format!("the {name} data end after {len} of {needed} bytes"))) }
}
