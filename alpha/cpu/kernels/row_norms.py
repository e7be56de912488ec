"""Rows normalised by their own statistics: layer and RMS norm, and their gradients, a row in the caches at a time.

A row's mean is taken in float64 and kept in two numbers of x's dtype, so that ``x - mean`` loses nothing where the mean
is far from 0. Rows are cut into tasks by their number alone, and the tasks' sums merged in order: the threads do not
change a bit. The gradients of weight and bias are summed over BLOCK rows at most before they go into float64.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.atomics import add, take_task
from alpha.cpu.compile import compiled, inlined
from alpha.cpu.kernels.runs import Runs
from alpha.cpu.kernels.sums import PADDING, SUM, add_row, added, corrected, merge_parts, step_of, sum_of
from alpha.cpu.kernels.vectors import read_number, rounded, write_number

BLOCK = 16
"""Rows whose shares of a weight's gradient are added in the dtype of x."""

TOGETHER = 2
"""Vectors of an iteration: enough to keep additions on the way, few enough for the registers."""


class RowSizes(NamedTuple):
    """Rows to normalise."""

    rows: int
    columns: int
    tasks: int
    item: int
    """Bytes of a number."""
    centered: int
    """1 where the mean is subtracted, 0 where it counts as 0."""


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _squares(_typing: Any, tag: Any, x: Any, count: Any, mean: Any, low: Any) -> Any:
    """The sum of (x - mean - low) ** 2, in float64."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, x, count, mean, low = arguments
        runs = Runs(builder, tag)
        mean, low = runs.spread(mean), runs.spread(low)
        sums = runs.variables(runs.wide_constant(0.0), 2 * TOGETHER)

        def take(offset: Any, index: int, left: Any) -> None:
            value = runs.load_part(builder.add(x, offset), left)
            value = runs.widened(builder.fsub(builder.fsub(value, mean), low))
            if left is not None:
                value = runs.first_lanes(value, left)
            builder.store(runs.wide_fma(value, value, builder.load(sums[index])), sums[index])

        runs.for_each_vector(count, 2 * TOGETHER, take)
        return runs.across(runs.merged([builder.load(one) for one in sums], builder.fadd), builder.fadd)

    return types.float64(tag, types.int64, types.int64, tag, tag), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _apply(
    _typing: Any, tag: Any, x: Any, weight: Any, bias: Any, y: Any, count: Any, mean: Any, low: Any, scale: Any
) -> Any:
    """y = (x - mean - low) * scale * weight + bias."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, x, weight, bias, y, count, *numbers = arguments
        runs = Runs(builder, tag)
        mean, low, scale = map(runs.spread, numbers)

        def put(offset: Any, index: int, left: Any) -> None:
            value, factor, shift = [runs.load_part(builder.add(at, offset), left) for at in (x, weight, bias)]
            value = builder.fmul(builder.fsub(builder.fsub(value, mean), low), scale)
            runs.store_part(runs.fma(value, factor, shift), builder.add(y, offset), left)

        runs.for_each_vector(count, TOGETHER, put)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 5, tag, tag, tag), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _grad_sums(
    _typing: Any, tag: Any, dy: Any, x: Any, weight: Any, count: Any, mean: Any, low: Any, scale: Any
) -> Any:
    """The sums of g and g * n in float64, with g = dy * weight and n = (x - mean - low) * scale."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, dy, x, weight, count, *numbers = arguments
        runs = Runs(builder, tag)
        mean, low, scale = map(runs.spread, numbers)
        sums = [runs.variables(runs.wide_constant(0.0), TOGETHER) for _ in range(2)]

        def take(offset: Any, index: int, left: Any) -> None:
            grad, value, factor = [runs.load_part(builder.add(at, offset), left) for at in (dy, x, weight)]
            g = builder.fmul(grad, factor)
            normal = builder.fmul(builder.fsub(builder.fsub(value, mean), low), scale)
            for one, product in zip(sums, (g, builder.fmul(g, normal)), strict=True):
                part = runs.widened(product)
                if left is not None:  # 0 * infinity beyond the end
                    part = runs.first_lanes(part, left)
                builder.store(builder.fadd(builder.load(one[index]), part), one[index])

        runs.for_each_vector(count, TOGETHER, take)
        totals = [runs.merged([builder.load(part) for part in one], builder.fadd) for one in sums]
        return context.make_tuple(builder, signature.return_type, [runs.across(one, builder.fadd) for one in totals])

    return types.UniTuple(types.float64, 2)(tag, *[types.int64] * 4, tag, tag, tag), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _grad_apply(
    _typing: Any, tag: Any, dy: Any, x: Any, weight: Any, dx: Any, dweight: Any, dbias: Any, count: Any, numbers: Any
) -> Any:
    """dx = (dy * weight - shift - n * slope) * scale; dweight += dy * n; dbias += dy.

    The numbers are mean, low, scale, shift and slope, n is as above.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, dy, x, weight, dx, dweight, dbias, count, numbers = arguments
        runs = Runs(builder, tag)
        mean, low, scale, shift, slope = map(runs.spread, cgutils.unpack_tuple(builder, numbers))

        def put(offset: Any, index: int, left: Any) -> None:
            grad, value, factor, of_weight, of_bias = [
                runs.load_part(builder.add(at, offset), left) for at in (dy, x, weight, dweight, dbias)
            ]
            normal = builder.fmul(builder.fsub(builder.fsub(value, mean), low), scale)
            g = builder.fsub(builder.fmul(grad, factor), shift)
            result = builder.fmul(builder.fsub(g, builder.fmul(normal, slope)), scale)
            runs.store_part(result, builder.add(dx, offset), left)
            runs.store_part(runs.fma(grad, normal, of_weight), builder.add(dweight, offset), left)
            runs.store_part(builder.fadd(of_bias, grad), builder.add(dbias, offset), left)

        runs.for_each_vector(count, TOGETHER, put)
        return context.get_dummy_value()

    return types.void(tag, *[types.int64] * 7, types.UniTuple(tag, 5)), codegen


