//! Images of other element types and numbers of channels: batches have the values that their files have.

use warpfeed::fields::{Field, Fields, Mask, MaskValues};
use warpfeed::image::planes::{Element, PixelKind};
use warpfeed::image::{Rect, Size};
use warpfeed::ops::{
    AugMix, AutoAugment, AutoAugmentPolicy, CenterCrop, ChannelList, ChannelNumbers, ColorJitter, Contrast, Crop,
    Equalize, Erase, Fill, Grayscale, Hflip, Hue, Invert, Jpeg, Normalize, Op, PermuteChannels, Posterize,
    RandomErasing, RandomGaussianNoise, RandomPerspective, RandomRotation, Resize, ResizedCrop, Rotate, Saturation,
    SelectChannels, Sharpness, ToFloat, Transform,
};
use warpfeed::prelude::*;
use warpfeed::source::{EncodedImages, ImageFolder, Source};
use warpfeed::{
    ApplyOptions, DType, Device, Error, Layout, Mix, Pixels, Preprocessor, PreprocessorOptions, apply, five_crop,
};

/// A file as `numpy.save` writes it.
fn npy(descr: &str, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let shape: String = shape.iter().map(|side| format!("{side}, ")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// The value of a channel at a place, all over the range of 16 bits.
fn word(i: usize, x: usize, y: usize, channel: usize) -> u16 {
    (i * 977 + x * 2_311 + y * 5_407 + channel * 9_973) as u16
}

/// Image `i` of 16 bits.
fn words(i: usize, (width, height): (usize, usize), channels: usize) -> Vec<u8> {
    let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let values = places.flat_map(|(x, y)| (0..channels).map(move |channel| word(i, x, y, channel)));
    npy("<u2", &[height, width, channels], &values.flat_map(u16::to_le_bytes).collect::<Vec<u8>>())
}

fn floats((width, height): (usize, usize), channels: usize) -> Vec<u8> {
    let values = (0..width * height * channels).map(|i| (i as f32 * 0.37).sin() * 40.0 - 3.0);
    npy("<f4", &[height, width, channels], &values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
}

/// Nine images of 16 bits with some channels.
fn builder(channels: usize) -> PipelineBuilder {
    let images = (0..9).map(|i| (words(i, (31 + i, 40 - i), channels), i as u32 % 3));
    let kind = PixelKind { element: Element::U16, channels: channels as u16 };
    Pipeline::builder(EncodedImages::new(images)).batch_size(4).pixels(Pixels::Kind(kind))
}

fn drawn(builder: PipelineBuilder) -> PipelineBuilder {
    let noise = RandomGaussianNoise::new(0.02);
    let perspective = RandomPerspective::new(0.3, 0.5).fill(700.0);
    builder
        .transform(RandomRotation::new(-30.0..=30.0).interpolation(Interpolation::Bicubic).fill(1_000.0))
        .transform(perspective)
        .transform(random_resized_crop(Size::new(17, 15)))
        .transform(random_horizontal_flip(0.5))
        .transform(maybe(0.5, [noise.into(), random_gaussian_blur(5, 0.5..=2.0)]))
        .transform(ColorJitter::new().brightness(0.8..=1.2))
}

fn on(device: Device) {
    for (channels, dtype, layout) in [
        (1, DType::U16, Layout::Nchw),
        (5, DType::U16, Layout::Nhwc),
        (13, DType::F32, Layout::Nchw),
        (13, DType::F16, Layout::Nhwc),
        (2, DType::Bf16, Layout::Nchw),
    ] {
        let pipeline = drawn(builder(channels)).device(device).output(dtype, layout).build().unwrap();
        let mut seen = 0;
        for batch in pipeline.epoch(3) {
            let batch = batch.unwrap();
            let images = batch.images().to_host().unwrap();
            assert_eq!(images.shape()[if layout == Layout::Nchw { 1 } else { 3 }], channels);
            for (at, &index) in batch.indices().iter().enumerate() {
                let recipe = pipeline.recipe(3, index).unwrap();
                let options = ApplyOptions::default().dtype(dtype).layout(layout).pixels(Pixels::Own);
                let size = (31 + index as usize, 40 - index as usize);
                let want = apply(&words(index as usize, size, channels), &recipe, &options).unwrap();
                assert!(images.image_bytes(at).unwrap() == want.as_bytes().unwrap(), "{channels} {dtype} {index}");
                seen += 1;
            }
        }
        assert_eq!(seen, 9);
    }
}

#[test]
fn batches_are_what_recipes_make_of_the_files() {
    on(Device::Cpu);
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration pixels:: -- --ignored"]
fn batches_are_what_recipes_make_of_the_files_on_a_device() {
    on(Device::Cuda(0));
}

#[test]
fn values_are_normalized_by_their_largest() {
    let mean: Vec<f32> = (0..5).map(|channel| 0.1 * channel as f32).collect();
    let (mean, std) = (ChannelNumbers::new(&mean).unwrap(), ChannelNumbers::from(0.25));
    for max in [None, Some(10_000.0)] {
        let builder = builder(5).transform(CenterCrop::new(8)).transform(Hflip);
        let builder = max.into_iter().fold(builder, PipelineBuilder::max_value).normalize(mean, std);
        for batch in builder.device(Device::Cpu).build().unwrap().epoch(0) {
            let batch = batch.unwrap();
            for (at, &index) in batch.indices().iter().enumerate() {
                let i = index as usize;
                let (left, top) = ((31 + i - 8) as f64 / 2.0, (40 - i - 8) as f64 / 2.0);
                let (left, top) = (left.round_ties_even() as usize, top.round_ties_even() as usize);
                let values = batch.images().as_slice::<f32>().unwrap();
                for (channel, y, x) in [(0, 0, 0), (4, 7, 3), (2, 5, 7)] {
                    let value = f32::from(word(i, left + 7 - x, top + y, channel)) / max.unwrap_or(65_535.0);
                    let want = (value - 0.1 * channel as f32) / 0.25;
                    assert_eq!(values[((at * 5 + channel) * 8 + y) * 8 + x], want);
                }
            }
        }
    }
}

#[test]
fn what_has_no_meaning_is_refused_by_name() {
    let five = ChannelNumbers::new(&[1.0, 2.0, 1.0, 1.0, 1.0]).unwrap();
    let refused = |builder: PipelineBuilder, transform: Transform, words: &[&str]| {
        let error = builder.transform(transform).transform(CenterCrop::new(8)).build().unwrap_err().to_string();
        words.iter().for_each(|word| assert!(error.contains(word), "{word} is not in: {error}"));
    };
    let all: [Transform; 11] = [
        Hue::new(0.1).into(),
        Saturation::new(0.5).into(),
        Contrast::new(0.5).into(),
        Grayscale.into(),
        Equalize.into(),
        Sharpness::new(2.0).into(),
        Jpeg::new(80).into(),
        AutoAugment::new(AutoAugmentPolicy::ImageNet).into(),
        AugMix::new().into(),
        maybe(0.5, [one_of([color_jitter(0.1, 0.1, 0.1, 0.1)])]),
        Resize::new(Size::new(4, 4)).reducing_gap(2.0).into(),
    ];
    for transform in all {
        refused(builder(13), transform, &["13 channels of u16"]);
    }
    refused(builder(13), Hue::new(0.1).into(), &["hue", "red, green and blue", "8 bits", "leave it out"]);
    refused(builder(2), Crop::new(0, 0, 4).fill(five).into(), &["crop", "fill", "2 for the image's channels"]);
    refused(builder(2), Crop::new(0, 0, 4).fill(65_536.0).into(), &["0 to 65535"]);
    refused(builder(2), Normalize::new(five, five).into(), &["normalize", "mean"]);
    refused(builder(2), Normalize::new(123.0, 1.0).into(), &["-3 to 3"]);
    refused(builder(2), PermuteChannels::new([2, 1, 0]).into(), &["all 2 channels"]);
    refused(builder(2), SelectChannels::new([0, 1, 2]).into(), &["0 to 1", "2"]);
    refused(builder(2), maybe(0.5, [SelectChannels::new([0, 1, 1]).into()]), &["by itself"]);
    let rgb = || Pipeline::builder(EncodedImages::new([(words(0, (9, 9), 3), 0)]));
    refused(rgb(), Rotate::new(5.0).fill(five).into(), &["rotate", "3 for the image's channels"]);
    refused(rgb(), Rotate::new(5.0).fill(300.0).into(), &["0 to 255"]);
    refused(rgb(), Posterize::new(9).into(), &["posterize", "0 to 8"]);
    refused(rgb(), SelectChannels::new(ChannelList::new(&[1]).unwrap()).into(), &["three"]);
    let crop = |channels| builder(channels).transform(CenterCrop::new(8));
    for (wrong, words) in [
        (crop(2).output(DType::U8, Layout::Nchw), "dtype must be u16"),
        (crop(2).normalize(0.5, 0.5).output(DType::U16, Layout::Nchw), "after normalize"),
        (crop(2).strategy(warpfeed::Strategy::Composed), "strategy"),
        (crop(2).max_value(0.5), "a whole number up to 65535"),
        (crop(2).channels(1), "select_channels"),
        (crop(2).draft(Size::new(8, 8)), "draft"),
    ] {
        let error = wrong.build().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn an_image_of_another_kind_is_a_bad_sample() {
    let images = [words(0, (9, 9), 2), words(1, (9, 9), 3), floats((9, 9), 2), words(3, (9, 9), 2)];
    let builder = Pipeline::builder(EncodedImages::new(images.into_iter().map(|image| (image, 0))))
        .device(Device::Cpu)
        .pixels(Pixels::Own)
        .transform(CenterCrop::new(8));
    let first = builder.clone().build().unwrap().epoch(0).find_map(Result::err).unwrap().to_string();
    assert!(first.contains("3 channels of u16") && first.contains("2 channels of u16"), "{first}");
    let pipeline = builder.on_error(OnError::Skip).build().unwrap();
    let batch = pipeline.epoch(0).next().unwrap().unwrap();
    assert_eq!((batch.indices(), batch.images().shape()), (&[0, 3][..], [2, 2, 8, 8]));
}

#[test]
fn masks_follow_the_pixels() {
    let values: Vec<u16> = (0..30 * 20).map(|at| at * 7 % 251).collect();
    let mask = Mask::new(Size::new(30, 20), values.iter().map(|value| *value as u8).collect::<Vec<u8>>()).unwrap();
    let image = npy("<u2", &[20, 30, 1], &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
    let ops = [
        Op::from(Rotate::new(17.0)),
        Hflip.into(),
        Crop::new(-3, 2, 18).into(),
        Resize::new(Size::new(11, 7)).interpolation(Interpolation::Nearest).into(),
    ];
    let options =
        ApplyOptions::default().pixels(Pixels::Own).dtype(DType::U16).layout(Layout::Nhwc).device(Device::Cpu);
    let fields = Fields::new().with("mask", mask).unwrap();
    let (pixels, fields) = warpfeed::apply_with_fields(&image, &fields, &ops, &options).unwrap();
    let Some(Field::Mask(mask)) = fields.get("mask") else { panic!("no mask") };
    let MaskValues::U8(moved) = &*mask.planes()[0] else { panic!("no bytes") };
    let moved: Vec<u16> = moved.iter().map(|value| (*value).into()).collect();
    assert_eq!(pixels.as_slice::<u16>().unwrap(), moved);
}

#[test]
fn batches_of_any_form() {
    let cpu = |channels| builder(channels).device(Device::Cpu);
    // Several views of one decode.
    let views = cpu(2).views([five_crop(8)]).build().unwrap();
    assert_eq!(views.epoch(0).next().unwrap().unwrap().images().shape(), [20, 2, 8, 8]);
    // Some channels, and one of them twice.
    let list = ChannelList::new(&[4, 0, 4, 1]).unwrap();
    let some = cpu(5).transform(SelectChannels::new(list)).transform(CenterCrop::new(8)).transform(ToFloat);
    let batch = some.build().unwrap().epoch(0).next().unwrap().unwrap();
    assert_eq!(batch.images().shape(), [4, 4, 8, 8]);
    let values = batch.images().as_slice::<f32>().unwrap();
    assert_eq!(values[..64], values[128..192]);
    // Sizes of their own, padded with zeros or not at all.
    let padded = cpu(3).output(DType::U16, Layout::Nchw).build_padded(16).unwrap();
    let batch = padded.epoch(0).next().unwrap().unwrap();
    assert_eq!(batch.images().tensor().shape(), [4, 3, 48, 48]);
    let plane = &batch.images().tensor().as_slice::<u16>().unwrap()[..48 * 48];
    assert_eq!((plane[0], plane[30], plane[31]), (word(0, 0, 0, 0), word(0, 30, 0, 0), 0));
    let ragged = cpu(3).output(DType::U16, Layout::Nchw).build_ragged().unwrap();
    assert_eq!(ragged.epoch(0).next().unwrap().unwrap().images()[1].shape(), [1, 3, 39, 32]);
    // Erased and mixed after normalization.
    let erased = cpu(13)
        .transform(CenterCrop::new(8))
        .normalize(0.5, 0.25)
        .transform(RandomErasing::new(1.0).value(9.0))
        .transform(Erase::new(Rect { x: 1, y: 1, width: 2, height: 1 }).noise(2.0, 5));
    let batch = erased.clone().build().unwrap().epoch(0).next().unwrap().unwrap();
    assert!(batch.images().as_slice::<f32>().unwrap().contains(&9.0));
    let mixed = erased.mix(Mix::torchvision(0.2, 1.0).hard_labels(true)).build().unwrap();
    assert!(mixed.epoch(0).all(|batch| batch.is_ok()));
    // For people: three channels of bytes.
    let shown = &batch.to_rgb().unwrap()[0][0];
    assert_eq!(shown.size(), Size::new(8, 8));
}

/// Each view reads its own part of what is decoded for all.
#[test]
fn views_have_the_values_of_each_alone() {
    let crop = |x| ResizedCrop::new(Rect { x, y: 9, width: 8, height: 7 }, Size::new(5, 6));
    let views = [
        vec![Op::from(crop(20))],
        vec![Hflip.into(), CenterCrop::new(8).into()],
        vec![Rotate::new(90.0).into(), SelectChannels::new([1, 0, 1]).into(), Crop::new(3, 5, 11).into()],
        vec![Invert.into(), crop(2).into()],
    ];
    let all = views.iter().map(|ops| warpfeed::view(ops.iter().cloned().map(Transform::from)));
    let pipeline = builder(3).device(Device::Cpu).output(DType::U16, Layout::Nchw).views(all).build().unwrap();
    let batch = pipeline.epoch(0).next().unwrap().unwrap();
    let options = ApplyOptions::default().dtype(DType::U16).pixels(Pixels::Own).device(Device::Cpu);
    for (at, &index) in batch.indices().iter().enumerate() {
        let file = words(index as usize, (31 + index as usize, 40 - index as usize), 3);
        for (view, ops) in views.iter().enumerate() {
            let want = apply(&file, ops, &options).unwrap();
            let got = batch.view(view).unwrap().image_bytes(at).unwrap();
            assert!(got == want.as_bytes().unwrap(), "view {view} of image {index}");
        }
    }
}

#[test]
fn floats_keep_their_units() {
    let images = [(floats((12, 10), 3), 0)];
    let builder = || Pipeline::builder(EncodedImages::new(images.clone())).device(Device::Cpu).pixels(Pixels::Own);
    let first = |builder: PipelineBuilder| builder.build().unwrap().epoch(0).next().unwrap().unwrap();
    let plain = first(builder().transform(CenterCrop::new(Size::new(12, 10))));
    let values = plain.images().as_slice::<f32>().unwrap();
    assert_eq!((values[0], values[1]), (-3.0, (3.0 * 0.37_f32).sin() * 40.0 - 3.0));
    let normalized = first(builder().transform(CenterCrop::new(Size::new(12, 10))).normalize(-3.0, 40.0));
    let want: Vec<f32> = values.iter().map(|value| (value + 3.0) / 40.0).collect();
    assert_eq!(normalized.images().as_slice::<f32>().unwrap(), want);
    let inverted = first(builder().transform(CenterCrop::new(Size::new(12, 10))).transform(Invert));
    assert_eq!(inverted.images().as_slice::<f32>().unwrap()[0], 4.0);
    let error = builder().transform(CenterCrop::new(8)).transform(Posterize::new(3)).build().unwrap_err();
    assert!(matches!(&error, Error::Unsupported { .. }) && error.to_string().contains("posterize"), "{error}");
}

#[test]
fn a_folder_of_arrays_is_a_data_set() {
    let root = tempfile::tempdir().unwrap();
    for (class, i) in [("a", 0), ("b", 1)] {
        std::fs::create_dir(root.path().join(class)).unwrap();
        std::fs::write(root.path().join(class).join("0.npy"), words(i, (9, 8), 4)).unwrap();
    }
    let source = ImageFolder::open(root.path()).unwrap();
    assert_eq!((source.len(), source.label(1)), (2, Some(1)));
    let pipeline = Pipeline::builder(source).pixels(Pixels::Own).transform(CenterCrop::new(8)).build().unwrap();
    assert_eq!(pipeline.epoch(0).next().unwrap().unwrap().images().shape(), [2, 4, 8, 8]);
    // Beside images, arrays are something else.
    let jpeg = warpfeed::image::encode_jpeg(&warpfeed::image::Image::new(Size::new(9, 9)), &Default::default());
    std::fs::write(root.path().join("b/1.jpg"), jpeg.unwrap()).unwrap();
    assert_eq!(ImageFolder::open(root.path()).unwrap().len(), 1);
}

#[test]
fn a_preprocessor_wants_to_know_the_kind() {
    let ops = || [Op::from(CenterCrop::new(8)), Normalize::new(0.5, 0.5).into()];
    let options = PreprocessorOptions::default().device(Device::Cpu);
    let error = Preprocessor::new(ops(), &options.pixels(Pixels::Own)).unwrap_err().to_string();
    assert!(error.contains("u16x1"), "{error}");
    let kind = "u16x2".parse().unwrap();
    let made = Preprocessor::new(ops(), &options.pixels(kind)).unwrap().run(&[&words(0, (9, 9), 2)]).unwrap();
    assert_eq!(made.shape(), [1, 2, 8, 8]);
    let want = (f32::from(word(0, 0, 0, 1)) / 65_535.0 - 0.5) / 0.5;
    assert_eq!(made.as_slice::<f32>().unwrap()[64], want);
}

#[test]
fn a_fill_for_rgb_may_be_one_number() {
    let rgb = warpfeed::image::Image::from_rgb(Size::new(4, 4), &[50; 48]).unwrap();
    let png = warpfeed::image::encode_jpeg(&rgb, &Default::default()).unwrap();
    let options = ApplyOptions::default().dtype(DType::U8).layout(Layout::Nhwc).device(Device::Cpu);
    let of = |fill: Fill| apply(&png, &[Crop::new(-2, 0, 4).fill(fill).into()], &options).unwrap();
    assert_eq!(of(7.0.into()).as_bytes().unwrap(), of([7; 3].into()).as_bytes().unwrap());
}

#[test]
fn files_of_bands_are_one_image() {
    let root = tempfile::tempdir().unwrap();
    for (class, i) in [("forest", 0), ("river", 1)] {
        let folder = root.path().join(class);
        std::fs::create_dir(&folder).unwrap();
        // B11 has half the resolution.
        for (name, size, channel) in [("B02", (12, 8), 0), ("B03", (12, 8), 1), ("B11", (6, 4), 2)] {
            let (width, height) = size;
            let values = (0..height).flat_map(|y| (0..width).map(move |x| word(i, x, y, channel)));
            let file = npy("<u2", &[height, width], &values.flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
            std::fs::write(folder.join(format!("patch_{name}.npy")), file).unwrap();
        }
    }
    let open = |bands: &[&str]| {
        let bands = bands.iter().map(|&band| band.to_owned()).collect();
        warpfeed::source::OpenOptions::default().bands(bands).open(root.path())
    };
    let source = open(&["B03", "b11", "B02"]).unwrap().into_data_set().unwrap();
    assert_eq!((source.len(), source.label(1)), (2, Some(1)));
    assert!(source.name(0).ends_with("patch"), "{}", source.name(0));
    let pipeline = Pipeline::builder(source).device(Device::Cpu).pixels(Pixels::Own).transform(CenterCrop::new(4));
    let pipeline = pipeline.output(DType::U16, Layout::Nchw).build().unwrap();
    let batch = pipeline.epoch(0).next().unwrap().unwrap();
    let values = batch.images().as_slice::<u16>().unwrap();
    let at = |i: usize, channel: usize, x: usize, y: usize| values[((i * 3 + channel) * 4 + y) * 4 + x];
    // The crop begins at (4, 2).
    for i in 0..2 {
        assert_eq!((at(i, 0, 1, 3), at(i, 2, 0, 0)), (word(i, 5, 5, 1), word(i, 4, 2, 0)));
        assert_eq!((at(i, 1, 0, 0), at(i, 1, 3, 3)), (word(i, 2, 1, 2), word(i, 3, 2, 2)));
    }
    let error = |bands: &[&str]| open(bands).err().unwrap().to_string();
    assert!(error(&["B02", "B12"]).contains("patch without B12"), "{}", error(&["B02", "B12"]));
    assert!(error(&["B05"]).contains("_ or -"));
}

#[test]
fn a_part_has_the_values_of_the_whole() {
    let options = ApplyOptions::default().device(Device::Cpu).pixels(Pixels::Own);
    let mut tried = 0;
    for (size, channels) in [((37, 29), 1), ((64, 50), 5)] {
        for (file, options) in [
            (words(3, size, channels), options.dtype(DType::U16).layout(Layout::Nhwc)),
            (floats(size, channels), options.dtype(DType::F32).layout(Layout::Nhwc)),
        ] {
            let make = |ops: &[Op]| apply(&file, ops, &options);
            for op in Op::examples(Size::new(size.0 as u32, size.1 as u32)) {
                if matches!(op, Op::Normalize(_) | Op::ToFloat(_)) {
                    continue;
                }
                let Ok(whole) = make(std::slice::from_ref(&op)) else { continue };
                let [_, height, width, channels] = whole.shape();
                let (x, y) = (width / 3, height / 4);
                let part = Size::new((width - x) as u32 / 2 + 1, (height - y) as u32 / 3 + 1);
                let made = make(&[op.clone(), Crop::new(x as i32, y as i32, part).into()]).unwrap();
                let bytes = options.dtype.size_bytes() * channels;
                let row =
                    |y: usize| &whole.as_bytes().unwrap()[(y * width + x) * bytes..][..part.width as usize * bytes];
                let want: Vec<u8> = (y..y + part.height as usize).flat_map(|y| row(y).to_vec()).collect();
                assert!(made.as_bytes().unwrap() == want, "{op:?}, {} of {width} x {height}", options.dtype);
                tried += 1;
            }
        }
    }
    assert!(tried > 150, "{tried}");
}

#[test]
fn a_crop_of_a_zarr_array_reads_only_its_chunks() {
    let root = tempfile::tempdir().unwrap();
    let (images, labels) = (root.path().join("images.zarr"), root.path().join("labels.zarr"));
    let (width, height, channels) = (24, 16, 13);
    for (folder, shape, chunks, dtype) in
        [(&images, "[2, 16, 24, 13]", "[1, 8, 8, 10]", "<u2"), (&labels, "[2]", "[2]", "<i8")]
    {
        std::fs::create_dir(folder).unwrap();
        let metadata = format!(
            r#"{{"zarr_format": 2, "shape": {shape}, "chunks": {chunks}, "dtype": "{dtype}", "compressor": null,
            "fill_value": 0, "order": "C", "filters": null}}"#
        );
        std::fs::write(folder.join(".zarray"), metadata).unwrap();
    }
    std::fs::write(labels.join("0"), [5_i64, 3].map(i64::to_le_bytes).concat()).unwrap();
    for (i, row, column, part) in
        (0..2).flat_map(|i| (0..2).flat_map(move |y| (0..3).flat_map(move |x| (0..2).map(move |c| (i, y, x, c)))))
    {
        let places = (0..8).flat_map(|y| (0..8).map(move |x| (row * 8 + y, column * 8 + x)));
        let values = places.flat_map(|(y, x)| (part * 10..part * 10 + 10).map(move |c| word(i, x, y, c)));
        let bytes: Vec<u8> = values.flat_map(u16::to_le_bytes).collect();
        std::fs::write(images.join(format!("{i}.{row}.{column}.{part}")), bytes).unwrap();
    }
    let options = warpfeed::source::OpenOptions::default();
    let options = options.axes(Some("nhwc".to_owned())).labels(Some(labels));
    let open = || options.open(&images).unwrap().into_data_set().unwrap();
    let build = |crop: Size| {
        let builder = Pipeline::builder(open()).device(Device::Cpu).pixels(Pixels::Own);
        builder.transform(CenterCrop::new(crop)).output(DType::U16, Layout::Nchw).build().unwrap()
    };
    // The columns 8 to 15 are in the chunks of the middle.
    for i in 0..2 {
        for row in 0..2 {
            std::fs::write(images.join(format!("{i}.{row}.0.0")), "damaged").unwrap();
            std::fs::write(images.join(format!("{i}.{row}.2.1")), "damaged").unwrap();
        }
    }
    let crop = Size::new(6, 10);
    let batch = build(crop).epoch(0).next().unwrap().unwrap();
    assert_eq!((batch.images().shape(), batch.labels().unwrap()), ([2, channels, 10, 6], &[5, 3][..]));
    let values = batch.images().as_slice::<u16>().unwrap();
    let (left, top) = ((width - 6) / 2, (height - 10) / 2);
    for i in 0..2 {
        for (channel, y, x) in (0..channels).flat_map(|c| (0..10).flat_map(move |y| (0..6).map(move |x| (c, y, x)))) {
            let got = values[((i * channels + channel) * 10 + y) * 6 + x];
            assert_eq!(got, word(i, left + x, top + y, channel), "{i} {channel} {y} {x}");
        }
    }
    // A wider one needs them.
    let error = build(Size::new(10, 10)).epoch(0).next().unwrap().unwrap_err();
    assert!(error.is_bad_sample() && error.to_string().contains(".0.0: the chunk has 7 bytes"), "{error}");
}
