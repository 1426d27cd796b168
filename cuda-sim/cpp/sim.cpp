// Runs kernels on the host. The threads of a block are fibers, each with its own stack. They run from one __syncthreads
// to the next in an order that changes from phase to phase, so that a missing __syncthreads is noticed. A launch is
// refused if some threads of a block wait and others have ended or wait elsewhere. If the caller describes the memory,
// each access of a kernel is checked. Accesses to shared memory are also compared with those of other threads in the
// same phase, so a missing __syncthreads is noticed in any order.

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

#include <link.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "cuda.h"
#include "kernel.h"
#include "machine.h"

namespace cuda_sim {

CUDA_SIM_THREAD Here here;

namespace {

// The memory that a kernel may access, from the functions of its owner. Null allows everything.
struct Memory {
    // Finds the range that contains an address; the end is excluded. Returns false if there is none.
    bool (*range)(uintptr_t address, uintptr_t* start, uintptr_t* end) = nullptr;
    // Receives an access that is refused. `what` says who did what.
    void (*illegal)(uintptr_t address, size_t bytes, const char* what) = nullptr;
};
Memory memory;

// Counts of the memory accesses of a launch's warps. An access is one of the host compiler's, which equals the device's
// access for bytes and numbers.
struct Counts {
    uint64_t accesses, sectors;                   // to device memory; sectors have 32 bytes
    uint64_t shared_accesses, shared_wavefronts;  // a wavefront reads one word of each of the 32 banks
};
Counts* counts = nullptr;

// A thread's access, with its place in the code.
struct Access {
    uintptr_t place, address;
    size_t bytes;
};

// The wavefronts of an access to shared memory: the largest number of words that the lanes need from one bank.
uint64_t wavefronts(const std::vector<Access>& lanes) {
    std::vector<uintptr_t> words;
    for (const Access& lane : lanes) {
        for (uintptr_t word = lane.address / 4; word <= (lane.address + lane.bytes - 1) / 4; word++) {
            words.push_back(word);
        }
    }
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    uint64_t banks[32] = {};
    for (const uintptr_t word : words) {
        banks[word % 32]++;
    }
    return *std::max_element(banks, banks + 32);
}

uint64_t sectors(const std::vector<Access>& lanes) {
    std::vector<uintptr_t> found;
    for (const Access& lane : lanes) {
        found.push_back(lane.address / 32);
        found.push_back((lane.address + lane.bytes - 1) / 32);
    }
    std::sort(found.begin(), found.end());
    return static_cast<uint64_t>(std::unique(found.begin(), found.end()) - found.begin());
}

// Constants, and this thread's statics, which are shared memory: the memory into which the library or program with the
// kernels was loaded.
struct Own {
    std::vector<Range> ranges;
    Range shared;
};

Own own_memory() {
    Own own;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* found) {
            Own here;
            bool own = false;
            for (int i = 0; i < info->dlpi_phnum; i++) {
                const auto& header = info->dlpi_phdr[i];
                const bool shared = header.p_type == PT_TLS;
                const uintptr_t start =
                    shared ? reinterpret_cast<uintptr_t>(info->dlpi_tls_data) : info->dlpi_addr + header.p_vaddr;
                if ((shared && start != 0) || header.p_type == PT_LOAD) {
                    here.ranges.push_back({start, start + header.p_memsz});
                    own |= here.ranges.back().holds(reinterpret_cast<uintptr_t>(kernels), 1);
                    here.shared = shared ? here.ranges.back() : here.shared;
                }
            }
            if (own) {
                *static_cast<Own*>(found) = here;
            }
            return own ? 1 : 0;
        },
        &own);
    return own;
}

// The accesses to a byte of shared memory: in which phase, and by which thread or by several.
struct Byte {
    uint32_t stored = 0, loaded = 0;
    uint16_t storer = 0, loader = 0;
};
constexpr uint16_t kSeveral = 0xffff;

constexpr size_t kStackBytes = 64 << 10;
// Larger than the number of ranges that a kernel uses at a time.
constexpr size_t kKnown = 8;

enum class State { ready, waiting, ended, faulted };

// The result of a launch; `cuda_sim_launch` returns it.
enum Status { done = 0, refused = 1, diverged = 2, faulted = 3 };

