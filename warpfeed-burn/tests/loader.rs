//! burn gets the pipeline's batches in its memory.

use burn::data::dataloader::DataLoader;
use burn::tensor::{Bool, Device, Int};
use std::collections::BTreeSet;
use std::sync::Arc;
use warpfeed::fields::{BoxFormat, Boxes, Fields, KeyPoints, Mask};
use warpfeed::prelude::*;
use warpfeed::{
    FieldTensor, Mix, Partition, TargetSpec,
    image::{Image, JpegOptions, encode_jpeg},
    ops::{RandomResizedCrop, Resize},
    view,
};
use warpfeed_burn::{FieldIntoBurn, ImageBatch, IntoBurn, Loader};

/// An image of a gray of its own.
fn jpeg(i: u32) -> Vec<u8> {
    let mut image = Image::new(Size::new(40, 30));
    image.pixels_mut().fill([(i * 7 % 256) as u8; 4]);
    encode_jpeg(&image, &JpegOptions::default()).unwrap()
}

fn images(count: u32) -> EncodedImages {
    EncodedImages::new((0..count).map(|i| (jpeg(i), i % 4)))
}

fn small(builder: warpfeed::PipelineBuilder) -> warpfeed::PipelineBuilder {
    builder
        .batch_size(4)
        .shuffle(3)
        .threads(2)
        .transform(random_resized_crop(16))
        .normalize(IMAGENET_MEAN, IMAGENET_STD)
}

fn values(images: burn::tensor::Tensor<4>) -> Vec<f32> {
    images.into_data().try_to_vec().unwrap()
}

#[test]
fn a_pass_is_an_epoch_of_the_pipeline() {
    let pipeline = small(Pipeline::builder(images(10))).build().unwrap();
    let loader = Loader::new(images(10), &Device::flex(), small).unwrap().starting_at(1);
    assert_eq!(loader.num_items(), 10);
    for epoch in [1, 2] {
        let (mut passes, mut done) = (loader.iter(), 0);
        for batch in pipeline.epoch(epoch) {
            let (want, got) = (batch.unwrap(), passes.next().unwrap().unwrap());
            let labels: Vec<u32> = got.labels.unwrap().into_data().iter::<u32>().collect();
            assert_eq!(labels, want.labels().unwrap());
            assert_eq!(values(got.images), want.images().as_slice::<f32>().unwrap());
            done += want.len();
            assert_eq!((passes.progress().items_processed, passes.progress().items_total), (done, 10));
        }
        assert!(passes.next().is_none());
    }
}

#[test]
fn memory_is_lent_and_comes_back() {
    let pipeline = small(Pipeline::builder(images(64))).build().unwrap();
    let mut places = BTreeSet::new();
    for batch in pipeline.epoch(0) {
        let batch = batch.unwrap();
        let place = batch.images().as_bytes().unwrap().as_ptr();
        let tensor = batch.into_images().into_burn(&Device::flex()).unwrap();
        let data = tensor.into_data();
        assert_eq!(data.as_bytes().as_ptr(), place, "without a copy");
        places.insert(place);
    }
    assert!(places.len() < 10, "16 batches in {} places", places.len());
}

#[test]
fn memory_is_not_used_again_while_a_view_of_it_is_alive() {
    let pipeline = small(Pipeline::builder(images(64))).build().unwrap();
    let mut held = Vec::new();
    for batch in pipeline.epoch(0) {
        let batch = batch.unwrap();
        let want = batch.images().as_slice::<f32>().unwrap()[..3 * 16 * 16].to_vec();
        let tensor = batch.into_images().into_burn(&Device::flex()).unwrap();
        held.push((tensor.narrow(0, 0, 1), want));
    }
    // The epoch and its pipeline's threads are gone, and every first image is what it was.
    drop(pipeline);
    for (view, want) in held {
        assert_eq!(values(view), want);
    }
}

