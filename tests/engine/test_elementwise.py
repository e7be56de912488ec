"""Element-wise functions against float64 NumPy and PyTorch: values, gradients, dtypes, broadcasting, memory order."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import alpha
from alpha.cpu import pointwise
from alpha.cpu.engine import CPUEngine
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, EngineError, ShapeError
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on

Array = np.ndarray[Any, Any]
erf = np.vectorize(math.erf, otypes=[np.float64])

# name: NumPy's definition, the range that inputs are drawn from (inside the domain and away from kinks)
UNARY: dict[str, tuple[Callable[[Array], Array], float, float]] = {
    "neg": (np.negative, -3, 3),
    "abs": (np.abs, 0.1, 3),
    "exp": (np.exp, -3, 3),
    "log": (np.log, 0.1, 5),
    "log1p": (np.log1p, -0.9, 5),
    "sqrt": (np.sqrt, 0.1, 5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 5),
    "square": (np.square, -3, 3),
    "reciprocal": (lambda x: 1 / x, 0.2, 3),
    "sin": (np.sin, -4, 4),
    "cos": (np.cos, -4, 4),
    "tanh": (np.tanh, -3, 3),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -6, 6),
    "erf": (erf, -3, 3),
    "sign": (np.sign, 0.1, 3),
    "floor": (np.floor, 0.05, 0.95),
    "ceil": (np.ceil, 0.05, 0.95),
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "remainder": np.remainder,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
SHAPES = [(), (1,), (0, 3), (5,), (2, 1, 3), (3, 4, 1, 5)]


def draw(rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float) -> Array:
    return rng.uniform(low, high, shape).astype(np.float32)


def permuted(rng: np.random.Generator, low: float = 0.5, high: float = 2.0) -> Array:
    """(2, 3, 4, 5) in memory order (3, 4, 2, 5), as activations are."""
    return draw(rng, (3, 4, 2, 5), low, high).transpose(2, 0, 1, 3)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unary_values(engine: Engine, rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> None:
    oracle, low, high = UNARY[name]
    x = draw(rng, shape, low, high)
    y = getattr(alpha, name)(alpha.tensor(x, engine=engine))
    assert y.dtype == alpha.float32 and y.shape == shape
    # The argument is exact in float64; NumPy's float32 functions are within 4 units in the last place (2e-7 each).
    assert_close(y, oracle(x.astype(np.float64)), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", UNARY)
def test_unary_gradients(engine: Engine, rng: np.random.Generator, name: str) -> None:
    _, low, high = UNARY[name]
    for x in (draw(rng, (), low, high), draw(rng, (2, 1, 3), low, high), draw(rng, (3, 2, 2), low, high).T):
        assert gradcheck_on(engine, getattr(alpha, name), x)


@pytest.mark.parametrize("name", UNARY)
def test_unary_gradient_in_float32_is_close_to_float64(engine: Engine, rng: np.random.Generator, name: str) -> None:
    """The project's bound on every function: 1e-5 relative to a float64 reference."""
    _, low, high = UNARY[name]
    values = draw(rng, (7, 33), low, high)
    grads = []
    for dtype in (np.float32, np.float64):
        x = alpha.tensor(values.astype(dtype), requires_grad=True, engine=engine)
        getattr(alpha, name)(x).sum().backward()
        assert x.grad is not None
        grads.append(x.grad.numpy().astype(np.float64))
    assert_close(grads[0], grads[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    "shapes", [((), ()), ((2, 3), (2, 3)), ((2, 3), (3,)), ((4, 1, 3), (2, 1)), ((0, 3), (1,)), ((3,), ())]
)
def test_binary_values_and_gradients(
    engine: Engine, rng: np.random.Generator, name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    x, y = (draw(rng, shape, 0.5, 3) for shape in shapes)
    function = getattr(alpha, name)
    for a, b in ((x, y), (y, x)):
        result = function(alpha.tensor(a, engine=engine), alpha.tensor(b, engine=engine))
        assert_close(result, BINARY[name](a.astype(np.float64), b.astype(np.float64)), rtol=1e-6, atol=1e-6)
        assert gradcheck_on(engine, function, a, b)


@pytest.mark.parametrize("name", BINARY)
def test_binary_with_numbers(engine: Engine, rng: np.random.Generator, name: str) -> None:
    x = draw(rng, (3, 4), 0.5, 3)
    function = getattr(alpha, name)
    for number in (1.7, 2, 0.5, np.float64(1.3)):
        t = alpha.tensor(x, engine=engine)
        assert function(t, number).dtype == function(number, t).dtype == alpha.float32
        assert_close(function(t, number), BINARY[name](x.astype(np.float64), float(number)), rtol=1e-6, atol=1e-6)
        assert_close(function(number, t), BINARY[name](float(number), x.astype(np.float64)), rtol=1e-6, atol=1e-6)
        assert gradcheck_on(engine, lambda a, n=number: function(a, n), x)
        assert gradcheck_on(engine, lambda a, n=number: function(n, a), x)


@given(shapes=mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_broadcasting_is_numpys(engine: Engine, shapes: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape) for shape in shapes.input_shapes)
    a, b = (alpha.tensor(v, requires_grad=True, engine=engine) for v in (x, y))
    result = a * b
    assert result.shape == shapes.result_shape
    assert_close(result, x * y)
    result.sum().backward()
    assert a.grad is not None and b.grad is not None
    ones = np.ones(shapes.result_shape)
    assert_close(a.grad, _summed_to(ones * y, x.shape), rtol=1e-12, atol=1e-12)
    assert_close(b.grad, _summed_to(ones * x, y.shape), rtol=1e-12, atol=1e-12)


def _summed_to(values: Array, shape: tuple[int, ...]) -> Array:
    """The gradient's sum by its definition, element by element."""
    out = np.zeros(shape)
    extra = values.ndim - len(shape)
    for place in np.ndindex(values.shape):
        out[tuple(0 if n == 1 else i for i, n in zip(place[extra:], shape, strict=True))] += values[place]
    return out


def test_memory_order_of_the_largest_operand_is_kept(engine: Engine, rng: np.random.Generator) -> None:
    x = alpha.tensor(permuted(rng), engine=engine)
    channels = alpha.tensor(draw(rng, (5,), 1, 2), engine=engine)
    for y in (x.exp(), x + channels, channels * x, x + 1, alpha.where(x > 1, x, 0.0), x.clone(), x.double(), x > 1):
        assert y.memory_order() == x.memory_order() == (1, 2, 0, 3)
        assert y.is_contiguous((1, 2, 0, 3))
    assert_close(x + channels, x.numpy() + channels.numpy())


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(engine: Engine, name: str) -> None:
    x, y = np.array([[1, 2, 3]], np.float32), np.array([[2], [np.nan]], np.float32)
    t, u = alpha.tensor(x, engine=engine), alpha.tensor(y, requires_grad=True, engine=engine)
    result = getattr(alpha, name)(t, u)
    assert result.dtype == alpha.bool_ and not result.requires_grad
    np.testing.assert_array_equal(result.numpy(), COMPARISONS[name](x, y))
    np.testing.assert_array_equal(getattr(alpha, name)(t, 2).numpy(), COMPARISONS[name](x, 2))


def test_comparison_with_a_number_that_the_dtype_cannot_hold(engine: Engine) -> None:
    x = alpha.tensor(np.array([44, 200], np.uint8), engine=engine)
    assert (x == 300).tolist() == [False, False]
    assert (x < 300).tolist() == [True, True]
    assert (x > -1).tolist() == [True, True]
    assert (x > 99.5).tolist() == [False, True]


def test_comparison_with_what_is_no_operand(engine: Engine) -> None:
    x = alpha.tensor([1.0], engine=engine)
    assert (x == None) is False  # noqa: E711
    assert (x != "x") is True


def test_logic(engine: Engine) -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    t, u = alpha.tensor(a, engine=engine), alpha.tensor(b, engine=engine)
    assert (t & u).tolist() == (a & b).tolist()
    assert (t | u).tolist() == (a | b).tolist()
    assert (t ^ u).tolist() == (a ^ b).tolist()
    assert (~t).tolist() == (~a).tolist()
    assert (True & t).tolist() == a.tolist()
    numbers = alpha.tensor([0, 2, 4], engine=engine)
    assert alpha.logical_and(numbers, 1).tolist() == [False, True, True]
    assert alpha.logical_not(numbers).tolist() == [True, False, False]
    with pytest.raises(DtypeError, match=r"\[bitwise_and\] expected integers or bools, got float32"):
        numbers.float() & 1
    with pytest.raises(DtypeError, match=r"\[bitwise_not\]"):
        _ = ~numbers.float()


def test_isfinite_and_isnan(engine: Engine) -> None:
    x = alpha.tensor([1.0, math.nan, math.inf, -math.inf], engine=engine)
    assert x.isfinite().tolist() == [True, False, False, False]
    assert alpha.isnan(x).tolist() == [False, True, False, False]
    assert alpha.isfinite(alpha.tensor([1, 2], engine=engine)).tolist() == [True, True]


def test_integers(engine: Engine) -> None:
    x, y = alpha.tensor([7, -7, 7, -7], engine=engine), alpha.tensor([2, 2, -2, -2], engine=engine)
    assert (x // y).tolist() == [3, -4, -4, 3]
    assert (x % y).tolist() == [1, 1, -1, -1]
    assert (x / y).dtype == alpha.float32
    assert (x / y).tolist() == [3.5, -3.5, -3.5, 3.5]
    assert (x**2).tolist() == [49, 49, 49, 49]
    assert (2 ** y.abs()).tolist() == [4, 4, 4, 4]
    assert alpha.floor(x).dtype == alpha.int64
    assert alpha.exp(x).dtype == alpha.float32
    small = alpha.tensor(np.array([250, 3], np.uint8), engine=engine)
    assert (small + 10).tolist() == [4, 13]  # wraps around, as in PyTorch
    assert (small + 300).tolist() == [38, 47]
    with pytest.raises(ArgumentError, match=r"\[pow\] expected integers to powers >= 0"):
        x ** alpha.tensor([-1, 1, 1, 1], engine=engine)
        engine.synchronize()


def test_floor_division_and_remainder_of_floats(engine: Engine) -> None:
    x, y = np.array([7.5, -7.5, 1.0], np.float32), np.array([2.0, 2.0, -0.3], np.float32)
    t, u = alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)
    assert_close(t // u, np.floor_divide(x, y))
    assert_close(t % u, np.remainder(x, y))
    assert gradcheck_on(engine, alpha.remainder, x, y)


def test_extreme_values(engine: Engine) -> None:
    x = alpha.tensor([-1000.0, -90.0, 0.0, 90.0, 1000.0], engine=engine)
    assert_close(x.sigmoid(), 1 / (1 + np.exp(-x.numpy().astype(np.float64).clip(-700, 700))), rtol=1e-6, atol=1e-38)
    zero = alpha.tensor([0.0], engine=engine)
    assert (1 / zero).tolist() == [math.inf]
    assert zero.log().tolist() == [-math.inf]
    assert math.isnan((zero / zero).item())


@pytest.mark.needs("torch")
def test_gradients_where_functions_are_not_smooth(engine: Engine) -> None:
    import torch

    values = np.array([-1.0, 0.0, 1.0, 2.0], np.float32)
    other = np.array([-1.0, 1.0, 1.0, 1.0], np.float32)
    cases: dict[str, Callable[[Any, Any, Any], Any]] = {
        "abs": lambda lib, x, y: lib.abs(x),
        "maximum": lambda lib, x, y: lib.maximum(x, y) * 3,
        "minimum": lambda lib, x, y: lib.minimum(x, y) * 3,
        "clamp": lambda lib, x, y: lib.clamp(x, 0, 1) * 3,
        "pow at 0": lambda lib, x, y: lib.pow(x, 0.0),
        "square": lambda lib, x, y: x**2,
        "pow of tensors": lambda lib, x, y: lib.pow(lib.abs(x), y.detach() * 0 + 2),
        "floor": lambda lib, x, y: lib.floor(x) + lib.sign(x),
    }
    for name, case in cases.items():
        x, y = (alpha.tensor(v, requires_grad=True, engine=engine) for v in (values, other))
        a, b = (torch.tensor(v, requires_grad=True) for v in (values, other))
        case(alpha, x, y).sum().backward()
        case(torch, a, b).sum().backward()
        for ours, theirs in ((x, a), (y, b)):
            assert (ours.grad is None) == (theirs.grad is None), name
            if ours.grad is not None:
                np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy(), err_msg=name)


def test_gradient_of_the_exponent_at_base_zero(engine: Engine) -> None:
    y = alpha.tensor([2.0, 0.5], requires_grad=True, engine=engine)
    alpha.pow(alpha.tensor([0.0, 4.0], engine=engine), y).sum().backward()
    assert_close(y.grad, [0.0, 2 * math.log(4)], rtol=1e-6)


def test_where(engine: Engine, rng: np.random.Generator) -> None:
    mask = rng.random((3, 1, 4)) > 0.5
    x, y = draw(rng, (2, 4), -1, 1), draw(rng, (1,), -1, 1)
    m = alpha.tensor(mask, engine=engine)
    assert_close(alpha.where(m, alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)), np.where(mask, x, y))
    assert gradcheck_on(engine, lambda a, b: alpha.where(m, a, b), x, y)
    assert gradcheck_on(engine, lambda a: alpha.where(m, a, 2.0), x)
    assert alpha.where(m, 1, 0).dtype == alpha.int64
    assert alpha.where(m, 1.0, 0).dtype == alpha.float32
    assert_close(alpha.where(m, 1, 2.5), np.where(mask, 1, 2.5).astype(np.float32))
    assert_close(alpha.where(mask[0, 0], alpha.tensor(x, engine=engine), 0), np.where(mask[0, 0], x, 0))
    assert alpha.where(True, alpha.tensor(x, engine=engine), 0).shape == x.shape
    assert alpha.where(False, 1, 2).item() == 2
    with pytest.raises(DtypeError, match=r"\[where\] expected a condition of bool"):
        alpha.where(alpha.tensor([1, 0], engine=engine), 1.0, 0.0)


def test_where_writes_over_an_operand(engine: Engine) -> None:
    mask, x, y = np.array([True, False, True]), np.array([1.0, 2, 3], np.float32), np.array([4.0, 5, 6], np.float32)
    for target in (0, 1):
        operands = [alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)]
        engine.elementwise("where", alpha.tensor(mask, engine=engine), *operands, out=operands[target])
        assert_close(operands[target], np.where(mask, x, y))


