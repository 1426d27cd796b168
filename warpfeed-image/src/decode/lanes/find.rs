//! Finding entry points with lanes, in an image that has no known ones.
//!
//! A lane that begins anywhere in the data soon comes to a place that a decoder from the front comes to as well, and
//! goes on as it does. So the data are cut into stretches of equal length. Each lane begins at its stretch as if an MCU
//! began there, walks to the stretch's end, and notes where MCUs begin. Then it goes on until an MCU begins where the
//! lane of that stretch has noted one too: from there on both have the same way. The first lane begins at the right
//! place, so what it does is right, and so is the way of each lane that is met, from the place of the meeting on. Sums
//! of MCUs and of DC differences along this way give the entry points. `kernels/jpeg_sync.cu` finds places in the same
//! manner, with more and shorter stretches.
//!
//! Nothing is decided here about damage: if the way has a code that does not exist, or if it ends too early, nothing is
//! found, and the image is decoded from its front. A wrong guess finds nothing out about the image.

use super::x86::{LANES, PerLane, Vectors};
use super::{BEFORE_DC, END_OF_BLOCK, LOOK_BITS, Lanes, PAD_BYTES, entry};
use crate::decode::Header;
use crate::decode::entry_points::{EntryPoint, MAX_BYTES, McuGrid};
use crate::decode::huffman::Code;

/// Tables of a component: one for DC codes, one for AC codes, and one for as many AC codes as fit.
pub(super) const TABLES: u32 = 3;
/// Largest sum by which the codes of a look-up may advance the index before the last of them.
const SEVERAL: u16 = 15;
/// Last index at which several codes may be looked up at once: none but the last of them can end the block.
pub(super) const SEVERAL_UNTIL: i32 = 62 - SEVERAL as i32;

/// Number of the bits of a word of four bytes that lanes have, wherever in the first byte they begin.
pub(super) const WORD_BITS: i32 = 25;

/// Least number of bytes, for each block of an MCU, for which lanes pay. The more blocks an MCU has, the longer a lane
/// takes to find out which of them it is in.
const MIN_BYTES_A_BLOCK: usize = 5 << 10;
/// Least number of lanes that pay, and of bytes of a stretch.
const MIN_LANES: usize = 8;
const MIN_STRETCH_BYTES: usize = 512;
/// Number of bits before its stretch at which a lane begins, for each block of an MCU, so that it mostly is on the right
/// way in its stretch.
const WARM_UP_BITS: u32 = 250;
/// Largest number of bytes that are walked through at a time.
const MAX_ROUND_BYTES: usize = 1 << 18;
/// Number of bytes after those, into which the last lanes go on. They hold an MCU of a photograph.
const TAIL_BYTES: usize = 1 << 12;
/// Number of bits that may be walked through one after the other, and an eighth of the data more. If it takes more, lanes
/// find no right places in these data.
const MAX_ALONE_BITS: u32 = 1 << 15;
/// Number of MCUs that are expected at a time, and number of places that are noted: twice as many, because a lane that
/// has begun at a wrong place may find more.
const ROUND_MCUS: usize = 1 << 14;
const MAX_NOTES: usize = 1 << 15;

/// The beginning of an MCU.
#[derive(Debug, Clone, Copy, Default)]
struct McuStart {
    bit: u32,
    /// Sums of DC differences: of the first two components in 16 bits each, and of the third one.
    dc: [u32; 2],
}

/// Beginnings of MCUs in the order in which the lanes come to them.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) bits: Vec<u32>,
    /// As in [`McuStart`], with the lane's number in the upper half of the second number.
    pub(super) dc: [Vec<u32>; 2],
    pub(super) len: usize,
}

impl Notes {
    /// Whether another step of all lanes may find no room.
    pub(super) fn is_full(&self) -> bool {
        self.len > MAX_NOTES
    }

    /// Forgets all notes. `None` if there is no memory for new ones.
    fn clear(&mut self) -> Option<()> {
        self.len = 0;
        let [first, second] = &mut self.dc;
        for notes in [&mut self.bits, first, second] {
            let len = MAX_NOTES + 4 * LANES;
            notes.try_reserve_exact(len.saturating_sub(notes.len())).ok()?;
            notes.resize(len, 0);
        }
        Some(())
    }
}

/// Lanes that look for MCUs. The first ones are walking.
pub(super) struct Scouts {
    /// As in `LaneStates`.
    pub(super) bit: PerLane<u32>,
    pub(super) index: PerLane<i32>,
    pub(super) number: PerLane<u32>,
    /// As in [`Notes`].
    pub(super) dc: [PerLane<u32>; 2],
    /// A lane stops at the first MCU that begins at or after this bit.
    pub(super) end: PerLane<u32>,
    pub(super) live: usize,
}

