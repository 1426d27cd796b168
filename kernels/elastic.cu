// elastic: moves every pixel by a displacement of its own, in three launches: noise, its blur along rows, and its blur
// along columns together with the sampling.
//
// Inputs: one ElasticSample per image (descriptors.cuh), which is complete. Single-precision sums are added up in the
// CPU's order.
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/elastic.rs; byte for byte.

#include "grid.cuh"
#include "noise.cuh"

namespace warpfeed {

// Whether the whole image has the thread's pixel.
__device__ inline bool has_place(const Place<ElasticSample>& here) {
    return here.sample && here.inside(here.sample->source.whole_width, here.sample->source.whole_height);
}

__device__ inline size_t pair_of(const ElasticSample& sample, int32_t x, int32_t y) {
    return static_cast<size_t>(y) * sample.source.whole_width + static_cast<size_t>(x);
}

// A number of -1 to 1.
__host__ __device__ inline float uniform_share(uint32_t word) {
    return static_cast<float>(word >> 8) * (1.0f / (1 << 23)) - 1.0f;
}

__device__ inline void elastic_noise(const Launch& launch) {
    const Place<ElasticSample> here(launch);
    if (has_place(here)) {
        const Words words = words_of(here.sample->key, here.x, here.y);
        here.sample->noise[pair_of(*here.sample, here.x, here.y)] = {uniform_share(words.of[0]), uniform_share(words.of[1])};
    }
}

// The weighted sum of `at(offset)` over the blur's offsets.
template <typename At>
__device__ inline Pair blurred(const ElasticSample& sample, At at) {
    const int32_t radius = static_cast<int32_t>(sample.radius);
    Pair sum = {0.0f, 0.0f};
#pragma unroll 1
    for (int32_t offset = -radius; offset <= radius; offset++) {
        const float weight = sample.weights[offset + radius];
        const Pair value = at(offset);
        sum.x += weight * value.x;
        sum.y += weight * value.y;
    }
    return sum;
}

__device__ inline void elastic_rows(const Launch& launch) {
    const Place<ElasticSample> here(launch);
    if (!has_place(here)) {
        return;
    }
    const ElasticSample& sample = *here.sample;
    const int32_t width = static_cast<int32_t>(sample.source.whole_width);
    const int32_t x = static_cast<int32_t>(here.x), y = static_cast<int32_t>(here.y);
    sample.between[pair_of(sample, x, y)] =
        blurred(sample, [&](int32_t offset) { return sample.noise[pair_of(sample, reflect(x + offset, width), y)]; });
}

__device__ inline uint32_t elastic(const ElasticSample& sample, int32_t x, int32_t y) {
    const SourceImage& source = sample.source;
    const int32_t height = static_cast<int32_t>(source.whole_height);
    const Pair field =
        blurred(sample, [&](int32_t offset) { return sample.between[pair_of(sample, x, reflect(y + offset, height))]; });
    const float moved_x = field.x * sample.scale_x, moved_y = field.y * sample.scale_y;
    const auto inside = [&](int32_t column, int32_t row) {
        return static_cast<uint32_t>(column) < source.whole_width && static_cast<uint32_t>(row) < source.whole_height;
    };
    if (!sample.bilinear) {
        const int32_t column = x + static_cast<int32_t>(rintf(moved_x)), row = y + static_cast<int32_t>(rintf(moved_y));
        return inside(column, row) ? at(source, column, row) : sample.fill;
    }
    const float whole_x = floorf(moved_x), whole_y = floorf(moved_y);
    const float right = moved_x - whole_x, lower = moved_y - whole_y;
    const float left = 1.0f - right, upper = 1.0f - lower;
    const int32_t column = x + static_cast<int32_t>(whole_x), row = y + static_cast<int32_t>(whole_y);
    float sums[3] = {}, share_inside = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int32_t from_x = column + i % 2, from_y = row + i / 2;
        if (inside(from_x, from_y)) {
            const float share = (i % 2 ? right : left) * (i / 2 ? lower : upper);
            const uint32_t pixel = at(source, from_x, from_y);
#pragma unroll
            for (int c = 0; c < 3; c++) {
                sums[c] += share * static_cast<float>(channel(pixel, c));
            }
            share_inside += share;
        }
    }
    uint32_t pixel = 0;
#pragma unroll
    for (int c = 0; c < 3; c++) {
        const float fill = static_cast<float>(channel(sample.fill, c));
        const float value = (sums[c] - fill) * share_inside + fill;
        pixel |= static_cast<uint32_t>(rintf(clamp(value, 0.0f, 255.0f))) << (8 * c);
    }
    return pixel;
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) elastic_noise_f32(const warpfeed::Launch launch) {
    warpfeed::elastic_noise(launch);
}

extern "C" __global__ void __launch_bounds__(256) elastic_rows_f32(const warpfeed::Launch launch) {
    warpfeed::elastic_rows(launch);
}

extern "C" __global__ void __launch_bounds__(256) elastic_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::ElasticSample>(launch, warpfeed::elastic);
}
