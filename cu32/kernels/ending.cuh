// What a block does with the tile of results that it has in registers: it writes them, and where BatchNorm follows, or was
// there before, it takes the sums over rows that BatchNorm needs, for which another kernel would read the results again.
//
// A tally (tensor_core.cuh, tile.cuh) says which results a thread has: at(r, c), of row row_at(r) and column column_at(c), RUN
// of whose columns are neighbours. Eight lanes, which differ in the three bits from SHARE on, have the same columns. Where results
// are not HELD, registers do not suffice for what else is done with them: once written, a thread reads its own again.
#pragma once
#include "affine.cuh"
#include "join.cuh"
#include "tile.cuh"

// Where a block's tile goes.
template <class T>
struct Target {
    T* out;
    const OFFSET* rows;  // in shared memory: where a row of the tile begins, or -1
    int columns;         // of the result from the tile's first one on
    bool aligned;        // whether RUN columns may be written at once
    bool accumulate;     // whether to add to what is there
};

// What is done to results before they are written: a residual, which lies as they do, is added, and then comes an activation.
template <class T>
struct Activation {
    const T* residual;  // from the image's beginning on, or null
    T slope;
};

// Writes a tile, with a bias if there is one; a tally then holds what was written. ACTIVATED: through an activation.
template <bool ACTIVATED = false, class Tally, class T>
__device__ __forceinline__ void write_tile(Tally& sums, const Target<T>& to, const T* bias, const Activation<T>& by = {}) {
    constexpr int RUN = Tally::RUN;
#pragma unroll
    for (int r = 0; r < Tally::EACH_DOWN; ++r) {
        const OFFSET offset = to.rows[Tally::row_at(r)];
        if (offset < 0) continue;
#pragma unroll
        for (int c = 0; c < Tally::EACH_ACROSS; c += RUN) {
            const int column = Tally::column_at(c), left = to.columns - column;
            if (left <= 0) continue;
            T* const place = to.out + offset + column;
            Neighbours<T, RUN> values;
#pragma unroll
            for (int e = 0; e < RUN; ++e) values.at[e] = sums.at(r, c + e);
            if (bias != nullptr) {
#pragma unroll
                for (int e = 0; e < RUN; ++e)
                    if (e < left) values.at[e] += bias[column + e];
            }
            if (to.accumulate) {
                const Neighbours<T, RUN> before = read_run<T, RUN>(place, left, to.aligned);
#pragma unroll
                for (int e = 0; e < RUN; ++e) values.at[e] += before.at[e];
            }
            if (ACTIVATED) {
                const Neighbours<T, RUN> added = read_run<T, RUN>(by.residual + offset + column, by.residual ? left : 0, to.aligned);
#pragma unroll
                for (int e = 0; e < RUN; ++e) values.at[e] = leaky(by.residual ? values.at[e] + added.at[e] : values.at[e], by.slope);
            }
            write_run<T, RUN>(place, values, left, to.aligned);
#pragma unroll
            for (int e = 0; e < RUN && Tally::HELD; ++e) sums.at(r, c + e) = values.at[e];
        }
    }
}

// What a thread has written of row r, from column c on.
template <class Tally, class T>
__device__ __forceinline__ Neighbours<T, Tally::RUN> written(const Tally& sums, const Target<T>& to, int r, int c) {
    const int column = Tally::column_at(c);
    if (!Tally::HELD) return read_run<T, Tally::RUN>(to.out + to.rows[Tally::row_at(r)] + column, to.columns - column, to.aligned);
    Neighbours<T, Tally::RUN> values;
#pragma unroll
    for (int e = 0; e < Tally::RUN; ++e) values.at[e] = sums.at(r, c + e);
    return values;
}

