// Element-wise arithmetic of DTYPE, an integer or bool: integers wrap, of bools add is `or` and mul is `and`.
#include "elementwise.cuh"

typedef DTYPE T;

// The type in which T wraps on overflow.
template <class A> struct Wrapping { using type = A; };
template <> struct Wrapping<int> { using type = uint32; };
template <> struct Wrapping<int64> { using type = uint64; };
template <> struct Wrapping<uint8> { using type = uint32; };
using W = Wrapping<T>::type;

__device__ __forceinline__ bool below_zero(T x) {
    if constexpr (T(-1) <= T(0)) return x < T(0);
    return false;
}

struct Neg { static __device__ T of(T x) { return (T)(-(W)x); } };
struct Abs { static __device__ T of(T x) { return below_zero(x) ? (T)(-(W)x) : x; } };
struct Sign { static __device__ T of(T x) { return x > T(0) ? T(1) : below_zero(x) ? T(-1) : T(0); } };
struct Square { static __device__ T of(T x) { return (T)((W)x * (W)x); } };
struct Add { static __device__ T of(T x, T y) { return (T)((W)x + (W)y); } };
struct Sub { static __device__ T of(T x, T y) { return (T)((W)x - (W)y); } };
struct Mul { static __device__ T of(T x, T y) { return (T)((W)x * (W)y); } };
struct Maximum { static __device__ T of(T x, T y) { return x > y ? x : y; } };
struct Minimum { static __device__ T of(T x, T y) { return x < y ? x : y; } };

KERNEL each_neg(Loop loop, T* out, const T* x) { unary<Neg>(loop, out, x); }
KERNEL each_abs(Loop loop, T* out, const T* x) { unary<Abs>(loop, out, x); }
KERNEL each_sign(Loop loop, T* out, const T* x) { unary<Sign>(loop, out, x); }
KERNEL each_square(Loop loop, T* out, const T* x) { unary<Square>(loop, out, x); }

KERNEL each_add(Loop loop, T* out, const T* x, const T* y, T number) { binary<Add>(loop, out, x, y, number); }
KERNEL each_sub(Loop loop, T* out, const T* x, const T* y, T number) { binary<Sub>(loop, out, x, y, number); }
KERNEL each_mul(Loop loop, T* out, const T* x, const T* y, T number) { binary<Mul>(loop, out, x, y, number); }
KERNEL each_maximum(Loop loop, T* out, const T* x, const T* y, T number) { binary<Maximum>(loop, out, x, y, number); }
KERNEL each_minimum(Loop loop, T* out, const T* x, const T* y, T number) { binary<Minimum>(loop, out, x, y, number); }

KERNEL each_where(Loop loop, T* out, const uint8* condition, const T* x, const T* y, T x_number, T y_number) {
    each<4, 2>(loop, Select<T>{out, condition, x, y, x_number, y_number});
}
