"""alpha.array_api has the standard's names, signatures and dtypes, and its results: compared with array-api-strict."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import array_api as xp
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, ShapeError
from tests.array_api.exceptions import ABSENT_DTYPES

Array = np.ndarray[Any, Any]

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
REALS = (*INTEGERS, "float32", "float64")
NUMBERS = (*REALS, "complex64", "complex128")
FLOATS = ("float32", "float64")

needs_strict = pytest.mark.needs("array_api_strict")


def strict() -> Any:
    """array-api-strict: the standard's functions and nothing else, by NumPy."""
    return pytest.importorskip("array_api_strict")


# -- names and signatures --------------------------------------------------------------------------------------------

_NO_FUNCTIONS = ("Device", "__version__", "ArrayAPIStrictFlags")
"""What array-api-strict has beside the standard."""


def _names(module: Any) -> list[str]:
    flags = [name for name in module.__all__ if name.endswith("_strict_flags")]
    return [name for name in module.__all__ if name not in (*_NO_FUNCTIONS, *flags, *ABSENT_DTYPES)]


@needs_strict
@pytest.mark.parametrize("part", ["", "linalg", "fft"])
def test_each_name_takes_the_standards_arguments(part: str) -> None:
    theirs, ours = (getattr(module, part) if part else module for module in (strict(), xp))
    names = _names(theirs)
    assert len(names) > 10
    assert not [name for name in names if not hasattr(ours, name)]
    for name in names:
        if inspect.isfunction(getattr(theirs, name)):
            _check_signature(name, getattr(ours, name), getattr(theirs, name))