// Reads a tile to where a tally had its own.
template <class Tally, class T>
__device__ __forceinline__ void read_tile(Tally& sums, const Target<T>& from) {
    constexpr int RUN = Tally::RUN;
#pragma unroll
    for (int r = 0; r < Tally::EACH_DOWN; ++r) {
        const OFFSET offset = from.rows[Tally::row_at(r)];
#pragma unroll
        for (int c = 0; c < Tally::EACH_ACROSS; c += RUN) {
            const int column = Tally::column_at(c), left = offset < 0 ? 0 : from.columns - column;
            const Neighbours<T, RUN> values = read_run<T, RUN>(from.out + offset + column, left, from.aligned);
#pragma unroll
            for (int e = 0; e < RUN; ++e) sums.at(r, c + e) = values.at[e];
        }
    }
}

// Where the parts of split sums are joined: those of the first part, each as large as the result.
template <class T>
struct Parts {
    T* first;
    unsigned* counters;
};

// Whether a block has to end its tile: of split sums the last block alone, which then has the sum of all parts.
template <int THREADS, int RESIDENT, int ROWS, class Tally, class T>
__device__ __forceinline__ bool is_joined(Tally& sums, const Target<T>& to, const Parts<T>& parts, int64 shift, const Gather& g,
                                          void* shared) {
    if (g.parts == 1) return true;
    T* const first = parts.first + shift;
    write_tile(sums, Target<T>{first + blockIdx.y * g.part_stride, to.rows, to.columns, to.aligned, false}, static_cast<const T*>(nullptr));
    const Joint<T> joint = {first,          g.part_stride,   (int)g.parts, (int)g.together,
                            parts.counters, (int)blockIdx.x, to.columns,   to.aligned};
    const auto place = [&to](int row) { return to.rows[row]; };
    if (!join_parts<THREADS, RESIDENT, ROWS, Tally::COLUMNS>(joint, blockIdx.y, first, static_cast<int*>(shared), place)) return false;
    read_tile(sums, Target<T>{first, to.rows, to.columns, to.aligned, false});
    return true;
}

// -- Sums over rows -----------------------------------------------------------------------------------------------------

// Where the sums of all blocks come together. Tiles are added in groups of `together`, and then the groups: one block alone
// would be long about all of them.
struct Meeting {
    double* partial;     // sums x tiles x channels
    unsigned* counters;  // of every column of tiles one for each group and one for all; 0 before and after
};

// Shared memory of a block that sums.
template <class Tally, class T>
struct EndRoom {
    T sums[3][Tally::WARPS_DOWN][Tally::COLUMNS];
    AffineOf<T> by[Tally::COLUMNS], other[Tally::COLUMNS];
    T origin[Tally::COLUMNS];
    int last;
};

// Adds one of a column's sums over the rows of a warp, and leaves it in shared memory.
template <class Tally, class T>
__device__ __forceinline__ void share(EndRoom<Tally, T>& room, int which, int c, T sum) {
#pragma unroll
    for (int lane = Tally::SHARE; lane < 8 * Tally::SHARE; lane *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, lane);
    if (threadIdx.x / Tally::SHARE % 8 == 0) room.sums[which][Tally::warp_down()][Tally::column_at(c)] = sum;
}

// Which tile a block has: its number among those of rows, how many of these are results, its group, and its first column there.
struct TilePlace {
    int number, rows, group, column;
};

// A block's place among those that sum, and the channel of which a thread has the block's sums.
struct Summand {
    int tile, tiles, column_tile;
    int64 channel, channels;
    bool inside;

    __device__ __forceinline__ Summand(const Gather& g, const TilePlace& place, int tile_columns) {
        const int across = (int)(g.groups * g.column_tiles), here = place.column + (int)threadIdx.x;
        tile = place.number;
        tiles = (int)gridDim.x / across;
        column_tile = place.group * (int)g.column_tiles + place.column / tile_columns;
        channel = place.group * g.width + here;
        channels = g.groups * g.width;
        inside = (int)threadIdx.x < tile_columns && here < (int)g.width;
    }
};

