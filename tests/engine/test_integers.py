"""Integers: arithmetic, comparisons, selection and conversions against NumPy, at the ends of their ranges too."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import dtypes
from alpha.cpu import pointwise
from alpha.cpu.engine import CPUEngine
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError
from alpha.expressions.program import conversion

Array = np.ndarray[Any, Any]

INTEGERS = tuple(str(dtype) for dtype in dtypes.ALL if dtypes.is_integer(dtype))
ALL = tuple(str(dtype) for dtype in dtypes.ALL)
SHAPES = ((), (1,), (0, 3), (7,), (5, 33), (3, 1, 70))

TWO: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floor_divide": np.floor_divide,
    "remainder": np.remainder, "maximum": np.maximum, "minimum": np.minimum, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "logical_xor": np.logical_xor,
}  # fmt: skip
ONE: dict[str, Callable[..., Any]] = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "square": np.square, "logical_not": np.logical_not,
    "isfinite": np.isfinite,
}  # fmt: skip
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def drawn(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], small: bool = False) -> Array:
    """Integers of the whole range, its ends, 0, 1 and -1 among them; or small ones."""
    least, most = dtypes.limits(np.dtype(dtype))
    if small:
        return rng.integers(max(-9, int(least)), 9, shape).astype(dtype)
    numbers = rng.integers(int(least), int(most), shape, dtype=dtype, endpoint=True)
    extremes = rng.choice(np.array([least, most, 0, 1, -1 if least else most]).astype(dtype), shape)
    return np.where(rng.random(shape) < 0.3, extremes, numbers).astype(dtype)


def check(function: Callable[[], alpha.Tensor], expected: Any) -> None:
    """The result, when the call plans and when it is known, has the expected numbers and dtype."""
    for _ in range(2):
        found = function()
        assert found.dtype == expected.dtype and found.shape == expected.shape
        np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:overflow")
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_two_operands(engine: Engine, rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> None:
    for small_x, small_y in ((False, False), (True, True), (False, True)):
        x, y = drawn(rng, dtype, shape, small_x), drawn(rng, dtype, shape, small_y)
        a, b = alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)
        for name, function in TWO.items():
            check(lambda name=name, a=a, b=b: getattr(alpha, name)(a, b), np.asarray(function(x, y)))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_views_and_broadcasts(engine: Engine, rng: np.random.Generator, dtype: str) -> None:
    x, y = drawn(rng, dtype, (6, 40)), drawn(rng, dtype, (40, 12))
    a, b = alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)
    for name in ("add", "mul", "lt", "floor_divide", "maximum"):
        function = TWO[name]
        with np.errstate(all="ignore"):
            check(lambda name=name: getattr(alpha, name)(a[:, ::3], b.T[::2, ::3]), function(x[:, ::3], y.T[::2, ::3]))
            check(lambda name=name: getattr(alpha, name)(a[:1], b.T[:, :1]), function(x[:1], y.T[:, :1]))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("number", [0, 1, 3, -1, -7, 255, 300, 2**31, -(2**40), 2**53 + 1, 2**63 - 1])
def test_numbers_wrap_around_and_are_compared_as_they_are(
    engine: Engine, rng: np.random.Generator, dtype: str, number: int
) -> None:
    x = np.concatenate([drawn(rng, dtype, (50,)), np.array([number]).astype(dtype)])
    a, wrapped = alpha.tensor(x, engine=engine), np.array(number).astype(dtype)
    with np.errstate(all="ignore"):
        for name in ("add", "sub", "mul", "floor_divide", "remainder", "maximum", "minimum"):
            check(lambda name=name: getattr(alpha, name)(a, number), TWO[name](x, wrapped))
            check(lambda name=name: getattr(alpha, name)(number, a), TWO[name](wrapped, x))
    for name in COMPARISONS:
        check(lambda name=name: getattr(alpha, name)(a, number), TWO[name](x.astype(object), number).astype(bool))
        check(lambda name=name: getattr(alpha, name)(number, a), TWO[name](number, x.astype(object)).astype(bool))


def test_floats_beside_integers_are_not_taken_for_integers(engine: Engine) -> None:
    x = alpha.tensor([1, 2, 3], engine=engine)
    for _ in range(2):
        assert (x + 1).tolist() == [2, 3, 4]
        assert (x + 1.5).tolist() == [2.5, 3.5, 4.5] and (x + 1.0).dtype == alpha.float32
        assert (x**2).dtype == alpha.int64 and (x**2.0).dtype == alpha.float32 and (x**3).tolist() == [1, 8, 27]
        assert alpha.square(x).tolist() == [1, 4, 9] and (x**4).tolist() == [1, 16, 81]
        assert (x < 2.5).tolist() == [True, True, False] and (x == 2).tolist() == [False, True, False]
        with pytest.raises(ArgumentError, match="powers >= 0"):
            x ** (-1)
        with pytest.raises(DtypeError):
            x += 1.5


def test_a_function_of_floats_does_not_take_integers_that_another_function_took(engine: Engine) -> None:
    squared = alpha.pointwise(lambda x: x * x)
    x = alpha.tensor([1, 2, 3], engine=engine)
    assert squared(x.float()).tolist() == [1, 4, 9]
    for _ in range(2):
        assert (x * x).tolist() == alpha.square(x).tolist() == [1, 4, 9]
        with pytest.raises(DtypeError, match="expected tensors of float32 or float64"):
            squared(x)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_one_operand_powers_and_selection(engine: Engine, rng: np.random.Generator, dtype: str) -> None:
    x, y = drawn(rng, dtype, (5, 33)), drawn(rng, dtype, (5, 33))
    mask, powers = rng.random((5, 33)) < 0.5, rng.integers(0, 70, (5, 33)).astype(dtype)
    a, b, m, p = (alpha.tensor(array, engine=engine) for array in (x, y, mask, powers))
    with np.errstate(all="ignore"):
        for name, function in ONE.items():
            check(lambda name=name: getattr(alpha, name)(a), function(x))
        check(lambda: a**p, x**powers)
        for exponent in (0, 1, 2, 3, 5):
            check(lambda exponent=exponent: a**exponent, x**exponent)
    check(lambda: alpha.where(m, a, b), np.where(mask, x, y))
    check(lambda: alpha.where(m, a, 7), np.where(mask, x, np.array(7, dtype)))
    check(lambda: alpha.where(m, 7, b), np.where(mask, np.array(7, dtype), y))
    check(lambda: a.clamp(3, 90), x.clip(3, 90))
    check(lambda: a.clamp(min=3), x.clip(3, None))
    check(lambda: a.clamp(max=b), np.minimum(x, y))
    check(lambda: a.clamp(b, 90), np.minimum(np.maximum(x, y), np.array(90, dtype)))
    check(lambda: a.clamp(3, b), np.minimum(np.maximum(x, np.array(3, dtype)), y))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_in_place(engine: Engine, rng: np.random.Generator, dtype: str) -> None:
    x, y = drawn(rng, dtype, (4, 40)), drawn(rng, dtype, (4, 40), small=True)
    a, b = alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)
    with np.errstate(all="ignore"):
        for _ in range(3):  # the third is a launch
            version = a.version
            a += b
            a *= 3
            a -= b
            a //= 2
            a %= 50
            assert a.version >= version + 5
            x = (x + y) * np.array(3, dtype) - y
            x = x // np.array(2, dtype) % np.array(50, dtype)
            np.testing.assert_array_equal(a.numpy(), x)
        part = a[1:3, ::2]
        part += 1
        x[1:3, ::2] += np.array(1, dtype)
    np.testing.assert_array_equal(a.numpy(), x)


@pytest.mark.parametrize("name", [*TWO, "where"])
def test_bools(engine: Engine, rng: np.random.Generator, name: str) -> None:
    x, y, mask = (rng.random((5, 70)) < 0.5 for _ in range(3))
    a, b, m = (alpha.tensor(array, engine=engine) for array in (x, y, mask))
    if name in ("sub", "floor_divide", "remainder"):
        with pytest.raises(DtypeError):
            getattr(alpha, name)(a, b)
    elif name == "where":
        check(lambda: alpha.where(m, a, b), np.where(mask, x, y))
        check(lambda: alpha.where(m, a, True), np.where(mask, x, True))
    else:
        check(lambda: getattr(alpha, name)(a, b), TWO[name](x, y))
        if name in COMPARISONS:
            for number in (True, 0, 2, -1, 0.5):
                check(lambda number=number: getattr(alpha, name)(a, number), TWO[name](x, number))
                check(lambda number=number: engine.elementwise(name, number, b), TWO[name](number, y))


def test_many_threads_give_the_same(cpu: CPUEngine, rng: np.random.Generator) -> None:
    before, results = cpu.threads, []
    x, y = (drawn(rng, "int64", (3, pointwise.FOUND)) for _ in range(2))
    a, b = alpha.tensor(x, engine=cpu), alpha.tensor(y, engine=cpu)
    try:
        for threads in (1, 2, 3):
            cpu.configure(threads=threads)
            results.append([alpha.floor_divide(a, b), a * b, a < b, a.float(), a.int(), alpha.dropout(a.float(), 0.5)])
    finally:
        cpu.configure(threads=before)
    with np.errstate(all="ignore"):
        expected = [x // y, x * y, x < y, x.astype(np.float32), x.astype(np.int32)]
    for several in results:
        for found, wanted in zip(several, expected, strict=False):
            np.testing.assert_array_equal(found.numpy(), wanted)


# -- conversions -------------------------------------------------------------------------------------------------


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Numbers of a dtype that every other holds or cuts to its bits."""
    if dtypes.is_float(np.dtype(dtype)):
        return rng.choice([0.0, -0.0, 0.3, -0.7, 1.5, 99.9, 255.0], shape).astype(dtype)
    return rng.random(shape) < 0.5 if dtype == "bool" else drawn(rng, dtype, shape)


