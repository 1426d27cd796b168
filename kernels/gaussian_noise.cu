// gaussian_noise: adds normal noise to every channel of every pixel.
//
// Inputs: one NoiseSample per image (descriptors.cuh), changed in place.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/gaussian_noise.rs; byte for byte.

#include "grid.cuh"
#include "noise.cuh"

namespace warpfeed {

__device__ inline void gaussian_noise(const Launch& launch) {
    const Place<NoiseSample> here(launch);
    if (!here.sample || !here.inside(here.sample->width, here.sample->height)) {
        return;
    }
    const NoiseSample& sample = *here.sample;
    uint8_t* const bytes = sample.pixels + place(sample.pitch_bytes, here.x, here.y);
    const Words words = words_of(sample.key, sample.first_x + here.x, sample.first_y + here.y);
#pragma unroll
    for (int c = 0; c < 3; c++) {
        const float noise = normal(words.of[c], sample.normals) * sample.sigma + sample.mean;
        const int32_t sum = bytes[c] + static_cast<int32_t>(noise);
        bytes[c] = static_cast<uint8_t>(sample.clip ? clamp(sum, 0, 255) : sum);
    }
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) gaussian_noise_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::gaussian_noise(launch);
}
