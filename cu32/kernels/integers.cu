// Element-wise division and powers of integers; DTYPE is int, int64 or uint8.
#include "elementwise.cuh"

typedef DTYPE T;

// The quotient rounded down; 0 where y is 0, and the least integer divided by -1 wraps to itself, both as in NumPy.
struct FloorDivide {
    static __device__ T of(T x, T y) {
        if (y == T(0)) return T(0);
        if (y == T(-1) && T(-1) < T(0)) return (T)(0 - (uint64)x);
        const T whole = x / y, rest = x % y;
        return rest != T(0) && (rest < T(0)) != (y < T(0)) ? whole - T(1) : whole;
    }
};

// What the quotient rounded down leaves: it has the divisor's sign; 0 where y is 0.
struct Remainder {
    static __device__ T of(T x, T y) {
        if (y == T(0) || (y == T(-1) && T(-1) < T(0))) return T(0);
        const T rest = x % y;
        return rest != T(0) && (rest < T(0)) != (y < T(0)) ? rest + y : rest;
    }
};

// x to a power >= 0 by squaring; it wraps.
struct Pow {
    static __device__ T of(T x, T y) {
        uint64 power = 1, square = (uint64)x;
        for (; y > T(0); y = y / T(2)) {
            if (y % T(2) != T(0)) power *= square;
            square *= square;
        }
        return (T)power;
    }
};

KERNEL each_floor_divide(Loop loop, T* out, const T* x, const T* y, T number) {
    binary<FloorDivide, 1>(loop, out, x, y, number);
}
KERNEL each_remainder(Loop loop, T* out, const T* x, const T* y, T number) {
    binary<Remainder, 1>(loop, out, x, y, number);
}
KERNEL each_pow(Loop loop, T* out, const T* x, const T* y, T number) { binary<Pow, 1>(loop, out, x, y, number); }
