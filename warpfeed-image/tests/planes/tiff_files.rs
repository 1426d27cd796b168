//! TIFF files that the tests write.

use warpfeed_image::Size;

/// A value's type, as its sample format and its number of bits say.
pub type Type = (u16, u16);

pub const U8: Type = (1, 8);
pub const U16: Type = (1, 16);
pub const I8: Type = (2, 8);
pub const I16: Type = (2, 16);
pub const F16: Type = (3, 16);
pub const F32: Type = (3, 32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    None,
    PackBits,
    Lzw,
    Deflate,
    #[cfg(feature = "zstd")]
    Zstd,
}

/// A page to be written. Values are bits.
#[derive(Debug, Clone)]
pub struct Page {
    pub size: Size,
    pub kind: Type,
    pub channels: usize,
    pub is_big_endian: bool,
    pub is_big_tiff: bool,
    /// Size of the tiles, or the rows of a strip.
    pub tile: Option<Size>,
    pub rows: u32,
    pub is_planar: bool,
    pub packing: Packing,
    pub predictor: u16,
    pub photometric: u16,
    /// Further tags: number, type, values.
    pub tags: Vec<(u16, u16, Vec<u64>)>,
    /// Numbers of strips or tiles that are not stored.
    pub sparse: Vec<usize>,
    /// The data of all strips or tiles, in place of those that are made.
    pub data: Option<Vec<Vec<u8>>>,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            size: Size::new(13, 9),
            kind: U16,
            channels: 1,
            is_big_endian: false,
            is_big_tiff: false,
            tile: None,
            rows: 4,
            is_planar: false,
            packing: Packing::None,
            predictor: 1,
            photometric: 1,
            tags: Vec::new(),
            sparse: Vec::new(),
            data: None,
        }
    }
}

impl Page {
    /// The bits of a value: columns and channels differ, and neighbors are similar.
    pub fn value(&self, x: u32, y: u32, channel: usize) -> u32 {
        let noise = (x * 7919 + y * 104_729 + channel as u32 * 40_503) % 5;
        let smooth = 3 * x + 100 * y + 1000 * channel as u32 + noise;
        match self.kind {
            // Numbers around 0, with a fraction.
            F32 => (smooth as f32 / 8.0 - 40.0).to_bits(),
            // Normal halves of both signs.
            F16 => (smooth % 0x4000 + 0x2000) | ((smooth & 1) << 15),
            (_, bits) => smooth.wrapping_mul(1 + (1 << bits >> 10)) & ((1_u64 << bits) - 1) as u32,
        }
    }

    /// The bytes of rows of a strip or tile. Columns and rows after the image's last are its last ones.
    fn raw(&self, x: u32, y: u32, chunk: Size, channels: &[usize]) -> Vec<u8> {
        let last = (self.size.width - 1, self.size.height - 1);
        let bits = u32::from(self.kind.1);
        let row = |y: u32| {
            let mut values: Vec<u32> = (x..x + chunk.width)
                .flat_map(|x| channels.iter().map(move |channel| (x, *channel)))
                .map(|(x, channel)| self.value(x.min(last.0), y.min(last.1), channel))
                .collect();
            let mut floats = Vec::new();
            match self.predictor {
                2 => {
                    for at in (channels.len()..values.len()).rev() {
                        values[at] = values[at].wrapping_sub(values[at - channels.len()]);
                    }
                }
                3 => {
                    for byte in (0..bits / 8).rev() {
                        floats.extend(values.iter().map(|value| (value >> (8 * byte)) as u8));
                    }
                    for at in (channels.len()..floats.len()).rev() {
                        floats[at] = floats[at].wrapping_sub(floats[at - channels.len()]);
                    }
                    return floats;
                }
                _ => {}
            }
            if matches!(bits, 8 | 16 | 32) {
                return values
                    .iter()
                    .flat_map(|value| {
                        let bytes = &value.to_be_bytes()[4 - bits as usize / 8..];
                        if self.is_big_endian { bytes.to_vec() } else { bytes.iter().rev().copied().collect() }
                    })
                    .collect();
            }
            let mut packed = vec![0_u8; (values.len() * bits as usize).div_ceil(8)];
            for (at, value) in values.iter().enumerate() {
                for bit in 0..bits as usize {
                    let place = at * bits as usize + bit;
                    packed[place / 8] |= ((value >> (bits as usize - 1 - bit) & 1) as u8) << (7 - place % 8);
                }
            }
            packed
        };
        (y..y + chunk.height).flat_map(row).collect()
    }

