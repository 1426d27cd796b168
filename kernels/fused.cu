// fused: a coordinate chain, a separable antialiased resize, the last view, a table of values, normalization, cast and
// layout, in one launch for a batch of images of different sizes.
//
// Inputs: one FusedSample per image (descriptors.cuh). An image is interleaved RGB bytes with a row pitch, a stored
// rectangle of a whole. The host makes the weights once per sample, in doubles. They take a few kilobytes, and the CPU
// uses the same ones.
// Output: elements of the type, NCHW or NHWC. Without a resize the kernel writes a view out; intermediate images are
// made in this way, as u8 NHWC.
// Grid: 256 threads per block, two output pixels per thread. blockIdx.x is the tile of 32 x 16 output pixels, with as
// many tiles as the largest sample has; blockIdx.y is the sample.
// Reference: src/backend/cpu/gather.rs, src/backend/cpu/resample.rs, src/backend/cpu/output.rs; byte for byte.
//
// The view's pixels that a tile needs are gathered into shared memory in pieces of at most 2048 pixels, and added up
// piece by piece, so the number of weights of an output is not limited. Usually one piece holds all of them, with rows
// as long as the tile needs. The first pass' result has 8 bits, like Pillow's. Weights and steps are copied to shared
// memory as far as there is room, which is enough for common ones.

#include "store.cuh"

namespace warpfeed {

constexpr int kPiece = 2048;
// Horizontal first: the largest number of rows in a piece, which warps take in pairs. Pieces with kPieceWidth columns
// have half as many.
constexpr int kPieceRows = 32;
constexpr int kPieceWidth = 2 * kPiece / kPieceRows;
// Vertical first: the largest number of columns.
constexpr int kPieceColumns = 32;
// Largest numbers of weights of an output, and of steps, that are copied.
constexpr int kWeights = 12;
constexpr int kSteps = 8;
constexpr int kWarps = kThreads / 32;
static_assert(kTileWidth == 32 && kTileHeight == 2 * kWarps, "two pixels of a column a thread, a row a warp");
static_assert(kMadePixels <= kPiece, "what is made takes a piece's place");

struct FusedMemory {
    uint32_t piece[kPiece];
    uint32_t between[kPieceRows * kTileWidth];
    int32_t column_weights[kWeights * kTileWidth];  // first weights of all outputs, then second weights
    int32_t row_weights[kWeights * kTileHeight];
    StepDescriptor steps[kSteps];
    View view;
};

struct Range {
    int32_t begin, end;

    __device__ int32_t length() const { return end - begin; }
};

// The input pixels of the outputs from `a` to `b`, which may come in either order.
__device__ inline Range reach(const Axis& axis, int32_t a, int32_t b) {
    return {taps_of(axis, smaller(a, b)).start, taps_of(axis, larger(a, b)).end};
}

// The weights of one output: in shared memory with distance `kStride`, or where the host put them.
template <int kStride>
struct Weights {
    Taps taps;
    const int32_t* copied;  // null if there are too many
};

// Copies the weights of `kOutputs` outputs if there is room, and returns whether it did. `result` maps a place to its
// output.
template <int kOutputs, typename Result>
__device__ inline bool copy_weights(const Axis& axis, Result result, int32_t* to) {
    if (axis.most > kWeights) {
        return false;
    }
    const int output = static_cast<int>(threadIdx.x) % kOutputs;
    const Taps taps = taps_of(axis, result(output));
    for (int i = static_cast<int>(threadIdx.x) / kOutputs; i < taps.end - taps.start; i += kThreads / kOutputs) {
        to[i * kOutputs + output] = taps.weight(taps.start + i);
    }
    return true;
}

// Gathers the view's pixels in `columns` and `rows` into `piece`, row by row.
__device__ inline void gather(const View& view, const StepDescriptor* steps, Range columns, Range rows, uint32_t* piece) {
    const uint32_t width = columns.length(), total = width * rows.length();
    const uint32_t rows_on = kThreads / width, columns_on = kThreads % width;
    uint32_t row = threadIdx.x / width, column = threadIdx.x % width;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < total; i += kThreads) {
        piece[i] = seen(view, steps, columns.begin + static_cast<int32_t>(column),
                        rows.begin + static_cast<int32_t>(row));
        row += rows_on;
        column += columns_on;
        if (column >= width) {
            column -= width;
            row++;
        }
    }
}

