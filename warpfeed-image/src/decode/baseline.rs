//! Input of device decoders: a JPEG's headers, lowered to geometry and tables.
//!
//! An image whose headers libjpeg might read in another way is flagged, and goes to the CPU's decoder, which alone
//! decides whether it is bad.

use super::huffman::{Code, Definition, definitions};
use super::probe::{be16, next_marker};
use super::reason::Reason;
use super::{Format, Header, has_end};
use crate::raster::Size;
use std::cmp::Ordering;

/// Meaning of a pixel's components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaselineColor {
    /// Luma alone.
    Gray,
    /// Luma and two color differences.
    Ycc,
    /// Red, green and blue.
    Rgb,
}

/// One component of a [`Baseline`] image.
pub struct Component {
    /// Number of columns of blocks in an MCU.
    pub columns: u32,
    /// Number of rows of blocks in an MCU.
    pub rows: u32,
    /// Quantization steps, row by row.
    pub quant: [u16; 64],
    /// Code of the DC coefficients.
    pub dc: Code,
    /// Code of the AC coefficients.
    pub ac: Code,
}

/// A baseline image that a device may decode: the content of its headers, lowered to geometry and tables.
pub struct Baseline {
    /// Width and height.
    pub size: Size,
    /// Meaning of the components.
    pub color: BaselineColor,
    /// The components in the order of the data.
    pub components: Vec<Component>,
    /// Component of each block of an MCU, in the order of the data.
    pub block_components: Vec<usize>,
    /// Size of an MCU in pixels.
    pub mcu: Size,
    /// Number of MCUs in a row.
    pub mcu_columns: u32,
    /// Number of rows of MCUs.
    pub mcu_rows: u32,
    /// Number of rows of MCUs that libjpeg decodes at a time. It is above 1 only for a single component with a vertical
    /// sampling factor.
    pub mcu_rows_at_once: u32,
    /// Restart interval in MCUs; 0 without restarts.
    pub restart_interval_mcus: u32,
    /// Offset of the scan's data in the file.
    pub scan_offset_bytes: usize,
}

