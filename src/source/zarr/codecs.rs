//! Codecs of chunks: from the bytes of a file to the values of a chunk.

use super::blosc;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use std::io::Read;
use warpfeed_image::{Error, Result, memory};

/// The codecs between a chunk's values and its bytes.
#[derive(Debug, PartialEq)]
pub(super) struct Codecs {
    /// The array's dimensions in the order in which they are stored, the slowest first.
    pub(super) order: Vec<usize>,
    /// Whether values are stored with the most significant byte first.
    pub(super) is_big: bool,
    pub(super) delta: Option<Delta>,
    /// Codecs of bytes, in the order in which they were applied.
    pub(super) bytes: Vec<ByteCodec>,
}

/// Version 2's filter that stores each value as its difference from the one before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Delta {
    pub(super) value_bytes: usize,
    pub(super) is_big: bool,
}

/// A codec from bytes to bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ByteCodec {
    Gzip,
    Zlib,
    Zstd,
    /// A block of LZ4 after its length, as numcodecs writes it.
    Lz4,
    Blosc,
    /// A checksum after the bytes.
    Crc32c,
}

/// The error for damaged data.
pub(super) fn bad(message: impl Into<String>) -> Error {
    Error::Decode { format: "Zarr", message: message.into() }
}

/// Memory of `len` bytes of zeros.
pub(super) fn zeros(len: usize) -> Result<Vec<u8>> {
    memory::zeros(len, "a Zarr chunk", "use fewer threads, or write the array with smaller chunks")
}

/// An empty buffer with room for `len` bytes.
fn room(len: usize) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    memory::reserve(&mut buffer, len, "a Zarr chunk", "use fewer threads, or write the array with smaller chunks")?;
    Ok(buffer)
}

/// Largest number of bytes that a chunk takes when it is encoded. Codecs add little to what they cannot compress.
pub(super) fn max_encoded_bytes(chunk_bytes: usize) -> usize {
    chunk_bytes + chunk_bytes / 8 + 4_096
}

impl Codecs {
    /// Decodes a chunk of `chunk_bytes` bytes.
    pub(super) fn decode(&self, encoded: Vec<u8>, chunk_bytes: usize) -> Result<Vec<u8>> {
        let mut bytes = encoded;
        for (number, codec) in self.bytes.iter().enumerate().rev() {
            bytes = codec.decode(bytes, if number == 0 { chunk_bytes } else { max_encoded_bytes(chunk_bytes) })?;
        }
        if bytes.len() != chunk_bytes {
            return Err(bad(format!("the chunk has {} bytes, not the {chunk_bytes} of its shape", bytes.len())));
        }
        if let Some(delta) = self.delta {
            delta.decode(&mut bytes);
        }
        Ok(bytes)
    }
}

impl ByteCodec {
    const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Blosc => "blosc",
            Self::Crc32c => "crc32c",
        }
    }

    /// Decodes bytes, at most `max_bytes`.
    fn decode(self, mut encoded: Vec<u8>, max_bytes: usize) -> Result<Vec<u8>> {
        match self {
            Self::Gzip => self.read(MultiGzDecoder::new(&*encoded), max_bytes),
            Self::Zlib => self.read(ZlibDecoder::new(&*encoded), max_bytes),
            Self::Zstd => {
                let mut decoded = room(max_bytes)?;
                unzstd(&encoded, &mut decoded)?;
                Ok(decoded)
            }
            Self::Lz4 => {
                let (len, block) = encoded.split_first_chunk::<4>().ok_or_else(|| bad("lz4: there is no length"))?;
                let len = u32::from_le_bytes(*len) as usize;
                self.check_len(len, max_bytes)?;
                let mut decoded = zeros(len)?;
                unlz4(block, &mut decoded)?;
                Ok(decoded)
            }
            Self::Blosc => {
                let len = blosc::decoded_bytes(&encoded)?;
                self.check_len(len, max_bytes)?;
                let mut decoded = zeros(len)?;
                blosc::decode(&encoded, &mut decoded)?;
                Ok(decoded)
            }
            Self::Crc32c => {
                check_crc32c(&encoded)?;
                encoded.truncate(encoded.len() - 4);
                self.check_len(encoded.len(), max_bytes)?;
                Ok(encoded)
            }
        }
    }

    fn check_len(self, len: usize, max_bytes: usize) -> Result<()> {
        if len <= max_bytes {
            return Ok(());
        }
        Err(bad(format!("{}: the data have more than {max_bytes} bytes", self.name())))
    }

    /// Reads all that comes from a decoder.
    fn read(self, decoder: impl Read, max_bytes: usize) -> Result<Vec<u8>> {
        let mut decoded = room(max_bytes)?;
        let read = decoder.take(max_bytes as u64 + 1).read_to_end(&mut decoded);
        read.map_err(|error| bad(format!("{}: {error}", self.name())))?;
        self.check_len(decoded.len(), max_bytes)?;
        Ok(decoded)
    }
}

