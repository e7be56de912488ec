"""Softmax and log-softmax of rows, cross entropy, and their gradients: a row in the caches at a time.

The sums are taken in float64. NaN among a row's numbers, infinity, and minus infinity alone make NaN of the whole row.
"""

from __future__ import annotations

import math
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.atomics import take_task
from alpha.cpu.compile import compiled, inlined
from alpha.cpu.isa import FUSED
from alpha.cpu.kernels.elementary import KernelLanes
from alpha.cpu.kernels.runs import Runs
from alpha.cpu.kernels.sums import added, corrected, step_of, sum_of
from alpha.cpu.kernels.vectors import read_number, rounded, write_number
from alpha.expressions import elementary

TOGETHER = 2
"""Vectors of an iteration."""


def _exp(runs: Runs, x: Any) -> Any:
    return elementary.exp(KernelLanes(runs, FUSED), x)


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _largest(_typing: Any, tag: Any, x: Any, count: Any) -> Any:
    """The largest of numbers side by side, NaN left out."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, x, count = arguments
        runs = Runs(builder, tag)
        least = runs.constant(-math.inf)
        found = runs.variables(least, 2 * TOGETHER)

        def larger(a: Any, b: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        def take(offset: Any, index: int, left: Any) -> None:
            value = runs.load_part(builder.add(x, offset), left, least)
            builder.store(larger(value, builder.load(found[index])), found[index])

        runs.for_each_vector(count, 2 * TOGETHER, take)
        return runs.across(runs.merged([builder.load(one) for one in found], larger), larger)

    return tag(tag, types.int64, types.int64), codegen


def _powers_of(stored: bool) -> Any:
    """``powers(tag, x, y, count, largest)``: the sum in float64 of exp(x - largest), which y takes if ``stored``."""

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def powers(_typing: Any, tag: Any, x: Any, y: Any, count: Any, largest: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, x, y, count, largest = arguments
            runs = Runs(builder, tag)
            largest = runs.spread(largest)
            sums = runs.variables(runs.wide_constant(0.0), TOGETHER)

            def take(offset: Any, index: int, left: Any) -> None:
                power = _exp(runs, builder.fsub(runs.load_part(builder.add(x, offset), left), largest))
                if stored:
                    runs.store_part(power, builder.add(y, offset), left)
                wide = runs.widened(power)
                wide = wide if left is None else runs.first_lanes(wide, left)
                builder.store(builder.fadd(builder.load(sums[index]), wide), sums[index])

            runs.for_each_vector(count, TOGETHER, take)
            return runs.across(runs.merged([builder.load(one) for one in sums], builder.fadd), builder.fadd)

        return types.float64(tag, *[types.int64] * 3, tag), codegen

    return powers


def _map_of(emit: Any, numbers: int) -> Any:
    """``apply(tag, x, y, out, count, numbers)``: out = emit(x, y, *numbers), a function of vectors."""

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def apply(_typing: Any, tag: Any, x: Any, y: Any, out: Any, count: Any, given: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, x, y, out, count, given = arguments
            runs = Runs(builder, tag)
            constants = [runs.spread(number) for number in cgutils.unpack_tuple(builder, given)]

            def put(offset: Any, index: int, left: Any) -> None:
                values = [runs.load_part(builder.add(at, offset), left) for at in (x, y)]
                runs.store_part(emit(runs, *values, *constants), builder.add(out, offset), left)

            runs.for_each_vector(count, TOGETHER, put)
            return context.get_dummy_value()

        return types.void(tag, *[types.int64] * 4, types.UniTuple(tag, numbers)), codegen

    return apply


_powers, _powers_sum = _powers_of(True), _powers_of(False)
_scale = _map_of(lambda runs, x, _y, share: runs.builder.fmul(x, share), 1)
_shift = _map_of(lambda runs, x, _y, top, log: runs.builder.fsub(runs.builder.fsub(x, top), log), 2)
_grad = _map_of(lambda runs, dy, y, total: runs.builder.fmul(runs.builder.fsub(dy, total), y), 1)
_log_grad = _map_of(lambda runs, dy, y, total: runs.builder.fsub(dy, runs.builder.fmul(_exp(runs, y), total)), 1)
_entropy_grad = _map_of(lambda runs, p, _y, even, scale: runs.builder.fmul(runs.builder.fsub(p, even), scale), 2)


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def _product_sum(_typing: Any, tag: Any, x: Any, y: Any, count: Any) -> Any:
    """The sum of x * y, in float64."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, x, y, count = arguments
        runs = Runs(builder, tag)
        sums = runs.variables(runs.wide_constant(0.0), TOGETHER)

        def take(offset: Any, index: int, left: Any) -> None:
            a, b = (runs.widened(runs.load_part(builder.add(at, offset), left)) for at in (x, y))
            builder.store(runs.wide_fma(a, b, builder.load(sums[index])), sums[index])

        runs.for_each_vector(count, TOGETHER, take)
        return runs.across(runs.merged([builder.load(one) for one in sums], builder.fadd), builder.fadd)

    return types.float64(tag, *[types.int64] * 3), codegen


