//! Lowers a sample's plan to its share of launches.

use super::arena::{Arena, StagingWriter};
use super::kernel::{Call, ERASE_NOISE, FIELD_LOAD, FINISH, FUSED, GATHER, PLANES_FINISH, VIEW_LOAD};
use crate::backend::{PixelForm, Strides};
use crate::error::Result;
use crate::ops::byte_table::ByteTable;
use crate::ops::descriptors::{
    Axis, BatchPlace, DevicePointer, Erasure, FieldLoadSample, FinishSample, FusedSample, SourceImage, StepDescriptor,
    TargetImage, ViewLoadSample,
};
use crate::ops::fill::packed;
use crate::ops::filter::{Interpolation, PassOrder, Stretch, Taps};
use crate::ops::kernel::{CallRecorder, Descriptor, KernelId};
use crate::ops::reduce::no_kernel;
use crate::ops::resize::Resampling;
use crate::ops::{Overwrite, noise};
use crate::plan::view::ImageView;
use crate::plan::{Epilogue, Last, Plan, Stage, StageWork};
use crate::raster::{Rect, Size};
use crate::tensor::DType;
use half::{bf16, f16};
use std::mem::offset_of;
use std::ops::Range;

/// The bit that marks a fill color: kIsFill in kernels/descriptors.cuh.
const IS_FILL: u32 = 1 << 24;

/// An image in device memory: a rectangle of a whole image, 3 bytes a pixel.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceImage {
    pub(super) address: u64,
    pub(super) pitch_bytes: u32,
    pub(super) whole: Size,
    pub(super) part: Rect,
}

/// Device memory: its address and its size in bytes.
pub(super) type Spare = (u64, usize);

/// Bytes of an image whose rows have no gaps.
pub(super) fn packed_bytes(size: Size) -> usize {
    3 * size.area_px() as usize
}

/// Bytes of a row, and of all rows, of a stage's result.
fn target_bytes(part: Rect) -> (u32, usize) {
    let pitch_bytes = (3 * part.width).next_multiple_of(16);
    (pitch_bytes, pitch_bytes as usize * part.height as usize)
}

/// Largest device memory that the results of a plan's stages take in addition to a decoded image. They may overwrite
/// `image_bytes` of the image. A stage writes where the one before it has read, if that is large enough.
pub(super) fn stages_bytes(plan: &Plan<'_>, image_bytes: usize) -> usize {
    let (mut image, mut spare, mut taken) = (image_bytes, 0, 0);
    for stage in &plan.stages {
        let (_, needed) = target_bytes(stage.part);
        let target = spare.max(needed);
        taken += if spare < needed { needed } else { 0 };
        (spare, image) = (image, target);
    }
    taken
}

/// Largest size of the descriptors of a plan's calls: those of its stages, of what writes the result, and of erasures.
pub(super) fn descriptors_bytes(plan: &Plan<'_>) -> usize {
    (plan.stages.len() + 2 + plan.epilogue.erasures.len()) * Descriptor::MOST_BYTES
}

/// Size and element form of the images in a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub(super) size: Size,
    pub(super) elements: PixelForm,
}

/// Makes the calls of one sample.
pub(super) struct Lowering<'a> {
    arena: &'a Arena,
    chunk: &'a mut StagingWriter,
    taps: &'a mut Taps,
    order: PassOrder,
    image: DeviceImage,
    /// Bytes of the current image's memory that later calls may overwrite.
    image_bytes: usize,
    /// Memory that the sample no longer needs: when a later call writes it, earlier calls have read it.
    spare: Option<Spare>,
    calls: Vec<Call>,
}

