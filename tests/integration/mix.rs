//! MixUp and CutMix in pipelines. src/backend/cpu/mix.rs compares their arithmetic.

use crate::common::{self, on_cpu, small, source};
use warpfeed::source::SourceExt as _;
use warpfeed::{Batch, DType, Device, LastBatch, Layout, Mix, OnError, Partition, Pipeline, TargetSpec, Targets};

const SPECS: [&str; 6] = [
    "torchvision=0.4/0",
    "torchvision=0/1",
    "timm=0.8/1",
    "timm=0.8/1,mode=pair",
    "timm=0.8/1,mode=elem,probability=0.8",
    "timm=0/1,mode=elem,minmax=0.2/0.8",
];

fn mix(text: &str) -> Mix {
    text.parse().unwrap()
}

fn batches(pipeline: &Pipeline) -> Vec<Batch> {
    pipeline.epoch(1).map(Result::unwrap).collect()
}

fn rows(batch: &Batch) -> &[f32] {
    match batch.targets() {
        Some(Targets::Numbers(numbers)) => numbers.as_slice().unwrap(),
        other => unreachable!("{other:?}"),
    }
}

fn all(batches: &[Batch]) -> Vec<(Vec<u8>, Vec<f32>, Vec<f32>)> {
    let of = |batch: &Batch| {
        let shares = batch.mixed().unwrap().shares().to_vec();
        (batch.images().as_bytes().unwrap().to_vec(), rows(batch).to_vec(), shares)
    };
    batches.iter().map(of).collect()
}

/// Images and targets of each batch are those of the batch that is not mixed, by the shares that are told.
#[test]
fn batches_are_mixed_as_they_say() {
    for text in SPECS {
        let builder = || small(source(23)).targets(TargetSpec::soft(10).smoothing(0.1));
        let (plain, mixed) = (batches(&on_cpu(builder())), batches(&on_cpu(builder().mix(mix(text)))));
        let mut changed = 0;
        for (plain, batch) in plain.iter().zip(&mixed) {
            let (count, by) = (batch.len(), batch.mixed().unwrap());
            assert_eq!((batch.labels().unwrap(), batch.indices()), (plain.labels().unwrap(), plain.indices()));
            for i in 0..count {
                let partner = if text.starts_with("timm") { count - 1 - i } else { (i + count - 1) % count };
                assert_eq!(
                    (by.partners()[i], by.partner_labels().unwrap()[i]),
                    (partner, batch.labels().unwrap()[partner])
                );
                let share = by.shares()[i];
                let mixed_row =
                    |k: usize| rows(plain)[i * 10 + k] * share + rows(plain)[partner * 10 + k] * (1.0 - share);
                for k in 0..10 {
                    assert!((rows(batch)[i * 10 + k] - mixed_row(k)).abs() < 1e-6, "{text}");
                }
                let image = |batch: &Batch, i: usize| -> Vec<f32> {
                    let bytes = batch.images().image_bytes(i).unwrap();
                    bytes.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect()
                };
                let (own, other, got) = (image(plain, i), image(plain, partner), image(batch, i));
                let blended = |e: usize| (own[e] * share + other[e] * (1.0 - share) - got[e]).abs() < 1e-6;
                let is_blend = (0..got.len()).all(blended);
                // Of each rectangle's pixels the partner's are there, of all others the image's own.
                let pasted = (0..got.len()).filter(|&e| got[e] != own[e]).count();
                let is_paste = (0..got.len()).all(|e| got[e] == own[e] || got[e] == other[e])
                    && pasted as f32 <= (1.0 - share) * got.len() as f32 + 0.5;
                assert!(is_blend || is_paste, "{text}: image {i}, share {share}");
                changed += usize::from(got != own);
            }
        }
        assert!(changed > 10, "{text}: {changed}");
    }
}

#[test]
fn threads_prefetch_and_resuming_do_not_matter_and_ranks_draw_their_own() {
    for text in SPECS {
        let builder = || small(source(23)).targets(TargetSpec::soft(10)).mix(mix(text));
        let whole = all(&batches(&on_cpu(builder())));
        assert_eq!(all(&batches(&on_cpu(builder().threads(0).prefetch(4)))), whole, "{text}");
        let pipeline = on_cpu(builder());
        let state = pipeline.epoch(1).nth(1).unwrap().unwrap().state();
        let rest: Vec<Batch> = pipeline.resume(&state).unwrap().map(Result::unwrap).collect();
        assert_eq!(all(&rest), whole[2..], "{text}");

        let error = on_cpu(builder().batch_size(6)).resume(&state).unwrap_err().to_string();
        assert!(error.contains("of 6 images") && error.contains("of 5 images"), "{error}");
        let error = on_cpu(small(source(23))).resume(&state).unwrap_err().to_string();
        assert!(error.contains("no mixing"), "{error}");

        let shares = |rank| {
            let pipeline = on_cpu(builder().partition(Partition::new(rank, 2).unwrap()));
            all(&batches(&pipeline)).into_iter().map(|(_, _, shares)| shares).collect::<Vec<_>>()
        };
        assert_ne!(shares(0), shares(1), "{text}");
    }
    // Without mixing another batch size resumes as ever.
    let state = on_cpu(small(source(23))).epoch(1).next().unwrap().unwrap().state();
    assert!(on_cpu(small(source(23)).batch_size(6)).resume(&state).is_ok());
}

