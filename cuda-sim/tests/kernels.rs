//! Every kernel, compiled for the host, against the CPU path: equal bytes, on odd sizes and in mixed batches.

// The planner is the library's own, taken in as source: it is not public.
#[path = "../../src/error.rs"]
#[allow(dead_code)]
mod error;
#[path = "../../src/recipe/filter.rs"]
#[allow(dead_code)]
mod filter;
#[path = "../../src/cpu/gaussian_blur.rs"]
#[allow(dead_code)]
mod gaussian_blur;
#[path = "../../src/recipe/lower.rs"]
#[allow(dead_code)]
mod lower;
#[path = "../../src/recipe/op.rs"]
#[allow(dead_code)]
mod op;
#[path = "../../src/cuda/params.rs"]
mod params;
#[path = "../../src/picture.rs"]
#[allow(dead_code)]
mod picture;
#[path = "../../src/recipe/rotation.rs"]
#[allow(dead_code)]
mod rotation;
#[path = "../../src/cpu/simd.rs"]
#[allow(dead_code)]
mod simd;
mod support;

use lower::Geometry;
use picture::Size;
use serde_json::{Value, json};
use support::host::{Element, Format, Job, Layout, normalized, planned, sequential};
use warpfeed::{ApplyOptions, Strategy, apply};

/// A small generator: xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A whole number in a range, its end included.
    fn within(&mut self, low: u32, high: u32) -> u32 {
        low + (self.next() >> 32) as u32 % (high - low + 1)
    }

    fn real(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn of<'a>(&mut self, names: &[&'a str]) -> &'a str {
        names[self.within(0, names.len() as u32 - 1) as usize]
    }
}

/// Gradients and noise; some are noise at the extremes.
fn rgb(size: Size, seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (extreme, width) = (seed.is_multiple_of(3), size.width as usize);
    (0..3 * size.area_px() as usize)
        .map(|i| {
            let noise = random.next() >> 32;
            let (x, y) = (i / 3 % width, i / 3 / width);
            if extreme { (noise & 1) as u8 * 255 } else { ((x + 2 * y) as u8).wrapping_add(noise as u8 & 63) }
        })
        .collect()
}

fn job(size: Size, seed: u64, recipe: &Value) -> Job {
    let ops = serde_json::from_value(recipe.clone()).expect("recipes are well formed");
    Job { size, rgb: rgb(size, seed), ops }
}

fn png(job: &Job) -> Vec<u8> {
    let picture =
        image::RgbImage::from_raw(job.size.width, job.size.height, job.rgb.clone()).expect("three bytes a pixel");
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut bytes, image::ImageFormat::Png).expect("memory can be written");
    bytes.into_inner()
}

/// What the CPU makes of it, in the format asked for.
fn expected(job: &Job, strategy: Strategy, format: Format) -> Vec<u8> {
    let recipe = serde_json::to_value(&job.ops).expect("operations can be written");
    let ops: Vec<warpfeed::Op> = serde_json::from_value(recipe).expect("they are the same type");
    let options = ApplyOptions { strategy, ..ApplyOptions::default() };
    let tensor = apply(&png(job), &ops, &options).expect("recipes fit");
    let (_, epilogue) = lower::split_epilogue(&job.ops).expect("recipes fit");
    // As f32 or bytes, in the other layout or the same.
    let [_, a, b, c] = tensor.shape();
    let (width, area) = if tensor.layout() == warpfeed::Layout::Nchw { (c, b * c) } else { (b, a * b) };
    assert!(width > 0);
    let bits = |x: usize, channel: usize| match tensor.as_slice::<f32>() {
        Ok(values) => format.element.bits(values[channel * area + x]),
        Err(_) => {
            let byte = tensor.as_bytes().expect("it is in host memory")[3 * x + channel];
            match format.element {
                Element::U8 => u32::from(byte),
                element => element.bits(normalized(byte, channel, epilogue.normalize)),
            }
        }
    };
    let order: Vec<(usize, usize)> = match format.layout {
        Layout::Nchw => (0..3).flat_map(|channel| (0..area).map(move |x| (x, channel))).collect(),
        Layout::Nhwc => (0..area).flat_map(|x| (0..3).map(move |channel| (x, channel))).collect(),
    };
    order.into_iter().flat_map(|(x, channel)| format.element.stored(bits(x, channel))).collect()
}

const BYTES: Format = Format { element: Element::U8, layout: Layout::Nhwc, misaligned: 0 };

