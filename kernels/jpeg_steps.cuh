// Steps from code to code, for threads that look for the places of codes and need no values.
#pragma once

#include "jpeg.cuh"

namespace warpfeed::jpeg {

// A step over one code or several, in 16 bits. The low bits hold its length in bits, the others the number of
// coefficients that it moves on by. A thread's place in its run has the same form, so a step is added to it.
constexpr uint32_t kIndexShift = 10;
constexpr uint32_t kBitMask = (1 << kIndexShift) - 1;
// The step of an end of block. It ends the block from each AC coefficient; the first has index 1.
constexpr uint32_t kEndStep = 63 << kIndexShift;
// Largest number of coefficients that a step of several codes moves on by, except an end of block.
constexpr uint32_t kSeveral = 8;

// The kinds of steps in `JpegSteps`. A step is 0 for longer codes. Those of `kSeveralAc` take as many codes as the next
// bits have with their values.
enum StepKind : uint32_t { kDc, kAc, kSeveralAc, kStepKinds };

__device__ inline uint32_t step_of(uint32_t entry) {
    return (entry & 31) | smaller(entry >> 5 & 127, kEndStep >> kIndexShift) << kIndexShift;
}

}  // namespace warpfeed::jpeg
