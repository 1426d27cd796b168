// jpeg_count and jpeg_unstuff: copy the data of a scan without stuffed zeros and markers, and record the starts of its
// segments.
//
// Reads: the entropy-coded data of the file, up to the first marker that is not a restart marker.
// Writes: jpeg_count what each tile of 4096 bytes has; jpeg_unstuff the bytes, the bounds, and the number of kept bytes
// before each thread's.
// Grid: blocks of 256 threads, 16 bytes per thread. blockIdx.x is the tile, blockIdx.y the image.
// Reference: the CPU's decoder (warpfeed-image/src/decode), whose pixels come of it.
//
// Whether a byte is kept depends only on the byte before it. So each thread counts the bytes that it keeps, adds up the
// counts of all threads before it, and then writes. The first kernel does this for the tiles.

#include "jpeg_bytes.cuh"

namespace warpfeed::jpeg {

constexpr uint32_t kTileBytes = kThreads * kPieceBytes;

// Number of zeros after the data.
constexpr uint32_t kZeros = 28;

// Counts in one number: kept bytes, restart markers, and whether the data have ended.
constexpr uint64_t kOneByte = 1;
constexpr uint64_t kOneMarker = uint64_t{1} << 30;
constexpr uint64_t kEnd = uint64_t{1} << 60;

__device__ inline uint32_t bytes_in(uint64_t kept) {
    return static_cast<uint32_t>(kept) & 0x3fffffff;
}

__device__ inline uint32_t markers_in(uint64_t kept) {
    return static_cast<uint32_t>(kept >> 30) & 0x3fffffff;
}

// Bytes after the end do not count.
__device__ inline uint64_t add_kept(uint64_t a, uint64_t b) {
    return a >= kEnd ? a : a + b;
}

// Contents of a thread's bytes.
__device__ inline uint64_t kept_of(const Piece& piece, bool restarts) {
    if (piece.is_plain()) {
        return kOneByte * (kPieceBytes - piece.full_bytes());
    }
    uint64_t kept = 0;
    const bool ends =
        piece.each(restarts, [&](uint32_t) { kept += kOneByte; }, [&](uint32_t) { kept += kOneMarker; }, [] {});
    return kept + (ends ? kEnd : 0);
}

__device__ inline uint32_t tiles_of(const JpegImage& image) {
    return larger((image.data_bytes + kTileBytes - 1) / kTileBytes, 1u);
}

// The first byte of this thread.
__device__ inline uint32_t begin_of(const JpegImage& image) {
    return smaller(blockIdx.x * kTileBytes + kPieceBytes * threadIdx.x, image.data_bytes);
}

__device__ inline void count(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.y);
    if (!found || blockIdx.x >= tiles_of(*found)) {
        return;
    }
    const JpegImage& image = *found;
    __shared__ ScanMemory memory;
    uint64_t all;
    scan(memory, kept_of(Piece(image, begin_of(image)), image.segment_blocks > 0), all, add_kept);
    if (threadIdx.x == 0) {
        global(image.tiles)[blockIdx.x] = all;
    }
}

__device__ inline void unstuff(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.y);
    if (!found || blockIdx.x >= tiles_of(*found)) {
        return;
    }
    const JpegImage& image = *found;
    __shared__ ScanMemory memory;
    const bool restarts = image.segment_blocks > 0;
    const uint32_t segments = image.segments;
    uint8_t* const bytes = global(image.bytes);
    uint32_t* const bounds = global(image.bounds);

    // The tiles before this one: each thread adds up equally many.
    const uint32_t each = (blockIdx.x + kThreads - 1) / kThreads;
    const uint32_t first = smaller(each * threadIdx.x, blockIdx.x), last = smaller(first + each, blockIdx.x);
    uint64_t own = 0, before_tile, all;
#pragma unroll 1
    for (uint32_t tile = first; tile < last; tile++) {
        own = add_kept(own, global(image.tiles)[tile]);
    }
    scan(memory, own, before_tile, add_kept);
    const Piece piece(image, begin_of(image));
    const uint64_t before = add_kept(before_tile, scan(memory, kept_of(piece, restarts), all, add_kept));
    if (piece.length > 0) {
        global(image.kept)[begin_of(image) / kPieceBytes] = bytes_in(before);
    }
    if (before_tile >= kEnd) {
        return;
    }
    // Collected in shared memory, so that whole words are written.
    __shared__ uint32_t words[kTileBytes / 4 + 1];
    uint8_t* const collected = reinterpret_cast<uint8_t*>(words);
    const uint32_t begin = bytes_in(before_tile), base = begin / 4 * 4;
    if (before < kEnd) {
        uint32_t at = bytes_in(before), marker = markers_in(before);
        bool is_good = true;
        piece.each(
            restarts, [&](uint32_t byte) { collected[(at++ - base) ^ 3] = static_cast<uint8_t>(byte); },
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
    }
    const uint64_t up_to_here = add_kept(before_tile, all);
    const uint32_t end = bytes_in(up_to_here);
    __syncthreads();
#pragma unroll 1
    for (uint32_t at = base + 4 * threadIdx.x; at < end; at += 4 * kThreads) {
        const uint32_t first = larger(at, begin), last = smaller(at + 4, end);
        if (last - first == 4) {
            *reinterpret_cast<uint32_t*>(bytes + at) = words[(at - base) / 4];
            continue;
        }
        // Words at either end have bytes of other tiles.
#pragma unroll 1
        for (uint32_t byte = first; byte < last; byte++) {
            bytes[byte ^ 3] = collected[(byte - base) ^ 3];
        }
    }
    if (up_to_here < kEnd && blockIdx.x + 1 < tiles_of(image)) {
        return;
    }
    // Missing segments are empty. Zeros follow the data, so that a look-up may read beyond the end.
    const uint32_t markers = markers_in(up_to_here);
    if (threadIdx.x == 0) {
        bounds[0] = 0;
    }
    for (uint32_t i = markers + 1 + threadIdx.x; i <= segments; i += kThreads) {
        bounds[i] = end;
    }
    if (threadIdx.x < kZeros) {
        bytes[(end + threadIdx.x) ^ 3] = 0;
    }
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(256) jpeg_count(const warpfeed::Launch launch) {
    warpfeed::jpeg::count(launch);
}

extern "C" __global__ void __launch_bounds__(256) jpeg_unstuff(const warpfeed::Launch launch) {
    warpfeed::jpeg::unstuff(launch);
}
