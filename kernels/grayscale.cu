// grayscale: luma in all three channels.
//
// Inputs: one ColorSample per image (descriptors.cuh), changed in place.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/grayscale.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline uint32_t grayscale(const ColorSample& sample, uint32_t pixel) {
    (void)sample;
    return luma(pixel) * 0x010101;
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) grayscale_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_color(launch, warpfeed::grayscale);
}