    /// The file.
    pub fn file(&self) -> Vec<u8> {
        file_of(std::slice::from_ref(self))
    }

    fn chunks(&self) -> Vec<Vec<u8>> {
        if let Some(data) = &self.data {
            return data.clone();
        }
        let Size { width, height } = self.size;
        let chunk = self.tile.unwrap_or(Size::new(width, self.rows));
        let planes: Vec<Vec<usize>> = match self.is_planar {
            true => (0..self.channels).map(|channel| vec![channel]).collect(),
            false => vec![(0..self.channels).collect()],
        };
        let mut all = Vec::new();
        for channels in planes {
            for y in (0..height).step_by(chunk.height as usize) {
                for x in (0..width).step_by(chunk.width as usize) {
                    let rows = if self.tile.is_some() { chunk.height } else { chunk.height.min(height - y) };
                    let raw = self.raw(x, y, Size::new(chunk.width, rows), &channels);
                    all.push(match self.packing {
                        Packing::None => raw,
                        Packing::PackBits => pack_bits(&raw),
                        Packing::Lzw => lzw(&raw),
                        Packing::Deflate => miniz_oxide::deflate::compress_to_vec_zlib(&raw, 6),
                        #[cfg(feature = "zstd")]
                        Packing::Zstd => zstd::encode_all(&raw[..], 3).unwrap(),
                    });
                }
            }
        }
        all
    }
}

/// A file of several pages, which have the byte order and the form of the first.
pub fn file_of(pages: &[Page]) -> Vec<u8> {
    let Page { is_big_endian, is_big_tiff, .. } = pages[0];
    let number = |value: u64, bytes: usize| {
        let value = value.to_le_bytes()[..bytes].to_vec();
        if is_big_endian { value.into_iter().rev().collect() } else { value }
    };
    let (word, count_bytes) = if is_big_tiff { (8, 8) } else { (4, 2) };
    let mut file = if is_big_endian { b"MM".to_vec() } else { b"II".to_vec() };
    file.extend(number(if is_big_tiff { 43 } else { 42 }, 2));
    if is_big_tiff {
        file.extend([number(8, 2), number(0, 2)].concat());
    }
    // Each directory's place goes where the one before ends.
    let mut link = file.len();
    file.extend(vec![0; word]);
    for page in pages {
        let (mut offsets, mut counts) = (Vec::new(), Vec::new());
        for (at, chunk) in page.chunks().iter().enumerate() {
            let is_sparse = page.sparse.contains(&at);
            offsets.push(if is_sparse { 0 } else { file.len() as u64 });
            counts.push(if is_sparse { 0 } else { chunk.len() as u64 });
            if !is_sparse {
                file.extend(chunk);
            }
        }
        let compression = match page.packing {
            Packing::None => 1,
            Packing::PackBits => 32_773,
            Packing::Lzw => 5,
            Packing::Deflate => 8,
            #[cfg(feature = "zstd")]
            Packing::Zstd => 50_000,
        };
        let long = if is_big_tiff { 16 } else { 4 };
        let mut tags = vec![
            (256, 4, vec![page.size.width.into()]),
            (257, 4, vec![page.size.height.into()]),
            (258, 3, vec![page.kind.1.into(); page.channels]),
            (259, 3, vec![compression]),
            (262, 3, vec![page.photometric.into()]),
            (277, 3, vec![page.channels as u64]),
            (284, 3, vec![1 + u64::from(page.is_planar)]),
            (317, 3, vec![page.predictor.into()]),
            (339, 3, vec![page.kind.0.into(); page.channels]),
        ];
        match page.tile {
            Some(tile) => tags.extend([
                (322, 3, vec![tile.width.into()]),
                (323, 4, vec![tile.height.into()]),
                (324, long, offsets),
                (325, 4, counts),
            ]),
            None => tags.extend([(273, long, offsets), (278, 4, vec![page.rows.into()]), (279, 4, counts)]),
        }
        tags.retain(|(tag, ..)| page.tags.iter().all(|(own, ..)| own != tag));
        tags.extend(page.tags.clone());
        tags.sort();
        let mut directory = number(tags.len() as u64, count_bytes);
        for (tag, kind, values) in tags {
            let bytes = match kind {
                1 | 7 => 1,
                3 => 2,
                4 => 4,
                _ => 8,
            };
            let mut value: Vec<u8> = values.iter().flat_map(|value| number(*value, bytes)).collect();
            directory.extend([number(tag.into(), 2), number(kind.into(), 2)].concat());
            directory.extend(number(values.len() as u64, word));
            if value.len() > word {
                let at = file.len() as u64;
                file.extend(value);
                value = number(at, word);
            }
            value.resize(word, 0);
            directory.extend(value);
        }
        let at = number(file.len() as u64, word);
        file[link..link + word].copy_from_slice(&at);
        file.extend(directory);
        link = file.len();
        file.extend(vec![0; word]);
    }
    file
}

