// jpeg_sync, jpeg_sync_again and jpeg_join: find the places at which threads start in the data. It is unknown where in
// the data a code begins, but a decoder that starts anywhere soon synchronizes with the right one.
//
// Reads: the data, the steps, the look-up tables. Writes: the runs, and for each block of threads the number of blocks
// before.
// Grid: jpeg_sync and jpeg_sync_again: blocks of 256 threads for 224 runs each; blockIdx.x times 224 is the first of
// them, blockIdx.y the image. jpeg_join: a block of 256 threads per image (blockIdx.x).
// Reference: Weissenberger and Schmidt, arXiv 2111.09219. The pixels are those of warpfeed-image/src/decode.
//
// Each thread decodes its share from a guessed start of an MCU, and remembers where that led. Then come rounds: a thread
// that did not start where the one before it has ended decodes again from there. It remembers kWays ways through its
// share, so it need not decode a start that comes back, and all go on by what they know before any decodes again. When
// nothing changes any more, all starts are right, because the first start is right, and each right start makes the next
// one right. This holds for damaged data too. If all components share one code, as in RGB, a thread cannot find out which
// component it is in. Then only images of little data are decoded.
//
// A block of threads begins 32 runs before its own, so that its first run nearly always starts where the block before
// ends. If it does not, jpeg_sync_again finds the block's runs again, from there. jpeg_join flags the image if there
// still are such blocks.

#include "jpeg_steps.cuh"

namespace warpfeed::jpeg {

// Number of threads that only find the start of a block's first run.
constexpr uint32_t kWarmUp = kThreads - kBlockRuns;
// Number of ways through its run that a thread remembers.
constexpr uint32_t kWays = 4;

// No code and its value have more than 31 bits.
static_assert(kRunBits + 2 * 31 <= kBitMask, "a place in a run and beyond its end");
static_assert(kRunBits % 32 == 0, "runs begin with a word");

struct SyncMemory {
    JpegSteps steps;
    uint16_t ends[kThreads];
    uint32_t moved_in, wrong_in;  // the last rounds that had a thread with another known way, and one without
    ScanMemory scan;
};

// The step of a code above 10 bits.
__device__ inline uint32_t long_step(
    const Walk& walk, const JpegSteps& steps, uint32_t component, uint32_t ac, uint32_t next) {
    const uint32_t at = (next >> 16) - steps.more_from[component];
    return ac != 0 && at < kLongCodes ? steps.more[component][at] : step_of(walk.searched(component, ac, next));
}

// A state at most 31 bits after the start of a run: these bits, the coefficient and the block of the MCU in 5, 6 and 4
// bits.
__device__ inline uint32_t pack(const JpegRun& state, uint32_t begin) {
    return (state.bit - begin) | (state.place & 63) << 5 | state.place >> 8 << 11;
}

__device__ inline JpegRun unpack(uint32_t state, uint32_t begin) {
    return {begin + (state & 31), state >> 11 << 8 | (state >> 5 & 63), 0};
}

// A way through a run, from where it starts to where the next run starts: both states, and the number of blocks
// between.
struct Way {
    uint32_t start, end, blocks;
};

// A thread's share of the data.
struct Share {
    uint32_t begin, end;  // in bits

