// box_blur: one box blur along rows or columns; three of each make Pillow's Gaussian blur.
//
// Inputs: one BoxBlurSample per image (descriptors.cuh). Weights have 24 fractional bits. Beyond the stored part, its
// outermost pixels are repeated.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/pillow_gaussian_blur.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline uint32_t box_blurred(const BoxBlurSample& sample, int32_t x, int32_t y) {
    const int32_t radius = static_cast<int32_t>(sample.radius);
    const auto along = [&](int32_t offset) {
        return sample.down ? at_edge(sample.source, x, y + offset) : at_edge(sample.source, x + offset, y);
    };
    uint32_t sums[3] = {};
#pragma unroll 1
    for (int32_t offset = -radius; offset <= radius; offset++) {
        const uint32_t pixel = along(offset);
        for (int c = 0; c < 3; c++) {
            sums[c] += channel(pixel, c);
        }
    }
    const uint32_t before = along(-radius - 1), after = along(radius + 1);
    uint32_t pixel = 0;
    for (int c = 0; c < 3; c++) {
        const uint32_t far = channel(before, c) + channel(after, c);
        pixel |= (sums[c] * sample.weight + far * sample.far_weight + (1 << 23)) >> 24 << (8 * c);
    }
    return pixel;
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) box_blur_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::BoxBlurSample>(launch, warpfeed::box_blurred);
}
