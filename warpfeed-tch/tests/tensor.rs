//! libtorch gets the pipeline's batches in its memory, which comes back.

use std::collections::BTreeSet;
use warpfeed::fields::{BoxFormat, Boxes, Fields, KeyPoints, Mask};
use warpfeed::image::{Image, JpegOptions, encode_jpeg};
use warpfeed::prelude::*;
use warpfeed::{FieldTensor, Mix, TargetSpec, Targets};
use warpfeed_tch::IntoTch;

/// Images, each of a gray of its own, of four classes.
fn images(count: u32) -> EncodedImages {
    let jpeg = |i: u32| {
        let mut image = Image::new(Size::new(40, 30));
        image.pixels_mut().fill([(i * 7 % 256) as u8; 4]);
        encode_jpeg(&image, &JpegOptions::default()).unwrap()
    };
    EncodedImages::new((0..count).map(|i| (jpeg(i), i % 4)))
}

fn builder(count: u32) -> PipelineBuilder {
    let builder = Pipeline::builder(images(count)).device(Device::Cpu);
    builder.batch_size(4).shuffle(3).threads(2).transform(random_resized_crop(16))
}

/// The bytes of a contiguous tensor in host memory.
#[allow(unsafe_code)]
fn bytes(tensor: &tch::Tensor) -> &[u8] {
    assert!(tensor.is_contiguous());
    let len_bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
    // SAFETY: contiguous, and borrowed; it is not written to.
    unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast(), len_bytes) }
}

#[test]
fn tensors_have_the_batchs_elements_where_they_lie() {
    let kinds = [
        (DType::F32, tch::Kind::Float),
        (DType::F16, tch::Kind::Half),
        (DType::Bf16, tch::Kind::BFloat16),
        (DType::U8, tch::Kind::Uint8),
    ];
    for (dtype, kind) in kinds {
        for (layout, size) in [(Layout::Nchw, [4, 3, 16, 16]), (Layout::Nhwc, [4, 16, 16, 3])] {
            let batch = builder(4).output(dtype, layout).build().unwrap().epoch(0).next().unwrap().unwrap();
            let (want, labels) = (batch.images().as_bytes().unwrap().to_vec(), batch.labels().unwrap().to_vec());
            let place = batch.images().as_bytes().unwrap().as_ptr();
            // The batch and its pipeline are gone by now.
            let (images, got) = batch.into_tch().unwrap();
            assert_eq!((images.size(), images.kind()), (size.to_vec(), kind));
            assert_eq!(
                (images.data_ptr().cast_const().cast(), bytes(&images)),
                (place, &want[..]),
                "{dtype} {layout:?}"
            );
            assert_eq!(Vec::<i64>::try_from(got).unwrap(), labels.into_iter().map(i64::from).collect::<Vec<_>>());
        }
    }
}

#[test]
fn memory_is_the_tensors_until_the_last_view_is_gone() {
    let pipeline = builder(64).build().unwrap();
    let (mut places, mut held): (BTreeSet<usize>, Option<tch::Tensor>) = (BTreeSet::new(), None);
    for batch in pipeline.epoch(0) {
        let (images, _labels) = batch.unwrap().into_tch().unwrap();
        let place = images.data_ptr() as usize;
        assert!(held.as_ref().is_none_or(|held| held.data_ptr() as usize != place), "it is still in use");
        places.insert(place);
        held = Some(images.narrow(0, 0, 1));
        std::thread::spawn(move || drop(images)).join().unwrap();
    }
    assert!(places.len() < 10, "16 batches in {} places", places.len());
}

#[test]
fn padding_is_left_out() {
    let pipeline = builder(6).last_batch(LastBatch::Pad).build().unwrap();
    let batch = pipeline.epoch(0).nth(1).unwrap().unwrap();
    assert_eq!((batch.len(), batch.padding()), (4, 2));
    let want = batch.images().as_bytes().unwrap()[..2 * 3 * 16 * 16 * 4].to_vec();
    let (images, labels) = batch.into_tch().unwrap();
    assert_eq!((images.size(), labels.size()), (vec![2, 3, 16, 16], vec![2]));
    assert_eq!(bytes(&images), want);
}

