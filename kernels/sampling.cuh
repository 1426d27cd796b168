// Sampling at a point of an image, for rotations and other affine maps. Reference: src/ops/affine_warp.rs, which
// computes in doubles.
//
// Doubles are slow on most cards, so whole numbers guess each pixel and tell whether the guess is sure. Pixels in
// doubt, one in ten thousand with noise, are computed in doubles.
#pragma once

#include "pixel.cuh"

namespace warpfeed {

// Fractional bits of a coordinate in fixed point. src/ops/points.rs derives its error.
constexpr int kPointBits = 44;

// A pixel computed in fixed point. It may be wrong if it is not sure.
struct Guess {
    uint32_t pixel;
    bool sure;
};

// The pixel of the view at (x, y), or the nearest stored one.
__host__ __device__ inline const uint8_t* nearest_stored(const RotateSample& sample, int32_t x, int32_t y) {
    const SourceImage& source = sample.source;
    return source.pixels + static_cast<int64_t>(stored_column(source, x)) * sample.right +
           static_cast<int64_t>(stored_row(source, y)) * sample.down;
}

__host__ __device__ inline uint32_t at_edge(const RotateSample& sample, int32_t x, int32_t y) {
    return load(nearest_stored(sample, x, y));
}

// A coordinate of the point that pixel (x, y) of the result shows. `fixed` has its three coefficients.
__host__ __device__ inline uint64_t coordinate(const int64_t* fixed, uint32_t x, uint32_t y) {
    return static_cast<uint64_t>(fixed[0]) * x + static_cast<uint64_t>(fixed[1]) * y + static_cast<uint64_t>(fixed[2]);
}

// Whether `value`, a number with `kBits` fractional bits, is within `distance` of a whole number.
template <int kBits>
__host__ __device__ inline bool near_whole(uint32_t value, uint32_t distance) {
    return ((value + distance) & ((uint64_t{1} << kBits) - 1)) < 2 * distance;
}

// The pixel whose area contains the point, for coordinates beyond 16.16 fixed point.
__host__ __device__ inline Guess guess_nearest(const RotateSample& sample, uint32_t column, uint32_t row) {
    if (sample.doubt == kAllInDoubt) {
        return {0, false};
    }
    const SourceImage& source = sample.source;
    const uint64_t x = coordinate(sample.fixed, column, row), y = coordinate(sample.fixed + 3, column, row);
    // A whole coordinate is a border between pixels. Two of these borders are those of the image.
    constexpr int kDropped = kPointBits - 32;
    const bool sure = !near_whole<32>(static_cast<uint32_t>(x >> kDropped), sample.doubt) &&
                      !near_whole<32>(static_cast<uint32_t>(y >> kDropped), sample.doubt);
    const int32_t from_x = static_cast<int32_t>(static_cast<int64_t>(x) >> kPointBits);
    const int32_t from_y = static_cast<int32_t>(static_cast<int64_t>(y) >> kPointBits);
    const bool inside = static_cast<uint32_t>(from_x) < source.whole_width &&
                        static_cast<uint32_t>(from_y) < source.whole_height;
    return {inside || sample.edge ? at_edge(sample, from_x, from_y) : sample.fill, sure};
}

__host__ __device__ inline int32_t bounded_floor(double value) {
    const double bound = 1 << 30;
    value = clamp(value, -bound, bound);
    const int32_t whole = static_cast<int32_t>(value);
    return value < whole ? whole - 1 : whole;
}

// The same pixel in doubles. The reference adds up rows, then columns.
__host__ __device__ inline uint32_t nearest_in_doubles(const RotateSample& sample, uint32_t column, uint32_t row) {
    const SourceImage& source = sample.source;
    const double* m = sample.matrix;
    double x = m[2] + m[1] * 0.5 + m[0] * 0.5, y = m[5] + m[4] * 0.5 + m[3] * 0.5;
    for (uint32_t i = 0; i < row; i++) {
        x += m[1];
        y += m[4];
    }
    for (uint32_t i = 0; i < column; i++) {
        x += m[0];
        y += m[3];
    }
    const bool inside = x >= 0.0 && x < source.whole_width && y >= 0.0 && y < source.whole_height;
    return inside || sample.edge ? at_edge(sample, bounded_floor(x), bounded_floor(y)) : sample.fill;
}

// The pixel at a point, from the four pixels around it. Coordinates are those of the point less half a pixel, so the
// four pixels are the one at their whole part and its neighbors to the right and below.
//
// The fraction is cut to 24 bits. With this cut, a coordinate is off by less than 2^-24 pixels, to be exact by 1.6 x
// 2^-25 (src/ops/points.rs), in either direction. Bilinear interpolation is continuous and changes by at most 255 per
// pixel along each axis. So a value is off by at most 2 x 255 x 1.6 x 2^-25, less than 2^-15, even if the point has
// moved into the next pixel. Everything else is exact. A byte is in doubt if its value is within `doubt`, 2 x 2^-16, of
// a whole number.
//
// Four equal bytes give exactly this byte, so they are not in doubt, unless a coordinate is within `doubt`, 2 x 2^-24,
// of a whole number: then the true point may be between other pixels.
__host__ __device__ inline Guess guess_bilinear(const RotateSample& sample, uint32_t column, uint32_t row) {
    if (sample.doubt == kAllInDoubt) {
        return {0, false};
    }
    const SourceImage& source = sample.source;
    const uint64_t x = coordinate(sample.fixed, column, row), y = coordinate(sample.fixed + 3, column, row);
    // The coordinates have 12 fractional bits. Points this close to the border of the image are in doubt.
    const uint32_t near_x = static_cast<uint32_t>(x >> 32), near_y = static_cast<uint32_t>(y >> 32);
    bool sure = true;
    if (!sample.edge) {
        const uint32_t from_left = near_x + (1 << 11), from_top = near_y + (1 << 11);
        const uint32_t width = source.whole_width << 12, height = source.whole_height << 12;
        if (from_left + 2 >= width + 4 || from_top + 2 >= height + 4) {
            return {sample.fill, true};
        }
        sure = from_left - 1 < width - 2 && from_top - 1 < height - 2;
    }
    const int32_t left = static_cast<int32_t>(near_x) >> 12, top = static_cast<int32_t>(near_y) >> 12;
    const uint32_t one = 1 << 24;
    const uint32_t right_share = static_cast<uint32_t>(x >> 20) & (one - 1), left_share = one - right_share;
    const uint32_t lower_share = static_cast<uint32_t>(y >> 20) & (one - 1), upper_share = one - lower_share;
    const bool centered = near_whole<24>(right_share, sample.doubt) || near_whole<24>(lower_share, sample.doubt);

    const int64_t columns[2] = {static_cast<int64_t>(stored_column(source, left)) * sample.right,
                                static_cast<int64_t>(stored_column(source, left + 1)) * sample.right};
    const uint8_t* upper = source.pixels + static_cast<int64_t>(stored_row(source, top)) * sample.down;
    const uint8_t* lower = source.pixels + static_cast<int64_t>(stored_row(source, top + 1)) * sample.down;
    // If the fill is the edge, values are rounded to nearest, otherwise truncated. They have 48 fractional bits.
    const uint64_t bias = (static_cast<uint64_t>(sample.doubt) << 32) + (sample.edge ? uint64_t{1} << 47 : 0);
    uint32_t pixel = 0;
#pragma unroll
    for (int c = 0; c < 3; c++) {
        const uint32_t a = upper[columns[0] + c], b = upper[columns[1] + c];
        const uint32_t d = lower[columns[0] + c], e = lower[columns[1] + c];
        const uint32_t above = a * left_share + b * right_share, below = d * left_share + e * right_share;
        const uint64_t value = static_cast<uint64_t>(above) * upper_share + static_cast<uint64_t>(below) * lower_share;
        const uint32_t biased = static_cast<uint32_t>((value + bias) >> 32);
        const bool uneven = ((a ^ b) | (a ^ d) | (a ^ e)) != 0;
        sure &= (biased & 0xffff) >= 2 * sample.doubt || !(uneven || centered);
        pixel |= biased >> 16 << (8 * c);
    }
    return {pixel, sure};
}

// The same pixel in doubles.
__host__ __device__ inline uint32_t bilinear_in_doubles(const RotateSample& sample, uint32_t column, uint32_t row) {
    const SourceImage& source = sample.source;
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
    // Floor, with far points kept within 32 bits, which does not change the result.
    const double bound = 1 << 30;
    const double bounded_x = clamp(x, -bound, bound), bounded_y = clamp(y, -bound, bound);
    int32_t left = static_cast<int32_t>(bounded_x), top = static_cast<int32_t>(bounded_y);
    left -= bounded_x < left ? 1 : 0;
    top -= bounded_y < top ? 1 : 0;
    const double dx = bounded_x - left, dy = bounded_y - top;
    const uint32_t pixels[4] = {at_edge(sample, left, top), at_edge(sample, left + 1, top),
                                at_edge(sample, left, top + 1), at_edge(sample, left + 1, top + 1)};
    uint32_t result = 0;
    for (int c = 0; c < 3; c++) {
        const double a = channel(pixels[0], c), b = channel(pixels[1], c);
        const double d = channel(pixels[2], c), e = channel(pixels[3], c);
        const double above = a + (b - a) * dx, below = d + (e - d) * dx;
        const double value = above + (below - above) * dy + rounding;
        result |= static_cast<uint32_t>(clamp(value, 0.0, 255.0)) << (8 * c);
    }
    return result;
}

// The cubic through the middle two of four values, with the slopes of a = -1. The values and the place between them
// have 24 fractional bits.
__host__ __device__ inline int64_t cubic(const int64_t (&v)[4], int64_t at) {
    const int64_t second = v[2] - v[0], third = 2 * (v[0] - v[1]) + v[2] - v[3], fourth = v[1] - v[0] - v[2] + v[3];
    const int64_t slope = second + (((third + (fourth * at >> 24)) * at) >> 24);
    return v[1] + (slope * at >> 24);
}

// The pixel at a point, from the sixteen pixels around it. Coordinates are those of `guess_bilinear`, off by 1.6 x
// 2^-25 pixels.
//
// Cubic convolution is continuous. A value changes by at most 383 per pixel along an axis, times 1.5 for the weights
// along the other axis, so it is off by at most 2 x 575 x 1.6 x 2^-25. Cutting off in whole numbers adds less than
// 2^-21. The sum is less than 2^-14. A byte is in doubt if its value is within `doubt`, 8 x 2^-16, of a whole number.
// Sixteen equal bytes are not in doubt, unless the point may be between other pixels.
__host__ __device__ inline Guess guess_bicubic(const RotateSample& sample, uint32_t column, uint32_t row) {
    if (sample.doubt == kAllInDoubt) {
        return {0, false};
    }
    const SourceImage& source = sample.source;
    const uint64_t x = coordinate(sample.fixed, column, row), y = coordinate(sample.fixed + 3, column, row);
    const uint32_t near_x = static_cast<uint32_t>(x >> 32), near_y = static_cast<uint32_t>(y >> 32);
    const uint32_t from_left = near_x + (1 << 11), from_top = near_y + (1 << 11);
    const uint32_t width = source.whole_width << 12, height = source.whole_height << 12;
    if (from_left + 2 >= width + 4 || from_top + 2 >= height + 4) {
        return {sample.fill, true};
    }
    bool sure = from_left - 1 < width - 2 && from_top - 1 < height - 2;
    const int32_t left = (static_cast<int32_t>(near_x) >> 12) - 1, top = (static_cast<int32_t>(near_y) >> 12) - 1;
    const uint32_t one = 1 << 24;
    const uint32_t right_share = static_cast<uint32_t>(x >> 20) & (one - 1);
    const uint32_t lower_share = static_cast<uint32_t>(y >> 20) & (one - 1);
    const bool centered = near_whole<24>(right_share, sample.doubt) || near_whole<24>(lower_share, sample.doubt);

    const uint32_t distance = sample.doubt << 8;
    uint32_t pixel = 0;
#pragma unroll 1
    for (int c = 0; c < 3; c++) {
        int64_t across[4];
        uint32_t first = 0, uneven = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint8_t* line = source.pixels + static_cast<int64_t>(stored_row(source, top + i)) * sample.down + c;
            int64_t values[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const uint32_t byte = line[static_cast<int64_t>(stored_column(source, left + k)) * sample.right];
                first = i + k == 0 ? byte : first;
                uneven |= byte ^ first;
                values[k] = static_cast<int64_t>(byte) << 24;
            }
            across[i] = cubic(values, right_share);
        }
        const int64_t biased = cubic(across, lower_share) + distance;
        sure &= (static_cast<uint32_t>(biased) & (one - 1)) >= 2 * distance || !(uneven || centered);
        pixel |= static_cast<uint32_t>(clamp(static_cast<int32_t>(biased >> 24), 0, 255)) << (8 * c);
    }
    return {pixel, sure};
}

