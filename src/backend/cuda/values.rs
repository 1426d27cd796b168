//! Lowers plans for images that are not RGB of 8 bits. The CPU decodes the needed part, and kernels do all else.

use super::arena::{Arena, StagingWriter};
use super::kernel::{Call, MOST_ROWS, PLANES_FINISH};
use super::lower::Spare;
use crate::backend::PixelForm;
use crate::error::Result;
use crate::ops::descriptors::{BatchPlace, DevicePointer, PlanesErasure, PlanesFinishSample, PlanesImage};
use crate::ops::kernel::{Descriptor, KernelId, PlanesRecorder};
use crate::ops::{ChannelNumbers, noise};
use crate::plan::{Epilogue, Plan, StageWork, decoded_by};
use crate::raster::{Rect, Size};
use crate::tensor::DType;
use warpfeed_image::planes::{Element, PixelKind};

/// Whether kernels can run all plans of an image: whether their grids have room for its rows. The CPU runs the others.
pub(super) fn have_kernels(plans: &[Plan<'_>]) -> bool {
    let rows = |plan: &Plan<'_>| plan.stages.iter().map(|stage| stage.part.height).max().unwrap_or(0);
    plans.iter().map(rows).chain([decoded_by(plans).height]).all(|rows| rows <= MOST_ROWS)
}

/// Makes the calls of one sample.
pub(super) struct PlanesLowering<'a> {
    arena: &'a Arena,
    staging: &'a mut StagingWriter,
    image: PlanesImage,
    /// Bytes of the current image's memory that later calls may overwrite.
    image_bytes: usize,
    is_shared: bool,
    /// Memory that the sample no longer needs: when a later call writes it, earlier calls have read it.
    spare: Option<Spare>,
    calls: Vec<Call>,
}

impl PlanesRecorder for PlanesLowering<'_> {
    fn image(&self) -> PlanesImage {
        self.image
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn target(&mut self, kind: PixelKind, whole: Size, part: Rect) -> Result<PlanesImage> {
        let len_bytes = kind.len_bytes(part.size().area_px()) as usize;
        let (address, bytes) = match self.spare.take().filter(|(_, bytes)| *bytes >= len_bytes) {
            Some(spare) => spare,
            None => (self.arena.scratch(len_bytes)?, len_bytes),
        };
        if !self.is_shared {
            self.spare = Some((self.image.values, self.image_bytes));
        }
        self.image = PlanesImage::new(address, kind, whole, part);
        (self.image_bytes, self.is_shared) = (bytes, false);
        Ok(self.image)
    }

    fn moved_to(&mut self, whole: Size, part: Rect) {
        let Rect { x, y, .. } = part;
        self.image = PlanesImage { x, y, whole_width: whole.width, whole_height: whole.height, ..self.image };
    }

    fn put(&mut self, table: &[u8]) -> Result<DevicePointer> {
        self.staging.put(self.arena, table)
    }

    fn scratch(&mut self, len_bytes: usize) -> Result<DevicePointer> {
        self.arena.scratch(len_bytes)
    }

    fn add(&mut self, kernel: KernelId, descriptor: Descriptor, extent: Size) {
        self.calls.push(Call { kernel, descriptor, extent });
    }
}

impl<'a> PlanesLowering<'a> {
    /// Begins with a decoded image. If it is shared with other plans, calls do not overwrite it.
    pub(super) fn new(arena: &'a Arena, staging: &'a mut StagingWriter, image: PlanesImage, is_shared: bool) -> Self {
        let image_bytes = image.len_bytes();
        Self { arena, staging, image, image_bytes, is_shared, spare: None, calls: Vec::new() }
    }

    /// The calls of a plan: its stages, then the one that writes the batch. `max` is the value that stands for 1.
    pub(super) fn run(mut self, plan: &Plan<'_>, max: f32, elements: PixelForm) -> Result<Vec<Call>> {
        for stage in &plan.stages {
            if let StageWork::Values(work) = &stage.work {
                work.launch(&mut self, stage.size, stage.part, max)?;
            }
        }
        let source = self.image;
        let scales = plan.epilogue.normalize.map(|scales| self.scales(scales)).transpose()?;
        let normals = match plan.epilogue.erasures.iter().any(|erasure| erasure.std != 0.0) {
            true => self.put(noise::normals())?,
            false => 0,
        };
        let sample = PlanesFinishSample {
            source,
            output: output(plan.size, elements),
            scales: scales.unwrap_or(0),
            erasures: self.erasures(&plan.epilogue)?,
            normals,
            max,
            elements: match elements.dtype {
                DType::U8 | DType::U16 => PlanesFinishSample::AS_STORED,
                DType::F32 => PlanesFinishSample::F32,
                DType::F16 => PlanesFinishSample::F16,
                DType::Bf16 => PlanesFinishSample::BF16,
            },
            interleaved: u32::from(!elements.has_planes()),
            erasure_count: plan.epilogue.erasures.len() as u32,
        };
        self.add(PLANES_FINISH, Descriptor::new(&sample), plan.size);
        Ok(self.calls)
    }

    /// Uploads the mean and the standard deviation of each channel.
    fn scales(&mut self, (mean, std): (ChannelNumbers, ChannelNumbers)) -> Result<DevicePointer> {
        let channels = 0..self.image.channels as usize;
        let scales: Vec<f32> = channels.flat_map(|channel| [mean.of(channel), std.of(channel)]).collect();
        self.staging.put(self.arena, &scales)
    }

    /// Uploads the rectangles that are overwritten after normalization.
    fn erasures(&mut self, epilogue: &Epilogue) -> Result<DevicePointer> {
        if epilogue.erasures.is_empty() {
            return Ok(0);
        }
        let mut erasures = Vec::with_capacity(epilogue.erasures.len());
        for of in &epilogue.erasures {
            let values: Vec<f32> = (0..self.image.channels as usize).map(|channel| of.values.of(channel)).collect();
            let (rect, values) = (of.rect, self.staging.put(self.arena, &values)?);
            let (left, top, right, bottom) = (rect.x, rect.y, rect.right(), rect.bottom());
            erasures.push(PlanesErasure { values, key: of.key, left, top, right, bottom, std: of.std, reserved: 0 });
        }
        self.staging.put(self.arena, &erasures)
    }
}

/// The sample's place in the batch, without its address, which is not known yet.
fn output(Size { width, height }: Size, elements: PixelForm) -> BatchPlace {
    let strides = elements.strides(Size::new(width, height));
    BatchPlace { plane_stride: strides.plane, row_stride: strides.row, width, height, ..BatchPlace::default() }
}

/// The call that moves an image's elements, which the CPU has made, to their place in the batch.
pub(super) fn place(address: DevicePointer, size: Size, elements: PixelForm) -> Call {
    let element = match elements.dtype {
        DType::U8 => Element::U8,
        // Bits of 16 and of 32.
        DType::U16 | DType::F16 | DType::Bf16 => Element::U16,
        DType::F32 => Element::F32,
    };
    // Interleaved channels are moved as columns of one plane.
    let (columns, channels) = if elements.has_planes() { (1, elements.channels) } else { (elements.channels, 1) };
    let extent = Size::new(columns as u32 * size.width, size.height);
    let kind = PixelKind { element, channels: channels as u16 };
    let sample = PlanesFinishSample {
        source: PlanesImage::new(address, kind, extent, Rect::full(extent)),
        output: output(size, elements),
        elements: PlanesFinishSample::AS_STORED,
        ..PlanesFinishSample::default()
    };
    Call { kernel: PLANES_FINISH, descriptor: Descriptor::new(&sample), extent }
}