@inlined
def _square_sum(tag, item, x, count, mean, low):  # type: ignore[no-untyped-def]
    """The sum of squared deviations."""
    total, error, step = 0.0, 0.0, step_of(item, count)
    for first in range(0, count, step):
        part = _squares(tag, x + first * item, min(step, count - first), mean, low)
        total, error = added(total, error, part)
    return corrected(total, error)


@inlined
def _grad_totals(tag, item, dy, x, weight, count, numbers):  # type: ignore[no-untyped-def]
    """The sums of g and g * n."""
    (mean, low, scale), step = numbers, step_of(item, count)
    of_g, of_gn = (0.0, 0.0), (0.0, 0.0)
    for first in range(0, count, step):
        at = first * item
        g, gn = _grad_sums(tag, dy + at, x + at, weight + at, min(step, count - first), mean, low, scale)
        of_g, of_gn = added(of_g[0], of_g[1], g), added(of_gn[0], of_gn[1], gn)
    return corrected(of_g[0], of_g[1]), corrected(of_gn[0], of_gn[1])


@inlined
def _parts(tag, value):  # type: ignore[no-untyped-def]
    """A float64 number as the sum of two of the tag's type; the second is 0 where the first is not finite."""
    high = rounded(tag, value)
    low = value - high
    return high, rounded(tag, low if math.isfinite(low) else 0.0)


@compiled
def row_norm(counter, tag, eps, sizes, x, weight, bias, y, statistics):  # type: ignore[no-untyped-def]
    """y = (x - mean) / sqrt(var + eps) * weight + bias of each row; statistics (rows, 2) hold its mean and 1 / sqrt."""
    rows, columns, tasks, item, centered = sizes
    while True:
        task = take_task(counter)
        if task >= tasks:
            break
        for row in range(rows * task // tasks, rows * (task + 1) // tasks):
            at = row * columns * item
            mean = sum_of(tag, item, x + at, columns) / columns if centered != 0 else 0.0
            high, low = _parts(tag, mean)
            var = _square_sum(tag, item, x + at, columns, high, low) / columns
            scale = 1.0 / np.sqrt(var + eps)
            _apply(tag, x + at, weight, bias, y + at, columns, high, low, rounded(tag, scale))
            write_number(0.0, statistics + row * 16, mean)
            write_number(0.0, statistics + row * 16 + 8, scale)
    return 0


@compiled
def row_norm_grad(counter, tag, sizes, dy, x, weight, statistics, dx, dweight, dbias, parts):  # type: ignore[no-untyped-def]
    """The gradients of ``row_norm``, the weight's and the bias's summed over rows.

    ``parts`` holds for each task a row of each of their sums, after a zero, which counts the tasks that are done.
    """
    rows, columns, tasks, item, centered = sizes
    width = columns + PADDING
    results, errors = np.empty((2, width)), np.empty((2, width))
    sums = np.empty((2, columns * item), np.uint8)
    of_weight, of_bias = sums[0].ctypes.data, sums[1].ctypes.data
    while True:
        task = take_task(counter)
        if task >= tasks:
            break
        results[:] = 0
        errors[:] = 0
        sums[:] = 0
        first, last = rows * task // tasks, rows * (task + 1) // tasks
        for row in range(first, last):
            at = row * columns * item
            mean, scale = read_number(0.0, statistics + row * 16), read_number(0.0, statistics + row * 16 + 8)
            high, low = _parts(tag, mean)
            factor = rounded(tag, scale)
            of_g, of_gn = _grad_totals(tag, item, dy + at, x + at, weight, columns, (high, low, factor))
            shift = of_g / columns if centered != 0 else 0.0
            numbers = high, low, factor, rounded(tag, shift), rounded(tag, of_gn / columns)
            _grad_apply(tag, dy + at, x + at, weight, dx + at, of_weight, of_bias, columns, numbers)
            if (row - first) % BLOCK == BLOCK - 1 or row == last - 1:
                for i in range(2):
                    add_row(tag, sums[i].ctypes.data, 0, columns, results[i].ctypes.data, errors[i].ctypes.data)
                sums[:] = 0
        for i in range(2):
            start = 1 + (i * tasks + task) * columns
            for c in range(columns):
                parts[start + c] = results[i, c] + errors[i, c]
        if add(parts.ctypes.data, 1) == tasks - 1:
            for i in range(2):
                start = 1 + i * tasks * columns
                merge_parts(SUM, parts, start, tasks, columns)
                target = dweight if i == 0 else dbias
                for c in range(columns):
                    write_number(tag, target + c * item, parts[start + c])
    return 0
