// Panels of a matrix product's operands on their way from global memory through registers to shared
// memory: the next ones travel while a thread multiplies the last.
#pragma once
#include "layout.cuh"

// One panel of EDGE x DEPTH elements of an operand, on its way to shared memory as [depth][edge]. WIDTH is the number
// of elements a thread reads at once (their addresses must be aligned to WIDTH * sizeof(T), and the edge's or depth's
// limit must be a multiple of WIDTH). Depths beyond the limit are read as zero; edges beyond it as anything, for the sums
// that they go into are never written.
template <class T, Layout LAYOUT, int EDGE, int DEPTH, int WIDTH, int THREADS>
struct Panel {
    static constexpr int PITCH = EDGE + 4;  // keeps 16-byte alignment, and the stores of a turned panel off one bank
    static constexpr int PIECES = EDGE * DEPTH / WIDTH / THREADS;
    static constexpr int RUN = (LAYOUT == ALONG ? EDGE : DEPTH) / WIDTH;  // pieces that are neighbours in memory
    static_assert(EDGE * DEPTH % (WIDTH * THREADS) == 0, "every thread moves as many pieces");

    static constexpr int EDGES_APIECE = LAYOUT == ALONG ? WIDTH : 1;
    static constexpr int ROUND = THREADS / RUN;  // from one piece of a thread to its next: depths ALONG, edges ACROSS

    T piece[PIECES][WIDTH];
    const T* place;  // of this thread's first piece
    int edges;       // what is left from there on; unused where all pieces have one edge: it is then the last one instead

    // `source` is the first panel's first element, of `edges`.
    __device__ __forceinline__ Panel(const T* __restrict__ source, int64 leading, int edges) {
        int edge = edge_of_thread();
        if ((PIECES == 1 || LAYOUT == ALONG) && edge > edges - EDGES_APIECE) edge = edges - EDGES_APIECE;
        place = source + (LAYOUT == ALONG ? depth_of_thread() * leading + edge : edge * leading + depth_of_thread());
        this->edges = edges - edge;
    }

    static __device__ __forceinline__ int edge_of_thread() {
        return LAYOUT == ALONG ? threadIdx.x % RUN * WIDTH : threadIdx.x / RUN;
    }
    static __device__ __forceinline__ int depth_of_thread() {
        return LAYOUT == ALONG ? threadIdx.x / RUN : threadIdx.x % RUN * WIDTH;
    }

    // Reads a panel of which `depths` are left, and goes on to the next.
    __device__ __forceinline__ void fetch(int64 leading, int depths) {
        const T* from = place;
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            bool inside = depth_of_thread() + (LAYOUT == ALONG ? i * ROUND : 0) < depths;
            if (PIECES > 1 && LAYOUT == ACROSS) inside = inside && edges > i * ROUND;
            if constexpr (WIDTH == 4) {
                vec4<T> value = {0, 0, 0, 0};
                if (inside) value = *reinterpret_cast<const vec4<T>*>(from);
                piece[i][0] = value.x, piece[i][1] = value.y, piece[i][2] = value.z, piece[i][3] = value.w;
            } else {
                piece[i][0] = inside ? *from : T(0);
            }
            from += ROUND * leading;
        }
        place += LAYOUT == ALONG ? DEPTH * leading : DEPTH;
    }

    __device__ __forceinline__ void store(T (*shared)[PITCH]) const {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            T* to = &shared[depth_of_thread() + (LAYOUT == ALONG ? i * ROUND : 0)]
                           [edge_of_thread() + (LAYOUT == ALONG ? 0 : i * ROUND)];
            if constexpr (WIDTH == 4 && LAYOUT == ALONG) {
                *reinterpret_cast<vec4<T>*>(to) = {piece[i][0], piece[i][1], piece[i][2], piece[i][3]};
            } else {
#pragma unroll
                for (int v = 0; v < WIDTH; ++v) to[v * PITCH] = piece[i][v];
            }
        }
    }
};
