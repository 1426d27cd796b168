// spin: lets time pass, like a training step of a given duration.
//
// Inputs: none; launch.count is the number of microseconds.
// Grid: one thread, which leaves the device to the pipeline's kernels.
// Reference: the device's clock; nothing is read or written.

#include "descriptors.cuh"

namespace warpfeed {

// The device's clock. It advances in steps of about a microsecond, depending on the device.
__device__ inline uint64_t clock_ns() {
#ifdef __CUDACC__
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
#else
    return cuda_sim::clock_ns();
#endif
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(1) spin(const warpfeed::Launch launch) {
    const uint64_t begin = warpfeed::clock_ns();
    while (warpfeed::clock_ns() - begin < launch.count * uint64_t{1000}) {
        __nanosleep(1000);
    }
}
