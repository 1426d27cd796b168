//! Strips and tiles: finding those that a part needs, decoding them, and writing their pixels to planes.

use super::codecs::{self, ChunkBuffer, max_decoded};
use super::directory::{Container, Directory, Numbers, tag};
use super::layout::{Color, Compression, Layout, Predictor};
use super::{bad, jpeg, packed, predictors, unsupported};
use crate::decode::jpeg::JpegDecoder;
use crate::decode::stored::{ByteOrder, Places, Stored, StoredPixels};
use crate::decode::{DecodeOptions, Format, probe};
use crate::error::Result;
use crate::memory;
use crate::planes::{PixelKind, Planes};
use crate::raster::{Image, Rect, Size};
use std::borrow::Cow;

/// Memory that is kept from one image to the next.
#[derive(Default)]
pub(in super::super) struct TiffScratch {
    chunk: ChunkBuffer,
    /// A row's bytes, or unpacked values.
    row: Vec<u8>,
    /// The colors of a row's values.
    colors: Vec<u8>,
    /// The pixels of a JPEG.
    image: Image,
}

impl TiffScratch {
    /// Frees memory of more than `keep_bytes`.
    pub(in super::super) fn shrink(&mut self, keep_bytes: usize) {
        self.chunk.shrink(keep_bytes);
        self.image.shrink(keep_bytes / 4);
        for row in [&mut self.row, &mut self.colors] {
            if row.capacity() > keep_bytes {
                *row = Vec::new();
            }
        }
    }
}

/// A strip or tile that a part needs.
#[derive(Clone, Copy)]
struct Chunk {
    /// Its first column and row in the image.
    x: u32,
    y: u32,
    /// Number of rows that are stored.
    rows: u32,
    /// Offset and length of the data; `None` if it is not stored, and all values are 0.
    data: Option<(u64, u64)>,
}

impl Chunk {
    /// The part of the image that it has of `part`.
    fn inside(&self, part: Rect, size: Size) -> Rect {
        let (x, y) = (self.x.max(part.x), self.y.max(part.y));
        let right = part.right().min(self.x.saturating_add(size.width));
        let bottom = part.bottom().min(self.y.saturating_add(size.height));
        Rect { x, y, width: right.saturating_sub(x), height: bottom.saturating_sub(y) }
    }
}

/// A page whose pixels are read.
pub(super) struct Page<'a> {
    pub(super) container: Container<'a>,
    pub(super) directory: Directory,
    pub(super) layout: Layout,
}

impl<'a> Page<'a> {
    /// Decodes the channels `bands` of `part`: those that are stored, or a palette's colors.
    pub(super) fn decode(
        &self,
        part: Rect,
        bands: &[u16],
        decoder: &mut JpegDecoder,
        scratch: &mut TiffScratch,
        out: &mut Planes,
    ) -> Result<()> {
        let layout = &self.layout;
        let kind = PixelKind { channels: bands.len() as u16, ..layout.kind() };
        let palette = self.palette()?;
        let tables = self.jpeg_tables()?;
        // Nothing is allocated before all data have been found.
        for band in if layout.is_planar { bands } else { &bands[..1] } {
            for chunk in self.chunks(part, *band)? {
                chunk?;
            }
        }
        out.reset_part(kind, layout.size, part)?;
        let mut writer =
            Writer { page: self, part, palette: palette.as_deref(), tables: &tables, decoder, scratch, out };
        if layout.is_planar {
            for (to, band) in bands.iter().enumerate() {
                for chunk in self.chunks(part, *band)? {
                    writer.chunk(chunk?, &[(0, to)])?;
                }
            }
            return Ok(());
        }
        let bands: Vec<(usize, usize)> = bands.iter().map(|band| usize::from(*band)).zip(0..).collect();
        for chunk in self.chunks(part, 0)? {
            writer.chunk(chunk?, &bands)?;
        }
        Ok(())
    }