@inlined
def _power_total(tag, item, stored, x, y, count, largest):  # type: ignore[no-untyped-def]
    """The sum of exp(x - largest), which y takes if ``stored``."""
    total, error, step = 0.0, 0.0, step_of(item, count)
    for first in range(0, count, step):
        at, width = first * item, min(step, count - first)
        if stored:
            part = _powers(tag, x + at, y + at, width, largest)
        else:
            part = _powers_sum(tag, x + at, y + at, width, largest)
        total, error = added(total, error, part)
    return corrected(total, error)


@inlined
def _product_total(tag, item, x, y, count):  # type: ignore[no-untyped-def]
    """The sum of x * y."""
    total, error, step = 0.0, 0.0, step_of(item, count)
    for first in range(0, count, step):
        at = first * item
        total, error = added(total, error, _product_sum(tag, x + at, y + at, min(step, count - first)))
    return corrected(total, error)


@compiled
def softmax(counter, tag, log, item, rows, columns, bunch, x, y):  # type: ignore[no-untyped-def]
    """y = softmax(x), or its logarithm, of each row; a task is ``bunch`` rows."""
    while True:
        first = take_task(counter) * bunch
        if first >= rows:
            break
        for row in range(first, min(first + bunch, rows)):
            at, to = x + row * columns * item, y + row * columns * item
            top = _largest(tag, at, columns)
            if log != 0:
                total = _power_total(tag, item, False, at, to, columns, top)
                _shift(tag, at, at, to, columns, (top, rounded(tag, math.log(total))))
            else:
                total = _power_total(tag, item, True, at, to, columns, top)
                _scale(tag, to, to, to, columns, (rounded(tag, 1.0 / total),))
    return 0


@compiled
def softmax_grad(counter, tag, log, item, rows, columns, bunch, dy, y, dx):  # type: ignore[no-untyped-def]
    """dx = (dy - sum(dy * y)) * y of softmax's result, dy - exp(y) * sum(dy) of its logarithm."""
    while True:
        first = take_task(counter) * bunch
        if first >= rows:
            break
        for row in range(first, min(first + bunch, rows)):
            at = row * columns * item
            if log != 0:
                total = rounded(tag, sum_of(tag, item, dy + at, columns))
                _log_grad(tag, dy + at, y + at, dx + at, columns, (total,))
            else:
                total = rounded(tag, _product_total(tag, item, dy + at, y + at, columns))
                _grad(tag, dy + at, y + at, dx + at, columns, (total,))
    return 0


@inlined
def _distance(tag, item, x, count, largest):  # type: ignore[no-untyped-def]
    """The sum of x - largest, in float64."""
    total = 0.0
    for c in range(count):
        total += read_number(tag, x + c * item) - largest
    return total


@compiled
def cross_entropy(counter, tag, smoothing, item, rows, classes, bunch, x, labels, losses, p):  # type: ignore[no-untyped-def]
    """p = softmax(x), unless its address is 0, and losses = -log p[label], smoothed.

    A label out of range is not followed: its loss is NaN.
    """
    while True:
        first = take_task(counter) * bunch
        if first >= rows:
            break
        for row in range(first, min(first + bunch, rows)):
            at, to = x + row * classes * item, p + row * classes * item
            top = _largest(tag, at, classes)
            total = _power_total(tag, item, p != 0, at, to, classes, top)
            if p != 0:
                _scale(tag, to, to, to, classes, (rounded(tag, 1.0 / total),))
            label = labels[row]
            target = float(read_number(tag, at + label * item) - top) if 0 <= label < classes else math.nan
            if smoothing != 0:
                target = (1 - smoothing) * target + smoothing * (_distance(tag, item, at, classes, top) / classes)
            write_number(tag, losses + row * item, math.log(total) - target)
    return 0


@compiled
def cross_entropy_grad(counter, tag, smoothing, item, rows, classes, bunch, p, labels, scale, dx):  # type: ignore[no-untyped-def]
    """dx = (p - target distribution) * scale[row]; a label out of range is no class.

    An infinite scale is inf - inf at the label, as PyTorch's, which scales each term by itself.
    """
    even, sure = rounded(tag, smoothing / classes), rounded(tag, 1 - smoothing)
    while True:
        first = take_task(counter) * bunch
        if first >= rows:
            break
        for row in range(first, min(first + bunch, rows)):
            at, to = p + row * classes * item, dx + row * classes * item
            factor = read_number(tag, scale + row * item)
            _entropy_grad(tag, at, at, to, classes, (even, factor))
            label = labels[row]
            if 0 <= label < classes:
                value = (read_number(tag, at + label * item) - even - sure) * factor + (factor - factor)
                write_number(tag, to + label * item, value)
    return 0
