// Code that the kernels of the JPEG decoder share: the walk from one code of the data to the next, and sums over a
// block's threads.
//
// A kernel never decides that an image is bad. It sets the image's status if anything is odd. Then the CPU's decoder
// decodes the image again and alone decides whether it is bad. Kernels check for damage down to one row of MCUs below the
// rectangle, which covers everything that the CPU decodes.
#pragma once

#include "jpeg_params.cuh"
#include "pixel.cuh"

namespace warpfeed::jpeg {

constexpr uint32_t kThreads = 256;
// Number of bits of a run, from its first code to that of the next one.
constexpr uint32_t kRunBits = 640;
// Number of runs that a block of jpeg_sync finds.
constexpr uint32_t kBlockRuns = 224;

// The data without stuffed zeros and markers.
__device__ inline const uint32_t* data_words(const JpegImage& image) {
    return reinterpret_cast<const uint32_t*>(global(image.bytes));
}

__device__ inline uint32_t data_bits(const JpegImage& image) {
    return 8 * global(image.bounds)[image.segments];
}

// Number of runs that an image has. Data without any byte are one, which notices that all is missing.
__device__ inline uint32_t runs_of(uint32_t data_bits) {
    return larger((data_bits + kRunBits - 1) / kRunBits, 1u);
}

// Values of the status; src/backend/cpu_fallbacks.rs has their names.
constexpr uint32_t kDamaged = 1;
constexpr uint32_t kTruncated = 2;
constexpr uint32_t kUnsynchronized = 4;
// The image is good, but its places are not learned, because unused bytes precede a restart marker.
constexpr uint32_t kUnused = 8;

// Image number `index` of a launch; null if there are fewer images.
__device__ inline const JpegImage* image_of(const Launch& launch, uint32_t index) {
    return index < launch.count ? static_cast<const JpegImage*>(launch.samples) + index : nullptr;
}

__device__ inline uint32_t window_blocks(const JpegImage& image) {
    return image.columns * image.rows * image.mcu_blocks;
}

// Number of bits that one look-up uses, and number of values for which there are longer AC codes.
constexpr uint32_t kLookBits = 10;
constexpr uint32_t kLongCodes = 1024;

// The coefficients that an end of block moves on by: from everywhere beyond the block, and farther than any other code.
constexpr uint32_t kBlockEnd = 80;
// In `Walk::entry`: the code does not exist. libjpeg takes 17 bits and ends the block.
constexpr uint32_t kBadCode = 1 << 16;

__device__ inline uint32_t bad_entry(uint32_t ac) {
    return 17 | (ac != 0 ? kBlockEnd : 1) << 5;
}

// The entry of a code whose length lies in this range, at the start of `bits`; 0 if there is none.
__device__ inline uint32_t search(
    const JpegCode& code, uint32_t ac, uint32_t bits, uint32_t shortest, uint32_t longest) {
#pragma unroll 1
    for (uint32_t length = shortest; length <= longest; length++) {
        const uint32_t prefix = bits >> (32 - length);
        if (prefix < code.end[length]) {
            const uint32_t symbol = code.symbols[(prefix + static_cast<uint32_t>(code.first[length])) & 255];
            const uint32_t size = symbol & 15, run = symbol >> 4;
            const uint32_t by = ac == 0 ? 1 : size == 0 && run != 15 ? kBlockEnd : run + 1;
            return (length + size) | by << 5 | size << 12;
        }
    }
    return 0;
}

struct alignas(16) FourWords {
    uint32_t of[4];
};

// Copies to shared memory with a block of `kBlock` threads. Both places, and the number of bytes, are multiples of 16.
template <uint32_t kBlock>
__device__ inline void copy(const void* from, void* to, uint32_t bytes) {
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < bytes / sizeof(FourWords); i += kBlock) {
        static_cast<FourWords*>(to)[i] = static_cast<const FourWords*>(from)[i];
    }
}

// A thread's place in the data.
struct State {
    uint32_t bit;
    uint32_t block;  // of the MCU
    uint32_t index;  // of the next coefficient, in zigzag order; 0 is the DC coefficient

    __device__ uint32_t place() const { return block << 8 | index; }
};

__device__ inline State state_of(const JpegRun& run) {
    return {run.bit, run.place >> 8, run.place & 255};
}

__device__ inline bool same_state(const JpegRun& a, const JpegRun& b) {
    return a.bit == b.bit && a.place == b.place;
}

// The two words of the data that a place lies in. They are kept from code to code, so that a word is loaded once.
struct Words {
    const uint32_t* from;
    uint32_t from_word;  // the number of the first of them
    uint32_t first, second;

