//! Measures how much of an epoch your own training step takes, and how much is waiting.

use std::time::{Duration, Instant};
use warpfeed::ops::random_resized_crop;
use warpfeed::{
    Batch, Pipeline, Result,
    image::{JpegOptions, encode_jpeg},
    source::EncodedImages,
};
use warpfeed_bench::step::{Outcome, TrainingStep};
use warpfeed_bench::synth::image;

/// Learns the mean of all pixel values.
struct Mean(f64);

impl TrainingStep for Mean {
    fn name(&self) -> String {
        "the mean of all values, on the CPU".to_owned()
    }

    fn train(&mut self, batch: Batch) -> Result<Outcome> {
        let values = batch.images().as_slice::<f32>()?;
        let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / values.len() as f64;
        let loss = Some((mean - self.0).powi(2));
        self.0 += 0.5 * (mean - self.0);
        Ok(Outcome { loss, accuracy: None })
    }
}

fn main() -> Result<()> {
    let jpeg = |i: u32| encode_jpeg(&image(1, i.into(), i % 4, 4), &JpegOptions::default());
    let images = (0..32).map(|i| Ok((jpeg(i)?, i % 4))).collect::<Result<Vec<_>>>()?;
    let pipeline =
        Pipeline::builder(EncodedImages::new(images)).batch_size(8).transform(random_resized_crop(64)).build()?;
    let (mut step, start, mut training) = (Mean(0.0), Instant::now(), Duration::ZERO);
    for batch in pipeline.epoch(0) {
        let (batch, start) = (batch?, Instant::now());
        let outcome = step.train(batch)?;
        training += start.elapsed();
        println!("{}: loss {:.4}", step.name(), outcome.loss.unwrap_or_default());
    }
    let share = training.as_secs_f64() / start.elapsed().as_secs_f64();
    println!("in training {:.1} % of the time", 100.0 * share);
    Ok(())
}
