// What the host hands to kernels: one `Launch` a kernel, which points to an array of one sample descriptor an image.
// src/ops/params.rs has the same structs; sizes and offsets are asserted on both sides.
//
// Images are interleaved RGB, 3 bytes a pixel, with a row pitch in bytes. An image may be a stored rectangle of a
// larger whole. Strides are in elements, offsets and sizes in pixels. All pointers are to device memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace warpfeed {

// The parameter of every kernel.
struct Launch {
    const void* samples;  // descriptors of the kernel's type
    const void* table;    // fused, finish: 3 x 256 elements of the output's type, what each byte of a channel becomes
    uint32_t count;       // samples, of mixup those of its one batch; spin: microseconds, work: repetitions
    uint32_t reserved;
};

// An image to read: the rectangle of `width` x `height` pixels at (`x`, `y`) of a whole.
struct Source {
    const uint8_t* pixels;
    uint32_t pitch_bytes;
    uint32_t x, y, width, height;
    uint32_t whole_width, whole_height;
    uint32_t reserved;
};

// An image to write: the rectangle of `width` x `height` pixels at (`x`, `y`) of the complete result.
struct Target {
    uint8_t* pixels;
    uint32_t pitch_bytes;
    uint32_t x, y, width, height;
    uint32_t reserved;
};

// A step of a coordinate chain: `x' = (a0 x + a1 y + a2) >> 16`, `y' = (a3 x + a4 y + a5) >> 16`, sums wrap; outside
// `width` x `height` it shows `fill` (red in the lowest byte, and kIsFill). Loaded in three vectors of 16 bytes.
constexpr uint32_t kIsFill = 1 << 24;

struct alignas(16) Step {
    int32_t a[6];
    uint32_t width, height;
    uint32_t fill;
    uint32_t reserved[3];
};

// A resize along one axis: for the outputs from `first` onwards, the first input pixel and the weights with 22
// fractional bits, which begin at `weights[offsets[i]]`. No `starts`: this axis is not resized. No `weights`: nearest.
struct Axis {
    const int32_t* starts;
    const int32_t* offsets;
    const int32_t* weights;
    int32_t first;
    uint32_t most;  // most weights that an output has
};

// A rectangle overwritten after normalization with bits of the output's type.
struct Erasure {
    uint32_t left, top, right, bottom;
    uint32_t value[3];
    uint32_t reserved;
};

// A sample's place in the batch. `plane_stride` counts in NCHW only.
struct Output {
    void* elements;
    const Erasure* erasures;
    uint64_t plane_stride;
    uint32_t row_stride;
    uint32_t width, height;
    uint32_t erasure_count;
};

// fused: output pixel (x, y) is pixel (mirror_x x + x0, mirror_y y + y0) of the resized view; the view's pixel comes
// through the steps, then the exact map `exact` (xx, xy, x0, yx, yy, y0), from the image.
struct FusedSample {
    Source source;
    Output output;
    const Step* steps;
    const uint8_t* table;  // 256 bytes that made pixels go through, all but the steps' fills; none: they stay
    Axis columns, rows;
    int32_t exact[6];
    int32_t mirror_x, x0, mirror_y, y0;
    uint32_t step_count;
    uint32_t vertical_first;
};

struct FinishSample {
    Source source;
    Output output;
};

// flip and quarter turns: result (x, y) comes from (xx x + xy y + x0, yx x + yy y + y0) of the whole.
struct FlipSample {
    Source source;
    Target target;
    int32_t exact[6];
};

struct CropSample {
    Source source;
    Target target;
    int32_t x, y;
    uint32_t fill;
    uint32_t outside;  // what shows outside the image: 0 the fill, 1 the edge, or one of those below
};

// The image mirrored at the middle of its outermost pixels, and at its edge.
constexpr uint32_t kReflect = 2, kSymmetric = 3;

// The doubt of a sample whose coordinates fixed point cannot hold.
constexpr uint32_t kAllInDoubt = ~uint32_t{0};

struct RotateSample {
    Source source;
    Target target;
    double matrix[6];  // output to input, from pixel centers
    int64_t fixed[6];  // the same in fixed point: 16 fractional bits (rotate_nearest) or 44
    uint32_t fill;
    uint32_t edge;   // not 0: the edge instead of the fill
    uint32_t doubt;  // what fixed point with 44 bits is off by at most, in 2^-32 pixels (nearest) or 2^-16 of a value
    uint32_t reserved;
};

struct ResizeSample {
    Source source;
    Target target;
    Axis axis;
};

