// planes_finish: writes planes to the batch: normalization, cast, layout and erasures.
//
// Inputs: one PlanesFinishSample per image (descriptors.cuh): a complete image of the output's size.
// Output: elements of any type, NCHW or NHWC.
// Grid: one pixel per thread, in all planes (grid.cuh).
// Reference: src/backend/cpu/values/output.rs; byte for byte.

#include "planes.cuh"
#include "planes_noise.cuh"

namespace warpfeed {

// The bits of an element. `Number::rounded` is for numbers.
__host__ __device__ inline uint32_t element_of(uint32_t elements, float value) {
    const uint32_t bits = bits_as<uint32_t>(value);
    const bool is_number = value == value;
    switch (elements) {
        case kToF16: return is_number ? F16::rounded(value) : (bits >> 16 & 0x8000) | 0x7e00 | (bits >> 13 & 0x3ff);
        case kToBf16: return is_number ? Bf16::rounded(value) : bits >> 16 | 0x40;
        default: return bits;
    }
}

// The last erasure that a pixel is in; null if it is in none.
__host__ __device__ inline const PlanesErasure* erasure_at(const PlanesFinishSample& sample, uint32_t x, uint32_t y) {
    for (uint32_t last = sample.erasure_count; last > 0; last--) {
        const PlanesErasure& erasure = global(sample.erasures)[last - 1];
        if (x >= erasure.left && x < erasure.right && y >= erasure.top && y < erasure.bottom) {
            return &erasure;
        }
    }
    return nullptr;
}

__device__ inline void planes_finish(const Launch& launch) {
    const Place<PlanesFinishSample> here(launch);
    if (!here.sample || !here.inside(here.sample->source.width, here.sample->source.height)) {
        return;
    }
    const PlanesFinishSample& sample = *here.sample;
    const PlanesImage& source = sample.source;
    const BatchPlace& output = sample.output;
    const size_t at = place(source, static_cast<int32_t>(here.x), static_cast<int32_t>(here.y));
    const size_t row = static_cast<size_t>(here.y) * output.row_stride;
    const size_t first = row + static_cast<size_t>(here.x) * (sample.interleaved ? source.channels : 1);
    const size_t step = sample.interleaved ? 1 : output.plane_stride;
    const PlanesErasure* const erasure = erasure_at(sample, here.x, here.y);
    Deviates deviates = {erasure ? erasure->key : 0, here.x, here.y, sample.normals, {}};
    for (uint32_t channel = 0; channel < source.channels; channel++) {
        uint32_t bits = bits_at(source, channel * plane_len(source) + at);
        if (sample.elements != kAsStored) {
            float value;
            if (erasure) {
                value = global(erasure->values)[channel];
                value = erasure->std != 0.0f ? value + erasure->std * deviates.of(channel) : value;
            } else {
                value = value_of(source.element, bits);
                value = source.element == kF32 ? value : value / sample.max;
                if (sample.scales) {
                    const float* const scale = global(sample.scales) + 2 * channel;
                    value = (value - scale[0]) / scale[1];
                }
            }
            bits = element_of(sample.elements, value);
        }
        const size_t to = first + channel * step;
        const bool is_wide = sample.elements == kToF32 || (sample.elements == kAsStored && source.element == kF32);
        if (is_wide) {
            global(static_cast<uint32_t*>(output.elements))[to] = bits;
        } else if (sample.elements == kAsStored && source.element == kU8) {
            global(static_cast<uint8_t*>(output.elements))[to] = static_cast<uint8_t>(bits);
        } else {
            global(static_cast<uint16_t*>(output.elements))[to] = static_cast<uint16_t>(bits);
        }
    }
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) planes_finish(const warpfeed::Launch launch) {
    warpfeed::planes_finish(launch);
}
