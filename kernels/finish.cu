// finish: the last step of the sequential strategy: normalization, cast, layout and erasures.
//
// Inputs: one FinishSample per image (descriptors.cuh): a complete image of the output's size, interleaved RGB bytes
// with a row pitch.
// Output: elements of the type, NCHW or NHWC.
// Grid: 256 threads per block, two output pixels per thread, a block for each tile of 32 x 16 output pixels: blockIdx.x
// and .y are the tile's place in the largest output, blockIdx.z is the sample.
// Reference: src/backend/cpu/output.rs; byte for byte.

#include "store.cuh"

namespace warpfeed {

template <typename T, Layout kLayout>
__device__ inline void finish(const Launch& launch) {
    if (blockIdx.z >= launch.count) {
        return;
    }
    const FinishSample& sample = static_cast<const FinishSample*>(launch.samples)[blockIdx.z];
    const Tile tile = tile_of(sample.output);
    if (tile.is_outside(sample.output)) {
        return;
    }
    __shared__ uint32_t made[kMadePixels];
    for (uint32_t i = threadIdx.x; i < kTilePixels; i += kThreads) {
        const uint32_t x = i % kTileWidth, y = i / kTileWidth;
        if (x < tile.width && y < tile.height) {
            made[y * kMadeStride + x] = load(sample.source.pixels + place(sample.source.pitch_bytes, tile.x + x, tile.y + y));
        }
    }
    __syncthreads();
    store_tile<T, kLayout>(sample.output, launch.table, tile, made);
}

}  // namespace warpfeed

using warpfeed::Launch;
using warpfeed::Layout;

extern "C" __global__ void __launch_bounds__(256, 4) finish_u8_nchw(const Launch launch) {
    warpfeed::finish<warpfeed::Bits8, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) finish_u8_nhwc(const Launch launch) {
    warpfeed::finish<warpfeed::Bits8, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) finish_f16_nchw(const Launch launch) {
    warpfeed::finish<warpfeed::Bits16, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) finish_f16_nhwc(const Launch launch) {
    warpfeed::finish<warpfeed::Bits16, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) finish_bf16_nchw(const Launch launch) {
    warpfeed::finish<warpfeed::Bits16, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) finish_bf16_nhwc(const Launch launch) {
    warpfeed::finish<warpfeed::Bits16, Layout::nhwc>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) finish_f32_nchw(const Launch launch) {
    warpfeed::finish<warpfeed::Bits32, Layout::nchw>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) finish_f32_nhwc(const Launch launch) {
    warpfeed::finish<warpfeed::Bits32, Layout::nhwc>(launch);
}
