// jpeg_unstuff: copies the data of a scan without stuffed zeros and markers, and records the starts of its segments.
//
// Reads: the entropy-coded data of the file, up to the first marker that is not a restart marker.
// Grid: a block of 256 threads per image (blockIdx.x). The block takes 4096 bytes at a time, 16 per thread.
// Reference: warpfeed-image/src/decode/kernel_steps/unstuff.rs.
//
// Whether a byte is kept depends only on the byte before it. So each thread counts the bytes that it keeps, adds up the
// counts of all threads before it, and then writes.

#include "jpeg.cuh"

namespace warpfeed::jpeg {

constexpr uint32_t kThreadBytes = 16;

struct alignas(16) SixteenBytes {
    uint32_t words[kThreadBytes / 4];
};

// Counts for `scan` in one number: kept bytes, restart markers, and whether the data have ended.
constexpr uint64_t kOneByte = 1;
constexpr uint64_t kOneMarker = uint64_t{1} << 20;
constexpr uint64_t kOneEnd = uint64_t{1} << 40;

__device__ inline uint32_t bytes_in(uint64_t kept) {
    return static_cast<uint32_t>(kept) & 0xfffff;
}

__device__ inline uint32_t markers_in(uint64_t kept) {
    return static_cast<uint32_t>(kept >> 20) & 0xfffff;
}

// A thread's bytes.
struct Piece {
    uint32_t words[kThreadBytes / 4];
    uint32_t length;
    uint32_t before;

    // Goes over the bytes up to the end of the data, and returns whether the data end here. Calls `keep(byte)`,
    // `mark(byte)` for a restart marker, and `fill()` for a fill byte, which is a 0xFF before another 0xFF.
    template <typename Keep, typename Mark, typename Fill>
    __device__ bool each(bool restarts, Keep keep, Mark mark, Fill fill) const {
        uint32_t last = before;
#pragma unroll
        for (uint32_t i = 0; i < kThreadBytes; i++) {
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

__device__ inline void unstuff(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.x);
    if (!found) {
        return;
    }
    const JpegImage& image = *found;
    __shared__ ScanMemory memory;
    __shared__ uint32_t ended[2];
    const bool restarts = image.segment_blocks > 0;
    const uint32_t segments = image.segments, data_bytes = image.data_bytes;
    uint8_t* const bytes = global(image.bytes);
    uint32_t* const bounds = global(image.bounds);
    uint32_t length = 0, markers = 0;
#pragma unroll 1
    for (uint32_t chunk = 0; chunk < data_bytes; chunk += kThreads * kThreadBytes) {
        const uint32_t begin = smaller(chunk + kThreadBytes * threadIdx.x, data_bytes);
        Piece piece = {{}, smaller(data_bytes - begin, kThreadBytes), 0};
        if (piece.length > 0) {
            const uint8_t* const data = global(image.data) + begin;
            const SixteenBytes read = *reinterpret_cast<const SixteenBytes*>(data);
#pragma unroll
            for (uint32_t i = 0; i < kThreadBytes / 4; i++) {
                piece.words[i] = read.words[i];
            }
            piece.before = begin > 0 ? data[-1] : 0;
        }
        uint64_t own = 0, all;
        const bool ends =
            piece.each(restarts, [&](uint32_t) { own += kOneByte; }, [&](uint32_t) { own += kOneMarker; }, [] {});
        own += ends ? kOneEnd : 0;
        const uint64_t before = scan(memory, own, all, [](uint64_t a, uint64_t b) { return a + b; });
        if (before < kOneEnd) {
            uint32_t at = length + bytes_in(before), marker = markers + markers_in(before);
            bool is_good = true;
            piece.each(
                restarts, [&](uint32_t byte) { bytes[at++ ^ 3] = static_cast<uint8_t>(byte); },
                [&](uint32_t byte) {
                    is_good &= byte == 0xd0 + (image.first_restart + marker) % 8;
                    marker++;
                    if (marker <= segments) {
                        bounds[marker] = at;
                    }
                },
                [&] { is_good = false; });
            if (!is_good) {
                atomicOr(image.status, kDamaged);
            }
            if (ends) {
                ended[0] = at;
                ended[1] = marker;
            }
        }
        if (all >= kOneEnd) {
            __syncthreads();
            length = ended[0];
            markers = ended[1];
            break;
        }
        length += bytes_in(all);
        markers += markers_in(all);
    }
    // Missing segments are empty. Zeros follow the data, so that a look-up may read beyond the end.
    if (threadIdx.x == 0) {
        bounds[0] = 0;
    }
    for (uint32_t i = markers + 1 + threadIdx.x; i <= segments; i += kThreads) {
        bounds[i] = length;
    }
    if (threadIdx.x < 8) {
        bytes[(length + threadIdx.x) ^ 3] = 0;
    }
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(256) jpeg_unstuff(const warpfeed::Launch launch) {
    warpfeed::jpeg::unstuff(launch);
}
