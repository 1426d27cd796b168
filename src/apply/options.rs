//! The options that all ways of making images without a pipeline have.

/// Declares a struct of options for making images of images: its own, then those that all such structs have.
macro_rules! image_options {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty = $default:expr,)* }) => {
        options! {
            $(#[$meta])*
            #[derive(Debug, Clone, Copy)]
            pub struct $name {
                /// Type of the tensors' elements. Without normalization, f32, f16 and bf16 values are 0 to 1.
                pub dtype: $crate::tensor::DType,
                /// Order of the tensors' dimensions.
                pub layout: $crate::tensor::Layout,
                $($(#[$doc])* pub $field: $type,)*
                /// Strategy that runs the operations.
                pub strategy: $crate::plan::Strategy,
                /// The pass of a resize that comes first.
                pub pass_order: $crate::ops::filter::PassOrder,
                /// Handling of an EXIF orientation tag.
                pub orientation: $crate::ops::orientation::Orientation,
                /// Decodes a JPEG at a smaller scale whose sides are not below this size: see
                /// [`PipelineBuilder::draft`](crate::PipelineBuilder::draft).
                pub draft: Option<$crate::raster::Size>,
                /// Begins with a thumbnail of the image: see
                /// [`PipelineBuilder::thumbnail`](crate::PipelineBuilder::thumbnail). The recipes of a pipeline have
                /// the thumbnail's operation already; of them only its draft is used.
                pub thumbnail: Option<$crate::apply::Thumbnail>,
                /// Whether truncated JPEGs are accepted.
                pub accept_truncated: bool,
                /// Largest image accepted, in pixels, as stored and after each operation.
                pub max_pixels: u64,
                /// Kind of pixels that images are decoded to.
                pub pixels: $crate::pixels::Pixels,
                /// The value that stands for 1, where that is not the largest value of the pixels' type: 4,095 for 12 bits.
                pub max_value: Option<f32>,
                /// The device that runs the operations.
                pub device: $crate::device::Device,
                /// The decoder of JPEGs if the operations run on a GPU.
                pub jpeg_decoder: $crate::device::JpegDecoder,
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    dtype: $crate::tensor::DType::F32,
                    layout: $crate::tensor::Layout::Nchw,
                    $($field: $default,)*
                    strategy: $crate::plan::Strategy::default(),
                    pass_order: $crate::ops::filter::PassOrder::default(),
                    orientation: $crate::ops::orientation::Orientation::default(),
                    draft: None,
                    thumbnail: None,
                    accept_truncated: false,
                    max_pixels: $crate::raster::DEFAULT_MAX_PIXELS,
                    pixels: $crate::pixels::Pixels::Rgb,
                    max_value: None,
                    device: $crate::device::Device::Cpu,
                    jpeg_decoder: $crate::device::JpegDecoder::Cpu,
                }
            }
        }

        impl $name {
            /// Sets the option of this name, from text.
            ///
            /// # Errors
            /// [`Error::Parameter`](crate::Error::Parameter) for a name that is not an option's, or another text.
            pub fn set(mut self, name: &str, text: &str) -> $crate::error::Result<Self> {
                macro_rules! read {
                    ($option:ident) => {
                        self.$option = $crate::options::read(stringify!($option), text)?
                    };
                }
                match name {
                    "dtype" => read!(dtype),
                    "layout" => read!(layout),
                    $(stringify!($field) => read!($field),)*
                    "strategy" => read!(strategy),
                    "pass_order" => read!(pass_order),
                    "orientation" => read!(orientation),
                    "draft" => read!(draft),
                    "thumbnail" => read!(thumbnail),
                    "accept_truncated" => read!(accept_truncated),
                    "max_pixels" => read!(max_pixels),
                    "pixels" => read!(pixels),
                    "max_value" => read!(max_value),
                    "device" => read!(device),
                    "jpeg_decoder" => read!(jpeg_decoder),
                    _ => return Err($crate::options::unknown(name)),
                }
                Ok(self)
            }

            /// The form of the tensors' elements.
            pub(crate) fn elements(&self) -> $crate::backend::PixelForm {
                $crate::backend::PixelForm { dtype: self.dtype, layout: self.layout, channels: 3 }
            }

            pub(crate) fn planner(&self) -> $crate::plan::Planner {
                let &Self { strategy, pass_order: order, max_pixels: max_px, .. } = self;
                let values = self.pixels.values(self.max_value);
                $crate::plan::Planner { strategy, order, max_px, values }
            }

            pub(crate) fn opening(&self) -> $crate::apply::opening::Opening {
                let &Self { orientation, draft, thumbnail, .. } = self;
                $crate::apply::opening::Opening { orientation, draft, thumbnail }
            }

            /// The options of a back end for batches of this number of images.
            pub(crate) fn run_options(&self, images: usize) -> $crate::backend::RunOptions {
                $crate::backend::RunOptions {
                    jpeg_decoder: self.jpeg_decoder,
                    accept_truncated: self.accept_truncated,
                    batch_size: images,
                    batch_images: images,
                    ..$crate::backend::RunOptions::default()
                }
            }
        }
    };
}

pub(crate) use image_options;
