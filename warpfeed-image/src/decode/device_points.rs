//! Entry points for a decoder on a device: the known ones of a part of an image, and the learned ones. CPU and devices
//! share one store. A device also begins at starts between the entry points (`entry_point_starts`). Each stretch must
//! end at the bit where the next one starts, after as many MCUs as lie between, and with the DC coefficients of the
//! next entry point. Otherwise the points are not the image's, and the CPU decodes it. A device that learns reports the
//! bits of all MCUs, from the front on, and the DC coefficients at entry points.

use super::Header;
use super::baseline::Baseline;
use super::entry_point_starts;
use super::entry_point_store::{EntryPointStore, ImageKey};
use super::entry_points::{ImageEntryPoints, McuGrid};
use super::window::DecodeWindow;
use crate::raster::Rect;
use std::iter;

/// Knowledge of the places in a part of an image at which a device can begin.
#[derive(Debug)]
pub enum DevicePoints {
    /// Nothing is known, and nothing can be learned.
    Nothing,
    /// The places are in the memory that was handed over.
    Known,
    /// The places are to be learned.
    New(NewPoints),
}

/// MCUs of a row that one thread decodes. Numbers of MCUs count from the window's first row on, bits from the start of
/// the window's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownStretch {
    /// Bit of the first MCU.
    pub bit: u32,
    /// Bit at which the last MCU ends.
    pub end_bit: u32,
    /// Number of the first MCU.
    pub mcu: u32,
    /// Number of MCUs.
    pub mcus: u32,
    /// Whether the last MCU may end up to seven bits earlier, because a restart marker follows.
    pub is_padded: bool,
}

/// MCUs from an entry point on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownSums {
    /// Number of the first MCU, as in [`KnownStretch`].
    pub mcu: u32,
    /// Number of MCUs.
    pub mcus: u32,
    /// Each component's last DC coefficient before the first MCU.
    pub dc: [i16; 4],
    /// Each component's last DC coefficient after the last MCU, if it is known.
    pub end_dc: Option<[i16; 4]>,
}

/// The encoded bytes of an image that a device decodes.
#[derive(Debug, Clone, Copy)]
pub enum DeviceBytes<'a> {
    /// In the host's memory, from where a window's data are copied to the device.
    Window(&'a [u8]),
    /// In the host's memory, from where all data are copied to the device.
    Whole(&'a [u8]),
    /// All data are on the device.
    OnDevice {
        /// Number of bytes of the file.
        len_bytes: usize,
        /// What [`PointMemory::key`] was after the image's points were looked for in the file's bytes.
        key: Option<ImageKey>,
    },
}

/// Data that are all on a device are read from a multiple of so many bytes.
const ALIGN_BYTES: usize = 16;

impl<'a> DeviceBytes<'a> {
    /// The bytes of the file, if they are in the host's memory.
    fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Window(bytes) | Self::Whole(bytes) => Some(bytes),
            Self::OnDevice { .. } => None,
        }
    }

    fn len_bytes(self) -> usize {
        match self {
            Self::Window(bytes) | Self::Whole(bytes) => bytes.len(),
            Self::OnDevice { len_bytes, .. } => len_bytes,
        }
    }
}

/// Memory for the places of one image, which is reused.
#[derive(Debug, Default)]
pub struct PointMemory {
    entries: ImageEntryPoints,
    /// The key under which the store has the image's points.
    pub key: Option<ImageKey>,
    /// The stretches of a part whose places are known.
    pub stretches: Vec<KnownStretch>,
    /// The entry points of such a part.
    pub sums: Vec<KnownSums>,
}

/// Places that a device is to find out.
#[derive(Debug, Clone, Copy)]
pub struct NewPoints {
    key: ImageKey,
    grid: McuGrid,
    scan_offset_bytes: usize,
    /// Number of rows of MCUs whose places are found out.
    rows: u32,
}

