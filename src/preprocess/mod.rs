//! Images for serving and evaluation: a call takes encoded images and gives a tensor, without epochs.

mod hugging_face;
mod timm;

pub use hugging_face::hugging_face_ops;
pub use timm::timm_ops;

use crate::backend::{self, AnyBackend, AnyBatch, AnyWorker, Backend, Encoded, End, RunOptions, Sample, ViewForm};
use crate::decode::{pnm_header, probe};
use crate::device::{DecodePath, Device};
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::ops::filter::PassOrder;
use crate::ops::transform::Transform;
use crate::pipeline::{DEFAULT_MAX_PIXELS, MAX_THREADS, Orientation, check_ops, one_size, oriented};
use crate::plan::{Planner, Strategy};
use crate::raster::{Image, Size, check_pixels};
use crate::tensor::{DType, Layout, Tensor};
use crate::{memory, threads};
use serde_json::{Map, Value};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Batches whose memory is kept: one that is being made, and one that the caller holds.
const BATCHES: usize = 2;
/// Largest batch.
const MAX_BATCH: usize = 1 << 20;

/// How a [`Preprocessor`] works.
#[derive(Debug, Clone, Copy)]
pub struct PreprocessorOptions {
    /// Type of the tensors' elements; without normalization f32, f16 and bf16 are 0 to 1.
    pub dtype: DType,
    /// Order of the tensors' dimensions.
    pub layout: Layout,
    /// Most images of one call.
    pub max_batch: usize,
    /// Threads that share a call's images; with 0 or 1 the caller's alone works.
    pub threads: usize,
    /// Where the operations run, and where the tensors are.
    pub device: Device,
    /// Who decodes JPEGs where they run on a GPU.
    pub decode: DecodePath,
    /// How the operations are run.
    pub strategy: Strategy,
    /// Which pass of a resize comes first.
    pub pass_order: PassOrder,
    /// What to do with an EXIF orientation tag.
    pub orientation: Orientation,
    /// Takes a truncated JPEG as it is.
    pub accept_truncated: bool,
    /// Largest image accepted, in pixels, as stored and at any point of the operations.
    pub max_pixels: u64,
}

impl Default for PreprocessorOptions {
    fn default() -> Self {
        Self {
            dtype: DType::F32,
            layout: Layout::Nchw,
            max_batch: 32,
            threads: 0,
            device: Device::Cpu,
            decode: DecodePath::Cpu,
            strategy: Strategy::default(),
            pass_order: PassOrder::default(),
            orientation: Orientation::default(),
            accept_truncated: false,
            max_pixels: DEFAULT_MAX_PIXELS,
        }
    }
}

/// Makes tensors of images for a model that serves or is evaluated: built once, then called. It draws nothing, keeps its
/// decoders and memory from call to call, and starts no thread unless asked. Calls from several threads do not wait for
/// each other. On the CPU, or with [`DecodePath::Cpu`], its tensors are torchvision's.
///
/// ```
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
/// use warpfeed::{Preprocessor, PreprocessorOptions};
///
/// let preprocessor = Preprocessor::of(Preset::Eval, &PreprocessorOptions::default())?;
/// let jpeg = encode_jpeg(&Image::new(Size::new(400, 300)), &JpegOptions::default())?;
/// let tensor = preprocessor.run(&[&jpeg, &jpeg])?;
/// assert_eq!(tensor.shape(), [2, 3, 224, 224]);
/// assert_eq!(tensor.image_bytes(0)?, tensor.image_bytes(1)?);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub struct Preprocessor {
    backend: AnyBackend,
    ops: Vec<Op>,
    planner: Planner,
    orientation: Orientation,
    options: Arc<RunOptions>,
}

impl std::fmt::Debug for Preprocessor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preprocessor").field("ops", &self.ops).field("options", &self.options).finish_non_exhaustive()
    }
}

impl Preprocessor {
    /// One that puts images through `ops`, which must end in one size.
    ///
    /// # Errors
    /// [`Error::Parameter`] for operations or options that are out of range or do not fit each other; [`Error::Device`] if
    /// the device is not there; [`Error::OutOfMemory`] or [`Error::OutOfDeviceMemory`] if there is no memory for a batch.
    pub fn new(ops: impl IntoIterator<Item = Op>, options: &PreprocessorOptions) -> Result<Self> {
        let run = RunOptions {
            dtype: options.dtype,
            layout: options.layout,
            decode: options.decode,
            accept_truncated: options.accept_truncated,
            batch_size: options.max_batch,
            batch_images: options.max_batch,
            prefetch: BATCHES - 1,
            threads: options.threads,
            ..RunOptions::default()
        };
        let planner = Planner { strategy: options.strategy, order: options.pass_order, max_px: options.max_pixels };
        Self::open(ops.into_iter().collect(), run, planner, options.orientation, options.device)
    }

