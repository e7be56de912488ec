"""Indexing against NumPy: views, copies, masks, assignment; gradients; out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices

import alpha
from alpha.engine import Engine
from alpha.errors import DtypeError, GraphError, IndexingError, ShapeError
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on

Array = np.ndarray[Any, Any]

X = np.arange(3 * 4 * 5, dtype=np.float64).reshape(3, 4, 5)
MASK = X % 3 == 0
ADVANCED: dict[str, Any] = {
    "list": [2, 0, 2],
    "negative": [-1, 0],
    "array": np.array([[0, 1], [2, 0]]),
    "second axis": (slice(None), [3, 1]),
    "last axis": (..., [4, 0, 0]),
    "pairs": ([0, 2, 2], [1, 3, 3]),
    "broadcast": (np.array([[0], [2]]), np.array([1, 3, 0])),
    "apart": ([0, 2], slice(1, 3), [4, 0]),
    "with an int": ([0, 2], slice(None), 1),
    "with None": (None, [0, 2], ..., None),
    "slice step": (slice(None, None, 2), [0, 3]),
    "reversed": (slice(None, None, -1), [0, 3]),
    "mask": MASK,
    "row mask": MASK[:, 0, 0],
    "row mask, slice": (MASK[:, 0, 0], slice(1, 3)),
    "two-axis mask": MASK[:, :, 0],
    "axis mask": (slice(None), MASK[0, :, 0]),
    "mask and list": (MASK[:, 0, 0], [1]),
    "nothing": [],
}


def ours(engine: Engine, key: Any) -> Any:
    """The key with NumPy's arrays as tensors of the engine."""
    if isinstance(key, tuple):
        return tuple(ours(engine, entry) for entry in key)
    return alpha.tensor(key, engine=engine) if isinstance(key, np.ndarray) else key


@given(shape=array_shapes(min_dims=0, max_dims=4, max_side=5), data=st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_basic_indexing(engine: Engine, shape: tuple[int, ...], data: Any) -> None:
    x = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)
    key = data.draw(basic_indices(shape, max_dims=6, allow_newaxis=True, allow_ellipsis=True))
    t = alpha.tensor(x, requires_grad=True, engine=engine)
    y = t[key]
    expected = x[key]
    np.testing.assert_array_equal(y.detach().numpy(), expected)
    assert all(stride >= 0 for stride in y.strides)
    weights = np.random.default_rng(0).standard_normal(expected.shape)
    (y * weights).sum().backward()
    gradient = np.zeros(shape)
    gradient[key] = weights
    assert t.grad is not None
    np.testing.assert_array_equal(t.grad.numpy(), gradient)