__host__ __device__ inline double cubic_in_doubles(const double (&v)[4], double at) {
    const double second = v[2] - v[0], third = 2.0 * (v[0] - v[1]) + v[2] - v[3], fourth = v[1] - v[0] - v[2] + v[3];
    return v[1] + at * (second + at * (third + at * fourth));
}

// The same pixel in doubles.
__host__ __device__ inline uint32_t bicubic_in_doubles(const RotateSample& sample, uint32_t column, uint32_t row) {
    const SourceImage& source = sample.source;
    const double* m = sample.matrix;
    const double to_x = static_cast<double>(column) + 0.5, to_y = static_cast<double>(row) + 0.5;
    const double x = m[0] * to_x + m[1] * to_y + m[2], y = m[3] * to_x + m[4] * to_y + m[5];
    if (!(x >= 0.0 && x < source.whole_width && y >= 0.0 && y < source.whole_height)) {
        return sample.fill;
    }
    const int32_t left = bounded_floor(x - 0.5), top = bounded_floor(y - 0.5);
    const double dx = x - 0.5 - left, dy = y - 0.5 - top;
    uint32_t result = 0;
#pragma unroll 1
    for (int c = 0; c < 3; c++) {
        double across[4];
        for (int i = 0; i < 4; i++) {
            double values[4];
            for (int k = 0; k < 4; k++) {
                values[k] = channel(at_edge(sample, left - 1 + k, top - 1 + i), c);
            }
            across[i] = cubic_in_doubles(values, dx);
        }
        result |= static_cast<uint32_t>(clamp(cubic_in_doubles(across, dy), 0.0, 255.0)) << (8 * c);
    }
    return result;
}

}  // namespace warpfeed