// Every channel's sums over all blocks, handed to finish(channel, sums) in the block that comes last.
template <int SUMS, class Finish>
__device__ __forceinline__ void sum_blocks(double (&sums)[SUMS], const Summand& of, const Meeting& meeting, int together, int* last,
                                           Finish finish) {
    double* const place = meeting.partial + of.channel;
    const int groups = ceil_div(of.tiles, together), group = of.tile / together, first = group * together;
    const int members = of.tiles - first < together ? of.tiles - first : together;
    unsigned* const counters = meeting.counters + of.column_tile * (groups + 1);
    const auto leave = [&](int tile) {
        for (int s = 0; s < SUMS && of.inside; ++s) place[((int64)s * of.tiles + tile) * of.channels] = sums[s];
    };
    const auto collect = [&](int from, int count, int step) {
        for (int s = 0; s < SUMS; ++s) sums[s] = 0;
        if (!of.inside) return;
#pragma unroll 4
        for (int i = 0; i < count; ++i)
            for (int s = 0; s < SUMS; ++s) sums[s] += __ldcg(place + ((int64)s * of.tiles + from + i * step) * of.channels);
    };
    leave(of.tile);
    if (!is_last_block(counters + group, members, last)) return;
    collect(first, members, 1);
    if (groups > 1) {
        leave(first);
        if (!is_last_block(counters + groups, groups, last)) return;
        collect(0, groups, together);
    }
    if (of.inside) finish(of.channel, sums);
}

// Which of a tile's rows are results, as bits.
template <class Tally>
__device__ __forceinline__ unsigned rows_inside(const OFFSET* rows) {
    unsigned inside = 0;
#pragma unroll
    for (int r = 0; r < Tally::EACH_DOWN; ++r) inside |= (rows[Tally::row_at(r)] >= 0 ? 1u : 0u) << r;
    return inside;
}

// -- What follows a convolution -----------------------------------------------------------------------------------------

// Of a BatchNorm behind it: its statistics, without a meeting none. Or an activation, and a residual before that.
template <class T>
struct ForwardEnd {
    Statistics<T> statistics;
    Meeting meeting;
    const T* residual;
};
struct ForwardNumbers {
    Momentum momentum;
    int64 rows, together;
    int64 activated;  // whether there is an activation
    double slope;
};

// The sums of what was written and of its squares. A thread's are taken less the tile's first row, so that T's digits go to
// the deviations.
template <class Tally, class T>
__device__ __forceinline__ void measure(const Tally& sums, const Target<T>& to, const Gather& g, const TilePlace& place,
                                        const ForwardEnd<T>& end, const ForwardNumbers& numbers, EndRoom<Tally, T>& room) {
    constexpr int RUN = Tally::RUN;
    __syncthreads();  // the room may lie where panels were
    if (Tally::row_at(0) == 0) {
#pragma unroll
        for (int c = 0; c < Tally::EACH_ACROSS; c += RUN) {
            const Neighbours<T, RUN> first = written(sums, to, 0, c);
#pragma unroll
            for (int e = 0; e < RUN; ++e) room.origin[Tally::column_at(c + e)] = first.at[e];
        }
    }
    const unsigned inside = rows_inside<Tally>(to.rows);
    __syncthreads();
#pragma unroll
    for (int c = 0; c < Tally::EACH_ACROSS; c += RUN) {
        T origin[RUN], sum[RUN] = {}, squares[RUN] = {};
#pragma unroll
        for (int e = 0; e < RUN; ++e) origin[e] = room.origin[Tally::column_at(c + e)];
#pragma unroll
        for (int r = 0; r < Tally::EACH_DOWN; ++r) {
            if (!(inside >> r & 1)) continue;
            const Neighbours<T, RUN> values = written(sums, to, r, c);
#pragma unroll
            for (int e = 0; e < RUN; ++e) {
                const T deviation = values.at[e] - origin[e];
                sum[e] += deviation;
                squares[e] = multiply_add(deviation, deviation, squares[e]);
            }
        }
#pragma unroll
        for (int e = 0; e < RUN; ++e) {
            share(room, 0, c + e, sum[e]);
            share(room, 1, c + e, squares[e]);
        }
    }
    __syncthreads();
    double found[2] = {0, 0};
    const Summand of(g, place, Tally::COLUMNS);
    if (of.inside) {
        const double origin = room.origin[threadIdx.x];
        for (int w = 0; w < Tally::WARPS_DOWN; ++w)
            for (int s = 0; s < 2; ++s) found[s] += room.sums[s][w][threadIdx.x];
        found[1] += origin * (2 * found[0] + place.rows * origin);
        found[0] += place.rows * origin;
    }
    sum_blocks(found, of, end.meeting, (int)numbers.together, &room.last, [&](int64 c, const double* sums) {
        const double all = static_cast<double>(numbers.rows), mean = sums[0] / all, squares = sums[1] - sums[0] * mean;
        keep_statistics(end.statistics, numbers.momentum, c, mean, squares > 0 ? squares / all : squares * 0, all);
    });
}

