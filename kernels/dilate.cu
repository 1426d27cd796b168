// dilate: the largest value in a square of pixels, for each channel: rows first, then columns.
//
// Inputs: one RankSample per image and launch (params.cuh).
// Grid: one pixel per thread (grid.cuh).
// Reference: src/ops/rank.rs; byte for byte.

#include "rank.cuh"

extern "C" __global__ void __launch_bounds__(256) dilate_rows_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::RankSample>(launch, warpfeed::rank<true, true>);
}

extern "C" __global__ void __launch_bounds__(256) dilate_columns_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::RankSample>(launch, warpfeed::rank<true, false>);
}
