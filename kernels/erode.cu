// erode: the smallest value in a square of pixels, for each channel: rows first, then columns.
//
// Inputs: one MorphologySample per image and launch (descriptors.cuh).
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/morphology.rs; byte for byte.

#include "morphology.cuh"

extern "C" __global__ void __launch_bounds__(256) erode_rows_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::MorphologySample>(launch, warpfeed::rank<false, true>);
}

extern "C" __global__ void __launch_bounds__(256) erode_columns_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::MorphologySample>(launch, warpfeed::rank<false, false>);
}
