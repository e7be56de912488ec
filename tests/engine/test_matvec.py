"""gemv, ger and what is built on them against float64 NumPy: sizes that fill no vector, strides, gradients, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import functions as F
from alpha import linalg
from alpha.cpu import products, streaming, workers
from alpha.cpu.engine import CPUEngine
from alpha.cpu.isa import ISA
from alpha.engine import Engine
from alpha.errors import DtypeError, GraphError, ShapeError
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on
from tests.tiers import FLOAT_NAMES

Array = np.ndarray[Any, Any]

SHAPES = [(1, 1), (1, 7), (7, 1), (3, 5), (4, 16), (9, 33), (8, 64), (37, 61), (130, 257), (5, 2049), (300, 520)]
"""Rows and columns beside and off the kernels' turns of 4 and 8 rows and vectors of 4 to 16 columns; the last two
matrices are shared by two threads."""


def bound(a: Array, x: Array, trans: bool) -> float:
    """A running sum of n products is off by n units of rounding of the sum of their sizes at most (Higham, 3.1)."""
    matrix = a.T if trans else a
    terms = np.abs(matrix).astype(np.float64) @ np.abs(x).astype(np.float64)
    return float(np.finfo(a.dtype).eps / 2 * (matrix.shape[1] + 2) * terms.max()) if terms.size else 0.0


def drawn(rng: np.random.Generator, dtype: str, *shapes: tuple[int, ...]) -> list[Array]:
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("shape", [*SHAPES, (0, 3), (3, 0)], ids=str)
def test_gemv(engine: Engine, rng: np.random.Generator, shape: tuple[int, int], trans: bool, dtype: str) -> None:
    a, x = drawn(rng, dtype, shape, (shape[0 if trans else 1],))
    result = linalg.gemv(alpha.tensor(a, engine=engine), alpha.tensor(x, engine=engine), trans)
    expected = (a.T if trans else a).astype(np.longdouble) @ x.astype(np.longdouble)
    assert result.shape == expected.shape and str(result.dtype) == dtype
    assert np.abs(result.numpy() - expected).max(initial=0) <= bound(a, x, trans)


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("shape", [*SHAPES, (0, 3), (3, 0)], ids=str)
def test_ger(engine: Engine, rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> None:
    a, x, y = drawn(rng, dtype, shape, shape[:1], shape[1:])
    tensors = [alpha.tensor(value, engine=engine) for value in (a, x, y)]
    expected = a.astype(np.longdouble) - 0.3 * np.outer(x.astype(np.longdouble), y)
    # Three roundings, or two: of the factor, of the product and of the sum.
    error = 3 * np.finfo(dtype).eps * (np.abs(a) + np.abs(np.outer(x, y)))
    new = linalg.ger(*tensors, alpha=-0.3)
    assert (np.abs(new.numpy() - expected) <= error).all()
    assert (tensors[0].numpy() == a).all()
    assert linalg.ger_(*tensors, alpha=-0.3) is tensors[0]
    assert (tensors[0].numpy() == new.numpy()).all()
    assert_close(linalg.outer(*tensors[1:]), np.outer(x, y))


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("shape", [(1, 16), (8, 33), (9, 64), (7, 24), (300, 512)], ids=str)
def test_results_past_the_caches_are_the_same(
    cpu: CPUEngine, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], dtype: str
) -> None:
    a, x, y = (alpha.tensor(v, engine=cpu) for v in drawn(rng, dtype, shape, shape[:1], shape[1:]))
    kept = cpu.ger(x, y, 0.7, a), cpu.ger(x, y)
    monkeypatch.setattr(products, "STREAMED", 0)
    monkeypatch.setattr(streaming, "STREAMED_BYTES", 0)
    streamed, loop = [], products._outer_loop
    monkeypatch.setattr(products, "_outer_loop", lambda *given: (streamed.append(given[1]), loop(*given))[1])
    launched, enter = [], workers.WORKERS.enter
    monkeypatch.setattr(workers.WORKERS, "enter", lambda *given: (launched.append(given[2][-1]), enter(*given))[1])
    for there, here in zip((cpu.ger(x, y, 0.7, a), cpu.ger(x, y)), kept, strict=True):
        assert (there.numpy() == here.numpy()).all()
    assert (cpu.ger(x, y, 0.7, a, a).numpy() == kept[0].numpy()).all()
    whole = shape[1] * a.dtype.itemsize % ISA.bytes == 0  # rows begin at whole vectors
    updates = [past for past in launched if isinstance(past, bool)]  # others are products alone
    assert updates == [whole, False] and streamed == [True]


def test_any_strides(engine: Engine, rng: np.random.Generator) -> None:
    base, line = drawn(rng, "float32", (40, 60), (120,))
    t, v = alpha.tensor(base, engine=engine), alpha.tensor(line, engine=engine)
    views = [
        (t[3:20, 5:30], base[3:20, 5:30]),
        (t.T[3:20, 5:30], base.T[3:20, 5:30]),
        (t[::3, ::2], base[::3, ::2]),
        (t[:1].expand(9, 60), np.broadcast_to(base[:1], (9, 60))),
        (t[:, 7:8], base[:, 7:8]),
        (t[4:5], base[4:5]),
    ]
    for a, matrix in views:
        rows, columns = matrix.shape
        x, y = line[1 : 2 * columns : 2], line[: 2 * rows : 2]
        tx, ty = v[1 : 2 * columns : 2], v[: 2 * rows : 2]
        assert_close(linalg.gemv(a, tx), matrix.astype(np.float64) @ x, rtol=1e-5, atol=1e-5)
        assert_close(linalg.gemv(a, ty, trans=True), matrix.T.astype(np.float64) @ y, rtol=1e-5, atol=1e-5)
        assert_close(linalg.ger(a, ty, tx, 0.5), matrix + 0.5 * np.outer(y, x), rtol=1e-5, atol=1e-5)
    part = t[3:20, 5:30]
    linalg.ger_(part, v[:17], v[:25], 2.0)
    base[3:20, 5:30] += 2 * np.outer(line[:17], line[:25])
    linalg.ger_(t.T[1:4, ::5], v[:3], v[3:11])
    base.T[1:4, ::5] += np.outer(line[:3], line[3:11])
    assert_close(t, base, rtol=1e-5, atol=1e-5)


def test_gradients(engine: Engine, rng: np.random.Generator) -> None:
    a, x, y = drawn(rng, "float32", (5, 7), (5,), (7,))
    assert gradcheck_on(engine, linalg.gemv, a, y)
    assert gradcheck_on(engine, lambda a, x: linalg.gemv(a, x, trans=True), a, x)
    assert gradcheck_on(engine, lambda a, x, y: linalg.ger(a, x, y, -1.5), a, x, y)
    assert gradcheck_on(engine, lambda a, x, y: linalg.ger_(a * 2, x, y, -1.5), a, x, y)
    assert gradcheck_on(engine, lambda a, x, y: linalg.gemv(linalg.ger(a, x, y), y) * linalg.gemv(a, y), a, x, y)
    assert gradcheck_on(engine, linalg.outer, x, y)
    assert gradcheck_on(engine, alpha.matmul, a, y)
    assert gradcheck_on(engine, alpha.matmul, x, a)
    row, weight, bias = drawn(rng, "float32", (1, 7), (5, 7), (5,))
    assert gradcheck_on(engine, F.linear, row, weight, bias)
    # A weight that is used twice: the second outer product is added into the first.
    assert gradcheck_on(engine, lambda r, w: F.linear(r, w) * F.linear(r * r, w), row, weight)


def test_a_vector_of_the_matrix_itself(engine: Engine, rng: np.random.Generator) -> None:
    (a,) = drawn(rng, "float32", (6, 6))
    t = alpha.tensor(a, engine=engine)
    linalg.ger_(t, t[0], t[1])
    assert_close(t, a + np.outer(a[0], a[1]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 2])
def test_linear_of_one_row_is_that_of_many(engine: Engine, rng: np.random.Generator, rows: int) -> None:
    x, w, b = drawn(rng, "float32", (rows, 45), (33, 45), (33,))
    tensors = [alpha.tensor(value, engine=engine, requires_grad=True) for value in (x, w, b)]
    y = F.linear(*tensors)
    assert_close(y, x.astype(np.float64) @ w.T + b, rtol=1e-5, atol=1e-5)
    y.backward(alpha.ones_like(y))
    expected = [np.broadcast_to(w.sum(0), x.shape), np.broadcast_to(x.sum(0), w.shape), np.full(33, rows)]
    for tensor, gradient in zip(tensors, expected, strict=True):
        assert_close(tensor.grad, gradient, rtol=1e-5, atol=1e-5)


def test_threads_change_no_bit(rng: np.random.Generator) -> None:
    a, x, y = drawn(rng, "float32", (301, 1027), (1027,), (301,))
    engine = alpha.engine("cpu")
    outer, results = engine.threads, []
    try:
        for threads in (1, 2, 5):
            engine.configure(threads=threads)
            t, u, v = (alpha.tensor(value, engine=engine) for value in (a, x, y))
            results.append([linalg.gemv(t, u), linalg.gemv(t, v, trans=True), linalg.ger(t, v, u)])
    finally:
        engine.configure(threads=outer)
    for others in results[1:]:
        assert all((one.numpy() == other.numpy()).all() for one, other in zip(results[0], others, strict=True))


def test_infinities_and_nan_pass(engine: Engine) -> None:
    a = alpha.tensor(np.array([[1, np.inf], [0, 1]], np.float32), engine=engine)
    x = alpha.tensor(np.array([1, 0], np.float32), engine=engine)
    assert np.isnan(linalg.gemv(a, x).numpy()).tolist() == [True, False]
    assert linalg.gemv(a, x, trans=True).tolist() == [1, np.inf]


def test_bad_input(engine: Engine) -> None:
    a, x, y = (alpha.ones(*shape, engine=engine) for shape in ((3, 4), (4,), (3,)))
    with pytest.raises(
        ShapeError, match=r"\[gemv\] expected x of A.shape\[1\] elements, got A: \(3, 4\) and x: \(3,\)"
    ):
        linalg.gemv(a, y)
    with pytest.raises(ShapeError, match=r"\[gemv\] expected x of A.shape\[0\] elements"):
        linalg.gemv(a, x, trans=True)
    with pytest.raises(ShapeError, match=r"\[gemv\] expected a matrix and vectors"):
        linalg.gemv(a, a)
    with pytest.raises(ShapeError, match=r"\[ger\] expected A of shape \(len\(x\), len\(y\)\)"):
        linalg.ger(a, x, y)
    with pytest.raises(DtypeError, match=r"\[ger\] expected alpha as a number, got Tensor"):
        linalg.ger(a, y, x, alpha.ones(1, engine=engine))  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match=r"\[gemv\] expected tensors of one dtype, got float32 and float64"):
        linalg.gemv(a, x.double())
    with pytest.raises(DtypeError, match=r"\[gemv\] expected a Tensor, got list"):
        linalg.gemv(a, [1, 2, 3, 4])  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"\[ger_\] expected a tensor that is not a leaf"):
        linalg.ger_(a.requires_grad_(), y, x)


def test_the_engine_checks_what_its_kernels_trust(cpu: CPUEngine) -> None:
    a, x, y = (alpha.ones(*shape, engine=cpu) for shape in ((3, 4), (4,), (3,)))
    for wrong in (
        lambda: cpu.gemv(a, y),
        lambda: cpu.gemv(a, x, trans=True),
        lambda: cpu.gemv(a, x.double()),
        lambda: cpu.gemv(a, x, plus=x),
        lambda: cpu.ger(y, x, a=a.T),
        lambda: cpu.ger(y, x, out=alpha.ones(4, 3, engine=cpu)),
        lambda: cpu.ger(y, x, a=a.double()),
        lambda: cpu.ger(y, x.double()),
        lambda: cpu.ger(y, a),
        lambda: cpu.ger(a, x),
    ):
        with pytest.raises(ShapeError, match=r"\[ge(mv|r)\] expected"):
            wrong()