impl Scouts {
    fn new() -> Self {
        let zeros = || PerLane([0; LANES]);
        Self {
            bit: zeros(),
            index: PerLane([BEFORE_DC; LANES]),
            number: zeros(),
            dc: [zeros(), zeros()],
            end: zeros(),
            live: 0,
        }
    }

    /// Adds a lane at the beginning of an MCU.
    fn add(&mut self, lane: usize, bit: u32, end: u32) {
        let to = self.live;
        self.bit.0[to] = bit;
        (self.index.0[to], self.number.0[to]) = (BEFORE_DC, 0);
        (self.dc[0].0[to], self.dc[1].0[to]) = (0, (lane as u32) << 16);
        self.end.0[to] = end;
        self.live += 1;
    }

    /// Removes a lane that has come to its end.
    fn remove(&mut self, at: usize) {
        self.live -= 1;
        let last = self.live;
        self.bit.0[at] = self.bit.0[last];
        self.index.0[at] = self.index.0[last];
        self.number.0[at] = self.number.0[last];
        self.dc.iter_mut().for_each(|dc| dc.0[at] = dc.0[last]);
        self.end.0[at] = self.end.0[last];
    }
}

/// Memory for finding entry points, which is reused for the next image.
pub(super) struct Finder {
    /// [`MIN_BYTES_A_BLOCK`] and [`MIN_STRETCH_BYTES`], but less in tests.
    pub(super) bytes_a_block: usize,
    pub(super) stretch_bytes: usize,
    /// The tables of each component.
    pub(super) tables: Vec<u16>,
    /// The codes that each component's tables are for.
    made: Vec<Option<[Code; 2]>>,
    notes: Notes,
    /// Places in the file of the zeros that are no data.
    stuffed: Vec<usize>,
    /// The notes, lane by lane.
    starts: Vec<McuStart>,
}

/// A code that does not exist, with the lane that has met it, and its place.
pub(super) type BadCode = (usize, u32);

/// The part of the data that is walked through at a time.
struct Round {
    /// The place in the file of the first byte.
    from: usize,
    /// Number of bits from which lanes begin, and of all bits.
    bits: u32,
    all_bits: u32,
}

/// A place to go on from.
struct Front {
    /// Bit in the file, as in an entry point, and the last DC coefficients.
    point: EntryPoint,
    /// Number of MCUs before it.
    mcu: usize,
}

/// Finds the entry points of the first `rows` rows of MCUs, `step` MCUs apart, and of the end of these rows. Returns
/// false if they cannot be found, or if it does not pay.
pub(in crate::decode) fn find(
    lanes: &mut Lanes,
    bytes: &[u8],
    header: &Header,
    grid: &McuGrid,
    (rows, step): (u32, u32),
    points: &mut Vec<EntryPoint>,
) -> bool {
    points.clear();
    let mut finder = std::mem::take(&mut lanes.finder);
    let found = finder.find(lanes, bytes, header, grid, (rows, step), points);
    lanes.finder = finder;
    found.is_some()
}

impl Default for Finder {
    fn default() -> Self {
        Self {
            bytes_a_block: MIN_BYTES_A_BLOCK,
            stretch_bytes: MIN_STRETCH_BYTES,
            tables: Vec::new(),
            made: Vec::new(),
            notes: Notes::default(),
            stuffed: Vec::new(),
            starts: Vec::new(),
        }
    }
}

