// Split sums: each block writes its part of a tile, and those that come last add the parts, so that no other kernel has to.
//
// Parts are added in groups, in the block that comes last of each, and then the groups' sums in the last block of all. It
// would be long about many parts; groups are added at the same time on many multiprocessors. The order is always the same.
#pragma once
#include "compensated.cuh"
#include "neighbours.cuh"
#include "reduce.cuh"

constexpr int REGISTERS = 65536;  // of a multiprocessor

// The parts of a tile.
template <class T>
struct Joint {
    T* parts;            // the tile's first element in the first part
    int64 stride;        // from a part to the next
    int count, together;  // parts, and how many a group has
    unsigned* counters;  // of every tile one for each group and one for all; 0 before and after
    int tile;            // its number
    int columns;         // of the tile, from its first one on
    bool aligned;        // whether rows begin at multiples of 16 bytes
};

// to = the sum of `count` tiles which lie `step` apart from `from` on. Row i begins at place(i), or is not there if that is
// negative. Some pieces of each thread are on their way together: as many as registers allow if RESIDENT blocks share them.
template <int THREADS, int RESIDENT, int ROWS, int COLUMNS, class T, class Place>
__device__ __forceinline__ void add_tiles(const Joint<T>& joint, T* to, const T* from, int count, int64 step, Place place) {
    constexpr int RUN = 16 / sizeof(T), ACROSS = COLUMNS / RUN, PIECES = ROWS * ACROSS;
    constexpr int AHEAD = REGISTERS / (THREADS * RESIDENT) >= 160 ? 4 : 2;  // cu32/costs.py knows it
    static_assert(COLUMNS % RUN == 0, "whole pieces");
#pragma unroll 1
    for (int first = threadIdx.x; first < PIECES; first += AHEAD * THREADS) {
        int64 at[AHEAD];
        int left[AHEAD];
        CompensatedSum<T> total[AHEAD][RUN];
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            const int piece = first + a * THREADS, column = piece % ACROSS * RUN;
            const int64 row = piece < PIECES ? (int64)place(piece / ACROSS) : -1;
            at[a] = row + column;
            left[a] = row < 0 ? 0 : joint.columns - column;
        }
#pragma unroll 2
        for (int p = 0; p < count; ++p) {
            Neighbours<T, RUN> values[AHEAD];
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) values[a] = read_fresh(from + p * step + at[a], left[a], joint.aligned);
#pragma unroll
            for (int a = 0; a < AHEAD; ++a)
#pragma unroll
                for (int e = 0; e < RUN; ++e) total[a][e].add(values[a].at[e]);
        }
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            Neighbours<T, RUN> sum;
#pragma unroll
            for (int e = 0; e < RUN; ++e) sum.at[e] = total[a][e].result();
            write_run<T, RUN>(to + at[a], sum, left[a], joint.aligned);
        }
    }
}

// Called by all threads of a block that has written part `part` of a tile. True in the one block which then has the sum of
// all parts at `out`, where the tile's first element goes; another thread of it may have written what a thread reads there.
// `flag` is in shared memory, which the block needs for nothing else any more.
template <int THREADS, int RESIDENT, int ROWS, int COLUMNS, class T, class Place>
__device__ __forceinline__ bool join_parts(const Joint<T>& joint, int part, T* out, int* flag, Place place) {
    const int groups = ceil_div(joint.count, joint.together), group = part / joint.together, first = group * joint.together;
    const int members = joint.count - first < joint.together ? joint.count - first : joint.together;
    unsigned* const counters = joint.counters + joint.tile * (groups + 1);
    if (!is_last_block(counters + group, members, flag)) return false;
    T* const own = joint.parts + first * joint.stride;
    add_tiles<THREADS, RESIDENT, ROWS, COLUMNS>(joint, groups > 1 ? own : out, own, members, joint.stride, place);
    if (groups > 1) {
        if (!is_last_block(counters + groups, groups, flag)) return false;
        add_tiles<THREADS, RESIDENT, ROWS, COLUMNS>(joint, out, joint.parts, groups, joint.together * joint.stride, place);
    }
    __syncthreads();
    return true;
}
