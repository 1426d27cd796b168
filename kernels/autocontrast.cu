// autocontrast: makes a table for each channel from histogram.cu's counts; table.cu applies it.
//
// Inputs: one HistogramSample per image (descriptors.cuh). The kernel reads the counts and writes the table.
// Grid: a block of 32 x 8 threads per image, one byte of each channel per thread. It computes in doubles, like its
// reference: 768 values per image.
// Reference: src/ops/autocontrast.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline void autocontrast_table(const Launch& launch) {
    if (blockIdx.z >= launch.count) {
        return;
    }
    const HistogramSample& sample = static_cast<const HistogramSample*>(launch.samples)[blockIdx.z];
    const uint32_t byte = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (int c = 0; c < 3; c++) {
        const uint32_t* __restrict__ counts = sample.counts + 256 * c;
        int low = 255, high = 0;
#pragma unroll 1
        for (int value = 0; value < 256; value++) {
            if (counts[value] > 0) {
                low = smaller(low, value);
                high = value;
            }
        }
        uint32_t made = byte;
        if (high > low) {
            const double scale = 255.0 / (high - low);
            const double offset = -static_cast<double>(low) * scale;
            made = static_cast<uint32_t>(clamp(byte * scale + offset, 0.0, 255.0));
        }
        sample.table[256 * c + byte] = static_cast<uint8_t>(made);
    }
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) autocontrast_table_u8(const warpfeed::Launch launch) {
    warpfeed::autocontrast_table(launch);
}
