//! Lossless JPEG with 8 bits a sample (ITU T.81, process 14), with libjpeg-turbo's pixels.

use super::Header;
use super::huffman::{Code, Definition, definitions};
use super::inks::inks_to_rgb;
use super::probe::{be16, next_marker};
use crate::error::{Error, Result};
use crate::memory;
use crate::raster::{Image, Rect, Size};

/// The value of the first sample's neighbor and of all missing samples: half of the range.
const GRAY: u8 = 128;

/// Decodes the whole image and keeps `part` of it.
pub(super) fn decode(bytes: &[u8], header: &Header, part: Rect, accept_truncated: bool, out: &mut Image) -> Result<()> {
    let components = read(bytes, header.size, accept_truncated)?;
    out.reset_part(header.size, part);
    // Pillow too shows nothing if a whole component is missing.
    let complete = components.iter().all(|component| component.read);
    for y in 0..part.height {
        let row = out.row_mut(y);
        row.fill([0, 0, 0, 255]);
        if !complete {
            continue;
        }
        for (c, component) in components.iter().enumerate() {
            let from = &component.samples[(part.y + y) as usize / component.rows_a_sample * component.size.0..];
            for (pixel, x) in row.iter_mut().zip(part.x as usize..) {
                pixel[c] = from[x / component.columns_a_sample];
            }
        }
        match components.len() {
            1 => row.iter_mut().for_each(|pixel| *pixel = [pixel[0], pixel[0], pixel[0], 255]),
            4 => inks_to_rgb(row),
            _ => {}
        }
    }
    Ok(())
}

struct LosslessComponent {
    id: u8,
    /// Columns and rows of samples in an MCU, if there are several components.
    factors: (usize, usize),
    /// Number of pixels that a sample covers, to the right and downwards.
    columns_a_sample: usize,
    rows_a_sample: usize,
    /// Width and height in samples.
    size: (usize, usize),
    samples: Vec<u8>,
    /// Whether the component's scan has been read.
    read: bool,
}

/// Walks the segments and decodes the scans.
fn read(bytes: &[u8], size: Size, accept_truncated: bool) -> Result<Vec<LosslessComponent>> {
    let mut components = Vec::new();
    let mut tables: [Option<Code>; 4] = Default::default();
    let mut restart_interval = 0;
    let (mut jfif, mut adobe_transform) = (false, 0);
    let mut at = 2;
    while let Some((marker, start)) = next_marker(bytes, at) {
        if matches!(marker, 0x00 | 0x01 | 0xD0..=0xD7) {
            at = start;
            continue;
        }
        let len = be16(bytes, start).map_or(0, usize::from);
        let Some(segment) = bytes.get(start + 2..start + len) else { break };
        at = start + len;
        match marker {
            0xD9 => break,
            0xC3 if components.is_empty() => components = frame(segment, size)?,
            0xC4 => define_tables(segment, &mut tables).ok_or_else(|| bad("a Huffman table is impossible"))?,
            0xC0..=0xCF => return Err(bad("a second frame header")),
            0xDD => restart_interval = be16(segment, 0).map_or(0, usize::from),
            0xE0 if segment.starts_with(b"JFIF\0") => jfif = true,
            0xEE if segment.starts_with(b"Adobe") => adobe_transform = segment.get(11).copied().unwrap_or(0),
            0xDA => {
                if adobe_transform != 0 && components.len() > 1 || jfif && components.len() == 3 {
                    return Err(bad("lossless coding of other colors than RGB and CMYK is not supported: convert it"));
                }
                let scan = LosslessScan::new(segment, &mut components, &tables, restart_interval)?;
                at += scan.decode(&bytes[at..], size, accept_truncated)?;
                if components.iter().all(|component| component.read) {
                    return Ok(components);
                }
            }
            _ => {}
        }
    }
    if components.is_empty() || !accept_truncated {
        return Err(bad("truncated: the data end before the image is complete"));
    }
    Ok(components)
}

fn bad(message: &str) -> Error {
    Error::decode("JPEG", message)
}

