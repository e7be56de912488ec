// Numbers at equal distances. Macros: DTYPE, what they are stored as; WHOLE, whether that is an integer.
#include "common.cuh"

typedef DTYPE T;

// first + i * step, which wraps around.
extern "C" __global__ void __launch_bounds__(256) counted(T* out, int64 count, int64 first, int64 step) {
    GRID_STRIDE(i, count) out[i] = (T)(int64)((uint64)first + (uint64)i * (uint64)step);
}

// As NumPy makes them of floats: the second number is given, and the others follow by its difference from the first.
extern "C" __global__ void __launch_bounds__(256) spaced(T* out, int64 count, double first, double second) {
    const double step = __dsub_rn(second, first);
    GRID_STRIDE(i, count) {
        const double value = i == 1 ? second : __dadd_rn(__dmul_rn((double)i, step), first);
#if WHOLE
        out[i] = (T)(int64)value;
#else
        out[i] = (T)value;
#endif
    }
}
