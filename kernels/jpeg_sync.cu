// jpeg_sync, jpeg_sync_again and jpeg_join: find the places at which threads start in the data. It is unknown where in
// the data a code begins, but a decoder that starts anywhere soon synchronizes with the right one.
//
// Reads: the data, the look-up tables. Writes: the runs, and for each block of threads the number of blocks before.
// Grid: jpeg_sync and jpeg_sync_again: blocks of 256 threads for 240 runs each; blockIdx.x times 240 is the first of
// them, blockIdx.y the image. jpeg_join: a block of 256 threads per image (blockIdx.x).
// Reference: warpfeed-image/src/decode/kernel_steps/synchronize.rs, which describes the rounds.
//
// A block of threads begins 16 runs before its own, so that its first run nearly always starts where the block before
// ends. If it does not, jpeg_sync_again finds the block's runs again, from there. jpeg_join flags the image if there
// still are such blocks.

#include "jpeg.cuh"

namespace warpfeed::jpeg {

// Number of threads that only find the start of a block's first run.
constexpr uint32_t kWarmUp = kThreads - kBlockRuns;
// Number of bits after which a thread records its state.
constexpr uint32_t kCheckBits = 256;
// Number of bits within which a thread tries another block of the MCU if the data go beyond a block's last coefficient,
// which only wrong starts do.
constexpr uint32_t kTrialBits = 512;

struct SyncMemory {
    JpegLookUp look_up;
    JpegRun ends[kThreads];
    uint32_t wrong_in;  // the last round, starting with 1, that found a thread with a wrong start
    ScanMemory scan;
};

// A thread's share of the data.
struct Share {
    uint32_t begin, end;  // in bits
    JpegRun* checks;      // first states at or after multiples of `kCheckBits`, and numbers of blocks before
    JpegRun last;         // state at the end, and number of blocks before

    // Decodes from `start` on. After the first round, only until it meets a state that was recorded before. If it may
    // try, it may choose another start, which it returns.
    __device__ JpegRun decode(const JpegImage& image, const Walk& walk, JpegRun start, bool first, bool tries) {
        Segment segment(image, start.bit);
        State state = state_of(start);
        uint32_t blocks = 0, phase = 0;
        JpegRun* check = checks;
        uint32_t recorded = begin + kCheckBits, stop = smaller(smaller(recorded, segment.end_bit), end);
        const auto restarted = [&] {
            // The state at the start of a segment is known.
            blocks = kAbsolute | segment.number * image.segment_blocks;
        };
        if (start.bit == segment.begin_bit() && start.place == 0) {
            restarted();
        }
#pragma unroll 1
        while (state.bit < end) {
            const uint32_t entry = walk.entry(state, walk.bits(state.bit));
            const uint32_t index = state.index + (entry >> 5 & 127);
            blocks += walk.advance(state, entry) ? 1 : 0;
            if (index - 65 < kBlockEnd - 65 && tries && state.bit < begin + kTrialBits) {
                phase++;
                tries = phase < walk.mcu_blocks;
                start = {begin, (tries ? phase : 0) << 8, 0};
                segment = Segment(image, begin);
                state = state_of(start);
                blocks = 0;
                check = checks;
                recorded = begin + kCheckBits;
                stop = smaller(smaller(recorded, segment.end_bit), end);
                continue;
            }
            if (state.bit < stop) {
                continue;
            }
            if (state.bit >= segment.end_bit && segment.number + 1 < image.segments) {
                state = {segment.end_bit, 0, 0};
                while (segment.end_bit <= state.bit && segment.number + 1 < image.segments) {
                    segment.next();
                }
                restarted();
            }
            if (state.bit >= recorded && recorded < end) {
                const JpegRun now = {state.bit, state.place(), blocks};
                if (!first && same_state(now, *check)) {
                    meet(check, recorded, blocks);
                    return start;
                }
                *check = now;
                check += kThreads;
                recorded += kCheckBits;
            }
            stop = smaller(smaller(recorded, segment.number + 1 < image.segments ? segment.end_bit : end), end);
        }
        last = {state.bit, state.place(), blocks};
        return start;
    }

