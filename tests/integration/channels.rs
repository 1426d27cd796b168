//! Batches of one channel are Pillow's L of the image, on every path.

use crate::common::source;
use warpfeed::ops::CenterCrop;
use warpfeed::{
    Batch, DType, Device, LastBatch, Layout, Pipeline, PipelineBuilder, Strategy, five_crop,
    image::Size,
    ops::{Erase, Grayscale, Normalize},
    prelude::{random_horizontal_flip, random_resized_crop, random_rotation},
};

fn builder() -> PipelineBuilder {
    let builder = Pipeline::builder(source(9)).shuffle(3).batch_size(4).last_batch(LastBatch::Pad);
    builder.transform(random_rotation(-9.0..=9.0)).transform(random_resized_crop(Size::new(23, 17)))
}

fn batches(builder: PipelineBuilder) -> Vec<Batch> {
    builder.build().unwrap().epoch(1).map(Result::unwrap).collect()
}

/// Compares with the first channel of three, made gray.
fn check(gray: impl Fn(PipelineBuilder) -> PipelineBuilder, dtype: DType) {
    for layout in [Layout::Nchw, Layout::Nhwc] {
        let one = batches(gray(builder().output(dtype, layout).channels(1)));
        // The same operations, with the luma in all three channels, one plane after the other.
        let three = batches(gray(builder().output(dtype, Layout::Nchw).transform(Grayscale)));
        for (one, three) in one.iter().zip(&three) {
            let [one, three] = [one, three].map(|batch| batch.images().to_host().unwrap());
            let shape = if layout == Layout::Nchw { [4, 1, 17, 23] } else { [4, 17, 23, 1] };
            assert_eq!(one.shape(), shape);
            for i in 0..4 {
                let want = three.image_bytes(i).unwrap();
                assert!(one.image_bytes(i).unwrap() == &want[..want.len() / 3], "{dtype} {layout:?}");
            }
        }
    }
}

fn on(device: Device) {
    for strategy in [Strategy::Fused, Strategy::Sequential] {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let erase = Erase::new(warpfeed::image::Rect { x: 2, y: 3, width: 9, height: 5 }).value([0.25; 3]);
            let normalize = Normalize::new([0.1307; 3], [0.3081; 3]);
            check(|builder| builder.device(device).strategy(strategy).transform(normalize).transform(erase), dtype);
        }
        check(|builder| builder.device(device).strategy(strategy), DType::U8);
    }
}

#[test]
fn one_channel_is_the_luma() {
    on(Device::Cpu);
}

#[test]
#[ignore = "needs a CUDA device: cuda-sim/run cargo test --test integration channels:: -- --ignored"]
fn one_channel_on_a_device() {
    on(Device::Cuda(0));
}

/// Handwritten digits as MNIST has them: an IDX file of 28 x 28 bytes an image.
#[test]
fn gray_images_keep_their_values() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("train-images-idx3-ubyte");
    let pixels: Vec<u8> = (0..3 * 28 * 28).map(|i| (i * 31 % 256) as u8).collect();
    let header = [[0, 0, 8, 3], [0, 0, 0, 3], [0, 0, 0, 28], [0, 0, 0, 28]].concat();
    std::fs::write(&images, [header, pixels.clone()].concat()).unwrap();
    std::fs::write(folder.path().join("train-labels-idx1-ubyte"), [0, 0, 8, 1, 0, 0, 0, 3, 7, 1, 4]).unwrap();
    let builder = || {
        Pipeline::builder(warpfeed::source::open(&images).unwrap())
            .device(Device::Cpu)
            .transform(CenterCrop::new(28))
            .channels(1)
    };
    let bytes = builder().output(DType::U8, Layout::Nchw).build().unwrap();
    for batch in bytes.epoch(0) {
        let batch = batch.unwrap();
        assert_eq!((batch.labels().unwrap(), batch.images().shape()), (&[7, 1, 4][..], [3, 1, 28, 28]));
        assert_eq!(batch.images().as_bytes().unwrap(), pixels);
    }
    let normalized = builder().normalize([0.1307; 3], [0.3081; 3]).build().unwrap();
    for batch in normalized.epoch(0) {
        let batch = batch.unwrap();
        let want: Vec<f32> = pixels.iter().map(|&byte| (f32::from(byte) / 255.0 - 0.1307) / 0.3081).collect();
        assert_eq!(batch.images().as_slice::<f32>().unwrap(), want);
    }
}

#[test]
fn one_channel_goes_with_views_and_one_mean() {
    let views = builder().channels(1).views([five_crop(8)]).transform(random_horizontal_flip(0.5));
    assert_eq!(batches(views)[0].images().shape(), [20, 1, 8, 8]);
    for channels in [0, 2, 4] {
        assert!(builder().channels(channels).build().unwrap_err().to_string().contains("channels must be 1 or 3"));
    }
    let error = builder().channels(1).preset(warpfeed::Preset::Eval).build().unwrap_err().to_string();
    assert!(error.contains("mean and std must be one number") && error.contains("0.485"), "{error}");
    let bytes = builder().channels(1).build().unwrap().memory().batch_bytes;
    assert_eq!(bytes, 4 * 23 * 17 * 4);
}