struct Machine;
CUDA_SIM_THREAD Machine* machine = nullptr;
// The machine whose accesses are checked. Not `thread_local`, because finding such a variable takes longer than the
// check.
Machine* checked = nullptr;

// Where a fiber or the scheduler goes on, for the compiler's functions: those of the C library do more.
using Jump = void*[5];

// Apart, as a function may not have both.
[[noreturn]] __attribute__((noinline)) void go_on(Jump& jump) {
    __builtin_longjmp(jump, 1);
}

// One thread of a block. It runs one kernel after another and never returns.
struct Fiber {
    Jump jump;
    State state = State::ended;
    void* stack = nullptr;
    bool started = false;
    // Where it waits.
    const char* place = nullptr;
    // Accesses since the last __syncthreads, if they are counted.
    std::vector<Access> accesses;
};

struct Machine {
    std::vector<std::unique_ptr<Fiber>> fibers;
    Fiber* current = nullptr;
    Jump scheduler;
    const Kernel* kernel = nullptr;
    const void* parameters = nullptr;
    bool running = false;
    // Recently found ranges. A kernel uses few at a time.
    Range known[kKnown];
    Own own = own_memory();
    std::vector<Byte> shared = std::vector<Byte>(own.shared.end - own.shared.start);
    // Number of the phase between two __syncthreads, counted over all launches.
    uint32_t phase = 0;
    // Number of the current thread in its block.
    uint16_t number = 0;
    // Decides the order of the threads, and changes from phase to phase.
    uint64_t order = 0;
    // The place in this order of the thread that runs, and the number of threads that take turns.
    uint32_t turn = 0, turns = 0;
    // Whether the block's threads have begun in an earlier phase.
    bool begun = false;

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
            if (!machine->kernel->waits) {
                machine->run_all();
            } else {
                machine->kernel->function(machine->parameters);
                if (machine->goes_on_with_next()) {
                    continue;
                }
            }
            machine->leave(State::ended);
        }
    }

    // After a thread's end: makes the next thread the current one, on the same stack, if it has not begun.
    bool goes_on_with_next() {
        if (begun || turn + 1 == turns) {
            return false;
        }
        Fiber& ended = *current;
        ended.state = State::ended;
        choose(in_order(++turn, turns));
        current = fibers[number].get();
        std::swap(ended.stack, current->stack);
        std::swap(ended.started, current->started);
        std::swap(ended.jump, current->jump);
        return true;
    }

    // Makes a thread of the block the current one.
    void choose(uint32_t thread) {
        const uint32_t across = here.block_size.x, down = here.block_size.y;
        number = static_cast<uint16_t>(thread);
        here.number = thread;
        here.thread = {thread % across, thread / across % down, thread / (across * down)};
    }

    // The number of the block's i-th thread to run.
    uint32_t in_order(uint32_t i, uint32_t threads) const {
        return order % 2 == 0 ? i : threads - 1 - i;
    }

    // Runs the block's threads one after the other, since none waits.
    void run_all() {
        const uint32_t threads = here.block_size.x * here.block_size.y * here.block_size.z;
        for (uint32_t i = 0; i < threads; i++) {
            choose(in_order(i, threads));
            kernel->function(parameters);
        }
    }

    // Switches from a fiber to that of the next thread, or to the scheduler after the last and after a fault.
    void leave(State state) {
        current->state = state;
        if (__builtin_setjmp(current->jump) == 0) {
            if (state != State::faulted && ++turn < turns) {
                enter();
            }
            go_on(scheduler);
        }
    }

    // Runs the first fibers, until they have all left or one is at fault.
    void run_fibers(uint32_t count) {
        turn = 0;
        turns = count;
        if (__builtin_setjmp(scheduler) == 0) {
            enter();
        }
    }

    // Switches to the fiber whose turn it is.
    [[noreturn]] __attribute__((noinline)) void enter() {
        choose(in_order(turn, turns));
        current = fibers[number].get();
        if (current->started) {
            go_on(current->jump);
        }
        current->started = true;
        ucontext_t context;
        getcontext(&context);
        context.uc_stack.ss_sp = current->stack;
        context.uc_stack.ss_size = kStackBytes;
        context.uc_link = nullptr;
        makecontext(&context, run, 0);
        setcontext(&context);
        __builtin_unreachable();
    }

    // Whether this is a variable of the current thread.
    bool on_stack(uintptr_t address) const {
        const uintptr_t stack = reinterpret_cast<uintptr_t>(current->stack);
        return Range{stack, stack + kStackBytes}.holds(address, 1);
    }

    // The reason why the current thread may not access these bytes of shared memory; null if it may. Several threads
    // may store, as they do to set a mark. The compiler does not report accesses at places of a variable that it knows.
    const char* race(uintptr_t address, size_t bytes, bool is_store) {
        Byte* const first = &shared[address - own.shared.start];
        for (Byte* byte = first; byte < first + bytes; byte++) {
            if (is_store) {
                if (byte->loaded == phase && byte->loader != number) {
                    return "another thread has loaded them since the last __syncthreads";
                }
                byte->storer = byte->stored == phase && byte->storer != number ? kSeveral : number;
                byte->stored = phase;
            } else {
                if (byte->stored == phase && byte->storer != number) {
                    return "another thread has stored them since the last __syncthreads";
                }
                byte->loader = byte->loaded == phase && byte->loader != number ? kSeveral : number;
                byte->loaded = phase;
            }
        }
        return nullptr;
    }

    // Whether a kernel may access these bytes.
    bool allowed(uintptr_t address, size_t bytes) {
        if (known[0].holds(address, bytes) || on_stack(address)) {
            return true;
        }
        for (const Range& range : own.ranges) {
            if (range.holds(address, bytes)) {
                return true;
            }
        }
        return of_device(address, bytes) != nullptr;
    }

    // The range of the device's memory that holds these bytes; null if there is none.
    const Range* of_device(uintptr_t address, size_t bytes) {
        for (size_t i = 0; i < kKnown; i++) {
            if (known[i].holds(address, bytes)) {
                // Ranges that are used often move to the front.
                const size_t before = i > 0 ? i - 1 : 0;
                std::swap(known[i], known[before]);
                return &known[before];
            }
        }
        Range found;
        if (!(memory.range(address, &found.start, &found.end) && found.holds(address, bytes))) {
            return nullptr;
        }
        // The last range is used least.
        known[kKnown - 1] = found;
        return &known[kKnown - 1];
    }

    // Counts the accesses since the last __syncthreads. The threads of a warp do those accesses together that they do
    // at the same place in the code for the same number of times.
    void count_phase(uint32_t threads) {
        for (uint32_t first = 0; first < threads; first += 32) {
            std::map<std::tuple<uintptr_t, uint32_t>, std::vector<Access>> together;
            for (uint32_t thread = first; thread < std::min(first + 32, threads); thread++) {
                std::map<uintptr_t, uint32_t> times;
                for (const Access& access : fibers[thread]->accesses) {
                    together[{access.place, times[access.place]++}].push_back(access);
                }
                fibers[thread]->accesses.clear();
            }
            for (const auto& [when, lanes] : together) {
                if (own.shared.holds(lanes[0].address, 1)) {
                    counts->shared_accesses++;
                    counts->shared_wavefronts += wavefronts(lanes);
                } else {
                    counts->accesses++;
                    counts->sectors += sectors(lanes);
                }
            }
        }
    }

    // Gives up the stacks of threads that have not ended.
    Status abandon(Status status) {
        for (auto& fiber : fibers) {
            fiber->started = false;
        }
        return status;
    }

    // Not all threads of the block wait, or not at the same place.
    Status report_divergence(uint32_t waiting, uint32_t threads) {
        if (!memory.illegal) {
            return diverged;
        }
        // Where the first of them waits, and another one elsewhere.
        const char* places[2] = {};
        for (uint32_t i = 0; i < threads; i++) {
            if (fibers[i]->state == State::waiting && fibers[i]->place) {
                places[places[0] && fibers[i]->place != places[0]] = fibers[i]->place;
            }
        }
        char text[320];
        snprintf(
            text, sizeof(text), "%u of %u threads of block (%u, %u, %u) wait for others that have ended or wait elsewhere%s%s%s%s",
            waiting, threads, here.block.x, here.block.y, here.block.z, places[0] ? ": " : "",
            places[0] ? Located(places[0]).text : "", places[1] ? " and " : "", places[1] ? Located(places[1]).text : "");
        memory.illegal(0, 0, text);
        return faulted;
    }

    // Runs a block until all threads have ended, one has made a forbidden access, or some wait for others that have
    // ended or wait elsewhere.
    Status block(uint32_t threads, uint64_t first_order) {
        // Without barriers, one fiber runs all threads.
        const uint32_t fibers_used = kernel->waits ? threads : 1;
        for (uint32_t i = 0; i < fibers_used; i++) {
            fibers[i]->state = State::ready;
        }
        here.first_of_block = phase + 1;
        if (before_block) {
            before_block(*kernel);
        }
        for (order = first_order;; order++) {
            uint32_t waiting = 0;
            here.phase = ++phase;
            begun = order != first_order;
            run_fibers(fibers_used);
            if (current->state == State::faulted) {
                return abandon(faulted);
            }
            for (uint32_t i = 0; i < fibers_used; i++) {
                waiting += fibers[i]->state == State::waiting ? 1 : 0;
            }
            if (counts) {
                count_phase(threads);
            }
            if (after_phase) {
                after_phase(threads);
            }
            if (waiting == 0) {
                return done;
            }
            for (uint32_t i = 0; i < threads; i++) {
                if (waiting != threads || fibers[i]->place != fibers[0]->place) {
                    return abandon(report_divergence(waiting, threads));
                }
            }
        }
    }
};

