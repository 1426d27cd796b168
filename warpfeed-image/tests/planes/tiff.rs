//! TIFF: files of all layouts, parts and channels of them, pages, colors, and damage.

use super::tiff_files::{F16, F32, I8, I16, Packing, Page, Type, U8, U16, file_of, jpeg_page};
use super::{message, numbers, planes, rgb};
use warpfeed_image::planes::{Element, PixelKind};
use warpfeed_image::{Format, Image, JpegColor, JpegOptions, Rect, Size, encode_jpeg, probe};

fn half(bits: u32) -> f32 {
    let magnitude = f32::from_bits((bits & 0x7FFF) << 13) * 2_f32.powi(112);
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// The value that bits stand for.
fn number(kind: Type, bits: u32) -> f32 {
    match kind {
        I8 => f32::from(bits as u8 as i8),
        I16 => f32::from(bits as u16 as i16),
        F16 => half(bits),
        F32 => f32::from_bits(bits),
        _ => bits as f32,
    }
}

/// The whole image, a part, and a part of some channels are the values that were written.
fn check(page: &Page) {
    let file = page.file();
    let header = probe(&file).unwrap_or_else(|error| panic!("{page:?}: {error}"));
    let element = match page.kind {
        (1, 1..=8) => Element::U8,
        (1, _) => Element::U16,
        _ => Element::F32,
    };
    let kind = PixelKind { element, channels: page.channels as u16 };
    assert_eq!((header.format, header.size, header.kind), (Format::Tiff, page.size, kind));
    let Size { width, height } = page.size;
    let part = Rect { x: width / 3, y: height / 2, width: width / 2, height: height / 3 };
    let last = kind.channels - 1;
    for (part, bands) in
        [(Rect::full(page.size), None), (part, None), (part, Some(vec![last])), (part, Some(vec![last, 0, last]))]
    {
        let planes = planes(&file, Some(part), bands.as_deref()).unwrap_or_else(|error| panic!("{page:?}: {error}"));
        let bands = bands.unwrap_or((0..kind.channels).collect());
        assert_eq!((planes.whole(), planes.part()), (page.size, part));
        assert_eq!(planes.kind(), PixelKind { channels: bands.len() as u16, ..kind });
        let want: Vec<f32> = bands
            .iter()
            .flat_map(|channel| (part.y..part.bottom()).map(move |y| (usize::from(*channel), y)))
            .flat_map(|(channel, y)| (part.x..part.right()).map(move |x| (channel, y, x)))
            .map(|(channel, y, x)| number(page.kind, page.value(x, y, channel)))
            .collect();
        assert!(numbers(&planes) == want, "{page:?}, {part:?}, {bands:?}");
    }
}

#[test]
fn all_layouts_give_the_stored_values() {
    for kind in [U8, U16, I8, I16, F16, F32] {
        for channels in [1, 2, 3, 4, 5, 13] {
            for (packing, predictor) in [
                (Packing::None, 1),
                (Packing::PackBits, 1),
                (Packing::Lzw, 1),
                (Packing::Deflate, 1),
                (Packing::Lzw, 2),
                (Packing::Deflate, 2),
                (Packing::Deflate, 3),
            ] {
                if predictor == 3 && kind.0 != 3 {
                    continue;
                }
                for (tile, is_planar) in
                    [(None, false), (None, true), (Some(Size::new(16, 16)), false), (Some(Size::new(16, 32)), true)]
                {
                    // The other order with the other form.
                    for is_big_endian in [false, true] {
                        let size = Size::new(37, 21);
                        let is_big_tiff = is_big_endian == is_planar;
                        let page = Page { kind, channels, packing, predictor, tile, is_planar, ..Page::default() };
                        check(&Page { size, is_big_endian, is_big_tiff, rows: 5, ..page });
                    }
                }
            }
        }
    }
}

#[cfg(feature = "zstd")]
#[test]
fn zstandard_gives_the_stored_values() {
    for (kind, predictor) in [(U8, 1), (U16, 2), (F32, 3)] {
        check(&Page { kind, channels: 3, predictor, packing: Packing::Zstd, ..Page::default() });
    }
    let data = Some(vec![zstd::encode_all(&[0; 100][..], 3).unwrap()]);
    let short = Page { rows: 9, packing: Packing::Zstd, data, ..Page::default() };
    assert!(message(planes(&short.file(), None, None)).contains("100 of 234 bytes"));
}

#[test]
fn packed_values_are_unpacked_and_not_scaled() {
    for bits in (1..16).filter(|bits| *bits != 8) {
        for channels in [1, 3] {
            for (packing, is_planar) in [(Packing::None, false), (Packing::Deflate, true)] {
                let tile = is_planar.then_some(Size::new(16, 16));
                check(&Page {
                    size: Size::new(29, 7),
                    kind: (1, bits),
                    channels,
                    packing,
                    is_planar,
                    tile,
                    ..Page::default()
                });
            }
        }
    }
}

#[test]
fn long_runs_and_full_tables_of_lzw() {
    // Strings of more than 4,000 bytes.
    let flat = Page { size: Size::new(3000, 40), rows: 40, kind: (1, 1), packing: Packing::Lzw, ..Page::default() };
    // All widths of codes, and tables that are cleared.
    let noisy = Page { size: Size::new(300, 90), rows: 90, kind: F32, packing: Packing::Lzw, ..Page::default() };
    [flat, noisy].iter().for_each(check);
}

#[test]
fn chunks_that_are_not_stored_are_zeros() {
    let page = Page { size: Size::new(32, 32), channels: 2, tile: Some(Size::new(16, 16)), ..Page::default() };
    let full = numbers(&planes(&page.file(), None, None).unwrap());
    let got = numbers(&planes(&Page { sparse: vec![2], ..page }.file(), None, None).unwrap());
    for (i, (got, full)) in got.iter().zip(full).enumerate() {
        let (x, y) = (i % 32, i / 32 % 32);
        assert_eq!(*got, if x < 16 && y >= 16 { 0.0 } else { full });
    }
}

#[test]
fn only_what_the_part_needs_is_read() {
    let tile = Some(Size::new(16, 16));
    let page = Page {
        size: Size::new(48, 48),
        channels: 3,
        tile,
        is_planar: true,
        packing: Packing::Deflate,
        ..Page::default()
    };
    let file = page.file();
    // The data of all tiles but the middle one of channel 1 are damaged.
    let offsets: Vec<usize> = tag_values(&file, 324).collect();
    let mut damaged = file.clone();
    for at in (0..offsets.len() - 1).filter(|at| *at != 9 + 4) {
        damaged[offsets[at]..offsets[at + 1]].fill(0xFF);
    }
    let part = Rect { x: 20, y: 17, width: 9, height: 15 };
    let (got, want) = (planes(&damaged, Some(part), Some(&[1])), planes(&file, Some(part), Some(&[1])));
    assert_eq!(numbers(&got.unwrap()), numbers(&want.unwrap()));
    assert!(planes(&damaged, Some(part), None).is_err() && planes(&damaged, None, Some(&[1])).is_err());
}

/// The values of a tag with offsets of 4 bytes in the last directory of a small file in little-endian order.
fn tag_values(file: &[u8], tag: u16) -> impl Iterator<Item = usize> + '_ {
    let long = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let short = |at: usize| u16::from_le_bytes(file[at..at + 2].try_into().unwrap());
    let directory = long(4);
    let entry = (0..usize::from(short(directory))).map(|i| directory + 2 + 12 * i);
    let entry = entry.clone().find(|at| short(*at) == tag).unwrap();
    (0..long(entry + 4)).map(move |i| long(long(entry + 8) + 4 * i))
}

