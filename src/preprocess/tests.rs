use super::*;
use crate::decode::probe;
use crate::encode::{JpegOptions, encode_jpeg};
use crate::ops::{CenterCrop, Custom, Interpolation, Normalize, Resize};
use crate::source::EncodedImages;
use crate::{Layout, Pipeline, Preset};

fn image(i: u32) -> Image {
    let mut image = Image::new(Size::new(60 + 7 * i, 80 - 3 * i));
    image.pixels_mut().iter_mut().zip(0_u32..).for_each(|(pixel, at)| {
        *pixel = [(at * (i + 1)) as u8, (at / 7) as u8, (at ^ i) as u8, 255];
    });
    image
}

fn jpegs() -> Vec<Vec<u8>> {
    // The third has an orientation.
    let options = |i| JpegOptions { orientation: (i == 2).then_some(6), ..JpegOptions::default() };
    (0..5).map(|i| encode_jpeg(&image(i), &options(i)).unwrap()).collect()
}

fn ops() -> Vec<Op> {
    vec![Resize::shorter_side(40).into(), CenterCrop::new(32).into(), Normalize::new([0.4; 3], [0.2; 3]).into()]
}

#[test]
fn tensors_are_those_of_a_pipeline() {
    let jpegs = jpegs();
    let borrowed: Vec<&[u8]> = jpegs.iter().map(|jpeg| &jpeg[..]).collect();
    for (dtype, layout) in [(DType::F32, Layout::Nchw), (DType::Bf16, Layout::Nhwc), (DType::U8, Layout::Nhwc)] {
        let ops = if dtype == DType::U8 { &ops()[..2] } else { &ops()[..] };
        let source = EncodedImages::new(jpegs.iter().cloned().zip(0..));
        let builder = Pipeline::builder(source).batch_size(5).output(dtype, layout).device(Device::Cpu);
        let pipeline = ops.iter().cloned().fold(builder, crate::PipelineBuilder::transform).build().unwrap();
        let batch = pipeline.epoch(0).next().unwrap().unwrap();
        for threads in [0, 1, 3] {
            let options = PreprocessorOptions { dtype, layout, threads, ..PreprocessorOptions::default() };
            let preprocessor = Preprocessor::new(ops.to_vec(), &options).unwrap();
            for _ in 0..2 {
                let tensor = preprocessor.run(&borrowed).unwrap();
                assert_eq!((tensor.shape(), tensor.layout()), (batch.images().shape(), layout));
                assert!(tensor.as_bytes().unwrap() == batch.images().as_bytes().unwrap(), "{dtype} {threads}");
            }
        }
        let like = pipeline.preprocessor().unwrap();
        assert!(like.run(&borrowed).unwrap().as_bytes().unwrap() == batch.images().as_bytes().unwrap());
    }
}

#[test]
fn decoded_images_are_as_good() {
    let preprocessor = Preprocessor::new(ops(), &PreprocessorOptions::default()).unwrap();
    let mut decoded = Image::default();
    let jpeg = &jpegs()[1];
    let header = probe(jpeg).unwrap();
    let whole = crate::raster::Rect::full(header.size);
    crate::decode::Decoder::new().unwrap().decode(jpeg, &header, whole, false, &mut decoded).unwrap();
    let from_image = preprocessor.run_images(&[&decoded, &decoded]).unwrap();
    let from_bytes = preprocessor.run(&[jpeg, jpeg]).unwrap();
    assert_eq!(from_image.as_bytes().unwrap(), from_bytes.as_bytes().unwrap());
}

