// flip: mirrors and quarter turns, as any exact map of whole coordinates.
//
// Inputs: one FlipSample per image (descriptors.cuh).
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/turn.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline uint32_t mapped(const FlipSample& sample, int32_t x, int32_t y) {
    const int32_t* exact = sample.exact;
    return at(sample.source, exact[0] * x + exact[1] * y + exact[2], exact[3] * x + exact[4] * y + exact[5]);
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) flip_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::FlipSample>(launch, warpfeed::mapped);
}
