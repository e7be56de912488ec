// Reductions along axes of a tensor of any strides: sum, prod, max, min, any, all, argmax, argmin. Macro TYPE: any dtype.
//
// Threads of a block stand in `outputs` columns of `lanes`: the lanes of a column share a result, taking every so-manieth
// of its elements, and join theirs by a tree. Where results are few, their elements are split between blocks, whose parts
// the last block of a column joins in order. So a result depends on the launch's shape alone.
//
// Sums of float32 are taken in float64: the error is the result's one rounding, and n * 2^-53 of the sum of absolute values.
// Sums of float64 carry the error of every addition along (Knuth's exact two-sum): some 2 * 2^-53 however long.
#include "reduce.cuh"

constexpr int THREADS = 256;
constexpr int AXES = 6;

// Which elements there are: results over `axes` kept axes, the innermost first, of inner x outer elements each.
struct Problem {
    int64 results, inner, outer, inner_stride, outer_stride;
    int64 length[AXES], stride[AXES];
    int64 axes;
    int64 outputs, lanes;      // of a block
    int64 beside;              // whether neighbouring threads take neighbouring elements of a result, else neighbouring results
};

// Offset of a result's first element.
__device__ __forceinline__ int64 first_element(const Problem& p, int64 result) {
    int64 offset = 0;
    const int last = static_cast<int>(p.axes) - 1;
#pragma unroll 1
    for (int axis = 0; axis < last; ++axis) {
        const int64 next = result / p.length[axis];
        offset += (result - next * p.length[axis]) * p.stride[axis];
        result = next;
    }
    return last < 0 ? 0 : offset + result * p.stride[last];
}

// -- what is accumulated: each has a Value, start(any element), add(value, element, index), join(value, value), result -----

// A sum and the part that rounding took from it.
struct Exact {
    double sum, lost;
};

template <class T>
struct Sum {  // integers, in int64
    using Value = int64;
    using Result = int64;
    static __device__ __forceinline__ Value start(const T*, int64) { return 0; }
    static __device__ __forceinline__ void add(Value& value, T element, int64) { value += element; }
    static __device__ __forceinline__ void join(Value& value, Value other) { value += other; }
    static __device__ __forceinline__ Result result(Value value) { return value; }
};

template <>
struct Sum<float> {
    using Value = double;
    using Result = float;
    static __device__ __forceinline__ Value start(const float*, int64) { return 0; }
    static __device__ __forceinline__ void add(Value& value, float element, int64) { value += element; }
    static __device__ __forceinline__ void join(Value& value, Value other) { value += other; }
    static __device__ __forceinline__ Result result(Value value) { return static_cast<float>(value); }
};

template <>
struct Sum<double> {
    using Value = Exact;
    using Result = double;
    static __device__ __forceinline__ Value start(const double*, int64) { return {0, 0}; }
    static __device__ __forceinline__ void add(Value& value, double element, int64) {
        const double sum = value.sum + element, part = sum - value.sum;
        value.lost += (value.sum - (sum - part)) + (element - part);
        value.sum = sum;
    }
    static __device__ __forceinline__ void join(Value& value, Value other) {
        add(value, other.sum, 0);
        value.lost += other.lost;
    }
    // Of infinities and NaN what was lost is NaN: they are the sum alone.
    static __device__ __forceinline__ Result result(Value value) {
        return value.sum - value.sum == 0 ? value.sum + value.lost : value.sum;
    }
};

template <class T>
struct Product {
    using Value = unsigned long long;  // wraps around as NumPy's int64
    using Result = int64;
    static __device__ __forceinline__ Value start(const T*, int64) { return 1; }
    static __device__ __forceinline__ void add(Value& value, T element, int64) {
        value *= static_cast<Value>(static_cast<int64>(element));
    }
    static __device__ __forceinline__ void join(Value& value, Value other) { value *= other; }
    static __device__ __forceinline__ Result result(Value value) { return static_cast<int64>(value); }
};

template <class T>
struct FloatProduct {
    using Value = double;
    using Result = T;
    static __device__ __forceinline__ Value start(const T*, int64) { return 1; }
    static __device__ __forceinline__ void add(Value& value, T element, int64) { value *= element; }
    static __device__ __forceinline__ void join(Value& value, Value other) { value *= other; }
    static __device__ __forceinline__ Result result(Value value) { return static_cast<T>(value); }
};
template <>
struct Product<float> : FloatProduct<float> {};
template <>
struct Product<double> : FloatProduct<double> {};