#[test]
fn short_and_padded_batches_are_mixed_as_they_are() {
    for (text, last) in SPECS.into_iter().flat_map(|text| [(text, LastBatch::Keep), (text, LastBatch::Pad)]) {
        let bad = common::WithBad { good: source(23), bad: vec![0, 7, 8] };
        let builder = small(bad).last_batch(last).on_error(OnError::Skip).mix(mix(text).hard_labels(true));
        for batch in batches(&on_cpu(builder)) {
            let mixed = batch.mixed().unwrap();
            assert_eq!((mixed.shares().len(), mixed.partners().len()), (batch.len(), batch.len()));
        }
    }
}

#[test]
fn every_output_type_is_mixed_and_labels_alone_are_left_as_they_are() {
    for (dtype, layout) in [(DType::U8, Layout::Nhwc), (DType::F16, Layout::Nchw), (DType::Bf16, Layout::Nhwc)] {
        let builder = || small(source(23)).output(dtype, layout).targets(TargetSpec::class(10));
        let (plain, mixed) =
            (batches(&on_cpu(builder())), batches(&on_cpu(builder().mix(mix("timm=0.8/0,hard-labels")))));
        for (plain, mixed) in plain.iter().zip(&mixed) {
            assert!(plain.images().as_bytes().unwrap() != mixed.images().as_bytes().unwrap());
            let Some(Targets::Numbers(classes)) = mixed.targets() else { unreachable!("they were asked for") };
            assert_eq!(classes.as_slice::<u32>().unwrap(), mixed.labels().unwrap());
        }
        assert!(plain[0].mixed().is_none());
    }
    let error = small(source(3)).mix(Mix::timm(0.0, 0.0)).build().unwrap_err();
    assert!(error.is_parameter(), "{error}");
}

#[test]
fn labels_that_do_not_say_what_mixed_images_show_are_refused() {
    for targets in [None, Some(TargetSpec::class(10)), Some(TargetSpec::bytes())] {
        let builder = || targets.iter().cloned().fold(small(source(9)), warpfeed::PipelineBuilder::targets);
        for spec in SPECS {
            let error = builder().mix(mix(spec)).build().unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains("TargetSpec::soft"), "{error}");
            assert!(error.to_string().contains("hard_labels"), "{error}");
        }
    }
    let told = mix("torchvision=0/1,hard-labels");
    assert_eq!(
        (told.to_string().as_str(), &told),
        ("torchvision=0/1,hard-labels", &Mix::torchvision(0.0, 1.0).hard_labels(true))
    );
    assert!(small(source(9)).mix(told).build().is_ok());
    assert!(small(source(9)).targets(TargetSpec::multi_hot(10)).mix(mix("timm=0.8/1")).build().is_ok());
}

/// A data set of one class trains on nothing, and timm's Mixup takes it too: its soft targets are 1.
#[test]
fn one_class_is_enough() {
    for smoothing in [0.0, 0.1] {
        let one = common::source(9).map_labels(["only"], |_| 0);
        let builder = small(one).targets(TargetSpec::soft(1).smoothing(smoothing)).mix(mix("timm=0.8/1"));
        for batch in batches(&on_cpu(builder)) {
            assert!(rows(&batch).iter().all(|share| *share == 1.0), "{:?}", rows(&batch));
        }
    }
}

#[test]
fn no_target_is_left_behind() {
    let pipeline = on_cpu(small(source(9)).targets(TargetSpec::soft(10)).mix(mix("timm=0.8/1")));
    let mut batches = batches(&pipeline);
    let error = batches.pop().unwrap().into_candle(&candle_core::Device::Cpu).unwrap_err().to_string();
    assert!(error.contains("take_targets"), "{error}");
    let mut batch = batches.pop().unwrap();
    assert!(batch.take_targets().is_some() && batch.into_candle(&candle_core::Device::Cpu).is_ok());
}

#[test]
fn the_command_mixes() {
    let folder = tempfile::tempdir().unwrap();
    let options = warpfeed::pack::PackOptions::new(warpfeed::source::RecordFormat::TfRecord);
    warpfeed::pack::pack(&source(9), &folder.path().join("a"), &options, &mut |_| {}).unwrap();
    let digest = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command
            .arg("run")
            .arg(folder.path().join("a"))
            .args(["--json", "--digest", "--device", "cpu", "--preset", "eval"]);
        let output = command.args(arguments).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        json["digest"].as_str().unwrap().to_owned()
    };
    let mixed = digest(&["--mix", "timm=0.8/1,mode=elem", "--targets", "soft=10/0.1", "--batch-size", "4"]);
    let again = ["--mix", "timm=0.8/1,mode=elem", "--targets", "soft=10/0.1", "--batch-size", "4", "--threads", "1"];
    assert_eq!(digest(&again), mixed);
    assert_ne!(digest(&["--targets", "soft=10/0.1", "--batch-size", "4"]), mixed);
}

#[test]
fn mixing_is_counted_where_the_cpu_does_it() {
    let mix_time = |builder: warpfeed::PipelineBuilder| {
        let mut epoch = builder.device(Device::Cpu).build().unwrap().epoch(0);
        assert!(epoch.all(|batch| batch.is_ok()));
        epoch.stats().mix
    };
    assert!(mix_time(small(source(9)).mix(Mix::timm(0.8, 1.0).hard_labels(true))) > std::time::Duration::ZERO);
    assert_eq!(mix_time(small(source(9))), std::time::Duration::ZERO);
}
