//! Runs plans on images that lie in the caller's device memory, without a pipeline.
//!
//! One kernel copies the needed part of each image to the memory of an in-flight batch. Then the images' plans run as
//! those of a pipeline's batch do. If a call's images need more memory than a batch may take, they run in parts.
//!
//! # Synchronization
//!
//! The kernels' stream waits for an event on the caller's stream, and the caller's stream for one after the copies. So
//! the caller may free or overwrite the images in the order of that stream. The host waits only if the last two batches
//! are still on the device.
#![allow(unsafe_code)]

use super::arena::StagingWriter;
use super::batches::Batches;
use super::fatbin;
use super::in_flight::InFlight;
use super::kernel::{self, Call, Group, Kernels, VIEW_LOAD};
use super::limits::Limit;
use super::lower::{self, DeviceImage, Form, Lowering};
use super::streams::{Part, Streams, once};
use super::{forget_checked, lock};
use crate::backend::PixelForm;
use crate::backend::cpu::output::Tables;
use crate::cuda::driver::{self, Event, Module};
use crate::cuda::{CudaBuffer, Pool, settle_aside};
use crate::device::StreamPriority;
use crate::error::{Error, Result};
use crate::ops::filter::Taps;
use crate::plan::Plan;
use crate::raster::Size;
use crate::tensor::{Storage, Tensor};
use cudarc::driver::sys;
use std::sync::{Arc, Mutex, Weak};

/// Number of batches in flight.
const IN_FLIGHT: usize = 2;
/// Most working memory, unless the caller asks for more.
const MOST_BYTES: u64 = 2 << 30;
/// Number of unused tensors whose memory is kept.
const KEPT_TENSORS: usize = 2;
/// Largest number of bytes that are kept in them, unless a single one is larger.
const KEPT_BYTES: u64 = 64 << 20;

/// Images of one size in the caller's device memory: bytes, gray or RGB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImagesOnDevice {
    /// Address of the first value of the first image.
    pub(crate) address: u64,
    pub(crate) size: Size,
    /// Distances in values: from one image to the next, and to the next row, column and channel. Gray has 0 for the
    /// channel.
    pub(crate) image: u64,
    pub(crate) row: u64,
    pub(crate) column: u64,
    pub(crate) channel: u64,
    /// The stream on which the values are complete.
    pub(crate) stream: sys::CUstream,
}

/// The streams and the batches' memory of a device, which runners with the same limit share.
struct Shared {
    ordinal: u32,
    /// As it was asked for.
    limit_bytes: Option<u64>,
    batches: Batches,
    streams: Streams,
    module: Arc<Module>,
}

/// The devices' streams and memory that runners use now.
static SHARED: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

impl Shared {
    fn get(ordinal: u32, limit_bytes: Option<u64>) -> Result<Arc<Self>> {
        let mut all = lock(&SHARED);
        all.retain(|shared| shared.strong_count() > 0);
        let fits = |shared: &Arc<Self>| (shared.ordinal, shared.limit_bytes) == (ordinal, limit_bytes);
        // One whose context has failed, or is gone, is left to its runners.
        let is_usable = |shared: &Arc<Self>| {
            let Streams { context, .. } = &shared.streams;
            shared.streams.enter().is_ok_and(|_entered| context.mem_get_info().is_ok())
        };
        if let Some(found) = all.iter().filter_map(Weak::upgrade).find(|shared| fits(shared) && is_usable(shared)) {
            return Ok(found);
        }
        let made = Arc::new(Self::open(ordinal, limit_bytes)?);
        all.push(Arc::downgrade(&made));
        Ok(made)
    }

    fn open(ordinal: u32, limit_bytes: Option<u64>) -> Result<Self> {
        fatbin::fatbin()?;
        let context = driver::context(ordinal)?;
        let _entered = driver::enter(&context)?;
        let module = fatbin::module(&context)?;
        forget_checked(ordinal);
        let streams = Streams::new(&context, StreamPriority::default(), 1, once)?;
        let (_, total_bytes) = driver::check("cuMemGetInfo", context.mem_get_info())?;
        let bytes = limit_bytes.unwrap_or((total_bytes as u64 / 8).min(MOST_BYTES));
        let limit = Limit::new(ordinal, Some(bytes), || Ok(0))?;
        let batches = Batches::new(&context, limit, true, IN_FLIGHT);
        Ok(Self { ordinal, limit_bytes, batches, streams, module })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // If this fails, the context has failed, and its work with it.
        if self.streams.enter().and_then(|_entered| self.streams.synchronize()).is_ok() {
            self.batches.idle();
        }
    }
}

