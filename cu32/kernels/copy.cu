// Copies and fills of elements of one size; DTYPE is uint8, uint16, uint32 or uint64, whatever the elements mean.
#include "pointwise.cuh"
#include "stored.cuh"

typedef DTYPE T;

constexpr int SIDE = 32;   // of the tiles of a transposition
constexpr int LINES = 8;   // rows of a tile that a block moves at a time

// Moves elements of x, or one number where that is null.
struct Move {
    T* out;
    const T* x;
    T number;
    bool splat;

    template <int W>
    struct Values {
        Pack<T, W> x;
    };

    template <int W>
    __device__ __forceinline__ void read(const int (&at)[2], Values<W>& values) const {
        values.x = load<T, W>(x, at[1], splat, number);
    }

    template <int W>
    __device__ __forceinline__ void write(int at, const Values<W>& values) const {
        store(out, at, values.x);
    }
};

extern "C" __global__ void __launch_bounds__(LOOP_THREADS) each_copy(Loop loop, T* out, const T* x, T number) {
    compute<2, 2>(loop, Move{out, x, number, (loop.splat & 2) != 0});
}

// A loop over tiles (its first two axes: down out's innermost axis, down x's): x has step 1 along `columns`, where out
// has out_step; out has step 1 along `rows`, where x has x_step. A tile passes through shared memory, so that both are
// read and written along their innermost axes.
extern "C" __global__ void __launch_bounds__(SIDE * LINES)
transpose(Loop loop, T* out, const T* x, int rows, int columns, int out_step, int x_step) {
    __shared__ T tile[SIDE][SIDE + 1];
    int at[2];
    locate(loop, blockIdx.x, at);
    const uint32 below = quotient(blockIdx.x, loop.axis[0]);
    const int first_row = (int)(blockIdx.x - below * loop.axis[0].length) * SIDE;
    const int first_column = (int)(below - quotient(below, loop.axis[1]) * loop.axis[1].length) * SIDE;
    const int across = (int)threadIdx.x % SIDE, down = (int)threadIdx.x / SIDE;
#pragma unroll
    for (int line = down; line < SIDE; line += LINES) {
        if (first_row + line < rows && first_column + across < columns) {
            tile[line][across] = x[at[1] + line * x_step + across];
        }
    }
    __syncthreads();
#pragma unroll
    for (int line = down; line < SIDE; line += LINES) {
        if (first_column + line < columns && first_row + across < rows) {
            out[at[0] + line * out_step + across] = tile[across][line];
        }
    }
}
