//! Samples that are made of several: mosaics and blends.

use crate::common::{as_made, jpeg};
use std::ops::RangeInclusive;
use std::sync::Arc;
use warpfeed::fields::{BoxFormat, Boxes, Field, Fields, Mask, MaskValues};
use warpfeed::image::{Size, probe};
use warpfeed::ops::{
    ByEpoch, CopyPaste, CopyPasteMode, Letterbox, MixUp, Mosaic, Op, Part, RandomCopyPaste, RandomIouCrop, RandomMixUp,
    RandomMosaic, Transform, YoloCopyPaste, YoloPerspective,
};
use warpfeed::prelude::*;
use warpfeed::source::{Described, WithFields};
use warpfeed::{ApplyOptions, ImageCache, OnError, Orientation, Partition, Strategy, apply, apply_with_fields};

const NAMES: [&str; 3] = ["boxes", "labels", "masks"];

pub fn jpegs(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(|i| jpeg(40 + (7 * i % 30) as u32, 40 + (11 * i % 30) as u32, i)).collect()
}

/// Two objects, one small object and none, in turn.
fn made_fields(Size { width, height }: Size, index: u64) -> Fields {
    let (w, h) = (width as f32, height as f32);
    let rows = match index % 3 {
        0 => vec![[0.1 * w, 0.2 * h, 0.6 * w, 0.7 * h], [0.5 * w, 0.5 * h, w, h]],
        1 => vec![[0.1 * w, 0.1 * h, 0.3 * w, 0.6 * h]],
        _ => Vec::new(),
    };
    // Each box but its upper left corner.
    let plane = |&[x1, y1, x2, y2]: &[f32; 4]| -> Vec<u8> {
        let pixels = (0..width * height).map(|pixel| ((pixel % width) as f32, (pixel / width) as f32));
        let inside = |(x, y)| x >= x1 && x < x2 && y >= y1 && y < y2 && x - x1 + y - y1 > 4.0;
        pixels.map(|pixel| u8::from(inside(pixel))).collect()
    };
    let masks = Mask::of_objects(Size::new(width, height), rows.iter().map(plane)).unwrap();
    let labels: Vec<i64> = (0..rows.len() as i64).map(|row| 10 * index as i64 + row).collect();
    let fields = Fields::new().with("labels", labels).and_then(|fields| fields.with("masks", masks));
    fields.and_then(|fields| fields.with("boxes", Boxes::new(BoxFormat::Xyxy, rows))).unwrap()
}

