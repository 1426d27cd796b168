//! Boxes, keypoints and masks follow operations as torchvision's and Pillow's do. `scripts/test` also runs the cases in
//! the folder that `WARPFEED_SHARED` names.

use crate::common::{self, Random, jpeg};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use warpfeed::fields::{
    AuxImage, BoxFormat, Boxes, Clamping, Field, Fields, KeyPoints, Mask, MaskValues, PointConvention,
};
use warpfeed::image::{Image, JpegOptions, Rect, Size, encode_jpeg, probe};
use warpfeed::ops::{
    CenterCrop, Crop, Custom, CustomTransform, Hflip, Interpolation, Op, RandomIouCrop, RandomZoomOut, Resize, Rotate,
    SampleInfo, SampleRng, SizeEffect, Transform, Vflip, YoloPerspective,
};
use warpfeed::prelude::*;
use warpfeed::source::{Described, WithFields};
use warpfeed::view;
use warpfeed::{
    FieldValues, ImageCache, Orientation, Preprocessor, PreprocessorOptions, Result, Sampler, Strategy, Thumbnail,
    apply_with_fields,
};

#[derive(Deserialize)]
struct Case {
    size: [u32; 2],
    ops: Vec<Op>,
    format: BoxFormat,
    clamping: Option<String>,
    boxes: Vec<[f64; 4]>,
    boxes_out: Vec<[f64; 4]>,
    points: Vec<[f64; 2]>,
    points_out: Vec<[f64; 2]>,
    fill: u16,
    /// Digest of the mask's pixels; `None` if some of them may differ.
    sha256: Option<String>,
    mask_out: Option<Vec<String>>,
    size_out: [u32; 2],
}

/// The mask that cases begin with.
fn case_mask(of: Size) -> Mask {
    let row = |y| (0..of.width).map(move |x| (37 * x + 101 * y + x * y) as u8);
    Mask::new(of, (0..of.height).flat_map(row).collect::<Vec<u8>>()).unwrap()
}

fn size([width, height]: [u32; 2]) -> Size {
    Size::new(width, height)
}

fn boxes(format: BoxFormat, clamping: Option<&str>, rows: &[[f64; 4]]) -> Boxes {
    let clamping = if clamping.is_some() { Clamping::Soft } else { Clamping::None };
    Boxes::new(format, rows.iter().map(|row| row.map(|value| value as f32)).collect()).with_clamping(clamping)
}

fn indices(points: &[[f64; 2]]) -> KeyPoints {
    let points = points.iter().map(|point| point.map(|value| value as f32)).collect();
    KeyPoints::of_image(points).with_convention(PointConvention::PixelIndex)
}

fn points(fields: &Fields) -> &KeyPoints {
    let Some(Field::KeyPoints(points)) = fields.get("keypoints") else { panic!("{fields:?}") };
    points
}

fn plane<'a>(fields: &'a Fields, name: &str, i: usize) -> &'a [u8] {
    let Some(Field::Mask(mask)) = fields.get(name) else { panic!("{fields:?}") };
    let MaskValues::U8(values) = &*mask.planes()[i] else { panic!("{mask:?}") };
    values
}