/// Place of the k-th coefficient in its block, row by row.
#[rustfmt::skip]
pub(crate) const ZIGZAG: [u8; 64] = [
     0,  1,  8, 16,  9,  2,  3, 10, 17, 24, 32, 25, 18, 11,  4,  5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13,  6,  7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// libjpeg's limits.
const MAX_SIDE_PX: u32 = 65_500;
const MAX_BLOCKS: usize = 10;

/// Largest size of a file, so that 32 bits can count the bits of its data.
const MAX_BYTES: usize = 1 << 28;

/// The segments before the scan, as far as they affect pixels.
struct Segments<'a> {
    quant: [Option<[u16; 64]>; 4],
    dc: [Option<Definition<'a>>; 4],
    ac: [Option<Definition<'a>>; 4],
    /// Each component's name, and the number of its quantization table.
    components: Vec<(u8, usize)>,
    /// Numbers of each component's Huffman tables.
    scan: Vec<(usize, usize)>,
}

impl Baseline {
    /// Lowers the headers of an image. `header` is the result of [`probe`](super::probe()) for these `bytes`.
    ///
    /// # Errors
    /// The reason why a device should not decode the image.
    pub fn new(bytes: &[u8], header: &Header) -> Result<Self, Reason> {
        let this = Self::of_head(bytes, header)?;
        if has_end(bytes, header) { Ok(this) } else { Err(Reason::NoEnd) }
    }

    /// Lowers the headers of an image, of which `bytes` need only have what comes before the scan's data.
    ///
    /// # Errors
    /// The reason why a device should not decode the image.
    pub fn of_head(bytes: &[u8], header: &Header) -> Result<Self, Reason> {
        match header.process {
            _ if header.format != Format::Jpeg => return Err(Reason::Format),
            0xC0 | 0xC1 => {}
            0xC2 => return Err(Reason::Progressive),
            _ => return Err(Reason::Process),
        }
        if header.precision_bits != 8 {
            return Err(Reason::Precision);
        }
        if header.is_draft() {
            return Err(Reason::Draft);
        }
        let color = match header.components {
            1 => BaselineColor::Gray,
            3 if header.rgb => BaselineColor::Rgb,
            3 => BaselineColor::Ycc,
            _ => return Err(Reason::Components),
        };
        let Size { width, height } = header.size;
        if width.max(height) > MAX_SIDE_PX || bytes.len() > MAX_BYTES {
            return Err(Reason::TooLarge);
        }
        let factors = &header.sampling[..header.components.into()];
        if factors.iter().any(|&(h, v)| !(1..=4).contains(&h) || !(1..=4).contains(&v)) {
            return Err(Reason::Sampling);
        }
        // If there is a single component, an MCU is one block, whatever its sampling factors are.
        let (in_mcu, mcu_rows_at_once) = match factors {
            [(_, v)] => ((1, 1), u32::from(*v)),
            [luma, (1, 1), (1, 1)] => (*luma, 1),
            _ => return Err(Reason::Sampling),
        };
        let segments = Segments::read(bytes, header)?;
        let components: Vec<Component> = (0..factors.len())
            .map(|c| {
                let (columns, rows) = if c == 0 { in_mcu } else { (1, 1) };
                segments.component(c, columns.into(), rows.into())
            })
            .collect::<Result<_, _>>()?;
        let block_components: Vec<usize> = components
            .iter()
            .enumerate()
            .flat_map(|(c, component)| std::iter::repeat_n(c, (component.columns * component.rows) as usize))
            .collect();
        if block_components.len() > MAX_BLOCKS {
            return Err(Reason::Sampling);
        }
        let mcu = Size::new(8 * u32::from(in_mcu.0), 8 * u32::from(in_mcu.1));
        Ok(Self {
            size: header.size,
            color,
            components,
            block_components,
            mcu,
            mcu_columns: width.div_ceil(mcu.width),
            mcu_rows: height.div_ceil(mcu.height),
            mcu_rows_at_once,
            restart_interval_mcus: header.restart_interval_mcus.into(),
            scan_offset_bytes: header.scan_offset_bytes,
        })
    }

    /// Number of blocks in an MCU.
    #[must_use]
    pub fn mcu_blocks(&self) -> usize {
        self.block_components.len()
    }

    /// Number of pixels that a sample of a component covers, to the right and downwards.
    #[must_use]
    pub fn pixels_a_sample(&self, component: &Component) -> (u32, u32) {
        (self.components[0].columns / component.columns, self.components[0].rows / component.rows)
    }
}

impl<'a> Segments<'a> {
    /// Reads the segments that [`probe`](super::probe()) has read.
    fn read(bytes: &'a [u8], header: &Header) -> Result<Self, Reason> {
        let mut this = Self {
            quant: [None; 4],
            dc: Default::default(),
            ac: Default::default(),
            components: Vec::new(),
            scan: Vec::new(),
        };
        let mut at = 2;
        while at < header.scan_offset_bytes {
            let (marker, start) = next_marker(bytes, at).ok_or(Reason::Header)?;
            at = start;
            if matches!(marker, 0x00 | 0x01 | 0xD0..=0xD7) {
                continue;
            }
            let len = be16(bytes, start).map_or(0, usize::from);
            let segment = bytes.get(start + 2..start + len).ok_or(Reason::Header)?;
            at = start + len;
            match marker {
                0xC0 | 0xC1 => {
                    let (entries, _) = segment.get(6..).ok_or(Reason::Header)?.as_chunks::<3>();
                    // Where samples lie in memory depends on the factors. A header of another image has others.
                    let factors = entries.iter().map(|entry| (entry[1] >> 4, entry[1] & 15));
                    if !factors.eq(header.sampling.into_iter().take(header.components.into())) {
                        return Err(Reason::Header);
                    }
                    this.components = entries.iter().map(|entry| (entry[0], entry[2].into())).collect();
                }
                0xC4 => this.define_codes(segment)?,
                0xDB => this.define_quant(segment).ok_or(Reason::Tables)?,
                0xDA => this.choose(segment)?,
                0xDD if segment.len() == 2 => {}
                // Shorter segments mean nothing to libjpeg, but might mean something to other decoders.
                0xE0 if segment.starts_with(b"JFIF\0") && segment.len() < 14 => return Err(Reason::Header),
                0xEE if segment.starts_with(b"Adobe") && segment.len() < 12 => return Err(Reason::Header),
                0xE0..=0xEF | 0xFE => {}
                _ => return Err(Reason::Header),
            }
        }
        Ok(this)
    }

    fn define_codes(&mut self, segment: &'a [u8]) -> Result<(), Reason> {
        for definition in definitions(segment) {
            let definition = definition.ok_or(Reason::Tables)?;
            let (class, number) = (definition.place >> 4, usize::from(definition.place & 15));
            let tables = match class {
                // libjpeg refuses such tables even if nothing uses them.
                _ if definition.symbols.len() > 256 => return Err(Reason::Tables),
                0 => &mut self.dc,
                1 => &mut self.ac,
                _ => return Err(Reason::Tables),
            };
            *tables.get_mut(number).ok_or(Reason::Tables)? = Some(definition);
        }
        Ok(())
    }

    fn define_quant(&mut self, mut segment: &[u8]) -> Option<()> {
        while let Some((&place, rest)) = segment.split_first() {
            let table = self.quant.get_mut(usize::from(place & 15))?.insert([0; 64]);
            let bytes_a_step = if place >> 4 == 0 { 1 } else { 2 };
            let (steps, rest) = rest.split_at_checked(64 * bytes_a_step)?;
            for (step, &to) in steps.chunks_exact(bytes_a_step).zip(&ZIGZAG) {
                table[usize::from(to)] = step.iter().fold(0, |value, &byte| value << 8 | u16::from(byte));
            }
            segment = rest;
        }
        Some(())
    }

    /// Reads the scan's header.
    fn choose(&mut self, segment: &[u8]) -> Result<(), Reason> {
        let (&count, rest) = segment.split_first().ok_or(Reason::Header)?;
        match usize::from(count).cmp(&self.components.len()) {
            Ordering::Less => return Err(Reason::SeveralScans),
            Ordering::Equal => {}
            Ordering::Greater => return Err(Reason::Header),
        }
        let (entries, parameters) = rest.split_at_checked(2 * self.components.len()).ok_or(Reason::Header)?;
        let named = |id| self.components.iter().filter(|component| component.0 == id).count();
        for (entry, &(id, _)) in entries.chunks_exact(2).zip(&self.components) {
            if entry[0] != id || named(id) != 1 {
                return Err(Reason::Header);
            }
            self.scan.push((usize::from(entry[1] >> 4), usize::from(entry[1] & 15)));
        }
        // The scan must have all 64 coefficients, with all of their bits.
        if parameters == [0, 63, 0] { Ok(()) } else { Err(Reason::Header) }
    }

    fn component(&self, index: usize, columns: u32, rows: u32) -> Result<Component, Reason> {
        let code = |tables: &[Option<Definition<'_>>; 4], number: usize, max_symbol| {
            let Definition { counts, symbols, .. } = tables.get(number)?.as_ref()?;
            symbols.iter().all(|&symbol| symbol <= max_symbol).then(|| Code::new(counts, symbols))?
        };
        let lowered = || {
            let (dc, ac) = *self.scan.get(index)?;
            Some(Component {
                columns,
                rows,
                quant: (*self.quant.get(self.components.get(index)?.1)?)?,
                dc: code(&self.dc, dc, 15)?,
                ac: code(&self.ac, ac, 255)?,
            })
        };
        lowered().ok_or(Reason::Tables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::probe;
    use crate::encode::{JpegColor, JpegOptions, encode_jpeg};
    use crate::raster::{Image, Size};

    #[test]
    fn what_is_no_plain_baseline_image_is_flagged() {
        let mut source = Image::new(Size::new(40, 30));
        for (i, pixel) in (0_u32..).zip(source.pixels_mut()) {
            *pixel = [i, i / 40, i / 7, 255].map(|value| value as u8);
        }
        let plain = JpegOptions::default();
        let good = encode_jpeg(&source, &plain).unwrap();
        let reason = |bytes: &[u8]| {
            let header = probe(bytes).unwrap();
            Baseline::new(bytes, &header).err()
        };
        assert_eq!(reason(&good), None);
        let encoded = |options| encode_jpeg(&source, &options).unwrap();
        assert_eq!(reason(&encoded(JpegOptions { progressive: true, ..plain.clone() })), Some(Reason::Progressive));
        for color in [JpegColor::Cmyk, JpegColor::Ycck] {
            assert_eq!(reason(&encoded(JpegOptions { color, ..plain.clone() })), Some(Reason::Components));
        }
        assert_eq!(reason(b"P5 2 1 255\nab"), Some(Reason::Format));
        assert_eq!(reason(&good[..good.len() - 2]), Some(Reason::NoEnd));

        let find = |marker: u8| good.windows(2).position(|pair| pair == [0xFF, marker]).unwrap();
        let (frame, scan, codes, quant) = (find(0xC0), find(0xDA), find(0xC4), find(0xDB));
        let changed = |changes: &[(usize, u8)]| {
            let mut bytes = good.clone();
            changes.iter().for_each(|&(at, value)| bytes[at] = value);
            reason(&bytes)
        };
        assert_eq!(changed(&[(frame + 1, 0xC9)]), Some(Reason::Process));
        assert_eq!(changed(&[(frame + 1, 0xC3)]), Some(Reason::Process));
        assert_eq!(changed(&[(frame + 4, 12)]), Some(Reason::Precision));
        assert_eq!(changed(&[(frame + 5, 0xFF), (frame + 6, 0xFE)]), Some(Reason::TooLarge));
        for factors in [0x12, 0x05, 0x00, 0x33] {
            // Luma: more blocks than an MCU may have, none, too many. Chroma: other factors than one.
            assert_eq!(changed(&[(frame + 11, factors), (frame + 14, 0x12)]), Some(Reason::Sampling));
        }
        assert_eq!(changed(&[(frame + 11, 0x33)]), Some(Reason::Sampling));
        // Changes of a component's name, the coefficients, their bits, and the tables.
        assert_eq!(changed(&[(scan + 5, 77)]), Some(Reason::Header));
        assert_eq!(changed(&[(scan + 12, 62)]), Some(Reason::Header));
        assert_eq!(changed(&[(scan + 13, 1)]), Some(Reason::Header));
        assert_eq!(changed(&[(scan + 6, 0x20)]), Some(Reason::Tables));
        assert_eq!(changed(&[(codes + 1, 0xFE)]), Some(Reason::Tables));
        assert_eq!(changed(&[(codes + 5, 3)]), Some(Reason::Tables));
        assert_eq!(changed(&[(quant + 1, 0xFE)]), Some(Reason::Tables));
        assert_eq!(changed(&[(quant + 1, 0xBF)]), Some(Reason::Header));
        // A scan with one component.
        let mut scans = good.clone();
        scans.splice(scan + 2..scan + 14, [0, 8, 1, 1, 0, 0, 63, 0]);
        assert_eq!(reason(&scans), Some(Reason::SeveralScans));
    }
}
