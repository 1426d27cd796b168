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

// The current thread's place in its grid.
struct Here {
    Coordinates thread, block, block_size, grid_size;
};

// Not `thread_local`, because another file would need a function call to access it.
extern __thread Here here;

// Waits for the other threads of the block.
void synchronize();

// The host's clock, and a sleep.
uint64_t clock_ns();
void sleep_ns(uint32_t ns);

}  // namespace cuda_sim

#define threadIdx (::cuda_sim::here.thread)
#define blockIdx (::cuda_sim::here.block)
#define blockDim (::cuda_sim::here.block_size)
#define gridDim (::cuda_sim::here.grid_size)

inline void __syncthreads() {
    cuda_sim::synchronize();
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
