//! Several files as one image: the channels of the first, then those of the others, as satellites' bands come.
//!
//! The container has a signature, the number of files, their lengths, and the files, numbers in little-endian. Files may be
//! smaller than the largest by whole factors: each of their pixels is then repeated.

use super::probe::{header, probe};
use super::{DecodeOptions, Decoder, Format, Header, PriorKnowledge};
use crate::error::{Error, Result};
use crate::planes::{MAX_CHANNELS, PixelKind, Planes};
use crate::raster::{Rect, Size};
use crate::with_element;

/// The first bytes of a container.
pub(super) const SIGNATURE: &[u8] = b"\x89warpfeed bands\n";

fn bad(message: impl Into<String>) -> Error {
    Error::decode("bands", message)
}

/// Puts the files of an image's bands together, in the order of their channels.
///
/// ```
/// use warpfeed_image::planes::{Element, PixelKind};
/// use warpfeed_image::{Size, decode::join_bands, probe};
///
/// let file = join_bands(&[&b"P5 2 2 255 abcd"[..], &b"P5 1 1 255 e"[..]]);
/// let header = probe(&file)?;
/// assert_eq!((header.size, header.kind), (Size::new(2, 2), PixelKind { element: Element::U8, channels: 2 }));
/// # Ok::<(), warpfeed_image::Error>(())
/// ```
#[must_use]
pub fn join_bands<T: AsRef<[u8]>>(files: &[T]) -> Vec<u8> {
    let mut all = [SIGNATURE, &(files.len() as u32).to_le_bytes()].concat();
    files.iter().for_each(|file| all.extend((file.as_ref().len() as u64).to_le_bytes()));
    files.iter().for_each(|file| all.extend_from_slice(file.as_ref()));
    all
}

/// The files of a container.
fn files(bytes: &[u8]) -> Result<Vec<&[u8]>> {
    let truncated = || bad("truncated: the data end inside the container");
    let (count, rest) = bytes.get(SIGNATURE.len()..).and_then(<[u8]>::split_first_chunk).ok_or_else(truncated)?;
    let count = u32::from_le_bytes(*count);
    if !(1..=u32::from(MAX_CHANNELS)).contains(&count) {
        return Err(bad(format!("{count} files: 1 to {MAX_CHANNELS} can be put together")));
    }
    let (lengths, mut rest) = rest.split_at_checked(8 * count as usize).ok_or_else(truncated)?;
    let mut files = Vec::with_capacity(count as usize);
    for length in lengths.as_chunks::<8>().0 {
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| truncated())?;
        let file;
        (file, rest) = rest.split_at_checked(length).ok_or_else(truncated)?;
        files.push(file);
    }
    Ok(files)
}

/// Reads the headers of all files.
pub(super) fn read(bytes: &[u8]) -> Result<Header> {
    let mut all: Option<Header> = None;
    let mut channels = 0;
    for (number, file) in files(bytes)?.into_iter().enumerate() {
        let own = probe_file(number, file)?;
        channels += own.kind.channels;
        let all = all.get_or_insert_with(|| Header {
            kind: own.kind,
            precision_bits: own.precision_bits,
            ..header(Format::Bands, own.size.width, own.size.height)
        });
        if own.kind.element != all.kind.element {
            let message = format!("file {number} has {}, and the first has {}", own.kind.element, all.kind.element);
            return Err(bad(format!("{message}: convert them to one type")));
        }
        if own.size.area_px() > all.size.area_px() {
            (all.size, all.full_size) = (own.size, own.size);
        }
        all.precision_bits = all.precision_bits.max(own.precision_bits);
    }
    let mut all = all.ok_or_else(|| bad("there are no files"))?;
    if channels > MAX_CHANNELS {
        return Err(bad(format!("{channels} channels: images have up to {MAX_CHANNELS}")));
    }
    (all.kind.channels, all.components) = (channels, channels as u8);
    Ok(all)
}

fn probe_file(number: usize, file: &[u8]) -> Result<Header> {
    if file.starts_with(SIGNATURE) {
        return Err(bad(format!("file {number} is a container itself")));
    }
    probe(file).map_err(|error| match error {
        Error::Decode { format, message } => bad(format!("file {number}: {format}: {message}")),
        other => other,
    })
}

/// The whole factors by which a file's image is smaller.
fn factors(number: usize, own: Size, whole: Size) -> Result<[u32; 2]> {
    let fits = whole.width.is_multiple_of(own.width) && whole.height.is_multiple_of(own.height);
    if fits {
        return Ok([whole.width / own.width, whole.height / own.height]);
    }
    Err(bad(format!("file {number} has {own} pixels: the image's {whole} must be multiples of its sides")))
}

