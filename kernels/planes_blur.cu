// planes_blur_rows, planes_blur_columns: Gaussian blur, rows first, with reflected edges. Bytes in whole numbers, other
// types in doubles, from the first tap to the last, with one rounding at the end.
//
// Inputs: one PlanesBlurSample per image (descriptors.cuh). The host makes the weights; the first launch writes
// `between`. Blocks of the first launch cover source.height rows of target.width pixels.
// Grid: one pixel per thread, in all planes (grid.cuh).
// Reference: src/backend/cpu/values/window.rs; byte for byte.

#include "planes.cuh"

namespace warpfeed {

__device__ inline void planes_blur_rows(const Launch& launch) {
    const Place<PlanesBlurSample> here(launch);
    if (!here.sample || !here.inside(here.sample->target.width, here.sample->source.height)) {
        return;
    }
    const PlanesBlurSample& sample = *here.sample;
    const PlanesImage& source = sample.source;
    const int32_t x = static_cast<int32_t>(sample.target.x + here.x) - static_cast<int32_t>(sample.kernel / 2);
    const int32_t taps = static_cast<int32_t>(sample.kernel), width = static_cast<int32_t>(source.whole_width);
    const size_t row = place(source, 0, static_cast<int32_t>(here.y));
    size_t to = static_cast<size_t>(here.y) * sample.target.width + here.x;
    for (uint32_t channel = 0; channel < source.channels; channel++) {
        const size_t from = channel * plane_len(source) + row;
        const auto at = [&](int32_t tap) { return from + reflect(x + tap, width) - source.x; };
        if (source.element == kU8) {
            const uint32_t* const weights = global(static_cast<const uint32_t*>(sample.weights));
            uint32_t sum = 0;
            for (int32_t tap = 0; tap < taps; tap++) {
                sum += values_of<const uint8_t>(source)[at(tap)] * weights[tap];
            }
            global(static_cast<uint32_t*>(sample.between))[to] = (sum + 128) >> 8;
        } else {
            const double* const weights = global(static_cast<const double*>(sample.weights));
            double sum = 0.0;
            for (int32_t tap = 0; tap < taps; tap++) {
                sum += weights[tap] * static_cast<double>(value_at(source, at(tap)));
            }
            global(static_cast<double*>(sample.between))[to] = sum;
        }
        to += static_cast<size_t>(source.height) * sample.target.width;
    }
}

__device__ inline void planes_blur_columns(const Launch& launch) {
    const Place<PlanesBlurSample> here(launch);
    if (!here.sample || !here.inside(here.sample->target.width, here.sample->target.height)) {
        return;
    }
    const PlanesBlurSample& sample = *here.sample;
    const PlanesImage& source = sample.source;
    const int32_t y = static_cast<int32_t>(sample.target.y + here.y) - static_cast<int32_t>(sample.kernel_y / 2);
    const int32_t taps = static_cast<int32_t>(sample.kernel_y), height = static_cast<int32_t>(source.whole_height);
    const size_t width = sample.target.width;
    store_channels(sample.target, here.x, here.y, [&](uint32_t channel) {
        const size_t plane = channel * source.height * width + here.x;
        const auto at = [&](int32_t tap) { return plane + (reflect(y + tap, height) - source.y) * width; };
        if (source.element == kU8) {
            const uint32_t* const weights = global(static_cast<const uint32_t*>(sample.weights)) + sample.kernel;
            uint64_t sum = 0;
            for (int32_t tap = 0; tap < taps; tap++) {
                sum += uint64_t{global(static_cast<const uint32_t*>(sample.between))[at(tap)]} * weights[tap];
            }
            // Rounded to nearest, ties to even.
            return static_cast<uint32_t>((sum + (uint64_t{1} << 39) - 1 + (sum >> 40 & 1)) >> 40 & 0xff);
        }
        const double* const weights = global(static_cast<const double*>(sample.weights)) + sample.kernel;
        double sum = 0.0;
        for (int32_t tap = 0; tap < taps; tap++) {
            sum += weights[tap] * global(static_cast<const double*>(sample.between))[at(tap)];
        }
        return bits_of_sampled(source.element, source.element == kF32 ? sum : rint(sum));
    });
}

}  // namespace warpfeed

extern "C" __global__ void __launch_bounds__(256) planes_blur_rows(const warpfeed::Launch launch) {
    warpfeed::planes_blur_rows(launch);
}

extern "C" __global__ void __launch_bounds__(256) planes_blur_columns(const warpfeed::Launch launch) {
    warpfeed::planes_blur_columns(launch);
}
