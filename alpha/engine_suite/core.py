"""Checks of the core: memory, copies, element-wise operations, reductions, sorting, products of matrices."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.engine import Engine
from alpha.engine_suite.checks import LAYOUTS, Checks, expect, expect_equal, numbers, placed
from alpha.errors import CheckError, OutOfMemoryError

CHECKS = Checks()
DTYPES = tuple(str(dtype) for dtype in dtypes.ALL)
FLOATS = tuple(str(dtype) for dtype in dtypes.FLOATS)
NUMBERS = tuple(str(dtype) for dtype in dtypes.ALL if not dtypes.is_bool(dtype))
INTEGERS = tuple(str(dtype) for dtype in dtypes.ALL if dtypes.is_integer(dtype))
SIGNED = tuple(str(dtype) for dtype in dtypes.ALL if dtypes.is_integer(dtype) and dtypes.limits(dtype)[0] < 0)
SHAPES = ((), (5,), (3, 4), (2, 1, 3, 2), (0,), (2, 0, 3))


# -- memory ------------------------------------------------------------------------------------------------------


@CHECKS.once
def memory_is_counted_and_given_back(engine: Engine) -> None:
    before = engine.memory.in_use
    storage = engine.allocate(1000)
    expect_equal("an address that is a multiple of 64, remainder", storage.address % 64, 0)
    if engine.memory.in_use < before + 1000:
        raise CheckError(f"[engine_suite] expected 1000 bytes more in use than {before}, got {engine.memory.in_use}")
    del storage
    expect_equal("bytes in use after the memory was dropped,", engine.memory.in_use, before)


@CHECKS.once
def memory_has_a_cap(engine: Engine) -> None:
    try:
        engine.allocate(engine.memory.cap + 1)
    except OutOfMemoryError:
        return
    raise CheckError("[engine_suite] expected OutOfMemoryError beyond the pool's cap, got memory")


@CHECKS.over(*DTYPES)
def arrays_go_in_and_out(engine: Engine, dtype: str) -> None:
    for shape, layout in product(SHAPES, LAYOUTS):
        array = numbers(*shape, dtype=dtype)
        expect(engine, engine.dense(placed(engine, array, layout)), array)
    lines = numbers(2, 3, 4, dtype=dtype)
    for array in (lines.transpose(2, 0, 1), lines[::-1, :, ::-2], np.broadcast_to(lines[:, :1], (2, 5, 4))):
        expect(engine, engine.from_numpy(array), array)
    expect_equal("memory order", engine.from_numpy(lines.transpose(2, 0, 1)).memory_order(), (1, 2, 0))


@CHECKS.once
def from_numpy_copies(engine: Engine) -> None:
    array = numbers(3, 4)
    tensor, before = engine.from_numpy(array), array.copy()
    array += 1
    expect(engine, tensor, before)


@CHECKS.over(*product(DTYPES, DTYPES))
def copies_convert(engine: Engine, source: str, target: str) -> None:
    values = np.abs(numbers(3, 4, dtype=source))
    for layout in LAYOUTS:
        out = engine.empty((3, 4), np.dtype(target), (1, 0))
        engine.copy(placed(engine, values, layout), out)
        expect(engine, out, values.astype(target))


@CHECKS.once
def copies_broadcast_and_leave_the_rest(engine: Engine) -> None:
    whole, row = numbers(4, 6), numbers(3, seed=1)
    out = engine.from_numpy(whole)
    part = out.strided(out.offset + 7, (2, 3), (6, 2))  # rows 1 and 2, every second column from 1 on
    engine.copy(engine.from_numpy(row), part)
    whole[1:3, 1:6:2] = row
    expect(engine, out, whole)


@CHECKS.over(*DTYPES)
def tensors_are_filled(engine: Engine, dtype: str) -> None:
    whole = numbers(4, 6, dtype=dtype)
    out = engine.from_numpy(whole)
    engine.fill(out.strided(out.offset + 6, (2, 3), (6, 2)), 1)
    whole[1:3, ::2] = 1
    expect(engine, out, whole)


@CHECKS.over(*DTYPES)
def tensors_of_one_number_of_diagonals_and_of_progressions(engine: Engine, dtype: str) -> None:
    kind = np.dtype(dtype)
    x = engine.from_numpy(numbers(3, 4, dtype=dtype).T)
    for _ in range(2):  # the first call may prepare what the second takes
        made = engine.full_like(x, 1, kind)
        assert made.memory_order() == x.memory_order()
        expect(engine, made, np.ones((4, 3), kind))
        for rows, columns in ((3, 3), (2, 70), (70, 2), (0, 3)):
            expect(engine, engine.eye(rows, columns, kind), np.eye(rows, columns, dtype=kind))
    for count in (0, 1, 7, 300):
        expect(engine, engine.progression(2, 3, count, kind), (2 + 3 * np.arange(count)).astype(kind))
        if kind.kind == "f":
            values = np.arange(0.5, 0.5 + 0.1 * (count - 0.5), 0.1)[:count] if count else np.zeros(0)
            expect(engine, engine.progression(0.5, 0.1, count, kind), values.astype(kind), rtol=0, atol=0)


# -- element-wise ------------------------------------------------------------------------------------------------

_erf = np.vectorize(math.erf, otypes=[float])
ONE: dict[str, Callable[..., Any]] = {
    "neg": operator.neg, "abs": np.abs, "exp": np.exp, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt,
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "erf": _erf,
    "sign": lambda x: np.where(np.isnan(x), 0, np.sign(x)), "floor": np.floor, "ceil": np.ceil,
    "isfinite": np.isfinite, "reciprocal": lambda x: 1 / x, "square": np.square,
}  # fmt: skip
TWO: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floor_divide": np.floor_divide,
    "remainder": np.remainder, "maximum": np.maximum, "minimum": np.minimum, "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
OF_INTEGERS = ("fmod", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
LOGICAL = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}
SPECIAL = [0, 0.5, 1, 2.5, 40, math.inf]
SPECIAL = [*SPECIAL, *(-value for value in SPECIAL), math.nan]


def _result(values: Any, dtype: str) -> Any:
    """Expected values, which were computed in float64 or exactly, in the dtype of the result."""
    array = np.asarray(values)
    return array if array.dtype == bool else array.astype(dtype)


@CHECKS.over(*product(ONE, FLOATS))
def one_operand(engine: Engine, op: str, dtype: str) -> None:
    x = np.array([SPECIAL, SPECIAL[::-1]], dtype)
    with np.errstate(all="ignore"):
        expected = _result(ONE[op](x.astype(np.float64)), dtype)
    for layout in LAYOUTS:
        expect(engine, engine.elementwise(op, placed(engine, x, layout)), expected)
    expect(engine, engine.elementwise(op, placed(engine, x[:, :0])), expected[:, :0])
    expect(engine, engine.elementwise(op, placed(engine, x[0, 1])), expected[0, 1])


@CHECKS.over(*product(("neg", "abs", "sign", "square"), SIGNED))
def one_operand_of_integers(engine: Engine, op: str, dtype: str) -> None:
    x = numbers(3, 4, dtype=dtype) - 3
    expect(engine, engine.elementwise(op, engine.from_numpy(x)), ONE[op](x).astype(dtype))


@CHECKS.over(*product(TWO, NUMBERS))
def two_operands(engine: Engine, op: str, dtype: str) -> None:
    x, y = numbers(3, 4, dtype=dtype), numbers(3, 4, dtype=dtype, seed=1)
    y[y == 0] = 1
    _two(engine, op, TWO[op], x, y, 3)


@CHECKS.over(*product(OF_INTEGERS, INTEGERS))
def bits_and_remainders_of_integers(engine: Engine, op: str, dtype: str) -> None:
    x, y = numbers(3, 4, dtype=dtype), abs(numbers(3, 4, dtype=dtype, seed=1)) + np.array(1, dtype)
    _two(engine, op, getattr(np, op), x, y, 3)
    if op == "bitwise_xor":
        expect(engine, engine.elementwise("bitwise_not", engine.from_numpy(x)), ~x)


@CHECKS.once
def numbers_take_the_dtype(engine: Engine) -> None:
    """Integers wrap around; comparisons compare the number as it is."""
    x = engine.from_numpy(np.array([250, 3], np.uint8))
    expect(engine, engine.elementwise("add", x, 300), np.array([38, 47], np.uint8))
    expect(engine, engine.elementwise("lt", x, 300), np.array([True, True]))
    expect(engine, engine.elementwise("eq", 259, x), np.array([False, False]))


@CHECKS.over(*product(("div", "pow"), FLOATS))
def two_float_operands(engine: Engine, op: str, dtype: str) -> None:
    function: Callable[..., Any] = np.true_divide if op == "div" else np.power
    _two(engine, op, function, abs(numbers(3, 4, dtype=dtype)) + 0.5, numbers(3, 4, dtype=dtype, seed=1), 3)


def _two(engine: Engine, op: str, function: Callable[..., Any], x: Any, y: Any, number: int) -> None:
    """An operation of two tensors, of a tensor and a number either way, broadcast, and into one of its operands."""
    dtype = str(x.dtype)
    for first, second in product(LAYOUTS, LAYOUTS):
        a, b = placed(engine, x, first), placed(engine, y, second)
        expect(engine, engine.elementwise(op, a, b), _result(function(x, y), dtype))
    a, b = engine.from_numpy(x), engine.from_numpy(y)
    expect(engine, engine.elementwise(op, a, number), _result(function(x, x.dtype.type(number)), dtype))
    expect(engine, engine.elementwise(op, number, b), _result(function(y.dtype.type(number), y), dtype))
    row, column = engine.from_numpy(x[:1]), engine.from_numpy(y[:, :1])
    expect(engine, engine.elementwise(op, row, column), _result(function(x[:1], y[:, :1]), dtype))
    if function(x, y).dtype == x.dtype:
        expect_equal("the result", engine.elementwise(op, a, b, out=b) is b, True)
        expect(engine, b, _result(function(x, y), dtype))


@CHECKS.over(*product(("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"), FLOATS))
def special_values(engine: Engine, op: str, dtype: str) -> None:
    x = np.array(SPECIAL, dtype)
    function = np.true_divide if op == "div" else TWO[op]
    with np.errstate(all="ignore"):
        expected = _result(function(x[:, None], x), dtype)
    column = placed(engine, x[:, None])
    expect(engine, engine.elementwise(op, column, engine.from_numpy(x)), expected)


@CHECKS.over(*LOGICAL)
def truth_values(engine: Engine, op: str) -> None:
    x, y = np.array([[False], [True]]), np.array([False, True])
    expect(engine, engine.elementwise(op, engine.from_numpy(x), engine.from_numpy(y)), LOGICAL[op](x, y))
    expect(engine, engine.elementwise("logical_not", engine.from_numpy(y)), ~y)


@CHECKS.over(*DTYPES)
def where_chooses(engine: Engine, dtype: str) -> None:
    mask, x, y = numbers(3, 4, dtype=bool), numbers(3, 4, dtype=dtype), numbers(3, 1, dtype=dtype, seed=1)
    for layout in LAYOUTS:
        a, b, c = (placed(engine, array, layout) for array in (mask, x, y))
        expect(engine, engine.elementwise("where", a, b, c), np.where(mask, x, y))
        expect(engine, engine.elementwise("where", a, b, 0), np.where(mask, x, x.dtype.type(0)))
        expect(engine, engine.elementwise("where", a, 1, b), np.where(mask, x.dtype.type(1), x))


@CHECKS.once
def results_keep_the_memory_order(engine: Engine) -> None:
    x = engine.from_numpy(numbers(2, 3, 4).transpose(2, 0, 1))
    for found in (engine.elementwise("exp", x), engine.elementwise("add", 1, x), engine.empty_like(x)):
        expect_equal("memory order", found.memory_order(), x.memory_order())


# -- reductions, sorting, products -------------------------------------------------------------------------------


@CHECKS.over(*product(("sum", "prod", "max", "min", "any", "all"), DTYPES))
def reductions(engine: Engine, op: str, dtype: str) -> None:
    x = numbers(2, 3, 4, dtype=dtype)
    for axes, keepdims, layout in product(((0,), (1,), (2,), (0, 2), (0, 1, 2)), (False, True), LAYOUTS):
        wide = {"dtype": dtypes.info(x.dtype).accumulator} if op in ("sum", "prod") else {}
        expected = np.asarray(getattr(np, op)(x, axis=axes, keepdims=keepdims, **wide))
        if dtypes.is_float(x.dtype) and op not in ("any", "all"):
            expected = expected.astype(x.dtype)
        expect(engine, engine.reduce(op, placed(engine, x, layout), axes, keepdims), expected)


@CHECKS.once
def reductions_of_nothing(engine: Engine) -> None:
    x = engine.from_numpy(np.zeros((3, 0), np.float32))
    for op, value in (("sum", 0.0), ("prod", 1.0)):
        expect(engine, engine.reduce(op, x, (1,), False), np.full(3, value, np.float32))
    for op, answer in (("any", False), ("all", True)):
        expect(engine, engine.reduce(op, x, (1,), False), np.full(3, answer))


@CHECKS.over(*FLOATS)
def long_sums_are_accurate(engine: Engine, dtype: str) -> None:
    x = np.full((2, 1 << 17), 0.1, dtype)
    expected = np.full(2, math.fsum([float(x[0, 0])] * x.shape[1])).astype(dtype)
    expect(
        engine, engine.reduce("sum", engine.from_numpy(x), (1,), False), expected, rtol=8 * float(np.finfo(dtype).eps)
    )


@CHECKS.over(*product(("argmax", "argmin"), NUMBERS))
def places_of_extremes(engine: Engine, op: str, dtype: str) -> None:
    x = numbers(3, 4, 2, dtype=dtype)
    x[1, :, 0] = x[1, 0, 0]  # ties
    for axis, layout in product(range(3), LAYOUTS):
        expect(engine, engine.arg_reduce(op, placed(engine, x, layout), axis), getattr(np, op)(x, axis=axis))


@CHECKS.over(*NUMBERS)
def sorting(engine: Engine, dtype: str) -> None:
    x = numbers(3, 40, dtype="int32").astype(dtype)  # so that there are ties
    for axis, layout in product(range(2), LAYOUTS):
        values, places = engine.sort(placed(engine, x, layout), axis)
        expect(engine, values, np.sort(x, axis))
        expect(engine, places, np.argsort(x, axis, kind="stable"))


@CHECKS.over(*FLOATS)
def products_of_matrices(engine: Engine, dtype: str) -> None:
    for left, right in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((3, 0), (0, 2))):
        x, y = numbers(*left, dtype=dtype), numbers(*right, dtype=dtype, seed=1)
        expected = np.matmul(x.astype(np.float64), y).astype(dtype)
        for first, second in product(LAYOUTS, LAYOUTS):
            expect(engine, engine.matmul(placed(engine, x, first), placed(engine, y, second)), expected)
