// planes_points: replaces each value by a function of that value.
//
// Inputs: one PlanesPointsSample per image (descriptors.cuh), changed in place.
// Grid: one pixel per thread, in all planes (grid.cuh).
// Reference: src/backend/cpu/values/points.rs; byte for byte.

#include "planes.cuh"

namespace warpfeed {

__host__ __device__ inline uint32_t point(const PlanesPointsSample& sample, uint32_t bits) {
    const uint32_t element = sample.image.element;
    if (sample.form == kMask) {
        return bits & sample.mask;
    }
    if (sample.form == kTable) {
        return element == kU8 ? global(static_cast<const uint8_t*>(sample.table))[bits]
                              : global(static_cast<const uint16_t*>(sample.table))[bits];
    }
    const float value = value_of(element, bits);
    if (sample.form == kScale) {
        const float made = value * sample.factor;
        return element == kF32 ? bits_as<uint32_t>(made) : truncated(made, sample.max);
    }
    if (sample.form == kSolarize && value < sample.threshold) {
        return bits;
    }
    const float inverse = sample.max - value;
    return element == kF32 ? bits_as<uint32_t>(inverse) : truncated(inverse, most_of(element));
}

__device__ inline void planes_points(const Launch& launch) {
    const Place<PlanesPointsSample> here(launch);
    if (!here.sample || !here.inside(here.sample->image.width, here.sample->image.height)) {
        return;
    }
    const PlanesPointsSample& sample = *here.sample;
    const size_t at = place(sample.image, static_cast<int32_t>(here.x), static_cast<int32_t>(here.y));
    store_channels(sample.image, here.x, here.y, [&](uint32_t channel) {
        return point(sample, bits_at(sample.image, channel * plane_len(sample.image) + at));
    });
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) planes_points(const warpfeed::Launch launch) {
    warpfeed::planes_points(launch);
}