impl Finder {
    fn find(
        &mut self,
        lanes: &mut Lanes,
        bytes: &[u8],
        header: &Header,
        grid: &McuGrid,
        (rows, step): (u32, u32),
        points: &mut Vec<EntryPoint>,
    ) -> Option<()> {
        let data_bytes = bytes.len().checked_sub(header.scan_offset_bytes)?;
        let share = |of: usize| (of as u64 * u64::from(rows) / u64::from(grid.rows)) as usize;
        if header.restart_interval_mcus != 0 || bytes.len() > MAX_BYTES || share(data_bytes) < self.bytes_a_block {
            return None;
        }
        lanes.make_tables(bytes, header)?;
        if share(data_bytes) < self.bytes_a_block * lanes.components.len() {
            return None;
        }
        self.make_tables(lanes)?;
        let [all_mcus, mcus] = [grid.rows, rows].map(|rows| rows as usize * grid.columns as usize);
        let mut wanted =
            Wanted { columns: grid.columns as usize, step: step as usize, rows: rows as usize, row: 0, column: 0 };
        let start = EntryPoint { bit: u32::try_from(8 * header.scan_offset_bytes).ok()?, dc: [0; 4] };
        let mut front = Front { point: start, mcu: 0 };
        loop {
            let left = bytes.len().checked_sub(front.point.byte())?;
            let (mcus_left, mcus) = (all_mcus - front.mcu, mcus - front.mcu);
            let mcus = mcus.min(ROUND_MCUS);
            // Where the data of the wanted MCUs are expected to end, and some more.
            let expected = (left as u64 * mcus as u64 / mcus_left as u64) as usize;
            let expected = (expected + expected / 32 + 256).min(MAX_ROUND_BYTES);
            let len = if left.saturating_sub(expected) < left / 32 && left < MAX_ROUND_BYTES { left } else { expected };
            if self.round(lanes, bytes, len, &mut front, &mut wanted, points)? {
                return Some(());
            }
        }
    }

    /// Makes the tables for an image whose other tables are made. `None` if all components of an MCU have the same
    /// codes: a lane could not find out which of them it is in.
    fn make_tables(&mut self, lanes: &Lanes) -> Option<()> {
        const TABLE: usize = 1 << LOOK_BITS;
        let count = lanes.planes.len();
        let codes = |component: usize| &lanes.codes[2 * component..2 * component + 2];
        let len = TABLES as usize * TABLE * count + 2;
        self.tables.try_reserve(len.saturating_sub(self.tables.len())).ok()?;
        self.tables.resize(len, 0);
        for component in 0..count {
            if lanes.same[component] != component
                || self
                    .made
                    .get(component)
                    .is_some_and(|made| made.as_ref().is_some_and(|made| made == codes(component)))
            {
                continue;
            }
            let from = &lanes.tables[2 * TABLE * component..][..2 * TABLE];
            let (one, several) = self.tables[TABLES as usize * TABLE * component..].split_at_mut(2 * TABLE);
            one.copy_from_slice(from);
            make_several(&one[TABLE..], &mut several[..TABLE]);
            self.made.resize(self.made.len().max(component + 1), None);
            self.made[component] = codes(component).to_vec().try_into().ok();
        }
        (count == 1 || lanes.same.iter().any(|&same| same > 0)).then_some(())
    }

    /// Walks through the next part of the data, and goes to its end. Returns whether all wanted points are found; `None`
    /// if they cannot be found.
    fn round(
        &mut self,
        lanes: &mut Lanes,
        bytes: &[u8],
        len: usize,
        front: &mut Front,
        wanted: &mut Wanted,
        points: &mut Vec<EntryPoint>,
    ) -> Option<bool> {
        let round = self.unstuff(lanes, bytes, front.point.byte(), len)?;
        let count = (round.bits as usize / 8 / self.stretch_bytes).min(LANES);
        let count = if count < MIN_LANES { 1 } else { count };
        let mut ends = [round.bits; LANES];
        for (lane, end) in ends[..count - 1].iter_mut().enumerate() {
            *end = (u64::from(round.bits) * (lane as u64 + 1) / count as u64) as u32;
        }
        let warm_up_bits = WARM_UP_BITS * lanes.components.len() as u32;
        let begin = |lane: usize| match lane {
            0 => front.point.bit % 8,
            _ => ends[lane - 1] - warm_up_bits.min(ends[0] / 2),
        };
        let mut scouts = Scouts::new();
        self.notes.clear()?;
        let mut bad = Vec::new();
        // The rest of a few bytes is not worth it.
        for (lane, &end) in ends[..count].iter().enumerate().filter(|_| count > 1) {
            scouts.add(lane, begin(lane), end);
        }
        while scouts.live > 0 {
            let mut stopped = lanes.scout(self, &mut scouts, &mut bad)?;
            while stopped != 0 {
                let at = stopped.ilog2();
                stopped ^= 1 << at;
                scouts.remove(at as usize);
            }
        }
        let firsts = self.sort(count, begin)?;
        let mut way = Way {
            place: McuStart { bit: begin(0), dc: [0; 2] },
            mcu: front.mcu,
            dc: [0, 1, 2].map(|component| front.point.dc[component] as u16),
            all_bits: round.all_bits,
            to_file: ToFile { from: round.from, stuffed: &self.stuffed, before: 0 },
            wanted,
            points,
        };
        let (mut lane, mut note, mut alone_bits) = (0, 0, 0);
        loop {
            let own = &self.starts[note..firsts[lane + 1]];
            let first_bit = own.first()?.bit;
            let is_complete = way.take(own)?;
            if bad.iter().any(|&(of, bit)| of == lane && (first_bit..way.place.bit).contains(&bit)) {
                return None;
            }
            if is_complete {
                return Some(true);
            }
            // Goes on from MCU to MCU, until another lane is met.
            loop {
                let from = way.place;
                if from.bit >= round.bits {
                    *front = way.front();
                    return Some(false);
                }
                let other = ends[..count].partition_point(|&end| end <= from.bit);
                let notes = &self.starts[firsts[other]..firsts[other + 1]];
                if other > lane
                    && let Ok(met) = notes.binary_search_by_key(&from.bit, |start| start.bit)
                {
                    (lane, note) = (other, firsts[other] + met);
                    break;
                }
                let next = lanes.walk_mcu(&self.tables, from)?;
                alone_bits += next.bit - from.bit;
                if alone_bits > round.bits / 8 + MAX_ALONE_BITS {
                    return None;
                }
                if way.take(&[from, next])? {
                    return Some(true);
                }
            }
        }
    }

