// Types of a batch's elements: conversion to f32, and from f32 with rounding to nearest even. f16 and bf16 are
// converted by their bits, because the host does not have the toolkit's headers.
#pragma once

#include <cstring>

#include "store.cuh"

namespace warpfeed {

template <typename To, typename From>
__host__ __device__ inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

struct F32 {
    using Bits = Bits32;
    __host__ __device__ static float value(Bits bits) { return bits_as<float>(bits); }
    __host__ __device__ static Bits rounded(float value) { return bits_as<Bits>(value); }
};

struct Bf16 {
    using Bits = Bits16;
    __host__ __device__ static float value(Bits bits) { return bits_as<float>(uint32_t{bits} << 16); }
    __host__ __device__ static Bits rounded(float value) {
        const uint32_t bits = bits_as<uint32_t>(value);
        return static_cast<Bits>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
};

struct F16 {
    using Bits = Bits16;
    __host__ __device__ static float value(Bits bits) {
        const uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
        if (exponent == 0) {
            const float small = static_cast<float>(fraction) * (1.0f / (1 << 24));
            return bits_as<float>(bits_as<uint32_t>(small) | sign);
        }
        const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
        return bits_as<float>(sign | wide << 23 | fraction << 13);
    }
    __host__ __device__ static Bits rounded(float value) {
        const uint32_t bits = bits_as<uint32_t>(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
        if (size >= 0x477ff000) {  // 65520, which rounds to infinity
            return static_cast<Bits>(sign | 0x7c00);
        }
        if (size < 0x38800000) {  // 2^-14: adding 0.5 rounds to multiples of 2^-24
            return static_cast<Bits>(sign | (bits_as<uint32_t>(bits_as<float>(size) + 0.5f) - 0x3f000000));
        }
        const uint32_t even = size >> 13 & 1;
        return static_cast<Bits>(sign | ((size - 0x38000000 + 0xfff + even) >> 13));
    }
};

// Whole numbers.
template <typename T>
struct Whole {
    using Bits = T;
    __host__ __device__ static float value(Bits bits) { return bits; }
    __host__ __device__ static Bits rounded(float value) {
        // Adding 2^23 rounds to a whole number.
        return static_cast<Bits>(bits_as<uint32_t>(value + 8388608.0f));
    }
};

using U8 = Whole<Bits8>;
using U16 = Whole<Bits16>;

}  // namespace warpfeed