fn unhex(rows: &[String]) -> Vec<u8> {
    let digits: Vec<u8> = rows.iter().flat_map(|row| row.bytes()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn applied(of: Size, fields: &Fields, ops: &[Op], strategy: Strategy) -> Result<Fields> {
    let jpeg = encode_jpeg(&warpfeed::image::Image::new(of), &JpegOptions::default())?;
    let options = common::as_made(ops).orientation(Orientation::Ignore).strategy(strategy);
    apply_with_fields(&jpeg, fields, ops, &options).map(|(_, fields)| fields)
}

/// The largest share of a mask's pixels that may differ after operations: perspective divides in whole numbers, and
/// elastic sums in an order of its own.
fn most_differing(ops: &[Op]) -> f64 {
    if ops.iter().any(|op| ["perspective", "elastic"].contains(&op.name())) { 0.002 } else { 0.0 }
}

fn check_mask(got: &[u8], want: &[u8], ops: &[Op], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let differing = got.iter().zip(want).filter(|(a, b)| a != b).count() as f64;
    // A few pixels of a small mask are more than the share.
    assert!(differing <= (most_differing(ops) * got.len() as f64).ceil(), "{what}: {differing} of {}", got.len());
}

fn check_numbers<const N: usize>(got: &[[f32; N]], want: &[[f64; N]], most: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (got, want) in got.as_flattened().iter().zip(want.as_flattened()) {
        // -0 equals 0.
        let equal = *got == *want as f32 || (f64::from(*got) - want).abs() <= most;
        assert!(equal, "{what}: {got} instead of {want}");
    }
}

#[test]
fn boxes_points_and_masks_are_torchvisions_and_pillows() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/reference/fields.jsonl");
    let mut compared = 0;
    for (number, line) in fs::read_to_string(path).unwrap().lines().enumerate() {
        let case: Case = serde_json::from_str(line).unwrap();
        let mask = case_mask(size(case.size)).with_fill(case.fill);
        let given = Fields::new()
            .with("boxes", boxes(case.format, case.clamping.as_deref(), &case.boxes))
            .and_then(|fields| fields.with("keypoints", indices(&case.points)))
            .and_then(|fields| fields.with("mask", mask))
            .unwrap();
        for strategy in [Strategy::Fused, Strategy::Sequential] {
            let made = applied(size(case.size), &given, &case.ops, strategy).unwrap();
            let what = format!("case {number}, {strategy:?}, {:?}", case.ops);
            // Where coefficients of a perspective cancel out, the remainder of 0 is up to the solver.
            check_numbers(made.boxes().unwrap().rows(), &case.boxes_out, 1e-12, &what);
            check_numbers(points(&made).points(), &case.points_out, 1e-12, &what);
            let made_mask = plane(&made, "mask", 0);
            match (&case.sha256, &case.mask_out) {
                (Some(digest), None) => assert_eq!(&common::sha256(made_mask), digest, "{what}"),
                (None, Some(rows)) => check_mask(made_mask, &unhex(rows), &case.ops, &what),
                _ => panic!("{what}: one of the two"),
            }
            assert_eq!(made.boxes().unwrap().format(), case.format);
            let Some(Field::Mask(mask)) = made.get("mask") else { panic!("{what}") };
            assert_eq!(mask.size(), size(case.size_out), "{what}");
        }
        compared += 1;
    }
    assert_eq!(compared, 300);
}

#[derive(Deserialize)]
struct SharedCase {
    size: [u32; 2],
    kind: String,
    ops: serde_json::Value,
    boxes_format: String,
    clamping: Option<String>,
    boxes_in: Vec<Vec<f64>>,
    keypoints_in: Vec<[f64; 2]>,
    mask_in: String,
    mask_fill: u16,
    boxes_out: Vec<Vec<f64>>,
    keypoints_out: Vec<[f64; 2]>,
    mask_pil: String,
    #[serde(default)]
    valid: Vec<bool>,
    size_out: [u32; 2],
    compare: SharedCompare,
}

#[derive(Deserialize)]
struct SharedCompare {
    boxes: serde_json::Value,
}

/// Whether a center crop is larger than the image by 3 mod 4 pixels on an axis: there torchvision's boxes leave its
/// pixels, and ours do not.
fn leaves_pixels(ops: &[Op], mut size: Size) -> bool {
    ops.iter().any(|op| {
        let after = op.output_size(size).unwrap();
        let more = |after: u32, before: u32| after > before && (after - before) % 4 == 3;
        let leaves = op.name() == "center_crop" && (more(after.width, size.width) || more(after.height, size.height));
        size = after;
        leaves
    })
}

/// A mask of the shared cases.
fn shared_mask(name: &str) -> Mask {
    let shared = PathBuf::from(std::env::var_os("WARPFEED_SHARED").expect("WARPFEED_SHARED names a folder"));
    Mask::from_png(&fs::read(shared.join("reference/detection").join(name)).unwrap(), 1 << 24).unwrap()
}

/// Error that rounding to single precision adds to a distance of a pixel.
const ROUNDED: f64 = 1e-3;

#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
fn shared_cases() {
    let (mut exact, mut near) = (0, 0);
    for (number, case) in lines::<SharedCase>("cases.jsonl").into_iter().enumerate() {
        // Rotated boxes are another thing.
        let Ok(format) = serde_json::from_value::<BoxFormat>(case.boxes_format.clone().into()) else { continue };
        let what = format!("case {number}, {}: {}", case.kind, case.ops);
        let ops: Vec<Op> = serde_json::from_value(case.ops).unwrap();
        let rows =
            |rows: &[Vec<f64>]| -> Vec<[f64; 4]> { rows.iter().map(|row| row[..].try_into().unwrap()).collect() };
        let given = Fields::new()
            .with("boxes", boxes(format, case.clamping.as_deref(), &rows(&case.boxes_in)))
            .and_then(|fields| fields.with("keypoints", indices(&case.keypoints_in)))
            .and_then(|fields| fields.with("mask", shared_mask(&case.mask_in).with_fill(case.mask_fill)))
            .unwrap();
        let made = applied(size(case.size), &given, &ops, Strategy::Fused).unwrap();
        let most = match case.compare.boxes.get("max_abs") {
            Some(most) => most.as_f64().unwrap() + ROUNDED,
            None if leaves_pixels(&ops, size(case.size)) => 1.0 + ROUNDED,
            None => 0.0,
        };
        check_numbers(made.boxes().unwrap().rows(), &rows(&case.boxes_out), most, &what);
        check_numbers(points(&made).points(), &case.keypoints_out, most, &what);
        let want = shared_mask(&case.mask_pil);
        let MaskValues::U8(want) = &*want.planes()[0] else { panic!("{what}") };
        check_mask(plane(&made, "mask", 0), want, &ops, &what);
        if most == 0.0 {
            let (made, out) = (made.boxes().unwrap(), case.size_out.map(|side| side as f32));
            for (i, ours) in made.valid(size(case.size_out), 1.0, 1.0).into_iter().enumerate() {
                let [x1, y1, x2, y2] = made.to(BoxFormat::Xyxy).rows()[i];
                let outside = (-x1).max(-y1).max(x2 - out[0]).max(y2 - out[1]);
                // torchvision drops what f32 put outside.
                let rounded = ours && outside > 0.0 && outside < ROUNDED as f32;
                assert!(ours == case.valid[i] || rounded, "{what}: box {i} is {ours}, outside by {outside}");
            }
            exact += 1;
        } else {
            near += 1;
        }
    }
    println!("{exact} cases equal, {near} within their bound");
    assert!(exact > 150, "{exact}");
}

// Pipelines ----------------------------------------------------------------------------------------------------------

pub(crate) const NAMES: [&str; 5] = ["boxes", "labels", "keypoints", "masks", "mask"];

/// The fields of an image of this size, by the sample's index: up to four objects.
fn made_fields(of: Size, index: u64) -> Result<Fields> {
    let mut random = Random(index + 1);
    let objects = (index % 5) as usize;
    let [width, height] = [f64::from(of.width), f64::from(of.height)];
    let mut boxes = Vec::new();
    for _ in 0..objects {
        let (x, y) = (random.real(0.0, 0.7) * width, random.real(0.0, 0.7) * height);
        boxes.push([x, y, x + random.real(0.1, 0.3) * width, y + random.real(0.1, 0.3) * height].map(|v| v as f32));
    }
    let points = boxes.iter().flat_map(|row| [[row[0], row[1]], [row[2], row[3]]]).collect();
    let masks: Vec<Vec<u8>> = boxes
        .iter()
        .map(|row| {
            let inside =
                |x: u32, y: u32| (row[0]..row[2]).contains(&(x as f32)) && (row[1]..row[3]).contains(&(y as f32));
            (0..of.height).flat_map(|y| (0..of.width).map(move |x| u8::from(inside(x, y)))).collect()
        })
        .collect();
    let classes: Vec<u8> = (0..of.area_px()).map(|i| (i % 251) as u8).collect();
    Fields::new()
        .with("boxes", Boxes::new(BoxFormat::Xyxy, boxes))?
        .with("labels", (0..objects as i64).collect::<Vec<_>>())?
        .with("keypoints", KeyPoints::of_objects(2, points, vec![2; 2 * objects])?.flip_index([1, 0])?)?
        .with("masks", Mask::of_objects(of, masks)?)?
        .with("mask", Mask::new(of, classes)?.with_fill(255))
}

pub(crate) fn jpegs(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(|i| jpeg(40 + (7 * i % 30) as u32, 40 + (11 * i % 30) as u32, i)).collect()
}

fn with_fields(jpegs: &[Vec<u8>]) -> WithFields {
    let sizes: Vec<Size> = jpegs.iter().map(|jpeg| probe(jpeg).unwrap().size).collect();
    let source = EncodedImages::new(jpegs.iter().map(|jpeg| (jpeg.clone(), 0)));
    source.fields(NAMES, move |sample: Described<'_>| made_fields(sizes[sample.index as usize], sample.index))
}

pub(crate) fn builder(jpegs: &[Vec<u8>]) -> PipelineBuilder {
    Pipeline::builder(with_fields(jpegs))
        .fields(NAMES)
        .seed(3)
        .batch_size(4)
        .threads(2)
        .transform(RandomZoomOut::new(0.5).sides(1.0..=2.0))
        .transform(RandomIouCrop::new())
        .transform(random_horizontal_flip(0.5))
        .transform(random_rotation(-20.0..=20.0))
        .transform(Resize::new(Size::new(32, 28)))
        .output(DType::U8, Layout::Nhwc)
}

/// Operations that each sample has of its own.
struct Given(Vec<Vec<Op>>);

impl CustomTransform for Given {
    fn fields_follow(&self) -> bool {
        true
    }
    fn name(&self) -> &'static str {
        "given"
    }
    fn draw(&self, _rng: &mut SampleRng, sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
        Ok(self.0[sample.index as usize].clone())
    }
    fn size_effect(&self) -> SizeEffect {
        SizeEffect::Varies
    }
}

/// The reference cases, and further operations that move pixels: a pipeline of images with masks of 8 and 16 bits, and
/// of 0 to 59 objects, to be built as a ragged one.
pub(crate) fn masks_of_all_operations() -> PipelineBuilder {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/reference/fields.jsonl");
    let cases = fs::read_to_string(path).unwrap();
    let cases = cases.lines().map(|line| serde_json::from_str::<Case>(line).unwrap());
    let mut cases: Vec<_> = cases.map(|case| (size(case.size), case.ops, case.fill)).collect();
    let kept = Custom::new("kept", |image: &mut Image| image.pixels_mut().reverse()).keeps_places();
    for ops in [
        r#"[{"op": "elastic", "alpha": [60.0, 60.0], "sigma": 4.0, "key": 7}, {"op": "hflip"}]"#,
        r#"[{"op": "affine_matrix", "matrix": [0.7, 0.2, 3.0, -0.1, 0.9, 2.0], "size": [31, 44]}]"#,
        r#"[{"op": "resize", "width": 90, "height": 70}, {"op": "rotate", "degrees": 90.0, "expand": true}]"#,
    ] {
        cases.push((Size::new(48, 37), serde_json::from_str(ops).unwrap(), 300));
    }
    cases.push((Size::new(40, 30), vec![kept.into(), Rotate::new(20.0).into()], 3));
    let images = cases.iter().map(|(size, ..)| (encode_jpeg(&Image::new(*size), &JpegOptions::default()).unwrap(), 0));
    let masks: Vec<_> = cases.iter().map(|(size, _, fill)| (*size, *fill)).collect();
    let source = EncodedImages::new(images.collect::<Vec<_>>()).fields(["ids", "mask", "masks"], {
        move |sample: Described<'_>| {
            let (size, fill) = masks[sample.index as usize];
            let MaskValues::U8(values) = &*case_mask(size).planes()[0].clone() else { panic!() };
            let words: Vec<u16> =
                values.iter().enumerate().map(|(i, value)| (u16::from(*value) * 257) ^ i as u16).collect();
            let planes = (0..sample.index % 60).map(|n| values.iter().map(|value| value >> (n % 8) & 1).collect());
            Fields::new()
                .with("ids", Mask::new(size, words)?.with_fill(fill + 1000))?
                .with("mask", Mask::new(size, values.clone())?.with_fill(fill % 256))?
                .with("masks", Mask::of_objects(size, planes.collect::<Vec<Vec<u8>>>())?.with_fill(fill % 2))
        }
    });
    let given = Given(cases.into_iter().map(|(_, ops, _)| ops).collect());
    let builder = Pipeline::builder(source).fields(["ids", "mask", "masks"]).batch_size(32).threads(2);
    builder.transform(given).output(DType::U8, Layout::Nhwc)
}

/// Masks that equal Pillow's, on the CPU, or on the device that `WARPFEED_TEST_DEVICE` names. Of each a part, one of 25
/// in turn: whole masks of all cases took a simulated device 46 s.
#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
fn shared_masks_arrive_in_batches() {
    let device = std::env::var("WARPFEED_TEST_DEVICE").map_or(Device::Cpu, |name| name.parse().unwrap());
    let cases = lines::<SharedCase>("cases.jsonl").into_iter().enumerate().filter_map(|(number, case)| {
        let mut ops: Vec<Op> = serde_json::from_value(case.ops.clone()).unwrap();
        let [width, height] = case.size_out;
        let [x, y] = [number as u32 % 5 * (width / 5), number as u32 / 5 % 5 * (height / 5)];
        let part = Rect { x, y, width: width - width / 5 * 4, height: height - height / 5 * 4 };
        let exact = most_differing(&ops) == 0.0;
        ops.push(Crop::new(x as i32, y as i32, Size::new(part.width, part.height)).into());
        exact.then_some((number, case, ops, part))
    });
    let cases: Vec<_> = cases.collect();
    let jpeg = |case: &SharedCase| encode_jpeg(&Image::new(size(case.size)), &JpegOptions::default()).unwrap();
    let mask = |case: &SharedCase| shared_mask(&case.mask_in).with_fill(case.mask_fill);
    let masks: Vec<_> = cases.iter().map(|(_, case, ..)| mask(case)).collect();
    let source = EncodedImages::new(cases.iter().map(|(_, case, ..)| (jpeg(case), 0)))
        .fields(["mask"], move |sample| Fields::new().with("mask", masks[sample.index as usize].clone()));
    let given = Given(cases.iter().map(|(.., ops, _)| ops.clone()).collect());
    let builder = Pipeline::builder(source).fields(["mask"]).batch_size(32).threads(2).transform(given);
    let mut compared = 0;
    for batch in builder.output(DType::U8, Layout::Nhwc).device(device).build_ragged().unwrap().epoch(0) {
        let batch = batch.unwrap();
        assert_eq!(batch.fields(0).unwrap().device(), device);
        let fields = batch.fields(0).unwrap().to_host().unwrap();
        for (i, index) in batch.indices().iter().enumerate() {
            let (number, case, _, part) = &cases[*index as usize];
            let want = shared_mask(&case.mask_pil);
            let MaskValues::U8(values) = &*want.planes()[0] else { panic!("case {number}: {want:?}") };
            let rows = values.chunks(want.size().width as usize).skip(part.y as usize).take(part.height as usize);
            let want: Vec<u8> = rows.flat_map(|row| &row[part.x as usize..][..part.width as usize]).copied().collect();
            assert_eq!(fields.sizes()[i], Size::new(part.width, part.height), "case {number}");
            assert!(plane(fields.image(i).unwrap(), "mask", 0) == want, "case {number}: {}", case.ops);
            compared += 1;
        }
    }
    assert!(compared > 200, "{compared}");
}