    /// Copies the data from a byte of the file on, without stuffed bytes. `None` if there are no data.
    fn unstuff(&mut self, lanes: &mut Lanes, bytes: &[u8], from: usize, len: usize) -> Option<Round> {
        let end = (from + len + TAIL_BYTES).min(bytes.len());
        let data = bytes.get(from..end)?;
        self.stuffed.clear();
        let mut data_end = data.len();
        for at in memchr::memchr_iter(0xFF, data) {
            match data.get(at + 1) {
                Some(0) => {
                    self.stuffed.try_reserve(1).ok()?;
                    self.stuffed.push(from + at + 1);
                }
                // A marker, or a byte that would have to be looked at once more.
                _ => {
                    data_end = at;
                    break;
                }
            }
        }
        lanes.data.clear();
        lanes.data.try_reserve(data_end + 2 * PAD_BYTES).ok()?;
        lanes.vectors.unstuff(&data[..data_end], &mut lanes.data);
        let all_bits = 8 * lanes.data.len() as u32;
        let bits = if data_end <= len {
            all_bits
        } else {
            let stuffed = self.stuffed.partition_point(|&at| at < from + len);
            8 * (len - stuffed) as u32
        };
        lanes.data.resize(lanes.data.len() + PAD_BYTES, 0);
        (bits > 0).then_some(Round { from, bits, all_bits })
    }

    /// Sorts the notes by lane; each lane's begin with the place at which it has begun. Returns where each lane's are;
    /// `None` if there is no memory.
    fn sort(&mut self, count: usize, begin: impl Fn(usize) -> u32) -> Option<[usize; LANES + 1]> {
        let Notes { bits, dc: [first, second], len } = &self.notes;
        let (bits, first, second) = (&bits[..*len], &first[..*len], &second[..*len]);
        let mut counts = [0; LANES];
        for number in second {
            counts[(number >> 16) as usize % LANES] += 1;
        }
        self.starts.clear();
        self.starts.try_reserve(len + count).ok()?;
        self.starts.resize(len + count, McuStart::default());
        let mut firsts = [self.starts.len(); LANES + 1];
        let mut next = 0;
        let mut to = [0; LANES];
        for lane in 0..count {
            firsts[lane] = next;
            self.starts[next].bit = begin(lane);
            to[lane] = next + 1;
            next += 1 + counts[lane];
        }
        for ((&bit, &first), &second) in bits.iter().zip(first).zip(second) {
            let to = &mut to[(second >> 16) as usize % LANES];
            self.starts[*to] = McuStart { bit, dc: [first, second] };
            *to += 1;
        }
        Some(firsts)
    }
}

/// The right way through the data, as far as it is known.
struct Way<'a> {
    /// The last MCU on it.
    place: McuStart,
    /// Number of MCUs before that, and the last DC coefficients.
    mcu: usize,
    dc: [u16; 3],
    all_bits: u32,
    to_file: ToFile<'a>,
    wanted: &'a mut Wanted,
    points: &'a mut Vec<EntryPoint>,
}

