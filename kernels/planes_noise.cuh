// Deviates of a pixel's channels. Four channels share random words.
#pragma once

#include "noise.cuh"

namespace warpfeed {

struct Deviates {
    uint64_t key;
    uint32_t x, y;
    const int32_t* normals;
    Words words;

    // The deviate of a channel; channels come in order, from 0 on.
    __host__ __device__ float of(uint32_t channel) {
        if (channel % 4 == 0) {
            words = words_of(key, x, y, channel / 4);
        }
        // Without an index that is computed, the words stay in registers.
        const uint32_t low = channel & 1 ? words.of[1] : words.of[0], high = channel & 1 ? words.of[3] : words.of[2];
        return normal(channel & 2 ? high : low, normals);
    }
};

}  // namespace warpfeed
