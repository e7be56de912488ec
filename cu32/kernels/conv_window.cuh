// Sk-dilated-V2 on the tensor cores by sliding windows. A block owns up to TAPS neighbouring taps of one filter row, for a tile
// of output by input channels. It walks along the rows of the output, DEPTH images at a time: a step is one position of these
// images. One panel of dy serves all taps there. Of x it takes a panel for each column under the taps, its window; the next
// position's window has most of them too, so that a step brings only the columns which are new. Columns of the padding are not
// there: a tap that would meet one is left out of the step. Channels are multiples of four, and addresses of 16 bytes. Macros:
// KERNEL, its name; PRODUCTS, see tensor_core.cuh; TILE_ROWS (output channels), TILE_COLUMNS (input channels), TAPS, OFFSET
// (see tile.cuh), NORMALISED (see before.cuh: of the input channels).
#pragma once
#include "before.cuh"
#include "join.cuh"
#include "tensor_core.cuh"
#include "tile.cuh"

constexpr int STAGES = 3;
constexpr int RESIDENT = TILE_ROWS == 64 && PRODUCTS == 1 ? 3 : 2;

// Sizes and strides in elements; cu32/conv/windows.py gives them by name.
struct Sliding {
    int64 images;
    int64 in_width, out_width;                  // channels of a group
    int64 in_tiles, out_tiles;                  // tiles that cover them
    int64 filter_columns, runs;                 // a filter row's taps, and the runs of taps that they are cut into
    int64 columns, stride, dilation;            // of x along a row
    int64 slots;                                // panels of x that the ring holds
    int64 x_image, x_row, x_column, x_step_row;  // x_step_row: from an output row to the next
    int64 y_image, y_row, y_column;
    int64 parts, together, part_stride;         // together: parts of a group (join.cuh)
    int64 aligned;                              // whether four input channels of the result may be written at once
};

// Neighbouring taps, with the output positions that one of them meets x from, and the column under the first one at the first.
struct TapRun {
    int output, positions, column, taps;
};

using DyPanel = SharedPanel<ALONG, TILE_ROWS>;
using XPanel = SharedPanel<ALONG, TILE_COLUMNS>;
#if NORMALISED
using Change = NormalisedRight;
#else
using Change = Rounded;
#endif

// A position on a walk along the rows, with its window. All threads of the block have the same numbers.
struct Window {
    const Sliding& sizes;
    const TapRun run;
    const int span;        // columns of a window
    int position, column;  // column: under the first tap; it may lie outside

    __device__ __forceinline__ Window(const Sliding& sizes, const TapRun& run, int position)
        : sizes(sizes), run(run), span((run.taps - 1) * (int)sizes.dilation + 1), position(position),
          column(run.column + position * (int)sizes.stride) {}

    // Its columns inside x: none where the end is no later than the first.
    __device__ __forceinline__ int first() const { return column > 0 ? column : 0; }
    __device__ __forceinline__ int end() const {
        const int end = column + span;
        return end < (int)sizes.columns ? end : (int)sizes.columns;
    }
    // Moves on; returns whether that is to the beginning of another row, or of other images.
    __device__ __forceinline__ bool advance() {
        column += (int)sizes.stride;
        if (++position < run.positions) return false;
        position = 0;
        column = run.column;
        return true;
    }
    // The ring's slot of a number that may be beyond its end.
    __device__ __forceinline__ int slot(int number) const {
        return number < (int)sizes.slots ? number : number - (int)sizes.slots;
    }
};

// The copies. Of a panel this thread brings four channels of every ROUND-th image.
struct WindowFeed {
    const float *const x, *const y;
    float* const ring;
    const int x_images, y_images;  // 0 where the thread's channels are not there
    Window window;
    int image, next, fill;         // first of a step's images; first column that a row has not brought; the slot for it
    OFFSET x_row, y_place;         // of this thread's first channel and image: column 0 of x's row, the position of dy

    __device__ __forceinline__ WindowFeed(const float* x, const float* y, float* ring, const Window& window, const Run& down,
                                          int line, int x_width, int y_width)
        : x(x), y(y), ring(ring), x_images(XPanel::edge() < x_width ? (int)window.sizes.images : 0),
          y_images(DyPanel::edge() < y_width ? (int)window.sizes.images : 0), window(window), next(0), fill(0) {
        const Sliding& sizes = window.sizes;
        const int chunks = ceil_div((int)sizes.images, DEPTH), row = line / chunks;
        image = (line - row * chunks) * DEPTH;
        x_row = (OFFSET)(down.source * sizes.x_row + row * sizes.x_step_row + (image + XPanel::depth()) * sizes.x_image +
                         XPanel::edge());
        y_place = (OFFSET)((down.output + row) * sizes.y_row + (window.run.output + window.position) * sizes.y_column +
                           (image + DyPanel::depth()) * sizes.y_image + DyPanel::edge());
    }

