//! Latency of a call in serving, with one image and with eight.

mod common;

use divan::Bencher;
use divan::counter::ItemsCount;
use std::num::NonZero;
use warpfeed::{Preprocessor, PreprocessorOptions, Preset};

fn main() {
    divan::main();
}

#[divan::bench(args = [1, 8], sample_count = 50, sample_size = 1)]
fn one_thread(bencher: Bencher<'_, '_>, batch: usize) {
    call(bencher, batch, 0);
}

#[divan::bench(args = [8], sample_count = 50, sample_size = 1)]
fn all_threads(bencher: Bencher<'_, '_>, batch: usize) {
    call(bencher, batch, std::thread::available_parallelism().map_or(1, NonZero::get));
}

fn call(bencher: Bencher<'_, '_>, batch: usize, threads: usize) {
    let options = PreprocessorOptions::default().max_batch(batch).threads(threads);
    let preprocessor = Preprocessor::from_preset(Preset::Eval, &options).expect("presets are valid");
    let images: Vec<&[u8]> = common::images().iter().map(|bytes| &bytes[..]).collect();
    let mut batches = images.chunks_exact(batch).cycle();
    bencher.counter(ItemsCount::new(batch)).bench_local(|| {
        let batch = batches.next().expect("there are images");
        divan::black_box(preprocessor.run(batch).expect("the images are whole"));
    });
}
