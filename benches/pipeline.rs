//! Whole epochs over images in memory: presets, loads and strategies, on one thread and on all.

mod common;

use divan::Bencher;
use divan::counter::ItemsCount;
use std::fmt;
use std::num::NonZero;
use warpfeed::{EncodedImages, Pipeline, Preset, Strategy};

struct Case {
    preset: Preset,
    strategy: Strategy,
    threads: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.preset {
            Preset::Train => write!(f, "train")?,
            Preset::Eval => write!(f, "eval")?,
            Preset::TrialA { load } => write!(f, "trial-a {load}")?,
            Preset::TrialB { load } => write!(f, "trial-b {load}")?,
        }
        match self.strategy {
            Strategy::Fused => {}
            Strategy::Sequential => write!(f, ", sequential")?,
            Strategy::Composed => write!(f, ", composed")?,
        }
        write!(f, ", {} threads", self.threads)
    }
}

fn cases() -> Vec<Case> {
    let all = std::thread::available_parallelism().map_or(1, NonZero::get);
    let fused = [
        Preset::Train,
        Preset::Eval,
        Preset::TrialA { load: 1 },
        Preset::TrialA { load: 4 },
        Preset::TrialA { load: 8 },
        Preset::TrialA { load: 12 },
        Preset::TrialB { load: 4 },
    ]
    .map(|preset| (preset, Strategy::Fused));
    let others = [Strategy::Sequential, Strategy::Composed].map(|strategy| (Preset::TrialA { load: 4 }, strategy));
    let mut cases = Vec::new();
    for (preset, strategy) in fused.into_iter().chain(others) {
        cases.push(Case { preset, strategy, threads: 1 });
        if all > 1 {
            cases.push(Case { preset, strategy, threads: all });
        }
    }
    cases
}

fn main() {
    divan::main();
}

#[divan::bench(args = cases(), sample_count = 5, sample_size = 1)]
fn epoch(bencher: Bencher<'_, '_>, case: &Case) {
    let source = EncodedImages::new(common::images().iter().map(|bytes| (bytes.clone(), 0)));
    let pipeline = Pipeline::builder(source)
        .shuffle(1)
        .threads(case.threads)
        .strategy(case.strategy)
        .preset(case.preset)
        .build()
        .expect("presets are valid");
    let mut number = 0;
    bencher.counter(ItemsCount::new(pipeline.len().unwrap_or(0))).bench_local(|| {
        for batch in pipeline.epoch(number) {
            divan::black_box(batch.expect("the images are whole"));
        }
        number += 1;
    });
}
