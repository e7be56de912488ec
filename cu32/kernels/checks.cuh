// What a kernel notes of an element that is out of range.
#pragma once
#include "common.cuh"

// A flag holds ~0, or (position << 32 | value) of the first wrong element, each limited to 32 bits: the smallest such
// word is the first element's, whatever the order of the threads.
__device__ __forceinline__ uint64 report(int64 position, int64 value) {
    const int64 highest = 0x7fffffff, lowest = -highest - 1, last = 0xfffffffe;
    int64 limited = value > highest ? highest : value < lowest ? lowest : value;
    return (uint64)(position > last ? last : position) << 32 | (uint32)(int)limited;
}
