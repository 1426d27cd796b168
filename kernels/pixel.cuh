// Arithmetic of single pixels: runs the same on the device and on the host. Compiled without contraction of
// floating-point operations (-fmad=false), so that every result is that of src/ops/.
//
// A pixel in registers or shared memory is 32 bits, red in the lowest byte.
#pragma once

#include "params.cuh"

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

__host__ __device__ inline uint32_t pack(uint32_t red, uint32_t green, uint32_t blue) {
    return red | green << 8 | blue << 16;
}

__host__ __device__ inline uint32_t channel(uint32_t pixel, int channel) {
    return pixel >> (8 * channel) & 0xff;
}

__host__ __device__ inline uint32_t load(const uint8_t* __restrict__ pixel) {
    return pack(pixel[0], pixel[1], pixel[2]);
}

__host__ __device__ inline void store(uint8_t* __restrict__ to, uint32_t pixel) {
    to[0] = static_cast<uint8_t>(pixel);
    to[1] = static_cast<uint8_t>(pixel >> 8);
    to[2] = static_cast<uint8_t>(pixel >> 16);
}

// The place of pixel (x, y) of what is stored.
__host__ __device__ inline size_t place(uint32_t pitch_bytes, int32_t x, int32_t y) {
    return static_cast<size_t>(y) * pitch_bytes + static_cast<size_t>(x) * 3;
}

// The pixel of the whole at (x, y), which is stored.
__host__ __device__ inline uint32_t at(const Source& source, int32_t x, int32_t y) {
    const int32_t column = x - static_cast<int32_t>(source.x);
    const int32_t row = y - static_cast<int32_t>(source.y);
    return load(source.pixels + place(source.pitch_bytes, column, row));
}

// The pixel of the whole at (x, y), or the nearest one that is stored.
__host__ __device__ inline uint32_t at_edge(const Source& source, int32_t x, int32_t y) {
    const int32_t column = clamp(x - static_cast<int32_t>(source.x), 0, static_cast<int32_t>(source.width) - 1);
    const int32_t row = clamp(y - static_cast<int32_t>(source.y), 0, static_cast<int32_t>(source.height) - 1);
    return load(source.pixels + place(source.pitch_bytes, column, row));
}

// `a x + b y + c`, the sum wrapping, without its 16 fractional bits.
__host__ __device__ inline int32_t along(int32_t a, int32_t b, int32_t c, int32_t x, int32_t y) {
    const uint32_t sum = static_cast<uint32_t>(a) * static_cast<uint32_t>(x) +
                         static_cast<uint32_t>(b) * static_cast<uint32_t>(y) + static_cast<uint32_t>(c);
    return static_cast<int32_t>(sum) >> 16;
}

// The pixel at (x, y) of a view: walks its coordinates back, a step at a time. Reference: src/backend/cpu/gather.rs.
__host__ __device__ inline uint32_t seen(const FusedSample& sample, int32_t x, int32_t y) {
    const uint32_t count = sample.step_count;
    for (uint32_t i = 0; i < count; i++) {
        const Step step = sample.steps[i];
        const int32_t next_x = along(step.a[0], step.a[1], step.a[2], x, y);
        const int32_t next_y = along(step.a[3], step.a[4], step.a[5], x, y);
        if (static_cast<uint32_t>(next_x) >= step.width || static_cast<uint32_t>(next_y) >= step.height) {
            return step.fill;
        }
        x = next_x;
        y = next_y;
    }
    const int32_t* exact = sample.exact;
    return at(sample.source, exact[0] * x + exact[1] * y + exact[2], exact[3] * x + exact[4] * y + exact[5]);
}

// What one output of a resized axis is made of. Reference: src/ops/filter.rs.
struct Taps {
    int32_t start, end;      // input pixels
    const int32_t* weights;  // from `start` on; none where the axis is not resized

    __host__ __device__ int32_t weight(int32_t tap) const {
        return weights ? weights[tap - start] : 1 << kWeightBits;
    }
};

__host__ __device__ inline Taps taps_of(const Axis& axis, int32_t output) {
    if (!axis.starts) {
        return {output, output + 1, nullptr};
    }
    const int32_t i = output - axis.first;
    const int32_t start = axis.starts[i];
    if (!axis.weights) {
        return {start, start + 1, nullptr};
    }
    const int32_t begin = axis.offsets[i];
    return {start, start + axis.offsets[i + 1] - begin, axis.weights + begin};
}

// Sums of weighted pixels, a channel each.
struct Sums {
    int32_t of[3] = {kHalf, kHalf, kHalf};

    __host__ __device__ void add(uint32_t pixel, int32_t weight) {
        of[0] += static_cast<int32_t>(pixel & 0xff) * weight;
        of[1] += static_cast<int32_t>(pixel >> 8 & 0xff) * weight;
        of[2] += static_cast<int32_t>(pixel >> 16 & 0xff) * weight;
    }

    // Fractions dropped, cut to 0..=255.
    __host__ __device__ uint32_t pixel() const {
        return pack(static_cast<uint32_t>(clamp(of[0] >> kWeightBits, 0, 255)),
                    static_cast<uint32_t>(clamp(of[1] >> kWeightBits, 0, 255)),
                    static_cast<uint32_t>(clamp(of[2] >> kWeightBits, 0, 255)));
    }
};