fn source(jpegs: &[Vec<u8>]) -> WithFields {
    let sizes: Vec<Size> = jpegs.iter().map(|jpeg| probe(jpeg).map_or(Size::new(1, 1), |header| header.size)).collect();
    let images = EncodedImages::new(jpegs.iter().map(|jpeg| (jpeg.clone(), 0)));
    images.fields(NAMES, move |sample: Described<'_>| Ok(made_fields(sizes[sample.index as usize], sample.index)))
}

/// Mosaics of four that are mapped, and every other one blended with another, as YOLO's.
fn builder(jpegs: &[Vec<u8>]) -> PipelineBuilder {
    builder_of(jpegs, 4)
}

fn builder_of(jpegs: &[Vec<u8>], tiles: u32) -> PipelineBuilder {
    Pipeline::builder(source(jpegs))
        .fields(NAMES)
        .seed(5)
        .batch_size(4)
        .threads(2)
        .transform(RandomMosaic::new(32).tiles(tiles))
        .transform(YoloPerspective::new(32))
        .transform(maybe(0.5, [RandomMixUp::new(32.0).into()]))
        .transform(random_horizontal_flip(0.5))
        .output(DType::U8, Layout::Nhwc)
}

/// Objects pasted over mirrored images.
pub fn pasting(jpegs: &[Vec<u8>], paste: impl Into<Transform>) -> PipelineBuilder {
    let pipeline = Pipeline::builder(source(jpegs)).fields(NAMES).seed(5).batch_size(4).threads(2);
    let pipeline =
        pipeline.transform(random_horizontal_flip(0.5)).transform(paste).transform(Resize::new(Size::new(48, 40)));
    pipeline.output(DType::U8, Layout::Nhwc)
}

/// An image with its fields.
struct Made {
    size: Size,
    rgb: Vec<u8>,
    fields: Fields,
}

/// Runs a recipe by hand: plain operations by `apply_with_fields` on the current image, encoded as PNM, and those that
/// need other samples by their definition.
fn made(jpegs: &[Vec<u8>], index: u64, recipe: &[Op]) -> Made {
    let jpeg = &jpegs[index as usize];
    let size = probe(jpeg).unwrap().size;
    let mut made = plain(jpeg.clone(), made_fields(size, index), &[]);
    for op in recipe {
        made = match op {
            Op::Mosaic(op) => mosaic(jpegs, made, op),
            Op::MixUp(op) => mixed(jpegs, made, op),
            Op::CopyPaste(op) => pasted(jpegs, made, op),
            op => {
                let mut pnm = format!("P6 {} {} 255\n", made.size.width, made.size.height).into_bytes();
                pnm.extend_from_slice(&made.rgb);
                plain(pnm, made.fields, std::slice::from_ref(op))
            }
        };
    }
    made
}

fn plain(image: Vec<u8>, fields: Fields, ops: &[Op]) -> Made {
    let options = as_made(ops).orientation(Orientation::Ignore);
    let (tensor, fields) = apply_with_fields(&image, &fields, ops, &options).unwrap();
    let [_, height, width, _] = tensor.shape();
    Made { size: Size::new(width as u32, height as u32), rgb: tensor.as_bytes().unwrap().to_vec(), fields }
}

/// Masks of objects.
fn planes(fields: &Fields) -> Vec<Vec<u8>> {
    let Some(Field::Mask(masks)) = fields.get("masks") else { panic!("{fields:?}") };
    let values = |plane: &Arc<MaskValues>| match &**plane {
        MaskValues::U8(values) => values.clone(),
        other => panic!("{other:?}"),
    };
    masks.planes().iter().map(values).collect()
}

/// The objects of several samples, those of each moved to its place on a canvas.
fn join(samples: &[(&Fields, [u32; 2], Size)], canvas: Size) -> Fields {
    let (mut rows, mut labels, mut placed_planes) = (Vec::new(), Vec::<i64>::new(), Vec::new());
    for (fields, [x, y], size) in samples {
        let moved = |row: &[f32; 4]| [row[0] + *x as f32, row[1] + *y as f32, row[2] + *x as f32, row[3] + *y as f32];
        rows.extend(fields.boxes().unwrap().rows().iter().map(moved));
        let Some(Field::Integers(own)) = fields.get("labels") else { panic!("{fields:?}") };
        labels.extend(own);
        for plane in planes(fields) {
            let mut placed = vec![0; canvas.area_px() as usize];
            for (i, value) in plane.into_iter().enumerate() {
                let (column, row) = (i as u32 % size.width + x, i as u32 / size.width + y);
                placed[(row * canvas.width + column) as usize] = value;
            }
            placed_planes.push(placed);
        }
    }
    let boxes = Boxes::new(BoxFormat::Xyxy, rows);
    let masks = Mask::of_objects(canvas, placed_planes).unwrap();
    Fields::new().with("boxes", boxes).unwrap().with("labels", labels).unwrap().with("masks", masks).unwrap()
}

fn mosaic(jpegs: &[Vec<u8>], own: Made, op: &Mosaic) -> Made {
    let canvas = Size::new(op.width, op.height);
    let mut rgb: Vec<u8> = (0..canvas.area_px()).flat_map(|_| op.fill).collect();
    let others: Vec<Made> = op.parts.iter().map(|part| made(jpegs, part.sample, &part.ops)).collect();
    let places = [op.at].into_iter().chain(op.parts.iter().map(|part| part.at));
    let all: Vec<(&Made, [u32; 2])> = [&own].into_iter().chain(&others).zip(places).collect();
    for (tile, [x, y]) in &all {
        for (i, pixel) in tile.rgb.chunks_exact(3).enumerate() {
            let (column, row) = (i as u32 % tile.size.width + x, i as u32 / tile.size.width + y);
            let start = 3 * (row * canvas.width + column) as usize;
            rgb[start..start + 3].copy_from_slice(pixel);
        }
    }
    let placed: Vec<_> = all.iter().map(|(tile, at)| (&tile.fields, *at, tile.size)).collect();
    Made { size: canvas, rgb, fields: join(&placed, canvas) }
}

fn mixed(jpegs: &[Vec<u8>], own: Made, op: &MixUp) -> Made {
    let other = made(jpegs, op.part.sample, &op.part.ops);
    assert_eq!(other.size, own.size);
    let blend = |(own, other): (&u8, &u8)| (f64::from(*own) * op.share + f64::from(*other) * (1.0 - op.share)) as u8;
    let rgb = own.rgb.iter().zip(&other.rgb).map(blend).collect();
    let placed = [(&own.fields, [0; 2], own.size), (&other.fields, [0; 2], own.size)];
    Made { size: own.size, rgb, fields: join(&placed, own.size) }
}

/// torchvision's `SimpleCopyPaste`, with boxes whose far edges lie after the last pixel. Without `refit`, boxes and
/// objects stay.
fn pasted(jpegs: &[Vec<u8>], own: Made, op: &CopyPaste) -> Made {
    let (other, size) = (made(jpegs, op.part.sample, &op.part.ops), own.size);
    assert_eq!(other.size, size);
    let (width, height, margin) = (size.width as i32, size.height as i32, op.margin as i32);
    let others = planes(&other.fields);
    let at = |x: i32, y: i32| (y * width + x) as usize;
    let shown: Vec<bool> = (0..width * height)
        .map(|pixel| {
            let (left, top) = (pixel % width - margin, pixel / width - margin);
            let near = (top..=top + 2 * margin).flat_map(|y| (left..=left + 2 * margin).map(move |x| (x, y)));
            let mut near = near.filter(|(x, y)| (0..width).contains(x) && (0..height).contains(y));
            near.any(|(x, y)| others.iter().any(|plane| plane[at(x, y)] == 1))
        })
        .collect();
    let rgb = (0..own.rgb.len()).map(|i| if shown[i / 3] { other.rgb[i] } else { own.rgb[i] }).collect();
    let (mut rows, mut labels, mut left) = (Vec::new(), Vec::new(), Vec::new());
    let Some(Field::Integers(own_labels)) = own.fields.get("labels") else { panic!("{:?}", own.fields) };
    let own_rows = own.fields.boxes().unwrap().rows();
    for ((mut plane, label), row) in planes(&own.fields).into_iter().zip(own_labels).zip(own_rows) {
        plane.iter_mut().zip(&shown).for_each(|(value, shown)| *value &= u8::from(!shown));
        let seen: Vec<(i32, i32)> =
            (0..width * height).map(|i| (i % width, i / width)).filter(|(x, y)| plane[at(*x, *y)] == 1).collect();
        if !op.refit {
            rows.push(*row);
            labels.push(*label);
            left.push(plane);
            continue;
        }
        let bound = |of: fn(&(i32, i32)) -> i32| Some((seen.iter().map(of).min()?, seen.iter().map(of).max()? + 1));
        if let (Some((x1, x2)), Some((y1, y2))) = (bound(|(x, _)| *x), bound(|(_, y)| *y)) {
            rows.push([x1, y1, x2, y2].map(|side| side as f32));
            labels.push(*label);
            left.push(plane);
        }
    }
    let seen = Fields::new().with("boxes", Boxes::new(BoxFormat::Xyxy, rows)).unwrap();
    let seen = seen.with("labels", labels).unwrap().with("masks", Mask::of_objects(size, left).unwrap()).unwrap();
    Made { size, rgb, fields: join(&[(&seen, [0; 2], size), (&other.fields, [0; 2], size)], size) }
}

/// Everything that an epoch delivers of each sample, by its index.
fn delivered(pipeline: &Pipeline, epoch: u64) -> Vec<(u64, Vec<u8>, Fields)> {
    let mut all = Vec::new();
    for batch in pipeline.epoch(epoch) {
        let batch = batch.unwrap();
        for (i, index) in batch.indices().iter().enumerate() {
            let bytes = batch.images().image_bytes(i).unwrap().to_vec();
            all.push((*index, bytes, batch.fields(0).unwrap().image(i).unwrap().clone()));
        }
    }
    all.sort_by_key(|(index, ..)| *index);
    all
}

#[test]
fn samples_are_what_their_recipes_say() {
    let jpegs = jpegs(12);
    check_by_hand(&jpegs, 4, 3..=3);
    // One of nine may lie outside the canvas.
    check_by_hand(&jpegs, 9, 7..=8);
}

fn check_by_hand(jpegs: &[Vec<u8>], tiles: u32, others: RangeInclusive<usize>) {
    let pipeline = builder_of(jpegs, tiles).build().unwrap();
    let (mut objects, mut blends) = (0, 0);
    for (index, bytes, fields) in delivered(&pipeline, 1) {
        let recipe = pipeline.recipe(1, index).unwrap();
        let made = made(jpegs, index, &recipe);
        assert_eq!(made.size, Size::new(32, 32));
        assert!(made.rgb == bytes, "sample {index}: {recipe:?}");
        // The shares that crops have left are not compared: the boxes made by hand begin anew.
        let rows = |fields: &Fields| fields.boxes().unwrap().rows().to_vec();
        assert_eq!(rows(&made.fields), rows(&fields));
        assert_eq!((made.fields.get("labels"), made.fields.get("masks")), (fields.get("labels"), fields.get("masks")));
        objects += fields.objects();
        for op in &recipe {
            if let Op::MixUp(op) = op {
                assert!(op.part.ops.iter().any(|op| matches!(op, Op::Mosaic(op) if others.contains(&op.parts.len()))));
                blends += 1;
            }
        }
    }
    assert!(objects > 12 && (1..12).contains(&blends), "{objects} {blends}");
}

#[test]
fn objects_are_pasted_as_recipes_say() {
    let jpegs = jpegs(14);
    for blending in [true, false] {
        let pipeline = pasting(&jpegs, RandomCopyPaste::new().blending(blending)).build().unwrap();
        let (mut pastes, mut chosen, mut hidden) = (0, 0, 0);
        for (index, bytes, fields) in delivered(&pipeline, 2) {
            let recipe = equal_by_hand(&jpegs, &pipeline, index, &bytes, &fields);
            let mut last = None;
            let stages = pipeline.stages(2, index, 0, &mut |stage| {
                last = Some(stage.pixels.to_rgb());
                Ok(())
            });
            assert_eq!((stages.unwrap(), last), (vec![recipe.clone()], Some(bytes)));
            let paste = recipe.iter().find_map(|op| if let Op::CopyPaste(op) = op { Some(op) } else { None });
            let of = |index: u64| [2, 1, 0][index as usize % 3];
            let own = of(index);
            match paste {
                Some(op) => {
                    assert_eq!(
                        (op.margin, op.refit, of(op.part.sample) > 0),
                        (if blending { 2 } else { 0 }, true, true)
                    );
                    let keep =
                        op.part.ops.iter().find_map(|op| if let Op::KeepObjects(op) = op { Some(op) } else { None });
                    let added = keep.map_or(of(op.part.sample), |keep| keep.rows.len());
                    (pastes, chosen) = (pastes + 1, chosen + usize::from(keep.is_some()));
                    hidden += own + added - fields.objects();
                }
                // The other has no objects.
                None => assert_eq!(fields.objects(), own),
            }
        }
        assert!((4..14).contains(&pastes) && (1..pastes).contains(&chosen) && hidden > 0, "{pastes} {chosen} {hidden}");
    }
}

#[test]
fn objects_that_cover_little_are_pasted() {
    let jpegs = jpegs(14);
    let flip = pasting(&jpegs, YoloCopyPaste::new(1.0)).build().unwrap();
    let mut pastes = 0;
    for (index, bytes, fields) in delivered(&flip, 2) {
        let recipe = equal_by_hand(&jpegs, &flip, index, &bytes, &fields);
        let paste = recipe.iter().find_map(|op| if let Op::CopyPaste(op) = op { Some(op) } else { None });
        // Both of two objects cover too much of each other's places.
        assert_eq!(paste.is_some(), index % 3 == 1, "{recipe:?}");
        if let Some(op) = paste {
            assert_eq!((op.part.sample, op.margin, op.refit, fields.objects()), (index, 0, false, 2));
            assert!(matches!(op.part.ops.last(), Some(Op::Hflip(_))));
            pastes += 1;
        }
    }
    assert!(pastes > 2);
    // Later draws see what was pasted.
    let mixup = Pipeline::builder(source(&jpegs)).fields(NAMES).seed(5).batch_size(4).transform(RandomMosaic::new(32));
    let mixup = mixup.transform(YoloCopyPaste::new(0.8).mode(CopyPasteMode::Mixup)).transform(YoloPerspective::new(64));
    let mixup = mixup.output(DType::U8, Layout::Nhwc).build().unwrap();
    let (mut pastes, mut dropped) = (0, 0);
    for (index, bytes, fields) in delivered(&mixup, 2) {
        let recipe = equal_by_hand(&jpegs, &mixup, index, &bytes, &fields);
        if let Some(at) = recipe.iter().position(|op| matches!(op, Op::CopyPaste(_))) {
            pastes += 1;
            dropped += usize::from(recipe[at..].iter().any(|op| matches!(op, Op::KeepObjects(_))));
        }
    }
    assert!((2..14).contains(&pastes) && dropped > 0, "{pastes} {dropped}");
}

/// Checks that a sample of epoch 2 is what its recipe says, and returns the recipe.
fn equal_by_hand(jpegs: &[Vec<u8>], pipeline: &Pipeline, index: u64, bytes: &[u8], fields: &Fields) -> Vec<Op> {
    let recipe = pipeline.recipe(2, index).unwrap();
    let made = made(jpegs, index, &recipe);
    assert!(made.rgb == bytes, "sample {index}: {recipe:?}");
    let rows = |fields: &Fields| fields.boxes().unwrap().rows().to_vec();
    assert_eq!(rows(&made.fields), rows(fields));
    assert_eq!(made.fields.get("labels"), fields.get("labels"));
    assert_eq!(planes(&made.fields), planes(fields));
    recipe
}

#[test]
fn what_pasting_needs_is_asked_for() {
    let jpegs = jpegs(4);
    let builder = |names: &[&'static str]| {
        Pipeline::builder(source(&jpegs)).fields(names.iter().copied()).transform(RandomCopyPaste::new())
    };
    let error = builder(&["boxes", "labels"])
        .transform(CenterCrop::new(8))
        .build()
        .unwrap()
        .epoch(0)
        .find_map(Result::err)
        .unwrap();
    assert!(!error.is_bad_sample() && error.to_string().contains("masks"), "{error}");
    // Which objects a paste leaves is not known when recipes are drawn.
    for late in [RandomIouCrop::new().into(), maybe(0.5, [RandomCopyPaste::new().into()])] {
        let error = builder(&NAMES).transform(late).transform(CenterCrop::new(8)).build().unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("before random_copy_paste"), "{error}");
    }
    let tiles = builder(&NAMES).transform(RandomMosaic::new(24)).output(DType::U8, Layout::Nhwc).build().unwrap();
    for (index, bytes, fields) in delivered(&tiles, 2) {
        equal_by_hand(&jpegs, &tiles, index, &bytes, &fields);
    }
    let before = Pipeline::builder(source(&jpegs)).fields(NAMES).transform(RandomIouCrop::new());
    before.transform(RandomCopyPaste::new()).transform(CenterCrop::new(8)).build().unwrap();
    let paste = CopyPaste::new(Part::new(1)).into();
    assert!(apply(&jpegs[0], &[paste], &ApplyOptions::default()).unwrap_err().to_string().contains("copy_paste"));
}