    // From this check on, everything is as before, except the number of blocks.
    __device__ void meet(JpegRun* check, uint32_t recorded, uint32_t blocks) {
        const uint32_t more = (check->block & kAbsolute) != 0 ? 0 : blocks - check->block;
        const auto moved = [&](uint32_t block) { return (block & kAbsolute) != 0 ? block : block + more; };
#pragma unroll 1
        for (; recorded < end; recorded += kCheckBits, check += kThreads) {
            check->block = moved(check->block);
        }
        last.block = moved(last.block);
    }
};

template <bool kAgain>
__device__ inline void synchronize(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.y);
    if (!found) {
        return;
    }
    const JpegImage& image = *found;
    const uint32_t bits = data_bits(image), runs = runs_of(bits);
    const uint32_t blocks = (runs + kBlockRuns - 1) / kBlockRuns, first_run = blockIdx.x * kBlockRuns;
    if (first_run >= runs) {
        return;
    }
    const uint32_t thread = threadIdx.x;
    JpegRun* const ends = global(image.ends) + (kAgain ? blocks : 0);
    // The thread whose start depends on none.
    const uint32_t first_thread = kAgain || blockIdx.x == 0 ? kWarmUp : 0;
    JpegRun start = {0, 0, 0};
    if (kAgain && blockIdx.x > 0) {
        start = global(image.ends)[blockIdx.x - 1];
    }
    if (kAgain && (blockIdx.x == 0 || same_state(start, global(image.runs)[first_run]))) {
        if (thread == 0) {
            ends[blockIdx.x] = global(image.ends)[blockIdx.x];
        }
        return;
    }
    __shared__ SyncMemory memory;
    if (thread == 0) {
        memory.wrong_in = 0;
    }
    copy_look_up<kThreads>(image, memory.look_up);

    const Walk walk(image, memory.look_up);
    const uint32_t run = first_run + thread - kWarmUp;
    const bool has_data = thread >= first_thread && run < runs;
    const uint32_t begin = has_data ? run * kRunBits : 0, end = has_data ? smaller(begin + kRunBits, bits) : 0;
    const uint32_t checks = kThreads * (kRunBits / kCheckBits) * blockIdx.x + thread;
    Share own = {begin, end, global(image.checks) + checks, {}};
    const bool is_known = thread == first_thread && (kAgain || blockIdx.x == 0);
    if (!(kAgain && is_known)) {
        start = {begin, 0, 0};
    }
    bool wrong = has_data;
#pragma unroll 1
    for (uint32_t round = 0;; round++) {
        if (wrong) {
            start = own.decode(image, walk, start, round == 0, round == 0 && !is_known);
            memory.ends[thread] = own.last;
        }
        __syncthreads();
        const JpegRun before = thread > first_thread && has_data ? memory.ends[thread - 1] : start;
        wrong = !same_state(before, start);
        start = before;
        if (wrong) {
            memory.wrong_in = round + 1;
        }
        __syncthreads();
        if (memory.wrong_in != round + 1) {
            break;
        }
    }
    uint64_t all;
    start.block = static_cast<uint32_t>(scan(memory.scan, thread >= kWarmUp ? own.last.block : 0, all, add_blocks));
    if (thread >= kWarmUp && run < runs) {
        global(image.runs)[run] = start;
    }
    if (thread == kThreads - 1) {
        ends[blockIdx.x] = {own.last.bit, own.last.place, static_cast<uint32_t>(all)};
    }
}

__device__ inline void join(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.x);
    if (!found) {
        return;
    }
    const JpegImage& image = *found;
    __shared__ ScanMemory memory;
    const uint32_t blocks = (runs_of(data_bits(image)) + kBlockRuns - 1) / kBlockRuns;
    const JpegRun* const ends = global(image.ends) + blocks;
    const uint32_t each = (blocks + kThreads - 1) / kThreads;
    const uint32_t begin = smaller(each * threadIdx.x, blocks), end = smaller(begin + each, blocks);
    uint64_t own = 0, all;
    bool is_good = true;
#pragma unroll 1
    for (uint32_t block = begin; block < end; block++) {
        is_good &= block == 0 || same_state(global(image.runs)[block * kBlockRuns], ends[block - 1]);
        own = add_blocks(own, ends[block].block);
    }
    uint64_t before = scan(memory, own, all, add_blocks);
#pragma unroll 1
    for (uint32_t block = begin; block < end; block++) {
        global(image.ends)[block].block = static_cast<uint32_t>(before);
        before = add_blocks(before, ends[block].block);
    }
    if (!is_good) {
        atomicOr(image.status, kUnsynchronized);
    }
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(256, 4) jpeg_sync(const warpfeed::Launch launch) {
    warpfeed::jpeg::synchronize<false>(launch);
}

extern "C" __global__ void __launch_bounds__(256, 4) jpeg_sync_again(const warpfeed::Launch launch) {
    warpfeed::jpeg::synchronize<true>(launch);
}

extern "C" __global__ void __launch_bounds__(256) jpeg_join(const warpfeed::Launch launch) {
    warpfeed::jpeg::join(launch);
}
