//! NumPy's `.npz` files: ZIP archives of `.npy` files, stored or deflated.

use super::npy::{self, MAX_HEADER_BYTES, NpyHeader};
use super::probe::le32;
use super::{Format, Header};
use crate::error::{Error, Result};
use crate::memory;
use crate::planes::Planes;
use crate::raster::Rect;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
use std::borrow::Cow;

/// The first bytes of a member.
const MEMBER: &[u8] = b"PK\x03\x04";
/// The first bytes of a member's entry in the directory.
const ENTRY: &[u8] = b"PK\x01\x02";
/// The first bytes of the record that ends an archive.
const END: &[u8] = b"PK\x05\x06";
const END_BYTES: usize = 22;

/// Names of the array that is read if there are several.
const NAMES: [&[u8]; 2] = [b"arr_0.npy", b"image.npy"];

fn bad(message: impl Into<String>) -> Error {
    Error::decode("NPZ", message)
}

/// Whether a file begins like an archive. Empty archives have no member, and are no images.
pub(super) fn is_npz(bytes: &[u8]) -> bool {
    bytes.starts_with(MEMBER)
}

/// A `.npy` file in an archive.
#[derive(Clone, Copy)]
struct Member<'a> {
    is_deflated: bool,
    data: &'a [u8],
    /// Length when it is not compressed.
    len_bytes: u32,
    crc: u32,
}

/// The header of the array.
pub(super) fn header(bytes: &[u8]) -> Result<Header> {
    Ok(array_header(&member(bytes)?)?.header(Format::Npz))
}

/// Decodes the channels `bands` of `part`.
pub(super) fn decode(bytes: &[u8], header: &Header, part: Rect, bands: &[u16], out: &mut Planes) -> Result<()> {
    let member = member(bytes)?;
    let found = array_header(&member)?;
    if found.end() != u64::from(member.len_bytes) {
        return Err(bad(format!("the array takes {} of {} bytes", found.end(), member.len_bytes)));
    }
    let npy = match member.is_deflated {
        false => Cow::Borrowed(member.data),
        true => Cow::Owned(inflate(member.data, member.len_bytes as usize)?),
    };
    if crc32fast::hash(&npy) != member.crc {
        return Err(bad("the checksum is wrong: the file is damaged"));
    }
    npy::decode(&npy, header, part, bands, out)
}

fn array_header(member: &Member<'_>) -> Result<NpyHeader> {
    let len = (member.len_bytes as usize).min(MAX_HEADER_BYTES + 12);
    let start = match member.is_deflated {
        false => Cow::Borrowed(&member.data[..len]),
        true => Cow::Owned(inflate(member.data, len)?),
    };
    if !start.starts_with(npy::SIGNATURE) {
        return Err(bad("the array is not an .npy file"));
    }
    NpyHeader::read(&start, member.len_bytes.into())
}

/// The first `len` bytes of deflated data.
fn inflate(data: &[u8], len: usize) -> Result<Vec<u8>> {
    // Deflate makes at most 1,032 bytes of one.
    if len / 1032 > data.len() {
        return Err(bad(format!("{} bytes of data are too few for an array of {len} bytes", data.len())));
    }
    let mut out = memory::zeros(len, "an array", memory::FEWER_IMAGES)?;
    let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, _, written) = decompress(&mut DecompressorOxide::new(), data, &mut out, 0, flags);
    match status {
        TINFLStatus::Done | TINFLStatus::HasMoreOutput if written == len => Ok(out),
        _ => Err(bad("the deflate data are damaged or end early")),
    }
}

