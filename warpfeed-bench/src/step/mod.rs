//! Training steps: your own, one of a fixed time, or real training.

// A step of a fixed time (`stated`) sleeps, except for the last 0.2 ms, which it spins, because systems oversleep. If
// batches are on a GPU it is a kernel of that duration (`spin.cu`) instead: a sleeping host would neither hold the
// batch nor keep a stream busy. The kernel is a single thread. How much of the GPU real training would take from the
// pipeline is not known, so it is not imitated. Published times are derived from seconds per epoch, and so are upper
// bounds.
//
// candle really trains ResNet-18 and ResNet-50. Three parts of it are ours. candle has no gradient for overlapping max
// pooling, so the pooling of the stem is composed of narrowing, reshaping and maxima. Its optimizer has no momentum,
// so `descent` has. On the CPU it takes no seed, so our generator draws the weights. Tests compare gradients with
// differences of the loss, compare parameter counts with torchvision's, and check that both networks learn.
//
// libtorch is used by the crate warpfeed-tch, outside the workspace, because it takes minutes to compile and gigabytes
// of disk.

#[cfg(feature = "candle")]
mod candle;
#[cfg(feature = "candle")]
mod descent;
#[cfg(feature = "candle")]
mod resnet;
mod sgd;
mod stated;
#[cfg(feature = "candle")]
mod two_convolutions;
#[cfg(feature = "candle")]
mod weights;

#[cfg(feature = "candle")]
pub use candle::{Architecture, CandleStep};
pub use sgd::Sgd;
pub use stated::{Pace, StatedStep, published, read_lengths};
use warpfeed::{Batch, Result};

/// A training step, which takes batches.
///
/// ```
/// use warpfeed_bench::step::{Outcome, TrainingStep};
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// /// Counts images by label, and calls that training.
/// struct Counts(Vec<u64>);
///
/// impl TrainingStep for Counts {
///     fn name(&self) -> String {
///         "counting labels on the CPU".to_owned()
///     }
///
///     fn train(&mut self, batch: Batch) -> warpfeed::Result<Outcome> {
///         batch.labels()?.iter().for_each(|label| self.0[*label as usize] += 1);
///         Ok(Outcome::default())
///     }
/// }
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let images = EncodedImages::new((0..7).map(|i| (jpeg.clone(), i % 2)));
/// let pipeline = Pipeline::builder(images).batch_size(4).transform(CenterCrop::new(8)).build()?;
/// let mut step = Counts(vec![0; 2]);
/// step.begin_epoch(0)?;
/// for batch in pipeline.epoch(0) {
///     step.train(batch?)?;
/// }
/// step.finish()?;
/// assert_eq!(step.0, [4, 3]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub trait TrainingStep {
    /// Name of the step in reports: the model and the device that it runs on.
    fn name(&self) -> String;

    /// Trains on one batch. On a device it may return before the work is done.
    ///
    /// # Errors
    /// Any failure to train. It ends the run.
    fn train(&mut self, batch: Batch) -> Result<Outcome>;

    /// Share of a batch's images that are classified correctly, 0 to 1, without training on them; `None` if the step
    /// does not say.
    ///
    /// # Errors
    /// Any failure to evaluate. It ends the run.
    fn evaluate(&mut self, batch: Batch) -> Result<Option<f64>> {
        drop(batch);
        Ok(None)
    }

    /// Called before the first batch of each epoch, for schedules.
    ///
    /// # Errors
    /// Any failure to prepare the epoch. It ends the run.
    fn begin_epoch(&mut self, epoch: u64) -> Result<()> {
        let _ = epoch;
        Ok(())
    }

    /// Waits until all work given to [`train`](Self::train) is done. Called after the last batch of each epoch, before
    /// the clock is read.
    ///
    /// # Errors
    /// Errors on a device since the last call.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    /// The learning rate in use, if there is one.
    fn learning_rate(&self) -> Option<f64> {
        None
    }
}

/// What a step reports about a batch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Outcome {
    /// Mean loss of the batch's images.
    pub loss: Option<f64>,
    /// Share of the images that were classified correctly, 0 to 1, before this step changed the weights.
    pub accuracy: Option<f64>,
}
