// fused: a coordinate chain, a separable antialiased resize, the last view, a table of values, normalization, cast and
// layout, in one launch for a batch of images of different sizes.
//
// Inputs: one FusedSample per image (descriptors.cuh). An image is interleaved RGB bytes with a row pitch, a stored
// rectangle of a whole. The host makes the weights once per sample, in doubles. They take a few kilobytes, and the CPU
// uses the same ones.
// Output: elements of the type, NCHW or NHWC. Without a resize the kernel writes a view out; intermediate images are
// made in this way, as u8 NHWC.
// Grid: 256 threads per block, two output pixels per thread, a block for each tile of 32 x 16 output pixels: blockIdx.x
// and .y are the tile's place in the largest output, blockIdx.z is the sample.
// Reference: src/backend/cpu/gather.rs, src/backend/cpu/resample.rs, src/backend/cpu/output.rs; byte for byte.
//
// The view's pixels that a tile needs are gathered into shared memory in pieces of at most 2048 pixels, and added up
// piece by piece, so the number of weights of an output is not limited. Usually one piece holds all of them, with rows
// as long as the tile needs. The first pass' result has 8 bits, like Pillow's. Weights are copied to shared memory if
// they are few, which they usually are: then two at a time are added up, without asking where a piece ends.

#include "store.cuh"

namespace warpfeed {

constexpr int kPiece = 2048;
// Horizontal first: the largest number of rows in a piece, which warps take in pairs. Pieces with kPieceWidth columns
// have half as many.
constexpr int kPieceRows = 32;
constexpr int kPieceWidth = 2 * kPiece / kPieceRows;
// Vertical first: the largest number of columns.
constexpr int kPieceColumns = 32;
// Largest number of weights of an output that are copied.
constexpr int kWeights = 12;
constexpr int kWarps = kThreads / 32;
// The thread's other output pixel is this number of rows further.
constexpr int kOther = kTileHeight / 2;
static_assert(kTileWidth == 32 && kOther == kWarps, "two pixels of a column a thread, a row a warp");
static_assert(kMadePixels <= kPiece, "what is made takes a piece's place");

struct Range {
    int32_t begin, end;

