// planes_noise: adds normal noise to every value.
//
// Inputs: one PlanesNoiseSample per image (descriptors.cuh), changed in place.
// Grid: one pixel per thread, in all planes (grid.cuh).
// Reference: src/backend/cpu/values/points.rs; byte for byte.

#include "planes.cuh"
#include "planes_noise.cuh"

namespace warpfeed {

__device__ inline void planes_noise(const Launch& launch) {
    const Place<PlanesNoiseSample> here(launch);
    if (!here.sample || !here.inside(here.sample->image.width, here.sample->image.height)) {
        return;
    }
    const PlanesNoiseSample& sample = *here.sample;
    const PlanesImage& image = sample.image;
    const size_t at = place(image, static_cast<int32_t>(here.x), static_cast<int32_t>(here.y));
    Deviates deviates = {sample.key, image.x + here.x, image.y + here.y, sample.normals, {}};
    store_channels(image, here.x, here.y, [&](uint32_t channel) {
        const float noise = deviates.of(channel) * sample.sigma + sample.mean;
        const uint32_t bits = bits_at(image, channel * plane_len(image) + at);
        if (image.element == kF32) {
            return bits_as<uint32_t>(bits_as<float>(bits) + noise);
        }
        const int32_t sum = static_cast<int32_t>(bits) + static_cast<int32_t>(noise);
        return static_cast<uint32_t>(sample.clip ? clamp(sum, 0, static_cast<int32_t>(sample.max)) : sum);
    });
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) planes_noise(const warpfeed::Launch launch) {
    warpfeed::planes_noise(launch);
}
