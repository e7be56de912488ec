// Where the elements lie that index tensors and masks select: displacements from the indexed tensor's first element.
#include "strided.cuh"

// displacement[b] = sum over index tensors of index[b] * step, for b in row-major order; absent tensors are null.
extern "C" __global__ void __launch_bounds__(LOOP_THREADS)
displacements(Loop loop, int64* displacement, const int64* first, const int64* second, const int64* third,
              int64 first_step, int64 second_step, int64 third_step) {
    GRID_STRIDE(i, loop.count) {
        int at[4];
        locate(loop, (uint32)i, at);
        int64 sum = first[at[1]] * first_step;
        if (second != nullptr) sum += second[at[2]] * second_step;
        if (third != nullptr) sum += third[at[3]] * third_step;
        displacement[at[0]] = sum;
    }
}

// displacement[k] for the k-th element that a dense mask holds; ranks: the mask's running sum.
extern "C" __global__ void __launch_bounds__(LOOP_THREADS)
selected(Loop loop, const uint8* mask, int64* displacement, const int64* ranks, int64 origin) {
    GRID_STRIDE(i, loop.count) {
        int at[2];
        locate(loop, (uint32)i, at);
        if (mask[at[0]]) displacement[ranks[at[0]] - 1] = origin + at[1];
    }
}
