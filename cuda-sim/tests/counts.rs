//! The memory accesses of kernels in kernels/model.tsv: sectors of 32 bytes in device memory, and wavefronts in shared
//! memory. `scripts/kernels table` makes the table.

#![allow(unsafe_code)]

#[path = "../../src/ops/descriptors.rs"]
#[allow(dead_code)]
mod descriptors;

use cuda_sim::{Kernel, LAUNCH_BYTES, Memory};
use descriptors::{
    Axis, BatchPlace, BlurSample, BoxBlurSample, ColorSample, ContrastSample, CropSample, ElasticSample,
    EraseNoiseSample, EraseSample, FieldLoadSample, FieldStoreSample, FinishSample, FlipSample, FusedSample,
    HistogramSample, Launch, MixSample, MixupBatch, MixupSample, MorphologySample, NoiseSample, PerspectiveSample,
    PlanesBlurSample, PlanesCopySample, PlanesEraseSample, PlanesExtremeSample, PlanesFinishSample, PlanesImage,
    PlanesNearestSample, PlanesNoiseSample, PlanesPointsSample, PlanesResizeSample, PlanesWarpSample, ResizeSample,
    RotateSample, SharpnessSample, SourceImage, TableSample, TargetImage, ViewLoadSample,
};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, c_char, c_int, c_void};

/// The side of results, which are square, and of most images.
const SIDE: u32 = 224;
/// The part of an image that is resized to this side, by factors of 1.34 and 1.12.
const VIEW: (u32, u32) = (300, 250);
/// Size of a kernel's window, for blur, dilation and erosion.
const KERNEL: u32 = 5;

/// Device memory that lives as long as the test.
fn put<T: Copy>(values: &[T]) -> u64 {
    // SAFETY: the values' own memory, of numbers and of structs of params.rs, which have no padding.
    let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) };
    let memory = Box::leak(Box::new(Memory::new(bytes.len(), 0)));
    memory.bytes_mut().copy_from_slice(bytes);
    memory.address()
}

fn image(width: u32, height: u32) -> SourceImage {
    let pitch_bytes = (3 * width).next_multiple_of(16);
    let pixels: Vec<u8> =
        (0..pitch_bytes * height).map(|i| (i.wrapping_mul(2_654_435_761).rotate_left(9) >> 24) as u8).collect();
    SourceImage {
        pixels: put(&pixels),
        pitch_bytes,
        width,
        height,
        whole_width: width,
        whole_height: height,
        ..SourceImage::default()
    }
}

fn target(width: u32, height: u32) -> TargetImage {
    let SourceImage { pixels, pitch_bytes, .. } = image(width, height);
    TargetImage { pixels, pitch_bytes, width, height, ..TargetImage::default() }
}

/// Three channels of 16 bits.
fn planes(width: u32, height: u32) -> PlanesImage {
    let values: Vec<u16> =
        (0..3 * width * height).map(|i| (i.wrapping_mul(2_654_435_761).rotate_left(9) >> 16) as u16).collect();
    let (whole_width, whole_height) = (width, height);
    let values = put(&values);
    PlanesImage { values, width, height, whole_width, whole_height, element: PlanesImage::U16, channels: 3, x: 0, y: 0 }
}

/// The places of a bilinear resize's weights. The weights are all equal here.
fn axis(input: u32, output: u32) -> Axis {
    let scale = f64::from(input) / f64::from(output);
    let (mut starts, mut offsets, mut most) = (Vec::new(), vec![0], 0);
    for i in 0..output {
        let center = (f64::from(i) + 0.5) * scale;
        let start = (center - scale + 0.5) as i32;
        let end = ((center + scale + 0.5) as i32).min(input as i32);
        starts.push(start);
        offsets.push(offsets[i as usize] + end - start);
        most = most.max(end - start);
    }
    let weights = vec![1 << 20; offsets[output as usize] as usize];
    Axis { starts: put(&starts), offsets: put(&offsets), weights: put(&weights), first: 0, most: most as u32 }
}

fn output(bytes: u32, nchw: bool) -> BatchPlace {
    BatchPlace {
        elements: put(&vec![0_u8; (bytes * 3 * SIDE * SIDE) as usize]),
        plane_stride: u64::from(SIDE * SIDE),
        row_stride: if nchw { SIDE } else { 3 * SIDE },
        width: SIDE,
        height: SIDE,
        ..BatchPlace::default()
    }
}

