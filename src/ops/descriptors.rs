//! Descriptors of kernels' images: kernels/descriptors.cuh in Rust. Both sides assert sizes and offsets.
//!
//! Pointers are device addresses. Images are interleaved RGB, 3 bytes a pixel, with a row pitch in bytes, or planes of
//! any type; an image may be a stored rectangle of a larger whole. Strides are in elements, offsets and sizes in pixels.
//! No struct has padding.

use std::mem::offset_of;

/// An address in device memory; 0 for none.
pub(crate) type DevicePointer = u64;

/// The parameter of every kernel.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Launch {
    /// Descriptors of the kernel's type, one per sample.
    pub(crate) samples: DevicePointer,
    /// fused, finish: 3 x 256 elements of the output's type, the value of each byte in each channel.
    pub(crate) table: DevicePointer,
    /// Number of samples (mixup: of its single batch; spin: number of microseconds).
    pub(crate) count: u32,
    pub(crate) reserved: u32,
}

/// An image to read: a rectangle of a whole image.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct SourceImage {
    pub(crate) pixels: DevicePointer,
    pub(crate) pitch_bytes: u32,
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) whole_width: u32,
    pub(crate) whole_height: u32,
    pub(crate) reserved: u32,
}

/// An image to write: a rectangle of the complete result.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct TargetImage {
    pub(crate) pixels: DevicePointer,
    pub(crate) pitch_bytes: u32,
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) reserved: u32,
}

/// A step of a coordinate chain.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(16))]
pub(crate) struct StepDescriptor {
    pub(crate) a: [i32; 6],
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Color with red in the lowest byte, and a bit above blue that marks it as a fill.
    pub(crate) fill: u32,
    pub(crate) reserved: [u32; 3],
}

/// A resize along one axis.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Axis {
    /// First input pixel of each output pixel from `first` on; 0 if this axis is not resized.
    pub(crate) starts: DevicePointer,
    /// Index of each output pixel's first weight, and the number of all weights at the end.
    pub(crate) offsets: DevicePointer,
    /// Weights with 22 fractional bits; 0 for nearest.
    pub(crate) weights: DevicePointer,
    pub(crate) first: i32,
    /// Largest number of weights of an output pixel.
    pub(crate) most: u32,
}

/// A rectangle that is overwritten after normalization.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Erasure {
    pub(crate) left: u32,
    pub(crate) top: u32,
    pub(crate) right: u32,
    pub(crate) bottom: u32,
    /// Color as bits of the output's type.
    pub(crate) value: [u32; 3],
    pub(crate) reserved: u32,
}

/// A sample's place in the batch.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct BatchPlace {
    pub(crate) elements: DevicePointer,
    pub(crate) erasures: DevicePointer,
    /// Used for NCHW only.
    pub(crate) plane_stride: u64,
    pub(crate) row_stride: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) erasure_count: u32,
}

/// fused: output pixel (x, y) is pixel (mirror_x x + x0, mirror_y y + y0) of the resized view.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct FusedSample {
    pub(crate) source: SourceImage,
    pub(crate) output: BatchPlace,
    pub(crate) steps: DevicePointer,
    /// Table of 256 bytes, applied to all pixels except the steps' fills; 0 for none.
    pub(crate) table: DevicePointer,
    pub(crate) columns: Axis,
    pub(crate) rows: Axis,
    /// xx, xy, x0, yx, yy, y0.
    pub(crate) exact: [i32; 6],
    pub(crate) mirror_x: i32,
    pub(crate) x0: i32,
    pub(crate) mirror_y: i32,
    pub(crate) y0: i32,
    pub(crate) step_count: u32,
    pub(crate) vertical_first: u32,
}

/// finish.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct FinishSample {
    pub(crate) source: SourceImage,
    pub(crate) output: BatchPlace,
}

/// flip: mirrors and quarter turns.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct FlipSample {
    pub(crate) source: SourceImage,
    pub(crate) target: TargetImage,
    /// xx, xy, x0, yx, yy, y0.
    pub(crate) exact: [i32; 6],
}

