// Arithmetic of single pixels, which is the same on the device and on the host. It is compiled without contraction of
// floating-point operations (-fmad=false), so that every result equals that of src/ops/.
//
// A pixel in registers or shared memory is 32 bits, red in the lowest byte.
#pragma once

#include <cmath>

#include "descriptors.cuh"

namespace warpfeed {

// Fractional bits of a resize's weight, and half a unit of its sum's last place.
constexpr int kWeightBits = 22;
constexpr int32_t kHalf = 1 << (kWeightBits - 1);

template <typename T>
__host__ __device__ inline T smaller(T a, T b) {
    return b < a ? b : a;
}

template <typename T>
__host__ __device__ inline T larger(T a, T b) {
    return a < b ? b : a;
}

template <typename T>
__host__ __device__ inline T clamp(T value, T low, T high) {
    return smaller(larger(value, low), high);
}

// The bits of a pixel without the mark of a fill.
constexpr uint32_t kColor = 0xffffff;

__host__ __device__ inline uint32_t pack(uint32_t red, uint32_t green, uint32_t blue) {
    return red | green << 8 | blue << 16;
}

__host__ __device__ inline uint32_t channel(uint32_t pixel, int channel) {
    return pixel >> (8 * channel) & 0xff;
}

// The same pointer, marked as one to device memory. If a kernel has shared memory too, the compiler cannot know that of
// a pointer from a descriptor, and would test it at each access.
template <typename T>
__host__ __device__ inline T* global(T* pointer) {
#ifdef __CUDA_ARCH__
    __builtin_assume(__isGlobal(pointer));
#endif
    return pointer;
}

__host__ __device__ inline uint32_t load(const uint8_t* __restrict__ pixel) {
    pixel = global(pixel);
    return pack(pixel[0], pixel[1], pixel[2]);
}

__host__ __device__ inline void store(uint8_t* __restrict__ to, uint32_t pixel) {
    to[0] = static_cast<uint8_t>(pixel);
    to[1] = static_cast<uint8_t>(pixel >> 8);
    to[2] = static_cast<uint8_t>(pixel >> 16);
}

// The place of pixel (x, y) of the stored part, in bytes.
__host__ __device__ inline size_t place(uint32_t pitch_bytes, int32_t x, int32_t y) {
    return static_cast<size_t>(y) * pitch_bytes + static_cast<size_t>(x) * 3;
}

// The pixel of the whole at (x, y), which must be stored.
__host__ __device__ inline uint32_t at(const SourceImage& source, int32_t x, int32_t y) {
    const int32_t column = x - static_cast<int32_t>(source.x);
    const int32_t row = y - static_cast<int32_t>(source.y);
    return load(source.pixels + place(source.pitch_bytes, column, row));
}

// The stored column for column `x` of the whole, or the nearest one; and the same for row `y`.
__host__ __device__ inline int32_t stored_column(const SourceImage& source, int32_t x) {
    return clamp(x - static_cast<int32_t>(source.x), 0, static_cast<int32_t>(source.width) - 1);
}

__host__ __device__ inline int32_t stored_row(const SourceImage& source, int32_t y) {
    return clamp(y - static_cast<int32_t>(source.y), 0, static_cast<int32_t>(source.height) - 1);
}

// The pixel of the whole at (x, y), or the nearest stored pixel.
__host__ __device__ inline uint32_t at_edge(const SourceImage& source, int32_t x, int32_t y) {
    return load(source.pixels + place(source.pitch_bytes, stored_column(source, x), stored_row(source, y)));
}

// `a x + b y + c`, where the sum wraps, without its 16 fractional bits.
__host__ __device__ inline int32_t along(int32_t a, int32_t b, int32_t c, int32_t x, int32_t y) {
    const uint32_t sum = static_cast<uint32_t>(a) * static_cast<uint32_t>(x) +
                         static_cast<uint32_t>(b) * static_cast<uint32_t>(y) + static_cast<uint32_t>(c);
    return static_cast<int32_t>(sum) >> 16;
}

// Places of a view's pixels. Pixel (x, y) after the steps is at `first + x right + y down` of `pixels`, in bytes. Rows
// have less than 2^31 bytes.
struct View {
    const uint8_t* pixels;
    int64_t first;
    int32_t right, down;
    uint32_t step_count;
    // Four pixels of a row that begin at a column below this may be loaded in words: the image goes on for 16 bytes.
    int32_t words_end;
};

__host__ __device__ inline View view_of(const FusedSample& sample) {
    const SourceImage& source = sample.source;
    const int32_t* exact = sample.exact;
    const int32_t pitch_bytes = static_cast<int32_t>(source.pitch_bytes);
    const int64_t x = exact[2] - static_cast<int64_t>(source.x), y = exact[5] - static_cast<int64_t>(source.y);
    const bool in_order = exact[0] == 1 && exact[3] == 0 && sample.step_count == 0;
    const bool aligned = reinterpret_cast<uintptr_t>(source.pixels) % 4 == 0;
    // 16 bytes are five pixels and a third.
    const int32_t words_end = static_cast<int32_t>(source.width - x) - 5;
    return {source.pixels, 3 * x + pitch_bytes * y, 3 * exact[0] + pitch_bytes * exact[3],
            3 * exact[1] + pitch_bytes * exact[4], sample.step_count, in_order && aligned ? words_end : 0};
}

// The pixel at (x, y) of a view, found by following its coordinates back, step by step. Reference:
// src/backend/cpu/gather.rs.
__host__ __device__ inline uint32_t seen(const View& view, const StepDescriptor* steps, int32_t x, int32_t y) {
    for (uint32_t i = 0; i < view.step_count; i++) {
        const StepDescriptor step = steps[i];
        const int32_t next_x = along(step.a[0], step.a[1], step.a[2], x, y);
        const int32_t next_y = along(step.a[3], step.a[4], step.a[5], x, y);
        if (static_cast<uint32_t>(next_x) >= step.width || static_cast<uint32_t>(next_y) >= step.height) {
            return step.fill;
        }
        x = next_x;
        y = next_y;
    }
    return load(view.pixels + (view.first + static_cast<int64_t>(x) * view.right + static_cast<int64_t>(y) * view.down));
}

// The input pixels of one output of a resized axis, and their weights. Reference: src/ops/filter.rs.
struct Taps {
    int32_t start, end;      // input pixels
    const int32_t* weights;  // from `start` on; null if the axis is not resized