    __device__ __forceinline__ void issue(float* dy) {
        bring<DyPanel>(dy, y + y_place, window.sizes.y_image, y_images);
        const int end = window.end();
        if (next < window.column) next = window.column;
#pragma unroll 1
        for (; next < end; ++next) {
            const float* column = x + (x_row + next * (OFFSET)window.sizes.x_column);
            bring<XPanel>(ring + fill * XPanel::FLOATS, column, window.sizes.x_image, x_images);
            fill = window.slot(fill + 1);
        }
        advance();
    }

   private:
    template <class Panel>
    __device__ __forceinline__ void bring(float* panel, const float* from, int64 step, int images) const {
#pragma unroll
        for (int i = 0; i < Panel::PIECES; ++i)
            cp_async16_zfill(Panel::piece(panel, i), from + i * Panel::ROUND * step,
                             image + Panel::depth() + i * Panel::ROUND < images);
    }

    __device__ __forceinline__ void advance() {
        const Sliding& sizes = window.sizes;
        y_place += (OFFSET)sizes.y_column;
        if (!window.advance()) return;
        next = 0;
        image += DEPTH;
        x_row += DEPTH * (OFFSET)sizes.x_image;
        y_place += DEPTH * (OFFSET)sizes.y_image - window.run.positions * (OFFSET)sizes.y_column;
        if (image < (int)sizes.images) return;
        x_row += (OFFSET)sizes.x_step_row - image * (OFFSET)sizes.x_image;
        y_place += (OFFSET)sizes.y_row - image * (OFFSET)sizes.y_image;
        image = 0;
    }
};

// A warp's share of a block's sums for each tap: 64 output channels by all, or a half, or a quarter of the input channels.
struct WindowSums {
    static constexpr int ACROSS = THREADS / WARP / (TILE_ROWS / 64);  // warps side by side
    static constexpr int DOWN = 4, WIDE = TILE_COLUMNS / ACROSS / 8;
    static constexpr int STAGE = DyPanel::FLOATS;
    static_assert(TILE_ROWS % 64 == 0 && WIDE % 2 == 0, "whole fragments, columns in pairs of them");

    const float* const ring;
    Window window;
    int head;  // the slot of the window's first column
    Change change;
    float sum[TAPS][DOWN][WIDE][4] = {};

    __device__ __forceinline__ WindowSums(const float* ring, const Window& window) : ring(ring), window(window), head(0) {}

    static __device__ __forceinline__ int warp_row() { return threadIdx.x / WARP / ACROSS * 64; }
    static __device__ __forceinline__ int warp_column() { return threadIdx.x / WARP % ACROSS * (WIDE * 8); }

    // Where sum[t][i][j][2 * half] and the sum to its right are in the block.
    static __device__ __forceinline__ int row_of(int i, int half) {
        return warp_row() + i * 16 + half * 8 + threadIdx.x % WARP / 4;
    }
    static __device__ __forceinline__ int column_of(int j) { return warp_column() + j * 8 + threadIdx.x % 4 * 2; }

    // Adds a step, whose dy is given, and leaves behind the columns that no later step needs.
    __device__ __forceinline__ void accumulate(const float* dy) {
        const int first = window.first(), end = window.end();
        const float* under[TAPS];
        bool inside[TAPS], all = true;
#pragma unroll
        for (int t = 0; t < TAPS; ++t) {
            const int column = window.column + t * (int)window.sizes.dilation;
            inside[t] = t < window.run.taps && column >= 0 && column < (int)window.sizes.columns;
            under[t] = ring + window.slot(head + column - first) * XPanel::FLOATS;  // of no meaning outside
            all = all && inside[t];
        }
        if (PRODUCTS == 3)
            add_threefold(dy, under, inside);
        else if (all)
            add<true>(dy, under, inside);
        else
            add<false>(dy, under, inside);
        const int kept = window.advance() || window.column > end ? end : window.column;
        if (kept > first) head = window.slot(head + kept - first);
    }

