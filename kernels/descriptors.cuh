// Descriptors of kernels: one `Launch` per kernel, which points to an array with one sample descriptor per image.
// src/ops/descriptors.rs has the same structs; both sides assert sizes and offsets.
//
// Images are interleaved RGB, 3 bytes a pixel, with a row pitch in bytes, or planes of any type (PlanesImage). An image
// may be a stored rectangle of a larger whole. Strides are in elements, offsets and sizes in pixels. All pointers are to device memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace warpfeed {

// The parameter of every kernel.
struct Launch {
    const void* samples;  // descriptors of the kernel's type
    const void* table;    // fused, finish: 3 x 256 elements of the output's type, one for each byte of each channel
    uint32_t count;       // number of samples (mixup: of its single batch; spin: microseconds; work: repetitions)
    uint32_t reserved;
};

// An image to read: the rectangle of `width` x `height` pixels at (`x`, `y`) of a whole.
struct SourceImage {
    const uint8_t* pixels;
    uint32_t pitch_bytes;
    uint32_t x, y, width, height;
    uint32_t whole_width, whole_height;
    uint32_t reserved;
};

// An image to write: the rectangle of `width` x `height` pixels at (`x`, `y`) of the complete result.
struct TargetImage {
    uint8_t* pixels;
    uint32_t pitch_bytes;
    uint32_t x, y, width, height;
    uint32_t reserved;
};

// A step of a coordinate chain: `x' = (a0 x + a1 y + a2) >> 16`, `y' = (a3 x + a4 y + a5) >> 16`, where sums wrap. If
// the result is outside `width` x `height`, the pixel is `fill` (red in the lowest byte, and kIsFill). Loaded in three
// vectors of 16 bytes.
constexpr uint32_t kIsFill = 1 << 24;

struct alignas(16) StepDescriptor {
    int32_t a[6];
    uint32_t width, height;
    uint32_t fill;
    uint32_t reserved[3];
};

// A resize along one axis: for each output from `first` on, the first input pixel and the weights, which have 22
// fractional bits and begin at `weights[offsets[i]]`. If `starts` is null, this axis is not resized. If `weights` is
// null, the filter is nearest.
struct Axis {
    const int32_t* starts;
    const int32_t* offsets;
    const int32_t* weights;
    int32_t first;
    uint32_t most;  // largest number of weights of an output
};

// A rectangle that is overwritten after normalization, with bits of the output's type.
struct Erasure {
    uint32_t left, top, right, bottom;
    uint32_t value[3];
    uint32_t reserved;
};

// A sample's place in the batch. `plane_stride` is used for NCHW only.
struct BatchPlace {
    void* elements;
    const Erasure* erasures;
    uint64_t plane_stride;
    uint32_t row_stride;
    uint32_t width, height;
    uint32_t erasure_count;
};

// fused: output pixel (x, y) is pixel (mirror_x x + x0, mirror_y y + y0) of the resized view. The view's pixel comes
// from the image through the steps, then the exact map `exact` (xx, xy, x0, yx, yy, y0).
struct FusedSample {
    SourceImage source;
    BatchPlace output;
    const StepDescriptor* steps;
    const uint8_t* table;  // 256 bytes, applied to all pixels except the steps' fills; null for none
    Axis columns, rows;
    int32_t exact[6];
    int32_t mirror_x, x0, mirror_y, y0;
    uint32_t step_count;
    uint32_t vertical_first;
};

struct FinishSample {
    SourceImage source;
    BatchPlace output;
};

// flip: mirrors and quarter turns. Result pixel (x, y) is pixel (xx x + xy y + x0, yx x + yy y + y0) of the whole.
struct FlipSample {
    SourceImage source;
    TargetImage target;
    int32_t exact[6];
};

struct CropSample {
    SourceImage source;
    TargetImage target;
    int32_t x, y;
    uint32_t fill;
    uint32_t outside;  // pixels outside the image: 0 for the fill, 1 for the edge, or one of the constants below
};

