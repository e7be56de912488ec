// Reading and writing selected elements of one size; DTYPE is uint8, uint16, uint32 or uint64, whatever the elements mean.
//
// A selected element lies at its place in the slices plus displacement[b] * step, where b counts the index tensors'
// elements. Loops are over the selection in row-major order; WIDTH is above 1 where its innermost axis is a dense slice.
#include "stored.cuh"
#include "strided.cuh"

typedef DTYPE T;
constexpr int V = WIDTH;

// out = x[selection]; operands of the loop: out, x, displacement.
extern "C" __global__ void __launch_bounds__(LOOP_THREADS)
gather(Loop loop, T* out, const T* x, const int64* displacement, int64 step) {
    GRID_STRIDE(i, loop.count) {
        int at[3];
        locate(loop, (uint32)i, at);
        const T* source = x + displacement[at[2]] * step + at[1];
        store(out, at[0], load<T, V>(source, 0, false, T()));
    }
}

// target[selection] = values, or the number where values is null; operands: none, target, values, displacement.
// Where `order` is given displacement is sorted, order[j] is the b of its element j, values lie value_step apart along
// b, and of equal displacements the last counts. Where `limit` is given only the first *limit elements of displacement
// are there. `first` is where in displacement this piece of the loop starts, `count` how many there are if sorted.
extern "C" __global__ void __launch_bounds__(LOOP_THREADS)
assign(Loop loop, T* target, const T* values, const int64* displacement, int64 step, T number, const int64* order,
       int64 value_step, const int64* limit, int64 first, int64 count) {
    GRID_STRIDE(i, loop.count) {
        int at[4];
        locate(loop, (uint32)i, at);
        const int64 j = first + at[3];
        if (limit != nullptr && j >= *limit) continue;
        const int64 place = displacement[j];
        const T* source = values;
        if (order != nullptr) {
            if (j + 1 < count && displacement[j + 1] == place) continue;
            source += order[j] * value_step;
        }
        store(target + place * step, at[1], load<T, V>(source, at[2], loop.splat & 4, number));
    }
}
