// Bools that a kernel draws at random, where others are loaded: dropout's mask.
#pragma once
#include "philox.cuh"
#include "strided.cuh"

// Element n of a draw has word n % 4 of counter place.offset + n / 4, and is kept where its top 24 bits reach the
// threshold. `first` is the number of the element from which offsets count.
struct Draw {
    Place place;
    int64 first;
    uint32 threshold;
};

// W neighbours: four begin at a counter.
template <int W>
__device__ __forceinline__ Pack<bool, W> drawn(const Draw& draw, int offset) {
    const uint64 number = (uint64)(draw.first + offset);
    const Words words = philox(draw.place.offset + number / 4, draw.place.seed);
    Pack<bool, W> kept;
    if constexpr (W == 4) {
        kept.at[0] = words.x >> 8 >= draw.threshold;
        kept.at[1] = words.y >> 8 >= draw.threshold;
        kept.at[2] = words.z >> 8 >= draw.threshold;
        kept.at[3] = words.w >> 8 >= draw.threshold;
    } else {
        static_assert(W == 1, "a step has one element, or a counter's four");
        const uint32 low = number & 1 ? words.y : words.x, high = number & 1 ? words.w : words.z;
        kept.at[0] = (number & 2 ? high : low) >> 8 >= draw.threshold;
    }
    return kept;
}
