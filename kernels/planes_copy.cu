// planes_copy: mirrors, turns, crops, padding, nearest resizes, and the choice of channels.
//
// Inputs: one PlanesCopySample per image (descriptors.cuh). The host makes the tables of columns and rows.
// Grid: one pixel per thread, in all planes (grid.cuh).
// Reference: src/backend/cpu/values/place.rs; byte for byte.

#include "planes.cuh"

namespace warpfeed {

__device__ inline void planes_copy(const Launch& launch) {
    const Place<PlanesCopySample> here(launch);
    if (!here.sample || !here.inside(here.sample->target.width, here.sample->target.height)) {
        return;
    }
    const PlanesCopySample& sample = *here.sample;
    const PlanesImage& source = sample.source;
    const PlanesImage& target = sample.target;
    const int32_t* exact = sample.exact;
    const int32_t x = static_cast<int32_t>(target.x + here.x), y = static_cast<int32_t>(target.y + here.y);
    const int32_t column = sample.columns ? global(sample.columns)[here.x] : exact[0] * x + exact[1] * y + exact[2];
    const int32_t row = sample.rows ? global(sample.rows)[here.y] : exact[3] * x + exact[4] * y + exact[5];
    const bool inside =
        static_cast<uint32_t>(column) < source.whole_width && static_cast<uint32_t>(row) < source.whole_height;
    if (sample.fill && !inside) {
        fill_channels(sample.fill, target, here.x, here.y);
    } else {
        copy_channels(source, column, row, sample.channels, target, here.x, here.y);
    }
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) planes_copy(const warpfeed::Launch launch) {
    warpfeed::planes_copy(launch);
}