#[test]
fn an_operation_in_place_changes_the_lent_memory() {
    let pipeline = small(Pipeline::builder(images(4))).build().unwrap();
    let batch = pipeline.epoch(0).next().unwrap().unwrap();
    let before = batch.images().as_slice::<f32>().unwrap().to_vec();
    let tensor = batch.into_images().into_burn(&Device::flex()).unwrap();
    let after: Vec<f32> = values(tensor * 2.0);
    assert!(before.iter().zip(&after).all(|(before, after)| before * 2.0 == *after));
}

#[test]
fn types_are_what_they_were() {
    let pipeline = |dtype| small(Pipeline::builder(images(4))).output(dtype, Layout::Nhwc).build().unwrap();
    let first = |dtype| pipeline(dtype).epoch(0).next().unwrap().unwrap().into_images();
    for (dtype, want) in [(DType::F16, burn::tensor::DType::F16), (DType::Bf16, burn::tensor::DType::BF16)] {
        let tensor = first(dtype).into_burn(&Device::flex()).unwrap();
        assert_eq!((tensor.dtype(), tensor.dims()), (want, [4, 16, 16, 3]));
        assert!(first(dtype).into_burn_int(&Device::flex()).is_err());
    }
    let bytes = |builder: warpfeed::PipelineBuilder| {
        builder.batch_size(4).transform(random_resized_crop(16)).output(DType::U8, Layout::Nchw)
    };
    let batch = bytes(Pipeline::builder(images(4))).build().unwrap().epoch(0).next().unwrap().unwrap();
    let want = batch.images().as_bytes().unwrap().to_vec();
    let tensor = batch.into_images().into_burn_int(&Device::flex()).unwrap();
    assert_eq!(tensor.into_data().as_bytes(), want);
    assert!(Loader::new(images(4), &Device::flex(), bytes).unwrap_err().to_string().contains("into_burn_int"));
}

#[test]
fn targets_that_burn_cannot_have_are_refused_when_the_loader_is_built() {
    for wrong in [TargetSpec::class(4), TargetSpec::bytes().field("txt")] {
        let error = Loader::new(images(4), &Device::flex(), move |builder| small(builder).targets(wrong.clone()));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("floats") || error.contains("txt"), "{error}");
    }
}

#[test]
fn a_loader_continues_in_mid_epoch_and_tells_about_its_latest_pass() {
    let damaged = |i: u32| (if i == 5 { b"no image".to_vec() } else { jpeg(i) }, i % 4);
    let source = EncodedImages::new((0..10).map(damaged));
    let skipping = |builder: PipelineBuilder| small(builder).on_error(warpfeed::OnError::Skip);
    let loader = Arc::new(Loader::new(source.clone(), &Device::flex(), skipping).unwrap());
    assert!(loader.state().is_none() && loader.stats().is_none() && loader.bad().is_empty());
    // As burn's learner does.
    let learner = loader.to_device(&Device::flex());
    let whole: Vec<Vec<u64>> = learner.iter().map(|batch| batch.unwrap().indices).collect();
    assert_eq!((loader.stats().unwrap().images, loader.bad().len(), loader.bad()[0].index), (9, 1, 5));

    let interrupted = Loader::new(source.clone(), &Device::flex(), skipping).unwrap();
    let mut batches = interrupted.iter();
    assert_eq!(batches.next().unwrap().unwrap().indices, whole[0]);
    let state = interrupted.state().unwrap();
    assert_eq!((state.epoch(), interrupted.stats().unwrap().batches), (0, 1));
    drop(batches);
    assert_eq!((interrupted.state().unwrap(), interrupted.stats().unwrap().batches), (state.clone(), 1));

    let resumed = Loader::new(source, &Device::flex(), skipping).unwrap().resuming(&state).unwrap();
    let parts = resumed.slice(0, 5);
    assert!(parts.iter().next().unwrap().unwrap_err().to_string().contains("starting_at"));
    let resumed = resumed.to_device(&Device::flex());
    let mut rest = resumed.iter();
    assert_eq!(rest.progress().items_processed as u64, state.position());
    let indices: Vec<Vec<u64>> = rest.by_ref().map(|batch| batch.unwrap().indices).collect();
    assert_eq!(indices, whole[1..]);
    drop(rest);
    assert_eq!(resumed.iter().count(), whole.len(), "the next epoch is whole");
    let other = Loader::new(images(11), &Device::flex(), small).unwrap();
    assert!(other.resuming(&state).is_err());
}

