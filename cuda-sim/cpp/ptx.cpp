// Memory accesses of kernels that were translated from PTX. For each byte it is noted which threads have loaded and
// stored it in this launch. Two accesses race if different threads make them, one is a store, and no barrier of a block
// orders them. Stores of the same value are allowed, and so are atomic operations among themselves.

#include "ptx.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "machine.h"

namespace {

using cuda_sim::here;
using ptx::Access;

// The last accesses to a byte, by phase and thread.
struct Seen {
    uint32_t stored, loaded;
    // The first phase of a launch in which several blocks have loaded it, or an instruction that takes it for constant.
    uint32_t constant;
    uint16_t storer, loader;
};
constexpr uint16_t kSeveral = 0xffff;
// Added to the number of a storer that was atomic.
constexpr uint16_t kAtomic = 0x8000;

constexpr size_t kPageBytes = 4096;
// At this number of pages, those of earlier launches are given up.
constexpr size_t kManyPages = 8192;
constexpr size_t kSlots = 4096;

std::unordered_map<uintptr_t, std::unique_ptr<Seen[]>> pages;
// The pages that were used last, by the low bits of their numbers.
struct Slot {
    uintptr_t page;
    Seen* seen;
} slots[kSlots];

Seen* seen_of(uintptr_t address) {
    const uintptr_t page = address / kPageBytes;
    Slot& slot = slots[page % kSlots];
    if (slot.page != page || !slot.seen) {
        auto& found = pages[page];
        if (!found) {
            found = std::make_unique<Seen[]>(kPageBytes);
        }
        slot = {page, found.get()};
    }
    return slot.seen + address % kPageBytes;
}

// The shared memory of the block that runs. Addresses begin at kFirst, as on a device they do not begin at 0.
constexpr size_t kFirst = 1024;
constexpr size_t kMost = 100 << 10;
alignas(256) unsigned char shared_memory[kMost];
std::vector<Seen> shared_seen(kMost);
const cuda_sim::Kernel* kernel = nullptr;

void before_block_of(const cuda_sim::Kernel& running) {
    kernel = &running;
    if (here.first_of_block == here.first_of_launch && pages.size() > kManyPages) {
        pages.clear();
        memset(slots, 0, sizeof(slots));
    }
    for (const cuda_sim::Extent* variable = kernel->shared; variable < kernel->shared + kernel->shared_count; variable++) {
        // Kernels may load what the block has not stored, if the value does not matter.
        memset(shared_memory + variable->offset, static_cast<int>(ptx::rubbish() >> 56), variable->bytes);
    }
}

// The reason why the current thread may not make an access; null if it may. `first` is the first phase in which others
// may have accessed the byte.
const char* conflict(Seen& byte, uint32_t first, Access access, bool changes) {
    const auto number = static_cast<uint16_t>(here.number);
    const auto unordered = [&](uint32_t phase, uint16_t thread) {
        return phase >= first && (phase < here.first_of_block || (phase == here.phase && thread != number));
    };
    const auto storer = static_cast<uint16_t>(byte.storer & ~kAtomic);
    if (access == Access::load || access == Access::constant) {
        if (unordered(byte.stored, storer)) {
            return byte.stored < here.first_of_block ? "another block has stored them in this launch"
                                                     : "another thread has stored them since the last barrier";
        }
        if (access == Access::constant && byte.stored >= first) {
            return "they are not constant: the launch has stored them";
        }
        if (access == Access::constant || (byte.loaded >= first && byte.loaded < here.first_of_block)) {
            byte.constant = here.first_of_launch;
        }
        byte.loader = byte.loaded == here.phase && byte.loader != number ? kSeveral : number;
        byte.loaded = here.phase;
        return nullptr;
    }
    if (byte.constant == here.first_of_launch) {
        return "another block has loaded them in this launch, or an instruction that takes them for constant";
    }
    if (unordered(byte.loaded, byte.loader)) {
        return byte.loaded < here.first_of_block ? "another block has loaded them in this launch"
                                                 : "another thread has loaded them since the last barrier";
    }
    const bool atomic = access == Access::atomic, both = atomic && (byte.storer & kAtomic) != 0;
    if (changes && !both && unordered(byte.stored, storer)) {
        return byte.stored < here.first_of_block ? "another block has stored them in this launch"
                                                 : "another thread has stored them since the last barrier";
    }
    // A thread's own stores of a phase are atomic if all are.
    const bool own = byte.stored == here.phase && storer == number;
    byte.storer = static_cast<uint16_t>(number | (atomic && (!own || both) ? kAtomic : 0));
    byte.stored = here.phase;
    return nullptr;
}

[[noreturn]] void refuse(uint64_t address, size_t bytes, Access access, const char* where, const char* why) {
    const char* const names[] = {"a load", "a load", "a store", "an atomic operation"};
    char text[240];
    snprintf(text, sizeof(text), "%s: %s of %zu bytes%s", where, names[static_cast<int>(access)], bytes, why);
    cuda_sim::refuse(address, bytes, text);
}

// Checks what is equal for all memory, byte for byte.
void note(
    Seen* seen, uint64_t address, const unsigned char* memory, size_t bytes, uint32_t first, Access access,
    uint32_t used, const void* stored, const char* where, const char* space) {
    const unsigned char* const value = static_cast<const unsigned char*>(stored);
    for (size_t i = 0; i < bytes; i++) {
        if ((used >> i & 1) == 0) {
            continue;
        }
        if (const char* why = conflict(seen[i], first, access, !value || value[i] != memory[i])) {
            char text[160];
            snprintf(text, sizeof(text), "%s: %s", space, why);
            refuse(address, bytes, access, where, text);
        }
    }
}

}  // namespace

