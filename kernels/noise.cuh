// Random numbers of single pixels: the words of Philox4x32-10, and normal deviates from a table that the host makes.
// Reference: src/ops/noise.rs.
#pragma once

#include "pixel.cuh"

namespace warpfeed {

struct Words {
    uint32_t of[4];
};

__host__ __device__ inline uint32_t high_product(uint32_t a, uint32_t b) {
    return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
}

// The words of the pixel at column `x` of row `y`, for the four channels of a group.
__host__ __device__ inline Words words_of(uint64_t key, uint32_t x, uint32_t y, uint32_t group = 0) {
    uint32_t words[4] = {x, y, group, 0};
    uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
    constexpr uint32_t kFirst = 0xd2511f53, kThird = 0xcd9e8d57;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint32_t first = words[0], third = words[2];
        words[0] = high_product(third, kThird) ^ words[1] ^ low;
        words[1] = third * kThird;
        words[2] = high_product(first, kFirst) ^ words[3] ^ high;
        words[3] = first * kFirst;
        low += 0x9e3779b9;
        high += 0xbb67ae85;
    }
    return {{words[0], words[1], words[2], words[3]}};
}

// Number of zero bits above the highest set bit of `value`, which is not 0.
__host__ __device__ inline int leading_zeros(uint32_t value) {
#ifdef __CUDA_ARCH__
    return __clz(static_cast<int>(value));
#else
    return __builtin_clz(value);
#endif
}

// The normal deviate of a word.
__host__ __device__ inline float normal(uint32_t word, const int32_t* __restrict__ normals) {
    normals = global(normals);
    const uint32_t probability = word << 1 | 1;
    const int zeros = leading_zeros(probability);
    const uint32_t mantissa = probability << zeros;
    const int place = (31 - zeros) * 32 + static_cast<int>(mantissa >> 26 & 31);
    const int32_t part = static_cast<int32_t>(mantissa >> 10 & 0xffff);
    const int32_t near = normals[place], far = normals[place + 1];
    const int32_t size = near + ((far - near) * part >> 16);
    const float value = static_cast<float>(size) * (1.0f / (1 << 20));
    return word >> 31 ? -value : value;
}

}  // namespace warpfeed
