// jpeg_sync: where threads start in the data of an image without restarts. Nobody knows where in them a code begins, but a
// decoder that starts anywhere soon falls into step with the right one.
//
// Reads: the data, the codes. Writes: 256 runs, the last ones of which may be empty.
// Grid: a block of 256 threads an image (blockIdx.x). Images with restarts need none of this.
// Reference: src/decode/model/synchronize.rs, which describes the rounds.

#include "jpeg.cuh"

namespace warpfeed::jpeg {

// How often a thread notes its state.
constexpr uint32_t kCheckBits = 256;
// Smaller shares take more rounds, and small images need no more threads.
constexpr uint32_t kMinShareBits = 1024;
// An image that takes more rounds is left to the CPU.
constexpr uint32_t kMaxRounds = 64;

__device__ inline uint32_t share_bits(uint32_t data_bits) {
    const uint32_t bits = (data_bits + kRuns - 1) / kRuns;
    return larger((bits + kCheckBits - 1) / kCheckBits * kCheckBits, kMinShareBits);
}

struct SyncMemory {
    Codes codes;
    JpegRun ends[kThreads];
    uint32_t wrong_in;  // the last round, from 1 on, that has found a thread to have started at a wrong place
    ScanMemory scan;
};

// A thread's share of the data.
struct Share {
    uint32_t begin, end;  // in bits
    JpegRun* checks;      // the first state at or behind each multiple of `kCheckBits`, and the blocks ended before
    JpegRun last;         // the same at the end

    // Decodes from `state` on. Not for the first time: until a state is met that was noted before.
    __device__ void decode(const Walk& walk, State state, bool first) {
        uint32_t blocks = 0, more = 0;
        bool met = false;
        JpegRun* check = checks;
#pragma unroll 1
        for (uint32_t bit = begin; bit < end; check += kRuns) {
            bit = smaller(bit + kCheckBits, end);
            while (!met && state.bit < bit) {
                blocks += walk.step(state).ends_block ? 1 : 0;
            }
            if (!first && !met && state.is(*check)) {
                // From here on it is as before, but for the number of blocks.
                met = true;
                more = blocks - check->block;
            }
            if (met) {
                check->block += more;
            } else {
                *check = {state.bit, state.place(), blocks};
            }
        }
        last = met ? JpegRun{last.bit, last.place, last.block + more} : JpegRun{state.bit, state.place(), blocks};
    }
};

__device__ inline void synchronize(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.x);
    if (!found || found->segment_blocks > 0) {
        return;
    }
    const JpegImage& image = *found;
    __shared__ SyncMemory memory;
    const uint32_t thread = threadIdx.x;
    if (thread == 0) {
        memory.wrong_in = 0;
    }
    make_codes<kThreads>(image, memory.codes);

    const Walk walk(image, memory.codes);
    const uint32_t data_bits = 8 * image.bounds[1], share = share_bits(data_bits);
    // `thread * share` may be more than 32 bits have, if the data are long.
    const uint32_t begin = thread < (data_bits + share - 1) / share ? thread * share : data_bits;
    const uint32_t end = begin + smaller(share, data_bits - begin);
    Share own = {begin, end, global(image.checks) + thread, {}};
    JpegRun start = {begin, 0, 0};
    bool wrong = true;
#pragma unroll 1
    for (uint32_t round = 0;; round++) {
        if (wrong) {
            own.decode(walk, state_of(start), round == 0);
            memory.ends[thread] = own.last;
        }
        __syncthreads();
        // A share without data has no codes, and starts where it starts.
        const JpegRun before = thread > 0 && own.begin < own.end ? memory.ends[thread - 1] : start;
        wrong = before.bit != start.bit || before.place != start.place;
        start = before;
        if (wrong) {
            memory.wrong_in = round + 1;
        }
        __syncthreads();
        if (memory.wrong_in != round + 1) {
            break;
        }
        if (round == kMaxRounds) {
            if (thread == 0) {
                atomicOr(image.status, kUnsynchronized);
            }
            break;
        }
    }
    uint64_t all;
    start.block = static_cast<uint32_t>(
        scan(memory.scan, own.last.block, all, [](uint64_t a, uint64_t b) { return a + b; }));
    global(image.runs)[thread] = start;
}

}  // namespace warpfeed::jpeg

// Without the second number the compiler saves registers until it spills, on sm_80.
extern "C" __global__ void __launch_bounds__(256, 4) jpeg_sync(const warpfeed::Launch launch) {
    warpfeed::jpeg::synchronize(launch);
}
