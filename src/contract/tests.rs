use std::sync::LazyLock;

use super::*;
use crate::ops::{CenterCrop, Interpolation, Normalize, Resize};
use crate::preset::{IMAGENET_MEAN, IMAGENET_STD};

fn operations() -> Vec<Op> {
    vec![
        Resize::shorter_side(64).interpolation(Interpolation::Bicubic).into(),
        CenterCrop::new(56).into(),
        Normalize::new(IMAGENET_MEAN, IMAGENET_STD).into(),
    ]
}

/// Made once: it runs all operations on all probe images.
fn contract() -> Contract {
    static CONTRACT: LazyLock<Contract> =
        LazyLock::new(|| Contract::new(operations(), &PreprocessorOptions::default()).unwrap());
    CONTRACT.clone()
}

/// Contracts are for years: whoever changes a probe image gives the set another number, and keeps the old one.
#[test]
fn probe_images_do_not_change() {
    let mut hash = Sha256::new();
    for probe in probes().unwrap() {
        hash.update(probe.name.as_bytes());
        hash.update(&probe.bytes);
    }
    assert_eq!(hex(&hash.finalize()), "662b544671f850de5e9baf885343d11fe4124fd68ad648683dd4e8f29e477404");
    assert_eq!(probes::VERSION, 1);
}

#[test]
fn probe_images_are_what_their_names_say() {
    let probes = probes().unwrap();
    let names: std::collections::BTreeSet<&str> = probes.iter().map(Probe::stem).collect();
    assert_eq!(names.len(), probes.len(), "each has a name of its own");
    for probe in &probes {
        let header = crate::decode::probe(&probe.bytes).unwrap();
        let is_jpeg = probe.name.ends_with(".jpg") && probe.name != "odd-png.jpg";
        assert_eq!(header.format == crate::decode::Format::Jpeg, is_jpeg, "{}", probe.name);
        let decoded = stage(&probe.bytes, &[], &PreprocessorOptions::default()).unwrap();
        assert_eq!(decoded.is_none(), probe.kind == probes::Kind::Truncated, "{}", probe.name);
    }
}

#[test]
fn a_contract_is_kept_and_read_again() {
    let contract = contract();
    let text = contract.to_json().unwrap();
    assert_eq!(Contract::parse(&text, "contract.json").unwrap(), contract);
    for threads in [0, 2] {
        let options = PreprocessorOptions { threads, max_batch: 3, dtype: DType::U8, ..PreprocessorOptions::default() };
        let preprocessor = Preprocessor::from_contract(&contract, &options).unwrap();
        assert_eq!((preprocessor.max_batch(), preprocessor.image_size()), (3, Size::new(56, 56)));
    }
    let wrong = |text: &str| Contract::parse(text, "contract.json").unwrap_err();
    assert!(wrong("{}").is_parameter() && wrong("[1]").is_parameter());
    assert!(wrong(&text[..text.len() / 2]).to_string().contains("contract.json"));
    let infinite = text.replacen("0.485", "4.85e99", 1);
    assert!(wrong(&infinite).to_string().contains("normalize"), "{}", wrong(&infinite));
    let newer = text.replacen("\"contract\": 1", "\"contract\": 2", 1);
    assert!(matches!(wrong(&newer), Error::Unsupported { .. }));
    let mut lacks = contract;
    lacks.probes[0].digests.as_mut().unwrap().pop();
    assert!(wrong(&lacks.to_json().unwrap()).to_string().contains("5 digests"));
}

