// A gather without tiles of channels: a thread (or the lanes that share a sum) computes a patch, neighbouring positions of one
// trim, so that what it reads of the source serves several of them. tables.patches lists them; a patch never leaves its
// class of rows x class of columns, so no position has a tap that another one lacks.
#pragma once
#include "tile.cuh"

// Strides in elements and steps of indices; cu32/conv/patches.py gives them by name.
struct Patches {
    int64 images, entries;                 // entries: of the list of tiles
    int64 member_row, member_column;       // of the source's index, from a position of a class to the next
    int64 tap_row, tap_column;             // of the source's index, from a tap of a class to the next; never zero
    int64 a_image, a_row, a_column;        // strides of the source
    int64 b_row, b_column;                 // strides of the filter by tap
    int64 b_tap_row, b_tap_column;         // steps in the filter from a tap of a class to the next
    int64 out_image, out_row, out_column;  // strides of the result
    int64 accumulate;                      // whether to add to what the result holds
};

// One patch of at most DOWN x ACROSS positions. Taps are walked so that the source's index ascends.
template <int DOWN, int ACROSS>
struct Patch {
    int rows, columns;            // positions that exist
    int row, column;              // the first ones' places among the members
    int taps_down, taps_across;
    int64 a;                      // offset of the first position's first tap in the source
    int line, tap;                // from a tap to the next in the source: down and across
    int b, b_line, b_tap;         // the same of the filter
    int below, beside;            // from a position to the next in the source

    __device__ __forceinline__ Patch(const Patches& p, const GatherTables& tables, const TileEntry& tile, int number) {
        const Class down = tables.row_classes[tile.row_class], across = tables.column_classes[tile.column_class];
        const int wide = ceil_div(across.size, ACROSS), r = number / wide * DOWN, c = number % wide * ACROSS;
        rows = down.size - r < DOWN ? down.size - r : DOWN;
        columns = across.size - c < ACROSS ? across.size - c : ACROSS;
        row = down.start + r;
        column = across.start + c;
        taps_down = down.taps;
        taps_across = across.taps;
        a = tables.row_members[row].source * p.a_row + tables.column_members[column].source * p.a_column;
        b = down.first_tap * (int)p.b_row + across.first_tap * (int)p.b_column;
        line = (int)(p.tap_row * p.a_row), tap = (int)(p.tap_column * p.a_column);
        b_line = (int)p.b_tap_row, b_tap = (int)p.b_tap_column;
        below = (int)(p.member_row * p.a_row), beside = (int)(p.member_column * p.a_column);
        ascend(p.tap_row, taps_down, line, b_line);
        ascend(p.tap_column, taps_across, tap, b_tap);
    }
    // Steps by which the taps of a lower position lag behind, where both meet the same lines of the source; else all of them.
    __device__ __forceinline__ int lag(const Patches& p) const {
        const int step = (int)(p.tap_row < 0 ? -p.tap_row : p.tap_row), member = (int)p.member_row;
        return step == 1 ? member : member % step == 0 ? member / step : taps_down;
    }
    __device__ __forceinline__ int64 result(const Patches& p, const GatherTables& tables, int i, int j) const {
        return tables.row_members[row + i].index * p.out_row + tables.column_members[column + j].index * p.out_column;
    }

   private:
    __device__ __forceinline__ void ascend(int64 step, int taps, int& source, int& filter) {
        if (step > 0 || taps == 0) return;
        a += (int64)(taps - 1) * source;
        b += (taps - 1) * filter;
        source = -source;
        filter = -filter;
    }
};

// Calls line(offset in the source, {filter row of each patch row, or -1}) for every line of the source that a patch meets.
template <int DOWN, int ACROSS, class Line>
__device__ __forceinline__ void for_each_line(const Patch<DOWN, ACROSS>& patch, const Patches& p, Line line) {
    const int lag = patch.lag(p), steps = patch.taps_down == 0 ? 0 : (patch.rows - 1) * lag + patch.taps_down;
    for (int step = 0; step < steps; ++step) {
        int tap[DOWN];
        int64 offset = -1;
#pragma unroll
        for (int i = DOWN - 1; i >= 0; --i) {
            tap[i] = step - i * lag;
            if (tap[i] < 0 || tap[i] >= patch.taps_down || i >= patch.rows)
                tap[i] = -1;
            else
                offset = (int64)i * patch.below + (int64)tap[i] * patch.line;
        }
        if (offset >= 0) line(offset, tap);
    }
}