    __host__ __device__ int32_t weight(int32_t tap) const {
        return weights ? global(weights)[tap - start] : 1 << kWeightBits;
    }
};

__host__ __device__ inline Taps taps_of(const Axis& axis, int32_t output) {
    if (!axis.starts) {
        return {output, output + 1, nullptr};
    }
    const int32_t i = output - axis.first;
    const int32_t start = global(axis.starts)[i];
    if (!axis.weights) {
        return {start, start + 1, nullptr};
    }
    const int32_t begin = global(axis.offsets)[i];
    return {start, start + global(axis.offsets)[i + 1] - begin, axis.weights + begin};
}

// Sums of weighted pixels. A pixel is multiplied whole, and shifted down by one and by two channels, which takes no
// masks. So the sum of a channel also has those of the channels above it, which are subtracted at the end. All of it
// wraps at 32 bits, in which each channel's own sum fits.
struct Sums {
    static constexpr uint32_t kRounding = kHalf;
    uint32_t of[3] = {kRounding + (kRounding << 8) + (kRounding << 16), kRounding + (kRounding << 8), kRounding};

    // The pixel has no bits above blue.
    __host__ __device__ void add(uint32_t pixel, int32_t weight) {
        of[0] += pixel * static_cast<uint32_t>(weight);
        of[1] += (pixel >> 8) * static_cast<uint32_t>(weight);
        of[2] += (pixel >> 16) * static_cast<uint32_t>(weight);
    }

    // The pixel of the sums: fractions dropped, limited to 0..=255.
    __host__ __device__ uint32_t pixel() const {
        return pack(byte(of[0] - (of[1] << 8)), byte(of[1] - (of[2] << 8)), byte(of[2]));
    }

