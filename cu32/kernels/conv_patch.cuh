// ConvV2 and KS-deconv-V2 on the tensor cores where a tile's rows are a rectangle of positions, of one class of rows x one of
// columns, times images. The pixels that these positions need for all taps of their classes, a patch, are brought to shared
// memory once for DEPTH channels; then all taps are multiplied from it, while the filter's panels follow one another.
//
// Operands come through registers, which hold them for as long as a step lasts, and are rounded there: copied asynchronously,
// they would have to be read and written in shared memory once more, whose time is the scarcest after that of the tensor cores.
// Macros: KERNEL, FILTER, TILE_ROWS, TILE_COLUMNS, OFFSET and NORMALISED as in conv_tensor.cuh.
#pragma once
#define STEP_DEPTH 16
#define TENSOR_DOWN (TILE_ROWS / 64)
#define TENSOR_ACROSS (TILE_COLUMNS / 64)
#define READY 1
#include "before.cuh"
#include "ending.cuh"
#include "tensor_core.cuh"

// A tile's place, and its patch. A tile's rows are position * pitch + image; so are the patch's, of pixels.
struct PatchTile {
    int taps_down, taps_across, first_tap_down, first_tap_across;
    int member_down, member_across;  // the first ones, in the tables of members
    int down, across;                // positions
    int image, images, pitch;        // first image, how many, and how many there is room for: a multiple of eight
    int height, width;               // of the patch
    int source_down, source_across;  // where its first pixel is in the source, and
    int pixel_down, pixel_across;    // the steps from there to its neighbours
    int origin_down, origin_across;  // the pixel of the first position and the first tap
    int step_down, step_across;      // from a position to the next, in pixels
    int tap_down, tap_across;        // and from a tap to the next
};

struct PatchTables {
    const PatchTile* tiles;
    const Member* row_members;
    const Member* column_members;
};

constexpr int PIECES = DEPTH / 4;              // of a pixel, of 16 bytes
constexpr int ROUND = THREADS / PIECES;        // pixels that all threads bring at once
constexpr int SLICE = TILE_ROWS / ROUND;       // pieces of the next patch that a thread brings during a step, at most
constexpr int RESIDENT = THREADS == 256 ? 1 : 2;
using Tally = TensorSums<ACROSS, FILTER, TILE_ROWS, TILE_COLUMNS>;
using Panel = Tally::Right;
using End = Ending<FILTER == ACROSS, float>;
static_assert(sizeof(EndRoom<Tally, float>) <= sizeof(float) * 2 * Panel::FLOATS, "it lies where the panels were");

__device__ __forceinline__ void store_rounded(float* place, const vec4<float>& value) {
    unsigned* bits = reinterpret_cast<unsigned*>(place);
    *reinterpret_cast<vec4<unsigned>*>(bits) = {to_tf32(value.x), to_tf32(value.y), to_tf32(value.z), to_tf32(value.w)};
}

// The place in the patch of row i's first tap. Rows that are not there have that of one that is.
__device__ __forceinline__ int patch_row(const PatchTile& tile, int i) {
    int position = i / tile.pitch;
    const int image = i - position * tile.pitch;
    if (position >= tile.down * tile.across) position = 0;
    const int r = position / tile.across, c = position - r * tile.across;
    const int pixel = (tile.origin_down + r * tile.step_down) * tile.width + tile.origin_across + c * tile.step_across;
    return pixel * tile.pitch + image;
}

// Where the result of row i begins, or -1.
__device__ __forceinline__ OFFSET result_place(const Gather& g, const PatchTables& tables, const PatchTile& tile, int i) {
    const int position = i / tile.pitch, image = i - position * tile.pitch;
    if (position >= tile.down * tile.across || image >= tile.images) return -1;
    const int r = position / tile.across, c = position - r * tile.across;
    return (OFFSET)((tile.image + image) * g.out_image + tables.row_members[tile.member_down + r].index * g.out_row +
                    tables.column_members[tile.member_across + c].index * g.out_column);
}

// Where row i of the patch begins in the source. Images that are not there are the last one.
__device__ __forceinline__ OFFSET patch_place(const Gather& g, const PatchTile& tile, int i) {
    const int pixel = i / tile.pitch, image = i - pixel * tile.pitch, r = pixel / tile.width, c = pixel - r * tile.width;
    return (OFFSET)((tile.image + (image < tile.images ? image : tile.images - 1)) * g.a_image +
                    (tile.source_down + r * tile.pixel_down) * g.a_row +
                    (tile.source_across + c * tile.pixel_across) * g.a_column);
}