/// The frame header's components. `probe` has checked the header's length, and that no side is empty.
fn frame(segment: &[u8], size: Size) -> Result<Vec<LosslessComponent>> {
    let factors = |entry: &[u8]| (usize::from(entry[1] >> 4), usize::from(entry[1] & 15));
    let (entries, _) = segment[6..].as_chunks::<3>();
    let (mut most_columns, mut most_rows) = (1, 1);
    for (columns, rows) in entries.iter().map(|entry| factors(entry)) {
        if !(1..=4).contains(&columns) || !(1..=4).contains(&rows) {
            return Err(bad("a sampling factor is not 1 to 4"));
        }
        (most_columns, most_rows) = (most_columns.max(columns), most_rows.max(rows));
    }
    let component = |entry: &[u8; 3]| {
        let (columns, rows) = factors(entry);
        if !most_columns.is_multiple_of(columns) || !most_rows.is_multiple_of(rows) {
            return Err(bad("sampling factors that do not divide each other are not supported: convert it"));
        }
        let width = (size.width as usize * columns).div_ceil(most_columns);
        let height = (size.height as usize * rows).div_ceil(most_rows);
        Ok(LosslessComponent {
            id: entry[0],
            factors: (columns, rows),
            columns_a_sample: most_columns / columns,
            rows_a_sample: most_rows / rows,
            size: (width, height),
            samples: zeros(width * height)?,
            read: false,
        })
    };
    entries.iter().map(component).collect()
}

fn zeros<T: bytemuck::Zeroable>(len: usize) -> Result<Vec<T>> {
    memory::zeros(len, "a lossless JPEG decoder", memory::FEWER_IMAGES)
}

/// Reads Huffman tables. `None` if a table is invalid. Tables for AC coefficients may occur, but have no meaning here.
fn define_tables(segment: &[u8], tables: &mut [Option<Code>; 4]) -> Option<()> {
    for definition in definitions(segment) {
        let Definition { place, counts, symbols } = definition?;
        if place >> 4 == 1 {
            continue;
        }
        let code = Code::new(counts, symbols)?;
        if symbols.iter().any(|&symbol| symbol > 16) {
            return None;
        }
        *tables.get_mut(usize::from(place))? = Some(code);
    }
    Some(())
}

struct LosslessScan<'a> {
    /// Components in their order, each with its table. If there is a single component, an MCU is one sample.
    components: Vec<(&'a mut LosslessComponent, (usize, usize), &'a Code)>,
    predictor: u8,
    /// Number of low bits that are cut off.
    shift: u8,
    restart_interval: usize,
}

impl<'a> LosslessScan<'a> {
    fn new(
        segment: &[u8],
        components: &'a mut [LosslessComponent],
        tables: &'a [Option<Code>; 4],
        restart_interval: usize,
    ) -> Result<Self> {
        let (Some(&count), Some(&[predictor, _, shift])) = (segment.first(), segment.last_chunk::<3>()) else {
            return Err(bad("a scan's header is too short"));
        };
        let entries = segment.get(1..1 + 2 * usize::from(count)).unwrap_or_default();
        if entries.is_empty() || segment.len() != entries.len() + 4 || !(1..=7).contains(&predictor) || shift > 7 {
            return Err(bad("a scan's header is impossible"));
        }
        let mut chosen = Vec::new();
        for component in components {
            // As in libjpeg, components come in the frame's order.
            if let Some(entry) = entries.chunks_exact(2).find(|entry| entry[0] == component.id) {
                let table = tables.get(usize::from(entry[1] >> 4)).and_then(Option::as_ref);
                let factors = if count == 1 { (1, 1) } else { component.factors };
                chosen.push((component, factors, table.ok_or_else(|| bad("a Huffman table is missing"))?));
            }
        }
        if chosen.len() != usize::from(count) || chosen.iter().any(|(component, ..)| component.read) {
            return Err(bad("a scan has components that the image has not, or has had"));
        }
        Ok(Self { components: chosen, predictor, shift, restart_interval })
    }

