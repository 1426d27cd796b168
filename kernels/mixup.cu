// mixup: MixUp and CutMix, in the batch itself.
//
// Inputs: one MixupBatch, and one MixupSample per image of it (descriptors.cuh). Elements of the type, NCHW or NHWC,
// are changed in place. A thread goes through all images at its element's place, so that each element is read and
// written once.
// Grid: 256 threads per block, one element of an image per thread.
// Reference: src/backend/cpu/mix.rs; byte for byte.

#include "mixup.cuh"

namespace warpfeed {

constexpr uint32_t kMixupThreads = 256;

template <typename Number, Layout kLayout>
__device__ inline void mixup(const Launch& launch) {
    using Bits = typename Number::Bits;
    const MixupBatch& batch = *static_cast<const MixupBatch*>(launch.samples);
    const uint64_t pixels = uint64_t{batch.width} * batch.height;
    const uint64_t image = batch.channels * pixels;  // number of elements
    const uint64_t element = uint64_t{blockIdx.x} * kMixupThreads + threadIdx.x;
    if (element >= image) {
        return;
    }
    const uint64_t pixel = kLayout == Layout::nchw ? element % pixels : element / batch.channels;
    const uint32_t x = static_cast<uint32_t>(pixel % batch.width), y = static_cast<uint32_t>(pixel / batch.width);
    const MixupSample* __restrict__ samples = global(batch.samples);
    Bits* const elements = global(static_cast<Bits*>(batch.elements)) + element;
    const uint32_t last = launch.count - 1;
    if (batch.flip) {
        for (uint32_t front = 0; 2 * front <= last; front++) {
            Bits* const one = elements + front * image;
            Bits* const other = elements + (last - front) * image;
            const Bits a = *one, b = *other;
            *one = mixed<Number>(samples[front], x, y, a, b);
            *other = mixed<Number>(samples[last - front], x, y, b, a);
        }
        return;
    }
    Bits before = elements[last * image];
    for (uint32_t i = 0; i <= last; i++) {
        Bits* const one = elements + i * image;
        const Bits own = *one;
        *one = mixed<Number>(samples[i], x, y, own, before);
        before = own;
    }
}

}  // namespace warpfeed

using warpfeed::Launch;
using warpfeed::Layout;

extern "C" __global__ void __launch_bounds__(256) mixup_u8_nchw(const Launch launch) {
    warpfeed::mixup<warpfeed::U8, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256) mixup_u8_nhwc(const Launch launch) {
    warpfeed::mixup<warpfeed::U8, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256) mixup_u16_nchw(const Launch launch) {
    warpfeed::mixup<warpfeed::U16, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256) mixup_u16_nhwc(const Launch launch) {
    warpfeed::mixup<warpfeed::U16, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256) mixup_f16_nchw(const Launch launch) {
    warpfeed::mixup<warpfeed::F16, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256) mixup_f16_nhwc(const Launch launch) {
    warpfeed::mixup<warpfeed::F16, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256) mixup_bf16_nchw(const Launch launch) {
    warpfeed::mixup<warpfeed::Bf16, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256) mixup_bf16_nhwc(const Launch launch) {
    warpfeed::mixup<warpfeed::Bf16, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256) mixup_f32_nchw(const Launch launch) {
    warpfeed::mixup<warpfeed::F32, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256) mixup_f32_nhwc(const Launch launch) {
    warpfeed::mixup<warpfeed::F32, Layout::nhwc>(launch);
}