// Calls `add(i, weight)` for each tap within `range`, where `i` is its place in the range.
template <int kStride, typename Add>
__device__ inline void each_tap(const Weights<kStride>& weights, Range range, Add add) {
    const Taps& taps = weights.taps;
    const int32_t begin = larger(taps.start, range.begin), end = smaller(taps.end, range.end);
    if (weights.copied) {
#pragma unroll 4
        for (int32_t tap = begin; tap < end; tap++) {
            add(tap - range.begin, weights.copied[(tap - taps.start) * kStride]);
        }
    } else {
#pragma unroll 1
        for (int32_t tap = begin; tap < end; tap++) {
            add(tap - range.begin, taps.weight(tap));
        }
    }
}

// Adds the pixels of the taps within `range`. `pixels` is the first pixel of the range; the next pixel is `step`
// further.
template <int kStride>
__device__ inline void add(Sums& sums, const Weights<kStride>& weights, Range range, const uint32_t* pixels, int step) {
    each_tap(weights, range, [&](int32_t i, int32_t weight) { sums.add(pixels[i * step], weight); });
}

// Does the same for two rows, the second `other` pixels further.
template <int kStride>
__device__ inline void add_both(Sums (&sums)[2], const Weights<kStride>& weights, Range range, const uint32_t* pixels,
                                int other) {
    each_tap(weights, range, [&](int32_t i, int32_t weight) {
        sums[0].add(pixels[i], weight);
        sums[1].add(pixels[i + other], weight);
    });
}

// Replaces the bytes of a made tile by their values in a table. Fills have already gone through it.
__device__ inline void apply_table(const uint8_t* __restrict__ table, uint32_t* made) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kMadePixels; i += kThreads) {
        const uint32_t pixel = made[i];
        if (!(pixel & kIsFill)) {
            made[i] = pack(table[channel(pixel, 0)], table[channel(pixel, 1)], table[channel(pixel, 2)]);
        }
    }
}

