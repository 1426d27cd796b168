//! From recipes to launches, as the GPU path will do it: the host's half of each kernel.

use super::device::{Call, Grid, Image, bytes_of, run, upload};
use crate::filter::{PassOrder, Taps};
use crate::lower::{Epilogue, Geometry, Resampling, Stage, View, Work, center_crop_place, plan, split_epilogue};
use crate::op::{Fill, Interpolation, Op};
use crate::params::{
    Axis, BlurSample, ColorSample, CropSample, EraseSample, Erasure, FinishSample, FlipSample, FusedSample, Output,
    RankSample, ResizeSample, RotateSample, Source, Step, Target,
};
use crate::picture::{Rect, Size};
use crate::rotation::{Rotation, fixed_point};
use cuda_sim::Memory;
use half::{bf16, f16};

/// An output's type: its name, and a value as bits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Element {
    U8,
    F16,
    Bf16,
    F32,
}

impl Element {
    pub const ALL: [Self; 4] = [Self::U8, Self::F16, Self::Bf16, Self::F32];

    pub fn name(self) -> &'static str {
        ["u8", "f16", "bf16", "f32"][self as usize]
    }

    pub fn bytes(self) -> usize {
        [1, 2, 2, 4][self as usize]
    }

    pub fn bits(self, value: f32) -> u32 {
        match self {
            Self::U8 => u32::from(value.round().clamp(0.0, 255.0) as u8),
            Self::F16 => u32::from(f16::from_f32(value).to_bits()),
            Self::Bf16 => u32::from(bf16::from_f32(value).to_bits()),
            Self::F32 => value.to_bits(),
        }
    }

    /// As an element lies in memory.
    pub fn stored(self, bits: u32) -> Vec<u8> {
        bits.to_le_bytes()[..self.bytes()].to_vec()
    }
}

/// What a byte becomes as f32.
pub fn normalized(byte: u8, channel: usize, normalize: Option<([f32; 3], [f32; 3])>) -> f32 {
    let value = f32::from(byte) / 255.0;
    normalize.map_or(value, |(mean, std)| (value - mean[channel]) / std[channel])
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Layout {
    Nchw,
    Nhwc,
}

impl Layout {
    pub const ALL: [Self; 2] = [Self::Nchw, Self::Nhwc];

    pub fn name(self) -> &'static str {
        ["nchw", "nhwc"][self as usize]
    }
}

/// What is asked for of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub element: Element,
    pub layout: Layout,
    /// Distance of the outputs from addresses that are multiples of 16, in elements.
    pub misaligned: usize,
}

/// A picture on its way.
struct Sample {
    image: Image,
    /// Memory that launches refer to.
    keep: Vec<Memory>,
    output: Option<Memory>,
}

fn color(fill: Fill) -> (u32, u32) {
    match fill {
        Fill::Color([red, green, blue]) => (u32::from_le_bytes([red, green, blue, 0]), 0),
        Fill::Edge(_) => (0, 1),
    }
}

fn pixels<T: Copy>(kernel: &str, sample: &T, extent: Size) -> Call {
    let sample = bytes_of(std::slice::from_ref(sample)).to_vec();
    Call { kernel: format!("{kernel}_u8_nhwc"), sample, extent, grid: Grid::Pixels, table: 0 }
}

impl Sample {
    fn source(&self) -> Source {
        let Image { memory, pitch_bytes, whole, part } = &self.image;
        Source {
            pixels: memory.address(),
            pitch_bytes: *pitch_bytes,
            x: part.x,
            y: part.y,
            width: part.width,
            height: part.height,
            whole_width: whole.width,
            whole_height: whole.height,
            reserved: 0,
        }
    }

    /// Makes a fresh picture the current one.
    fn target(&mut self, whole: Size, part: Rect) -> Target {
        let old = std::mem::replace(&mut self.image, Image::new(whole, part));
        self.keep.push(old.memory);
        Target {
            pixels: self.image.memory.address(),
            pitch_bytes: self.image.pitch_bytes,
            x: part.x,
            y: part.y,
            width: part.width,
            height: part.height,
            reserved: 0,
        }
    }

    fn upload<T: Copy>(&mut self, values: &[T]) -> u64 {
        self.keep.push(upload(values));
        self.keep[self.keep.len() - 1].address()
    }

    fn axis(&mut self, input: u32, output: u32, window: std::ops::Range<u32>, interpolation: Interpolation) -> Axis {
        let mut taps = Taps::default();
        taps.compute(input, output, window.clone(), interpolation);
        let starts: Vec<i32> = taps.starts.iter().map(|start| *start as i32).collect();
        let first = window.start as i32;
        if interpolation == Interpolation::Nearest {
            return Axis { starts: self.upload(&starts), first, ..Axis::default() };
        }
        let (mut offsets, mut weights) = (vec![0], Vec::new());
        for i in 0..taps.len() {
            weights.extend_from_slice(taps.of(i).1);
            offsets.push(weights.len() as i32);
        }
        let [starts, offsets, weights] = [starts, offsets, weights].map(|table| self.upload(&table));
        Axis { starts, offsets, weights, first, reserved: 0 }
    }