impl CallRecorder for Lowering<'_> {
    fn source(&self) -> SourceImage {
        let DeviceImage { address, pitch_bytes, whole, part } = self.image;
        SourceImage {
            pixels: address,
            pitch_bytes,
            x: part.x,
            y: part.y,
            width: part.width,
            height: part.height,
            whole_width: whole.width,
            whole_height: whole.height,
            reserved: 0,
        }
    }

    fn target(&mut self, whole: Size, part: Rect) -> Result<TargetImage> {
        let (pitch_bytes, len_bytes) = target_bytes(part);
        let (address, bytes) = match self.spare.take().filter(|(_, bytes)| *bytes >= len_bytes) {
            Some(spare) => spare,
            None => (self.arena.scratch(len_bytes)?, len_bytes),
        };
        self.spare = Some((self.image.address, self.image_bytes));
        self.image = DeviceImage { address, pitch_bytes, whole, part };
        self.image_bytes = bytes;
        let Rect { x, y, width, height } = part;
        Ok(TargetImage { pixels: address, pitch_bytes, x, y, width, height, reserved: 0 })
    }

    fn go_back(&mut self, image: SourceImage) {
        if self.image.address != image.pixels {
            self.spare = Some((self.image.address, self.image_bytes));
        }
        let SourceImage { pixels: address, pitch_bytes, x, y, width, height, whole_width, whole_height, .. } = image;
        let whole = Size::new(whole_width, whole_height);
        self.image = DeviceImage { address, pitch_bytes, whole, part: Rect { x, y, width, height } };
        // Later calls may not overwrite the image, so its memory must not become spare.
        self.image_bytes = 0;
    }

    fn put(&mut self, table: &[u8]) -> Result<DevicePointer> {
        self.chunk.put(self.arena, table)
    }

    fn scratch(&mut self, len_bytes: usize) -> Result<DevicePointer> {
        self.arena.scratch(len_bytes)
    }

    fn axis(&mut self, stretch: Stretch, window: Range<u32>, interpolation: Interpolation) -> Result<Axis> {
        let first = window.start as i32;
        self.taps.compute(stretch, window, interpolation);
        let most = self.taps.most() as u32;
        let (starts, offsets, weights) = self.taps.tables();
        let starts = self.chunk.put(self.arena, starts)?;
        if interpolation == Interpolation::Nearest {
            return Ok(Axis { starts, first, ..Axis::default() });
        }
        let offsets = self.chunk.put(self.arena, offsets)?;
        let weights = self.chunk.put(self.arena, weights)?;
        Ok(Axis { starts, offsets, weights, first, most })
    }

    fn order(&self) -> PassOrder {
        self.order
    }

    fn add(&mut self, kernel: KernelId, descriptor: Descriptor, extent: Size) {
        self.calls.push(Call { kernel, descriptor, extent });
    }
}

impl<'a> Lowering<'a> {
    /// Begins with a decoded image and with spare memory, if there is any. If the image is `shared` with others, calls
    /// do not overwrite it.
    pub(super) fn new(
        arena: &'a Arena,
        chunk: &'a mut StagingWriter,
        taps: &'a mut Taps,
        order: PassOrder,
        image: DeviceImage,
        shared: bool,
        spare: Option<Spare>,
    ) -> Self {
        let image_bytes = if shared { 0 } else { image.pitch_bytes as usize * image.part.height as usize };
        Self { arena, chunk, taps, order, image, image_bytes, spare, calls: Vec::new() }
    }

    /// The calls of a plan: its stages, then those that write the batch. A resize at the end writes the batch directly.
    pub(super) fn run(mut self, plan: &Plan<'_>, form: Form) -> Result<Vec<Call>> {
        plan.stages.iter().try_for_each(|stage| self.stage(stage))?;
        let Some(mut fused) = self.last(&plan.last)? else { return self.finish(&plan.epilogue, form) };
        fused.output = self.output(&plan.epilogue, form)?;
        self.add(FUSED, Descriptor::new(&fused), form.size);
        self.erase_in_batch(&plan.epilogue, fused.output)
    }