#[test]
fn the_first_page_that_is_no_thumbnail_is_read() {
    let small = Page { size: Size::new(4, 3), kind: U8, tags: vec![(254, 4, vec![1])], ..Page::default() };
    let old = Page { size: Size::new(4, 3), kind: U8, tags: vec![(255, 3, vec![2])], ..Page::default() };
    let main = Page { tags: vec![(274, 3, vec![6])], ..Page::default() };
    let other = Page { size: Size::new(5, 5), ..Page::default() };
    for pages in [vec![main.clone(), other.clone()], vec![small.clone(), old, main.clone(), other]] {
        let header = probe(&file_of(&pages)).unwrap();
        assert_eq!((header.size, header.orientation), (main.size, 6));
    }
    assert_eq!(probe(&small.file()).unwrap().size, small.size, "a thumbnail alone is the image");
    // The second directory is the first one again.
    let mut file = file_of(&[small.clone(), small.clone()]);
    let first: [u8; 4] = file[4..8].try_into().unwrap();
    let end = file.len();
    file[end - 4..].copy_from_slice(&first);
    assert_eq!(probe(&file).unwrap().size, small.size);
    let raw = Page { tags: vec![(254, 4, vec![1]), (330, 4, vec![8])], ..small };
    assert!(message(probe(&raw.file())).contains("raw file"));
}