/// crop.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct CropSample {
    pub(crate) source: SourceImage,
    pub(crate) target: TargetImage,
    pub(crate) x: i32,
    pub(crate) y: i32,
    pub(crate) fill: u32,
    /// Pixels outside the image: 0 for the fill, 1 for the edge, or one of the constants below.
    pub(crate) outside: u32,
}

impl CropSample {
    /// The image mirrored at the middle of its outermost pixels.
    pub(crate) const REFLECT: u32 = 2;
    /// The image mirrored at its edge.
    pub(crate) const SYMMETRIC: u32 = 3;
}

/// rotate_nearest, rotate_nearest_double, rotate_bilinear, rotate_bicubic. The source is an image as a mirror, a turn or a
/// crop shows it: `pixels` is the first stored pixel of this view, and `pitch_bytes` is not used.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RotateSample {
    pub(crate) source: SourceImage,
    pub(crate) target: TargetImage,
    /// Map from output to input, for pixel centers.
    pub(crate) matrix: [f64; 6],
    /// The matrix in fixed point, with 16 (rotate_nearest) or 44 fractional bits.
    pub(crate) fixed: [i64; 6],
    pub(crate) fill: u32,
    /// If not 0, the edge is used instead of the fill.
    pub(crate) edge: u32,
    /// Largest error of fixed point with 44 bits, in 2^-32 pixels (nearest) or 2^-16 of a value.
    pub(crate) doubt: u32,
    /// Distances to the view's next column and row, in bytes.
    pub(crate) right: i32,
    pub(crate) down: i32,
    pub(crate) reserved: u32,
}

/// The doubt of a sample whose coordinates do not fit fixed point.
pub(crate) const ALL_IN_DOUBT: u32 = u32::MAX;

/// resize_horizontal, resize_vertical.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ResizeSample {
    pub(crate) source: SourceImage,
    pub(crate) target: TargetImage,
    pub(crate) axis: Axis,
}

/// gaussian_blur_rows, gaussian_blur_columns.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct BlurSample {
    pub(crate) source: SourceImage,
    pub(crate) target: TargetImage,
    /// `source.height` rows of `3 * target.width` sums of 32 bits.
    pub(crate) between: DevicePointer,
    /// Weights for distances 0 to `kernel / 2`, then those of columns, with 24 fractional bits.
    pub(crate) weights: DevicePointer,
    /// Taps of rows.
    pub(crate) kernel: u32,
    /// Taps of columns.
    pub(crate) kernel_y: u32,
}

/// dilate and erode, one axis a launch.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct MorphologySample {
    pub(crate) source: SourceImage,
    pub(crate) target: TargetImage,
    pub(crate) kernel: u32,
    pub(crate) reserved: u32,
}

/// table: replaces each byte in place by its value in the table.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct TableSample {
    pub(crate) pixels: DevicePointer,
    /// 256 bytes, or 768 for a table per channel.
    pub(crate) table: DevicePointer,
    pub(crate) pitch_bytes: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Distance from a channel's table to the next one's; 0 if all channels share a table.
    pub(crate) stride_bytes: u32,
}

/// histogram reads the image. equalize_table and autocontrast_table make the table.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct HistogramSample {
    pub(crate) pixels: DevicePointer,
    /// 3 x 256 counts of 32 bits, which are 0 before histogram.
    pub(crate) counts: DevicePointer,
    /// 3 x 256 bytes.
    pub(crate) table: DevicePointer,
    pub(crate) pitch_bytes: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) reserved: u32,
}

/// mix_add reads the image and adds to the sums. mix_cut makes the image from the sums.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct MixSample {
    pub(crate) image: DevicePointer,
    pub(crate) made: DevicePointer,
    /// `height` rows of `3 * width` numbers in single precision.
    pub(crate) sums: DevicePointer,
    pub(crate) image_pitch_bytes: u32,
    pub(crate) made_pitch_bytes: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) weight: f32,
    /// If not 0, the sums start from zero.
    pub(crate) first: u32,
}