    /// One with the operations of a preset that draws nothing; normalized, unless `options` ask for bytes.
    ///
    /// # Errors
    /// As of [`new`](Self::new); [`Error::Parameter`] for a preset that draws.
    pub fn of(preset: crate::Preset, options: &PreprocessorOptions) -> Result<Self> {
        let transforms = if options.dtype == DType::U8 { preset.pixel_ops() } else { preset.ops() };
        Self::new(explicit(&transforms)?, options)
    }

    /// One with the operations and settings of a pipeline, whose transforms draw nothing.
    pub(crate) fn like(
        transforms: &[Transform],
        options: &RunOptions,
        planner: Planner,
        orientation: Orientation,
        device: Device,
    ) -> Result<Self> {
        let (views, batch_images, prefetch) = (Vec::new(), options.batch_size, BATCHES - 1);
        let run = RunOptions { views, batch_images, prefetch, threads: 0, ..options.clone() };
        Self::open(explicit(transforms)?, run, planner, orientation, device)
    }

    fn open(
        ops: Vec<Op>,
        mut run: RunOptions,
        planner: Planner,
        orientation: Orientation,
        device: Device,
    ) -> Result<Self> {
        let within = |parameter, value, least, most| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Error::parameter("preprocessor", parameter, format!("{least} to {most}"), value))
        };
        within("max_batch", run.batch_images, 1, MAX_BATCH)?;
        within("threads", run.threads, 0, MAX_THREADS)?;
        let transforms: Vec<Transform> = ops.iter().cloned().map(Transform::from).collect();
        let (size, normalize) = check_ops(&transforms)?;
        let size = one_size("preprocessor", size)?;
        if normalize.is_some() && run.dtype == DType::U8 {
            return Err(Error::parameter("preprocessor", "dtype", "f32, f16 or bf16 after normalize", "u8"));
        }
        run.views = vec![ViewForm { size, times: 1 }];
        let options = Arc::new(run);
        Ok(Self { backend: backend::open(device, &options, normalize)?, ops, planner, orientation, options })
    }

    /// Width and height of every image of a tensor.
    #[must_use]
    pub fn image_size(&self) -> Size {
        self.options.views[0].size
    }

    /// Most images of one call.
    #[must_use]
    pub fn max_batch(&self) -> usize {
        self.options.batch_images
    }

    /// Decodes images and makes a tensor of them, in their order.
    ///
    /// # Synchronization
    /// On a GPU the tensor is complete when the device gets there: see [`Tensor::synchronize`].
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are no images or more than [`max_batch`](Self::max_batch); [`Error::Sample`] with the
    /// number of the first image that cannot be used, and why.
    pub fn run(&self, images: &[&[u8]]) -> Result<Tensor> {
        self.make(images.len(), &|i, buffer| {
            memory::reserve(buffer, images[i].len(), "an encoded image", memory::FEWER_IMAGES)?;
            buffer.extend_from_slice(images[i]);
            Ok(())
        })
    }

    /// The same of images that are decoded already. Of a part of an image the stored pixels are taken.
    ///
    /// # Synchronization
    /// As of [`run`](Self::run).
    ///
    /// # Errors
    /// As of [`run`](Self::run).
    pub fn run_images(&self, images: &[&Image]) -> Result<Tensor> {
        self.make(images.len(), &|i, buffer| {
            let (header, pixels) = (pnm_header(images[i].size(), 3), images[i].pixels());
            memory::reserve(buffer, header.len() + 3 * pixels.len(), "an image", memory::FEWER_IMAGES)?;
            buffer.extend_from_slice(header.as_bytes());
            buffer.extend(pixels.iter().flat_map(|pixel| &pixel[..3]));
            Ok(())
        })
    }

    /// Makes a tensor of so many images, of which `read` puts the encoded bytes into an empty buffer.
    fn make(&self, images: usize, read: &Read<'_>) -> Result<Tensor> {
        if !(1..=self.options.batch_images).contains(&images) {
            let expected = format!("1 to {}, the max_batch", self.options.batch_images);
            return Err(Error::parameter("preprocessor", "number of images", expected, images));
        }
        let backend = &self.backend;
        let mut batch = backend.begin(images)?;
        let made = self.fill(&batch, images, read).and_then(|mut worker| {
            let settled = backend.settle(&mut worker, &mut batch);
            backend.give_worker(worker);
            settled?.bad.into_iter().next().map_or(Ok(()), |(i, error)| Err(failed(i, error)))
        });
        if let Err(error) = made {
            backend.abandon(batch);
            return Err(error);
        }
        let places: Vec<usize> = (0..images).collect();
        let labels = vec![0; images];
        let end = End { places: &places, padding: 0, labels: &labels, targets: None, mix: None };
        let views = backend.finish(batch, &end)?.views;
        views.into_iter().next().ok_or_else(|| Error::Panic { message: "a batch has no view".to_owned() })
    }

    /// Runs all images into their places; the caller's worker. The error is that of the first image that has one.
    fn fill(&self, batch: &AnyBatch, images: usize, read: &Read<'_>) -> Result<AnyWorker> {
        let backend = &self.backend;
        let next = AtomicUsize::new(0);
        let work = || -> Result<AnyWorker, (usize, Error)> {
            let mut worker = backend.worker().map_err(|error| (0, error))?;
            loop {
                let i = next.fetch_add(1, Relaxed);
                if i >= images {
                    return Ok(worker);
                }
                let one = || self.one(&mut worker, batch, i, read);
                match catch_unwind(AssertUnwindSafe(one)) {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        // The images after it need not be made any more.
                        next.fetch_max(images, Relaxed);
                        backend.give_worker(worker);
                        return Err((i, failed(i, error)));
                    }
                    // Whatever the worker was doing is half done.
                    Err(panic) => return Err((i, failed(i, Error::panic(panic.as_ref())))),
                }
            }
        };
        let more = self.options.threads.min(images).saturating_sub(1);
        let (own, others) = std::thread::scope(|scope| {
            let start = |i| threads::spawn_scoped(scope, format!("warpfeed-{i}"), work);
            // Fewer threads than asked for are slower, not wrong.
            let others: Vec<_> = (0..more).map_while(|i| start(i).ok()).collect();
            let own = work();
            let join = |other: std::thread::ScopedJoinHandle<'_, _>| {
                other.join().unwrap_or_else(|panic| Err((0, Error::panic(panic.as_ref()))))
            };
            (own, others.into_iter().map(join).collect::<Vec<_>>())
        });
        let (mut first, mut workers) = (None::<(usize, Error)>, Vec::new());
        for done in others.into_iter().chain([own]) {
            match done {
                Ok(worker) => workers.push(worker),
                Err(error) if first.as_ref().is_none_or(|first| error.0 < first.0) => first = Some(error),
                Err(_) => {}
            }
        }
        let own = workers.pop();
        workers.into_iter().for_each(|worker| backend.give_worker(worker));
        match (own, first) {
            (Some(own), None) => Ok(own),
            (own, first) => {
                own.into_iter().for_each(|worker| backend.give_worker(worker));
                let lost = || Error::Panic { message: "no thread has made the batch".to_owned() };
                Err(first.map_or_else(lost, |(_, error)| error))
            }
        }
    }

    /// Runs one image into its place.
    fn one(&self, worker: &mut AnyWorker, batch: &AnyBatch, i: usize, read: &Read<'_>) -> Result<()> {
        let mut buffer = self.backend.buffer(worker);
        buffer.clear();
        read(i, &mut buffer)?;
        let header = probe(&buffer)?;
        check_pixels(header.size, self.planner.max_px)?;
        let mut recipe = oriented(header.orientation, self.orientation);
        recipe.extend_from_slice(&self.ops);
        let plan = self.planner.plan_one(&recipe, header.size)?;
        let sample = Sample { place: i, header: &header, plans: &[plan], later: true };
        self.backend.run(worker, batch, Encoded::owned(buffer), &sample).map(drop)
    }
}

