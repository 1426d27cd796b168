// gaussian_blur: rows first, then columns, in integers, with reflected edges.
//
// Inputs: one BlurSample per image (descriptors.cuh). The host makes the weights; the first launch writes `between`.
// Blocks of the first launch cover source.height rows of target.width pixels.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/gaussian_blur.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline void rows(const Launch& launch) {
    const Place<BlurSample> here(launch);
    if (!here.sample || !here.inside(here.sample->target.width, here.sample->source.height)) {
        return;
    }
    const BlurSample& sample = *here.sample;
    const SourceImage& source = sample.source;
    const int32_t x = static_cast<int32_t>(sample.target.x + here.x), y = static_cast<int32_t>(source.y + here.y);
    const int32_t width = static_cast<int32_t>(source.whole_width);
    const int32_t radius = static_cast<int32_t>(sample.kernel / 2);
    uint32_t sums[3] = {};
    for (int32_t offset = -radius; offset <= radius; offset++) {
        const uint32_t pixel = at(source, reflect(x + offset, width), y);
        const uint32_t weight = sample.weights[offset < 0 ? -offset : offset];
        for (int c = 0; c < 3; c++) {
            sums[c] += channel(pixel, c) * weight;
        }
    }
    uint32_t* to = sample.between + (static_cast<size_t>(here.y) * sample.target.width + here.x) * 3;
    for (int c = 0; c < 3; c++) {
        to[c] = (sums[c] + 128) >> 8;
    }
}

__device__ inline uint32_t columns(const BlurSample& sample, int32_t x, int32_t y) {
    const SourceImage& source = sample.source;
    const int32_t height = static_cast<int32_t>(source.whole_height);
    const int32_t radius = static_cast<int32_t>(sample.kernel_y / 2);
    const uint32_t* const weights = sample.weights + sample.kernel / 2 + 1;
    const size_t column = static_cast<size_t>(x) - sample.target.x;
    uint64_t sums[3] = {};
    for (int32_t offset = -radius; offset <= radius; offset++) {
        const size_t row = static_cast<size_t>(reflect(y + offset, height)) - source.y;
        const uint32_t* from = sample.between + (row * sample.target.width + column) * 3;
        const uint64_t weight = weights[offset < 0 ? -offset : offset];
        for (int c = 0; c < 3; c++) {
            sums[c] += from[c] * weight;
        }
    }
    uint32_t pixel = 0;
    for (int c = 0; c < 3; c++) {
        // Rounded to nearest, ties to even.
        const uint64_t sum = sums[c] + (uint64_t{1} << 39) - 1 + (sums[c] >> 40 & 1);
        pixel |= static_cast<uint32_t>(sum >> 40 & 0xff) << (8 * c);
    }
    return pixel;
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) gaussian_blur_rows_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::rows(launch);
}

extern "C" __global__ void __launch_bounds__(256) gaussian_blur_columns_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::BlurSample>(launch, warpfeed::columns);
}
