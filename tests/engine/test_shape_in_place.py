"""Shapes in place: what a tensor becomes, what its views see, its place in the graph, refusals; PyTorch's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, GraphError, ShapeError
from alpha.testing import assert_close

CHANGES: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
    ("squeeze_", (), (1, 3, 1)),
    ("squeeze_", (0,), (1, 3, 1)),
    ("squeeze_", ((0, -1),), (1, 3, 1)),
    ("squeeze_", (1,), (1, 3, 1)),
    ("unsqueeze_", (1,), (2, 3)),
    ("unsqueeze_", (-1,), ()),
    ("transpose_", (0, 2), (2, 3, 4)),
    ("swapaxes_", (0, -1), (2, 3, 4)),
    ("swapdims_", (1, 0), (2, 3)),
    ("t_", (), (2, 3)),
    ("t_", (), (3,)),
    ("as_strided_", ((2, 2), (1, 2)), (2, 3)),
    ("as_strided_", ((2, 2), (1, 2), 1), (2, 3)),
]


def _numbers(engine: Engine, shape: tuple[int, ...]) -> alpha.Tensor:
    return alpha.arange(float(np.prod(shape)), engine=engine).reshape(shape)


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("name", "arguments", "shape"), CHANGES, ids=str)
def test_a_tensor_becomes_pytorchs(engine: Engine, name: str, arguments: Any, shape: tuple[int, ...]) -> None:
    import torch

    x, theirs = _numbers(engine, shape), torch.arange(float(np.prod(shape))).reshape(shape)
    memory, version = x.storage, x.version
    x.numpy()  # whose view of the memory must not stay what numpy() shows
    assert getattr(x, name)(*arguments) is x
    getattr(theirs, name)(*arguments)
    assert x.storage is memory and x.version == version + 1
    assert (x.shape, x.strides) == (tuple(theirs.shape), theirs.stride())
    np.testing.assert_array_equal(x.numpy(), theirs.numpy())
    np.testing.assert_array_equal((x + 1).numpy(), theirs.numpy() + 1)


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("name", "arguments", "shape"), CHANGES, ids=str)
def test_gradients_are_pytorchs(engine: Engine, name: str, arguments: Any, shape: tuple[int, ...]) -> None:
    import torch

    leaf, theirs = _numbers(engine, shape).requires_grad_(), torch.arange(float(np.prod(shape))).reshape(shape)
    theirs.requires_grad_()
    for given in (leaf, theirs):
        x: Any = given * 2
        if given is leaf:
            x.retain_grad()  # which PyTorch refuses to keep
        getattr(x, name)(*arguments)
        x.mul_(x.detach().clone() + 1)
        (x * x).sum().backward()
        assert given is theirs or (x.retains_grad and x.grad.shape == x.shape)
    assert leaf.grad is not None and theirs.grad is not None
    np.testing.assert_allclose(np.asarray(leaf.grad), theirs.grad.numpy(), rtol=1e-5)


def test_views_of_it_stay_in_the_graph(engine: Engine) -> None:
    leaf = _numbers(engine, (2, 3)).requires_grad_()
    x = leaf * 1
    row, flat = x[0], x.view(6)
    x.t_().mul_(3)
    row.unsqueeze_(0).mul_(2)
    assert x.shape == (3, 2) and row.shape == (1, 3) and flat.shape == (6,)
    assert_close(flat, [0, 6, 12, 9, 12, 15])
    (flat * 10 + x.T.reshape(6)).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [[66.0] * 3, [33.0] * 3]


def test_what_backward_saved_is_no_longer_valid(engine: Engine) -> None:
    leaf = alpha.ones(2, 3, requires_grad=True, engine=engine)
    x = leaf * 1
    y = x * x
    x.t_()
    with pytest.raises(GraphError, match="an in-place operation overwrote what backward"):
        y.sum().backward()


def test_leaves_change_within_no_grad_alone(engine: Engine) -> None:
    leaf = alpha.ones(2, 3, requires_grad=True, engine=engine)
    for change in (leaf.t_, leaf[0].t_):
        with pytest.raises(GraphError, match=r"\[t_\] expected a tensor that is not a leaf of the graph"):
            change()
    result = leaf * 2
    with alpha.no_grad():
        result.t_()
    result.sum().backward()  # which keeps its place in the graph
    assert leaf.grad is not None and leaf.grad.shape == (2, 3)
    with alpha.no_grad():
        assert leaf.t_().shape == (3, 2) and leaf.is_leaf and leaf.requires_grad


def test_refusals_leave_it_as_it_is(engine: Engine) -> None:
    x = _numbers(engine, (2, 3))
    for wrong, kind in (
        (lambda: x.t_(1), ArgumentError),
        (lambda: x.transpose_(0), ArgumentError),
        (lambda: x.transpose_(0, 5), ShapeError),
        (lambda: x.unsqueeze_(4), ShapeError),
        (lambda: x.as_strided_((4, 4), (4, 1)), ShapeError),
        (lambda: alpha.zeros(1, 2, 3, engine=engine).t_(), ShapeError),
    ):
        with pytest.raises(kind):
            wrong()
    assert x.shape == (2, 3) and x.version == 0


def test_detach_in_place(engine: Engine) -> None:
    leaf = alpha.ones(3, requires_grad=True, engine=engine)
    x = leaf * 2
    assert x.detach_() is x and x.is_leaf and not x.requires_grad and x.grad_fn is None
    assert (x * leaf).requires_grad
    assert not alpha.ones(2, requires_grad=True, engine=engine).detach_().requires_grad
    for view in (leaf[0], (leaf * 2)[0], alpha.ones(2, engine=engine)[0]):
        with pytest.raises(GraphError, match=r"\[detach_\] expected a tensor that is no view"):
            view.detach_()


def test_resizing(engine: Engine) -> None:
    x = _numbers(engine, (2, 3))
    memory = x.storage
    assert x.resize_(3, 1) is x and x.storage is memory and x.tolist() == [[0], [1], [2]]
    assert x.resize_((2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    view = x[1:]
    assert x.resize_(4, 2).shape == (4, 2) and x.storage is not memory and x.is_contiguous()
    assert x[:3].tolist() == [[0, 1], [2, 3], [4, 5]], "the elements that there were stay"
    assert view.tolist() == [[3, 4, 5]], "a view keeps the memory that it has"
    assert view.resize_as_(alpha.zeros(2, engine=engine)).tolist() == [3, 4]
    turned = _numbers(engine, (2, 3)).T
    assert turned.resize_(3, 2).strides == (1, 3), "the shape that it has already changes nothing"
    assert turned.resize_(2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
    empty = alpha.empty(0, engine=engine)
    assert empty.resize_(2).fill_(1).tolist() == [1, 1]
    for given in (
        alpha.ones(2, requires_grad=True, engine=engine),
        alpha.ones(2, requires_grad=True, engine=engine) * 1,
    ):
        with pytest.raises(GraphError, match=r"\[resize_\] expected a tensor that requires no grad"):
            given.resize_(3)
    with pytest.raises(AlphaError, match=r"\[resize_\]"):
        x.resize_(-1)
    with pytest.raises(AlphaError, match=r"\[resize_as_\]"):
        x.resize_as_((2, 3))  # type: ignore[arg-type]


def test_data_that_is_assigned_is_what_numpy_shows(engine: Engine) -> None:
    x = alpha.zeros(2, engine=engine)
    assert x.numpy().tolist() == [0, 0]
    x.data = alpha.ones(3, engine=engine)
    assert x.numpy().tolist() == x.tolist() == [1, 1, 1]