    __device__ int32_t length() const { return end - begin; }
};

struct FusedMemory {
    // After a piece, and after the rows between the passes, is room for pixels whose weights are zeros.
    alignas(16) uint32_t piece[kPiece + kPieceColumns];
    uint32_t between[(kPieceRows + 1) * kTileWidth];
    int32_t column_weights[kWeights * kTileWidth];  // first weights of all outputs, then second weights
    int32_t row_weights[kWeights * kTileHeight];
    Range column_taps[kTileWidth], row_taps[kTileHeight];
    View view;
};

// Weights are added up two at a time.
__device__ inline int pairs(int weights) {
    return (weights + 1) / 2;
}

// The number of weights for each output that are copied; the last ones may be zeros; 0 if there are too many.
__device__ inline int copied(const Axis& axis) {
    return axis.most > kWeights ? 0 : 2 * pairs(larger<int>(axis.most, 1));
}

// Copies the input pixels of `kOutputs` outputs, and their weights. `result` maps a place to its output.
template <int kOutputs, typename Result>
__device__ inline void copy_taps(const Axis& axis, Result result, Range* taps, int32_t* weights) {
    const int place = static_cast<int>(threadIdx.x % kOutputs), count = copied(axis);
    int i = static_cast<int>(threadIdx.x / kOutputs);
    if (i >= larger(count, 1)) {
        return;
    }
    const Taps from = taps_of(axis, result(place));
    if (i == 0) {
        taps[place] = {from.start, from.end};
    }
#pragma unroll 1
    for (; i < count; i += kThreads / kOutputs) {
        const int32_t tap = from.start + i;
        weights[i * kOutputs + place] = tap < from.end ? from.weight(tap) : 0;
    }
}

// The input pixels of all outputs from the first to the last, which may come in either order.
__device__ inline Range reach(Range first, Range last) {
    return {smaller(first.begin, last.begin), larger(first.end, last.end)};
}

struct alignas(16) FourPixels {
    uint32_t of[4];
};

// Gathers groups of four pixels, each from four words that hold them. The image has its rows as they are, and goes on
// after each group (View::words_end). A row's groups are those of 8, 16 or 32 neighboring threads.
__device__ inline void gather_words(const View& view, int32_t column, int groups, Range rows, uint32_t* piece,
                                    int stride) {
    const int bits = groups <= 8 ? 3 : groups <= 16 ? 4 : 5;
    const int row = static_cast<int>(threadIdx.x >> bits), group = static_cast<int>(threadIdx.x & ((1u << bits) - 1));
    if (group >= groups) {
        return;
    }
    const int rows_on = kThreads >> bits;
    int64_t from = view.first + 3 * static_cast<int64_t>(column + 4 * group) +
                   static_cast<int64_t>(rows.begin + row) * view.down;
    const int64_t from_on = static_cast<int64_t>(view.down) * rows_on;
    uint32_t* to = piece + row * stride + 4 * group;
#pragma unroll 1
    for (int i = row; i < rows.length(); i += rows_on) {
        const uint32_t at = static_cast<uint32_t>(from) & 3;
        const uint32_t* const words = global(reinterpret_cast<const uint32_t*>(view.pixels + (from & ~int64_t{3})));
        const uint32_t a = words[0], b = words[1], c = words[2], d = words[3];
        // The twelve bytes of the pixels.
        const uint32_t low = __funnelshift_r(a, b, 8 * at), middle = __funnelshift_r(b, c, 8 * at);
        const uint32_t high = __funnelshift_r(c, d, 8 * at);
        *reinterpret_cast<FourPixels*>(to) = {{low & kColor, __funnelshift_r(low, middle, 24) & kColor,
                                               __funnelshift_r(middle, high, 16) & kColor, high >> 8}};
        from += from_on;
        to += rows_on * stride;
    }
}

// Gathers pixels one by one, found through all steps.
__device__ inline void gather_pixels(const View& view, const StepDescriptor* __restrict__ steps, Range columns,
                                     Range rows, uint32_t* piece, int stride) {
    const uint32_t width = columns.length(), total = width * rows.length();
    const uint32_t rows_on = kThreads / width, columns_on = kThreads % width;
    uint32_t row = threadIdx.x / width, column = threadIdx.x % width;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < total; i += kThreads) {
        const uint32_t pixel = seen(view, steps, columns.begin + static_cast<int32_t>(column),
                                    rows.begin + static_cast<int32_t>(row));
        piece[row * stride + column] = pixel & kColor;
        row += rows_on;
        column += columns_on;
        if (column >= width) {
            column -= width;
            row++;
        }
    }
}

// Gathers the view's pixels in `columns` and `rows` into `piece`, row by row.
__device__ inline void gather(const View& view, const StepDescriptor* steps, Range columns, Range rows, uint32_t* piece,
                              int stride) {
    const int groups = larger(smaller(view.words_end, columns.end) - columns.begin + 3, 0) / 4;
    if (groups > 0) {
        gather_words(view, columns.begin, groups, rows, piece, stride);
    }
    const Range rest = {columns.begin + 4 * groups, columns.end};
    if (rest.begin < rest.end) {
        gather_pixels(view, steps, rest, rows, piece + 4 * groups, stride);
    }
}

// The distance between the rows of a piece.
__device__ inline int stride_of(Range columns) {
    return (columns.length() + 3) & ~3;
}

// Adds pixels to the sums of outputs with the same weights, which were copied. The next weight is `kStride` further,
// the next pixel `step`, and the pixels of the next output `other`.
template <int kStride, int kOutputs>
__device__ inline void add(Sums* sums, const int32_t* weights, int pairs, const uint32_t* pixels, int step, int other) {
#pragma unroll 1
    for (; pairs > 0; pairs--) {
        for (int i = 0; i < 2; i++) {
            for (int output = 0; output < kOutputs; output++) {
                sums[output].add(pixels[i * step + output * other], weights[i * kStride]);
            }
        }
        weights += 2 * kStride;
        pixels += 2 * step;
    }
}