/// Replays each image of an epoch with its fields by its recipe, and compares. Returns the number of objects.
fn check_epoch(pipeline: &Pipeline, jpegs: &[Vec<u8>]) -> usize {
    let mut objects = 0;
    for batch in pipeline.epoch(1) {
        let batch = batch.unwrap();
        for i in 0..batch.len() {
            let index = batch.indices()[i];
            let given = made_fields(probe(&jpegs[index as usize]).unwrap().size, index).unwrap();
            let mut recipes = batch.recipes(i).unwrap().into_iter();
            let of_pipeline = pipeline.recipes_of(1, index, batch.repetitions()[i]).unwrap();
            assert_eq!(batch.recipes(i).unwrap(), of_pipeline);
            for (view, (size, times)) in pipeline.view_sizes().into_iter().enumerate() {
                let fields = batch.fields(view).unwrap();
                assert_eq!((fields.len(), fields.sizes()[0]), (times * batch.len(), size));
                for time in 0..times {
                    let place = time * batch.len() + i;
                    let recipe = recipes.next().unwrap();
                    let options = common::as_made(&recipe).orientation(Orientation::Ignore);
                    let replayed = apply_with_fields(&jpegs[index as usize], &given, &recipe, &options).unwrap();
                    let bytes = batch.view(view).unwrap().image_bytes(place).unwrap();
                    assert_eq!(replayed.0.as_bytes().unwrap(), bytes);
                    assert_eq!(fields.image(place), Some(&replayed.1));
                    assert!(replayed.1.boxes().unwrap().valid(size, 1.0, 1.0).iter().all(|valid| *valid));
                    objects += replayed.1.objects();
                }
            }
        }
    }
    objects
}

#[test]
fn fields_are_those_of_the_replayed_recipe_in_every_kind_of_pipeline() {
    let jpegs = jpegs(15);
    let plain = builder(&jpegs);
    let two = || view([random_resized_crop(24)]).times(2);
    let pipelines = [
        plain.clone(),
        plain.clone().threads(0).shuffle(5).batch_size(7),
        plain.clone().cache(ImageCache::memory(1 << 20)),
        plain.clone().sampler(Sampler::repeated(2)),
        plain.clone().strategy(Strategy::Sequential),
        plain.clone().last_batch(LastBatch::Pad),
        plain.clone().views([two(), view([random_vertical_flip(0.5)])]).transform(Resize::new(Size::new(20, 24))),
    ];
    for builder in pipelines {
        let pipeline = builder.build().unwrap();
        let objects = check_epoch(&pipeline, &jpegs);
        assert!(objects > 10, "{objects}");
        // The second epoch reads from the cache, where there is one.
        assert_eq!(check_epoch(&pipeline, &jpegs), objects);
    }
}

#[test]
fn keypoints_outside_become_unlabeled() {
    let jpegs = jpegs(15);
    let size = Size::new(48, 40);
    for perspective in [0.0, 0.002] {
        let map = YoloPerspective::new(size).degrees(20.0).shear(5.0).perspective(perspective);
        let pipeline =
            Pipeline::builder(with_fields(&jpegs)).fields(NAMES).transform(map).output(DType::U8, Layout::Nhwc);
        let pipeline = pipeline.build().unwrap();
        assert!(check_epoch(&pipeline, &jpegs) > 5);
        let (mut outside, mut inside) = (0, 0);
        for batch in pipeline.epoch(1) {
            let batch = batch.unwrap();
            for fields in (0..batch.len()).map(|i| batch.fields(0).unwrap().image(i).unwrap().clone()) {
                let points = points(&fields);
                for ([x, y], seen) in points.points().iter().zip(points.visibility()) {
                    let is_inside = (0.0..=48.0).contains(x) && (0.0..=40.0).contains(y);
                    assert_eq!(*seen, if is_inside { 2 } else { 0 });
                    *(if is_inside { &mut inside } else { &mut outside }) += 1;
                }
            }
        }
        assert!(outside > 0 && inside > 0, "{outside} {inside}");
    }
}

#[test]
fn groups_ranks_and_ragged_batches_have_fields_too() {
    let jpegs = jpegs(12);
    let group = builder(&jpegs).build_group([Device::Cpu, Device::Cpu]).unwrap();
    let objects: usize = group.pipelines().iter().map(|pipeline| check_epoch(pipeline, &jpegs)).sum();
    assert_eq!(objects, check_epoch(&builder(&jpegs).build().unwrap(), &jpegs));
    let ragged = Pipeline::builder(with_fields(&jpegs)).fields(["boxes", "mask"]).build_ragged().unwrap();
    let batch = ragged.epoch(0).next().unwrap().unwrap();
    let fields = batch.fields(0).unwrap();
    for (i, image) in batch.images().iter().enumerate() {
        let Size { width, height } = fields.sizes()[i];
        assert_eq!(image.shape(), [1, 3, height as usize, width as usize]);
        assert_eq!(plane(fields.image(i).unwrap(), "mask", 0).len() as u64, fields.sizes()[i].area_px());
    }
    assert!(fields.masks("mask").unwrap_err().is_parameter(), "masks of unequal sizes are no tensor");
}

#[test]
fn flat_lists_and_padded_ones_have_all_rows() {
    let jpegs = jpegs(8);
    let pipeline = Pipeline::builder(with_fields(&jpegs)).fields(NAMES).sanitize(false).batch_size(8);
    let pipeline = pipeline.transform(Resize::new(Size::new(20, 16))).build().unwrap();
    let batch = pipeline.epoch(0).next().unwrap().unwrap();
    let fields = batch.fields(0).unwrap();
    // Samples have 0, 1, 2, 3, 4, 0, 1 and 2 objects.
    assert_eq!(fields.offsets(), [0, 0, 1, 3, 6, 10, 10, 11, 13]);
    assert_eq!(fields.batch_indices(), [1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 6, 7, 7]);
    let boxes = fields.boxes(BoxFormat::Xyxy).unwrap();
    assert_eq!(boxes[3..6], *fields.image(3).unwrap().boxes().unwrap().rows());
    let relative = fields.relative_boxes(BoxFormat::Xyxy).unwrap();
    assert_eq!(relative[4], [boxes[4][0] / 20.0, boxes[4][1] / 16.0, boxes[4][2] / 20.0, boxes[4][3] / 16.0]);
    let padded = fields.padded(BoxFormat::Xyxy, "labels", 3).unwrap();
    assert_eq!((padded.counts, padded.boxes.len()), (vec![0, 1, 2, 3, 3, 0, 1, 2], 8 * 3));
    assert_eq!(padded.labels[..9], [-1, -1, -1, 0, -1, -1, 0, 1, -1]);
    assert_eq!((padded.boxes[3], padded.boxes[4]), (boxes[0], [0.0; 4]));
    assert_eq!(fields.keypoints("keypoints").unwrap().len(), 2 * 13);
    assert_eq!(fields.masks("mask").unwrap().len(), 8 * 20 * 16);
    assert_eq!(fields.masks("masks").unwrap().len(), 13 * 20 * 16);
    assert!(fields.floats("labels").unwrap_err().is_parameter());
    assert!(fields.integers("area").unwrap_err().is_parameter());
}

