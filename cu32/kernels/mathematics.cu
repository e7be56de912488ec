// Element-wise functions that only floats have; DTYPE is float or double.
#include "elementwise.cuh"

typedef DTYPE T;

// Steps at a time of the long operations: those of double have registers for one.
constexpr int FEW = sizeof(T) == 4 ? 2 : 1;

struct Reciprocal { static __device__ T of(T x) { return T(1) / x; } };
struct Exp { static __device__ T of(T x) { return exp(x); } };
struct Log { static __device__ T of(T x) { return log(x); } };
struct Log1p { static __device__ T of(T x) { return log1p(x); } };
struct Sqrt { static __device__ T of(T x) { return sqrt(x); } };
struct Sin { static __device__ T of(T x) { return sin(x); } };
struct Cos { static __device__ T of(T x) { return cos(x); } };
struct Tanh { static __device__ T of(T x) { return tanh(x); } };
struct Sigmoid { static __device__ T of(T x) { return T(1) / (T(1) + exp(-x)); } };
struct Erf { static __device__ T of(T x) { return erf(x); } };
struct Floor { static __device__ T of(T x) { return floor(x); } };
struct Ceil { static __device__ T of(T x) { return ceil(x); } };

struct Div { static __device__ T of(T x, T y) { return x / y; } };
struct Pow { static __device__ T of(T x, T y) { return pow(x, y); } };

// The remainder of the division rounded down: it has the divisor's sign, but a zero that of x. Exact, as fmod is.
struct Remainder {
    static __device__ T of(T x, T y) {
        const T rest = fmod(x, y);
        if (y == T(0) || rest == T(0)) return rest;  // NaN, or 0
        return (rest < T(0)) != (y < T(0)) ? rest + y : rest;
    }
};

// The quotient rounded down, from the exact remainder: x / y may round up to a whole number that it lies below.
struct FloorDivide {
    static __device__ T of(T x, T y) {
        if (y == T(0)) return x / y;
        const T rest = fmod(x, y);
        T whole = (x - rest) / y;
        if (rest != T(0) && (rest < T(0)) != (y < T(0))) whole -= T(1);
        if (whole == T(0)) return copysign(T(0), x / y);
        const T below = floor(whole);
        return whole - below > T(0.5) ? below + T(1) : below;
    }
};

KERNEL each_reciprocal(Loop loop, T* out, const T* x) { unary<Reciprocal>(loop, out, x); }
KERNEL each_exp(Loop loop, T* out, const T* x) { unary<Exp>(loop, out, x); }
KERNEL each_log(Loop loop, T* out, const T* x) { unary<Log>(loop, out, x); }
KERNEL each_log1p(Loop loop, T* out, const T* x) { unary<Log1p>(loop, out, x); }
KERNEL each_sqrt(Loop loop, T* out, const T* x) { unary<Sqrt>(loop, out, x); }
KERNEL each_sin(Loop loop, T* out, const T* x) { unary<Sin>(loop, out, x); }
KERNEL each_cos(Loop loop, T* out, const T* x) { unary<Cos>(loop, out, x); }
KERNEL each_tanh(Loop loop, T* out, const T* x) { unary<Tanh>(loop, out, x); }
KERNEL each_sigmoid(Loop loop, T* out, const T* x) { unary<Sigmoid>(loop, out, x); }
KERNEL each_erf(Loop loop, T* out, const T* x) { unary<Erf>(loop, out, x); }
KERNEL each_floor(Loop loop, T* out, const T* x) { unary<Floor>(loop, out, x); }
KERNEL each_ceil(Loop loop, T* out, const T* x) { unary<Ceil>(loop, out, x); }

KERNEL each_div(Loop loop, T* out, const T* x, const T* y, T number) { binary<Div, FEW>(loop, out, x, y, number); }
KERNEL each_pow(Loop loop, T* out, const T* x, const T* y, T number) { binary<Pow, FEW>(loop, out, x, y, number); }
KERNEL each_remainder(Loop loop, T* out, const T* x, const T* y, T number) {
    binary<Remainder, FEW>(loop, out, x, y, number);
}
KERNEL each_floor_divide(Loop loop, T* out, const T* x, const T* y, T number) {
    binary<FloorDivide, FEW>(loop, out, x, y, number);
}
