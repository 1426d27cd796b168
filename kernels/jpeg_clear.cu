// jpeg_clear: sets all coefficients of the window to zero, because the data contain only the others.
//
// Writes: the coefficients of the window's blocks.
// Grid: blocks of 256 threads, 16 bytes per thread. blockIdx.x times 32 is the first block of coefficients, blockIdx.y
// the image.
// Reference: warpfeed-image/src/decode/kernel_steps/coefficients.rs.

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