#[test]
fn objects_that_go_are_counted_by_rule() {
    let jpeg = encode_jpeg(&Image::new(Size::new(178, 178)), &JpegOptions::default()).unwrap();
    let source = |clamping: Clamping| {
        EncodedImages::new((0..4).map(|_| (jpeg.clone(), 0))).fields(["boxes"], move |_: Described<'_>| {
            // Three at the edges; one that is narrow, one whose area is small, and one outside in part.
            let rows = [
                [100.0, 30.0, 178.0, 178.0],
                [0.0, 0.0, 178.0, 9.0],
                [77.0, 0.0, 164.0, 178.0],
                [10.0, 10.0, 10.5, 50.0],
                [20.0, 20.0, 20.9, 20.9],
                [170.0, 3.0, 190.0, 99.0],
            ];
            Fields::new().with("boxes", Boxes::new(BoxFormat::Xyxy, rows.to_vec()).with_clamping(clamping))
        })
    };
    for (clamping, objects, rules) in
        [(Clamping::Soft, 5, vec![("min_size", 4)]), (Clamping::None, 4, vec![("min_size", 4), ("outside", 4)])]
    {
        let pipeline = Pipeline::builder(source(clamping))
            .fields(["boxes"])
            .transform(Resize::new(Size::new(224, 224)))
            .batch_size(3);
        let mut epoch = pipeline.build().unwrap().epoch(0);
        let mut delivered = 0;
        for batch in epoch.by_ref() {
            let fields = batch.unwrap();
            let boxes = fields.fields(0).unwrap().boxes(BoxFormat::Xyxy).unwrap();
            assert!(
                clamping == Clamping::None || boxes.as_flattened().iter().all(|value| *value <= 224.0),
                "{boxes:?}"
            );
            delivered += boxes.len() as u64;
        }
        let stats = epoch.stats();
        assert_eq!((delivered, stats.objects), (4 * objects, 4 * objects), "{clamping:?}");
        assert_eq!(stats.dropped_objects.iter().collect::<Vec<_>>(), rules, "{clamping:?}");
    }
    // The objects that a crop by overlap leaves out.
    let jpegs = jpegs(15);
    let pipeline = Pipeline::builder(with_fields(&jpegs)).fields(NAMES).transform(RandomIouCrop::new());
    let mut epoch = pipeline.transform(Resize::new(Size::new(32, 32))).build().unwrap().epoch(0);
    assert!(epoch.by_ref().all(|batch| batch.is_ok()));
    let stats = epoch.stats();
    assert_eq!(stats.objects + stats.dropped_objects.total(), 30);
    assert!(stats.dropped_objects.iter().any(|(rule, _)| rule == "select_objects"), "{stats:?}");
}

#[test]
fn an_object_goes_with_all_its_rows_where_a_crop_leaves_its_center_out() {
    let jpegs = jpegs(15);
    let crops = RandomIouCrop::new().options([0.0, 0.3]).scale(0.3..=0.6);
    let pipeline =
        Pipeline::builder(with_fields(&jpegs)).fields(NAMES).transform(crops).transform(Resize::new(Size::new(32, 32)));
    let pipeline = pipeline.build().unwrap();
    let mut dropped = 0;
    for batch in pipeline.epoch(0) {
        let batch = batch.unwrap();
        for i in 0..batch.len() {
            let index = batch.indices()[i];
            let given = made_fields(probe(&jpegs[index as usize]).unwrap().size, index).unwrap();
            let recipe = batch.recipes(i).unwrap().swap_remove(0);
            let fields = batch.fields(0).unwrap().image(i).unwrap();
            let Some(Field::Integers(labels)) = fields.get("labels") else { panic!("{fields:?}") };
            // Without boxes nothing is cropped, and nothing loops.
            let names: Vec<&str> = recipe.iter().map(Op::name).collect();
            let expected: &[&str] = if index % 5 == 0 {
                &["resize", "sanitize"]
            } else {
                &["select_objects", "crop", "resize", "sanitize"]
            };
            assert_eq!(names, expected, "sample {index}");
            if let Some(Op::SelectObjects(of)) = recipe.first() {
                let inside = |row: &[f32; 4]| {
                    let (x, y) = (0.5 * (row[0] + row[2]), 0.5 * (row[1] + row[3]));
                    let (right, bottom) = ((of.x + of.width) as f32, (of.y + of.height) as f32);
                    of.x as f32 <= x && x < right && of.y as f32 <= y && y < bottom
                };
                let rows = given.boxes().unwrap().rows();
                assert!(labels.iter().all(|label| inside(&rows[*label as usize])));
                assert!(rows.iter().filter(|row| inside(row)).count() >= labels.len());
                dropped += given.objects() - labels.len();
            }
            let (Some(Field::Mask(masks)), Some(Field::KeyPoints(points))) =
                (fields.get("masks"), fields.get("keypoints"))
            else {
                panic!("{fields:?}")
            };
            assert_eq!((masks.planes().len(), points.objects()), (labels.len(), Some(labels.len())));
        }
    }
    assert!(dropped > 5, "{dropped}");
}

#[test]
fn a_transform_of_the_callers_sees_the_boxes_at_its_place() {
    struct Follows;
    impl CustomTransform for Follows {
        fn fields_follow(&self) -> bool {
            true
        }
        fn name(&self) -> &'static str {
            "follows"
        }
        fn draw(&self, _rng: &mut SampleRng, sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
            let rows = sample.fields.unwrap().boxes().unwrap().rows();
            // The flip came before.
            assert_eq!((rows, sample.size), (&[[30.0, 5.0, 38.0, 9.0]][..], Size::new(40, 30)));
            Ok(vec![Rotate::new(180.0).into()])
        }
    }
    let source = EncodedImages::new([(jpeg(40, 30, 1), 0)])
        .fields(["boxes"], |_| Fields::new().with("boxes", Boxes::new(BoxFormat::Xyxy, vec![[2.0, 5.0, 10.0, 9.0]])));
    let pipeline =
        Pipeline::builder(source).fields(["boxes"]).transform(random_horizontal_flip(1.0)).transform(Follows);
    let batch =
        pipeline.transform(CenterCrop::new(Size::new(40, 30))).build().unwrap().epoch(0).next().unwrap().unwrap();
    let boxes = batch.fields(0).unwrap().boxes(BoxFormat::Xyxy).unwrap();
    assert!(boxes[0].iter().zip([2.0, 21.0, 10.0, 25.0]).all(|(a, b)| (a - b).abs() < 1e-4), "{boxes:?}");
    assert_eq!(batch.recipes(0).unwrap()[0].len(), 4);
}

#[test]
fn exif_orientation_turns_fields_first() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/reference/images");
    for tag in 1..=8 {
        let bytes = fs::read(folder.join(format!("orientation-{tag}.jpg"))).unwrap();
        let stored = probe(&bytes).unwrap().size;
        // A mark in the upper left corner of the stored image.
        let mut mark = vec![0_u8; stored.area_px() as usize];
        mark[0] = 9;
        let given = Fields::new()
            .with("boxes", Boxes::new(BoxFormat::Xyxy, vec![[0.0, 0.0, 1.0, 1.0]]))
            .and_then(|fields| fields.with("mask", Mask::new(stored, mark).unwrap()))
            .unwrap();
        let (image, made) = apply_with_fields(&bytes, &given, &[], &common::as_made(&[])).unwrap();
        let [_, height, width, _] = image.shape();
        let place = plane(&made, "mask", 0).iter().position(|value| *value == 9).unwrap();
        let (x, y) = ((place % width) as f32, (place / width) as f32);
        assert_eq!(made.boxes().unwrap().rows(), [[x, y, x + 1.0, y + 1.0]], "tag {tag}");
        let corner = ["top left", "top right", "bottom right", "bottom left"];
        let at = match (x > 0.0, y > 0.0) {
            (false, false) => 0,
            (true, false) => 1,
            (true, true) => 2,
            (false, true) => 3,
        };
        let [right, bottom] = [width as f32 - 1.0, height as f32 - 1.0];
        assert!([0.0, right].contains(&x) && [0.0, bottom].contains(&y), "tag {tag}: {}", corner[at]);
        assert_eq!(at, [0, 1, 2, 3, 0, 1, 2, 3][tag - 1], "tag {tag}");
    }
}

/// A transform sees boxes in the coordinates of the turned image, whose size it sees.
#[test]
fn transforms_see_the_boxes_of_the_turned_image() {
    struct CropToBox;
    impl CustomTransform for CropToBox {
        fn fields_follow(&self) -> bool {
            true
        }
        fn name(&self) -> &'static str {
            "crop_to_box"
        }
        fn draw(&self, _rng: &mut SampleRng, sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
            let [x1, y1, x2, y2] = sample.fields.unwrap().boxes().unwrap().rows()[0].map(|value| value as u32);
            let crop =
                format!(r#"{{"op": "crop", "x": {x1}, "y": {y1}, "width": {}, "height": {}}}"#, x2 - x1, y2 - y1);
            Ok(vec![serde_json::from_str(&crop).unwrap()])
        }
        fn size_effect(&self) -> warpfeed::ops::SizeEffect {
            warpfeed::ops::SizeEffect::Varies
        }
    }
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/reference/images");
    for tag in 1..=8 {
        let bytes = fs::read(folder.join(format!("orientation-{tag}.jpg"))).unwrap();
        let Size { width, height } = probe(&bytes).unwrap().size;
        let corner = [width as f32 - 3.0, height as f32 - 2.0, width as f32, height as f32];
        let source = EncodedImages::new([(bytes, 0)]).fields(["boxes"], move |_: Described<'_>| {
            Fields::new().with("boxes", Boxes::new(BoxFormat::Xyxy, vec![corner]))
        });
        let pipeline = Pipeline::builder(source).fields(["boxes"]).transform(CropToBox).build_ragged().unwrap();
        let batch = pipeline.epoch(0).next().unwrap().unwrap();
        let [_, _, rows, columns] = batch.images()[0].shape();
        let boxes = batch.fields(0).unwrap().boxes(BoxFormat::Xyxy).unwrap();
        assert_eq!(boxes, [[0.0, 0.0, columns as f32, rows as f32]], "tag {tag}");
        assert_eq!(rows * columns, 6, "tag {tag}");
    }
}