    /// The strips or tiles that `part` needs; in planar files those of channel `band`.
    fn chunks(&self, part: Rect, band: u16) -> Result<impl Iterator<Item = Result<Chunk>>> {
        let layout = &self.layout;
        let columns = part.x / layout.chunk.width..part.right().div_ceil(layout.chunk.width);
        let rows = part.y / layout.chunk.height..part.bottom().div_ceil(layout.chunk.height);
        let plane = if layout.is_planar { u64::from(band) * layout.chunks_a_plane() } else { 0 };
        let across = u64::from(layout.chunks_across());
        let place = move |row: u32, column: u32| plane + u64::from(row) * across + u64::from(column);
        let first = place(rows.start, columns.start);
        let range = first..place(rows.end - 1, columns.end - 1) + 1;
        let (offsets, counts) = layout.tables();
        let numbers = |tag| match self.directory.get(tag) {
            Some(entry) => self.container.numbers(entry, range.clone()).map(Some),
            None => Ok(None),
        };
        let (offsets, counts) = (numbers(offsets)?, numbers(counts)?);
        let places = rows.flat_map(move |row| columns.clone().map(move |column| (row, column)));
        Ok(places.map(move |(row, column)| {
            let index = (place(row, column) - first) as usize;
            let (x, y) = (column * layout.chunk.width, row * layout.chunk.height);
            let rows =
                if layout.is_tiled { layout.chunk.height } else { layout.chunk.height.min(layout.size.height - y) };
            let get = |numbers: &Option<Numbers<'a>>| numbers.as_ref().map(|numbers| numbers.get(index));
            let chunk = Chunk { x, y, rows, data: None };
            let data = self.data(&chunk, part, get(&offsets).unwrap_or(0), get(&counts))?;
            Ok(Chunk { data, ..chunk })
        }))
    }

    /// Checks the place of a strip's or tile's data.
    fn data(&self, chunk: &Chunk, part: Rect, offset: u64, count: Option<u64>) -> Result<Option<(u64, u64)>> {
        let layout = &self.layout;
        if offset == 0 && count == Some(0) {
            return Ok(None);
        }
        let name = if layout.is_tiled { "tile" } else { "strip" };
        let row_bytes = layout.row_bytes(layout.chunk.width);
        let count = match (layout.compression, count) {
            // All readers go on after a length that is too small.
            (Compression::None, count) => count.unwrap_or(0).max(row_bytes.saturating_mul(chunk.rows.into())),
            (_, count) => count.unwrap_or(0),
        };
        if offset < 8 {
            return Err(bad(format!("a {name} begins inside the header, at {offset}")));
        }
        if offset.checked_add(count).is_none_or(|end| end > self.container.len_bytes()) {
            return Err(bad(format!(
                "truncated: a {name} has {count} bytes at {offset}, but the file has {} bytes",
                self.container.len_bytes()
            )));
        }
        let inside = chunk.inside(part, layout.chunk);
        let needed = row_bytes.saturating_mul(u64::from(inside.y - chunk.y + inside.height));
        if layout.compression != Compression::Jpeg && needed > max_decoded(layout.compression, count) {
            return Err(bad(format!("a {name} of {count} bytes is too short for its pixels")));
        }
        if needed > u64::from(u32::MAX) - 4096 && layout.compression != Compression::None {
            return Err(unsupported(&format!("a {name} of more than 4 GiB"), "rewrite the file with tiles"));
        }
        Ok(Some((offset, count)))
    }

    /// The colors of all values of a palette, if there is one. As in Pillow, their high bytes count.
    fn palette(&self) -> Result<Option<Vec<[u8; 3]>>> {
        if self.layout.color != Color::Palette {
            return Ok(None);
        }
        let len = 1_usize << self.layout.bits;
        let Some(entry) = self.directory.get(tag::COLOR_MAP).filter(|entry| entry.count == 3 * len as u64) else {
            return Err(bad("the palette is missing, or it has not the right number of colors"));
        };
        let map = self.container.numbers(entry, 0..entry.count)?;
        Ok(Some((0..len).map(|i| [0, 1, 2].map(|c| (map.get(c * len + i) >> 8) as u8)).collect()))
    }