   private:
    __device__ __forceinline__ void read_left(unsigned (&fragment)[4], const float* dy, int i, int k) const {
        DyPanel::left(fragment, dy, warp_row() + i * 16, k);
        change.left(fragment, k);
    }
    __device__ __forceinline__ void read_right(unsigned (&first)[2], unsigned (&second)[2], const float* x, int j, int k) const {
        const int column = warp_column() + j * 8;
        XPanel::right(first, second, x, column, k);
        change.right(first, column);
        change.right(second, column + 8);
    }

    // ALL: every tap is inside, so that nothing but its length holds up the main loop.
    template <bool ALL>
    __device__ __forceinline__ void add(const float* dy, const float* const (&under)[TAPS], const bool (&inside)[TAPS]) {
        // As many as registers allow.
        constexpr int TURNS = !ALL || (NORMALISED && TILE_ROWS == 128) ? 1 : TILE_ROWS == 128 ? 2 : DEPTH / STEP_K;
#pragma unroll TURNS
        for (int k = 0; k < DEPTH; k += STEP_K) {
            unsigned left[DOWN][4];
#pragma unroll
            for (int i = 0; i < DOWN; ++i) read_left(left[i], dy, i, k);
#pragma unroll
            for (int t = 0; t < TAPS; ++t) {
                if (!ALL && !inside[t]) continue;
                unsigned right[WIDE][2];
#pragma unroll
                for (int j = 0; j < WIDE; j += 2) read_right(right[j], right[j + 1], under[t], j, k);
#pragma unroll
                for (int i = 0; i < DOWN; ++i)
#pragma unroll
                    for (int j = 0; j < WIDE; ++j) mma_tf32_m16n8k8(sum[t][i][j], left[i], right[j]);
            }
        }
    }

    __device__ __forceinline__ void add_threefold(const float* dy, const float* const (&under)[TAPS],
                                                  const bool (&inside)[TAPS]) {
#pragma unroll 1
        for (int k = 0; k < DEPTH; k += STEP_K) {
            unsigned left[DOWN][4], low_left[DOWN][4];
            float special_left = 0;
#pragma unroll
            for (int i = 0; i < DOWN; ++i) {
                read_left(left[i], dy, i, k);
                split(left[i], low_left[i], special_left);
            }
#pragma unroll
            for (int t = 0; t < TAPS; ++t) {
                if (!inside[t]) continue;
                unsigned right[WIDE][2], low_right[WIDE][2];
                float special = special_left;
#pragma unroll
                for (int j = 0; j < WIDE; j += 2) {
                    read_right(right[j], right[j + 1], under[t], j, k);
                    split(right[j], low_right[j], special);
                    split(right[j + 1], low_right[j + 1], special);
                }
                if (__any_sync(0xffffffffu, special != special)) {
                    add_special(sum[t], dy, under[t], k);
                    continue;
                }
                // The small products first. Neighbours do not wait for each other.
#pragma unroll
                for (int two = 0; two < DOWN; two += 2) {
                    float part[2 * WIDE][4];
#pragma unroll
                    for (int n = 0; n < 2 * WIDE; ++n) first_mma_tf32_m16n8k8(part[n], low_left[two + n / WIDE], right[n % WIDE]);
#pragma unroll
                    for (int n = 0; n < 2 * WIDE; ++n) mma_tf32_m16n8k8(part[n], left[two + n / WIDE], low_right[n % WIDE]);
#pragma unroll
                    for (int n = 0; n < 2 * WIDE; ++n) mma_tf32_m16n8k8(part[n], left[two + n / WIDE], right[n % WIDE]);
#pragma unroll
                    for (int n = 0; n < 2 * WIDE; ++n)
#pragma unroll
                        for (int e = 0; e < 4; ++e) sum[t][two + n / WIDE][n % WIDE][e] += part[n][e];
                }
            }
        }
    }

    // Eight terms of a tap some of which may be infinite or no number, which only meet the other side's higher parts.
    __device__ __forceinline__ void add_special(float (&sum)[DOWN][WIDE][4], const float* dy, const float* x, int k) const {
#pragma unroll
        for (int i = 0; i < DOWN; ++i) {
            unsigned left[4], high_left[4], low_left[4];
            read_left(left, dy, i, k);
            split_special(left, high_left, low_left);
#pragma unroll
            for (int j = 0; j < WIDE; j += 2) {
                unsigned right[2][2], high[2], low[2];
                read_right(right[0], right[1], x, j, k);
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                    float part[4];
                    split_special(right[n], high, low);
                    first_mma_tf32_m16n8k8(part, low_left, high);
                    mma_tf32_m16n8k8(part, high_left, low);
                    mma_tf32_m16n8k8(part, left, right[n]);
#pragma unroll
                    for (int e = 0; e < 4; ++e) sum[i][j + n][e] += part[e];
                }
            }
        }
    }
};

