// The instructions of PTX, for the code that cuda-sim/ptx writes: one function for each. Registers hold bits; `as` reads
// them as a value, and `bits` makes bits of a value. Results are those of the PTX ISA 9.0, section "Instruction Set".
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda.h"
#include "kernel.h"

namespace ptx {

// Integers and floats by their size in bytes.
template <class T>
constexpr bool is_float = std::is_floating_point_v<T>;
template <class T>
constexpr uint32_t kBits = 8 * sizeof(T);

// A register's content as a value of another type. Of a wider register the low bits count.
template <class T, class R>
inline T as(R bits) {
    if constexpr (is_float<T>) {
        const std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t> same = bits;
        T value;
        __builtin_memcpy(&value, &same, sizeof(value));
        return value;
    } else {
        return static_cast<T>(bits);
    }
}

// The content of a register with a value, which is extended by its own sign.
template <class R, class T>
inline R bits(T value) {
    if constexpr (is_float<T>) {
        std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t> same;
        __builtin_memcpy(&same, &value, sizeof(value));
        return static_cast<R>(same);
    } else {
        return static_cast<R>(value);
    }
}

// Ends the launch. `where` names the instruction.
[[noreturn]] void fault(const char* where, const char* what);

// Tells the count of ways (ways.cpp) that a block of threads begins.
void begin_block(const cuda_sim::Kernel& kernel);

// The content of a register that nothing writes. It changes from thread to thread and from block to block, so that a
// result that depends on it changes too.
inline uint64_t rubbish() {
    uint64_t value = (uint64_t{cuda_sim::here.phase} << 32 | cuda_sim::here.number) * 0x9e3779b97f4a7c15;
    return (value ^ value >> 29) * 0xbf58476d1ce4e5b9;
}

// Notes that the thread enters a basic block, if launches are counted.
extern bool counting;
void enter(uint16_t basic_block);

inline void basic_block(uint16_t number) {
    if (__builtin_expect(counting, false)) {
        enter(number);
    }
}

// Arithmetic. Integers wrap. Floats are rounded to nearest, and an f32 that is not a number has one content.

template <class T>
inline T canonical(T value) {
    if constexpr (std::is_same_v<T, float>) {
        return value != value ? as<float>(0x7fffffffu) : value;
    }
    return value;
}

template <class T>
inline T add(T a, T b) {
    if constexpr (is_float<T>) {
        return canonical(a + b);
    } else {
        return static_cast<T>(uint64_t(a) + uint64_t(b));
    }
}

template <class T>
inline T sub(T a, T b) {
    if constexpr (is_float<T>) {
        return canonical(a - b);
    } else {
        return static_cast<T>(uint64_t(a) - uint64_t(b));
    }
}

// Of integers, the low half of the product.
template <class T>
inline T mul(T a, T b) {
    if constexpr (is_float<T>) {
        return canonical(a * b);
    } else {
        return static_cast<T>(uint64_t(a) * uint64_t(b));
    }
}

__extension__ typedef __int128 Product;

template <class T>
inline T mul_hi(T a, T b) {
    return static_cast<T>((Product(a) * Product(b)) >> kBits<T>);
}

// The whole product, in W of twice the size.
template <class W, class T>
inline W mul_wide(T a, T b) {
    return static_cast<W>(Product(a) * Product(b));
}

inline float fma(float a, float b, float c) {
    return canonical(__builtin_fmaf(a, b, c));
}

inline double fma(double a, double b, double c) {
    return __builtin_fma(a, b, c);
}

inline float sqrt(float a) {
    return canonical(__builtin_sqrtf(a));
}

inline double sqrt(double a) {
    return __builtin_sqrt(a);
}

template <class T>
inline T div(T a, T b, const char* where) {
    if constexpr (is_float<T>) {
        return canonical(a / b);
    } else {
        if (b == 0) {
            fault(where, "a division by zero");
        }
        return static_cast<T>(Product(a) / Product(b));
    }
}

template <class T>
inline T rem(T a, T b, const char* where) {
    if (b == 0) {
        fault(where, "a remainder of a division by zero");
    }
    return static_cast<T>(Product(a) % Product(b));
}

template <class T>
inline T neg(T a) {
    if constexpr (is_float<T>) {
        return -a;
    } else {
        return static_cast<T>(0 - uint64_t(a));
    }
}

template <class T>
inline T abs(T a) {
    if constexpr (std::is_same_v<T, float>) {
        return __builtin_fabsf(a);
    } else if constexpr (is_float<T>) {
        return __builtin_fabs(a);
    } else {
        return a < 0 ? neg(a) : a;
    }
}

// Of a number and NaN, the number. -0 is less than 0.
template <class T>
inline T min(T a, T b) {
    if constexpr (is_float<T>) {
        if (a != a || b != b) {
            return canonical(a != a ? b : a);
        }
        return a == b ? (__builtin_signbit(a) ? a : b) : (a < b ? a : b);
    } else {
        return a < b ? a : b;
    }
}

template <class T>
inline T max(T a, T b) {
    if constexpr (is_float<T>) {
        if (a != a || b != b) {
            return canonical(a != a ? b : a);
        }
        return a == b ? (__builtin_signbit(a) ? b : a) : (a > b ? a : b);
    } else {
        return a > b ? a : b;
    }
}

// Bits.

template <class T>
inline T shl(T a, uint32_t n) {
    return n >= kBits<T> ? T{0} : static_cast<T>(uint64_t(a) << n);
}

// Signed numbers are shifted in with their sign.
template <class T>
inline T shr(T a, uint32_t n) {
    if constexpr (std::is_signed_v<T>) {
        return static_cast<T>(a >> (n >= kBits<T> ? kBits<T> - 1 : n));
    } else {
        return n >= kBits<T> ? T{0} : static_cast<T>(a >> n);
    }
}

// Of the 64 bits `high`:`low`, shifted to the left, the upper half; or shifted to the right, the lower.
inline uint32_t shf_l(uint32_t low, uint32_t high, uint32_t n) {
    return static_cast<uint32_t>(((uint64_t{high} << 32 | low) << n) >> 32);
}

inline uint32_t shf_r(uint32_t low, uint32_t high, uint32_t n) {
    return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> n);
}

