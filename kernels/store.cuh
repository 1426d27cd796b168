// The last step: writes a tile of 8-bit pixels from shared memory to a sample's place in the batch, normalized and cast
// by a table, in the batch's layout. Each store has 16 bytes if alignment allows. Reference: src/backend/cpu/output.rs.
#pragma once

#include "pixel.cuh"

namespace warpfeed {

constexpr int kThreads = 256;
constexpr int kTileWidth = 32;
constexpr int kTileHeight = 16;
constexpr int kTilePixels = kTileWidth * kTileHeight;
// Row stride of a made tile in shared memory, in words. It is padded by one word, so that a warp that reads several
// rows has no bank conflicts.
constexpr int kMadeStride = kTileWidth + 1;
constexpr int kMadePixels = kMadeStride * kTileHeight;

enum class Layout { nchw, nhwc };

// The bits of an element: 32 for f32, 16 for f16 and bf16, 8 for u8.
using Bits32 = uint32_t;
using Bits16 = uint16_t;
using Bits8 = uint8_t;

// A tile of an output: the block's, whose place in the grid is its place in the output.
struct Tile {
    uint32_t x, y, width, height;

    __host__ __device__ bool is_outside(const BatchPlace& output) const {
        return x >= output.width || y >= output.height;
    }
};

__device__ inline Tile tile_of(const BatchPlace& output) {
    const uint32_t x = blockIdx.x * kTileWidth, y = blockIdx.y * kTileHeight;
    return {x, y, smaller<uint32_t>(kTileWidth, output.width - x), smaller<uint32_t>(kTileHeight, output.height - y)};
}

// The element for a byte of a channel, whose elements begin at `table`.
template <typename T>
__host__ __device__ inline T element(const T* __restrict__ table, uint32_t byte) {
    // Bytes stay as they are.
    if constexpr (sizeof(T) == 1) {
        return static_cast<T>(byte);
    } else {
        return table[byte];
    }
}

// Elements that are stored at once.
template <typename T>
struct alignas(4 * sizeof(T)) Group {
    static constexpr int kLength = 4;
    T elements[kLength];
};

// Stores a group in one access, which the compiler might split otherwise.
template <typename T>
__host__ __device__ inline void store(T* to, const Group<T>& group) {
#ifdef __CUDA_ARCH__
    uint32_t words[sizeof(T)];
    memcpy(words, &group, sizeof(words));
    if constexpr (sizeof(T) == 4) {
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(words[0]),
                     "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
    } else if constexpr (sizeof(T) == 2) {
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(words[0]),
                     "r"(words[1])
                     : "memory");
    } else {
        asm volatile("st.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "r"(words[0]) : "memory");
    }
#else
    *reinterpret_cast<Group<T>*>(to) = group;
#endif
}

// Stores the first `count` elements of a group, if it has as many.
template <typename T>
__host__ __device__ inline void store_first(T* to, const Group<T>& group, int count) {
    if (count >= Group<T>::kLength && reinterpret_cast<uintptr_t>(to) % sizeof(group) == 0) {
        store(to, group);
    } else {
        for (int i = 0; i < Group<T>::kLength; i++) {
            if (i < count) {
                to[i] = group.elements[i];
            }
        }
    }
}

// The place of a pixel's first element.
template <typename T, Layout kLayout>
__host__ __device__ inline T* place_in(const BatchPlace& output, uint32_t x, uint32_t y) {
    const uint32_t column = kLayout == Layout::nchw ? x : 3 * x;
    return global(static_cast<T*>(output.elements)) + static_cast<size_t>(y) * output.row_stride + column;
}

// Overwrites the pixels of a tile that are erased by the value of the last erasure of each.
template <typename T, Layout kLayout>
__device__ inline void erase_tile(const BatchPlace& output, const Tile& tile, int planes) {
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < kTilePixels; i += kThreads) {
        const uint32_t column = i % kTileWidth, row = i / kTileWidth, x = tile.x + column, y = tile.y + row;
        if (column >= tile.width || row >= tile.height) {
            continue;
        }
#pragma unroll 1
        for (uint32_t last = output.erasure_count; last > 0; last--) {
            const Erasure& erasure = global(output.erasures)[last - 1];
            if (x >= erasure.left && x < erasure.right && y >= erasure.top && y < erasure.bottom) {
                T* const to = place_in<T, kLayout>(output, x, y);
                for (int c = 0; c < planes; c++) {
                    to[kLayout == Layout::nchw ? c * output.plane_stride : c] = static_cast<T>(erasure.value[c]);
                }
                break;
            }
        }
    }
}

// Writes a tile, `pixels[y * kMadeStride + x]`, with all threads of the block. In NCHW a thread writes four pixels, in
// all planes; without a plane stride the first channel alone. In NHWC it writes the four elements after those of the
// thread before it, so that what a warp stores is contiguous.
template <typename T, Layout kLayout>
__device__ inline void store_tile(const BatchPlace& output, const void* launch_table, const Tile& tile,
                                  const uint32_t* pixels) {
    constexpr int kLength = Group<T>::kLength;
    const T* __restrict__ table = static_cast<const T*>(launch_table);
    [[maybe_unused]] const int planes = kLayout == Layout::nhwc || output.plane_stride > 0 ? 3 : 1;
    if constexpr (kLayout == Layout::nchw) {
        constexpr int kGroups = kTileWidth / kLength;
        const int first = static_cast<int>(threadIdx.x % kGroups * kLength);
        const int row = static_cast<int>(threadIdx.x / kGroups);
        const int count = static_cast<int>(tile.width) - first;
        if (row < static_cast<int>(tile.height) && count > 0) {
            T* to = place_in<T, kLayout>(output, tile.x + first, tile.y + row);
            uint32_t made[kLength];
            for (int i = 0; i < kLength; i++) {
                made[i] = pixels[row * kMadeStride + first + i];
            }
#pragma unroll 1
            for (int plane = 0; plane < planes; plane++) {
                Group<T> group;
                for (int i = 0; i < kLength; i++) {
                    group.elements[i] = element<T>(table, made[i] & 0xff);
                    made[i] >>= 8;
                }
                store_first(to, group, count);
                to += output.plane_stride;
                table += 256;
            }
        }
    } else {
        constexpr int kGroups = 3 * kTileWidth / kLength;
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < kTileHeight * kGroups; i += kThreads) {
            const uint32_t row = i / kGroups, column = i % kGroups, channel = column % 3, first = column + column / 3;
            const int count = static_cast<int>(3 * tile.width - column * kLength);
            if (row >= tile.height || count <= 0) {
                continue;
            }
            // The group begins with this channel of the first of two pixels.
            const uint32_t* const made = pixels + row * kMadeStride + first;
            const uint32_t four = __funnelshift_r((made[0] & kColor) | made[1] << 24, made[1] >> 8, 8 * channel);
            Group<T> group;
            for (int i = 0; i < kLength; i++) {
                group.elements[i] = element<T>(table + (channel + i) % 3 * 256, four >> (8 * i) & 0xff);
            }
            store_first(place_in<T, kLayout>(output, tile.x, tile.y + row) + column * kLength, group, count);
        }
    }
    // Erasing here follows a normalization, and batches of bytes have none.
    if constexpr (sizeof(T) > 1) {
        if (output.erasure_count > 0) {
            __syncthreads();
            erase_tile<T, kLayout>(output, tile, planes);
        }
    }
}

}  // namespace warpfeed
