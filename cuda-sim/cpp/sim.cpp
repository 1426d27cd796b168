// Runs kernels on the host: a block's threads are fibers, each with a stack of its own, and go on from one
// __syncthreads to the next, in an order that changes from phase to phase, so that a missing one is noticed. That some
// threads of a block wait and others have ended is refused.

#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "cuda.h"

#include "../../kernels/params.cuh"

struct Kernel {
    const char* name;
    void (*function)(warpfeed::Launch);
};

#include "registry.inc"

namespace cuda_sim {

thread_local Here here;

namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr uint32_t kMaxThreads = 1024;

enum class State { ready, waiting, ended };

struct Machine;
thread_local Machine* machine = nullptr;

// One thread of a block. It runs kernel after kernel and never returns.
struct Fiber {
    jmp_buf jump;
    State state = State::ended;
    void* stack = nullptr;
    bool started = false;
};

struct Machine {
    std::vector<std::unique_ptr<Fiber>> fibers;
    Fiber* current = nullptr;
    jmp_buf scheduler;
    const Kernel* kernel = nullptr;
    warpfeed::Launch launch = {};
    bool running = false;

    ~Machine() {
        for (const auto& fiber : fibers) {
            munmap(fiber->stack, kStackBytes);
        }
    }

    bool grow(uint32_t threads) {
        while (fibers.size() < threads) {
            auto fiber = std::make_unique<Fiber>();
            fiber->stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (fiber->stack == MAP_FAILED) {
                return false;
            }
            fibers.push_back(std::move(fiber));
        }
        return true;
    }

    static void run() {
        for (;;) {
            machine->kernel->function(machine->launch);
            machine->leave(State::ended);
        }
    }

    // From a fiber back to the scheduler.
    void leave(State state) {
        current->state = state;
        if (_setjmp(current->jump) == 0) {
            _longjmp(scheduler, 1);
        }
    }

    // From the scheduler into a fiber, until it leaves.
    void enter(Fiber& fiber) {
        current = &fiber;
        if (_setjmp(scheduler) != 0) {
            return;
        }
        if (fiber.started) {
            _longjmp(fiber.jump, 1);
        }
        fiber.started = true;
        ucontext_t context;
        getcontext(&context);
        context.uc_stack.ss_sp = fiber.stack;
        context.uc_stack.ss_size = kStackBytes;
        context.uc_link = nullptr;
        makecontext(&context, run, 0);
        setcontext(&context);
    }

    // Runs a block. False if some of its threads wait for others that have ended.
    bool block(uint32_t threads, uint32_t seed) {
        for (uint32_t i = 0; i < threads; i++) {
            fibers[i]->state = State::ready;
        }
        const uint32_t across = here.block_size.x, down = here.block_size.y;
        for (uint32_t phase = seed;; phase++) {
            uint32_t waiting = 0;
            for (uint32_t i = 0; i < threads; i++) {
                const uint32_t thread = phase % 2 == 0 ? i : threads - 1 - i;
                here.thread = {thread % across, thread / across % down, thread / (across * down)};
                enter(*fibers[thread]);
                waiting += fibers[thread]->state == State::waiting ? 1 : 0;
            }
            if (waiting == 0) {
                return true;
            }
            if (waiting != threads) {
                // The stacks of those that wait are given up.
                for (auto& fiber : fibers) {
                    fiber->started = false;
                }
                return false;
            }
        }
    }
};

}  // namespace

namespace {

// Says where a kernel touched memory that is not there; then the fault takes its course.
void report_fault(int signal) {
    if (machine && machine->running) {
        char text[160];
        const int len = snprintf(
            text, sizeof(text), "cuda-sim: %s: illegal access by thread (%u, %u) of block (%u, %u, %u)\n",
            machine->kernel->name, here.thread.x, here.thread.y, here.block.x, here.block.y, here.block.z);
        if (write(STDERR_FILENO, text, static_cast<size_t>(len)) < 0) {
            // There is nowhere to say it.
        }
    }
    ::signal(signal, SIG_DFL);
}

}  // namespace

void synchronize() {
    machine->leave(State::waiting);
}

}  // namespace cuda_sim

extern "C" {

size_t cuda_sim_kernel_count() {
    return sizeof(kernels) / sizeof(kernels[0]);
}

const char* cuda_sim_kernel_name(size_t i) {
    return kernels[i].name;
}

// Runs a kernel to its end. 0, or 1: no such grid or memory, 2: not all threads of a block reach a __syncthreads.
int cuda_sim_launch(size_t kernel, const uint32_t* grid, const uint32_t* block, const warpfeed::Launch* launch) {
    using namespace cuda_sim;
    static thread_local Machine own;
    const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
    if (threads == 0 || threads > kMaxThreads || uint64_t{grid[0]} * grid[1] * grid[2] == 0 || grid[1] > 65535 ||
        grid[2] > 65535 || !own.grow(static_cast<uint32_t>(threads))) {
        return 1;
    }
    static const auto unreported = std::signal(SIGSEGV, report_fault);
    static_cast<void>(unreported);
    machine = &own;
    own.kernel = &kernels[kernel];
    own.launch = *launch;
    here.block_size = {block[0], block[1], block[2]};
    here.grid_size = {grid[0], grid[1], grid[2]};
    for (uint32_t z = 0; z < grid[2]; z++) {
        for (uint32_t y = 0; y < grid[1]; y++) {
            for (uint32_t x = 0; x < grid[0]; x++) {
                here.block = {x, y, z};
                own.running = true;
                const bool done = own.block(static_cast<uint32_t>(threads), x + y);
                own.running = false;
                if (!done) {
                    return 2;
                }
            }
        }
    }
    return 0;
}

// Whole pages for `bytes` bytes between two that no one may touch: beyond them a kernel ends with a fault. The end of
// the pages is returned, or null.
unsigned char* cuda_sim_map(size_t bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), usable = (bytes + page - 1) / page * page;
    void* all = mmap(nullptr, usable + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        return nullptr;
    }
    unsigned char* first = static_cast<unsigned char*>(all) + page;
    if (usable > 0 && mprotect(first, usable, PROT_READ | PROT_WRITE) != 0) {
        munmap(all, usable + 2 * page);
        return nullptr;
    }
    return first + usable;
}

// Gives them back; `end` and `bytes` as above.
void cuda_sim_unmap(unsigned char* end, size_t bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), usable = (bytes + page - 1) / page * page;
    munmap(end - usable - page, usable + 2 * page);
}

}  // extern "C"