    __device__ Words(const uint32_t* from, uint32_t from_word, uint32_t bit) : from(from), from_word(from_word) {
        const uint32_t* const two = from + (bit / 32 - from_word);
        first = two[0];
        second = two[1];
    }

    // Goes from a place to one at most 32 bits after it.
    __device__ void advance(uint32_t bit, uint32_t to) {
        if (bit / 32 != to / 32) {
            first = second;
            second = from[to / 32 - from_word + 1];
        }
    }

    // The 32 bits from a place on, which the words have. A code and its value have at most 31 bits.
    __device__ uint32_t bits(uint32_t bit) const { return __funnelshift_l(second, first, bit); }
};

// The tables for going from code to code.
struct Walk {
    const JpegTables* tables;
    uint32_t block_components;
    uint32_t mcu_blocks;
    const JpegLookUp* look_up;

    __device__ Walk(const JpegImage& image, const JpegLookUp& look_up)
        : tables(image.tables),
          block_components(image.block_components),
          mcu_blocks(image.mcu_blocks),
          look_up(&look_up) {}

    // The entry of the code at the start of `next`, or `kBadCode` and the entry that libjpeg goes by.
    __device__ uint32_t entry(const State& state, uint32_t next) const {
        const uint32_t component = block_components >> (2 * state.block) & 3, ac = state.index > 0 ? 1 : 0;
        const uint32_t found = look_up->look[2 * component + ac][next >> (32 - kLookBits)];
        return found != 0 ? found : long_entry(component, ac, next);
    }

    __device__ uint32_t long_entry(uint32_t component, uint32_t ac, uint32_t next) const {
        const uint32_t at = (next >> 16) - look_up->more_from[component];
        const uint32_t found =
            ac != 0 && at < kLongCodes ? look_up->more[component][at] : searched(component, ac, next);
        return found == bad_entry(ac) ? found | kBadCode : found;
    }

    // The entry of a code above 10 bits that no table has.
    __device__ uint32_t searched(uint32_t component, uint32_t ac, uint32_t next) const {
        const uint32_t found = search(global(tables)->codes[component][ac], ac, next, kLookBits + 1, 16);
        return found == 0 ? bad_entry(ac) : found;
    }

    // Moves on by an entry. Returns whether the block ends.
    __device__ bool advance(State& state, uint32_t entry) const {
        state.bit += entry & 31;
        state.index += entry >> 5 & 127;
        const bool ends = state.index >= 64;
        const uint32_t next = state.block + 1 == mcu_blocks ? 0 : state.block + 1;
        state.index = ends ? 0 : state.index;
        state.block = ends ? next : state.block;
        return ends;
    }
};

// The segment that a place in the data belongs to.
struct Segment {
    const uint32_t* bounds;
    uint32_t number;
    uint32_t end_bit;

    __device__ Segment(const JpegImage& image, uint32_t bit) : bounds(global(image.bounds)), number(0) {
        // The last one that begins at or before the bit.
#pragma unroll 1
        for (uint32_t count = image.segments; count > 1;) {
            const uint32_t half = count / 2;
            const bool later = 8 * bounds[number + half] <= bit;
            number += later ? half : 0;
            count = later ? count - half : half;
        }
        end_bit = 8 * bounds[number + 1];
    }

    __device__ uint32_t begin_bit() const { return 8 * bounds[number]; }

    __device__ void next() {
        number++;
        end_bit = 8 * bounds[number + 1];
    }
};

// In the number of blocks before a place: the number counts from the first block of the data, because the place comes
// after the start of a segment whose number is known. Otherwise it counts from the start of a run or of a block of
// threads.
constexpr uint32_t kAbsolute = 0x80000000;

__device__ inline uint64_t add_blocks(uint64_t a, uint64_t b) {
    return (b & kAbsolute) != 0 ? b : a + b;
}

// Number of threads in a group, whose values each adds up, and number of groups in a block.
constexpr uint32_t kGroup = 16;
constexpr uint32_t kGroups = kThreads / kGroup;

struct ScanMemory {
    uint64_t threads[kThreads];
    uint64_t groups[kGroups];
    uint64_t before[kGroups];  // the result for all groups before
    uint64_t all;
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
    // The other warps wait here, and leave the multiprocessor to other blocks.
    if (thread < kGroups) {
        uint64_t before = 0;
#pragma unroll 1
        for (uint32_t i = 0; i < thread; i++) {
            before = add(before, memory.groups[i]);
        }
        memory.before[thread] = before;
        if (thread == kGroups - 1) {
            memory.all = add(before, memory.groups[thread]);
        }
    }
    __syncthreads();
    all = memory.all;
    return add(memory.before[group], in_group);
}

}  // namespace warpfeed::jpeg
