"""Copies, fills and element-wise operations on cu32 against the CPU engine: vectors, tails, views, every dtype."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cu32 import arrays, pointwise
from alpha.cu32.base import DeviceEngine
from alpha.cu32.strided import plan
from alpha.dtypes import ALL, default_int, is_bool, is_float
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError
from alpha.expressions import integers
from alpha.expressions.graph import BOOL, OPERATIONS
from alpha.expressions.operations import NAMES
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]
Place = tuple[int, tuple[int, ...], tuple[int, ...]]  # offset, shape, strides

# (operands, result's place or None): of memory that is dense and aligned, is not, has a tail, lies across.
PLACES: dict[str, tuple[Place, Place]] = {
    "dense with a tail": ((0, (1003,), (1,)), (0, (1003,), (1,))),
    "misaligned": ((1, (1003,), (1,)), (0, (1003,), (1,))),
    "one value per channel": ((0, (7, 5, 32), (160, 32, 1)), (0, (32,), (1,))),
    "one value per row": ((0, (33, 16), (16, 1)), (0, (33, 1), (1, 1))),
    "one value": ((0, (9, 20), (20, 1)), (3, (1, 1), (1, 1))),
    "image order": ((0, (6, 3, 5, 16), (16, 480, 96, 1)), (0, (6, 3, 5, 16), (240, 80, 16, 1))),
    "across": ((0, (40, 36), (36, 1)), (0, (40, 36), (1, 40))),
    "gaps and backwards": ((0, (4, 9, 6), (180, 20, 3)), (60, (9, 6), (6, -1))),
    "both broadcast": ((0, (7, 1, 5), (5, 5, 1)), (0, (1, 6, 1), (1, 1, 1))),
    "no axes": ((2, (), ()), (5, (), ())),
}
MEMORY = 4096


def memory(rng: np.random.Generator, dtype: Any, positive: bool = False) -> Array:
    """Elements to place tensors on; among floats NaN, infinities and both zeros."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, MEMORY).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = rng.integers(0 if positive else max(info.min, -9), 10, MEMORY)
        extremes = [info.max, 0, 1] if positive else [info.min, info.min + 1, info.max, 0]
        return np.where(rng.uniform(size=MEMORY) < 0.1, rng.choice(extremes, MEMORY), values).astype(dtype)
    special = rng.choice([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 1e-42, 1e30], MEMORY)
    return np.where(rng.uniform(size=MEMORY) < 0.1, special, rng.normal(0, 3, MEMORY)).astype(dtype)


def both(cu32: Engine, values: Array, place: Place) -> tuple[Tensor, Tensor]:
    """The same tensor on the CPU engine and on the other."""
    return tuple(engine.from_numpy(values).strided(*place) for engine in (alpha.engine("cpu"), cu32))  # type: ignore[return-value]


def host(x: Tensor) -> Array:
    return np.array(x.engine.to_numpy(x))


def assert_same(op: str, wanted: Tensor, found: Tensor) -> None:
    a, b = host(wanted), host(found)
    assert a.dtype == b.dtype and a.shape == b.shape
    if a.dtype.kind != "f":
        np.testing.assert_array_equal(b, a, err_msg=op)
        return
    # Libraries differ by a few units in the last place; sines of large arguments pass through zero.
    tolerance = 2e-6 if a.dtype == np.float32 else 1e-13
    np.testing.assert_allclose(b, a, rtol=tolerance, atol=1e-6 if op in ("sin", "cos") else 0, err_msg=op)
    if op in ("maximum", "minimum"):
        return  # which of two zeros they give is open
    numbers = ~np.isnan(a)
    np.testing.assert_array_equal(np.signbit(b)[numbers], np.signbit(a)[numbers], err_msg=f"sign of {op}")


def operands(op: str) -> int:
    if op in OPERATIONS:
        return len(OPERATIONS[op].operands)
    return 1  # square, reciprocal, isnan


OF_BOOLS = ("add", "mul", "maximum", "minimum", "where")
"""What bools have beside the operations whose results are bools."""


def is_of(op: str, dtype: np.dtype[Any]) -> bool:
    """Whether elements of a dtype have an operation."""
    if is_bool(dtype):
        return op in OF_BOOLS or (op in OPERATIONS and OPERATIONS[op].result == BOOL)
    if is_float(dtype) and (op.startswith("bitwise_") or op.endswith("_shift")):
        return False
    return is_float(dtype) or op in integers.FUNCTIONS or op == "square"


CASES = [(op, dtype) for op in NAMES if op != "clamp" for dtype in ALL if is_of(op, dtype)]