    /// The calls of a plan for an image in the caller's memory, which the first one copies the needed part of. `row`,
    /// `column` and `channel`: distances in values. The image that this was made with must be shared.
    pub(super) fn run_view(
        mut self,
        [row, column, channel]: [u64; 3],
        plan: &Plan<'_>,
        form: Form,
    ) -> Result<Vec<Call>> {
        debug_assert!(self.image_bytes == 0, "calls would write to the caller's memory");
        let DeviceImage { address: values, whole, part, .. } = self.image;
        let target = self.target(whole, part)?;
        self.add(VIEW_LOAD, Descriptor::new(&ViewLoadSample { values, target, row, column, channel }), part.size());
        self.run(plan, form)
    }

    /// The calls of a plan for pixels of 1 to 3 bytes that carry a mask, without those that write the batch, and the
    /// complete image that they make.
    pub(super) fn run_carried(mut self, plan: &Plan<'_>, pixel_bytes: u32) -> Result<(Vec<Call>, SourceImage)> {
        if pixel_bytes != 3 {
            let DeviceImage { address: packed, whole, part, .. } = self.image;
            let target = self.target(whole, part)?;
            let sample = FieldLoadSample { packed, target, pixel_bytes, reserved: 0 };
            self.add(FIELD_LOAD, Descriptor::new(&sample), part.size());
        }
        plan.stages.iter().try_for_each(|stage| self.stage(stage))?;
        if let Some(fused) = self.last(&plan.last)? {
            self.gather(fused, plan.size, Rect::full(plan.size))?;
        }
        let made = self.source();
        Ok((self.calls, made))
    }

    /// The fused kernel's descriptor for the step to the output, without the output; `None` if the current image is the
    /// output.
    fn last(&mut self, last: &Last) -> Result<Option<FusedSample>> {
        Ok(match last {
            Last::Plain => None,
            Last::View(view) => Some(self.fused(view, None, Rect::full(view.size))?),
            Last::Resample { view, resampling, part, columns, rows, table } => {
                let mut fused = self.fused(view, Some(*resampling), *part)?;
                (fused.mirror_x, fused.x0) = (columns.sign, columns.start);
                (fused.mirror_y, fused.y0) = (rows.sign, rows.start);
                fused.table = self.table(table.as_deref())?;
                Some(fused)
            }
        })
    }

    /// Adds the call that writes the unchanged current image to the batch.
    pub(super) fn finish(mut self, epilogue: &Epilogue, form: Form) -> Result<Vec<Call>> {
        let sample = FinishSample { source: self.source(), output: self.output(epilogue, form)? };
        self.add(FINISH, Descriptor::new(&sample), form.size);
        self.erase_in_batch(epilogue, sample.output)
    }

    /// Adds the calls for the first erasure with noise and all after it. Returns all calls.
    fn erase_in_batch(mut self, epilogue: &Epilogue, output: BatchPlace) -> Result<Vec<Call>> {
        for erase in plain_and_noisy(&epilogue.erasures).1 {
            let rect = erase.rect;
            let normals = self.put(noise::normals())?;
            let sample = erase.noise_sample(normals, rect, [0; 2], output);
            self.add(ERASE_NOISE, Descriptor::new(&sample), rect.size());
        }
        Ok(self.calls)
    }

    /// Adds the calls for the stage's part of its result.
    fn stage(&mut self, stage: &Stage<'_>) -> Result<()> {
        let part = stage.part;
        let resize = match &stage.work {
            StageWork::Gather => None,
            StageWork::Table(table) => return table.launch(self),
            StageWork::Resample(resampling) => Some(*resampling),
            StageWork::Affine(warp) => {
                return warp.launch(self, stage.view.exact, stage.view.size, stage.size, part);
            }
            StageWork::Reduce(_) | StageWork::Values(_) => return Err(no_kernel()),
            StageWork::Pass(op, _) => return op.launch(self, part),
        };
        let mut sample = self.fused(&stage.view, resize, part)?;
        (sample.x0, sample.y0) = (part.x as i32, part.y as i32);
        self.gather(sample, stage.size, part)
    }

