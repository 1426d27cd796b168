//! Blosc's container, version 1: blocks that are compressed one by one, after their bytes or bits were sorted by
//! significance.
//!
//! The bytes are a header of 16 bytes, the offsets of the blocks, and the blocks. A block is one stream, or one for
//! each byte of a value. A stream is its length and its data; data of the full length are not compressed.

use super::codecs::{bad, unlz4, unzstd, zeros};
use flate2::{Decompress, FlushDecompress, Status};
use warpfeed_image::{Error, Result};

const HEADER_BYTES: usize = 16;

/// The version of the container. Blosc 2 has others.
const VERSION: u8 = 2;

/// Flags in the header: what was done to the blocks.
const SHUFFLED: u8 = 1;
const COPIED: u8 = 1 << 1;
const BITS_SHUFFLED: u8 = 1 << 2;
const NOT_SPLIT: u8 = 1 << 4;

/// Compressor of the streams.
#[derive(Debug, Clone, Copy)]
enum Compressor {
    BloscLz,
    Lz4,
    Zlib,
    Zstd,
}

/// The content of a header.
#[derive(Debug)]
struct Header {
    flags: u8,
    value_bytes: usize,
    decoded_bytes: usize,
    block_bytes: usize,
    encoded_bytes: usize,
}

fn damaged(message: &str) -> Error {
    bad(format!("blosc: {message}"))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<usize> {
    let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
    word.map(|word| u32::from_le_bytes(*word) as usize).ok_or_else(|| damaged("the data end too early"))
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self> {
        let (&[version, _, flags, value_bytes], _) =
            bytes.split_first_chunk::<4>().ok_or_else(|| damaged("the data end inside the header"))?;
        if version != VERSION {
            return Err(damaged(&format!("the container's version is {version}, not {VERSION}")));
        }
        let header = Self {
            flags,
            value_bytes: usize::from(value_bytes),
            decoded_bytes: u32_at(bytes, 4)?,
            block_bytes: u32_at(bytes, 8)?,
            encoded_bytes: u32_at(bytes, 12)?,
        };
        if !(HEADER_BYTES..=bytes.len()).contains(&header.encoded_bytes) {
            return Err(damaged(&format!("there are {} of {} bytes", bytes.len(), header.encoded_bytes)));
        }
        if value_bytes == 0 || (header.block_bytes == 0 && header.decoded_bytes > 0) {
            return Err(damaged("the header is damaged"));
        }
        Ok(header)
    }

    fn compressor(&self) -> Result<Compressor> {
        match self.flags >> 5 {
            0 => Ok(Compressor::BloscLz),
            // LZ4HC's data are LZ4's.
            1 => Ok(Compressor::Lz4),
            2 => Err(Error::Unsupported {
                feature: "Blosc with the compressor snappy".to_owned(),
                remedy: "write the array again with lz4 or zstd".to_owned(),
            }),
            3 => Ok(Compressor::Zlib),
            4 => Ok(Compressor::Zstd),
            other => Err(damaged(&format!("no compressor has the number {other}"))),
        }
    }
}

/// Number of bytes of the decoded data, as the header gives it.
pub(super) fn decoded_bytes(bytes: &[u8]) -> Result<usize> {
    Header::read(bytes).map(|header| header.decoded_bytes)
}

/// Decodes all data into `decoded`, which has the length that [`decoded_bytes`] says.
pub(super) fn decode(bytes: &[u8], decoded: &mut [u8]) -> Result<()> {
    let header = Header::read(bytes)?;
    let bytes = &bytes[..header.encoded_bytes];
    if header.flags & COPIED != 0 {
        let values = &bytes[HEADER_BYTES..];
        if values.len() != decoded.len() {
            return Err(damaged(&format!("there are {} bytes, not {}", values.len(), decoded.len())));
        }
        decoded.copy_from_slice(values);
        return Ok(());
    }
    let compressor = header.compressor()?;
    let is_shuffled = header.value_bytes > 1 && header.flags & SHUFFLED != 0;
    let are_bits_shuffled = header.flags & BITS_SHUFFLED != 0;
    let mut sorted = zeros(if is_shuffled || are_bits_shuffled { header.block_bytes.min(decoded.len()) } else { 0 })?;
    for (number, block) in decoded.chunks_mut(header.block_bytes.max(1)).enumerate() {
        let start = u32_at(bytes, HEADER_BYTES + 4 * number)?;
        let data = bytes.get(start..).ok_or_else(|| damaged("a block begins after the end"))?;
        let is_whole = block.len() == header.block_bytes;
        let streams = if is_whole && header.flags & NOT_SPLIT == 0 { header.value_bytes } else { 1 };
        if is_shuffled || are_bits_shuffled {
            let sorted = &mut sorted[..block.len()];
            read_block(data, compressor, streams, sorted)?;
            if is_shuffled {
                unshuffle(sorted, block, header.value_bytes);
            } else {
                unshuffle_bits(sorted, block, header.value_bytes);
            }
        } else {
            read_block(data, compressor, streams, block)?;
        }
    }
    Ok(())
}

/// Decodes a block of streams of equal lengths.
fn read_block(mut data: &[u8], compressor: Compressor, streams: usize, block: &mut [u8]) -> Result<()> {
    let stream_bytes = block.len() / streams;
    if stream_bytes * streams != block.len() {
        return Err(damaged("a block is no whole number of values"));
    }
    for stream in block.chunks_exact_mut(stream_bytes.max(1)) {
        let len = u32_at(data, 0)?;
        let encoded = data.get(4..).and_then(|data| data.get(..len));
        let encoded = encoded.ok_or_else(|| damaged("a block ends after the end"))?;
        data = &data[4 + len..];
        if len == stream.len() {
            stream.copy_from_slice(encoded);
            continue;
        }
        let is_complete = match compressor {
            Compressor::BloscLz => unblosclz(encoded, stream).is_some(),
            Compressor::Lz4 => {
                unlz4(encoded, stream)?;
                true
            }
            Compressor::Zlib => inflate(encoded, stream),
            Compressor::Zstd => unzstd(encoded, stream)? == stream.len(),
        };
        if !is_complete {
            return Err(damaged("a block is damaged"));
        }
    }
    Ok(())
}

fn inflate(encoded: &[u8], decoded: &mut [u8]) -> bool {
    let mut decoder = Decompress::new(true);
    let status = decoder.decompress(encoded, decoded, FlushDecompress::Finish);
    matches!(status, Ok(Status::StreamEnd)) && decoder.total_out() == decoded.len() as u64
}

/// Decodes BloscLZ, a form of FastLZ. `None` if the data are damaged, or not as long as `decoded`.
///
/// A byte below 32 is followed by one literal more than it says. Another byte begins a match: its upper 3 bits are the
/// length minus 2, in further bytes if they are 7, and its lower 5 bits and the next byte are the distance. The largest
/// such distance is followed by two bytes with the distance beyond it. The upper bits of the first byte mean nothing.
fn unblosclz(encoded: &[u8], decoded: &mut [u8]) -> Option<()> {
    const FAR: usize = (31 << 8) + 255;
    let (mut bytes, mut done) = (encoded.iter(), 0);
    let mut control = *bytes.next()? & 31;
    loop {
        if control < 32 {
            let len = usize::from(control) + 1;
            let literals = bytes.as_slice().get(..len)?;
            decoded.get_mut(done..done + len)?.copy_from_slice(literals);
            bytes = bytes.as_slice()[len..].iter();
            done += len;
        } else {
            let mut len = usize::from(control >> 5) + 2;
            if control >> 5 == 7 {
                loop {
                    let more = *bytes.next()?;
                    len += usize::from(more);
                    if more != 255 {
                        break;
                    }
                }
            }
            let mut distance = usize::from(control & 31) << 8 | usize::from(*bytes.next()?);
            if distance == FAR {
                distance += usize::from(*bytes.next()?) << 8;
                distance += usize::from(*bytes.next()?);
            }
            let from = done.checked_sub(distance + 1)?;
            let end = done.checked_add(len).filter(|end| *end <= decoded.len())?;
            if distance + 1 >= len {
                decoded.copy_within(from..from + len, done);
            } else {
                // The match repeats what it writes.
                (done..end).for_each(|at| decoded[at] = decoded[at - distance - 1]);
            }
            done = end;
        }
        match bytes.next() {
            Some(next) => control = *next,
            None => return (done == decoded.len()).then_some(()),
        }
    }
}

/// Undoes the sorting of bytes: the first bytes of all values, then the second ones, and so on. A rest that is no value
/// stays at the end.
fn unshuffle(sorted: &[u8], block: &mut [u8], value_bytes: usize) {
    /// Numbers of bytes that are known when compiling are faster.
    fn spread<const N: usize>(sorted: &[u8], block: &mut [u8], count: usize) {
        let planes: [&[u8]; N] = std::array::from_fn(|byte| &sorted[byte * count..][..count]);
        for (at, value) in block.as_chunks_mut::<N>().0.iter_mut().enumerate() {
            *value = std::array::from_fn(|byte| planes[byte][at]);
        }
    }
    let count = block.len() / value_bytes;
    match value_bytes {
        2 => spread::<2>(sorted, block, count),
        4 => spread::<4>(sorted, block, count),
        8 => spread::<8>(sorted, block, count),
        _ => {
            for byte in 0..value_bytes {
                let plane = &sorted[byte * count..][..count];
                block.iter_mut().skip(byte).step_by(value_bytes).zip(plane).for_each(|(to, from)| *to = *from);
            }
        }
    }
    let rest = count * value_bytes;
    block[rest..].copy_from_slice(&sorted[rest..]);
}

/// Undoes the sorting of bits: the lowest bits of the first bytes of all values, then the second bits, and so on. A
/// block whose number of values is not a multiple of 8 is not sorted.
fn unshuffle_bits(sorted: &[u8], block: &mut [u8], value_bytes: usize) {
    let count = block.len() / value_bytes;
    if !count.is_multiple_of(8) {
        block.copy_from_slice(sorted);
        return;
    }
    let plane_bytes = count / 8;
    for byte in 0..value_bytes {
        let planes: [&[u8]; 8] = std::array::from_fn(|bit| &sorted[(8 * byte + bit) * plane_bytes..][..plane_bytes]);
        for eight in 0..plane_bytes {
            let values = transposed(planes.map(|plane| plane[eight]));
            for (at, value) in values.into_iter().enumerate() {
                block[(8 * eight + at) * value_bytes + byte] = value;
            }
        }
    }
    let rest = count * value_bytes;
    block[rest..].copy_from_slice(&sorted[rest..]);
}

/// Makes eight bytes of eight others: byte `i` gets bit `i` of each.
fn transposed(bytes: [u8; 8]) -> [u8; 8] {
    let mut x = u64::from_le_bytes(bytes);
    // Squares of 1, 2 and 4 bits change places across the diagonal.
    for (shift, mask) in [(7, 0x00AA_00AA_00AA_00AA), (14, 0x0000_CCCC_0000_CCCC), (28, 0x0000_0000_F0F0_F0F0)] {
        let changed = (x ^ (x >> shift)) & mask;
        x ^= changed ^ (changed << shift);
    }
    x.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(flags: u8, value_bytes: u8, len: usize, block_bytes: usize, blocks: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![2, 1, flags, value_bytes];
        let total = 16 + blocks.iter().map(|block| 4 + block.len()).sum::<usize>();
        [len, block_bytes, total].iter().for_each(|number| bytes.extend((*number as u32).to_le_bytes()));
        let mut start = 16 + 4 * blocks.len();
        for block in blocks {
            bytes.extend((start as u32).to_le_bytes());
            start += block.len();
        }
        blocks.iter().for_each(|block| bytes.extend(block));
        bytes
    }

    fn stream(data: &[u8]) -> Vec<u8> {
        [&(data.len() as u32).to_le_bytes()[..], data].concat()
    }

    fn decoded(bytes: &[u8]) -> Result<Vec<u8>> {
        let mut decoded = vec![0; decoded_bytes(bytes)?];
        decode(bytes, &mut decoded)?;
        Ok(decoded)
    }

    /// "abcabcabcabc" and more.
    const LZ: &[u8] = &[0x02, b'a', b'b', b'c', 0xE0, 0, 2, 0x00, b'!'];

    #[test]
    fn blosclz_has_literals_and_matches() {
        let mut text = [0; 13];
        unblosclz(LZ, &mut text).unwrap();
        assert_eq!(&text, b"abcabcabcabc!");
        for len in 0..LZ.len() {
            assert!(unblosclz(&LZ[..len], &mut text).is_none(), "{len}");
        }
        assert!(unblosclz(LZ, &mut [0; 12]).is_none() && unblosclz(LZ, &mut [0; 14]).is_none());
        // A match before the start.
        assert!(unblosclz(&[0, 1, 0x20, 1, 0, 1], &mut [0; 5]).is_none());
        // A distance of 16 bits: 8192 + 2.
        let mut far = vec![0x00, 7];
        // 8,999 bytes that repeat the one before.
        far.extend([0xE0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255]);
        far.extend([255; 20]);
        far.extend([255, (8_999 - 9 - 35 * 255) as u8, 0, 0, 9, 0x3F, 255, 0, 2, 0, 8]);
        let mut long = vec![0; 1 + 8_999 + 1 + 3 + 1];
        unblosclz(&far, &mut long).unwrap();
        assert!(long[..9_000].iter().all(|byte| *byte == 7));
        assert_eq!(long[9_000..], [9, 7, 7, 7, 8]);
    }

    #[test]
    fn blocks_and_streams() {
        let values: Vec<u8> = (0..40).map(|i| i * 5).collect();
        let copied = [&[2, 1, COPIED, 2][..], &[40, 0, 0, 0, 40, 0, 0, 0, 56, 0, 0, 0], &values].concat();
        assert_eq!(decoded(&copied).unwrap(), values);
        // Two whole blocks of two streams each, and a shorter one. No stream is compressed.
        let split = |block: &[u8]| {
            let (even, odd): (Vec<u8>, Vec<u8>) = block.chunks(2).map(|pair| (pair[0], pair[1])).unzip();
            (even, odd)
        };
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        for block in values.chunks(16) {
            let (even, odd) = split(block);
            let whole = block.len() == 16;
            blocks.push(if whole { [stream(&even), stream(&odd)].concat() } else { stream(&[even, odd].concat()) });
        }
        let bytes = container(SHUFFLED | 1 << 5, 2, 40, 16, &blocks);
        assert_eq!(decoded(&bytes[..]).unwrap(), values);
        for len in 0..bytes.len() {
            assert!(decoded(&bytes[..len]).is_err(), "{len}");
        }
        // One stream of BloscLZ, without sorting.
        let bytes = container(NOT_SPLIT, 1, 13, 13, &[stream(LZ)]);
        assert_eq!(decoded(&bytes).unwrap(), b"abcabcabcabc!");
        let snappy = container(NOT_SPLIT | 2 << 5, 1, 13, 13, &[stream(LZ)]);
        assert!(decoded(&snappy).unwrap_err().to_string().contains("snappy"));
        let later = [&[5][..], &bytes[1..]].concat();
        assert!(decoded(&later).unwrap_err().to_string().contains("version is 5"));
        // A block that lies, and offsets of blocks that do not exist.
        for at in [8, 12, 16, 20] {
            let mut wrong = bytes.clone();
            wrong[at + 3] = 0x7F;
            assert!(at == 8 || decoded(&wrong).is_err(), "{at}");
        }
    }

    #[test]
    fn bits_find_their_values() {
        for value_bytes in [1, 2, 4] {
            let values: Vec<u8> = (0..16 * value_bytes as u32).map(|i| ((i * i * 37) >> 2) as u8).collect();
            let mut sorted = vec![0_u8; values.len()];
            for (at, value) in values.iter().enumerate() {
                let (number, byte) = (at / value_bytes, at % value_bytes);
                for bit in (0..8).filter(|bit| value >> bit & 1 == 1) {
                    sorted[(8 * byte + bit) * 2 + number / 8] |= 1 << (number % 8);
                }
            }
            let mut block = vec![0; values.len()];
            unshuffle_bits(&sorted, &mut block, value_bytes);
            assert_eq!(block, values, "{value_bytes}");
        }
        let mut block = [0; 6];
        unshuffle_bits(&[1, 2, 3, 4, 5, 6], &mut block, 2);
        assert_eq!(block, [1, 2, 3, 4, 5, 6]);
        unshuffle(&[1, 2, 3, 4, 5, 6], &mut block, 3);
        assert_eq!(block, [1, 3, 5, 2, 4, 6]);
    }
}
