// Sk-dilated-V2's sizes, and the walk over the terms that one tap's sum has.
#pragma once
#include "tile.cuh"

// Sizes and strides in elements; cu32/conv/tiles_gradient.py gives them by name.
struct Leap {
    int64 images;
    int64 in_width, out_width;    // channels of a group
    int64 in_tiles, out_tiles;    // tiles that cover them
    int64 filter_columns;
    int64 x_image, x_row, x_column, x_step_row, x_step_column;  // steps: from one output of a tap's run to the next
    int64 y_image, y_row, y_column;
    int64 parts, together, part_stride;  // together: parts of a group (join.cuh)
    int64 aligned;                // whether four input channels of the result may be written at once
};

// Strides of an operand along a run, and the lengths that make them wrap.
struct RunSteps {
    int images, columns;
    OFFSET image, column, row;
};

// Every STEP-th term (row, column, image) of a run, with its offset in an operand.
template <int STEP>
struct TermWalk {
    OFFSET place;
    int term, image, column;

    __device__ __forceinline__ TermWalk(const RunSteps& steps, OFFSET first, int term) : term(term) {
        const int position = term / steps.images, row = position / steps.columns;
        image = term - position * steps.images;
        column = position - row * steps.columns;
        place = first + image * steps.image + column * steps.column + row * steps.row;
    }
    __device__ __forceinline__ void advance(const RunSteps& steps) { advance<1>(steps); }

    // Over TURNS terms of this thread at once.
    template <int TURNS>
    __device__ __forceinline__ void advance(const RunSteps& steps) {
        term += TURNS * STEP;
        image += TURNS * STEP;
        place += TURNS * STEP * steps.image;
        while (image >= steps.images) {
            image -= steps.images;
            place += steps.column - steps.images * steps.image;
            if (++column == steps.columns) {
                column = 0;
                place += steps.row - steps.columns * steps.column;
            }
        }
    }
};

constexpr OFFSET NO_TERM = -4;  // as aligned as the places of terms are

// Where a term's channels begin in both operands; y is NO_TERM beyond the last term.
struct Term {
    OFFSET y, x;
};

// Every STEP-th term of a run, with its offsets in both operands.
template <int STEP>
struct PairWalk {
    int term, image, column;
    Term place;

    __device__ __forceinline__ PairWalk(const RunSteps& y, const RunSteps& x, Term first, int term) : term(term) {
        const int position = term / y.images, row = position / y.columns;
        image = term - position * y.images;
        column = position - row * y.columns;
        place.y = first.y + image * y.image + column * y.column + row * y.row;
        place.x = first.x + image * x.image + column * x.column + row * x.row;
    }
    __device__ __forceinline__ void advance(const RunSteps& y, const RunSteps& x) {
        term += STEP;
        image += STEP;
        place.y += STEP * y.image;
        place.x += STEP * x.image;
        while (image >= y.images) {
            image -= y.images;
            place.y += y.column - y.images * y.image;
            place.x += x.column - y.images * x.image;
            if (++column == y.columns) {
                column = 0;
                place.y += y.row - y.columns * y.column;
                place.x += x.row - y.columns * x.column;
            }
        }
    }
};

// Notes for all threads of a block where the terms of a step begin; the first DEPTH threads do it.
template <int DEPTH>
__device__ __forceinline__ void note_terms(Term (&terms)[DEPTH], PairWalk<DEPTH>& walk, const RunSteps& y, const RunSteps& x, int end) {
    if (threadIdx.x >= DEPTH) return;
    terms[threadIdx.x] = {walk.term < end ? walk.place.y : NO_TERM, walk.place.x};
    walk.advance(y, x);
}
