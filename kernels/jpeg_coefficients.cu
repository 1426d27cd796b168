// jpeg_coefficients: decodes Huffman codes to coefficients. AC coefficients are kept where the window needs them, DC
// differences of all blocks that are checked.
//
// Reads: the data, the codes, the starts of runs. Writes: coefficients other than 0, and faults to the status.
// Grid: blocks of 64 threads, one run per thread. blockIdx.x is the place among an image's runs, blockIdx.y the image.
// Reference: warpfeed-image/src/decode/kernel_steps/coefficients.rs.

#include "jpeg.cuh"

namespace warpfeed::jpeg {

constexpr uint32_t kCoefficientThreads = 64;

// Place of the k-th coefficient in its block, row by row.
struct Zigzag {
    uint8_t places[64];
};

__device__ inline Zigzag zigzag() {
    return {{0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
             41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
             30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63}};
}

// A run's place in the data and in the window.
struct Part {
    JpegRun start;
    uint32_t end_bit;       // the thread stops at the first symbol from here on
    uint32_t data_end_bit;  // no symbol reaches beyond
    uint32_t end_block;     // the thread stops at this block
    bool is_last;           // whether the thread has to get there
};

__device__ inline Part part_of(const JpegImage& image, uint32_t run) {
    const uint32_t* const bounds = global(image.bounds);
    if (image.segment_blocks > 0) {
        const uint32_t block = image.checked_begin + run * image.segment_blocks;
        const uint32_t end = 8 * bounds[run + 1];
        return {{8 * bounds[run], 0, block}, end, end, smaller(block + image.segment_blocks, image.checked_end), true};
    }
    const JpegRun start = global(image.runs)[run];
    const uint32_t data_end = 8 * bounds[1];
    const bool is_last = run + 1 == kRuns;
    // No share begins before the previous one ends, so this one ends where the next one starts.
    return {start, is_last ? data_end : smaller(global(image.runs)[run + 1].bit, data_end), data_end, image.checked_end,
            is_last};
}

__device__ inline void coefficients(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.y);
    if (!found || blockIdx.x * kCoefficientThreads >= (found->segment_blocks > 0 ? found->segments : kRuns)) {
        return;
    }
    const JpegImage& image = *found;
    __shared__ Codes codes;
    __shared__ Zigzag places;
    if (threadIdx.x == 0) {
        places = zigzag();
    }
    make_codes<kCoefficientThreads>(image, codes);
    const uint32_t run = blockIdx.x * kCoefficientThreads + threadIdx.x;
    if (image.segment_blocks > 0 && run >= image.segments) {
        return;
    }
    const Part part = part_of(image, run);
    const Walk walk(image, codes);
    const uint32_t mcu_columns = image.mcu_columns, mcu_blocks = image.mcu_blocks;
    const uint32_t first_column = image.column, columns = image.columns, first_row = image.row, rows = image.rows;
    uint16_t* const dc = global(image.dc);
    const uint32_t first_block = image.checked_begin;
    int16_t* const ac = global(image.ac);

    State state = state_of(part.start);
    uint32_t block = part.start.block;
    uint32_t row = block / mcu_blocks / mcu_columns, column = block / mcu_blocks % mcu_columns;
    // The place for the current block's coefficients; null if they are not kept.
    const auto kept = [&]() -> int16_t* {
        const uint32_t x = column - first_column, y = row - first_row;
        const size_t place = static_cast<size_t>(y * columns + x) * mcu_blocks + state.block;
        return x < columns && y < rows ? ac + 64 * place : nullptr;
    };
    int16_t* coefficients = kept();
    uint32_t status = 0;
#pragma unroll 1
    while (state.bit < part.end_bit && block < part.end_block) {
        const bool is_dc = state.index == 0;
        const Symbol symbol = walk.step(state);
        status |= symbol.is_bad ? kDamaged : 0;
        status |= state.bit > part.data_end_bit ? kTruncated : 0;
        if (is_dc) {
            dc[block - first_block] = static_cast<uint16_t>(symbol.value);
        } else if (symbol.value != 0 && coefficients) {
            coefficients[places.places[symbol.index]] = static_cast<int16_t>(symbol.value);
        }
        if (symbol.ends_block) {
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
    status |= part.is_last && block < part.end_block ? kTruncated : 0;
    if (status != 0) {
        atomicOr(image.status, status);
    }
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(64) jpeg_coefficients(const warpfeed::Launch launch) {
    warpfeed::jpeg::coefficients(launch);
}