/// perspective.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PerspectiveSample {
    pub(crate) source: SourceImage,
    pub(crate) target: TargetImage,
    /// Coefficients of both coordinates and of their divisor, for twice a pixel's place and for 1, with 40 fractional
    /// bits.
    pub(crate) coefficients: [i64; 9],
    pub(crate) fill: u32,
    /// 0 for nearest.
    pub(crate) bilinear: u32,
}

/// box_blur.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct BoxBlurSample {
    pub(crate) source: SourceImage,
    pub(crate) target: TargetImage,
    /// Number of pixels on either side of the middle that have full weight.
    pub(crate) radius: u32,
    /// Weight of these pixels, with 24 fractional bits.
    pub(crate) weight: u32,
    /// Weight of the two pixels next to them.
    pub(crate) far_weight: u32,
    /// 0 for a blur along rows.
    pub(crate) down: u32,
}

/// sharpness.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct SharpnessSample {
    pub(crate) source: SourceImage,
    pub(crate) target: TargetImage,
    pub(crate) factor: f32,
    pub(crate) reserved: u32,
}

/// contrast: reads the image, makes the table.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ContrastSample {
    pub(crate) pixels: DevicePointer,
    /// 64 bits, which are 0 before luma_sum.
    pub(crate) luma_sum: DevicePointer,
    /// 256 bytes, made by contrast_table.
    pub(crate) table: DevicePointer,
    pub(crate) pitch_bytes: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) factor: f32,
}

/// saturation, hue, grayscale, permute_channels: in place.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ColorSample {
    pub(crate) pixels: DevicePointer,
    pub(crate) pitch_bytes: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) factor: f32,
    pub(crate) hue_shift: u32,
    /// Source channel of each channel, 2 bits each, red in the lowest.
    pub(crate) order: u32,
}

impl ColorSample {
    /// The descriptor of an image that is changed in place.
    pub(crate) fn of(image: &SourceImage) -> Self {
        let SourceImage { pixels, pitch_bytes, width, height, .. } = *image;
        Self { pixels, pitch_bytes, width, height, ..Self::default() }
    }
}

/// elastic_noise, elastic_rows, elastic: the image is complete.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ElasticSample {
    pub(crate) source: SourceImage,
    pub(crate) target: TargetImage,
    /// Two numbers in single precision for each pixel of the whole image.
    pub(crate) noise: DevicePointer,
    /// The noise, blurred along rows.
    pub(crate) between: DevicePointer,
    /// The blur's weights, starting with the outermost.
    pub(crate) weights: DevicePointer,
    pub(crate) key: u64,
    pub(crate) radius: u32,
    /// Pixels that noise of 1 moves by.
    pub(crate) scale_x: f32,
    pub(crate) scale_y: f32,
    pub(crate) fill: u32,
    /// 0 for nearest.
    pub(crate) bilinear: u32,
    pub(crate) reserved: u32,
}

/// gaussian_noise: in place.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct NoiseSample {
    pub(crate) pixels: DevicePointer,
    /// The table of deviates in noise.rs.
    pub(crate) normals: DevicePointer,
    pub(crate) key: u64,
    pub(crate) pitch_bytes: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Place of the first stored pixel.
    pub(crate) first_x: u32,
    pub(crate) first_y: u32,
    /// Mean and standard deviation for bytes.
    pub(crate) mean: f32,
    pub(crate) sigma: f32,
    /// If 0, sums wrap around.
    pub(crate) clip: u32,
}

/// mixup: the part of one image.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct MixupSample {
    /// Weights of an element and of its partner's element, if `blend` is not 0.
    pub(crate) share: f32,
    pub(crate) rest: f32,
    /// If `blend` is 0, the partner's elements inside this rectangle are pasted.
    pub(crate) left: u32,
    pub(crate) top: u32,
    pub(crate) right: u32,
    pub(crate) bottom: u32,
    pub(crate) blend: u32,
    pub(crate) reserved: u32,
}