/// Decodes the channels `bands` of `part`: only the files that have them are decoded.
pub(super) fn decode(
    decoder: &mut Decoder,
    bytes: &[u8],
    header: &Header,
    part: Rect,
    bands: &[u16],
    options: DecodeOptions<'_>,
    out: &mut Planes,
) -> Result<PriorKnowledge> {
    let kind = PixelKind { channels: bands.len() as u16, ..header.kind };
    out.reset_part(kind, header.size, part)?;
    let (mut first, mut own) = (0, Planes::default());
    for (number, file) in files(bytes)?.into_iter().enumerate() {
        let found = probe_file(number, file)?;
        let channels = first..first + found.kind.channels;
        first = channels.end;
        // Where these channels go, and their numbers in the file.
        let wanted = bands.iter().enumerate().filter(|(_, band)| channels.contains(band));
        let (places, numbers): (Vec<usize>, Vec<u16>) = wanted.map(|(at, band)| (at, band - channels.start)).unzip();
        if places.is_empty() {
            continue;
        }
        if found.kind.element != header.kind.element {
            return Err(bad("the files are not those of the header"));
        }
        let [across, down] = factors(number, found.size, header.size)?;
        let (x, y) = (part.x / across, part.y / down);
        let (right, bottom) = (part.right().div_ceil(across), part.bottom().div_ceil(down));
        let read = Rect { x, y, width: right - x, height: bottom - y };
        decoder.decode_planes(file, &found, read, Some(&numbers), options, &mut own)?;
        with_element!(header.kind.element, T => {
            let stride = read.width as usize;
            for (from, to) in places.iter().enumerate() {
                let values = own.plane::<T>(from);
                let rows = out.plane_mut::<T>(*to).chunks_exact_mut(part.width as usize);
                for (line, to) in (part.y..).zip(rows) {
                    let row = &values[(line / down - y) as usize * stride..][..stride];
                    if across == 1 {
                        to.copy_from_slice(row);
                    } else {
                        (part.x..).zip(to).for_each(|(column, to)| *to = row[(column / across - x) as usize]);
                    }
                }
            }
        });
    }
    Ok(PriorKnowledge::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::pnm::written;

    /// A gray image whose values begin with this one.
    fn gray(size: Size, start: u8) -> Vec<u8> {
        let mut file = written(size, 1).into_bytes();
        file.extend((0..size.area_px()).map(|at| start.wrapping_add(at as u8)));
        file
    }

    #[test]
    fn smaller_files_are_repeated_and_only_the_wanted_are_read() {
        let (whole, half) = (Size::new(6, 4), Size::new(3, 2));
        let file = join_bands(&[gray(half, 100), gray(whole, 0), b"damaged".to_vec()]);
        assert!(probe(&file).unwrap_err().to_string().contains("file 2"));
        let mut file = join_bands(&[gray(half, 100), gray(whole, 0), gray(whole, 50)]);
        let header = probe(&file).unwrap();
        assert_eq!((header.size, header.kind.channels), (whole, 3));
        let (mut decoder, mut out) = (Decoder::new().unwrap(), Planes::default());
        let part = Rect { x: 1, y: 1, width: 4, height: 3 };
        let mut decode = |file: &[u8], bands: &[u16]| {
            decoder
                .decode_planes(file, &header, part, Some(bands), DecodeOptions::default(), &mut out)
                .map(|_| out.clone())
        };
        let planes = decode(&file, &[1, 0]).unwrap();
        assert_eq!(planes.plane::<u8>(0), [7, 8, 9, 10, 13, 14, 15, 16, 19, 20, 21, 22]);
        assert_eq!(planes.plane::<u8>(1), [100, 101, 101, 102, 103, 104, 104, 105, 103, 104, 104, 105]);
        // The last file's end is missing, which matters only to its own channel.
        file.truncate(file.len() - 1);
        let at = SIGNATURE.len() + 4 + 2 * 8;
        let length = u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) - 1;
        file[at..at + 8].copy_from_slice(&length.to_le_bytes());
        decode(&file, &[0]).unwrap();
        assert!(decode(&file, &[2]).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let of = |sizes: &[Size]| join_bands(&sizes.iter().map(|size| gray(*size, 0)).collect::<Vec<_>>());
        let file = of(&[Size::new(6, 4), Size::new(4, 4)]);
        let header = probe(&file).unwrap();
        let (part, mut out) = (Rect::full(header.size), Planes::default());
        let error =
            Decoder::new().unwrap().decode_planes(&file, &header, part, None, DecodeOptions::default(), &mut out);
        assert!(error.unwrap_err().to_string().contains("multiples"));
        for len in 0..file.len() - 24 {
            assert!(probe(&file[..len]).is_err(), "{len}");
        }
        assert!(probe(&join_bands::<&[u8]>(&[])).is_err());
        assert!(probe(&join_bands(&[join_bands(&[gray(Size::new(2, 2), 0)])])).is_err());
    }
}