    __host__ __device__ static uint32_t byte(uint32_t sum) {
        return static_cast<uint32_t>(clamp(static_cast<int32_t>(sum) >> kWeightBits, 0, 255));
    }
};

// `value` limited to 0..=255, with the fraction dropped; 0 for NaN.
__host__ __device__ inline int32_t truncate(float value) {
    value = value > 0.0f ? value : 0.0f;
    return static_cast<int32_t>(value < 255.0f ? value : 255.0f);
}

// Luma with 16 fractional bits, rounded to nearest. Reference: src/ops/grayscale.rs.
__host__ __device__ inline uint32_t luma(uint32_t pixel) {
    return (channel(pixel, 0) * 19595 + channel(pixel, 1) * 38470 + channel(pixel, 2) * 7471 + 0x8000) >> 16;
}

// Reference: src/ops/blend.rs.
__host__ __device__ inline uint32_t blend(uint32_t from, uint32_t to, float factor) {
    const int32_t difference = static_cast<int32_t>(to) - static_cast<int32_t>(from);
    return static_cast<uint32_t>(truncate(static_cast<float>(from) + factor * static_cast<float>(difference)));
}

// Blends every channel with one value.
__host__ __device__ inline uint32_t blend_pixel(uint32_t from, uint32_t pixel, float factor) {
    return pack(blend(from, channel(pixel, 0), factor), blend(from, channel(pixel, 1), factor),
                blend(from, channel(pixel, 2), factor));
}

// 255 times a share of 1, with the fraction dropped. The product is rounded; the sign of the remainder by `fmaf` is
// exact.
__host__ __device__ inline uint32_t byte_of(float share) {
    const float whole = static_cast<float>(static_cast<int32_t>(share * 255.0f));
    return static_cast<uint32_t>(fmaf(share, 255.0f, -whole) < 0.0f ? whole - 1.0f : whole);
}

// The pixel with its hue shifted, in 8-bit HSV. Reference: src/ops/hue.rs, which computes in doubles.
//
// To HSV: the reference adds two shares of the chroma to an even sixth of the circle and rounds the exact sum to single
// precision. One of the shares is 1, because one of the two other channels is the smallest, so one addition to a whole
// number rounds in the same way. The reference then divides and scales in doubles; here the bytes are the same for each
// of the 196,000 combinations of sixth, chroma and share. Saturation is the whole part of 255 chroma / max for all
// 33,000 pairs.
//
// Back: the three values are v (1 - s t) + 1/2 without the fraction, with s in 255ths and t in 85ths. That is an odd
// number of 43,350ths, never a whole number, so whole numbers decide like the reference, whose shares are rounded.
//
// A test compares all combinations of sixth, chroma and share, and all combinations of hue, saturation and value.
__host__ __device__ inline uint32_t turn_hue(uint32_t pixel, uint32_t shift) {
    const int32_t red = channel(pixel, 0), green = channel(pixel, 1), blue = channel(pixel, 2);
    const int32_t max = larger(larger(red, green), blue), min = smaller(smaller(red, green), blue);
    const int32_t chroma = max - min;
    float sixth = 4.0f;
    int32_t plus = max - green, minus = max - red;
    if (red == max) {
        sixth = 0.0f, plus = max - blue, minus = max - green;
    } else if (green == max) {
        sixth = 2.0f, plus = max - red, minus = max - blue;
    }
    const bool all_minus = minus == chroma;
    // Gray has no hue, so any hue will do.
    const float share = static_cast<float>(all_minus ? plus : minus) / static_cast<float>(larger(chroma, 1));
    const float turns = (all_minus ? sixth - 1.0f + share : sixth + 1.0f - share) / 6.0f;
    const uint32_t hue = (byte_of(turns < 0.0f ? turns + 1.0f : turns) + shift) & 0xff;

    const uint32_t value = max, saturation = static_cast<uint32_t>(chroma) * 255 / larger<uint32_t>(value, 1);
    const uint32_t sector = 2 * hue / 85, part = 2 * hue % 85;
    const auto scaled = [&](uint32_t t) {
        constexpr uint32_t kWhole = 255 * 85;
        return (kWhole * value - value * saturation * t + kWhole / 2) / kWhole;
    };
    const uint32_t low = scaled(85), falling = scaled(part), rising = scaled(85 - part);
    switch (sector) {
        case 1: return pack(falling, value, low);
        case 2: return pack(low, value, rising);
        case 3: return pack(low, falling, value);
        case 4: return pack(rising, low, value);
        case 5: return pack(value, low, falling);
        default: return pack(value, rising, low);
    }
}

// Position `at` of a line of `len` pixels, reflected at both ends as often as necessary. Reference:
// src/ops/gaussian_blur.rs.
__host__ __device__ inline int32_t reflect(int32_t at, int32_t len) {
    const int32_t last = len - 1;
    if (at >= 0 && at <= last) {
        return at;
    }
    if (last == 0) {
        return 0;
    }
    at %= 2 * last;
    at = at < 0 ? at + 2 * last : at;
    return smaller(at, 2 * last - at);
}

}  // namespace warpfeed
