//! Transforms without a pipeline make the bytes and fields of a pipeline with the same list and seed, and single
//! operations those of `apply`, whatever memory the pixels lie in.

use crate::common::{self, Random};
use std::sync::Arc;
use warpfeed::fields::{BoxFormat, Boxes, Fields, KeyPoints, Mask};
use warpfeed::image::planes::{Element, PixelKind};
use warpfeed::image::{Image, Size};
use warpfeed::ops::{
    Brightness, Crop, Custom, CustomTransform, Grayscale, Hue, MixUp, Mosaic, Normalize, Op, Part, RandomMosaic,
    SampleInfo, SampleRng, Transform, Vflip, repeat,
};
use warpfeed::prelude::*;
use warpfeed::transforms::{Key, Transforms, TransformsOptions, View, ViewMut};
use warpfeed::{ApplyOptions, Error, Pixels, Result, apply};

const SEED: u64 = 42;
const IMAGES: u64 = 40;

/// The pixels of an image of a size of its own.
fn pixels(index: u64) -> (Size, Vec<u8>) {
    let mut random = Random(index + 1);
    let image = common::image(random.within(30, 90), random.within(30, 90), index);
    (image.size(), image.to_rgb())
}

/// Three objects, with everything that presets ask for.
fn objects(size: Size, index: u64) -> Fields {
    let mut random = Random(index + 77);
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    let mut corner = |length: f64| [random.real(0.0, 0.5 * length) as f32, random.real(0.6 * length, length) as f32];
    let boxes: Vec<[f32; 4]> = (0..3)
        .map(|_| {
            let ([x0, x1], [y0, y1]) = (corner(width), corner(height));
            [x0, y0, x1, y1]
        })
        .collect();
    let points = boxes
        .iter()
        .flat_map(|&[x0, y0, x1, y1]| (0..17).map(move |i| [x0 + (x1 - x0) * i as f32 / 16.0, (y0 + y1) / 2.0]));
    let points = KeyPoints::of_objects(17, points.collect(), vec![2; 51]).unwrap();
    let plane =
        |object: u64| (0..size.area_px()).map(|at| u8::from((at + object).is_multiple_of(object + 2))).collect();
    let masks = Mask::of_objects(size, (0..3).map(plane)).unwrap();
    Fields::new()
        .with("boxes", Boxes::new(BoxFormat::Xyxy, boxes))
        .and_then(|fields| fields.with("labels", vec![1, 2, 3]))
        .and_then(|fields| fields.with("masks", masks))
        .and_then(|fields| fields.with("keypoints", points))
        .unwrap()
}