// blockIdx.x = (group * out_tiles + output tile) * in_tiles + input tile, .y = filter row * runs + run of taps, .z = part.
// Behind the stages of dy shared memory has the ring of x.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
KERNEL(const float* __restrict__ x, const float* __restrict__ y, float* out, float* parts, unsigned* counters,
       BEFORE_TENSORS const Run* __restrict__ row_runs, const TapRun* __restrict__ tap_runs, const Sliding sizes BEFORE_SLOPE) {
    extern __shared__ __align__(128) float stages[];
    const int in_tile = blockIdx.x % (int)sizes.in_tiles, rest = blockIdx.x / (int)sizes.in_tiles;
    const int group = rest / (int)sizes.out_tiles, out_tile = rest - group * (int)sizes.out_tiles;
    const int out_channel = group * (int)sizes.out_width + out_tile * TILE_ROWS, in_channel = in_tile * TILE_COLUMNS;
    const int rows = (int)sizes.out_width - out_tile * TILE_ROWS, columns = (int)sizes.in_width - in_channel;

    const int filter_row = blockIdx.y / (int)sizes.runs, taps = blockIdx.y - filter_row * (int)sizes.runs;
    const Run down = row_runs[filter_row];
    const TapRun run = tap_runs[taps];
    const int steps = down.count * ceil_div((int)sizes.images, DEPTH) * run.positions;
    const Piece piece(steps, blockIdx.z, (int)sizes.parts);
    const int line = run.positions ? piece.begin / run.positions : 0;
    const Window window(sizes, run, piece.begin - line * run.positions);

    float* const ring = stages + STAGES * DyPanel::FLOATS;
    WindowSums sums(ring, window);
#if NORMALISED
    __shared__ AffineOf<float> by[TILE_COLUMNS];
    fill_affine<THREADS>(by, before, group * (int)sizes.in_width + in_channel, columns, TILE_COLUMNS);
    sums.change.by = by;
    sums.change.slope = (float)slope;
#endif
    if (piece.begin < piece.end) {
        WindowFeed feed(x + group * (int)sizes.in_width + in_channel, y + out_channel, ring, window, down, line, columns, rows);
        pipeline<STAGES>(sums, feed, piece.end - piece.begin, stages);
    }

    const int row_of_taps = (int)sizes.filter_columns * (int)sizes.in_width;
    const int channel = (int)gridDim.y / (int)sizes.runs * row_of_taps;  // from an output channel's filter to the next one's
    const int first = out_channel * channel + filter_row * row_of_taps + taps * TAPS * (int)sizes.in_width + in_channel;
    const bool whole = sizes.parts == 1;
    float* const part = (whole ? out : parts + blockIdx.z * sizes.part_stride) + first;
#pragma unroll
    for (int t = 0; t < TAPS; ++t) {
        if (t >= run.taps) continue;
#pragma unroll
        for (int i = 0; i < WindowSums::DOWN; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = sums.row_of(i, half);
                if (row >= rows) continue;
#pragma unroll
                for (int j = 0; j < WindowSums::WIDE; ++j) {
                    const int column = sums.column_of(j);
                    write_pair(part + row * channel + t * (int)sizes.in_width + column, sums.sum[t][i][j] + 2 * half,
                               columns - column, sizes.aligned);
                }
            }
    }
    if (whole) return;
    const Joint<float> joint = {parts + first, sizes.part_stride, (int)sizes.parts, (int)sizes.together, counters,
                                (int)(blockIdx.y * gridDim.x + blockIdx.x), columns, sizes.aligned != 0};
    const int width = (int)sizes.in_width, held = run.taps;
    const auto place = [=](int i) {
        const int row = i / TAPS, t = i - row * TAPS;
        return row < rows && t < held ? row * channel + t * width : -1;
    };
    join_parts<THREADS, RESIDENT, TILE_ROWS * TAPS, TILE_COLUMNS>(joint, blockIdx.z, out + first, reinterpret_cast<int*>(stages), place);
}