// What a thread brings to shared memory: during a step it stores what it loaded during the one before, a panel for the next
// step and a slice of the next patch.
struct PatchFeed {
    const Gather& g;
    const PatchTile& tile;
    const OFFSET* const places;  // of the patch's rows in the source
    const float* a;              // of this thread's piece of a pixel, in the patch that is loaded
    const float* b;              // of its first piece of the panel that is loaded next
    int patch_left, panel_left;  // channels from there on
    int across, down;            // the tap of that panel
    int pieces, each;            // of this thread in a patch, and in a slice
    const int columns;           // of the result, from this thread's first one on
    vec4<float> panel[Panel::PIECES], slice[SLICE];
#if NORMALISED
    const AffineOf<float>* by;  // of this thread's channels in the patch that is stored
    float slope;
#endif

    __device__ __forceinline__ PatchFeed(const float* a, const float* b, const Gather& g, const PatchTile& tile,
                                         const OFFSET* places, int group, int column, int chunk, int end)
        : g(g), tile(tile), places(places + threadIdx.x / PIECES), across(0), down(0),
          columns((int)g.width - column - Panel::edge()) {
        const int first = chunk * DEPTH, last = end * DEPTH < (int)g.depth ? end * DEPTH : (int)g.depth;
        const int piece = threadIdx.x % PIECES * 4;
        this->a = a + (group * g.depth + first + piece);
        patch_left = last - first - piece;
        panel_left = last - first - Panel::depth();
        this->b = b + (group * g.b_group + tile.first_tap_down * g.b_row + tile.first_tap_across * g.b_column +
                       (column + Panel::edge()) * g.b_width + (first + Panel::depth()) * g.b_depth);
        const int rows = tile.height * tile.width * tile.pitch;
        pieces = ceil_div(rows - (int)threadIdx.x / PIECES, ROUND);
        each = ceil_div(ceil_div(rows, ROUND), tile.taps_down * tile.taps_across);
    }

    // How many pieces a slice has from this one on; the same for a whole warp, as a patch's rows are a multiple of eight.
    __device__ __forceinline__ int count(int first) const { return each < pieces - first ? each : pieces - first; }

    __device__ __forceinline__ void load_slice(int first) {
        const OFFSET* const from = places + first * ROUND;
        const int count = 0 < patch_left ? this->count(first) : 0;
#pragma unroll
        for (int i = 0; i < SLICE; ++i) {
            slice[i] = {0, 0, 0, 0};
            if (i < count) slice[i] = *reinterpret_cast<const vec4<float>*>(a + from[i * ROUND]);
        }
    }
    __device__ __forceinline__ void store_slice(float* patch, int first) {
        const int row = threadIdx.x / PIECES;
        float* const place = patch + (first * ROUND + row) * DEPTH + (threadIdx.x % PIECES ^ turned(row)) * 4;
        const int count = this->count(first);
#if NORMALISED
        const AffineOf<float> own[4] = {by[0], by[1], by[2], by[3]};
#endif
#pragma unroll
        for (int i = 0; i < SLICE; ++i) {
            if (i >= count) break;
#if NORMALISED
            float normal[4] = {normalise(slice[i].x, own[0]), normalise(slice[i].y, own[1]), normalise(slice[i].z, own[2]),
                               normalise(slice[i].w, own[3])};
            activate(normal, slope);
            slice[i] = {normal[0], normal[1], normal[2], normal[3]};
#endif
            store_rounded(place + i * ROUND * DEPTH, slice[i]);
        }
    }
    __device__ __forceinline__ void next_patch() {
        a += DEPTH;
        patch_left -= DEPTH;
#if NORMALISED
        by += DEPTH;
#endif
    }

    __device__ __forceinline__ void load_panel() {
        const int64 round = Panel::ROUND * (FILTER == ACROSS ? g.b_width : g.b_depth);
#pragma unroll
        for (int i = 0; i < Panel::PIECES; ++i) {
            const bool inside = FILTER == ACROSS ? 0 < panel_left && i * Panel::ROUND < columns
                                                 : i * Panel::ROUND < panel_left && 0 < columns;
            panel[i] = {0, 0, 0, 0};
            if (inside) panel[i] = *reinterpret_cast<const vec4<float>*>(b + i * round);
        }
        b += g.b_tap_column;
        if (++across < tile.taps_across) return;
        across = 0;
        b += g.b_tap_row - tile.taps_across * g.b_tap_column;
        if (++down < tile.taps_down) return;
        down = 0;
        b += DEPTH * g.b_depth - tile.taps_down * g.b_tap_row;
        panel_left -= DEPTH;
    }
    __device__ __forceinline__ void store_panel(float* stage) {
#pragma unroll
        for (int i = 0; i < Panel::PIECES; ++i) store_rounded(Panel::piece(stage, i), panel[i]);
    }
};

// The taps of a chunk of channels, in their order: where their rows lie in the patch.
struct PatchWalk {
    int tap, across;
    int offset;  // in floats
    int chunk;   // 0 and 1 in turn

