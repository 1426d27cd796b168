//! JPEG decoding on one thread: whole images, and centered rectangles of half and a quarter of the sides.

mod common;

use divan::Bencher;
use divan::counter::ItemsCount;
use warpfeed::image::{Decoder, Image, Rect, Size, probe};

fn main() {
    divan::main();
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn whole(bencher: Bencher<'_, '_>) {
    decode(bencher, 1);
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn half_of_the_sides(bencher: Bencher<'_, '_>) {
    decode(bencher, 2);
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn quarter_of_the_sides(bencher: Bencher<'_, '_>) {
    decode(bencher, 4);
}

fn decode(bencher: Bencher<'_, '_>, divisor: u32) {
    let jobs: Vec<_> = common::images()
        .iter()
        .map(|bytes| {
            let header = probe(bytes).expect("a header");
            let Size { width: w, height: h } = header.size;
            let (width, height) = ((w / divisor).max(1), (h / divisor).max(1));
            (bytes, header, Rect { x: (w - width) / 2, y: (h - height) / 2, width, height })
        })
        .collect();
    let mut decoder = Decoder::new().expect("a decoder");
    let mut image = Image::default();
    bencher.counter(ItemsCount::new(jobs.len())).bench_local(|| {
        for (bytes, header, part) in &jobs {
            decoder.decode(bytes, header, *part, false, &mut image).expect("it decodes");
        }
        divan::black_box(&image);
    });
}