struct BlurSample {
    Source source;
    Target target;
    uint32_t* between;        // source.height rows of 3 * target.width sums with 16 fractional bits
    const uint32_t* weights;  // of distances 0 to kernel / 2, 24 fractional bits
    uint32_t kernel;
    uint32_t reserved;
};

// dilate, erode: one axis a launch.
struct RankSample {
    Source source;
    Target target;
    uint32_t kernel;
    uint32_t reserved;
};

// table: in place, each byte becomes what the table has for it.
struct TableSample {
    uint8_t* pixels;
    const uint8_t* table;  // 256 bytes, or 768
    uint32_t pitch_bytes;
    uint32_t width, height;
    uint32_t stride_bytes;  // from a channel's table to the next one's; 0: one table for all
};

// histogram: the image is read. equalize_table, autocontrast_table: the table is made.
struct HistogramSample {
    const uint8_t* pixels;
    uint32_t* counts;  // 3 x 256: 0 before, how many pixels have each byte after histogram_u8_nhwc
    uint8_t* table;    // 3 x 256: what each byte of a channel becomes
    uint32_t pitch_bytes;
    uint32_t width, height;
    uint32_t reserved;
};

// mix_add: the image is added to the sums. mix_cut: an image is made of the sums and blended with the first one.
struct MixSample {
    const uint8_t* image;
    uint8_t* made;
    float* sums;  // height rows of 3 * width
    uint32_t image_pitch_bytes, made_pitch_bytes;
    uint32_t width, height;
    float weight;    // of the image among the sums; of the sums against the image
    uint32_t first;  // not 0: the sums begin
};

struct PerspectiveSample {
    Source source;
    Target target;
    int64_t coefficients[9];  // of both coordinates and their divisor, for twice a pixel's place and 1, 40 fractional bits
    uint32_t fill;
    uint32_t bilinear;  // 0: nearest
};

// box_blur: along one axis.
struct BoxBlurSample {
    Source source;
    Target target;
    uint32_t radius;      // pixels on either side of the middle that count in full
    uint32_t weight;      // their weight, 24 fractional bits
    uint32_t far_weight;  // that of the two next to them
    uint32_t down;        // 0: along rows
};

struct SharpnessSample {
    Source source;
    Target target;
    float factor;
    uint32_t reserved;
};

// contrast: the image is read, the table is made.
struct ContrastSample {
    const uint8_t* pixels;
    unsigned long long* luma_sum;  // 0 before, the sum of all pixels' luma after luma_sum_u8_nhwc
    uint8_t* table;                // 256 bytes: what each byte becomes, after contrast_table_u8
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
    uint32_t order;      // which channel becomes each, 2 bits for one, red in the lowest
};

// erase: in place, the rectangle lies inside what is stored.
struct EraseSample {
    uint8_t* pixels;
    uint32_t pitch_bytes;
    uint32_t x, y, width, height;
    uint32_t value;
};

// erase_noise: in place, an image of bytes or an image in the batch. The rectangle lies inside what is stored.
struct EraseNoiseSample {
    uint32_t x, y, width, height;
    const int32_t* normals;  // the deviates of noise.rs
    uint64_t key;
    float std;
    uint32_t first_x;  // the column of the first pixel stored
    Output output;     // sizes and erasures do not count
    float value[3];
    uint32_t first_y;  // its row
};

// Numbers of a pixel for both axes.
struct Pair {
    float x, y;
};

// elastic_noise, elastic_rows, elastic: the image is complete.
struct ElasticSample {
    Source source;
    Target target;
    Pair* noise;           // of each pixel of the whole
    Pair* between;         // the same, blurred along rows
    const float* weights;  // the blur's, the outermost first
    uint64_t key;
    uint32_t radius;
    float scale_x, scale_y;  // pixels that noise of 1 moves by
    uint32_t fill;
    uint32_t bilinear;  // 0: nearest
    uint32_t reserved;
};

// gaussian_noise: in place.
struct NoiseSample {
    uint8_t* pixels;
    const int32_t* normals;  // the deviates of noise.rs
    uint64_t key;
    uint32_t pitch_bytes;
    uint32_t width, height;
    uint32_t first_x, first_y;  // the place of the first pixel stored
    float mean, sigma;          // of bytes
    uint32_t clip;              // 0: sums wrap around
};

// mixup: one image's part.
struct MixupSample {
    float share, rest;                  // weights of an element and of its partner's, where `blend`
    uint32_t left, top, right, bottom;  // otherwise the partner's elements inside are pasted
    uint32_t blend;
    uint32_t reserved;
};

