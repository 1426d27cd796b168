// jpeg_rgb: upsampling and color conversion into the rectangle of interleaved RGB that other kernels read. libjpeg
// interpolates chroma ("fancy upsampling") for pairs of pixels, and repeats it in all other cases.
//
// Reads: each component's samples of the window. Writes: the rectangle.
// Grid: four pixels per thread, in blocks of 32 x 8; blockIdx.z is the image. The four pixels are those around a corner
// with even coordinates in the whole image. With or without interpolation, they depend on the same four samples of each
// component.
// Reference: the CPU's decoder (warpfeed-image/src/decode), whose pixels come of it.
//
// Coordinates are those of the whole image. Rows and columns beyond its last sample repeat this sample; the rest of the
// MCUs is never used.

#include "jpeg.cuh"

namespace warpfeed::jpeg {

// x / by, for x below 2^16 and by from 1 to 4.
__device__ inline uint32_t quotient(uint32_t x, uint32_t by) {
    return by == 1 ? x : x * (by == 2 ? 65536u : by == 3 ? 43691u : 32768u) >> 17;
}

// A component's values for two pixels side by side, 16 bits each, the left one in the low half.
struct Pair {
    uint32_t values;

    __device__ uint32_t of(uint32_t pixel) const { return values >> (16 * pixel) & 0xff; }
};

// A component's values for four pixels.
struct Quad {
    Pair rows[2];
};

// A component's values for the four pixels around the corner at (x, y), the upper left corner of pixel (x, y). x and y
// are even. All four pixels depend on the same four samples.
__device__ inline Quad quad(const JpegComponent& plane, uint32_t x, uint32_t y) {
    const auto column = [&](uint32_t x) {
        return smaller(larger(quotient(x, plane.across), plane.x), plane.last_x) - plane.x;
    };
    const auto row = [&](uint32_t y) {
        const uint32_t at = smaller(larger(quotient(y, plane.down), plane.y), plane.last_y) - plane.y;
        return global(plane.samples) + static_cast<size_t>(at) * plane.row_samples;
    };
    const uint32_t left = column(larger(x, 1u) - 1), right = column(x);
    const uint8_t* const above = row(larger(y, 1u) - 1);
    const uint8_t* const below = row(y);
    const uint32_t top = above[left] | static_cast<uint32_t>(above[right]) << 16;
    const uint32_t bottom = below[left] | static_cast<uint32_t>(below[right]) << 16;

    // Three parts of the nearer sample and one part of the other, or the nearer one alone.
    const uint32_t down = plane.blends_down, across = plane.blends_across;
    const uint32_t bias = across ? (down ? 0x00080007 : 0x00010002) : 0, shift = 2 * (across + down);
    const auto blended = [&](uint32_t near, uint32_t far, uint32_t rounding) {
        const uint32_t both = (1 + 2 * down) * near + down * far;
        const uint32_t swapped = both << 16 | both >> 16;
        const uint32_t sums = (1 + 2 * across) * both + across * swapped + (across ? bias : down * rounding);
        return Pair{sums >> shift & 0x00ff00ff};
    };
    return {{blended(top, bottom, 0x00020002), blended(bottom, top, 0x00010001)}};
}

// libjpeg's conversion, in 16-bit fixed point.
__device__ inline uint32_t from_ycc(uint32_t luma, uint32_t cb, uint32_t cr) {
    const int32_t blue = static_cast<int32_t>(cb) - 128, red = static_cast<int32_t>(cr) - 128;
    const auto clamped = [&](int32_t chroma) {
        return static_cast<uint32_t>(clamp(static_cast<int32_t>(luma) + ((chroma + 32768) >> 16), 0, 255));
    };
    return pack(clamped(91881 * red), clamped(-22554 * blue - 46802 * red), clamped(116130 * blue));
}

__device__ inline void rgb(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.z);
    if (!found) {
        return;
    }
    const JpegImage& image = *found;
    const uint32_t left = image.x, top = image.y, width = image.width, height = image.height;
    const uint32_t x = (left + 1) / 2 * 2 + 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    const uint32_t y = (top + 1) / 2 * 2 + 2 * (blockIdx.y * blockDim.y + threadIdx.y);
    if (x > left + width || y > top + height) {
        return;
    }
    const JpegColor color = image.color;
    uint8_t* const pixels = global(image.pixels);
    const Quad first = quad(image.components[0], x, y);
    Quad second = first, third = first;
    if (color != JpegColor::gray) {
        second = quad(image.components[1], x, y);
        third = quad(image.components[2], x, y);
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t at = i % 2, row = i / 2;
        // For pixels before the rectangle these numbers are huge.
        const uint32_t column = x - 1 + at - left, line = y - 1 + row - top;
        if (column < width && line < height) {
            const uint32_t a = first.rows[row].of(at), b = second.rows[row].of(at), c = third.rows[row].of(at);
            const uint32_t pixel = color == JpegColor::ycc ? from_ycc(a, b, c) : pack(a, b, c);
            store(pixels + place(3 * width, static_cast<int32_t>(column), static_cast<int32_t>(line)), pixel);
        }
    }
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(256) jpeg_rgb(const warpfeed::Launch launch) {
    warpfeed::jpeg::rgb(launch);
}
