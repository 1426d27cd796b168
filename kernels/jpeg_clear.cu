// jpeg_clear: sets all coefficients of the window to zero, because the data contain only the others.
//
// Writes: the coefficients of the window's blocks.
// Grid: blocks of 256 threads, 128 bytes per thread. blockIdx.x times 256 is the first block of coefficients, blockIdx.y
// the image.
// Reference: the CPU's decoder (warpfeed-image/src/decode), whose pixels come of it.

#include "jpeg.cuh"

namespace warpfeed::jpeg {

struct alignas(16) EightCoefficients {
    int16_t values[8];
};

// Number of times that a block of threads writes. Blocks that write once take longer to start than to write.
constexpr uint32_t kTimes = 8;

__device__ inline void clear(const Launch& launch) {
    const JpegImage* const image = image_of(launch, blockIdx.y);
    if (!image) {
        return;
    }
    const uint32_t count = 8 * window_blocks(*image);
    EightCoefficients* const to = reinterpret_cast<EightCoefficients*>(global(image->ac));
#pragma unroll
    for (uint32_t i = 0; i < kTimes; i++) {
        const uint32_t at = (kTimes * blockIdx.x + i) * kThreads + threadIdx.x;
        if (at < count) {
            to[at] = {};
        }
    }
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(256) jpeg_clear(const warpfeed::Launch launch) {
    warpfeed::jpeg::clear(launch);
}
