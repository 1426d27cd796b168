// crop: a rectangle of an image; beyond the image a color or its edge.
//
// Inputs: CropSample an image (params.cuh).
// Grid: one pixel a thread, as grid.cuh has it.
// Reference: src/ops/crop.rs; byte for byte.

#include "grid.cuh"

namespace warpfeed {

__device__ inline uint32_t cropped(const CropSample& sample, int32_t x, int32_t y) {
    const Source& source = sample.source;
    x += sample.x;
    y += sample.y;
    if (!sample.edge && (static_cast<uint32_t>(x) >= source.whole_width ||
                         static_cast<uint32_t>(y) >= source.whole_height)) {
        return sample.fill;
    }
    return at_edge(source, x, y);
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) crop_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::CropSample>(launch, warpfeed::cropped);
}
