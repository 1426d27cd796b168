// The grid of kernels with one pixel per thread: blocks of 32 x 8 threads. blockIdx.x and .y are the place in the
// largest image of the batch, blockIdx.z is the sample.
#pragma once

#include "pixel.cuh"

namespace warpfeed {

constexpr int kPixelThreads = 32 * 8;

// A thread's pixel. `sample` is null if the batch has no such sample.
template <typename Sample>
struct Place {
    const Sample* sample = nullptr;
    uint32_t x, y;

    __device__ explicit Place(const Launch& launch)
        : x(blockIdx.x * blockDim.x + threadIdx.x), y(blockIdx.y * blockDim.y + threadIdx.y) {
        if (blockIdx.z < launch.count) {
            sample = static_cast<const Sample*>(launch.samples) + blockIdx.z;
        }
    }

    // Whether an image of this size has the pixel.
    __device__ bool inside(uint32_t width, uint32_t height) const { return x < width && y < height; }
};

// Writes `make(sample, x, y)` for each pixel of a target. The place is that in the complete result.
template <typename Sample, typename Make>
__device__ inline void each_target_pixel(const Launch& launch, Make make) {
    const Place<Sample> here(launch);
    if (!here.sample || !here.inside(here.sample->target.width, here.sample->target.height)) {
        return;
    }
    const TargetImage& target = here.sample->target;
    const uint32_t pixel =
        make(*here.sample, static_cast<int32_t>(here.x + target.x), static_cast<int32_t>(here.y + target.y));
    store(target.pixels + place(target.pitch_bytes, here.x, here.y), pixel);
}

// Replaces each pixel of an image by `make(sample, pixel)`.
template <typename Make>
__device__ inline void each_color(const Launch& launch, Make make) {
    const Place<ColorSample> here(launch);
    if (!here.sample || !here.inside(here.sample->width, here.sample->height)) {
        return;
    }
    uint8_t* pixel = here.sample->pixels + place(here.sample->pitch_bytes, here.x, here.y);
    store(pixel, make(*here.sample, load(pixel)));
}

}  // namespace warpfeed