/// Runs plans for one kind of tensors.
pub(crate) struct ViewRunner {
    elements: PixelForm,
    kernels: Kernels,
    pool: Arc<Pool>,
    shared: Arc<Shared>,
}

impl ViewRunner {
    /// Opens a device, whose batches take at most `limit_bytes` of its memory. Default: an eighth of it, at most 2 GiB.
    /// `tables` has the elements.
    ///
    /// # Errors
    /// [`Error::Device`] with the missing component and a remedy; [`Error::OutOfDeviceMemory`] if there is no memory.
    pub(crate) fn open(ordinal: u32, limit_bytes: Option<u64>, elements: PixelForm, tables: &Tables) -> Result<Self> {
        let shared = Shared::get(ordinal, limit_bytes)?;
        let Shared { streams, module, .. } = &*shared;
        let _entered = streams.enter()?;
        let pool = Arc::new(Pool::new(&streams.context, ordinal, KEPT_TENSORS, KEPT_BYTES)?);
        let form = (elements.dtype, elements.has_planes());
        let mut kernels = Kernels::new(module, form, tables, &streams.context, &streams.copy)?;
        kernels.in_use();
        Ok(Self { elements, kernels, pool, shared })
    }

    /// Runs a plan on each image. All end in `size`.
    ///
    /// # Safety
    /// There are as many images as plans. Their values are complete for work that is queued on their stream from now on,
    /// and that stream is alive, or a default stream. Until this returns nothing else is queued there that writes or
    /// frees them.
    ///
    /// # Synchronization
    /// Work that is queued on the images' stream after this call may write and free them. The tensor is complete when
    /// the device gets there.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for work that no kernel does; [`Error::Parameter`] for a stream of another device, and for
    /// one that captures a graph; [`Error::OutOfDeviceMemory`]; [`Error::Device`].
    pub(crate) unsafe fn run(&self, images: &ImagesOnDevice, plans: &[Plan<'_>], size: Size) -> Result<Tensor> {
        if let Some(name) = plans.iter().find_map(lower::without_kernels) {
            return Err(Error::Unsupported {
                feature: format!("{name} on a GPU"),
                remedy: "apply it on the CPU, to an image in its memory".to_owned(),
            });
        }
        let streams = &self.shared.streams;
        let (context, compute) = (&streams.context, &streams.compute);
        let _entered = streams.enter()?;
        let instead = "apply the transforms before the capture, to the graph's own memory";
        // SAFETY: the contract.
        unsafe { driver::check_user("CudaTransforms", instead, context, images.stream)? };
        let image_bytes = self.elements.image_bytes(size);
        let len_bytes = image_bytes * plans.len();
        let buffer = self.pool.take(compute, len_bytes.max(1)).map_err(|error| named(error, "a tensor", FEWER))?;
        let queue = || {
            let (arrived, read) = (Event::new(context)?, Event::new(context)?);
            // SAFETY: the contract.
            unsafe { arrived.record_raw(images.stream)? };
            compute.wait(&arrived)?;
            buffer.users.iter().try_for_each(|user| compute.wait(user))?;
            let (mut done, mut most) = (0, plans.len());
            while done < plans.len() {
                let some = &plans[done..][..most.min(plans.len() - done)];
                let own = ImagesOnDevice { address: images.address + done as u64 * images.image, ..*images };
                let to = buffer.address() + (done * image_bytes) as u64;
                // SAFETY: the contract; the buffer has room for all images, and the stream waits for its earlier users.
                match unsafe { self.run_some(&own, some, (to, size), &read) } {
                    Ok(()) => done += some.len(),
                    Err(Error::OutOfDeviceMemory { .. }) if some.len() > 1 => most = some.len() / 2,
                    Err(error) => return Err(named(error, "an image", SMALLER)),
                }
            }
            buffer.ready.record(compute)
        };
        if let Err(error) = queue() {
            // Queued work may read the images and write the buffer. If waiting fails, the context has failed.
            let _ = streams.synchronize();
            return Err(error);
        }
        let storage = Storage::Cuda(CudaBuffer::new(buffer, Arc::clone(&self.pool), len_bytes));
        Ok(self.elements.tensor(storage, size, plans.len()))
    }

    /// Runs the plans of images that fit a batch's memory, and makes the images' stream wait until `read` has passed,
    /// after which nothing reads them.
    ///
    /// # Safety
    /// That of [`run`](Self::run); the kernels' stream waits for the images, and for earlier users of the memory at `to`.
    unsafe fn run_some(
        &self,
        images: &ImagesOnDevice,
        plans: &[Plan<'_>],
        to: (u64, Size),
        read: &Event,
    ) -> Result<()> {
        let Shared { batches, streams, .. } = &*self.shared;
        let batch = batches.begin(0, |_| Ok(()))?;
        let groups = match self.stage(&batch, images, plans, to) {
            Ok(groups) => groups,
            Err(error) => {
                batches.give_up(batch);
                return Err(error);
            }
        };
        let (compute, is_load) = (&streams.compute, |group: &&Group| group.kernel == VIEW_LOAD);
        let queue = || {
            streams.upload(&batch)?;
            streams.queue(Part::Kernels, &|| {
                // SAFETY: descriptors and tables are uploaded, the images are complete by contract, and all else lies in
                // the arena.
                groups.iter().filter(is_load).try_for_each(|group| unsafe { self.kernels.launch(group, compute) })?;
                read.record(compute)?;
                // SAFETY: alive by contract.
                unsafe { driver::wait(images.stream, read)? };
                let mut others = groups.iter().filter(|group| !is_load(group));
                // SAFETY: as above; the places that are written are the images' own, by contract.
                others.try_for_each(|group| unsafe { self.kernels.launch(group, compute) })
            })?;
            batch.done.record(compute)
        };
        match queue() {
            Ok(()) => {
                batches.give(batch);
                Ok(())
            }
            Err(error) => {
                // If waiting fails, the context has failed, and its work with it. The memory is not used again.
                match streams.synchronize() {
                    Ok(()) => batches.give_up(batch),
                    Err(_) => batches.lose(),
                }
                Err(error)
            }
        }
    }

    /// Lowers plans to launches, and stages all that these read. The loads come first, as they are the first calls of
    /// all images.
    fn stage(
        &self,
        batch: &InFlight,
        images: &ImagesOnDevice,
        plans: &[Plan<'_>],
        (to, size): (u64, Size),
    ) -> Result<Vec<Group>> {
        let &ImagesOnDevice { address, size: whole, image, row, column, channel, .. } = images;
        let (mut staging, mut taps, arena) = (StagingWriter::default(), Taps::default(), &batch.arena);
        let form = Form { size, elements: self.elements };
        let mut lower = |(i, plan): (u64, &Plan<'_>)| {
            let image = DeviceImage { address: address + i * image, pitch_bytes: 0, whole, part: plan.decode };
            let lowering = Lowering::new(arena, &mut staging, &mut taps, plan.order, image, true, None);
            let mut calls = lowering.run_view([row, column, channel], plan, form)?;
            lower::place(&mut calls, to + i * self.elements.image_bytes(size) as u64, None);
            Ok(calls)
        };
        let calls = (0..).zip(plans).map(&mut lower).collect::<Result<Vec<Vec<Call>>>>()?;
        kernel::stage(&calls, &mut staging, arena)
    }
}

impl Drop for ViewRunner {
    fn drop(&mut self) {
        let streams = &self.shared.streams;
        // If this fails, the context has failed, and its work with it.
        if streams.enter().and_then(|_entered| streams.synchronize()).is_ok() {
            self.kernels.idle();
        }
        settle_aside();
    }
}

const FEWER: &str = "use fewer images, or free memory of the device";
const SMALLER: &str = "use a smaller image, free memory of the device, or raise its limit";

/// An error of memory with what it was for, outside of pipelines.
fn named(error: Error, what: &'static str, remedy: &'static str) -> Error {
    match error {
        Error::OutOfDeviceMemory { needed_bytes, available_bytes, .. } => {
            Error::OutOfDeviceMemory { what, needed_bytes, available_bytes, remedy }
        }
        error => error,
    }
}
