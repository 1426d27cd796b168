// saturation: blends each pixel with its luma.
//
// Inputs: one ColorSample per image (descriptors.cuh), changed in place.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/saturation.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline uint32_t saturation(const ColorSample& sample, uint32_t pixel) {
    return blend_pixel(luma(pixel), pixel, sample.factor);
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) saturation_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_color(launch, warpfeed::saturation);
}