// Whether a comes before b where the largest (the smallest) is sought: NaN before any number.
template <bool LARGEST, class T>
__device__ __forceinline__ bool better(T a, T b) {
    return (LARGEST ? a > b : a < b) || (a != a && b == b);
}

// Starts from an element of the result, for there is no number that precedes all.
template <bool LARGEST, class T>
struct Extreme {
    using Value = T;
    using Result = T;
    static __device__ __forceinline__ Value start(const T* x, int64 count) { return count ? *x : T(0); }
    static __device__ __forceinline__ void add(Value& value, T element, int64) {
        if (better<LARGEST>(element, value)) value = element;
    }
    static __device__ __forceinline__ void join(Value& value, Value other) { add(value, other, 0); }
    static __device__ __forceinline__ Result result(Value value) { return value; }
};

template <class T>
struct Found {
    T value;
    int64 index;
};

// The first on ties.
template <bool LARGEST, class T>
struct Position {
    using Value = Found<T>;
    using Result = int64;
    static __device__ __forceinline__ Value start(const T* x, int64 count) { return {count ? *x : T(0), 0}; }
    static __device__ __forceinline__ void add(Value& found, T element, int64 index) {
        const bool tie = element == found.value || (element != element && found.value != found.value);
        if (better<LARGEST>(element, found.value) || (tie && index < found.index)) found = {element, index};
    }
    static __device__ __forceinline__ void join(Value& found, Value other) { add(found, other.value, other.index); }
    static __device__ __forceinline__ Result result(Value found) { return found.index; }
};

// Whether any (not ALL), or every, element differs from 0.
template <bool ALL, class T>
struct Truth {
    using Value = int;
    using Result = bool;
    static __device__ __forceinline__ Value start(const T*, int64) { return ALL; }
    static __device__ __forceinline__ void add(Value& value, T element, int64) {
        value = ALL ? value && element != T(0) : value || element != T(0);
    }
    static __device__ __forceinline__ void join(Value& value, Value other) {
        value = ALL ? value && other : value || other;
    }
    static __device__ __forceinline__ Result result(Value value) { return value != 0; }
};

// -- the walk --------------------------------------------------------------------------------------------------------------

// Adds the elements first, first + step, ... of a result to a value.
template <class Op>
__device__ __forceinline__ void walk(typename Op::Value& value, const TYPE* __restrict__ x, const Problem& p, int64 first,
                                     int64 step) {
    if (p.outer == 1) {
#pragma unroll 8
        for (int64 i = first; i < p.inner; i += step) Op::add(value, x[i * p.inner_stride], i);
        return;
    }
    const int64 down = step / p.inner, across = step % p.inner;
    int64 row = first / p.inner, column = first % p.inner;
#pragma unroll 4
    for (int64 i = first; i < p.inner * p.outer; i += step) {
        Op::add(value, x[row * p.outer_stride + column * p.inner_stride], i);
        row += down;
        column += across;
        if (column >= p.inner) {
            column -= p.inner;
            ++row;
        }
    }
}

template <class Op>
struct Workspace {
    typename Op::Value values[THREADS];
    int last;
};

// Joins the lanes' values; lane 0 has the block's.
template <class Op>
__device__ __forceinline__ void join_lanes(Workspace<Op>& shared, int lane, int lanes, int apart) {
    combine_lanes(lane, lanes, apart, [&](int i, int j) { Op::join(shared.values[i], shared.values[j]); });
}