#[test]
fn parts_share_the_samples_and_a_part_without_samples_says_so() {
    let loader = Loader::new(images(10), &Device::flex(), small).unwrap();
    let parts = [loader.slice(0, 4), loader.slice(4, 10)];
    assert_eq!(parts.each_ref().map(|part| part.num_items()), [4, 6]);
    let labels = |batches: &dyn DataLoader<ImageBatch>| -> Vec<u32> {
        batches
            .iter()
            .flat_map(|batch| batch.unwrap().labels.unwrap().into_data().iter::<u32>().collect::<Vec<_>>())
            .collect()
    };
    let mut all: Vec<u32> = parts.iter().flat_map(|part| labels(&**part)).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]);
    assert_eq!(labels(&*loader.to_device(&Device::flex())).len(), 10);
    // Another part than that which has given an epoch: a part goes on with the next one.
    let part = loader.slice(4, 10);
    assert_eq!(labels(&*part.slice(0, 3)), labels(&*loader.slice(4, 7)), "a part of a part");
    let empty = loader.slice(10, 20);
    assert_eq!(empty.num_items(), 0);
    let error = empty.iter().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("a source without any"), "{error}");
}

/// Two processes with two devices each have every sample once.
#[test]
fn parts_of_a_partition_share_its_samples() {
    let mut all = Vec::new();
    for rank in 0..2 {
        let configure = move |builder| small(builder).partition(Partition::new(rank, 2).unwrap());
        let loader = Loader::new(images(16), &Device::flex(), configure).unwrap();
        let items = loader.num_items();
        assert_eq!(items, 8);
        for part in [loader.slice(0, items / 2), loader.slice(items / 2, items)] {
            for batch in part.iter() {
                all.extend(batch.unwrap().labels.unwrap().into_data().iter::<u32>());
            }
        }
    }
    all.sort_unstable();
    assert_eq!(all, (0..4).flat_map(|label| [label; 4]).collect::<Vec<_>>());
}

#[test]
fn padding_is_left_out_of_every_view() {
    let configure = |builder: PipelineBuilder| {
        let crop = |side| [RandomResizedCrop::new(side).into()];
        let views = [view(crop(16)), view(crop(8)).times(2)];
        let builder = builder.batch_size(4).shuffle(3).views(views).targets(TargetSpec::soft(4));
        builder.last_batch(LastBatch::Pad)
    };
    let loader = Loader::new(images(6), &Device::flex(), configure).unwrap();
    let pipeline = configure(Pipeline::builder(images(6))).build().unwrap();
    let want = pipeline.epoch(0).nth(1).unwrap().unwrap();
    assert_eq!(want.padding(), 2);
    let mut batches = loader.iter();
    let got = batches.nth(1).unwrap().unwrap();
    let image = |i: usize, n: usize| {
        let values = want.view(i).unwrap().as_slice::<f32>().unwrap();
        let len = values.len() / want.view(i).unwrap().shape()[0];
        values[n * len..][..len].to_vec()
    };
    assert_eq!((got.labels.as_ref().unwrap().dims(), got.targets.unwrap().dims()), ([2], [2, 4]));
    assert_eq!((got.images.dims(), got.views.len(), got.views[0].dims()), ([2, 3, 16, 16], 1, [4, 3, 8, 8]));
    assert_eq!(values(got.images), [image(0, 0), image(0, 1)].concat());
    let [views] = got.views.try_into().unwrap();
    assert_eq!(values(views), [0, 1, 4, 5].map(|n| image(1, n)).concat());
    assert_eq!(batches.progress().items_processed, 6);
}