#[test]
fn images_of_8_and_16_bits_become_rgb() {
    let size = Size::new(5, 3);
    let places = || (0..15).map(|i| (i % 5, i / 5));
    let page = |kind, channels, photometric| Page { size, kind, channels, photometric, ..Page::default() };
    let check = |page: Page, pixel: &dyn Fn([u32; 4]) -> [u32; 3]| {
        let value = |x, y, channel| if channel < page.channels { page.value(x, y, channel) } else { 0 };
        let want = places().flat_map(|(x, y)| pixel([0, 1, 2, 3].map(|channel| value(x, y, channel))));
        let want: Vec<u8> = want.map(|value| value as u8).collect();
        assert_eq!(rgb(&page.file(), None).unwrap(), want, "{page:?}");
    };
    check(page(U8, 1, 1), &|[v, ..]| [v; 3]);
    check(page(U8, 1, 0), &|[v, ..]| [255 - v; 3]);
    check(page(U8, 2, 1), &|[v, ..]| [v; 3]);
    check(page(U8, 3, 2), &|[r, g, b, _]| [r, g, b]);
    check(page(U8, 4, 2), &|[r, g, b, _]| [r, g, b]);
    check(page(U16, 1, 1), &|[v, ..]| [v >> 8; 3]);
    check(page(U16, 1, 0), &|[v, ..]| [255 - (v >> 8); 3]);
    check(page(U16, 4, 2), &|[r, g, b, _]| [r >> 8, g >> 8, b >> 8]);
    check(page((1, 12), 3, 2), &|[r, g, b, _]| [r >> 4, g >> 4, b >> 4]);
    check(page((1, 1), 1, 1), &|[v, ..]| [255 * v; 3]);
    check(page((1, 2), 1, 0), &|[v, ..]| [85 * (3 - v); 3]);
    check(page((1, 4), 1, 1), &|[v, ..]| [17 * v; 3]);
    let associated = Page { tags: vec![(338, 3, vec![1])], ..page(U8, 4, 2) };
    check(associated, &|[r, g, b, a]| [r, g, b].map(|v| (v * 255).checked_div(a).unwrap_or(0).min(255)));
    let map: Vec<u64> = (0..3 * 16).map(|i| i * 1300).collect();
    let palette = Page { tags: vec![(320, 3, map.clone())], ..page((1, 4), 1, 3) };
    check(palette.clone(), &|[v, ..]| [0, 1, 2].map(|c| (map[(16 * c + v) as usize] >> 8) as u32));
    // The channels of a palette are its colors.
    let (colors, channels) = (rgb(&palette.file(), None).unwrap(), planes(&palette.file(), None, None).unwrap());
    assert!((0..3).all(|c| colors.iter().skip(c).step_by(3).eq(channels.plane::<u8>(c))));
    // Pillow's conversion of ink: what is left of the light after black, less the color's part of it.
    let ink = |ink: u32, black: u32| {
        let product = ink * (255 - black) + 128;
        (255 - black) - (((product >> 8) + product) >> 8)
    };
    check(page(U8, 4, 5), &|[c, m, y, k]| [ink(c, k), ink(m, k), ink(y, k)]);
    assert!(message(planes(&page(U8, 4, 5).file(), None, None)).contains("inks"));
}

