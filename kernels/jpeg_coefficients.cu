// jpeg_coefficients: decodes Huffman codes to coefficients. AC coefficients are kept where the window needs them, DC
// differences of all blocks that are checked.
//
// Reads: the data, the look-up tables, the starts of runs. Writes: coefficients other than 0, and faults to the status.
// Grid: blocks of 128 threads, one run per thread. blockIdx.x is the place among an image's runs, blockIdx.y the image.
// Reference: warpfeed-image/src/decode/kernel_steps/coefficients.rs.

#include "jpeg.cuh"

namespace warpfeed::jpeg {

constexpr uint32_t kCoefficientThreads = 128;

// Place of the k-th coefficient in its block, row by row.
struct Zigzag {
    uint8_t places[64];
};

__device__ inline Zigzag zigzag() {
    return {{0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
             41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
             30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63}};
}

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
    __shared__ JpegLookUp look_up;
    __shared__ Zigzag places;
    __shared__ bool is_flagged;
    if (threadIdx.x == 0) {
        places = zigzag();
        // The runs of a flagged image may overlap.
        is_flagged = atomicOr(image.status, 0) != 0;
    }
    copy_look_up<kCoefficientThreads>(image, look_up);
    const uint32_t run = blockIdx.x * kCoefficientThreads + threadIdx.x;
    if (run >= runs || is_flagged) {
        return;
    }
    const JpegRun start = global(image.runs)[run];
    const bool is_last = run + 1 == runs;
    // No run begins before the previous one ends, so this one ends where the next one starts.
    const uint32_t end_bit = is_last ? bits : smaller(global(image.runs)[run + 1].bit, bits);
    const uint32_t segments = image.segments, segment_blocks = image.segment_blocks;
    const uint32_t first_block = image.checked_begin, checked_end = image.checked_end;
    const Walk walk(image, look_up);
    const uint32_t mcu_columns = image.mcu_columns, mcu_blocks = image.mcu_blocks;
    const uint32_t first_column = image.column, columns = image.columns, first_row = image.row, rows = image.rows;
    uint16_t* const dc = global(image.dc);
    int16_t* const ac = global(image.ac);

    State state = state_of(start);
    Segment segment(image, start.bit);
    const uint64_t before = add_blocks(global(image.ends)[run / kBlockRuns].block, start.block);
    uint32_t block = first_block + (static_cast<uint32_t>(before) & ~kAbsolute);
    uint32_t row = block / mcu_blocks / mcu_columns, column = block / mcu_blocks % mcu_columns;
    // The place for the current block's coefficients; null if they are not kept.
    const auto kept = [&]() -> int16_t* {
        const uint32_t x = column - first_column, y = row - first_row;
        const size_t place = static_cast<size_t>(y * columns + x) * mcu_blocks + state.block;
        return x < columns && y < rows ? ac + 64 * place : nullptr;
    };
    // A segment without data has no run of its own.
    uint32_t status = segment.number > 0 && segment.bounds[segment.number - 1] == segment.bounds[segment.number]
                          ? kTruncated : 0;
#pragma unroll 1
    for (;;) {
        // Without restarts, the only segment has all blocks.
        const uint32_t in_segment = segment_blocks * (segment.number + 1);
        const uint32_t end_block = segment_blocks > 0 ? smaller(first_block + in_segment, checked_end) : checked_end;
        const uint32_t stop_bit = smaller(end_bit, segment.end_bit);
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
                }
                coefficients = kept();
            }
        }
        // No symbol reaches beyond a segment's data.
        status |= state.bit > segment.end_bit ? kTruncated : 0;
        if (block < end_block) {
            if (state.bit < segment.end_bit) {
                break;
            }
            status |= kTruncated;
        }
        // The segment has all its blocks, or no more data.
        if (segment.number + 1 == segments || segment.end_bit >= end_bit) {
            status |= is_last && segment.number + 1 < segments ? kTruncated : 0;
            break;
        }
        state = {segment.end_bit, 0, 0};
        segment.next();
        block = first_block + segment_blocks * segment.number;
        row = block / mcu_blocks / mcu_columns;
        column = block / mcu_blocks % mcu_columns;
    }
    if (status != 0) {
        atomicOr(image.status, status);
    }
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(128) jpeg_coefficients(const warpfeed::Launch launch) {
    warpfeed::jpeg::coefficients(launch);
}
