// contrast: blends with the mean luma of the complete image. luma_sum adds up the luma in integers, so the order of
// additions does not matter. contrast_table makes the table of bytes, which table.cu then applies.
//
// Inputs: one ContrastSample per image (descriptors.cuh), which is only read.
// Grid: luma_sum: one pixel per thread (grid.cuh). contrast_table: a block of 32 x 8 threads per image, one byte per
// thread.
// Reference: src/ops/contrast.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

// A block adds up 256 lumas in shared memory, so it needs a single atomic addition.
__device__ inline void luma_sum(const Launch& launch) {
    __shared__ uint32_t sums[kPixelThreads];
    const Place<ContrastSample> here(launch);
    const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    uint32_t own = 0;
    if (here.sample && here.inside(here.sample->width, here.sample->height)) {
        own = luma(load(here.sample->pixels + place(here.sample->pitch_bytes, here.x, here.y)));
    }
    sums[thread] = own;
    for (int half = kPixelThreads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) {
            own += sums[thread + half];
            sums[thread] = own;
        }
    }
    // Not from shared memory: the compiler would load it in every thread, while the first one stores it.
    if (thread == 0 && here.sample && own > 0) {
        atomicAdd(here.sample->luma_sum, static_cast<unsigned long long>(own));
    }
}

__device__ inline void contrast_table(const Launch& launch) {
    if (blockIdx.z >= launch.count) {
        return;
    }
    const ContrastSample& sample = static_cast<const ContrastSample*>(launch.samples)[blockIdx.z];
    const uint32_t byte = threadIdx.y * blockDim.x + threadIdx.x;
    // The mean, halves rounded up. The reference's doubles round to the same number, because a mean plus a half that is
    // not a whole number is at least 2^-33 from the next whole number.
    const uint64_t pixels = static_cast<uint64_t>(sample.width) * sample.height;
    const uint64_t mean = (2 * *sample.luma_sum + pixels) / (2 * pixels);
    sample.table[byte] = static_cast<uint8_t>(blend(static_cast<uint32_t>(mean), byte, sample.factor));
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) luma_sum_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::luma_sum(launch);
}

extern "C" __global__ void __launch_bounds__(256) contrast_table_u8(const warpfeed::Launch launch) {
    warpfeed::contrast_table(launch);
}
