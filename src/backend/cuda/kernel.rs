//! The kernels of kernels/*.cu, with their grids and launches.
#![allow(unsafe_code)]

use super::arena::{Arena, StagingWriter};
use crate::backend::cpu::output::Tables;
use crate::cuda::driver::{self, Context, DeviceMemory, Function, Module, Stream};
use crate::error::Result;
use crate::ops::descriptors::Launch;
use crate::ops::kernel::{Descriptor, KernelGrid, KernelId, REGISTRY};
use crate::raster::Size;
use crate::tensor::DType;
use std::sync::Arc;

/// Largest number of samples in one launch, and of blocks below each other: a grid's y and z are 16-bit numbers.
const MAX_SAMPLES: usize = 65_535;

/// Largest number of rows of a kernel with one pixel per thread.
pub(super) const MOST_ROWS: u32 = 8 * MAX_SAMPLES as u32;

/// Gathers a view or a resize into an image of bytes.
pub(super) const GATHER: KernelId = KernelId(REGISTRY.len());
/// Gathers a view or a resize into the batch.
pub(super) const FUSED: KernelId = KernelId(REGISTRY.len() + 1);
/// Writes an image into the batch.
pub(super) const FINISH: KernelId = KernelId(REGISTRY.len() + 2);
/// Writes noise into a rectangle of the batch.
pub(super) const ERASE_NOISE: KernelId = KernelId(REGISTRY.len() + 3);
/// Makes an image of a packed mask.
pub(super) const FIELD_LOAD: KernelId = KernelId(REGISTRY.len() + 4);
/// Writes a mask into the batch.
pub(super) const FIELD_STORE: KernelId = KernelId(REGISTRY.len() + 5);
/// Writes planes into the batch.
pub(super) const PLANES_FINISH: KernelId = KernelId(REGISTRY.len() + 6);
/// Makes an image of one in the caller's memory.
pub(super) const VIEW_LOAD: KernelId = KernelId(REGISTRY.len() + 7);
/// Number of kernels: the operations' and these eight.
const COUNT: usize = REGISTRY.len() + 8;

/// One image's share of a launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) kernel: KernelId,
    pub(super) descriptor: Descriptor,
    /// Size of the area that the kernel writes.
    pub(super) extent: Size,
}

/// One launch: calls of one kernel, whose descriptors are contiguous.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) kernel: KernelId,
    /// Address of the descriptors on the device.
    pub(super) samples: u64,
    pub(super) count: usize,
    /// Largest extent of all calls.
    width: u32,
    height: u32,
}

impl Group {
    /// The launch of `calls`, at most 65,535 of the same kernel.
    fn new(calls: &[Call]) -> Self {
        let most = |of: fn(Size) -> u32| calls.iter().map(|call| of(call.extent)).max().unwrap_or(0);
        Self {
            kernel: calls[0].kernel,
            samples: 0,
            count: calls.len(),
            width: most(|size| size.width),
            height: most(|size| size.height),
        }
    }

    fn grid(&self) -> ([u32; 3], [u32; 3]) {
        let count = self.count as u32;
        let grid = match self.kernel {
            ERASE_NOISE | FIELD_LOAD | FIELD_STORE | PLANES_FINISH | VIEW_LOAD => KernelGrid::Pixels,
            // The back end's other kernels work in tiles.
            KernelId(kernel) => REGISTRY.get(kernel).map_or(KernelGrid::Tiles, |kernel| kernel.grid),
        };
        match grid {
            KernelGrid::Pixels => ([self.width.div_ceil(32), self.height.div_ceil(8), count], [32, 8, 1]),
            KernelGrid::Tiles => ([self.width.div_ceil(32), self.height.div_ceil(16), count], [256, 1, 1]),
        }
    }
}

/// Groups the calls of several images, each image's in order, into few launches: repeatedly takes the kernel that most
/// images wait for. `emit` receives each launch and its calls.
pub(super) fn group(images: &[Vec<Call>], mut emit: impl FnMut(Group, &[Call]) -> Result<()>) -> Result<()> {
    // The position of each image in its calls, and the images that wait for each kernel.
    let mut at = vec![0; images.len()];
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); COUNT];
    let enqueue = |waiting: &mut Vec<Vec<usize>>, image: usize, at: usize| {
        if let Some(call) = images[image].get(at) {
            waiting[call.kernel.0].push(image);
        }
    };
    (0..images.len()).for_each(|image| enqueue(&mut waiting, image, 0));
    let mut calls = Vec::with_capacity(images.len());
    loop {
        let (most, _) = waiting.iter().enumerate().fold((0, 0), |(best, len), (kernel, queue)| {
            if queue.len() > len { (kernel, queue.len()) } else { (best, len) }
        });
        if waiting[most].is_empty() {
            return Ok(());
        }
        let ready = std::mem::take(&mut waiting[most]);
        for ready in ready.chunks(MAX_SAMPLES) {
            calls.clear();
            calls.extend(ready.iter().map(|image| images[*image][at[*image]]));
            emit(Group::new(&calls), &calls)?;
        }
        for image in ready {
            at[image] += 1;
            enqueue(&mut waiting, image, at[image]);
        }
    }
}