@given(shape=array_shapes(min_dims=0, max_dims=3, max_side=4), data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_basic_assignment(engine: Engine, shape: tuple[int, ...], data: Any) -> None:
    rng = np.random.default_rng(0)
    key = data.draw(basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    x, weights = rng.standard_normal(shape), rng.standard_normal(shape)
    value = rng.standard_normal(x[key].shape)
    t, v = (alpha.tensor(a, requires_grad=True, engine=engine) for a in (x, value))
    y = t * 1
    y[key] = v
    expected = x.copy()
    expected[key] = value
    np.testing.assert_array_equal(y.detach().numpy(), expected)
    (y * weights).sum().backward()
    assert t.grad is not None and v.grad is not None
    np.testing.assert_array_equal(v.grad.numpy(), weights[key])
    weights[key] = 0
    np.testing.assert_array_equal(t.grad.numpy(), weights)


@pytest.mark.parametrize("name", ADVANCED)
def test_advanced_indexing(engine: Engine, name: str) -> None:
    key = ADVANCED[name]
    for x in (X, np.ascontiguousarray(X.transpose(1, 2, 0)).transpose(2, 0, 1)):
        t = alpha.tensor(x, engine=engine)
        np.testing.assert_array_equal(t[ours(engine, key)].numpy(), X[key])
        np.testing.assert_array_equal(t[key].numpy(), X[key])
        assert t[key].storage is not t.storage
    assert gradcheck_on(engine, lambda a: a[ours(engine, key)] * 2, X) or X[key].size == 0


@pytest.mark.parametrize("name", ADVANCED)
def test_advanced_assignment(engine: Engine, rng: np.random.Generator, name: str) -> None:
    key = ADVANCED[name]
    expected, t = X.copy(), alpha.tensor(X, engine=engine)
    expected[key] = -1
    t[ours(engine, key)] = -1
    np.testing.assert_array_equal(t.numpy(), expected)
    if name not in ("list", "pairs", "array", "last axis"):  # repeated positions: which value stays is not defined

        def assigned(x: alpha.Tensor, v: alpha.Tensor) -> alpha.Tensor:
            y = x * 1
            y[ours(engine, key)] = v
            return y

        assert gradcheck_on(engine, assigned, X, rng.standard_normal(X[key].shape))


def test_repeated_indices_add_up_their_gradients(engine: Engine) -> None:
    x = alpha.ones(3, requires_grad=True, engine=engine)
    x[[0, 0, 2, 0]].sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3, 0, 1]


def test_views_and_iteration(engine: Engine) -> None:
    x = alpha.tensor(X, engine=engine)
    assert x[1].storage is x.storage and x[:, 1:3].storage is x.storage and x[..., None].storage is x.storage
    assert x[::-1].storage is not x.storage
    rows = list(x)
    assert len(rows) == len(x) == 3
    np.testing.assert_array_equal(rows[2].numpy(), X[2])
    assert [row.item() for row in alpha.arange(3, engine=engine)] == [0, 1, 2]
    assert alpha.tensor(7, engine=engine)[...].item() == 7
    assert alpha.tensor(7, engine=engine)[()].shape == ()


def test_integer_scalars_as_indices(engine: Engine) -> None:
    x = alpha.tensor(X, engine=engine)
    for one in (np.int32(1), alpha.tensor(1, engine=engine), np.array(1), alpha.tensor(np.uint8(1), engine=engine)):
        np.testing.assert_array_equal(x[one, -1].numpy(), X[1, -1])
    assert [10, 20, 30][alpha.tensor(1, engine=engine)] == 20


def test_out_of_range_and_wrong_kinds(engine: Engine) -> None:
    x = alpha.tensor(X, engine=engine)
    for key in (3, -4, (0, 4), [0, 3], [-4], alpha.tensor([5], engine=engine)):
        with pytest.raises(IndexError, match=r"\[getitem\] expected .* of shape \(3, 4, 5\), got"):
            x[key]
            engine.synchronize()  # a device says so when the host waits for it
    for key in ((0, 0, 0, 0), (..., ...), (0, 0, 0, [0])):
        with pytest.raises(IndexingError, match=r"\[getitem\] expected at most 3 indices and one \.\.\."):
            x[key]
    for key in (1.0, "a", np.True_, alpha.tensor([1.0], engine=engine), [[1j]]):
        with pytest.raises(IndexingError, match=r"\[getitem\] expected ints, slices"):
            x[key]
    with pytest.raises(IndexingError, match=r"\[getitem\] expected a mask of shape \(3, 4\) at axis 0, got \(2, 4\)"):
        x[alpha.tensor(MASK[:2, :, 0], engine=engine)]
    with pytest.raises(IndexError, match=r"\[setitem\]"):
        x[7] = 0
    with pytest.raises(IndexingError, match=r"\[getitem\]"):
        alpha.tensor(1.0, engine=engine)[0]


def test_assignment_checks_value(engine: Engine) -> None:
    x = alpha.tensor(X, engine=engine)
    with pytest.raises(ShapeError, match=r"\[setitem\] expected a value that broadcasts to \(4, 5\), got \(3,\)"):
        x[0] = alpha.zeros(3, engine=engine)
    with pytest.raises(
        ShapeError, match=r"\[setitem\] expected a value that broadcasts to \(2, 4, 5\), got \(3, 4, 5\)"
    ):
        x[[0, 1]] = x
    with pytest.raises(ShapeError, match=r"\[setitem\]"):
        x[0] = alpha.zeros(2, 4, 5, engine=engine)
    whole = alpha.zeros(3, dtype=alpha.int64, engine=engine)
    with pytest.raises(DtypeError, match=r"\[setitem\] expected a value that int64 can hold, got float32"):
        whole[0] = 1.5
    whole[0] = True
    whole[1:] = np.array([3, 4], np.uint8)
    assert whole.tolist() == [1, 3, 4]
    x[0] = np.ones((1, 1, 4, 5))  # leading axes of length 1 fall away, as in NumPy
    assert x[0].min().item() == 1
    with pytest.raises(ShapeError, match=r"\[setitem\] expected memory of its own"):
        x[0].expand(2, 4, 5)[0] = 0


def test_assignment_from_its_own_memory(engine: Engine) -> None:
    x = alpha.arange(5, engine=engine)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3]
    x[::-1] = x
    assert x.tolist() == [3, 2, 1, 0, 0]


