//! Whole epochs over images in memory, on one thread and on all.

mod common;

use divan::Bencher;
use divan::counter::ItemsCount;
use std::fmt;
use std::num::NonZero;
use warpfeed::{Pipeline, PipelineBuilder, Preset, Strategy, ops::Transform, source::EncodedImages};
use warpfeed_bench::trial::Trial;

struct Case {
    name: String,
    ops: Vec<Transform>,
    strategy: Strategy,
    threads: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
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
    let trial_a = |load| (format!("trial-a {load}"), Trial::A { load }.ops());
    let mut fused = vec![("train".to_owned(), Preset::Train.ops()), ("eval".to_owned(), Preset::Eval.ops())];
    fused.extend([1, 4, 8, 12].map(trial_a));
    fused.push(("trial-b 4".to_owned(), Trial::B { load: 4 }.ops()));
    let fused = fused.into_iter().map(|pipeline| (pipeline, Strategy::Fused));
    let others = [Strategy::Sequential, Strategy::Composed].map(|strategy| (trial_a(4), strategy));
    let mut cases = Vec::new();
    for ((name, ops), strategy) in fused.chain(others) {
        for threads in if all > 1 { vec![1, all] } else { vec![1] } {
            cases.push(Case { name: name.clone(), ops: ops.clone(), strategy, threads });
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
    let builder = Pipeline::builder(source).shuffle(1).threads(case.threads).strategy(case.strategy);
    let pipeline =
        case.ops.iter().cloned().fold(builder, PipelineBuilder::transform).build().expect("presets are valid");
    let mut number = 0;
    bencher.counter(ItemsCount::new(pipeline.num_samples().unwrap_or(0))).bench_local(|| {
        for batch in pipeline.epoch(number) {
            divan::black_box(batch.expect("the images are whole"));
        }
        number += 1;
    });
}
