// rotate: rotation by any angle, and any other affine map: nearest, bilinear and bicubic. The composed strategy uses
// bilinear too.
//
// Inputs: one RotateSample per image (descriptors.cuh): an image, perhaps mirrored, turned or cropped, and the matrix in
// doubles and in fixed point. rotate_nearest has 16.16 fixed point, like its reference. rotate_nearest_double is for
// images whose coordinates do not fit 16.16 fixed point.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/affine_warp.rs; byte for byte.

#include "grid.cuh"
#include "sampling.cuh"

namespace warpfeed {

__device__ inline uint32_t nearest(const RotateSample& sample, int32_t x, int32_t y) {
    const SourceImage& source = sample.source;
    const auto along = [&](const int64_t* a) {
        // 64 bits, because points far outside count if the fill is the edge.
        const int64_t first = static_cast<int32_t>(a[0]), second = static_cast<int32_t>(a[1]);
        return (first * x + second * y + a[2]) >> 16;
    };
    const int64_t from_x = along(sample.fixed), from_y = along(sample.fixed + 3);
    if (!sample.edge && (from_x < 0 || from_x >= source.whole_width || from_y < 0 || from_y >= source.whole_height)) {
        return sample.fill;
    }
    const int64_t bound = 1 << 30;
    return at_edge(sample, static_cast<int32_t>(clamp(from_x, -bound, bound)),
                   static_cast<int32_t>(clamp(from_y, -bound, bound)));
}

__device__ inline uint32_t nearest_double(const RotateSample& sample, int32_t x, int32_t y) {
    const Guess guess = guess_nearest(sample, x, y);
    return __builtin_expect(guess.sure, true) ? guess.pixel : nearest_in_doubles(sample, x, y);
}

__device__ inline uint32_t bilinear(const RotateSample& sample, int32_t x, int32_t y) {
    const Guess guess = guess_bilinear(sample, x, y);
    return __builtin_expect(guess.sure, true) ? guess.pixel : bilinear_in_doubles(sample, x, y);
}

__device__ inline uint32_t bicubic(const RotateSample& sample, int32_t x, int32_t y) {
    const Guess guess = guess_bicubic(sample, x, y);
    return __builtin_expect(guess.sure, true) ? guess.pixel : bicubic_in_doubles(sample, x, y);
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) rotate_nearest_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::RotateSample>(launch, warpfeed::nearest);
}

extern "C" __global__ void __launch_bounds__(256) rotate_nearest_double_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::RotateSample>(launch, warpfeed::nearest_double);
}

extern "C" __global__ void __launch_bounds__(256) rotate_bilinear_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::RotateSample>(launch, warpfeed::bilinear);
}

extern "C" __global__ void __launch_bounds__(256) rotate_bicubic_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::RotateSample>(launch, warpfeed::bicubic);
}
