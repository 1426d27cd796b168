// The kernels, as included by registry.inc. Only this file is compiled with a call before each access to memory.
// sim.cpp defines the called functions.

#include "cuda.h"
#include "kernel.h"

#include "../../kernels/descriptors.cuh"

namespace cuda_sim {

// The launch belongs to the host, so reading it is not checked.
template <void (*kernel)(warpfeed::Launch)>
__attribute__((no_sanitize("kernel-address"))) void run(const void* launch) {
    kernel(*static_cast<const warpfeed::Launch*>(launch));
}

void (*const before_block)(const Kernel&) = nullptr;

}  // namespace cuda_sim

#include "registry.inc"
