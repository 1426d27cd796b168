// The arithmetic of mixing two elements.
#pragma once

#include "number.cuh"

namespace warpfeed {

// An element at pixel (x, y) of an image, mixed with its partner's element.
template <typename Number>
__host__ __device__ inline typename Number::Bits mixed(const MixupSample& sample, uint32_t x, uint32_t y,
                                                       typename Number::Bits own, typename Number::Bits partner) {
    if (sample.blend) {
        return Number::rounded(Number::value(own) * sample.share + Number::value(partner) * sample.rest);
    }
    const bool pasted = x >= sample.left && x < sample.right && y >= sample.top && y < sample.bottom;
    return pasted ? partner : own;
}

}  // namespace warpfeed