#[test]
fn the_first_operation_that_differs_is_named() {
    let broken = |change: &dyn Fn(&mut Contract)| {
        let mut contract = contract();
        change(&mut contract);
        match Preprocessor::from_contract(&contract, &PreprocessorOptions::default()).unwrap_err() {
            Error::Contract { image, stage } => (image, stage),
            other => panic!("{other}"),
        }
    };
    let other = |op: Op, at: usize| broken(&|contract| contract.operations[at] = op.clone()).1;
    let bilinear = Resize::shorter_side(64).into();
    assert_eq!(other(bilinear, 0), "operation 1, resize");
    assert_eq!(other(crate::ops::Crop::new(1, 0, 56).into(), 1), "operation 2, crop");
    assert_eq!(other(Normalize::new(IMAGENET_STD, IMAGENET_MEAN).into(), 2), "operation 3, normalize");
    let (image, stage) = broken(&|contract| contract.settings.orientation = Orientation::Ignore);
    assert_eq!((&*image, &*stage), ("jpeg-exif-2.jpg", "decoding"));
    let (image, stage) = broken(&|contract| contract.settings.accept_truncated = true);
    assert_eq!(image, "odd-truncated.jpg");
    assert!(stage.contains("which the contract refuses"), "{stage}");
    assert_eq!(broken(&|contract| contract.settings.layout = Layout::Nhwc).1, "conversion to the tensor");
    assert_eq!(broken(&|contract| contract.settings.pass_order = PassOrder::HorizontalFirst).1, "operation 1, resize");
}

#[test]
fn what_cannot_be_served_or_written_is_refused() {
    let options = PreprocessorOptions::default();
    let custom = crate::ops::Custom::new("own", |_| ());
    let error = Contract::new([Op::Custom(custom), CenterCrop::new(8).into()], &options).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("own operation"), "{error}");
    assert!(Contract::new([Resize::shorter_side(8).into()], &options).unwrap_err().is_parameter());
    assert!(Contract::of(Preset::Train, &options).unwrap_err().is_parameter());
    let bytes = PreprocessorOptions { dtype: DType::U8, ..options };
    assert!(Contract::of(Preset::Eval, &bytes).is_ok());
}

/// Writes the images that a program with other operations and settings makes of the probe images.
fn outputs(folder: &Path, operations: &[Op], options: &PreprocessorOptions) {
    static PROBES: LazyLock<Vec<Probe>> = LazyLock::new(|| probes().unwrap());
    let preprocessor = Preprocessor::new(operations.iter().cloned(), options).unwrap();
    for probe in PROBES.iter() {
        if let Some(tensor) = tensor(&probe.bytes, &preprocessor).unwrap() {
            crate::tensor::write_npy(&tensor, folder.join(format!("{}.npy", probe.stem()))).unwrap();
        }
    }
}

/// The causes that are found, by operation and text.
fn causes(operations: &[Op], options: &PreprocessorOptions) -> Vec<(usize, String)> {
    let folder = tempfile::tempdir().unwrap();
    outputs(folder.path(), operations, options);
    let found = contract().compare(folder.path(), 0.02).unwrap();
    assert!(found.unexplained.is_empty(), "{:?}", found.unexplained);
    assert_eq!(found.is_equal(), found.causes.is_empty());
    found.causes.into_iter().map(|cause| (cause.operation, cause.text)).collect()
}

#[test]
fn mistakes_of_other_programs_are_found_by_name() {
    let options = PreprocessorOptions::default();
    assert_eq!(causes(&operations(), &options), []);
    let with = |at: usize, op: Op| {
        let mut operations = operations();
        operations[at] = op;
        causes(&operations, &options)
    };
    let bilinear = Resize::shorter_side(64).into();
    assert_eq!(with(0, bilinear), [(1, "bilinear, not bicubic".to_owned())]);
    let squashed = Resize::new(Size::new(64, 64)).interpolation(Interpolation::Bicubic).into();
    assert_eq!(with(0, squashed), [(1, "to exactly 64 x 64, not the shorter side to 64".to_owned())]);
    let swapped = Normalize::new(IMAGENET_STD, IMAGENET_MEAN).into();
    assert_eq!(with(2, swapped), [(3, "mean and std are swapped".to_owned())]);
    let orientation = PreprocessorOptions { orientation: Orientation::Ignore, ..options };
    assert_eq!(causes(&operations(), &orientation), [(0, "the EXIF orientation is ignored".to_owned())]);
    let last = PreprocessorOptions { layout: Layout::Nhwc, ..options };
    assert_eq!(causes(&operations(), &last), [(4, "the dimensions have another order (NCHW, NHWC)".to_owned())]);
    let truncated = PreprocessorOptions { accept_truncated: true, ..options };
    let found = causes(&operations(), &truncated);
    assert!(matches!(&found[..], [(0, text)] if text.contains("truncated")), "{found:?}");
    let draft = PreprocessorOptions { draft: Some(Size::new(64, 64)), ..options };
    let found = causes(&operations(), &draft);
    assert!(matches!(&found[..], [(0, text)] if text.contains("smaller scale")), "{found:?}");
}