// Does the same with weights that the host has made, and only for taps within `range`. `pixels` is the first pixel of the
// range.
template <int kOutputs>
__device__ inline void add_within(Sums* sums, const Taps& taps, Range range, const uint32_t* pixels, int step,
                                  int other) {
#pragma unroll 1
    for (int32_t tap = larger(taps.start, range.begin); tap < smaller(taps.end, range.end); tap++) {
        const int32_t weight = taps.weight(tap);
        for (int output = 0; output < kOutputs; output++) {
            sums[output].add(pixels[(tap - range.begin) * step + output * other], weight);
        }
    }
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
    if (blockIdx.z >= launch.count) {
        return;
    }
    const FusedSample& sample = static_cast<const FusedSample*>(launch.samples)[blockIdx.z];
    const BatchPlace& output = sample.output;
    const Tile tile = tile_of(output);
    if (tile.is_outside(output)) {
        return;
    }
    __shared__ FusedMemory memory;
    uint32_t* const piece = memory.piece;
    uint32_t* const between = memory.between;
    uint32_t* const made = memory.piece;

    const int x = static_cast<int>(threadIdx.x % kTileWidth), y = static_cast<int>(threadIdx.x / kTileWidth);
    // Threads beyond the tile repeat its last column and row.
    const auto result_x = [&](uint32_t x) {
        return sample.mirror_x * static_cast<int32_t>(tile.x + smaller(x, tile.width - 1)) + sample.x0;
    };
    const auto result_y = [&](uint32_t y) {
        return sample.mirror_y * static_cast<int32_t>(tile.y + smaller(y, tile.height - 1)) + sample.y0;
    };
    const StepDescriptor* const steps = global(sample.steps);

    const bool weighted = sample.columns.weights || sample.rows.weights;
    if (!weighted) {
        const View view = view_of(sample);
        const int32_t view_x = taps_of(sample.columns, result_x(x)).start;
#pragma unroll 1
        for (int row = y; row < kTileHeight; row += kOther) {
            made[row * kMadeStride + x] = seen(view, steps, view_x, taps_of(sample.rows, result_y(row)).start);
        }
    } else {
        copy_taps<kTileWidth>(sample.columns, result_x, memory.column_taps, memory.column_weights);
        copy_taps<kTileHeight>(sample.rows, result_y, memory.row_taps, memory.row_weights);
        if (threadIdx.x == 0) {
            memory.view = view_of(sample);
        }
        __syncthreads();
        const Range columns = reach(memory.column_taps[0], memory.column_taps[kTileWidth - 1]);
        const Range rows = reach(memory.row_taps[0], memory.row_taps[kTileHeight - 1]);
        const auto gather_piece = [&](Range columns, Range rows) {
            const View view = memory.view;
            gather(view, steps, columns, rows, piece, stride_of(columns));
            __syncthreads();
        };
        // Adds the pixels of a column to the sums of the thread's two rows. `pixels` is the first of the piece.
        const auto add_rows = [&](Sums* sums, bool at_once, Range rows, const uint32_t* pixels, int step) {
            for (int i = 0; i < 2; i++) {
                const int place = y + i * kOther;
                if (at_once) {
                    const Range taps = memory.row_taps[place];
                    add<kTileHeight, 1>(sums + i, memory.row_weights + place, pairs(taps.length()),
                                        pixels + (taps.begin - rows.begin) * step, step, 0);
                } else {
                    add_within<1>(sums + i, taps_of(sample.rows, result_y(place)), rows, pixels, step, 0);
                }
            }
        };
        Sums sums[2];
        if (!sample.vertical_first) {
            const int column_pairs = columns.length() <= kPieceWidth ? copied(sample.columns) / 2 : 0;
            const int stride = column_pairs > 0 ? stride_of(columns) : kPieceWidth;
            const int height = stride <= kPiece / kPieceRows ? kPieceRows : kPiece / stride & ~1;
            const bool rows_at_once = rows.length() <= height && copied(sample.rows) > 0;
            for (int32_t row = rows.begin; row < rows.end; row += height) {
                const Range piece_rows = {row, smaller(row + height, rows.end)};
                if (column_pairs > 0) {
                    gather_piece(columns, piece_rows);
                    const int first = memory.column_taps[x].begin - columns.begin;
#pragma unroll 1
                    for (int i = 2 * y; i < piece_rows.length(); i += 2 * kWarps) {
                        Sums both[2];
                        add<kTileWidth, 2>(both, memory.column_weights + x, column_pairs, piece + i * stride + first, 1,
                                           stride);
                        between[i * kTileWidth + x] = both[0].pixel();
                        between[(i + 1) * kTileWidth + x] = both[1].pixel();
                    }
                } else {
                    // Each warp has two rows of the piece.
                    Sums both[2];
                    for (int32_t column = columns.begin; column < columns.end; column += kPieceWidth) {
                        const Range piece_columns = {column, smaller(column + kPieceWidth, columns.end)};
                        const int width = stride_of(piece_columns);
                        gather_piece(piece_columns, piece_rows);
                        add_within<2>(both, taps_of(sample.columns, result_x(x)), piece_columns,
                                      piece + 2 * y * width, 1, width);
                        __syncthreads();
                    }
                    between[2 * y * kTileWidth + x] = both[0].pixel();
                    between[(2 * y + 1) * kTileWidth + x] = both[1].pixel();
                }
                __syncthreads();
                add_rows(sums, rows_at_once, piece_rows, between + x, kTileWidth);
            }
        } else {
            constexpr int kHeight = kPiece / kPieceColumns;
            const bool rows_at_once = rows.length() <= kHeight && copied(sample.rows) > 0;
            for (int32_t column = columns.begin; column < columns.end; column += kPieceColumns) {
                const Range piece_columns = {column, smaller(column + kPieceColumns, columns.end)};
                Sums first[2];
                for (int32_t row = rows.begin; row < rows.end; row += kHeight) {
                    const Range piece_rows = {row, smaller(row + kHeight, rows.end)};
                    gather_piece(piece_columns, piece_rows);
                    // Threads beyond the piece read whatever is there.
                    add_rows(first, rows_at_once, piece_rows, piece + x, stride_of(piece_columns));
                    __syncthreads();
                }
                between[y * kPieceColumns + x] = first[0].pixel();
                between[(y + kOther) * kPieceColumns + x] = first[1].pixel();
                __syncthreads();
                add_within<2>(sums, taps_of(sample.columns, result_x(x)), piece_columns, between + y * kPieceColumns, 1,
                              kOther * kPieceColumns);
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

// Blocks that run side by side on a multiprocessor, at least. Those of Turing have 1,024 threads, and bytes take more
// registers.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define WARPFEED_FUSED_BLOCKS 5
#else
#define WARPFEED_FUSED_BLOCKS 4
#endif

extern "C" __global__ void __launch_bounds__(256, 4) fused_u8_nchw(const Launch launch) {
    warpfeed::fused<warpfeed::Bits8, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) fused_u8_nhwc(const Launch launch) {
    warpfeed::fused<warpfeed::Bits8, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256, WARPFEED_FUSED_BLOCKS) fused_f16_nchw(const Launch launch) {
    warpfeed::fused<warpfeed::Bits16, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256, WARPFEED_FUSED_BLOCKS) fused_f16_nhwc(const Launch launch) {
    warpfeed::fused<warpfeed::Bits16, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256, WARPFEED_FUSED_BLOCKS) fused_bf16_nchw(const Launch launch) {
    warpfeed::fused<warpfeed::Bits16, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256, WARPFEED_FUSED_BLOCKS) fused_bf16_nhwc(const Launch launch) {
    warpfeed::fused<warpfeed::Bits16, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256, WARPFEED_FUSED_BLOCKS) fused_f32_nchw(const Launch launch) {
    warpfeed::fused<warpfeed::Bits32, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256, WARPFEED_FUSED_BLOCKS) fused_f32_nhwc(const Launch launch) {
    warpfeed::fused<warpfeed::Bits32, Layout::nhwc>(launch);
}
