// planes_nearest: the nearest pixels of an affine map, in fixed point or by sums of doubles. planes_warp: other affine
// and projective maps, bilinear and bicubic, in doubles.
//
// Inputs: one PlanesNearestSample or PlanesWarpSample per image (descriptors.cuh).
// Grid: one pixel per thread, in all planes (grid.cuh).
// Reference: src/backend/cpu/values/warp.rs; byte for byte.

#include "planes.cuh"

namespace warpfeed {

__device__ inline void planes_nearest(const Launch& launch) {
    const Place<PlanesNearestSample> here(launch);
    if (!here.sample || !here.inside(here.sample->target.width, here.sample->target.height)) {
        return;
    }
    const PlanesNearestSample& sample = *here.sample;
    const PlanesImage& source = sample.source;
    const uint32_t column = sample.target.x + here.x, line = sample.target.y + here.y;
    int32_t x, y;
    bool inside;
    if (sample.is_fixed) {
        const int64_t* a = sample.fixed;
        const int64_t fixed_x = a[2] + a[0] * column + a[1] * line, fixed_y = a[5] + a[3] * column + a[4] * line;
        x = static_cast<int32_t>(fixed_x >> 16);
        y = static_cast<int32_t>(fixed_y >> 16);
        inside = x >= 0 && x < static_cast<int32_t>(source.whole_width) && y >= 0 &&
                 y < static_cast<int32_t>(source.whole_height);
    } else {
        // The steps are added one by one, as the reference rounds each sum.
        const double* m = sample.matrix;
        double x_in = m[2] + m[1] * 0.5 + m[0] * 0.5, y_in = m[5] + m[4] * 0.5 + m[3] * 0.5;
        for (uint32_t i = 0; i < line; i++) {
            x_in += m[1];
            y_in += m[4];
        }
        for (uint32_t i = 0; i < column; i++) {
            x_in += m[0];
            y_in += m[3];
        }
        x = whole_of(floor(x_in));
        y = whole_of(floor(y_in));
        inside = x_in >= 0.0 && x_in < source.whole_width && y_in >= 0.0 && y_in < source.whole_height;
    }
    if (sample.fill && !inside) {
        fill_channels(sample.fill, sample.target, here.x, here.y);
    } else {
        copy_channels(source, x, y, nullptr, sample.target, here.x, here.y);
    }
}

// The cubic through the middle two of four values, with the slopes of a = -1. The differences of values are taken in
// single precision, as Pillow does it; those of whole numbers are exact.
__host__ __device__ inline double cubic_of(const float (&v)[4], double at) {
    const double second = v[2] - v[0], third = 2.0f * (v[0] - v[1]) + v[2] - v[3], fourth = v[1] - v[0] - v[2] + v[3];
    return v[1] + at * (second + at * (third + at * fourth));
}

__host__ __device__ inline double cubic_of(const double (&v)[4], double at) {
    const double second = v[2] - v[0], third = 2.0 * (v[0] - v[1]) + v[2] - v[3], fourth = v[1] - v[0] - v[2] + v[3];
    return v[1] + at * (second + at * (third + at * fourth));
}

__device__ inline void planes_warp(const Launch& launch) {
    const Place<PlanesWarpSample> here(launch);
    if (!here.sample || !here.inside(here.sample->target.width, here.sample->target.height)) {
        return;
    }
    const PlanesWarpSample& sample = *here.sample;
    const PlanesImage& source = sample.source;
    const double* m = sample.map;
    const double to_x = (sample.target.x + here.x) + 0.5, to_y = (sample.target.y + here.y) + 0.5;
    double x = m[0] * to_x + m[1] * to_y + m[2], y = m[3] * to_x + m[4] * to_y + m[5];
    if (!sample.is_affine) {
        const double divisor = m[6] * to_x + m[7] * to_y + 1.0;
        x /= divisor;
        y /= divisor;
    }
    const bool inside = x >= 0.0 && x < source.whole_width && y >= 0.0 && y < source.whole_height;
    if (sample.fill && !inside) {
        fill_channels(sample.fill, sample.target, here.x, here.y);
        return;
    }
    if (sample.interpolation == kNearest) {
        copy_channels(source, whole_of(floor(x)), whole_of(floor(y)), nullptr, sample.target, here.x, here.y);
        return;
    }
    x -= 0.5;
    y -= 0.5;
    const double left = floor(x), top = floor(y), dx = x - left, dy = y - top;
    int32_t columns[4];
    size_t rows[4];
    for (int i = 0; i < 4; i++) {
        columns[i] = stored_column(source, whole_of(left) - 1 + i);
        rows[i] = place(source, 0, stored_row(source, whole_of(top) - 1 + i));
    }
    // With the edge as fill, whole numbers are rounded to nearest.
    const double rounding = sample.fill || source.element == kF32 ? 0.0 : 0.5;
    store_channels(sample.target, here.x, here.y, [&](uint32_t channel) {
        const size_t plane = channel * plane_len(source);
        double value;
        if (sample.interpolation == kBicubic) {
            double across[4];
#pragma unroll
            for (int row = 0; row < 4; row++) {
                float values[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    values[i] = value_at(source, plane + rows[row] + columns[i]);
                }
                across[row] = cubic_of(values, dx);
            }
            value = cubic_of(across, dy);
        } else {
            double lines[2];
#pragma unroll
            for (int row = 0; row < 2; row++) {
                const float a = value_at(source, plane + rows[1 + row] + columns[1]);
                const float b = value_at(source, plane + rows[1 + row] + columns[2]);
                lines[row] = a + static_cast<double>(b - a) * dx;
            }
            value = lines[0] + (lines[1] - lines[0]) * dy;
        }
        return bits_of_sampled(source.element, value + rounding);
    });
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) planes_nearest(const warpfeed::Launch launch) {
    warpfeed::planes_nearest(launch);
}

extern "C" __global__ void __launch_bounds__(256) planes_warp(const warpfeed::Launch launch) {
    warpfeed::planes_warp(launch);
}
