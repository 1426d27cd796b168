// jpeg_idct: converts coefficients to samples. The arithmetic is libjpeg's accurate integer transform as in its
// assembler for x86, for absurd coefficients too.
//
// Reads: the window's coefficients, quantization steps. Writes: each component's samples of the window.
// Grid: blocks of 256 threads. 8 threads transform a block of coefficients: each one column, then one row. blockIdx.x
// times 32 is the first block of the window, blockIdx.y the image.
// Reference: warpfeed-image/src/decode/idct.h.

#include "jpeg.cuh"

namespace warpfeed::jpeg {

constexpr uint32_t kThreadBlocks = kThreads / 8;
// Distance from one block to the next in shared memory. With it, the columns and rows of a warp's blocks have few bank
// conflicts.
constexpr uint32_t kBlockStride = 72;

// The places in their block of the coefficients in zigzag order, eight in each number from the lowest byte on.
struct Places {
    uint64_t of[8];
};

__device__ inline Places zigzag() {
    return {{0x0a03020910080100, 0x05040b1219201811, 0x22293028211a130c, 0x1c150e07060d141b,
             0x242b323938312a23, 0x332c251e170f161d, 0x2e271f262d343b3a, 0x3f3e372f363d3c35}};
}

struct alignas(16) EightValues {
    int16_t of[8];
};

struct IdctMemory {
    Places places;
    int16_t lines[kThreadBlocks * kBlockStride];
    alignas(8) uint8_t has_ac[kThreads];
};

__device__ inline int16_t wrapped(int32_t value) {
    return static_cast<int16_t>(static_cast<uint16_t>(value));
}

// The value divided by 2^shift, rounded, saturated to 16 bits.
template <int kShift>
__device__ inline int16_t descaled(int32_t value) {
    return static_cast<int16_t>(clamp((value + (1 << (kShift - 1))) >> kShift, -32768, 32767));
}

// Transforms eight values, by the factorization of Loeffler, Ligtenberg and Moschytz with libjpeg's 13-bit constants.
// Sums of two inputs wrap at 16 bits; sums of products fit 32.
template <int kShift>
__device__ inline void transform(int16_t (&values)[8]) {
    const int32_t in1 = values[1], in2 = values[2], in3 = values[3], in5 = values[5], in6 = values[6], in7 = values[7];
    const int32_t sum = wrapped(values[0] + values[4]) * 8192, difference = wrapped(values[0] - values[4]) * 8192;
    const int32_t low = in2 * 10703 + in6 * 4433;
    const int32_t high = in2 * 4433 - in6 * 10704;
    const int32_t even[4] = {sum + low, difference + high, difference - high, sum - low};

    const int32_t sum37 = wrapped(in3 + in7), sum15 = wrapped(in1 + in5);
    const int32_t z3 = sum37 * -6436 + sum15 * 9633;
    const int32_t z4 = sum37 * 9633 + sum15 * 6437;
    const int32_t odd[4] = {in1 * 4926 - in7 * 7373 + z4, in3 * 4177 - in5 * 20995 + z3, in3 * -20995 - in5 * 4176 + z4,
                            in1 * -7373 - in7 * 4927 + z3};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        values[i] = descaled<kShift>(even[i] + odd[i]);
        values[7 - i] = descaled<kShift>(even[i] - odd[i]);
    }
}

__device__ inline void idct(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.y);
    if (!found || blockIdx.x * kThreadBlocks >= window_blocks(*found)) {
        return;
    }
    const JpegImage& image = *found;
    __shared__ IdctMemory memory;
    // Threads beyond the last block repeat it.
    const uint32_t at = threadIdx.x / 8, line = threadIdx.x % 8;
    const uint32_t number = smaller(blockIdx.x * kThreadBlocks + at, window_blocks(image) - 1);
    const uint32_t mcu = number / image.mcu_blocks, block = number % image.mcu_blocks;
    const uint32_t row = mcu / image.columns, column = mcu % image.columns;
    const uint32_t component = image.block_components >> (2 * block) & 3;
    const JpegComponent& plane = image.components[component];

    if (threadIdx.x == 0) {
        memory.places = zigzag();
    }
    __syncthreads();
    int16_t* const lines = memory.lines + at * kBlockStride;
    const EightValues* const eights = reinterpret_cast<const EightValues*>(global(image.ac));
    const EightValues read = eights[8 * static_cast<size_t>(number) + line];
    const uint64_t places = memory.places.of[line];
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        lines[places >> (8 * i) & 63] = read.of[i];
    }
    __syncthreads();
    const uint16_t* const quant = global(image.tables)->quant[component] + line;
    int16_t values[8];
    bool has_ac = false;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        int32_t value = lines[8 * i + line];
        has_ac |= i > 0 && value != 0;
        if (i == 0 && line == 0) {
            const size_t in_scan = (static_cast<size_t>(image.row + row) * image.mcu_columns + image.column + column) *
                                       image.mcu_blocks + block;
            value = static_cast<int16_t>(global(image.dc)[in_scan - image.checked_begin]);
        }
        // The low 16 bits of the product. It is unsigned, because 65,535 times 65,535 does not fit an int.
        values[i] = wrapped(static_cast<int32_t>(static_cast<uint32_t>(value) * quant[8 * i]));
    }
    memory.has_ac[threadIdx.x] = has_ac ? 1 : 0;
    __syncthreads();
    const bool any_ac = reinterpret_cast<const uint64_t*>(memory.has_ac)[at] != 0;
    if (any_ac) {
        transform<11>(values);
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        // For blocks with only a first row the assembler takes a shortcut, which wraps where the full transform
        // saturates.
        lines[8 * i + line] = any_ac ? values[i] : wrapped(values[0] * 4);
    }
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        values[i] = lines[8 * line + i];
    }
    transform<18>(values);
    uint64_t samples = 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        samples |= static_cast<uint64_t>(clamp(static_cast<int32_t>(values[i]), -128, 127) + 128) << (8 * i);
    }
    const uint32_t place = block - plane.first_block;
    const uint32_t left = 8 * (column * plane.columns + place % plane.columns);
    const uint32_t top = 8 * (row * plane.rows + place / plane.columns) + line;
    uint8_t* const to = global(plane.samples) + static_cast<size_t>(top) * plane.row_samples + left;
    *reinterpret_cast<uint64_t*>(to) = samples;
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(256) jpeg_idct(const warpfeed::Launch launch) {
    warpfeed::jpeg::idct(launch);
}
