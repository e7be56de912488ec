// Depthwise ConvV2 and KS-deconv-V2: a channel of the result has its own filter, so there is nothing to tile and memory is
// the bound. Threads run along (image, four channels), as images lie in memory; each computes a patch of 2 x 4 (2 x 2) positions of
// one trim and reads a line of the source once for all its taps and both rows. Macros:
//   REAL     float or double
//   VEC      channels per thread: 4 (one filter per channel, aligned) or 1
//   STEP     1 or 2: how far neighbouring positions' sources lie apart, where neighbouring taps' are neighbours: a line is
//            kept in registers; 0: any steps, each product reads its own element through the caches
//
// For 3x3 filters at stride 1 a position costs 3 reads of the source and 2.25 of the filter, 16 bytes each, nearly all from
// the first two caches, 36 FMAs and one write: some 21 cycles of a multiprocessor for 512 bytes in and out per warp, which
// memory needs 34 cycles for each way.
#include "patches.cuh"

constexpr int THREADS = 256, DOWN = 2, ACROSS = STEP == 1 ? 4 : 2;  // at stride 2 two positions share almost nothing

struct Depthwise {
    Patches patches;
    int64 channels;          // of the result
    int64 width;             // threads of a block along images and channels; the others have other patches
    int64 filters, divisor;  // filters that a channel of the result sums over; filters that share a channel of the source
};

struct alignas(sizeof(REAL) * VEC) Pack {
    REAL at[VEC];
};
__device__ __forceinline__ Pack load(const REAL* place) { return *reinterpret_cast<const Pack*>(place); }

struct Sums2D {
    REAL at[DOWN][ACROSS][VEC] = {};

    __device__ __forceinline__ void add(int i, int j, const Pack& x, const Pack& w) {
#pragma unroll
        for (int v = 0; v < VEC; ++v) at[i][j][v] += x.at[v] * w.at[v];
    }
};

// One line of the source against the filter rows that meet it: TAPS taps.
template <int TAPS>
__device__ __forceinline__ void add_line(Sums2D& sums, const REAL* a, const REAL* b, const Patch<DOWN, ACROSS>& patch, const int (&tap)[DOWN]) {
    constexpr int REACH = (ACROSS - 1) * STEP + TAPS;
    const int reach = (patch.columns - 1) * STEP + TAPS;
    Pack x[REACH];
#pragma unroll
    for (int q = 0; q < REACH; ++q, a += patch.tap) x[q] = q < reach ? load(a) : Pack{};
#pragma unroll
    for (int i = 0; i < DOWN; ++i) {
        if (tap[i] < 0) continue;
        const REAL* filter = b + tap[i] * patch.b_line;
#pragma unroll
        for (int t = 0; t < TAPS; ++t, filter += patch.b_tap) {
            const Pack w = load(filter);
#pragma unroll
            for (int j = 0; j < ACROSS; ++j) sums.add(i, j, x[j * STEP + t], w);
        }
    }
}

// The same with any steps and any number of taps.
__device__ __forceinline__ void add_scattered(Sums2D& sums, const REAL* a, const REAL* b, const Patch<DOWN, ACROSS>& patch, const int (&tap)[DOWN]) {
#pragma unroll
    for (int i = 0; i < DOWN; ++i) {
        if (tap[i] < 0) continue;
        for (int t = 0; t < patch.taps_across; ++t) {
            const Pack w = load(b + (tap[i] * patch.b_line + t * patch.b_tap));
#pragma unroll
            for (int j = 0; j < ACROSS; ++j)
                if (j < patch.columns) sums.add(i, j, load(a + ((int64)j * patch.beside + (int64)t * patch.tap)), w);
        }
    }
}

template <int TAPS>
__device__ __forceinline__ void add_filter(Sums2D& sums, const REAL* a, const REAL* b, const Patch<DOWN, ACROSS>& patch, const Patches& p) {
    for_each_line(patch, p, [&](int64 offset, const int (&tap)[DOWN]) {
        if constexpr (TAPS > 0)
            add_line<TAPS>(sums, a + offset, b, patch, tap);
        else
            add_scattered(sums, a + offset, b, patch, tap);
    });
}

// Wide filters take several passes, of as many taps as there are registers for.
__device__ __forceinline__ void add_whole_filter(Sums2D& sums, const REAL* a, const REAL* b, const Patch<DOWN, ACROSS>& patch, const Patches& p) {
    if constexpr (STEP == 0) {
        add_filter<0>(sums, a, b, patch, p);
    } else {
        constexpr int MOST = 5;
        for (int left = patch.taps_across; left > 0; left -= MOST, a += MOST * patch.tap, b += MOST * patch.b_tap) {
            switch (left) {
                case 1: add_filter<1>(sums, a, b, patch, p); break;
                case 2: add_filter<2>(sums, a, b, patch, p); break;
                case 3: add_filter<3>(sums, a, b, patch, p); break;
                case 4: add_filter<4>(sums, a, b, patch, p); break;
                default: add_filter<MOST>(sums, a, b, patch, p);
            }
        }
    }
}

// blockIdx.x = chunk of (image, channels) * entries + entry of the list: all of a chunk's patches, so that lines that two of
// them read are still in the second-level cache.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
depthwise(const REAL* __restrict__ a, const REAL* __restrict__ b, REAL* __restrict__ out, const REAL* __restrict__ bias,
          const GatherTables tables, const Depthwise d) {
    const Patches& p = d.patches;
    const uint32 width = (uint32)d.width, packs = (uint32)d.channels / VEC, chunk = blockIdx.x / (uint32)p.entries;
    const TileEntry tile = tables.tiles[blockIdx.x - chunk * (uint32)p.entries];
    const uint32 lane = chunk * width + threadIdx.x % width, number = threadIdx.x / width;
    if (lane >= (uint32)p.images * packs || number >= tile.rows) return;
    const int image = lane / packs, channel = (lane - image * packs) * VEC;

    const Patch<DOWN, ACROSS> patch(p, tables, tile, tile.first + number);
    Sums2D sums;
    a += image * p.a_image + patch.a;
    b += patch.b;
    for (int f = 0; f < (int)d.filters; ++f) {
        const int filter = channel * (int)d.filters + f;
        add_whole_filter(sums, a + filter / (int)d.divisor, b + filter, patch, p);
    }

    Pack added = {};
    if (bias != nullptr) added = load(bias + channel);
    out += image * p.out_image + channel;
#pragma unroll
    for (int i = 0; i < DOWN; ++i) {
        if (i >= patch.rows) continue;
#pragma unroll
        for (int j = 0; j < ACROSS; ++j) {
            if (j >= patch.columns) continue;
            REAL* const place = out + patch.result(p, tables, i, j);
            Pack value = p.accumulate ? load(place) : Pack{};
#pragma unroll
            for (int v = 0; v < VEC; ++v) value.at[v] += sums.at[i][j][v] + added.at[v];
            *reinterpret_cast<Pack*>(place) = value;
        }
    }
}