/// A draft has its size as stored in front of everything, so its fields are scaled first.
#[test]
fn fields_of_a_draft_lie_on_the_draft() {
    let (bytes, draft) = (jpeg(81, 64, 5), Some(Size::new(40, 32)));
    let mut plane_of = vec![0_u8; 81 * 64];
    plane_of[63 * 81..].fill(7);
    let given = Fields::new()
        .with("boxes", Boxes::new(BoxFormat::Xyxy, vec![[0.0, 16.0, 81.0, 32.0]]))
        .and_then(|fields| fields.with("mask", Mask::new(Size::new(81, 64), plane_of).unwrap()))
        .unwrap();
    let options = common::as_made(&[]).draft(draft);
    let (image, made) = apply_with_fields(&bytes, &given, &[], &options).unwrap();
    assert_eq!(image.shape(), [1, 32, 41, 3]);
    // 81 columns are 40.5 of the draft's 41.
    assert_eq!(made.boxes().unwrap().rows(), [[0.0, 8.0, 40.5, 16.0]]);
    let mask = plane(&made, "mask", 0);
    assert!(mask[..31 * 41].iter().all(|value| *value == 0) && mask[31 * 41..].iter().all(|value| *value == 7));

    let source = EncodedImages::new([(bytes.clone(), 0)]).fields(["boxes", "mask"], {
        let given = given.clone();
        move |_: Described<'_>| Ok(given.clone())
    });
    let builder = Pipeline::builder(source).fields(["boxes", "mask"]).draft(Size::new(40, 32));
    let pipeline = builder.transform(random_horizontal_flip(1.0)).output(DType::U8, Layout::Nhwc);
    let batch = pipeline.transform(Resize::new(Size::new(20, 16))).build().unwrap().epoch(0).next().unwrap().unwrap();
    let recipe = &batch.recipes(0).unwrap()[0];
    let (want, want_fields) = apply_with_fields(&bytes, &given, recipe, &options).unwrap();
    assert_eq!(batch.images().as_bytes().unwrap(), want.as_bytes().unwrap());
    assert_eq!(batch.fields(0).unwrap().image(0), Some(&want_fields));

    let options = PreprocessorOptions::default().draft(draft);
    let preprocessor = Preprocessor::new(recipe.clone(), &options).unwrap();
    assert_eq!(preprocessor.fields(&bytes, &given).unwrap(), want_fields);
}

/// The part of a draft that shows the image becomes the thumbnail, so its fields lie as on a resize of the whole.
#[test]
fn fields_of_a_thumbnail_lie_on_the_thumbnail() {
    let (size, bytes) = (Size::new(161, 123), jpeg(161, 123, 5));
    let boxes = Boxes::new(BoxFormat::Xyxy, vec![[0.0, 0.0, 161.0, 123.0], [16.0, 41.0, 80.5, 82.0]]);
    let mut plane_of = vec![0_u8; 161 * 123];
    plane_of[82 * 161..].fill(7);
    let given = Fields::new()
        .with("boxes", boxes)
        .and_then(|fields| fields.with("mask", Mask::new(size, plane_of).unwrap()))
        .unwrap();
    for thumbnail in [Thumbnail::new(Size::new(40, 30)), Thumbnail::new(Size::new(40, 30)).reducing_gap(None)] {
        let options = common::as_made(&[]).thumbnail(Some(thumbnail));
        let (image, made) = apply_with_fields(&bytes, &given, &[], &options).unwrap();
        let [_, rows, columns, _] = image.shape();
        let to = thumbnail.of(size).unwrap();
        assert_eq!((columns, rows), (to.width as usize, to.height as usize));
        let (x, y) = (to.width as f32 / 161.0, to.height as f32 / 123.0);
        let want = [[0.0, 0.0, 161.0 * x, 123.0 * y], [16.0 * x, 41.0 * y, 80.5 * x, 82.0 * y]];
        for (got, want) in made.boxes().unwrap().rows().iter().flatten().zip(want.iter().flatten()) {
            assert!((got - want).abs() < 1e-4, "{thumbnail:?}: {got}, want {want}");
        }
        let mask = plane(&made, "mask", 0);
        let below = mask.iter().filter(|value| **value == 7).count();
        assert_eq!(below, columns * rows / 3, "{thumbnail:?}");

        // A pipeline's recipe has the operation, and needs the draft alone.
        let source = EncodedImages::new([(bytes.clone(), 0)]).fields(["boxes", "mask"], {
            let given = given.clone();
            move |_: Described<'_>| Ok(given.clone())
        });
        let builder = Pipeline::builder(source).fields(["boxes", "mask"]).thumbnail(thumbnail);
        let pipeline = builder.transform(random_horizontal_flip(1.0)).output(DType::U8, Layout::Nhwc);
        let batch =
            pipeline.transform(Resize::new(Size::new(20, 16))).build().unwrap().epoch(0).next().unwrap().unwrap();
        let recipe = &batch.recipes(0).unwrap()[0];
        let draft = (batch.stored_sizes()[0] != size).then(|| Size::new(80, 60));
        let options = common::as_made(recipe).draft(draft);
        let (want, want_fields) = apply_with_fields(&bytes, &given, recipe, &options).unwrap();
        assert_eq!(batch.images().as_bytes().unwrap(), want.as_bytes().unwrap());
        assert_eq!(batch.fields(0).unwrap().image(0), Some(&want_fields));
    }
    let wrong = Thumbnail::new(size).reducing_gap(Some(0.5));
    let options = common::as_made(&[]).thumbnail(Some(wrong));
    assert!(apply_with_fields(&bytes, &given, &[], &options).unwrap_err().is_parameter());
}

#[test]
fn masks_of_a_padded_batch_lie_with_their_images() {
    let sizes = [Size::new(30, 20), Size::new(17, 40)];
    let jpegs = sizes.map(|size| (encode_jpeg(&Image::new(size), &JpegOptions::default()).unwrap(), 0));
    let source = EncodedImages::new(jpegs).fields(["mask", "boxes"], move |sample: Described<'_>| {
        let boxes = Boxes::new(BoxFormat::Xyxy, vec![[1.0, 2.0, 9.0, 8.0]]);
        let mask = case_mask(sizes[sample.index as usize]).with_fill(255);
        Fields::new().with("mask", mask)?.with("boxes", boxes)
    });
    let pipeline = Pipeline::builder(source).batch_size(2).fields(["mask", "boxes"]).build_padded(16).unwrap();
    let batch = pipeline.epoch(0).next().unwrap().unwrap();
    let (fields, all) = (batch.fields(0).unwrap(), Size::new(32, 48));
    assert_eq!((batch.images().tensor().shape(), batch.images().sizes()), ([2, 3, 48, 32], &sizes[..]));
    assert_eq!(fields.boxes(BoxFormat::Xyxy).unwrap(), [[1.0, 2.0, 9.0, 8.0]; 2]);
    let MaskValues::U8(padded) = fields.padded_masks("mask", all).unwrap() else { panic!() };
    for (i, (plane, own)) in padded.chunks_exact(32 * 48).zip(sizes).enumerate() {
        let want = self::plane(fields.image(i).unwrap(), "mask", 0);
        for (at, value) in plane.iter().enumerate() {
            let (x, y) = (at % 32, at / 32);
            let inside = x < own.width as usize && y < own.height as usize;
            assert_eq!(*value, if inside { want[y * own.width as usize + x] } else { 255 }, "{i}: ({x}, {y})");
        }
    }
    assert!(fields.masks("mask").unwrap_err().is_parameter());
    assert!(fields.padded_masks("mask", Size::new(32, 39)).unwrap_err().is_parameter());
}