template <typename T, Layout kLayout>
__device__ inline void fused(const Launch& launch) {
    if (blockIdx.y >= launch.count) {
        return;
    }
    const FusedSample& sample = static_cast<const FusedSample*>(launch.samples)[blockIdx.y];
    const BatchPlace& output = sample.output;
    if (blockIdx.x >= tiles(output)) {
        return;
    }
    __shared__ FusedMemory memory;
    uint32_t* const piece = memory.piece;
    uint32_t* const between = memory.between;
    uint32_t* const made = memory.piece;

    const Tile tile = tile_of(output, blockIdx.x);
    const int x = static_cast<int>(threadIdx.x) % kTileWidth, y = static_cast<int>(threadIdx.x) / kTileWidth;
    // The thread's other output pixel is this number of rows further.
    constexpr int kOther = kTileHeight / 2;
    // Threads beyond the tile repeat its last column and row.
    const auto result_x = [&](uint32_t x) {
        return sample.mirror_x * static_cast<int32_t>(tile.x + smaller(x, tile.width - 1)) + sample.x0;
    };
    const auto result_y = [&](uint32_t y) {
        return sample.mirror_y * static_cast<int32_t>(tile.y + smaller(y, tile.height - 1)) + sample.y0;
    };

    const bool weighted = sample.columns.weights || sample.rows.weights;
    if (!weighted) {
        const View view = view_of(sample);
        const int32_t view_x = taps_of(sample.columns, result_x(x)).start;
#pragma unroll 1
        for (int row = y; row < kTileHeight; row += kOther) {
            made[row * kMadeStride + x] = seen(view, global(sample.steps), view_x, taps_of(sample.rows, result_y(row)).start);
        }
    } else {
        const bool columns_copied = copy_weights<kTileWidth>(sample.columns, result_x, memory.column_weights);
        const bool rows_copied = copy_weights<kTileHeight>(sample.rows, result_y, memory.row_weights);
        const bool steps_copied = sample.step_count <= kSteps;
        if (steps_copied && threadIdx.x < sample.step_count) {
            memory.steps[threadIdx.x] = global(sample.steps)[threadIdx.x];
        }
        if (threadIdx.x == 0) {
            memory.view = view_of(sample);
        }
        const auto gather_piece = [&](Range columns, Range rows) {
            __syncthreads();
            const View view = memory.view;
            if (steps_copied) {
                gather(view, memory.steps, columns, rows, piece);
            } else {
                gather(view, global(sample.steps), columns, rows, piece);
            }
            __syncthreads();
        };
        // Fetched where they are used, because there are not enough registers to keep them.
        const auto across = [&] {
            return Weights<kTileWidth>{taps_of(sample.columns, result_x(x)),
                                       columns_copied ? memory.column_weights + x : nullptr};
        };
        const auto down = [&](uint32_t y) {
            return Weights<kTileHeight>{taps_of(sample.rows, result_y(y)),
                                        rows_copied ? memory.row_weights + y : nullptr};
        };
        const Range columns = reach(sample.columns, result_x(0), result_x(kTileWidth - 1));
        const Range rows = reach(sample.rows, result_y(0), result_y(kTileHeight - 1));
        Sums sums[2];
        if (!sample.vertical_first) {
            const bool whole = columns.length() <= kPieceWidth;
            const int height = smaller(kPiece / smaller(columns.length(), kPieceWidth), kPieceRows) & ~1;
            for (int32_t row = rows.begin; row < rows.end; row += height) {
                const Range piece_rows = {row, smaller(row + height, rows.end)};
                Sums first[2];
                for (int32_t column = columns.begin; column < columns.end; column += kPieceWidth) {
                    const Range piece_columns = {column, smaller(column + kPieceWidth, columns.end)};
                    const int width = piece_columns.length();
                    gather_piece(piece_columns, piece_rows);
                    const Weights<kTileWidth> weights = across();
#pragma unroll 1
                    for (int pair = y; 2 * pair < piece_rows.length(); pair += kWarps) {
                        if (whole) {
                            first[0] = first[1] = Sums();
                        }
                        add_both(first, weights, piece_columns, piece + 2 * pair * width, width);
                        between[2 * pair * kTileWidth + x] = first[0].pixel();
                        between[(2 * pair + 1) * kTileWidth + x] = first[1].pixel();
                    }
                }
                __syncthreads();
                add(sums[0], down(y), piece_rows, between + x, kTileWidth);
                add(sums[1], down(y + kOther), piece_rows, between + x, kTileWidth);
            }
        } else {
            constexpr int kHeight = kPiece / kPieceColumns;
            for (int32_t column = columns.begin; column < columns.end; column += kPieceColumns) {
                const Range piece_columns = {column, smaller(column + kPieceColumns, columns.end)};
                const int width = piece_columns.length();
                Sums first[2];
                for (int32_t row = rows.begin; row < rows.end; row += kHeight) {
                    const Range piece_rows = {row, smaller(row + kHeight, rows.end)};
                    gather_piece(piece_columns, piece_rows);
                    // Threads beyond the piece read whatever is there.
                    add(first[0], down(y), piece_rows, piece + x, width);
                    add(first[1], down(y + kOther), piece_rows, piece + x, width);
                }
                between[y * kPieceColumns + x] = first[0].pixel();
                between[(y + kOther) * kPieceColumns + x] = first[1].pixel();
                __syncthreads();
                add_both(sums, across(), piece_columns, between + y * kPieceColumns, kOther * kPieceColumns);
            }
        }
        made[y * kMadeStride + x] = sums[0].pixel();
        made[(y + kOther) * kMadeStride + x] = sums[1].pixel();
    }
    __syncthreads();
    if (sample.table) {
        apply_table(global(sample.table), made);
        __syncthreads();
    }
    store_tile<T, kLayout>(output, launch.table, tile, made);
}

}  // namespace warpfeed

using warpfeed::Launch;
using warpfeed::Layout;

extern "C" __global__ void __launch_bounds__(256, 4) fused_u8_nchw(const Launch launch) {
    warpfeed::fused<warpfeed::Bits8, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) fused_u8_nhwc(const Launch launch) {
    warpfeed::fused<warpfeed::Bits8, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) fused_f16_nchw(const Launch launch) {
    warpfeed::fused<warpfeed::Bits16, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) fused_f16_nhwc(const Launch launch) {
    warpfeed::fused<warpfeed::Bits16, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) fused_bf16_nchw(const Launch launch) {
    warpfeed::fused<warpfeed::Bits16, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) fused_bf16_nhwc(const Launch launch) {
    warpfeed::fused<warpfeed::Bits16, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) fused_f32_nchw(const Launch launch) {
    warpfeed::fused<warpfeed::Bits32, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) fused_f32_nhwc(const Launch launch) {
    warpfeed::fused<warpfeed::Bits32, Layout::nhwc>(launch);
}
