//! An engine for the images of one call, for `apply` and `Preprocessor`.

use crate::apply::opening::Opening;
use crate::backend::{
    self, AnyBackend, AnyBatch, AnyWorker, End, Given, HeldImage, OutputForm, PlannedSample, RunOptions,
};
use crate::decode::{Header, Input};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::ops::normalize::Normalization;
use crate::ops::part::needs_a_pipeline;
use crate::os::{memory, threads};
use crate::plan::Planner;
use crate::tensor::{Annotations, DType, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The recipe of every image: operations without random draws, and how they are planned.
#[derive(Debug, Clone)]
pub(crate) struct FixedRecipe {
    pub(crate) ops: Vec<Op>,
    pub(crate) opening: Opening,
    pub(crate) planner: Planner,
}

impl FixedRecipe {
    /// The header of an image, whose size is checked against the limit.
    pub(crate) fn header(&self, image: Input<'_>) -> Result<Header> {
        self.opening.header(image, self.planner.most_stored_px())
    }

    /// The operations for an image, orientation included.
    pub(crate) fn of(&self, header: &Header) -> Vec<Op> {
        let mut ops = self.opening.operations(header.into());
        ops.extend_from_slice(&self.ops);
        ops
    }
}

/// A back end for calls. It decodes, plans and runs the images of a call on the caller's thread and on as many more as
/// the options ask for. Several threads may call it at once.
pub(crate) struct Engine {
    backend: AnyBackend,
    options: Arc<RunOptions>,
    recipe: FixedRecipe,
}

/// The reason why a call returns no tensor.
pub(crate) struct Failure {
    /// The number of the image that caused it; `None` if no image did.
    pub(crate) image: Option<usize>,
    pub(crate) error: Error,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { image: None, error }
    }
}

impl Failure {
    fn of(image: usize, error: Error) -> Self {
        Self { image: Some(image), error }
    }
}

impl Engine {
    /// Opens an engine for calls of up to `options.batch_images` images, whose tensors have the form `output`.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a normalization whose results would be bytes; the errors of [`backend::open`].
    pub(crate) fn open(
        device: Device,
        mut options: RunOptions,
        recipe: FixedRecipe,
        output: OutputForm,
        normalize: Normalization,
    ) -> Result<Self> {
        if normalize.is_some() && matches!(output.elements.dtype, DType::U8 | DType::U16) {
            return Err(Error::parameter(
                "normalize",
                "dtype",
                "f32, f16 or bf16 after normalize",
                output.elements.dtype,
            ));
        }
        options.outputs = vec![output];
        if let Some(op) = recipe.ops.iter().find(|op| op.parts().iter().any(|part| part.loaded.image.is_none())) {
            return Err(needs_a_pipeline(op.name()));
        }
        let options = Arc::new(options);
        Ok(Self { backend: backend::open(device, &options, normalize)?, options, recipe })
    }

    pub(crate) fn options(&self) -> &RunOptions {
        &self.options
    }

    pub(crate) fn recipe(&self) -> &FixedRecipe {
        &self.recipe
    }

    /// Makes a tensor of images.
    pub(crate) fn run(&self, images: &[Input<'_>]) -> Result<Tensor, Failure> {
        let backend = &self.backend;
        let mut batch = backend.begin(images.len(), None)?;
        let made = self.fill(&batch, images).and_then(|mut worker| {
            let settled = backend.settle(&mut worker, &mut batch);
            backend.give_worker(worker);
            settled?.bad.into_iter().next().map_or(Ok(()), |(i, error)| Err(Failure::of(i, error)))
        });
        if let Err(failure) = made {
            backend.abandon(batch);
            return Err(failure);
        }
        let places: Vec<usize> = (0..images.len()).collect();
        let end = End { places: &places, padding: 0, annotations: &Annotations::none(images.len()), mix: None };
        let images = backend.finish(batch, &end)?.images;
        let missing = || Error::Panic { message: "a batch has no tensor".to_owned() };
        Ok(images.into_iter().next().ok_or_else(missing)?)
    }

    /// Runs all images into their places and returns the caller's worker. Fails with the failure of the lowest-numbered
    /// image.
    fn fill(&self, batch: &AnyBatch, images: &[Input<'_>]) -> Result<AnyWorker, Failure> {
        let backend = &self.backend;
        let next = AtomicUsize::new(0);
        let work = || -> Result<AnyWorker, Failure> {
            let mut worker = backend.worker()?;
            loop {
                let i = next.fetch_add(1, Relaxed);
                let Some(image) = images.get(i) else { return Ok(worker) };
                let one = || self.one(&mut worker, batch, i, *image);
                match catch_unwind(AssertUnwindSafe(one)) {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        // Stops the others: the images after this one are not needed any more.
                        next.fetch_max(images.len(), Relaxed);
                        backend.give_worker(worker);
                        return Err(Failure::of(i, error));
                    }
                    // The worker is not used again, because its work was interrupted.
                    Err(panic) => return Err(Failure::of(i, Error::panic(panic.as_ref()))),
                }
            }
        };
        let more = self.options.threads.min(images.len()).saturating_sub(1);
        let (own, others) = std::thread::scope(|scope| {
            let start = |i| threads::spawn_scoped(scope, format!("warpfeed-{i}"), work);
            // If a thread cannot be started, the call is slower, but not wrong.
            let others: Vec<_> = (0..more).map_while(|i| start(i).ok()).collect();
            let own = work();
            let join = |other: std::thread::ScopedJoinHandle<'_, _>| {
                other.join().unwrap_or_else(|panic| Err(Error::panic(panic.as_ref()).into()))
            };
            (own, others.into_iter().map(join).collect::<Vec<_>>())
        });
        let (mut first, mut workers) = (None::<Failure>, Vec::new());
        for done in others.into_iter().chain([own]) {
            match done {
                Ok(worker) => workers.push(worker),
                // A failure without an image number comes first.
                Err(failure) if first.as_ref().is_none_or(|first| failure.image < first.image) => first = Some(failure),
                Err(_) => {}
            }
        }
        let own = workers.pop();
        workers.into_iter().for_each(|worker| backend.give_worker(worker));
        match (own, first) {
            (Some(own), None) => Ok(own),
            (own, first) => {
                own.into_iter().for_each(|worker| backend.give_worker(worker));
                let lost = || Error::Panic { message: "no thread has made the batch".to_owned() }.into();
                Err(first.unwrap_or_else(lost))
            }
        }
    }

    /// Runs one image into its place.
    fn one(&self, worker: &mut AnyWorker, batch: &AnyBatch, i: usize, image: Input<'_>) -> Result<()> {
        let given = match image {
            Input::Pixels(pixels) => Given::Pixels(pixels),
            Input::Stored(_) => return Err(Error::unfit("apply", "the image is read in parts".to_owned())),
            Input::Encoded(bytes) => {
                let mut buffer = self.backend.buffer(worker);
                buffer.clear();
                memory::reserve(&mut buffer, bytes.len(), "an encoded image", memory::FEWER_IMAGES)?;
                buffer.extend_from_slice(bytes);
                Given::Held(HeldImage::owned(buffer))
            }
        };
        let header = self.recipe.header(image)?;
        let ops = self.recipe.of(&header);
        let plan = self.recipe.planner.plan_one(&ops, header.size)?;
        let sample = PlannedSample { place: i, index: None, header: &header, plans: &[plan], masks: &[], later: true };
        self.backend.run(worker, batch, given, &sample).map(drop)
    }
}
