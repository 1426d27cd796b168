//! The decoder's kernels: their grids and launches.
#![allow(unsafe_code)]

use super::lower::RUNS;
use super::params::JpegImage;
use crate::backend::cuda::arena::{Arena, StagingWriter};
use crate::cuda::driver::{self, Function, Module, Stream};
use crate::error::Result;
use crate::ops::descriptors::{DevicePointer, Launch};
use std::sync::Arc;

/// Most images of one launch: a grid's y and z are 16-bit numbers.
pub(super) const MAX_IMAGES: usize = 65_535;

/// The kernels, in the order of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecodeStep {
    Unstuff,
    Sync,
    Clear,
    Coefficients,
    Dc,
    Idct,
    Rgb,
}

impl DecodeStep {
    /// What an image's status depends on.
    pub(super) const JUDGING: [Self; 4] = [Self::Unstuff, Self::Sync, Self::Clear, Self::Coefficients];
    /// The rest.
    pub(super) const MAKING: [Self; 3] = [Self::Dc, Self::Idct, Self::Rgb];

    /// The function in kernels/*.cu.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unstuff => "jpeg_unstuff",
            Self::Sync => "jpeg_sync",
            Self::Clear => "jpeg_clear",
            Self::Coefficients => "jpeg_coefficients",
            Self::Dc => "jpeg_dc",
            Self::Idct => "jpeg_idct",
            Self::Rgb => "jpeg_rgb",
        }
    }

    /// Grid and block for images together; `None` if none of them needs the step.
    pub(super) fn grid(self, images: &[JpegImage]) -> Option<([u32; 3], [u32; 3])> {
        let count = images.len() as u32;
        let most = |of: fn(&JpegImage) -> u32| images.iter().map(of).max().unwrap_or(0);
        match self {
            Self::Unstuff | Self::Dc => Some(([count, 1, 1], [256, 1, 1])),
            Self::Sync => images.iter().any(|image| image.segment_blocks == 0).then_some(([count, 1, 1], [256, 1, 1])),
            Self::Clear | Self::Idct => {
                let blocks = most(|image| image.columns * image.rows * image.mcu_blocks);
                Some(([blocks.div_ceil(32), count, 1], [256, 1, 1]))
            }
            Self::Coefficients => {
                let runs = most(|image| if image.segment_blocks == 0 { RUNS as u32 } else { image.segments });
                Some(([runs.div_ceil(64), count, 1], [64, 1, 1]))
            }
            Self::Rgb => {
                // Four pixels a thread, of which one or two may lie beside the rectangle.
                let (width, height) = (most(|image| image.width / 2 + 1), most(|image| image.height / 2 + 1));
                Some(([width.div_ceil(32), height.div_ceil(8), count], [32, 8, 1]))
            }
        }
    }
}

/// The functions of a loaded image, each resolved once.
#[derive(Debug)]
pub(in crate::backend::cuda) struct JpegKernels {
    functions: Vec<(DecodeStep, Function)>,
    /// Keeps the functions valid.
    _module: Arc<Module>,
}

impl JpegKernels {
    /// Resolves the kernels of a module.
    pub(in crate::backend::cuda) fn new(module: &Arc<Module>) -> Result<Self> {
        let steps = DecodeStep::JUDGING.into_iter().chain(DecodeStep::MAKING);
        let functions = steps.map(|step| Ok((step, module.function(step.name())?))).collect::<Result<_>>()?;
        Ok(Self { functions, _module: Arc::clone(module) })
    }

    /// Queues steps for images, whose descriptors will lie at `at`.
    ///
    /// # Safety
    /// When the launches run, the images lie there, and all that they point to is theirs, as `Lowered` says, until they are
    /// done.
    unsafe fn launch(
        &self,
        steps: &[DecodeStep],
        images: &[JpegImage],
        at: DevicePointer,
        stream: &Stream,
    ) -> Result<()> {
        for (step, function) in self.functions.iter().filter(|(step, _)| steps.contains(step)) {
            for (chunk, begin) in images.chunks(MAX_IMAGES).zip((at..).step_by(MAX_IMAGES * size_of::<JpegImage>())) {
                let Some((grid, block)) = step.grid(chunk) else { continue };
                let launch = Launch { samples: begin, table: 0, count: chunk.len() as u32, reserved: 0 };
                // SAFETY: the parameter is the one that every kernel takes; the rest is the contract.
                unsafe { driver::launch(step.name(), *function, grid, block, stream, &launch)? };
            }
        }
        Ok(())
    }
}

/// Images that are to be decoded together, with their descriptors in staging memory.
pub(in crate::backend::cuda) struct Staged {
    images: Vec<JpegImage>,
    /// Where the descriptors will lie.
    at: DevicePointer,
    /// Where the images' status will lie: a word for each, 0 until a kernel flags the image.
    status: DevicePointer,
}

impl Staged {
    /// Stages descriptors of images that have no status as yet.
    pub(in crate::backend::cuda) fn new(
        mut images: Vec<JpegImage>,
        arena: &Arena,
        staging: &mut StagingWriter,
    ) -> Result<Self> {
        let status = staging.put(arena, &vec![0_u32; images.len()])?;
        for (image, status) in images.iter_mut().zip((status..).step_by(size_of::<u32>())) {
            image.status = status;
        }
        let at = staging.put(arena, &images)?;
        Ok(Self { images, at, status })
    }

    /// How many images there are.
    pub(in crate::backend::cuda) fn len(&self) -> usize {
        self.images.len()
    }

    /// Where the images' status will lie.
    pub(in crate::backend::cuda) fn status(&self) -> DevicePointer {
        self.status
    }

    /// Queues the steps that the images' status depends on.
    ///
    /// # Safety
    /// When the launches run, the staging memory has arrived, and all that the images point to is theirs, as [`Lowered`]
    /// says, until they are done.
    ///
    /// [`Lowered`]: super::lower::Lowered
    pub(in crate::backend::cuda) unsafe fn judge(&self, kernels: &JpegKernels, stream: &Stream) -> Result<()> {
        // SAFETY: the contract.
        unsafe { kernels.launch(&DecodeStep::JUDGING, &self.images, self.at, stream) }
    }

    /// Queues the rest, behind [`judge`](Self::judge).
    ///
    /// # Safety
    /// As of [`judge`](Self::judge).
    pub(in crate::backend::cuda) unsafe fn make(&self, kernels: &JpegKernels, stream: &Stream) -> Result<()> {
        // SAFETY: the contract.
        unsafe { kernels.launch(&DecodeStep::MAKING, &self.images, self.at, stream) }
    }
}
