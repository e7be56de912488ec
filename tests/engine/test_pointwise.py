"""alpha.pointwise: values against float64 NumPy, gradients, broadcasting, strides, sizes, errors, compilations."""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cpu.engine import CPUEngine
from alpha.cpu.loops import machine
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, EngineError, GraphError, ShapeError
from alpha.expressions.functions import Evaluation
from alpha.expressions.graph import Graph
from alpha.expressions.program import Program
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on

ROOT = Path(__file__).resolve().parent.parent.parent
Array = np.ndarray[Any, Any]
_erf = np.vectorize(math.erf, otypes=[np.float64])


@alpha.pointwise
def soft(x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    return alpha.maximum(x, 0) + alpha.log1p(alpha.exp(-abs(x)))


@soft.gradient
def _soft_gradient(grad: Any, x: Any) -> Any:
    return grad * alpha.sigmoid(x)


@alpha.pointwise
def mish(x: Any, slope: Any) -> Any:
    """Mish with a slope of its own, which may be a tensor or a number."""
    return x * alpha.tanh(soft(slope * x))


def mish_of(x: Array, slope: Any) -> Array:
    z: Array = np.asarray(slope * x)
    result: Array = x * np.tanh(np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z))))
    return result


ONE: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "arithmetic": (
        lambda x: (2 * x - 3) / (x * x + 1) - 1 / (x + 5) + -x,
        lambda x: (2 * x - 3) / (x * x + 1) - 1 / (x + 5) - x,
    ),
    "reversed": (lambda x: 2 - x + 3 / (4 + x) + 2**x, lambda x: 2 - x + 3 / (4 + x) + 2**x),
    "powers": (
        lambda x: x**2 + x**3 - (x * x + 1) ** 0.5 + (x * x + 1) ** -1.5 + x**-1,
        lambda x: x**2 + x**3 - (x * x + 1) ** 0.5 + (x * x + 1) ** -1.5 + 1 / x,
    ),
    "exp": (alpha.exp, np.exp),
    "expm1": (alpha.expm1, np.expm1),
    "log": (lambda x: alpha.log(abs(x)), lambda x: np.log(np.abs(x))),
    "log1p": (lambda x: alpha.log1p(x * x), lambda x: np.log1p(x * x)),
    "sqrt": (lambda x: alpha.sqrt(x * x + 1), lambda x: np.sqrt(x * x + 1)),
    "rsqrt": (lambda x: alpha.rsqrt(x * x + 1), lambda x: 1 / np.sqrt(x * x + 1)),
    "sin cos": (lambda x: alpha.sin(x) * alpha.cos(3 * x), lambda x: np.sin(x) * np.cos(3 * x)),
    "tanh": (alpha.tanh, np.tanh),
    "sigmoid": (alpha.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "erf": (alpha.erf, _erf),
    "square reciprocal": (lambda x: alpha.reciprocal(alpha.square(x) + 1), lambda x: 1 / (x * x + 1)),
    "steps": (
        lambda x: alpha.floor(x) * x + alpha.ceil(x) - alpha.sign(x) * x,
        lambda x: np.floor(x) * x + np.ceil(x) - np.sign(x) * x,
    ),
    "extrema": (lambda x: alpha.maximum(x, 0.5) * alpha.minimum(x, 1), lambda x: np.maximum(x, 0.5) * np.minimum(x, 1)),
    "clamp": (
        lambda x: alpha.clamp(x, -1, 1.5) + alpha.clamp(x, min=0) + x.clamp(None, 0.1),
        lambda x: np.clip(x, -1, 1.5) + np.maximum(x, 0) + np.minimum(x, 0.1),
    ),
    "remainders": (
        lambda x: x % 0.7 * x + x // 0.45 + 5 % x - 3 // x + alpha.remainder(x, x + 7),
        lambda x: x % 0.7 * x + x // 0.45 + 5 % x - 3 // x + x % (x + 7),
    ),
    "where": (
        lambda x: alpha.where((x > -1) & ~(x >= 1) | (x == 2), x * x, -x),
        lambda x: np.where((x > -1) & ~(x >= 1) | (x == 2), x * x, -x),
    ),
    "logic": (
        lambda x: alpha.where(alpha.logical_xor(x < 1, x <= 0) | alpha.isnan(x), 2.0, x) * alpha.isfinite(x),
        lambda x: np.where((x < 1) ^ (x <= 0), 2.0, x),
    ),
    "a bool as a number": (lambda x: (x > 0) * x + (x != 0), lambda x: (x > 0) * x + 1.0),
    "methods": (lambda x: x.exp().tanh() + x.abs().sqrt(), lambda x: np.tanh(np.exp(x)) + np.sqrt(np.abs(x))),
    "methods of layers": (
        lambda x: x.relu() + alpha.masked_fill(x, x > 1, 0.5).sigmoid() + x.masked_fill(x < 0, 0).square(),
        lambda x: np.maximum(x, 0) + 1 / (1 + np.exp(-np.where(x > 1, 0.5, x))) + np.maximum(x, 0) ** 2,
    ),
    "Python's own functions": (
        lambda x: pow(x, 2) + sum([x, 1, abs(x)]) + math.prod([x, 2]) - divmod(x, 0.7)[1] * divmod(5, x)[0],
        lambda x: x**2 + x + 1 + np.abs(x) + 2 * x - x % 0.7 * (5 // x),
    ),
    "long": (
        lambda x: alpha.tanh(alpha.sin(alpha.exp(-alpha.sigmoid(x) * x) + 0.1 * x) * alpha.erf(x)),
        lambda x: np.tanh(np.sin(np.exp(-x / (1 + np.exp(-x))) + 0.1 * x) * _erf(x)),
    ),
    "itself": (lambda x: x, lambda x: x),
}
"""Functions of one argument, and the same in NumPy."""


def values(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers of both signs, away from 0 and from where the functions above have kinks."""
    found = np.asarray(rng.uniform(0.05, 2.4, shape) * rng.choice([-1, 1], shape), np.float32)
    for kink in (0.1, 0.5, 1.0, 1.5, 2.0):
        found[np.abs(np.abs(found) - kink) < 0.01] += 0.03
    return found


# -- values and gradients --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE)
def test_values(engine: Engine, rng: np.random.Generator, name: str) -> None:
    function, oracle = ONE[name]
    for dtype in (np.float32, np.float64):
        x = values(rng, (7, 33)).astype(dtype)
        y = alpha.pointwise(function)(alpha.tensor(x, engine=engine))
        assert y.dtype == dtype and y.shape == x.shape
        limit = 4e-6 if dtype == np.float32 else 4e-15
        assert_close(y, oracle(x.astype(np.float64)), rtol=limit, atol=limit)


@pytest.mark.parametrize("name", ONE)
def test_gradients(engine: Engine, rng: np.random.Generator, name: str) -> None:
    function = alpha.pointwise(ONE[name][0])
    assert gradcheck_on(engine, function, values(rng, (2, 1, 3)))


def test_functions_of_several_arguments(engine: Engine, rng: np.random.Generator) -> None:
    @alpha.pointwise
    def function(x: Any, y: Any, z: Any) -> Any:
        return alpha.maximum(x, y) ** 2 * alpha.where(x > y, z, y / z) + abs(y) ** z - alpha.minimum(x, z)

    x, y, z = values(rng, (4, 5)), values(rng, (4, 5)) + 0.013, rng.uniform(0.5, 2, (4, 5))
    found = function(*(alpha.tensor(v, engine=engine) for v in (x, y, z)))
    x, y = x.astype(np.float64), y.astype(np.float64)
    wanted = np.maximum(x, y) ** 2 * np.where(x > y, z, y / z) + np.abs(y) ** z - np.minimum(x, z)
    assert found.dtype == np.float64
    assert_close(found, wanted)
    assert gradcheck_on(engine, function, x, y, z)
    assert gradcheck_on(engine, lambda y: function(1.5, y, 0.7), y)


def test_a_tensor_of_bools_is_a_condition(engine: Engine, rng: np.random.Generator) -> None:
    @alpha.pointwise
    def chosen(mask: Any, x: Any, other: Any) -> Any:
        return alpha.where(mask & (x > 0), x * x, x) + mask * other

    x = values(rng, (6, 37))
    for mask in (x > 0.5, rng.random((6, 1)) > 0.5, rng.random(37) > 0.5, (rng.random((6, 74)) > 0.5)[:, ::2]):
        t = alpha.tensor(x, engine=engine, requires_grad=True)
        condition = alpha.tensor(mask, engine=engine)
        assert_close(chosen(condition, t, 2.0), np.where(mask & (x > 0), x * x, x) + 2 * mask)
        chosen(condition, t, 2.0).sum().backward()
        assert_close(t.grad, np.where(mask & (x > 0), 2 * x, 1))
        assert chosen(x=t, mask=True, other=0).shape == x.shape  # the same function of a number
    both = alpha.pointwise(lambda a, b: a ^ ~b)
    a, b = rng.random((2, 5, 131)) > 0.5
    assert_close(both(*(alpha.tensor(v, engine=engine) for v in (a, b))), a ^ ~b)


def test_results_into_a_given_tensor(engine: Engine, rng: np.random.Generator) -> None:
    """Wherever it lies, and whatever of it the function reads."""
    graph = Graph()
    x, y = graph.input(0), graph.input(1)
    program = Program(graph, [graph.apply("add", graph.apply("mul", x, 2.0), graph.apply("exp", y))], [x, y])
    a = values(rng, (40, 10))
    for region, other in (
        (lambda t: t[1:, 2:], lambda t: t[1:, 2:]),  # the same elements
        (lambda t: t[1:, 2:], lambda t: t[:-1, :-2]),  # partly the same, elsewhere
        (lambda t: t[:-1], lambda t: t[1:]),
        (lambda t: t[:10].T, lambda t: t[:10]),
        (lambda t: t[:, ::2], lambda t: t[:, 1::2]),
        (lambda t: t[0:2, :5], lambda t: t[3, :1]),
        (lambda t: t[5:6], lambda t: t[5, 3]),
    ):
        memory = alpha.tensor(a, engine=engine)
        out, read = region(memory), other(memory)
        expected = a.copy()
        wanted = 2 * region(a).astype(np.float64) + np.exp(other(a).astype(np.float64))
        region(expected)[...] = wanted
        (found,) = engine.pointwise("test", program, [out, read], (), out)
        assert found is out
        assert_close(memory, expected, rtol=1e-6)


def test_ties_and_kinks_have_the_gradients_of_the_functions_they_are_made_of(engine: Engine) -> None:
    x = np.array([-1.0, -0.0, 0.0, 1.0, 2.0, math.nan], np.float32)
    for function in (
        alpha.maximum,
        alpha.minimum,
        lambda x, y: abs(x) * y,
        lambda x, y: x**2 * y,
        lambda x, y: alpha.where(x > y, x, y),
        lambda x, y: alpha.clamp(x, 0, 1) + y,
    ):
        grads = []
        for form in (function, alpha.pointwise(function)):
            a, b = (alpha.tensor(v, engine=engine, requires_grad=True) for v in (x, np.zeros_like(x)))
            form(a, b).backward(alpha.tensor(np.full_like(x, 3), engine=engine))
            grads.append((a.grad, b.grad))
        for mine, other in zip(grads[1], grads[0], strict=True):
            assert_close(mine, other)


def test_a_gradient_in_a_form_of_ones_own(engine: Engine, rng: np.random.Generator) -> None:
    x = values(rng, (3, 4))
    assert gradcheck_on(engine, soft, x)
    assert gradcheck_on(engine, mish, x, np.float64(0.7) * np.ones(4))

    @alpha.pointwise
    def straight_through(x: Any, step: Any) -> Any:
        return alpha.floor(x / step) * step

    @straight_through.gradient
    def _(grad: Any, x: Any, step: Any) -> Any:
        return grad * 2, None

    a = alpha.tensor(x, engine=engine, requires_grad=True)
    straight_through(a, 0.25).backward(alpha.tensor(np.ones_like(x), engine=engine))
    assert_close(a.grad, np.full_like(x, 2))

    @alpha.pointwise
    def around(x: Any) -> Any:  # the form is kept where another function calls it
        return 3 * straight_through(x, 0.5)

    b = alpha.tensor(x, engine=engine, requires_grad=True)
    around(b).backward(alpha.tensor(np.ones_like(x), engine=engine))
    assert_close(b.grad, np.full_like(x, 6))


def test_steps_have_a_gradient_of_0(engine: Engine, rng: np.random.Generator) -> None:
    x = alpha.tensor(values(rng, (3,)), engine=engine, requires_grad=True)
    y = alpha.tensor(values(rng, (2, 3)), engine=engine, requires_grad=True)
    alpha.pointwise(lambda x, y: alpha.floor(x) * y)(x, y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 0, 0]
    assert_close(y.grad, np.broadcast_to(np.floor(x.detach().numpy()), (2, 3)))


@pytest.mark.needs("torch")
def test_as_pytorch(rng: np.random.Generator) -> None:
    import torch

    x, slope = values(rng, (4, 33)), rng.uniform(0.5, 2, 33).astype(np.float32)
    a, b = alpha.tensor(x, requires_grad=True), alpha.tensor(slope, requires_grad=True)
    ta, tb = (torch.from_numpy(v).requires_grad_() for v in (x, slope))
    y, ty = mish(a, b), ta * torch.tanh(torch.nn.functional.softplus(tb * ta))
    y.sum().backward()
    ty.sum().backward()
    assert_close(y, ty, rtol=2e-6)
    assert_close(a.grad, ta.grad, rtol=2e-6, atol=2e-6)
    assert_close(b.grad, tb.grad, rtol=4e-6, atol=4e-6)


# -- shapes, strides, sizes, dtypes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 61, 127, 257, 1009])
def test_sizes(engine: Engine, rng: np.random.Generator, size: int) -> None:
    for dtype in (np.float32, np.float64):
        x = values(rng, (size,)).astype(dtype)
        assert_close(mish(alpha.tensor(x, engine=engine), 1.5), mish_of(x.astype(np.float64), 1.5), rtol=4e-6)


@pytest.mark.parametrize(
    "shapes",
    [
        [(5, 7), ()], [(5, 7), (7,)], [(5, 7), (5, 1)], [(1, 7), (5, 1)], [(), ()], [(3, 1, 4), (2, 1)],
        [(2, 3, 4, 5), (3, 1, 5)], [(1,), (4, 1, 6)], [(0, 3), (1, 3)], [(2, 1, 1), (1, 3, 1)], [(6, 1), (6, 17)],
    ],
    ids=str,
)  # fmt: skip
def test_broadcasting(engine: Engine, rng: np.random.Generator, shapes: list[tuple[int, ...]]) -> None:
    x, slope = (values(rng, shape) for shape in shapes)
    y = mish(alpha.tensor(x, engine=engine), alpha.tensor(slope, engine=engine))
    wanted = mish_of(x.astype(np.float64), slope.astype(np.float64))
    assert y.shape == wanted.shape
    assert_close(y, wanted, rtol=4e-6)
    if y.numel():
        assert gradcheck_on(engine, mish, x, slope)


def test_strides(engine: Engine, rng: np.random.Generator) -> None:
    a = values(rng, (6, 10, 8))
    x = alpha.tensor(a, engine=engine)
    views: list[tuple[Any, Array]] = [
        (x.permute(2, 0, 1), a.transpose(2, 0, 1)),
        (x[:, ::3], a[:, ::3]),
        (x[1:5, 2:9, 3], a[1:5, 2:9, 3]),
        (x[:, :, ::2], a[:, :, ::2]),
        (x[2], a[2]),
        (x.T, a.T),
    ]
    for view, array in views:
        slope = values(rng, array.shape)
        for other, wanted in ((alpha.tensor(slope, engine=engine), slope), (view, array)):
            y = mish(view, other)
            assert y.numel() == math.prod(y.shape) and y.is_contiguous(y.memory_order())
            assert_close(y, mish_of(array.astype(np.float64), wanted.astype(np.float64)), rtol=4e-6)
    grown = x[:, :1].expand(6, 10, 8)
    assert_close(mish(grown, x), mish_of(np.broadcast_to(a[:, :1], a.shape).astype(np.float64), a), rtol=4e-6)
    assert gradcheck_on(engine, lambda x: mish(x[::2].permute(2, 0, 1), x.permute(2, 0, 1)[:, 1::2]), a)


def test_the_result_lies_as_the_largest_tensor(engine: Engine, rng: np.random.Generator) -> None:
    x = alpha.tensor(values(rng, (3, 4, 5)), engine=engine).permute(2, 0, 1)
    assert mish(x, alpha.tensor(values(rng, (4,)), engine=engine)).memory_order() == x.memory_order()


def test_dtypes_meet_as_elsewhere(engine: Engine, rng: np.random.Generator) -> None:
    x, slope = values(rng, (5, 9)), values(rng, (9,)).astype(np.float64)
    a, b = (alpha.tensor(v, engine=engine, requires_grad=True) for v in (x, slope))
    y = mish(a, b)
    assert y.dtype == np.float64
    assert_close(y, mish_of(x.astype(np.float64), slope))
    y.sum().backward()
    assert a.grad is not None and a.grad.dtype == np.float32
    assert b.grad is not None and b.grad.dtype == np.float64
    mixed = mish(b.detach(), a.detach())
    assert_close(mixed, mish_of(slope, x.astype(np.float64)))


def test_a_tensor_without_axes_leaves_the_dtype_to_the_others(engine: Engine, rng: np.random.Generator) -> None:
    x, slope = values(rng, (5,)), np.array(0.75)
    a, b = (alpha.tensor(v, engine=engine, requires_grad=True) for v in (x, slope))
    y = mish(a, b)
    assert y.dtype == (a * b).dtype == np.float32
    assert_close(y, mish_of(x.astype(np.float64), slope), rtol=4e-6)
    y.sum().backward()
    assert b.grad is not None and b.grad.dtype == np.float64 and b.grad.shape == ()


def test_comparisons_give_bools_outside_the_graph(engine: Engine, rng: np.random.Generator) -> None:
    x = values(rng, (3, 21))
    y = alpha.pointwise(lambda x, y: (x > y) & (x < 1))(alpha.tensor(x, engine=engine, requires_grad=True), 0.2)
    assert y.dtype == np.bool_ and not y.requires_grad
    assert y.tolist() == ((x > 0.2) & (x < 1)).tolist()


def test_arrays_numpy_numbers_keywords_and_defaults(engine: Engine, rng: np.random.Generator) -> None:
    @alpha.pointwise
    def scaled(x: Any, y: Any, by: Any = 2) -> Any:
        return by * x + y

    x = values(rng, (3,))
    t = alpha.tensor(x, engine=engine)
    for found, wanted in (
        (scaled(t, x), 3 * x),
        (scaled(x, y=t), 3 * x),
        (scaled(y=t, x=1.0, by=np.float32(3)), 3 + x),
        (scaled(t, True, 10**30), np.float32(1e30) * x + 1),
    ):
        assert found.dtype == np.float32 and found.engine is engine
        assert_close(found, wanted)


def test_parts_of_numbers_alone_are_computed_in_float64(engine: Engine) -> None:
    x = np.ones(3, np.float32)
    y = alpha.pointwise(lambda x, a: x * (a - 1) + alpha.exp(a) * 0)(alpha.tensor(x, engine=engine), 1 + 1e-12)
    assert_close(y, np.full(3, 1e-12), rtol=1e-3, atol=0)
    z = alpha.pointwise(lambda x, a, b: alpha.where(a > b, x, a))(alpha.tensor(x, engine=engine), 2, 3)
    assert z.tolist() == [2, 2, 2]


# -- the graph -------------------------------------------------------------------------------------------------------


def test_an_overwritten_argument_is_an_error_in_backward(engine: Engine, rng: np.random.Generator) -> None:
    x = alpha.tensor(values(rng, (4,)), engine=engine, requires_grad=True)
    z = x * 1
    y = mish(z, 0.5)
    z += 1
    with pytest.raises(GraphError, match="in-place"):
        y.sum().backward()


def test_what_backward_does_not_read_is_not_kept(engine: Engine, rng: np.random.Generator) -> None:
    x = alpha.tensor(values(rng, (4,)), engine=engine, requires_grad=True)
    z = x * 1
    y = alpha.pointwise(alpha.exp)(z)
    z += 1  # the gradient of exp is its result
    y.sum().backward()
    assert_close(x.grad, y.detach())
    with pytest.raises(GraphError):
        y.sum().backward()


def test_only_gradients_that_are_asked_for_are_computed(engine: Engine, rng: np.random.Generator) -> None:
    x, s = (alpha.tensor(values(rng, (4,)), engine=engine) for _ in range(2))
    y = mish(x, s.requires_grad_())
    y.sum().backward()
    assert x.grad is None and s.grad is not None
    node = mish(x, s)._node
    assert isinstance(node, Evaluation)
    assert node.gradient.places == (1,)


def test_no_graph_within_no_grad(engine: Engine, rng: np.random.Generator) -> None:
    x = alpha.tensor(values(rng, (4,)), engine=engine, requires_grad=True)
    with alpha.no_grad():
        assert not mish(x, 1.0).requires_grad


# -- the CPU's loops -------------------------------------------------------------------------------------------------


def test_bits_do_not_depend_on_threads_nor_on_the_place(rng: np.random.Generator) -> None:
    engine = CPUEngine(threads=1)
    x = rng.standard_normal((67, 3001)).astype(np.float32) * 4
    results = []
    for threads in (1, 2, 3):
        engine.configure(threads=threads)
        a, s = (alpha.tensor(v, engine=engine, requires_grad=True) for v in (x, x[:, :1]))
        y = mish(a, s)
        y.backward(alpha.tensor(x, engine=engine))
        assert a.grad is not None and s.grad is not None
        results.append([v.numpy().tobytes() for v in (y.detach(), a.grad, s.grad)])
    assert results[0] == results[1] == results[2]
    whole = mish(alpha.tensor(x, engine=engine), 1.25).numpy()
    for first, last in ((0, 1), (5, 9), (3, 38), (1, 3001)):
        part = mish(alpha.tensor(x[:, first:last], engine=engine), 1.25).numpy()
        assert part.tobytes() == whole[:, first:last].tobytes()


def test_new_numbers_sizes_and_engines_compile_nothing(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = alpha.pointwise(lambda x, y, a: x * a + alpha.exp(y * (a - 0.125)) * 0.3125)
    engine = CPUEngine(threads=1)

    def step(size: int, number: float) -> None:
        x, y = (alpha.tensor(values(rng, (size,)), engine=engine, requires_grad=True) for _ in range(2))
        function(x, y, number).backward(y.detach())

    step(100, 0.5)
    monkeypatch.setattr(machine, "loop", None)
    for size, number in ((100, 0.25), (100, 7), (31, 1e-3), (5000, 2.0)):
        step(size, number)


CHILD = """
import sys, warnings
import numpy as np, alpha
from alpha.cpu.loops import machine
warnings.simplefilter("ignore")
f = alpha.pointwise(lambda x: alpha.exp(x) * 0.71875)
assert np.allclose(f(alpha.tensor(np.arange(100, dtype="f") / 50)).numpy(), np.exp(np.arange(100) / 50) * 0.71875)
print(machine.compiled)
"""


def _child(cache: Path) -> int:
    environment = {**os.environ, "ALPHA_CACHE": str(cache), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CHILD]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_loops_are_kept_and_checked(tmp_path: Path) -> None:
    assert [_child(tmp_path), _child(tmp_path)] == [1, 0]
    (kept,) = (tmp_path / "cpu").glob("loop-*.kernel")
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    assert _child(tmp_path) == 1


@pytest.mark.slow
def test_without_a_cache_loops_are_compiled(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert [_child(tmp_path / "file"), _child(tmp_path / "file")] == [1, 1]


def test_a_loop_is_known_by_all_that_decides_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {machine._digest("a"), machine._digest("b")}
    monkeypatch.setattr(machine, "_target", lambda: ("system", "another processor", "+fma"))
    names.add(machine._digest("a"))
    monkeypatch.setattr(machine.llvmlite, "__version__", "0")
    names.add(machine._digest("a"))
    assert len(names) == 4


# -- errors ----------------------------------------------------------------------------------------------------------


def _branches(x: Any) -> Any:
    if x > 0:
        return x
    return -x


def _sums(x: Any) -> Any:
    return alpha.sum(x) + 1


def _uses_math(x: Any) -> Any:
    return math.exp(x)


def _uses_numpy(x: Any) -> Any:
    return np.exp(x)


def _multiplies_matrices(x: Any) -> Any:
    return x @ x


def _indexes(x: Any) -> Any:
    return x[0]


def _iterates(x: Any) -> Any:
    return max(*x)


def _asks_for_a_mean(x: Any) -> Any:
    return x.mean()


def _takes_a_tensor_from_outside(x: Any) -> Any:
    return x * alpha.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("function", "line", "words"),
    [
        (_branches, "if x > 0:", "alpha.where(condition, a, b)"),
        (_sums, "return alpha.sum(x) + 1", "do the rest outside"),
        (_uses_math, "return math.exp(x)", "in alpha"),
        (_uses_numpy, "return np.exp(x)", "alpha's functions"),
        (_multiplies_matrices, "return x @ x", "alpha.matmul"),
        (_indexes, "return x[0]", "index the tensor before the call"),
        (_iterates, "return max(*x)", "one element"),
        (_asks_for_a_mean, "return x.mean()", ".mean"),
        (_takes_a_tensor_from_outside, "return x * alpha.tensor([1.0, 2.0])", "one more argument"),
    ],
)
def test_errors_name_the_line(function: Callable[[Any], Any], line: str, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        alpha.pointwise(function)(alpha.tensor([1.0, 2.0]))
    text = str(caught.value)
    first = function.__code__.co_firstlineno + 1
    assert text.startswith(f"[{function.__name__}] expected ")
    assert f"in line {first} of test_pointwise.py" in text and line in text and words in text


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "and": (lambda x: alpha.where(x > 0 and x < 1, x, 0), "& | ~ of conditions"),
    "or": (lambda x: alpha.where(x < 0 or x > 1, x, 0), "& | ~ of conditions"),
    "not": (lambda x: alpha.where(not x > 0, x, 0), "& | ~ of conditions"),
    "a choice": (lambda x: x if x > 0 else 0.1 * x, "alpha.where(condition, a, b)"),
    "two comparisons": (lambda x: alpha.where(0 < x < 1, x, 0), "(a < b) & (b < c)"),
    "max": (lambda x: max(x, 0), "alpha.maximum(a, b)"),
    "min": (lambda x: min(x, 0), "alpha.minimum(a, b)"),
    "any": (lambda x: any([x > 0]) * x, "& | ~ of conditions"),
    "among numbers": (lambda x: x * (x in (1, 2)), "& | ~ of conditions"),
    "round": (lambda x: 2 * round(x), "alpha.floor(x + 0.5)"),
    "round to digits": (lambda x: round(x, 2), "alpha.floor(x + 0.5)"),
    "float": (lambda x: 2 * float(x), "in alpha"),
    "int": (lambda x: 2 * int(x), "alpha.floor"),
    "trunc of math": (lambda x: 2 * math.trunc(x), "use alpha.floor"),
    "floor of math": (lambda x: 2 * math.floor(x), "in alpha"),
    "a number's format": (lambda x: f"{x:.2f}", "print outside"),
    "how often": (lambda x: sum(x for _ in range(x)), "a Python number"),
    "a list's entry": (lambda x: [1, 2][x], "a Python number"),
    "a loop over it": (lambda x: sum(one for one in x), "one element"),
    "len": (lambda x: x / len(x), "one element"),
    "an element": (lambda x: x[0] * x, "index the tensor before the call"),
    "an element's change": (lambda x: x.__setitem__(0, 1.0), "alpha.where(condition, a, b)"),
    "shifted bits": (lambda x: x << 1, "use abs, ceil"),
    "bits of floats": (lambda x: x & 1, "compare them first"),
    "PyTorch's where": (lambda x: x.where(x > 0, 0.0), "alpha.where(condition, a, b)"),
    "shape": (lambda x: x / x.shape[0], "do the rest outside"),
    "detach": (lambda x: x * x.detach(), "do the rest outside"),
    "reshape": (lambda x: alpha.reshape(x, (1, 2)), "do the rest outside"),
    "softmax": (lambda x: alpha.softmax(x, 0), "do the rest outside"),
    "in place": (lambda x: x.add_(1), "do the rest outside"),
    "where of NumPy": (lambda x: np.where(x > 0, x, 0), "use alpha's functions"),
    "maximum of NumPy": (lambda x: np.maximum(x, 0), "use abs, ceil"),
    "clip of NumPy": (lambda x: np.clip(x, 0, 1), "use abs, ceil"),
    "an array": (lambda x: x * np.ones(2), "one more argument"),
    "nothing": (lambda x: x + None, "convert it before the call"),
    "text": (lambda x: x * "2", "convert it before the call"),
    "what alpha lacks": (lambda x: 2 * alpha.loglog(x), "alpha.loglog"),  # type: ignore[attr-defined]
    "a huge number": (lambda x: x + 10**400, "math.inf"),
    "operands": (lambda x: x.exp(2), "1 operand of exp"),
}
"""What strangers to symbols try, and what the error tells them."""


@pytest.mark.parametrize("name", REFUSED)
def test_habits_that_are_refused(name: str) -> None:
    function, words = REFUSED[name]
    with pytest.raises(ArgumentError) as caught:
        alpha.pointwise(function)(alpha.tensor([1.0, 2.0]))
    text = str(caught.value)
    assert f"in line {function.__code__.co_firstlineno} of test_pointwise.py" in text and words in text


def test_a_decision_by_a_number_is_refused() -> None:
    for function in (lambda x, n: x if n else -x, lambda x, n: x * max(n, 1), lambda x, n: sum(x for _ in range(n))):
        with pytest.raises(ArgumentError, match=r"in line \d+ of test_pointwise\.py"):
            alpha.pointwise(function)(alpha.tensor([1.0]), 2)


def test_a_function_that_calls_itself() -> None:
    @alpha.pointwise
    def without_end(x: Any) -> Any:
        return without_end(x) + 1

    @alpha.pointwise
    def around(x: Any) -> Any:
        return 2 * without_end(x)

    for function in (without_end, around):
        with pytest.raises(ArgumentError, match=r"\[without_end\] .* a recursion in line \d+ .*range\(n\)"):
            function(alpha.tensor([1.0]))


def test_a_line_of_a_function_within(rng: np.random.Generator) -> None:
    """The innermost of the user's own, whichever of them is point-wise."""

    def helper(x: Any) -> Any:
        return x if x > 0 else -x

    line = helper.__code__.co_firstlineno + 1
    inner = alpha.pointwise(lambda x: helper(2 * x))
    for function in (helper, lambda x: 2 * inner(x), inner):
        with pytest.raises(ArgumentError, match=f"in line {line} of test_pointwise.py, 'return x if x > 0 else -x'"):
            alpha.pointwise(function)(alpha.tensor([1.0]))


def test_loops_closures_and_prints(rng: np.random.Generator, capsys: pytest.CaptureFixture[str]) -> None:
    """They run once, with the function; numbers from outside are read then."""
    coefficients, seen = [0.5, -1.0, 2.0], []

    @alpha.pointwise
    def horner(x: Any) -> Any:
        total = 0.0
        for c in reversed(coefficients):
            total = total * x
            total += c
        seen.append(total)
        print(f"so far {total}", total)
        return total

    x = values(rng, (3, 5))
    wanted = 0.5 - x + 2 * x.astype(np.float64) ** 2
    for _ in range(2):
        assert_close(horner(alpha.tensor(x)), wanted, rtol=1e-6, atol=1e-6)
    assert len(seen) == 1 and capsys.readouterr().out.count("so far <expression add(") == 1


def test_nothing_and_text_are_unequal() -> None:
    def comparing(other: Any) -> Callable[[Any], Any]:
        return lambda x: -x if x == other else 2 * x if x != other else 3 * x

    for other in (None, "a"):
        assert alpha.pointwise(comparing(other))(alpha.tensor([1.0])).tolist() == [2.0]


def test_keywords_and_defaults(engine: Engine, rng: np.random.Generator) -> None:
    @alpha.pointwise
    def scaled(x: Any, by: Any = 2.0, *, plus: Any = 0.25) -> Any:
        return x * by + plus

    x = values(rng, (4,))
    t = alpha.tensor(x, engine=engine)
    for found, wanted in (
        (scaled(t), 2 * x + 0.25),
        (scaled(t, 3), 3 * x + 0.25),
        (scaled(t, plus=1), 2 * x + 1),
        (scaled(plus=t, x=3.0), 6 + x),
        (scaled(x=t, by=t, plus=0), x * x),
        (alpha.pointwise(lambda x: scaled(x, plus=x))(t), 3 * x),
        (alpha.pointwise(functools.partial(mish, slope=0.5))(t), mish_of(x, 0.5)),
    ):
        assert_close(found, wanted, rtol=4e-6, atol=1e-6)
    assert gradcheck_on(engine, lambda x, plus: scaled(x, 0.5, plus=plus), x, x)
    with pytest.raises(ArgumentError, match=r"\[scaled\] expected arguments as in scaled"):
        scaled(t, minus=2)
    with pytest.raises(ArgumentError, match=r"\[scaled\] expected tensors and numbers, got None"):
        scaled(t, None)


def test_errors_of_calls(engine: Engine) -> None:
    x = alpha.tensor([1.0, 2.0], engine=engine)
    with pytest.raises(ArgumentError, match=r"\[mish\] expected a tensor among the arguments, got float, int"):
        mish(1.0, 2)
    with pytest.raises(ArgumentError, match=r"\[mish\] expected tensors and numbers, got 'a'"):
        mish(x, "a")
    with pytest.raises(ArgumentError, match=r"\[mish\] expected tensors and numbers, got .*alpha.tensor"):
        mish(x, [1.0, 2.0])
    with pytest.raises(ArgumentError, match=r"\[mish\] expected arguments as in mish"):
        mish(x)
    with pytest.raises(ArgumentError, match="float's range"):
        mish(x, 10**400)
    for dtype in (alpha.int64, alpha.uint8):
        with pytest.raises(DtypeError, match=rf"\[mish\] expected tensors of float32 or float64, or bool, got {dtype}"):
            mish(x, alpha.tensor([1, 0], dtype=dtype, engine=engine))
    with pytest.raises(ShapeError, match=r"\[mish\] expected shapes that broadcast .* got \(2,\) and \(3,\)"):
        mish(x, alpha.tensor([1.0, 2.0, 3.0], engine=engine))


def test_errors_of_definitions() -> None:
    x = alpha.tensor([1.0])
    with pytest.raises(ArgumentError, match="expected a function, got 3"):
        alpha.pointwise(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="name each tensor"):
        alpha.pointwise(lambda *tensors: tensors[0])
    for result in (lambda x: 3.0, lambda x: None, lambda x: (x, x), lambda x: [x], lambda x: (v for v in (x,))):
        with pytest.raises(ArgumentError, match="expected an expression of the tensors as the result"):
            alpha.pointwise(result)(x)
    with pytest.raises(ArgumentError, match="got 2 results: make a function for each of them"):
        alpha.pointwise(lambda x: (x, -x))(x)
    with pytest.raises(ArgumentError, match="made of numbers alone"):
        alpha.pointwise(lambda x, y: y * 2)(x, 1.0)
    wrong = alpha.pointwise(lambda x, y: x * y)
    wrong.gradient(lambda grad, x, y: grad)
    with pytest.raises(ArgumentError, match="a gradient or None for each of 2 arguments"):
        wrong(alpha.tensor([1.0], requires_grad=True), 2.0)


def test_tensors_of_two_engines() -> None:
    with pytest.raises(EngineError, match=r"\[mish\] expected tensors of one engine, got cpu and numpy"):
        mish(alpha.tensor([1.0]), alpha.tensor([1.0], engine="numpy"))