#[track_caller]
fn check(jobs: &[Job], strategy: Strategy, format: Format) {
    let got = match strategy {
        Strategy::Sequential => sequential(jobs, format),
        Strategy::Fused => planned(jobs, Geometry::Exact, format),
        Strategy::Composed => planned(jobs, Geometry::Composed, format),
    };
    for (job, got) in jobs.iter().zip(got) {
        let want = expected(job, strategy, format);
        assert_eq!(got.len(), want.len());
        if let Some(at) = (0..got.len()).find(|&i| got[i] != want[i]) {
            let wrong = (0..got.len()).filter(|&i| got[i] != want[i]).count();
            panic!(
                "{strategy:?} {format:?}, {} through {:?}: {wrong} of {} bytes differ, first {at}: got {}, want {}",
                job.size,
                job.ops,
                got.len(),
                got[at],
                want[at]
            );
        }
    }
}

const SIZES: [Size; 5] = [Size::new(1, 1), Size::new(7, 5), Size::new(17, 33), Size::new(250, 131), Size::new(40, 3)];

/// The operation on a batch of all sizes, one pass an operation, and as planned.
#[track_caller]
fn check_op(make: impl Fn(Size) -> Value) {
    let jobs: Vec<Job> = SIZES.iter().zip(1..).map(|(&size, seed)| job(size, seed, &json!([make(size)]))).collect();
    check(&jobs, Strategy::Sequential, BYTES);
    check(&jobs, Strategy::Fused, BYTES);
}

#[test]
fn flip() {
    check_op(|_| json!({"op": "hflip"}));
    check_op(|_| json!({"op": "vflip"}));
    for degrees in [90, 180, 270, 360] {
        check_op(|_| json!({"op": "rotate", "degrees": degrees, "expand": true}));
    }
}

#[test]
fn rotate() {
    for interpolation in ["nearest", "bilinear"] {
        for fill in [json!([1, 200, 77]), json!("edge")] {
            for expand in [false, true] {
                for degrees in [5.0, -33.3, 90.0, 181.0] {
                    check_op(|_| {
                        json!({"op": "rotate", "degrees": degrees, "expand": expand, "fill": fill,
                               "interpolation": interpolation})
                    });
                }
            }
        }
    }
}

#[test]
fn rotate_nearest_beyond_fixed_point() {
    // Coordinates of 32768 and more.
    let recipe = json!([{"op": "rotate", "degrees": 0.5, "fill": [9, 8, 7]}]);
    let edge = json!([{"op": "rotate", "degrees": 0.5, "fill": "edge"}]);
    let long = Size::new(33_000, 3);
    check(&[job(long, 2, &recipe), job(SIZES[3], 3, &edge), job(long, 4, &edge)], Strategy::Sequential, BYTES);
}

#[test]
fn crop() {
    for fill in [json!([1, 200, 77]), json!("edge")] {
        for (x, y, width, height) in [(0, 0, 1, 1), (-3, 2, 40, 9), (5, -9, 8, 300), (-60, -70, 20, 30), (300, 0, 5, 5)]
        {
            check_op(|_| json!({"op": "crop", "x": x, "y": y, "width": width, "height": height, "fill": fill}));
        }
    }
    check_op(|_| json!({"op": "center_crop", "width": 16, "height": 12}));
}

#[test]
fn resize() {
    for interpolation in ["nearest", "bilinear", "bicubic", "lanczos"] {
        for (width, height) in [(1, 1), (64, 33), (7, 200), (250, 3), (300, 131)] {
            check_op(|_| json!({"op": "resize", "width": width, "height": height, "interpolation": interpolation}));
        }
        check_op(|size| {
            json!({"op": "resized_crop", "x": size.width / 3, "y": size.height / 4, "width": size.width.div_ceil(2),
                   "height": size.height.div_ceil(2), "out_width": 35, "out_height": 18,
                   "interpolation": interpolation})
        });
    }
}

#[test]
fn resize_with_more_weights_than_fit_shared_memory() {
    for interpolation in ["bilinear", "lanczos"] {
        let small = json!([{"op": "resize", "width": 3, "height": 2, "interpolation": interpolation}]);
        let jobs = [job(Size::new(900, 40), 1, &small), job(Size::new(30, 700), 3, &small)];
        check(&jobs, Strategy::Sequential, BYTES);
        check(&jobs, Strategy::Fused, BYTES);
    }
}