impl Way<'_> {
    /// Goes on along a lane's notes, which begin with the last place. Returns whether all wanted points are found; `None` if
    /// the data end before.
    fn take(&mut self, notes: &[McuStart]) -> Option<bool> {
        let (first, end) = (*notes.first()?, *notes.last()?);
        while let Some(place) = self.wanted.mcu().checked_sub(self.mcu).and_then(|number| notes.get(number)) {
            if place.bit > self.all_bits {
                return None;
            }
            let dc = sums(self.dc, first, *place);
            let mut point = EntryPoint { bit: self.to_file.bit(place.bit), dc: [0; 4] };
            point.dc.iter_mut().zip(dc).for_each(|(to, dc)| *to = dc as i16);
            self.points.try_reserve(1).ok()?;
            self.points.push(point);
            if self.wanted.advance() {
                self.place = *place;
                return Some(true);
            }
        }
        if end.bit > self.all_bits {
            return None;
        }
        self.dc = sums(self.dc, first, end);
        self.mcu += notes.len() - 1;
        self.place = end;
        Some(false)
    }

    fn front(mut self) -> Front {
        let [a, b, c] = self.dc.map(|dc| dc as i16);
        Front { point: EntryPoint { bit: self.to_file.bit(self.place.bit), dc: [a, b, c, 0] }, mcu: self.mcu }
    }
}

/// The last DC coefficients at a place, from those at an earlier place of the same lane.
fn sums(dc: [u16; 3], from: McuStart, to: McuStart) -> [u16; 3] {
    let parts = |start: McuStart| [start.dc[0] as u16, (start.dc[0] >> 16) as u16, start.dc[1] as u16];
    let (from, to) = (parts(from), parts(to));
    std::array::from_fn(|component| dc[component].wrapping_add(to[component]).wrapping_sub(from[component]))
}

/// The places of the data in the file. They are asked for from the front to the back.
struct ToFile<'a> {
    /// The place of the first byte.
    from: usize,
    stuffed: &'a [usize],
    /// Number of zeros that are no data, before the last place that was asked for.
    before: usize,
}

impl ToFile<'_> {
    fn bit(&mut self, bit: u32) -> u32 {
        let at = self.from + bit as usize / 8;
        while self.stuffed.get(self.before).is_some_and(|&stuffed| stuffed <= at + self.before) {
            self.before += 1;
        }
        8 * (at + self.before) as u32 + bit % 8
    }
}

/// The MCUs at which entry points are wanted.
struct Wanted {
    columns: usize,
    step: usize,
    /// Number of wanted rows. There is a point after them.
    rows: usize,
    row: usize,
    column: usize,
}

impl Wanted {
    /// Number of MCUs before the next one.
    fn mcu(&self) -> usize {
        self.row * self.columns + self.column
    }

    /// Goes to the next one. Returns whether there is none.
    fn advance(&mut self) -> bool {
        let is_last = self.row == self.rows;
        self.column += self.step;
        if self.column >= self.columns {
            (self.row, self.column) = (self.row + 1, 0);
        }
        is_last
    }
}

/// Fills a table with several codes for each look-up, from one with one code.
fn make_several(one: &[u16], several: &mut [u16]) {
    let mask = one.len() - 1;
    for (at, to) in several.iter_mut().enumerate() {
        let [mut total, mut moves] = [one[at] & 31, one[at] >> 9];
        while total > 0 && u32::from(total) < LOOK_BITS && moves <= SEVERAL {
            let next = one[at << total & mask];
            if next == 0 || u32::from(total + (next & 31)) > LOOK_BITS {
                break;
            }
            total += next & 31;
            moves += next >> 9;
        }
        *to = total | moves << 9;
    }
}

impl Lanes {
    /// Takes steps until lanes have come to their ends. Returns which of the lanes. `None` if there is no room for
    /// notes.
    fn scout(&self, finder: &mut Finder, scouts: &mut Scouts, bad: &mut Vec<BadCode>) -> Option<u32> {
        let Finder { tables, notes, .. } = finder;
        if notes.is_full() {
            return None;
        }
        // SAFETY: the processor has the instructions, or there would be no lanes.
        unsafe {
            match self.vectors {
                Vectors::Avx512 => self.scout_avx512(tables, scouts, notes, bad),
                Vectors::Avx2 => self.scout_avx2(tables, scouts, notes, bad),
            }
        }
    }