/// Points that go through a recipe and back are where they were, whatever the image's orientation and scale.
#[test]
fn a_models_answer_is_mapped_back_to_the_stored_image() {
    let size = Size::new(90, 64);
    let eyes = vec![[40.25, 30.5], [50.0, 33.0]];
    let given = Fields::new()
        .with("boxes", Boxes::new(BoxFormat::Cxcywh, vec![[45.0, 32.0, 11.0, 6.5]]))
        .and_then(|fields| {
            let keypoints = KeyPoints::of_objects(2, eyes.clone(), vec![2, 1])?.flip_index([1, 0])?;
            fields.with("keypoints", keypoints)?.with("score", vec![0.75])?.with("mask", case_mask(size).with_fill(255))
        })
        .unwrap();
    let turned = |op: Op| vec![CenterCrop::new(Size::new(60, 50)).into(), op];
    let recipes: [Vec<Op>; 6] = [
        vec![],
        turned(Hflip.into()),
        turned(Vflip.into()),
        turned(Rotate::new(90.0).expand(true).into()),
        vec![Hflip.into(), CenterCrop::new(60).into(), Hflip.into()],
        vec![Hflip.into(), Resize::new(Size::new(180, 192)).into(), Rotate::new(20.0).into()],
    ];
    for orientation in 1..=8 {
        let options = JpegOptions { orientation: Some(orientation), ..JpegOptions::default() };
        let bytes = encode_jpeg(&Image::new(size), &options).unwrap();
        for (recipe, draft) in recipes.iter().flat_map(|ops| [(ops, None), (ops, Some(Size::new(45, 32)))]) {
            let what = format!("{orientation} {recipe:?} {draft:?}");
            let options = PreprocessorOptions::default().draft(draft);
            let mut ops = recipe.clone();
            ops.push(Resize::new(Size::new(100, 100)).into());
            let preprocessor = Preprocessor::new(ops, &options).unwrap();
            let moved = preprocessor.fields(&bytes, &given).unwrap();
            let undone = preprocessor.undo(&bytes, &moved).unwrap();
            let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3);
            let got = points(&undone);
            assert!(near(got.points().as_flattened(), eyes.as_flattened()), "{what}: {got:?}");
            assert_eq!(got.visibility(), [2, 1], "{what}");
            assert_eq!(undone.get("score"), given.get("score"));
            // A box around a turned box is larger.
            let (got, want) = (undone.boxes().unwrap(), given.boxes().unwrap());
            if recipe.len() < 3 || recipe[2] == Op::from(Hflip) {
                assert!(near(got.rows().as_flattened(), want.rows().as_flattened()), "{what}: {got:?}");
            }
            assert_eq!(got.format(), BoxFormat::Cxcywh);
        }
    }
}

/// Without a change of scale, what a tensor shows of a mask comes back as it was, and the rest is the fill.
#[test]
fn a_mask_comes_back_where_the_tensor_shows_it() {
    let size = Size::new(90, 64);
    let given = Fields::new().with("mask", case_mask(size).with_fill(255)).unwrap();
    for orientation in 1..=8 {
        let options = JpegOptions { orientation: Some(orientation), ..JpegOptions::default() };
        let bytes = encode_jpeg(&Image::new(size), &options).unwrap();
        let ops: [Op; 3] = [Hflip.into(), CenterCrop::new(50).into(), Rotate::new(90.0).into()];
        let preprocessor = Preprocessor::new(ops, &PreprocessorOptions::default()).unwrap();
        let undone = preprocessor.undo(&bytes, &preprocessor.fields(&bytes, &given).unwrap()).unwrap();
        let (got, want) = (plane(&undone, "mask", 0), plane(&given, "mask", 0));
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            let (x, y) = (i % 90, i / 90);
            let shown = (20..70).contains(&x) && (7..57).contains(&y);
            assert_eq!(*got, if shown { *want } else { 255 }, "{orientation}: ({x}, {y})");
        }
        let error = preprocessor.undo(&bytes, &given).unwrap_err().to_string();
        assert!(error.contains("90 x 64") && error.contains("50 x 50"), "{error}");
    }
}

#[test]
fn what_fields_cannot_follow_is_refused() {
    let jpegs = jpegs(3);
    let own = |op: Custom, names: &[&str]| {
        let builder =
            Pipeline::builder(with_fields(&jpegs)).fields(names.iter().copied()).transform(Transform::from(op));
        builder.transform(CenterCrop::new(16)).build().map(|pipeline| pipeline.epoch(0).next().unwrap().unwrap())
    };
    for names in [&["boxes"][..], &["mask"]] {
        let error = own(Custom::new("swirl", |_| ()), names).unwrap_err().to_string();
        assert!(error.contains("swirl") && error.contains("following"), "{error}");
        assert!(own(Custom::new("tint", |_| ()).keeps_places(), names).is_ok());
    }
    // One that draws is asked before it draws.
    struct Draws(bool);
    impl CustomTransform for Draws {
        fn name(&self) -> &'static str {
            "draws"
        }
        fn draw(&self, _rng: &mut SampleRng, _sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
            Ok(vec![Hflip.into()])
        }
        fn fields_follow(&self) -> bool {
            self.0
        }
    }
    let drawn = |follows, names: &[&str]| {
        let builder = Pipeline::builder(with_fields(&jpegs)).fields(names.iter().copied());
        builder.transform(maybe(0.5, [Transform::from(Draws(follows))])).transform(CenterCrop::new(16)).build()
    };
    let error = drawn(false, &["boxes"]).unwrap_err().to_string();
    assert!(error.contains("draws") && error.contains("fields_follow"), "{error}");
    assert!(drawn(true, &["boxes"]).is_ok() && drawn(false, &[]).is_ok());
    let moved = own(Custom::new("left", |_| ()).points(|[x, y], _| [x - 1.0, y]), &["boxes"]).unwrap();
    assert!(moved.fields(0).is_some());
    let builder = || Pipeline::builder(with_fields(&jpegs)).transform(CenterCrop::new(16));
    let wrong = builder().fields(["depth"]).build().unwrap_err();
    assert!(wrong.is_parameter() && wrong.to_string().contains("depth"), "{wrong}");
    assert!(builder().fields(["boxes", "boxes"]).build().unwrap_err().is_parameter());
    // Batches are not mixed, and the error has the remedy.
    for (mix, field) in [("timm=0.8/1.0", "boxes"), ("torchvision=0.2/1", "mask"), ("torchvision=1/0", "labels")] {
        let error = builder().fields([field]).mix(mix.parse().unwrap()).build().unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("random_mix_up"), "{error}");
    }
    assert!(builder().build().unwrap().epoch(0).next().unwrap().unwrap().fields(0).is_none());
}

#[test]
fn a_sample_whose_fields_are_wrong_is_a_bad_one() {
    let jpegs = jpegs(6);
    let sizes: Vec<Size> = jpegs.iter().map(|jpeg| probe(jpeg).unwrap().size).collect();
    let source = EncodedImages::new(jpegs.iter().map(|jpeg| (jpeg.clone(), 0))).fields(["mask"], move |sample| {
        // Sample 2 has a mask of another size, and sample 4 none.
        match sample.index {
            2 => made_fields(Size::new(9, 9), 2),
            4 => Ok(Fields::new()),
            index => made_fields(sizes[index as usize], index),
        }
    });
    let builder = Pipeline::builder(source).fields(["mask"]).batch_size(6).transform(CenterCrop::new(16));
    let error = builder.clone().build().unwrap().epoch(0).next().unwrap().unwrap_err();
    assert!(error.is_bad_sample() && error.to_string().contains("the mask is 9 x 9"), "{error}");
    let skipped = builder.clone().on_error(OnError::Skip).build().unwrap().epoch(0).next().unwrap().unwrap();
    assert_eq!((skipped.indices(), skipped.fields(0).unwrap().len()), (&[0, 1, 3, 5][..], 4));
    let substituted = builder.on_error(OnError::Substitute).build().unwrap().epoch(0).next().unwrap().unwrap();
    assert_eq!(substituted.fields(0).unwrap().len(), 6);
}

// Rules --------------------------------------------------------------------------------------------------------------

