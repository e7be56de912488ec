// Pooling in image order: positions x (images * channels) matrices. Macros: REAL, float or double; VEC, elements at once.
//
// A position's pairs are the product of its row's and its column's, which the tables give: padding has no pairs, so it is
// never read. A table is the starts of each group's pairs, then the pairs: (position on the other side, tap, elements of
// the other side's window inside the image).
#include "common.cuh"

constexpr int THREADS = 256;

struct alignas(sizeof(REAL) * VEC) Pack {
    REAL at[VEC];
};
struct alignas(sizeof(int) * VEC) Taps {
    int at[VEC];
};
struct Pair {
    int position, tap, count;
};

// One axis: groups 0..size-1 of pairs, and the other side's size.
struct Table {
    const int* starts;
    const Pair* pairs;

    __device__ __forceinline__ Table(const int* table, int64 size)
        : starts(table), pairs(reinterpret_cast<const Pair*>(table + size + 1)) {}
};

// What a kernel is about: this side's rows and columns, the width of the other side and of the filter, and packs a position.
struct Window {
    int64 rows, columns, other, filter, packs;
};

// Pack i of this side: its place among its position's packs, and the pairs of its row and column.
struct Place {
    int64 pack;
    int row, row_end, column, column_end;

    __device__ __forceinline__ Place(int64 i, const Window& window, const Table& rows, const Table& columns) {
        const int64 position = i / window.packs, y = position / window.columns, x = position - y * window.columns;
        pack = i - position * window.packs;
        row = rows.starts[y];
        row_end = rows.starts[y + 1];
        column = columns.starts[x];
        column_end = columns.starts[x + 1];
    }
};

// Where the pack lies at the position of a pair of pairs on the other side.
__device__ __forceinline__ int64 beside(const Window& window, const Pair& row, const Pair& column, int64 pack) {
    return (row.position * window.other + column.position) * window.packs + pack;
}

// Maxima and their taps; first on ties, the last NaN wins; -inf and tap -1 where a window holds nothing.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
max_forward(const Pack* __restrict__ x, const int* row_table, const int* column_table, Pack* __restrict__ out,
            Taps* __restrict__ taps, const Window window) {
    const Table rows(row_table, window.rows), columns(column_table, window.columns);
    const REAL lowest = __int_as_float(0xff800000);  // -inf
    GRID_STRIDE(i, window.rows * window.columns * window.packs) {
        const Place place(i, window, rows, columns);
        Pack best;
        Taps winner;
        for (int e = 0; e < VEC; ++e) {
            best.at[e] = lowest;
            winner.at[e] = -1;
        }
        for (int r = place.row; r < place.row_end; ++r) {
            const Pair row = rows.pairs[r];
            for (int c = place.column; c < place.column_end; ++c) {
                const Pair column = columns.pairs[c];
                const Pack value = x[beside(window, row, column, place.pack)];
                const int tap = static_cast<int>(row.tap * window.filter + column.tap);
                for (int e = 0; e < VEC; ++e) {
                    // NaN enters, and then only another one passes it. The first enters whatever it is.
                    const bool better = value.at[e] > best.at[e] || value.at[e] != value.at[e];
                    if (better || winner.at[e] < 0) {
                        best.at[e] = value.at[e];
                        winner.at[e] = tap;
                    }
                }
            }
        }
        out[i] = best;
        taps[i] = winner;
    }
}

// Each input position gathers the gradients of the windows that chose it.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
max_backward(const Pack* __restrict__ dy, const Taps* __restrict__ taps, const int* row_table, const int* column_table,
             Pack* __restrict__ dx, const Window window) {
    const Table rows(row_table, window.rows), columns(column_table, window.columns);
    GRID_STRIDE(i, window.rows * window.columns * window.packs) {
        const Place place(i, window, rows, columns);
        Pack total = {};
        for (int r = place.row; r < place.row_end; ++r) {
            const Pair row = rows.pairs[r];
            for (int c = place.column; c < place.column_end; ++c) {
                const Pair column = columns.pairs[c];
                const int64 from = beside(window, row, column, place.pack);
                const Pack grad = dy[from];
                const Taps winner = taps[from];
                const int tap = static_cast<int>(row.tap * window.filter + column.tap);
                for (int e = 0; e < VEC; ++e) total.at[e] += winner.at[e] == tap ? grad.at[e] : REAL(0);
            }
        }
        dx[i] = total;
    }
}

// Means over windows of `full` elements, or (0) of those inside the image. Rows are summed one by one and then together,
// so that no sum is longer than the window is wide or high.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
mean_forward(const Pack* __restrict__ x, const int* row_table, const int* column_table, Pack* __restrict__ out,
             const Window window, int64 full) {
    const Table rows(row_table, window.rows), columns(column_table, window.columns);
    GRID_STRIDE(i, window.rows * window.columns * window.packs) {
        const Place place(i, window, rows, columns);
        Pack total = {};
        for (int r = place.row; r < place.row_end; ++r) {
            Pack sum = {};
            for (int c = place.column; c < place.column_end; ++c) {
                const Pack value = x[beside(window, rows.pairs[r], columns.pairs[c], place.pack)];
                for (int e = 0; e < VEC; ++e) sum.at[e] += value.at[e];
            }
            for (int e = 0; e < VEC; ++e) total.at[e] += sum.at[e];
        }
        const int64 inside = static_cast<int64>(place.row_end - place.row) * (place.column_end - place.column);
        const REAL count = static_cast<REAL>(full ? full : inside ? inside : 1);
        for (int e = 0; e < VEC; ++e) total.at[e] /= count;
        out[i] = total;
    }
}

// Each input position gathers its share of the windows that hold it.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
mean_backward(const Pack* __restrict__ dy, const int* row_table, const int* column_table, Pack* __restrict__ dx,
              const Window window, int64 full) {
    const Table rows(row_table, window.rows), columns(column_table, window.columns);
    GRID_STRIDE(i, window.rows * window.columns * window.packs) {
        const Place place(i, window, rows, columns);
        Pack total = {};
        for (int r = place.row; r < place.row_end; ++r) {
            const Pair row = rows.pairs[r];
            for (int c = place.column; c < place.column_end; ++c) {
                const Pair column = columns.pairs[c];
                const Pack grad = dy[beside(window, row, column, place.pack)];
                const REAL share = REAL(1) / static_cast<REAL>(full ? full : static_cast<int64>(row.count) * column.count);
                for (int e = 0; e < VEC; ++e) total.at[e] += grad.at[e] * share;
            }
        }
        dx[i] = total;
    }
}

// What combine is about: results (count, positions, packs) from (count, length, packs).
struct Sizes {
    int64 count, length, positions, packs;
};

// out[i, p] = the sum of weight * x[i, source] over p's pairs. The table is the starts of each position's pairs, then the
// pairs' sources.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
combine(const Pack* __restrict__ x, const int* table, const REAL* weights, Pack* __restrict__ out, const Sizes sizes) {
    const int* const sources = table + sizes.positions + 1;
    GRID_STRIDE(i, sizes.count * sizes.positions * sizes.packs) {
        const int64 row = i / sizes.packs, pack = i - row * sizes.packs;
        const int64 image = row / sizes.positions, position = row - image * sizes.positions;
        const Pack* const from = x + image * sizes.length * sizes.packs + pack;
        Pack total = {};
        for (int pair = table[position]; pair < table[position + 1]; ++pair) {
            const Pack value = from[sources[pair] * sizes.packs];
            const REAL weight = weights[pair];
            for (int e = 0; e < VEC; ++e) total.at[e] += weight * value.at[e];
        }
        out[i] = total;
    }
}