// Cut to 0..=255, the fraction dropped; 0 if it is not a number.
__host__ __device__ inline int32_t truncate(double value) {
    value = value > 0.0 ? value : 0.0;
    return static_cast<int32_t>(value < 255.0 ? value : 255.0);
}

__host__ __device__ inline int32_t truncate(float value) {
    value = value > 0.0f ? value : 0.0f;
    return static_cast<int32_t>(value < 255.0f ? value : 255.0f);
}

// The pixel around a point of a rotated image, from the four around it. Reference: src/ops/sampling.rs, `bilinear`.
__host__ __device__ inline uint32_t bilinear(const RotateSample& sample, uint32_t column, uint32_t row) {
    const Source& source = sample.source;
    const double* m = sample.matrix;
    const double to_x = static_cast<double>(column) + 0.5, to_y = static_cast<double>(row) + 0.5;
    double x = m[0] * to_x + m[1] * to_y + m[2];
    double y = m[3] * to_x + m[4] * to_y + m[5];
    const double width = source.whole_width, height = source.whole_height;
    if (!sample.edge && !(x >= 0.0 && x < width && y >= 0.0 && y < height)) {
        return sample.fill;
    }
    const double rounding = sample.edge ? 0.5 : 0.0;
    x -= 0.5;
    y -= 0.5;
    // Floor by hand: far points are kept within 32 bits, which changes nothing that is seen.
    const double bound = 1 << 30;
    const double bounded_x = clamp(x, -bound, bound), bounded_y = clamp(y, -bound, bound);
    int32_t left = static_cast<int32_t>(bounded_x), top = static_cast<int32_t>(bounded_y);
    left -= bounded_x < left ? 1 : 0;
    top -= bounded_y < top ? 1 : 0;
    const double dx = bounded_x - left, dy = bounded_y - top;
    const uint32_t pixels[4] = {at_edge(source, left, top), at_edge(source, left + 1, top),
                                at_edge(source, left, top + 1), at_edge(source, left + 1, top + 1)};
    uint32_t result = 0;
    for (int c = 0; c < 3; c++) {
        const double a = channel(pixels[0], c), b = channel(pixels[1], c);
        const double d = channel(pixels[2], c), e = channel(pixels[3], c);
        const double above = a + (b - a) * dx, below = d + (e - d) * dx;
        const double value = above + (below - above) * dy + rounding;
        result |= static_cast<uint32_t>(truncate(value)) << (8 * c);
    }
    return result;
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

// Every channel blended with one value.
__host__ __device__ inline uint32_t blend_pixel(uint32_t from, uint32_t pixel, float factor) {
    return pack(blend(from, channel(pixel, 0), factor), blend(from, channel(pixel, 1), factor),
                blend(from, channel(pixel, 2), factor));
}

// The pixel with its hue turned, by way of 8-bit HSV. Reference: src/ops/hue.rs, whose types each value has.
__host__ __device__ inline uint32_t turn_hue(uint32_t pixel, uint32_t shift) {
    const int32_t red = channel(pixel, 0), green = channel(pixel, 1), blue = channel(pixel, 2);
    const int32_t max = larger(larger(red, green), blue), min = smaller(smaller(red, green), blue);
    const int32_t chroma = max - min;
    const float divisor = static_cast<float>(larger(chroma, 1));
    double sixth = 4.0;
    int32_t plus = max - green, minus = max - red;
    if (red == max) {
        sixth = 0.0, plus = max - blue, minus = max - green;
    } else if (green == max) {
        sixth = 2.0, plus = max - red, minus = max - blue;
    }
    const float plus_share = static_cast<float>(plus) / divisor, minus_share = static_cast<float>(minus) / divisor;
    const float hue = static_cast<float>(sixth + static_cast<double>(plus_share) - static_cast<double>(minus_share));
    const double turned = static_cast<double>(hue) / 6.0 + 1.0;
    const float turns = static_cast<float>(turned >= 1.0 ? turned - 1.0 : turned);
    const float share = static_cast<float>(chroma) / static_cast<float>(larger(max, 1));
    const uint32_t hue_byte = (static_cast<uint32_t>(truncate(static_cast<double>(turns) * 255.0)) + shift) & 0xff;
    const float saturation =
        static_cast<float>(static_cast<double>(truncate(static_cast<double>(share) * 255.0)) / 255.0);

    const double circle = static_cast<double>(hue_byte) * 6.0 / 255.0;
    const int32_t whole = static_cast<int32_t>(circle);
    const int32_t sector = whole % 6;
    const float fraction = static_cast<float>(circle - static_cast<double>(whole));
    const double value = max;
    const uint32_t low = truncate(value * (1.0 - static_cast<double>(saturation)) + 0.5);
    const uint32_t falling = truncate(value * (1.0 - static_cast<double>(saturation * fraction)) + 0.5);
    const uint32_t rising =
        truncate(value * (1.0 - static_cast<double>(saturation) * (1.0 - static_cast<double>(fraction))) + 0.5);
    const uint32_t full = max;
    switch (sector) {
        case 0: return pack(full, rising, low);
        case 1: return pack(falling, full, low);
        case 2: return pack(low, full, rising);
        case 3: return pack(low, falling, full);
        case 4: return pack(rising, low, full);
        default: return pack(full, low, falling);
    }
}

// Position `at` of a line of `len`, reflected at both ends as often as it takes. Reference: src/ops/gaussian_blur.rs.
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