fn lines<T: serde::de::DeserializeOwned>(name: &str) -> Vec<T> {
    let shared = PathBuf::from(std::env::var_os("WARPFEED_SHARED").expect("WARPFEED_SHARED names a folder"));
    let text = fs::read_to_string(shared.join("reference/detection").join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[derive(Deserialize)]
struct Conversion {
    from: String,
    to: String,
    #[serde(rename = "in")]
    given: Vec<Vec<f64>>,
    out: Vec<Vec<f64>>,
}

#[derive(Deserialize)]
struct Sanitized {
    size: [u32; 2],
    format: BoxFormat,
    boxes: Vec<[f64; 4]>,
    min_size: f32,
    min_area: f32,
    valid: Vec<bool>,
}

#[derive(Deserialize)]
struct IouCrop {
    size: [u32; 2],
    boxes: Vec<[f64; 4]>,
    crop: [u32; 4],
    inside: Vec<bool>,
    boxes_out: Vec<[f64; 4]>,
}

#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
fn shared_rules() {
    let mut conversions = 0;
    for Conversion { from, to, given, out } in lines("formats.jsonl") {
        let format = |name: &str| serde_json::from_value::<BoxFormat>(name.into()).ok();
        let (Some(from), Some(to)) = (format(&from), format(&to)) else { continue };
        let rows =
            |rows: &[Vec<f64>]| -> Vec<[f64; 4]> { rows.iter().map(|row| row[..].try_into().unwrap()).collect() };
        check_numbers(boxes(from, None, &rows(&given)).to(to).rows(), &rows(&out), 0.0, &format!("{from:?} to {to:?}"));
        conversions += 1;
    }
    assert!(conversions > 100, "{conversions}");
    for (number, row) in lines::<Sanitized>("sanitize.jsonl").into_iter().enumerate() {
        let valid = boxes(row.format, None, &row.boxes).valid(size(row.size), row.min_size, row.min_area);
        assert_eq!(valid, row.valid, "line {number}");
    }
    // The results for boxes; whether a crop is taken has its own test next to the transform.
    for (number, row) in lines::<IouCrop>("iou_crops.jsonl").into_iter().enumerate() {
        let [x, y, width, height] = row.crop;
        let crop = format!(
            r#"[{{"op": "select_objects", "x": {x}, "y": {y}, "width": {width}, "height": {height}}},
            {{"op": "crop", "x": {x}, "y": {y}, "width": {width}, "height": {height}}}]"#
        );
        let ops: Vec<Op> = serde_json::from_str(&crop).unwrap();
        let given = Fields::new().with("boxes", boxes(BoxFormat::Xyxy, Some("soft"), &row.boxes)).unwrap();
        let made = applied(size(row.size), &given, &ops, Strategy::Fused).unwrap();
        let kept = row.boxes_out.iter().zip(&row.inside).filter(|(_, inside)| **inside).map(|(row, _)| *row);
        check_numbers(made.boxes().unwrap().rows(), &kept.collect::<Vec<_>>(), 0.0, &format!("line {number}"));
    }
}

#[test]
fn masks_of_16_bits_and_of_many_objects_go_through_whole() {
    let of = Size::new(13, 9);
    let words: Vec<u16> = (0..of.area_px()).map(|i| (i * 561) as u16).collect();
    // More objects than are moved at a time.
    let planes: Vec<Vec<u8>> =
        (0..30).map(|object| (0..of.area_px()).map(|i| u8::from(i % (object + 2) == 0)).collect()).collect();
    let given = Fields::new()
        .with("ids", Mask::new(of, words.clone()).unwrap().with_fill(0x1234))
        .and_then(|fields| fields.with("masks", Mask::of_objects(of, planes.clone()).unwrap()))
        .unwrap();
    let ops: Vec<Op> =
        serde_json::from_str(r#"[{"op": "hflip"}, {"op": "pad", "left": 1, "top": 0, "right": 0, "bottom": 0}]"#)
            .unwrap();
    let made = applied(of, &given, &ops, Strategy::Fused).unwrap();
    let padded = |outside: u32, value: &dyn Fn(usize) -> u32| -> Vec<u32> {
        let row = |y: usize| std::iter::once(outside).chain((0..13).rev().map(move |x| value(y * 13 + x)));
        (0..9).flat_map(row).collect()
    };
    let Some(Field::Mask(ids)) = made.get("ids") else { panic!("{made:?}") };
    let MaskValues::U16(values) = &*ids.planes()[0] else { panic!("{ids:?}") };
    assert_eq!(values.iter().map(|v| u32::from(*v)).collect::<Vec<_>>(), padded(0x1234, &|i| words[i].into()));
    for (object, given) in planes.iter().enumerate() {
        let values: Vec<u32> = plane(&made, "masks", object).iter().map(|v| u32::from(*v)).collect();
        assert_eq!(values, padded(0, &|i| given[i].into()), "object {object}");
    }
}

#[test]
fn left_and_right_change_places_in_a_mirror() {
    let eyes = vec![[4.0, 5.0], [8.0, 5.0], [0.0, 0.0], [9.0, 9.0]];
    let eyes = KeyPoints::of_objects(2, eyes, vec![2, 1, 0, 2]).unwrap().flip_index([1, 0]).unwrap();
    let given = Fields::new().with("keypoints", eyes).unwrap();
    let flipped = |op: &str| {
        let ops: Vec<Op> = serde_json::from_str(&format!(r#"[{{"op": "{op}"}}]"#)).unwrap();
        applied(Size::new(20, 10), &given, &ops, Strategy::Fused).unwrap()
    };
    let mirrored = flipped("hflip");
    assert_eq!(points(&mirrored).points(), [[12.0, 5.0], [16.0, 5.0], [11.0, 9.0], [0.0, 0.0]]);
    assert_eq!(points(&mirrored).visibility(), [1, 2, 2, 0]);
    assert_eq!(points(&flipped("vflip")).points()[..2], [[4.0, 5.0], [8.0, 5.0]]);
    assert!(KeyPoints::of_objects(2, vec![[0.0; 2]; 4], vec![2; 4]).unwrap().flip_index([1, 1]).is_err());
}

#[test]
fn min_visibility_counts_what_operations_cut_off() {
    let rows = [[0.0, 0.0, 10.0, 10.0], [8.0, 0.0, 18.0, 10.0], [30.0, 0.0, 40.0, 10.0]];
    let given = Fields::new()
        .with("boxes", boxes(BoxFormat::Xywh, Some("soft"), &rows.map(|[a, b, c, d]| [a, b, c - a, d - b])));
    let given = given.and_then(|fields| fields.with("labels", vec![0, 1, 2])).unwrap();
    let kept = |min_visibility: f64| {
        let text = format!(
            r#"[{{"op": "crop", "x": 0, "y": 0, "width": 10, "height": 20}}, {{"op": "resize", "width": 50, "height": 20}},
            {{"op": "sanitize", "min_size": 0, "min_area": 0, "min_visibility": {min_visibility}}}]"#
        );
        let ops: Vec<Op> = serde_json::from_str(&text).unwrap();
        let made = applied(Size::new(40, 20), &given, &ops, Strategy::Fused).unwrap();
        let Some(Field::Integers(labels)) = made.get("labels") else { panic!("{made:?}") };
        labels.clone()
    };
    // All of the first box is in view, a fifth of the second, and nothing of the third.
    assert_eq!((kept(0.0), kept(0.2), kept(0.21), kept(1.0)), (vec![0, 1, 2], vec![0, 1], vec![0], vec![0]));
}

// Auxiliary images
// -----------------------------------------------------------------------------------------------------

/// Bytes that differ from pixel to pixel.
fn rgb_of(of: Size, seed: u64) -> Vec<u8> {
    let mut random = Random(seed + 1);
    (0..3 * of.area_px()).map(|_| random.within(0, 255) as u8).collect()
}

fn further<'a>(fields: &'a Fields, name: &str) -> &'a AuxImage {
    let Some(Field::Image(image)) = fields.get(name) else { panic!("{fields:?}") };
    image
}

fn bytes_of(plane: &MaskValues) -> Vec<u8> {
    match plane {
        MaskValues::U8(values) => values.clone(),
        MaskValues::U16(values) => values.iter().flat_map(|value| value.to_be_bytes()).collect(),
        _ => panic!("another type"),
    }
}

/// Samples with depth, the other image of a pair, and one of twice the size.
pub(crate) fn with_aux_images(jpegs: &[Vec<u8>]) -> WithFields {
    let sizes: Vec<Size> = jpegs.iter().map(|jpeg| probe(jpeg).unwrap().size).collect();
    let source = EncodedImages::new(jpegs.iter().map(|jpeg| (jpeg.clone(), 0)));
    source.fields(["depth", "other", "high"], move |sample: Described<'_>| {
        let of = sizes[sample.index as usize];
        let twice = Size::new(2 * of.width, 2 * of.height);
        let depth: Vec<u16> = (0..of.area_px()).map(|i| (i * 997 % 65_536) as u16).collect();
        Fields::new()
            .with("depth", AuxImage::gray(of, depth)?.with_fill(65_535))?
            .with("other", AuxImage::rgb(of, &rgb_of(of, sample.index))?)?
            .with("high", AuxImage::rgb(twice, &rgb_of(twice, sample.index))?)
    })
}