impl DevicePoints {
    /// Looks for the known points of the rectangle `part` of an image. Returns them with the rectangle's window.
    /// `starts` is memory for an index of rows.
    #[must_use]
    pub fn find(
        store: Option<&EntryPointStore>,
        (image, encoded, header): (&Baseline, DeviceBytes<'_>, &Header),
        part: Rect,
        memory: &mut PointMemory,
        starts: &mut Vec<usize>,
    ) -> (DecodeWindow, Self) {
        let found = store.and_then(|store| {
            let grid = McuGrid::new(header)?;
            let key = match encoded {
                DeviceBytes::Window(bytes) | DeviceBytes::Whole(bytes) => store.key(bytes, header, &grid)?,
                DeviceBytes::OnDevice { key, .. } => key?,
            };
            Some((store, grid, key))
        });
        memory.key = found.as_ref().map(|(_, _, key)| *key);
        let indexed = |starts| {
            let window = match encoded {
                DeviceBytes::Window(bytes) => DecodeWindow::new(image, bytes, header, part, starts),
                DeviceBytes::Whole(_) | DeviceBytes::OnDevice { .. } => {
                    DecodeWindow::from_front(image, encoded.len_bytes(), part)
                }
            };
            (window, Self::Nothing)
        };
        let Some((store, grid, key)) = found else { return indexed(starts) };
        let answer = store.get(&key, header, &grid, &mut memory.entries);
        let mut window = DecodeWindow::from_front(image, encoded.len_bytes(), part);
        let entries = &memory.entries;
        // If the CPU has kept entry points alone, a device finds out starts once.
        let has_starts = !entries.starts.is_empty() || store.learned_step(&grid) == grid.step();
        let lacks_starts = answer.is_known && answer.has_room && entries.rows > 0 && !has_starts;
        if !lacks_starts
            && entries.rows >= window.rows.end
            && memory.read((image, encoded, header), &grid, &mut window).is_some()
        {
            return (window, Self::Known);
        }
        if !answer.can_learn && !lacks_starts {
            return indexed(starts);
        }
        // An index is enough the first time, because an image may be decoded only once.
        if !answer.is_known && header.row_index.is_some() {
            store.put(key, header, &grid, (&[], grid.step()), false);
            return indexed(starts);
        }
        let row_blocks = image.mcu_columns as usize * image.mcu_blocks();
        if answer.is_known {
            window.checked.end = grid.rows as usize * row_blocks;
        }
        let rows = (window.checked.end / row_blocks) as u32;
        (window, Self::New(NewPoints { key, grid, scan_offset_bytes: header.scan_offset_bytes, rows }))
    }
}

impl PointMemory {
    /// Finds the stretches of a window, and limits the window to them. `None` if the points cannot be those of the
    /// image.
    fn read(
        &mut self,
        (image, encoded, header): (&Baseline, DeviceBytes<'_>, &Header),
        grid: &McuGrid,
        window: &mut DecodeWindow,
    ) -> Option<()> {
        let Self { entries, stretches, sums, .. } = self;
        let ImageEntryPoints { points, step, a_row, .. } = &*entries;
        let (columns, rows) = (window.columns.clone(), window.rows.clone());
        let needed = columns.start / step..columns.end.div_ceil(*step);
        let mut begin_byte = points.get((rows.start * a_row + needed.start) as usize)?.byte();
        if !matches!(encoded, DeviceBytes::Window(_)) {
            begin_byte -= begin_byte.checked_sub(header.scan_offset_bytes)? % ALIGN_BYTES;
        }
        let begin_bit = 8 * begin_byte as u32;
        let restart_rows = u32::from(header.restart_interval_mcus) / grid.columns;
        stretches.clear();
        sums.clear();
        entry_point_starts::each(entries, grid, rows.clone(), |at, start| {
            let (row, number) = (at as u32 / a_row - rows.start, at as u32 % a_row);
            if !needed.contains(&number) {
                return;
            }
            let (point, next) = (points[at], points[at + 1]);
            let mcu = row * grid.columns + start.column;
            if start.column > number * step
                && let (Some(last), Some(sum)) = (stretches.last_mut(), sums.last_mut())
            {
                if mcu < last.mcu + last.mcus {
                    *last = KnownStretch {
                        end_bit: start.bit - begin_bit,
                        mcus: mcu - last.mcu,
                        is_padded: false,
                        ..*last
                    };
                }
                if start.column >= columns.end {
                    // Nothing is decoded from here on, so the last DC coefficients are not known.
                    *sum = KnownSums { mcus: sum.mcus.min(mcu - sum.mcu), end_dc: None, ..*sum };
                    return;
                }
            }
            let end = (number * step + step).min(grid.columns);
            let ended_rows = if end == grid.columns { rows.start + row + 1 } else { 0 };
            let is_padded = restart_rows > 0 && (1..grid.rows).contains(&ended_rows) && ended_rows % restart_rows == 0;
            let (bit, end_bit, mcus) = (start.bit - begin_bit, next.bit - begin_bit, end - start.column);
            stretches.push(KnownStretch { bit, end_bit, mcu, mcus, is_padded });
            if start.column == number * step {
                sums.push(KnownSums { mcu, mcus, dc: point.dc, end_dc: Some(next.dc).filter(|_| !is_padded) });
            }
        })?;
        let mut end_byte = begin_byte + (stretches.last()?.end_bit as usize).div_ceil(8);
        // If the last byte is 0xFF, the other half of a stuffed byte would be missing.
        end_byte += match encoded.bytes() {
            Some(bytes) => usize::from(bytes.get(end_byte.checked_sub(1)?) == Some(&0xFF)),
            None => usize::from(end_byte < encoded.len_bytes()),
        };
        if !(begin_byte..=encoded.len_bytes()).contains(&end_byte) {
            return None;
        }
        window.data = begin_byte..end_byte;
        let row_blocks = grid.columns as usize * image.mcu_blocks();
        window.checked = rows.start as usize * row_blocks..rows.end as usize * row_blocks;
        window.first_restart = rows.start.checked_div(restart_rows).unwrap_or(0);
        Some(())
    }
}

impl NewPoints {
    /// Number of MCUs whose bits are found out, without the one after the last.
    #[must_use]
    pub fn mcus(&self) -> usize {
        self.rows as usize * self.grid.columns as usize
    }

    /// Number of MCUs from one entry point to the next. Each row begins with an entry point.
    #[must_use]
    pub fn step(&self) -> u32 {
        self.grid.step()
    }

    /// Number of entry points, with the one after the last MCU.
    #[must_use]
    pub fn points(&self) -> usize {
        self.rows as usize * self.grid.columns.div_ceil(self.step()) as usize + 1
    }

    /// Stores the points. `bits` are those of all MCUs, and of the end of the last one, from the start of the data on.
    /// `dc` are the DC coefficients of each point.
    pub fn store(&self, store: &EntryPointStore, bits: impl Iterator<Item = u32>, dc: impl Iterator<Item = [i16; 4]>) {
        let first_bit = 8 * self.scan_offset_bytes as u32;
        let bits: Vec<u32> = bits.map(|bit| bit.wrapping_add(first_bit)).collect();
        let is_final = self.rows == self.grid.rows;
        store.put_places(self.key, self.scan_offset_bytes, &self.grid, (&bits, dc), is_final);
    }

    /// Stores that there are no points to be learned, because the data have bytes without a meaning.
    pub fn store_none(&self, store: &EntryPointStore) {
        store.put_places(self.key, self.scan_offset_bytes, &self.grid, (&[], iter::empty()), true);
    }
}
