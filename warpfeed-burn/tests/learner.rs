//! burn's learner trains with the loader.

use burn::data::dataloader::DataLoader;
use burn::module::{Module, Param};
use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn::tensor::{Device, Tensor};
use burn::train::metric::LossMetric;
use burn::train::{
    ExecutionStrategy, InferenceStep, Learner, LearningResult, MultiDeviceOptim, RegressionOutput, SupervisedTraining,
    TrainOutput, TrainStep, TrainingStrategy,
};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use warpfeed::image::{Image, JpegOptions, encode_jpeg};
use warpfeed::pack::{PackOptions, pack};
use warpfeed::prelude::{EncodedImages, EpochState, LastBatch, OnError, PipelineBuilder, Size};
use warpfeed::source::{OpenOptions, RecordFormat};
use warpfeed::{BadLimit, Partition};
use warpfeed_burn::{ImageBatch, Loader};

/// An image of a gray of its own.
fn jpeg(i: u32) -> Vec<u8> {
    let mut image = Image::new(Size::new(40, 30));
    image.pixels_mut().fill([(i * 23 % 256) as u8; 4]);
    encode_jpeg(&image, &JpegOptions::default()).unwrap()
}

/// Images, some of them damaged.
fn images(count: u32, damaged: &[u32]) -> EncodedImages {
    EncodedImages::new((0..count).map(|i| if damaged.contains(&i) { (b"no image".to_vec(), i) } else { (jpeg(i), i) }))
}

fn small(builder: PipelineBuilder) -> PipelineBuilder {
    builder.batch_size(3).threads(2).transform(warpfeed::ops::random_resized_crop(8))
}

/// The gradient of each batch is 1. With a learning rate of 1, the weight ends at minus the number of batches.
#[derive(Module, Debug)]
struct Counter {
    weight: Param<Tensor<1>>,
}

impl Counter {
    fn new() -> Self {
        Self { weight: Param::from_tensor(Tensor::<1>::zeros([1], &Device::flex().autodiff())) }
    }

    fn output(&self) -> RegressionOutput {
        let output = self.weight.val().reshape([1, 1]);
        RegressionOutput::new(self.weight.val().sum(), output.clone(), output.zeros_like())
    }
}

impl TrainStep for Counter {
    type Input = ImageBatch;
    type Output = RegressionOutput;