/// field_load: a mask as the host packs it, row by row.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct FieldLoadSample {
    pub(crate) packed: DevicePointer,
    pub(crate) target: TargetImage,
    /// 1 to 3.
    pub(crate) pixel_bytes: u32,
    pub(crate) reserved: u32,
}

/// view_load: an image in the caller's memory. Distances to the next row, column and channel are in values.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ViewLoadSample {
    /// The first value of the whole image.
    pub(crate) values: DevicePointer,
    pub(crate) target: TargetImage,
    pub(crate) row: u64,
    pub(crate) column: u64,
    pub(crate) channel: u64,
}

/// field_store: the place in the batch has planes of `width` x `height`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct FieldStoreSample {
    pub(crate) source: SourceImage,
    pub(crate) elements: DevicePointer,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) planes: u32,
    /// Contents of the three bytes of a pixel: one of the constants below.
    pub(crate) form: u32,
    /// The pixel outside the image, with the first byte lowest.
    pub(crate) fill: u32,
    pub(crate) reserved: u32,
}

impl FieldStoreSample {
    /// A byte of each plane.
    pub(crate) const BYTES: u32 = 0;
    /// A number of 16 bits.
    pub(crate) const WORDS: u32 = 1;
    /// A bit of each plane.
    pub(crate) const BITS: u32 = 2;
}

/// An image of planes, to read or to write: a rectangle of a whole image. There are no gaps between rows, nor between
/// planes.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanesImage {
    pub(crate) values: DevicePointer,
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) whole_width: u32,
    pub(crate) whole_height: u32,
    /// The type of the values: one of the constants below.
    pub(crate) element: u32,
    pub(crate) channels: u32,
}

impl PlanesImage {
    /// Whole numbers of 8 bits.
    pub(crate) const U8: u32 = 0;
    /// Whole numbers of 16 bits.
    pub(crate) const U16: u32 = 1;
    /// Floating-point numbers of 32 bits.
    pub(crate) const F32: u32 = 2;
}

/// planes_copy.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanesCopySample {
    pub(crate) source: PlanesImage,
    pub(crate) target: PlanesImage,
    /// The column of the whole image for each column of the target, -1 for none; 0 if `exact` says it.
    pub(crate) columns: DevicePointer,
    /// The row of the whole image for each row of the target, in the same way.
    pub(crate) rows: DevicePointer,
    /// The source channel of each channel; 0 if they stay.
    pub(crate) channels: DevicePointer,
    /// Bits outside the image, for each channel; 0 for the edge.
    pub(crate) fill: DevicePointer,
    /// xx, xy, x0, yx, yy, y0.
    pub(crate) exact: [i32; 6],
}

/// planes_resize: one axis a launch. Places are those of stored pixels.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanesResizeSample {
    pub(crate) source: PlanesImage,
    pub(crate) target: PlanesImage,
    /// First pixel of each column or row of the target.
    pub(crate) starts: DevicePointer,
    /// Index of each first weight, and the number of all weights at the end.
    pub(crate) offsets: DevicePointer,
    /// Weights with 22 fractional bits for bytes, doubles for other types.
    pub(crate) weights: DevicePointer,
    /// First row that is read, or column.
    pub(crate) first: u32,
    /// 0 for a resize of rows.
    pub(crate) down: u32,
}

/// planes_nearest.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanesNearestSample {
    pub(crate) source: PlanesImage,
    pub(crate) target: PlanesImage,
    /// Bits outside the image, for each channel; 0 for the edge.
    pub(crate) fill: DevicePointer,
    /// Map from target to source, for pixel centers.
    pub(crate) matrix: [f64; 6],
    /// The matrix with 16 fractional bits.
    pub(crate) fixed: [i64; 6],
    /// If 0, the matrix is used.
    pub(crate) is_fixed: u32,
    pub(crate) reserved: u32,
}

