// field_store: writes a mask that was moved as an image of 3 bytes a pixel to its place in the batch.
//
// Inputs: one FieldStoreSample per image (descriptors.cuh): a complete image. Output: planes of bytes or 16-bit
// numbers. The place to the right of and below the image gets the fill. Grid: one pixel of the place per thread
// (grid.cuh). Reference: src/fields/carried.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline void field_store(const Launch& launch) {
    const Place<FieldStoreSample> here(launch);
    if (!here.sample || !here.inside(here.sample->width, here.sample->height)) {
        return;
    }
    const FieldStoreSample& sample = *here.sample;
    const bool inside = here.inside(sample.source.width, sample.source.height);
    const uint32_t pixel =
        inside ? load(sample.source.pixels + place(sample.source.pitch_bytes, here.x, here.y)) : sample.fill;
    const size_t at = static_cast<size_t>(here.y) * sample.width + here.x;
    if (sample.form == kWords) {
        static_cast<uint16_t*>(sample.elements)[at] = static_cast<uint16_t>(pixel);
        return;
    }
    const size_t plane = static_cast<size_t>(sample.width) * sample.height;
    uint8_t* const to = static_cast<uint8_t*>(sample.elements) + at;
#pragma unroll 1
    for (uint32_t i = 0; i < sample.planes; i++) {
        to[i * plane] = static_cast<uint8_t>(sample.form == kBits ? pixel >> i & 1 : channel(pixel, static_cast<int>(i)));
    }
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) field_store_u8_nchw(const warpfeed::Launch launch) {
    warpfeed::field_store(launch);
}
