// Element-wise comparison and logic of DTYPE, an integer or bool; the results are bool.
#include "elementwise.cuh"

typedef DTYPE T;

struct Eq { static __device__ bool of(T x, T y) { return x == y; } };
struct Ne { static __device__ bool of(T x, T y) { return x != y; } };
struct Lt { static __device__ bool of(T x, T y) { return x < y; } };
struct Le { static __device__ bool of(T x, T y) { return x <= y; } };
struct Gt { static __device__ bool of(T x, T y) { return x > y; } };
struct Ge { static __device__ bool of(T x, T y) { return x >= y; } };
struct And { static __device__ bool of(T x, T y) { return x != T(0) && y != T(0); } };
struct Or { static __device__ bool of(T x, T y) { return x != T(0) || y != T(0); } };
struct Xor { static __device__ bool of(T x, T y) { return (x != T(0)) != (y != T(0)); } };
struct Not { static __device__ bool of(T x) { return x == T(0); } };
struct Finite { static __device__ bool of(T) { return true; } };

KERNEL each_eq(Loop loop, bool* out, const T* x, const T* y, T number) { binary<Eq>(loop, out, x, y, number); }
KERNEL each_ne(Loop loop, bool* out, const T* x, const T* y, T number) { binary<Ne>(loop, out, x, y, number); }
KERNEL each_lt(Loop loop, bool* out, const T* x, const T* y, T number) { binary<Lt>(loop, out, x, y, number); }
KERNEL each_le(Loop loop, bool* out, const T* x, const T* y, T number) { binary<Le>(loop, out, x, y, number); }
KERNEL each_gt(Loop loop, bool* out, const T* x, const T* y, T number) { binary<Gt>(loop, out, x, y, number); }
KERNEL each_ge(Loop loop, bool* out, const T* x, const T* y, T number) { binary<Ge>(loop, out, x, y, number); }
KERNEL each_logical_and(Loop loop, bool* out, const T* x, const T* y, T number) {
    binary<And>(loop, out, x, y, number);
}
KERNEL each_logical_or(Loop loop, bool* out, const T* x, const T* y, T number) { binary<Or>(loop, out, x, y, number); }
KERNEL each_logical_xor(Loop loop, bool* out, const T* x, const T* y, T number) {
    binary<Xor>(loop, out, x, y, number);
}
KERNEL each_logical_not(Loop loop, bool* out, const T* x) { unary<Not>(loop, out, x); }
KERNEL each_isfinite(Loop loop, bool* out, const T* x) { unary<Finite>(loop, out, x); }