#[test]
fn targets_come_with_the_images() {
    let loader = Loader::new(images(8), &Device::flex(), |builder| {
        small(builder).targets(TargetSpec::soft(4)).mix(Mix::timm(0.8, 0.0))
    });
    let batch = loader.unwrap().iter().next().unwrap().unwrap();
    let targets = batch.targets.unwrap();
    assert_eq!(targets.dims(), [4, 4]);
    let sums: Vec<f32> = targets.sum_dim(1).into_data().try_to_vec().unwrap();
    assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-6), "{sums:?}");
}

/// Objects with all kinds of fields, in an image of 40 x 30 pixels.
fn objects(count: usize) -> warpfeed::Result<Fields> {
    let (size, pixels) = (Size::new(40, 30), 40 * 30);
    let plane = |i: usize| (0..pixels).map(|at| u8::from(at % (i + 2) == 0)).collect::<Vec<_>>();
    Fields::new()
        .with("boxes", Boxes::new(BoxFormat::Xyxy, (0..count).map(|i| [i as f32, 2.5, 20.0, 25.0]).collect()))?
        .with("labels", (0..count).map(|i| 7 + i as i64).collect::<Vec<_>>())?
        .with("keypoints", KeyPoints::of_objects(2, vec![[3.0, 7.0]; 2 * count], vec![2; 2 * count])?)?
        .with("masks", Mask::of_objects(size, (0..count).map(plane))?)?
        .with("mask", Mask::new(size, (0..pixels).map(|at| 60_000 + at as u16).collect::<Vec<_>>())?)
}

const FIELDS: [&str; 5] = ["boxes", "labels", "keypoints", "masks", "mask"];

#[test]
fn fields_come_along_without_the_padding() {
    // Image 0 has no object, image 1 has one, and so on.
    let source = || images(6).fields(FIELDS, |sample| objects(sample.index as usize));
    let configure = |builder: PipelineBuilder| {
        let views =
            [view([Resize::new(Size::new(20, 15)).into()]), view([Resize::new(Size::new(8, 6)).into()]).times(2)];
        let builder = builder.fields(FIELDS).sanitize(false).batch_size(4).views(views).last_batch(LastBatch::Pad);
        builder.normalize(IMAGENET_MEAN, IMAGENET_STD)
    };
    let (device, loader) = (Device::flex(), Loader::new(source(), &Device::flex(), configure).unwrap());
    let pipeline = configure(Pipeline::builder(source())).build().unwrap();
    for (batch, whole) in loader.iter().zip(pipeline.epoch(0)) {
        let (batch, whole) = (batch.unwrap(), whole.unwrap());
        assert_eq!(batch.fields.len(), 2);
        let count = batch.indices.len();
        let twice: Vec<usize> = (0..count).chain(whole.len()..whole.len() + count).collect();
        for (i, own) in [(0, &twice[..count]), (1, &twice[..])] {
            let (got, want) = (&batch.fields[i], whole.fields(i).unwrap());
            assert_eq!(got.sizes().len(), own.len());
            assert!(own.iter().enumerate().all(|(at, image)| got.image(at) == want.image(*image)));
        }
        let fields = &batch.fields[0];
        let rows: usize = batch.indices.iter().map(|index| *index as usize).sum();
        let floats = |tensor: FieldTensor, want: Vec<f32>| {
            let (rank, shape) = (tensor.shape().len(), tensor.shape().to_vec());
            let (dims, data) = match rank {
                2 => tensor.into_burn::<2>(&device).map(|tensor| (tensor.dims().to_vec(), tensor.into_data())).unwrap(),
                _ => tensor.into_burn::<3>(&device).map(|tensor| (tensor.dims().to_vec(), tensor.into_data())).unwrap(),
            };
            assert_eq!((dims, data.try_to_vec::<f32>().unwrap()), (shape, want));
        };
        floats(fields.box_tensor(BoxFormat::Xyxy).unwrap(), fields.boxes(BoxFormat::Xyxy).unwrap().into_flattened());
        floats(fields.keypoint_tensor("keypoints").unwrap(), fields.keypoints("keypoints").unwrap().into_flattened());
        let integers = |tensor: FieldTensor| {
            let tensor = tensor.into_burn_int::<1>(&device).unwrap();
            assert_eq!(tensor.dims(), [rows]);
            tensor.into_data().iter::<i64>().collect::<Vec<_>>()
        };
        assert_eq!(integers(fields.integers("labels").unwrap().into()), fields.integers("labels").unwrap());
        let numbers: Vec<i64> = fields.batch_indices().into_iter().map(i64::from).collect();
        assert_eq!(integers(fields.batch_indices().into()), numbers);
        let masks = fields.mask_tensor("masks").unwrap();
        let as_bool = masks.clone().into_burn_bool::<3>(&device).unwrap();
        let as_int = masks.clone().into_burn_int::<3>(&device).unwrap();
        assert_eq!((as_int.dims(), as_int.dtype()), ([rows, 15, 20], burn::tensor::DType::U8));
        let warpfeed::FieldValues::U8(want) = masks.values().unwrap() else { panic!("8 bits") };
        assert_eq!(&as_int.into_data().try_to_vec::<u8>().unwrap(), want);
        assert!(as_bool.into_data().iter::<bool>().eq(want.iter().map(|value| *value != 0)));
        let mask = fields.mask_tensor("mask").unwrap();
        let warpfeed::FieldValues::U16(want) = mask.values().unwrap().clone() else { panic!("16 bits") };
        assert_eq!(mask.into_burn_int::<3>(&device).unwrap().into_data().try_to_vec::<u16>().unwrap(), want);
    }
    let without = Loader::new(images(4), &device, small).unwrap();
    assert!(without.iter().next().unwrap().unwrap().fields.is_empty());
}

