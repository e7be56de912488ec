"""Functions that fill weights: those of matrices, those under older names, and layers that are made without them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.nn import init, utils

OLDER = """
constant dirac eye kaiming_normal kaiming_uniform normal orthogonal sparse uniform xavier_normal xavier_uniform
"""


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (4, 1), (0, 3)])
def test_identity(shape: tuple[int, ...]) -> None:
    matrix = alpha.randn(*shape)
    assert init.eye_(matrix) is matrix
    np.testing.assert_array_equal(np.asarray(matrix), np.eye(*shape))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sparsity", [0.0, 0.1, 0.5, 0.95, 1.0])
def test_sparse_columns(sparsity: float, dtype: str) -> None:
    matrix = alpha.ones(33, 200, dtype=dtype)
    assert init.sparse_(matrix, sparsity, std=2.0) is matrix
    values = np.asarray(matrix)
    np.testing.assert_array_equal((values == 0).sum(axis=0), np.full(200, np.ceil(sparsity * 33)))
    if sparsity == 0.5:
        others = values[values != 0]
        assert abs(others.std() - 2) < 0.1 and abs(others.mean()) < 0.1
        share = (values == 0).mean(axis=1)  # every row is as likely as another
        assert share.min() > 0.3 and share.max() < 0.75


def test_draws_follow_the_seed() -> None:
    found = []
    for _ in range(2):
        alpha.manual_seed(4)
        found.append(np.asarray(init.sparse_(alpha.ones(5, 4), 0.4)))
    np.testing.assert_array_equal(*found)


def test_bad_arguments_are_refused() -> None:
    for function in (init.eye_, lambda x: init.sparse_(x, 0.1)):
        with pytest.raises(ShapeError, match="matrix"):
            function(alpha.ones(3))
        with pytest.raises(DtypeError, match="float"):
            function(alpha.ones(3, 3, dtype="int64"))
    for arguments in ((1.5,), (-0.1,), (0.5, -1.0)):
        with pytest.raises(ArgumentError, match="sparsity"):
            init.sparse_(alpha.ones(3, 3), *arguments)
    with pytest.raises(ArgumentError, match="skip_init"):
        utils.skip_init(3, 3)  # type: ignore[type-var]


@pytest.mark.parametrize("name", OLDER.split())
def test_older_names_warn_and_do_the_same(name: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {"constant": (2.0,), "sparse": (0.5,)}
    shape = (4, 3, 3) if name == "dirac" else (4, 3)
    found = []
    for function in (getattr(init, name), getattr(init, f"{name}_")):
        alpha.manual_seed(1)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found.append(np.asarray(function(alpha.zeros(*shape), *arguments.get(name, ()))))
        assert [one.category for one in seen] == [FutureWarning] * (function.__name__ == name)
    np.testing.assert_array_equal(*found)


def test_older_clipping_warns() -> None:
    x = alpha.ones(4, requires_grad=True)
    (x * 2).sum().backward()
    with pytest.warns(FutureWarning, match="use clip_grad_norm_"):
        total = utils.clip_grad_norm(x, 1.0)
    assert total.item() == pytest.approx(4.0)
    assert x.grad is not None and float(x.grad.norm()) == pytest.approx(1.0, rel=1e-5)


def test_a_layer_that_is_not_filled_draws_nothing() -> None:
    alpha.manual_seed(0)
    before = alpha.random.get_state()
    layer = utils.skip_init(nn.Linear, 3, 4, bias=False)
    nets = [utils.skip_init(kind, *args) for kind, args in ((nn.BatchNorm2d, (3,)), (nn.LSTM, (2, 3)))]
    assert alpha.random.get_state() == before
    assert layer.weight.shape == (4, 3) and layer.bias is None and len(nets) == 2
    again = nn.Linear(3, 4, bias=False)  # and others are filled
    assert alpha.random.get_state() != before
    layer.load_state_dict(again.state_dict())
    np.testing.assert_array_equal(np.asarray(layer.weight.detach()), np.asarray(again.weight.detach()))


@pytest.mark.needs("torch")
def test_spectral_norm_along_another_axis() -> None:
    import torch

    theirs = torch.nn.utils.spectral_norm(torch.nn.Linear(4, 3), n_power_iterations=30, dim=1).double()
    ours = utils.spectral_norm(nn.Linear(4, 3), n_power_iterations=30, dim=1).double()
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()
    }
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    x = np.random.default_rng(0).normal(size=(2, 4))
    y = ours(alpha.tensor(x))
    np.testing.assert_allclose(np.asarray(y.detach()), theirs(torch.tensor(x)).detach().numpy(), 1e-6)
    with pytest.raises(ShapeError, match="axis"):
        utils.spectral_norm(nn.Linear(2, 2), dim=2)
