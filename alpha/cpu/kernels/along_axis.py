"""Kernels along an axis that one thread runs: writing by index, running products and extremes, the first of an order.

Arrays are dense in row-major order, seen as (outer, along, inner); bools come as uint8.
"""

from __future__ import annotations

from math import isnan

import numpy as np

from alpha.cpu.compile import alone, inlined

PUT, ADD, MULTIPLY, MAXIMUM, MINIMUM = range(5)
"""What ``combine`` does with a number and the one at its place."""


@inlined
def _combined(op, old, new):  # type: ignore[no-untyped-def]
    """The number that an operation leaves; NaN is the largest and the smallest of all."""
    if op == ADD:
        return old + new
    if op == MULTIPLY:
        return old * new
    if op == MAXIMUM:
        return old if old > new or isnan(old) else new
    if op == MINIMUM:
        return old if old < new or isnan(old) else new
    return new


@inlined
def _combine_line(op, out, index, values):  # type: ignore[no-untyped-def]
    """``combine`` of one line; unsigned places need no look whether they count from the end."""
    if op == PUT:
        for k in range(index.shape[0]):
            out[np.uintp(index[k])] = values[k]
        return
    for k in range(index.shape[0]):
        place = np.uintp(index[k])
        out[place] = _combined(op, out[place], values[k])


@alone
def combine(op, out, index, values):  # type: ignore[no-untyped-def]
    """out[o, index[o, k, i], i] = what an operation makes of it and values[o, k, i], in order; indices are in range."""
    for o in range(index.shape[0]):
        if index.shape[2] == 1:
            _combine_line(op, out[o, :, 0], index[o, :, 0], values[o, :, 0])
            continue
        for k in range(index.shape[1]):
            for i in range(index.shape[2]):
                place = index[o, k, i]
                out[o, place, i] = _combined(op, out[o, place, i], values[o, k, i])


@alone
def running_products(x, y, wide):  # type: ignore[no-untyped-def]
    """y[o, k, i] = the product of x[o, : k + 1, i], in the dtype of ``wide``, which holds an inner line."""
    for o in range(x.shape[0]):
        wide[:] = 1
        if x.shape[2] == 1:
            product = wide[0]
            for k in range(x.shape[1]):
                product *= x[o, k, 0]
                y[o, k, 0] = product
            continue
        for k in range(x.shape[1]):
            for i in range(x.shape[2]):
                wide[i] *= x[o, k, i]
                y[o, k, i] = wide[i]


@inlined
def _is_reached(sign, old, number):  # type: ignore[no-untyped-def]
    """Whether a number is as large as the largest so far (as small for a ``sign`` of -1), or NaN."""
    is_short = number < old if sign > 0 else number > old
    return not is_short and (not isnan(old) or isnan(number))


@inlined
def _extremes_of_line(x, sign, values, places):  # type: ignore[no-untyped-def]
    """``running_extremes`` of one line: from one new extreme to the next there is nothing but copies."""
    at, length = 0, x.shape[0]
    while at < length:
        value, place = x[at], at
        values[at], places[at] = value, place
        at += 1
        if sign > 0:
            while at < length and (x[at] < value):
                values[at], places[at] = value, place
                at += 1
        else:
            while at < length and (x[at] > value):
                values[at], places[at] = value, place
                at += 1
        while isnan(value) and at < length and not isnan(x[at]):
            values[at], places[at] = value, place
            at += 1


@alone
def running_extremes(x, sign, values, places):  # type: ignore[no-untyped-def]
    """The largest number of x[o, : k + 1, i] (the smallest for a ``sign`` of -1), and the last place that has it."""
    for o in range(x.shape[0]):
        if x.shape[2] == 1:
            _extremes_of_line(x[o, :, 0], sign, values[o, :, 0], places[o, :, 0])
            continue
        for i in range(x.shape[2]):
            values[o, 0, i], places[o, 0, i] = x[o, 0, i], 0
        for k in range(1, x.shape[1]):
            for i in range(x.shape[2]):
                is_new = _is_reached(sign, values[o, k - 1, i], x[o, k, i])
                values[o, k, i] = x[o, k, i] if is_new else values[o, k - 1, i]
                places[o, k, i] = k if is_new else places[o, k - 1, i]


@inlined
def _is_before(sign, one, other):  # type: ignore[no-untyped-def]
    """Whether a number stands before another in descending order (ascending for a ``sign`` of -1); NaN is largest."""
    if sign > 0:
        return one > other or (isnan(one) and not isnan(other))
    return one < other or (isnan(other) and not isnan(one))


@inlined
def _sift(sign, values, places, start, count):  # type: ignore[no-untyped-def]
    """Moves the number at ``start`` down the heap, whose root is the last in order."""
    value, place = values[start], places[start]
    child = 2 * start + 1
    while child < count:
        if child + 1 < count and _is_before(sign, values[child], values[child + 1]):
            child += 1
        if not _is_before(sign, value, values[child]):
            break
        values[start], places[start] = values[child], places[child]
        start, child = child, 2 * child + 1
    values[start], places[start] = value, place


@alone
def first_of_lines(x, sign, values, places):  # type: ignore[no-untyped-def]
    """The first numbers of each line in descending order (ascending for a ``sign`` of -1), and where they are.

    They are kept in a heap, from whose root later numbers push out the last in order.
    """
    count = values.shape[1]
    for line in range(x.shape[0]):
        found, where = values[line], places[line]
        for k in range(count):
            found[k], where[k] = x[line, k], k
        for k in range(count // 2 - 1, -1, -1):
            _sift(sign, found, where, k, count)
        for k in range(count, x.shape[1]):
            if _is_before(sign, x[line, k], found[0]):
                found[0], where[0] = x[line, k], k
                _sift(sign, found, where, 0, count)
        for last in range(count - 1, 0, -1):
            found[0], found[last] = found[last], found[0]
            where[0], where[last] = where[last], where[0]
            _sift(sign, found, where, 0, last)