    fn jpeg_tables(&self) -> Result<Cow<'a, [u8]>> {
        match (self.layout.compression, self.directory.get(tag::JPEG_TABLES)) {
            (Compression::Jpeg, Some(entry)) => self.container.bytes(entry, jpeg::MAX_TABLE_BYTES),
            _ => Ok(Cow::Borrowed(&[])),
        }
    }
}

/// Writes strips or tiles to planes.
struct Writer<'a, 'b> {
    page: &'b Page<'a>,
    part: Rect,
    palette: Option<&'b [[u8; 3]]>,
    tables: &'b [u8],
    decoder: &'b mut JpegDecoder,
    scratch: &'b mut TiffScratch,
    out: &'b mut Planes,
}

impl Writer<'_, '_> {
    /// Writes channels of a strip or tile to channels of the planes.
    fn chunk(&mut self, chunk: Chunk, bands: &[(usize, usize)]) -> Result<()> {
        let (page, layout) = (self.page, &self.page.layout);
        let inside = chunk.inside(self.part, layout.chunk);
        let Some((offset, count)) = chunk.data else {
            self.zeros(inside, bands);
            return Ok(());
        };
        if layout.compression == Compression::Jpeg {
            let data = page.container.read(offset, count, "a JPEG")?;
            return self.jpeg(&data, &chunk, inside, bands);
        }
        let row_bytes = layout.row_bytes(layout.chunk.width) as usize;
        let (first, last) = (inside.y - chunk.y, inside.y - chunk.y + inside.height);
        // Rows that are not compressed are read alone.
        let (start, len) = match layout.compression {
            Compression::None => (u64::from(first) * row_bytes as u64, u64::from(inside.height) * row_bytes as u64),
            _ => (0, count),
        };
        let mut data = page.container.read(offset + start, len, "a strip or tile")?;
        if layout.is_bit_reversed {
            data.to_mut().iter_mut().for_each(|byte| *byte = byte.reverse_bits());
        }
        // The buffer is put back below; after an error a new one is made.
        let mut buffer = std::mem::take(&mut self.scratch.chunk);
        let mut order = page.container.order;
        let rows: &[u8] = if layout.compression == Compression::None {
            &data
        } else {
            let full_len = (last == chunk.rows).then_some(layout.chunk.height as usize * row_bytes);
            codecs::decode(layout.compression, &data, last as usize * row_bytes, full_len, &mut buffer)?;
            let rows = &mut buffer.bytes_mut()[first as usize * row_bytes..];
            let value_bytes = layout.stored.size_bytes();
            match layout.predictor {
                Predictor::None => {}
                Predictor::Difference => {
                    // Columns after the part are not needed.
                    let used = layout.row_bytes(inside.x - chunk.x + inside.width) as usize;
                    for row in rows.chunks_exact_mut(row_bytes) {
                        predictors::add_differences(&mut row[..used], value_bytes, layout.chunk_channels(), order);
                    }
                    order = ByteOrder::NATIVE;
                }
                Predictor::FloatingPoint => {
                    let scratch = &mut self.scratch.row;
                    grow(scratch, row_bytes)?;
                    for row in rows.chunks_exact_mut(row_bytes) {
                        predictors::join_floats(row, value_bytes, layout.chunk_channels(), &mut scratch[..row_bytes]);
                    }
                    order = ByteOrder::NATIVE;
                }
            }
            rows
        };
        self.rows(&chunk, inside, bands, rows, order)?;
        self.scratch.chunk = buffer;
        Ok(())
    }

