//! From a sample's recipe to its share of launches: the host's half of each kernel.

use super::arena::{Arena, StagingWriter};
use super::kernel::{Call, Kernel, Sample};
use super::params::{
    Axis, BlurSample, ColorSample, CropSample, EraseSample, Erasure, FinishSample, FlipSample, FusedSample, Output,
    RankSample, ResizeSample, RotateSample, Source, Step, Target,
};
use crate::cpu::gaussian_blur;
use crate::error::Result;
use crate::image::{Rect, Size};
use crate::recipe::filter::{PassOrder, Taps};
use crate::recipe::lower::{Epilogue, Plan, Resampling, Stage, View, Work, center_crop_place};
use crate::recipe::op::{Fill, Interpolation, Op};
use crate::recipe::rotation::{Rotation, fixed_point};
use crate::tensor::{DType, Layout};
use half::{bf16, f16};

/// An image in device memory: a rectangle of a whole, 3 bytes a pixel.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceImage {
    pub(super) address: u64,
    pub(super) pitch_bytes: u32,
    pub(super) whole: Size,
    pub(super) part: Rect,
}

/// Bytes of an image whose rows lie without gaps.
pub(super) fn packed_bytes(size: Size) -> usize {
    3 * size.area_px() as usize
}

/// What a batch is made of, and in what form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub(super) size: Size,
    pub(super) dtype: DType,
    pub(super) layout: Layout,
}

/// Makes the calls of one sample.
pub(super) struct Lowering<'a> {
    arena: &'a Arena,
    chunk: &'a mut StagingWriter,
    taps: &'a mut Taps,
    order: PassOrder,
    image: DeviceImage,
    /// Bytes of the memory that the current image lies in.
    image_bytes: usize,
    /// Memory that the sample no longer needs: by the time a later call writes it, earlier ones have read it.
    spare: Option<(u64, usize)>,
    calls: Vec<Call>,
}

impl<'a> Lowering<'a> {
    /// Begins with a decoded image.
    pub(super) fn new(
        arena: &'a Arena,
        chunk: &'a mut StagingWriter,
        taps: &'a mut Taps,
        order: PassOrder,
        image: DeviceImage,
        calls: Vec<Call>,
    ) -> Self {
        let image_bytes = image.pitch_bytes as usize * image.part.height as usize;
        Self { arena, chunk, taps, order, image, image_bytes, spare: None, calls }
    }

    /// One pass an operation, then the epilogue.
    pub(super) fn sequential(mut self, ops: &[Op], epilogue: &Epilogue, form: Form) -> Result<Vec<Call>> {
        for op in ops {
            let size = op.output_size(self.image.whole)?;
            self.op(op, Rect::full(size))?;
        }
        let output = self.output(epilogue, form)?;
        let sample = FinishSample { source: self.source(), output };
        self.call(Kernel::Finish, Sample::Finish(sample), form.size);
        Ok(self.calls)
    }

    /// As planned: stages, then the last view into the batch; a resize at the end goes there straight.
    pub(super) fn planned(mut self, plan: &Plan, form: Form) -> Result<Vec<Call>> {
        let last = &plan.last;
        let direct = last.steps.is_empty() && last.exact.xy == 0;
        let (before, resize) = match plan.stages.split_last() {
            Some((Stage { view, work: Work::Resample(resampling), part, .. }, before)) if direct => {
                (before, Some((view, *resampling, *part)))
            }
            _ => (&plan.stages[..], None),
        };
        for stage in before {
            self.stage(stage)?;
        }
        let mut fused = match resize {
            Some((view, resampling, part)) => {
                let mut fused = self.fused(view, Some(resampling), part)?;
                (fused.mirror_x, fused.x0) = (last.exact.xx, last.exact.x0);
                (fused.mirror_y, fused.y0) = (last.exact.yy, last.exact.y0);
                fused
            }
            None => self.fused(last, None, Rect::full(last.size))?,
        };
        fused.output = self.output(&plan.epilogue, form)?;
        self.call(Kernel::Fused, Sample::Fused(fused), form.size);
        Ok(self.calls)
    }

    fn call(&mut self, kernel: Kernel, sample: Sample, extent: Size) {
        self.calls.push(Call { kernel, sample, extent });
    }

