// planes_resize: one axis per launch, with any filter. Between the launches values have their own type.
//
// Inputs: one PlanesResizeSample per image (descriptors.cuh). The host makes the weights. Bytes are summed up in whole
// numbers; other types in doubles, from the first tap to the last.
// Grid: one pixel per thread, in all planes (grid.cuh).
// Reference: src/backend/cpu/values/resample.rs; byte for byte.

#include "planes.cuh"

namespace warpfeed {

__device__ inline void planes_resize(const Launch& launch) {
    const Place<PlanesResizeSample> here(launch);
    if (!here.sample || !here.inside(here.sample->target.width, here.sample->target.height)) {
        return;
    }
    const PlanesResizeSample& sample = *here.sample;
    const PlanesImage& source = sample.source;
    const uint32_t output = sample.down ? here.y : here.x, other = sample.first + (sample.down ? here.x : here.y);
    const int32_t start = global(sample.starts)[output], first = global(sample.offsets)[output];
    const int32_t taps = global(sample.offsets)[output + 1] - first;
    const size_t from = sample.down ? place(source, static_cast<int32_t>(other), start)
                                    : place(source, start, static_cast<int32_t>(other));
    const size_t step = sample.down ? source.width : 1;
    store_channels(sample.target, here.x, here.y, [&](uint32_t channel) {
        size_t at = channel * plane_len(source) + from;
        if (source.element == kU8) {
            const int32_t* const weights = global(static_cast<const int32_t*>(sample.weights)) + first;
            int32_t sum = kHalf;
            for (int32_t tap = 0; tap < taps; tap++, at += step) {
                sum += values_of<const uint8_t>(source)[at] * weights[tap];
            }
            return static_cast<uint32_t>(clamp(sum >> kWeightBits, 0, 255));
        }
        const double* const weights = global(static_cast<const double*>(sample.weights)) + first;
        double sum = 0.0;
        for (int32_t tap = 0; tap < taps; tap++, at += step) {
            sum += static_cast<double>(value_at(source, at)) * weights[tap];
        }
        return bits_of_sampled(source.element, source.element == kF32 ? sum : sum + 0.5);
    });
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) planes_resize(const warpfeed::Launch launch) {
    warpfeed::planes_resize(launch);
}
