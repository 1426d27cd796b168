// The kernels, by name: kernels.cpp makes the table, sim.cpp runs them.
#pragma once

#include <cstddef>

#include "../../kernels/descriptors.cuh"

namespace cuda_sim {

struct Kernel {
    const char* name;
    void (*function)(warpfeed::Launch);
};

extern const Kernel kernels[];
extern const size_t kernel_count;

}  // namespace cuda_sim
