// resize: one axis per launch, with any filter. Pixels have 8 bits between the launches.
//
// Inputs: one ResizeSample per image (descriptors.cuh). The host makes the weights, leaves out an axis that does not
// change, and orders the axes by Pillow's rule.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/resize.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline uint32_t across(const ResizeSample& sample, int32_t x, int32_t y) {
    const Taps taps = taps_of(sample.axis, x);
    Sums sums;
    for (int32_t tap = taps.start; tap < taps.end; tap++) {
        sums.add(at(sample.source, tap, y), taps.weight(tap));
    }
    return sums.pixel();
}

__device__ inline uint32_t down(const ResizeSample& sample, int32_t x, int32_t y) {
    const Taps taps = taps_of(sample.axis, y);
    Sums sums;
    for (int32_t tap = taps.start; tap < taps.end; tap++) {
        sums.add(at(sample.source, x, tap), taps.weight(tap));
    }
    return sums.pixel();
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) resize_horizontal_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::ResizeSample>(launch, warpfeed::across);
}

extern "C" __global__ void __launch_bounds__(256) resize_vertical_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::ResizeSample>(launch, warpfeed::down);
}