#[test]
fn images_without_an_rgb_form_are_refused_by_name() {
    for (kind, channels, photometric, words) in [
        (U16, 5, 2, "5 channels of u16"),
        (U8, 3, 1, "3 channels of u8"),
        (F32, 1, 1, "1 channel of f32"),
        (I16, 3, 2, "3 channels of f32"),
    ] {
        let file = Page { kind, channels, photometric, ..Page::default() }.file();
        let message = message(rgb(&file, None));
        assert!(message.contains(words) && message.contains("(pixels)"), "{message}");
        planes(&file, None, None).unwrap();
    }
}

#[test]
fn strips_of_jpeg_have_the_pixels_of_the_jpegs() {
    let size = Size::new(40, 24);
    let mut image = Image::new(size);
    for (i, pixel) in (0_u32..).zip(image.pixels_mut()) {
        let (x, y) = (i % 40, i / 40);
        let [r, g, b] = [5 * x, 7 * y, 3 * x + 4 * y].map(|value| (value % 256) as u8);
        *pixel = [r, g, b, 255];
    }
    for (color, photometric) in [(JpegColor::Ycc, 6), (JpegColor::Rgb, 2), (JpegColor::Gray, 1)] {
        // Two strips, of 16 and of 8 rows.
        let strip = |y: u32, height: u32| {
            let rows: Vec<u8> = image.to_rgb()[(y * 120) as usize..((y + height) * 120) as usize].to_vec();
            let strip = Image::from_rgb(Size::new(40, height), &rows).unwrap();
            encode_jpeg(&strip, &JpegOptions { color, ..JpegOptions::default() }).unwrap()
        };
        let jpegs = [strip(0, 16), strip(16, 8)];
        let want: Vec<u8> = jpegs.iter().flat_map(|jpeg| rgb(jpeg, None).unwrap()).collect();
        let file = jpeg_page(&jpegs, size, 16, photometric, None);
        assert_eq!(rgb(&file, None).unwrap(), want, "{color:?}");
        let part = Rect { x: 7, y: 10, width: 20, height: 13 };
        let got = planes(&file, Some(part), None).unwrap();
        assert_eq!(got.kind().channels, if photometric == 1 { 1 } else { 3 });
        for channel in 0..usize::from(got.kind().channels) {
            let rows = (part.y..part.bottom()).flat_map(|y| (part.x..part.right()).map(move |x| (x, y)));
            let want: Vec<u8> = rows.map(|(x, y)| want[3 * (y * 40 + x) as usize + channel]).collect();
            assert_eq!(got.plane::<u8>(channel), want, "{color:?}");
        }
        // The tables may be in a tag, and the JPEGs without application data.
        let (mut tables, mut bare) = (vec![0xFF, 0xD8], Vec::new());
        for jpeg in &jpegs {
            let (mut strip, mut at) = (vec![0xFF, 0xD8], 2);
            while jpeg[at + 1] != 0xDA {
                let end = at + 2 + usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]]));
                match jpeg[at + 1] {
                    0xDB | 0xC4 if bare.is_empty() => tables.extend(&jpeg[at..end]),
                    0xDB | 0xC4 | 0xE0..=0xEF => {}
                    _ => strip.extend(&jpeg[at..end]),
                }
                at = end;
            }
            strip.extend(&jpeg[at..]);
            bare.push(strip);
        }
        tables.extend([0xFF, 0xD9]);
        let file = jpeg_page(&bare, size, 16, photometric, Some(tables));
        assert_eq!(rgb(&file, None).unwrap(), want, "{color:?}, with tables in a tag");
    }
}

