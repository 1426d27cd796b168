//! Decoding JPEGs on one thread: whole images and rectangles of half the sides.

mod common;

use divan::Bencher;
use divan::counter::ItemsCount;
use std::sync::LazyLock;
use warpfeed_image::decode::{DecodeOptions, EntryPointStore};
use warpfeed_image::{Decoder, Header, Image, JpegOptions, Rect, Size, encode_jpeg, probe};

static JPEGS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    common::jpegs(|width, height, rgb| {
        let image = Image::from_rgb(Size::new(width, height), rgb).expect("three bytes a pixel");
        encode_jpeg(&image, &JpegOptions::default()).expect("it can be encoded")
    })
});

fn main() {
    divan::main();
}

fn rectangle(image: usize, epoch: u64, Size { width, height }: Size) -> Rect {
    let [x, y, width, height] = common::rectangle(image, epoch, width, height);
    Rect { x, y, width, height }
}

fn decode(bencher: Bencher<'_, '_>, is_whole: bool, store: Option<&EntryPointStore>) {
    let headers: Vec<Header> = JPEGS.iter().map(|bytes| probe(bytes).expect("a header")).collect();
    let (mut decoder, mut image) = (Decoder::new().expect("a decoder"), Image::default());
    let mut epoch = |epoch| {
        for (number, (bytes, header)) in JPEGS.iter().zip(&headers).enumerate() {
            let part = if is_whole { Rect::full(header.size) } else { rectangle(number, epoch, header.size) };
            let options = DecodeOptions { entry_points: store, ..DecodeOptions::default() };
            decoder.decode_with(bytes, header, part, options, &mut image).expect("it decodes");
            divan::black_box(&image);
        }
    };
    // Entry points are learned.
    (1..=if store.is_some() { 3 } else { 0 }).for_each(&mut epoch);
    bencher.counter(ItemsCount::new(JPEGS.len())).bench_local(|| epoch(4));
}

#[divan::bench(sample_size = 1)]
fn whole(bencher: Bencher<'_, '_>) {
    decode(bencher, true, None);
}

#[divan::bench(sample_size = 1)]
fn whole_from_entry_points(bencher: Bencher<'_, '_>) {
    decode(bencher, true, Some(&EntryPointStore::new(64 << 20)));
}

#[divan::bench(sample_size = 1)]
fn rectangle_of_half_the_sides(bencher: Bencher<'_, '_>) {
    decode(bencher, false, None);
}

/// The first decode of images with entry points of their own, which are checked.
#[divan::bench(sample_size = 1)]
fn rectangle_from_packed_points(bencher: Bencher<'_, '_>) {
    let (mut decoder, mut image) = (Decoder::new().expect("a decoder"), Image::default());
    let packed = JPEGS.iter().map(|bytes| {
        let header = probe(bytes).expect("a header");
        let packed = decoder.with_entry_points(bytes, &header, None, &mut image).expect("it decodes");
        packed.unwrap_or_else(|| bytes.clone())
    });
    let packed: Vec<Vec<u8>> = packed.collect();
    bencher.counter(ItemsCount::new(packed.len())).bench_local(|| {
        let store = EntryPointStore::new(64 << 20);
        let options = DecodeOptions { entry_points: Some(&store), ..DecodeOptions::default() };
        for (number, bytes) in packed.iter().enumerate() {
            let header = probe(bytes).expect("a header");
            let part = rectangle(number, 4, header.size);
            decoder.decode_with(bytes, &header, part, options, &mut image).expect("it decodes");
            divan::black_box(&image);
        }
    });
}

#[divan::bench(sample_size = 1)]
fn rectangle_from_entry_points(bencher: Bencher<'_, '_>) {
    decode(bencher, false, Some(&EntryPointStore::new(64 << 20)));
}
