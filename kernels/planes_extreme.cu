// planes_extreme: dilation or erosion, one axis per launch.
//
// Inputs: one PlanesExtremeSample per image (descriptors.cuh).
// Grid: one pixel per thread, in all planes (grid.cuh).
// Reference: src/backend/cpu/values/window.rs; byte for byte, but for NaN.

#include "planes.cuh"

namespace warpfeed {

__device__ inline void planes_extreme(const Launch& launch) {
    const Place<PlanesExtremeSample> here(launch);
    if (!here.sample || !here.inside(here.sample->target.width, here.sample->target.height)) {
        return;
    }
    const PlanesExtremeSample& sample = *here.sample;
    const PlanesImage& source = sample.source;
    const PlanesImage& target = sample.target;
    const int32_t x = static_cast<int32_t>(target.x + here.x), y = static_cast<int32_t>(target.y + here.y);
    const int32_t first = (sample.down ? y : x) - static_cast<int32_t>(sample.kernel / 2);
    const int32_t last = first + static_cast<int32_t>(sample.kernel) - 1;
    // What is outside changes nothing.
    const int32_t start = sample.down ? stored_row(source, first) : stored_column(source, first);
    const int32_t end = sample.down ? stored_row(source, last) : stored_column(source, last);
    const size_t from = sample.down ? place(source, stored_column(source, x), start)
                                    : place(source, start, stored_row(source, y));
    const size_t step = sample.down ? source.width : 1;
    store_channels(target, here.x, here.y, [&](uint32_t channel) {
        size_t at = channel * plane_len(source) + from;
        float best = value_at(source, at);
        for (int32_t i = start; i < end; i++) {
            at += step;
            const float value = value_at(source, at);
            // Of equal values, such as 0 and -0, the reference keeps the last of the largest and the first of the
            // smallest.
            best = (best > value) == (sample.largest != 0) ? best : value;
        }
        return bits_of(source.element, best);
    });
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) planes_extreme(const warpfeed::Launch launch) {
    warpfeed::planes_extreme(launch);
}
