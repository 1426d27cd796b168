// jpeg_coefficients and jpeg_coefficients_known: decode Huffman codes to coefficients. AC coefficients are kept where the
// window needs them, DC differences of all blocks that are checked.
//
// Reads: the data, the look-up tables, the starts of runs, or the stretches whose places are known. Writes: coefficients
// other than 0, faults to the status, and the places of MCUs if they are learned.
// Grid: blocks of 128 threads, one run or stretch per thread. blockIdx.x is the place among those of an image, blockIdx.y
// the image. An image has either runs or stretches.
// Reference: warpfeed-image/src/decode/kernel_steps/coefficients.rs.

#include "jpeg_bytes.cuh"

namespace warpfeed::jpeg {

constexpr uint32_t kCoefficientThreads = 128;
// In `JpegStretch::mcus`: the last MCU may end up to seven bits earlier, because a restart marker follows.
constexpr uint32_t kPadded = 0x80000000;

// Place of the k-th coefficient in its block, row by row.
struct Zigzag {
    uint8_t places[64];
};

__device__ inline Zigzag zigzag() {
    return {{0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
             41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
             30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63}};
}

// A thread that goes from code to code.
struct Decoding {
    const JpegImage& image;
    const Walk& walk;
    const Zigzag& places;
    uint16_t* const dc;
    int16_t* const ac;
    const uint32_t mcu_columns, mcu_blocks, columns, rows;
    const uint32_t first_block, first_column, first_row;
    State state;
    uint32_t block;        // in the scan
    uint32_t row, column;  // of its MCU
    uint32_t status;

    __device__ Decoding(const JpegImage& image, const Walk& walk, const Zigzag& places, const State& start)
        : image(image),
          walk(walk),
          places(places),
          dc(global(image.dc)),
          ac(global(image.ac)),
          mcu_columns(image.mcu_columns),
          mcu_blocks(image.mcu_blocks),
          columns(image.columns),
          rows(image.rows),
          first_block(image.checked_begin),
          first_column(image.column),
          first_row(image.row),
          state(start),
          block(0),
          row(0),
          column(0),
          status(0) {}

    __device__ void go_to(uint32_t to) {
        block = to;
        row = block / mcu_blocks / mcu_columns;
        column = block / mcu_blocks % mcu_columns;
    }

    // The place for the current block's coefficients; null if they are not kept.
    __device__ int16_t* kept() const {
        const uint32_t x = column - first_column, y = row - first_row;
        const size_t place = static_cast<size_t>(y * columns + x) * mcu_blocks + state.block;
        return x < columns && y < rows ? ac + 64 * place : nullptr;
    }

    // Decodes up to a bit or a block, whichever comes first. Calls `ended()` after the last block of each MCU.
    template <typename Ended>
    __device__ void decode(uint32_t stop_bit, uint32_t end_block, Ended ended) {
        int16_t* coefficients = kept();
#pragma unroll 1
        while (state.bit < stop_bit && block < end_block) {
            const uint32_t next = walk.bits(state.bit), index = state.index;
            const uint32_t entry = walk.entry(state, next);
            const uint32_t size = entry >> 12 & 15, length = (entry & 31) - size;
            // A value that starts with 0 is negative.
            int32_t value = static_cast<int32_t>(next << length >> (31 - size) >> 1);
            value += size > 0 && value >> (size - 1) == 0 ? 1 - (1 << size) : 0;
            status |= entry >= kBadCode ? kDamaged : 0;
            const bool ends_block = walk.advance(state, entry);
            if (index == 0) {
                dc[block - first_block] = static_cast<uint16_t>(value);
            } else if (size != 0 && coefficients) {
                // After the last coefficient: the data are damaged, and libjpeg writes the last coefficient.
                const uint32_t at = smaller(index + (entry >> 5 & 127) - 1, 63u);
                coefficients[places.places[at]] = static_cast<int16_t>(value);
            }
            if (ends_block) {
                block++;
                if (state.block == 0) {
                    column++;
                    if (column == mcu_columns) {
                        column = 0;
                        row++;
                    }
                    ended();
                }
                coefficients = kept();
            }
        }
    }

    __device__ void report() const {
        if (status != 0) {
            atomicOr(image.status, status);
        }
    }
};

// Shared memory of a block of threads.
struct CoefficientMemory {
    JpegLookUp look_up;
    Zigzag places;
    bool is_flagged;