// mixup: the batch. Partners: the image before, the first one's the last; or, where `flip`, the batch from back to front.
struct MixupBatch {
    void* elements;
    const MixupSample* samples;
    uint32_t width, height;
    uint32_t flip;
    uint32_t channels;
};

static_assert(sizeof(Launch) == 24 && offsetof(Launch, count) == 16, "as in params.rs");
static_assert(sizeof(Source) == 40 && offsetof(Source, whole_width) == 28, "as in params.rs");
static_assert(sizeof(Target) == 32 && offsetof(Target, width) == 20, "as in params.rs");
static_assert(sizeof(Step) == 48 && alignof(Step) == 16 && offsetof(Step, fill) == 32, "as in params.rs");
static_assert(sizeof(Axis) == 32 && offsetof(Axis, first) == 24, "as in params.rs");
static_assert(sizeof(Erasure) == 32 && offsetof(Erasure, value) == 16, "as in params.rs");
static_assert(sizeof(Output) == 40 && offsetof(Output, row_stride) == 24, "as in params.rs");
static_assert(sizeof(FusedSample) == 208, "as in params.rs");
static_assert(offsetof(FusedSample, output) == 40 && offsetof(FusedSample, steps) == 80, "as in params.rs");
static_assert(offsetof(FusedSample, table) == 88 && offsetof(FusedSample, columns) == 96, "as in params.rs");
static_assert(offsetof(FusedSample, exact) == 160 && offsetof(FusedSample, mirror_x) == 184, "as in params.rs");
static_assert(offsetof(FusedSample, step_count) == 200, "as in params.rs");
static_assert(sizeof(FinishSample) == 80 && offsetof(FinishSample, output) == 40, "as in params.rs");
static_assert(sizeof(FlipSample) == 96 && offsetof(FlipSample, exact) == 72, "as in params.rs");
static_assert(sizeof(CropSample) == 88 && offsetof(CropSample, x) == 72, "as in params.rs");
static_assert(sizeof(RotateSample) == 184 && offsetof(RotateSample, fixed) == 120, "as in params.rs");
static_assert(offsetof(RotateSample, doubt) == 176, "as in params.rs");
static_assert(sizeof(ResizeSample) == 104 && offsetof(ResizeSample, axis) == 72, "as in params.rs");
static_assert(sizeof(BlurSample) == 96 && offsetof(BlurSample, kernel) == 88, "as in params.rs");
static_assert(sizeof(RankSample) == 80 && offsetof(RankSample, kernel) == 72, "as in params.rs");
static_assert(sizeof(ContrastSample) == 40 && offsetof(ContrastSample, factor) == 36, "as in params.rs");
static_assert(sizeof(ColorSample) == 32 && offsetof(ColorSample, factor) == 20, "as in params.rs");
static_assert(sizeof(TableSample) == 32 && offsetof(TableSample, stride_bytes) == 28, "as in params.rs");
static_assert(sizeof(HistogramSample) == 40 && offsetof(HistogramSample, pitch_bytes) == 24, "as in params.rs");
static_assert(sizeof(PerspectiveSample) == 152 && offsetof(PerspectiveSample, fill) == 144, "as in params.rs");
static_assert(sizeof(BoxBlurSample) == 88 && offsetof(BoxBlurSample, radius) == 72, "as in params.rs");
static_assert(sizeof(MixSample) == 48 && offsetof(MixSample, weight) == 40, "as in params.rs");
static_assert(sizeof(SharpnessSample) == 80 && offsetof(SharpnessSample, factor) == 72, "as in params.rs");
static_assert(sizeof(MixupSample) == 32 && offsetof(MixupSample, blend) == 24, "as in params.rs");
static_assert(sizeof(MixupBatch) == 32 && offsetof(MixupBatch, flip) == 24, "as in params.rs");
static_assert(sizeof(ElasticSample) == 128 && offsetof(ElasticSample, radius) == 104, "as in params.rs");
static_assert(sizeof(NoiseSample) == 56 && offsetof(NoiseSample, mean) == 44, "as in params.rs");
static_assert(sizeof(EraseNoiseSample) == 96 && offsetof(EraseNoiseSample, value) == 80, "as in params.rs");
static_assert(offsetof(EraseNoiseSample, output) == 40, "as in params.rs");
static_assert(sizeof(EraseSample) == 32 && offsetof(EraseSample, value) == 28, "as in params.rs");

}  // namespace warpfeed
