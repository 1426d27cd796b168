// jpeg_codes: makes the look-up tables of an image's Huffman codes, and the steps that follow from them unless places are
// known. Blocks of other kernels copy both.
//
// Reads: the codes. Writes: the tables and steps.
// Grid: blocks of 256 threads. blockIdx.x is twice the component, plus 1 for its AC code; blockIdx.y is the image.
// Reference: the CPU's decoder (warpfeed-image/src/decode), whose pixels come of it.

#include "jpeg_steps.cuh"

namespace warpfeed::jpeg {

// Fills the tables of a component that an image lacks. `steps` may be null.
__device__ inline void clear(JpegLookUp& to, JpegSteps* steps, uint32_t component, uint32_t ac) {
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < 1024; i += kThreads) {
        to.look[2 * component + ac][i] = 0;
        to.more[component][i] = 0;
        if (steps) {
            steps->of[component][ac != 0 ? kAc : kDc][i] = 0;
            steps->of[component][kSeveralAc][i] = 0;
            steps->more[component][i] = 0;
        }
    }
    if (threadIdx.x == 0) {
        to.more_from[component] = 65536;
        if (steps) {
            steps->more_from[component] = 65536;
        }
    }
}

// A step of as many AC codes as 10 bits have with their values. `steps` are those of single codes.
__device__ inline uint32_t several(const uint16_t* steps, uint32_t next) {
    uint32_t all = steps[next];
#pragma unroll 1
    while ((all & kBitMask) < kLookBits && all >> kIndexShift <= kSeveral) {
        const uint32_t step = steps[(next << (all & kBitMask)) % (1 << kLookBits)], both = all + step;
        if (step == 0 || (both & kBitMask) > kLookBits || (step < kEndStep && both >> kIndexShift > kSeveral)) {
            break;
        }
        all = step < kEndStep ? both : kEndStep | (both & kBitMask);
    }
    return all;
}

__device__ inline void codes(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.y);
    const uint32_t component = blockIdx.x / 2, ac = blockIdx.x % 2;
    if (!found) {
        return;
    }
    const JpegCode& code = global(found->tables)->codes[component][ac];
    JpegLookUp& to = *global(found->look_up);
    JpegSteps* const steps = found->stretch_count == 0 ? global(found->steps) : nullptr;
    if (component >= (found->color == JpegColor::gray ? 1u : 3u)) {
        // Copied with the others, and never looked up.
        clear(to, steps, component, ac);
        return;
    }
    __shared__ uint16_t single[1 << kLookBits];
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < 1 << kLookBits; i += kThreads) {
        const uint32_t entry = search(code, ac, i << (32 - kLookBits), 1, kLookBits);
        to.look[blockIdx.x][i] = static_cast<uint16_t>(entry);
        single[i] = static_cast<uint16_t>(step_of(entry));
        if (steps) {
            steps->of[component][ac != 0 ? kAc : kDc][i] = single[i];
        }
    }
    if (ac == 0) {
        return;
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = threadIdx.x; steps && i < 1 << kLookBits; i += kThreads) {
        steps->of[component][kSeveralAc][i] = static_cast<uint16_t>(several(single, i));
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
        if (steps) {
            steps->more_from[component] = from;
            steps->more_from[3] = 65536;
        }
    }
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < kLongCodes; i += kThreads) {
        const uint32_t value = from + i;
        const uint32_t entry = value < 65536 ? search(code, ac, value << 16, kLookBits + 1, 16) : 0;
        const uint32_t taken = entry == 0 ? bad_entry(ac) : entry;
        to.more[component][i] = static_cast<uint16_t>(taken);
        if (steps) {
            steps->more[component][i] = static_cast<uint16_t>(step_of(taken));
        }
    }
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(256) jpeg_codes(const warpfeed::Launch launch) {
    warpfeed::jpeg::codes(launch);
}
