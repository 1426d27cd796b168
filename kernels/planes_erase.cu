// planes_erase: overwrites a rectangle, with or without normal noise.
//
// Inputs: one PlanesEraseSample per image (descriptors.cuh), changed in place. The grid covers the rectangle. Without
// noise, values are those of the type.
// Grid: one pixel per thread, in all planes (grid.cuh).
// Reference: src/backend/cpu/values/place.rs; byte for byte.

#include "planes.cuh"
#include "planes_noise.cuh"

namespace warpfeed {

__device__ inline void planes_erase(const Launch& launch) {
    const Place<PlanesEraseSample> here(launch);
    if (!here.sample || !here.inside(here.sample->width, here.sample->height)) {
        return;
    }
    const PlanesEraseSample& sample = *here.sample;
    const PlanesImage& image = sample.image;
    const uint32_t x = sample.x + here.x, y = sample.y + here.y;
    Deviates deviates = {sample.key, x, y, sample.normals, {}};
    store_channels(image, x - image.x, y - image.y, [&](uint32_t channel) {
        float value = global(sample.values)[channel];
        if (sample.std != 0.0f) {
            value += sample.std * deviates.of(channel);
        }
        return image.element == kF32 ? bits_as<uint32_t>(value) : truncated(rintf(value), most_of(image.element));
    });
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) planes_erase(const warpfeed::Launch launch) {
    warpfeed::planes_erase(launch);
}
