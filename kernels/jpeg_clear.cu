// jpeg_clear: zeros for all coefficients of the window, of which the data have only others.
//
// Writes: the coefficients of the window's blocks.
// Grid: blocks of 256 threads; blockIdx.x times 32 is the first block of coefficients, blockIdx.y the image. 16 bytes a
// thread.
// Reference: src/decode/model/coefficients.rs.

#include "jpeg.cuh"

namespace warpfeed::jpeg {

struct alignas(16) EightCoefficients {
    int16_t values[8];
};

__device__ inline void clear(const Launch& launch) {
    const JpegImage* const image = image_of(launch, blockIdx.y);
    const uint32_t at = blockIdx.x * kThreads + threadIdx.x;
    if (image && at < 8 * window_blocks(*image)) {
        reinterpret_cast<EightCoefficients*>(global(image->ac))[at] = {};
    }
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(256) jpeg_clear(const warpfeed::Launch launch) {
    warpfeed::jpeg::clear(launch);
}