def test_assignment_to_a_leaf_in_the_graph_is_refused(engine: Engine) -> None:
    x = alpha.ones(3, requires_grad=True, engine=engine)
    with pytest.raises(GraphError, match=r"\[setitem\] expected a tensor that is not a leaf"):
        x[0] = 2
    with alpha.no_grad():
        x[0] = 2
    assert x.tolist() == [2, 1, 1]


# -- by position along an axis -----------------------------------------------------------------------------------


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_gather_is_pytorchs(engine: Engine, rng: np.random.Generator, dim: int) -> None:
    import torch

    shape = [2, 3, 4]
    shape[dim] = 6
    index = rng.integers(0, X.shape[dim], shape)
    result = alpha.gather(alpha.tensor(X, engine=engine), dim, alpha.tensor(index, engine=engine))
    assert_close(result, torch.gather(torch.tensor(X), dim, torch.tensor(index)))
    assert gradcheck_on(engine, lambda a: a.gather(dim, alpha.tensor(index, engine=engine)), X)


def test_take_along_dim(engine: Engine, rng: np.random.Generator) -> None:
    index = np.argsort(rng.standard_normal((1, 4, 5)), 1)
    t = alpha.tensor(X, engine=engine)
    wide = np.broadcast_to(index, (3, 4, 5))
    assert_close(alpha.take_along_dim(t, alpha.tensor(index, engine=engine), 1), np.take_along_axis(X, wide, 1))
    assert gradcheck_on(engine, lambda a: alpha.take_along_dim(a, alpha.tensor(index[:, :2], engine=engine), 1), X)
    assert gradcheck_on(engine, lambda a: alpha.take_along_dim(a, alpha.tensor(wide[:, :2], engine=engine), 1), X[:1])


def test_index_select(engine: Engine) -> None:
    t = alpha.tensor(X, engine=engine)
    for dim in (0, 1, -1):
        index = np.array([2, 0, 2, -1])
        result = alpha.index_select(t, dim, alpha.tensor(index, engine=engine))
        np.testing.assert_array_equal(result.numpy(), np.take(X, index, dim))
        assert gradcheck_on(
            engine, lambda a, d=dim, i=index: alpha.index_select(a, d, alpha.tensor(i, engine=engine)), X
        )