// Outside is the image mirrored at the middle of its outermost pixels, or mirrored at its edge.
constexpr uint32_t kReflect = 2, kSymmetric = 3;

// The doubt of a sample whose coordinates do not fit fixed point.
constexpr uint32_t kAllInDoubt = ~uint32_t{0};

// The source is an image as a mirror, a turn or a crop shows it. `pixels` is the first stored pixel of this view; the
// view's next column and row are `right` and `down` bytes away.
struct RotateSample {
    SourceImage source;  // without pitch_bytes
    TargetImage target;
    double matrix[6];  // map from output to input, for pixel centers
    int64_t fixed[6];  // the matrix in fixed point, with 16 (rotate_nearest) or 44 fractional bits
    uint32_t fill;
    uint32_t edge;   // if not 0, the edge is used instead of the fill
    uint32_t doubt;  // largest error of fixed point with 44 bits, in 2^-32 pixels (nearest) or 2^-16 of a value
    int32_t right, down;
    uint32_t reserved;
};

struct ResizeSample {
    SourceImage source;
    TargetImage target;
    Axis axis;
};

struct BlurSample {
    SourceImage source;
    TargetImage target;
    uint32_t* between;        // source.height rows of 3 * target.width sums with 16 fractional bits
    const uint32_t* weights;  // for distances 0 to kernel / 2, then of columns, with 24 fractional bits
    uint32_t kernel;          // taps of rows
    uint32_t kernel_y;        // taps of columns
};

// dilate, erode: one axis per launch.
struct MorphologySample {
    SourceImage source;
    TargetImage target;
    uint32_t kernel;
    uint32_t reserved;
};

// table: replaces each byte in place by its value in the table.
struct TableSample {
    uint8_t* pixels;
    const uint8_t* table;  // 256 bytes, or 768 for a table per channel
    uint32_t pitch_bytes;
    uint32_t width, height;
    uint32_t stride_bytes;  // distance from a channel's table to the next one's; 0 if all channels share a table
};

// histogram reads the image. equalize_table and autocontrast_table make the table.
struct HistogramSample {
    const uint8_t* pixels;
    uint32_t* counts;  // 3 x 256 numbers: 0 at first, pixels with each byte after histogram_u8_nhwc
    uint8_t* table;    // 3 x 256 bytes: the new value of each byte of a channel
    uint32_t pitch_bytes;
    uint32_t width, height;
    uint32_t reserved;
};

// mix_add adds the image to the sums. mix_cut makes an image from the sums and blends it with the first image.
struct MixSample {
    const uint8_t* image;
    uint8_t* made;
    float* sums;  // height rows of 3 * width
    uint32_t image_pitch_bytes, made_pitch_bytes;
    uint32_t width, height;
    float weight;    // mix_add: the image's weight; mix_cut: the blend of the first image and the sums
    uint32_t first;  // if not 0, the sums start from zero
};

struct PerspectiveSample {
    SourceImage source;
    TargetImage target;
    int64_t coefficients[9];  // both coordinates and their divisor, for twice a pixel's place and 1; 40 fractional bits
    uint32_t fill;
    uint32_t bilinear;  // 0 for nearest
};

// box_blur: along one axis.
struct BoxBlurSample {
    SourceImage source;
    TargetImage target;
    uint32_t radius;      // pixels on either side of the middle that have full weight
    uint32_t weight;      // weight of these pixels, with 24 fractional bits
    uint32_t far_weight;  // weight of the two pixels next to them
    uint32_t down;        // 0 for a blur along rows
};

struct SharpnessSample {
    SourceImage source;
    TargetImage target;
    float factor;
    uint32_t reserved;
};

