// contrast: blends with the mean luma of the complete image, which luma_sum adds up first: integers, so that the
// order of additions does not matter.
//
// Inputs: ColorSample an image (params.cuh), changed in place.
// Grid: one pixel a thread, as grid.cuh has it.
// Reference: src/ops/contrast.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

// A block adds up in shared memory: 256 lumas, one atomic addition.
__device__ inline void luma_sum(const Launch& launch) {
    __shared__ uint32_t sums[kPixelThreads];
    const Place<ColorSample> here(launch);
    const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    uint32_t own = 0;
    if (here.sample && here.inside(here.sample->width, here.sample->height)) {
        own = luma(load(here.sample->pixels + place(here.sample->pitch_bytes, here.x, here.y)));
    }
    sums[thread] = own;
    for (int half = kPixelThreads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) {
            sums[thread] += sums[thread + half];
        }
    }
    if (thread == 0 && here.sample && sums[0] > 0) {
        atomicAdd(here.sample->luma_sum, static_cast<unsigned long long>(sums[0]));
    }
}

__device__ inline uint32_t contrast(const ColorSample& sample, uint32_t pixel) {
    const double pixels = static_cast<double>(sample.width) * sample.height;
    const double mean = static_cast<double>(*sample.luma_sum) / pixels + 0.5;
    return blend_pixel(static_cast<uint32_t>(mean), pixel, sample.factor);
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) luma_sum_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::luma_sum(launch);
}

extern "C" __global__ void __launch_bounds__(256) contrast_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_color(launch, warpfeed::contrast);
}
