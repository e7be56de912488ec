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
    int64 parts, part_stride;
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
