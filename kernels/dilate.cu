// dilate: the largest value of a square of pixels, for each channel: rows, then columns.
//
// Inputs: RankSample an image (params.cuh), one for each launch.
// Grid: one pixel a thread, as grid.cuh has it.
// Reference: src/ops/rank.rs; byte for byte.

#include "rank.cuh"

extern "C" __global__ void __launch_bounds__(256) dilate_rows_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::RankSample>(launch, warpfeed::rank<true, true>);
}

extern "C" __global__ void __launch_bounds__(256) dilate_columns_u8_nhwc(const warpfeed::Launch launch) {
    warpfeed::each_target_pixel<warpfeed::RankSample>(launch, warpfeed::rank<true, false>);
}