#[test]
fn neither_threads_nor_caches_nor_ranks_matter() {
    let jpegs = jpegs(10);
    check_others(&|| builder(&jpegs));
    check_others(&|| pasting(&jpegs, RandomCopyPaste::new()));
    check_others(&|| pasting(&jpegs, YoloCopyPaste::new(1.0)));
}

fn check_others(builder: &dyn Fn() -> PipelineBuilder) {
    let expected = delivered(&builder().build().unwrap(), 0);
    let other = [
        builder().threads(0).batch_size(3),
        builder().strategy(Strategy::Sequential).batch_size(10),
        builder().cache(ImageCache::memory(1 << 20)),
        builder().shuffle(5),
    ];
    for builder in other {
        let pipeline = builder.build().unwrap();
        assert!(delivered(&pipeline, 0) == expected);
        // From the cache, where there is one.
        assert!(delivered(&pipeline, 0) == expected);
    }
    let rank = |rank| builder().partition(Partition::new(rank, 2).unwrap()).build().unwrap();
    let mut of_ranks = [delivered(&rank(0), 0), delivered(&rank(1), 0)].concat();
    of_ranks.sort_by_key(|(index, ..)| *index);
    assert!(of_ranks == expected);
    // An epoch goes on where it was left.
    let pipeline = builder().build().unwrap();
    let mut epoch = pipeline.epoch(0);
    epoch.next().unwrap().unwrap();
    let rest =
        pipeline.resume(&epoch.state()).unwrap().map(|batch| batch.unwrap().images().image_bytes(0).unwrap().to_vec());
    let firsts = expected.iter().skip(4).step_by(4).map(|(_, bytes, _)| bytes.clone());
    assert!(rest.eq(firsts));
}

