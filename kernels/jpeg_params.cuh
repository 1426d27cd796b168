// What the host hands to the kernels of the JPEG decoder: a `JpegImage` an image, for all of them.
// src/backend/cuda/jpeg/params.rs has the same structs; sizes and offsets are asserted on both sides.
//
// Blocks are those of 8 x 8 coefficients, in the order of the scan. A run is what one thread decodes: with restarts the
// data from one to the next, without them a share of the scan. The window are the MCUs that the rectangle needs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace warpfeed {

// A Huffman code.
struct JpegCode {
    uint32_t end[17];   // of each length in bits: one past its last code; 0 if it has none
    int32_t first[17];  // of each length: the index of its first code's symbol, less that code
    uint8_t symbols[256];
};

// Those of an image, for up to three components.
struct JpegTables {
    JpegCode codes[3][2];   // for DC coefficients, for the others
    uint16_t quant[3][64];  // quantization steps, row by row
};

struct JpegComponent {
    uint8_t* samples;       // of the window, row by row
    uint32_t row_samples;   // from one row to the next
    uint32_t columns, rows; // blocks in an MCU
    uint32_t first_block;   // of those, in the MCU
    uint32_t across, down;  // pixels that a sample stands for
    uint32_t x, y;          // of the first sample in the whole
    uint32_t last_x, last_y;  // the last sample of the window that is no padding of the whole
    uint32_t blends_across, blends_down;  // 1 where pixels are made of two samples beside, or above, each other; else 0
};

// The start of a run: a place in the data, the block of the MCU and the coefficient that come there, and the blocks
// before.
struct JpegRun {
    uint32_t bit;
    uint32_t place;  // the block of the MCU << 8 | the coefficient
    uint32_t block;
};

enum class JpegColor : uint32_t { gray, ycc, rgb };

struct JpegImage {
    const uint8_t* data;       // entropy-coded, as in the file
    uint8_t* bytes;            // the same without stuffed zeros and markers; byte i is at i ^ 3, and 12 more are there
    uint32_t* bounds;          // where segments start in `bytes`, and the end: `segments` + 1
    JpegRun* runs;             // without restarts: those of 256 threads
    JpegRun* checks;           // without restarts: states that the threads have noted, 256 for each multiple
    uint16_t* dc;              // of each checked block: the difference of its DC coefficient, then the coefficient
    int16_t* ac;               // of each block of the window: 64 coefficients, row by row
    const JpegTables* tables;
    uint32_t* status;          // why the CPU is to decode the image; 0 if it need not
    uint8_t* pixels;           // the rectangle: interleaved RGB without gaps
    JpegComponent components[3];
    JpegColor color;
    uint32_t data_bytes;
    uint32_t segments;          // that are needed; without restarts one
    uint32_t segment_blocks;    // blocks between restarts; 0 without them
    uint32_t first_restart;     // the number of the first restart marker that is due
    uint32_t mcu_blocks;        // blocks of an MCU
    uint32_t block_components;  // their components, two bits each
    uint32_t mcu_columns;       // MCUs in a row
    uint32_t checked_begin, checked_end;   // the blocks whose codes must be good
    uint32_t column, columns, row, rows;   // the window, in MCUs
    uint32_t x, y, width, height;          // the rectangle, in pixels
};

static_assert(sizeof(JpegCode) == 392 && offsetof(JpegCode, symbols) == 136, "as in params.rs");
static_assert(sizeof(JpegTables) == 2736 && offsetof(JpegTables, quant) == 2352, "as in params.rs");
static_assert(sizeof(JpegComponent) == 56 && offsetof(JpegComponent, last_x) == 40, "as in params.rs");
static_assert(sizeof(JpegRun) == 12 && offsetof(JpegRun, block) == 8, "as in params.rs");
static_assert(sizeof(JpegImage) == 320 && offsetof(JpegImage, components) == 80, "as in params.rs");
static_assert(offsetof(JpegImage, color) == 248 && offsetof(JpegImage, x) == 304, "as in params.rs");

}  // namespace warpfeed
