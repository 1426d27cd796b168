// erase: overwrites a rectangle.
//
// Inputs: one EraseSample per image (descriptors.cuh), changed in place. The grid covers the rectangle.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/erase.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline void erase(const Launch& launch) {
    const Place<EraseSample> here(launch);
    if (!here.sample || !here.inside(here.sample->width, here.sample->height)) {
        return;
    }
    const EraseSample& sample = *here.sample;
    store(sample.pixels + place(sample.pitch_bytes, sample.x + here.x, sample.y + here.y), sample.value);
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) erase_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::erase(launch);
}