/// Compares each sample of some epochs of a preset's pipeline with transforms alone.
fn check_preset(preset: Preset, epochs: u64, output: (DType, Layout)) {
    let decoded = DecodedImages::new((0..IMAGES).map(|index| {
        let (size, rgb) = pixels(index);
        (size, rgb, 0)
    }));
    let names = preset.fields();
    let source = decoded
        .unwrap()
        .fields(["boxes", "labels", "masks", "keypoints"], |sample| Ok(objects(pixels(sample.index).0, sample.index)));
    let builder = Pipeline::builder(source);
    // Bytes are not normalized.
    let builder = match output.0 {
        DType::U8 => builder.transforms(preset.pixel_transforms()),
        _ => builder.preset(preset),
    };
    let builder = builder.shuffle(SEED).batch_size(8).output(output.0, output.1);
    let options = TransformsOptions::default().dtype(output.0).layout(output.1);
    let alone = Transforms::from_preset(preset, &options).unwrap();
    let mut compared = 0;
    let mut check = |epoch: u64, index: u64, size: Size, bytes: &[u8], fields: Option<&Fields>| {
        let (stored, rgb) = pixels(index);
        let all = objects(stored, index);
        let given =
            names.iter().fold(Fields::new(), |given, name| given.with(*name, all.get(name).unwrap().clone()).unwrap());
        let key = Key { seed: SEED, epoch, index };
        let view = View::hwc(&rgb, stored, 3).unwrap();
        let (tensor, moved) = alone.apply_with_fields(view, &given, key).unwrap();
        let [_, a, b, c] = tensor.shape();
        let shape =
            if output.1 == Layout::Nchw { Size::new(c as u32, b as u32) } else { Size::new(b as u32, a as u32) };
        assert_eq!(shape, size, "{preset} {key:?}");
        assert!(tensor.as_bytes().unwrap() == bytes, "{preset} {key:?}");
        assert_eq!(fields.unwrap_or(&Fields::new()), &moved, "{preset} {key:?}");
        if output == (DType::U8, Layout::Nhwc) && names.is_empty() {
            let image = Image::from_rgb(stored, &rgb).unwrap();
            assert!(alone.apply(&image, key).unwrap().to_rgb() == bytes, "{preset} {key:?}");
        }
        compared += 1;
    };
    for epoch in 0..epochs {
        if builder.is_ragged() {
            for batch in builder.clone().build_ragged().unwrap().epoch(epoch) {
                let batch = batch.unwrap();
                let fields = batch.fields(0).unwrap();
                for (i, tensor) in batch.tensors().flatten().enumerate() {
                    let bytes = tensor.as_bytes().unwrap();
                    check(epoch, batch.indices()[i], fields.sizes()[i], bytes, fields.image(i));
                }
            }
        } else {
            for batch in builder.clone().build().unwrap().epoch(epoch) {
                let batch = batch.unwrap();
                let [_, a, b, c] = batch.images().shape();
                let size = if output.1 == Layout::Nchw { [c, b] } else { [b, a] };
                for (i, index) in batch.indices().iter().enumerate() {
                    let bytes = batch.images().image_bytes(i).unwrap();
                    let fields = batch.fields(0).and_then(|fields| fields.image(i));
                    check(epoch, *index, Size::new(size[0] as u32, size[1] as u32), bytes, fields);
                }
            }
        }
    }
    assert_eq!(compared, epochs * IMAGES);
}

/// Compares five presets, for so many epochs of `IMAGES` keys each; the slow ones for fewer.
fn check_presets(epochs: u64, slow: u64) {
    check_preset(Preset::Train, epochs, (DType::F32, Layout::Nchw));
    check_preset(Preset::RandAugment, epochs, (DType::F16, Layout::Nhwc));
    check_preset(Preset::Ssd, epochs, (DType::F32, Layout::Nchw));
    check_preset(Preset::MaskRcnn, slow, (DType::Bf16, Layout::Nchw));
    check_preset(Preset::KeypointRcnn, slow, (DType::F32, Layout::Nchw));
}

#[test]
fn presets_give_the_bytes_and_fields_of_pipelines() {
    check_presets(10, 2);
}

#[test]
#[ignore = "takes minutes: 1,000 keys for each of five presets"]
fn presets_give_the_bytes_and_fields_of_pipelines_for_a_thousand_keys() {
    check_presets(1000 / IMAGES, 1000 / IMAGES);
}

#[test]
fn presets_give_the_bytes_of_pipelines_as_images() {
    check_preset(Preset::Train, 10, (DType::U8, Layout::Nhwc));
    check_preset(Preset::RandAugment, 10, (DType::U8, Layout::Nhwc));
}

/// A part of rows of a larger image, every second one, with its strides.
struct Spread {
    values: Vec<u8>,
    start: usize,
    strides: [i64; 3],
}

impl Spread {
    /// Values other than the image's are 99.
    fn new(size: Size, channels: usize, layout: Layout, value: impl Fn(usize, usize, usize) -> u8) -> Self {
        let (width, height) = (size.width as usize, size.height as usize);
        let (row, plane) = match layout {
            Layout::Nhwc => (2 * (width * channels + 5), 1),
            Layout::Nchw => (2 * (width + 3), 2 * (width + 3) * (height + 1)),
        };
        let column = if layout == Layout::Nhwc { channels } else { 1 };
        let strides = match layout {
            Layout::Nhwc => [row, column, plane],
            Layout::Nchw => [plane, row, column],
        };
        let (start, len) = (7, 7 + plane * channels + row * height + column * width);
        let mut spread = Self { values: vec![99; len], start, strides: strides.map(|stride| stride as i64) };
        for y in 0..height {
            for x in 0..width {
                for channel in 0..channels {
                    spread.values[start + y * row + x * column + channel * plane] = value(x, y, channel);
                }
            }
        }
        spread
    }
}

