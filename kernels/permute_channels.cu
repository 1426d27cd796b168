// permute_channels: red, green and blue in another order.
//
// Inputs: one ColorSample per image (descriptors.cuh), changed in place.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/permute_channels.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline uint32_t permuted(const ColorSample& sample, uint32_t pixel) {
    const auto from = [&](int c) { return channel(pixel, static_cast<int>(sample.order >> (2 * c) & 3)); };
    return pack(from(0), from(1), from(2));
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) permute_channels_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_color(launch, warpfeed::permuted);
}
