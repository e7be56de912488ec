// Sums over the rows of a dense (rows, channels) matrix: one tile of channels per block, the rows split between blocks.
#pragma once
#include "reduce.cuh"

#ifndef VEC
#define VEC 1
#endif

using T = REAL;

// VEC elements side by side, read and written at once.
struct alignas(sizeof(T) * VEC) Pack {
    T at[VEC];
};

__device__ __forceinline__ Pack load(const T* from) { return *reinterpret_cast<const Pack*>(from); }
__device__ __forceinline__ void store(T* to, const Pack& value) { *reinterpret_cast<Pack*>(to) = value; }

// A thread's place in its block's tile of `width` packs by `rows` rows.
struct Place {
    int64 channel;  // its first
    int width, lane, row, rows;
    bool inside;

    __device__ __forceinline__ Place(int64 channels, int width)
            : width(width), lane(threadIdx.x % width), row(threadIdx.x / width), rows(blockDim.x / width) {
        channel = (static_cast<int64>(blockIdx.x) * width + lane) * VEC;
        inside = row < rows && channel < channels;
    }
};

constexpr int SUM_THREADS = 256;
constexpr int AHEAD = 4;  // rows whose loads are on their way together
constexpr int CHUNK = 32;  // rows summed in T before their sum goes into float64: the error is that of so many additions

// Shared memory of a block that takes S sums of every channel.
template <int S>
struct Workspace {
    double tile[S * VEC][SUM_THREADS];
    int last;
};

// Calls terms.begin, add and end for the thread's rows, chunk by chunk, from the last row to the first: of what the
// kernel before wrote, the end is still in the second-level cache.
template <class Terms>
__device__ __forceinline__ void walk(Terms& terms, const Place& place, int64 rows, int64 channels) {
    const int64 step = static_cast<int64>(gridDim.y) * place.rows;
    const int64 apart = step * channels;
#pragma unroll 1
    for (int64 row = static_cast<int64>(blockIdx.y) * place.rows + place.row; row < rows; row += CHUNK * step) {
        int64 offset = (rows - 1 - row) * channels + place.channel;
        const int64 left = ceil_div(rows - row, step);
        const int count = left < CHUNK ? static_cast<int>(left) : CHUNK;
        terms.begin(offset);
        int k = 0;
#pragma unroll 1
        for (; k + AHEAD <= count; k += AHEAD) {
            typename Terms::Values values[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) values[u] = terms.read(offset - u * apart);
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) terms.add(offset - u * apart, values[u]);
            offset -= AHEAD * apart;
        }
#pragma unroll 1
        for (; k < count; ++k, offset -= apart) terms.add(offset, terms.read(offset));
        terms.end(count);
    }
}

// Every channel's sums over all rows, handed to finish(channel, sums) in the tile's last block.
// partial: SUMS x gridDim.y x channels; counters: one per tile, 0 before and after.
template <class Terms, class Finish>
__device__ __forceinline__ void sum_columns(Terms& terms, const Place& place, int64 rows, int64 channels,
                                            double* partial, unsigned* counters, Workspace<Terms::SUMS>& shared,
                                            Finish finish) {
    constexpr int SUMS = Terms::SUMS;
    auto& tile = shared.tile;
    if (place.inside) walk(terms, place, rows, channels);
    const int lane = place.inside ? place.row : place.rows;
    const auto combine = [&](int i, int j) {
#pragma unroll
        for (int s = 0; s < SUMS * VEC; ++s) tile[s][i] += tile[s][j];
    };
#pragma unroll
    for (int s = 0; s < SUMS * VEC; ++s) tile[s][threadIdx.x] = terms.total[s / VEC][s % VEC];
    combine_lanes(lane, place.rows, place.width, combine);
    if (lane == 0)
        for (int s = 0; s < SUMS * VEC; ++s)
            partial[(s / VEC * gridDim.y + blockIdx.y) * channels + place.channel + s % VEC] = tile[s][threadIdx.x];
    if (!is_last_block(counters + blockIdx.x, gridDim.y, &shared.last)) return;

    double sums_of[SUMS * VEC] = {};
    if (place.inside) {
        const double* part = partial + static_cast<int64>(place.row) * channels + place.channel;
        const int64 sum_apart = static_cast<int64>(gridDim.y) * channels, part_apart = static_cast<int64>(place.rows) * channels;
#pragma unroll 2
        for (unsigned p = place.row; p < gridDim.y; p += place.rows, part += part_apart)
#pragma unroll
            for (int s = 0; s < SUMS * VEC; ++s) sums_of[s] += __ldcg(part + s / VEC * sum_apart + s % VEC);
    }
#pragma unroll
    for (int s = 0; s < SUMS * VEC; ++s) tile[s][threadIdx.x] = sums_of[s];
    combine_lanes(lane, place.rows, place.width, combine);
    if (lane != 0) return;
    for (int e = 0; e < VEC; ++e) {
        double sums[SUMS];
        for (int s = 0; s < SUMS; ++s) sums[s] = tile[s * VEC + e][threadIdx.x];
        finish(place.channel + e, sums);
    }
}