/// A PPM file.
fn ppm(size: Size, rgb: &[u8]) -> Vec<u8> {
    [format!("P6\n{} {}\n255\n", size.width, size.height).as_bytes(), rgb].concat()
}

fn planes(rgb: &[u8]) -> Vec<u8> {
    (0..3).flat_map(|channel| rgb.iter().skip(channel).step_by(3).copied()).collect()
}

#[test]
fn operations_are_those_of_apply_in_any_memory() {
    let mut compared = 0;
    for (width, height) in [(61, 43), (16, 16), (33, 70)] {
        let size = Size::new(width, height);
        let image = common::image(width, height, u64::from(width));
        let rgb = image.to_rgb();
        let file = ppm(size, &rgb);
        let value = |x: usize, y: usize, channel: usize| rgb[3 * (y * width as usize + x) + channel];
        let chw = planes(&rgb);
        let spread = Spread::new(size, 3, Layout::Nhwc, value);
        let crop = Spread::new(size, 3, Layout::Nchw, value);
        let rgba: Vec<u8> = rgb.chunks(3).flat_map(|p| [p[0], p[1], p[2], 3]).collect();
        let rgba_row = 4 * i64::from(width);
        let views = [
            View::hwc(&rgb, size, 3),
            View::chw(&chw, size, 3),
            View::hwc(&spread.values[spread.start..], size, 3).and_then(|view| view.strides(spread.strides)),
            View::chw(&crop.values[crop.start..], size, 3).and_then(|view| view.strides(crop.strides)),
            View::hwc(&rgba[..rgba.len() - 1], size, 3).and_then(|view| view.strides([rgba_row, 4, 1])),
            View::of_image(&image),
        ];
        for op in Op::examples(size) {
            let want = match apply(&file, std::slice::from_ref(&op), &common::as_made(std::slice::from_ref(&op))) {
                Ok(want) => want,
                Err(error) => {
                    let got = op.apply(&image).unwrap_err();
                    assert_eq!(got.to_string(), error.to_string(), "{op:?}");
                    continue;
                }
            };
            let out = op.output_size(size).unwrap();
            if want.dtype() == DType::F32 {
                let want = want.as_slice::<f32>().unwrap();
                for view in &views {
                    let mut made = vec![0.0_f32; want.len()];
                    op.apply_to(view.clone().unwrap(), ViewMut::chw(&mut made, out, 3).unwrap()).unwrap();
                    assert_eq!(made, want, "{op:?}");
                }
                assert!(op.apply(&image).unwrap_err().is_parameter(), "{op:?}");
                continue;
            }
            let want = want.as_slice::<u8>().unwrap();
            assert!(op.apply(&image).unwrap().to_rgb() == want, "{op:?}");
            for (i, view) in views.iter().enumerate() {
                let mut made = vec![0; want.len()];
                op.apply_to(view.clone().unwrap(), ViewMut::hwc(&mut made, out, 3).unwrap()).unwrap();
                assert!(made == want, "{op:?} of view {i}");
            }
            let view = *views[0].as_ref().unwrap();
            let mut made = vec![0; want.len()];
            op.apply_to(view, ViewMut::chw(&mut made, out, 3).unwrap()).unwrap();
            assert!(made == planes(want), "{op:?}");
            let want_at = |x: usize, y: usize, channel: usize| want[3 * (y * out.width as usize + x) + channel];
            for layout in [Layout::Nhwc, Layout::Nchw] {
                let wanted = Spread::new(out, 3, layout, want_at);
                let mut made = Spread::new(out, 3, layout, |_, _, _| 0);
                let memory = &mut made.values[made.start..];
                let to =
                    if layout == Layout::Nhwc { ViewMut::hwc(memory, out, 3) } else { ViewMut::chw(memory, out, 3) };
                op.apply_to(view, to.unwrap().strides(made.strides).unwrap()).unwrap();
                assert!(made.values == wanted.values, "{op:?}, {layout:?}, with gaps");
            }
            // Places in an order of their own: columns, channels, rows.
            let columns = [3, 3 * i64::from(out.height), 1];
            let mut made = vec![0; want.len()];
            op.apply_to(view, ViewMut::hwc(&mut made, out, 3).unwrap().strides(columns).unwrap()).unwrap();
            let turned: Vec<u8> = (0..out.width as usize)
                .flat_map(|x| (0..out.height as usize).flat_map(move |y| (0..3).map(move |channel| (x, y, channel))))
                .map(|(x, y, channel)| want_at(x, y, channel))
                .collect();
            assert!(made == turned, "{op:?}, column by column");

            let mut own = rgb.clone();
            let done = op.apply_in_place(ViewMut::hwc(&mut own, size, 3).unwrap());
            match done {
                Ok(()) => assert!(own == want && out == size, "{op:?} in place"),
                Err(error) => assert!(error.is_parameter() && out != size && own == rgb, "{op:?}: {error}"),
            }
            compared += 1;
        }
    }
    assert!(compared > 150, "{compared}");
}