    /// Writes rows that begin in the first column of a strip or tile and in the first row of `inside`.
    fn rows(
        &mut self,
        chunk: &Chunk,
        inside: Rect,
        bands: &[(usize, usize)],
        rows: &[u8],
        order: ByteOrder,
    ) -> Result<()> {
        let layout = &self.page.layout;
        let (channels, stored) = (layout.chunk_channels(), layout.stored);
        let row_bytes = layout.row_bytes(layout.chunk.width) as usize;
        let (left, width) = ((inside.x - chunk.x) as usize, inside.width as usize);
        let value_bytes = stored.size_bytes();
        let TiffScratch { row: unpacked, colors, .. } = &mut *self.scratch;
        if layout.is_packed() {
            grow(unpacked, (left + width) * channels * value_bytes)?;
        }
        for (y, row) in (inside.y - self.part.y..).zip(rows.chunks_exact(row_bytes)) {
            let places = Places {
                start: y as usize * self.part.width as usize + (inside.x - self.part.x) as usize,
                count: width,
                step: 1,
            };
            let mut pixels = StoredPixels { bytes: row, stored, order, channels };
            if layout.is_packed() {
                let to = &mut unpacked[..(left + width) * channels * value_bytes];
                match stored {
                    Stored::U8 => packed::unpack_bytes(row, layout.bits, to),
                    _ => packed::unpack_words(row, layout.bits, to),
                }
                (pixels.bytes, pixels.order) = (to, ByteOrder::NATIVE);
            }
            pixels.bytes = &pixels.bytes[left * channels * value_bytes..];
            if let Some(palette) = self.palette {
                grow(colors, 3 * width)?;
                let to = colors.as_chunks_mut::<3>().0.iter_mut();
                to.zip(pixels.bytes).for_each(|(to, index)| *to = palette[usize::from(*index)]);
                (pixels.bytes, pixels.channels) = (&colors[..3 * width], 3);
            }
            for (band, to) in bands {
                pixels.write(*band, self.out, *to, places);
            }
        }
        Ok(())
    }

    /// Writes the values of a strip or tile that is not stored.
    fn zeros(&mut self, inside: Rect, bands: &[(usize, usize)]) {
        let (part, color) = (self.part, self.palette.map(|palette| palette[0]));
        for (band, to) in bands {
            let value = color.map_or(0, |color| color[*band]);
            crate::with_element!(self.out.kind().element, T => {
                let plane = self.out.plane_mut::<T>(*to);
                for row in plane.chunks_exact_mut(part.width as usize).skip((inside.y - part.y) as usize).take(inside.height as usize) {
                    row[(inside.x - part.x) as usize..][..inside.width as usize].fill(T::from(value));
                }
            });
        }
    }

    /// Writes a strip or tile that is a JPEG.
    fn jpeg(&mut self, data: &[u8], chunk: &Chunk, inside: Rect, bands: &[(usize, usize)]) -> Result<()> {
        let layout = &self.page.layout;
        let file = jpeg::whole_file(self.tables, data, layout.color == Color::Ycc)?;
        let header = probe(&file)?;
        let channels = layout.chunk_channels();
        let (Size { width, height }, full) = (header.size, layout.chunk);
        if header.format != Format::Jpeg
            || usize::from(header.components) != channels
            || width != full.width
            || height > full.height
            || height < chunk.rows.min(inside.y - chunk.y + inside.height)
        {
            return Err(bad(format!(
                "a JPEG of {width} x {height} pixels and {} channels does not fit a strip or tile of {full} and {channels}",
                header.components
            )));
        }
        let image = &mut self.scratch.image;
        image.reserve(inside.size())?;
        let within = Rect { x: inside.x - chunk.x, y: inside.y - chunk.y, ..inside };
        self.decoder.decode(&file, &header, within, DecodeOptions::default(), image)?;
        for y in 0..inside.height {
            let (bytes, count) = (image.row(y).as_flattened(), inside.width as usize);
            let start = (inside.y - self.part.y + y) as usize * self.part.width as usize;
            let places = Places { start: start + (inside.x - self.part.x) as usize, count, step: 1 };
            let pixels = StoredPixels { bytes, stored: Stored::U8, order: ByteOrder::NATIVE, channels: 4 };
            for (band, to) in bands {
                pixels.write(*band, self.out, *to, places);
            }
        }
        Ok(())
    }
}

/// Makes room for `len` bytes.
fn grow(buffer: &mut Vec<u8>, len: usize) -> Result<()> {
    if buffer.len() < len {
        *buffer = memory::zeros(len, "a row of a TIFF", memory::FEWER_IMAGES)?;
    }
    Ok(())
}