    /// Goes from an MCU to the next one. `None` if a code does not exist.
    fn walk_mcu(&self, tables: &[u16], from: McuStart) -> Option<McuStart> {
        let McuStart { mut bit, mut dc } = from;
        for &component in &self.components {
            let dc_table = (TABLES * self.same[component] as u32) << LOOK_BITS;
            let (entry, bits) = self.walk_code(tables, dc_table, bit, self.bits(bit))?;
            let (total, size) = (u32::from(entry & 31), u32::from(entry >> 5 & 15));
            let value = (bits << (total - size)) as i64;
            // One that starts with 0 is negative.
            let ones = (1_u64 << size) - 1;
            let difference = (value as u64).unbounded_shr(64 - size).wrapping_sub(if value < 0 { 0 } else { ones });
            let (sum, place) = if component == 2 { (&mut dc[1], 0) } else { (&mut dc[0], 16 * component as u32) };
            let added = (*sum >> place).wrapping_add(difference as u32) & 0xFFFF;
            *sum = *sum & !(0xFFFF << place) | added << place;
            bit += total;
            let mut index = 0;
            while index < 63 {
                let (mut bits, mut used) = (self.bits(bit), 0);
                // A look-up needs at most 31 bits.
                while index < 63 && used <= 57 - 31 {
                    let table = if index <= SEVERAL_UNTIL { 2 } else { 1 } << LOOK_BITS;
                    let (entry, _) = self.walk_code(tables, dc_table + table, bit + used, bits)?;
                    index += i32::from(entry >> 9);
                    used += u32::from(entry & 31);
                    bits <<= entry & 31;
                }
                bit += used;
            }
        }
        Some(McuStart { bit, dc })
    }