def places(dtype: np.dtype[Any]) -> list[str]:
    """Those whose kernels differ; each takes a fourth of a second to compile, and integers' are alike."""
    if is_float(dtype):
        return list(PLACES)
    return ["dense with a tail", "one value per row", *(["across", "both broadcast"] if dtype == default_int else [])]


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=str)
def test_as_on_the_cpu(cu32: Engine, rng: np.random.Generator, op: str, dtype: np.dtype[Any]) -> None:
    cpu = alpha.engine("cpu")
    for name in places(dtype):
        first, second = PLACES[name]
        if op == "isfinite" and name.startswith("gaps"):
            continue  # NumPy's own is wrong there
        x = both(cu32, memory(rng, dtype), first)
        y = both(cu32, memory(rng, dtype, positive=op == "pow" and not is_float(dtype)), second)
        calls: list[tuple[Any, ...]]
        if operands(op) == 1:
            calls = [(x,)]
        elif operands(op) == 3:
            condition = both(cu32, memory(rng, np.bool_), first)
            number = (2.5, 2.5) if is_float(dtype) else (1, 1)
            calls = [(condition, x, y), (condition, y, number), (condition, number, x)]
        else:
            number = (2.5, 2.5) if is_float(dtype) else (2, 2) if dtype != np.bool_ else (True, True)
            calls = [(x, y), (x, number)] if op == "pow" else [(x, y), (y, x), (x, number), (number, y)]
        for call in calls:
            wanted = cpu.elementwise(op, *(pair[0] for pair in call))
            found = cu32.elementwise(op, *(pair[1] for pair in call))
            assert found.strides == wanted.strides, name
            assert_same(op, wanted, found)


@pytest.mark.parametrize("name", [name for name in PLACES if name != "both broadcast"])
def test_into_an_operand(cu32: Engine, rng: np.random.Generator, name: str) -> None:
    cpu = alpha.engine("cpu")
    first, second = PLACES[name]
    values = memory(rng, np.float32), memory(rng, np.float32)
    (a, b), (c, d) = both(cu32, values[0], first), both(cu32, values[1], second)
    assert cpu.elementwise("mul", a, c, out=a) is a
    assert cu32.elementwise("mul", b, d, out=b) is b
    assert_same("mul", a, b)
    whole = tuple(x.strided(0, (MEMORY,), (1,)) for x in (a, b))
    assert_same("mul", *whole)  # and nothing beside it was written to


def test_into_memory_that_lies_across_an_operand(cu32: Engine, rng: np.random.Generator) -> None:
    cpu = alpha.engine("cpu")
    values = memory(rng, np.float32)
    for place in ((4, (100,), (1,)), (1, (50,), (2,)), (99, (100,), (-1,))):
        a, b = both(cu32, values, (0, (place[1]), (1,)))
        cpu.elementwise("neg", a, out=a.strided(*place))
        cu32.elementwise("neg", b, out=b.strided(*place))
        assert_same("neg", a.strided(0, (MEMORY,), (1,)), b.strided(0, (MEMORY,), (1,)))


@pytest.mark.parametrize("target", ALL, ids=str)
@pytest.mark.parametrize("source", ALL, ids=str)
def test_copies_convert(cu32: Engine, rng: np.random.Generator, source: np.dtype[Any], target: np.dtype[Any]) -> None:
    cpu = alpha.engine("cpu")
    values = memory(rng, source)
    if is_float(source) and not is_float(target):
        values = np.clip(np.where(np.isfinite(values), values, 0.4), 0, 200).astype(source)  # others are undefined
    for place, other in PLACES.values():
        a, b = both(cu32, values, other)
        c, d = both(cu32, memory(rng, target), place)
        if np.broadcast_shapes(a.shape, c.shape) != c.shape:
            continue
        cpu.copy(a, c)
        cu32.copy(b, d)
        assert_same("copy", c.strided(0, (MEMORY,), (1,)), d.strided(0, (MEMORY,), (1,)))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