def layouts(x: Any) -> Iterator[Any]:
    """A matrix of an array or a tensor: whole, in parts, transposed, one column."""
    yield from (x, x[:, 1:], x[::2, ::3], x.T, x[:, 3], x[:1])


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(ALL, 2)))
def test_conversions(engine: Engine, rng: np.random.Generator, source: str, target: str) -> None:
    x = numbers(rng, source, (9, 70))
    a = alpha.tensor(x, engine=engine)
    for view, tensor in zip(layouts(x), layouts(a), strict=True):
        check(lambda tensor=tensor: tensor.astype(target), view.astype(target))
        assert tensor.astype(target).memory_order() == tensor.memory_order()
    for shape in ((), (0, 3)):
        check(
            lambda shape=shape: alpha.zeros(*shape, dtype=source, engine=engine).astype(target), np.zeros(shape, target)
        )
    whole = alpha.zeros(9, 140, dtype=target, engine=engine)
    whole[:, ::2].copy_(a) if target != "bool" else whole[:, ::2].copy_(a.bool())
    expected = np.zeros((9, 140), target)
    expected[:, ::2] = x.astype(target)
    np.testing.assert_array_equal(whole.numpy(), expected)


def test_conversions_round_to_the_nearest_and_cut_towards_zero(engine: Engine) -> None:
    large = np.array([2**24 + 1, 2**24 + 3, 2**53 + 1, 2**63 - 1, -(2**63), -(2**60) - 2**36 - 1])
    check(lambda: alpha.tensor(large, engine=engine).float(), large.astype(np.float32))
    check(lambda: alpha.tensor(large, engine=engine).double(), large.astype(np.float64))
    fractions = alpha.tensor(np.array([-1.9, -0.5, 0.999, 254.7, 2.0**31 - 200]), engine=engine)
    assert fractions.long().tolist() == [-1, 0, 0, 254, 2**31 - 200]
    assert fractions.float().int().tolist() == [-1, 0, 0, 254, 2**31 - 256]
    assert alpha.tensor([-1.0, 255.9], engine=engine).astype("uint8").tolist() == [255, 255]
    assert alpha.tensor(np.array([2**32 + 7, -1]), engine=engine).int().tolist() == [7, -1]
    assert alpha.tensor(np.array([1e300, -1e300, 1e-300]), engine=engine).float().tolist() == [np.inf, -np.inf, 0]


def test_what_is_not_zero_is_true(engine: Engine) -> None:
    x = alpha.tensor(np.array([np.nan, np.inf, -0.0, 1e-45, 0.0], np.float32), engine=engine)
    assert x.bool().tolist() == [True, True, False, True, False]
    assert x.double().bool().tolist() == [True, True, False, True, False]


def test_a_conversion_is_a_launch(cpu: CPUEngine) -> None:
    conversion(alpha.float32).launches.forget()
    x = alpha.tensor(np.arange(32), engine=cpu)
    x.float()
    assert conversion(alpha.float32).launches.launch_outside(x) is not None
    y = x.float().requires_grad_()
    assert conversion(alpha.float64).launches.launch_outside(y) is None  # the graph needs to know of it
    y.double().sum().backward()
    assert y.grad is not None and y.grad.tolist() == [1] * 32


def test_a_copy_into_memory_that_it_is_read_from(engine: Engine, rng: np.random.Generator) -> None:
    x = rng.standard_normal(40)
    a = engine.from_numpy(x)
    engine.copy(a.strided(0, (39,), (1,)), a.strided(1, (39,), (1,)))
    np.testing.assert_array_equal(a.numpy()[1:], x[:-1])