    __device__ __forceinline__ void advance(const PatchTile& tile, int taps, int step, int row_step) {
        ++tap;
        ++across;
        offset += step;
        if (across == tile.taps_across) {
            across = 0;
            offset += row_step;
        }
        if (tap == taps) {
            tap = offset = 0;
            chunk ^= 1;
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
KERNEL(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, const float* __restrict__ bias,
       const Parts<float> parts, BEFORE_TENSORS const End::Tensors end, const PatchTables tables, const Gather g, int64 patch_floats,
       const End::Numbers numbers BEFORE_SLOPE) {
    extern __shared__ __align__(128) float memory[];  // two panels, two patches, a table of channels, the places of the patch's rows
    __shared__ PatchTile tile;
    __shared__ OFFSET results[TILE_ROWS];
    const uint32 column_tiles = (uint32)g.column_tiles, groups = (uint32)g.groups, rest = blockIdx.x / column_tiles;
    const int column = (int)(blockIdx.x - rest * column_tiles) * TILE_COLUMNS, group = (int)(rest % groups);
    float* const patches = memory + 2 * Panel::FLOATS;
    float* const behind = patches + 2 * patch_floats;
#if NORMALISED
    AffineOf<float>* const by = reinterpret_cast<AffineOf<float>*>(behind);
    const int room = (ceil_div((int)g.depth, DEPTH) + 1) * DEPTH;  // slices of a patch behind the last one are read, too
    fill_affine<THREADS>(by, before, group * (int)g.depth, (int)g.depth, room);
    OFFSET* const places = reinterpret_cast<OFFSET*>(by + room);
#else
    OFFSET* const places = reinterpret_cast<OFFSET*>(behind);
#endif
    if (threadIdx.x < sizeof(PatchTile) / sizeof(int))
        reinterpret_cast<int*>(&tile)[threadIdx.x] = reinterpret_cast<const int*>(tables.tiles + rest / groups)[threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.x; i < TILE_ROWS; i += THREADS) results[i] = result_place(g, tables, tile, i);
    for (int i = threadIdx.x; i < tile.height * tile.width * tile.pitch; i += THREADS) places[i] = patch_place(g, tile, i);
    __syncthreads();

    Tally sums;
    const int taps = tile.taps_down * tile.taps_across;
    const Piece piece(taps ? ceil_div((int)g.depth, DEPTH) : 0, blockIdx.y, (int)g.parts);
    if (piece.begin < piece.end) {
        PatchFeed feed(a, b, g, tile, places, group, column, piece.begin, piece.end);
#if NORMALISED
        feed.by = by + piece.begin * DEPTH + threadIdx.x % PIECES * 4;
        feed.slope = (float)slope;
#endif
        for (int tap = 0; tap < taps; ++tap) {
            feed.load_slice(tap * feed.each);
            feed.store_slice(patches, tap * feed.each);
        }
        feed.next_patch();
        feed.load_panel();
        feed.store_panel(memory);
        feed.load_slice(0);
        feed.load_panel();

        int rows[Tally::DOWN];
        const int lane = threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < Tally::DOWN; ++i) {
            const int row = Tally::warp_row() + i * 16 + lane % 16;
            rows[i] = patch_row(tile, row) * DEPTH + (lane / 16 ^ turned(lane)) * 4;
        }
        const int step = tile.tap_across * tile.pitch * DEPTH;
        const int row_step = (tile.tap_down * tile.width - tile.taps_across * tile.tap_across) * tile.pitch * DEPTH;
        PatchWalk walk = {0, 0, 0, 0};
        // A scheduler has one warp of each half of a large block: while one brings operands the other one multiplies.
        const bool early = THREADS <= 4 * WARP || threadIdx.x < THREADS / 2;
        int full = 0;
        for (int steps = (piece.end - piece.begin) * taps; steps > 0; --steps) {
            __syncthreads();
            const float* const from = patches + (walk.chunk ? patch_floats : 0) + walk.offset;
            const float* const panel = memory + full * Panel::FLOATS;
            const auto read = [from, &rows](unsigned (&left)[4], int i, int k) { ldmatrix_x4(left, from + (rows[i] ^ k)); };
            full ^= 1;
            const auto bring = [&] {
                feed.store_panel(memory + full * Panel::FLOATS);
                feed.store_slice(patches + (walk.chunk ? 0 : patch_floats), walk.tap * feed.each);
                walk.advance(tile, taps, step, row_step);
                if (walk.tap == 0) feed.next_patch();
                feed.load_panel();
                feed.load_slice(walk.tap * feed.each);
            };
            if (early) bring();
            sums.multiply(read, panel, 0);
            if (!early) bring();
            sums.multiply(read, panel, STEP_K);
        }
    }

    const int columns = (int)g.width - column, first = group * (int)g.width + column;
    const Target<float> target = {out + first, results, columns, g.aligned != 0, g.accumulate != 0};
    const TilePlace place = {(int)(rest / groups), tile.down * tile.across * tile.images, group, column};
    if (!is_joined<THREADS, RESIDENT, TILE_ROWS>(sums, target, parts, first, g, memory)) return;
    end_tile(sums, target, bias == nullptr ? nullptr : bias + first, first, g, place, end, numbers, memory);
}