/// Groups calls as [`group`] does, and stages their descriptors.
pub(super) fn stage(images: &[Vec<Call>], staging: &mut StagingWriter, arena: &Arena) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    group(images, |mut group, calls| {
        let bytes = calls.iter().map(|call| call.descriptor.bytes().len()).sum();
        group.samples = staging.put_bytes(arena, bytes, |to| {
            let mut at = 0;
            for call in calls {
                let bytes = call.descriptor.bytes();
                to[at..at + bytes.len()].copy_from_slice(bytes);
                at += bytes.len();
            }
        })?;
        groups.push(group);
        Ok(())
    })?;
    Ok(groups)
}

/// The kernels that run plans, each resolved once.
#[derive(Debug)]
pub(super) struct Kernels {
    /// The kernels by their identities, with their names.
    functions: Vec<(Function, String)>,
    /// The kernel that mixes whole batches.
    mix: (Function, String),
    /// The element for each byte value, for the kernels that write the batch.
    table: DeviceMemory,
    /// Keeps the functions valid.
    _module: Arc<Module>,
}

impl Kernels {
    /// Resolves the kernels of a module for one output type, in planes or interleaved. `tables` has the elements.
    ///
    /// # Synchronization
    /// Waits for the copy of the tables on `stream`.
    pub(super) fn new(
        module: &Arc<Module>,
        (dtype, planes): (DType, bool),
        tables: &Tables,
        context: &Context,
        stream: &Stream,
    ) -> Result<Self> {
        let layout = if planes { "nchw" } else { "nhwc" };
        let of_operations = REGISTRY.iter().map(|kernel| kernel.name.to_owned());
        // RGB images never become numbers of 16 bits, so kernels for them are not called then.
        let rgb = if dtype == DType::U16 { DType::U8 } else { dtype };
        // A batch of bytes has no noise, because noise follows normalization.
        let noise = if rgb == DType::U8 { "u8_nhwc".to_owned() } else { format!("{dtype}_{layout}") };
        let own = [
            "fused_u8_nhwc".to_owned(),
            format!("fused_{rgb}_{layout}"),
            format!("finish_{rgb}_{layout}"),
            format!("erase_noise_{noise}"),
            "field_load_u8_nhwc".to_owned(),
            "field_store_u8_nchw".to_owned(),
            "planes_finish".to_owned(),
            "view_load_u8_nhwc".to_owned(),
        ];
        let functions =
            of_operations.chain(own).map(|name| Ok((module.function(&name)?, name))).collect::<Result<_>>()?;
        let mix = format!("mixup_{dtype}_{layout}");
        let mix = (module.function(&mix)?, mix);
        let bytes = tables.bytes();
        let mut table = DeviceMemory::new(context, bytes.len())?;
        // SAFETY: both are as long as the bytes, and the stream is waited for before either is used again.
        unsafe { driver::upload(table.address(), bytes.as_ptr(), bytes.len(), stream)? };
        stream.synchronize()?;
        table.idle();
        Ok(Self { functions, mix, table, _module: Arc::clone(module) })
    }

    /// Says that launches follow.
    pub(super) fn in_use(&mut self) {
        self.table.in_use();
    }

    /// Says that the device has done all launches.
    pub(super) fn idle(&mut self) {
        self.table.idle();
    }

    /// Queues the mixing of a batch of `count` images of `size` with this number of channels.
    ///
    /// # Safety
    /// `batch`, the device address of a `MixupBatch`, and all memory that it points to are valid from the launch's run
    /// until its end.
    pub(super) unsafe fn launch_mix(
        &self,
        batch: u64,
        count: usize,
        (size, channels): (Size, usize),
        stream: &Stream,
    ) -> Result<()> {
        const THREADS: u32 = 256;
        let (function, name) = &self.mix;
        let launch = Launch { samples: batch, table: 0, count: count as u32, reserved: 0 };
        let blocks = (channels as u64 * size.area_px()).div_ceil(THREADS.into()) as u32;
        // SAFETY: all kernels take this parameter; the rest is the contract.
        unsafe { driver::launch(name, *function, [blocks, 1, 1], [THREADS, 1, 1], stream, &launch) }
    }

    /// Queues a launch.
    ///
    /// # Safety
    /// When the launch runs, the descriptors are at the group's address, and all memory that they point to is valid
    /// until it is done.
    pub(super) unsafe fn launch(&self, group: &Group, stream: &Stream) -> Result<()> {
        let (function, name) = &self.functions[group.kernel.0];
        // The gather kernel writes bytes, whatever the batch's type.
        let table = if group.kernel == GATHER { 0 } else { self.table.address() };
        let launch = Launch { samples: group.samples, table, count: group.count as u32, reserved: 0 };
        let (grid, block) = group.grid();
        // SAFETY: all kernels take this parameter; the rest is the contract.
        unsafe { driver::launch(name, *function, grid, block, stream, &launch) }
    }
}