/// PackBits of rows of literals and repetitions.
fn pack_bits(raw: &[u8]) -> Vec<u8> {
    let (mut packed, mut rest) = (Vec::new(), raw);
    while let Some(first) = rest.first() {
        let same = rest.iter().take(128).take_while(|byte| *byte == first).count();
        let len = if same > 2 { same } else { rest.len().min(3) };
        if same > 2 {
            packed.extend([(257 - same) as u8, *first]);
        } else {
            packed.push(len as u8 - 1);
            packed.extend(&rest[..len]);
        }
        rest = &rest[len..];
    }
    packed
}

/// LZW with codes that become longer one code early.
fn lzw(raw: &[u8]) -> Vec<u8> {
    const CLEAR: u32 = 256;
    let (mut packed, mut buffer, mut available) = (Vec::new(), 0_u64, 0);
    let mut put = |code: u32, width: u32| {
        buffer = buffer << width | u64::from(code);
        available += width;
        while available >= 8 {
            available -= 8;
            packed.push((buffer >> available) as u8);
        }
    };
    let mut table = std::collections::HashMap::new();
    let (mut width, mut next) = (9, 258);
    put(CLEAR, width);
    let mut string: Vec<u8> = Vec::new();
    let code = |table: &std::collections::HashMap<Vec<u8>, u32>, string: &[u8]| match string {
        [byte] => u32::from(*byte),
        _ => table[string],
    };
    for byte in raw {
        let mut longer = string.clone();
        longer.push(*byte);
        if longer.len() == 1 || table.contains_key(&longer) {
            string = longer;
            continue;
        }
        put(code(&table, &string), width);
        table.insert(longer, next);
        next += 1;
        if next == 1 << width {
            width += 1;
        }
        if next == 4095 {
            put(CLEAR, 12);
            table.clear();
            (width, next) = (9, 258);
        }
        string = vec![*byte];
    }
    if !string.is_empty() {
        put(code(&table, &string), width);
        next += 1;
    }
    put(257, if next == 1 << width { width + 1 } else { width });
    put(0, 7);
    packed
}

/// A page whose strips are JPEGs.
pub fn jpeg_page(jpegs: &[Vec<u8>], size: Size, rows: u32, photometric: u16, tables: Option<Vec<u8>>) -> Vec<u8> {
    let channels = if photometric == 1 { 1 } else { 3 };
    let mut tags = vec![(259, 3, vec![7])];
    tags.extend(tables.map(|tables| (347, 7, tables.iter().map(|byte| u64::from(*byte)).collect())));
    let data = Some(jpegs.to_vec());
    Page { size, rows, kind: U8, channels, photometric, tags, data, ..Page::default() }.file()
}
