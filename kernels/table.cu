// table: replaces each byte by its value in a table of 256, either one table for all channels or one per channel.
// Brightness, invert, posterize and solarize are such tables; contrast, equalize and autocontrast make theirs from the
// image.
//
// Inputs: one TableSample per image (descriptors.cuh), changed in place.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/byte_table.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline void table(const Launch& launch) {
    const Place<TableSample> here(launch);
    if (!here.sample || !here.inside(here.sample->width, here.sample->height)) {
        return;
    }
    const uint8_t* __restrict__ table = here.sample->table;
    uint8_t* pixel = here.sample->pixels + place(here.sample->pitch_bytes, here.x, here.y);
    pixel[0] = table[pixel[0]];
    pixel[1] = table[here.sample->stride_bytes + pixel[1]];
    pixel[2] = table[2 * here.sample->stride_bytes + pixel[2]];
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) table_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::table(launch);
}