#[test]
fn gray_is_rgb_of_equal_channels_and_ends_in_gray() {
    let (size, out) = (Size::new(40, 30), Size::new(20, 20));
    let gray: Vec<u8> = common::image(40, 30, 3).to_rgb().into_iter().step_by(3).collect();
    let rgb: Vec<u8> = gray.iter().flat_map(|value| [*value; 3]).collect();
    let crop = Op::from(Crop::new(-3, 2, out).fill([200, 10, 90]));
    let made = |view: View<'_>, channels| {
        let mut made = vec![0; out.area_px() as usize * channels];
        crop.apply_to(view, ViewMut::hwc(&mut made, out, channels).unwrap()).unwrap();
        made
    };
    let (one, three) = (View::chw(&gray, size, 1).unwrap(), View::hwc(&rgb, size, 3).unwrap());
    assert!(made(one, 3) == made(three, 3));
    let want = apply(&ppm(size, &rgb), &[crop.clone(), Grayscale.into()], &common::as_made(&[])).unwrap();
    let want: Vec<u8> = want.as_slice::<u8>().unwrap().iter().step_by(3).copied().collect();
    assert!(made(one, 1) == want && made(three, 1) == want);

    // As a pipeline with one channel.
    let jitter = || [random_crop(20, 0), color_jitter(0.4, 0.4, 0.4, 0.1), random_erasing(1.0)];
    let list = || jitter().into_iter().chain([Normalize::new([0.4; 3], [0.2; 3]).into()]);
    let source = DecodedImages::new((0..IMAGES).map(|_| (size, rgb.clone(), 0))).unwrap();
    let mut builder = Pipeline::builder(source).seed(SEED).channels(1);
    for transform in list() {
        builder = builder.transform(transform);
    }
    let alone = Transforms::with_options(list(), &TransformsOptions::default().channels(1)).unwrap();
    for batch in builder.build().unwrap().epoch(2) {
        let batch = batch.unwrap();
        let keys: Vec<Key> = batch.indices().iter().map(|index| Key::new(SEED, 2, *index)).collect();
        let got = alone.apply_batch(&vec![one; keys.len()], &keys, 3).unwrap();
        assert_eq!(got.shape(), batch.images().shape());
        assert!(got.as_bytes().unwrap() == batch.images().as_bytes().unwrap());
    }
}

/// A file as `numpy.save` writes it.
fn npy(shape: &[usize], values: &[u16]) -> Vec<u8> {
    let header = format!("{{'descr': '<u2', 'fortran_order': False, 'shape': {shape:?}, }}\n")
        .replace('[', "(")
        .replace(']', ")");
    let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &values].concat()
}

