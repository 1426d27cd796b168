// hue: shifts the hue, in 8-bit HSV.
//
// Inputs: one ColorSample per image (descriptors.cuh), changed in place.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/hue.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline uint32_t hue(const ColorSample& sample, uint32_t pixel) {
    return turn_hue(pixel, sample.hue_shift);
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) hue_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_color(launch, warpfeed::hue);
}
