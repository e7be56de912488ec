// What a batch of matrix products is, to the kernels that compute it.
#pragma once
#include "common.cuh"

// out = a b over up to three batch axes, the last fastest; a batch stride of 0 broadcasts. `parts` share the depth out
// in pieces of `part` (each writes its own copy of out, for kernels/parts.cu to add). Leading dimensions and strides in elements.
struct Product {
    int64 rows, columns, depth;
    int64 a_leading, b_leading;
    int64 batches, parts, part;
    int64 size[3], a_stride[3], b_stride[3];
};

// Where the operands of one batch begin.
struct Offsets {
    int64 a, b;
};

__device__ __forceinline__ Offsets batch_offsets(const Product& p, int64 batch) {
    Offsets at = {0, 0};
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
        const int64 index = batch % p.size[axis];
        batch /= p.size[axis];
        at.a += index * p.a_stride[axis];
        at.b += index * p.b_stride[axis];
    }
    return at;
}

// A block's tile: blocks with neighbouring numbers take tiles of GROUP rows by a few columns, whose operands share the
// second-level cache.
struct Tile {
    int64 row, column, part, batch;
};

template <int ROWS, int COLUMNS>
__device__ __forceinline__ Tile tile_of_block(const Product& p, int64 block) {
    constexpr int64 GROUP = 8;
    const int64 down = ceil_div<int64>(p.rows, ROWS), across = ceil_div<int64>(p.columns, COLUMNS);
    const int64 tile = block % (down * across), rest = block / (down * across);
    const int64 first = tile / (GROUP * across) * GROUP, height = down - first < GROUP ? down - first : GROUP;
    const int64 inside = tile % (GROUP * across);
    return {(first + inside % height) * ROWS, inside / height * COLUMNS, rest % p.parts, rest / p.parts};
}