/// planes_warp.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanesWarpSample {
    pub(crate) source: PlanesImage,
    pub(crate) target: PlanesImage,
    /// Bits outside the image, for each channel; 0 for the edge.
    pub(crate) fill: DevicePointer,
    /// The coefficients a to h of the map from pixel centers of the target to points of the source.
    pub(crate) map: [f64; 8],
    /// One of the constants below.
    pub(crate) interpolation: u32,
    /// If not 0, g and h are 0.
    pub(crate) is_affine: u32,
}

impl PlanesWarpSample {
    /// The nearest pixel.
    pub(crate) const NEAREST: u32 = 0;
    /// The four pixels around a point.
    pub(crate) const BILINEAR: u32 = 1;
    /// The sixteen pixels around a point.
    pub(crate) const BICUBIC: u32 = 2;
}

/// planes_blur_rows, planes_blur_columns.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanesBlurSample {
    pub(crate) source: PlanesImage,
    pub(crate) target: PlanesImage,
    /// Planes of `source.height` rows of `target.width` sums: 32 bits for bytes, doubles for other types.
    pub(crate) between: DevicePointer,
    /// Weights of all taps, then those of columns: 24 fractional bits for bytes, doubles for other types.
    pub(crate) weights: DevicePointer,
    /// Taps of rows.
    pub(crate) kernel: u32,
    /// Taps of columns.
    pub(crate) kernel_y: u32,
}

/// planes_extreme: dilation or erosion, one axis a launch.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanesExtremeSample {
    pub(crate) source: PlanesImage,
    pub(crate) target: PlanesImage,
    pub(crate) kernel: u32,
    /// 0 for the smallest value.
    pub(crate) largest: u32,
    /// 0 for rows.
    pub(crate) down: u32,
    pub(crate) reserved: u32,
}

/// planes_points: in place.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanesPointsSample {
    pub(crate) image: PlanesImage,
    /// A value for each value.
    pub(crate) table: DevicePointer,
    pub(crate) max: f32,
    pub(crate) factor: f32,
    pub(crate) threshold: f32,
    /// One of the constants below.
    pub(crate) form: u32,
    pub(crate) mask: u32,
    pub(crate) reserved: u32,
}

impl PlanesPointsSample {
    /// The table's value.
    pub(crate) const TABLE: u32 = 0;
    /// `max - v`.
    pub(crate) const INVERT: u32 = 1;
    /// `v` below the threshold, else `max - v`.
    pub(crate) const SOLARIZE: u32 = 2;
    /// The bits of the mask.
    pub(crate) const MASK: u32 = 3;
    /// `v * factor`.
    pub(crate) const SCALE: u32 = 4;
}

/// planes_noise: in place.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanesNoiseSample {
    pub(crate) image: PlanesImage,
    /// The table of deviates in noise.rs.
    pub(crate) normals: DevicePointer,
    pub(crate) key: u64,
    pub(crate) mean: f32,
    pub(crate) sigma: f32,
    pub(crate) max: f32,
    /// If 0, sums of whole numbers wrap around.
    pub(crate) clip: u32,
}

/// planes_erase: in place. The rectangle lies inside the stored part; its place is that in the whole image.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanesEraseSample {
    pub(crate) image: PlanesImage,
    /// Numbers of each channel in single precision.
    pub(crate) values: DevicePointer,
    /// The table of deviates in noise.rs.
    pub(crate) normals: DevicePointer,
    pub(crate) key: u64,
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// 0 for no noise.
    pub(crate) std: f32,
    pub(crate) reserved: u32,
}

/// A rectangle that is overwritten after normalization.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanesErasure {
    /// Numbers of each channel in single precision.
    pub(crate) values: DevicePointer,
    pub(crate) key: u64,
    pub(crate) left: u32,
    pub(crate) top: u32,
    pub(crate) right: u32,
    pub(crate) bottom: u32,
    /// 0 for no noise.
    pub(crate) std: f32,
    pub(crate) reserved: u32,
}

