"""Products of matrices against float64 NumPy: ranks, batches, strides, gradients, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cpu.engine import CPUEngine
from alpha.engine import Engine
from alpha.errors import DtypeError, EngineError, ShapeError
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on

Array = np.ndarray[Any, Any]

SHAPES = [
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((1, 1), (1, 1)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((2, 0), (0, 4)),
    ((0, 3), (3, 4)),
    ((0, 2, 3), (3, 4)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_matmul(engine: Engine, rng: np.random.Generator, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    result = alpha.tensor(x, engine=engine) @ alpha.tensor(y, engine=engine)
    expected = x.astype(np.float64) @ y.astype(np.float64)
    assert result.shape == expected.shape and result.dtype == alpha.float32
    assert_close(result, expected)
    assert gradcheck_on(engine, alpha.matmul, x, y)


def test_matmul_of_any_strides(engine: Engine, rng: np.random.Generator) -> None:
    base = rng.standard_normal((6, 8, 10)).astype(np.float32)
    t = alpha.tensor(base, engine=engine)
    pairs = [
        (t[0].T, base[0].T, t[1], base[1]),
        (t[0, ::2, ::2], base[0, ::2, ::2], t[1, ::2, :5].T, base[1, ::2, :5].T),
        (t[:, :, 0], base[:, :, 0], t[0], base[0]),
        (t[0, :1].expand(4, 10), np.broadcast_to(base[0, :1], (4, 10)), t[1].T, base[1].T),
        (t.permute(2, 0, 1), base.transpose(2, 0, 1), t[0, :8, :3], base[0, :8, :3]),
        (t[:, :, ::3], base[:, :, ::3], t.permute(0, 2, 1)[:, ::3], base.transpose(0, 2, 1)[:, ::3]),
    ]
    for x, a, y, b in pairs:
        assert_close(x @ y, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-5)


def test_gradient_in_float32_is_close_to_float64(engine: Engine, rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((64, 300)), rng.standard_normal((300, 32))
    grads = []
    for dtype in (np.float32, np.float64):
        a, b = (alpha.tensor(v.astype(dtype), requires_grad=True, engine=engine) for v in (x, y))
        ((a @ b) ** 2).sum().backward()
        grads.append((a.grad, b.grad))
    for single, double in zip(*grads, strict=True):
        assert single is not None and double is not None
        error = np.abs(single.numpy() - double.numpy()).max() / np.abs(double.numpy()).max()
        assert error < 1e-5


@pytest.mark.parametrize("shape", [(4, 3), (3,), (2, 5, 3), (0, 3), (1, 3)], ids=str)
def test_linear(engine: Engine, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in (shape, (6, 3), (6,)))
    t, u, v = (alpha.tensor(a, engine=engine) for a in (x, w, b))
    assert_close(alpha.linear(t, u, v), x.astype(np.float64) @ w.T + b)
    assert_close(alpha.linear(t, u), x.astype(np.float64) @ w.T)
    assert gradcheck_on(engine, alpha.linear, x, w, b)
    assert gradcheck_on(engine, alpha.linear, x, w)


def test_linear_computes_only_the_gradients_asked_for(engine: Engine) -> None:
    x = alpha.ones(2, 3, engine=engine)
    w = alpha.ones(4, 3, requires_grad=True, engine=engine)
    alpha.linear(x, w).sum().backward()
    assert x.grad is None and w.grad is not None and w.grad.tolist() == [[2.0] * 3] * 4


def test_outer_and_dot(engine: Engine, rng: np.random.Generator) -> None:
    x, y, z = rng.standard_normal(3), rng.standard_normal(4), rng.standard_normal(3)
    t, u, v = (alpha.tensor(a, engine=engine) for a in (x, y, z))
    assert_close(alpha.outer(t, u), np.outer(x, y))
    assert_close(alpha.dot(t, v), np.dot(x, z))
    assert alpha.dot(t, v).shape == ()
    assert gradcheck_on(engine, alpha.outer, x, y) and gradcheck_on(engine, alpha.dot, x, z)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("length", [0, 1, 2, 7, 1000])
def test_outer_and_dot_of_any_layout(engine: Engine, rng: np.random.Generator, length: int, dtype: Any) -> None:
    """Vectors with gaps, repeated elements, and columns of matrices; matmul of vectors is their dot product."""
    x, matrix = rng.standard_normal(2 * length).astype(dtype), rng.standard_normal((length, 3)).astype(dtype)
    t, m = alpha.tensor(x, engine=engine), alpha.tensor(matrix, engine=engine)
    vectors = [(t[::2], x[::2]), (m[:, 1], matrix[:, 1]), (t[:length], x[:length])]
    vectors.append((alpha.tensor(np.ones(1, dtype), engine=engine).expand(length), np.ones(length, dtype)))
    for left, a in vectors:
        for right, b in vectors:
            bound = (length + 1) * np.finfo(dtype).eps * float(np.abs(a) @ np.abs(b))
            for result in (alpha.dot(left, right), alpha.matmul(left, right)):
                assert result.shape == () and abs(result.item() - float(a @ b)) <= bound
            np.testing.assert_array_equal(alpha.outer(left, right).numpy(), np.outer(a, b))
            p, q = (alpha.tensor(v.copy(), requires_grad=True, engine=engine) for v in (a, b))
            alpha.dot(p, q).backward()
            assert p.grad is not None and q.grad is not None
            np.testing.assert_array_equal(p.grad.numpy(), b)
            np.testing.assert_array_equal(q.grad.numpy(), a)


def test_numpy_operands(engine: Engine) -> None:
    x = np.eye(3, dtype=np.float32)
    t = alpha.tensor(x * 2, engine=engine)
    assert isinstance(x @ t, alpha.Tensor)
    assert_close(x @ t, x * 2)
    assert_close(t @ x, x * 2)


def test_errors(engine: Engine) -> None:
    x, y = alpha.zeros(2, 3, engine=engine), alpha.zeros(4, 5, engine=engine)
    with pytest.raises(
        ShapeError, match=r"\[matmul\] expected x.shape\[-1\] == y.shape\[-2\], got x: \(2, 3\) and y: \(4, 5\)"
    ):
        x @ y
    with pytest.raises(
        ShapeError, match=r"\[matmul\] expected x.shape\[-1\] == y.shape\[-1\], got x: \(2, 3\) and y: \(4,\)"
    ):
        x @ y[:, 0]
    with pytest.raises(ShapeError, match=r"\[matmul\]"):
        x @ alpha.tensor(1.0, engine=engine)
    with pytest.raises(ShapeError, match=r"\[matmul\] expected batch axes that broadcast"):
        alpha.zeros(2, 1, 3, engine=engine) @ alpha.zeros(3, 3, 4, engine=engine)
    with pytest.raises(DtypeError, match=r"\[matmul\] expected tensors of one dtype, got float32 and float64"):
        x @ alpha.zeros(3, 1, dtype=alpha.float64, engine=engine)
    with pytest.raises(DtypeError, match=r"\[matmul\] expected float32 or float64, got bool"):
        alpha.zeros(2, 2, dtype=bool, engine=engine) @ alpha.zeros(2, 2, dtype=bool, engine=engine)
    with pytest.raises(
        ShapeError, match=r"\[linear\] expected x.shape\[-1\] == weight.shape\[1\], got x: \(2, 3\) and w: \(4, 5\)"
    ):
        alpha.linear(x, y)
    with pytest.raises(ShapeError, match=r"\[linear\] expected a bias of shape \(4,\), got \(5,\)"):
        alpha.linear(alpha.zeros(2, 5, engine=engine), y, alpha.zeros(5, engine=engine))
    with pytest.raises(DtypeError, match=r"\[dot\] expected tensors of one dtype"):
        alpha.dot(alpha.zeros(3, engine=engine), alpha.zeros(3, dtype=alpha.float64, engine=engine))
    for function in (alpha.dot, alpha.outer):
        with pytest.raises(EngineError, match=rf"\[{function.__name__}\]"):
            function(alpha.zeros(3, engine=engine), alpha.zeros(3, engine=CPUEngine()))
    with pytest.raises(ShapeError, match=r"\[dot\]"):
        alpha.dot(x, x)
    with pytest.raises(ShapeError, match=r"\[outer\]"):
        alpha.outer(x, x)
