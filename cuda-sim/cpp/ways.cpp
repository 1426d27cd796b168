// Counts the instructions of a launch of translated PTX. The lanes of a warp go in step: a branch that only some of
// them take is executed for these, then for the others, and all meet again after it. Lanes that leave a loop wait for
// those that stay. A block's way is the sum over the times between barriers of the instructions of its slowest warp.

#include <algorithm>
#include <vector>

#include "ptx.h"

namespace {

constexpr uint32_t kLanes = 32;
// After all basic blocks.
constexpr uint32_t kEnd = 0x10000;

// The counts of a launch.
struct Ways {
    uint64_t longest;            // instructions on the longest way of a block
    uint64_t warp_instructions;  // of all warps
    uint64_t block_ways;         // instructions on the ways of all blocks
};
Ways* ways = nullptr;

const cuda_sim::Kernel* kernel = nullptr;
// The instructions on the way of the block that runs.
uint64_t way = 0;
// The basic blocks that each thread has entered since the last barrier.
std::vector<std::vector<uint16_t>> entered(1024);

// The instructions of a warp since the last barrier.
uint64_t warp_instructions(const std::vector<uint16_t>* lanes, uint32_t count) {
    const uint16_t *next[kLanes], *end[kLanes];
    for (uint32_t lane = 0; lane < count; lane++) {
        next[lane] = lanes[lane].data();
        end[lane] = next[lane] + lanes[lane].size();
    }
    for (uint64_t instructions = 0;;) {
        // The lanes with the earliest place go on.
        uint32_t first = kEnd;
        uint16_t running = 0;
        for (uint32_t lane = 0; lane < count; lane++) {
            if (next[lane] != end[lane] && kernel->ranks[*next[lane]] < first) {
                running = *next[lane];
                first = kernel->ranks[running];
            }
        }
        if (first == kEnd) {
            return instructions;
        }
        instructions += kernel->lengths[running];
        for (uint32_t lane = 0; lane < count; lane++) {
            next[lane] += next[lane] != end[lane] && *next[lane] == running ? 1 : 0;
        }
    }
}

void after_phase_of(uint32_t threads) {
    if (!ways) {
        return;
    }
    uint64_t slowest = 0;
    for (uint32_t first = 0; first < threads; first += kLanes) {
        const uint64_t instructions = warp_instructions(&entered[first], std::min(kLanes, threads - first));
        slowest = std::max(slowest, instructions);
        ways->warp_instructions += instructions;
    }
    std::for_each_n(entered.begin(), threads, [](auto& thread) { thread.clear(); });
    way += slowest;
    ways->block_ways += slowest;
    ways->longest = std::max(ways->longest, way);
}

}  // namespace

namespace cuda_sim {

void (*const after_phase)(uint32_t) = after_phase_of;

}  // namespace cuda_sim

namespace ptx {

bool counting = false;

void enter(uint16_t basic_block) {
    entered[cuda_sim::here.number].push_back(basic_block);
}

void begin_block(const cuda_sim::Kernel& running) {
    kernel = &running;
    way = 0;
}

}  // namespace ptx

// Counts launches from now on; null ends this.
#pragma GCC visibility push(default)
extern "C" void cuda_sim_count_ways(Ways* counts) {
    ways = counts;
    ptx::counting = counts != nullptr;
    std::for_each(entered.begin(), entered.end(), [](auto& thread) { thread.clear(); });
}
#pragma GCC visibility pop
