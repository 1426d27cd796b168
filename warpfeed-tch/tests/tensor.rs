//! Batches as libtorch gets them are the pipeline's, in its memory, which comes back.

use std::collections::BTreeSet;
use warpfeed::image::{Image, JpegOptions, encode_jpeg};
use warpfeed::prelude::*;
use warpfeed::{Mix, TargetSpec, Targets};
use warpfeed_tch::IntoTch;

/// So many images, each of a gray of its own, of four classes.
fn images(count: u32) -> EncodedImages {
    let jpeg = |i: u32| {
        let mut image = Image::new(Size::new(40, 30));
        image.pixels_mut().fill([(i * 7 % 256) as u8; 4]);
        encode_jpeg(&image, &JpegOptions::default()).unwrap()
    };
    EncodedImages::new((0..count).map(|i| (jpeg(i), i % 4)))
}

fn builder(count: u32) -> Builder {
    Pipeline::builder(images(count)).batch_size(4).shuffle(3).threads(2).random_resized_crop(16)
}

/// The bytes of a contiguous tensor in host memory.
#[allow(unsafe_code)]
fn bytes(tensor: &tch::Tensor) -> &[u8] {
    assert!(tensor.is_contiguous());
    let len_bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
    // SAFETY: contiguous, and borrowed; nobody writes to it.
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
            let (want, labels) = (batch.images().as_bytes().unwrap().to_vec(), batch.labels().to_vec());
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