// -- What follows an input gradient -------------------------------------------------------------------------------------

// Of a BatchNorm, and its activation, whose result the convolution took: the mask and the sums of its gradient. Without a
// meeting none are taken. A BatchNorm that was added to it before the activation, if there was one, has its gradient's too.
template <class T>
struct GradientEnd {
    const T* x;         // what it normalised
    const T* residual;  // what was added, or what the other one normalised
    const double* mean;
    const double* inverse_std;
    const T* weight;
    const T* bias;
    NormGradients<T> gradients;
    OtherNorm<T> other;
    Meeting meeting;
};
struct GradientNumbers {
    double slope;
    int64 together;
};

// Writes the gradient past the activation, where write_tile would write the one before it, or has written it. PAIR: another
// BatchNorm was added.
template <bool PAIR, class Tally, class T>
__device__ __forceinline__ void pass_back(const Tally& sums, const Target<T>& to, int64 shift, const Gather& g, const TilePlace& place,
                                          const GradientEnd<T>& end, const GradientNumbers& numbers, EndRoom<Tally, T>& room) {
    constexpr int RUN = Tally::RUN;
    constexpr int AHEAD = PAIR && sizeof(T) == 8 ? 1 : 8 / RUN;        // rows whose loads are on their way together
    constexpr int TURNS = Tally::HELD ? Tally::EACH_DOWN / AHEAD : 1;  // of groups of them, unrolled
    constexpr int RUNS = Tally::HELD ? Tally::EACH_ACROSS / RUN : 1;
    static_assert(Tally::EACH_DOWN % AHEAD == 0, "whole groups of rows");
    const T slope = static_cast<T>(numbers.slope);
    __syncthreads();  // the room may lie where panels were
    const Summand of(g, place, Tally::COLUMNS);
    if (of.inside) room.by[threadIdx.x] = affine(of.channel, end.mean, end.inverse_std, end.weight, end.bias);
    if (PAIR && of.inside)
        room.other[threadIdx.x] = affine(of.channel, end.other.mean, end.other.inverse_std, end.other.weight, end.other.bias);
    const unsigned inside = rows_inside<Tally>(to.rows);
    __syncthreads();
#pragma unroll RUNS
    for (int c = 0; c < Tally::EACH_ACROSS; c += RUN) {
        const int column = Tally::column_at(c), left = to.columns - column;
        AffineOf<T> by[RUN], other[RUN];
        T sum[RUN] = {}, products[RUN] = {}, others[RUN] = {};
#pragma unroll
        for (int e = 0; e < RUN; ++e) {
            const int here = column + e < Tally::COLUMNS ? column + e : 0;
            by[e] = room.by[here];
            if (PAIR) other[e] = room.other[here];
        }
#pragma unroll TURNS
        for (int first = 0; first < Tally::EACH_DOWN; first += AHEAD) {
            Neighbours<T, RUN> x[AHEAD], added[AHEAD], before[AHEAD];
            OFFSET at[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
                const int here = inside >> (first + i) & 1 ? left : 0;
                at[i] = (here > 0 ? to.rows[Tally::row_at(first + i)] : 0) + column;
                x[i] = read_run<T, RUN>(end.x + shift + at[i], here, to.aligned);
                added[i] = read_run<T, RUN>(end.residual + shift + at[i], PAIR || end.residual ? here : 0, to.aligned);
                before[i] = read_run<T, RUN>(to.out + at[i], to.accumulate || !Tally::HELD ? here : 0, to.aligned);
            }
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
                if (!(inside >> (first + i) & 1)) continue;
                Neighbours<T, RUN> result;
#pragma unroll
                for (int e = 0; e < RUN; ++e) {
                    const T normal = normalise(x[i].at[e], by[e]);
                    const T gradient = before[i].at[e] + (Tally::HELD ? sums.at(first + i, c + e) : T(0));
                    const T addend = PAIR ? normalise(added[i].at[e], other[e]) : added[i].at[e];
                    result.at[e] = past_leaky(gradient, PAIR || end.residual ? normal + addend : normal, slope);
                    sum[e] += result.at[e];
                    products[e] = multiply_add(result.at[e], x[i].at[e] - by[e].centre, products[e]);
                    if (PAIR) others[e] = multiply_add(result.at[e], added[i].at[e] - other[e].centre, others[e]);
                }
                write_run<T, RUN>(to.out + at[i], result, left, to.aligned);
            }
        }
#pragma unroll
        for (int e = 0; e < RUN; ++e) {
            share(room, 0, c + e, sum[e]);
            share(room, 1, c + e, products[e]);
            if (PAIR) share(room, 2, c + e, others[e]);
        }
    }
    __syncthreads();
    constexpr int SUMS = PAIR ? 3 : 2;
    double found[SUMS] = {};
    for (int w = 0; w < Tally::WARPS_DOWN && of.inside; ++w)
        for (int s = 0; s < SUMS; ++s) found[s] += room.sums[s][w][threadIdx.x];
    sum_blocks(found, of, end.meeting, (int)numbers.together, &room.last, [&](int64 c, const double* sums) {
        keep_gradients(end.gradients, c, of.channels, sums, end.mean, end.inverse_std);
        if (PAIR) keep_other_gradients(end.other, end.gradients.sums, c, of.channels, sums[0], sums[SUMS - 1]);
    });
}

