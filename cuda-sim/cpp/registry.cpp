// The table of the kernels in kernels.cpp. Reading a launch's parameters here is not checked: they belong to the host.

#include "kernel.h"

#include "../../kernels/descriptors.cuh"

namespace cuda_sim {

template <void (*kernel)(warpfeed::Launch)>
void run(const void* launch) {
    kernel(*static_cast<const warpfeed::Launch*>(launch));
}

void (*const before_block)(const Kernel&) = nullptr;
void (*const after_phase)(uint32_t) = nullptr;

}  // namespace cuda_sim

#include "registry.inc"