#[test]
fn a_bad_partner_falls_under_the_policy() {
    let mut jpegs = jpegs(8);
    // The header is whole, and of the scan nothing is left.
    let scan = jpegs[3].windows(2).position(|marker| marker == [0xff, 0xda]).unwrap();
    jpegs[3].truncate(scan + 14);
    let needs = |pipeline: &Pipeline, index| {
        let recipe = pipeline.recipe(0, index).unwrap();
        recipe.iter().any(|op| matches!(op, Op::Mosaic(op) if op.parts.iter().any(|part| part.sample == 3)))
    };
    let builder = Pipeline::builder(source(&jpegs)).fields(NAMES).seed(1).transform(RandomMosaic::new(16)).threads(2);
    let pipeline = builder.clone().on_error(OnError::Skip).build().unwrap();
    let good: Vec<u64> = (0..8).filter(|index| *index != 3 && !needs(&pipeline, *index)).collect();
    assert!((1..7).contains(&good.len()), "{good:?}");
    let mut epoch = pipeline.epoch(0);
    let indices: Vec<u64> = epoch.by_ref().flat_map(|batch| batch.unwrap().indices().to_vec()).collect();
    assert_eq!(indices, good);
    let bad = epoch.bad();
    assert_eq!(bad.len(), 8 - good.len());
    assert!(bad.iter().filter(|bad| bad.index != 3).all(|bad| bad.error.contains("sample 3")), "{bad:?}");
    let substitute = builder.clone().on_error(OnError::Substitute).build().unwrap();
    assert_eq!(substitute.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>(), 8);
    let error = builder.build().unwrap().epoch(0).find_map(Result::err).unwrap();
    assert!(error.is_bad_sample(), "{error}");
}

