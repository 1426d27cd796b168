// view_load: an image in the caller's device memory, of any strides, becomes one of 3 bytes a pixel, as all kernels read it.
//
// Inputs: one ViewLoadSample per image (descriptors.cuh): values of 8 bits. The three channels of a gray image are the
// same one. Grid: one pixel per thread (grid.cuh). Reference: View::to_image in src/transforms/view.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline uint32_t view_load(const ViewLoadSample& sample, int32_t x, int32_t y) {
    const uint8_t* const red = sample.values + y * sample.row + x * sample.column;
    const uint8_t* const green = red + sample.channel;
    return red[0] | green[0] << 8 | green[sample.channel] << 16;
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) view_load_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::ViewLoadSample>(launch, warpfeed::view_load);
}