// partial: gridDim.y x results values; counters: one per block of blockIdx.x, 0 before and after.
template <class Op>
__device__ __forceinline__ void reduce(const TYPE* __restrict__ x, typename Op::Result* __restrict__ out,
                                       typename Op::Value* partial, unsigned* counters, const Problem& p,
                                       Workspace<Op>& shared) {
    const int outputs = static_cast<int>(p.outputs), lanes = static_cast<int>(p.lanes);
    const int lane = p.beside ? threadIdx.x % lanes : threadIdx.x / outputs;
    const int output = p.beside ? threadIdx.x / lanes : threadIdx.x % outputs;
    const int apart = p.beside ? 1 : outputs, parts = gridDim.y;
    const int64 result = static_cast<int64>(blockIdx.x) * outputs + output;
    const bool inside = result < p.results;
    const TYPE* const start = x + (inside ? first_element(p, result) : 0);
    if (inside) {
        typename Op::Value value = Op::start(start, p.inner * p.outer);
        walk<Op>(value, start, p, static_cast<int64>(blockIdx.y) * lanes + lane, static_cast<int64>(parts) * lanes);
        shared.values[threadIdx.x] = value;
    }
    join_lanes<Op>(shared, inside ? lane : lanes, lanes, apart);
    const bool writes = inside && lane == 0;
    if (parts == 1) {
        if (writes) out[result] = Op::result(shared.values[threadIdx.x]);
        return;
    }
    if (writes) partial[blockIdx.y * p.results + result] = shared.values[threadIdx.x];
    if (!is_last_block(counters + blockIdx.x, parts, &shared.last)) return;
    if (inside) {
        typename Op::Value value = Op::start(start, p.inner * p.outer);
        for (int part = lane; part < parts; part += lanes) Op::join(value, partial[part * p.results + result]);
        shared.values[threadIdx.x] = value;
    }
    join_lanes<Op>(shared, inside ? lane : lanes, lanes, apart);
    if (writes) out[result] = Op::result(shared.values[threadIdx.x]);
}

using Total = Sum<TYPE>;
extern "C" __global__ void __launch_bounds__(THREADS, 4)
reduce_sum(const TYPE* __restrict__ x, Total::Result* __restrict__ out, Total::Value* partial, unsigned* counters, const Problem p) {
    __shared__ Workspace<Total> shared;
    reduce<Total>(x, out, partial, counters, p, shared);
}

using Factor = Product<TYPE>;
extern "C" __global__ void __launch_bounds__(THREADS, 4)
reduce_prod(const TYPE* __restrict__ x, Factor::Result* __restrict__ out, Factor::Value* partial, unsigned* counters, const Problem p) {
    __shared__ Workspace<Factor> shared;
    reduce<Factor>(x, out, partial, counters, p, shared);
}

using Largest = Extreme<true, TYPE>;
extern "C" __global__ void __launch_bounds__(THREADS, 4)
reduce_max(const TYPE* __restrict__ x, Largest::Result* __restrict__ out, Largest::Value* partial, unsigned* counters, const Problem p) {
    __shared__ Workspace<Largest> shared;
    reduce<Largest>(x, out, partial, counters, p, shared);
}

using Smallest = Extreme<false, TYPE>;
extern "C" __global__ void __launch_bounds__(THREADS, 4)
reduce_min(const TYPE* __restrict__ x, Smallest::Result* __restrict__ out, Smallest::Value* partial, unsigned* counters, const Problem p) {
    __shared__ Workspace<Smallest> shared;
    reduce<Smallest>(x, out, partial, counters, p, shared);
}

using Any = Truth<false, TYPE>;
extern "C" __global__ void __launch_bounds__(THREADS, 4)
reduce_any(const TYPE* __restrict__ x, Any::Result* __restrict__ out, Any::Value* partial, unsigned* counters, const Problem p) {
    __shared__ Workspace<Any> shared;
    reduce<Any>(x, out, partial, counters, p, shared);
}

using All = Truth<true, TYPE>;
extern "C" __global__ void __launch_bounds__(THREADS, 4)
reduce_all(const TYPE* __restrict__ x, All::Result* __restrict__ out, All::Value* partial, unsigned* counters, const Problem p) {
    __shared__ Workspace<All> shared;
    reduce<All>(x, out, partial, counters, p, shared);
}

using AtLargest = Position<true, TYPE>;
extern "C" __global__ void __launch_bounds__(THREADS, 4)
reduce_argmax(const TYPE* __restrict__ x, AtLargest::Result* __restrict__ out, AtLargest::Value* partial, unsigned* counters, const Problem p) {
    __shared__ Workspace<AtLargest> shared;
    reduce<AtLargest>(x, out, partial, counters, p, shared);
}

using AtSmallest = Position<false, TYPE>;
extern "C" __global__ void __launch_bounds__(THREADS, 4)
reduce_argmin(const TYPE* __restrict__ x, AtSmallest::Result* __restrict__ out, AtSmallest::Value* partial, unsigned* counters, const Problem p) {
    __shared__ Workspace<AtSmallest> shared;
    reduce<AtSmallest>(x, out, partial, counters, p, shared);
}
