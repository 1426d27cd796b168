// brightness: blends with black.
//
// Inputs: ColorSample an image (params.cuh), changed in place.
// Grid: one pixel a thread, as grid.cuh has it.
// Reference: src/cpu/brightness.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline uint32_t brightness(const ColorSample& sample, uint32_t pixel) {
    return blend_pixel(0, pixel, sample.factor);
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) brightness_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_color(launch, warpfeed::brightness);
}