#[test]
fn bytes_are_compared_as_images_too() {
    let options = PreprocessorOptions { dtype: DType::U8, ..PreprocessorOptions::default() };
    let contract = Contract::new(operations()[..2].to_vec(), &options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for reversed in [false, true] {
        for probe in probes().unwrap() {
            let Some(tensor) = stage(&probe.bytes, &operations()[..2], &options).unwrap() else { continue };
            let mut image = crate::raster::Image::from_rgb(Size::new(56, 56), tensor.as_bytes().unwrap()).unwrap();
            image.pixels_mut().iter_mut().filter(|_| reversed).for_each(|pixel| pixel.swap(0, 2));
            crate::output::sheet::write_png(&image, folder.path().join(format!("{}.png", probe.stem()))).unwrap();
        }
        let found = contract.compare(folder.path(), 0.02).unwrap();
        let causes: Vec<&str> = found.causes.iter().map(|cause| cause.text.as_str()).collect();
        assert_eq!(causes.len(), usize::from(reversed), "{causes:?}");
        assert!(found.is_equal() != reversed && found.unexplained.is_empty(), "{:?}", found.unexplained);
        assert!(causes.iter().all(|cause| cause.contains("BGR")), "{causes:?}");
    }
}

#[test]
fn what_is_missing_unknown_or_no_image_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let compare = || contract().compare(folder.path(), 0.02);
    assert!(compare().unwrap_err().is_parameter());
    let inverted = [&[crate::ops::Invert.into()], &operations()[..2], &[crate::ops::Vflip.into()], &operations()[2..]];
    outputs(folder.path(), &inverted.concat(), &PreprocessorOptions::default());
    std::fs::remove_file(folder.path().join("png-rgb.npy")).unwrap();
    let found = compare().unwrap();
    assert_eq!((found.equal, found.missing, found.causes), (1, 1, vec![]));
    assert_eq!(found.unexplained.len(), found.differing);
    assert!(found.probes.iter().all(|probe| (probe.outcome == ProbeOutcome::Missing)
        == (probe.image == "png-rgb.png")
        && probe.first.is_none()));

    // The program's image after each operation.
    let stages = [("0", &[][..]), ("1", &inverted[1][..1])];
    let probe = probes().unwrap().into_iter().find(|probe| probe.name == "jpeg-420.jpg").unwrap();
    for (number, operations) in stages {
        let tensor = stage(&probe.bytes, operations, &PreprocessorOptions::default()).unwrap().unwrap();
        crate::tensor::write_npy(&tensor, folder.path().join(format!("jpeg-420.{number}.npy"))).unwrap();
    }
    let first = || compare().unwrap().probes.into_iter().find(|result| result.image == probe.name).unwrap().first;
    assert_eq!(first(), None);
    let shifted = [operations()[0].clone(), crate::ops::Crop::new(0, 0, 56).into()];
    let tensor = stage(&probe.bytes, &shifted, &PreprocessorOptions::default()).unwrap().unwrap();
    crate::tensor::write_npy(&tensor, folder.path().join("jpeg-420.2.npy")).unwrap();
    assert_eq!(first().unwrap(), "operation 2, center_crop");

    std::fs::write(folder.path().join("png-wide.npy"), "no array").unwrap();
    let error = compare().unwrap_err().to_string();
    assert!(error.contains("png-wide.npy"), "{error}");
}