    // Fills the memory. The threads then wait for each other.
    __device__ void fill(const JpegImage& image) {
        if (threadIdx.x == 0) {
            places = zigzag();
            // The runs of a flagged image may overlap.
            is_flagged = (atomicOr(image.status, 0) & ~kUnused) != 0;
        }
        copy_look_up<kCoefficientThreads>(image, look_up);
    }
};

__device__ inline void coefficients(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.y);
    if (!found) {
        return;
    }
    const JpegImage& image = *found;
    const uint32_t bits = data_bits(image), runs = runs_of(bits);
    if (blockIdx.x * kCoefficientThreads >= runs) {
        return;
    }
    __shared__ CoefficientMemory memory;
    memory.fill(image);
    const uint32_t run = blockIdx.x * kCoefficientThreads + threadIdx.x;
    if (run >= runs || memory.is_flagged) {
        return;
    }
    const JpegRun start = global(image.runs)[run];
    const bool is_last = run + 1 == runs;
    // No run begins before the previous one ends, so this one ends where the next one starts.
    const uint32_t end_bit = is_last ? bits : smaller(global(image.runs)[run + 1].bit, bits);
    const uint32_t segments = image.segments, segment_blocks = image.segment_blocks;
    const uint32_t first_block = image.checked_begin, checked_end = image.checked_end;
    uint32_t* const mcus = global(image.mcus);

    const Walk walk(image, memory.look_up);
    Decoding at(image, walk, memory.places, state_of(start));
    Segment segment(image, start.bit);
    const uint64_t before = add_blocks(global(image.ends)[run / kBlockRuns].block, start.block);
    at.go_to(first_block + (static_cast<uint32_t>(before) & ~kAbsolute));
    // Where places are learned, all blocks from the first on are checked.
    uint32_t mcu = at.block / at.mcu_blocks;
    const auto segment_begins = [&] {
        if (mcus && at.block < checked_end) {
            mcus[mcu] = at.state.bit;
        }
    };
    if (start.place == 0 && start.bit == segment.begin_bit()) {
        segment_begins();
    }
    // A segment without data has no run of its own.
    at.status = segment.number > 0 && segment.bounds[segment.number - 1] == segment.bounds[segment.number]
                    ? kTruncated : 0;
#pragma unroll 1
    for (;;) {
        // Without restarts, the only segment has all blocks.
        const uint32_t in_segment = segment_blocks * (segment.number + 1);
        const uint32_t end_block = segment_blocks > 0 ? smaller(first_block + in_segment, checked_end) : checked_end;
        at.decode(smaller(end_bit, segment.end_bit), end_block, [&] {
            mcu++;
            // If a segment ends here, the next one begins after a marker.
            if (mcus && (at.block < end_block || end_block == checked_end)) {
                mcus[mcu] = at.state.bit;
            }
        });
        // No symbol reaches beyond a segment's data.
        at.status |= at.state.bit > segment.end_bit ? kTruncated : 0;
        if (at.block < end_block) {
            if (at.state.bit < segment.end_bit) {
                break;
            }
            at.status |= kTruncated;
        } else if (mcus && segment.number + 1 < segments && at.state.bit + 8 <= segment.end_bit) {
            at.status |= kUnused;
        }
        // The segment has all its blocks, or no more data.
        if (segment.number + 1 == segments || segment.end_bit >= end_bit) {
            at.status |= is_last && segment.number + 1 < segments ? kTruncated : 0;
            break;
        }
        at.state = {segment.end_bit, 0, 0};
        segment.next();
        at.go_to(first_block + segment_blocks * segment.number);
        mcu = at.block / at.mcu_blocks;
        segment_begins();
    }
    at.report();
}

__device__ inline void coefficients_known(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.y);
    if (!found || blockIdx.x * kCoefficientThreads >= found->stretch_count) {
        return;
    }
    const JpegImage& image = *found;
    __shared__ CoefficientMemory memory;
    memory.fill(image);
    const uint32_t number = blockIdx.x * kCoefficientThreads + threadIdx.x;
    if (number >= image.stretch_count) {
        return;
    }
    const JpegStretch stretch = global(image.stretches)[number];
    const uint32_t end_bit = unstuffed_bit(image, stretch.end_bit), mcus = stretch.mcus & ~kPadded;
    const Walk walk(image, memory.look_up);
    Decoding at(image, walk, memory.places, {unstuffed_bit(image, stretch.bit), 0, 0});
    at.go_to(image.checked_begin + stretch.mcu * at.mcu_blocks);
    const uint32_t end_block = at.block + mcus * at.mcu_blocks;
    at.decode(end_bit, end_block, [] {});
    // A start in the wrong place leads to another end, or to an end after other blocks.
    const bool is_right =
        at.block == end_block && end_bit - at.state.bit <= ((stretch.mcus & kPadded) != 0 ? 7u : 0u);
    at.status |= is_right ? 0 : kUnsynchronized;
    at.report();
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(128) jpeg_coefficients(const warpfeed::Launch launch) {
    warpfeed::jpeg::coefficients(launch);
}

extern "C" __global__ void __launch_bounds__(128) jpeg_coefficients_known(const warpfeed::Launch launch) {
    warpfeed::jpeg::coefficients_known(launch);
}
