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

// A tile of an output.
struct Tile {
    uint32_t x, y, width, height;
};

__host__ __device__ inline uint32_t tiles_across(const BatchPlace& output) {
    return (output.width + kTileWidth - 1) / kTileWidth;
}

__host__ __device__ inline uint32_t tiles(const BatchPlace& output) {
    return tiles_across(output) * ((output.height + kTileHeight - 1) / kTileHeight);
}

__host__ __device__ inline Tile tile_of(const BatchPlace& output, uint32_t i) {
    const uint32_t across = tiles_across(output);
    const uint32_t x = i % across * kTileWidth, y = i / across * kTileHeight;
    return {x, y, smaller<uint32_t>(kTileWidth, output.width - x), smaller<uint32_t>(kTileHeight, output.height - y)};
}

// The element for a byte of a channel.
template <typename T>
__host__ __device__ inline T element(const T* __restrict__ table, int c, uint32_t byte) {
    // Bytes stay as they are.
    if constexpr (sizeof(T) == 1) {
        return static_cast<T>(byte);
    } else {
        return table[c * 256 + static_cast<int>(byte)];
    }
}

// The value of the last erasure of (x, y) for a channel; `made` if there is none.
template <typename T>
__host__ __device__ inline T erased(const BatchPlace& output, uint32_t x, uint32_t y, int c, T made) {
#pragma unroll 1
    for (uint32_t i = output.erasure_count; i > 0; i--) {
        const Erasure& erasure = global(output.erasures)[i - 1];
        if (x >= erasure.left && x < erasure.right && y >= erasure.top && y < erasure.bottom) {
            return static_cast<T>(erasure.value[c]);
        }
    }
    return made;
}

// Elements that are stored at once.
template <typename T>
struct alignas(16) Group {
    static constexpr int kLength = 16 / sizeof(T);
    T elements[kLength];
};

// Stores a group in one access, which the compiler might split otherwise.
template <typename T>
__host__ __device__ inline void store(T* to, const Group<T>& group) {
#ifdef __CUDA_ARCH__
    uint32_t words[4];
    memcpy(words, &group, sizeof(words));
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
#else
    *reinterpret_cast<Group<T>*>(to) = group;
#endif
}

// Writes a tile, `pixels[y * kMadeStride + x]`, with all threads of the block. Without a plane stride, writes the first
// channel alone.
template <typename T, Layout kLayout>
__device__ inline void store_tile(const BatchPlace& output, const void* launch_table, const Tile& tile,
                                  const uint32_t* pixels) {
    constexpr int kLength = Group<T>::kLength;
    // A run is the consecutive elements of one row of the tile.
    constexpr int kRun = kLayout == Layout::nchw ? kTileWidth : 3 * kTileWidth;
    constexpr int kGroups = kRun / kLength;
    static_assert(kRun % kLength == 0, "groups do not cross rows");
    const T* __restrict__ table = static_cast<const T*>(launch_table);
    const int planes = kLayout == Layout::nchw && output.plane_stride > 0 ? 3 : 1;
    const bool has_erasures = output.erasure_count > 0;
    const int run = static_cast<int>(kLayout == Layout::nchw ? tile.width : 3 * tile.width);
    for (int i = static_cast<int>(threadIdx.x); i < planes * kTileHeight * kGroups; i += kThreads) {
        const int first = i % kGroups * kLength;
        const int row = i / kGroups % kTileHeight;
        const int plane = i / (kGroups * kTileHeight);
        if (row >= static_cast<int>(tile.height) || first >= run) {
            continue;
        }
        const uint32_t y = tile.y + row;
        const size_t column = kLayout == Layout::nchw ? tile.x : size_t{3} * tile.x;
        T* to = global(static_cast<T*>(output.elements)) + plane * output.plane_stride +
                static_cast<size_t>(y) * output.row_stride + column + first;
        const auto make = [&](int at) {
            const int x = kLayout == Layout::nchw ? at : at / 3;
            const int c = kLayout == Layout::nchw ? plane : at % 3;
            const T made = element<T>(table, c, channel(pixels[row * kMadeStride + x], c));
            return has_erasures ? erased(output, tile.x + x, y, c, made) : made;
        };
        if (first + kLength <= run && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
            Group<T> group;
#pragma unroll
            for (int k = 0; k < kLength; k++) {
                group.elements[k] = make(first + k);
            }
            store(to, group);
        } else {
#pragma unroll 1
            for (int k = 0; k < smaller(kLength, run - first); k++) {
                to[k] = make(first + k);
            }
        }
    }
}

}  // namespace warpfeed