def test_clamp(engine: Engine, rng: np.random.Generator) -> None:
    x = draw(rng, (4, 5), -2, 2)
    t = alpha.tensor(x, engine=engine)
    assert_close(t.clamp(-1, 1), x.clip(-1, 1))
    assert_close(t.clamp(min=0.5), x.clip(0.5))
    assert_close(alpha.clamp(t, max=alpha.zeros(5, engine=engine)), np.minimum(x, 0))
    assert gradcheck_on(engine, lambda a: alpha.clamp(a, -0.7, 0.9), x)
    assert alpha.tensor([1, 5], engine=engine).clamp(max=3).tolist() == [1, 3]
    with pytest.raises(ArgumentError, match=r"\[clamp\]"):
        t.clamp()


def test_casts(engine: Engine) -> None:
    x = alpha.tensor([0.0, 1.5, -2.7], requires_grad=True, engine=engine)
    assert x.double().dtype == alpha.float64
    assert x.long().tolist() == [0, 1, -2]
    assert x.int().dtype == alpha.int32
    assert x.bool().tolist() == [False, True, True]
    assert x.float() is x
    assert not x.long().requires_grad
    (x.double() * 2).sum().backward()
    assert x.grad is not None and x.grad.dtype == alpha.float32 and x.grad.tolist() == [2, 2, 2]
    assert x.to("float64").dtype == x.to(np.float64).dtype == alpha.float64
    assert x.to(engine) is x and x.to(engine.name) is x and x.to("cpu").engine is alpha.engine("cpu")
    with pytest.raises(DtypeError, match="uint64"):
        x.to(np.uint64)