    fn step(&self, _batch: ImageBatch) -> TrainOutput<RegressionOutput> {
        let output = self.output();
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Counter {
    type Input = ImageBatch;
    type Output = RegressionOutput;

    fn step(&self, _batch: ImageBatch) -> RegressionOutput {
        self.output()
    }
}

/// Trains for an epoch and returns the number of batches whose gradients were applied.
fn applied(loader: Loader, accumulation: usize, devices: usize) -> usize {
    let (folder, device) = (tempfile::tempdir().unwrap(), Device::flex().autodiff());
    let validation = Loader::new(images(3, &[]), &Device::flex(), small).unwrap();
    let training = SupervisedTraining::new(folder.path(), Arc::new(loader), Arc::new(validation));
    let multi = ExecutionStrategy::multi(vec![device; devices], MultiDeviceOptim::OptimMainDevice);
    let training = training.grads_accumulation(accumulation).with_training_strategy(TrainingStrategy::Default(multi));
    let result =
        training.with_application_logger(None).launch(Learner::new(Counter::new(), SgdConfig::new().init(), 1.0));
    assert!(result.error.is_none(), "{:?}", result.error);
    -result.model.weight.val().into_scalar::<f32>() as usize
}

/// Checks that the progress of a pass rises, and is complete with its last batch and not before. Returns the number of
/// batches.
fn progress(loader: &Loader) -> usize {
    let (mut pass, mut seen) = (loader.iter(), Vec::new());
    let start = pass.progress();
    while let Some(batch) = pass.next() {
        batch.unwrap();
        let progress = pass.progress();
        assert_eq!(progress.items_total, loader.num_items());
        seen.push(progress.items_processed);
    }
    let all = loader.num_items();
    assert!(start.items_processed <= *seen.first().unwrap_or(&all) && seen.is_sorted(), "{seen:?}");
    assert!(seen.iter().rev().skip(1).all(|done| *done < all), "{seen:?} of {all}");
    assert!(seen.last().is_none_or(|done| *done == all) && pass.progress().is_completed(), "{seen:?} of {all}");
    seen.len()
}

type Case = (&'static str, u32, &'static [u32], fn(PipelineBuilder) -> PipelineBuilder, usize);

/// Name, images, damaged images, settings, batches.
const CASES: [Case; 11] = [
    ("whole batches", 9, &[], small, 3),
    ("a rest", 10, &[], small, 4),
    ("Drop", 10, &[], |b| small(b).last_batch(LastBatch::Drop), 3),
    ("Pad", 10, &[], |b| small(b).last_batch(LastBatch::Pad), 4),
    ("a limit", 10, &[], |b| small(b).limit(7), 3),
    ("the last batch is skipped", 10, &[9], skipping, 3),
    ("the last batches are skipped", 13, &[6, 7, 8, 9, 10, 11, 12], skipping, 2),
    ("a part of the last batch is skipped", 12, &[10, 11], skipping, 4),
    ("the first batch and others are skipped", 12, &[0, 1, 2, 7], skipping, 3),
    ("skipped, with Drop", 11, &[6, 7, 8], |b| skipping(b).last_batch(LastBatch::Drop), 2),
    ("replaced", 10, &[9], |b| small(b).on_error(OnError::Substitute), 4),
];

fn skipping(builder: PipelineBuilder) -> PipelineBuilder {
    small(builder).on_error(OnError::Skip).max_bad(BadLimit::Count(10))
}

#[test]
fn the_last_accumulated_gradients_are_applied() {
    for (name, count, damaged, configure, batches) in CASES {
        let loader = || Loader::new(images(count, damaged), &Device::flex(), configure).unwrap();
        assert_eq!(progress(&loader()), batches, "{name}");
        // Never a multiple of the number of batches.
        assert_eq!(applied(loader(), 5, 1), batches, "{name}");
    }
}

#[test]
fn progress_of_resumed_passes_is_complete_with_the_last_batch() {
    for (name, count, damaged, configure, batches) in CASES {
        let loader = || Loader::new(images(count, damaged), &Device::flex(), configure).unwrap();
        for taken in 0..=batches {
            let first = loader();
            let mut pass = first.iter();
            assert_eq!(pass.by_ref().take(taken).filter(|batch| batch.is_ok()).count(), taken);
            let state = first.state().unwrap();
            assert_eq!(first.stats().unwrap().batches, taken as u64, "{name}");
            drop(pass);
            assert_eq!(first.state().unwrap(), state, "{name}");
            let resumed = loader().resuming(&state).unwrap();
            assert_eq!(progress(&resumed), batches - taken, "{name} after {taken}");
            assert_eq!(progress(&resumed), batches, "{name}, the next epoch");
        }
    }
}

#[test]
fn every_rank_has_whole_progress() {
    for equal in [false, true] {
        for (rank, batches) in [(0, 2), (1, if equal { 2 } else { 1 })] {
            let partition = Partition::new(rank, 2).unwrap();
            let configure = move |builder| small(builder).batch_size(4).partition(partition).equal_batches(equal);
            let loader = Loader::new(images(9, &[]), &Device::flex(), configure).unwrap();
            let of_padding = equal && rank == 1;
            if of_padding {
                // The second batch of rank 1 repeats an image of rank 0.
                let mut pass = loader.iter();
                assert_eq!(pass.next().unwrap().unwrap().indices.len(), 4);
                assert!(!pass.progress().is_completed());
                let error = pass.next().unwrap().unwrap_err().to_string();
                assert!(error.contains("only padding") && error.contains("LastBatch::Drop"), "{error}");
            } else {
                assert_eq!(progress(&loader), batches);
            }
        }
    }
}

#[test]
fn a_stream_needs_a_limit_and_its_progress_is_complete_with_the_last_batch() {
    let folder = tempfile::tempdir().unwrap();
    let shards = folder.path().join("shards");
    pack(&images(10, &[9]), &shards, &PackOptions::new(RecordFormat::WebDataset), &mut |_| {}).unwrap();
    let open = || OpenOptions::default().window(Some(4)).open(&shards).unwrap();
    let error = Loader::new(open(), &Device::flex(), small).unwrap_err().to_string();
    assert!(error.contains("stream") && error.contains("limit"), "{error}");
    // As many images as the limit, or fewer.
    for limit in [4, 9, 10, 100] {
        let loader = || Loader::new(open(), &Device::flex(), move |b| skipping(b).shuffle(1).limit(limit)).unwrap();
        assert_eq!(loader().num_items() as u64, limit);
        let batches = progress(&loader());
        assert_eq!(applied(loader(), 5, 1), batches, "a limit of {limit}");
        let labels = |batch: ImageBatch| batch.labels().unwrap().into_data().iter::<u32>().collect::<Vec<_>>();
        let whole: Vec<_> = loader().map(labels).iter().map(Result::unwrap).collect();
        let first = loader();
        first.iter().next().unwrap().unwrap();
        let resumed = || loader().resuming(&first.state().unwrap()).unwrap();
        assert_eq!(resumed().map(labels).iter().map(Result::unwrap).collect::<Vec<_>>(), whole[1..]);
        assert_eq!(progress(&resumed()), batches - 1, "a limit of {limit}");
    }
    let loader = Loader::new(open(), &Device::flex(), |builder| small(builder).limit(10)).unwrap();
    let error = loader.slice(0, 5).iter().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("splitting a loader over a stream"), "{error}");
}

/// burn adds the gradients of the devices, and asks for the progress of those that have a batch.
#[test]
fn several_devices_share_the_batches() {
    let loader = |damaged| Loader::new(images(13, damaged), &Device::flex(), skipping).unwrap();
    for (damaged, batches) in [(&[][..], 2 + 3), (&[12], 2 + 2), (&[3, 4, 5, 12], 1 + 2)] {
        assert_eq!(applied(loader(damaged), 4, 2), batches, "{damaged:?}");
        assert_eq!(applied(loader(damaged), 1, 2), batches, "{damaged:?}");
    }
    let whole = Arc::new(loader(&[3, 12]));
    let parts: Vec<_> = [(0, 6), (6, 13)].map(|(start, end)| whole.slice(start, end)).into();
    assert!(whole.stats().is_none() && whole.state().is_none());
    assert_eq!(parts.iter().map(|part| part.iter().count()).sum::<usize>(), 4);
    let bad: Vec<u64> = whole.bad().iter().map(|sample| sample.index).collect();
    assert_eq!((whole.stats().unwrap().images, bad), (11, vec![3, 12]), "the whole loader knows of its parts");
    assert_eq!(whole.iter().count(), 4);
    assert_eq!((whole.stats().unwrap().images, whole.bad().len()), (11, 2), "of its own pass");
    let limited = Loader::new(images(20, &[]), &Device::flex(), |builder| small(builder).limit(7)).unwrap();
    let parts = [limited.slice(0, 3), limited.slice(3, 7)];
    assert_eq!(parts.map(|part| part.num_items()), [3, 4], "the parts share the limit");
}

thread_local! {
    /// The losses of the steps that this thread has trained.
    static LOSSES: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

fn losses() -> Vec<f32> {
    LOSSES.with_borrow_mut(std::mem::take)
}

/// Learns an image's label from its mean.
#[derive(Module, Debug)]
struct Line {
    factor: Param<Tensor<1>>,
    offset: Param<Tensor<1>>,
}

impl Line {
    fn new() -> Self {
        let zero = || Param::from_tensor(Tensor::<1>::zeros([1], &Device::flex().autodiff()));
        Self { factor: zero(), offset: zero() }
    }

    fn output(&self, batch: &ImageBatch) -> RegressionOutput {
        let [count, ..] = batch.images.dims();
        let means = batch.images.clone().reshape([count as i32, -1]).mean_dim(1);
        let labels = batch.labels().unwrap().float().reshape([count, 1]) / 10;
        let output = means * self.factor.val().unsqueeze() + self.offset.val().unsqueeze();
        let loss = (output.clone() - labels.clone()).square().mean();
        RegressionOutput::new(loss, output, labels)
    }
}

impl TrainStep for Line {
    type Input = ImageBatch;
    type Output = RegressionOutput;

    fn step(&self, batch: ImageBatch) -> TrainOutput<RegressionOutput> {
        let output = self.output(&batch);
        LOSSES.with_borrow_mut(|losses| losses.push(output.loss.clone().into_scalar()));
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Line {
    type Input = ImageBatch;
    type Output = RegressionOutput;

    fn step(&self, batch: ImageBatch) -> RegressionOutput {
        self.output(&batch)
    }
}

fn shuffled() -> Loader {
    Loader::new(images(11, &[5]), &Device::flex(), |builder| skipping(builder).shuffle(7).seed(3)).unwrap()
}

/// Trains for `epochs` epochs in all, after the checkpoint of epoch `begun`.
fn train(folder: &Path, begun: Option<usize>, epochs: usize, loader: Loader) -> LearningResult<Line> {
    let validation = Loader::new(images(3, &[]), &Device::flex(), small).unwrap();
    let mut training = SupervisedTraining::new(folder, Arc::new(loader), Arc::new(validation))
        .metrics((LossMetric::new(),))
        .with_default_checkpointers()
        .with_application_logger(None)
        .num_epochs(epochs);
    if let Some(begun) = begun {
        training = training.checkpoint(begun);
    }
    training.launch(Learner::new(Line::new(), AdamConfig::new().init(), 0.05))
}

#[test]
fn a_learner_goes_on_from_a_checkpoint_as_if_it_had_not_stopped() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let whole = train(folders[0].path(), None, 4, shuffled()).model;
    let whole_losses = losses();
    train(folders[1].path(), None, 2, shuffled());
    let mut parts = losses();
    assert_eq!(parts, whole_losses[..parts.len()]);
    // burn's epochs begin with 1: checkpoint 2 is that after the loader's epochs 0 and 1.
    let resumed = train(folders[1].path(), Some(2), 4, shuffled().starting_at(2)).model;
    parts.extend(losses());
    assert_eq!(parts, whole_losses);
    let weights = |model: Line| [model.factor, model.offset].map(|weight| weight.val().into_scalar::<f32>());
    assert_eq!(weights(resumed), weights(whole));
    assert!(whole_losses.last() < whole_losses.first(), "{whole_losses:?}");
}

/// Trains on the rest of the loader's pass, or on `steps` batches.
fn steps(model: &mut Line, optimizer: &mut ModuleOptimizer, loader: &Loader, steps: usize) {
    for batch in loader.iter().take(steps) {
        let output = TrainStep::step(model, batch.unwrap());
        *model = optimizer.step(0.05, model.clone(), output.grads);
    }
}

#[test]
fn a_loop_goes_on_in_mid_epoch_as_if_it_had_not_stopped() {
    let (mut model, mut optimizer, loader) = (Line::new(), AdamConfig::new().init(), shuffled());
    for _ in 0..3 {
        steps(&mut model, &mut optimizer, &loader, usize::MAX);
    }
    let whole = losses();

    let (mut model, mut optimizer, loader) = (Line::new(), AdamConfig::new().init(), shuffled());
    steps(&mut model, &mut optimizer, &loader, usize::MAX);
    steps(&mut model, &mut optimizer, &loader, 2);
    let folder = tempfile::tempdir().unwrap();
    model.save_file(folder.path().join("model")).unwrap();
    optimizer.save(folder.path().join("optimizer")).unwrap();
    let state = serde_json::to_string(&loader.state().unwrap()).unwrap();

    let state: EpochState = serde_json::from_str(&state).unwrap();
    assert_eq!(state.epoch(), 1);
    let mut model = Line::new().load_file(folder.path().join("model"));
    let mut optimizer = AdamConfig::new().init().load(folder.path().join("optimizer")).unwrap();
    let loader = shuffled().resuming(&state).unwrap();
    for _ in 1..3 {
        steps(&mut model, &mut optimizer, &loader, usize::MAX);
    }
    assert_eq!(losses(), whole);
}
