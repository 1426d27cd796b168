// jpeg_sync: finds the places at which threads start in the data of an image without restarts. It is unknown where in
// the data a code begins, but a decoder that starts anywhere soon synchronizes with the right one.
//
// Reads: the data, the codes. Writes: 256 runs; the last ones may be empty.
// Grid: a block of 256 threads per image (blockIdx.x). Images with restarts do not need this kernel.
// Reference: warpfeed-image/src/decode/kernel_steps/synchronize.rs, which describes the rounds.

#include "jpeg.cuh"

namespace warpfeed::jpeg {

// Number of bits after which a thread records its state.
constexpr uint32_t kCheckBits = 256;
// Smallest share of a thread. Smaller shares would take more rounds, and small images need no more threads.
constexpr uint32_t kMinShareBits = 1024;
// Largest number of rounds. An image that takes more is left to the CPU.
constexpr uint32_t kMaxRounds = 64;

__device__ inline uint32_t share_bits(uint32_t data_bits) {
    const uint32_t bits = (data_bits + kRuns - 1) / kRuns;
    return larger((bits + kCheckBits - 1) / kCheckBits * kCheckBits, kMinShareBits);
}

struct SyncMemory {
    Codes codes;
    JpegRun ends[kThreads];
    uint32_t wrong_in;  // the last round, starting with 1, that found a thread with a wrong start
    ScanMemory scan;
};

// A thread's share of the data.
struct Share {
    uint32_t begin, end;  // in bits
    JpegRun* checks;      // first states at or after multiples of `kCheckBits`, and numbers of blocks before
    JpegRun last;         // state at the end, and number of blocks before

    // Decodes from `state` on. After the first round, only until it meets a state that was recorded before.
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
                // From here on, everything is as before, except the number of blocks.
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
    // `thread * share` may not fit 32 bits if the data are long.
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
        // A share without data has no codes, so its start is never wrong.
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

// Without the second number, the compiler uses so few registers for sm_80 that it spills.
extern "C" __global__ void __launch_bounds__(256, 4) jpeg_sync(const warpfeed::Launch launch) {
    warpfeed::jpeg::synchronize(launch);
}