// -- A block's end ------------------------------------------------------------------------------------------------------

// What a kernel's results end with, by the side that it computes: true of a convolution, false of an input gradient.
template <bool FORWARD, class T>
struct Ending {
    using Tensors = ForwardEnd<T>;
    using Numbers = ForwardNumbers;
};
template <class T>
struct Ending<false, T> {
    using Tensors = GradientEnd<T>;
    using Numbers = GradientNumbers;
};

// `shift`: what a row's place leaves out of an image of the same sizes.
template <class Tally, class T>
__device__ __forceinline__ void end_tile(Tally& sums, const Target<T>& to, const T* bias, int64 shift, const Gather& g,
                                         const TilePlace& place, const ForwardEnd<T>& end, const ForwardNumbers& numbers,
                                         void* shared) {
    if (numbers.activated) {
        const Activation<T> by = {end.residual ? end.residual + shift : nullptr, static_cast<T>(numbers.slope)};
        write_tile<true>(sums, to, bias, by);
        return;
    }
    write_tile(sums, to, bias);
    if (end.meeting.partial)
        measure(sums, to, g, place, end, numbers, *static_cast<EndRoom<Tally, T>*>(shared));
}
template <class Tally, class T>
__device__ __forceinline__ void end_tile(Tally& sums, const Target<T>& to, const T* bias, int64 shift, const Gather& g,
                                         const TilePlace& place, const GradientEnd<T>& end, const GradientNumbers& numbers,
                                         void* shared) {
    if (!end.meeting.partial || !Tally::HELD) write_tile(sums, to, bias);
    EndRoom<Tally, T>& room = *static_cast<EndRoom<Tally, T>*>(shared);
    if (end.other.mean)
        pass_back<true>(sums, to, shift, g, place, end, numbers, room);
    else if (end.meeting.partial)
        pass_back<false>(sums, to, shift, g, place, end, numbers, room);
}
