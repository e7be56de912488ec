"""BatchNorm's passes over some rows of (rows, channels), emitted as vector code: sums for each channel, and results.

A run of channels goes through all rows before the next run does, so that its sums and its numbers stay in registers,
and no loop is as short as a row of few channels. Each sum is taken row after row, in the numbers' own dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.kernels.vectors import I64, Images, Vectors, integer

WIDTH = 4
"""Vectors of a row that are computed at a time."""

CONTRACT = ("contract",)
"""What multiplies and adds in one rounding does so here as in the loops that Numba makes of Python."""


class Given(NamedTuple):
    """What the results and sums of a row's vector are made of.

    Attributes:
        matrices: the row's vectors, one of each matrix.
        channels: the vectors of the channels' numbers.
        slope: the activation's slope, in every lane, and its inverse.
        unslope: see ``slope``.
    """

    matrices: list[Any]
    channels: list[Any]
    slope: Any
    unslope: Any


class Made(NamedTuple):
    """What is made of a row's vector.

    Attributes:
        stored: what is written, or None.
        value: what is added to the first sum, or None where nothing is summed.
        factor: with ``value`` the product that is added to the second sum.
    """

    stored: Any = None
    value: Any = None
    factor: Any = None


Maker = Callable[[Vectors, Given], Made]


def _added(emit: Vectors, total: Any, a: Any, b: Any) -> Any:
    """Emits total + a * b, as Numba would."""
    return emit.builder.fadd(total, emit.builder.fmul(a, b, flags=CONTRACT), flags=CONTRACT)


def _numbers(emit: Vectors, given: Given) -> Made:
    """x itself: its sum over one row."""
    return Made(None, given.matrices[0], given.matrices[0])


def _deviation(emit: Vectors, given: Given) -> Made:
    """x less the channel's shift, and its square."""
    deviation = emit.builder.fsub(given.matrices[0], given.channels[0])
    return Made(None, deviation, deviation)


def _gradient(emit: Vectors, given: Given) -> Made:
    """dy, and its product with x - mean."""
    dy, x = given.matrices
    return Made(None, dy, emit.builder.fsub(x, given.channels[0]))


def _masked_by_x(flat: bool) -> Maker:
    """``_gradient`` past an activation of x * scale + shift, a ReLU if ``flat``."""

    def sums(emit: Vectors, given: Given) -> Made:
        (dy, x), (mean, scale, shift) = given.matrices, given.channels
        activated = _added(emit, shift, x, scale)
        return Made(None, _past(emit, dy, activated, given.slope, flat), emit.builder.fsub(x, mean))

    return sums


def _masked_by_y(flat: bool) -> Maker:
    """``_gradient`` past an activation whose result is y, which is stored."""

    def sums(emit: Vectors, given: Given) -> Made:
        dy, x, y = given.matrices
        past = _past(emit, dy, y, given.slope, flat)
        return Made(past, past, emit.builder.fsub(x, given.channels[0]))

    return sums


def _past(emit: Vectors, dy: Any, activated: Any, slope: Any, flat: bool) -> Any:
    """dy past an activation by its argument, or its result, which have one sign."""
    builder = emit.builder
    if flat:
        return builder.select(builder.fcmp_ordered("<=", activated, emit.zero), emit.zero, dy)
    positive = builder.fcmp_ordered(">", activated, emit.zero)
    return builder.fmul(dy, builder.select(positive, emit.constant(1.0), slope))


def _recovered(emit: Vectors, given: Given) -> tuple[Any, Any]:
    """dy past an activation by its result y, and act^-1(y) - residual - offset."""
    builder, (dy, y, *added) = emit.builder, given.matrices
    positive = builder.fcmp_ordered(">", y, emit.zero)
    one = emit.constant(1.0)
    past = builder.fmul(dy, builder.select(positive, one, given.slope), flags=CONTRACT)
    total = builder.fmul(y, builder.select(positive, one, given.unslope), flags=CONTRACT)
    for less in (*added, given.channels[0]):
        total = builder.fsub(total, less, flags=CONTRACT)
    return past, total


def _inverse(residual: bool) -> Maker:
    """What is recovered; with a residual dy past the activation is stored."""

    def sums(emit: Vectors, given: Given) -> Made:
        past, total = _recovered(emit, given)
        return Made(past if residual else None, past, total)

    return sums


def _slopes(emit: Vectors, a: Any, past: Any, b: Any, deviation: Any, d: Any) -> Made:
    """a * past + b * deviation + d."""
    return Made(emit.builder.fadd(_added(emit, emit.builder.fmul(a, past, flags=CONTRACT), b, deviation), d))


def _inverse_result(emit: Vectors, given: Given) -> Made:
    _, a, b, d = given.channels
    past, total = _recovered(emit, given)
    return _slopes(emit, a, past, b, total, d)


def _gradient_result(masked: bool, flat: bool) -> Maker:
    """dx of dy and x, where ``masked`` past an activation of x * scale + shift, a ReLU if ``flat``."""

    def result(emit: Vectors, given: Given) -> Made:
        (past, x), (mean, scale, shift, a, b, d) = given.matrices, given.channels
        if masked:
            past = _past(emit, past, _added(emit, shift, x, scale), given.slope, flat)
        return _slopes(emit, a, past, b, emit.builder.fsub(x, mean), d)

    return result


