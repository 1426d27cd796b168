// jpeg_coefficients and jpeg_coefficients_known: decode Huffman codes to coefficients. AC coefficients are kept where the
// window needs them, DC differences of all blocks that are checked.
//
// Reads: the data, the look-up tables, the starts of runs, or the stretches whose places are known. Writes: coefficients
// other than 0, faults to the status, and the places of MCUs if they are learned.
// Grid: blocks of 256 threads, one run per thread, or of 128 threads, one stretch per thread. blockIdx.x is the place
// among those of an image, blockIdx.y the image. An image has either runs or stretches.
// Reference: the CPU's decoder (warpfeed-image/src/decode), whose pixels come of it.

#include "jpeg_bytes.cuh"

namespace warpfeed::jpeg {

// In `JpegStretch::mcus`: the last MCU may end up to seven bits earlier, because a restart marker follows.
constexpr uint32_t kPadded = 0x80000000;

// In place of a block's number in the window: its coefficients are not kept.
constexpr uint32_t kNotKept = ~0u;

// A block's coefficients on their way to memory, four side by side: for the cache, a write of one is as much work as a
// write of four.
struct Fours {
    int16_t* const ac;
    uint64_t values;  // of the four that begin with coefficient 4 * number
    uint32_t number;
    uint32_t shared;  // number of the four of which another thread has some
    uint32_t block;   // in the window; `kNotKept` outside

    // Begins with this coefficient of a block.
    __device__ Fours(int16_t* ac, uint32_t block, uint32_t index)
        : ac(ac), values(0), number(index / 4), shared(index / 4), block(block) {}

    __device__ void add(uint32_t at, int32_t value) {
        if (at / 4 != number) {
            write();
            number = at / 4;
        }
        values |= static_cast<uint64_t>(static_cast<uint16_t>(value)) << (16 * (at % 4));
    }

    __device__ void write() {
        int16_t* const to = ac + 64 * static_cast<size_t>(block) + 4 * number;
        if (values != 0 && number != shared) {
            *reinterpret_cast<uint64_t*>(to) = values;
        } else if (values != 0) {
#pragma unroll 1
            for (uint32_t i = 0; i < 4; i++) {
                const int16_t value = static_cast<int16_t>(values >> (16 * i));
                if (value != 0) {
                    to[i] = value;
                }
            }
        }
        values = 0;
    }

    // Goes on with another block.
    __device__ void next(uint32_t number_of_block) {
        write();
        block = number_of_block;
        number = 0;
        shared = ~0u;
    }

    // Stops within a block, whose next coefficient is another thread's.
    __device__ void stop() {
        shared = number;
        write();
    }
};

// A thread that goes from code to code.
struct Decoding {
    const JpegImage& image;
    const Walk& walk;
    const uint32_t* const data;  // from word number `data_word` on
    const uint32_t data_word;
    uint16_t* const dc;
    int16_t* const ac;
    const uint32_t mcu_columns, mcu_blocks, columns, rows;
    const uint32_t first_block, first_column, first_row;
    State state;
    uint32_t block;        // in the scan
    uint32_t row, column;  // of its MCU
    uint32_t status;

    __device__ Decoding(
        const JpegImage& image, const Walk& walk, const uint32_t* data, uint32_t data_word, const State& start)
        : image(image),
          walk(walk),
          data(data),
          data_word(data_word),
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

    // The current block's number in the window.
    __device__ uint32_t kept() const {
        const uint32_t x = column - first_column, y = row - first_row;
        return x < columns && y < rows ? (y * columns + x) * mcu_blocks + state.block : kNotKept;
    }

