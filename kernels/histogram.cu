// histogram: counts the pixels of an image with each value, for each channel.
//
// Inputs: one HistogramSample per image (descriptors.cuh), which is only read.
// Grid: that of grid.cuh for a 16th of the rows. A thread counts 16 pixels of a column, a block counts in shared
// memory.
// Reference: src/ops/histogram.rs. Counts are integers, so the order of additions does not matter.

#include "grid.cuh"

namespace warpfeed {

constexpr uint32_t kRowsAThread = 16;
constexpr int kCounts = 3 * 256;

__device__ inline void histogram(const Launch& launch) {
    __shared__ uint32_t counts[kCounts];
    const Place<HistogramSample> here(launch);
    const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    if (!here.sample) {
        return;
    }
    const HistogramSample& sample = *here.sample;
    for (int i = thread; i < kCounts; i += kPixelThreads) {
        counts[i] = 0;
    }
    __syncthreads();
    if (here.x < sample.width) {
        const uint32_t first = blockIdx.y * blockDim.y * kRowsAThread + threadIdx.y;
#pragma unroll 1
        for (uint32_t i = 0; i < kRowsAThread; i++) {
            const uint32_t y = first + i * blockDim.y;
            if (y >= sample.height) {
                break;
            }
            const uint32_t pixel = load(sample.pixels + place(sample.pitch_bytes, here.x, y));
            for (int c = 0; c < 3; c++) {
                atomicAdd(&counts[256 * c + channel(pixel, c)], uint32_t{1});
            }
        }
    }
    __syncthreads();
    for (int i = thread; i < kCounts; i += kPixelThreads) {
        if (counts[i] > 0) {
            atomicAdd(&global(sample.counts)[i], counts[i]);
        }
    }
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) histogram_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::histogram(launch);
}