// Reports where a kernel accessed memory that does not exist. Then the fault takes its course.
void report_fault(int signal) {
    if (machine && machine->running) {
        char text[160];
        const int len = snprintf(
            text, sizeof(text), "cuda-sim: %s: illegal access by thread (%u, %u) of block (%u, %u, %u)\n",
            machine->kernel->name, here.thread.x, here.thread.y, here.block.x, here.block.y, here.block.z);
        if (write(STDERR_FILENO, text, static_cast<size_t>(len)) < 0) {
            // The message cannot be written anywhere.
        }
    }
    ::signal(signal, SIG_DFL);
}

// Called before each access of a kernel. A refused access is not made: the thread never returns.
void check(uintptr_t address, size_t bytes, bool is_store, const void* place) {
    if (counts && !machine->on_stack(address)) {
        machine->current->accesses.push_back({reinterpret_cast<uintptr_t>(place), address, bytes});
    }
    if (!memory.range) {
        return;
    }
    const char* why = nullptr;
    if (checked->own.shared.holds(address, bytes)) {
        why = checked->race(address, bytes, is_store);
        if (!why) {
            return;
        }
    } else if (checked->allowed(address, bytes)) {
        return;
    }
    char text[160];
    snprintf(
        text, sizeof(text), "%s of %zu bytes%s%s", is_store ? "a store" : "a load", bytes,
        why ? " in shared memory: " : "", why ? why : "");
    refuse(address, bytes, text);
}

}  // namespace