#[test]
fn an_error_names_the_first_bad_image_and_leaves_the_rest_usable() {
    let jpegs = jpegs();
    let cut = &jpegs[3][..jpegs[3].len() / 2];
    for threads in [0, 4] {
        let options = PreprocessorOptions { max_batch: 4, threads, ..PreprocessorOptions::default() };
        let preprocessor = Preprocessor::new(ops(), &options).unwrap();
        let error = preprocessor.run(&[&jpegs[0], cut, &jpegs[1]]).unwrap_err();
        assert!(matches!(error, Error::Sample { index: 1, .. }) && error.is_bad_sample(), "{error}");
        assert!(error.to_string().contains("image 1 of the call"), "{error}");
        assert!(preprocessor.run(&[&jpegs[0]]).is_ok());
        for count in [0, 5] {
            let error = preprocessor.run(&vec![&jpegs[0][..]; count]).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains("1 to 4"), "{error}");
        }
    }
    let panics = Custom::new("panics", |_| panic!("of the caller's own"));
    let ops = [Op::Custom(panics), CenterCrop::new(8).into()];
    let preprocessor = Preprocessor::new(ops.clone(), &PreprocessorOptions::default());
    let error = preprocessor.unwrap().run(&[&jpegs[0]]).unwrap_err();
    assert!(error.to_string().contains("of the caller's own"), "{error}");
    let error = crate::apply(&jpegs[0], &ops, &crate::ApplyOptions::default()).unwrap_err();
    assert!(matches!(&error, Error::Panic { message } if message.contains("of the caller's own")), "{error}");
}

#[test]
fn what_draws_or_ends_in_no_size_is_refused() {
    let options = PreprocessorOptions::default();
    let refused = |made: Result<Preprocessor>| {
        let error = made.unwrap_err();
        assert!(error.is_parameter(), "{error}");
        error.to_string()
    };
    assert!(refused(Preprocessor::from_preset(Preset::Train, &options)).contains("random_resized_crop"));
    assert!(refused(Preprocessor::new([Resize::shorter_side(8).into()], &options)).contains("same size"));
    let bytes = PreprocessorOptions { dtype: DType::U8, ..options };
    assert!(refused(Preprocessor::new(ops(), &bytes)).contains("f32, f16 or bf16"));
    assert!(Preprocessor::from_preset(Preset::Eval, &bytes).is_ok());
    assert!(refused(Preprocessor::new(ops(), &PreprocessorOptions { max_batch: 0, ..options })).contains("max_batch"));
    let source = EncodedImages::new([(jpegs().remove(0), 0)]);
    let train = Pipeline::builder(source.clone()).preset(Preset::Train).build().unwrap();
    assert!(refused(train.preprocessor()).contains("drawn at random"));
    let views = Pipeline::builder(source).views([crate::five_crop(8)]).build().unwrap();
    assert!(refused(views.preprocessor()).contains("one, once"));
}

const IMAGENET: &str = r#""mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]"#;

#[test]
fn timms_settings_are_read() {
    let resize = |to: Resize, interpolation| Op::from(to.interpolation(interpolation));
    let normalize = || Op::from(Normalize::new(crate::IMAGENET_MEAN, crate::IMAGENET_STD));
    // As timm publishes them: all settings, the data's alone, none.
    let resnet = format!(
        r#"{{"architecture": "resnet50", "num_classes": 1000, "num_features": 2048, "pretrained_cfg": {{
            "tag": "a1_in1k", "custom_load": false, "input_size": [3, 224, 224], "test_input_size": [3, 288, 288],
            "fixed_input_size": false, "interpolation": "bicubic", "crop_pct": 0.95, "test_crop_pct": 1.0,
            "crop_mode": "center", {IMAGENET}, "num_classes": 1000, "pool_size": [7, 7], "first_conv": "conv1",
            "classifier": "fc", "origin_url": "https://example.org", "paper_ids": "arXiv:2110.00476"}}}}"#
    );
    let want =
        vec![resize(Resize::shorter_side(235), Interpolation::Bicubic), CenterCrop::new(224).into(), normalize()];
    assert_eq!(timm_ops(&resnet).unwrap(), want);
    let squash = format!(
        r#"{{"input_size": [3, 256, 192], "crop_mode": "squash", "crop_pct": 1.0, "interpolation": "bilinear", {IMAGENET}}}"#
    );
    let size = Size::new(192, 256);
    let want = vec![resize(Resize::new(size), Interpolation::Bilinear), CenterCrop::new(size).into(), normalize()];
    assert_eq!(timm_ops(&squash).unwrap(), want);
    let want =
        vec![resize(Resize::shorter_side(256), Interpolation::Bicubic), CenterCrop::new(224).into(), normalize()];
    assert_eq!(timm_ops("{}").unwrap(), want);
}