/// planes_finish: a complete image. Erasures in `output` are ignored.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PlanesFinishSample {
    pub(crate) source: PlanesImage,
    pub(crate) output: BatchPlace,
    /// Mean and standard deviation of each channel in single precision; 0 without normalization.
    pub(crate) scales: DevicePointer,
    pub(crate) erasures: DevicePointer,
    /// The table of deviates in noise.rs.
    pub(crate) normals: DevicePointer,
    /// The whole number that becomes 1.
    pub(crate) max: f32,
    /// The elements of the batch: one of the constants below.
    pub(crate) elements: u32,
    /// If 0, channels are planes.
    pub(crate) interleaved: u32,
    pub(crate) erasure_count: u32,
}

impl PlanesFinishSample {
    /// The values as they are.
    pub(crate) const AS_STORED: u32 = 0;
    /// Numbers of 32 bits.
    pub(crate) const F32: u32 = 1;
    /// Numbers of 16 bits (IEEE).
    pub(crate) const F16: u32 = 2;
    /// Numbers of 16 bits with an exponent of 8 bits.
    pub(crate) const BF16: u32 = 3;
}

/// mixup: the batch.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct MixupBatch {
    pub(crate) elements: DevicePointer,
    pub(crate) samples: DevicePointer,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// If not 0, an image's partner is its counterpart in the reversed batch; otherwise it is the image before.
    pub(crate) flip: u32,
    pub(crate) channels: u32,
}

/// erase: in place. The rectangle lies inside the stored part.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct EraseSample {
    pub(crate) pixels: DevicePointer,
    pub(crate) pitch_bytes: u32,
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Color with red in the lowest byte.
    pub(crate) value: u32,
}

/// erase_noise: in place, on an image of bytes or an image in the batch. The rectangle lies inside the stored part.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct EraseNoiseSample {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// The table of deviates in noise.rs.
    pub(crate) normals: DevicePointer,
    pub(crate) key: u64,
    pub(crate) std: f32,
    /// Column of the first stored pixel.
    pub(crate) first_x: u32,
    /// Sizes and erasures in it are ignored.
    pub(crate) output: BatchPlace,
    pub(crate) value: [f32; 3],
    /// Row of the first stored pixel.
    pub(crate) first_y: u32,
}

