//! What trainers rely on: whole sets, sources that know their size, batches without padding, images left out.

use crate::common::{as_made, jpeg, small, source};
use candle_core::Device as Candle;
use std::borrow::Cow;
use std::fs;
use warpfeed::fields::Fields;
use warpfeed::image::Size;
use warpfeed::ops::{CenterCrop, Crop, Op, Pad, PadMode, RandomCrop, random_crop, random_horizontal_flip};
use warpfeed::source::{CifarFiles, DecodedImages, IdxFile, ImageFolder, ReadRequest, Sample, Source, SourceExt};
use warpfeed::{
    DType, Device, Error, LastBatch, Layout, Mix, OnError, Pipeline, PipelineBuilder, Result, TargetSpec, apply, view,
};

/// Two records of CIFAR-10.
fn cifar() -> (tempfile::TempDir, CifarFiles) {
    let folder = tempfile::tempdir().unwrap();
    let record = |label: u8| [vec![label], (0..3072_u32).map(|i| (i * u32::from(label + 1)) as u8).collect()].concat();
    let path = folder.path().join("data_batch_1.bin");
    fs::write(&path, [record(3), record(9)].concat()).unwrap();
    let files = CifarFiles::cifar10([&path]).unwrap();
    (folder, files)
}

fn plain(source: impl Source + 'static) -> PipelineBuilder {
    Pipeline::builder(source).device(Device::Cpu).output(DType::U8, Layout::Nhwc)
}

#[test]
fn every_source_of_the_prelude_can_be_cloned() {
    use warpfeed::prelude::*;
    fn cloned<T: Source + Clone + Send + Sync + 'static>() {}
    for clone in [
        cloned::<CifarFiles>,
        cloned::<CocoFiles>,
        cloned::<DecodedImages>,
        cloned::<EncodedImages>,
        cloned::<IdxFile>,
        cloned::<ImageFolder>,
        cloned::<ListFile>,
        cloned::<MaskFolder>,
        cloned::<PanopticFiles>,
        cloned::<ParquetFiles>,
        cloned::<RecordShards>,
        cloned::<VocFolder>,
        cloned::<YoloFolder>,
    ] {
        clone();
    }
}

#[test]
fn sources_of_one_size_need_no_crop() {
    let (_folder, files) = cifar();
    let whole = plain(files.clone()).transform(CenterCrop::new(32)).build().unwrap().collect(0).unwrap();
    for source in [files.clone().into_source(), files.clone().subset([0, 1]).unwrap().into_source()] {
        let pipeline = plain(source).build().unwrap();
        assert_eq!(pipeline.image_size(), Size::new(32, 32));
        assert_eq!(pipeline.collect(0).unwrap().images().as_bytes().unwrap(), whole.images().as_bytes().unwrap());
    }
    let padded = plain(files.clone()).transform(Pad::new(4).mode(PadMode::Reflect));
    assert_eq!(padded.clone().build().unwrap().image_size(), Size::new(40, 40));
    let usual = padded.transform(random_crop(32, 0)).transform(random_horizontal_flip(0.5));
    assert_eq!(usual.build().unwrap().collect(1).unwrap().images().shape(), [2, 32, 32, 3]);

    // The same pixels as padding first.
    let at_once = plain(files.clone()).transform(RandomCrop::new(32).padding(4).padding_mode(PadMode::Reflect));
    let batch = at_once.build().unwrap().collect(1).unwrap();
    for i in 0..batch.len() {
        let recipe = batch.recipes(i).unwrap().remove(0);
        let Some(Op::Crop(crop)) = recipe.last() else { panic!("{recipe:?}") };
        let [left, top] = match &recipe[..] {
            [Op::Pad(pad), _] => [pad.left as i32, pad.top as i32],
            _ => [0, 0],
        };
        let whole =
            [Pad::new(4).mode(PadMode::Reflect).into(), Crop::new(crop.x - left + 4, crop.y - top + 4, 32).into()];
        let want = apply(&files.encoded(batch.indices()[i]).unwrap(), &whole, &as_made(&whole)).unwrap();
        assert_eq!(batch.images().image_bytes(i).unwrap(), want.as_bytes().unwrap(), "{recipe:?}");
    }

    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("train-images-idx3-ubyte");
    fs::write(&images, [0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 10, 20, 30, 40]).unwrap();
    fs::write(folder.path().join("train-labels-idx1-ubyte"), [0, 0, 8, 1, 0, 0, 0, 2, 7, 9]).unwrap();
    let digits = IdxFile::open(&images).unwrap();
    let batch = plain(digits.clone()).channels(1).build().unwrap().collect(0).unwrap();
    assert_eq!((batch.images().shape(), batch.labels().unwrap()), ([2, 1, 2, 1], &[7, 9][..]));
    assert_eq!(batch.images().as_bytes().unwrap(), [10, 20, 30, 40]);

    let image = |width: u32| (Size::new(width, 1), vec![7; 3 * width as usize], 0);
    assert!(plain(DecodedImages::new([image(2), image(2)]).unwrap()).build().is_ok());
    assert!(plain(DecodedImages::new([image(2), image(3)]).unwrap()).build().unwrap_err().is_parameter());
}

/// A source that promises images of 20 x 20 pixels, and has one of another size.
struct Promising(Vec<Vec<u8>>);

impl Source for Promising {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read<'a>(&'a self, index: u64, _want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        sample.lend(&self.0[index as usize]);
        Ok(())
    }

    fn label(&self, _index: u64) -> Option<u32> {
        Some(0)
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("promised {index}").into()
    }

    fn image_size(&self) -> Option<Size> {
        Some(Size::new(20, 20))
    }
}