#[test]
fn hugging_faces_settings_are_read() {
    let clip = r#"{"crop_size": {"height": 224, "width": 224}, "do_center_crop": true, "do_convert_rgb": true,
        "do_normalize": true, "do_rescale": true, "do_resize": true, "feature_extractor_type": "CLIPFeatureExtractor",
        "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_processor_type": "CLIPImageProcessor",
        "image_std": [0.26862954, 0.26130258, 0.27577711], "resample": 3, "rescale_factor": 0.00392156862745098,
        "size": {"shortest_edge": 224}}"#;
    let numbers = |numbers: [&str; 3]| numbers.map(|number| number.parse().unwrap());
    let mean = numbers(["0.48145466", "0.4578275", "0.40821073"]);
    let normalize = Normalize::new(mean, numbers(["0.26862954", "0.26130258", "0.27577711"]));
    let resize = Resize::shorter_side(224).interpolation(Interpolation::Bicubic);
    let want: Vec<Op> = vec![resize.into(), CenterCrop::new(224).into(), normalize.into()];
    assert_eq!(hugging_face_ops(clip).unwrap(), want);
    let bare = r#"{"do_normalize": false, "size": {"height": 32, "width": 48}, "do_flip_channel_order": false}"#;
    assert_eq!(hugging_face_ops(bare).unwrap(), [Resize::new(Size::new(48, 32)).into()]);
}

#[test]
fn settings_that_cannot_be_served_are_errors_that_say_so() {
    for (text, words) in [
        ("[]", "a JSON object"),
        (r#"{"crop_mode": "border"}"#, r#""crop_mode": "border" is not supported"#),
        (r#"{"interpolation": "random"}"#, r#""interpolation": "random""#),
        (r#"{"input_size": [1, 28, 28]}"#, r#""input_size": [1,28,28]"#),
        (r#"{"input_size": [3, 256, 192]}"#, "192 x 256"),
        (r#"{"input_size": [3, 0, 0]}"#, "a number of pixels"),
        (r#"{"crop_pct": 0}"#, "a number above 0"),
        (r#"{"mean": [0.5]}"#, "three numbers"),
        (r#"{"crop_percent": 0.9}"#, r#""crop_percent": 0.9 is not supported"#),
    ] {
        let error = timm_ops(text).unwrap_err().to_string();
        assert!(error.contains("timm's pretrained_cfg") && error.contains(words), "{error}");
    }
    let with = |settings: &str| {
        format!(r#"{{"size": {{"shortest_edge": 8}}, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]{settings}}}"#)
    };
    assert!(hugging_face_ops(&with("")).is_ok());
    for (settings, words) in [
        (r#", "size": 224"#, r#""size": 224 is not supported"#),
        (r#", "do_center_crop": true"#, "given with do_center_crop"),
        (r#", "resample": 6"#, r#""resample": 6 is not supported"#),
        (r#", "do_rescale": false"#, r#""do_rescale": false is not supported"#),
        (r#", "rescale_factor": 0.5"#, r#""rescale_factor": 0.5 is not supported"#),
        (r#", "do_flip_channel_order": true"#, r#""do_flip_channel_order": true is not supported"#),
        (r#", "crop_pct": 0.9"#, r#""crop_pct": 0.9 is not supported"#),
        (r#", "do_resize": "yes""#, "true or false"),
    ] {
        let error = hugging_face_ops(&with(settings)).unwrap_err().to_string();
        assert!(error.contains("preprocessor_config.json") && error.contains(words), "{error}");
    }
}