#[test]
fn a_pixel_mask_is_a_tensor_and_other_types_and_shapes_are_refused() {
    let jpegs = [(40, 30), (20, 32)]
        .map(|(width, height)| encode_jpeg(&Image::new(Size::new(width, height)), &JpegOptions::default()).unwrap());
    let pipeline = Pipeline::builder(EncodedImages::new(jpegs.map(|jpeg| (jpeg, 0)))).batch_size(2).build_padded(16);
    let batch = pipeline.unwrap().epoch(0).next().unwrap().unwrap();
    let (device, mask) = (Device::flex(), batch.images().pixel_mask_tensor());
    let tensor: burn::tensor::Tensor<3, Bool> = mask.clone().into_burn_bool(&device).unwrap();
    assert_eq!(tensor.dims(), [2, 32, 48]);
    let counts: burn::tensor::Tensor<3, Int> = tensor.int();
    let counts: Vec<i64> = counts.sum_dim(1).sum_dim(2).into_data().iter::<i64>().collect();
    assert_eq!(counts, [40 * 30, 20 * 32]);
    let error = mask.clone().into_burn_bool::<2>(&device).unwrap_err();
    assert!(
        error.is_parameter() && error.to_string().contains("as many dimensions as the shape [2, 32, 48]"),
        "{error}"
    );
    assert!(mask.into_burn::<3>(&device).unwrap_err().to_string().contains("into_burn_int"));
    let boxes = || FieldTensor::from(vec![[1.0, 2.0, 3.0, 4.0]]);
    assert!(boxes().into_burn_int::<2>(&device).unwrap_err().to_string().contains("into_burn"));
    assert!(boxes().into_burn_bool::<2>(&device).is_err());
}

#[test]
fn a_bad_image_is_an_error_with_its_name() {
    let mut damaged: Vec<(Vec<u8>, u32)> = vec![(b"no image".to_vec(), 0); 1];
    damaged.push((vec![0xff, 0xd8], 1));
    let loader = Loader::new(EncodedImages::new(damaged), &Device::flex(), small).unwrap();
    let error = loader.iter().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("image 0") || error.contains("image 1"), "{error}");
}

