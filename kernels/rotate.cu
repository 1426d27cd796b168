// rotate: turning by any angle, nearest and bilinear; bilinear serves any affine map, so composed sampling too.
//
// Inputs: RotateSample an image (params.cuh): the matrix in doubles and in 16.16 fixed point.
// rotate_nearest_double is for images whose coordinates do not fit fixed point: it adds up doubles along rows, so it
// takes one thread a row (blocks of 256 x 1, blockIdx.x the row's place, blockIdx.y the sample).
// Grid: one pixel a thread, as grid.cuh has it.
// Reference: src/ops/sampling.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline uint32_t nearest(const RotateSample& sample, int32_t x, int32_t y) {
    const Source& source = sample.source;
    const int32_t* a = sample.fixed;
    // 64 bits: with the edge as fill, points far outside count.
    const int64_t from_x = (a[2] + static_cast<int64_t>(a[0]) * x + static_cast<int64_t>(a[1]) * y) >> 16;
    const int64_t from_y = (a[5] + static_cast<int64_t>(a[3]) * x + static_cast<int64_t>(a[4]) * y) >> 16;
    if (!sample.edge && (from_x < 0 || from_x >= source.whole_width || from_y < 0 || from_y >= source.whole_height)) {
        return sample.fill;
    }
    const int64_t bound = 1 << 30;
    return at_edge(source, static_cast<int32_t>(clamp(from_x, -bound, bound)),
                   static_cast<int32_t>(clamp(from_y, -bound, bound)));
}

__device__ inline uint32_t sampled(const RotateSample& sample, int32_t x, int32_t y) {
    return bilinear(sample, static_cast<uint32_t>(x), static_cast<uint32_t>(y));
}

__device__ inline int32_t bounded_floor(double value) {
    const double bound = 1 << 30;
    value = clamp(value, -bound, bound);
    const int32_t whole = static_cast<int32_t>(value);
    return value < whole ? whole - 1 : whole;
}

__device__ inline void nearest_double(const Launch& launch) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.y >= launch.count) {
        return;
    }
    const RotateSample& sample = static_cast<const RotateSample*>(launch.samples)[blockIdx.y];
    const Source& source = sample.source;
    const Target& target = sample.target;
    if (row >= target.height) {
        return;
    }
    const double* m = sample.matrix;
    double x = m[2] + m[1] * 0.5 + m[0] * 0.5, y = m[5] + m[4] * 0.5 + m[3] * 0.5;
    for (uint32_t i = 0; i < target.y + row; i++) {
        x += m[1];
        y += m[4];
    }
    for (uint32_t column = 0; column < target.x + target.width; column++) {
        if (column >= target.x) {
            const bool inside = x >= 0.0 && x < source.whole_width && y >= 0.0 && y < source.whole_height;
            const uint32_t pixel = !sample.edge && !inside
                                       ? sample.fill
                                       : at_edge(source, bounded_floor(x), bounded_floor(y));
            store(target.pixels + place(target.pitch_bytes, column - target.x, row), pixel);
        }
        x += m[0];
        y += m[3];
    }
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) rotate_nearest_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::RotateSample>(launch, warpfeed::nearest);
}

extern "C" __global__ void __launch_bounds__(256) rotate_nearest_double_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::nearest_double(launch);
}

extern "C" __global__ void __launch_bounds__(256) rotate_bilinear_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::RotateSample>(launch, warpfeed::sampled);
}
