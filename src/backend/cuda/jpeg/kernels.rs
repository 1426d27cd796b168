//! The decoder's kernels: their grids and launches.
#![allow(unsafe_code)]

use super::lower::RUNS;
use super::params::JpegImage;
use crate::backend::cuda::arena::{Arena, StagingWriter};
use crate::cuda::driver::{self, Function, Module, Stream};
use crate::error::Result;
use crate::ops::descriptors::{DevicePointer, Launch};
use std::sync::Arc;

/// Largest number of images in one launch: a grid's y and z are 16-bit numbers.
pub(super) const MAX_IMAGES: usize = 65_535;

/// The kernels, in the order of their execution.
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
    /// The steps that determine an image's status.
    pub(super) const JUDGING: [Self; 4] = [Self::Unstuff, Self::Sync, Self::Clear, Self::Coefficients];
    /// The remaining steps.
    pub(super) const MAKING: [Self; 3] = [Self::Dc, Self::Idct, Self::Rgb];

    /// The name of the function in kernels/*.cu.
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

    /// Grid and block for these images together. `None` if no image needs the step.
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
                // Four pixels a thread, of which one or two may lie outside of the rectangle.
                let (width, height) = (most(|image| image.width / 2 + 1), most(|image| image.height / 2 + 1));
                Some(([width.div_ceil(32), height.div_ceil(8), count], [32, 8, 1]))
            }
        }
    }
}

/// The functions of a loaded module, each resolved once.
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

    /// Queues steps for images whose descriptors are at `at`.
    ///
    /// # Safety
    /// When the launches run, the descriptors are there, and until the launches are done the images own all memory that
    /// they point to, as `Lowered` says.
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
                // SAFETY: all kernels take this parameter; the rest is the contract.
                unsafe { driver::launch(step.name(), *function, grid, block, stream, &launch)? };
            }
        }
        Ok(())
    }
}

/// Images that are to be decoded together, with their descriptors in staging memory.
pub(in crate::backend::cuda) struct Staged {
    images: Vec<JpegImage>,
    /// Address of the descriptors.
    at: DevicePointer,
    /// Address of the images' status: one word each, 0 until a kernel flags the image.
    status: DevicePointer,
}

impl Staged {
    /// Stages descriptors of images without a status.
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

    /// Number of images.
    pub(in crate::backend::cuda) fn len(&self) -> usize {
        self.images.len()
    }

    /// Address of the images' status.
    pub(in crate::backend::cuda) fn status(&self) -> DevicePointer {
        self.status
    }

    /// Queues the steps that determine the images' status.
    ///
    /// # Safety
    /// When the launches run, the staging memory has arrived, and until they are done the images own all memory that
    /// they point to, as [`Lowered`] says.
    ///
    /// [`Lowered`]: super::lower::Lowered
    pub(in crate::backend::cuda) unsafe fn judge(&self, kernels: &JpegKernels, stream: &Stream) -> Result<()> {
        // SAFETY: the contract.
        unsafe { kernels.launch(&DecodeStep::JUDGING, &self.images, self.at, stream) }
    }

    /// Queues the remaining steps, after [`judge`](Self::judge).
    ///
    /// # Safety
    /// The contract of [`judge`](Self::judge).
    pub(in crate::backend::cuda) unsafe fn make(&self, kernels: &JpegKernels, stream: &Stream) -> Result<()> {
        // SAFETY: the contract.
        unsafe { kernels.launch(&DecodeStep::MAKING, &self.images, self.at, stream) }
    }
}
