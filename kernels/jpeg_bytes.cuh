// Places in the data of a scan, with and without stuffed zeros and markers.
#pragma once

#include "jpeg.cuh"

namespace warpfeed::jpeg {

constexpr uint32_t kPieceBytes = 16;

struct alignas(16) SixteenBytes {
    uint32_t words[kPieceBytes / 4];
};

// The bytes that one thread goes over.
struct Piece {
    uint32_t words[kPieceBytes / 4];
    uint32_t length;
    uint32_t before;

    __device__ Piece(const JpegImage& image, uint32_t begin)
        : words{}, length(smaller(image.data_bytes - begin, kPieceBytes)), before(0) {
        if (length > 0) {
            const uint8_t* const data = global(image.data) + begin;
            const SixteenBytes read = *reinterpret_cast<const SixteenBytes*>(data);
#pragma unroll
            for (uint32_t i = 0; i < kPieceBytes / 4; i++) {
                words[i] = read.words[i];
            }
            before = begin > 0 ? data[-1] : 0;
        }
    }

    // The bytes of a word that are 0xFF, each as its highest bit.
    __device__ uint32_t full(uint32_t word) const {
        return ((words[word] & 0x7f7f7f7f) + 0x01010101) & words[word] & 0x80808080;
    }

    // Number of bytes that are 0xFF.
    __device__ uint32_t full_bytes() const {
        uint32_t sums = 0;
#pragma unroll
        for (uint32_t i = 0; i < kPieceBytes / 4; i++) {
            sums += full(i) >> 7;
        }
        return sums * 0x01010101 >> 24;
    }

    // Whether there are neither markers nor fill bytes, nor the end of the data: each 0xFF precedes a stuffed zero.
    __device__ bool is_plain() const {
        uint32_t other = 0, carry = before == 0xff ? 0x80u : 0u;
#pragma unroll
        for (uint32_t i = 0; i < kPieceBytes / 4; i++) {
            const uint32_t not_zero = (((words[i] & 0x7f7f7f7f) + 0x7f7f7f7f) | words[i]) & 0x80808080;
            other |= (full(i) << 8 | carry) & not_zero;
            carry = full(i) >> 24;
        }
        return other == 0 && length == kPieceBytes;
    }

    // Goes over the bytes up to the end of the data, and returns whether the data end here. Calls `keep(byte)`,
    // `mark(byte)` for a restart marker, and `fill()` for a fill byte, which is a 0xFF before another 0xFF.
    template <typename Keep, typename Mark, typename Fill>
    __device__ bool each(bool restarts, Keep keep, Mark mark, Fill fill) const {
        uint32_t last = before;
#pragma unroll
        for (uint32_t i = 0; i < kPieceBytes; i++) {
            const uint32_t byte = words[i / 4] >> (8 * (i % 4)) & 0xff;
            if (i >= length) {
                break;
            }
            if (byte != 0xff) {
                if (last != 0xff) {
                    keep(byte);
                } else if (byte == 0) {
                    keep(0xffu);
                } else if (restarts && byte >= 0xd0 && byte <= 0xd7) {
                    mark(byte);
                } else {
                    return true;
                }
            } else if (last == 0xff) {
                fill();
            }
            last = byte;
        }
        return false;
    }
};

// Number of kept bytes before a place in the data.
__device__ inline uint32_t kept_before(const JpegImage& image, uint32_t at) {
    if (at == 0) {
        return 0;
    }
    const uint32_t number = (smaller(at, image.data_bytes) - 1) / kPieceBytes, begin = number * kPieceBytes;
    uint32_t kept = global(image.kept)[number];
    Piece piece(image, begin);
    piece.length = smaller(piece.length, at - begin);
    piece.each(true, [&](uint32_t) { kept++; }, [](uint32_t) {}, [] {});
    return kept;
}

// The bit without stuffed zeros and markers that is this one with them.
__device__ inline uint32_t unstuffed_bit(const JpegImage& image, uint32_t bit) {
    return smaller(8 * kept_before(image, bit / 8) + bit % 8, data_bits(image));
}

// The place in the data of kept byte number `byte`.
__device__ inline uint32_t place_of(const JpegImage& image, uint32_t byte) {
    // The last piece before which there are at most as many.
    uint32_t number = 0;
#pragma unroll 1
    for (uint32_t count = (image.data_bytes + kPieceBytes - 1) / kPieceBytes; count > 1;) {
        const uint32_t half = count / 2;
        const bool later = global(image.kept)[number + half] <= byte;
        number += later ? half : 0;
        count = later ? count - half : half;
    }
    const uint8_t* const data = global(image.data);
    const uint32_t end = smaller((number + 1) * kPieceBytes, image.data_bytes);
    uint32_t kept = global(image.kept)[number], at = number * kPieceBytes;
    uint32_t last = at > 0 ? data[at - 1] : 0;
#pragma unroll 1
    for (; at < end; at++) {
        const uint32_t next = data[at];
        const bool is_stuffed = last == 0xff && next == 0;
        if (is_stuffed || (last != 0xff && next != 0xff)) {
            if (kept == byte) {
                return is_stuffed ? at - 1 : at;
            }
            kept++;
        }
        last = next;
    }
    return at;
}

// The place in the data after kept byte number `byte`.
__device__ inline uint32_t place_after(const JpegImage& image, uint32_t byte) {
    const uint32_t place = place_of(image, byte);
    return place + (place < image.data_bytes && global(image.data)[place] == 0xff ? 2 : 1);
}

// The bit with stuffed zeros and markers that is this one without them.
__device__ inline uint32_t stuffed_bit(const JpegImage& image, uint32_t bit) {
    const uint32_t byte = bit / 8, bytes = data_bits(image) / 8;
    // At the end of the data is not a byte.
    const uint32_t place = byte < bytes || byte == 0 ? place_of(image, byte) : place_after(image, byte - 1);
    return 8 * place + bit % 8;
}

}  // namespace warpfeed::jpeg
