// Features of CUDA C++ that C++ lacks, for kernels that are compiled for the host. The threads of a block take turns on
// one system thread, which switches from one to the next at each __syncthreads. So `__shared__` is a static variable of
// that system thread.
#pragma once

#include <cstddef>
#include <cstdint>

#define __host__
#define __device__
#define __global__
#define __shared__ static thread_local
#define __launch_bounds__(...)

namespace cuda_sim {

struct Coordinates {
    uint32_t x, y, z;
};

// The current thread's place in its grid, and in the order of its block's barriers.
struct Here {
    Coordinates thread, block, block_size, grid_size;
    uint32_t number;  // of the thread in its block
    // Phases are the times between two barriers, numbered over all blocks and launches.
    uint32_t phase, first_of_block, first_of_launch;
};

// Translated PTX runs one launch at a time, so it needs no variables of a thread of its own.
#ifdef CUDA_SIM_ONE_THREAD
#define CUDA_SIM_THREAD
#else
#define CUDA_SIM_THREAD __thread
#endif

// Not `thread_local`, because another file would need a function call to access it.
extern CUDA_SIM_THREAD Here here;

// Waits for the other threads of the block. All must wait at the same place; null if it is not known.
void synchronize(const char* place);

// The host's clock, and a sleep.
uint64_t clock_ns();
void sleep_ns(uint32_t ns);

}  // namespace cuda_sim

#define threadIdx (::cuda_sim::here.thread)
#define blockIdx (::cuda_sim::here.block)
#define blockDim (::cuda_sim::here.block_size)
#define gridDim (::cuda_sim::here.grid_size)

inline void __syncthreads() {
    cuda_sim::synchronize(nullptr);
}

// The upper half of `high`:`low`, shifted to the left by the low five bits of `by`.
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t by) {
    return static_cast<uint32_t>((uint64_t{high} << 32 | low) << (by & 31) >> 32);
}

// The lower half of `high`:`low`, shifted to the right by the low five bits of `by`.
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t by) {
    return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (by & 31));
}

inline void __nanosleep(uint32_t ns) {
    cuda_sim::sleep_ns(ns);
}

inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

inline uint32_t atomicAdd(uint32_t* at, uint32_t value) {
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

inline uint32_t atomicOr(uint32_t* at, uint32_t bits) {
    return __atomic_fetch_or(at, bits, __ATOMIC_RELAXED);
}
