// work: a fixed amount of arithmetic, like a training step. It takes longer while other kernels share the
// multiprocessors.
//
// Inputs: none; launch.count is the number of repetitions in each thread.
// Grid: blocks of 256 threads. Their number determines the length of the step.
// Reference: none; nothing is read or written.

#include "descriptors.cuh"

namespace warpfeed {

__device__ inline void work(const Launch& launch) {
    uint32_t value = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint32_t i = 0; i < launch.count; i++) {
        value = value * 1664525 + 1013904223;
    }
    // No samples are given, but without this the compiler would remove the loop.
    if (launch.samples) {
        *static_cast<uint32_t*>(const_cast<void*>(launch.samples)) = value;
    }
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) work(const warpfeed::Launch launch) {
    warpfeed::work(launch);
}