#[test]
fn mosaics_are_closed_by_the_schedule() {
    let jpegs = jpegs(6);
    let tiles = ByEpoch::new(RandomMosaic::new(32)).then(2, Letterbox::new(32));
    let builder = Pipeline::builder(source(&jpegs)).fields(NAMES).transform(tiles).transform(YoloPerspective::new(32));
    let pipeline = builder.build().unwrap();
    for (epoch, open) in [(0, true), (1, true), (2, false), (9, false)] {
        let recipe = pipeline.recipe(epoch, 0).unwrap();
        assert_eq!(recipe.iter().any(|op| matches!(op, Op::Mosaic(_))), open, "{recipe:?}");
        assert_eq!(pipeline.epoch(epoch).map(|batch| batch.unwrap().len()).sum::<usize>(), 6);
    }
}

#[test]
fn what_no_data_set_stands_behind_is_refused() {
    let jpegs = jpegs(2);
    let blend: Op = MixUp::new(0.5, Part::new(1)).into();
    let error = apply(&jpegs[0], std::slice::from_ref(&blend), &ApplyOptions::default()).unwrap_err().to_string();
    assert!(error.contains("mix_up") && error.contains("pipeline"), "{error}");
    let error = Pipeline::builder(source(&jpegs)).transform(blend).transform(CenterCrop::new(8)).build().unwrap_err();
    assert!(error.is_parameter() && error.to_string().contains("mix_up"), "{error}");
    let many = (0..4).fold(Pipeline::builder(source(&jpegs)), |builder, _| builder.transform(RandomMosaic::new(8)));
    assert!(many.build().unwrap_err().to_string().contains("256"));
    let error = RandomMosaic::new(8).tiles(5);
    assert!(Pipeline::builder(source(&jpegs)).transform(error).build().unwrap_err().to_string().contains("4 or 9"));
    // A canvas alone needs no other sample.
    let canvas = [Mosaic::new(90).at([3, 5]).into()];
    assert_eq!(apply(&jpegs[0], &canvas, &as_made(&canvas)).unwrap().shape(), [1, 90, 90, 3]);
    let memory = |builder: PipelineBuilder| builder.build().unwrap().memory();
    let (one, four) = (
        memory(Pipeline::builder(source(&jpegs)).transform(CenterCrop::new(8))),
        memory(Pipeline::builder(source(&jpegs)).transform(RandomMosaic::new(8))),
    );
    assert!(four.images_bytes > one.images_bytes && four.encoded_bytes > one.encoded_bytes);
}
