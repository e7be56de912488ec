// Element-wise conversion to DTYPE from each of the dtypes.
#include "elementwise.cuh"

typedef DTYPE T;

template <class S>
struct Convert {
    static __device__ T of(S x) {
        if constexpr (T(0.5) == T(0) && T(2) != T(1)) return (T)(int64)x;  // integers wrap, also those from floats
        return (T)x;
    }
};

KERNEL from_float(Loop loop, T* out, const float* x) { unary<Convert<float>>(loop, out, x); }
KERNEL from_double(Loop loop, T* out, const double* x) { unary<Convert<double>>(loop, out, x); }
KERNEL from_int(Loop loop, T* out, const int* x) { unary<Convert<int>>(loop, out, x); }
KERNEL from_int64(Loop loop, T* out, const int64* x) { unary<Convert<int64>>(loop, out, x); }
KERNEL from_uint8(Loop loop, T* out, const uint8* x) { unary<Convert<uint8>>(loop, out, x); }
KERNEL from_bool(Loop loop, T* out, const bool* x) { unary<Convert<bool>>(loop, out, x); }