    fn flip(&mut self, exact: [i32; 6], size: Size) -> Vec<Call> {
        let source = self.source();
        let target = self.target(size, Rect::full(size));
        vec![pixels("flip", &FlipSample { source, target, exact }, size)]
    }

    fn crop(&mut self, x: i32, y: i32, size: Size, fill: Fill) -> Vec<Call> {
        let source = self.source();
        let target = self.target(size, Rect::full(size));
        let (fill, edge) = color(fill);
        vec![pixels("crop", &CropSample { source, target, x, y, fill, edge }, size)]
    }

    fn rotate(&mut self, kernel: &str, matrix: [f64; 6], canvas: Size, fill: Fill, part: Rect) -> Vec<Call> {
        let source = self.source();
        let target = self.target(canvas, part);
        let fixed = fixed_point(matrix, canvas);
        let (fill, edge) = color(fill);
        let sample = RotateSample { source, target, matrix, fixed: fixed.unwrap_or_default(), fill, edge };
        if kernel == "rotate_nearest" && fixed.is_none() {
            return vec![Call { grid: Grid::Rows, ..pixels("rotate_nearest_double", &sample, part.size()) }];
        }
        vec![pixels(kernel, &sample, part.size())]
    }

    fn resize(&mut self, window: Rect, size: Size, interpolation: Interpolation) -> Vec<Call> {
        let mut input = window.size();
        if input == size {
            return self.crop(window.x as i32, window.y as i32, size, Fill::BLACK);
        }
        let mut calls = Vec::new();
        let mut passes = vec![true, false];
        if PassOrder::default().vertical_first(input, size) {
            passes.reverse();
        }
        let mut source = self.source();
        source.pixels += u64::from(window.y * source.pitch_bytes + 3 * window.x);
        for horizontal in passes {
            let output =
                if horizontal { Size::new(size.width, input.height) } else { Size::new(input.width, size.height) };
            if output == input {
                continue;
            }
            let (kernel, axis) = if horizontal {
                ("resize_horizontal", self.axis(input.width, size.width, 0..size.width, interpolation))
            } else {
                ("resize_vertical", self.axis(input.height, size.height, 0..size.height, interpolation))
            };
            let target = self.target(output, Rect::full(output));
            calls.push(pixels(kernel, &ResizeSample { source, target, axis }, output));
            (source, input) = (self.source(), output);
        }
        calls
    }

    fn rank(&mut self, name: &str, kernel: u32, part: Rect) -> Vec<Call> {
        let (whole, stored) = (self.image.whole, self.image.part);
        let between = Rect { x: part.x, width: part.width, ..stored };
        let mut calls = Vec::new();
        for (axis, part) in [("rows", between), ("columns", part)] {
            let source = self.source();
            let target = self.target(whole, part);
            let sample = RankSample { source, target, kernel, reserved: 0 };
            calls.push(pixels(&format!("{name}_{axis}"), &sample, part.size()));
        }
        calls
    }

    fn color(&mut self, op: &Op) -> Vec<Call> {
        let Size { width, height } = self.image.part.size();
        let luma_sum = self.upload(&[0_u64]);
        let (factor, hue_shift) = match *op {
            Op::Brightness { factor } | Op::Contrast { factor } | Op::Saturation { factor } => (factor as f32, 0),
            Op::Hue { factor } => (0.0, u32::from((factor * 255.0) as i32 as u8)),
            _ => (0.0, 0),
        };
        let sample = ColorSample {
            pixels: self.image.memory.address(),
            luma_sum,
            pitch_bytes: self.image.pitch_bytes,
            width,
            height,
            factor,
            hue_shift,
            reserved: 0,
        };
        let kernels = if matches!(op, Op::Contrast { .. }) { &["luma_sum", "contrast"][..] } else { &[op.name()] };
        kernels.iter().map(|kernel| pixels(kernel, &sample, Size { width, height })).collect()
    }