#[test]
fn images_of_other_kinds_have_their_own_values() {
    let (size, channels) = (Size::new(31, 24), 5);
    let values: Vec<u16> = (0..size.area_px() as usize * channels).map(|i| (i * 977) as u16).collect();
    let file = npy(&[24, 31, 5], &values);
    let kind = PixelKind { element: Element::U16, channels: 5 };
    let chw: Vec<u16> =
        (0..channels).flat_map(|channel| values.iter().skip(channel).step_by(channels).copied()).collect();
    let list = || -> [Transform; 4] {
        let jitter = color_jitter(0.5, 0.0, 0.0, 0.0);
        [random_resized_crop(Size::new(17, 15)), random_rotation(-20.0..=20.0), random_horizontal_flip(0.5), jitter]
    };
    for (dtype, layout) in [(DType::U16, Layout::Nhwc), (DType::F32, Layout::Nchw), (DType::U16, Layout::Nchw)] {
        let options = TransformsOptions::default()
            .dtype(dtype)
            .layout(layout)
            .pixels(Pixels::Kind(kind))
            .max_value(Some(60_000.0));
        let alone = Transforms::with_options(list(), &options).unwrap();
        for index in 0..10 {
            let key = Key::new(SEED, 0, index);
            let recipe = alone.draw(size, &Fields::new(), key).unwrap();
            let applied =
                ApplyOptions::default().dtype(dtype).layout(layout).pixels(Pixels::Own).max_value(Some(60_000.0));
            let want = apply(&file, &recipe, &applied).unwrap();
            for view in [View::hwc(&values, size, channels), View::chw(&chw, size, channels)] {
                let (got, _) = alone.apply_with_fields(view.unwrap(), &Fields::new(), key).unwrap();
                assert!(got.shape() == want.shape() && got.as_bytes().unwrap() == want.as_bytes().unwrap(), "{dtype}");
            }
        }
    }
    // One operation, in memory with gaps.
    let mut made = vec![0_u16; 2 * values.len()];
    let to = ViewMut::hwc(&mut made, size, channels).unwrap().strides([2 * 31 * 5, 10, 2]).unwrap();
    Op::from(Vflip).apply_to(View::chw(&chw, size, channels).unwrap(), to).unwrap();
    let rows = values.chunks(31 * channels).rev().flatten();
    assert!(made.iter().step_by(2).eq(rows));
    let refused = Op::from(Hue::new(0.1)).apply_in_place(ViewMut::hwc(&mut made, size, channels).unwrap());
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    let error = Transforms::new(list()).unwrap().apply_with_fields(
        View::hwc(&values, size, channels).unwrap(),
        &Fields::new(),
        Key::default(),
    );
    assert!(error.unwrap_err().to_string().contains("TransformsOptions::pixels"));
}

#[test]
fn batches_are_their_images_with_any_number_of_threads() {
    let list = || [random_resized_crop(24), random_rotation(-10.0..=10.0), random_horizontal_flip(0.5)];
    let transforms = Transforms::new(list()).unwrap();
    let images: Vec<(Size, Vec<u8>)> = (0..9).map(pixels).collect();
    let views: Vec<View<'_>> = images.iter().map(|(size, rgb)| View::hwc(rgb, *size, 3).unwrap()).collect();
    let keys: Vec<Key> = (0..9).map(|index| Key::new(SEED, 1, index)).collect();
    let want = transforms.apply_batch(&views, &keys, 0).unwrap();
    for (i, (view, key)) in views.iter().zip(&keys).enumerate() {
        let (alone, _) = transforms.apply_with_fields(*view, &Fields::new(), *key).unwrap();
        assert_eq!(alone.as_bytes().unwrap(), want.image_bytes(i).unwrap());
    }
    for threads in [1, 2, 5, 20] {
        let got = transforms.apply_batch(&views, &keys, threads).unwrap();
        assert!(got.as_bytes().unwrap() == want.as_bytes().unwrap(), "{threads}");
    }
    // Many at once, from threads of the caller's.
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let got = transforms.apply_batch(&views, &keys, 2).unwrap();
                assert!(got.as_bytes().unwrap() == want.as_bytes().unwrap());
            });
        }
    });
    assert!(transforms.apply_batch(&views, &keys[1..], 0).unwrap_err().is_parameter());
    let whole = Transforms::new([random_horizontal_flip(0.5)]).unwrap();
    let error = whole.apply_batch(&views, &keys, 2).unwrap_err().to_string();
    assert!(error.contains("size of the first") && error.contains("image 1"), "{error}");
    assert_eq!(whole.apply_batch(&[], &[], 2).unwrap().shape(), [0, 3, 0, 0]);
}

