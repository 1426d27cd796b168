// fused: a coordinate chain, a separable antialiased resize, the last view, normalisation, cast and layout, in one
// launch for a batch of unequal images.
//
// Inputs: FusedSample an image (params.cuh). Interleaved RGB bytes with a row pitch, a stored rectangle of a whole;
// weights made by the host, in doubles, once a sample: a few kilobytes, and equal to the CPU's by being the same.
// Output: elements of the type, NCHW or NHWC. Without a resize it writes a view out; as u8 NHWC that is also how
// intermediate images are made.
// Grid: 256 threads a block; blockIdx.x is the tile of 32 x 16 output pixels, as many as the largest sample has,
// blockIdx.y the sample. Two output pixels a thread.
// Reference: src/backend/cpu/gather.rs, src/backend/cpu/resample.rs, src/backend/cpu/output.rs; byte for byte.
//
// What a tile needs of the view is gathered into shared memory in pieces of at most 2048 pixels and summed up as it
// comes, so the number of weights an output has is not limited. The first pass' result has 8 bits, as Pillow's.

#include "store.cuh"

namespace warpfeed {

constexpr int kPiece = 2048;
// Horizontal first: pieces of 16 rows of the view. Vertical first: of 32 columns.
constexpr int kPieceRows = 16;
constexpr int kPieceWidth = kPiece / kPieceRows;
constexpr int kPieceColumns = 32;
constexpr int kPieceHeight = kPiece / kPieceColumns;
static_assert(kTileWidth == 32 && kTileHeight == 16 && kThreads == 256, "two pixels of a column a thread");

struct Range {
    int32_t begin, end;
};

// The input pixels that the outputs `a` to `b`, in either order, are made of.
__device__ inline Range reach(const Axis& axis, int32_t a, int32_t b) {
    return {taps_of(axis, smaller(a, b)).start, taps_of(axis, larger(a, b)).end};
}

// Gathers the view's pixels of `columns` and `rows` into `piece`, `kStride` pixels a row.
template <int kStride>
__device__ inline void gather(const FusedSample& sample, Range columns, Range rows, uint32_t* piece) {
    const int across = columns.end - columns.begin, down = rows.end - rows.begin;
    const int column = static_cast<int>(threadIdx.x) % kStride;
    if (column >= across) {
        return;
    }
#pragma unroll 1
    for (int row = static_cast<int>(threadIdx.x) / kStride; row < down; row += kThreads / kStride) {
        piece[row * kStride + column] = seen(sample, columns.begin + column, rows.begin + row);
    }
}

// Adds to both sums the pixels of `taps` within `range`: `pixels` is that of the range's beginning, the second sum's
// are `other` further.
template <int kStep>
__device__ inline void add_both(Sums (&sums)[2], const Taps& taps, Range range, const uint32_t* pixels, int other) {
    const int32_t end = smaller(taps.end, range.end);
    for (int32_t tap = larger(taps.start, range.begin); tap < end; tap++) {
        const int32_t weight = taps.weight(tap);
        const uint32_t* pixel = pixels + (tap - range.begin) * kStep;
        sums[0].add(pixel[0], weight);
        sums[1].add(pixel[other], weight);
    }
}

template <int kStep>
__device__ inline void add(Sums& sums, const Taps& taps, Range range, const uint32_t* pixels) {
    const int32_t end = smaller(taps.end, range.end);
    for (int32_t tap = larger(taps.start, range.begin); tap < end; tap++) {
        sums.add(pixels[(tap - range.begin) * kStep], taps.weight(tap));
    }
}

template <typename T, Layout kLayout>
__device__ inline void fused(const Launch& launch) {
    if (blockIdx.y >= launch.count) {
        return;
    }
    const FusedSample& sample = static_cast<const FusedSample*>(launch.samples)[blockIdx.y];
    const Output& output = sample.output;
    if (blockIdx.x >= tiles(output)) {
        return;
    }
    __shared__ uint32_t piece[kPiece];
    __shared__ uint32_t between[kTilePixels];
    __shared__ uint32_t made[kTilePixels];

    const Tile tile = tile_of(output, blockIdx.x);
    const int x = static_cast<int>(threadIdx.x) % kTileWidth, y = static_cast<int>(threadIdx.x) / kTileWidth;
    // The other output pixel of this thread is so many rows further.
    constexpr int kOther = kTileHeight / 2;
    // Threads beyond the tile do its last column and row again.
    const auto result_x = [&](uint32_t x) {
        return sample.mirror_x * static_cast<int32_t>(tile.x + smaller(x, tile.width - 1)) + sample.x0;
    };
    const auto result_y = [&](uint32_t y) {
        return sample.mirror_y * static_cast<int32_t>(tile.y + smaller(y, tile.height - 1)) + sample.y0;
    };

    const bool weighted = sample.columns.weights || sample.rows.weights;
    if (!weighted) {
        const int32_t view_x = taps_of(sample.columns, result_x(x)).start;
#pragma unroll 1
        for (int row = y; row < kTileHeight; row += kOther) {
            made[row * kTileWidth + x] = seen(sample, view_x, taps_of(sample.rows, result_y(row)).start);
        }
    } else {
        const Taps across = taps_of(sample.columns, result_x(x));
        // Fetched where they are used: kept, they would take registers that there are not.
        const auto down = [&](uint32_t y) { return taps_of(sample.rows, result_y(y)); };
        const Range columns = reach(sample.columns, result_x(0), result_x(kTileWidth - 1));
        const Range rows = reach(sample.rows, result_y(0), result_y(kTileHeight - 1));
        Sums sums[2];
        if (!sample.vertical_first) {
            for (int32_t row = rows.begin; row < rows.end; row += kPieceRows) {
                const Range piece_rows = {row, smaller(row + kPieceRows, rows.end)};
                Sums first[2];
                for (int32_t column = columns.begin; column < columns.end; column += kPieceWidth) {
                    const Range piece_columns = {column, smaller(column + kPieceWidth, columns.end)};
                    __syncthreads();
                    gather<kPieceWidth>(sample, piece_columns, piece_rows, piece);
                    __syncthreads();
                    add_both<1>(first, across, piece_columns, piece + y * kPieceWidth, kOther * kPieceWidth);
                }
                between[y * kTileWidth + x] = first[0].pixel();
                between[(y + kOther) * kTileWidth + x] = first[1].pixel();
                __syncthreads();
                add<kTileWidth>(sums[0], down(y), piece_rows, between + x);
                add<kTileWidth>(sums[1], down(y + kOther), piece_rows, between + x);
            }
        } else {
            for (int32_t column = columns.begin; column < columns.end; column += kPieceColumns) {
                const Range piece_columns = {column, smaller(column + kPieceColumns, columns.end)};
                Sums first[2];
                for (int32_t row = rows.begin; row < rows.end; row += kPieceHeight) {
                    const Range piece_rows = {row, smaller(row + kPieceHeight, rows.end)};
                    __syncthreads();
                    gather<kPieceColumns>(sample, piece_columns, piece_rows, piece);
                    __syncthreads();
                    add<kPieceColumns>(first[0], down(y), piece_rows, piece + x);
                    add<kPieceColumns>(first[1], down(y + kOther), piece_rows, piece + x);
                }
                between[y * kPieceColumns + x] = first[0].pixel();
                between[(y + kOther) * kPieceColumns + x] = first[1].pixel();
                __syncthreads();
                add_both<1>(sums, across, piece_columns, between + y * kPieceColumns, kOther * kPieceColumns);
            }
        }
        made[y * kTileWidth + x] = sums[0].pixel();
        made[(y + kOther) * kTileWidth + x] = sums[1].pixel();
    }
    __syncthreads();
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
