// jpeg_rgb: upsampling and color, into the rectangle of interleaved RGB that other kernels read. libjpeg interpolates chroma
// ("fancy upsampling") at pairs of pixels, and repeats it elsewhere.
//
// Reads: each component's samples of the window. Writes: the rectangle.
// Grid: a pixel a thread, in blocks of 32 x 8; blockIdx.z is the image.
// Reference: src/decode/model/rgb.rs.
//
// Coordinates are those of the whole image: rows and columns beyond its last sample repeat that, and what MCUs hold behind it
// is never seen.

#include "jpeg.cuh"

namespace warpfeed::jpeg {

__device__ inline uint32_t sample(const JpegComponent& plane, uint32_t x, uint32_t y) {
    const uint32_t column = smaller(x, plane.last_x) - plane.x, row = smaller(y, plane.last_y) - plane.y;
    return global(plane.samples)[static_cast<size_t>(row) * plane.row_samples + column];
}

// A component's value for pixel (x, y).
__device__ inline uint32_t value(const JpegComponent& plane, uint32_t x, uint32_t y) {
    const uint32_t across = plane.across, down = plane.down;
    if (across == 1 && down == 1) {
        return sample(plane, x, y);
    }
    const uint32_t column = x / across, row = y / down;
    // Of a pair of pixels, each looks to its own side.
    const uint32_t odd_column = x % 2, odd_row = y % 2;
    const uint32_t beside = odd_column ? column + 1 : larger(column, 1u) - 1;
    const uint32_t over = odd_row ? row + 1 : larger(row, 1u) - 1;
    const bool is_wide = plane.last_x >= 2;
    if (across == 2 && down == 1 && is_wide) {
        return (3 * sample(plane, column, row) + sample(plane, beside, row) + 1 + odd_column) >> 2;
    }
    if (across == 1 && down == 2) {
        return (3 * sample(plane, column, row) + sample(plane, column, over) + 1 + odd_row) >> 2;
    }
    if (across == 2 && down == 2 && is_wide) {
        const uint32_t near = 3 * sample(plane, column, row) + sample(plane, column, over);
        const uint32_t far = 3 * sample(plane, beside, row) + sample(plane, beside, over);
        return (3 * near + far + 8 - odd_column) >> 4;
    }
    return sample(plane, column, row);
}

// Luma and chroma, in 16-bit fixed point.
__device__ inline uint32_t clamped(uint32_t luma, int32_t chroma) {
    return static_cast<uint32_t>(clamp(static_cast<int32_t>(luma) + ((chroma + 32768) >> 16), 0, 255));
}

__device__ inline void rgb(const Launch& launch) {
    const JpegImage* const found = image_of(launch, blockIdx.z);
    const uint32_t x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (!found || x >= found->width || y >= found->height) {
        return;
    }
    const JpegImage& image = *found;
    const auto at = [&](int component) { return value(image.components[component], image.x + x, image.y + y); };
    const uint32_t first = at(0);
    uint32_t pixel = pack(first, first, first);
    if (image.color != JpegColor::gray) {
        const uint32_t second = at(1), third = at(2);
        const int32_t blue = static_cast<int32_t>(second) - 128, red = static_cast<int32_t>(third) - 128;
        pixel = image.color == JpegColor::rgb
                    ? pack(first, second, third)
                    : pack(clamped(first, 91881 * red), clamped(first, -22554 * blue - 46802 * red),
                           clamped(first, 116130 * blue));
    }
    store(global(image.pixels) + place(3 * image.width, static_cast<int32_t>(x), static_cast<int32_t>(y)), pixel);
}

}  // namespace warpfeed::jpeg

extern "C" __global__ void __launch_bounds__(256) jpeg_rgb(const warpfeed::Launch launch) {
    warpfeed::jpeg::rgb(launch);
}