def test_contiguous_and_clone(engine: Engine, rng: np.random.Generator) -> None:
    x = alpha.tensor(permuted(rng), engine=engine)
    row_major = x.contiguous()
    assert row_major.is_contiguous() and row_major is not x
    assert_close(row_major, x.numpy())
    assert x.contiguous((1, 2, 0, 3)) is x
    assert x.clone().storage is not x.storage
    assert gradcheck_on(engine, lambda a: alpha.contiguous(a) * 2, permuted(rng)[..., :2])
    with pytest.raises(ArgumentError, match=r"\[contiguous\]"):
        x.contiguous((0, 1))


def test_numpy_operands(engine: Engine) -> None:
    x = alpha.tensor([1.0, 2.0], engine=engine)
    other = np.array([3.0, 4.0], np.float32)
    for y in (x + other, other + x, alpha.add(other, x)):
        assert isinstance(y, alpha.Tensor) and y.tolist() == [4, 6]
    assert (other > x).tolist() == [True, True]
    assert (x + np.float64(1)).dtype == alpha.float32


def test_errors(engine: Engine) -> None:
    x = alpha.zeros(2, 3, engine=engine)
    with pytest.raises(ShapeError, match=r"\[add\] expected shapes that broadcast .*\(2, 3\) and \(4,\)"):
        x + alpha.zeros(4, engine=engine)
    with pytest.raises(DtypeError, match=r"\[mul\] .* got list"):
        x * [1, 2, 3]
    with pytest.raises(DtypeError, match=r"\[neg\] expected numbers, got bool"):
        _ = -(x > 0)
    with pytest.raises(DtypeError, match=r"\[sub\]"):
        (x > 0) - (x > 0)


