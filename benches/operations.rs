//! Each operation on one thread, through `apply`: decoding is in every figure, and alone in the first (`[]`).
//!
//! `sequential` decodes the whole image and makes every pixel of the result; `fused` only what is asked for.

mod common;

use divan::Bencher;
use divan::counter::ItemsCount;
use warpfeed::{ApplyOptions, Op, Strategy, apply};

/// Images a sample.
const IMAGES: usize = 8;

const RECIPES: [&str; 22] = [
    "[]",
    r#"[{"op":"hflip"}]"#,
    r#"[{"op":"vflip"}]"#,
    r#"[{"op":"rotate","degrees":90,"expand":true}]"#,
    r#"[{"op":"rotate","degrees":5}]"#,
    r#"[{"op":"rotate","degrees":5,"interpolation":"bilinear"}]"#,
    r#"[{"op":"rotate","degrees":5,"interpolation":"bilinear","expand":true,"fill":"edge"}]"#,
    r#"[{"op":"resize","width":224,"height":224,"interpolation":"nearest"}]"#,
    r#"[{"op":"resize","width":224,"height":224}]"#,
    r#"[{"op":"resize","width":224,"height":224,"interpolation":"bicubic"}]"#,
    r#"[{"op":"resize","width":224,"height":224,"interpolation":"lanczos"}]"#,
    r#"[{"op":"center_crop","width":224,"height":224}]"#,
    r#"[{"op":"resized_crop","x":30,"y":20,"width":200,"height":160,"out_width":224,"out_height":224}]"#,
    r#"[{"op":"gaussian_blur","kernel":9,"sigma":1.5}]"#,
    r#"[{"op":"dilate","kernel":5}]"#,
    r#"[{"op":"erode","kernel":5}]"#,
    r#"[{"op":"brightness","factor":1.2}]"#,
    r#"[{"op":"contrast","factor":1.2}]"#,
    r#"[{"op":"saturation","factor":1.2}]"#,
    r#"[{"op":"hue","factor":0.1}]"#,
    r#"[{"op":"grayscale"}]"#,
    r#"[{"op":"normalize","mean":[0.5,0.5,0.5],"std":[0.2,0.2,0.2]}]"#,
];

fn main() {
    divan::main();
}

#[divan::bench(args = RECIPES, sample_count = 20, sample_size = 1)]
fn sequential(bencher: Bencher<'_, '_>, recipe: &str) {
    run(bencher, recipe, Strategy::Sequential);
}

#[divan::bench(args = RECIPES, sample_count = 20, sample_size = 1)]
fn fused(bencher: Bencher<'_, '_>, recipe: &str) {
    run(bencher, recipe, Strategy::Fused);
}

fn run(bencher: Bencher<'_, '_>, recipe: &str, strategy: Strategy) {
    let ops: Vec<Op> = serde_json::from_str(recipe).expect("a recipe");
    let options = ApplyOptions { strategy, ..ApplyOptions::default() };
    let images = &common::images()[..IMAGES.min(common::images().len())];
    bencher.counter(ItemsCount::new(images.len())).bench_local(|| {
        for bytes in images {
            divan::black_box(apply(bytes, &ops, &options).expect("it fits the image"));
        }
    });
}