    /// Adds the call that makes the part `part` of an image of size `whole`, the current one from then on.
    fn gather(&mut self, mut sample: FusedSample, whole: Size, part: Rect) -> Result<()> {
        let target = self.target(whole, part)?;
        sample.output = BatchPlace {
            elements: target.pixels,
            row_stride: target.pitch_bytes,
            width: part.width,
            height: part.height,
            ..BatchPlace::default()
        };
        self.add(GATHER, Descriptor::new(&sample), part.size());
        Ok(())
    }

    /// The fused kernel's descriptor for `part` of a view and a resize.
    fn fused(&mut self, view: &ImageView, resize: Option<Resampling>, part: Rect) -> Result<FusedSample> {
        let mut sample = FusedSample {
            source: self.source(),
            exact: view.exact.packed(),
            mirror_x: 1,
            mirror_y: 1,
            step_count: view.steps.len() as u32,
            table: self.table(view.table.as_deref())?,
            ..FusedSample::default()
        };
        if !view.steps.is_empty() {
            let bytes = view.steps.len() * size_of::<StepDescriptor>();
            sample.steps = self.chunk.put_bytes(self.arena, bytes, |to| {
                for (to, step) in to.chunks_exact_mut(size_of::<StepDescriptor>()).zip(&view.steps) {
                    let Size { width, height } = step.bounds;
                    let step = StepDescriptor {
                        a: step.a,
                        width,
                        height,
                        fill: packed(step.fill) | IS_FILL,
                        reserved: [0; 3],
                    };
                    to.copy_from_slice(bytemuck::bytes_of(&step));
                }
            })?;
        }
        if let Some(Resampling { columns, rows, interpolation, vertical_first }) = resize {
            if !columns.is_identity() {
                sample.columns = self.axis(columns, part.x..part.right(), interpolation)?;
            }
            if !rows.is_identity() {
                sample.rows = self.axis(rows, part.y..part.bottom(), interpolation)?;
            }
            sample.vertical_first = u32::from(vertical_first);
        }
        Ok(sample)
    }

    /// The device address of a table; 0 if there is none.
    fn table(&mut self, table: Option<&ByteTable>) -> Result<DevicePointer> {
        table.map_or(Ok(0), |table| self.chunk.put(self.arena, table.bytes()))
    }

    /// The sample's place in the batch, without its address, which is not known yet.
    fn output(&mut self, epilogue: &Epilogue, Form { size, elements }: Form) -> Result<BatchPlace> {
        let (plain, _) = plain_and_noisy(&epilogue.erasures);
        debug_assert!(plain.is_empty() || elements.dtype != DType::U8, "kernels/store.cuh erases no bytes");
        let strides = elements.strides(size);
        let mut output = BatchPlace {
            plane_stride: strides.plane,
            row_stride: strides.row,
            width: size.width,
            height: size.height,
            erasure_count: plain.len() as u32,
            ..BatchPlace::default()
        };
        if !plain.is_empty() {
            let bytes = plain.len() * size_of::<Erasure>();
            output.erasures = self.chunk.put_bytes(self.arena, bytes, |to| {
                for (to, erasure) in to.chunks_exact_mut(size_of::<Erasure>()).zip(plain) {
                    let rect = erasure.rect;
                    let value = erasure.value.map(|value| bits(elements.dtype, value));
                    let (right, bottom) = (rect.right(), rect.bottom());
                    let erasure = Erasure { left: rect.x, top: rect.y, right, bottom, value, reserved: 0 };
                    to.copy_from_slice(bytemuck::bytes_of(&erasure));
                }
            })?;
        }
        Ok(output)
    }
}

/// Whether kernels can run all stages of a plan. The CPU runs the others.
pub(super) fn has_kernels(plan: &Plan<'_>) -> bool {
    without_kernels(plan).is_none()
}