/// A transform whose operation panics.
struct Explodes;

impl CustomTransform for Explodes {
    fn name(&self) -> &'static str {
        "explodes"
    }

    fn draw(&self, _rng: &mut SampleRng, sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
        assert!(sample.index != 3, "drawn for 3");
        Ok(Vec::new())
    }
}

#[test]
fn what_cannot_be_done_is_an_error_that_says_so() {
    let (size, rgb) = pixels(1);
    let image = Image::from_rgb(size, &rgb).unwrap();
    let view = View::hwc(&rgb, size, 3).unwrap();
    let mut small = vec![0_u8; 12];
    let mut to = |op: &Op| op.apply_to(view, ViewMut::hwc(&mut small, Size::new(2, 2), 3).unwrap());
    let error = to(&Vflip.into()).unwrap_err();
    assert!(error.is_parameter() && error.to_string().contains(&size.to_string()), "{error}");
    assert!(to(&Op::from(Brightness::new(-1.0))).unwrap_err().is_parameter());
    assert!(Op::from(Vflip).apply(&Image::default()).unwrap_err().to_string().contains("1 x 1"));

    // Bytes cannot be normalized, and have one channel or three.
    let normalize = Op::from(Normalize::new([0.5; 3], [0.5; 3]));
    let mut bytes = vec![0_u8; 2 * rgb.len()];
    assert!(normalize.apply_to(view, ViewMut::hwc(&mut bytes, size, 3).unwrap()).unwrap_err().is_parameter());
    assert!(Op::from(Vflip).apply_to(view, ViewMut::hwc(&mut bytes, size, 2).unwrap()).unwrap_err().is_parameter());
    let mut words = vec![0_u16; rgb.len()];
    assert!(Op::from(Vflip).apply_to(view, ViewMut::hwc(&mut words, size, 3).unwrap()).unwrap_err().is_parameter());

    let mut mosaic = Mosaic::new(64);
    mosaic.parts.push(Part::new(1));
    for (joins, name) in [
        (mosaic.into(), "mosaic"),
        (RandomMosaic::new(32).into(), "random_mosaic"),
        (repeat(2, [Op::from(MixUp::new(0.5, Part::new(17))).into()]), "mix_up"),
    ] {
        let error = Transforms::new([joins]).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains(name), "{error}");
    }
    let error = Op::from(MixUp::new(0.5, Part::new(17))).apply(&image).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("mix_up"), "{error}");
    let twice = [Normalize::new([0.5; 3], [0.5; 3]), Normalize::new([0.5; 3], [0.5; 3])];
    assert!(Transforms::new(twice).unwrap_err().to_string().contains("once"));

    let exploding = Transforms::new([Transform::from(Explodes)]).unwrap();
    assert!(exploding.apply(&image, Key::new(1, 0, 2)).is_ok());
    for _ in 0..3 {
        let error = exploding.apply(&image, Key::new(1, 0, 3)).unwrap_err();
        assert!(matches!(&error, Error::Panic { message } if message.contains("drawn for 3")), "{error}");
    }
    let keys: Vec<Key> = (0..5).map(|index| Key::new(1, 0, index)).collect();
    let error = exploding.apply_batch(&[view; 5], &keys, 2).unwrap_err();
    assert!(error.to_string().contains("image 3 of the call"), "{error}");
    let custom = Custom::new("explodes", |_: &mut Image| panic!("an operation"));
    assert!(matches!(Op::from(custom).apply(&image), Err(Error::Panic { .. })));
    // The fields of a transform that does not say that they can follow.
    let fields = objects(size, 1);
    let error = exploding.apply_with_fields(view, &fields, Key::default()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(Arc::strong_count(&Arc::new(exploding)) == 1);
}