/// Decodes Zstandard's frames into a buffer, at most as many bytes as it has room for.
pub(super) fn unzstd<B: zstd::zstd_safe::WriteBuf + ?Sized>(encoded: &[u8], decoded: &mut B) -> Result<usize> {
    let mut decoder = zstd::bulk::Decompressor::new().map_err(|error| bad(format!("zstd: {error}")))?;
    decoder.decompress_to_buffer(encoded, decoded).map_err(|error| bad(format!("zstd: {error}")))
}

/// Decodes a block of LZ4 that has as many bytes as `decoded`.
pub(super) fn unlz4(block: &[u8], decoded: &mut [u8]) -> Result<()> {
    match lz4_flex::block::decompress_into(block, decoded) {
        Ok(len) if len == decoded.len() => Ok(()),
        Ok(len) => Err(bad(format!("lz4: the block has {len} bytes, not {}", decoded.len()))),
        Err(error) => Err(bad(format!("lz4: {error}"))),
    }
}

/// Checks the CRC-32C in the last four bytes.
pub(super) fn check_crc32c(bytes: &[u8]) -> Result<()> {
    match bytes.split_last_chunk::<4>() {
        Some((bytes, sum)) if crc32c::crc32c(bytes) == u32::from_le_bytes(*sum) => Ok(()),
        _ => Err(bad("crc32c: the checksum is wrong")),
    }
}

impl Delta {
    /// Adds to each value the one before.
    fn decode(self, bytes: &mut [u8]) {
        macro_rules! sum {
            ($type:ty, $size:literal) => {{
                let mut sum: $type = 0;
                for value in bytes.as_chunks_mut::<$size>().0 {
                    if self.is_big {
                        sum = sum.wrapping_add(<$type>::from_be_bytes(*value));
                        *value = sum.to_be_bytes();
                    } else {
                        sum = sum.wrapping_add(<$type>::from_le_bytes(*value));
                        *value = sum.to_le_bytes();
                    }
                }
            }};
        }
        match self.value_bytes {
            1 => sum!(u8, 1),
            2 => sum!(u16, 2),
            4 => sum!(u32, 4),
            _ => sum!(u64, 8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use std::io::Write;

    fn values() -> Vec<u8> {
        (0..600_u32).map(|i| ((i * i) >> 7) as u8).collect()
    }

    fn codecs(bytes: &[ByteCodec]) -> Codecs {
        Codecs { order: vec![0], is_big: false, delta: None, bytes: bytes.to_vec() }
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    fn summed(bytes: &[u8]) -> Vec<u8> {
        [bytes, &crc32c::crc32c(bytes).to_le_bytes()].concat()
    }

    /// The values with each codec, and all of them as literals of LZ4.
    fn encoded() -> Vec<(&'static [ByteCodec], Vec<u8>)> {
        let values = values();
        let literals = [&600_u32.to_le_bytes()[..], &[0xF0, 255, 255, 75], &values].concat();
        vec![
            (&[], values.clone()),
            (&[ByteCodec::Gzip], gzip(&values)),
            (&[ByteCodec::Gzip], [gzip(&values[..100]), gzip(&values[100..])].concat()),
            (&[ByteCodec::Zlib], zlib(&values)),
            (&[ByteCodec::Zstd], zstd::bulk::compress(&values, 3).unwrap()),
            (&[ByteCodec::Lz4], literals),
            (&[ByteCodec::Crc32c], summed(&values)),
            (&[ByteCodec::Zstd, ByteCodec::Crc32c], summed(&zstd::bulk::compress(&values, 3).unwrap())),
            (&[ByteCodec::Crc32c, ByteCodec::Gzip], gzip(&summed(&values))),
        ]
    }

    #[test]
    fn codecs_give_the_values_back() {
        for (list, bytes) in encoded() {
            assert_eq!(codecs(list).decode(bytes, 600).unwrap(), values(), "{list:?}");
        }
    }

    #[test]
    fn chunks_that_are_cut_off_or_of_another_size_are_damaged() {
        for (list, bytes) in encoded() {
            for len in 0..bytes.len() {
                // A member of gzip may end where another would begin.
                let is_member = list == [ByteCodec::Gzip] && codecs(list).decode(bytes[..len].to_vec(), 100).is_ok();
                assert!(is_member || codecs(list).decode(bytes[..len].to_vec(), 600).is_err(), "{list:?} {len}");
            }
            for size in [0, 1, 599, 601] {
                let error = codecs(list).decode(bytes.clone(), size).unwrap_err();
                assert!(error.is_bad_image(), "{list:?}: {error}");
            }
            let mut damaged = bytes.clone();
            let middle = damaged.len() / 2;
            damaged[middle] ^= 0x10;
            if list.contains(&ByteCodec::Crc32c) || list.contains(&ByteCodec::Gzip) {
                assert!(codecs(list).decode(damaged, 600).is_err(), "{list:?}");
            }
        }
    }

    #[test]
    fn differences_are_added_up() {
        for is_big in [false, true] {
            let word = |value: u16| if is_big { value.to_be_bytes() } else { value.to_le_bytes() };
            let differences = [5, 65_535, 3, 65_530].map(word).concat();
            let delta = Some(Delta { value_bytes: 2, is_big });
            let decoded = Codecs { delta, ..codecs(&[]) }.decode(differences, 8).unwrap();
            assert_eq!(decoded, [5, 4, 7, 1].map(word).concat());
        }
    }
}