/// The name of the first work of a plan that kernels cannot do.
pub(super) fn without_kernels(plan: &Plan<'_>) -> Option<&'static str> {
    plan.stages.iter().find_map(|stage| match &stage.work {
        StageWork::Gather | StageWork::Table(_) | StageWork::Resample(_) | StageWork::Affine(_) => None,
        StageWork::Reduce(_) => Some("a resize with a reducing gap"),
        StageWork::Values(_) => Some("an operation on planes"),
        StageWork::Pass(op, _) => (!op.has_kernels()).then(|| op.name()),
    })
}

/// The bits of a value in the output's type.
fn bits(dtype: DType, value: f32) -> u32 {
    match dtype {
        DType::U8 | DType::U16 => u32::from(value.round().clamp(0.0, 255.0) as u8),
        DType::F16 => u32::from(f16::from_f32(value).to_bits()),
        DType::Bf16 => u32::from(bf16::from_f32(value).to_bits()),
        DType::F32 => value.to_bits(),
    }
}

/// Splits erasures into those that the kernels which write the batch do, and the first one with noise and all after it.
fn plain_and_noisy(erasures: &[Overwrite]) -> (&[Overwrite], &[Overwrite]) {
    erasures.split_at(erasures.iter().position(|erase| erase.std != 0.0).unwrap_or(erasures.len()))
}

/// Sets the address in the batch in a sample's last calls: those that write the image and those that erase in it; and
/// the strides, if they are not the image's own.
pub(super) fn place(calls: &mut [Call], elements: DevicePointer, strides: Option<Strides>) {
    // The offset is the same in all four descriptors, as descriptors.rs asserts.
    const OFFSET: usize = offset_of!(FusedSample, output);
    debug_assert!(calls.iter().any(|call| [FUSED, FINISH, PLANES_FINISH].contains(&call.kernel)));
    for call in calls.iter_mut().rev() {
        match call.kernel {
            FUSED | FINISH | ERASE_NOISE | PLANES_FINISH => {
                call.descriptor.set(OFFSET + offset_of!(BatchPlace, elements), &elements);
                if let Some(Strides { plane, row }) = strides {
                    call.descriptor.set(OFFSET + offset_of!(BatchPlace, plane_stride), &plane);
                    call.descriptor.set(OFFSET + offset_of!(BatchPlace, row_stride), &row);
                }
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::has_kernels;
    use crate::ops::filter::PassOrder;
    use crate::ops::{CenterCrop, Chain, Contrast, Custom, Hflip, Jpeg, Op, Rotate, WeightedSum};
    use crate::plan::{Planner, Strategy};
    use crate::raster::Size;

    fn kernels(ops: &[Op], strategy: Strategy) -> bool {
        let planner = Planner { strategy, order: PassOrder::default(), max_px: 1 << 20, values: None };
        has_kernels(&planner.plan_one(ops, Size::new(100, 80)).unwrap())
    }

    #[test]
    fn a_kernel_that_is_missing_is_noticed() {
        let jpeg = || Op::from(Jpeg::new(50));
        let chain = |ops: Vec<Op>| Op::from(WeightedSum::new(0.5).chain(Chain::new(0.5, ops)));
        for strategy in [Strategy::Sequential, Strategy::Fused, Strategy::Composed] {
            for missing in [Custom::new("custom", |_| ()).into(), jpeg(), chain(vec![Hflip.into(), jpeg()])] {
                let ops = [Rotate::new(5.0).into(), missing, CenterCrop::new(10).into()];
                assert!(!kernels(&ops, strategy), "{strategy:?} {ops:?}");
            }
            let ops = [Rotate::new(5.0).into(), chain(vec![Hflip.into()]), Contrast::new(0.5).into()];
            assert!(kernels(&ops, strategy), "{strategy:?}");
        }
    }
}
