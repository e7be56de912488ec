// Adding to selected elements of DTYPE, those selected more than once in a fixed order; see indexing.cu.
#include "strided.cuh"

typedef DTYPE T;
constexpr int V = WIDTH;
constexpr int CHUNK = 32;  // neighbours in sorted order that a thread adds up: CHUNK in cu32/indexing.py

// Sums run in double, those of integers wrap.
template <class A> struct Running { using type = uint64; };
template <> struct Running<float> { using type = double; };
template <> struct Running<double> { using type = double; };
using Sum = Running<T>::type;

struct Sums {
    Sum at[V];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int k = 0; k < V; ++k) at[k] = Sum(0);
    }
    template <class A>
    __device__ __forceinline__ void add(const Pack<A, V>& pack) {
#pragma unroll
        for (int k = 0; k < V; ++k) at[k] += (Sum)pack.at[k];
    }
    __device__ __forceinline__ void add_to(T* target) const {
        Pack<T, V> pack = load<T, V>(target, 0, false, T());
#pragma unroll
        for (int k = 0; k < V; ++k) pack.at[k] = (T)((Sum)pack.at[k] + at[k]);
        store(target, 0, pack);
    }
    __device__ __forceinline__ void keep(Sum* partial) const {
#pragma unroll
        for (int k = 0; k < V; ++k) partial[k] = at[k];
    }
    __device__ __forceinline__ void add(const Sum* partial) {
#pragma unroll
        for (int k = 0; k < V; ++k) at[k] += partial[k];
    }
};

// target[selection] += values where no element is selected twice; parameters as of assign in indexing.cu.
extern "C" __global__ void __launch_bounds__(LOOP_THREADS)
add_selected(Loop loop, T* target, const T* values, const int64* displacement, int64 step, T number, const int64* limit,
             int64 first) {
    GRID_STRIDE(i, loop.count) {
        int at[4];
        locate(loop, (uint32)i, at);
        const int64 j = first + at[3];
        if (limit != nullptr && j >= *limit) continue;
        Sums sums;
        sums.clear();
        sums.add(load<T, V>(values, at[2], loop.splat & 4, number));
        sums.add_to(target + displacement[j] * step + at[1]);
    }
}

// One chunk of the sorted displacements.
struct Chunk {
    int64 begin, end;
    bool continued, continues;  // whether its first and its last element's run reach into the neighbours

    __device__ __forceinline__ Chunk(const int64* displacement, int64 number, int64 count) {
        begin = number * CHUNK;
        end = begin + CHUNK < count ? begin + CHUNK : count;
        continued = begin > 0 && displacement[begin - 1] == displacement[begin];
        continues = end < count && displacement[end] == displacement[end - 1];
    }
};

// Sums runs of equal displacements within chunks: operands of the loop: a partial result, target, values, the chunk. Runs
// that lie in one chunk are added to target; what a chunk has of others goes to `heads` (runs begun before it) and `tails`.
// Six blocks per multiprocessor leave it 40 registers: by itself the assembler takes 32 for sm_80, and spills.
extern "C" __global__ void __launch_bounds__(LOOP_THREADS, 6)
add_chunks(Loop loop, Sum* heads, Sum* tails, T* target, const T* values, const int64* displacement, int64 step, T number,
           const int64* order, int64 value_step, int64 first, int64 count) {
    GRID_STRIDE(i, loop.count) {
        int at[4];
        locate(loop, (uint32)i, at);
        const Chunk chunk(displacement, first + at[3], count);
        bool begun_before = chunk.continued;
        Sums sums;
        sums.clear();
        for (int64 j = chunk.begin; j < chunk.end; ++j) {
            const int64 place = displacement[j];
            const T* source = values == nullptr ? values : values + order[j] * value_step;
            sums.add(load<T, V>(source, at[2], loop.splat & 4, number));
            const bool last = j + 1 == chunk.end;
            if (!last && displacement[j + 1] == place) continue;
            if (begun_before) {
                sums.keep(heads + at[0]);
            } else if (last && chunk.continues) {
                sums.keep(tails + at[0]);
            } else {
                sums.add_to(target + place * step + at[1]);
            }
            begun_before = false;
            sums.clear();
        }
    }
}

// Adds to target the runs that begin in a chunk and end in a later one.
extern "C" __global__ void __launch_bounds__(LOOP_THREADS)
join_chunks(Loop loop, const Sum* heads, const Sum* tails, T* target, const int64* displacement, int64 step, int64 first,
            int64 count, int64 between) {
    GRID_STRIDE(i, loop.count) {
        int at[4];
        locate(loop, (uint32)i, at);
        int64 number = first + at[3];
        const Chunk chunk(displacement, number, count);
        const int64 place = displacement[chunk.end - 1];
        if (!chunk.continues || (chunk.continued && displacement[chunk.begin] == place)) continue;
        Sums sums;
        sums.clear();
        sums.add(tails + at[0]);
        for (const Sum* head = heads + at[0];;) {
            const Chunk next(displacement, ++number, count);
            head += between;
            sums.add(head);
            if (!next.continues || displacement[next.end - 1] != place) break;
        }
        sums.add_to(target + place * step + at[1]);
    }
}