def _check_signature(name: str, ours: Callable[..., Any], theirs: Callable[..., Any]) -> None:
    """Whatever call the standard allows, our signature takes, with the standard's defaults."""
    wanted, given = inspect.signature(theirs).parameters.values(), inspect.signature(ours)
    placed = [p for p in wanted if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p.name for p in wanted if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in placed)
    for count in range(least, len(placed) + 1):
        rest = [p for p in named if p not in [q.name for q in placed[:count]]]
        given.bind(*range(count), **dict.fromkeys(rest))
        needed = [p.name for p in wanted if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        given.bind(*range(count), **dict.fromkeys(needed))
    for parameter in wanted:
        if parameter.kind is parameter.KEYWORD_ONLY and isinstance(parameter.default, bool | int | float | str | None):
            assert given.parameters[parameter.name].default == parameter.default, (name, parameter)


def test_a_tensor_tells_its_namespace() -> None:
    x = alpha.tensor([1.0, 2.0])
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12", xp.__array_api_version__):
        assert x.__array_namespace__(api_version=version) is xp
    with pytest.raises(ArgumentError, match=r"\[__array_namespace__\] expected api_version as one of 2021.12"):
        x.__array_namespace__(api_version="1999.01")
    assert x.to_device(x.device) is x
    with pytest.raises(ArgumentError, match=r"\[to_device\] expected stream=None"):
        x.to_device("cpu", stream=1)


def test_the_namespace_tells_what_it_has() -> None:
    info = xp.__array_namespace_info__()
    assert info.default_device() in info.devices() and alpha.device("cpu") in info.devices()
    assert info.default_dtypes() == {
        "real floating": alpha.float32,
        "complex floating": alpha.complex64,
        "integral": alpha.int64,
        "indexing": alpha.int64,
    }
    assert set(info.dtypes()) == {"bool", *NUMBERS}
    for kind, names in {
        "bool": {"bool"},
        "signed integer": set(INTEGERS[:4]),
        ("unsigned integer", "bool"): {"bool", *INTEGERS[4:]},
        "real floating": set(FLOATS),
        "complex floating": {"complex64", "complex128"},
    }.items():
        assert set(info.dtypes(kind=kind, device="cpu")) == names
    assert info.capabilities()["boolean indexing"]
    for wrong in ({"kind": "float"}, {"kind": 1}, {"device": "nowhere"}):
        with pytest.raises(ArgumentError, match=r"\[dtypes\] expected"):
            info.dtypes(**wrong)


# -- results ---------------------------------------------------------------------------------------------------------


def values(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Small numbers of a dtype, none of them 0."""
    found = np.random.default_rng(seed).integers(1, 6, shape)
    if dtype == "bool":
        return np.asarray(found > 3)
    return np.asarray(found.astype(dtype) * ((1 + 2j) if dtype.startswith("complex") else 1)).astype(dtype)


def compare(call: Callable[..., Any], *arrays: Any) -> None:
    """A call of the namespace and arrays gives what it gives with array-api-strict: dtypes, shapes and values."""
    theirs = strict()
    expected = call(theirs, *[theirs.asarray(x) if isinstance(x, np.ndarray) else x for x in arrays])
    found = call(xp, *[xp.asarray(x, copy=True) if isinstance(x, np.ndarray) else x for x in arrays])
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for one, other in pairs:
        told, wanted = np.asarray(one), np.asarray(other)
        assert str(one.dtype) == str(wanted.dtype) and told.shape == wanted.shape, (one, other)
        np.testing.assert_allclose(told, wanted, rtol=1e-5, atol=1e-6)


@needs_strict
@pytest.mark.parametrize("one", ["bool", *NUMBERS])
def test_dtypes_meet_as_the_standard_says(one: str) -> None:
    theirs = strict()
    for other in ("bool", *NUMBERS):
        try:
            expected = theirs.result_type(getattr(theirs, one), getattr(theirs, other))
        except TypeError:  # of two kinds: the standard leaves it open
            continue
        kinds = getattr(xp, one), getattr(xp, other)
        assert f"array_api_strict.{xp.result_type(*kinds)}" == str(expected)
        for first, second in itertools.product([(), (2,)], repeat=2):
            arrays = xp.ones(first, dtype=kinds[0]), xp.ones(second, dtype=kinds[1])
            assert xp.result_type(*arrays) == xp.result_type(*kinds)
            if one != "bool":
                assert xp.add(*arrays).dtype == xp.result_type(*kinds)
            joined = xp.concat([xp.reshape(x, (-1,)) for x in arrays])
            assert joined.dtype == xp.result_type(*kinds)
        assert xp.can_cast(kinds[0], kinds[1]) == theirs.can_cast(getattr(theirs, one), getattr(theirs, other))


OF_ONE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("abs", "negative", "positive", "square", "sign"), NUMBERS),
    **dict.fromkeys(("ceil", "floor", "round", "trunc"), REALS),
    **dict.fromkeys(("isfinite", "isinf", "isnan"), NUMBERS),
    **dict.fromkeys(("acosh", "asin", "asinh", "atan", "cos", "cosh", "exp", "expm1", "log", "log10"), FLOATS),
    **dict.fromkeys(("log1p", "log2", "reciprocal", "signbit", "sin", "sinh", "sqrt", "tan", "tanh"), FLOATS),
    **dict.fromkeys(("conj", "imag", "real"), ("complex64", "complex128")),
    **dict.fromkeys(("sum", "prod"), (*INTEGERS[:4], *FLOATS)),
    **dict.fromkeys(("max", "min", "argmax", "argmin"), REALS),
    **dict.fromkeys(("mean", "std", "var"), FLOATS),
    **dict.fromkeys(("all", "any", "count_nonzero"), ("bool", *NUMBERS)),
    **dict.fromkeys(("nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"), REALS),
    **dict.fromkeys(("sort", "argsort", "diff"), REALS),
    "flip": ("bool", *NUMBERS),
    "bitwise_invert": ("bool", *INTEGERS),
    "logical_not": ("bool",),
}
"""Functions that take one array, and the dtypes that the standard has for them."""

OF_TWO: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("add", "multiply", "subtract"), NUMBERS),
    **dict.fromkeys(("divide", "atan2", "copysign", "hypot", "logaddexp", "nextafter"), FLOATS),
    **dict.fromkeys(("equal", "not_equal"), ("bool", *NUMBERS)),
    **dict.fromkeys(("greater", "greater_equal", "less", "less_equal", "maximum", "minimum"), REALS),
    **dict.fromkeys(("floor_divide", "remainder", "pow"), REALS),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), ("bool", *INTEGERS)),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), INTEGERS),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), ("bool",)),
}
"""Functions that take two."""


@needs_strict
@pytest.mark.parametrize("name", OF_ONE)
def test_functions_of_one_array(name: str) -> None:
    for dtype, shape in itertools.product(OF_ONE[name], [(3, 4), (0,), (1,), ()]):
        if (name in ("nonzero", "sort", "argsort", "diff") and not shape) or (
            name in ("max", "min", "argmax", "argmin", "mean", "std", "var") and shape == (0,)
        ):
            continue
        x = values(dtype, shape)
        compare(lambda space, a: getattr(space, name)(a), np.asarray(np.sin(x)) if name == "asin" else x)


@needs_strict
@pytest.mark.parametrize("name", OF_TWO)
def test_functions_of_two_arrays(name: str) -> None:
    for dtype in OF_TWO[name]:
        for first, second in itertools.product([(3, 4), (4,), ()], repeat=2):
            compare(lambda space, a, b: getattr(space, name)(a, b), values(dtype, first), values(dtype, second, 1))
        number = 2 if dtype in INTEGERS else True if dtype == "bool" else 2.0
        compare(lambda space, a, n=number: getattr(space, name)(a, n), values(dtype, (3,)))
        compare(lambda space, a, n=number: getattr(space, name)(n, a), values(dtype, ()))


INF, NAN = float("inf"), float("nan")

SPECIAL: dict[str, list[tuple[float, float, float]]] = {
    "floor_divide": [
        (INF, 2, INF), (-INF, 2, -INF), (INF, -2, -INF), (3, -INF, -0.0), (-3, INF, -0.0), (3, INF, 0.0), (0, 3, 0.0),
        (7, -2, -4.0),
    ],
    "remainder": [(-0.0, 2, 0.0), (0.0, -2, -0.0), (3, -2, -1.0), (-4, 2, 0.0), (3, INF, 3.0)],
}  # fmt: skip
"""Pairs of numbers and what the standard makes of them, where PyTorch's functions, and Tensor's operators, differ."""


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values_are_the_standards(name: str) -> None:
    first, second, expected = np.array(SPECIAL[name]).T
    found = np.asarray(getattr(xp, name)(xp.asarray(first), xp.asarray(second)))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
    for one, other, wanted in SPECIAL[name]:
        for pair in ((xp.asarray(one), other), (one, xp.asarray(other))):
            number = getattr(xp, name)(*pair).item()
            assert (number, np.signbit(number)) == (wanted, np.signbit(wanted))


def test_signs_of_nan_and_of_zeros() -> None:
    np.testing.assert_array_equal(np.asarray(xp.sign(xp.asarray([NAN, -0.0, 0.0, INF, -3.0]))), [NAN, 0, 0, 1, -1])
    found = np.asarray(xp.sign(xp.asarray([complex(-0.0, -0.0), 3 - 4j])))
    np.testing.assert_allclose(found, [0, 0.6 - 0.8j], rtol=1e-6)
    assert not np.signbit(found[0].real)


A, B = values("float64", (3, 4, 3)), values("float64", (3, 3), 5) + 3 * np.eye(3)
INTS = values("int32", (3, 4))

CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "arange": (lambda s: s.arange(2, 9, 3, dtype=s.float32), ()),
    "arange to": (lambda s: s.arange(4), ()),
    "astype": (lambda s, a: s.astype(a, s.float32), (INTS,)),
    "broadcast_arrays": (lambda s, a, b: s.broadcast_arrays(a, b), (A[0], A[:, :, :1])),
    "broadcast_to": (lambda s, a: s.broadcast_to(a, (2, 3, 4)), (INTS,)),
    "clip": (lambda s, a: s.clip(a, 2, 4), (INTS,)),
    "clip from": (lambda s, a, b: s.clip(a, min=b), (A, A[0, 0])),
    "concat": (lambda s, a, b: s.concat([a, b], axis=1), (A[0], B.repeat(4, 0)[:4])),
    "concat, flat": (lambda s, a, b: s.concat([a, b], axis=None), (INTS, INTS[0])),
    "count_nonzero": (lambda s, a: s.count_nonzero(a, axis=(0, 2), keepdims=True), (A - 2,)),
    "cumulative_prod": (lambda s, a: s.cumulative_prod(a, axis=1, include_initial=True), (A,)),
    "cumulative_sum": (lambda s, a: s.cumulative_sum(a, axis=-2, include_initial=True), (INTS,)),
    "cumulative_sum, vector": (lambda s, a: s.cumulative_sum(a, dtype=s.float64), (INTS[0],)),
    "diff": (lambda s, a, b: s.diff(a, axis=0, n=2, prepend=b), (A, A[:1])),
    "empty tuple of axes": (lambda s, a: s.sum(a, axis=()), (A,)),
    "expand_dims": (lambda s, a: s.expand_dims(a, axis=(0, -1)), (INTS,)),
    "eye": (lambda s: s.eye(3, 4, k=-1, dtype=s.int32), ()),
    "eye, far": (lambda s: s.eye(3, k=7, dtype=s.float32), ()),
    "flip": (lambda s, a: s.flip(a, axis=(0, 2)), (A,)),
    "full": (lambda s: s.full((2, 3), 3), ()),
    "full_like": (lambda s, a: s.full_like(a, 2.5, dtype=s.float64), (INTS,)),
    "isin": (lambda s, a, b: s.isin(a, b), (INTS, INTS[0, :2])),
    "linspace": (lambda s: s.linspace(0, 1, 5, endpoint=False, dtype=s.float64), ()),
    "linspace, closed": (lambda s: s.linspace(2, -2, 4, dtype=s.float32), ()),
    "max": (lambda s, a: s.max(a, axis=(0, -1), keepdims=True), (A,)),
    "mean": (lambda s, a: s.mean(a, axis=(1, 2)), (A,)),
    "meshgrid": (lambda s, a, b: s.meshgrid(a, b), (INTS[0], INTS[1, :3])),
    "moveaxis": (lambda s, a: s.moveaxis(a, (0, 1), (-1, 0)), (A,)),
    "permute_dims": (lambda s, a: s.permute_dims(a, (2, 0, 1)), (A,)),
    "prod": (lambda s, a: s.prod(a, axis=0, dtype=s.float64), (INTS,)),
    "repeat": (lambda s, a, b: s.repeat(a, b, axis=1), (INTS, np.array([2, 0, 1, 3]))),
    "repeat, flat": (lambda s, a: s.repeat(a, 2), (INTS,)),
    "reshape": (lambda s, a: s.reshape(a, (-1, 2), copy=True), (INTS,)),
    "roll": (lambda s, a: s.roll(a, (1, -1), axis=(0, 2)), (A,)),
    "roll, flat": (lambda s, a: s.roll(a, 3), (INTS,)),
    "searchsorted": (lambda s, a, b: s.searchsorted(a, b, side="right"), (np.sort(INTS[0]), INTS)),
    "sort": (lambda s, a: s.sort(a, axis=0, descending=True), (A,)),
    "argsort": (lambda s, a: s.argsort(a, axis=1, descending=True), (A,)),
    "squeeze": (lambda s, a: s.squeeze(a, axis=(0, 1)), (A[:1, :1],)),
    "stack": (lambda s, a, b: s.stack((a, b), axis=-1), (A[0], A[1])),
    "std": (lambda s, a: s.std(a, axis=1, correction=1.0), (A,)),
    "take": (lambda s, a, b: s.take(a, b, axis=1), (A, np.array([2, 0]))),
    "take_along_axis": (lambda s, a, b: s.take_along_axis(a, b, axis=0), (INTS, np.array([[2, 0, 1, 0]]))),
    "tile": (lambda s, a: s.tile(a, (2, 1, 3)), (INTS,)),
    "tril": (lambda s, a: s.tril(a, k=-1), (A,)),
    "triu": (lambda s, a: s.triu(a, k=1), (A,)),
    "unstack": (lambda s, a: s.unstack(a, axis=1), (A,)),
    "var": (lambda s, a: s.var(a, keepdims=True), (A,)),
    "where": (lambda s, a, b: s.where(a > b, a, b), (A, A[0])),
    "where, numbers": (lambda s, a: s.where(a > 2, a, 0.0), (A,)),
    "linalg.cholesky": (lambda s, a: s.linalg.cholesky(a, upper=True), (B @ B.T,)),
    "linalg.cross": (lambda s, a, b: s.linalg.cross(a, b), (A, A[0])),
    "linalg.det": (lambda s, a: s.linalg.det(a), (B,)),
    "linalg.diagonal": (lambda s, a: s.linalg.diagonal(a, offset=1), (A,)),
    "linalg.eigvalsh": (lambda s, a: s.linalg.eigvalsh(a), (B + B.T,)),
    "linalg.inv": (lambda s, a: s.linalg.inv(a), (B,)),
    "linalg.matrix_norm": (lambda s, a: s.linalg.matrix_norm(a, ord="nuc", keepdims=True), (A,)),
    "linalg.matrix_power": (lambda s, a: s.linalg.matrix_power(a, -2), (B,)),
    "linalg.matrix_rank": (lambda s, a: s.linalg.matrix_rank(a, rtol=0.1), (A,)),
    "linalg.outer": (lambda s, a, b: s.linalg.outer(a, b), (INTS[0], INTS[1])),
    "linalg.pinv": (lambda s, a: s.linalg.pinv(a), (A,)),
    "linalg.slogdet": (lambda s, a: tuple(s.linalg.slogdet(a)), (B,)),
    "linalg.solve": (lambda s, a, b: s.linalg.solve(a, b), (np.stack([B, B.T, B @ B]), B)),
    "linalg.solve, vector": (lambda s, a, b: s.linalg.solve(a, b), (B, B[0])),
    "linalg.svdvals": (lambda s, a: s.linalg.svdvals(a), (A,)),
    "linalg.trace": (lambda s, a: s.linalg.trace(a, offset=-1), (A,)),
    "linalg.vector_norm": (lambda s, a: s.linalg.vector_norm(a, axis=(0, 1), ord=3), (A,)),
    "linalg.vector_norm, no axes": (lambda s, a: s.linalg.vector_norm(a, axis=(), ord=1), (A - 3,)),
    "matmul": (lambda s, a, b: s.matmul(a, b), (A, B)),
    "matrix_transpose": (lambda s, a: s.matrix_transpose(a), (A,)),
    "tensordot": (lambda s, a, b: s.tensordot(a, b, axes=((2,), (0,))), (A, B)),
    "tensordot of nothing": (lambda s, a: s.tensordot(a, a), (np.zeros((0, 0), np.uint8),)),
    "vecdot": (lambda s, a, b: s.vecdot(a, b, axis=-2), (A, A[:1])),
    "fft.fft": (lambda s, a: s.fft.fft(a, n=5, axis=1), (A.astype(complex),)),
    "fft.rfftn": (lambda s, a: s.fft.rfftn(a, s=(3, 4), axes=(1, 2), norm="ortho"), (A,)),
    "fft.irfft": (lambda s, a: s.fft.irfft(a, axis=1), (A.astype(complex),)),
    "fft.fftshift": (lambda s, a: s.fft.fftshift(a, axes=1), (A,)),
    "fft.rfftfreq": (lambda s: s.fft.rfftfreq(6, d=0.5, dtype=s.float64), ()),
}
"""Calls of the other functions, with what they are called with."""


@needs_strict
@pytest.mark.parametrize("name", CALLS)
def test_other_functions(name: str) -> None:
    call, arrays = CALLS[name]
    compare(call, *arrays)


# -- what is refused, and what is ours -------------------------------------------------------------------------------


def test_what_the_standard_refuses_is_told() -> None:
    x = xp.ones((2, 3))
    for call, error in (
        (lambda: xp.squeeze(x, 0), ShapeError),
        (lambda: xp.squeeze(xp.ones(()), 0), IndexError),
        (lambda: xp.squeeze(xp.ones((1, 1)), (0, -2)), ShapeError),
        (lambda: xp.nonzero(xp.ones(())), ShapeError),
        (lambda: xp.cumulative_sum(x), ShapeError),
        (lambda: xp.take(x, xp.asarray([0])), ArgumentError),
        (lambda: xp.matrix_transpose(x[0]), ShapeError),
        (lambda: xp.reshape(xp.permute_dims(x, (1, 0)), (6,), copy=False), ShapeError),
        (lambda: xp.add(1, 2), DtypeError),
        (lambda: xp.add(x, "1"), DtypeError),
        (lambda: xp.result_type(1, 2.0), DtypeError),
        (lambda: xp.clip(x, min=xp.asarray([1.0, 2.0, 3.0], dtype=xp.float64)), DtypeError),
        (lambda: xp.isdtype(xp.float32, "floating"), ArgumentError),
        (lambda: xp.meshgrid(indexing="yx"), ArgumentError),
        (lambda: xp.linalg.solve(x, x), ShapeError),
        (lambda: xp.expand_dims(x, 4), IndexError),
        (lambda: xp.max(x, axis=2), IndexError),
    ):
        with pytest.raises(error, match=r"^\[\w+\] expected"):
            call()


def test_arrays_are_where_they_are_asked_to_be(engine: Engine) -> None:
    x = xp.asarray([[1.0, 2.0], [3.0, 4.0]], device=engine)
    found = (
        xp.sum(xp.matmul(x, x), axis=0), xp.sign(x - 2), xp.floor_divide(x, 2.0), xp.astype(x, xp.int32), xp.sort(x),
        xp.eye(2, k=1, device=x.device), xp.full_like(x, 2.0), xp.concat([x, x], axis=None), xp.unique_all(x).indices,
        xp.linalg.vector_norm(x, axis=()), xp.take(x, xp.asarray([1], device=engine), axis=1), x[x > 2],
    )  # fmt: skip
    assert all(y.engine is engine for y in found)
    assert found[0].tolist() == [22.0, 32.0] and found[5].tolist() == [[0.0, 1.0], [0.0, 0.0]]
    assert x.to_device("cpu").tolist() == x.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_limits_are_pythons_numbers() -> None:
    found = xp.finfo(xp.complex64)
    assert (found.bits, found.dtype) == (32, xp.float32) and type(found.eps) is float
    assert found.smallest_normal == 2.0**-126 and found.max == -found.min
    assert xp.iinfo(xp.asarray([1], dtype=xp.uint32))[:3] == (32, 2**32 - 1, 0)
    assert xp.isdtype(xp.int16, ("bool", xp.int16)) and not xp.isdtype(xp.int16, "unsigned integer")


def test_gradients_flow_through_the_namespace() -> None:
    x = alpha.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    xp.sum(xp.cumulative_sum(xp.multiply(x, x), axis=1) / xp.linalg.vector_norm(x)).backward()
    y = alpha.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    ((y * y).cumsum(1) / (y * y).sum().sqrt()).sum().backward()
    assert x.grad is not None and y.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-6)


def test_copies_are_made_where_asked_for() -> None:
    x = xp.ones((2, 3))
    assert xp.astype(x, xp.float32, copy=False) is x
    for copied in (xp.astype(x, xp.float32), xp.reshape(x, (6,), copy=True), xp.asarray(x, copy=True), xp.clip(x)):
        copied[...] = 5.0
        assert x.tolist() == [[1.0] * 3] * 2
    shared = xp.reshape(x, (6,), copy=False)
    shared[0] = 7.0
    assert x[0, 0].item() == 7.0
