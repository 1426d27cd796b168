// jpeg_codes: makes the look-up tables of an image's Huffman codes, which blocks of other kernels copy.
//
// Reads: the codes. Writes: the tables.
// Grid: blocks of 256 threads. blockIdx.x is twice the component, plus 1 for its AC code; blockIdx.y is the image.
// Reference: warpfeed-image/src/decode/kernel_steps/codes.rs.

#include "jpeg.cuh"

namespace warpfeed::jpeg {

// Fills the tables of a component that an image lacks.
__device__ inline void clear(JpegLookUp& to, uint32_t table) {
    const uint32_t component = table / 2;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < 1024; i += kThreads) {
        to.look[table][i] = 0;
        to.more[component][i] = 0;
    }
    to.more_from[component] = 65536;
}

__device__ inline void codes(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.y);
    const uint32_t component = blockIdx.x / 2, ac = blockIdx.x % 2;
    if (!found) {
        return;
    }
    const JpegCode& code = global(found->tables)->codes[component][ac];
    JpegLookUp& to = *global(found->look_up);
    if (component >= (found->color == JpegColor::gray ? 1u : 3u)) {
        // Copied with the others, and never looked up.
        clear(to, blockIdx.x);
        return;
    }
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < 1 << kLookBits; i += kThreads) {
        to.look[blockIdx.x][i] = static_cast<uint16_t>(search(code, ac, i << (32 - kLookBits), 1, kLookBits));
    }
    if (ac == 0) {
        return;
    }
    // Codes count up with their lengths, so the values of short codes come before those of longer ones.
    uint32_t from = 0;
#pragma unroll 1
    for (uint32_t length = 1; length <= kLookBits; length++) {
        from = larger(from, code.end[length] << (16 - length));
    }
    from = 65536 - from > kLongCodes ? 65536 : from;
    if (threadIdx.x == 0) {
        to.more_from[component] = from;
        to.more_from[3] = 65536;
    }
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < kLongCodes; i += kThreads) {
        const uint32_t value = from + i;
        to.more[component][i] = static_cast<uint16_t>(
            value < 65536 ? search(code, ac, value << 16, kLookBits + 1, 16) : bad_entry(ac));
    }
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(256) jpeg_codes(const warpfeed::Launch launch) {
    warpfeed::jpeg::codes(launch);
}
