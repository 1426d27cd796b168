//! Options of transforms.

use crate::backend::PixelForm;
use crate::ops::PassOrder;
use crate::pixels::Pixels;
use crate::plan::{Planner, Strategy};
use crate::raster::DEFAULT_MAX_PIXELS;
use crate::tensor::{DType, Layout};

options! {
    /// Options of [`Transforms`](super::Transforms). Each is that of a pipeline's builder.
    #[derive(Debug, Clone, Copy)]
    pub struct TransformsOptions {
        /// Type of the tensors' elements. Without normalization, f32, f16 and bf16 values are 0 to 1. Default: f32.
        pub dtype: DType,
        /// Order of the tensors' dimensions. Default: NCHW.
        pub layout: Layout,
        /// Number of channels of results: 3, or 1 for gray, as in
        /// [`PipelineBuilder::channels`](crate::PipelineBuilder::channels). Default: 3.
        pub channels: usize,
        /// Whether recipes of images with fields end by dropping the objects whose boxes are no longer valid. Default:
        /// true.
        pub sanitize: bool,
        /// Strategy that runs the operations. Default: fused.
        pub strategy: Strategy,
        /// The pass of a resize that comes first.
        pub pass_order: PassOrder,
        /// Largest image accepted, in pixels, as it is given and after each operation.
        pub max_pixels: u64,
        /// Kind of the images: gray and RGB of 8 bits, both as RGB, or another kind. Default: RGB.
        pub pixels: Pixels,
        /// The value that stands for 1, where that is not the largest value of the pixels' type: 4,095 for 12 bits.
        pub max_value: Option<f32>,
    }
}

impl Default for TransformsOptions {
    fn default() -> Self {
        Self {
            dtype: DType::F32,
            layout: Layout::Nchw,
            channels: 3,
            sanitize: true,
            strategy: Strategy::default(),
            pass_order: PassOrder::default(),
            max_pixels: DEFAULT_MAX_PIXELS,
            pixels: Pixels::Rgb,
            max_value: None,
        }
    }
}

impl TransformsOptions {
    pub(super) fn planner(&self) -> Planner {
        let &Self { strategy, pass_order: order, max_pixels: max_px, .. } = self;
        Planner { strategy, order, max_px, values: self.pixels.values(self.max_value) }
    }

    pub(super) fn elements(&self) -> PixelForm {
        PixelForm { dtype: self.dtype, layout: self.layout, channels: self.channels }
    }
}
