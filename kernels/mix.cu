// mix: the weighted sum of images. mix_add adds an image to the sums; mix_cut makes an image from the sums, blended
// with the first image.
//
// Inputs: one MixSample per image (descriptors.cuh). Sums are in single precision; each product and each sum is
// rounded.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/weighted_sum.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline float* sums_of(const MixSample& sample, uint32_t x, uint32_t y) {
    return sample.sums + (static_cast<size_t>(y) * sample.width + x) * 3;
}

__device__ inline void mix_add(const Launch& launch) {
    const Place<MixSample> here(launch);
    if (!here.sample || !here.inside(here.sample->width, here.sample->height)) {
        return;
    }
    const MixSample& sample = *here.sample;
    const uint32_t pixel = load(sample.image + place(sample.image_pitch_bytes, here.x, here.y));
    float* sums = sums_of(sample, here.x, here.y);
    for (int c = 0; c < 3; c++) {
        const float product = sample.weight * static_cast<float>(channel(pixel, c));
        sums[c] = sample.first ? product : sums[c] + product;
    }
}

__device__ inline void mix_cut(const Launch& launch) {
    const Place<MixSample> here(launch);
    if (!here.sample || !here.inside(here.sample->width, here.sample->height)) {
        return;
    }
    const MixSample& sample = *here.sample;
    const float* sums = sums_of(sample, here.x, here.y);
    const uint32_t pixel = load(sample.image + place(sample.image_pitch_bytes, here.x, here.y));
    const auto value = [&](int c) { return blend(channel(pixel, c), truncate(sums[c]), sample.weight); };
    store(sample.made + place(sample.made_pitch_bytes, here.x, here.y), pack(value(0), value(1), value(2)));
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) mix_add_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::mix_add(launch);
}

extern "C" __global__ void __launch_bounds__(256) mix_cut_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::mix_cut(launch);
}