#[test]
fn a_mapped_loader_keeps_everything_else() {
    let own = || Loader::new(images(10), &Device::flex(), small).unwrap();
    let mapped = || own().map(|batch| (batch.indices, batch.images.dims()[0])).map(|(indices, count)| (count, indices));
    let want: Vec<Vec<u64>> = own().iter().map(|batch| batch.unwrap().indices).collect();
    let loader = Arc::new(mapped());
    let learner: Arc<dyn DataLoader<(usize, Vec<u64>)>> = loader.to_device(&Device::flex());
    let got: Vec<(usize, Vec<u64>)> = learner.iter().map(Result::unwrap).collect();
    assert_eq!(got, want.iter().map(|indices| (indices.len(), indices.clone())).collect::<Vec<_>>());
    assert_eq!((loader.num_items(), loader.stats().unwrap().images, loader.bad().len()), (10, 10, 0));
    assert_eq!((loader.pipeline().batches(), loader.name(3).as_deref()), (Some(3), Some("image 3 in memory")));
    assert_eq!((loader.name(10), loader.classes().len(), loader.summary().images), (None, 0, Some(10)));

    let first = mapped();
    assert_eq!(first.iter().next().unwrap().unwrap().1, want[0]);
    let rest = mapped().resuming(&first.state().unwrap()).unwrap();
    assert_eq!(rest.iter().map(|batch| batch.unwrap().1).collect::<Vec<_>>(), want[1..]);
    let part = loader.slice(6, 10);
    let mut indices: Vec<u64> = part.iter().flat_map(|batch| batch.unwrap().1).collect();
    indices.sort_unstable();
    assert_eq!(indices, [6, 7, 8, 9], "indices of the whole source");
    let mut indices: Vec<u64> = part.slice(1, 3).iter().flat_map(|batch| batch.unwrap().1).collect();
    indices.sort_unstable();
    assert_eq!(indices, [7, 8]);

    let wrong = own().try_map(|batch| if batch.indices.contains(&3) { Err("a batch with image 3") } else { Ok(()) });
    let errors = wrong.iter().filter_map(Result::err).map(|error| error.to_string()).collect::<Vec<_>>();
    assert_eq!(errors, ["a batch with image 3"]);
}

#[test]
fn ranks_of_different_sizes_are_not_split() {
    let configure = |builder| small(builder).partition(Partition::new(0, 2).unwrap());
    let loader = Loader::new(images(15), &Device::flex(), configure).unwrap();
    let error = loader.slice(0, 4).slice(0, 2).iter().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("multiple of the number of ranks"), "{error}");
}

/// Loaders over parts of one source read it, and do not copy it.
#[test]
fn loaders_share_a_source() {
    let source = images(12).into_source();
    let tests = (0..3).map(|part| {
        let part = Arc::clone(&source).subset(part * 4..part * 4 + 4).unwrap();
        Loader::new(part, &Device::flex(), small).unwrap()
    });
    let tests: Vec<Loader> = tests.collect();
    assert_eq!(Arc::strong_count(&source), 4);
    for (i, test) in tests.iter().enumerate() {
        let mut labels: Vec<u32> = test
            .iter()
            .flat_map(|batch| batch.unwrap().labels.unwrap().into_data().iter::<u32>().collect::<Vec<_>>())
            .collect();
        labels.sort_unstable();
        assert_eq!((labels, test.name(0)), (vec![0, 1, 2, 3], Some(format!("image {} in memory", i * 4))));
    }
}

#[test]
fn files_that_are_left_out_are_counted() {
    let root = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("train/cat/1.jpg", jpeg(1)),
        ("train/cat/2.jpg", jpeg(2)),
        ("train/cat/3.bmp", jpeg(3)),
        ("train/4.jpg", jpeg(4)),
    ] {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let source = warpfeed::source::ImageFolder::open(root.path().join("train")).unwrap();
    let loader = Loader::new(source, &Device::flex(), small).unwrap();
    let text = "2 images, 1 class, 2 files passed over (1 .bmp, 1 .jpg beside the class folders)";
    assert_eq!((loader.summary().to_string().as_str(), loader.num_items()), (text, 2));
}
