// Dilation and erosion: the largest or smallest value in a window of pixels, for each channel, one axis per launch.
#pragma once

#include "grid.cuh"

namespace warpfeed {

// The larger of two values, or the smaller.
template <bool kLargest>
__device__ inline uint32_t pick(uint32_t a, uint32_t b) {
    uint32_t result = 0;
    for (int c = 0; c < 3; c++) {
        const uint32_t mask = 0xffu << (8 * c);
        result |= kLargest ? larger(a & mask, b & mask) : smaller(a & mask, b & mask);
    }
    return result;
}

// The largest or smallest value in a window along one axis, limited to the image.
template <bool kLargest, bool kRows>
__device__ inline uint32_t rank(const MorphologySample& sample, int32_t x, int32_t y) {
    const SourceImage& source = sample.source;
    const int32_t first = (kRows ? x : y) - static_cast<int32_t>(sample.kernel / 2);
    const int32_t low = static_cast<int32_t>(kRows ? source.x : source.y);
    const int32_t high = low + static_cast<int32_t>(kRows ? source.width : source.height);
    const int32_t end = smaller(first + static_cast<int32_t>(sample.kernel), high);
    uint32_t result = kLargest ? 0 : 0xffffff;
    for (int32_t i = larger(first, low); i < end; i++) {
        result = pick<kLargest>(result, kRows ? at(source, i, y) : at(source, x, i));
    }
    return result;
}

}  // namespace warpfeed
