//! Networks on libtorch take warpfeed's batches and learn from them.

use std::process::Command;
use warpfeed::ops::Resize;
use warpfeed::{
    DType, Device, LastBatch, Layout, Pipeline,
    image::{JpegOptions, encode_jpeg},
    source::EncodedImages,
};
use warpfeed_bench::step::{Outcome, Sgd, TrainingStep};
use warpfeed_bench::synth::{SynthSettings, image, write_folder};
use warpfeed_tch::{Network, Precision, TchStep};

const CLASSES: u32 = 3;

/// The result of each batch of 16 images, epoch after epoch; the last is padded if they do not come out even.
fn train(step: &mut TchStep, count: u32, epochs: u64, (dtype, layout): (DType, Layout)) -> Vec<Vec<Outcome>> {
    let jpeg = |i: u32| encode_jpeg(&image(3, i.into(), i % CLASSES, CLASSES), &JpegOptions::default()).unwrap();
    let images = EncodedImages::new((0..count).map(|i| (jpeg(i), i % CLASSES)));
    let builder =
        Pipeline::builder(images).batch_size(16).last_batch(LastBatch::Pad).shuffle(1).transform(Resize::new(64));
    let pipeline = builder.output(dtype, layout).device(Device::Cpu).build().unwrap();
    let epoch = |number| {
        step.begin_epoch(number).unwrap();
        let outcomes = pipeline.epoch(number).map(|batch| step.train(batch.unwrap()).unwrap()).collect();
        step.finish().unwrap();
        outcomes
    };
    (0..epochs).map(epoch).collect()
}

fn step(network: Network, precision: Precision) -> TchStep {
    let sgd = Sgd { learning_rate: 0.01, ..Sgd::default() };
    TchStep::new(network, precision, CLASSES, sgd, 1, tch::Device::Cpu).unwrap()
}

fn mean(outcomes: &[Outcome], of: fn(&Outcome) -> Option<f64>) -> f64 {
    outcomes.iter().map(|outcome| of(outcome).unwrap()).sum::<f64>() / outcomes.len() as f64
}

const PLAIN: (DType, Layout) = (DType::F32, Layout::Nchw);

#[test]
fn resnet18_learns() {
    for precision in [Precision::F32, Precision::Autocast] {
        let epochs = train(&mut step(Network::Resnet18, precision), 48, 8, PLAIN);
        let (first, last) = (&epochs[0], &epochs[epochs.len() - 1]);
        let losses = [first, last].map(|outcomes| mean(outcomes, |outcome| outcome.loss));
        assert!(losses[1] < 0.5 * losses[0], "{precision:?}: {losses:?}");
        let accuracy = mean(last, |outcome| outcome.accuracy);
        assert!(accuracy > 0.8, "{precision:?}: {accuracy}, of which chance is 0.33");
    }
}

#[test]
fn the_larger_networks_take_steps() {
    for network in [Network::Resnet50, Network::Resnet152] {
        let outcomes = train(&mut step(network, Precision::F32), 32, 1, PLAIN);
        assert_eq!(outcomes[0].len(), 2);
        assert!(outcomes[0].iter().all(|outcome| outcome.loss.unwrap().is_finite()), "{outcomes:?}");
    }
}

/// bfloat16 has 8 bits: its loss is near that of f32, and not the same.
#[test]
fn autocast_computes_in_other_numbers() {
    let [full, mixed] = [Precision::F32, Precision::Autocast]
        .map(|precision| train(&mut step(Network::Resnet18, precision), 16, 1, PLAIN)[0][0].loss.unwrap());
    assert!(mixed != full && (mixed - full).abs() < 0.03 * full, "{mixed} {full}");
}

/// Padding, type and layout of a batch change nothing but by rounding: 18 images, 2 of them in the second batch.
#[test]
fn batches_of_any_format_are_the_same_to_it() {
    let loss = |format| train(&mut step(Network::Resnet18, Precision::F32), 18, 1, format)[0].clone();
    let want = loss(PLAIN);
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::U8] {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            for (got, want) in loss((dtype, layout)).iter().zip(&want) {
                let (got, want) = (got.loss.unwrap(), want.loss.unwrap());
                let tolerance = match dtype {
                    DType::Bf16 => 5e-2,
                    DType::F16 => 1e-2,
                    _ => 2e-3,
                };
                assert!((got - want).abs() < tolerance * want, "{dtype} {layout:?}: {got} {want}");
            }
        }
    }
}

#[test]
fn what_cannot_be_trained_is_refused() {
    let sgd = Sgd::default();
    let wrong = TchStep::new(Network::Resnet18, Precision::F32, 0, sgd, 1, tch::Device::Cpu);
    assert!(wrong.err().unwrap().is_parameter());
    let mut step = step(Network::Resnet18, Precision::F32);
    let jpeg = encode_jpeg(&image(3, 0, 0, 1), &JpegOptions::default()).unwrap();
    for (label, side) in [(CLASSES, 64), (0, 64)] {
        let builder = Pipeline::builder(EncodedImages::new([(jpeg.clone(), label)])).transform(Resize::new(side));
        let batch = builder.device(Device::Cpu).build().unwrap().epoch(0).next().unwrap().unwrap();
        assert_eq!(step.train(batch).is_err_and(|error| error.is_parameter()), label == CLASSES);
    }
    if !tch::Cuda::is_available() {
        let missing = TchStep::new(Network::Resnet18, Precision::F32, 3, sgd, 1, tch::Device::Cuda(0));
        assert!(missing.err().unwrap().is_device());
    }
}

#[test]
fn the_command_runs_the_experiment() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images");
    write_folder(&images, &SynthSettings { seed: 3, ..SynthSettings::new(4, 2) }, |_| ()).unwrap();
    let run = |command: &str, options: &str| {
        let mut process = Command::new(env!("CARGO_BIN_EXE_warpfeed-tch"));
        process.arg(command).arg(&images).args(options.split(' ')).args(["--batch-size", "2"]);
        let output = process.args(["--device", "cpu", "--learning-rate", "0.01"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let out = folder.path().join("report");
    let options = format!("--models resnet18 --loads 1 --strategies fused --epochs 1 --out {}", out.display());
    let text = run("augment-load", &options);
    assert!(text.contains("Resnet18 in f32, trained with libtorch on the CPU"), "{text}");
    assert!(out.join("report.html").exists());
    let text = run("train", "--size 32 --epochs 2");
    assert_eq!(text.lines().filter(|line| line.trim_start().starts_with(['0', '1'])).count(), 2, "{text}");
}
