// Values of planes. A thread makes a pixel in all planes, one after the other, so a place or a point is computed once
// for all channels. The type of the values is known when a kernel runs. Whole numbers of 16 bits are exact in single
// precision, and so are the sums and differences of a few of them. So one code samples all types. Reference:
// src/backend/cpu/values/number.rs.
#pragma once

#include "grid.cuh"
#include "number.cuh"

namespace warpfeed {

// Number of values of a plane.
__host__ __device__ inline size_t plane_len(const PlanesImage& image) {
    return static_cast<size_t>(image.width) * image.height;
}

// The place of a stored pixel in a plane.
__host__ __device__ inline size_t place(const PlanesImage& image, int32_t x, int32_t y) {
    return static_cast<size_t>(y) * image.width + x;
}

// The stored column for column `x` of the whole, or the nearest one; and the same for row `y`.
__host__ __device__ inline int32_t stored_column(const PlanesImage& image, int32_t x) {
    return clamp(x - static_cast<int32_t>(image.x), 0, static_cast<int32_t>(image.width) - 1);
}

__host__ __device__ inline int32_t stored_row(const PlanesImage& image, int32_t y) {
    return clamp(y - static_cast<int32_t>(image.y), 0, static_cast<int32_t>(image.height) - 1);
}

template <typename T>
__host__ __device__ inline T* values_of(const PlanesImage& image) {
    return global(static_cast<T*>(image.values));
}

// The bits of a value.
__host__ __device__ inline uint32_t bits_at(const PlanesImage& image, size_t at) {
    switch (image.element) {
        case kU8: return values_of<const uint8_t>(image)[at];
        case kU16: return values_of<const uint16_t>(image)[at];
        default: return values_of<const uint32_t>(image)[at];
    }
}

__host__ __device__ inline void store_bits(const PlanesImage& image, size_t at, uint32_t bits) {
    switch (image.element) {
        case kU8: values_of<uint8_t>(image)[at] = static_cast<uint8_t>(bits); break;
        case kU16: values_of<uint16_t>(image)[at] = static_cast<uint16_t>(bits); break;
        default: values_of<uint32_t>(image)[at] = bits;
    }
}

// The value of bits, and the bits of a value that the type has.
__host__ __device__ inline float value_of(uint32_t element, uint32_t bits) {
    return element == kF32 ? bits_as<float>(bits) : static_cast<float>(bits);
}

__host__ __device__ inline uint32_t bits_of(uint32_t element, float value) {
    return element == kF32 ? bits_as<uint32_t>(value) : static_cast<uint32_t>(value);
}

__host__ __device__ inline float value_at(const PlanesImage& image, size_t at) {
    return value_of(image.element, bits_at(image, at));
}

// The largest number of a type of whole numbers.
__host__ __device__ inline float most_of(uint32_t element) {
    return element == kU8 ? 255.0f : 65535.0f;
}

// A value limited to whole numbers of the type, with the fraction dropped; 0 for NaN.
template <typename T>
__host__ __device__ inline uint32_t truncated(T value, T most) {
    value = value > T{0} ? value : T{0};
    return static_cast<uint32_t>(static_cast<int32_t>(value < most ? value : most));
}

// The bits of a number that was computed in doubles: of whole numbers the fraction is dropped.
__host__ __device__ inline uint32_t bits_of_sampled(uint32_t element, double value) {
    return element == kF32 ? bits_as<uint32_t>(static_cast<float>(value))
                           : truncated(value, static_cast<double>(most_of(element)));
}

// A coordinate without its fraction, as far as images can reach; 0 for NaN.
__host__ __device__ inline int32_t whole_of(double floored) {
    constexpr double kFar = 1 << 30;
    if (floored != floored) {
        return 0;
    }
    return static_cast<int32_t>(clamp(floored, -kFar, kFar));
}

// Writes `make(channel)`, the bits of a value, for each channel of pixel (x, y) of what is stored.
template <typename Make>
__host__ __device__ inline void store_channels(const PlanesImage& target, uint32_t x, uint32_t y, Make make) {
    size_t at = place(target, static_cast<int32_t>(x), static_cast<int32_t>(y));
    for (uint32_t channel = 0; channel < target.channels; channel++) {
        store_bits(target, at, make(channel));
        at += plane_len(target);
    }
}

// Copies pixel (column, row) of the whole, or the nearest stored one. `channels` has the source channel of each
// channel, or is null.
__host__ __device__ inline void copy_channels(const PlanesImage& source, int32_t column, int32_t row,
                                              const uint32_t* channels, const PlanesImage& target, uint32_t x,
                                              uint32_t y) {
    const size_t from = place(source, stored_column(source, column), stored_row(source, row));
    store_channels(target, x, y, [&](uint32_t channel) {
        const uint32_t plane = channels ? global(channels)[channel] : channel;
        return bits_at(source, plane * plane_len(source) + from);
    });
}

__host__ __device__ inline void fill_channels(const uint32_t* fill, const PlanesImage& target, uint32_t x, uint32_t y) {
    store_channels(target, x, y, [&](uint32_t channel) { return global(fill)[channel]; });
}

}  // namespace warpfeed
