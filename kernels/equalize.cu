// equalize: makes a table for each channel from histogram.cu's counts; table.cu applies it.
//
// Inputs: one HistogramSample per image (descriptors.cuh). The kernel reads the counts and writes the table.
// Grid: a block of 32 x 8 threads per image, one byte of each channel per thread.
// Reference: src/ops/equalize.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline void equalize_table(const Launch& launch) {
    if (blockIdx.z >= launch.count) {
        return;
    }
    const HistogramSample& sample = static_cast<const HistogramSample*>(launch.samples)[blockIdx.z];
    const uint32_t byte = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (int c = 0; c < 3; c++) {
        const uint32_t* __restrict__ counts = sample.counts + 256 * c;
        uint64_t below = 0;
        uint32_t last = 0;
#pragma unroll 1
        for (uint32_t value = 0; value < 256; value++) {
            const uint32_t count = counts[value];
            below += value < byte ? count : 0;
            last = count > 0 ? count : last;
        }
        const uint32_t step = (sample.width * sample.height - last) / 255;
        const uint64_t made = step == 0 ? byte : smaller((step / 2 + below) / step, uint64_t{255});
        sample.table[256 * c + byte] = static_cast<uint8_t>(made);
    }
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) equalize_table_u8(const warpfeed::Launch launch) {
    warpfeed::equalize_table(launch);
}
