//! Patches of timm 1.0.31 and transformers 5.24, those of many images from the folder that `WARPFEED_SHARED` names.

use super::*;
use crate::apply::{ApplyOptions, apply};
use crate::hex::hex;
use crate::ops::{Interpolation, Normalize, Op, Resize};
use crate::shapes::SequenceSize;
use crate::shapes::naflex::tests::{lines, number};
use crate::tensor::{DType, Layout};
use sha2::{Digest, Sha256};

fn digest<T: bytemuck::NoUninit>(values: &[T]) -> String {
    hex(&Sha256::digest(bytemuck::cast_slice(values))[..16])
}

/// Images by formulas, which the reference cases name.
fn image(name: &str, size: Size, seed: i64) -> Vec<u8> {
    let pixels = (0..i64::from(size.height)).flat_map(|y| (0..i64::from(size.width)).map(move |x| [x, y]));
    let value = |[x, y]: [i64; 2], c: i64| match name {
        "formula_image" => (x * (3 + c) + y * (5 - c) + x * y / 7 + 40 * c + 17 * seed) % 256,
        "smooth_image" => match (x * (9 + 4 * c + seed) + y * (21 - 5 * c)) / 16 % 510 {
            value @ 256.. => 510 - value,
            value => value,
        },
        other => panic!("unknown image {other}"),
    };
    pixels.flat_map(|at| (0..3).map(move |c| value(at, c) as u8)).collect()
}

fn pnm(rgb: &[u8], size: Size) -> Vec<u8> {
    [format!("P6 {} {} 255\n", size.width, size.height).as_bytes(), rgb].concat()
}

fn values<T: Copy + Default>(patches: Patches, image: ImageValues<'_, T>, size: Size) -> Vec<T> {
    let mut out = vec![T::default(); patches.grid(size).unwrap().patches() * patches.values(3)];
    patches.cut(image, size, 3, &mut out).unwrap();
    out
}

#[test]
fn both_orders_come_from_both_layouts_and_are_filled_up_at_right_and_below() {
    let size = Size::new(5, 3);
    let at = |x: u32, y: u32, c: u32| if x < 5 && y < 3 { 100 * c + 10 * y + x + 1 } else { 0 };
    let interleaved: Vec<u32> =
        (0..3).flat_map(|y| (0..5).flat_map(move |x| (0..3).map(move |c| at(x, y, c)))).collect();
    let planes: Vec<u32> = (0..3).flat_map(|c| (0..3).flat_map(move |y| (0..5).map(move |x| at(x, y, c)))).collect();
    for (across, down) in [(2, 2), (4, 1), (1, 4), (5, 3), (7, 5)] {
        let patches = Patches::new(Size::new(across, down));
        let grid = patches.grid(size).unwrap();
        let corners = (0..grid.rows as u32).flat_map(|y| (0..grid.columns as u32).map(move |x| [x * across, y * down]));
        let (mut last, mut first) = (Vec::new(), Vec::new());
        for [left, top] in corners {
            for (y, x, c) in (0..down).flat_map(|y| (0..across).flat_map(move |x| (0..3).map(move |c| (y, x, c)))) {
                last.push(at(left + x, top + y, c));
            }
            for (c, y, x) in (0..3).flat_map(|c| (0..down).flat_map(move |y| (0..across).map(move |x| (c, y, x)))) {
                first.push(at(left + x, top + y, c));
            }
        }
        for image in [ImageValues::Interleaved(&interleaved[..]), ImageValues::Planes(&planes)] {
            assert_eq!(values(patches, image, size), last, "{across} x {down}");
            assert_eq!(values(patches.channels_last(false), image, size), first, "{across} x {down}");
        }
    }
}

