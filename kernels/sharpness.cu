// sharpness: blends each pixel with a smoothed version. Pixels at the image's edge do not change.
//
// Inputs: one SharpnessSample per image (descriptors.cuh).
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/sharpness.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline uint32_t sharpened(const SharpnessSample& sample, int32_t x, int32_t y) {
    const SourceImage& source = sample.source;
    const uint32_t middle = at(source, x, y);
    if (x == 0 || y == 0 || x + 1 == static_cast<int32_t>(source.whole_width) ||
        y + 1 == static_cast<int32_t>(source.whole_height)) {
        return middle;
    }
    uint32_t sums[3];
    for (int c = 0; c < 3; c++) {
        sums[c] = 4 * channel(middle, c);
    }
    for (int32_t row = y - 1; row <= y + 1; row++) {
        for (int32_t column = x - 1; column <= x + 1; column++) {
            const uint32_t pixel = at(source, column, row);
            for (int c = 0; c < 3; c++) {
                sums[c] += channel(pixel, c);
            }
        }
    }
    uint32_t pixel = 0;
    for (int c = 0; c < 3; c++) {
        pixel |= blend((2 * sums[c] + 13) / 26, channel(middle, c), sample.factor) << (8 * c);
    }
    return pixel;
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) sharpness_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::SharpnessSample>(launch, warpfeed::sharpened);
}
