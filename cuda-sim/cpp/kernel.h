// The kernels, by name. registry.cpp or the translated PTX makes the table, sim.cpp runs them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuda_sim {

// A part of a memory: a parameter or a variable.
struct Extent {
    size_t offset, bytes;
};

struct Kernel {
    const char* name;
    // Runs one thread. `parameters` are the launch's, laid out as the kernel expects them.
    void (*function)(const void* parameters);
    uint32_t most_threads;
    // Whether its threads may wait for each other.
    bool waits;
    // Of translated PTX. The other kernels have one parameter, and variables of the host as shared memory.
    const Extent* parameters;
    size_t parameter_count;
    const Extent* shared;
    size_t shared_count;
};

extern const Kernel kernels[];
extern const size_t kernel_count;

// Translated PTX sets this. It is called before each block of a kernel.
extern void (*const before_block)(const Kernel&);

}  // namespace cuda_sim