    __device__ Way decode(const JpegImage& image, const Walk& walk, const SyncMemory& memory, uint32_t start) const {
        const uint32_t* const data = data_words(image) + begin / 32;
        const uint16_t* const steps = memory.steps.of[0][0];
        const uint32_t segments = image.segments, length = end - begin;
        Segment segment(image, begin + (start & 31));
        uint32_t at = (start & 31) | (start >> 5 & 63) << kIndexShift;
        // The components of the blocks from this one on, two bits each, around the MCU.
        const uint32_t last = 2 * walk.mcu_blocks - 2;
        uint32_t order = walk.block_components;
        const auto next_block = [&] { order = order >> 2 | (order & 3) << last; };
#pragma unroll 1
        for (uint32_t block = start >> 11; block > 0; block--) {
            next_block();
        }
        // Number of blocks, and the number that it had or would have had at a start of an MCU.
        uint32_t blocks = 0, mcu = 0 - (start >> 11);
        const auto restarted = [&] {
            // The state at the start of a segment is known.
            blocks = kAbsolute | segment.number * image.segment_blocks;
            mcu = blocks;
        };
        if (begin + start == segment.begin_bit()) {
            restarted();
        }
#pragma unroll 1
        for (;;) {
            const bool is_last = segment.number + 1 >= segments;
            const uint32_t stop = (is_last ? end : smaller(segment.end_bit, end)) - begin;
            // A step of several codes must not go beyond the stop, nor end a block but by an end of block.
            uint32_t until = larger(stop, kLookBits) - kLookBits, one_from = (64 - kSeveral) << kIndexShift;
            uint32_t table = (order & 3) * (kStepKinds << kLookBits);
            Words words(data, 0, at & kBitMask);
#pragma unroll 1
            for (;;) {
#pragma unroll 1
                while ((at & kBitMask) < until) {
                    const uint32_t bit = at & kBitMask, next = words.bits(bit);
                    const uint32_t kind = at > kBitMask ? (at < one_from ? kSeveralAc : kAc) << kLookBits : kDc;
                    uint32_t step = steps[table + kind + (next >> (32 - kLookBits))];
                    if (step == 0) {
                        step = long_step(walk, memory.steps, order & 3, at > kBitMask ? 1 : 0, next);
                    }
                    at += step;
                    words.advance(bit, at & kBitMask);
                    if (at >= 64 << kIndexShift) {
                        at &= kBitMask;
                        blocks++;
                        next_block();
                        table = (order & 3) * (kStepKinds << kLookBits);
                    }
                }
                if (until == stop) {
                    break;
                }
                until = stop;
                one_from = 0;
            }
            if (is_last || begin + (at & kBitMask) < segment.end_bit) {
                break;
            }
            const uint32_t bit = segment.end_bit;
            while (segment.end_bit <= bit && segment.number + 1 < segments) {
                segment.next();
            }
            at = bit - begin;
            order = walk.block_components;
            restarted();
            if (at >= length) {
                break;
            }
        }
        const uint32_t block = (blocks - mcu) % walk.mcu_blocks;
        return {start, ((at & kBitMask) - length) | at >> kIndexShift << 5 | block << 11, blocks};
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
    JpegRun before = {0, 0, 0};
    if (kAgain && blockIdx.x > 0) {
        before = global(image.ends)[blockIdx.x - 1];
    }
    if (kAgain && (blockIdx.x == 0 || same_state(before, global(image.runs)[first_run]))) {
        if (thread == 0) {
            ends[blockIdx.x] = global(image.ends)[blockIdx.x];
        }
        return;
    }
    __shared__ SyncMemory memory;
    if (thread == 0) {
        memory.moved_in = 0;
        memory.wrong_in = 0;
    }
    copy<kThreads>(global(image.steps), &memory.steps, sizeof(JpegSteps));
    __syncthreads();

    const Walk walk(image, *global(image.look_up));
    // The thread whose start depends on none.
    const uint32_t first_thread = kAgain || blockIdx.x == 0 ? kWarmUp : 0;
    const uint32_t run = first_run + thread - kWarmUp;
    const bool has_data = thread >= first_thread && run < runs;
    const uint32_t begin = has_data ? run * kRunBits : 0, end = has_data ? smaller(begin + kRunBits, bits) : 0;
    const Share own = {begin, end};
    uint32_t start = kAgain && thread == first_thread ? pack(before, begin) : 0;
    Way way = {start, 0, 0};
    Way known[kWays];
#pragma unroll
    for (uint32_t i = 0; i < kWays; i++) {
        known[i] = {~0u, 0, 0};
    }
    bool decodes = has_data;
#pragma unroll 1
    for (uint32_t round = 1;; round++) {
        if (decodes) {
            way = own.decode(image, walk, memory, start);
#pragma unroll
            for (uint32_t i = kWays - 1; i > 0; i--) {
                known[i] = known[i - 1];
            }
            known[0] = way;
        }
        memory.ends[thread] = static_cast<uint16_t>(way.end);
        __syncthreads();
        start = thread > first_thread && has_data ? memory.ends[thread - 1] : way.start;
        const bool wrong = start != way.start;
        if (wrong) {
            bool moves = false;
#pragma unroll
            for (uint32_t i = 0; i < kWays; i++) {
                if (known[i].start == start) {
                    way = known[i];
                    moves = true;
                }
            }
            (moves ? memory.moved_in : memory.wrong_in) = round;
        }
        __syncthreads();
        const bool moved = memory.moved_in == round;
        if (!moved && memory.wrong_in != round) {
            break;
        }
        // Threads decode only when none can go on by its remembered ways.
        decodes = wrong && !moved;
    }
    uint64_t all;
    JpegRun first = unpack(way.start, begin);
    first.block = static_cast<uint32_t>(scan(memory.scan, thread >= kWarmUp ? way.blocks : 0, all, add_blocks));
    if (thread >= kWarmUp && run < runs) {
        global(image.runs)[run] = first;
    }
    if (thread == kThreads - 1) {
        JpegRun last = unpack(way.end, end);
        last.block = static_cast<uint32_t>(all);
        ends[blockIdx.x] = last;
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
