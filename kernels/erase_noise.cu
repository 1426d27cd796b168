// erase_noise: overwrites a rectangle with normal noise, in an image of bytes or in the batch.
//
// Inputs: one EraseNoiseSample per image (descriptors.cuh), changed in place. The grid covers the rectangle.
// Output: elements of the type, NCHW or NHWC.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/erase.rs, src/backend/cpu/output.rs; byte for byte.

#include "grid.cuh"
#include "noise.cuh"
#include "number.cuh"

namespace warpfeed {

template <typename Number, Layout kLayout>
__device__ inline void erase_noise(const Launch& launch) {
    const Place<EraseNoiseSample> here(launch);
    if (!here.sample || !here.inside(here.sample->width, here.sample->height)) {
        return;
    }
    const EraseNoiseSample& sample = *here.sample;
    const BatchPlace& output = sample.output;
    const uint32_t x = sample.x + here.x, y = sample.y + here.y;
    const Words words = words_of(sample.key, sample.first_x + x, sample.first_y + y);
    // Without a plane stride there is a single plane.
    const int channels = kLayout == Layout::nchw && output.plane_stride == 0 ? 1 : 3;
    auto* const row = static_cast<typename Number::Bits*>(output.elements) + static_cast<size_t>(y) * output.row_stride;
#pragma unroll
    for (int c = 0; c < 3; c++) {
        if (c >= channels) {
            return;
        }
        // Without a deviation the rectangle has one color.
        const float value =
            sample.std > 0.0f ? sample.value[c] + sample.std * normal(words.of[c], sample.normals) : sample.value[c];
        auto* const element = kLayout == Layout::nchw ? row + c * output.plane_stride + x : row + size_t{3} * x + c;
        *element = Number::rounded(sizeof(*element) == 1 ? clamp(value, 0.0f, 255.0f) : value);
    }
}

}  // namespace warpfeed

using warpfeed::Launch;
using warpfeed::Layout;

extern "C" __global__ void __launch_bounds__(256) erase_noise_u8_nhwc(const Launch launch) {
    warpfeed::erase_noise<warpfeed::U8, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256) erase_noise_f16_nchw(const Launch launch) {
    warpfeed::erase_noise<warpfeed::F16, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256) erase_noise_f16_nhwc(const Launch launch) {
    warpfeed::erase_noise<warpfeed::F16, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256) erase_noise_bf16_nchw(const Launch launch) {
    warpfeed::erase_noise<warpfeed::Bf16, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256) erase_noise_bf16_nhwc(const Launch launch) {
    warpfeed::erase_noise<warpfeed::Bf16, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256) erase_noise_f32_nchw(const Launch launch) {
    warpfeed::erase_noise<warpfeed::F32, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256) erase_noise_f32_nhwc(const Launch launch) {
    warpfeed::erase_noise<warpfeed::F32, Layout::nhwc>(launch);
}