namespace cuda_sim {

void (*const before_block)(const Kernel&) = before_block_of;

}  // namespace cuda_sim

namespace ptx {

void fault(const char* where, const char* what) {
    char text[240];
    snprintf(text, sizeof(text), "%s: %s", where, what);
    cuda_sim::refuse(0, 0, text);
}

unsigned char* global(
    uint64_t address, size_t bytes, Access access, uint32_t used, const void* stored, const char* where) {
    if (address % bytes != 0) {
        refuse(address, bytes, access, where, ", which is misaligned,");
    }
    if (!cuda_sim::reachable(address, bytes)) {
        refuse(address, bytes, access, where, "");
    }
    unsigned char* const memory = reinterpret_cast<unsigned char*>(address);
    note(seen_of(address), address, memory, bytes, here.first_of_launch, access, used, stored, where, "");
    return memory;
}

unsigned char* shared(
    uint64_t address, size_t bytes, Access access, uint32_t used, const void* stored, const char* where) {
    if (address % bytes != 0) {
        refuse(address, bytes, access, where, " in shared memory, which is misaligned,");
    }
    bool found = false;
    for (const cuda_sim::Extent* variable = kernel->shared; variable < kernel->shared + kernel->shared_count; variable++) {
        found |= address >= variable->offset && address + bytes <= variable->offset + variable->bytes;
    }
    if (!found) {
        refuse(address, bytes, access, where, " in shared memory, in none of the kernel's variables,");
    }
    Seen* const seen = &shared_seen[address];
    unsigned char* const memory = shared_memory + address;
    note(seen, address, memory, bytes, here.first_of_block, access, used, stored, where, " in shared memory");
    return memory;
}

unsigned char* generic(
    uint64_t address, size_t bytes, Access access, uint32_t used, const void* stored, const char* where) {
    const bool is_shared = address >> 32 == kWindow >> 32;
    return is_shared ? shared(address - kWindow, bytes, access, used, stored, where)
                     : global(address, bytes, access, used, stored, where);
}

uint64_t to_shared(uint64_t address, const char* where) {
    if (address >> 32 != kWindow >> 32) {
        fault(where, "the address is not in shared memory");
    }
    return address - kWindow;
}

uint64_t to_global(uint64_t address, const char* where) {
    if (address >> 32 == kWindow >> 32) {
        fault(where, "the address is in shared memory");
    }
    return address;
}

}  // namespace ptx
