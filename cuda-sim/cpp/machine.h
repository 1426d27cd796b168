// Functions of the part of the simulation that runs kernels (sim.cpp), for the parts that check accesses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuda_sim {

struct Range {
    uintptr_t start = 0, end = 0;

    bool holds(uintptr_t address, size_t bytes) const {
        const uintptr_t offset = address - start, length = end - start;
        return offset < length && bytes <= length - offset;
    }
};

// Whether a kernel may access these bytes of device memory, and the range that holds them.
bool reachable(uintptr_t address, size_t bytes, Range* range);

// The place of an instruction of the kernel that runs, in the lines of the PTX: "line 16, ret" of "4, ret".
struct Located {
    char text[80];
    explicit Located(const char* place);
};

// Ends the launch because of what the current thread was about to do. Without bytes it is not an access.
[[noreturn]] void refuse(uintptr_t address, size_t bytes, const char* what);

}  // namespace cuda_sim
