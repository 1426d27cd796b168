//! The kernels of kernels/*.cu: their names, grids and launches.
#![allow(unsafe_code)]

use super::driver::{self, Context, Function, Module, Stream};
use super::params::{
    BlurSample, ColorSample, CropSample, EraseSample, Erasure, FinishSample, FlipSample, FusedSample, Launch,
    RankSample, ResizeSample, RotateSample, Step,
};
use crate::error::Result;
use crate::image::Size;
use crate::tensor::{DType, Layout};
use bytemuck::NoUninit;

/// Most samples of one launch: a grid's y and z are 16-bit numbers.
const MAX_SAMPLES: usize = 65_535;

/// How a kernel's grid covers an image.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Grid {
    /// A pixel a thread, in blocks of 32 x 8.
    Pixels,
    /// A row a thread, in blocks of 256.
    Rows,
    /// Tiles of 32 x 16 pixels, a block of 256 threads each.
    Tiles,
}

macro_rules! kernels {
    ($($kernel:ident = $name:literal $grid:ident,)*) => {
        /// A kernel that makes or changes images of bytes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Kernel {
            $($kernel,)*
            /// The fused kernel into the batch.
            Fused,
            /// The end of the sequential strategy.
            Finish,
        }

        /// Kernels of a fixed name.
        const FIXED: &[(Kernel, &str)] = &[$((Kernel::$kernel, $name),)*];

        impl Kernel {
            fn grid(self) -> Grid {
                match self {
                    $(Self::$kernel => Grid::$grid,)*
                    Self::Fused | Self::Finish => Grid::Tiles,
                }
            }
        }
    };
}

kernels! {
    Gather = "fused_u8_nhwc" Tiles,
    Flip = "flip_u8_nhwc" Pixels,
    Crop = "crop_u8_nhwc" Pixels,
    RotateNearest = "rotate_nearest_u8_nhwc" Pixels,
    RotateNearestDouble = "rotate_nearest_double_u8_nhwc" Rows,
    RotateBilinear = "rotate_bilinear_u8_nhwc" Pixels,
    ResizeHorizontal = "resize_horizontal_u8_nhwc" Pixels,
    ResizeVertical = "resize_vertical_u8_nhwc" Pixels,
    BlurRows = "gaussian_blur_rows_u8_nhwc" Pixels,
    BlurColumns = "gaussian_blur_columns_u8_nhwc" Pixels,
    DilateRows = "dilate_rows_u8_nhwc" Pixels,
    DilateColumns = "dilate_columns_u8_nhwc" Pixels,
    ErodeRows = "erode_rows_u8_nhwc" Pixels,
    ErodeColumns = "erode_columns_u8_nhwc" Pixels,
    Brightness = "brightness_u8_nhwc" Pixels,
    LumaSum = "luma_sum_u8_nhwc" Pixels,
    Contrast = "contrast_u8_nhwc" Pixels,
    Saturation = "saturation_u8_nhwc" Pixels,
    Hue = "hue_u8_nhwc" Pixels,
    Grayscale = "grayscale_u8_nhwc" Pixels,
    Erase = "erase_u8_nhwc" Pixels,
}

/// One image's share of a launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) kernel: Kernel,
    pub(super) sample: Sample,
    /// The pixels that the kernel makes or changes.
    pub(super) extent: Size,
}

// SAFETY: plain numbers without padding, which params.rs asserts by the structs' sizes.
unsafe impl NoUninit for Step {}
// SAFETY: as above.
unsafe impl NoUninit for Erasure {}

macro_rules! samples {
    ($($kind:ident($type:ty),)*) => {
        $(
            // SAFETY: plain numbers without padding, which params.rs asserts by the structs' sizes.
            unsafe impl NoUninit for $type {}
        )*

        /// An image's descriptor.
        #[derive(Debug, Clone, Copy)]
        pub(super) enum Sample {
            $($kind($type),)*
        }

        impl Sample {
            /// As the kernel reads it.
            pub(super) fn bytes(&self) -> &[u8] {
                match self {
                    $(Self::$kind(sample) => bytemuck::bytes_of(sample),)*
                }
            }
        }
    };
}

