// Counts the instructions of a launch of translated PTX. The lanes of a warp go in step: a branch that only some of them
// take is executed for these, then for the others, and all meet again where every way from the branch leads through. A
// block's way is the sum over the times between barriers of the instructions of its slowest warp.

#include <algorithm>
#include <vector>

#include "ptx.h"

namespace {

constexpr uint32_t kLanes = 32;
// No basic block: the end of the thread, or a barrier.
constexpr uint16_t kEnd = 0xffff;

// The counts of a launch.
struct Ways {
    uint64_t longest;            // instructions on the longest way of a block
    uint64_t warp_instructions;  // of all warps
};
Ways* ways = nullptr;

const cuda_sim::Kernel* kernel = nullptr;
// The instructions on the way of the block that runs.
uint64_t way = 0;
// The basic blocks that each thread has entered since the last barrier.
std::vector<std::vector<uint16_t>> entered(1024);

// Lanes that go together, until they reach `join`.
struct Group {
    uint16_t at, join;
    uint32_t lanes;
};

// The instructions of a warp since the last barrier.
uint64_t warp_instructions(const std::vector<uint16_t>* lanes, uint32_t count) {
    size_t places[kLanes] = {};
    const auto next = [&](uint32_t lane) { return places[lane] < lanes[lane].size() ? lanes[lane][places[lane]] : kEnd; };
    uint64_t instructions = 0;
    std::vector<Group> groups;
    // Divides lanes by the basic blocks that they enter next.
    const auto divide = [&](uint32_t all, uint16_t join) {
        while (all != 0) {
            const uint16_t at = next(static_cast<uint32_t>(__builtin_ctz(all)));
            uint32_t together = 0;
            for (uint32_t lane = 0; lane < count; lane++) {
                together |= (all >> lane & 1) != 0 && next(lane) == at ? uint32_t{1} << lane : 0;
            }
            all &= ~together;
            if (at != join && at != kEnd) {
                groups.push_back({at, join, together});
            }
        }
    };
    divide(count == kLanes ? ~uint32_t{0} : (uint32_t{1} << count) - 1, kEnd);
    while (!groups.empty()) {
        Group& group = groups.back();
        if (group.at == group.join || group.at == kEnd) {
            groups.pop_back();
            continue;
        }
        uint32_t running = 0;
        bool same = true;
        uint16_t to = kEnd;
        for (uint32_t rest = group.lanes; rest != 0; rest &= rest - 1) {
            const auto lane = static_cast<uint32_t>(__builtin_ctz(rest));
            // A lane that has ended does not get here.
            if (next(lane) != group.at) {
                continue;
            }
            places[lane]++;
            same &= running == 0 || next(lane) == to;
            to = next(lane);
            running |= uint32_t{1} << lane;
        }
        instructions += running != 0 ? kernel->lengths[group.at] : 0;
        const uint16_t join = kernel->joins[group.at];
        group.at = same ? to : join;
        if (!same) {
            divide(running, join);
        }
    }
    return instructions;
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