    /// Reads the scan's data and returns the number of its bytes.
    fn decode(mut self, data: &[u8], size: Size, accept_truncated: bool) -> Result<usize> {
        let (columns, rows) = match &self.components[..] {
            [(component, ..)] => component.size,
            [(component, factors, _), ..] => {
                let (h, v) = (component.columns_a_sample * factors.0, component.rows_a_sample * factors.1);
                ((size.width as usize).div_ceil(h), (size.height as usize).div_ceil(v))
            }
            [] => unreachable!("a scan has a component"),
        };
        if !self.restart_interval.is_multiple_of(columns) {
            return Err(bad("the restart interval is not a number of whole rows"));
        }
        let restart_rows = self.restart_interval / columns;
        let mut bits = BitReader { data, at: 0, bits: 0, valid: 0, short: false, wrong: false };
        // For each component: the differences of a row of MCUs, and the last row of samples, before the shift.
        let mut differences: Vec<Vec<i32>> = Vec::new();
        let mut above: Vec<Vec<u16>> = Vec::new();
        for (component, (h, v), _) in &self.components {
            differences.push(zeros(columns * h * v)?);
            above.push(zeros(component.size.0)?);
        }
        for row in 0..rows {
            let restarts = restart_rows > 0 && row > 0 && row % restart_rows == 0;
            if restarts {
                bits.restart(row / restart_rows - 1);
            }
            let missing = bits.short;
            if !missing {
                for column in 0..columns {
                    for ((_, (h, v), table), differences) in self.components.iter().zip(&mut differences) {
                        for sample in 0..h * v {
                            let at = (sample / h * columns + column) * h + sample % h;
                            differences[at] = bits.difference(table);
                        }
                    }
                }
            }
            if (bits.short || bits.wrong) && !accept_truncated {
                return Err(bad("damaged or truncated: pixels are missing or wrong"));
            }
            let (predictor, shift) = (self.predictor, self.shift);
            for (c, (component, (h, v), _)) in self.components.iter_mut().enumerate() {
                let width = component.size.0;
                for line in 0..*v {
                    let first = line == 0 && (row == 0 || restarts);
                    let Some(to) = component.samples.chunks_exact_mut(width).nth(row * *v + line) else { break };
                    if missing {
                        to.fill(GRAY);
                    } else {
                        let differences = &differences[c][line * columns * *h..][..width];
                        undo(differences, &mut above[c], if first { None } else { Some(predictor) }, shift);
                        to.iter_mut().zip(&above[c]).for_each(|(to, value)| *to = (value << shift) as u8);
                    }
                }
            }
        }
        self.components.iter_mut().for_each(|(component, ..)| component.read = true);
        Ok(bits.at)
    }
}

/// Replaces the row above by the next row: predictions plus differences, modulo 2^16. `predictor` is `None` in the
/// first row, which has only left neighbors.
fn undo(differences: &[i32], above: &mut [u16], predictor: Option<u8>, shift: u8) {
    let mut left = match predictor {
        None => i32::from(GRAY >> shift),
        Some(_) => i32::from(above[0]),
    };
    let mut corner = 0;
    for (x, (difference, above)) in differences.iter().zip(above).enumerate() {
        let over = i32::from(*above);
        let prediction = match predictor {
            _ if x == 0 => left,
            None | Some(1) => left,
            Some(2) => over,
            Some(3) => corner,
            Some(4) => left + over - corner,
            Some(5) => left + ((over - corner) >> 1),
            Some(6) => over + ((left - corner) >> 1),
            Some(_) => (left + over) >> 1,
        };
        corner = over;
        *above = (prediction + difference) as u16;
        left = i32::from(*above);
    }
}

/// Entropy-coded data, read bit by bit. Zeros follow a marker and the end.
struct BitReader<'a> {
    data: &'a [u8],
    at: usize,
    /// Left-aligned bits, with zeros after the valid ones.
    bits: u64,
    valid: u32,
    /// Whether more bits were asked for than there are.
    short: bool,
    /// Whether a code did not exist.
    wrong: bool,
}

impl BitReader<'_> {
    fn fill(&mut self) {
        while self.valid <= 56 {
            let Some(&byte) = self.data.get(self.at) else { return };
            let mut next = self.at + 1;
            if byte == 0xFF {
                next += self.data[next..].iter().take_while(|&&byte| byte == 0xFF).count();
                if self.data.get(next) != Some(&0) {
                    return;
                }
                next += 1;
            }
            self.at = next;
            self.bits |= u64::from(byte) << (56 - self.valid);
            self.valid += 8;
        }
    }

    fn take(&mut self, count: u32) -> u32 {
        let taken = (self.bits >> 32 >> (32 - count)) as u32;
        self.bits <<= count;
        self.short |= count > self.valid;
        self.valid = self.valid.saturating_sub(count);
        taken
    }

    /// Reads one difference: a code for its length in bits, then these bits. A code that does not exist has 17 bits and
    /// means 0.
    fn difference(&mut self, table: &Code) -> i32 {
        if self.valid < 33 {
            self.fill();
        }
        let Some((len, symbol)) = table.symbol(self.bits) else {
            self.wrong = true;
            self.take(17);
            return 0;
        };
        self.take(len);
        match u32::from(symbol) {
            0 => 0,
            16 => 32768,
            size => {
                let bits = self.take(size) as i32;
                if bits >> (size - 1) == 0 { bits + 1 - (1 << size) } else { bits }
            }
        }
    }

    /// Skips the marker between two segments. If it is not the marker that is due, all data after it are missing.
    fn restart(&mut self, count: usize) {
        (self.bits, self.valid) = (0, 0);
        match next_marker(self.data, self.at) {
            Some((marker, start)) if usize::from(marker) == 0xD0 + count % 8 => {
                self.at = start;
                self.short = false;
            }
            _ => self.short = true,
        }
    }
}