#[test]
fn aux_images_move_as_the_image_without_its_colors() {
    let of = Size::new(40, 30);
    let png = |bytes: &[u8]| AuxImage::rgb(of, bytes).unwrap().to_png().unwrap();
    let rgb = rgb_of(of, 5);
    let ops = [
        r#"[{"op": "hflip"}, {"op": "rotate", "degrees": 20.0, "interpolation": "bilinear", "expand": true}]"#,
        r#"[{"op": "resize", "width": 33, "height": 50, "interpolation": "bicubic"}, {"op": "vflip"}]"#,
        r#"[{"op": "perspective", "startpoints": [[0, 0], [39, 0], [39, 29], [0, 29]], "endpoints": [[3, 2], [36, 1], [38, 27], [1, 29]]}]"#,
        r#"[{"op": "pad", "left": 3, "top": 4, "right": 5, "bottom": 6}, {"op": "center_crop", "width": 30, "height": 44}]"#,
        r#"[{"op": "elastic", "alpha": [60.0, 60.0], "sigma": 4.0, "key": 7}]"#,
    ];
    for ops in ops {
        let Ok(ops) = serde_json::from_str::<Vec<Op>>(ops) else { panic!("{ops}") };
        // Colors change in the image alone.
        let color: Vec<Op> = serde_json::from_str(r#"[{"op": "invert"}, {"op": "grayscale"}]"#).unwrap();
        let all: Vec<Op> = color.into_iter().chain(ops.clone()).collect();
        let given = Fields::new().with("other", AuxImage::from_encoded(&png(&rgb), 10_000).unwrap()).unwrap();
        let made = applied(of, &given, &all, Strategy::Fused).unwrap();
        let options = common::as_made(&ops).orientation(Orientation::Ignore);
        let want = warpfeed::apply(&png(&rgb), &ops, &options).unwrap();
        let want = want.as_slice::<u8>().unwrap();
        let planes: Vec<_> = further(&made, "other").planes().iter().map(|plane| bytes_of(plane)).collect();
        for (i, pixel) in want.chunks_exact(3).enumerate() {
            assert_eq!(pixel, [planes[0][i], planes[1][i], planes[2][i]], "{ops:?}: {i}");
        }
    }
}

/// The image of twice the size is moved by twice as many pixels.
#[test]
fn aux_images_of_another_size_move_by_whole_pixels_or_not_at_all() {
    let (of, twice) = (Size::new(20, 14), Size::new(40, 28));
    let rgb = rgb_of(twice, 9);
    let given = || {
        let high = AuxImage::rgb(twice, &rgb).unwrap().with_interpolation(warpfeed::ops::Interpolation::Nearest);
        Fields::new().with("high", high).unwrap()
    };
    let cases = [
        (
            r#"[{"op": "crop", "x": 3, "y": 2, "width": 9, "height": 8}, {"op": "hflip"}]"#,
            r#"[{"op": "crop", "x": 6, "y": 4, "width": 18, "height": 16}, {"op": "hflip"}]"#,
        ),
        (
            r#"[{"op": "resize", "width": 9, "height": 8}]"#,
            r#"[{"op": "resize", "width": 18, "height": 16, "interpolation": "nearest"}]"#,
        ),
        (
            r#"[{"op": "rotate", "degrees": 90.0, "expand": true}, {"op": "pad", "left": 1, "top": 0, "right": 2, "bottom": 3}]"#,
            r#"[{"op": "rotate", "degrees": 90.0, "expand": true}, {"op": "pad", "left": 2, "top": 0, "right": 4, "bottom": 6}]"#,
        ),
        (
            r#"[{"op": "center_crop", "width": 10, "height": 10}]"#,
            r#"[{"op": "center_crop", "width": 20, "height": 20}]"#,
        ),
    ];
    for (ops, doubled) in cases {
        let [ops, doubled] = [ops, doubled].map(|ops| serde_json::from_str::<Vec<Op>>(ops).unwrap());
        let made = applied(of, &given(), &ops, Strategy::Fused).unwrap();
        let png = AuxImage::rgb(twice, &rgb).unwrap().to_png().unwrap();
        let options = common::as_made(&doubled).orientation(Orientation::Ignore);
        let want = warpfeed::apply(&png, &doubled, &options).unwrap();
        let planes: Vec<_> = further(&made, "high").planes().iter().map(|plane| bytes_of(plane)).collect();
        for (i, pixel) in want.as_slice::<u8>().unwrap().chunks_exact(3).enumerate() {
            assert_eq!(pixel, [planes[0][i], planes[1][i], planes[2][i]], "{ops:?}: {i}");
        }
    }
    let rotated = applied(of, &given(), &[Rotate::new(5.0).into()], Strategy::Fused).unwrap_err().to_string();
    assert!(rotated.contains("rotate") && rotated.contains("40 x 28"), "{rotated}");
    // Half a pixel is none.
    let low = AuxImage::rgb(Size::new(10, 7), &[1; 210]).unwrap();
    let low = Fields::new().with("low", low).unwrap();
    let odd: Vec<Op> = serde_json::from_str(r#"[{"op": "crop", "x": 3, "y": 2, "width": 8, "height": 8}]"#).unwrap();
    assert!(applied(of, &low, &odd, Strategy::Fused).unwrap_err().to_string().contains("whole pixels"));
}

#[test]
fn aux_images_arrive_in_batches() {
    let jpegs = jpegs(9);
    let pipeline = Pipeline::builder(with_aux_images(&jpegs)).fields(["depth", "other", "high"]).batch_size(4);
    let pipeline =
        pipeline.transform(random_horizontal_flip(0.5)).transform(Resize::new(Size::new(24, 20))).build().unwrap();
    for batch in pipeline.epoch(0) {
        let batch = batch.unwrap();
        let fields = batch.fields(0).unwrap();
        let shape = |name: &str| fields.image_tensor(name).unwrap().shape().to_vec();
        assert_eq!(shape("depth"), [batch.len(), 1, 20, 24]);
        assert_eq!(shape("other"), [batch.len(), 3, 20, 24]);
        assert_eq!(shape("high"), [batch.len(), 3, 40, 48]);
        let MaskValues::U16(depth) = fields.aux_images("depth").unwrap() else { panic!() };
        for i in 0..batch.len() {
            let own = further(fields.image(i).unwrap(), "depth");
            assert_eq!(*own.planes()[0], MaskValues::U16(depth[i * 480..][..480].to_vec()));
            let high = further(fields.image(i).unwrap(), "high");
            assert_eq!(high.size(), Size::new(48, 40));
            assert_eq!(fields.image_tensors("high").unwrap()[i].shape(), [1, 3, 40, 48]);
        }
        assert!(fields.mask_tensor("depth").is_err() && fields.image_tensor("none").is_err());
        // A part of the images, in another order.
        let two = fields.of_images(&[batch.len() - 1, 0, 99]);
        assert_eq!((two.len(), two.image(1)), (2, fields.image(0)));
    }
}

/// Auxiliary images of different sizes are padded as the batch's images, and lie where these do.
#[test]
fn aux_images_of_a_padded_batch_lie_with_their_images() {
    let jpegs = jpegs(9);
    let builder = Pipeline::builder(with_aux_images(&jpegs)).fields(["depth", "other", "high"]).batch_size(4);
    for batch in builder.transform(random_horizontal_flip(0.5)).build_padded(16).unwrap().epoch(0) {
        let batch = batch.unwrap();
        let [_, _, height, width] = batch.images().tensor().shape();
        let (size, fields) = (Size::new(width as u32, height as u32), batch.fields(0).unwrap());
        assert_eq!(fields.image_tensor("other").is_err(), batch.len() > 1, "the sizes differ");
        assert!(fields.padded_image_tensor("other", Size::new(1, 1)).unwrap_err().is_parameter());
        assert!(fields.padded_image_tensor("high", size).is_err(), "it is larger");
        for (name, channels, fill) in [("depth", 1, None), ("other", 3, Some(0))] {
            let tensor = fields.padded_image_tensor(name, size).unwrap();
            assert_eq!(tensor.shape(), [batch.len(), channels, height, width], "{name}");
            let values: Vec<u16> = match tensor.into_parts().unwrap().0 {
                FieldValues::U8(values) => values.into_iter().map(u16::from).collect(),
                FieldValues::U16(values) => values,
                other => panic!("{other:?}"),
            };
            for (place, plane) in values.chunks_exact(width * height).enumerate() {
                let own = further(fields.image(place / channels).unwrap(), name);
                let of = |x: usize, y: usize| {
                    let at = y * own.size().width as usize + x;
                    match &*own.planes()[place % channels] {
                        MaskValues::U8(values) => u16::from(values[at]),
                        MaskValues::U16(values) => values[at],
                        other => panic!("{other:?}"),
                    }
                };
                for (at, value) in plane.iter().enumerate() {
                    let (x, y) = (at % width, at / width);
                    let inside = x < own.size().width as usize && y < own.size().height as usize;
                    let want = if inside { of(x, y) } else { fill.unwrap_or(own.fill()) };
                    assert_eq!(*value, want, "{name}, plane {place}: ({x}, {y})");
                }
            }
        }
    }
}

/// Values of 16 bits have no filter but the nearest pixel, and another filter is not silently ignored.
#[test]
fn values_of_16_bits_are_not_blended() {
    let size = Size::new(4, 4);
    let depth = || AuxImage::gray(size, (0..16).map(|i| i * 4000).collect::<Vec<u16>>()).unwrap();
    let shrunk = |image: AuxImage| {
        let fields = Fields::new().with("depth", image).unwrap();
        applied(size, &fields, &[Resize::new(Size::new(2, 2)).into()], Strategy::Fused)
    };
    let made = shrunk(depth()).unwrap();
    assert_eq!(*further(&made, "depth").planes()[0], MaskValues::U16(vec![20_000, 28_000, 52_000, 60_000]));
    let error = shrunk(depth().with_interpolation(Interpolation::Bilinear)).unwrap_err().to_string();
    assert!(error.contains("16 bits") && error.contains("Bilinear") && error.contains("nearest"), "{error}");
}

#[test]
fn transforms_see_masks_at_their_place() {
    /// Keeps what it sees, by the sample's index.
    #[derive(Clone, Default)]
    struct Sees(Arc<Mutex<BTreeMap<u64, Fields>>>);
    impl CustomTransform for Sees {
        fn fields_follow(&self) -> bool {
            true
        }
        fn name(&self) -> &'static str {
            "sees"
        }
        fn draw(&self, _rng: &mut SampleRng, sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
            self.0.lock().unwrap().insert(sample.index, sample.masks()?);
            Ok(Vec::new())
        }
    }
    let jpegs = jpegs(9);
    let sees = Sees::default();
    // A perspective, and objects that a crop drops.
    let pipeline = builder(&jpegs).transform(YoloPerspective::new(Size::new(30, 26)).perspective(0.002).degrees(9.0));
    let pipeline = pipeline.transform(sees.clone()).sanitize(false).build_ragged().unwrap();
    let (mut compared, mut objects) = (0, 0);
    for batch in pipeline.epoch(0) {
        let batch = batch.unwrap();
        for (i, index) in batch.indices().iter().enumerate() {
            let (delivered, seen) = (batch.fields(0).unwrap().image(i).unwrap(), sees.0.lock().unwrap());
            for name in ["mask", "masks"] {
                assert_eq!(seen[index].get(name), delivered.get(name), "{name} of sample {index}");
            }
            (compared, objects) = (compared + 1, objects + delivered.objects());
        }
    }
    assert!(compared == 9 && objects > 3, "{objects}");
}
