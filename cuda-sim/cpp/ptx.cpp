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

// The driver gives addresses to device memory where nothing is mapped (driver/src/memory.rs): these, kApart in number.
// Its content lies kApart bytes further.
constexpr uint64_t kUnmapped = 0x200000000000, kApart = 0x100000000000;

constexpr size_t kPageBytes = 4096;
// At this number of pages, those of earlier launches are given up.
constexpr size_t kManyPages = 8192;
constexpr size_t kSlots = 4096;

std::unordered_map<uintptr_t, std::unique_ptr<Seen[]>> pages;
// The pages that were used last, by the low bits of their numbers. Each has the range that was accessed last in it, in a
// launch: the memory of earlier launches may be gone.
struct Slot {
    uintptr_t page;
    Seen* seen;
    cuda_sim::Range range;
    uint32_t launch;
} slots[kSlots];

inline Slot& slot_of(uintptr_t address) {
    const uintptr_t page = address / kPageBytes;
    Slot& slot = slots[page % kSlots];
    if (__builtin_expect(slot.page != page || !slot.seen, false)) {
        auto& found = pages[page];
        if (!found) {
            found = std::make_unique<Seen[]>(kPageBytes);
        }
        slot = {page, found.get(), {}, 0};
    }
    return slot;
}

// The shared memory of the block that runs. Addresses begin at kFirst, as on a device they do not begin at 0.
constexpr size_t kFirst = 1024;
constexpr size_t kMost = 100 << 10;
alignas(256) unsigned char shared_memory[kMost];
std::vector<Seen> shared_seen(kMost);
const cuda_sim::Kernel* kernel = nullptr;

void before_block_of(const cuda_sim::Kernel& running) {
    kernel = &running;
    ptx::begin_block(running);
    if (here.first_of_block == here.first_of_launch && pages.size() > kManyPages) {
        pages.clear();
        memset(static_cast<void*>(slots), 0, sizeof(slots));
    }
    for (const cuda_sim::Extent* variable = kernel->shared; variable < kernel->shared + kernel->shared_count; variable++) {
        // Kernels may load what the block has not stored, if the value does not matter.
        memset(shared_memory + variable->offset, static_cast<int>(ptx::rubbish() >> 56), variable->bytes);
    }
}

// The reason why another thread's access to a byte is in conflict; null if it is not. `first` is the first phase in
// which other blocks may have accessed the byte.
const char* conflict(uint32_t phase, uint16_t thread, uint32_t first, const char* block, const char* other) {
    if (phase < first) {
        return nullptr;
    }
    if (phase < here.first_of_block) {
        return block;
    }
    return phase == here.phase && thread != here.number ? other : nullptr;
}

constexpr char kBlockStored[] = "another block has stored them in this launch";
constexpr char kThreadStored[] = "another thread has stored them since the last barrier";
constexpr char kBlockLoaded[] = "another block has loaded them in this launch";
constexpr char kThreadLoaded[] = "another thread has loaded them since the last barrier";

// Notes the access to a byte. Returns the reason why it may not be made; null if it may.
template <Access access>
__attribute__((always_inline)) inline const char* note(Seen& byte, uint32_t first, bool changes) {
    const auto number = static_cast<uint16_t>(here.number);
    if constexpr (access == Access::load || access == Access::constant) {
        if (byte.stored >= first) {
            if (access == Access::constant) {
                return "they are not constant: the launch has stored them";
            }
            const auto storer = static_cast<uint16_t>(byte.storer & ~kAtomic);
            if (const char* why = conflict(byte.stored, storer, first, kBlockStored, kThreadStored)) {
                return why;
            }
        }
        if (access == Access::constant) {
            byte.constant = here.first_of_launch;
        }
        if (byte.loaded == here.phase) {
            byte.loader = byte.loader == number ? number : kSeveral;
        } else {
            if (byte.loaded >= first && byte.loaded < here.first_of_block) {
                byte.constant = here.first_of_launch;
            }
            byte.loaded = here.phase;
            byte.loader = number;
        }
        return nullptr;
    } else {
        if (byte.constant == here.first_of_launch) {
            return "another block has loaded them in this launch, or an instruction that takes them for constant";
        }
        if (const char* why = conflict(byte.loaded, byte.loader, first, kBlockLoaded, kThreadLoaded)) {
            return why;
        }
        const bool atomic = access == Access::atomic, both = atomic && (byte.storer & kAtomic) != 0;
        const auto storer = static_cast<uint16_t>(byte.storer & ~kAtomic);
        if (changes && !both && byte.stored >= first) {
            if (const char* why = conflict(byte.stored, storer, first, kBlockStored, kThreadStored)) {
                return why;
            }
        }
        // A thread's own stores of a phase are atomic if all are.
        const bool own = byte.stored == here.phase && storer == number;
        byte.storer = static_cast<uint16_t>(number | (atomic && (!own || both) ? kAtomic : 0));
        byte.stored = here.phase;
        return nullptr;
    }
}