// contrast: reads the image, makes the table.
struct ContrastSample {
    const uint8_t* pixels;
    unsigned long long* luma_sum;  // 0 at first, the sum of all pixels' luma after luma_sum_u8_nhwc
    uint8_t* table;                // 256 bytes: the new value of each byte, after contrast_table_u8
    uint32_t pitch_bytes;
    uint32_t width, height;
    float factor;
};

// saturation, hue, grayscale, permute_channels: in place.
struct ColorSample {
    uint8_t* pixels;
    uint32_t pitch_bytes;
    uint32_t width, height;
    float factor;
    uint32_t hue_shift;  // 0 to 255
    uint32_t order;      // source channel of each channel, 2 bits each, red in the lowest
};

// erase: in place. The rectangle lies inside the stored part.
struct EraseSample {
    uint8_t* pixels;
    uint32_t pitch_bytes;
    uint32_t x, y, width, height;
    uint32_t value;
};

// erase_noise: in place, on an image of bytes or an image in the batch. The rectangle lies inside the stored part.
struct EraseNoiseSample {
    uint32_t x, y, width, height;
    const int32_t* normals;  // table of deviates in noise.rs
    uint64_t key;
    float std;
    uint32_t first_x;  // column of the first stored pixel
    BatchPlace output;     // sizes and erasures in it are ignored
    float value[3];
    uint32_t first_y;  // row of the first stored pixel
};

// Two numbers of a pixel, one for each axis.
struct Pair {
    float x, y;
};

// elastic_noise, elastic_rows, elastic: the image is complete.
struct ElasticSample {
    SourceImage source;
    TargetImage target;
    Pair* noise;           // for each pixel of the whole image
    Pair* between;         // the noise, blurred along rows
    const float* weights;  // the blur's weights, starting with the outermost
    uint64_t key;
    uint32_t radius;
    float scale_x, scale_y;  // pixels that noise of 1 moves by
    uint32_t fill;
    uint32_t bilinear;  // 0 for nearest
    uint32_t reserved;
};

// gaussian_noise: in place.
struct NoiseSample {
    uint8_t* pixels;
    const int32_t* normals;  // table of deviates in noise.rs
    uint64_t key;
    uint32_t pitch_bytes;
    uint32_t width, height;
    uint32_t first_x, first_y;  // place of the first stored pixel
    float mean, sigma;          // for bytes
    uint32_t clip;              // if 0, sums wrap around
};

// field_load: a mask as the host packs it, row by row.
struct FieldLoadSample {
    const uint8_t* packed;
    TargetImage target;
    uint32_t pixel_bytes;  // 1 to 3
    uint32_t reserved;
};

// view_load: an image in the caller's memory. Distances to the next row, column and channel are in values.
struct ViewLoadSample {
    const uint8_t* values;  // the first value of the whole image
    TargetImage target;
    uint64_t row, column, channel;
};

// Contents of the three bytes of a pixel: a byte of each plane, a number of 16 bits, or a bit of each plane.
constexpr uint32_t kBytes = 0, kWords = 1, kBits = 2;

// field_store: the place in the batch has planes of `width` x `height`.
struct FieldStoreSample {
    SourceImage source;
    void* elements;
    uint32_t width, height;
    uint32_t planes;
    uint32_t form;
    uint32_t fill;  // the pixel outside the image
    uint32_t reserved;
};

// Types of an image's values: whole numbers of 8 and 16 bits, and floating-point numbers of 32 bits.
constexpr uint32_t kU8 = 0, kU16 = 1, kF32 = 2;

// An image of planes: the rectangle of `width` x `height` pixels at (`x`, `y`) of a whole. It is read or written. There
// are no gaps between rows, nor between planes.
struct PlanesImage {
    void* values;
    uint32_t x, y, width, height;
    uint32_t whole_width, whole_height;
    uint32_t element;
    uint32_t channels;
};

