// Dropout: element i, counted in logical row-major order, keeps by word i % 4 of counter offset + i / 4. REAL: float, double.
#include "philox.cuh"

typedef REAL T;

constexpr int MOST_AXES = 8;

// The axes of y from outermost to innermost in memory: length, and steps in the count of elements and in x.
struct alignas(8) Axes {
    int64 count;
    int64 size[MOST_AXES], logical[MOST_AXES], x[MOST_AXES];
};

struct alignas(8) Rule {
    T scale;
    uint32 threshold;  // of the top 24 bits of a word
};

typedef vec4<bool> Mask4;

__device__ __forceinline__ Mask4 kept(const Words& words, uint32 threshold) {
    return {words.x >> 8 >= threshold, words.y >> 8 >= threshold, words.z >> 8 >= threshold, words.w >> 8 >= threshold};
}

__device__ __forceinline__ vec4<T> scaled(const vec4<T>& v, const Mask4& keep, T scale) {
    const T zero = 0;
    return {keep.x ? v.x * scale : zero, keep.y ? v.y * scale : zero, keep.z ? v.z * scale : zero,
            keep.w ? v.w * scale : zero};
}

__device__ __forceinline__ void apply(const T* x, T* y, bool* mask, int64 i, bool keep, T scale) {
    mask[i] = keep;
    y[i] = keep ? x[i] * scale : (T)0;
}

// x, y and mask are dense and row-major. A thread takes a counter's four elements; aligned says that x allows vectors.
extern "C" __global__ void dropout(
    const T* x, T* y, bool* mask, int64 n, int aligned, Rule rule, Place given, const Place* live
) {
    const Place at = live ? *live : given;
    GRID_STRIDE(i, ceil_div(n, (int64)4)) {
        const Mask4 keep = kept(philox(at.offset + i, at.seed), rule.threshold);
        const int64 first = 4 * i;
        if (aligned && first + 4 <= n) {
            reinterpret_cast<vec4<T>*>(y)[i] = scaled(reinterpret_cast<const vec4<T>*>(x)[i], keep, rule.scale);
            reinterpret_cast<Mask4*>(mask)[i] = keep;
            continue;
        }
        apply(x, y, mask, first, keep.x, rule.scale);
        if (first + 1 < n) apply(x, y, mask, first + 1, keep.y, rule.scale);
        if (first + 2 < n) apply(x, y, mask, first + 2, keep.z, rule.scale);
        if (first + 3 < n) apply(x, y, mask, first + 3, keep.w, rule.scale);
    }
}

// Number (logical, row-major) and place in x of element i of y's memory.
__device__ __forceinline__ void locate(const Axes& axes, uint32 i, int64& number, int64& place) {
    number = place = 0;
    for (int axis = (int)axes.count - 1; axis >= 0; axis--) {
        const uint32 size = (uint32)axes.size[axis], outer = i / size, at = i - outer * size;
        number += at * axes.logical[axis];
        place += at * axes.x[axis];
        i = outer;
    }
}

// x in any strides, y and mask dense in any order of axes; fewer than 2^31 elements.
extern "C" __global__ void dropout_strided(
    const T* x, T* y, bool* mask, int64 n, const __grid_constant__ Axes axes, Rule rule, Place given, const Place* live
) {
    const Place at = live ? *live : given;
    GRID_STRIDE(i, n) {
        int64 number, place;
        locate(axes, (uint32)i, number, place);
        const Mask4 keep = kept(philox(at.offset + number / 4, at.seed), rule.threshold);
        const int word = number % 4;
        const bool mine = word < 2 ? (word ? keep.y : keep.x) : (word == 2 ? keep.z : keep.w);
        mask[i] = mine;
        y[i] = mine ? x[place] * rule.scale : (T)0;
    }
}

// The same where the innermost axis of all is the last one, with steps of 1 and a length that 4 divides, and x allows
// vectors: a thread takes a counter's four elements.
extern "C" __global__ void dropout_strided4(
    const T* x, T* y, bool* mask, int64 n, const __grid_constant__ Axes axes, Rule rule, Place given, const Place* live
) {
    const Place at = live ? *live : given;
    GRID_STRIDE(i, n / 4) {
        int64 number, place;
        locate(axes, (uint32)(4 * i), number, place);
        const Mask4 keep = kept(philox(at.offset + number / 4, at.seed), rule.threshold);
        reinterpret_cast<vec4<T>*>(y)[i] = scaled(*reinterpret_cast<const vec4<T>*>(x + place), keep, rule.scale);
        reinterpret_cast<Mask4*>(mask)[i] = keep;
    }
}
