// jpeg_points: turns the places of MCUs into places in the file, and collects the DC coefficients at entry points, so that
// the image's places are known the next time.
//
// Reads: the places of MCUs and the DC coefficients of checked blocks. Writes: the places, in place, and the DC coefficients
// of entry points.
// Grid: blocks of 256 threads, an MCU per thread, and one for the end of the last MCU. blockIdx.y is the image.
// Reference: the CPU's decoder (warpfeed-image/src/decode), whose pixels come of it.

#include "jpeg_bytes.cuh"

namespace warpfeed::jpeg {

__device__ inline void points(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.y);
    if (!found || !found->mcus) {
        return;
    }
    const JpegImage& image = *found;
    const uint32_t mcu_blocks = image.mcu_blocks, mcu_columns = image.mcu_columns;
    const uint32_t mcu = blockIdx.x * kThreads + threadIdx.x;
    if (mcu > image.checked_end / mcu_blocks) {
        return;
    }
    // The places in a flagged image are not complete, and are not read.
    const bool is_flagged = *global(image.status) != 0;
    uint32_t* const place = global(image.mcus) + mcu;
    *place = is_flagged ? 0 : stuffed_bit(image, *place);
    const uint32_t column = mcu % mcu_columns, step = image.point_step;
    if (column % step != 0) {
        return;
    }
    uint64_t sums = 0;
    const uint32_t block = mcu * mcu_blocks;
    const bool restarts = image.segment_blocks > 0 && block < image.checked_end && block % image.segment_blocks == 0;
    if (mcu > 0 && !restarts && !is_flagged) {
        const uint16_t* const dc = global(image.dc) + block - mcu_blocks;
#pragma unroll 1
        for (uint32_t i = 0; i < mcu_blocks; i++) {
            const uint32_t shift = 16 * (image.block_components >> (2 * i) & 3);
            sums = (sums & ~(uint64_t{0xffff} << shift)) | static_cast<uint64_t>(dc[i]) << shift;
        }
    }
    const uint32_t in_row = (mcu_columns + step - 1) / step;
    global(image.point_dc)[mcu / mcu_columns * in_row + column / step] = sums;
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(256) jpeg_points(const warpfeed::Launch launch) {
    warpfeed::jpeg::points(launch);
}