/// Digests of timm's patches of the first two images of the shared cases.
#[test]
fn patches_are_those_of_timm() {
    for (name, size, seed, seq_len, last, first) in [
        (
            "formula_image",
            Size::new(64, 48),
            0,
            64,
            "9b647a1b9b13e39130538a935905376b",
            "2943c2ab87791fcd68321f02450aef03",
        ),
        (
            "smooth_image",
            Size::new(48, 64),
            1,
            128,
            "b1dedc90ddba93f0daad8096d7450d27",
            "327aec301f9c2bd7faf83f873a33c29b",
        ),
    ] {
        let resized = resized(name, size, seed, SequenceSize::new(16, seq_len), Interpolation::Bicubic);
        let patches = |patches| digest(&values(patches, ImageValues::Interleaved(&resized.1), resized.0));
        assert_eq!(patches(Patches::new(16)), last);
        assert_eq!(patches(Patches::new(16).channels_last(false)), first);
    }
}

/// An image resized to fill a sequence.
fn resized(name: &str, size: Size, seed: i64, of: SequenceSize, filter: Interpolation) -> (Size, Vec<u8>) {
    let to = of.of(size).unwrap().size;
    let options = ApplyOptions::default().dtype(DType::U8).layout(Layout::Nhwc);
    let ops = [Resize::new(to).interpolation(filter).into()];
    let tensor = apply(&pnm(&image(name, size, seed), size), &ops, &options).unwrap();
    (to, tensor.as_slice::<u8>().unwrap().to_vec())
}