    /// One operation: the rectangle `part` of its result.
    fn op(&mut self, op: &Op, part: Rect) -> Vec<Call> {
        let input = self.image.whole;
        let size = op.output_size(input).expect("recipes fit");
        let (right, bottom) = (input.width as i32 - 1, input.height as i32 - 1);
        match *op {
            Op::Hflip => self.flip([-1, 0, right, 0, 1, 0], size),
            Op::Vflip => self.flip([1, 0, 0, 0, -1, bottom], size),
            Op::Rotate { degrees, interpolation, expand, fill } => match Rotation::new(input, degrees, expand, fill) {
                Rotation::None => Vec::new(),
                Rotation::Quarter => self.flip([0, -1, right, 1, 0, 0], size),
                Rotation::Half => self.flip([-1, 0, right, 0, -1, bottom], size),
                Rotation::ThreeQuarters => self.flip([0, 1, 0, -1, 0, bottom], size),
                Rotation::Free { matrix, canvas } => {
                    let kernel =
                        if interpolation == Interpolation::Nearest { "rotate_nearest" } else { "rotate_bilinear" };
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
                let weights = self.upload(&crate::gaussian_blur::weights(kernel, sigma));
                let target = self.target(input, part);
                self.keep.push(Memory::new(12 * part.width as usize * source.height as usize, 0));
                let between = self.keep[self.keep.len() - 1].address();
                let sample = BlurSample { source, target, between, weights, kernel, reserved: 0 };
                let rows = Size::new(part.width, source.height);
                vec![pixels("gaussian_blur_rows", &sample, rows), pixels("gaussian_blur_columns", &sample, part.size())]
            }
            Op::Dilate { kernel } => self.rank("dilate", kernel, part),
            Op::Erode { kernel } => self.rank("erode", kernel, part),
            Op::Erase { x, y, width, height, value } => {
                let stored = self.image.part;
                let (left, right) = (x.max(stored.x), (x + width).min(stored.right()));
                let (top, bottom) = (y.max(stored.y), (y + height).min(stored.bottom()));
                if left >= right || top >= bottom {
                    return Vec::new();
                }
                let [red, green, blue] = value.map(|v| v.round() as u8);
                let sample = EraseSample {
                    pixels: self.image.memory.address(),
                    pitch_bytes: self.image.pitch_bytes,
                    x: left - stored.x,
                    y: top - stored.y,
                    width: right - left,
                    height: bottom - top,
                    value: u32::from_le_bytes([red, green, blue, 0]),
                };
                vec![pixels("erase", &sample, Size::new(right - left, bottom - top))]
            }
            _ => self.color(op),
        }
    }

    /// What the fused kernel needs to know of a view and a resize of which `part` is needed.
    fn fused(&mut self, view: &View, resize: Option<Resampling>, part: Rect) -> FusedSample {
        let steps: Vec<Step> = view
            .steps
            .iter()
            .map(|step| {
                let (fill, _) = color(Fill::Color(step.fill));
                let Size { width, height } = step.bounds;
                Step { a: step.a, width, height, fill, reserved: [0; 3] }
            })
            .collect();
        let e = view.exact;
        let mut sample = FusedSample {
            source: self.source(),
            steps: self.upload(&steps),
            exact: [e.xx, e.xy, e.x0, e.yx, e.yy, e.y0],
            mirror_x: 1,
            mirror_y: 1,
            step_count: steps.len() as u32,
            ..FusedSample::default()
        };
        if let Some(Resampling { size, interpolation, vertical_first }) = resize {
            let input = view.size;
            if input.width != size.width {
                sample.columns = self.axis(input.width, size.width, part.x..part.right(), interpolation);
            }
            if input.height != size.height {
                sample.rows = self.axis(input.height, size.height, part.y..part.bottom(), interpolation);
            }
            sample.vertical_first = u32::from(vertical_first);
        }
        sample
    }

    /// A stage's part of its result.
    fn stage(&mut self, stage: &Stage) -> Vec<Call> {
        let part = stage.part;
        let resize = match &stage.work {
            Work::Gather => None,
            Work::Resample(resampling) => Some(*resampling),
            Work::Affine { matrix, canvas, fill } => {
                return self.rotate("rotate_bilinear", *matrix, *canvas, *fill, part);
            }
            Work::Pixels(op) | Work::Whole(op) => return self.op(op, part),
        };
        let mut sample = self.fused(&stage.view, resize, part);
        (sample.x0, sample.y0) = (part.x as i32, part.y as i32);
        let target = self.target(stage.size, part);
        sample.output = Output {
            elements: target.pixels,
            row_stride: target.pitch_bytes,
            width: part.width,
            height: part.height,
            ..Output::default()
        };
        vec![Call { grid: Grid::Tiles, ..pixels("fused", &sample, part.size()) }]
    }

    /// A place for the result.
    fn output(&mut self, size: Size, epilogue: &Epilogue, format: Format) -> Output {
        let Format { element, layout, misaligned } = format;
        let erasures: Vec<Erasure> = epilogue
            .erasures
            .iter()
            .map(|erasure| {
                let rect = erasure.rect;
                let (right, bottom) = (rect.right(), rect.bottom());
                let value = erasure.value.map(|value| element.bits(value));
                Erasure { left: rect.x, top: rect.y, right, bottom, value, reserved: 0 }
            })
            .collect();
        let len = 3 * size.area_px() as usize * element.bytes();
        let memory = Memory::new(len, misaligned * element.bytes());
        let output = Output {
            elements: memory.address(),
            erasures: self.upload(&erasures),
            plane_stride: if layout == Layout::Nchw { size.area_px() } else { 0 },
            row_stride: if layout == Layout::Nchw { size.width } else { 3 * size.width },
            width: size.width,
            height: size.height,
            erasure_count: erasures.len() as u32,
        };
        self.output = Some(memory);
        output
    }
}

/// A complete picture and what is to be done with it.
pub struct Job {
    pub size: Size,
    pub rgb: Vec<u8>,
    pub ops: Vec<Op>,
}

fn table(format: Format, normalize: Option<([f32; 3], [f32; 3])>) -> Memory {
    let element = format.element;
    let elements: Vec<u8> = (0..3)
        .flat_map(|channel| (0..=255).map(move |byte| element.bits(normalized(byte, channel, normalize))))
        .flat_map(|bits| element.stored(bits))
        .collect();
    upload(&elements)
}

fn last_call<T: Copy>(kernel: &str, sample: &T, size: Size, format: Format, table: &Memory) -> Vec<Call> {
    let kernel = format!("{kernel}_{}_{}", format.element.name(), format.layout.name());
    vec![Call { kernel, grid: Grid::Tiles, table: table.address(), ..pixels("", sample, size) }]
}

fn outputs(samples: Vec<Sample>) -> Vec<Vec<u8>> {
    samples.iter().map(|sample| sample.output.as_ref().expect("it has one").bytes().to_vec()).collect()
}

/// One pass an operation, then the epilogue. All jobs normalise alike.
pub fn sequential(jobs: &[Job], format: Format) -> Vec<Vec<u8>> {
    let mut samples: Vec<Sample> = jobs
        .iter()
        .map(|job| Sample {
            image: Image::upload(&job.rgb, job.size, Rect::full(job.size)),
            keep: Vec::new(),
            output: None,
        })
        .collect();
    let split: Vec<_> = jobs.iter().map(|job| split_epilogue(&job.ops).expect("recipes fit")).collect();
    let table = table(format, split[0].1.normalize);
    let calls = samples.iter_mut().zip(&split).map(|(sample, (ops, epilogue))| {
        let mut calls = Vec::new();
        for op in *ops {
            let size = op.output_size(sample.image.whole).expect("recipes fit");
            calls.extend(sample.op(op, Rect::full(size)));
        }
        let size = sample.image.whole;
        let output = sample.output(size, epilogue, format);
        let finish = FinishSample { source: sample.source(), output };
        calls.extend(last_call("finish", &finish, size, format, &table));
        calls
    });
    run(calls.collect());
    outputs(samples)
}

/// As planned: fused or composed. All jobs normalise alike.
pub fn planned(jobs: &[Job], geometry: Geometry, format: Format) -> Vec<Vec<u8>> {
    let plans: Vec<_> = jobs
        .iter()
        .map(|job| plan(&job.ops, job.size, 1 << 27, geometry, PassOrder::default()).expect("recipes fit"))
        .collect();
    let mut samples: Vec<Sample> = jobs
        .iter()
        .zip(&plans)
        .map(|(job, plan)| Sample {
            image: Image::upload(&job.rgb, job.size, plan.decode),
            keep: Vec::new(),
            output: None,
        })
        .collect();
    let table = table(format, plans[0].epilogue.normalize);
    let calls = samples.iter_mut().zip(&plans).map(|(sample, plan)| {
        let last = &plan.last;
        let direct = last.steps.is_empty() && last.exact.xy == 0;
        let (before, resize) = match plan.stages.split_last() {
            Some((Stage { view, work: Work::Resample(resampling), part, .. }, before)) if direct => {
                (before, Some((view, *resampling, *part)))
            }
            _ => (&plan.stages[..], None),
        };
        let mut calls: Vec<Call> = before.iter().flat_map(|stage| sample.stage(stage)).collect();
        let mut fused = match resize {
            Some((view, resampling, part)) => {
                let mut fused = sample.fused(view, Some(resampling), part);
                (fused.mirror_x, fused.x0) = (last.exact.xx, last.exact.x0);
                (fused.mirror_y, fused.y0) = (last.exact.yy, last.exact.y0);
                fused
            }
            None => sample.fused(last, None, Rect::full(last.size)),
        };
        fused.output = sample.output(last.size, &plan.epilogue, format);
        calls.extend(last_call("fused", &fused, last.size, format, &table));
        calls
    });
    run(calls.collect());
    outputs(samples)
}