// planes_copy: result pixel (x, y) is pixel (xx x + xy y + x0, yx x + yy y + y0) of the whole.
struct PlanesCopySample {
    PlanesImage source;
    PlanesImage target;
    const int32_t* columns;    // if not null, the column of the whole for each column of the target; -1 for none
    const int32_t* rows;       // the same of rows
    const uint32_t* channels;  // if not null, the source channel of each channel
    const uint32_t* fill;      // bits outside the image, for each channel; null for the edge
    int32_t exact[6];
};

// planes_resize: one axis per launch. Places are those of stored pixels.
struct PlanesResizeSample {
    PlanesImage source;
    PlanesImage target;
    const int32_t* starts;   // first pixel of each column or row of the target
    const int32_t* offsets;  // index of each first weight
    const void* weights;     // numbers with 22 fractional bits for bytes, doubles for other types
    uint32_t first;          // first row that is read, or column
    uint32_t down;           // 0 for a resize of rows
};

// planes_nearest.
struct PlanesNearestSample {
    PlanesImage source;
    PlanesImage target;
    const uint32_t* fill;  // as above
    double matrix[6];      // map from target to source, for pixel centers
    int64_t fixed[6];      // the matrix with 16 fractional bits
    uint32_t is_fixed;     // if 0, the matrix is used
    uint32_t reserved;
};

constexpr uint32_t kNearest = 0, kBilinear = 1, kBicubic = 2;

// planes_warp: pixel centers go to ((a x + b y + c) / z, (d x + e y + f) / z), with z = g x + h y + 1.
struct PlanesWarpSample {
    PlanesImage source;
    PlanesImage target;
    const uint32_t* fill;  // as above
    double map[8];         // a to h
    uint32_t interpolation;
    uint32_t is_affine;  // if not 0, g and h are 0
};

// planes_blur_rows, planes_blur_columns.
struct PlanesBlurSample {
    PlanesImage source;
    PlanesImage target;
    void* between;        // planes of source.height rows of target.width sums: 32 bits for bytes, doubles otherwise
    const void* weights;  // of all taps, then of columns: 24 fractional bits for bytes, doubles otherwise
    uint32_t kernel;          // taps of rows
    uint32_t kernel_y;        // taps of columns
};

// planes_extreme: dilation or erosion, one axis per launch.
struct PlanesExtremeSample {
    PlanesImage source;
    PlanesImage target;
    uint32_t kernel;
    uint32_t largest;  // 0 for the smallest value
    uint32_t down;     // 0 for rows
    uint32_t reserved;
};

// Functions of single values.
constexpr uint32_t kTable = 0, kInvert = 1, kSolarize = 2, kMask = 3, kScale = 4;

// planes_points: in place.
struct PlanesPointsSample {
    PlanesImage image;
    const void* table;  // kTable: a value for each value
    float max, factor;
    float threshold;  // kSolarize
    uint32_t form;
    uint32_t mask;
    uint32_t reserved;
};

// planes_noise: in place.
struct PlanesNoiseSample {
    PlanesImage image;
    const int32_t* normals;  // table of deviates in noise.rs
    uint64_t key;
    float mean, sigma, max;
    uint32_t clip;  // if 0, sums of whole numbers wrap around
};

// planes_erase: in place. The rectangle lies inside the stored part; its place is that in the whole.
struct PlanesEraseSample {
    PlanesImage image;
    const float* values;     // of each channel
    const int32_t* normals;  // as above
    uint64_t key;
    uint32_t x, y, width, height;
    float std;  // 0 for no noise
    uint32_t reserved;
};

// A rectangle that is overwritten after normalization.
struct PlanesErasure {
    const float* values;  // of each channel
    uint64_t key;
    uint32_t left, top, right, bottom;
    float std;  // 0 for no noise
    uint32_t reserved;
};

// The elements of a batch: values as they are, or floating-point numbers.
constexpr uint32_t kAsStored = 0, kToF32 = 1, kToF16 = 2, kToBf16 = 3;