def test_one_hot(engine: Engine) -> None:
    labels = alpha.tensor([[2, 0], [1, 1]], engine=engine)
    assert alpha.one_hot(labels, 3).tolist() == [[[0, 0, 1], [1, 0, 0]], [[0, 1, 0], [0, 1, 0]]]
    assert alpha.one_hot(labels, 4).shape == (2, 2, 4) and alpha.one_hot(labels, 4).dtype == alpha.int64
    assert alpha.one_hot(labels, 3, alpha.float32).dtype == alpha.float32
    with pytest.raises(IndexingError, match=r"\[one_hot\] expected labels in 0..1, got 2"):
        alpha.one_hot(labels, 2)
        engine.synchronize()
    with pytest.raises(IndexingError, match=r"\[one_hot\] expected labels in 0..-1, got "):
        alpha.one_hot(labels, 0)
        engine.synchronize()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
def test_one_hot_of_each_dtype(engine: Engine, rng: np.random.Generator, dtype: str) -> None:
    given = rng.integers(0, 37, 300)
    labels = alpha.tensor(given, engine=engine)[::3]  # not dense
    found = alpha.one_hot(labels, 37, dtype).numpy()
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, np.eye(37)[given[::3]].astype(dtype))


@pytest.mark.parametrize("key", [True, False, (..., True, 1), (slice(None), True), (1, ..., False), (True, [0, 2])])
def test_bools_without_axes(engine: Engine, key: Any) -> None:
    """Each is an axis of length 1, of which True selects the entry and False none."""
    parts = key if isinstance(key, tuple) else (key,)
    as_tensors = tuple(alpha.tensor(part, engine=engine) if type(part) is bool else part for part in parts)
    for form in (key, as_tensors):
        t = alpha.tensor(X, requires_grad=True, engine=engine)
        np.testing.assert_array_equal(t[form].detach().numpy(), X[key])
        written, expected = t.detach().clone(), X.copy()
        written[form], expected[key] = -1.0, -1.0
        np.testing.assert_array_equal(written.numpy(), expected)
        t[form].sum().backward()
        assert t.grad is not None
        np.testing.assert_array_equal(t.grad.numpy(), expected == -1)


def test_a_mask_of_a_tensor_without_axes(engine: Engine) -> None:
    t = alpha.tensor(3.0, engine=engine)
    assert t[t > 2].tolist() == [3.0] and t[t > 4].shape == (0,)
    t[t > 2] = 1.0
    assert t.item() == 1.0


def test_masked_fill(engine: Engine) -> None:
    t = alpha.tensor(X, engine=engine)
    mask = alpha.tensor(MASK[0], engine=engine)
    assert_close(t.masked_fill(mask, -1), np.where(MASK[0], -1, X))
    assert gradcheck_on(engine, lambda a: alpha.masked_fill(a, mask, -1), X)
    with pytest.raises(ShapeError, match=r"\[masked_fill\]"):
        t.masked_fill(alpha.tensor(np.ones(9, bool), engine=engine), 0)
    with pytest.raises(DtypeError, match=r"\[masked_fill\]"):
        t.masked_fill(t, 0)


def test_wrong_indices_along_an_axis(engine: Engine) -> None:
    t = alpha.tensor(X, engine=engine)
    far = alpha.tensor([[[9]]], engine=engine)
    for name, case in {
        "gather": lambda: alpha.gather(t, 0, far),
        "take_along_dim": lambda: alpha.take_along_dim(t, far, 0),
        "index_select": lambda: alpha.index_select(t, 0, far.flatten()),
    }.items():
        with pytest.raises(
            IndexingError, match=rf"\[{name}\] expected indices within axis 0 of shape \(3, 4, 5\), got 9"
        ):
            case()
            engine.synchronize()
    with pytest.raises(ShapeError, match=r"\[gather\]"):
        alpha.gather(t, 0, alpha.zeros(1, 9, 1, dtype=int, engine=engine))
    with pytest.raises(ShapeError, match=r"\[index_select\]"):
        alpha.index_select(t, 0, far)
    with pytest.raises(DtypeError, match=r"\[gather\] expected an index of integers"):
        alpha.gather(t, 0, t)