#[test]
fn other_files_are_refused_by_name() {
    let page = |tags: Vec<(u16, u16, Vec<u64>)>| Page { tags, ..Page::default() };
    for (page, words) in [
        (page(vec![(258, 3, vec![32])]), "u32"),
        (page(vec![(258, 3, vec![32]), (339, 3, vec![2])]), "i32"),
        (page(vec![(258, 3, vec![64]), (339, 3, vec![3])]), "f64"),
        (page(vec![(258, 3, vec![24])]), "u24"),
        (page(vec![(258, 3, vec![64]), (339, 3, vec![6])]), "complex"),
        (page(vec![(258, 3, vec![0])]), "no bit"),
        (page(vec![(259, 3, vec![34_925])]), "LZMA"),
        (page(vec![(259, 3, vec![60_000])]), "60000"),
        (page(vec![(256, 4, vec![0])]), "width is 0"),
        (page(vec![(256, 4, vec![4_000_000_000])]), "width is 4000000000"),
        (page(vec![(257, 4, vec![2_000_000_000])]), "strips"),
        (page(vec![(277, 3, vec![65_535])]), "65535 channels"),
        (page(vec![(262, 3, vec![8])]), "L*a*b*"),
        (page(vec![(262, 3, vec![6])]), "luma and chroma"),
        (page(vec![(259, 3, vec![5]), (317, 3, vec![3])]), "predictor 3"),
        (page(vec![(259, 3, vec![5]), (317, 3, vec![9])]), "predictor 9"),
        (page(vec![(273, 4, vec![1 << 30; 3])]), "truncated"),
        (page(vec![(273, 4, vec![4; 3])]), "inside the header"),
        (page(vec![(273, 4, vec![])]), "no strip"),
        (page(vec![(279, 4, vec![1 << 30; 3])]), "truncated"),
        (page(vec![(322, 3, vec![0]), (323, 3, vec![16]), (324, 4, vec![8])]), "size of the tiles"),
        (Page { channels: 3, ..page(vec![(258, 3, vec![8, 16, 8])]) }, "different numbers of bits"),
        (Page { channels: 2, ..page(vec![(339, 3, vec![1, 3])]) }, "different formats"),
    ] {
        let message = message(planes(&page.file(), None, None));
        assert!(message.contains(words), "{words}: {message}");
    }
    // 50 MB behind a strip of 234 bytes are not decoded; 100 bytes are too few.
    let strip = |raw: &[u8]| {
        let data = Some(vec![miniz_oxide::deflate::compress_to_vec_zlib(raw, 9)]);
        Page { rows: 9, packing: Packing::Deflate, data, ..Page::default() }.file()
    };
    assert_eq!(planes(&strip(&[0; 50_000_000]), None, None).unwrap().values::<u16>(), [0; 117]);
    assert!(message(planes(&strip(&[0; 100]), None, None)).contains("100 of 234 bytes"));
}

/// Small files of all kinds.
pub fn small_files() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for (kind, channels, packing, predictor) in [
        (U8, 1, Packing::None, 1),
        (U16, 3, Packing::Lzw, 2),
        (I16, 2, Packing::PackBits, 1),
        (F32, 2, Packing::Deflate, 3),
        (F16, 1, Packing::Lzw, 3),
        ((1, 12), 2, Packing::Deflate, 1),
        ((1, 1), 1, Packing::None, 1),
    ] {
        for (tile, is_planar, is_big_tiff) in [(None, false, false), (Some(Size::new(4, 8)), true, true)] {
            let page =
                Page { size: Size::new(7, 5), kind, channels, packing, predictor, tile, is_planar, ..Page::default() };
            files.push(Page { rows: 3, is_big_tiff, is_big_endian: !is_big_tiff, ..page }.file());
        }
    }
    let thumbnail = Page { size: Size::new(2, 2), kind: U8, tags: vec![(254, 4, vec![1])], ..Page::default() };
    let map = (0..3 * 4).map(|i| i * 5000).collect();
    let palette =
        Page { size: Size::new(4, 4), kind: (1, 2), photometric: 3, tags: vec![(320, 3, map)], ..Page::default() };
    files.push(file_of(&[thumbnail, palette]));
    files.push(Page { size: Size::new(4, 4), kind: U8, channels: 4, photometric: 5, ..Page::default() }.file());
    let jpeg =
        |color| encode_jpeg(&Image::new(Size::new(8, 4)), &JpegOptions { color, ..JpegOptions::default() }).unwrap();
    files.push(jpeg_page(&[jpeg(JpegColor::Ycc)], Size::new(8, 4), 4, 6, None));
    files.push(jpeg_page(&[jpeg(JpegColor::Gray)], Size::new(8, 4), 4, 1, None));
    files
}