#[test]
fn targets_come_along() {
    let first = |spec| {
        let mut batch =
            builder(4).targets(spec).mix(Mix::timm(0.8, 0.0)).build().unwrap().epoch(0).next().unwrap().unwrap();
        let Some(Targets::Numbers(numbers)) = batch.take_targets() else { panic!("they were asked for") };
        numbers
    };
    let want = first(TargetSpec::soft(4)).as_slice::<f32>().unwrap().to_vec();
    let got = first(TargetSpec::soft(4)).into_tch().unwrap();
    assert_eq!(got.size(), [4, 4]);
    assert_eq!(Vec::<f32>::try_from(got.flatten(0, -1)).unwrap(), want);
}

#[test]
fn fields_come_along() {
    const NAMES: [&str; 5] = ["boxes", "labels", "keypoints", "masks", "mask"];
    let made = |objects: usize| {
        let pixels = Size::new(40, 30).area_px() as usize;
        let boxes = (0..objects).map(|i| [i as f32, 2.5, 20.0, 25.0]).collect();
        let points = (0..2 * objects).map(|i| [i as f32, 7.0]).collect();
        let planes = (0..objects).map(|i| (0..pixels).map(|at| u8::from(at % (i + 2) == 0)).collect());
        Fields::new()
            .with("boxes", Boxes::new(BoxFormat::Xyxy, boxes))?
            .with("labels", (0..objects).map(|i| 7 + i as i64).collect::<Vec<_>>())?
            .with("keypoints", KeyPoints::of_objects(2, points, vec![2; 2 * objects])?)?
            .with("masks", Mask::of_objects(Size::new(40, 30), planes)?)?
            .with("mask", Mask::new(Size::new(40, 30), (0..pixels).map(|at| 60_000 + at as u16).collect::<Vec<_>>())?)
    };
    // With objects, and without any.
    for objects in [2, 0] {
        let source = images(4).fields(NAMES, move |_| made(objects));
        let pipeline = Pipeline::builder(source)
            .device(Device::Cpu)
            .fields(NAMES)
            .sanitize(false)
            .batch_size(4)
            .transform(Resize::new(Size::new(20, 15)));
        let batch = pipeline.build().unwrap().epoch(0).next().unwrap().unwrap();
        let fields = batch.fields(0).unwrap();
        let rows = 4 * objects as i64;
        let floats = |tensor: FieldTensor, size: [i64; 2], want: Vec<f32>| {
            let tensor = tensor.into_tch().unwrap();
            assert_eq!((&tensor.size()[..2], tensor.kind()), (&size[..], tch::Kind::Float));
            assert_eq!(Vec::<f32>::try_from(tensor.flatten(0, -1)).unwrap(), want);
        };
        let boxes = fields.boxes(BoxFormat::Xyxy).unwrap().into_flattened();
        floats(fields.box_tensor(BoxFormat::Xyxy).unwrap(), [rows, 4], boxes);
        let points = fields.keypoints("keypoints").unwrap().into_flattened();
        floats(fields.keypoint_tensor("keypoints").unwrap(), [rows, 2], points);
        let labels = FieldTensor::from(fields.integers("labels").unwrap()).into_tch().unwrap();
        assert_eq!(Vec::<i64>::try_from(labels).unwrap(), fields.integers("labels").unwrap());
        let masks = fields.mask_tensor("masks").unwrap();
        let want = masks.clone().into_parts().unwrap().0;
        let masks = masks.into_tch().unwrap();
        assert_eq!(masks.kind(), tch::Kind::Uint8);
        assert_eq!(want, warpfeed::FieldValues::U8(Vec::try_from(masks.flatten(0, -1)).unwrap()));
        let mask = fields.mask_tensor("mask").unwrap().into_tch().unwrap();
        assert_eq!((mask.size(), mask.kind()), (vec![4, 15, 20], tch::Kind::Int64));
        assert_eq!(mask.int64_value(&[3, 0, 0]), 60_000 + 40 + 1);
    }
}