#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
fn shared_patches() {
    let mut compared = 0;
    for line in lines("naflex-patches.jsonl", "patches") {
        let size = Size::new(number(&line["width"]), number(&line["height"]));
        let (name, seed) = (line["image"].as_str().unwrap(), line["seed"].as_i64().unwrap());
        let (patch, seq_len) = (number(&line["patch"]), number(&line["max_seq_len"]));
        let of = SequenceSize::new(patch, seq_len);
        let original = image(name, size, seed);
        assert_eq!(digest(&original), line["image_u8_hwc"], "{name} {seed}");
        for (kind, filter) in [("bicubic", Interpolation::Bicubic), ("bilinear", Interpolation::Bilinear)] {
            let want = &line[format!("timm_{kind}")];
            let (to, pixels) = resized(name, size, seed, of, filter);
            assert_eq!([to.width, to.height], ["width", "height"].map(|side| number(&want[side])));
            assert_eq!(digest(&pixels), want["resized_u8_hwc"], "{name} {seed} {kind}");
            let from_0_to_1: Vec<f32> = pixels.iter().map(|value| f32::from(*value) / 255.0).collect();
            for (order, last) in [("ppc", true), ("cpp", false)] {
                let patches = Patches::new(patch).channels_last(last);
                let own = digest(&values(patches, ImageValues::Interleaved(&pixels), to));
                assert_eq!(own, want[format!("patches_u8_{order}")]);
                let own = digest(&values(patches, ImageValues::Interleaved(&from_0_to_1), to));
                assert_eq!(own, want[format!("patches_01_f32_{order}")]);
            }
            // As a pipeline makes it: resized, normalized, in planes.
            let ops: [Op; 2] =
                [Resize::new(to).interpolation(filter).into(), Normalize::new([0.5; 3], [0.5; 3]).into()];
            let options = ApplyOptions::default().dtype(DType::F32).layout(Layout::Nchw);
            let tensor = apply(&pnm(&original, size), &ops, &options).unwrap();
            let planes = ImageValues::Planes(tensor.as_slice::<f32>().unwrap());
            assert_eq!(digest(&values(Patches::new(patch), planes, to)), want["patches_half_f32_ppc"]);

            let mut batch = PatchBatch::new(Patches::new(patch), 3, seq_len as usize, 3).unwrap();
            // The middle one of three: the others stay as they are.
            batch.write(1, planes, to, 3).unwrap();
            let (grid, seq_len) = (Patches::new(patch).grid(to).unwrap(), seq_len as usize);
            let of_sample = |len: usize| len * seq_len..2 * len * seq_len;
            let (count, of_patch) = (grid.patches(), Patches::new(patch).values(3));
            assert_eq!(count as u64, want["patches"].as_u64().unwrap());
            assert_eq!(digest(&batch.patches()[of_sample(of_patch)]), want["batch_half_f32"]);
            assert_eq!(digest(&batch.coord()[of_sample(2)]), want["batch_coord_i64"]);
            assert_eq!(digest(&batch.coord()[of_sample(2)][..2 * count]), want["coord_i64_yx"]);
            let valid: Vec<u8> = batch.valid()[of_sample(1)].iter().map(|valid| u8::from(*valid)).collect();
            assert_eq!(digest(&valid), want["batch_valid_bool"]);
            assert!(batch.patches()[..of_patch * seq_len].iter().all(|value| *value == 0.0));
            assert!(!batch.valid()[..seq_len].contains(&true) && !batch.valid()[2 * seq_len..].contains(&true));
            if kind == "bilinear" {
                // SigLIP2's processor of PIL images.
                let want = &line["hf_pil"];
                assert_eq!(digest(&batch.patches()[of_sample(of_patch)]), want["pixel_values"]);
                assert_eq!(digest(&batch.pixel_attention_mask()[of_sample(1)]), want["mask"]);
                let shapes: Vec<i64> =
                    want["spatial_shapes"].as_array().unwrap().iter().filter_map(|v| v.as_i64()).collect();
                assert_eq!(batch.spatial_shapes()[2..4], shapes);
                assert_eq!(want["mask_dtype"], "int32");
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 40);
}

#[test]
fn a_place_is_overwritten_whole() {
    let mut batch = PatchBatch::new(Patches::new(2), 2, 4, 1).unwrap();
    batch.write(0, ImageValues::Planes(&[7_u8; 16]), Size::new(4, 4), 1).unwrap();
    batch.write(0, ImageValues::Interleaved(&[1, 2]), Size::new(1, 2), 1).unwrap();
    assert_eq!(batch.patches()[..8], [1, 0, 2, 0, 0, 0, 0, 0]);
    assert_eq!((&batch.patches()[8..], batch.coord()), (&[0; 24][..], &[0; 16][..]));
    assert_eq!(
        (batch.pixel_attention_mask(), batch.spatial_shapes()),
        (vec![1, 0, 0, 0, 0, 0, 0, 0], &[1, 1, 0, 0][..])
    );
}

#[test]
fn what_does_not_fit_is_refused() {
    let patches = Patches::new(2);
    let image = ImageValues::Planes(&[1_u8; 12]);
    let mut out = [0; 12];
    assert!(Patches::new(0).grid(Size::new(2, 2)).unwrap_err().is_parameter());
    assert!(patches.grid(Size::new(0, 2)).unwrap_err().is_bad_sample());
    for (size, channels) in [(Size::new(2, 2), 1), (Size::new(2, 2), 0), (Size::new(4, 2), 3)] {
        assert!(patches.cut(image, size, channels, &mut out).unwrap_err().is_parameter(), "{size} {channels}");
    }
    assert!(patches.cut(image, Size::new(2, 2), 3, &mut out[1..]).unwrap_err().is_parameter());
    assert!(patches.cut(image, Size::new(2, 2), 3, &mut out).is_ok());
    let slot = Slot { patches: &mut out[..], coord: &mut [0; 3], valid: &mut [false] };
    assert!(patches.write(image, Size::new(2, 2), 3, slot).unwrap_err().is_parameter());
    let mut batch = PatchBatch::new(patches, 1, 2, 1).unwrap();
    let error = batch.write(0, image, Size::new(6, 2), 1).unwrap_err();
    assert!(error.is_bad_sample() && error.to_string().contains("has 3 patches, and the sequence 2"), "{error}");
    assert!(batch.write(1, image, Size::new(2, 6), 1).unwrap_err().is_parameter());
    assert!(batch.write(0, image, Size::new(2, 2), 3).unwrap_err().is_parameter());
    assert!(PatchBatch::<u8>::new(patches, 1, 1, 0).unwrap_err().is_parameter());
    let huge = PatchBatch::<f32>::new(patches, usize::MAX / 2, 1 << 20, 3);
    assert!(matches!(huge, Err(Error::OutOfMemory { .. })));
}