/// Puts the encoded bytes of an image into an empty buffer.
type Read<'a> = dyn Fn(usize, &mut Vec<u8>) -> Result<()> + Sync + 'a;

fn failed(i: usize, error: Error) -> Error {
    Error::Sample { index: i as u64, name: format!("image {i} of the call"), source: Box::new(error) }
}

/// The operations of transforms that draw nothing.
fn explicit(transforms: &[Transform]) -> Result<Vec<Op>> {
    let op = |transform: &Transform| match transform {
        Transform::Explicit(op) => Ok(op.clone()),
        other => {
            Err(Error::parameter("preprocessor", "operations", "such that nothing is drawn at random", other.name()))
        }
    };
    transforms.iter().map(op).collect()
}

/// Reads a model's settings: a JSON object.
fn object(what: &'static str, text: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text).map_err(|error| Error::parameter(what, "the settings", "a JSON object", error))
}

/// A setting that is not known, or has a value that cannot be served.
fn unsupported(what: &str, setting: &str, value: &Value) -> Error {
    Error::Unsupported {
        feature: format!("{what} with {setting:?}: {value}"),
        remedy: "write the operations down yourself, for Preprocessor::new".to_owned(),
    }
}

/// Three numbers.
fn three(what: &'static str, setting: &'static str, value: &Value) -> Result<[f32; 3]> {
    let wrong = || Error::parameter(what, setting, "three numbers", value);
    serde_json::from_value(value.clone()).map_err(|_| wrong())
}

/// A side in pixels.
fn side(what: &'static str, setting: &'static str, value: &Value) -> Result<u32> {
    let side = value.as_u64().and_then(|side| u32::try_from(side).ok()).filter(|side| *side > 0);
    side.ok_or_else(|| Error::parameter(what, setting, "a number of pixels", value))
}

#[cfg(test)]
mod tests;