    // Decodes up to a bit or a block, whichever comes first. Calls `ended()` after the last block of each MCU.
    template <typename Ended>
    __device__ void decode(uint32_t stop_bit, uint32_t end_block, Ended ended) {
        Fours fours(ac, kept(), state.index);
        Words words(data, data_word, state.bit);
#pragma unroll 1
        while (state.bit < stop_bit && block < end_block) {
            const uint32_t bit = state.bit, next = words.bits(bit), index = state.index;
            const uint32_t entry = walk.entry(state, next);
            const uint32_t size = entry >> 12 & 15, length = (entry & 31) - size;
            // A value that starts with 0 is negative.
            int32_t value = static_cast<int32_t>(next << length >> (31 - size) >> 1);
            value += size > 0 && value >> (size - 1) == 0 ? 1 - (1 << size) : 0;
            status |= entry >= kBadCode ? kDamaged : 0;
            const bool ends_block = walk.advance(state, entry);
            words.advance(bit, state.bit);
            if (index == 0) {
                dc[block - first_block] = static_cast<uint16_t>(value);
            } else if (size != 0 && fours.block != kNotKept) {
                // After the last coefficient: the data are damaged, and libjpeg writes the last coefficient.
                fours.add(smaller(index + (entry >> 5 & 127) - 1, 63u), value);
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
                fours.next(kept());
            }
        }
        fours.stop();
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
    bool is_flagged;

    template <uint32_t kBlock>
    __device__ void fill(const JpegImage& image) {
        if (threadIdx.x == 0) {
            // The runs of a flagged image may overlap.
            is_flagged = (atomicOr(image.status, 0) & ~kUnused) != 0;
        }
        copy<kBlock>(global(image.look_up), &look_up, sizeof(JpegLookUp));
    }
};

// Number of runs that a block of jpeg_coefficients decodes. Their data lie next to each other, and the block copies
// them first. Otherwise the threads would read at too many places, and the cache would lose a line before its thread
// has read it.
constexpr uint32_t kCopiedRuns = 256;
constexpr uint32_t kRunWords = kRunBits / 32;

struct RunMemory {
    CoefficientMemory tables;
    // A run begins up to 31 bits after its first word, and ends up to as many after those of the next one. A look-up
    // reads two words.
    alignas(16) uint32_t data[kCopiedRuns * kRunWords + 4];
};

__device__ inline void coefficients(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.y);
    if (!found) {
        return;
    }
    const JpegImage& image = *found;
    const uint32_t bits = data_bits(image), runs = runs_of(bits);
    const uint32_t first_run = blockIdx.x * kCopiedRuns, data_word = first_run * kRunWords;
    if (first_run >= runs) {
        return;
    }
    __shared__ RunMemory memory;
    memory.tables.fill<kCopiedRuns>(image);
    // Zeros follow the last word of the data.
    const uint32_t words = (bits / 32 + 3 - data_word + 3) & ~3u;
    copy<kCopiedRuns>(
        data_words(image) + data_word, memory.data, smaller<uint32_t>(sizeof(uint32_t) * words, sizeof(memory.data)));
    __syncthreads();
    const uint32_t run = first_run + threadIdx.x;
    if (run >= runs || memory.tables.is_flagged) {
        return;
    }
    const JpegRun start = global(image.runs)[run];
    const bool is_last = run + 1 == runs;
    // No run begins before the previous one ends, so this one ends where the next one starts.
    const uint32_t end_bit = is_last ? bits : smaller(global(image.runs)[run + 1].bit, bits);
    const uint32_t segments = image.segments, segment_blocks = image.segment_blocks;
    const uint32_t first_block = image.checked_begin, checked_end = image.checked_end;
    uint32_t* const mcus = global(image.mcus);

    const Walk walk(image, memory.tables.look_up);
    Decoding at(image, walk, memory.data, data_word, state_of(start));
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

// Number of stretches that a block of jpeg_coefficients_known decodes.
constexpr uint32_t kStretches = 128;

__device__ inline void coefficients_known(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.y);
    if (!found || blockIdx.x * kStretches >= found->stretch_count) {
        return;
    }
    const JpegImage& image = *found;
    __shared__ CoefficientMemory memory;
    memory.fill<kStretches>(image);
    __syncthreads();
    const uint32_t number = blockIdx.x * kStretches + threadIdx.x;
    if (number >= image.stretch_count) {
        return;
    }
    const JpegStretch stretch = global(image.stretches)[number];
    const uint32_t end_bit = unstuffed_bit(image, stretch.end_bit), mcus = stretch.mcus & ~kPadded;
    const Walk walk(image, memory.look_up);
    Decoding at(image, walk, data_words(image), 0, {unstuffed_bit(image, stretch.bit), 0, 0});
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

extern "C" __global__ void __launch_bounds__(256) jpeg_coefficients(const warpfeed::Launch launch) {
    warpfeed::jpeg::coefficients(launch);
}

extern "C" __global__ void __launch_bounds__(128) jpeg_coefficients_known(const warpfeed::Launch launch) {
    warpfeed::jpeg::coefficients_known(launch);
}