def test_engines_do_not_mix(engine: Engine) -> None:
    other = type(alpha.engine("cpu"))("64MB")
    with pytest.raises(EngineError, match=r"\[add\] expected tensors of one engine"):
        alpha.ones(2, engine=engine) + alpha.ones(2, engine=other)
    moved = alpha.ones(2, requires_grad=True, engine=engine)
    (moved.to(other) * 3).sum().backward()
    assert moved.grad is not None and moved.grad.engine is engine and moved.grad.tolist() == [3, 3]


# -- large arrays: threads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape, order",
    [((600, 700), (0, 1)), ((600, 700), (1, 0)), ((2, 300000), (0, 1)), ((1, 3, 90000, 2), (1, 2, 0, 3))],
)
def test_large_arrays_are_the_same_with_any_number_of_threads(
    cpu: CPUEngine, rng: np.random.Generator, shape: tuple[int, ...], order: tuple[int, ...]
) -> None:
    x = alpha.tensor(draw(rng, shape, -2, 2), engine=cpu).contiguous(order)
    row = alpha.tensor(draw(rng, shape[-1:], -2, 2), engine=cpu)
    assert x.numel() >= pointwise.FOUND
    before = cpu.threads
    results = []
    try:
        for threads in (1, 2, 3):
            cpu.configure(threads=threads)
            results.append([x + row, x.exp(), x.sigmoid(), alpha.erf(x), alpha.where(x > row, x, 0.0), x * 2])
    finally:
        cpu.configure(threads=before)
    for several in results[1:]:
        for a, b in zip(results[0], several, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert_close(results[0][0], x.numpy() + row.numpy())
    assert results[0][1].is_contiguous(order)


def test_large_in_place_result_overlapping_an_operand(engine: Engine) -> None:
    n = 2 * pointwise.FOUND
    x = alpha.arange(n, dtype=alpha.float64, engine=engine)
    expected = np.arange(n, dtype=np.float64)
    expected[1:] += expected[:-1].copy()
    head, tail = x[:-1], x[1:]
    engine.elementwise("add", tail, head, out=tail)
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_threads_after_a_fork(cpu: CPUEngine) -> None:
    """A child process has no threads but one: it must start its own."""
    x = alpha.ones(pointwise.FOUND * 2, engine=cpu)
    cpu.elementwise("add", x, 1)
    child = os.fork()
    if child == 0:
        ok = cpu.elementwise("add", x, 1).numpy()[-1] == 2
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