bool reachable(uintptr_t address, size_t bytes, Range* range) {
    const Range* found = machine->of_device(address, bytes);
    *range = found ? *found : *range;
    return found != nullptr;
}

Located::Located(const char* place) {
    char* rest;
    const size_t line = strtoul(place, &rest, 10);
    snprintf(text, sizeof(text), "line %zu%s", machine->kernel->first_line + line, rest);
}

void refuse(uintptr_t address, size_t bytes, const char* what) {
    char text[320];
    snprintf(
        text, sizeof(text), "thread (%u, %u, %u) of block (%u, %u, %u), %s", here.thread.x, here.thread.y, here.thread.z,
        here.block.x, here.block.y, here.block.z, what);
    if (memory.illegal) {
        memory.illegal(address, bytes, text);
    } else {
        fprintf(stderr, "cuda-sim: %s: %s\n", machine->kernel->name, text);
    }
    machine->leave(State::faulted);
    __builtin_unreachable();
}

void synchronize(const char* place) {
    machine->current->place = place;
    machine->leave(State::waiting);
}

uint64_t clock_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

void sleep_ns(uint32_t ns) {
    const timespec length = {static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
    nanosleep(&length, nullptr);
}

}  // namespace cuda_sim

// The functions that the compiler calls.
#define CUDA_SIM_ACCESS(bytes)                                       \
    extern "C" void __asan_load##bytes##_noabort(uintptr_t address) { \
        cuda_sim::check(address, bytes, false, __builtin_return_address(0));                    \
    }                                                                 \
    extern "C" void __asan_store##bytes##_noabort(uintptr_t address) { \
        cuda_sim::check(address, bytes, true, __builtin_return_address(0));                    \
    }