    /// At least 57 bits of the data, from a place on, and zeros.
    fn bits(&self, bit: u32) -> u64 {
        let at = (bit as usize / 8).min(self.data.len() - 8);
        self.data[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)) << (bit % 8)
    }

    /// Looks up a code, and gives the bits that begin with it. `None` if there is no such code.
    fn walk_code(&self, tables: &[u16], table: u32, bit: u32, bits: u64) -> Option<(u16, u64)> {
        let entry = tables[table as usize + (bits >> (64 - LOOK_BITS)) as usize];
        if entry & 31 != 0 {
            return Some((entry, bits));
        }
        let mut bad = Vec::new();
        let (entry, _) = self.scout_further(bit, table, 0, &mut bad);
        bad.is_empty().then_some((entry, bits))
    }

    /// The entry of a code that a finder's table does not have, and the 32 bits that begin with this code. A code that
    /// does not exist is 17 bits long and ends the block.
    #[cold]
    pub(super) fn scout_further(&self, bit: u32, base: u32, lane: usize, bad: &mut Vec<BadCode>) -> (u16, u32) {
        let number = base >> LOOK_BITS;
        let is_ac = !number.is_multiple_of(TABLES);
        let bits = self.bits(bit);
        let code = 2 * (number / TABLES) as usize + usize::from(is_ac);
        match self.codes.get(code).and_then(|code| code.symbol(bits)) {
            Some((len, symbol)) => (entry(len, symbol, is_ac), (bits >> 32) as u32),
            None => {
                bad.push((lane, bit));
                (17 | END_OF_BLOCK << 9, 0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::entry_points::ImageEntryPoints;
    use crate::decode::jpeg::{DecodeOptions, DecodeWays, JpegDecoder};
    use crate::decode::{EntryPointStore, probe};
    use crate::encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg, to_baseline};
    use crate::raster::{Image, Rect, Size};
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    /// The entry points of the first rows as one decoder after another learns them, from the front.
    fn walked(jpeg: &[u8], header: &Header, grid: &McuGrid, rows: u32) -> Option<Vec<EntryPoint>> {
        let mut one_by_one = JpegDecoder::new().unwrap();
        one_by_one.without_lanes();
        let store = EntryPointStore::new(1 << 24);
        let height = (rows * grid.mcu.height - grid.mcu.height / 2).min(header.size.height);
        // Parts that leave nothing out teach nothing without lanes.
        let part = Rect { x: 0, y: 0, width: 1, height };
        let how = DecodeOptions { accept_truncated: false, entry_points: Some(&store) };
        one_by_one.decode(jpeg, header, part, how, &mut Image::default()).ok()?;
        let mut known = ImageEntryPoints::default();
        store.get(&store.key(jpeg, header, grid)?, header, grid, &mut known);
        (!known.points.is_empty()).then_some(known.points)
    }

    /// Pictures of all kinds: noise, waves, flat ones, stripes, drawings, noise above a flat part.
    fn picture(kind: usize, size: Size, rng: &mut ChaCha8Rng) -> Image {
        let mut image = Image::new(size);
        for (at, pixel) in (0..).zip(image.pixels_mut()) {
            let (x, y) = (at % size.width, at / size.width);
            *pixel = match kind {
                0 => rng.random(),
                1 => {
                    let wave = |k: f32| (120.0 + 80.0 * (x as f32 / k).sin() * (y as f32 / (k + 5.0)).cos()) as u8;
                    let noise = rng.random_range(0..20_u8);
                    [wave(9.0) + noise, wave(31.0) + noise / 2, wave(17.0), 255]
                }
                2 => [90, 140, 20, 255],
                // The data of the upper rows are longer than their share of the image.
                5 if y < 3 * size.height / 4 => rng.random(),
                5 => [0, 0, (x / 64) as u8, 255],
                3 => [if x / 8 % 2 == 0 { 20 } else { 220 }, 100, 200, 255],
                _ if (x / 40 + y / 24) % 5 == 0 => [200, 10, (x % 3) as u8, 255],
                _ => [240, 240, 235, 255],
            };
        }
        image
    }

    #[test]
    fn found_points_are_those_of_the_walk() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (mut compared, mut found) = ([0; 6], [0; 6]);
        for kind in 0..6 {
            for (width, height) in [(640, 400), (1, 20_000), (20_000, 1), (333, 257), (900, 90), (160, 120)] {
                let image = picture(kind, Size::new(width, height), &mut rng);
                for color in [JpegColor::Ycc, JpegColor::Gray, JpegColor::Rgb] {
                    for sampling in [ChromaSampling::S444, ChromaSampling::S422, ChromaSampling::S420] {
                        let options = JpegOptions {
                            quality: [60, 85, 98][rng.random_range(0..3)],
                            sampling,
                            color,
                            ..JpegOptions::default()
                        };
                        let Ok(jpeg) = encode_jpeg(&image, &options) else { continue };
                        let jpeg = if rng.random() { to_baseline(&jpeg, false).unwrap() } else { jpeg };
                        let header = probe(&jpeg).unwrap();
                        let Some(grid) = McuGrid::new(&header) else { continue };
                        let rows = rng.random_range(1..=grid.rows);
                        let Some(want) = walked(&jpeg, &header, &grid, rows) else { continue };
                        let rows = (want.len() as u32 - 1) / grid.columns.div_ceil(grid.step());
                        for (number, lanes) in
                            (0..4).zip([Lanes::new(), Lanes::with_avx2(), Lanes::new(), Lanes::with_avx2()])
                        {
                            let Some(mut lanes) = lanes else { continue };
                            if number < 2 {
                                lanes.find_in_small_images();
                            }
                            let mut got = Vec::new();
                            compared[kind] += 1;
                            if find(&mut lanes, &jpeg, &header, &grid, (rows, grid.step()), &mut got) {
                                assert!(got == want, "{options:?}, {kind}, {width} x {height}, {rows} rows");
                                found[kind] += 1;
                            }
                        }
                    }
                }
            }
        }
        println!("{found:?} of {compared:?}");
        assert!(found[0] > 20 && found[1] > 20, "{found:?} of {compared:?}");
    }

    /// Decodes with both kinds of vectors, in which lanes find the entry points, and without; all must agree. Returns
    /// whether there are pixels.
    fn decode_alike(ways: &mut DecodeWays, jpeg: &[u8], rng: &mut ChaCha8Rng, what: &str) -> bool {
        let Ok(header) = probe(jpeg) else { return false };
        if header.size.area_px() > 1 << 20 {
            return false;
        }
        let Size { width, height } = header.size;
        let (x, y) = (rng.random_range(0..width), rng.random_range(0..height));
        let crop = Rect { x, y, width: rng.random_range(1..=width - x), height: rng.random_range(1..=height - y) };
        let mut has_pixels = false;
        for part in [Rect::full(header.size), crop] {
            for accept_truncated in [false, true] {
                let store = EntryPointStore::new(1 << 20);
                let decode = |decoder: &mut JpegDecoder, entry_points| {
                    let (mut out, how) = (Image::default(), DecodeOptions { accept_truncated, entry_points });
                    let decoded = decoder.decode(jpeg, &header, part, how, &mut out);
                    decoded.map(|_| out.pixels().to_vec()).map_err(|error| error.to_string())
                };
                let want = decode(&mut ways.one_by_one, None);
                has_pixels |= want.is_ok();
                for decoder in [&mut ways.lanes, &mut ways.narrow_lanes] {
                    assert!(decode(decoder, None) == want, "{what}, {part:?}, {accept_truncated}");
                    // With what the first of them has found.
                    assert!(decode(decoder, Some(&store)) == want, "{what}, {part:?}, {accept_truncated}, again");
                }
            }
        }
        has_pixels
    }

    #[test]
    fn damaged_images_decode_alike() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let mut ways = JpegDecoder::ways().unwrap();
        let mut good = 0;
        for kind in 0..5 {
            for sampling in [ChromaSampling::S444, ChromaSampling::S422, ChromaSampling::S420] {
                for restart_interval_rows in [0, 2] {
                    let image = picture(kind, Size::new(200, 120), &mut rng);
                    let options = JpegOptions { sampling, restart_interval_rows, ..JpegOptions::default() };
                    let jpeg = encode_jpeg(&image, &options).unwrap();
                    let scan = probe(&jpeg).unwrap().scan_offset_bytes;
                    for round in 0..30 {
                        let mut jpeg = jpeg.clone();
                        for _ in 0..round % 3 {
                            let at = rng.random_range(if round % 7 == 6 { 2 } else { scan }..jpeg.len());
                            jpeg[at] = if rng.random_bool(0.2) { 0xFF } else { rng.random() };
                        }
                        if round % 5 == 4 {
                            jpeg.truncate(rng.random_range(scan..jpeg.len()));
                            jpeg.extend([0xFF, 0xD9]);
                        }
                        let what = format!("{kind}, {options:?}, round {round}");
                        good += u32::from(decode_alike(&mut ways, &jpeg, &mut rng, &what));
                    }
                }
            }
        }
        assert!(good > 600, "{good}");
    }

    /// The counts and symbols of a code of any shape, with no code of all ones.
    fn any_code(symbols: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
        let mut lengths = vec![1_usize, 1];
        while lengths.len() <= symbols.len() {
            let at = rng.random_range(0..lengths.len());
            // Deep codes as well as even ones.
            let at = if rng.random_bool(0.3) { lengths.len() - 1 } else { at };
            if lengths[at] < 16 {
                lengths[at] += 1;
                lengths.insert(at, lengths[at]);
            }
        }
        lengths.sort_unstable();
        lengths.pop();
        let counts = (1..=16).map(|len| lengths.iter().filter(|&&of| of == len).count() as u8);
        let mut order = symbols.to_vec();
        for at in (1..order.len()).rev() {
            order.swap(at, rng.random_range(0..=at));
        }
        counts.chain(order).collect()
    }

    /// Random data under random tables: long codes, absurd coefficients, blocks of more than 64.
    #[test]
    fn random_data_under_random_tables_decode_alike() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut ways = JpegDecoder::ways().unwrap();
        let mut good = 0;
        for round in 0..300 {
            let (width, height) = (rng.random_range(1..300_u16), rng.random_range(1..200_u16));
            let (gray, luma) = (rng.random_bool(0.2), [0x11, 0x21, 0x22, 0x12][rng.random_range(0..4)]);
            let components = if gray { 1 } else { 3_u8 };
            let mut jpeg = vec![0xFF, 0xD8];
            let mut segment = |marker: u8, content: &[u8]| {
                jpeg.extend([0xFF, marker]);
                jpeg.extend((content.len() as u16 + 2).to_be_bytes());
                jpeg.extend(content);
            };
            segment(0xDB, &[&[0][..], &[1; 64]].concat());
            let (h, w, g, v) = (height.to_be_bytes(), width.to_be_bytes(), 0x11, luma);
            let mut frame = [[8].as_slice(), &h, &w, &[components]].concat();
            for component in 1..=components {
                frame.extend([component, if component == 1 && !gray { v } else { g }, 0]);
            }
            segment(0xC0, &frame);
            let most_ac = [20, 100, 255][rng.random_range(0..3)];
            for table in 0..2 {
                segment(0xC4, &[&[table][..], &any_code(&(0..12).collect::<Vec<u8>>(), &mut rng)].concat());
                let symbols: Vec<u8> = (0..=most_ac).filter(|symbol| symbol % 16 < 11).collect();
                segment(0xC4, &[&[0x10 | table][..], &any_code(&symbols, &mut rng)].concat());
            }
            let mut scan = vec![components];
            for component in 1..=components {
                scan.extend([component, if component == 1 { 0 } else { 0x11 }]);
            }
            scan.extend([0, 63, 0]);
            segment(0xDA, &scan);
            for _ in 0..rng.random_range(100..60_000) {
                let byte = rng.random();
                jpeg.push(byte);
                if byte == 0xFF {
                    jpeg.push(0);
                }
            }
            jpeg.extend([0xFF, 0xD9]);
            good += u32::from(decode_alike(&mut ways, &jpeg, &mut rng, &format!("round {round}")));
        }
        assert!(good > 100, "{good}");
    }
}