fn fused(vertical_first: u32) -> FusedSample {
    FusedSample {
        source: image(500, 375),
        output: output(2, true),
        columns: axis(VIEW.0, SIDE),
        rows: axis(VIEW.1, SIDE),
        exact: [1, 0, 100, 0, 1, 60],
        mirror_x: 1,
        mirror_y: 1,
        vertical_first,
        ..FusedSample::default()
    }
}

fn rotated(bits: i32) -> RotateSample {
    let (sin, cos) = 17.3_f64.to_radians().sin_cos();
    let half = f64::from(SIDE) / 2.0;
    let matrix = [cos, sin, half - half * (cos + sin), -sin, cos, half - half * (cos - sin)];
    let source = image(SIDE, SIDE);
    RotateSample {
        source,
        target: target(SIDE, SIDE),
        matrix,
        fixed: matrix.map(|value| (value * 2_f64.powi(bits)) as i64),
        doubt: 2,
        right: 3,
        down: source.pitch_bytes as i32,
        ..RotateSample::default()
    }
}

/// A launch of a kernel: its name, its grid and blocks, and its parameter.
type Launched<'a> = (&'a str, [u32; 3], [u32; 3], &'a [u8; LAUNCH_BYTES]);

/// Counts of a launch of one sample, as `run` returns them.
fn count<S: Copy, R>(kernel: &str, sample: S, run: &impl Fn(Launched<'_>) -> R) -> R {
    let table = put(&vec![0_u32; 3 * 256]);
    let parameter = Launch { samples: put(&[sample]), table, count: 1, reserved: 0 };
    // SAFETY: numbers without padding.
    let parameter: [u8; LAUNCH_BYTES] = unsafe { std::mem::transmute(parameter) };
    let (grid, block) = if kernel.starts_with("fused") || kernel.starts_with("finish") {
        ([SIDE.div_ceil(32), SIDE.div_ceil(16), 1], [256, 1, 1])
    } else if kernel.starts_with("mixup") {
        ([(3 * SIDE * SIDE).div_ceil(256), 1, 1], [256, 1, 1])
    } else if kernel.ends_with("_table_u8") {
        ([1, 1, 1], [32, 8, 1])
    } else {
        // The grid is as large as the view for kernels that read it.
        ([VIEW.0.div_ceil(32), VIEW.1.div_ceil(8), 1], [32, 8, 1])
    };
    run((kernel, grid, block, &parameter))
}

/// Counts of a launch of each kernel for one image, as `run` returns them, in the table's order.
fn all<R>(run: impl Fn(Launched<'_>) -> R) -> Vec<(&'static str, R)> {
    let (input, out) = (image(SIDE, SIDE), target(SIDE, SIDE));
    let SourceImage { pixels, pitch_bytes, width, height, .. } = input;
    let table = put(&[0_u8; 256]);
    let color = ColorSample { pixels, pitch_bytes, width, height, factor: 0.7, hue_shift: 9, order: 0b01_00_10 };
    let contrast = ContrastSample { pixels, luma_sum: put(&[0_u64]), table, pitch_bytes, width, height, factor: 0.7 };
    let across = ResizeSample { source: image(VIEW.0, SIDE), target: target(SIDE, SIDE), axis: axis(VIEW.0, SIDE) };
    let down = ResizeSample { source: image(SIDE, VIEW.1), target: target(SIDE, SIDE), axis: axis(VIEW.1, SIDE) };
    let blur = BlurSample {
        source: input,
        target: out,
        between: put(&vec![0_u32; (3 * SIDE * SIDE) as usize]),
        weights: put(&[1 << 22; 8]),
        kernel: KERNEL,
        kernel_y: KERNEL,
    };
    let rank = MorphologySample { source: input, target: out, kernel: KERNEL, reserved: 0 };
    let (counts, sums) = (put(&[9_u32; 3 * 256]), put(&vec![0_f32; (3 * SIDE * SIDE) as usize]));
    let tables = put(&[0_u8; 3 * 256]);
    let histogram = HistogramSample { pixels, counts, table: tables, pitch_bytes, width, height, reserved: 0 };
    let sharpness = SharpnessSample { source: input, target: out, factor: 1.7, reserved: 0 };
    let box_blur = BoxBlurSample {
        source: input,
        target: out,
        radius: KERNEL / 2,
        weight: (1 << 24) / KERNEL,
        far_weight: 0,
        down: 0,
    };
    let one = 1_i64 << 40;
    let coefficients = [one / 2, one / 90, 3 * one, -one / 90, one / 2, one, 0, one / 5000, one];
    let perspective = PerspectiveSample { source: input, target: out, coefficients, fill: 0, bilinear: 1 };
    let mix = MixSample {
        image: pixels,
        made: out.pixels,
        sums,
        image_pitch_bytes: pitch_bytes,
        made_pitch_bytes: pitch_bytes,
        width,
        height,
        weight: 0.5,
        first: 0,
    };
    let exact = [-1, 0, SIDE as i32 - 1, 0, 1, 0];
    let finish = FinishSample { source: input, output: output(2, true) };
    let nhwc = FusedSample { output: output(2, false), ..fused(0) };
    let erase = EraseSample { pixels, pitch_bytes, x: 0, y: 0, width, height, value: 7 };
    let normals = put(&[7_i32; 1025]);
    let noise = NoiseSample { pixels, normals, key: 5, pitch_bytes, width, height, clip: 1, ..NoiseSample::default() };
    let erase_noise = EraseNoiseSample {
        width,
        height,
        normals,
        key: 5,
        std: 1.0,
        output: output(2, true),
        ..EraseNoiseSample::default()
    };
    let field = || put(&vec![0_f32; (2 * SIDE * SIDE) as usize]);
    let elastic = ElasticSample {
        source: input,
        target: out,
        noise: field(),
        between: field(),
        weights: put(&[0.2_f32; KERNEL as usize]),
        key: 5,
        radius: KERNEL / 2,
        scale_x: 3.0,
        scale_y: 3.0,
        bilinear: 1,
        ..ElasticSample::default()
    };
    let blended = MixupSample { share: 0.7, rest: 0.3, blend: 1, ..MixupSample::default() };
    let mixup = MixupBatch {
        elements: put(&vec![0x3800_u16; (3 * SIDE * SIDE) as usize]),
        samples: put(&[blended]),
        width: SIDE,
        height: SIDE,
        flip: 0,
        channels: 3,
    };
    let load =
        FieldLoadSample { packed: put(&[0_u8; (SIDE * SIDE) as usize]), target: out, pixel_bytes: 1, reserved: 0 };
    let view = ViewLoadSample {
        values: put(&[0_u8; (3 * SIDE * SIDE) as usize]),
        target: out,
        row: SIDE.into(),
        column: 1,
        channel: (SIDE * SIDE).into(),
    };
    let store = FieldStoreSample {
        source: input,
        elements: put(&[0_u8; (SIDE * SIDE) as usize]),
        width,
        height,
        planes: 1,
        ..FieldStoreSample::default()
    };
    let of_planes = of_planes(normals, &run);
    let of_rgb = vec![
        ("fused_f16_nchw", count("fused_f16_nchw", fused(0), &run)),
        ("fused_f16_nchw, vertical first", count("fused_f16_nchw", fused(1), &run)),
        ("fused_f16_nhwc", count("fused_f16_nhwc", nhwc, &run)),
        ("finish_f16_nchw", count("finish_f16_nchw", finish, &run)),
        ("flip_u8_nhwc", count("flip_u8_nhwc", FlipSample { source: input, target: out, exact }, &run)),
        ("rotate_nearest_u8_nhwc", count("rotate_nearest_u8_nhwc", rotated(16), &run)),
        ("rotate_nearest_double_u8_nhwc", count("rotate_nearest_double_u8_nhwc", rotated(44), &run)),
        ("rotate_bilinear_u8_nhwc", count("rotate_bilinear_u8_nhwc", rotated(44), &run)),
        ("rotate_bicubic_u8_nhwc", count("rotate_bicubic_u8_nhwc", rotated(44), &run)),
        (
            "crop_u8_nhwc",
            count("crop_u8_nhwc", CropSample { source: input, target: out, ..CropSample::default() }, &run),
        ),
        ("resize_horizontal_u8_nhwc", count("resize_horizontal_u8_nhwc", across, &run)),
        ("resize_vertical_u8_nhwc", count("resize_vertical_u8_nhwc", down, &run)),
        ("gaussian_blur_rows_u8_nhwc", count("gaussian_blur_rows_u8_nhwc", blur, &run)),
        ("gaussian_blur_columns_u8_nhwc", count("gaussian_blur_columns_u8_nhwc", blur, &run)),
        ("dilate_rows_u8_nhwc", count("dilate_rows_u8_nhwc", rank, &run)),
        ("dilate_columns_u8_nhwc", count("dilate_columns_u8_nhwc", rank, &run)),
        ("erode_rows_u8_nhwc", count("erode_rows_u8_nhwc", rank, &run)),
        ("erode_columns_u8_nhwc", count("erode_columns_u8_nhwc", rank, &run)),
        (
            "table_u8_nhwc",
            count("table_u8_nhwc", TableSample { pixels, table, pitch_bytes, width, height, stride_bytes: 0 }, &run),
        ),
        ("luma_sum_u8_nhwc", count("luma_sum_u8_nhwc", contrast, &run)),
        ("contrast_table_u8", count("contrast_table_u8", contrast, &run)),
        ("histogram_u8_nhwc", count("histogram_u8_nhwc", histogram, &run)),
        ("equalize_table_u8", count("equalize_table_u8", histogram, &run)),
        ("autocontrast_table_u8", count("autocontrast_table_u8", histogram, &run)),
        ("sharpness_u8_nhwc", count("sharpness_u8_nhwc", sharpness, &run)),
        ("box_blur_u8_nhwc", count("box_blur_u8_nhwc", box_blur, &run)),
        ("perspective_u8_nhwc", count("perspective_u8_nhwc", perspective, &run)),
        ("mix_add_u8_nhwc", count("mix_add_u8_nhwc", mix, &run)),
        ("mix_cut_u8_nhwc", count("mix_cut_u8_nhwc", mix, &run)),
        ("saturation_u8_nhwc", count("saturation_u8_nhwc", color, &run)),
        ("hue_u8_nhwc", count("hue_u8_nhwc", color, &run)),
        ("grayscale_u8_nhwc", count("grayscale_u8_nhwc", color, &run)),
        ("permute_channels_u8_nhwc", count("permute_channels_u8_nhwc", color, &run)),
        ("gaussian_noise_u8_nhwc", count("gaussian_noise_u8_nhwc", noise, &run)),
        ("perspective_bicubic_u8_nhwc", count("perspective_bicubic_u8_nhwc", perspective, &run)),
        ("elastic_noise_f32", count("elastic_noise_f32", elastic, &run)),
        ("elastic_rows_f32", count("elastic_rows_f32", elastic, &run)),
        ("elastic_u8_nhwc", count("elastic_u8_nhwc", elastic, &run)),
        ("erase_u8_nhwc", count("erase_u8_nhwc", erase, &run)),
        ("erase_noise_f16_nchw", count("erase_noise_f16_nchw", erase_noise, &run)),
        ("mixup_f16_nchw", count("mixup_f16_nchw", mixup, &run)),
        ("field_load_u8_nhwc", count("field_load_u8_nhwc", load, &run)),
        ("view_load_u8_nhwc", count("view_load_u8_nhwc", view, &run)),
        ("field_store_u8_nchw", count("field_store_u8_nchw", store, &run)),
    ];
    of_rgb.into_iter().chain(of_planes).collect()
}

/// The kernels for images that are not RGB of 8 bits.
fn of_planes<R>(normals: u64, run: &impl Fn(Launched<'_>) -> R) -> Vec<(&'static str, R)> {
    let (source, target) = (planes(SIDE, SIDE), planes(SIDE, SIDE));
    let (fill, values) = (put(&[7_u32; 3]), put(&[7_f32; 3]));
    let exact = [-1, 0, SIDE as i32 - 1, 0, 1, 0];
    let copy = PlanesCopySample { source, target, columns: 0, rows: 0, channels: 0, fill, exact };
    let resize = |source: PlanesImage, input: u32, down: u32| {
        let Axis { starts, offsets, .. } = axis(input, SIDE);
        // One weight for each tap.
        let weights = put(&vec![0.2_f64; 8 * SIDE as usize]);
        PlanesResizeSample { source, target, starts, offsets, weights, first: 0, down }
    };
    let RotateSample { matrix, fixed, .. } = rotated(16);
    let nearest = PlanesNearestSample { source, target, fill, matrix, fixed, is_fixed: 1, reserved: 0 };
    let [a, b, c, d, e, f] = matrix;
    let map = [a, b, c, d, e, f, 0.0, 0.0];
    let warp = |interpolation| PlanesWarpSample { source, target, fill, map, interpolation, is_affine: 1 };
    let between = put(&vec![0_f64; (3 * SIDE * SIDE) as usize]);
    let weights = put(&[0.2_f64; 2 * KERNEL as usize]);
    let blur = PlanesBlurSample { source, target, between, weights, kernel: KERNEL, kernel_y: KERNEL };
    let extreme = PlanesExtremeSample { source, target, kernel: KERNEL, largest: 1, down: 0, reserved: 0 };
    let (image, key) = (source, 5);
    let points = PlanesPointsSample { image, max: 65_535.0, form: PlanesPointsSample::INVERT, ..Default::default() };
    let noise = PlanesNoiseSample { image, normals, key, mean: 0.0, sigma: 9.0, max: 65_535.0, clip: 1 };
    let (width, height) = (SIDE, SIDE);
    let erase = PlanesEraseSample { image, values, key, width, height, ..PlanesEraseSample::default() };
    let finish = PlanesFinishSample {
        source,
        output: output(2, true),
        scales: put(&[0.5_f32; 6]),
        max: 65_535.0,
        elements: PlanesFinishSample::F16,
        ..PlanesFinishSample::default()
    };
    vec![
        ("planes_copy", count("planes_copy", copy, run)),
        ("planes_resize", count("planes_resize", resize(planes(VIEW.0, SIDE), VIEW.0, 0), run)),
        ("planes_resize, down", count("planes_resize", resize(planes(SIDE, VIEW.1), VIEW.1, 1), run)),
        ("planes_nearest", count("planes_nearest", nearest, run)),
        ("planes_warp, bilinear", count("planes_warp", warp(PlanesWarpSample::BILINEAR), run)),
        ("planes_warp", count("planes_warp", warp(PlanesWarpSample::BICUBIC), run)),
        ("planes_blur_rows", count("planes_blur_rows", blur, run)),
        ("planes_blur_columns", count("planes_blur_columns", blur, run)),
        ("planes_extreme", count("planes_extreme", extreme, run)),
        ("planes_points", count("planes_points", points, run)),
        ("planes_noise", count("planes_noise", noise, run)),
        ("planes_erase", count("planes_erase", erase, run)),
        ("planes_finish", count("planes_finish", finish, run)),
    ]
}

/// The numbers in these columns of a kernel's row.
fn cells<const N: usize>(name: &str, columns: [usize; N]) -> Option<[f64; N]> {
    let table = include_str!("../../kernels/model.tsv");
    let row = table.lines().find(|line| line.starts_with(&format!("{name}\t")))?;
    let cells: Vec<_> = row.split('\t').collect();
    let mut found = [0.0; N];
    for (found, column) in found.iter_mut().zip(columns) {
        *found = cells.get(column)?.replace(',', "").parse().ok()?;
    }
    Some(found)
}

fn a_pixel(count: u64) -> f64 {
    count as f64 / f64::from(SIDE * SIDE)
}

/// Other versions of the compiler load descriptors in other ways, so numbers may differ by a tenth.
#[test]
#[cfg_attr(not(accesses_are_seen), ignore = "needs GCC, which calls the simulation before each access")]
fn the_table_has_the_counts() {
    let mut wrong = Vec::new();
    // SAFETY: all that the launch points to is there, and no other launch runs.
    let run = |(kernel, grid, block, parameter): Launched<'_>| unsafe {
        Kernel::find(kernel).unwrap().counted(grid, block, parameter).unwrap()
    };
    for (name, counts) in all(run) {
        let (sectors, wavefronts) = (a_pixel(counts.sectors), a_pixel(counts.shared_wavefronts));
        println!("counted | {name} | {sectors:.4} | {wavefronts:.4} | {:.4}", a_pixel(counts.accesses));
        let close = |got: f64, want: f64| (got - want).abs() <= 0.1 * got + 0.01;
        if !cells(name, [4, 5]).is_some_and(|[a, b]| close(sectors, a) && close(wavefronts, b)) {
            wrong.push(format!("{name}: {sectors:.2} sectors and {wavefronts:.2} wavefronts a pixel"));
        }
    }
    assert!(wrong.is_empty(), "`scripts/kernels table` makes the table anew: {wrong:#?}");
}

/// Writing a tile of f16 in NCHW from shared memory takes 16 wavefronts, one for each access of a warp, and 16 for
/// finish, which stored the tile. Rows that begin in the same bank would take 64.
#[test]
#[cfg_attr(not(accesses_are_seen), ignore = "needs GCC, which calls the simulation before each access")]
fn a_warp_finds_the_words_of_a_tile_in_different_banks() {
    let finish = FinishSample { source: image(SIDE, SIDE), output: output(2, true) };
    // SAFETY: as above.
    let counts = count("finish_f16_nchw", finish, &|(kernel, grid, block, parameter)| unsafe {
        Kernel::find(kernel).unwrap().counted(grid, block, parameter).unwrap()
    });
    assert_eq!(counts.shared_wavefronts, counts.shared_accesses);
    assert_eq!(counts.shared_wavefronts, u64::from(7 * 14 * (16 + 16_u32)));
}

type Range = extern "C" fn(usize, *mut usize, *mut usize) -> bool;
type Illegal = extern "C" fn(usize, usize, *const c_char);
type LaunchKernel = unsafe extern "C" fn(usize, *const u32, *const u32, *const c_void, u64) -> c_int;

/// All memory may be accessed.
extern "C" fn everything(_address: usize, start: *mut usize, end: *mut usize) -> bool {
    // SAFETY: the simulation passes places for both.
    unsafe {
        start.write(0);
        end.write(usize::MAX);
    }
    true
}

extern "C" fn illegal(_address: usize, _bytes: usize, what: *const c_char) {
    // SAFETY: the simulation passes a C string.
    eprintln!("{}", unsafe { CStr::from_ptr(what) }.to_string_lossy());
}

/// The instructions of compiled kernels that warps execute for a pixel, and those on the longest way of a block.
#[test]
#[ignore = "needs compiled kernels: cuda-sim/ptx/check runs it"]
fn the_table_has_the_instructions() {
    let path = std::env::var_os("CUDA_SIM_PTX_KERNELS").expect("CUDA_SIM_PTX_KERNELS names what cuda-sim-ptx has made");
    // SAFETY: a library that was made to be loaded, with these functions; it stays loaded.
    let (names, launch, count_ways) = unsafe {
        let library = Library::open(Some(path), RTLD_NOW | RTLD_LOCAL).unwrap();
        let count = library.get::<extern "C" fn() -> usize>(b"cuda_sim_kernel_count").unwrap()();
        let name = library.get::<extern "C" fn(usize) -> *const c_char>(b"cuda_sim_kernel_name").unwrap();
        let names: Vec<_> = (0..count).map(|i| CStr::from_ptr(name(i)).to_str().unwrap().to_owned()).collect();
        library.get::<extern "C" fn(Range, Illegal)>(b"cuda_sim_check_with").unwrap()(everything, illegal);
        let launch: LaunchKernel = *library.get(b"cuda_sim_launch").unwrap();
        let count_ways: unsafe extern "C" fn(*mut [u64; 3]) = *library.get(b"cuda_sim_count_ways").unwrap();
        std::mem::forget(library);
        (names, launch, count_ways)
    };
    let run = |(kernel, grid, block, parameter): Launched<'_>| {
        let index = names.iter().position(|name| name == kernel).unwrap();
        // SAFETY: numbers of the same size.
        let parameter: [u64; LAUNCH_BYTES / 8] = unsafe { std::mem::transmute(*parameter) };
        let mut ways = [0; 3];
        // SAFETY: grid and block have three numbers, the parameter is the kernel's, all that it points to is there, and
        // the counts live until they are taken back.
        unsafe {
            count_ways(&raw mut ways);
            assert_eq!(launch(index, grid.as_ptr(), block.as_ptr(), parameter.as_ptr().cast(), 0), 0, "{kernel}");
            count_ways(std::ptr::null_mut());
        }
        ways
    };
    let mut wrong = Vec::new();
    for (name, [longest, executed, _]) in all(run) {
        let executed = 32.0 * a_pixel(executed);
        println!("executed | {name} | {executed:.4} | {longest}");
        let close = |got: f64, want: f64| (got - want).abs() <= 0.03 * got + 0.5;
        if !cells(name, [6, 7]).is_some_and(|[a, b]| close(executed, a) && close(longest as f64, b)) {
            wrong.push(format!("{name}: {executed:.0} instructions a pixel, {longest} on the longest way"));
        }
    }
    assert!(wrong.is_empty(), "`scripts/kernels table` makes the table anew: {wrong:#?}");
}
