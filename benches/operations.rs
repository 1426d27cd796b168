//! Each operation on one thread, including decoding; `[]` is decoding alone. `sequential` computes whole images,
//! `fused` only the needed pixels. `in_memory` has no decoding, and `alone` are presets without a pipeline: both read and
//! write packed bytes or planes of 500 x 375 pixels.

mod common;

use divan::Bencher;
use divan::counter::ItemsCount;
use std::fmt;
use warpfeed::{
    ApplyOptions, Preset, Strategy, apply,
    fields::Fields,
    image::{Size, probe},
    ops::Op,
    transforms::{Key, Transforms, TransformsOptions, View, ViewMut},
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

/// The size of a typical photograph of ImageNet.
const TYPICAL: Size = Size::new(500, 375);

/// Recipes of one operation that makes bytes.
fn operations() -> Vec<Recipe> {
    let bytes = |op: &Op| !matches!(op, Op::Normalize(_) | Op::ToFloat(_));
    let examples = Op::examples(TYPICAL).into_iter().filter(bytes);
    examples.map(|op| Recipe(vec![op])).collect()
}

/// Bytes of three channels without much order.
fn pixels() -> Vec<u8> {
    (0..3 * TYPICAL.area_px() as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[divan::bench(args = operations(), consts = [false, true], sample_count = 20)]
fn in_memory<const PLANES: bool>(bencher: Bencher<'_, '_>, Recipe(ops): &Recipe) {
    let (op, pixels) = (&ops[0], pixels());
    let size = op.output_size(TYPICAL).expect("it fits the image");
    let mut out = vec![0_u8; 3 * size.area_px() as usize];
    bencher.bench_local(|| {
        let views = if PLANES {
            View::chw(&pixels, TYPICAL, 3).and_then(|image| Ok((image, ViewMut::chw(&mut out, size, 3)?)))
        } else {
            View::hwc(&pixels, TYPICAL, 3).and_then(|image| Ok((image, ViewMut::hwc(&mut out, size, 3)?)))
        };
        let (image, out) = views.expect("the memory is long enough");
        // Operations with other samples, and those that do not fit, are refused at once.
        divan::black_box(op.apply_to(image, out).is_ok())
    });
}

#[divan::bench(args = [Preset::Train, Preset::RandAugment, Preset::Ssd], consts = [1, 32], sample_count = 100)]
fn alone<const IMAGES: u64>(bencher: Bencher<'_, '_>, preset: Preset) {
    let transforms = Transforms::from_preset(preset, &TransformsOptions::default()).expect("presets are valid");
    let pixels = pixels();
    let image = View::hwc(&pixels, TYPICAL, 3).expect("the memory is long enough");
    let mut epoch = 0;
    bencher.counter(ItemsCount::new(IMAGES)).bench_local(|| {
        epoch += 1;
        let keys: Vec<Key> = (0..IMAGES).map(|index| Key { seed: 42, epoch, index }).collect();
        match &keys[..] {
            [key] => transforms.apply_with_fields(image, &Fields::new(), *key).map(|(tensor, _)| tensor),
            keys => transforms.apply_batch(&vec![image; keys.len()], keys, 1),
        }
        .expect("the image fits")
    });
}