/// The only array of an archive, or the one with a usual name.
fn member(bytes: &[u8]) -> Result<Member<'_>> {
    let (mut entries, count) = directory(bytes)?;
    let (mut only, mut named, mut arrays) = (None, None, 0_u32);
    for _ in 0..count {
        let damaged = || bad("the archive's directory is damaged");
        let (entry, rest) = split_entry(entries).ok_or_else(damaged)?;
        entries = rest;
        if !entry.name.ends_with(b".npy") {
            continue;
        }
        arrays += 1;
        only = Some(entry);
        if NAMES.contains(&entry.name) {
            if named.is_some() {
                return Err(bad("there are two arrays with a usual name, arr_0 and image: keep one of them"));
            }
            named = Some(entry);
        }
    }
    match (arrays, only, named) {
        (1, Some(entry), _) | (_, _, Some(entry)) => entry.open(bytes),
        (0, ..) => Err(bad("the archive has no array")),
        _ => Err(bad(format!("{arrays} arrays are not supported unless one is named arr_0 or image: rename it"))),
    }
}

/// The directory of an archive, and the number of its entries.
fn directory(bytes: &[u8]) -> Result<(&[u8], u16)> {
    // A comment of up to 65,535 bytes may follow.
    let from = bytes.len().saturating_sub(END_BYTES + usize::from(u16::MAX));
    let at = memchr::memmem::rfind(&bytes[from..], END).map(|at| from + at);
    let end = at.and_then(|at| bytes.get(at..at + END_BYTES));
    let end = end.ok_or_else(|| bad("truncated: the archive has no directory"))?;
    let (count, start) = (u16::from_le_bytes([end[10], end[11]]), le32(end, 16).unwrap_or(u32::MAX));
    let entries = bytes.get(start as usize..).ok_or_else(|| bad("the archive's directory lies outside of the file"))?;
    Ok((entries, count))
}

/// An entry of the directory.
#[derive(Clone, Copy)]
struct Entry<'a> {
    name: &'a [u8],
    fixed: &'a [u8; 46],
}

/// The first entry of a directory, and what follows it.
fn split_entry(entries: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let (fixed, rest) = entries.split_first_chunk::<46>().filter(|(fixed, _)| fixed.starts_with(ENTRY))?;
    let [name_len, extra_len, comment_len] =
        [28, 30, 32].map(|at| usize::from(u16::from_le_bytes([fixed[at], fixed[at + 1]])));
    let (name, rest) = rest.split_at_checked(name_len)?;
    Some((Entry { name, fixed }, rest.get(extra_len + comment_len..)?))
}

impl<'a> Entry<'a> {
    fn open(&self, bytes: &'a [u8]) -> Result<Member<'a>> {
        let short = |at: usize| u16::from_le_bytes([self.fixed[at], self.fixed[at + 1]]);
        let [crc, packed_bytes, len_bytes, offset] =
            [16, 20, 24, 42].map(|at| le32(self.fixed, at).unwrap_or(u32::MAX));
        if short(8) & 1 != 0 {
            return Err(bad("an encrypted array is not supported: write it with numpy.savez"));
        }
        if [packed_bytes, len_bytes, offset].contains(&u32::MAX) {
            return Err(bad("an archive of more than 4 GiB is not supported: store the array as .npy"));
        }
        let is_deflated = match short(10) {
            0 => false,
            8 => true,
            other => {
                let remedy = "write it with numpy.savez or numpy.savez_compressed";
                return Err(bad(format!("compression method {other} is not supported: {remedy}")));
            }
        };
        let truncated = || bad("truncated: an array reaches past the end of the file");
        let local = bytes.get(offset as usize..).ok_or_else(truncated)?;
        let (local, rest) = local.split_first_chunk::<30>().ok_or_else(truncated)?;
        if !local.starts_with(MEMBER) {
            return Err(bad("the archive's directory is damaged: no array is at its place"));
        }
        let skipped: usize =
            [26, 28].map(|at| usize::from(u16::from_le_bytes([local[at], local[at + 1]]))).iter().sum();
        let data = rest.get(skipped..).and_then(|data| data.get(..packed_bytes as usize)).ok_or_else(truncated)?;
        if !is_deflated && packed_bytes != len_bytes {
            return Err(bad("the archive's directory is damaged: an array has two lengths"));
        }
        Ok(Member { is_deflated, data, len_bytes, crc })
    }
}