#[test]
fn gaussian_blur() {
    for (kernel, sigma) in [(1, 1.0), (3, 0.1), (9, 2.0), (23, 1.7), (101, 30.0)] {
        check_op(|_| json!({"op": "gaussian_blur", "kernel": kernel, "sigma": sigma}));
    }
}

#[test]
fn dilate_and_erode() {
    for kernel in [1, 2, 3, 8, 45] {
        check_op(|_| json!({"op": "dilate", "kernel": kernel}));
        check_op(|_| json!({"op": "erode", "kernel": kernel}));
    }
}

#[test]
fn color() {
    for factor in [0.0, 0.3, 0.999, 1.0, 1.7, 20.0] {
        for op in ["brightness", "contrast", "saturation"] {
            check_op(|_| json!({"op": op, "factor": factor}));
        }
    }
    for factor in [-0.5, -0.37, -0.004, 0.0, 0.1, 0.5] {
        check_op(|_| json!({"op": "hue", "factor": factor}));
    }
    check_op(|_| json!({"op": "grayscale"}));
}

#[test]
fn hue_of_many_colors() {
    // Every fifth value of each channel.
    let rgb =
        (0..52 * 52 * 52).flat_map(|i| [i / (52 * 52), i / 52 % 52, i % 52].map(|v: u32| (v * 5) as u8)).collect();
    let ops = serde_json::from_value(json!([{"op": "hue", "factor": 0.22}])).expect("it is well formed");
    check(&[Job { size: Size::new(52 * 52, 52), rgb, ops }], Strategy::Sequential, BYTES);
}

#[test]
fn erase() {
    check_op(|size| {
        let (x, y) = (size.width / 3, size.height / 2);
        json!({"op": "erase", "x": x, "y": y, "width": size.width - x, "height": (size.height - y).div_ceil(2),
               "value": [0.5, 254.4, 17.0]})
    });
}

#[test]
fn every_type_and_layout() {
    let normalize = json!({"op": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]});
    let erase = |x, value: [f32; 3]| json!({"op": "erase", "x": x, "y": 1, "width": 9, "height": 20, "value": value});
    // A width that is a multiple of every store, and one that is not.
    for (width, height) in [(64, 32), (37, 29)] {
        for mirror in ["hflip", "vflip"] {
            let resize = json!({"op": "resize", "width": width, "height": height});
            let plain = json!([resize, {"op": mirror}]);
            let erased =
                json!([resize, {"op": mirror}, normalize, erase(3, [0.1, -2.0, 3.3]), erase(8, [1.0, 0.0, 7e-9])]);
            for element in Element::ALL {
                let recipe = if element == Element::U8 || mirror == "vflip" { &plain } else { &erased };
                let jobs: Vec<Job> = SIZES.iter().zip(5..).map(|(&size, seed)| job(size, seed, recipe)).collect();
                for layout in Layout::ALL {
                    for misaligned in [0, 1] {
                        let format = Format { element, layout, misaligned };
                        check(&jobs, Strategy::Sequential, format);
                        check(&jobs, Strategy::Fused, format);
                    }
                }
            }
        }
    }
}

/// Any operation that fits a picture of this size.
fn random_op(random: &mut Random, size: Size) -> Value {
    let within = |random: &mut Random, side: u32| {
        let len = random.within(1, side);
        (random.within(0, side - len), len)
    };
    let ((x, width), (y, height)) = (within(random, size.width), within(random, size.height));
    let fill = if random.within(0, 3) == 0 { json!("edge") } else { json!([random.within(0, 255), 128, 3]) };
    let interpolation = random.of(&["nearest", "bilinear", "bicubic", "lanczos"]);
    match random.within(0, 17) {
        0 => json!({"op": "hflip"}),
        1 => json!({"op": "vflip"}),
        2..=4 => json!({"op": "rotate", "degrees": random.real(-12.0, 12.0), "fill": fill}),
        5 => json!({"op": "rotate", "degrees": random.real(-40.0, 40.0), "fill": fill, "expand": size.width < 200,
                    "interpolation": "bilinear"}),
        6 => json!({"op": "rotate", "degrees": 90 * random.within(0, 4), "expand": true}),
        7 | 8 => json!({"op": "crop", "x": x, "y": y, "width": width, "height": height}),
        9 => json!({"op": "crop", "x": x as i32 - 9, "y": y as i32 - 4, "width": width + 12, "height": height + 12,
                    "fill": fill}),
        10 => json!({"op": "center_crop", "width": random.within(1, 90), "height": random.within(1, 90)}),
        11 => json!({"op": "resize", "width": random.within(1, 90), "height": random.within(1, 90),
                     "interpolation": interpolation}),
        12 => json!({"op": "resized_crop", "x": x, "y": y, "width": width, "height": height,
                     "out_width": random.within(1, 90), "out_height": random.within(1, 90),
                     "interpolation": interpolation}),
        13 => json!({"op": "gaussian_blur", "kernel": 2 * random.within(0, 6) + 1, "sigma": random.real(0.1, 3.0)}),
        14 => json!({"op": random.of(&["dilate", "erode"]), "kernel": random.within(1, 6)}),
        15 => json!({"op": random.of(&["brightness", "contrast", "saturation"]), "factor": random.real(0.0, 2.0)}),
        16 => json!({"op": "hue", "factor": random.real(-0.5, 0.5)}),
        _ => json!({"op": "erase", "x": x, "y": y, "width": width, "height": height, "value": [1.0, 2.0, 3.0]}),
    }
}

