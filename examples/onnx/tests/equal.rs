//! What other libraries read of a batch is what the batch holds.

use kornia_image::{Image as KorniaImage, ImageSize};
use ndarray::{Array4, ArrayView4, Axis};
use ort::{session::Session, value::TensorRef};
use tract_onnx::prelude::*;
use warpfeed::image::{Image, JpegOptions, Size, encode_jpeg};
use warpfeed::ops::CenterCrop;
use warpfeed::{DType, Layout, Preprocessor, PreprocessorOptions, hugging_face_ops};

/// A `preprocessor_config.json` as fastembed's models and those of transformers have it.
const CONFIG: &str = r#"{"do_center_crop": true, "crop_size": {"height": 24, "width": 24}, "do_normalize": true,
    "do_rescale": true, "do_resize": true, "image_mean": [0.5, 0.4, 0.3], "image_processor_type": "CLIPImageProcessor",
    "image_std": [0.5, 0.25, 0.2], "resample": 3, "rescale_factor": 0.00392156862745098, "size": {"shortest_edge": 24}}"#;

fn images() -> Vec<Vec<u8>> {
    let image = |seed: usize| {
        let size = Size::new(40, 30);
        let rgb: Vec<u8> = (0..3 * 40 * 30).map(|i| (i * seed / 7 % 256) as u8).collect();
        encode_jpeg(&Image::from_rgb(size, &rgb).unwrap(), &JpegOptions::default()).unwrap()
    };
    (1..=3).map(image).collect()
}

fn batch(options: PreprocessorOptions) -> warpfeed::Tensor {
    let images = images();
    let images: Vec<&[u8]> = images.iter().map(Vec::as_slice).collect();
    Preprocessor::new(hugging_face_ops(CONFIG).unwrap(), &options).unwrap().run(&images).unwrap()
}

/// A field of a message of Protocol Buffers: a number, or bytes.
fn number(field: u8, value: u8) -> Vec<u8> {
    vec![field << 3, value]
}

fn bytes(field: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [&[field << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

/// An ONNX model that makes `[N, 3, 1, 1]` means of `[N, 3, 24, 24]`.
fn model() -> Vec<u8> {
    let dims = |sizes: &[u8]| -> Vec<u8> {
        let batch = bytes(1, bytes(2, "n"));
        batch.into_iter().chain(sizes.iter().flat_map(|&size| bytes(1, number(1, size)))).collect()
    };
    let value = |name: &str, sizes: &[u8]| {
        let tensor = [number(1, 1), bytes(2, dims(sizes))].concat();
        [bytes(1, name), bytes(2, bytes(1, tensor))].concat()
    };
    let node = [bytes(1, "x"), bytes(2, "y"), bytes(4, "GlobalAveragePool")].concat();
    let graph =
        [bytes(1, node), bytes(2, "means"), bytes(11, value("x", &[3, 24, 24])), bytes(12, value("y", &[3, 1, 1]))];
    [number(1, 8), bytes(7, graph.concat()), bytes(8, number(2, 17))].concat()
}

fn means(batch: ArrayView4<'_, f32>) -> Vec<f32> {
    let planes =
        batch.outer_iter().flat_map(|image| image.outer_iter().map(|plane| plane.mean().unwrap()).collect::<Vec<_>>());
    planes.collect()
}

fn assert_close(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-5), "{got:?}, want {want:?}");
}

#[test]
fn ndarray_views_a_batch_or_takes_it() {
    let batch = batch(PreprocessorOptions::default());
    let view = ArrayView4::from_shape(batch.shape(), batch.as_slice::<f32>().unwrap()).unwrap();
    assert_eq!((view.dim(), view.as_ptr()), ((3, 3, 24, 24), batch.as_slice::<f32>().unwrap().as_ptr()));
    let (means, shape) = (means(view), batch.shape());
    assert_ne!(means[0], means[3]);
    let owned = Array4::from_shape_vec(shape, batch.into_vec::<f32>().unwrap()).unwrap();
    assert_close(&owned.mean_axis(Axis(3)).unwrap().mean_axis(Axis(2)).unwrap().into_raw_vec_and_offset().0, &means);
}

#[test]
fn tract_gets_the_batch() {
    let batch = batch(PreprocessorOptions::default());
    let input = Tensor::from_shape(&batch.shape(), batch.as_slice::<f32>().unwrap()).unwrap();
    let model = tract_onnx::onnx().model_for_read(&mut model().as_slice()).unwrap();
    let model = model.with_input_fact(0, input.datum_type().fact(input.shape()).into()).unwrap();
    let outputs = model.into_optimized().unwrap().into_runnable().unwrap().run(tvec![input.into()]).unwrap();
    let view = ArrayView4::from_shape(batch.shape(), batch.as_slice::<f32>().unwrap()).unwrap();
    let got = outputs[0].to_plain_array_view::<f32>().unwrap();
    assert_close(got.as_slice().unwrap(), &means(view));
}

#[test]
#[ignore = "needs ONNX Runtime: ./run test"]
fn onnx_runtime_gets_the_batch() {
    let batch = batch(PreprocessorOptions::default());
    let mut session = Session::builder().unwrap().commit_from_memory(&model()).unwrap();
    let input = TensorRef::from_array_view((batch.shape(), batch.as_slice::<f32>().unwrap())).unwrap();
    assert_eq!(input.extract_tensor().1.as_ptr(), batch.as_slice::<f32>().unwrap().as_ptr(), "a copy was made");
    let outputs = session.run(ort::inputs![input]).unwrap();
    let view = ArrayView4::from_shape(batch.shape(), batch.as_slice::<f32>().unwrap()).unwrap();
    assert_close(outputs[0].try_extract_tensor::<f32>().unwrap().1, &means(view));
}

#[test]
fn images_of_kornia_come_and_go_by_slices() {
    let size = ImageSize { width: 40, height: 30 };
    let rgb: Vec<u8> = (0..3 * 40 * 30).map(|i| (i % 251) as u8).collect();
    let given = KorniaImage::<u8, 3>::new(size, rgb).unwrap();
    let image = Image::from_rgb(Size::new(40, 30), given.as_slice()).unwrap();
    let options = PreprocessorOptions::default().dtype(DType::U8).layout(Layout::Nhwc);
    let preprocessor = Preprocessor::new([CenterCrop::new(24).into()], &options).unwrap();
    let batch = preprocessor.run_images(&[&image]).unwrap();
    let [_, height, width, _] = batch.shape();
    let want = batch.as_slice::<u8>().unwrap().to_vec();
    let got = KorniaImage::<u8, 3>::new(ImageSize { width, height }, batch.into_vec().unwrap()).unwrap();
    assert_eq!((got.width(), got.height(), got.as_slice()), (24, 24, want.as_slice()));
}
