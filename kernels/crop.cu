// crop: a rectangle of an image. Pixels beyond the image are a color, the image's edge or its mirror image.
//
// Inputs: one CropSample per image (descriptors.cuh).
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/crop.rs, src/ops/pad.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

// Position `at` of a line of `len` pixels, mirrored at both ends as often as necessary; the outermost pixels are
// repeated.
__device__ inline int32_t mirrored(int32_t at, int32_t len) {
    at %= 2 * len;
    at = at < 0 ? at + 2 * len : at;
    return smaller(at, 2 * len - 1 - at);
}

__device__ inline uint32_t cropped(const CropSample& sample, int32_t x, int32_t y) {
    const SourceImage& source = sample.source;
    x += sample.x;
    y += sample.y;
    if (!sample.outside && (static_cast<uint32_t>(x) >= source.whole_width ||
                         static_cast<uint32_t>(y) >= source.whole_height)) {
        return sample.fill;
    }
    const int32_t width = static_cast<int32_t>(source.whole_width), height = static_cast<int32_t>(source.whole_height);
    if (sample.outside == kReflect) {
        return at(source, reflect(x, width), reflect(y, height));
    }
    if (sample.outside == kSymmetric) {
        return at(source, mirrored(x, width), mirrored(y, height));
    }
    return at_edge(source, x, y);
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) crop_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::CropSample>(launch, warpfeed::cropped);
}