#[test]
fn random_recipes() {
    let mut random = Random(0x5eed);
    for round in 0..60 {
        let jobs: Vec<Job> = (0..4)
            .map(|i| {
                let start = Size::new(random.within(1, 150), random.within(1, 150));
                let (mut size, mut recipe) = (start, Vec::new());
                for _ in 0..random.within(1, 7) {
                    let written = random_op(&mut random, size);
                    let op: op::Op = serde_json::from_value(written.clone()).expect("recipes are well formed");
                    size = op.output_size(size).expect("recipes fit");
                    recipe.push(written);
                }
                job(start, round * 4 + i + 1, &Value::Array(recipe))
            })
            .collect();
        check(&jobs, Strategy::Sequential, BYTES);
        check(&jobs, Strategy::Fused, BYTES);
        check(&jobs, Strategy::Composed, BYTES);
    }
}

#[test]
fn a_training_batch() {
    // Twelve times flips and a rotation, a random resized crop, normalised: one launch.
    let mut random = Random(12);
    let jobs: Vec<Job> = (0..3)
        .map(|i| {
            let size = Size::new(random.within(300, 500), random.within(200, 400));
            let mut recipe = Vec::new();
            for _ in 0..12 {
                recipe.push(json!({"op": random.of(&["hflip", "vflip"])}));
                recipe.push(json!({"op": "rotate", "degrees": random.real(-5.0, 5.0)}));
            }
            let (width, height) = (random.within(100, size.width), random.within(100, size.height));
            let (x, y) = (random.within(0, size.width - width), random.within(0, size.height - height));
            recipe.push(json!({"op": "resized_crop", "x": x, "y": y, "width": width, "height": height,
                               "out_width": 224, "out_height": 224}));
            recipe.push(json!({"op": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}));
            job(size, i + 1, &Value::Array(recipe))
        })
        .collect();
    for (element, layout) in [(Element::F16, Layout::Nchw), (Element::F32, Layout::Nhwc)] {
        let format = Format { element, layout, misaligned: 0 };
        check(&jobs, Strategy::Fused, format);
        check(&jobs, Strategy::Sequential, format);
    }
}

#[test]
fn spin_takes_as_long_as_it_is_told() {
    let start = std::time::Instant::now();
    support::device::spin(5_000);
    let took = start.elapsed();
    assert!((5..500).contains(&took.as_millis()), "{took:?}");
}

#[test]
fn the_readme_has_a_line_for_every_kernel() {
    let readme = include_str!("../../kernels/README.md");
    for kernel in cuda_sim::Kernel::all() {
        let mut line = kernel.name().to_owned();
        for family in ["fused", "finish"] {
            if line.starts_with(family) {
                line = format!("{family}_{{u8,f16,bf16,f32}}_{{nchw,nhwc}}");
            }
        }
        assert!(readme.contains(&format!("| `{line}` |")), "{line} is missing");
    }
}

#[test]
fn every_kernel_is_found_by_name() {
    for kernel in cuda_sim::Kernel::all() {
        assert_eq!(cuda_sim::Kernel::find(kernel.name()), Some(kernel));
    }
    assert_eq!(cuda_sim::Kernel::all().filter(|kernel| kernel.name().starts_with("fused_")).count(), 8);
    assert_eq!(cuda_sim::Kernel::find("fused"), None);
}