    fn source(&self) -> Source {
        let DeviceImage { address, pitch_bytes, whole, part } = self.image;
        Source {
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

    /// Makes a fresh image the current one.
    fn target(&mut self, whole: Size, part: Rect) -> Result<Target> {
        let pitch_bytes = (3 * part.width).next_multiple_of(16);
        let len_bytes = pitch_bytes as usize * part.height as usize;
        let (address, bytes) = match self.spare.take().filter(|(_, bytes)| *bytes >= len_bytes) {
            Some(spare) => spare,
            None => (self.arena.scratch(len_bytes)?, len_bytes),
        };
        self.spare = Some((self.image.address, self.image_bytes));
        self.image = DeviceImage { address, pitch_bytes, whole, part };
        self.image_bytes = bytes;
        let Rect { x, y, width, height } = part;
        Ok(Target { pixels: address, pitch_bytes, x, y, width, height, reserved: 0 })
    }

    fn axis(
        &mut self,
        input: u32,
        output: u32,
        window: std::ops::Range<u32>,
        interpolation: Interpolation,
    ) -> Result<Axis> {
        let first = window.start as i32;
        self.taps.compute(input, output, window, interpolation);
        let (starts, offsets, weights) = self.taps.tables();
        let starts = self.chunk.put(self.arena, starts)?;
        if interpolation == Interpolation::Nearest {
            return Ok(Axis { starts, first, ..Axis::default() });
        }
        let offsets = self.chunk.put(self.arena, offsets)?;
        let weights = self.chunk.put(self.arena, weights)?;
        Ok(Axis { starts, offsets, weights, first, reserved: 0 })
    }

    fn flip(&mut self, exact: [i32; 6], size: Size) -> Result<()> {
        let source = self.source();
        let target = self.target(size, Rect::full(size))?;
        self.call(Kernel::Flip, Sample::Flip(FlipSample { source, target, exact }), size);
        Ok(())
    }

    fn crop(&mut self, x: i32, y: i32, size: Size, fill: Fill) -> Result<()> {
        let source = self.source();
        let target = self.target(size, Rect::full(size))?;
        let (fill, edge) = color(fill);
        self.call(Kernel::Crop, Sample::Crop(CropSample { source, target, x, y, fill, edge }), size);
        Ok(())
    }

    fn rotate(&mut self, kernel: Kernel, matrix: [f64; 6], canvas: Size, fill: Fill, part: Rect) -> Result<()> {
        let source = self.source();
        let target = self.target(canvas, part)?;
        let fixed = fixed_point(matrix, canvas);
        let (fill, edge) = color(fill);
        let kernel =
            if kernel == Kernel::RotateNearest && fixed.is_none() { Kernel::RotateNearestDouble } else { kernel };
        let sample = RotateSample { source, target, matrix, fixed: fixed.unwrap_or_default(), fill, edge };
        self.call(kernel, Sample::Rotate(sample), part.size());
        Ok(())
    }

    /// Resizes the rectangle `window` of the current image, which is complete, to `size`: a pass an axis.
    fn resize(&mut self, window: Rect, size: Size, interpolation: Interpolation) -> Result<()> {
        let mut input = window.size();
        if input == size {
            return self.crop(window.x as i32, window.y as i32, size, Fill::BLACK);
        }
        let mut passes = [true, false];
        if self.order.vertical_first(input, size) {
            passes.reverse();
        }
        let mut source = self.source();
        source.pixels += u64::from(window.y) * u64::from(source.pitch_bytes) + 3 * u64::from(window.x);
        for horizontal in passes {
            let output =
                if horizontal { Size::new(size.width, input.height) } else { Size::new(input.width, size.height) };
            if output == input {
                continue;
            }
            let (kernel, axis) = if horizontal {
                (Kernel::ResizeHorizontal, self.axis(input.width, size.width, 0..size.width, interpolation)?)
            } else {
                (Kernel::ResizeVertical, self.axis(input.height, size.height, 0..size.height, interpolation)?)
            };
            let target = self.target(output, Rect::full(output))?;
            self.call(kernel, Sample::Resize(ResizeSample { source, target, axis }), output);
            (source, input) = (self.source(), output);
        }
        Ok(())
    }

    fn rank(&mut self, [rows, columns]: [Kernel; 2], kernel: u32, part: Rect) -> Result<()> {
        let (whole, stored) = (self.image.whole, self.image.part);
        let between = Rect { x: part.x, width: part.width, ..stored };
        for (pass, part) in [(rows, between), (columns, part)] {
            let source = self.source();
            let target = self.target(whole, part)?;
            self.call(pass, Sample::Rank(RankSample { source, target, kernel, reserved: 0 }), part.size());
        }
        Ok(())
    }

    fn color(&mut self, op: &Op) -> Result<()> {
        let Size { width, height } = self.image.part.size();
        let (factor, hue_shift) = match *op {
            Op::Brightness { factor } | Op::Contrast { factor } | Op::Saturation { factor } => (factor as f32, 0),
            Op::Hue { factor } => (0.0, u32::from((factor * 255.0) as i32 as u8)),
            _ => (0.0, 0),
        };
        let kernels: &[Kernel] = match op {
            Op::Brightness { .. } => &[Kernel::Brightness],
            Op::Contrast { .. } => &[Kernel::LumaSum, Kernel::Contrast],
            Op::Saturation { .. } => &[Kernel::Saturation],
            Op::Hue { .. } => &[Kernel::Hue],
            _ => &[Kernel::Grayscale],
        };
        // The upload brings the zero that the sum begins with.
        let luma_sum = if kernels.len() > 1 { self.chunk.put(self.arena, &[0_u64])? } else { 0 };
        let sample = ColorSample {
            pixels: self.image.address,
            luma_sum,
            pitch_bytes: self.image.pitch_bytes,
            width,
            height,
            factor,
            hue_shift,
            reserved: 0,
        };
        for kernel in kernels {
            self.call(*kernel, Sample::Color(sample), Size { width, height });
        }
        Ok(())
    }

    /// One operation: the rectangle `part` of its result.
    fn op(&mut self, op: &Op, part: Rect) -> Result<()> {
        let input = self.image.whole;
        let size = op.output_size(input)?;
        let (right, bottom) = (input.width as i32 - 1, input.height as i32 - 1);
        match *op {
            Op::Hflip => self.flip([-1, 0, right, 0, 1, 0], size),
            Op::Vflip => self.flip([1, 0, 0, 0, -1, bottom], size),
            Op::Rotate { degrees, interpolation, expand, fill } => match Rotation::new(input, degrees, expand, fill) {
                Rotation::None => Ok(()),
                Rotation::Quarter => self.flip([0, -1, right, 1, 0, 0], size),
                Rotation::Half => self.flip([-1, 0, right, 0, -1, bottom], size),
                Rotation::ThreeQuarters => self.flip([0, 1, 0, -1, 0, bottom], size),
                Rotation::Free { matrix, canvas } => {
                    let nearest = interpolation == Interpolation::Nearest;
                    let kernel = if nearest { Kernel::RotateNearest } else { Kernel::RotateBilinear };
                    self.rotate(kernel, matrix, canvas, fill, part)
                }
            },
            Op::Crop { x, y, fill, .. } => self.crop(x, y, size, fill),
            Op::CenterCrop { .. } => {
                let (x, y) = center_crop_place(input, size);
                self.crop(x, y, size, Fill::BLACK)
            }
            Op::Resize(resize) => self.resize(Rect::full(input), size, resize.interpolation),
            Op::ResizedCrop { x, y, width, height, interpolation, .. } => {
                self.resize(Rect { x, y, width, height }, size, interpolation)
            }
            Op::GaussianBlur { kernel, sigma } => {
                let source = self.source();
                let weights = self.chunk.put(self.arena, &gaussian_blur::weights(kernel, sigma))?;
                let between = self.arena.scratch(12 * part.width as usize * source.height as usize)?;
                let target = self.target(input, part)?;
                let sample = BlurSample { source, target, between, weights, kernel, reserved: 0 };
                self.call(Kernel::BlurRows, Sample::Blur(sample), Size::new(part.width, source.height));
                self.call(Kernel::BlurColumns, Sample::Blur(sample), part.size());
                Ok(())
            }
            Op::Dilate { kernel } => self.rank([Kernel::DilateRows, Kernel::DilateColumns], kernel, part),
            Op::Erode { kernel } => self.rank([Kernel::ErodeRows, Kernel::ErodeColumns], kernel, part),
            Op::Erase { x, y, width, height, value } => {
                let stored = self.image.part;
                let (left, right) = (x.max(stored.x), (x + width).min(stored.right()));
                let (top, bottom) = (y.max(stored.y), (y + height).min(stored.bottom()));
                if left >= right || top >= bottom {
                    return Ok(());
                }
                let [red, green, blue] = value.map(|v| v.round() as u8);
                let sample = EraseSample {
                    pixels: self.image.address,
                    pitch_bytes: self.image.pitch_bytes,
                    x: left - stored.x,
                    y: top - stored.y,
                    width: right - left,
                    height: bottom - top,
                    value: u32::from_le_bytes([red, green, blue, 0]),
                };
                self.call(Kernel::Erase, Sample::Erase(sample), Size::new(right - left, bottom - top));
                Ok(())
            }
            Op::Brightness { .. } | Op::Contrast { .. } | Op::Saturation { .. } | Op::Hue { .. } | Op::Grayscale => {
                self.color(op)
            }
            // Normalisation is the epilogue's; recipes with operations of the caller's own are run on the CPU.
            Op::Normalize { .. } | Op::Custom(_) => {
                debug_assert!(false, "{} has no kernel", op.name());
                Ok(())
            }
        }
    }

    /// What the fused kernel needs to know of a view and a resize of which `part` is needed.
    fn fused(&mut self, view: &View, resize: Option<Resampling>, part: Rect) -> Result<FusedSample> {
        let e = view.exact;
        let mut sample = FusedSample {
            source: self.source(),
            exact: [e.xx, e.xy, e.x0, e.yx, e.yy, e.y0],
            mirror_x: 1,
            mirror_y: 1,
            step_count: view.steps.len() as u32,
            ..FusedSample::default()
        };
        if !view.steps.is_empty() {
            let bytes = view.steps.len() * size_of::<Step>();
            sample.steps = self.chunk.put_bytes(self.arena, bytes, |to| {
                for (to, step) in to.chunks_exact_mut(size_of::<Step>()).zip(&view.steps) {
                    let (fill, _) = color(Fill::Color(step.fill));
                    let Size { width, height } = step.bounds;
                    let step = Step { a: step.a, width, height, fill, reserved: [0; 3] };
                    to.copy_from_slice(bytemuck::bytes_of(&step));
                }
            })?;
        }
        if let Some(Resampling { size, interpolation, vertical_first }) = resize {
            let input = view.size;
            if input.width != size.width {
                sample.columns = self.axis(input.width, size.width, part.x..part.right(), interpolation)?;
            }
            if input.height != size.height {
                sample.rows = self.axis(input.height, size.height, part.y..part.bottom(), interpolation)?;
            }
            sample.vertical_first = u32::from(vertical_first);
        }
        Ok(sample)
    }

    /// A stage's part of its result.
    fn stage(&mut self, stage: &Stage) -> Result<()> {
        let part = stage.part;
        let resize = match &stage.work {
            Work::Gather => None,
            Work::Resample(resampling) => Some(*resampling),
            Work::Affine { matrix, canvas, fill } => {
                return self.rotate(Kernel::RotateBilinear, *matrix, *canvas, *fill, part);
            }
            Work::Pixels(op) | Work::Whole(op) => return self.op(op, part),
        };
        let mut sample = self.fused(&stage.view, resize, part)?;
        (sample.x0, sample.y0) = (part.x as i32, part.y as i32);
        let target = self.target(stage.size, part)?;
        sample.output = Output {
            elements: target.pixels,
            row_stride: target.pitch_bytes,
            width: part.width,
            height: part.height,
            ..Output::default()
        };
        self.call(Kernel::Gather, Sample::Fused(sample), part.size());
        Ok(())
    }

    /// The sample's place in the batch, whose address is not known yet.
    fn output(&mut self, epilogue: &Epilogue, Form { size, dtype, layout }: Form) -> Result<Output> {
        let mut output = Output {
            plane_stride: if layout == Layout::Nchw { size.area_px() } else { 0 },
            row_stride: if layout == Layout::Nchw { size.width } else { 3 * size.width },
            width: size.width,
            height: size.height,
            erasure_count: epilogue.erasures.len() as u32,
            ..Output::default()
        };
        if !epilogue.erasures.is_empty() {
            let bytes = epilogue.erasures.len() * size_of::<Erasure>();
            output.erasures = self.chunk.put_bytes(self.arena, bytes, |to| {
                for (to, erasure) in to.chunks_exact_mut(size_of::<Erasure>()).zip(&epilogue.erasures) {
                    let rect = erasure.rect;
                    let value = erasure.value.map(|value| bits(dtype, value));
                    let (right, bottom) = (rect.right(), rect.bottom());
                    let erasure = Erasure { left: rect.x, top: rect.y, right, bottom, value, reserved: 0 };
                    to.copy_from_slice(bytemuck::bytes_of(&erasure));
                }
            })?;
        }
        Ok(output)
    }
}

/// A fill as kernels take it, and whether it is the edge.
fn color(fill: Fill) -> (u32, u32) {
    match fill {
        Fill::Color([red, green, blue]) => (u32::from_le_bytes([red, green, blue, 0]), 0),
        Fill::Edge(_) => (0, 1),
    }
}

/// A value in the output's type, as bits.
fn bits(dtype: DType, value: f32) -> u32 {
    match dtype {
        DType::U8 => u32::from(value.round().clamp(0.0, 255.0) as u8),
        DType::F16 => u32::from(f16::from_f32(value).to_bits()),
        DType::Bf16 => u32::from(bf16::from_f32(value).to_bits()),
        DType::F32 => value.to_bits(),
    }
}

/// Sets where in the batch the last of a sample's calls writes.
pub(super) fn place(calls: &mut [Call], elements: u64) {
    match calls.last_mut().map(|call| &mut call.sample) {
        Some(Sample::Fused(sample)) => sample.output.elements = elements,
        Some(Sample::Finish(sample)) => sample.output.elements = elements,
        _ => debug_assert!(false, "the last call writes the batch"),
    }
}