CUDA_SIM_ACCESS(1)
CUDA_SIM_ACCESS(2)
CUDA_SIM_ACCESS(4)
CUDA_SIM_ACCESS(8)
CUDA_SIM_ACCESS(16)

// A library of translated PTX exports these.
#pragma GCC visibility push(default)
extern "C" {

void __asan_loadN_noabort(uintptr_t address, size_t bytes) {
    cuda_sim::check(address, bytes, false, __builtin_return_address(0));
}

void __asan_storeN_noabort(uintptr_t address, size_t bytes) {
    cuda_sim::check(address, bytes, true, __builtin_return_address(0));
}

void __asan_handle_no_return() {}

// Makes each access of kernels be checked; to be called before the first launch. Launches then run one at a time.
void cuda_sim_check_with(
    bool (*range)(uintptr_t, uintptr_t*, uintptr_t*), void (*illegal)(uintptr_t, size_t, const char*)) {
    cuda_sim::memory = {range, illegal};
}

// Adds the memory accesses of launches to `counts` from now on; null ends this. Launches then run one at a time.
void cuda_sim_count(cuda_sim::Counts* counts) {
    cuda_sim::counts = counts;
}

size_t cuda_sim_kernel_count() {
    return cuda_sim::kernel_count;
}

const char* cuda_sim_kernel_name(size_t i) {
    return cuda_sim::kernels[i].name;
}

const cuda_sim::Kernel* cuda_sim_kernel(size_t i) {
    return &cuda_sim::kernels[i];
}

// Runs a kernel to its end. `order` decides in which order its blocks and threads run; 0 is that of their numbers.
// Returns 0; or 1 for a grid or memory that is not possible; 2 if not all threads of a block reach the same
// __syncthreads; 3 if an access was refused.
int cuda_sim_launch(
    size_t kernel, const uint32_t* grid, const uint32_t* block, const void* parameters, uint64_t order) {
    using namespace cuda_sim;
#ifdef CUDA_SIM_ONE_THREAD
    static Machine own;
#else
    static thread_local Machine own;
#endif
    const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
    const uint64_t blocks = uint64_t{grid[0]} * grid[1] * grid[2];
    if (threads == 0 || threads > kernels[kernel].most_threads || blocks == 0 || grid[1] > 65535 || grid[2] > 65535 ||
        !own.grow(static_cast<uint32_t>(threads))) {
        return refused;
    }
    static const auto unreported = std::signal(SIGSEGV, report_fault);
    static_cast<void>(unreported);
    machine = &own;
    checked = memory.range ? &own : nullptr;
    own.kernel = &kernels[kernel];
    own.parameters = parameters;
    // The memory of earlier launches may be gone.
    for (Range& range : own.known) {
        range = {};
    }
    here.block_size = {block[0], block[1], block[2]};
    here.grid_size = {grid[0], grid[1], grid[2]};
    here.first_of_launch = own.phase + 1;
    // A step without a common divisor with the number of blocks reaches each of them once.
    uint64_t next = order % blocks, step = 1;
    if (order > 0) {
        for (step = 1 + (order >> 20) % blocks; std::gcd(step, blocks) != 1; step++) {
        }
    }
    for (uint64_t i = 0; i < blocks; i++, next = (next + step) % blocks) {
        const auto x = static_cast<uint32_t>(next % grid[0]), y = static_cast<uint32_t>(next / grid[0] % grid[1]);
        here.block = {x, y, static_cast<uint32_t>(next / grid[0] / grid[1])};
        own.running = true;
        const Status status = own.block(static_cast<uint32_t>(threads), x + y + (order >> 10));
        own.running = false;
        if (status != done) {
            return status;
        }
    }
    return done;
}

// Maps whole pages for `bytes` bytes between two pages that must not be accessed: beyond them a kernel ends with a
// fault. Returns the end of the pages, or null.
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

// Unmaps the pages. `end` and `bytes` are those of cuda_sim_map.
void cuda_sim_unmap(unsigned char* end, size_t bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), usable = (bytes + page - 1) / page * page;
    munmap(end - usable - page, usable + 2 * page);
}

}  // extern "C"
#pragma GCC visibility pop
