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
    // Of translated PTX, for each basic block: the number of its instructions, and its place in an order in which the end
    // of a branch follows the branch, and what follows a loop follows all of the loop.
    const uint16_t* lengths;
    const uint16_t* ranks;
    // Of translated PTX, the line in which it begins. Places in its code count from there.
    size_t first_line;
};

extern const Kernel kernels[];
extern const size_t kernel_count;

// Translated PTX sets this. It is called before each block of a kernel.
extern void (*const before_block)(const Kernel&);
// The same, called when all threads of a block wait or have ended.
extern void (*const after_phase)(uint32_t threads);

}  // namespace cuda_sim