template <class T>
inline uint32_t clz(T a) {
    return a == 0 ? kBits<T> : static_cast<uint32_t>(__builtin_clzll(a)) - (64 - kBits<T>);
}

template <class T>
inline uint32_t popc(T a) {
    return static_cast<uint32_t>(__builtin_popcountll(a));
}

template <class T>
inline T brev(T a) {
    T reversed = 0;
    for (uint32_t i = 0; i < kBits<T>; i++) {
        reversed = static_cast<T>(reversed << 1 | (a >> i & 1));
    }
    return reversed;
}

// The bits of `length` from `first` on, extended by the sign of a signed type; places beyond the type have its sign.
template <class T>
inline T bfe(T a, uint32_t first, uint32_t length) {
    first &= 255;
    length &= 255;
    if (length == 0) {
        return 0;
    }
    const uint32_t last = first + length - 1 < kBits<T> ? first + length - 1 : kBits<T> - 1;
    const bool sign = std::is_signed_v<T> && (a >> last & 1);
    uint64_t found = sign ? ~uint64_t{0} : 0;
    for (uint32_t i = 0; i < length && first + i < kBits<T>; i++) {
        found = (found & ~(uint64_t{1} << i)) | uint64_t(a >> (first + i) & 1) << i;
    }
    return static_cast<T>(found);
}

// `into` with its bits from `first` on replaced by the `length` lowest of `a`.
template <class T>
inline T bfi(T a, T into, uint32_t first, uint32_t length) {
    first &= 255;
    length &= 255;
    for (uint32_t i = 0; i < length && first + i < kBits<T>; i++) {
        into = static_cast<T>((into & ~(T{1} << (first + i))) | (a >> i & 1) << (first + i));
    }
    return into;
}

// Four bytes of the eight of `b`:`a`, chosen by four nibbles. The highest bit of a nibble asks for the byte's sign.
inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t nibbles) {
    const uint64_t from = uint64_t{b} << 32 | a;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t nibble = nibbles >> (4 * i) & 15;
        const uint32_t byte = static_cast<uint32_t>(from >> (8 * (nibble & 7))) & 255;
        chosen |= (nibble < 8 ? byte : byte > 127 ? 255u : 0u) << (8 * i);
    }
    return chosen;
}

// The sum of two products of unsigned halves of `a` and low bytes of `b`, and of `c`.
inline uint32_t dp2a_lo(uint32_t a, uint32_t b, uint32_t c) {
    return c + (a & 0xffff) * (b & 0xff) + (a >> 16) * (b >> 8 & 0xff);
}

// Comparisons. With NaN, those of the first group are false and those of the second true.

template <class T>
inline bool eq(T a, T b) {
    return a == b;
}

template <class T>
inline bool ne(T a, T b) {
    return a < b || a > b;
}

template <class T>
inline bool lt(T a, T b) {
    return a < b;
}

template <class T>
inline bool le(T a, T b) {
    return a <= b;
}

template <class T>
inline bool gt(T a, T b) {
    return a > b;
}

template <class T>
inline bool ge(T a, T b) {
    return a >= b;
}

template <class T>
inline bool equ(T a, T b) {
    return !ne(a, b);
}

template <class T>
inline bool neu(T a, T b) {
    return !(a == b);
}

template <class T>
inline bool ltu(T a, T b) {
    return !(a >= b);
}

template <class T>
inline bool leu(T a, T b) {
    return !(a > b);
}

template <class T>
inline bool gtu(T a, T b) {
    return !(a <= b);
}

template <class T>
inline bool geu(T a, T b) {
    return !(a < b);
}

template <class T>
inline bool num(T a, T b) {
    return a == a && b == b;
}

template <class T>
inline bool nan(T a, T b) {
    return !num(a, b);
}

// Conversions.