const _: () = {
    assert!(size_of::<Launch>() == 24 && offset_of!(Launch, count) == 16);
    assert!(size_of::<SourceImage>() == 40 && offset_of!(SourceImage, whole_width) == 28);
    assert!(size_of::<TargetImage>() == 32 && offset_of!(TargetImage, width) == 20);
    assert!(
        size_of::<StepDescriptor>() == 48
            && align_of::<StepDescriptor>() == 16
            && offset_of!(StepDescriptor, fill) == 32
    );
    assert!(size_of::<Axis>() == 32 && offset_of!(Axis, first) == 24);
    assert!(size_of::<Erasure>() == 32 && offset_of!(Erasure, value) == 16);
    assert!(size_of::<BatchPlace>() == 40 && offset_of!(BatchPlace, row_stride) == 24);
    assert!(size_of::<FusedSample>() == 208);
    assert!(offset_of!(FusedSample, output) == 40 && offset_of!(FusedSample, steps) == 80);
    assert!(offset_of!(FusedSample, table) == 88 && offset_of!(FusedSample, columns) == 96);
    assert!(offset_of!(FusedSample, exact) == 160 && offset_of!(FusedSample, mirror_x) == 184);
    assert!(offset_of!(FusedSample, step_count) == 200);
    assert!(size_of::<FinishSample>() == 80 && offset_of!(FinishSample, output) == offset_of!(FusedSample, output));
    assert!(size_of::<FlipSample>() == 96 && offset_of!(FlipSample, exact) == 72);
    assert!(size_of::<CropSample>() == 88 && offset_of!(CropSample, x) == 72);
    assert!(size_of::<RotateSample>() == 192 && offset_of!(RotateSample, fixed) == 120);
    assert!(offset_of!(RotateSample, doubt) == 176);
    assert!(size_of::<ResizeSample>() == 104 && offset_of!(ResizeSample, axis) == 72);
    assert!(size_of::<BlurSample>() == 96 && offset_of!(BlurSample, kernel) == 88);
    assert!(size_of::<MorphologySample>() == 80 && offset_of!(MorphologySample, kernel) == 72);
    assert!(size_of::<ContrastSample>() == 40 && offset_of!(ContrastSample, factor) == 36);
    assert!(size_of::<ColorSample>() == 32 && offset_of!(ColorSample, factor) == 20);
    assert!(size_of::<TableSample>() == 32 && offset_of!(TableSample, stride_bytes) == 28);
    assert!(size_of::<HistogramSample>() == 40 && offset_of!(HistogramSample, pitch_bytes) == 24);
    assert!(size_of::<PerspectiveSample>() == 152 && offset_of!(PerspectiveSample, fill) == 144);
    assert!(size_of::<BoxBlurSample>() == 88 && offset_of!(BoxBlurSample, radius) == 72);
    assert!(size_of::<MixSample>() == 48 && offset_of!(MixSample, weight) == 40);
    assert!(size_of::<SharpnessSample>() == 80 && offset_of!(SharpnessSample, factor) == 72);
    assert!(size_of::<MixupSample>() == 32 && offset_of!(MixupSample, blend) == 24);
    assert!(size_of::<MixupBatch>() == 32 && offset_of!(MixupBatch, flip) == 24);
    assert!(size_of::<FieldLoadSample>() == 48 && offset_of!(FieldLoadSample, pixel_bytes) == 40);
    assert!(size_of::<ViewLoadSample>() == 64 && offset_of!(ViewLoadSample, row) == 40);
    assert!(size_of::<FieldStoreSample>() == 72 && offset_of!(FieldStoreSample, planes) == 56);
    assert!(size_of::<EraseSample>() == 32 && offset_of!(EraseSample, value) == 28);
    assert!(size_of::<ElasticSample>() == 128 && offset_of!(ElasticSample, radius) == 104);
    assert!(size_of::<NoiseSample>() == 56 && offset_of!(NoiseSample, mean) == 44);
    assert!(size_of::<EraseNoiseSample>() == 96 && offset_of!(EraseNoiseSample, value) == 80);
    assert!(offset_of!(EraseNoiseSample, output) == offset_of!(FusedSample, output));
    assert!(size_of::<PlanesImage>() == 40 && offset_of!(PlanesImage, element) == 32);
    assert!(size_of::<PlanesCopySample>() == 136 && offset_of!(PlanesCopySample, exact) == 112);
    assert!(size_of::<PlanesResizeSample>() == 112 && offset_of!(PlanesResizeSample, first) == 104);
    assert!(size_of::<PlanesNearestSample>() == 192 && offset_of!(PlanesNearestSample, fixed) == 136);
    assert!(size_of::<PlanesWarpSample>() == 160 && offset_of!(PlanesWarpSample, map) == 88);
    assert!(size_of::<PlanesBlurSample>() == 104 && offset_of!(PlanesBlurSample, kernel) == 96);
    assert!(size_of::<PlanesExtremeSample>() == 96 && offset_of!(PlanesExtremeSample, down) == 88);
    assert!(size_of::<PlanesPointsSample>() == 72 && offset_of!(PlanesPointsSample, form) == 60);
    assert!(size_of::<PlanesNoiseSample>() == 72 && offset_of!(PlanesNoiseSample, clip) == 68);
    assert!(size_of::<PlanesEraseSample>() == 88 && offset_of!(PlanesEraseSample, std) == 80);
    assert!(size_of::<PlanesErasure>() == 40 && offset_of!(PlanesErasure, std) == 32);
    assert!(size_of::<PlanesFinishSample>() == 120 && offset_of!(PlanesFinishSample, max) == 104);
    assert!(offset_of!(PlanesFinishSample, output) == offset_of!(FusedSample, output));
};
