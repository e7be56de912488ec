// Loops over strided operands: where step i of the result and of each operand lies. Packed by cu32/strided.py.
#pragma once
#include "common.cuh"

constexpr int LOOP_AXES = 8;
#ifdef OPERANDS  // of a program, with the results as one
constexpr int LOOP_OPERANDS = OPERANDS;
#else
constexpr int LOOP_OPERANDS = 4;
#endif
constexpr int LOOP_THREADS = 256;

// One axis of a loop, with the constants that divide by its length without a division.
struct Axis {
    uint32 length, multiplier, shift;
    int stride[LOOP_OPERANDS];  // elements from one step to the next: of the result, then of each operand
};

// A loop of `count` steps, each of V elements along the innermost axis, and of `tail` single elements behind them.
struct Loop {
    uint32 count, tail;
    int axes;
    uint32 splat;             // bit n: operand n repeats one element along the innermost axis
    Axis axis[LOOP_AXES];     // innermost first
};

// n / axis.length for n < 2^31 (Granlund and Montgomery, "Division by Invariant Integers using Multiplication").
__device__ __forceinline__ uint32 quotient(uint32 n, const Axis& axis) {
    return (__umulhi(n, axis.multiplier) + n) >> axis.shift;
}

// Offsets of step i in the result and in N - 1 operands.
template <int N>
__device__ __forceinline__ void locate(const Loop& loop, uint32 i, int (&offset)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) offset[n] = 0;
    const int last = loop.axes - 1;
#pragma unroll 1
    for (int a = 0; a < last; ++a) {
        const uint32 next = quotient(i, loop.axis[a]);
        const int along = (int)(i - next * loop.axis[a].length);
#pragma unroll
        for (int n = 0; n < N; ++n) offset[n] += along * loop.axis[a].stride[n];
        i = next;
    }
#pragma unroll
    for (int n = 0; n < N; ++n) offset[n] += (int)i * loop.axis[last].stride[n];
}

// Offsets of element t of the tail, which only loops over one axis have.
template <int N>
__device__ __forceinline__ void locate_tail(const Loop& loop, int width, uint32 t, int (&offset)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) offset[n] = loop.splat >> n & 1 ? 0 : (int)(loop.count * width + t);
}

// V elements that one instruction moves, 16 bytes at most.
template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
    T at[V];
};

// The elements of an operand at a step: V neighbours, or V times one element, or (data is null) V times a number.
template <class T, int V>
__device__ __forceinline__ Pack<T, V> load(const T* data, int offset, bool splat, T number) {
    Pack<T, V> pack;
    if (data != nullptr && !splat) {
        pack = *reinterpret_cast<const Pack<T, V>*>(data + offset);
    } else {
        if (data != nullptr) number = data[offset];
#pragma unroll
        for (int k = 0; k < V; ++k) pack.at[k] = number;
    }
    return pack;
}

template <class T, int V>
__device__ __forceinline__ void store(T* data, int offset, const Pack<T, V>& pack) {
    *reinterpret_cast<Pack<T, V>*>(data + offset) = pack;
}
