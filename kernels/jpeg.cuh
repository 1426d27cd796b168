// Code that the kernels of the JPEG decoder share: the walk from one symbol of the data to the next, and sums over a
// block's threads.
//
// A kernel never decides that an image is bad. It sets the image's status if anything is odd. Then the CPU's decoder
// decodes the image again and alone decides whether it is bad. warpfeed-image/src/decode/kernel_steps/ has the same
// kernels as plain code.
#pragma once

#include "jpeg_params.cuh"
#include "pixel.cuh"

namespace warpfeed::jpeg {

constexpr uint32_t kThreads = 256;
// Number of threads that share an image without restarts.
constexpr uint32_t kRuns = 256;

// Values of the status; src/backend/left_to_cpu.rs has their names.
constexpr uint32_t kDamaged = 1;
constexpr uint32_t kTruncated = 2;
constexpr uint32_t kUnsynchronized = 4;

// Image number `index` of a launch; null if there are fewer images.
__device__ inline const JpegImage* image_of(const Launch& launch, uint32_t index) {
    return index < launch.count ? static_cast<const JpegImage*>(launch.samples) + index : nullptr;
}

__device__ inline uint32_t window_blocks(const JpegImage& image) {
    return image.columns * image.rows * image.mcu_blocks;
}

// Number of bits that one look-up uses.
constexpr uint32_t kLookBits = 10;

// Entries for each value of the next bits, for the codes of up to three components: the code's length in the high byte,
// its symbol in the low one. 0 if the code is longer or does not exist.
struct Codes {
    uint16_t look[3][2][1 << kLookBits];
};

// The same entry, for codes of these lengths, without a table.
__device__ inline uint32_t search(const JpegCode& code, uint32_t bits, uint32_t shortest, uint32_t longest) {
#pragma unroll 1
    for (uint32_t length = shortest; length <= longest; length++) {
        const uint32_t prefix = bits >> (32 - length);
        if (prefix < code.end[length]) {
            return length << 8 | code.symbols[(prefix + static_cast<uint32_t>(code.first[length])) & 255];
        }
    }
    return 0;
}

// Fills an image's tables with a block of `kBlock` threads, which then wait for each other.
template <uint32_t kBlock>
__device__ inline void make_codes(const JpegImage& image, Codes& codes) {
    const uint32_t components = image.color == JpegColor::gray ? 1 : 3;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < components << (kLookBits + 1); i += kBlock) {
        const uint32_t component = i >> (kLookBits + 1), ac = i >> kLookBits & 1, bits = i & ((1 << kLookBits) - 1);
        const JpegCode& code = global(image.tables)->codes[component][ac];
        codes.look[component][ac][bits] = static_cast<uint16_t>(search(code, bits << (32 - kLookBits), 1, kLookBits));
    }
    __syncthreads();
}

// A thread's place in the data.
struct State {
    uint32_t bit;
    uint32_t block;  // of the MCU
    uint32_t index;  // of the next coefficient, in zigzag order; 0 is the DC coefficient

    __device__ uint32_t place() const { return block << 8 | index; }

    __device__ bool is(const JpegRun& run) const { return bit == run.bit && place() == run.place; }
};

__device__ inline State state_of(const JpegRun& run) {
    return {run.bit, run.place >> 8, run.place & 255};
}

// The meaning of a symbol.
struct Symbol {
    uint32_t index;   // of the coefficient, in zigzag order
    int32_t value;    // 0 if there is nothing to write; a difference for a DC coefficient
    bool ends_block;  // whether the symbol is the block's last
    bool is_bad;      // whether the code does not exist
};

// The data and tables for going from symbol to symbol.
struct Walk {
    const uint32_t* words;
    const JpegTables* tables;
    uint32_t block_components;
    uint32_t mcu_blocks;
    const Codes* codes;

    __device__ Walk(const JpegImage& image, const Codes& codes)
        : words(reinterpret_cast<const uint32_t*>(image.bytes)),
          tables(image.tables),
          block_components(image.block_components),
          mcu_blocks(image.mcu_blocks),
          codes(&codes) {}

    // The 32 bits from a place on. A code and its value have at most 31 bits.
    __device__ uint32_t bits(uint32_t at) const {
        const uint32_t* two = global(words) + at / 32;
        const uint64_t both = static_cast<uint64_t>(two[0]) << 32 | two[1];
        return static_cast<uint32_t>(both << (at % 32) >> 32);
    }

    // Reads a symbol and moves to the next one.
    __device__ Symbol step(State& state) const {
        const uint32_t component = block_components >> (2 * state.block) & 3;
        const uint32_t ac = state.index > 0 ? 1 : 0;
        const uint32_t next = bits(state.bit);
        uint32_t found = codes->look[component][ac][next >> (32 - kLookBits)];
        if (found == 0) {
            found = search(global(tables)->codes[component][ac], next, kLookBits + 1, 16);
        }
        // The code does not exist: libjpeg takes 17 bits and ends the block.
        const uint32_t length = found == 0 ? 17 : found >> 8;
        const uint32_t run = found >> 4 & 15, size = found & 15;
        // A value that starts with 0 is negative.
        int32_t value = static_cast<int32_t>(next << length >> (31 - size) >> 1);
        value += size > 0 && value >> (size - 1) == 0 ? 1 - (1 << size) : 0;
        state.bit += length + size;

        Symbol symbol = {0, value, false, found == 0};
        if (ac == 0) {
            state.index = 1;
        } else if (size == 0 && run != 15) {
            state.index = 64;
        } else {
            // After the last coefficient: the data are damaged, and libjpeg writes the last coefficient.
            symbol.index = smaller(state.index + run, 63u);
            state.index += run + 1;
        }
        if (state.index >= 64) {
            symbol.ends_block = true;
            state.index = 0;
            state.block = state.block + 1 == mcu_blocks ? 0 : state.block + 1;
        }
        return symbol;
    }
};

// Number of threads whose values one of them adds up.
constexpr uint32_t kGroup = 16;

struct ScanMemory {
    uint64_t threads[kThreads];
    uint64_t groups[kThreads / kGroup];
};

// Combines the values of a block of `kThreads` threads by `add`. Returns the result for all threads before this one, in
// their order, and sets `all` to the result for all threads. A value of 0 has no effect.
template <typename Add>
__device__ inline uint64_t scan(ScanMemory& memory, uint64_t own, uint64_t& all, Add add) {
    const uint32_t thread = threadIdx.x, group = thread / kGroup;
    // Other threads may still read the results of the last call.
    __syncthreads();
    memory.threads[thread] = own;
    __syncthreads();
    uint64_t in_group = 0;
#pragma unroll 1
    for (uint32_t i = group * kGroup; i < thread; i++) {
        in_group = add(in_group, memory.threads[i]);
    }
    if (thread % kGroup == kGroup - 1) {
        memory.groups[group] = add(in_group, own);
    }
    __syncthreads();
    uint64_t before = 0;
    all = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < kThreads / kGroup; i++) {
        before = i == group ? all : before;
        all = add(all, memory.groups[i]);
    }
    return add(before, in_group);
}

}  // namespace warpfeed::jpeg
