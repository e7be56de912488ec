// Lines of elements along one axis of a tensor of any strides. Mirrors cu32/reductions.py.
#pragma once
#include "common.cuh"

constexpr int LINE_AXES = 6;

// `count` lines of `length` elements, `step` apart in x and `out_step` in the result. The index of a line runs over `axes`
// axes, the innermost first.
struct Lines {
    int64 count, length, step, out_step, axes;
    int64 size[LINE_AXES], stride[LINE_AXES], out_stride[LINE_AXES];
};

// Where something begins in x and in the result.
struct Offsets {
    int64 x, out;
};

// Offsets of a line's first element.
__device__ __forceinline__ Offsets first_elements(const Lines& lines, int64 line) {
    Offsets at = {0, 0};
#pragma unroll 1
    for (int axis = 0; axis < lines.axes; ++axis) {
        const int64 next = line / lines.size[axis], along = line - next * lines.size[axis];
        at.x += along * lines.stride[axis];
        at.out += along * lines.out_stride[axis];
        line = next;
    }
    return at;
}