#[test]
fn an_image_of_another_size_than_promised_is_a_bad_sample() {
    let images = || Promising([20, 21, 20].map(|width| jpeg(width, 20, 1)).to_vec());
    let error = plain(images()).build().unwrap().epoch(0).find_map(Result::err).unwrap();
    assert!(error.is_bad_sample(), "{error}");
    assert!(error.to_string().contains("promised 1") && error.to_string().contains("21 x 20"), "{error}");
    let batch = plain(images()).on_error(OnError::Skip).build().unwrap().collect(0).unwrap();
    assert_eq!(batch.indices(), [0, 2]);
}

#[test]
fn a_collected_epoch_is_the_epoch() {
    let builder = || small(source(23)).views([view([]), view([]).times(2)]).on_error(OnError::Substitute);
    let pipeline = builder().last_batch(LastBatch::Drop).build().unwrap();
    let whole = pipeline.collect(3).unwrap();
    let kept = builder().build().unwrap();
    let (mut at, mut indices) = (0, Vec::new());
    for batch in kept.epoch(3) {
        let batch = batch.unwrap();
        indices.extend_from_slice(batch.indices());
        for i in 0..batch.len() {
            let image = |of: &warpfeed::Batch, view: usize, image: usize| {
                of.view(view).unwrap().image_bytes(image).unwrap().to_vec()
            };
            assert_eq!(image(&batch, 0, i), image(&whole, 0, at + i));
            assert_eq!(image(&batch, 1, batch.len() + i), image(&whole, 1, whole.len() + at + i));
        }
        at += batch.len();
    }
    assert_eq!((whole.len(), whole.indices(), whole.padding()), (23, &indices[..], 0));
    assert_eq!(small(source(23)).limit(7).build().unwrap().collect(0).unwrap().len(), 7);

    let boxes = source(4)
        .fields(["n"], |sample: warpfeed::source::Described<'_>| Fields::new().with("n", vec![sample.index as i64]));
    let fields = small(boxes).fields(["n"]).build().unwrap().collect(0).unwrap();
    assert_eq!(fields.fields(0).unwrap().integers("n").unwrap().to_vec().len(), 4);

    let mixed = small(source(8)).targets(TargetSpec::soft(10)).mix(Mix::timm(0.8, 1.0)).build().unwrap();
    assert!(mixed.collect(0).unwrap_err().is_parameter());
    let large = Pipeline::builder(source(1).choose((1 << 20) + 1, 0).unwrap()).transform(CenterCrop::new(1));
    assert!(matches!(large.build().unwrap().collect(0), Err(Error::Limits { .. })));
}

/// The values of an image of a tensor.
fn floats(tensor: &warpfeed::Tensor, image: usize) -> Vec<f32> {
    tensor.image_bytes(image).unwrap().as_chunks::<4>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
}

#[test]
fn candle_gets_no_padding() {
    let builder = || small(source(7)).last_batch(LastBatch::Pad);
    let count = |pipeline: &Pipeline| -> Vec<usize> {
        let of = |batch: Result<warpfeed::Batch>| {
            let (images, labels) = batch.unwrap().into_candle(&Candle::Cpu).unwrap();
            assert_eq!(images.dim(0).unwrap() % labels.dim(0).unwrap(), 0);
            labels.dim(0).unwrap()
        };
        pipeline.epoch(0).map(of).collect()
    };
    assert_eq!(count(&builder().build().unwrap()), [5, 2]);
    let twice = builder().views([view([]).times(2)]).build().unwrap();
    assert_eq!(count(&twice), [5, 2]);
    let last = twice.epoch(0).nth(1).unwrap().unwrap();
    let want: Vec<f32> = [0, 1, 5, 6].iter().flat_map(|&i| floats(last.images(), i)).collect();
    let (images, _) = last.into_candle(&Candle::Cpu).unwrap();
    assert_eq!(images.flatten_all().unwrap().to_vec1::<f32>().unwrap(), want);
}

#[test]
fn candles_functions_take_the_error() {
    fn fails() -> candle_core::Result<ImageFolder> {
        Ok(ImageFolder::open("/there/is/no/such/folder")?)
    }
    assert!(fails().unwrap_err().to_string().contains("/there/is/no/such/folder"));
}

#[test]
fn images_that_a_folder_leaves_out_are_said() {
    let root = tempfile::tempdir().unwrap();
    let image = |path: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, jpeg(20, 20, 1)).unwrap();
    };
    ["a/1.jpg", "b/2.jpg", "b/notes.txt"].into_iter().for_each(image);
    assert!(ImageFolder::open(root.path()).unwrap().warnings().is_empty());
    ["a/3.bmp", "4.jpg"].into_iter().for_each(image);
    let warnings = ImageFolder::open(root.path()).unwrap().warnings();
    assert!(
        warnings[0].ends_with("1 .bmp, 1 .jpg beside the class folders left out, and 2 images read"),
        "{warnings:?}"
    );
    ["5.jpg"].into_iter().for_each(image);
    let error = ImageFolder::open(root.path()).unwrap_err().to_string();
    assert!(error.contains("2 .jpg beside the class folders, 1 .bmp left out") && error.contains("below"), "{error}");
    let below = ImageFolder::below(root.path()).unwrap();
    assert_eq!((below.len(), below.has_labels(), below.warnings().len()), (4, false, 1));
}