template <class T>
constexpr T kLeast = std::is_signed_v<T> ? static_cast<T>(uint64_t{1} << (kBits<T> - 1)) : T{0};
template <class T>
constexpr T kMost = static_cast<T>(~kLeast<T>);

// Rounds to an integer: to the nearest (even), to zero, down, up.
template <class T>
inline T rni(T a) {
    return canonical(static_cast<T>(sizeof(T) == 4 ? __builtin_rintf(static_cast<float>(a)) : __builtin_rint(a)));
}

template <class T>
inline T rzi(T a) {
    return canonical(static_cast<T>(sizeof(T) == 4 ? __builtin_truncf(static_cast<float>(a)) : __builtin_trunc(a)));
}

template <class T>
inline T rmi(T a) {
    return canonical(static_cast<T>(sizeof(T) == 4 ? __builtin_floorf(static_cast<float>(a)) : __builtin_floor(a)));
}

template <class T>
inline T rpi(T a) {
    return canonical(static_cast<T>(sizeof(T) == 4 ? __builtin_ceilf(static_cast<float>(a)) : __builtin_ceil(a)));
}

// A float that has been rounded, as an integer: the nearest that the type has.
template <class D, class S>
inline D to_integer(S a) {
    if (a != a) {
        const bool zero = sizeof(S) == 4 && sizeof(D) < 8;
        return zero ? D{0} : static_cast<D>(uint64_t{1} << (kBits<D> - 1));
    }
    if (a <= static_cast<S>(kLeast<D>)) {
        return kLeast<D>;
    }
    return a >= static_cast<S>(kMost<D>) ? kMost<D> : static_cast<D>(a);
}

template <class D, class S>
inline D to_float(S a) {
    return canonical(static_cast<D>(a));
}

// An integer limited to another type's range.
template <class D, class S>
inline D sat(S a) {
    const Product value = a;
    return value < Product(kLeast<D>) ? kLeast<D> : value > Product(kMost<D>) ? kMost<D> : static_cast<D>(a);
}

// Memory. Each access is checked before it is made: its alignment, whether the memory exists, and whether other threads
// access the same bytes without an order. `where` names the instruction.

enum class Access { load, constant, store, atomic };

// The addresses in which generic addresses mean shared memory: a window that no host has.
constexpr uint64_t kWindow = uint64_t{0x53} << 48;

// Check an access and return the memory on the host. Of a load's bytes, those of the mask `used` are used. A store
// brings its bytes in `stored`.
template <Access access, size_t bytes>
unsigned char* global(uint64_t address, uint32_t used, const void* stored, const char* where);
template <Access access, size_t bytes>
unsigned char* shared(uint64_t address, uint32_t used, const void* stored, const char* where);

struct Global {
    template <Access access, size_t bytes>
    static unsigned char* at(uint64_t address, uint32_t used, const void* stored, const char* where) {
        return global<access, bytes>(address, used, stored, where);
    }
};

struct Shared {
    template <Access access, size_t bytes>
    static unsigned char* at(uint64_t address, uint32_t used, const void* stored, const char* where) {
        return shared<access, bytes>(address, used, stored, where);
    }
};

struct Generic {
    template <Access access, size_t bytes>
    static unsigned char* at(uint64_t address, uint32_t used, const void* stored, const char* where) {
        const bool is_shared = address >> 32 == kWindow >> 32;
        return is_shared ? shared<access, bytes>(address - kWindow, used, stored, where)
                         : global<access, bytes>(address, used, stored, where);
    }
};

template <class Space, Access access, class T, size_t n>
inline void load(T (&values)[n], uint64_t address, const char* where, uint32_t used = ~0u) {
    const unsigned char* const from = Space::template at<access, sizeof(values)>(address, used, nullptr, where);
    __builtin_memcpy(values, from, sizeof(values));
}

template <class Space, class T, size_t n>
inline void store(const T (&values)[n], uint64_t address, const char* where) {
    unsigned char* const to = Space::template at<Access::store, sizeof(values)>(address, ~0u, values, where);
    __builtin_memcpy(to, values, sizeof(values));
}

// An atomic operation, which `change` makes of the old value. Returns the old value.
template <class Space, class T, class Change>
inline T atom(uint64_t address, const char* where, Change change) {
    unsigned char* const at = Space::template at<Access::atomic, sizeof(T)>(address, ~0u, nullptr, where);
    T old;
    __builtin_memcpy(&old, at, sizeof(old));
    const T changed = change(old);
    __builtin_memcpy(at, &changed, sizeof(changed));
    return old;
}

// The kernel's parameters.
template <class T, size_t n>
inline void load_parameter(T (&values)[n], const void* parameters, size_t offset) {
    __builtin_memcpy(values, static_cast<const unsigned char*>(parameters) + offset, sizeof(values));
}

// Addresses between the spaces.
inline uint64_t from_shared(uint64_t address) {
    return kWindow + address;
}

uint64_t to_shared(uint64_t address, const char* where);
uint64_t to_global(uint64_t address, const char* where);

}  // namespace ptx
