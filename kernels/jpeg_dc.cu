// jpeg_dc and jpeg_dc_known: DC coefficients, as sums of the differences over a component's blocks since the last restart or
// entry point, modulo 2^16.
//
// Reads and writes: the DC coefficients of the blocks that are checked, in place. jpeg_dc_known compares the last ones before
// an entry point with those that it names.
// Grid: blocks of 256 threads. jpeg_dc: a block per image (blockIdx.x), whose threads have equally many MCUs. jpeg_dc_known: a
// thread per entry point, blockIdx.y is the image.
// Reference: the CPU's decoder (warpfeed-image/src/decode), whose pixels come of it.

#include "jpeg.cuh"

namespace warpfeed::jpeg {

// The sums of three components, 16 bits each. The bit above them says that there was a restart: sums before it do not
// count.
constexpr uint64_t kRestart = uint64_t{1} << 48;

__device__ inline uint64_t add_sums(uint64_t a, uint64_t b) {
    if (b >= kRestart) {
        return b;
    }
    // Without carry from one field to the next.
    constexpr uint64_t kLow = 0x00007fff7fff7fff, kHigh = 0x0000800080008000;
    return (((a & kLow) + (b & kLow)) ^ ((a ^ b) & kHigh)) | (a & kRestart);
}

__device__ inline void dc(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.x);
    if (!found) {
        return;
    }
    const JpegImage& image = *found;
    __shared__ ScanMemory memory;
    const uint32_t mcu_blocks = image.mcu_blocks, block_components = image.block_components;
    const uint32_t mcus = (image.checked_end - image.checked_begin) / mcu_blocks;
    const uint32_t restart_mcus = image.segment_blocks > 0 ? image.segment_blocks / mcu_blocks : mcus;
    const uint32_t each = (mcus + kThreads - 1) / kThreads;
    const uint32_t begin = smaller(each * threadIdx.x, mcus), end = smaller(begin + each, mcus);
    // Goes over this thread's blocks, starting with the sums of all blocks before: `take(block, sum)`.
    const auto sum_up = [&](uint64_t sums, auto take) {
        uint16_t* block = global(image.dc) + static_cast<size_t>(begin) * mcu_blocks;
#pragma unroll 1
        for (uint32_t mcu = begin; mcu < end; mcu++) {
            sums = mcu % restart_mcus == 0 ? kRestart : sums;
#pragma unroll 1
            for (uint32_t i = 0; i < mcu_blocks; i++, block++) {
                const uint32_t shift = 16 * (block_components >> (2 * i) & 3);
                sums = add_sums(sums, static_cast<uint64_t>(*block) << shift);
                take(block, static_cast<uint16_t>(sums >> shift));
            }
        }
        return sums;
    };
    uint64_t all;
    const uint64_t own = sum_up(0, [](uint16_t*, uint16_t) {});
    const uint64_t before = scan(memory, own, all, add_sums);
    sum_up(before, [](uint16_t* block, uint16_t sum) { *block = sum; });
}

__device__ inline void dc_known(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.y);
    const uint32_t number = blockIdx.x * kThreads + threadIdx.x;
    if (!found || number >= found->sum_count) {
        return;
    }
    const JpegImage& image = *found;
    const JpegSums known = global(image.sums)[number];
    const uint32_t mcu_blocks = image.mcu_blocks, block_components = image.block_components;
    uint16_t* block = global(image.dc) + static_cast<size_t>(known.mcu) * mcu_blocks;
    uint64_t sums = known.dc;
#pragma unroll 1
    for (uint32_t mcu = 0; mcu < known.mcus; mcu++) {
#pragma unroll 1
        for (uint32_t i = 0; i < mcu_blocks; i++, block++) {
            const uint32_t shift = 16 * (block_components >> (2 * i) & 3);
            sums = add_sums(sums, static_cast<uint64_t>(*block) << shift);
            *block = static_cast<uint16_t>(sums >> shift);
        }
    }
    if (known.end_dc != ~uint64_t{0} && sums != known.end_dc) {
        atomicOr(image.status, kUnsynchronized);
    }
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(256) jpeg_dc(const warpfeed::Launch launch) {
    warpfeed::jpeg::dc(launch);
}

extern "C" __global__ void __launch_bounds__(256) jpeg_dc_known(const warpfeed::Launch launch) {
    warpfeed::jpeg::dc_known(launch);
}
