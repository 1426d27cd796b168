// Parameters of the JPEG decoder's kernels: one `JpegImage` per image, for all kernels. src/backend/cuda/jpeg/params.rs
// has the same structs; both sides assert sizes and offsets.
//
// Blocks have 8 x 8 coefficients and come in the order of the scan. A segment is the data from one restart to the next;
// without restarts there is one. A run is the part that one thread decodes, of about as many bits in all images. The
// window is the MCUs that the rectangle needs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace warpfeed {

// A Huffman code.
struct JpegCode {
    uint32_t end[17];   // for each length in bits: one past its last code; 0 if there is no code of this length
    int32_t first[17];  // for each length: the index of its first code's symbol, less that code
    uint8_t symbols[256];
};

// The codes and quantization steps of an image, for up to three components.
struct JpegTables {
    JpegCode codes[3][2];   // for DC coefficients, for AC coefficients
    uint16_t quant[3][64];  // quantization steps, row by row
};

struct JpegComponent {
    uint8_t* samples;       // of the window, row by row
    uint32_t row_samples;   // distance from one row to the next
    uint32_t columns, rows; // blocks in an MCU
    uint32_t first_block;   // the component's first block in the MCU
    uint32_t across, down;  // pixels that a sample covers
    uint32_t x, y;          // place of the first sample in the whole plane
    uint32_t last_x, last_y;  // the last sample of the window that is not padding
    uint32_t blends_across, blends_down;  // 1 if pixels are blends of two neighboring samples, else 0
};

// Look-up tables for Huffman codes, which jpeg_codes makes. An entry has the number of bits of a code and its value, the
// coefficients that it moves on by, and the bits of the value: in 5, 7 and 4 bits from the lowest on.
struct alignas(16) JpegLookUp {
    uint16_t look[6][1024];  // by component and whether it is an AC code, for the next 10 bits; 0 for longer codes
    uint16_t more[3][1024];  // longer AC codes, for the next 16 bits less `more_from`
    uint32_t more_from[4];   // 65536 if `more` has no room for them
};

// Steps from code to code for jpeg_sync, which jpeg_codes makes; jpeg_steps.cuh says what they are.
struct alignas(16) JpegSteps {
    uint16_t of[3][3][1024];  // by component, kind and the next 10 bits; 0 for longer codes
    uint16_t more[3][1024];   // longer AC codes, as in `JpegLookUp`
    uint32_t more_from[4];
};

// The start of a run: a place in the data, the block of the MCU and the coefficient at this place, and the number of
// blocks before it.
struct JpegRun {
    uint32_t bit;
    uint32_t place;  // the block of the MCU << 8 | the coefficient
    uint32_t block;  // see `kAbsolute` in jpeg.cuh
};

// MCUs of a row whose places in the data are known, for one thread. Bits count from the start of `data`, stuffing and markers
// included.
struct alignas(16) JpegStretch {
    uint32_t bit, end_bit;
    uint32_t mcu;   // the number of the first MCU, from the first checked one on
    uint32_t mcus;  // number of MCUs; see `kPadded` in jpeg_coefficients.cu
};

// MCUs from an entry point on. DC coefficients of three components, 16 bits each from the lowest on.
struct JpegSums {
    uint64_t dc;      // before the first MCU
    uint64_t end_dc;  // after the last MCU; all ones if it is not known
    uint32_t mcu, mcus;
};

enum class JpegColor : uint32_t { gray, ycc, rgb };

struct JpegImage {
    const uint8_t* data;       // entropy-coded, as in the file
    uint8_t* bytes;            // without stuffed zeros and markers; byte i is at i ^ 3; 32 more bytes follow
    uint32_t* bounds;          // starts of segments in `bytes`, and the end: `segments` + 1 numbers
    uint64_t* tiles;           // for each 4096 bytes of `data`: what jpeg_count found
    JpegLookUp* look_up;
    JpegSteps* steps;          // if places are not known
    JpegRun* runs;             // one for each `kRunBits` bits
    JpegRun* ends;             // the states at the ends of jpeg_sync's blocks, then those at the second launch
    uint16_t* dc;              // for each checked block: the difference of its DC coefficient, later the coefficient
    int16_t* ac;               // for each block of the window: 64 coefficients, in zigzag order
    const JpegTables* tables;
    uint32_t* status;          // the reason why the CPU must decode the image; 0 if there is none
    uint8_t* pixels;           // the rectangle: interleaved RGB without gaps
    JpegComponent components[3];
    JpegColor color;
    uint32_t data_bytes;
    uint32_t segments;          // number of needed segments; 1 without restarts
    uint32_t segment_blocks;    // blocks between restarts; 0 without them
    uint32_t first_restart;     // number of the first restart marker that is due
    uint32_t mcu_blocks;        // number of blocks of an MCU
    uint32_t block_components;  // their components, two bits each
    uint32_t mcu_columns;       // number of MCUs in a row
    uint32_t checked_begin, checked_end;   // the blocks whose codes must be good
    uint32_t column, columns, row, rows;   // the window, in MCUs
    uint32_t x, y, width, height;          // the rectangle, in pixels
    uint32_t* kept;                   // for each 16 bytes of `data`: number of kept bytes before
    uint32_t* mcus;                   // if places are learned: the bit of each checked MCU, and of the end; else null
    uint64_t* point_dc;               // for each entry point that is learned: DC coefficients as in `JpegSums`
    const JpegStretch* stretches;     // if places are known: the stretches and sums of the window
    const JpegSums* sums;
    uint32_t stretch_count, sum_count;
    uint32_t point_step;              // MCUs from one entry point to the next, the first of each row being one
    uint32_t reserved;
};

static_assert(sizeof(JpegCode) == 392 && offsetof(JpegCode, symbols) == 136, "as in descriptors.rs");
static_assert(sizeof(JpegTables) == 2736 && offsetof(JpegTables, quant) == 2352, "as in descriptors.rs");
static_assert(sizeof(JpegLookUp) == 18448 && offsetof(JpegLookUp, more_from) == 18432, "as in descriptors.rs");
static_assert(sizeof(JpegSteps) == 24592 && offsetof(JpegSteps, more_from) == 24576, "as in descriptors.rs");
static_assert(sizeof(JpegComponent) == 56 && offsetof(JpegComponent, last_x) == 40, "as in descriptors.rs");
static_assert(sizeof(JpegRun) == 12 && offsetof(JpegRun, block) == 8, "as in descriptors.rs");
static_assert(sizeof(JpegStretch) == 16 && sizeof(JpegSums) == 24, "as in descriptors.rs");
static_assert(sizeof(JpegImage) == 400 && offsetof(JpegImage, components) == 104, "as in descriptors.rs");
static_assert(offsetof(JpegImage, color) == 272 && offsetof(JpegImage, x) == 328, "as in descriptors.rs");
static_assert(offsetof(JpegImage, kept) == 344 && offsetof(JpegImage, point_step) == 392, "as in descriptors.rs");
static_assert(offsetof(JpegImage, mcu_blocks) == 292, "as in cuda-sim's tests");

}  // namespace warpfeed