// planes_finish: a complete image. Erasures in `output` are ignored.
struct PlanesFinishSample {
    PlanesImage source;
    BatchPlace output;
    const float* scales;  // mean and standard deviation of each channel; null without normalization
    const PlanesErasure* erasures;
    const int32_t* normals;  // as above
    float max;               // the whole number that becomes 1
    uint32_t elements;
    uint32_t interleaved;  // if 0, channels are planes
    uint32_t erasure_count;
};

// mixup: the part of one image.
struct MixupSample {
    float share, rest;                  // weights of an element and its partner's, if `blend` is not 0
    uint32_t left, top, right, bottom;  // otherwise the rectangle that is pasted from the partner
    uint32_t blend;
    uint32_t reserved;
};

// mixup: the batch. If `flip` is not 0, partners are the batch in reverse order. Otherwise the partner is the image
// before; the first image's partner is the last.
struct MixupBatch {
    void* elements;
    const MixupSample* samples;
    uint32_t width, height;
    uint32_t flip;
    uint32_t channels;
};

static_assert(sizeof(Launch) == 24 && offsetof(Launch, count) == 16, "as in descriptors.rs");
static_assert(sizeof(SourceImage) == 40 && offsetof(SourceImage, whole_width) == 28, "as in descriptors.rs");
static_assert(sizeof(TargetImage) == 32 && offsetof(TargetImage, width) == 20, "as in descriptors.rs");
static_assert(sizeof(StepDescriptor) == 48 && alignof(StepDescriptor) == 16, "as in descriptors.rs");
static_assert(offsetof(StepDescriptor, fill) == 32, "as in descriptors.rs");
static_assert(sizeof(Axis) == 32 && offsetof(Axis, first) == 24, "as in descriptors.rs");
static_assert(sizeof(Erasure) == 32 && offsetof(Erasure, value) == 16, "as in descriptors.rs");
static_assert(sizeof(BatchPlace) == 40 && offsetof(BatchPlace, row_stride) == 24, "as in descriptors.rs");
static_assert(sizeof(FusedSample) == 208, "as in descriptors.rs");
static_assert(offsetof(FusedSample, output) == 40 && offsetof(FusedSample, steps) == 80, "as in descriptors.rs");
static_assert(offsetof(FusedSample, table) == 88 && offsetof(FusedSample, columns) == 96, "as in descriptors.rs");
static_assert(offsetof(FusedSample, exact) == 160 && offsetof(FusedSample, mirror_x) == 184, "as in descriptors.rs");
static_assert(offsetof(FusedSample, step_count) == 200, "as in descriptors.rs");
static_assert(sizeof(FinishSample) == 80 && offsetof(FinishSample, output) == 40, "as in descriptors.rs");
static_assert(sizeof(FlipSample) == 96 && offsetof(FlipSample, exact) == 72, "as in descriptors.rs");
static_assert(sizeof(CropSample) == 88 && offsetof(CropSample, x) == 72, "as in descriptors.rs");
static_assert(sizeof(RotateSample) == 192 && offsetof(RotateSample, fixed) == 120, "as in descriptors.rs");
static_assert(offsetof(RotateSample, doubt) == 176, "as in descriptors.rs");
static_assert(sizeof(ResizeSample) == 104 && offsetof(ResizeSample, axis) == 72, "as in descriptors.rs");
static_assert(sizeof(BlurSample) == 96 && offsetof(BlurSample, kernel) == 88, "as in descriptors.rs");
static_assert(sizeof(MorphologySample) == 80 && offsetof(MorphologySample, kernel) == 72, "as in descriptors.rs");
static_assert(sizeof(ContrastSample) == 40 && offsetof(ContrastSample, factor) == 36, "as in descriptors.rs");
static_assert(sizeof(ColorSample) == 32 && offsetof(ColorSample, factor) == 20, "as in descriptors.rs");
static_assert(sizeof(TableSample) == 32 && offsetof(TableSample, stride_bytes) == 28, "as in descriptors.rs");
static_assert(sizeof(HistogramSample) == 40 && offsetof(HistogramSample, pitch_bytes) == 24, "as in descriptors.rs");
static_assert(sizeof(PerspectiveSample) == 152 && offsetof(PerspectiveSample, fill) == 144, "as in descriptors.rs");
static_assert(sizeof(BoxBlurSample) == 88 && offsetof(BoxBlurSample, radius) == 72, "as in descriptors.rs");
static_assert(sizeof(MixSample) == 48 && offsetof(MixSample, weight) == 40, "as in descriptors.rs");
static_assert(sizeof(SharpnessSample) == 80 && offsetof(SharpnessSample, factor) == 72, "as in descriptors.rs");
static_assert(sizeof(MixupSample) == 32 && offsetof(MixupSample, blend) == 24, "as in descriptors.rs");
static_assert(sizeof(MixupBatch) == 32 && offsetof(MixupBatch, flip) == 24, "as in descriptors.rs");
static_assert(sizeof(ElasticSample) == 128 && offsetof(ElasticSample, radius) == 104, "as in descriptors.rs");
static_assert(sizeof(NoiseSample) == 56 && offsetof(NoiseSample, mean) == 44, "as in descriptors.rs");
static_assert(sizeof(EraseNoiseSample) == 96 && offsetof(EraseNoiseSample, value) == 80, "as in descriptors.rs");
static_assert(offsetof(EraseNoiseSample, output) == 40, "as in descriptors.rs");
static_assert(sizeof(FieldLoadSample) == 48 && offsetof(FieldLoadSample, pixel_bytes) == 40, "as in descriptors.rs");
static_assert(sizeof(ViewLoadSample) == 64 && offsetof(ViewLoadSample, row) == 40, "as in descriptors.rs");
static_assert(sizeof(FieldStoreSample) == 72 && offsetof(FieldStoreSample, planes) == 56, "as in descriptors.rs");
static_assert(sizeof(EraseSample) == 32 && offsetof(EraseSample, value) == 28, "as in descriptors.rs");
static_assert(sizeof(PlanesImage) == 40 && offsetof(PlanesImage, element) == 32, "as in descriptors.rs");
static_assert(sizeof(PlanesCopySample) == 136 && offsetof(PlanesCopySample, exact) == 112, "as in descriptors.rs");
static_assert(sizeof(PlanesResizeSample) == 112 && offsetof(PlanesResizeSample, first) == 104, "as in descriptors.rs");
static_assert(sizeof(PlanesNearestSample) == 192 && offsetof(PlanesNearestSample, fixed) == 136, "as in descriptors.rs");
static_assert(sizeof(PlanesWarpSample) == 160 && offsetof(PlanesWarpSample, map) == 88, "as in descriptors.rs");
static_assert(sizeof(PlanesBlurSample) == 104 && offsetof(PlanesBlurSample, kernel) == 96, "as in descriptors.rs");
static_assert(sizeof(PlanesExtremeSample) == 96 && offsetof(PlanesExtremeSample, down) == 88, "as in descriptors.rs");
static_assert(sizeof(PlanesPointsSample) == 72 && offsetof(PlanesPointsSample, form) == 60, "as in descriptors.rs");
static_assert(sizeof(PlanesNoiseSample) == 72 && offsetof(PlanesNoiseSample, clip) == 68, "as in descriptors.rs");
static_assert(sizeof(PlanesEraseSample) == 88 && offsetof(PlanesEraseSample, std) == 80, "as in descriptors.rs");
static_assert(sizeof(PlanesErasure) == 40 && offsetof(PlanesErasure, std) == 32, "as in descriptors.rs");
static_assert(sizeof(PlanesFinishSample) == 120 && offsetof(PlanesFinishSample, output) == 40, "as in descriptors.rs");
static_assert(offsetof(PlanesFinishSample, max) == 104, "as in descriptors.rs");

}  // namespace warpfeed
