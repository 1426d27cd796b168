//! Each operation on one thread, including decoding; `[]` is decoding alone. `sequential` computes whole images,
//! `fused` only the needed pixels.

mod common;

use divan::Bencher;
use divan::counter::ItemsCount;
use std::fmt;
use warpfeed::{
    ApplyOptions, Strategy, apply,
    image::{Size, probe},
    ops::Op,
};

/// Images per measurement.
const IMAGES: usize = 8;

struct Recipe(Vec<Op>);

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(&self.0).expect("operations can be written"))
    }
}

/// The empty recipe, and every example of an operation that fits all images.
fn recipes() -> Vec<Recipe> {
    let sizes = images().iter().map(|bytes| probe(bytes).expect("an image").size);
    let smallest = |a: Size, b: Size| Size::new(a.width.min(b.width), a.height.min(b.height));
    let size = sizes.reduce(smallest).expect("at least one image");
    let alone = Op::examples(size).into_iter().map(|op| Recipe(vec![op]));
    std::iter::once(Recipe(Vec::new())).chain(alone).collect()
}

fn images() -> &'static [Vec<u8>] {
    &common::images()[..IMAGES.min(common::images().len())]
}

fn main() {
    divan::main();
}

#[divan::bench(args = recipes(), sample_count = 20, sample_size = 1)]
fn sequential(bencher: Bencher<'_, '_>, recipe: &Recipe) {
    run(bencher, recipe, Strategy::Sequential);
}

#[divan::bench(args = recipes(), sample_count = 20, sample_size = 1)]
fn fused(bencher: Bencher<'_, '_>, recipe: &Recipe) {
    run(bencher, recipe, Strategy::Fused);
}

fn run(bencher: Bencher<'_, '_>, Recipe(ops): &Recipe, strategy: Strategy) {
    let options = ApplyOptions::default().strategy(strategy);
    bencher.counter(ItemsCount::new(images().len())).bench_local(|| {
        for bytes in images() {
            divan::black_box(apply(bytes, ops, &options).expect("it fits the image"));
        }
    });
}
