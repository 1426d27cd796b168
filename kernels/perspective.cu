// perspective: an image as a plane, seen from another place. Sampling takes the nearest pixel, or the four or sixteen
// pixels around a point.
//
// Inputs: one PerspectiveSample per image (descriptors.cuh). Coefficients have 40 fractional bits.
// Grid: one pixel per thread (grid.cuh). Each coordinate takes two 64-bit divisions.
// Reference: src/ops/perspective.rs; byte for byte.

#include "grid.cuh"
#include "sampling.cuh"

namespace warpfeed {

constexpr int kPointBits16 = 16;

// A coordinate with 16 fractional bits; negative if it is outside the side. The divisor is above 0.
__host__ __device__ inline int64_t divided(int64_t dividend, int64_t divisor, uint32_t side) {
    int64_t whole = dividend / divisor, rest = dividend % divisor;
    if (rest < 0) {
        whole--;
        rest += divisor;
    }
    return whole >= 0 && whole < side ? (whole << kPointBits16) | ((rest << kPointBits16) / divisor) : -1;
}

// The point of the image that a pixel of the result shows, if it is inside.
struct PerspectivePoint {
    int64_t x, y;
    bool inside;
};

__device__ inline PerspectivePoint perspective_point(const PerspectiveSample& sample, int32_t x, int32_t y) {
    const SourceImage& source = sample.source;
    const int64_t twice_x = 2 * static_cast<int64_t>(x) + 1, twice_y = 2 * static_cast<int64_t>(y) + 1;
    const auto along = [&](int row) {
        return sample.coefficients[row] * twice_x + sample.coefficients[row + 1] * twice_y + sample.coefficients[row + 2];
    };
    const int64_t divisor = along(6);
    if (divisor == 0) {
        return {0, 0, false};
    }
    const int64_t sign = divisor < 0 ? -1 : 1;
    const int64_t from_x = divided(sign * along(0), sign * divisor, source.whole_width);
    const int64_t from_y = divided(sign * along(3), sign * divisor, source.whole_height);
    return {from_x, from_y, from_x >= 0 && from_y >= 0};
}

__device__ inline uint32_t perspective(const PerspectiveSample& sample, int32_t x, int32_t y) {
    const SourceImage& source = sample.source;
    const PerspectivePoint from = perspective_point(sample, x, y);
    if (!from.inside) {
        return sample.fill;
    }
    if (!sample.bilinear) {
        return at(source, static_cast<int32_t>(from.x >> kPointBits16), static_cast<int32_t>(from.y >> kPointBits16));
    }
    const uint32_t one = 1 << kPointBits16;
    const int64_t less_x = from.x - one / 2, less_y = from.y - one / 2;
    const int32_t left = static_cast<int32_t>(less_x >> kPointBits16), top = static_cast<int32_t>(less_y >> kPointBits16);
    const uint32_t right_share = static_cast<uint32_t>(less_x) & (one - 1);
    const uint32_t lower_share = static_cast<uint32_t>(less_y) & (one - 1);
    const uint32_t pixels[4] = {at_edge(source, left, top), at_edge(source, left + 1, top),
                                at_edge(source, left, top + 1), at_edge(source, left + 1, top + 1)};
    uint32_t pixel = 0;
    for (int c = 0; c < 3; c++) {
        const uint64_t above = channel(pixels[0], c) * (one - right_share) + channel(pixels[1], c) * right_share;
        const uint64_t below = channel(pixels[2], c) * (one - right_share) + channel(pixels[3], c) * right_share;
        const uint64_t value = above * (one - lower_share) + below * lower_share;
        pixel |= static_cast<uint32_t>(value >> (2 * kPointBits16)) << (8 * c);
    }
    return pixel;
}

__device__ inline uint32_t perspective_bicubic(const PerspectiveSample& sample, int32_t x, int32_t y) {
    const SourceImage& source = sample.source;
    const PerspectivePoint from = perspective_point(sample, x, y);
    if (!from.inside) {
        return sample.fill;
    }
    const int64_t one = 1 << kPointBits16;
    const int64_t less_x = from.x - one / 2, less_y = from.y - one / 2;
    const int32_t left = static_cast<int32_t>(less_x >> kPointBits16) - 1, top = static_cast<int32_t>(less_y >> kPointBits16) - 1;
    // With 24 fractional bits, as `cubic` expects them.
    const int64_t right_share = (less_x & (one - 1)) << 8, lower_share = (less_y & (one - 1)) << 8;
    uint32_t pixel = 0;
#pragma unroll 1
    for (int c = 0; c < 3; c++) {
        int64_t across[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint8_t* line = source.pixels + place(source.pitch_bytes, 0, stored_row(source, top + i)) + c;
            int64_t values[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                values[k] = static_cast<int64_t>(line[3 * stored_column(source, left + k)]) << 24;
            }
            across[i] = cubic(values, right_share);
        }
        const int32_t value = static_cast<int32_t>(cubic(across, lower_share) >> 24);
        pixel |= static_cast<uint32_t>(clamp(value, 0, 255)) << (8 * c);
    }
    return pixel;
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) perspective_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::PerspectiveSample>(launch, warpfeed::perspective);
}

extern "C" __global__ void __launch_bounds__(256) perspective_bicubic_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::PerspectiveSample>(launch, warpfeed::perspective_bicubic);
}