@pytest.mark.parametrize("shape", [(64, 40), (33, 65), (3, 40, 37), (2, 9, 3, 11)], ids=str)
def test_transpositions(cu32: DeviceEngine, rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> None:
    x = rng.integers(0, 200, shape).astype(dtype)
    for order in {tuple(rng.permutation(len(shape))) for _ in range(5)}:
        t = cu32.from_numpy(x)
        out = cu32.empty(shape, t.dtype, order)
        cu32.copy(t, out)
        np.testing.assert_array_equal(host(out), x)
        moved = cu32.from_numpy(np.ascontiguousarray(x.transpose(order)))
        np.testing.assert_array_equal(host(cu32.dense(moved, range(len(shape))[::-1])), x.transpose(order))


def test_an_operand_across_a_large_result(
    cu32: Engine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pointwise, "TRANSPOSED_FIRST", 1)
    x, y = rng.standard_normal((40, 3, 70)), rng.standard_normal((70, 3, 40)).T
    found = cu32.elementwise("sub", cu32.from_numpy(x), cu32.from_numpy(y))
    np.testing.assert_array_equal(host(found), x - y)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("value", [0, 1, 7, -0.0, 2.5, np.nan])
def test_fills(cu32: Engine, rng: np.random.Generator, dtype: np.dtype[Any], value: Any) -> None:
    if not is_float(dtype) and np.isnan(value):
        return
    cpu = alpha.engine("cpu")
    for place, _ in PLACES.values():
        a, b = both(cu32, memory(rng, dtype), place)
        cpu.fill(a, value)
        cu32.fill(b, value)
        assert_same("fill", a.strided(0, (MEMORY,), (1,)), b.strided(0, (MEMORY,), (1,)))


def test_in_pieces(cu32: Engine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work beyond 32 bits takes several launches; here the bound is 50 elements."""
    monkeypatch.setattr(arrays, "plan", functools.partial(plan, limit=50))
    cpu = alpha.engine("cpu")
    for first, second in PLACES.values():
        (a, b), (c, d) = both(cu32, memory(rng, np.float32), first), both(cu32, memory(rng, np.float32), second)
        assert_same("add", cpu.elementwise("add", a, c), cu32.elementwise("add", b, d))
        cpu.fill(a, 3.0)
        cu32.fill(b, 3.0)
        assert_same("fill", a.strided(0, (MEMORY,), (1,)), b.strided(0, (MEMORY,), (1,)))


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.bool_])
def test_numbers_that_the_dtype_cannot_hold(cu32: Engine, op: str, dtype: Any) -> None:
    x = np.array([0, 1], dtype) if dtype == np.bool_ else np.array([0, 5, np.iinfo(dtype).max], dtype)
    function = getattr(operator, op)
    for number in (-1, 300, 2**40, -(2**70), 2**70, 4.5, True):
        t = cu32.from_numpy(x)
        wanted = [function(int(value), number) for value in x]
        assert host(cu32.elementwise(op, t, number)).tolist() == wanted
        assert host(cu32.elementwise(op, number, t)).tolist() == [function(number, int(value)) for value in x]


def test_numbers_become_the_dtype_s(cu32: Engine) -> None:
    bytes_ = cu32.from_numpy(np.array([1, 250], np.uint8))
    assert host(cu32.elementwise("add", bytes_, 300)).tolist() == [45, 38]  # both wrap
    floats = cu32.from_numpy(np.array([1.0, -1.0], np.float32))
    assert host(cu32.elementwise("mul", floats, 1e300)).tolist() == [np.inf, -np.inf]
    assert host(cu32.elementwise("logical_and", floats, np.nan)).tolist() == [True, True]


def test_integer_division_as_numpy_has_it(cu32: Engine) -> None:
    for dtype in (np.int32, np.int64):
        least = np.iinfo(dtype).min
        x = np.array([7, -7, 7, -7, 5, least, least, 0], dtype)
        y = np.array([2, 2, -2, -2, 0, -1, 0, -3], dtype)
        for op, function in (("floor_divide", np.floor_divide), ("remainder", np.remainder)):
            with np.errstate(all="ignore"):
                wanted = function(x, y)
            found = host(cu32.elementwise(op, cu32.from_numpy(x), cu32.from_numpy(y)))
            np.testing.assert_array_equal(found, wanted)


def test_nothing_to_do(cu32: Engine) -> None:
    empty = cu32.empty((0, 3))
    assert cu32.elementwise("add", empty, 1.0).shape == (0, 3)
    assert cu32.elementwise("add", empty, cu32.from_numpy(np.ones(3, np.float32))).shape == (0, 3)
    cu32.copy(empty, cu32.empty((0, 3), alpha.int64))
    cu32.fill(empty, 1)


def test_unknown_operations(cu32: Engine) -> None:
    x = cu32.from_numpy(np.ones(3, np.int64))
    with pytest.raises(ArgumentError, match=r"\[elementwise\] expected one of .*add.*got 'plus'"):
        cu32.elementwise("plus", x, x)
    with pytest.raises(DtypeError, match=r"\[elementwise\] expected a dtype that has exp, got int64"):
        cu32.elementwise("exp", x)
