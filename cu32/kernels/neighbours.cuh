// Neighbouring elements that are read and written at once where their address allows it.
#pragma once

template <class T, int RUN>
struct alignas(sizeof(T) * RUN < 16 ? sizeof(T) * RUN : 16) Neighbours {
    T at[RUN];
};

// `left` of them are inside; the others are zeros.
template <class T, int RUN>
__device__ __forceinline__ Neighbours<T, RUN> read_run(const T* from, int left, bool aligned) {
    Neighbours<T, RUN> found = {};
    if (aligned && left >= RUN) {
        found = *reinterpret_cast<const Neighbours<T, RUN>*>(from);
    } else {
#pragma unroll
        for (int e = 0; e < RUN; ++e)
            if (e < left) found.at[e] = from[e];
    }
    return found;
}

template <class T, int RUN>
__device__ __forceinline__ void write_run(T* to, const Neighbours<T, RUN>& values, int left, bool aligned) {
    if (aligned && left >= RUN) {
        *reinterpret_cast<Neighbours<T, RUN>*>(to) = values;
    } else {
#pragma unroll
        for (int e = 0; e < RUN; ++e)
            if (e < left) to[e] = values.at[e];
    }
}

// What other multiprocessors have written, 16 bytes: read past this one's cache.
__device__ __forceinline__ Neighbours<float, 4> read_fresh(const float* from) {
    const float4 found = __ldcg(reinterpret_cast<const float4*>(from));
    return {{found.x, found.y, found.z, found.w}};
}
__device__ __forceinline__ Neighbours<double, 2> read_fresh(const double* from) {
    const double2 found = __ldcg(reinterpret_cast<const double2*>(from));
    return {{found.x, found.y}};
}
template <class T>
__device__ __forceinline__ Neighbours<T, 16 / sizeof(T)> read_fresh(const T* from, int left, bool aligned) {
    constexpr int RUN = 16 / sizeof(T);
    if (aligned && left >= RUN) return read_fresh(from);
    Neighbours<T, RUN> found = {};
#pragma unroll
    for (int e = 0; e < RUN; ++e)
        if (e < left) found.at[e] = __ldcg(from + e);
    return found;
}