[[noreturn]] __attribute__((noinline, cold)) void refuse(
    uint64_t address, size_t bytes, Access access, const char* where, const char* space, const char* why) {
    const char* const names[] = {"a load", "a load", "a store", "an atomic operation"};
    char text[280];
    snprintf(
        text, sizeof(text), "%s: %s of %zu bytes%s%s", cuda_sim::Located(where).text, names[static_cast<int>(access)], bytes, space, why);
    cuda_sim::refuse(address, bytes, text);
}

// Notes an access byte for byte.
template <Access access, size_t bytes>
inline void note_all(
    Seen* seen, uint64_t address, const unsigned char* memory, uint32_t first, uint32_t used, const void* stored,
    const char* where, const char* space) {
    for (size_t i = 0; i < bytes; i++) {
        if (access == Access::load && (used >> i & 1) == 0) {
            continue;
        }
        const bool changes = access != Access::store || static_cast<const unsigned char*>(stored)[i] != memory[i];
        if (const char* why = note<access>(seen[i], first, changes)) {
            refuse(address, bytes, access, where, space, why);
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
    snprintf(text, sizeof(text), "%s: %s", cuda_sim::Located(where).text, what);
    cuda_sim::refuse(0, 0, text);
}

template <Access access, size_t bytes>
unsigned char* global(uint64_t address, uint32_t used, const void* stored, const char* where) {
    if (address % bytes != 0) {
        refuse(address, bytes, access, where, ", which is misaligned,", "");
    }
    Slot& slot = slot_of(address);
    if (slot.launch != here.first_of_launch || !slot.range.holds(address, bytes)) {
        if (!cuda_sim::reachable(address, bytes, &slot.range)) {
            refuse(address, bytes, access, where, "", "");
        }
        slot.launch = here.first_of_launch;
    }
    const bool apart = address - kUnmapped < kApart;
    unsigned char* const memory = reinterpret_cast<unsigned char*>(address + (apart ? kApart : 0));
    Seen* const seen = slot.seen + address % kPageBytes;
    note_all<access, bytes>(seen, address, memory, here.first_of_launch, used, stored, where, ": ");
    return memory;
}

template <Access access, size_t bytes>
unsigned char* shared(uint64_t address, uint32_t used, const void* stored, const char* where) {
    if (address % bytes != 0) {
        refuse(address, bytes, access, where, " in shared memory, which is misaligned,", "");
    }
    const cuda_sim::Extent* variable = kernel->shared;
    while (address < variable->offset || address + bytes > variable->offset + variable->bytes) {
        if (++variable >= kernel->shared + kernel->shared_count) {
            refuse(address, bytes, access, where, " in shared memory, in none of the kernel's variables,", "");
        }
    }
    Seen* const seen = &shared_seen[address];
    unsigned char* const memory = shared_memory + address;
    note_all<access, bytes>(seen, address, memory, here.first_of_block, used, stored, where, " in shared memory: ");
    return memory;
}

#define PTX_ACCESS(access, bytes)                                                                                  \
    template unsigned char* global<Access::access, bytes>(uint64_t, uint32_t, const void*, const char*); \
    template unsigned char* shared<Access::access, bytes>(uint64_t, uint32_t, const void*, const char*);
#define PTX_ACCESSES(access) \
    PTX_ACCESS(access, 1) PTX_ACCESS(access, 2) PTX_ACCESS(access, 4) PTX_ACCESS(access, 8) PTX_ACCESS(access, 16)
PTX_ACCESSES(load)
PTX_ACCESSES(constant)
PTX_ACCESSES(store)
PTX_ACCESSES(atomic)

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