samples! {
    Fused(FusedSample),
    Finish(FinishSample),
    Flip(FlipSample),
    Crop(CropSample),
    Rotate(RotateSample),
    Resize(ResizeSample),
    Blur(BlurSample),
    Rank(RankSample),
    Color(ColorSample),
    Erase(EraseSample),
}

/// One launch: calls of one kernel, whose descriptors lie one after the other.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) kernel: Kernel,
    /// Where the descriptors will lie on the device.
    pub(super) samples: u64,
    pub(super) count: usize,
    /// Of all calls together.
    width: u32,
    height: u32,
    tiles: u32,
}

impl Group {
    /// The launch of `calls`, which are of one kernel; at most 65,535.
    fn new(calls: &[Call]) -> Self {
        let most = |of: fn(Size) -> u32| calls.iter().map(|call| of(call.extent)).max().unwrap_or(0);
        Self {
            kernel: calls[0].kernel,
            samples: 0,
            count: calls.len(),
            width: most(|size| size.width),
            height: most(|size| size.height),
            tiles: most(|size| size.width.div_ceil(32) * size.height.div_ceil(16)),
        }
    }

    fn grid(&self) -> ([u32; 3], [u32; 3]) {
        let count = self.count as u32;
        match self.kernel.grid() {
            Grid::Pixels => ([self.width.div_ceil(32), self.height.div_ceil(8), count], [32, 8, 1]),
            Grid::Rows => ([self.height.div_ceil(256), count, 1], [256, 1, 1]),
            Grid::Tiles => ([self.tiles, count, 1], [256, 1, 1]),
        }
    }
}

/// Sorts the calls of several images, each image's in order, into as few launches as come of taking, again and
/// again, the kernel that most images wait for. `emit` is handed each launch and its calls.
pub(super) fn group(images: &[Vec<Call>], mut emit: impl FnMut(Group, &[Call]) -> Result<()>) -> Result<()> {
    // Where each image stands, and which of them wait for which kernel.
    let mut at = vec![0; images.len()];
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); Kernel::Finish as usize + 1];
    let enqueue = |waiting: &mut Vec<Vec<usize>>, image: usize, at: usize| {
        if let Some(call) = images[image].get(at) {
            waiting[call.kernel as usize].push(image);
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

/// The functions of a loaded image, each resolved once.
#[derive(Debug)]
pub(super) struct Kernels {
    functions: Vec<Function>,
    fused: Function,
    finish: Function,
    /// Keeps the functions valid.
    _module: Module,
}

impl Kernels {
    /// Loads the image and resolves the kernels for one type and layout of the output.
    pub(super) fn load(context: &Context, image: &[u8], dtype: DType, layout: Layout) -> Result<Self> {
        let module = Module::load(context, image)?;
        let layout = match layout {
            Layout::Nchw => "nchw",
            Layout::Nhwc => "nhwc",
        };
        Ok(Self {
            functions: FIXED.iter().map(|(_, name)| module.function(name)).collect::<Result<_>>()?,
            fused: module.function(&format!("fused_{dtype}_{layout}"))?,
            finish: module.function(&format!("finish_{dtype}_{layout}"))?,
            _module: module,
        })
    }

    /// Queues a launch.
    ///
    /// # Safety
    /// The descriptors will lie where the group says when the launch runs, and all that they point to is valid until it
    /// is done; `table` is the table of elements of the kernels' output type.
    pub(super) unsafe fn launch(&self, group: &Group, table: u64, stream: &Stream) -> Result<()> {
        let (function, name) = match group.kernel {
            Kernel::Fused => (self.fused, "fused"),
            Kernel::Finish => (self.finish, "finish"),
            kernel => (self.functions[kernel as usize], FIXED[kernel as usize].1),
        };
        let table = if group.kernel == Kernel::Gather { 0 } else { table };
        let launch = Launch { samples: group.samples, table, count: group.count as u32, reserved: 0 };
        let (grid, block) = group.grid();
        // SAFETY: the parameter is the one that every kernel takes; the rest is the contract.
        unsafe { driver::launch(name, function, grid, block, stream, &launch) }
    }
}