def _normalised(activated: bool, flat: bool) -> Maker:
    """act(x * scale + shift + residual)."""

    def result(emit: Vectors, given: Given) -> Made:
        builder, (x, *added), (scale, shift) = emit.builder, given.matrices, given.channels
        total = _added(emit, shift, x, scale)
        for residual in added:
            total = builder.fadd(total, residual)
        if activated and flat:
            total = builder.select(builder.fcmp_ordered("<", total, emit.zero), emit.zero, total)
        elif activated:
            positive = builder.fcmp_ordered(">", total, emit.zero)
            total = builder.select(positive, total, builder.fmul(total, given.slope))
        return Made(total)

    return result


def _pass(matrices: int, channels: int, maker: Maker) -> Any:
    """A function for ``rows`` rows of ``columns`` channels, with an array for either sum.

    ``read`` are the addresses of the matrices' first rows, of which it takes so many, ``of_channels`` of vectors,
    ``written`` of the matrix that is stored. ``image`` is a number of the type of matrices, see ``Images``.
    """

    @intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
    def function(
        _typing: Any, slope: Any, unslope: Any, image: Any, rows: Any, columns: Any, read: Any, written: Any,
        of_channels: Any, first: Any, second: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            emit = Vectors(builder, slope)
            images = Images(emit, image)
            slope_value, unslope_value, _, rows, columns, read, written, of_channels, first, second = arguments
            sources = cgutils.unpack_tuple(builder, read)[:matrices]
            vectors = cgutils.unpack_tuple(builder, of_channels)[:channels]
            step = builder.mul(columns, integer(images.item))

            def run(width: int, column: Any, left: Any) -> None:
                """``width`` vectors of all rows from a column on; ``left``: columns from it on, where they may end."""
                columns_at = [builder.add(column, integer(v * emit.lanes)) for v in range(width)]
                at = [builder.mul(one, integer(emit.item)) for one in columns_at]
                images_at = [builder.mul(one, integer(images.item)) for one in columns_at]
                load = emit.load if left is None else lambda address: emit.load_masked(address, left)
                kept = [[load(builder.add(vector, offset)) for vector in vectors] for offset in at]
                totals = [[cgutils.alloca_once(builder, emit.vector) for _ in range(2)] for _ in at]
                for total in (total for pair in totals for total in pair):
                    builder.store(emit.zero, total)
                slopes = emit.spread(slope_value), emit.spread(unslope_value)
                sums = False
                with cgutils.for_range(builder, rows, intp=I64) as loop:
                    row = builder.mul(loop.index, step)
                    for offset, numbers, (total, products) in zip(images_at, kept, totals, strict=True):
                        place = builder.add(row, offset)
                        values = [images.load(builder.add(source, place), left) for source in sources]
                        made = maker(emit, Given(values, numbers, *slopes))
                        if made.stored is not None:
                            images.store(made.stored, builder.add(written, place), left)
                        if made.value is not None:
                            sums = True
                            builder.store(builder.fadd(builder.load(total), made.value), total)
                            builder.store(_added(emit, builder.load(products), made.value, made.factor), products)
                for offset, pair in zip(at, totals, strict=True):
                    for target, total in zip((first, second), pair, strict=True) if sums else ():
                        store(builder.load(total), builder.add(target, offset), left)

            def store(value: Any, address: Any, left: Any) -> None:
                if left is None:
                    emit.store(value, address)
                else:
                    emit.store_masked(value, address, left)

            whole = builder.sdiv(columns, integer(WIDTH * emit.lanes))
            with cgutils.for_range(builder, whole, intp=I64) as loop:
                run(WIDTH, builder.mul(loop.index, integer(WIDTH * emit.lanes)), None)
            done = builder.mul(whole, integer(WIDTH * emit.lanes))
            single = builder.sdiv(builder.sub(columns, done), integer(emit.lanes))
            with cgutils.for_range(builder, single, intp=I64) as loop:
                run(1, builder.add(done, builder.mul(loop.index, integer(emit.lanes))), None)
            done = builder.add(done, builder.mul(single, integer(emit.lanes)))
            left = builder.sub(columns, done)
            with builder.if_then(builder.icmp_signed(">", left, integer(0))):
                run(1, done, left)
            return context.get_dummy_value()

        tables = [types.UniTuple(types.int64, len(table)) for table in (read, of_channels)]
        words = types.int64, types.int64, tables[0], types.int64, tables[1], types.int64, types.int64
        return types.void(slope, slope, image, *words), codegen

    return function


numbers = _pass(1, 0, _numbers)
deviation_sums = _pass(1, 1, _deviation)
gradient_sums = _pass(2, 1, _gradient)
relu_sums_by_x, slope_sums_by_x = (_pass(2, 3, _masked_by_x(flat)) for flat in (True, False))
relu_sums_by_y, slope_sums_by_y = (_pass(3, 1, _masked_by_y(flat)) for flat in (True, False))
inverse_sums, inverse_sums_past_residual = (_pass(2 + added, 1, _inverse(added)) for added in (False, True))

normalised, normalised_residual = (_pass(1 + added, 2, _normalised(False, False)) for added in (False, True))
relu, relu_residual = (_pass(1 + added, 2, _normalised(True, True)) for added in (False, True))
leaky_relu, leaky_relu_residual = (_pass(1 + added, 2, _normalised(True, False)) for added in (False, True))
gradient = _pass(2, 6, _gradient_result(False, False))
relu_gradient, leaky_relu_gradient = (_pass(2, 6, _gradient_result(True, flat)) for flat in (True, False))
inverse_gradient, inverse_gradient_past_residual = (_pass(2 + added, 4, _inverse_result) for added in (False, True))
