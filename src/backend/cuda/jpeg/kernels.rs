//! The decoder's kernels: their grids and launches.
#![allow(unsafe_code)]

use super::params::JpegImage;
use crate::backend::cuda::arena::{Arena, StagingWriter};
use crate::cuda::driver::{self, Function, Module, Stream};
use crate::error::Result;
use crate::ops::descriptors::{DevicePointer, Launch};
use std::sync::Arc;

/// Largest number of images in one launch: a grid's y and z are 16-bit numbers.
const MAX_IMAGES: usize = 65_535;

/// Encoded bytes from which an image has launches of its own. A launch has as many blocks of threads for each image as
/// the largest one needs, so one image of 25 MB among 256 would bring ten million blocks without work to jpeg_idct.
const ALONE_BYTES: u32 = 1 << 20;

/// The kernels, in the order of their execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecodeStep {
    Count,
    Unstuff,
    Codes,
    Sync,
    SyncAgain,
    Join,
    Clear,
    Coefficients,
    CoefficientsKnown,
    DcKnown,
    Dc,
    Points,
    Idct,
    Rgb,
}

impl DecodeStep {
    /// The steps that determine an image's status.
    pub(super) const JUDGING: [Self; 10] = [
        Self::Count,
        Self::Unstuff,
        Self::Codes,
        Self::Sync,
        Self::SyncAgain,
        Self::Join,
        Self::Clear,
        Self::Coefficients,
        Self::CoefficientsKnown,
        Self::DcKnown,
    ];
    /// The remaining steps.
    pub(super) const MAKING: [Self; 4] = [Self::Dc, Self::Points, Self::Idct, Self::Rgb];

    /// The name of the function in kernels/*.cu.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Count => "jpeg_count",
            Self::Unstuff => "jpeg_unstuff",
            Self::Codes => "jpeg_codes",
            Self::Sync => "jpeg_sync",
            Self::SyncAgain => "jpeg_sync_again",
            Self::Join => "jpeg_join",
            Self::Clear => "jpeg_clear",
            Self::Coefficients => "jpeg_coefficients",
            Self::CoefficientsKnown => "jpeg_coefficients_known",
            Self::DcKnown => "jpeg_dc_known",
            Self::Dc => "jpeg_dc",
            Self::Points => "jpeg_points",
            Self::Idct => "jpeg_idct",
            Self::Rgb => "jpeg_rgb",
        }
    }

    /// Whether the step has work for an image.
    pub(super) fn is_for(self, image: &JpegImage) -> bool {
        let is_known = image.stretch_count > 0;
        match self {
            Self::Sync | Self::SyncAgain | Self::Join | Self::Coefficients | Self::Dc => !is_known,
            Self::CoefficientsKnown | Self::DcKnown => is_known,
            Self::Points => image.mcus != 0,
            Self::Count | Self::Unstuff | Self::Codes | Self::Clear | Self::Idct | Self::Rgb => true,
        }
    }

    /// Grid and block for these images together.
    pub(super) fn grid(self, images: &[JpegImage]) -> ([u32; 3], [u32; 3]) {
        let count = images.len() as u32;
        let most = |of: fn(&JpegImage) -> u32| images.iter().map(of).max().unwrap_or(0);
        match self {
            Self::Join | Self::Dc => ([count, 1, 1], [256, 1, 1]),
            Self::Count | Self::Unstuff => ([most(|image| image.tiles() as u32), count, 1], [256, 1, 1]),
            Self::Codes => ([6, count, 1], [256, 1, 1]),
            Self::Sync | Self::SyncAgain => ([most(|image| image.run_blocks() as u32), count, 1], [256, 1, 1]),
            Self::Clear => ([most(JpegImage::window_blocks).div_ceil(256), count, 1], [256, 1, 1]),
            Self::Idct => ([most(JpegImage::window_blocks).div_ceil(32), count, 1], [256, 1, 1]),
            Self::Coefficients => ([most(|image| image.runs() as u32).div_ceil(256), count, 1], [256, 1, 1]),
            Self::CoefficientsKnown => ([most(|image| image.stretch_count).div_ceil(128), count, 1], [128, 1, 1]),
            Self::DcKnown => ([most(|image| image.sum_count).div_ceil(256), count, 1], [256, 1, 1]),
            Self::Points => ([most(|image| image.checked_mcus() as u32 + 1).div_ceil(256), count, 1], [256, 1, 1]),
            Self::Rgb => {
                // Four pixels a thread; one or two of them may lie outside of the rectangle.
                let (width, height) = (most(|image| image.width / 2 + 1), most(|image| image.height / 2 + 1));
                ([width.div_ceil(32), height.div_ceil(8), count], [32, 8, 1])
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
            for (first, chunk) in chunks(*step, images) {
                let (grid, block) = step.grid(chunk);
                let samples = at + (first * size_of::<JpegImage>()) as DevicePointer;
                let launch = Launch { samples, table: 0, count: chunk.len() as u32, reserved: 0 };
                // SAFETY: all kernels take this parameter; the rest is the contract.
                unsafe { driver::launch(step.name(), *function, grid, block, stream, &launch)? };
            }
        }
        Ok(())
    }
}

/// The images of each launch of a step, with the number of the first.
fn chunks(step: DecodeStep, images: &[JpegImage]) -> impl Iterator<Item = (usize, &[JpegImage])> {
    let is_small = |image: &JpegImage| image.data_bytes < ALONE_BYTES;
    let together = move |a: &JpegImage, b: &JpegImage| step.is_for(a) == step.is_for(b) && is_small(a) && is_small(b);
    let chunks = images.chunk_by(together).flat_map(|together| together.chunks(MAX_IMAGES));
    let numbered = chunks.scan(0, |next, chunk| {
        let first = *next;
        *next += chunk.len();
        Some((first, chunk))
    });
    numbered.filter(move |(_, chunk)| chunk.iter().any(|image| step.is_for(image)))
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
        // Those with launches of their own come last, and those with the same steps side by side, so that they share
        // launches.
        images.sort_by_key(|image| (image.data_bytes >= ALONE_BYTES, image.stretch_count > 0, image.mcus != 0));
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

    /// Queues the conversion to RGB alone, of images whose planes another decoder has written.
    ///
    /// # Safety
    /// When the launches run, the staging memory and the planes have arrived, and until they are done the images own all
    /// memory that they point to.
    pub(in crate::backend::cuda) unsafe fn convert(&self, kernels: &JpegKernels, stream: &Stream) -> Result<()> {
        // SAFETY: the contract.
        unsafe { kernels.launch(&[DecodeStep::Rgb], &self.images, self.at, stream) }
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
