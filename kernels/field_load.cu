// field_load: a mask as the host packs it becomes an image of 3 bytes a pixel, which the kernels of images move.
//
// Inputs: one FieldLoadSample per image (descriptors.cuh): pixels of 1 to 3 bytes, row by row. Bytes that are missing are 0.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/backend/carried.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline uint32_t field_load(const FieldLoadSample& sample, int32_t x, int32_t y) {
    const size_t row = y - static_cast<int32_t>(sample.target.y), column = x - static_cast<int32_t>(sample.target.x);
    const uint8_t* const packed = sample.packed + (row * sample.target.width + column) * sample.pixel_bytes;
    uint32_t pixel = packed[0];
    if (sample.pixel_bytes > 1) {
        pixel |= packed[1] << 8;
    }
    if (sample.pixel_bytes > 2) {
        pixel |= packed[2] << 16;
    }
    return pixel;
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) field_load_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::FieldLoadSample>(launch, warpfeed::field_load);
}
